package app

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"quartermaster/adapters/parts"
	"quartermaster/adapters/snapshotfile"
	"quartermaster/domain"
	"quartermaster/domain/parallel"
	"quartermaster/projections"
)

// A verification within a memory budget folds one partition after the other, several at a time if the
// budget has room. Months that are sealed on the way leave memory: to the part of the live rows if it
// has the same digest, else to a part in the progress directory. The directory also has a snapshot of
// each partition's fold, so that a run that was killed goes on from there:
//
//	progress.json                  the log and the version of the folds
//	folds/qm.telemetry-3/*.snapshot the rows of a partition that are not in parts, and their offset
//	parts/                         parts of sealed months
//	verified.jsonl                 the parts of the live rows that were read through
//
// Everything in it is checked before it is used: snapshots by their own digest, parts by size and
// SHA-256, and the log must still have the record before the offset.

// ReplayBudget says how a replay is to be verified.
type ReplayBudget struct {
	// Memory bounds the memory of the verification, in bytes; 0: no bound.
	Memory int64
	// Progress is the directory that a run leaves its progress in, and goes on from; "": a temporary
	// one.
	Progress string
}

// leastBudget is the least memory of a verification.
var leastBudget int64 = 256 << 20 // changed by tests

// partitionBudget is the memory for which another partition is folded at the same time.
const partitionBudget = 1 << 30

// checkpointEvery is the longest that a fold goes on without saving its progress.
var checkpointEvery = 30 * time.Second // changed by tests

// atSave is called before and after progress is saved. Tests set it.
var atSave = func() {}

// mostRows is where tests see how many rows of a partition were in memory.
var mostRows *atomic.Int64

// errBudget means that the rows of open months need more memory than the budget. Nothing is wrong with
// them: verify with more.
var errBudget = errors.New("the memory budget is too small")

// progressFormat is the version of the layout of the directory.
const progressFormat = "quartermaster.verify/1"

// progressHead says what the progress in a directory is of.
type progressHead struct {
	Format string `json:"format"`
	Log    string `json:"log"`
	Method string `json:"method"`
}

// verification is a run of a verification within a budget.
type verification struct {
	h      *Conn
	dir    string
	budget int64
	others int64 // bytes of the heap that are not of this run, and count for no budget
	source eitherSource
	writer *parts.Writer
	done   atomic.Int64 // records folded, in all runs
	marks  *os.File     // verified.jsonl
	read   map[verifiedPart]bool
	mu     sync.Mutex // held while marks and read are used
}

// verifiedPart is a part that was read through.
type verifiedPart struct {
	Partition string       `json:"partition"`
	Month     string       `json:"month"`
	Digest    parts.Digest `json:"digest"`
}

// openVerification opens a progress directory, and makes it if there is none.
func (h *Conn) openVerification(b ReplayBudget) (_ *verification, err error) {
	v := &verification{h: h, dir: b.Progress, budget: b.Memory, read: map[verifiedPart]bool{}}
	head := progressHead{progressFormat, h.ID, projections.Method}
	path := filepath.Join(v.dir, "progress.json")
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if list, err := os.ReadDir(v.dir); err == nil && len(list) > 0 {
			return nil, invalid("progress", "%s is not empty, and has no progress of a verification", v.dir)
		}
	case err != nil:
		return nil, fmt.Errorf("read progress: %w", err)
	default:
		var found progressHead
		if err := json.Unmarshal(text, &found); err != nil {
			return nil, invalid("progress", "%s: %w; %s", path, err, progressAnew)
		}
		if found != head {
			return nil, invalid("progress", "%s has progress of %s with log %q and %s, this is %s with log %q and %s; %s", v.dir,
				found.Format, found.Log, found.Method, head.Format, head.Log, head.Method, progressAnew)
		}
	}
	// The writer makes the directory, and keeps another run out.
	scratch := parts.Directory{Path: filepath.Join(v.dir, "parts"), Log: h.ID}
	if v.writer, err = parts.NewWriter(scratch); err != nil {
		if errors.Is(err, parts.ErrLocked) {
			return nil, &UnavailableError{Err: fmt.Errorf("%s: another verification uses it", v.dir)}
		}
		return nil, err
	}
	v.source = eitherSource{h.source, parts.NewSource(scratch)}
	if len(text) == 0 {
		b, err := json.Marshal(head)
		if err == nil {
			err = os.WriteFile(path, append(b, '\n'), 0o600)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("write progress: %w", err), v.close())
		}
	}
	if err := v.openMarks(); err != nil {
		return nil, errors.Join(fmt.Errorf("read progress: %w", err), v.close())
	}
	return v, nil
}

const progressAnew = "remove the directory to begin anew, or name another one"

