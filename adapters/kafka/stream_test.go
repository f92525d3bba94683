package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"pgregory.net/rapid"

	"quartermaster/domain"
)

// retired is event number n about a cluster.
func retired(cluster string, n int) *domain.Envelope {
	return &domain.Envelope{Cluster: cluster, Event: &domain.NodeRetired{Node: fmt.Sprint(n)}}
}

// encode is a wire format for these tests: sequence, incarnations and number of the event, in
// memory that the returned function overwrites.
func encode() (enc func(*domain.Envelope) (domain.Record, error), scribble func()) {
	var used [][]byte
	enc = func(e *domain.Envelope) (domain.Record, error) {
		node := e.Event.(*domain.NodeRetired).Node
		if node == "bad" {
			return domain.Record{}, errors.New("cannot encode this")
		}
		v := binary.BigEndian.AppendUint64(nil, e.Sequence)
		v = fmt.Appendf(v, "%s/%d after %d/%d: %s", e.Source, e.Incarnation, e.PreviousIncarnation, e.PreviousSequence, node)
		k := []byte(e.Cluster)
		used = append(used, k, v)
		return domain.Record{Key: k, Value: v}, nil
	}
	return enc, func() {
		for _, b := range used {
			for i := range b {
				b[i] = 0xee
			}
		}
		used = nil
	}
}

func decoded(r *domain.Record) (seq uint64, text string) {
	return binary.BigEndian.Uint64(r.Value), string(r.Value[8:])
}

// TestStreamIsDense runs a stream on a log that fails in every way that Append may: completely,
// in some partitions, after some records, with more records written than acknowledged, or with
// records written twice.
func TestStreamIsDense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type row struct {
			texts []string // by sequence
		}
		log := map[domain.TopicPartition]*row{}
		write := func(r *domain.Record) {
			tp := domain.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			if want := domain.PartitionOf(r.Key, tp.Topic.Partitions()); want != tp.Partition {
				t.Fatalf("key %q in partition %d", r.Key, tp.Partition)
			}
			if log[tp] == nil {
				log[tp] = &row{}
			}
			seq, text := decoded(r)
			switch have := uint64(len(log[tp].texts)); {
			case seq == have+1:
				log[tp].texts = append(log[tp].texts, text)
			case seq > have+1:
				t.Fatalf("%s: sequence %d follows %d", tp, seq, have)
			case seq == 0 || log[tp].texts[seq-1] != text:
				t.Fatalf("%s: sequence %d is %q now, was %q", tp, seq, text, log[tp].texts[seq-1])
			}
		}
		failing := true
		appendTo := func(_ context.Context, recs []domain.Record) error {
			parts := map[domain.TopicPartition][]*domain.Record{}
			for i := range recs {
				tp := domain.TopicPartition{Topic: recs[i].Topic, Partition: recs[i].Partition}
				parts[tp] = append(parts[tp], &recs[i])
			}
			var errs []error
			for p := range domain.TopicFleet.Partitions() { // in a fixed order, so that rapid can shrink
				tp := domain.TopicPartition{Topic: domain.TopicFleet, Partition: p}
				rs := parts[tp]
				if len(rs) == 0 {
					continue
				}
				written := len(rs)
				if failing && rapid.Bool().Draw(t, "fails") {
					written = rapid.IntRange(0, len(rs)).Draw(t, "written")
					acked := rapid.IntRange(0, written).Draw(t, "acked")
					errs = append(errs, &PartitionError{tp, acked, errors.New("cable cut")})
				}
				for range rapid.IntRange(1, 2).Draw(t, "times") {
					for _, r := range rs[:written] {
						write(r)
					}
				}
			}
			return errors.Join(errs...)
		}
		enc, scribble := encode()
		first := StreamConfig{
			Source: "s", Incarnation: 2, PreviousIncarnation: 1, Encode: enc,
			PreviousSequences: map[domain.TopicPartition]uint64{{Topic: domain.TopicFleet, Partition: 1}: 77},
		}
		s := NewStream(&Log{}, first)
		s.append = appendTo
		sent := 0
		for range rapid.IntRange(1, 12).Draw(t, "calls") {
			switch rapid.IntRange(0, 5).Draw(t, "do") {
			case 0:
				if err := s.Flush(context.Background()); (err != nil) != (s.Held() > 0) {
					t.Fatalf("flush says %v and holds %d", err, s.Held())
				}
			case 1: // a call with one bad event appends nothing
				before := s.Held()
				err := s.Append(context.Background(), retired("a", -1), &domain.Envelope{Cluster: "b", Event: &domain.NodeRetired{Node: "bad"}})
				if err == nil || errors.Is(err, ErrUndelivered) || s.Held() != before {
					t.Fatalf("bad event: %v", err)
				}
			case 2: // restarted with the acknowledged sequences
				if s.Held() > 0 {
					continue
				}
				again := first
				again.Sequences = s.Sequences()
				s = NewStream(&Log{}, again)
				s.append = appendTo
			default:
				var es []*domain.Envelope
				for range rapid.IntRange(0, 9).Draw(t, "events") {
					es = append(es, retired(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "cluster"), sent))
					sent++
				}
				err := s.Append(context.Background(), es...)
				if (err != nil) != (s.Held() > 0) || err != nil && !errors.Is(err, ErrUndelivered) {
					t.Fatalf("append says %v and holds %d", err, s.Held())
				}
			}
			scribble()
		}
		failing = false
		if err := s.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		total := 0
		for tp, row := range log {
			total += len(row.texts)
			for i, text := range row.texts {
				after := "0/0"
				if i == 0 {
					after = fmt.Sprintf("1/%d", first.PreviousSequences[tp])
				}
				if !strings.HasPrefix(text, "s/2 after "+after+":") {
					t.Fatalf("%s: sequence %d is %q", tp, i+1, text)
				}
			}
			if got := s.Sequences()[tp]; got != uint64(len(row.texts)) {
				t.Fatalf("%s: stream is at %d, log at %d", tp, got, len(row.texts))
			}
		}
		if total != sent {
			t.Fatalf("sent %d events, log holds %d", sent, total)
		}
	})
}

