package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement/check/certificate"
	"quartermaster/domain/procurement/check/question"
)

// numbers calls visit with the path of every number and amount of a document, and a setter.
func numbers(node any, path string, set func(any), visit func(path string, value any, set func(any))) {
	switch x := node.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			numbers(x[k], path+"/"+k, func(v any) { x[k] = v }, visit)
		}
	case []any:
		for i := range x {
			numbers(x[i], fmt.Sprintf("%s/%d", path, i), func(v any) { x[i] = v }, visit)
		}
	default:
		visit(path, x, set)
	}
}

// plus one: an amount as text or a number.
func more(v any) (any, bool) {
	switch x := v.(type) {
	case json.Number:
		d, err := decimal.NewFromString(x.String())
		return json.Number(d.Add(one).String()), err == nil
	case string:
		if d, err := decimal.NewFromString(x); err == nil {
			return d.Add(dec("0.01")).String(), true
		}
	case bool:
		return !x, true
	}
	return nil, false
}

// unread are parts of an answer that the question does not verify: words, prices of certificates,
// baselines, and what is best under another salvage.
func unread(path string) bool {
	for _, part := range []string{"/solution", "/worth_per_unit", "/reason", "/binding", "/baselines", "/notes", "/methods", "/instance",
		"/solver", "/stranded_at_low_demand", "/best_cost", "/interrupted", "/standing_by"} {
		if strings.Contains(path, part) {
			return true
		}
	}
	return strings.HasPrefix(path, "/end_of_horizon/") && (strings.Contains(path, "/lower_bound") || strings.Contains(path, "/purchases"))
}

// Every figure of an answer that the question decides is verified: one that is changed by a hundredth
// of the currency, or by another digit, is found.
func TestQuestionFindsChangedAnswers(t *testing.T) {
	changed, kept := 0, map[string]int{}
	check := func(_ *Instance, _ *Answer, asked, answered []byte) {
		reader := json.NewDecoder(strings.NewReader(string(answered)))
		reader.UseNumber()
		var tree any
		if err := reader.Decode(&tree); err != nil {
			t.Fatal(err)
		}
		numbers(tree, "", nil, func(path string, value any, set func(any)) {
			other, ok := more(value)
			if !ok || unread(path) {
				return
			}
			set(other)
			text, err := json.Marshal(tree)
			if err != nil {
				t.Fatal(err)
			}
			set(value)
			changed++
			if _, err := certificate.Check(t.Context(), asked, text); err == nil {
				last := path[strings.LastIndex(path, "/")+1:]
				kept[last]++
				t.Logf("%s: %v instead of %v is not found\n%s\n%s", path, other, value, asked, answered)
			} else if !errors.Is(err, question.ErrRejected) && !strings.Contains(err.Error(), "read the answer") {
				t.Fatalf("%s: %v", path, err)
			}
		})
	}
	in := workedInstance(t, "scenarios")
	a := solved(t, in)
	asked, answered := documents(t, in, a)
	check(in, a, asked, answered)
	answers(t, 3, long.Count(4, 40), check)
	t.Logf("%d changes of a figure; not found: %v", changed, kept)
	for name, n := range kept {
		t.Errorf("%s: %d changes are not found", name, n)
	}
}