// openMarks reads which parts were read through. A line that a crash cut is of none.
func (v *verification) openMarks() (err error) {
	path := filepath.Join(v.dir, "verified.jsonl")
	if v.marks, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	lines := bufio.NewScanner(v.marks)
	for lines.Scan() {
		var p verifiedPart
		if json.Unmarshal(lines.Bytes(), &p) == nil {
			v.read[p] = true
		}
	}
	return lines.Err()
}

func (v *verification) close() error {
	err := errors.Join(v.source.progress.Close(), v.writer.Close())
	if v.marks != nil {
		err = errors.Join(err, v.marks.Close())
	}
	return err
}

// once calls read with a part that no run has read through, and remembers that it did.
func (v *verification) once(p projections.PartDigest, read func(projections.PartDigest) error) error {
	name := verifiedPart{p.Partition.String(), projections.MonthName(p.Month), p.Digest}
	v.mu.Lock()
	known := v.read[name]
	v.mu.Unlock()
	if known {
		return nil
	}
	if err := read(p); err != nil {
		return err
	}
	line, err := json.Marshal(name)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.read[name] = true
	// It begins a line of its own, whatever a crash has left.
	_, err = v.marks.Write(append(append([]byte("\n"), line...), '\n'))
	return errors.Join(err, v.marks.Sync())
}

// eitherSource reads parts of the live rows and, if these lack one, of the progress directory.
type eitherSource struct{ live, progress *parts.Source }

func (s eitherSource) of(p projections.PartDigest) *parts.Source {
	if s.live.Has(p) == nil {
		return s.live
	}
	return s.progress
}

// Has implements [projections.PartSource].
func (s eitherSource) Has(p projections.PartDigest) error { return s.of(p).Has(p) }

// Scopes implements [projections.PartSource].
func (s eitherSource) Scopes(p projections.PartDigest, t projections.Table) ([]string, error) {
	return s.of(p).Scopes(p, t)
}

// Scan implements [projections.PartSource].
func (s eitherSource) Scan(p projections.PartDigest, q projections.Query, yield func(projections.Key, []byte) error) error {
	return s.of(p).Scan(p, q, yield)
}

// steppedLog is a sealing log that calls step after each batch was folded and its months were looked
// at.
type steppedLog struct {
	sealingLog
	step func(recs []domain.Record) error
}

func (l steppedLog) stepped(tp domain.TopicPartition, fold func([]domain.Record) error) func([]domain.Record) error {
	sealed := l.after(tp, fold)
	return func(recs []domain.Record) error {
		if err := sealed(recs); err != nil {
			return err
		}
		return l.step(recs)
	}
}

// ReadAfter implements [projections.Log].
func (l steppedLog) ReadAfter(ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from, to int64, yield func([]domain.Record) error) error {
	return l.Log.ReadAfter(ctx, tp, last, from, to, l.stepped(tp, yield))
}

// FollowAfter implements [projections.Log].
func (l steppedLog) FollowAfter(ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from int64, yield func([]domain.Record) error) error {
	return l.Log.FollowAfter(ctx, tp, last, from, l.stepped(tp, yield))
}

// folds returns the directory of the snapshots of a partition.
func (v *verification) folds(tp domain.TopicPartition) string {
	return filepath.Join(v.dir, "folds", strings.ReplaceAll(tp.String(), "/", "-"))
}

// load returns the rows of a partition as far as an earlier run folded them, and their offset.
func (v *verification) load(ctx context.Context, tp domain.TopicPartition, end int64) (m *projections.Memory, at int64, err error) {
	m = projections.NewMemory(domain.TopicSpecs())
	m.Source = v.source
	paths, err := snapshotfile.List(v.folds(tp))
	if err != nil || len(paths) == 0 {
		return m, 0, err
	}
	f, size, err := snapshotfile.Open(paths[0])
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	to, err := m.ReadSnapshot(f, size, v.h.ID)
	if err != nil {
		return nil, 0, invalid("progress", "%s: %w; %s", paths[0], err, progressAnew)
	}
	if other := to.Records() - to[tp]; other > 0 {
		return nil, 0, invalid("progress", "%s has rows of other partitions than %s; %s", paths[0], tp, progressAnew)
	}
	if to[tp] > end {
		return nil, 0, invalid("progress", "%s goes to offset %d of %s, and the live rows to %d: it is of another log, or of "+
			"other rows; %s", paths[0], to[tp], tp, end, progressAnew)
	}
	var anchors map[domain.TopicPartition]domain.Anchor
	if err := m.View(ctx, func(v projections.View) error {
		anchors = v.Anchors()
		return nil
	}); err != nil {
		return nil, 0, err
	}
	found, err := v.h.Log.Diverged(ctx, to, anchors)
	if err == nil && found[tp] != nil {
		err = invalid("progress", "%s is of other records than the log has: %w; %s", paths[0], found[tp], progressAnew)
	}
	return m, to[tp], err
}

