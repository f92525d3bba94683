package attribution_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

func TestExceptions(t *testing.T) {
	e := pool()
	e.add("a", attribution.OnDemand, "i-1", "30", 2)
	same := e.add("a2", attribution.OnDemand, "i-1", "30", 2)
	same.NodeMs = 2 * hour
	e.add("gone", attribution.OnDemand, "i-9", "1", 2).SKU = ""
	conflict := *e.add("once", attribution.Shared, "", "5", 0)
	conflict.Billed = money("7")
	e.lines = append(e.lines, conflict, conflict)
	e.nodes = append(e.nodes, attribution.Node{Cluster: "c", Node: "n3", Account: "x", Resource: "i-3", GPUs: 2, Registered: true, Service: e.nodes[0].Service})
	e.hours[0].Parts = append(e.hours[0].Parts, attribution.Part{Component: attribution.Idle, GPUMs: hour})
	e.hours[0].Owner = ""
	_, res, err := e.run()
	if err != nil {
		t.Fatal(err)
	}
	type x struct {
		kind    attribution.Kind
		subject string
		hours   int64
		lines   int
		billed  string
	}
	var got []x
	for _, g := range res.Exceptions {
		got = append(got, x{g.Kind, g.Subject, g.GPUMs / hour, g.Lines, g.Billed.String()})
	}
	want := []x{
		{attribution.BilledNeverSeen, "c/n1", 1, 0, "0"}, // two hours bought twice, three in service
		{attribution.BilledNeverSeen, "x/i-9", 0, 1, "1"},
		{attribution.DuplicateLooking, "x/i-1", 0, 1, "30"},
		{attribution.LineConflict, "S/x/once", 0, 1, "7"},
		{attribution.OwnerMissing, "c", 1, 0, "0"},
		{attribution.RegisteredNeither, "c/n3", 4, 0, "0"},
		{attribution.SeenNeverBilled, "c/n2", 2, 0, "0"},
		{attribution.UnmatchedLine, "x/i-9", 0, 1, "1"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("exceptions %v\nwant %v", got, want)
	}
}

// Two lines of different charge periods for one machine: neither buys more than was in service in
// its own period, but both together do.
func TestOverlappingPeriods(t *testing.T) {
	e := pool()
	e.add("both", attribution.OnDemand, "i-1", "2", 2)
	e.add("first", attribution.Spot, "i-1", "1", 1).ChargePeriod.To = start + domain.Hour
	e.add("other", attribution.OnDemand, "i-2", "2", 2)
	_, res, err := e.run()
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Exceptions) != 1 || res.Exceptions[0].Kind != attribution.BilledNeverSeen || res.Exceptions[0].Subject != "c/n1" || res.Exceptions[0].GPUMs != hour {
		t.Errorf("exceptions %+v, want an hour too many for c/n1", res.Exceptions)
	}

	// Lines of two classes that share machines: the surplus of one is bought by the other.
	e = pool()
	e.nodes[1].Billing = domain.BillingSpot
	e.add("spot", attribution.Spot, "", "2", 2)
	e.add("rest", attribution.OnDemand, "", "2", 2)
	if _, res, err = e.run(); err != nil || len(res.Exceptions) != 0 {
		t.Errorf("exceptions %+v (%v), want none", res.Exceptions, err)
	}
	// A line without a stated quantity, for a time without observations, does not buy too much
	// time.
	unmeasured := e.lines[0]
	unmeasured.ID, unmeasured.NodeMs, unmeasured.ChargePeriod = "unmeasured", 0, domain.Interval{From: start - domain.Hour, To: start}
	e.nodes[1].Service.From -= domain.Hour
	e.lines = append(e.lines, unmeasured)
	if _, res, err = e.run(); err != nil || len(res.Exceptions) != 0 {
		t.Errorf("exceptions %+v (%v), want none", res.Exceptions, err)
	}
	e.lines = e.lines[:2]

	// The half of an hour before a bill begins does not count as missing.
	for i := range e.lines {
		e.lines[i].ChargePeriod.From += domain.Hour / 2
		e.lines[i].NodeMs = 3 * hour / 2
	}
	if _, res, err = e.run(); err != nil || len(res.Exceptions) != 0 {
		t.Errorf("exceptions %+v (%v), want none", res.Exceptions, err)
	}
	e.lines[0].ChargePeriod.From = start
	e.lines[0].NodeMs = hour
	e.lines = e.lines[:1]
	if _, res, err = e.run(); err != nil || len(res.Exceptions) != 2 || res.Exceptions[0].Detail != "in service, and no line of its account covers the time" || res.Exceptions[1].Subject != "x/r/big" || res.Exceptions[1].GPUMs != hour {
		t.Errorf("exceptions %+v (%v), want n1 and an hour of the pool", res.Exceptions, err)
	}
}

