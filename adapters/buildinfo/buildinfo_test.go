package buildinfo_test

import (
	"encoding/json"
	"strings"
	"testing"

	"quartermaster/adapters/buildinfo"
)

func TestOf(t *testing.T) {
	v := buildinfo.Of("tool", "folds/7", "plan/5")
	if text := v.String(); !strings.HasPrefix(text, "tool ") || !strings.HasSuffix(text, "\nfolds/7\nplan/5\n") || !strings.Contains(text, "commit ") {
		t.Errorf("it says\n%s", text)
	}
	doc, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"program":"tool"`, `"version":`, `"commit":`, `"date":`, `"methods":{"folds":"folds/7","plan":"plan/5"}`} {
		if !strings.Contains(string(doc), key) {
			t.Errorf("%s is not in %s", key, doc)
		}
	}
}
