package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/deploy/runbooks"
	"quartermaster/domain"
	"quartermaster/domain/advice"
)

func (a *Program) adviceCommand() *cobra.Command {
	var (
		q        app.AdviceQuery
		at, asOf string
		all      bool
		limit    int
	)
	cmd := &cobra.Command{
		Use:   "advice",
		Short: "What the rules find: where money and capacity are lost, and what is not known",
		Long: `Advice judges the figures of the fleet by its rules. A finding names its measured value, the threshold and
who set it, the window, the coverage of its telemetry, what a month (730 hours) of leaving it costs in the
effective ledger, and the command that gives the same figure.

  firing   beyond the threshold
  holding  back within it, but not far enough to close an incident
  unknown  too little was observed to say

"advice rules" lists the rules with their thresholds. A policy of kind advice_threshold sets another
threshold for a workspace, a cluster or a class, by "quartermaster apply". "quartermaster serve" evaluates
the rules every five minutes and keeps incidents in the log: see "quartermaster alerts".`,
		Example: "  quartermaster advice\n  quartermaster advice --at 2026-06-01 --rule utilization-day -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := timeFlag("at", at, &q.At); err != nil {
				return err
			}
			if limit < 0 {
				return commandline.Usagef("--limit %d: want 0 or more", limit)
			}
			ans, err := a.caller().Advice(cmd.Context(), app.At(asOf), q)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(ans)
			}
			a.showAdvice(ans, all, limit)
			a.showPosition(ans.Position)
			a.reportEnds(ans.Completeness)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&at, "at", "", "time of the answer: RFC 3339, a date or a month in UTC (default now)")
	f.StringVar(&q.Workspace, "workspace", "", "only findings that this workspace answers for")
	f.StringVar(&q.Cluster, "cluster", "", "only findings about this cluster and its parts")
	f.StringVar((*string)(&q.Rule), "rule", "", "only findings of this rule")
	f.IntVar(&limit, "limit", 40, "findings to list; JSON has all")
	f.BoolVar(&all, "all", false, "list holding and unknown findings, too; JSON has all")
	asOfFlag(cmd, &asOf)
	cmd.AddCommand(a.adviceActionsCommand(), a.adviceRulesCommand(), a.adviceTryCommand(), a.adviceReplayCommand(), a.adviceScoreCommand(), a.adviceWasteCommand())
	return cmd
}

func (a *Program) showAdvice(r *app.Advice, all bool, limit int) {
	t := a.table("rule", "severity", "about", "value", "threshold", "coverage", "a month costs", "what")
	t.SetColumnConfigs(rightFrom(4, 7))
	shown, held, unknown := 0, 0, 0
	for i := range r.Findings {
		f := &r.Findings[i]
		switch f.Status {
		case advice.Holding:
			held++
		case advice.Unknown:
			unknown++
		}
		if f.Status != advice.Firing && !all {
			continue
		}
		if shown++; shown > limit {
			continue
		}
		severity := string(f.Severity)
		if f.Status != advice.Firing {
			severity = string(f.Status)
		}
		t.AppendRow(table.Row{
			f.Rule, severity, f.Subject.String(), quantity(f.Value, f.Unit), quantity(f.Threshold, f.Unit), covering(f),
			priceOf(f.PerMonth), f.Summary,
		})
	}
	if shown == 0 {
		fmt.Fprintln(a.out, "no finding")
	} else {
		t.Render()
	}
	if shown > limit {
		fmt.Fprintf(a.out, "and %s more; see --limit or --rule\n", comma(shown-limit))
	}
	if !all && held+unknown > 0 {
		fmt.Fprintf(a.out, "and %s holding, %s unknown: see --all\n", comma(held), comma(unknown))
	}
}

// quantity shows a value in its unit.
func quantity(d domain.Decimal, unit advice.Unit) string {
	switch unit {
	case advice.Share:
		return d.Shift(2).Round(1).String() + "%"
	case advice.Percent:
		return d.Round(1).String() + "%"
	case advice.Days:
		return d.Round(1).String() + " days"
	case advice.Hours:
		return d.Round(0).String() + " h"
	case advice.Micros:
		return d.Shift(-3).Round(0).String() + " ms"
	case advice.Chance:
		return d.Round(6).String()
	}
	return d.Round(2).String()
}

func covering(f *advice.Finding) string {
	if !f.Coverage.Valid {
		return ""
	}
	return f.Coverage.Decimal.Shift(2).Round(1).String() + "%"
}

func priceOf(m *domain.Money) string {
	if m == nil {
		return ""
	}
	return m.Amount.StringFixed(2) + " " + m.Currency
}

