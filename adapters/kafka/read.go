package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/domain"
)

// ErrTrimmed means that the log does not hold the records it should: the
// beginning was deleted, records within were, or the log was lost and begun
// again. What was computed from it cannot be continued. The caller stops; an
// operator makes the log anew from a copy, in another Kafka and with new rows, or
// rebuilds from what is left, knowingly: Kafka gives nothing back.
var ErrTrimmed = errors.New("log is trimmed")

// TrimmedError is an [ErrTrimmed] with its place.
type TrimmedError struct {
	Partition domain.TopicPartition
	Wanted    int64 // the offset that must come next
	Found     int64 // the nearest offset there is, or the end of the log when it ends before Wanted
}

func (e *TrimmedError) Error() string {
	if e.Found < e.Wanted {
		return fmt.Sprintf("%v: %s ends at offset %d, before offset %d", ErrTrimmed, e.Partition, e.Found, e.Wanted)
	}
	return fmt.Sprintf("%v: %s goes on at offset %d instead of %d", ErrTrimmed, e.Partition, e.Found, e.Wanted)
}

func (e *TrimmedError) Unwrap() error { return ErrTrimmed }

const (
	fetchBytes   = 4 << 20
	fetchWait    = 5 * time.Second // how long the broker holds a request when there is nothing new
	maxFrame     = 512 << 20       // an answer larger than this is not one
	keptBytes    = 16 << 20        // memory for answers and batches that is kept for the next
	yieldRecords = 1000            // see Config.Batch
	yieldBytes   = 1 << 20         // of records, for every yieldRecords
)

// Read hands out the records of a partition with from <= offset < to, in
// order, and returns nil when it reached to. The end of the log, see
// [Log.Bounds], is the largest sensible to.
//
// The slice given to yield and all memory behind it are reused once yield
// returns. An error of yield ends Read and is returned as it is. Trouble with
// the broker is retried for the configured patience; records are not repeated.
// [ErrTrimmed] and [ErrCorrupt] are final.
func (l *Log) Read(ctx context.Context, tp domain.TopicPartition, from, to int64, yield func([]domain.Record) error) error {
	if to < from {
		return &TrimmedError{tp, from, to}
	}
	return l.read(ctx, tp, from, to, yield)
}

// Follow is [Log.Read] without an end: it waits for new records until ctx ends,
// and returns what ended it.
func (l *Log) Follow(ctx context.Context, tp domain.TopicPartition, from int64, yield func([]domain.Record) error) error {
	return l.read(ctx, tp, from, math.MaxInt64, yield)
}

func (l *Log) read(ctx context.Context, tp domain.TopicPartition, from, to int64, yield func([]domain.Record) error) error {
	if from < 0 {
		return fmt.Errorf("read %s: offset is %d", tp, from)
	}
	ctx, cancel := l.bind(ctx)
	defer cancel()
	dec, err := newBatchDecoder()
	if err != nil {
		return fmt.Errorf("read %s: %w", tp, err)
	}
	defer dec.zstd.Close()
	r := &reader{log: l, tp: tp, next: from, to: to, yield: yield, dec: dec, wait: newBackoff(l.cfg.Patience)}
	defer l.left(r)
	for r.next < r.to {
		err := r.connected(ctx)
		switch {
		case r.refused != nil:
			return r.refused
		case err == nil:
		case ctx.Err() == nil && !temporary(err):
			return fmt.Errorf("read %s at offset %d: %w", tp, r.next, err)
		default:
			l.away(r, r.wait.since, err)
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
	next, to int64 // offset of the next record to hand out, and where to stop
	yield    func([]domain.Record) error
	refused  error // what yield returned
	dec      *batchDecoder
	wait     backoff
	topic    topicID // unless the log asks for records by name
	request  []byte
	frame    []byte
	id       int32 // correlation
}

// connected reads over one connection to the partition's leader until the
// goal, an error, or the end of ctx.
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
			return err
		}
		if next == r.next && end < r.to && r.to != math.MaxInt64 {
			// Not final at once: a new leader may not yet know the end that an earlier one gave.
			return &passing{&TrimmedError{r.tp, r.to, end}}
		}
		r.wait.reset()
		r.log.back(r)
		if next < r.to { // the broker works on the next answer while this one is handed out
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
	}
}

const (
	fetchKey = 1
	// fetchByName is the first Fetch that knows zstd; brokers from 2.1 on speak it.
	fetchByName = 10
	// fetchByID is the first that names a topic by its id, so that a topic that
	// was deleted and created again cannot answer for the one before; 3.1.
	fetchByID = 13
)

// send asks for records from an offset on.
func (r *reader) send(conn net.Conn, from int64) error {
	r.id++
	byID, version := r.log.byID, uint16(fetchByName)
	if byID {
		version = fetchByID
	}
	minBytes, maxWait := 1, fetchWait
	if r.to == math.MaxInt64 {
		minBytes, maxWait = r.log.cfg.MinBytes, r.log.cfg.MaxWait
	}
	b := requestHead(r.request[:0], fetchKey, version, r.id, r.log.cfg.ClientID)
	if byID {
		b = append(b, 0) // no tagged fields, here and below
	}
	be := binary.BigEndian
	b = be.AppendUint32(b, 0xffffffff) // not a replica
	b = be.AppendUint32(b, uint32(maxWait.Milliseconds()))
	b = be.AppendUint32(b, uint32(minBytes))
	b = be.AppendUint32(b, fetchBytes) // but the first batch always comes whole
	b = append(b, 0)                   // read uncommitted: there are no transactions
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
	b = be.AppendUint64(b, uint64(from))
	if byID {
		b = be.AppendUint32(b, 0xffffffff) // epoch of the last record, unknown
	}
	b = be.AppendUint64(b, math.MaxUint64) // log start, known to replicas only
	b = be.AppendUint32(b, fetchBytes)
	if byID {
		b = append(b, 0, 0, 1, 1, 0) // ends of partition and topic, nothing to forget, no rack
	} else {
		b = be.AppendUint32(b, 0) // nothing to forget
	}
	r.request = finishRequest(b)
	return writeRequest(conn, r.request)
}

