package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// ModelInventory says which models should run where, and which do.
type ModelInventory struct {
	Position   string         `json:"position"`
	At         domain.Instant `json:"at,omitempty"` // absent for a log without events
	StaleAfter string         `json:"stale_after"`  // as a duration, for example 1h0m0s
	// Deployments are the declared ones and those seen within StaleAfter, by workspace, cluster,
	// model, tier and deployment.
	Deployments []ModelEntry `json:"deployments"`
	Models      []ModelTotal `json:"models"` // by name
	registry.Completeness
}

// ModelStatus compares the declaration with what was seen.
type ModelStatus string

// The statuses.
const (
	ModelRunning ModelStatus = "running" // declared, and seen within StaleAfter
	ModelShadow  ModelStatus = "shadow"  // seen within StaleAfter, and not declared
	ModelStale   ModelStatus = "stale"   // declared for longer than StaleAfter, and not seen within it
	ModelPending ModelStatus = "pending" // declared within StaleAfter, and not seen yet
	ModelStopped ModelStatus = "stopped" // declared with no replicas, and not seen within StaleAfter
)

// ModelEntry is a deployment of a model in a cluster.
type ModelEntry struct {
	Workspace        string               `json:"workspace"`
	Cluster          string               `json:"cluster"`
	Model            string               `json:"model"`
	Tier             string               `json:"tier,omitempty"`
	Deployment       string               `json:"deployment"`
	Class            domain.WorkloadClass `json:"class,omitempty"`
	Environment      string               `json:"environment,omitempty"`
	Status           ModelStatus          `json:"status"`
	Declared         bool                 `json:"declared"`
	DeclaredReplicas uint32               `json:"declared_replicas"`
	DeclaredAt       domain.Instant       `json:"declared_at,omitempty"`
	// ReadyReplicas is the last count of an observer; null if there was none within StaleAfter.
	ReadyReplicas *uint32 `json:"ready_replicas"`
	// Units is the number of pods or jobs that held GPUs in the last hour in which any did.
	Units int `json:"units"`
	// LastSeen is absent if it was not seen within StaleAfter or a week, whichever is longer.
	LastSeen domain.Instant `json:"last_seen,omitempty"`
	// SeenBy are the tables that saw it within StaleAfter, or if none did, before: replicas,
	// server_hours, serving_hours, usage_hours.
	SeenBy     []string       `json:"seen_by"`
	LastUpdate domain.Instant `json:"last_update"`
}

// ModelTotal sums up a model over clusters and workspaces.
type ModelTotal struct {
	Model            string   `json:"model"`
	Clusters         []string `json:"clusters"`
	Workspaces       []string `json:"workspaces"`
	Deployments      int      `json:"deployments"`
	Shadow           int      `json:"shadow"`
	Stale            int      `json:"stale"`
	DeclaredReplicas uint64   `json:"declared_replicas"`
	ReadyReplicas    uint64   `json:"ready_replicas"` // sum over counted deployments
}

// ModelFilter selects models; empty fields match all.
type ModelFilter struct {
	Workspace, Cluster string
	// Search is a part of the name of a model, a deployment or a workspace, in any case.
	Search string
	// Recent leaves out when deployments were last seen that were not seen within StaleAfter, for which a week is read.
	Recent bool
}

type modelKey struct{ workspace, cluster, deployment, model, tier string }

// sighting is what was seen of a running deployment.
type sighting struct {
	last    domain.Instant
	ready   *uint32
	counted domain.Precedence // of ready
	hour    int64
	units   map[string]bool // in hour
	by      map[projections.Table]bool
}

type sightings map[modelKey]*sighting

func (s sightings) of(k modelKey, t projections.Table) *sighting {
	x := s[k]
	if x == nil {
		x = &sighting{by: map[projections.Table]bool{}}
		s[k] = x
	}
	x.by[t] = true
	return x
}

