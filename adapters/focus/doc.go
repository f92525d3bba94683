// Package focus reads suppliers' bills in the columns of FOCUS, the FinOps Open
// Cost and Usage Specification, and writes them.
//
// [Run] reads Cost and Usage (versions 1.0 to 1.4) and Invoice Detail (1.4) as
// CSV, plain or gzip, and hands out events. What always holds:
//
//   - The same bytes and options give the same events in the same order. That
//     makes the file a source ([SourceName]) whose sequences are dense, so that
//     importing it again changes nothing.
//   - A row of Cost and Usage is one event or one [tabular.BadRow], which names line and
//     column; the rest goes on. Rows of one invoice are one event or none.
//   - Amounts keep 18 decimals, and what is beyond is counted. Nothing passes
//     through floating point.
//   - A file of gzip that is damaged is noticed, by [tabular.Whole] before anything of it
//     goes in. Plain CSV does not tell where it should end: a row that was cut
//     off is a bad row where it lacks columns, else there is a warning that the
//     file does not end in a line end; rows that are missing only the invoice
//     shows.
//   - Nothing is guessed: a time without a zone, a cost with separators, a
//     ChargeCategory that FOCUS does not have are bad rows.
//   - Every event satisfies domain.Validate.
//   - Memory follows the longest row and, for Cost and Usage, 16 bytes of hash
//     and a count for each row, so that rows that are there twice are noticed:
//     some 50 bytes a row; and some 100 bytes for each invoice, and each billing
//     account and period, by provider, and each line of the ledger that named no
//     issuer, where a row of the file names none. Invoice Detail is held until the end of
//     the file, within [tabular.Limits].
//
// # Columns
//
// Columns stand in any order; their names may be in any case, since warehouses
// change it. Every column of FOCUS 1.4 has its field in domain.BillingLine; all
// others, ProviderName and PublisherName among them, are kept by name in Other,
// except those of ours below. A file must have what attribution cannot do
// without: BilledCost, BillingAccountId, BillingCurrency, BillingPeriodStart and
// End, ChargeCategory, ChargePeriodStart and End, and who issued the invoice.
// Others that the version makes mandatory may be missing, with a warning:
// suppliers leave some out. The version is given or told from the columns.
//
// InvoiceIssuerName is null in some rows of some suppliers, such as rows of tax.
// Such a row takes the first of these that is known:
//
//  1. the issuer that the ledger has of this row, so that importing a file again
//     changes nothing, whatever came to be known since;
//  2. the issuer that the other rows with its BillingAccountId and InvoiceId name;
//  3. that of the rows with its account and billing period;
//  4. its ProviderName, else its ServiceProviderName, else its PublisherName.
//
// The other rows are those of the file and, where the file has none, those of the
// files that are imported with it and the lines of the ledger for its month
// ([Elsewhere]), but for lines whose own issuer was inferred. Where they name two
// issuers, those with the row's provider decide; where these name two as well, or
// none, the row's own columns (4) do. x_InvoiceIssuerNameSource says which it was
// (Invoice, AccountAndPeriod, each of them with AndProvider, or the column), and a
// warning too. A row for which nothing names an issuer is bad. Files are read once
// more for this, at the first such row. A part that is imported on its own before
// the parts that name its issuer keeps what it took then.
//
// ServiceProviderName becomes ProviderName, its name before 1.3, where it is
// null. HostProviderName is never filled: who published a service need not host
// it.
//
// # Values
//
// A field that is empty, or blank, is null. So are the texts NULL, null and
// (null), which FOCUS's own samples hold, with a warning. Blanks around a value
// are dropped. A null where attribution needs a value is a bad row.
//
// Numbers are decimals with up to 24 digits before the point, with or without an
// exponent, exact to 18 decimals. Times are RFC 3339; a blank in place of the T, a
// missing seconds part and " UTC" in place of Z are accepted. Times and dates
// without a zone need [Options.Zone]. Columns of JSON are kept as written, with a
// warning when they are not JSON.
//
// Refused, because it could be kept but not divided, is a row with a BilledCost or
// an EffectiveCost of 10¹⁵ or more in magnitude, with usage over a charge period of
// more than 13 months (purchases may have any), with a period that ends before it
// begins, and with usage that begins after its billing period ends; so is an invoice
// that comes to 10¹⁵ or more. No number is read of more than 1,100 characters or
// decimals.
//
// Usage from before its billing period is late, and only warned of: suppliers bill
// it in the next period without calling it a correction.
//
// # Deviations
//
// A row with money is not refused for a column that division does not need. The
// value is set aside or made to fit, as the kinds of [Deviation] say, and counted,
// with a warning for each kind and column; what was written is kept in the column
// of Other that [domain.AsWritten] names, for example x_ListUnitPriceAsWritten.
// Costs are rounded half to even at 18 decimals, and what that took is added up by
// invoice, exactly ([Rounding]).
//
// A quantity of machine time that is no number, that is more than 200,000,000 hours,
// or that is negative where neither the row is a correction nor one of its costs is
// negative, is set aside too. Such a line buys no time, and attribution says so
// (attribution.Line.UnusableQuantity).
//
// Only these columns of FOCUS can refuse a row by their value:
//
//   - BilledCost and EffectiveCost, which are what is divided;
//   - BillingAccountId, BillingCurrency, InvoiceDetailId, InvoiceId and
//     InvoiceIssuerName, which say what invoice the row belongs to;
//   - BillingPeriodEnd, BillingPeriodStart, ChargePeriodEnd and ChargePeriodStart,
//     which say when;
//   - CapacityReservationStatus, ChargeCategory, CommitmentDiscountStatus and
//     ServiceCategory, which say what kind of charge it is;
//   - CapacityReservationId, CommitmentDiscountId, RegionId, ResourceId and SkuId,
//     which say what it is for: a text that is cut or cleaned would name another thing;
//   - ConsumedUnit and PricingUnit, without which a quantity says nothing.
//
// Of our own columns x_LineId, x_CorrectsLineId, x_CorrectionReason and x_Generated
// can, and so can a custom column by its name or by their number.
//
// With [Options.Strict] a row that deviates is a bad row.
//
// # Ids
//
// FOCUS gives rows no id. A column x_LineId names lines where there is one, and
// no two rows of a file may share an id. Otherwise the id is made of the row:
// the first 16 bytes, in hexadecimal, of the SHA-256 over its columns that are
// not null in the order of their names, each as name, '=', value, ' ', length of
// the value in bytes, '\n', with numbers written plainly without needless zeros
// (those that are rounded or no number as they stand) and times in UTC. So a row
// that is in two exports is one line of the ledger, unless a column says when it was
// exported. Rows of one file that are equal are different charges: the second gets
// "-2" behind its id, and a warning names both, for only the invoice can tell.
//
// A supplier who rewrites a month that is not closed changes rows, and a changed
// row without x_LineId is another line beside the old one. Import such a month
// when it is closed.
//
// # Corrections
//
// A row that names the line that it corrects, in x_CorrectsLineId (or
// x_Corrects) with a reason in x_CorrectionReason, is a BillingLineCorrected.
// FOCUS has no such column: a row with ChargeClass Correction that does not name
// one is a BillingLineRecorded, and keeps its class.
//
// Other columns of ours are x_FocusVersion and x_Generated (true for what a
// generator made and no supplier ever sent).
//
// # Time
//
// The event of a line became true at the end of its charge period where that
// lies in the billing period, and otherwise at the end of the billing period. An
// invoice is as it is since its rows were last updated (InvoiceDetailLastUpdated,
// else InvoiceDetailCreated), else since its issue date, else since the end of
// its billing period. With [Options.Historical] this is also when it was known.
//
// # Invoice Detail
//
// Rows of one issuer, billing account and invoice are one InvoiceReceived, whose
// total is the exact sum of BilledCost. Rows that disagree on what concerns the
// whole invoice, a bad row, or a detail that is there twice refuse the invoice
// with all its rows, because its total would be wrong. What the event has no
// field for (PaymentCurrencyBilledCost, PaymentCurrencyInvoiceDetailId, custom
// columns) is left out.
package focus
