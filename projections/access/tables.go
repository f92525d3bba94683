package access

import (
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// TableRule says what a scope that is not whole sees of a table.
type TableRule struct {
	Table projections.Table
	Seen  string // for people
	rule  rule
}

// rule narrows a row. It returns nil for a row that is not seen. It MUST NOT change the row.
type rule func(g *ground, k projections.Key, row projections.Row) (projections.Row, error)

// What is seen, for people.
const (
	seenByWhole     = "whole estate only"
	seenByWorkspace = "own workspaces"
	seenByOwner     = "clusters of own workspaces"
	seenByHolder    = "deployments of own workspaces"
)

// tableRules has a rule for each table. A test holds that.
var tableRules = []TableRule{
	{projections.TableStreams, seenByWhole, none},
	{projections.TableQuarantine, seenByWhole, none},

	{projections.TableWorkspaces, "own workspaces, also if a right is limited to clusters", someOfWorkspace},
	{projections.TableOperators, seenByWorkspace, ofWorkspace},
	{projections.TablePolicies, seenByWorkspace, ofWorkspace},
	{projections.TableQuotas, seenByWorkspace, ofWorkspace},
	{projections.TableBudgets, seenByWorkspace, ofWorkspace},
	{projections.TableRegions, "everybody", everyone},
	{projections.TableCertifications, seenByWorkspace, ofWorkspace},
	{projections.TableMethods, seenByWorkspace, ofWorkspace},
	{projections.TableMappingRules, "rules by which own workspaces pay alone", ofPayer},
	{projections.TableLegalHolds, seenByWhole, none},
	{projections.TablePeople, seenByWhole, none},

	{projections.TableClusters, "clusters of own workspaces; of clusters in which they have deployments or pay by a rule: " +
		"name, provider, provider class and region", ofClusters},
	{projections.TableClusterKeys, seenByOwner, ofOwner},
	{projections.TableNodes, seenByOwner, ofOwner},
	{projections.TableAssets, seenByOwner, ofOwner},
	{projections.TableMaintenance, seenByOwner, ofOwner},
	{projections.TableOutages, seenByOwner, ofOwner},

	{projections.TableUsage, "clusters of own workspaces: of other holders only the workspace", ofUsage},
	{projections.TableNodeGPUs, seenByOwner, ofOwner},
	{projections.TableServing, seenByHolder, ofDeployment},
	{projections.TableServers, seenByHolder, ofServer},
	{projections.TableJobs, "jobs of own workspaces", ofVersions},
	{projections.TableDemand, "demand of own workspaces", ofDemand},
	{projections.TableEnergy, seenByOwner, ofOwner},
	{projections.TableUsageCorrections, "corrections to own workspaces", ofCorrection},

	{projections.TableFaults, seenByOwner, ofOwner},
	{projections.TableHealth, seenByOwner, ofOwner},

	{projections.TableDeployments, seenByHolder, ofVersions},
	{projections.TableReplicas, seenByHolder, ofDeployment},

	{projections.TableBillingLines, seenByWhole, none},
	{projections.TableInvoices, seenByWhole, none},
	{projections.TableBillingPeriods, seenByWhole, none},

	{projections.TableOffers, seenByWhole, none},
	{projections.TableOnDemandQuotas, seenByWhole, none},
	{projections.TableSpotInterruptions, seenByWhole, none},
	{projections.TableTariffs, seenByWhole, none},
	{projections.TableFXRates, seenByWhole, none},

	{projections.TablePlans, seenByWorkspace, ofWorkspace},
	{projections.TableScenarios, seenByWorkspace, ofWorkspace},
	{projections.TableRecommendations, seenByWorkspace, ofWorkspace},
	{projections.TableCommitments, seenByWhole, none},

	{projections.TableCloses, seenByWhole, none},
	{projections.TableExports, seenByWhole, none},
	{projections.TableCheckpoints, seenByWhole, none},
	{projections.TableResolutions, seenByWhole, none},
	{projections.TableConflicts, seenByWhole, none},
	{projections.TableGapResolutions, seenByWhole, none},
	{projections.TableSwitches, seenByWhole, none},
	{projections.TableRemovals, seenByWhole, none},
	{projections.TableDenials, seenByWhole, none},

	{projections.TableGrants, seenByWorkspace, ofWorkspace},
	{projections.TableServiceKeys, seenByWorkspace, ofWorkspace},
	{projections.TableSessions, seenByWhole, none},
	{projections.TableAccess, seenByWhole, none}, // it names workspaces beside its own
}

var ruleOf = func() map[projections.Table]rule {
	of := map[projections.Table]rule{}
	for _, r := range tableRules {
		of[r.Table] = r.rule
	}
	return of
}()

// wholeOnly are the tables that only a whole scope sees.
var wholeOnly = func() map[projections.Table]bool {
	of := map[projections.Table]bool{}
	for _, r := range tableRules {
		of[r.Table] = r.Seen == seenByWhole
	}
	return of
}()

// Tables returns what a narrowed view has of each table.
func Tables() []TableRule { return slices.Clone(tableRules) }

func none(*ground, projections.Key, projections.Row) (projections.Row, error) { return nil, nil }

func everyone(_ *ground, _ projections.Key, row projections.Row) (projections.Row, error) {
	return row, nil
}

func ofWorkspace(g *ground, k projections.Key, row projections.Row) (projections.Row, error) {
	return rowIf(g.scope.Sees(k.Scope, ""), row)
}

func someOfWorkspace(g *ground, k projections.Key, row projections.Row) (projections.Row, error) {
	return rowIf(g.scope.seesSome(k.Scope), row)
}

func rowIf(seen bool, row projections.Row) (projections.Row, error) {
	if !seen {
		return nil, nil
	}
	return row, nil
}

func ofOwner(g *ground, k projections.Key, row projections.Row) (projections.Row, error) {
	owns, err := g.Owns(k.Scope)
	return orNil(owns, row, err)
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
	owns, err := g.Owns(k.Scope)
	if err != nil || !owns {
		return nil, err
	}
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
		for j := range o.Devices {
			d := &o.Devices[j]
			var segments []projections.Segment
			for _, s := range d.Segments {
				was := s.Holder
				s.Holder = to[was]
				if n := len(segments); n > 0 && hidden[was] && segments[n-1].Holder == s.Holder && segments[n-1].To == s.From {
					last := &segments[n-1]
					last.To, last.Known, last.Active = s.To, last.Known+s.Known, last.Active+s.Active
					continue
				}
				segments = append(segments, s)
			}
			d.Segments = segments
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
