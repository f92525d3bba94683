package projections

import (
	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// CostHours shows the tests what attribution is given of the fleet.
func CostHours(view View, spans []domain.Interval, yield func(*attribution.NodeHour) error) ([]attribution.Node, error) {
	c, err := readCostFleet(view, domain.Interval{From: spans[0].From, To: spans[len(spans)-1].To})
	if err != nil {
		return nil, err
	}
	return c.nodes, c.usage(spans, yield)
}
