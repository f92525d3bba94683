package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Whatever an event says is what is read from its record, in a fresh decoder
// and in one whose memory was used before. The types of a topic share the draws;
// with QM_LONG each type has its own.
func TestRoundTrip(t *testing.T) {
	groups := map[string][]domain.Type{}
	for _, typ := range domain.Types() {
		group := string(domain.TopicOf(typ))
		if os.Getenv("QM_LONG") != "" || typ == domain.TypeNodeSampled {
			group = string(typ)
		}
		groups[group] = append(groups[group], typ)
	}
	for name, types := range groups {
		t.Run(name, func(t *testing.T) {
			used := &Decoder{}
			rapid.Check(t, func(t *rapid.T) {
				typ := rapid.SampledFrom(types).Draw(t, "type")
				env := envelope(drawer{t}, domain.NewEvent(typ))
				if typ != domain.TypeNodeSampled && rapid.Bool().Draw(t, "signed") {
					if err := Sign(env, "ada", signer); err != nil {
						t.Fatal(err)
					}
				}
				rec, err := Encode(env)
				if err != nil {
					t.Fatal(err)
				}
				again, err := Encode(env)
				if err != nil || !reflect.DeepEqual(rec, again) {
					t.Fatalf("encoded twice, the records differ: %v", err)
				}
				for _, d := range []*Decoder{{}, used} {
					var got domain.Envelope
					if err := d.Decode(&rec, &got); err != nil {
						t.Fatal(err)
					}
					if d := difference(reflect.ValueOf(&got), reflect.ValueOf(env), ""); d != "" {
						t.Fatalf("got and want differ: %s", d)
					}
					if got.Signature != nil {
						if err := got.CheckSignature(); err != nil {
							t.Fatal(err)
						}
					}
				}
				if shown, err := CloudEvent(env); err != nil || !json.Valid(shown) {
					t.Fatalf("shown as %s, %v", shown, err)
				}
			})
		})
	}
}

// Every field of every event reaches the record: with all of them filled, none
// is lost and no field of the message is left empty.
func TestEveryFieldTravels(t *testing.T) {
	for _, typ := range domain.Types() {
		env := envelope(&counter{}, domain.NewEvent(typ))
		rec := mustEncode(t, env)
		var got domain.Envelope
		if err := new(Decoder).Decode(&rec, &got); err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		sameEnvelope(t, &got, env)
		if typ == domain.TypeNodeSampled {
			m := &eventsv1.NodeSampled{}
			if err := proto.Unmarshal(rec.Value, m); err != nil {
				t.Fatal(err)
			}
			m.Subject = "left out when it is the node"
			full(t, m.ProtoReflect())
			continue
		}
		msg, move := bind(env.Event)
		move(&mover{})
		full(t, msg.ProtoReflect())
	}
}

// full reports fields without a value, and such of another name than the event's.
func full(t *testing.T, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			t.Errorf("%s is empty, though every field of the event is filled", f.FullName())
			continue
		}
		if f.Message() == nil || f.IsMap() {
			continue
		}
		if f.IsList() {
			for j := range m.Get(f).List().Len() {
				full(t, m.Get(f).List().Get(j).Message())
			}
			continue
		}
		full(t, m.Get(f).Message())
	}
}

// A sample's own encoding is that of the generated code.
func TestSampleIsItsMessage(t *testing.T) {
	fields := (&eventsv1.NodeSampled{}).ProtoReflect().Descriptor().Fields()
	if fields.Len() != fieldCount-1 {
		t.Errorf("%d fields in the schema, %d here", fields.Len(), fieldCount-1)
	}
	for n := 1; n < fieldCount; n++ {
		if f := fields.ByNumber(protoreflect.FieldNumber(n)); f == nil || string(f.Name()) != sampleFields[n] {
			t.Errorf("field %d is %q here, %v in the schema", n, sampleFields[n], f)
		}
	}
	s := &domain.NodeSampled{}
	for f, a := range sampleArrays(s) {
		if is := a != nil || f == fieldNameParts; is != (arrayFields&(1<<f) != 0) {
			t.Errorf("field %s is an array in one list and not in the other", sampleFields[f])
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		env := envelope(drawer{t}, &domain.NodeSampled{})
		rec, err := Encode(env)
		if err != nil {
			t.Fatal(err)
		}
		m := &eventsv1.NodeSampled{}
		if err := proto.Unmarshal(rec.Value, m); err != nil {
			t.Fatal(err)
		}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil || !bytes.Equal(b, rec.Value) {
			t.Fatalf("the generated code writes\n%x, %v, this package\n%x", b, err, rec.Value)
		}
		s := env.Event.(*domain.NodeSampled)
		tails, name := m.GetNameTails(), ""
		for i := 0; i < len(m.GetNameParts()); i += 2 {
			shared, rest := m.GetNameParts()[i], m.GetNameParts()[i+1]
			name, tails = name[:shared]+tails[:rest], tails[rest:]
			if name != s.Strings[i/2] {
				t.Fatalf("name %d is %q, want %q", i/2, name, s.Strings[i/2])
			}
		}
		if !reflect.DeepEqual(m.GetTemperatureC(), s.TemperatureC) || !bytes.Equal(m.GetIds(), s.IDs) ||
			m.GetSequence() != env.Sequence || m.GetIntervalTo() != int64(env.Time) {
			t.Fatalf("the message says %v, the event %v", m, s)
		}
	})
}

