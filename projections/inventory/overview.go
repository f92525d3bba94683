package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Overview says what there is to ask about: clusters, workspaces and the other names that questions filter by, and how
// far each kind of data reaches. It is a function of the position alone.
type Overview struct {
	Position string `json:"position"`
	// Until is the end of the newest sample of a GPU, empty if there is none. A page about the newest data ends here.
	Until domain.Instant `json:"until,omitempty"`
	// At is the time that the counts are about: the newest of Until and the last statement about clusters and nodes.
	At         domain.Instant      `json:"at,omitempty"`
	Reaches    Reaches             `json:"reaches"`
	Clusters   []OverviewCluster   `json:"clusters"`   // by id
	Workspaces []OverviewWorkspace `json:"workspaces"` // registered or owners of clusters, by id
	Regions    []OverviewRegion    `json:"regions"`    // defined or the region of a cluster, by id
	Providers  []string            `json:"providers"`  // of clusters
	GPUModels  []ModelCount        `json:"gpu_models"` // of nodes in service, by model
	registry.Completeness
}

// Reaches has the newest time of each kind of data, empty if there is none. Billing, prices and decisions are those of
// the whole estate, and empty for whoever sees only a part of it.
type Reaches struct {
	Telemetry domain.Instant `json:"telemetry,omitempty"` // end of the newest sample of a GPU
	Demand    domain.Instant `json:"demand,omitempty"`    // end of the newest observation
	Billing   domain.Instant `json:"billing,omitempty"`   // last event of qm.billing
	Prices    domain.Instant `json:"prices,omitempty"`    // last event of qm.market
	Decisions domain.Instant `json:"decisions,omitempty"` // last event of qm.workspaces, qm.procurement and qm.books
}

// OverviewCluster is a cluster with its nodes in service.
type OverviewCluster struct {
	Cluster       string               `json:"cluster"`
	Registered    bool                 `json:"registered"` // false: its nodes are known, but it was not declared
	Name          string               `json:"name,omitempty"`
	Workspace     string               `json:"workspace"` // owner; "" if that is not seen
	Provider      string               `json:"provider"`
	ProviderClass domain.ProviderClass `json:"provider_class"`
	Region        string               `json:"region"`
	Nodes         int                  `json:"nodes"`
	GPUs          []ModelCount         `json:"gpus"` // by model
}

// OverviewWorkspace is a workspace.
type OverviewWorkspace struct {
	Workspace string `json:"workspace"`
	Name      string `json:"name,omitempty"`
	Parent    string `json:"parent,omitempty"` // empty also if the parent is not seen
}

// OverviewRegion is a region.
type OverviewRegion struct {
	Region  string `json:"region"`
	Country string `json:"country,omitempty"` // if it was defined
}

// ModelCount counts GPUs of a model. A GPU that two nodes of a cluster declare counts once.
type ModelCount struct {
	Model string `json:"model"` // as the catalogue spells it, else as declared
	GPUs  int    `json:"gpus"`
}

// Lacks returns what the rows of clusters, telemetry, hardware and deployments lack.
func Lacks(view projections.View) (registry.Completeness, error) {
	return registry.CompletenessOf(view, "", "", domain.Interval{},
		domain.TopicFleet, domain.TopicTelemetry, domain.TopicHardware, domain.TopicDeployments)
}

// NewOverview returns the overview. It reads declarations, streams, and of usage only the newest hour, so its cost does not
// grow with history.
func NewOverview(view projections.View) (*Overview, error) {
	o := &Overview{
		Position: view.Position().String(), Clusters: []OverviewCluster{}, Workspaces: []OverviewWorkspace{},
		Regions: []OverviewRegion{}, Providers: []string{}, GPUModels: []ModelCount{},
	}
	var err error
	if o.Completeness, err = Lacks(view); err != nil {
		return nil, err
	}
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	f, err := clustersOf(view, a)
	if err != nil {
		return nil, err
	}
	if err := o.reach(view); err != nil {
		return nil, err
	}
	o.At = o.Until
	for _, h := range f.Clusters {
		o.stated(h)
	}
	models := map[string]string{}
	if err := view.Scan(projections.Query{Table: projections.TableNodes}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		f.Node(k.Scope, k.ID).Serve(a, k, h, models)
		o.stated(h)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableNodes, err)
	}
	f.Settle()
	if err := o.clusters(view, f); err != nil {
		return nil, err
	}
	if err := o.workspaces(view, a); err != nil {
		return nil, err
	}
	return o, o.regions(view)
}

