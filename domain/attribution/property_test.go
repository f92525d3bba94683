package attribution_test

import (
	"flag"
	"math/big"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// cases sets how many cases a property is tried on, unless -rapid.checks or a
// long campaign (QM_LONG) says otherwise.
func cases(t *testing.T, n int) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	before := f.Value.String()
	if before != f.DefValue {
		return
	}
	if os.Getenv("QM_LONG") != "" {
		n *= 20
	}
	if err := f.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Value.Set(before) })
}

func must(t *rapid.T, e *estate) ([]leaf, *attribution.Result) {
	t.Helper()
	leaves, res, err := e.run()
	if err != nil {
		t.Fatal(err)
	}
	return leaves, res
}

// units returns an amount in 10⁻¹⁸.
func units(a attribution.Amount) *big.Int { return a.Decimal().Shift(18).BigInt() }

type costs struct{ billed, effective attribution.Amount }

func (c costs) add(b, e attribution.Amount) costs { return costs{c.billed.Add(b), c.effective.Add(e)} }

func less(a, b *leaf) bool {
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

// TestPromises holds divisions of drawn estates to what the package promises.
// All of it is asked of one estate, because drawing one takes as long. It runs
// in two halves, side by side.
func TestPromises(t *testing.T) {
	cases(t, 5_000)
	for _, half := range []string{"half", "other half"} {
		t.Run(half, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				e := drawEstate(t, drawing{})
				leaves, res := must(t, e)
				everythingFoots(t, e, leaves, res)
				orderAndRepetition(t, e, leaves, res)
				negationMirrors(t, e, leaves, res)
				reversalCancels(t, e)
			})
		})
	}
}

func everythingFoots(t *rapid.T, e *estate, leaves []leaf, res *attribution.Result) {
	byLine := map[string]costs{}
	bought, rungs := map[string]int64{}, map[string]attribution.Rung{}
	byTie := map[[4]string]attribution.Amount{}
	totals := map[string]costs{}
	for i := range leaves {
		l := &leaves[i]
		id := l.line.Account + " " + l.line.ID
		byLine[id] = byLine[id].add(l.Billed, l.Effective)
		bought[id] += l.BoughtMs
		rungs[id] = l.Rung
		totals[l.line.Currency] = totals[l.line.Currency].add(l.Billed, l.Effective)
		k := [4]string{l.line.Account, l.line.Invoice, l.line.Currency, l.Workspace}
		byTie[k] = byTie[k].Add(l.Billed)
		if i > 0 && leaves[i-1].line == l.line && !less(&leaves[i-1], l) {
			t.Fatalf("leaf %s comes after %s", ref(l), ref(&leaves[i-1]))
		}
		checkLeaf(t, l)
	}
	if len(leaves) > 0 {
		l := &leaves[len(leaves)/2]
		r, err := attribution.ParseRef(ref(l))
		if err != nil || r.Line != l.line.ID || r.Component != l.Component || r.Hour != l.Hour || r.Workspace != l.Workspace {
			t.Fatalf("leaf %+v is called %+v (%v)", l, r, err)
		}
	}
	for _, l := range e.lines {
		if got := byLine[l.Account+" "+l.ID]; got != (costs{l.Billed, l.Effective}) {
			t.Fatalf("the leaves of %+v add up to %v", l, got)
		}
		ms, rung := bought[l.Account+" "+l.ID], rungs[l.Account+" "+l.ID]
		if (rung == attribution.ByResource || rung == attribution.ByPool || l.Unused) && buys(l.Class) && l.Category != "Purchase" {
			if l.GPUMs != 0 && plausible(l.GPUMs) && ms != l.GPUMs {
				t.Fatalf("the leaves of %+v buy %d ms", l, ms)
			}
		} else if ms != 0 {
			t.Fatalf("the leaves of %+v buy %d ms by %s", l, ms, rung)
		}
		if (!plausible(l.NodeMs) || !plausible(l.GPUMs) || l.UnusableQuantity != "") && (ms != 0 || !hasUnusable(res, "S/"+l.Account+"/"+l.ID)) {
			t.Fatalf("the leaves of %+v buy %d ms, and the exceptions are %+v", l, ms, res.Exceptions)
		}
	}
	if res.Leaves != len(leaves) || res.Lines != len(e.lines) {
		t.Fatalf("%d leaves of %d lines are counted as %d of %d", len(leaves), len(e.lines), res.Leaves, res.Lines)
	}
	lines := 0
	sums := map[string]costs{}
	for _, m := range res.Matches {
		lines += m.Lines
		sums[m.Currency] = sums[m.Currency].add(m.Billed, m.Effective)
	}
	for _, v := range res.Invoices {
		sums[v.Currency] = sums[v.Currency].add(v.Bridge, attribution.Amount{})
	}
	for currency, sum := range totals {
		if sums[currency] != sum {
			t.Fatalf("the leaves add up to %v, and what has a rung and bridges to %v", sum, sums[currency])
		}
	}
	if lines != len(e.lines) {
		t.Fatalf("%d of %d lines have a rung", lines, len(e.lines))
	}
	checkInvoices(t, res, byTie)
	for _, v := range res.Invoices {
		checkDetails(t, e, res, &v)
	}
}

