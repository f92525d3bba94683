// Package recommend reads what package recommend of the domain makes recommendations from: clusters, deployments, policies,
// what workspaces pay, and the last plan, beside the figures and findings of package advice.
//
// It owns no tables: it reads the tables of the core.
package recommend

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/plan"
	"quartermaster/domain/recommend"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"

	"github.com/shopspring/decimal"
)

// Read returns the estate at the time of figures. monthly answers questions about the costs of a month, as "costs" does.
func Read(
	view projections.View, f *advice.Figures, findings []advice.Finding, monthly func(costs.Query) (*costs.Report, error),
) (*recommend.Estate, error) {
	r := &reader{view: view, e: &recommend.Estate{Figures: f, Findings: findings}, clusters: map[string]*recommend.Cluster{}}
	var err error
	if r.auth, err = registry.NewAuthority(view); err != nil {
		return nil, err
	}
	if r.registry, err = registry.New(view, f.At); err != nil {
		return nil, err
	}
	for _, read := range []func() error{r.places, r.deployments, func() error { return r.paid(monthly) }, r.plan} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	r.e.Parents = map[string]string{}
	for i := range r.registry.Workspaces {
		if w := &r.registry.Workspaces[i]; w.Parent != "" {
			r.e.Parents[w.Workspace] = w.Parent
		}
	}
	for i := range r.registry.Policies {
		p := &r.registry.Policies[i]
		switch p.Kind {
		case domain.PolicyResidency, domain.PolicyCertification, domain.PolicyPlacement, domain.PolicyDedicated, domain.PolicyApart:
			r.e.Policies = append(r.e.Policies, recommend.Policy{Workspace: p.Workspace, PolicySet: p.PolicySet})
		default:
		}
	}
	return r.e, nil
}

type reader struct {
	view     projections.View
	auth     *registry.Authority
	registry *registry.Registry
	e        *recommend.Estate
	clusters map[string]*recommend.Cluster
}

// places reads clusters with what is free in them: what had no holder in the last whole hour.
func (r *reader) places() error {
	at := r.e.Figures.At
	countries, err := inventory.Countries(r.view, at)
	if err != nil {
		return err
	}
	certified, err := registry.Certifications(r.view, r.auth, at)
	if err != nil {
		return err
	}
	for _, c := range r.e.Figures.Clusters {
		x := recommend.Cluster{
			ID: c.ID, Workspace: c.Workspace, Provider: c.Provider, Region: c.Region, Country: countries[c.Region], Free: map[string]int64{},
		}
		for i := range certified {
			if k := &certified[i]; k.Cluster == c.ID || k.Provider != "" && k.Provider == c.Provider {
				x.Certifications = append(x.Certifications, k.Certification)
			}
		}
		slices.Sort(x.Certifications)
		x.Certifications = slices.Compact(x.Certifications)
		r.e.Clusters = append(r.e.Clusters, x)
	}
	for i := range r.e.Clusters {
		r.clusters[r.e.Clusters[i].ID] = &r.e.Clusters[i]
	}
	for i := range r.e.Figures.Weeks {
		w := &r.e.Figures.Weeks[i]
		if c := r.clusters[w.Cluster]; c != nil && len(w.Unused) > 0 && w.GPUModel != "" {
			c.Free[w.GPUModel] = w.Unused[len(w.Unused)-1] / 3_600_000
		}
	}
	for _, region := range r.registry.Regions {
		for _, t := range region.RoundTrips {
			r.e.RoundTrips = append(r.e.RoundTrips, recommend.RoundTrip{A: region.Region, B: t.To, Micros: t.Micros, Measured: t.Measured})
		}
	}
	r.estimate()
	return nil
}

// perZone is the round trip for each time zone between regions, where none is stated: about 5 ms, an estimate (see
// domain/plan).
const perZone = 5_000

