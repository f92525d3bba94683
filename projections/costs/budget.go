package costs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/forecast"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// BudgetReport compares budgets with what was spent, at the end of a month.
type BudgetReport struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Budgets  []BudgetUse     `json:"budgets"` // by workspace and budget
	registry.Completeness
}

// BudgetUse is a budget, and what its workspace was charged in the whole months of its period until the end of the month,
// with what was posted into them about earlier closed months. A budget of basis cash counts billed cost, one of basis
// accrual effective cost.
type BudgetUse struct {
	Workspace string             `json:"workspace"`
	Budget    string             `json:"budget"`
	Period    domain.Interval    `json:"budget_period"`
	Basis     domain.BudgetBasis `json:"basis"`
	Hard      bool               `json:"hard"`
	Currency  string             `json:"currency"`
	Amount    attribution.Amount `json:"amount"`
	Actual    attribution.Amount `json:"actual"`
	Posted    attribution.Amount `json:"posted"`    // the part of Actual that is posted about earlier closed months
	Remaining attribution.Amount `json:"remaining"` // Amount less Actual
	// Translated: Actual has other currencies too, translated to that of the budget, which is that of the books.
	Translated bool `json:"translated"`
	// NotCounted is what was charged or posted in other currencies and is not in Actual.
	NotCounted []CurrencyAmount `json:"other_currencies"`
	// LeftOut are the months until the end of the month that are not whole in the period.
	LeftOut []domain.Interval `json:"months_left_out"`
	// Problem says why nothing was counted; empty if something was.
	Problem string `json:"problem,omitempty"`
	// Committed is the hourly cost of commitments for the rest of the period, in the shares of the workspace.
	Committed attribution.Amount `json:"committed"`
	// Forecast is Actual with what the rest of the period is expected to cost, Low and High the same with the sums of
	// hourly quantiles of 5% and 95%: wider than an interval of the sum. Null, with a reason, if there is too little history.
	Forecast *attribution.Amount `json:"forecast"`
	Low      *attribution.Amount `json:"forecast_low"`
	High     *attribution.Amount `json:"forecast_high"`
	Absent   string              `json:"forecast_absent,omitempty"`
	// Variance explains Actual less the cost of as many months before.
	Before   attribution.Amount `json:"before"`
	Variance Variance           `json:"variance"`
	// Uncompared says why Before and Variance are zero: the months before cannot be translated.
	Uncompared string `json:"uncompared,omitempty"`
}

// CurrencyAmount is an exact amount of a currency.
type CurrencyAmount struct {
	Currency string             `json:"currency"`
	Amount   attribution.Amount `json:"amount"`
}

