package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"quartermaster/domain"
)

// A whole document of one pool and one day, as a file.
const small = `{
  "format": "quartermaster.instance/1", "name": "small", "currency": "USD", "from": "2027-01-01T00:00:00Z", "epoch": "day", "epochs": 1,
  "annual_rate": "0", "salvage": "0",
  "regions": [{"id": "r", "country": "US"}, {"id": "s"}],
  "pools": [{"id": "p", "region": "r", "class": "A", "unit": "gpu", "on_demand": {"hourly": "2"}}, {"id": "q", "region": "s", "class": "B", "unit": "gpu", "on_demand": {"hourly": "2"}}],
  "demands": [{"id": "d", "pool": "p", "duration": [[{"units": 1, "hours": 24}]], "interruptible_share": "0", "shortage_hourly": "9"}],
  "offers": [{"id": "o", "kind": "reserved", "pool": "p", "term_epochs": 1, "upfront": "0", "hourly": "1", "guarantees_capacity": true}]
}`

func TestSyntaxErrorsSayWhere(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"epochs": 1`, `"epochs": 1.5`, `^f:2:\d+: /epochs: 1.5 is not valid here: expected a whole number`},
		{`"epochs": 1`, `"epochs": 1e2`, `/epochs: 1e2 is not`},
		{`"epochs": 1`, `"epochs": 99999999999999999999`, `/epochs: 99999999999999999999 is not`},
		{`"epochs": 1`, `"epochs": NaN`, `^f:2:\d+`},
		{`"epochs": 1`, `"epochs": 1, "epochs": 2`, `/epochs: duplicate key`},
		{`"epochs": 1`, `"epochs": 1, "epoch_count": 2`, `/epoch_count: unknown key`},
		{`"term_epochs": 1,`, `"term_epochs": 1, "max_units": 0,`, `^f:7:\d+: /offers/0/max_units: 0: nothing could be bought`},
		{`"term_epochs": 1,`, `"term_epochs": 1, "covers_per_unit": 0,`, `/offers/0/covers_per_unit: 0: it would cover nothing`},
		{`"unit": "gpu", "on_demand"`, `"unit": "gpu", "quota_per_unit": 0, "on_demand"`, `/pools/0/quota_per_unit: 0`},
		{`"offers": [`, `"scenarios": [{"id": "a", "weight": 1, "factor_permille": 0}], "offers": [`, `/scenarios/0/factor_permille: 0: nothing would be wanted`},
		{`"epochs": 1`, `"Epochs": 1`, `unknown key|"epochs" is missing`},
		{`"epochs": 1`, `"epochs": null`, `/epochs: null is not allowed`},
		{`"annual_rate": "0"`, `"annual_rate": 0.05`, `/annual_rate: 0.05 is not a decimal string: write it in quotes`},
		{`"annual_rate": "0"`, `"annual_rate": "1e-9"`, `/annual_rate: "1e-9" is not a decimal number`},
		{`"annual_rate": "0"`, `"annual_rate": "NaN"`, `"NaN" is not a decimal number`},
		{`"annual_rate": "0"`, `"annual_rate": "` + strings.Repeat("9", 4000) + `"`, `is not a decimal number`},
		{`"hourly": "1", "guar`, `"hourly": "01", "guar`, `f:7:\d+: /offers/0/hourly: "01" is not a decimal number`},
		{`"hourly": "1", "guar`, `"guar`, `/offers/0: "hourly" is missing`},
		{`"id": "r", `, ``, `/regions/0: "id" is missing`},
		{`"from": "2027-01-01T00:00:00Z"`, `"from": "2027-01-01"`, `/from: .*RFC 3339|/from: .*zone`},
		{`"regions": [`, `"regions": [` + strings.Repeat("[", 40), `nested more than 24 levels deep`},
		{`  "offers"`, `  } "offers"`, `^f:7:\d+`},
		{`true}]
}`, `true}]
} {}`, `f:8:3: unexpected data after the document`},
		{`quartermaster.instance/1`, `quartermaster.instance/9`, `f:2:\d+: /format: format is "quartermaster.instance/9"`},
		{small, ``, `the document is empty or not JSON`},
		{small, `[]`, `/?: a list is not valid here: expected an object`},
	} {
		_, err := Parse("f", []byte(strings.Replace(small, c.from, c.to, 1)))
		if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("%.60q: %v, want %s", c.to, err, c.want)
		}
		if err != nil && len(err.Error()) > 2000 {
			t.Errorf("%.60q: an error of %d bytes", c.to, len(err.Error()))
		}
	}
	if _, err := Parse("f", []byte(small)); err != nil {
		t.Fatal(err)
	}
}

func TestRulesSayWhatIsBroken(t *testing.T) {
	some := 3
	day := func(n int) domain.Instant { return instant(t, "2027-01-01T00:00:00Z") + domain.Instant(n)*domain.Day }
	for _, c := range []struct {
		change func(*Instance)
		want   string
	}{
		{func(in *Instance) { in.Currency = "usd" }, `/currency: "usd" is not an ISO 4217 code`},
		{func(in *Instance) { in.From += domain.Hour }, `/from: .* is not midnight UTC`},
		{func(in *Instance) { in.Epoch, in.From = Months, day(1) }, `/from: .* is not the first of a month`},
		{func(in *Instance) { in.Epochs = 0 }, `/epochs: 0 is not within 1 to 3660 days`},
		{func(in *Instance) { in.AnnualRate = dec("1.5") }, `/annual_rate: 1.5 is not a share`},
		{func(in *Instance) { in.Salvage = dec("-1") }, `/salvage: -1 is not a share`},
		{func(in *Instance) { in.FX = map[string]domain.Decimal{"USD": dec("1")} }, `/fx/USD: USD is the instance's own`},
		{func(in *Instance) { in.FX = map[string]domain.Decimal{"EUR": dec("0")} }, `/fx/EUR: a rate of 0`},
		{func(in *Instance) { in.Offers[0].Currency = "EUR" }, `/offers/0/currency: no rate is given for "EUR"`},
		{func(in *Instance) { in.Regions[1].ID = "r" }, `/regions/1/id: "r" is the name of /regions/0 too`},
		{func(in *Instance) { in.Pools[0].ID = "" }, `/pools/0/id: it has no name`},
		{func(in *Instance) { in.Pools[0].Region = "mars" }, `/pools/0/region: there is no region "mars"`},
		{func(in *Instance) { in.Pools[0].Unit = "rack" }, `/pools/0/unit: "rack"`},
		{func(in *Instance) { in.Pools[0].OnDemand.Hourly = dec("-2") }, `/pools/0/on_demand/hourly: -2 is negative`},
		{func(in *Instance) { in.Pools[0].Quota = "x" }, `/pools/0/quota: there is no quota "x"`},
		{func(in *Instance) { in.Pools[0].Spot = &Spot{Overhead: dec("1")} }, `/pools/0/spot/overhead: interruptions lose all`},
		{func(in *Instance) { in.Demands[0].Duration = nil }, `/demands/0: neither hourly nor duration`},
		{func(in *Instance) { in.Demands[0].Hourly = make([]int, 24) }, `/demands/0: hourly and duration are both given`},
		{func(in *Instance) { in.Demands[0].Duration, in.Demands[0].Hourly = nil, make([]int, 23) }, `/demands/0/hourly: 23 hours are given, and the horizon has 24`},
		{func(in *Instance) { in.Demands[0].Duration[0][0].Hours = 25 }, `/demands/0/duration/0/0/hours: 25 is not within`},
		{func(in *Instance) { in.Demands[0].Duration[0][0].Units = -1 }, `/duration/0/0/units: -1`},
		{func(in *Instance) { in.Demands[0].Duration[0][0].Hours = 23 }, `/demands/0/duration/0: 23 hours, and the epoch has 24: each is needed`},
		{func(in *Instance) { in.Demands[0].Interruptible = dec("1.01") }, `/demands/0/interruptible_share`},
		{func(in *Instance) { in.Demands[0].Shortage = dec("1") }, `/demands/0/shortage_hourly: 1 is below the price on demand`},
		{func(in *Instance) { in.Demands[0].LatencyBudgetMS = -1 }, `/latency_budget_ms`},
		{func(in *Instance) { in.Demands[0].Countries = []string{"DE"} }, `/demands/0/countries: the region "r" of its own pool is in US`},
		{func(in *Instance) { in.Demands[0].Certifications = []string{"soc2"} }, `/demands/0/certifications/0: its own pool "p" is not certified`},
		{func(in *Instance) { in.Demands[0].DeferrableShare = dec("0.5") }, `/defer_hours: it does not say how long`},
		{func(in *Instance) { in.Demands[0].Buffer = &Buffer{ServiceLevel: dec("1")} }, `/buffer/service_level: 1 is not above 0 and below 1`},
		{func(in *Instance) {
			in.Demands[0].Buffer = &Buffer{ServiceLevel: dec("0.9"), FailuresPerGPUHour: dec("0.1"), RepairHours: dec("8")}
		}, `/buffer: a node would be down 0.8 of the time`},
		{func(in *Instance) { in.Offers[0].Kind = "gift" }, `/offers/0/kind: "gift" is none of`},
		{func(in *Instance) { in.Offers[0].Kind = domain.OfferSpot }, `/offers/0/kind: spot is priced by its pool`},
		{func(in *Instance) { in.Offers[0].Term = 0 }, `/offers/0/term_epochs: 0`},
		{func(in *Instance) { in.Offers[0].Term = 40_000 }, `/offers/0/term_epochs: 40000 is not within 1 to 36525`},
		{func(in *Instance) { in.Epoch, in.Epochs, in.Offers[0].Term = Months, 1, 1201 }, `/offers/0/term_epochs: 1201 months: longer than the 1200 that a term may be`},
		{func(in *Instance) { in.Demands[0].Past = []int{1, -2} }, `/demands/0/past_hourly/1: -2 is not within`},
		{func(in *Instance) {
			in.Demands[0].Duration, in.Demands[0].Hourly = nil, make([]int, 24)
			in.Scenarios = []Scenario{{ID: "a", Weight: 1, Hourly: map[string][]int{"d": make([]int, 20)}}}
		}, `/scenarios/0/hourly/d: 20 hours are given, and the horizon has 24: demand without gaps is needed`},
		{func(in *Instance) { in.Offers[0].Upfront = dec("-1") }, `/offers/0/upfront: -1 is negative`},
		{func(in *Instance) { in.Offers[0].Decline = dec("1") }, `/decline_per_epoch`},
		{func(in *Instance) { in.Offers[0].MinUnits, in.Offers[0].MaxUnits = 4, 3 }, `/offers/0/max_units: nothing can be bought`},
		{func(in *Instance) { in.Offers[0].Lot, in.Offers[0].MaxUnits = 8, 7 }, `/offers/0/lot: nothing can be bought`},
		{func(in *Instance) { in.Offers[0].Ramp = []RampStep{{0, 0}} }, `/offers/0/ramp: it has no capacity`},
		{func(in *Instance) { in.Offers[0].Ramp = []RampStep{{0, 250}} }, `/ramp/0/permille: 250 thousandths of a lot of 1 units are not whole: make the lot a multiple of 4`},
		{func(in *Instance) { in.Offers[0].Tiers = []Tier{{Units: 3}, {Units: 3}} }, `/tiers/1/units: 3 is not above`},
		{func(in *Instance) { in.Offers[0].Owned = &Owned{PUE: dec("1")} }, `/offers/0/owned: owned hardware must state`},
		{func(in *Instance) { in.Pools[0].OnDemand, in.Offers[0].GuaranteesCapacity = nil, false }, `/offers/0/guarantees_capacity: it is a discount only`},
		{func(in *Instance) { in.Offers[0].Kind = domain.OfferSpendCommitment }, `/offers/0/spend: it has no name`},
		{func(in *Instance) { in.Offers[0].To, in.Offers[0].From = day(1), day(2) }, `/offers/0/to`},
		{func(in *Instance) {
			in.Commitments = []Commitment{{ID: "c", Kind: domain.OfferReserved, Pool: "p", Units: 0, Term: domain.Interval{From: day(0), To: day(-1)}}}
		}, `/commitments/0/units: 0(?s:.*)/commitments/0/term/to`},
		{func(in *Instance) {
			in.Commitments = []Commitment{{ID: "c", Kind: domain.OfferReserved, Pool: "p", Units: 1, Renews: true, Term: domain.Interval{From: day(0), To: day(1)}}}
		}, `/commitments/0/notice_by: it renews`},
		{func(in *Instance) { in.Quotas = []Quota{{ID: "x", Limit: -1}} }, `/quotas/0/limit: -1`},
		{func(in *Instance) { in.Overflow = []Overflow{{From: "r", To: "r"}} }, `/overflow/0/to: it is the region itself`},
		{func(in *Instance) { in.Overflow = []Overflow{{From: "r", To: "s"}, {From: "r", To: "s"}} }, `/overflow/1: the overflow from "r" to "s" duplicates /overflow/0`},
		{func(in *Instance) { in.Substitutes = []Substitute{{For: "A", Class: "Z", Units: dec("1")}} }, `/substitutes/0/class: no pool is of class "Z"`},
		{func(in *Instance) { in.Substitutes = []Substitute{{For: "A", Class: "B", Units: dec("0")}} }, `/substitutes/0/units: 0 is not above 0`},
		{func(in *Instance) {
			in.Substitutes = []Substitute{{For: "A", Class: "B", Units: dec("2")}, {For: "B", Class: "A", Units: dec("0.4")}}
		}, `/substitutes/\d: the substitutes (A → B → A|B → A → B) form a cycle that turns one unit into 0.8`},
		{func(in *Instance) {
			in.Overflow = []Overflow{{From: "r", To: "s", RoundTripMS: 10}}
			in.Demands[0].LatencyBudgetMS = 20
			in.Substitutes = []Substitute{{For: "A", Class: "B", Units: dec("2")}}
			in.Demands = append(in.Demands, Demand{ID: "e", Pool: "q", Hourly: make([]int, 24), Shortage: dec("9")})
		}, `/demands/0/duration: it meets demand "e" hour by hour`},
		{func(in *Instance) { in.Posture = &Posture{Kind: "both", Share: dec("1")} }, `/posture/kind(?s:.*)/posture/demands: none is named`},
		{func(in *Instance) {
			in.Budgets = []Budget{{ID: "b", Basis: "soon", Interval: domain.Interval{From: day(0), To: day(1)}}}
		}, `/budgets/0/basis: "soon"`},
		{func(in *Instance) {
			in.Budgets = []Budget{{ID: "b", Basis: Cash, Interval: domain.Interval{From: day(5), To: day(6)}}}
		}, `/budgets/0/interval: it does not overlap the horizon`},
		{func(in *Instance) { d := dec("2"); in.Limits.MaxSpotShare = &d }, `/limits/max_spot_share: 2`},
		{func(in *Instance) { in.Scenarios = []Scenario{{ID: "a", Weight: 0}} }, `/scenarios/0/weight: 0`},
		{func(in *Instance) { in.Scenarios = []Scenario{{ID: "a", Weight: 1, Factors: map[string]int{"x/y": 1}}} }, `/scenarios/0/factors_permille/x~1y: there is no demand "x/y"`},
		{func(in *Instance) { in.Scenarios = []Scenario{{ID: "a", Weight: 1, Spot: map[string]int{"p": some}}} }, `/spot_available_units/p: pool "p" has no spot`},
		{func(in *Instance) {
			in.Scenarios = []Scenario{{ID: "a", Weight: 1, Hourly: map[string][]int{"d": make([]int, 24)}}}
		}, `demand "d" is a load-duration curve`},
	} {
		in, err := Parse("f", []byte(small))
		if err != nil {
			t.Fatal(err)
		}
		c.change(in)
		err = in.Validate()
		var faults *Faults
		if !errors.As(err, &faults) || !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("%v, want %s", err, c.want)
			continue
		}
		// The same from a file, if it can be written.
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("f", text); err == nil {
			t.Errorf("%s: its file is read", c.want)
		}
	}
}

