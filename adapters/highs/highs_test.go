package highs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"pgregory.net/rapid"

	"quartermaster/domain/linear"
	"quartermaster/domain/long"
)

var inf = math.Inf(1)

func open(t testing.TB) *Solver {
	t.Helper()
	if !Available() {
		t.Skip("this build has no solver of linear programs: run make highs")
	}
	s, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func solve(t interface {
	Helper()
	Fatal(...any)
}, s *Solver, p *linear.Program, l linear.Limits) *linear.Solution {
	t.Helper()
	got, err := s.Solve(context.Background(), p, l)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// program makes a program from a slice for each row: its two bounds, then its coefficients.
func program(cost, lower, upper []float64, rows ...[]float64) *linear.Program {
	var b linear.Builder
	for j := range cost {
		b.Column(cost[j], lower[j], upper[j])
	}
	for _, r := range rows {
		i := b.Row(r[0], r[1])
		for j, v := range r[2:] {
			if v != 0 {
				b.Add(i, j, v)
			}
		}
	}
	return b.Program()
}

func whole(p *linear.Program) *linear.Program {
	p.Whole = make([]bool, len(p.Cost))
	for j := range p.Whole {
		p.Whole[j] = true
	}
	return p
}

func TestKnown(t *testing.T) {
	s := open(t)
	zero, free := []float64{0, 0}, []float64{inf, inf}
	for _, c := range []struct {
		name      string
		p         *linear.Program
		l         linear.Limits
		status    linear.Status
		objective float64
		x, prices []float64 // nil: not checked
	}{
		{name: "a row above and one below", p: program([]float64{2, 3}, zero, free, []float64{4, inf, 1, 1}, []float64{-inf, 3, 1, 0}),
			status: linear.Optimal, objective: 9, x: []float64{3, 1}, prices: []float64{3, -1}},
		{name: "an equation", p: program([]float64{1, 2}, zero, free, []float64{5, 5, 1, 1}, []float64{-inf, 2, 1, 0}),
			status: linear.Optimal, objective: 8, x: []float64{2, 3}, prices: []float64{2, -1}},
		{name: "bounds alone", p: program([]float64{1, -1}, []float64{-2, 0}, []float64{5, 7}),
			status: linear.Optimal, objective: -9, x: []float64{-2, 7}, prices: []float64{}},
		{name: "a free variable", p: program([]float64{1}, []float64{-inf}, []float64{inf}, []float64{-3, 8, 1}),
			status: linear.Optimal, objective: -3, x: []float64{-3}, prices: []float64{1}},
		{name: "a row without entries", p: program([]float64{1}, []float64{1}, []float64{2}, []float64{-1, 1, 0}),
			status: linear.Optimal, objective: 1, x: []float64{1}, prices: []float64{0}},
		{name: "degenerate", p: program([]float64{-1, -1}, zero, free, []float64{-inf, 1, 1, 0}, []float64{-inf, 1, 0, 1}, []float64{-inf, 2, 1, 1}, []float64{-inf, 4, 2, 2}),
			status: linear.Optimal, objective: -2, x: []float64{1, 1}},
		{name: "infeasible", p: program([]float64{1, 1}, zero, free, []float64{4, inf, 1, 1}, []float64{-inf, 3, 1, 1}),
			status: linear.Infeasible, objective: inf},
		{name: "infeasible by an empty row", p: program([]float64{1}, []float64{0}, []float64{1}, []float64{1, 2, 0}),
			status: linear.Infeasible, objective: inf},
		{name: "unbounded", p: program([]float64{-1, 1}, zero, free, []float64{-inf, 3, -1, 1}),
			status: linear.Unbounded, objective: -inf},
		// HiGHS 1.15.1 calls it infeasible with presolve.
		{name: "unbounded, of which 0 is a point", p: program([]float64{0, 0, -1}, []float64{0, 0, 0}, []float64{inf, inf, inf}, []float64{-inf, 7, 4, 1, -3}, []float64{-inf, 2, -3, -4, 1}),
			status: linear.Unbounded, objective: -inf},
		{name: "whole, unbounded, of which 0 is a point", p: whole(program([]float64{0, 0, -1}, []float64{0, 0, 0}, []float64{inf, inf, inf}, []float64{-inf, 7, 4, 1, -3}, []float64{-inf, 2, -3, -4, 1})),
			status: linear.Unbounded, objective: -inf},
		{name: "whole", p: whole(program([]float64{-5, -4}, zero, free, []float64{-inf, 24, 6, 4}, []float64{-inf, 6, 1, 2})),
			status: linear.Optimal, objective: -20, x: []float64{4, 0}},
		{name: "whole and infeasible", p: whole(program([]float64{1}, []float64{0}, []float64{9}, []float64{1.2, 1.8, 1})),
			status: linear.Infeasible, objective: inf},
		{name: "whole and unbounded", p: whole(program([]float64{-1}, []float64{0}, []float64{inf}, []float64{-inf, 3, -1})),
			status: linear.Unbounded, objective: -inf},
		{name: "no columns", p: program(nil, nil, nil, []float64{0, 1}),
			status: linear.Optimal, x: []float64{}, prices: []float64{0}},
		{name: "no columns and infeasible", p: program(nil, nil, nil, []float64{1, 1}),
			status: linear.Infeasible, objective: inf},
		{name: "limited", p: overflow(24, 1), l: linear.Limits{Iterations: 5}, status: linear.Limited, objective: inf},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := solve(t, s, c.p, c.l)
			if got.Status != c.status || got.Objective != c.objective && !near(got.Objective, c.objective) {
				t.Fatalf("%s at %g, want %s at %g", got.Status, got.Objective, c.status, c.objective)
			}
			if c.x != nil && !allNear(got.X, c.x) {
				t.Errorf("x is %v, want %v", got.X, c.x)
			}
			if c.prices != nil && !allNear(got.Prices, c.prices) {
				t.Errorf("prices are %v, want %v", got.Prices, c.prices)
			}
			if (got.X != nil) != (c.status == linear.Optimal) {
				t.Errorf("%s, and x is %v", c.status, got.X)
			}
			if c.p.Whole != nil && (got.Prices != nil || got.Basis != nil) {
				t.Errorf("whole variables have prices %v and a basis", got.Prices)
			}
			want := map[linear.Status]float64{linear.Optimal: got.Objective, linear.Infeasible: inf, linear.Unbounded: -inf, linear.Limited: -inf}[c.status]
			if got.Bound != want && !near(got.Bound, want) {
				t.Errorf("bound %g, want %g", got.Bound, want)
			}
		})
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*(1+math.Abs(a)+math.Abs(b)) }

func allNear(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !near(a[i], b[i]) {
			return false
		}
	}
	return true
}

