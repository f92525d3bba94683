package joint_test

import (
	"context"
	"errors"
	"flag"
	"slices"
	"testing"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/joint"
)

// relaxed is a problem without lots, least orders and groups.
func relaxed(p *joint.Problem) *joint.Problem {
	q := *p
	q.Choices = slices.Clone(p.Choices)
	for j := range q.Choices {
		q.Choices[j].Least, q.Choices[j].Lot, q.Choices[j].Group = 0, 1, ""
	}
	return &q
}

// judge checks a solution by itself.
func judge(t testing.TB, p *joint.Problem, s *joint.Solution) {
	t.Helper()
	ev, err := joint.Evaluate(p, s.Units)
	if err != nil {
		t.Fatal(err)
	}
	if len(ev.Broken) > 0 {
		t.Errorf("the solution breaks %q", ev.Broken)
	}
	if ev.Cost.Cmp(s.Cost) != 0 {
		t.Errorf("cost %s, evaluated %s", s.Cost, ev.Cost)
	}
	if s.Cost.Cmp(s.Bound) < 0 {
		t.Errorf("bound %s above cost %s", s.Bound, s.Cost)
	}
	if _, err := check.Joint(p, s); err != nil {
		t.Error(err)
	}
}

var problemsAsked = flag.Int("problems", 0, "problems for TestSolveAgainstLinearProgram; 0: 100, and 5,000 with CI_LONG=1")

// The optimum of the linear program over all slots lies between bound and cost, and so does that of
// the whole integer program with least orders and groups. The latter is solved where the linear
// program is inconclusive.
func TestSolveAgainstLinearProgram(t *testing.T) {
	problems := *problemsAsked
	if problems == 0 {
		problems = long.Count(100, 5000)
	}
	against(t, problems, 1e-4, func(seed uint64) *joint.Problem { return draw(seeded(seed), everything) })
}

// against solves problems and compares with their linear and whole programs. Of a hundred one bound
// may be looser than a share.
func against(t *testing.T, problems int, looser float64, problem func(seed uint64) *joint.Problem) {
	var loose, whole []float64
	infeasible, programs := 0, 0
	for seed := range uint64(problems) {
		p := problem(seed)
		s, err := joint.Solve(context.Background(), p, lp(t))
		linear, possible := optimum(t, relaxed(p), nil, false)
		var clash *joint.Infeasible
		if errors.As(err, &clash) {
			infeasible++
			if possible {
				programs++
				if best, ok := optimum(t, p, nil, true); ok {
					t.Errorf("seed %d: %v, but the whole program costs %.0f", seed, err, best)
				}
			}
			continue
		}
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		if before := t.Failed(); !before {
			if judge(t, p, s); t.Failed() {
				t.Logf("that was seed %d", seed)
			}
		}
		cost, bound := float(s.Cost), float(s.Bound)
		best, ok := linear, possible
		if cost > linear*(1+1e-9)+1 || bound > linear*(1+1e-9)+1 {
			programs++
			best, ok = optimum(t, p, nil, true)
		}
		switch {
		case !ok:
			t.Errorf("seed %d: cost %.0f, but the whole program has no solution", seed, cost)
		case bound > best*(1+1e-9)+1, cost < best*(1-1e-9)-1:
			t.Errorf("seed %d: the best costs %.0f, outside bound %.0f and cost %.0f", seed, best, bound, cost)
		}
		loose = append(loose, (linear-bound)/max(1, linear))
		whole = append(whole, (cost-best)/max(1, best))
		if loose[len(loose)-1] > 0.01 || whole[len(whole)-1] > 0.005 {
			t.Logf("seed %d: bound %.0f linear %.0f best %.0f cost %.0f", seed, bound, linear, best, cost)
		}
	}
	slices.Sort(loose)
	slices.Sort(whole)
	at := func(x []float64, q float64) float64 { return x[int(q*float64(len(x)-1))] }
	t.Logf("%d problems: %d solved, %d infeasible; %d of them against a program in whole units", problems, len(loose), infeasible, programs)
	t.Logf("(linear − bound)/linear: median %.1e, 95%% %.1e, 99%% %.1e, most %.1e", at(loose, .5), at(loose, .95), at(loose, .99), at(loose, 1))
	t.Logf("(cost − best)/best: median %.1e, 90%% %.1e, 95%% %.1e, 99%% %.1e, most %.1e", at(whole, .5), at(whole, .9), at(whole, .95), at(whole, .99), at(whole, 1))
	if at(loose, .99) > looser || at(whole, .99) > 1e-2 {
		t.Errorf("of a hundred problems more than one is bounded or solved badly")
	}
}
