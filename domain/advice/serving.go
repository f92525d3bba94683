package advice

import (
	"fmt"
	"math/big"

	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// fewRequests is the number of requests below which quantiles of a model in a cluster say nothing.
const fewRequests = 100

// routing judges how much a model's time to first token differs over clusters: the standard deviation of p50, or of p95, as
// a share of their mean, whichever is more.
func (e *evaluation) routing() {
	type key struct{ model, tier string }
	groups := map[key][]*Served{}
	var order []key
	for i := range e.f.FirstTokens {
		s := &e.f.FirstTokens[i]
		if s.Requests < fewRequests || s.FirstTokenP50 == 0 {
			continue
		}
		k := key{s.Model, s.Tier}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], s)
	}
	for _, k := range order {
		all := groups[k]
		if len(all) < 2 {
			continue
		}
		p50, p95 := make([]uint64, len(all)), make([]uint64, len(all))
		names := make([]string, len(all))
		slowest := all[0]
		for i, s := range all {
			p50[i], p95[i], names[i] = s.FirstTokenP50, s.FirstTokenP95, s.Cluster
			if s.FirstTokenP95 > slowest.FirstTokenP95 {
				slowest = s
			}
		}
		value := decimal.Max(variation(p50), variation(p95))
		e.judge(measure{
			rule: Routing, subject: Subject{Model: k.model, Name: k.tier, Class: slowest.Class}, value: value, known: true,
			window: slowest.Window, names: named(names), parts: len(names),
			summary: fmt.Sprintf("time to first token of model %s differs by %s over %s; p95 is highest in cluster %s, with %d ms: a routing problem",
				k.model, percent(value), Many(len(all), "cluster"), slowest.Cluster, slowest.FirstTokenP95/1000),
			question: Ask("serving", "model", k.model, "tier", k.tier, "from", slowest.Window.From.String(), "to", slowest.Window.To.String()),
		})
	}
}

// variation is the standard deviation of values (over all of them) as a share of their mean, to 6 decimals, rounded down.
// With n values its square is n·Σx² ÷ (Σx)² − 1.
func variation(values []uint64) decimal.Decimal {
	sum, squares := new(big.Int), new(big.Int)
	for _, v := range values {
		x := new(big.Int).SetUint64(v)
		sum.Add(sum, x)
		squares.Add(squares, x.Mul(x, x))
	}
	sum.Mul(sum, sum)
	if sum.Sign() == 0 {
		return decimal.Decimal{}
	}
	squares.Mul(squares, big.NewInt(int64(len(values)))).Sub(squares, sum)
	squares.Mul(squares, big.NewInt(1e12)).Quo(squares, sum)
	return decimal.NewFromBigInt(squares.Sqrt(squares), -6)
}

// saturation judges the servers of the last whole quarter of an hour.
func (e *evaluation) saturation() {
	for i := range e.f.Servers {
		s := &e.f.Servers[i]
		subject := e.place(Subject{Cluster: s.Cluster, Model: s.Model, Class: s.Class, Name: s.Tier})
		if len(s.Deployments) == 1 {
			subject.Deployment = s.Deployments[0]
		}
		ask := Ask("serving", "cluster", s.Cluster, "model", s.Model, "tier", s.Tier, "from", s.Window.From.String(), "to", s.Window.To.String())
		judge := func(rule RuleID, value decimal.Decimal, what string) {
			e.judge(measure{
				rule: rule, workspace: s.Workspace, subject: subject, value: value, known: true, window: s.Window, question: ask,
				summary: fmt.Sprintf("model %s in cluster %s: %s", s.Model, s.Cluster, what),
			})
		}
		if s.KVCache >= 0 {
			judge(KVCache, share(s.KVCache, 1000), percent(share(s.KVCache, 1000))+" of the KV cache is in use")
		}
		if s.WaitP95 > 0 {
			judge(QueueWait, whole(s.WaitP95), fmt.Sprintf("p95 of the wait in the queue is %d ms", s.WaitP95/1000))
		}
		if s.FirstTokenP95 > 0 && s.Requests >= fewRequests {
			judge(FirstToken, whole(s.FirstTokenP95), fmt.Sprintf("p95 of the time to first token is %d ms", s.FirstTokenP95/1000))
		}
	}
}

func whole(n uint64) decimal.Decimal { return decimal.NewFromBigInt(new(big.Int).SetUint64(n), 0) }

// sightings judges deployments that run and are not declared, or are declared and not seen. What a shadow costs is what it holds.
func (e *evaluation) sightings() {
	for i := range e.f.Deployments {
		d := &e.f.Deployments[i]
		m := measure{
			rule: Unseen, workspace: d.Workspace, value: decimal.NewFromInt(1), known: d.Known, window: d.Window,
			subject:  e.place(Subject{Workspace: d.Workspace, Cluster: d.Cluster, Model: d.Model, Deployment: d.Deployment}),
			question: Ask("models", "cluster", d.Cluster, "at", d.Window.To.String(), "stale-after", duration(d.Window.Length())),
			summary:  fmt.Sprintf("deployment %s is declared in cluster %s, and nobody sees it", d.Deployment, d.Cluster),
		}
		if !d.LastSeen.IsZero() {
			m.summary += " since " + d.LastSeen.String()
		}
		if d.Shadow {
			var cost domain.Money
			e.perMonth(&cost, d.Cluster, d.GPUModel, d.GPUMs, d.Window)
			m.rule, m.perMonth = Shadow, priced(cost)
			m.summary = fmt.Sprintf("deployment %s runs in cluster %s and is not declared", d.Deployment, d.Cluster)
		}
		e.judge(m)
	}
}

// duration shows whole hours or minutes as flags take them.
func duration(d domain.Instant) string {
	if d%domain.Hour == 0 {
		return fmt.Sprintf("%dh", d/domain.Hour)
	}
	return fmt.Sprintf("%ds", d/domain.Second)
}
