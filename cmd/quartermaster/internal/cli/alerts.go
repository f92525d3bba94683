package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/advice"
)

func (a *Program) alertsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Incidents that need a person: list, show, acknowledge, silence",
		Long: `"quartermaster serve" evaluates the rules of "quartermaster advice" every five minutes, and keeps incidents in
the log. Findings with a common cause are one incident: a lost provider is one, and names its machines. An
incident closes when its figure is back beyond a margin. If it returns within a day, it is the same one.`,
	}
	cmd.AddCommand(a.alertsListCommand(), a.alertsShowCommand(), a.alertsAckCommand(), a.alertsSilenceCommand())
	return cmd
}

func (a *Program) alertsListCommand() *cobra.Command {
	var q app.AlertsQuery
	var at, since, asOf string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List open incidents, and the silences in force",
		Long:    `List shows incidents, the last opened first, with who deals with them and what keeps their notices back.`,
		Example: "  quartermaster alerts list\n  quartermaster alerts list --all --since 2026-05 --rule evidence -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := timeFlag("at", at, &q.At); err != nil {
				return err
			}
			if err := timeFlag("since", since, &q.Since); err != nil {
				return err
			}
			ans, err := a.caller().Alerts(cmd.Context(), app.At(asOf), q)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showAlerts(ans)
			a.showPosition(ans.Position)
			a.showProgram()
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&at, "at", "", "time of the answer: RFC 3339, a date or a month in UTC (default now)")
	f.StringVar(&q.Workspace, "workspace", "", "only incidents of this workspace")
	f.StringVar((*string)(&q.Rule), "rule", "", "only incidents that this rule found first")
	f.BoolVar(&q.All, "all", false, "those resolved within 30 days, too")
	f.StringVar(&since, "since", "", "with --all: those resolved since then, instead")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showAlerts(r *app.Alerts) {
	if len(r.Incidents) == 0 {
		fmt.Fprintln(a.out, "no incident")
	} else {
		t := a.table("incident", "state", "severity", "workspace", "opened", "about", "parts", "a month costs", "what", "who", "silenced until")
		for i := range r.Incidents {
			x := &r.Incidents[i]
			who, silenced := "", ""
			if n := len(x.Acknowledged); n > 0 {
				who = x.Acknowledged[n-1].Operator
			}
			if x.Silence != nil {
				silenced = moment(x.Silence.Until)
			}
			t.AppendRow(table.Row{
				x.ID, x.State, x.Case.Severity, x.Workspace, moment(x.Opened), x.Case.Subject.String(), incidentParts(&x.Case), joinMoney(x.Case.PerMonth),
				x.Case.Summary, who, silenced,
			})
		}
		t.Render()
	}
	for _, s := range r.Silences {
		what := "incident " + s.Incident
		if s.Incident == "" {
			what = "rule " + string(s.Rule)
			if s.Subject != "" {
				what += " about " + s.Subject
			}
		}
		fmt.Fprintf(a.out, "silent until %s: %s, by %s: %s\n", moment(s.Until), what, s.Operator, s.Reason)
	}
}

// showCases lists what incidents are made of, the most severe first.
func (a *Program) showCases(all []advice.Case) {
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(x, y advice.Case) int {
		return cmp.Compare(slices.Index(domain.Severities(), y.Severity), slices.Index(domain.Severities(), x.Severity))
	})
	t := a.table("rule", "severity", "about", "findings", "a month costs", "what")
	for i := range order {
		c := &order[i]
		t.AppendRow(table.Row{c.Rule, c.Severity, c.Subject.String(), comma(c.Of), joinMoney(c.PerMonth), c.Summary})
	}
	t.Render()
}

