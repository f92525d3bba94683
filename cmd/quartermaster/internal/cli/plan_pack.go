package cli

import (
	"errors"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain/packing"
)

// packFlags are the flags of "plan pack".
type packFlags struct {
	app.PackQuery
	online onlineFlags
}

func (a *Program) planPackCommand() *cobra.Command {
	var fl packFlags
	cmd := &cobra.Command{
		Use:   "pack --pods PODS.csv {--nodes NODES.csv | --node-shape SHAPE}",
		Short: "Pack pods onto nodes, from files only",
		Long: `Pack places pods on nodes and proves a bound on the number of nodes. It reads two CSV files with
the columns of the openb trace. It needs no log and changes nothing.

With --node-shape it reports how many nodes of one size the pods need (bins), and how many any
packing needs at least (lower_bound). The bound comes from column generation over greedy starts, if
this build has an LP solver, and is proven in integers. Pods without GPUs are left out unless
--every-pod is given, because GPU machines are not bought for them. A shape without a GPU model
stands for every model. With only --nodes it packs all pods onto the nodes of the file and reports
which pods did not fit, and why.

Columns of nodes: sn, cpu_milli, memory_mib, gpu, model. Columns of pods: name, cpu_milli,
memory_mib, num_gpu, gpu_milli (thousandths of each GPU), and optionally gpu_spec (allowed models,
separated by |). A file with a bad row is rejected, with file, line and column.`,
		Example: "  quartermaster plan pack --pods openb_pod_list_default.csv --node-shape 96000m,393216MiB,8\n" +
			"  quartermaster plan pack --pods openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fl.check(); err != nil {
				return err
			}
			if fl.online.policy != "" {
				return a.packOnline(cmd.Context(), &fl)
			}
			ans, err := a.caller().Pack(cmd.Context(), fl.PackQuery)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showPack(ans)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&fl.Pods, "pods", "", "pods to pack, CSV with the columns of the openb trace (required)")
	must(cmd.MarkFlagRequired("pods"))
	f.StringVar(&fl.Nodes, "nodes", "", "nodes to pack onto, CSV with the columns of the openb trace")
	f.StringVar(&fl.Shape, "node-shape", "", "pack onto as many nodes of this size as needed, as 96000m,393216MiB,8 (CPU, memory, GPUs)")
	f.BoolVar(&fl.EveryPod, "every-pod", false, "with --node-shape, also pack pods without GPUs")
	fl.online.register(cmd)
	return cmd
}

func (fl *packFlags) check() error {
	switch {
	case fl.Nodes == "" && fl.Shape == "":
		return errors.New("name the nodes with --nodes FILE, or a node size with --node-shape, as 96000m,393216MiB,8")
	case fl.online.policy != "" && fl.Nodes == "":
		return commandline.Usagef("--online replays arrivals on given nodes: name them with --nodes FILE")
	case fl.online.policy != "" && fl.Shape != "":
		return commandline.Usagef("--online replays arrivals on given nodes, --node-shape opens new nodes: leave one out")
	}
	return nil
}

func (a *Program) showPack(ans *app.Packed) {
	if s := ans.Shape; s != nil {
		of := ""
		if ans.FitNoNode > 0 {
			of = " of " + comma(ans.Pods)
		}
		fmt.Fprintf(a.out, "%s%s pods on %s nodes of %s CPU milli, %s MiB and %d GPUs; no packing needs fewer than %s",
			comma(ans.Pods-ans.FitNoNode), of, comma(ans.Bins), comma(int(s.CPUMilli)), comma(int(s.MemoryMiB)), s.GPUs, comma(ans.LowerBound))
		if ans.FitNoNode > 0 {
			fmt.Fprintf(a.out, "\n%s pods do not fit an empty node, and are in neither number", comma(ans.FitNoNode))
		}
	} else {
		fmt.Fprintf(a.out, "%s of %s pods on %s nodes; all of them need at least %s",
			comma(ans.Pods-ans.UnplacedPods), comma(ans.Pods), comma(ans.Bins), comma(ans.LowerBound))
	}
	fmt.Fprintf(a.out, "\nheuristic: %s, %s\n", ans.Method, ans.Order)
	switch ans.Columns.State {
	case packing.ColumnsDone:
		fmt.Fprintf(a.out, "column generation: %d rounds, %s patterns, converged\n", ans.Columns.Rounds, comma(ans.Columns.Patterns))
	case packing.ColumnsStopped:
		fmt.Fprintf(a.out, "column generation stopped at its work limit after %d rounds and %s patterns: the bound could be better\n", ans.Columns.Rounds, comma(ans.Columns.Patterns))
	case packing.ColumnsUnavailable:
		fmt.Fprintln(a.out, "no column generation: the LP solver cannot run here")
	case packing.ColumnsNotAsked:
		if ans.Shape != nil {
			fmt.Fprintln(a.out, "no column generation: this build has no LP solver")
		}
	}
	if ans.Excluded > 0 {
		fmt.Fprintf(a.out, "%s pods without GPUs are excluded (--every-pod packs them too)\n", comma(ans.Excluded))
	}
	free, stranded := int64(0), int64(0)
	for _, s := range ans.Stranded {
		free, stranded = free+s.FreeMilli, stranded+s.StrandedMilli
	}
	fmt.Fprintf(a.out, "%s of %s GPUs needed are placed on %s; %s stay free, %s of them stranded (unusable for these pods)\n",
		gpus(ans.GPUMilliPlaced), gpus(ans.GPUMilliNeeded), gpus(ans.GPUMilliTotal), gpus(free), gpus(stranded))
	if ans.UnplacedPods == 0 {
		fmt.Fprintln(a.out, "every pod is placed")
		return
	}
	fmt.Fprintf(a.out, "%s pods are not placed, because of:\n", comma(ans.UnplacedPods))
	t := a.table("constraint", "pods", "nodes ruled out, over all pods")
	t.SetColumnConfigs(rightFrom(2, 3))
	for _, c := range ans.Constraints {
		t.AppendRow(table.Row{c.Constraint, count(c.Pods), count(c.Machines)})
	}
	t.Render()
}
