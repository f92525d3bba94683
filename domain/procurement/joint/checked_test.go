package joint_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"testing"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/joint"
)

// clone is a deep copy.
func clone(t testing.TB, s *joint.Solution) *joint.Solution {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	out := &joint.Solution{}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The checker refuses a solution that claims anything other than what it proves: another cost or
// bound, other purchases, or a proof that leaves something out.
func TestCheckerRefuses(t *testing.T) {
	solved, accepted := 0, 0
	for seed := range uint64(long.Count(30, 400)) {
		p := draw(seeded(seed), everything)
		s, err := joint.Solve(context.Background(), p, lp(t))
		var clash *joint.Infeasible
		if errors.As(err, &clash) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		solved++
		one := big.NewInt(1)
		mutations := map[string]func(*joint.Solution){
			"a lower cost":     func(s *joint.Solution) { s.Cost.Sub(s.Cost, one) },
			"a higher bound":   func(s *joint.Solution) { s.Bound.Add(s.Bound, one) },
			"no cost":          func(s *joint.Solution) { s.Cost = nil },
			"no bound":         func(s *joint.Solution) { s.Bound = nil },
			"no proof":         func(s *joint.Solution) { s.Certificate = joint.Certificate{} },
			"a part twice":     func(s *joint.Solution) { c := &s.Certificate; c.Parts = append(c.Parts, c.Parts[0]) },
			"a part missing":   func(s *joint.Solution) { s.Certificate.Parts = s.Certificate.Parts[1:] },
			"a unit too few":   func(s *joint.Solution) { s.Units = append(s.Units, 0) },
			"a negative unit":  func(s *joint.Solution) { s.Units = slices.Repeat([]int{-1}, len(s.Units)) },
			"every unit there": func(s *joint.Solution) { s.Units = slices.Repeat([]int{joint.MaxUnits + 1}, len(s.Units)) },
		}
		if len(p.Choices) == 0 {
			delete(mutations, "a negative unit")
			delete(mutations, "every unit there")
		}
		for name, mutate := range mutations {
			m := clone(t, s)
			mutate(m)
			if _, err := check.Joint(p, m); !errors.Is(err, check.ErrRejected) {
				t.Errorf("seed %d: with %s: %v", seed, name, err)
			}
		}
		// A modified proof proves another bound or none, unless the modified value has no effect.
		m := clone(t, s)
		text, err := json.Marshal(m.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		n := seeded(seed + 1000)
		for range 40 {
			at := n(0, len(text)-1)
			if text[at] < '0' || text[at] > '9' {
				continue
			}
			other := slices.Clone(text)
			if other[at] = byte('0' + n(0, 9)); other[at] == text[at] {
				continue
			}
			m := clone(t, s)
			m.Certificate = joint.Certificate{}
			if json.Unmarshal(other, &m.Certificate) != nil {
				continue
			}
			if r, err := check.Joint(p, m); err == nil {
				accepted++
				if r.Bound.Cmp(s.Bound) != 0 {
					t.Errorf("seed %d: a changed proof is accepted for %s instead of %s", seed, r.Bound, s.Bound)
				}
			} else if !errors.Is(err, check.ErrRejected) {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
	if solved < 20 {
		t.Errorf("only %d solutions were tried", solved)
	}
	t.Logf("%d solutions; %d changes of proofs change nothing that is proven", solved, accepted)
}

// FuzzChecker checks that a hostile certificate is refused or proves only true bounds: never one
// above what something costs.
func FuzzChecker(f *testing.F) {
	p := coupled()
	s, err := joint.Solve(context.Background(), p, lp(f))
	if err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(s.Certificate)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"parts":[{"blocks":[{"pools":[0,9]}],"leaves":[{"path":[{"choice":7}],"cases":[{"block":-1}]}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m := clone(t, s)
		m.Certificate = joint.Certificate{}
		if json.Unmarshal(text, &m.Certificate) != nil {
			t.Skip()
		}
		if _, err := check.Joint(p, m); err != nil && !errors.Is(err, check.ErrRejected) {
			t.Error(err)
		}
	})
}
