package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/serving"
	"quartermaster/projections/usage"
)

// narrowed is the scope of a question. Empty fields do not filter.
type narrowed struct{ workspace, cluster, region string }

// known refuses a cluster or region that does not exist. Because of a typo an answer would be
// empty, and look like one about something idle.
func (n narrowed) known(v projections.View) error {
	if n.cluster == "" && n.region == "" {
		return nil
	}
	names, err := registry.NewNames(v)
	if err != nil {
		return err
	}
	if err := among("cluster", n.cluster, names.Clusters); err != nil {
		return err
	}
	return among("region", n.region, names.Regions)
}

// empty refuses a workspace that does not exist. It is called for empty answers only, because a
// workspace that holds GPUs need not be registered.
func (n narrowed) empty(v projections.View) error {
	if n.workspace == "" {
		return nil
	}
	names, err := registry.NewNames(v)
	if err != nil {
		return err
	}
	return among("workspace", n.workspace, names.Workspaces)
}

// offered is how many names an error lists, and widest the most characters of each.
const (
	offered = 20
	widest  = 40
)

// among refuses a name that is not in names. "" stands for all of them.
func among(what, value string, names []string) error {
	if value == "" {
		return nil
	}
	return oneOf(what, value, names)
}

// oneOf refuses a name that is not in names, the empty one too.
func oneOf(what, value string, names []string) error {
	if slices.Contains(names, value) {
		return nil
	}
	if len(names) == 0 {
		return &NotFoundError{What: what, Name: value, Err: fmt.Errorf("there is no %s %q; none exist yet", what, value)}
	}
	list := make([]string, 0, offered)
	for _, name := range names[:min(offered, len(names))] {
		list = append(list, domain.Clip(name, widest))
	}
	more := ""
	if n := len(names) - offered; n > 0 {
		more = fmt.Sprintf(" and %s more", comma(n))
	}
	return &NotFoundError{What: what, Name: value, Known: names, Err: fmt.Errorf("there is no %s %q; there are: %s%s",
		what, value, strings.Join(list, ", "), more)}
}

// charged refuses a workspace that no cost can be charged to.
func charged(v projections.View, workspace string) error {
	if workspace == "" {
		return nil
	}
	names, err := registry.NewNames(v)
	if err != nil {
		return err
	}
	all := append(names.Workspaces, attribution.Accounts()...)
	slices.Sort(all)
	return among("workspace", workspace, slices.Compact(all))
}

// Fleet returns clusters, nodes and GPUs with their health. If filter.At is 0, it is about the
// present, or the time of the last event before at.
func (c *Caller) Fleet(ctx context.Context, at At, filter inventory.Filter) (inv *inventory.Inventory, err error) {
	err = c.readFrom(ctx, at, filter.At, func(v projections.View, about domain.Instant) error {
		filter.At = about
		n := narrowed{filter.Workspace, filter.Cluster, filter.Region}
		if err := n.known(v); err != nil {
			return err
		}
		if inv, err = inventory.New(v, filter); err == nil && len(inv.Clusters) == 0 {
			err = n.empty(v)
		}
		return err
	})
	return inv, err
}

// FleetMap returns what every GPU was doing in the last whole hour before a time; see [Caller.Fleet].
func (c *Caller) FleetMap(ctx context.Context, at At, about domain.Instant, filter usage.Filter, by usage.MapBy) (m *usage.FleetMap, err error) {
	if !slices.Contains(usage.MapBys(), by) {
		return nil, invalid("by", "%q: want one of %v", by, usage.MapBys())
	}
	err = c.readFrom(ctx, at, about, func(v projections.View, about domain.Instant) error {
		if about < 2*domain.Hour {
			return invalid("at", "%s is before all hours", about)
		}
		n := narrowed{filter.Workspace, filter.Cluster, filter.Region}
		if err := n.known(v); err != nil {
			return err
		}
		if m, err = usage.NewFleetMap(v, about, filter, by); err == nil && len(m.Clusters) == 0 {
			err = n.empty(v)
		}
		return err
	})
	return m, err
}