// ruleAnswer is a rule with its default threshold.
type ruleAnswer struct {
	advice.Rule
	Runbook string `json:"runbook"` // the command that shows it
}

// rulesAnswer lists the rules.
type rulesAnswer struct {
	Method string       `json:"method"`
	Rules  []ruleAnswer `json:"rules"`
}

func (a *Program) adviceRulesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rules",
		Short: "List the rules with their default thresholds and sources",
		Long: `Rules lists every rule: what it measures over which window, its default threshold and where that is from,
the least coverage of telemetry, and what ends a finding. Policies of kind advice_threshold set other
thresholds; "quartermaster get policies" lists those in force.`,
		Example: "  quartermaster advice rules\n  quartermaster advice rules -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ans := rulesAnswer{Method: advice.Method}
			for _, r := range advice.Rules() {
				ans.Rules = append(ans.Rules, ruleAnswer{r, "quartermaster runbook " + string(r.ID)})
			}
			if a.json {
				return a.answerJSON(ans)
			}
			t := a.table("rule", "severity", "fires", "over", "coverage", "measures", "source of the threshold", "action")
			for _, r := range ans.Rules {
				side := map[advice.Side]string{advice.Above: "above ", advice.Below: "below ", advice.Least: "from "}[r.Side]
				t.AppendRow(table.Row{
					r.ID, r.Severity, side + quantity(r.Threshold, r.Unit), time.Duration(r.Window).String(),
					quantity(r.Coverage, advice.Share), r.Title, r.Source, r.Action,
				})
			}
			t.Render()
			return nil
		},
	}
}

func (a *Program) adviceTryCommand() *cobra.Command {
	var (
		from, to, asOf string
		step           time.Duration
		files          []string
		period         domain.Interval
	)
	cmd := &cobra.Command{
		Use:   "try --from TIME --to TIME",
		Short: "Show what rules would have found in the past, and how often",
		Long: `Try evaluates the rules for past ticks and counts how often each fired, about what, and how many incidents
it would have opened. With --file, the policies of kind advice_threshold of a file count as if they were in
force, whatever their dates. Nothing is recorded.

The figures are those known at --as-of, so late samples count, where an incident of the time did not have
them yet.`,
		Example: "  quartermaster advice try --from 2026-05-31 --to 2026-06-01 --step 6h\n" +
			"  quartermaster advice try -f thresholds.yaml --from 2026-05-31 --to 2026-06-01 --step 6h -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(timeFlag("from", from, &period.From), timeFlag("to", to, &period.To)); err != nil {
				return err
			}
			var declared *app.Declarations
			if len(files) > 0 {
				var err error
				if declared, err = a.readDeclarations(files); err != nil {
					return err
				}
			}
			ans, err := a.caller().TryAdvice(cmd.Context(), app.At(asOf), period, domain.Instant(step), declared)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			t := a.table("rule", "ticks fired", "ticks unknown", "incidents", "about", "fired", "first", "last")
			shown := 0
			for _, r := range ans.Rules {
				if r.Fired == 0 && r.Unknown == 0 {
					continue
				}
				shown++
				t.AppendRow(table.Row{r.Rule, comma(r.Fired), comma(r.Unknown), comma(r.Incidents)})
				for _, s := range r.Subjects {
					t.AppendRow(table.Row{"", "", "", "", s.Subject, comma(s.Fired), moment(s.First), moment(s.Last)})
				}
			}
			if shown == 0 {
				fmt.Fprintf(a.out, "no rule would have fired in %s ticks\n", comma(ans.Ticks))
			} else {
				t.Render()
				fmt.Fprintf(a.out, "%s ticks, every %s\n", comma(ans.Ticks), ans.Step)
			}
			a.showPosition(ans.Position)
			a.showProgram()
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "first tick: RFC 3339, a date or a month in UTC (required)")
	f.StringVar(&to, "to", "", "end, not included (required)")
	f.DurationVar(&step, "step", time.Hour, "time between ticks, in whole ticks of 5 minutes")
	f.StringSliceVarP(&files, "file", "f", nil, "file with policies of kind advice_threshold that are not applied, YAML or JSON")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("from"))
	must(cmd.MarkFlagRequired("to"))
	return cmd
}

