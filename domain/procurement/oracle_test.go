package procurement_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
)

// million makes prices of a drawn pool large, like real ones in Nano, so that a certificate in
// whole Nano is not coarse.
const million = 1_000_000

func enlarge(p *procurement.Pool) *procurement.Pool {
	for m := range p.Epochs {
		e := &p.Epochs[m]
		for _, v := range []*procurement.Nano{&e.OnDemand, &e.Spot, &e.Shortage} {
			if *v > 0 {
				*v *= million
			}
		}
	}
	for _, o := range p.Offers {
		for i := range o.Starts {
			o.Starts[i].Cost *= million
		}
	}
	return p
}

// program states pools as one linear program in CPLEX's format, in units of 10⁶ Nano. Every source
// of every step is a column, and nothing is shared with the solver's view of an epoch. The cost of
// pool k is column k.
func program(pools []*procurement.Pool) []byte {
	var b bytes.Buffer
	price := func(n procurement.Nano) int64 {
		if n%million != 0 {
			panic("a price is not a multiple of 10⁶ Nano")
		}
		return int64(n / million)
	}
	b.WriteString("Minimize\n all:")
	for k := range pools {
		fmt.Fprintf(&b, " + cost%d", k)
	}
	b.WriteString("\nSubject To\n")
	var limits bytes.Buffer
	for k, p := range pools {
		fmt.Fprintf(&b, " total%d: cost%d", k, k)
		for i, o := range p.Offers {
			for _, s := range o.Starts {
				name := fmt.Sprintf("x%d.%d.%d", k, i, s.Epoch)
				fmt.Fprintf(&b, "\n - %d %s", price(s.Cost)*int64(p.Weight()), name)
				if s.Max != procurement.Unlimited {
					fmt.Fprintf(&limits, " 0 <= %s <= %d\n", name, s.Max)
				}
			}
		}
		for m, e := range p.Epochs {
			for i, s := range hoursOf(p, m) {
				at := fmt.Sprintf("%d.%d.%d", k, m, i)
				if e.OnDemand >= 0 {
					fmt.Fprintf(&b, "\n - %d o%s", price(e.OnDemand)*int64(s.hours), at)
				}
				if e.Spot >= 0 {
					fmt.Fprintf(&b, " - %d s%s", price(e.Spot)*int64(s.hours), at)
					fmt.Fprintf(&limits, " 0 <= s%s <= %d\n", at, s.spot)
				}
				fmt.Fprintf(&b, " - %d h%s", price(e.Shortage)*int64(s.hours), at)
			}
		}
		b.WriteString(" = 0\n")
		for m, e := range p.Epochs {
			var covering [2]string
			for i, o := range p.Offers {
				for _, s := range o.Starts {
					if kind := btoi(o.Guaranteed); s.Epoch <= m && m < s.Epoch+o.Term {
						covering[kind] += fmt.Sprintf("\n - x%d.%d.%d", k, i, s.Epoch)
					}
				}
			}
			for i, s := range hoursOf(p, m) {
				at := fmt.Sprintf("%d.%d.%d", k, m, i)
				fmt.Fprintf(&b, " g%s + p%s + h%s", at, at, at)
				if e.OnDemand >= 0 {
					fmt.Fprintf(&b, " + o%s", at)
				}
				if e.Spot >= 0 {
					fmt.Fprintf(&b, " + s%s", at)
				}
				fmt.Fprintf(&b, " = %d\n g%s%s <= %d\n p%s%s <= %d\n", s.units, at, covering[1], e.HeldGuaranteed, at, covering[0], e.HeldDiscountOnly)
				switch {
				case e.OnDemand < 0:
					fmt.Fprintf(&b, " p%s = 0\n", at)
				case e.Quota != procurement.Unlimited:
					fmt.Fprintf(&b, " p%s + o%s <= %d\n", at, at, e.Quota)
				}
			}
		}
	}
	b.WriteString("Bounds\n")
	b.Write(limits.Bytes())
	b.WriteString("End\n")
	return b.Bytes()
}

// hour is some equal hours of an epoch in one scenario, times its weight.
type hour struct{ units, spot, hours int }