// stated moves At to the last statement of a history. A statement about a later time was made before it.
func (o *Overview) stated(h *projections.History) {
	for i := range h.Versions {
		o.At = max(o.At, h.Versions[i].Order.Time)
	}
}

// clusters adds the clusters with their nodes in service, and what they have in common.
func (o *Overview) clusters(view projections.View, f *Fleet) error {
	named := map[string]bool{}
	for cluster := range f.Clusters {
		named[cluster] = true
	}
	for _, t := range []projections.Table{projections.TableNodes, projections.TableNodeGPUs} {
		scopes, err := view.Scopes(t)
		if err != nil {
			return fmt.Errorf("read the clusters of %s: %w", t, err)
		}
		for _, cluster := range scopes {
			named[cluster] = true
		}
	}
	nodes, counts := map[string]int{}, map[string]map[string]int{}
	for name, n := range f.Index {
		s := n.At(o.At)
		if s == nil {
			continue
		}
		nodes[name.Cluster]++
		of := counts[name.Cluster]
		if of == nil {
			of = map[string]int{}
			counts[name.Cluster] = of
		}
		for i := range s.GPUs {
			// Settle gives a GPU that two nodes declare to one of them.
			if !slices.ContainsFunc(s.GPUs[i].elsewhere, func(t domain.Interval) bool { return t.From <= o.At && o.At < t.To }) {
				of[s.GPUs[i].Model]++
			}
		}
	}
	all, providers := map[string]int{}, map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(named)) {
		e := OverviewCluster{Cluster: id, Nodes: nodes[id], GPUs: modelCounts(counts[id])}
		if c, owner := f.Cluster(id, o.At); c != nil {
			e.Registered, e.Name, e.Workspace = true, c.Name, owner
			e.Provider, e.ProviderClass, e.Region = c.Provider, c.ProviderClass, c.Region
			providers[c.Provider] = true
		}
		for model, n := range counts[id] {
			all[model] += n
		}
		o.Clusters = append(o.Clusters, e)
	}
	delete(providers, "")
	o.Providers, o.GPUModels = append(o.Providers, slices.Sorted(maps.Keys(providers))...), modelCounts(all)
	return nil
}

func modelCounts(of map[string]int) []ModelCount {
	out := make([]ModelCount, 0, len(of))
	for _, model := range slices.Sorted(maps.Keys(of)) {
		out = append(out, ModelCount{model, of[model]})
	}
	return out
}

