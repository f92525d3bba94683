package projections

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"quartermaster/domain"
)

// Method is the version of the folds. Rows of different versions are not comparable. A new version
// rebuilds its rows from the log.
const Method = "folds/12"

// Decoder turns a record into an event. The envelope may share memory with the record; the fold
// copies what it keeps.
type Decoder interface {
	// Decode fills env from rec, as far as possible before an error.
	Decode(rec *domain.Record, env *domain.Envelope) error
}

// Projector applies the records of one partition to its rows, one after the other. It is a pure
// function of the records and the rows, apart from memory that it reuses. It is not safe for
// concurrent use.
type Projector struct {
	tp     domain.TopicPartition
	rows   string // the scope of rows about the partition itself
	n      int
	dec    Decoder
	env    domain.Envelope
	key    []byte // of the last record that was in the right partition
	scope  string // the same
	buf    []byte // for sum
	counts Counts
	failed map[int64]error // errors of the program, by offset
}

// Counts counts the records that a Projector saw by result. It is not part of the rows, because a
// repeat must not change them.
type Counts struct {
	Folded      int64 `json:"folded"`
	Repeats     int64 `json:"repeats"`
	Quarantined int64 `json:"quarantined"`
	// Uncompared counts the records, among Repeats and Quarantined, that may or may not be repeats,
	// because the first record is no longer remembered. Records of imports are not counted.
	Uncompared int64 `json:"not_compared"`
	// Conflicts counts the records, among Quarantined, that claim the sequence of another.
	Conflicts int64 `json:"conflicts"`
}

// Plus returns the sum of two counts.
func (c Counts) Plus(d Counts) Counts {
	return Counts{
		c.Folded + d.Folded, c.Repeats + d.Repeats, c.Quarantined + d.Quarantined,
		c.Uncompared + d.Uncompared, c.Conflicts + d.Conflicts,
	}
}

func (c Counts) minus(d Counts) Counts {
	return Counts{
		c.Folded - d.Folded, c.Repeats - d.Repeats, c.Quarantined - d.Quarantined,
		c.Uncompared - d.Uncompared, c.Conflicts - d.Conflicts,
	}
}

// NewProjector returns a Projector for a partition. partitions is the number of
// partitions of its topic.
func NewProjector(tp domain.TopicPartition, partitions int, dec Decoder) *Projector {
	return &Projector{tp: tp, rows: StreamScope(tp), n: partitions, dec: dec}
}

// Counts returns the counts of the records so far.
func (f *Projector) Counts() Counts { return f.counts }

// read decodes a record and checks that it is in the right partition. kind is the kind of the
// error.
func (f *Projector) read(rec *domain.Record) (kind string, err error) {
	f.env = domain.Envelope{}
	if rec.Span != nil {
		return KindBatch, errors.New(rec.Span.Fault)
	}
	switch err := f.dec.Decode(rec, &f.env); {
	case errors.Is(err, domain.ErrMisplaced):
		return KindMisplaced, err
	case err != nil:
		return KindUndecodable, err
	}
	if t := f.env.Topic(); t != f.tp.Topic {
		return KindMisplaced, fmt.Errorf("%s belongs to %s", f.env.Event.Type(), t)
	}
	if string(rec.Key) != string(f.key) || f.key == nil {
		if p := domain.PartitionOf(rec.Key, f.n); p != f.tp.Partition {
			return KindMisplaced, fmt.Errorf("key %q belongs to partition %d", rec.Key, p)
		}
		f.key = append(f.key[:0], rec.Key...)
		f.scope = string(rec.Key)
	}
	return "", nil
}

// Keys yields the keys of all rows that applying the record may touch.
func (f *Projector) Keys(rec *domain.Record, yield func(Key) bool) (more bool) {
	if rec.IsMarker() {
		return true
	}
	if !yield(f.quarantineKey(rec)) {
		return false
	}
	if _, ok := f.failed[rec.Offset]; ok {
		return true
	}
	yielding := false
	defer func() {
		if yielding { // the panic is not the fold's
			return
		}
		if p := recover(); p != nil {
			f.fail(rec, fmt.Errorf("panic: %v", p))
			more = true
		}
	}()
	return f.keys(rec, func(k Key) bool {
		yielding = true
		more := yield(k)
		yielding = false
		return more
	})
}

// fail remembers that the program fails on a record, so that the record is quarantined the next
// time. The text is the same in every process of this program.
func (f *Projector) fail(rec *domain.Record, err error) {
	if f.failed == nil {
		f.failed = map[int64]error{}
	}
	f.failed[rec.Offset] = fmt.Errorf("this program fails on the record: %w", err)
}

