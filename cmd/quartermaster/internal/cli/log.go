package cli

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) logCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show, export and replay the log",
	}
	cmd.AddCommand(a.logTailCommand(), a.logEventCommand(), a.logStatsCommand(), a.logExportCommand(), a.logReplayCommand(), a.logProveCommand())
	return cmd
}

func (a *Program) logProveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "prove RECORD",
		Short: "Prove that a record is in the log",
		Long: `Prove writes a proof of one record, by the newest signed checkpoint of the archive: the record, the path
of hashes from it to the root that is signed, and the checkpoint. It is a JSON document that needs
nothing else. "quartermaster-audit check-proof" checks it.

A record that no checkpoint covers yet has none: it is archived and signed by "archive run --key", or by
schedules.archive. Prove then exits with 5.`,
		Example: "  quartermaster log prove qm.billing/0@4711 > proof.json\n" +
			"  quartermaster log prove qm.workspaces/0@3",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			proof, err := a.caller().Prove(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.answerJSON(proof)
		},
	}
}

func (a *Program) writeRecord(w io.Writer, s app.Record) error {
	if a.json {
		line, err := s.AppendLine(nil)
		if err == nil {
			_, err = w.Write(line)
		}
		return err
	}
	what := string(s.Type)
	if s.Error != "" {
		what = "cannot be decoded: " + s.Error
	}
	_, err := fmt.Fprintf(w, "%s  %s@%d  %s  %s  %s\n", s.Appended, domain.TopicPartition{Topic: s.Topic, Partition: s.Partition}, s.Offset, s.Key, what, s.Subject)
	return err
}

func (a *Program) logTailCommand() *cobra.Command {
	var (
		q           app.Newest
		follow      bool
		attributes  bool
		since, till string
	)
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show the newest events",
		Long: `Tail shows the newest events of the log, or of those that the flags select. Flags combine.

What is selected by its content is searched in the newest 1,048,576 records of each partition.`,
		Example: "  quartermaster log tail -n 5\n  quartermaster log tail --topic qm.hardware --follow -o json\n" +
			"  quartermaster log tail --type PolicySet --operator root",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(timeFlag("since", since, &q.From), timeFlag("until", till, &q.To)); err != nil {
				return err
			}
			stopped, err := a.caller().Tail(cmd.Context(), q, follow, func(r app.Record) (err error) {
				if attributes {
					if r, err = r.Attributes(); err != nil {
						return err
					}
				}
				return a.writeRecord(a.out, r)
			})
			for _, tp := range stopped {
				a.note("older records of %s were not searched", tp)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntVarP(&q.Lines, "lines", "n", 10, "number of events")
	f.BoolVarP(&follow, "follow", "f", false, "continue with new events until interrupted")
	f.BoolVar(&attributes, "attributes", false, "leave out the data of events, which can be long")
	f.StringSliceVar(&q.Topics, "topic", nil, "topics, for example qm.fleet (default all)")
	f.StringSliceVar(&q.Types, "type", nil, "only events of these types, for example PolicySet")
	f.StringVar(&q.Workspace, "workspace", "", "only events that name this workspace")
	f.StringVar(&q.Cluster, "cluster", "", "only events that name this cluster")
	f.StringVar(&q.Subject, "subject", "", "only events about this subject")
	f.StringVar(&q.Operator, "operator", "", "only what this operator signed")
	f.StringVar(&since, "since", "", "only records appended at this time or later (RFC 3339, date or month)")
	f.StringVar(&till, "until", "", "only records appended before this time")
	return cmd
}

func (a *Program) logEventCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "event RECORD",
		Short: "Show one record byte for byte, and the event in it",
		Long: `Event shows one record of the log: its key, its headers and value in hexadecimal, and the event in it.
Of a decision it shows what the operator signed. The leaf is what "log prove" proves.

RECORD is topic/partition@offset, or an event as CloudEvents name it: its source, a #, and its id. Quote it then.`,
		Example: "  quartermaster log event qm.workspaces/0@3\n" +
			"  quartermaster log event 'quartermaster/demo#1/qm.workspaces/0/28' -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.caller().Event(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(e)
			}
			return a.showLoggedEvent(e)
		},
	}
}