// A negative or missing number of an instance is refused, with its place.
func TestNegativeNumbersAreRefused(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	tried := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var root any
		if err := json.Unmarshal(text, &root); err != nil {
			t.Fatal(err)
		}
		var walk func(at string, x any, put func(any))
		try := func(at string, put func(any), was any, values ...any) {
			for _, v := range values {
				put(v)
				changed, err := json.Marshal(root)
				if err != nil {
					t.Fatal(err)
				}
				tried++
				if _, err := Parse("f", changed); err == nil || !strings.Contains(err.Error(), at) || !strings.HasPrefix(err.Error(), "f:1:") {
					t.Errorf("%s: %s as %v: %v", path, at, v, err)
				}
			}
			put(was)
		}
		walk = func(at string, x any, put func(any)) {
			switch y := x.(type) {
			case map[string]any:
				for k, v := range y {
					walk(at+"/"+escape(k), v, func(n any) { y[k] = n })
				}
			case []any:
				for i, v := range y[:min(len(y), 2)] {
					walk(fmt.Sprintf("%s/%d", at, i), v, func(n any) { y[i] = n })
				}
			case float64:
				try(at, put, x, -1, "NaN", 1.5)
			case string:
				if decimals.MatchString(y) {
					try(at, put, x, "-1", "NaN", "Infinity", "-0.0000001e9")
				}
			}
		}
		walk("", root, func(any) {})
	}
	t.Logf("%d numbers refused", tried)
}

