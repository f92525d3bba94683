package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
)

// reference is a second, deliberately simple fold: what the rows must be, said
// again by the rules as they are documented, without a line of projections. It
// reads the log with another client, keeps everything in maps, knows repeats by
// the plain set of sequences that it has seen, and has its own encoding of rows.
//
// It shares with the product the decoder of records, the validation of events
// and the CBOR library. It knows the rows that the workload of the campaign
// makes, and refuses what would need a rule that it does not have: samples of
// one source that overlap, statements about a thing that arrive in another order
// than they take effect and may be left out as saying nothing new, and streams
// with more gaps than are remembered. Property tests of projections hold those.
type reference struct {
	next map[domain.TopicPartition]int64
	rows map[rowName]refRow

	seen     map[refStream]map[uint64]bool
	records  int64
	repeats  int64
	poisoned int64

	conflicts int64 // of poisoned, records that claim the place of another
	aborted   int64 // of poisoned, records of transactions that were aborted
	oversized int64 // of poisoned, records of batches that unpack to too much
	markers   int64 // of transactions; these are no records
}

// rowName names a row as Postgres does: table, scope, id and number, where the
// number is the hour, day, month (all in hours since 1970), incarnation or offset.
type rowName struct {
	table, scope, id string
	number           int64
}

func (n rowName) String() string {
	return fmt.Sprintf("%s %s/%s@%d", n.table, n.scope, n.id, n.number)
}

// refRow is anything that can say its canonical bytes.
type refRow interface{ encode() ([]byte, error) }

type refStream struct {
	tp          domain.TopicPartition
	source      string
	incarnation uint64
}

// errReference means that the workload made what the reference has no rule for:
// the campaign is at fault.
var errReference = errors.New("the reference gives up")

func newReference() *reference {
	return &reference{next: map[domain.TopicPartition]int64{}, rows: map[rowName]refRow{}, seen: map[refStream]map[uint64]bool{}}
}

