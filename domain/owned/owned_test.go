package owned

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
)

func at(year, month, day int) domain.Instant {
	return domain.InstantOf(time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC))
}

func period(year, month int) domain.Interval {
	return domain.Interval{From: at(year, month, 1), To: at(year, month+1, 1)}
}

func dec(s string) domain.Decimal { return decimal.RequireFromString(s) }

func usd(s string) domain.Money { return domain.Money{Amount: dec(s), Currency: "USD"} }

// machine is an asset of one node with eight GPUs.
func machine() Asset {
	return Asset{
		Cluster: "lab", ID: "dgx-01", Account: "lab", Provider: "own", Capex: usd("300000"), Residual: usd("30000"),
		InService: at(2026, 1, 1), LifeMonths: 60, Nodes: []Node{{Name: "n1", Resource: "n1", GPUs: 8}},
	}
}

// of returns what a month's invoices in a currency charge for one thing.
func of(invoices []Invoice, what, currency string) string {
	total := domain.Decimal{}
	for _, inv := range invoices {
		for _, d := range inv.Details {
			if d.InvoiceDetailID == what && inv.Total.Currency == currency {
				total = total.Add(d.BilledCost)
			}
		}
	}
	return total.String()
}

func charged(in *Input, year, month int) []Invoice {
	all, _ := Bill(in, period(year, month))
	return all
}

// IAS 16 gives no figures. These are the arithmetic of its paragraphs on round numbers:
// 270,000 over 60 months is 4,500 a month.
func TestStraightLine(t *testing.T) {
	in := &Input{Assets: []Asset{machine()}}
	for _, month := range [][2]int{{2026, 1}, {2026, 2}, {2030, 12}} {
		if got := of(charged(in, month[0], month[1]), Depreciation, "USD"); got != "4500" {
			t.Errorf("%v: %s, want 4500", month, got)
		}
	}
	after := charged(in, 2031, 1)
	if got := of(after, Depreciation, "USD"); got != "0" || len(after) != 1 || len(after[0].Lines) != 1 {
		t.Errorf("after its life: %s on %d invoices, want a line of 0 that buys the machine's time", got, len(after))
	}
	if got := after[0].Carrying.String(); got != "30000 USD" {
		t.Errorf("carrying amount after its life is %s, want the residual value", got)
	}
	if before := charged(in, 2025, 12); len(before) != 0 {
		t.Errorf("before service: %v", before)
	}
}

func TestConventions(t *testing.T) {
	for _, c := range []struct {
		of                         Convention
		first, second, last, after string // January 2026, February 2026, December 2030, January 2031
	}{
		{Daily, "2250", "4500", "4500", "2250"}, // 15.5 of 31 days in January
		{"", "2250", "4500", "4500", "2250"},
		{FullMonth, "4500", "4500", "4500", "0"},
		{HalfMonth, "2250", "4500", "4500", "2250"},
		{NextMonth, "0", "4500", "4500", "4500"},
	} {
		a := machine()
		a.InService = at(2026, 1, 16) + 12*domain.Hour
		in := &Input{Assets: []Asset{a}, Rules: Rules{Convention: c.of}}
		for month, want := range map[[2]int]string{{2026, 1}: c.first, {2026, 2}: c.second, {2030, 12}: c.last, {2031, 1}: c.after} {
			if got := of(charged(in, month[0], month[1]), Depreciation, "USD"); got != want {
				t.Errorf("%q, %v: %s, want %s", c.of, month, got, want)
			}
		}
	}
}

