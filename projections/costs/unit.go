package costs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/dimension"
	"quartermaster/projections/registry"
	"quartermaster/projections/usage"
)

// UnitOf is what a unit cost is per.
type UnitOf string

// The units.
const (
	UnitUsefulGPUHour UnitOf = "useful-gpu-hour" // GPU time held, times its measured activity
	UnitMillionTokens UnitOf = "million-tokens"  // prompt and generated tokens of model servers
	UnitRequest       UnitOf = "request"         // requests that model servers answered
	UnitJob           UnitOf = "job"             // jobs that ended in the month and succeeded
)

// Units returns all units.
func Units() []UnitOf { return []UnitOf{UnitUsefulGPUHour, UnitMillionTokens, UnitRequest, UnitJob} }

// UnitDimensions returns the dimensions of unit costs.
func UnitDimensions() []Dimension { return []Dimension{ByWorkspace, ByModel, ByCluster, ByDeployment} }

// UnitQuery is a query for unit costs.
type UnitQuery struct {
	Month domain.Interval
	Per   UnitOf
	By    []Dimension // of UnitDimensions
}

// UnitReport is what a unit of work cost in a month.
//
// The cost is the effective cost of deployments: what they are charged for the GPU time that they held, and what
// follows it, such as tax. Idle time has no deployment and is not in it. Tokens, requests and jobs are those of the same
// deployments, and deployments without any are left out: NotCounted has their cost. For useful GPU-hours all deployments
// count. Jobs of no deployment are set against the GPU time that their workspace held in the cluster without one.
type UnitReport struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Per      UnitOf          `json:"per"`
	Methods  Methods         `json:"methods"`
	By       []Dimension     `json:"by"`
	Groups   []UnitGroup     `json:"groups"` // by their keys, in the order of By, then currency
	Totals   []UnitCost      `json:"totals"` // one for each currency
	// NotCounted is the cost of deployments that reported no such units, by currency.
	NotCounted []NotCounted `json:"not_counted"`
	// Providers compares the cost of a GPU-hour that was bought with the fleet's mean of the same GPU model.
	Providers []ProviderCost `json:"providers"`
	Generated bool           `json:"generated"`
	Books     *ClosedBooks   `json:"books,omitempty"`
	registry.Completeness
}

// UnitGroup is the unit cost of a group.
type UnitGroup struct {
	Key map[Dimension]string `json:"key"`
	UnitCost
}

// UnitCost is a cost, and what it is per. Ratios are computed from the sums of the group.
type UnitCost struct {
	Currency  string             `json:"currency"`
	Effective attribution.Amount `json:"effective"`
	// Covered is the part of Effective in hours for which units were counted.
	Covered   attribution.Amount `json:"effective_covered"`
	Allocated int64              `json:"allocated_gpu_ms"`
	// Known is the part of Allocated with measured activity, or in hours for which units were counted.
	Known int64 `json:"covered_gpu_ms"`
	// Coverage is Known of Allocated in per mille, rounded down; null if nothing was held, and for jobs.
	Coverage *int64 `json:"coverage_permille"`

	Useful          int64  `json:"useful_gpu_ms"`
	PromptTokens    uint64 `json:"prompt_tokens"`
	GeneratedTokens uint64 `json:"generated_tokens"`
	Requests        uint64 `json:"requests_ok"`
	RequestsFailed  uint64 `json:"requests_failed"`
	Jobs            uint64 `json:"jobs_succeeded"`
	JobsFailed      uint64 `json:"jobs_not_succeeded"`

	// Upper is Effective per unit, as if nothing was done in time without telemetry. Lower is, for useful GPU-hours,
	// Effective per hour if that time was useful from end to end; for tokens and requests, Covered per unit: as if that
	// time cost as much per unit as the rest. Both are rounded half away from zero to nine places, and null, with a
	// reason, if nothing was counted. With full coverage they are equal.
	Upper  *domain.Decimal `json:"per_unit"`
	Lower  *domain.Decimal `json:"per_unit_lower_bound"`
	Absent Absent          `json:"per_unit_absent,omitempty"`
}

// NotCounted is the cost of deployments for which no units were counted.
type NotCounted struct {
	Currency    string             `json:"currency"`
	Effective   attribution.Amount `json:"effective"`
	Deployments int                `json:"deployments"`
}

