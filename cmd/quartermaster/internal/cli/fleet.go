package cli

import (
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/inventory"
)

func (a *Program) fleetCommand() *cobra.Command {
	var (
		filter inventory.Filter
		at     string
		asOf   string
		nodes  bool
	)
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Clusters, nodes and GPUs, with their health and inconsistencies",
		Long: `Fleet shows the clusters with their nodes and GPUs in service. It lists inconsistencies:
- a GPU that two nodes declare, or that is reported under two names (it counts once);
- a node that was seen but not registered, or registered but never seen;
- an undeclared cluster, an unregistered workspace, an unknown GPU model;
- streams with gaps, or with clocks that run ahead;
- nodes with a silent collector;
- events that node agents dropped in the last 31 days.

Unregistered nodes that report are listed in a separate table with their faults. They are not
counted.`,
		Example: "  quartermaster fleet\n  quartermaster fleet --cluster gen-rented --nodes\n  quartermaster fleet --region us-east-1 --at 2026-06-01 -o json\n  quartermaster fleet --as-of 2026-06-01",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if at != "" {
				t, err := domain.ParseTime(at)
				if err != nil {
					return commandline.Usagef("--at: %w", err)
				}
				filter.At = t
			}
			inv, err := a.caller().Fleet(cmd.Context(), app.At(asOf), filter)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(inv)
			}
			a.showFleet(inv, nodes, filtersText(filter.Workspace, filter.Cluster, filter.Region))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&filter.Workspace, "workspace", "", "only clusters of this workspace")
	f.StringVar(&filter.Cluster, "cluster", "", "only this cluster")
	f.StringVar(&filter.Region, "region", "", "only clusters in this region")
	f.StringVar(&at, "at", "", "time of the answer: RFC 3339, a date or a month in UTC (default now)")
	f.BoolVar(&nodes, "nodes", false, "list every node")
	asOfFlag(cmd, &asOf)
	cmd.AddCommand(a.fleetMapCommand())
	return cmd
}

func (a *Program) showFleet(inv *inventory.Inventory, nodes bool, filters string) {
	if len(inv.Clusters) == 0 && filters != "" {
		fmt.Fprintf(a.out, "no clusters%s\n", filters)
	} else if len(inv.Clusters) == 0 {
		fmt.Fprintln(a.out, "no clusters yet: declare them with \"quartermaster apply -f FILE\"")
	} else {
		t := a.table("cluster", "workspace", "provider", "region", "nodes", "GPUs", "not ok", "last telemetry")
		for _, c := range inv.Clusters {
			gpus, bad := map[domain.GPUID]bool{}, 0 // a GPU that two nodes declare counts once
			var last domain.Instant
			for _, n := range c.Nodes {
				for _, g := range n.GPUs {
					gpus[g.ID] = true
				}
				last = max(last, n.LastTelemetry)
				if n.Health.State != "ok" {
					bad++
				}
			}
			for _, n := range c.UnregisteredNodes {
				last = max(last, n.LastTelemetry)
			}
			provider := fmt.Sprintf("%s (%s)", c.Provider, c.ProviderClass)
			if !c.Registered {
				provider = "not registered"
			}
			t.AppendRow(table.Row{named(c.Cluster), named(c.Workspace), named(provider), named(c.Region), count(len(c.Nodes)), count(len(gpus)), count(bad), seen(last)})
		}
		t.Render()
	}
	if len(inv.Counts) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("region", "GPU model", "supplier class", "GPUs")
		total := 0
		for _, c := range inv.Counts {
			t.AppendRow(table.Row{named(c.Region), named(c.Model), c.ProviderClass, count(c.GPUs)})
			total += c.GPUs
		}
		t.AppendSeparator()
		t.AppendRow(table.Row{"total", "", "", count(total)})
		t.Render()
	}
	if nodes {
		fmt.Fprintln(a.out)
		t := a.table("cluster", "node", "GPUs", "model", "CPU", "memory GiB", "health", "last telemetry")
		t.main = true
		for _, c := range inv.Clusters {
			for _, n := range c.Nodes {
				model := ""
				if len(n.GPUs) > 0 {
					model = n.GPUs[0].Model
				}
				health := n.Health.State
				if n.Health.Reason != "" {
					health += ": " + n.Health.Reason
				}
				t.AppendRow(table.Row{named(c.Cluster), named(n.Node), len(n.GPUs), named(model), n.CPUMilli / 1000, n.MemoryMiB / 1024, named(health), seen(n.LastTelemetry)})
			}
		}
		t.Render()
	}
	a.showUnregistered(inv, nodes)
	a.showExceptions(inv.Exceptions)
	a.showPosition(inv.Position)
	a.reportEnds(inv.Completeness)
}

// shownUnregistered bounds the unregistered nodes that are listed without --nodes. Unhealthy nodes
// come first.
const shownUnregistered = 10

func (a *Program) showUnregistered(inv *inventory.Inventory, all bool) {
	type row struct {
		cluster string
		*inventory.UnregisteredNode
	}
	var rows []row
	for i := range inv.Clusters {
		c := &inv.Clusters[i]
		for j := range c.UnregisteredNodes {
			rows = append(rows, row{c.Cluster, &c.UnregisteredNodes[j]})
		}
	}
	if len(rows) == 0 {
		return
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		switch aOK, bOK := a.Health.State == "ok", b.Health.State == "ok"; {
		case aOK == bOK:
			return 0
		case bOK:
			return -1
		default:
			return 1
		}
	})
	fmt.Fprintf(a.out, "\nnot registered and not counted: %s nodes that report\n", comma(len(rows)))
	t := a.table("cluster", "node", "GPUs", "failed GPUs", "health", "last telemetry")
	for i, r := range rows {
		if i == shownUnregistered && !all {
			t.AppendNote("and %s more: see --nodes", comma(len(rows)-i))
			break
		}
		failed := 0
		for _, g := range r.GPUs {
			if g.Failed {
				failed++
			}
		}
		health := r.Health.State
		if r.Health.Reason != "" {
			health += ": " + r.Health.Reason
		}
		t.AppendRow(table.Row{named(r.cluster), named(r.Node), count(len(r.GPUs)), count(failed), named(health), seen(r.LastTelemetry)})
	}
	t.Render()
}

// shownExceptions bounds the listed exceptions of each kind. JSON has all.
const shownExceptions = 5

func (a *Program) showExceptions(all []inventory.Exception) {
	if len(all) == 0 {
		return
	}
	counts := map[string]int{}
	for _, e := range all {
		counts[e.Kind]++
	}
	fmt.Fprintf(a.out, "\nexceptions: %s\n", comma(len(all)))
	t := a.table("kind", "subject", "detail")
	shown := map[string]int{}
	for _, e := range all {
		shown[e.Kind]++
		switch {
		case shown[e.Kind] <= shownExceptions:
			t.AppendRow(table.Row{e.Kind, domain.Clip(e.Subject, 2*widest), e.Detail})
		case shown[e.Kind] == shownExceptions+1:
			t.AppendNote("and %s more of %s: see -o json", comma(counts[e.Kind]-shownExceptions), e.Kind)
		}
	}
	t.Render()
}

func seen(t domain.Instant) string {
	if t.IsZero() {
		return "never"
	}
	return t.String()
}
