package usage

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// MapBy is what a map shows of a GPU.
type MapBy string

// What a map shows.
const (
	MapActivity  MapBy = "activity"  // digits are tenths of the activity of measured allocated time
	MapAllocated MapBy = "allocated" // digits are tenths of the share of the time that was allocated
	MapState     MapBy = "state"
)

// MapBys returns the values of [MapBy].
func MapBys() []MapBy { return []MapBy{MapActivity, MapAllocated, MapState} }

// Characters of a map. A GPU has that of the state in which it was for the longest part of the hour. Where it was
// allocated, a map of states has 'a', and the others a digit: 0 for below 10 per cent to 9 for 90 per cent and more. A map
// of allocated shares has a digit for idle and busy GPUs, too.
const (
	mapNone     = '-' // no such GPU in service
	mapHeld     = 'a' // allocated, in a map of states
	mapBlind    = 'h' // allocated, and its activity was not measured
	mapFailed   = 'f'
	mapMaintain = 'm'
	mapBusy     = 'b' // busy without a known holder
	mapIdle     = 'i'
	mapUnsliced = 'p' // mostly not provisioned: no instance covers it
	mapUnseen   = 'u' // not observed
)

// MapLegend returns what the characters of maps mean, in their order.
func MapLegend() [][2]string {
	return [][2]string{
		{"0-9", "tenths, 9 for 90% and more"}, {string(mapHeld), "allocated"}, {string(mapBlind), "held, not measured"}, {string(mapBusy), "busy without a holder"},
		{string(mapIdle), "idle"}, {string(mapFailed), "failed"}, {string(mapMaintain), "maintenance"}, {string(mapUnsliced), "not provisioned"},
		{string(mapUnseen), "not observed"}, {string(mapNone), "not in service"},
	}
}

// FleetMap is what every GPU in service was doing in one whole hour, with one character for each.
type FleetMap struct {
	Position string         `json:"position"`
	Hour     domain.Instant `json:"hour"` // its start
	By       MapBy          `json:"by"`
	Clusters []ClusterMap   `json:"clusters"` // by id
	registry.Completeness
}

// ClusterMap is the map of a cluster.
type ClusterMap struct {
	Cluster   string         `json:"cluster"`
	Workspace string         `json:"workspace"` // owner
	Provider  string         `json:"provider"`
	Region    string         `json:"region"`
	Nodes     int            `json:"nodes"`
	GPUs      int            `json:"gpus"`
	Counts    map[string]int `json:"counts"` // of GPUs, by character
	Runs      []MapRun       `json:"runs"`   // nodes in natural order: n2 comes before n10
}

// MapRun is a run of nodes with equally many places for GPUs, whose names differ in a number that counts up. The name of
// the i-th is Prefix, then First + i with at least as many digits as First, then Suffix.
type MapRun struct {
	Prefix string `json:"prefix"`
	First  string `json:"first"` // "" for a node without a number in its name
	Suffix string `json:"suffix,omitempty"`
	Nodes  int    `json:"nodes"`
	Places int    `json:"places"` // of a node, by the index of the GPU
	// Cells has a character for each place of each node: digits for tenths, 'a' allocated, 'h' allocated but not measured,
	// 'b' busy without a holder, 'i' idle, 'f' failed, 'm' maintenance, 'p' not provisioned, 'u' not observed, '-' no GPU.
	Cells string `json:"cells"`
}

// Each calls yield with the name and the cells of each node.
func (r *MapRun) Each(yield func(node, cells string)) {
	first, _ := strconv.ParseUint(r.First, 10, 64)
	for i := range r.Nodes {
		number := ""
		if r.First != "" {
			number = fmt.Sprintf("%0*d", len(r.First), first+uint64(i))
		}
		yield(r.Prefix+number+r.Suffix, r.Cells[i*r.Places:(i+1)*r.Places])
	}
}

