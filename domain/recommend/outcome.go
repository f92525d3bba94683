package recommend

import (
	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// OutcomeMethod is the version of how outcomes are measured.
const OutcomeMethod = "outcome/1"

// Spent is what the subject of a recommendation cost in a period, and the useful GPU time that it got for it.
type Spent struct {
	Window domain.Interval `json:"window"`
	Cost   decimal.Decimal `json:"cost"`          // in the effective ledger
	Paid   int64           `json:"bought_gpu_ms"` // GPU time that was paid for
	Useful int64           `json:"useful_gpu_ms"` // GPU time that did work; 0: not measured
}

// Realised compares what was paid after a recommendation was carried out with what would have been.
type Realised struct {
	Before Spent `json:"before"`
	After  Spent `json:"after"`
	// Demand is useful GPU time after ÷ before, for periods of one length; 1 where it was not measured.
	Demand         decimal.Decimal `json:"demand"`
	DemandMeasured bool            `json:"demand_measured"`
	// Expected is what the time after would have cost without it: the price of a GPU-hour before, times the GPU time that
	// was paid for before, as much more or less as demand grew or fell.
	Expected decimal.Decimal `json:"expected"`
	Currency string          `json:"currency"`
	Saved    decimal.Decimal `json:"saved"` // a month of 730 hours: Expected - paid, negative if it cost more
}

// Realise measures a saving:
//
//	saved = (price before × time paid before × demand after ÷ demand before × length after ÷ length before - cost after)
//	        × 730 hours ÷ length after
func Realise(before, after Spent, currency string) Realised {
	r := Realised{Before: before, After: after, Demand: decimal.NewFromInt(1), Currency: currency}
	lengths := hours(after.Window).DivRound(hours(before.Window), 18)
	if before.Useful > 0 && after.Useful > 0 {
		r.Demand = decimal.NewFromInt(after.Useful).DivRound(decimal.NewFromInt(before.Useful), 18).DivRound(lengths, 6)
		r.DemandMeasured = true
	}
	r.Expected = before.Cost.Mul(r.Demand).Mul(lengths).Round(6)
	r.Saved = r.Expected.Sub(after.Cost).Mul(decimal.NewFromInt(domain.MonthHours)).DivRound(hours(after.Window), 2)
	return r
}

func hours(i domain.Interval) decimal.Decimal {
	return decimal.NewFromInt(int64(i.Length())).DivRound(decimal.NewFromInt(int64(domain.Hour)), 18)
}
