package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Decoding a record yields its event, in a fresh decoder and in one whose memory is reused. The
// types of a topic share the draws; with CI_LONG=1 each type has its own.
func TestRoundTrip(t *testing.T) {
	groups := map[string][]domain.Type{}
	for _, typ := range domain.Types() {
		group := string(domain.TopicOf(typ))
		if long.Run() || typ == domain.TypeNodeSampled {
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

// Every field of every event is encoded: if all fields are filled, none is lost and no field of the
// message is empty.
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
		if typ != domain.TypeNodeSampled { // fresh memory: changes of the record's bytes do not affect it
			again := mustEncode(t, env)
			scribble(&rec)
			sameEnvelope(t, &got, env)
			rec = again
		}
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

func scribble(rec *domain.Record) {
	for _, b := range [][]byte{rec.Key, rec.Value} {
		for i := range b {
			b[i] = '?'
		}
	}
	for _, h := range rec.Headers {
		clear(h.Value)
	}
}

// full reports empty fields, and fields with another name than the event's.
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

// The hand-written encoding of samples equals that of the generated code.
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

// Events that are incomplete or contain invalid values are not encoded.
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

// A contradictory sample is neither encoded nor shown. If another program wrote it, it is decoded,
// and domain.Validate refuses it. Only an invalid interval is refused when decoding, because a
// reader would process its hours first.
func TestSampleRefused(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*domain.Envelope, *domain.NodeSampled)
	}{
		{"not the end", func(e *domain.Envelope, _ *domain.NodeSampled) { e.Time++ }},
		{"node: is missing", func(_ *domain.Envelope, s *domain.NodeSampled) { s.Node = "" }},
		{"interval: is empty", func(_ *domain.Envelope, s *domain.NodeSampled) { s.Interval.From = s.Interval.To }},
		{"interval: covers more than 24 hours", func(_ *domain.Envelope, s *domain.NodeSampled) { s.Interval.From -= domain.Day }},
		{"want multiples of 16", func(_ *domain.Envelope, s *domain.NodeSampled) { s.IDs = s.IDs[1:] }},
		{"entry 2 is all zero", func(_ *domain.Envelope, s *domain.NodeSampled) { clear(s.IDs[32:48]) }},
		{"entries 1 and 7 are both", func(_ *domain.Envelope, s *domain.NodeSampled) { copy(s.IDs[112:], s.IDs[16:32]) }},
		{"temperature_c: has 7 entries", func(_ *domain.Envelope, s *domain.NodeSampled) { s.TemperatureC = s.TemperatureC[1:] }},
		{"activity_max: entry 7 is 1002", func(_ *domain.Envelope, s *domain.NodeSampled) { s.ActivityMax[7] = 1002 }},
		{"activity_field: is missing", func(_ *domain.Envelope, s *domain.NodeSampled) { s.ActivityField = 0 }},
		{"holder: entry 3 is 9", func(_ *domain.Envelope, s *domain.NodeSampled) { s.Holder[3] = 9 }},
		{"holder_unit: entry 3 is 99", func(_ *domain.Envelope, s *domain.NodeSampled) { s.HolderUnit[3] = 99 }},
		{"holder_unit: has 7 entries", func(_ *domain.Envelope, s *domain.NodeSampled) { s.HolderUnit = s.HolderUnit[1:] }},
		{"parent: entry 0 is 1", func(_ *domain.Envelope, s *domain.NodeSampled) { s.Parent = []uint32{1, 0, 0, 0, 0, 0, 0, 0} }},
		{"other_entry: has 1 entries beside 0", func(_ *domain.Envelope, s *domain.NodeSampled) { s.OtherEntry = []uint32{1} }},
		{"other_entry: names entry 8 of 8", func(_ *domain.Envelope, s *domain.NodeSampled) {
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
		if _, err := CloudEvent(env); err == nil && env.Time == s.Interval.To {
			t.Errorf("shown, want an error with %q", c.want)
		}
		if env.Time != s.Interval.To {
			continue // cannot be encoded
		}
		// The same sample, written by a program without checks.
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
		if err := new(Decoder).Decode(&good, &got); err != nil {
			if !strings.Contains(err.Error(), "field interval") || !strings.HasPrefix(c.want, "interval") {
				t.Errorf("decode: %v, want what domain.Validate refuses with %q", err, c.want)
			}
			continue
		}
		if err := domain.Validate(&got); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("decoded: %v, want an error with %q", err, c.want)
		}
	}
}

// A few bytes that stand for very many are refused before they are decoded.
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

// Decimals keep their digits as written, with or without the fast path for 64 bits.
func TestDecimal(t *testing.T) {
	for _, s := range []string{
		"0", "0.00", "12.50", "-12.50", "-0.0000000001", "999999999999999999", "-99999999999999999.9",
		"1000000000000000000", "-12345678901234567890.123456789", strings.Repeat("9", 60),
	} {
		d, err := parseDecimal(s)
		if err != nil {
			t.Error(err)
			continue
		}
		if !d.Equal(decimal.RequireFromString(s)) {
			t.Errorf("%s is read as %s", s, d)
		}
		if back, err := formatDecimal(d); err != nil || back != s {
			t.Errorf("%s comes back as %s, %v", s, back, err)
		}
	}
	for _, s := range []string{"-", ".5", "5.", "+1", " 1", "1e3", "0x1", "1_000", "--1", "1.2.3", "NaN", "٣", strings.Repeat("9", 61), "0." + strings.Repeat("0", 41)} {
		if d, err := parseDecimal(s); err == nil {
			t.Errorf("%q is read as %s", s, d)
		}
	}
}
