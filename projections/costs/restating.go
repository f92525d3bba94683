package costs

import (
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Restating tells of statements of a bill whether the ledger has them already, before
// they are appended. It reads the lines of an account's month once, and holds 16 bytes
// and an id of each. The zero value is ready.
type Restating struct {
	lines map[projections.Key]map[string]lineDigest // by account and month, with no id
}

// Said is what an event states of a line or an invoice, in few bytes.
type Said struct {
	of     projections.Key
	digest lineDigest
}

type lineDigest [16]byte

// Statement is what an event says beside the ledger.
type Statement int

// The statements.
const (
	NewLine   Statement = iota // the ledger has nothing of that name
	Changed                    // it has something else of that name
	Unchanged                  // it has the same
)

// Says returns what an event states, false if it is no statement of a bill.
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

// Beside compares what is stated with the rows, and with what was asked of before.
func (r *Restating) Beside(view projections.View, said Said) (Statement, error) {
	month, id := said.of, said.of.ID
	month.ID = ""
	known, ok := r.lines[month]
	if !ok {
		known = map[string]lineDigest{}
		q := projections.Query{Table: month.Table, Scope: month.Scope}
		if month.Hour != 0 {
			q.From, q.To = month.Hour, month.Hour+1
		}
		if err := view.Scan(q, func(k projections.Key, row projections.Row) (err error) {
			known[k.ID], err = digestOf(row.(*projections.History).Latest().Event)
			return err
		}); err != nil {
			return 0, fmt.Errorf("read what the ledger has of %s: %w", month.Scope, err)
		}
		if r.lines == nil {
			r.lines = map[projections.Key]map[string]lineDigest{}
		}
		r.lines[month] = known
	}
	before, stated := known[id]
	known[id] = said.digest
	switch {
	case !stated:
		return NewLine, nil
	case before != said.digest:
		return Changed, nil
	}
	return Unchanged, nil
}

func digestOf(ev domain.Event) (lineDigest, error) {
	sum, err := projections.EventDigest(ev)
	return lineDigest(sum[:16]), err
}
