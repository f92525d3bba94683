package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Loss is what an agent reported that it had to drop. Its sequences are gaps of a stream that will
// never be filled: they are listed as lost, and no longer awaited.
type Loss struct {
	Cluster string         `json:"cluster"`
	Node    string         `json:"node"`
	Topic   domain.Topic   `json:"topic"`
	Events  uint64         `json:"events"`
	From    domain.Instant `json:"from,omitempty"` // of the covered time; empty: unknown
	To      domain.Instant `json:"to,omitempty"`
	Reason  string         `json:"reason,omitempty"`

	said   domain.Precedence
	source string
	life   uint64 // incarnation
	lost   projections.Gap
}

// String describes the loss.
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

// LossOf reads the loss that a version reports. A source reports only on its own streams.
func LossOf(cluster string, v *projections.Version) (Loss, bool) {
	e, ok := v.Event.(*domain.SpoolDropped)
	if !ok {
		return Loss{}, false
	}
	topic, own := strings.CutPrefix(e.Stream, v.Order.Source+" ")
	if !own {
		return Loss{}, false
	}
	return Loss{
		Cluster: cluster, Node: e.Node, Topic: domain.Topic(topic), Events: e.To - e.From + 1, From: e.Covered.From,
		To: e.Covered.To, Reason: e.Reason,
		said: v.Order, source: v.Order.Source, life: e.Incarnation, lost: projections.Gap{First: e.From, Last: e.To},
	}, true
}

// readLosses returns the losses reported since a time, 0: ever.
func readLosses(view projections.View, since domain.Instant) ([]Loss, error) {
	var out []Loss
	q := projections.Query{Table: projections.TableHealth}
	if since > 0 {
		q.From = projections.DayOf(since)
	}
	err := view.Scan(q, func(k projections.Key, row projections.Row) error {
		for i := range row.(*projections.History).Versions {
			if l, ok := LossOf(strings.Clone(k.Scope), &row.(*projections.History).Versions[i]); ok {
				out = append(out, l)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableHealth, err)
	}
	return out, nil
}

// streamLife identifies a stream, without its partition, which follows from its key.
type streamLife struct {
	source string
	topic  domain.Topic
	life   uint64
}

// lostOf returns the lost sequences, by stream, ascending and disjoint.
func lostOf(losses []Loss) map[streamLife][]projections.Gap {
	out := map[streamLife][]projections.Gap{}
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

// NodeSources is the prefix of the sources of nodes' events. The cluster follows, and then the
// node. Receivers of such events MUST check that they were pushed with that cluster's key.
const NodeSources = "node-reporter/"

// OfAnother reports whether a source is a node of another cluster than the given one. For "", which
// stands for all clusters, it is false.
func OfAnother(source, cluster string) bool {
	rest, ok := strings.CutPrefix(source, NodeSources)
	if !ok || cluster == "" {
		return false
	}
	of, _, ok := strings.Cut(rest, "/")
	return ok && of != cluster
}

// EachAwaited calls yield with each stream with awaited events, and their number.
func EachAwaited(view projections.View, yield func(projections.Key, *projections.Stream, uint64)) error {
	type lacking struct {
		key projections.Key
		s   *projections.Stream
	}
	var found []lacking
	err := view.Scan(projections.Query{Table: projections.TableStreams}, func(k projections.Key, row projections.Row) error {
		if s := row.(*projections.Stream); s.Missing() > 0 {
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
		topic := projections.ScopePartition(f.key.Scope).Topic
		given := slices.Concat(
			lost[streamLife{f.s.Source, topic, f.s.Incarnation}],
			resolved[projections.GapStream(f.key.Scope, f.s.Source, f.s.Incarnation)],
		)
		if n := f.s.Awaited(disjoint(given)); n > 0 {
			yield(f.key, f.s, n)
		}
	}
	return nil
}

// lossesIn returns the losses of some topics and a cluster, "" for all, within a time, by cluster,
// node and time.
func lossesIn(view projections.View, cluster string, span domain.Interval, topics []domain.Topic) ([]Loss, error) {
	if span.Empty() {
		return nil, nil
	}
	// A loss is reported after it happened; clocks differ by less than a day.
	losses, err := readLosses(view, max(1, span.From-domain.Day))
	if err != nil {
		return nil, err
	}
	losses = slices.DeleteFunc(losses, func(l Loss) bool {
		return cluster != "" && l.Cluster != cluster || !slices.Contains(topics, l.Topic) || !l.touches(span)
	})
	slices.SortFunc(losses, func(a, b Loss) int {
		return cmp.Or(
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.From, b.From),
			cmp.Compare(a.To, b.To), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.life, b.life),
			cmp.Compare(a.lost.First, b.lost.First),
		)
	})
	return losses, nil
}

// SpokenFor is the time for which the inventory lists a loss.
const SpokenFor = 31 * domain.Day