// foldedPartition is what folding a partition gave.
type foldedPartition struct {
	digest projections.PartitionDigest
	folded projections.Progress // of this run
	before int64                // records that earlier runs folded
	months []RowDifference      // where it differs from the live rows
}

// fold folds a partition to an offset, from where an earlier run ended, and compares the rows with the
// live ones, whose digests are want.
func (v *verification) fold(
	ctx context.Context, end int64, want *projections.PartitionDigest,
) (ans foldedPartition, err error) {
	tp := want.Partition
	m, at, err := v.load(ctx, tp, end)
	if err != nil {
		return ans, err
	}
	ans.before = at
	v.done.Add(at)
	s := &sealer{
		store: m, source: v.source, dir: v.writer.Directory, write: true, scratch: true, writer: v.writer, writing: 1,
		tell: v.h.app.tell, seen: map[domain.TopicPartition]attempt{}, rows: map[domain.TopicPartition]int{},
		moving: map[projections.PartKey][32]byte{},
	}
	saved, before, newest := time.Now(), int64(0), domain.Instant(0)
	log := memoryLog{v.h.Log, ""}
	if at > 0 {
		log.snapshot = v.folds(tp)
	}
	r := NewRunner(steppedLog{sealingLog{log, s}, func(recs []domain.Record) error {
		if len(recs) == 0 {
			return nil
		}
		newest = recs[len(recs)-1].Time
		v.done.Add(int64(len(recs)))
		if mostRows != nil {
			mostRows.Store(max(mostRows.Load(), int64(m.Own(tp))))
		}
		if err := v.within(tp, s, newest); err != nil {
			return err
		}
		now := time.Now()
		if sealed := s.seen[tp].before; sealed == before && now.Sub(saved) < checkpointEvery {
			return nil
		}
		before, saved = s.seen[tp].before, now
		return v.saveNow(tp, m)
	}}, m)
	if at < end {
		if err := r.CatchUp(ctx, domain.Position{tp: end}); err != nil {
			return ans, fmt.Errorf("replay %s to offset %d: %w", tp, end, err)
		}
		if m.Own(tp) >= leastSealed {
			if err := s.seal(tp, newest, true); err != nil {
				return ans, err
			}
		}
		if err := v.saveNow(tp, m); err != nil {
			return ans, err
		}
	}
	ans.folded = r.Progress()
	if err := m.ReadPartition(tp, func(r *projections.PartReader, _ int64) (err error) {
		ans.digest, err = r.Digest(tp)
		return err
	}); err != nil {
		return ans, err
	}
	ans.months = different(want, &ans.digest)
	return ans, nil
}

// saveNow saves the rows of a partition at the offset that they go to.
func (v *verification) saveNow(tp domain.TopicPartition, m *projections.Memory) error {
	var at int64
	if err := m.ReadPartition(tp, func(_ *projections.PartReader, next int64) error {
		at = next
		return nil
	}); err != nil {
		return err
	}
	atSave()
	if _, err := snapshotfile.Save(v.folds(tp), domain.Position{tp: at}, func(w io.Writer) error {
		_, _, err := m.WriteSnapshot(w, v.h.ID)
		return err
	}); err != nil {
		return fmt.Errorf("save progress: %w", err)
	}
	atSave()
	return nil
}

// within fails if more memory is in use than the budget has, after all that can leave it did.
func (v *verification) within(tp domain.TopicPartition, s *sealer, newest domain.Instant) error {
	if v.budget == 0 || liveHeap()-v.others < v.budget {
		return nil
	}
	if err := s.seal(tp, newest, true); err != nil {
		return err
	}
	runtime.GC()
	used := liveHeap() - v.others
	if used < v.budget {
		return nil
	}
	return &InvalidError{Field: "memory", Err: fmt.Errorf("%w: %s are in use with the rows of the open months of %s, more than %s",
		errBudget, humanize.IBytes(uint64(used)), tp, humanize.IBytes(uint64(v.budget)))}
}

// liveHeap returns the bytes of the heap that the last collection found in use.
func liveHeap() int64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// ReplayWithin folds the log from its beginning, partition by partition and within a memory budget, and
// compares the rows of each month with the live ones. A run that was interrupted goes on where the
// progress directory says that it ended. Snapshots are not compared.
func (c *Caller) ReplayWithin(ctx context.Context, b ReplayBudget) (_ *Replay, err error) {
	if b.Memory != 0 && b.Memory < leastBudget {
		return nil, invalid("memory", "%s: want %s at least", humanize.IBytes(uint64(b.Memory)), humanize.IBytes(uint64(leastBudget)))
	}
	h, err := c.conn(ctx, Reading)
	if err != nil {
		return nil, err
	}
	if b.Progress == "" {
		if b.Progress, err = os.MkdirTemp("", "quartermaster-verify-"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(b.Progress)) }()
	}
	v, err := h.openVerification(b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	if h.borrowed {
		v.others = liveHeap() // the rows that others read, which stay
	} else if b.Memory != 0 {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(b.Memory))
	}
	ans, err := v.run(ctx)
	if h.released {
		err = errors.Join(err, c.app.Close()) // the next question loads the rows again
	}
	return ans, err
}

