package cli

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	instances "quartermaster/domain/instance"
	"quartermaster/domain/plan"
)

// showPlan shows a plan with the first few purchases of each region; 0 is all.
func (a *Program) showPlan(p *plan.Plan, few int) {
	if a.output == asCSV {
		few = 0
	}
	a.showSummary(p.Summary())
	as := p.Assumptions
	demand := fmt.Sprintf("the last %d weeks of demand repeat and grow by %s a month", as.Weeks, percent(as.MonthlyGrowth))
	if as.Demand == plan.Forecast {
		demand = fmt.Sprintf("demand is forecast in %d equally likely scenarios (seed %d) and beyond %d weeks grows by %s a month", as.Scenarios, as.Seed, forecast.MaxHorizon, percent(as.MonthlyGrowth))
		if as.Life > 0 {
			demand += fmt.Sprintf("; a successor replaces a machine type after %d months on average", as.Life)
		}
	}
	credited := "is credited"
	if as.SalvageFrom != "" {
		credited = "is credited, as much as it is used there in the forecast"
	}
	fmt.Fprintf(a.out, "assumptions: %s; discount rate %s a year; %s of a purchase's cost beyond the horizon %s; %s of spot time is lost; an unserved hour costs %s times on-demand. Amounts are net present values in %s\n",
		demand, percent(as.AnnualRate), percent(as.Salvage), credited, percent(as.SpotOverhead), as.ShortageFactor, as.Currency)
	columns := planColumns()
	if as.Demand == plan.Forecast {
		columns = append(columns, "unit-hours 10%", "median", "90%", "least cost", "most", "CVaR 90")
	}
	t := a.table(columns...)
	t.SetColumnConfigs(rightFrom(3, len(columns)))
	for i := range p.Regions {
		r := &p.Regions[i]
		if r.Region == "" {
			row := append(table.Row{regionName(""), "spend commitments", ""}, amounts(&r.Amounts)...)
			if v := r.Range; v != nil {
				row = append(row, "", "", "", money(v.Least), money(v.Most), money(*r.CVaR))
			}
			t.AppendRow(row)
		}
		for j := range r.Pools {
			q := &r.Pools[j]
			row := append(table.Row{r.Region, q.Kind, count(q.Demand.Peak)}, amounts(&q.Amounts)...)
			if f := q.Demand.Range; f != nil {
				row = append(row, comma(int(f.UnitHours.P10)), comma(int(f.UnitHours.P50)), comma(int(f.UnitHours.P90)), money(q.Amounts.Range.Least), money(q.Amounts.Range.Most), money(*q.CVaR))
			}
			t.AppendRow(row)
		}
	}
	t.AppendSeparator()
	total := append(table.Row{"total", "", ""}, amounts(&p.Total)...)
	if r := p.Total.Range; r != nil {
		total = append(total, "", "", "", money(r.Least), money(r.Most), money(*p.Total.CVaR))
	}
	t.AppendRow(total)
	t.Render()
	if r := p.Total.Range; r != nil {
		fmt.Fprintf(a.out, "cost is the expected cost: over the scenarios it is %s to %s, median %s, CVaR 90 (mean of the worst tenth) %s; in a scenario all pools repeat the errors of the same past weeks\n",
			money(r.Least), money(r.Most), money(r.P50), money(*p.Total.CVaR))
	}
	fmt.Fprintf(a.out, "cost and \"%s\" include what is still owed and a penalty for unserved hours (%s in \"%[1]s\"); \"%[3]s\" includes neither\n", plan.BuyNothing, money(p.Total.CurrentPenalty), plan.WithoutQuota)
	for _, n := range p.Notes {
		fmt.Fprintln(a.out, n)
	}
	a.showIgnored(p.Ignored)
	a.showComponents(p, as.Currency)
	a.showPlanBaselines(p)
	a.showPlanAlternatives(p)
	for i := range p.Regions {
		a.showRegion(p, &p.Regions[i], few)
	}
	if few == 0 {
		a.showCalendar(p.Calendar)
	}
	if len(p.Expiry) > 0 {
		fmt.Fprintln(a.out, "\nCommitments already held, by the end of their terms:")
		t := a.table("ends", "commitment", "provider", "region", "sku", "units", "GPUs", "capacity", "notice by", "serves")
		t.SetColumnConfigs(rightFrom(6, 7))
		for _, h := range p.Expiry {
			t.AppendRow(table.Row{day(h.Term.To), named(h.Commitment), h.Provider, h.Region, h.SKU, count(h.Units), count(h.Units * h.GPUs), capacity(h.Guaranteed), day(h.NoticeBy), cmp.Or(h.CountsFor, "nothing: "+h.NotCounted)})
		}
		t.Render()
	}
	a.showExcluded(p.Excluded)
	a.showProgram()
	fmt.Fprintf(a.out, "methods %s\nposition %s\n", strings.Join(p.Methods, " "), a.position(p.Position))
}