// A life revised from 60 to 84 months after 24: 300,000 - 24 × 4,500 = 192,000; less 30,000 over the
// 60 months that are left is 2,700.
func TestRevisionIsProspective(t *testing.T) {
	a := machine()
	a.Revisions = []Revision{{From: at(2028, 1, 1), LifeMonths: 84, Residual: usd("30000")}}
	in := &Input{Assets: []Asset{a}}
	for month, want := range map[[2]int]string{{2027, 12}: "4500", {2028, 1}: "2700", {2032, 12}: "2700", {2033, 1}: "0"} {
		if got := of(charged(in, month[0], month[1]), Depreciation, "USD"); got != want {
			t.Errorf("%v: %s, want %s", month, got, want)
		}
	}
	// What a revision does not state stays: after the life, the residual value, and the other way around.
	a.Revisions = []Revision{{From: at(2028, 1, 1), LifeMonths: 84}}
	if got := of(charged(&Input{Assets: []Asset{a}}, 2028, 1), Depreciation, "USD"); got != "2700" {
		t.Errorf("with a revised life alone: %s, want 2700, because the residual value stays", got)
	}
	a.Revisions = append(a.Revisions, Revision{From: at(2029, 1, 1), Residual: usd("0")})
	if got := of(charged(&Input{Assets: []Asset{a}}, 2029, 1), Depreciation, "USD"); got != "3325" {
		t.Errorf("with a residual value of 0 alone: %s, want (192000 - 12 x 2700) / 48 = 3325", got)
	}
	a.Revisions = []Revision{{From: at(2028, 1, 1), LifeMonths: 84, Residual: usd("30000")}}
	// A residual value above the carrying amount stops depreciation (IAS 16.54).
	a.Revisions[0].Residual = usd("200000")
	if got := of(charged(&Input{Assets: []Asset{a}}, 2028, 1), Depreciation, "USD"); got != "0" {
		t.Errorf("with a residual value above the carrying amount: %s, want 0", got)
	}
	// A life that is over is charged at once.
	a.Revisions = []Revision{{From: at(2028, 1, 1), LifeMonths: 12, Residual: usd("30000")}}
	if got := of(charged(&Input{Assets: []Asset{a}}, 2028, 1), Depreciation, "USD"); got != "162000" {
		t.Errorf("with a life that is over: %s, want the 162000 that are left", got)
	}
}

// After 24 months 192,000 are left. Written off by 60,000, 132,000 - 30,000 over 36 months is
// 2,833.33.
func TestImpairment(t *testing.T) {
	a := machine()
	a.Revisions = []Revision{{From: at(2028, 1, 1), LifeMonths: 60, Residual: usd("30000"), Impairment: usd("60000"), Reason: "a newer model"}}
	january := charged(&Input{Assets: []Asset{a}}, 2028, 1)
	if got := of(january, Impairment, "USD"); got != "60000" {
		t.Errorf("impairment %s, want 60000", got)
	}
	if got := of(january, Depreciation, "USD"); got != "2833.33" {
		t.Errorf("depreciation %s, want 2833.33", got)
	}
	a.Revisions[0].Impairment = usd("1000000")
	all, problems := Bill(&Input{Assets: []Asset{a}}, period(2028, 1))
	if got := of(all, Impairment, "USD"); got != "192000" || !has(problems, TooImpaired) {
		t.Errorf("impairment beyond the carrying amount: %s and %v", got, problems)
	}
}

func TestDisposal(t *testing.T) {
	for proceeds, want := range map[string]string{"150000": "42000", "192000": "0", "200000": "-8000"} {
		a := machine()
		a.Disposal = &Disposal{At: at(2028, 1, 1), Proceeds: usd(proceeds)}
		in := &Input{Assets: []Asset{a}}
		if got := of(charged(in, 2028, 1), DisposalResult, "USD"); got != want {
			t.Errorf("for %s: %s, want %s", proceeds, got, want)
		}
		if got := charged(in, 2028, 2); len(got) != 0 {
			t.Errorf("after disposal: %v", got)
		}
	}
}

// A machine that leaves at the beginning of a month has no hours in it.
func TestDisposalBuysNoTime(t *testing.T) {
	a := machine()
	a.Disposal = &Disposal{At: at(2028, 1, 1), Proceeds: usd("150000")}
	for _, l := range charged(&Input{Assets: []Asset{a}}, 2028, 1)[0].Lines {
		if l.PricingQuantity.Valid || l.InvoiceDetailID != DisposalResult {
			t.Errorf("line %s buys %s %s", l.LineID, l.PricingQuantity.Decimal, l.PricingUnit)
		}
	}
}

// Two impairments of a month are one line, because a line's last statement counts.
func TestImpairmentsOfAMonth(t *testing.T) {
	a := machine()
	for _, day := range []int{3, 9} {
		a.Revisions = append(a.Revisions, Revision{From: at(2028, 1, day), LifeMonths: 60, Residual: usd("30000"), Impairment: usd("100"), Reason: "dropped"})
	}
	january := charged(&Input{Assets: []Asset{a}}, 2028, 1)
	ids := map[string]bool{}
	for _, l := range january[0].Lines {
		if ids[l.LineID] {
			t.Errorf("two lines %s", l.LineID)
		}
		ids[l.LineID] = true
	}
	if got := of(january, Impairment, "USD"); got != "200" {
		t.Errorf("impairment %s, want 200", got)
	}
}

