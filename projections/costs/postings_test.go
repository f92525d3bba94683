package costs_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// exactly sums allocations and postings by key with big decimals: it shares no code with the difference.
type exactly map[string][2]decimal.Decimal

func (e exactly) add(key string, billed, effective attribution.Amount) {
	s := e[key]
	e[key] = [2]decimal.Decimal{s[0].Add(billed.Decimal()), s[1].Add(effective.Decimal())}
}

func (e exactly) text() (lines []string) {
	for k, s := range e {
		if !s[0].IsZero() || !s[1].IsZero() {
			lines = append(lines, fmt.Sprintf("%s %s %s", k, s[0], s[1]))
		}
	}
	slices.Sort(lines)
	return lines
}

func allocated(t interface{ Fatal(...any) }, d *costs.Division) exactly {
	e := exactly{}
	if err := d.Each(costs.AllocationFilter{}, func(a *costs.Allocation) error {
		e.add(a.Currency+" "+a.Invoice+" "+a.Allocation, a.Billed, a.Effective)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return e
}

// later draws events that change May after it was divided: late lines, corrections, statements with other amounts or
// currencies, lines that cost nothing any more, late samples, corrected usage, policies.
func later(t *rapid.T, n int) (envs []domain.Envelope) {
	ids := []string{"01-n1", "02-n2", "05-pool", "07-tax", "08-credit", "10-open", "new-1", "new-2"}
	at := storetest.MayBill.To + domain.Instant(n)*domain.Day
	for i := range rapid.IntRange(1, 4).Draw(t, "events") {
		cost := rapid.SampledFrom([]string{"0", "1", "-1", "0.000000000000000001", "7.77", "10.01", "123.456789"}).Draw(t, "cost")
		id := rapid.SampledFrom(ids).Draw(t, "line")
		switch rapid.SampledFrom([]string{"line", "correction", "currency", "moved", "sample", "usage", "invoice"}).Draw(t, "kind") {
		case "line":
			env := recorded(billLine(id, cost, func(l *domain.BillingLine) { l.ResourceID = "r-1" }))
			env.Source, env.Time = fmt.Sprintf("focus/%d-%d", n, i), at
			envs = append(envs, env)
		case "currency":
			env := recorded(billLine(id, cost, func(l *domain.BillingLine) { l.BillingCurrency, l.InvoiceID = "EUR", "i-eur" }))
			env.Source, env.Time = fmt.Sprintf("focus/%d-%d", n, i), at
			envs = append(envs, env)
		case "moved":
			env := recorded(billLine(id, cost, func(l *domain.BillingLine) { l.ResourceID, l.InvoiceID = "r-1", "i-2" }))
			env.Source, env.Time = fmt.Sprintf("focus/%d-%d", n, i), at
			envs = append(envs, env)
		case "correction":
			envs = append(envs, domain.Envelope{Source: fmt.Sprintf("focus/%d-%d", n, i), Time: at, Event: &domain.BillingLineCorrected{
				Line: billLine(fmt.Sprintf("fix-%d-%d", n, i), cost), Corrects: id, Reason: "price"}})
		case "sample":
			span := storetest.Span(60*i, 60*i+30)
			envs = append(envs, domain.Envelope{Source: fmt.Sprintf("reporter/late-%d", n), Cluster: "c", Time: span.To, Event: storetest.Sample("n3", span,
				storetest.Seen{ID: storetest.GPU("c", "n3", 1), Workspace: "b", Deployment: "train", Activity: 300})})
		case "usage":
			envs = append(envs, storetest.Root.Sign(domain.Envelope{Cluster: "c", Time: at, Event: &domain.UsageCorrected{
				Correction: fmt.Sprintf("u-%d-%d", n, i), Node: "n1", GPU: storetest.GPU("c", "n1", 1), Workspace: "a", Deployment: "chat",
				Interval: storetest.Span(10*i, 10*i+7), Reason: "wrong label",
			}}))
		case "invoice":
			envs = append(envs, domain.Envelope{Source: fmt.Sprintf("focus/i-%d-%d", n, i), Time: at, Event: &domain.InvoiceReceived{
				InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "i-1", Total: *storetest.USD(rapid.SampledFrom([]string{"27.36", "27.37", "100"}).Draw(t, "total")),
				Status: "Issued", BillingPeriod: storetest.MayBill}})
		}
	}
	return envs
}

// What was closed and what was posted since are, for each allocation and invoice, the division of today, whatever happens and
// however often books are closed between. Postings are read back as they were written.
func TestClosedAndPostedIsToday(t *testing.T) {
	long.Check(t, 100, 20_000, func(t *rapid.T) {
		l := house()
		divide := func() (d *costs.Division, why *costs.Changes) {
			m, err := l.Fold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := m.View(t.Context(), func(v projections.View) (err error) {
				if d, err = costs.Divide(v, storetest.MayBill, 1<<30); err == nil {
					why, err = costs.ReadChanges(v, storetest.MayBill, storetest.MayBill.To)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return d, why
		}
		closed, _ := divide()
		sums := exactly{}
		for k, s := range allocated(t, closed) {
			sums[k] = s
		}
		var posted []costs.Posting
		june := projections.BillingMonth(storetest.MayBill.To)
		for n := range rapid.IntRange(1, 3).Draw(t, "periods") {
			l.Append(later(t, n)...)
			now, why := divide()
			some, err := costs.Difference(closed, posted, now, june, why)
			if err != nil {
				t.Fatal(err)
			}
			for i := range some {
				p := &some[i]
				if p.Billed.IsZero() && p.Effective.IsZero() || p.Type == "" || p.Causes == nil {
					t.Errorf("posting %+v", p)
				}
				sums.add(p.Currency+" "+p.Invoice+" "+p.Allocation, p.Billed, p.Effective)
			}
			if got, want := sums.text(), allocated(t, now).text(); !slices.Equal(got, want) {
				t.Fatalf("period %d: closed and posted\n%q\nwant\n%q", n, got, want)
			}
			var b bytes.Buffer
			if err := costs.WritePostings(&b, some); err != nil {
				t.Fatal(err)
			}
			again, err := costs.ReadPostings(b.Bytes())
			if err != nil || exportedPostings(t, again) != exportedPostings(t, some) {
				t.Fatalf("read %v, wrote %v: %v", again, some, err)
			}
			var twice bytes.Buffer
			if err := costs.WritePostings(&twice, again); err != nil || !bytes.Equal(b.Bytes(), twice.Bytes()) {
				t.Fatalf("what was read is written as\n%s\nwant\n%s: %v", twice.Bytes(), b.Bytes(), err)
			}
			if none, err := costs.Difference(closed, slices.Concat(posted, again), now, june, why); err != nil || len(none) > 0 {
				t.Fatalf("posted twice: %v, %v", none, err)
			}
			posted = append(posted, again...)
		}
	})
}

// exportedPostings are postings in JSON, and their rows.
func exportedPostings(t interface{ Fatal(...any) }, all []costs.Posting) string {
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := costs.ExportPostings(all, costs.AllocationFilter{}, nil, func(row []string) error {
		text = fmt.Appendf(text, "\n%q", row)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A line that moves to another invoice, with another amount or the same, is taken off the one and put on the other. A
// line that moves back is taken off the other again.
func TestPostingsFollowTheInvoice(t *testing.T) {
	for name, c := range map[string]struct{ amount, off, on string }{
		"another amount": {"110", "-100", "110"}, "the same amount": {"100", "-100", "100"},
	} {
		t.Run(name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(recorded(billLine("1", "100")))
			closed := divided(t, l)
			state := func(day int, amount, invoice string) {
				env := recorded(billLine("1", amount, func(l *domain.BillingLine) { l.InvoiceID = invoice }))
				env.Source, env.Time = fmt.Sprint("focus/", day), storetest.MayBill.To+domain.Instant(day)*domain.Day
				l.Append(env)
			}
			post := func(before []costs.Posting) (posted []costs.Posting, sum map[string]string) {
				posted, err := costs.Difference(closed, before, divided(t, l), projections.BillingMonth(storetest.MayBill.To), nil)
				if err != nil {
					t.Fatal(err)
				}
				sum = map[string]string{}
				for _, p := range posted {
					sum[p.Invoice] = p.Billed.String()
					if p.Type != costs.PostedCorrection {
						t.Errorf("%s of %s on %s, want a correction", p.Type, p.Billed, p.Invoice)
					}
				}
				return posted, sum
			}
			state(1, c.amount, "i-2")
			posted, sum := post(nil)
			if want := map[string]string{"i-1": c.off, "i-2": c.on}; !maps.Equal(sum, want) {
				t.Errorf("posted %v, want %v", sum, want)
			}
			state(40, "100", "i-1")
			if _, sum = post(posted); !maps.Equal(sum, map[string]string{"i-1": "100", "i-2": "-" + c.on}) {
				t.Errorf("posted %v when it moved back", sum)
			}
		})
	}
}

// The type and the causes of what is posted.
func TestPostingsNameTheirCause(t *testing.T) {
	late := recorded(billLine("new", "5", func(l *domain.BillingLine) { l.ResourceID = "r-1" }))
	late.Time = storetest.MayBill.To + domain.Day
	restated := recorded(billLine("05-pool", "9"))
	restated.Source = "focus/again"
	at := storetest.MayBill.To + domain.Day
	for name, c := range map[string]struct {
		env   domain.Envelope
		typ   costs.PostingType
		line  string
		cause string
	}{
		"a late line":     {late, costs.PostedLate, "new", "BillingLineRecorded p|1|new"},
		"another amount":  {restated, costs.PostedCorrection, "05-pool", "BillingLineRecorded p|1|05-pool"},
		"corrected usage": {storetest.Root.Sign(domain.Envelope{Cluster: "c", Time: at, Event: &domain.UsageCorrected{Correction: "u", Node: "n1", GPU: storetest.GPU("c", "n1", 1), Workspace: "z", Interval: storetest.Span(0, 60), Reason: "x"}}), costs.PostedReattribution, "01-n1", "UsageCorrected c/n1"},
		"a removed line": {domain.Envelope{Source: "focus/again", Time: at, Event: &domain.BillingLineRemoved{
			InvoiceIssuerName: "p", BillingAccountID: "1", LineID: "05-pool", BillingPeriod: storetest.MayBill,
		}}, costs.PostedReversal, "05-pool", "BillingLineRemoved p|1|05-pool"},
		"a policy of then": {storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: at, Event: &domain.PolicySet{Policy: "idle", Kind: domain.PolicyIdleCost, Value: "platform", EffectiveFrom: storetest.Start - domain.Day}}), costs.PostedReattribution, "01-n1", "PolicySet home/idle"},
	} {
		t.Run(name, func(t *testing.T) {
			l := house()
			var closed *costs.Division
			storetest.FoldView(t, l, func(v projections.View) {
				var err error
				if closed, err = costs.Divide(v, storetest.MayBill, 1<<30); err != nil {
					t.Fatal(err)
				}
			})
			l.AppendAt(c.env, at)
			// A rule about other lines is no cause, and neither is an operator who decided nothing.
			l.AppendAt(storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: at, Event: &domain.MappingRuleSet{
				Rule: "others", Columns: map[string]string{"ServiceName": "Nothing"}, ToWorkspace: "a", EffectiveFrom: storetest.Start - domain.Day}}), at)
			l.AppendAt(storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: at, Event: &domain.OperatorRegistered{
				Operator: "new", PublicKey: bytes.Repeat([]byte{7}, ed25519.PublicKeySize), Role: domain.RoleFinance}}), at)
			storetest.FoldView(t, l, func(v projections.View) {
				now, err := costs.Divide(v, storetest.MayBill, 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				why, err := costs.ReadChanges(v, storetest.MayBill, at-1)
				if err != nil {
					t.Fatal(err)
				}
				posted, err := costs.Difference(closed, nil, now, projections.BillingMonth(at), why)
				if err != nil {
					t.Fatal(err)
				}
				found := false
				for _, p := range posted {
					if p.Line == c.line {
						found = true
						if p.Type != c.typ || !slices.Equal(p.Causes, []string{c.cause}) || p.Period != "2026-05" || p.Books != "2026-06" {
							t.Errorf("%s of %s for %v in %s %s, want %s for %s", p.Type, p.Allocation, p.Causes, p.Period, p.Books, c.typ, c.cause)
						}
					}
				}
				if !found {
					t.Errorf("line %s is not posted: %v", c.line, posted)
				}
			})
		})
	}
}

// What was appended at the very time of the last event that was closed may have come after it. It is a cause.
func TestCausesOfTheSameInstant(t *testing.T) {
	at := storetest.MayBill.To + domain.Day
	restated := recorded(billLine("05-pool", "9"))
	restated.Source = "focus/again"
	policy := storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: at, Event: &domain.PolicySet{
		Policy: "idle", Kind: domain.PolicyIdleCost, Value: "platform", EffectiveFrom: storetest.Start - domain.Day}})
	for line, c := range map[string]struct {
		env   domain.Envelope
		cause string
	}{"05-pool": {restated, "BillingLineRecorded p|1|05-pool"}, "01-n1": {policy, "PolicySet home/idle"}} {
		l := house()
		var closed *costs.Division
		var err error
		storetest.FoldView(t, l, func(v projections.View) { closed, err = costs.Divide(v, storetest.MayBill, 1<<30) })
		if err != nil {
			t.Fatal(err)
		}
		l.AppendAt(c.env, at)
		storetest.FoldView(t, l, func(v projections.View) {
			now, err := costs.Divide(v, storetest.MayBill, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			why, err := costs.ReadChanges(v, storetest.MayBill, at)
			if err != nil {
				t.Fatal(err)
			}
			posted, err := costs.Difference(closed, nil, now, projections.BillingMonth(at), why)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(posted, func(p costs.Posting) bool { return p.Line == line })
			if i < 0 || !slices.Contains(posted[i].Causes, c.cause) {
				t.Errorf("line %s: %+v", line, posted)
			}
		})
	}
}

// TestTakingBackIsNoRounding takes back an earlier posting of an allocation that neither side has.
func TestTakingBackIsNoRounding(t *testing.T) {
	l := house()
	closed := divided(t, l)
	correct := func(n int, workspace string) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Cluster: "c", Time: storetest.MayBill.To + domain.Instant(n)*domain.Day, Event: &domain.UsageCorrected{
			Correction: "u", Node: "n1", GPU: storetest.GPU("c", "n1", 1), Workspace: workspace, Interval: storetest.Span(0, 60), Reason: "x"}})
	}
	l.Append(correct(1, "z"))
	june, err := costs.Difference(closed, nil, divided(t, l), projections.BillingMonth(storetest.MayBill.To), nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Append(correct(40, "y"))
	july, err := costs.Difference(closed, june, divided(t, l), projections.BillingMonth(storetest.MayBill.To+35*domain.Day), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range july {
		if p.Rounding && p.Billed.Abs().Cmp(attribution.Whole(1)) > 0 {
			t.Errorf("%s of %s is posted as rounding", p.Billed, p.Allocation)
		}
	}
}

// TestTaxPolicyIsACause names the policy for the past that a posting follows from.
func TestTaxPolicyIsACause(t *testing.T) {
	l := house()
	closed := divided(t, l)
	at := storetest.MayBill.To + domain.Day
	l.AppendAt(storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: at, Event: &domain.PolicySet{
		Policy: "vat", Kind: domain.PolicyRecoverableTax, Share: decimal.NewNullDecimal(storetest.Dec("1")),
		Columns: map[string]string{"InvoiceIssuerName": "p"}, EffectiveFrom: storetest.Start - domain.Day,
	}}), at)
	storetest.FoldView(t, l, func(v projections.View) {
		why, err := costs.ReadChanges(v, storetest.MayBill, at-1)
		if err != nil {
			t.Fatal(err)
		}
		now, err := costs.Divide(v, storetest.MayBill, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		posted, err := costs.Difference(closed, nil, now, projections.BillingMonth(at), why)
		if err != nil || len(posted) == 0 {
			t.Fatal(posted, err)
		}
		for _, p := range posted {
			if len(p.Causes) == 0 {
				t.Errorf("%s %s of %s has no cause", p.Type, p.Effective, p.Line)
				break
			}
		}
	})
}

