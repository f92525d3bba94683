package focus

import (
	"slices"
	"strings"

	"quartermaster/domain"
)

// Names of the datasets that are read.
const (
	CostAndUsage        = "Cost and Usage"
	InvoiceDetails      = "Invoice Detail"
	BillingPeriods      = "Billing Period"
	ContractCommitments = "Contract Commitment"
)

// Our own columns. To FOCUS they are custom columns.
const (
	columnLineID       = "x_LineId"
	columnCorrects     = "x_CorrectsLineId"
	columnReason       = "x_CorrectionReason"
	columnFocusVersion = "x_FocusVersion"
	columnGenerated    = "x_Generated"
	// columnIssuerSource is the origin of an inferred issuer: one of the issuerOf values, or the
	// column that it was taken from.
	columnIssuerSource = "x_InvoiceIssuerNameSource"
)

type line = domain.BillingLine

// field is a column of Cost and Usage and its field in a billing line. Exactly one of text,
// number, cost and time is set.
type field struct {
	name      string
	since     int  // first version, times ten: 12 for FOCUS 1.2; 10 also for older columns
	mandatory bool // in FOCUS
	needed    bool // by attribution: a file without it is refused, a row where it is null is bad
	divided   bool // an amount that attribution divides
	decides   bool // an invalid value refuses the row; see the package comment, Deviations
	closed    bool // FOCUS lists the allowed values
	json      bool
	text      func(*line) *string
	number    func(*line) *domain.NullDecimal
	cost      func(*line) *domain.Decimal
	time      func(*line) *domain.Instant
}

