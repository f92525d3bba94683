package demo

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
)

// PlantedRegion is the region of [Plants].
const PlantedRegion = "us-central"

// PlantedGPU is the GPU model of [Plants].
const PlantedGPU = "H100 SXM 80GB"

// Plant is a rented cluster that wastes something on purpose, so that the rules of advice have something to find. Sizes are
// invented.
type Plant struct {
	Cluster, Workspace string
	Provider           string
	Account, SKU       string
	Billing            domain.BillingModel
	groups             []plantGroup
}

// plantGroup is a number of equal nodes of a plant.
type plantGroup struct {
	nodes      int
	from       domain.Instant
	deployment string // that holds them
	units      int    // of the deployment on a node
	active     [2]int // SM active in per mille, from and to
	sleeps     bool   // nothing holds them at night
}

// The Saturday on which two mistakes of the planted clusters begin.
var plantedSaturday = LoadPeriod.To - 2*domain.Day

// When the batch work of [PlantedIndex] pauses: night in the Americas, UTC.
const (
	nightFrom = 2
	nightTo   = 10
)

// The planted clusters.
const (
	PlantedSmall = "gen-chat-1" // serves too much of a model
	PlantedLarge = "gen-chat-2" // serves too little of it
	PlantedIndex = "gen-index"  // sleeps at night, and grew on a Saturday
)

// The planted workspaces and deployments.
const (
	PlantedChat   = "assistant"
	PlantedSearch = "search"
	plantedServer = "gen-chat"
	PlantedModel  = "gen-chat-70b"
	plantedBatch  = "gen-embed"
	plantedRetry  = "gen-reindex"
)

var plants = []Plant{
	{
		Cluster: PlantedSmall, Workspace: PlantedChat, Provider: "coreweave", Account: "demo-0002", SKU: "HGX H100",
		Billing: domain.BillingOnDemand,
		groups:  []plantGroup{{nodes: 2, from: LoadPeriod.From, deployment: plantedServer, units: 2, active: [2]int{560, 680}}},
	},
	{
		Cluster: PlantedLarge, Workspace: PlantedChat, Provider: "lambda", Account: "demo-0003", SKU: "8x H100 SXM",
		Billing: domain.BillingReserved,
		groups:  []plantGroup{{nodes: 4, from: LoadPeriod.From, deployment: plantedServer, units: 2, active: [2]int{560, 680}}},
	},
	{
		Cluster: PlantedIndex, Workspace: PlantedSearch, Provider: "coreweave", Account: "demo-0002", SKU: "HGX H100",
		Billing: domain.BillingSpot,
		groups: []plantGroup{
			{nodes: 4, from: LoadPeriod.From, deployment: plantedBatch, units: 1, active: [2]int{780, 900}, sleeps: true},
			{nodes: 4, from: plantedSaturday, deployment: plantedRetry, units: 1, active: [2]int{780, 900}},
		},
	},
}

// Plants returns the planted clusters.
func Plants() []Plant { return slices.Clone(plants) }

// each yields the nodes of a plant.
func (p *Plant) each(yield func(node string, g *plantGroup)) {
	n := 0
	for i := range p.groups {
		for range p.groups[i].nodes {
			n++
			yield(fmt.Sprintf("%s-%02d", p.Cluster, n), &p.groups[i])
		}
	}
}

// Machines returns the nodes of a plant as its supplier knows them: spot machines have no name on a bill.
func (p *Plant) Machines() (all []Machine) {
	p.each(func(node string, g *plantGroup) {
		m := Machine{
			Cluster: p.Cluster, Node: node, ResourceID: node, SKU: p.SKU, Region: PlantedRegion, GPUs: nodeGPUs,
			Service: domain.Interval{From: g.from, To: LoadPeriod.To},
		}
		if p.Billing == domain.BillingSpot {
			m.ResourceID = ""
		}
		all = append(all, m)
	})
	return all
}

// Planted returns the events of [Plants] in [LoadPeriod], by kind: nodes, what deployments declare, hourly reports of nodes,
// what model servers count, and spot machines that were taken back.
func Planted(draw func() uint64) []Told {
	d := dice{draw}
	var out []Told
	for i := range plants {
		p := &plants[i]
		p.each(func(node string, g *plantGroup) { out = append(out, p.register(node, g)) })
		for k := range p.groups {
			out = append(out, p.declare(&p.groups[k]))
		}
	}
	for hour := LoadPeriod.From; hour < LoadPeriod.To; hour += domain.Hour {
		for i := range plants {
			p := &plants[i]
			p.each(func(node string, g *plantGroup) {
				if hour >= g.from {
					out = append(out, Told{At: hour + domain.Hour, Cluster: p.Cluster, Subject: node, Event: p.sample(d, node, g, hour)})
				}
			})
		}
	}
	return append(append(out, chat(d)...), takenBack(d)...)
}

