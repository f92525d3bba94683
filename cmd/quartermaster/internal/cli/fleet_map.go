package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/usage"
)

func (a *Program) fleetMapCommand() *cobra.Command {
	var (
		at, by, asOf string
		filter       usage.Filter
	)
	bys := []string{}
	for _, of := range usage.MapBys() {
		bys = append(bys, string(of))
	}
	legend := ""
	for _, of := range usage.MapLegend() {
		legend += fmt.Sprintf("\n  %-4s %s", of[0], of[1])
	}
	cmd := &cobra.Command{
		Use:   "map",
		Short: "What every GPU was doing in the last whole hour, one character for each",
		Long: `Map shows the GPUs of each node by their index, one character for each: the state in which it was for the
longest part of the hour. Where it was allocated, a digit has the tenths of its activity, or with
--by allocated the tenths of the hour in which it was allocated.

` + strings.TrimPrefix(legend, "\n") + `

In JSON, nodes whose names count up are one run, so that the map of 100,000 GPUs is small.`,
		Example: "  quartermaster fleet map --at 2026-06-01\n  quartermaster fleet map --cluster gen-rented --by state --at 2026-06-01 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var about domain.Instant
			if err := timeFlag("at", at, &about); err != nil {
				return err
			}
			m, err := a.caller().FleetMap(cmd.Context(), app.At(asOf), about, filter, usage.MapBy(by))
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(m)
			}
			a.showFleetMap(m, filtersText(filter.Workspace, filter.Cluster, filter.Region))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&filter.Workspace, "workspace", "", "only clusters of this workspace")
	f.StringVar(&filter.Cluster, "cluster", "", "only this cluster")
	f.StringVar(&filter.Region, "region", "", "only clusters in this region")
	f.StringVar(&by, "by", string(usage.MapActivity), "what digits show: "+strings.Join(bys, ", "))
	f.StringVar(&at, "at", "", "end of the last hour or later: RFC 3339, a date or a month in UTC (default now)")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showFleetMap(m *usage.FleetMap, filters string) {
	if a.output == asCSV {
		t := a.table("cluster", "node", "GPUs")
		for i := range m.Clusters {
			for j := range m.Clusters[i].Runs {
				m.Clusters[i].Runs[j].Each(func(node, cells string) { t.AppendRow(table.Row{m.Clusters[i].Cluster, node, cells}) })
			}
		}
		t.Render()
		return
	}
	fmt.Fprintf(a.out, "GPUs by %s from %s to %s%s\n", m.By, m.Hour, m.Hour+domain.Hour, filters)
	if len(m.Clusters) == 0 {
		fmt.Fprintln(a.out, "no GPUs in service")
	}
	width := cmp.Or(a.width, widthOf(a.out))
	for i := range m.Clusters {
		c := &m.Clusters[i]
		fmt.Fprintf(a.out, "\n%s", clipped(c.Cluster))
		for _, of := range []string{c.Workspace, c.Provider, c.Region} {
			if of != "" {
				fmt.Fprintf(a.out, ", %s", clipped(of))
			}
		}
		fmt.Fprintf(a.out, ": %s GPUs in %s nodes\n", comma(c.GPUs), comma(c.Nodes))
		a.foldMap(c, width)
	}
	fmt.Fprintln(a.out)
	var parts []string
	for _, of := range usage.MapLegend() {
		counts := slices.ContainsFunc(m.Clusters, func(c usage.ClusterMap) bool { return c.Counts[of[0]] > 0 })
		if of[0] == "0-9" {
			counts = m.By != usage.MapState
		}
		if counts {
			parts = append(parts, of[0]+" "+of[1])
		}
	}
	if len(parts) > 0 {
		fmt.Fprintln(a.out, text.WrapSoft(strings.Join(parts, ", "), width))
	}
	a.showPosition(m.Position)
	a.reportEnds(m.Completeness)
}

// foldMap writes the nodes of a cluster, as many on a line as fit.
func (a *Program) foldMap(c *usage.ClusterMap, width int) {
	type entry struct{ node, cells string }
	var all []entry
	names, places := 0, 0
	for i := range c.Runs {
		c.Runs[i].Each(func(node, cells string) {
			node = clipped(node)
			all = append(all, entry{node, cells})
			names, places = max(names, text.StringWidthWithoutEscSequences(node)), max(places, len(cells))
		})
	}
	const gap = "  "
	on := max(1, (width+len(gap))/(names+1+places+len(gap)))
	for i, e := range all {
		line := text.Pad(e.node, names, ' ') + " " + e.cells
		if (i+1)%on == 0 || i == len(all)-1 {
			fmt.Fprintln(a.out, line)
			continue
		}
		fmt.Fprint(a.out, text.Pad(line, names+1+places, ' ')+gap)
	}
}
