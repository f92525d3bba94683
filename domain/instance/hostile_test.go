package instance

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement/check"
)

// answered is a worked instance and its answer as a tree.
func answered(t testing.TB, name string) (*Instance, string) {
	t.Helper()
	path := filepath.Join("testdata", name+".json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	in, err := Parse(path, text)
	if err != nil {
		t.Fatal(err)
	}
	lp := solver()
	if lp == nil {
		t.Skip("this build has no solver of linear programs: make highs")
	}
	return in, answerTo(t, in, lp, false)
}

// Any content of an answer is either proven or refused, without a crash.
func TestHostileAnswers(t *testing.T) {
	names := []string{"quota", "owned"}
	if long.Run() {
		names = []string{"budget", "n-plus-one", "quota", "spend", "tiers", "owned"}
	}
	for _, name := range names {
		in, text := answered(t, name)
		tried, accepted := 0, 0
		var change func(x any, put func(any), path string)
		root := func() (out map[string]any) {
			dec := json.NewDecoder(strings.NewReader(text))
			dec.UseNumber()
			if err := dec.Decode(&out); err != nil {
				t.Fatal(err)
			}
			return out
		}()
		first, err := ParseAnswer("answer", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		try := func(path string) {
			data, err := json.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			a, err := ParseAnswer("answer", data)
			if err != nil {
				return
			}
			if at, err := differs(a, first); err != nil || at == "" {
				return
			}
			tried++
			if err := Check(t.Context(), in, a); err == nil {
				accepted++
				// Values that nothing else depends on: counts of work, shares of ways, and prices
				// that prove as much as before.
				if !strings.Contains(path, "/solution/") && !strings.HasSuffix(path, "/lower_bound") {
					t.Errorf("%s: with another %s it is proven", name, path)
				}
			} else if !errors.Is(err, check.ErrRejected) {
				t.Errorf("%s: %s: %v", name, path, err)
			}
		}
		change = func(x any, put func(any), path string) {
			for _, other := range []any{nil, []any{}, json.Number("-1"), json.Number("9223372036854775807"), "7"} {
				put(other)
				try(path)
			}
			put(x)
			switch y := x.(type) {
			case map[string]any:
				for k, v := range y {
					change(v, func(n any) { y[k] = n }, path+"/"+k)
				}
			case []any:
				if len(y) > 0 {
					put(append(append([]any{}, y...), y[len(y)-1], y[0]))
					try(path)
					put(x)
					change(y[0], func(n any) { y[0] = n }, path+"/0")
				}
			}
		}
		for k, v := range root {
			change(v, func(n any) { root[k] = n }, "/"+k)
		}
		t.Logf("%s: %d answers, %d of them proven as well", name, tried, accepted)
	}
}

// FuzzCheck does the same for any text.
func FuzzCheck(f *testing.F) {
	in, text := answered(f, "budget")
	f.Add(text)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAnswer("answer", []byte(text))
		if err != nil {
			t.Skip()
		}
		if err := Check(t.Context(), in, a); err != nil && !errors.Is(err, check.ErrRejected) {
			t.Error(err)
		}
	})
}
