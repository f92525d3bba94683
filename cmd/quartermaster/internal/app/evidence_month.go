package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// month adds what the pack has of a month.
func (e *evidence) month(ctx context.Context, month domain.Interval, divide dividing) error {
	d, err := e.h.whole(ctx, e.view, month, divide)
	if err != nil {
		return err
	}
	of := EvidenceMonth{CostsOf: *dividedAs(&d.Summary), State: CloseOpen, Separation: []string{}, Totals: []costs.ControlTotal{}}
	of.Month, of.Books, of.Rows = month, d.Books(), d.Summary.Allocations
	if err := e.close(ctx, d, &of); err != nil {
		return err
	}
	if err := e.totals(d, &of); err != nil {
		return err
	}
	if err := e.completeness(d); err != nil {
		return err
	}
	e.out.Months = append(e.out.Months, of)
	return e.coverage(d)
}

// account identifies an account that is billed.
type account struct{ issuer, id string }

// accountTotal sums up an account in a month and a currency.
type accountTotal struct {
	account
	currency string
}

// totals adds the control totals of a month. What lines and invoices say is summed up apart from the allocations.
func (e *evidence) totals(d *costs.Division, of *EvidenceMonth) error {
	r, err := d.Report(costs.Query{Month: d.Month, By: []costs.Dimension{costs.ByIssuer, costs.ByAccount}})
	if err != nil {
		return err
	}
	type sum struct {
		lines, allocations                           int
		byLines, rounding, billed, effective, amount attribution.Amount
	}
	sums := map[accountTotal]*sum{}
	at := func(issuer, id, currency string) *sum {
		k := accountTotal{account{issuer, id}, currency}
		if sums[k] == nil {
			sums[k] = &sum{}
		}
		return sums[k]
	}
	for i := range d.Invoices {
		in := &d.Invoices[i]
		s := at(in.Issuer, in.Account, in.Currency)
		s.lines += in.Lines
		s.byLines, s.amount = s.byLines.Add(in.Billed), s.amount.Add(in.Received)
		s.rounding = s.rounding.Add(in.RoundingAdjustment)
		e.add("invoices", MonthName(d.Month), in.Issuer, in.Account, in.Invoice, in.Currency, string(in.Status), wholeCell(in.Lines),
			in.Billed.String(), in.Received.String(), in.Difference.String(), in.RoundingAdjustment.String(), in.After.String())
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		s := at(g.Key[costs.ByIssuer], g.Key[costs.ByAccount], g.Currency)
		s.allocations += g.Allocations
		s.billed, s.effective = s.billed.Add(g.Billed), s.effective.Add(g.Effective)
	}
	for _, k := range slices.SortedFunc(maps.Keys(sums), func(a, b accountTotal) int {
		return cmp.Or(strings.Compare(a.issuer, b.issuer), strings.Compare(a.id, b.id), strings.Compare(a.currency, b.currency))
	}) {
		s := sums[k]
		e.add("totals", MonthName(d.Month), k.issuer, k.id, k.currency, wholeCell(s.lines), wholeCell(s.allocations), s.byLines.String(),
			s.rounding.String(), s.billed.String(), s.effective.String(), s.amount.String())
		of.Totals = costs.AddTotals(of.Totals, []costs.ControlTotal{{Currency: k.currency, Rows: s.allocations, Billed: s.billed, Effective: s.effective}})
	}
	return nil
}

// completeness adds what is there of each account.
func (e *evidence) completeness(d *costs.Division) error {
	book, err := costs.NewAccrualBook(e.view, d.Month)
	if err != nil {
		return err
	}
	closed, err := costs.PeriodsClosed(e.view, d.Month)
	if err != nil {
		return err
	}
	type state struct {
		lines, invoices, uninvoiced int
		accrued                     []string
		estimated                   bool
	}
	accounts := map[account]*state{}
	at := func(issuer, id string) *state {
		k := account{issuer, id}
		if accounts[k] == nil {
			accounts[k] = &state{}
		}
		return accounts[k]
	}
	for i := range d.Invoices {
		in := &d.Invoices[i]
		s := at(in.Issuer, in.Account)
		s.lines += in.Lines
		if in.Status == attribution.NoInvoice {
			s.uninvoiced += in.Lines
		} else {
			s.invoices++
		}
	}
	for i := range book.Accruals {
		a := &book.Accruals[i]
		s := at(a.Issuer, a.Account)
		if len(a.Methods) == 0 {
			continue // billed in another currency
		}
		s.estimated = s.estimated || !a.Replaced
		text := fmt.Sprintf("%s %s %s", strings.Join(a.Methods, ", "), a.Accrued, a.Currency)
		switch invoices := strings.Join(a.Invoices, ", "); {
		case a.Replaced:
			text += ", replaced by invoice " + invoices
		case invoices != "":
			text += ", beside invoice " + invoices
		}
		s.accrued = append(s.accrued, text)
	}
	for _, name := range book.NotBilled {
		issuer, id := domain.SplitAccountKey(name)
		at(issuer, id)
	}
	for _, k := range slices.SortedFunc(maps.Keys(accounts), func(a, b account) int {
		return cmp.Or(strings.Compare(a.issuer, b.issuer), strings.Compare(a.id, b.id))
	}) {
		s := accounts[k]
		what := "invoiced"
		switch {
		case s.estimated:
			what = "accrued"
		case s.lines == 0 && s.invoices == 0:
			what = "missing"
		case s.uninvoiced > 0:
			what = "billed"
		}
		e.add("completeness", MonthName(d.Month), k.issuer, k.id, what, wholeCell(s.lines), wholeCell(s.invoices), wholeCell(s.uninvoiced),
			strings.Join(s.accrued, "; "), timeCell(closed[domain.AccountKey(k.issuer, k.id)]))
	}
	return nil
}

