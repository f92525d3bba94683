package app

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	"quartermaster/projections"
)

// sealer leaves rows of sealed months to parts while a log is folded into memory, so that memory
// holds the open months and not history.
type sealer struct {
	store  *projections.Memory
	source projections.PartSource
	dir    parts.Directory
	// write makes parts that are not there. Otherwise rows stay in memory unless a part has the same.
	write bool
	// scratch says that parts in dir serve only until the work is done: one that source has elsewhere
	// need not be made.
	scratch bool
	tell    func(format string, args ...any)

	mu      sync.Mutex
	seen    map[domain.TopicPartition]attempt
	rows    map[domain.TopicPartition]int // in memory
	total   int                           // of rows
	writer  *parts.Writer
	writing int  // users of writer
	told    bool // why a part could not be made
	// moving are the digests of months whose part other rows supersede, at the last look at them.
	moving map[projections.PartKey][32]byte
	pause  time.Time // until which none is made, because one could not be
}

// pauseAfter is how long no part is made after one could not be.
const pauseAfter = time.Minute

// attempt is what is known of a partition since its months were looked at.
type attempt struct {
	before int64 // the first hour that was not sealed
	left   int   // rows that stayed in memory
	waits  bool  // some stayed because no part could be made
}

// leastSealed is the number of rows of a partition in memory below which nothing is left to parts:
// a small fleet needs none.
const leastSealed = 10_000

// From manyRows in memory on, garbage is collected when it reaches a fifth of what is live, not all of it.
// They are about 200 MB, of which the collector scans little.
var manyRows = 300_000 // changed by tests

var collectOften sync.Once

// collectFor sets how often garbage is collected while there are so many rows in memory.
func collectFor(rows int) {
	if rows > manyRows {
		collectOften.Do(func() { debug.SetGCPercent(20) })
	}
}

// memory returns an empty store that reads the parts of this log, and what leaves rows to them. It
// writes parts only if the process may write to the data directory and the rows are the present
// ones: parts of a past position would supersede newer ones.
func (h *Conn) memory(present bool) (*projections.Memory, *sealer) {
	m := projections.NewMemory(domain.TopicSpecs())
	m.Source = h.source
	return m, &sealer{
		store: m, source: h.source, dir: h.Parts(), tell: h.app.tell,
		seen: map[domain.TopicPartition]attempt{}, rows: map[domain.TopicPartition]int{},
		moving: map[projections.PartKey][32]byte{},
		write:  present && h.app.Dir != "" && (h.Broker == nil || h.Broker.Owner() && !h.Broker.ReadOnly()),
	}
}

// sealingLog is a log whose reader's months are sealed as it reads.
type sealingLog struct {
	projections.Log
	*sealer
}

// ReadAfter implements [projections.Log].
func (l sealingLog) ReadAfter(ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from, to int64, yield func([]domain.Record) error) error {
	return l.Log.ReadAfter(ctx, tp, last, from, to, l.after(tp, yield))
}

// FollowAfter implements [projections.Log].
func (l sealingLog) FollowAfter(ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from int64, yield func([]domain.Record) error) error {
	return l.Log.FollowAfter(ctx, tp, last, from, l.after(tp, yield))
}

// after looks at the months of a partition after a batch of it was folded and committed, if one was sealed by the
// time of the batch, or there are twice as many rows in memory as there were.
func (s *sealer) after(tp domain.TopicPartition, fold func([]domain.Record) error) func([]domain.Record) error {
	return func(recs []domain.Record) error {
		if err := fold(recs); err != nil || len(recs) == 0 {
			return err
		}
		own, newest := s.store.Own(tp), recs[len(recs)-1].Time
		s.mu.Lock()
		was := s.seen[tp]
		s.total += own - s.rows[tp]
		s.rows[tp] = own
		collectFor(s.total)
		s.mu.Unlock()
		due := projections.SealedBefore(newest) > was.before || own >= 2*was.left
		if own < leastSealed || !due && !(was.waits && s.writable()) {
			return nil
		}
		return s.seal(tp, newest, false)
	}
}

