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

// Stated reports whether a statement about the bills of an account had been made.
type Stated func(account string, v *projections.Version) bool

// StatedBy returns what was stated by a time, by the clocks of those who imported it.
func StatedBy(at domain.Instant) Stated {
	return func(_ string, v *projections.Version) bool { return v.Order.Appended <= at }
}

// StatedIn returns what is in a position of the log. It takes the last record before the position in each partition of
// bills. In the stream of that record the sequence decides. Of another stream of the partition the time when its record
// was appended decides: no clock is compared with that of whoever wrote to another partition.
func StatedIn(last map[int]domain.Precedence) Stated {
	return func(account string, v *projections.Version) bool {
		end, some := last[domain.PartitionOf([]byte(account), domain.TopicBilling.Partitions())]
		o := v.Order
		if o.Source == end.Source && o.Incarnation == end.Incarnation {
			return some && o.Sequence <= end.Sequence
		}
		return some && o.Appended <= end.Appended
	}
}

// LinesStated sums up what suppliers stated about a month that is not in before and is in until. An accrual that an
// invoice replaces by now is not counted: it is not a supplier's line.
func LinesStated(view projections.View, month domain.Interval, before, until Stated) ([]StatedSince, error) {
	sums := map[string]*StatedSince{}
	at := projections.MonthStart(month.From)
	accruals := accrued{view: view}
	q := projections.Query{Table: projections.TableBillingLines, From: at, To: at + 1}
	err := view.Scan(q, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		was, is := before.last(k.Scope, h), until.last(k.Scope, h)
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

// last returns the last statement about a line that had been made, nil if there was none.
func (s Stated) last(account string, h *projections.History) *projections.Version {
	for i := len(h.Versions) - 1; i >= 0; i-- {
		if s(account, &h.Versions[i]) {
			return &h.Versions[i]
		}
	}
	return nil
}
