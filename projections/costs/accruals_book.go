package costs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// AccrualBook compares the accruals of a month with what suppliers billed instead.
type AccrualBook struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Accruals []Accrual       `json:"accruals"` // by issuer, account and currency
	// NotBilled are accounts that were billed the month before, or accrued, and have neither lines nor an accrual in this
	// one.
	NotBilled []string `json:"not_billed"`
	registry.Completeness
}

// Accrual is what was accrued for an account and a month.
type Accrual struct {
	Issuer   string             `json:"InvoiceIssuerName"`
	Account  string             `json:"BillingAccountId"`
	Currency string             `json:"currency"`
	Methods  []string           `json:"methods"`
	Accrued  attribution.Amount `json:"accrued"`
	// Invoices are the supplier's for the month. Replaced: they cover it, and the accrual no longer counts.
	Invoices []string `json:"invoices"`
	Replaced bool     `json:"replaced"`
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
	a, sums, have, estimated := accrued{view: view}, map[key]*Accrual{}, map[string]bool{}, map[string]bool{}
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
			s = &Accrual{Issuer: of.issuer, Account: of.account, Currency: of.currency, Methods: []string{}, Invoices: []string{}}
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
		estimated[k.Scope] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read billing lines: %w", err)
	}
	b := &AccrualBook{Position: view.Position().String(), Month: month, Accruals: []Accrual{}}
	for _, s := range sums {
		account := domain.AccountKey(s.Issuer, s.Account)
		if !estimated[account] {
			continue
		}
		had, err := a.received(account, month)
		if err != nil {
			return nil, err
		}
		s.Invoices, s.Replaced = append(s.Invoices, had.ids...), had.complete
		slices.Sort(s.Methods)
		s.Difference = s.Actual.Sub(s.Accrued)
		b.Accruals = append(b.Accruals, *s)
	}
	slices.SortFunc(b.Accruals, func(x, y Accrual) int {
		return cmp.Or(strings.Compare(x.Issuer, y.Issuer), strings.Compare(x.Account, y.Account), strings.Compare(x.Currency, y.Currency))
	})
	if b.NotBilled, err = notBilled(view, month, have); err != nil {
		return nil, err
	}
	b.Completeness, err = registry.CompletenessOf(view, "", "", month, costTopics...)
	return b, err
}

// notBilled returns the accounts with lines or an accrual in the month before and none in a month. have are those that
// have some.
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

// anyLine reports whether an account has a line in a month, of the supplier or of an accrual that was not withdrawn. It
// reads up to the first.
func anyLine(view projections.View, month domain.Interval, account string) (bool, error) {
	found := errors.New("found")
	at := projections.MonthStart(month.From)
	q := projections.Query{Table: projections.TableBillingLines, Scope: account, From: at, To: at + 1}
	err := view.Scan(q, func(k projections.Key, row projections.Row) error {
		if l := ledgerLine(k, row.(*projections.History)); l != nil && !(isAccrual(l.InvoiceID) && l.BilledCost.IsZero() && l.EffectiveCost.Decimal.IsZero()) {
			return found
		}
		return nil
	})
	if err != nil && !errors.Is(err, found) {
		return false, fmt.Errorf("read billing lines: %w", err)
	}
	return err != nil, nil
}
