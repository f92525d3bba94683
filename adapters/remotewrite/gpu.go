package remotewrite

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"

	"quartermaster/domain"
)

// gpuScan collects readings of GPUs.
type gpuScan struct {
	nodes    []string
	node     map[string]uint32
	devices  []device
	device   map[string]uint32 // by labels
	readings []reading
}

// device is a GPU, a MIG instance or a time-slice replica, with its holder.
type device struct {
	node    uint32
	id      domain.GPUID
	parent  domain.GPUID // zero for a whole GPU
	profile string
	model   string // of the whole GPU; "" if unknown
	replica uint32
	holder  holder
	held    bool
	refused reason
}

// reading is a value of a device in a cell of the grid.
type reading struct {
	cell   int64 // number of scrape intervals since 1970
	time   int64
	device uint32
	column column
	value  uint32
}

// maxModel bounds the length of a GPU's model in bytes. A longer one is not kept. It is
// NVML_DEVICE_NAME_V2_BUFFER_SIZE of nvml.h.
const maxModel = 96

// deviceOf returns the index of the series' device. It returns false if the device is not known,
// and then accounts for the samples.
func (s *scan) deviceOf() (uint32, bool) {
	s.text = s.text[:0]
	for _, k := range [...]labelKey{
		keyNode, keyHostname, keyUUID, keyInstanceID, keyProfile, keyVGPU,
		keyExportedPod, keyExportedNamespace, keyExportedContainer, keyPod, keyNamespace, keyContainer,
	} {
		s.text = append(append(s.text, s.values[k]...), 0)
	}
	at, ok := s.gpus.device[string(s.text)]
	if !ok {
		key := string(s.text)
		s.spend(perTarget + 4*len(key))
		at = uint32(len(s.gpus.devices))
		s.gpus.devices = append(s.gpus.devices, s.newDevice())
		if s.gpus.device == nil {
			s.gpus.device = map[string]uint32{}
		}
		s.gpus.device[key] = at
	}
	if why := s.gpus.devices[at].refused; why != reasonNone {
		s.drop(why, len(s.samples))
		return 0, false
	}
	return at, true
}

// gpu takes a series of dcgm-exporter.
func (s *scan) gpu(m *metric) {
	at, ok := s.deviceOf()
	if !ok {
		return
	}
	step := s.step.Milliseconds()
	for _, x := range s.samples {
		v, ok := s.usable(x, m)
		if !ok {
			continue
		}
		s.gpus.readings = append(s.gpus.readings, reading{
			cell: x.time / step, time: x.time, device: at, column: m.column, value: uint32(v),
		})
	}
}

// newDevice reads the GPU and its holder from labels.
func (s *scan) newDevice() (d device) {
	node := s.first(keyNode, keyHostname)
	switch {
	case len(node) == 0:
		d.refused = noNode
		return d
	case len(s.values[keyNode]) == 0 && bytes.Contains(node, []byte("dcgm-exporter")):
		d.refused = podAsNode
		return d
	case len(s.values[keyUUID]) == 0:
		d.refused = noDevice
		return d
	}
	for _, k := range [...]labelKey{
		keyNode, keyHostname, keyProfile, keyInstanceID, keyExportedPod, keyExportedNamespace, keyPod, keyNamespace,
	} {
		if !plain(s.values[k]) {
			d.refused = badLabel
			return d
		}
	}
	id, ok := gpuID(s.values[keyUUID])
	if !ok {
		d.refused = badDevice
		return d
	}
	d.id = id
	if instance := s.values[keyInstanceID]; len(instance) > 0 {
		// The exporter gives only the parent's UUID, so the instance's id is derived.
		d.parent, d.profile = id, string(s.values[keyProfile])
		sum := sha256.Sum256([]byte("mig/" + id.String() + "/" + string(instance) + "/" + d.profile))
		d.id = domain.GPUID(sum[:16])
	}
	if model := s.values[keyGPUModel]; len(model) <= maxModel && plain(model) {
		d.model = string(model)
	}
	if n, err := strconv.ParseUint(string(s.values[keyVGPU]), 10, 16); err == nil {
		d.replica = uint32(n) + 1
	}
	name, ok := s.gpus.node[string(node)]
	if !ok {
		name = uint32(len(s.gpus.nodes))
		s.gpus.nodes = append(s.gpus.nodes, string(node))
		if s.gpus.node == nil {
			s.gpus.node = map[string]uint32{}
		}
		s.gpus.node[string(node)] = name
	}
	d.node = name
	// The labels that Prometheus adds for the scraped pod describe the exporter. The exporter's own
	// labels then have the prefix exported_.
	pod, namespace := s.values[keyPod], s.values[keyNamespace]
	switch {
	case (s.given>>keyExportedPod|s.given>>keyExportedNamespace|s.given>>keyExportedContainer)&1 != 0:
		pod, namespace = s.values[keyExportedPod], s.values[keyExportedNamespace]
	case bytes.Contains(pod, []byte("dcgm-exporter")) || bytes.Contains(s.values[keyContainer], []byte("dcgm-exporter")):
		pod = nil
	}
	if len(pod) > 0 {
		d.holder, d.held = s.holderOf(namespace, pod), true
		if len(d.holder.unit) > maxText || len(d.holder.deployment) > maxText {
			d.refused = badLabel
			return d
		}
	}
	s.text = binary.BigEndian.AppendUint32(append(append(append(s.text[:0], node...), 0), d.id[:]...), d.replica)
	d.refused = s.cluster.admitDevice(node, s.text, s.now)
	return d
}

