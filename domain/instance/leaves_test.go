package instance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain/linear"
	"quartermaster/domain/long"
)

// Every leaf of an answer is proven or listed as not proven: if it is changed a little or a lot,
// the answer is refused, or NotProven lists the leaf, or it is inside a certificate that still
// proves the same.
func TestEveryLeafOfAnAnswerIsProvenOrNamed(t *testing.T) {
	within := regexp.MustCompile(`^/certificate/[0-9]+/solution/(certificate|ways)(/|$)`)
	names := []string{"budget"}
	if long.Run() {
		names = append(names, "buffer", "owned", "deferrable", "lots", "n-plus-one", "price-path", "quota", "ramp", "renewal", "scenarios", "spend", "overflow", "substitute", "tiers")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			in := workedInstance(t, name)
			in.Demands[0].Past = hoursAt(200, 2)
			text := answerTo(t, in, linearOrSkip(t), true)
			whole, err := ParseAnswer("answer", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if err := Check(t.Context(), in, whole); err != nil {
				t.Fatal(err)
			}
			named := whole.NotProven()
			var root any
			dec := json.NewDecoder(strings.NewReader(text))
			dec.UseNumber()
			if err := dec.Decode(&root); err != nil {
				t.Fatal(err)
			}
			leaves, refused, other := 0, 0, 0
			try := func(path string, was, now any) {
				data, err := json.Marshal(root)
				if err != nil {
					t.Fatal(err)
				}
				a, err := ParseAnswer("answer", data)
				if err == nil { // an omitted zero is read as zero
					if at, err := differs(a, whole); err != nil || at == "" {
						return
					}
				}
				leaves++
				if err != nil || Check(t.Context(), in, a) != nil {
					refused++
					return
				}
				switch {
				case path == "/baselines" && now == "nothing": // then there is no claim to check
				case slices.ContainsFunc(named, func(at string) bool { return path == at || strings.HasPrefix(path, at+"/") }):
				case within.MatchString(path):
					other++
				default:
					t.Errorf("%s: %v instead of %v is taken for proven", path, now, was)
				}
			}
			var walk func(path string, x any, put func(any))
			walk = func(path string, x any, put func(any)) {
				switch y := x.(type) {
				case map[string]any:
					for k, v := range y {
						walk(path+"/"+escape(k), v, func(n any) { y[k] = n })
						delete(y, k)
						try(path+"/"+escape(k), v, "nothing")
						y[k] = v
					}
				case []any:
					for i, v := range y {
						walk(fmt.Sprintf("%s/%d", path, i), v, func(n any) { y[i] = n })
					}
					if len(y) > 0 {
						put(y[:len(y)-1])
						try(path, y, "one less")
						put(append(slices.Clone(y), y[0]))
						try(path, y, "one more")
						put(x)
					}
				default:
					for _, now := range others(x) {
						put(now)
						try(path, x, now)
					}
					put(x)
				}
			}
			walk("", root, func(any) {})
			t.Logf("%d changes, %d refused, %d other proofs of the same", leaves, refused, other)
			if refused < leaves*3/4 {
				t.Error("too little is refused")
			}
		})
	}
}

// others are values other than the leaf's: near it, and far away.
func others(x any) []any {
	switch y := x.(type) {
	case json.Number:
		out := []any{json.Number("7919")}
		if n, err := y.Int64(); err == nil {
			out = append(out, json.Number(fmt.Sprint(n+1)), json.Number(fmt.Sprint(n-1)))
		}
		return out
	case bool:
		return []any{!y}
	case string:
		if decimals.MatchString(y) {
			d := dec(y)
			return []any{d.Add(dec("0.000001")).String(), d.Sub(one).String(), d.Mul(dec("1.5")).Add(one).String()}
		}
		return []any{y + "x", "", strings.Replace(y, "7", "8", 1) + " "}
	}
	return []any{json.Number("1"), "x"}
}

// answerTo is an answer with all optional parts, and baselines if requested.
func answerTo(t testing.TB, in *Instance, lp linear.Solver, baselines bool) string {
	t.Helper()
	a, err := Solve(t.Context(), in, lp)
	if err != nil {
		t.Fatal(err)
	}
	if err := EndOfHorizon(t.Context(), in, a, lp, 0); err != nil {
		t.Fatal(err)
	}
	if baselines {
		if err := Compare(t.Context(), in, a); err != nil {
			t.Fatal(err)
		}
	}
	out, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
