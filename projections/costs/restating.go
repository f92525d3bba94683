package costs

import (
	"crypto/sha256"
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Restating says whether the ledger already has statements of a bill, before they are appended. It
// reads the lines of an account's month once, when it is asked about the first of them, and holds 24 bytes
// for each that the ledger has. The statements of one import have different names, so it does not remember
// what it was asked. The zero value is ready to use.
type Restating struct {
	lines map[projections.Key]map[nameDigest]statementDigest // by account and month, with no id
}

// Said is a compact form of what an event states about a line or an invoice.
type Said struct {
	of     projections.Key
	digest statementDigest
}

// Digests are the beginnings of SHA-256 digests: of the name of a line or an invoice, and of what is said of it.
type (
	nameDigest      [16]byte
	statementDigest [8]byte
)

// Statement compares an event with the ledger.
type Statement int

// The statements.
const (
	NewLine   Statement = iota // the ledger has nothing with that name
	Changed                    // it has something else with that name
	Unchanged                  // it has the same
)

// Says returns what an event states; it reports false if the event is not a statement of a bill.
func Says(env *domain.Envelope) (Said, bool, error) {
	switch env.Event.(type) {
	case *domain.BillingLineRecorded, *domain.BillingLineCorrected, *domain.InvoiceReceived:
	default:
		return Said{}, false, nil
	}
	scope, err := env.Key()
	if err != nil {
		return Said{}, false, err
	}
	p, _ := projections.Place(env, scope)
	digest, err := digestOf(env.Event)
	return Said{p.Key, digest}, true, err
}

// Beside compares a statement with the rows.
func (r *Restating) Beside(view projections.View, said Said) (Statement, error) {
	month := said.of
	month.ID = ""
	known, ok := r.lines[month]
	if !ok {
		known = map[nameDigest]statementDigest{}
		q := projections.Query{Table: month.Table, Scope: month.Scope}
		if month.Hour != 0 {
			q.From, q.To = month.Hour, month.Hour+1
		}
		if err := view.Scan(q, func(k projections.Key, row projections.Row) (err error) {
			ev := row.(*projections.History).Latest().Event
			if _, removed := ev.(*domain.BillingLineRemoved); !removed {
				known[digestOfName(k.ID)], err = digestOf(ev)
			}
			return err
		}); err != nil {
			return 0, fmt.Errorf("read what the ledger has of %s: %w", month.Scope, err)
		}
		if r.lines == nil {
			r.lines = map[projections.Key]map[nameDigest]statementDigest{}
		}
		r.lines[month] = known
	}
	before, stated := known[digestOfName(said.of.ID)]
	switch {
	case !stated:
		return NewLine, nil
	case before != said.digest:
		return Changed, nil
	}
	return Unchanged, nil
}

func digestOfName(id string) nameDigest {
	sum := sha256.Sum256([]byte(id))
	return nameDigest(sum[:])
}

func digestOf(ev domain.Event) (statementDigest, error) {
	sum, err := projections.EventDigest(ev)
	return statementDigest(sum[:]), err
}
