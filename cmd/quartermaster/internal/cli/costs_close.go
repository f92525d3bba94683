package cli

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/keyfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/registry"
)

func (a *Program) costCloseCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "close",
		Short: "Close a month's books by two people, and list the closes",
		Long: `Close lists the months that somebody proposed to close or that are closed. One whose allocations
cannot be read, because its proposal names others than its position gives or because a file was
lost, is listed with its problem.

Books are closed in two steps. One operator prepares the close: the month is checked and divided,
and its allocations are kept in a file that the proposal names by its digest. Another operator,
with another key, approves it. From then on, "quartermaster costs" answers for the month from those
allocations, whatever arrives later. A closed month is never opened again.

Months are closed one after the other. The first close begins the books.`,
		Example: "  quartermaster costs close\n" +
			"  quartermaster costs close show --month 2026-05\n" +
			"  quartermaster costs close prepare --month 2026-05 --dry-run",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.caller().Closes(cmd.Context(), app.At(asOf))
			if err != nil {
				return err
			}
			if a.json {
				return jsonLines(a, all)
			}
			if len(all) == 0 {
				fmt.Fprintln(a.out, "no month is closed, and nobody proposed to close one")
				return nil
			}
			t := a.table("month", "state", "prepared by", "approved by", "closed", "allocations", "billed", "digest")
			for i := range all {
				c := &all[i]
				approved, closed := "", ""
				if c.Approved != nil {
					approved = c.Approved.Operator
				}
				if c.Closed != nil {
					closed = c.Closed.At.String()
				}
				t.AppendRow(table.Row{app.MonthName(c.Month), c.State, clipped(c.Prepared.Operator), clipped(approved), closed, comma(c.Allocations), totalsText(c.Totals), c.Digest[:12]})
			}
			t.Render()
			for i := range all {
				a.showCloseProblem(&all[i])
			}
			return nil
		},
	}
	asOfFlag(cmd, &asOf)
	cmd.AddCommand(a.costCloseShowCommand(), a.costClosePrepareCommand(), a.costCloseApproveCommand())
	return cmd
}

// bookMonthFlag adds --month, which is required.
func bookMonthFlag(cmd *cobra.Command, month *string) {
	cmd.Flags().StringVar(month, "month", "", "billing month in UTC, for example 2026-05 (required)")
	must(cmd.MarkFlagRequired("month"))
}

func (a *Program) costCloseShowCommand() *cobra.Command {
	var month, asOf string
	cmd := &cobra.Command{
		Use:     "show --month MONTH",
		Short:   "Show the close of a month, or what stands against it",
		Example: "  quartermaster costs close show --month 2026-05",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := monthFlag("month", month)
			if err != nil {
				return err
			}
			c, err := a.caller().Closing(cmd.Context(), app.At(asOf), m)
			if err != nil {
				return err
			}
			return a.showClose(c)
		},
	}
	bookMonthFlag(cmd, &month)
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) costClosePrepareCommand() *cobra.Command {
	var month, digest, key string
	var accept []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prepare --month MONTH",
		Short: "Check a month and propose to close it",
		Long: `Prepare goes through the checklist, keeps the month's allocations, and signs a proposal that names
them by digest. Another operator then approves it.

  order            months are closed one after the other
  ended            no observation of the month is accepted any more
  invoices         every invoice was received and equals its lines
  uninvoiced       every line names an invoice
  missing          every account that was billed or accrued the month before has lines, or an accrual
  accruals         nothing is estimated
  billing_periods  suppliers said that they change nothing more
  rates            every currency has a rate in that of the books
  quarantine       no record that may concern the month is in quarantine
  gaps             every event arrived
  unregistered     every machine that reported is registered
  telemetry        every hour that was paid for was observed
  exceptions       there are none
  generated        every line is from a supplier
  closed_months    every invoice of a closed month still equals its lines
  before_books     nothing came for a month before the first closed one

Order, invoices and rates must be met. Other findings can be accepted with --accept CHECK=REASON.
The reason is part of the proposal, so whoever approves it sees it. A refused attempt is recorded
in the log (AccessDenied).

An admin or finance operator of the root's workspace must sign.`,
		Example: "  quartermaster costs close prepare --month 2026-05 --dry-run\n" +
			"  quartermaster costs close prepare --month 2026-05 --accept exceptions=\"two machines of a trial, see ticket 12\"",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := monthFlag("month", month)
			if err != nil {
				return err
			}
			reasons := map[string]string{}
			for _, s := range accept {
				check, reason, _ := strings.Cut(s, "=")
				if strings.TrimSpace(reason) == "" || reasons[check] != "" {
					return commandline.Usagef("--accept %q: want CHECK=REASON, each check once", s)
				}
				reasons[check] = reason
			}
			return a.decideClose(cmd, key, "", dryRun, "close prepare", m, func() (*app.BooksClose, app.Draft, error) {
				return a.caller().PrepareClose(cmd.Context(), m, reasons, digest, dryRun)
			})
		},
	}
	bookMonthFlag(cmd, &month)
	f := cmd.Flags()
	f.StringArrayVar(&accept, "accept", nil, "accept a finding: `check=reason`; repeat it for more checks")
	closeDigestFlag(cmd, &digest)
	f.BoolVar(&dryRun, "dry-run", false, "show what stands against the close, and propose nothing")
	keyFlag(cmd, &key)
	return cmd
}

