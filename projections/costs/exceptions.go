package costs

import (
	"cmp"
	"slices"
	"strings"

	"quartermaster/domain/attribution"
)

// Kinds of exceptions that the ledger reports, in addition to those of attribution.
// [ExceptionKinds] lists both.
const (
	// LineUnusable: a line that cannot be divided. Its amount is in no group, and its invoice
	// does not reconcile.
	LineUnusable attribution.Kind = "line_unusable"
	// LineRestated: a line that was stated with another amount before.
	LineRestated attribution.Kind = "line_restated"
	// LineInTwoMonths: one line id that counts in this month and in an adjacent one.
	LineInTwoMonths attribution.Kind = "line_in_two_months"
	// CorrectionOfUnknownLine: a correction of an unknown line.
	CorrectionOfUnknownLine attribution.Kind = "correction_of_unknown_line"
	// CorrectionOfCorrection: a correction of a line that is a correction itself. Both count.
	CorrectionOfCorrection attribution.Kind = "correction_of_correction"
	// CorrectionInOtherCurrency: a correction that is not in the currency of the line that it corrects. Both count.
	CorrectionInOtherCurrency attribution.Kind = "correction_in_other_currency"
	// InvoiceUnusable: a total that cannot be compared.
	InvoiceUnusable attribution.Kind = "invoice_unusable"
	// InvoiceRestated: an invoice that had another total before, or was voided.
	InvoiceRestated attribution.Kind = "invoice_restated"
	// InvoiceOfOtherPeriod: lines of the period name an invoice for another period.
	InvoiceOfOtherPeriod attribution.Kind = "invoice_of_other_period"
	// InvoiceSpansMonths: lines of several months name an invoice.
	InvoiceSpansMonths attribution.Kind = "invoice_spans_months"
	// CommitmentOutOfTerm: a commitment was charged for a time outside its terms.
	CommitmentOutOfTerm attribution.Kind = "commitment_out_of_term"
	// CommitmentDeclaredTwice: two workspaces declared it; the later decision counts.
	CommitmentDeclaredTwice attribution.Kind = "commitment_declared_twice"
	// PolicyNotApplied: a policy about costs that this report does not follow, and why.
	PolicyNotApplied attribution.Kind = "policy_not_applied"
	// PolicyChangedInPeriod: the policy at the start of the period counts for all of it.
	PolicyChangedInPeriod attribution.Kind = "policy_changes_in_period"
	// DecisionVoid: a policy or a purchase that is void, and why.
	DecisionVoid attribution.Kind = "decision_void"
	// ChangedAfterBill: events that were appended after the month was billed.
	ChangedAfterBill attribution.Kind = "changed_after_bill"
)

// ExceptionKinds returns the kinds of exceptions of a cost report, in the order in which it lists
// them.
func ExceptionKinds() []attribution.Kind {
	all := []attribution.Kind{
		attribution.BilledNeverSeen, attribution.SeenNeverBilled, attribution.RegisteredNeither, attribution.UnmatchedLine,
		attribution.LineConflict, attribution.InvoiceConflict, attribution.DetailDiffers,
		attribution.DuplicateLooking, attribution.OwnerMissing, attribution.QuantityUnusable,
		attribution.BuyerAmbiguous, attribution.NotInService,
		LineUnusable, LineRestated, LineInTwoMonths, CorrectionOfUnknownLine, CorrectionOfCorrection, CorrectionInOtherCurrency,
		InvoiceUnusable, InvoiceRestated, InvoiceOfOtherPeriod, InvoiceSpansMonths,
		CommitmentOutOfTerm, CommitmentDeclaredTwice, PolicyNotApplied, PolicyChangedInPeriod,
		DecisionVoid, ChangedAfterBill,
	}
	slices.Sort(all)
	return all
}

// Unreconciled says why a bill does not reconcile with what was received for it.
type Unreconciled struct {
	Subject string `json:"subject"` // issuer|account|id of an invoice, or of a line
	Why     string `json:"why"`
}

// unreconciled lists the invoices that differ from the attributed amounts, those that lines name
// and that were not received, and what could not be compared. Lines without an invoice have nothing
// to reconcile with.
func unreconciled(ties []InvoiceReconciliation, all []attribution.Exception) []Unreconciled {
	out := []Unreconciled{}
	for i := range ties {
		t := &ties[i]
		why := ""
		money := func(a attribution.Amount) string { return a.String() + " " + t.Currency }
		switch {
		case t.Status == attribution.Differs:
			why = "received " + money(t.Received) + ", and its lines come to " + money(t.Received.Sub(t.Difference))
			for _, d := range t.Details {
				if d.Detail != "" && !d.After.IsZero() {
					why += "; of row " + d.Detail + ", received " + money(d.Received) + " and its lines " + money(d.Billed)
				}
			}
		case t.Status == attribution.NoLines && !t.Difference.IsZero():
			why = "received " + money(t.Received) + ", and no line names it"
		case t.Status == attribution.Voided && !t.Difference.IsZero():
			why = "it was voided, and lines that name it come to " + money(t.Attributed)
		case t.Status == attribution.NoInvoice && t.Invoice != "":
			why = "no invoice in " + t.Currency + " was received, and lines that name it come to " + money(t.Attributed)
		}
		if why != "" {
			out = append(out, Unreconciled{ledgerName(t.Issuer, t.Account, t.Invoice), why})
		}
	}
	for _, e := range all {
		switch e.Kind {
		case LineUnusable, InvoiceUnusable, LineInTwoMonths, attribution.LineConflict, attribution.InvoiceConflict:
			out = append(out, Unreconciled{e.Subject, string(e.Kind) + ": " + e.Detail})
		}
	}
	return out
}

func compareExceptions(x, y attribution.Exception) int {
	return cmp.Or(
		strings.Compare(string(x.Kind), string(y.Kind)),
		strings.Compare(x.Subject, y.Subject), strings.Compare(x.Detail, y.Detail),
	)
}

// sortExceptions sorts exceptions into report order and removes duplicates.
func sortExceptions(all []attribution.Exception) []attribution.Exception {
	slices.SortFunc(all, compareExceptions)
	return slices.Compact(all)
}

// findings returns the exceptions of the ledger and of a division.
func (b *books) findings(result *attribution.Result) []attribution.Exception {
	all := slices.Concat(result.Exceptions, sortExceptions(slices.Concat(b.exceptions, b.unusable)))
	slices.SortStableFunc(all, compareExceptions)
	return orEmpty(all)
}
