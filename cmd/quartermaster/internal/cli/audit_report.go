package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"quartermaster/adapters/document"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain/merkle"
)

// reportWritten is the answer of audit report, with what the file says.
type reportWritten struct {
	*app.CustomerReport
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // of the file, in hexadecimal
	Signer string `json:"signer"` // operator
	// VerifierKey is the key that signed, as a verifier key of C2SP signed-note.
	VerifierKey string `json:"verifier_key"`
}

func (a *Program) auditReportCommand() *cobra.Command {
	var month, workspace, out, path, asOf string
	cmd := &cobra.Command{
		Use:   "report --workspace WORKSPACE --month MONTH --out FILE",
		Short: "Write a signed report for a customer: costs, decisions, who could read, isolation",
		Long: `Report writes one file about a workspace and a month, to be given to whoever it belongs to: what it
cost, every decision about it by cluster, who asked the API for what could show it, who could have,
and what keeps it apart from others. It can be read in a browser.

Your key signs it: the last lines of the file are a signature (C2SP signed-note) over everything before
them. "quartermaster-audit check-report" checks it without a server. The same position and key give the
same bytes.

The month's costs are final once its books are closed. Until then the report says that they are
preliminary.`,
		Example: "  quartermaster audit report --workspace research --month 2026-05 --out research-may.html\n" +
			"  quartermaster audit report --workspace research --month 2026-05 --out research-may.html --key provider.pem -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := monthFlag("month", month)
			if err != nil {
				return err
			}
			if err := a.caller().Begin(cmd.Context(), true); err != nil {
				return err
			}
			ops, err := a.caller().Operators(cmd.Context())
			if err != nil {
				return err
			}
			by, err := a.registered(cmd.Context(), ops, path)
			if err != nil {
				return err
			}
			r, err := a.caller().CustomerReport(cmd.Context(), app.At(asOf), m, workspace)
			if err != nil {
				return err
			}
			signed, err := signedReport(r, by)
			if err != nil {
				return fmt.Errorf("write %s: %w", out, err)
			}
			if err := app.WriteWhole(out, func(w io.Writer) error {
				_, err := w.Write(signed)
				return err
			}); err != nil {
				return err
			}
			verifier, err := merkle.VerifierKey(merkle.ReportOrigin(r.Log), by.public)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(signed)
			ans := reportWritten{r, out, hex.EncodeToString(sum[:]), by.name, verifier}
			if a.json {
				return a.answerJSON(&ans)
			}
			fmt.Fprintf(a.out, "%s: report of %s for %s, signed by %s\n", out, app.MonthName(m), workspace, by.name)
			fmt.Fprintf(a.out, "decisions: %s, operations asked: %s, grants: %s\n", comma(len(r.Trail)), comma(len(r.Asked)), comma(len(r.Could)))
			fmt.Fprintf(a.out, "sha256: %s\nkey: %s\nposition: %s\n", ans.SHA256, verifier, a.position(r.Position))
			return nil
		},
	}
	bookMonthFlag(cmd, &month)
	f := cmd.Flags()
	f.StringVar(&workspace, "workspace", "", "workspace that the report is for (required)")
	f.StringVar(&out, "out", "", "file to write (required)")
	must(cmd.MarkFlagRequired("workspace"))
	must(cmd.MarkFlagRequired("out"))
	keyFlag(cmd, &path)
	asOfFlag(cmd, &asOf)
	return cmd
}

// signedReport returns the file of a report.
func signedReport(r *app.CustomerReport, by signer) ([]byte, error) {
	var b bytes.Buffer
	if err := document.WriteHTML(&b, reportDocument(r, by.name)); err != nil {
		return nil, err
	}
	text := strings.Map(func(c rune) rune {
		if c != '\n' && unicode.IsControl(c) {
			return ' ' // a note has none
		}
		return c
	}, strings.TrimRight(b.String(), "\n")+"\n")
	return merkle.SignText(merkle.ReportOrigin(r.Log), text, by.key)
}

