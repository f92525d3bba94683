package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// LogStats describes what the folds have read of the log.
type LogStats struct {
	Position   string           `json:"position"`
	Partitions []PartitionStats `json:"partitions"` // every partition, in order
	Sources    []SourceStats    `json:"sources"`    // by name
	// Rows are the stored rows by table, without empty ones. What was stored under two shards of a
	// cluster counts twice.
	Rows map[string]int64 `json:"rows"`
}

// StreamTotals adds up streams.
type StreamTotals struct {
	Streams int    `json:"streams"`
	Events  uint64 `json:"events"`  // arrived, without repeats
	Missing uint64 `json:"missing"` // known to exist and not arrived, including Lost
	Lost    uint64 `json:"lost"`    // permanently missing: too many gaps to remember
	// Last is the latest time of an event. AheadMs is the most that an event was dated after its
	// record, in milliseconds.
	Last    domain.Instant `json:"last,omitempty"`
	AheadMs int64          `json:"ahead_ms"`
}

func (t *StreamTotals) add(s *projections.Stream) {
	t.Streams++
	if s.Past != nil {
		t.Streams += int(s.Past.Incarnations) - 1
	}
	t.Events += s.Mark - s.Missing()
	t.Missing += s.Missing()
	t.Lost += s.Lost
	t.Last = max(t.Last, s.Last)
	t.AheadMs = max(t.AheadMs, int64(s.Ahead)/projections.NsPerMs)
}

// PartitionStats is one partition.
type PartitionStats struct {
	Topic       domain.Topic `json:"topic"`
	Partition   int          `json:"partition"`
	Next        int64        `json:"next"` // offset of the first record that is not folded
	Quarantined int64        `json:"quarantined"`
	StreamTotals
}

// SourceStats is one source over all partitions and incarnations.
type SourceStats struct {
	Source       string `json:"source"`
	Incarnations int    `json:"incarnations"`
	StreamTotals
}

// NewLogStats returns what the folds have read at the view's position. It reads only streams and
// quarantine, so its cost does not grow with history.
func NewLogStats(view projections.View) (*LogStats, error) {
	at := view.Position()
	stats := &LogStats{Position: at.String(), Rows: map[string]int64{}}
	tallies, err := projections.TalliesOf(view)
	if err != nil {
		return nil, fmt.Errorf("count rows: %w", err)
	}
	for _, t := range tallies {
		if t.Rows > 0 {
			stats.Rows[t.Table.String()] += t.Rows
		}
	}
	parts := map[string]*PartitionStats{}
	for _, tp := range domain.AllPartitions() {
		stats.Partitions = append(stats.Partitions, PartitionStats{Topic: tp.Topic, Partition: tp.Partition, Next: at[tp]})
	}
	for i := range stats.Partitions {
		p := &stats.Partitions[i]
		parts[projections.StreamScope(domain.TopicPartition{Topic: p.Topic, Partition: p.Partition})] = p
	}
	sources := map[string]*SourceStats{}
	of := map[string][]*projections.Lives{} // the partitions of each source
	var part *projections.Lives
	var scope string
	for _, t := range []projections.Table{projections.TableStreams, projections.TableQuarantine} {
		err := view.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) error {
			p := parts[k.Scope]
			switch row := row.(type) {
			case *projections.Stream:
				if p == nil {
					return fmt.Errorf("stream %s is in no partition of the log", k)
				}
				p.add(row)
				s := sources[row.Source]
				if s == nil {
					s = &SourceStats{Source: row.Source}
					sources[row.Source] = s
				}
				if n := of[row.Source]; len(n) == 0 || part != n[len(n)-1] || scope != k.Scope {
					part, scope = &projections.Lives{}, strings.Clone(k.Scope)
					of[s.Source] = append(n, part)
				}
				if row.Past != nil {
					part.Past = row.Past
				} else {
					part.Open = append(part.Open, row.Incarnation)
				}
				s.add(row)
			case *projections.Quarantined:
				if p == nil {
					return fmt.Errorf("record %s is in no partition of the log", k)
				}
				p.Quarantined += int64(row.Events())
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	stats.Sources = []SourceStats{}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		sources[name].Incarnations = projections.IncarnationsOf(of[name])
		stats.Sources = append(stats.Sources, *sources[name])
	}
	return stats, nil
}