// showComponents shows pools that are planned together, what they share, and the proof.
func (a *Program) showComponents(p *plan.Plan, currency string) {
	for i := range p.Components {
		x := &p.Components[i]
		fmt.Fprintf(a.out, "\n%s share %s\n", strings.Join(x.Pools, " and "), strings.Join(x.By, "; "))
		fmt.Fprintf(a.out, "  planned together: cost %s, lower bound %s, gap %s; the rows of the pools are parts of it\n",
			money(x.Cost), money(x.LowerBound), x.Gap)
		a.showBinding(x.Binding, currency)
	}
}

func (a *Program) showBinding(binding []plan.Binding, currency string) {
	for _, b := range binding {
		worth := ""
		if b.Price != nil {
			worth = fmt.Sprintf(": worth %s %s", money(*b.Price), currency)
		}
		fmt.Fprintf(a.out, "  binding constraint: %s (%s)%s\n", b.Constraint, b.Detail, worth)
	}
}

func (a *Program) showRegion(p *plan.Plan, r *plan.RegionPlan, few int) {
	currency := p.Assumptions.Currency
	fmt.Fprintf(a.out, "\n%s\n", regionName(r.Region))
	if len(r.Purchases) > 0 {
		upfront := decimal.Zero
		for _, b := range r.Purchases {
			upfront = upfront.Add(b.Upfront)
		}
		t := a.table("buy", "GPUs", "of", "offer", "order by", "from", "to", "upfront", "per hour", "cost", "capacity", "region")
		t.main = true
		t.titled = 1 // the heading names the region
		t.SetColumnConfigs(append(rightFrom(1, 2), rightFrom(8, 10)...))
		for i, b := range r.Purchases {
			if i == few && few > 0 {
				t.AppendNote("and %s more: see \"plan show\"", comma(len(r.Purchases)-few))
				break
			}
			if len(b.Covers) > 0 { // a commitment over pools is an amount, not machines
				t.AppendRow(table.Row{"", "", named(b.Provider + " spend"), named(b.Offer), day(cmp.Or(b.OrderBy, b.Term.From)), day(b.Term.From), day(b.Term.To),
					moneyCell(b.Upfront), moneyCell(b.Hourly), moneyCell(b.Cost), capacity(b.Guaranteed) + made(b.Generated), regionName(r.Region)})
				continue
			}
			t.AppendRow(table.Row{count(b.Units), count(b.GPUs), named(b.Provider + " " + b.SKU), named(inZone(b.Offer, b.Zone)), day(cmp.Or(b.OrderBy, b.Term.From)), day(b.Term.From), day(b.Term.To),
				moneyCell(b.Upfront), moneyCell(b.Hourly), moneyCell(b.Cost), capacity(b.Guaranteed) + made(b.Generated), r.Region})
		}
		t.Render()
		fmt.Fprintf(a.out, "upfront payments in all: %s %s\n", money(upfront), currency)
	} else if len(r.Pools) > 0 {
		fmt.Fprintln(a.out, "buy nothing")
	}
	for i, b := range r.Purchases {
		if i == few && few > 0 {
			break
		}
		if len(b.Covers) > 0 {
			fmt.Fprintf(a.out, "%s %s an hour of %s pay for use of %s\n", money(b.Hourly), currency, clipped(b.Offer), strings.Join(b.Covers, ", "))
		}
		if b.Reason != "" {
			fmt.Fprintf(a.out, "%s of %s from %s: %s\n", comma(b.Units), clipped(inZone(b.Offer, b.Zone)), day(b.Term.From), b.Reason)
		}
		if b.Decision != nil {
			fmt.Fprintf(a.out, "  %s\n", decisionText(b.Decision, p.Assumptions.Scenarios, currency))
		}
		if w := b.Wait; w != nil {
			fmt.Fprintf(a.out, "  order %s of them now: in at least 60%% of the last 30 days' hours %s machines were used, and %s are held; "+
				"the other %s wait until more are used\n", comma(b.Units-w.Units), comma(w.Seen), comma(w.Held), comma(w.Units))
		}
		if b.Regret != nil {
			fmt.Fprintf(a.out, "  %s\n", regretText(b.Regret, currency))
		}
	}
	for j := range r.Pools {
		q := &r.Pools[j]
		s := &q.Served
		fmt.Fprintf(a.out, "%s: of %s unit-hours, commitments serve %s (and are idle for %s), spot %s, on-demand %s at %s %s, unserved %s; proof by %s\n",
			q.Kind, comma(int(q.Demand.UnitHours)), comma(int(s.Held)), comma(int(s.Unused)), comma(int(s.Spot)), comma(int(s.OnDemand)),
			q.OnDemand.Hourly, currency+made(q.OnDemand.Generated), comma(int(s.Shortage)), q.Solver)
		if s.Elsewhere+s.ForOthers > 0 {
			fmt.Fprintf(a.out, "  %s unit-hours of its demand are served elsewhere; it serves %s for others\n", comma(int(s.Elsewhere)), comma(int(s.ForOthers)))
		}
		if s.SpendCommitted > 0 {
			fmt.Fprintf(a.out, "  spend commitments pay for %s unit-hours of its on-demand use\n", comma(int(s.SpendCommitted)))
		}
		if q.Spot != nil {
			fmt.Fprintf(a.out, "  spot at %s %s before interruptions%s\n", q.Spot.Hourly, currency, made(q.Spot.Generated))
		}
		fmt.Fprintf(a.out, "  demand observed from %s to %s, %s hours missing\n", day(q.Demand.ObservedFrom), day(q.Demand.ObservedTo), comma(q.Demand.MissingHours))
		for _, n := range q.Notes {
			fmt.Fprintf(a.out, "  %s\n", n)
		}
		if q.QuotaGPUs != nil {
			fmt.Fprintf(a.out, "  on-demand under quota: the quota of %s GPUs would refuse %s unit-hours\n", comma(int(*q.QuotaGPUs)), comma(int(q.Refused)))
		}
		a.showBinding(q.Binding, currency)
		a.showTargets(q.Targets, currency, few)
		for _, l := range q.ExcludedOffers {
			fmt.Fprintf(a.out, "  excluded: %s offers, %s (%s)\n", comma(l.Offers), l.Reason, clipped(l.First))
		}
	}
	if k := r.Packing; k != nil {
		a.showPacking(k)
	}
}

