package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
)

func (a *Program) costOwnedCommand() *cobra.Command {
	var period, out, asOf string
	cmd := &cobra.Command{
		Use:   "owned",
		Short: "Make the month's internal invoices of owned hardware",
		Long: `Owned computes what owned hardware is charged for a month: an internal invoice for each asset,
with depreciation, power and what its site charges. With --out it writes them as FOCUS 1.4,
Cost and Usage and Invoice Detail. Import both files: they are matched, divided and
reconciled like a supplier's bill. A bill of the month that was imported before is replaced.

Assets, tariffs and policies are declared with "quartermaster apply":

  assets:
    - id: dgx-01
      cluster: lab
      nodes: [dgx-01]
      capex: 300000 USD
      residual: 30000 USD
      in_service_from: 2026-01-01
      life: 60 months
      power_watts: 10200          # nameplate
      site: hall-1
      general_ledger: "160100-17"
  asset_revisions:                # changes what comes after it; what it leaves out stays
    - {asset: dgx-01, cluster: lab, effective_from: 2028-01-01, life: 72 months, impairment: 20000 USD}
  asset_disposals:
    - {asset: dgx-01, cluster: lab, at: 2030-07-01, proceeds: 25000 USD}
  tariffs:
    - operator: own
      site: hall-1
      effective_from: 2026-01-01
      per_kwh: 0.21 USD
      pue: 1.3
      rates:                      # a month and unit
        - {cost: space, per: rack_unit, price: 45 USD}
        - {cost: staff, per: gpu, price: 12 USD}
  policies:                       # of the first workspace, as they are when the month begins
    - {id: begins, kind: depreciation, value: full_month}   # or daily (default), half_month, next_month
    - {id: capital, kind: capital_charge, share: 0.08}      # a year, on the carrying amount

Depreciation is straight-line: every full month has the same part. Power is what meters counted
("quartermaster import energy") times price and PUE. For time without a reading the nameplate is
charged, on a line of its own that is marked as estimated. A gain or loss on disposal and an
impairment are charged in their month. Nothing is guessed: what lacks a tariff, a currency or a
registered node is listed as a problem.

The lines of the nodes name the node's resource id, or its name if it has none, and the cluster's
billing account, or its id. The cluster has provider_class owned. An asset without nodes, such as
a switch, is charged to the cluster's account as a whole.`,
		Example: "  quartermaster costs owned --period 2026-05\n" +
			"  quartermaster costs owned --period 2026-05 --out bills\n" +
			"  quartermaster import focus bills/owned-2026-05.csv bills/owned-2026-05-invoices.csv",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			month, err := monthFlag("period", period)
			if err != nil {
				return err
			}
			ans, err := a.caller().BillOwned(cmd.Context(), app.At(asOf), month, out)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showOwned(ans)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "month to bill, for example 2026-05 (required)")
	f.StringVar(&out, "out", "", "directory to write the bill to")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	return cmd
}

func (a *Program) costTCOCommand() *cobra.Command {
	var period, asOf, by string
	cmd := &cobra.Command{
		Use:   "tco [ASSET]",
		Short: "Show what owned hardware cost an hour, beside what it costs elsewhere",
		Long: `Tco shows the total cost of ownership of each asset in a month, from its internal invoices ("costs
owned"): per GPU-hour in service, held and useful. Beside it are offers for the same GPU model in
the same currency as the month ends ("import prices"), the cheapest of each provider and kind. An
upfront amount is spread over its term.

With ASSET, as cluster/asset or the asset alone, it shows one asset with its components. --by sums up
assets by asset, gpu_model, cluster, region or provider. What several GPU models cost together is compared
with no offer.

Break-even is the part of the hours in service from which owning cost no more than renting the hours
that are used. Above 100%, renting every hour would have cost less.

A closed month is answered as it was closed, with the offers of then.`,
		Example: "  quartermaster costs tco --period 2026-05\n  quartermaster costs tco lab/dgx-01 --period 2026-05\n" +
			"  quartermaster costs tco --period 2026-05 --by gpu_model -o json",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			month, err := monthFlag("period", period)
			if err != nil {
				return err
			}
			asset := ""
			if len(args) > 0 {
				asset = args[0]
			}
			t, err := a.caller().TCO(cmd.Context(), app.At(asOf), month, asset, costs.TCODimension(by))
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(t)
			}
			a.showTCO(t, asset != "")
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "month to show, for example 2026-05 (required)")
	f.StringVar(&by, "by", "", "sum up assets by asset, gpu_model, cluster, region or provider")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	return cmd
}

