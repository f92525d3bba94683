package advice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// The kinds of gaps that "fleet" does not show as exceptions.
const (
	Quarantined   = "quarantine"     // records that could not be folded and are open
	LateTelemetry = "late_telemetry" // samples of an earlier month were appended within a day
)

// Where a gap is shown.
var (
	byFleet      = advice.Question{Command: "fleet", API: "/api/v1/fleet"}
	byStreams    = advice.Question{Command: "streams list", API: "/api/v1/streams/list"}
	byQuarantine = advice.Question{Command: "quarantine list", API: "/api/v1/quarantine/list"}
	byStats      = advice.Question{Command: "log stats", API: "/api/v1/log/stats"}
)

// gaps reads what is not known, or contradicts itself, so that other figures may be wrong: every exception of "fleet",
// what agents dropped in the last day, missing events, quarantine, and late telemetry.
func (r *reader) gaps() error {
	for _, read := range []func() error{r.exceptions, r.dropped, r.awaited, r.quarantine, r.late} {
		if err := read(); err != nil {
			return err
		}
	}
	slices.SortFunc(r.f.Gaps, func(a, b advice.Gap) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), a.Subject.Compare(b.Subject), strings.Compare(a.Detail, b.Detail))
	})
	return nil
}

func (r *reader) gap(kind string, subject advice.Subject, n int64, detail string, q advice.Question) {
	r.f.Gaps = append(r.f.Gaps, advice.Gap{
		Kind: kind, Subject: subject, Detail: detail, Count: n, Window: domain.Interval{From: r.at, To: r.at}, Question: q,
	})
}

// exceptions reads those of the fleet. Dropped samples and incomplete streams are read where they have times and counts.
func (r *reader) exceptions() error {
	inv, err := inventory.New(r.view, inventory.Filter{At: r.at})
	if err != nil {
		return err
	}
	for i := range inv.Exceptions {
		e := &inv.Exceptions[i]
		if e.Kind != inventory.SamplesDropped && e.Kind != inventory.StreamIncomplete {
			r.gap(e.Kind, exceptionOf(e), 1, e.Detail, byFleet)
		}
	}
	return nil
}

// exceptionOf returns what an exception is about.
func exceptionOf(e *inventory.Exception) advice.Subject {
	switch e.Kind {
	case inventory.NodeUnregistered, inventory.NodeNeverSeen, inventory.NodeNotInService, inventory.GPUUnderTwoNames,
		inventory.TwoAgentsOfOneName, inventory.CollectorIsSilent:
		cluster, node, _ := strings.Cut(e.Subject, "/")
		return advice.Subject{Cluster: cluster, Node: node}
	case inventory.ClusterUnregistered:
		return advice.Subject{Cluster: e.Subject}
	case inventory.GPUInTwoNodes, inventory.GPUUndeclared, inventory.GPUNotReported:
		return advice.Subject{GPU: e.Subject}
	case inventory.NamespaceUnmapped:
		cluster, namespace, _ := strings.Cut(e.Subject, "/")
		return advice.Subject{Cluster: cluster, Name: namespace}
	case inventory.WorkspaceUnregistered:
		return advice.Subject{Workspace: e.Subject}
	case inventory.UnknownGPUModel:
		return advice.Subject{GPUModel: e.Subject}
	case inventory.StreamAhead, inventory.StreamNotCompared, inventory.StreamConflict:
		return streamOf(e.Subject)
	default:
		return advice.Subject{Name: e.Subject}
	}
}

// streamOf returns the stream that a text names, with the node whose agent it is.
func streamOf(name string) advice.Subject {
	s := advice.Subject{Name: name}
	if _, rest, ok := strings.Cut(name, registry.NodeSources); ok {
		cluster, node, _ := strings.Cut(rest, "/")
		node, _, _ = strings.Cut(node, "#")
		node, _, _ = strings.Cut(node, ",")
		s.Cluster, s.Node = cluster, node
	}
	return s
}

// dropped reads what nodes' agents reported as lost in the last day.
func (r *reader) dropped() error {
	window := domain.Interval{From: r.at - domain.Day, To: r.at}
	c, err := registry.CompletenessOf(r.view, "", "", window, domain.TopicTelemetry, domain.TopicHardware)
	if err != nil {
		return err
	}
	type losses struct {
		events uint64
		last   *registry.Loss
	}
	by := map[inventory.NodeName]*losses{}
	for i := range c.Dropped {
		l := &c.Dropped[i]
		k := inventory.NodeName{Cluster: l.Cluster, Node: l.Node}
		if by[k] == nil {
			by[k] = &losses{}
		}
		by[k].events += min(l.Events, math.MaxInt64-by[k].events)
		by[k].last = l
	}
	for k, l := range by {
		r.gap(inventory.SamplesDropped, advice.Subject{Cluster: k.Cluster, Node: k.Node}, int64(l.events),
			fmt.Sprintf("%d events were dropped; of the last %s: %s", l.events, l.last, l.last.Reason), byFleet)
		r.f.Gaps[len(r.f.Gaps)-1].Window = window
	}
	return nil
}

// awaited reads the streams that lack events.
func (r *reader) awaited() error {
	open, err := registry.OpenGaps(r.view)
	if err != nil {
		return err
	}
	for i := range open {
		g := &open[i]
		name := fmt.Sprintf("%s/%d %s#%d", g.Topic, g.Partition, g.Source, g.Incarnation)
		r.gap(inventory.StreamIncomplete, streamOf(name), int64(min(g.Awaited, math.MaxInt64)),
			fmt.Sprintf("%d events between %d and %d have not arrived", g.Awaited, g.First, g.Last), byStreams)
	}
	return nil
}

// quarantine reads what is in quarantine and not resolved, by the workspace that it may concern; "" stands for all.
func (r *reader) quarantine() error {
	open, err := registry.Open(r.view)
	if err != nil {
		return err
	}
	if open.All > 0 {
		open.Workspaces[""] = open.All
	}
	for workspace, n := range open.Workspaces {
		r.gap(Quarantined, advice.Subject{Workspace: workspace, Name: "quarantine"}, int64(n),
			fmt.Sprintf("%d records could not be folded", n), byQuarantine)
	}
	return nil
}

// late reads the clusters of which samples of the month before were appended in the last day, too late for its bills.
func (r *reader) late() error {
	month := projections.BillingMonth(projections.BillingMonth(r.at).From - 1)
	late := map[string]int64{}
	q := projections.Query{Table: projections.TableNodeGPUs, From: projections.HourOf(month.From), To: projections.HourOf(month.To)}
	err := r.view.Scan(q, func(k projections.Key, row projections.Row) error {
		for _, d := range row.(*projections.NodeGPUs).Late {
			if d.Last >= r.at-domain.Day && d.Last < r.at {
				late[strings.Clone(domain.ClusterOf(k.Scope))] += d.GPUMs
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", projections.TableNodeGPUs, err)
	}
	for cluster, ms := range late {
		r.gap(LateTelemetry, advice.Subject{Cluster: cluster}, 1, fmt.Sprintf(
			"%d GPU-hours of the month from %s were appended in the last day", ms/projections.MsPerHour, month.From), byStats)
	}
	return nil
}
