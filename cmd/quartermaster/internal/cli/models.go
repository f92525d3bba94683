package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/inventory"
)

func (a *Program) modelsCommand() *cobra.Command {
	var (
		filter inventory.ModelFilter
		at     string
		asOf   string
		stale  time.Duration
		limit  int
	)
	cmd := &cobra.Command{
		Use:   "models",
		Short: "Which models run where, compared with what is declared",
		Long: `Models compares declared deployments with those seen running.

  running  declared, and seen within --stale-after
  shadow   seen, but never declared
  stale    declared for longer than --stale-after, but not seen
  pending  declared recently, not seen yet
  stopped  declared with no replicas`,
		Example: "  quartermaster models --stale-after 2h\n  quartermaster models --workspace research -o json\n  quartermaster models --search llama-70b --at 2026-06-01",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var t domain.Instant
			if at != "" {
				var err error
				if t, err = domain.ParseTime(at); err != nil {
					return commandline.Usagef("--at: %w", err)
				}
			}
			if stale <= 0 {
				return commandline.Usagef("--stale-after %s: want a positive time", stale)
			}
			if limit < 0 {
				return commandline.Usagef("--limit %d: want 0 or more", limit)
			}
			m, err := a.caller().Models(cmd.Context(), app.At(asOf), t, domain.Instant(stale), filter)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(m)
			}
			filters := filtersText(filter.Workspace, filter.Cluster, "")
			if filter.Search != "" {
				filters += fmt.Sprintf(" with %q in a name", domain.Clip(filter.Search, widest))
			}
			a.showModels(m, limit, filters)
			a.showPosition(m.Position)
			a.reportEnds(m.Completeness)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&filter.Workspace, "workspace", "", "only this workspace")
	f.StringVar(&filter.Cluster, "cluster", "", "only this cluster")
	f.StringVar(&filter.Search, "search", "", "only where this is a part of the name of the model, the deployment or the workspace, in any case")
	f.StringVar(&at, "at", "", "time of the answer: RFC 3339, a date or a month in UTC (default now)")
	f.DurationVar(&stale, "stale-after", time.Hour, "how long a deployment may go unseen")
	asOfFlag(cmd, &asOf)
	f.IntVar(&limit, "limit", 40, "deployments to list; JSON has all")
	return cmd
}

func (a *Program) showModels(m *inventory.ModelInventory, limit int, filters string) {
	if len(m.Deployments) == 0 {
		fmt.Fprintf(a.out, "no deployments at %s%s: declare them with \"quartermaster apply -f FILE\" or import pods\n", m.At, filters)
		return
	}
	counts := map[inventory.ModelStatus]int{}
	t := a.table("workspace", "cluster", "model", "tier", "deployment", "status", "replicas", "last seen")
	for i, d := range m.Deployments {
		counts[d.Status]++
		if i >= limit {
			continue
		}
		replicas := comma(int(d.DeclaredReplicas))
		if d.ReadyReplicas != nil {
			replicas = comma(int(*d.ReadyReplicas)) + " of " + replicas
		}
		t.AppendRow(table.Row{named(d.Workspace), named(d.Cluster), named(d.Model), named(d.Tier), named(d.Deployment), d.Status, replicas, seen(d.LastSeen)})
	}
	t.Render()
	if n := len(m.Deployments) - limit; n > 0 {
		fmt.Fprintf(a.out, "and %s more; see --limit or -o json\n", comma(n))
	}
	var parts []string
	for _, s := range []inventory.ModelStatus{inventory.ModelRunning, inventory.ModelShadow, inventory.ModelStale, inventory.ModelPending, inventory.ModelStopped} {
		if counts[s] > 0 {
			parts = append(parts, comma(counts[s])+" "+string(s))
		}
	}
	fmt.Fprintf(a.out, "%s deployments: %s\n", comma(len(m.Deployments)), strings.Join(parts, ", "))
}
