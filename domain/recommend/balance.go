package recommend

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/advice"

	"github.com/shopspring/decimal"
)

// Lack is replicas of a deployment that its load needs and that its cluster has no GPUs for.
type Lack struct {
	Deployment *Deployment
	Replicas   int64
}

// Served is replicas of a lack that run in a cluster.
type Served struct {
	Lack     int // index
	Cluster  string
	Replicas int64
	Micros   uint64 // round trip from the deployment's own region
	Measured bool
}

// Balance says where lacking replicas run.
type Balance struct {
	Served   []Served
	Unserved []int64 // replicas, by lack
	// Cost is the price of GPU-hours for a month, and of distance, of what is served, with the price of what is not. Bound is
	// proven: no division of the replicas costs less. Both are in the prices' currency.
	Cost, Bound decimal.Decimal
}

// Gap is how far the cost may be from the optimum, as a share of the bound.
func (b *Balance) Gap() decimal.Decimal {
	if !b.Bound.IsPositive() {
		return decimal.Decimal{}
	}
	return b.Cost.Sub(b.Bound).DivRound(b.Bound, 9)
}

// Distance prices what goes over the network to another region: for each GPU-hour that is served there.
type Distance struct {
	PerGPUHour decimal.Decimal // egress, as the transfer price policies state it
	PerMilli   decimal.Decimal // for each millisecond of the round trip
}