// read folds the raw log from where the reference is up to a position.
func (r *reference) read(ctx context.Context, brokers []string, to map[domain.TopicPartition]int64) error {
	from := map[string]map[int32]kgo.Offset{}
	left := 0
	for tp, end := range to {
		if r.next[tp] < end {
			topic := string(tp.Topic)
			if from[topic] == nil {
				from[topic] = map[int32]kgo.Offset{}
			}
			from[topic][int32(tp.Partition)] = kgo.NewOffset().At(r.next[tp])
			left++
		}
	}
	if left == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumePartitions(from), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer client.Close()
	for left > 0 {
		fetched := client.PollFetches(ctx)
		if err := fetched.Err0(); err != nil {
			return err
		}
		for _, e := range fetched.Errors() {
			return fmt.Errorf("read %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
		for it := fetched.RecordIter(); !it.Done(); {
			k := it.Next()
			tp := domain.TopicPartition{Topic: domain.Topic(k.Topic), Partition: int(k.Partition)}
			if r.next[tp] == to[tp] {
				continue
			}
			if k.Offset < r.next[tp] {
				return fmt.Errorf("%s: offset %d after %d", tp, k.Offset, r.next[tp]-1)
			}
			// What this client leaves out was aborted.
			if upto := min(k.Offset, to[tp]); r.next[tp] < upto {
				if err := r.batches(ctx, client, tp, upto, "the records are of a transaction that its producer aborted", &r.aborted); err != nil {
					return err
				}
			}
			switch {
			case k.Offset >= to[tp]:
			case k.Attrs.IsControl():
				r.markers++
				r.next[tp]++
			case len(k.Value) > 64<<20:
				if err := r.batches(ctx, client, tp, k.Offset+1, "the batch unpacks to more than 64 MiB", &r.oversized); err != nil {
					return err
				}
			default:
				rec := domain.Record{
					Topic: tp.Topic, Partition: tp.Partition, Offset: k.Offset,
					Time: domain.Instant(k.Timestamp.UnixMilli() * 1e6), Key: k.Key, Value: k.Value,
				}
				for _, h := range k.Headers {
					rec.Headers = append(rec.Headers, domain.Header{Key: h.Key, Value: h.Value})
				}
				if err := r.fold(tp, &rec); err != nil {
					return fmt.Errorf("%w: %s@%d: %w", errReference, tp, k.Offset, err)
				}
				r.next[tp]++
			}
			if r.next[tp] == to[tp] {
				left--
			}
		}
	}
	return nil
}

// batches sets the batches up to an offset aside, whole, and counts their records.
func (r *reference) batches(ctx context.Context, client *kgo.Client, tp domain.TopicPartition, to int64, reason string, count *int64) error {
	leader, _, err := client.PartitionLeader(string(tp.Topic), int32(tp.Partition))
	if err != nil {
		return err
	}
	named := kmsg.NewMetadataRequestTopic()
	named.Topic = kmsg.StringPtr(string(tp.Topic))
	about := kmsg.NewPtrMetadataRequest()
	about.Topics = append(about.Topics, named)
	topics, err := about.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for r.next[tp] < to {
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.FetchOffset, part.PartitionMaxBytes = int32(tp.Partition), r.next[tp], 1<<20
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic, topic.TopicID = string(tp.Topic), topics.Topics[0].TopicID
		topic.Partitions = append(topic.Partitions, part)
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 1000, 1, 1<<20, -1
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(ctx, client.Broker(int(leader)))
		if err != nil {
			return err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			return fmt.Errorf("read batches of %s from offset %d: %+v", tp, r.next[tp], resp)
		}
		set := resp.Topics[0].Partitions[0].RecordBatches
		for r.next[tp] < to {
			var b kmsg.RecordBatch
			if len(set) < 12 {
				break // ask again
			}
			size := 12 + int(binary.BigEndian.Uint32(set[8:]))
			if len(set) < size {
				break
			}
			if err := b.ReadFrom(set[:size]); err != nil {
				return err
			}
			if last := b.FirstOffset + int64(b.LastOffsetDelta); b.FirstOffset != r.next[tp] || last >= to {
				return fmt.Errorf("%w: %s: batch from %d to %d instead of %d to before %d", errReference, tp, b.FirstOffset, last, r.next[tp], to)
			}
			r.span(tp, &b, set[21:size], reason)
			*count += int64(b.NumRecords)
			r.next[tp] += int64(b.NumRecords)
			set = set[size:]
		}
	}
	return nil
}

// span sets a batch aside; content is what its checksum covers.
func (r *reference) span(tp domain.TopicPartition, b *kmsg.RecordBatch, content []byte, reason string) {
	r.records += int64(b.NumRecords)
	r.poisoned += int64(b.NumRecords)
	sum := sha256.Sum256(content)
	q := refQuarantined{
		Topic: string(tp.Topic), Partition: tp.Partition, Offset: b.FirstOffset, SHA256: sum[:], Kind: "batch", Reason: reason,
		Appended: refTime(domain.Instant(b.MaxTimestamp * 1e6)),
	}
	if b.NumRecords > 1 {
		q.Last = b.FirstOffset + int64(b.LastOffsetDelta)
	}
	r.rows[rowName{"quarantine", tp.String(), "", b.FirstOffset}] = q
}

// fold takes one record.
func (r *reference) fold(tp domain.TopicPartition, rec *domain.Record) error {
	r.records++
	var env domain.Envelope
	kind := "undecodable"
	err := new(wire.Decoder).Decode(rec, &env)
	if err == nil && env.Topic() != tp.Topic {
		kind, err = "misplaced", fmt.Errorf("%s belongs to %s", env.Event.Type(), env.Topic())
	}
	if err == nil {
		if p := domain.PartitionOf(rec.Key, tp.Topic.Partitions()); p != tp.Partition {
			kind, err = "misplaced", fmt.Errorf("key %q belongs to partition %d", rec.Key, p)
		}
	}
	if err != nil {
		r.poison(tp, rec, &env, kind, err)
		return nil
	}
	id := refStream{tp, env.Source, env.Incarnation}
	said := refSaid{rec.Offset, binary.BigEndian.Uint32(refHash(rec, crc32.New(crc32.MakeTable(crc32.Castagnoli))))}
	if r.seen[id][env.Sequence] {
		// A repeat changes nothing; other content under a sequence that is remembered is set aside.
		stream, _ := r.rows[id.name()].(*refStreamRow)
		var kept []refSaid // none of an incarnation that has ended
		if stream != nil {
			kept = stream.said[env.Sequence]
		}
		if len(kept) == 0 {
			return r.uncompared(tp, rec, &env, stream)
		}
		if slices.ContainsFunc(kept, func(s refSaid) bool { return s.sum == said.sum }) {
			r.repeats++
			return nil
		}
		first := kept[0].offset
		r.poison(tp, rec, &env, "conflict",
			fmt.Errorf("sequence %d of the stream is taken by another record, at offset %d: one of the two may be forged", env.Sequence, first))
		r.conflicts++
		q := r.rows[rowName{"quarantine", tp.String(), "", rec.Offset}].(refQuarantined)
		q.Conflicts = &first
		r.rows[rowName{"quarantine", tp.String(), "", rec.Offset}] = q
		stream.remember(env.Sequence, said)
		return nil
	}
	stream := r.stream(id)
	r.seen[id][env.Sequence] = true
	stream.remember(env.Sequence, said)
	stream.mark = max(stream.mark, env.Sequence)
	stream.last = max(stream.last, env.Time)
	stream.ahead = max(stream.ahead, env.Time-rec.Time)
	if env.PreviousIncarnation != 0 && env.PreviousSequence > 0 {
		before := refStream{tp, env.Source, env.PreviousIncarnation}
		row := r.stream(before)
		row.mark, row.ended = max(row.mark, env.PreviousSequence), max(row.ended, env.PreviousSequence)
		if err := r.close(row); err != nil {
			return err
		}
	}
	if err := r.close(stream); err != nil {
		return err
	}
	kind = "invalid"
	if err = domain.Validate(&env); err == nil {
		kind = "unsigned"
		err = env.CheckSignature()
	}
	if err != nil {
		r.poison(tp, rec, &env, kind, err)
		return nil
	}
	scope := string(rec.Key)
	switch ev := env.Event.(type) {
	case *domain.NodeSampled:
		return r.sample(scope, env.Source, ev, rec.Time)
	case *domain.ServingSampled:
		r.serving(scope, env.Source, ev)
		return nil
	case *domain.DemandObserved:
		r.demand(scope, &env, rec.Time, ev)
		return nil
	default:
		return r.state(scope, &env, rec)
	}
}

// ---- Streams and quarantine

// uncompared deals with a sequence that came again too late to compare the two.
func (r *reference) uncompared(tp domain.TopicPartition, rec *domain.Record, env *domain.Envelope, stream *refStreamRow) error {
	switch {
	case slices.ContainsFunc([]string{"sha256:", "quartermaster/", "what-if/"}, func(p string) bool { return strings.HasPrefix(env.Source, p) }):
		r.repeats++
	case tp.Topic != domain.TopicTelemetry:
		r.poison(tp, rec, env, "uncertain",
			fmt.Errorf("sequence %d of incarnation %d was seen, too long ago to compare: it is a repeat, or one of the two is forged", env.Sequence, env.Incarnation))
	case stream != nil:
		r.repeats++
		stream.uncompared++
	default:
		r.repeats++
		r.rows[refStream{tp, env.Source, 0}.name()].(*refPast).uncompared++
	}
	return nil
}

func (s refStream) name() rowName {
	return rowName{"streams", s.tp.String(), s.source, int64(s.incarnation)}
}

func (r *reference) stream(id refStream) *refStreamRow {
	row, _ := r.rows[id.name()].(*refStreamRow)
	if row == nil {
		if r.seen[id] == nil {
			r.seen[id] = map[uint64]bool{}
		}
		row = &refStreamRow{id: id, seen: r.seen[id], said: map[uint64][]refSaid{}}
		if past, _ := r.rows[refStream{id.tp, id.source, 0}.name()].(*refPast); past != nil {
			row.mark, row.ended = past.lives[id.incarnation], past.lives[id.incarnation]
			delete(past.lives, id.incarnation)
		}
		r.rows[id.name()] = row
	}
	return row
}

// close puts an incarnation that has ended and arrived whole into the row of its source.
func (r *reference) close(s *refStreamRow) error {
	if s.ended == 0 || s.mark != s.ended || uint64(len(s.seen)) != s.mark {
		return nil
	}
	name := refStream{s.id.tp, s.id.source, 0}.name()
	past, _ := r.rows[name].(*refPast)
	if past == nil {
		past = &refPast{source: s.id.source, lives: map[uint64]uint64{}}
		r.rows[name] = past
	}
	past.lives[s.id.incarnation] = s.mark
	past.uncompared += s.uncompared
	past.last, past.ahead = max(past.last, s.last), max(past.ahead, s.ahead)
	if len(past.lives) > 128 {
		return fmt.Errorf("source %s ended more often than a row tells apart", s.id.source)
	}
	delete(r.rows, s.id.name())
	return nil
}

// refPast are the incarnations of a source that ended, with their last sequences.
type refPast struct {
	source      string
	lives       map[uint64]uint64
	uncompared  uint64 // samples that came again, too late to compare
	last, ahead domain.Instant
}

func (p *refPast) encode() ([]byte, error) {
	var mark uint64
	lives := []any{}
	for _, n := range slices.Sorted(maps.Keys(p.lives)) {
		mark += p.lives[n]
		lives = append(lives, []any{n, p.lives[n]})
	}
	return refCBOR.Marshal(struct {
		Source      string         `cbor:"source"`
		Incarnation uint64         `cbor:"incarnation"`
		Mark        uint64         `cbor:"mark"`
		Last        string         `cbor:"last"`
		Ahead       string         `cbor:"ahead,omitempty"`
		Uncompared  uint64         `cbor:"not_compared,omitempty"`
		Recent      []byte         `cbor:"recent"`
		Past        map[string]any `cbor:"past"`
	}{p.source, 0, mark, refTime(p.last), refTime(p.ahead), p.uncompared, []byte{}, map[string]any{"incarnations": len(p.lives), "lives": lives}})
}

type refStreamRow struct {
	id          refStream
	seen        map[uint64]bool
	said        map[uint64][]refSaid // the last 128 or fewer, of the highest sequences
	mark        uint64               // known to have been reached
	ended       uint64               // where the next incarnation says that this one ended
	uncompared  uint64               // samples that came again, too late to compare
	last, ahead domain.Instant
}

// refSaid is a record: where it stands, and the first 32 bits of its SHA-256.
type refSaid struct {
	offset int64
	sum    uint32
}

// remember keeps a record. Of more than 128, those of the lowest sequence go.
func (s *refStreamRow) remember(seq uint64, said refSaid) {
	s.said[seq] = append(s.said[seq], said)
	for {
		n := 0
		for _, list := range s.said {
			n += len(list)
		}
		if n <= 128 {
			return
		}
		delete(s.said, slices.Min(slices.Collect(maps.Keys(s.said))))
	}
}

func (s *refStreamRow) encode() ([]byte, error) {
	// What is missing, as runs of what was not seen.
	var gaps [][2]uint64
	for q := uint64(1); q <= s.mark; q++ {
		if s.seen[q] {
			continue
		}
		if n := len(gaps); n > 0 && gaps[n-1][1] == q-1 {
			gaps[n-1][1] = q
		} else {
			gaps = append(gaps, [2]uint64{q, q})
		}
	}
	if len(gaps) > 60 {
		return nil, fmt.Errorf("stream %v has %d gaps, near what is remembered", s.id, len(gaps))
	}
	recent := []byte{}
	var seq uint64
	var offset int64
	for _, q := range slices.Sorted(maps.Keys(s.said)) {
		for _, said := range s.said[q] {
			recent = binary.AppendUvarint(recent, q-seq)
			recent = binary.AppendVarint(recent, said.offset-offset)
			recent = binary.BigEndian.AppendUint32(recent, said.sum)
			seq, offset = q, said.offset
		}
	}
	return refCBOR.Marshal(struct {
		Source      string      `cbor:"source"`
		Incarnation uint64      `cbor:"incarnation"`
		Mark        uint64      `cbor:"mark"`
		Gaps        [][2]uint64 `cbor:"gaps,omitempty"`
		Last        string      `cbor:"last"`
		Ahead       string      `cbor:"ahead,omitempty"`
		Ended       uint64      `cbor:"ended,omitempty"`
		Uncompared  uint64      `cbor:"not_compared,omitempty"`
		Recent      []byte      `cbor:"recent"`
	}{s.id.source, s.id.incarnation, s.mark, gaps, refTime(s.last), refTime(s.ahead), s.ended, s.uncompared, recent})
}

// refHash is the hash of a record.
func refHash(rec *domain.Record, h hash.Hash) []byte {
	// Key, number of headers, each header's name and value, value: each behind its
	// length in eight bytes.
	parts := [][]byte{rec.Key, []byte(strconv.Itoa(len(rec.Headers)))}
	for _, hd := range rec.Headers {
		parts = append(parts, []byte(hd.Key), hd.Value)
	}
	for _, p := range append(parts, rec.Value) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	return h.Sum(nil)
}

func (r *reference) poison(tp domain.TopicPartition, rec *domain.Record, env *domain.Envelope, kind string, reason error) {
	r.poisoned++
	q := refQuarantined{
		Topic: string(tp.Topic), Partition: tp.Partition, Offset: rec.Offset, SHA256: refHash(rec, sha256.New()), Kind: kind, Reason: reason.Error(),
		Source: first256(env.Source), Incarnation: env.Incarnation, Sequence: env.Sequence, Workspace: first256(env.Workspace), Cluster: first256(env.Cluster),
		Appended: refTime(rec.Time),
	}
	if env.Event != nil {
		q.Type = string(env.Event.Type())
	}
	r.rows[rowName{"quarantine", tp.String(), "", rec.Offset}] = q
}

func first256(s string) string { return strings.Clone(s[:min(len(s), 256)]) }

type refQuarantined struct {
	Topic       string `cbor:"topic"`
	Partition   int    `cbor:"partition"`
	Offset      int64  `cbor:"offset"`
	Last        int64  `cbor:"last,omitempty"`
	SHA256      []byte `cbor:"sha256"`
	Kind        string `cbor:"kind"`
	Reason      string `cbor:"reason"`
	Type        string `cbor:"type,omitempty"`
	Source      string `cbor:"source,omitempty"`
	Incarnation uint64 `cbor:"incarnation,omitempty"`
	Sequence    uint64 `cbor:"sequence,omitempty"`
	Workspace   string `cbor:"workspace,omitempty"`
	Cluster     string `cbor:"cluster,omitempty"`
	Appended    string `cbor:"appended"`
	Conflicts   *int64 `cbor:"conflicts_with,omitempty"`
}

func (q refQuarantined) encode() ([]byte, error) { return refCBOR.Marshal(q) }

// ---- Usage

// refUsage is a node and hour: what each source said of it, sample by sample.
type refUsage struct {
	holders   [][3]string // in the order of the log
	observers []*refObserver
}

type refObserver struct {
	source  string
	field   uint32
	cuts    []refCut
	devices []*refDevice
	others  []*refOther
	samples int
}

type refCut struct {
	parent  [16]byte
	profile string
}

type refDevice struct {
	id       [16]byte
	replica  uint32
	cut      int // 1 is the observer's first
	pieces   []refPiece
	readings [6]refReading
}

// refPiece is one sample's share of the hour, in milliseconds of it.
type refPiece struct {
	from, to, holder, known int64
	active                  uint64
	work                    string // of one without a holder
}

type refReading struct {
	sum        uint64
	known, max int64
}

type refOther struct {
	device, field   uint32
	count, sum, max uint64
}

const refHour = int64(time.Hour)

func (r *reference) sample(scope, source string, s *domain.NodeSampled, appended domain.Instant) error {
	from, to := int64(s.Interval.From), int64(s.Interval.To)
	for hour := from / refHour; hour*refHour < to; hour++ {
		begin := max(from-hour*refHour, 0) / 1e6
		end := min(to-hour*refHour, refHour) / 1e6
		if begin == end {
			continue
		}
		name := rowName{"usage_hours", scope, strings.Clone(s.Node), hour}
		u, _ := r.rows[name].(*refUsage)
		if u == nil {
			u = &refUsage{}
			r.rows[name] = u
		}
		if err := u.add(source, s, begin, end); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.reported(scope, s, hour, end-begin, appended)
	}
	return nil
}

// refReported is a node and month: the first and last hour of each GPU in it, and by
// day the samples that were appended after it.
type refReported struct {
	gpus map[[16]byte][2]int64
	late map[int64]*refLate
}

type refLate struct {
	first, last domain.Instant
	ms          int64
}

func (r *reference) reported(scope string, s *domain.NodeSampled, hour, ms int64, appended domain.Instant) {
	at := time.Unix(hour*3600, 0).UTC()
	month := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC).Unix() / 3600
	name := rowName{"node_gpus", scope, strings.Clone(s.Node), month}
	row, _ := r.rows[name].(*refReported)
	if row == nil {
		row = &refReported{map[[16]byte][2]int64{}, map[int64]*refLate{}}
		r.rows[name] = row
	}
	gpus, spoken := row.gpus, map[[16]byte]bool{}
	for i := range len(s.IDs) / 16 {
		id := [16]byte(s.IDs[16*i:])
		if len(s.Parent) > 0 && s.Parent[i] > 0 {
			id = [16]byte(s.Parents[16*(s.Parent[i]-1):])
		}
		spoken[id] = true
		if h, known := gpus[id]; known {
			gpus[id] = [2]int64{min(h[0], hour), max(h[1], hour)}
		} else {
			gpus[id] = [2]int64{hour, hour}
		}
	}
	if !appended.Time().Before(time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC)) {
		day := int64(appended / domain.Day)
		if row.late[day] == nil {
			row.late[day] = &refLate{first: appended}
		}
		l := row.late[day]
		l.first, l.last, l.ms = min(l.first, appended), max(l.last, appended), l.ms+ms*int64(len(spoken))
	}
}