// Invalid programs and limits are refused before a child sees them.
func TestRefused(t *testing.T) {
	s := open(t)
	bad := program([]float64{1}, []float64{0}, []float64{1})
	bad.Cost[0] = math.NaN()
	if _, err := s.Solve(t.Context(), bad, linear.Limits{}); err == nil || !strings.Contains(err.Error(), "column 0 costs NaN") {
		t.Errorf("a cost of NaN: %v", err)
	}
	good := program([]float64{1}, []float64{0}, []float64{1})
	for _, l := range []linear.Limits{{Iterations: -1}, {Nodes: -1}, {Checks: -1}, {Gap: -1}, {Gap: math.NaN()}, {Gap: inf}} {
		if _, err := s.Solve(t.Context(), good, l); err == nil {
			t.Errorf("limits %+v were taken", l)
		}
	}
	// The solver refuses values beyond its arithmetic, which Check does not know.
	huge := program([]float64{1}, []float64{0}, []float64{1}, []float64{0, 1, 1e16})
	if _, err := s.Solve(t.Context(), huge, linear.Limits{}); err == nil {
		t.Error("an entry of 1e16 was taken")
	}
	if got := solve(t, s, good, linear.Limits{}); got.Status != linear.Optimal {
		t.Errorf("after a refusal: %+v", got)
	}
	if n := len(s.Starts()); n != 1 {
		t.Errorf("%d children for programs of which none ended one", n)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Solve(ended, good, linear.Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("under an ended context: %v", err)
	}
	s.Close()
	if _, err := s.Solve(t.Context(), good, linear.Limits{}); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// drawProgram draws a program with small numbers, so that ties and degenerate vertices are
// common. All three statuses occur.
func drawProgram(t *rapid.T, whole bool) *linear.Program {
	var b linear.Builder
	columns, rows := rapid.IntRange(1, 6).Draw(t, "columns"), rapid.IntRange(0, 6).Draw(t, "rows")
	bound := func(name string, least int) (lower, upper float64) {
		lower = float64(rapid.IntRange(least, 4).Draw(t, name+" lower"))
		upper = lower + float64(rapid.IntRange(0, 6).Draw(t, name+" width"))
		switch rapid.IntRange(0, 5).Draw(t, name+" kind") {
		case 0:
			return -inf, upper
		case 1, 2:
			return lower, inf
		case 3:
			if !whole {
				return -inf, inf
			}
		}
		return lower, upper
	}
	for j := range columns {
		l, u := bound(fmt.Sprint("column ", j), -2)
		cost := float64(rapid.IntRange(-3, 6).Draw(t, "cost"))
		if whole && rapid.IntRange(0, 3).Draw(t, "whole") > 0 {
			b.WholeColumn(cost, max(l, -5), min(u, 12))
		} else {
			b.Column(cost, l, u)
		}
	}
	for i := range rows {
		b.Row(bound(fmt.Sprint("row ", i), -8))
		for j := range columns {
			if v := rapid.IntRange(-4, 4).Draw(t, "entry"); v != 0 {
				b.Add(i, j, float64(v))
			}
		}
	}
	return b.Program()
}

func activities(p *linear.Program, x []float64) []float64 {
	out := make([]float64, len(p.RowLower))
	for j := range p.Cost {
		for k := p.Start[j]; k < p.Start[j+1]; k++ {
			out[p.Index[k]] += p.Value[k] * x[j]
		}
	}
	return out
}

// checkPoint checks that x is feasible and has the stated objective.
func checkPoint(t interface{ Fatalf(string, ...any) }, p *linear.Program, s *linear.Solution) {
	const tolerance = 2e-6 // HiGHS tolerates 1e-6 with integer variables, 1e-7 without
	cost := 0.0
	for j, x := range s.X {
		cost += p.Cost[j] * x
		if x < p.Lower[j]-tolerance || x > p.Upper[j]+tolerance {
			t.Fatalf("x%d is %g, outside %g and %g", j, x, p.Lower[j], p.Upper[j])
		}
		if p.Whole != nil && p.Whole[j] && math.Abs(x-math.Round(x)) > tolerance {
			t.Fatalf("x%d is %g, and not whole", j, x)
		}
	}
	for i, a := range activities(p, s.X) {
		if a < p.RowLower[i]-tolerance || a > p.RowUpper[i]+tolerance {
			t.Fatalf("row %d is %g, outside %g and %g", i, a, p.RowLower[i], p.RowUpper[i])
		}
	}
	if !near(cost, s.Objective) {
		t.Fatalf("x costs %g, not %g", cost, s.Objective)
	}
}

// dual returns the lower bound that prices prove: the value of the rows' bounds, plus the reduced
// costs of the columns at the better of their bounds.
func dual(p *linear.Program, prices []float64) float64 {
	worth := func(price, lower, upper float64) float64 {
		switch {
		case math.Abs(price) < 1e-9:
			return 0
		case price > 0:
			return price * lower
		}
		return price * upper
	}
	sum := 0.0
	for i, y := range prices {
		sum += worth(y, p.RowLower[i], p.RowUpper[i])
	}
	for j, c := range p.Cost {
		for k := p.Start[j]; k < p.Start[j+1]; k++ {
			c -= prices[p.Index[k]] * p.Value[k]
		}
		sum += worth(c, p.Lower[j], p.Upper[j])
	}
	return sum
}

// The prices prove every optimum, whatever basis the solve began with. GLPK agrees on the status
// and the objective.
func TestLinearProperty(t *testing.T) {
	s := open(t)
	glpk := newGLPK(t)
	seen := map[linear.Status]int{}
	long.Check(t, 50, 1000, func(t *rapid.T) {
		p := drawProgram(t, false)
		got := solve(t, s, p, linear.Limits{})
		seen[got.Status]++
		if got.Status == linear.Optimal {
			checkPoint(t, p, got)
			if d := dual(p, got.Prices); !near(d, got.Objective) {
				t.Fatalf("prices %v prove %g, not %g", got.Prices, d, got.Objective)
			}
		}
		glpk.compare(t, p, got)

		// A basis is a hint: the right one leaves nothing to do, and any other gives the same
		// answer.
		if got.Basis != nil {
			p.Warm = got.Basis
			if again := solve(t, s, p, linear.Limits{}); again.Status != got.Status || !near(again.Objective, got.Objective) || again.Iterations > 0 && got.Status == linear.Optimal {
				t.Fatalf("from its own basis: %s at %g in %d iterations, was %s at %g", again.Status, again.Objective, again.Iterations, got.Status, got.Objective)
			}
		}
		code := rapid.SliceOfN(rapid.Int8Range(-1, 6), 0, len(p.Cost))
		p.Warm = &linear.Basis{Columns: code.Draw(t, "basis of columns"), Rows: rapid.SliceOfN(rapid.Int8Range(-1, 6), 0, len(p.RowLower)).Draw(t, "basis of rows")}
		again := solve(t, s, p, linear.Limits{})
		if again.Status != got.Status || got.Status == linear.Optimal && !near(again.Objective, got.Objective) {
			t.Fatalf("from a strange basis: %s at %g, was %s at %g", again.Status, again.Objective, got.Status, got.Objective)
		}
	})
	t.Logf("%v", seen)
	if !t.Failed() && (seen[linear.Optimal] == 0 || seen[linear.Infeasible] == 0 || seen[linear.Unbounded] == 0) {
		t.Error("a status did not occur")
	}
}

// With integer variables GLPK finds no better solution.
func TestWholeProperty(t *testing.T) {
	s := open(t)
	glpk := newGLPK(t)
	long.Check(t, 50, 1000, func(t *rapid.T) {
		p := drawProgram(t, true)
		got := solve(t, s, p, linear.Limits{Gap: 1e-9})
		if got.Status == linear.Optimal {
			checkPoint(t, p, got)
			// HiGHS stops when the bound leaves no other multiple of the step.
			if got.Bound > got.Objective+1e-6 || !near(got.Bound, got.Objective) && got.Bound <= got.Objective-step(p)+1e-6 {
				t.Fatalf("optimal at %g, but the bound is %g", got.Objective, got.Bound)
			}
		}
		glpk.compare(t, p, got)
	})
}

// step is what all objective values of a program with whole costs are multiples of; 0 if there is no such step.
func step(p *linear.Program) float64 {
	of := 0.0
	for j, cost := range p.Cost {
		if cost == 0 {
			continue
		}
		if p.Whole == nil || !p.Whole[j] {
			return 0
		}
		for a, b := of, math.Abs(cost); ; a, b = b, math.Mod(a, b) {
			if b == 0 {
				of = a
				break
			}
		}
	}
	return of
}

// For a few variables, all integer, brute force tries every point.
func TestBruteForce(t *testing.T) {
	s := open(t)
	seen := map[linear.Status]int{}
	long.Check(t, 50, 1000, func(t *rapid.T) {
		p := drawProgram(t, false)
		n := min(len(p.Cost), 4)
		for j := range p.Cost {
			if math.IsInf(p.Lower[j], -1) {
				p.Lower[j] = min(p.Upper[j], 4) - 4
			}
			p.Upper[j] = min(p.Upper[j], p.Lower[j]+5)
			if j >= n {
				p.Upper[j] = p.Lower[j]
			}
		}
		best, x := inf, make([]float64, len(p.Cost))
		copy(x, p.Lower)
		for {
			cost, fits := 0.0, true
			for j := range x {
				cost += p.Cost[j] * x[j]
			}
			for i, a := range activities(p, x) {
				fits = fits && p.RowLower[i] <= a && a <= p.RowUpper[i]
			}
			if fits {
				best = min(best, cost)
			}
			j := 0
			for ; j < n && x[j] == p.Upper[j]; j++ {
				x[j] = p.Lower[j]
			}
			if j == n {
				break
			}
			x[j]++
		}
		got := solve(t, s, whole(p), linear.Limits{Gap: 1e-9})
		seen[got.Status]++
		if got.Status == linear.Optimal {
			checkPoint(t, p, got)
		}
		if (got.Status == linear.Optimal) == math.IsInf(best, 1) || got.Status == linear.Optimal && !near(got.Objective, best) {
			t.Fatalf("%s at %g, but the best point costs %g", got.Status, got.Objective, best)
		}
	})
	t.Logf("%v", seen)
	if !t.Failed() && (seen[linear.Optimal] == 0 || seen[linear.Infeasible] == 0) {
		t.Error("a status did not occur")
	}
}

// glpk is an independent solver; without it nothing is compared.
type glpk struct {
	path, dir string
}

func newGLPK(t *testing.T) *glpk {
	path, err := exec.LookPath("glpsol")
	if err != nil {
		t.Log("glpsol, the linear solver to compare with, is not installed (Debian: glpk-utils)")
		return nil
	}
	return &glpk{path, t.TempDir()}
}

var glpkObjective = regexp.MustCompile(`(?m)^Objective: .* = (\S+) \(MINimum\)`)

func (g *glpk) compare(t *rapid.T, p *linear.Program, got *linear.Solution) {
	if g == nil {
		return
	}
	in, out := filepath.Join(g.dir, "p.mps"), filepath.Join(g.dir, "solution")
	if err := os.WriteFile(in, freeMPS(p), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Remove(out)
	// Without presolve it reports the status of every program.
	said, err := exec.Command(g.path, "--freemps", in, "--nopresol", "--output", out).CombinedOutput()
	if p.Whole != nil {
		// With integer variables GLPK 5.0 sometimes aborts, calls feasible programs
		// infeasible, or rounds 3x between 1 and 2 to x = 1 and itself reports that this is
		// infeasible. So only an optimum that it confirms is evidence.
		b, _ := os.ReadFile(out)
		if err != nil || !bytes.Contains(b, []byte("INTEGER OPTIMAL")) || bytes.Contains(b, []byte("SOLUTION IS INFEASIBLE")) {
			return
		}
	}
	if err != nil {
		t.Fatalf("glpsol: %v\n%s", err, said)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	text := string(said) + string(b)
	var want linear.Status
	switch {
	case strings.Contains(text, "NO PRIMAL FEASIBLE SOLUTION"), strings.Contains(text, "Status:     INTEGER EMPTY"),
		strings.Contains(text, "NO FEASIBLE SOLUTION"), strings.Contains(text, "NO INTEGER FEASIBLE"):
		want = linear.Infeasible
	case strings.Contains(text, "UNBOUNDED SOLUTION"), strings.Contains(text, "NO DUAL FEASIBLE"), strings.Contains(text, "UNBOUNDED PRIMAL"):
		want = linear.Unbounded
	case strings.Contains(text, "Status:     OPTIMAL"), strings.Contains(text, "Status:     INTEGER OPTIMAL"):
		want = linear.Optimal
	default:
		t.Fatalf("glpsol said nothing that is known:\n%s", text)
	}
	if want != got.Status {
		t.Fatalf("%s, but GLPK says %s\n%s", got.Status, want, text)
	}
	if m := glpkObjective.FindStringSubmatch(text); want == linear.Optimal {
		if m == nil {
			t.Fatalf("glpsol named no objective:\n%s", text)
		}
		// It prints ten digits.
		if v, err := strconv.ParseFloat(m[1], 64); err != nil || !near(v, got.Objective) {
			t.Fatalf("objective %g, but GLPK says %s", got.Objective, m[1])
		}
	}
}

// The same program gives the same bytes after other programs, in another process and on another
// machine. The digest is from the first machine that solved it.
func TestSameBytes(t *testing.T) {
	s := open(t)
	p := overflow(48, 7)
	mixed := overflow(3, 7)
	mixed.Whole = make([]bool, len(mixed.Cost))
	for j := range 4 {
		mixed.Whole[j] = true
	}
	digest := func(s *Solver) string {
		b := appendSolution(nil, solve(t, s, p, linear.Limits{}))
		b = appendSolution(b, solve(t, s, mixed, linear.Limits{}))
		b = appendSolution(b, solve(t, s, p, linear.Limits{Iterations: 100}))
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:])
	}
	const want = "2e7a4a9589e9d24b95c27cfaff45015e7842ded67da934d25df373974065f4f9"
	for range 2 {
		if got := digest(s); got != want {
			t.Errorf("solutions have digest %s, want %s", got, want)
		}
		solve(t, s, overflow(24, 3), linear.Limits{})
	}
	if got := digest(open(t)); got != want {
		t.Errorf("in another process solutions have digest %s, want %s", got, want)
	}
}

// An extended program starts from the basis of the previous one.
func TestWarm(t *testing.T) {
	s := open(t)
	p := overflow(168, 1)
	first := solve(t, s, p, linear.Limits{})
	// Forty hours get a row that cuts off their solution: it halves the capacity that serves
	// elsewhere.
	b := new(linear.Builder)
	for j := range p.Cost {
		b.Column(p.Cost[j], p.Lower[j], p.Upper[j])
		for k := p.Start[j]; k < p.Start[j+1]; k++ {
			b.Add(p.Index[k], j, p.Value[k])
		}
	}
	for i := range p.RowLower {
		b.Row(p.RowLower[i], p.RowUpper[i])
	}
	for h := range 40 {
		row := b.Row(-inf, 0)
		for g := range 4 {
			b.Add(row, 4+24*h+6*g+(g+1)%4, 1)
		}
	}
	b.Column(1, 0, inf)
	longer := b.Program()
	cold := solve(t, s, longer, linear.Limits{})
	longer.Warm = first.Basis
	warm := solve(t, s, longer, linear.Limits{})
	if cold.Status != linear.Optimal || warm.Status != linear.Optimal || !near(cold.Objective, warm.Objective) {
		t.Errorf("cold %s at %g, warm %s at %g", cold.Status, cold.Objective, warm.Status, warm.Objective)
	}
	if warm.Iterations > cold.Iterations/4 {
		t.Errorf("%d iterations from a basis, %d without", warm.Iterations, cold.Iterations)
	}
}

// Branch and bound respects its limits and then still returns a solution and a bound.
func TestLimits(t *testing.T) {
	s := open(t)
	p := whole(overflow(8, 1))
	for _, l := range []linear.Limits{{Nodes: 1, Checks: 2000}, {Checks: 2000}, {Gap: 0.5}} {
		got := solve(t, s, p, l)
		if l.Gap > 0 && got.Status != linear.Optimal || l.Gap == 0 && got.Status != linear.Limited {
			t.Errorf("%+v: %s", l, got.Status)
		}
		if got.Bound > got.Objective || math.IsInf(got.Bound, 0) || l.Nodes > 0 && got.Nodes > l.Nodes {
			t.Errorf("%+v: objective %g, bound %g, %d nodes", l, got.Objective, got.Bound, got.Nodes)
		}
		if got.X != nil {
			checkPoint(t, p, got)
		}
	}
}

// busy waits until the child works on a program, which its use of processor time shows.
func busy(t testing.TB, pid int) {
	t.Helper()
	used := func() int {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Skipf("what a process does cannot be seen here: %v", err)
		}
		w := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+2:]))
		n, err := strconv.Atoi(w[11])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	begin := used()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if used() > begin+30 {
			return
		}
	}
}

