package attribution_test

import (
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// naive is a second implementation of how a line that buys machines is divided
// under as-supplied discounts: straight from the package's description, hour by
// hour, with rational numbers, and without any of the first one's machinery. It
// knows no periods that cut hours, and nothing of CPU and memory.
type naive struct{ *estate }

type naiveKey struct {
	hour                           domain.Instant
	workspace, cluster, deployment string
	component                      attribution.Component
}

func buys(c attribution.Class) bool {
	return c == attribution.Committed || c == attribution.OnDemand || c == attribution.Spot || c == attribution.Owned
}

func byUse(l *attribution.Line) bool {
	return buys(l.Class) && l.Category != "Purchase" && !l.Unused || l.Class == attribution.Shared
}

func (n naive) during(nodes []int, l *attribution.Line) []int {
	for _, i := range nodes {
		if !n.nodes[i].Service.Intersect(l.ChargePeriod).Empty() {
			return nodes
		}
	}
	return nil
}

func (n naive) where(which func(*attribution.Node) bool) (found []int) {
	for i := range n.nodes {
		if which(&n.nodes[i]) {
			found = append(found, i)
		}
	}
	return found
}

// resource returns all nodes that a line's resource means, with and without GPUs.
func (n naive) resource(l *attribution.Line) []int {
	if l.Resource == "" {
		return nil
	}
	return n.where(func(x *attribution.Node) bool {
		if x.Resource == l.Resource && x.Account == l.Account {
			return true
		}
		return x.Resource == "" && (x.Account == l.Account || x.Account == "") && slices.ContainsFunc(n.nodes, func(o attribution.Node) bool {
			return o.Cluster == x.Cluster && o.Node == x.Node && o.Resource == l.Resource && o.Account == l.Account
		})
	})
}

func (n naive) withGPUs(nodes []int) []int {
	return slices.DeleteFunc(slices.Clone(nodes), func(i int) bool { return n.nodes[i].GPUs == 0 })
}

// match returns the nodes that a line is for, and by which rung.
func (n naive) match(l *attribution.Line) ([]int, attribution.Rung) {
	if nodes := n.during(n.withGPUs(n.resource(l)), l); nodes != nil {
		return nodes, attribution.ByResource
	}
	bare := slices.ContainsFunc(n.resource(l), func(i int) bool {
		x := &n.nodes[i]
		return x.Resource == l.Resource && x.Account == l.Account && !x.Service.Intersect(l.ChargePeriod).Empty()
	})
	if l.Class == attribution.Shared || bare {
		nodes := n.where(func(x *attribution.Node) bool { return x.Account == l.Account && x.GPUs > 0 })
		if nodes = n.during(nodes, l); nodes != nil {
			return nodes, attribution.ByAccount
		}
		return nil, attribution.ByNothing
	}
	named := map[int]bool{}
	for i := range n.lines {
		if o := &n.lines[i]; byUse(o) && buys(o.Class) {
			for _, x := range n.during(n.withGPUs(n.resource(o)), o) {
				named[x] = true
			}
		}
	}
	var pool, declared []int
	for i := range n.nodes {
		x := &n.nodes[i]
		if l.Resource != "" && named[i] && l.SKU != "" && x.SKU == l.SKU && x.Account == l.Account && (l.Region == "" || l.Region == x.Region) {
			return nil, attribution.ByNothing // names can be compared, and this one is nobody's
		}
		if named[i] || l.SKU == "" || x.SKU != l.SKU || x.Account != l.Account || x.GPUs == 0 || l.Region != "" && l.Region != x.Region {
			continue
		}
		pool = append(pool, i)
		if map[attribution.Class]domain.BillingModel{attribution.Committed: "reserved", attribution.OnDemand: "on_demand", attribution.Spot: "spot", attribution.Owned: "owned"}[l.Class] == x.Billing {
			declared = append(declared, i)
		}
	}
	if nodes := n.during(declared, l); nodes != nil {
		return nodes, attribution.ByPool
	}
	if nodes := n.during(pool, l); nodes != nil {
		return nodes, attribution.ByPool
	}
	return nil, attribution.ByNothing
}

// bought is the GPU time that a line buys of some nodes.
func (n naive) bought(l *attribution.Line, nodes []int) *big.Rat {
	if !buys(l.Class) || l.UnusableQuantity != "" || !plausible(l.NodeMs) || !plausible(l.GPUMs) {
		return new(big.Rat)
	}
	if l.GPUMs != 0 {
		return big.NewRat(l.GPUMs, 1)
	}
	var time, gpus int64
	for _, i := range nodes {
		held := int64(n.nodes[i].Service.Intersect(l.ChargePeriod).Length() / ms)
		if held > 0 && (n.nodes[i].GPUs < 0 || n.nodes[i].GPUs > 1024) && l.NodeMs != 0 {
			return new(big.Rat) // nobody knows how many
		}
		time += held
		gpus += held * int64(n.nodes[i].GPUs)
	}
	b := new(big.Rat).Mul(big.NewRat(l.NodeMs, 1), big.NewRat(gpus, time))
	whole := new(big.Int).Quo(b.Num(), b.Denom())
	if !plausible(whole.Int64()) {
		return new(big.Rat)
	}
	return new(big.Rat).SetInt(whole)
}

// weights returns what every part of a line weighs.
func (n naive) weights(l *attribution.Line, nodes []int, rung attribution.Rung) map[naiveKey]*big.Rat {
	w := map[naiveKey]*big.Rat{}
	add := func(k naiveKey, ms *big.Rat) {
		if rung == attribution.ByAccount {
			k.hour = 0
		}
		if w[k] == nil {
			w[k] = new(big.Rat)
		}
		w[k].Add(w[k], ms)
	}
	seen := new(big.Rat)
	for i := range n.hours {
		h := &n.hours[i]
		if !slices.Contains(nodes, h.Node) || h.Hour < l.ChargePeriod.From || h.Hour >= l.ChargePeriod.To {
			continue
		}
		idle := h.Owner
		if idle == "" || n.policy.IdleToPlatform {
			idle = "platform"
		}
		for _, p := range h.Parts {
			k := naiveKey{hour: h.Hour, cluster: n.nodes[h.Node].Cluster, component: p.Component}
			switch p.Component {
			case attribution.Allocated:
				k.workspace, k.deployment = p.Workspace, p.Deployment
			case attribution.Idle, attribution.Unprovisioned:
				k.workspace = idle
			case attribution.Failed, attribution.Maintenance:
				k.workspace = "platform:reliability"
			case attribution.Unobserved:
				k.workspace = "platform:unobserved"
			}
			add(k, big.NewRat(p.GPUMs, 1))
			seen.Add(seen, big.NewRat(p.GPUMs, 1))
		}
	}
	// What all lines of these nodes and this period buy beyond that.
	net := new(big.Rat)
	buying := false
	for i := range n.lines {
		o := &n.lines[i]
		others, as := []int(nil), attribution.Rung(0)
		if byUse(o) {
			others, as = n.match(o)
		}
		if as == rung && slices.Equal(others, nodes) {
			buying = buying || buys(o.Class) && as != attribution.ByAccount
			if o.ChargePeriod == l.ChargePeriod && as != attribution.ByAccount {
				net.Add(net, n.bought(o, nodes))
			}
		}
	}
	excess := new(big.Rat).Sub(new(big.Rat).Abs(net), seen)
	if seen.Sign() == 0 && net.Sign() == 0 {
		if !buying {
			return nil
		}
		excess.SetInt64(int64(l.ChargePeriod.Length() / ms))
	}
	if excess.Sign() > 0 {
		cluster := n.nodes[nodes[0]].Cluster
		for _, i := range nodes {
			if n.nodes[i].Cluster != cluster {
				cluster = ""
			}
		}
		// Evenly over the hours, in whole milliseconds, by cumulative floors.
		hours, done := int64(l.ChargePeriod.Length()/domain.Hour), new(big.Int)
		for i := int64(1); i <= hours; i++ {
			upTo := new(big.Int).Mul(excess.Num(), big.NewInt(i))
			upTo.Quo(upTo, big.NewInt(hours))
			part := new(big.Rat).SetInt(new(big.Int).Sub(upTo, done))
			done = upTo
			add(naiveKey{hour: l.ChargePeriod.From + domain.Instant(i-1)*domain.Hour, workspace: "platform:unobserved", cluster: cluster, component: attribution.Unseen}, part)
		}
	}
	return w
}

func TestAgainstNaiveDivision(t *testing.T) {
	reached := map[attribution.Rung]int{}
	cases(t, 2_000)
	rapid.Check(t, func(t *rapid.T) {
		e := drawEstate(t, drawing{aligned: true, plain: true})
		e.policy.Discount = attribution.AsSupplied
		leaves, _ := must(t, e)
		n := naive{e}
		for i := range e.lines {
			l := &e.lines[i]
			if !byUse(l) {
				continue
			}
			nodes, rung := n.match(l)
			want := map[naiveKey]*big.Rat{{workspace: "platform", component: attribution.Unmatched}: big.NewRat(1, 1)}
			if rung != attribution.ByNothing {
				if w := n.weights(l, nodes, rung); w != nil {
					want = w
				} else {
					rung = attribution.ByNothing
				}
			}
			reached[rung]++
			total := new(big.Rat)
			for _, w := range want {
				total.Add(total, w)
			}
			for j := range leaves {
				g := &leaves[j]
				if g.line != *l {
					continue
				}
				k := naiveKey{g.Hour, g.Workspace, g.Cluster, g.Deployment, g.Component}
				w := want[k]
				if w == nil || g.Rung != rung {
					t.Fatalf("leaf %s by %s should not be: by %s to %v", ref(g), g.Rung, rung, want)
				}
				delete(want, k)
				for _, a := range [][2]attribution.Amount{{g.Billed, l.Billed}, {g.Effective, l.Effective}} {
					off := new(big.Rat).SetInt(units(a[1]))
					off.Mul(off, w).Quo(off, total).Sub(off, new(big.Rat).SetInt(units(a[0])))
					if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
						t.Fatalf("leaf %s costs %s of %s, off by %s units", ref(g), a[0], a[1], off.FloatString(3))
					}
				}
				if rung == attribution.ByResource || rung == attribution.ByPool {
					off := n.bought(l, nodes)
					off.Mul(off, w).Quo(off, total).Sub(off, big.NewRat(g.BoughtMs, 1))
					if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
						t.Fatalf("leaf %s buys %d ms, off by %s", ref(g), g.BoughtMs, off.FloatString(3))
					}
				}
			}
			for k, w := range want {
				if w.Sign() != 0 {
					t.Fatalf("line %+v has no leaf %+v", l, k)
				}
			}
		}
	})
	t.Run("reaches every rung", func(t *testing.T) {
		for _, r := range []attribution.Rung{attribution.ByResource, attribution.ByPool, attribution.ByAccount, attribution.ByNothing} {
			if reached[r] == 0 {
				t.Errorf("no case was divided %s", r)
			}
		}
	})
}
