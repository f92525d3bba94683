package cli

import (
	"fmt"
	"strings"

	"quartermaster/adapters/document"
	"quartermaster/cmd/quartermaster/internal/app"
)

// evidenceDocument describes the index of a pack.
func evidenceDocument(m *app.EvidenceManifest, e *app.Evidence) *document.Document {
	first, last := m.Months[0].Month, m.Months[len(m.Months)-1].Month
	d := &document.Document{
		Title: "Evidence about the costs of " + monthsText(first, last), Subject: monthsText(first, last), Date: last.To.Time(),
		Footer: "Position: " + m.Position,
	}
	d.Blocks = append(d.Blocks, document.Paragraph{Text: "Everything here follows from the log at the position below. The same position gives the " +
		"same bytes. manifest.json has the SHA-256 of every file. To compare this folder with the log:"},
		document.Code("quartermaster costs evidence --check FOLDER"))
	for i := range m.Months {
		of := &m.Months[i]
		if of.Generated {
			d.Blocks = append(d.Blocks, document.Warning(app.MonthName(of.Month)+": some of these figures are generated. They are not from a supplier."))
		}
		if !of.Reconciled {
			d.Blocks = append(d.Blocks, document.Warning(app.MonthName(of.Month)+": not every invoice equals its lines; see invoices.csv and exceptions.csv."))
		}
		for _, one := range of.Separation {
			d.Blocks = append(d.Blocks, document.Warning(app.MonthName(of.Month)+": duties are not separate: "+one))
		}
	}
	checkpoint := "The log has no signed checkpoint. Nothing in this folder shows that the log was not changed."
	if c := m.Checkpoint; c != nil {
		checkpoint = "The newest signed checkpoint of the log is of the position " + c.Position + ". checkpoints.csv has all, with the signatures of witnesses."
	}
	d.Blocks = append(d.Blocks, evidenceMonthsTable(m), evidenceTotalsTable(m), document.Paragraph{Text: checkpoint}, evidenceFilesTable(m),
		document.Heading("Columns"), document.Paragraph{Text: "Amounts and quantities are exact decimals. Times are RFC 3339 in UTC. An empty cell is null. " +
			"A text that a spreadsheet program could take for a formula begins with an apostrophe."})
	for i := range e.Tables {
		t := &e.Tables[i]
		columns := &document.Table{Caption: t.Name + ".csv: " + t.Doc, Columns: []document.Column{{Name: "column"}, {Name: "kind"}, {Name: "meaning"}}}
		for _, c := range t.Columns {
			columns.Rows = append(columns.Rows, []string{c.Name, string(c.Kind), c.Doc})
		}
		d.Blocks = append(d.Blocks, columns)
	}
	return d
}

func evidenceMonthsTable(m *app.EvidenceManifest) *document.Table {
	t := &document.Table{Caption: "Months", Columns: []document.Column{
		{Name: "month"}, {Name: "state"}, {Name: "prepared by"}, {Name: "approved by"}, {Name: "closed"}, {Name: "reconciled"}, {Name: "method"},
	}}
	for i := range m.Months {
		of := &m.Months[i]
		prepared, approved, closed, reconciled := "", "", "", "no"
		if b := of.Books; b != nil {
			prepared, approved, closed = b.Prepared, b.Approved, b.Closed.String()
		}
		if of.Reconciled {
			reconciled = "yes"
		}
		t.Rows = append(t.Rows, []string{
			app.MonthName(of.Month), string(of.State), prepared, approved, closed, reconciled, of.Methods.Attribution + " on " + of.Methods.Folds,
		})
	}
	return t
}

func evidenceTotalsTable(m *app.EvidenceManifest) *document.Table {
	t := &document.Table{Caption: "Control totals", Empty: "no allocations", Columns: []document.Column{
		{Name: "month"}, {Name: "currency"}, {Name: "allocations", Number: true}, {Name: "billed", Number: true}, {Name: "effective", Number: true},
	}}
	for i := range m.Months {
		for _, c := range m.Months[i].Totals {
			t.Rows = append(t.Rows, []string{app.MonthName(m.Months[i].Month), c.Currency, comma(c.Rows), c.Billed.String(), c.Effective.String()})
		}
	}
	return t
}

func evidenceFilesTable(m *app.EvidenceManifest) *document.Table {
	t := &document.Table{Caption: "Files", Columns: []document.Column{{Name: "file"}, {Name: "what it has"}, {Name: "rows", Number: true}, {Name: "sha256"}}}
	for _, f := range m.Files {
		t.Rows = append(t.Rows, []string{f.File, f.Doc, comma(f.Rows), strings.Join([]string{f.SHA256[:32], f.SHA256[32:]}, "\n")})
	}
	t.Rows = append(t.Rows, []string{evidenceManifest, fmt.Sprintf("The same for programs: position, methods, policies and mapping rules of each month (%s).", m.Format), "", ""})
	return t
}
