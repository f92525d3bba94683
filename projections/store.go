package projections

import (
	"context"
	"errors"
	"iter"

	"quartermaster/domain"
)

// Store keeps rows and the position that they are for. It is implemented by [Memory] and by
// adapters/postgres. projections/storetest tests the contract of an implementation.
type Store interface {
	// Begin opens the transaction in which the next records of a partition are folded. At most one
	// transaction per partition is open; Begin waits for it.
	Begin(ctx context.Context, tp domain.TopicPartition) (Tx, error)
	// View calls read with a consistent snapshot, by cluster ([ByCluster]): rows and position match,
	// and neither changes while read runs. Callers MUST NOT change the rows, nor keep them after
	// read returns.
	View(ctx context.Context, read func(View) error) error
}

// Tx is one transaction on the rows of a partition. It ends with Commit or
// Rollback, whichever comes first; Rollback after Commit does nothing.
type Tx interface {
	// Next is the offset of the first record that is not yet folded.
	Next() int64
	// Anchor is the last folded record, as passed to Commit.
	Anchor() domain.Anchor
	// Load returns a working set that holds at least the stored rows under keys. A store that keeps
	// every row in memory may ignore keys. It may be called again, for more keys, until Commit.
	Load(ctx context.Context, keys iter.Seq[Key]) (*WorkingSet, error)
	// Due reports whether the changes since Begin should be committed now. Where each commit writes
	// rows again that the next one changes, it pays to fold more records first; see [Pending].
	Due(Pending) bool
	// Commit stores the changes of the working set, moves the partition's position to next, and
	// sets its anchor to last, the last record before next. It does all of this or nothing. It
	// fails with ErrFenced, storing nothing, if the position is no longer where Begin found it. If
	// nobody can end ctx, which is so when a run ends, the store MUST bound the time by itself.
	Commit(ctx context.Context, next int64, last domain.Anchor) error
	// Rollback ends the transaction and stores nothing.
	Rollback()
}

// Pending is what a transaction has folded.
type Pending struct {
	Records int64
	// Span is the time between the appends of its first and its last record.
	Span domain.Instant
	// AtEnd: no further record was appended when the last ones were read.
	AtEnd bool
	// Silent is how often the log was asked for more since then, and had none.
	Silent int
	// First: the partition was not at its end before, in this run.
	First bool
}

// ErrFenced means that another process folds this partition now. The caller MUST stop folding the
// partition; nothing was stored.
var ErrFenced = errors.New("partition was taken over by another process")

// View is a consistent snapshot of rows.
type View interface {
	// Position is how far into the log the rows go.
	Position() domain.Position
	// Anchors are the last records before that position, of partitions that have any.
	Anchors() map[domain.TopicPartition]domain.Anchor
	// Scan calls yield for each row that the query selects, by key, until yield returns an error,
	// which Scan then returns.
	Scan(q Query, yield func(Key, Row) error) error
	// Get returns one row, nil if there is none.
	Get(k Key) (Row, error)
	// Scopes returns the scopes that a table has rows in, in order.
	Scopes(t Table) ([]string, error)
}

// Query selects rows of a table.
type Query struct {
	Table Table
	Scope string // "" means every scope
	ID    string // "" means every id
	// From and To bound [Key.Hour], half-open, in tables that are split by time. From 0 means no
	// beginning, To 0 no end. In the table of streams, Hour is the incarnation: any 64 bits, as a
	// signed number.
	From, To int64
	// Last selects only the row with the greatest hour of each scope and id.
	Last bool
}

// Holds reports whether a key of the table matches the query.
func (q *Query) Holds(k Key) bool {
	return (q.Scope == "" || k.Scope == q.Scope) && (q.ID == "" || k.ID == q.ID) &&
		(q.From == 0 || k.Hour >= q.From) && (q.To == 0 || k.Hour < q.To)
}