func (a *Program) costCloseApproveCommand() *cobra.Command {
	var month, digest, key, checkpoint string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "approve --month MONTH",
		Short: "Approve a proposed close, as a second person, and close the books",
		Long: `Approve signs the last proposal to close a month, and closes its books. The signer must not be the
operator who prepared it, nor use the same key. Before that, the allocations are compared with their
digest and with the totals of the proposal. A refused attempt is recorded in the log (AccessDenied).

Approve says which lines of the month came or changed since it was prepared. They are not in the close, and are
posted into the open period. Prepare again to close the month with them.

With --checkpoint-key everything is archived then, and a checkpoint of it is signed, as "archive run
--all --key" does, and noted in the log. It covers the close and all that it stands on.

With a database, the SQL views posted_allocations, posted_units, statements and statements_due then have the month.

An admin or finance operator of the root's workspace must sign.`,
		Example: "  quartermaster costs close approve --month 2026-05 --key second.pem\n" +
			"  quartermaster costs close approve --month 2026-05 --key second.pem --checkpoint-key checkpoint.key",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := monthFlag("month", month)
			if err != nil {
				return err
			}
			return a.decideClose(cmd, key, checkpoint, dryRun, "close approve", m, func() (*app.BooksClose, app.Draft, error) {
				return a.caller().ApproveClose(cmd.Context(), m, digest)
			})
		},
	}
	bookMonthFlag(cmd, &month)
	f := cmd.Flags()
	closeDigestFlag(cmd, &digest)
	f.BoolVar(&dryRun, "dry-run", false, "show what would be approved, and close nothing")
	f.StringVar(&checkpoint, "checkpoint-key", "", "private key file that signs a checkpoint of the closed books (default none)")
	keyFlag(cmd, &key)
	return cmd
}

func closeDigestFlag(cmd *cobra.Command, digest *string) {
	cmd.Flags().StringVar(digest, "digest", "", "digest of the allocations that you were shown: refused if there are others now (default whatever there are)")
}

// decideClose signs a step of a close. If it is refused, the attempt is recorded. The key of checkpoints may be "".
func (a *Program) decideClose(cmd *cobra.Command, key, checkpoint string, dryRun bool, action string, month domain.Interval, drafted func() (*app.BooksClose, app.Draft, error)) error {
	if err := a.NotDemo(); err != nil {
		return err
	}
	ctx := cmd.Context()
	var sign ed25519.PrivateKey
	if checkpoint != "" {
		var err error
		if sign, err = keyfile.Load(checkpoint); err != nil {
			return err
		}
	}
	var out *app.BooksClose
	_, _, err := a.change(ctx, key, dryRun, func() (draft app.Draft, err error) {
		out, draft, err = drafted()
		return draft, err
	})
	var denied *app.DeniedError
	var conflict *app.ConflictError
	if errors.As(err, &denied) || errors.As(err, &conflict) {
		undecided := dryRun || a.proposing != nil
		if undecided && out != nil { // what stands against the close is the answer
			if shown := a.showClose(out); shown != nil {
				return shown
			}
			if a.json && a.proposing == nil {
				return &failed{why: Worded(err), code: exitOf(err)}
			}
		}
		if undecided {
			return err
		}
		return a.caller().CloseRefused(ctx, a.whose(key), action, month, err)
	}
	if err != nil {
		return err
	}
	if !dryRun && a.proposing == nil {
		if out, err = a.caller().Closing(ctx, "", month); err != nil {
			return err
		}
		if sign != nil {
			if out.Checkpoint, err = a.caller().Archive(ctx, true, sign); err != nil {
				return fmt.Errorf("the books of %s are closed, and no checkpoint was signed: %w", app.MonthName(month), err)
			}
		}
		if out.State == app.CloseDone {
			if _, err := a.caller().LoadBooks(ctx); err != nil {
				a.note("SQL does not show %s yet; \"quartermaster parts make\" loads it: %v", app.MonthName(month), err)
			}
		}
	}
	if err := a.showClose(out); err != nil || a.json || !dryRun {
		return err
	}
	fmt.Fprintln(a.out, "nothing decided: this was a dry run")
	return nil
}