func (g *refReported) encode() ([]byte, error) {
	list := []any{}
	for _, id := range slices.SortedFunc(maps.Keys(g.gpus), func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) }) {
		name := fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
		list = append(list, []any{name, g.gpus[id][0], g.gpus[id][1]})
	}
	row := map[string]any{"gpus": list}
	if len(g.late) > 32 {
		return nil, errors.New("a node's month came late on more days than a row keeps")
	}
	var late []any
	for _, day := range slices.Sorted(maps.Keys(g.late)) {
		late = append(late, []any{refTime(g.late[day].first), refTime(g.late[day].last), g.late[day].ms})
	}
	if len(late) > 0 {
		row["late"] = late
	}
	return refCBOR.Marshal(row)
}

func (u *refUsage) add(source string, s *domain.NodeSampled, from, to int64) error {
	o := refFind(&u.observers, func(o *refObserver) bool { return o.source == source }, func() *refObserver {
		return &refObserver{source: strings.Clone(source)}
	})
	o.samples++
	o.field = s.ActivityField
	text := func(refs []uint32, i int) string {
		if len(refs) == 0 || refs[i] == 0 {
			return ""
		}
		return strings.Clone(s.Strings[refs[i]-1])
	}
	var holders []int64 // of the event, as places among those of the row, from 1
	for i := range s.HolderWorkspace {
		h := [3]string{text(s.HolderWorkspace, i), text(s.HolderDeployment, i), text(s.HolderUnit, i)}
		at := slices.Index(u.holders, h)
		if at < 0 {
			at = len(u.holders)
			u.holders = append(u.holders, h)
		}
		holders = append(holders, int64(at+1))
	}
	var devices []*refDevice // of the event
	for i := range len(s.IDs) / 16 {
		id, replica := [16]byte(s.IDs[16*i:]), uint32(0)
		if len(s.Replica) > 0 {
			replica = s.Replica[i]
		}
		d := refFind(&o.devices, func(d *refDevice) bool { return d.id == id && d.replica == replica }, func() *refDevice {
			return &refDevice{id: id, replica: replica}
		})
		devices = append(devices, d)
		if len(s.Parent) > 0 && s.Parent[i] > 0 {
			c := refCut{[16]byte(s.Parents[16*(s.Parent[i]-1):]), text(s.Profile, i)}
			if d.cut = slices.Index(o.cuts, c) + 1; d.cut == 0 {
				o.cuts = append(o.cuts, c)
				d.cut = len(o.cuts)
			}
		}
		p := refPiece{from: from, to: to}
		if len(s.Holder) > 0 && s.Holder[i] > 0 {
			p.holder = holders[s.Holder[i]-1]
		}
		if len(s.ActivityMean) > 0 && s.ActivityMean[i] > 0 {
			p.known, p.active = to-from, uint64(s.ActivityMean[i]-1)*uint64(to-from)
		}
		// Without a holder, five percent of activity is work, and less is rest.
		switch {
		case p.holder > 0:
		case p.known == 0:
			p.work = "not measured"
		case s.ActivityMean[i]-1 < 50:
			p.work = "at rest"
		default:
			p.work = "at work"
		}
		for _, q := range d.pieces {
			if p.from < q.to && q.from < p.to {
				return fmt.Errorf("source %s overlaps itself, which this reference has no rule for", source)
			}
		}
		d.pieces = append(d.pieces, p)
		for j, column := range [][]uint32{s.TensorActive, s.DRAMActive, s.MemoryUsedMiB, s.PowerWatts, s.TemperatureC, s.SMClockMHz} {
			if len(column) > 0 && column[i] > 0 {
				v, m := int64(column[i])-1, &d.readings[j]
				m.sum, m.known, m.max = m.sum+uint64(v*(to-from)), m.known+to-from, max(m.max, v)
			}
		}
	}
	for i, entry := range s.OtherEntry {
		device, value := uint32(slices.Index(o.devices, devices[entry])), s.OtherValue[i]
		t := refFind(&o.others, func(t *refOther) bool { return t.device == device && t.field == s.OtherField[i] }, func() *refOther {
			return &refOther{device: device, field: s.OtherField[i]}
		})
		t.count, t.sum, t.max = t.count+1, t.sum+value, max(t.max, value)
	}
	return nil
}