func (f *Projector) keys(rec *domain.Record, yield func(Key) bool) bool {
	if _, err := f.read(rec); err != nil {
		return true
	}
	env := &f.env
	if !yield(f.streamKey(env.Source, env.Incarnation)) {
		return false
	}
	if !yield(f.pastKey(env.Source)) {
		return false
	}
	if env.PreviousIncarnation != 0 && !yield(f.streamKey(env.Source, env.PreviousIncarnation)) {
		return false
	}
	if cited, ok := f.cited(); ok && !yield(cited) {
		return false
	}
	switch ev := env.Event.(type) {
	case *domain.NodeSampled:
		return usageKeys(f.scope, ev, yield)
	case *domain.ServingSampled:
		return yield(servingKey(f.scope, ev))
	case *domain.MetricsObserved:
		return serverKeys(f.scope, ev, yield)
	case *domain.DemandObserved:
		return yield(demandKey(f.scope, ev))
	default:
		p, ok := Place(env, f.scope)
		return !ok || yield(p.Key)
	}
}

func (f *Projector) streamKey(source string, incarnation uint64) Key {
	return Key{Table: TableStreams, Scope: f.rows, ID: source, Hour: int64(incarnation)}
}

func (f *Projector) quarantineKey(rec *domain.Record) Key {
	return Key{Table: TableQuarantine, Scope: f.rows, Hour: rec.Offset + 1}
}

// StreamScope is the scope of rows about a partition itself.
func StreamScope(tp domain.TopicPartition) string { return tp.String() }

// ScopePartition is the inverse of [StreamScope].
func ScopePartition(scope string) domain.TopicPartition {
	topic, partition, _ := strings.Cut(scope, "/")
	n, _ := strconv.Atoi(partition)
	return domain.TopicPartition{Topic: domain.Topic(topic), Partition: n}
}

// Apply folds one record. An invalid record becomes a quarantine row and has no other effect,
// except that its sequence counts as seen. A repeat changes nothing. The only error is
// [ErrHalfway]: the program failed or panicked on this record and may have changed rows. The caller
// MUST discard all changes since the last commit and fold those records again with the same
// Projector, which then quarantines this one.
func (f *Projector) Apply(rows *WorkingSet, rec *domain.Record) (err error) {
	if rec.IsMarker() {
		return nil
	}
	rows.offset = rec.Offset
	if reason := f.failed[rec.Offset]; reason != nil {
		f.env = domain.Envelope{}
		f.quarantine(rows, rec, KindFailed, reason)
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil {
			f.fail(rec, err)
			err = fmt.Errorf("%w: %s at offset %d: %w", ErrHalfway, f.tp, rec.Offset, err)
		}
	}()
	return f.apply(rows, rec)
}

// ErrHalfway means that a fold failed within a record, see [Projector.Apply].
var ErrHalfway = errors.New("folding failed within a record")

func (f *Projector) apply(rows *WorkingSet, rec *domain.Record) error {
	env := &f.env
	if kind, err := f.read(rec); err != nil {
		f.quarantine(rows, rec, kind, err)
		return nil
	}
	key := f.streamKey(env.Source, env.Incarnation)
	stream, _ := rows.Get(key).(*Stream)
	sum := f.sum(rec)
	if stream != nil {
		switch stream.judge(env.Sequence) {
		case repeat:
			f.repeat(rows, rec, key, stream.Recent, sum)
			return nil
		case uncertain:
			f.counts.Uncompared++
			f.quarantine(rows, rec, KindUncertain, fmt.Errorf(
				"sequence %d may be late or a repeat: it lies below %d, and the gaps there were too many to remember",
				env.Sequence, stream.Forgotten))
			return nil
		}
	}
	if stream == nil {
		if ended, _ := rows.Get(f.pastKey(env.Source)).(*Stream); ended != nil {
			switch ended.Past.judge(env.Incarnation, env.Sequence) {
			case repeat:
				f.repeat(rows, rec, f.pastKey(env.Source), nil, sum)
				return nil
			case uncertain:
				f.counts.Uncompared++
				f.quarantine(rows, rec, KindUncertain, fmt.Errorf(
					"sequence %d may be late or a repeat: incarnation %d lies between %d and %d, "+
						"of which only those bounds are remembered",
					env.Sequence, env.Incarnation, ended.Past.First, ended.Past.Last))
				return nil
			}
		}
	}
	stream = f.open(rows, env.Source, env.Incarnation)
	stream.take(env.Sequence)
	stream.Recent.keep(Seen{env.Sequence, rec.Offset, sum})
	stream.Last = max(stream.Last, env.Time)
	stream.Ahead = max(stream.Ahead, env.Time-rec.Time)
	f.close(rows, stream)
	if env.PreviousIncarnation != 0 && env.PreviousSequence > 0 {
		f.end(rows, env.Source, env.PreviousIncarnation, env.PreviousSequence)
	}
	if err := domain.Validate(env); err != nil {
		f.quarantine(rows, rec, KindInvalid, err)
		return nil
	}
	if err := env.CheckSignature(); err != nil {
		f.quarantine(rows, rec, KindUnsigned, err)
		return nil
	}
	if kind, err := f.checkAge(rows, rec); err != nil {
		f.quarantine(rows, rec, kind, err)
		return nil
	}
	f.counts.Folded++
	switch ev := env.Event.(type) {
	case *domain.NodeSampled:
		foldSample(rows, f.scope, env.Source, ev, rec.Time)
		return nil
	case *domain.ServingSampled:
		foldServing(rows, f.scope, env.Source, ev)
		return nil
	case *domain.MetricsObserved:
		foldServers(rows, f.scope, ev)
		return nil
	case *domain.DemandObserved:
		known := env.Recorded
		if known == 0 {
			known = rec.Time
		}
		foldDemand(rows, f.scope, env.Workspace, known, ev)
		return nil
	}
	p, ok := Place(env, f.scope)
	if !ok {
		return fmt.Errorf("no fold for %s", env.Event.Type())
	}
	if p.stated {
		p.Effective = rec.Time
	}
	v := Version{Order: env.Precedence(p.Effective), Recorded: env.Recorded, Workspace: env.Workspace, Line: env.Line, Event: env.Event}
	v.Order.Appended = rec.Time
	if s := env.Signature; s != nil {
		v.Signer = &Signer{Operator: s.Operator, Key: s.Key, Time: env.Time, Appended: rec.Time, Offset: rec.Offset}
	}
	switch t := p.Key.Table; {
	case t == TableRecommendations, t == TableIncidents, t == TableDenials, t == TableHealth && v.Signer != nil:
		v.Record = &Located{Partition: uint32(rec.Partition), Offset: rec.Offset, Cluster: env.Cluster}
		if t == TableHealth {
			v.Record.Cluster = "" // the scope has it
		}
	}
	h := change[*History](rows, p.Key)
	if p.fault {
		if !Scraped(env.Source) || !h.sight(&v) {
			h.enterFault(v)
		}
		return nil
	}
	return h.insert(v, p.collapse)
}

