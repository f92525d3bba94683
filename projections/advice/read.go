package advice

import (
	"fmt"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// Options are what figures are read with.
type Options struct {
	// StaleAfter is how long a deployment may go unseen; 0: an hour, as "models" has it.
	StaleAfter domain.Instant
	// Hours keeps sums of earlier days. nil: they are summed up from their rows.
	Hours *Hours
	// Costs answers questions about months with bills, as "costs" does. nil: the months are divided.
	Costs func(costs.Query) (*costs.Report, error)
	// Budgets returns the budgets of a month, as "costs budget" does. nil: budgets are not read.
	Budgets func(month domain.Interval) (*costs.BudgetReport, error)
}

// Read returns the figures of a tick. It reads rows of the windows, not of the history before them.
func Read(view projections.View, at domain.Instant, as Options) (*advice.Figures, error) {
	r := &reader{view: view, at: at, end: at.HourStart(), as: as, f: &advice.Figures{At: at, Position: view.Position().String()}}
	if r.as.StaleAfter == 0 {
		r.as.StaleAfter = domain.Hour
	}
	if r.end-28*domain.Day <= 0 || r.as.StaleAfter < 0 {
		return nil, fmt.Errorf("figures at %s, stale after %d ns: want a time after January 1970 and a time above 0", at, r.as.StaleAfter)
	}
	if r.as.Costs == nil {
		r.as.Costs = divided(view)
	}
	var err error
	if r.authority, err = registry.NewAuthority(view); err != nil {
		return nil, err
	}
	if r.fleet, err = inventory.ReadFleet(view); err != nil {
		return nil, err
	}
	for _, read := range []func() error{r.parts, r.use, r.weeks, r.deployments, r.serving, r.costs, r.limits, r.failed, r.owning, r.spot, r.gaps} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	return r.f, nil
}

// reader reads figures.
type reader struct {
	view      projections.View
	at, end   domain.Instant // the tick; the last whole hour before it
	as        Options
	authority *registry.Authority
	fleet     *inventory.Fleet
	f         *advice.Figures
	declared  map[deployed]*inventory.ModelEntry
	today     map[hourOf]*sum // of the day that ends at end
	months    map[model]*[weeks * weekHours]sum
	billed    domain.Interval // the last month that is divided
}

type deployed struct{ cluster, deployment string }

// last returns a window that ends at the last whole hour.
func (r *reader) last(length domain.Instant) domain.Interval {
	return domain.Interval{From: r.end - length, To: r.end}
}

// owner returns the workspace that owns a cluster, "" if it is not registered.
func (r *reader) owner(cluster string) string {
	_, owner := r.fleet.Cluster(cluster, r.at)
	return owner
}

// compareAll compares pairs of names, until two differ.
func compareAll(pairs ...string) int {
	for i := 0; i < len(pairs); i += 2 {
		if c := strings.Compare(pairs[i], pairs[i+1]); c != 0 {
			return c
		}
	}
	return 0
}