func TestTies(t *testing.T) {
	row := func(id, amount string) attribution.InvoiceDetail {
		return attribution.InvoiceDetail{ID: id, Amount: money(amount)}
	}
	for _, c := range []struct {
		total              string
		rows               []attribution.InvoiceDetail
		status             attribution.ReconciliationStatus
		roundingAdjustment string
		wrong              string
		void               bool
	}{
		{total: "30.012", status: attribution.Reconciled, roundingAdjustment: "0"},
		{total: "30.01", status: attribution.Adjusted, roundingAdjustment: "-0.002"},
		{total: "30.022", status: attribution.Adjusted, roundingAdjustment: "0.01"},
		{total: "30.0221", status: attribution.Differs, roundingAdjustment: "0"},
		// Rows that no line names have no effect.
		{total: "30.022", rows: []attribution.InvoiceDetail{row("c", "15"), row("d", "15")}, status: attribution.Adjusted, roundingAdjustment: "0.01"},
		{total: "30.03", rows: []attribution.InvoiceDetail{row("c", "15"), row("d", "15"), row("e", "0"), row("f", "0")}, status: attribution.Differs, roundingAdjustment: "0"},
		// Each row separately.
		{total: "30.01", rows: []attribution.InvoiceDetail{row("a", "10"), row("b", "20.01")}, status: attribution.Adjusted, roundingAdjustment: "-0.002"},
		{total: "30.012", rows: []attribution.InvoiceDetail{row("a", "10.004"), row("b", "20.008")}, status: attribution.Reconciled, roundingAdjustment: "0"},
		{total: "30.012", rows: []attribution.InvoiceDetail{row("a", "10.008"), row("b", "20.004")}, status: attribution.Adjusted, roundingAdjustment: "0"},
		{total: "30.01", rows: []attribution.InvoiceDetail{row("a", "10.01"), row("b", "20")}, status: attribution.Differs, roundingAdjustment: "0",
			wrong: `detail "a" is received as 10.01, and its 1 lines add up to 10.004`},
		{total: "30.012", rows: []attribution.InvoiceDetail{row("a", "20.008"), row("b", "10.004")}, status: attribution.Differs, roundingAdjustment: "0",
			wrong: `detail "a" is received as 20.008, and its 1 lines add up to 10.004`},
		// The remainder of the total is compared as a whole.
		{total: "30.02", rows: []attribution.InvoiceDetail{row("a", "10")}, status: attribution.Differs, roundingAdjustment: "0"},
		{total: "30.01", rows: []attribution.InvoiceDetail{row("a", "10")}, status: attribution.Adjusted, roundingAdjustment: "-0.002"},
		// Two rows of one detail are rounded twice.
		{total: "30.014", rows: []attribution.InvoiceDetail{row("a", "5"), row("a", "5.014")}, status: attribution.Adjusted, roundingAdjustment: "0.002"},
		{total: "30", void: true, status: attribution.Voided, roundingAdjustment: "0"},
	} {
		e := pool()
		a := e.add("a", attribution.OnDemand, "i-1", "10.004", 2)
		a.Invoice, a.Detail = "v", "a"
		b := e.add("b", attribution.OnDemand, "i-2", "20.008", 2)
		b.Invoice, b.Detail = "v", "b"
		e.invoices = []attribution.Invoice{{Issuer: "S", Account: "x", ID: "v", Currency: "USD", Total: money(c.total), Details: c.rows}}
		if c.void {
			e.invoices[0].Status = "Voided"
		}
		_, res, err := e.run()
		if err != nil {
			t.Fatal(err)
		}
		v := res.Invoices[0]
		if v.Status != c.status || v.RoundingAdjustment.String() != c.roundingAdjustment || v.After != v.Difference.Sub(v.RoundingAdjustment) {
			t.Errorf("invoice of %s in %v is %+v, want %s and a rounding adjustment of %s", c.total, c.rows, v, c.status, c.roundingAdjustment)
		}
		said := slices.ContainsFunc(res.Exceptions, func(x attribution.Exception) bool {
			return x.Kind == attribution.DetailDiffers && x.Subject == "S/x/v" && x.Detail == c.wrong && x.Lines == 1 && x.Currency == "USD"
		})
		if said != (c.wrong != "") {
			t.Errorf("invoice of %s in %v: exceptions %+v, want %q", c.total, c.rows, res.Exceptions, c.wrong)
		}
	}
}

