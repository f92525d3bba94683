package projections

import (
	"slices"
	"strings"

	"quartermaster/domain"
)

// ServingHour is the row of a model server's deployment and UTC hour: sums of what its units
// reported, by source and quarter. An interval belongs to the quarter of an hour in which it starts.
type ServingHour struct {
	Sources []ServingSums `json:"sources"`
}

func (*ServingHour) row() {}

// ServingSums adds up the reports of one source in a quarter of the hour. Gauges are multiplied by milliseconds and summed,
// so that a mean is sum ÷ Known.
type ServingSums struct {
	Source           string `json:"source"`
	Quarter          uint8  `json:"quarter"` // 0 to 3
	Model            string `json:"model"`
	Tier             string `json:"tier,omitempty"`
	Engine           string `json:"engine"`
	Known            uint64 `json:"known_ms"` // summed over units
	QueueDepthMilli  uint64 `json:"queue_depth_milli_ms"`
	BatchSizeMilli   uint64 `json:"batch_size_milli_ms"`
	KVCachePermille  uint64 `json:"kv_cache_permille_ms"`
	PromptTokens     uint64 `json:"prompt_tokens"`
	GenerationTokens uint64 `json:"generation_tokens"`
	RequestsOK       uint64 `json:"requests_ok"`
	RequestsFailed   uint64 `json:"requests_failed"`
	// TTFT has one histogram for each set of bounds: different bounds cannot be merged without guessing.
	TTFT []domain.Histogram `json:"ttft"`
}

func servingKey(scope string, s *domain.ServingSampled) Key {
	return Key{Table: TableServing, Scope: scope, ID: s.Deployment + "|" + s.Model + "|" + s.Tier, Hour: HourOf(s.Interval.From)}
}

func foldServing(rows *WorkingSet, scope, source string, s *domain.ServingSampled) {
	row := change[*ServingHour](rows, servingKey(scope, s))
	quarter := uint8((s.Interval.From - s.Interval.From.HourStart()) / domain.QuarterHour)
	i := slices.IndexFunc(row.Sources, func(t ServingSums) bool {
		return t.Source == source && t.Engine == s.Engine && t.Quarter == quarter
	})
	if i < 0 {
		i = len(row.Sources)
		row.Sources = append(row.Sources, ServingSums{
			Source: strings.Clone(source), Quarter: quarter, Model: s.Model, Tier: s.Tier, Engine: s.Engine,
		})
	}
	t := &row.Sources[i]
	ms := uint64(s.Interval.Length() / NsPerMs)
	t.Known += ms
	t.QueueDepthMilli += s.QueueDepthMilli * ms
	t.BatchSizeMilli += s.BatchSizeMilli * ms
	t.KVCachePermille += s.KVCachePermille * ms
	t.PromptTokens += s.PromptTokens
	t.GenerationTokens += s.GenerationTokens
	t.RequestsOK += s.RequestsOK
	t.RequestsFailed += s.RequestsFailed
	if len(s.TTFT.Counts) == 0 {
		return
	}
	for j := range t.TTFT {
		h := &t.TTFT[j]
		if slices.Equal(h.Bounds, s.TTFT.Bounds) {
			for k, c := range s.TTFT.Counts {
				h.Counts[k] += c
			}
			h.Sum += s.TTFT.Sum
			return
		}
	}
	t.TTFT = append(t.TTFT, domain.Histogram{
		Bounds: slices.Clone(s.TTFT.Bounds), Counts: slices.Clone(s.TTFT.Counts), Sum: s.TTFT.Sum,
	})
}
