// Package storetest tests the contract of a [projections.Store]: [Run] is the suite that every
// implementation passes. It also has helpers for such tests: an in-memory [Log] that carries domain
// events without an encoding, an example of every event type, and generators of random logs.
package storetest

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Log is an in-memory log. It implements [projections.Log] and [projections.Decoder]: a record's
// value is the number of its event in the log. Other values do not decode.
type Log struct {
	// Batch is the maximum number of records per batch; 0 means 16.
	Batch int

	mu        sync.Mutex
	events    []domain.Envelope
	parts     map[domain.TopicPartition][]domain.Record
	sequences map[stream]uint64
	grown     chan struct{}
	broken    map[domain.TopicPartition]int64
}

type stream struct {
	tp domain.TopicPartition
	id domain.StreamID
}

// NewLog returns an empty log.
func NewLog() *Log {
	return &Log{
		parts:     map[domain.TopicPartition][]domain.Record{},
		sequences: map[stream]uint64{},
		grown:     make(chan struct{}),
	}
}

// place returns the partition and key of an event.
func place(env *domain.Envelope) (domain.TopicPartition, []byte, error) {
	key, err := env.Key()
	if err != nil {
		return domain.TopicPartition{}, nil, err
	}
	topic := env.Topic()
	return domain.TopicPartition{Topic: topic, Partition: domain.PartitionOf([]byte(key), topic.Partitions())}, []byte(key), nil
}

// Append appends events. An event is recorded at its own time, an observation at the end of what it
// covers. A missing incarnation becomes 1, a missing sequence the next of the stream. It panics on
// an event without a key, which is a mistake in a test.
func (l *Log) Append(envs ...domain.Envelope) {
	for _, env := range envs {
		at := env.Time
		if _, to, ok := domain.ObservedTime(&env); ok {
			at = max(at, to)
		}
		l.AppendAt(env, at)
	}
}

// founded is when [Root] registers himself in a log without operators.
const founded domain.Instant = 946684800 * domain.Second // 2000-01-01

// AppendAt appends one event as recorded at a time and returns its partition and offset. It signs
// unsigned registrations of clusters, corrections of usage and outages as [Root], and registers
// Root first if there is no operator yet.
func (l *Log) AppendAt(env domain.Envelope, at domain.Instant) (domain.TopicPartition, int64) {
	signed := []domain.Type{domain.TypeClusterRegistered, domain.TypeUsageCorrected, domain.TypeOutageDeclared}
	if env.Signature == nil && slices.Contains(signed, env.Event.Type()) {
		l.found()
		env = Root.Sign(env)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.add(env, at)
}

// AppendTogether appends events that need no signature, as recorded at a time. Readers see all of them or none.
func (l *Log) AppendTogether(at domain.Instant, envs ...domain.Envelope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, env := range envs {
		l.add(env, at)
	}
}

func (l *Log) add(env domain.Envelope, at domain.Instant) (domain.TopicPartition, int64) {
	tp, key, err := place(&env)
	if err != nil {
		panic(fmt.Sprintf("append %+v: %v", env, err))
	}
	if env.Source == "" {
		env.Source = "test/1"
	}
	if env.Incarnation == 0 {
		env.Incarnation = 1
	}
	s := stream{tp, env.Stream()}
	if env.Sequence == 0 {
		env.Sequence = l.sequences[s] + 1
	}
	l.sequences[s] = max(l.sequences[s], env.Sequence)
	l.events = append(l.events, env)
	return tp, l.append(tp, domain.Record{Time: at, Key: key, Value: strconv.AppendInt(nil, int64(len(l.events)-1), 10)})
}

// found registers Root, unless an operator is registered.
func (l *Log) found() {
	for i := range l.events {
		if l.events[i].Event.Type() == domain.TypeOperatorRegistered {
			return
		}
	}
	l.Append(Root.Register(Root, "home", domain.RoleAdmin, nil, founded))
}

// AppendRaw appends an arbitrary record.
func (l *Log) AppendRaw(tp domain.TopicPartition, key, value []byte, at domain.Instant) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.append(tp, domain.Record{Epoch: 3, Time: at, Key: key, Value: value})
}