// NewFleetMap returns the map of the last whole hour before a time. Whoever sees a part of the estate gets the clusters of
// their workspaces.
func NewFleetMap(view projections.View, at domain.Instant, filter Filter, by MapBy) (*FleetMap, error) {
	if !slices.Contains(MapBys(), by) {
		return nil, fmt.Errorf("a map by %q: want one of %v", by, MapBys())
	}
	hour := domain.Interval{From: at.HourStart() - domain.Hour, To: at.HourStart()}
	r, err := newReporter(view, hour, filter, nil)
	if err != nil {
		return nil, err
	}
	out := &FleetMap{
		Position: r.report.Position, Hour: hour.From, By: by, Clusters: []ClusterMap{}, Completeness: r.report.Completeness,
	}
	var of *mapped
	var owns bool
	cluster := ""
	var nodes []mapped // of the cluster
	end := func() {
		if len(nodes) > 0 {
			out.Clusters = append(out.Clusters, r.mapOf(cluster, hour.From, nodes, by))
		}
		nodes, of = nodes[:0], nil
	}
	err = eachDeviceHour(r.view, r.fleet, hour.From, hour.To, func(d *DeviceHour) error {
		if d.Cluster != cluster || cluster == "" {
			end()
			cluster, owns = d.Cluster, true
			if r.seen != nil {
				var err error
				if owns, err = r.seen.lens.Owns(d.Cluster); err != nil {
					return err
				}
			}
		}
		if !owns || !r.covers(d) || filter.Workspace != "" && filter.Workspace != d.Owner {
			return nil
		}
		if of == nil || of.node != d.Node {
			nodes = append(nodes, mapped{node: d.Node})
			of = &nodes[len(nodes)-1]
		}
		of.add(d)
		return nil
	})
	if err != nil {
		return nil, err
	}
	end()
	return out, nil
}

// mapped is what is known of a node and hour.
type mapped struct {
	node string
	gpus []mappedGPU
}

type mappedGPU struct {
	id     domain.GPUID
	states [inventory.StateEnd]int64 // GPU-milliseconds
	known  int64                     // of the allocated
	active int64
}

func (m *mapped) add(d *DeviceHour) {
	at := slices.IndexFunc(m.gpus, func(g mappedGPU) bool { return g.id == d.GPU })
	if at < 0 {
		at = len(m.gpus)
		m.gpus = append(m.gpus, mappedGPU{id: d.GPU})
	}
	g := &m.gpus[at]
	for i := range d.Segments {
		s := &d.Segments[i]
		g.states[s.State] += s.GPUMs
		if s.State == inventory.Allocated {
			g.known, g.active = g.known+s.Known, g.active+s.Active
		}
	}
}

// cell returns the character of a GPU.
func (g *mappedGPU) cell(by MapBy) byte {
	longest, service := inventory.Unobserved, int64(0)
	for s := inventory.StateEnd; s > 0; s-- { // of equal times, that of the state that counts first
		if of := g.states[s-1]; of >= g.states[longest] {
			longest = s - 1
		}
		service += g.states[s-1]
	}
	tenth := func(permille int64) byte { return '0' + byte(min(9, permille/100)) }
	if service == 0 {
		return mapNone
	}
	if by == MapAllocated && (longest == inventory.Allocated || longest == inventory.Idle || longest == inventory.BusyUnattributed) {
		return tenth(Permille(g.states[inventory.Allocated], service))
	}
	switch longest {
	case inventory.Allocated:
		switch {
		case by == MapState:
			return mapHeld
		case g.known == 0:
			return mapBlind
		}
		return tenth(g.active / g.known)
	case inventory.Failed:
		return mapFailed
	case inventory.Maintenance:
		return mapMaintain
	case inventory.BusyUnattributed:
		return mapBusy
	case inventory.Idle:
		return mapIdle
	case inventory.Unprovisioned:
		return mapUnsliced
	}
	return mapUnseen
}

// mostPlaces bounds the index of a GPU in its node. GPUs beyond it come after the others.
const mostPlaces = 64

