package costs

import (
	"cmp"
	"slices"
	"strings"

	"quartermaster/domain/attribution"
)

// What the ledger finds in question. They join the kinds that attribution
// finds: [ExceptionKinds] has both.
const (
	LineUnusable            attribution.Kind = "line_unusable"              // a line that cannot be divided; its amount is in no group, and its invoice does not reconcile
	LineRestated            attribution.Kind = "line_restated"              // a line whose amount was another before
	LineInTwoMonths         attribution.Kind = "line_in_two_months"         // one line id that counts in this month and in one beside it
	CorrectionOfUnknownLine attribution.Kind = "correction_of_unknown_line" // a correction of a line that nobody has
	InvoiceUnusable         attribution.Kind = "invoice_unusable"           // a total that cannot be compared
	InvoiceRestated         attribution.Kind = "invoice_restated"           // an invoice whose total was another before, or that was voided
	InvoiceOfOtherPeriod    attribution.Kind = "invoice_of_other_period"    // lines of the period name an invoice for another one
	InvoiceSpansMonths      attribution.Kind = "invoice_spans_months"       // lines of several months name an invoice
	CommitmentOutOfTerm     attribution.Kind = "commitment_out_of_term"     // charged for a time in which it was in no term
	CommitmentDeclaredTwice attribution.Kind = "commitment_declared_twice"  // by two workspaces; the later decision counts
	PolicyNotApplied        attribution.Kind = "policy_not_applied"         // a policy about costs that this report does not follow, and why
	PolicyChangedInPeriod   attribution.Kind = "policy_changes_in_period"   // the policy at the start of the period counts for all of it
	DecisionVoid            attribution.Kind = "decision_void"              // a policy or a purchase that takes no effect, and why
	ChangedAfterBill        attribution.Kind = "changed_after_bill"         // what came into the log after the month was billed
)

// ExceptionKinds returns the kinds of what a cost report finds in question,
// in the order in which it lists them.
func ExceptionKinds() []attribution.Kind {
	all := []attribution.Kind{
		attribution.BilledNeverSeen, attribution.SeenNeverBilled, attribution.RegisteredNeither, attribution.UnmatchedLine,
		attribution.LineConflict, attribution.InvoiceConflict, attribution.DetailDiffers, attribution.DuplicateLooking, attribution.OwnerMissing, attribution.QuantityUnusable,
		attribution.BuyerAmbiguous, attribution.NotInService,
		LineUnusable, LineRestated, LineInTwoMonths, CorrectionOfUnknownLine, InvoiceUnusable, InvoiceRestated, InvoiceOfOtherPeriod,
		InvoiceSpansMonths, CommitmentOutOfTerm, CommitmentDeclaredTwice, PolicyNotApplied, PolicyChangedInPeriod, DecisionVoid, ChangedAfterBill,
	}
	slices.Sort(all)
	return all
}

// Unreconciled is why a bill cannot be said to reconcile with what was received for it.
type Unreconciled struct {
	Subject string `json:"subject"` // issuer|account|id of an invoice, or of a line
	Why     string `json:"why"`
}

// unreconciled lists the invoices that do not equal what was attributed to the cent,
// those that lines name and nobody received, and what could not be compared.
// Lines that name no invoice have nothing to reconcile with.
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
	return cmp.Or(strings.Compare(string(x.Kind), string(y.Kind)), strings.Compare(x.Subject, y.Subject), strings.Compare(x.Detail, y.Detail))
}

// sortExceptions brings exceptions into the order in which they are reported,
// each once.
func sortExceptions(all []attribution.Exception) []attribution.Exception {
	slices.SortFunc(all, compareExceptions)
	return slices.Compact(all)
}

// findings returns the exceptions of the ledger with those of a division.
func (b *books) findings(result *attribution.Result) []attribution.Exception {
	all := slices.Concat(result.Exceptions, sortExceptions(slices.Concat(b.exceptions, b.unusable)))
	slices.SortStableFunc(all, compareExceptions)
	return orEmpty(all)
}
