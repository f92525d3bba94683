package app

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/registry"
)

// CustomerReport is what a workspace is told about a month: what it cost, what was decided about it, and who read or
// could have read what it has. It is a function of the question and the position.
type CustomerReport struct {
	Workspace string          `json:"workspace"`
	Month     domain.Interval `json:"period"`
	Log       string          `json:"log"` // its id
	Position  string          `json:"position"`
	// Statement is that of the month; null if nothing is charged.
	Statement *CostStatement `json:"statement"`
	// Trail has the decisions of the month about the workspace, and Asked what was asked in it over the API that could
	// show the workspace. Could are the grants that counted in the month, in it, above it or in the whole estate.
	Trail []registry.Entry `json:"trail"`
	Asked []AskedOften     `json:"asked"`
	Could []access.Grant   `json:"could"`
	// Checkpoint is the newest that the log has at the position; absent if none was signed.
	Checkpoint *ExportedCheckpoint `json:"checkpoint,omitempty"`
}

// AskedOften is what somebody asked in a period.
type AskedOften struct {
	Principal domain.Principal `json:"principal"`
	Operation string           `json:"operation"`
	Count     uint64           `json:"count"`
	Refused   uint64           `json:"refused"`
	First     domain.Instant   `json:"first"` // begin of the minute
	Last      domain.Instant   `json:"last"`  // begin of the minute
}

// CustomerReport returns the report of a workspace about a month.
func (c *Caller) CustomerReport(ctx context.Context, at At, month domain.Interval, workspace string) (out *CustomerReport, err error) {
	if workspace == "" {
		return nil, invalid("workspace", "name the workspace that the report is for")
	}
	if !c.app.scope().IsWhole() {
		return nil, &DeniedError{Err: errors.New("a report says who could read a workspace, which needs a right in the root workspace")}
	}
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		asked, err := accessAudit(v, AccessAuditQuestion{Workspace: workspace, Period: month})
		if err != nil {
			return err
		}
		out = &CustomerReport{
			Workspace: workspace, Month: month, Log: h.ID, Position: v.Position().String(), Trail: []registry.Entry{},
			Asked: askedOften(asked.Asked), Could: asked.Could,
		}
		trail, err := trailOf(v, TrailQuestion{TrailFilter: registry.TrailFilter{Workspace: workspace, From: month.From, To: month.To}})
		if err != nil {
			return err
		}
		out.Trail = append(out.Trail, trail.Entries...)
		slices.SortStableFunc(out.Trail, func(a, b registry.Entry) int { return strings.Compare(a.Cluster, b.Cluster) })
		statements, err := c.costStatements(ctx, h, v, month, workspace)
		if none := (*NotFoundError)(nil); err != nil && !errors.As(err, &none) { // the workspace exists
			return err
		}
		if len(statements) > 0 {
			out.Statement = &statements[0]
		}
		out.Checkpoint, err = lastCheckpoint(v)
		return err
	})
	return out, err
}

// askedOften sums up what was asked, by principal and operation.
func askedOften(all []Access) []AskedOften {
	type of struct {
		principal domain.Principal
		operation string
	}
	sums := []AskedOften{}
	at := map[of]int{}
	for i := range all {
		a := &all[i]
		k := of{a.Principal, a.Operation}
		n, known := at[k]
		if !known {
			n = len(sums)
			at[k] = n
			sums = append(sums, AskedOften{Principal: a.Principal, Operation: a.Operation, First: a.Time, Last: a.Time})
		}
		s := &sums[n]
		s.Count, s.Refused, s.First, s.Last = s.Count+a.Count, s.Refused+a.Refused, min(s.First, a.Time), max(s.Last, a.Time)
	}
	slices.SortFunc(sums, func(a, b AskedOften) int {
		return cmp.Or(strings.Compare(string(a.Principal), string(b.Principal)), strings.Compare(a.Operation, b.Operation))
	})
	return sums
}
