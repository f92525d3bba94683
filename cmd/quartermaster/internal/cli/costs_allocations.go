package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

func (a *Program) costAllocationsCommand() *cobra.Command {
	var (
		period string
		filter costs.AllocationFilter
		where  []string
		limit  int
		asOf   string
	)
	cmd := &cobra.Command{
		Use:   "allocations",
		Short: "List the allocations of a month's lines",
		Long: `Allocations lists the parts of lines: one for each hour, workspace, cluster, deployment and
component. The parts of a line add up to the line, to the last digit. "quartermaster costs
explain ALLOCATION" traces one of them.`,
		Example: "  quartermaster costs allocations --period 2026-05 --workspace vc-a01\n" +
			"  quartermaster costs allocations --period 2026-05 --line LINE --limit 0 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			month, err := monthFlag("period", period)
			if err != nil {
				return err
			}
			if filter.Where, err = costs.ParseConditions(where); err != nil {
				return commandline.Usagef("--where: %w", err)
			}
			if limit < 0 {
				return commandline.Usagef("--limit %d: want 0 or more", limit)
			}
			t := a.table("hour", "workspace", "component", "currency", "billed", "effective", "allocation")
			alignRight(t, 5, 6)
			shown, generated := 0, false
			n, err := a.caller().Allocations(cmd.Context(), app.At(asOf), month, filter, func(l *costs.Allocation) error {
				if shown++; limit > 0 && shown > limit {
					return nil
				}
				if a.json {
					return a.jsonLine(l)
				}
				hour := l.Hour.String()
				if l.Hour == 0 {
					hour = "(whole period)"
				}
				generated = generated || l.Generated
				t.AppendRow(table.Row{hour, named(l.Workspace), l.Component.String(), l.Currency, l.Billed, l.Effective, l.Allocation})
				return nil
			})
			if missing := (*app.NotFoundError)(nil); errors.As(err, &missing) && missing.What == "line" {
				return fmt.Errorf("%w: \"quartermaster costs --period %s --by line\" lists the lines", err, period)
			}
			switch {
			case err != nil || a.json:
				return err
			case n == 0:
				return a.noBills(cmd.Context(), app.At(asOf), month, filter.Workspace)
			case generated:
				fmt.Fprintln(a.out, generatedNote)
			}
			t.Render()
			if limit > 0 && n > limit {
				fmt.Fprintf(a.out, "and %s more; see --limit\n", comma(n-limit))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "billing month in UTC, for example 2026-05 (required)")
	f.StringVar(&filter.Workspace, "workspace", "", "only the charges of this workspace")
	f.StringVar(&filter.Line, "line", "", "only this line: its id, or issuer|account|id")
	whereFlag(cmd, &where)
	f.IntVar(&limit, "limit", 100, "allocations to list; 0 is all")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	return cmd
}

// telling are the columns of a line to show, in order. JSON has all columns.
var telling = []string{
	"InvoiceIssuerName", "BillingAccountId", "InvoiceId", "InvoiceDetailId", "x_LineId", "BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd",
	"ChargeCategory", "ChargeClass", "ChargeFrequency", "ChargeDescription", "BilledCost", "EffectiveCost", "ListCost", "BillingCurrency",
	"PricingCategory", "PricingQuantity", "PricingUnit", "ConsumedQuantity", "ConsumedUnit", "CommitmentDiscountId", "CommitmentDiscountStatus",
	"CapacityReservationId", "CapacityReservationStatus", "ServiceProviderName", "ServiceName", "RegionId", "ResourceId", "ResourceName", "ResourceType", "SkuId", "SkuMeter", "SkuPriceDetails", "SubAccountId", "Tags", "Other", "x_Generated",
}

func (a *Program) showAllocation(x *costs.Explanation) {
	fmt.Fprintln(a.out, x.Allocation.Allocation)
	if x.Generated {
		fmt.Fprintln(a.out, "generated: this line is not from a supplier")
	}
	t := a.table()
	t.AppendRow(table.Row{"billed", fmt.Sprintf("%s %s, of %s for the line", x.Billed, x.Currency, x.Whole.Billed)})
	t.AppendRow(table.Row{"effective", fmt.Sprintf("%s %s, of %s for the line", x.Effective, x.Currency, x.Whole.Effective)})
	t.AppendRow(table.Row{"interval", fmt.Sprintf("%s to %s", x.Interval.From, x.Interval.To)})
	if x.Bought != 0 {
		t.AppendRow(table.Row{"GPU-hours", fmt.Sprintf("%s bought, %s allocated, useful %s", hoursCell(x.Bought), hoursCell(x.Allocated), usefulText(x.Useful))})
	}
	t.AppendRow(table.Row{"weight", fmt.Sprintf("%s of %s (%s)", x.Weight, x.Of, x.WeightUnit)})
	for _, why := range x.Why {
		t.AppendRow(table.Row{"because", why})
	}
	t.Render()

	if len(x.Usage) > 0 {
		fmt.Fprintln(a.out, "\nmachines")
		t := a.table("cluster", "node", "resource id", "type", "GPU-hours", "useful", "of")
		alignRight(t, 5, 7)
		for i, u := range x.Usage {
			if i < shownRows {
				useful := usefulText(x.Useful) // not measured for the whole allocation
				if x.Useful != nil {
					useful = gpuHours(u.UsefulMs)
				}
				t.AppendRow(table.Row{named(u.Cluster), named(u.Node), named(u.Resource), named(u.SKU), hoursCell(u.GPUMs), useful, hoursCell(u.PeriodMs)})
			}
		}
		t.Render()
		a.more(len(x.Usage))
	}

	fmt.Fprintln(a.out, "\nline")
	t = a.table()
	if x.Charge == nil {
		t.AppendRow(table.Row{x.Line, "generated for the rounding of the invoice; not from the supplier"})
	} else {
		columns := fields(x.Charge)
		for _, name := range telling {
			if s := columns[name]; s != "" && s != `""` && s != "null" {
				var plain string
				if json.Unmarshal([]byte(s), &plain) == nil {
					s = plain
				}
				t.AppendRow(table.Row{name, domain.Clip(s, 3*widest)})
			}
		}
	}
	if x.Whole.Corrects != "" {
		t.AppendRow(table.Row{"corrects", fmt.Sprintf("%s: %s", x.Whole.Corrects, x.Whole.Reason)})
	}
	if x.Whole.Stated > 1 {
		t.AppendRow(table.Row{"stated", fmt.Sprintf("%d times; this is the last", x.Whole.Stated)})
	}
	t.AppendRow(table.Row{"recorded by", fmt.Sprintf("%s in %s/%d, appended %s", x.Event.Type, x.Event.Topic, x.Event.Partition, x.Event.Appended)})
	t.AppendRow(table.Row{"of source", fmt.Sprintf("%s, incarnation %d, sequence %d", x.Event.Source, x.Event.Incarnation, x.Event.Sequence)})
	if x.Event.Line > 0 {
		t.AppendRow(table.Row{"of line", comma(int(x.Event.Line))})
	}
	t.Render()
	if raw := x.Raw; raw != nil {
		fmt.Fprintf(a.out, "\n%s:%d, sha256:%s\n", clipped(raw.File), raw.Line, raw.SHA256)
		t := a.table()
		for i, column := range raw.Columns {
			if i < len(raw.Values) && raw.Values[i] != "" {
				t.AppendRow(table.Row{column, domain.Clip(raw.Values[i], 3*widest)})
			}
		}
		t.Render()
	}

	fmt.Fprintln(a.out)
	if i := x.Invoice; i != nil {
		fmt.Fprintf(a.out, "invoice: %s %s, attributed %s", invoiceText(i.Invoice, i.Period), statusText(i), amountText(i.Attributed, i.Currency))
		if other := elsewhereText(i); other != "" {
			fmt.Fprintf(a.out, ", in other months %s", other)
		}
		if i.Status != attribution.NoInvoice {
			fmt.Fprintf(a.out, ", received %s, difference %s, rounding adjustment %s", amountText(i.Received, i.Currency), i.Difference, i.RoundingAdjustment)
		}
		fmt.Fprintln(a.out)
	}
	if s := x.Statement; s != nil {
		fmt.Fprintf(a.out, "statement: %s is charged %s of it, %s before rounding\n", clipped(s.Workspace), amountText(s.Amount.Amount, s.Currency), s.Billed)
	}
	if b := x.Books; b != nil {
		fmt.Fprintf(a.out, "closed by %s and %s at %s: this is the allocation as it was closed\n", clipped(b.Prepared), clipped(b.Approved), b.Closed)
	}
	for _, p := range x.Policies {
		fmt.Fprintln(a.out, policyText(p))
	}
	fmt.Fprintf(a.out, "method: %s on %s\nposition: %s\n", x.Methods.Attribution, x.Methods.Folds, a.position(x.Position))
	a.reportEnds(x.Completeness)
}
