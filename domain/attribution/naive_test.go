package attribution_test

import (
	"cmp"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
)

// naive is a second implementation of the division of lines that buy machines under as-supplied
// discounts. It follows the package comment directly, a third of an hour at a time, with rational
// numbers, and shares no code with the first implementation. It ignores CPU and memory.
type naive struct {
	*estate
	bought []*big.Rat // by each line
}

// third is the unit of time: charge periods, services and usage of a drawn estate begin and end at
// multiples of it.
const third = 20 * 60 * domain.Second

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

// resource returns all nodes that a line's resource id names, with and without GPUs.
func (n naive) resource(l *attribution.Line) []int {
	if l.Resource == "" {
		return nil
	}
	own := n.where(func(x *attribution.Node) bool { return x.Resource == l.Resource && x.Account == l.Account })
	for _, o := range n.also {
		x := &n.nodes[o.Node]
		if o.Account == l.Account && o.Resource == l.Resource && (x.Resource == "" || !n.billed(x)) {
			own = append(own, o.Node) // reported under two names, and the bill uses the other
		}
	}
	for i := range n.nodes {
		x := &n.nodes[i]
		if slices.Contains(own, i) || x.Resource != "" && x.Resource != l.Resource || x.Account != l.Account && x.Account != "" {
			continue
		}
		if slices.ContainsFunc(own, func(j int) bool { return n.nodes[j].Cluster == x.Cluster && n.nodes[j].Node == x.Node }) {
			own = append(own, i)
		}
	}
	slices.Sort(own)
	return slices.Compact(own)
}

// billed reports whether a line that may buy machines names a node by its own resource id.
func (n naive) billed(x *attribution.Node) bool {
	return slices.ContainsFunc(n.lines, func(l attribution.Line) bool {
		return byUse(&l) && mayBuy(&l) && l.Account == x.Account && l.Resource == x.Resource
	})
}

func (n naive) withGPUs(nodes []int) []int {
	return slices.DeleteFunc(slices.Clone(nodes), func(i int) bool { return n.nodes[i].GPUs == 0 })
}

