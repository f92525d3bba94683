package main

import (
	"cmp"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"quartermaster/adapters/dcgm"
	"quartermaster/domain"
)

// Ids of the DCGM fields that have a column of their own in a sample.
const (
	fieldSMClock     = 100
	fieldTemperature = 150
	fieldPower       = 155
	fieldUtil        = 203 // GPU utilization, percent
	fieldMemory      = 252
	fieldEngine      = 1001 // graphics engine active, share
	fieldSM          = 1002 // SM active, share
	fieldTensor      = 1004
	fieldDRAM        = 1005
)

// notOther are fields that are not stored as other readings: they have a column, or are events.
var notOther = []uint32{
	fieldSMClock, fieldTemperature, fieldPower, fieldUtil, fieldMemory, fieldEngine, fieldSM, fieldTensor, fieldDRAM,
	dcgm.FieldXID, dcgm.FieldRecovery,
}

// longestPause is the longest time between two frames that still counts as observed. Readings are a
// second apart.
const longestPause = 5 * time.Second

// sampler makes a sample of the readings of each interval. Intervals end at multiples of their
// length. One is cut short when the inventory changes, the clock is set, or the collector pauses,
// so that a sample never claims time that was not observed.
type sampler struct {
	cluster, node string
	interval      domain.Instant

	generation uint32
	devices    []dcgm.Device
	from       domain.Instant // start of the current interval; 0: none
	at         domain.Instant // time of the last readings
	boot       time.Duration
	sums       map[readingKey]*readingSum
	steps      int            // how many times the clock was set
	stepped    domain.Instant // size of the last step
}

type readingKey struct{ device, field uint32 }

type readingSum struct {
	n              int
	sum, low, high float64
	last           float64
}

func newSampler(cluster, node string, interval time.Duration) *sampler {
	return &sampler{cluster: cluster, node: node, interval: domain.Instant(interval), sums: map[readingKey]*readingSum{}}
}

// inventory sets a new list of devices. It returns the readings of the previous one.
func (s *sampler) inventory(inv *dcgm.Inventory, at domain.Instant) (done *reading) {
	done = s.cut(min(at, max(s.at, s.from)))
	s.generation, s.devices = inv.Generation, inv.Devices
	s.from = 0
	return done
}

// reading is an interval with its readings.
type reading struct {
	interval domain.Interval
	devices  []dcgm.Device
	sums     map[readingKey]*readingSum
}

// readings adds the readings of a moment, and returns the interval that ends there, if any.
func (s *sampler) readings(f *dcgm.Frame, r *dcgm.Readings) (done *reading) {
	if r.Generation != s.generation || len(s.devices) == 0 {
		return nil
	}
	if s.from != 0 {
		passed := f.Boot - s.boot
		step := f.At - s.at - domain.Instant(passed)
		if step < -domain.Second || step > domain.Second {
			s.steps++
			s.stepped = step
			done = s.cut(s.at)
			s.from = 0
		} else if passed > longestPause || passed < 0 {
			done = s.cut(s.at)
			s.from = 0
		}
	}
	if s.from == 0 {
		s.from = f.At
	} else if end := s.from - s.from%s.interval + s.interval; f.At >= end {
		done = s.cut(end)
		s.from = end
	}
	s.at, s.boot = f.At, f.Boot
	for _, v := range r.Readings {
		if v.Status != dcgm.StatusOK || math.IsNaN(v.Value) || math.IsInf(v.Value, 0) || v.Value < 0 {
			continue
		}
		k := readingKey{v.Device, v.Field}
		a := s.sums[k]
		if a == nil {
			a = &readingSum{low: v.Value, high: v.Value}
			s.sums[k] = a
		}
		a.n++
		a.sum += v.Value
		a.low, a.high, a.last = min(a.low, v.Value), max(a.high, v.Value), v.Value
	}
	return done
}

// cut ends the current interval.
func (s *sampler) cut(at domain.Instant) *reading {
	if s.from == 0 || at <= s.from || len(s.sums) == 0 {
		return nil
	}
	r := &reading{domain.Interval{From: s.from, To: at}, s.devices, s.sums}
	s.sums = make(map[readingKey]*readingSum, len(r.sums))
	return r
}

// mostEntries bounds the devices and shares of devices in an event.
const mostEntries = 4096