// What an event needs before it may be appended, and what it may not hold.
func TestEncodeRefuses(t *testing.T) {
	base := func() *domain.Envelope {
		return &domain.Envelope{
			Source: "cli/ada", Incarnation: 1, Sequence: 3, Time: 5, Cluster: "c", Workspace: "w",
			Event: &domain.NodeCordoned{Node: "n"},
		}
	}
	line := func(cost domain.Decimal) *domain.BillingLineRecorded {
		return &domain.BillingLineRecorded{Line: domain.BillingLine{InvoiceIssuerName: "i", BillingAccountID: "a", BilledCost: cost}}
	}
	for _, c := range []struct {
		want   string
		change func(*domain.Envelope)
	}{
		{"encode event: event is incomplete: it holds no event", func(e *domain.Envelope) { e.Event = nil }},
		{"encode NodeCordoned: event is incomplete: source is empty", func(e *domain.Envelope) { e.Source = "" }},
		{"incarnation is 0", func(e *domain.Envelope) { e.Incarnation = 0 }},
		{"sequence is 0", func(e *domain.Envelope) { e.Sequence = 0 }},
		{"time is not given", func(e *domain.Envelope) { e.Time = 0 }},
		{"outside the years", func(e *domain.Envelope) { e.Time = endOfTime }},
		{"outside the years", func(e *domain.Envelope) { e.Recorded = -1 }},
		{"no cluster", func(e *domain.Envelope) { e.Cluster = "" }},
		{"previoussequence without", func(e *domain.Envelope) { e.PreviousSequence = 4 }},
		{"only the first", func(e *domain.Envelope) { e.PreviousIncarnation = 9 }},
		{"its own incarnation", func(e *domain.Envelope) { e.Sequence, e.PreviousIncarnation = 1, 1 }},
		{"cites", func(e *domain.Envelope) { e.Cites = "qm.fleet/0" }},
		{"cites", func(e *domain.Envelope) { e.Cites = "qm.fleet/0@1,qm.fleet/1=2" }},
		{"cites", func(e *domain.Envelope) { e.Cites = "qm.fleet/4@1" }},
		{"ce_subject: text is not UTF-8", func(e *domain.Envelope) { e.Subject = "\xff" }},
		{"ce_workspace: text of 1025 bytes", func(e *domain.Envelope) { e.Workspace = strings.Repeat("x", 1025) }},
		{"key: text holds a NUL", func(e *domain.Envelope) { e.Cluster = "a\x00b" }},
		{"field node: text holds a NUL", func(e *domain.Envelope) { e.Event = &domain.NodeCordoned{Node: "\x00"} }},
		{"field gpus[1].serial: text is not UTF-8", func(e *domain.Envelope) {
			e.Event = &domain.NodeRegistered{GPUs: []domain.GPUDeclared{{}, {Serial: "\xc3"}}}
		}},
		{"field line.billed_cost: decimal of more than 60 digits", func(e *domain.Envelope) { e.Event = line(decimal.New(1, 999_999_999)) }},
		{"field line.billed_cost: decimal with 41 digits", func(e *domain.Envelope) { e.Event = line(decimal.New(1, -41)) }},
		{"field line.billed_cost: decimal of more than 60 digits", func(e *domain.Envelope) { e.Event = line(decimal.RequireFromString(strings.Repeat("9", 61))) }},
		{"field valid.to: time of -1 ns", func(e *domain.Envelope) {
			e.Event = &domain.CertificationHeld{Valid: domain.Interval{To: -1}}
		}},
		{"more than 4194304", func(e *domain.Envelope) { e.Event = &domain.PlanComputed{Document: make([]byte, maxRecord+1)} }},
		{"signature does not verify", func(e *domain.Envelope) {
			if err := Sign(e, "ada", signer); err != nil {
				t.Fatal(err)
			}
			e.Subject = "changed after signing"
		}},
	} {
		env := base()
		c.change(env)
		_, err := Encode(env)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want an error with %q", err, c.want)
		}
	}
}