func (s *Solver) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.cmd.Process.Pid
}

// endless is a program that takes minutes.
func endless() *linear.Program { return whole(overflow(100, 1)) }

// A running solve and its child end with the context, with a kill from outside, or with Close.
func TestEnded(t *testing.T) {
	for _, c := range []struct {
		name  string
		end   func(s *Solver, cancel func())
		want  error
		after bool // another program can be solved afterwards
	}{
		{"context", func(_ *Solver, cancel func()) { cancel() }, context.Canceled, true},
		{"killed", func(s *Solver, _ func()) { s.child.kill() }, nil, true},
		{"close", func(s *Solver, _ func()) { s.Close() }, errClosed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			if err := s.Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
			pid := s.pid()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := s.Solve(ctx, endless(), linear.Limits{})
				done <- err
			}()
			busy(t, pid)
			// Meanwhile another program waits for its turn, until its context ends.
			short, stop := context.WithCancel(context.Background())
			waiting := make(chan error, 1)
			go func() {
				_, err := s.Solve(short, overflow(1, 1), linear.Limits{})
				waiting <- err
			}()
			stop()
			if err := <-waiting; !errors.Is(err, context.Canceled) {
				t.Errorf("one who waited: %v", err)
			}
			c.end(s, cancel)
			err := <-done
			if c.want != nil && !errors.Is(err, c.want) || c.want == nil && (err == nil || !strings.Contains(err.Error(), "failed; the next program starts another")) {
				t.Errorf("ended: %v", err)
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				t.Errorf("child %d is still there", pid)
			}
			got, err := s.Solve(context.Background(), overflow(1, 1), linear.Limits{})
			if c.after && (err != nil || got.Status != linear.Optimal) || !c.after && !errors.Is(err, errClosed) {
				t.Errorf("the next program: %+v, %v", got, err)
			}
		})
	}
}

