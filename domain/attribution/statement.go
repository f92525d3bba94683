package attribution

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
)

// ReconciliationStatus says how an invoice compares with its lines.
type ReconciliationStatus string

// The outcomes.
const (
	Reconciled ReconciliationStatus = "reconciled" // equal to the last digit, in every row
	Adjusted   ReconciliationStatus = "adjusted"   // differs by no more than its rounding
	Differs    ReconciliationStatus = "differs"    // differs by more, in a row or in total
	NoInvoice  ReconciliationStatus = "no_invoice" // lines without an invoice
	NoLines    ReconciliationStatus = "no_lines"   // an invoice without lines
	Voided     ReconciliationStatus = "voided"     // the invoice was withdrawn
)

// Reconciliation compares an invoice with its lines and with their allocations.
//
// An invoice is rounded to payable amounts, each row of its breakdown separately; its lines are
// not. Each row that lines name is compared with those lines: a difference of at most half a minor
// unit is its rounding. The remainder of the invoice, or the whole invoice if its lines name no
// rows, may differ by one minor unit, however many rows there are. That difference is adjusted by
// one more allocation for the invoice, on the platform, in the billed ledger only.
//
// If a row differs by more, nothing is adjusted and the invoice differs, even if its total
// reconciles: two swapped rows are an error of the bill. Each such row is an exception of kind
// [DetailDiffers]. Details list every row that was compared and every rounding adjustment.
type Reconciliation struct {
	Issuer   string `json:"issuer"`
	Account  string `json:"account"`
	Invoice  string `json:"invoice"` // "" for lines without an invoice
	Currency string `json:"currency"`
	// Period is the billing period of lines without an invoice.
	Period     domain.Interval      `json:"period,omitzero"`
	Status     ReconciliationStatus `json:"status"`
	Lines      int                  `json:"lines"`
	Billed     Amount               `json:"billed"`     // by the lines
	Attributed Amount               `json:"attributed"` // by their allocations, summed separately
	Received   Amount               `json:"received"`   // total of the invoice, 0 if there is none
	// Difference is received less attributed, before the rounding adjustment; 0 without an invoice.
	Difference Amount `json:"difference"`
	// DifferenceMinor is the difference of the two amounts, each first rounded to minor units, half
	// away from zero.
	DifferenceMinor    Minor  `json:"difference_minor"`
	RoundingAdjustment Amount `json:"rounding_adjustment"` // the sum over Details; 0 unless Status is adjusted
	After              Amount `json:"after"`               // the difference less the rounding adjustment
	// Details are the rows that lines name, by id, and then the remainder. They are empty if there
	// is no invoice or no line, or if the invoice was voided. Their rounding adjustments are
	// allocated only if Status is adjusted.
	Details   []DetailReconciliation `json:"details,omitempty"`
	Generated bool                   `json:"generated,omitempty"` // some line or the invoice is synthetic
}

// Statement is the share of one workspace or platform account in an invoice.
type Statement struct {
	Issuer    string          `json:"issuer"`
	Account   string          `json:"account"`
	Invoice   string          `json:"invoice"`
	Currency  string          `json:"currency"`
	Period    domain.Interval `json:"period,omitzero"`
	Workspace string          `json:"workspace"`
	Billed    Amount          `json:"billed"` // exact, with the rounding adjustment
	// Amount is in whole minor units, rounded once. The statements of an invoice add up to its
	// total if it reconciles, else to the rounded sum of its lines.
	Amount Minor `json:"amount"`
}

type reconciliation struct {
	Reconciliation
	invoice    bool
	voided     bool
	rows       []DetailReconciliation // of the invoice, by id, with the lines that name them
	attributed Amount
	parts      map[uint32]Amount // by workspace
}

type reconciliations struct{ all []reconciliation }

// invoiceKey joins invoices and lines.
type invoiceKey struct {
	issuer, account, invoice, currency string
	period                             domain.Interval
}

