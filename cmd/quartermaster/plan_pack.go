package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"quartermaster/adapters/importer"
	"quartermaster/adapters/rows"
	"quartermaster/domain"
	"quartermaster/domain/packing"
)

// packFlags say what "plan pack" packs and how.
type packFlags struct {
	nodes, pods string
	shape       string // of all nodes, instead of those of a file
	everyPod    bool
	online      onlineFlags
}

func (a *app) planPackCommand() *cobra.Command {
	var fl packFlags
	cmd := &cobra.Command{
		Use:   "pack --pods PODS.csv {--nodes NODES.csv | --node-shape SHAPE}",
		Short: "Pack pods onto nodes, from files alone",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fl.check(); err != nil {
				return err
			}
			pods, err := readPods(cmd.Context(), fl.pods)
			if err != nil {
				return err
			}
			var nodes []packing.Node
			if fl.nodes != "" {
				if nodes, err = readNodes(cmd.Context(), fl.nodes); err != nil {
					return err
				}
			}
			if fl.online.policy != "" {
				return a.packOnline(cmd.Context(), &fl.online, nodes, pods)
			}
			return errors.New("plan pack: offline packing is not there yet")
		},
	}
	f := cmd.Flags()
	f.StringVar(&fl.pods, "pods", "", "pods to pack, CSV in the columns of the openb trace (required)")
	must(cmd.MarkFlagRequired("pods"))
	f.StringVar(&fl.nodes, "nodes", "", "nodes to pack onto, CSV in the columns of the openb trace")
	f.StringVar(&fl.shape, "node-shape", "", "pack onto as many nodes as it takes, all of this size, as 96000m,393216MiB,8 (CPU, memory, GPUs)")
	f.BoolVar(&fl.everyPod, "every-pod", false, "with --node-shape, pack the pods without GPUs, too")
	fl.online.register(cmd)
	return cmd
}

func (fl *packFlags) check() error {
	switch {
	case fl.nodes == "" && fl.shape == "":
		return errors.New("name the nodes with --nodes FILE, or a size for as many as it takes with --node-shape, as 96000m,393216MiB,8")
	case fl.online.policy != "" && fl.nodes == "":
		return errors.New("--online replays arrivals on given nodes: name them with --nodes FILE")
	case fl.online.policy != "" && fl.shape != "":
		return errors.New("--online replays arrivals on given nodes, --node-shape opens as many as it takes: leave one out")
	}
	return nil
}

// readNodes reads a list of nodes in the columns of the openb trace, one
// machine each, in the order of the rows.
func readNodes(ctx context.Context, path string) ([]packing.Node, error) {
	var nodes []packing.Node
	err := readTable(ctx, importer.Nodes, path, func(event domain.Event) error {
		n, ok := event.(*domain.NodeRegistered)
		if !ok {
			return nil
		}
		node := packing.Node{
			ID: n.Node, Count: 1, Cluster: filesCluster, GPUs: len(n.GPUs),
			CPUMilli: clampedAmount(n.CPUMilli), MemoryMiB: clampedAmount(n.MemoryMiB),
		}
		if len(n.GPUs) > 0 {
			node.Model = n.GPUs[0].Model
		}
		nodes = append(nodes, node)
		return nil
	})
	return nodes, err
}

// readPods reads a list of pods in the columns of the openb trace, each a
// workload of one replica, in the order of the rows. The models that a pod
// allows (gpu_spec) are spelled as those of nodes are.
func readPods(ctx context.Context, path string) ([]packing.Workload, error) {
	var pods []packing.Workload
	err := readTable(ctx, importer.Pods, path, func(event domain.Event) error {
		d, ok := event.(*domain.DeploymentChanged)
		if !ok {
			return nil
		}
		milli := int64(d.Need.Count) * 1000
		if d.Need.Milli > 0 {
			milli = int64(d.Need.Milli)
		}
		pods = append(pods, packing.Workload{
			ID: d.Deployment, Deployment: d.Deployment, Class: string(d.Class), Replicas: 1,
			GPUMilli: milli, CPUMilli: clampedAmount(d.Need.CPUMilli), MemoryMiB: clampedAmount(d.Need.RAMMiB),
			Models: d.Need.Models,
		})
		return nil
	})
	return pods, err
}

