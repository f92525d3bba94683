package inventory

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// DigestWithin digests what decides, besides the reports themselves, how usage within a span is
// resolved: the GPUs in service, the times down, the corrections, and who pays for pods. A statement
// that concerns another time does not change it. Descriptions of clusters are not part of it, because
// they do not decide about GPU time.
func (f *Fleet) DigestWithin(view projections.View, span domain.Interval) ([32]byte, error) {
	p, err := readPayers(view)
	if err != nil {
		return [32]byte{}, err
	}
	h := sha256.New()
	b := p.appendWithin(nil, span)
	for _, n := range f.Nodes {
		b = n.appendWithin(b, span)
		if len(b) > 1<<16 {
			h.Write(b)
			b = b[:0]
		}
	}
	h.Write(b)
	return [32]byte(h.Sum(nil)), nil
}

// ClusterDigests digest, for each cluster, what decides about its usage within a span.
type ClusterDigests struct {
	of   map[string][32]byte
	rest [32]byte // of a cluster of which nothing was stated
}

// Of returns the digest of a cluster.
func (d *ClusterDigests) Of(cluster string) [32]byte {
	if sum, ok := d.of[cluster]; ok {
		return sum
	}
	return d.rest
}

// DigestsWithin returns what [Fleet.DigestWithin] digests, by cluster and for each of several spans, which ascend. It also
// has the names under which GPUs were reported, where there are several.
func (f *Fleet) DigestsWithin(view projections.View, spans []domain.Interval) ([]ClusterDigests, error) {
	if len(spans) == 0 {
		return nil, nil
	}
	p, err := readPayers(view)
	if err != nil {
		return nil, err
	}
	all := domain.Interval{From: spans[0].From, To: spans[len(spans)-1].To}
	shared, err := FindAliases(view, f.Index, projections.Query{From: projections.HourOf(all.From), To: projections.HourOf(all.To-1) + 1})
	if err != nil {
		return nil, err
	}
	out := make([]ClusterDigests, len(spans))
	for i, span := range spans {
		rules := p.appendWithin(nil, span)
		d := &out[i]
		d.of, d.rest = map[string][32]byte{}, sha256.Sum256(rules)
		names := shared.nodes
		var b []byte
		for at := 0; at < len(f.Nodes) || len(names) > 0; {
			cluster := ""
			if at < len(f.Nodes) {
				cluster = f.Nodes[at].Cluster
			}
			if len(names) > 0 && (at == len(f.Nodes) || names[0].Cluster < cluster) {
				cluster = names[0].Cluster
			}
			b = append(b[:0], rules...)
			for ; at < len(f.Nodes) && f.Nodes[at].Cluster == cluster; at++ {
				b = f.Nodes[at].appendWithin(b, span)
			}
			for ; len(names) > 0 && names[0].Cluster == cluster; names = names[1:] {
				b = names[0].appendWithin(b, span)
			}
			d.of[cluster] = sha256.Sum256(b)
		}
	}
	return out, nil
}

// appendWithin appends the names that share GPUs within a span, nothing if it is another time.
func (n *sharing) appendWithin(b []byte, span domain.Interval) []byte {
	from, to := max(n.from, projections.HourOf(span.From)), min(n.to, projections.HourOf(span.To-1)+1)
	if from >= to {
		return b
	}
	b = appendText(append(b, 'a'), n.Node)
	b = binary.AppendVarint(binary.AppendVarint(b, from), to)
	for _, gpu := range slices.SortedFunc(maps.Keys(n.gpus), func(x, y domain.GPUID) int { return bytes.Compare(x[:], y[:]) }) {
		b = append(append(b, 'g'), gpu[:]...)
		for _, o := range n.gpus[gpu] {
			b = appendText(append(b, 'n'), o.Node)
		}
	}
	return b
}

// appendWithin appends what was stated of a node for a span, nothing if there is nothing. Each part
// is preceded by its number or by a tag, so that two different nodes have different bytes.
func (n *NodeTime) appendWithin(b []byte, span domain.Interval) []byte {
	start := len(b)
	b = appendText(appendText(append(b, 'n'), n.Cluster), n.Node)
	empty := len(b)
	for i := range n.Service {
		s := &n.Service[i]
		part := s.Intersect(span)
		if part.Empty() {
			continue
		}
		b = appendText(appendSpan(append(b, 's'), part), string(s.Node.BillingModel))
		for j := range s.GPUs {
			g := &s.GPUs[j]
			b = appendText(append(append(b, 'g'), g.ID[:]...), g.Model)
			for _, t := range g.Within(nil, part) {
				b = appendSpan(append(b, 't'), t)
			}
		}
	}
	var downs [][]byte
	for i := range n.Down {
		d := &n.Down[i]
		if part := d.Intersect(span); !part.Empty() {
			down := append(appendSpan([]byte{'d'}, part), d.GPU[:]...)
			if d.Failed {
				down = append(down, 'f')
			}
			downs = append(downs, down)
		}
	}
	// Equal times come in no particular order.
	slices.SortFunc(downs, bytes.Compare)
	for _, d := range slices.CompactFunc(downs, bytes.Equal) {
		b = append(b, d...)
	}
	for _, c := range n.Corrections {
		part := c.Ev.Interval.Intersect(span)
		if part.Empty() {
			continue
		}
		b = append(appendSpan(append(b, 'c'), part), c.Ev.GPU[:]...)
		b = binary.AppendUvarint(b, uint64(c.Ev.Replica))
		b = appendText(appendText(appendText(b, c.Ev.Workspace), c.Ev.Deployment), c.Ev.Unit)
	}
	if len(b) == empty {
		return b[:start]
	}
	return b
}

// appendWithin appends the rules that decide within a span, each time they change.
func (p *payers) appendWithin(b []byte, span domain.Interval) []byte {
	times := []domain.Instant{span.From}
	for _, at := range p.epochs {
		if span.From < at && at < span.To {
			times = append(times, at)
		}
	}
	rules := slices.SortedFunc(slices.Values(p.rules), func(a, b ruleTimes) int { return cmp.Compare(a.name, b.name) })
	for _, at := range times {
		b = append(b, 'p')
		if at > span.From {
			b = binary.AppendVarint(b, int64(at))
		}
		for _, r := range rules {
			v := (&projections.History{Versions: r.versions}).At(at)
			if v == nil {
				continue
			}
			ev := v.Event.(*domain.MappingRuleSet)
			b = appendText(append(b, 'r'), r.name)
			b = binary.AppendUvarint(b, uint64(ev.Priority))
			b = appendText(appendText(appendText(b, ev.Cluster), ev.Namespace), ev.ToWorkspace)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendSpan(b []byte, t domain.Interval) []byte {
	return binary.AppendVarint(binary.AppendVarint(b, int64(t.From)), int64(t.To))
}
