package instance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"quartermaster/adapters/highs"
	"quartermaster/domain"
	"quartermaster/domain/linear"
)

// solver is shared by all tests because it starts a process.
var solver = sync.OnceValue(func() linear.Solver {
	if !highs.Available() {
		return nil
	}
	s, err := highs.Open(highs.Options{})
	if err != nil {
		return nil
	}
	return s
})

func TestWorkedInstances(t *testing.T) {
	table, err := os.ReadFile(filepath.Join("testdata", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || strings.Contains(line, "---") || strings.Contains(line, "Worked out") {
			continue
		}
		name, cost, bound, bought := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3]), strings.TrimSpace(cells[4])
		read++
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name+".json")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			in, err := Parse(path, text)
			if err != nil {
				t.Fatal(err)
			}
			a, err := Solve(t.Context(), in, solver())
			if errors.Is(err, linear.ErrUnavailable) {
				t.Skip("this build has no solver of linear programs: make highs")
			} else if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, p := range a.Purchases {
				if p.Commitment != "" {
					have = append(have, fmt.Sprintf("%d %s+%d@%d", p.Units, p.Commitment, p.Renewals, p.Epoch))
				} else {
					have = append(have, fmt.Sprintf("%d %s@%d", p.Units, p.Offer, p.Epoch))
				}
			}
			if a.Cost.String() != cost || strings.Join(have, ", ") != bought {
				t.Errorf("cost %s, bought %q; worked out %s, %q", a.Cost, strings.Join(have, ", "), cost, bought)
			}
			if a.LowerBound.LessThan(dec(bound)) { // a better proof is welcome
				t.Errorf("lower bound %s, was %s", a.LowerBound, bound)
			}
			if err := Check(t.Context(), in, a); err != nil {
				t.Error(err)
			}
		})
	}
	if read < 10 {
		t.Fatalf("%d instances", read)
	}
}

// Conflicting constraints are named, and each of them is necessary.
func TestClashNamesWhatCannotBe(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "n-plus-one.json"))
	if err != nil {
		t.Fatal(err)
	}
	in, err := Parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	day := domain.Interval{From: in.From, To: in.From + domain.Day}
	in.Budgets = []Budget{{ID: "little", Basis: Cash, Interval: day, Amount: dec("100")}, {ID: "plenty", Basis: Accrual, Interval: day, Amount: dec("1000")}}
	_, err = Solve(t.Context(), in, solver())
	var clash *Infeasible
	switch {
	case errors.Is(err, linear.ErrUnavailable):
		t.Skip("this build has no solver of linear programs: make highs")
	case !errors.As(err, &clash):
		t.Fatalf("%v", err)
	}
	paths := map[string]bool{}
	for _, c := range clash.Constraints {
		paths[c.Path] = true
	}
	if !paths["/budgets/0"] || !paths["/posture"] || paths["/budgets/1"] {
		t.Errorf("%v", clash)
	}
	without := *in
	without.Budgets = in.Budgets[1:]
	if _, err := Solve(t.Context(), &without, solver()); err != nil {
		t.Errorf("without the budget: %v", err)
	}
	without = *in
	without.Posture = nil
	if _, err := Solve(t.Context(), &without, solver()); err != nil {
		t.Errorf("without the posture: %v", err)
	}
}