// decisionText says when and by what a purchase is decided that need not be ordered yet.
func decisionText(d *plan.Decision, scenarios int, currency string) string {
	unit := map[string]string{"gpu": "GPUs", "vm": "machines"}[d.Unit]
	text := fmt.Sprintf("decide by %s: ", day(d.By))
	switch d.Orders {
	case 0:
		return text + fmt.Sprintf("by itself it is worth its cost at no demand of %s in the %s scenarios", d.Month, comma(scenarios))
	case scenarios:
		return text + fmt.Sprintf("in all %s scenarios, in which demand of %s is at least %s %s in the mean, it is ordered",
			comma(scenarios), d.Month, d.AtLeast, unit)
	}
	return text + fmt.Sprintf("order if demand of %s is at least %s %s in the mean, as in %s of %s scenarios; saves %s %s against ordering in all",
		d.Month, d.AtLeast, unit, comma(d.Orders), comma(scenarios), money(d.Saves), currency)
}

// regionName names a region of a plan; one without a name has what belongs to none.
func regionName(region string) string { return cmp.Or(region, "all regions") }

// regretText says in which scenarios a purchase is regretted.
func regretText(r *plan.Regret, currency string) string {
	text := fmt.Sprintf("without it the plan costs %s %s more in the mean; ", money(r.Mean), currency)
	if r.Mean.IsNegative() {
		text = fmt.Sprintf("without it the plan costs %s %s less in the mean; ", money(r.Mean.Neg()), currency)
	}
	if r.Scenarios == 0 {
		return text + fmt.Sprintf("it is regretted in none of %s scenarios", comma(len(r.Saves)))
	}
	return text + fmt.Sprintf("regretted in %s of %s scenarios, by %s %s at most", comma(r.Scenarios), comma(len(r.Saves)), money(r.Most), currency)
}