func (a *Program) showTCO(t *costs.TCO, components bool) {
	if len(t.Assets) == 0 {
		fmt.Fprintf(a.out, "no lines of owned hardware in %s: \"quartermaster costs owned\" makes its bill\n", app.MonthName(t.Month))
		return
	}
	rate := func(d *domain.Decimal, absent costs.Absent) string {
		if d == nil {
			return string(absent)
		}
		return d.StringFixed(4)
	}
	of := "asset"
	type row struct {
		name, model string
		cost        *costs.Cost
		charges     []costs.OwnedCharge
		elsewhere   []costs.Elsewhere
	}
	var rows []row
	if t.By != "" {
		of = strings.ReplaceAll(string(t.By), "_", " ")
		for i := range t.Groups {
			g := &t.Groups[i]
			rows = append(rows, row{orNone(g.Key), g.GPUModel, &g.Cost, g.Charges, g.Elsewhere})
		}
	} else {
		for i := range t.Assets {
			x := &t.Assets[i]
			rows = append(rows, row{x.Asset, x.GPUModel, &x.Cost, x.Charges, x.Elsewhere})
		}
	}
	totals := a.table(of, "GPU model", "cost", "currency", "GPU-hours", "per hour in service", "per hour held", "per useful hour")
	for _, x := range rows {
		totals.AppendRow(table.Row{
			x.name, x.model, moneyCell(x.cost.Effective.Decimal()), x.cost.Currency, hoursCell(x.cost.Bought),
			rate(x.cost.PerBought, x.cost.PerBoughtAbsent), rate(x.cost.PerAllocated, x.cost.PerAllocatedAbsent),
			rate(x.cost.PerUseful, x.cost.PerUsefulAbsent),
		})
	}
	totals.Render()
	if components {
		parts := a.table(of, "for", "billed", "currency")
		for _, x := range rows {
			for _, c := range x.charges {
				parts.AppendRow(table.Row{x.name, c.What, moneyCell(c.Billed), x.cost.Currency})
			}
		}
		parts.Render()
	}
	offers := a.table(of, "elsewhere", "region", "offer", "kind", "per GPU-hour", "currency", "break-even")
	n := 0
	for _, x := range rows {
		for _, e := range x.elsewhere {
			breakEven := "no hour in service"
			if e.BreakEven != nil {
				breakEven = fmt.Sprintf("%d.%d%%", *e.BreakEven/10, *e.BreakEven%10)
			}
			offers.AppendRow(table.Row{x.name, e.Provider, e.Region, e.Offer, e.Kind, e.PerGPUHour.StringFixed(4), x.cost.Currency, breakEven})
			n++
		}
	}
	if n > 0 {
		offers.Render()
	}
	a.showPosition(t.Position)
	a.reportEnds(t.Completeness)
}

func (a *Program) showOwned(ans *app.OwnedAnswer) {
	t := a.table("cluster", "asset", "invoice", "for", "billed", "currency")
	for i := range ans.Invoices {
		inv := &ans.Invoices[i]
		for _, c := range inv.Charges {
			t.AppendRow(table.Row{inv.Cluster, inv.Asset, inv.Invoice, c.What, moneyCell(c.Billed), inv.Total.Currency})
		}
	}
	for _, total := range ans.Totals {
		t.AppendRow(table.Row{"total", "", "", "", moneyCell(total.Amount), total.Currency})
	}
	t.Render()
	var problems []inventory.Exception
	for _, p := range ans.Problems {
		problems = append(problems, inventory.Exception{Kind: string(p.Kind), Subject: p.Subject, Detail: p.Detail})
	}
	a.showExceptions(problems)
	if n := len(ans.Withdrawn); n > 0 {
		fmt.Fprintf(a.out, "%d lines of an earlier bill are withdrawn: their cost is now 0\n", n)
	}
	if ans.Files != nil {
		fmt.Fprintf(a.out, "written; import it with: quartermaster import focus %s %s\n", ans.Files.Lines, ans.Files.Invoices)
	}
}
