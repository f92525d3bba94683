package demo

import (
	"fmt"
	"time"

	"quartermaster/domain"
)

// ServingPeriod is the time that [Serving] covers: the last three days of [LoadPeriod].
var ServingPeriod = domain.Interval{From: LoadPeriod.To - 3*domain.Day, To: LoadPeriod.To}

// Per replica of a model server.
const (
	servingGPUs  = 1
	servingModel = "A100 40GB"
	servingCPU   = 8_000  // thousandths
	servingRAM   = 65_536 // MiB
	servingEach  = domain.Hour / 6
	servingName  = "gen-chat-13b"
	servingBatch = 32 // the most requests that a replica works on at once
)

// server is a deployment of model servers of one tier. All of it is invented.
type server struct {
	deployment, tier string
	replicas         int
	requests         int // of all replicas in ten minutes on average
	tokensIn         int // of a request
	tokensOut        int
	firstToken       int // milliseconds to the first token without queueing
	most             int // requests of a replica in ten minutes, above which they wait
}

var servers = []server{
	{deployment: "gen-assistant-gold", tier: "gold", replicas: 6, requests: 2_400, tokensIn: 1_100, tokensOut: 210,
		firstToken: 90, most: 900},
	{deployment: "gen-assistant-bronze", tier: "bronze", replicas: 2, requests: 1_500, tokensIn: 1_100,
		tokensOut: 210, firstToken: 140, most: 900},
}

func (s *server) unit(i int) string { return fmt.Sprintf("%s-%d", s.deployment, i) }

// Deployments declares the model servers, as [Reports] shows them running.
func Deployments(workspace string, at domain.Instant) []Told {
	var out []Told
	for i := range servers {
		s := &servers[i]
		out = append(out, Told{At: at, Workspace: workspace, Subject: s.deployment, Event: &domain.DeploymentChanged{
			Deployment: s.deployment, Model: servingName, Tier: s.tier, Class: domain.ClassServing,
			Replicas: uint32(s.replicas),
			Need: domain.GPUNeed{
				Models: []string{servingModel}, Count: servingGPUs, CPUMilli: servingCPU, RAMMiB: servingRAM,
			},
		}})
	}
	return out
}

// The bounds of vLLM's histogram of times to the first token, in microseconds, up to 10 s.
var firstTokenBounds = []uint64{
	1_000, 5_000, 10_000, 20_000, 40_000, 60_000, 80_000, 100_000, 250_000, 500_000, 750_000,
	1_000_000, 2_500_000, 5_000_000, 7_500_000, 10_000_000,
}

// The bounds of vLLM's histogram of times in the queue, in microseconds, up to 60 s.
var waitBounds = []uint64{
	300_000, 500_000, 800_000, 1_000_000, 1_500_000, 2_000_000, 2_500_000, 5_000_000, 10_000_000, 15_000_000,
	20_000_000, 30_000_000, 40_000_000, 50_000_000, 60_000_000,
}

// Requests by hour of the day, percent of the mean: working days of people in one time zone.
var servedByHour = [24]int{40, 32, 28, 26, 28, 36, 54, 82, 118, 148, 160, 158, 140, 152, 164, 166, 158, 146, 132, 120,
	108, 92, 68, 44}

// Times to the first token relative to a server without load, in percent.
var firstTokenSpread = []share[[2]int]{{60, [2]int{70, 120}}, {28, [2]int{120, 220}}, {9, [2]int{220, 500}},
	{3, [2]int{500, 1500}}}

// Serving returns what the model servers of two tiers report over [ServingPeriod], every ten
// minutes, in order of time: requests, tokens, times to the first token, queue, batch and KV cache.
// Gold has room at the busiest hour and bronze has not, so that there is a difference to see.
func Serving(workspace string, draw func() uint64) []Told {
	d := dice{draw}
	var out []Told
	for at := ServingPeriod.From; at < ServingPeriod.To; at += servingEach {
		for i := range servers {
			s := &servers[i]
			for r := range s.replicas {
				out = append(out, Told{At: at + servingEach, Workspace: workspace, Subject: s.unit(r), Event: s.sample(d, r, at)})
			}
		}
	}
	return out
}

// work is what a replica did in an interval.
type work struct {
	requests, failed int
	queued, batch    int // means, in thousandths of a request
	cache            int // per mille of the KV cache
	prompts, tokens  int
	first, wait      domain.Histogram
}

// work draws what a replica does with requests of an interval. Above 70 % of its capacity requests
// wait, longer with more load.
func (s *server) work(d dice, requests int) work {
	load := requests * 1000 / s.most // per mille of its capacity
	w := work{
		requests: requests, queued: max(0, load-700) * max(0, load-700) / 60,
		first: domain.Histogram{Bounds: firstTokenBounds, Counts: make([]uint64, len(firstTokenBounds)+1)},
		wait:  domain.Histogram{Bounds: waitBounds, Counts: make([]uint64, len(waitBounds)+1)},
	}
	for range requests {
		span := pick(d, firstTokenSpread)
		alone, wait := uint64(s.firstToken*10*(span[0]+d.below(span[1]-span[0]))), uint64(d.below(max(1, w.queued))*600)
		count(&w.first, alone+wait)
		count(&w.wait, wait)
	}
	for range requests {
		if d.chance(800 + 4*w.queued) {
			w.failed++
		}
	}
	w.batch = min(servingBatch*1000, servingBatch*load)
	w.cache = min(990, 60+w.batch/servingBatch*88/100)
	w.prompts = requests * (s.tokensIn + d.spread(40))
	w.tokens = (requests - w.failed) * (s.tokensOut + d.spread(10))
	return w
}

// count adds a value in microseconds to a histogram.
func count(h *domain.Histogram, micros uint64) {
	b := 0
	for b < len(h.Bounds) && micros > h.Bounds[b] {
		b++
	}
	h.Counts[b]++
	h.Sum += micros
}

func (s *server) sample(d dice, replica int, at domain.Instant) *domain.ServingSampled {
	n := s.requests / s.replicas * servedByHour[at.Time().Hour()] / 100
	if day := at.Time().Weekday(); day == time.Saturday || day == time.Sunday {
		n = n * 70 / 100
	}
	w := s.work(d, max(1, n+d.spread(n/12)))
	return &domain.ServingSampled{
		Deployment: s.deployment, Unit: s.unit(replica), Model: servingName, Tier: s.tier, Engine: "vllm",
		Interval: domain.Interval{From: at, To: at + servingEach}, TTFT: w.first,
		QueueDepthMilli: uint64(w.queued), BatchSizeMilli: uint64(w.batch),
		KVCachePermille:  uint64(w.cache),
		PromptTokens:     uint64(w.prompts),
		GenerationTokens: uint64(w.tokens),
		RequestsOK:       uint64(w.requests - w.failed), RequestsFailed: uint64(w.failed),
	}
}