// A sample that contradicts itself is refused, alike when written and when read.
func TestSampleRefused(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*domain.Envelope, *domain.NodeSampled)
	}{
		{"not the end", func(e *domain.Envelope, _ *domain.NodeSampled) { e.Time++ }},
		{"field node: empty", func(_ *domain.Envelope, s *domain.NodeSampled) { s.Node = "" }},
		{"not after", func(_ *domain.Envelope, s *domain.NodeSampled) { s.Interval.From = s.Interval.To }},
		{"longer than a day", func(_ *domain.Envelope, s *domain.NodeSampled) { s.Interval.From -= domain.Day }},
		{"not 16 per device", func(_ *domain.Envelope, s *domain.NodeSampled) { s.IDs = s.IDs[1:] }},
		{"entry 2 has no id", func(_ *domain.Envelope, s *domain.NodeSampled) { clear(s.IDs[32:48]) }},
		{"entries 1 and 7 are both", func(_ *domain.Envelope, s *domain.NodeSampled) { copy(s.IDs[112:], s.IDs[16:32]) }},
		{"temperature_c: 7 values for 8", func(_ *domain.Envelope, s *domain.NodeSampled) { s.TemperatureC = s.TemperatureC[1:] }},
		{"activity_max: a value", func(_ *domain.Envelope, s *domain.NodeSampled) { s.ActivityMax[7] = 1002 }},
		{"activity_field: missing", func(_ *domain.Envelope, s *domain.NodeSampled) { s.ActivityField = 0 }},
		{"field holder: ", func(_ *domain.Envelope, s *domain.NodeSampled) { s.Holder[3] = 9 }},
		{"holder_unit: a reference", func(_ *domain.Envelope, s *domain.NodeSampled) { s.HolderUnit[3] = 99 }},
		{"want as many of each", func(_ *domain.Envelope, s *domain.NodeSampled) { s.HolderUnit = s.HolderUnit[1:] }},
		{"field parent: ", func(_ *domain.Envelope, s *domain.NodeSampled) { s.Parent = []uint32{1, 0, 0, 0, 0, 0, 0, 0} }},
		{"want as many of each", func(_ *domain.Envelope, s *domain.NodeSampled) { s.OtherEntry = []uint32{1} }},
		{"other_entry: an index", func(_ *domain.Envelope, s *domain.NodeSampled) {
			s.OtherEntry, s.OtherField, s.OtherValue = []uint32{8}, []uint32{1}, []uint64{1}
		}},
	} {
		env := node(0)
		good := mustEncode(t, env)
		s := env.Event.(*domain.NodeSampled)
		c.change(env, s)
		if _, err := Encode(env); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("encode: %v, want an error with %q", err, c.want)
		}
		if env.Time != s.Interval.To {
			continue // cannot be said on the wire
		}
		// The same, written by someone who does not check.
		m := &eventsv1.NodeSampled{}
		if err := proto.Unmarshal(good.Value, m); err != nil {
			t.Fatal(err)
		}
		m.Node, m.IntervalFrom, m.Ids, m.Parent = s.Node, int64(s.Interval.From), s.IDs, s.Parent
		m.TemperatureC, m.ActivityMax, m.ActivityField = s.TemperatureC, s.ActivityMax, s.ActivityField
		m.Holder, m.HolderUnit = s.Holder, s.HolderUnit
		m.OtherEntry, m.OtherField, m.OtherValue = s.OtherEntry, s.OtherField, s.OtherValue
		var err error
		if good.Value, err = proto.Marshal(m); err != nil {
			t.Fatal(err)
		}
		var got domain.Envelope
		if err := new(Decoder).Decode(&good, &got); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("decode: %v, want an error with %q", err, c.want)
		}
	}
}