// fields are the columns of Cost and Usage in the order of FOCUS 1.4.
// Source: FinOps Open Cost and Usage Specification 1.4, Cost and Usage.
var fields = []field{
	{name: "AllocatedMethodDetails", since: 13, json: true, text: func(l *line) *string { return &l.AllocatedMethodDetails }},
	{name: "AllocatedMethodId", since: 13, text: func(l *line) *string { return &l.AllocatedMethodID }},
	{name: "AllocatedResourceId", since: 13, text: func(l *line) *string { return &l.AllocatedResourceID }},
	{name: "AllocatedResourceName", since: 13, text: func(l *line) *string { return &l.AllocatedResourceName }},
	{name: "AllocatedTags", since: 13, json: true, text: func(l *line) *string { return &l.AllocatedTags }},
	{name: "AvailabilityZone", since: 10, text: func(l *line) *string { return &l.AvailabilityZone }},
	{name: "BilledCost", since: 10, mandatory: true, cost: func(l *line) *domain.Decimal { return &l.BilledCost }, needed: true, divided: true, decides: true},
	{name: "BillingAccountId", since: 10, mandatory: true, text: func(l *line) *string { return &l.BillingAccountID }, needed: true, decides: true},
	{name: "BillingAccountName", since: 10, mandatory: true, text: func(l *line) *string { return &l.BillingAccountName }},
	{name: "BillingAccountType", since: 12, text: func(l *line) *string { return &l.BillingAccountType }},
	{name: "BillingCurrency", since: 10, mandatory: true, text: func(l *line) *string { return &l.BillingCurrency }, needed: true, decides: true},
	{name: "BillingPeriodEnd", since: 10, mandatory: true, time: func(l *line) *domain.Instant { return &l.BillingPeriodEnd }, needed: true, decides: true},
	{name: "BillingPeriodStart", since: 10, mandatory: true, time: func(l *line) *domain.Instant { return &l.BillingPeriodStart }, needed: true, decides: true},
	{name: "CapacityReservationId", since: 11, text: func(l *line) *string { return &l.CapacityReservationID }, decides: true},
	{name: "CapacityReservationStatus", since: 11, text: func(l *line) *string { return &l.CapacityReservationStatus }, decides: true},
	{name: "ChargeCategory", since: 10, mandatory: true, text: func(l *line) *string { return &l.ChargeCategory }, needed: true, decides: true},
	{name: "ChargeClass", since: 10, mandatory: true, text: func(l *line) *string { return &l.ChargeClass }, closed: true},
	{name: "ChargeDescription", since: 10, mandatory: true, text: func(l *line) *string { return &l.ChargeDescription }},
	{name: "ChargeFrequency", since: 10, text: func(l *line) *string { return &l.ChargeFrequency }, closed: true},
	{name: "ChargePeriodEnd", since: 10, mandatory: true, time: func(l *line) *domain.Instant { return &l.ChargePeriodEnd }, needed: true, decides: true},
	{name: "ChargePeriodStart", since: 10, mandatory: true, time: func(l *line) *domain.Instant { return &l.ChargePeriodStart }, needed: true, decides: true},
	{name: "CommitmentDiscountCategory", since: 10, text: func(l *line) *string { return &l.CommitmentDiscountCategory }, closed: true},
	{name: "CommitmentDiscountId", since: 10, text: func(l *line) *string { return &l.CommitmentDiscountID }, decides: true},
	{name: "CommitmentDiscountName", since: 10, text: func(l *line) *string { return &l.CommitmentDiscountName }},
	{name: "CommitmentDiscountQuantity", since: 11, number: func(l *line) *domain.NullDecimal { return &l.CommitmentDiscountQuantity }},
	{name: "CommitmentDiscountStatus", since: 10, text: func(l *line) *string { return &l.CommitmentDiscountStatus }, decides: true},
	{name: "CommitmentDiscountType", since: 10, text: func(l *line) *string { return &l.CommitmentDiscountType }},
	{name: "CommitmentDiscountUnit", since: 11, text: func(l *line) *string { return &l.CommitmentDiscountUnit }},
	{name: "CommitmentProgramEligibilityDetails", since: 14, json: true, text: func(l *line) *string { return &l.CommitmentProgramEligibilityDetails }},
	{name: "ConsumedQuantity", since: 10, number: func(l *line) *domain.NullDecimal { return &l.ConsumedQuantity }},
	{name: "ConsumedUnit", since: 10, text: func(l *line) *string { return &l.ConsumedUnit }, decides: true},
	{name: "ContractApplied", since: 13, json: true, text: func(l *line) *string { return &l.ContractApplied }},
	{name: "ContractedCost", since: 10, mandatory: true, number: func(l *line) *domain.NullDecimal { return &l.ContractedCost }},
	{name: "ContractedUnitPrice", since: 10, number: func(l *line) *domain.NullDecimal { return &l.ContractedUnitPrice }},
	{name: "EffectiveCost", since: 10, mandatory: true, number: func(l *line) *domain.NullDecimal { return &l.EffectiveCost }, divided: true, decides: true},
	{name: "HostProviderName", since: 13, mandatory: true, text: func(l *line) *string { return &l.HostProviderName }},
	{name: "InvoiceDetailId", since: 14, text: func(l *line) *string { return &l.InvoiceDetailID }, decides: true},
	{name: "InvoiceId", since: 12, text: func(l *line) *string { return &l.InvoiceID }, decides: true},
	{name: "InvoiceIssuerName", since: 10, mandatory: true, text: func(l *line) *string { return &l.InvoiceIssuerName }, decides: true},
	{name: "ListCost", since: 10, mandatory: true, number: func(l *line) *domain.NullDecimal { return &l.ListCost }},
	{name: "ListUnitPrice", since: 10, number: func(l *line) *domain.NullDecimal { return &l.ListUnitPrice }},
	{name: "PricingCategory", since: 10, text: func(l *line) *string { return &l.PricingCategory }, closed: true},
	{name: "PricingCurrency", since: 12, text: func(l *line) *string { return &l.PricingCurrency }},
	{name: "PricingCurrencyContractedUnitPrice", since: 12, number: func(l *line) *domain.NullDecimal { return &l.PricingCurrencyContractedUnitPrice }},
	{name: "PricingCurrencyEffectiveCost", since: 12, number: func(l *line) *domain.NullDecimal { return &l.PricingCurrencyEffectiveCost }},
	{name: "PricingCurrencyListUnitPrice", since: 12, number: func(l *line) *domain.NullDecimal { return &l.PricingCurrencyListUnitPrice }},
	{name: "PricingQuantity", since: 10, mandatory: true, number: func(l *line) *domain.NullDecimal { return &l.PricingQuantity }},
	{name: "PricingUnit", since: 10, mandatory: true, text: func(l *line) *string { return &l.PricingUnit }, decides: true},
	{name: "RegionId", since: 10, text: func(l *line) *string { return &l.RegionID }, decides: true},
	{name: "RegionName", since: 10, text: func(l *line) *string { return &l.RegionName }},
	{name: "ResourceId", since: 10, text: func(l *line) *string { return &l.ResourceID }, decides: true},
	{name: "ResourceName", since: 10, text: func(l *line) *string { return &l.ResourceName }},
	{name: "ResourceType", since: 10, text: func(l *line) *string { return &l.ResourceType }},
	{name: "ServiceCategory", since: 10, mandatory: true, text: func(l *line) *string { return &l.ServiceCategory }, decides: true},
	{name: "ServiceName", since: 10, mandatory: true, text: func(l *line) *string { return &l.ServiceName }},
	{name: "ServiceProviderName", since: 13, mandatory: true, text: func(l *line) *string { return &l.ServiceProviderName }},
	{name: "ServiceSubcategory", since: 11, text: func(l *line) *string { return &l.ServiceSubcategory }},
	{name: "SkuId", since: 10, text: func(l *line) *string { return &l.SKUID }, decides: true},
	{name: "SkuMeter", since: 11, text: func(l *line) *string { return &l.SKUMeter }},
	{name: "SkuPriceDetails", since: 11, json: true, text: func(l *line) *string { return &l.SKUPriceDetails }},
	{name: "SkuPriceId", since: 10, text: func(l *line) *string { return &l.SKUPriceID }},
	{name: "SubAccountId", since: 10, text: func(l *line) *string { return &l.SubAccountID }},
	{name: "SubAccountName", since: 10, text: func(l *line) *string { return &l.SubAccountName }},
	{name: "SubAccountType", since: 12, text: func(l *line) *string { return &l.SubAccountType }},
	{name: "Tags", since: 10, json: true, text: func(l *line) *string { return &l.Tags }},
}

