package attribution

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
)

// allocationKey identifies an allocation within its line and hour.
type allocationKey struct {
	workspace, cluster, deployment string
	component                      Component
}

func compareKeys(a, b *allocationKey) int {
	return cmp.Or(
		strings.Compare(a.workspace, b.workspace), strings.Compare(a.cluster, b.cluster),
		strings.Compare(a.deployment, b.deployment), cmp.Compare(a.component, b.component))
}

// keys numbers allocation keys and their workspaces in order of appearance. The numbers do not
// affect any output.
type keys struct {
	ids        map[allocationKey]uint32
	all        []allocationKey
	workspace  []uint32 // of each key, a number in workspaces
	workspaces []string
	numbers    map[string]uint32
}

func newKeys() *keys {
	return &keys{ids: map[allocationKey]uint32{}, numbers: map[string]uint32{}}
}

func (k *keys) id(key allocationKey) uint32 {
	if id, ok := k.ids[key]; ok {
		return id
	}
	// The text may be a part of a large buffer that is reused.
	key.workspace = strings.Clone(key.workspace)
	key.cluster, key.deployment = strings.Clone(key.cluster), strings.Clone(key.deployment)
	w, ok := k.numbers[key.workspace]
	if !ok {
		w = uint32(len(k.workspaces))
		k.workspaces = append(k.workspaces, key.workspace)
		k.numbers[key.workspace] = w
	}
	id := uint32(len(k.all))
	k.ids[key] = id
	k.all = append(k.all, key)
	k.workspace = append(k.workspace, w)
	return id
}

func (k *keys) compare(a, b uint32) int {
	if a == b {
		return 0
	}
	return compareKeys(&k.all[a], &k.all[b])
}

// use is GPU time under one allocation key, in microseconds, because shares of a GPU are not whole
// milliseconds.
type use struct {
	key                   uint32
	hardware              uint32 // of the machines that it was on; see [hardwares]
	unit, machine         uint32 // that held it, and that it was on; see [names]
	micros, useful, known int64
}

// meter reads hours of nodes.
type meter struct {
	keys           *keys
	names          *names
	ex             *exceptions
	idleToPlatform bool
	quiet          bool // the hour is read only for lines that a rule shares: it is no exception

	uses   []use
	parts  []*Part
	wishes []wish
}

// wish is what a unit has of a node, and what its dominant share gives it, in microseconds.
type wish struct {
	of                         *Part
	total, want, useful, known int64
}

// maxPartMs bounds one part: a thousand GPUs for an hour and more.
const maxPartMs = maxGPUs * 4_000_000

// read returns the usage of an hour by allocation key, and whether anything was observed. Keys may
// repeat. The result is valid until the next call.
func (m *meter) read(h *NodeHour, d *desc) (uses []use, seen bool, err error) {
	m.uses, m.parts = m.uses[:0], m.parts[:0]
	var busy, idle, unprovisioned, allocated int64
	dominant := false
	for i := range h.Parts {
		p := &h.Parts[i]
		if p.GPUMs < 0 || p.GPUMs > maxPartMs || p.UsefulMs < 0 || p.UsefulMs > p.GPUMs ||
			magnitude(p.Micros) > maxPartMs || p.total() < 0 || p.HeldMs < 0 || p.HeldMs > 2*hourMs {
			return nil, false, fmt.Errorf("usage of node %s/%s at %s: part of %d ms, %d of them useful, held %d, makes no sense",
				d.Cluster, d.Node.Node, h.Hour, p.GPUMs, p.UsefulMs, p.HeldMs)
		}
		micros := p.total()
		seen = seen || p.Component != Unobserved && micros > 0
		switch p.Component {
		case Allocated:
			m.parts = append(m.parts, p)
			allocated += micros
			asks := p.CPUMilli > 0 && d.CPUMilli > 0 || p.MemoryMiB > 0 && d.MemoryMiB > 0
			dominant = dominant || p.HeldMs > 0 && d.counted() >= 0 && asks
		case BusyUnattributed:
			busy += micros
		case Idle:
			idle += micros
		case Unprovisioned:
			unprovisioned += micros
		case Failed, Maintenance:
			m.add(PlatformReliability, d, "", "", p.Component, micros, 0, 0)
		case Unobserved:
			m.add(PlatformUnobserved, d, "", "", p.Component, micros, 0, 0)
		default:
			return nil, false, fmt.Errorf("usage of node %s/%s at %s: time cannot be %s",
				d.Cluster, d.Node.Node, h.Hour, p.Component)
		}
	}
	if !dominant {
		for _, p := range m.parts {
			m.hold(p, d, p.total(), p.UsefulMs*1000, p.measured())
		}
	} else {
		idle, unprovisioned = m.dominant(d, allocated, idle, unprovisioned)
	}
	owner := h.Owner
	if owner == "" || m.idleToPlatform {
		if left := busy + idle + unprovisioned; h.Owner == "" && left > 0 && len(d.matches) > 0 && !m.idleToPlatform && !m.quiet {
			m.ex.time(OwnerMissing, d.Cluster,
				"the cluster has no owner: the platform is charged for time without a known holder", left/1000)
		}
		owner = Platform
	}
	m.add(owner, d, "", "", BusyUnattributed, busy, 0, 0)
	m.add(owner, d, "", "", Idle, idle, 0, 0)
	m.add(owner, d, "", "", Unprovisioned, unprovisioned, 0, 0)
	return m.uses, seen, nil
}