// A few bytes that stand for very many are refused before they are written out.
func TestNameBomb(t *testing.T) {
	rec := mustEncode(t, node(0))
	m := &eventsv1.NodeSampled{}
	if err := proto.Unmarshal(rec.Value, m); err != nil {
		t.Fatal(err)
	}
	m.NameTails, m.NameParts = strings.Repeat("x", maxName), []uint32{0, maxName}
	for range 10_000 {
		m.NameParts = append(m.NameParts, maxName, 0)
	}
	rec.Value, _ = proto.Marshal(m)
	var env domain.Envelope
	if err := new(Decoder).Decode(&rec, &env); err == nil || !strings.Contains(err.Error(), "names of more than") {
		t.Errorf("%v, want names of more than", err)
	}
}

// What a record may not be. Each case damages one thing of a good record.
func TestDecodeRefuses(t *testing.T) {
	set := func(name, value string) func(*domain.Record) {
		return func(r *domain.Record) {
			for i := range r.Headers {
				if r.Headers[i].Key == name {
					r.Headers[i].Value = []byte(value)
					return
				}
			}
			r.Headers = append(r.Headers, domain.Header{Key: name, Value: []byte(value)})
		}
	}
	drop := func(name string) func(*domain.Record) {
		return func(r *domain.Record) {
			var kept []domain.Header
			for _, h := range r.Headers {
				if h.Key != name {
					kept = append(kept, h)
				}
			}
			r.Headers = kept
		}
	}
	for _, c := range []struct {
		name    string
		damage  func(*domain.Record)
		want    string
		unknown bool
	}{
		{"no headers", func(r *domain.Record) { r.Headers = nil }, "ce_specversion", false},
		{"other specversion", set("ce_specversion", "2.0"), `ce_specversion is "2.0"`, false},
		{"no type", drop("ce_type"), "unknown event type", true},
		{"newer version", set("ce_type", "quartermaster.PolicySet.v2"), "this program knows version 1", true},
		{"unknown type", set("ce_type", "quartermaster.GPUMelted.v1"), "GPUMelted", true},
		{"foreign type", set("ce_type", "com.example.order"), "not an event of quartermaster", true},
		{"no source", drop("ce_source"), "decode PolicySet: header ce_source is missing", false},
		{"no sequence", drop("ce_sequence"), "header ce_sequence is missing", false},
		{"no content type", drop("content-type"), "header content-type is missing", false},
		{"JSON", set("content-type", "application/json"), "content-type", false},
		{"sequence with zeros", set("ce_sequence", "007"), "ce_sequence", false},
		{"sequence beyond 64 bits", set("ce_sequence", "18446744073709551616"), "ce_sequence", false},
		{"time without zone", set("ce_time", "2026-05-01T00:00:00"), "has no zone", false},
		{"empty subject", set("ce_subject", ""), "header ce_subject is empty", false},
		{"long subject", set("ce_subject", strings.Repeat("x", 2000)), "text of 2000 bytes", false},
		{"source twice", func(r *domain.Record) {
			r.Headers = append(r.Headers, domain.Header{Key: "ce_source", Value: []byte("x")})
		}, "ce_source is there twice", false},
		{"many headers", func(r *domain.Record) { r.Headers = make([]domain.Header, maxHeaders+1) }, "65 headers", false},
		{"another id", set("ce_id", "1/qm.workspaces/0/9"), "contradicts", false},
		{"another incarnation", set("ce_incarnation", "77"), "contradicts", false},
		{"another workspace", set("ce_workspace", "other"), "record key", false},
		{"another key", func(r *domain.Record) { r.Key = []byte("other") }, "record key", false},
		{"another topic", func(r *domain.Record) { r.Topic = domain.TopicFleet }, "belongs to topic qm.workspaces", false},
		{"another partition", func(r *domain.Record) { r.Partition = 1 }, "belongs to partition 0, not 1", false},
		{"half a signature", drop("ce_operatorkey"), "come together", false},
		{"signature not base64", set("ce_signature", "!"), "ce_signature is not base64", false},
		{"payload cut off", func(r *domain.Record) { r.Value = r.Value[:len(r.Value)-1] }, "payload is not its message", false},
		{"payload too large", func(r *domain.Record) { r.Value = make([]byte, maxRecord+1) }, "payload of 4194305 bytes", false},
		{"exponent", func(r *domain.Record) { r.Value = []byte("\x62\x0b1e999999999") }, "is not a decimal", false},
		{"a sample with headers", set("ce_type", "quartermaster.NodeSampled.v1"), "only headers", false},
	} {
		env := envelope(&counter{}, &domain.PolicySet{})
		if err := Sign(env, "ada", signer); err != nil {
			t.Fatal(err)
		}
		rec := mustEncode(t, env)
		c.damage(&rec)
		err := new(Decoder).Decode(&rec, &domain.Envelope{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
			continue
		}
		if strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%s: more than a line: %q", c.name, err)
		}
		if errors.Is(err, ErrUnknownType) != c.unknown {
			t.Errorf("%s: %v, ErrUnknownType wanted: %v", c.name, err, c.unknown)
		}
	}
}

