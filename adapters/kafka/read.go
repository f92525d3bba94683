package kafka

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/domain"
)

// ErrTrimmed means that the log lacks records that it must have: its beginning was deleted,
// records within were deleted, or the log was lost and recreated. Results computed from it cannot
// be continued. The caller MUST stop folding that partition; an operator follows the Advice of the
// error.
var ErrTrimmed error = &lasting{"log is trimmed", "trimmed", Anew}

// Anew is the advice for a topic that has changed. Kafka cannot restore the partitions, the id or
// the records of a topic.
const Anew = "recreate the log in another Kafka, from a mirror or a backup of the records, and start a new database for it"

// lasting is a permanent error. It implements projections.Lasting.
type lasting struct{ text, kind, advice string }

func (e *lasting) Error() string  { return e.text }
func (e *lasting) Advice() string { return e.advice }
func (e *lasting) Kind() string   { return e.kind }

// TrimmedError is an [ErrTrimmed] with its offsets.
type TrimmedError struct {
	Partition domain.TopicPartition
	Wanted    int64 // the next expected offset
	Found     int64 // the nearest existing offset, or the end of the log if it ends before Wanted
}

func (e *TrimmedError) Error() string {
	if e.Found < e.Wanted {
		return fmt.Sprintf("%v: %s ends at offset %d, before offset %d", ErrTrimmed, e.Partition, e.Found, e.Wanted)
	}
	return fmt.Sprintf("%v: %s lacks records before offset %d", ErrTrimmed, e.Partition, e.Found)
}

func (e *TrimmedError) Unwrap() error { return ErrTrimmed }

// OpenTransactionError means that an open transaction blocks the records after it. The transaction
// ends without intervention, so there is no advice: the caller reads again later.
type OpenTransactionError struct {
	Partition domain.TopicPartition
	Since     int64 // the first offset of the transaction
}

func (e *OpenTransactionError) Error() string {
	return fmt.Sprintf("a transaction is open since offset %d; the records after it can be read once it has ended: "+
		"stop its producer, or wait for the broker to end it (transaction.timeout.ms)", e.Since)
}

// Advice implements projections.Lasting.
func (e *OpenTransactionError) Advice() string { return "" }

// Kind implements projections.Lasting.
func (e *OpenTransactionError) Kind() string { return "transaction" }

// openWait is how long a transaction may block the records after it before it is reported. It is
// longer than a producer needs, and shorter than Kafka's own limit of a minute.
const openWait = 20 * time.Second

const (
	fetchBytes   = 4 << 20
	fetchWait    = 5 * time.Second // maximum wait of a fetch for new records
	readWait     = time.Second     // the same for records that should exist
	maxFrame     = 256 << 20       // largest valid answer in bytes
	keptBytes    = 16 << 20        // memory for answers and batches that is kept for reuse
	yieldRecords = 1000            // see Config.Batch
	yieldBytes   = 1 << 20         // bytes of records for every yieldRecords
)

// Read delivers the records of a partition with from <= offset < to, in order. It returns nil when
// it reaches to, which should be at most the end of the log ([Log.Bounds]). Batches that cannot be
// decoded and Kafka's control batches are delivered as a [domain.Span], so every offset is either
// a record or in a span. Records of a transaction are delivered once it is committed; those of an
// aborted transaction are a span with a fault.
//
// Per call, Read takes as much memory as the largest batch in the log, which the broker limits
// (message.max.bytes), plus at most four times 64 MiB for decompressed data.
//
// The slice passed to yield and all memory behind it are reused once yield returns. An error of
// yield ends Read and is returned unchanged. Errors of the broker are retried for Patience;
// records are not repeated. [ErrTrimmed] and [ErrCorrupt] are permanent.
func (l *Log) Read(ctx context.Context, tp domain.TopicPartition, from, to int64, yield func([]domain.Record) error) error {
	if to < from {
		return &TrimmedError{tp, from, to}
	}
	return l.read(ctx, tp, domain.Anchor{}, from, to, yield)
}

// Follow is [Log.Read] without an end: it waits for new records until ctx ends, and returns the
// error that ended it. Follow calls yield without records once it has delivered all that there are,
// and again after each answer without any, which take up to [Config].MaxWait. It does not while an
// open transaction blocks the next records. Then it fails with a [*OpenTransactionError] after 20 s; the caller reports it and
// follows again.
func (l *Log) Follow(ctx context.Context, tp domain.TopicPartition, from int64, yield func([]domain.Record) error) error {
	return l.read(ctx, tp, domain.Anchor{}, from, math.MaxInt64, yield)
}