// Columns of Cost and Usage that 1.3 deprecated and 1.4 dropped.
const (
	columnProvider  = "ProviderName"
	columnPublisher = "PublisherName"
)

// columnServiceProvider is the successor of columnProvider.
const columnServiceProvider = "ServiceProviderName"

// versions are the supported versions of FOCUS. The first has the number preview, and each the one
// after that before it.
var versions = []string{"1.0-preview", "1.0", "1.1", "1.2", "1.3", "1.4"}

// preview is the number of version 1.0-preview, of November 2023. Oracle's reports have its names.
const preview = 9

func versionName(v int) string { return versions[v-preview] }

// previewNames are the columns that 1.0 renamed, by their names in 1.0-preview.
// Source: FinOps Open Cost and Usage Specification, changelog of 1.0.
var previewNames = map[string]string{
	"invoiceissuer": "InvoiceIssuerName",
	"provider":      columnProvider,
	"publisher":     columnPublisher,
	"region":        "RegionId",
	"usagequantity": "ConsumedQuantity",
	"usageunit":     "ConsumedUnit",
}

// columnSubcategory is a column of 1.0-preview. 1.0 moved what it says to other columns.
const columnSubcategory = "ChargeSubcategory"

// renamePreview gives the columns of a header the names of 1.0, if it is one of 1.0-preview: it
// names the issuer or the provider as only that version does. It reports whether it is.
func renamePreview(header []string) bool {
	at := map[string]bool{}
	for _, name := range header {
		at[fold(name)] = true
	}
	for _, later := range []string{"InvoiceIssuerName", columnProvider, columnServiceProvider} {
		if at[fold(later)] {
			return false
		}
	}
	if !at["invoiceissuer"] && !at["provider"] || !at["chargeperiodstart"] {
		return false
	}
	for i, name := range header {
		if now := previewNames[fold(name)]; now != "" && !at[fold(now)] {
			header[i] = now
		}
	}
	return true
}

