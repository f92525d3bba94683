package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	instances "quartermaster/domain/instance"
	"quartermaster/schemas"
)

func compiledSchema(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("urn:test", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("urn:test")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What the published schema refuses the parser refuses, and what is wrong in shape
// both do: every value of the examples in turn left out, replaced by one of another
// kind, and joined by a key that is not known.
func TestSchemaAndParserAgree(t *testing.T) {
	schema := compiledSchema(t, schemas.Instance)
	accepts := func(text []byte) bool {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		return err == nil && schema.Validate(doc) == nil
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "domain", "instance", "testdata", "*.json"))
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	changed, refused := 0, 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// Long lists say nothing more than short ones.
		text = regexp.MustCompile(`\[(\d+, ){6,}\d+\]`).ReplaceAll(text, []byte(`[1, 2]`))
		if !accepts(text) {
			t.Fatalf("the schema refuses %s", path)
		}
		for _, change := range mutations(t, text) {
			changed++
			_, err := instances.Parse("f", change)
			switch ok := accepts(change); {
			case !ok && err == nil:
				t.Errorf("%s: the schema refuses what is parsed:\n%.400s", path, change)
			case !ok:
				refused++
			case errors.Is(err, instances.ErrSyntax):
				t.Errorf("%s: %v, and the schema takes it:\n%.400s", path, err, change)
			}
		}
	}
	t.Logf("%d documents, %d refused by both", changed, refused)
	if refused < changed/2 {
		t.Error("the schema refuses too little")
	}
}

// mutations changes every value of a document in turn.
func mutations(t *testing.T, text []byte) [][]byte {
	t.Helper()
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	emit := func() {
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	var walk func(v any)
	walk = func(v any) {
		switch x := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(x)) {
				was := x[k]
				walk(was)
				delete(x, k)
				emit()
				for _, other := range []any{nil, true, -1, 1.5, "", "-1", "1e3", "NaN", []any{}, map[string]any{}} {
					x[k] = other
					emit()
				}
				x[k] = was
			}
			x["no_such_key"] = 1
			emit()
			delete(x, "no_such_key")
		case []any:
			for _, y := range x {
				walk(y)
			}
		}
	}
	walk(doc)
	return out
}

// Answers are what their schema says, and the help of the command names every key.
func TestAnswersAreAsDocumented(t *testing.T) {
	schema := compiledSchema(t, schemas.Answer)
	path := filepath.Join("..", "..", "deploy", "demo", "instances", "single-pool.json")
	code, out := command(t, t.TempDir(), "plan", "solve", path, "-o", "json")
	if code != 0 {
		t.Fatal(out)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(doc); err != nil {
		t.Error(err)
	}
}