// Close leaves no idle child behind, not even a zombie.
func TestCloseIdle(t *testing.T) {
	s := open(t)
	solve(t, s, overflow(1, 1), linear.Limits{})
	pid := s.pid()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Errorf("child %d is still there", pid)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if _, err := s.Solve(t.Context(), overflow(1, 1), linear.Limits{}); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A kill of the idle child does not affect the next program.
func TestIdleChildKilled(t *testing.T) {
	s := open(t)
	want := solve(t, s, overflow(1, 1), linear.Limits{})
	pid := s.pid()
	s.child.kill()
	<-s.child.ended
	if got := solve(t, s, overflow(1, 1), linear.Limits{}); got.Objective != want.Objective {
		t.Errorf("another child came to %g, not %g", got.Objective, want.Objective)
	}
	if s.pid() == pid || len(s.Starts()) != 2 {
		t.Errorf("child %d after child %d, and %d starts", s.pid(), pid, len(s.Starts()))
	}
}

// A child ends when its parent is killed during a solve.
func TestOrphan(t *testing.T) {
	if os.Getenv("QM_TEST_PARENT") == "1" {
		s := open(t)
		if err := s.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("child %d\n", s.pid())
		_, err := s.Solve(context.Background(), endless(), linear.Limits{})
		t.Fatal(err)
	}
	open(t)
	parent := exec.Command(os.Args[0], "-test.run=^TestOrphan$")
	parent.Env = append(os.Environ(), "QM_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer parent.Wait()
	defer parent.Process.Kill()
	var pid int
	if _, err := fmt.Fscanf(out, "child %d\n", &pid); err != nil {
		t.Fatal(err)
	}
	busy(t, pid)
	parent.Process.Kill()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(b, []byte(") Z ")) {
			return
		}
	}
}

// Input that is not a frame ends the child with an error message. A frame without a valid program
// does not end it.
func TestHostileFrames(t *testing.T) {
	s := open(t)
	good := overflow(1, 1)
	framed := func(body []byte) []byte { return append(appendHeader(nil, kindProgram, len(body)), body...) }
	encoded := appendProgram(nil, good, linear.Limits{})
	wild := bytes.Clone(encoded)
	r, err := parseProgram(wild)
	if err != nil {
		t.Fatal(err)
	}
	for i := r.index; i < r.index+4*r.entries; i++ {
		wild[i] = 0x7f
	}
	starts := bytes.Clone(encoded)
	for i := r.start; i < r.index; i++ {
		starts[i] = 0xf0
	}
	for _, c := range []struct {
		name string
		sent []byte
		want string
		ends bool
	}{
		{"garbage", []byte("POST / HTTP/1.1\r\nHost: x\r\n\r\n"), "broken frame", true},
		{"too long", appendHeader(nil, kindProgram, math.MaxInt64), "broken frame", true},
		{"another kind", appendHeader(nil, kindHello, 0), "of kind 1", true},
		{"no program", framed([]byte("short")), "broken frame", false},
		{"sizes that lie", framed(append(bytes.Repeat([]byte{0xff}, 12), make([]byte, 100)...)), "broken frame", false},
		{"rows out of range", framed(wild), "refused", false},
		{"starts out of range", framed(starts), "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := s.with(t.Context(), func(ch *child) error {
				if _, err := ch.in.Write(c.sent); err != nil {
					return err
				}
				kind, body, err := readFrame(ch.out, nil, maxAnswer)
				if err != nil {
					return err
				}
				if kind != kindFailure {
					return fmt.Errorf("an answer of kind %d", kind)
				}
				return refused(body)
			})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "starts another") != c.ends {
				t.Errorf("%v", err)
			}
			if got := solve(t, s, good, linear.Limits{}); got.Status != linear.Optimal {
				t.Errorf("the next program: %+v", got)
			}
		})
	}
}