// Spread divides lacking replicas among the free GPUs of clusters at the least cost. rent is the price of a GPU-hour of what
// finds no place. allowed says whether a deployment may run in a cluster: the policies, and its latency budget.
//
// In GPUs it is a transportation problem, which successive shortest paths solve exactly (Ahuja, Magnanti and Orlin: Network
// Flows, section 9.7); whole replicas can cost no less, so that is the bound. Its flows are cut to whole replicas, and what is
// left takes the cheapest place that has room.
func Spread(lacks []Lack, clusters []Cluster, price func(cluster, model string) decimal.Decimal, rent func(*Deployment) decimal.Decimal,
	round func(a, b string) (micros uint64, measured bool), distance Distance, allowed func(*Deployment, *Cluster) bool,
) *Balance {
	type arc struct {
		cluster int
		cost    int64 // micro-units of the currency for a GPU and month
		micros  uint64
		known   bool
	}
	// No price is so high that the sum of all overflows.
	total := int64(1)
	for i := range lacks {
		total += max(lacks[i].Replicas*lacks[i].Deployment.GPUs, 0)
	}
	most := decimal.NewFromInt(math.MaxInt64 / 4 / total)
	micro := func(d decimal.Decimal) int64 {
		return decimal.Min(d.Mul(decimal.NewFromInt(domain.MonthHours)).Shift(6).Round(0), most).IntPart()
	}
	arcs := make([][]arc, len(lacks))
	unserved := make([]int64, len(lacks))
	home := map[string]string{}
	for i := range clusters {
		home[clusters[i].ID] = clusters[i].Region
	}
	// Free GPUs of each model are a place of their own.
	type place struct {
		cluster int
		model   string
	}
	places := map[place]int{}
	var room []int64
	var at []place
	for i := range lacks {
		d := lacks[i].Deployment
		unserved[i] = micro(rent(d))
		for k := range clusters {
			c := &clusters[k]
			if c.ID == d.Cluster && c.Free[d.GPUModel] <= 0 || !allowed(d, c) || c.Free[d.GPUModel] <= 0 {
				continue
			}
			p := place{k, d.GPUModel}
			n, ok := places[p]
			if !ok {
				n = len(room)
				places[p] = n
				room, at = append(room, c.Free[d.GPUModel]), append(at, p)
			}
			a := arc{cluster: n, known: true}
			cost := price(c.ID, d.GPUModel)
			if from := home[d.Cluster]; from != c.Region {
				a.micros, a.known = round(from, c.Region)
				if d.LatencyMicros > 0 && a.micros > d.LatencyMicros {
					continue
				}
				cost = cost.Add(distance.PerGPUHour).Add(distance.PerMilli.Mul(decimal.New(int64(min(a.micros, 1<<40)), -3)))
			}
			a.cost = micro(cost)
			if a.cost < unserved[i] {
				arcs[i] = append(arcs[i], a)
			}
		}
		slices.SortFunc(arcs[i], func(a, b arc) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.cluster, b.cluster)) })
	}
	// The flow in GPUs. Node 0 is the source, then lacks, places, and the sink; what is not served is an arc to the sink.
	g := newNetwork(2 + len(lacks) + len(room))
	sink := 1 + len(lacks) + len(room)
	type edge struct{ lack, arc, id int }
	var edges []edge
	for i := range lacks {
		gpus := lacks[i].Replicas * lacks[i].Deployment.GPUs
		g.add(0, 1+i, gpus, 0)
		for k, a := range arcs[i] {
			edges = append(edges, edge{i, k, g.add(1+i, 1+len(lacks)+a.cluster, gpus, a.cost)})
		}
		g.add(1+i, sink, gpus, unserved[i])
	}
	for k, free := range room {
		g.add(1+len(lacks)+k, sink, free, 0)
	}
	bound := g.solve(0, sink)

	// Whole replicas.
	b := &Balance{Unserved: make([]int64, len(lacks)), Bound: decimal.New(bound, -6)}
	left := slices.Clone(room)
	taken := make([]map[int]int64, len(lacks)) // replicas by arc
	for i := range lacks {
		b.Unserved[i], taken[i] = lacks[i].Replicas, map[int]int64{}
	}
	take := func(i, k int, n int64) {
		taken[i][k] += n
		b.Unserved[i] -= n
		left[arcs[i][k].cluster] -= n * lacks[i].Deployment.GPUs
	}
	for _, e := range edges {
		take(e.lack, e.arc, g.flow(e.id)/lacks[e.lack].Deployment.GPUs)
	}
	// What rounding left over goes where it saves most, the largest replicas first.
	order := make([]int, len(lacks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, c int) int { return cmp.Compare(lacks[c].Deployment.GPUs, lacks[a].Deployment.GPUs) })
	for _, i := range order {
		for k, a := range arcs[i] {
			if n := min(b.Unserved[i], left[a.cluster]/lacks[i].Deployment.GPUs); n > 0 {
				take(i, k, n)
			}
		}
	}
	var cost int64
	for i := range lacks {
		d := lacks[i].Deployment
		cost += b.Unserved[i] * d.GPUs * unserved[i]
		for k, a := range arcs[i] {
			if n := taken[i][k]; n > 0 {
				cost += n * d.GPUs * a.cost
				b.Served = append(b.Served, Served{Lack: i, Cluster: clusters[at[a.cluster].cluster].ID, Replicas: n, Micros: a.micros, Measured: a.known})
			}
		}
	}
	b.Cost = decimal.New(cost, -6)
	return b
}

// network is a flow network with whole capacities and costs.
type network struct {
	head          [][]int // arcs by node
	to            []int
	room, costs   []int64
	potential     []int64
	dist          []int64
	by            []int
	heap          []int
	place, passed []int
}

func newNetwork(nodes int) *network {
	return &network{
		head: make([][]int, nodes), potential: make([]int64, nodes), dist: make([]int64, nodes), by: make([]int, nodes),
		place: make([]int, nodes), passed: make([]int, nodes),
	}
}

// add adds an arc with its reverse, and returns its number.
func (g *network) add(from, to int, room, cost int64) int {
	id := len(g.to)
	g.to, g.room, g.costs = append(g.to, to, from), append(g.room, room, 0), append(g.costs, cost, -cost)
	g.head[from], g.head[to] = append(g.head[from], id), append(g.head[to], id+1)
	return id
}

func (g *network) flow(id int) int64 { return g.room[id+1] }