// find returns the first that is the one, or puts a new one at the end.
func refFind[T any](list *[]*T, is func(*T) bool, fresh func() *T) *T {
	if i := slices.IndexFunc(*list, is); i >= 0 {
		return (*list)[i]
	}
	*list = append(*list, fresh())
	return (*list)[len(*list)-1]
}

// runs returns a device's pieces in order, those that follow on one another in
// the same hands as one; in nobody's, those that are alike at work.
func (d *refDevice) runs() []refPiece {
	var runs []refPiece
	for _, p := range slices.SortedFunc(slices.Values(d.pieces), func(a, b refPiece) int { return cmp.Compare(a.from, b.from) }) {
		if n := len(runs); n > 0 && runs[n-1].to == p.from && runs[n-1].holder == p.holder && runs[n-1].work == p.work {
			runs[n-1].to, runs[n-1].known, runs[n-1].active = p.to, runs[n-1].known+p.known, runs[n-1].active+p.active
		} else {
			runs = append(runs, p)
		}
	}
	return runs
}

func (u *refUsage) encode() ([]byte, error) {
	holders, observers := []any{}, []any{}
	for _, h := range u.holders {
		holders = append(holders, []any{h[0], h[1], h[2]})
	}
	for _, o := range u.observers {
		cuts, devices, others := []any{}, []any{}, []any{}
		for _, c := range o.cuts {
			cuts = append(cuts, []any{c.parent[:], c.profile})
		}
		for _, d := range o.devices {
			segments, readings := []any{}, []any{}
			for _, p := range d.runs() {
				segments = append(segments, p.from, p.to, p.holder, p.known, p.active)
			}
			for _, m := range d.readings {
				readings = append(readings, m.sum, m.known, m.max)
			}
			devices = append(devices, []any{d.id[:], d.replica, d.cut, segments, readings})
		}
		for _, t := range o.others {
			others = append(others, []any{t.device, t.field, t.count, t.sum, t.max})
		}
		observers = append(observers, []any{o.source, o.field, cuts, devices, others, o.samples})
	}
	return refCBOR.Marshal([]any{holders, observers})
}

