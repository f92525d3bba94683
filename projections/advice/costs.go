package advice

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/usage"

	"github.com/shopspring/decimal"
)

// mostAllocations bounds a divided month in memory, in bytes. A larger one is divided for each question.
const mostAllocations = 1 << 30

// divided answers questions about the costs of a view.
func divided(view projections.View) func(costs.Query) (*costs.Report, error) {
	known := map[domain.Interval]*costs.Division{}
	return func(q costs.Query) (*costs.Report, error) {
		d := known[q.Month]
		if d == nil {
			var err error
			if d, err = costs.Divide(view, q.Month, mostAllocations); errors.Is(err, costs.ErrTooLarge) {
				return costs.NewReport(view, q)
			} else if err != nil {
				return nil, err
			}
			known[q.Month] = d
		}
		return d.Report(q)
	}
}

// mostLines is how many lines a month may have to be divided while it still changes. Who used the machines that a line pays for
// changes with every sample, and a tick must not take minutes: a larger month counts once it is sealed, and is divided once.
const mostLines = 20_000

// costs reads what bills say: prices of GPU-hours, costs of providers, the use of commitments, and costs by day. They are
// those of the last two months with bills.
func (r *reader) costs() error {
	months, err := costs.BillingMonths(r.view)
	if errors.Is(err, projections.ErrNoTallies) {
		last := projections.BillingMonth(r.at)
		months, err = []domain.Interval{projections.BillingMonth(last.From - 1), last}, nil
	}
	if err != nil {
		return err
	}
	r.billed = projections.BillingMonth(r.at)
	months = slices.DeleteFunc(months, func(m domain.Interval) bool {
		first := projections.HourOf(m.From)
		changes := projections.HourOf(m.To) > projections.SealedBefore(r.at)
		large := changes && projections.CountRows(r.view, projections.TableBillingLines, first) > mostLines
		if large && m.From <= r.at {
			r.billed = domain.Interval{From: min(r.billed.From, projections.BillingMonth(m.From-1).From), To: min(r.billed.To, m.From)}
		}
		return m.From >= r.at || large
	})
	if len(months) == 0 {
		return r.commitments(nil)
	}
	first := months[len(months)-1].From // of the months without a gap before the last one
	for i := len(months) - 2; i >= 0 && months[i].To == first; i-- {
		first = months[i].From
	}
	months = months[max(0, len(months)-2):]
	// A month that has ended is billed whole.
	whole := months[len(months)-1]
	if whole.To > r.at {
		whole = months[0]
	}
	if err := r.prices(whole, months); err != nil {
		return err
	}
	if err := r.providerCosts(whole); err != nil {
		return err
	}
	if err := r.commitments(months); err != nil {
		return err
	}
	return r.courses(first, months)
}

// groups yields the groups of the costs of months.
func (r *reader) groups(months []domain.Interval, yield func(month domain.Interval, g *costs.Group), by ...costs.Dimension) error {
	for _, m := range months {
		report, err := r.as.Costs(costs.Query{Month: m, By: by})
		if err != nil {
			return err
		}
		for i := range report.Groups {
			yield(m, &report.Groups[i])
		}
	}
	return nil
}

// prices reads what a GPU-hour costs: of a month, else for what that month does not have, of another.
func (r *reader) prices(whole domain.Interval, months []domain.Interval) error {
	of := map[model]advice.Price{}
	amounts := map[model]attribution.Amount{}
	take := func(month domain.Interval, g *costs.Group) {
		k := model{g.Key[costs.ByCluster], g.Key[costs.ByGPUModel]}
		if have, known := of[k]; k.cluster == "" || g.Bought <= 0 || known && (have.Month != month || amounts[k].Cmp(g.Effective) >= 0) {
			return
		}
		amounts[k] = g.Effective
		each := g.Effective.Decimal().Mul(decimal.NewFromInt(projections.MsPerHour)).DivRound(decimal.NewFromInt(g.Bought), 18)
		of[k] = advice.Price{
			Cluster: k.cluster, GPUModel: k.gpu, PerGPUHour: domain.Money{Amount: each, Currency: g.Currency}, Month: month,
		}
	}
	order := append([]domain.Interval{whole}, slices.DeleteFunc(slices.Clone(months), func(m domain.Interval) bool { return m == whole })...)
	if err := r.groups(order, take, costs.ByCluster, costs.ByGPUModel); err != nil {
		return err
	}
	for _, k := range slices.SortedFunc(maps.Keys(of), model.compare) {
		r.f.Prices = append(r.f.Prices, of[k])
	}
	return nil
}

