package costs

import (
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
)

// CostHours exposes the usage that attribution gets from the fleet.
func CostHours(view projections.View, spans []domain.Interval, cuts attribution.Cuts, yield func(*attribution.NodeHour) error) ([]attribution.Node, error) {
	c, err := readCostFleet(view, domain.Interval{From: spans[0].From, To: spans[len(spans)-1].To})
	if err != nil {
		return nil, err
	}
	return c.nodes, c.usage(spans, cuts, yield)
}

// MonthTerms exposes the rules that a month is divided by.
func MonthTerms(view projections.View, month domain.Interval) ([]AppliedPolicy, []attribution.Commitment, []attribution.Invoice, []attribution.Exception, error) {
	l, err := readLedger(view, month)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	err = l.lines(view, func(line *attribution.Line) error {
		if line.Corrects != "" {
			l.except("corrects", line.ID, "%s", line.Corrects)
		}
		return nil
	})
	return l.policies, l.commitments, l.invoices, sortExceptions(slices.Concat(l.exceptions, l.unusable)), err
}

// SetBlockRecords changes how many records a block of a canonical form has, and returns what changes it back.
func SetBlockRecords(n int64) (restore func()) {
	was := blockRecords
	blockRecords = n
	return func() { blockRecords = was }
}