// heldName names a row of usage_held, heldTimes what it holds: milliseconds of
// whole devices and of parts, how many of them were measured, and how busy they
// were, in thousandths of a millisecond.
type (
	heldName struct {
		workspace, cluster, deployment, node, source string
		hour                                         int64
	}
	heldTimes struct{ whole, part, known, active int64 }
)

// held returns what usage_held must hold, but for rows of zeros.
func (r *reference) held() map[heldName]heldTimes {
	out := map[heldName]heldTimes{}
	for name, row := range r.rows {
		u, ok := row.(*refUsage)
		if !ok {
			continue
		}
		for _, o := range u.observers {
			for _, d := range o.devices {
				for _, p := range d.pieces {
					if p.holder == 0 {
						continue
					}
					h := u.holders[p.holder-1]
					n := heldName{h[0], name.scope, h[1], name.id, o.source, name.number}
					t := out[n]
					if d.cut > 0 || d.replica > 0 {
						t.part += p.to - p.from
					} else {
						t.whole += p.to - p.from
					}
					t.known, t.active = t.known+p.known, t.active+int64(p.active)
					out[n] = t
				}
			}
		}
	}
	return out
}

// ---- Serving and demand

type refServing struct {
	Source     string         `cbor:"source"`
	Quarter    uint8          `cbor:"quarter"`
	Model      string         `cbor:"model"`
	Tier       string         `cbor:"tier,omitempty"`
	Engine     string         `cbor:"engine"`
	Known      uint64         `cbor:"known_ms"`
	Queue      uint64         `cbor:"queue_depth_milli_ms"`
	Batch      uint64         `cbor:"batch_size_milli_ms"`
	Cache      uint64         `cbor:"kv_cache_permille_ms"`
	Prompt     uint64         `cbor:"prompt_tokens"`
	Generation uint64         `cbor:"generation_tokens"`
	OK         uint64         `cbor:"requests_ok"`
	Failed     uint64         `cbor:"requests_failed"`
	TTFT       []refHistogram `cbor:"ttft"`
}

type refHistogram struct {
	Bounds []uint64 `cbor:"bounds"`
	Counts []uint64 `cbor:"counts"`
	Sum    uint64   `cbor:"sum"`
}

type refServings struct{ list []*refServing }