// plausible is what counts as stated of a line's time.
func plausible(ms int64) bool { return ms <= 1e15 && ms >= -1e15 }

func hasUnusable(res *attribution.Result, line string) bool {
	return slices.ContainsFunc(res.Exceptions, func(x attribution.Exception) bool {
		return x.Kind == attribution.QuantityUnusable && x.Subject == line && x.Lines == 1
	})
}

func ref(l *leaf) string {
	whole := l.Leaf
	whole.Line = &l.line
	return whole.Ref()
}

// checkLeaf holds a leaf to its explanation of itself.
func checkLeaf(t *rapid.T, l *leaf) {
	sign := int64(1)
	if l.BoughtMs < 0 {
		sign = -1
	}
	if b, a, u := sign*l.BoughtMs, sign*l.AllocatedMs, sign*l.UsefulMs; u < 0 || u > a || a > b {
		t.Fatalf("leaf %s: %d ms are useful of %d allocated of %d bought", ref(l), l.UsefulMs, l.AllocatedMs, l.BoughtMs)
	}
	if l.AllocatedMs != 0 && l.Component != attribution.Allocated {
		t.Fatalf("leaf %s: %d ms are allocated", ref(l), l.AllocatedMs)
	}
	if l.Weight.Sign() < 0 || l.Of.Cmp(l.Weight) < 0 {
		t.Fatalf("leaf %s weighs %s of %s", ref(l), l.Weight, l.Of)
	}
	amounts := [][2]attribution.Amount{{l.Billed, l.line.Billed}, {l.Effective, l.line.Effective}}
	if l.Rung == attribution.ByFollowing {
		amounts = amounts[:1] // the other has weights of its own
	}
	of, weight := units(l.Of), units(l.Weight)
	for _, a := range amounts {
		if weight.Sign() == 0 && !a[0].IsZero() {
			t.Fatalf("leaf %s weighs nothing and costs %s", ref(l), a[0])
		}
		off := new(big.Int).Mul(units(a[0]), of)
		off.Sub(off, new(big.Int).Mul(units(a[1]), weight))
		if off.CmpAbs(of) >= 0 && of.Sign() != 0 {
			t.Fatalf("leaf %s costs %s, which is not %s of %s of %s", ref(l), a[0], l.Weight, l.Of, a[1])
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
		case attribution.Tied, attribution.Bridged:
			target = v.Received
			if v.Attributed.Add(v.Bridge) != v.Received {
				t.Fatalf("%+v does not tie", v)
			}
		case attribution.Differs, attribution.NoInvoice, attribution.NoLines, attribution.Voided:
			if !v.Bridge.IsZero() {
				t.Fatalf("%+v is bridged", v)
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
				t.Fatalf("the leaves of %+v add up to %s", s, got)
			}
			places := int32(domain.MinorUnits(s.Currency))
			if d := s.Amount.Decimal(); !d.Equal(d.Truncate(places)) {
				t.Fatalf("%+v cannot be paid", s)
			}
			if off := s.Amount.Sub(s.Billed).Abs().Decimal().Shift(places); off.Cmp(attribution.Whole(1).Decimal()) >= 0 {
				t.Fatalf("%+v is rounded by a minor unit or more", s)
			}
			exact, minor = exact.Add(s.Billed), minor.Add(s.Amount)
		}
		if v.Status == attribution.NoLines {
			if of > 0 {
				t.Fatalf("%+v has statements", v)
			}
			continue
		}
		if exact != v.Attributed.Add(v.Bridge) {
			t.Fatalf("the statements of %+v come to %s", v, exact)
		}
		if want := target.Decimal().Round(int32(domain.MinorUnits(v.Currency))); !minor.Decimal().Equal(want) {
			t.Fatalf("the statements of %+v are for %s in all, want %s", v, minor, want)
		}
	}
}

