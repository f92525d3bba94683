package domain

// Events of qm.billing, keyed by invoice issuer and billing account.

// BillingLine is one charge, in the columns of FOCUS 1.4 Cost and Usage. Lines of older versions
// are read into the same columns. Amounts are exact as the supplier wrote them. Empty text and
// invalid NullDecimal stand for null. JSON columns hold the supplier's JSON text.
//
// Source of names and meaning: FinOps Open Cost and Usage Specification 1.4.
type BillingLine struct {
	LineID string `json:"x_LineId"` // ours: unique within (issuer, account); identifies the line in every report

	AllocatedMethodDetails              string      `json:"AllocatedMethodDetails,omitempty"`
	AllocatedMethodID                   string      `json:"AllocatedMethodId,omitempty"`
	AllocatedResourceID                 string      `json:"AllocatedResourceId,omitempty"`
	AllocatedResourceName               string      `json:"AllocatedResourceName,omitempty"`
	AllocatedTags                       string      `json:"AllocatedTags,omitempty"`
	AvailabilityZone                    string      `json:"AvailabilityZone,omitempty"`
	BilledCost                          Decimal     `json:"BilledCost"`
	BillingAccountID                    string      `json:"BillingAccountId"`
	BillingAccountName                  string      `json:"BillingAccountName,omitempty"`
	BillingAccountType                  string      `json:"BillingAccountType,omitempty"`
	BillingCurrency                     string      `json:"BillingCurrency"`
	BillingPeriodEnd                    Instant     `json:"BillingPeriodEnd"`
	BillingPeriodStart                  Instant     `json:"BillingPeriodStart"`
	CapacityReservationID               string      `json:"CapacityReservationId,omitempty"`
	CapacityReservationStatus           string      `json:"CapacityReservationStatus,omitempty"`
	ChargeCategory                      string      `json:"ChargeCategory"`
	ChargeClass                         string      `json:"ChargeClass,omitempty"`
	ChargeDescription                   string      `json:"ChargeDescription,omitempty"`
	ChargeFrequency                     string      `json:"ChargeFrequency,omitempty"`
	ChargePeriodEnd                     Instant     `json:"ChargePeriodEnd"`
	ChargePeriodStart                   Instant     `json:"ChargePeriodStart"`
	CommitmentDiscountCategory          string      `json:"CommitmentDiscountCategory,omitempty"`
	CommitmentDiscountID                string      `json:"CommitmentDiscountId,omitempty"`
	CommitmentDiscountName              string      `json:"CommitmentDiscountName,omitempty"`
	CommitmentDiscountQuantity          NullDecimal `json:"CommitmentDiscountQuantity,omitzero"`
	CommitmentDiscountStatus            string      `json:"CommitmentDiscountStatus,omitempty"`
	CommitmentDiscountType              string      `json:"CommitmentDiscountType,omitempty"`
	CommitmentDiscountUnit              string      `json:"CommitmentDiscountUnit,omitempty"`
	CommitmentProgramEligibilityDetails string      `json:"CommitmentProgramEligibilityDetails,omitempty"`
	ConsumedQuantity                    NullDecimal `json:"ConsumedQuantity,omitzero"`
	ConsumedUnit                        string      `json:"ConsumedUnit,omitempty"`
	ContractApplied                     string      `json:"ContractApplied,omitempty"`
	ContractedCost                      NullDecimal `json:"ContractedCost,omitzero"`
	ContractedUnitPrice                 NullDecimal `json:"ContractedUnitPrice,omitzero"`
	EffectiveCost                       NullDecimal `json:"EffectiveCost,omitzero"`
	HostProviderName                    string      `json:"HostProviderName,omitempty"`
	InvoiceDetailID                     string      `json:"InvoiceDetailId,omitempty"`
	InvoiceID                           string      `json:"InvoiceId,omitempty"`
	InvoiceIssuerName                   string      `json:"InvoiceIssuerName"`
	ListCost                            NullDecimal `json:"ListCost,omitzero"`
	ListUnitPrice                       NullDecimal `json:"ListUnitPrice,omitzero"`
	PricingCategory                     string      `json:"PricingCategory,omitempty"`
	PricingCurrency                     string      `json:"PricingCurrency,omitempty"`
	PricingCurrencyContractedUnitPrice  NullDecimal `json:"PricingCurrencyContractedUnitPrice,omitzero"`
	PricingCurrencyEffectiveCost        NullDecimal `json:"PricingCurrencyEffectiveCost,omitzero"`
	PricingCurrencyListUnitPrice        NullDecimal `json:"PricingCurrencyListUnitPrice,omitzero"`
	PricingQuantity                     NullDecimal `json:"PricingQuantity,omitzero"`
	PricingUnit                         string      `json:"PricingUnit,omitempty"`
	RegionID                            string      `json:"RegionId,omitempty"`
	RegionName                          string      `json:"RegionName,omitempty"`
	ResourceID                          string      `json:"ResourceId,omitempty"`
	ResourceName                        string      `json:"ResourceName,omitempty"`
	ResourceType                        string      `json:"ResourceType,omitempty"`
	ServiceCategory                     string      `json:"ServiceCategory,omitempty"`
	ServiceName                         string      `json:"ServiceName,omitempty"`
	ServiceProviderName                 string      `json:"ServiceProviderName,omitempty"`
	ServiceSubcategory                  string      `json:"ServiceSubcategory,omitempty"`
	SKUID                               string      `json:"SkuId,omitempty"`
	SKUMeter                            string      `json:"SkuMeter,omitempty"`
	SKUPriceDetails                     string      `json:"SkuPriceDetails,omitempty"`
	SKUPriceID                          string      `json:"SkuPriceId,omitempty"`
	SubAccountID                        string      `json:"SubAccountId,omitempty"`
	SubAccountName                      string      `json:"SubAccountName,omitempty"`
	SubAccountType                      string      `json:"SubAccountType,omitempty"`
	Tags                                string      `json:"Tags,omitempty"`

	// Other holds columns that FOCUS does not define, such as x_ columns, by name.
	Other map[string]string `json:"Other,omitempty"`
	// FocusVersion is the version the line was written in, for example 1.2.
	FocusVersion string `json:"x_FocusVersion,omitempty"`
	// Generated marks synthetic lines, which no supplier sent.
	Generated bool `json:"x_Generated,omitempty"`
}

