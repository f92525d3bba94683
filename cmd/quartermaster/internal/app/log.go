package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"quartermaster/adapters/snapshotfile"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
)

// replayThrough folds the log from its beginning into fresh rows, and calls at when it reaches
// each of the positions. Each position must cover the one before. Sealed months whose rows are those
// of a part leave memory on the way.
func (h *Conn) replayThrough(ctx context.Context, stops []domain.Position, b Progress, at func(i int, m *projections.Memory, r *projections.Runner) error) error {
	m, s := h.memory(false)
	r := NewRunner(sealingLog{h.Log, s}, m)
	defer follow(b, func() int64 { return r.Progress().Records })()
	for i, to := range stops {
		if err := r.CatchUp(ctx, to); err != nil {
			return fmt.Errorf("replay the log to %s: %w", to, err)
		}
		if err := at(i, m, r); err != nil {
			return err
		}
	}
	return nil
}

// Record is a record of the log with the event in it.
type Record struct {
	Topic     domain.Topic    `json:"topic"`
	Partition int             `json:"partition"`
	Offset    int64           `json:"offset"`
	Last      int64           `json:"last,omitempty"` // last offset, where Error is about a run of offsets
	Appended  domain.Instant  `json:"appended"`
	Key       string          `json:"key"`
	Event     json.RawMessage `json:"event,omitempty"` // a CloudEvents 1.0 event in JSON
	Error     string          `json:"error,omitempty"` // why it cannot be decoded
	// Raw is the record's value where it cannot be decoded.
	Raw []byte `json:"raw,omitempty"`

	// Type and Subject are those of the event.
	Type    domain.Type `json:"-"`
	Subject string      `json:"-"`
}

// AppendLine appends the record as a line of JSON. The result is that of encoding/json, but the
// event is JSON already and is not parsed again.
func (s *Record) AppendLine(b []byte) ([]byte, error) {
	text := func(v any) {
		var line bytes.Buffer
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err == nil { // strings and bytes never fail
			b = append(b, bytes.TrimSuffix(line.Bytes(), []byte("\n"))...)
		}
	}
	at, err := s.Appended.MarshalText()
	if err != nil {
		return nil, err
	}
	b = append(b, `{"topic":"`...)
	b = append(b, s.Topic...)
	b = append(b, `","partition":`...)
	b = strconv.AppendInt(b, int64(s.Partition), 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, s.Offset, 10)
	if s.Last != 0 {
		b = append(b, `,"last":`...)
		b = strconv.AppendInt(b, s.Last, 10)
	}
	b = append(b, `,"appended":"`...)
	b = append(b, at...)
	b = append(b, `","key":`...)
	text(s.Key)
	if len(s.Event) > 0 {
		b = append(b, `,"event":`...)
		b = append(b, s.Event...)
	}
	if s.Error != "" {
		b = append(b, `,"error":`...)
		text(s.Error)
	}
	if len(s.Raw) > 0 {
		b = append(b, `,"raw":`...)
		text(s.Raw)
	}
	return append(b, "}\n"...), nil
}

func shown(dec *wire.Decoder, rec *domain.Record) Record {
	s := Record{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Appended: rec.Time, Key: string(rec.Key)}
	if rec.Span != nil {
		s.Last = rec.Span.Last
	}
	var env domain.Envelope
	if err := dec.Decode(rec, &env); err != nil {
		s.Error, s.Raw = err.Error(), slices.Clone(rec.Value)
		return s
	}
	return s.of(rec, &env)
}

// of returns s with the event that a record holds.
func (s Record) of(rec *domain.Record, env *domain.Envelope) Record {
	s.Type, s.Subject = env.Event.Type(), env.Subject
	ev, err := wire.CloudEvent(env)
	if err != nil {
		s.Error, s.Raw = err.Error(), slices.Clone(rec.Value)
		return s
	}
	s.Event = ev
	return s
}

