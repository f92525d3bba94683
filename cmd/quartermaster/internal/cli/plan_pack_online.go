package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain/packing/online"
)

// onlineFlags are the flags of replayed arrivals.
type onlineFlags struct {
	policy string
	arrive string
	seed   int64
	seeds  int
}

func (fl *onlineFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&fl.policy, "online", "", "place pods one by one as they arrive, by this policy: balanced, bestfit, clustering, dotprod, fgd, packing or random; separate several by commas")
	f.StringVar(&fl.arrive, "arrive", "1.3", "with --online, total requested GPUs, as a multiple of the GPUs of the nodes")
	f.Int64Var(&fl.seed, "seed", 42, "with --online, seed of the order of arrivals")
	f.IntVar(&fl.seeds, "seeds", 1, "with --online, number of runs, with consecutive seeds")
	cmd.Long += `

With --online the pods arrive one by one, and each is placed immediately, without knowledge of
later pods. This is the experiment of Weng et al. ("Beware of Fragmentation", USENIX ATC 2023). All
pods arrive in random order, then more are drawn at random, until --arrive times the GPUs of the
nodes are requested. A pod that does not fit is dropped. Of nodes that a policy finds equally good,
the first in a random order is taken. Equal seeds give the same arrivals and the same order for
every policy. On openb's files the seeds 42 to 51 repeat the published runs.

  random      any node with room
  dotprod     the node whose free CPU and GPUs are least aligned with the pod
  clustering  a node with pods of the same kind, fullest first
  packing     shared GPUs, then nodes in use, then empty nodes
  bestfit     the node with the least CPU and GPUs left over
  fgd         the node where the fewest free GPUs become unusable for the expected pods
  balanced    as fgd, and also counts memory and GPUs that will lack CPU or memory, and
              keeps nodes for expected pods that run on few others`
	cmd.Example += "\n  quartermaster plan pack --pods openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv --online fgd --arrive 1.3 --seed 42" +
		"\n  quartermaster plan pack --pods openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv --online bestfit,fgd,balanced --seeds 10"
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, flag := range []string{"arrive", "seed", "seeds"} {
			if fl.policy == "" && cmd.Flags().Changed(flag) {
				return commandline.Usagef("--%s needs --online: name a policy, for example --online fgd", flag)
			}
		}
		return nil
	}
}

// packOnline replays arrivals of pods on nodes with one or more policies.
func (a *Program) packOnline(ctx context.Context, fl *packFlags) error {
	arrive, err := decimal.NewFromString(fl.online.arrive)
	if err != nil || len(fl.online.arrive) > 20 {
		return commandline.Usagef("--arrive %q is not a number such as 1.3", fl.online.arrive)
	}
	q := app.ArrivalsQuery{PackQuery: fl.PackQuery, Arrive: arrive, Seed: fl.online.seed, Seeds: fl.online.seeds}
	for name := range strings.SplitSeq(fl.online.policy, ",") {
		q.Policies = append(q.Policies, online.Policy(strings.TrimSpace(name)))
	}
	answers, err := a.caller().PackArrivals(ctx, q)
	switch {
	case err != nil:
		return err
	case a.json && len(answers) == 1:
		return a.answerJSON(answers[0])
	case a.json:
		return a.answerJSON(answers)
	}
	a.showOnline(answers)
	return nil
}

func (a *Program) showOnline(answers []*app.Arrivals) {
	first := answers[0]
	runs := fmt.Sprintf("seed %d", first.Seed)
	if first.Seeds > 1 {
		runs = fmt.Sprintf("mean of the seeds %d to %d", first.Seed, first.Seed+int64(first.Seeds)-1)
	}
	fmt.Fprintf(a.out, "GPUs allocated in percent of %s, by load arrived; %s\n", comma(int(first.GPUs)), runs)
	header := table.Row{"arrived"}
	for _, ans := range answers {
		header = append(header, string(ans.Policy))
	}
	t := a.table(header...)
	t.SetColumnConfigs(rightFrom(1, len(header)))
	last := len(first.Allocation) - 1
	for i, p := range first.Allocation {
		// Policies differ where room gets scarce.
		if p.Percent%10 != 0 && (p.Percent < 80 || p.Percent%5 != 0) && i != last {
			continue
		}
		row := table.Row{fmt.Sprintf("%d%%", p.Percent)}
		for _, ans := range answers {
			v, _ := ans.Allocation.At(p.Percent)
			row = append(row, fmt.Sprintf("%d.%02d", v/100, v%100))
		}
		t.AppendRow(row)
	}
	t.Render()
	for _, ans := range answers {
		arrived, placed := 0, 0
		for _, r := range ans.Runs {
			arrived, placed = arrived+r.Arrived, placed+r.Placed
		}
		fmt.Fprintf(a.out, "%s: placed %s of %s arrivals\n", ans.Policy, comma(placed), comma(arrived))
	}
}
