package api_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"quartermaster/cmd/quartermaster/internal/api"
)

var update = flag.Bool("update", false, "write the document of the API")

const document = "../../../../schemas/openapi/v1.json"

// TestReference compares the committed document of the API with the commands, and validates it.
func TestReference(t *testing.T) {
	made, err := api.Document()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(document, made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, made) {
		t.Error("schemas/openapi/v1.json differs from the commands: make generate")
	}
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(made)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(loader.Context); err != nil {
		t.Error(err)
	}
}
