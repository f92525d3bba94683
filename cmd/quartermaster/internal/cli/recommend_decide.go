package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/registry"
)

// recommendDecisions are the commands that bring a recommendation from a proposal to its outcome.
func (a *Program) recommendDecisions() []*cobra.Command {
	return []*cobra.Command{
		a.recommendProposeCommand(),
		a.recommendVerdictCommand(app.Approve, "Approve a recommendation", `Approve allows a recommendation to be carried out. Whoever proposed it cannot approve it, and an approver needs
a role and a limit that cover its cost. Above a sum it needs two people: its cost or its saving a month above
what a policy of kind second_approval says, by default 100000 in its currency. When it has its last approval,
its clusters get their commands, and for a purchase "recommend command" writes the order sheet.

An approval is refused where the recommendation expired, or the present figures and policies no longer give
it: then it must be proposed again. With --digest it is also refused where it says something else than it did
when you looked: "recommend show -o json" has the digest of its content.`),
		a.recommendVerdictCommand(app.Reject, "Reject a recommendation", `Reject closes a recommendation that waits. It can be proposed again. With --digest it is refused where the
recommendation says something else than it did when you looked.`),
		a.recommendVerdictCommand(app.Withdraw, "Take a recommendation back", `Withdraw takes a recommendation back, with the commands that no cluster has acknowledged. With --digest it is
refused where the recommendation says something else than it did when you looked.`),
		a.recommendCommandCommand(),
		a.recommendActuatedCommand(),
	}
}

// recommendDecision is what somebody decided about a recommendation.
type recommendDecision struct {
	Recommendation string         `json:"recommendation"`
	Workspace      string         `json:"workspace"`
	Kind           string         `json:"kind"`
	Did            string         `json:"did"`               // propose, approve, reject, withdraw, actuated
	Already        bool           `json:"already,omitempty"` // it was proposed before, and nothing was appended
	Stage          registry.Stage `json:"stage"`
	Approvals      int            `json:"approvals"`
	Needs          int            `json:"needs"`
	Commands       int            `json:"commands"` // that were issued
	Expires        domain.Instant `json:"expires,omitempty"`
	Supersedes     []string       `json:"supersedes,omitempty"`
	Operator       string         `json:"operator,omitempty"` // who signed it
	DryRun         bool           `json:"dry_run"`
}

// actingOperator returns the name of whoever will sign: drafts of recommendations name them.
func (a *Program) actingOperator(ctx context.Context, key string, dryRun bool) (string, error) {
	if dryRun && a.proposing == nil {
		ops, err := a.caller().Operators(ctx)
		if err != nil {
			return "", err
		}
		if len(ops) == 0 && key == "" {
			return app.Me(), nil
		}
		s, err := a.registered(ctx, ops, key)
		return s.name, err
	}
	s, err := a.signer(ctx, key)
	return s.name, err
}

// settle completes the answer to a decision by what the log says now.
func (a *Program) settle(ctx context.Context, ans *recommendDecision) error {
	if ans.DryRun || a.proposing != nil {
		return nil
	}
	if ans.Did == string(app.Approve) {
		if _, err := a.caller().IssueCommands(ctx, ans.Recommendation, app.Now()); err != nil {
			return err
		}
	}
	now, err := a.caller().Proposed(ctx, "", app.ProposedQuery{Workspace: ans.Workspace})
	if err != nil {
		return err
	}
	for i := range now.Proposals {
		if p := &now.Proposals[i]; p.Recommendation == ans.Recommendation {
			ans.Stage, ans.Approvals, ans.Needs, ans.Commands = p.Stage, len(p.Approvals), p.Needs, len(p.Commands)
		}
	}
	return nil
}