func (s *refServings) encode() ([]byte, error) {
	return refCBOR.Marshal(map[string]any{"sources": s.list})
}

func (r *reference) serving(scope, source string, s *domain.ServingSampled) {
	name := rowName{"serving_hours", scope, s.Deployment + "|" + s.Model + "|" + s.Tier, int64(s.Interval.From) / refHour}
	row, _ := r.rows[name].(*refServings)
	if row == nil {
		row = &refServings{}
		r.rows[name] = row
	}
	quarter := uint8(int64(s.Interval.From) % refHour * 4 / refHour)
	t := refFind(&row.list, func(t *refServing) bool { return t.Source == source && t.Engine == s.Engine && t.Quarter == quarter }, func() *refServing {
		return &refServing{Source: source, Quarter: quarter, Model: s.Model, Tier: s.Tier, Engine: s.Engine}
	})
	ms := uint64(s.Interval.To-s.Interval.From) / 1e6
	t.Known, t.Queue, t.Batch, t.Cache = t.Known+ms, t.Queue+ms*s.QueueDepthMilli, t.Batch+ms*s.BatchSizeMilli, t.Cache+ms*s.KVCachePermille
	t.Prompt, t.Generation, t.OK, t.Failed = t.Prompt+s.PromptTokens, t.Generation+s.GenerationTokens, t.OK+s.RequestsOK, t.Failed+s.RequestsFailed
	if len(s.TTFT.Counts) == 0 {
		return
	}
	i := slices.IndexFunc(t.TTFT, func(h refHistogram) bool { return slices.Equal(h.Bounds, s.TTFT.Bounds) })
	if i < 0 {
		i = len(t.TTFT)
		t.TTFT = append(t.TTFT, refHistogram{Bounds: s.TTFT.Bounds, Counts: make([]uint64, len(s.TTFT.Counts))})
	}
	for j, n := range s.TTFT.Counts {
		t.TTFT[i].Counts[j] += n
	}
	t.TTFT[i].Sum += s.TTFT.Sum
}

// refDemand is a series in a month: what was said of each interval, in the order
// of the log; said again alike with nothing between counts once, from the earlier
// time on.
type refDemand struct {
	labels [][2]string
	said   map[[2]int64][][5]int64 // by start and length: label, running, pending, owned, known since
}

func (r *reference) demand(scope string, env *domain.Envelope, appended domain.Instant, d *domain.DemandObserved) {
	month := refMonth(d.Interval.From)
	name := rowName{"demand_months", scope, d.Pool + "|" + d.Model + "|" + d.Unit, month}
	from, to := int64(d.Interval.From)/1e6, int64(d.Interval.To)/1e6
	if from == to {
		return
	}
	row, _ := r.rows[name].(*refDemand)
	if row == nil {
		row = &refDemand{said: map[[2]int64][][5]int64{}}
		r.rows[name] = row
	}
	label := [2]string{d.Region, env.Workspace}
	at := slices.Index(row.labels, label)
	if at < 0 {
		at = len(row.labels)
		row.labels = append(row.labels, label)
	}
	known := int64(env.Recorded)
	if known == 0 {
		known = int64(appended)
	}
	when := [2]int64{from - month*refHour/1e6, to - from}
	say := [5]int64{int64(at), int64(d.RunningMilli), int64(d.PendingMilli), int64(d.OwnedMilli), known}
	said := row.said[when]
	if n := len(said); n > 0 && [4]int64(said[n-1][:4]) == [4]int64(say[:4]) {
		said[n-1][4] = min(said[n-1][4], known)
		return
	}
	row.said[when] = append(said, say)
}

func (d *refDemand) encode() ([]byte, error) {
	labels, spans := []any{}, []any{}
	for _, l := range d.labels {
		labels = append(labels, []any{l[0], l[1]})
	}
	for _, when := range slices.SortedFunc(maps.Keys(d.said), func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }) {
		for _, s := range d.said[when] {
			spans = append(spans, when[0], when[1], s[0], s[1], s[2], s[3], s[4])
		}
	}
	return refCBOR.Marshal([]any{labels, spans})
}

// ---- What is stated of things

// refHistory is everything that was said of a thing.
type refHistory struct {
	collapse bool
	said     []*refVersion
}

type refVersion struct {
	order     domain.Precedence
	recorded  domain.Instant
	workspace string
	signature *domain.Signature
	time      domain.Instant
	appended  domain.Instant
	offset    int64
	partition int
	located   bool // the row says where the record is
	typ       string
	event     cbor.RawMessage
	again     *domain.Precedence
	faults    *refFaults // of a version that counts them
}

// refFaults is faults that are counted as one: the same one again and again, or the rest
// of a kind.
type refFaults struct {
	first domain.GPUFaultObserved
	count uint64
	last  domain.Instant
	rest  bool
}

// refPlace says to which table and thing a statement belongs, whether it is
// filed under its day or month, since when it holds, and whether one that says nothing
// new is only noted.
type refPlace struct {
	table, id string
	daily     bool
	monthly   bool
	effective domain.Instant // 0: the event's time
	collapse  bool
}

