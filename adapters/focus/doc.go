// Package focus reads and writes suppliers' bills in FOCUS, the FinOps Open Cost and Usage
// Specification.
//
// [Run] reads Cost and Usage (1.0-preview, 1.0 to 1.4), Invoice Detail and Billing Period (1.4) and
// Contract Commitment (1.3, 1.4) as CSV, plain or compressed with gzip or zstd, and emits events. What
// always holds:
//
//   - The same bytes and options give the same events in the same order. So a file is a source
//     ([SourceName]) with dense sequence numbers, and importing it again changes nothing.
//   - A row of Cost and Usage gives one event or one [tabular.BadRow], which names line and
//     column. The import continues after a bad row. The rows of an invoice give one event or
//     none.
//   - Amounts keep 18 decimals. What rounding removes is counted. No amount passes through
//     floating point.
//   - [tabular.Whole] detects a damaged compressed file before any of it is imported. Plain CSV has
//     no end mark: a truncated row is a bad row if it lacks columns, else the missing line end
//     gives a warning. Only the invoice can show missing rows.
//   - Nothing is guessed: a time without a zone, a cost with separators or a ChargeCategory
//     unknown to FOCUS makes a bad row.
//   - Every event satisfies domain.Validate.
//   - Memory grows with the longest row. For Cost and Usage it also grows by about 25 bytes per
//     row, for a hash of 16 bytes and a line that detect duplicates. Once a row names no
//     issuer, it grows by about 100 bytes for each invoice, for each billing account and period
//     (both also per provider), and for each ledger line that named no issuer. Invoice Detail
//     is held in memory until the end of the file, within [Options.InvoiceBytes].
//
// # Columns
//
// Columns may be in any order. The case of their names does not matter, because warehouses
// change it. Every column of FOCUS 1.4 has a field in domain.BillingLine. All others, including
// ProviderName and PublisherName, are kept by name in Other, except our own columns below. A
// file must have the columns that attribution needs: BilledCost, BillingAccountId,
// BillingCurrency, BillingPeriodStart and End, ChargeCategory, ChargePeriodStart and End, and
// the issuer of the invoice. Other columns that the version makes mandatory may be missing,
// with a warning, because suppliers omit some. The version is given or detected from the
// columns.
//
// InvoiceIssuerName is null in some rows of some suppliers, such as tax. Such a row gets the
// first known of these issuers:
//
//  1. the issuer in the ledger's line for this row, so that importing a file again changes
//     nothing, whatever was imported in the meantime;
//  2. the issuer in other rows with the same BillingAccountId and InvoiceId;
//  3. the issuer in other rows with the same account and billing period;
//  4. its ProviderName, else its ServiceProviderName, else its PublisherName.
//
// The other rows are those of the same file. If it has none, they are those of the files
// imported with it and the ledger lines of its month ([Elsewhere]), except lines whose own
// issuer was inferred. If they name two issuers, only rows with the same provider count. If
// these name two as well, or none, rule 4 applies. x_InvoiceIssuerNameSource and a warning
// record the origin (Invoice, AccountAndPeriod, either with the suffix AndProvider, or the
// column). A row for which nothing names an issuer is bad. At the first such row, the files are
// read a second time. A file that is imported before the files that name its issuer keeps the
// issuer that it got then.
//
// A file in the names of 1.0-preview (InvoiceIssuer, Provider, Publisher, Region, UsageQuantity,
// UsageUnit), as Oracle's reports are, is read as if it had those of 1.0. Its PricingCategory
// On-Demand and Commitment-Based become Standard and Committed. ChargeSubcategory, which 1.0 does
// not have, says whether a commitment was used, and which adjustments are credits.
//
// A null ServiceProviderName is filled from ProviderName, its name before 1.3. HostProviderName
// is never filled: the publisher of a service need not host it.
//
// # Values
//
// An empty or blank field is null. So are the texts NULL, null and (null), which FOCUS's own
// samples contain; they give a warning. Blanks around a value are dropped. A null where
// attribution needs a value makes a bad row.
//
// Numbers are decimals with up to 24 digits before the point, with or without an exponent,
// exact to 18 decimals. Times are RFC 3339; a blank in place of the T, missing seconds and
// " UTC" in place of Z are accepted. Times and dates without a zone need [Options.Zone]. Columns
// of JSON are kept as written, with a warning if they are not JSON.
//
// Attribution could not process these rows, so they are refused: a BilledCost or EffectiveCost
// of 10¹⁵ or more in magnitude; usage with a charge period of more than 13 months (a purchase
// may have any period); a period that ends before it begins; usage that begins after the end of
// its billing period. An invoice with a total of 10¹⁵ or more is refused too. A number with more
// than 1,100 characters or decimals is not read.
//
// Usage from before its billing period was billed late. It gives only a warning, because
// suppliers bill it in the next period without marking it as a correction.
//
// # Deviations
//
// A row with money is not refused for a column that attribution does not need. The value is
// set aside or adapted, by the kinds of [Deviation], and counted, with a warning for each kind
// and column. The original text is kept in the column of Other that [domain.AsWritten] names,
// for example x_ListUnitPriceAsWritten. Costs are rounded half to even at 18 decimals, and the
// exact differences are summed by invoice ([Rounding]).
//
// A quantity of machine time is set aside too if it is not a number, if it is more than
// 200,000,000 hours, or if it is negative although the row is neither a correction nor has a
// negative cost. Such a line buys no time, and attribution reports that
// (attribution.Line.UnusableQuantity).
//
// Only these columns of FOCUS can refuse a row by their value:
//
//   - BilledCost and EffectiveCost, the amounts that are attributed;
//   - BillingAccountId, BillingCurrency, InvoiceDetailId, InvoiceId and
//     InvoiceIssuerName, which identify the invoice of the row;
//   - BillingPeriodEnd, BillingPeriodStart, ChargePeriodEnd and ChargePeriodStart,
//     which date the charge;
//   - CapacityReservationStatus, ChargeCategory, CommitmentDiscountStatus and
//     ServiceCategory, which classify the charge;
//   - CapacityReservationId, CommitmentDiscountId, RegionId, ResourceId and SkuId,
//     which identify what it is for: a cut or cleaned text would identify something else;
//   - ConsumedUnit and PricingUnit, without which a quantity has no meaning.
//
// Of our own columns x_LineId, x_CorrectsLineId, x_CorrectionReason and x_Generated can refuse
// a row. So can custom columns, by an invalid name or by their number.
//
// With [Options.Strict] a row with a deviation is a bad row.
//
// # Ids
//
// FOCUS has no row id. If there is a column x_LineId, it is the id of the line, and no two rows
// of a file may share one. Otherwise the id is computed from the row. It is the first 16 bytes,
// in hexadecimal, of the SHA-256 over the non-null columns, each as name, '=', value, ' ', length of
// the value in bytes, '\n'. First come the columns of FOCUS that hold text, except ResourceId,
// ResourceName and Tags, then all others, both in the order of their names: what repeats from row to
// row is at the beginning, and is hashed once. Numbers are written plainly without
// trailing zeros, but rounded numbers and texts that are not numbers as written. Times are in
// UTC. So a row that is in two exports is one line of the ledger, unless a column contains the
// time of the export. Equal rows of one file are different charges: the second gets the suffix
// "-2", and a warning names both, because only the invoice can show whether one is a duplicate.
//
// A supplier who rewrites an open month changes rows. Without x_LineId, a changed row becomes a
// new line next to the old one, unless the export is imported as a snapshot, which removes the lines
// that it does not have. The columns of [Options.ExportTime] are not part of the hash.
//
// # Corrections
//
// A row that names the line that it corrects in x_CorrectsLineId (or x_Corrects), with a reason
// in x_CorrectionReason, is a BillingLineCorrected. FOCUS has no such column. A row with
// ChargeClass Correction that does not name a line is a BillingLineRecorded and keeps its class.
//
// Our other columns are x_FocusVersion and x_Generated (true for generated data that no
// supplier sent).
//
// # Time
//
// The event of a line has the time of the end of its charge period if that is within the
// billing period, otherwise of the end of the billing period. The event of an invoice has the
// time of the last update of its rows (InvoiceDetailLastUpdated, else InvoiceDetailCreated),
// else of its issue date, else of the end of its billing period. With [Options.Historical] the
// event counts as known from that time on.
//
// # Invoice Detail
//
// Rows with the same issuer, billing account and invoice give one InvoiceReceived, whose total
// is the exact sum of BilledCost. The whole invoice is refused if its rows disagree on a value
// of the invoice, if one of them is bad, or if a detail is a duplicate, because the total would
// be wrong. Columns without a field in the event (PaymentCurrencyBilledCost,
// PaymentCurrencyInvoiceDetailId, custom columns) are not imported.
//
// # Billing Period
//
// A row with the status Closed gives a BillingPeriodClosed for every account of [Options.Accounts],
// because FOCUS does not say of which accounts a period is. A column x_BillingAccountId, if the file
// has one, says it for its row. An open period gives no event. The event has the time of
// BillingPeriodLastUpdated, else of BillingPeriodCreated, else of the end of the period.
//
// # Contract Commitment
//
// Rows are checked against the columns of FOCUS (type, null, allowed values, order of the periods), and
// every violation makes a bad row. They give no events, because a commitment in the ledger is a
// decision that someone signs. [Summary.Contracts] has them, for a comparison with the ledger.
package focus
