package costs

import (
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// StatedSince sums up, for a currency, the lines of a month that came, changed or were removed in some time.
type StatedSince struct {
	Currency string `json:"currency"`
	Lines    int    `json:"lines"`
	// Billed is by how much the billed cost of the month changed.
	Billed domain.Decimal `json:"billed"`
}

// LinesStated sums up what suppliers stated about a month after one time and until another, by the clocks of those who
// imported it. An accrual that an invoice replaces by now is not counted: it is not a supplier's line.
func LinesStated(view projections.View, month domain.Interval, after, until domain.Instant) ([]StatedSince, error) {
	sums := map[string]*StatedSince{}
	at := projections.MonthStart(month.From)
	accruals := accrued{view: view}
	q := projections.Query{Table: projections.TableBillingLines, From: at, To: at + 1}
	err := view.Scan(q, func(_ projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		was, is := statedUntil(h, after), statedUntil(h, until)
		if was == is {
			return nil
		}
		changed := map[string]domain.Decimal{} // by currency
		for _, s := range []struct {
			of   *projections.Version
			sign int64
		}{{was, -1}, {is, 1}} {
			if s.of == nil {
				continue
			}
			line := billingLine(s.of)
			if line == nil {
				continue
			}
			if replaced, err := accruals.replaced(line); replaced || err != nil {
				return err
			}
			cost := line.BilledCost
			if s.sign < 0 {
				cost = cost.Neg()
			}
			changed[line.BillingCurrency] = changed[line.BillingCurrency].Add(cost)
		}
		for currency, cost := range changed {
			sum := sums[currency]
			if sum == nil {
				sum = &StatedSince{Currency: currency}
				sums[currency] = sum
			}
			sum.Lines++
			sum.Billed = sum.Billed.Add(cost)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read billing lines: %w", err)
	}
	var out []StatedSince
	for _, s := range sums {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b StatedSince) int { return strings.Compare(a.Currency, b.Currency) })
	return out, nil
}

// statedUntil returns the last statement about a line that had been appended at a time, nil if there was none.
func statedUntil(h *projections.History, at domain.Instant) *projections.Version {
	for i := len(h.Versions) - 1; i >= 0; i-- {
		if h.Versions[i].Order.Appended <= at {
			return &h.Versions[i]
		}
	}
	return nil
}