// seal leaves the rows of a partition's sealed months to parts. newest is the time of the last
// record of the log or, at least, of the partition. Unless all, the last month that has rows stays:
// if months are imported in their order, more rows of it follow.
func (s *sealer) seal(tp domain.TopicPartition, newest domain.Instant, all bool) error {
	before := projections.SealedBefore(newest)
	var at int64
	var sealed []projections.PartDigest
	waits := false
	if err := s.store.ReadPartition(tp, func(r *projections.PartReader, next int64) error {
		at = next
		d, err := r.Digest(tp)
		if err != nil {
			return err
		}
		months := d.Sealed(before)
		if n := len(months); !all && n > 0 && n == len(d.Parts) {
			months = months[:n-1]
		}
		for _, p := range months {
			there, retry := s.placed(r, p, next, all)
			if there {
				sealed = append(sealed, p)
			}
			waits = waits || retry
		}
		return nil
	}); err != nil {
		return fmt.Errorf("leave sealed months of %s to parts: %w", tp, err)
	}
	s.store.Detach(tp, at, sealed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[tp] = attempt{before, s.store.Own(tp), waits}
	return nil
}

// placed reports whether the rows of a month are in a part, and makes it if that is permitted, as the
// version that counts. If it cannot be made, the rows stay in memory, and nothing else fails: retry says
// that it can be tried again with the same rows. Unless now, a part is superseded only if its rows were
// the same at the last look, or memory has many: an import changes a month with each batch.
func (s *sealer) placed(r *projections.PartReader, p projections.PartDigest, next int64, now bool) (there, retry bool) {
	if r.LeftTo(p) {
		return true, false
	}
	there = s.source.Has(p) == nil
	if !s.write || s.scratch && there {
		return there, false
	}
	if m, err := s.dir.Manifest(p.PartKey); err == nil && m.Last().Method == projections.Method {
		last := m.Last()
		if there && last.Digest == parts.Digest(p.Digest) {
			return true, false
		}
		// While a log is folded again, the rows become what the part is. An older state of them must
		// not supersede it.
		if last.Digest != parts.Digest(p.Digest) && (last.Position > next || !now && s.moves(p, last.Rows)) {
			return there, false
		}
	}
	w := s.begin()
	if w == nil {
		return false, true
	}
	tallies, err := r.Tallies(p.Partition)
	if err == nil {
		_, err = w.Put(p, tallies[p.Month], next, func(yield func(projections.Key, []byte) error) error {
			return r.Rows(p.PartKey, yield)
		})
	}
	s.end(err)
	return err == nil, err != nil
}

// moves reports whether the rows of a month are other than at the last look at it, while there is
// memory for them: at least for twice those of its part, which a change of many takes into memory.
func (s *sealer) moves(p projections.PartDigest, inPart int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.moving[p.PartKey]
	s.moving[p.PartKey] = p.Digest
	return was != p.Digest && int64(s.total) < max(int64(manyRows), 2*inPart)
}

// writable reports whether a part can be made now.
func (s *sealer) writable() bool {
	w := s.begin()
	if w != nil {
		s.end(nil)
	}
	return w != nil
}

// begin returns the writer of parts, nil if this process may not or cannot write them now.
func (s *sealer) begin() *parts.Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.write || time.Now().Before(s.pause) {
		return nil
	}
	if s.writer == nil {
		w, err := parts.NewWriter(s.dir)
		if err != nil {
			s.fail(err)
			return nil
		}
		s.writer = w
	}
	s.writing++
	return s.writer
}

// end lets other processes write once nobody here does.
func (s *sealer) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing--; s.writing == 0 {
		err = errors.Join(err, s.writer.Close())
		s.writer = nil
	}
	if err != nil {
		s.fail(err)
	}
}

// fail ends the writing of parts for a while. Another process that makes parts is no reason to say so,
// or to wait.
func (s *sealer) fail(err error) {
	if errors.Is(err, parts.ErrLocked) {
		return
	}
	if !s.told {
		s.tell("sealed months stay in memory, because no part can be made: %v", err)
	}
	s.told, s.pause = true, time.Now().Add(pauseAfter)
}

// seal leaves the rows of all sealed months to parts where they are many.
func (h *Conn) seal(ctx context.Context, at domain.Position) error {
	newest, err := h.lastAppended(ctx, at)
	if err != nil {
		return err
	}
	tps := domain.AllPartitions()
	bar := h.app.track(Work{Name: "seal", Total: int64(len(tps)), Unit: "partitions", Slow: true})
	defer bar.Stop()
	return concurrently(ctx, true, len(tps), bar, func(i int) error {
		if h.store.Own(tps[i]) < leastSealed {
			return nil
		}
		return h.sealer.seal(tps[i], newest, true)
	})
}
