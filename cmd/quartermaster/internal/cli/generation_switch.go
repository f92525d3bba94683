package cli

import (
	"context"
	"fmt"

	"quartermaster/cmd/quartermaster/internal/app"

	"github.com/spf13/cobra"
)

// switchFlags are the flags of "generation switch".
type switchFlags struct {
	app.SwitchQuery
	key string
}

func (a *Program) generationSwitchCommand() *cobra.Command {
	var f switchFlags
	cmd := &cobra.Command{
		Use:   "switch NAME --reason TEXT",
		Short: "Make another generation active",
		Long: `Switch makes a live generation the active one, which every command reads. Reads in progress
finish on the previous generation. To undo a switch, switch back before the previous generation
is dropped.

A switch is a decision: an admin or operator signs it. The log keeps who switched, when, why,
and the digest of the new rows at their position. One transaction stores the new active
generation and the signed event; then the event is appended to the log. If appending fails,
run the same command again.

If the log has diverged from the active generation, or other folds made that generation, switch
first replays the log in memory. It switches only if the digest of the replay equals that of the
new rows. With --digest it compares the digest of a replay that was made elsewhere instead.`,
		Example: "  quartermaster generation switch b --reason \"power cut on 11 May\" --config quartermaster.yaml\n" +
			"  quartermaster generation switch b --reason \"new folds\" --key ana.pem --config quartermaster.yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkReason(f.Reason); err != nil {
				return err
			}
			f.To = args[0]
			ans, err := a.switchTo(cmd.Context(), f.SwitchQuery, f.key)
			if err != nil {
				return err
			}
			a.Lacks = false // the switch replaces the stopped partitions
			return a.showSwitch(ans)
		},
	}
	cmd.Flags().StringVar(&f.Reason, "reason", "", "reason, kept in the log (required)")
	must(cmd.MarkFlagRequired("reason"))
	cmd.Flags().StringVar(&f.Digest, "digest", "", "SHA-256 from a replay of the log elsewhere")
	keyFlag(cmd, &f.key)
	return cmd
}

// switchTo signs the switch to another generation and makes it.
func (a *Program) switchTo(ctx context.Context, q app.SwitchQuery, keyPath string) (*app.Switched, error) {
	ans, draft, err := a.caller().Switch(ctx, q)
	if err != nil || len(draft.Events) == 0 {
		return ans, err
	}
	s, err := a.signer(ctx, keyPath)
	if err != nil {
		return nil, err
	}
	draft.As = s.name
	draft.DryRun = true // DecideSwitch appends the event
	p, err := a.caller().Propose(ctx, draft, s.public)
	if err != nil {
		return nil, err
	}
	return ans, a.caller().DecideSwitch(ctx, ans, p, p.Sign(s.key))
}

func (a *Program) showSwitch(ans *app.Switched) error {
	if a.json {
		return a.answerJSON(ans)
	}
	if ans.Finished {
		fmt.Fprintln(a.out, "the event of the previous switch was missing from the log and is now appended")
	}
	if ans.Active == ans.Before {
		fmt.Fprintf(a.out, "generation %s is already active\n", ans.Active)
		return nil
	}
	fmt.Fprintf(a.out, "generation %s is active now; before it was %s; signed by %s\n", ans.Active, ans.Before, ans.Operator)
	fmt.Fprintf(a.out, "position  %s\ndigest    %s\n", ans.Position, ans.Digest)
	if ans.Replayed {
		fmt.Fprintln(a.out, "a replay of the log gives the same digest")
	}
	for _, l := range ans.Lost {
		fmt.Fprintf(a.out, "lost: %s/%d from offset %d or earlier, up to but not including %d\n", l.Topic, l.Partition, l.Since, l.Position)
	}
	return nil
}
