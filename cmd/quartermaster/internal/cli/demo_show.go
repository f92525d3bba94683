package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
	"quartermaster/projections/usage"
)

// shownTenants bounds the workspaces that the demo lists.
const shownTenants = 20

// show shows the inventory, its usage and the costs.
func (d *demoRun) show(ctx context.Context) error {
	c := d.caller()
	inv, err := c.Fleet(ctx, "", inventory.Filter{At: demoNow - domain.Hour})
	if err != nil {
		return err
	}
	used, err := c.Usage(ctx, "", demoMonth, usage.Filter{Cluster: d.billed}, usage.ByWorkspace)
	if err != nil {
		return err
	}
	models, err := c.Models(ctx, "", demoNow-domain.Hour, domain.Hour, inventory.ModelFilter{})
	if err != nil {
		return err
	}
	costs, err := c.Costs(ctx, "", demoCosts)
	if err != nil {
		return err
	}
	if err := d.planted(inv, costs); err != nil {
		return err
	}
	if err := d.owed(costs); err != nil || d.app.json {
		return err
	}
	out := d.app.out
	fmt.Fprintf(out, "\n== Fleet on %s (%s)\n", day(inv.At), d.label)
	short := *inv
	short.Exceptions = nil
	d.app.showFleet(&short, false, "")
	counts := map[string]int{}
	for _, e := range inv.Exceptions {
		counts[e.Kind]++
	}
	var parts []string
	for _, k := range sorted(counts) {
		parts = append(parts, fmt.Sprintf("%s %s", comma(counts[k]), k))
	}
	if len(parts) > 0 {
		fmt.Fprintf(out, "exceptions: %s\n", strings.Join(parts, ", "))
	}
	d.showPlanted("fleet")

	fmt.Fprintf(out, "\n== Who used %s in May 2026\n", d.billed)
	if len(used.Groups) > shownTenants {
		used.Groups = used.Groups[:shownTenants]
	}
	d.app.showUsage(used)
	if t := &used.Total; t.Service > 0 {
		fmt.Fprintf(out, "utilization: %d.%d%% of the time in service was held\n", t.Allocated*1000/t.Service/10, t.Allocated*1000/t.Service%10)
	}
	status := map[string]int{}
	for _, m := range models.Deployments {
		status[string(m.Status)]++
	}
	parts = parts[:0]
	for _, k := range sorted(status) {
		parts = append(parts, fmt.Sprintf("%s %s", comma(status[k]), k))
	}
	fmt.Fprintf(out, "deployments: %s\n", strings.Join(parts, ", "))

	if err := d.showRun(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n== Who owes what for May 2026 (the bill is generated)\n")
	err = d.app.showCosts(ctx, "", costs)
	d.showPlanted("costs")
	return err
}

// demoCosts asks for the costs of the demo's month, by workspace and component.
var demoCosts = costs.Query{Month: demoMonth, By: []costs.Dimension{costs.ByWorkspace, costs.ByComponent}}

// owed records the totals. It fails if an invoice differs from the attributed amount, which would
// be a defect, because the two were computed independently. It does not accept rounding
// adjustments.
func (d *demoRun) owed(r *costs.Report) error {
	received, attributed := decimal.Zero, decimal.Zero
	for i := range r.Invoices {
		t := &r.Invoices[i]
		received, attributed = received.Add(t.Received.Decimal()), attributed.Add(t.Attributed.Decimal())
		if t.Status != attribution.Reconciled {
			return fmt.Errorf("invoice %s is %s: %s received, %s attributed", t.Invoice, t.Status, t.Received, t.Attributed)
		}
	}
	if len(r.Invoices) == 0 || !received.Equal(attributed) {
		return fmt.Errorf("invoices of %s do not reconcile with %s attributed", received, attributed)
	}
	d.ans.InvoiceTotal, d.ans.AttributedTotal = received.StringFixed(2), attributed.StringFixed(2)
	d.ans.Difference, d.ans.Exceptions = received.Sub(attributed).StringFixed(2), len(r.Exceptions)
	return nil
}

func sorted(counts map[string]int) []string { return slices.Sorted(maps.Keys(counts)) }
