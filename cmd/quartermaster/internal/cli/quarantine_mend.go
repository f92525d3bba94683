package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) repairCommand() *cobra.Command {
	var (
		file, reason, key string
		dryRun            bool
	)
	cmd := &cobra.Command{
		Use:   "repair ID --event FILE --reason TEXT",
		Short: "Append the corrected event of a quarantined record",
		Long: `Repair appends a corrected event to the topic of the quarantined record, with a reference to that
record, and resolves the record. Reports then include the event, and are no longer incomplete
because of it.

FILE is one CloudEvents 1.0 event in JSON, as "quarantine show ID --event" and the key "event" of
"log export" contain it; - is standard input. You can change its content, but not its place: the
topic must be that of the record, and so must the key (the cluster, workspace, account or market).
If the record's key contradicts the event in it, the key is that of the event. Keys are
case-sensitive. Unknown and duplicate keys are rejected with their line.

The event becomes a new event in its own stream. source, id, incarnation, sequence, cites and the
signature in FILE are ignored; the signature covers the old bytes. If the event is a decision, you
decide it again now, and need the right to. The resolution is a decision too, which an admin or
operator can sign.

Repair appends the event only once, however often it is run or interrupted. If an earlier run only
appended the event, the same command finishes the work, also without --event.`,
		Example: "  quartermaster quarantine show qm.fleet/3@17 --event > event.json\n" +
			"  quartermaster quarantine repair qm.fleet/3@17 --event event.json --reason \"the serial number was cut off\" --dry-run\n" +
			"  quartermaster quarantine repair qm.fleet/3@17 --event event.json --reason \"the serial number was cut off\"",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			var mended *domain.Envelope
			if cmd.Flags().Changed("event") {
				var err error
				if mended, err = readEvent(file, cmd.InOrStdin()); err != nil {
					return err
				}
			}
			return a.repair(cmd.Context(), args[0], mended, file, reason, key, dryRun)
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "event", "", "file with the corrected event, - for standard input")
	reasonFlag(cmd, &reason, &dryRun)
	keyFlag(cmd, &key)
	return cmd
}

func (a *Program) discardCommand() *cobra.Command {
	var (
		reason, key string
		dryRun      bool
	)
	var filter quarantineFilter
	cmd := &cobra.Command{
		Use:   "discard [ID...] --reason TEXT",
		Short: "Discard quarantined records that cannot be repaired",
		Long: `Discard ends the quarantine of records that cannot be repaired. They stay in the log and in the
list, with who discarded them and why. Reports are no longer incomplete because of them. All records
are checked before any is resolved. An admin or operator must sign. Use "quarantine repair" for
records that can be corrected.

Name records by id, or by filters, which select all matching open records. --dry-run shows how many
there are.`,
		Example: "  quartermaster quarantine discard qm.telemetry/0@3 qm.telemetry/0@4 --reason \"a port scan, no events\"\n" +
			"  quartermaster quarantine discard --topic qm.telemetry --kind undecodable --until 2026-06 --reason \"a port scan\" --dry-run",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			if err := filter.read(); err != nil {
				return err
			}
			if (len(args) > 0) == filter.given() {
				return commandline.Usagef("name records either by id or by filters such as --topic, --kind and --since")
			}
			return a.discard(cmd.Context(), args, filter.QuarantineFilter, reason, key, dryRun)
		},
	}
	filter.flags(cmd)
	reasonFlag(cmd, &reason, &dryRun)
	keyFlag(cmd, &key)
	return cmd
}

func reasonFlag(cmd *cobra.Command, reason *string, dryRun *bool) {
	cmd.Flags().StringVar(reason, "reason", "", "reason, shown in lists (required)")
	must(cmd.MarkFlagRequired("reason"))
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "check everything and append nothing")
}

func checkReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return commandline.Usagef("--reason is empty: give a reason")
	}
	return nil
}