// coverage adds what became of the time of a month.
func (e *evidence) coverage(d *costs.Division) error {
	r, err := d.Report(costs.Query{Month: d.Month, By: []costs.Dimension{costs.ByComponent}})
	if err != nil {
		return err
	}
	month := MonthName(d.Month)
	row := func(component string, c *costs.Cost, lacks ...string) {
		cells := []string{
			month, component, c.Currency, wholeCell(c.Bought), wholeCell(c.Allocated), wholeCell(c.Measured), c.Billed.String(), c.Effective.String(),
		}
		e.add("coverage", append(cells, lacks...)...)
	}
	if len(r.Totals) == 0 {
		row("", &costs.Cost{}, wholeCell(r.Missing), wholeCell(r.Incomplete)) // nothing was billed
	}
	for i := range r.Totals {
		row("", &r.Totals[i], wholeCell(r.Missing), wholeCell(r.Incomplete))
	}
	for i := range r.Groups {
		row(r.Groups[i].Key[costs.ByComponent], &r.Groups[i].Cost, "", "")
	}
	for _, l := range r.Dropped {
		if !slices.Contains(e.losses, l) {
			e.losses = append(e.losses, l)
		}
	}
	return nil
}

// close adds the close of a month, its checklist and its exceptions.
func (e *evidence) close(ctx context.Context, d *costs.Division, m *EvidenceMonth) error {
	of := closeOf(e.closes, d.Month)
	month := MonthName(d.Month)
	if of == nil {
		e.add("closes", month, string(CloseOpen), "", d.Methods.Attribution, "", wholeCell(d.Summary.Allocations), "", "", "", "", "", "", "", "")
		earlier, err := e.h.earlier(ctx, e.view, e.closes, d.Month)
		if err != nil {
			return err
		}
		list, err := costs.NewChecklist(e.view, d, e.closes, projections.HourOf(d.Month.To) <= projections.SealedBefore(e.last), earlier)
		if err != nil {
			return err
		}
		for _, f := range list.Findings {
			outcome := "open"
			if f.Count == 0 {
				outcome = string(domain.CheckMet)
			}
			e.add("checks", month, f.Check, outcome, f.Detail, "")
		}
		e.exceptions(month, list.Exceptions, "open", nil)
		return nil
	}
	b, err := e.h.closing(ctx, e.view, of)
	if err != nil {
		return err
	}
	m.State, m.Separation = b.State, b.Separation
	part := func(p *ClosePart) (string, string) {
		if p == nil {
			return "", ""
		}
		return p.Operator, timeCell(p.At)
	}
	preparer, prepared := part(b.Prepared)
	approver, approved := part(b.Approved)
	_, closed := part(b.Closed)
	e.add("closes", month, string(b.State), b.Position, b.Methods.Attribution, b.Digest, wholeCell(b.Allocations), b.Postings, preparer, prepared,
		approver, approved, closed, strings.Join(b.Separation, "; "), b.Problem)
	outcome := "open"
	for _, c := range b.Checks {
		e.add("checks", month, c.Check, string(c.Outcome), c.Detail, c.Reason)
		if c.Check == costs.CheckExceptions && c.Outcome == domain.CheckAccepted {
			outcome = "accepted: " + c.Reason
		}
	}
	var now *costs.Division
	if b.State == CloseDone {
		if now, err = e.h.presentDivision(ctx, e.view, d.Month); err != nil {
			return err
		}
	}
	e.exceptions(month, b.Exceptions, outcome, now)
	return nil
}

// exceptions adds exceptions of a month. now is the month as it would be divided now, nil if it was divided now.
func (e *evidence) exceptions(month string, all []costs.OpenException, outcome string, now *costs.Division) {
	for i := range all {
		x := &all[i]
		state := "open"
		if now != nil && !slices.ContainsFunc(now.Exceptions, func(y attribution.Exception) bool {
			return y.Kind == x.Kind && y.Subject == x.Subject && y.Detail == x.Detail
		}) {
			state = "resolved since"
		}
		e.add("exceptions", month, string(x.Kind), x.Subject, x.Detail, wholeCell(x.GPUMs), wholeCell(x.Lines), x.Currency, x.Billed.String(),
			x.Effective.String(), string(x.Owner), timeCell(x.Since), outcome, state)
	}
}

// sortLosses orders losses by cluster, node, topic and time.
func sortLosses(all []registry.Loss) {
	slices.SortStableFunc(all, func(a, b registry.Loss) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Node, b.Node), strings.Compare(string(a.Topic), string(b.Topic)),
			cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
}