// solve sends as much as fits from one node to another at the least cost, which it returns. Costs are not negative.
func (g *network) solve(from, to int) (cost int64) {
	const far = int64(1) << 62
	for {
		for i := range g.dist {
			g.dist[i], g.by[i], g.place[i] = far, -1, -1
		}
		g.dist[from] = 0
		g.heap = g.heap[:0]
		g.push(from)
		for len(g.heap) > 0 {
			v := g.pop()
			for _, id := range g.head[v] {
				if g.room[id] == 0 {
					continue
				}
				w := g.to[id]
				if d := g.dist[v] + g.costs[id] + g.potential[v] - g.potential[w]; d < g.dist[w] {
					g.dist[w], g.by[w] = d, id
					if g.place[w] < 0 {
						g.push(w)
					} else {
						g.up(g.place[w])
					}
				}
			}
		}
		if g.dist[to] == far {
			return cost
		}
		for i := range g.potential {
			g.potential[i] += min(g.dist[i], g.dist[to])
		}
		most := far
		for v := to; v != from; v = g.to[g.by[v]^1] {
			most = min(most, g.room[g.by[v]])
		}
		for v := to; v != from; v = g.to[g.by[v]^1] {
			g.room[g.by[v]] -= most
			g.room[g.by[v]^1] += most
			cost += most * g.costs[g.by[v]]
		}
	}
}

func (g *network) less(a, b int) bool {
	return g.dist[g.heap[a]] < g.dist[g.heap[b]] || g.dist[g.heap[a]] == g.dist[g.heap[b]] && g.heap[a] < g.heap[b]
}

func (g *network) swap(a, b int) {
	g.heap[a], g.heap[b] = g.heap[b], g.heap[a]
	g.place[g.heap[a]], g.place[g.heap[b]] = a, b
}

func (g *network) push(v int) {
	g.heap = append(g.heap, v)
	g.place[v] = len(g.heap) - 1
	g.up(len(g.heap) - 1)
}

