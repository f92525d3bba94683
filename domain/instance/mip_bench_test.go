package instance_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/long"
)

// BenchmarkCoupled solves random coupled instances, and their programs to 0.01% with the embedded HiGHS
// and, where it is installed, with GLPK for a minute at most. highs/plan and glpk/plan are their CPU time
// over that of the plan, and …-open is 1 where they did not close the program.
func BenchmarkCoupled(b *testing.B) {
	for f, name := range instance.CoupledNames() {
		switch name {
		case "substitutes", "interruptible_share", "budget cash", "scenarios", "lot", "tiers", "spend_commitment":
		default:
			continue
		}
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			lp := solverOrSkip(b)
			in := instance.CoupledInstance(f, 0)
			program := newMIP(b, textOf(b, in)).b.Program()
			var plan, highs, glpk time.Duration
			for b.Loop() {
				start := long.CPUTime(b)
				if _, err := instance.Solve(b.Context(), in, lp); err != nil {
					b.Fatal(err)
				}
				plan += long.CPUTime(b) - start
				b.StopTimer()
				start = long.CPUTime(b)
				s, err := lp.Solve(b.Context(), program, linear.Limits{Gap: 1e-4, Checks: 200_000})
				if err != nil {
					b.Fatal(err)
				}
				highs += long.CPUTime(b) - start
				b.ReportMetric(open(s.Status != linear.Optimal), "highs-open")
				if path, err := exec.LookPath("glpsol"); err == nil {
					took, closed, cost := glpsol(b, path, program)
					glpk += took
					b.ReportMetric(open(!closed), "glpk-open")
					if closed && s.Status == linear.Optimal && math.Abs(cost-s.Objective) > 3e-4*math.Abs(cost) {
						b.Fatalf("GLPK finds %g, HiGHS %g", cost, s.Objective)
					}
				}
				b.StartTimer()
			}
			b.ReportMetric(plan.Seconds()/float64(b.N), "plan-cpu-s")
			b.ReportMetric(highs.Seconds()/plan.Seconds(), "highs/plan")
			if glpk > 0 {
				b.ReportMetric(glpk.Seconds()/plan.Seconds(), "glpk/plan")
			}
		})
	}
}

func open(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// glpsol is the CPU time of GLPK for a program, whether it closed it to 0.01%, and what it found.
func glpsol(b *testing.B, path string, p *linear.Program) (took time.Duration, closed bool, cost float64) {
	b.Helper()
	file := filepath.Join(b.TempDir(), "program.lp")
	if err := os.WriteFile(file, asLP(p), 0o600); err != nil {
		b.Fatal(err)
	}
	solution := file + ".out"
	cmd := exec.Command(path, "--lp", file, "--cuts", "--mipgap", "0.0001", "--tmlim", "60", "-o", solution)
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	done := bytes.Contains(out, []byte("INTEGER OPTIMAL")) || bytes.Contains(out, []byte("RELATIVE MIP GAP TOLERANCE REACHED"))
	text, err := os.ReadFile(solution)
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := bytes.Cut(text, []byte("Objective:  cost = "))
	if _, err := fmt.Sscan(string(rest), &cost); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), done, cost
}

// asLP writes a program as other solvers read it.
func asLP(p *linear.Program) []byte {
	rows := make([]strings.Builder, len(p.RowLower))
	out := &bytes.Buffer{}
	out.WriteString("Minimize\n cost:")
	for j, c := range p.Cost {
		if c != 0 {
			fmt.Fprintf(out, " %+.17g x%d\n", c, j)
		}
		for k := p.Start[j]; k < p.Start[j+1]; k++ {
			fmt.Fprintf(&rows[p.Index[k]], " %+.17g x%d\n", p.Value[k], j)
		}
	}
	out.WriteString("Subject To\n")
	for i := range rows {
		low, high, text := p.RowLower[i], p.RowUpper[i], rows[i].String()
		switch {
		case text == "":
		case low == high:
			fmt.Fprintf(out, " r%d:%s = %.17g\n", i, text, low)
		default:
			if !math.IsInf(low, -1) {
				fmt.Fprintf(out, " l%d:%s >= %.17g\n", i, text, low)
			}
			if !math.IsInf(high, 1) {
				fmt.Fprintf(out, " u%d:%s <= %.17g\n", i, text, high)
			}
		}
	}
	out.WriteString("Bounds\n")
	for j := range p.Cost {
		switch low, high := p.Lower[j], p.Upper[j]; {
		case low == high:
			fmt.Fprintf(out, " x%d = %.17g\n", j, low)
		case math.IsInf(high, 1):
			fmt.Fprintf(out, " x%d >= %.17g\n", j, low)
		default:
			fmt.Fprintf(out, " %.17g <= x%d <= %.17g\n", low, j, high)
		}
	}
	out.WriteString("Generals\n")
	for j := range p.Whole {
		if p.Whole[j] {
			fmt.Fprintf(out, " x%d\n", j)
		}
	}
	out.WriteString("End\n")
	return out.Bytes()
}