// live are the digests of the live rows.
type live struct {
	digests []projections.PartitionDigest // of [domain.AllPartitions]
	end     domain.Position
	below   []projections.PartDigest
}

func (h *Conn) liveDigests(ctx context.Context) (l live, err error) {
	tps := domain.AllPartitions()
	l.digests = make([]projections.PartitionDigest, len(tps))
	bar := h.app.track(Work{Name: "digest", Total: int64(len(tps)), Unit: "partitions", Slow: true})
	defer bar.Stop()
	err = h.View(ctx, func(v projections.View) error {
		l.end, l.below = v.Position(), projections.PartsBelow(v)
		r := projections.NewPartReader(v)
		return concurrently(ctx, r.Parallel(), len(tps), bar, func(i int) (err error) {
			l.digests[i], err = r.Digest(tps[i])
			return err
		})
	})
	return l, err
}

func (v *verification) run(ctx context.Context) (*Replay, error) {
	h := v.h
	rows, err := h.liveDigests(ctx)
	if err != nil {
		return nil, err
	}
	ans := &Replay{Method: projections.Method, Position: rows.end.String(), LeftAside: h.aside}
	if h.DB == nil {
		ans.LiveFrom = h.loaded.String()
	}
	if h.DB == nil && !h.borrowed {
		h.drop() // the digests are all that is needed of them
	}
	tps := domain.AllPartitions()
	bar := h.app.track(Work{Name: "verify", Total: rows.end.Records(), Unit: "events"})
	defer bar.Stop()
	defer follow(bar, v.done.Load)()
	start := time.Now()
	got := make([]foldedPartition, len(tps))
	if err := v.several(ctx, len(tps), func(ctx context.Context, i int) (err error) {
		got[i], err = v.fold(ctx, rows.end[tps[i]], &rows.digests[i])
		return err
	}); err != nil {
		return ans, err
	}
	digests := make([]projections.PartitionDigest, len(tps))
	var resumed int64
	months := 0
	for i := range got {
		p := &got[i].folded
		ans.Events, ans.Folded = ans.Events+p.Records, ans.Folded+p.Folded
		ans.Repeats, ans.Quarantined = ans.Repeats+p.Repeats, ans.Quarantined+p.Quarantined
		digests[i] = got[i].digest
		months += len(digests[i].Parts)
		resumed += got[i].before
		ans.Differences = append(ans.Differences, got[i].months...)
	}
	ans.Seconds = time.Since(start).Seconds()
	ans.EventsPerSecond = float64(ans.Events) / max(ans.Seconds, 1e-9)
	ans.Resumed, ans.Months = &resumed, &months
	ans.ReplayDigest = fmt.Sprintf("%x", projections.DigestOfPartitions(digests))
	ans.LiveDigest = fmt.Sprintf("%x", projections.DigestOfPartitions(rows.digests))
	equal := ans.ReplayDigest == ans.LiveDigest
	ans.Equal = &equal
	return ans, h.verifyBelow(ctx, rows.below, ans, v.once)
}

// several calls do for 0 to n-1, as many at a time as the budget has room for. The first error ends all.
func (v *verification) several(ctx context.Context, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers := runtime.GOMAXPROCS(0)
	if v.budget != 0 {
		workers = min(workers, max(1, int(v.budget/partitionBudget)))
	}
	next := atomic.Int64{}
	parallel.Run(workers, func(int) {
		for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		}
	})
	return context.Cause(ctx)
}

// different names the months in which replayed rows differ from the live ones.
func different(live, replay *projections.PartitionDigest) (out []RowDifference) {
	if live.Rest != replay.Rest {
		out = append(out, RowDifference{
			Row: fmt.Sprintf("%s rows that are not split by time", live.Partition), Live: true, Replay: true,
		})
	}
	keys := map[projections.PartKey][2]projections.PartDigest{}
	for i, d := range []*projections.PartitionDigest{live, replay} {
		for _, p := range d.Parts {
			both := keys[p.PartKey]
			both[i] = p
			keys[p.PartKey] = both
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(keys), projections.PartKey.Compare) {
		if d := keys[k]; d[0] != d[1] {
			out = append(out, RowDifference{Row: k.String(), Live: d[0].Rows > 0, Replay: d[1].Rows > 0})
		}
	}
	return out
}