// Models returns the model inventory at a time. A deployment that was not seen within staleAfter
// before it counts as not running. A sighting belongs to the declared deployment with its name in
// the cluster, if they do not differ in workspace, model or tier; otherwise it is a shadow. If no
// source names its workspace, it belongs to the cluster's owner.
//
// It reads the observations of staleAfter. Only if a declared deployment was not seen then, it also
// reads those of the week before, to say when it was last seen. So its cost does not grow with
// history.
func Models(view projections.View, at, staleAfter domain.Instant, filter ModelFilter) (*ModelInventory, error) {
	if staleAfter <= 0 {
		return nil, fmt.Errorf("models stale after %d ns: want a time above 0", staleAfter)
	}
	inv := &ModelInventory{
		Position: view.Position().String(), At: at, StaleAfter: (at + staleAfter).Time().Sub(at.Time()).String(),
		Deployments: []ModelEntry{}, Models: []ModelTotal{},
	}
	var err error
	inv.Completeness, err = registry.CompletenessOf(view, filter.Workspace, filter.Cluster,
		domain.Interval{From: at - staleAfter, To: at},
		domain.TopicFleet, domain.TopicTelemetry, domain.TopicDeployments)
	if err != nil {
		return nil, err
	}
	type name struct{ cluster, deployment string }
	declared := map[name]*ModelEntry{}
	removed := map[name]domain.Instant{}
	err = view.Scan(projections.Query{Table: projections.TableDeployments}, func(k projections.Key, row projections.Row) error {
		v := row.(*projections.History).At(at)
		if v == nil {
			return nil
		}
		switch ev := v.Event.(type) {
		case *domain.DeploymentChanged:
			declared[name{k.Scope, k.ID}] = &ModelEntry{
				Workspace: v.Workspace, Cluster: k.Scope, Model: ev.Model, Tier: ev.Tier, Deployment: k.ID,
				Class: ev.Class, Environment: ev.Environment,
				Declared: true, DeclaredReplicas: ev.Replicas, DeclaredAt: v.Order.Effective,
				LastUpdate: v.Order.Effective, SeenBy: []string{},
			}
		case *domain.DeploymentRemoved:
			removed[name{k.Scope, k.ID}] = v.Order.Effective
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read deployments: %w", err)
	}
	clusters, err := ReadClusters(view)
	if err != nil {
		return nil, err
	}
	since := at - staleAfter
	seen, err := seeModels(view, since, at)
	if err != nil {
		return nil, err
	}
	fits := func(a, b string) bool { return a == "" || b == "" || a == b }
	// of returns the declared deployment that a sighting belongs to, nil for none.
	of := func(k modelKey) *ModelEntry {
		e := declared[name{k.cluster, k.deployment}]
		if e == nil || k.deployment == "" || !fits(e.Workspace, k.workspace) ||
			!fits(e.Model, k.model) || e.Tier != k.tier && k.tier != "" {
			return nil
		}
		return e
	}
	var shadows shadowIndex
	for _, k := range slices.SortedFunc(maps.Keys(seen), compareModels) {
		s, e := seen[k], of(k)
		if e == nil {
			if s.last <= since || s.last <= removed[name{k.cluster, k.deployment}] {
				continue
			}
			e = shadows.of(k)
		}
		e.see(k, s, since)
	}
	unseen := map[*ModelEntry]bool{}
	for _, e := range declared {
		if e.LastSeen == 0 {
			unseen[e] = true
		}
	}
	if before := at - lookBack; before < since && len(unseen) > 0 && !filter.Recent {
		earlier, err := seeModels(view, before, since)
		if err != nil {
			return nil, err
		}
		for _, k := range slices.SortedFunc(maps.Keys(earlier), compareModels) {
			if e := of(k); e != nil && unseen[e] {
				e.see(k, earlier[k], since)
			}
		}
	}
	for _, e := range declared {
		switch {
		case e.LastSeen > since:
			e.Status = ModelRunning
		case e.DeclaredReplicas == 0:
			e.Status = ModelStopped
		case e.DeclaredAt > since:
			e.Status = ModelPending
		default:
			e.Status = ModelStale
		}
		shadows.all = append(shadows.all, e)
	}
	search := strings.ToLower(filter.Search)
	for _, e := range shadows.all {
		e.Status = cmp.Or(e.Status, ModelShadow)
		_, owner := clusters.Cluster(e.Cluster, at)
		e.Workspace = cmp.Or(e.Workspace, owner)
		if (filter.Cluster == "" || filter.Cluster == e.Cluster) && (filter.Workspace == "" || filter.Workspace == e.Workspace) && e.names(search) {
			inv.Deployments = append(inv.Deployments, *e)
		}
	}
	slices.SortFunc(inv.Deployments, func(a, b ModelEntry) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Model, b.Model),
			cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Deployment, b.Deployment), cmp.Compare(a.Status, b.Status))
	})
	inv.total()
	return inv, nil
}

