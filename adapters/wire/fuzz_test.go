package wire

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"quartermaster/domain"
	"quartermaster/projections"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Decoding any record ends with an event that can be encoded and shown, or with an error of one
// line. So does validating a sample.
func FuzzDecode(f *testing.F) {
	for _, typ := range domain.Types() {
		env := envelope(&counter{}, domain.NewEvent(typ))
		if domain.NeedsSignature(env.Event) {
			if err := Sign(env, "ada", signer); err != nil {
				f.Fatal(err)
			}
		}
		rec := mustEncode(f, env)
		var headers []byte
		for _, h := range rec.Headers {
			headers = append(append(append(append(headers, h.Key...), 0), h.Value...), 0)
		}
		f.Add(string(rec.Topic), rec.Partition, rec.Key, headers, rec.Value)
	}
	f.Fuzz(func(t *testing.T, topic string, partition int, key, headers, value []byte) {
		rec := domain.Record{Topic: domain.Topic(topic), Partition: partition, Key: key, Value: value}
		for parts := bytes.Split(headers, []byte{0}); len(parts) > 1; parts = parts[2:] {
			rec.Headers = append(rec.Headers, domain.Header{Key: string(parts[0]), Value: parts[1]})
		}
		var env domain.Envelope
		if err := new(Decoder).Decode(&rec, &env); err != nil {
			oneLine(t, err)
			return
		}
		if env.Event.Type() == domain.TypeNodeSampled && domain.Validate(&env) != nil {
			return
		}
		env.Signature = nil // covers the original bytes
		again(t, &env)
	})
}

// The payload of each type, without the matching headers.
func FuzzPayload(f *testing.F) {
	types := domain.Types()
	for i, typ := range types {
		if typ == domain.TypeNodeSampled {
			continue
		}
		f.Add(uint8(i), mustEncode(f, envelope(&counter{}, domain.NewEvent(typ))).Value)
	}
	f.Fuzz(func(t *testing.T, i uint8, value []byte) {
		read := func(value []byte) (domain.Event, error) {
			ev := domain.NewEvent(types[int(i)%len(types)])
			msg, move := bind(ev)
			if msg == nil {
				t.Skip("laid out by hand")
			}
			if err := msg.UnmarshalVT(value); err != nil {
				return nil, err
			}
			m := mover{decode: true}
			move(&m)
			return ev, m.err
		}
		ev, err := read(value)
		if err != nil {
			oneLine(t, err)
			return
		}
		written, err := payload(ev)
		if err != nil {
			t.Fatalf("%#v was read but cannot be written: %v", ev, err)
		}
		reread, err := read(written)
		if err != nil {
			t.Fatal(err)
		}
		if d := difference(reflect.ValueOf(reread), reflect.ValueOf(ev), ""); d != "" {
			t.Fatal(d)
		}
	})
}

// Any payload of a sample. The generated code accepts every payload that this package accepts, and
// the fold puts it into a row or in quarantine, as domain.Validate says.
func FuzzSample(f *testing.F) {
	for _, env := range []*domain.Envelope{node(0), node(7), envelope(&counter{}, &domain.NodeSampled{})} {
		f.Add(mustEncode(f, env).Value)
	}
	place := mustEncode(f, node(0))
	var used Decoder
	f.Fuzz(func(t *testing.T, value []byte) {
		rec := place
		rec.Value = value
		var env domain.Envelope
		if err := used.Decode(&rec, &env); err != nil {
			oneLine(t, err)
			return
		}
		rec.Time = env.Time // folds refuse times far from it
		if err := proto.Unmarshal(value, &eventsv1.NodeSampled{}); err != nil {
			t.Fatalf("read, but not a message: %v", err)
		}
		if err := domain.Validate(&env); err != nil {
			oneLine(t, err)
			if _, err := Encode(&env); err == nil {
				t.Fatal("written, though it is invalid")
			}
			if _, err := CloudEvent(&env); err == nil {
				t.Fatal("shown, though it is invalid")
			}
			if c := folded(t, &rec); c.Quarantined != 1 {
				t.Fatalf("folded: %+v, want it in quarantine", c)
			}
			return
		}
		if c := folded(t, &rec); c.Folded != 1 {
			t.Fatalf("%+v, want it folded", c)
		}
		again(t, &env)
	})
}

// folded folds a record into an empty store, and asks for the keys of the rows that it touches.
func folded(t *testing.T, rec *domain.Record) projections.Counts {
	tp := domain.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}
	f := projections.NewProjector(tp, rec.Topic.Partitions(), new(Decoder))
	keys := 0
	f.Keys(rec, func(projections.Key) bool { keys++; return true })
	if keys > 30 {
		t.Fatalf("it may touch %d rows, more than the hours of a day and a few", keys)
	}
	if err := f.Apply(projections.NewWorkingSet(), rec); err != nil {
		t.Fatal(err)
	}
	return f.Counts()
}

func again(t *testing.T, env *domain.Envelope) {
	rec, err := Encode(env)
	if err != nil {
		t.Fatalf("read, but cannot be written: %v", err)
	}
	var reread domain.Envelope
	if err := new(Decoder).Decode(&rec, &reread); err != nil {
		t.Fatal(err)
	}
	sameEnvelope(t, &reread, env)
	if _, err := CloudEvent(env); err != nil {
		t.Fatal(err)
	}
}

func oneLine(t *testing.T, err error) {
	if strings.ContainsAny(err.Error(), "\n\r\x00") || len(err.Error()) > 2000 {
		t.Fatalf("not a line for people: %q", err)
	}
}