// A meter without nodes is of the machines in service.
func TestMeterOfACluster(t *testing.T) {
	a, gone := machine(), machine()
	a.Site, a.PowerWatts, gone.Site, gone.PowerWatts = "hall", 9000, "hall", 9000
	gone.ID, gone.Nodes, gone.Disposal = "gone", []Node{{Name: "n2", Resource: "n2", GPUs: 8}}, &Disposal{At: at(2026, 2, 1), Proceeds: usd("0")}
	in := &Input{
		Assets:   []Asset{a, gone},
		Tariffs:  []Tariff{{Operator: "own", Site: "hall", From: at(2025, 1, 1), PerKWh: usd("1"), PUE: dec("1")}},
		Readings: []Reading{{Cluster: "lab", Meter: "hall", Interval: period(2026, 5), WattHours: dec("400000")}},
	}
	if got := of(charged(in, 2026, 5), Power, "USD"); got != "400" {
		t.Errorf("%s, want all 400", got)
	}
}

func TestPower(t *testing.T) {
	a := machine()
	a.Site, a.PowerWatts = "hall", 10_000
	tariff := Tariff{Operator: "own", Site: "hall", From: at(2025, 1, 1), PerKWh: usd("0.20"), PUE: dec("1.25")}
	// 6.2 kW for the first 20 of 31 days: 2,976 kWh. The other 11 days are estimated: 2,640 kWh.
	metered := Reading{Cluster: "lab", Meter: "pdu", Nodes: []string{"n1"},
		Interval: domain.Interval{From: at(2026, 1, 1), To: at(2026, 1, 21)}, WattHours: dec("2976000")}
	in := &Input{Assets: []Asset{a}, Tariffs: []Tariff{tariff}, Readings: []Reading{metered}}
	january := charged(in, 2026, 1)
	if got := of(january, Power, "USD"); got != "744" { // 2976 × 1.25 × 0.20
		t.Errorf("metered %s, want 744", got)
	}
	if got := of(january, PowerEstimated, "USD"); got != "660" { // 2640 × 1.25 × 0.20
		t.Errorf("estimated %s, want 660", got)
	}
	for _, l := range january[0].Lines {
		if estimated := l.Other[ColumnEstimated] == "true"; estimated != (l.InvoiceDetailID == PowerEstimated) {
			t.Errorf("line %s: estimated is %v", l.LineID, estimated)
		}
	}
	// A reading over the end of the month is divided by time, and a tariff changes within it.
	dear := tariff
	dear.From, dear.PerKWh = at(2026, 2, 1), usd("0.40")
	metered.Interval = domain.Interval{From: at(2026, 1, 31), To: at(2026, 2, 2)}
	in = &Input{Assets: []Asset{a}, Tariffs: []Tariff{dear, tariff}, Readings: []Reading{metered}}
	in.Readings[0].WattHours = dec("400000")
	if got := of(charged(in, 2026, 1), Power, "USD"); got != "50" {
		t.Errorf("a half in January: %s, want 50", got)
	}
	if got := of(charged(in, 2026, 2), Power, "USD"); got != "100" {
		t.Errorf("a half in February: %s, want 100", got)
	}
}

func TestSharedMeter(t *testing.T) {
	big, small := machine(), machine()
	big.Site, big.PowerWatts = "hall", 9000
	small.ID, small.Site, small.PowerWatts, small.Nodes = "old", "hall", 3000, []Node{{Name: "n2", Resource: "n2", GPUs: 8}}
	in := &Input{
		Assets:   []Asset{big, small},
		Tariffs:  []Tariff{{Operator: "own", Site: "hall", From: at(2025, 1, 1), PerKWh: usd("1"), PUE: dec("1")}},
		Readings: []Reading{{Cluster: "lab", Meter: "pdu", Nodes: []string{"n1", "n2"}, Interval: period(2026, 1), WattHours: dec("400000")}},
	}
	for _, inv := range charged(in, 2026, 1) {
		want := map[string]string{"dgx-01": "300", "old": "100"}[inv.Asset]
		if got := of([]Invoice{inv}, Power, "USD"); got != want {
			t.Errorf("%s: %s, want %s", inv.Asset, got, want)
		}
	}
}