// places returns the characters of a node by the index of its GPUs. GPUs that nobody declared come after the others.
func (m *mapped) places(declared *domain.NodeRegistered, by MapBy) []byte {
	var cells, others []byte
	for i := range m.gpus {
		c, at := m.gpus[i].cell(by), -1
		if declared != nil {
			if of := slices.IndexFunc(declared.GPUs, func(g domain.GPUDeclared) bool { return g.ID == m.gpus[i].id }); of >= 0 {
				at = int(min(declared.GPUs[of].Index, mostPlaces))
			}
		}
		for at < mostPlaces && len(cells) <= at {
			cells = append(cells, mapNone)
		}
		if at < 0 || at == mostPlaces || cells[at] != mapNone {
			others = append(others, c)
			continue
		}
		cells[at] = c
	}
	return append(cells, others...)
}

// mapOf returns the map of a cluster.
func (r *reporter) mapOf(cluster string, hour domain.Instant, nodes []mapped, by MapBy) ClusterMap {
	out := ClusterMap{Cluster: cluster, Nodes: len(nodes), Counts: map[string]int{}, Runs: []MapRun{}}
	if c, owner := r.fleet.Cluster(cluster, hour); c != nil {
		out.Workspace, out.Provider, out.Region = owner, c.Provider, c.Region
	}
	type entry struct {
		numbered
		cells []byte
	}
	entries := make([]entry, len(nodes))
	var counts [256]int
	for i := range nodes {
		var declared *domain.NodeRegistered
		if n := r.fleet.Index[inventory.NodeName{Cluster: cluster, Node: nodes[i].node}]; n != nil {
			for j := range n.Service {
				if !n.Service[j].Intersect(domain.Interval{From: hour, To: hour + domain.Hour}).Empty() {
					declared = n.Service[j].Node
				}
			}
		}
		entries[i] = entry{numberedOf(nodes[i].node), nodes[i].places(declared, by)}
		for _, c := range entries[i].cells {
			counts[c]++
		}
	}
	for c, n := range counts {
		if c != mapNone && n > 0 {
			out.Counts[string(rune(c))] = n
			out.GPUs += n
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.compare(b.numbered) })
	for i := 0; i < len(entries); {
		j, cells := i+1, slices.Clone(entries[i].cells)
		for j < len(entries) && entries[j].follows(entries[i].numbered, j-i) && len(entries[j].cells) == len(entries[i].cells) {
			cells = append(cells, entries[j].cells...)
			j++
		}
		e := &entries[i]
		out.Runs = append(out.Runs, MapRun{Prefix: e.prefix, First: e.digits, Suffix: e.suffix, Nodes: j - i, Places: len(e.cells), Cells: string(cells)})
		i = j
	}
	return out
}

// numbered is a name with the last number in it.
type numbered struct {
	prefix, digits, suffix string
	number                 uint64
}

// mostDigits bounds a number in a name, so that programs count it exactly, with whatever numbers they have.
const mostDigits = 15

func numberedOf(name string) numbered {
	digit := func(c byte) bool { return '0' <= c && c <= '9' }
	to := len(name)
	for to > 0 && !digit(name[to-1]) {
		to--
	}
	from := to
	for from > 0 && digit(name[from-1]) {
		from--
	}
	if from == to || to-from > mostDigits {
		return numbered{prefix: name}
	}
	n := numbered{prefix: name[:from], digits: name[from:to], suffix: name[to:]}
	n.number, _ = strconv.ParseUint(n.digits, 10, 64)
	return n
}

func (n numbered) name() string { return n.prefix + n.digits + n.suffix }

// compare orders names naturally: numbers in them by value, and other text by byte.
func (n numbered) compare(o numbered) int {
	return cmp.Or(compareNatural(n.name(), o.name()), strings.Compare(n.name(), o.name()))
}

func compareNatural(a, b string) int {
	number := func(s string) int {
		return len(s) - len(strings.TrimLeft(s, "0123456789"))
	}
	for a != "" && b != "" {
		if m, n := number(a), number(b); m > 0 && n > 0 {
			x, y := strings.TrimLeft(a[:m], "0"), strings.TrimLeft(b[:n], "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
				return c
			}
			a, b = a[m:], b[n:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// follows reports whether a name is the one that is n after another.
func (n numbered) follows(first numbered, after int) bool {
	return n.digits != "" && first.digits != "" && n.prefix == first.prefix && n.suffix == first.suffix &&
		n.number == first.number+uint64(after) && n.digits == fmt.Sprintf("%0*d", len(first.digits), n.number)
}