func (a *Program) showLoggedEvent(e *app.LoggedEvent) error {
	if err := a.writeRecord(a.out, *e.Event); err != nil {
		return err
	}
	t := a.table("part", "hexadecimal")
	for _, h := range e.Record.Headers {
		t.AppendRow(table.Row{h.Key, h.Value})
	}
	t.AppendRow(table.Row{"value", e.Record.Value})
	t.Render()
	if s := e.Signed; s != nil {
		fmt.Fprintf(a.out, "signed by %s with key %s\n", s.Operator, base64.StdEncoding.EncodeToString(s.Key))
	}
	if len(e.Event.Event) == 0 {
		return nil
	}
	var doc bytes.Buffer
	if err := json.Indent(&doc, e.Event.Event, "", "  "); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.out, "%s\n", doc.Bytes())
	return err
}

func (a *Program) logStatsCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count the events and rows, and what is missing",
		Long: `Stats shows, for each partition, the number of records and of streams, and the events that are
known to be missing: sequence numbers that a stream skipped. "ahead" is how far a source dated
its events after the time at which they were appended.`,
		Example: "  quartermaster log stats\n  quartermaster log stats -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.caller().LogStats(cmd.Context(), app.At(asOf))
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(s)
			}
			a.showLogStats(s)
			return nil
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

// mostShared is how much memory a verification may take in a server, which others need, too.
const mostShared = 4 << 30

func (a *Program) logReplayCommand() *cobra.Command {
	var verify bool
	var memory string
	var budget app.ReplayBudget
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Fold the whole log from its beginning and print the digest of the rows",
		Long: `Replay folds every event from the beginning of the log into new rows, without using anything
computed before.

With --verify it compares them with the live rows at the same position, and fails if a single
byte differs. The live rows are the newest snapshot, made when events were first folded, plus
the events appended since. Replay also compares every snapshot with the rows at its position. A
snapshot that differs or is damaged fails the command too. Snapshots of another version of the
folds are skipped ("quartermaster snapshot verify" names them). At last it reads the parts below
the rows, and fails if the file of one is damaged or missing, or has other rows than its digest says.

With --memory or --progress it verifies one partition after the other. Months that are sealed on the way
leave memory, so it needs the open months of a partition. --memory bounds it, and the command ends if
they do not fit. An embedded log loads its live rows first, and then drops them. With --progress a run
that was interrupted, even by kill -9, goes on where it was saved last: after each month and every 30
seconds. The directory needs room for the rows of sealed months that have no part. Progress of another
log or of another version of the folds is refused. A later run with the same directory folds only what
was appended since. Months that differ are named, not rows, and snapshots are not compared.

A server verifies beside its live rows, which stay: --memory is needed, and bounds what comes on top, 4 GiB at most.`,
		Example: "  quartermaster log replay\n  quartermaster log replay --verify -o json\n" +
			"  quartermaster log replay --verify --memory 2GiB --progress /var/tmp/verify",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			within := cmd.Flags().Changed("memory") || cmd.Flags().Changed("progress")
			if a.IsShared() && memory == "" {
				return &app.InvalidError{Field: "memory", Err: errors.New("a server verifies within a bound: name one with --memory")}
			}
			if within && !verify {
				return &app.InvalidError{Field: "verify", Err: errors.New("--memory and --progress need it")}
			}
			if memory != "" {
				n, err := humanize.ParseBytes(memory)
				if err != nil || n == 0 || n > math.MaxInt64 {
					return &app.InvalidError{Field: "memory", Err: fmt.Errorf("%q: want a size, as in 2GiB", memory)}
				}
				if a.IsShared() && n > mostShared {
					return &app.InvalidError{Field: "memory", Err: fmt.Errorf(
						"%q: a server gives %s at most: verify where the log is, with \"quartermaster log replay\"", memory, humanize.IBytes(mostShared))}
				}
				budget.Memory = int64(n)
			}
			var ans *app.Replay
			var err error
			if within {
				ans, err = a.caller().ReplayWithin(cmd.Context(), budget)
			} else {
				ans, err = a.caller().Replay(cmd.Context(), verify)
			}
			if err != nil {
				return err
			}
			if err := a.showReplay(ans); err != nil {
				return err
			}
			if ans.Equal != nil && !*ans.Equal {
				return &failed{why: "the live rows differ from the log"}
			}
			if len(ans.SnapshotsFailed) > 0 {
				return &failed{why: "a snapshot differs from the log"}
			}
			if len(ans.PartsFailed) > 0 {
				return &failed{why: "a part is damaged or missing"}
			}
			if len(ans.LeftAside) > 0 {
				return &failed{why: "a snapshot could not be used"}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "compare with the live rows; exit 1 if they differ")
	cmd.Flags().StringVar(&memory, "memory", "", "verify within this much memory, as in 2GiB (at least 256MiB)")
	cmd.Flags().StringVar(&budget.Progress, "progress", "", "verify by partition, with progress in this directory")
	return cmd
}