// reportDocument describes the document of a report.
func reportDocument(r *app.CustomerReport, signer string) *document.Document {
	month := app.MonthName(r.Month)
	d := &document.Document{
		Title: "Report of " + month + " for " + r.Workspace, Subject: r.Workspace, Date: r.Month.To.Time(),
		Footer: "Log " + r.Log + ". Position: " + r.Position,
	}
	add := func(blocks ...document.Block) { d.Blocks = append(d.Blocks, blocks...) }
	add(document.Paragraph{Text: "Written and signed by operator " + signer + ". All times are UTC."})
	add(document.Heading("What it cost"))
	if s := r.Statement; s == nil {
		add(document.Paragraph{Text: "Nothing was charged for the month."})
	} else {
		add(numberParagraph(s.Number, s))
		if s.Generated {
			add(document.Warning("Some of these figures are generated. They are not from a supplier."))
		}
		if n := len(s.Unreconciled); n > 0 { // their names are the provider's
			add(document.Warning(fmt.Sprintf("Bills that do not reconcile with what the suppliers sent: %s. Amounts of this month may be corrected.", comma(n))))
		}
		add(chargedTable(s), groupsTable("What became of what was paid for", "component", s.Components),
			groupsTable("Models and jobs", "cluster, deployment, GPU model", s.Deployments), invoicesTable(s.Invoices), dueTable(s.Due))
	}
	add(document.Heading("What was decided"))
	add(decisionTables(r)...)
	add(document.Paragraph{Text: "Each decision is a record of the log, by partition and offset. A proof of it shows who signed it, and exactly what."})
	add(document.Heading("Who read, and who could have"), askedTable(r), couldTable(r),
		document.Paragraph{Text: "What is asked of the API is noted before it is answered. Whoever operates the machines of the log can read it without the API; that is not noted."})
	add(document.Heading("What keeps it apart"))
	add(isolation...)
	add(document.Heading("How to check this file"), document.Paragraph{Text: checkpointText(r) +
		" The last lines of this file are a signature over everything before them. Ask the provider for the key by another way than this file, and check it without a server:"},
		document.Code("quartermaster-audit check-report FILE --signed-by KEY"))
	return d
}

// isolation is what a report says of others. docs/concepts/who-sees-what.md explains it, and tests hold it.
var isolation = []document.Block{
	document.Paragraph{Lead: "Rights.", Text: "Over the API nobody sees anything without a grant. A right counts in its workspace and in those below it, never in a parent or a sibling. The grants that counted in the month are listed above."},
	document.Paragraph{Lead: "Machines that are shared.", Text: "The owner of a cluster sees which workspaces hold how much of it, not their deployments and pods. A guest sees its own part of a cluster of others, and the name, region and provider of the cluster."},
	document.Paragraph{Lead: "Costs.", Text: "A workspace sees its own allocations. Lines, prices and invoices of suppliers are seen with a right to the whole estate alone."},
	document.Paragraph{Lead: "Enforced.", Text: "Rows are narrowed below the questions, so that no question can forget it, and by policies of the database for readers in SQL. What may not be seen is answered as what does not exist."},
	document.Paragraph{Lead: "Not promised.", Text: "Shared lines are divided among all who used them: an amount follows from what others used, too, and the last minor unit of an invoice from how it is rounded over all. A position says how many events a log has. What is noted about readers may lack the last seconds before a power cut."},
}

func checkpointText(r *app.CustomerReport) string {
	if r.Checkpoint == nil {
		return "No checkpoint of the log was signed yet."
	}
	name, _, _ := strings.Cut(r.Checkpoint.Note, "\n\n")
	return "The newest checkpoint of the log is " + strings.Join(strings.Fields(name), " ") + "."
}

// decisionTables returns a table of decisions for each cluster, and first one of those about none.
func decisionTables(r *app.CustomerReport) []document.Block {
	var all []document.Block
	var t *document.Table
	of := func(caption string) *document.Table {
		t := &document.Table{Caption: caption, Empty: "nothing was decided", Columns: []document.Column{
			textColumn("Time"), textColumn("Who"), textColumn("What"), textColumn("What came of it"), textColumn("Record"),
		}}
		all = append(all, t)
		return t
	}
	last := ""
	for i := range r.Trail {
		e := &r.Trail[i]
		if t == nil || e.Cluster != last {
			caption := "About the workspace"
			if last = e.Cluster; last != "" {
				caption = "About cluster " + last
			}
			t = of(caption)
		}
		who := e.Operator
		if who == "" {
			who = "a program"
		}
		t.Rows = append(t.Rows, []string{moment(e.Time), who, e.Did, e.Outcome, fmt.Sprintf("%s@%d", e.Partition, e.Offset)})
	}
	if t == nil {
		of("About the workspace")
	}
	return all
}

func askedTable(r *app.CustomerReport) *document.Table {
	t := &document.Table{Caption: "Asked of the API, where the answer could show the workspace", Empty: "nobody asked anything", Columns: []document.Column{
		textColumn("Who"), textColumn("Operation"), numberColumn("Times"), numberColumn("Refused"), textColumn("First"), textColumn("Last"),
	}}
	for i := range r.Asked {
		x := &r.Asked[i]
		t.Rows = append(t.Rows, []string{string(x.Principal), x.Operation, comma(int(x.Count)), comma(int(x.Refused)), moment(x.First), moment(x.Last)})
	}
	return t
}

func couldTable(r *app.CustomerReport) *document.Table {
	t := &document.Table{Caption: "Grants that counted in the month", Empty: "nobody had a grant", Columns: []document.Column{
		textColumn("Who"), textColumn("Role"), textColumn("In workspace"), textColumn("From"), textColumn("To"), textColumn("Granted by"),
	}}
	for i := range r.Could {
		g := &r.Could[i]
		t.Rows = append(t.Rows, []string{string(g.Principal), string(g.Role), g.Workspace, moment(g.From), moment(g.To), g.GrantedBy})
	}
	return t
}
