package advice

import (
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections/costs"
	"quartermaster/projections/planning"

	"github.com/shopspring/decimal"
)

// commitments reads the commitments that are held, and what was used of them. It also reads commitments that bills name and
// nobody declared.
func (r *reader) commitments(months []domain.Interval) error {
	held, err := planning.CommitmentsHeld(r.view, r.authority, r.at)
	if err != nil {
		return err
	}
	use, err := r.commitmentUse(months)
	if err != nil {
		return err
	}
	for i := range held {
		e := &held[i]
		c := advice.Commitment{Workspace: e.Workspace, Commitment: e.Commitment, Ends: e.End(), NoticeBy: e.Terms[len(e.Terms)-1].NoticeBy}
		if t := e.At(r.at); t != nil {
			c.Monthly = monthly(e, t)
			if c.NoticeBy == 0 {
				c.NoticeBy = t.NoticeBy
			}
		}
		if u := use[e.Commitment]; u != nil {
			c.Window, c.Used, c.Unused = u.Window, u.Used, u.Unused
			delete(use, e.Commitment)
		}
		r.f.Commitments = append(r.f.Commitments, c)
	}
	for _, id := range slices.Sorted(maps.Keys(use)) {
		r.f.Commitments = append(r.f.Commitments, *use[id])
	}
	slices.SortFunc(r.f.Commitments, func(a, b advice.Commitment) int {
		return compareAll(a.Commitment, b.Commitment, a.Workspace, b.Workspace)
	})
	return nil
}

// monthly returns what a term costs a month: its hourly price for all units, and its part of what was paid upfront; of a
// spend commitment, what it commits.
func monthly(e *planning.CommitmentEntry, t *planning.CommitmentTerm) domain.Money {
	month := domain.Money{Currency: t.Hourly.Currency}
	if e.SpendPerHour.Valid {
		month.Amount = e.SpendPerHour.Decimal.Mul(decimal.NewFromInt(domain.MonthHours))
		return month
	}
	month.Amount = t.Hourly.Amount.Mul(decimal.NewFromInt(int64(t.Units))).Mul(decimal.NewFromInt(domain.MonthHours))
	if t.Upfront.Amount.IsPositive() && t.Upfront.Currency == month.Currency {
		month.Amount = month.Amount.Add(t.Upfront.Amount.Mul(decimal.NewFromInt(domain.MonthHours*int64(domain.Hour))).
			DivRound(decimal.NewFromInt(int64(t.Term.Length())), 18))
	}
	return month
}

// commitmentUse returns what was used and not used of commitments, as "costs commitments" shows it: in the last of the
// months that has at least seven days. Of several currencies the one with the most cost counts.
func (r *reader) commitmentUse(months []domain.Interval) (map[string]*advice.Commitment, error) {
	use := map[string]*advice.Commitment{}
	for _, m := range slices.Backward(months) {
		window := m.Intersect(domain.Interval{To: r.end})
		if window.Length() < 7*domain.Day {
			continue
		}
		report, err := r.as.Costs(costs.Query{Month: m, By: []costs.Dimension{costs.ByCluster, costs.ByGPUModel}})
		if err != nil {
			return nil, err
		}
		for i := range report.Commitments { // of one id and currency there may be several issuers
			u := &report.Commitments[i]
			all := u.Used.Add(u.Unused).Decimal()
			if have := use[u.Commitment]; !all.IsPositive() || have != nil && have.Used.Amount.Add(have.Unused.Amount).GreaterThanOrEqual(all) {
				continue
			}
			use[u.Commitment] = &advice.Commitment{
				Commitment: u.Commitment, Window: window,
				Used:   domain.Money{Amount: u.Used.Decimal(), Currency: u.Currency},
				Unused: domain.Money{Amount: u.Unused.Decimal(), Currency: u.Currency},
			}
		}
		break
	}
	return use, nil
}
