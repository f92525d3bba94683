package projections

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"

	"quartermaster/domain"
)

// Method is the version of the folds. Rows computed under different versions
// are not comparable; a new version builds its rows anew, from the log.
const Method = "folds/5"

// Decoder turns a record into an event. What it puts into the envelope may
// share memory with the record; the fold copies what it keeps.
type Decoder interface {
	// Decode fills env from rec, as far as it gets before an error.
	Decode(rec *domain.Record, env *domain.Envelope) error
}

// Folder applies the records of one partition to its rows, one after the
// other. It is a pure function of the records and the rows, but for the memory
// that it reuses; it is not safe for concurrent use.
type Folder struct {
	tp     domain.TopicPartition
	n      int
	dec    Decoder
	env    domain.Envelope
	key    []byte // of the last record in the right partition
	scope  string // the same
	counts Counts
}

// Counts says what became of the records that a Folder saw. It is not part of
// the rows: a repeat changes nothing.
type Counts struct {
	Folded      int64 `json:"folded"`
	Repeats     int64 `json:"repeats"`
	Quarantined int64 `json:"quarantined"`
}

// NewFolder returns a Folder for a partition. partitions is the number of
// partitions of its topic.
func NewFolder(tp domain.TopicPartition, partitions int, dec Decoder) *Folder {
	return &Folder{tp: tp, n: partitions, dec: dec}
}

// Counts returns what became of the records so far.
func (f *Folder) Counts() Counts { return f.counts }

// read decodes a record and checks that it is where it belongs.
func (f *Folder) read(rec *domain.Record) error {
	f.env = domain.Envelope{}
	if err := f.dec.Decode(rec, &f.env); err != nil {
		return err
	}
	if t := f.env.Topic(); t != f.tp.Topic {
		return fmt.Errorf("%s belongs to %s", f.env.Event.Type(), t)
	}
	if string(rec.Key) != string(f.key) || f.key == nil {
		if p := domain.PartitionOf(rec.Key, f.n); p != f.tp.Partition {
			return fmt.Errorf("key %q belongs to partition %d", rec.Key, p)
		}
		f.key = append(f.key[:0], rec.Key...)
		f.scope = string(rec.Key)
	}
	return nil
}

// Keys yields the keys of every row that applying the record may touch.
func (f *Folder) Keys(rec *domain.Record, yield func(Key) bool) bool {
	if !yield(f.quarantineKey(rec)) {
		return false
	}
	if f.read(rec) != nil {
		return true
	}
	env := &f.env
	if !yield(f.streamKey(env.Source, env.Incarnation)) {
		return false
	}
	if env.PreviousIncarnation != 0 && !yield(f.streamKey(env.Source, env.PreviousIncarnation)) {
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
		p, ok := place(env, f.scope)
		return !ok || yield(p.key)
	}
}

func (f *Folder) streamKey(source string, incarnation uint64) Key {
	return StreamKey(f.tp, source, incarnation)
}

func (f *Folder) quarantineKey(rec *domain.Record) Key {
	return Key{Table: TableQuarantine, Scope: streamScope(f.tp), Hour: rec.Offset + 1}
}

// streamScope is the scope of rows about a partition itself.
func streamScope(tp domain.TopicPartition) string { return tp.String() }

// Apply folds one record. A record that is no good becomes a quarantine row
// and changes nothing else, but that its sequence counts as seen; a repeat
// changes nothing at all. The error is for failures of the fold itself.
func (f *Folder) Apply(rows *Rows, rec *domain.Record) error {
	env := &f.env
	if err := f.read(rec); err != nil {
		f.quarantine(rows, rec, err)
		return nil
	}
	key := f.streamKey(env.Source, env.Incarnation)
	stream, _ := rows.Get(key).(*Stream)
	if stream != nil {
		switch stream.judge(env.Sequence) {
		case repeat:
			f.counts.Repeats++
			return nil
		case uncertain:
			f.quarantine(rows, rec, fmt.Errorf("sequence %d may be late or a repeat: it lies below %d, and the gaps there were too many to remember", env.Sequence, stream.Forgotten))
			return nil
		}
	}
	stream = change[*Stream](rows, key)
	if stream.Source == "" {
		stream.Source, stream.Incarnation = key.clone().ID, env.Incarnation
	}
	stream.take(env.Sequence)
	stream.Last = max(stream.Last, env.Time)
	stream.Ahead = max(stream.Ahead, env.Time-rec.Time)
	if env.PreviousIncarnation != 0 {
		before := f.streamKey(env.Source, env.PreviousIncarnation)
		if s, _ := rows.Get(before).(*Stream); env.PreviousSequence > 0 && (s == nil || s.Mark < env.PreviousSequence) {
			s = change[*Stream](rows, before)
			if s.Source == "" {
				s.Source, s.Incarnation = before.clone().ID, env.PreviousIncarnation
			}
			s.reach(env.PreviousSequence)
		}
	}
	if err := domain.Validate(env); err != nil {
		f.quarantine(rows, rec, err)
		return nil
	}
	if err := env.CheckSignature(); err != nil {
		f.quarantine(rows, rec, err)
		return nil
	}
	f.counts.Folded++
	switch ev := env.Event.(type) {
	case *domain.NodeSampled:
		foldSample(rows, f.scope, env.Source, ev)
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
	p, ok := place(env, f.scope)
	if !ok {
		return fmt.Errorf("no fold for %s", env.Event.Type())
	}
	if p.stated {
		p.effective = rec.Time
	}
	v := Version{Order: env.Order(p.effective), Recorded: env.Recorded, Workspace: env.Workspace, Event: env.Event}
	v.Order.Appended = rec.Time
	if s := env.Signature; s != nil {
		v.Signer = &Signer{Operator: s.Operator, Key: s.Key, Time: env.Time, Appended: rec.Time, Offset: rec.Offset}
	}
	return change[*History](rows, p.key).insert(v, p.collapse)
}

// quarantine sets a record aside. What of the event could be read is kept, so
// that it is known whom it may concern.
func (f *Folder) quarantine(rows *Rows, rec *domain.Record, reason error) {
	f.counts.Quarantined++
	q := change[*Quarantined](rows, f.quarantineKey(rec))
	*q = Quarantined{
		Topic: f.tp.Topic, Partition: f.tp.Partition, Offset: rec.Offset,
		SHA256: HashRecord(rec), Reason: reason.Error(),
		Source: clip(f.env.Source), Sequence: f.env.Sequence,
		Workspace: clip(f.env.Workspace), Cluster: clip(f.env.Cluster), Appended: rec.Time,
	}
	if f.env.Event != nil {
		q.Type = f.env.Event.Type()
	}
}

// clip copies the text of a broken event, bounded.
func clip(s string) string { return string([]byte(s[:min(len(s), 256)])) }

// HashRecord returns the SHA-256 of a record: key, headers and value, each
// preceded by its length.
func HashRecord(rec *domain.Record) []byte {
	h := sha256.New()
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	part(rec.Key)
	part([]byte(strconv.Itoa(len(rec.Headers))))
	for _, hd := range rec.Headers {
		part([]byte(hd.Key))
		part(hd.Value)
	}
	part(rec.Value)
	return h.Sum(nil)
}

// StreamKey returns the key of a stream's row in a partition.
func StreamKey(tp domain.TopicPartition, source string, incarnation uint64) Key {
	return Key{Table: TableStreams, Scope: streamScope(tp), ID: source, Hour: int64(incarnation)}
}
