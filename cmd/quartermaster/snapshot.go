package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/snapshotfile"
	"quartermaster/domain"
	"quartermaster/projections"
)

func (a *app) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Keep the rows as of a position, list and verify what is kept, and look at the past",
		Long: `A snapshot is a file with every row as of a position in the log, the version of
the folds that made them and a digest. It is a shortcut and no source: what is
in it follows from the log, "snapshot verify" and "log replay --verify" prove
that, and a home without any answers the same, only later.

Those that "snapshot make" and the nightly schedule write stay until you remove
them: nothing bounds how many there are, so remove old ones where disk is short.
An embedded home also saves some for itself, of which the newest two stay.

Every command that reads takes --as-of and answers from the log as it was then,
computed from the nearest snapshot before and the events since. It takes
  a position   as every answer has it under "position". A partition that is not
               named stands at its beginning; 0 is before everything
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

// snapshotPath returns the path of a snapshot that a person named: by its file's
// name, or by a path.
func (h *home) snapshotPath(name string) string {
	if filepath.Base(name) == name {
		return filepath.Join(h.snapshots(), name)
	}
	return name
}

// shownSnapshot is a snapshot as commands show it.
type shownSnapshot struct {
	File     string         `json:"file"`
	Kept     bool           `json:"kept"`
	Bytes    int64          `json:"bytes"`
	Made     domain.Instant `json:"made"`
	Records  int64          `json:"records"`
	Method   string         `json:"method"`
	Position string         `json:"position"`
	Digest   string         `json:"digest"`
	Error    string         `json:"error,omitempty"`
}

func shownInfo(in *snapshotfile.Info) shownSnapshot {
	s := shownSnapshot{File: in.Path, Kept: in.Kept, Bytes: in.Size, Made: in.Made}
	if in.Err != nil {
		s.Error = in.Err.Error()
		return s
	}
	s.Records, s.Method, s.Position, s.Digest = in.Position.Records(), in.Method, in.Position.String(), fmt.Sprintf("%x", in.Digest)
	return s
}

const snapshotKeys = `file, kept (false: saved by the home for itself), bytes, made,
records (how many events are behind it), method, position, digest`

func (a *app) snapshotMakeCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "make",
		Short: "Keep the rows as they are now, or were",
		Long: `Make writes a snapshot that stays. One of the same position is written over, by
the same bytes.

JSON keys: ` + snapshotKeys + `.`,
		Example: "  quartermaster snapshot make\n  quartermaster snapshot make --as-of 2026-06-01",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.readAt(cmd.Context(), asOf, func(h *home) error {
				if a.dir == "" && a.config.Snapshots == "" {
					return commandline.Usagef("there is no directory for snapshots: set snapshots in the configuration, or name a home with --home")
				}
				var path string
				if err := h.view(cmd.Context(), func(v projections.View) (err error) {
					path, err = snapshotfile.Keep(h.snapshots(), v.Position(), func(w io.Writer) error {
						_, err := projections.WriteSnapshot(w, v, h.id)
						return err
					})
					return err
				}); err != nil {
					return err
				}
				in := snapshotfile.InfoOf(path)
				if in.Err != nil {
					return fmt.Errorf("%s was written, and cannot be read again: %w", path, in.Err)
				}
				if a.json {
					return a.answerJSON(shownInfo(&in))
				}
				fmt.Fprintf(a.out, "%s\n%s events, %s, digest %x\nposition %s\n", path, comma(int(in.Position.Records())), humanize.IBytes(uint64(in.Size)), in.Digest, in.Position)
				return nil
			})
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *app) snapshotListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the snapshots of this log",
		Long: `List shows the snapshots of this log, newest first, as their headers have it.