func (l *Log) append(tp domain.TopicPartition, rec domain.Record) int64 {
	rec.Topic, rec.Partition, rec.Offset = tp.Topic, tp.Partition, int64(len(l.parts[tp]))
	l.parts[tp] = append(l.parts[tp], rec)
	close(l.grown)
	l.grown = make(chan struct{})
	return rec.Offset
}

// AppendSpan appends a run of n offsets without records, see [domain.Span].
func (l *Log) AppendSpan(tp domain.TopicPartition, n int, fault string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := int64(len(l.parts[tp]))
	s := &domain.Span{Last: first + int64(n) - 1, Fault: fault, SHA256: sha256.Sum256([]byte(fault))}
	for range n { // one per offset, so that all of them are counted
		l.append(tp, domain.Record{Span: s})
	}
}

// Repeat appends a copy of a record of the log.
func (l *Log) Repeat(tp domain.TopicPartition, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.append(tp, l.parts[tp][offset])
}

// Records returns the records of a partition. Callers MUST NOT change them.
func (l *Log) Records(tp domain.TopicPartition) []domain.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.parts[tp])
}

// Event returns the event of a record, nil if it does not decode.
func (l *Log) Event(rec *domain.Record) *domain.Envelope {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, err := strconv.Atoi(string(rec.Value))
	if err != nil || i < 0 || i >= len(l.events) {
		return nil
	}
	return &l.events[i]
}

// Break makes reads of a partition fail at an offset with a [projections.Lasting] error. Mend
// undoes that, for every partition.
func (l *Log) Break(tp domain.TopicPartition, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = map[domain.TopicPartition]int64{tp: at}
}

// Mend undoes [Log.Break].
func (l *Log) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = nil
}

// Filter returns a log of the same events with only the records that keep
// accepts, at new offsets.
func (l *Log) Filter(keep func(*domain.Record) bool) *Log {
	out := NewLog()
	out.Batch = l.Batch
	out.events = l.events
	for _, tp := range domain.AllPartitions() {
		for _, rec := range l.Records(tp) {
			if keep(&rec) {
				out.append(tp, rec)
			}
		}
	}
	return out
}

// End returns the position after the last record.
func (l *Log) End() domain.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := domain.Position{}
	for tp, records := range l.parts {
		p[tp] = int64(len(records))
	}
	return p
}

// Decode implements [projections.Decoder].
func (l *Log) Decode(rec *domain.Record, env *domain.Envelope) error {
	if rec.Span != nil {
		return errors.New(rec.Span.Fault)
	}
	e := l.Event(rec)
	if e == nil {
		return fmt.Errorf("record value %q is no event", rec.Value)
	}
	*env = *e
	return nil
}

// ReadAfter implements [projections.Log].
func (l *Log) ReadAfter(
	ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from, to int64, yield func([]domain.Record) error,
) error {
	batch := int64(l.Batch)
	if batch <= 0 {
		batch = 16
	}
	records := l.Records(tp)
	if to > int64(len(records)) {
		return fmt.Errorf("read %s up to %d: it ends at %d", tp, to, len(records))
	}
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := min(to, from+batch)
		if s := records[from].Span; s != nil {
			next = min(to, s.Last+1)
			if err := yield([]domain.Record{records[from]}); err != nil {
				return err
			}
			from = next
			continue
		}
		if i := slices.IndexFunc(records[from:next], func(r domain.Record) bool { return r.Span != nil }); i > 0 {
			next = from + int64(i)
		}
		l.mu.Lock()
		at, broken := l.broken[tp]
		l.mu.Unlock()
		if broken && next > at {
			if next = at; from >= at {
				return brokenError{}
			}
		}
		if err := yield(slices.Clone(records[from:next])); err != nil {
			return err
		}
		from = next
	}
	return nil
}

