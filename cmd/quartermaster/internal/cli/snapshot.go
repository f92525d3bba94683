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
		Short: "Keep the rows as of a position, list and verify what is kept, and look at the past",
		Long: `A snapshot is a file with every row as of a position in the log, the version of
the folds that made them and a digest. It is a shortcut and no source: what is
in it follows from the log, "snapshot verify" and "log replay --verify" prove
that, and without any the answers are the same, only later.

Those that "snapshot make" and the nightly schedule write stay until you remove
them: nothing bounds how many there are, so remove old ones where disk is short.
Commands on an embedded log also save some, of which the newest two stay.

Every command that reads takes --as-of and answers from the log as it was then,
computed from the nearest snapshot before and the events since. It takes
  a position   as every answer in JSON has it under "position". A partition that
               is not named stands at its beginning; 0 is before everything. Its
               short name, such as @6f3a9c, is taken where it was shown
  a snapshot   by the name of its file: the position that it was taken at
  a time       RFC 3339, or a date or month in UTC: in each partition all before
               the first event that was appended then or later, by the clock of
               whoever appended it. Where clocks disagree, what is dated earlier
               and follows such an event is left out. Until each partition has an
               event appended at that time or later, a slow clock may still add
               one before it: keep the position that the answer names
The rows of the past are held in memory, also where those of the present are in a
database: about 700 B for each hour of a node with eight GPUs, so 6 GB for a year
of 1,000 such nodes.
The same question as of the same point has the same answer for ever, under one
version of the program: a report on "now" is then one on the moment at which the
last event before that point was appended.`,
	}
	cmd.AddCommand(a.snapshotMakeCommand(), a.snapshotListCommand(), a.snapshotVerifyCommand())
	return cmd
}

func (a *Program) snapshotMakeCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "make",
		Short: "Keep the rows as they are now, or were",
		Long: `Make writes a snapshot that stays. One of the same position is written over, by
the same bytes.`,
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
		Long:    `List shows the snapshots of this log, newest first, as their headers have it.`,
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
			t := a.table("snapshot", "events", "made", "size", "method", "stays", "digest")
			alignRight(t, 2, 2)
			for _, s := range list {
				stays, what := "yes", domain.Clip(s.Digest, 17)
				if !s.Kept {
					stays = "until replaced"
				}
				if s.Error != "" {
					what = s.Error
				}
				t.AppendRow(table.Row{filepath.Base(s.File), count(int(s.Records)), s.Made.Time().Format("2006-01-02 15:04:05"), humanize.IBytes(uint64(s.Bytes)), s.Method, stays, what})
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
		Long: `Verify reads snapshots through, folds the log from its beginning to the position
of each, and compares the rows byte for byte. Without files it takes all of this
log. It fails unless each is equal to what the log says; one that was made by
another version of the folds is named and left to that version, and only fails
when it was asked for.`,
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
		fmt.Fprintf(a.out, "%s of %s snapshots are what the log says\n", comma(equal), comma(len(checks)))
	}
	if bad > 0 {
		return &failed{why: fmt.Sprintf("%d snapshots are not what the log says", bad)}
	}
	return nil
}
