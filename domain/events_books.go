package domain

import "fmt"

// Events of qm.books, keyed by ledger entity: what finance and auditors did.

// ClosePrepared proposes to close a period at a position.
type ClosePrepared struct {
	Entity   string   `json:"entity"`
	Period   Interval `json:"period"`
	Position string   `json:"position"`
	Method   string   `json:"method"` // of attribution
	Digest   []byte   `json:"digest"` // SHA-256 of the canonical form of the divided month
	// Postings is the SHA-256 of what is posted into the period about earlier closed ones; empty if
	// nothing is.
	Postings []byte       `json:"postings,omitempty"`
	Totals   []BooksTotal `json:"totals"` // one for each currency, by currency; without Postings
	Checks   []CloseCheck `json:"checks"` // what was checked, in the order of the checklist
	// Translated are the sums in the currency of the books: first of everything in the one of all entities, then
	// of each entity that keeps its books in one of its own, by entity. Rates are those that translated them. They
	// translate the period from now on. Without a policy for the currency of the books, both are empty.
	Translated []BooksTotal `json:"translated,omitempty"`
	Rates      []BooksRate  `json:"rates,omitempty"`
}

// BooksRate is a rate that translates a period into the currency of the books.
type BooksRate struct {
	Base  string     `json:"base"`  // ISO 4217
	Quote string     `json:"quote"` // a currency of the books
	Rate  Decimal    `json:"rate"`  // what one unit of Base is worth in Quote
	Kind  FXRateKind `json:"kind"`  // average or payment; closing for balances, which no allocation is
	// Commitment names the commitment that the rate is for: that of its payment is for what was paid at once,
	// the average one for what it covers. It is empty for everything else.
	Commitment string `json:"commitment,omitempty"`
	// TermFrom is when the term of the commitment begins that the rate is for: each term is paid at another time.
	TermFrom Instant `json:"term_from,omitempty"`
	Citation string  `json:"citation,omitempty"` // the rates that it follows from, and their sources
}

// BooksTotal is the sum of a period's allocations in one currency.
type BooksTotal struct {
	Currency  string  `json:"currency"`         // ISO 4217
	Entity    string  `json:"entity,omitempty"` // whose allocations they are; empty: all
	Billed    Decimal `json:"billed"`
	Effective Decimal `json:"effective"`
}

// CloseCheck is a point of the checklist of a close.
type CloseCheck struct {
	Check   string       `json:"check"`
	Outcome CheckOutcome `json:"outcome"`
	Detail  string       `json:"detail,omitempty"` // what was found
	Reason  string       `json:"reason,omitempty"` // for which a finding was accepted
}

// CheckOutcome is what came of a check.
type CheckOutcome string

// The outcomes. A close with another one is not proposed.
const (
	CheckMet      CheckOutcome = "met"
	CheckAccepted CheckOutcome = "accepted" // something was found, and the preparer accepts it, with a reason
)

// CloseApproved is the second person's consent to a prepared close.
type CloseApproved struct {
	Entity   string   `json:"entity"`
	Period   Interval `json:"period"`
	Digest   []byte   `json:"digest"`   // as prepared
	Prepared int64    `json:"prepared"` // offset of the ClosePrepared in its partition
}

// BooksClosed says that one of our periods is closed: later changes are posted into the open one.
// It repeats what was prepared. Only the first one of a period counts.
type BooksClosed struct {
	Entity   string   `json:"entity"`
	Period   Interval `json:"period"`
	Position string   `json:"position"`
	Method   string   `json:"method"`
	Digest   []byte   `json:"digest"`
	Postings []byte   `json:"postings,omitempty"`
	Prepared int64    `json:"prepared"` // offset of the ClosePrepared in its partition
}

// ExportMade records that figures were exported.
type ExportMade struct {
	Entity   string `json:"entity"`
	Export   string `json:"export"`
	Format   string `json:"format"` // csv, parquet, xlsx
	Position string `json:"position"`
	Method   string `json:"method"`
	Rows     uint64 `json:"rows"`
	Digest   []byte `json:"digest"`
}

// CheckpointSigned publishes what the log holds, as a C2SP signed note.
type CheckpointSigned struct {
	Entity   string `json:"entity"`
	Position string `json:"position"`
	Note     []byte `json:"note"`
}

// QuarantineResolved says what became of a quarantined record.
type QuarantineResolved struct {
	Entity     string `json:"entity"`
	Topic      Topic  `json:"topic"`
	Partition  uint32 `json:"partition"`
	Offset     int64  `json:"offset"`
	Resolution string `json:"resolution"` // reappended, discarded
	Reason     string `json:"reason"`
}