func refPlaceOf(env *domain.Envelope, appended domain.Instant) (refPlace, bool) {
	switch ev := env.Event.(type) {
	case *domain.WorkspaceRegistered:
		return refPlace{table: "workspaces", id: env.Workspace, collapse: true}, true
	case *domain.OperatorRegistered:
		return refPlace{table: "operators", id: ev.Operator, collapse: true}, true
	case *domain.PolicySet:
		return refPlace{table: "policies", id: ev.Policy, effective: ev.EffectiveFrom, collapse: true}, true
	case *domain.ClusterRegistered:
		return refPlace{table: "clusters", id: env.Cluster, collapse: true}, true
	case *domain.NodeRegistered:
		return refPlace{table: "nodes", id: ev.Node, effective: ev.InServiceFrom, collapse: true}, true
	case *domain.NodeRetired:
		return refPlace{table: "nodes", id: ev.Node, collapse: true}, true
	case *domain.MaintenanceScheduled:
		return refPlace{table: "maintenance", id: ev.Maintenance, collapse: true}, true
	case *domain.OutageDeclared:
		return refPlace{table: "outages", id: ev.Outage, collapse: true}, true
	case *domain.GPUFaultObserved:
		return refPlace{table: "faults", id: ev.Node, daily: true}, true
	case *domain.NodeCordoned:
		return refPlace{table: "health", id: ev.Node, daily: true}, true
	case *domain.NodeReturned:
		return refPlace{table: "health", id: ev.Node, daily: true}, true
	case *domain.JobQueued:
		return refPlace{table: "jobs", id: ev.Job}, true
	case *domain.JobStarted:
		return refPlace{table: "jobs", id: ev.Job}, true
	case *domain.JobFinished:
		return refPlace{table: "jobs", id: ev.Job}, true
	case *domain.EnergyMetered:
		return refPlace{table: "energy", id: ev.Meter, daily: true, effective: ev.Interval.From}, true
	case *domain.UsageCorrected:
		return refPlace{table: "usage_corrections", id: ev.Correction, collapse: true}, true
	case *domain.DeploymentChanged:
		return refPlace{table: "deployments", id: ev.Deployment, collapse: true}, true
	case *domain.DeploymentRemoved:
		return refPlace{table: "deployments", id: ev.Deployment, collapse: true}, true
	case *domain.ReplicasObserved:
		return refPlace{table: "replicas", id: ev.Deployment + "|" + ev.Model + "|" + ev.Tier, daily: true}, true
	case *domain.InvoiceReceived:
		return refPlace{table: "invoices", id: ev.InvoiceID, effective: appended, collapse: true}, true
	case *domain.OfferQuoted:
		return refPlace{table: "offers", id: ev.Offer, monthly: true, effective: ev.ValidFrom, collapse: true}, true
	case *domain.OfferWithdrawn:
		return refPlace{table: "offers", id: ev.Offer, monthly: true, effective: ev.At}, true
	case *domain.SpotInterrupted:
		return refPlace{table: "spot_interruptions", id: ev.SKU + "|" + ev.Zone, daily: true}, true
	case *domain.FXRateSet:
		return refPlace{table: "fx_rates", id: string(ev.Kind), monthly: true, effective: ev.Effective.From}, true
	case *domain.RecommendationMade:
		return refPlace{table: "recommendations", id: ev.Recommendation}, true
	case *domain.RecommendationActuated:
		return refPlace{table: "recommendations", id: ev.Recommendation}, true
	case *domain.RecommendationWithdrawn:
		return refPlace{table: "recommendations", id: ev.Recommendation}, true
	case *domain.OutcomeRecorded:
		return refPlace{table: "recommendations", id: ev.Recommendation}, true
	case *domain.StreamConflictObserved:
		return refPlace{table: "stream_conflicts", id: fmt.Sprintf("%s/%d@%d", ev.Topic, ev.Partition, ev.Offset)}, true
	case *domain.GenerationSwitched:
		return refPlace{table: "generation_switches", id: ev.To}, true
	case *domain.RemovalStarted:
		return refPlace{table: "removals", id: ev.Removal}, true
	case *domain.RecordsRemoved:
		return refPlace{table: "removals", id: ev.Removal}, true
	case *domain.AccessDenied:
		return refPlace{table: "denials", id: ev.Principal, daily: true}, true
	case *domain.AccessRecorded:
		return refPlace{table: "access", id: string(ev.Principal), daily: true, effective: ev.Window.From, collapse: true}, true
	case *domain.SessionEnded:
		return refPlace{table: "sessions", id: string(ev.Principal)}, true
	case *domain.IncidentOpened:
		return refPlace{table: "incidents", id: ev.Incident}, true
	case *domain.IncidentResolved:
		return refPlace{table: "incidents", id: ev.Incident}, true
	}
	return refPlace{}, false
}

func (r *reference) state(scope string, env *domain.Envelope, rec *domain.Record) error {
	p, ok := refPlaceOf(env, rec.Time)
	name := rowName{p.table, scope, p.id, 0}
	if line, is := env.Event.(*domain.BillingLineRecorded); is {
		// Filed under the month that holds the middle of the billing period.
		middle := line.Line.BillingPeriodStart + (line.Line.BillingPeriodEnd-line.Line.BillingPeriodStart)/2
		name, ok = rowName{"billing_lines", scope, line.Line.LineID, refMonth(middle)}, true
		p.effective = rec.Time
	}
	if !ok {
		return fmt.Errorf("%s: this reference does not know where it belongs", env.Event.Type())
	}
	if p.effective == 0 {
		p.effective = env.Time
	}
	switch {
	case p.daily:
		name.number = int64(p.effective / domain.Day * 24)
	case p.monthly:
		name.number = refMonth(p.effective)
	}
	event, err := refCBOR.Marshal(env.Event)
	if err != nil {
		return err
	}
	v := &refVersion{
		order:    domain.Precedence{Effective: p.effective, Time: env.Time, Appended: rec.Time, Source: env.Source, Incarnation: env.Incarnation, Sequence: env.Sequence},
		recorded: env.Recorded, workspace: env.Workspace, signature: env.Signature,
		time: env.Time, appended: rec.Time, offset: rec.Offset, partition: rec.Partition,
		located: p.table == "recommendations" || p.table == "incidents" || p.table == "denials" || p.table == "health" && env.Signature != nil, typ: string(env.Event.Type()), event: event,
	}
	row, _ := r.rows[name].(*refHistory)
	if row == nil {
		row = &refHistory{}
		r.rows[name] = row
	}
	if row.collapse = row.collapse || p.collapse; row.collapse && len(row.said) > 0 {
		last := row.said[len(row.said)-1]
		until := last.order
		if last.again != nil {
			until = *last.again
		}
		if until.After(v.order) {
			return fmt.Errorf("%s: %s takes effect before what was said already, which this reference has no rule for", name, v.typ)
		}
		if p.collapse && last.typ == v.typ && last.workspace == v.workspace && last.signature == nil && v.signature == nil && bytes.Equal(last.event, v.event) {
			last.again = &v.order
			return nil
		}
	}
	row.said = append(row.said, v)
	if f, ok := env.Event.(*domain.GPUFaultObserved); ok {
		v.faults = &refFaults{first: *f, count: 1, last: p.effective}
		row.boundFaults(v)
	}
	return nil
}

