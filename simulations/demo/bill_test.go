package demo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/simulations/demo"
)

func day(d int) domain.Instant {
	return domain.InstantOf(time.Date(2026, time.May, d, 0, 0, 0, 0, time.UTC))
}

var may = domain.Interval{From: day(1), To: day(32)}

func dec(text string) domain.Decimal { return decimal.RequireFromString(text) }

// estate has one of everything.
func estate() *demo.Estate {
	e := &demo.Estate{
		Issuer: "Generated Cloud", Provider: "Generated Cloud", Account: "gen-001", Currency: "USD", Period: may,
		Reserved: 3, Spot: 2, CommitmentID: "gen-commit-1", Committed: 4,
		OnDemandHourly: dec("24.48"), ReservedHourly: dec("16.708"), SpotHourly: dec("7.340000001"),
		Support: dec("1500"), EgressGBPerDay: dec("812.5"), EgressPerGB: dec("0.0874999"),
		PromotionCredit: dec("2500"), TaxRate: dec("0.19"),
		Stray:   demo.Machine{Node: "gone", ResourceID: "i-gone", SKU: "p3.16xlarge", Region: "us-east-1", GPUs: 8, Service: domain.Interval{From: day(7), To: day(7) + 3*domain.Hour}},
		Outages: []demo.Outage{{Node: 0, Time: domain.Interval{From: day(3) + domain.Hour, To: day(3) + 5*domain.Hour}}, {Node: 3, Time: domain.Interval{From: day(9), To: day(10) + domain.Second}}},
	}
	for i := range 7 {
		m := demo.Machine{
			Cluster: "east", Node: fmt.Sprintf("vc-a01-%03d", i), ResourceID: fmt.Sprintf("i-%03d", i),
			SKU: "p3.16xlarge", Region: "us-east-1", GPUs: 8, Service: domain.Interval{From: day(1), To: day(32)},
		}
		if i == 2 { // from noon of the 11th on
			m.Service.From = day(11) + 12*domain.Hour
		}
		if i == 4 { // 90 seconds past midnight: 0.03 hours of a day
			m.Service.To = day(20) + 90*domain.Second
		}
		e.Nodes = append(e.Nodes, m)
	}
	return e
}