// StreamConflictObserved says that two different records have one place in a stream: the same
// source, incarnation and sequence. The first counts, the second is in quarantine. Both are in the
// same partition.
type StreamConflictObserved struct {
	Entity      string `json:"entity"`
	Topic       Topic  `json:"topic"`
	Partition   uint32 `json:"partition"`
	First       int64  `json:"first"`  // offset of the record that counts
	Offset      int64  `json:"offset"` // of the record in quarantine
	Source      string `json:"source"`
	Incarnation uint64 `json:"incarnation"`
	Sequence    uint64 `json:"sequence"`
}

// StreamGapResolved says that events of a stream will never arrive. Reports list them as lost and
// no longer wait for them.
type StreamGapResolved struct {
	Entity      string `json:"entity"`
	Topic       Topic  `json:"topic"`
	Partition   uint32 `json:"partition"`
	Source      string `json:"source"`
	Incarnation uint64 `json:"incarnation"`
	From        uint64 `json:"from"` // the first sequence
	To          uint64 `json:"to"`   // the last, included
	Reason      string `json:"reason"`
}

// GenerationSwitched says that readers use another generation of rows from now on, and what its
// rows were then: a replay of the log up to Position gives the same digest.
type GenerationSwitched struct {
	Entity   string `json:"entity"`
	From     string `json:"from"` // the generation that was read before
	To       string `json:"to"`
	Method   string `json:"method"` // of the folds that made To
	Position string `json:"position"`
	Digest   []byte `json:"digest"` // SHA-256 of the rows of To at Position
	Reason   string `json:"reason"`
	// Lost lists records, by partition, that From was folded from and that the log no longer holds.
	Lost []LostRecords `json:"lost"`
}

// LostRecords is the end of a partition that rows were folded from and that the log lost: the
// records from offset Since to before Position. Other records may now be at their offsets.
type LostRecords struct {
	Topic     Topic  `json:"topic"`
	Partition uint32 `json:"partition"`
	Since     int64  `json:"since"`    // the first that is known to be lost; earlier ones may be lost too
	Position  int64  `json:"position"` // of the rows
	End       int64  `json:"end"`      // of the log, when this was found
}

// Removed is a part of what a removal removes. Which fields are set depends on what it is.
type Removed struct {
	Topic     Topic   `json:"topic,omitempty"`     // with Partition: log, quarantine, hours
	Partition uint32  `json:"partition,omitempty"` // of Topic
	From      int64   `json:"from,omitempty"`      // log, quarantine: the first offset
	To        int64   `json:"to,omitempty"`        // the offset after the last
	Month     Instant `json:"month,omitempty"`     // hours: the beginning of their month
	File      string  `json:"file,omitempty"`      // snapshots: the name
	Person    string  `json:"person,omitempty"`    // people: whose name
	Records   uint64  `json:"records"`             // how many records, rows or files
	Digest    []byte  `json:"digest,omitempty"`    // hours: of the part that holds them; snapshots: of the rows
}

// String names it.
func (r *Removed) String() string {
	tp := TopicPartition{Topic: r.Topic, Partition: int(r.Partition)}
	switch {
	case r.File != "":
		return r.File
	case r.Person != "":
		return "the name of " + r.Person
	case r.Month != 0:
		return fmt.Sprintf("%s of %s", r.Month.Time().Format("2006-01"), tp)
	default:
		return fmt.Sprintf("%s@%d to before %d", tp, r.From, r.To)
	}
}

// RemovalStarted says what is about to be removed, and by which rule. It is recorded first, so that
// no removal is unknown whatever happens during it. RecordsRemoved ends it.
type RemovalStarted struct {
	Entity  string    `json:"entity"`
	Removal string    `json:"removal"` // id
	What    Retained  `json:"what"`
	Policy  string    `json:"policy"` // the policy that allows it
	Rule    string    `json:"rule"`   // what that policy says, for example 90 days
	By      string    `json:"by"`     // the command or schedule
	Removed []Removed `json:"removed"`
}

// RecordsRemoved says what a removal removed. That is all that RemovalStarted names, but for what a
// legal hold or the policy in force keeps by then.
type RecordsRemoved struct {
	Entity  string    `json:"entity"`
	Removal string    `json:"removal"`
	What    Retained  `json:"what"`
	Policy  string    `json:"policy"`
	Rule    string    `json:"rule"`
	By      string    `json:"by"`
	Removed []Removed `json:"removed"`
	Holds   []string  `json:"holds,omitempty"` // the legal holds that stopped the rest
}

// AccessDenied records a refused attempt.
type AccessDenied struct {
	Entity    string `json:"entity"`
	Principal string `json:"principal"`
	Action    string `json:"action"`
	Target    string `json:"target"`
	Reason    string `json:"reason"`
}