func (a *Program) recommendProposeCommand() *cobra.Command {
	var workspace, key string
	var files []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "propose [RECOMMENDATION]",
		Short: "Propose a recommendation for approval",
		Long: `Propose puts one of the recommendations of "advice actions" into the log, signed by whoever proposes it. It can
be approved until it expires, after 14 days if it says nothing else. What waits already and says the same is not proposed
twice. One of the same kind about the same machines or money supersedes an earlier one that waits.

With --file it proposes what a person wrote: a YAML or JSON document with kind and summary, and what else is
known of recommendation (its id), clusters, why_more, from, to, steps, cost, saving, saving_low, saving_high,
expires, plan, supersedes, incidents and findings. Money is "12.50 USD", a saving is that of a month.`,
		Example: "  quartermaster recommend propose r-0123456789abcdef\n  quartermaster recommend propose --file proposal.yaml --workspace research --dry-run\n" +
			"  quartermaster recommend propose --file proposal.yaml --workspace research",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			if len(files)+len(args) != 1 {
				return commandline.Usagef("name a recommendation or one --file, and not both")
			}
			if (len(files) == 0) != (workspace == "") {
				return commandline.Usagef("--file and --workspace go together")
			}
			ctx := cmd.Context()
			var made *domain.RecommendationMade
			if len(files) > 0 {
				text, err := a.ReadDocument(files[0], cmd.InOrStdin())
				if err != nil {
					return err
				}
				if made, err = parseProposal(files[0], text); err != nil {
					return err
				}
			}
			requester, err := a.actingOperator(ctx, key, dryRun)
			if err != nil {
				return err
			}
			var d *app.ProposalDraft
			if made != nil {
				made.Requester = requester
				d, err = a.caller().ProposeWritten(ctx, workspace, made)
			} else {
				d, err = a.caller().ProposeRecommendation(ctx, args[0], requester)
			}
			if err != nil {
				return err
			}
			ans := recommendDecision{
				Recommendation: d.Made.Recommendation, Workspace: d.Draft.Events[0].Workspace, Kind: d.Made.Kind, Did: "propose",
				Already: d.Already != nil, Stage: registry.StageProposed, Expires: d.Made.Expires, Supersedes: d.Made.Supersedes, DryRun: dryRun,
			}
			if d.Already == nil {
				if ans.Operator, err = a.signed(ctx, key, dryRun, d.Draft); err != nil {
					return err
				}
			} else {
				ans.Expires, ans.Supersedes = d.Already.Expires, d.Already.Supersedes
			}
			if err := a.settle(ctx, &ans); err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			switch {
			case ans.Already:
				fmt.Fprintf(a.out, "%s is %s already, until %s: nothing appended\n", ans.Recommendation, d.Already.Stage, moment(ans.Expires))
			case dryRun:
				fmt.Fprintf(a.out, "would propose %s: %s\nnothing appended: this was a dry run\n", ans.Recommendation, d.Made.Summary)
			default:
				fmt.Fprintf(a.out, "proposed %s until %s, signed by %s\n", ans.Recommendation, moment(ans.Expires), ans.Operator)
				for _, old := range ans.Supersedes {
					fmt.Fprintf(a.out, "supersedes %s\n", old)
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&files, "file", "f", nil, "document of a recommendation that a person wrote, YAML or JSON")
	f.StringVar(&workspace, "workspace", "", "workspace that the recommendation in the file is for")
	f.BoolVar(&dryRun, "dry-run", false, "check everything and append nothing")
	keyFlag(cmd, &key)
	return cmd
}

func (a *Program) recommendVerdictCommand(what app.Verdict, short, long string) *cobra.Command {
	var note, digest, key string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   string(what) + " RECOMMENDATION",
		Short: short,
		Long:  long,
		Example: fmt.Sprintf("  quartermaster recommend %[1]s r-0123456789abcdef --note \"as discussed\" --dry-run\n"+
			"  quartermaster recommend %[1]s r-0123456789abcdef --note \"as discussed\"", what),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			ctx := cmd.Context()
			operator, err := a.actingOperator(ctx, key, dryRun)
			if err != nil {
				return err
			}
			p, draft, err := a.caller().DecideRecommendation(ctx, args[0], what, note, digest, operator)
			if err != nil {
				return err
			}
			ans := recommendDecision{
				Recommendation: p.Recommendation, Workspace: p.Workspace, Kind: p.Kind, Did: string(what), Stage: p.Stage,
				Approvals: len(p.Approvals), Needs: p.Needs, Commands: len(p.Commands), Expires: p.Expires, DryRun: dryRun,
			}
			if ans.Operator, err = a.signed(ctx, key, dryRun, draft); err != nil {
				return err
			}
			if err := a.settle(ctx, &ans); err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			if dryRun {
				fmt.Fprintf(a.out, "would %s %s: %s\nnothing appended: this was a dry run\n", what, p.Recommendation, p.Summary)
				return nil
			}
			fmt.Fprintf(a.out, "%s: %s, signed by %s", p.Recommendation, ans.Stage, ans.Operator)
			if what == app.Approve {
				fmt.Fprintf(a.out, ", %d of %d approvals, %d commands", ans.Approvals, ans.Needs, ans.Commands)
			}
			fmt.Fprintln(a.out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&note, "note", "", "why")
	f.StringVar(&digest, "digest", "", "digest of what you were shown: refused if it says something else now (default whatever it says)")
	f.BoolVar(&dryRun, "dry-run", false, "check everything and append nothing")
	keyFlag(cmd, &key)
	return cmd
}

func (a *Program) recommendCommandCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "command RECOMMENDATION",
		Short: "Write what an approved recommendation asks for: an order sheet, or the commands of clusters",
		Long: `Command writes the order of an approved recommendation as JSON, with the signatures of its approvals and the
open commands of its clusters: for people who buy or renew, and for clusters that no program of theirs reaches.
Nothing is recorded: say what was done with "recommend actuated".`,
		Example: "  quartermaster recommend command r-0123456789abcdef --out order.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sheet, err := a.caller().CommandFile(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if out == "" {
				return a.answerJSON(sheet)
			}
			text, err := json.MarshalIndent(sheet, "", "  ")
			if err != nil {
				return err
			}
			if err := os.WriteFile(out, append(text, '\n'), 0o600); err != nil {
				return fmt.Errorf("write the order: %w", err)
			}
			fmt.Fprintf(a.out, "wrote the order of %s with %d commands and %d approvals to %s\n", args[0], len(sheet.Commands), len(sheet.Approvals), out)
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write; default standard output")
	return cmd
}

