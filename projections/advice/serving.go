package advice

import (
	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections/serving"
)

// serving reads the work of model servers: of the day, and of the last whole quarter of an hour.
func (r *reader) serving() error {
	quarter := domain.Interval{From: r.at.QuarterStart() - domain.QuarterHour, To: r.at.QuarterStart()}
	for _, x := range []struct {
		window domain.Interval
		to     *[]advice.Served
	}{{r.last(domain.Day), &r.f.FirstTokens}, {quarter, &r.f.Servers}} {
		groups, err := serving.Groups(r.view, x.window.From, x.window.To, serving.Filter{})
		if err != nil {
			return err
		}
		for i := range groups {
			*x.to = append(*x.to, r.served(x.window, &groups[i]))
		}
	}
	return nil
}

func (r *reader) served(window domain.Interval, g *serving.Group) advice.Served {
	s := advice.Served{
		Window: window, Cluster: g.Cluster, Model: g.Model, Tier: g.Tier, KVCache: -1, Deployments: g.Deployments,
		Requests: g.RequestsOK + g.RequestsFailed + g.RequestsAborted,
	}
	s.Workspace, s.Class = r.serves(g.Cluster, g.Deployments)
	if len(g.TTFT) > 0 {
		t := &g.TTFT[0]
		s.Requests = max(s.Requests, t.Count)
		if t.P50 != nil && t.P95 != nil {
			s.FirstTokenP50, s.FirstTokenP95 = t.P50.Micros, t.P95.Micros
		}
	}
	if len(g.QueueWait) > 0 && g.QueueWait[0].P95 != nil {
		s.WaitP95 = g.QueueWait[0].P95.Micros
	}
	if g.KVCache != nil {
		s.KVCache = int64(min(*g.KVCache, 1000))
	}
	return s
}

// serves returns the workspace and the class that all deployments declare. If they differ or declare none, the workspace
// is the cluster's owner, and the class "".
func (r *reader) serves(cluster string, deployments []string) (workspace, class string) {
	for i, d := range deployments {
		e := r.declared[deployed{cluster, d}]
		if e == nil || i > 0 && e.Workspace != workspace {
			return r.owner(cluster), ""
		}
		if i > 0 && string(e.Class) != class {
			class = ""
			continue
		}
		workspace, class = e.Workspace, string(e.Class)
	}
	if workspace == "" {
		workspace = r.owner(cluster)
	}
	return workspace, class
}
