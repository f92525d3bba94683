package wire

import (
	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Fields of the events of qm.books, keyed by ledger entity: actions of finance and auditors.

func closePrepared(m *mover, p *eventsv1.ClosePrepared, d *domain.ClosePrepared) {
	text(m, "entity", &p.Entity, &d.Entity)
	m.interval("period", &p.Period, &d.Period)
	text(m, "position", &p.Position, &d.Position)
	text(m, "method", &p.Method, &d.Method)
	m.bytes("digest", &p.Digest, &d.Digest)
	m.bytes("postings", &p.Postings, &d.Postings)
	list(m, "totals", &p.Totals, &d.Totals, booksTotal)
	list(m, "checks", &p.Checks, &d.Checks, closeCheck)
	list(m, "translated", &p.Translated, &d.Translated, booksTotal)
	list(m, "rates", &p.Rates, &d.Rates, booksRate)
}

func booksTotal(m *mover, p *eventsv1.BooksTotal, d *domain.BooksTotal) {
	m.decimal("billed", &p.Billed, &d.Billed)
	text(m, "currency", &p.Currency, &d.Currency)
	m.decimal("effective", &p.Effective, &d.Effective)
	text(m, "entity", &p.Entity, &d.Entity)
}

func booksRate(m *mover, p *eventsv1.BooksRate, d *domain.BooksRate) {
	text(m, "base", &p.Base, &d.Base)
	text(m, "quote", &p.Quote, &d.Quote)
	m.decimal("rate", &p.Rate, &d.Rate)
	text(m, "kind", &p.Kind, &d.Kind)
	text(m, "commitment", &p.Commitment, &d.Commitment)
	text(m, "citation", &p.Citation, &d.Citation)
	m.instant("term_from", &p.TermFrom, &d.TermFrom)
}

func closeCheck(m *mover, p *eventsv1.CloseCheck, d *domain.CloseCheck) {
	text(m, "check", &p.Check, &d.Check)
	text(m, "outcome", &p.Outcome, &d.Outcome)
	text(m, "detail", &p.Detail, &d.Detail)
	text(m, "reason", &p.Reason, &d.Reason)
}

func closeApproved(m *mover, p *eventsv1.CloseApproved, d *domain.CloseApproved) {
	text(m, "entity", &p.Entity, &d.Entity)
	m.interval("period", &p.Period, &d.Period)
	m.bytes("digest", &p.Digest, &d.Digest)
	same(m, &p.Prepared, &d.Prepared)
}

func booksClosed(m *mover, p *eventsv1.BooksClosed, d *domain.BooksClosed) {
	text(m, "entity", &p.Entity, &d.Entity)
	m.interval("period", &p.Period, &d.Period)
	text(m, "position", &p.Position, &d.Position)
	text(m, "method", &p.Method, &d.Method)
	m.bytes("digest", &p.Digest, &d.Digest)
	m.bytes("postings", &p.Postings, &d.Postings)
	same(m, &p.Prepared, &d.Prepared)
}

func exportMade(m *mover, p *eventsv1.ExportMade, d *domain.ExportMade) {
	text(m, "entity", &p.Entity, &d.Entity)
	text(m, "export", &p.Export, &d.Export)
	text(m, "format", &p.Format, &d.Format)
	text(m, "position", &p.Position, &d.Position)
	text(m, "method", &p.Method, &d.Method)
	same(m, &p.Rows, &d.Rows)
	m.bytes("digest", &p.Digest, &d.Digest)
}

func checkpointSigned(m *mover, p *eventsv1.CheckpointSigned, d *domain.CheckpointSigned) {
	text(m, "entity", &p.Entity, &d.Entity)
	text(m, "position", &p.Position, &d.Position)
	m.bytes("note", &p.Note, &d.Note)
}

func quarantineResolved(m *mover, p *eventsv1.QuarantineResolved, d *domain.QuarantineResolved) {
	text(m, "entity", &p.Entity, &d.Entity)
	text(m, "topic", &p.Topic, &d.Topic)
	same(m, &p.Partition, &d.Partition)
	same(m, &p.Offset, &d.Offset)
	text(m, "resolution", &p.Resolution, &d.Resolution)
	text(m, "reason", &p.Reason, &d.Reason)
}

func streamConflictObserved(m *mover, p *eventsv1.StreamConflictObserved, d *domain.StreamConflictObserved) {
	text(m, "entity", &p.Entity, &d.Entity)
	text(m, "topic", &p.Topic, &d.Topic)
	same(m, &p.Partition, &d.Partition)
	same(m, &p.First, &d.First)
	same(m, &p.Offset, &d.Offset)
	text(m, "source", &p.Source, &d.Source)
	same(m, &p.Incarnation, &d.Incarnation)
	same(m, &p.Sequence, &d.Sequence)
}

func streamGapResolved(m *mover, p *eventsv1.StreamGapResolved, d *domain.StreamGapResolved) {
	text(m, "entity", &p.Entity, &d.Entity)
	text(m, "topic", &p.Topic, &d.Topic)
	same(m, &p.Partition, &d.Partition)
	text(m, "source", &p.Source, &d.Source)
	same(m, &p.Incarnation, &d.Incarnation)
	same(m, &p.From, &d.From)
	same(m, &p.To, &d.To)
	text(m, "reason", &p.Reason, &d.Reason)
}

func generationSwitched(m *mover, p *eventsv1.GenerationSwitched, d *domain.GenerationSwitched) {
	text(m, "entity", &p.Entity, &d.Entity)
	text(m, "from", &p.From, &d.From)
	text(m, "to", &p.To, &d.To)
	text(m, "method", &p.Method, &d.Method)
	text(m, "position", &p.Position, &d.Position)
	m.bytes("digest", &p.Digest, &d.Digest)
	text(m, "reason", &p.Reason, &d.Reason)
	list(m, "lost", &p.Lost, &d.Lost, lostRecords)
}

func lostRecords(m *mover, p *eventsv1.LostRecords, d *domain.LostRecords) {
	text(m, "topic", &p.Topic, &d.Topic)
	same(m, &p.Partition, &d.Partition)
	same(m, &p.Since, &d.Since)
	same(m, &p.Position, &d.Position)
	same(m, &p.End, &d.End)
}

func removalStarted(m *mover, p *eventsv1.RemovalStarted, d *domain.RemovalStarted) {
	text(m, "entity", &p.Entity, &d.Entity)
	text(m, "removal", &p.Removal, &d.Removal)
	text(m, "what", &p.What, &d.What)
	text(m, "policy", &p.Policy, &d.Policy)
	text(m, "rule", &p.Rule, &d.Rule)
	text(m, "by", &p.By, &d.By)
	list(m, "removed", &p.Removed, &d.Removed, removed)
}

func recordsRemoved(m *mover, p *eventsv1.RecordsRemoved, d *domain.RecordsRemoved) {
	text(m, "entity", &p.Entity, &d.Entity)
	text(m, "removal", &p.Removal, &d.Removal)
	text(m, "what", &p.What, &d.What)
	text(m, "policy", &p.Policy, &d.Policy)
	text(m, "rule", &p.Rule, &d.Rule)
	text(m, "by", &p.By, &d.By)
	list(m, "removed", &p.Removed, &d.Removed, removed)
	m.texts("holds", &p.Holds, &d.Holds)
}

func removed(m *mover, p *eventsv1.Removed, d *domain.Removed) {
	text(m, "topic", &p.Topic, &d.Topic)
	same(m, &p.Partition, &d.Partition)
	same(m, &p.From, &d.From)
	same(m, &p.To, &d.To)
	m.instant("month", &p.Month, &d.Month)
	text(m, "file", &p.File, &d.File)
	same(m, &p.Records, &d.Records)
	m.bytes("digest", &p.Digest, &d.Digest)
	text(m, "person", &p.Person, &d.Person)
}

func accessDenied(m *mover, p *eventsv1.AccessDenied, d *domain.AccessDenied) {
	text(m, "entity", &p.Entity, &d.Entity)
	text(m, "principal", &p.Principal, &d.Principal)
	text(m, "action", &p.Action, &d.Action)
	text(m, "target", &p.Target, &d.Target)
	text(m, "reason", &p.Reason, &d.Reason)
}