// A term longer than the horizon can be bought, and counts by its salvage: of three days one is in
// the horizon, and a tenth of the others counts.
func TestTermLongerThanTheHorizon(t *testing.T) {
	in, err := Parse("f", []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	in.Offers[0].Term, in.Salvage = 3, dec("0.9")
	a := solved(t, in)
	if len(a.Purchases) != 1 {
		t.Fatalf("%+v", a.Purchases)
	}
	same(t, "cost", a.Cost, "28.8") // 24 + 48 × 0.1
	same(t, "with nothing kept", a.EndOfHorizon[0].Cost, "72")
	same(t, "with all kept", a.EndOfHorizon[1].Cost, "24")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(`{"format": "quartermaster.instance/1"}`))
	f.Add([]byte(strings.Replace(small, `"offers"`, `"overflow": [{"from": "r", "to": "s", "round_trip_ms": 3, "hourly": "0"}], "substitutes": [{"for": "A", "class": "B", "units": "1.5"}], "scenarios": [{"id": "a", "weight": 3, "factor_permille": 900}], "offers"`, 1)))
	f.Add([]byte(strings.Replace(small, `"offers"`, `"commitments": [{"id": "c", "kind": "reserved", "pool": "p", "units": 1, "term": {"from": "2026-12-01T00:00:00Z", "to": "2027-01-01T12:00:00Z"}, "upfront": "5", "hourly": "1", "guarantees_capacity": true, "renews": true, "notice_by": "2027-01-01T06:00:00Z"}], "offers"`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		in, err := Parse("fuzz", data)
		if err != nil {
			return
		}
		digest, err := in.Digest()
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("again", text)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v\n%s", err, text)
		}
		if other, _ := again.Digest(); other != digest {
			t.Fatalf("written and read it is another: %s", text)
		}
		if in.Epochs > 40 || len(in.Scenarios) > 4 || len(in.Offers) > 8 || len(in.Pools) > 8 {
			return
		}
		for _, o := range in.Offers {
			if o.Term > 100 {
				return
			}
		}
		if _, err := compile(in, nil); err != nil { // and never panics
			return
		}
	})
}