// fromPreview gives the values of 1.0-preview that 1.0 renamed or moved their names in 1.0. It is
// called before the line is validated.
// Source: as previewNames.
func fromPreview(l *line, subcategory string) {
	switch l.PricingCategory {
	case "On-Demand":
		l.PricingCategory = "Standard"
	case "Commitment-Based":
		l.PricingCategory = "Committed"
	}
	switch subcategory {
	case "Used Commitment":
		l.CommitmentDiscountStatus = "Used"
	case "Unused Commitment":
		l.CommitmentDiscountStatus = "Unused"
	case "Credit":
		if l.ChargeCategory == "Adjustment" {
			l.ChargeCategory = "Credit"
		}
	}
}

// versionOf returns the oldest version of FOCUS that defines all FOCUS columns of the file. A
// column that 1.4 dropped keeps the version below 1.4.
func versionOf(has func(string) bool) int {
	v := 10
	for i := range fields {
		if fields[i].since > v && has(fields[i].name) {
			v = fields[i].since
		}
	}
	if v == 14 && (has(columnProvider) || has(columnPublisher)) {
		v = 13
	}
	return v
}

// missingOf returns the missing columns that attribution needs, and the other missing columns
// that are mandatory in the version.
func missingOf(version int, has func(string) bool) (needed, wanted []string) {
	if !has("InvoiceIssuerName") && !has(columnProvider) && !has(columnPublisher) {
		needed = append(needed, "InvoiceIssuerName (or, before 1.4, "+columnProvider+")")
	}
	for i := range fields {
		f := &fields[i]
		switch {
		case has(f.name):
		case f.needed:
			needed = append(needed, f.name)
		case version == preview && (f.name == "ChargeClass" || f.name == "ContractedCost"): // came with 1.0
		case f.mandatory && f.since <= max(version, 10) && (f.name != "InvoiceIssuerName" || len(needed) == 0):
			wanted = append(wanted, f.name)
		}
	}
	return needed, wanted
}

// invoiceColumns are the columns of Invoice Detail in the order of FOCUS 1.4.
// Source: FinOps Open Cost and Usage Specification 1.4, Invoice Detail.
var invoiceColumns = []string{
	"BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory",
	"InvoiceDetailCreated", "InvoiceDetailDescription", "InvoiceDetailGrain", "InvoiceDetailId", "InvoiceDetailLastUpdated",
	"InvoiceId", "InvoiceIssueDate", "InvoiceIssueStatus", "InvoiceIssuerName", "PaymentCurrency",
	"PaymentCurrencyBilledCost", "PaymentCurrencyInvoiceDetailId", "PaymentDueDate", "PaymentTerms", "PurchaseOrderNumber",
	"ReferenceInvoiceId",
}

// InvoiceColumns returns the columns of Invoice Detail in the order of FOCUS 1.4, and those that a file must have.
func InvoiceColumns() (all, required []string) {
	return slices.Clone(invoiceColumns), slices.Clone(neededOfInvoice)
}

// fold normalizes the name of a column for comparison, because warehouses change its case.
func fold(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// Columns returns the columns of Cost and Usage in the order of FOCUS 1.4, and our own.
func Columns() []string {
	names := make([]string, 0, len(fields)+5)
	for i := range fields {
		names = append(names, fields[i].name)
	}
	return append(names, columnLineID, columnCorrects, columnReason, columnGenerated)
}
