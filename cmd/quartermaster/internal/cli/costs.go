package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/dimension"
)

func (a *Program) costsCommand() *cobra.Command {
	var (
		span                                      monthFlags
		workspace, under, currency, asOf, compare string
		view                                      string
		by, where                                 []string
		requireReconciled                         bool
	)
	cmd := &cobra.Command{
		Use:   "costs",
		Short: "Allocate a month's bills to those who are charged, to the cent",
		Long: `Costs divides a month's bills among those who used what was billed, to the cent. Lines add up
to the invoices, and the parts of a line add up to the line. Idle, failed and unobserved time
are components of their own.

A line belongs to the UTC month that contains the middle of its billing period. If a line or
invoice was stated more than once, the last statement counts. A line id in two months counts
in both and is listed.

There are two ledgers. Billed reconciles with invoice totals, which are received separately
from the lines (import both with "quartermaster import focus"). Effective spreads commitments
over their terms. If an invoice differs from its lines by no more than its own rounding, a
visible adjustment is added. Larger differences are shown as such. Lines of several months
may name one invoice. It is then compared with all of them, and each month shows its part.

With --require-reconciled the command fails and gives the reasons if
- an invoice differs from its lines, has no lines, or was voided and has lines;
- lines name an invoice that was not received;
- a line or an invoice cannot be used.
Lines that do not name an invoice yet are not reconciled.

Tables show whole cents. A workspace's total is rounded once for each invoice, so that
statements add up to the amount paid. The cents of other rows are apportioned so that a column
adds up to its total. JSON has every digit.

With --workspace, groups, totals and statements cover what this workspace is charged.
Invoices, commitments, matches and exceptions stay whole, because a part of a bill cannot be
reconciled. --where narrows only groups and totals, because a statement covers a whole
invoice.

With --currency groups and totals are in the currency of the books, which a policy of kind
books_currency declares. Amounts are divided as they were billed, and translated last: expense at
the average rate of the month, and what was paid at once for a term at the rate of the day of its
payment, until it is consumed. A missing rate is an error. "quartermaster costs fx" shows the rates.
--currency books is for each legal entity the currency of its own books.

With --from and --to, the costs are of several months, each divided as it is alone, and closed months
as they were closed. The sums have every digit, and rates are those of the sums. Statements, invoices
and exceptions are shown for one month only.

With --compare previous, each group has what it cost before, and the difference: in the month before
if groups are by month, in the quarter before if they are by quarter, else in as many months before.

Dimensions for --by and --where: workspace, component, class, cluster, deployment,
workload_class, model, gpu_model, billing_model, provider, provider_class, region, invoice, line,
owner, cost_centre, entity, day, hour, month, quarter, match_method; node, the machine, and unit, the
pod or job, also within a line for several; of the supplier's line: issuer, billing_account,
sub_account, service, service_category, charge_category, pricing_category, sku, resource, commitment,
mapping_rule, and tag:KEY for any tag.
Undeclared values are "unknown"; several different values are "mixed".

--view shows who bears costs that are for others, such as those of platform:reliability or of a
team that serves all teams: those of the pools that a policy of kind shared_costs names. "loaded"
passes on the cost of each pool, in their order, with what it received before, by its own driver.
"proportional" passes on all of them at once, by the workspaces' direct effective cost. All views
are of the same allocations and have the same totals. A pool for which nobody has a weight keeps
its cost. Views are by workspace, of all workspaces.

List, negotiated and commitment savings are about usage and purchases whose lines state list and
contracted cost. The savings rate is 1 - effective / list (the effective savings rate of the
FinOps Foundation).

  workspace   who is charged, or platform, platform:reliability (failed or in
              maintenance), platform:unobserved (unobserved time),
              platform:prepaid (paid now for a term), platform:outside (not for the
              estate) or platform:tax (recoverable tax)
  component   allocated, busy_unattributed (active without a known holder; charged
              like idle), idle, unprovisioned, failed, maintenance, unobserved,
              unseen (bought beyond the time in service), unused_commitment,
              prepaid, unmatched, rounding_adjustment, assigned (for no machine, by a
              mapping rule), outside (not for the estate, by a mapping rule), shared (for no
              machine, among the workspaces of a mapping rule), tax_recoverable (by a policy;
              billed, and no effective cost)
  class       committed, on_demand, spot, owned, shared, credit, tax, rounding
  workload_class  class of the deployment; none for time without a holder
  model       model that the deployment is declared to serve or train in that hour; none if it
              declares none, and for time without a holder
  node        the machine that all of the line is for, as cluster/node; mixed for a line of
              several, which is divided among those who held any of them, and for tax on several
  gpu_model, billing_model  of the machines that the line pays for; if they do not state
              a billing model, it is derived from the class of the line
  provider, provider_class  of the cluster, else of the billing account's clusters;
              else the provider is the issuer of the invoice
  match_method  how a line was matched to machines: by_resource, by_pool, by_account,
              by_commitment, by_following, by_nothing, by_rule

Kinds of exceptions:
` + kindsText(),
		Example: "  quartermaster costs --period 2026-05\n" +
			"  quartermaster costs explain --workspace vc-a01 --period 2026-05\n" +
			"  quartermaster costs --period 2026-05 --by component --where provider_class=hyperscaler\n" +
			"  quartermaster costs --period 2026-05 --by workspace,component -o json\n" +
			"  quartermaster costs --period 2026-05 --workspace vc-a01 --by deployment,day\n" +
			"  quartermaster costs --period 2026-05 --under research --by workspace\n" +
			"  quartermaster costs --period 2026-05 --by service,tag:team\n" +
			"  quartermaster costs --period 2026-05 --require-reconciled\n" +
			"  quartermaster costs --period 2026-05 --compare previous\n" +
			"  quartermaster costs --from 2026-01 --to 2026-07 --by month,workspace --compare previous\n" +
			"  quartermaster costs --from 2026-01 --to 2027-01 --by quarter,service\n" +
			"  quartermaster costs --period 2026-05 --currency USD\n" +
			"  quartermaster costs --period 2026-05 --view loaded\n" +
			"  quartermaster costs allocations --period 2026-05 --line LINE\n" +
			"  quartermaster costs explain ALLOCATION\n" +
			"  quartermaster costs moved --before may.json\n" +
			"  quartermaster costs owned --period 2026-05\n" +
			"  quartermaster costs tco --period 2026-05\n" +
			"  quartermaster costs export --period 2026-05 --out may.csv\n" +
			"  quartermaster costs statement --month 2026-05\n" +
			"  quartermaster costs journal --month 2026-05 --layout netsuite\n" +
			"  quartermaster costs commitments --period 2026-05\n" +
			"  quartermaster costs fx --period 2026-05\n" +
			"  quartermaster costs unit --per million-tokens --by model --period 2026-05\n" +
			"  quartermaster costs accruals --period 2026-05\n" +
			"  quartermaster costs close prepare --month 2026-05 --dry-run",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := costs.MonthsQuery{Workspace: workspace, Under: under, Currency: currency}
			var err error
			if q.Months, err = span.months(); err != nil {
				return err
			}
			if q.Compare, err = comparing(compare); err != nil {
				return err
			}
			if q.By, err = costs.ParseDimensions(by); err != nil {
				return commandline.Usagef("--by: %w", err)
			}
			if q.Where, err = costs.ParseConditions(where); err != nil {
				return commandline.Usagef("--where: %w", err)
			}
			var left []costs.Unreconciled
			switch one := len(q.Months) == 1 && !q.Compare; {
			case one:
				left, err = a.costsOfMonth(cmd, app.At(asOf), &q, costs.View(view))
			case view != string(costs.ViewDirect):
				return commandline.Usagef("--view %s is of one month, and without --compare", view)
			default:
				left, err = a.costsOfMonths(cmd.Context(), app.At(asOf), q)
			}
			if err == nil && requireReconciled && len(left) > 0 {
				why := unreconciledText(left)
				fmt.Fprintln(a.err, "quartermaster: "+why)
				return &failed{why: why}
			}
			return err
		},
	}
	f := cmd.Flags()
	span.add(cmd)
	f.StringVar(&workspace, "workspace", "", "only the charges of this workspace; invoices stay whole")
	f.StringSliceVar(&by, "by", []string{"workspace"}, "dimensions to group by, separated by commas")
	underFlag(cmd, &under)
	whereFlag(cmd, &where)
	currencyFlag(cmd, &currency)
	viewFlag(cmd, &view)
	f.BoolVar(&requireReconciled, "require-reconciled", false, "fail, with the reasons, if the bills do not reconcile")
	compareFlag(cmd, &compare)
	asOfFlag(cmd, &asOf)
	cmd.AddCommand(a.costAllocationsCommand(), a.costExplainCommand(), a.costMovedCommand(), a.costOwnedCommand(), a.costExportCommand(), a.costVerifyCommand(), a.costStatementCommand(), a.costTCOCommand(), a.costCommitmentsCommand(), a.costFXCommand(), a.costAccrueCommand(), a.costAccrualsCommand())
	cmd.AddCommand(a.costUnitCommand(), a.costBudgetCommand())
	cmd.AddCommand(a.costCloseCommand(), a.costPostingsCommand(), a.costRestateCommand(), a.costJournalCommand(), a.costEvidenceCommand(), a.costClaimsCommand())
	return cmd
}