func (a *Program) alertsShowCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "show INCIDENT",
		Short: "Show an incident: cause, evidence, history and runbook",
		Long: `Show lists the findings of an incident as they were recorded, and as the rows have them now: what late
samples changed shows there, because an incident is never rewritten. Then follow its events and the runbook.`,
		Example: "  quartermaster alerts show i-0123456789abcdef",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ans, err := a.caller().Alert(cmd.Context(), app.At(asOf), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showAlert(ans)
			return nil
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showAlert(r *app.Alert) {
	x := &r.IncidentEntry
	fmt.Fprintf(a.out, "%s: %s, %s, of workspace %s\n%s\nabout: %s\n", x.ID, x.State, x.Case.Severity, x.Workspace, x.Case.Summary, x.Case.Subject)
	if x.Case.Parts > 0 {
		fmt.Fprintf(a.out, "parts: %s, for example %s\n", comma(x.Case.Parts), strings.Join(x.Case.Names, ", "))
	}
	if len(x.Case.PerMonth) > 0 {
		fmt.Fprintf(a.out, "a month of leaving it costs: %s\n", joinMoney(x.Case.PerMonth))
	}
	findings := func(title string, all []advice.Finding) {
		if len(all) == 0 {
			return
		}
		fmt.Fprintln(a.out, "\n"+title)
		t := a.table("rule", "status", "about", "value", "threshold", "set by", "window", "coverage", "same figure by")
		for i := range all {
			f := &all[i]
			t.AppendRow(table.Row{
				f.Rule, f.Status, f.Subject.String(), quantity(f.Value, f.Unit), quantity(f.Threshold, f.Unit), f.SetBy,
				moment(f.Window.From) + " to " + moment(f.Window.To), covering(f), "quartermaster " + f.Question.Command,
			})
		}
		t.Render()
	}
	findings(fmt.Sprintf("Findings at %s (%s in all):", moment(x.Changed), comma(x.Case.Of)), x.Case.Findings)
	findings(fmt.Sprintf("The same at %s:", moment(r.At)), r.Now)
	fmt.Fprintln(a.out, "\nHistory:")
	t := a.table("time", "event", "severity", "by", "what")
	for _, e := range x.Events {
		t.AppendRow(table.Row{moment(e.At), e.Type, e.Severity, e.Operator, e.Summary})
	}
	t.Render()
	fmt.Fprintf(a.out, "\n%s", r.Runbook)
	a.showPosition(r.Position)
	a.showProgram()
}

// alertDecision is what somebody decided about incidents.
type alertDecision struct {
	Incident  string         `json:"incident,omitempty"`
	Workspace string         `json:"workspace"`
	Silence   string         `json:"silence,omitempty"`
	Until     domain.Instant `json:"until,omitempty"`
	Note      string         `json:"note,omitempty"`
	Operator  string         `json:"operator,omitempty"` // who signed it
	DryRun    bool           `json:"dry_run"`
}

// decideAlert has a decision about incidents signed.
func (a *Program) decideAlert(ctx context.Context, key string, dryRun bool, draft app.Draft, ans alertDecision, did, would string) error {
	ans.DryRun, ans.Workspace = dryRun, draft.Events[0].Workspace
	var err error
	if ans.Operator, err = a.signed(ctx, key, dryRun, draft); err != nil {
		return err
	}
	if a.json {
		return a.answerJSON(ans)
	}
	if dryRun {
		fmt.Fprintf(a.out, "%s\nnothing appended: this was a dry run\n", would)
	} else {
		fmt.Fprintf(a.out, "%s, signed by %s\n", did, ans.Operator)
	}
	return nil
}

func (a *Program) alertsAckCommand() *cobra.Command {
	var note, key string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "ack INCIDENT",
		Short: "Say that you deal with an incident",
		Long:  `Ack records that whoever signs deals with an incident. It stays open until its figure is back.`,
		Example: "  quartermaster alerts ack i-0123456789abcdef --note \"the supplier knows\" --dry-run\n" +
			"  quartermaster alerts ack i-0123456789abcdef --note \"the supplier knows\"",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			x, draft, err := a.caller().Acknowledge(cmd.Context(), args[0], note)
			if err != nil {
				return err
			}
			return a.decideAlert(cmd.Context(), key, dryRun, draft, alertDecision{Incident: x.ID, Note: note},
				"acknowledged "+x.ID, "would acknowledge "+x.ID+": "+x.Case.Summary)
		},
	}
	f := cmd.Flags()
	f.StringVar(&note, "note", "", "what you do about it")
	f.BoolVar(&dryRun, "dry-run", false, "check everything and append nothing")
	keyFlag(cmd, &key)
	return cmd
}

func (a *Program) alertsSilenceCommand() *cobra.Command {
	var q app.SilenceQuery
	var until, key string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "silence --incident INCIDENT | --rule RULE",
		Short: "Keep the notices of an incident or a rule back until a time",
		Long: `Silence keeps notices back: of one incident, of all that a rule finds first, or of those about one subject, as
"alerts list" shows it. Incidents are kept in the log all the same. A silence of a workspace is about its
incidents; one of workspace platform is about all. A silence replaces an earlier one of the same.`,
		Example: "  quartermaster alerts silence --rule idle-window --until 2027-01-01 --reason \"known, and planned\" --dry-run\n" +
			"  quartermaster alerts silence --rule idle-window --until 2027-01-01 --reason \"known, and planned\"",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			if err := checkReason(q.Reason); err != nil {
				return err
			}
			if err := timeFlag("until", until, &q.Until); err != nil {
				return err
			}
			s, draft, err := a.caller().Silence(cmd.Context(), q)
			if err != nil {
				return err
			}
			what := fmt.Sprintf("%s until %s", s.Silence, s.Until)
			return a.decideAlert(cmd.Context(), key, dryRun, draft, alertDecision{Incident: s.Incident, Silence: s.Silence, Until: s.Until, Note: s.Reason},
				"silenced "+what, "would silence "+what)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Incident, "incident", "", "the incident")
	f.StringVar((*string)(&q.Rule), "rule", "", "the rule")
	f.StringVar(&q.Subject, "subject", "", "only incidents of the rule about this, as \"alerts list\" shows it")
	f.StringVar(&q.Workspace, "workspace", "", "only incidents of the rule in this workspace (default platform: all)")
	f.StringVar(&until, "until", "", "end of the silence: RFC 3339, a date or a month in UTC (required)")
	must(cmd.MarkFlagRequired("until"))
	reasonFlag(cmd, &q.Reason, &dryRun)
	keyFlag(cmd, &key)
	return cmd
}