func newReconciliations(b *book, invoices []Invoice, ex *exceptions) (*reconciliations, error) {
	byKey := map[invoiceKey]*reconciliation{}
	at := func(k invoiceKey) *reconciliation {
		t := byKey[k]
		if t == nil {
			t = &reconciliation{Reconciliation: Reconciliation{
				Issuer: k.issuer, Account: k.account, Invoice: k.invoice, Currency: k.currency, Period: k.period,
			}}
			byKey[k] = t
		}
		return t
	}
	invoices = slices.Clone(invoices)
	for i := range invoices {
		invoices[i].Details = sortedDetails(invoices[i].Details)
	}
	slices.SortFunc(invoices, compareInvoices)
	invoices = slices.CompactFunc(invoices, func(a, b Invoice) bool { return compareInvoices(a, b) == 0 })
	var total Amount
	for i := range invoices {
		v := &invoices[i]
		if v.ID == "" || v.Currency == "" {
			return nil, fmt.Errorf("invoice %q of account %q: needs an id and a currency", v.ID, v.Account)
		}
		for _, a := range append([]InvoiceDetail{{Amount: v.Total}}, v.Details...) {
			var ok bool
			if total, ok = total.TryAdd(a.Amount.Abs()); !ok {
				return nil, errors.New("the magnitudes of the invoices and their rows add up to more than 1.7e20")
			}
		}
		t := at(invoiceKey{v.Issuer, v.Account, v.ID, v.Currency, domain.Interval{}})
		if t.invoice {
			ex.amount(InvoiceConflict, v.Issuer+"/"+v.Account+"/"+v.ID,
				"another invoice has this id: this one is not counted", v.Currency, 0, v.Total, Amount{})
			continue
		}
		t.invoice, t.voided, t.rows, t.Generated = true, v.Status == "Voided", rowsOf(v.Details), v.Generated
		t.Received = v.Total
	}
	joined := make([]*reconciliation, len(b.records))
	for i := range b.records {
		r := &b.records[i]
		k := invoiceKey{b.texts[r.issuer], b.texts[r.account], b.texts[r.invoice], b.texts[r.currency], domain.Interval{}}
		if r.invoice == 0 {
			k.period = r.billing
		}
		t := at(k)
		t.Lines++
		t.Billed = t.Billed.Add(r.billed)
		t.count(b.texts[r.detail], r.billed)
		t.Generated = t.Generated || r.generated
		joined[i] = t
	}
	ordered := make([]*reconciliation, 0, len(byKey))
	for _, t := range byKey {
		ordered = append(ordered, t)
	}
	slices.SortFunc(ordered, func(a, b *reconciliation) int {
		return cmp.Or(
			strings.Compare(a.Issuer, b.Issuer), strings.Compare(a.Account, b.Account), strings.Compare(a.Invoice, b.Invoice),
			strings.Compare(a.Currency, b.Currency), byPeriod(a.Period, b.Period))
	})
	numbers := make(map[*reconciliation]int32, len(ordered))
	ts := &reconciliations{all: make([]reconciliation, len(ordered))}
	for i, t := range ordered {
		numbers[t] = int32(i)
		ts.all[i] = *t
	}
	for i, t := range joined {
		b.records[i].reconciliation = numbers[t]
	}
	return ts, nil
}

func compareInvoices(a, b Invoice) int {
	return cmp.Or(
		strings.Compare(a.Issuer, b.Issuer), strings.Compare(a.Account, b.Account),
		strings.Compare(a.ID, b.ID), strings.Compare(a.Currency, b.Currency),
		a.Total.Cmp(b.Total), slices.CompareFunc(a.Details, b.Details, compareDetails),
		strings.Compare(a.Status, b.Status), compareBool(a.Generated, b.Generated))
}

