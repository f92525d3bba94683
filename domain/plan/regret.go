package plan

import (
	"context"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// Regret is what a purchase is worth in each scenario of a forecast, beside the other purchases of the
// plan: what the plan costs more without it. Where that is negative, the purchase is regretted.
type Regret struct {
	// Saves is by scenario, in the order of the plan's scenario costs, and Mean their mean.
	Saves []domain.Decimal `json:"saves_by_scenario"`
	Mean  domain.Decimal   `json:"saves_in_the_mean"`
	// Scenarios is the number of those in which it is regretted, and Most what it loses in the worst of
	// them; 0 if there is none.
	Scenarios int            `json:"regretted_in_scenarios"`
	Most      domain.Decimal `json:"most_regret"`
}

// regretOf sums up what a purchase saves.
func regretOf(saves []domain.Decimal) *Regret {
	r := &Regret{Saves: saves}
	for _, s := range saves {
		r.Mean = r.Mean.Add(s)
		if s.IsNegative() {
			r.Scenarios++
		}
	}
	r.Mean = r.Mean.DivRound(decimal.NewFromInt(int64(len(saves))), 9)
	r.Most = decimal.Max(decimal.Zero, slices.MinFunc(saves, domain.Decimal.Cmp).Neg())
	return r
}

// regrets leaves out each purchase of an answer alone.
func (c *composer) regrets(ctx context.Context, in *instance.Instance, a *instance.Answer) (map[instance.Order]*Regret, error) {
	if c.a.Demand != Forecast {
		return nil, nil
	}
	orders := a.Orders()
	out := map[instance.Order]*Regret{}
	for i, o := range orders {
		without, err := a.Under(ctx, in, slices.Delete(slices.Clone(orders), i, i+1))
		if err != nil {
			return nil, err
		}
		saves := make([]domain.Decimal, len(without))
		for s := range without {
			saves[s] = without[s].Cost.Sub(a.Scenarios[s].Cost)
		}
		out[o] = regretOf(saves)
	}
	return out, nil
}
