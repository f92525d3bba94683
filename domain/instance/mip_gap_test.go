package instance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/long"
)

// fix fixes the purchases to those of an answer.
func (m *mip) fix(t testing.TB, bought []instance.Order) {
	t.Helper()
	for _, o := range m.orders {
		m.b.Bounds(o.column, 0, 0)
	}
	for _, b := range bought {
		found := false
		for _, o := range m.orders {
			lots := float64(b.Units) / float64(o.lot)
			if o.offer == b.Offer && o.commitment == b.Commitment && o.renewals == b.Renewals && (o.epoch == b.Epoch || b.Renewals > 0) &&
				o.least <= lots && lots <= o.most {
				m.b.Bounds(o.column, lots, lots)
				found = true
			}
		}
		if !found {
			t.Errorf("%+v is none of the orders of the program", b)
		}
	}
}

// solve returns the cost of the best that was found, +∞ if nothing was, and the lower bound.
func (m *mip) solve(t testing.TB, lp linear.Solver, limits linear.Limits) (s *linear.Solution, cost, bound float64) {
	t.Helper()
	s, err := lp.Solve(t.Context(), m.b.Program(), limits)
	if err != nil {
		t.Fatal(err)
	}
	if cost = inf; s.X != nil {
		cost = s.Objective*m.scale + m.fixed
	}
	if bound = s.Bound*m.scale + m.fixed; math.IsNaN(bound) || s.Status == linear.Infeasible {
		bound = inf
	}
	return s, cost, bound
}

func textOf(t testing.TB, in *instance.Instance) []byte {
	t.Helper()
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func solverOrSkip(t testing.TB) linear.Solver {
	t.Helper()
	lp := instance.LinearSolver()
	if lp == nil {
		t.Skip("this build has no solver of linear programs: make highs")
	}
	return lp
}

// seen is what an instance shows: the answer's cost and bound, and the program's.
type seen struct {
	impossible              bool
	cost, bound, best, most float64
	closed                  bool
	took, mipTook           time.Duration
}

// loss is how far an answer is from the best that is known, and gap how far it says at most.
func (s *seen) loss() float64 { return s.cost/min(s.best, s.cost) - 1 }
func (s *seen) gap() float64  { return s.cost/s.bound - 1 }

// nearly is the tolerance of comparisons: that of the solver of programs.
const nearly = 1e-6

// compare solves an instance and its program. The program that is given the answer's purchases costs
// the same, or less where work waits, whose hours are not chosen at best. The answer is not below the
// program's bound, nor its bound above what the program found.
func compare(t testing.TB, in *instance.Instance, lp linear.Solver, limits linear.Limits) *seen {
	t.Helper()
	start := long.CPUTime(t)
	a, err := instance.Solve(t.Context(), in, lp)
	out := &seen{took: long.CPUTime(t) - start}
	var clash *instance.Infeasible
	var faults *instance.Faults
	if out.impossible = errors.As(err, &clash) || errors.As(err, &faults); !out.impossible && err != nil {
		t.Errorf("%s: %v", in.Name, err)
		return nil
	}
	m := newMIP(t, textOf(t, in))
	start = long.CPUTime(t)
	s, best, most := m.solve(t, lp, limits)
	out.best, out.most, out.mipTook = best, most, long.CPUTime(t)-start
	if out.impossible {
		if s.X != nil {
			t.Errorf("%s: %v, but the program costs %f", in.Name, err, best)
		}
		return out
	}
	out.cost, _ = a.Cost.Rat().Float64()
	out.bound, _ = a.LowerBound.Rat().Float64()
	if s.Status == linear.Infeasible {
		t.Errorf("%s: nothing meets the program, but the answer costs %s", in.Name, a.Cost)
		return out
	}
	out.closed = s.X != nil && best-most <= 1e-4*best
	m.fix(t, a.Orders())
	_, same, _ := m.solve(t, lp, linear.Limits{})
	tolerance := nearly * math.Max(1, out.cost)
	waits := slices.ContainsFunc(in.Demands, func(d instance.Demand) bool { return d.DeferHours > 0 })
	below := tolerance
	if len(in.Budgets) > 0 && !in.AnnualRate.IsZero() {
		below = 5e-5 * out.cost // what serving takes of a budget is counted up to 0.002% too high
	}
	if same > out.cost+tolerance || !waits && same < out.cost-below {
		t.Errorf("%s: the answer costs %f, its purchases in the program %f", in.Name, out.cost, same)
	}
	if out.best = min(out.best, same); out.cost < most-tolerance {
		t.Errorf("%s: the answer costs %f, the program not below %f", in.Name, out.cost, most)
	}
	if out.bound > out.best+tolerance {
		t.Errorf("%s: the bound is %f, the program costs %f", in.Name, out.bound, out.best)
	}
	return out
}

// A translation of an instance into one mixed-integer program, made from the text of the schema, agrees
// about the cost of answers, their bounds, and what is impossible.
func TestAnswersAgreeWithProgram(t *testing.T) {
	lp := solverOrSkip(t)
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	var all []*instance.Instance
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		in, err := instance.Parse(path, text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, in)
	}
	for n, seed := 0, uint64(0); n < long.Count(30, 400); seed++ {
		in := instance.DrawAll(seed)
		if in.Validate() == nil {
			in.Name = fmt.Sprint("drawn ", seed)
			all, n = append(all, in), n+1
		}
	}
	impossible, closed, lost, start := 0, 0, 0.0, long.CPUTime(t)
	for _, in := range all {
		s := compare(t, in, lp, linear.Limits{Gap: 1e-6, Checks: 10_000})
		switch {
		case s == nil:
		case s.impossible:
			impossible++
		case s.closed:
			closed++
			if s.loss() > 0.001 {
				t.Logf("%s: %f, the program %f: %.4f%% lost, gap %.4f%%", in.Name, s.cost, s.best, 100*s.loss(), 100*s.gap())
			}
			lost = max(lost, s.loss())
		}
	}
	t.Logf("%d instances, %d impossible, %d solved by the program, at most %.4f%% lost, in %s of CPU",
		len(all), impossible, closed, 100*lost, long.CPUTime(t)-start)
	if closed < 20 {
		t.Errorf("the program solves %d of %d instances", closed, len(all))
	}
}

