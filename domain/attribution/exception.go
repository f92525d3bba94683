package attribution

import (
	"cmp"
	"slices"
	"strings"
)

// Kind is the kind of an exception.
type Kind string

// The kinds of exceptions.
const (
	// BilledNeverSeen: a charge for a machine that the fleet does not know or that never reported,
	// or for more time than it was in service. If the machine was not in service for the whole
	// charge period, the kind is [NotInService].
	BilledNeverSeen Kind = "billed_never_seen"
	// SeenNeverBilled: a machine of a billed account was in service, and no line bought that time. Only time
	// for which the month has bills of the account, or lacks one, counts: what is before the first of them is on
	// those of another month.
	SeenNeverBilled Kind = "seen_never_billed"
	// RegisteredNeither: a registered machine that neither reported nor was billed.
	RegisteredNeither Kind = "registered_neither"
	// UnmatchedLine: a line without a match.
	UnmatchedLine Kind = "unmatched_line"
	// LineConflict: different lines with the same id. The first by content is counted; this amount
	// is not.
	LineConflict Kind = "line_conflict"
	// InvoiceConflict: like LineConflict, for invoices.
	InvoiceConflict Kind = "invoice_conflict"
	// DetailDiffers: a row of an invoice differs from the lines that name it by more than its
	// rounding.
	DetailDiffers Kind = "detail_differs"
	// DuplicateLooking: lines that differ only in their id. They are counted.
	DuplicateLooking Kind = "duplicate_looking"
	// QuantityUnusable: an implausible quantity of machine time on a line, or an implausible number
	// of GPUs of a machine. It counts as not stated; the line's money is divided as usual.
	QuantityUnusable Kind = "quantity_unusable"
	// BuyerAmbiguous: lines of several SKUs together state more of a machine's time than there was,
	// and no column says which of them buys it; this line does not buy. Or a line that only free
	// text calls an add-on buys the machine, because no other line does. Lines that cost nothing
	// are not reported.
	BuyerAmbiguous Kind = "buyer_ambiguous"
	// NotInService: a charge for a known machine for a time in which it was not in service. The
	// platform pays for it, or under a discount rule for pools, the pool.
	NotInService Kind = "not_in_service"
	// OwnerMissing: time that nobody held in a cluster without an owner, or that an unknown
	// workspace held. The platform is charged.
	OwnerMissing Kind = "owner_missing"
)

// Exception is something to investigate. Similar cases are summed up in one exception. Charges and
// credits are kept apart in each ledger, so that an amount and its reversal do not hide each other.
type Exception struct {
	Kind    Kind   `json:"kind"`
	Subject string `json:"subject"` // for example account/resource or cluster/node
	Detail  string `json:"detail"`
	// GPUMs is the GPU time in question, in milliseconds.
	GPUMs int64 `json:"gpu_ms,omitempty"`
	// Lines is the number of lines concerned; Billed and Effective are their cost. Currency is ""
	// if the exception is not about money.
	Lines     int    `json:"lines,omitempty"`
	Currency  string `json:"currency,omitempty"`
	Billed    Amount `json:"billed"`
	Effective Amount `json:"effective"`
}

type exceptionKey struct {
	kind                      Kind
	subject, detail, currency string
	billed, effective         int // 1, or -1 for negative amounts
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

// time adds GPU time.
func (e *exceptions) time(k Kind, subject, detail string, ms int64) {
	e.at(k, subject, detail, "").GPUMs += ms
}

// money adds a line.
func (e *exceptions) money(k Kind, subject, detail string, b *book, r *record) {
	e.amount(k, subject, detail, b.texts[r.currency], 1, r.billed, r.effective)
}

// amount adds money. An amount that is zero in one ledger takes the sign of the other ledger.
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
		return cmp.Or(
			strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Subject, b.Subject),
			strings.Compare(a.Detail, b.Detail), strings.Compare(a.Currency, b.Currency),
			b.Billed.Cmp(a.Billed), b.Effective.Cmp(a.Effective), cmp.Compare(a.Lines, b.Lines))
	})
	return all
}
