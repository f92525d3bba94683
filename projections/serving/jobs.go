package serving

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/usage"
)

// JobsReport says how jobs ended in [From, To), and how long jobs that started in it waited.
type JobsReport struct {
	Position string         `json:"position"`
	From     domain.Instant `json:"from"`
	To       domain.Instant `json:"to"`
	Groups   []JobsGroup    `json:"groups"` // by workspace, cluster and class
	Total    JobCounts      `json:"total"`
	registry.Completeness
}

// JobsGroup is the jobs of a class of a workspace in a cluster.
type JobsGroup struct {
	Workspace string               `json:"workspace"`
	Cluster   string               `json:"cluster"`
	Class     domain.WorkloadClass `json:"class"` // "" for jobs that were not seen in the queue
	JobCounts
}

// JobCounts adds up jobs.
type JobCounts struct {
	Finished    int `json:"finished"`
	Succeeded   int `json:"succeeded"`
	Failed      int `json:"failed"`
	Cancelled   int `json:"cancelled"`
	Preempted   int `json:"preempted"`
	Interrupted int `json:"interrupted"`
	// Success is the share of successful jobs among those that were not cancelled, and Retained the
	// mean share of surviving work of all finished jobs; null if there are none.
	Success  *int64 `json:"success_permille"`
	Retained *int64 `json:"retained_permille"` // mean share of work that survived
	// Wait is the exact queue wait of started jobs: that of the job with that rank.
	Started int    `json:"started"`
	WaitP50 *int64 `json:"queue_wait_p50_ms"`
	WaitP95 *int64 `json:"queue_wait_p95_ms"`
	WaitP99 *int64 `json:"queue_wait_p99_ms"` // of the job with that rank; null if none started

	retained int64
	waits    []domain.Instant
}

// JobsFilter selects jobs; empty fields match all.
type JobsFilter struct {
	Workspace, Cluster string
}

// Jobs returns how jobs ended and waited in [from, to).
func Jobs(view projections.View, from, to domain.Instant, filter JobsFilter) (*JobsReport, error) {
	if from <= 0 || to <= from {
		return nil, fmt.Errorf("jobs from %s to %s: want a time and a later one", from, to)
	}
	r := &JobsReport{Position: view.Position().String(), From: from, To: to, Groups: []JobsGroup{}}
	var err error
	span := domain.Interval{From: from, To: to}
	r.Completeness, err = registry.CompletenessOf(view, filter.Workspace, filter.Cluster, span, domain.TopicTelemetry)
	if err != nil {
		return nil, err
	}
	type name struct {
		workspace, cluster string
		class              domain.WorkloadClass
	}
	groups := map[name]*JobCounts{}
	query := projections.Query{Table: projections.TableJobs, Scope: filter.Cluster}
	err = view.Scan(query, func(k projections.Key, row projections.Row) error {
		n := name{cluster: k.Scope}
		var queued, started domain.Instant
		var ended *domain.JobFinished
		for _, v := range row.(*projections.History).Versions {
			at := v.Order.Effective
			n.workspace = cmp.Or(v.Workspace, n.workspace)
			switch ev := v.Event.(type) {
			case *domain.JobQueued:
				queued, n.class = at, ev.Class
			case *domain.JobStarted:
				started = at
			case *domain.JobFinished:
				if ended = nil; from <= at && at < to {
					ended = ev // the last event says how it ended
				}
			}
		}
		began := queued > 0 && from <= started && started < to
		if filter.Workspace != "" && filter.Workspace != n.workspace || ended == nil && !began {
			return nil
		}
		g := groups[n]
		if g == nil {
			g = &JobCounts{}
			groups[n] = g
		}
		for _, c := range []*JobCounts{g, &r.Total} {
			if began {
				c.waits = append(c.waits, max(0, started-queued))
			}
			c.end(ended)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	for _, n := range slices.SortedFunc(maps.Keys(groups), func(a, b name) int {
		return cmp.Or(cmp.Compare(a.workspace, b.workspace), cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.class, b.class))
	}) {
		g := groups[n]
		g.finish()
		r.Groups = append(r.Groups, JobsGroup{n.workspace, n.cluster, n.class, *g})
	}
	r.Total.finish()
	return r, nil
}

func (c *JobCounts) end(ev *domain.JobFinished) {
	if ev == nil {
		return
	}
	c.Finished++
	c.retained += int64(ev.RetainedPermille)
	switch ev.Outcome {
	case domain.JobSucceeded:
		c.Succeeded++
	case domain.JobFailed:
		c.Failed++
	case domain.JobCancelled:
		c.Cancelled++
	case domain.JobPreempted:
		c.Preempted++
	case domain.JobInterrupted:
		c.Interrupted++
	}
}

func (c *JobCounts) finish() {
	if n := int64(c.Finished - c.Cancelled); n > 0 {
		v := usage.Permille(int64(c.Succeeded), n)
		c.Success = &v
	}
	if c.Finished > 0 {
		v := c.retained / int64(c.Finished)
		c.Retained = &v
	}
	c.Started = len(c.waits)
	if c.Started == 0 {
		return
	}
	slices.Sort(c.waits)
	at := func(permille int) *int64 {
		v := int64(c.waits[(c.Started*permille+999)/1000-1] / projections.NsPerMs)
		return &v
	}
	c.WaitP50, c.WaitP95, c.WaitP99 = at(500), at(950), at(990)
}
