package costs

import (
	"cmp"
	"fmt"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// ledger holds the books of a billing month, without its lines.
type ledger struct {
	month       domain.Interval
	charged     domain.Interval // from the first charge to the last; empty without lines
	invoices    []attribution.Invoice
	commitments []attribution.Commitment
	policies    []AppliedPolicy
	policy      attribution.Policy
	rules       []attribution.MeterRule
	applied     []AppliedRule   // the rules, with those who decided them
	lineRules   []lineRule      // the rules, as they were declared
	notFollowed map[string]bool // declared rules about which there is an exception
	exceptions  []attribution.Exception
	unusable    []attribution.Exception // of lines, set after they were read
	generated   bool
	named       named // sums of lines of the month and the adjacent months
	spans       map[invoiceName]span
	roundedAway map[linesOf]domain.Decimal // from the billed cost of the month's lines
	billed      billTimes
	charges     charges // of the lines, set after they were read
	shared      *SharedCosts
	only        func(*domain.BillingLine) bool // lines to divide; nil: all
}

func (l *ledger) except(kind attribution.Kind, subject, format string, args ...any) {
	l.exceptions = append(l.exceptions, attribution.Exception{Kind: kind, Subject: subject, Detail: fmt.Sprintf(format, args...)})
}

// readLedger reads a month.
func readLedger(view projections.View, month domain.Interval) (*ledger, error) {
	if month != projections.BillingMonth(month.From) {
		return nil, fmt.Errorf("read the ledger from %s to %s: want a calendar month in UTC", month.From, month.To)
	}
	l := &ledger{month: month, named: named{}, roundedAway: map[linesOf]domain.Decimal{}, billed: newBillTimes(month)}
	charges := map[string]charged{} // of each commitment
	err := l.readLines(view, func(line *LedgerLine) {
		l.generated = l.generated || line.Generated
		if billed, _ := line.RoundedAway(); !billed.IsZero() {
			of := linesOfLine(&line.BillingLine)
			l.roundedAway[of] = l.roundedAway[of].Add(billed)
		}
		l.billed.line(line)
		charge := domain.Interval{From: line.ChargePeriodStart, To: line.ChargePeriodEnd}
		l.charged = hull(l.charged, charge)
		if id := cmp.Or(line.CommitmentDiscountID, line.CapacityReservationID); id != "" {
			c := charges[id]
			c.any = hull(c.any, charge)
			if line.ChargeCategory == "Usage" {
				c.usage = hull(c.usage, charge)
			}
			charges[id] = c
		}
	})
	if err != nil {
		return nil, err
	}
	if err := l.readInvoices(view); err != nil {
		return nil, err
	}
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	if err := l.readCommitments(view, a, charges); err != nil {
		return nil, err
	}
	if err := l.readPolicies(view, a); err != nil {
		return nil, err
	}
	if err := l.readRules(view, a); err != nil {
		return nil, err
	}
	if err := l.readTax(view, a); err != nil {
		return nil, err
	}
	l.shared, err = readShared(view, a, month)
	return l, err
}

// charged is the time that lines of a commitment are for: its used and unused time, and that
// together with the time of its purchases.
type charged struct{ usage, any domain.Interval }

// hull returns the smallest interval that contains two, one of which may be empty.
func hull(a, b domain.Interval) domain.Interval {
	if a.Empty() {
		return b
	}
	return domain.Interval{From: min(a.From, b.From), To: max(a.To, b.To)}
}

// about is how many lines of the month there are at most; 0 if that is not known without reading them.
func (l *ledger) about(view projections.View) int {
	if l.only != nil {
		return 0
	}
	return int(projections.CountRows(view, projections.TableBillingLines, projections.HourOf(l.month.From)))
}

// lines calls yield with every line of the month that can be divided, and records the others. It is
// the Lines of an [attribution.Input].
func (l *ledger) lines(view projections.View, yield func(*attribution.Line) error) error {
	l.unusable = l.unusable[:0]
	l.charges.reset()
	return EachLine(view, l.month, func(line *LedgerLine) error {
		if l.only != nil && !l.only(&line.BillingLine) {
			return nil
		}
		at, err := attribution.LineOf(&line.BillingLine, l.rules...)
		if err != nil {
			l.unusable = append(l.unusable, attribution.Exception{
				Kind: LineUnusable, Subject: line.name(),
				Detail: fmt.Sprintf("%s %s: %v", line.BilledCost, line.BillingCurrency, err),
			})
			return nil
		}
		at.Corrects = line.Corrects
		at.Number = l.charges.add(line)
		return yield(&at)
	})
}
