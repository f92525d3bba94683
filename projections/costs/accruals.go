package costs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/owned"
	"quartermaster/projections"
)

// An accrual is an internal invoice in the name of a supplier whose own has not come. It is written as FOCUS and
// imported, and its lines are matched, divided and closed like a supplier's. It counts until the supplier's invoices for
// the month, received or named by a line, cover it: see [accrued.replacedBy]. From then on neither its invoice nor its
// lines are in the ledger. In a closed month both are posted, the reversal and what came instead. While invoices cover a
// part of the month, an accrual that is made again is for the rest.

// accrualPrefix begins the id of an accrual's invoice, and of its lines.
const accrualPrefix = "accrual/"

// accrualDetail is the only row of an accrual's invoice.
const accrualDetail = "accrual"

// The columns of an accrual's lines that FOCUS does not define.
const (
	ColumnAccrual      = "x_AccrualMethod"
	ColumnAccrualBasis = "x_AccrualBasis"
)

// AccrualColumns are the columns of an accrual's lines that FOCUS does not define.
func AccrualColumns() []string {
	return []string{ColumnAccrual, ColumnAccrualBasis, owned.ColumnRevision}
}

// AccrualMethod says how an accrual is estimated.
type AccrualMethod string

// The methods.
const (
	// AccrueLastInvoice repeats the usage and recurring purchases of the last month that was billed, of at most
	// three, billed and effective. Credits, tax, corrections and one-time purchases are not repeated.
	AccrueLastInvoice AccrualMethod = "last_invoice"
	// AccrueContractRate is the time in service of each machine that no line buys, at the hourly price that was in
	// force then: of a contract for its SKU, else of the on-demand offer in its region.
	AccrueContractRate AccrualMethod = "contract_rate"
	AccrueManual       AccrualMethod = "manual"  // an amount that a person states
	AccrueReverse      AccrualMethod = "reverse" // nothing: an earlier accrual is withdrawn
)

// AccrualQuery asks for an accrual.
type AccrualQuery struct {
	Month           domain.Interval
	Issuer, Account string
	Method          AccrualMethod
	Amount          domain.Money // manual
	Reason          string       // manual: why that much
}

// AccrualBill is the internal invoice of an accrual.
type AccrualBill struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Issuer   string          `json:"InvoiceIssuerName"`
	Account  string          `json:"BillingAccountId"`
	Invoice  string          `json:"InvoiceId"`
	Method   AccrualMethod   `json:"method"`
	Total    domain.Money    `json:"total"`
	Charges  []AccrualCharge `json:"charges"`
	// Rest is the part of the month that no invoice of the supplier covers, and that manual and repeated amounts are for.
	Rest      []domain.Interval `json:"rest"`
	Problems  []string          `json:"problems"` // what could not be estimated
	Withdrawn []string          `json:"withdrawn,omitempty"`

	lines    []domain.BillingLine
	invoices []domain.InvoiceReceived
	zone     domain.Instant // see [receivedMonth]
}

// AccrualCharge is a line of an accrual.
type AccrualCharge struct {
	Resource string         `json:"ResourceId"` // empty: the account
	SKU      string         `json:"SkuMeter"`
	Billed   domain.Decimal `json:"BilledCost"`
	// Effective differs from Billed for usage that a commitment covers, and for the commitment's fee.
	Effective domain.Decimal `json:"EffectiveCost"`
	Basis     string         `json:"basis"`
}

// Lines returns the lines of the invoice, in the columns of FOCUS.
func (b *AccrualBill) Lines() []domain.BillingLine { return b.lines }

// Received returns the invoice, with its total.
func (b *AccrualBill) Received() []domain.InvoiceReceived { return b.invoices }

// AccrualError says why nothing can be accrued.
type AccrualError struct{ Reason string }

func (e *AccrualError) Error() string { return e.Reason }

