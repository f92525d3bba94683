package cli

import (
	"fmt"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Make, list and verify snapshots, and answer as of the past",
		Long: `A snapshot is a file with every row as of a position in the log, the version of the folds that made
it, and a digest. It is a cache: everything in it follows from the log, as "snapshot verify" and
"log replay --verify" prove. Without snapshots answers are the same, only slower.

Snapshots of "snapshot make" stay until you remove them. Scheduled snapshots stay as long as a
retention policy says, and for ever without one ("quartermaster retention"). Commands on an embedded
log also save snapshots, of which the newest two stay.

Every command that reads takes --as-of. It then answers from the log as it was, computed from the
nearest earlier snapshot and the events since. --as-of takes
  a position   as in "position" of every JSON answer. A partition that is not named is at its
               beginning; 0 is before everything. Short names, such as @6f3a9c, work where they
               were shown
  a snapshot   by its file name: the position of the snapshot
  a time       RFC 3339, or a date or month in UTC: in each partition, everything before the first
               event that was appended at that time or later, by the appender's clock. If clocks
               disagree, earlier-dated events after such an event are left out. Until each
               partition has an event appended at that time or later, a slow clock may still add
               one before it: keep the position that the answer names

Past rows are held in memory, also if current rows are in a database: about 700 B for each hour of
a node with eight GPUs, without the months that are in parts.

The same question as of the same position always has the same answer, under one version of the
program. In such an answer, "now" is the time at which the last event before that position was
appended.`,
	}
	cmd.AddCommand(a.snapshotMakeCommand(), a.snapshotListCommand(), a.snapshotVerifyCommand())
	return cmd
}

func (a *Program) snapshotMakeCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "make",
		Short: "Make a snapshot of current or past rows",
		Long: `Make writes a snapshot that is kept. A snapshot of the same position is overwritten with the same
bytes.`,
		Example: "  quartermaster snapshot make\n  quartermaster snapshot make --as-of 2026-06-01",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			snap, err := a.caller().MakeSnapshot(cmd.Context(), app.At(asOf))
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(snap)
			}
			fmt.Fprintf(a.out, "%s\n%s events, %s, digest %s\nposition %s\n", snap.File, comma(int(snap.Records)), humanize.IBytes(uint64(snap.Bytes)), snap.Digest, a.position(snap.Position))
			return nil
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) snapshotListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the snapshots of this log",
		Long:    `List shows the snapshots of this log, newest first, as described in their headers.`,
		Example: "  quartermaster snapshot list -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, dir, err := a.caller().Snapshots(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(list)
			}
			if len(list) == 0 {
				fmt.Fprintf(a.out, "no snapshots in %s: \"quartermaster snapshot make\" makes one\n", dir)
				return nil
			}
			t := a.table("snapshot", "events", "made", "size", "method", "kind", "digest")
			alignRight(t, 2, 2)
			for _, s := range list {
				what := domain.Clip(s.Digest, 17)
				if s.Error != "" {
					what = s.Error
				}
				t.AppendRow(table.Row{filepath.Base(s.File), count(int(s.Records)), s.Made.Time().Format("2006-01-02 15:04:05"), humanize.IBytes(uint64(s.Bytes)), s.Method, s.Kind, what})
			}
			t.Render()
			fmt.Fprintf(a.out, "in %s\n", dir)
			return nil
		},
	}
}

func (a *Program) snapshotVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify [FILE...]",
		Short: "Replay the log and compare every snapshot with it",
		Long: `Verify reads snapshots, folds the log from its beginning to the position of each, and compares the
rows byte for byte. Without files it verifies all snapshots of this log. It fails if a snapshot
differs from the log. A snapshot of another version of the folds is named and skipped; it is a
failure only if you named its file.`,
		Example: "  quartermaster snapshot verify\n  quartermaster snapshot verify 00000000000000004711-0f3a9c81d2e4.snapshot -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			checks, err := a.caller().VerifySnapshots(cmd.Context(), args)
			if err != nil {
				return err
			}
			return a.showChecks(checks, len(args) > 0)
		},
	}
}

func (a *Program) showChecks(checks []*app.SnapshotCheck, named bool) error {
	equal, bad := 0, 0
	for _, c := range checks {
		if c.Result == app.SnapshotEqual {
			equal++
		}
		if c.Bad() || named && c.Result == app.SnapshotOtherMethod {
			bad++
		}
	}
	if a.json {
		if checks == nil {
			checks = []*app.SnapshotCheck{}
		}
		if err := a.answerJSON(checks); err != nil {
			return err
		}
	} else {
		for _, c := range checks {
			fmt.Fprintln(a.out, c)
			for _, d := range c.Differences {
				fmt.Fprintf(a.out, "  %s  snapshot=%t replay=%t\n", d.Row, d.Snapshot, d.Replay)
			}
		}
		fmt.Fprintf(a.out, "%s of %s snapshots match the log\n", comma(equal), comma(len(checks)))
	}
	if bad > 0 {
		return &failed{why: fmt.Sprintf("%d snapshots do not match the log", bad)}
	}
	return nil
}
