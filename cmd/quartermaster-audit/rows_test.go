package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/kafka/archive"
	"quartermaster/adapters/kafka/embedded"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
)

// folded is an archive of events, and the digests of the server's rows after the first and the second
// half of them. More is appended after the first half.
func folded(t testing.TB, more ...*domain.Envelope) (dir string, digests [2]string, middle domain.Position) {
	t.Helper()
	b, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := kafka.Open(t.Context(), kafka.Config{Dial: b.Dial})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(l.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}()
	if err := l.EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	a := archive.New(archive.Directory(dir), archive.Log{ID: "log"})
	rows := projections.NewMemory(domain.TopicSpecs())
	line := func(i int) domain.BillingLine {
		cost := decimal.NewFromInt(int64(i))
		return domain.BillingLine{
			LineID: fmt.Sprint("line-", i), BilledCost: cost, BillingAccountID: "acct", InvoiceID: "INV-1", InvoiceIssuerName: "cloud",
			BillingCurrency: "USD", ChargeCategory: "Usage", ServiceCategory: "Compute", ServiceName: "GPU", ContractedCost: decimal.NewNullDecimal(cost), EffectiveCost: decimal.NewNullDecimal(cost),
			BillingPeriodStart: 1_750_000_000 * domain.Second, BillingPeriodEnd: 1_752_000_000 * domain.Second,
			ChargePeriodStart: 1_750_000_000 * domain.Second, ChargePeriodEnd: 1_751_000_000 * domain.Second,
		}
	}
	for half := range 2 {
		s := kafka.NewStream(l, kafka.StreamConfig{Source: "test", Incarnation: uint64(half + 1), Encode: wire.Encode})
		for i := half * 10; i < half*10+10; i++ {
			at := domain.Instant(1_750_000_000+i*3600) * domain.Second
			for _, env := range []*domain.Envelope{
				{Workspace: "research", Cluster: "lab", Time: at, Event: &domain.JobQueued{Job: fmt.Sprint("job-", i), Class: domain.ClassTraining}},
				{Time: at, Event: &domain.BillingLineRecorded{Line: line(i)}},
				{Workspace: "research", Time: at, Event: &domain.RecommendationActuated{Recommendation: fmt.Sprint("rec-", i%2), Cluster: "lab", Actor: domain.KeyActor("k1")}},
			} {
				if err := s.Append(t.Context(), env); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, env := range more {
			if half == 1 {
				if err := s.Append(t.Context(), env); err != nil {
					t.Fatal(err)
				}
			}
		}
		firsts, end, err := l.BrokerBounds(t.Context(), domain.AllPartitions())
		if err != nil {
			t.Fatal(err)
		}
		for _, tp := range domain.AllPartitions() {
			if err := a.Seal(t.Context(), l, tp, firsts[tp], end[tp], archive.Policy{Bytes: 1 << 20}, nil); err != nil {
				t.Fatal(err)
			}
		}
		r := &projections.Runner{
			Log: l, Store: rows, Topics: domain.TopicSpecs(),
			NewDecoder: func() projections.Decoder { return new(wire.Decoder) },
		}
		if err := r.CatchUp(t.Context(), end); err != nil {
			t.Fatal(err)
		}
		if err := rows.View(t.Context(), func(v projections.View) error {
			sum, err := projections.DigestOf(v)
			digests[half] = fmt.Sprintf("%x", sum)
			if half == 0 {
				middle = v.Position()
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return dir, digests, middle
}

// lines decodes an answer of a document a line.
func lines[T any](t testing.TB, out string) (all []T) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	for dec.More() {
		var v T
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		all = append(all, v)
	}
	return all
}

// TestReplay gives the digests of the server's rows, at the end and at an earlier position.
func TestReplay(t *testing.T) {
	dir, digests, middle := folded(t)
	for i, until := range []string{middle.String(), ""} {
		code, out, errs := does("replay", dir, "--until", until, "--expect", digests[i], "-o", "json")
		if code != 0 {
			t.Fatal(code, out, errs)
		}
		ans := lines[replayed](t, out)[0]
		if ans.Digest != digests[i] || !*ans.Equal || ans.Records != int64(30*(i+1)) || ans.Rows == 0 || ans.Quarantined != int64(10*(i+1)) { // nobody signed the recommendations
			t.Errorf("%+v, want %s", ans, digests[i])
		}
	}
	if code, _, errs := does("replay", dir, "--expect", digests[0]); code != 1 || !strings.Contains(errs, "another digest") {
		t.Errorf("another digest exits %d: %s", code, errs)
	}
	if code, _, errs := does("replay", dir, "--until", "qm.books/0=7"); code != 2 || !strings.Contains(errs, "beyond the end") {
		t.Errorf("beyond the end exits %d: %s", code, errs)
	}
	if code, _, errs := does("replay", dir, "--until", "then"); code != 2 || !strings.Contains(errs, "neither a position nor a time") {
		t.Errorf("no point exits %d: %s", code, errs)
	}

	for until, want := range map[string]int64{"2200-01-01": 60, "2200-01": 60, "1980-01-01": 0} {
		code, out, errs := does("replay", dir, "--until", until, "-o", "json")
		if code != 0 || lines[replayed](t, out)[0].Records != want {
			t.Errorf("until %s: %d, %s %s, want %d records", until, code, out, errs, want)
		}
	}

	code, out, errs := does("as-of", dir, "billing_lines", "-o", "json", "--at", middle.String())
	rows := lines[row](t, out)
	if code != 0 || len(rows) != 10 || rows[0].Table != "billing_lines" || len(rows[0].Row) == 0 {
		t.Errorf("as-of: %d, %d rows, %s", code, len(rows), errs)
	}
	if code, _, errs := does("as-of", dir, "nothing"); code != 2 {
		t.Errorf("a table that there is not exits %d: %s", code, errs)
	}
	code, out, errs = does("diff", dir, "--from", middle.String(), "-o", "json")
	added := 0
	for _, r := range lines[row](t, out) {
		if r.Table == "billing_lines" && r.Change == "added" {
			added++
		}
	}
	if code != 0 || added != 10 {
		t.Errorf("diff: %d, %d lines added, %s", code, added, errs)
	}
	if code, out, _ = does("diff", dir, "--from", "0", "--limit", "3"); code != 5 || strings.Count(out, "\n") != 3 {
		t.Errorf("diff with a limit exits %d with %q", code, out)
	}
	if code, out, _ = does("diff", dir, "--from", "", "--to", ""); code != 0 || out != "" {
		t.Errorf("nothing differs: %d, %q", code, out)
	}
}

func TestTrail(t *testing.T) {
	dir, _, _ := folded(t)
	for flag, want := range map[string]int{
		"--recommendation=rec-1": 10, "--workspace=research": 40, "--cluster=lab": 20, "--invoice=INV-1": 20, "--line=line-7": 1,
	} {
		code, out, errs := does("trail", dir, flag, "-o", "json")
		steps := lines[step](t, out)
		if code != 0 || len(steps) != want || steps[0].ID == "" || steps[0].Source != "test" {
			t.Errorf("%s: %d, %d steps, %s", flag, code, len(steps), errs)
		}
	}
	// A removal names its line alone. It is of the invoice, too.
	dir, _, _ = folded(t,
		&domain.Envelope{Time: 1_752_000_000 * domain.Second, Event: &domain.BillingLineRemoved{
			InvoiceIssuerName: "cloud", BillingAccountID: "acct", LineID: "line-7",
			BillingPeriod: domain.Interval{From: 1_750_000_000 * domain.Second, To: 1_752_000_000 * domain.Second},
		}},
		&domain.Envelope{Time: 1_752_000_000 * domain.Second, Event: &domain.BillingLineRemoved{
			InvoiceIssuerName: "cloud", BillingAccountID: "other", LineID: "line-8",
			BillingPeriod: domain.Interval{From: 1_750_000_000 * domain.Second, To: 1_752_000_000 * domain.Second},
		}})
	for flag, want := range map[string]int{"--invoice=INV-1": 21, "--line=line-7": 2} {
		code, out, errs := does("trail", dir, flag, "-o", "json")
		steps := lines[step](t, out)
		if code != 0 || len(steps) != want || steps[len(steps)-1].Type != "BillingLineRemoved" {
			t.Errorf("%s: %d, %d steps, %s", flag, code, len(steps), errs)
		}
	}
	if code, _, errs := does("trail", dir, "--line=other"); code != 1 {
		t.Errorf("no event exits %d: %s", code, errs)
	}
	if code, _, _ := does("trail", dir); code != 2 {
		t.Errorf("about nothing exits %d", code)
	}
}

func TestSample(t *testing.T) {
	dir, _, _ := folded(t)
	var b strings.Builder
	b.WriteString("\ufeffx_LineId,BilledCost\n")
	for i := range 20 {
		fmt.Fprintf(&b, "line-%d,%d.25\n", i, i-5)
	}
	file := write(t, t.TempDir(), "june.csv", []byte(b.String()))
	draw := func(args ...string) []item {
		t.Helper()
		code, out, errs := does(append([]string{"sample", file, "-o", "json"}, args...)...)
		if code != 0 {
			t.Fatal(code, errs)
		}
		return lines[item](t, out)
	}
	first := draw("--seed", "a", "--n", "6", "--archive", dir)
	if len(first) != 6 {
		t.Fatalf("%d rows", len(first))
	}
	for _, it := range first {
		if len(it.Trail) != 1 || it.Trail[0].Type != "BillingLineRecorded" || it.Values["x_LineId"] != fmt.Sprint("line-", it.Row-1) {
			t.Errorf("%+v", it)
		}
	}
	same := func(x, y item) bool { return x.Row == y.Row && x.Hits == y.Hits }
	if again := draw("--seed", "a", "--n", "6"); !slices.EqualFunc(again, first, same) {
		t.Error("the same seed draws another sample")
	}
	if other := draw("--seed", "b", "--n", "6"); slices.EqualFunc(other, first, same) {
		t.Error("another seed draws the same sample")
	}
	if all := draw("--seed", "a", "--n", "100"); len(all) != 20 {
		t.Errorf("%d of 20 rows", len(all))
	}
	hits := 0
	for _, it := range draw("--seed", "a", "--n", "8", "--by", "BilledCost") {
		hits += it.Hits
	}
	if hits != 8 {
		t.Errorf("%d hits, want 8", hits)
	}
	for line, says := range map[string]string{
		"sample " + file + " --seed a --by Other":               `no column "Other"`,
		"sample " + file + " --seed a --by x_LineId":            "not an amount",
		"sample " + file + " --seed a --n 0":                    "want 1 to",
		"sample " + file:                                        "seed",
		"sample " + file + " --seed a --archive " + t.TempDir(): "archive.json is missing",
	} {
		if code, _, errs := does(strings.Fields(line)...); code != 2 || !strings.Contains(errs, says) {
			t.Errorf("%s: %d, %s", line, code, errs)
		}
	}
}

// TestSampleCurrency: amounts in several currencies are never added.
func TestSampleCurrency(t *testing.T) {
	file := write(t, t.TempDir(), "june.csv", []byte("x_LineId,BilledCost,BillingCurrency,x_BooksBilledCost,x_BooksCurrency\n"+
		"a,1,EUR,1,EUR\nb,100000,JPY,600,EUR\nc,2,EUR,2,EUR\nd,,,,\n"))
	if code, _, errs := does("sample", file, "--seed", "a", "--by", "BilledCost"); code != 2 ||
		!strings.Contains(errs, "BilledCost in EUR, JPY, which cannot be added") {
		t.Errorf("several currencies: %d, %s", code, errs)
	}
	if code, _, errs := does("sample", file, "--seed", "a", "--by", "BilledCost", "--currency", "USD"); code != 2 ||
		!strings.Contains(errs, `no row in "USD"; it has EUR, JPY`) {
		t.Errorf("a currency that there is not: %d, %s", code, errs)
	}
	for _, args := range [][]string{
		{"--by", "BilledCost", "--currency", "EUR"}, {"--by", "x_BooksBilledCost"}, {"--currency", "EUR"}, nil,
	} {
		code, out, errs := does(append([]string{"sample", file, "--seed", "a", "--n", "90", "-o", "json"}, args...)...)
		hits := map[int64]int{}
		for _, it := range lines[item](t, out) {
			hits[it.Row] = it.Hits
		}
		want := map[int64]int{1: 1, 3: 1}
		switch {
		case args == nil:
			want = map[int64]int{1: 1, 2: 1, 3: 1, 4: 1}
		case args[1] == "BilledCost":
			want = map[int64]int{1: 30, 3: 60}
		case args[0] == "--by": // 90 draws from 603 EUR, of which 600 are in the second row
			if hits[2] < 89 {
				t.Errorf("%v: %v", args, hits)
			}
			continue
		}
		if code != 0 || !maps.Equal(hits, want) {
			t.Errorf("%v: %d, %v, %s, want %v", args, code, hits, errs, want)
		}
	}
}

// TestDrawAmounts: there are n hits, and a row of at least sum/n has at least as many as it has whole
// intervals.
func TestDrawAmounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cents := rapid.SliceOfN(rapid.Int64Range(-10_000, 10_000), 1, 40).Draw(t, "cents")
		n := rapid.IntRange(1, 30).Draw(t, "n")
		var amounts []*big.Rat
		sum := int64(0)
		for _, c := range cents {
			amounts = append(amounts, big.NewRat(c, 100))
			sum += max(c, -c)
		}
		hits := drawAmounts(amounts, n, generator(rapid.String().Draw(t, "seed")))
		all := 0
		for i, c := range cents {
			all += hits[i]
			if sum > 0 {
				least := int(max(c, -c) * int64(n) / sum)
				if hits[i] < least || hits[i] > least+1 {
					t.Fatalf("row %d of %d cents of %d is hit %d times by %d draws", i, c, sum, hits[i], n)
				}
			}
		}
		if want := n; sum > 0 && all != want || sum == 0 && all != 0 {
			t.Fatalf("%d hits, want %d", all, want)
		}
	})
}

func TestDiffExports(t *testing.T) {
	dir := t.TempDir()
	a := write(t, dir, "a.csv", []byte("x,y\n1,2\n1,2\n3,4\n"))
	b := write(t, dir, "b.csv", []byte("x,y\n3,4\n1,2\n5,6\n"))
	c := write(t, dir, "c.csv", []byte("x,z\n"))
	if code, out, errs := does("diff-exports", a, b); code != 1 || out != "-1  1,2\n+1  5,6\n" {
		t.Errorf("%d, %q, %s", code, out, errs)
	}
	code, out, _ := does("diff-exports", a, b, "-o", "json")
	if rows := lines[changed](t, out); code != 1 || len(rows) != 2 || rows[0].Change != "removed" || rows[1].Values["x"] != "5" {
		t.Errorf("%d, %+v", code, rows)
	}
	if code, out, _ := does("diff-exports", a, a); code != 0 || out != "" {
		t.Errorf("the same file differs: %d, %q", code, out)
	}
	if code, _, _ := does("diff-exports", a, c); code != 2 {
		t.Errorf("other columns exit %d", code)
	}
	if code, _, _ := does("diff-exports", a, write(t, dir, "bad.csv", []byte("x,y\n1\n"))); code != 2 {
		t.Errorf("a broken file exits %d", code)
	}
}