func TestStreamOverBrokenConnections(t *testing.T) {
	c := fake(t)
	d := &lossy{}
	l := open(t, Config{Brokers: c.ListenAddrs(), Dial: d.dial, Patience: 20 * time.Millisecond})
	if err := l.EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
		t.Fatal(err)
	}
	enc, scribble := encode()
	s := NewStream(l, StreamConfig{Source: "s", Incarnation: 1, Encode: enc})
	sent, undelivered := 0, 0
	for i := range 30 {
		switch i % 5 {
		case 1:
			d.lose.Store(1)
		case 3: // longer than Patience
			refuse(c, 4, int16(kafkago.NotEnoughReplicas))
		}
		var es []*domain.Envelope
		for k := range 7 {
			es = append(es, retired(fmt.Sprint("cluster ", k), sent))
			sent++
		}
		ctx, cancel := context.WithCancel(t.Context())
		if i%7 == 6 {
			cancel()
		}
		if err := s.Append(ctx, es...); errors.Is(err, ErrUndelivered) {
			undelivered++
		} else if errors.Is(err, context.Canceled) { // not accepted
			sent -= len(es)
		} else if err != nil {
			t.Fatal(err)
		}
		cancel()
		scribble()
	}
	for s.Held() > 0 {
		if err := s.Flush(t.Context()); err != nil && !errors.Is(err, ErrUndelivered) {
			t.Fatal(err)
		}
	}
	if undelivered == 0 {
		t.Error("nothing failed")
	}
	distinct := uint64(0)
	for p := range domain.TopicFleet.Partitions() {
		tp := domain.TopicPartition{Topic: domain.TopicFleet, Partition: p}
		_, end, err := l.Bounds(t.Context(), tp)
		if err != nil {
			t.Fatal(err)
		}
		var mark uint64
		if err := l.Read(t.Context(), tp, 0, end, func(recs []domain.Record) error {
			for i := range recs {
				seq, _ := decoded(&recs[i])
				if seq > mark+1 {
					t.Errorf("%s: sequence %d follows %d", tp, seq, mark)
				}
				mark = max(mark, seq)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		distinct += mark
	}
	if distinct != uint64(sent) {
		t.Errorf("sent %d events, log holds %d", sent, distinct)
	}
}

func TestStreamRefuses(t *testing.T) {
	l := openAny(t)
	if err := l.EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
		t.Fatal(err)
	}
	s := NewStream(l, StreamConfig{Source: "s", Incarnation: uint64(time.Now().UnixNano()), Encode: func(e *domain.Envelope) (domain.Record, error) {
		return domain.Record{Key: []byte("cluster"), Value: make([]byte, MaxRecordBytes)}, nil
	}})
	var large *TooLargeError
	if err := s.Append(t.Context(), retired("cluster", 1)); !errors.As(err, &large) {
		t.Errorf("too large: %v", err)
	}
	if err := s.Append(t.Context(), retired("", 1)); !errors.Is(err, domain.ErrIncomplete) {
		t.Errorf("no key: %v", err)
	}
	if err := s.Append(t.Context(), retired("other", 1)); err == nil || errors.Is(err, ErrUndelivered) {
		t.Errorf("encoded with another key: %v", err)
	}
	if got := s.Sequences(); s.Held() != 0 || !maps.Equal(got, map[domain.TopicPartition]uint64{}) {
		t.Errorf("held %d, sequences %v", s.Held(), got)
	}
}