// costsOfMonth answers about one month. It returns what does not reconcile.
func (a *Program) costsOfMonth(
	cmd *cobra.Command, at app.At, q *costs.MonthsQuery, view costs.View,
) ([]costs.Unreconciled, error) {
	r, err := a.costsView(cmd, at, costs.Query{
		Month: q.Months[0], Workspace: q.Workspace, Under: q.Under, By: q.By, Where: q.Where, Currency: q.Currency,
	}, view)
	switch {
	case err != nil:
		return nil, err
	case a.json:
		err = a.answerReport(r)
	default:
		err = a.showCosts(cmd.Context(), at, r)
	}
	return r.Unreconciled, err
}

// costsOfMonths answers about several months. It returns what does not reconcile.
func (a *Program) costsOfMonths(ctx context.Context, at app.At, q costs.MonthsQuery) ([]costs.Unreconciled, error) {
	r, err := a.caller().CostsOfMonths(ctx, at, q)
	switch {
	case err != nil:
		return nil, err
	case a.json:
		err = a.answerReport(r)
	default:
		a.showCostsOfMonths(r)
	}
	return unreconciledMonths(r), err
}

func currencyFlag(cmd *cobra.Command, currency *string) {
	cmd.Flags().StringVar(currency, "currency", "", "currency of the books, to which amounts are translated, or books for that of each entity (default as billed)")
}

