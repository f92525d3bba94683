// Package focus reads suppliers' bills in the columns of FOCUS, the FinOps Open
// Cost and Usage Specification, and writes them.
//
// [Run] reads Cost and Usage (versions 1.0 to 1.4) and Invoice Detail (1.4) as
// CSV, plain or gzip, and hands out events. What always holds:
//
//   - The same bytes and options give the same events in the same order. That
//     makes the file a source ([SourceName]) whose sequences are dense, so that
//     importing it again changes nothing.
//   - A row of Cost and Usage is one event or one [BadRow], which names line and
//     column; the rest goes on. Rows of one invoice are one event or none.
//   - Amounts keep every digit. Nothing passes through floating point.
//   - A file of gzip that is damaged is noticed, by [Whole] before anything of it
//     goes in. Plain CSV does not tell where it should end: a row that was cut
//     off is a bad row where it lacks columns, else there is a warning that the
//     file does not end in a line end; rows that are missing only the invoice
//     shows.
//   - Nothing is guessed: a time without a zone, a number with separators, a
//     category that FOCUS does not have are bad rows.
//   - Every event satisfies domain.Validate.
//   - Memory follows the longest row and, for Cost and Usage, 16 bytes of hash
//     and a count for each row, so that rows that are there twice are noticed:
//     some 50 bytes a row. Invoice Detail is held until the end of the file,
//     within [Limits].
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
// Two columns are filled from others where they are null. InvoiceIssuerName
// becomes ProviderName, else PublisherName, with a warning, because some
// suppliers leave it null; ServiceProviderName becomes ProviderName, its name
// before 1.3. HostProviderName is never filled: who published a service need
// not host it.
//
// # Values
//
// A field that is empty, or blank, is null. So are the texts NULL, null and
// (null), which FOCUS's own samples hold, with a warning. Blanks around a value
// are dropped. A null where attribution needs a value is a bad row.
//
// Numbers are decimals with up to 24 digits before and 18 after the point. An
// exponent, which FOCUS does not allow and exports from floating point have, is
// read if the number has no more digits than that. Times are RFC 3339; a blank
// in place of the T, a missing seconds part and " UTC" in place of Z are
// accepted. Times and dates without a zone need [Options.Zone]. Columns of JSON
// are kept as written, with a warning when they are not JSON.
//
// What could be kept but not divided as it stands is refused, for every report
// would have to make an exception of it: BilledCost and EffectiveCost of 10¹⁵ or more in magnitude, and
// an invoice that comes to as much; PricingQuantity and ConsumedQuantity of time
// of a machine or a GPU that come to more than 200,000,000 hours; and usage with
// a charge period of more than 13 months, where purchases may have any.
//
// Refused too are a period that ends before it begins, usage that begins after
// its billing period ends, and a negative quantity of usage or purchase, unless
// the row is a correction or one of its costs is negative as well. Usage from
// before its billing period is late, and only warned of: suppliers bill it in
// the next period without calling it a correction.
//
// # Ids
//
// FOCUS gives rows no id. A column x_LineId names lines where there is one, and
// no two rows of a file may share an id. Otherwise the id is made of the row:
// the first 16 bytes, in hexadecimal, of the SHA-256 over its columns that are
// not null in the order of their names, each as name, '=', value, ' ', length of
// the value in bytes, '\n', with numbers written plainly without needless zeros
// and times in UTC. So a row that is in two exports is one line of the ledger,
// unless a column says when it was exported. Rows of one file that are equal are
// different charges: the second gets "-2" behind its id, and a warning names
// both, for only the invoice can tell.
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
