package demo

import (
	"cmp"
	"slices"
	"strings"

	"quartermaster/domain"
)

// ReportsPeriod is the time in which the nodes of [Fleet] report, by the hour: the last evening of
// [LoadPeriod], on which their agents are installed.
var ReportsPeriod = domain.Interval{From: LoadPeriod.To - 6*domain.Hour, To: LoadPeriod.To}

// SilentNode is the node of [Fleet] that never reports: it is declared, but its agent was never
// installed.
var SilentNode = nodeName(nodeCount())

func nodeCount() int {
	n := 0
	for _, s := range nodeShapes {
		n += s.count
	}
	return n
}

// host is a node and what runs on it.
type host struct {
	name      string
	shape     *nodeShape
	cpu, room int     // free: thousandths of a CPU, MiB
	free      []int   // of each GPU, in thousandths
	left      int     // sum of free
	on        [][]use // of each GPU
}

// use is a holder of a GPU.
type use struct{ deployment, unit string }

// Reports returns what the agents of the nodes of [Fleet] report over [ReportsPeriod]: which pod
// held which GPU, SM activity and memory in use. Given the draws of Fleet, the pods are its pods,
// placed by best fit, those with most GPUs first, together with the model servers of [Serving].
// Pods that do not fit do not run. Activity and memory are drawn from measured. GPUs that several
// pods share are reported as replicas of a time-sliced GPU. Every node but [SilentNode] reports.
//
// Samples are in the order of time and node. The caller owns their arrays.
func Reports(cluster, workspace string, draw, measured func() uint64) []Told {
	var hosts []*host
	for i := range nodeShapes {
		s := &nodeShapes[i]
		for range s.count {
			h := &host{
				name: nodeName(len(hosts) + 1), shape: s, cpu: s.cpuMilli, room: s.memoryMiB,
				free: make([]int, s.gpus), on: make([][]use, s.gpus),
			}
			for g := range h.free {
				h.free[g] = 1000
				h.left += 1000
			}
			hosts = append(hosts, h)
		}
	}
	hosts = hosts[:len(hosts)-1] // the silent one takes no work
	for _, s := range servers {
		for i := range s.replicas {
			place(hosts, &pod{name: s.unit(i), gpus: servingGPUs, milli: 1000, cpuMilli: servingCPU,
				memoryMiB: servingRAM, spec: servingModel}, s.deployment)
		}
	}
	pods := drawPods(dice{draw})
	slices.SortStableFunc(pods, func(a, b pod) int { return cmp.Compare(b.gpus*b.milli, a.gpus*a.milli) })
	for i := range pods {
		if pods[i].gpus > 0 {
			place(hosts, &pods[i], pods[i].name)
		}
	}
	d := dice{measured}
	gauges := map[string][]gauge{}
	for _, h := range hosts {
		of, blind := make([]gauge, h.shape.gpus), d.chance(blindNodes)
		for g := range of {
			of[g].blind = blind
		}
		gauges[h.name] = of
	}
	var out []Told
	for hour := ReportsPeriod.From; hour < ReportsPeriod.To; hour += domain.Hour {
		for _, h := range hosts {
			model, _ := domain.LookupGPU(h.shape.model)
			m := meter{dice: d, scale: 100, memory: int(model.MemoryMiB), what: sharedLevels}
			of := gauges[h.name]
			for g := range of {
				if of[g].memoryMiB == 0 || d.chance(changes) {
					m.redraw(&of[g])
				}
			}
			out = append(out, Told{At: hour + domain.Hour, Subject: h.name, Event: h.sample(cluster, workspace, hour, of)})
		}
	}
	return out
}

// place puts a pod on the node with the least left over, in GPUs and then in CPUs, and reports
// whether there was one.
func place(hosts []*host, p *pod, deployment string) bool {
	var best *host
	var bestGPUs []int
	models := strings.Split(p.spec, "|")
	for _, h := range hosts {
		if h.left < p.gpus*p.milli || h.cpu < p.cpuMilli || h.room < p.memoryMiB {
			continue
		}
		if best != nil && (h.left > best.left || h.left == best.left && h.cpu >= best.cpu) {
			continue
		}
		if p.spec != "" && !slices.Contains(models, h.shape.model) {
			continue
		}
		if gpus := h.pick(p); gpus != nil {
			best, bestGPUs = h, gpus
		}
	}
	if best == nil {
		return false
	}
	best.cpu -= p.cpuMilli
	best.room -= p.memoryMiB
	for _, g := range bestGPUs {
		best.free[g] -= p.milli
		best.left -= p.milli
		best.on[g] = append(best.on[g], use{deployment, p.name})
	}
	return true
}

// pick returns the GPUs of a node that a pod would take, nil if there are too few: entirely free
// ones, or for a part the one with the least left over.
func (h *host) pick(p *pod) []int {
	var gpus []int
	if p.milli == 1000 {
		for g, f := range h.free {
			if f == 1000 && len(gpus) < p.gpus {
				gpus = append(gpus, g)
			}
		}
		if len(gpus) < p.gpus {
			return nil
		}
		return gpus
	}
	for g, f := range h.free {
		if f >= p.milli && (gpus == nil || f < h.free[gpus[0]]) {
			gpus = []int{g}
		}
	}
	return gpus
}

// sample is what a node's agent reports of an hour.
func (h *host) sample(cluster, workspace string, hour domain.Instant, gauges []gauge) *domain.NodeSampled {
	s := &domain.NodeSampled{Node: h.name, Interval: domain.Interval{From: hour, To: hour + domain.Hour}}
	refs := map[string]uint32{}
	text := func(v string) uint32 {
		if refs[v] == 0 {
			s.Strings = append(s.Strings, v)
			refs[v] = uint32(len(s.Strings))
		}
		return refs[v]
	}
	holders := map[use]uint32{}
	shared := slices.ContainsFunc(h.free, func(f int) bool { return f != 0 && f != 1000 }) ||
		slices.ContainsFunc(h.on, func(on []use) bool { return len(on) > 1 })
	measured := false
	for g, on := range h.on {
		id := domain.DeriveGPUID(cluster, h.name, g)
		// A GPU is seen as time-sliced if a part of it was requested.
		sliced := len(on) > 1 || len(on) == 1 && h.free[g] > 0
		for i := range max(1, len(on)) {
			var holder, replica, active, memory uint32
			if len(on) > 0 {
				if holders[on[i]] == 0 {
					s.HolderWorkspace = append(s.HolderWorkspace, text(workspace))
					s.HolderDeployment = append(s.HolderDeployment, text(on[i].deployment))
					s.HolderUnit = append(s.HolderUnit, text(on[i].unit))
					holders[on[i]] = uint32(len(s.HolderUnit))
				}
				holder = holders[on[i]]
			}
			if sliced {
				replica = uint32(i + 1)
			}
			if !gauges[g].blind {
				measured = true
				active, memory = 1, 1 // an unused GPU
				if len(on) > 0 {
					active, memory = uint32(gauges[g].permille)+1, uint32(gauges[g].memoryMiB)+1
				}
			}
			s.IDs = append(s.IDs, id[:]...)
			s.Holder = append(s.Holder, holder)
			s.ActivityMean = append(s.ActivityMean, active)
			s.MemoryUsedMiB = append(s.MemoryUsedMiB, memory)
			if shared {
				s.Replica = append(s.Replica, replica)
			}
		}
	}
	if !measured {
		s.ActivityMean, s.MemoryUsedMiB = nil, nil
	} else {
		s.ActivityField = smActive
	}
	return s
}

// smActive is DCGM_FI_PROF_SM_ACTIVE.
const smActive = 1002
