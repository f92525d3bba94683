package costs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Chart is the chart of accounts: the policies of kind ledger_account that are in effect when a month ends. As with
// other policies, only those of the root workspace count.
type Chart struct {
	entries map[string][]chartEntry // by scope; the first that fits counts
	columns []string                // that entries use, in order
}

// chartEntry says the account, cost centre or entity of costs.
type chartEntry struct {
	policy, value string
	columns       map[string]string
}

// textColumns are the exported columns of text, which a chart of accounts may use.
var textColumns = func() map[string]*exported {
	all := map[string]*exported{}
	for i := range exportedColumns {
		if c := &exportedColumns[i]; c.Kind == KindText && !strings.HasPrefix(c.Name, "x_Books") {
			all[c.Name] = c
		}
	}
	return all
}()

// The columns that say which entity a workspace is of, and which one gets an invoice.
const (
	workspaceColumn = "x_WorkspaceId"
	entityColumn    = "x_Entity"
)

var invoiceColumns = []string{"BillingAccountId", "InvoiceIssuerName"}

// ReadChart reads the chart of accounts as it is when a month ends. An error names the policies that no cost can fit.
func ReadChart(view projections.View, month domain.Interval) (*Chart, error) {
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	c := &Chart{entries: map[string][]chartEntry{}}
	used := map[string]bool{}
	var faults []string
	err = view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		v := a.At(k, row.(*projections.History), month.To-1)
		if v == nil || k.Scope != a.Root() {
			return nil
		}
		ev := v.Event.(*domain.PolicySet)
		if ev.Kind != domain.PolicyLedgerAccount || ev.EffectiveTo != 0 && ev.EffectiveTo < month.To {
			return nil
		}
		workspace, invoice := false, false
		for _, name := range slices.Sorted(maps.Keys(ev.Columns)) {
			if used[name] = true; textColumns[name] == nil {
				faults = append(faults, fmt.Sprintf("policy %s: %s is not a column of text of exported allocations", k.ID, name))
			}
			workspace, invoice = workspace || name == workspaceColumn, invoice || slices.Contains(invoiceColumns, name)
			if ev.Scope == domain.LedgerEntity && name != workspaceColumn && !slices.Contains(invoiceColumns, name) {
				faults = append(faults, fmt.Sprintf("policy %s: an entity is of %s, or of %s, and not of %s",
					k.ID, workspaceColumn, strings.Join(invoiceColumns, " and "), name))
			}
		}
		if ev.Scope == domain.LedgerEntity && workspace && invoice {
			faults = append(faults, fmt.Sprintf("policy %s: an entity is of a workspace or of invoices, not of both", k.ID))
		}
		c.entries[ev.Scope] = append(c.entries[ev.Scope], chartEntry{strings.Clone(k.ID), ev.Value, ev.Columns})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("the chart of accounts: %s", strings.Join(faults, "; "))
	}
	for _, list := range c.entries {
		slices.SortFunc(list, func(x, y chartEntry) int {
			return cmp.Or(cmp.Compare(len(y.columns), len(x.columns)), strings.Compare(x.policy, y.policy))
		})
	}
	c.columns = slices.Sorted(maps.Keys(used))
	return c, nil
}

// values are the texts of the columns that a chart uses, of an allocation.
func (c *Chart) values(p *part) map[string]string {
	values := make(map[string]string, len(c.columns))
	for _, name := range c.columns {
		if of := textColumns[name]; of.ofLine != nil {
			values[name] = of.ofLine(p)
		} else {
			values[name] = of.of(nil, p)
		}
	}
	return values
}

// entity returns the legal entity of a workspace in an hour: its own, else what the chart says.
func (c *Chart) entity(own ownership, workspace string) (string, bool) {
	if own.entity != "" {
		return own.entity, true
	}
	return c.find(domain.LedgerEntity, map[string]string{workspaceColumn: workspace})
}

// invoiceEntity returns the legal entity that gets the invoices of an account.
func (c *Chart) invoiceEntity(issuer, account string) (string, bool) {
	return c.find(domain.LedgerEntity, map[string]string{"InvoiceIssuerName": issuer, "BillingAccountId": account})
}

// find returns what the chart says for a scope. It reports false if no entry fits.
func (c *Chart) find(scope string, values map[string]string) (string, bool) {
	for i := range c.entries[scope] {
		e, fits := &c.entries[scope][i], true
		for name, want := range e.columns {
			fits = fits && attribution.Fits(values[name], want)
		}
		if fits {
			return e.value, true
		}
	}
	return "", false
}