// sample makes the event of an interval. excluded is the number of devices and shares that did not
// fit, which are the last of the list.
func (r *reading) sample(cluster, node string, held *holdings, skew time.Duration) (e *domain.NodeSampled, excluded int) {
	e = &domain.NodeSampled{Node: node, Interval: r.interval, HoldersUnknown: held.unknown, SkewNanos: uint64(max(0, skew))}
	type entry struct {
		device  int
		replica uint32
	}
	var entries []entry
	cut := map[uint32]bool{}
	for _, d := range r.devices {
		if d.Parent > 0 {
			cut[d.Parent-1] = true
		}
	}
	ids := make([]domain.GPUID, len(r.devices))
	for i, d := range r.devices {
		ids[i] = idOf(cluster, node, &d)
		if d.Parent == 0 && cut[uint32(i)] {
			continue // its instances are listed instead
		}
		shares := held.shares[ids[i]]
		if shares == 0 {
			entries = append(entries, entry{i, 0})
		}
		for n := range shares {
			entries = append(entries, entry{i, n + 1})
		}
	}
	excluded = max(0, len(entries)-mostEntries)
	entries = entries[:len(entries)-excluded]

	t := texts{event: e, index: map[string]uint32{}}
	holders := map[holder]uint32{}
	parents := map[domain.GPUID]uint32{}
	n := len(entries)
	parent, profile, replica, holding := make([]uint32, n), make([]uint32, n), make([]uint32, n), make([]uint32, n)
	for i, x := range entries {
		d := &r.devices[x.device]
		id := ids[x.device]
		e.IDs = append(e.IDs, id[:]...)
		replica[i] = x.replica
		if d.Parent > 0 && int(d.Parent) <= len(ids) {
			p := ids[d.Parent-1]
			if parents[p] == 0 {
				e.Parents = append(e.Parents, p[:]...)
				parents[p] = uint32(len(e.Parents) / 16)
			}
			parent[i], profile[i] = parents[p], t.ref(d.Profile)
		}
		h, ok := held.held[slot{id, x.replica}]
		if !ok && x.replica > 0 {
			h, ok = held.held[slot{id, 0}]
		}
		if !ok {
			continue
		}
		if holders[h] == 0 {
			e.HolderWorkspace = append(e.HolderWorkspace, t.ref(h.workspace))
			e.HolderDeployment = append(e.HolderDeployment, t.ref(h.deployment))
			e.HolderUnit = append(e.HolderUnit, t.ref(h.unit))
			holders[h] = uint32(len(e.HolderWorkspace))
		}
		holding[i] = holders[h]
	}
	e.Parent, e.Profile, e.Replica, e.Holder = nonZero(parent), nonZero(profile), nonZero(replica), nonZero(holding)

	// Activity comes from the best field that each device has.
	activities := []uint32{fieldSM, fieldEngine, fieldUtil}
	e.ActivityField = r.has(activities...)
	activity := func(value func(*readingSum) float64) []uint32 {
		out := make([]uint32, n)
		for i, x := range entries {
			for _, field := range activities {
				if a := r.sums[readingKey{uint32(x.device), field}]; a != nil {
					scale := 1000.0
					if field == fieldUtil {
						scale = 10 // of percent
					}
					out[i] = uint32(min(math.Round(value(a)*scale), 1000)) + 1
					break
				}
			}
		}
		return nonZero(out)
	}
	column := func(field uint32, scale float64, most uint32, value func(*readingSum) float64) []uint32 {
		out := make([]uint32, n)
		for i, x := range entries {
			if a := r.sums[readingKey{uint32(x.device), field}]; a != nil {
				out[i] = uint32(min(math.Round(value(a)*scale), float64(most))) + 1
			}
		}
		return nonZero(out)
	}
	mean := func(a *readingSum) float64 { return a.sum / float64(a.n) }
	last := func(a *readingSum) float64 { return a.last }
	e.ActivityMean = activity(mean)
	e.ActivityMin = activity(func(a *readingSum) float64 { return a.low })
	e.ActivityMax = activity(func(a *readingSum) float64 { return a.high })
	const most32 = math.MaxUint32 - 1
	e.TensorActive = column(fieldTensor, 1000, 1000, mean)
	e.DRAMActive = column(fieldDRAM, 1000, 1000, mean)
	e.MemoryUsedMiB = column(fieldMemory, 1, most32, last)
	e.PowerWatts = column(fieldPower, 1, most32, mean)
	e.TemperatureC = column(fieldTemperature, 1, most32, last)
	e.SMClockMHz = column(fieldSMClock, 1, most32, last)
	r.others(e, func(yield func(entry int, device uint32)) {
		for i, x := range entries {
			yield(i, uint32(x.device))
		}
	})
	return e, excluded
}

