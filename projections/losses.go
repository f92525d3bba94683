package projections

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Loss is what an agent said that it had to drop. Its sequences are gaps of a stream
// that nothing will fill: they are named as lost, and no longer awaited.
type Loss struct {
	Cluster string         `json:"cluster"`
	Node    string         `json:"node"`
	Topic   domain.Topic   `json:"topic"`
	Events  uint64         `json:"events"`
	From    domain.Instant `json:"from,omitempty"` // of what the events covered; none: not known
	To      domain.Instant `json:"to,omitempty"`
	Reason  string         `json:"reason,omitempty"`

	said   domain.Order
	source string
	life   uint64 // incarnation
	lost   Gap
}

// String says what was lost.
func (l *Loss) String() string {
	what := "samples"
	if l.Topic != domain.TopicTelemetry {
		what = "events of " + string(l.Topic)
	}
	when := "at a time that is not known"
	if l.To > 0 {
		when = fmt.Sprintf("from %s to %s", l.From, l.To)
	}
	return fmt.Sprintf("%s of node %s/%s %s were dropped", what, l.Cluster, l.Node, when)
}

// touches reports whether a loss may concern a time.
func (l *Loss) touches(span domain.Interval) bool {
	return l.To == 0 || l.From < span.To && span.From < l.To
}

// lossOf reads what a version says was lost. A source speaks of its own streams alone.
func lossOf(cluster string, v *Version) (Loss, bool) {
	e, ok := v.Event.(*domain.SpoolDropped)
	if !ok {
		return Loss{}, false
	}
	topic, own := strings.CutPrefix(e.Stream, v.Order.Source+" ")
	if !own {
		return Loss{}, false
	}
	return Loss{
		Cluster: cluster, Node: e.Node, Topic: domain.Topic(topic), Events: e.To - e.From + 1, From: e.Covered.From, To: e.Covered.To, Reason: e.Reason,
		said: v.Order, source: v.Order.Source, life: e.Incarnation, lost: Gap{First: e.From, Last: e.To},
	}, true
}