// A program that does not fit into the module's memory is refused, and the next one is solved.
func TestMemory(t *testing.T) {
	s := open(t)
	if err := s.Warm(t.Context()); err != nil { // compiles the module
		t.Fatal(err)
	}
	code := openCache(s.options.CacheDir)
	m, err := newMachine(t.Context(), code.cache)
	code.seal()
	if err != nil {
		t.Fatal(err)
	}
	m.limit = 32 << 20
	for _, c := range []struct {
		hours int
		fits  bool
	}{{1, true}, {2000, false}, {1, true}} {
		r, err := parseProgram(appendProgram(nil, overflow(c.hours, 1), linear.Limits{}))
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.solve(t.Context(), r)
		if c.fits && err != nil || !c.fits && (err == nil || !strings.Contains(err.Error(), "memory")) {
			t.Errorf("%d hours: %+v, %v", c.hours, got, err)
		}
	}
}

// The names of the module's functions equal those in its package.
func TestNames(t *testing.T) {
	script, err := os.ReadFile("testdata/highs.js")
	if err != nil {
		t.Skip("the package's script is not here: run make highs")
	}
	has := func(pattern string) {
		if !regexp.MustCompile(pattern).Match(script) {
			t.Errorf("the script has no %s", pattern)
		}
	}
	for name, short := range exports {
		switch name {
		case "__wasm_call_ctors": // called, but not in the list
			has(`FS\.init\(\);TTY\.init\(\);wasmExports\["` + short + `"\]\(\)`)
		default:
			has(`\b_` + name + `=Module\["_` + name + `"\]=wasmExports\["` + short + `"\]`)
		}
	}
	has(`wasmMemory=wasmExports\["` + memoryName + `"\]`)
	for short, name := range imports {
		has(`\b` + short + `:_{1,2}` + regexp.QuoteMeta(strings.TrimLeft(name, "_")) + `\b|\b` + short + `:_+` + regexp.QuoteMeta(strings.TrimLeft(name, "_")) + `\b`)
	}
}

