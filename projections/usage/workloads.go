package usage

import (
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/dimension"
)

// Workloads knows the classes of deployments. Its size grows with deployments.
type Workloads struct {
	deployments map[workload]*projections.History
	last        workloadAt
	class       string // of last
}

type workload struct{ cluster, deployment string }

type workloadAt struct {
	workload
	workspace string
	during    domain.Interval
}

// ReadWorkloads reads the declarations of deployments.
func ReadWorkloads(view projections.View) (*Workloads, error) {
	w := &Workloads{deployments: map[workload]*projections.History{}}
	err := view.Scan(projections.Query{Table: projections.TableDeployments}, func(k projections.Key, row projections.Row) error {
		w.deployments[workload{k.Scope, k.ID}] = row.(*projections.History)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read deployments: %w", err)
	}
	return w, nil
}

// History returns the declarations of a deployment, nil for none.
func (w *Workloads) History(cluster, deployment string) *projections.History {
	return w.deployments[workload{cluster, deployment}]
}

// Class returns the class of a workspace's deployment during a time: the class last declared before
// it, else the first; [dimension.Mixed] if another class was declared within it. An interval of
// zero length is a moment. For a deployment that the workspace did not declare itself, the class is
// [dimension.Unknown].
func (w *Workloads) Class(cluster, deployment, workspace string, during domain.Interval) string {
	at := workloadAt{workload{cluster, deployment}, workspace, during}
	if w.class == "" || at != w.last {
		w.last, w.class = at, w.classOf(&at)
	}
	return w.class
}

func (w *Workloads) classOf(at *workloadAt) string {
	h := w.deployments[at.workload]
	if h == nil {
		return dimension.Unknown
	}
	class := ""
	for i := range h.Versions {
		v := &h.Versions[i]
		ev, ok := v.Event.(*domain.DeploymentChanged)
		if !ok || v.Workspace != at.workspace || ev.Class == "" {
			continue
		}
		switch from := v.Order.Effective; {
		case class == "" || from <= at.during.From:
			class = string(ev.Class)
		case from >= at.during.To:
			return class
		case class != string(ev.Class):
			return dimension.Mixed
		}
	}
	if class == "" {
		return dimension.Unknown
	}
	return class
}