// receive reads the answer to send: the record batches, which are valid until
// the next call, and the end of the log.
func (r *reader) receive(ctx context.Context, conn net.Conn) (set []byte, end int64, err error) {
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
	set, end, code := parse(&c)
	switch {
	case c.bad:
		return nil, 0, errors.New("fetch answer is cut short or for another partition")
	case code == kafkago.OffsetOutOfRange:
		first, next, err := r.log.Bounds(ctx, r.tp)
		if err != nil {
			return nil, 0, err
		}
		found := next
		if first > r.next {
			found = first
		}
		if found == r.next { // it was mended between the two requests
			return nil, 0, kafkago.OffsetNotAvailable
		}
		return nil, 0, &TrimmedError{r.tp, r.next, found}
	case code != 0:
		return nil, 0, fmt.Errorf("fetch: %w", code)
	}
	return set, end, nil
}

// parse takes an answer to Fetch by name apart. The cursor is bad when it is not one.
func (r *reader) parse(c *cursor) (set []byte, end int64, code kafkago.Error) {
	c.int32() // throttled for; the broker has waited already
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
			c.skip(16) // last stable offset, start of the log
			c.skip(16 * c.count())
			set = c.skip(max(0, int(c.int32())))
			c.bad = c.bad || name != string(r.tp.Topic) || partition != r.tp.Partition
		}
	}
	return set, end, code
}

// parseByID is parse for an answer to Fetch by id.
func (r *reader) parseByID(c *cursor) (set []byte, end int64, code kafkago.Error) {
	c.tags()  // of the head
	c.int32() // throttled for; the broker has waited already
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
			c.skip(16) // last stable offset, start of the log
			for range c.compactCount() {
				c.skip(16) // aborted transaction
				c.tags()
			}
			c.int32() // replica to prefer
			set = c.compactBytes()
			c.tags()
			c.bad = c.bad || id != r.topic || partition != r.tp.Partition
		}
		c.tags()
	}
	c.tags()
	return set, end, code
}

// check walks the batches of an answer and returns the offset that follows
// them, having found no offset missing between r.next and there.
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
		// Only the first batch may begin early: the broker stores batches whole.
		if h.base > next || h.last < next || h.base < next && next != r.next {
			return next, &TrimmedError{r.tp, next, h.base}
		}
		next = h.last + 1
		rest = rest[h.size:]
	}
	return next, nil
}

// handOut unpacks the batches up to offset next and yields them.
func (r *reader) handOut(set []byte, next int64) error {
	for at := r.next; at < min(next, r.to); {
		h, _, err := readHead(set)
		if err != nil {
			return err
		}
		if err := r.dec.decode(set[:h.size], r.tp, r.next, r.to); err != nil {
			r.dec.reset()
			return err
		}
		at = h.last + 1
		set = set[h.size:]
		if n := len(r.dec.records); n >= r.log.cfg.Batch || r.dec.size >= max(1, r.log.cfg.Batch/yieldRecords)*yieldBytes || at >= min(next, r.to) {
			if r.refused = r.yield(r.dec.records); r.refused != nil {
				return r.refused
			}
			r.next = r.dec.records[n-1].Offset + 1
			r.dec.reset()
		}
	}
	return nil
}

// Bounds returns the first offset that a partition holds and the offset that
// its next record will get.
func (l *Log) Bounds(ctx context.Context, tp domain.TopicPartition) (first, next int64, err error) {
	firsts, nexts, err := l.AllBounds(ctx, []domain.TopicPartition{tp})
	return firsts[tp], nexts[tp], err
}

// AllBounds is [Log.Bounds] for many partitions, with two requests to each
// broker that leads any of them.
func (l *Log) AllBounds(ctx context.Context, tps []domain.TopicPartition) (first, next domain.Position, err error) {
	first, next = domain.Position{}, domain.Position{}
	err = l.allOffsets(ctx, tps, offsets{kafkago.FirstOffset, first}, offsets{kafkago.LastOffset, next})
	if err != nil {
		return nil, nil, fmt.Errorf("read bounds: %w", err)
	}
	return first, next, nil
}

// Before returns, for each partition, the offset of the first record that was
// appended at t or later, by the clock of whoever appended it; where there is
// none, the offset that the next record will get. Records with earlier times
// that follow such a record, because clocks disagree, lie beyond.
func (l *Log) Before(ctx context.Context, tps []domain.TopicPartition, t domain.Instant) (domain.Position, error) {
	// The end is asked first: what is appended meanwhile may be of t or later.
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
	return at, nil
}

// offsets is what ListOffsets is asked for: the first offset of a time in
// milliseconds or later, or one of Kafka's names for another.
type offsets struct {
	time int64
	into domain.Position
}

// allOffsets asks every broker that leads any of the partitions, one question
// after the other.
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
		c.int32() // throttled for
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

// requestHead begins a request; [finishRequest] fills in its length.
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

// readAnswer reads the answer to request id into frame, which it returns grown.
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
