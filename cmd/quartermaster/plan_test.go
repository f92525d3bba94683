package main

import (
	"bytes"
	"encoding"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/plan"
)

// jsonKeys collects the keys that a value of a type may have in JSON.
func jsonKeys(t reflect.Type, into map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		jsonKeys(t.Elem(), into)
	case reflect.Struct:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case !f.IsExported() || name == "-":
				continue
			case name != "":
				into[name] = true
			}
			jsonKeys(f.Type, into)
		}
	}
}

// Every key that a plan or the demo can answer with is in the help.
func TestHelpNamesEveryKeyOfPlans(t *testing.T) {
	for _, c := range []struct {
		answer reflect.Type
		args   []string
	}{
		{reflect.TypeFor[plan.Plan](), []string{"plan", "--help"}},
		{reflect.TypeFor[plan.Plan](), []string{"plan", "show", "--help"}},
		{reflect.TypeFor[[]planEntry](), []string{"plan", "list", "--help"}},
		{reflect.TypeFor[demoAnswer](), []string{"demo", "--help"}},
	} {
		keys := map[string]bool{}
		jsonKeys(c.answer, keys)
		if len(keys) < 9 {
			t.Fatalf("%v: only %d keys were found", c.args, len(keys))
		}
		_, help := command(t, t.TempDir(), c.args...)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(k) + `\b`).MatchString(help) {
				t.Errorf("%v does not name %q", c.args, k)
			}
		}
	}
}

func TestMoneyIsShownToCents(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0.00", "0.005": "0.01", "-0.004": "0.00", "-0.5": "-0.50", "1234567.891": "1,234,567.89", "-1234": "-1,234.00",
		"123456789012345678901234.5": "123,456,789,012,345,678,901,234.50",
	} {
		var d domain.Decimal
		if err := d.UnmarshalText([]byte(in)); err != nil {
			t.Fatal(err)
		}
		if got := money(d); got != want {
			t.Errorf("money(%s) = %q, want %q", in, got, want)
		}
	}
}

// Held commitments that a plan does not count stand in its summary.
func TestPlanNamesWhatItIgnores(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out}
	a.showPlan(&plan.Plan{Ignored: []plan.Ignored{{
		Commitment: "savings-1", Provider: "aws", Kind: domain.OfferSpendCommitment, Units: 1, Reason: "spend_commitment spans pools and is not planned yet",
	}}}, 0)
	for _, want := range []string{"ignored: 1 held commitments are in no amount of this plan", "savings-1 (spend_commitment of aws): spend_commitment spans pools"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
