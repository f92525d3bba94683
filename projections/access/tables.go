package access

import (
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// TableRule says what a scope that is not whole sees of a table.
type TableRule struct {
	Table projections.Table
	Seen  string  // for people
	where where   // scopes of the table that have rows that are seen; nil: the rows say it
	rule  narrows // nil: every row there is seen
}

// where reports whether every row with a scope is seen, or narrowed to something.
type where func(g *ground, scope string) (bool, error)

// narrows narrows a row. It returns nil for a row that is not seen. It MUST NOT change the row.
type narrows func(g *ground, k projections.Key, row projections.Row) (projections.Row, error)

// What is seen, for people.
const (
	seenByWhole     = "whole estate only"
	seenByWorkspace = "own workspaces"
	seenByOwner     = "clusters of own workspaces"
	seenByHolder    = "deployments of own workspaces"
)

// tableRules has a rule for each table. A test holds that.
var tableRules = []TableRule{
	{projections.TableStreams, seenByWhole, nowhere, nil},
	{projections.TableQuarantine, seenByWhole, nowhere, nil},

	{projections.TableWorkspaces, "own workspaces, also if a right is limited to clusters", someOfWorkspace, nil},
	{projections.TableOperators, seenByWorkspace, ofWorkspace, nil},
	{projections.TablePolicies, seenByWorkspace, ofWorkspace, nil},
	{projections.TableQuotas, seenByWorkspace, ofWorkspace, nil},
	{projections.TableBudgets, seenByWorkspace, ofWorkspace, nil},
	{projections.TableRegions, "everybody", everywhere, nil},
	{projections.TableCertifications, seenByWorkspace, ofWorkspace, nil},
	{projections.TableMethods, seenByWorkspace, ofWorkspace, nil},
	{projections.TableMappingRules, "rules by which own workspaces pay alone", nil, ofPayer},
	{projections.TableLegalHolds, seenByWhole, nowhere, nil},
	{projections.TablePeople, seenByWhole, nowhere, nil},

	{projections.TableClusters, "clusters of own workspaces; of clusters in which they have deployments or pay by a rule: " +
		"name, provider, provider class and region", nil, ofClusters},
	{projections.TableClusterKeys, seenByOwner, (*ground).Owns, nil},
	{projections.TableNodes, seenByOwner, (*ground).Owns, nil},
	{projections.TableAssets, seenByOwner, (*ground).Owns, nil},
	{projections.TableMaintenance, seenByOwner, (*ground).Owns, nil},
	{projections.TableOutages, seenByOwner, (*ground).Owns, nil},

	{projections.TableUsage, "clusters of own workspaces: of other holders only the workspace", (*ground).Owns, ofUsage},
	{projections.TableNodeGPUs, seenByOwner, (*ground).Owns, nil},
	{projections.TableServing, seenByHolder, nil, ofDeployment},
	{projections.TableServers, seenByHolder, nil, ofServer},
	{projections.TableJobs, "jobs of own workspaces", nil, ofVersions},
	{projections.TableDemand, "demand of own workspaces", nil, ofDemand},
	{projections.TableEnergy, seenByOwner, (*ground).Owns, nil},
	{projections.TableUsageCorrections, "corrections to own workspaces", nil, ofCorrection},

	{projections.TableFaults, seenByOwner, (*ground).Owns, nil},
	{projections.TableHealth, seenByOwner, (*ground).Owns, nil},

	{projections.TableDeployments, seenByHolder, nil, ofVersions},
	{projections.TableReplicas, seenByHolder, nil, ofDeployment},

	{projections.TableBillingLines, seenByWhole, nowhere, nil},
	{projections.TableInvoices, seenByWhole, nowhere, nil},
	{projections.TableBillingPeriods, seenByWhole, nowhere, nil},

	{projections.TableOffers, seenByWhole, nowhere, nil},
	{projections.TableOnDemandQuotas, seenByWhole, nowhere, nil},
	{projections.TableSpotInterruptions, seenByWhole, nowhere, nil},
	{projections.TableTariffs, seenByWhole, nowhere, nil},
	{projections.TableFXRates, seenByWhole, nowhere, nil},

	{projections.TablePlans, seenByWorkspace, ofWorkspace, nil},
	{projections.TableScenarios, seenByWorkspace, ofWorkspace, nil},
	{projections.TableRecommendations, seenByWorkspace, ofWorkspace, nil},
	{projections.TableCommitments, seenByWhole, nowhere, nil},

	{projections.TableCloses, seenByWhole, nowhere, nil},
	{projections.TableExports, seenByWhole, nowhere, nil},
	{projections.TableCheckpoints, seenByWhole, nowhere, nil},
	{projections.TableResolutions, seenByWhole, nowhere, nil},
	{projections.TableConflicts, seenByWhole, nowhere, nil},
	{projections.TableGapResolutions, seenByWhole, nowhere, nil},
	{projections.TableSwitches, seenByWhole, nowhere, nil},
	{projections.TableRemovals, seenByWhole, nowhere, nil},
	{projections.TableDenials, seenByWhole, nowhere, nil},

	{projections.TableGrants, seenByWorkspace, ofWorkspace, nil},
	{projections.TableServiceKeys, seenByWorkspace, ofWorkspace, nil},
	{projections.TableSessions, seenByWhole, nowhere, nil},
	{projections.TableAccess, seenByWhole, nowhere, nil}, // it names workspaces beside its own

	{projections.TableIncidents, seenByWorkspace, ofWorkspace, nil},
	{projections.TableSilences, seenByWorkspace, ofWorkspace, nil},
}

var ruleOf = func() map[projections.Table]TableRule {
	of := map[projections.Table]TableRule{}
	for _, r := range tableRules {
		of[r.Table] = r
	}
	return of
}()

// Tables returns what a narrowed view has of each table.
func Tables() []TableRule { return slices.Clone(tableRules) }

func nowhere(*ground, string) (bool, error) { return false, nil }

func everywhere(*ground, string) (bool, error) { return true, nil }

func ofWorkspace(g *ground, scope string) (bool, error) { return g.scope.Sees(scope, ""), nil }

func someOfWorkspace(g *ground, scope string) (bool, error) { return g.scope.seesSome(scope), nil }

func rowIf(seen bool, row projections.Row) (projections.Row, error) {
	if !seen {
		return nil, nil
	}
	return row, nil
}

func orNil(seen bool, row projections.Row, err error) (projections.Row, error) {
	if !seen || err != nil {
		return nil, err
	}
	return row, nil
}

// versionsIf returns a history with the versions that are seen, nil for none.
func versionsIf(row projections.Row, seen func(*projections.Version) bool) (projections.Row, error) {
	h := row.(*projections.History)
	hides := func(v *projections.Version) bool { return !seen(v) }
	at := slices.IndexFunc(h.Versions, func(v projections.Version) bool { return hides(&v) })
	if at < 0 {
		return row, nil
	}
	var some []projections.Version
	for i := range h.Versions {
		if !hides(&h.Versions[i]) {
			some = append(some, h.Versions[i])
		}
	}
	return rowIf(len(some) > 0, &projections.History{Versions: some})
}

// ofVersions shows the statements about own workspaces. A statement without a workspace belongs to the one before.
func ofVersions(g *ground, k projections.Key, row projections.Row) (projections.Row, error) {
	workspace := ""
	return versionsIf(row, func(v *projections.Version) bool {
		if v.Workspace != "" {
			workspace = v.Workspace
		}
		return g.scope.Sees(workspace, k.Scope)
	})
}

func ofPayer(g *ground, k projections.Key, row projections.Row) (projections.Row, error) {
	return versionsIf(row, func(v *projections.Version) bool {
		ev, ok := v.Event.(*domain.MappingRuleSet)
		if !ok || ev.Shares() {
			return ok && g.scope.Sees(k.Scope, "") && !slices.ContainsFunc(ev.ToShares, func(w domain.WorkspaceWeight) bool {
				return !g.scope.Sees(w.Workspace, "")
			}) && ev.ToShareBy == ""
		}
		payer := ev.ToWorkspace
		if payer == "" {
			payer = k.Scope
		}
		return g.scope.Sees(payer, ev.Cluster)
	})
}

// ofClusters shows clusters of own workspaces, and of those in which they are guests the little that they need.
func ofClusters(g *ground, k projections.Key, row projections.Row) (projections.Row, error) {
	owns, err := g.Owns(k.Scope)
	if err != nil || owns {
		return orNil(owns, row, err)
	}
	guest, err := g.visits(k.Scope)
	if err != nil || !guest {
		return nil, err
	}
	a, err := g.Authority()
	if err != nil {
		return nil, err
	}
	h, some := row.(*projections.History), []projections.Version{}
	for i := range h.Versions {
		ev, ok := h.Versions[i].Event.(*domain.ClusterRegistered)
		if !ok || a.Judge(k, h, i) != "" {
			continue
		}
		little := domain.ClusterRegistered{Name: ev.Name, Provider: ev.Provider, ProviderClass: ev.ProviderClass, Region: ev.Region}
		if n := len(some); n > 0 && same(some[n-1].Event.(*domain.ClusterRegistered), &little) {
			continue // what changed is not seen
		}
		at := h.Versions[i].Order
		some = append(some, projections.Version{Order: domain.Precedence{Effective: at.Effective, Time: at.Effective}, Event: &little})
	}
	return rowIf(len(some) > 0, &projections.History{Versions: some})
}

func same(a, b *domain.ClusterRegistered) bool {
	return a.Name == b.Name && a.Provider == b.Provider && a.ProviderClass == b.ProviderClass && a.Region == b.Region
}

// ofUsage hides the deployments and pods of others.
func ofUsage(g *ground, k projections.Key, row projections.Row) (projections.Row, error) {
	hour := row.(*projections.UsageHour)
	if !slices.ContainsFunc(hour.Holders, func(h projections.Holder) bool { return !g.scope.Sees(h.Workspace, k.Scope) }) {
		return row, nil
	}
	return g.hide(hour, k.Scope), nil
}

// hide returns an hour in which each holder that is not seen is only its workspace. What one of them held in several
// deployments and pods, one after the other, is one segment.
func (g *ground) hide(hour *projections.UsageHour, cluster string) *projections.UsageHour {
	out := &projections.UsageHour{Observers: slices.Clone(hour.Observers)}
	to, hidden := make([]uint32, len(hour.Holders)+1), make([]bool, len(hour.Holders)+1)
	// What is seen comes first, in its order, and then others by name: no place tells of another's pods.
	var others []string
	for i, h := range hour.Holders {
		if g.scope.Sees(h.Workspace, cluster) {
			out.Holders = append(out.Holders, h)
			to[i+1] = uint32(len(out.Holders))
		} else if !slices.Contains(others, h.Workspace) {
			others = append(others, h.Workspace)
		}
	}
	slices.Sort(others)
	own := len(out.Holders)
	for _, workspace := range others {
		out.Holders = append(out.Holders, projections.Holder{Workspace: workspace})
	}
	for i, h := range hour.Holders {
		if to[i+1] == 0 {
			at, _ := slices.BinarySearch(others, h.Workspace)
			to[i+1], hidden[i+1] = uint32(own+at+1), true
		}
	}
	for i := range out.Observers {
		o := &out.Observers[i]
		o.Devices = slices.Clone(o.Devices)
		n := 0
		for j := range o.Devices {
			n += len(o.Devices[j].Segments)
		}
		segments := make([]projections.Segment, 0, n) // of all devices
		for j := range o.Devices {
			d, first := &o.Devices[j], len(segments)
			for _, s := range d.Segments {
				was := s.Holder
				s.Holder = to[was]
				if n := len(segments); n > first && hidden[was] && segments[n-1].Holder == s.Holder && segments[n-1].To == s.From {
					last := &segments[n-1]
					last.To, last.Known, last.Active = s.To, last.Known+s.Known, last.Active+s.Active
					continue
				}
				segments = append(segments, s)
			}
			d.Segments = segments[first:len(segments):len(segments)]
		}
	}
	return out
}

// ofDeployment shows what an id that begins with a deployment is about.
func ofDeployment(g *ground, k projections.Key, row projections.Row) (projections.Row, error) {
	holds, err := g.holds(k.Scope, deploymentOf(k.ID))
	return orNil(holds, row, err)
}

func ofServer(g *ground, k projections.Key, row projections.Row) (projections.Row, error) {
	holds, err := g.holds(k.Scope, row.(*projections.ServerHour).Deployment)
	return orNil(holds, row, err)
}

// ofDemand shows the observations of own workspaces. Those without a workspace are the owner's of the cluster.
func ofDemand(g *ground, k projections.Key, row projections.Row) (projections.Row, error) {
	owns, err := g.Owns(k.Scope)
	if err != nil {
		return nil, err
	}
	month := row.(*projections.DemandMonth)
	out := &projections.DemandMonth{}
	places := make([]int, len(month.Labels))
	for i, l := range month.Labels {
		if places[i] = -1; l.Workspace == "" && owns || l.Workspace != "" && g.scope.Sees(l.Workspace, k.Scope) {
			places[i] = len(out.Labels)
			out.Labels = append(out.Labels, l)
		}
	}
	if len(out.Labels) == len(month.Labels) {
		return row, nil
	}
	for _, s := range month.Spans {
		if at := places[s.Label]; at >= 0 {
			s.Label = uint32(at)
			out.Spans = append(out.Spans, s)
		}
	}
	return rowIf(len(out.Spans) > 0, out)
}

func ofCorrection(g *ground, k projections.Key, row projections.Row) (projections.Row, error) {
	return versionsIf(row, func(v *projections.Version) bool {
		ev, ok := v.Event.(*domain.UsageCorrected)
		return ok && ev.Workspace != "" && g.scope.Sees(ev.Workspace, k.Scope)
	})
}
