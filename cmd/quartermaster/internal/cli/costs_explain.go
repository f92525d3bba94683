package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

func (a *Program) costExplainCommand() *cobra.Command {
	var (
		period, asOf, ledger string
		q                    app.CostsExplained
		raw                  bool
	)
	cmd := &cobra.Command{
		Use:   "explain [ALLOCATION]",
		Short: "Explain the charges of a workspace and their changes, or trace one allocation",
		Long: `Explain has two forms.

With --workspace and --period it explains what a workspace is charged for a month: by
component, then by cluster, then by deployment, largest first, next to the previous month. It
names the largest allocations of each deployment, with the command that explains each. Costs
are per GPU-hour bought, allocated and useful. Values that were not measured are marked as
such, never shown as 0.00.

With ALLOCATION it traces one allocation of "quartermaster costs allocations":
- the line as the supplier wrote it, and the event that recorded it;
- the class of the line, and how it was matched to machines;
- the usage by which the line was divided;
- the policies, method versions and log position;
- the invoice and the statement that contain it.
Quote the allocation, because it contains semicolons. --raw shows the row of the imported file that the
line was read from, as the file has it.`,
		Example: "  quartermaster costs explain --workspace vc-a01 --period 2026-05\n" +
			"  quartermaster costs explain --workspace vc-a01 --period 2026-05 --ledger billed --largest 3\n" +
			`  quartermaster costs explain 'issuer=AWS;account=1234;line=L1;hour=2026-05-01T00:00:00Z;workspace=research;cluster=c1;deployment=chat;component=allocated'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				for _, flag := range []string{"workspace", "period", "ledger", "largest"} {
					if cmd.Flags().Changed(flag) {
						return commandline.Usagef("an allocation and --%s exclude each other: name an allocation, or --workspace and --period", flag)
					}
				}
				return a.explainAllocation(cmd.Context(), app.At(asOf), args[0], raw)
			}
			switch {
			case raw:
				return commandline.Usagef("--raw shows the row of one line: name an allocation")
			case q.Workspace == "" && period == "":
				return commandline.Usagef("name an allocation, or --workspace and --period; \"quartermaster costs allocations --period MONTH\" lists allocations")
			case q.Workspace == "":
				return commandline.Usagef("--period needs --workspace: a waterfall covers one workspace")
			case period == "":
				return commandline.Usagef("--workspace needs --period: a waterfall covers one billing month, for example 2026-05")
			case q.Largest < 0:
				return commandline.Usagef("--largest %d: want 0 or more", q.Largest)
			}
			switch q.Ledger = costs.Ledger(ledger); q.Ledger {
			case costs.Effective, costs.Billed:
			default:
				return commandline.Usagef("--ledger %q: want %s or %s", ledger, costs.Effective, costs.Billed)
			}
			var err error
			if q.Month, err = monthFlag("period", period); err != nil {
				return err
			}
			return a.explainCosts(cmd.Context(), app.At(asOf), q)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Workspace, "workspace", "", "explain the charges of this workspace; needs --period")
	f.StringVar(&period, "period", "", "billing month in UTC, for example 2026-05; needs --workspace")
	f.StringVar(&ledger, "ledger", string(costs.Effective), "ledger for order, shares and changes: effective or billed")
	f.IntVar(&q.Largest, "largest", 1, "largest allocations to name for each deployment")
	f.BoolVar(&raw, "raw", false, "show the row of the imported file, too")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) explainAllocation(ctx context.Context, at app.At, name string, raw bool) error {
	ref, err := attribution.ParseRef(name)
	if err != nil {
		return commandline.Usagef("%w; \"quartermaster costs allocations --period MONTH\" lists allocations; quote the allocation", err)
	}
	x, err := a.caller().ExplainAllocation(ctx, at, ref)
	if err != nil {
		return err
	}
	if raw {
		with := *x // an answer may be kept for others
		if with.Raw, err = a.caller().RawRow(ctx, x.Event); err != nil {
			return err
		}
		x = &with
	}
	if a.json {
		return a.answerReport(x)
	}
	a.showAllocation(x)
	return nil
}

func (a *Program) explainCosts(ctx context.Context, at app.At, q app.CostsExplained) error {
	w, err := a.caller().ExplainCosts(ctx, at, q)
	switch {
	case err != nil:
		return err
	case a.json:
		return a.answerReport(w)
	case len(w.Currencies) == 0:
		return a.noBills(ctx, at, w.Month, w.Workspace)
	}
	a.showWaterfall(w)
	return nil
}

func (a *Program) showWaterfall(w *costs.Waterfall) {
	fmt.Fprintf(a.out, "what %s is charged for %s, %s\n", clipped(w.Workspace), app.MonthName(w.Month), w.Ledger)
	if w.Generated {
		fmt.Fprintln(a.out, generatedNote)
	}
	if w.Before == nil {
		fmt.Fprintln(a.out, "the month before has no bills, so no change is shown")
	}
	for i := range w.Currencies {
		a.showSteps(w, &w.Currencies[i])
	}
	fmt.Fprintln(a.out)
	fmt.Fprintf(a.out, "method: %s on %s\nposition: %s\n", w.Methods.Attribution, w.Methods.Folds, a.position(w.Position))
	a.reportEnds(w.Completeness)
}

// shownStep is a step of a waterfall with the names of the steps above it. The first is a
// component.
type shownStep struct {
	*costs.Step
	path   []string
	hidden bool // the only part of the step above, without a name
}

// stepsBelow returns all steps below s, in depth-first pre-order.
func stepsBelow(s *costs.Step, above ...string) (all []shownStep) {
	for i := range s.Steps {
		n := &s.Steps[i]
		hidden := len(s.Steps) == 1 && n.Name == ""
		path := slices.Clone(above)
		if !hidden {
			path = append(path, clipped(cmp.Or(n.Name, costs.Blank(n.Level))))
		}
		all = append(append(all, shownStep{n, path, hidden}), stepsBelow(n, path...)...)
	}
	return all
}

// label returns the name of a step, indented by its depth.
func (s *shownStep) label() string {
	return strings.Repeat("  ", len(s.path)-1) + s.path[len(s.path)-1]
}

// showSteps shows the steps of a currency, the cost per GPU-hour of each component, and the
// largest allocations.
func (a *Program) showSteps(w *costs.Waterfall, whole *costs.Step) {
	steps := stepsBelow(whole)
	fmt.Fprintln(a.out)
	t := a.table("component, cluster, deployment", "currency", "cost", "share", "month before", "change", "change %")
	t.main = true
	alignRight(t, 3, 7)
	for _, s := range steps {
		if !s.hidden {
			t.AppendRow(append(table.Row{cell{s.label(), strings.Join(s.path, "/")}, s.Currency}, stepCells(s.Step, w.Ledger)...))
		}
	}
	if a.output != asCSV { // CSV has the steps of all currencies, without totals
		t.AppendSeparator()
		t.AppendRow(append(table.Row{"total", whole.Currency}, stepCells(whole, w.Ledger)...))
	}
	t.Render()

	fmt.Fprintln(a.out, "\nGPU-hours, and effective cost per GPU-hour bought, allocated and useful")
	t = a.table("component", "bought", "allocated", "useful", "per bought", "per allocated", "per useful")
	alignRight(t, 2, 7)
	for _, s := range steps {
		if s.Level == costs.ByComponent {
			t.AppendRow(append(table.Row{s.label()}, hourCells(&s.Cost)...))
		}
	}
	t.AppendSeparator()
	t.AppendRow(append(table.Row{"total"}, hourCells(&whole.Cost)...))
	t.Render()

	named := 0
	for _, s := range steps {
		for i := range s.Largest {
			if named == 0 {
				fmt.Fprintln(a.out, "\nlargest allocations, with the command that explains each")
			}
			if named++; named > shownRows {
				continue
			}
			l := &s.Largest[i]
			amount := l.Effective
			if w.Ledger == costs.Billed {
				amount = l.Billed
			}
			hour := l.Hour.String()
			if l.Hour == 0 {
				hour = "(whole period)"
			}
			fmt.Fprintf(a.out, "%s, %d of %s: %s %s, %s\n  quartermaster costs explain '%s'\n",
				strings.Join(s.path, " / "), i+1, comma(s.Allocations), exactly(amount, l.Currency), l.Currency, hour, l.Allocation)
		}
	}
	a.more(named)
}

// stepCells returns a step's amount, share and change.
func stepCells(s *costs.Step, of costs.Ledger) []any {
	amount := func(c *costs.Cost) cell {
		if of == costs.Billed {
			return cell{minorText(c.BilledMinor.Amount.Decimal(), c.Currency), c.Billed.String()}
		}
		return cell{minorText(c.EffectiveMinor.Amount.Decimal(), c.Currency), c.Effective.String()}
	}
	var share, before, change cell
	if s.Share != nil {
		share = cell{s.Share.StringFixed(2) + "%", s.Share.String()}
	}
	if s.Before != nil {
		before = amount(s.Before)
		minor := s.Change.Minor.Amount.Decimal()
		change = cell{signed(minor, minorText(minor, s.Currency)), s.Change.Amount.String()}
	}
	percent := cell{string(s.Change.PercentAbsent), ""}
	if p := s.Change.Percent; p != nil {
		percent = cell{signed(*p, p.StringFixed(1)+"%"), p.String()}
	}
	return []any{amount(&s.Cost), share, before, change, percent}
}

// signed prefixes positive numbers with a plus.
func signed(d domain.Decimal, text string) string {
	if d.IsPositive() {
		return "+" + text
	}
	return text
}

// hourCells returns GPU-hours and costs per GPU-hour.
func hourCells(c *costs.Cost) []any {
	useful := cell{string(costs.NotMeasured), ""}
	if c.Useful != nil {
		useful = hoursCell(*c.Useful)
	}
	return []any{
		hoursCell(c.Bought), hoursCell(c.Allocated), useful,
		rateCell(c.PerBought, c.PerBoughtAbsent), rateCell(c.PerAllocated, c.PerAllocatedAbsent), rateCell(c.PerUseful, c.PerUsefulAbsent),
	}
}

// rateCell shows a cost per GPU-hour, or why there is none.
func rateCell(amount *domain.Decimal, absent costs.Absent) cell {
	if amount == nil {
		return cell{string(absent), ""}
	}
	return cell{amount.StringFixed(4), amount.String()}
}
