package app

import (
	"context"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/packing/online"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"

	"github.com/shopspring/decimal"
)

// Fragmentation is the stranded capacity and what would free it.
type Fragmentation struct {
	Position string         `json:"position"`
	At       domain.Instant `json:"at"`
	From     domain.Instant `json:"from"`
	Region   string         `json:"region,omitempty"`
	Nodes    int            `json:"nodes"`
	// Machines that did not report, which the answer does not cover.
	UnseenNodes int           `json:"unseen_nodes"`
	UnseenGPUs  int           `json:"unseen_gpus"`
	Replicas    int           `json:"replicas"`
	FixedGPUs   int           `json:"fixed_gpus"`
	Workloads   int           `json:"workloads"` // number of declared workloads that the answer is based on
	Models      []online.Idle `json:"models"`
	Moves       []online.Move `json:"moves"`
	Fits        []online.Fit  `json:"rightsizing"`
	Unpriced    string        `json:"unpriced,omitempty"` // why savings have no price
}

const mostMoves = 1000

// FragmentationQuery asks for stranded capacity.
type FragmentationQuery struct {
	At     domain.Instant // 0: now
	Days   int            // how many days back observations count, 1 to 366
	Region string         // "": all
	Moves  int            // maximum number of moves to name, 0 to 1000
	// HeadroomPermille is the spare capacity that a slice must have beyond the peak of memory and
	// the mean activity, 0 to 10000.
	HeadroomPermille int64
}

// Fragmentation returns which free GPUs are stranded by shape, which moves would free them, and
// for which deployments a slice is enough.
func (c *Caller) Fragmentation(ctx context.Context, at At, q FragmentationQuery) (ans *Fragmentation, err error) {
	switch {
	case q.Days < 1 || q.Days > 366:
		return nil, invalid("days", "%d days: want 1 to 366", q.Days)
	case q.Moves < 0 || q.Moves > mostMoves:
		return nil, invalid("moves", "%d moves: want 0 to %d", q.Moves, mostMoves)
	case q.HeadroomPermille < 0 || q.HeadroomPermille > 10_000:
		return nil, invalid("headroom", "a headroom of %d: want 0 to 10000 per mille", q.HeadroomPermille)
	}
	err = c.readFrom(ctx, at, q.At, func(v projections.View, about domain.Instant) error {
		if err := (narrowed{region: q.Region}).known(v); err != nil {
			return err
		}
		from := about - domain.Instant(q.Days)*domain.Day
		if from <= 0 {
			return invalid("at", "%s is less than %d days after 1970", about, q.Days)
		}
		ans, err = c.fragmentation(ctx, v, from, about, q)
		return err
	})
	return ans, err
}

// fragmentation computes the answer from rows.
func (c *Caller) fragmentation(ctx context.Context, v projections.View, from, at domain.Instant, q FragmentationQuery) (*Fragmentation, error) {
	auth, err := registry.NewAuthority(v)
	if err != nil {
		return nil, err
	}
	s, err := planning.PlacementsAt(v, auth, from, at, q.Region)
	if err != nil {
		return nil, err
	}
	mix, err := online.MixOf(s.Declared, 100)
	if err != nil {
		return nil, err
	}
	f, err := online.Restore(s.Nodes, mix, online.BestFit, s.Assignments)
	if err != nil {
		return nil, err
	}
	ans := &Fragmentation{
		Position: v.Position().String(), At: at, From: from, Region: q.Region,
		Nodes: len(s.Nodes), UnseenNodes: s.Unseen, UnseenGPUs: s.UnseenGPUs,
		Replicas: len(s.Assignments), FixedGPUs: s.Fixed, Workloads: len(s.Declared), Models: f.Stranded(),
	}
	if ans.Moves, err = online.Moves(s.Nodes, mix, s.Assignments, q.Moves); err != nil {
		return nil, err
	}
	prices := map[string]online.Price{}
	ans.Fits = online.Rightsize(s.Held, q.HeadroomPermille, prices)
	if slices.ContainsFunc(ans.Fits, func(f online.Fit) bool { return f.Profile != "" }) {
		month := projections.BillingMonth(at - domain.Hour)
		if prices, ans.Unpriced, err = c.effectivePrices(ctx, v, month); err != nil {
			return nil, err
		}
		ans.Fits = online.Rightsize(s.Held, q.HeadroomPermille, prices)
	}
	return ans, nil
}

// effectivePrices returns the cost of a GPU-hour by cluster, or why it is unknown. A cluster
// billed in two currencies has no single price.
func (c *Caller) effectivePrices(ctx context.Context, v projections.View, month domain.Interval) (prices map[string]online.Price, why string, err error) {
	r, err := c.costs(ctx, v, costs.Query{Month: month, By: []costs.Dimension{costs.ByCluster}})
	if err != nil {
		return nil, "", err
	}
	prices, twice := map[string]online.Price{}, map[string]bool{}
	for i := range r.Groups {
		g := &r.Groups[i]
		cluster := g.Key[costs.ByCluster]
		if cluster == "" || g.Bought <= 0 {
			continue
		}
		if _, ok := prices[cluster]; ok {
			twice[cluster] = true
		}
		hours := decimal.NewFromInt(g.Bought)
		prices[cluster] = online.Price{Currency: g.Currency, PerHour: g.Effective.Decimal().Mul(decimal.NewFromInt(3_600_000)).DivRound(hours, 10)}
	}
	for cluster := range twice {
		delete(prices, cluster)
	}
	if len(prices) == 0 {
		why = fmt.Sprintf("no cluster has a cost per GPU-hour in one currency in the month from %s", day(month.From))
	}
	return prices, why, nil
}
