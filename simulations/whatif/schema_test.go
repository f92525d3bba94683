package whatif

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The published schema matches the rules of files. QM_UPDATE=1 rewrites it.
func TestSchemaIsPublished(t *testing.T) {
	want, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	path := filepath.Join("..", "..", "schemas", "scenario", "v1.schema.json")
	if os.Getenv("QM_UPDATE") != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s is not what scenarios are held to; write it anew with QM_UPDATE=1 go test ./simulations/whatif -run TestSchemaIsPublished", path)
	}
}

// Every field of every kind has a place in a change.
func TestEveryFieldHasAPlace(t *testing.T) {
	for _, k := range Kinds() {
		_, fields := Fields(k)
		for _, f := range fields {
			var c Change
			if c.place(f.Name) == nil {
				t.Errorf("%s.%s has no place", k, f.Name)
			}
		}
	}
}
