package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// CostStatement is what a workspace is charged for a billing month: showback, or the paper behind a chargeback. It is
// final if the month's books are closed. Then it never changes: what changes the month later is a correction on the
// statement of the period that it is posted into, which names this one.
type CostStatement struct {
	// Number is the month, the workspace and, if it is final, the first digits of the digest of the closed allocations.
	Number    string             `json:"number"`
	Month     domain.Interval    `json:"period"`
	Workspace string             `json:"workspace"`
	Name      string             `json:"name,omitempty"`
	Final     bool               `json:"final"`
	Books     *costs.ClosedBooks `json:"books,omitempty"`
	Methods   costs.Methods      `json:"methods"`
	Position  string             `json:"position"`
	Generated bool               `json:"generated"`
	// Charged is what is charged in each currency: the sum of Invoices, in whole minor units.
	Charged     []attribution.Minor     `json:"charged"`
	Totals      []costs.Cost            `json:"totals"` // exact, one for each currency
	Components  []costs.Group           `json:"components"`
	Deployments []costs.Group           `json:"deployments"` // by cluster, deployment and GPU model
	Charges     []costs.Group           `json:"charges"`     // by charge category: usage, purchases, tax, credits
	Commitments []costs.Group           `json:"commitments"` // use and purchase of commitments, by commitment and component
	Invoices    []attribution.Statement `json:"invoices"`    // the part of each invoice
	// Loaded is what the workspace bears of the cost of pools, for information: it is not part of what is charged. It
	// is absent if no policy names pools.
	Loaded *costs.Loaded `json:"loaded,omitempty"`
	// Unreconciled is empty if every bill of the month reconciles, the workspace's or not.
	Unreconciled []costs.Unreconciled `json:"unreconciled"`
	// Corrections are what is posted into the month about the workspace in earlier closed months.
	Corrections []StatementCorrection `json:"corrections"`
	// Notes cancel earlier statements by the corrections.
	Notes []CreditNote `json:"credit_notes"`
	// Due is what is asked for in each currency: what is charged and the amounts of the notes.
	Due []Due `json:"due"`
	// Coverage is the share of held time with measured activity, in per mille; null if nothing was held.
	Coverage *int64 `json:"activity_coverage_permille"`
}

// StatementCorrection is what changed about an earlier statement, by reason.
type StatementCorrection struct {
	Corrects  string             `json:"corrects"` // number of that statement
	Type      costs.PostingType  `json:"posting_type"`
	Currency  string             `json:"currency"`
	Billed    attribution.Amount `json:"billed"`
	Effective attribution.Amount `json:"effective"`
	Postings  int                `json:"postings"`
	Causes    []string           `json:"causes"` // events
}

// statementNumber names a statement.
func statementNumber(month domain.Interval, workspace string, of *costs.ClosedBooks) string {
	number := MonthName(month) + "/" + workspace
	if of == nil {
		return number + "/preliminary"
	}
	return number + "/" + of.Digest[:8]
}

// CostStatements returns the statements of a month: of a workspace, or if that is "" of all that are charged something
// or have corrections, in their order.
func (c *Caller) CostStatements(ctx context.Context, at At, month domain.Interval, workspace string) (out []CostStatement, err error) {
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		out, err = c.costStatements(ctx, h, v, month, workspace)
		return err
	})
	return out, err
}

// costStatements is CostStatements for the rows of a view.
func (c *Caller) costStatements(
	ctx context.Context, h *Conn, v projections.View, month domain.Interval, workspace string,
) (out []CostStatement, err error) {
	posted, closes, err := h.postedWithin(ctx, v, month)
	if err != nil {
		return nil, err
	}
	notes, err := h.notesWithin(ctx, v, month)
	if err != nil {
		return nil, err
	}
	q := costs.EachWorkspace{Month: month, Only: workspace, By: statementReports}
	for i := range posted {
		if workspace == "" || posted[i].Workspace == workspace {
			q.Also = append(q.Also, posted[i].Workspace)
		}
	}
	reports, err := c.workspaceCosts(ctx, v, q)
	if err != nil {
		return nil, err
	}
	if workspace != "" && len(reports) == 0 {
		if err := charged(v, workspace); err != nil {
			return nil, err
		}
		return nil, &NotFoundError{What: "statement", Name: workspace, Err: fmt.Errorf("nothing of %s is charged to %s", MonthName(month), workspace)}
	}
	shared, err := c.sharedCosts(ctx, v, month, reports)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		s := newStatement(month, name, reports[name])
		if shared != nil {
			s.Loaded = shared.Of(name)
		}
		amounts := map[[2]string]attribution.Minor{}
		for i := range posted {
			p := &posted[i]
			if p.Workspace != name {
				continue
			}
			corrects, err := s.correct(p, func(m domain.Interval) *costs.ClosedBooks { return costs.BooksOf(closes, m) })
			if err != nil {
				return nil, err
			}
			amounts[[2]string{corrects, p.Currency}] = notes[costs.NoteOf{Month: p.Period, Workspace: name, Currency: p.Currency}]
		}
		s.note(amounts)
		out = append(out, *s)
	}
	return out, nil
}

