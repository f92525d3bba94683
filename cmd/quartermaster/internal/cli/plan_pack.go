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
		Use:   "pack --pods PODS.csv {--nodes NODES.csv | --node-shape SHAPE...}",
		Short: "Pack pods onto nodes, from files only",
		Long: `Pack places pods on nodes and proves a bound on the number of nodes. It reads two CSV files with
the columns of the openb trace. It needs no log and changes nothing.

With --node-shape it reports how many nodes of one size the pods need (bins), and how many any
packing needs at least (lower_bound). The bound comes from column generation over greedy starts, if
this build has an LP solver, and is proven in integers. Pods without GPUs are left out unless
--every-pod is given, because GPU machines are not bought for them. A shape without a GPU model
stands for every model. Repeat --node-shape for several sizes, for example one for each model, or
one without GPUs. Pods that allow only some models are then packed onto those, and the number of
nodes of all sizes together is the least. With --nodes it packs all pods onto the nodes of the
file and reports which pods did not fit, and why.

--assignments writes which pods are on which node to a file, one JSON document per line. Each line
is a node (bin) with its size and its pods: their needs, the models they allow, and the indices of
their GPUs. Pods on no node have lines at the end with not_placed: unplaced, or excluded without
--every-pod. So a reader can check that every pod of the input is there once, and that no node
holds more than it has.

Columns of nodes: sn, cpu_milli, memory_mib, gpu, model. Columns of pods: name, cpu_milli,
memory_mib, num_gpu, gpu_milli (thousandths of each GPU), and optionally gpu_spec (allowed models,
separated by |). A file with a bad row is rejected, with file, line and column.`,
		Example: "  quartermaster plan pack --pods openb_pod_list_default.csv --node-shape 96000m,393216MiB,8\n" +
			"  quartermaster plan pack --pods openb_pod_list_gpuspec10.csv --node-shape 96000m,384GiB,8,G2 --node-shape 104000m,512GiB,2,T4 --every-pod\n" +
			"  quartermaster plan pack --pods openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv --assignments assignments.jsonl\n" +
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
	f.StringArrayVar(&fl.Shapes, "node-shape", nil, "pack onto as many nodes of this size as needed, as 96000m,393216MiB,8 or 96000m,393216MiB,8,A100 (CPU, memory, GPUs, GPU model); may be repeated")
	f.BoolVar(&fl.EveryPod, "every-pod", false, "with --node-shape, also pack pods without GPUs")
	f.StringVar(&fl.Assignments, "assignments", "", "write the pods of each node to this file, as JSON lines")
	fl.online.register(cmd)
	return cmd
}

func (fl *packFlags) check() error {
	switch {
	case fl.Nodes == "" && len(fl.Shapes) == 0:
		return errors.New("name the nodes with --nodes FILE, or a node size with --node-shape, as 96000m,393216MiB,8")
	case fl.online.policy == "" && fl.Nodes != "" && len(fl.Shapes) > 0:
		return commandline.Usagef("--nodes packs onto given nodes, --node-shape opens new nodes: leave one out")
	case fl.online.policy != "" && fl.Nodes == "":
		return commandline.Usagef("--online replays arrivals on given nodes: name them with --nodes FILE")
	case fl.online.policy != "" && len(fl.Shapes) > 0:
		return commandline.Usagef("--online replays arrivals on given nodes, --node-shape opens new nodes: leave one out")
	case fl.online.policy != "" && fl.Assignments != "":
		return commandline.Usagef("--online replays many arrivals, --assignments writes one packing: leave one out")
	}
	return nil
}

func sizeText(s *app.PackShape) string {
	text := fmt.Sprintf("%s CPU milli, %s MiB and %d GPUs", comma(int(s.CPUMilli)), comma(int(s.MemoryMiB)), s.GPUs)
	if s.Model != "" {
		text += " " + s.Model
	}
	return text
}

func (a *Program) showPack(ans *app.Packed) {
	if len(ans.Shapes) > 0 {
		of, size := "", ""
		if ans.FitNoNode > 0 {
			of = " of " + comma(ans.Pods)
		}
		if len(ans.Shapes) == 1 {
			size = " of " + sizeText(&ans.Shapes[0].PackShape)
		}
		fmt.Fprintf(a.out, "%s%s pods on %s nodes%s; no packing needs fewer than %s",
			comma(ans.Pods-ans.FitNoNode), of, comma(ans.Bins), size, comma(ans.LowerBound))
		if len(ans.Shapes) > 1 {
			for i := range ans.Shapes {
				fmt.Fprintf(a.out, "\n  %s of %s", comma(ans.Shapes[i].Bins), sizeText(&ans.Shapes[i].PackShape))
			}
		}
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
		if len(ans.Shapes) > 0 {
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