// TestCausesInAPacificMonth names a correction in the last hours of a month that ends later than that of UTC.
func TestCausesInAPacificMonth(t *testing.T) {
	l := storetest.NewLog()
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1000000"), storetest.Start-10*domain.Day),
		domain.Envelope{Workspace: "own", Cluster: "c", Time: storetest.Start - 9*domain.Day, Event: &domain.ClusterRegistered{Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1"}},
	)
	node := storetest.Node("c", "n1", "H100 80GB", 1, storetest.Start-9*domain.Day)
	node.Event.(*domain.NodeRegistered).ResourceID = "r-1"
	l.Append(node)
	last := domain.Interval{From: storetest.MayBill.To + 6*domain.Hour, To: storetest.MayBill.To + 7*domain.Hour}
	l.Append(domain.Envelope{Source: "reporter/n1", Cluster: "c", Time: last.To, Event: storetest.Sample("n1", last, storetest.Seen{ID: storetest.GPU("c", "n1", 0), Workspace: "a", Deployment: "chat", Activity: 500})},
		recorded(billLine("1", "2", func(b *domain.BillingLine) {
			b.BillingPeriodStart, b.BillingPeriodEnd = storetest.MayBill.From+7*domain.Hour, storetest.MayBill.To+7*domain.Hour
			b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID, b.ServiceCategory = last.From, last.To, "r-1", "Compute"
		})))
	closed := divided(t, l)
	at := storetest.MayBill.To + 2*domain.Day
	l.Append(storetest.Root.Sign(domain.Envelope{Cluster: "c", Time: at, Event: &domain.UsageCorrected{
		Correction: "u", Node: "n1", GPU: storetest.GPU("c", "n1", 0), Workspace: "z", Interval: last, Reason: "x"}}))
	now := divided(t, l)
	storetest.FoldView(t, l, func(v projections.View) {
		why, err := costs.ReadChanges(v, storetest.MayBill, at-1)
		if err != nil {
			t.Fatal(err)
		}
		posted, err := costs.Difference(closed, nil, now, projections.BillingMonth(at), why)
		if err != nil || len(posted) == 0 {
			t.Fatal(posted, err)
		}
		for _, p := range posted {
			if len(p.Causes) == 0 {
				t.Errorf("%s %s of %s has no cause", p.Type, p.Billed, p.Allocation)
			}
		}
	})
}

// The notes about an invoice add up to what was posted about it: 12.34 late for four workspaces are no 3.09 for each. What
// takes it back takes back each note.
func TestNotesFootToInvoices(t *testing.T) {
	l := storetest.NewLog()
	serviceRules(l)
	closed := divided(t, l)
	june := projections.BillingMonth(storetest.MayBill.To)
	bill := func(source, billed string, at domain.Instant) {
		for i, w := range []string{"a", "b", "c", "a"} { // a has two lines of one invoice
			env := recorded(billLine(fmt.Sprint("late", i), billed, func(l *domain.BillingLine) { l.ServiceName = "S" + w }))
			env.Source, env.Time = source, env.Time+at
			l.Append(env)
		}
	}
	notes := func(posted []costs.Posting) (out []string) {
		of, err := costs.Notes(posted)
		if err != nil {
			t.Fatal(err)
		}
		for k, m := range of {
			out = append(out, fmt.Sprint(k.Month, " ", k.Workspace, " ", m, " ", k.Currency))
		}
		slices.Sort(out)
		return out
	}
	bill("focus/p", "3.085", 0)
	late, err := costs.Difference(closed, nil, divided(t, l), june, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := notes(late), []string{"2026-05 a 6.17 USD", "2026-05 b 3.09 USD", "2026-05 c 3.08 USD"}; !slices.Equal(got, want) {
		t.Errorf("notes %v, want %v", got, want)
	}
	bill("focus/again", "0", domain.Hour)
	back, err := costs.Difference(closed, late, divided(t, l), june, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := notes(back), []string{"2026-05 a -6.17 USD", "2026-05 b -3.09 USD", "2026-05 c -3.08 USD"}; !slices.Equal(got, want) {
		t.Errorf("notes %v, want %v", got, want)
	}
}

// A closed month that another method divides otherwise is restated cause by cause: what the method moves is posted as its
// own, a late line and a restated one are posted as they are, and together they are the difference.
func TestMethodIsACause(t *testing.T) {
	l := house()
	closed := divided(t, l)
	closed.Methods.Attribution = "attribution/0"
	at := storetest.MayBill.To + domain.Day
	late, restated := recorded(billLine("new", "5", func(l *domain.BillingLine) { l.ResourceID = "r-1" })), recorded(billLine("05-pool", "9"))
	late.Time, restated.Time, restated.Source = at, at, "focus/again"
	// The other method holds the first hour to be of workspace z.
	l.Append(late, restated, storetest.Root.Sign(domain.Envelope{Cluster: "c", Time: at, Event: &domain.UsageCorrected{
		Correction: "u", Node: "n1", GPU: storetest.GPU("c", "n1", 1), Workspace: "z", Interval: storetest.Span(0, 60), Reason: "x",
	}}))
	now := divided(t, l)
	posted, err := costs.Difference(closed, nil, now, projections.BillingMonth(at), nil)
	if err != nil {
		t.Fatal(err)
	}
	types, sum, moved := map[string]costs.PostingType{}, decimal.Zero, decimal.Zero
	for i := range posted {
		p := &posted[i]
		types[p.Line] = p.Type
		sum = sum.Add(p.Billed.Decimal())
		if p.Type == costs.PostedMethod {
			if moved = moved.Add(p.Billed.Decimal()); !slices.Equal(p.Causes, []string{"method attribution/0 to " + now.Methods.Attribution}) {
				t.Errorf("caused by %v", p.Causes)
			}
		}
	}
	if types["01-n1"] != costs.PostedMethod || types["new"] != costs.PostedLate || types["05-pool"] != costs.PostedCorrection {
		t.Errorf("posted as %v", types)
	}
	total := func(d *costs.Division) (sum decimal.Decimal) {
		for _, in := range d.Statements {
			sum = sum.Add(in.Billed.Decimal())
		}
		return sum
	}
	if want := total(now).Sub(total(closed)); !moved.IsZero() || !sum.Equal(want) {
		t.Errorf("posted %s, of it %s by the method, want %s", sum, moved, want)
	}
}