// Headers of others, and fields of newer writers, are let be.
func TestDecodeLetsBe(t *testing.T) {
	for _, env := range []*domain.Envelope{envelope(&counter{}, &domain.PolicySet{}), node(0)} {
		rec := mustEncode(t, env)
		if env.Event.Type() != domain.TypeNodeSampled {
			rec.Headers = append(rec.Headers, domain.Header{Key: "traceparent", Value: []byte{0xff}}, domain.Header{Key: "ce_future", Value: []byte("x")})
		}
		rec.Value = append(rec.Value, 0xfa, 0x3e, 3, 'n', 'e', 'w') // field 1007
		var got domain.Envelope
		if err := new(Decoder).Decode(&rec, &got); err != nil {
			t.Error(err)
			continue
		}
		sameEnvelope(t, &got, env)
	}
}

// A signature covers what was decided, and nothing that is given at appending.
func TestSignature(t *testing.T) {
	signed := func() *domain.Envelope {
		env := envelope(&counter{}, &domain.QuotaSet{})
		env.Cites = "qm.workspaces/0@9"
		if err := Sign(env, "ada", signer); err != nil {
			t.Fatal(err)
		}
		return env
	}
	check := func(change func(*domain.Record)) error {
		rec := mustEncode(t, signed())
		change(&rec)
		var got domain.Envelope
		if err := new(Decoder).Decode(&rec, &got); err != nil {
			return err
		}
		return got.CheckSignature()
	}
	replace := func(name string, with func(string) string) func(*domain.Record) {
		return func(r *domain.Record) {
			for i := range r.Headers {
				if r.Headers[i].Key == name {
					r.Headers[i].Value = []byte(with(string(r.Headers[i].Value)))
				}
			}
		}
	}
	if err := check(func(*domain.Record) {}); err != nil {
		t.Error(err)
	}
	if err := check(replace("ce_source", func(string) string { return "someone else" })); err != nil {
		t.Errorf("source is given when appended: %v", err)
	}
	for _, name := range []string{"ce_time", "ce_recordedtime", "ce_subject", "ce_cites", "ce_operator", "ce_cluster"} {
		err := check(replace(name, func(v string) string {
			switch name {
			case "ce_time", "ce_recordedtime":
				return "2031-01-01T00:00:00Z"
			case "ce_cites":
				return "qm.workspaces/0@10"
			}
			return v + "x"
		}))
		if !errors.Is(err, domain.ErrSignature) {
			t.Errorf("%s changed: %v, want ErrSignature", name, err)
		}
	}
	if err := check(replace("ce_workspace", func(v string) string { return v + "x" })); err == nil {
		t.Error("workspace changed: no error")
	}
	if err := check(func(r *domain.Record) {
		replace("ce_workspace", func(v string) string { return v + "x" })(r)
		r.Key = append(r.Key, 'x')
	}); !errors.Is(err, domain.ErrSignature) {
		t.Errorf("workspace and key changed: %v, want ErrSignature", err)
	}
	if err := check(func(r *domain.Record) { r.Value = append(r.Value, 0xfa, 0x3e, 1, 'x') }); !errors.Is(err, domain.ErrSignature) {
		t.Errorf("a field added that nobody knows: %v, want ErrSignature", err)
	}
	if err := Sign(node(0), "ada", signer); err == nil {
		t.Error("a sample was signed")
	}
}

// Two events cannot share an id within a source.
func TestID(t *testing.T) {
	env := node(0)
	id, err := ID(env)
	if err != nil {
		t.Fatal(err)
	}
	p := domain.PartitionOf([]byte(env.Cluster), domain.TopicTelemetry.Partitions())
	if want := fmt.Sprintf("1780185600/qm.telemetry/%d/4711", p); id != want {
		t.Errorf("id %s, want %s", id, want)
	}
}
