package projections

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// What the ledger lacks to be divided. They join the kinds of exceptions that
// attribution finds.
const (
	LineUnusable            = "line_unusable"             // a line that cannot be divided; its amount is in no group, and its invoice does not tie
	InvoiceUnusable         = "invoice_unusable"          // a total that cannot be compared
	InvoiceOfOtherPeriod    = "invoice_of_other_period"   // lines of the period name an invoice for another one, with lines there too
	CommitmentOutOfTerm     = "commitment_out_of_term"    // charged for a time in which it was in no term
	CommitmentDeclaredTwice = "commitment_declared_twice" // by two workspaces; the later decision counts
	PolicyNotApplied        = "policy_not_applied"        // a policy about costs that this report does not follow, and why
	PolicyChangedInPeriod   = "policy_changes_in_period"  // the policy at the start of the period counts for all of it
	DecisionVoid            = "decision_void"             // a policy or a purchase that takes no effect, and why
)

// ledger is what the books say about a billing month, but for its lines.
type ledger struct {
	month       domain.Interval
	charged     domain.Interval // from the first charge to the last; empty without lines
	invoices    []attribution.Invoice
	commitments []attribution.Commitment
	policies    []CostPolicy
	policy      attribution.Policy
	exceptions  []Exception
	unusable    []Exception // of lines, once they were read
	generated   bool
}

func (l *ledger) except(kind, subject, format string, args ...any) {
	l.exceptions = append(l.exceptions, Exception{kind, subject, fmt.Sprintf(format, args...)})
}

type invoiceName struct{ issuer, account, id string }

// readLedger reads a month.
func readLedger(view View, month domain.Interval) (*ledger, error) {
	l := &ledger{month: month}
	named := map[invoiceName]bool{}
	charges := map[string]charged{} // of each commitment
	err := EachLine(view, month, func(line *LedgerLine) error {
		l.generated = l.generated || line.Generated
		if line.InvoiceID != "" {
			named[invoiceName{line.InvoiceIssuerName, line.BillingAccountID, line.InvoiceID}] = true
		}
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
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := l.readInvoices(view, named); err != nil {
		return nil, err
	}
	a, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	if err := l.readCommitments(view, a, charges); err != nil {
		return nil, err
	}
	if err := l.readPolicies(view, a); err != nil {
		return nil, err
	}
	return l, nil
}

// charged is the time that lines about a commitment are for: what was used of
// it or not, and together with what was paid for it.
type charged struct{ usage, any domain.Interval }

// hull returns the least interval around two, of which one may be empty.
func hull(a, b domain.Interval) domain.Interval {
	if a.Empty() {
		return b
	}
	return domain.Interval{From: min(a.From, b.From), To: max(a.To, b.To)}
}

// lines calls yield with every line of the month that can be divided, and
// notes the others. It is the Lines of an [attribution.Input].
func (l *ledger) lines(view View, yield func(*attribution.Line) error) error {
	l.unusable = l.unusable[:0]
	return EachLine(view, l.month, func(line *LedgerLine) error {
		at, err := attribution.LineOf(&line.BillingLine)
		if err != nil {
			l.unusable = append(l.unusable, Exception{
				LineUnusable, line.name(),
				fmt.Sprintf("%s %s: %v", line.BilledCost, line.BillingCurrency, err),
			})
			return nil
		}
		at.Corrects = line.Corrects
		return yield(&at)
	})
}

// readInvoices reads what was received for the month, as it was stated last,
// and the invoices that its lines name.
func (l *ledger) readInvoices(view View, named map[invoiceName]bool) error {
	err := view.Scan(Query{Table: TableInvoices}, func(k Key, row Row) error {
		ev := row.(*History).Latest().Event.(*domain.InvoiceReceived)
		name := invoiceName{ev.InvoiceIssuerName, ev.BillingAccountID, ev.InvoiceID}
		own := MonthOf(ev.BillingPeriod) == l.month
		if !own && !named[name] {
			return nil
		}
		subject := k.Scope + "|" + k.ID
		total, err := attribution.AmountOf(ev.Total.Amount)
		if err != nil {
			l.except(InvoiceUnusable, subject, "%s: %v", ev.Total, err)
			return nil
		}
		if !own {
			l.except(InvoiceOfOtherPeriod, subject, "it is for %s to %s, and lines of %s name it", ev.BillingPeriod.From, ev.BillingPeriod.To, l.month.From.Time().Format("2006-01"))
		}
		l.generated = l.generated || ev.Generated
		l.invoices = append(l.invoices, attribution.Invoice{
			Issuer: name.issuer, Account: name.account, ID: name.id, Currency: ev.Total.Currency,
			Total: total, Details: len(ev.Details), Status: ev.Status, Generated: ev.Generated,
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("read invoices: %w", err)
	}
	return nil
}

// sortExceptions brings exceptions into the order in which they are reported,
// each once.
func sortExceptions(all []Exception) []Exception {
	slices.SortFunc(all, func(x, y Exception) int {
		return cmp.Or(strings.Compare(x.Kind, y.Kind), strings.Compare(x.Subject, y.Subject), strings.Compare(x.Detail, y.Detail))
	})
	return slices.Compact(all)
}