// readEvent reads a corrected event from a file, "-" for standard input.
func readEvent(path string, stdin io.Reader) (*domain.Envelope, error) {
	in, name := stdin, "standard input"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read event: %w", err)
		}
		defer f.Close()
		in, name = f, path
	}
	doc, err := io.ReadAll(io.LimitReader(in, wire.MaxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	env, err := wire.ReadCloudEvent(doc)
	var wrong *wire.DocumentError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return nil, fmt.Errorf("%s:%d: %s", name, wrong.Line, wrong.Problem)
	case errors.As(err, &wrong):
		return nil, fmt.Errorf("%s:%d: %s: %s", name, wrong.Line, wrong.Field, wrong.Problem)
	}
	return env, err
}

// repair has the corrected event of a record decided, and then its resolution.
func (a *Program) repair(ctx context.Context, id string, mended *domain.Envelope, file, reason, key string, dryRun bool) error {
	ans, err := a.caller().Repair(ctx, id, mended, reason)
	if invalid := (*app.InvalidError)(nil); errors.As(err, &invalid) && invalid.Field == "event" && mended != nil {
		return &app.InvalidError{Err: fmt.Errorf("%s: %w", file, invalid.Err)}
	}
	if err != nil {
		return err
	}
	if ans.DryRun = dryRun; dryRun {
		all := ans.Resolved
		all.Events = append(slices.Clone(all.Events), ans.Mended.Events...)
		if err := a.tryOut(ctx, key, all); err != nil {
			return err
		}
		return a.showMended(ans)
	}
	s, err := a.signer(ctx, key)
	if err != nil {
		return err
	}
	ans.Operator = s.name
	// Check the right to both before appending either.
	if _, err := a.caller().Propose(ctx, ans.Resolved, s.public); err != nil {
		return err
	}
	var decided *app.Proposal
	if len(ans.Mended.Events) > 0 {
		if decided, err = a.decided(ctx, s, ans.Mended); err != nil {
			return err
		}
	}
	if err := a.caller().Repaired(ctx, ans, decided); err != nil {
		return err
	}
	if err := a.decide(ctx, s, ans.Resolved); err != nil {
		return err
	}
	return a.showMended(ans)
}

// discard has the discarding of records decided.
func (a *Program) discard(ctx context.Context, ids []string, filter app.QuarantineFilter, reason, key string, dryRun bool) error {
	ans, draft, err := a.caller().Discard(ctx, ids, filter, reason)
	if err != nil {
		return err
	}
	ans.DryRun = dryRun
	if len(draft.Events) > 0 {
		if ans.Operator, err = a.signed(ctx, key, dryRun, draft); err != nil {
			return err
		}
	}
	if a.json {
		return a.answerJSON(ans)
	}
	what := comma(ans.Records) + " records: " + kindCounts(ans.Kinds)
	if n := len(ans.Resolved); n > 0 && n <= namedIDs {
		what = strings.Join(ans.Resolved, " ")
	}
	switch {
	case ans.Records == 0:
		fmt.Fprintln(a.out, "no open quarantined record matches these filters")
	case dryRun:
		fmt.Fprintf(a.out, "would discard %s\nnothing appended: this was a dry run\n", what)
	default:
		fmt.Fprintf(a.out, "discarded %s, signed by %s\n", what, ans.Operator)
	}
	return nil
}

func (a *Program) showMended(ans *app.Repair) error {
	if a.json {
		return a.answerJSON(ans)
	}
	switch {
	case ans.DryRun && ans.Resumed:
		fmt.Fprintf(a.out, "an earlier run appended %s; %s would now be resolved\nnothing appended: this was a dry run\n", ans.Appended, ans.ID)
	case ans.DryRun:
		fmt.Fprintf(a.out, "would append\n%s\nnothing appended: this was a dry run\n", indentJSON(ans.Event))
	case ans.Resumed:
		fmt.Fprintf(a.out, "an earlier run had appended %s; %s is now resolved, signed by %s\n", ans.Appended, ans.ID, ans.Operator)
	default:
		fmt.Fprintf(a.out, "appended %s, which repairs %s; resolved, signed by %s\n", ans.Appended, ans.ID, ans.Operator)
	}
	return nil
}

// indentJSON indents a document for reading and editing.
func indentJSON(doc []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, doc, "", "  ") != nil {
		return string(doc)
	}
	return b.String()
}

// namedIDs bounds the ids that an answer lists. It counts larger numbers of records.
const namedIDs = 10
