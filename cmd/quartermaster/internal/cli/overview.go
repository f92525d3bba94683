package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/inventory"
)

func (a *Program) overviewCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "overview",
		Short: "What there is to ask about, and how far each kind of data reaches",
		Long: `Overview lists the names that questions filter by: clusters with provider, region, workspace and GPUs in
service, workspaces, regions, providers and GPU models. It says how far telemetry, demand, billing, prices
and decisions reach. Its time is that of the newest data, not of the clock, so that a page about old data
can ask about the right window. Whoever sees a part of the estate gets no times of billing, prices and
decisions.`,
		Example: "  quartermaster overview\n  quartermaster overview -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.caller().Overview(cmd.Context(), app.At(asOf))
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(o)
			}
			a.showOverview(o)
			return nil
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showOverview(o *inventory.Overview) {
	if len(o.Clusters) == 0 {
		fmt.Fprintln(a.out, "no clusters yet: declare them with \"quartermaster apply -f FILE\"")
	} else {
		t := a.table("cluster", "workspace", "provider", "region", "nodes", "GPUs", "GPU models")
		t.main = true
		t.SetColumnConfigs(rightFrom(5, 6))
		for i := range o.Clusters {
			c := &o.Clusters[i]
			provider := fmt.Sprintf("%s (%s)", c.Provider, c.ProviderClass)
			if !c.Registered {
				provider = "not registered"
			}
			gpus, models := 0, []string{}
			for _, m := range c.GPUs {
				gpus += m.GPUs
				models = append(models, m.Model)
			}
			t.AppendRow(table.Row{named(c.Cluster), named(c.Workspace), named(provider), named(c.Region), count(c.Nodes), count(gpus),
				named(strings.Join(models, ", "))})
		}
		t.Render()
	}
	if len(o.Workspaces) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("workspace", "name", "parent")
		for _, w := range o.Workspaces {
			t.AppendRow(table.Row{named(w.Workspace), named(w.Name), named(w.Parent)})
		}
		t.Render()
	}
	fmt.Fprintln(a.out)
	t := a.table("data", "reaches to")
	for _, r := range []struct {
		data string
		to   domain.Instant
	}{
		{"telemetry", o.Reaches.Telemetry}, {"demand", o.Reaches.Demand}, {"billing", o.Reaches.Billing},
		{"prices", o.Reaches.Prices}, {"decisions", o.Reaches.Decisions},
	} {
		if r.to > 0 {
			t.AppendRow(table.Row{r.data, r.to})
		}
	}
	t.Render()
	a.showPosition(o.Position)
	a.reportEnds(o.Completeness)
}