// brokenError is a [projections.Lasting] error.
type brokenError struct{}

func (brokenError) Error() string  { return "log is broken" }
func (brokenError) Advice() string { return "mend it" }
func (brokenError) Kind() string   { return "broken" }

// Silence has readers that follow say again that there are no more records.
func (l *Log) Silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.grown)
	l.grown = make(chan struct{})
}

// FollowAfter implements [projections.Log].
func (l *Log) FollowAfter(
	ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from int64, yield func([]domain.Record) error,
) error {
	for {
		l.mu.Lock()
		to, grown := int64(len(l.parts[tp])), l.grown
		l.mu.Unlock()
		if err := l.ReadAfter(ctx, tp, last, from, to, yield); err != nil {
			return err
		}
		if to > from {
			from, last = to, l.Records(tp)[to-1].Anchor()
		}
		if err := yield(nil); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-grown:
		}
	}
}

// Runner returns a runner from the log into a store.
func (l *Log) Runner(store projections.Store) *projections.Runner {
	return &projections.Runner{
		Log: l, Store: store, Topics: domain.TopicSpecs(),
		NewDecoder: func() projections.Decoder { return l },
	}
}

// Fold returns a strict memory store of the whole log.
func (l *Log) Fold(ctx context.Context) (*projections.Memory, error) {
	m := projections.NewMemory(domain.TopicSpecs())
	m.Strict = true
	if err := l.Runner(m).CatchUp(ctx, l.End()); err != nil {
		return nil, err
	}
	return m, nil
}

// Digest returns the SHA-256 of every row of a view with its key, in order.
func Digest(v projections.View) ([32]byte, error) {
	h := sha256.New()
	var b []byte
	for _, t := range projections.Tables() {
		err := v.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) (err error) {
			if b, err = projections.AppendRow(b[:0], k, row); err != nil {
				return err
			}
			h.Write(b)
			return nil
		})
		if err != nil {
			return [32]byte{}, err
		}
	}
	return [32]byte(h.Sum(nil)), nil
}

// Operator is a person or program with a key.
type Operator struct {
	Name string
	key  ed25519.PrivateKey
}

// NewOperator returns an operator whose key is derived from the name and a number, so that tests
// are reproducible.
func NewOperator(name string, key int) Operator {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, key))
	return Operator{name, ed25519.NewKeyFromSeed(seed[:])}
}

// Public returns the operator's public key.
func (o Operator) Public() []byte { return o.key.Public().(ed25519.PublicKey) }

// Key returns the operator's private key.
func (o Operator) Key() ed25519.PrivateKey { return o.key }

// Sign returns the event with the operator's signature.
func (o Operator) Sign(env domain.Envelope) domain.Envelope {
	message, err := projections.EncodeRow(&projections.History{Versions: []projections.Version{{
		Order: domain.Precedence{Effective: env.Time}, Workspace: env.Workspace, Event: env.Event,
	}}})
	if err != nil {
		panic(fmt.Sprintf("sign %+v: %v", env, err))
	}
	env.Signature = &domain.Signature{
		Operator: o.Name, Key: o.Public(), Message: message, Bytes: ed25519.Sign(o.key, message),
	}
	return env
}

// Register returns the event with which admin registers the operator in a workspace.
func (o Operator) Register(
	admin Operator, workspace string, role domain.Role, limit *domain.Money, at domain.Instant,
) domain.Envelope {
	ev := &domain.OperatorRegistered{Operator: o.Name, PublicKey: o.Public(), Role: role}
	if limit != nil {
		ev.AuthorityLimits = []domain.Money{*limit}
	}
	return admin.Sign(domain.Envelope{Workspace: workspace, Time: at, Event: ev})
}