// has returns the first of the fields that was read from any device, or 0.
func (r *reading) has(fields ...uint32) uint32 {
	for _, f := range fields {
		for k := range r.sums {
			if k.field == f {
				return f
			}
		}
	}
	return 0
}

// others adds the last readings of fields without a column that are not zero.
func (r *reading) others(e *domain.NodeSampled, entries func(func(int, uint32))) {
	var fields []uint32
	for k := range r.sums {
		if !slices.Contains(notOther, k.field) && !slices.Contains(fields, k.field) {
			fields = append(fields, k.field)
		}
	}
	slices.Sort(fields)
	entries(func(i int, device uint32) {
		for _, f := range fields {
			a := r.sums[readingKey{device, f}]
			if a == nil {
				continue
			}
			v := a.last
			if f > 1000 && f < 1009 {
				v *= 1000 // a share
			}
			if v = math.Round(v); v > 0 && v < 1<<53 {
				e.OtherEntry = append(e.OtherEntry, uint32(i))
				e.OtherField = append(e.OtherField, f)
				e.OtherValue = append(e.OtherValue, uint64(v))
			}
		}
	})
}

// nonZero returns a column, or nil if it is all zero.
func nonZero(col []uint32) []uint32 {
	if !slices.ContainsFunc(col, func(v uint32) bool { return v != 0 }) {
		return nil
	}
	return col
}

// idOf returns the id of a device. The id of a MIG device without a known UUID is derived from its
// position.
func idOf(cluster, node string, d *dcgm.Device) domain.GPUID {
	if d.UUID != (domain.GPUID{}) {
		return d.UUID
	}
	return domain.DeriveGPUID(cluster, node, int(d.GPU)<<16|int(d.GPUInstance)<<8|int(d.ComputeInstance))
}

// texts is the table of strings of a sample.
type texts struct {
	event *domain.NodeSampled
	index map[string]uint32
}

func (t *texts) ref(s string) uint32 {
	if s = printable(s, 256); s == "" {
		return 0
	}
	if n := t.index[s]; n > 0 {
		return n
	}
	t.event.Strings = append(t.event.Strings, s)
	t.index[s] = uint32(len(t.event.Strings))
	return t.index[s]
}

// printable replaces characters that an event may not hold, and shortens the text to most bytes. A
// cut-off end is replaced by its checksum, so that different texts stay different.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) <= most {
		return s
	}
	sum := crc32.ChecksumIEEE([]byte(s))
	return strings.ToValidUTF8(s[:most-10], "") + "~" + hex32(sum)
}

func hex32(n uint32) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 8)
	for i := range b {
		b[i] = digits[n>>(28-4*i)&15]
	}
	return string(b)
}

// registration returns the node's description from the collector's data.
func registration(cfg *Config, hello *dcgm.Hello, devices []dcgm.Device, cpus int, memoryMiB uint64) *domain.NodeRegistered {
	r := cfg.Register
	e := &domain.NodeRegistered{
		Node: cfg.Node, Provider: r.Provider, BillingAccount: r.BillingAccount, ResourceID: r.ResourceID, SKU: r.SKU, Zone: r.Zone,
		BillingModel: domain.BillingModel(r.BillingModel), FabricDomain: r.FabricDomain,
		CPUMilli: uint64(cpus) * 1000, MemoryMiB: memoryMiB, DriverVersion: printable(hello.Driver, 256),
	}
	for _, d := range devices {
		if d.Parent == 0 && d.UUID != (domain.GPUID{}) {
			e.GPUs = append(e.GPUs, domain.GPUDeclared{
				ID:        d.UUID,
				Index:     d.GPU,
				Model:     cmp.Or(printable(d.Model, 256), "unknown"),
				MemoryMiB: d.MemoryMiB,
				Serial:    printable(d.Serial, 256),
				PCI:       printable(d.PCI, 256),
			})
		}
	}
	return e
}
