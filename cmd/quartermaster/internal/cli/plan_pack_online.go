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

// onlineFlags say how arrivals are replayed.
type onlineFlags struct {
	policy string
	arrive string
	seed   int64
	seeds  int
}

func (fl *onlineFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&fl.policy, "online", "", "place pods one by one as they arrive, by this policy: balanced, bestfit, clustering, dotprod, fgd, packing or random; several separated by commas")
	f.StringVar(&fl.arrive, "arrive", "1.3", "with --online, GPUs asked for in all, in parts of those that the nodes have")
	f.Int64Var(&fl.seed, "seed", 42, "with --online, seed of the order of arrivals")
	f.IntVar(&fl.seeds, "seeds", 1, "with --online, so many runs, with this seed and the next ones")
	cmd.Long += `

With --online the pods arrive one by one and each is placed at once, without
knowledge of the next: the experiment of Weng et al. ("Beware of Fragmentation",
USENIX ATC 2023). All pods come in random order, then more of them drawn at
random, until --arrive times the GPUs of the nodes are asked for. A pod that fits
nowhere is gone. Equal seeds give the same arrivals whatever the policy, and on
openb's files with the seeds 42 to 51 those of the published runs.

  random      any node that has room
  dotprod     the node whose free CPU and GPUs are least in line with the pod
  clustering  a node with pods of the same kind, the fuller the better
  packing     shared GPUs, then nodes in use, then empty ones
  bestfit     the node with the least CPU and GPUs left over
  fgd         where least of the free GPUs becomes useless to the pods that come
  balanced    as fgd, counting memory and GPUs for which CPU or memory will run out`
	cmd.Example += "\n  quartermaster plan pack --pods openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv --online fgd --arrive 1.3 --seed 42" +
		"\n  quartermaster plan pack --pods openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv --online bestfit,fgd,balanced --seeds 10"
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, flag := range []string{"arrive", "seed", "seeds"} {
			if fl.policy == "" && cmd.Flags().Changed(flag) {
				return commandline.Usagef("--%s says how pods arrive: name a policy with --online, for example --online fgd", flag)
			}
		}
		return nil
	}
}

// packOnline replays arrivals of pods on nodes, by one or several policies.
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
		// Policies part where room gets scarce.
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
