package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/tabular"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
)

func (a *Program) costClaimsCommand() *cobra.Command {
	var month, out, asOf string
	var maintenance bool
	cmd := &cobra.Command{
		Use:   "claims --period MONTH",
		Short: "Show failed machine hours that were paid for, against credits received",
		Long: `Claims shows what to ask suppliers to give back for a month: the time in which machines had failed, which was
paid for and which no workload held, with what it cost. Beside it are the credits that the supplier gave, and
what is still to be claimed.

The cost is the effective cost of the component failed, as in "costs --by component": it has the part of
what was paid upfront. Tax, network, support, owned hardware and estimates are left out. Time in maintenance
is shown, and claimed only with --maintenance, because the log does not know who asked for it.

A credit is a line of category Credit whose charge period is in the month, in whatever month it was
billed. It counts for the machine that it names. Other credits of the account are shown apart: nothing on a
bill says what they are for. What is left then is open at least.

With -o json each claim has its lines, the times in which its machines were down, with causes, and the
faults with their XIDs. --out writes the claims as CSV, to be sent to the supplier.`,
		Example: "  quartermaster costs claims --period 2026-05\n" +
			"  quartermaster costs claims --period 2026-05 --maintenance -o json\n" +
			"  quartermaster costs claims --period 2026-05 --out claims-may.csv",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := monthFlag("period", month)
			if err != nil {
				return err
			}
			c, err := a.caller().Claims(cmd.Context(), app.At(asOf), m, maintenance)
			if err != nil {
				return err
			}
			if out != "" {
				if err := app.WriteWhole(out, func(w io.Writer) error { return writeClaims(w, c) }); err != nil {
					return err
				}
			}
			if a.json {
				return a.answerReport(c)
			}
			a.showClaims(c, out)
			return nil
		},
	}
	cmd.Flags().StringVar(&month, "period", "", "billing month in UTC, for example 2026-05 (required)")
	must(cmd.MarkFlagRequired("period"))
	f := cmd.Flags()
	f.BoolVar(&maintenance, "maintenance", false, "claim time in maintenance, too")
	f.StringVar(&out, "out", "", "file to write the claims to, as CSV (default none is written)")
	asOfFlag(cmd, &asOf)
	return cmd
}

// claimColumns are the columns of claims in CSV.
var claimColumns = []tabular.Column{
	{Name: "InvoiceIssuerName"}, {Name: "BillingAccountId"}, {Name: "ResourceId"}, {Name: "Cluster"}, {Name: "Machines"},
	{Name: "FailedGpuHours", Kind: tabular.Decimals}, {Name: "MaintenanceGpuHours", Kind: tabular.Decimals}, {Name: "BillingCurrency"},
	{Name: "Claimed", Kind: tabular.Decimals}, {Name: "Credited", Kind: tabular.Decimals}, {Name: "Open", Kind: tabular.Decimals},
	{Name: "Downtimes"}, {Name: "Faults"}, {Name: "Lines"},
}

func writeClaims(out io.Writer, c *costs.Claims) error {
	w := tabular.NewCSVWriter(out, claimColumns)
	for i := range c.Claims {
		s := &c.Claims[i]
		if s.Claimed.IsZero() {
			continue
		}
		var down, faults []string
		for j := range s.Downtimes {
			if d := &s.Downtimes[j]; d.State == inventory.Failed.String() || c.Maintenance {
				down = append(down, downtimeText(d))
			}
		}
		for j := range s.Faults {
			faults = append(faults, faultText(&s.Faults[j]))
		}
		if err := w.Write([]string{
			s.Issuer, s.Account, s.Resource, s.Cluster, strings.Join(s.Nodes, "\n"), hoursCell(s.FailedMs).raw, hoursCell(s.MaintenanceMs).raw, s.Currency,
			s.Claimed.String(), s.Credited.String(), s.Open.String(), strings.Join(down, "\n"), strings.Join(faults, "\n"), strings.Join(s.Lines, "\n"),
		}); err != nil {
			return err
		}
	}
	return w.Close()
}

func downtimeText(d *inventory.Downtime) string {
	text := fmt.Sprintf("%s to %s: %s, %s", d.From, d.To, d.State, d.Cause)
	if d.GPU != "" {
		text += " of " + d.GPU
	}
	if d.Reason != "" {
		text += ", " + d.Reason
	}
	if d.Open {
		text += ", not ended"
	}
	return text
}

func faultText(f *inventory.Fault) string {
	text := fmt.Sprintf("%s: %s %d", f.At, f.Kind, f.Code)
	if f.Events > 1 {
		text += fmt.Sprintf(", %d times to %s", f.Events, f.Last)
	}
	if f.GPU != "" {
		text += " of " + f.GPU
	}
	if f.Detail != "" {
		text += ", " + f.Detail
	}
	return text
}

func (a *Program) showClaims(c *costs.Claims, out string) {
	what := "failed time"
	if c.Maintenance {
		what += " and time in maintenance"
	}
	if len(c.Claims) == 0 {
		fmt.Fprintf(a.out, "%s: no supplier was paid for failed time\n", app.MonthName(c.Month))
	} else {
		fmt.Fprintf(a.out, "%s that suppliers were paid for in %s\n", what, app.MonthName(c.Month))
	}
	t := a.table("issuer", "account", "machine", "failed GPU-hours", "in maintenance", "claimed", "credited", "open", "causes")
	t.main, t.names = true, 3
	alignRight(t, 4, 8)
	for i := range c.Claims {
		s := &c.Claims[i]
		t.AppendRow(table.Row{
			clipped(s.Issuer), clipped(s.Account), clipped(cmp.Or(s.Resource, s.Cluster+", not named")), hoursCell(s.FailedMs), hoursCell(s.MaintenanceMs),
			amountText(s.Claimed, s.Currency), amountText(s.Credited, s.Currency), amountText(s.Open, s.Currency), clipped(causesOf(s)),
		})
	}
	if len(c.Claims) > 0 {
		t.Render()
	}
	for i := range c.Accounts {
		s := &c.Accounts[i]
		fmt.Fprintf(a.out, "%s, account %s: claimed %s, credited %s, open %s", clipped(s.Issuer), clipped(s.Account), amountText(s.Claimed, s.Currency),
			amountText(s.Credited, s.Currency), amountText(s.Open, s.Currency))
		if !s.CreditedOther.IsZero() {
			fmt.Fprintf(a.out, "; at least %s if its other credits of %s are for it", amountText(s.OpenLeast, s.Currency), amountText(s.CreditedOther, s.Currency))
		}
		fmt.Fprintln(a.out)
	}
	for i := range c.Credits {
		if x := &c.Credits[i]; !x.Counted {
			fmt.Fprintf(a.out, "other credit: line %s, billed in %s, %s: %s\n", clipped(x.Line), x.Billed, amountText(x.Amount, x.Currency), clipped(x.Description))
		}
	}
	if out != "" {
		fmt.Fprintf(a.out, "%s has the claims, with downtimes, faults and lines\n", out)
	}
	fmt.Fprintf(a.out, "position: %s\n", a.position(c.Position))
	a.reportEnds(c.Completeness)
}

// causesOf names what a claim is for, once each.
func causesOf(s *costs.Claim) string {
	var causes []string
	seen := map[string]bool{}
	for i := range s.Downtimes {
		if d := &s.Downtimes[i]; d.State == inventory.Failed.String() && !seen[d.Cause] {
			seen[d.Cause] = true
			causes = append(causes, d.Cause)
		}
	}
	return strings.Join(causes, ", ")
}