func (a *Program) showReplay(ans *app.Replay) error {
	if a.json {
		return a.answerJSON(ans)
	}
	fmt.Fprintf(a.out, "replayed %s events in %.2f s (%s events/s): %s folded, %s repeats, %s quarantined\n",
		humanize.Comma(ans.Events), ans.Seconds, humanize.Comma(int64(ans.EventsPerSecond)),
		humanize.Comma(ans.Folded), humanize.Comma(ans.Repeats), humanize.Comma(ans.Quarantined))
	fmt.Fprintf(a.out, "method    %s\nposition  %s\nreplay    %s\n", ans.Method, a.position(ans.Position), ans.ReplayDigest)
	if ans.Equal == nil {
		return nil
	}
	fmt.Fprintf(a.out, "live      %s\n", ans.LiveDigest)
	if ans.LiveFrom != "" {
		fmt.Fprintf(a.out, "          from the snapshot at %s and the log since\n", a.position(ans.LiveFrom))
	}
	for _, s := range ans.LeftAside {
		fmt.Fprintf(a.out, "NOT USED: %s\n", s)
	}
	if ans.SnapshotsChecked != nil {
		fmt.Fprintf(a.out, "snapshots %s compared, %s differ from the log\n", comma(*ans.SnapshotsChecked), comma(len(ans.SnapshotsFailed)))
	}
	if ans.Months != nil {
		fmt.Fprintf(a.out, "months    %s of partitions compared; %s events were folded by earlier runs\n",
			comma(*ans.Months), humanize.Comma(*ans.Resumed))
	}
	for _, c := range ans.SnapshotsFailed {
		fmt.Fprintf(a.out, "SNAPSHOT %s\n", c)
	}
	if *ans.PartsChecked > 0 {
		fmt.Fprintf(a.out, "parts     %s read, %s damaged or missing\n", comma(*ans.PartsChecked), comma(len(ans.PartsFailed)))
	}
	for _, p := range ans.PartsFailed {
		fmt.Fprintf(a.out, "PART %s\n", p)
	}
	if *ans.Equal {
		fmt.Fprintln(a.out, "equal: the live rows match the log")
		return nil
	}
	fmt.Fprintln(a.out, "DIFFERENT: the live rows differ from the log")
	for _, d := range ans.Differences {
		fmt.Fprintf(a.out, "  %s  live=%t replay=%t\n", d.Row, d.Live, d.Replay)
	}
	return nil
}