// providerCosts reads what useful GPU time cost. Groups without any, such as idle time, have no cost per useful hour.
func (r *reader) providerCosts(month domain.Interval) error {
	err := r.groups([]domain.Interval{month}, func(_ domain.Interval, g *costs.Group) {
		p := advice.ProviderTime{
			Month: month, Provider: g.Key[costs.ByProvider], GPUModel: g.Key[costs.ByGPUModel], Class: g.Key[costs.ByWorkloadClass],
			Cost: domain.Money{Amount: g.Effective.Decimal(), Currency: g.Currency},
		}
		if p.GPUModel == "" || p.Provider == "" || g.Useful == nil || *g.Useful <= 0 {
			return
		}
		p.Useful, p.Coverage = *g.Useful, usage.Permille(g.Measured, g.Allocated)
		r.f.ProviderCosts = append(r.f.ProviderCosts, p)
	}, costs.ByGPUModel, costs.ByWorkloadClass, costs.ByProvider)
	slices.SortFunc(r.f.ProviderCosts, func(a, b advice.ProviderTime) int {
		return compareAll(a.GPUModel, b.GPUModel, a.Class, b.Class, a.Provider, b.Provider, a.Cost.Currency, b.Cost.Currency)
	})
	return err
}

// dayOf reads the day of a group; 0 if its lines were not spread over days.
func dayOf(g *costs.Group) domain.Instant {
	t, err := time.Parse(time.DateOnly, g.Key[costs.ByDay])
	if err != nil {
		return 0
	}
	return domain.InstantOf(t)
}

// courseDays is the number of days of a course: one, and four weeks before it.
const courseDays = 29

// billed says how far the bills of an issuer go.
type billed struct{ last, before domain.Instant } // the last day with costs, and the one before; 0: none

func (b *billed) add(day domain.Instant) {
	switch {
	case day > b.last:
		b.last, b.before = day, b.last
	case day > b.before && day < b.last:
		b.before = day
	}
}

// complete returns the last day that is billed whole: one that a later day follows, or that ended two days ago.
func (b *billed) complete(end domain.Instant) domain.Instant {
	if b.last+3*domain.Day <= end {
		return b.last
	}
	return b.before
}

type course struct{ workspace, component, region, currency string }

// courses reads costs by day up to the last day that all issuers of a course have billed. first is when bills begin
// without a gap: nothing is known of the days before.
func (r *reader) courses(first domain.Instant, months []domain.Interval) error {
	type daily struct {
		days    map[domain.Instant]attribution.Amount
		issuers map[string]bool
	}
	of, issuers := map[course]*daily{}, map[string]*billed{}
	regions := map[course]map[string]bool{} // of the course over all regions
	err := r.groups(months, func(_ domain.Interval, g *costs.Group) {
		day := dayOf(g)
		if day == 0 || day+domain.Day > r.end {
			return
		}
		issuer := g.Key[costs.ByIssuer]
		if issuers[issuer] == nil {
			issuers[issuer] = &billed{}
		}
		issuers[issuer].add(day)
		k := course{
			g.Key[costs.ByWorkspace], g.Key[costs.ByComponent], cmp.Or(g.Key[costs.ByRegion], costs.Blank(costs.ByRegion)), g.Currency,
		}
		all := k
		all.region = ""
		if regions[all] == nil {
			regions[all] = map[string]bool{}
		}
		regions[all][k.region] = true
		for _, k := range []course{k, all} {
			if of[k] == nil {
				of[k] = &daily{map[domain.Instant]attribution.Amount{}, map[string]bool{}}
			}
			of[k].days[day] = of[k].days[day].Add(g.Effective)
			of[k].issuers[issuer] = true
		}
	}, costs.ByWorkspace, costs.ByComponent, costs.ByRegion, costs.ByIssuer, costs.ByDay)
	if err != nil {
		return err
	}
	var newest domain.Instant
	for _, b := range issuers {
		newest = max(newest, b.last)
	}
	for k, d := range of {
		if k.region == "" && len(regions[k]) == 1 {
			continue // it is the course of that region
		}
		last := domain.Instant(0)
		for issuer := range d.issuers {
			// One that has not billed for a week, while others have, bills no more.
			if b := issuers[issuer]; b.last+7*domain.Day > newest && (last == 0 || b.complete(r.end) < last) {
				last = b.complete(r.end)
			}
		}
		from := last - (courseDays-1)*domain.Day
		if last == 0 || from < first {
			continue
		}
		c := advice.Course{
			Workspace: k.workspace, Component: k.component, Region: k.region, Currency: k.currency,
			Last: domain.Interval{From: last, To: last + domain.Day},
		}
		for day := from; day <= last; day += domain.Day {
			c.Days = append(c.Days, d.days[day].Decimal())
		}
		r.f.Courses = append(r.f.Courses, c)
	}
	slices.SortFunc(r.f.Courses, func(a, b advice.Course) int {
		return compareAll(a.Workspace, b.Workspace, a.Component, b.Component, a.Region, b.Region, a.Currency, b.Currency)
	})
	return nil
}