func TestSiteRates(t *testing.T) {
	a := machine()
	a.Site, a.SpaceUnits, a.PowerWatts = "hall", 8, 1
	tariff := Tariff{Operator: "own", Site: "hall", From: at(2025, 1, 1), PerKWh: usd("0"), PUE: dec("1"), Rates: []domain.SiteRate{
		{Cost: "space", Per: domain.PerRackUnit, Price: usd("50")}, {Cost: "staff", Per: domain.PerGPU, Price: usd("12.50")},
		{Cost: "network", Per: domain.PerNode, Price: usd("300")}, {Cost: "maintenance", Per: domain.PerAsset, Price: usd("2000")},
	}}
	january := charged(&Input{Assets: []Asset{a}, Tariffs: []Tariff{tariff}}, 2026, 1)
	for what, want := range map[string]string{"space": "400", "staff": "100", "network": "300", "maintenance": "2000"} {
		if got := of(january, what, "USD"); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
}

// 8% of 300,000 is 2,000 a month at first, and of 295,500 it is 1,970.
func TestCapitalCost(t *testing.T) {
	in := &Input{Assets: []Asset{machine()}, Rules: Rules{CapitalRate: domain.NullDecimal{Decimal: dec("0.08"), Valid: true}}}
	for month, want := range map[int]string{1: "2000", 2: "1970"} {
		if got := of(charged(in, 2026, month), CapitalCost, "USD"); got != want {
			t.Errorf("month %d: %s, want %s", month, got, want)
		}
	}
}

func has(problems []Problem, kind ProblemKind) bool {
	for _, p := range problems {
		if p.Kind == kind {
			return true
		}
	}
	return false
}

func TestProblems(t *testing.T) {
	tariff := Tariff{Operator: "own", Site: "hall", From: at(2025, 1, 1), PerKWh: usd("0.20"), PUE: dec("1.25")}
	for _, c := range []struct {
		name string
		edit func(a *Asset, in *Input)
		want ProblemKind
	}{
		{"no tariff", func(a *Asset, _ *Input) { a.Site = "elsewhere" }, NoTariff},
		{"no site", func(a *Asset, _ *Input) { a.Site = "" }, NoTariff},
		{"a tariff that begins late", func(_ *Asset, in *Input) { in.Tariffs[0].From = at(2026, 1, 9) }, NoTariff},
		{"tariffs of two operators", func(_ *Asset, in *Input) {
			in.Tariffs = append(in.Tariffs, Tariff{Operator: "other", Site: "hall", From: at(2025, 1, 1)})
		}, NoTariff},
		{"no power", func(a *Asset, _ *Input) { a.PowerWatts = 0 }, NoPower},
		{"above the nameplate", func(_ *Asset, in *Input) {
			in.Readings = []Reading{{Cluster: "lab", Nodes: []string{"n1"}, Interval: period(2026, 1), WattHours: dec("1e12")}}
		}, AboveRated},
		{"readings that overlap", func(_ *Asset, in *Input) {
			in.Readings = []Reading{
				{Cluster: "lab", Meter: "m", Nodes: []string{"n1"}, Interval: domain.Interval{From: at(2026, 1, 1), To: at(2026, 1, 2)}, WattHours: dec("1")},
				{Cluster: "lab", Meter: "m", Nodes: []string{"n1"}, Interval: period(2026, 1), WattHours: dec("31")},
			}
		}, OverlappingReadings},
		{"an unknown node", func(a *Asset, _ *Input) { a.Nodes[0].Resource = "" }, NoNode},
		{"a node of two assets", func(a *Asset, in *Input) {
			other := *a
			other.ID = "twin"
			in.Assets = append(in.Assets, other)
		}, NodeOfSeveral},
		{"proceeds in another currency", func(a *Asset, _ *Input) {
			a.Disposal = &Disposal{At: at(2026, 1, 9), Proceeds: domain.Money{Amount: dec("1"), Currency: "EUR"}}
		}, OtherCurrency},
		{"a revision in another currency", func(a *Asset, _ *Input) {
			a.Revisions = []Revision{{From: at(2026, 1, 9), LifeMonths: 9, Residual: domain.Money{Amount: dec("1"), Currency: "EUR"}}}
		}, OtherCurrency},
		{"a revision before service", func(a *Asset, _ *Input) { a.Revisions = []Revision{{From: at(2025, 1, 1), LifeMonths: 9}} }, LateRevision},
		{"a disposal before service", func(a *Asset, _ *Input) { a.Disposal = &Disposal{At: at(2025, 1, 1)} }, BeforeService},
	} {
		a := machine()
		a.Site, a.PowerWatts = "hall", 10_000
		in := &Input{Tariffs: []Tariff{tariff}}
		c.edit(&a, in)
		in.Assets = append(in.Assets, a)
		all, problems := Bill(in, period(2026, 1))
		if !has(problems, c.want) {
			t.Errorf("%s: %v, want %s", c.name, problems, c.want)
		}
		if got := of(all, Depreciation, "USD"); got == "0" {
			t.Errorf("%s: no depreciation is charged; the rest goes in", c.name)
		}
	}
}

// Over its life an asset is charged its price less its proceeds or residual value, to the cent,
// whatever is revised, written off and disposed of, and lines add up to invoices.
func TestWholeLifeAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cents := func(name string, most int64) domain.Money {
			return domain.Money{Amount: decimal.New(rapid.Int64Range(0, most).Draw(t, name), -2), Currency: "USD"}
		}
		a := machine()
		a.Capex = cents("capex", 1e9)
		a.Residual = domain.Money{Amount: a.Capex.Amount.Div(decimal.NewFromInt(4)).Round(2), Currency: "USD"}
		a.InService = at(2026, 1, 1) + domain.Instant(rapid.Int64Range(0, 60).Draw(t, "begins"))*domain.Day
		a.LifeMonths = uint32(rapid.IntRange(1, 30).Draw(t, "life"))
		a.Nodes = nil
		for i := range rapid.IntRange(0, 5).Draw(t, "nodes") {
			name := fmt.Sprint("n", i)
			a.Nodes = append(a.Nodes, Node{Name: name, Resource: name, GPUs: rapid.IntRange(0, 8).Draw(t, "gpus")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "revisions") {
			a.Revisions = append(a.Revisions, Revision{
				From:       a.InService + domain.Instant(rapid.Int64Range(0, 900).Draw(t, "revised"))*domain.Day,
				LifeMonths: uint32(rapid.IntRange(1, 40).Draw(t, "new life")), Residual: a.Residual,
				Impairment: cents("impairment", 1e8),
			})
		}
		a.Disposal = &Disposal{At: a.InService + domain.Instant(rapid.Int64Range(0, 1300).Draw(t, "disposed"))*domain.Day, Proceeds: cents("proceeds", 1e9)}
		rules := Rules{Convention: rapid.SampledFrom([]Convention{Daily, FullMonth, HalfMonth, NextMonth}).Draw(t, "convention")}
		in := &Input{Assets: []Asset{a}, Rules: rules}
		total := domain.Decimal{}
		for m := range 60 {
			for _, inv := range charged(in, 2026, 1+m) {
				lines, details := domain.Decimal{}, domain.Decimal{}
				for i := range inv.Lines {
					lines = lines.Add(inv.Lines[i].BilledCost)
				}
				for _, d := range inv.Details {
					details = details.Add(d.BilledCost)
				}
				if !lines.Equal(inv.Total.Amount) || !details.Equal(inv.Total.Amount) {
					t.Fatalf("invoice %s of %s: lines %s, rows %s", inv.ID, inv.Total, lines, details)
				}
				total = total.Add(lines)
			}
		}
		want := a.Capex.Amount.Sub(a.Disposal.Proceeds.Amount)
		if !total.Equal(want) {
			t.Fatalf("charged %s over its life, want %s", total, want)
		}
	})
}