JSON keys, a list: ` + snapshotKeys + `,
error (why it cannot be used).`,
		Example: "  quartermaster snapshot list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.reading(); err != nil {
				return err
			}
			return a.withLog(cmd.Context(), func(h *home) error {
				infos, err := snapshotfile.Infos(h.snapshots())
				if err != nil {
					return err
				}
				shown := make([]shownSnapshot, len(infos))
				for i := range infos {
					shown[i] = shownInfo(&infos[i])
				}
				if a.json {
					return a.answerJSON(shown)
				}
				if len(shown) == 0 {
					fmt.Fprintf(a.out, "no snapshots in %s: \"quartermaster snapshot make\" makes one\n", h.snapshots())
					return nil
				}
				t := a.table("snapshot", "events", "made", "size", "method", "stays", "digest")
				alignRight(t, 2, 2)
				for _, s := range shown {
					stays, what := "yes", domain.Clip(s.Digest, 17)
					if !s.Kept {
						stays = "until replaced"
					}
					if s.Error != "" {
						what = s.Error
					}
					t.AppendRow(table.Row{filepath.Base(s.File), comma(int(s.Records)), s.Made.Time().Format("2006-01-02 15:04:05"), humanize.IBytes(uint64(s.Bytes)), s.Method, stays, what})
				}
				t.Render()
				fmt.Fprintf(a.out, "in %s\n", h.snapshots())
				return nil
			})
		},
	}
}

// snapshotCheck says whether a snapshot is what the log says.
type snapshotCheck struct {
	File     string `json:"file"`
	Result   string `json:"result"`
	Position string `json:"position,omitempty"`
	Digest   string `json:"digest,omitempty"`
	// LogDigest is that of the rows that the log says.
	LogDigest   string               `json:"log_digest,omitempty"`
	Why         string               `json:"why,omitempty"`
	Differences []snapshotDifference `json:"differences,omitempty"`

	info snapshotfile.Info
}

type snapshotDifference struct {
	Row      string `json:"row"`
	Snapshot bool   `json:"snapshot"` // the snapshot has it
	Replay   bool   `json:"replay"`   // the log says it
}

// What a check of a snapshot may come to.
const (
	snapshotEqual       = "equal"
	snapshotDifferent   = "different"    // sound, and not what the log says
	snapshotDamaged     = "damaged"      // not what was written
	snapshotOtherMethod = "other_method" // this version of the folds cannot tell
	snapshotOtherLog    = "other_log"
	snapshotBeyond      = "beyond_log" // the log lacks what it was made from
	snapshotUnchecked   = "unchecked"
)

// bad reports whether the result is one to act upon.
func (c *snapshotCheck) bad() bool {
	return c.Result != snapshotEqual && c.Result != snapshotOtherMethod
}

// readThrough checks what can be told of snapshots without the log: all others
// have the result unchecked, and are sound.
func (h *home) readThrough(infos []snapshotfile.Info, end domain.Position) []*snapshotCheck {
	var checks []*snapshotCheck
	for _, in := range infos {
		c := &snapshotCheck{File: in.Path, info: in}
		set := func(result, format string, args ...any) { c.Result, c.Why = result, fmt.Sprintf(format, args...) }
		err := in.Err
		if err == nil {
			c.Position, c.Digest = in.Position.String(), fmt.Sprintf("%x", in.Digest)
			var f *os.File
			var size int64
			if f, size, err = snapshotfile.Open(in.Path); err == nil {
				_, err = projections.CheckSnapshot(f, size)
				f.Close()
			}
		}
		switch {
		case errors.Is(err, os.ErrNotExist) && !in.Kept && filepath.Dir(in.Path) == h.snapshots():
			continue // replaced just now
		case err != nil:
			set(snapshotDamaged, "%v", err)
		case in.Log != h.id:
			set(snapshotOtherLog, "it is of log %q, this is %q", in.Log, h.id)
		case in.Method != projections.Method:
			set(snapshotOtherMethod, "it was made by %s, this program folds by %s: verify it with that version", in.Method, projections.Method)
		case !end.Covers(in.Position):
			set(snapshotBeyond, "the log ends at %s: restore it", end)
		default:
			c.Result = snapshotUnchecked
		}
		checks = append(checks, c)
	}
	return checks
}

// compareWith compares a snapshot with rows at its position.
func (c *snapshotCheck) compareWith(ctx context.Context, replay *projections.Memory) error {
	sum, _, err := replay.Digest()
	if err != nil {
		return err
	}
	c.Result, c.LogDigest = snapshotEqual, fmt.Sprintf("%x", sum)
	if sum == c.info.Digest {
		return nil
	}
	c.Result = snapshotDifferent
	was := projections.NewMemory(domain.TopicSpecs())
	if err := readSnapshot(was, c.File, c.info.Log); err != nil {
		return fmt.Errorf("%s is not what the log says, and cannot be read again: %w", c.File, err)
	}
	diffs, err := differences(ctx, was.View, replay.View)
	for _, d := range diffs {
		c.Differences = append(c.Differences, snapshotDifference{d.Row, d.Live, d.Replay})
	}
	return err
}

// unchecked returns the checks that need the log, in as few passes over it as can
// easily be found: within one, every position covers those before.
func unchecked(checks []*snapshotCheck) (passes [][]*snapshotCheck) {
	var left []*snapshotCheck
	for _, c := range checks {
		if c.Result == snapshotUnchecked {
			left = append(left, c)
		}
	}
	slices.SortStableFunc(left, func(a, b *snapshotCheck) int {
		return cmp.Compare(a.info.Position.Records(), b.info.Position.Records())
	})
	for len(left) > 0 {
		var pass, rest []*snapshotCheck
		for _, c := range left {
			if len(pass) == 0 || c.info.Position.Covers(pass[len(pass)-1].info.Position) {
				pass = append(pass, c)
			} else {
				rest = append(rest, c)
			}
		}
		passes, left = append(passes, pass), rest
	}
	return passes
}

func positionsOf(pass []*snapshotCheck) []domain.Position {
	stops := make([]domain.Position, len(pass))
	for i, c := range pass {
		stops[i] = c.info.Position
	}
	return stops
}

// checkAgainstLog replays the log from its beginning once for each pass.
func (h *home) checkAgainstLog(ctx context.Context, passes [][]*snapshotCheck) error {
	for _, pass := range passes {
		stops := positionsOf(pass)
		bar := h.app.bar("replay", stops[len(stops)-1].Records(), "events")
		err := replayThrough(ctx, h.log, stops, bar, func(i int, m *projections.Memory, _ *projections.Runner) error {
			return pass[i].compareWith(ctx, m)
		})
		bar.stop()
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) snapshotVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify [FILE...]",
		Short: "Replay the log and compare every snapshot with it",
		Long: `Verify reads snapshots through, folds the log from its beginning to the position