func (p *Plant) register(node string, g *plantGroup) Told {
	ev := &domain.NodeRegistered{
		Node: node, Provider: p.Provider, BillingAccount: p.Account, ResourceID: node, SKU: p.SKU, BillingModel: p.Billing,
		CPUMilli: 128_000, MemoryMiB: 2048 << 10, IDsDerived: true,
	}
	model, _ := domain.LookupGPU(PlantedGPU)
	for i := range nodeGPUs {
		ev.GPUs = append(ev.GPUs, domain.GPUDeclared{
			ID: domain.DeriveGPUID(p.Cluster, node, i), Index: uint32(i), Model: model.Name, MemoryMiB: model.MemoryMiB,
		})
	}
	return Told{At: g.from, Cluster: p.Cluster, Subject: node, Event: ev}
}

func (p *Plant) declare(g *plantGroup) Told {
	ev := &domain.DeploymentChanged{
		Deployment: g.deployment, Class: domain.ClassBatch, Replicas: uint32(g.nodes * g.units),
		Need: domain.GPUNeed{Models: []string{PlantedGPU}, Count: uint32(nodeGPUs / g.units), CPUMilli: 32_000, RAMMiB: 256 << 10},
	}
	if g.deployment == plantedServer {
		ev.Class, ev.Model = domain.ClassServing, PlantedModel
	}
	return Told{At: g.from, Cluster: p.Cluster, Workspace: p.Workspace, Subject: g.deployment, Event: ev}
}

// sample is what a node's agent reports of an hour.
func (p *Plant) sample(d dice, node string, g *plantGroup, hour domain.Instant) *domain.NodeSampled {
	s := &domain.NodeSampled{
		Node: node, Interval: domain.Interval{From: hour, To: hour + domain.Hour}, ActivityField: smActive,
		Strings: []string{p.Workspace, g.deployment},
	}
	for u := range g.units {
		s.Strings = append(s.Strings, unitOf(node, u))
		s.HolderWorkspace, s.HolderDeployment = append(s.HolderWorkspace, 1), append(s.HolderDeployment, 2)
		s.HolderUnit = append(s.HolderUnit, uint32(len(s.Strings)))
	}
	at := hour.Time().Hour()
	asleep := g.sleeps && at >= nightFrom && at < nightTo
	model, _ := domain.LookupGPU(PlantedGPU)
	for i := range nodeGPUs {
		id := domain.DeriveGPUID(p.Cluster, node, i)
		holder, active, memory := uint32(i*g.units/nodeGPUs+1), g.active[0]+d.below(g.active[1]-g.active[0]), int(model.MemoryMiB)*(850+d.below(80))/1000
		if asleep {
			holder, active, memory = 0, 0, 0
		}
		s.IDs = append(s.IDs, id[:]...)
		s.Holder = append(s.Holder, holder)
		s.ActivityMean = append(s.ActivityMean, uint32(active)+1)
		s.MemoryUsedMiB = append(s.MemoryUsedMiB, uint32(memory)+1)
	}
	if asleep {
		s.Strings, s.HolderWorkspace, s.HolderDeployment, s.HolderUnit = nil, nil, nil, nil
	}
	return s
}

func unitOf(node string, unit int) string { return fmt.Sprintf("%s-%d", node, unit) }

// The model servers of the planted clusters, as Prometheus scrapes them.
const (
	scrapeEach = domain.Hour / 12
	chatZone   = -5 * domain.Hour // of those who ask: Chicago, in summer
	// Requests to both clusters in five minutes at the busiest hour of a day. While one in three goes to the small cluster,
	// this is four fifths of what its replicas can do.
	chatRequests = 288
	chatBusiest  = 166 // of [servedByHour]
	chatMost     = 30  // requests of a replica in five minutes, above which they wait
)

var chatServer = server{deployment: plantedServer, tokensIn: 1_400, tokensOut: 260, firstToken: 160, most: chatMost}

// scraped are the counters of a model server since it started.
type scraped struct {
	unit                       string
	first, wait                domain.Histogram
	ok, failed, input, written uint64
	queued, batch, cache       uint64
}

