package main

import (
	"encoding/json"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

const allocationKeys = `allocation (its reference), line, invoice, hour (empty: the whole charge period),
  workspace, cluster, deployment, component, class, match method, currency, billed,
  effective, bought_gpu_ms, allocated_gpu_ms, useful_gpu_ms, generated`

func (a *app) costAllocationsCommand() *cobra.Command {
	var (
		period string
		filter costs.AllocationFilter
		limit  int
		asOf   string
	)
	cmd := &cobra.Command{
		Use:   "allocations",
		Short: "List the parts that a month's lines were divided into",
		Long: `Allocations lists the parts of lines: one for each hour, workspace, cluster,
deployment and component. The parts of a line add up to it, to the last digit.
"quartermaster costs explain ALLOCATION" says where one comes from.

JSON keys, one object per line:
  ` + allocationKeys + `.`,
		Example: "  quartermaster costs allocations --period 2026-05 --workspace vc-a01\n" +
			"  quartermaster costs allocations --period 2026-05 --line LINE --limit 0 --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			month, err := monthFlag(period)
			if err != nil {
				return err
			}
			if limit < 0 {
				return commandline.Usagef("--limit %d: want 0 or more", limit)
			}
			return a.readAt(cmd.Context(), asOf, func(h *home) error {
				return h.view(cmd.Context(), func(v projections.View) error {
					t := a.table("hour", "workspace", "component", "currency", "billed", "effective", "allocation")
					alignRight(t, 5, 6)
					n, generated := 0, false
					err := costs.EachAllocation(v, month, filter, func(l *costs.Allocation) error {
						n++
						if limit > 0 && n > limit {
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
						t.AppendRow(table.Row{hour, clipped(l.Workspace), l.Component.String(), l.Currency, l.Billed, l.Effective, l.Allocation})
						return nil
					})
					if err != nil {
						return err
					}
					if n == 0 {
						if err := carries(v, filter.Workspace); err != nil {
							return err
						}
						if filter.Line != "" {
							return &application.NotFoundError{What: "line", Name: filter.Line, Err: fmt.Errorf("no allocation of line %q in %s: \"quartermaster costs --period %s --by line\" lists the lines", filter.Line, monthName(month), monthName(month))}
						}
						if !a.json {
							return a.noBills(v, month, filter.Workspace)
						}
					}
					if a.json {
						return nil
					}
					if generated {
						fmt.Fprintln(a.out, generatedNote)
					}
					t.Render()
					if limit > 0 && n > limit {
						fmt.Fprintf(a.out, "and %s more; see --limit\n", comma(n-limit))
					}
					return nil
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "billing month in UTC, for example 2026-05 (required)")
	f.StringVar(&filter.Workspace, "workspace", "", "only what this workspace carries")
	f.StringVar(&filter.Line, "line", "", "only this line: its id, or issuer|account|id")
	f.IntVar(&limit, "limit", 100, "allocations to list; 0 is all")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	return cmd
}

func (a *app) costExplainCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "explain ALLOCATION",
		Short: "Where a cent comes from: its line, interval, machines, rule and event",
		Long: `Explain traces one allocation, as "quartermaster costs allocations" lists them: to the line
as the supplier wrote it and the event that recorded it, to the class of the line
and how it found its machines, to the time by which it was divided, to the
policies, method versions and position, and to the invoice and the statement
that it is in. Quote the allocation, because it has semicolons.

JSON keys, beside those of an allocation
  (` + allocationKeys + `):
  program (version, commit, date, methods: what made the report);
  position, period, methods (folds, attribution), policies (kind, value, policy,
    workspace, effective_from, operator);
  weight, of and weight_unit: the allocation gets weight of of of its line, in gpu_ms,
    money (what it follows cost), share (of a sponsor) or whole; why;
  interval (from, to): the part of the charge period that it is for;
  usage: the machines that the line was divided by (cluster, node, resource_id,
    sku, registered; gpu_ms, what each weighs here, and useful_gpu_ms of it;
    period_gpu_ms, all of its time in the charge period) and unseen_gpu_ms, what
    was bought beyond their time;
  followed: what the line was divided after (scope: resource, invoice_detail,
    invoice, account or commitment; name, period, lines, billed, effective), or
    null;
  charge: the line in the columns of FOCUS, with x_LineId, x_FocusVersion,
    x_Generated and Other, the columns that FOCUS does not define;
  whole: the line divided (billed, effective, allocations, corrects, reason, stated:
    how often);
  event (type, topic, partition, key, source, incarnation, sequence, time,
    appended);
  invoice_reconciliation and statement: as invoices and statements of
    "quartermaster costs";
  incomplete, missing.`,
		Example: `  quartermaster costs explain 'issuer=AWS;account=1234;line=L1;hour=2026-05-01T00:00:00Z;workspace=research;cluster=c1;deployment=chat;component=allocated'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := attribution.ParseRef(args[0])
			if err != nil {
				return fmt.Errorf("%w; \"quartermaster costs allocations --period MONTH\" lists allocations, and each goes between quotes", err)
			}
			return a.readAt(cmd.Context(), asOf, func(h *home) error {
				return h.view(cmd.Context(), func(v projections.View) error {
					x, err := costs.Explain(v, ref)
					if err != nil {
						return err
					}
					if a.json {
						return a.answerReport(x)
					}
					a.showAllocation(x)
					return nil
				})
			})
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

// telling are the columns of a line that say what it is for, in the order in
// which they are shown; JSON has all.
var telling = []string{
	"InvoiceIssuerName", "BillingAccountId", "InvoiceId", "InvoiceDetailId", "x_LineId", "BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd",
	"ChargeCategory", "ChargeClass", "ChargeFrequency", "ChargeDescription", "BilledCost", "EffectiveCost", "ListCost", "BillingCurrency",
	"PricingCategory", "PricingQuantity", "PricingUnit", "ConsumedQuantity", "ConsumedUnit", "CommitmentDiscountId", "CommitmentDiscountStatus",
	"CapacityReservationId", "CapacityReservationStatus", "ServiceProviderName", "ServiceName", "RegionId", "ResourceId", "ResourceName", "ResourceType", "SkuId", "SkuMeter", "SkuPriceDetails", "SubAccountId", "Tags", "Other", "x_Generated",
}

func (a *app) showAllocation(x *costs.Explanation) {
	fmt.Fprintln(a.out, x.Allocation)
	if x.Generated {
		fmt.Fprintln(a.out, "generated: no supplier sent this line")
	}
	t := a.table()
	t.AppendRow(table.Row{"billed", fmt.Sprintf("%s %s, of %s for the line", x.Billed, x.Currency, x.Whole.Billed)})
	t.AppendRow(table.Row{"effective", fmt.Sprintf("%s %s, of %s for the line", x.Effective, x.Currency, x.Whole.Effective)})
	t.AppendRow(table.Row{"interval", fmt.Sprintf("%s to %s", x.Interval.From, x.Interval.To)})
	if x.Bought != 0 {
		t.AppendRow(table.Row{"GPU-hours", fmt.Sprintf("%s bought, %s allocated, %s useful", gpuHours(x.Bought), gpuHours(x.Allocated), gpuHours(x.Useful))})
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
				t.AppendRow(table.Row{clipped(u.Cluster), clipped(u.Node), clipped(u.Resource), clipped(u.SKU), gpuHours(u.GPUMs), gpuHours(u.UsefulMs), gpuHours(u.PeriodMs)})
			}
		}
		t.Render()
		a.more(len(x.Usage))
	}

	fmt.Fprintln(a.out, "\nline")
	t = a.table()
	if x.Charge == nil {
		t.AppendRow(table.Row{x.Line, "made up for the rounding of the invoice; no supplier sent it"})
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
	t.Render()

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
		fmt.Fprintf(a.out, "statement: %s carries %s of it, %s before rounding\n", clipped(s.Workspace), amountText(s.Amount, s.Currency), s.Billed)
	}
	for _, p := range x.Policies {
		fmt.Fprintln(a.out, policyText(p))
	}
	fmt.Fprintf(a.out, "method: %s on %s\nposition: %s\n", x.Methods.Attribution, x.Methods.Folds, x.Position)
	a.reportEnds(x.Completeness)
}