// ReadBudgets returns the budgets whose period overlaps a month.
func ReadBudgets(view projections.View, month domain.Interval) ([]BudgetUse, error) {
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	all := []BudgetUse{}
	err = view.Scan(projections.Query{Table: projections.TableBudgets}, func(k projections.Key, row projections.Row) error {
		v := a.Latest(k, row.(*projections.History))
		if v == nil {
			return nil
		}
		b := v.Event.(*domain.BudgetSet)
		amount, err := attribution.AmountOf(b.Amount.Amount)
		if err != nil || b.Period.Intersect(month).Empty() {
			return err
		}
		all = append(all, BudgetUse{
			Workspace: strings.Clone(k.Scope), Budget: b.Budget, Period: b.Period, Basis: b.Basis, Hard: b.Hard,
			Currency: b.Amount.Currency, Amount: amount, Remaining: amount, NotCounted: []CurrencyAmount{}, LeftOut: []domain.Interval{},
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read budgets: %w", err)
	}
	slices.SortFunc(all, func(x, y BudgetUse) int {
		return cmp.Or(strings.Compare(x.Workspace, y.Workspace), strings.Compare(x.Budget, y.Budget))
	})
	return all, nil
}

// Months returns the whole months of the period until the end of a month, and notes those that are not whole.
func (b *BudgetUse) Months(month domain.Interval) (months []domain.Interval) {
	for m := projections.BillingMonth(b.Period.From); m.From <= month.From; m = projections.BillingMonth(m.To) {
		if m.Intersect(b.Period) == m {
			months = append(months, m)
		} else {
			b.LeftOut = append(b.LeftOut, m)
		}
	}
	return months
}

func (b *BudgetUse) of(billed, effective attribution.Amount) attribution.Amount {
	if b.Basis == domain.BudgetCash {
		return billed
	}
	return effective
}

// Spent sets what was spent, from the costs of the budget's months by GPU model and provider, compared with those before,
// and what was posted into the months and into those before.
func (b *BudgetUse) Spent(r *MonthsReport, posted, before []Posting) {
	var kinds [][2]Held
	other := map[string]attribution.Amount{}
	for i := range r.Groups {
		g := &r.Groups[i]
		then, now := b.of(g.Before.Billed, g.Before.Effective), b.of(g.Billed, g.Effective)
		if g.Currency != b.Currency {
			other[g.Currency] = other[g.Currency].Add(now)
			continue
		}
		b.Actual, b.Before = b.Actual.Add(now), b.Before.Add(then)
		kinds = append(kinds, [2]Held{{then, g.Before.Bought, g.Before.Allocated}, {now, g.Bought, g.Allocated}})
	}
	late := [2]attribution.Amount{}
	for i, all := range [][]Posting{before, posted} {
		for j := range all {
			p := &all[j]
			switch amount := b.of(p.Billed, p.Effective); {
			case p.Workspace != b.Workspace:
			case p.Currency == b.Currency:
				late[i] = late[i].Add(amount)
			case i == 1:
				other[p.Currency] = other[p.Currency].Add(amount)
			}
		}
	}
	b.Before, b.Actual, b.Posted = b.Before.Add(late[0]), b.Actual.Add(late[1]), late[1]
	b.Remaining = b.Amount.Sub(b.Actual)
	if b.Uncompared == "" {
		b.Variance = VarianceOf(append(kinds, [2]Held{{Cost: late[0]}, {Cost: late[1]}}))
	}
	for _, currency := range slices.Sorted(maps.Keys(other)) {
		if !other[currency].IsZero() {
			b.NotCounted = append(b.NotCounted, CurrencyAmount{currency, other[currency]})
		}
	}
}

// Commit sets what the workspace's commitments cost from the end of a month to the end of the period.
func (b *BudgetUse) Commit(view projections.View, month domain.Interval) error {
	rest := domain.Interval{From: month.To, To: b.Period.To}
	if rest.Empty() {
		return nil
	}
	contracts, err := declaredCommitments(view, domain.Interval{From: month.From, To: b.Period.To})
	if err != nil {
		return err
	}
	sum := decimal.Zero
	for _, c := range contracts {
		p := c.purchase
		if p == nil || p.Hourly.Currency != b.Currency {
			continue
		}
		share := decimal.Zero
		for _, o := range p.Owners {
			if o.Workspace == b.Workspace {
				share = o.Share
			}
		}
		for _, t := range c.times {
			if in := t.Intersect(rest); !in.Empty() {
				hours := decimal.NewFromInt(int64(in.Length())).DivRound(decimal.NewFromInt(int64(domain.Hour)), 18)
				sum = sum.Add(p.Hourly.Amount.Mul(decimal.NewFromInt(int64(p.Units))).Mul(hours).Mul(share))
			}
		}
	}
	b.Committed, err = attribution.AmountOf(sum.Round(18))
	return err
}

// Expect sets the forecast, from the costs by hour of the months until the end of a month. Cost that is not spread over
// hours goes on at its mean.
func (b *BudgetUse) Expect(r *MonthsReport, month domain.Interval) error {
	rest := int((b.Period.To - month.To + domain.Hour - 1) / domain.Hour)
	switch {
	case rest <= 0:
		actual := b.Actual
		b.Forecast, b.Low, b.High = &actual, &actual, &actual
		return nil
	case b.Workspace == attribution.PlatformPrepaid:
		b.Absent = "what is paid in advance does not follow from what was paid before"
		return nil
	}
	from := r.Months[0].Month.From
	q := forecast.Question{From: from, History: make([]int64, (month.To-from)/domain.Hour), Weeks: (rest + forecast.Week - 1) / forecast.Week, Levels: []int{50, 950}}
	flat := attribution.Amount{}
	for i := range r.Groups {
		g := &r.Groups[i]
		if g.Currency != b.Currency {
			continue
		}
		cost, hour := b.of(g.Billed, g.Effective), g.Key[ByHour]
		at, err := domain.ParseInstant(hour)
		if hour == "" || err != nil || at < from || at >= month.To {
			flat = flat.Add(cost)
			continue
		}
		q.History[(at-from)/domain.Hour] += max(0, cost.Decimal().Shift(3).Round(0).IntPart())
	}
	f, err := forecast.Make(&q)
	if err != nil {
		b.Absent = err.Error()
		return nil //nolint:nilerr // the report says why there is no forecast
	}
	mean := flat.Decimal().Mul(decimal.NewFromInt(int64(rest))).DivRound(decimal.NewFromInt(int64(len(q.History))), 18)
	sum := func(hours []int64) (*attribution.Amount, error) {
		total := decimal.Zero
		for _, milli := range hours[:rest] {
			total = total.Add(decimal.New(milli, -3))
		}
		a, err := attribution.AmountOf(total.Add(mean))
		a = a.Add(b.Actual)
		return &a, err
	}
	for _, to := range []struct {
		of    **attribution.Amount
		hours []int64
	}{{&b.Forecast, f.Point}, {&b.Low, f.At(50)}, {&b.High, f.At(950)}} {
		if *to.of, err = sum(to.hours); err != nil {
			return err
		}
	}
	return nil
}
