package whatif

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Fork is rows with hypothetical events folded on top of them. The rows below are read and never
// changed, so many forks share one folding of history. A fork stores what its events touched. It is
// valid as long as the view below.
//
// Decisions among the events count as made by an authorised operator.
type Fork struct {
	base    projections.View
	source  string
	key     ed25519.PrivateKey
	parts   map[domain.TopicPartition]*forked
	streams map[domain.TopicPartition]uint64 // last sequence
}

type forked struct {
	next    int64
	rows    map[projections.Key]projections.Row
	pending []domain.Envelope
}

// forkSource is the source of hypothetical events. The slash distinguishes it from every agent,
// importer and command.
const forkSource = "what-if/fork"

// NewFork returns a fork with the rows of the view.
func NewFork(base projections.View) *Fork {
	// The key allows decisions in forks only; no view of a log accepts it.
	seed := sha256.Sum256([]byte(forkSource))
	source := forkSource
	base = projections.Stored(base)
	if below, ok := base.(forkView); ok {
		source = below.f.source + "/fork"
	}
	return &Fork{
		base: base, source: source, key: ed25519.NewKeyFromSeed(seed[:]), parts: map[domain.TopicPartition]*forked{},
		streams: map[domain.TopicPartition]uint64{},
	}
}

// Append folds events on top, in order. It replaces their source, sequence and signature. An event
// that the fold refuses is an error.
func (f *Fork) Append(ctx context.Context, at domain.Instant, events ...domain.Envelope) error {
	to := domain.Position{}
	for _, env := range events {
		env.Source, env.Incarnation, env.Signature = f.source, 1, nil
		key, err := env.Key()
		if err != nil {
			return unfit("suppose %s: %w", env.Event.Type(), err)
		}
		tp := domain.TopicPartition{Topic: env.Topic(), Partition: domain.PartitionOf([]byte(key), env.Topic().Partitions())}
		f.streams[tp]++
		env.Sequence = f.streams[tp]
		if domain.NeedsSignature(env.Event) {
			message := []byte(fmt.Sprintf("%s %d", tp, env.Sequence))
			env.Signature = &domain.Signature{
				Operator: forkSource, Key: f.key.Public().(ed25519.PublicKey), Message: message,
				Bytes: ed25519.Sign(f.key, message),
			}
		}
		if err := domain.Validate(&env); err != nil {
			return unfit("suppose %s: %w", env.Event.Type(), err)
		}
		p := f.part(tp)
		p.pending = append(p.pending, env)
		to[tp] = p.next + int64(len(p.pending))
	}
	run := projections.Runner{
		Log: forkLog{f, at}, Store: f, Topics: domain.TopicSpecs(),
		NewDecoder: func() projections.Decoder { return forkDecoder{f} },
	}
	err := run.CatchUp(ctx, to)
	for _, p := range f.parts {
		p.pending = nil
	}
	if err != nil {
		return err
	}
	if n := run.Progress().Quarantined; n > 0 {
		return unfit("suppose: the fold refuses %d events", n)
	}
	return nil
}

func (f *Fork) part(tp domain.TopicPartition) *forked {
	p := f.parts[tp]
	if p == nil {
		p = &forked{next: f.base.Position()[tp], rows: map[projections.Key]projections.Row{}}
		f.parts[tp] = p
	}
	return p
}

// forkLog provides a fork's pending events to the runner, as records that contain only their
// number.
type forkLog struct {
	f  *Fork
	at domain.Instant
}

// ReadAfter implements [projections.Log].
func (l forkLog) ReadAfter(
	_ context.Context, tp domain.TopicPartition, _ domain.Anchor, from, to int64, yield func([]domain.Record) error,
) error {
	p := l.f.parts[tp]
	recs := make([]domain.Record, 0, to-from)
	for i := range p.pending {
		key, err := p.pending[i].Key()
		if err != nil {
			return err
		}
		recs = append(recs, domain.Record{
			Topic: tp.Topic, Partition: tp.Partition, Offset: from + int64(i), Time: l.at, Key: []byte(key),
			Value: binary.BigEndian.AppendUint32(nil, uint32(i)),
		})
	}
	return yield(recs)
}

// FollowAfter implements [projections.Log].
func (l forkLog) FollowAfter(context.Context, domain.TopicPartition, domain.Anchor, int64, func([]domain.Record) error) error {
	return errors.New("a fork is not followed")
}

// forkDecoder turns the records of a forkLog into their events.
type forkDecoder struct{ f *Fork }

// Decode implements [projections.Decoder].
func (d forkDecoder) Decode(rec *domain.Record, env *domain.Envelope) error {
	p := d.f.parts[domain.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}]
	*env = p.pending[binary.BigEndian.Uint32(rec.Value)]
	return nil
}

// Begin implements [projections.Store].
func (f *Fork) Begin(_ context.Context, tp domain.TopicPartition) (projections.Tx, error) {
	p := f.parts[tp]
	if p == nil {
		return nil, fmt.Errorf("fold %s: nothing is supposed there", tp)
	}
	return &forkTx{f: f, p: p}, nil
}