// checkDetails compares an invoice row by row, in decimals and without the
// package's own comparison.
func checkDetails(t *rapid.T, e *estate, res *attribution.Result, v *attribution.Tie) {
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
	var bridges, after attribution.Amount
	lines := 0
	for _, d := range v.Details {
		if d.Difference != d.Received.Sub(d.Billed) || d.Difference != d.Bridge.Add(d.After) {
			t.Fatalf("%+v does not foot", d)
		}
		bridges, after, lines = bridges.Add(d.Bridge), after.Add(d.After), lines+d.Lines
	}
	if bridges.Add(after) != v.Difference || lines != v.Lines || v.Bridge.Add(v.After) != v.Difference || v.Status == attribution.Bridged && bridges != v.Bridge {
		t.Fatalf("%+v does not foot", v)
	}
}

// orderAndRepetition gives the same facts in another order, lines several
// times over, and wants the same leaves byte for byte.
func orderAndRepetition(t *rapid.T, e *estate, leaves []leaf, res *attribution.Result) {

	other := *e
	draws := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
	other.lines = shuffled(draws, append(slices.Clone(e.lines), e.lines[:len(e.lines)/2]...))
	other.invoices = shuffled(draws, append(slices.Clone(e.invoices), e.invoices...))
	for i := range other.invoices {
		other.invoices[i].Details = shuffled(draws, slices.Clone(other.invoices[i].Details))
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
	again, res2 := must(t, &other)
	if !slices.Equal(leaves, again) {
		t.Fatalf("leaves\n%v\nare otherwise\n%v", leaves, again)
	}
	if !reflect.DeepEqual(res, res2) {
		t.Fatalf("the result\n%s\nis otherwise\n%s", text(t, res), text(t, res2))
	}
}

func shuffled[T any](draws *rand.Rand, s []T) []T {
	draws.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// reversed returns a line that takes back another.
func reversed(l attribution.Line) attribution.Line {
	l.Billed, l.Effective = l.Billed.Neg(), l.Effective.Neg()
	l.NodeMs, l.GPUMs = -l.NodeMs, -l.GPUMs
	return l
}

// negationMirrors takes back a whole bill: every leaf is the opposite.
func negationMirrors(t *rapid.T, e *estate, leaves []leaf, res *attribution.Result) {
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
		l.BoughtMs, l.AllocatedMs, l.UsefulMs = -l.BoughtMs, -l.AllocatedMs, -l.UsefulMs
	}
	if !slices.Equal(leaves, mirrored) {
		t.Fatalf("leaves\n%v\nare mirrored\n%v", leaves, mirrored)
	}
	for i := range res2.Statements {
		s := &res2.Statements[i]
		s.Billed, s.Amount = s.Billed.Neg(), s.Amount.Neg()
	}
	if !slices.Equal(res.Statements, res2.Statements) {
		t.Fatalf("statements\n%v\nare mirrored\n%v", res.Statements, res2.Statements)
	}
}

// reversalCancels takes back each line in the bill that has it.
func reversalCancels(t *rapid.T, e *estate) {
	for _, l := range e.lines {
		l = reversed(l)
		l.Corrects = l.ID
		l.ID += "-back"
		e.lines = append(e.lines, l)
	}
	leaves, _ := must(t, e)
	type key struct {
		line, workspace, cluster, deployment string
		hour                                 domain.Instant
		component                            attribution.Component
	}
	sums := map[key]costs{}
	for i := range leaves {
		l := &leaves[i]
		line := l.line.ID
		if l.line.Corrects != "" {
			line = l.line.Corrects
		}
		k := key{line + l.line.Account, l.Workspace, l.Cluster, l.Deployment, l.Hour, l.Component}
		if l.Component != attribution.Bridge {
			sums[k] = sums[k].add(l.Billed, l.Effective)
		}
	}
	for k, sum := range sums {
		if sum != (costs{}) {
			t.Fatalf("%v is left with %v", k, sum)
		}
	}
}