// ProviderCost is what a bought GPU-hour of a model cost at a provider, beside the fleet's mean for that model.
type ProviderCost struct {
	GPUModel  string             `json:"gpu_model"`
	Provider  string             `json:"provider"`
	Currency  string             `json:"currency"`
	Effective attribution.Amount `json:"effective"`
	Bought    int64              `json:"bought_gpu_ms"`
	PerHour   *domain.Decimal    `json:"effective_per_bought_gpu_hour"`
	// Fleet is the mean of all providers of the model, and Difference is PerHour / Fleet - 1, rounded to six places;
	// null with one provider.
	Fleet      *domain.Decimal `json:"fleet_per_bought_gpu_hour"`
	Difference *domain.Decimal `json:"difference"`
}

// NoneCounted is the reason of a unit cost that is null.
const NoneCounted Absent = "none counted"

// deployed is a deployment, or what a workspace holds in a cluster without one.
type deployed struct{ cluster, name, holder string }

type deployedIn struct {
	deployed
	workspace, model, currency string
}

type providerModel struct{ model, provider, currency string }

// work is what a deployment did.
type work struct {
	served     *projections.Served
	models     map[string]bool // of its allocations
	serves     map[string]bool // models, as its model servers name them
	jobs, lost uint64
	workspaces map[string]bool
}

// model is a model of the deployment's allocations; where it declares none, that of its model servers.
func (w *work) model(declared string) string {
	if declared == dimension.None || declared == dimension.Unknown {
		return only(w.serves, declared)
	}
	return declared
}

// UnitSums adds up a month for unit costs. Its size grows with deployments and their hours of telemetry.
type UnitSums struct {
	view      projections.View
	query     *UnitQuery
	spans     map[deployed]domain.Interval // billing periods of the time that is charged
	work      map[deployed]*work
	hours     map[deployed]map[int64]bool // with counted units
	costs     map[deployedIn]*UnitCost
	providers map[providerModel]*ProviderCost
}

// beyondMonth is how far the billing period of a month may begin before it or end after it in UTC: a week, and a day for
// the time zone. Work further away is not counted.
const beyondMonth = 8 * domain.Day

// NewUnitSums prepares to add up a month, at a position whose rows MUST NOT change before the report was made.
func NewUnitSums(view projections.View, q UnitQuery) (*UnitSums, error) {
	if !slices.Contains(Units(), q.Per) {
		return nil, fmt.Errorf("cost per %q: want one of %v", q.Per, Units())
	}
	for i, d := range q.By {
		if !slices.Contains(UnitDimensions(), d) || slices.Contains(q.By[:i], d) {
			return nil, fmt.Errorf("unit costs by %q: want some of %v, each once", d, UnitDimensions())
		}
	}
	u := &UnitSums{
		view: view, query: &q, spans: map[deployed]domain.Interval{}, work: map[deployed]*work{},
		hours: map[deployed]map[int64]bool{}, costs: map[deployedIn]*UnitCost{}, providers: map[providerModel]*ProviderCost{},
	}
	return u, u.eachServed(func(d deployed, _ string, hour int64) *projections.Served {
		if u.hours[d] == nil {
			u.hours[d] = map[int64]bool{}
		}
		u.hours[d][hour] = true
		return nil
	})
}

// counts reports whether the work of a deployment at a time counts: in the billing periods of the time that is charged
// to it, so that work and cost are of the same hours whatever time zone a supplier bills in.
func (u *UnitSums) counts(d deployed, at domain.Instant) bool {
	span := u.spans[d]
	if span.Empty() {
		span = u.query.Month
	}
	return span.From <= at && at < span.To
}

func (u *UnitSums) of(d deployed) *work {
	w := u.work[d]
	if w == nil {
		w = &work{
			served: projections.NewServed(), models: map[string]bool{}, serves: map[string]bool{}, workspaces: map[string]bool{},
		}
		u.work[d] = w
	}
	return w
}

// readServing adds up what deployments served in the time that counts.
func (u *UnitSums) readServing() error {
	return u.eachServed(func(d deployed, model string, hour int64) *projections.Served {
		if !u.counts(d, domain.Instant(hour)*domain.Hour) {
			return nil
		}
		w := u.of(d)
		w.serves[model] = true
		return w.served
	})
}