// The order of the input is immaterial.
func TestOrderIsImmaterial(t *testing.T) {
	a, b := machine(), machine()
	b.ID, b.Cluster = "dgx-00", "zoo"
	text := func(in *Input) string {
		var s strings.Builder
		all, problems := Bill(in, period(2026, 3))
		for _, inv := range all {
			fmt.Fprintln(&s, inv.Cluster, inv.ID, inv.Total)
			for i := range inv.Lines {
				fmt.Fprintln(&s, inv.Lines[i].LineID, inv.Lines[i].BilledCost)
			}
		}
		fmt.Fprintln(&s, problems)
		return s.String()
	}
	if x, y := text(&Input{Assets: []Asset{a, b}}), text(&Input{Assets: []Asset{b, a}}); x != y {
		t.Errorf("another order:\n%s\nwant\n%s", y, x)
	}
}

// TestMeterWhenAMachineComes: a machine that comes into service while a meter counts takes nothing from what the meter counted before.
func TestMeterWhenAMachineComes(t *testing.T) {
	a, b := machine(), machine()
	a.Site, b.Site, a.PowerWatts, b.PowerWatts = "hall", "hall", 1000, 1000
	b.ID, b.Nodes = "dgx-02", []Node{{Name: "n2", Resource: "n2", GPUs: 8}}
	b.InService = at(2026, 1, 2) + 12*domain.Hour
	in := &Input{Assets: []Asset{a, b}, Tariffs: []Tariff{{Operator: "own", Site: "hall", From: at(2026, 1, 1), PerKWh: usd("1")}}}
	for d := 1; d <= 31; d++ { // one reading a day, of 24 kWh
		in.Readings = append(in.Readings, Reading{Cluster: "lab", Meter: "m", WattHours: dec("24000"),
			Interval: domain.Interval{From: at(2026, 1, d), To: at(2026, 1, d+1)}})
	}
	all, problems := Bill(in, period(2026, 1))
	if got := of(all, Power, "USD"); got != "744" {
		t.Errorf("of 744 kWh that the meter counted, %s are charged; problems %v", got, problems)
	}
}