// showTargets shows at which prices offers would be bought, the closest to their quotes first.
func (a *Program) showTargets(targets []plan.Target, currency string, few int) {
	var out []plan.Target
	for _, t := range targets {
		if t.Units == 0 && t.BuyAt.IsPositive() && t.BuyAt.LessThan(t.Hourly) {
			out = append(out, t)
		}
	}
	share := func(t plan.Target) domain.Decimal { return t.BuyAt.DivRound(t.Hourly, 9) }
	slices.SortStableFunc(out, func(x, y plan.Target) int { return share(y).Cmp(share(x)) })
	for i, t := range out {
		if i == few && few > 0 {
			break
		}
		fmt.Fprintf(a.out, "  not bought: %s at %s %s an hour; worth a look at %s or less (%s lower)\n", clipped(t.Provider+" "+inZone(t.Offer, t.Zone)),
			t.Hourly, currency, t.BuyAt.RoundFloor(4), percent(decimal.NewFromInt(1).Sub(share(t)).RoundUp(3)))
	}
}

// showPlanBaselines compares a plan with its baselines.
func (a *Program) showPlanBaselines(p *plan.Plan) {
	if len(p.Baselines) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\nCompared with the baselines:")
	t := a.table("baseline", "cost", "incl. penalty", "more than the plan")
	t.SetColumnConfigs(rightFrom(2, 4))
	t.AppendRow(table.Row{"this plan", moneyCell(p.Total.Cost), moneyCell(p.Total.Penalty), ""})
	for _, c := range p.Baselines {
		t.AppendRow(table.Row{baselineName(c.Name), moneyCell(c.Cost), moneyCell(c.Penalty), moneyCell(c.Cost.Sub(p.Total.Cost))})
	}
	t.Render()
	for _, c := range p.Baselines {
		if len(c.Broken) > 0 {
			fmt.Fprintf(a.out, "not comparable: %s does not keep %s, and the plan does\n", baselineName(c.Name), strings.Join(c.Broken, ", "))
		}
	}
	least := "the lowest of the repeated weeks"
	if p.Assumptions.Demand == plan.Forecast {
		least = "the lowest-demand scenario"
	}
	for _, s := range p.EndOfHorizon {
		fmt.Fprintf(a.out, "with %s credited beyond the horizon: %s units would be bought, cost %s; these purchases would cost %s\n",
			percent(s.Salvage), comma(s.Units), money(s.Cost), money(s.Kept))
	}
	fmt.Fprintf(a.out, "paid within the horizon: %s; idle commitments if demand is as in %s: %s (both nominal)\n",
		money(p.Total.Nominal), least, money(p.Total.Stranded))
}