// eachServed calls to with every hour of telemetry of a deployment and model, and adds the hour to what it returns, if
// that is not nil.
func (u *UnitSums) eachServed(to func(d deployed, model string, hour int64) *projections.Served) error {
	names := map[deployed]deployed{} // copies, because rows may be parts of large buffers
	name := func(cluster, deployment string) deployed {
		of := deployed{cluster: cluster, name: deployment}
		d, ok := names[of]
		if !ok {
			d = deployed{cluster: strings.Clone(cluster), name: strings.Clone(deployment)}
			names[d] = d
		}
		return d
	}
	span := projections.Query{
		Table: projections.TableServers,
		From:  projections.HourOf(u.query.Month.From - beyondMonth), To: projections.HourOf(u.query.Month.To + beyondMonth),
	}
	err := u.view.Scan(span, func(k projections.Key, row projections.Row) error {
		if h := row.(*projections.ServerHour); h.Model != "" {
			if s := to(name(k.Scope, h.Deployment), h.Model, k.Hour); s != nil {
				s.Server(h, projections.AllQuarters)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read server hours: %w", err)
	}
	span.Table = projections.TableServing
	err = u.view.Scan(span, func(k projections.Key, row projections.Row) error {
		for i := range row.(*projections.ServingHour).Sources {
			of := &row.(*projections.ServingHour).Sources[i]
			if s := to(name(k.Scope, strings.TrimSuffix(k.ID, "|"+of.Model+"|"+of.Tier)), of.Model, k.Hour); s != nil {
				s.Sampled(of, projections.AllQuarters)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read serving hours: %w", err)
	}
	return nil
}

// readJobs counts jobs for the deployment that they name, else for one of their own name that is charged, else for what
// their workspace holds without one.
func (u *UnitSums) readJobs() error {
	err := u.view.Scan(projections.Query{Table: projections.TableJobs}, func(k projections.Key, row projections.Row) error {
		deployment, workspace := "", ""
		var ended *domain.JobFinished
		var at domain.Instant
		for _, v := range row.(*projections.History).Versions {
			workspace = cmp.Or(v.Workspace, workspace)
			switch ev := v.Event.(type) {
			case *domain.JobQueued:
				deployment = ev.Deployment
			case *domain.JobFinished:
				ended, at = ev, v.Order.Effective // the last event says how it ended
			}
		}
		d := deployed{cluster: k.Scope, name: cmp.Or(deployment, k.ID)}
		if deployment == "" && u.work[d] == nil {
			d.name, d.holder = "", workspace
		}
		w := u.work[d]
		if ended == nil || w == nil || !u.counts(d, at) { // of a deployment that is charged nothing, there is no cost
			return nil
		}
		if ended.Outcome == domain.JobSucceeded {
			w.jobs++
		} else {
			w.lost++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read jobs: %w", err)
	}
	return nil
}

func (u *UnitSums) add(p *part) error {
	l := p.allocation
	if l.BoughtMs != 0 || l.Hardware.GPUModel != "" { // all that the hardware costs, discounts too
		k := providerModel{l.Hardware.GPUModel, p.at().provider, l.Line.Currency}
		of := u.providers[k]
		if of == nil {
			of = &ProviderCost{GPUModel: k.model, Provider: k.provider, Currency: k.currency}
			u.providers[k] = of
		}
		of.Effective, of.Bought = of.Effective.Add(l.Effective), of.Bought+l.BoughtMs
	}
	d := deployed{cluster: l.Cluster, name: l.Deployment}
	if d.name == "" {
		if u.query.Per != UnitJob || l.Component != attribution.Allocated {
			return nil
		}
		d.holder = l.Workspace
	}
	k := deployedIn{d, l.Workspace, p.model(), l.Line.Currency}
	c := u.costs[k]
	if c == nil {
		c = &UnitCost{Currency: k.currency}
		u.costs[k] = c
	}
	u.of(d).workspaces[l.Workspace] = true
	u.of(d).models[k.model] = true
	if l.AllocatedMs != 0 {
		u.spans[d] = hull(u.spans[d], l.Line.BillingPeriod)
	}
	c.Effective, c.Allocated, c.Useful = c.Effective.Add(l.Effective), c.Allocated+l.AllocatedMs, c.Useful+l.UsefulMs
	counted := l.Hour == 0 || u.hours[d][projections.HourOf(l.Hour)]
	switch {
	case u.query.Per == UnitUsefulGPUHour:
		c.Covered, c.Known = c.Covered.Add(l.Effective), c.Known+l.MeasuredMs
	case counted:
		c.Covered, c.Known = c.Covered.Add(l.Effective), c.Known+l.AllocatedMs
	}
	return nil
}

// Report answers the query for a divided month.
func (u *UnitSums) Report(d *Division) (*UnitReport, error) {
	if err := d.each(u.add); err != nil {
		return nil, err
	}
	return u.report(d)
}

// Divide answers the query for a month that is divided for it.
func (u *UnitSums) Divide(view projections.View) (*UnitReport, error) {
	d, err := divide(view, u.query.Month, u.add)
	if err == nil {
		d, err = d.At(view)
	}
	if err != nil {
		return nil, err
	}
	return u.report(d)
}

// only returns the only name of a set, [dimension.Mixed] for several and none for none.
func only(names map[string]bool, none string) string {
	for name := range names {
		if len(names) > 1 {
			return dimension.Mixed
		}
		return name
	}
	return none
}

func (u *UnitSums) report(d *Division) (*UnitReport, error) {
	if err := u.readServing(); err != nil {
		return nil, err
	}
	if err := u.readJobs(); err != nil {
		return nil, err
	}
	r := &UnitReport{
		Position: d.position, Month: d.Month, Per: u.query.Per, Methods: d.Methods, By: append([]Dimension{}, u.query.By...),
		Groups: []UnitGroup{}, Totals: []UnitCost{}, NotCounted: []NotCounted{}, Providers: u.benchmark(),
		Generated: d.Generated, Books: d.closed, Completeness: d.completeness,
	}
	if d.scoped { // what was bought is for the account's owner
		r.Providers = []ProviderCost{}
	}
	// What a deployment did is counted once for each currency of its cost.
	joined := map[deployedIn]*UnitCost{}
	for k, c := range u.costs {
		w := u.work[k.deployed]
		if u.query.Per != UnitUsefulGPUHour { // GPU time has its workspace and model, and other work does not
			k.workspace, k.model = only(w.workspaces, ""), only(w.models, "")
		}
		k.model = w.model(k.model)
		if joined[k] == nil {
			joined[k] = &UnitCost{Currency: k.currency}
			if (len(w.workspaces) == 1 || k.workspace == dimension.Mixed) && (len(w.models) == 1 || k.model == dimension.Mixed) {
				joined[k].did(w)
			}
		}
		joined[k].cost(c)
	}
	groups, keys := map[string]*UnitGroup{}, []string{}
	totals, left := map[string]*UnitCost{}, map[string]*NotCounted{}
	for k, c := range joined {
		if c.units(u.query.Per).IsZero() && u.query.Per != UnitUsefulGPUHour {
			if k.holder != "" {
				continue // it is of no deployment and of no job
			}
			if left[k.currency] == nil {
				left[k.currency] = &NotCounted{Currency: k.currency}
			}
			left[k.currency].Effective = left[k.currency].Effective.Add(c.Effective)
			left[k.currency].Deployments++
			continue
		}
		key := map[Dimension]string{}
		id := ""
		for _, by := range u.query.By {
			key[by] = map[Dimension]string{
				ByWorkspace: k.workspace, ByCluster: k.cluster, ByDeployment: k.name, ByModel: k.model,
			}[by]
			id += key[by] + "\x00"
		}
		id += k.currency
		if groups[id] == nil {
			groups[id] = &UnitGroup{Key: key, UnitCost: UnitCost{Currency: k.currency}}
			keys = append(keys, id)
		}
		if totals[k.currency] == nil {
			totals[k.currency] = &UnitCost{Currency: k.currency}
		}
		for _, to := range []*UnitCost{&groups[id].UnitCost, totals[k.currency]} {
			to.cost(c)
			to.counts(c)
		}
	}
	slices.Sort(keys)
	for _, id := range keys {
		groups[id].finish(u.query.Per)
		r.Groups = append(r.Groups, *groups[id])
	}
	for _, currency := range slices.Sorted(maps.Keys(totals)) {
		totals[currency].finish(u.query.Per)
		r.Totals = append(r.Totals, *totals[currency])
	}
	for _, currency := range slices.Sorted(maps.Keys(left)) {
		r.NotCounted = append(r.NotCounted, *left[currency])
	}
	return r, nil
}

func (c *UnitCost) did(w *work) {
	s := w.served.Sums()
	c.PromptTokens, c.GeneratedTokens = s.InputTokens, s.GeneratedTokens
	c.Requests, c.RequestsFailed, c.Jobs, c.JobsFailed = s.RequestsOK, s.RequestsFailed, w.jobs, w.lost
}

func (c *UnitCost) cost(o *UnitCost) {
	c.Effective, c.Covered = c.Effective.Add(o.Effective), c.Covered.Add(o.Covered)
	c.Allocated, c.Known, c.Useful = c.Allocated+o.Allocated, c.Known+o.Known, c.Useful+o.Useful
}

func (c *UnitCost) counts(o *UnitCost) {
	c.PromptTokens, c.GeneratedTokens = c.PromptTokens+o.PromptTokens, c.GeneratedTokens+o.GeneratedTokens
	c.Requests, c.RequestsFailed = c.Requests+o.Requests, c.RequestsFailed+o.RequestsFailed
	c.Jobs, c.JobsFailed = c.Jobs+o.Jobs, c.JobsFailed+o.JobsFailed
}

// units returns the number of units: GPU-milliseconds, tokens, requests or jobs.
func (c *UnitCost) units(per UnitOf) domain.Decimal {
	switch per {
	case UnitUsefulGPUHour:
		return decimal.NewFromInt(c.Useful)
	case UnitMillionTokens:
		return decimal.NewFromUint64(c.PromptTokens).Add(decimal.NewFromUint64(c.GeneratedTokens))
	case UnitRequest:
		return decimal.NewFromUint64(c.Requests)
	}
	return decimal.NewFromUint64(c.Jobs)
}

// msPerHour is the number of GPU-milliseconds of a GPU-hour.
const msPerHour = 3_600_000

// unitDigits are the digits after the point of a unit cost.
const unitDigits = 9

// finish computes ratios from the sums.
func (c *UnitCost) finish(per UnitOf) {
	if c.Allocated > 0 && per != UnitJob {
		coverage := usage.Permille(c.Known, c.Allocated)
		c.Coverage = &coverage
	}
	n := c.units(per)
	if n.Sign() <= 0 {
		c.Absent = NoneCounted
		if per == UnitUsefulGPUHour && c.Known > 0 {
			c.Absent = NoneUseful
		}
		return
	}
	size := map[UnitOf]int64{UnitUsefulGPUHour: msPerHour, UnitMillionTokens: 1_000_000}[per]
	rate := func(amount attribution.Amount, n domain.Decimal) *domain.Decimal {
		r := amount.Decimal().Mul(decimal.NewFromInt(max(1, size))).DivRound(n, unitDigits)
		return &r
	}
	c.Upper = rate(c.Effective, n)
	switch per {
	case UnitUsefulGPUHour:
		c.Lower = rate(c.Effective, n.Add(decimal.NewFromInt(max(0, c.Allocated-c.Known))))
	case UnitJob:
		c.Lower = c.Upper // a job is counted when it ends
	default:
		c.Lower = rate(c.Covered, n)
	}
}

// benchmark compares providers of each GPU model.
func (u *UnitSums) benchmark() []ProviderCost {
	type kind struct{ model, currency string }
	fleet, several := map[kind]*ProviderCost{}, map[kind]int{}
	maps.DeleteFunc(u.providers, func(_ providerModel, of *ProviderCost) bool { return of.Bought == 0 })
	for k, of := range u.providers {
		all := fleet[kind{k.model, k.currency}]
		if all == nil {
			all = &ProviderCost{}
			fleet[kind{k.model, k.currency}] = all
		}
		all.Effective, all.Bought = all.Effective.Add(of.Effective), all.Bought+of.Bought
		several[kind{k.model, k.currency}]++
	}
	out := []ProviderCost{}
	for k, of := range u.providers {
		if of.GPUModel = cmp.Or(k.model, dimension.Unknown); of.Bought > 0 {
			per := of.Effective.PerHour(of.Bought)
			of.PerHour = &per
		}
		all := fleet[kind{k.model, k.currency}]
		alike := k.model != "" && k.model != attribution.Mixed && several[kind{k.model, k.currency}] > 1
		if alike && all.Bought > 0 && of.PerHour != nil {
			mean := all.Effective.PerHour(all.Bought)
			if of.Fleet = &mean; mean.Sign() > 0 {
				difference := of.PerHour.DivRound(mean, 6).Sub(decimal.NewFromInt(1))
				of.Difference = &difference
			}
		}
		out = append(out, *of)
	}
	slices.SortFunc(out, func(a, b ProviderCost) int {
		return cmp.Or(strings.Compare(a.GPUModel, b.GPUModel), strings.Compare(a.Currency, b.Currency), strings.Compare(a.Provider, b.Provider))
	})
	return out
}
