package main

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"testing"

	instances "quartermaster/domain/instance"
	"quartermaster/schemas"
	"quartermaster/simulations/whatif"
)

func TestHelpNamesEveryKeyOfAppraisals(t *testing.T) {
	keys := map[string]bool{}
	jsonKeys(reflect.TypeFor[instances.Appraisal](), keys)
	_, help := command(t, t.TempDir(), "plan", "evaluate", "--help")
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(k) + `\b`).MatchString(help) {
			t.Errorf("it does not name %q", k)
		}
	}
}

// The schema has the fields that the parser knows: each is read, and one more is
// refused by name.
func TestSchemaOfContracts(t *testing.T) {
	var schema struct {
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(schemas.Contract, &schema); err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(schema.Properties)) {
		_, _, err := parseContract([]byte("apiVersion: quartermaster/v1\nkind: Contract\n" + key + ": {}\n"))
		if err == nil || regexp.MustCompile(`unknown field`).MatchString(err.Error()) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, _, err := parseContract([]byte("apiVersion: quartermaster/v1\nkind: Contract\nprice: 3\n")); err == nil || !regexp.MustCompile(`3:1: price: unknown field`).MatchString(err.Error()) {
		t.Errorf("a field that is not in the schema: %v", err)
	}
	for _, key := range schema.Required {
		_, ok := schema.Properties[key]
		if !ok {
			t.Errorf("%s is required and not described", key)
		}
	}
}

// Whatever a file holds, it is a contract or an error that says where.
func FuzzContract(f *testing.F) {
	f.Add("apiVersion: quartermaster/v1\nkind: Contract\nname: x\npool: p\nterm_epochs: 12\nhourly: 3.5\nguarantees_capacity: true\ntiers: [{units: 2, hourly: 3}]\nramp: [{epoch: 0, permille: 500}]\n")
	f.Add("a: &a [*a]")
	f.Add("hourly: .nan\nfrom: 2026-13\n")
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		doc, c, err := parseContract([]byte(text))
		var faults whatif.Errors
		if err != nil && !errors.As(err, &faults) {
			t.Fatalf("not an error with a place: %v", err)
		}
		if err == nil && (doc == nil || c.Term < 1 || c.Hourly.IsNegative() || c.Name == "") {
			t.Fatalf("read as %+v", c)
		}
	})
}
