package app

import "quartermaster/projections/costs"

func evidenceText(name, doc string) costs.Column {
	return costs.Column{Name: name, Kind: costs.KindText, Doc: doc}
}
func evidenceNumber(name, doc string) costs.Column {
	return costs.Column{Name: name, Kind: costs.KindDecimal, Doc: doc}
}
func evidenceTime(name, doc string) costs.Column {
	return costs.Column{Name: name, Kind: costs.KindTime, Doc: doc}
}
func evidenceAmount(name, doc string) costs.Column {
	return evidenceNumber(name, doc+", in the currency of the row")
}
func evidenceMonthColumn() costs.Column { return evidenceText("month", "billing month, in UTC") }
func evidenceCurrency() costs.Column    { return evidenceText("currency", "ISO 4217") }
func evidenceAccount() []costs.Column {
	return []costs.Column{
		evidenceText("InvoiceIssuerName", "who issued the bill, as in FOCUS"),
		evidenceText("BillingAccountId", "account that was billed, as in FOCUS"),
	}
}

func columns(parts ...any) (all []costs.Column) {
	for _, p := range parts {
		switch p := p.(type) {
		case costs.Column:
			all = append(all, p)
		case []costs.Column:
			all = append(all, p...)
		}
	}
	return all
}

// evidenceTables are the tables of a pack, without rows, in the order of the index.
func evidenceTables() []EvidenceTable {
	text, number, at, amount := evidenceText, evidenceNumber, evidenceTime, evidenceAmount
	return []EvidenceTable{
		{Name: "sources", Doc: "Every file that was imported, of all months. The log does not say who imported it: imports are not signed.", Columns: columns(
			text("source", "name in the log: SHA-256 of the file, mapping and options"),
			text("file_sha256", "SHA-256 of the bytes of the file, in hexadecimal; of several files of one export, that of all of them"),
			number("events", "events that the log has of it"), number("missing", "events that are known to exist and have not arrived"),
			number("lines", "statements about billing lines"), number("invoices", "statements about invoices"),
			at("received_from", "when the first of its statements was appended; empty if the rows do not have it, as for usage"),
			at("received_to", "when the last of its statements was appended"), text("months", "billing months of its lines"),
		)},
		{Name: "totals", Doc: "Record counts and control totals by month, account and currency. billed is the sum of the " +
			"allocations, and equals billed_by_lines plus rounding.", Columns: columns(
			evidenceMonthColumn(), evidenceAccount(), evidenceCurrency(), number("lines", "billing lines"),
			number("allocations", "parts of the lines, and roundings of invoices"), amount("billed_by_lines", "sum of BilledCost of the lines"),
			amount("rounding", "sum of rounding adjustments of invoices"), amount("billed", "sum of the allocations"),
			amount("effective", "sum of the effective cost of the allocations"), amount("received", "sum of the totals of received invoices"),
		)},
		{Name: "completeness", Doc: "Whether each account was billed in each month.", Columns: columns(
			evidenceMonthColumn(), evidenceAccount(), text("state", "invoiced: every line is of a received invoice; billed: some line is of none; "+
				"accrued: an estimate counts; missing: billed the month before, and not in this one"),
			number("lines", "billing lines"), number("invoices", "received invoices"), number("uninvoiced_lines", "lines without a received invoice"),
			text("accrued", "accruals: method, amount and what replaced it"),
			at("period_closed", "when the supplier's statement that the period is closed was appended; empty if it made none"),
		)},
		{Name: "invoices", Doc: "Each invoice against its lines.", Columns: columns(
			evidenceMonthColumn(), evidenceAccount(), text("InvoiceId", "empty for lines without an invoice"), evidenceCurrency(),
			text("status", "whether lines and invoice agree"), number("lines", "billing lines"), amount("billed_by_lines", "sum of BilledCost of the lines"),
			amount("received", "total of the received invoice; 0 without one"), amount("difference", "received less attributed"),
			amount("rounding", "rounding adjustment"), amount("after", "difference less the rounding adjustment"),
		)},
		{Name: "coverage", Doc: "What became of the machine time that was paid for, and what telemetry lacks.", Columns: columns(
			evidenceMonthColumn(), text("component", "what became of it; empty for the sum of the month"), evidenceCurrency(),
			number("bought_gpu_ms", "GPU time that the lines bought, in milliseconds"), number("allocated_gpu_ms", "part of it that somebody held"),
			number("measured_gpu_ms", "part of that with measured activity"), amount("billed", "billed cost"), amount("effective", "effective cost"),
			number("not_arrived", "of the month: events that are known to exist and have not arrived"),
			number("in_quarantine", "of the month: events in open quarantine that may concern it"),
		)},
		{Name: "gaps", Doc: "Telemetry and other events that are missing at the position.", Columns: columns(
			text("kind", "awaited: skipped in a stream; dropped: an agent said that it lost them, in a time that touches the months"),
			text("topic", "topic of the log"), text("source", "stream, or cluster/node"), number("events", "number of events"),
			number("first", "first awaited sequence"), number("last", "last awaited sequence"), at("from", "start of the lost time, if known"),
			at("to", "end of the lost time, if known"), text("reason", "as the agent stated it"),
		)},
		{Name: "quarantine", Doc: "Every record that could not be folded, of all months, and what became of it.", Columns: columns(
			text("id", "topic/partition@offset"), at("appended", "when it was appended"), text("kind", "why it is in quarantine"),
			text("reason", "the reason in full"), text("sha256", "of the record"), text("workspace", "that it may concern; empty: unknown"),
			text("outcome", "open, reappended or discarded"), at("resolved", "when that was decided"), text("resolved_by", "operator who decided it"),
			text("note", "reason for the resolution"),
		)},
		{Name: "exceptions", Doc: "What the division of each month found that somebody must look at.", Columns: columns(
			evidenceMonthColumn(), text("kind", "kind of exception"), text("subject", "account/resource or cluster/node"), text("detail", "what was found"),
			number("gpu_ms", "GPU time in question, in milliseconds"), number("lines", "lines concerned"), evidenceCurrency(),
			amount("billed", "billed cost of the lines"), amount("effective", "effective cost of the lines"), text("owner", "role that can resolve it"),
			at("since", "since when it is known"), text("outcome", "open, or accepted when the month was closed, with the reason"),
			text("now", "open, or resolved since the close"),
		)},
		{Name: "decisions", Doc: "Every signed decision of all time: policies, mapping rules, rates, budgets, contracts, operators, keys, closes. " +
			"After them what was declared about owned hardware, which needs no signature: it has no operator.", Columns: columns(
			at("time", "when it was decided"), at("effective", "when it takes effect"), text("operator", "who signed it"),
			text("public_key", "Ed25519 key of the signature, in hexadecimal"), text("role", "role of the key; empty if it had none"),
			text("type", "type of the event"), text("workspace", "of the event"), text("scope", "key of the event in its topic"), text("id", "what is decided about"),
			text("refused", "why it is void; empty if it is valid"), costs.Column{Name: "event", Kind: costs.KindJSON, Doc: "the decision in full"},
		)},
		{Name: "signers", Doc: "Every registered key, with its role and the time for which it was valid.", Columns: columns(
			text("operator", "name"), text("workspace", "in which they may decide"), text("public_key", "Ed25519, in hexadecimal"), text("role", "role"),
			text("limits", "authority limits"), at("from", "when it was registered"), at("to", "when it ended; empty: it did not"),
			text("registered_by", "operator who registered it"), text("root", "true: decides in all workspaces"),
		)},
		{Name: "closes", Doc: "Who closed each month. duties names duties of one person that should be of several; empty if they are separate.", Columns: columns(
			evidenceMonthColumn(), text("state", "open, proposed or closed"), text("position", "of the rows that were closed"), text("method", "method of the division"),
			text("allocations_sha256", "digest of the closed allocations"), number("allocations", "number of allocations"),
			text("postings_sha256", "digest of what was posted into the month"), text("prepared_by", "operator"), at("prepared", "when"),
			text("approved_by", "operator"), at("approved", "when"), at("closed", "when"), text("duties", "duties that are not separate"),
			text("problem", "why the closed allocations cannot be read; empty if they can"),
		)},
		{Name: "checks", Doc: "The checklist of each close.", Columns: columns(
			evidenceMonthColumn(), text("check", "name"), text("outcome", "met, accepted, or open for a month that nobody proposed to close"),
			text("detail", "what was found"), text("reason", "why it was accepted"),
		)},
		{Name: "postings", Doc: "What changed closed months, by type and cause.", Columns: columns(
			text("books_period", "month that it was posted into"), text("books_state", "open or closed"), text("period", "month that changed"),
			text("posting_type", "late, correction, reversal, reattribution, accrual or method"), text("rounding", "true: only last digits moved"),
			evidenceCurrency(), number("postings", "number of allocations"), amount("billed", "change of the billed cost"),
			amount("effective", "change of the effective cost"), text("causes", "events that can have caused it"),
		)},
		{Name: "checkpoints", Doc: "Every signed statement of what the log has. Signatures after the first are of witnesses.", Columns: columns(
			at("appended", "when it was appended"), text("position", "of the rows that it states"), text("origin", "name of the log"), number("size", "heads of the log"),
			text("root", "root of their tree"), text("signed_by", "names of the keys that signed it"), text("note", "the C2SP signed note"),
		)},
		{Name: "exports", Doc: "Every export of costs that was recorded.", Columns: columns(
			at("appended", "when it was appended"), text("sha256", "of the file"), text("format", "csv, parquet or xlsx"), number("rows", "rows of the file"),
			text("method", "method of the division"), text("position", "of the export"),
		)},
		{Name: "denials", Doc: "Every attempt about the books that was refused and recorded.", Columns: columns(
			at("time", "when"), text("principal", "who, or the fingerprint of a key"), text("action", "what was tried"), text("target", "month"), text("reason", "why it was refused"),
		)},
	}
}