type forkTx struct {
	f    *Fork
	p    *forked
	rows *projections.WorkingSet
}

func (t *forkTx) Next() int64 { return t.p.next }

// Anchor is empty: a fork's records are in no log.
func (t *forkTx) Anchor() domain.Anchor { return domain.Anchor{} }

// Due implements [projections.Tx].
func (t *forkTx) Due(projections.Pending) bool { return true }

// Load copies the named rows, so that folding changes no row below.
func (t *forkTx) Load(_ context.Context, keys iter.Seq[projections.Key]) (*projections.WorkingSet, error) {
	if t.rows == nil {
		t.rows = projections.NewWorkingSet()
	}
	for k := range keys {
		if t.rows.Holds(k) {
			continue
		}
		row, ok := t.p.rows[k]
		if !ok {
			var err error
			if row, err = t.f.base.Get(k); err != nil {
				return nil, err
			}
		}
		if row == nil {
			continue
		}
		raw, err := projections.EncodeRow(row)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		if row, err = projections.DecodeRow(k.Table, raw); err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		t.rows.Add(k, row)
	}
	return t.rows, nil
}

func (t *forkTx) Commit(_ context.Context, next int64, _ domain.Anchor) error {
	for k, row := range t.rows.Changed {
		t.p.rows[k] = row
	}
	t.p.next = next
	return nil
}

func (t *forkTx) Rollback() {}

// View implements [projections.Store].
func (f *Fork) View(_ context.Context, read func(projections.View) error) error {
	return read(f.Rows())
}

// Rows returns the fork's rows.
func (f *Fork) Rows() registry.Supposing { return supposing{projections.ByCluster(forkView{f}), f} }

type supposing struct {
	*projections.ClusterView
	f *Fork
}

// Supposed implements [registry.Supposing].
func (v supposing) Supposed() []byte { return v.f.key.Public().(ed25519.PublicKey) }

// forkView is the fork's rows as they would be stored.
type forkView struct{ f *Fork }

func (v forkView) Position() domain.Position { return v.f.base.Position() }

func (v forkView) Anchors() map[domain.TopicPartition]domain.Anchor { return v.f.base.Anchors() }

func (v forkView) Get(k projections.Key) (projections.Row, error) {
	for _, p := range v.f.parts {
		if row := p.rows[k]; row != nil {
			return row, nil
		}
	}
	return v.f.base.Get(k)
}

func (v forkView) Scopes(t projections.Table) ([]string, error) {
	out, err := v.f.base.Scopes(t)
	if err != nil {
		return nil, err
	}
	out = slices.Clone(out)
	for _, p := range v.f.parts {
		for k := range p.rows {
			if k.Table == t {
				out = append(out, k.Scope)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (v forkView) Scan(q projections.Query, yield func(projections.Key, projections.Row) error) error {
	return v.scan(q, q.Holds, projections.Key.Compare, v.f.base.Scan, yield)
}

// ScanByCluster scans as the function of package projections does.
func (v forkView) ScanByCluster(q projections.Query, yield func(projections.Key, projections.Row) error) error {
	below := func(q projections.Query, yield func(projections.Key, projections.Row) error) error {
		return projections.ScanByCluster(v.f.base, q, yield)
	}
	return v.scan(q, q.HoldsByCluster, projections.Key.CompareByCluster, below, yield)
}

// scan merges the fork's rows with those of a scan of the rows below, in one order.
func (v forkView) scan(
	q projections.Query, holds func(projections.Key) bool, compare func(k, l projections.Key) int,
	below func(projections.Query, func(projections.Key, projections.Row) error) error,
	yield func(projections.Key, projections.Row) error,
) error {
	type found struct {
		key projections.Key
		row projections.Row
	}
	var own []found
	for _, p := range v.f.parts {
		for k, row := range p.rows {
			if k.Table == q.Table && holds(k) {
				own = append(own, found{k, row})
			}
		}
	}
	if len(own) == 0 {
		return below(q, yield)
	}
	slices.SortFunc(own, func(a, b found) int { return compare(a.key, b.key) })
	// The fork's row replaces the one below. If the last row of each thing is requested, it is the
	// last of both.
	var kept *found
	emit := func(x found) error {
		if !q.Last {
			return yield(x.key, x.row)
		}
		if kept != nil && (kept.key.Scope != x.key.Scope || kept.key.ID != x.key.ID) {
			if err := yield(kept.key, kept.row); err != nil {
				return err
			}
		}
		kept = &x
		return nil
	}
	err := below(q, func(k projections.Key, row projections.Row) error {
		for len(own) > 0 && compare(own[0].key, k) < 0 {
			if err := emit(own[0]); err != nil {
				return err
			}
			own = own[1:]
		}
		if len(own) > 0 && own[0].key == k {
			row = own[0].row
			own = own[1:]
		}
		return emit(found{k, row})
	})
	for i := 0; err == nil && i < len(own); i++ {
		err = emit(own[i])
	}
	if err == nil && kept != nil {
		err = yield(kept.key, kept.row)
	}
	return err
}