// estimate adds round trips between regions whose time zones are known.
func (r *reader) estimate() {
	regions := r.registry.Regions
	for i := range regions {
		for k := i + 1; k < len(regions); k++ {
			a, b := &regions[i], &regions[k]
			stated := slices.ContainsFunc(r.e.RoundTrips, func(t recommend.RoundTrip) bool {
				return t.A == a.Region && t.B == b.Region || t.A == b.Region && t.B == a.Region
			})
			x, okX := domain.ParseUTCOffset(a.UTCOffset)
			y, okY := domain.ParseUTCOffset(b.UTCOffset)
			if stated || !okX || !okY {
				continue
			}
			zones := max(x-y, y-x)
			r.e.RoundTrips = append(r.e.RoundTrips, recommend.RoundTrip{A: a.Region, B: b.Region, Micros: uint64(zones) * perZone / 60})
		}
	}
}

// enough is the activity at which a server is busy enough, in per mille: half of the way from the 45% of the utilization rule
// to all. A deployment needs as many replicas as keep its activity below it.
const enough = 700

// deployments reads what is declared, with the GPUs that each held over the last week, how many replicas it does not need,
// and how many it lacks.
func (r *reader) deployments() error {
	held := map[[2]string]*advice.Held{}
	for i := range r.e.Figures.Held {
		h := &r.e.Figures.Held[i]
		k := [2]string{h.Cluster, h.Deployment}
		if have := held[k]; have == nil || h.GPUMs > have.GPUMs {
			held[k] = h
		}
	}
	lacking := map[[2]string]decimal.Decimal{} // how far the worst figure is above its threshold
	for i := range r.e.Findings {
		f := &r.e.Findings[i]
		if f.Status == advice.Firing && f.Threshold.IsPositive() && (f.Rule == advice.KVCache || f.Rule == advice.QueueWait || f.Rule == advice.FirstToken) {
			k := [2]string{f.Subject.Cluster, f.Subject.Deployment}
			lacking[k] = decimal.Max(lacking[k], f.Value.DivRound(f.Threshold, 6))
		}
	}
	all, err := registry.Statements(r.view, r.auth, projections.TableDeployments, r.e.Figures.At)
	if err != nil {
		return err
	}
	for i := range all {
		d, ok := all[i].Declared.(*domain.DeploymentChanged)
		if !ok || d.Need.Count == 0 && d.Need.Milli == 0 {
			continue
		}
		cluster, _, _ := cut(all[i].Name)
		k := [2]string{cluster, d.Deployment}
		x := recommend.Deployment{
			Workspace: all[i].Workspace, Cluster: cluster, Deployment: d.Deployment, Model: d.Model, Tier: d.Tier, Environment: d.Environment, Class: d.Class,
			Interruptible: d.Interruptible, Dedicated: d.Dedicated, Replicas: int64(d.Replicas), GPUs: int64(d.Need.Count), Models: d.Need.Models,
			Countries: d.Countries, Certifications: d.Certifications, LatencyMicros: d.LatencyMicros, Activity: -1,
		}
		if h := held[k]; h != nil {
			x.GPUModel, x.Activity = h.GPUModel, h.Activity
		} else if len(d.Need.Models) == 1 {
			x.GPUModel = d.Need.Models[0]
		}
		if over := lacking[k]; over.IsPositive() {
			// As many more as bring the worst figure to its threshold, if it falls with the number of replicas.
			x.Lacking = max(1, over.Sub(decimal.NewFromInt(1)).Mul(decimal.NewFromInt(x.Replicas)).Ceil().IntPart())
			x.Lacking = min(x.Lacking, max(1, x.Replicas))
		} else if x.Class == domain.ClassServing && x.Activity >= 0 && x.Activity < enough {
			x.Unneeded = max(0, x.Replicas-max(1, (x.Replicas*x.Activity+enough-1)/enough))
		}
		r.e.Deployments = append(r.e.Deployments, x)
	}
	slices.SortFunc(r.e.Deployments, func(a, b recommend.Deployment) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Deployment, b.Deployment), cmp.Compare(a.Workspace, b.Workspace))
	})
	return nil
}

// cut splits the name of a deployment's statement: cluster/deployment.
func cut(name string) (cluster, deployment string, ok bool) {
	for i := range len(name) {
		if name[i] == '/' {
			return name[:i], name[i+1:], true
		}
	}
	return "", name, false
}