func (l *Log) read(
	ctx context.Context,
	tp domain.TopicPartition,
	last domain.Anchor,
	from, to int64,
	yield func([]domain.Record) error,
) error {
	return l.run(ctx, &reader{log: l, tp: tp, last: last, next: from, to: to, yield: yield})
}

// run reads from r.next to r.to. It completes r.
func (l *Log) run(ctx context.Context, r *reader) (err error) {
	tp := r.tp
	if r.next < 0 {
		return fmt.Errorf("read %s: offset is %d", tp, r.next)
	}
	ctx, cancel := l.bind(ctx)
	defer cancel()
	if r.dec, err = newBatchDecoder(); err != nil {
		return fmt.Errorf("read %s: %w", tp, err)
	}
	defer r.dec.zstd.Close()
	r.wait = newBackoff(l.cfg.Patience)
	defer l.left(r)
	for r.next < r.to {
		err := r.connected(ctx)
		var trimmed *TrimmedError
		if errors.As(err, &trimmed) && trimmed.Found > trimmed.Wanted {
			err = r.fromArchive(ctx, trimmed)
		}
		switch {
		case r.refused != nil:
			return r.refused
		case err == nil:
		case ctx.Err() == nil && !temporary(err):
			return fmt.Errorf("read %s at offset %d: %w", tp, r.next, err)
		default:
			if ctx.Err() == nil { // else this end closed the connection
				l.away(r, r.wait.since, err)
			}
			if err := r.wait.sleep(ctx, err); err != nil {
				return fmt.Errorf("read %s at offset %d: %w", tp, r.next, err)
			}
		}
	}
	return nil
}

// reader is one call of Read.
type reader struct {
	log      *Log
	tp       domain.TopicPartition
	next, to int64         // offset of the next record to deliver, and where to stop
	last     domain.Anchor // the record before next; zero if unknown
	yield    func([]domain.Record) error
	raw      func(Batches) error // instead of yield
	refused  error               // error of yield or raw
	stable   int64               // last stable offset: begin of the first open transaction, or end of the log
	held     time.Time           // since when an open transaction blocks next; zero: none does
	aborted  []Transaction
	dec      *batchDecoder
	wait     backoff
	topic    topicID // unset if the log fetches by name
	request  []byte
	frame    []byte
	id       int32 // correlation id

	// confirmed is the last record that the archive has and the log has no longer. seam is the last
	// one that was read from the archive.
	confirmed, seam domain.Anchor

	// diverging is the offset from which on the broker's log differs, in its last answer; -1:
	// none reported.
	diverging int64
}

// Transaction is an aborted transaction of a producer, with its first offset.
type Transaction struct {
	Producer int64 `json:"producer"`
	First    int64 `json:"first"`
}

