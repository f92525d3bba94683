package cli

import (
	"fmt"
	"strings"
	"time"

	"quartermaster/adapters/document"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

// statementDocument describes the document of a statement.
func statementDocument(s *app.CostStatement) *document.Document {
	month := app.MonthName(s.Month)
	d := &document.Document{
		Title: "Statement of " + month + " for " + s.Workspace, Subject: s.Number, Date: documentDate(s),
		Footer: fmt.Sprintf("Method %s on %s. ", s.Methods.Attribution, s.Methods.Folds),
	}
	if s.Final {
		d.Footer += "Allocations: sha256 " + s.Books.Digest + ". "
	}
	d.Footer += "Position: " + documentPosition(s)
	d.Blocks = append(d.Blocks, numberParagraph(s.Number, s))
	if s.Generated {
		d.Blocks = append(d.Blocks, document.Warning("Some of these figures are generated. They are not from a supplier."))
	}
	for _, u := range s.Unreconciled {
		d.Blocks = append(d.Blocks, document.Warning("Not reconciled: "+u.Subject+": "+u.Why))
	}
	d.Blocks = append(d.Blocks, chargedTable(s),
		groupsTable("What became of what was paid for", "component", s.Components),
		groupsTable("Models and jobs", "cluster, deployment, GPU model", s.Deployments),
		groupsTable("Usage, purchases, tax and credits", "charge category", s.Charges),
		groupsTable("Commitments used and carried", "commitment, component", s.Commitments),
		invoicesTable(s.Invoices),
		document.Paragraph{Text: "Each part is rounded once. The parts of all workspaces add up to the invoice."})
	if s.Loaded != nil {
		d.Blocks = append(d.Blocks, loadedTable(s.Loaded), sharedTable(s.Workspace, s.Loaded),
			document.Paragraph{Text: "Shared costs are for information. They are not part of the amount charged."})
	}
	if len(s.Corrections) > 0 {
		d.Blocks = append(d.Blocks, correctionsTable(s.Corrections), notesTable(s.Notes),
			document.Paragraph{Text: "Corrections are added to the amount charged, rounded once for each statement and currency."})
	}
	d.Blocks = append(d.Blocks, dueTable(s.Due))
	coverage := "Nothing was held."
	if c := s.Coverage; c != nil {
		coverage = fmt.Sprintf("Activity was measured for %d.%d%% of the time held; the rest does not count as useful.", *c/10, *c%10)
	}
	d.Blocks = append(d.Blocks, document.Heading("How to read and dispute it"),
		document.Paragraph{Text: "Idle time is charged to the owner of the cluster unless a policy says otherwise. " + coverage},
		document.Paragraph{Text: "For every figure, and then for a single cent:"},
		document.Code("quartermaster costs explain --workspace "+s.Workspace+" --period "+month),
		document.Code("quartermaster costs explain ALLOCATION"),
		document.Paragraph{Text: "To dispute one, send the number of this statement and the id of the allocation to whoever closed the " +
			"books. A mistake is corrected by a signed event, and shows as a correction on a later statement. Only a credit " +
			"or debit note that names the number of a final statement changes what it asks for."})
	return d
}

// noteDocument describes the document of a note on a statement.
func noteDocument(s *app.CostStatement, n *app.CreditNote) *document.Document {
	title := "Credit note"
	text := fmt.Sprintf("Statement %s is cancelled to the amount of %s.", n.Corrects, amountText(n.Amount.Amount.Neg(), n.Currency))
	if n.Kind == app.NoteDebit {
		title = "Debit note"
		text = fmt.Sprintf("Statement %s asks for %s more.", n.Corrects, amountText(n.Amount.Amount, n.Currency))
	}
	return &document.Document{
		Title: title + " on statement " + n.Corrects, Subject: n.Number, Date: documentDate(s),
		Blocks: []document.Block{
			numberParagraph(n.Number, s),
			document.Paragraph{Lead: text, Text: "All else of it stays as it is. The amount is part of what is due on statement " + s.Number + "."},
			correctionsTable(n.Corrections),
			document.Paragraph{Text: "The sum is rounded once."},
		},
		Footer: "Position: " + documentPosition(s),
	}
}

// documentPosition is that of a final statement's close, so that its files are the same bytes whenever they are written,
// else that of the answer.
func documentPosition(s *app.CostStatement) string {
	if s.Final {
		return s.Books.Position
	}
	return s.Position
}

// documentDate is the date of the files of a statement: when the books were closed, else the end of the month.
func documentDate(s *app.CostStatement) time.Time {
	if s.Final {
		return s.Books.Closed.Time()
	}
	return s.Month.To.Time()
}

func numberParagraph(number string, s *app.CostStatement) document.Paragraph {
	if s.Final {
		return document.Paragraph{Text: fmt.Sprintf("Number %s. Final: the books were closed by %s and %s at %s. Later changes are corrections on a later statement.",
			number, s.Books.Prepared, s.Books.Approved, s.Books.Closed)}
	}
	return document.Paragraph{Lead: "Preliminary.", Text: "Number " + number + ". The books of the month are open, and this may change."}
}

func textColumn(name string) document.Column   { return document.Column{Name: name} }
func numberColumn(name string) document.Column { return document.Column{Name: name, Number: true} }

func chargedTable(s *app.CostStatement) *document.Table {
	t := &document.Table{Caption: "Charged", Empty: "nothing", Columns: []document.Column{
		textColumn("Currency"), numberColumn("Amount"), numberColumn("Effective cost"), numberColumn("At list prices"), numberColumn("Negotiated"), numberColumn("Saved by commitments"),
	}}
	for i := range s.Totals {
		c := &s.Totals[i]
		row := []string{c.Currency, cents(c.BilledMinor.Amount, c.Currency), cents(c.EffectiveMinor.Amount, c.Currency), "not stated", "", ""}
		if c.SavingsRate != nil {
			row = append(row[:3], cents(c.List, c.Currency), cents(c.Negotiated, c.Currency), cents(c.Committed, c.Currency))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func groupsTable(caption, head string, groups []costs.Group) *document.Table {
	t := &document.Table{Caption: caption, Empty: "none", Columns: []document.Column{
		textColumn(head), numberColumn("Billed"), numberColumn("Effective"), numberColumn("GPU-hours bought"), numberColumn("held"),
		numberColumn("Effective per held hour"), numberColumn("per useful hour"),
	}}
	for i := range groups {
		g := &groups[i]
		t.Rows = append(t.Rows, []string{
			statementName(head, g), amountText(g.BilledMinor.Amount, g.Currency), cents(g.EffectiveMinor.Amount, g.Currency),
			gpuHours(g.Bought), gpuHours(g.Allocated), rateText(g.PerAllocated, g.PerAllocatedAbsent), rateText(g.PerUseful, g.PerUsefulAbsent),
		})
	}
	return t
}

func rateText(d *domain.Decimal, absent costs.Absent) string {
	if d == nil {
		return string(absent)
	}
	return d.StringFixed(4)
}

func invoicesTable(all []attribution.Statement) *document.Table {
	t := &document.Table{Caption: "Parts of invoices", Empty: "none", Columns: []document.Column{
		textColumn("Issuer"), textColumn("Account"), textColumn("Invoice"), numberColumn("Charged here"),
	}}
	for i := range all {
		in := &all[i]
		invoice := in.Invoice
		if invoice == "" {
			invoice = noInvoiceText(in.Period)
		}
		t.Rows = append(t.Rows, []string{in.Issuer, in.Account, invoice, amountText(in.Amount.Amount, in.Currency)})
	}
	return t
}

// loadedTable has what the workspace bears. Its amounts are rounded one by one; a column has what that makes of a sum.
func loadedTable(l *costs.Loaded) *document.Table {
	t := &document.Table{Caption: "With shared costs (effective)", Empty: "none", Columns: []document.Column{
		textColumn("Currency"), numberColumn("Direct"), numberColumn("Passed on"), numberColumn("Received"), numberColumn("Rounding"),
		numberColumn("Cost with them"),
	}}
	for i := range l.Workspaces {
		w := &l.Workspaces[i]
		shown := func(a attribution.Amount) domain.Decimal {
			return a.Decimal().Round(int32(domain.MinorUnits(w.Currency)))
		}
		direct, passed, received := shown(w.Direct.Effective), shown(w.Passed.Effective), shown(w.Received.Effective)
		cost := shown(w.Effective)
		rounding := cost.Sub(direct.Sub(passed).Add(received))
		row := []string{w.Currency}
		for _, amount := range []domain.Decimal{direct, passed, received, rounding, cost} {
			row = append(row, minorText(amount, w.Currency))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// sharedTable has what a workspace received of each pool.
func sharedTable(workspace string, l *costs.Loaded) *document.Table {
	t := &document.Table{Caption: "Received of shared costs", Empty: "nothing", Columns: []document.Column{
		textColumn("From"), textColumn("Divided by"), numberColumn("Cost"), numberColumn("Received"),
	}}
	for i := range l.Steps {
		s := &l.Steps[i]
		for _, to := range s.To {
			if to.Workspace == workspace {
				t.Rows = append(t.Rows, []string{
					s.Pool, strings.ReplaceAll(strings.TrimPrefix(s.By, "by_"), "_", " "),
					amountText(s.Effective, s.Currency), amountText(to.Effective, s.Currency),
				})
			}
		}
	}
	return t
}

func correctionsTable(all []app.StatementCorrection) *document.Table {
	t := &document.Table{Caption: "Corrections of earlier statements (a negative amount is a credit)", Empty: "none", Columns: []document.Column{
		textColumn("Statement"), textColumn("Reason"), numberColumn("Billed"), numberColumn("Effective"), textColumn("Caused by"),
	}}
	for i := range all {
		c := &all[i]
		t.Rows = append(t.Rows, []string{
			c.Corrects, string(c.Type), c.Billed.String() + " " + c.Currency, c.Effective.String() + " " + c.Currency, strings.Join(c.Causes, "\n"),
		})
	}
	return t
}

func notesTable(all []app.CreditNote) *document.Table {
	t := &document.Table{Caption: "Credit and debit notes", Empty: "none: the corrections add up to nothing", Columns: []document.Column{
		textColumn("Number"), textColumn("On statement"), numberColumn("Amount"),
	}}
	for i := range all {
		n := &all[i]
		t.Rows = append(t.Rows, []string{n.Number, n.Corrects, amountText(n.Amount.Amount, n.Currency)})
	}
	return t
}

func dueTable(all []app.Due) *document.Table {
	t := &document.Table{Caption: "Due", Empty: "nothing", Columns: []document.Column{textColumn("Currency"), numberColumn("Amount")}}
	for i := range all {
		t.Rows = append(t.Rows, []string{all[i].Currency, cents(all[i].Amount.Amount, all[i].Currency)})
	}
	return t
}

// statementName names a group by its dimensions, in the order of the head.
func statementName(head string, g *costs.Group) string {
	var names []string
	for _, word := range strings.Split(head, ", ") {
		d := costs.Dimension(strings.ToLower(strings.ReplaceAll(word, " ", "_")))
		if name := g.Key[d]; name != "" {
			names = append(names, name)
		} else {
			names = append(names, costs.Blank(d))
		}
	}
	return strings.Join(names, " / ")
}
