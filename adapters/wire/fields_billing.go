package wire

import (
	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Fields of the events of qm.billing, keyed by invoice issuer and billing account.

func billingLine(m *mover, p *eventsv1.BillingLine, d *domain.BillingLine) {
	text(m, "line_id", &p.LineId, &d.LineID)
	text(m, "allocated_method_details", &p.AllocatedMethodDetails, &d.AllocatedMethodDetails)
	text(m, "allocated_method_id", &p.AllocatedMethodId, &d.AllocatedMethodID)
	text(m, "allocated_resource_id", &p.AllocatedResourceId, &d.AllocatedResourceID)
	text(m, "allocated_resource_name", &p.AllocatedResourceName, &d.AllocatedResourceName)
	text(m, "allocated_tags", &p.AllocatedTags, &d.AllocatedTags)
	text(m, "availability_zone", &p.AvailabilityZone, &d.AvailabilityZone)
	m.decimal("billed_cost", &p.BilledCost, &d.BilledCost)
	text(m, "billing_account_id", &p.BillingAccountId, &d.BillingAccountID)
	text(m, "billing_account_name", &p.BillingAccountName, &d.BillingAccountName)
	text(m, "billing_account_type", &p.BillingAccountType, &d.BillingAccountType)
	text(m, "billing_currency", &p.BillingCurrency, &d.BillingCurrency)
	m.instant("billing_period_end", &p.BillingPeriodEnd, &d.BillingPeriodEnd)
	m.instant("billing_period_start", &p.BillingPeriodStart, &d.BillingPeriodStart)
	text(m, "capacity_reservation_id", &p.CapacityReservationId, &d.CapacityReservationID)
	text(m, "capacity_reservation_status", &p.CapacityReservationStatus, &d.CapacityReservationStatus)
	text(m, "charge_category", &p.ChargeCategory, &d.ChargeCategory)
	text(m, "charge_class", &p.ChargeClass, &d.ChargeClass)
	text(m, "charge_description", &p.ChargeDescription, &d.ChargeDescription)
	text(m, "charge_frequency", &p.ChargeFrequency, &d.ChargeFrequency)
	m.instant("charge_period_end", &p.ChargePeriodEnd, &d.ChargePeriodEnd)
	m.instant("charge_period_start", &p.ChargePeriodStart, &d.ChargePeriodStart)
	text(m, "commitment_discount_category", &p.CommitmentDiscountCategory, &d.CommitmentDiscountCategory)
	text(m, "commitment_discount_id", &p.CommitmentDiscountId, &d.CommitmentDiscountID)
	text(m, "commitment_discount_name", &p.CommitmentDiscountName, &d.CommitmentDiscountName)
	m.nullDecimal("commitment_discount_quantity", &p.CommitmentDiscountQuantity, &d.CommitmentDiscountQuantity)
	text(m, "commitment_discount_status", &p.CommitmentDiscountStatus, &d.CommitmentDiscountStatus)
	text(m, "commitment_discount_type", &p.CommitmentDiscountType, &d.CommitmentDiscountType)
	text(m, "commitment_discount_unit", &p.CommitmentDiscountUnit, &d.CommitmentDiscountUnit)
	text(m, "commitment_program_eligibility_details",
		&p.CommitmentProgramEligibilityDetails, &d.CommitmentProgramEligibilityDetails)
	m.nullDecimal("consumed_quantity", &p.ConsumedQuantity, &d.ConsumedQuantity)
	text(m, "consumed_unit", &p.ConsumedUnit, &d.ConsumedUnit)
	text(m, "contract_applied", &p.ContractApplied, &d.ContractApplied)
	m.nullDecimal("contracted_cost", &p.ContractedCost, &d.ContractedCost)
	m.nullDecimal("contracted_unit_price", &p.ContractedUnitPrice, &d.ContractedUnitPrice)
	m.nullDecimal("effective_cost", &p.EffectiveCost, &d.EffectiveCost)
	text(m, "host_provider_name", &p.HostProviderName, &d.HostProviderName)
	text(m, "invoice_detail_id", &p.InvoiceDetailId, &d.InvoiceDetailID)
	text(m, "invoice_id", &p.InvoiceId, &d.InvoiceID)
	text(m, "invoice_issuer_name", &p.InvoiceIssuerName, &d.InvoiceIssuerName)
	m.nullDecimal("list_cost", &p.ListCost, &d.ListCost)
	m.nullDecimal("list_unit_price", &p.ListUnitPrice, &d.ListUnitPrice)
	text(m, "pricing_category", &p.PricingCategory, &d.PricingCategory)
	text(m, "pricing_currency", &p.PricingCurrency, &d.PricingCurrency)
	m.nullDecimal("pricing_currency_contracted_unit_price",
		&p.PricingCurrencyContractedUnitPrice, &d.PricingCurrencyContractedUnitPrice)
	m.nullDecimal("pricing_currency_effective_cost", &p.PricingCurrencyEffectiveCost, &d.PricingCurrencyEffectiveCost)
	m.nullDecimal("pricing_currency_list_unit_price", &p.PricingCurrencyListUnitPrice, &d.PricingCurrencyListUnitPrice)
	m.nullDecimal("pricing_quantity", &p.PricingQuantity, &d.PricingQuantity)
	text(m, "pricing_unit", &p.PricingUnit, &d.PricingUnit)
	text(m, "region_id", &p.RegionId, &d.RegionID)
	text(m, "region_name", &p.RegionName, &d.RegionName)
	text(m, "resource_id", &p.ResourceId, &d.ResourceID)
	text(m, "resource_name", &p.ResourceName, &d.ResourceName)
	text(m, "resource_type", &p.ResourceType, &d.ResourceType)
	text(m, "service_category", &p.ServiceCategory, &d.ServiceCategory)
	text(m, "service_name", &p.ServiceName, &d.ServiceName)
	text(m, "service_provider_name", &p.ServiceProviderName, &d.ServiceProviderName)
	text(m, "service_subcategory", &p.ServiceSubcategory, &d.ServiceSubcategory)
	text(m, "sku_id", &p.SkuId, &d.SKUID)
	text(m, "sku_meter", &p.SkuMeter, &d.SKUMeter)
	text(m, "sku_price_details", &p.SkuPriceDetails, &d.SKUPriceDetails)
	text(m, "sku_price_id", &p.SkuPriceId, &d.SKUPriceID)
	text(m, "sub_account_id", &p.SubAccountId, &d.SubAccountID)
	text(m, "sub_account_name", &p.SubAccountName, &d.SubAccountName)
	text(m, "sub_account_type", &p.SubAccountType, &d.SubAccountType)
	text(m, "tags", &p.Tags, &d.Tags)
	m.labels("other", &p.Other, &d.Other)
	text(m, "focus_version", &p.FocusVersion, &d.FocusVersion)
	same(m, &p.Generated, &d.Generated)
}

func billingLineRecorded(m *mover, p *eventsv1.BillingLineRecorded, d *domain.BillingLineRecorded) {
	nested(m, "line", &p.Line, &d.Line, billingLine)
}

func billingLineCorrected(m *mover, p *eventsv1.BillingLineCorrected, d *domain.BillingLineCorrected) {
	nested(m, "line", &p.Line, &d.Line, billingLine)
	text(m, "corrects", &p.Corrects, &d.Corrects)
	text(m, "reason", &p.Reason, &d.Reason)
}

func billingLineRemoved(m *mover, p *eventsv1.BillingLineRemoved, d *domain.BillingLineRemoved) {
	text(m, "invoice_issuer_name", &p.InvoiceIssuerName, &d.InvoiceIssuerName)
	text(m, "billing_account_id", &p.BillingAccountId, &d.BillingAccountID)
	text(m, "line_id", &p.LineId, &d.LineID)
	m.interval("billing_period", &p.BillingPeriod, &d.BillingPeriod)
	text(m, "reason", &p.Reason, &d.Reason)
}

func invoiceDetail(m *mover, p *eventsv1.InvoiceDetail, d *domain.InvoiceDetail) {
	text(m, "invoice_detail_id", &p.InvoiceDetailId, &d.InvoiceDetailID)
	text(m, "charge_category", &p.ChargeCategory, &d.ChargeCategory)
	m.decimal("billed_cost", &p.BilledCost, &d.BilledCost)
	text(m, "charge_description", &p.ChargeDescription, &d.Description)
	text(m, "invoice_detail_grain", &p.InvoiceDetailGrain, &d.Grain)
}

func invoiceReceived(m *mover, p *eventsv1.InvoiceReceived, d *domain.InvoiceReceived) {
	text(m, "invoice_issuer_name", &p.InvoiceIssuerName, &d.InvoiceIssuerName)
	text(m, "billing_account_id", &p.BillingAccountId, &d.BillingAccountID)
	text(m, "invoice_id", &p.InvoiceId, &d.InvoiceID)
	m.money("total", &p.Total, &d.Total)
	m.instant("invoice_issue_date", &p.InvoiceIssueDate, &d.IssueDate)
	text(m, "invoice_issue_status", &p.InvoiceIssueStatus, &d.Status)
	m.instant("payment_due_date", &p.PaymentDueDate, &d.PaymentDueDate)
	text(m, "payment_currency", &p.PaymentCurrency, &d.PaymentCurrency)
	text(m, "payment_terms", &p.PaymentTerms, &d.PaymentTerms)
	text(m, "purchase_order_number", &p.PurchaseOrderNumber, &d.PurchaseOrder)
	text(m, "reference_invoice_id", &p.ReferenceInvoiceId, &d.ReferenceInvoiceID)
	m.interval("billing_period", &p.BillingPeriod, &d.BillingPeriod)
	list(m, "details", &p.Details, &d.Details, invoiceDetail)
	same(m, &p.Generated, &d.Generated)
}

func billingPeriodClosed(m *mover, p *eventsv1.BillingPeriodClosed, d *domain.BillingPeriodClosed) {
	text(m, "invoice_issuer_name", &p.InvoiceIssuerName, &d.InvoiceIssuerName)
	text(m, "billing_account_id", &p.BillingAccountId, &d.BillingAccountID)
	m.interval("period", &p.Period, &d.Period)
}