// statementReports are the dimensions of the reports that a statement is made of.
var statementReports = [][]costs.Dimension{
	{costs.ByComponent}, {costs.ByCluster, costs.ByDeployment, costs.ByGPUModel}, {costs.ByCharge},
	{costs.ByCommitment, costs.ByComponent},
}

// workspaceCosts reports what workspaces are charged for a month, in one pass over it.
func (c *Caller) workspaceCosts(ctx context.Context, v projections.View, q costs.EachWorkspace) (map[string][]*costs.Report, error) {
	d, err := c.division(ctx, v, q.Month)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return costs.NewWorkspaceReports(v, q)
	}
	return d.WorkspaceReports(q)
}

// sharedCosts returns the loaded view of a month, nil if no policy names pools.
func (c *Caller) sharedCosts(ctx context.Context, v projections.View, month domain.Interval, reports map[string][]*costs.Report) (*costs.Loaded, error) {
	for _, of := range reports {
		if !of[0].HasPools() {
			return nil, nil // all are of one month
		}
		r, err := c.costs(ctx, v, costs.Query{Month: month, By: []costs.Dimension{costs.ByWorkspace}})
		if err != nil {
			return nil, err
		}
		return loaded(r, costs.ViewLoaded)
	}
	return nil, nil
}

// newStatement makes a statement of the reports of a workspace.
func newStatement(month domain.Interval, workspace string, of []*costs.Report) *CostStatement {
	r, deployments, charges, commitments := of[0], of[1], of[2], of[3]
	s := &CostStatement{
		Number: statementNumber(month, workspace, r.Books), Month: month, Workspace: workspace, Final: r.Books != nil, Books: r.Books,
		Methods: r.Methods, Position: r.Position, Generated: r.Generated, Charged: []attribution.Minor{}, Totals: r.Totals,
		Components: r.Groups, Deployments: deployments.Groups, Charges: charges.Groups, Commitments: []costs.Group{}, Invoices: r.Statements,
		Unreconciled: r.Unreconciled, Corrections: []StatementCorrection{}, Coverage: r.Coverage,
	}
	for _, g := range commitments.Groups {
		if g.Key[costs.ByCommitment] != "" {
			s.Commitments = append(s.Commitments, g)
		}
	}
	for i := range r.Totals {
		s.Charged = append(s.Charged, r.Totals[i].BilledMinor)
	}
	return s
}

// correct adds a posting about the workspace, and returns the number of the statement that it corrects.
func (s *CostStatement) correct(p *costs.Posting, books func(domain.Interval) *costs.ClosedBooks) (string, error) {
	month, err := projections.ParseMonth(p.Period)
	if err != nil {
		return "", fmt.Errorf("a posting about %q: %w", p.Period, err)
	}
	corrects := statementNumber(month, s.Workspace, books(month))
	i := slices.IndexFunc(s.Corrections, func(c StatementCorrection) bool {
		return c.Corrects == corrects && c.Type == p.Type && c.Currency == p.Currency
	})
	if i < 0 {
		i = len(s.Corrections)
		s.Corrections = append(s.Corrections, StatementCorrection{Corrects: corrects, Type: p.Type, Currency: p.Currency, Causes: []string{}})
	}
	c := &s.Corrections[i]
	c.Billed, c.Effective = c.Billed.Add(p.Billed), c.Effective.Add(p.Effective)
	c.Postings++
	for _, cause := range p.Causes {
		if at, known := slices.BinarySearchFunc(c.Causes, cause, strings.Compare); !known {
			c.Causes = slices.Insert(c.Causes, at, cause)
		}
	}
	return corrects, nil
}
