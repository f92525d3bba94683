package costs

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// readLines reads the lines of the month, and those of the adjacent months that name the same
// invoices or have the same ids.
func (l *ledger) readLines(view projections.View, yield func(*LedgerLine)) error {
	at := projections.MonthStart(l.month.From)
	window := projections.Query{
		Table: projections.TableBillingLines,
		From:  projections.MonthStart(l.month.From - 1),
		To:    projections.MonthStart(projections.BillingMonth(l.month.To).To),
	}
	var before projections.Key
	var fixes []lineFix
	accruals := accrued{view: view}
	err := view.Scan(window, func(k projections.Key, row projections.Row) error {
		line := ledgerLine(k, row.(*projections.History))
		if line == nil {
			return nil
		}
		if replaced, err := accruals.replaced(&line.BillingLine); replaced || err != nil {
			return err
		}
		if k.ID == before.ID && k.Scope == before.Scope && (k.Hour == at || before.Hour == at) {
			l.except(LineInTwoMonths, line.name(),
				"it counts in %s and in %s: its billing period was restated, or two lines have one id",
				monthText(projections.BillingMonth(domain.Instant(before.Hour)*domain.Hour)),
				monthText(projections.BillingMonth(domain.Instant(k.Hour)*domain.Hour)))
		}
		before = k
		l.named.add(k.Hour, &line.BillingLine)
		if k.Hour != at {
			return nil
		}
		if b := line.Before; b != nil {
			l.except(LineRestated, line.name(), "%s; before %s; stated %d times", amounts(&line.BillingLine), amounts(b), line.Stated)
		}
		if line.Corrects != "" {
			fixes = append(fixes, lineFix{k.Scope, line.Corrects, line.name(), line.BillingCurrency})
		}
		yield(line)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read billing lines: %w", err)
	}
	return l.correctsUnknown(view, fixes)
}

func amounts(l *domain.BillingLine) string {
	s := l.BilledCost.String() + " " + l.BillingCurrency
	if l.EffectiveCost.Valid && !l.EffectiveCost.Decimal.Equal(l.BilledCost) {
		s += ", effective " + l.EffectiveCost.Decimal.String()
	}
	return s
}

func sameAmounts(a, b *domain.BillingLine) bool {
	return a.BillingCurrency == b.BillingCurrency && a.BilledCost.Equal(b.BilledCost) &&
		a.EffectiveCost.Valid == b.EffectiveCost.Valid && a.EffectiveCost.Decimal.Equal(b.EffectiveCost.Decimal)
}

// lineFix is a line that names the line that it corrects.
type lineFix struct{ scope, corrects, name, currency string }

// correctsUnknown reports corrections of unknown lines, and those of lines that they cannot correct. Corrections usually
// come soon, so months are read backwards, and the rest of the history only if needed.
func (l *ledger) correctsUnknown(view projections.View, fixes []lineFix) error {
	at := projections.MonthStart(l.month.From)
	unknown := map[string]map[string][]lineFix{} // by scope and line
	for _, c := range fixes {
		k := projections.Key{Table: projections.TableBillingLines, Scope: c.scope, ID: c.corrects, Hour: at}
		row, err := view.Get(k)
		if err != nil {
			return fmt.Errorf("read line %q: %w", c.corrects, err)
		}
		if row != nil {
			l.correctsLine(c, k, row)
			continue
		}
		if unknown[c.scope] == nil {
			unknown[c.scope] = map[string][]lineFix{}
		}
		unknown[c.scope][c.corrects] = append(unknown[c.scope][c.corrects], c)
	}
	parts := []projections.Query{}
	to := at
	for range 12 {
		from := projections.MonthStart(domain.Instant(to)*domain.Hour - 1)
		parts = append(parts, projections.Query{From: from, To: to})
		to = from
	}
	parts = append(parts, projections.Query{To: to}, projections.Query{From: projections.MonthStart(l.month.To)})
	for _, scope := range slices.Sorted(maps.Keys(unknown)) {
		wanted := unknown[scope]
		for _, q := range parts {
			if len(wanted) == 0 {
				break
			}
			q.Table, q.Scope = projections.TableBillingLines, scope
			err := view.Scan(q, func(k projections.Key, row projections.Row) error {
				for _, c := range wanted[k.ID] {
					l.correctsLine(c, k, row)
				}
				if delete(wanted, k.ID); len(wanted) == 0 {
					return errStopped
				}
				return nil
			})
			if err != nil && !errors.Is(err, errStopped) {
				return fmt.Errorf("read billing lines: %w", err)
			}
		}
		for _, all := range wanted {
			for _, c := range all {
				l.except(CorrectionOfUnknownLine, c.name, "it corrects line %q, which is unknown", c.corrects)
			}
		}
	}
	return nil
}

// correctsLine reports a correction of a line that it cannot correct. It counts all the same: nothing that was billed is
// dropped.
func (l *ledger) correctsLine(c lineFix, k projections.Key, row projections.Row) {
	line := ledgerLine(k, row.(*projections.History))
	if line == nil {
		return // the supplier removed it
	}
	if line.Corrects != "" {
		l.except(CorrectionOfCorrection, c.name, "it corrects line %q, which corrects line %q", c.corrects, line.Corrects)
	}
	if line.BillingCurrency != c.currency {
		l.except(CorrectionInOtherCurrency, c.name, "it is in %s and corrects line %q, which is in %s", c.currency, c.corrects, line.BillingCurrency)
	}
}
