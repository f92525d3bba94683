package main

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
	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// registerAnswer is what node register answers.
type registerAnswer struct {
	Cluster    string           `json:"cluster"`
	Nodes      []registeredNode `json:"nodes"`
	Registered bool             `json:"registered"` // false: a dry run, or nothing to do
	Operator   string           `json:"operator,omitempty"`
}

type registeredNode struct {
	*domain.NodeRegistered
	LastTelemetry  domain.Instant `json:"last_telemetry,omitempty"`
	MissingBilling []string       `json:"missing_for_billing"`
}

// nodeFacts are what the flags state of nodes. Empty ones state nothing.
type nodeFacts struct {
	seen, dryRun                      bool
	cluster, model, account, provider string
	sku, zone, billing, from, key     string
	resources                         []string // NODE=ID
	cpu, memoryGiB                    uint64

	resource map[string]string
	since    domain.Instant
	gpu      domain.GPUModel // of model
}

func (a *app) nodeRegisterCommand() *cobra.Command {
	var facts nodeFacts
	cmd := &cobra.Command{
		Use:   "register --cluster CLUSTER (--seen [NODE...] | NODE...)",
		Short: "Register the nodes that report and that nobody declared, or state more of nodes",
		Long: `Register --seen declares the nodes of a cluster that report GPUs and that nobody
declared: all of them, or those named. That is how nodes count which Prometheus alone
tells of. A node has the GPUs that it reported in its last two hours, and is in service
from the hour in which the first of them was seen (--from states another time). The model
of a GPU is the one that was declared before in any node, else the one that Prometheus
tells (dcgm-exporter's label modelName), else --model.

Without --seen, register states more of nodes that are in service: what the flags give
replaces what was stated, from now on or --from, and the rest stays.

A bill is matched to a node by its resource id, else by account and SKU. What is missing
of these is listed, with the command that states it.

The nodes are signed for by an admin or operator of the workspace that owns the cluster,
or of the one whose operators decide everywhere.

JSON keys: cluster, nodes (node, gpus (uuid, index, model, memory_mib) and what else is
stated of it, in_service_from, last_telemetry, missing_for_billing (of resource_id,
billing_account, sku)), registered (false in a dry run), operator.`,
		Example: "  quartermaster node register --cluster lab --seen --dry-run\n" +
			"  quartermaster node register --cluster lab --seen --model \"H100 SXM 80GB\" --account 123456789012 --sku p5.48xlarge\n" +
			"  quartermaster node register --cluster lab gpu-1 gpu-2 --resource-id gpu-1=i-0a1 --resource-id gpu-2=i-0b2 --from 2026-06-01",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(a.notDemo(), facts.read(args)); err != nil {
				return err
			}
			why := appending
			if facts.dryRun {
				why = reading
			}
			return a.use(cmd.Context(), why, func(h *home) error { return h.registerNodes(cmd.Context(), args, &facts) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&facts.cluster, "cluster", "", "cluster of the nodes (required)")
	must(cmd.MarkFlagRequired("cluster"))
	f.BoolVar(&facts.seen, "seen", false, "register what reports and nobody declared")
	f.BoolVar(&facts.dryRun, "dry-run", false, "show what would be registered and append nothing")
	f.StringVar(&facts.model, "model", "", "model of the GPUs, for example \"H100 SXM 80GB\"; with --seen of those whose model is not known")
	f.StringVar(&facts.provider, "provider", "", "who supplies the nodes, where it is not the cluster's")
	f.StringVar(&facts.account, "account", "", "account that the nodes are billed to")
	f.StringVar(&facts.sku, "sku", "", "instance type as on the supplier's bill")
	f.StringVar(&facts.zone, "zone", "", "zone that the nodes are in")
	f.StringVar(&facts.billing, "billing-model", "", "reserved, on_demand, spot, capacity_block or owned")
	f.StringArrayVar(&facts.resources, "resource-id", nil, "NODE=ID: a node's id on the supplier's bill; may be given again")
	f.Uint64Var(&facts.cpu, "cpu", 0, "CPU cores of each node")
	f.Uint64Var(&facts.memoryGiB, "memory-gib", 0, "memory of each node")
	f.StringVar(&facts.from, "from", "", "since when: RFC 3339, a date or a month in UTC")
	keyFlag(cmd, &facts.key)
	return cmd
}

// read checks the flags.
func (n *nodeFacts) read(nodes []string) error {
	if !n.seen && len(nodes) == 0 {
		return commandline.Usagef("name the nodes, or give --seen to register those that report and that nobody declared")
	}
	var ok bool
	if n.gpu, ok = domain.LookupGPU(n.model); !ok && n.model != "" {
		var names []string
		for _, m := range domain.GPUModels() {
			names = append(names, m.Name)
		}
		return commandline.Usagef("--model: %q is not known; %s", n.model, domain.Suggest(n.model, names))
	}
	n.resource = map[string]string{}
	for _, r := range n.resources {
		node, id, ok := strings.Cut(r, "=")
		if !ok || node == "" || id == "" {
			return commandline.Usagef("--resource-id: %q is not NODE=ID", r)
		}
		n.resource[node] = id
	}
	if n.from != "" {
		var err error
		if n.since, err = instantFlag(n.from); err != nil {
			return commandline.Usagef("--from: %w", err)
		}
	}
	return nil
}

// state writes into a node what the flags state of it.
func (n *nodeFacts) state(r *domain.NodeRegistered) {
	for to, text := range map[*string]string{
		&r.Provider: n.provider, &r.BillingAccount: n.account, &r.SKU: n.sku, &r.Zone: n.zone,
		(*string)(&r.BillingModel): n.billing, &r.ResourceID: n.resource[r.Node],
	} {
		if text != "" {
			*to = text
		}
	}
	r.CPUMilli, r.MemoryMiB = cmp.Or(1000*n.cpu, r.CPUMilli), cmp.Or(1024*n.memoryGiB, r.MemoryMiB)
	for i := range r.GPUs {
		if g := &r.GPUs[i]; n.model != "" && (g.Model == "" || !n.seen) {
			g.Model, g.MemoryMiB = n.gpu.Name, n.gpu.MemoryMiB
		}
	}
}

func (h *home) registerNodes(ctx context.Context, names []string, facts *nodeFacts) error {
	ans := registerAnswer{Cluster: facts.cluster, Nodes: []registeredNode{}}
	var owner string
	if err := h.view(ctx, func(v projections.View) error {
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		cluster, err := registry.Declared(v, auth, &domain.Envelope{
			Subject: facts.cluster, Cluster: facts.cluster, Event: &domain.ClusterRegistered{},
		})
		if err != nil {
			return err
		}
		if cluster == nil {
			return &application.NotFoundError{What: "cluster", Name: facts.cluster, Err: fmt.Errorf("cluster %q is not registered; see \"quartermaster cluster register --help\"", facts.cluster)}
		}
		owner = cluster.Workspace
		if facts.seen {
			ans.Nodes, err = seenNodes(v, facts, names)
		} else {
			ans.Nodes, err = nodesInService(v, facts, names)
		}
		for i := range ans.Nodes {
			ans.Nodes[i].complete(facts, cluster.Event.(*domain.ClusterRegistered).BillingAccount)
		}
		return err
	}); err != nil {
		return err
	}
	for node := range facts.resource {
		if !slices.ContainsFunc(ans.Nodes, func(n registeredNode) bool { return n.Node == node }) {
			return fmt.Errorf("--resource-id: node %q is not among those to be registered", node)
		}
	}
	unknown := ans.unknownModels()
	if unknown != nil && !facts.dryRun {
		return unknown
	}
	if len(ans.Nodes) > 0 && !facts.dryRun {
		s, err := h.signer(ctx, facts.key)
		if err != nil {
			return err
		}
		envs := make([]domain.Envelope, len(ans.Nodes))
		for i, n := range ans.Nodes {
			envs[i] = domain.Envelope{Time: now(), Subject: n.Node, Cluster: ans.Cluster, Workspace: owner, Event: n.NodeRegistered}
		}
		if err := h.signNodes(ctx, "node-register", s, envs); err != nil {
			return err
		}
		ans.Registered, ans.Operator = true, s.name
	}
	if h.app.json {
		return h.app.answerJSON(ans)
	}
	h.app.showRegistered(&ans, facts, unknown)
	return nil
}

// seenNodes returns those that report and that nobody declared: all, or the named.
func seenNodes(v projections.View, facts *nodeFacts, names []string) ([]registeredNode, error) {
	seen, err := inventory.SeenNodes(v, facts.cluster, now())
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(seen, func(n inventory.SeenNode) bool { return n.Node == name }) {
			return nil, fmt.Errorf("%s/%s: no node of that name reports GPUs and is not registered; see \"quartermaster fleet --nodes\"", facts.cluster, name)
		}
	}
	out := []registeredNode{}
	for _, n := range seen {
		if len(names) > 0 && !slices.Contains(names, n.Node) {
			continue
		}
		r := registeredNode{NodeRegistered: &domain.NodeRegistered{Node: n.Node, InServiceFrom: cmp.Or(facts.since, n.First)}, LastTelemetry: n.Last}
		for i, g := range n.GPUs {
			m, _ := domain.LookupGPU(g.Model)
			r.GPUs = append(r.GPUs, domain.GPUDeclared{ID: g.ID, Index: uint32(i), Model: cmp.Or(m.Name, g.Model), MemoryMiB: m.MemoryMiB})
		}
		out = append(out, r)
	}
	return out, nil
}

// nodesInService returns the named nodes as they are described.
func nodesInService(v projections.View, facts *nodeFacts, names []string) ([]registeredNode, error) {
	out := []registeredNode{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		r, from, err := inventory.Description(v, facts.cluster, name, now())
		if err != nil {
			return nil, err
		}
		if r == nil {
			return nil, fmt.Errorf("%s/%s: no node of that name is in service; --seen registers one that reports", facts.cluster, name)
		}
		if r.InServiceFrom = facts.since; facts.since != 0 && facts.since < from {
			return nil, fmt.Errorf("%s/%s: what holds of it was stated from %s on, and would replace this: give --from %s or later", facts.cluster, name, from, from)
		}
		out = append(out, registeredNode{NodeRegistered: r})
	}
	return out, nil
}

// complete states what the flags do and lists what a bill cannot be matched by.
func (r *registeredNode) complete(facts *nodeFacts, account string) {
	facts.state(r.NodeRegistered)
	r.MissingBilling = []string{}
	for _, f := range [...]struct{ name, value string }{
		{"resource_id", r.ResourceID}, {"billing_account", cmp.Or(r.BillingAccount, account)}, {"sku", r.SKU},
	} {
		if f.value == "" {
			r.MissingBilling = append(r.MissingBilling, f.name)
		}
	}
}

// unknownModels returns an error that says of which GPUs the model is not known.
func (ans *registerAnswer) unknownModels() error {
	gpus, first := 0, ""
	for _, n := range ans.Nodes {
		for _, g := range n.GPUs {
			if g.Model == "" {
				gpus, first = gpus+1, cmp.Or(first, n.Node)
			}
		}
	}
	if gpus == 0 {
		return nil
	}
	return fmt.Errorf("the model of %d GPUs is not known, the first in node %s: give --model, and name the nodes where they differ", gpus, first)
}

func (a *app) showRegistered(ans *registerAnswer, facts *nodeFacts, unknown error) {
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
		t.AppendRow(table.Row{clipped(n.Node), comma(len(n.GPUs)), clipped(model), uuid, from, seen(n.LastTelemetry), strings.Join(n.MissingBilling, ", ")})
	}
	t.Render()
	if ans.Registered {
		fmt.Fprintf(a.out, "%s nodes with %s GPUs are registered, signed by %s\n", comma(len(ans.Nodes)), comma(gpus), ans.Operator)
	} else {
		fmt.Fprintln(a.out, "nothing registered: this was a dry run")
	}
	if unknown != nil {
		fmt.Fprintln(a.out, unknown)
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
	if facts.seen {
		since = " --from " + ans.Nodes[0].InServiceFrom.String()
	}
	fmt.Fprintf(a.out, "bills are matched by what is missing; state it with\n  quartermaster node register --cluster %s NODE...%s%s\n", ans.Cluster, with, since)
}
