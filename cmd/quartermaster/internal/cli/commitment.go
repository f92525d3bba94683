package cli

import (
	"context"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) commitmentCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "commitment", Short: "Renew and end commitments; \"get commitments\" shows them"}
	var (
		r                                        app.Renewal
		until, from, hourly, upfront, notice, at string
		reason, key                              string
		dryRun                                   bool
	)
	renew := &cobra.Command{
		Use:   "renew NAME --until TIME",
		Short: "Record the renewal of a commitment and its price",
		Long: `Renew records that a commitment continues from its end, or from --from, until a time. Units
and hourly price default to those of the last term. Renew shows what changes and how much
money the new term commits.

An admin or finance operator must sign, with a limit that covers the new term.`,
		Example: "  quartermaster commitment renew cr-0a1b --until 2028-01-01 --hourly \"21.50 USD\" --notice-by 2027-10-01 --dry-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, x := range []struct {
				flag, text string
				at         *domain.Instant
			}{{"until", until, &r.To}, {"from", from, &r.From}, {"notice-by", notice, &r.NoticeBy}} {
				if err := timeFlag(x.flag, x.text, x.at); err != nil {
					return err
				}
			}
			for _, x := range []struct {
				flag, text string
				m          **domain.Money
			}{{"hourly", hourly, &r.Hourly}, {"upfront", upfront, &r.Upfront}} {
				if x.text == "" {
					continue
				}
				m, err := parseMoney(x.text)
				if err != nil {
					return commandline.Usagef("--%s: %w", x.flag, err)
				}
				*x.m = &m
			}
			return a.decideCommitment(cmd.Context(), key, dryRun, "renewed", func() (*app.CommitmentDecision, app.Draft, error) {
				return a.caller().RenewCommitment(cmd.Context(), args[0], r)
			})
		},
	}
	f := renew.Flags()
	f.StringVar(&until, "until", "", "when the new term ends (required)")
	must(renew.MarkFlagRequired("until"))
	f.StringVar(&from, "from", "", "when the new term begins (default the end of the commitment)")
	f.Uint32Var(&r.Units, "units", 0, "units (default as in the last term)")
	f.StringVar(&hourly, "hourly", "", "price of a unit and hour, for example \"21.50 USD\" (default as in the last term)")
	f.StringVar(&upfront, "upfront", "", "total upfront payment, for example \"10000 USD\"; required if the last term had one")
	f.StringVar(&notice, "notice-by", "", "deadline for stopping the next renewal")
	f.BoolVar(&dryRun, "dry-run", false, "show what would change and append nothing")
	keyFlag(renew, &key)

	end := &cobra.Command{
		Use:   "end NAME --reason TEXT",
		Short: "Record that a commitment ends before its term",
		Long: `End records that a commitment ends now, or at --at. It shows the remaining terms and the
hourly payments that are no longer due. It does not end the contract with the supplier.

An admin or finance operator must sign.`,
		Example: "  quartermaster commitment end cr-0a1b --at 2027-01-01 --reason \"returned to the supplier\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkReason(reason); err != nil {
				return err
			}
			var t domain.Instant
			if err := timeFlag("at", at, &t); err != nil {
				return err
			}
			return a.decideCommitment(cmd.Context(), key, dryRun, "ended", func() (*app.CommitmentDecision, app.Draft, error) {
				return a.caller().EndCommitment(cmd.Context(), args[0], t, reason)
			})
		},
	}
	end.Flags().StringVar(&at, "at", "", "when it ends (default now)")
	nodeFlags(end, &reason, &key, &dryRun)
	cmd.AddCommand(renew, end)
	return cmd
}

// timeFlag reads a time. An empty text leaves at unchanged.
func timeFlag(flag, text string, at *domain.Instant) (err error) {
	if text == "" {
		return nil
	}
	if *at, err = domain.ParseTime(text); err != nil {
		return commandline.Usagef("--%s: %w", flag, err)
	}
	return nil
}

// decideCommitment signs a drafted decision about a commitment and shows what changes.
func (a *Program) decideCommitment(ctx context.Context, key string, dryRun bool, done string, drafted func() (*app.CommitmentDecision, app.Draft, error)) error {
	if err := a.NotDemo(); err != nil {
		return err
	}
	var ans *app.CommitmentDecision
	by, at, err := a.change(ctx, key, dryRun, func() (draft app.Draft, err error) {
		ans, draft, err = drafted()
		return draft, err
	})
	if err != nil {
		return err
	}
	ans.Operator, ans.At, ans.Decided = by, at, !dryRun
	if a.json {
		return a.answerJSON(ans)
	}
	t := a.table("terms", "from", "to", "units", "hourly", "upfront", "notice by")
	for i := range ans.Before {
		x := &ans.Before[i]
		t.AppendRow(table.Row{"before", day(x.Term.From), day(x.Term.To), x.Units, x.Hourly, x.Upfront, day(x.NoticeBy)})
	}
	for i := range ans.After {
		x := &ans.After[i]
		t.AppendRow(table.Row{"after", day(x.Term.From), day(x.Term.To), x.Units, x.Hourly, x.Upfront, day(x.NoticeBy)})
	}
	t.Render()
	if len(ans.Commits) > 0 {
		fmt.Fprintf(a.out, "commits %s\n", moneys(ans.Commits))
	}
	if len(ans.Released) > 0 {
		fmt.Fprintf(a.out, "hourly payments no longer due: %s\n", moneys(ans.Released))
	}
	if dryRun {
		fmt.Fprintln(a.out, "nothing decided: this was a dry run")
		return nil
	}
	fmt.Fprintf(a.out, "commitment %s is %s, signed by %s\n", ans.Commitment, done, by)
	return nil
}