// whose names the owner of a key for the record of a refused attempt: by the fingerprint of its public key, because
// the registry may not know it.
func (a *Program) whose(path string) string {
	key, _, err := a.ownKey(path)
	if err != nil {
		return "a key that cannot be read"
	}
	return registry.KeyName(key.Public().(ed25519.PublicKey))
}

// totalsText shows the billed totals of a close.
func totalsText(all []domain.BooksTotal) string {
	list := make([]string, len(all))
	for i, t := range all {
		list[i] = minorText(t.Billed, t.Currency) + " " + t.Currency
	}
	return strings.Join(list, ", ")
}

// showCloseProblem says why the allocations of a close cannot be read, if they cannot.
func (a *Program) showCloseProblem(c *app.BooksClose) {
	if c.Problem != "" {
		fmt.Fprintf(a.out, "problem of %s: %s\n", app.MonthName(c.Month), c.Problem)
	}
}

func (a *Program) showClose(c *app.BooksClose) error {
	if a.json {
		return a.answerJSON(c)
	}
	fmt.Fprintf(a.out, "%s is %s: %s allocations of %s lines\n", app.MonthName(c.Month), c.State, comma(c.Allocations), comma(c.Lines))
	a.showCloseProblem(c)
	t := a.table("check", "outcome", "found")
	for _, k := range c.Checks {
		found := k.Detail
		if k.Reason != "" {
			found += "; accepted: " + k.Reason
		}
		t.AppendRow(table.Row{k.Check, k.Outcome, domain.Clip(found, 3*widest)})
	}
	for _, f := range c.Against {
		outcome := "must be mended"
		if f.Acceptable {
			outcome = "accept or mend"
		}
		t.AppendRow(table.Row{f.Check, outcome, domain.Clip(f.Detail, 3*widest)})
	}
	t.Render()
	if len(c.Exceptions) > 0 {
		t := a.table("exception", "subject", "owner", "since")
		for i := range c.Exceptions {
			if e := &c.Exceptions[i]; i < shownRows {
				t.AppendRow(table.Row{e.Kind, clipped(e.Subject), e.Owner, day(e.Since)})
			}
		}
		t.Render()
		a.more(len(c.Exceptions))
	}
	t = a.table("currency", "billed", "effective")
	alignRight(t, 2, 3)
	for _, total := range c.Totals {
		t.AppendRow(table.Row{total.Currency, digitGroups(total.Billed.String()), digitGroups(total.Effective.String())})
	}
	t.Render()
	for _, total := range c.Translated {
		of := "in the books"
		if total.Entity != "" {
			of += " of " + clipped(total.Entity)
		}
		fmt.Fprintf(a.out, "%s: %s %s billed, %s effective\n", of, minorText(total.Billed, total.Currency), total.Currency, minorText(total.Effective, total.Currency))
	}
	a.showRates("", c.Rates)
	for _, s := range c.SincePrepared {
		fmt.Fprintf(a.out, "since it was prepared %s lines of the month came or changed, by %s %s: they are not in this close, and are posted into the open period\n",
			comma(s.Lines), digitGroups(s.Billed.String()), s.Currency)
	}
	for _, p := range []struct {
		what string
		by   *app.ClosePart
	}{{"prepared", c.Prepared}, {"approved", c.Approved}, {"closed", c.Closed}} {
		if p.by != nil {
			fmt.Fprintf(a.out, "%s by %s at %s\n", p.what, clipped(p.by.Operator), p.by.At)
		}
	}
	if len(c.Sums) > 0 {
		fmt.Fprintln(a.out, "posted into it about earlier closed months")
		a.showPostingSums(c.Sums)
	}
	for _, s := range c.Separation {
		fmt.Fprintf(a.out, "duties are not separate: %s\n", s)
	}
	if c.Digest != "" {
		fmt.Fprintf(a.out, "allocations: sha256 %s\n", c.Digest)
	}
	fmt.Fprintf(a.out, "method: %s on %s\nposition: %s\n", c.Methods.Attribution, c.Methods.Folds, a.position(c.Position))
	if c.Checkpoint != nil && c.Checkpoint.Checkpoint != nil {
		fmt.Fprintf(a.out, "a checkpoint of %s events was signed\n", humanize.Comma(*c.Checkpoint.Checkpoint))
	}
	if c.State == app.CloseProposed && c.Problem == "" {
		fmt.Fprintf(a.out, "another operator closes the books with: quartermaster costs close approve --month %s --key FILE\n", app.MonthName(c.Month))
	}
	return nil
}