of each, and compares the rows byte for byte. Without files it takes all of this
log. It fails unless each is equal to what the log says; one that was made by
another version of the folds is named and left to that version, and only fails
when it was asked for.

JSON keys, a list: file, result (equal; different: not what the log says;
damaged: not what was written; other_method; other_log; beyond_log: of more than
the log has), position, digest, log_digest (of the rows that the log says), why,
differences (row, snapshot, replay; the first hundred).`,
		Example: "  quartermaster snapshot verify\n  quartermaster snapshot verify 00000000000000004711-0f3a9c81d2e4.snapshot --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.reading(); err != nil {
				return err
			}
			var checks []*snapshotCheck
			if err := a.withLog(cmd.Context(), func(h *home) (err error) {
				var infos []snapshotfile.Info
				if len(args) == 0 {
					if infos, err = snapshotfile.Infos(h.snapshots()); err != nil {
						return err
					}
				}
				for _, name := range args {
					in := snapshotfile.InfoOf(h.snapshotPath(name))
					if errors.Is(in.Err, os.ErrNotExist) {
						return fmt.Errorf("there is no snapshot %s: \"quartermaster snapshot list\" names those there are", in.Path)
					}
					infos = append(infos, in)
				}
				end, err := h.end(cmd.Context())
				if err != nil {
					return err
				}
				checks = h.readThrough(infos, end)
				return h.checkAgainstLog(cmd.Context(), unchecked(checks))
			}); err != nil {
				return err
			}
			return a.showChecks(checks, len(args) > 0)
		},
	}
}

func (a *app) showChecks(checks []*snapshotCheck, named bool) error {
	equal, bad := 0, 0
	for _, c := range checks {
		if c.Result == snapshotEqual {
			equal++
		}
		if c.bad() || named && c.Result == snapshotOtherMethod {
			bad++
		}
	}
	if a.json {
		if checks == nil {
			checks = []*snapshotCheck{}
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

// String returns one line about a check.
func (c *snapshotCheck) String() string {
	s := filepath.Base(c.File) + ": " + strings.ReplaceAll(c.Result, "_", " ")
	if c.Why != "" {
		s += ": " + c.Why
	}
	return s
}