// paid reads what each workspace paid in the last month that prices are of, for a month of 730 hours.
func (r *reader) paid(monthly func(costs.Query) (*costs.Report, error)) error {
	var month domain.Interval
	for i := range r.e.Figures.Prices {
		if m := r.e.Figures.Prices[i].Month; m.From > month.From {
			month = m
		}
	}
	if month.Empty() {
		return nil
	}
	report, err := monthly(costs.Query{Month: projections.BillingMonth(month.From), By: []costs.Dimension{costs.ByWorkspace}})
	if err != nil {
		return fmt.Errorf("read what workspaces pay: %w", err)
	}
	hours := decimal.NewFromInt(int64(report.Month.Length() / domain.Hour))
	for i := range report.Groups {
		g := &report.Groups[i]
		r.e.Paid = append(r.e.Paid, recommend.Paid{Workspace: g.Key[costs.ByWorkspace], Amount: domain.Money{
			Amount: g.Effective.Decimal().Mul(decimal.NewFromInt(domain.MonthHours)).DivRound(hours, 18), Currency: g.Currency,
		}})
	}
	return nil
}

// soon is how far ahead an order must be placed to be proposed.
const soon = 31 * domain.Day

// plan reads the orders of the last plan that must be placed within a month and do not wait.
func (r *reader) plan() error {
	var last *projections.Version
	err := r.view.Scan(projections.Query{Table: projections.TablePlans}, func(_ projections.Key, row projections.Row) error {
		if v := row.(*projections.History).Latest(); last == nil || v.Order.Time > last.Order.Time {
			last = v
		}
		return nil
	})
	if err != nil || last == nil {
		return err
	}
	recorded, ok := last.Event.(*domain.PlanComputed)
	if !ok {
		return nil
	}
	var p plan.Plan
	if err := json.Unmarshal(recorded.Document, &p); err != nil {
		return nil //nolint:nilerr // of another version: there is nothing to propose from it
	}
	x := &recommend.Plan{ID: p.ID, Currency: recorded.Cost.Currency}
	for i := range p.Regions {
		region := &p.Regions[i]
		for k := range region.Purchases {
			b := &region.Purchases[k]
			by := b.OrderBy
			if by.IsZero() {
				by = b.Term.From
			}
			if by < r.e.Figures.At-soon || by > r.e.Figures.At+soon || b.Wait != nil {
				continue
			}
			x.Purchases = append(x.Purchases, domain.Purchase{
				Market: domain.Market{Provider: b.Provider, Region: region.Region}, Offer: b.Offer, Units: uint32(max(0, b.Units)), Start: b.Term.From,
			})
			hours := decimal.NewFromInt(int64(b.Term.Length() / domain.Hour))
			x.Cost = x.Cost.Add(b.Upfront).Add(b.Hourly.Mul(hours))
			x.Text = append(x.Text, fmt.Sprintf("%d × %s of %s in %s from %s", b.Units, b.Offer, b.Provider, region.Region, b.Term.From.Time().Format("2006-01-02")))
		}
	}
	if len(x.Purchases) > 0 {
		r.e.Plan = x
	}
	return nil
}

// FreeNodes returns the healthy machines with the whole GPUs that nobody held when they last reported within a day.
func FreeNodes(view projections.View, at domain.Instant, region string) ([]recommend.FreeNode, error) {
	auth, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	p, err := planning.PlacementsAt(view, auth, at-domain.Day, at, region)
	if err != nil {
		return nil, err
	}
	taken := map[string]int64{} // GPUs by node, of replicas that could be moved
	for i := range p.Assignments {
		taken[p.Assignments[i].At.Node] += int64(len(p.Assignments[i].At.GPUs))
	}
	nodes := make([]recommend.FreeNode, 0, len(p.Nodes))
	for i := range p.Nodes {
		n := &p.Nodes[i]
		free := int64(n.GPUs)
		for _, milli := range n.Held.GPUMilli {
			if milli > 0 {
				free--
			}
		}
		free -= taken[n.ID]
		free = max(0, free)
		nodes = append(nodes, recommend.FreeNode{Cluster: n.Cluster, Node: n.ID, GPUModel: n.Model, Free: free, Held: int64(n.GPUs) - free})
	}
	return nodes, nil
}
