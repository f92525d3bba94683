package app

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

	"quartermaster/adapters/snapshotfile"
	"quartermaster/domain"
	"quartermaster/projections"
)

// snapshotPath resolves a file name or path to the path of a snapshot.
func (h *Conn) snapshotPath(name string) string {
	if filepath.Base(name) == name {
		return filepath.Join(h.Snapshots(), name)
	}
	return name
}

// Snapshot is a file with all rows as of a position.
type Snapshot struct {
	File string `json:"file"`
	// Kind says how long the file stays: kept (until a person removes it), scheduled (by the rule
	// of the configuration) or saved (until two newer ones are in place).
	Kind     string         `json:"kind"`
	Bytes    int64          `json:"bytes"`
	Made     domain.Instant `json:"made"`
	Records  int64          `json:"records"`
	Method   string         `json:"method"`
	Position string         `json:"position"`
	Digest   string         `json:"digest"`
	Error    string         `json:"error,omitempty"`
}

func snapshotOf(in *snapshotfile.Info) Snapshot {
	s := Snapshot{File: in.Path, Kind: string(in.Kind), Bytes: in.Size, Made: in.Made}
	if in.Err != nil {
		s.Error = in.Err.Error()
		return s
	}
	s.Records, s.Method, s.Position, s.Digest = in.Position.Records(), in.Method, in.Position.String(), fmt.Sprintf("%x", in.Digest)
	return s
}

// SnapshotCheck is the comparison of a snapshot with the log.
type SnapshotCheck struct {
	File     string `json:"file"`
	Result   string `json:"result"` // equal, different, damaged, other_method, other_log or beyond_log
	Position string `json:"position,omitempty"`
	Digest   string `json:"digest,omitempty"`
	// LogDigest is the digest of the rows folded from the log.
	LogDigest   string               `json:"log_digest,omitempty"`
	Why         string               `json:"why,omitempty"`
	Differences []SnapshotDifference `json:"differences,omitempty"` // the first hundred

	info snapshotfile.Info
}

// SnapshotDifference is a row that differs between a snapshot and the log.
type SnapshotDifference struct {
	Row      string `json:"row"`
	Snapshot bool   `json:"snapshot"` // the snapshot has it
	Replay   bool   `json:"replay"`   // the log has it
}

// Results of a check.
const (
	SnapshotEqual       = "equal"
	snapshotDifferent   = "different"    // undamaged, but differs from the log
	snapshotDamaged     = "damaged"      // not what was written
	SnapshotOtherMethod = "other_method" // made by another version of the folds, so not checked
	snapshotOtherLog    = "other_log"
	snapshotBeyond      = "beyond_log" // the log lacks records that it was made from
	snapshotUnchecked   = "unchecked"
)

// Bad reports whether the result needs action.
func (c *SnapshotCheck) Bad() bool {
	return c.Result != SnapshotEqual && c.Result != SnapshotOtherMethod
}

// readThrough does the checks of snapshots that do not need the log. All others get the result
// unchecked, and are undamaged.
func (h *Conn) readThrough(infos []snapshotfile.Info, end domain.Position) []*SnapshotCheck {
	var checks []*SnapshotCheck
	for _, in := range infos {
		c := &SnapshotCheck{File: in.Path, info: in}
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
			for _, p := range in.Parts {
				if err == nil && in.Log == h.ID && in.Method == projections.Method {
					err = h.source.Has(p)
				}
			}
		}
		switch {
		case errors.Is(err, os.ErrNotExist) && in.Kind != snapshotfile.Kept && filepath.Dir(in.Path) == h.Snapshots():
			continue // replaced just now
		case errors.Is(err, projections.ErrSnapshotMethod):
			set(SnapshotOtherMethod, "%v: verify it with that version", err)
		case err != nil:
			set(snapshotDamaged, "%v", err)
		case in.Log != h.ID:
			set(snapshotOtherLog, "it is of log %q, this is %q", in.Log, h.ID)
		case in.Method != projections.Method:
			set(SnapshotOtherMethod, "it was made by %s, this program folds with %s: verify it with that version", in.Method, projections.Method)
		case !end.Covers(in.Position):
			set(snapshotBeyond, "the log ends at %s: restore it", end)
		default:
			c.Result = snapshotUnchecked
		}
		checks = append(checks, c)
	}
	return checks
}

