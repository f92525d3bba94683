package attribution_test

import (
	"maps"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
)

// taxShares are the shares of the rules for tax that estates are drawn with.
var taxShares = map[string]string{"none": "0", "odd": "0.190000000000000001", "most": "0.999999999999999999", "all": "1"}

// tax draws rules for tax, and the lines of tax that they are for.
func (e *estate) tax(t *rapid.T) {
	for name, share := range taxShares {
		e.rules = append(e.rules, attribution.MeterRule{Name: name, Tax: true, Recoverable: money(share)})
	}
	for i := range e.lines {
		if e.lines[i].Class == attribution.Tax {
			e.lines[i].TaxRule = rapid.SampledFrom([]string{"", "none", "odd", "most", "all"}).Draw(t, "tax rule")
		}
	}
}

// recoverable returns the part of an amount of a line that is recoverable, rounded towards zero, without the package's
// code.
func recoverable(l *attribution.Line, of attribution.Amount) attribution.Amount {
	if l.TaxRule == "" {
		return attribution.Amount{}
	}
	n := new(big.Int).Mul(units(of), units(money(taxShares[l.TaxRule])))
	n.Quo(n, units(attribution.Whole(1)))
	back := attribution.Amount{}
	for unit := money("0.000000000000000001"); n.Sign() != 0; unit = unit.Add(unit) { // by bits
		if new(big.Int).And(new(big.Int).Abs(n), big.NewInt(1)).Sign() != 0 {
			back = back.Add(unit)
		}
		n.Quo(n, big.NewInt(2))
	}
	if units(of).Sign() < 0 {
		return back.Neg()
	}
	return back
}

// TestRecoverableTaxIsNoCost compares a bill with and without rules for tax. Each line has the same billed cost, and
// reconciles alike. Its effective cost is less by what comes back, and no money of another line moves, except of lines
// that follow tax that a rule took.
func TestRecoverableTaxIsNoCost(t *testing.T) {
	seen := map[string]int{}
	long.Check(t, 500, 100_000, func(t *rapid.T) {
		e := drawEstate(t, drawing{shared: rapid.Bool().Draw(t, "shared"), taxed: true})
		bare := *e
		bare.lines = nil
		shared := false // some line follows tax that a rule shares
		for _, l := range e.lines {
			shared = shared || l.Class == attribution.Tax && l.ToRule != "" && l.TaxRule != ""
			l.TaxRule = ""
			bare.lines = append(bare.lines, l)
		}
		with, res := must(t, e)
		without, res2 := must(t, &bare)
		sums := func(all []allocation) (lines, others map[string]costs) {
			lines, others = map[string]costs{}, map[string]costs{}
			for i := range all {
				l := &all[i]
				id := l.line.Account + "/" + l.line.ID
				lines[id] = lines[id].add(l.Billed, l.Effective)
				if l.line.Class != attribution.Tax && (!shared || l.line.Class < attribution.Credit) {
					others[ref(l)] = costs{l.Billed, l.Effective}
				}
			}
			return lines, others
		}
		got, others := sums(with)
		want, others2 := sums(without)
		if !maps.Equal(others, others2) {
			t.Fatalf("other lines are divided\n%v\nand without rules for tax\n%v", others, others2)
		}
		for i := range e.lines {
			l := &e.lines[i]
			id := l.Account + "/" + l.ID
			back := recoverable(l, l.Effective)
			if (costs{got[id].billed, got[id].effective.Add(back)}) != want[id] {
				t.Fatalf("%+v costs %v, and without a rule for tax %v", l, got[id], want[id])
			}
		}
		for i := range res.Invoices {
			a, b := res.Invoices[i], res2.Invoices[i]
			if a.Status != b.Status || a.Attributed != b.Attributed || a.Difference != b.Difference {
				t.Fatalf("with rules for tax the invoice reconciles as\n%+v\nwithout\n%+v", a, b)
			}
		}
		for i := range with {
			if l := &with[i]; l.Component == attribution.TaxRecoverable {
				seen["recoverable"]++
				if l.line.TaxRule == "all" {
					seen["all of it"]++
				}
				if l.MatchMethod == attribution.ByRule {
					seen["beside what a rule takes"]++
				}
			}
		}
	})
	for _, what := range []string{"recoverable", "all of it", "beside what a rule takes"} {
		if seen[what] == 0 {
			t.Errorf("no tax was %s: %v", what, seen)
		}
	}
}

func TestRecoverableTaxOfALine(t *testing.T) {
	rules := []attribution.MeterRule{
		{Name: "de", Tax: true, Recoverable: money("1"), Columns: map[string]string{"RegionId": "de-*"}},
		{Name: "other", Tax: true, Recoverable: money("0.5")},
	}
	for _, c := range []struct{ category, region, want string }{
		{"Tax", "de-1", "de"}, {"Tax", "us-1", "other"}, {"Usage", "de-1", ""},
	} {
		b := domain.BillingLine{BillingCurrency: "USD", ChargeCategory: c.category, RegionID: c.region, SKUID: "x"}
		bare, err := attribution.LineOf(&b)
		if err != nil {
			t.Fatal(err)
		}
		l, err := attribution.LineOf(&b, rules...)
		if err != nil || l.TaxRule != c.want {
			t.Errorf("%s in %s has rule %q (%v), want %q", c.category, c.region, l.TaxRule, err, c.want)
		}
		if l.TaxRule = ""; l != bare {
			t.Errorf("a rule for tax makes of the line\n%+v, want\n%+v", l, bare)
		}
	}
	tax := attribution.Line{Account: "x", ID: "t", Currency: "USD", Class: attribution.Tax, Category: "Tax", TaxRule: "de", Billed: money("19")}
	for want, e := range map[string]*estate{
		`rule for tax "de" is not given`: {lines: []attribution.Line{tax}},
		"is not between 0 and 1":         {rules: []attribution.MeterRule{{Name: "de", Tax: true, Recoverable: money("1.1")}}},
		"is given twice":                 {rules: append(rules, attribution.MeterRule{Name: "de", Tax: true})},
	} {
		if _, _, err := e.run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