// lines returns copies of all lines, each checked as an event would be.
func lines(t interface{ Fatal(...any) }, e *demo.Estate) []domain.BillingLine {
	var out []domain.BillingLine
	ids := map[string]bool{}
	err := e.Lines(func(l *domain.BillingLine) error {
		if ids[l.LineID] {
			return fmt.Errorf("line %q is there twice", l.LineID)
		}
		ids[l.LineID] = true
		out = append(out, *l)
		return domain.Validate(&domain.Envelope{
			Source: "test", Sequence: 1, Incarnation: 1, Time: l.BillingPeriodEnd, Event: &domain.BillingLineRecorded{Line: *l},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func invoice(t interface{ Fatal(...any) }, e *demo.Estate) domain.InvoiceReceived {
	invoices, err := e.Invoices()
	if err != nil || len(invoices) != 1 {
		t.Fatal(len(invoices), "invoices, error", err)
	}
	return invoices[0]
}

// differences returns, by detail, how much the lines exceed the invoice; details that agree are
// left out.
func differences(ls []domain.BillingLine, inv domain.InvoiceReceived) map[string]string {
	sums := map[string]domain.Decimal{}
	for _, l := range ls {
		sums[l.InvoiceDetailID] = sums[l.InvoiceDetailID].Add(l.BilledCost)
	}
	total := inv.Total.Amount
	for _, d := range inv.Details {
		sums[d.InvoiceDetailID] = sums[d.InvoiceDetailID].Sub(d.BilledCost)
		total = total.Sub(d.BilledCost)
	}
	sums["total"] = total
	out := map[string]string{}
	for id, sum := range sums {
		if !sum.IsZero() {
			out[id] = sum.String()
		}
	}
	return out
}

// The invoice of one estate, by hand: 744 hours in May.
func TestInvoice(t *testing.T) {
	inv := invoice(t, estate())
	got := map[string]string{"total": inv.Total.Amount.StringFixed(2)}
	for _, d := range inv.Details {
		got[strings.TrimPrefix(d.InvoiceDetailID, inv.InvoiceID+"-")] = d.BilledCost.StringFixed(2)
	}
	want := map[string]string{
		"commitment":     "49723.01", // 4 × 744 × 16.708 = 49,723.008
		"on-demand":      "29450.17", // (744 + 456.03 + 3) × 24.48 = 29,450.1744
		"spot":           "10921.92", // 2 × 744 × 7.340000001
		"support":        "1500.00",
		"network":        "2203.90", // 31 × 812.5 × 0.0874999
		"service-credit": "-654.60", // 4 × 16.708 + 24.01 × 24.48
		"promotion":      "-2500.00",
		"tax":            "17222.44", // 0.19 × 90,644.40
		"total":          "107866.84",
	}
	for id := range want {
		if got[id] != want[id] {
			t.Errorf("%s: %s, want %s", id, got[id], want[id])
		}
	}
	if len(got) != len(want) || !inv.Generated || inv.InvoiceID != "gen-gen-001-202605" {
		t.Errorf("invoice %+v", inv)
	}
	if err := domain.Validate(&domain.Envelope{Source: "test", Sequence: 1, Incarnation: 1, Time: day(32), Event: &inv}); err != nil {
		t.Error(err)
	}
}

func TestLines(t *testing.T) {
	e := estate()
	ls := lines(t, e)
	if d := differences(ls, invoice(t, e)); len(d) > 0 {
		t.Errorf("lines and invoice differ: %v", d)
	}
	count := map[string]int{}
	used, unused, fee := decimal.Zero, decimal.Zero, decimal.Zero
	for _, l := range ls {
		kind := l.ChargeCategory + " " + l.PricingCategory + " " + l.CommitmentDiscountStatus
		count[strings.TrimSpace(kind)]++
		if !l.Generated || l.FocusVersion != "1.4" || l.ServiceCategory == "" || l.ServiceName == "" || !l.EffectiveCost.Valid {
			t.Errorf("line %s lacks a column: %+v", l.LineID, l)
		}
		for _, d := range []domain.Decimal{l.BilledCost, l.EffectiveCost.Decimal, l.ListCost.Decimal} {
			if d.Exponent() < -11 {
				t.Errorf("line %s has an amount %s of more than 11 digits", l.LineID, d)
			}
		}
		switch {
		case l.CommitmentDiscountID == "":
		case l.ChargeCategory == "Purchase":
			fee = fee.Add(l.BilledCost)
			if !l.EffectiveCost.Decimal.IsZero() {
				t.Errorf("the fee costs %s effectively", l.EffectiveCost.Decimal)
			}
		case l.CommitmentDiscountStatus == "Used":
			used = used.Add(l.EffectiveCost.Decimal)
		case l.CommitmentDiscountStatus == "Unused":
			unused = unused.Add(l.EffectiveCost.Decimal)
		}
		if l.CommitmentDiscountStatus != "" && !l.BilledCost.IsZero() {
			t.Errorf("line %s bills what the fee pays for", l.LineID)
		}
		if pool := l.PricingCategory == "Dynamic"; pool && (l.ResourceID != "" || l.SKUID == "" || l.RegionID == "") {
			t.Errorf("line %s of a spot pool: %+v", l.LineID, l)
		}
	}
	if !used.IsPositive() || !unused.IsPositive() || !used.Add(unused).Equal(fee) {
		t.Errorf("used %s and unused %s for a fee of %s", used, unused, fee)
	}
	// Nodes 0 and 1 all month, node 2 on 21 days; node 3 all month, node 4 on 20
	// days and the stray one on one; spot one pool; traffic every day.
	want := map[string]int{
		"Usage Committed Used": 31 + 31 + 21, "Usage Committed Unused": 31,
		"Usage Standard": 31 + 20 + 1 + 31, "Usage Dynamic": 31,
		"Purchase Standard": 2, "Credit": 3, "Tax": 7,
	}
	for kind, n := range want {
		if count[kind] != n {
			t.Errorf("%d lines of %s, want %d", count[kind], kind, n)
		}
	}
	if count["Adjustment"] == 0 {
		t.Error("no line was needed for rounding, so that this estate shows little")
	}
	file, err := json.Marshal(ls)
	if err != nil {
		t.Fatal(err)
	}
	var readable bytes.Buffer
	for i := range ls {
		l := &ls[i]
		fmt.Fprintf(&readable, "%s from %s to %s: %q %q, resource %q, billed %s, effective %s\n",
			l.LineID, l.ChargePeriodStart, l.ChargePeriodEnd, l.ChargeCategory, l.ChargeDescription, l.ResourceID, l.BilledCost, l.EffectiveCost.Decimal)
	}
	golden(t, "lines", append(file, '\n'), readable.Bytes())
}

// The comparison finds a missing line, and one cent too much on a line.
func TestDifferencesBite(t *testing.T) {
	e := estate()
	ls, inv := lines(t, e), invoice(t, e)
	for i, l := range ls {
		if !l.BilledCost.IsZero() {
			without := slices.Delete(slices.Clone(ls), i, i+1)
			if len(differences(without, inv)) == 0 {
				t.Errorf("nobody misses line %s of %s", l.LineID, l.BilledCost)
			}
		}
		changed := slices.Clone(ls)
		changed[i].BilledCost = l.BilledCost.Add(dec("0.01"))
		if len(differences(changed, inv)) == 0 {
			t.Errorf("nobody sees a cent too much on line %s", l.LineID)
		}
	}
	for name, change := range map[string]func(*demo.Estate){
		"on-demand price": func(e *demo.Estate) { e.OnDemandHourly = dec("24.49") },
		"reserved price":  func(e *demo.Estate) { e.ReservedHourly = dec("16.709") },
		"spot price":      func(e *demo.Estate) { e.SpotHourly = dec("7.3401") },
		"a unit more":     func(e *demo.Estate) { e.Committed++ },
		"a node less":     func(e *demo.Estate) { e.Nodes = slices.Delete(e.Nodes, 3, 4); e.Outages = e.Outages[:1] },
		"36 s of service": func(e *demo.Estate) { e.Nodes[4].Service.To += 36 * domain.Second },
		"an outage less":  func(e *demo.Estate) { e.Outages = e.Outages[:1] },
		"no stray":        func(e *demo.Estate) { e.Stray = demo.Machine{} },
		"tax":             func(e *demo.Estate) { e.TaxRate = dec("0.2") },
	} {
		other := estate()
		change(other)
		if len(differences(lines(t, other), inv)) == 0 {
			t.Errorf("nobody sees another %s", name)
		}
	}
}

func drawEstate(t *rapid.T) *demo.Estate {
	price := func(label string) domain.Decimal {
		return decimal.New(rapid.Int64Range(0, 60_000_000_000).Draw(t, label), -9)
	}
	interval := func(label string) domain.Interval {
		from := may.From + domain.Instant(rapid.Int64Range(-3*86400, 34*86400).Draw(t, label+" from"))*domain.Second
		return domain.Interval{From: from, To: from + domain.Instant(rapid.Int64Range(-3600, 40*86400).Draw(t, label+" for"))*domain.Second/7}
	}
	e := &demo.Estate{
		Issuer: "Generated Cloud", Provider: "Generated Cloud", Account: "gen-002", Currency: "EUR", Period: may,
		CommitmentID: "c", OnDemandHourly: price("on demand"), ReservedHourly: price("reserved"), SpotHourly: price("spot"),
		Support: price("support"), EgressPerGB: price("egress"), PromotionCredit: price("promotion"),
		EgressGBPerDay: decimal.New(rapid.Int64Range(0, 1_000_000).Draw(t, "GB a day"), -2),
		TaxRate:        decimal.New(rapid.Int64Range(0, 250_000_000).Draw(t, "tax"), -9),
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "nodes") {
		e.Nodes = append(e.Nodes, demo.Machine{
			Cluster: "c", Node: fmt.Sprint("n", i), ResourceID: fmt.Sprint("i", i), Service: interval("service"), GPUs: 8,
			SKU: rapid.SampledFrom([]string{"small", "large"}).Draw(t, "SKU"), Region: rapid.SampledFrom([]string{"east", "west"}).Draw(t, "region"),
		})
	}
	e.Reserved = rapid.IntRange(0, len(e.Nodes)).Draw(t, "reserved nodes")
	e.Spot = rapid.IntRange(0, len(e.Nodes)-e.Reserved).Draw(t, "spot nodes")
	e.Committed = e.Reserved + rapid.IntRange(0, 2).Draw(t, "units to spare")
	if n := len(e.Nodes) - e.Spot; n > 0 && rapid.Bool().Draw(t, "outage") {
		e.Outages = append(e.Outages, demo.Outage{Node: rapid.IntRange(0, n-1).Draw(t, "outage of"), Time: interval("outage")})
	}
	if rapid.Bool().Draw(t, "stray") {
		e.Stray = demo.Machine{Node: "stray", ResourceID: "stray", SKU: "small", Region: "east", Service: interval("stray")}
	}
	return e
}

// For any estate, lines and invoice agree to the cent in every detail, the commitment is used up
// exactly, and a machine is billed for at most a day per day.
func TestLinesFootToInvoices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEstate(t)
		ls := lines(t, e)
		if d := differences(ls, invoice(t, e)); len(d) > 0 {
			t.Fatal("lines and invoice differ:", d)
		}
		commitment, hours := decimal.Zero, decimal.Zero
		for _, l := range ls {
			switch {
			case l.CommitmentDiscountStatus != "":
				commitment = commitment.Add(l.EffectiveCost.Decimal)
				if l.PricingQuantity.Decimal.IsNegative() {
					t.Fatal("line of negative time", l.LineID)
				}
			case l.CommitmentDiscountID != "":
				commitment = commitment.Sub(l.BilledCost)
			}
			if l.ChargeCategory == "Usage" && l.PricingUnit == "Hours" && l.CommitmentDiscountStatus != "Unused" {
				hours = hours.Add(l.PricingQuantity.Decimal)
				if l.ResourceID != "" && l.PricingQuantity.Decimal.GreaterThan(dec("24")) {
					t.Fatal("a machine of more than a day a day:", l.LineID)
				}
			}
		}
		if !commitment.IsZero() {
			t.Fatal("used and unused hours miss the fee by", commitment)
		}
		if want := slowHours(e); !hours.Equal(want) {
			t.Fatal("hours billed", hours, "want", want)
		}
	})
}

// slowHours counts the hundredths of hours of the month in which each machine was in service one by
// one, except whole hours.
func slowHours(e *demo.Estate) domain.Decimal {
	n := int64(0)
	for _, m := range append(slices.Clone(e.Nodes), e.Stray) {
		for hour := e.Period.From; hour < e.Period.To; hour += domain.Hour {
			switch m.Service.Intersect(domain.Interval{From: hour, To: hour + domain.Hour}).Length() {
			case domain.Hour:
				n += 100
			case 0:
			default:
				for at := hour; at < hour+domain.Hour; at += domain.Hour / 100 {
					if !m.Service.Intersect(domain.Interval{From: at, To: at + domain.Hour/100}).Empty() {
						n++
					}
				}
			}
		}
	}
	return decimal.New(n, -2)
}

func TestLinesStop(t *testing.T) {
	n := 0
	err := estate().Lines(func(*domain.BillingLine) error {
		if n++; n == 5 {
			return errFull
		}
		return nil
	})
	if !errors.Is(err, errFull) || n != 5 {
		t.Errorf("error %v after %d lines, want that of line 5", err, n)
	}
}

func TestEstateRefused(t *testing.T) {
	for want, change := range map[string]func(*demo.Estate){
		"issuer":                       func(e *demo.Estate) { e.Issuer = "" },
		"no month":                     func(e *demo.Estate) { e.Period.To -= domain.Day },
		"reserved and":                 func(e *demo.Estate) { e.Spot = 5 },
		"units of commitment":          func(e *demo.Estate) { e.Committed = 2 },
		"on-demand price":              func(e *demo.Estate) { e.OnDemandHourly = dec("-1") },
		"more than 2 digits":           func(e *demo.Estate) { e.EgressGBPerDay = dec("0.001") },
		"node \"\"":                    func(e *demo.Estate) { e.Nodes[1].Node = "" },
		"node east/vc-a01-000 is":      func(e *demo.Estate) { e.Nodes[1].Node = e.Nodes[0].Node },
		"resource \"i-000\"":           func(e *demo.Estate) { e.Stray.ResourceID = "i-000" },
		"billed by resource and has":   func(e *demo.Estate) { e.Nodes[0].ResourceID = "" },
		"outage 0 is of node 6":        func(e *demo.Estate) { e.Outages[0].Node = 6 },
		"outages of node 3 overlap":    func(e *demo.Estate) { e.Outages[0] = e.Outages[1] },
		"spot price 1e-10 is negative": func(e *demo.Estate) { e.SpotHourly = dec("0.0000000001") },
	} {
		e := estate()
		change(e)
		_, err := e.Invoices()
		if also := e.Lines(func(*domain.BillingLine) error { return nil }); err == nil || also == nil || err.Error() != also.Error() {
			t.Errorf("%s: invoices say %v, lines %v", want, err, also)
			continue
		}
		if !strings.Contains(err.Error(), strings.Replace(want, "1e-10", "0.0000000001", 1)) {
			t.Errorf("error %q, want one about %q", err, want)
		}
	}
}

// Half a cent is rounded away from zero, on charges and on credits.
func TestHalfCents(t *testing.T) {
	e := &demo.Estate{
		Issuer: "Generated Cloud", Provider: "Generated Cloud", Account: "gen-003", Currency: "USD", Period: may,
		Support: dec("0.125"), PromotionCredit: dec("0.105"),
	}
	inv := invoice(t, e)
	if len(inv.Details) != 2 || !inv.Details[0].BilledCost.Equal(dec("0.13")) || !inv.Details[1].BilledCost.Equal(dec("-0.11")) {
		t.Errorf("details %+v, want 0.13 and -0.11", inv.Details)
	}
	if d := differences(lines(t, e), inv); len(d) > 0 {
		t.Errorf("lines and invoice differ: %v", d)
	}
}
