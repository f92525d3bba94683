package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement/joint"
)

// TestGaps prints the gaps that are reported for random coupled instances, by family. It asserts
// that each is answered, and proven or refused as impossible. SEEDS is the number of instances of
// each family, and FAMILY is part of the name of those to solve.
//
//	CI_LONG=1 SEEDS=10 FAMILY=tiers go test -count=1 -timeout 1h -run TestGaps -v ./domain/instance
func TestGaps(t *testing.T) {
	long.Only(t, "solves 300 instances")
	lp := linearOrSkip(t)
	seeds, only := 10, os.Getenv("FAMILY")
	if n, err := strconv.Atoi(os.Getenv("SEEDS")); err == nil {
		seeds = n
	}
	var all []float64
	out := &strings.Builder{}
	for _, f := range coupledFamilies {
		if only != "" && !strings.Contains(f.name, only) {
			continue
		}
		var gaps []float64
		worst := time.Duration(0)
		impossible := 0
		for seed := range seeds {
			in := coupledInstance(f, uint64(seed))
			if err := in.Validate(); err != nil {
				t.Errorf("%s %d: %v", f.name, seed, err)
				continue
			}
			start := long.CPUTime(t)
			a, err := Solve(context.Background(), in, lp)
			took := long.CPUTime(t) - start
			worst = max(worst, took)
			var clash *Infeasible
			if errors.As(err, &clash) {
				impossible++
				continue
			} else if err != nil {
				t.Errorf("%s %d: %v", f.name, seed, err)
				continue
			}
			gap, _ := a.Gap.Rat().Float64()
			g := 100 * gap
			gaps = append(gaps, g)
			w := work(a)
			t.Logf("%s %d: cost %s gap %.4f%% in %.1fs %+v", f.name, seed, a.Cost, g, took.Seconds(), w)
		}
		all = append(all, gaps...)
		slices.Sort(gaps)
		fmt.Fprintf(out, "%-32s %3d %8.4f %8.4f %8.4f %4d %6.1fs\n", f.name, len(gaps), at(gaps, 0.5), at(gaps, 0.9), at(gaps, 1), impossible, worst.Seconds())
	}
	slices.Sort(all)
	t.Logf("\n%-32s %3s %8s %8s %8s %4s %7s\n%s%-32s %3d %8.4f %8.4f %8.4f", "family", "n", "p50 %", "p90 %", "max %", "none", "longest", out, "all", len(all), at(all, 0.5), at(all, 0.9), at(all, 1))
}

// at is a quantile of sorted numbers, 0 if there is none.
func at(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// work sums up what solving an answer's components took.
func work(a *Answer) (w joint.Work) {
	for i := range a.Proof {
		var s struct {
			Work joint.Work `json:"work"`
		}
		if json.Unmarshal(a.Proof[i].Document, &s) == nil {
			w.Masters += s.Work.Masters
			w.Iterations += s.Work.Iterations
			w.Cuts += s.Work.Cuts
			w.Leaves += s.Work.Leaves
			w.Tried += s.Work.Tried
		}
	}
	return w
}