// Models returns which models run where: declared, seen, shadow and stale. A model that was not
// seen for longer than stale is stale.
func (c *Caller) Models(ctx context.Context, at At, about, stale domain.Instant, filter inventory.ModelFilter) (m *inventory.ModelInventory, err error) {
	err = c.readFrom(ctx, at, about, func(v projections.View, about domain.Instant) error {
		n := narrowed{workspace: filter.Workspace, cluster: filter.Cluster}
		if err := n.known(v); err != nil {
			return err
		}
		if m, err = inventory.Models(v, about, stale, filter); err == nil && len(m.Deployments) == 0 {
			err = n.empty(v)
		}
		return err
	})
	return m, err
}

// Overview returns what there is to ask about, and how far each kind of data reaches.
func (c *Caller) Overview(ctx context.Context, at At) (o *inventory.Overview, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		o, err = inventory.NewOverview(v)
		return err
	})
	return o, err
}

// Standing is how far the rows are, and what they lack.
type Standing struct {
	Program  ProgramInfo `json:"program"`
	Position string      `json:"position"`
	registry.Completeness
}

// Standing returns how far the rows are, and what they lack of clusters, telemetry, hardware and deployments.
func (c *Caller) Standing(ctx context.Context) (now *Standing, err error) {
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		now, err = kept(c, v, "standing", nil, func() (*Standing, error) {
			lacks, err := inventory.Lacks(v)
			return &Standing{Program(), v.Position().String(), lacks}, err
		})
		return err
	})
	return now, err
}

// mostYears bounds the period of usage, because every hour of every node is read.
const mostYears = 10

// Usage returns who used the GPUs in a period, and accounts for every second. Whole sealed months are
// computed once and kept.
func (c *Caller) Usage(ctx context.Context, at At, period domain.Interval, filter usage.Filter, by ...usage.Dimension) (r *usage.Report, err error) {
	err = c.readUsage(ctx, at, period, filter, func(h *Conn, v projections.View) (some bool, err error) {
		position := v.Position()
		sealed, err := h.sealed(ctx, position, period)
		if err != nil {
			return false, err
		}
		r, err = usage.NewReportFrom(v, h.keptUsage(position), sealed, period.From, period.To, filter, by...)
		return err == nil && len(r.Groups) > 0, err
	})
	return r, err
}

// UsageCourse returns the course of usage over a period of whole hours, in at most some points.
func (c *Caller) UsageCourse(
	ctx context.Context, at At, period domain.Interval, points int, filter usage.Filter, by ...usage.Dimension,
) (r *usage.Course, err error) {
	if period.From != period.From.HourStart() || period.To != period.To.HourStart() {
		return nil, invalid("from", "%s to %s: a course is of whole hours", period.From, period.To)
	}
	if points < 1 || points > usage.MostPoints {
		return nil, invalid("points", "%d: want 1 to %d", points, usage.MostPoints)
	}
	for _, d := range by {
		if d == usage.ByHour || d == usage.ByDay {
			return nil, invalid("by", "%q: a course is by time as it is: say in how many points", d)
		}
	}
	err = c.readUsage(ctx, at, period, filter, func(h *Conn, v projections.View) (some bool, err error) {
		sealed, err := h.sealed(ctx, v.Position(), period)
		if err != nil {
			return false, err
		}
		if r, err = usage.NewCourseFrom(v, keptHours{h.app}, sealed, period, points, filter, by...); errors.Is(err, usage.ErrTooFine) {
			return false, invalid("by", "%w", err)
		}
		return err == nil && len(r.Series) > 0, err
	})
	return r, err
}

// readUsage reads what a question about usage in a period is answered from. some says that there is any.
func (c *Caller) readUsage(
	ctx context.Context, at At, period domain.Interval, filter usage.Filter, answer func(*Conn, projections.View) (some bool, err error),
) error {
	if period.Empty() {
		return invalid("to", "the end %s is not after the start %s", period.To, period.From)
	}
	if period.To.Time().After(period.From.Time().AddDate(mostYears, 0, 0)) {
		return invalid("from", "%s to %s is more than %d years: ask for a part of it", period.From, period.To, mostYears)
	}
	return c.read(ctx, at, func(h *Conn, v projections.View) error {
		n := narrowed{filter.Workspace, filter.Cluster, filter.Region}
		if err := n.known(v); err != nil {
			return err
		}
		if err := (narrowed{workspace: filter.Under}).empty(v); err != nil {
			return err
		}
		some, err := answer(h, v)
		if err == nil && !some {
			err = n.empty(v)
		}
		return err
	})
}