// showPlanAlternatives shows what plans cost more that buy less from a supplier or of an offer.
func (a *Program) showPlanAlternatives(p *plan.Plan) {
	shown := func(list []plan.Alternative) (out []instances.Alternative) {
		for i := range list {
			x := &list[i]
			y := instances.Alternative{Supplier: x.Supplier, Bought: x.Bought, Left: x.Left, Cost: x.Cost, LowerBound: x.LowerBound, More: x.More}
			switch {
			case x.Pool != "":
				y.Offer = fmt.Sprintf("%s %s for %s", x.Supplier, inZone(x.Offer, x.Zone), x.Pool)
			case x.Offer != "":
				y.Offer = x.Supplier + " " + terms(x.Offer)
			}
			out = append(out, y)
		}
		return out
	}
	if p.Assumptions.SecondBest {
		a.showAlternatives("plan", shown(p.Alternatives), p.Total.Cost)
	}
	a.showCapped(shown(p.Capped), p.Assumptions.MaxShare, p.Total.Cost)
	a.showBundle(p)
}

// showBundle shows the plan of fewer orders.
func (a *Program) showBundle(p *plan.Plan) {
	b := p.FewerOrders
	if b == nil {
		return
	}
	n := 0
	for i := range p.Regions {
		n += len(p.Regions[i].Purchases)
	}
	price := fmt.Sprintf("at %s %s for placing an order", money(p.Assumptions.OrderPrice), p.Assumptions.Currency)
	if b.Orders >= n {
		fmt.Fprintf(a.out, "\n%s, no merging of the %s orders pays\n", price, comma(n))
		return
	}
	fmt.Fprintf(a.out, "\n%s, %s orders instead of %s save %s: they cost %s more, and %s fewer are placed\n", price,
		comma(b.Orders), comma(n), money(b.Saves), money(b.More), comma(n-b.Orders))
	t := a.table("order", "of", "from")
	t.SetColumnConfigs(rightFrom(1, 1))
	for _, o := range b.Purchases {
		of := cmp.Or(o.Offer, o.Commitment)
		if pool, offer, ok := strings.Cut(of, "|"); ok {
			supplier, name, _ := strings.Cut(offer, "|")
			of = fmt.Sprintf("%s %s for %s", supplier, strings.ReplaceAll(name, "|", " "), pool)
		}
		t.AppendRow(table.Row{comma(o.Units), named(of), day(o.From)})
	}
	t.Render()
}

// showAlternatives shows what answers without a supplier or an offer cost more.
func (a *Program) showAlternatives(what string, list []instances.Alternative, cost domain.Decimal) {
	if len(list) == 0 {
		fmt.Fprintf(a.out, "\nno second-best %s: this one buys nothing that it could do without\n", what)
		return
	}
	fmt.Fprintf(a.out, "\nWithout a supplier or an offer, the second-best %s first:\n", what)
	a.showMore("without", list, cost)
}

// showCapped shows what a cap on the purchases from a supplier, or of an offer, costs more.
func (a *Program) showCapped(list []instances.Alternative, most, cost domain.Decimal) {
	switch {
	case !most.IsPositive():
	case len(list) == 0:
		fmt.Fprintf(a.out, "\nthe purchases from no supplier, and of no offer, are more than %s of the cost\n", percent(most))
	default:
		fmt.Fprintf(a.out, "\nWith the purchases from a supplier, or of an offer, at most %s of the cost:\n", percent(most))
		a.showMore("capped", list, cost)
	}
}