// chat returns what the model servers of both clusters count. Requests were shared out by the size of the clusters, one to
// two, until somebody swapped the two weights on a Saturday.
func chat(d dice) []Told {
	var out []Told
	servers := map[string][]*scraped{}
	clusters := []string{PlantedSmall, PlantedLarge}
	for i := range plants {
		p := &plants[i]
		if !slices.Contains(clusters, p.Cluster) {
			continue
		}
		p.each(func(node string, g *plantGroup) {
			for u := range g.units {
				servers[p.Cluster] = append(servers[p.Cluster], &scraped{
					unit:  unitOf(node, u),
					first: domain.Histogram{Bounds: firstTokenBounds, Counts: make([]uint64, len(firstTokenBounds)+1)},
					wait:  domain.Histogram{Bounds: waitBounds, Counts: make([]uint64, len(waitBounds)+1)},
				})
			}
		})
	}
	for at := ServingPeriod.From + scrapeEach/2; at < ServingPeriod.To; at += scrapeEach {
		all := chatRequests * servedByHour[(at+chatZone).Time().Hour()] / chatBusiest
		for _, cluster := range clusters {
			requests := all / 3
			if (cluster == PlantedLarge) == (at < plantedSaturday) {
				requests = all - requests
			}
			requests /= len(servers[cluster])
			for _, s := range servers[cluster] {
				s.add(chatServer.work(d, max(1, requests+d.spread(requests/12))))
			}
			out = append(out, Told{At: at, Cluster: cluster, Subject: plantedServer, Event: scrape(at, servers[cluster])})
		}
	}
	return out
}

func (s *scraped) add(w work) {
	for _, x := range []struct{ to, from *domain.Histogram }{{&s.first, &w.first}, {&s.wait, &w.wait}} {
		for i, n := range x.from.Counts {
			x.to.Counts[i] += n
		}
		x.to.Sum += x.from.Sum
	}
	s.ok, s.failed = s.ok+uint64(w.requests-w.failed), s.failed+uint64(w.failed)
	s.input, s.written = s.input+uint64(w.prompts), s.written+uint64(w.tokens)
	s.queued, s.batch, s.cache = uint64(w.queued), uint64(w.batch), uint64(w.cache)
}

// scrape returns one sample of every series of some servers.
func scrape(at domain.Instant, servers []*scraped) *domain.MetricsObserved {
	m := &domain.MetricsObserved{Base: at, StepMs: uint32(scrapeEach / (domain.Second / 1000)), Strings: []string{"vllm", plantedServer, PlantedModel}}
	for i, s := range servers {
		m.Strings = append(m.Strings, s.unit)
		m.Engine, m.Deployment, m.Model = append(m.Engine, 1), append(m.Deployment, 2), append(m.Model, 3)
		m.Tier, m.Unit, m.Node = append(m.Tier, 0), append(m.Unit, uint32(len(m.Strings))), append(m.Node, 0)
		series := func(metric domain.SeriesMetric, bound, value uint64) {
			m.Server, m.Metric, m.Bound = append(m.Server, uint32(i)), append(m.Metric, uint32(metric)), append(m.Bound, bound)
			m.Series, m.Samples = append(m.Series, 1), append(m.Samples, 1)
			m.Offset, m.Value = append(m.Offset, 0), append(m.Value, value)
		}
		for _, x := range []struct {
			of                 *domain.Histogram
			bucket, sum, count domain.SeriesMetric
		}{
			{&s.first, domain.MetricTTFT, domain.MetricTTFTSum, domain.MetricTTFTCount},
			{&s.wait, domain.MetricQueueWait, domain.MetricQueueWaitSum, domain.MetricQueueWaitCount},
		} {
			var n uint64
			for b, c := range x.of.Counts {
				n += c
				bound := domain.Infinite
				if b < len(x.of.Bounds) {
					bound = x.of.Bounds[b]
				}
				series(x.bucket, bound, n)
			}
			series(x.sum, 0, x.of.Sum)
			series(x.count, 0, n)
		}
		for _, x := range []struct {
			metric domain.SeriesMetric
			value  uint64
		}{
			{domain.MetricRequestsOK, s.ok}, {domain.MetricRequestsFailed, s.failed}, {domain.MetricInputLength, s.input},
			{domain.MetricGeneratedLength, s.written}, {domain.MetricWaiting, s.queued}, {domain.MetricRunning, s.batch},
			{domain.MetricKVCache, s.cache},
		} {
			series(x.metric, 0, x.value)
		}
	}
	return m
}

// takenBackOf is how often a spot machine is taken back in an hour, per million: one in ten.
const takenBackOf = 100_000

// takenBack returns the spot machines that their supplier took back in the last week. Each is replaced within the hour by
// another of the same name.
func takenBack(d dice) []Told {
	p := &plants[slices.IndexFunc(plants, func(p Plant) bool { return p.Billing == domain.BillingSpot })]
	var out []Told
	for hour := LoadPeriod.To - 7*domain.Day; hour < LoadPeriod.To; hour += domain.Hour {
		p.each(func(node string, g *plantGroup) {
			if at := hour + domain.Instant(d.below(60))*domain.Hour/60; hour >= g.from && d.chance(takenBackOf) {
				out = append(out, Told{At: at, Subject: node, Event: &domain.SpotInterrupted{
					Market: domain.Market{Provider: p.Provider, Region: PlantedRegion}, SKU: p.SKU, Node: node, NoticeSeconds: 120, Units: 1,
				}})
			}
		})
	}
	slices.SortStableFunc(out, func(a, b Told) int { return cmp.Compare(a.At, b.At) })
	return out
}