// Code that was changed on disk or was never sealed is not executed.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	code := filepath.Join(dir, "wazero", "code")
	other := filepath.Join(dir, "wazero", "other")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Dir(code), 0o700); err != nil {
		t.Fatal(err)
	}
	is := func(file, want string) {
		t.Helper()
		if b, _ := os.ReadFile(file); string(b) != want {
			t.Errorf("%s holds %q, want %q", filepath.Base(file), b, want)
		}
	}
	s := openCache(dir)
	write(code, "one")
	if s.seal() {
		t.Error("what was compiled counts as found")
	}
	s = openCache(dir)
	if !s.seal() {
		t.Error("what was sealed counts as compiled")
	}
	is(code, "one")

	write(code, "changed")
	write(other, "nobody sealed it")
	s = openCache(dir)
	is(code, "")
	is(other, "")
	write(code, "two")
	s.seal()
	openCache(dir).seal()
	is(code, "two")

	// If the folder cannot be made, there is no cache.
	s = openCache(filepath.Join(code, "below a file"))
	if s.cache != nil || s.seal() {
		t.Error("a cache below a file")
	}
}

// A folder that others may write to or that another user owns is not used.
func TestForeignCache(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		mode os.FileMode
		used bool
	}{{0o700, true}, {0o755, true}, {0o720, false}, {0o702, false}, {0o777, false}, {0o700, true}} {
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		s := openCache(dir)
		if s.seal(); (s.cache != nil) != c.used {
			t.Errorf("mode %o: used is %t, want %t", c.mode, s.cache != nil, c.used)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 12345, -1); err != nil {
			t.Skip(err)
		}
		if openCache(dir).cache != nil {
			t.Error("somebody else's folder was used")
		}
	} else if ours("/") {
		t.Error("the root folder is ours")
	}
}