// names reports whether a text in small letters is a part of a name of the entry.
func (e *ModelEntry) names(part string) bool {
	return part == "" || slices.ContainsFunc([]string{e.Model, e.Deployment, e.Workspace}, func(name string) bool {
		return strings.Contains(strings.ToLower(name), part)
	})
}

func compareModels(a, b modelKey) int {
	// Sightings with a model come first, so that those without can follow them.
	return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.deployment, b.deployment), cmp.Compare(b.model, a.model),
		cmp.Compare(b.workspace, a.workspace), cmp.Compare(b.tier, a.tier))
}

// shadowIndex holds what was seen and not declared. Sightings come in the order of [compareModels].
// So the possible shadows of a deployment are looked up, instead of searching all of them.
type shadowIndex struct {
	all []*ModelEntry // the declared deployments are appended at the end

	// For the cluster and deployment seen last: the last shadow, and the last shadow of each model
	// and tier and of each workspace, as indexes into all.
	cluster, deployment string
	last                int // -1: none
	serving             map[[2]string]int
	workspace           map[string]int
	nobodys             []int // shadows without a workspace, ascending
}

// of returns the shadow that a sighting belongs to: the last one from another sighting of the same
// deployment that fits, else a new one. Holders do not name a model, servers do not name a
// workspace.
func (x *shadowIndex) of(k modelKey) *ModelEntry {
	if x.serving == nil || x.cluster != k.cluster || x.deployment != k.deployment {
		x.cluster, x.deployment, x.last = k.cluster, k.deployment, -1
		x.serving, x.workspace, x.nobodys = map[[2]string]int{}, map[string]int{}, x.nobodys[:0]
	}
	if i := x.find(k); i >= 0 && k.deployment != "" {
		e := x.all[i]
		if n := len(x.nobodys); e.Workspace == "" && k.workspace != "" && n > 0 && x.nobodys[n-1] == i {
			x.nobodys = x.nobodys[:n-1]
			x.workspace[k.workspace] = max(i, x.workspace[k.workspace])
		}
		return e
	}
	e := &ModelEntry{
		Workspace: k.workspace, Cluster: k.cluster, Model: k.model, Tier: k.tier, Deployment: k.deployment,
		SeenBy: []string{},
	}
	x.last = len(x.all)
	x.serving[[2]string{k.model, k.tier}] = x.last
	if k.workspace == "" {
		x.nobodys = append(x.nobodys, x.last)
	} else {
		x.workspace[k.workspace] = x.last
	}
	x.all = append(x.all, e)
	return e
}

// find returns the index of the last shadow that a sighting fits, -1 for none.
func (x *shadowIndex) find(k modelKey) int {
	if k.model != "" {
		// Sightings with a workspace came before, and no two are the same in all names.
		if i, ok := x.serving[[2]string{k.model, k.tier}]; ok && k.workspace == "" {
			return i
		}
		return -1
	}
	if k.workspace == "" {
		return x.last
	}
	found := -1
	if i, ok := x.workspace[k.workspace]; ok {
		found = i
	}
	if n := len(x.nobodys); n > 0 {
		found = max(found, x.nobodys[n-1])
	}
	return found
}

// see adds a sighting.
func (e *ModelEntry) see(k modelKey, s *sighting, since domain.Instant) {
	e.Workspace = cmp.Or(e.Workspace, k.workspace)
	e.Model = cmp.Or(e.Model, k.model)
	e.LastSeen = max(e.LastSeen, s.last)
	e.LastUpdate = max(e.LastUpdate, s.last, s.counted.Effective)
	if s.ready != nil && s.counted.Effective > since {
		n := *s.ready
		if e.ReadyReplicas != nil {
			n += *e.ReadyReplicas
		}
		e.ReadyReplicas = &n
	}
	e.Units = max(e.Units, len(s.units))
	for t := range s.by {
		if !slices.Contains(e.SeenBy, t.String()) {
			e.SeenBy = append(e.SeenBy, t.String())
		}
	}
	slices.Sort(e.SeenBy)
}

// lookBack is how long before the time of an answer a stale deployment is looked for.
const lookBack = 7 * domain.Day

