package cli

import (
	"context"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections/registry"
)

// gapAnswer is the answer of "streams resolve".
type gapAnswer struct {
	registry.StreamGaps
	Reason   string `json:"reason"`
	Operator string `json:"operator,omitempty"`
	DryRun   bool   `json:"dry_run"`
}

func (a *Program) streamsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "streams", Short: "Streams with missing events"}
	var asOf string
	list := &cobra.Command{
		Use:   "list",
		Short: "List streams with missing events",
		Long: `List shows the streams that skipped sequence numbers: those events exist and have not arrived.
Reports say that they lack them. Events that a node reports as dropped, or that "streams resolve"
marks as lost, are not awaited.`,
		Example: "  quartermaster streams list\n  quartermaster streams list -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := a.caller().Streams(cmd.Context(), app.At(asOf))
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			if len(ans.Streams) == 0 {
				fmt.Fprintln(a.out, "no stream has missing events")
				return nil
			}
			t := a.table("partition", "source", "incarnation", "awaited", "from", "to")
			for _, g := range ans.Streams {
				t.AppendRow(table.Row{fmt.Sprintf("%s/%d", g.Topic, g.Partition), g.Source, g.Incarnation, g.Awaited, g.First, g.Last})
			}
			t.Render()
			return nil
		},
	}
	asOfFlag(list, &asOf)
	cmd.AddCommand(list, a.resolveGapCommand())
	return cmd
}

func (a *Program) resolveGapCommand() *cobra.Command {
	var (
		named        registry.StreamGaps
		reason, key  string
		lost, dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "resolve SOURCE --topic TOPIC --lost --reason TEXT",
		Short: "Mark the missing events of a stream as lost",
		Long: `Resolve ends the current gaps of a stream: reports no longer wait for the missing events. If one of
them arrives later, it counts.

--partition and --incarnation are needed if several streams of the source and topic have gaps;
"streams list" shows them. An admin or operator must sign.`,
		Example: "  quartermaster streams resolve node-reporter/lab/n1 --topic qm.telemetry --lost --reason \"the disk is gone\" --dry-run\n" +
			"  quartermaster streams resolve node-reporter/lab/n1 --topic qm.telemetry --incarnation 1777593600000000 --lost --reason \"the disk is gone\"",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			if !lost {
				return commandline.Usagef("give --lost to confirm that the events will never arrive")
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			named.Source = args[0]
			return a.resolveGap(cmd.Context(), named, reason, key, dryRun)
		},
	}
	f := cmd.Flags()
	f.StringVar((*string)(&named.Topic), "topic", "", "topic of the stream (required)")
	must(cmd.MarkFlagRequired("topic"))
	f.IntVar(&named.Partition, "partition", -1, "partition of the stream")
	f.Uint64Var(&named.Incarnation, "incarnation", 0, "incarnation of the stream")
	f.BoolVar(&lost, "lost", false, "the events will never arrive")
	reasonFlag(cmd, &reason, &dryRun)
	keyFlag(cmd, &key)
	return cmd
}

// resolveGap has the gaps of a stream marked as lost.
func (a *Program) resolveGap(ctx context.Context, named registry.StreamGaps, reason, key string, dryRun bool) error {
	g, draft, err := a.caller().ResolveGap(ctx, named, reason)
	if err != nil {
		return err
	}
	ans := gapAnswer{StreamGaps: *g, Reason: reason, DryRun: dryRun}
	if ans.Operator, err = a.signed(ctx, key, dryRun, draft); err != nil {
		return err
	}
	if a.json {
		return a.answerJSON(ans)
	}
	what := fmt.Sprintf("%s events of %s in %s/%d, sequences %d to %d", comma(int(min(g.Awaited, 1<<62))), g.Source, g.Topic, g.Partition, g.First, g.Last)
	if dryRun {
		fmt.Fprintf(a.out, "would mark as lost %s\nnothing appended: this was a dry run\n", what)
		return nil
	}
	fmt.Fprintf(a.out, "lost: %s, signed by %s\n", what, ans.Operator)
	return nil
}
