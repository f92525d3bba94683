package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	instances "quartermaster/domain/instance"
)

// percentOf shows a share in percent. Tiny positive shares do not show as 0.
func percentOf(share domain.Decimal) string {
	p := share.Shift(2)
	if p.IsPositive() && p.Round(6).IsZero() {
		return "below 0.000001 %"
	}
	return p.Round(6).String() + " %"
}

// mostRows bounds the rows of a table. JSON has all.
const mostRows = 40

// showAnswer prints the answer of an instance.
func (a *Program) showAnswer(in *instances.Instance, ans *instances.Answer, asked app.SolveOptions) {
	spans := in.Spans()
	fmt.Fprintf(a.out, "%s: %s to %s, %d pools, %d demands, in %s at net present value\n\n",
		domain.Clip(in.Name, 3*widest), day(spans[0].From), day(spans[len(spans)-1].To), len(in.Pools), len(in.Demands), ans.Currency)
	t := a.table("", "amount")
	t.SetColumnConfigs(rightFrom(2, 2))
	for _, row := range []struct {
		name, amount string
	}{
		{"held already", money(ans.Committed)}, {"purchases", money(ans.Bought)}, {"on demand, spot, transfer", money(ans.Serving)},
		{"not served", money(ans.Penalty)}, {"cost", money(ans.Cost)}, {"lower bound", money(ans.LowerBound)}, {"paid within the horizon", money(ans.Nominal)},
		{"CVaR 90", money(ans.CVaR)}, {"stranded at low demand", money(ans.Stranded)},
	} {
		t.AppendRow(table.Row{row.name, row.amount})
	}
	t.Render()
	fmt.Fprintf(a.out, "gap %s\n", percentOf(ans.Gap))
	if ans.Interrupted {
		fmt.Fprintln(a.out, "interrupted: the search was stopped; a longer search may find a better answer")
	}

	if len(ans.Purchases) == 0 {
		fmt.Fprintln(a.out, "\nnothing is worth buying")
	} else {
		fmt.Fprintln(a.out)
		t := a.table("buy", "pool", "units", "from", "to", "order by", "upfront", "hourly", "cost", "worth each")
		t.SetColumnConfigs(append(rightFrom(3, 3), rightFrom(7, 10)...))
		for i, p := range ans.Purchases {
			if i == mostRows {
				fmt.Fprintf(a.out, "the first %d of %d purchases; -o json has all\n", mostRows, len(ans.Purchases))
				break
			}
			name := p.Offer
			if p.Commitment != "" {
				name = fmt.Sprintf("%s renewed, %d×", p.Commitment, p.Renewals)
			}
			t.AppendRow(table.Row{named(name), named(p.Pool), count(p.Units), day(p.Term.From), day(p.Term.To), day(p.OrderBy), moneyCell(p.Upfront), moneyCell(p.Hourly), moneyCell(p.Cost), moneyCell(p.Worth)})
		}
		t.Render()
		for i, p := range ans.Purchases {
			if i == 10 {
				break
			}
			fmt.Fprintf(a.out, "%s: %s\n", clipped(p.Offer+p.Commitment), p.Reason)
		}
	}
	a.showBaselines(ans)
	if asked.SecondBest {
		a.showAlternatives("answer", ans.Alternatives, ans.Cost)
	}
	a.showCapped(ans.Capped, asked.MaxShare, ans.Cost)
	a.showServed(ans)
	if len(ans.Calendar) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("month", "paid", "charged")
		t.SetColumnConfigs(rightFrom(2, 3))
		for i, m := range ans.Calendar {
			if i == mostRows {
				break
			}
			t.AppendRow(table.Row{m.Month, moneyCell(m.Cash), moneyCell(m.Accrual)})
		}
		t.Render()
	}
	for _, b := range ans.Binding {
		fmt.Fprintf(a.out, "binding constraint: %s: %s: worth %s\n", b.Constraint, b.Detail, money(b.Price))
	}
	for _, e := range ans.EndOfHorizon {
		much := "nothing"
		if !e.Salvage.IsZero() {
			much = "all"
		}
		line := fmt.Sprintf("with %s of the cost beyond the horizon credited: these purchases cost %s", much, money(e.Cost))
		if e.Best != nil {
			line += ", the best found " + money(*e.Best)
		}
		fmt.Fprintln(a.out, line)
	}
	for _, n := range slices.Concat(ans.Notes, ans.Unsolved) {
		fmt.Fprintln(a.out, "note: "+n)
	}
}