func (a *Program) showMore(head string, list []instances.Alternative, cost domain.Decimal) {
	heads, capped := []any{head, "bought of it", "cost", "more", "%", "lower bound"}, head == "capped"
	if capped {
		heads = slices.Insert(heads, 2, any("then"))
	} else {
		heads = slices.Insert(heads, 5, any("pays if dearer by"))
	}
	t := a.table(heads...)
	t.SetColumnConfigs(rightFrom(2, len(heads)))
	for i := range list {
		x := &list[i]
		more := ""
		if cost.IsPositive() {
			more = x.More.Shift(2).DivRound(cost, 2).StringFixed(2)
		}
		row := table.Row{named(cmp.Or(x.Offer, x.Supplier)), moneyCell(x.Bought), moneyCell(x.Cost), moneyCell(x.More), more, moneyCell(x.LowerBound)}
		if capped {
			row = slices.Insert(row, 2, any(moneyCell(x.Left)))
		} else {
			// At this rise of its price, what is bought of it costs as much more as the best without it.
			most := ""
			if x.Bought.IsPositive() {
				most = x.More.Shift(2).Div(x.Bought).RoundFloor(1).StringFixed(1) + "%"
			}
			row = slices.Insert(row, 5, any(most))
		}
		t.AppendRow(row)
	}
	t.Render()
}

// inZone names an offer without provider and machine, and its zone if it has one.
func inZone(offer, zone string) string {
	if zone == "" {
		return terms(offer)
	}
	return terms(offer) + " in " + zone
}

// baselineName returns the display name of a baseline.
func baselineName(baseline string) string {
	rule, days, _ := strings.Cut(strings.TrimSuffix(baseline, "d"), "_")
	switch {
	case baseline == "buy_nothing":
		return plan.BuyNothing
	case baseline == "on_demand":
		return plan.UnderQuota
	case rule == "lookback":
		return "best commitment of the last " + days + " days"
	case rule == "ladder":
		return "the same in equal parts, last " + days + " days"
	case rule == "peak":
		return "peak of the last " + days + " days reserved"
	}
	return baseline
}

// showCalendar shows payments and accrued charges by month.
func (a *Program) showCalendar(months []instances.MonthMoney) {
	if len(months) == 0 {
		return
	}
	fmt.Fprintln(a.out)
	t := a.table("month", "paid", "charged")
	t.SetColumnConfigs(rightFrom(2, 3))
	for i, m := range months {
		if i == mostRows {
			fmt.Fprintf(a.out, "the first %d of %d months; -o json has all\n", mostRows, len(months))
			break
		}
		t.AppendRow(table.Row{m.Month, moneyCell(m.Cash), moneyCell(m.Accrual)})
	}
	t.Render()
}

func (a *Program) showPacking(k *plan.PackingReport) {
	fmt.Fprintf(a.out, "declared workloads: %s of the %s GPUs needed fit on %s GPUs, using %s nodes (all need at least %s); heuristic: %s\n",
		gpus(k.GPUMilliPlaced), gpus(k.GPUMilliNeeded), gpus(k.GPUMilliTotal), comma(k.NodesUsed), comma(k.NodesNeeded), k.Order)
	free, stranded := int64(0), int64(0)
	for _, s := range k.Stranded {
		free, stranded = free+s.FreeMilli, stranded+s.StrandedMilli
	}
	fmt.Fprintf(a.out, "%s GPUs stay free, %s of them stranded (unusable for this mix)\n", gpus(free), gpus(stranded))
	if u := k.Unplaced; u.Replicas > 0 {
		ruled := make([]string, 0, len(u.RuledOut))
		for _, r := range u.RuledOut {
			ruled = append(ruled, fmt.Sprintf("%s %s", r.Constraint, comma(r.Machines)))
		}
		fmt.Fprintf(a.out, "%s replicas of %s workloads do not fit; machines ruled out by %s\n", comma(u.Replicas), comma(u.Workloads), strings.Join(ruled, ", "))
	}
}