// Attributes returns the record with the attributes of its event alone, without its data, which can be long.
func (s Record) Attributes() (Record, error) {
	if len(s.Event) == 0 {
		return s, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(s.Event, &members); err != nil {
		return Record{}, err
	}
	delete(members, "data")
	var err error
	s.Event, err = json.Marshal(members)
	return s, err
}

func partitionsOf(topics []string) ([]domain.TopicPartition, error) {
	all := domain.AllPartitions()
	if len(topics) == 0 {
		return all, nil
	}
	for _, t := range topics {
		if domain.Topic(t).Partitions() == 0 {
			names := make([]string, 0, 9)
			for _, s := range domain.TopicSpecs() {
				names = append(names, string(s.Topic))
			}
			return nil, &NotFoundError{What: "topic", Name: t, Err: fmt.Errorf("no topic %q; there are %v", t, names)}
		}
	}
	return slices.DeleteFunc(all, func(tp domain.TopicPartition) bool { return !slices.Contains(topics, string(tp.Topic)) }), nil
}

// Tail calls yield with the newest records that q selects, the oldest first. With follow it continues with new ones
// until ctx ends. yield is never called concurrently. It returns the partitions in which older records were not searched.
func (c *Caller) Tail(ctx context.Context, q Newest, follow bool, yield func(Record) error) (stopped []domain.TopicPartition, err error) {
	tps, err := q.partitions()
	if err != nil {
		return nil, err
	}
	if q.Lines < 0 || q.Lines > MaxTail {
		return nil, invalid("lines", "%d: want 0 to %d; \"quartermaster log export\" writes everything", q.Lines, MaxTail)
	}
	h, err := c.log(ctx)
	if err != nil {
		return nil, err
	}
	end, err := h.End(ctx)
	if err != nil {
		return nil, err
	}
	var found []Record
	for _, tp := range tps {
		part, early, err := h.newest(ctx, tp, end[tp], &q)
		if err != nil {
			return nil, err
		}
		if early {
			stopped = append(stopped, tp)
		}
		found = append(found, part...)
	}
	slices.SortStableFunc(found, byAppended)
	for _, s := range found[max(0, len(found)-q.Lines):] {
		if err := yield(s); err != nil {
			return stopped, err
		}
	}
	if !follow {
		return stopped, nil
	}
	return stopped, h.follow(ctx, tps, end, &q, yield)
}

// follow calls yield with new records that q selects, until ctx ends.
func (h *Conn) follow(ctx context.Context, tps []domain.TopicPartition, end domain.Position, q *Newest, yield func(Record) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, tp := range tps {
		wg.Go(func() {
			var dec wire.Decoder
			err := h.Log.Follow(ctx, tp, end[tp], func(recs []domain.Record) error {
				mu.Lock()
				defer mu.Unlock()
				for i := range recs {
					r, ok := q.selected(&dec, &recs[i])
					if !ok {
						continue
					}
					if err := yield(r); err != nil {
						return err
					}
				}
				return nil
			})
			cancel(err)
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Replay is the result of folding the log from its beginning.
type Replay struct {
	Events          int64   `json:"events"`
	Seconds         float64 `json:"seconds"`
	EventsPerSecond float64 `json:"events_per_second"`
	Folded          int64   `json:"folded"`
	Repeats         int64   `json:"repeats"`
	Quarantined     int64   `json:"quarantined"`
	Method          string  `json:"method"`
	Position        string  `json:"position"`
	ReplayDigest    string  `json:"replay_digest"`
	LiveDigest      string  `json:"live_digest,omitempty"`
	// LiveFrom is where the live rows started from: the position of a snapshot, or "0".
	LiveFrom string `json:"live_from,omitempty"`
	// LeftAside lists snapshots that could not be used, and why.
	LeftAside []string `json:"left_aside,omitempty"`
	// SnapshotsChecked counts the snapshots that were compared with the log on the way.
	// SnapshotsFailed lists those that differ from it.
	SnapshotsChecked *int             `json:"snapshots_checked,omitempty"`
	SnapshotsFailed  []*SnapshotCheck `json:"snapshots_failed,omitempty"` // those that differ from the log

	// Resumed counts the events that an earlier run had folded, and Months the months of partitions that
	// were compared, if memory or progress was given.
	Resumed *int64 `json:"resumed,omitempty"`
	Months  *int   `json:"months,omitempty"`

	// PartsChecked counts the parts below the live and the replayed rows. All their rows were read.
	// PartsFailed says of each that is damaged or missing what is wrong with it.
	PartsChecked *int     `json:"parts_checked,omitempty"`
	PartsFailed  []string `json:"parts_failed,omitempty"`

	Equal       *bool           `json:"equal,omitempty"`
	Differences []RowDifference `json:"differences,omitempty"` // the first hundred
}

// RowDifference is a row that differs between two sets of rows or, if memory or progress was given, a
// month of a partition.
type RowDifference struct {
	Row    string `json:"row"`
	Live   bool   `json:"live"`   // the live rows have it
	Replay bool   `json:"replay"` // the replayed rows have it
}

// Replay folds the log from its beginning into fresh rows. With verify it compares them with the
// live rows, compares every snapshot on the way, and reads every part below the rows.
func (c *Caller) Replay(ctx context.Context, verify bool) (*Replay, error) {
	h, err := c.log(ctx)
	if verify {
		h, err = c.conn(ctx, Reading)
	}
	if err != nil {
		return nil, err
	}
	r, err := h.replay(ctx, verify)
	if h.released {
		err = errors.Join(err, c.app.Close()) // the next question loads the rows again
	}
	return r, err
}

// release drops the live rows from memory if they are many, after saving them if that is worthwhile.
// So a replay beside them needs the memory of one set of rows.
func (h *Conn) release() {
	if h.DB == nil && !h.borrowed && h.ownRows() >= manyRows {
		h.drop()
	}
}

// ownRows returns the number of rows in memory.
func (h *Conn) ownRows() (rows int) {
	for _, tp := range domain.AllPartitions() {
		rows += h.store.Own(tp)
	}
	return rows
}

// drop drops the live rows from memory, after saving them if that is worthwhile.
func (h *Conn) drop() {
	if err := h.Save(); err != nil {
		h.app.tell("no snapshot was written: %v", err)
	}
	h.released = true
	h.reset()
	debug.FreeOSMemory()
}

// reload brings back what release dropped, up to a position.
func (h *Conn) reload(ctx context.Context, at domain.Position) error {
	if !h.released {
		return nil
	}
	h.Load()
	return h.Runner.CatchUp(ctx, at)
}

func (h *Conn) replay(ctx context.Context, verify bool) (*Replay, error) {
	ans := &Replay{}
	end, err := h.End(ctx)
	if err != nil {
		return ans, err
	}
	if !verify {
		_, err := h.replayTo(ctx, end, nil, ans)
		return ans, err
	}
	infos, err := snapshotfile.Infos(h.Snapshots())
	if err != nil {
		return ans, err
	}
	checks := h.readThrough(infos, end)
	passes := unchecked(checks)
	live, end, err := h.Digest(ctx)
	if err != nil {
		return ans, err
	}
	var below []projections.PartDigest
	if err := h.View(ctx, func(v projections.View) error {
		below = projections.PartsBelow(v)
		return nil
	}); err != nil {
		return ans, err
	}
	from, aside := "", h.aside
	if h.DB == nil {
		from = h.loaded.String()
	}
	h.release()
	// The first pass over the snapshots is done on the way, if it ends no later.
	var way []*SnapshotCheck
	if len(passes) > 0 && end.Covers(passes[0][len(passes[0])-1].info.Position) {
		way, passes = passes[0], passes[1:]
	}
	fresh, err := h.replayTo(ctx, end, way, ans)
	if err != nil {
		return ans, err
	}
	liveDigest := fmt.Sprintf("%x", live)
	equal := liveDigest == ans.ReplayDigest
	ans.LiveDigest, ans.Equal, ans.LiveFrom, ans.LeftAside = liveDigest, &equal, from, aside
	if !equal {
		if err := h.reload(ctx, end); err != nil {
			return ans, fmt.Errorf("fold the live rows again: %w", err)
		}
		if ans.Differences, err = differences(ctx, h.View, fresh.View); err != nil {
			return ans, err
		}
	}
	if err := fresh.View(ctx, func(v projections.View) error {
		return h.verifyBelow(ctx, slices.Concat(below, projections.PartsBelow(v)), ans, always)
	}); err != nil {
		return ans, err
	}
	if err := h.checkAgainstLog(ctx, passes); err != nil {
		return ans, err
	}
	checked := 0
	for _, c := range checks {
		if c.Result == SnapshotEqual || c.Result == snapshotDifferent {
			checked++
		}
		if c.Bad() {
			ans.SnapshotsFailed = append(ans.SnapshotsFailed, c)
		}
	}
	ans.SnapshotsChecked = &checked
	return ans, nil
}

// always reads a part.
func always(p projections.PartDigest, read func(projections.PartDigest) error) error { return read(p) }

// verifyBelow reads the parts below rows. Their digests were compared with the log, not their files.
// once calls its function with a part, unless that was done before.
func (h *Conn) verifyBelow(
	ctx context.Context, below []projections.PartDigest, ans *Replay,
	once func(projections.PartDigest, func(projections.PartDigest) error) error,
) error {
	slices.SortFunc(below, func(a, b projections.PartDigest) int {
		return cmp.Or(a.Compare(b.PartKey), bytes.Compare(a.Digest[:], b.Digest[:]))
	})
	below = slices.Compact(below)
	wrong := make([]error, len(below))
	bar := h.app.track(Work{Name: "verify", Total: int64(len(below)), Unit: "parts", Slow: true})
	defer bar.Stop()
	err := concurrently(ctx, true, len(below), bar, func(i int) error {
		wrong[i] = once(below[i], h.source.Verify)
		return nil
	})
	n := len(below)
	ans.PartsChecked = &n
	for _, err := range wrong {
		if err != nil {
			ans.PartsFailed = append(ans.PartsFailed, err.Error())
		}
	}
	return err
}

// replayTo folds the log from its beginning to a position, compares the snapshots on the way with
// it, and fills the answer.
func (h *Conn) replayTo(ctx context.Context, end domain.Position, way []*SnapshotCheck, ans *Replay) (fresh *projections.Memory, err error) {
	b := h.app.track(Work{Name: "replay", Total: end.Records(), Unit: "events"})
	defer b.Stop()
	took, start := time.Duration(0), time.Now()
	err = h.replayThrough(ctx, append(positionsOf(way), end), b, func(i int, m *projections.Memory, r *projections.Runner) error {
		took += time.Since(start) // excludes the comparison
		defer func() { start = time.Now() }()
		if i < len(way) {
			return h.compareSnapshot(ctx, way[i], m)
		}
		fresh = m
		sum, at, err := m.Digest()
		p := r.Progress()
		*ans = Replay{
			Events: p.Records, Seconds: took.Seconds(), EventsPerSecond: float64(p.Records) / max(took.Seconds(), 1e-9),
			Folded: p.Folded, Repeats: p.Repeats, Quarantined: p.Quarantined,
			Method: projections.Method, Position: at.String(), ReplayDigest: fmt.Sprintf("%x", sum),
		}
		return err
	})
	return fresh, err
}

// differences returns the rows in which two sets of rows differ, at most a hundred.
func differences(ctx context.Context, live, replay func(context.Context, func(projections.View) error) error) (out []RowDifference, err error) {
	err = live(ctx, func(lv projections.View) error {
		return replay(ctx, func(rv projections.View) error {
			if lv.Position().String() != rv.Position().String() {
				return nil // rows in a database continue to change
			}
			diffs, err := projections.Differences(lv, rv, 100)
			for _, d := range diffs {
				out = append(out, RowDifference{d.Key.String(), d.InA, d.InB})
			}
			return err
		})
	})
	return out, err
}