// A charge and a credit of the same kind do not hide each other.
func TestExceptionsDoNotNet(t *testing.T) {
	e := pool()
	for i, cost := range []string{"5", "-5", "2", "-1"} {
		e.add(string(rune('a'+i)), attribution.OnDemand, "i-9", cost, 0).SKU = ""
	}
	e.lines[2].Effective = money("-2")
	_, res, err := e.run()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range res.Exceptions {
		if x.Kind == attribution.UnmatchedLine {
			got = append(got, fmt.Sprintf("%d %s %s", x.Lines, x.Billed, x.Effective))
		}
	}
	if want := []string{"1 5 5", "1 2 -2", "2 -6 -6"}; !slices.Equal(got, want) {
		t.Errorf("exceptions %q, want %q", got, want)
	}
}

// Accounts have bills of other times: one by the UTC month, one by the month of its zone, one by the week. A
// machine is missing from a bill only in the time that the month's bills of its account are for.
func TestNothingIsMissingFromBillsOfOtherMonths(t *testing.T) {
	day := func(month, d, h int) domain.Instant {
		return domain.InstantOf(time.Date(2026, time.Month(month), d, h, 0, 0, 0, time.UTC))
	}
	week := func(d int) domain.Interval {
		return domain.Interval{From: day(8, 31, 0) + domain.Instant(d)*domain.Day, To: day(8, 31, 0) + domain.Instant(d+7)*domain.Day}
	}
	utc := domain.Interval{From: day(9, 1, 0), To: day(10, 1, 0)}
	cet := domain.Interval{From: day(8, 31, 22), To: day(9, 30, 22)}
	run := func(weeks ...domain.Interval) map[string]int64 {
		e := &estate{}
		bills := map[string][]domain.Interval{"utc": {utc}, "cet": {cet}, "weekly": weeks}
		for i, account := range []string{"cet", "utc", "weekly"} {
			service := domain.Interval{From: day(8, 20, 0), To: day(10, 20, 0)}
			e.nodes = append(e.nodes, attribution.Node{Cluster: "c", Node: account, Account: account, Resource: "i-" + account, GPUs: 1, Registered: true, Service: service})
			for h := service.From; h < service.To; h += domain.Hour {
				e.hours = append(e.hours, attribution.NodeHour{Node: i, Hour: h, Owner: "own", Parts: []attribution.Part{{Component: attribution.Idle, GPUMs: hour}}})
			}
			for _, b := range bills[account] {
				e.lines = append(e.lines, attribution.Line{Issuer: account, Account: account, ID: fmt.Sprint(account, b.From), Currency: "USD", BillingPeriod: b, ChargePeriod: b,
					Category: "Usage", Class: attribution.OnDemand, Resource: "i-" + account, Billed: money("1"), Effective: money("1"), NodeMs: int64(b.Length()/domain.Hour) * hour})
			}
		}
		_, res, err := e.run()
		if err != nil {
			t.Fatal(err)
		}
		missing := map[string]int64{}
		for _, x := range res.Exceptions {
			if x.Kind != attribution.SeenNeverBilled {
				t.Errorf("exception %+v", x)
			}
			missing[x.Subject] = x.GPUMs / hour
		}
		return missing
	}
	// The week that begins on 28 September has its middle in October.
	if got := run(week(0), week(7), week(14), week(21)); len(got) != 0 {
		t.Errorf("missing %v, want nothing", got)
	}
	for what, weeks := range map[string][]domain.Interval{
		"first": {week(7), week(14), week(21)}, "third": {week(0), week(7), week(21)}, "last": {week(0), week(7), week(14)},
	} {
		want := int64(7 * 24)
		if what == "first" {
			want -= 22 // no bill of any account is for the first 22 hours of 31 August
		}
		if got := run(weeks...); len(got) != 1 || got["c/weekly"] != want {
			t.Errorf("without the %s week: missing %v, want %d hours of c/weekly", what, got, want)
		}
	}
}