// terms returns an offer's id without provider and machine.
func terms(id string) string {
	if parts := strings.SplitN(id, "/", 3); len(parts) == 3 {
		return parts[2]
	}
	return id
}

// showNothing shows an empty plan: the packing of the fleet, and the reasons for exclusion.
func (a *Program) showNothing(p *plan.Plan) {
	fmt.Fprintf(a.out, "no pool could be planned for %s to %s, and nothing is recorded\n", day(p.Horizon.From), day(p.Horizon.To))
	for i := range p.Regions {
		a.showRegion(p, &p.Regions[i], 0)
	}
	a.showExcluded(p.Excluded)
	for _, n := range p.Notes {
		fmt.Fprintln(a.out, n)
	}
	fmt.Fprintf(a.out, "planned as of %s: choose another time with --at DATE\n", p.At)
	a.showProgram()
	fmt.Fprintf(a.out, "methods %s\nposition %s\n", strings.Join(p.Methods, " "), a.position(p.Position))
}

// showIgnored lists held commitments that a plan does not count.
func (a *Program) showIgnored(ignored []plan.Ignored) {
	if len(ignored) == 0 {
		return
	}
	fmt.Fprintf(a.out, "ignored: %d held commitments are not in the amounts of this plan\n", len(ignored))
	for i, x := range ignored {
		if i == mostRows {
			fmt.Fprintf(a.out, "  and %d more; -o json has all\n", len(ignored)-mostRows)
			break
		}
		fmt.Fprintf(a.out, "  %s (%s of %s): %s\n", clipped(x.Commitment), x.Kind, x.Provider, x.Reason)
	}
}

// showExcluded lists excluded pools by reason, with the next step.
func (a *Program) showExcluded(left []plan.ExcludedPool) {
	const named = 6
	byReason, next := map[string][]string{}, map[string]string{}
	for _, l := range left {
		next[l.Reason] = l.Next
		byReason[l.Reason] = append(byReason[l.Reason], strings.TrimSpace(l.Region+" "+l.Kind))
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		pools := byReason[reason]
		more := ""
		if n := len(pools) - named; n > 0 {
			pools, more = pools[:named], fmt.Sprintf(" and %s more", comma(n))
		}
		fmt.Fprintf(a.out, "excluded: %s%s: %s\n", domain.Clip(strings.Join(pools, ", "), 4*widest), more, reason)
		if next[reason] != "" { // absent in plans of older versions
			fmt.Fprintf(a.out, "  to do: %s\n", next[reason])
		}
	}
}

func amounts(m *plan.Amounts) []any {
	return []any{money(m.Cost), money(m.Held), money(m.Penalty), money(m.Current), money(m.OnDemand), money(m.LowerBound), m.Gap.String()}
}

// money formats an amount to cents, with digit grouping.
func money(d domain.Decimal) string {
	s := d.StringFixed(2)
	whole, cents, _ := strings.Cut(s, ".")
	n, ok := new(big.Int).SetString(whole, 10)
	if !ok {
		return s
	}
	sign := ""
	if n.Sign() == 0 && strings.HasPrefix(whole, "-") {
		sign = "-"
	}
	return sign + humanize.BigComma(n) + "." + cents
}

// gpus formats thousandths of a GPU as GPUs.
func gpus(milli int64) string {
	s := comma(int(milli / 1000))
	if part := milli % 1000; part != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%03d", part), "0")
	}
	return s
}

func percent(d domain.Decimal) string { return d.Shift(2).String() + "%" }

// made marks generated data.
func made(generated bool) string {
	if generated {
		return ", generated"
	}
	return ""
}

func capacity(guaranteed bool) string {
	if guaranteed {
		return "guaranteed"
	}
	return "discount only"
}

func rightFrom(first, last int) []table.ColumnConfig {
	out := make([]table.ColumnConfig, 0, last-first+1)
	for i := first; i <= last; i++ {
		out = append(out, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	return out
}
