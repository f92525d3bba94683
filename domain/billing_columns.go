package domain

import (
	"maps"
	"slices"
	"strings"
)

// Column returns the text in a column of a line, "" for null. The name is the column's name in
// FOCUS, one of those that [MappingRuleSet] may use. A custom column that the line does not have is
// null.
func (l *BillingLine) Column(name string) string {
	if of := textColumns[name]; of != nil {
		return of(l)
	}
	return l.Other[name]
}

// textColumns are the text columns of FOCUS that a line keeps, and the columns that we add.
var textColumns = map[string]func(*BillingLine) string{
	"x_LineId":                            func(l *BillingLine) string { return l.LineID },
	"x_FocusVersion":                      func(l *BillingLine) string { return l.FocusVersion },
	"AllocatedMethodDetails":              func(l *BillingLine) string { return l.AllocatedMethodDetails },
	"AllocatedMethodId":                   func(l *BillingLine) string { return l.AllocatedMethodID },
	"AllocatedResourceId":                 func(l *BillingLine) string { return l.AllocatedResourceID },
	"AllocatedResourceName":               func(l *BillingLine) string { return l.AllocatedResourceName },
	"AllocatedTags":                       func(l *BillingLine) string { return l.AllocatedTags },
	"AvailabilityZone":                    func(l *BillingLine) string { return l.AvailabilityZone },
	"BillingAccountId":                    func(l *BillingLine) string { return l.BillingAccountID },
	"BillingAccountName":                  func(l *BillingLine) string { return l.BillingAccountName },
	"BillingAccountType":                  func(l *BillingLine) string { return l.BillingAccountType },
	"BillingCurrency":                     func(l *BillingLine) string { return l.BillingCurrency },
	"CapacityReservationId":               func(l *BillingLine) string { return l.CapacityReservationID },
	"CapacityReservationStatus":           func(l *BillingLine) string { return l.CapacityReservationStatus },
	"ChargeCategory":                      func(l *BillingLine) string { return l.ChargeCategory },
	"ChargeClass":                         func(l *BillingLine) string { return l.ChargeClass },
	"ChargeDescription":                   func(l *BillingLine) string { return l.ChargeDescription },
	"ChargeFrequency":                     func(l *BillingLine) string { return l.ChargeFrequency },
	"CommitmentDiscountCategory":          func(l *BillingLine) string { return l.CommitmentDiscountCategory },
	"CommitmentDiscountId":                func(l *BillingLine) string { return l.CommitmentDiscountID },
	"CommitmentDiscountName":              func(l *BillingLine) string { return l.CommitmentDiscountName },
	"CommitmentDiscountStatus":            func(l *BillingLine) string { return l.CommitmentDiscountStatus },
	"CommitmentDiscountType":              func(l *BillingLine) string { return l.CommitmentDiscountType },
	"CommitmentDiscountUnit":              func(l *BillingLine) string { return l.CommitmentDiscountUnit },
	"CommitmentProgramEligibilityDetails": func(l *BillingLine) string { return l.CommitmentProgramEligibilityDetails },
	"ConsumedUnit":                        func(l *BillingLine) string { return l.ConsumedUnit },
	"ContractApplied":                     func(l *BillingLine) string { return l.ContractApplied },
	"HostProviderName":                    func(l *BillingLine) string { return l.HostProviderName },
	"InvoiceDetailId":                     func(l *BillingLine) string { return l.InvoiceDetailID },
	"InvoiceId":                           func(l *BillingLine) string { return l.InvoiceID },
	"InvoiceIssuerName":                   func(l *BillingLine) string { return l.InvoiceIssuerName },
	"PricingCategory":                     func(l *BillingLine) string { return l.PricingCategory },
	"PricingCurrency":                     func(l *BillingLine) string { return l.PricingCurrency },
	"PricingUnit":                         func(l *BillingLine) string { return l.PricingUnit },
	"RegionId":                            func(l *BillingLine) string { return l.RegionID },
	"RegionName":                          func(l *BillingLine) string { return l.RegionName },
	"ResourceId":                          func(l *BillingLine) string { return l.ResourceID },
	"ResourceName":                        func(l *BillingLine) string { return l.ResourceName },
	"ResourceType":                        func(l *BillingLine) string { return l.ResourceType },
	"ServiceCategory":                     func(l *BillingLine) string { return l.ServiceCategory },
	"ServiceName":                         func(l *BillingLine) string { return l.ServiceName },
	"ServiceProviderName":                 func(l *BillingLine) string { return l.ServiceProviderName },
	"ServiceSubcategory":                  func(l *BillingLine) string { return l.ServiceSubcategory },
	"SkuId":                               func(l *BillingLine) string { return l.SKUID },
	"SkuMeter":                            func(l *BillingLine) string { return l.SKUMeter },
	"SkuPriceDetails":                     func(l *BillingLine) string { return l.SKUPriceDetails },
	"SkuPriceId":                          func(l *BillingLine) string { return l.SKUPriceID },
	"SubAccountId":                        func(l *BillingLine) string { return l.SubAccountID },
	"SubAccountName":                      func(l *BillingLine) string { return l.SubAccountName },
	"SubAccountType":                      func(l *BillingLine) string { return l.SubAccountType },
	"Tags":                                func(l *BillingLine) string { return l.Tags },
}

// droppedColumns are columns that FOCUS removed in 1.3. A line keeps them among its other columns.
var droppedColumns = []string{"ProviderName", "PublisherName"}

// columns checks the column names of a mapping rule. A name that no line can have would read as
// null in every line.
func (c *checker) columns(field string, columns map[string]string) {
	c.labels(field, columns)
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		custom := len(name) > len("x_") && strings.HasPrefix(name, "x_")
		if custom || textColumns[name] != nil || slices.Contains(droppedColumns, name) {
			continue
		}
		known := append(slices.Collect(maps.Keys(textColumns)), droppedColumns...)
		slices.Sort(known)
		c.bad(field, "%s is no column of text that FOCUS has, nor a custom one, whose name begins with x_; %s",
			quote(name), Suggest(name, known))
		return
	}
}