func (o *Overview) workspaces(view projections.View, a *registry.Authority) error {
	known := map[string]OverviewWorkspace{}
	for i := range o.Clusters {
		if owner := o.Clusters[i].Workspace; owner != "" {
			known[owner] = OverviewWorkspace{Workspace: owner}
		}
	}
	err := view.Scan(projections.Query{Table: projections.TableWorkspaces}, func(k projections.Key, row projections.Row) error {
		if v := a.Latest(k, row.(*projections.History)); v != nil {
			if ev, ok := v.Event.(*domain.WorkspaceRegistered); ok {
				known[k.Scope] = OverviewWorkspace{k.Scope, ev.Name, ev.Parent}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", projections.TableWorkspaces, err)
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		w := known[id]
		if _, seen := known[w.Parent]; !seen {
			w.Parent = ""
		}
		o.Workspaces = append(o.Workspaces, w)
	}
	return nil
}

func (o *Overview) regions(view projections.View) error {
	country, err := Countries(view, Forever-1)
	if err != nil {
		return err
	}
	for i := range o.Clusters {
		if of := o.Clusters[i].Region; of != "" {
			country[of] = cmp.Or(country[of], "")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(country)) {
		o.Regions = append(o.Regions, OverviewRegion{id, country[id]})
	}
	return nil
}

// reach finds the newest time of each kind of data.
func (o *Overview) reach(view projections.View) error {
	r := &o.Reaches
	of := map[domain.Topic]*domain.Instant{
		domain.TopicBilling: &r.Billing, domain.TopicMarket: &r.Prices,
		domain.TopicWorkspaces: &r.Decisions, domain.TopicProcurement: &r.Decisions, domain.TopicBooks: &r.Decisions,
	}
	if err := view.Scan(projections.Query{Table: projections.TableStreams}, func(k projections.Key, row projections.Row) error {
		if at := of[projections.ScopePartition(k.Scope).Topic]; at != nil {
			*at = max(*at, row.(*projections.Stream).Last)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read %s: %w", projections.TableStreams, err)
	}
	if err := newest(view, projections.TableDemand, func(k projections.Key, row projections.Row) {
		month := domain.Instant(k.Hour) * domain.Hour
		for _, s := range row.(*projections.DemandMonth).Spans {
			r.Demand = max(r.Demand, month+(domain.Instant(s.From)+domain.Instant(s.Length))*projections.NsPerMs)
		}
	}); err != nil {
		return err
	}
	hour := int64(math.MinInt64)
	if err := newest(view, projections.TableNodeGPUs, func(_ projections.Key, row projections.Row) {
		for _, g := range row.(*projections.NodeGPUs).GPUs {
			hour = max(hour, g.Last)
		}
	}); err != nil || hour == math.MinInt64 {
		return err
	}
	begin := domain.Instant(hour) * domain.Hour
	last := domain.Instant(0)
	err := view.Scan(projections.Query{Table: projections.TableUsage, From: hour, To: hour + 1},
		func(_ projections.Key, row projections.Row) error {
			for _, observer := range row.(*projections.UsageHour).Observers {
				for i := range observer.Devices {
					if n := len(observer.Devices[i].Segments); n > 0 {
						last = max(last, begin+domain.Instant(observer.Devices[i].Segments[n-1].To)*projections.NsPerMs)
					}
				}
			}
			if last == begin+domain.Hour {
				return errWhole
			}
			return nil
		})
	if err != nil && !errors.Is(err, errWhole) {
		return fmt.Errorf("read %s: %w", projections.TableUsage, err)
	}
	r.Telemetry = cmp.Or(last, begin+domain.Hour) // usage that policy removed reached into the hour
	o.Until = r.Telemetry
	return nil
}

// errWhole ends the reading of an hour that was seen to its end.
var errWhole = errors.New("the hour is whole")

// newest calls take with the rows of the newest month of a table that is split by month. It may call it with those of
// earlier months, too. Where the view has no tallies it reads the last month of each row's id.
func newest(view projections.View, t projections.Table, take func(projections.Key, projections.Row)) error {
	queries := []projections.Query{{Table: t, Last: true}}
	switch all, err := projections.TalliesOf(view); {
	case err == nil:
		var months []int64
		for i := range all {
			if all[i].Table == t && all[i].Rows > 0 {
				months = append(months, all[i].Month)
			}
		}
		queries = nil
		if len(months) > 0 {
			queries = []projections.Query{{Table: t, From: slices.Max(months)}}
		}
	case !errors.Is(err, projections.ErrNoTallies):
		return err
	}
	for _, q := range queries {
		if err := view.Scan(q, func(k projections.Key, row projections.Row) error {
			take(k, row)
			return nil
		}); err != nil {
			return fmt.Errorf("read %s: %w", t, err)
		}
	}
	return nil
}
