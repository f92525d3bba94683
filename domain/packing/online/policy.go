package online

import (
	"fmt"
	"slices"
	"strings"
)

// Policy chooses among the machines that can take a replica.
type Policy string

// The policies. All but the last are those of Weng et al., "Beware of Fragmentation", USENIX ATC
// 2023, with the scores of their simulator (hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0):
// integers from 0 to 100, so many machines tie. See [Replay] for the order of ties.
const (
	// Random takes any machine and any GPU.
	Random Policy = "random"
	// DotProd takes the machine whose free CPU and GPUs are least aligned with the need.
	DotProd Policy = "dotprod"
	// Clustering prefers a machine with replicas of the same kind only (a part of a GPU, one GPU,
	// two and so on), then one that also has others, then an empty one; fuller machines first.
	Clustering Policy = "clustering"
	// Packing prefers GPUs that are already shared, then GPUs of machines in use, then an empty
	// machine.
	Packing Policy = "packing"
	// BestFit takes the machine with the least CPU and GPUs left over.
	BestFit Policy = "bestfit"
	// FGD, fragmentation gradient descent, takes the machine and GPU where the free GPUs that the
	// mix cannot use grow least. It ignores memory, like the original.
	FGD Policy = "fgd"
	// Balanced is FGD without rounding, with memory, and with two more kinds of loss. The first is
	// GPUs that are left over when CPU or memory run out, if a machine is filled with one shape of
	// the mix alone. So replicas that need little CPU go to machines with little CPU, and CPU-only
	// replicas go where the CPU is of no use to GPUs. The second is GPUs that others need more: if
	// shapes that run on few machines will ask for most of what is free there, others keep off.
	Balanced Policy = "balanced"
)

// Policies lists the policies by name.
func Policies() []Policy {
	return []Policy{Balanced, BestFit, Clustering, DotProd, FGD, Packing, Random}
}

// policy weighs a shape on the machines of a group. A larger score is better. A part of a GPU is
// taken from one that has from thousandths free.
type policy struct {
	score  func(f *Fleet, g *group, sh *shape) (score int64, from uint16)
	chance bool // ties between machines and GPUs are drawn
	kinds  bool // the kinds of replicas present matter
	// first is set if a part goes to the first GPU of those that score best, rather than to the one
	// with the least free.
	first    bool
	reserves bool // shapes that run on few machines keep others off
}

var policies = map[Policy]*policy{
	Random:     {score: func(_ *Fleet, g *group, sh *shape) (int64, uint16) { return 0, g.tightest(sh) }, chance: true},
	BestFit:    {score: bestFit},
	DotProd:    {score: dotProd},
	Clustering: {score: clustering, kinds: true},
	Packing:    {score: packed},
	FGD:        {score: descent, first: true},
	Balanced:   {score: balanced, reserves: true},

	unstranding: {score: unstrand},
}

func policyOf(p Policy) (*policy, error) {
	if x, ok := policies[p]; ok {
		return x, nil
	}
	names := []string{}
	for _, p := range Policies() {
		names = append(names, string(p))
	}
	return nil, fmt.Errorf("there is no policy %q: the policies are %s", p, strings.Join(names, ", "))
}

// tightest returns the smallest free amount of a GPU that takes the shape's part, 0 if the shape
// needs none.
func (s *state) tightest(sh *shape) uint16 {
	if sh.part > 0 {
		for _, free := range slices.Backward(s.free) {
			if free >= sh.part {
				return free
			}
		}
	}
	return 0
}

func bestFit(f *Fleet, g *group, sh *shape) (int64, uint16) {
	unit := 2 * f.maxCPU * f.maxGPU
	left := (g.cpu-sh.cpu)*f.maxGPU + (g.freeMilli()-sh.milli())*f.maxCPU
	return 100 * (unit - left) / unit, g.tightest(sh)
}

func dotProd(f *Fleet, g *group, sh *shape) (int64, uint16) {
	share := func(n, of int64) float64 { return float64(n) / float64(of) }
	cpu := float64(share(g.cpu, f.maxCPU) * share(sh.cpu, f.maxCPU))
	gpu := float64(share(g.freeMilli(), f.maxGPU) * share(sh.milli(), f.maxGPU))
	return int64(100 * (1 - float64((cpu+gpu)/2))), g.tightest(sh)
}

func clustering(f *Fleet, g *group, sh *shape) (int64, uint16) {
	if sh.milli() == 0 {
		return 0, 0
	}
	full := 25 * (f.maxGPU - g.freeMilli()) / f.maxGPU
	same := uint64(1) << sh.kind
	switch {
	case g.kinds == same:
		full += 75
	case g.kinds&same != 0:
		full += 50
	case g.kinds == 0:
		full += 25
	}
	return full, g.tightest(sh)
}