// showBaselines compares an answer with its baselines.
func (a *Program) showBaselines(ans *instances.Answer) {
	if len(ans.Baselines) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\nCompared with the baselines:")
	t := a.table("baseline", "cost", "incl. penalty", "unit-hours not served", "more than the plan", "")
	t.SetColumnConfigs(rightFrom(2, 5))
	t.AppendRow(table.Row{"this plan", moneyCell(ans.Cost), moneyCell(ans.Penalty), "", "", ""})
	horizon, buys, broken := false, false, false
	for _, b := range ans.Baselines {
		more, breaks := money(b.Cost.Sub(ans.Cost)), ""
		if n := len(b.Broken); n > 0 {
			more, breaks, broken = "", "violates "+clipped(b.Broken[0].Bound), true
			if over := b.Broken[0].Over; over != nil {
				breaks += fmt.Sprintf(", %s over", money(*over))
			}
			if n > 1 {
				breaks += fmt.Sprintf(", and %d more", n-1)
			}
		}
		for _, p := range b.Pools {
			horizon, buys = horizon || p.Horizon, buys || !b.Nominal.Equal(ans.Baselines[0].Nominal)
		}
		unserved := b.Unserved
		if n, err := decimal.NewFromString(unserved); err == nil { // written by this program
			unserved = wholeHours(n)
		}
		t.AppendRow(table.Row{baselineName(b.Name), moneyCell(b.Cost), moneyCell(b.Penalty), unserved, more, breaks})
	}
	t.Render()
	if broken {
		fmt.Fprintln(a.out, "a baseline that violates a constraint is not comparable: the plan keeps all constraints, which the baselines ignore")
	}
	switch {
	case !buys:
		fmt.Fprintln(a.out, "the look-back baselines buy nothing: no reservation or capacity block on offer would have saved money")
	case horizon:
		fmt.Fprintln(a.out, "the look-back baselines use the first days of the horizon, because past_hourly is missing for some demand")
	}
}

// showServed prints how each pool is served, as expected values over the scenarios.
func (a *Program) showServed(ans *instances.Answer) {
	weight := map[string]domain.Decimal{}
	total := domain.Decimal{}
	for _, s := range ans.Scenarios {
		weight[s.Scenario] = decimal.NewFromInt(int64(s.Weight))
		total = total.Add(decimal.NewFromInt(int64(s.Weight)))
	}
	type row struct{ demand, spare, committed, spot, onDemand, in, out, short, unused domain.Decimal }
	var spares, ways bool
	rows, order := map[string]*row{}, []string{}
	for _, r := range ans.Recourse {
		for _, p := range r.Pools {
			x := rows[p.Pool]
			if x == nil {
				x = &row{}
				rows[p.Pool], order = x, append(order, p.Pool)
			}
			for _, c := range []struct {
				to   *domain.Decimal
				text string
			}{
				{&x.demand, p.Demand}, {&x.spare, p.Spare}, {&x.committed, p.Guaranteed}, {&x.committed, p.DiscountOnly}, {&x.spot, p.Spot}, {&x.onDemand, p.OnDemand},
				{&x.in, p.OverflowIn}, {&x.out, p.OverflowOut}, {&x.short, p.Shortage}, {&x.unused, p.UnusedCommitted},
			} {
				if n, err := decimal.NewFromString(c.text); err == nil { // overflow and spares may be absent
					*c.to = c.to.Add(n.Mul(weight[r.Scenario]))
				}
			}
			spares, ways = spares || x.spare.IsPositive(), ways || x.in.IsPositive()
		}
	}
	fmt.Fprintln(a.out)
	head := []any{"pool, unit-hours expected", "demand"}
	if spares {
		head = append(head, "spares")
	}
	head = append(head, "committed", "spot", "on demand")
	if ways {
		head = append(head, "incl. for others", "served elsewhere")
	}
	head = append(head, "not served", "unused")
	t := a.table(head...)
	t.SetColumnConfigs(rightFrom(2, len(head)))
	for i, name := range order {
		if i == mostRows {
			fmt.Fprintf(a.out, "the first %d of %d pools; -o json has all\n", mostRows, len(order))
			break
		}
		x := rows[name]
		amounts := []domain.Decimal{x.demand}
		if spares {
			amounts = append(amounts, x.spare)
		}
		amounts = append(amounts, x.committed, x.spot, x.onDemand)
		if ways {
			amounts = append(amounts, x.in, x.out)
		}
		cells := table.Row{named(name)}
		for _, d := range append(amounts, x.short, x.unused) {
			cells = append(cells, wholeHours(d.DivRound(total, 2)))
		}
		t.AppendRow(cells)
	}
	t.Render()
}

// wholeHours shows unit-hours rounded to whole numbers.
func wholeHours(d domain.Decimal) string { return strings.TrimSuffix(money(d.Round(0)), ".00") }
