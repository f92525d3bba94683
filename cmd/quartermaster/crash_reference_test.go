package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/twmb/franz-go/pkg/kgo"

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
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumePartitions(from), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
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
			if k.Offset >= to[tp] {
				continue
			}
			if k.Offset != r.next[tp] {
				return fmt.Errorf("%s: offset %d after %d", tp, k.Offset, r.next[tp]-1)
			}
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
			if r.next[tp]++; r.next[tp] == to[tp] {
				left--
			}
		}
	}
	return nil
}

// fold takes one record.
func (r *reference) fold(tp domain.TopicPartition, rec *domain.Record) error {
	r.records++
	var env domain.Envelope
	err := new(wire.Decoder).Decode(rec, &env)
	if err == nil && env.Topic() != tp.Topic {
		err = fmt.Errorf("%s belongs to %s", env.Event.Type(), env.Topic())
	}
	if err == nil {
		if p := domain.PartitionOf(rec.Key, tp.Topic.Partitions()); p != tp.Partition {
			err = fmt.Errorf("key %q belongs to partition %d", rec.Key, p)
		}
	}
	if err != nil {
		r.poison(tp, rec, &env, err)
		return nil
	}
	id := refStream{tp, env.Source, env.Incarnation}
	if r.seen[id][env.Sequence] {
		r.repeats++
		return nil
	}
	stream := r.stream(id)
	r.seen[id][env.Sequence] = true
	stream.mark = max(stream.mark, env.Sequence)
	stream.last = max(stream.last, env.Time)
	stream.ahead = max(stream.ahead, env.Time-rec.Time)
	if env.PreviousIncarnation != 0 && env.PreviousSequence > 0 {
		before := refStream{tp, env.Source, env.PreviousIncarnation}
		if s, known := r.rows[before.name()]; !known || s.(*refStreamRow).mark < env.PreviousSequence {
			r.stream(before).mark = env.PreviousSequence
		}
	}
	if err = domain.Validate(&env); err == nil {
		err = env.CheckSignature()
	}
	if err != nil {
		r.poison(tp, rec, &env, err)
		return nil
	}
	scope := string(rec.Key)
	switch ev := env.Event.(type) {
	case *domain.NodeSampled:
		return r.sample(scope, env.Source, ev)
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

func (s refStream) name() rowName {
	return rowName{"streams", s.tp.String(), s.source, int64(s.incarnation)}
}

func (r *reference) stream(id refStream) *refStreamRow {
	row, _ := r.rows[id.name()].(*refStreamRow)
	if row == nil {
		r.seen[id] = map[uint64]bool{}
		row = &refStreamRow{id: id, seen: r.seen[id]}
		r.rows[id.name()] = row
	}
	return row
}

type refStreamRow struct {
	id          refStream
	seen        map[uint64]bool
	mark        uint64 // known to have been reached
	last, ahead domain.Instant
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
	return refCBOR.Marshal(struct {
		Source      string      `cbor:"source"`
		Incarnation uint64      `cbor:"incarnation"`
		Mark        uint64      `cbor:"mark"`
		Gaps        [][2]uint64 `cbor:"gaps,omitempty"`
		Last        string      `cbor:"last"`
		Ahead       string      `cbor:"ahead,omitempty"`
	}{s.id.source, s.id.incarnation, s.mark, gaps, refTime(s.last), refTime(s.ahead)})
}

func (r *reference) poison(tp domain.TopicPartition, rec *domain.Record, env *domain.Envelope, reason error) {
	r.poisoned++
	// Key, number of headers, each header's name and value, value: each behind its
	// length in eight bytes.
	h := sha256.New()
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
	q := refQuarantined{
		Topic: string(tp.Topic), Partition: tp.Partition, Offset: rec.Offset, SHA256: h.Sum(nil), Reason: reason.Error(),
		Source: first256(env.Source), Sequence: env.Sequence, Workspace: first256(env.Workspace), Cluster: first256(env.Cluster),
		Appended: refTime(rec.Time),
	}
	if env.Event != nil {
		q.Type = string(env.Event.Type())
	}
	r.rows[rowName{"quarantine", tp.String(), "", rec.Offset}] = q
}

func first256(s string) string { return strings.Clone(s[:min(len(s), 256)]) }

type refQuarantined struct {
	Topic     string `cbor:"topic"`
	Partition int    `cbor:"partition"`
	Offset    int64  `cbor:"offset"`
	SHA256    []byte `cbor:"sha256"`
	Reason    string `cbor:"reason"`
	Type      string `cbor:"type,omitempty"`
	Source    string `cbor:"source,omitempty"`
	Sequence  uint64 `cbor:"sequence,omitempty"`
	Workspace string `cbor:"workspace,omitempty"`
	Cluster   string `cbor:"cluster,omitempty"`
	Appended  string `cbor:"appended"`
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

func (r *reference) sample(scope, source string, s *domain.NodeSampled) error {
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
		r.reported(scope, s, hour)
	}
	return nil
}

// refReported is a node and month: the first and last hour of each GPU in it.
type refReported map[[16]byte][2]int64

func (r *reference) reported(scope string, s *domain.NodeSampled, hour int64) {
	at := time.Unix(hour*3600, 0).UTC()
	month := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC).Unix() / 3600
	name := rowName{"node_gpus", scope, strings.Clone(s.Node), month}
	gpus, _ := r.rows[name].(refReported)
	if gpus == nil {
		gpus = refReported{}
		r.rows[name] = gpus
	}
	for i := range len(s.IDs) / 16 {
		id := [16]byte(s.IDs[16*i:])
		if len(s.Parent) > 0 && s.Parent[i] > 0 {
			id = [16]byte(s.Parents[16*(s.Parent[i]-1):])
		}
		if h, known := gpus[id]; known {
			gpus[id] = [2]int64{min(h[0], hour), max(h[1], hour)}
		} else {
			gpus[id] = [2]int64{hour, hour}
		}
	}
}

func (g refReported) encode() ([]byte, error) {
	list := []any{}
	for _, id := range slices.SortedFunc(maps.Keys(g), func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) }) {
		name := fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
		list = append(list, []any{name, g[id][0], g[id][1]})
	}
	return refCBOR.Marshal(map[string]any{"gpus": list})
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
// the same hands as one.
func (d *refDevice) runs() []refPiece {
	var runs []refPiece
	for _, p := range slices.SortedFunc(slices.Values(d.pieces), func(a, b refPiece) int { return cmp.Compare(a.from, b.from) }) {
		if n := len(runs); n > 0 && runs[n-1].to == p.from && runs[n-1].holder == p.holder {
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
	t := refFind(&row.list, func(t *refServing) bool { return t.Source == source && t.Engine == s.Engine }, func() *refServing {
		return &refServing{Source: source, Model: s.Model, Tier: s.Tier, Engine: s.Engine}
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
	order     domain.Order
	recorded  domain.Instant
	workspace string
	signature *domain.Signature
	time      domain.Instant
	appended  domain.Instant
	offset    int64
	typ       string
	event     cbor.RawMessage
	again     *domain.Order
}

// refPlace says to which table and thing a statement belongs, whether it is
// filed under its day or its month, since when it holds, and whether one that says nothing
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
		return refPlace{table: "usage_corrections", id: ev.Node, daily: true}, true
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
	case *domain.OutcomeRecorded:
		return refPlace{table: "recommendations", id: ev.Recommendation}, true
	case *domain.AccessDenied:
		return refPlace{table: "denials", id: ev.Principal, daily: true}, true
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
		order:    domain.Order{Effective: p.effective, Time: env.Time, Appended: rec.Time, Source: env.Source, Incarnation: env.Incarnation, Sequence: env.Sequence},
		recorded: env.Recorded, workspace: env.Workspace, signature: env.Signature,
		time: env.Time, appended: rec.Time, offset: rec.Offset, typ: string(env.Event.Type()), event: event,
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
	return nil
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
	type version struct {
		Order     order           `cbor:"order"`
		Recorded  string          `cbor:"recorded,omitempty"`
		Workspace string          `cbor:"workspace,omitempty"`
		Signer    *signer         `cbor:"signer,omitempty"`
		Again     *order          `cbor:"again,omitempty"`
		Type      string          `cbor:"type"`
		Event     cbor.RawMessage `cbor:"event"`
	}
	place := func(o domain.Order) order {
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
		if v.again != nil {
			again := place(*v.again)
			w.Again = &again
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
