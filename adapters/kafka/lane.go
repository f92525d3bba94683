package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"slices"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"quartermaster/domain"
)

// lane is the queue of the calls that append to one partition. While it holds any, one goroutine
// sends their records in order of arrival, one request at a time.
type lane struct {
	tp domain.TopicPartition

	mu      sync.Mutex
	calls   []*call // with records that are in no request yet; only the first may be partly sent
	writing bool    // a goroutine sends
}

// call is the part of an [Log.Append] that is for one partition. The lane's lock guards the fields
// after which.
type call struct {
	lane  *lane
	recs  []domain.Record // memory of the caller: not read once ended
	which []int           // indexes of the partition's records

	packed  int      // number of records put into requests
	acked   int      // number of acknowledged records
	request *request // the one that holds records of this call now; may be nil
	ended   bool     // answered, or given up by the caller
	done    chan error
}

// request is one batch with the records of one or more calls.
type request struct {
	parts   []part // in order
	waiting int    // calls that have not given up; the lane's lock guards it
	ctx     context.Context
	cancel  context.CancelCauseFunc // called when no call waits any more
}

// part is the records from:to of a call.
type part struct {
	call     *call
	from, to int
}

func (l *Log) lane(tp domain.TopicPartition) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln, ok := l.lanes[tp]
	if !ok {
		ln = &lane{tp: tp}
		l.lanes[tp] = ln
	}
	return ln
}

// queue puts a call into its lane and lets the lane be written.
func (l *Log) queue(c *call) {
	ln := c.lane
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.calls = append(ln.calls, c)
	if !ln.writing {
		ln.writing = true
		w := &writer{log: l, lane: ln}
		go w.run()
	}
}

// wait returns when the call is answered or ctx ends, with the number of acknowledged records.
// After it, the records are not read any more.
func (c *call) wait(ctx context.Context) (acked int, err error) {
	select {
	case err = <-c.done:
	case <-ctx.Done():
		err = c.giveUp(context.Cause(ctx))
	}
	return c.acked, err // no longer changes
}

// giveUp ends a call with an error, unless it is answered. It returns what the call ended with.
func (c *call) giveUp(cause error) error {
	ln := c.lane
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if c.ended {
		return <-c.done
	}
	ln.end(c)
	if r := c.request; r != nil {
		if r.waiting--; r.waiting == 0 {
			r.cancel(cause)
		}
	}
	return cause
}

// end takes a call out of the queue. The caller holds the lock.
func (ln *lane) end(c *call) {
	c.ended = true
	if c.packed < len(c.which) {
		ln.calls = slices.DeleteFunc(ln.calls, func(other *call) bool { return other == c })
	}
}

// next packs waiting records into a batch until it is full. It returns nil if none wait; the
// writer MUST then stop.
func (ln *lane) next(enc *batchEncoder) *request {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if len(ln.calls) == 0 {
		ln.calls, ln.writing = nil, false
		return nil
	}
	var parts []part
	enc.begin(time.Now().UnixMilli())
	for len(ln.calls) > 0 && !enc.full() {
		c := ln.calls[0]
		from := c.packed
		for ; c.packed < len(c.which) && !enc.full(); c.packed++ {
			enc.add(&c.recs[c.which[c.packed]])
		}
		parts = append(parts, part{c, from, c.packed})
		if c.packed == len(c.which) {
			ln.calls[0] = nil
			ln.calls = ln.calls[1:]
		}
	}
	return newRequest(parts...)
}

// alone packs one part of an earlier request into a batch. It returns nil if its call has ended.
func (ln *lane) alone(enc *batchEncoder, p part) *request {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if p.call.ended {
		return nil
	}
	enc.begin(time.Now().UnixMilli())
	for _, i := range p.call.which[p.from:p.to] {
		enc.add(&p.call.recs[i])
	}
	return newRequest(p)
}

// newRequest returns the request of parts. The caller holds the lane's lock.
func newRequest(parts ...part) *request {
	r := &request{parts: parts, waiting: len(parts)}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	for _, p := range parts {
		p.call.request = r
	}
	return r
}

// settle tells the calls of a request its outcome. An error ends a call.
func (ln *lane) settle(r *request, err error) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for _, p := range r.parts {
		c := p.call
		if c.ended {
			continue
		}
		c.request = nil
		if err == nil {
			c.acked += p.to - p.from
		}
		if err != nil || c.acked == len(c.which) {
			ln.end(c)
			c.done <- err
		}
	}
	r.cancel(nil)
}

// writer sends the requests of a lane.
type writer struct {
	log  *Log
	lane *lane
	enc  *batchEncoder
}

var encoders sync.Pool // of *batchEncoder

// encoder returns the encoder for the next request.
func (w *writer) encoder() *batchEncoder {
	if w.enc == nil {
		if w.enc, _ = encoders.Get().(*batchEncoder); w.enc == nil {
			w.enc = &batchEncoder{}
		}
		w.enc.codec, w.enc.zstd = w.log.cfg.Codec, w.log.zstd
	}
	return w.enc
}

// run sends until no call waits.
func (w *writer) run() {
	for {
		r := w.lane.next(w.encoder())
		if r == nil {
			break
		}
		refused, err := w.send(r)
		if !refused || len(r.parts) == 1 {
			w.lane.settle(r, err)
			continue
		}
		// The broker does not say which record it refuses. The others are not to blame.
		for _, p := range r.parts {
			if one := w.lane.alone(w.encoder(), p); one != nil {
				_, err := w.send(one)
				w.lane.settle(one, err)
			}
		}
		r.cancel(nil)
	}
	encoders.Put(w.enc)
}

// send sends the records that the encoder holds, until they are acknowledged, the broker refuses
// them, Patience runs out or no call waits for them any more.
func (w *writer) send(r *request) (refused bool, err error) {
	batch, err := w.enc.finish()
	if err != nil {
		return false, err
	}
	failed := false
	for wait := newBackoff(w.log.cfg.Patience); ; {
		if err := w.log.guard(r.ctx, w.lane.tp, failed); err != nil {
			return false, err
		}
		err := w.produce(batch)
		if err == nil {
			return false, nil
		}
		failed, w.enc = true, nil // an abandoned request may still read the batch
		if !temporary(err) {
			return true, err
		}
		if err := wait.sleep(r.ctx, err); err != nil {
			return false, err
		}
	}
}

// produce sends a batch and returns once it is answered, or after requestTimeout. No caller's
// context ends it, so that the outcome is known before the next request is sent.
func (w *writer) produce(batch []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	_, err := w.log.produce(ctx, w.lane.tp, batch)
	return err
}

// produce sends a batch and returns the offset that it got. An abandoned request may still read the
// batch after produce returns.
func (l *Log) produce(ctx context.Context, tp domain.TopicPartition, batch []byte) (first int64, err error) {
	size := binary.BigEndian.AppendUint32(nil, uint32(len(batch))) // kafka-go does not add this prefix
	res, err := l.client.RawProduce(ctx, &kafkago.RawProduceRequest{
		Topic:        string(tp.Topic),
		Partition:    tp.Partition,
		RequiredAcks: kafkago.RequireAll,
		RawRecords:   protocol.RawRecordSet{Reader: io.MultiReader(bytes.NewReader(size), bytes.NewReader(batch))},
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return 0, err
	}
	return res.BaseOffset, nil
}