// gpuID parses "GPU-" or "MIG-" and a UUID.
func gpuID(b []byte) (id domain.GPUID, ok bool) {
	b = bytes.TrimPrefix(bytes.TrimPrefix(b, []byte("GPU-")), []byte("MIG-"))
	if len(b) != 36 || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return id, false
	}
	var digits [32]byte
	n := copy(digits[:], b[:8])
	n += copy(digits[n:], b[9:13])
	n += copy(digits[n:], b[14:18])
	n += copy(digits[n:], b[19:23])
	copy(digits[n:], b[24:])
	if _, err := hex.Decode(id[:], digits[:]); err != nil || id == (domain.GPUID{}) {
		return id, false
	}
	return id, true
}

// samplesOfNodes appends an event for each node, cell and activity field.
func (s *scan) samplesOfNodes(events []domain.Envelope) []domain.Envelope {
	g := &s.gpus
	if len(g.readings) == 0 {
		return events
	}
	// Devices are in the order of their ids. Held ones come before the others.
	order := make([]uint32, len(g.devices))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		x, y := &g.devices[a], &g.devices[b]
		held := cmp.Compare(btoi(y.held), btoi(x.held))
		return cmp.Or(
			cmp.Compare(g.name(x), g.name(y)),
			bytes.Compare(x.id[:], y.id[:]),
			cmp.Compare(x.replica, y.replica),
			held,
			cmp.Compare(x.holder.unit, y.holder.unit),
			cmp.Compare(x.holder.workspace, y.holder.workspace),
		)
	})
	rank := make([]uint32, len(g.devices))
	for i, d := range order {
		rank[d] = uint32(i)
	}
	slices.SortFunc(g.readings, func(a, b reading) int {
		if c := cmp.Compare(a.cell, b.cell); c != 0 {
			return c
		}
		if a.device != b.device {
			return cmp.Compare(rank[a.device], rank[b.device])
		}
		if c := cmp.Compare(a.column, b.column); c != 0 {
			return c
		}
		return cmp.Compare(a.time, b.time)
	})
	sameEvent := func(a, b reading) bool {
		return a.cell == b.cell && g.devices[a.device].node == g.devices[b.device].node
	}
	for i := 0; i < len(g.readings); {
		j := i
		for j < len(g.readings) && sameEvent(g.readings[j], g.readings[i]) {
			j++
		}
		events = s.samplesOfNode(events, g.readings[i:j])
		i = j
	}
	return events
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (g *gpuScan) name(d *device) string {
	if d.refused != reasonNone {
		return ""
	}
	return g.nodes[d.node]
}

// entry collects the readings of a device in a cell.
type entry struct {
	device *device
	have   [columnClock + 1]bool
	value  [columnClock + 1]uint32
}

