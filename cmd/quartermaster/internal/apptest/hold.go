package apptest

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"quartermaster/schemas"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
)

// Hold checks the output of a command with -o json against the published schema of its answer.
// Errors have no schema.
func Hold(t *testing.T, root *cobra.Command, args []string, out string) {
	t.Helper()
	i := slices.Index(args, "-o")
	if i < 0 || i+1 == len(args) || args[i+1] != "json" {
		return
	}
	c, _, err := root.Find(args)
	if err != nil {
		return
	}
	noun := strings.ReplaceAll(strings.TrimPrefix(c.CommandPath(), root.Name()+" "), " ", "-")
	text, err := schemas.Answers.ReadFile("answers/" + noun + ".schema.json")
	if err != nil {
		return // another test checks which commands have no schema
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatalf("schema of %s: %v", noun, err)
	}
	dec := json.NewDecoder(strings.NewReader(out))
	dec.UseNumber()
	for {
		var answer any
		if err := dec.Decode(&answer); err != nil {
			if err != io.EOF {
				t.Errorf("%v does not answer in JSON: %v\n%s", args, err, out)
			}
			return
		}
		if object, ok := answer.(map[string]any); ok && object["error"] != nil && (object["kind"] != nil || !bytes.Contains(text, []byte(`"error"`))) {
			continue
		}
		if err := schema.Validate(answer); err != nil {
			t.Errorf("%v does not answer as schema %s says: %v", args, noun, err)
		}
	}
}
