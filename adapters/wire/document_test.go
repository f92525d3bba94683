package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/projections/storetest"
)

// Every field of every event survives writing and reading, whether or not the event is valid.
// Samples have another JSON form, so that form is compared.
func TestDocumentFields(t *testing.T) {
	show := func(t rapid.TB, env *domain.Envelope) []byte {
		b, err := CloudEvent(env)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	read := func(t rapid.TB, doc []byte) domain.Event {
		d := document{text: doc, values: map[string]string{}}
		if err := d.split(); err != nil {
			t.Fatal(d.explain(err, 0, ""))
		}
		typ, err := parseType(d.values["type"])
		if err != nil {
			t.Fatal(err)
		}
		ev, err := readData(typ, d.data)
		if err != nil {
			t.Fatalf("%v\n%s", d.explain(err, d.offset, "/data"), doc)
		}
		return ev
	}
	for _, typ := range domain.Types() {
		if typ == domain.TypeNodeSampled {
			continue
		}
		env := envelope(&counter{}, domain.NewEvent(typ))
		got := *env
		got.Event = read(t, show(t, env))
		sameEnvelope(t, &got, env)
	}
	types := domain.Types()
	rapid.Check(t, func(t *rapid.T) {
		env := envelope(drawer{t}, domain.NewEvent(rapid.SampledFrom(types).Draw(t, "type")))
		doc := show(t, env)
		got := *env
		got.Event = read(t, doc)
		if again := show(t, &got); !bytes.Equal(again, doc) {
			t.Fatalf("shown\n%s\nread and shown again\n%s", doc, again)
		}
	})
}

// A valid event of any type is read completely except its signature, and encodes to the same
// record.
func TestReadCloudEvent(t *testing.T) {
	envs := storetest.Examples()
	for i, env := range []*domain.Envelope{node(0), node(7)} {
		env.Recorded, env.Cites, env.Workspace = domain.Instant(i+1)*domain.Day, "qm.telemetry/1@7", "acme"
		envs = append(envs, *env)
	}
	for i := range envs {
		env := &envs[i]
		if env.Source == "" {
			env.Source, env.Incarnation, env.Sequence, env.PreviousIncarnation, env.PreviousSequence = "s", 7, 1, 6, 9
		}
		if s, ok := env.Event.(*domain.NodeSampled); ok {
			env.Time = s.Interval.To
		}
		doc, err := CloudEvent(env)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadCloudEvent(doc)
		if err != nil {
			t.Errorf("%s: %v\n%s", env.Event.Type(), err, doc)
			continue
		}
		want := *env
		want.Signature = nil
		if env.Event.Type() != domain.TypeNodeSampled { // its tables may be in another order
			sameEnvelope(t, got, &want)
		}
		if shown, err := CloudEvent(got); err != nil || env.Signature == nil && !bytes.Equal(shown, doc) {
			t.Errorf("%s: shown\n%s\nread and shown again\n%s, %v", env.Event.Type(), doc, shown, err)
		}
		rec := mustEncode(t, got)
		if err := new(Decoder).Decode(&rec, &domain.Envelope{}); err != nil {
			t.Errorf("%s: %v", env.Event.Type(), err)
		}
	}
}

// Every error names the line and the field.
func TestReadCloudEventRefuses(t *testing.T) {
	good := `{
  "specversion": "1.0",
  "type": "quartermaster.NodeRegistered.v1",
  "time": "2026-05-01T00:00:00Z",
  "cluster": "lab",
  "data": {
    "node": "n1",
    "cpu_milli": 1000,
    "memory_mib": 1024,
    "gpus": [
      {"uuid": "GPU-5a1c0d6e-1111-4222-8333-444455556666", "index": 0, "model": "H100"},
      {"uuid": "GPU-5a1c0d6e-1111-4222-8333-444455556667", "index": 1, "model": "H100"}
    ]
  }
}`
	if _, err := ReadCloudEvent([]byte(good)); err != nil {
		t.Fatal(err)
	}
	sample, err := CloudEvent(node(0))
	if err != nil {
		t.Fatal(err)
	}
	price := strings.ReplaceAll(good, "NodeRegistered", "QuotaSet")
	price = price[:strings.Index(price, `    "node"`)] + `    "quota": "q", "resource": "r", "effective_from": "2026-05-01T00:00:00Z",
    "limit": LIMIT
  }
}`
	price = strings.Replace(price, `"cluster"`, `"workspace"`, 1)
	if _, err := ReadCloudEvent([]byte(strings.Replace(price, "LIMIT", "12.50", 1))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, from, from2, to, want string }{
		{"empty", good, good, "", "line 1: is not JSON: it ends too early"},
		{"list", good, good, "[]", "line 1: it is a list, want an object"},
		{"text", good, good, `"x"`, "line 1: it is text, want an object"},
		{"not JSON", good, good, "\x00\x01\x02PK", "line 1: is not JSON: invalid character"},
		{"cut off", good, good[len(good)-20:], "", "line 12: data.gpus[1]"},
		{"two events", good, good, good + "\n" + good, "something follows the event; want one event"},
		{"garbage after it", good, good, good + "}", "line 15: is not JSON: invalid character"},
		{"not UTF-8", good, "n1", "n\xff", "line 7: data.node: is not JSON: invalid UTF-8"},
		{"attribute twice", good, `"cluster": "lab"`, `"cluster": "a", "cluster": "b"`, "line 5: cluster: occurs twice"},
		{"field twice", good, `"node": "n1"`, `"node": "n1", "node": "n1"`, "line 7: data.node: occurs twice"},
		{"another case", good, `"node"`, `"Node"`, "line 7: data.Node: is not a field of it"},
		{"unknown field", good, `"index": 1`, `"indeks": 1`, "line 12: data.gpus[1].indeks: is not a field of it"},
		{"unknown attribute", good, `"cluster"`, `"clustre"`, "line 5: clustre: is not an attribute of an event"},
		{"whole record", good, good, `{"topic": "qm.fleet", "event": ` + good + `}`, "line 1: topic: is not an attribute of an event"},
		{"attribute a number", good, `"lab"`, "7", "line 5: cluster: is a number, want text"},
		{"attribute long", good, `"lab"`, `"` + strings.Repeat("x", 2000) + `"`, "line 5: cluster: text of 2000 bytes"},
		{"field text", good, "1024", `"1024"`, "line 9: data.memory_mib: is text, want a whole number"},
		{"field negative", good, "1024", "-1", "line 9: data.memory_mib: is -1, want a whole number from 0"},
		{"field broken", good, "1024", "1.5", "line 9: data.memory_mib: is 1.5, want a whole number from 0"},
		{"field beyond 64 bits", good, "1024", "99999999999999999999999", "line 9: data.memory_mib: is 99999999999999999999999, want a whole number"},
		{"list an object", good, `{"uuid": "GPU-5a1c0d6e-1111-4222-8333-444455556667", "index": 1, "model": "H100"}`, "7", "line 12: data.gpus[1]: is a number, want an object"},
		{"no UUID", good, "GPU-5a1c0d6e-1111-4222-8333-444455556667", "GPU-x", `line 12: data.gpus[1].uuid: GPU id "GPU-x" is not a UUID`},
		{"UUID a number", good, `"GPU-5a1c0d6e-1111-4222-8333-444455556667"`, "1", "line 12: data.gpus[1].uuid: is a number, want text"},
		{"invalid", good, "5556667", "5556666", "line 12: data.gpus[1].uuid: "},
		{"invalid, absent", good, `"node": "n1",`, "", "line 6: data.node: is missing"},
		{"no cluster", good, `"cluster": "lab",`, "", "line 1: cluster: is missing"},
		{"no time", good, `"2026-05-01T00:00:00Z"`, `""`, "line 4: time: is missing"},
		{"time without a zone", good, "00:00:00Z", "00:00:00", `line 4: time: time "2026-05-01T00:00:00" has no zone`},
		{"no data", good, `"data"`, `"subject": "x", "clusters"`, "clusters: is not an attribute"},
		{"data null", good, good[strings.Index(good, `"data"`):], `"data": null}`, "line 6: data: is null, want an object: the fields of NodeRegistered"},
		{"data missing", good, good[strings.Index(good, `,
  "data"`):], `}`, "line 1: data: is missing"},
		{"specversion", good, "1.0", "0.3", `line 2: specversion: "0.3", want "1.0"`},
		{"content type", good, `"cluster"`, `"datacontenttype": "text/xml", "cluster"`, "line 5: datacontenttype: "},
		{"unknown type", good, "NodeRegistered", "NodePainted", `line 3: type: "quartermaster.NodePainted.v1": unknown event type`},
		{"newer type", good, "v1", "v2", "line 3: type: "},
		{"sequence", good, `"cluster"`, `"sequence": "-1", "cluster"`, `line 5: sequence: "-1" is not a whole number`},
		{"cites", good, `"cluster"`, `"cites": "x", "cluster"`, `line 5: cites: "x" is not topic/partition@offset`},
		{"recorded", good, `"cluster"`, `"recordedtime": "1969-01-01T00:00:00Z", "cluster"`, "line 5: recordedtime: "},
		{"exponent", price, "LIMIT", "1e999999999", `line 8: data.limit: "1e999999999" is not a decimal`},
		{"exponent in text", price, "LIMIT", `"1e9"`, `line 8: data.limit: "1e9" is not a decimal`},
		{"long decimal", price, "LIMIT", strings.Repeat("9", 1<<20), "line 8: data.limit: decimal of more than 60 digits"},
		{"decimal null", price, "LIMIT", "null", "line 8: data.limit: is null, want a number"},
		{"decimal invalid", price, "LIMIT", "-1", "line 8: data.limit: "},
		{"deep", good, `"n1"`, strings.Repeat("[", 1<<20), "line 7: data.node"},
		{"wide", good, `"n1"`, `"` + strings.Repeat("x", MaxDocument) + `"`, "bytes, more than"},
		{"sample's time", string(sample), `"time":"2`, `"time":"1`, "line 1: time: "},
		{"sample's metric", string(sample), `"power_watts":`, `"power_watts":4294967295,"x":`, "is not a field of it"},
		{"sample's metric too large", string(sample), `"sm_clock_mhz":`, `"replica":4294967295,"sm_clock_mhz":429496729`, "sm_clock_mhz: is"},
	} {
		doc := strings.Replace(c.from, c.from2, c.to, 1)
		if doc == c.from {
			t.Errorf("%s: nothing was changed", c.name)
		}
		env, err := ReadCloudEvent([]byte(doc))
		var wrong *DocumentError
		if err == nil || env != nil || !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
			continue
		}
		oneLine(t, err)
	}
}

// Reading any document ends with an event that can be written and read again, or with an error of
// one line.
func FuzzReadCloudEvent(f *testing.F) {
	for _, env := range storetest.Examples() {
		env.Source, env.Incarnation, env.Sequence = "s", 7, 1
		doc, err := CloudEvent(&env)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		env, err := ReadCloudEvent(doc)
		if err != nil {
			oneLine(t, err)
			return
		}
		if !json.Valid(doc) {
			t.Fatal("read, but not JSON")
		}
		env.Source, env.Incarnation, env.Sequence, env.PreviousIncarnation, env.PreviousSequence = "s", 1, 1, 0, 0
		shown, err := CloudEvent(env)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadCloudEvent(shown)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := CloudEvent(got); err != nil || !bytes.Equal(again, shown) {
			t.Fatalf("shown\n%s\nread and shown again\n%s, %v", shown, again, err)
		}
		// Some valid events are too large for a record.
		if _, err := Encode(env); err != nil {
			oneLine(t, err)
		}
	})
}
