package advice

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"quartermaster/domain"
	"quartermaster/domain/packing/online"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/planning"
	"quartermaster/projections/usage"
)

// Hours keeps the GPU time of whole UTC days, by hour, and what deployments held, from one tick to the next. What it keeps
// is a pure function of the rows: a day of a cluster is summed up again when a record changed its usage, or when what was
// stated of its nodes for that day changed. So figures are the same with it and without. The zero value is empty. It is safe for
// concurrent use.
type Hours struct {
	mu    sync.Mutex
	days  map[clusterDay]*daySums
	reads int // so far
	// read is how many days of clusters the last [Read] summed up.
	read int
}

// Summed returns how many days of clusters the last [Read] summed up.
func (h *Hours) Summed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.read
}

// keptReads is for how many reads a day is kept that none of them asks for: of other ticks, or of the past.
const keptReads = 4

type clusterDay struct {
	cluster string
	day     domain.Instant
}

// daySums are the sums of a cluster's day.
type daySums struct {
	key   [32]byte
	used  int              // the last read that asked for it
	hours []modelHours     // by GPU model
	held  []online.Holding // in order
}

type modelHours struct {
	gpu string
	sum [24]sum
}

// catalogue is part of every key: it has the weights of MIG instances.
var catalogue = usage.Catalogue()

// keys returns the keys of the days of clusters, nil if the view does not say what changed.
func (r *reader) keys(days []domain.Interval, clusters []string) (map[clusterDay][32]byte, error) {
	changes, err := projections.UsageChangesOf(r.view, projections.HourOf(days[0].From))
	if errors.Is(err, projections.ErrNoTallies) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	stated, err := r.fleet.DigestsWithin(r.view, days)
	if err != nil {
		return nil, err
	}
	of := map[clusterDay][]byte{}
	for i := range changes.Days {
		c := &changes.Days[i]
		k := clusterDay{domain.ClusterOf(c.Scope), domain.Instant(c.Day) * domain.Hour}
		b := binary.AppendVarint(of[k], int64(c.Partition))
		b = append(binary.AppendUvarint(b, uint64(len(c.Scope))), c.Scope...)
		of[k] = binary.AppendVarint(b, c.Offset)
	}
	var floors []byte
	for _, p := range slices.Sorted(maps.Keys(changes.Floors)) {
		floors = binary.AppendVarint(floors, changes.Floors[p])
	}
	keys := make(map[clusterDay][32]byte, len(days)*len(clusters))
	var b []byte
	for i, day := range days {
		for _, c := range clusters {
			k := clusterDay{c, day.From}
			b = append(append(append(b[:0], catalogue[:]...), projections.Method...), floors...)
			sum := stated[i].Of(c)
			b = append(append(b, sum[:]...), of[k]...)
			keys[k] = sha256.Sum256(b)
		}
	}
	return keys, nil
}

// manyClusters is the part of the clusters from which on a day is read at once, and not cluster by cluster.
const manyClusters = 8

// days returns the sums of whole days. It reads those that are not kept, and keeps these alone.
func (r *reader) days(days []domain.Interval) (map[clusterDay]*daySums, error) {
	names := map[string]bool{}
	for _, n := range r.fleet.Nodes {
		names[n.Cluster] = true
	}
	seen, err := r.view.Scopes(projections.TableUsage)
	if err != nil {
		return nil, err
	}
	for _, c := range seen {
		names[domain.ClusterOf(c)] = true
	}
	clusters := slices.Sorted(maps.Keys(names))
	keep := r.as.Hours
	if _, narrowed := access.Of(r.view); narrowed {
		keep = nil // what is kept is of all rows
	}
	var keys map[clusterDay][32]byte
	if keep == nil {
		keep = &Hours{}
	} else if keys, err = r.keys(days, clusters); err != nil {
		return nil, err
	}
	keep.mu.Lock()
	defer keep.mu.Unlock()
	kept := make(map[clusterDay]*daySums, len(days)*len(clusters))
	keep.read, keep.reads = 0, keep.reads+1
	for _, day := range days {
		var missing []string
		for _, c := range clusters {
			k := clusterDay{c, day.From}
			if have := keep.days[k]; have != nil && keys != nil && have.key == keys[k] {
				kept[k] = have
			} else {
				missing = append(missing, c)
			}
		}
		keep.read += len(missing)
		if len(missing)*manyClusters > len(clusters) {
			sums, err := r.sumDay("", day)
			if err != nil {
				return nil, err
			}
			for _, c := range missing {
				kept[clusterDay{c, day.From}] = sums.of(c, keys[clusterDay{c, day.From}])
			}
			continue
		}
		for _, c := range missing {
			sums, err := r.sumDay(c, day)
			if err != nil {
				return nil, err
			}
			kept[clusterDay{c, day.From}] = sums.of(c, keys[clusterDay{c, day.From}])
		}
	}
	for k, s := range kept {
		s.used = keep.reads
		if keep.days == nil {
			keep.days = map[clusterDay]*daySums{}
		}
		keep.days[k] = s
	}
	maps.DeleteFunc(keep.days, func(_ clusterDay, s *daySums) bool { return s.used+keptReads <= keep.reads })
	return kept, nil
}

// sumDay sums up a day of a cluster, or of all for "".
func (r *reader) sumDay(cluster string, day domain.Interval) (*dayPass, error) {
	p := &dayPass{hours: map[model]*[24]sum{}}
	err := usage.EachDeviceHourAndRow(r.view, r.fleet, cluster, day.From, day.To, func(k projections.Key, u *projections.UsageHour) error {
		p.holdings.Row(k, u)
		return nil
	}, func(d *usage.DeviceHour) error {
		p.holdings.Device(d)
		p.device(d, (d.Hour-day.From)/domain.Hour)
		return nil
	})
	p.held = p.holdings.All()
	return p, err
}

// dayPass sums up a day.
type dayPass struct {
	hours    map[model]*[24]sum
	holdings planning.Holdings
	held     []online.Holding

	last model
	to   *[24]sum
}

func (p *dayPass) device(d *usage.DeviceHour, hour domain.Instant) {
	if k := (model{d.Cluster, d.Model}); p.to == nil || k != p.last {
		if p.to = p.hours[k]; p.to == nil {
			p.to = &[24]sum{}
			k = model{strings.Clone(k.cluster), strings.Clone(k.gpu)}
			p.hours[k] = p.to
		}
		p.last = k
	}
	for i := range d.Segments {
		p.to[hour].segment(&d.Segments[i])
	}
}

// of returns the sums of one cluster.
func (p *dayPass) of(cluster string, key [32]byte) *daySums {
	s := &daySums{key: key}
	for k, h := range p.hours {
		if k.cluster == cluster {
			s.hours = append(s.hours, modelHours{k.gpu, *h})
		}
	}
	slices.SortFunc(s.hours, func(a, b modelHours) int { return strings.Compare(a.gpu, b.gpu) })
	first, _ := slices.BinarySearchFunc(p.held, cluster, func(h online.Holding, c string) int { return cmp.Compare(h.Cluster, c) })
	for i := first; i < len(p.held) && p.held[i].Cluster == cluster; i++ {
		s.held = append(s.held, p.held[i])
	}
	return s
}