// Serving returns the latency and load of model servers in a period of whole quarters of an hour.
func (c *Caller) Serving(ctx context.Context, at At, period domain.Interval, filter serving.Filter) (r *serving.Report, err error) {
	if period.From != period.From.QuarterStart() || period.To != period.To.QuarterStart() {
		return nil, invalid("from", "%s to %s: servers are aggregated by the quarter of an hour: use times such as 10:15", period.From, period.To)
	}
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		if err := (narrowed{cluster: filter.Cluster}).known(v); err != nil {
			return err
		}
		r, err = serving.NewReport(v, period.From, period.To, filter)
		return err
	})
	return r, err
}

// Jobs returns how jobs ended in a period, and how long they waited.
func (c *Caller) Jobs(ctx context.Context, at At, period domain.Interval, filter serving.JobsFilter) (r *serving.JobsReport, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		n := narrowed{workspace: filter.Workspace, cluster: filter.Cluster}
		if err := n.known(v); err != nil {
			return err
		}
		if r, err = serving.Jobs(v, period.From, period.To, filter); err == nil && len(r.Groups) == 0 {
			err = n.empty(v)
		}
		return err
	})
	return r, err
}

// LogStats returns what the log and the rows hold, and what is missing.
func (c *Caller) LogStats(ctx context.Context, at At) (s *registry.LogStats, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		s, err = registry.NewLogStats(v)
		return err
	})
	return s, err
}

// StreamGaps lists the streams with gaps.
type StreamGaps struct {
	Position string                `json:"position"`
	Streams  []registry.StreamGaps `json:"streams"`
}

// Streams returns which streams skipped sequences.
func (c *Caller) Streams(ctx context.Context, at At) (ans *StreamGaps, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		gaps, err := registry.OpenGaps(v)
		ans = &StreamGaps{v.Position().String(), gaps}
		return err
	})
	return ans, err
}

// Clusters lists all clusters with all their keys.
type Clusters struct {
	Clusters []ClusterEntry `json:"clusters"`
}

// ClusterEntry is a cluster with its keys.
type ClusterEntry struct {
	Cluster       string     `json:"cluster"`
	Workspace     string     `json:"workspace"`
	Provider      string     `json:"provider"`
	ProviderClass string     `json:"provider_class"`
	Region        string     `json:"region"`
	Nodes         int        `json:"nodes"`
	Shards        uint32     `json:"shards"` // of its telemetry and hardware events; 1: none
	Keys          []KeyEntry `json:"keys"`
}

// KeyEntry is a key of a cluster.
type KeyEntry struct {
	registry.ClusterKeyEntry
	Live bool `json:"live"`
}

// Clusters returns the clusters and which of their keys are valid.
func (c *Caller) Clusters(ctx context.Context) (*Clusters, error) {
	ans, at := &Clusters{[]ClusterEntry{}}, c.app.clock()
	err := c.read(ctx, "", func(_ *Conn, v projections.View) error {
		inv, err := inventory.New(v, inventory.Filter{At: at})
		if err != nil {
			return err
		}
		keys, err := registry.ClusterKeys(v)
		if err != nil {
			return err
		}
		for i := range inv.Clusters {
			in := &inv.Clusters[i]
			e := ClusterEntry{
				Cluster: in.Cluster, Workspace: in.Workspace, Provider: in.Provider, ProviderClass: string(in.ProviderClass),
				Region: in.Region, Nodes: len(in.Nodes), Shards: in.Shards, Keys: []KeyEntry{},
			}
			for _, k := range keys {
				if k.Cluster == in.Cluster {
					e.Keys = append(e.Keys, KeyEntry{k, k.Live(at)})
				}
			}
			ans.Clusters = append(ans.Clusters, e)
		}
		return nil
	})
	return ans, err
}
