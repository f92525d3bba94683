package storetest

import "quartermaster/domain"

// Scraped is one series in a scrape of a server: its values, one for each step from the scrape's
// beginning on.
type Scraped struct {
	Metric domain.SeriesMetric
	Bound  uint64
	Series uint64
	Values []uint64
}

// Scrape builds a scrape of one server of the model llama, from a time on, with one step between
// values.
func Scrape(deployment, unit string, from, step domain.Instant, series ...Scraped) *domain.MetricsObserved {
	const ms = domain.Second / 1000
	m := &domain.MetricsObserved{
		Base: from, StepMs: uint32(step / ms), Strings: []string{"vllm", deployment, "llama", unit},
		Engine: []uint32{1}, Deployment: []uint32{2}, Model: []uint32{3}, Tier: []uint32{0}, Unit: []uint32{4}, Node: []uint32{0},
	}
	for _, s := range series {
		m.Server = append(m.Server, 0)
		m.Metric = append(m.Metric, uint32(s.Metric))
		m.Bound = append(m.Bound, s.Bound)
		m.Series = append(m.Series, s.Series)
		m.Samples = append(m.Samples, uint32(len(s.Values)))
		for i, v := range s.Values {
			m.Offset = append(m.Offset, uint32(domain.Instant(i)*step/ms))
			m.Value = append(m.Value, v)
		}
	}
	return m
}