// total is the part's GPU time in microseconds.
func (p *Part) total() int64 { return 1000*p.GPUMs + p.Micros }

// measured is the part of the GPU time with measured activity, in microseconds.
func (p *Part) measured() int64 { return min(1000*max(p.KnownMs, p.UsefulMs), p.total()) }

// hold adds time with a holder. It caps useful and measured time at the total.
func (m *meter) hold(p *Part, d *desc, micros, useful, known int64) {
	workspace := p.Workspace
	if workspace == "" && micros > 0 {
		if len(d.matches) > 0 && !m.quiet {
			m.ex.time(OwnerMissing, d.Cluster, "held by an unknown workspace: the platform is charged", micros/1000)
		}
		workspace = Platform
	}
	useful = min(useful, micros)
	m.add(workspace, d, p.Deployment, p.Unit, Allocated, micros, useful, max(useful, min(known, micros)))
}

func (m *meter) add(workspace string, d *desc, deployment, unit string, c Component, micros, useful, known int64) {
	if micros > 0 {
		key := m.keys.id(allocationKey{workspace, d.Cluster, deployment, c})
		m.uses = append(m.uses, use{key, d.hardware, m.names.unit(unit), uint32(d.machine) + 1, micros, useful, known})
	}
}

// dominant adds the units that held the node, each by the largest of its shares of GPUs, CPU and
// memory, as GPU time of the node. A unit's weight beyond its GPUs is taken from idle and
// unprovisioned time, not from busy GPUs without a known holder. If the units need more time than
// there is, all shrink in proportion. It returns what is left.
//
// The largest share is the dominant share of Ghodsi et al., Dominant Resource Fairness, NSDI 2011.
func (m *meter) dominant(d *desc, allocated, idle, unprovisioned int64) (idleLeft, unprovisionedLeft int64) {
	slices.SortFunc(m.parts, func(a, b *Part) int {
		return cmp.Or(
			strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Deployment, b.Deployment),
			strings.Compare(a.Unit, b.Unit),
		)
	})
	wishes := m.wishes[:0]
	var wanted int64
	for i := 0; i < len(m.parts); {
		first, all, known := m.parts[i], *m.parts[i], m.parts[i].measured()
		for i++; i < len(m.parts); i++ {
			p := m.parts[i]
			if p.Workspace != first.Workspace || p.Deployment != first.Deployment || p.Unit != first.Unit {
				break
			}
			// A unit with several GPUs states HeldMs, CPU and memory with each of them.
			all.GPUMs += p.GPUMs
			all.Micros += p.Micros
			all.UsefulMs += p.UsefulMs
			known += p.measured()
			all.HeldMs = max(all.HeldMs, p.HeldMs)
			all.CPUMilli = max(all.CPUMilli, p.CPUMilli)
			all.MemoryMiB = max(all.MemoryMiB, p.MemoryMiB)
		}
		node := u128{0, uint64(d.GPUs) * uint64(all.HeldMs) * 1000}
		want := all.total()
		if d.CPUMilli > 0 {
			want = max(want, int64(node.scale64(min(all.CPUMilli, d.CPUMilli), d.CPUMilli).lo))
		}
		if d.MemoryMiB > 0 {
			want = max(want, int64(node.scale64(min(all.MemoryMiB, d.MemoryMiB), d.MemoryMiB).lo))
		}
		wishes = append(wishes, wish{first, all.total(), want, 1000 * all.UsefulMs, known})
		wanted += want
	}
	free := idle + unprovisioned
	if over := wanted - allocated; over <= free {
		if free > 0 {
			fromIdle := int64(u128{0, uint64(over)}.scale64(uint64(idle), uint64(free)).lo)
			idle, unprovisioned = idle-fromIdle, unprovisioned-(over-fromIdle)
		}
	} else {
		shrink, at := divisionOfMs(allocated+free), int64(0)
		for i := range wishes {
			at += wishes[i].want
			wishes[i].want = shrink.nextMs(uint64(at), uint64(wanted))
		}
		idle, unprovisioned = 0, 0
	}
	for _, w := range wishes {
		// Measurements of the unit's GPUs apply to its whole weight.
		if w.total > 0 {
			w.known = int64(u128{0, uint64(w.known)}.scale64(uint64(w.want), uint64(w.total)).lo)
		}
		m.hold(w.of, d, w.want, w.useful, w.known)
	}
	m.wishes = wishes
	return idle, unprovisioned
}

// within returns the part of a node's hour that the usage covers.
func within(h *NodeHour, d *desc) domain.Interval {
	held := h.Held
	if held == (domain.Interval{}) {
		held = domain.Interval{From: h.Hour, To: h.Hour + domain.Hour}
	}
	if served := d.Service.Intersect(held); !served.Empty() {
		return served
	}
	return held // usage outside of service: nothing else is known
}