// BillingLineRecorded enters one line of a supplier's bill.
type BillingLineRecorded struct {
	Line BillingLine `json:"line"`
}

// BillingLineCorrected records a line that corrects an earlier one. The line is added to the
// ledger; nothing is removed.
type BillingLineCorrected struct {
	Line     BillingLine `json:"line"`
	Corrects string      `json:"corrects"` // LineID
	Reason   string      `json:"reason,omitempty"`
}

// BillingLineRemoved says that a supplier no longer bills a line: an export of its account's month
// that replaces the one before does not have it. The line no longer counts. What was stated about it
// stays in its history, and a later statement enters it again.
type BillingLineRemoved struct {
	InvoiceIssuerName string   `json:"InvoiceIssuerName"`
	BillingAccountID  string   `json:"BillingAccountId"`
	LineID            string   `json:"x_LineId"`
	BillingPeriod     Interval `json:"billing_period"` // of the line
	Reason            string   `json:"reason,omitempty"`
}

// InvoiceDetail is one row of the FOCUS 1.4 Invoice Detail dataset.
type InvoiceDetail struct {
	InvoiceDetailID string  `json:"InvoiceDetailId"`
	ChargeCategory  string  `json:"ChargeCategory"`
	BilledCost      Decimal `json:"BilledCost"`
	Description     string  `json:"ChargeDescription,omitempty"`
	Grain           string  `json:"InvoiceDetailGrain,omitempty"` // JSON
}

// InvoiceReceived records an invoice as received, independently of its lines.
type InvoiceReceived struct {
	InvoiceIssuerName  string          `json:"InvoiceIssuerName"`
	BillingAccountID   string          `json:"BillingAccountId"`
	InvoiceID          string          `json:"InvoiceId"`
	Total              Money           `json:"total"` // payable, tax included
	IssueDate          Instant         `json:"InvoiceIssueDate"`
	Status             string          `json:"InvoiceIssueStatus"` // Open, Issued, Voided
	PaymentDueDate     Instant         `json:"PaymentDueDate,omitempty"`
	PaymentCurrency    string          `json:"PaymentCurrency,omitempty"`
	PaymentTerms       string          `json:"PaymentTerms,omitempty"`
	PurchaseOrder      string          `json:"PurchaseOrderNumber,omitempty"`
	ReferenceInvoiceID string          `json:"ReferenceInvoiceId,omitempty"`
	BillingPeriod      Interval        `json:"billing_period"`
	Details            []InvoiceDetail `json:"details,omitempty"`
	Generated          bool            `json:"x_Generated,omitempty"`
}

// BillingPeriodClosed says that the supplier will change nothing more in a period.
type BillingPeriodClosed struct {
	InvoiceIssuerName string   `json:"InvoiceIssuerName"`
	BillingAccountID  string   `json:"BillingAccountId"`
	Period            Interval `json:"period"`
}
