package costs

import (
	"cmp"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
)

// books is the input of a billing month's division, at the position of a view.
type books struct {
	*ledger
	*costFleet
	providers map[string]provider // of billing accounts; see [books.providerOf]
	owners    owners
}

// openBooks reads the input of a month's division, except its lines and hours.
func openBooks(view projections.View, month domain.Interval) (*books, error) {
	l, err := readLedger(view, month)
	if err != nil {
		return nil, err
	}
	f, err := readCostFleet(view, l.charged)
	if err != nil {
		return nil, err
	}
	o, err := readOwners(view)
	if err != nil {
		return nil, err
	}
	return &books{l, f, map[string]provider{}, o}, nil
}

// reader returns a copy of the books with its own caches, for concurrent queries.
func (b *books) reader() *books {
	fleet, workloads := *b.costFleet, *b.workloads
	fleet.workloads = &workloads
	return &books{b.ledger, &fleet, map[string]provider{}, b.owners}
}

// divide calls allocation with every part of every line; see [attribution.Run].
func (b *books) divide(allocation func(*attribution.Allocation) error) (*attribution.Result, error) {
	return b.divideSeen(nil, allocation, nil)
}

// divideSeen is divide that also traces an allocation, and calls hour, which may be nil, with the
// hours of usage.
func (b *books) divideSeen(
	trace *attribution.Ref, allocation func(*attribution.Allocation) error, hour func(*attribution.NodeHour),
) (*attribution.Result, error) {
	return attribution.Run(&attribution.Input{
		Lines: func(yield func(*attribution.Line) error) error { return b.lines(b.view, yield) },
		About: b.about(b.view),
		Nodes: b.nodes,
		Also:  b.also,
		Known: func(account, resource string) bool { return b.elsewhere[[2]string{account, resource}] },
		Usage: func(spans []domain.Interval, cuts attribution.Cuts, yield func(*attribution.NodeHour) error) error {
			return b.usage(spans, cuts, func(h *attribution.NodeHour) error {
				if hour != nil {
					hour(h)
				}
				return yield(h)
			})
		},
		Commitments: b.commitments, Rules: b.rules, Invoices: b.invoices, Policy: b.policy, Trace: trace,
	}, allocation)
}

// region returns the region of an allocation's cluster in its hour, else the region of its line as
// the supplier spells it.
func (b *books) region(l *attribution.Allocation) string {
	if c, _ := b.fleet.Cluster(l.Cluster, cmp.Or(l.Hour, l.Line.ChargePeriod.From)); c != nil {
		return c.Region
	}
	return l.Line.Region
}
