package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/costs"
)

// costsView returns the costs of a month, with the view that is asked for.
func (a *Program) costsView(cmd *cobra.Command, at app.At, q costs.Query, view costs.View) (*costs.Report, error) {
	if err := checkView(cmd, view); err != nil {
		return nil, err
	}
	if view == costs.ViewDirect {
		return a.caller().Costs(cmd.Context(), at, q)
	}
	return a.caller().CostsView(cmd.Context(), at, q.Month, q.Currency, view)
}

// checkView refuses an unknown view, and flags that one in which costs are passed on cannot have.
func checkView(cmd *cobra.Command, view costs.View) error {
	if !slices.Contains(costs.Views, view) {
		names := make([]string, len(costs.Views))
		for i, v := range costs.Views {
			names[i] = string(v)
		}
		return commandline.Usagef("--view %q is unknown; %s", view, domain.Suggest(string(view), names))
	}
	for _, flag := range []string{"by", "where", "workspace", "under", "compare"} {
		if view != costs.ViewDirect && cmd.Flags().Changed(flag) {
			return commandline.Usagef("--view %s is by workspace, of all workspaces; leave out --%s", view, flag)
		}
	}
	return nil
}

// viewFlag adds --view.
func viewFlag(cmd *cobra.Command, view *string) {
	cmd.Flags().StringVar(view, "view", string(costs.ViewDirect), "direct, loaded or proportional: who bears the cost of pools")
}

// showLoaded shows a view in which the cost of pools is passed on.
func (a *Program) showLoaded(l *costs.Loaded) {
	if l == nil {
		return
	}
	fmt.Fprintf(a.out, "\n%s: the cost of pools is passed on\n", l.View)
	t := a.table("workspace", "currency", "direct", "passed on", "received", "effective", "billed", "per allocated GPU-hour")
	t.names = 1
	alignRight(t, 3, 8)
	for i := range l.Workspaces {
		w := &l.Workspaces[i]
		per := ""
		if w.PerAllocated != nil {
			per = minorText(*w.PerAllocated, w.Currency)
		}
		t.AppendRow(table.Row{
			named(w.Workspace), w.Currency, cents(w.Direct.Effective, w.Currency), cents(w.Passed.Effective, w.Currency),
			cents(w.Received.Effective, w.Currency), cents(w.Effective, w.Currency), cents(w.Billed, w.Currency), per,
		})
	}
	t.Render()
	for _, s := range l.Steps {
		how := strings.ReplaceAll(s.By, "_", " ")
		if s.By == "weights" {
			how = "by weights"
		}
		to := make([]string, len(s.To))
		for i, p := range s.To {
			to[i] = clipped(p.Workspace) + " " + cents(p.Effective, s.Currency)
		}
		if len(to) == 0 {
			to = []string{"nobody has a weight, and the pool keeps it"}
		}
		fmt.Fprintf(a.out, "%s passes on %s %s: %s\n", clipped(s.Pool), amountText(s.Effective, s.Currency), how, strings.Join(to, ", "))
	}
	fmt.Fprintln(a.out, policyText(l.Policy))
}
