package costs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/owned"
	"quartermaster/projections"
	"quartermaster/projections/market"
	"quartermaster/projections/registry"
)

// An accrual is an internal invoice in the name of a supplier whose own has not come. It is written as FOCUS and
// imported, and its lines are matched, divided and closed like a supplier's. It counts until an invoice of the account
// for the month is received or named by a line: from then on neither its invoice nor its lines are in the ledger. In a
// closed month both are posted, the reversal and what came instead.

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
	// three. Credits, tax, corrections and one-time purchases are not repeated.
	AccrueLastInvoice AccrualMethod = "last_invoice"
	// AccrueContractRate is the time in service of each machine that no line buys, at the hourly price of the
	// contract for its SKU, else of the on-demand offer in its region.
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
	Position  string          `json:"position"`
	Month     domain.Interval `json:"period"`
	Issuer    string          `json:"InvoiceIssuerName"`
	Account   string          `json:"BillingAccountId"`
	Invoice   string          `json:"InvoiceId"`
	Method    AccrualMethod   `json:"method"`
	Total     domain.Money    `json:"total"`
	Charges   []AccrualCharge `json:"charges"`
	Problems  []string        `json:"problems"` // what could not be estimated
	Withdrawn []string        `json:"withdrawn,omitempty"`

	lines    []domain.BillingLine
	invoices []domain.InvoiceReceived
}