// compareSnapshot compares a snapshot with rows at its position.
func (h *Conn) compareSnapshot(ctx context.Context, c *SnapshotCheck, replay *projections.Memory) error {
	sum, _, err := replay.Digest()
	if err != nil {
		return err
	}
	c.Result, c.LogDigest = SnapshotEqual, fmt.Sprintf("%x", sum)
	if sum == c.info.Digest {
		return nil
	}
	c.Result = snapshotDifferent
	was, _ := h.memory(false)
	if err := readSnapshot(was, c.File, c.info.Log); err != nil {
		return fmt.Errorf("%s differs from the log, and cannot be read again: %w", c.File, err)
	}
	diffs, err := differences(ctx, was.View, replay.View)
	for _, d := range diffs {
		c.Differences = append(c.Differences, SnapshotDifference{d.Row, d.Live, d.Replay})
	}
	return err
}

// unchecked groups the checks that need the log into few passes over it. Within a pass, every
// position covers the previous ones.
func unchecked(checks []*SnapshotCheck) (passes [][]*SnapshotCheck) {
	var left []*SnapshotCheck
	for _, c := range checks {
		if c.Result == snapshotUnchecked {
			left = append(left, c)
		}
	}
	slices.SortStableFunc(left, func(a, b *SnapshotCheck) int {
		return cmp.Compare(a.info.Position.Records(), b.info.Position.Records())
	})
	for len(left) > 0 {
		var pass, rest []*SnapshotCheck
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

func positionsOf(pass []*SnapshotCheck) []domain.Position {
	stops := make([]domain.Position, len(pass))
	for i, c := range pass {
		stops[i] = c.info.Position
	}
	return stops
}

// checkAgainstLog replays the log from its beginning once for each pass.
func (h *Conn) checkAgainstLog(ctx context.Context, passes [][]*SnapshotCheck) error {
	for _, pass := range passes {
		stops := positionsOf(pass)
		bar := h.app.track(Work{Name: "replay", Total: stops[len(stops)-1].Records(), Unit: "events"})
		err := h.replayThrough(ctx, stops, bar, func(i int, m *projections.Memory, _ *projections.Runner) error {
			return h.compareSnapshot(ctx, pass[i], m)
		})
		bar.Stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// String returns a one-line summary of the check.
func (c *SnapshotCheck) String() string {
	s := filepath.Base(c.File) + ": " + strings.ReplaceAll(c.Result, "_", " ")
	if c.Why != "" {
		s += ": " + c.Why
	}
	return s
}

// MakeSnapshot writes the rows at a point in time into a file that is kept.
func (c *Caller) MakeSnapshot(ctx context.Context, at At) (*Snapshot, error) {
	if s := c.app; s.Dir == "" && (s.Config == nil || s.Config.Snapshots == "") {
		return nil, &helped{
			invalid("data-dir", "there is no directory for snapshots, and the configuration sets none"), RemedyNameDataDir,
		}
	}
	var path string
	if err := c.read(ctx, at, func(h *Conn, v projections.View) (err error) {
		path, err = snapshotfile.Keep(h.Snapshots(), v.Position(), func(w io.Writer) error {
			_, err := projections.WriteSnapshot(w, v, h.ID)
			return err
		})
		return err
	}); err != nil {
		return nil, err
	}
	in := snapshotfile.InfoOf(path)
	if in.Err != nil {
		return nil, fmt.Errorf("%s was written, and cannot be read again: %w", path, in.Err)
	}
	s := snapshotOf(&in)
	return &s, nil
}

// Snapshots returns the snapshots of the log, the newest first, and their directory.
func (c *Caller) Snapshots(ctx context.Context) (list []Snapshot, dir string, err error) {
	h, err := c.log(ctx)
	if err != nil {
		return nil, "", err
	}
	infos, err := snapshotfile.Infos(h.Snapshots())
	list = make([]Snapshot, len(infos))
	for i := range infos {
		list[i] = snapshotOf(&infos[i])
	}
	return list, h.Snapshots(), err
}

// VerifySnapshots replays the log and compares snapshots with it: the named ones, or all of the
// log.
func (c *Caller) VerifySnapshots(ctx context.Context, names []string) ([]*SnapshotCheck, error) {
	h, err := c.log(ctx)
	if err != nil {
		return nil, err
	}
	var infos []snapshotfile.Info
	if len(names) == 0 {
		if infos, err = snapshotfile.Infos(h.Snapshots()); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		in := snapshotfile.InfoOf(h.snapshotPath(name))
		if errors.Is(in.Err, os.ErrNotExist) {
			return nil, &NotFoundError{What: "snapshot", Name: in.Path, Err: fmt.Errorf("there is no snapshot %s: "+
				"\"quartermaster snapshot list\" shows the existing ones", in.Path)}
		}
		infos = append(infos, in)
	}
	end, err := h.End(ctx)
	if err != nil {
		return nil, err
	}
	checks := h.readThrough(infos, end)
	return checks, h.checkAgainstLog(ctx, unchecked(checks))
}