// match returns the nodes that a line is for, and by which match method.
func (n naive) match(l *attribution.Line) ([]int, attribution.MatchMethod) {
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
	if l.Resource != "" && len(n.where(func(x *attribution.Node) bool { return x.Resource == l.Resource && x.Account == l.Account })) > 0 {
		return nil, attribution.ByNothing // that machine was not in service
	}
	named := map[int]bool{}
	for i := range n.lines {
		if o := &n.lines[i]; byUse(o) && mayBuy(o) {
			for _, x := range n.during(n.withGPUs(n.resource(o)), o) {
				named[x] = true
			}
		}
	}
	var pool, declared []int
	for i := range n.nodes {
		x := &n.nodes[i]
		if l.Resource != "" && named[i] && l.SKU != "" && x.SKU == l.SKU && x.Account == l.Account && (l.Region == "" || l.Region == x.Region) {
			return nil, attribution.ByNothing // names are comparable, and this one belongs to nobody
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

// mayBuy reports whether a line sells time and does not refund money.
func mayBuy(l *attribution.Line) bool {
	if !buys(l.Class) || l.Meter == attribution.AddOn {
		return false
	}
	quantity := l.NodeMs
	if l.GPUMs != 0 {
		quantity = l.GPUMs
	}
	money := []int{l.Billed.Sign(), l.Effective.Sign()}
	if quantity < 0 {
		money[0], money[1] = -money[0], -money[1]
	}
	return quantity == 0 || slices.Max(money) > 0 || slices.Min(money) == 0
}

// standing returns lines with what they sell. A line that only free text calls an add-on sells its
// Alone if no other line would buy.
func standing(lines []attribution.Line) []attribution.Line {
	as := slices.Clone(lines)
	for i := range as {
		l := &as[i]
		if l.Meter != attribution.AddOn || l.Alone == 0 || !byUse(l) || slices.ContainsFunc(lines, func(o attribution.Line) bool {
			if !byUse(&o) || !mayBuy(&o) || o.Account != l.Account || o.Resource != l.Resource || o.ChargePeriod.Intersect(l.ChargePeriod).Empty() {
				return false
			}
			return o.Resource != "" || o.SKU == l.SKU && o.Region == l.Region
		}) {
			continue
		}
		l.Meter = l.Alone
	}
	return as
}

// settle returns the GPU time that every line buys, decided third by third: first by meter, then by
// product.
func (n naive) settle() []*big.Rat {
	type place struct {
		nodes  []int
		method attribution.MatchMethod
		stated *big.Rat
	}
	at := make([]place, len(n.lines))
	bought := make([]*big.Rat, len(n.lines))
	for i := range n.lines {
		l := &n.lines[i]
		bought[i], at[i].stated = new(big.Rat), new(big.Rat)
		if byUse(l) && mayBuy(l) {
			at[i].nodes, at[i].method = n.match(l)
			if at[i].method == attribution.ByResource || at[i].method == attribution.ByPool {
				at[i].stated = n.stated(l, at[i].nodes)
			}
		}
	}
	peers := func(i, j int) bool {
		return at[i].method != 0 && at[i].method == at[j].method && slices.Equal(at[i].nodes, at[j].nodes)
	}
	// taken reports whether lines of a higher-ranked meter than line i's buy at a time.
	taken := func(i int, t domain.Instant) bool {
		for j := range n.lines {
			o := &n.lines[j]
			if !peers(i, j) || o.Meter >= n.lines[i].Meter || t < o.ChargePeriod.From || t >= o.ChargePeriod.To {
				continue
			}
			net := new(big.Rat)
			for k := range n.lines {
				if peers(i, k) && n.lines[k].Meter == o.Meter && n.lines[k].ChargePeriod == o.ChargePeriod {
					net.Add(net, at[k].stated)
				}
			}
			if net.Sign() != 0 {
				return true
			}
		}
		return false
	}
	for i := range n.lines {
		p, free := n.lines[i].ChargePeriod, int64(0)
		for t := p.From; t < p.To; t += third {
			if !taken(i, t) {
				free++
			}
		}
		part := new(big.Rat).Mul(at[i].stated, big.NewRat(free, int64(p.Length()/third)))
		bought[i].SetInt(new(big.Int).Quo(part.Num(), part.Denom()))
	}
	// Products of one meter whose charge periods overlap, directly or through others.
	settled := make([]*big.Rat, len(n.lines))
	for i := range n.lines {
		settled[i] = bought[i]
		if bought[i].Sign() == 0 {
			continue
		}
		group, span := []int{i}, n.lines[i].ChargePeriod
		for grown := true; grown; {
			grown = false
			for j := range n.lines {
				o := &n.lines[j]
				if slices.Contains(group, j) || !peers(i, j) || o.Meter != n.lines[i].Meter || bought[j].Sign() == 0 || o.ChargePeriod.Intersect(span).Empty() {
					continue
				}
				group, grown = append(group, j), true
				span = domain.Interval{From: min(span.From, o.ChargePeriod.From), To: max(span.To, o.ChargePeriod.To)}
			}
		}
		if !n.wins(i, group, span, at[i].nodes, bought) {
			settled[i] = new(big.Rat)
		}
	}
	return settled
}

// wins reports whether the product of line i buys in a group of overlapping lines.
func (n naive) wins(i int, group []int, span domain.Interval, nodes []int, bought []*big.Rat) bool {
	type product struct {
		name     string
		net      int64
		own      bool
		costs    *big.Rat
		included bool
	}
	var left int64
	for _, x := range nodes {
		held := int64(n.nodes[x].Service.Intersect(span).Length() / ms)
		if held > 0 && (n.nodes[x].GPUs < 0 || n.nodes[x].GPUs > 1024) {
			return true
		}
		left += held * int64(n.nodes[x].GPUs)
	}
	var products []*product
	slices.SortFunc(group, func(a, b int) int {
		x, y := &n.lines[a], &n.lines[b]
		return cmp.Or(cmp.Compare(x.ChargePeriod.From, y.ChargePeriod.From), cmp.Compare(x.ChargePeriod.To, y.ChargePeriod.To), strings.Compare(x.ID, y.ID))
	})
	for _, j := range group {
		l := &n.lines[j]
		at := slices.IndexFunc(products, func(p *product) bool { return p.name == l.Product })
		if at < 0 {
			at = len(products)
			products = append(products, &product{name: l.Product, costs: new(big.Rat)})
		}
		p := products[at]
		p.net += bought[j].Num().Int64()
		p.costs.Add(p.costs, new(big.Rat).SetInt(units(l.Effective)))
		p.own = p.own || l.SKU != "" && slices.ContainsFunc(nodes, func(x int) bool { return n.nodes[x].SKU == l.SKU })
	}
	much := func(over, of int64) bool { return over >= 60_000 && over/1000 >= of/1_000_000 }
	stated := func() (all int64) {
		for _, p := range products {
			all += max(p.net, -p.net)
		}
		return all
	}
	used := map[int]bool{}
	for _, p := range products {
		for _, j := range group {
			l := &n.lines[j]
			if l.Product != p.name || p.net == bought[j].Num().Int64() || !much(stated()-left, left) {
				continue
			}
			for k := range n.lines {
				if used[k] || !n.refunds(&n.lines[k], l) {
					continue
				}
				used[k] = true
				p.net -= bought[j].Num().Int64()
				p.costs.Sub(p.costs, new(big.Rat).SetInt(units(l.Effective)))
				if j == i {
					return false
				}
				break
			}
		}
	}
	all, some := stated(), 0
	for _, p := range products {
		p.costs.Abs(p.costs)
		p.net = max(p.net, -p.net)
		some += int(min(1, p.net))
	}
	if some < 2 || !much(all-left, left) {
		return true
	}
	before := func(a, b *product) bool {
		switch {
		case a.own != b.own:
			return a.own
		case a.costs.Cmp(b.costs) != 0:
			return a.costs.Cmp(b.costs) > 0
		}
		return a.name < b.name
	}
	for round := range products {
		var best *product
		for _, p := range products {
			if !p.included && (best == nil || before(p, best)) {
				best = p
			}
		}
		best.included = true
		wins := round == 0 || best.net == 0 || !much(best.net-left, best.net)
		if wins {
			left -= best.net
		}
		if best.name == n.lines[i].Product {
			return wins
		}
	}
	panic("the line is of no product")
}

// refunds reports whether a line takes back the whole cost of another.
func (n naive) refunds(l, of *attribution.Line) bool {
	if !byUse(l) || mayBuy(l) || !buys(l.Class) || l.Meter != of.Meter || l.Product != of.Product || l.Commitment != of.Commitment || l.Account != of.Account ||
		l.Resource != of.Resource || l.ChargePeriod != of.ChargePeriod || l.NodeMs != of.NodeMs || l.GPUMs != of.GPUMs ||
		l.Billed != of.Billed.Neg() || l.Effective != of.Effective.Neg() {
		return false
	}
	nodes, method := n.match(l)
	same, as := n.match(of)
	return method == as && slices.Equal(nodes, same)
}

// stated is the GPU time that a line states for some nodes.
func (n naive) stated(l *attribution.Line, nodes []int) *big.Rat {
	if !mayBuy(l) || l.UnusableQuantity != "" || !plausible(l.NodeMs) || !plausible(l.GPUMs) {
		return new(big.Rat)
	}
	if l.GPUMs != 0 {
		return big.NewRat(l.GPUMs, 1)
	}
	var time, gpus int64
	for _, i := range nodes {
		held := int64(n.nodes[i].Service.Intersect(l.ChargePeriod).Length() / ms)
		if held > 0 && (n.nodes[i].GPUs < 0 || n.nodes[i].GPUs > 1024) && l.NodeMs != 0 {
			return new(big.Rat) // the number of GPUs is unknown
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

// naivePart is the weight of a part of a line, how much of it was measured, and the machines of the
// weight.
type naivePart struct {
	weight, measured *big.Rat
	nodes            []int
	held             map[[2]string]*big.Int // microseconds, by unit and machine
}

// property is the common property of machines, as an allocation reports it.
func property(nodes []int, of func(int) string, otherwise string) string {
	all := map[string]bool{}
	for _, i := range nodes {
		all[cmp.Or(of(i), "unknown")] = true
	}
	is := ""
	for one := range all {
		is = one
	}
	if len(all) > 1 {
		return "mixed"
	}
	if is == "" || is == "unknown" {
		return cmp.Or(otherwise, is)
	}
	return is
}

// node names the only machine of some nodes, which may describe it several times.
func (n naive) node(nodes []int) string {
	names := map[string]bool{}
	for _, i := range nodes {
		names[n.nodes[i].Cluster+"/"+n.nodes[i].Node] = true
	}
	for name := range names {
		if len(names) == 1 {
			return name
		}
		return "mixed"
	}
	return ""
}

// unheld is who has what no unit held of some nodes: their machine, if they are one.
func (n naive) unheld(nodes []int) (of [2]string) {
	if of[1] = n.node(nodes); of[1] == "mixed" {
		of[1] = ""
	}
	return of
}

// checkHolders checks the division of an allocation among units and machines, with whole numbers: the first ones of
// them together have the floor of their exact share.
func checkHolders(t *rapid.T, g *allocation, l *attribution.Allocation, w *naivePart) {
	pairs := slices.SortedFunc(maps.Keys(w.held), func(a, b [2]string) int {
		return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1]))
	})
	pairs = slices.DeleteFunc(pairs, func(of [2]string) bool { return w.held[of].Sign() == 0 })
	total, at := new(big.Int), new(big.Int)
	for _, of := range pairs {
		total.Add(total, w.held[of])
	}
	whole := [...]*big.Int{units(l.Billed), units(l.Effective), big.NewInt(l.BoughtMs), big.NewInt(l.AllocatedMs)}
	before := make([]*big.Int, len(whole))
	for i := range before {
		before[i] = new(big.Int)
	}
	i := 0
	if err := l.Divide(func(h *attribution.Holder, part *attribution.Allocation) error {
		if i == len(pairs) || pairs[i] != [2]string{h.Unit, h.Node} {
			t.Fatalf("part %d of allocation %s is held by %q on %q, want %q", i+1, ref(g), h.Unit, h.Node, pairs)
		}
		at.Add(at, w.held[pairs[i]])
		i++
		for k, got := range [...]*big.Int{units(part.Billed), units(part.Effective), big.NewInt(part.BoughtMs), big.NewInt(part.AllocatedMs)} {
			upTo := new(big.Int).Mul(whole[k], at)
			upTo.Quo(upTo, total) // towards zero
			if want := new(big.Int).Sub(upTo, before[k]); got.Cmp(want) != 0 {
				t.Fatalf("figure %d of what %q on %q has of allocation %s is %s, want %s", k+1, h.Unit, h.Node, ref(g), got, want)
			}
			before[k] = upTo
		}
		return nil
	}); err != nil || i != len(pairs) {
		t.Fatalf("allocation %s is divided among %d holders, want %q (%v)", ref(g), i, pairs, err)
	}
}

// hardware is the hardware of a line's allocation on the given nodes.
func (n naive) hardware(l *attribution.Line, nodes []int) attribution.Hardware {
	paid := map[attribution.Class]string{attribution.Committed: "reserved", attribution.OnDemand: "on_demand", attribution.Spot: "spot", attribution.Owned: "owned"}[l.Class]
	return attribution.Hardware{
		GPUModel: property(nodes, func(i int) string { return n.nodes[i].GPUModel }, ""),
		Billing:  domain.BillingModel(property(nodes, func(i int) string { return string(n.nodes[i].Billing) }, paid)),
	}
}

// weights returns the weight of every part of a line.
func (n naive) weights(l *attribution.Line, nodes []int, method attribution.MatchMethod) map[naiveKey]*naivePart {
	w := map[naiveKey]*naivePart{}
	add := func(k naiveKey, of [2]string, ms, measured *big.Rat, nodes ...int) {
		if ms.Sign() == 0 {
			return
		}
		if method == attribution.ByAccount {
			k.hour = 0
		}
		if w[k] == nil {
			w[k] = &naivePart{new(big.Rat), new(big.Rat), nil, map[[2]string]*big.Int{}}
		}
		if w[k].held[of] == nil {
			w[k].held[of] = new(big.Int)
		}
		micros := new(big.Rat).Mul(ms, big.NewRat(1000, 1))
		w[k].held[of].Add(w[k].held[of], new(big.Int).Quo(micros.Num(), micros.Denom()))
		w[k].weight.Add(w[k].weight, ms)
		w[k].measured.Add(w[k].measured, measured)
		w[k].nodes = append(w[k].nodes, nodes...)
	}
	seen := new(big.Rat)
	for i := range n.hours {
		h := &n.hours[i]
		if !slices.Contains(nodes, h.Node) || n.held(h).Intersect(l.ChargePeriod).Empty() {
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
			case attribution.BusyUnattributed, attribution.Idle, attribution.Unprovisioned:
				k.workspace = idle
			case attribution.Failed, attribution.Maintenance:
				k.workspace = "platform:reliability"
			case attribution.Unobserved:
				k.workspace = "platform:unobserved"
			}
			had := big.NewRat(1000*p.GPUMs+p.Micros, 1000)
			measured := big.NewRat(min(1000*p.GPUMs+p.Micros, 1000*max(p.KnownMs, p.UsefulMs)), 1000)
			unit := ""
			if p.Component == attribution.Allocated {
				unit = p.Unit
			}
			add(k, [2]string{unit, n.node([]int{h.Node})}, had, measured, h.Node)
			seen.Add(seen, had)
		}
	}
	// Time that all lines of these nodes and this period buy beyond that.
	net := new(big.Rat)
	buying := false
	for i := range n.lines {
		o := &n.lines[i]
		others, as := []int(nil), attribution.MatchMethod(0)
		if byUse(o) {
			others, as = n.match(o)
		}
		if as == method && slices.Equal(others, nodes) {
			buying = buying || mayBuy(o) && as != attribution.ByAccount
			if o.ChargePeriod == l.ChargePeriod && as != attribution.ByAccount {
				net.Add(net, n.bought[i])
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
		there := slices.DeleteFunc(slices.Clone(nodes), func(i int) bool { return n.nodes[i].Service.Intersect(l.ChargePeriod).Empty() })
		// Evenly over the hours, in whole microseconds, by cumulative floors.
		micros := new(big.Rat).Mul(excess, big.NewRat(1000, 1))
		thirds, done := int64(l.ChargePeriod.Length()/third), new(big.Int)
		for t := l.ChargePeriod.From; t < l.ChargePeriod.To; {
			hour := t.HourStart()
			t = min(hour+domain.Hour, l.ChargePeriod.To)
			upTo := new(big.Int).Mul(micros.Num(), big.NewInt(int64((t-l.ChargePeriod.From)/third)))
			upTo.Quo(upTo, big.NewInt(thirds))
			part := new(big.Rat).SetFrac(new(big.Int).Sub(upTo, done), big.NewInt(1000))
			done = upTo
			add(naiveKey{hour: hour, workspace: "platform:unobserved", cluster: cluster, component: attribution.Unseen}, n.unheld(nodes), part, new(big.Rat), there...)
		}
	}
	return w
}

func TestAgainstNaiveDivision(t *testing.T) {
	reached, less := map[attribution.MatchMethod]int{}, map[string]int{}
	hardware, machines, several := map[string]int{}, map[string]int{}, map[int]int{}
	other := 0 // lines that name a machine only by its other name
	long.Check(t, 500, 40_000, func(t *rapid.T) {
		e := drawEstate(t, drawing{plain: true, crowded: rapid.Bool().Draw(t, "crowded")})
		e.policy.Discount = attribution.AsSupplied
		allocations, _ := must(t, e)
		all := held(t, e)
		as := *e
		as.lines = standing(e.lines)
		n := naive{estate: &as}
		n.bought = n.settle()
		for i := range e.lines {
			l := &n.lines[i]
			if !byUse(l) {
				continue
			}
			nodes, method := n.match(l)
			want := map[naiveKey]*naivePart{{workspace: "platform", component: attribution.Unmatched}: {
				big.NewRat(1, 1), new(big.Rat), nil, map[[2]string]*big.Int{n.unheld(nodes): big.NewInt(1)},
			}}
			if method != attribution.ByNothing {
				if w := n.weights(l, nodes, method); w != nil {
					want = w
				} else {
					method = attribution.ByNothing
				}
			}
			node := n.node(nodes)
			machines[node]++
			reached[method]++
			if method == attribution.ByResource && !slices.ContainsFunc(nodes, func(x int) bool { return n.nodes[x].Resource == l.Resource }) {
				other++
			}
			if (method == attribution.ByResource || method == attribution.ByPool) && n.bought[i].Cmp(n.stated(l, nodes)) != 0 {
				if n.bought[i].Sign() != 0 {
					less["a part"]++
				} else {
					less["nothing"]++
				}
			}
			if l.Meter != e.lines[i].Meter && n.bought[i].Sign() != 0 {
				less["all, alone,"]++
			}
			if n.bought[i].Sign() == 0 && slices.ContainsFunc(n.lines, func(o attribution.Line) bool { return n.refunds(&o, l) }) {
				less["nothing, refunded,"]++
			}
			total := new(big.Rat)
			for _, w := range want {
				total.Add(total, w.weight)
			}
			for j := range allocations {
				g := &allocations[j]
				if g.line != e.lines[i] {
					continue
				}
				k := naiveKey{g.Hour, g.Workspace, g.Cluster, g.Deployment, g.Component}
				w := want[k]
				if w == nil || g.MatchMethod != method {
					t.Fatalf("allocation %s by %s should not be: by %s to %v", ref(g), g.MatchMethod, method, want)
				}
				delete(want, k)
				if hw := n.hardware(l, w.nodes); g.Hardware != hw {
					t.Fatalf("allocation %s is of %+v, want %+v", ref(g), g.Hardware, hw)
				}
				checkHolders(t, g, &all[j], w)
				several[len(w.held)]++
				if g.node != node {
					t.Fatalf("allocation %s is of machine %q, want %q", ref(g), g.node, node)
				}
				hardware[g.Hardware.GPUModel]++
				for _, a := range [][2]attribution.Amount{{g.Billed, l.Billed}, {g.Effective, l.Effective}} {
					off := new(big.Rat).SetInt(units(a[1]))
					off.Mul(off, w.weight).Quo(off, total).Sub(off, new(big.Rat).SetInt(units(a[0])))
					if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
						t.Fatalf("allocation %s costs %s of %s, off by %s units", ref(g), a[0], a[1], off.FloatString(3))
					}
				}
				if method == attribution.ByResource || method == attribution.ByPool {
					off := new(big.Rat).Mul(n.bought[i], w.weight)
					off.Quo(off, total).Sub(off, big.NewRat(g.BoughtMs, 1))
					if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
						t.Fatalf("allocation %s buys %d ms, off by %s", ref(g), g.BoughtMs, off.FloatString(3))
					}
					off.Mul(big.NewRat(g.AllocatedMs, 1), w.measured).Quo(off, w.weight).Sub(off, big.NewRat(g.MeasuredMs, 1))
					if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
						t.Fatalf("allocation %s has %d ms measured, off by %s", ref(g), g.MeasuredMs, off.FloatString(3))
					}
				}
			}
			for k, w := range want {
				if w.weight.Sign() != 0 {
					t.Fatalf("line %+v has no allocation %+v", l, k)
				}
			}
		}
	})
	t.Run("reaches every match method", func(t *testing.T) {
		long.Only(t, "few cases need not reach all of them")
		if other == 0 {
			t.Error("no line named a machine by its other name")
		}
		for _, r := range []attribution.MatchMethod{attribution.ByResource, attribution.ByPool, attribution.ByAccount, attribution.ByNothing} {
			if reached[r] == 0 {
				t.Errorf("no case was divided %s", r)
			}
		}
		for _, what := range []string{"", "unknown", "mixed", "h"} {
			if hardware[what] == 0 {
				t.Errorf("no allocation is of GPU model %q: %v", what, hardware)
			}
		}
		for _, what := range []string{"", "mixed", "c1/n0", "c2/n1"} {
			if machines[what] == 0 {
				t.Errorf("no line is of machine %q: %v", what, machines)
			}
		}
		if several[1] == 0 || several[2] == 0 || several[3] == 0 {
			t.Errorf("no allocation has one holder, or two or three: %v", several)
		}
		for _, what := range []string{"a part", "nothing", "all, alone,", "nothing, refunded,"} {
			if less[what] == 0 {
				t.Errorf("no line bought %s of what it stated", what)
			}
		}
	})
}