// whereFlag adds --where, which narrows an answer by conditions on dimensions.
func whereFlag(cmd *cobra.Command, where *[]string) {
	cmd.Flags().StringArrayVar(where, "where", nil, "only `dimension=value`; repeat it for more values or more dimensions")
}

// underFlag adds --under, which narrows an answer to a part of the tree of workspaces.
func underFlag(cmd *cobra.Command, under *string) {
	cmd.Flags().StringVar(under, "under", "", "only this `workspace` and those below it, by their parents; totals are of all of them")
}

// whereText returns conditions as a clause: ", where provider is aws or lab".
func whereText(where []dimension.Condition, blank func(dimension.Name) string) string {
	var b strings.Builder
	for i, c := range where {
		values := make([]string, len(c.Values))
		for j, v := range c.Values {
			values[j] = clipped(cmp.Or(v, blank(c.Dimension)))
		}
		fmt.Fprintf(&b, "%s %s is %s", map[bool]string{true: ", where", false: " and"}[i == 0], c.Dimension, strings.Join(values, " or "))
	}
	return b.String()
}

// kindsText lists the kinds of exceptions, in wrapped lines.
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

// unreconciledText lists what does not reconcile and why, up to shownRows.
func unreconciledText(all []costs.Unreconciled) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of the bills do not reconcile:", comma(len(all)))
	for i, u := range all {
		if i == shownRows {
			fmt.Fprintf(&b, "\n  and %s more; see -o json", comma(len(all)-i))
			break
		}
		fmt.Fprintf(&b, "\n  %s: %s", u.Subject, u.Why)
	}
	return b.String()
}

// monthFlag reads a billing month.
func monthFlag(flag, s string) (domain.Interval, error) {
	t, err := time.ParseInLocation("2006-01", s, time.UTC)
	if err != nil || t.Year() < 1970 || t.Year() > 2261 {
		return domain.Interval{}, commandline.Usagef("--%s %q is not a billing month, for example 2026-05", flag, s)
	}
	return projections.BillingMonth(domain.InstantOf(t)), nil
}

// noBills explains an empty answer: no bills in the month, or none that charge the workspace.
func (a *Program) noBills(ctx context.Context, at app.At, month domain.Interval, workspace string) error {
	say := func(format string, args ...any) { fmt.Fprintf(a.out, format, args...) }
	if a.json { // which then has no line
		say = func(format string, args ...any) { a.note("%s", strings.TrimSuffix(fmt.Sprintf(format, args...), "\n")) }
	}
	months, err := a.caller().BillingMonths(ctx, at)
	if err != nil {
		return err
	}
	if slices.Contains(months, month) && workspace != "" {
		say("no part of the bills of %s is charged to workspace %s\n", app.MonthName(month), workspace)
		return nil
	}
	if len(months) == 0 {
		say("no bills in %s, and none at all yet: import them with \"quartermaster import focus FILE\"\n", app.MonthName(month))
		return nil
	}
	names := make([]string, len(months))
	for i, m := range months {
		names[i] = app.MonthName(m)
	}
	say("no bills in %s; there are some in %s\n", app.MonthName(month), strings.Join(names, ", "))
	return nil
}