// readLosses returns what was said to be lost since a time, 0: ever.
func readLosses(view View, since domain.Instant) ([]Loss, error) {
	var out []Loss
	q := Query{Table: TableHealth}
	if since > 0 {
		q.From = dayOf(since)
	}
	err := view.Scan(q, func(k Key, row Row) error {
		for i := range row.(*History).Versions {
			if l, ok := lossOf(strings.Clone(k.Scope), &row.(*History).Versions[i]); ok {
				out = append(out, l)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", TableHealth, err)
	}
	return out, nil
}

// streamLife names a stream but for its partition, which its key decides.
type streamLife struct {
	source string
	topic  domain.Topic
	life   uint64
}

// lostOf are the sequences that were said to be lost, by stream, ascending and
// disjoint.
func lostOf(losses []Loss) map[streamLife][]Gap {
	out := map[streamLife][]Gap{}
	for i := range losses {
		l := &losses[i]
		k := streamLife{l.source, l.Topic, l.life}
		out[k] = append(out[k], l.lost)
	}
	for k, gaps := range out {
		out[k] = disjoint(gaps)
	}
	return out
}

// awaited returns how many sequences have not arrived and are not said to be lost,
// given what is, ascending and disjoint.
func (s *Stream) awaited(lost []Gap) uint64 {
	n, forgotten := s.Missing(), s.Lost
	for _, l := range lost {
		var given uint64
		for _, g := range s.Gaps {
			if first, last := max(g.First, l.First), min(g.Last, l.Last); first <= last {
				given += last - first + 1
			}
		}
		// Of gaps that had to be forgotten only their number is known.
		if l.First <= s.Forgotten {
			known := min(forgotten, min(l.Last, s.Forgotten)-l.First+1)
			given, forgotten = given+known, forgotten-known
		}
		n -= min(n, given)
	}
	return n
}

// nodeSources begins the sources of events of nodes; the cluster follows, and then the
// node. Whoever takes such events sees to it that a cluster's key shows for it.
const nodeSources = "node-reporter/"

// ofAnother reports whether a source is of the nodes of another cluster than the given
// one; "" stands for all clusters, of which none is another.
func ofAnother(source, cluster string) bool {
	rest, ok := strings.CutPrefix(source, nodeSources)
	if !ok || cluster == "" {
		return false
	}
	of, _, ok := strings.Cut(rest, "/")
	return ok && of != cluster
}

// eachAwaited calls yield with each stream that something is awaited of, and how much.
func eachAwaited(view View, yield func(Key, *Stream, uint64)) error {
	type lacking struct {
		key Key
		s   *Stream
	}
	var found []lacking
	err := view.Scan(Query{Table: TableStreams}, func(k Key, row Row) error {
		if s := row.(*Stream); s.Missing() > 0 {
			found = append(found, lacking{k, s})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read streams: %w", err)
	}
	if len(found) == 0 {
		return nil
	}
	losses, err := readLosses(view, 0)
	if err != nil {
		return err
	}
	lost := lostOf(losses)
	resolved, err := resolvedGaps(view)
	if err != nil {
		return err
	}
	for _, f := range found {
		given := slices.Concat(lost[streamLife{f.s.Source, scopePartition(f.key.Scope).Topic, f.s.Incarnation}], resolved[gapStream(f.key.Scope, f.s.Source, f.s.Incarnation)])
		if n := f.s.awaited(disjoint(given)); n > 0 {
			yield(f.key, f.s, n)
		}
	}
	return nil
}

// lossesIn returns what of some topics and a cluster, "" for all, was said to be lost of
// a time, by cluster, node and time.
func lossesIn(view View, cluster string, span domain.Interval, topics []domain.Topic) ([]Loss, error) {
	if span.Empty() {
		return nil, nil
	}
	// Nothing is said to be lost before it is; clocks differ by less than a day.
	losses, err := readLosses(view, max(1, span.From-domain.Day))
	if err != nil {
		return nil, err
	}
	losses = slices.DeleteFunc(losses, func(l Loss) bool {
		return cluster != "" && l.Cluster != cluster || !slices.Contains(topics, l.Topic) || !l.touches(span)
	})
	slices.SortFunc(losses, func(a, b Loss) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.life, b.life), cmp.Compare(a.lost.First, b.lost.First))
	})
	return losses, nil
}

// spokenFor is for how long the inventory names a loss.
const spokenFor = 31 * domain.Day

// silence is a time in which a node's collector says nothing.
type silence struct {
	since  domain.Instant
	reason string
}

// silent finds collectors that are silent at the inventory's time, and what was lost in
// the month before. A silence ends by being told to have ended, and by a report of the
// node's agent for a later time. It does not end with the life of the agent that told of
// it: the next one knows of it, and tells its end alone.
func (inv *Inventory) silent(f *fleet, seen map[nodeName]*lastSeen, shown map[string]*ClusterEntry) {
	open := map[nodeName]map[string]silence{} // by source
	for _, n := range f.nodes {
		if shown[n.cluster] == nil {
			continue
		}
		var losses []Loss
		for i := range n.health {
			v := &n.health[i]
			if v.Order.Effective > inv.At {
				break
			}
			source := v.Order.Source
			switch e := v.Event.(type) {
			case *domain.CollectorSilent:
				if e.Silent.To > 0 {
					delete(open[n.nodeName], source)
					continue
				}
				if open[n.nodeName] == nil {
					open[n.nodeName] = map[string]silence{}
				}
				open[n.nodeName][source] = silence{e.Silent.From, e.Reason}
			case *domain.SpoolDropped:
				if l, ok := lossOf(n.cluster, v); ok && v.Order.Effective >= inv.At-spokenFor {
					losses = append(losses, l)
				}
			}
		}
		if len(losses) > 0 {
			last, total := &losses[len(losses)-1], uint64(0)
			for i := range losses {
				total += min(losses[i].Events, math.MaxUint64-total)
			}
			detail := fmt.Sprintf("%d events were dropped, %s", total, last)
			if len(losses) > 1 {
				detail = fmt.Sprintf("%d events were dropped in %d losses; of the last %s", total, len(losses), last)
			}
			inv.except(SamplesDropped, n.cluster+"/"+n.node, detail+": "+last.Reason)
		}
	}
	for name, by := range open {
		for _, s := range by {
			if last := seen[name]; last != nil && last.agent > s.since {
				continue
			}
			inv.except(CollectorIsSilent, name.cluster+"/"+name.node, fmt.Sprintf("its collector measures nothing since %s: %s", s.since, cmp.Or(s.reason, "it did not say why")))
		}
	}
}
