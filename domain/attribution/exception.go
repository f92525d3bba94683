package attribution

import (
	"cmp"
	"slices"
	"strings"
)

// Kind is what an exception is about.
type Kind string

// The kinds of exceptions.
const (
	// BilledNeverSeen: money for a machine that the fleet does not know, that
	// never reported, or for more time than it was in service. See [NotInService]
	// for all of a charge.
	BilledNeverSeen Kind = "billed_never_seen"
	// SeenNeverBilled: a machine of a billed account was in service and no line
	// bought that time.
	SeenNeverBilled Kind = "seen_never_billed"
	// RegisteredNeither: declared, and neither did it report nor was it billed.
	RegisteredNeither Kind = "registered_neither"
	// UnmatchedLine: nothing was found that the line could be for.
	UnmatchedLine Kind = "unmatched_line"
	// LineConflict: several lines of one id that differ; the first by content
	// is counted, this amount is not.
	LineConflict Kind = "line_conflict"
	// InvoiceConflict: as LineConflict, for invoices.
	InvoiceConflict Kind = "invoice_conflict"
	// DetailDiffers: a row of an invoice and the lines that name it are apart by
	// more than its rounding.
	DetailDiffers Kind = "detail_differs"
	// DuplicateLooking: lines that differ in nothing but their id. They count.
	DuplicateLooking Kind = "duplicate_looking"
	// QuantityUnusable: a quantity of machine time that nobody can mean, on a
	// line or as the GPUs of a machine. It counts as not stated; the line's money
	// is divided as usual.
	QuantityUnusable Kind = "quantity_unusable"
	// BuyerAmbiguous: lines of several SKUs state the same machine's time, more than
	// there was, and no column says which of them buys it: these follow. Or only free
	// text says that a line is an add-on, and no other line buys the machine: it does.
	// A line that costs nothing is no exception.
	BuyerAmbiguous Kind = "buyer_ambiguous"
	// NotInService: money for a machine that the fleet knows, for a time in which
	// it was not in service. Nobody pays for it but the platform, or under a discount
	// rule for pools, the pool.
	NotInService Kind = "not_in_service"
	// OwnerMissing: time that nobody held in a cluster that nobody owned, or
	// that was held by nobody known; the platform is charged.
	OwnerMissing Kind = "owner_missing"
)

// Exception is something that somebody should look into. What is alike is one
// exception with its sum, but charges are not added to credits, in either
// ledger: those are two exceptions, so that an amount and its reversal do not
// hide each other.
type Exception struct {
	Kind    Kind   `json:"kind"`
	Subject string `json:"subject"` // for example account/resource or cluster/node
	Detail  string `json:"detail"`
	// GPUMs is the GPU time in question, in milliseconds.
	GPUMs int64 `json:"gpu_ms,omitempty"`
	// Lines are how many lines are in question, and what they cost. Currency is
	// "" where no money is in question.
	Lines     int    `json:"lines,omitempty"`
	Currency  string `json:"currency,omitempty"`
	Billed    Amount `json:"billed"`
	Effective Amount `json:"effective"`
}

type exceptionKey struct {
	kind                      Kind
	subject, detail, currency string
	billed, effective         int // 1, or -1 for what is below zero
}

type exceptions struct{ sums map[exceptionKey]*Exception }

func (e *exceptions) at(k Kind, subject, detail, currency string) *Exception {
	return e.of(exceptionKey{k, subject, detail, currency, 1, 1})
}

func (e *exceptions) of(key exceptionKey) *Exception {
	x := e.sums[key]
	if x == nil {
		x = &Exception{Kind: key.kind, Subject: key.subject, Detail: key.detail, Currency: key.currency}
		if e.sums == nil {
			e.sums = map[exceptionKey]*Exception{}
		}
		e.sums[key] = x
	}
	return x
}

// time notes GPU time.
func (e *exceptions) time(k Kind, subject, detail string, ms int64) {
	e.at(k, subject, detail, "").GPUMs += ms
}

// money notes a line.
func (e *exceptions) money(k Kind, subject, detail string, b *book, r *record) {
	e.amount(k, subject, detail, b.texts[r.currency], 1, r.billed, r.effective)
}

// amount notes money. What is zero in one ledger goes with the sign of the
// other.
func (e *exceptions) amount(k Kind, subject, detail, currency string, lines int, billed, effective Amount) {
	b, f := billed.Sign(), effective.Sign()
	x := e.of(exceptionKey{k, subject, detail, currency, cmp.Or(b, f, 1), cmp.Or(f, b, 1)})
	x.Lines += lines
	x.Billed, x.Effective = x.Billed.Add(billed), x.Effective.Add(effective)
}

func (e *exceptions) sorted() []Exception {
	all := make([]Exception, 0, len(e.sums))
	for _, x := range e.sums {
		all = append(all, *x)
	}
	slices.SortFunc(all, func(a, b Exception) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Subject, b.Subject), strings.Compare(a.Detail, b.Detail), strings.Compare(a.Currency, b.Currency),
			b.Billed.Cmp(a.Billed), b.Effective.Cmp(a.Effective), cmp.Compare(a.Lines, b.Lines))
	})
	return all
}