// The program is made without the planner and the checker: its files import nothing of this module but
// the form of a program.
func TestProgramIsMadeApart(t *testing.T) {
	for _, file := range []string{"mip_document_test.go", "mip_test.go", "mip_serving_test.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if path := strings.Trim(i.Path.Value, `"`); strings.HasPrefix(path, "quartermaster/") && path != "quartermaster/domain/linear" {
				t.Errorf("%s imports %s", file, path)
			}
		}
	}
}

// TestLosses prints what the answers of random coupled instances lose against the program, by family.
// SEEDS is the number of instances of each family, FROM the first seed, and FAMILY is part of the name
// of those to solve.
//
//	CI_LONG=1 SEEDS=10 go test -count=1 -timeout 10h -run TestLosses -v ./domain/instance
func TestLosses(t *testing.T) {
	long.Only(t, "solves 300 instances and their programs")
	lp := solverOrSkip(t)
	setting := func(name string, n int) int {
		if v, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return v
		}
		return n
	}
	from, seeds, out := setting("FROM", 0), setting("SEEDS", 10), &strings.Builder{}
	var all []*seen
	for f, name := range instance.CoupledNames() {
		if !strings.Contains(name, os.Getenv("FAMILY")) {
			continue
		}
		var of []*seen
		for seed := from; seed < from+seeds; seed++ {
			in := instance.CoupledInstance(f, uint64(seed))
			if err := in.Validate(); err != nil {
				t.Errorf("%s: %v", in.Name, err)
				continue
			}
			if s := compare(t, in, lp, linear.Limits{Gap: 5e-5, Checks: setting("CHECKS", 300_000)}); s != nil {
				of = append(of, s)
				t.Logf("%s: impossible %v, cost %.4f bound %.4f in %.1fs, program %.4f bound %.4f in %.1fs, closed %v, lost %.4f%%, gap %.4f%%",
					in.Name, s.impossible, s.cost, s.bound, s.took.Seconds(), s.best, s.most, s.mipTook.Seconds(), s.closed, 100*s.loss(), 100*s.gap())
			}
		}
		all = append(all, of...)
		out.WriteString(row(name, of))
	}
	t.Logf("\n%-32s %4s %4s %6s %8s %8s %8s %8s %7s %7s\n%s%s", "family", "n", "none", "closed", "p50 %", "p90 %", "max %", "lost %",
		"longest", "program", out, row("all", all))
}

// row is a line of the table: answers, impossible ones, programs closed, the answers' gaps, the most
// that was lost where the program is closed, and the longest times.
func row(name string, of []*seen) string {
	var gaps []float64
	none, closed, lost := 0, 0, 0.0
	var took, program time.Duration
	for _, s := range of {
		took, program = max(took, s.took), max(program, s.mipTook)
		if s.impossible {
			none++
			continue
		}
		gaps = append(gaps, 100*s.gap())
		if s.closed {
			closed++
			lost = max(lost, 100*s.loss())
		}
	}
	slices.Sort(gaps)
	at := func(q float64) float64 {
		if len(gaps) == 0 {
			return 0
		}
		return gaps[min(len(gaps)-1, int(q*float64(len(gaps))))]
	}
	return fmt.Sprintf("%-32s %4d %4d %6d %8.4f %8.4f %8.4f %8.4f %6.1fs %6.1fs\n", name, len(gaps), none, closed, at(0.5), at(0.9), at(1), lost,
		took.Seconds(), program.Seconds())
}