func (a *Program) adviceReplayCommand() *cobra.Command {
	var (
		from, to string
		period   domain.Interval
	)
	cmd := &cobra.Command{
		Use:   "replay --from TIME --to TIME",
		Short: "Evaluate past ticks again, and compare the incidents in the log",
		Long: `Replay evaluates every tick that changed an incident again, from the log up to the position that its events
name, and compares what the rules give with what is in the log. It exits with 1 if they differ: the log was
written by other rules, or by somebody else.`,
		Example: "  quartermaster advice replay --from 2026-05 --to 2026-07",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(timeFlag("from", from, &period.From), timeFlag("to", to, &period.To)); err != nil {
				return err
			}
			ans, err := a.caller().ReplayAdvice(cmd.Context(), period, nil)
			if err != nil {
				return err
			}
			if a.json {
				err = a.answerJSON(ans)
			} else {
				for _, d := range ans.Differences {
					fmt.Fprintf(a.out, "%s of incident %s at %s: %s\n", d.Type, d.Incident, d.Tick, d.Problem)
				}
				fmt.Fprintf(a.out, "%s events of %s ticks, %s differences\n", comma(ans.Events), comma(ans.Ticks), comma(len(ans.Differences)))
				if ans.Interrupted > 0 {
					fmt.Fprintf(a.out, "%s ticks were cut off, and the next one made up for them\n", comma(ans.Interrupted))
				}
			}
			if err == nil && !ans.Equal {
				err = &failed{why: "the incidents in the log are not what the rules give"}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "first tick: RFC 3339, a date or a month in UTC (required)")
	f.StringVar(&to, "to", "", "end, not included (required)")
	must(cmd.MarkFlagRequired("from"))
	must(cmd.MarkFlagRequired("to"))
	return cmd
}

func (a *Program) adviceWasteCommand() *cobra.Command {
	var period, asOf string
	var limit int
	cmd := &cobra.Command{
		Use:   "waste --period MONTH",
		Short: "What was paid for in a month and was not useful, ranked by money",
		Long: `Waste splits a month's effective cost by component, workspace and cluster, and says what of each was not
useful: time without a holder, failures, unused commitments, machines that nobody saw, and of time with a
holder what its activity did not use. The parts do not overlap, so they add up to at most what was paid.
What was not measured is named beside it, and is not called waste.`,
		Example: "  quartermaster advice waste --period 2026-05\n  quartermaster advice waste --period 2026-05 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			month, err := monthFlag("period", period)
			if err != nil {
				return err
			}
			if limit < 0 {
				return commandline.Usagef("--limit %d: want 0 or more", limit)
			}
			ans, err := a.caller().Waste(cmd.Context(), app.At(asOf), month)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(ans)
			}
			t := a.table("component", "workspace", "cluster", "paid", "wasted", "not measured", "currency", "action")
			t.SetColumnConfigs(rightFrom(4, 6))
			for _, r := range ans.Rows[:min(limit, len(ans.Rows))] {
				t.AppendRow(table.Row{r.Component, r.Workspace, r.Cluster, r.Paid.StringFixed(2), r.Wasted.StringFixed(2), r.Unmeasured.StringFixed(2), r.Currency, r.Action})
			}
			t.Render()
			if n := len(ans.Rows) - limit; n > 0 {
				fmt.Fprintf(a.out, "and %s more; see --limit\n", comma(n))
			}
			for _, sum := range ans.Totals {
				fmt.Fprintf(a.out, "of %s %s paid, %s were wasted and %s not measured\n", sum.Paid.StringFixed(2), sum.Currency, sum.Wasted.StringFixed(2), sum.Unmeasured.StringFixed(2))
			}
			a.showPosition(ans.Position)
			a.reportEnds(ans.Completeness)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "billing month in UTC, for example 2026-05 (required)")
	f.IntVar(&limit, "limit", 20, "rows to list; JSON has all")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	return cmd
}

// runbookAnswer is the runbook of a rule.
type runbookAnswer struct {
	Rule    string `json:"rule"`
	Runbook string `json:"runbook"` // Markdown
}

func (a *Program) runbookCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "runbook RULE",
		Short: "Show the runbook of a rule",
		Long: `Runbook shows what a finding of a rule means, how to look at it, and what ends it, as Markdown. It is the
same for every provider. "quartermaster advice rules" lists the rules.`,
		Example: "  quartermaster runbook utilization-day",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := app.KnownRule(args[0]); err != nil {
				return err
			}
			text, err := runbooks.Of(args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(runbookAnswer{args[0], text})
			}
			fmt.Fprint(a.out, text)
			return nil
		},
	}
}

// incidentParts says how many parts an incident has.
func incidentParts(c *advice.Case) string {
	if c.Parts == 0 {
		return ""
	}
	return strconv.Itoa(c.Parts)
}

// joinMoney joins amounts with two decimals.
func joinMoney(all []domain.Money) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = priceOf(&all[i])
	}
	return strings.Join(texts, ", ")
}
