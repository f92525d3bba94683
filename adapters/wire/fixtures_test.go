package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/domain"
)

var update = flag.Bool("update", false, "write the fixtures that are missing; existing ones are frozen")

const fixtures = "../../schemas/fixtures"

// fixture is a record as schemas/fixtures/README.md describes it.
type fixture struct {
	Topic     domain.Topic    `json:"topic"`
	Partition int             `json:"partition"`
	Key       string          `json:"key"`
	Headers   []fixtureHeader `json:"headers"`
	Value     []byte          `json:"value"`
}

type fixtureHeader struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (f fixture) record() domain.Record {
	rec := domain.Record{Topic: f.Topic, Partition: f.Partition, Key: []byte(f.Key), Value: f.Value}
	for _, h := range f.Headers {
		rec.Headers = append(rec.Headers, domain.Header{Key: h.Key, Value: []byte(h.Value)})
	}
	return rec
}

func fixtureOf(rec domain.Record) fixture {
	f := fixture{Topic: rec.Topic, Partition: rec.Partition, Key: string(rec.Key), Value: rec.Value}
	for _, h := range rec.Headers {
		f.Headers = append(f.Headers, fixtureHeader{h.Key, string(h.Value)})
	}
	return f
}

// Every frozen record decodes to its original event, and encodes to the same bytes as then. Every
// type has one.
func TestFixtures(t *testing.T) {
	for _, typ := range domain.Types() {
		path := filepath.Join(fixtures, string(typ)+".v1.record.json")
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			if !*update {
				t.Errorf("%s has no fixture: go test ./adapters/wire -run Fixtures -update", typ)
				continue
			}
			freeze(t, path, typ)
		}
	}
	paths, err := filepath.Glob(filepath.Join(fixtures, "*.record.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var f fixture
		if err := json.Unmarshal(text, &f); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		rec := f.record()
		var env domain.Envelope
		if err := new(Decoder).Decode(&rec, &env); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if err := env.CheckSignature(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		want, err := os.ReadFile(goldenOf(path))
		if err != nil {
			t.Fatal(err)
		}
		if got := golden(t, &env); !bytes.Equal(got, want) {
			t.Errorf("%s says\n%s\nwant\n%s", path, got, want)
		}
		again := mustEncode(t, &env)
		if got := indented(t, fixtureOf(again)); !bytes.Equal(got, text) {
			t.Errorf("%s would now be written as\n%s", path, got)
		}
	}
}

func freeze(t *testing.T, path string, typ domain.Type) {
	env := envelope(&counter{}, domain.NewEvent(typ))
	if domain.NeedsSignature(env.Event) {
		if err := Sign(env, "ada", signer); err != nil {
			t.Fatal(err)
		}
	}
	rec := mustEncode(t, env)
	for path, text := range map[string][]byte{path: indented(t, fixtureOf(rec)), goldenOf(path): golden(t, env)} {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func goldenOf(path string) string {
	return strings.TrimSuffix(path, ".record.json") + ".event.json"
}

func golden(t *testing.T, env *domain.Envelope) []byte {
	shown, err := CloudEvent(env)
	if err != nil {
		t.Fatal(err)
	}
	return indented(t, json.RawMessage(shown))
}

func indented(t *testing.T, v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}