// seeModels collects what was seen running from the hour of one time up to another.
func seeModels(view projections.View, from, at domain.Instant) (sightings, error) {
	seen := sightings{}
	// Times before 1970 are those of a log without events.
	since, end := max(1, projections.HourOf(from)), max(1, projections.HourOf(at-1)+1)
	query := projections.Query{Table: projections.TableReplicas, From: max(1, projections.DayOf(from)), To: end}
	err := view.Scan(query, func(k projections.Key, row projections.Row) error {
		v := row.(*projections.History).At(at)
		if v == nil {
			return nil
		}
		ev := v.Event.(*domain.ReplicasObserved)
		s := seen.of(modelKey{v.Workspace, k.Scope, ev.Deployment, ev.Model, ev.Tier}, projections.TableReplicas)
		if s.ready == nil || v.Order.After(s.counted) {
			ready := ev.Ready
			s.ready, s.counted = &ready, v.Order
		}
		// Zero ready replicas is information, but not a sign of life.
		for _, v := range row.(*projections.History).Versions {
			if v.Order.Effective <= at && v.Event.(*domain.ReplicasObserved).Ready > 0 {
				s.last = max(s.last, v.Order.Effective)
				if v.Again != nil && v.Again.Effective <= at {
					s.last = max(s.last, v.Again.Effective)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read replicas: %w", err)
	}
	query = projections.Query{Table: projections.TableServing, From: since, To: end}
	err = view.Scan(query, func(k projections.Key, row projections.Row) error {
		hour := domain.Instant(k.Hour) * domain.Hour
		for _, x := range row.(*projections.ServingHour).Sources {
			deployment := strings.TrimSuffix(k.ID, "|"+x.Model+"|"+x.Tier)
			s := seen.of(modelKey{"", k.Scope, deployment, x.Model, x.Tier}, projections.TableServing)
			s.last = max(s.last, min(at, hour+domain.Hour))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read serving hours: %w", err)
	}
	query = projections.Query{Table: projections.TableServers, From: since, To: end}
	err = view.Scan(query, func(k projections.Key, row projections.Row) error {
		x := row.(*projections.ServerHour)
		if x.Model == "" {
			return nil // a pod that requests GPUs, not a model server
		}
		s := seen.of(modelKey{"", k.Scope, x.Deployment, x.Model, x.Tier}, projections.TableServers)
		s.last = max(s.last, min(at, domain.Instant(k.Hour)*domain.Hour+x.Until()))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read server hours: %w", err)
	}
	pay, err := readPayers(view)
	if err != nil {
		return nil, err
	}
	query = projections.Query{Table: projections.TableUsage, From: since, To: end}
	err = view.Scan(query, func(k projections.Key, row projections.Row) error {
		hour := domain.Instant(k.Hour) * domain.Hour
		u := pay.paid(k, row.(*projections.UsageHour))
		for i, h := range u.Holders {
			if h.Workspace == "" || h.Deployment == "" {
				continue
			}
			s := seen.of(modelKey{h.Workspace, k.Scope, h.Deployment, "", ""}, projections.TableUsage)
			if k.Hour < s.hour {
				continue
			}
			end := u.HeldUntil(uint32(i + 1))
			if end == 0 {
				continue
			}
			s.last = max(s.last, min(at, hour+domain.Instant(end)*projections.NsPerMs))
			if k.Hour > s.hour || s.units == nil {
				s.hour, s.units = k.Hour, map[string]bool{}
			}
			s.units[h.Unit] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	return seen, nil
}

func (inv *ModelInventory) total() {
	type sets struct{ clusters, workspaces map[string]bool }
	totals, of := map[string]*ModelTotal{}, map[string]sets{}
	for _, e := range inv.Deployments {
		t := totals[e.Model]
		if t == nil {
			t = &ModelTotal{Model: e.Model}
			totals[e.Model], of[e.Model] = t, sets{map[string]bool{}, map[string]bool{}}
		}
		t.Deployments++
		t.DeclaredReplicas += uint64(e.DeclaredReplicas)
		if e.ReadyReplicas != nil {
			t.ReadyReplicas += uint64(*e.ReadyReplicas)
		}
		switch e.Status {
		case ModelShadow:
			t.Shadow++
		case ModelStale:
			t.Stale++
		}
		of[e.Model].clusters[e.Cluster], of[e.Model].workspaces[e.Workspace] = true, true
	}
	for _, model := range slices.Sorted(maps.Keys(totals)) {
		t := totals[model]
		t.Clusters, t.Workspaces = slices.Sorted(maps.Keys(of[model].clusters)), slices.Sorted(maps.Keys(of[model].workspaces))
		inv.Models = append(inv.Models, *t)
	}
}
