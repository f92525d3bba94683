package demo

import (
	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Invoices returns the one invoice of the month. Amounts are computed from the terms in closed
// form: hours from the lengths of the service intervals, money as hours times price. No billing
// line is used.
func (e *Estate) Invoices() ([]domain.InvoiceReceived, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	var byClass [spot + 1]domain.Decimal // hours in service
	for i, m := range e.Nodes {
		c := e.class(i)
		byClass[c] = byClass[c].Add(hours(metered(m.Service, e.Period)))
	}
	byClass[onDemand] = byClass[onDemand].Add(hours(metered(e.Stray.Service, e.Period)))

	credited := decimal.Zero
	for _, o := range e.Outages {
		down := metered(o.Time, metered(e.Nodes[o.Node].Service, e.Period))
		credited = credited.Add(hours(down).Mul(e.price(e.class(o.Node))))
	}
	days := decimal.New(int64(e.Period.Length()/domain.Day), 0)
	fee := hours(e.Period).Mul(decimal.New(int64(e.Committed), 0)).Mul(e.ReservedHourly)

	invoice := domain.InvoiceReceived{
		InvoiceIssuerName: e.Issuer,
		BillingAccountID:  e.Account,
		InvoiceID:         e.invoiceID(),
		IssueDate:         e.Period.To,
		Status:            "Issued",
		PaymentDueDate:    e.Period.To + 30*domain.Day,
		PaymentCurrency:   e.Currency,
		PaymentTerms:      "Net 30",
		BillingPeriod:     e.Period,
		Generated:         true,
	}
	net := decimal.Zero
	add := func(d detail, amount domain.Decimal) {
		amount = cents(amount)
		if amount.IsZero() {
			return
		}
		net = net.Add(amount)
		invoice.Details = append(invoice.Details, domain.InvoiceDetail{
			InvoiceDetailID: e.invoiceID() + "-" + d.id,
			ChargeCategory:  d.category,
			BilledCost:      amount,
			Description:     d.description,
		})
	}
	add(detailCommitment, fee)
	add(detailOnDemand, byClass[onDemand].Mul(e.OnDemandHourly))
	add(detailSpot, byClass[spot].Mul(e.SpotHourly))
	add(detailSupport, e.Support)
	add(detailNetwork, days.Mul(e.EgressGBPerDay).Mul(e.EgressPerGB))
	add(detailService, credited.Neg())
	add(detailPromotion, e.PromotionCredit.Neg())
	add(detailTax, net.Mul(e.TaxRate))
	invoice.Total = domain.Money{Amount: net, Currency: e.Currency}
	return []domain.InvoiceReceived{invoice}, nil
}