// reconcile compares every invoice with its allocations, and allocates its rounding.
func (r *run) reconcile() error {
	for i := range r.reconciliations.all {
		t := &r.reconciliations.all[i]
		t.Attributed, t.DifferenceMinor = t.attributed, Amount{}.Minor(t.Currency)
		if t.invoice {
			if !t.voided {
				t.Difference = t.Received.Sub(t.attributed)
				t.DifferenceMinor = t.Received.Minor(t.Currency).Sub(t.attributed.Minor(t.Currency))
			} else {
				t.Difference = t.attributed.Neg()
				t.DifferenceMinor = t.attributed.Neg().Minor(t.Currency)
			}
			t.After = t.Difference
		}
		switch {
		case !t.invoice:
			t.Status = NoInvoice
		case t.voided:
			t.Status = Voided
		case t.Lines == 0:
			t.Status = NoLines
		case !t.compare(r.ex):
			t.Status = Differs
		case !slices.ContainsFunc(t.Details, func(d DetailReconciliation) bool { return !d.RoundingAdjustment.IsZero() }):
			t.Status = Reconciled
		default:
			t.Status, t.RoundingAdjustment, t.After = Adjusted, t.Difference, Amount{}
			if t.RoundingAdjustment.IsZero() {
				continue // the rounding adjustments of its rows cancel
			}
			r.line = Line{
				Issuer: t.Issuer, Account: t.Account, ID: "invoice:" + t.Invoice, Invoice: t.Invoice, Currency: t.Currency,
				Class:       Rounding,
				ClassReason: "it is not a line of the bill; it corrects for the rounding of the invoice",
				Billed:      t.RoundingAdjustment, Generated: t.Generated,
			}
			r.taxed = false
			r.out = Allocation{Line: &r.line, MatchMethod: ByFollowing, Weight: Whole(1), Of: Whole(1)}
			r.feeds, r.reconciliation, r.counted = nil, t, true
			if r.trace != nil && r.trace.record < 0 {
				r.trace.reason = "the invoice and its lines differ by the rounding of the invoice"
			}
			key := r.keys.id(allocationKey{workspace: Platform, component: RoundingAdjustment})
			if err := r.give(key, 0, t.RoundingAdjustment, Amount{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// minorUnit is the minor unit of a currency in 10⁻¹⁸.
func minorUnit(currency string) uint64 { return unitOf(domain.MinorUnits(currency)) }

// unitOf is 10⁻ᵈᵉᶜⁱᵐᵃˡˢ in units of 10⁻¹⁸.
func unitOf(decimals int) uint64 {
	unit := uint64(one18)
	for range decimals {
		unit /= 10
	}
	return unit
}

// roundMinor rounds to whole minor units, half away from zero.
func roundMinor(a Amount, currency string) Amount {
	unit := minorUnit(currency)
	m, negative := a.parts()
	m = m.add(u128{0, unit / 2})
	_, rest := m.divMod(unit)
	return signed(m.sub(u128{0, rest}), negative)
}

// statements returns the share of each workspace in each invoice.
func (t *reconciliation) statements(k *keys) []Statement {
	all := make([]Statement, 0, len(t.parts))
	for w, a := range t.parts {
		all = append(all, Statement{
			Issuer: t.Issuer, Account: t.Account, Invoice: t.Invoice, Currency: t.Currency,
			Period: t.Period, Workspace: k.workspaces[w], Billed: a,
		})
	}
	slices.SortFunc(all, func(a, b Statement) int { return strings.Compare(a.Workspace, b.Workspace) })
	exact := make([]Amount, len(all))
	for i := range all {
		exact[i] = all[i].Billed
	}
	for i, a := range Apportion(exact, t.Currency) {
		all[i].Amount = a
	}
	return all
}

// Apportion rounds amounts to whole minor units of a currency so that they add up to their rounded sum.
func Apportion(exact []Amount, currency string) []Minor {
	rounded := make([]Minor, len(exact))
	for i, a := range apportion(exact, minorUnit(currency)) {
		rounded[i] = Minor{a, domain.MinorUnits(currency)}
	}
	return rounded
}

// apportion rounds amounts to whole units so that they add up to their rounded sum (half away from
// zero), by largest remainder. Each is rounded down, and the missing units go to the largest
// remainders, the first of equal ones first. If the sum is negative, or is zero and the first
// nonzero amount is negative, the negated amounts are rounded and negated back, so that a bill and
// its cancellation give opposite results.
func apportion(exact []Amount, unit uint64) []Amount {
	var sum Amount
	mirror := 0
	for _, a := range exact {
		sum = sum.Add(a)
		if mirror == 0 {
			mirror = a.Sign()
		}
	}
	if sum.Sign() != 0 {
		mirror = sum.Sign()
	}
	one := Amount{0, unit}
	flip := func(a Amount) Amount {
		if mirror < 0 {
			return a.Neg()
		}
		return a
	}
	out, rest := make([]Amount, len(exact)), make([]uint64, len(exact))
	order := make([]int, len(exact))
	var floors Amount
	for i, a := range exact {
		a = flip(a)
		m, negative := a.parts()
		_, r := m.divMod(unit)
		if negative && r > 0 {
			r = unit - r
		}
		rest[i] = r
		out[i] = a.Sub(Amount{0, r})
		floors = floors.Add(out[i])
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	m, _ := sum.parts()
	m = m.add(u128{0, unit / 2})
	_, r := m.divMod(unit)
	missing := signed(m.sub(u128{0, r}), false).Sub(floors)
	for _, i := range order {
		if missing.Sign() <= 0 {
			break
		}
		out[i] = out[i].Add(one)
		missing = missing.Sub(one)
	}
	for i := range out {
		out[i] = flip(out[i])
	}
	return out
}
