package usage

import (
	"cmp"
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/dimension"
)

// Workloads knows the classes and models of deployments. Its size grows with deployments.
type Workloads struct {
	deployments  map[workload]*projections.History
	last         workloadAt
	class, model string // of last
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
	w.find(workloadAt{workload{cluster, deployment}, workspace, during})
	return w.class
}

// Model returns the model that a workspace's deployment serves or trains during a time, found like its class;
// [dimension.None] if it is declared without one.
func (w *Workloads) Model(cluster, deployment, workspace string, during domain.Interval) string {
	w.find(workloadAt{workload{cluster, deployment}, workspace, during})
	return w.model
}

func (w *Workloads) find(at workloadAt) {
	if w.class != "" && at == w.last {
		return
	}
	w.last = at
	w.class = w.declared(&at, func(ev *domain.DeploymentChanged) string { return string(ev.Class) })
	w.model = w.declared(&at, func(ev *domain.DeploymentChanged) string { return cmp.Or(ev.Model, dimension.None) })
}

// declared returns the property of a deployment that was declared last; see [Workloads.Class]. An empty one is not
// declared.
func (w *Workloads) declared(at *workloadAt, of func(*domain.DeploymentChanged) string) string {
	h := w.deployments[at.workload]
	if h == nil {
		return dimension.Unknown
	}
	found := ""
	for i := range h.Versions {
		v := &h.Versions[i]
		ev, ok := v.Event.(*domain.DeploymentChanged)
		if !ok || v.Workspace != at.workspace || of(ev) == "" {
			continue
		}
		switch from, value := v.Order.Effective, of(ev); {
		case found == "" || from <= at.during.From:
			found = value
		case from >= at.during.To:
			return found
		case found != value:
			return dimension.Mixed
		}
	}
	return cmp.Or(found, dimension.Unknown)
}
