package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

func (a *app) costsCommand() *cobra.Command {
	var (
		period, workspace, asOf string
		by                      []string
		requireReconciled       bool
	)
	cmd := &cobra.Command{
		Use:   "costs",
		Short: "Who carries what of a month's bills, to the cent",
		Long: `Costs divides a month's bills among those who used what was billed, and shows
that nothing is lost on the way: the lines add up to the invoices, the parts of
a line to the line, and what nobody used, what was broken and what nobody saw
are parts of their own. A line belongs to the month, in UTC, that the middle of
its billing period lies in. Of a line or an invoice that was stated more than
once, what was stated last counts; a line id in two months counts in both, and is listed.

There are two ledgers. Billed reconciles with the totals of invoices, which are received
apart from their lines (import both with "quartermaster import focus"). Effective
spreads commitments over their terms. An invoice that differs from its lines by
no more than its own rounding is adjusted, in sight; one that differs by more is
shown with its difference. Lines of several months may name one invoice: then it
is compared with all of them, and each month shows its part.

With --require-reconciled the command fails, and says why, when an invoice differs from
its lines, has none, or was voided and has some; when lines name an invoice that
nobody received; and when a line or an invoice cannot be used. Lines that name
no invoice yet have nothing to reconcile with.

Tables show whole cents: where a workspace's total is shown it is rounded once
for each invoice, so that statements add up to what is paid; the cents of other
rows are apportioned so that a column adds up to its total. JSON has every digit.

With --workspace, groups, totals and statements are what this workspace carries.
Invoices, commitments, matches and exceptions stay whole, because a part of a
bill reconciles with nothing.

Dimensions for --by: workspace, component, class, cluster, deployment, region,
invoice, line, day, hour, match_method.
  workspace   who carries it, or platform, platform:reliability (what failed or
              was maintained), platform:unobserved (what nobody saw) or
              platform:prepaid (paid now for a term)
  component   allocated, busy_unattributed (worked, and nobody is known to have
              held it; carried as idle is), idle, unprovisioned, failed,
              maintenance, unobserved, unseen (bought beyond the time in
              service), unused_commitment, prepaid, unmatched, rounding_adjustment
  class       committed, on_demand, spot, owned, shared, credit, tax, rounding
  match_method  how a line found its machines: by_resource, by_pool, by_account,
              by_commitment, by_following, by_nothing

JSON keys; amounts are exact decimals as text, times of GPUs milliseconds:
  program (version, commit, date, methods: what made the report);
  position, period (from, to), workspace, note (what stays whole), methods
    (folds, attribution), lines, allocations, generated (true when something of it was
    made by a generator and no supplier sent it);
  policies (kind, value, policy, workspace, effective_from, operator): the
    default where policy is missing;
  by, groups (key with a value per dimension) and totals, each with currency,
    billed, effective, bought_gpu_ms, allocated_gpu_ms, useful_gpu_ms and
    effective_per_useful_gpu_hour (null where nothing useful was done);
  activity_coverage_permille: of the time held in the hours billed, for how much
    activity was measured (null where nothing was held); what was not measured
    is not counted as useful;
  statements (issuer, account, invoice, currency, period where there is no
    invoice, workspace, billed, amount: billed in whole cents);
  invoices (issuer, account, invoice, currency, period, status: reconciled, adjusted,
    spans_months, differs, no_invoice, no_lines or voided; lines, billed by
    lines, attributed by allocations, received, difference (received less attributed,
    before the rounding adjustment; of a voided invoice nothing counts as received), difference_minor in whole cents, rounding_adjustment, after (the
    difference less the rounding adjustment), generated; details: for each row of the invoice
    that lines name, and for the rest, detail (its id), rows, lines, billed,
    received, difference, rounding_adjustment and after;
    rounded_away: what rounding to 18 decimals took from what the month's lines
    bill, as written less as kept;
    elsewhere: period, lines and billed of each other month whose lines name it,
    and then received and difference are of all months);
  unreconciled (subject: an invoice or a line; why) and unreconciled_count, what --require-reconciled
    fails for;
  commitments (issuer, commitment, currency, purchases, purchased, used_lines,
    used, unused_lines, unused, sponsored);
  matches (match_method, currency, lines, billed, effective);
  exceptions (kind, subject, detail, gpu_ms, lines, currency, billed,
    effective), of these kinds:
` + kindsText() + `;
  incomplete (events in quarantine that may concern this answer), missing
    (events that are known to exist and have not arrived), dropped (what agents
    of nodes lost of that time, if they did: cluster, node, topic, events, from,
    to, reason).`,
		Example: "  quartermaster costs --period 2026-05\n" +
			"  quartermaster costs --period 2026-05 --by workspace,component --json\n" +
			"  quartermaster costs --period 2026-05 --workspace vc-a01 --by deployment,day\n" +
			"  quartermaster costs --period 2026-05 --require-reconciled\n" +
			"  quartermaster costs allocations --period 2026-05 --line LINE\n" +
			"  quartermaster costs explain ALLOCATION\n" +
			"  quartermaster costs moved --before may.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := costs.Query{Workspace: workspace, By: make([]costs.Dimension, len(by))}
			var err error
			if q.Month, err = monthFlag(period); err != nil {
				return err
			}
			for i, d := range by {
				q.By[i] = costs.Dimension(d)
				if !slices.Contains(costs.Dimensions(), q.By[i]) {
					return commandline.Usagef("--by %q: no such dimension; there are %v", d, costs.Dimensions())
				}
			}
			return a.readAt(cmd.Context(), asOf, func(h *home) error {
				return h.view(cmd.Context(), func(v projections.View) error {
					r, err := costs.NewReport(v, q)
					if err != nil {
						return err
					}
					if len(r.Groups) == 0 {
						if err := carries(v, workspace); err != nil {
							return err
						}
					}
					if a.json {
						err = a.answerReport(r)
					} else {
						err = a.showCosts(v, r)
					}
					if err == nil && requireReconciled && r.UnreconciledCount > 0 {
						why := unreconciledText(r.Unreconciled)
						fmt.Fprintln(a.err, "quartermaster: "+why)
						return &failed{why: why}
					}
					return err
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "billing month in UTC, for example 2026-05 (required)")
	f.StringVar(&workspace, "workspace", "", "only what this workspace carries; invoices stay whole")
	f.StringSliceVar(&by, "by", []string{"workspace"}, "dimensions to group by, separated by commas")
	f.BoolVar(&requireReconciled, "require-reconciled", false, "fail, and say why, when the bills do not reconcile")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	cmd.AddCommand(a.costAllocationsCommand(), a.costExplainCommand(), a.costMovedCommand())
	return cmd
}

// kindsText lists what may be in question about costs, in lines.
func kindsText() string {
	b, column := strings.Builder{}, 0
	for i, k := range costs.ExceptionKinds() {
		switch {
		case i == 0:
			b.WriteString("    ")
		case column+len(k) > 76:
			b.WriteString(",\n    ")
			column = 0
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(k))
		column += len(k) + 2
	}
	return b.String()
}

// unreconciledText says what does not reconcile, and why; of very many the first.
func unreconciledText(all []costs.Unreconciled) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of the bills do not reconcile:", comma(len(all)))
	for i, u := range all {
		if i == shownRows {
			fmt.Fprintf(&b, "\n  and %s more; see --json", comma(len(all)-i))
			break
		}
		fmt.Fprintf(&b, "\n  %s: %s", u.Subject, u.Why)
	}
	return b.String()
}

// monthFlag reads a billing month on the command line.
func monthFlag(s string) (domain.Interval, error) {
	t, err := time.ParseInLocation("2006-01", s, time.UTC)
	if err != nil || t.Year() < 1970 || t.Year() > 2261 {
		return domain.Interval{}, commandline.Usagef("--period %q is not a billing month, for example 2026-05", s)
	}
	return projections.BillingMonth(domain.InstantOf(t)), nil
}

// monthName is what the flag calls a month.
func monthName(m domain.Interval) string { return m.From.Time().Format("2006-01") }

// carries refuses a workspace that there is not.
func carries(v projections.View, workspace string) error {
	if workspace == "" {
		return nil
	}
	names, err := registry.NewNames(v)
	if err != nil {
		return err
	}
	all := append(names.Workspaces, attribution.Platform, attribution.PlatformPrepaid, attribution.PlatformReliability, attribution.PlatformUnobserved)
	slices.Sort(all)
	return among("workspace", workspace, slices.Compact(all))
}

// noBills says where bills would come from, or that those of the month charge nothing
// to a workspace.
func (a *app) noBills(v projections.View, month domain.Interval, workspace string) error {
	months, err := costs.BillingMonths(v)
	if err != nil {
		return err
	}
	if slices.Contains(months, month) && workspace != "" {
		fmt.Fprintf(a.out, "no part of the bills of %s is charged to workspace %s\n", monthName(month), workspace)
		return nil
	}
	if len(months) == 0 {
		fmt.Fprintf(a.out, "no bills in %s, and none at all yet: import them with \"quartermaster import focus FILE\"\n", monthName(month))
		return nil
	}
	names := make([]string, len(months))
	for i, m := range months {
		names[i] = monthName(m)
	}
	fmt.Fprintf(a.out, "no bills in %s; there are some in %s\n", monthName(month), strings.Join(names, ", "))
	return nil
}