// repeat handles a record whose sequence was seen before. A record with the same content changes
// nothing; one with other content is a conflict. If the first record is too old to compare, it may
// be either. Then it is quarantined, because losing a fault is worse than asking an operator about
// a repeat. Telemetry is dropped instead, because there is too much of it, and counted in the row
// of its stream. A file that is imported again is a plain repeat.
func (f *Projector) repeat(rows *WorkingSet, rec *domain.Record, key Key, recent Recent, sum uint32) {
	env := &f.env
	same, first := recent.compare(env.Sequence, sum)
	switch {
	case same != nil, recordedOnce(env), first == nil && imported(env.Source):
		f.counts.Repeats++
	case first != nil:
		offset := first.Offset
		f.counts.Conflicts++
		reason := fmt.Errorf(
			"sequence %d of the stream is taken by another record, at offset %d: one of the two may be forged",
			env.Sequence, offset)
		f.quarantine(rows, rec, KindConflict, reason).Conflicts = &offset
		change[*Stream](rows, key).Recent.keep(Seen{env.Sequence, rec.Offset, sum})
	case f.tp.Topic != domain.TopicTelemetry:
		f.counts.Uncompared++
		f.quarantine(rows, rec, KindUncertain, fmt.Errorf(
			"sequence %d of incarnation %d was seen, too long ago to compare: it is a repeat, or one of the two is forged",
			env.Sequence, env.Incarnation))
	default:
		f.counts.Repeats++
		f.counts.Uncompared++
		change[*Stream](rows, key).Uncompared++
	}
}

// quarantine sets a record aside. It keeps the readable parts of the event, to show whom it may
// concern.
func (f *Projector) quarantine(rows *WorkingSet, rec *domain.Record, kind string, reason error) *Quarantined {
	q := change[*Quarantined](rows, f.quarantineKey(rec))
	sum := rec.Hash()
	*q = Quarantined{
		Topic: f.tp.Topic, Partition: f.tp.Partition, Offset: rec.Offset,
		SHA256: sum[:], Kind: kind, Reason: reason.Error(),
		Source: clip(f.env.Source), Incarnation: f.env.Incarnation, Sequence: f.env.Sequence,
		Workspace: clip(f.env.Workspace), Cluster: clip(f.env.Cluster), Appended: rec.Time,
	}
	if s := rec.Span; s != nil && s.Last > rec.Offset {
		q.Last = s.Last
	}
	f.counts.Quarantined += int64(q.Events())
	if f.env.Event != nil {
		q.Type = f.env.Event.Type()
	}
	return q
}

// clip copies the text of a broken event, truncated.
func clip(s string) string { return string([]byte(s[:min(len(s), 256)])) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns the checksum by which a repeat is recognized, see [Seen].
func (f *Projector) sum(rec *domain.Record) uint32 {
	f.buf = rec.AppendContent(f.buf[:0])
	return crc32.Checksum(f.buf, castagnoli)
}

// StreamKey returns the key of a stream's row in a partition.
func StreamKey(tp domain.TopicPartition, source string, incarnation uint64) Key {
	return Key{Table: TableStreams, Scope: StreamScope(tp), ID: source, Hour: int64(incarnation)}
}