func (g *network) up(i int) {
	for i > 0 && g.less(i, (i-1)/2) {
		g.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (g *network) pop() int {
	v := g.heap[0]
	g.swap(0, len(g.heap)-1)
	g.heap = g.heap[:len(g.heap)-1]
	g.place[v] = -1
	for i := 0; ; {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(g.heap) && g.less(c, least) {
				least = c
			}
		}
		if least == i {
			return v
		}
		g.swap(i, least)
		i = least
	}
}

// balance proposes where replicas run that a saturated deployment lacks: on GPUs that are free, or that another tier of the
// model in the region does not need.
func (m *maker) balance() {
	var lacks []Lack
	clusters := make([]Cluster, len(m.e.Clusters))
	for i := range m.e.Clusters {
		clusters[i] = m.e.Clusters[i]
		free := map[string]int64{}
		for model, n := range clusters[i].Free {
			free[model] = n
		}
		clusters[i].Free = free
	}
	index := map[string]int{}
	for i := range clusters {
		index[clusters[i].ID] = i
	}
	type group struct{ model, region string }
	spare := map[group]*Deployment{}
	for i := range m.e.Deployments {
		d := &m.e.Deployments[i]
		k, ok := index[d.Cluster]
		if !ok || d.GPUs <= 0 {
			continue
		}
		if d.Unneeded > 0 {
			clusters[k].Free[d.GPUModel] += d.Unneeded * d.GPUs
			if g := (group{d.Model, clusters[k].Region}); d.Model != "" && spare[g] == nil {
				spare[g] = d
			}
		}
		if d.Lacking > 0 {
			lacks = append(lacks, Lack{d, d.Lacking})
		}
	}
	if len(lacks) == 0 {
		return
	}
	amount := func(cluster, model string) decimal.Decimal { return m.price(cluster, model).Amount }
	b := Spread(lacks, clusters, amount, func(d *Deployment) decimal.Decimal {
		// What finds no place is rented: at the highest price that is paid for the model anywhere, and a tenth more.
		highest := decimal.Decimal{}
		for i := range clusters {
			highest = decimal.Max(highest, amount(clusters[i].ID, d.GPUModel))
		}
		return highest.Mul(decimal.New(11, -1))
	}, m.round, Distance{}, func(d *Deployment, c *Cluster) bool {
		return c.Region == clusters[index[d.Cluster]].Region && lives(d, c)
	})
	for _, s := range b.Served {
		d := lacks[s.Lack].Deployment
		from, to := &clusters[index[d.Cluster]], &clusters[index[s.Cluster]]
		r := Recommendation{
			Kind: kindShift, Workspace: d.Workspace, Clusters: []string{from.ID, to.ID}, From: from.ID, To: to.ID,
			Subject: advice.Subject{Workspace: d.Workspace, Cluster: d.Cluster, Deployment: d.Deployment, Model: d.Model, GPUModel: d.GPUModel},
			WhyMore: "load moves from one to the other",
			Summary: fmt.Sprintf("run %s of deployment %s in cluster %s, which has GPUs free", advice.Many(int(s.Replicas), "replica"), d.Deployment, to.ID),
			Steps:   []string{fmt.Sprintf("declare %s of %s in cluster %s, and route its share of requests there", advice.Many(int(s.Replicas), "replica"), d.Deployment, to.ID)},
			Risk:    "requests that go further take longer on the way",
			Claims:  []Claim{unusedPart(to.ID, d.GPUModel), {Part: "load of deployment=" + d.Deployment + " cluster=" + d.Cluster}},
			Moves: []Move{{
				Workspace: d.Workspace, Deployment: d.Deployment, FromCluster: d.Cluster, ToCluster: to.ID, Replicas: s.Replicas, ToModel: d.GPUModel,
			}},
		}
		if o := spare[group{d.Model, to.Region}]; o != nil && o.Cluster == to.ID {
			r.Kind = kindRebalance
			r.Summary = fmt.Sprintf("model %s in region %s: tier %s has %s more than it needs, and tier %s lacks %s; move them", d.Model, to.Region,
				cmp.Or(o.Tier, "none"), advice.Many(int(o.Unneeded), "replica"), cmp.Or(d.Tier, "none"), advice.Many(int(d.Lacking), "replica"))
			r.Claims = append(r.Claims, deploymentPart(o.Cluster, o.Deployment, o.Workspace))
		}
		for k := range m.e.Findings {
			f := &m.e.Findings[k]
			if f.Status == advice.Firing && f.Subject.Cluster == d.Cluster && (f.Rule == advice.KVCache || f.Rule == advice.QueueWait || f.Rule == advice.FirstToken) &&
				(f.Subject.Deployment == d.Deployment || f.Subject.Deployment == "" && f.Subject.Model == d.Model) {
				r.Findings, r.Question = append(r.Findings, f.ID), f.Question
			}
		}
		window := domain.Interval{From: m.e.Figures.At - domain.MonthHours*domain.Hour, To: m.e.Figures.At}
		rent := domain.Money{Amount: amount(to.ID, d.GPUModel).Mul(decimal.New(11, -1)), Currency: m.price(to.ID, d.GPUModel).Currency}
		ms := s.Replicas * d.GPUs * domain.MonthHours * 3_600_000
		// It saves what renting as much would cost; the GPUs that it takes are paid for already.
		r.Saving, r.Simulation = m.fork(r.Kind, r.Subject, []paidTime{{ms, window, rent}}, []paidTime{{0, window, rent}})
		interval(&r, nil)
		m.made = append(m.made, r)
	}
}

// lives reports whether a deployment may run in a cluster by what it declares itself.
func lives(d *Deployment, c *Cluster) bool {
	if len(d.Countries) > 0 && !slices.Contains(d.Countries, c.Country) {
		return false
	}
	for _, need := range d.Certifications {
		if !slices.Contains(c.Certifications, need) {
			return false
		}
	}
	return true
}

// round returns the round trip between two regions; an unknown one is far.
func (m *maker) round(a, b string) (uint64, bool) {
	for _, r := range m.e.RoundTrips {
		if r.A == a && r.B == b || r.A == b && r.B == a {
			return r.Micros, r.Measured
		}
	}
	return unknownTrip, false
}
