package costs

import (
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
)

// EachWorkspace asks for reports of every workspace that is charged something for a month. All are answered in one pass
// over the month's allocations.
type EachWorkspace struct {
	Month domain.Interval
	// Only restricts the answer to one workspace; "" for all.
	Only string
	// Also are workspaces that get reports even if nothing is charged to them.
	Also []string
	// By has the dimensions of each report of a workspace.
	By [][]Dimension
}

// workspaceSums adds up allocations for the reports of workspaces. Its size grows with their groups.
type workspaceSums struct {
	query *EachWorkspace
	of    map[string][]*sums
}

func newWorkspaceSums(q *EachWorkspace) (*workspaceSums, error) {
	w := &workspaceSums{query: q, of: map[string][]*sums{}}
	if _, err := w.sums(""); err != nil { // what is wrong with the query is found although nothing is charged
		return nil, err
	}
	delete(w.of, "")
	for _, name := range q.Also {
		if _, err := w.sums(name); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// sums returns the sums of a workspace.
func (w *workspaceSums) sums(workspace string) ([]*sums, error) {
	if all, ok := w.of[workspace]; ok {
		return all, nil
	}
	all := make([]*sums, len(w.query.By))
	for i, by := range w.query.By {
		var err error
		if all[i], err = newSums(&Query{Month: w.query.Month, Workspace: workspace, By: by}); err != nil {
			return nil, err
		}
	}
	w.of[workspace] = all
	return all, nil
}

// each calls to with the sums of an allocation's workspace.
func (w *workspaceSums) each(p *part, to func(*sums)) error {
	workspace := p.allocation.Workspace
	if w.query.Only != "" && workspace != w.query.Only {
		return nil
	}
	all, err := w.sums(workspace)
	for _, s := range all {
		to(s)
	}
	return err
}

func (w *workspaceSums) add(p *part) error { return w.each(p, func(s *sums) { s.add(p) }) }

// WorkspaceReports answers a query of the division's month: by workspace, a report for each of By, each equal to what
// [Division.Report] returns for that workspace.
func (d *Division) WorkspaceReports(q EachWorkspace) (map[string][]*Report, error) {
	if q.Month != d.Month {
		return nil, fmt.Errorf("a division of %s is asked about %s", monthText(d.Month), monthText(q.Month))
	}
	w, err := newWorkspaceSums(&q)
	if err != nil {
		return nil, err
	}
	kept, err := d.sum(&Query{By: slices.Concat(q.By...)}, func(p *part, c *Cost, n int) error {
		return w.each(p, func(s *sums) { s.addSum(p, c, n) })
	})
	if err == nil && !kept {
		err = d.each(w.add)
	}
	if err != nil {
		return nil, err
	}
	return d.workspaceReports(w), nil
}

// NewWorkspaceReports divides a billing month, and answers a query as [Division.WorkspaceReports] does. Its memory
// grows with lines, nodes and groups.
func NewWorkspaceReports(view projections.View, q EachWorkspace) (map[string][]*Report, error) {
	w, err := newWorkspaceSums(&q)
	if err != nil {
		return nil, err
	}
	d, err := divide(view, q.Month, w.add)
	if err != nil {
		return nil, err
	}
	if d, err = d.At(view); err != nil {
		return nil, err
	}
	return d.workspaceReports(w), nil
}

func (d *Division) workspaceReports(w *workspaceSums) map[string][]*Report {
	// Each report sees only what is about its workspace, so that many workspaces do not each look at all of it.
	statements, held := map[string][]attribution.Statement{}, map[string][]HeldTime{}
	for _, s := range d.Statements {
		statements[s.Workspace] = append(statements[s.Workspace], s)
	}
	for _, h := range d.Held {
		held[h.Workspace] = append(held[h.Workspace], h)
	}
	unreconciled := d.Unreconciled()
	out := make(map[string][]*Report, len(w.of))
	for workspace, all := range w.of {
		of := *d
		of.Statements, of.Held = statements[workspace], held[workspace]
		for _, s := range all {
			out[workspace] = append(out[workspace], of.report(s, unreconciled))
		}
	}
	return out
}
