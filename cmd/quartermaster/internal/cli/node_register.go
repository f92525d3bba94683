package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// nodeFacts are the flags of "node register".
type nodeFacts struct {
	app.NodeFacts
	dryRun           bool
	model, from, key string
	resources        []string // NODE=ID
	cpu, memoryGiB   uint64
}

func (a *Program) nodeRegisterCommand() *cobra.Command {
	var facts nodeFacts
	cmd := &cobra.Command{
		Use:   "register --cluster CLUSTER (--seen [NODE...] | NODE...)",
		Short: "Register nodes that report and are not declared, or change declarations of nodes",
		Long: `Register --seen declares the nodes of a cluster that report GPUs and are not declared: all of
them, or those named. Use it for nodes that only Prometheus reports. A node has the GPUs that it
reported in its last two hours. It is in service from the hour in which the first of them was seen,
or from --from. The model of a GPU is the one that a node declared before, else the one that
Prometheus reports (dcgm-exporter's label modelName), else --model.

Without --seen, register changes the declaration of nodes in service. The flags replace what was
stated, from now on or from --from. Everything else stays.

A bill is matched to a node by resource id, else by account and SKU. Register lists which of these
are missing, with the command that states them.

An admin or operator must sign, of the workspace that owns the cluster or of the workspace whose
operators decide everywhere.`,
		Example: "  quartermaster node register --cluster lab --seen --dry-run\n" +
			"  quartermaster node register --cluster lab --seen --model \"H100 SXM 80GB\" --account 123456789012 --sku p5.48xlarge\n" +
			"  quartermaster node register --cluster lab gpu-1 gpu-2 --resource-id gpu-1=i-0a1 --resource-id gpu-2=i-0b2 --from 2026-06-01",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(a.NotDemo(), facts.read(args)); err != nil {
				return err
			}
			return a.registerNodes(cmd.Context(), &facts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&facts.Cluster, "cluster", "", "cluster of the nodes (required)")
	must(cmd.MarkFlagRequired("cluster"))
	f.BoolVar(&facts.Seen, "seen", false, "register nodes that report and are not declared")
	f.BoolVar(&facts.dryRun, "dry-run", false, "show what would be registered and append nothing")
	f.StringVar(&facts.model, "model", "", "model of the GPUs, for example \"H100 SXM 80GB\"; with --seen only for GPUs of unknown model")
	f.StringVar(&facts.Provider, "provider", "", "supplier of the nodes, if it is not the cluster's")
	f.StringVar(&facts.BillingAccount, "account", "", "billing account of the nodes")
	f.StringVar(&facts.SKU, "sku", "", "instance type as on the supplier's bill")
	f.StringVar(&facts.Zone, "zone", "", "zone of the nodes")
	f.StringVar(&facts.BillingModel, "billing-model", "", "reserved, on_demand, spot, capacity_block or owned")
	f.StringArrayVar(&facts.resources, "resource-id", nil, "NODE=ID: a node's id on the supplier's bill; repeatable")
	f.Uint64Var(&facts.cpu, "cpu", 0, "CPU cores of each node")
	f.Uint64Var(&facts.memoryGiB, "memory-gib", 0, "memory of each node")
	f.StringVar(&facts.from, "from", "", "since when: RFC 3339, a date or a month in UTC")
	keyFlag(cmd, &facts.key)
	return cmd
}

// read checks the flags.
func (n *nodeFacts) read(nodes []string) error {
	if !n.Seen && len(nodes) == 0 {
		return commandline.Usagef("name the nodes, or give --seen to register nodes that report and are not declared")
	}
	n.Nodes, n.CPUMilli, n.MemoryMiB = nodes, 1000*n.cpu, 1024*n.memoryGiB
	var ok bool
	if n.GPU, ok = domain.LookupGPU(n.model); !ok && n.model != "" {
		var names []string
		for _, m := range domain.GPUModels() {
			names = append(names, m.Name)
		}
		return commandline.Usagef("--model: %q is not known; %s", n.model, domain.Suggest(n.model, names))
	}
	n.ResourceIDs = map[string]string{}
	for _, r := range n.resources {
		node, id, ok := strings.Cut(r, "=")
		if !ok || node == "" || id == "" {
			return commandline.Usagef("--resource-id: %q is not NODE=ID", r)
		}
		n.ResourceIDs[node] = id
	}
	if n.from != "" {
		var err error
		if n.From, err = domain.ParseTime(n.from); err != nil {
			return commandline.Usagef("--from: %w", err)
		}
	}
	return nil
}

func (a *Program) registerNodes(ctx context.Context, facts *nodeFacts) error {
	if err := a.caller().Begin(ctx, facts.dryRun); err != nil {
		return err
	}
	ans, draft, unknown, err := a.caller().RegisterNodes(ctx, &facts.NodeFacts)
	if err != nil {
		return err
	}
	if unknown != nil && !facts.dryRun {
		return unknown
	}
	if len(ans.Nodes) > 0 && !facts.dryRun {
		s, err := a.signer(ctx, facts.key)
		if err != nil {
			return err
		}
		if err := a.decide(ctx, s, draft); err != nil {
			return err
		}
		ans.Registered, ans.Operator = true, s.name
	}
	if a.json {
		return a.answerJSON(ans)
	}
	a.showRegistered(ans, facts, unknown)
	return nil
}

func (a *Program) showRegistered(ans *app.RegisteredNodes, facts *nodeFacts, unknown error) {
	if len(ans.Nodes) == 0 {
		fmt.Fprintf(a.out, "every node of %s that reports GPUs is registered\n", ans.Cluster)
		return
	}
	t := a.table("node", "GPUs", "model", "first UUID", "in service from", "last telemetry", "missing for billing")
	gpus, missing := 0, map[string]bool{}
	for _, n := range ans.Nodes {
		gpus += len(n.GPUs)
		model, uuid := "", ""
		if len(n.GPUs) > 0 {
			model, uuid = cmp.Or(n.GPUs[0].Model, "not known"), n.GPUs[0].ID.String()
		}
		from := "now"
		if n.InServiceFrom != 0 {
			from = n.InServiceFrom.String()
		}
		for _, m := range n.MissingBilling {
			missing[m] = true
		}
		t.AppendRow(table.Row{named(n.Node), count(len(n.GPUs)), named(model), uuid, from, seen(n.LastTelemetry), strings.Join(n.MissingBilling, ", ")})
	}
	t.Render()
	if ans.Registered {
		fmt.Fprintf(a.out, "%s nodes with %s GPUs are registered, signed by %s\n", comma(len(ans.Nodes)), comma(gpus), ans.Operator)
	} else {
		fmt.Fprintln(a.out, "nothing registered: this was a dry run")
	}
	if unknown != nil {
		fmt.Fprintln(a.out, Worded(unknown))
	}
	if len(missing) == 0 {
		return
	}
	flags := map[string]string{"resource_id": " --resource-id NODE=ID", "billing_account": " --account ACCOUNT", "sku": " --sku SKU"}
	with := ""
	for _, m := range slices.Sorted(maps.Keys(missing)) {
		with += flags[m]
	}
	since := ""
	if facts.Seen {
		since = " --from " + ans.Nodes[0].InServiceFrom.String()
	}
	fmt.Fprintf(a.out, "bill matching needs the missing values; state them with\n  quartermaster node register --cluster %s NODE...%s%s\n", ans.Cluster, with, since)
}
