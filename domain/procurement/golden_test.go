package procurement_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

var update = flag.Bool("update", false, "write the goldens anew; read the difference before committing it")

// launch is a pool of eight-GPU machines over four months: a service that grows,
// a training run in the third month, and a supplier who can deliver guaranteed
// capacity only from the second month on.
func launch() *procurement.Pool {
	const dollar = 1_000_000_000
	p := &procurement.Pool{ID: "eu-north H100"}
	at := domain.Instant(0)
	for _, e := range []procurement.Epoch{
		{Demand: []procurement.Step{{Units: 4, Hours: 500}, {Units: 6, Hours: 220}}, HeldGuaranteed: 2},
		{Demand: []procurement.Step{{Units: 5, Hours: 480}, {Units: 8, Hours: 240}}, HeldGuaranteed: 2},
		{Demand: []procurement.Step{{Units: 6, Hours: 300}, {Units: 9, Hours: 120}, {Units: 16, Hours: 300}}, HeldDiscountOnly: 1},
		{Demand: []procurement.Step{{Units: 7, Hours: 470}, {Units: 10, Hours: 250}}, HeldDiscountOnly: 1},
	} {
		e.Span = domain.Interval{From: at, To: at + 30*domain.Day}
		at = e.Span.To
		e.OnDemand, e.Spot, e.Shortage = 40*dollar, 22*dollar, 200*dollar
		e.SpotPermille, e.Quota = 200, 6
		p.Epochs = append(p.Epochs, e)
	}
	starts := func(first int, term, cost procurement.Nano, most int) (s []procurement.Start) {
		for m := first; m < len(p.Epochs); m++ {
			months := min(term, procurement.Nano(len(p.Epochs)-m))
			s = append(s, procurement.Start{Epoch: m, Cost: cost * months * dollar, Max: most})
		}
		return s
	}
	p.Offers = []procurement.Offer{
		{ID: "reserved 1 month", Guaranteed: true, Term: 1, Starts: starts(1, 1, 25000, procurement.Unlimited)},
		{ID: "reserved 3 months", Guaranteed: true, Term: 3, Starts: starts(1, 3, 21000, 4)},
		{ID: "savings 3 months", Guaranteed: false, Term: 3, Starts: starts(0, 3, 18500, procurement.Unlimited)},
	}
	return p
}

// describe writes a pool and its solution out, with the reasons.
func describe(t *testing.T, p *procurement.Pool, s *procurement.Solution) string {
	var b strings.Builder
	money := func(n fmt.Stringer) string { return fmt.Sprintf("%12s", n) }
	nano := func(n procurement.Nano) string { return money(usd{n}) }
	e := p.Epochs[0]
	fmt.Fprintf(&b, "pool %s: on-demand %s an hour, spot %s, shortage %s\n\n", p.ID, usd{e.OnDemand}, usd{e.Spot}, usd{e.Shortage})
	fmt.Fprintf(&b, "epoch  held g/p  quota  spot share  demand, as hours × units\n")
	for m, e := range p.Epochs {
		fmt.Fprintf(&b, "%5d  %4d %d    %5d  %9.1f%%  ", m, e.HeldGuaranteed, e.HeldDiscountOnly, e.Quota, float64(e.SpotPermille)/10)
		for i, d := range e.Demand {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%d × %d", d.Hours, d.Units)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\nwhat could be bought, and why it was or was not\n\n")
	fmt.Fprintf(&b, "%-18s kind        from  to   max  units         cost        worth  why\n", "offer")
	for i, o := range p.Offers {
		for j, st := range o.Starts {
			units := 0
			for _, x := range s.Purchases {
				if x.Offer == i && x.Epoch == st.Epoch {
					units = x.Units
				}
			}
			kind, most := "discount only", "-"
			if o.Guaranteed {
				kind = "guaranteed"
			}
			if st.Max != procurement.Unlimited {
				most = fmt.Sprint(st.Max)
			}
			worth := s.Certificate.Worth(p, i, j)
			why := "it costs more than it is worth"
			switch {
			case worth > st.Cost:
				why = "it is worth more than it costs: all that there is"
			case worth == st.Cost && units > 0:
				why = "the last unit is worth what it costs"
			case worth == st.Cost:
				why = "it would make no difference"
			}
			fmt.Fprintf(&b, "%-18s %s  %4d  %2d  %4s  %5d %s %s  %s\n", o.ID, kind, st.Epoch, min(st.Epoch+o.Term, len(p.Epochs))-1, most, units, nano(st.Cost), nano(worth), why)
		}
	}
	ev, err := procurement.Evaluate(p, s.Purchases)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "\nwhat serves, in unit-hours, and what one more unit would be worth\n\n")
	fmt.Fprintf(&b, "epoch  demand  guaranteed  discount only  spot  on-demand  short  unused g/p      coverage   and guaranteed\n")
	for m, v := range ev.Epochs {
		fmt.Fprintf(&b, "%5d  %6d  %10d  %10d  %4d  %9d  %5d  %5d %4d  %s     %s\n", m, v.Demand, v.Guaranteed, v.DiscountOnly, v.Spot, v.OnDemand, v.Shortage,
			v.UnusedGuaranteed, v.UnusedDiscountOnly, nano(s.Certificate.Cover[m]), nano(s.Certificate.Guarantee[m]))
	}
	b.WriteString("\n")
	for _, line := range []struct {
		name string
		v    interface{ Int64() int64 }
	}{{"purchases", ev.Purchases}, {"spot", ev.SpotCost}, {"on-demand", ev.OnDemandCost}, {"shortage", ev.ShortageCost}, {"cost", s.Cost}, {"nothing costs less than", s.Bound}} {
		fmt.Fprintf(&b, "%-24s %s\n", line.name, nano(procurement.Nano(line.v.Int64())))
	}
	nothing, err := procurement.Evaluate(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "%-24s %s\n", "buying nothing", nano(procurement.Nano(nothing.Cost.Int64())))
	fmt.Fprintf(&b, "\ndecided by %s, exact: %t, work: %+v\n", s.Algorithm, s.Exact, s.Work)
	return b.String()
}

// usd prints an amount in cents.
type usd struct{ procurement.Nano }

func (u usd) String() string {
	return fmt.Sprintf("%d.%02d", u.Nano/1_000_000_000, u.Nano%1_000_000_000/10_000_000)
}

func TestGolden(t *testing.T) {
	for name, change := range map[string]func(*procurement.Pool){
		"quota": func(*procurement.Pool) {},
		"no-quota": func(p *procurement.Pool) {
			for m := range p.Epochs {
				p.Epochs[m].Quota = procurement.Unlimited
			}
		},
	} {
		p := launch()
		change(p)
		got := describe(t, p, solve(t, p))
		file := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s (rewrite with -update):\n%s", file, got)
		}
	}
}