func packed(_ *Fleet, g *group, sh *shape) (int64, uint16) {
	if sh.milli() == 0 {
		return 0, 0
	}
	whole := int64(0)
	for _, free := range g.free {
		if free == 1000 {
			whole++
		}
	}
	from := g.tightest(sh)
	switch {
	case whole == int64(len(g.free)):
		return max(33-whole, whole), from
	case sh.whole > 0:
		return max(50-int64(sh.whole), 33), from
	case from == 1000:
		return 49, from
	}
	return 100 - int64(from)/10/10, from
}

// after calls each with every state that the group's machines can reach by taking the shape. from
// is the previously free thousandths of the GPU of which a part was taken. The state is valid until
// each returns.
func (f *Fleet) after(g *group, sh *shape, each func(s *state, from uint16)) {
	s := &f.state
	*s = state{class: g.class, cpu: g.cpu - sh.cpu, mem: g.mem - sh.mem, free: s.free, owner: g.owner, busy: true}
	if sh.dedicated {
		s.owner = sh.load.ID
	}
	if sh.part == 0 { // the most free are first, so they are entirely free
		s.free = append(s.free[:0], g.free[sh.whole:]...)
		for range sh.whole {
			s.free = append(s.free, 0)
		}
		each(s, 0)
		return
	}
	for i, from := range g.free {
		if from < sh.part {
			break
		}
		if i+1 < len(g.free) && g.free[i+1] == from {
			continue
		}
		s.free = append(s.free[:0], g.free...)
		for i++; i < len(s.free) && s.free[i] > from-sh.part; i++ {
			s.free[i-1] = s.free[i]
		}
		s.free[i-1] = from - sh.part
		each(s, from)
	}
}

// descend returns the negated smallest increase of the loss by placing the shape. Ties go to the
// GPU with the least free.
func (f *Fleet) descend(g *group, sh *shape, lost func(*state) int64, score func(better int64) int64) (best int64, at uint16) {
	if !g.lostKnown {
		g.lost, g.lostKnown = lost(&g.state), true
	}
	first := true
	f.after(g, sh, func(s *state, from uint16) {
		if x := score(g.lost - lost(s)); first || x >= best {
			best, at, first = x, from, false
		}
	})
	return best, at
}

func descent(f *Fleet, g *group, sh *shape) (int64, uint16) {
	return f.descend(g, sh, f.fragments(g), f.published)
}

// fragments returns the function that gives the stranded milli of states of a group's machines,
// times the mix's weight.
func (f *Fleet) fragments(g *group) func(s *state) int64 {
	mx := &f.classes[g.class].mixture
	return func(s *state) int64 { return mx.stranded(s, false) }
}

// published is the score of the paper's simulator for a decrease of fragments.
func (f *Fleet) published(better int64) int64 {
	return sigmoid(floorDiv(better*1000, max(f.mix.total, 1)))
}

// firstGPU returns the first GPU of a machine on which a part scores as well as on any.
func (f *Fleet) firstGPU(m *machine, sh *shape) int {
	g, first := m.group, len(m.free)
	lost := f.fragments(g)
	f.after(g, sh, func(s *state, from uint16) {
		if f.published(g.lost-lost(s)) == g.weighed[sh.n].score {
			first = min(first, slices.Index(m.free, from))
		}
	})
	return first
}

// sigmoid returns 100/(1+exp(-x)) rounded down, for x in millionths. It uses no floating point,
// which could round differently on another machine.
func sigmoid(millionths int64) int64 {
	i, _ := slices.BinarySearch(sigmoidSteps[:], millionths+1)
	if millionths >= 0 {
		return 50 + int64(i)
	}
	// The value at -x is 100 minus that at x, and no step falls on a whole millionth.
	i, _ = slices.BinarySearch(sigmoidSteps[:], -millionths+1)
	return 49 - int64(i)
}

// sigmoidSteps are the millionths from which 100/(1+exp(-x)) is 51, 52 and so on to 99: the
// logarithms of 51/49, 52/48 and so on, rounded up.
var sigmoidSteps = [...]int64{
	40006, 80043, 120145, 160343, 200671, 241163, 281852, 322774, 363966, 405466,
	447313, 489549, 532217, 575365, 619040, 663295, 708186, 753772, 800120, 847298,
	895385, 944462, 994623, 1045969, 1098613, 1152680, 1208312, 1265667, 1324926, 1386295,
	1450011, 1516348, 1585628, 1658229, 1734602, 1815290, 1900959, 1992431, 2090742, 2197225,
	2313635, 2442348, 2586690, 2751536, 2944439, 3178054, 3476099, 3891821, 4595120,
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func balanced(f *Fleet, g *group, sh *shape) (int64, uint16) {
	mx, total := &f.classes[g.class].mixture, max(f.mix.total, 1)
	lost := func(s *state) int64 { return mx.stranded(s, true)*1000/total + mx.short(s) }
	return f.descend(g, sh, lost, func(better int64) int64 { return better })
}