// boundFaults makes one of faults that are the same, a minute or less apart, and keeps no
// more than 48 different ones apart of those that are fatal, and as many of others. The
// reporters here name few GPUs and no long texts.
func (h *refHistory) boundFaults(added *refVersion) {
	known := func(v *refVersion) domain.Instant { return cmp.Or(v.recorded, v.appended) }
	same := func(a, b *refVersion) bool {
		x, y := a.faults.first, b.faults.first
		x.Count, x.Detail, y.Count, y.Detail = 0, "", 0, ""
		return x == y && !a.faults.rest && !b.faults.rest && a.order.Source == b.order.Source && a.workspace == b.workspace &&
			known(a)/domain.Day == known(b)/domain.Day
	}
	// join makes one of the versions i and j, and leaves it at i.
	join := func(i, j int) {
		a, b := h.said[i], h.said[j]
		if a.order.After(b.order) {
			a, b = b, a
		}
		if known(b) < known(a) {
			a.recorded = known(b)
		}
		a.faults.first.Count += b.faults.first.Count
		a.faults.count += b.faults.count
		a.faults.last = max(a.faults.last, b.faults.last)
		h.said[i] = a
		h.said = slices.Delete(h.said, j, j+1)
	}
	// closest finds two of the same, the closest in time, of those of one fatality.
	closest := func(within domain.Instant) (i, j int, ok bool) {
		slices.SortFunc(h.said, func(a, b *refVersion) int {
			if a.order.After(b.order) {
				return 1
			}
			return -1
		})
		for x, a := range h.said {
			for y := x + 1; y < len(h.said); y++ {
				b := h.said[y]
				if b.faults.first.Fatal != added.faults.first.Fatal || !same(a, b) {
					continue
				}
				if apart := b.order.Effective - a.faults.last; apart <= within && (!ok || apart < within) {
					i, j, ok, within = x, y, true, apart
				}
			}
		}
		return i, j, ok
	}
	for {
		i, j, ok := closest(domain.Second * 60)
		if !ok {
			break
		}
		join(i, j)
	}
	apart := 0
	for _, v := range h.said {
		if !v.faults.rest && v.faults.first.Fatal == added.faults.first.Fatal {
			apart++
		}
	}
	if apart <= 48 {
		return
	}
	if i, j, ok := closest(domain.Day); ok {
		join(i, j)
		return
	}
	f := &added.faults.first
	rest := domain.GPUFaultObserved{Node: f.Node, Kind: f.Kind, Count: f.Count, Fatal: f.Fatal, Detail: "one of more faults than are kept apart"}
	if f.Fatal {
		rest.GPU = f.GPU
	}
	added.faults.first, added.faults.rest, added.workspace = rest, true, ""
	for i, v := range h.said {
		r := v.faults.first
		r.Count = rest.Count
		if v != added && v.faults.rest && r == rest {
			join(i, slices.Index(h.said, added))
			return
		}
	}
}

func (h *refHistory) encode() ([]byte, error) {
	type order struct {
		Effective, Time, Appended, Source string
		Incarnation, Sequence             uint64
	}
	type signer struct {
		Operator string `cbor:"operator"`
		Key      []byte `cbor:"key"`
		Time     string `cbor:"time"`
		Appended string `cbor:"appended"`
		Offset   int64  `cbor:"offset"`
	}
	type located struct {
		Partition uint32 `cbor:"partition"`
		Offset    int64  `cbor:"offset"`
	}
	type version struct {
		Order     order           `cbor:"order"`
		Recorded  string          `cbor:"recorded,omitempty"`
		Workspace string          `cbor:"workspace,omitempty"`
		Signer    *signer         `cbor:"signer,omitempty"`
		Record    *located        `cbor:"record,omitempty"`
		Again     *order          `cbor:"again,omitempty"`
		Count     uint64          `cbor:"count,omitempty"`
		Last      string          `cbor:"last,omitempty"`
		Rest      bool            `cbor:"rest,omitempty"`
		Type      string          `cbor:"type"`
		Event     cbor.RawMessage `cbor:"event"`
	}
	place := func(o domain.Precedence) order {
		return order{refTime(o.Effective), refTime(o.Time), refTime(o.Appended), o.Source, o.Incarnation, o.Sequence}
	}
	sorted := slices.SortedStableFunc(slices.Values(h.said), func(a, b *refVersion) int {
		if b.order.After(a.order) {
			return -1
		}
		return 1
	})
	var versions []version
	for _, v := range sorted {
		w := version{Order: place(v.order), Recorded: refTime(v.recorded), Workspace: v.workspace, Type: v.typ, Event: v.event}
		if s := v.signature; s != nil {
			w.Signer = &signer{s.Operator, s.Key, refTime(v.time), refTime(v.appended), v.offset}
		}
		if v.located {
			w.Record = &located{uint32(v.partition), v.offset}
		}
		if v.again != nil {
			again := place(*v.again)
			w.Again = &again
		}
		if f := v.faults; f != nil {
			if w.Rest = f.rest; f.count > 1 {
				w.Count, w.Last = f.count, refTime(f.last)
			}
			var err error
			if w.Event, err = refCBOR.Marshal(&f.first); err != nil {
				return nil, err
			}
		}
		versions = append(versions, w)
	}
	return refCBOR.Marshal(map[string]any{"versions": versions})
}

// ---- Encoding

// refCBOR writes the core deterministic encoding of RFC 8949 §4.2.1, numbers and
// instants with a text form of their own as text.
var refCBOR = func() cbor.EncMode {
	o := cbor.CoreDetEncOptions()
	o.TextMarshaler = cbor.TextMarshalerTextString
	o.BinaryMarshaler = cbor.BinaryMarshalerNone
	mode, err := o.EncMode()
	if err != nil {
		panic(err) // the options are constants
	}
	return mode
}()

func refTime(t domain.Instant) string {
	if t == 0 {
		return ""
	}
	return time.Unix(0, int64(t)).UTC().Format(time.RFC3339Nano)
}

// refMonth returns the beginning of the month that holds t, in hours since 1970.
func refMonth(t domain.Instant) int64 {
	u := time.Unix(0, int64(t)).UTC()
	return time.Date(u.Year(), u.Month(), 1, 0, 0, 0, 0, time.UTC).Unix() / 3600
}