// A failure with a cache is retried once without it, and files that the failed attempt left are
// ignored.
func TestCacheFails(t *testing.T) {
	full := errors.New("no space left on device")
	dir := t.TempDir()
	left := filepath.Join(dir, "wazero", "half")
	made := &machine{}
	var asked []bool
	m, cached, err := prepare(dir, func(c wazero.CompilationCache) (*machine, error) {
		asked = append(asked, c != nil)
		if c == nil {
			return made, nil
		}
		if err := os.Mkdir(filepath.Dir(left), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(left, []byte("half of it"), 0o600); err != nil {
			t.Fatal(err)
		}
		return nil, full
	})
	if m != made || cached || err != nil || !slices.Equal(asked, []bool{true, false}) {
		t.Errorf("%v, %t, %v; asked with a cache: %v", m, cached, err, asked)
	}
	openCache(dir).seal()
	if _, err := os.Stat(left); err == nil {
		t.Error("half a file was kept")
	}
	asked = nil
	if _, _, err := prepare("", func(c wazero.CompilationCache) (*machine, error) {
		asked = append(asked, c != nil)
		return nil, full
	}); !errors.Is(err, full) || len(asked) != 1 {
		t.Errorf("without a folder: %v, tried %d times", err, len(asked))
	}
}

// Programs are solved even if the compiled module cannot be cached.
func TestCacheCannotBeWritten(t *testing.T) {
	long.Only(t, "compiles four times")
	s := open(t)
	if err := s.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(s.options.CacheDir, "wazero*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no cache: %v, %v", folders, err)
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T, dir string)
	}{
		{"no file can be made", func(t *testing.T, dir string) { // not even by root
			for _, f := range folders {
				if err := os.Symlink("/proc/self", filepath.Join(dir, filepath.Base(f))); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"read-only", func(t *testing.T, dir string) {
			if os.Geteuid() == 0 {
				t.Skip("root may write to it")
			}
			if err := os.Chmod(dir, 0o500); err != nil {
				t.Fatal(err)
			}
		}},
		{"full", func(t *testing.T, dir string) {
			if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", dir).CombinedOutput(); err != nil {
				t.Skipf("no right to mount a small disk: %s", out)
			}
			t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, dir)
			s, err := Open(Options{CacheDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := solve(t, s, overflow(1, 1), linear.Limits{}); got.Status != linear.Optimal {
				t.Errorf("%+v", got)
			}
			if s.Starts()[0].Cached {
				t.Error("it counts as found")
			}
		})
	}
}

// Corrupt code on disk costs a compilation but does not change an answer.
func TestCorruptCache(t *testing.T) {
	long.Only(t, "compiles three times")
	open(t)
	dir := t.TempDir()
	start := func() Start {
		t.Helper()
		s, err := Open(Options{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got := solve(t, s, overflow(1, 1), linear.Limits{}); got.Status != linear.Optimal {
			t.Fatalf("%+v", got)
		}
		return s.Starts()[0]
	}
	if start().Cached || !start().Cached {
		t.Error("compiled once and found once was expected")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	damaged := false
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && len(b) > 1<<20 {
			b[200] ^= 0xff
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			damaged = true
		}
	}
	if !damaged {
		t.Fatalf("no code among %v", files)
	}
	if start().Cached || !start().Cached {
		t.Error("damaged code was used, or the new one was not kept")
	}
}