// filesCluster is where the nodes of a file stand: in one cluster.
const filesCluster = "files"

// clampedAmount keeps what is beyond any machine beyond any machine, so that
// the packer and not the conversion refuses it.
func clampedAmount(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// readTable hands out the events of a file, in the order of its rows. Unlike an
// import it refuses a file of which any row is bad: what is left would be
// another problem.
func readTable(ctx context.Context, kind importer.Kind, path string, each func(domain.Event) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	defer f.Close()
	// The times of pods do not matter here, so any epoch will do.
	opts := importer.Options{
		Cluster: filesCluster, Workspace: platform, Standing: true,
		Epoch: domain.InstantOf(time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
	var bad []rows.BadRow
	sum, err := importer.Run(ctx, kind, f, path, opts,
		func(env *domain.Envelope) error { return each(env.Event) },
		func(b rows.BadRow) {
			if len(bad) < listedBadPods {
				bad = append(bad, b)
			}
		})
	if err != nil {
		return err
	}
	if len(bad) > 0 {
		lines := make([]string, 0, len(bad))
		for _, b := range bad {
			lines = append(lines, b.String())
		}
		if more := sum.Bad - len(bad); more > 0 {
			lines = append(lines, fmt.Sprintf("and %s more", comma(more)))
		}
		return fmt.Errorf("%s of %s rows of %s cannot be read: %s", comma(sum.Bad), comma(sum.Rows), path, strings.Join(lines, "\n  "))
	}
	return nil
}

// listedBadPods is how many bad rows an error names.
const listedBadPods = 5

// parseShape reads a size of nodes: CPU in thousandths ("96000m") or cores
// ("96"), memory in MiB or GiB ("393216MiB", "384GiB"), GPUs, and perhaps their
// model.
func parseShape(text string) (packing.Node, error) {
	n := packing.Node{ID: "node", Count: packing.Unlimited}
	fields := strings.Split(text, ",")
	wrong := func(what, value, want string) (packing.Node, error) {
		return packing.Node{}, fmt.Errorf("--node-shape %q: %s %q is not %s", text, what, value, want)
	}
	if len(fields) != 3 && len(fields) != 4 {
		return packing.Node{}, fmt.Errorf("--node-shape %q has %d parts, want CPU, memory, GPUs and perhaps their model, as 96000m,393216MiB,8", text, len(fields))
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	number := func(s string, unit int64) (int64, bool) {
		v, err := strconv.ParseInt(s, 10, 64)
		return v * unit, err == nil && v >= 0 && v <= math.MaxInt32 && !strings.HasPrefix(s, "+")
	}
	cpu, milli := strings.CutSuffix(fields[0], "m")
	unit := int64(1000)
	if milli {
		unit = 1
	}
	var ok bool
	if n.CPUMilli, ok = number(cpu, unit); !ok {
		return wrong("CPU", fields[0], "thousandths such as 96000m or cores such as 96")
	}
	memory, gib := strings.CutSuffix(fields[1], "GiB")
	unit = 1024
	if !gib {
		unit = 1
		if memory, ok = strings.CutSuffix(fields[1], "MiB"); !ok {
			return wrong("memory", fields[1], "a size such as 393216MiB or 384GiB")
		}
	}
	if n.MemoryMiB, ok = number(memory, unit); !ok {
		return wrong("memory", fields[1], "a size such as 393216MiB or 384GiB")
	}
	gpus, ok := number(fields[2], 1)
	if !ok {
		return wrong("GPUs", fields[2], "a number such as 8")
	}
	n.GPUs = int(gpus)
	if len(fields) == 4 {
		if n.Model = fields[3]; n.Model == "" {
			return wrong("GPU model", fields[3], "a name such as A100")
		}
		if m, known := domain.LookupGPU(n.Model); known {
			n.Model = m.Name
		}
	}
	return n, nil
}
