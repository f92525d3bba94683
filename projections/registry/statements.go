package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Statement is a declaration that is valid, or will be valid, at a time.
type Statement struct {
	Workspace string         `json:"workspace,omitempty"` // of the event; "" if it belongs to none
	Name      string         `json:"name"`
	Since     domain.Instant `json:"since"`
	Until     domain.Instant `json:"until,omitempty"`      // when it ends, if it states that itself
	DecidedBy string         `json:"decided_by,omitempty"` // "" if it needs no signature
	Decided   domain.Instant `json:"decided,omitempty"`
	Source    string         `json:"source,omitempty"` // of the event
	Declared  any            `json:"declared"`         // the event, or the combination of several
}

// Statements returns the declarations of a table that are valid at a time, by workspace, name and
// since. Void decisions do not count. Past declarations are left out: a policy that ended, the
// budget of a past period, a window that is past or was cancelled, a deployment that was removed. A
// future window or period counts already.
func Statements(view projections.View, a *Authority, table projections.Table, at domain.Instant) ([]Statement, error) {
	out := []Statement{}
	err := view.Scan(projections.Query{Table: table}, func(k projections.Key, row projections.Row) error {
		h, ok := row.(*projections.History)
		if !ok {
			return nil
		}
		v := a.At(k, h, at)
		if v == nil {
			return nil
		}
		until, over := ends(v.Event, at)
		if over {
			return nil
		}
		s := Statement{
			Workspace: v.Workspace, Name: statementName(k, v.Event), Since: v.Order.Effective, Until: until,
			Source: v.Order.Source, Declared: v.Event,
		}
		if v.Signer != nil {
			s.DecidedBy, s.Decided = v.Signer.Operator, v.Signer.Time
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", table, err)
	}
	SortStatements(out)
	return out, nil
}

// SortStatements orders statements by workspace, name, since and decider.
func SortStatements(s []Statement) {
	slices.SortStableFunc(s, func(x, y Statement) int {
		return cmp.Or(
			cmp.Compare(x.Workspace, y.Workspace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Since, y.Since),
			cmp.Compare(x.DecidedBy, y.DecidedBy),
		)
	})
}

// Operators returns the keys that may decide at a time, one statement each, by workspace, operator
// and since. Declared is a [Grant].
func (a *Authority) Operators(at domain.Instant) []Statement {
	out := []Statement{}
	for _, g := range a.Grants() {
		if at < g.From || g.To != 0 && g.To <= at {
			continue
		}
		out = append(out, Statement{
			Workspace: g.Workspace, Name: g.Operator, Since: g.From, Until: g.To, DecidedBy: g.RegisteredBy,
			Decided: g.From, Declared: g,
		})
	}
	SortStatements(out)
	return out
}

// ends returns the end that an event states, 0 if none, and whether it is over at a time.
func ends(ev domain.Event, at domain.Instant) (until domain.Instant, over bool) {
	switch ev := ev.(type) {
	case *domain.PolicySet:
		until = ev.EffectiveTo
	case *domain.BudgetSet:
		until = ev.Period.To
	case *domain.CertificationHeld:
		until = ev.Valid.To
	case *domain.MaintenanceScheduled:
		until, over = ev.Window.To, ev.Cancelled
	case *domain.UsageCorrected:
		over = ev.Cancelled
	case *domain.OutageDeclared:
		over = ev.Cancelled
	case *domain.LegalHoldSet:
		over = ev.Lifted
	case *domain.DeploymentRemoved:
		over = true
	}
	return until, over || until != 0 && until <= at
}

// statementName names what a row declares within its workspace.
func statementName(k projections.Key, ev domain.Event) string {
	market := func(m domain.Market, rest ...string) string {
		parts := append([]string{m.Provider, m.Region}, rest...)
		return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "/")
	}
	switch ev := ev.(type) {
	case *domain.ClusterRegistered:
		return k.Scope
	case *domain.DeploymentChanged, *domain.MaintenanceScheduled, *domain.OutageDeclared, *domain.UsageCorrected:
		return k.Scope + "/" + k.ID
	case *domain.OnDemandQuotaSet:
		return market(ev.Market, ev.Account, ev.GPUModel)
	case *domain.TariffSet:
		return market(ev.Market)
	case *domain.CertificationHeld:
		return cmp.Or(ev.Cluster, ev.Provider) + "/" + ev.Certification
	}
	return k.ID
}
