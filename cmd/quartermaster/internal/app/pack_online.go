package app

import (
	"cmp"
	"context"
	"math/rand"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/packing"
	"quartermaster/domain/packing/online"

	"github.com/shopspring/decimal"
)

// Arrivals is the result of a policy for pods that arrive one by one.
type Arrivals struct {
	Policy     online.Policy   `json:"policy"`
	Arrive     decimal.Decimal `json:"arrive"`
	Seed       int64           `json:"seed"`
	Seeds      int             `json:"seeds"`
	Nodes      int             `json:"nodes"`
	GPUs       int64           `json:"gpus"`
	Pods       int             `json:"pods"`
	Allocation online.Series   `json:"gpu_allocation_percent"` // by arrived load in percent of the GPUs; mean of the runs
	Runs       []ArrivalRun    `json:"runs"`
}

// ArrivalRun is one order of arrivals.
type ArrivalRun struct {
	Seed         int64         `json:"seed"`
	Arrived      int           `json:"arrived"`
	Placed       int           `json:"placed"`
	ArrivedMilli int64         `json:"gpu_milli_arrived"`
	PlacedMilli  int64         `json:"gpu_milli_placed"`
	Allocation   online.Series `json:"gpu_allocation_percent"`
}

const (
	mostArrive = 10
	mostSeeds  = 1000
)

// ArrivalsQuery asks how policies place pods that arrive one by one.
type ArrivalsQuery struct {
	PackQuery
	Policies []online.Policy
	Arrive   domain.Decimal // total GPUs requested, as a multiple of the nodes' GPUs
	Seed     int64          // seed of the order of arrivals
	Seeds    int            // number of runs, with consecutive seeds from Seed
}

// PackArrivals replays arrivals of pods on nodes, with one or several policies.
func (c *Caller) PackArrivals(ctx context.Context, q ArrivalsQuery) ([]*Arrivals, error) {
	perMille := q.Arrive.Shift(3)
	if !perMille.IsInteger() || !perMille.IsPositive() || perMille.GreaterThan(decimal.NewFromInt(mostArrive*1000)) {
		return nil, invalid("arrive", "%s is not a number above 0 and up to %d with three decimals, such as 1.3", q.Arrive, mostArrive)
	}
	if q.Seeds < 1 || q.Seeds > mostSeeds {
		return nil, invalid("seeds", "%d: want 1 to %d", q.Seeds, mostSeeds)
	}
	nodes, pods, err := readPackFiles(ctx, q.PackQuery)
	if err != nil {
		return nil, err
	}
	mix, err := online.MixOf(pods, online.Popular)
	if err != nil {
		return nil, err
	}
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(x, y packing.Workload) int { return cmp.Compare(x.ID, y.ID) })
	gpus := int64(0)
	for i := range nodes {
		gpus += int64(nodes[i].GPUs)
	}
	var answers []*Arrivals
	for _, policy := range q.Policies {
		ans := &Arrivals{Policy: policy, Arrive: q.Arrive, Seed: q.Seed, Seeds: q.Seeds, Nodes: len(nodes), GPUs: gpus, Pods: len(pods)}
		var of []online.Series
		for seed := q.Seed; seed < q.Seed+int64(q.Seeds); seed++ {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			draws := rand.New(rand.NewSource(seed))
			arrivals, err := online.Arrivals(pods, gpus*1000, perMille.IntPart(), draws)
			if err != nil {
				return nil, err
			}
			r, err := online.Replay(nodes, arrivals, mix, ans.Policy, draws)
			if err != nil {
				return nil, &InvalidError{Field: "online", Err: err}
			}
			of = append(of, r.Allocation)
			ans.Runs = append(ans.Runs, ArrivalRun{seed, r.Arrived, r.Placed, r.ArrivedMilli, r.PlacedMilli, r.Allocation})
		}
		ans.Allocation = online.Mean(of)
		answers = append(answers, ans)
	}
	return answers, nil
}
