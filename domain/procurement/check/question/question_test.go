package question

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

func dec(s string) domain.Decimal { return decimal.RequireFromString(s) }

func at(t *testing.T, s string) domain.Instant {
	t.Helper()
	i, err := domain.ParseInstant(s)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// 1.08 to the power of minus a twelfth is 0.993607102…; twelve of them are 1/1.08. At a rate of 1 a
// year halves.
func TestFactors(t *testing.T) {
	h, err := newHorizon(&document{From: at(t, "2027-01-01T00:00:00Z"), Epoch: "month", Epochs: 12, AnnualRate: dec("0.08")}, 24)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(h.begin[1].String(), "0.99360710") {
		t.Errorf("a month's factor is %s", h.begin[1])
	}
	year := dec("1").DivRound(dec("1.08"), 40)
	if d := h.begin[12].Sub(year).Abs(); d.GreaterThan(dec("0.00000000000000000000000000000000001")) {
		t.Errorf("a year's factor is %s, not %s", h.begin[12], year)
	}
	if d := h.middle[0].Mul(h.middle[0]).Sub(h.begin[1]).Abs(); d.GreaterThan(dec("0.00000000000000000000000000000000001")) {
		t.Errorf("the middle of a month is %s", h.middle[0])
	}
	if h.length(1) != 28*24 || h.hours[12] != 8760 || h.end() != at(t, "2028-01-01T00:00:00Z") {
		t.Errorf("hours %v", h.hours)
	}
	if h, err = newHorizon(&document{From: at(t, "2028-02-01T00:00:00Z"), Epoch: "day", Epochs: 1, AnnualRate: dec("1")}, 366); err != nil {
		t.Fatal(err)
	}
	if d := h.begin[365].Sub(dec("0.5")).Abs(); d.GreaterThan(dec("0.00000000000000000000000000000000001")) {
		t.Errorf("after 365 days %s", h.begin[365])
	}
}

// Half a day at 5 and half at 3 is 4; a change at midnight is none within the day.
func TestPricesAreMeans(t *testing.T) {
	d := &document{From: at(t, "2027-01-01T00:00:00Z"), Epoch: "day", Epochs: 3, Currency: "USD", FX: map[string]domain.Decimal{"EUR": dec("2")}}
	cal, err := newHorizon(d, 3)
	if err != nil {
		t.Fatal(err)
	}
	r := &reading{doc: d, cal: cal}
	got, err := r.prices(&price{Hourly: dec("5"), Currency: "EUR", Path: []priceStep{
		{at(t, "2027-01-01T12:00:00Z"), dec("3")}, {at(t, "2027-01-03T00:00:00Z"), dec("1")}}})
	if err != nil || !got[0].Equal(dec("8")) || !got[1].Equal(dec("6")) || !got[2].Equal(dec("2")) {
		t.Errorf("%v, %v", got, err)
	}
	q := &quota{Limit: 9, Path: []quotaStep{{at(t, "2027-01-01T01:00:00Z"), 4}, {at(t, "2027-01-02T00:00:00Z"), 7}, {at(t, "2027-01-03T05:00:00Z"), 200_000_000}}}
	if got := r.quotaUnits(q, 2); !slices.Equal(got, []int{4, 6, 6}) {
		t.Errorf("units of the quota %v", got)
	}
}

// By hand: a node is down one time in a hundred. Of two both are up with 0.9801, at most one of three
// is down with 0.999702, at most two of four with 0.99999604.
func TestSpareNodes(t *testing.T) {
	b := &buffer{ServiceLevel: dec("0.99"), Failures: dec("0.001"), RepairHours: dec("10")}
	for level, want := range map[string]int{"0.98": 0, "0.9801": 0, "0.98010001": 1, "0.99": 1, "0.999702": 1, "0.9997020001": 2, "0.9999": 2} {
		b.ServiceLevel = dec(level)
		got, err := b.spareNodes([]int{2})
		if err != nil || got[2] != want {
			t.Errorf("at %s %d spare nodes, not %d, %v", level, got[2], want, err)
		}
	}
}

// Terms of whole months go on by months, and end on the last day of a shorter one.
func TestFurtherTerms(t *testing.T) {
	c := &commitment{
		Term:   domain.Interval{From: at(t, "2026-11-28T00:00:00Z"), To: at(t, "2027-01-28T00:00:00Z")},
		Renews: true, NoticeBy: at(t, "2026-12-31T00:00:00Z"),
	}
	if got := c.times(2); got.From != at(t, "2027-03-28T00:00:00Z") || got.To != at(t, "2027-05-28T00:00:00Z") {
		t.Errorf("%s to %s", got.From, got.To)
	}
	if got := c.notice(2); got != at(t, "2027-02-28T00:00:00Z") {
		t.Errorf("notice by %s", got)
	}
	settled, weighed := c.further(at(t, "2027-01-01T00:00:00Z"), at(t, "2027-06-01T00:00:00Z"))
	if settled != 1 || weighed != 2 {
		t.Errorf("%d certain, %d weighed", settled, weighed)
	}
	c.Term.To += domain.Hour // no whole months
	if got := c.times(1); got.Length() != c.Term.Length() || got.From != c.Term.To {
		t.Errorf("%s to %s", got.From, got.To)
	}
}

func TestRatio(t *testing.T) {
	for takes, want := range map[string][2]int{"1": {1, 1}, "0.75": {3, 4}, "1.05": {21, 20}, "1.57501": {15751, 10000}, "123.4567": {12346, 100}} {
		n, d := ratio(dec(takes))
		if int64(n)*int64(want[1]) != int64(want[0])*int64(d) {
			t.Errorf("%s is %d/%d", takes, n, d)
		}
	}
}

func TestUnits(t *testing.T) {
	var u units
	if err := json.Unmarshal([]byte("[0, 12,\n3]"), &u); err != nil || !slices.Equal(u, units{0, 12, 3}) {
		t.Errorf("%v, %v", u, err)
	}
	for _, bad := range []string{"[-1]", "[1.5]", "[1e3]", `["1"]`, "{}", "[12345678901]"} {
		if err := json.Unmarshal([]byte(bad), &u); err == nil {
			t.Errorf("%s is read as %v", bad, u)
		}
	}
}

func TestRefusesWhatIsNoQuestion(t *testing.T) {
	for _, text := range []string{"", "{", `{"format":"quartermaster.instance/2"}`, `{"format":"quartermaster.instance/1","quota":[]}`} {
		if _, err := Check(t.Context(), []byte(text), []byte("{}"), nil); err == nil || errors.Is(err, ErrRejected) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
