package app

import (
	"cmp"
	"context"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"

	"github.com/shopspring/decimal"
)

// Waste is what was paid for in a month and was not useful. Its rows are parts of the month's effective cost that do not
// overlap, so their sum is at most what was paid.
type Waste struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Rows     []WasteRow      `json:"rows"`   // the largest first, by currency
	Totals   []WasteTotal    `json:"totals"` // by currency
	registry.Completeness
}

// WasteRow is one part.
type WasteRow struct {
	Component string         `json:"component"` // as "costs --by component" has it
	Workspace string         `json:"workspace"` // that is charged
	Cluster   string         `json:"cluster"`   // "": no machine
	Currency  string         `json:"currency"`
	Paid      domain.Decimal `json:"paid"` // effective cost of the component
	// Wasted is the part of Paid that was not useful. Of time with a holder it is what its activity did not use; time
	// without a measured activity counts as not measured, and not as wasted.
	Wasted     domain.Decimal  `json:"wasted"`
	Unmeasured domain.Decimal  `json:"unmeasured"` // part of Paid of which nobody knows
	Action     string          `json:"action"`     // what would end it
	Rules      []advice.RuleID `json:"rules"`      // that watch it
}

// WasteTotal sums up a currency.
type WasteTotal struct {
	Currency   string         `json:"currency"`
	Paid       domain.Decimal `json:"paid"` // all of the month's effective cost
	Wasted     domain.Decimal `json:"wasted"`
	Unmeasured domain.Decimal `json:"unmeasured"`
}

// ends says what would end the waste of a component.
var ends = map[string]struct {
	action string
	rules  []advice.RuleID
}{
	attribution.Allocated.String():        {"use it better: smaller GPUs, slices or more work (quartermaster fragmentation)", []advice.RuleID{advice.UtilizationDay, advice.TierMismatch, advice.Oversized}},
	attribution.Idle.String():             {"move work to it, let it sleep, or give it back", []advice.RuleID{advice.UtilizationDay, advice.IdleWindow}},
	attribution.Unprovisioned.String():    {"put it in service, or give it back", []advice.RuleID{advice.Evidence}},
	attribution.Failed.String():           {"replace the machines, and claim credits (quartermaster costs claims)", []advice.RuleID{advice.Failures}},
	attribution.Maintenance.String():      {"shorten the windows, and claim credits (quartermaster costs claims)", nil},
	attribution.UnusedCommitment.String(): {"move work under it, or let it lapse", []advice.RuleID{advice.UnusedCommitment, advice.NoticeDue}},
	attribution.Unseen.String():           {"register the machines that were bought, or stop paying (quartermaster fleet)", []advice.RuleID{advice.Evidence}},
}

// unknown are the components of which nobody knows whether they were useful.
var unknown = map[string]bool{
	attribution.BusyUnattributed.String(): true, attribution.Unobserved.String(): true, attribution.Unmatched.String(): true,
}

// Waste returns what was paid for in a month and was not useful.
func (c *Caller) Waste(ctx context.Context, at At, month domain.Interval) (ans *Waste, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		r, err := c.costs(ctx, v, costs.Query{Month: month, By: []costs.Dimension{costs.ByComponent, costs.ByWorkspace, costs.ByCluster}})
		if err != nil {
			return err
		}
		ans = &Waste{Position: r.Position, Month: month, Rows: []WasteRow{}, Totals: []WasteTotal{}, Completeness: r.Completeness}
		for i := range r.Groups {
			g := &r.Groups[i]
			x := WasteRow{
				Component: g.Key[costs.ByComponent], Workspace: g.Key[costs.ByWorkspace], Cluster: g.Key[costs.ByCluster],
				Currency: g.Currency, Paid: g.Effective.Decimal(), Rules: []advice.RuleID{},
			}
			paid := x.Paid
			end, wasted := ends[x.Component]
			switch {
			case !paid.IsPositive():
				continue
			case unknown[x.Component]:
				x.Unmeasured, x.Action, x.Rules = paid, "find out who holds it (quartermaster fleet)", []advice.RuleID{advice.Evidence}
			case !wasted:
				continue
			case x.Component == attribution.Allocated.String():
				if g.Allocated <= 0 {
					continue
				}
				// paid × measured ÷ allocated is what is known about, and × useful ÷ allocated what was useful.
				known := paid.Mul(decimal.NewFromInt(g.Measured)).DivRound(decimal.NewFromInt(g.Allocated), 18)
				var useful decimal.Decimal
				if g.Useful != nil {
					useful = paid.Mul(decimal.NewFromInt(*g.Useful)).DivRound(decimal.NewFromInt(g.Allocated), 18)
				}
				x.Wasted, x.Unmeasured = known.Sub(useful), paid.Sub(known)
			default:
				x.Wasted = paid
			}
			if wasted {
				x.Action = end.action
				x.Rules = append(x.Rules, end.rules...)
			}
			ans.Rows = append(ans.Rows, x)
		}
		slices.SortStableFunc(ans.Rows, func(a, b WasteRow) int {
			return cmp.Or(cmp.Compare(a.Currency, b.Currency), b.Wasted.Cmp(a.Wasted), b.Unmeasured.Cmp(a.Unmeasured))
		})
		for _, t := range r.Totals {
			sum := WasteTotal{Currency: t.Currency, Paid: t.Effective.Decimal()}
			for i := range ans.Rows {
				if ans.Rows[i].Currency == t.Currency {
					sum.Wasted, sum.Unmeasured = sum.Wasted.Add(ans.Rows[i].Wasted), sum.Unmeasured.Add(ans.Rows[i].Unmeasured)
				}
			}
			ans.Totals = append(ans.Totals, sum)
		}
		return nil
	})
	return ans, err
}