// NewAccrualBill estimates what an account is billed for a month. It returns an [AccrualError] if there is nothing to
// estimate it from, or the supplier's invoice is there.
func NewAccrualBill(view projections.View, q AccrualQuery) (*AccrualBill, error) {
	if q.Month != projections.BillingMonth(q.Month.From) {
		return nil, fmt.Errorf("accrue from %s to %s: want a calendar month in UTC", q.Month.From, q.Month.To)
	}
	account := domain.AccountKey(q.Issuer, q.Account)
	had, err := (&accrued{view: view}).received(account, q.Month)
	if err != nil {
		return nil, err
	}
	if had.complete {
		return nil, &AccrualError{fmt.Sprintf("%s of %s, account %s, for %s is there: nothing is to be accrued", had, q.Issuer, q.Account, monthText(q.Month))}
	}
	b := &AccrualBill{
		Position: view.Position().String(), Month: q.Month, Issuer: q.Issuer, Account: q.Account, Method: q.Method,
		Invoice: accrualPrefix + monthText(q.Month), Charges: []AccrualCharge{}, Problems: []string{}, Rest: had.rest(q.Month), zone: had.zone,
	}
	switch q.Method {
	case AccrueLastInvoice:
		err = b.repeat(view)
	case AccrueContractRate:
		err = b.atContractRate(view)
	case AccrueManual:
		b.add(&domain.BillingLine{
			BilledCost: q.Amount.Amount, BillingCurrency: q.Amount.Currency, ServiceName: "Accrual", ServiceCategory: "Other",
			ChargeCategory: "Usage", ChargeFrequency: "Usage-Based",
		}, b.restHull(), q.Reason)
	case AccrueReverse:
	default:
		err = fmt.Errorf("accrue by %q: want %s, %s, %s or %s", q.Method, AccrueLastInvoice, AccrueContractRate, AccrueManual, AccrueReverse)
	}
	if err != nil {
		return nil, err
	}
	if err := b.finish(); err != nil {
		return nil, err
	}
	mine := func(l *LedgerLine) bool {
		return l.Other[ColumnAccrual] != "" && l.InvoiceIssuerName == q.Issuer && l.BillingAccountID == q.Account
	}
	b.Withdrawn, err = reviseBill(view, b.Month, &b.lines, &b.invoices, mine)
	if err == nil && len(b.lines) == 0 {
		err = &AccrualError{fmt.Sprintf("nothing is accrued for %s, account %s, in %s; %s", q.Issuer, q.Account, monthText(q.Month), cmp.Or(strings.Join(b.Problems, "; "), "there is no accrual to reverse"))}
	}
	return b, err
}

// restHull is the time from the beginning of the rest of the month to its end.
func (b *AccrualBill) restHull() domain.Interval {
	if len(b.Rest) == 0 {
		return b.Month
	}
	return domain.Interval{From: b.Rest[0].From, To: b.Rest[len(b.Rest)-1].To}
}

// add adds a charge for a time. Its columns that are the same for all of an accrual are set.
func (b *AccrualBill) add(of *domain.BillingLine, at domain.Interval, basis string) {
	l := *of
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s", accrualKey(&l), at.From))
	l.LineID, l.InvoiceID, l.InvoiceDetailID = b.Invoice+"/"+hex.EncodeToString(sum[:8]), b.Invoice, accrualDetail
	l.InvoiceIssuerName, l.BillingAccountID = b.Issuer, b.Account
	l.ServiceProviderName, l.HostProviderName = cmp.Or(l.ServiceProviderName, b.Issuer), cmp.Or(l.HostProviderName, b.Issuer)
	l.BillingPeriodStart, l.BillingPeriodEnd, l.ChargePeriodStart, l.ChargePeriodEnd = b.Month.From, b.Month.To, at.From, at.To
	l.ChargeClass, l.ChargeDescription = "", "accrual, "+string(b.Method)+": "+basis
	for _, cost := range []*domain.NullDecimal{&l.EffectiveCost, &l.ListCost, &l.ContractedCost} {
		if !cost.Valid {
			*cost = decimal.NewNullDecimal(l.BilledCost)
		}
	}
	l.FocusVersion, l.Other = "1.4", maps.Clone(l.Other)
	if l.Other == nil {
		l.Other = map[string]string{}
	}
	l.Other[ColumnAccrual], l.Other[ColumnAccrualBasis] = string(b.Method), basis
	b.lines = append(b.lines, l)
	b.Charges = append(b.Charges, AccrualCharge{l.ResourceID, cmp.Or(l.SKUMeter, l.SKUID), l.BilledCost, l.EffectiveCost.Decimal, basis})
}

// accrualKey has what tells the charges of an accrual apart.
func accrualKey(l *domain.BillingLine) string {
	return strings.Join([]string{
		l.BillingCurrency, l.ChargeCategory, l.ChargeFrequency, l.SubAccountID, l.ResourceID, l.SKUMeter, l.SKUID, l.SKUPriceID,
		l.CommitmentDiscountID, l.CommitmentDiscountStatus, l.CapacityReservationID, l.CapacityReservationStatus, l.RegionID,
		l.ServiceCategory, l.ServiceSubcategory, l.ServiceName, l.PricingCategory, l.PricingUnit, l.ConsumedUnit, l.Tags,
	}, "\x00")
}

// finish makes the invoice of the lines.
func (b *AccrualBill) finish() error {
	for i := range b.lines {
		l := &b.lines[i]
		if b.Total.Currency != "" && b.Total.Currency != l.BillingCurrency {
			return &AccrualError{fmt.Sprintf("account %s has charges in %s and %s: accrue amounts by hand", b.Account, b.Total.Currency, l.BillingCurrency)}
		}
		b.Total = domain.Money{Amount: b.Total.Amount.Add(l.BilledCost), Currency: l.BillingCurrency}
	}
	if len(b.lines) > 0 {
		b.invoices = []domain.InvoiceReceived{{
			InvoiceIssuerName: b.Issuer, BillingAccountID: b.Account, InvoiceID: b.Invoice, Total: b.Total,
			IssueDate: b.Month.To, Status: "Issued", BillingPeriod: b.Month, PaymentTerms: "internal",
			Details: []domain.InvoiceDetail{{InvoiceDetailID: accrualDetail, ChargeCategory: "Usage", BilledCost: b.Total.Amount}},
		}}
	}
	return nil
}
