package attribution_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
)

func must(t *rapid.T, e *estate) ([]allocation, *attribution.Result) {
	t.Helper()
	allocations, res, err := e.run()
	if err != nil {
		t.Fatal(err)
	}
	return allocations, res
}

// units returns an amount in units of 10⁻¹⁸.
func units(a attribution.Amount) *big.Int { return a.Decimal().Shift(18).BigInt() }

type costs struct{ billed, effective attribution.Amount }

func (c costs) add(b, e attribution.Amount) costs { return costs{c.billed.Add(b), c.effective.Add(e)} }

func less(a, b *allocation) bool {
	for _, c := range []int{
		int(min(1, max(-1, a.Hour-b.Hour))), compare(a.Workspace, b.Workspace), compare(a.Cluster, b.Cluster), compare(a.Deployment, b.Deployment), int(a.Component) - int(b.Component),
	} {
		if c != 0 {
			return c < 0
		}
	}
	return false
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestPromises checks the promises of the package comment on drawn estates. All are checked on one
// estate, because drawing one takes as long.
func TestPromises(t *testing.T) {
	long.Check(t, 1000, 200_000, func(t *rapid.T) {
		e := drawEstate(t, drawing{
			crowded: rapid.IntRange(0, 3).Draw(t, "crowded") == 0, shared: rapid.IntRange(0, 3).Draw(t, "shared") == 0,
			taxed: rapid.Bool().Draw(t, "taxed"),
		})
		allocations, res := must(t, e)
		everythingFoots(t, e, allocations, res)
		holdersFoot(t, e)
		orderAndRepetition(t, e, allocations, res)
		negationMirrors(t, e, allocations, res)
		reversalCancels(t, e)
	})
}

// TestAddOnsMoveNothing adds a line that buys nothing to a bill. The allocations of every other
// line that does not follow charges stay the same. For the line itself see [addedGoes].
func TestAddOnsMoveNothing(t *testing.T) {
	went := map[string]int{}
	long.Check(t, 400, 40_000, func(t *rapid.T) {
		e := drawEstate(t, drawing{plain: true, crowded: rapid.Bool().Draw(t, "crowded")})
		before, _ := must(t, e)
		l := e.lines[:len(e.lines):len(e.lines)]
		var a attribution.Line
		if len(l) > 0 && rapid.Bool().Draw(t, "beside another line") {
			a = rapid.SampledFrom(l).Draw(t, "the other line")
		} else if added := drawEstate(t, drawing{plain: true, crowded: rapid.Bool().Draw(t, "crowded too")}).lines; len(added) > 0 {
			a = added[0]
			a.Commitment = ""
		} else {
			return
		}
		beside := a.ID
		a.ID, a.Alone = "added", 0
		switch {
		case a.NodeMs|a.GPUMs == 0 || a.Meter == attribution.AddOn || rapid.Bool().Draw(t, "is an add-on"):
			a.Meter = attribution.AddOn
		default: // it refunds money
			a.Billed, a.Effective = money("-3"), money("-2")
			if a.NodeMs < 0 || a.GPUMs < 0 {
				a.Billed, a.Effective = money("3"), money("2")
			}
		}
		at := rapid.IntRange(0, len(l)).Draw(t, "at")
		other := *e
		other.lines = slices.Insert(slices.Clone(l), at, a)
		after, _ := must(t, &other)
		went[addedGoes(t, &other, a, beside, after)]++
		follows := func(l allocation) bool {
			return l.line.ID == "added" || l.MatchMethod == attribution.ByFollowing || l.line.Recurring || l.line.Class == attribution.Tax || l.line.Class == attribution.Credit || l.line.Class == attribution.Rounding
		}
		before, after = slices.DeleteFunc(before, follows), slices.DeleteFunc(after, follows)
		for _, all := range [][]allocation{before, after} { // lines come in the order of their matches
			slices.SortFunc(all, func(a, b allocation) int { return compare(ref(&a), ref(&b)) })
		}
		for i := range before {
			if i < len(after) {
				for _, l := range []*allocation{&before[i], &after[i]} {
					l.UsefulMs, l.MeasuredMs = 0, 0 // rounded at the ends of charge periods within hours
				}
			}
			if i >= len(after) || before[i] != after[i] {
				t.Fatalf("with %+v\n%v\nbecame\n%v", a, before, after)
			}
		}
		if len(after) > len(before) {
			t.Fatalf("with %+v there are %d allocations more", a, len(after)-len(before))
		}
	})
	for _, where := range []string{"with the line beside it", "as without owners"} {
		if went[where] == 0 {
			t.Errorf("no added line went %s: %v", where, went)
		}
	}
}

// addedGoes checks how an added line is divided, and returns a description. Beside a line that
// buys, a refund or a line of the same commitment is divided exactly like that line; so is every
// added line under any discount rule other than owners first. A line without a commitment that
// refunds nothing is divided as if no commitment had owners.
func addedGoes(t *rapid.T, e *estate, a attribution.Line, beside string, allocations []allocation) string {
	if !byUse(&a) || !buys(a.Class) {
		return ""
	}
	part := func(id string, allocations []allocation) (parts []attribution.Allocation, bought int64) {
		for i := range allocations {
			if g := allocations[i]; g.line.ID == id && g.line.Account == a.Account {
				bought += max(g.BoughtMs, -g.BoughtMs)
				g.Billed, g.Effective, g.BoughtMs, g.AllocatedMs, g.UsefulMs, g.MeasuredMs = attribution.Amount{}, attribution.Amount{}, 0, 0, 0, 0
				parts = append(parts, g.Allocation)
			}
		}
		return parts, bought
	}
	parts, _ := part("added", allocations)
	first := e.policy.Discount == attribution.OwnersFirst
	owned := a.Commitment == "k1" && a.Class == attribution.Committed && len(e.commitments) > 0
	if with, bought := part(beside, allocations); bought > 0 && slices.ContainsFunc(e.lines, func(l attribution.Line) bool {
		return l.ID == beside && l.Account == a.Account && l.ChargePeriod == a.ChargePeriod && l.Resource == a.Resource && l.SKU == a.SKU && l.Region == a.Region && l.Commitment == a.Commitment && l.Class == a.Class
	}) && (!first || owned || a.Meter != attribution.AddOn) {
		if !slices.Equal(parts, with) {
			t.Fatalf("%+v is divided\n%v\nand the line beside it\n%v", a, parts, with)
		}
		return "with the line beside it"
	}
	if first && !owned && a.Meter == attribution.AddOn {
		bare := *e
		bare.commitments = nil
		allocations, _ := must(t, &bare)
		if want, _ := part("added", allocations); !slices.Equal(parts, want) {
			t.Fatalf("%+v is divided\n%v\nand without owners\n%v", a, parts, want)
		}
		return "as without owners"
	}
	return "elsewhere"
}

// TestRefundAndChargeAgain charges all of a machine's time at a wrong price, refunds that and
// charges it again. The second charge is divided as if nothing else had happened, and the rest
// cancels allocation by allocation.
func TestRefundAndChargeAgain(t *testing.T) {
	long.Check(t, 300, 20_000, func(t *rapid.T) {
		service := domain.Interval{From: start, To: start + domain.Instant(rapid.IntRange(1, 4).Draw(t, "hours"))*domain.Hour}
		e := &estate{nodes: []attribution.Node{{Cluster: "c1", Node: "n1", Account: "x", Resource: "i", SKU: "p4", GPUs: 8, Registered: true, Service: service}}}
		for h := service.From; h < service.To; h += domain.Hour {
			if rapid.Bool().Draw(t, "held") {
				e.hours = append(e.hours, attribution.NodeHour{Hour: h, Parts: []attribution.Part{{Component: attribution.Allocated, Workspace: rapid.SampledFrom([]string{"ada", "bob"}).Draw(t, "holder"), GPUMs: 8 * hour}}})
			}
		}
		e.policy.Discount = attribution.Discount(rapid.SampledFrom([]string{"as_supplied", "owners_first", "pool_rate"}).Draw(t, "discount"))
		again := attribution.Line{Issuer: "S", Account: "x", ID: "again", Currency: "USD", BillingPeriod: month, ChargePeriod: service, Class: attribution.OnDemand, Category: "Usage",
			Resource: "i", SKU: "p4", Product: "p", Meter: attribution.MachineTime, NodeMs: int64(service.Length() / ms), Billed: money("100"), Effective: money("90")}
		if rapid.Bool().Draw(t, "committed") {
			again.Class, again.Commitment = attribution.Committed, "k1"
			e.commitments = []attribution.Commitment{{ID: "k1", Owners: []domain.Share{{Workspace: "ada", Share: decimal.NewFromInt(1)}}}}
		}
		licence := again
		licence.ID, licence.Meter, licence.Product = "licence", attribution.AddOn, "q"
		e.lines = []attribution.Line{again, licence}
		divided := func() (of map[string][]attribution.Allocation) {
			of = map[string][]attribution.Allocation{}
			allocations, _ := must(t, e)
			for _, g := range allocations {
				of[g.line.ID] = append(of[g.line.ID], g.Allocation)
			}
			return of
		}
		before := divided()
		wrong := again
		wrong.ID, wrong.Billed = "wrong", money(rapid.SampledFrom([]string{"100", "140", "0.01"}).Draw(t, "wrong price"))
		refund := wrong
		refund.ID, refund.Billed, refund.Effective = "refund", wrong.Billed.Neg(), wrong.Effective.Neg()
		e.lines = append(e.lines, wrong, refund)
		after := divided()
		for _, id := range []string{"again", "licence"} {
			if fmt.Sprint(before[id]) != fmt.Sprint(after[id]) && wrong.Billed != again.Billed {
				t.Fatalf("%s is divided\n%v\nand without a refund\n%v", id, after[id], before[id])
			}
		}
		if len(after["wrong"]) != len(after["refund"]) {
			t.Fatalf("%v\nis refunded\n%v", after["wrong"], after["refund"])
		}
		for i, g := range after["wrong"] {
			r := after["refund"][i]
			if g.Billed != r.Billed.Neg() || g.Effective != r.Effective.Neg() || g.Workspace != r.Workspace || g.Hour != r.Hour || g.Component != r.Component {
				t.Fatalf("%v\nis refunded\n%v", g, r)
			}
		}
	})
}

func everythingFoots(t *rapid.T, e *estate, allocations []allocation, res *attribution.Result) {
	byLine := map[string]costs{}
	bought, methods := map[string]int64{}, map[string]attribution.MatchMethod{}
	byTie := map[[4]string]attribution.Amount{}
	totals := map[string]costs{}
	for i := range allocations {
		l := &allocations[i]
		id := l.line.Account + " " + l.line.ID
		byLine[id] = byLine[id].add(l.Billed, l.Effective)
		bought[id] += l.BoughtMs
		methods[id] = l.MatchMethod
		totals[l.line.Currency] = totals[l.line.Currency].add(l.Billed, l.Effective)
		k := [4]string{l.line.Account, l.line.Invoice, l.line.Currency, l.Workspace}
		byTie[k] = byTie[k].Add(l.Billed)
		if i > 0 && allocations[i-1].line == l.line && !less(&allocations[i-1], l) {
			t.Fatalf("allocation %s comes after %s", ref(l), ref(&allocations[i-1]))
		}
		checkAllocation(t, l)
	}
	if len(allocations) > 0 {
		l := &allocations[len(allocations)/2]
		r, err := attribution.ParseRef(ref(l))
		if err != nil || r.Line != l.line.ID || r.Component != l.Component || r.Hour != l.Hour || r.Workspace != l.Workspace {
			t.Fatalf("allocation %+v is called %+v (%v)", l, r, err)
		}
	}
	as := standing(e.lines)
	for i, l := range e.lines {
		if got := byLine[l.Account+" "+l.ID]; got != (costs{l.Billed, l.Effective.Sub(recoverable(&l, l.Effective))}) {
			t.Fatalf("the allocations of %+v add up to %v", l, got)
		}
		ms, method := bought[l.Account+" "+l.ID], methods[l.Account+" "+l.ID]
		if (method == attribution.ByResource || method == attribution.ByPool || l.Unused) && buys(l.Class) && l.Category != "Purchase" {
			// Higher-ranked lines may leave it a part or nothing.
			if l.GPUMs != 0 && plausible(l.GPUMs) && (ms < min(0, l.GPUMs) || ms > max(0, l.GPUMs)) || !l.Unused && !mayBuy(&as[i]) && ms != 0 {
				t.Fatalf("the allocations of %+v buy %d ms", l, ms)
			}
		} else if ms != 0 {
			t.Fatalf("the allocations of %+v buy %d ms by %s", l, ms, method)
		}
		if (!plausible(l.NodeMs) || !plausible(l.GPUMs) || l.UnusableQuantity != "") && (ms != 0 || !hasUnusable(res, "S/"+l.Account+"/"+l.ID)) {
			t.Fatalf("the allocations of %+v buy %d ms, and the exceptions are %+v", l, ms, res.Exceptions)
		}
	}
	if res.Allocations != len(allocations) || res.Lines != len(e.lines) {
		t.Fatalf("%d allocations of %d lines are counted as %d of %d", len(allocations), len(e.lines), res.Allocations, res.Lines)
	}
	lines := 0
	sums := map[string]costs{}
	for _, m := range res.Matches {
		lines += m.Lines
		sums[m.Currency] = sums[m.Currency].add(m.Billed, m.Effective)
	}
	for _, v := range res.Invoices {
		sums[v.Currency] = sums[v.Currency].add(v.RoundingAdjustment, attribution.Amount{})
	}
	for currency, sum := range totals {
		if sums[currency] != sum {
			t.Fatalf("the allocations add up to %v, and what has a match method and rounding adjustments to %v", sum, sums[currency])
		}
	}
	if lines != len(e.lines) {
		t.Fatalf("%d of %d lines have a match method", lines, len(e.lines))
	}
	checkInvoices(t, res, byTie)
	for _, v := range res.Invoices {
		checkDetails(t, e, res, &v)
	}
}

// plausible reports whether a line's time counts as stated.
func plausible(ms int64) bool { return ms <= 1e15 && ms >= -1e15 }

func hasUnusable(res *attribution.Result, line string) bool {
	return slices.ContainsFunc(res.Exceptions, func(x attribution.Exception) bool {
		return x.Kind == attribution.QuantityUnusable && x.Subject == line && x.Lines == 1
	})
}

func ref(l *allocation) string {
	whole := l.Allocation
	whole.Line = &l.line
	return whole.Ref()
}

// checkAllocation checks an allocation against its Weight and Of.
func checkAllocation(t *rapid.T, l *allocation) {
	sign := int64(1)
	if l.BoughtMs < 0 {
		sign = -1
	}
	if b, a, m, u := sign*l.BoughtMs, sign*l.AllocatedMs, sign*l.MeasuredMs, sign*l.UsefulMs; u < 0 || u > m || m > a || a > b {
		t.Fatalf("allocation %s: %d ms are useful of %d measured of %d allocated of %d bought", ref(l), l.UsefulMs, l.MeasuredMs, l.AllocatedMs, l.BoughtMs)
	}
	if l.AllocatedMs != 0 && l.Component != attribution.Allocated {
		t.Fatalf("allocation %s: %d ms are allocated", ref(l), l.AllocatedMs)
	}
	if l.Weight.Sign() < 0 || l.Of.Cmp(l.Weight) < 0 {
		t.Fatalf("allocation %s weighs %s of %s", ref(l), l.Weight, l.Of)
	}
	tax := recoverable(&l.line, l.line.Billed)
	amounts := [][2]attribution.Amount{{l.Billed, l.line.Billed}, {l.Effective, l.line.Effective}}
	if l.Component == attribution.TaxRecoverable {
		if l.Billed != tax || !l.Effective.IsZero() || l.Workspace != attribution.PlatformTax || l.line.Class != attribution.Tax {
			t.Fatalf("allocation %s costs %s and %s, of %s of tax that comes back", ref(l), l.Billed, l.Effective, tax)
		}
	}
	if l.MatchMethod == attribution.ByFollowing || !tax.IsZero() {
		amounts = amounts[:1] // the other ledger has its own weights
	}
	of, weight := units(l.Of), units(l.Weight)
	for _, a := range amounts {
		if weight.Sign() == 0 && !a[0].IsZero() {
			t.Fatalf("allocation %s weighs nothing and costs %s", ref(l), a[0])
		}
		off := new(big.Int).Mul(units(a[0]), of)
		off.Sub(off, new(big.Int).Mul(units(a[1]), weight))
		if off.CmpAbs(of) >= 0 && of.Sign() != 0 {
			t.Fatalf("allocation %s costs %s, which is not %s of %s of %s", ref(l), a[0], l.Weight, l.Of, a[1])
		}
	}
}

func checkInvoices(t *rapid.T, res *attribution.Result, byWorkspace map[[4]string]attribution.Amount) {
	for _, v := range res.Invoices {
		if v.Attributed != v.Billed {
			t.Fatalf("%s is attributed of %+v", v.Attributed, v)
		}
		target := v.Attributed
		switch v.Status {
		case attribution.Reconciled, attribution.Adjusted:
			target = v.Received
			if v.Attributed.Add(v.RoundingAdjustment) != v.Received {
				t.Fatalf("%+v does not reconcile", v)
			}
		case attribution.Differs, attribution.NoInvoice, attribution.NoLines, attribution.Voided:
			if !v.RoundingAdjustment.IsZero() {
				t.Fatalf("%+v is adjusted", v)
			}
		}
		var exact, minor attribution.Amount
		of := 0
		for _, s := range res.Statements {
			if s.Issuer != v.Issuer || s.Account != v.Account || s.Invoice != v.Invoice || s.Currency != v.Currency || s.Period != v.Period {
				continue
			}
			of++
			if got := byWorkspace[[4]string{s.Account, s.Invoice, s.Currency, s.Workspace}]; got != s.Billed {
				t.Fatalf("the allocations of %+v add up to %s", s, got)
			}
			places := int32(domain.MinorUnits(s.Currency))
			if d := s.Amount.Amount.Decimal(); !d.Equal(d.Truncate(places)) {
				t.Fatalf("%+v cannot be paid", s)
			}
			if off := s.Amount.Amount.Sub(s.Billed).Abs().Decimal().Shift(places); off.Cmp(attribution.Whole(1).Decimal()) >= 0 {
				t.Fatalf("%+v is rounded by a minor unit or more", s)
			}
			exact, minor = exact.Add(s.Billed), minor.Add(s.Amount.Amount)
		}
		if v.Status == attribution.NoLines {
			if of > 0 {
				t.Fatalf("%+v has statements", v)
			}
			continue
		}
		if exact != v.Attributed.Add(v.RoundingAdjustment) {
			t.Fatalf("the statements of %+v come to %s", v, exact)
		}
		if want := target.Decimal().Round(int32(domain.MinorUnits(v.Currency))); !minor.Decimal().Equal(want) {
			t.Fatalf("the statements of %+v are for %s in all, want %s", v, minor, want)
		}
	}
}

// checkDetails compares an invoice row by row, in decimals and without the package's comparison.
func checkDetails(t *rapid.T, e *estate, res *attribution.Result, v *attribution.Reconciliation) {
	i := slices.IndexFunc(e.invoices, func(o attribution.Invoice) bool {
		return o.ID == v.Invoice && o.Account == v.Account && o.Currency == v.Currency && o.Status != "Voided"
	})
	if i < 0 || v.Lines == 0 {
		if len(v.Details) > 0 {
			t.Fatalf("%+v has details", v)
		}
		return
	}
	half := decimal.New(5, -int32(domain.MinorUnits(v.Currency))-1)
	type side struct {
		lines, rows  decimal.Decimal
		nLines, nRow int64
	}
	rows := map[string]*side{}
	for _, d := range e.invoices[i].Details {
		if rows[d.ID] == nil {
			rows[d.ID] = &side{}
		}
		rows[d.ID].rows, rows[d.ID].nRow = rows[d.ID].rows.Add(d.Amount.Decimal()), rows[d.ID].nRow+1
	}
	rest := e.invoices[i].Total.Decimal()
	for _, l := range e.lines {
		if l.Account != v.Account || l.Invoice != v.Invoice || l.Currency != v.Currency {
			continue
		}
		if r := rows[l.Detail]; r != nil && l.Detail != "" {
			r.lines, r.nLines = r.lines.Add(l.Billed.Decimal()), r.nLines+1
		} else {
			rest = rest.Sub(l.Billed.Decimal())
		}
	}
	differs, wrong := false, 0
	for _, r := range rows {
		if r.nLines == 0 {
			continue
		}
		rest = rest.Sub(r.rows)
		if r.rows.Sub(r.lines).Abs().Cmp(half.Mul(decimal.NewFromInt(r.nRow))) > 0 {
			differs, wrong = true, wrong+1
		}
	}
	differs = differs || rest.Abs().Cmp(half.Add(half)) > 0
	if differs != (v.Status == attribution.Differs) {
		t.Fatalf("%+v differs: %t", v, differs)
	}
	for _, x := range res.Exceptions {
		if x.Kind == attribution.DetailDiffers && x.Subject == v.Issuer+"/"+v.Account+"/"+v.Invoice {
			wrong--
		}
	}
	if wrong != 0 {
		t.Fatalf("%+v has %d rows that differ and are no exceptions, or the other way round: %+v", v, wrong, res.Exceptions)
	}
	var roundingAdjustments, after attribution.Amount
	lines := 0
	for _, d := range v.Details {
		if d.Difference != d.Received.Sub(d.Billed) || d.Difference != d.RoundingAdjustment.Add(d.After) {
			t.Fatalf("%+v does not foot", d)
		}
		roundingAdjustments, after, lines = roundingAdjustments.Add(d.RoundingAdjustment), after.Add(d.After), lines+d.Lines
	}
	if roundingAdjustments.Add(after) != v.Difference || lines != v.Lines || v.RoundingAdjustment.Add(v.After) != v.Difference || v.Status == attribution.Adjusted && roundingAdjustments != v.RoundingAdjustment {
		t.Fatalf("%+v does not foot", v)
	}
}

// orderAndRepetition gives the same facts in another order, with repeated lines, and expects the
// same allocations byte for byte. Those of a line come together.
func orderAndRepetition(t *rapid.T, e *estate, allocations []allocation, res *attribution.Result) {
	ended := map[[3]string]bool{}
	for i := range allocations {
		line := func(l *allocation) [3]string { return [3]string{l.line.Issuer, l.line.Account, l.line.ID} }
		of := line(&allocations[i])
		if i > 0 && of != line(&allocations[i-1]) {
			ended[line(&allocations[i-1])] = true
		}
		if ended[of] {
			t.Fatalf("allocations of line %v are apart", of)
		}
	}
	other := *e
	draws := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
	other.lines = shuffled(draws, append(slices.Clone(e.lines), e.lines[:len(e.lines)/2]...))
	other.invoices = shuffled(draws, append(slices.Clone(e.invoices), e.invoices...))
	for i := range other.invoices {
		other.invoices[i].Details = shuffled(draws, slices.Clone(other.invoices[i].Details))
	}
	other.rules = shuffled(draws, slices.Clone(e.rules))
	for i := range other.rules {
		other.rules[i].Shares = shuffled(draws, slices.Clone(other.rules[i].Shares))
	}
	other.commitments = shuffled(draws, append(slices.Clone(e.commitments), e.commitments...))
	var index []int
	for i := range e.nodes {
		index = append(index, i, i)
	}
	index = shuffled(draws, index)
	other.nodes, other.hours = nil, nil
	at := map[int][]int{}
	for i, n := range index {
		other.nodes = append(other.nodes, e.nodes[n])
		at[n] = append(at[n], i)
	}
	for _, h := range e.hours {
		h.Node = at[h.Node][draws.IntN(2)]
		h.Parts = shuffled(draws, slices.Clone(h.Parts))
		other.hours = append(other.hours, h)
	}
	other.also = shuffled(draws, append(slices.Clone(e.also), e.also...))
	for i := range other.also {
		o := &other.also[i]
		o.Node = at[o.Node][draws.IntN(2)]
	}
	again, res2 := must(t, &other)
	if !slices.Equal(allocations, again) {
		t.Fatalf("allocations\n%v\nare otherwise\n%v", allocations, again)
	}
	groups := func(e *estate, res *attribution.Result) (all []string) {
		for _, g := range res.Groups {
			var nodes []string
			for _, n := range g.Nodes {
				nodes = append(nodes, fmt.Sprintf("%+v", e.nodes[n]))
			}
			slices.Sort(nodes) // nodes are numbered otherwise
			all = append(all, fmt.Sprint(nodes, g.OwnersFirst, g.Cuts))
		}
		return all
	}
	if a, b := groups(e, res), groups(&other, res2); !slices.Equal(a, b) {
		t.Fatalf("the groups\n%v\nare otherwise\n%v", a, b)
	}
	same, same2 := *res, *res2
	same.Groups, same2.Groups = nil, nil
	if !reflect.DeepEqual(&same, &same2) {
		t.Fatalf("the result\n%s\nis otherwise\n%s", text(t, res), text(t, res2))
	}
}

func shuffled[T any](draws *rand.Rand, s []T) []T {
	draws.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// reversed returns a line that reverses another.
func reversed(l attribution.Line) attribution.Line {
	l.Billed, l.Effective = l.Billed.Neg(), l.Effective.Neg()
	l.NodeMs, l.GPUMs = -l.NodeMs, -l.GPUMs
	return l
}

// negationMirrors reverses a whole bill: every allocation is negated.
func negationMirrors(t *rapid.T, e *estate, allocations []allocation, res *attribution.Result) {
	other := *e
	other.lines, other.invoices = nil, nil
	for _, l := range e.lines {
		other.lines = append(other.lines, reversed(l))
	}
	for _, v := range e.invoices {
		v.Total, v.Details = v.Total.Neg(), slices.Clone(v.Details)
		for i := range v.Details {
			v.Details[i].Amount = v.Details[i].Amount.Neg()
		}
		other.invoices = append(other.invoices, v)
	}
	mirrored, res2 := must(t, &other)
	for i := range mirrored {
		l := &mirrored[i]
		l.Billed, l.Effective, l.line = l.Billed.Neg(), l.Effective.Neg(), reversed(l.line)
		l.BoughtMs, l.AllocatedMs, l.UsefulMs, l.MeasuredMs = -l.BoughtMs, -l.AllocatedMs, -l.UsefulMs, -l.MeasuredMs
	}
	if !slices.Equal(allocations, mirrored) {
		t.Fatalf("allocations\n%v\nare mirrored\n%v", allocations, mirrored)
	}
	for i := range res2.Statements {
		s := &res2.Statements[i]
		s.Billed, s.Amount.Amount = s.Billed.Neg(), s.Amount.Amount.Neg()
	}
	if !slices.Equal(res.Statements, res2.Statements) {
		t.Fatalf("statements\n%v\nare mirrored\n%v", res.Statements, res2.Statements)
	}
}

// reversalCancels reverses each line within its own bill.
func reversalCancels(t *rapid.T, e *estate) {
	for _, l := range e.lines {
		l = reversed(l)
		l.Corrects = l.ID
		l.ID += "-back"
		e.lines = append(e.lines, l)
	}
	allocations, _ := must(t, e)
	type key struct {
		line, workspace, cluster, deployment string
		hour                                 domain.Instant
		component                            attribution.Component
	}
	sums := map[key]costs{}
	for i := range allocations {
		l := &allocations[i]
		line := l.line.ID
		if l.line.Corrects != "" {
			line = l.line.Corrects
		}
		k := key{line + l.line.Account, l.Workspace, l.Cluster, l.Deployment, l.Hour, l.Component}
		if l.Component != attribution.RoundingAdjustment {
			sums[k] = sums[k].add(l.Billed, l.Effective)
		}
	}
	for k, sum := range sums {
		if sum != (costs{}) {
			t.Fatalf("%v is left with %v", k, sum)
		}
	}
}