func (a *Program) recommendActuatedCommand() *cobra.Command {
	var did app.ByHand
	var key string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "actuated RECOMMENDATION --reference REFERENCE",
		Short: "Say that you carried a recommendation out, or why not",
		Long: `Actuated records, signed, what a person did for an approved recommendation: an order, a change or a ticket. It
is said once for each cluster; a cluster that takes commands says it by itself.`,
		Example: "  quartermaster recommend actuated r-0123456789abcdef --reference PO-1234 --dry-run\n" +
			"  quartermaster recommend actuated r-0123456789abcdef --reference PO-1234",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			ctx := cmd.Context()
			did.Recommendation = args[0]
			operator, err := a.actingOperator(ctx, key, dryRun)
			if err != nil {
				return err
			}
			p, draft, err := a.caller().ActuatedByHand(ctx, did, operator)
			if err != nil {
				return err
			}
			ans := recommendDecision{
				Recommendation: p.Recommendation, Workspace: p.Workspace, Kind: p.Kind, Did: "actuated", Stage: p.Stage,
				Approvals: len(p.Approvals), Needs: p.Needs, Commands: len(p.Commands), Expires: p.Expires, DryRun: dryRun,
			}
			if ans.Operator, err = a.signed(ctx, key, dryRun, draft); err != nil {
				return err
			}
			if err := a.settle(ctx, &ans); err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			if dryRun {
				fmt.Fprintf(a.out, "would record %s of %s\nnothing appended: this was a dry run\n", did.Result, p.Recommendation)
				return nil
			}
			fmt.Fprintf(a.out, "%s: %s, signed by %s\n", p.Recommendation, ans.Stage, ans.Operator)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&did.Cluster, "cluster", "", "cluster where it was done (default that of the recommendation, if it has one)")
	f.StringVar(&did.Reference, "reference", "", "of an order, a change or a ticket (required)")
	must(cmd.MarkFlagRequired("reference"))
	f.StringVar(&did.Result, "result", "done", "done, failed or refused")
	f.BoolVar(&dryRun, "dry-run", false, "check everything and append nothing")
	keyFlag(cmd, &key)
	return cmd
}

// showProposals lists recommendations in the log.
func (a *Program) showProposals(r *app.Proposed) {
	if len(r.Proposals) == 0 {
		fmt.Fprintln(a.out, "no recommendation was proposed")
		return
	}
	t := a.table("recommendation", "stage", "kind", "workspace", "clusters", "saves a month", "cost", "approvals", "proposed", "by", "what")
	for i := range r.Proposals {
		p := &r.Proposals[i]
		t.AppendRow(table.Row{
			p.Recommendation, p.Stage, p.Kind, p.Workspace, strings.Join(p.Clusters, ", "), priceOf(p.Saving), p.Cost.String(),
			fmt.Sprintf("%d of %d", len(p.Approvals), p.Needs), moment(p.Proposed), p.Requester, p.Summary,
		})
	}
	t.Render()
}

// showProposal shows a recommendation in the log, and how it went on.
func (a *Program) showProposal(p *registry.Proposal) {
	fmt.Fprintf(a.out, "%s: %s, %s, of workspace %s\n%s\n", p.Recommendation, p.Kind, p.Stage, p.Workspace, p.Summary)
	if p.Reason != "" {
		fmt.Fprintf(a.out, "because: %s\n", p.Reason)
	}
	if len(p.Clusters) > 0 {
		fmt.Fprintf(a.out, "clusters: %s\n", strings.Join(p.Clusters, ", "))
	}
	if p.From != "" || p.To != "" {
		fmt.Fprintf(a.out, "from: %s\nto: %s\n", p.From, p.To)
	}
	if p.Saving != nil {
		fmt.Fprintf(a.out, "saves a month: %s (from %s to %s)\n", p.Saving, p.SavingLow, p.SavingHigh)
	}
	fmt.Fprintf(a.out, "commits: %s\n", p.Cost)
	fmt.Fprintf(a.out, "approvals: %d of %d (limit %s, %s)\n", len(p.Approvals), p.Needs, p.Limit, cmp.Or(p.SetBy, "default"))
	t := a.table("time", "what", "by", "cluster", "result", "reference or note")
	t.AppendRow(table.Row{moment(p.Proposed), "proposed", p.Requester, "", "", ""})
	for _, x := range p.Approvals {
		t.AppendRow(table.Row{moment(x.Time), "approved", x.Operator, "", "", x.Note})
	}
	for _, x := range p.Commands {
		t.AppendRow(table.Row{moment(x.Issued), "command " + x.Command + " until " + moment(x.Expires), "a program", x.Cluster, x.Result, x.Reference})
	}
	for _, x := range p.Actuations {
		t.AppendRow(table.Row{moment(x.Time), "actuated", strings.Replace(x.Actor, ":", " ", 1), x.Cluster, x.Result, x.Reference})
	}
	if o := p.Outcome; o != nil {
		t.AppendRow(table.Row{moment(o.Time), "outcome", cmp.Or(strings.Replace(o.Actor, ":", " ", 1), "measured"), "", o.Outcome, o.Detail})
	}
	t.Render()
}