// samplesOfNode appends the events of one node and cell: one for each field that was some device's
// best source of activity, since an event names only one field.
func (s *scan) samplesOfNode(events []domain.Envelope, readings []reading) []domain.Envelope {
	var entries []entry
	for i := range readings {
		r := &readings[i]
		d := &s.gpus.devices[r.device]
		n := len(entries) - 1
		if n < 0 || entries[n].device.id != d.id || entries[n].device.replica != d.replica {
			entries = append(entries, entry{device: d})
			n++
		}
		e := &entries[n]
		switch {
		case e.have[r.column] && e.device.holder != d.holder && d.held:
			s.account.samples[setAside]++
			s.why[twoHolders]++
		case e.have[r.column]:
			s.account.samples[filtered]++
			s.why[repeatedCell]++
		default:
			e.have[r.column], e.value[r.column] = true, r.value
			s.account.samples[mapped]++
		}
	}
	step := domain.Instant(s.step)
	from := domain.Instant(readings[0].cell) * step
	for best := column(0); best <= columnTensor; best++ { // columnTensor stands for devices without activity
		var of []*entry
		for i := range entries {
			if e := &entries[i]; e.best() == best {
				of = append(of, e)
			}
		}
		if len(of) == 0 {
			continue
		}
		for len(of) > 0 {
			n := min(len(of), maxDevices)
			s.spend(perEvent + n*perEntry)
			ev := sampleOf(s.gpus.nodes[of[0].device.node], domain.Interval{From: from, To: from + step}, best, of[:n])
			events = append(events, domain.Envelope{Cluster: s.cluster.name, Subject: ev.Node, Time: from + step, Event: ev})
			of = of[n:]
		}
	}
	return events
}

// maxDevices bounds the devices of an event.
const maxDevices = 1024

// best returns the column with the best source of activity, or columnTensor if there is none.
func (e *entry) best() column {
	for c := range columnTensor {
		if e.have[c] {
			return c
		}
	}
	return columnTensor
}

func sampleOf(node string, interval domain.Interval, best column, entries []*entry) *domain.NodeSampled {
	ev := &domain.NodeSampled{Node: node, Interval: interval, IDs: make([]byte, 0, 16*len(entries))}
	if best < columnTensor {
		ev.ActivityField = activityFields[best]
	}
	strings := map[string]uint32{}
	text := func(t string) uint32 {
		if t == "" {
			return 0
		}
		if i, ok := strings[t]; ok {
			return i
		}
		ev.Strings = append(ev.Strings, t)
		strings[t] = uint32(len(ev.Strings))
		return strings[t]
	}
	at := func(col *[]uint32, i int) *uint32 {
		if *col == nil {
			*col = make([]uint32, len(entries))
		}
		return &(*col)[i]
	}
	parents := map[domain.GPUID]uint32{}
	holders := map[holder]uint32{}
	columns := [...]*[]uint32{
		columnTensor: &ev.TensorActive, columnDRAM: &ev.DRAMActive, columnMemory: &ev.MemoryUsedMiB,
		columnPower: &ev.PowerWatts, columnHeat: &ev.TemperatureC, columnClock: &ev.SMClockMHz,
	}
	for i, e := range entries {
		d := e.device
		ev.IDs = append(ev.IDs, d.id[:]...)
		if d.parent != (domain.GPUID{}) {
			if parents[d.parent] == 0 {
				ev.Parents = append(ev.Parents, d.parent[:]...)
				parents[d.parent] = uint32(len(ev.Parents) / 16)
			}
			*at(&ev.Parent, i) = parents[d.parent]
			if n := text(d.profile); n > 0 {
				*at(&ev.Profile, i) = n
			}
		}
		if n := text(d.model); n > 0 {
			*at(&ev.Model, i) = n
		}
		if d.replica > 0 {
			*at(&ev.Replica, i) = d.replica
		}
		if d.held {
			if holders[d.holder] == 0 {
				ev.HolderWorkspace = append(ev.HolderWorkspace, text(d.holder.workspace))
				ev.HolderDeployment = append(ev.HolderDeployment, text(d.holder.deployment))
				ev.HolderUnit = append(ev.HolderUnit, text(d.holder.unit))
				holders[d.holder] = uint32(len(ev.HolderWorkspace))
			}
			*at(&ev.Holder, i) = holders[d.holder]
		}
		if best < columnTensor {
			*at(&ev.ActivityMean, i) = e.value[best] + 1
		}
		for c := columnTensor; c <= columnClock; c++ {
			if e.have[c] {
				*at(columns[c], i) = e.value[c] + 1
			}
		}
	}
	return ev
}