// connected reads over one connection to the leader of the partition until r.to, an error, or the
// end of ctx.
func (r *reader) connected(ctx context.Context) error {
	dialing, done := context.WithTimeout(ctx, 2*dialTimeout)
	defer done()
	at, err := r.log.leaders(dialing, string(r.tp.Topic))
	if err != nil {
		return err
	}
	address, ok := at[r.tp]
	if !ok {
		return fmt.Errorf("find leader: %w", kafkago.LeaderNotAvailable)
	}
	conn, err := r.log.dial(dialing, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	if r.log.byID {
		ids, err := r.log.identify(conn, r.tp.Topic)
		if err != nil {
			return err
		}
		r.topic = ids[r.tp.Topic]
	}
	if err := r.resume(ctx, conn); err != nil {
		return err
	}
	if err := r.send(conn, r.next); err != nil {
		return err
	}
	for {
		set, end, err := r.receive(ctx, conn)
		if err != nil {
			return err
		}
		next, err := r.check(set)
		if err != nil {
			if next > r.next { // the batches before are valid
				err = cmp.Or(r.handOut(set, next), err)
			}
			return err
		}
		if next == r.next && end < r.to && r.to != math.MaxInt64 {
			// Possibly temporary: a new leader may not know yet the end that an earlier one
			// reported.
			return &passing{&TrimmedError{r.tp, r.to, end}}
		}
		open := next == r.next && next < end && r.stable >= 0 && r.stable <= next
		switch {
		case !open:
			r.held = time.Time{}
		case r.raw != nil:
			return &OpenTransactionError{r.tp, r.stable}
		case r.to != math.MaxInt64:
			return &passing{&OpenTransactionError{r.tp, r.stable}}
		case r.held.IsZero():
			r.held = time.Now()
		case time.Since(r.held) > r.log.heldFor:
			return &OpenTransactionError{r.tp, r.stable}
		}
		r.wait.reset()
		r.log.back(r)
		if next < r.to { // the broker prepares the next answer while this one is delivered
			if err := r.send(conn, next); err != nil {
				return err
			}
		}
		if err := r.handOut(set, next); err != nil {
			return err
		}
		if r.next >= r.to {
			return nil
		}
		if r.to == math.MaxInt64 && r.raw == nil && !open && r.next >= end {
			if r.refused = r.yield(nil); r.refused != nil {
				return r.refused
			}
		}
	}
}

const (
	fetchKey = 1
	// fetchByName is the first version of Fetch with zstd, for brokers from 2.1 on.
	fetchByName = 10
	// fetchByID is the first version that identifies a topic by its id, for brokers from 3.1
	// on. A recreated topic then cannot be mistaken for the old one.
	fetchByID = 13
)

// send requests records from an offset on.
func (r *reader) send(conn net.Conn, from int64) error {
	minBytes, maxWait := 1, readWait
	if r.to == math.MaxInt64 {
		minBytes, maxWait = r.log.cfg.MinBytes, r.log.cfg.MaxWait
	}
	return r.ask(conn, fetch{from, -1, fetchBytes, minBytes, maxWait})
}

// fetch is a request for records.
type fetch struct {
	from  int64
	epoch int32 // leader epoch of the previous record, for the broker to compare; -1: none
	bytes int   // maximum size of the answer; the first batch is always complete
	least int   // bytes to wait for
	wait  time.Duration
}

func (r *reader) ask(conn net.Conn, f fetch) error {
	r.id++
	byID, version := r.log.byID, uint16(fetchByName)
	if byID {
		version = fetchByID
	}
	b := requestHead(r.request[:0], fetchKey, version, r.id, r.log.cfg.ClientID)
	if byID {
		b = append(b, 0) // no tagged fields, here and below
	}
	be := binary.BigEndian
	b = be.AppendUint32(b, 0xffffffff) // not a replica
	b = be.AppendUint32(b, uint32(f.wait.Milliseconds()))
	b = be.AppendUint32(b, uint32(f.least))
	b = be.AppendUint32(b, uint32(f.bytes))
	b = append(b, 1) // read committed: up to the first open transaction, with the list of aborted ones
	b = be.AppendUint32(b, 0)
	b = be.AppendUint32(b, 0xffffffff) // no fetch session
	if byID {
		b = append(b, 2) // compact arrays count from 1
		b = append(b, r.topic[:]...)
		b = append(b, 2)
	} else {
		b = be.AppendUint32(b, 1)
		b = appendString(b, string(r.tp.Topic))
		b = be.AppendUint32(b, 1)
	}
	b = be.AppendUint32(b, uint32(r.tp.Partition))
	b = be.AppendUint32(b, 0xffffffff) // any leader epoch
	b = be.AppendUint64(b, uint64(f.from))
	if byID {
		b = be.AppendUint32(b, uint32(f.epoch))
	}
	b = be.AppendUint64(b, math.MaxUint64) // log start, which only replicas set
	b = be.AppendUint32(b, uint32(f.bytes))
	if byID {
		b = append(b, 0, 0, 1, 1, 0) // ends of partition and topic, nothing to forget, no rack
	} else {
		b = be.AppendUint32(b, 0) // nothing to forget
	}
	r.request = finishRequest(b)
	return writeRequest(conn, r.request)
}

// receive reads the answer to send: the record batches and the end of the log. The batches are
// valid until the next call.
func (r *reader) receive(ctx context.Context, conn net.Conn) (set []byte, end int64, err error) {
	set, end, err = r.answer(conn)
	if !errors.Is(err, kafkago.OffsetOutOfRange) {
		return set, end, err
	}
	first, next, err := r.log.bounds(ctx, r.tp)
	if err != nil {
		return nil, 0, err
	}
	found := next
	if first > r.next {
		found = first
	}
	switch {
	case found == r.next: // the offset became valid between the two requests
		return nil, 0, kafkago.OffsetNotAvailable
	case found < r.next && !r.last.IsZero():
		return nil, 0, &DivergedError{r.tp, r.next, r.last, found, domain.Anchor{}, -1}
	}
	return nil, 0, &TrimmedError{r.tp, r.next, found}
}

// answer is receive without the reason for an out-of-range offset.
func (r *reader) answer(conn net.Conn) (set []byte, end int64, err error) {
	if cap(r.frame) > keptBytes {
		r.frame = nil
	}
	c, frame, err := readAnswer(conn, r.frame, r.id, max(fetchWait, r.log.cfg.MaxWait)+requestTimeout)
	r.frame = frame
	if err != nil {
		return nil, 0, err
	}
	parse := r.parse
	if r.log.byID {
		parse = r.parseByID
	}
	r.aborted = r.aborted[:0]
	r.diverging = -1
	set, end, code := parse(&c)
	switch {
	case c.bad:
		return nil, 0, errors.New("fetch answer is cut short or for another partition")
	case code != 0:
		return nil, 0, fmt.Errorf("fetch: %w", code)
	}
	return set, end, nil
}

// parse parses an answer to Fetch by name. If the answer is malformed, the cursor is bad.
func (r *reader) parse(c *cursor) (set []byte, end int64, code kafkago.Error) {
	c.int32() // throttle time; the broker has waited already
	code = kafkago.Error(c.int16())
	c.int32() // session
	for range c.count() {
		name := c.string()
		for range c.count() {
			partition := int(c.int32())
			if partitionCode := kafkago.Error(c.int16()); partitionCode != 0 {
				code = partitionCode
			}
			end = c.int64()
			r.stable = c.int64()
			c.skip(8) // start of the log
			for range c.count() {
				r.aborted = append(r.aborted, Transaction{c.int64(), c.int64()})
			}
			set = c.skip(max(0, int(c.int32())))
			c.bad = c.bad || name != string(r.tp.Topic) || partition != r.tp.Partition
		}
	}
	return set, end, code
}

// parseByID is parse for an answer to Fetch by id.
func (r *reader) parseByID(c *cursor) (set []byte, end int64, code kafkago.Error) {
	c.tags()  // of the header
	c.int32() // throttle time; the broker has waited already
	code = kafkago.Error(c.int16())
	c.int32() // session
	for range c.compactCount() {
		id := c.uuid()
		for range c.compactCount() {
			partition := int(c.int32())
			if partitionCode := kafkago.Error(c.int16()); partitionCode != 0 {
				code = partitionCode
			}
			end = c.int64()
			r.stable = c.int64()
			c.skip(8) // start of the log
			for range c.compactCount() {
				r.aborted = append(r.aborted, Transaction{c.int64(), c.int64()})
				c.tags()
			}
			c.int32() // preferred replica
			set = c.compactBytes()
			r.parseDiverging(c)
			c.bad = c.bad || id != r.topic || partition != r.tp.Partition
		}
		c.tags()
	}
	c.tags()
	return set, end, code
}

// parseDiverging parses the tagged fields of a partition. The first field means that the broker's
// log for the requested epoch ends before the requested offset.
func (r *reader) parseDiverging(c *cursor) {
	fields := c.uvarint()
	for i := uint64(0); i < fields && !c.bad; i++ {
		tag, size := c.uvarint(), c.uvarint()
		field := cursor{b: c.skip(int(min(size, math.MaxInt32)))}
		if tag == 0 {
			field.int32() // the broker's largest epoch up to the requested one
			if r.diverging = field.int64(); field.bad {
				c.bad = true
			}
		}
	}
}

// check checks that no offset is missing in the batches of an answer, from r.next on. It returns
// the offset after them.
func (r *reader) check(set []byte) (next int64, err error) {
	next = r.next
	for rest := set; len(rest) > 0; {
		h, whole, err := readHead(rest)
		if err != nil {
			return next, err
		}
		if !whole {
			if next == r.next {
				return next, fmt.Errorf("%w: the batch with offset %d is cut short", ErrCorrupt, next)
			}
			break
		}
		// Only the first batch may begin before r.next, because the broker returns complete batches.
		if h.base > next || h.last < next || h.base < next && next != r.next {
			return next, &TrimmedError{r.tp, next, h.base}
		}
		next = h.last + 1
		rest = rest[h.size:]
	}
	return next, nil
}

// handOut decodes the batches up to offset next and yields their records.
func (r *reader) handOut(set []byte, next int64) error {
	if r.raw != nil {
		if next == r.next {
			return nil
		}
		return r.handRaw(set, next)
	}
	slices.SortFunc(r.aborted, func(a, b Transaction) int { return cmp.Compare(a.First, b.First) })
	aborting := map[int64]bool{} // producers in a transaction that was aborted later
	for at := r.next; at < min(next, r.to); {
		h, _, err := readHead(set)
		if err != nil {
			return err
		}
		for len(r.aborted) > 0 && r.aborted[0].First <= h.last {
			aborting[r.aborted[0].Producer] = true
			r.aborted = r.aborted[1:]
		}
		if h.attributes&attrControl != 0 {
			delete(aborting, h.producer)
		}
		aborted := h.attributes&attrTransactional != 0 && aborting[h.producer]
		if err := r.dec.decode(set[:h.size], r.tp, r.next, r.to, aborted); err != nil {
			if len(r.dec.records) > 0 {
				err = cmp.Or(r.pass(), err)
			}
			r.dec.reset()
			return err
		}
		at = h.last + 1
		set = set[h.size:]
		n := len(r.dec.records)
		full := n >= r.log.cfg.Batch || r.dec.size >= max(1, r.log.cfg.Batch/yieldRecords)*yieldBytes
		if n > 0 && (full || at >= min(next, r.to)) {
			if err := r.pass(); err != nil {
				return err
			}
		}
	}
	return nil
}

// pass yields the decoded records.
func (r *reader) pass() error {
	if r.refused = r.yield(r.dec.records); r.refused != nil {
		return r.refused
	}
	r.last = r.dec.records[len(r.dec.records)-1].Anchor()
	r.next = r.last.Offset + 1
	r.dec.reset()
	return nil
}

// Bounds returns the first offset that can be read of a partition, and the offset that its next
// record will get. With an Archive, the first is 0 where the archive has what the log has no longer.
func (l *Log) Bounds(ctx context.Context, tp domain.TopicPartition) (first, next int64, err error) {
	firsts, nexts, err := l.AllBounds(ctx, []domain.TopicPartition{tp})
	return firsts[tp], nexts[tp], err
}

// AllBounds is [Log.Bounds] for many partitions, with two requests to each broker that leads one
// of them.
func (l *Log) AllBounds(ctx context.Context, tps []domain.TopicPartition) (first, next domain.Position, err error) {
	first, next, err = l.BrokerBounds(ctx, tps)
	if err == nil {
		err = l.beginnings(ctx, first)
	}
	if err != nil {
		return nil, nil, err
	}
	return first, next, nil
}

// bounds is BrokerBounds for one partition.
func (l *Log) bounds(ctx context.Context, tp domain.TopicPartition) (first, next int64, err error) {
	firsts, nexts, err := l.BrokerBounds(ctx, []domain.TopicPartition{tp})
	return firsts[tp], nexts[tp], err
}

// BrokerBounds is [Log.AllBounds] for the log alone, without its archive.
func (l *Log) BrokerBounds(ctx context.Context, tps []domain.TopicPartition) (first, next domain.Position, err error) {
	first, next = domain.Position{}, domain.Position{}
	err = l.allOffsets(ctx, tps, offsets{kafkago.FirstOffset, first}, offsets{kafkago.LastOffset, next})
	if err != nil {
		return nil, nil, fmt.Errorf("read bounds: %w", err)
	}
	return first, next, nil
}

// Before returns, for each partition, the offset of the first record appended at t or later, by
// the clock of its producer. Without such a record, it is the offset that the next record will
// get. Because clocks differ, records with earlier times may follow that offset.
func (l *Log) Before(ctx context.Context, tps []domain.TopicPartition, t domain.Instant) (domain.Position, error) {
	// Get the end first, because a record appended meanwhile may have the time t or later.
	next, at := domain.Position{}, domain.Position{}
	ms := (int64(t) + 1e6 - 1) / 1e6
	if err := l.allOffsets(ctx, tps, offsets{kafkago.LastOffset, next}, offsets{ms, at}); err != nil {
		return nil, fmt.Errorf("find the records before %s: %w", t, err)
	}
	for tp, end := range next {
		if at[tp] < 0 || at[tp] > end {
			at[tp] = end
		}
	}
	if err := l.archivedBefore(ctx, tps, t, at); err != nil {
		return nil, fmt.Errorf("find the records before %s: %w", t, err)
	}
	return at, nil
}

// offsets is one query of ListOffsets: a time in milliseconds, for the first offset at that time or
// later, or one of Kafka's special values.
type offsets struct {
	time int64
	into domain.Position
}

// allOffsets sends the queries, one after the other, to every broker that leads one of the
// partitions.
func (l *Log) allOffsets(ctx context.Context, tps []domain.TopicPartition, asked ...offsets) error {
	return l.retry(ctx, func(ctx context.Context) error {
		var topics []string
		for _, tp := range tps {
			topics = append(topics, string(tp.Topic))
		}
		at, err := l.leaders(ctx, topics...)
		if err != nil {
			return err
		}
		led := map[string][]domain.TopicPartition{}
		for _, tp := range tps {
			if at[tp] == "" {
				return fmt.Errorf("find leader of %s: %w", tp, kafkago.LeaderNotAvailable)
			}
			led[at[tp]] = append(led[at[tp]], tp)
		}
		for address, tps := range led {
			if err := l.listOffsets(ctx, address, tps, asked); err != nil {
				return err
			}
		}
		return nil
	})
}

// listOffsets asks one broker: ListOffsets, version 2.
func (l *Log) listOffsets(ctx context.Context, address string, tps []domain.TopicPartition, asked []offsets) error {
	conn, err := l.dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	be := binary.BigEndian
	for id, ask := range asked {
		b := requestHead(nil, 2, 2, int32(id), l.cfg.ClientID)
		b = be.AppendUint32(b, 0xffffffff) // not a replica
		b = append(b, 0)                   // read uncommitted
		b = be.AppendUint32(b, uint32(len(tps)))
		for _, tp := range tps {
			b = appendString(b, string(tp.Topic))
			b = be.AppendUint32(b, 1)
			b = be.AppendUint32(b, uint32(tp.Partition))
			b = be.AppendUint64(b, uint64(ask.time))
		}
		if err := writeRequest(conn, finishRequest(b)); err != nil {
			return err
		}
		c, _, err := readAnswer(conn, nil, int32(id), requestTimeout)
		if err != nil {
			return err
		}
		c.int32() // throttle time
		answered := 0
		for range c.count() {
			topic := c.string()
			for range c.count() {
				answered++
				tp := domain.TopicPartition{Topic: domain.Topic(topic), Partition: int(c.int32())}
				code := kafkago.Error(c.int16())
				c.int64() // time
				ask.into[tp] = c.int64()
				if code != 0 {
					return fmt.Errorf("list offsets of %s: %w", tp, code)
				}
			}
		}
		if c.bad || answered != len(tps) {
			return errors.New("list offsets answer is cut short")
		}
	}
	return nil
}

// requestHead appends the header of a request; [finishRequest] sets its length.
func requestHead(b []byte, key, version uint16, id int32, client string) []byte {
	be := binary.BigEndian
	b = be.AppendUint32(b, 0)
	b = be.AppendUint16(b, key)
	b = be.AppendUint16(b, version)
	b = be.AppendUint32(b, uint32(id))
	return appendString(b, client)
}

func finishRequest(b []byte) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func writeRequest(conn net.Conn, b []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(requestTimeout)); err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	if _, err := conn.Write(b); err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	return nil
}

// readAnswer reads the answer to the request id into frame and returns the frame, grown if needed.
func readAnswer(conn net.Conn, frame []byte, id int32, timeout time.Duration) (cursor, []byte, error) {
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return cursor{}, frame, fmt.Errorf("read answer: %w", err)
	}
	var head [8]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return cursor{}, frame, fmt.Errorf("read answer: %w", err)
	}
	size := int(binary.BigEndian.Uint32(head[:])) - 4
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != id || size < 0 || size > maxFrame {
		return cursor{}, frame, fmt.Errorf("read answer: request %d of %d bytes instead of %d", got, size, id)
	}
	if cap(frame) < size {
		frame = make([]byte, size, size+size/8)
	}
	frame = frame[:size]
	if _, err := io.ReadFull(conn, frame); err != nil {
		return cursor{}, frame, fmt.Errorf("read answer: %w", err)
	}
	return cursor{b: frame}, frame, nil
}