func hoursOf(p *procurement.Pool, m int) (hs []hour) {
	e := &p.Epochs[m]
	add := func(demand []procurement.Step, spot, weight int) {
		for _, s := range demand {
			share := (s.Units*e.SpotPermille - s.Units*e.SpotPermille%1000) / 1000
			if spot != procurement.Unlimited {
				share = min(share, spot)
			}
			hs = append(hs, hour{s.Units, share, s.Hours * weight})
		}
	}
	if len(e.Cases) == 0 {
		add(e.Demand, procurement.Unlimited, p.Weight())
	}
	for i, c := range e.Cases {
		add(c.Demand, c.SpotUnits, p.Weights[i])
	}
	return hs
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// glpsol solves the program and returns what each pool costs.
func glpsol(t testing.TB, pools []*procurement.Pool) []float64 {
	t.Helper()
	path, err := exec.LookPath("glpsol")
	if err != nil {
		t.Skip("glpsol, the linear solver to compare with, is not installed (Debian: glpk-utils)")
	}
	in, out := filepath.Join(t.TempDir(), "pools.lp"), filepath.Join(t.TempDir(), "solution")
	if err := os.WriteFile(in, program(pools), 0o600); err != nil {
		t.Fatal(err)
	}
	if log, err := exec.Command(path, "--lp", in, "--write", out).CombinedOutput(); err != nil {
		t.Fatalf("glpsol: %v\n%s", err, log)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cost := make([]float64, len(pools))
	optimal, found := false, 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		switch w := strings.Fields(lines.Text()); {
		case len(w) == 7 && w[0] == "s" && w[4] == "f" && w[5] == "f":
			optimal = true
		case len(w) == 5 && w[0] == "j":
			j, err := strconv.Atoi(w[1])
			if err != nil {
				t.Fatal(err)
			}
			if j > len(pools) {
				break
			}
			if cost[j-1], err = strconv.ParseFloat(w[3], 64); err != nil {
				t.Fatal(err)
			}
			found++
		}
	}
	if !optimal || found != len(pools) {
		t.Fatalf("glpsol found no optimum, or the costs of %d pools of %d only", found, len(pools))
	}
	return cost
}

// An independent linear solver agrees: on the cost where a flow decides, and where discount-only
// commitments meet a quota, its optimum lies between bound and cost, and at the bound.
func TestAgainstLinearSolver(t *testing.T) {
	n := long.Count(250, 10000)
	wide := size{epochs: 6, steps: 5, units: 30, hours: 40, price: 50, offers: 4, starts: 20, kinds: anyKind}
	var aboveBound, belowCost []float64
	flows := 0
	for batch := range n / 10 {
		var pools []*procurement.Pool
		for i := range 10 {
			seed := uint64(batch*10 + i)
			pools = append(pools,
				enlarge(draw(even(seed), wide)),
				enlarge(contested(even(seed), 6, 5, 20, []int{0, 0, 3}[seed%3])))
			if seed%3 == 1 {
				uncertain(even(seed), pools[len(pools)-1])
				uncertain(even(seed+1), pools[len(pools)-2])
			}
		}
		if batch == 0 {
			for _, seed := range fractional {
				pools = append(pools, enlarge(contested(even(seed), 4, 3, 4, 1)))
			}
		}
		for i, linear := range glpsol(t, pools) {
			p := pools[i]
			s := solve(t, p)
			linear *= million
			cost, _ := s.Cost.Float64()
			bound, _ := s.Bound.Float64()
			apart := func(a, b float64) float64 { return (a - b) / max(1, linear) }
			switch {
			case s.Algorithm == procurement.Flow:
				flows++
				if d := apart(cost, linear); d > 1e-9 || d < -1e-9 {
					t.Errorf("batch %d, pool %d: a flow costs %.0f, the linear program %.0f", batch, i, cost, linear)
				}
			case apart(linear, bound) < -1e-9 || apart(linear, bound) > 1e-8:
				t.Errorf("batch %d, pool %d: bound %.0f, but the linear program costs %.0f", batch, i, bound, linear)
			case apart(cost, linear) < -1e-9:
				t.Errorf("batch %d, pool %d: cost %.0f is below the linear program's %.0f", batch, i, cost, linear)
			default:
				aboveBound = append(aboveBound, apart(linear, bound))
				belowCost = append(belowCost, apart(cost, linear))
			}
		}
	}
	slices.Sort(aboveBound)
	slices.Sort(belowCost)
	at := func(x []float64, q float64) float64 { return x[int(q*float64(len(x)-1))] }
	t.Logf("%d pools: %d by flow, equal to the linear program; %d mixed", flows+len(belowCost), flows, len(belowCost))
	t.Logf("mixed, (linear − bound)/linear: median %.1e, 99%% %.1e, most %.1e", at(aboveBound, 0.5), at(aboveBound, 0.99), at(aboveBound, 1))
	t.Logf("mixed, (cost − linear)/linear: median %.1e, 95%% %.1e, 99%% %.1e, most %.1e", at(belowCost, 0.5), at(belowCost, 0.95), at(belowCost, 0.99), at(belowCost, 1))
	if flows < n/4 || len(belowCost) < n/2 {
		t.Errorf("%d flows and %d mixed pools do not show much", flows, len(belowCost))
	}
}