// AccrualCharge is a line of an accrual.
type AccrualCharge struct {
	Resource string         `json:"ResourceId"` // empty: the account
	SKU      string         `json:"SkuMeter"`
	Billed   domain.Decimal `json:"BilledCost"`
	Basis    string         `json:"basis"`
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
	a := accrued{view: view}
	if invoice, err := a.replacedBy(domain.AccountKey(q.Issuer, q.Account), q.Month.From); err != nil {
		return nil, err
	} else if invoice != "" {
		return nil, &AccrualError{fmt.Sprintf("invoice %s of %s, account %s, for %s is there: nothing is to be accrued", invoice, q.Issuer, q.Account, monthText(q.Month))}
	}
	b := &AccrualBill{
		Position: view.Position().String(), Month: q.Month, Issuer: q.Issuer, Account: q.Account, Method: q.Method,
		Invoice: accrualPrefix + monthText(q.Month), Charges: []AccrualCharge{}, Problems: []string{},
	}
	var err error
	switch q.Method {
	case AccrueLastInvoice:
		err = b.repeat(view)
	case AccrueContractRate:
		err = b.atContractRate(view)
	case AccrueManual:
		b.add(domain.BillingLine{BilledCost: q.Amount.Amount, BillingCurrency: q.Amount.Currency, ServiceName: "Accrual", ServiceCategory: "Other"}, q.Reason)
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

// add adds a line. Its columns that are the same for all of an accrual are set.
func (b *AccrualBill) add(l domain.BillingLine, basis string) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s\x00%s\x00%s", l.ResourceID, l.SKUMeter, l.SKUID, l.CommitmentDiscountID, l.RegionID, l.ServiceName))
	line := domain.BillingLine{
		LineID: b.Invoice + "/" + hex.EncodeToString(sum[:8]), InvoiceID: b.Invoice, InvoiceDetailID: accrualDetail,
		InvoiceIssuerName: b.Issuer, ServiceProviderName: cmp.Or(l.ServiceProviderName, b.Issuer), HostProviderName: cmp.Or(l.HostProviderName, b.Issuer),
		BillingAccountID: b.Account, BillingCurrency: l.BillingCurrency,
		BillingPeriodStart: b.Month.From, BillingPeriodEnd: b.Month.To, ChargePeriodStart: b.Month.From, ChargePeriodEnd: b.Month.To,
		ChargeCategory: "Usage", ChargeFrequency: "Usage-Based", ChargeDescription: "accrual, " + string(b.Method) + ": " + basis,
		BilledCost: l.BilledCost, EffectiveCost: decimal.NewNullDecimal(l.BilledCost), ListCost: decimal.NewNullDecimal(l.BilledCost), ContractedCost: decimal.NewNullDecimal(l.BilledCost),
		ServiceName: l.ServiceName, ServiceCategory: l.ServiceCategory, SubAccountID: l.SubAccountID, SubAccountName: l.SubAccountName,
		RegionID: l.RegionID, ResourceID: l.ResourceID, ResourceName: l.ResourceName, ResourceType: l.ResourceType,
		SKUID: l.SKUID, SKUMeter: l.SKUMeter, SKUPriceDetails: l.SKUPriceDetails, Tags: l.Tags,
		PricingQuantity: l.PricingQuantity, PricingUnit: l.PricingUnit, ConsumedQuantity: l.ConsumedQuantity, ConsumedUnit: l.ConsumedUnit,
		FocusVersion: "1.4", Other: maps.Clone(l.Other),
	}
	if line.Other == nil {
		line.Other = map[string]string{}
	}
	line.Other[ColumnAccrual], line.Other[ColumnAccrualBasis] = string(b.Method), basis
	b.lines = append(b.lines, line)
	b.Charges = append(b.Charges, AccrualCharge{line.ResourceID, cmp.Or(line.SKUMeter, line.SKUID), line.BilledCost, basis})
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

// lastBilled are the months before one that may be repeated.
const lastBilled = 3

// repeat adds the charges of the last month that was billed.
func (b *AccrualBill) repeat(view projections.View) error {
	scope := domain.AccountKey(b.Issuer, b.Account)
	month := b.Month
	for range lastBilled {
		month = projections.BillingMonth(month.From - 1)
		sums := map[string]*domain.BillingLine{}
		at := projections.MonthStart(month.From)
		err := view.Scan(projections.Query{Table: projections.TableBillingLines, Scope: scope, From: at, To: at + 1}, func(k projections.Key, row projections.Row) error {
			l := ledgerLine(k, row.(*projections.History))
			if l == nil || l.Corrects != "" || l.Other[ColumnAccrual] != "" || l.ChargeClass != "" {
				return nil
			}
			if recurring := l.ChargeCategory == "Purchase" && l.ChargeFrequency == "Recurring"; l.ChargeCategory != "Usage" && !recurring {
				return nil
			}
			key := strings.Join([]string{
				l.BillingCurrency, l.ResourceID, l.SKUMeter, l.SKUID, l.CommitmentDiscountID, l.RegionID, l.ServiceName, l.PricingUnit, l.ConsumedUnit,
			}, "\x00")
			sum := sums[key]
			if sum == nil {
				kept := l.BillingLine
				sums[key] = &kept
				return nil
			}
			sum.BilledCost = sum.BilledCost.Add(l.BilledCost)
			sum.PricingQuantity = addNull(sum.PricingQuantity, l.PricingQuantity)
			sum.ConsumedQuantity = addNull(sum.ConsumedQuantity, l.ConsumedQuantity)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read billing lines: %w", err)
		}
		for _, key := range slices.Sorted(maps.Keys(sums)) {
			if !sums[key].BilledCost.IsZero() {
				b.add(*sums[key], "as billed for "+monthText(month))
			}
		}
		if len(sums) > 0 {
			return nil
		}
	}
	b.Problems = append(b.Problems, fmt.Sprintf("account %s has no bill in the %d months before", b.Account, lastBilled))
	return nil
}

func addNull(a, b domain.NullDecimal) domain.NullDecimal {
	if !a.Valid || !b.Valid {
		return domain.NullDecimal{}
	}
	return decimal.NewNullDecimal(a.Decimal.Add(b.Decimal))
}

// atContractRate adds the time of each machine of the account that no line buys.
func (b *AccrualBill) atContractRate(view projections.View) error {
	fleet, err := readCostFleet(view, b.Month)
	if err != nil {
		return err
	}
	unbilled, billed, err := b.unbilled(view)
	if err != nil {
		return err
	}
	contracts, err := declaredCommitments(view, b.Month)
	if err != nil {
		return err
	}
	for i := range fleet.nodes {
		n := &fleet.nodes[i]
		if n.Account != b.Account {
			continue
		}
		subject := n.Cluster + "/" + n.Node
		hours := decimal.NewFromInt(int64(n.Service.Intersect(b.Month).Length())).DivRound(decimal.NewFromInt(int64(domain.Hour)), 6)
		if billed {
			if n.GPUs == 0 {
				continue
			}
			hours = decimal.NewFromInt(unbilled[subject]).DivRound(decimal.NewFromInt(int64(n.GPUs)*int64(domain.Hour/projections.NsPerMs)), 6)
			delete(unbilled, subject) // it may have several descriptions
		}
		if hours.Sign() <= 0 {
			continue
		}
		price, basis, err := b.price(view, contracts, fleet, n)
		if err != nil {
			return err
		}
		if price.Currency == "" {
			b.Problems = append(b.Problems, fmt.Sprintf("%s: no contract or on-demand offer has a price of %q", subject, n.SKU))
			continue
		}
		b.add(domain.BillingLine{
			BilledCost: hours.Mul(price.Amount).Round(int32(domain.MinorUnits(price.Currency))), BillingCurrency: price.Currency,
			ServiceName: "Compute", ServiceCategory: "Compute", RegionID: n.Region,
			ResourceID: cmp.Or(n.Resource, n.Node), ResourceName: n.Node, ResourceType: "Instance", SKUMeter: n.SKU,
			PricingQuantity: decimal.NewNullDecimal(hours), PricingUnit: "Instance-Hours",
			ConsumedQuantity: decimal.NewNullDecimal(hours), ConsumedUnit: "Instance-Hours",
		}, fmt.Sprintf("%s hours at %s", hours, basis))
	}
	return nil
}

// unbilled returns the GPU time of each machine that no line of the account buys, in milliseconds, and whether the
// account has lines at all. Without lines all time in service is unbilled.
func (b *AccrualBill) unbilled(view projections.View) (ms map[string]int64, billed bool, err error) {
	if billed, err = anyLine(view, b.Month, domain.AccountKey(b.Issuer, b.Account)); err != nil || !billed {
		return nil, false, err
	}
	d, err := divide(view, b.Month, func(*part) error { return nil })
	if err != nil {
		return nil, false, err
	}
	ms = map[string]int64{}
	for i := range d.Exceptions {
		if e := &d.Exceptions[i]; e.Kind == attribution.SeenNeverBilled {
			ms[e.Subject] += e.GPUMs
		}
	}
	return ms, true, nil
}

// price returns what an hour of a machine costs; without a currency if nothing says it.
func (b *AccrualBill) price(view projections.View, contracts map[string]*declaredCommitment, fleet *costFleet, n *attribution.Node) (domain.Money, string, error) {
	for _, id := range slices.Sorted(maps.Keys(contracts)) {
		p := contracts[id].purchase
		if p.BillingAccount == b.Account && p.SKU == n.SKU && !contracts[id].term(b.Month).Intersect(b.Month).Empty() && p.Hourly.Amount.Sign() > 0 {
			return p.Hourly, fmt.Sprintf("%s %s of contract %s", p.Hourly.Amount, p.Hourly.Currency, cmp.Or(p.Contract, id)), nil
		}
	}
	c, _ := fleet.fleet.Cluster(n.Cluster, b.Month.To-1)
	if c == nil || n.SKU == "" {
		return domain.Money{}, "", nil
	}
	offers, err := market.Offers(view, b.Month.To-1, market.OfferFilter{Provider: c.Provider, Region: cmp.Or(n.Region, c.Region), SKU: n.SKU})
	if err != nil {
		return domain.Money{}, "", err
	}
	for i := range offers {
		if o := &offers[i]; o.Kind == domain.OfferOnDemand {
			return domain.Money{Amount: o.Hourly, Currency: o.Currency}, fmt.Sprintf("%s %s of offer %s", o.Hourly, o.Currency, o.Offer), nil
		}
	}
	return domain.Money{}, "", nil
}

// accrued says which accruals are replaced by an invoice of the supplier. It reads the invoices when it is first asked.
type accrued struct {
	view     projections.View
	invoices map[accountMonth]string
}

type accountMonth struct {
	account string // see [domain.AccountKey]
	month   domain.Instant
}

// isAccrual reports whether an id is of an accrual's invoice or line.
func isAccrual(id string) bool { return strings.HasPrefix(id, accrualPrefix) }

// replaced reports whether a line is of an accrual that an invoice replaced.
func (a *accrued) replaced(l *domain.BillingLine) (bool, error) {
	if !isAccrual(l.InvoiceID) {
		return false, nil
	}
	month := projections.MonthOf(domain.Interval{From: l.BillingPeriodStart, To: l.BillingPeriodEnd})
	invoice, err := a.replacedBy(domain.AccountKey(l.InvoiceIssuerName, l.BillingAccountID), month.From)
	return invoice != "", err
}

// replacedBy returns the invoice of a supplier's account for a month that was received, else one that a line of the
// account names; "" for none. It is the first by its id.
func (a *accrued) replacedBy(account string, month domain.Instant) (string, error) {
	if a.invoices == nil {
		if err := a.received(); err != nil {
			return "", err
		}
	}
	of := accountMonth{account, month}
	invoice, known := a.invoices[of]
	if known {
		return invoice, nil
	}
	at := projections.MonthStart(month)
	q := projections.Query{Table: projections.TableBillingLines, Scope: account, From: at, To: at + 1}
	err := a.view.Scan(q, func(k projections.Key, row projections.Row) error {
		l := ledgerLine(k, row.(*projections.History))
		if l != nil && l.InvoiceID != "" && !isAccrual(l.InvoiceID) && (invoice == "" || l.InvoiceID < invoice) {
			invoice = strings.Clone(l.InvoiceID)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read billing lines: %w", err)
	}
	a.invoices[of] = invoice
	return invoice, nil
}

// received reads the invoices of all accounts.
func (a *accrued) received() error {
	a.invoices = map[accountMonth]string{}
	err := a.view.Scan(projections.Query{Table: projections.TableInvoices}, func(_ projections.Key, row projections.Row) error {
		in := row.(*projections.History).Latest().Event.(*domain.InvoiceReceived)
		of := accountMonth{domain.AccountKey(in.InvoiceIssuerName, in.BillingAccountID), projections.MonthOf(in.BillingPeriod).From}
		if first := a.invoices[of]; !isAccrual(in.InvoiceID) && in.Status != voided && (first == "" || in.InvoiceID < first) {
			a.invoices[of] = strings.Clone(in.InvoiceID)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read invoices: %w", err)
	}
	return nil
}

// AccrualBook compares the accruals of a month with what suppliers billed instead.
type AccrualBook struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Accruals []Accrual       `json:"accruals"` // by issuer, account and currency
	// Missing are accounts that were billed the month before, and have neither lines nor an accrual in this one.
	Missing []string `json:"missing"`
	registry.Completeness
}

// Accrual is what was accrued for an account and a month.
type Accrual struct {
	Issuer   string             `json:"InvoiceIssuerName"`
	Account  string             `json:"BillingAccountId"`
	Currency string             `json:"currency"`
	Methods  []string           `json:"methods"`
	Accrued  attribution.Amount `json:"accrued"`
	// ReplacedBy is an invoice of the month that was received; empty while the accrual counts.
	ReplacedBy string `json:"replaced_by,omitempty"`
	// Actual is what the supplier's lines of the month came to, and Difference is Actual - Accrued.
	Actual     attribution.Amount `json:"actual"`
	Difference attribution.Amount `json:"difference"`
}

// NewAccrualBook reads the accruals of a month.
func NewAccrualBook(view projections.View, month domain.Interval) (*AccrualBook, error) {
	if month != projections.BillingMonth(month.From) {
		return nil, fmt.Errorf("read accruals from %s to %s: want a calendar month in UTC", month.From, month.To)
	}
	type key struct{ issuer, account, currency string }
	a, sums, have := accrued{view: view}, map[key]*Accrual{}, map[string]bool{}
	at := projections.MonthStart(month.From)
	err := view.Scan(projections.Query{Table: projections.TableBillingLines, From: at, To: at + 1}, func(k projections.Key, row projections.Row) error {
		l := ledgerLine(k, row.(*projections.History))
		if l == nil {
			return nil
		}
		have[domain.AccountKey(l.InvoiceIssuerName, l.BillingAccountID)] = true
		billed, err := attribution.AmountOf(l.BilledCost)
		if err != nil {
			return nil //nolint:nilerr // costs list the line
		}
		of := key{l.InvoiceIssuerName, l.BillingAccountID, l.BillingCurrency}
		s := sums[of]
		if s == nil {
			s = &Accrual{Issuer: of.issuer, Account: of.account, Currency: of.currency, Methods: []string{}}
			sums[of] = s
		}
		if !isAccrual(l.InvoiceID) {
			s.Actual = s.Actual.Add(billed)
			return nil
		}
		s.Accrued = s.Accrued.Add(billed)
		if m := l.Other[ColumnAccrual]; !slices.Contains(s.Methods, m) {
			s.Methods = append(s.Methods, m)
		}
		s.ReplacedBy, err = a.replacedBy(k.Scope, month.From)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read billing lines: %w", err)
	}
	b := &AccrualBook{Position: view.Position().String(), Month: month, Accruals: []Accrual{}}
	for _, s := range sums {
		if len(s.Methods) > 0 {
			slices.Sort(s.Methods)
			s.Difference = s.Actual.Sub(s.Accrued)
			b.Accruals = append(b.Accruals, *s)
		}
	}
	slices.SortFunc(b.Accruals, func(x, y Accrual) int {
		return cmp.Or(strings.Compare(x.Issuer, y.Issuer), strings.Compare(x.Account, y.Account), strings.Compare(x.Currency, y.Currency))
	})
	if b.Missing, err = notBilled(view, month, have); err != nil {
		return nil, err
	}
	b.Completeness, err = registry.CompletenessOf(view, "", "", month, costTopics...)
	return b, err
}

// notBilled returns the accounts with lines in the month before and none in a month. have are those that have some.
func notBilled(view projections.View, month domain.Interval, have map[string]bool) ([]string, error) {
	accounts, err := view.Scopes(projections.TableBillingLines)
	if err != nil {
		return nil, fmt.Errorf("read billing lines: %w", err)
	}
	before := projections.BillingMonth(month.From - 1)
	out := []string{}
	for _, account := range accounts {
		if have[account] {
			continue
		}
		billed, err := anyLine(view, before, account)
		if err != nil {
			return nil, err
		}
		if billed {
			out = append(out, account)
		}
	}
	slices.Sort(out)
	return out, nil
}

// anyLine reports whether an account has a supplier's line in a month. It reads up to the first.
func anyLine(view projections.View, month domain.Interval, account string) (bool, error) {
	found := errors.New("found")
	at := projections.MonthStart(month.From)
	q := projections.Query{Table: projections.TableBillingLines, Scope: account, From: at, To: at + 1}
	err := view.Scan(q, func(k projections.Key, row projections.Row) error {
		if l := ledgerLine(k, row.(*projections.History)); l != nil && !isAccrual(l.InvoiceID) {
			return found
		}
		return nil
	})
	if err != nil && !errors.Is(err, found) {
		return false, fmt.Errorf("read billing lines: %w", err)
	}
	return err != nil, nil
}
