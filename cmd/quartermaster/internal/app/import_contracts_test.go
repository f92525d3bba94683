package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/focus"
	"quartermaster/domain"
	"quartermaster/projections/planning"
)

func at(t *testing.T, s string) domain.Instant {
	t.Helper()
	v, err := domain.ParseInstant(s + "T00:00:00Z")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestContractsBeside(t *testing.T) {
	usd := func(n string) domain.Money {
		return domain.Money{Amount: decimal.RequireFromString(n), Currency: "USD"}
	}
	year := domain.Interval{From: at(t, "2026-01-01"), To: at(t, "2027-01-01")}
	entry := func(change func(*planning.CommitmentEntry)) planning.CommitmentEntry {
		e := planning.CommitmentEntry{
			Contract: "k-1", Market: domain.Market{Provider: "Acme"},
			Terms: []planning.CommitmentTerm{{Term: year, Units: 2, Upfront: usd("100"), Hourly: usd("1.5")}},
		}
		change(&e)
		return e
	}
	row := focus.Contract{
		Line: 2, ID: "c", ContractID: "k-1", Provider: "ACME", Category: "Usage", Lifecycle: "Active", PaymentModel: "Partial Upfront",
		Currency: "USD", Cost: domain.NullDecimal{Decimal: decimal.RequireFromString("26380.00"), Valid: true}, Term: year, // 100 + 2 × 1.5 × 8760
	}
	for _, c := range []struct {
		name string
		row  func(*focus.Contract)
		log  func(*planning.CommitmentEntry)
		want string
	}{
		{"the same", func(*focus.Contract) {}, func(*planning.CommitmentEntry) {}, ""},
		{"no contract in the log", func(r *focus.Contract) { r.ContractID = "x" }, func(e *planning.CommitmentEntry) { e.Contract = "" }, ""},
		{"contract", func(r *focus.Contract) { r.ContractID = "x" }, func(*planning.CommitmentEntry) {}, "ContractId x k-1"},
		{"unknown", func(r *focus.Contract) { r.ID = "d" }, func(e *planning.CommitmentEntry) { e.Market.Provider = "other" }, "ContractCommitmentId d -"},
		{"missing", func(r *focus.Contract) { r.ID = "d" }, func(*planning.CommitmentEntry) {}, "ContractCommitmentId d -|ContractCommitmentId - c"},
		{"over and missing", func(r *focus.Contract) { r.ID = "d" }, func(e *planning.CommitmentEntry) { e.Terms[0].Term.To = at(t, "2026-02-01") }, "ContractCommitmentId d -"},
		{"never valid", func(*focus.Contract) {}, func(e *planning.CommitmentEntry) { e.Terms = nil }, "ContractCommitmentPeriodStart 2026-01-01T00:00:00Z -"},
		{"cost", func(*focus.Contract) {}, func(e *planning.CommitmentEntry) { e.Terms[0].Units = 3 }, "ContractCommitmentCost 26380 39520"},
		{"cost null", func(r *focus.Contract) { r.Cost.Valid = false }, func(e *planning.CommitmentEntry) { e.Terms[0].Units = 3 }, ""},
		{"currency", func(r *focus.Contract) { r.Currency = "EUR" }, func(*planning.CommitmentEntry) {}, "BillingCurrency EUR USD"},
		{"all upfront", func(r *focus.Contract) { r.Cost.Valid = false }, func(e *planning.CommitmentEntry) { e.Terms[0].Hourly = usd("0") }, "ContractCommitmentPaymentModel Partial Upfront All Upfront"},
		{"no upfront", func(r *focus.Contract) { r.Cost.Valid = false }, func(e *planning.CommitmentEntry) { e.Terms[0].Upfront = usd("0") }, "ContractCommitmentPaymentModel Partial Upfront No Upfront"},
		{"spend", func(*focus.Contract) {}, func(e *planning.CommitmentEntry) {
			e.SpendPerHour = domain.NullDecimal{Decimal: decimal.RequireFromString("3"), Valid: true}
		}, "ContractCommitmentCategory Usage Spend"},
		{"canceled", func(r *focus.Contract) { r.Lifecycle = "Canceled" }, func(*planning.CommitmentEntry) {}, "ContractCommitmentLifecycleStatus Canceled Active"},
		{"ended early", func(r *focus.Contract) { r.Cost.Valid = false }, func(e *planning.CommitmentEntry) { e.Terms[0].Term.To = at(t, "2026-03-01") },
			"ContractCommitmentPeriodEnd 2027-01-01T00:00:00Z 2026-03-01T00:00:00Z|ContractCommitmentLifecycleStatus Active Expired"},
		{"the term of a renewal", func(r *focus.Contract) {
			r.Term = domain.Interval{From: year.To, To: at(t, "2028-01-01")}
			r.Cost.Valid, r.PaymentModel = false, ""
		}, func(e *planning.CommitmentEntry) {
			e.Terms = append(e.Terms, planning.CommitmentTerm{Term: domain.Interval{From: year.To, To: at(t, "2028-01-01")}, Units: 1, Hourly: usd("1")})
		}, ""},
		{"begins later", func(r *focus.Contract) { r.Term.From, r.Cost.Valid = at(t, "2026-01-15"), false }, func(*planning.CommitmentEntry) {},
			"ContractCommitmentPeriodStart 2026-01-15T00:00:00Z 2026-01-01T00:00:00Z"},
	} {
		r := row
		c.row(&r)
		ans := contractsBeside([]focus.Contract{r}, map[string]planning.CommitmentEntry{"c": entry(c.log)}, at(t, "2026-05-01"))
		var got []string
		for _, d := range ans.Differences {
			got = append(got, fmt.Sprintf("%s %s %s", d.Column, orDash(d.File), orDash(d.Log)))
		}
		if strings.Join(got, "|") != c.want || (ans.Same == 1) != (c.want == "") {
			t.Errorf("%s: %q, %+v, want %q", c.name, strings.Join(got, "|"), ans, c.want)
		}
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
