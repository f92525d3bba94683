package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"quartermaster/domain"
)

// Invalid records. Each case damages one part of a valid record.
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

// Foreign headers and fields of newer writers are ignored.
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

// A signature covers the decision, but not the attributes that are set when it is appended.
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
		t.Errorf("source is set when appended: %v", err)
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
		t.Errorf("an unknown field added: %v, want ErrSignature", err)
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
