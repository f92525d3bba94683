package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
)

// returnAnswer is what node return answers.
type returnAnswer struct {
	Cluster  string              `json:"cluster"`
	Node     string              `json:"node"`
	GPU      domain.GPUID        `json:"gpu,omitzero"`
	Reason   string              `json:"reason"`
	At       domain.Instant      `json:"at"`
	Operator string              `json:"operator"`
	Was      projections.Health  `json:"was"`
	Health   *projections.Health `json:"health"`
}

func (a *app) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Put nodes and GPUs back into service"}
	cmd.AddCommand(a.nodeReturnCommand())
	return cmd
}

func (a *app) nodeReturnCommand() *cobra.Command {
	var gpu, reason, key string
	cmd := &cobra.Command{
		Use:   "return CLUSTER/NODE --reason TEXT",
		Short: "Say that what took a node or a GPU out of service is over",
		Long: `Return ends, from now on, every fatal fault, cordon and drain of a node: what
"quartermaster fleet" shows as failed is in service, and its time no longer counts
as failed. With --gpu it ends the faults of that GPU alone. A fault that comes
later counts again.

node-reporter says by itself that a GPU works again when it can see that: one that
was lost is reached again, the driver wants nothing done any more, or the node was
booted after a fault that asked for a reset. This is for the rest: a GPU that was
replaced, or a driver that does not say.

An admin's or operator's signature is needed, of the workspace that owns the
cluster or of the one whose operators decide everywhere.

JSON keys: cluster, node, gpu, reason, at, operator, was and health (state, since,
reason, cordoned, drained, maintenance, faults: how it stood and stands now).`,
		Example: "  quartermaster node return lab/gpu-node-1 --reason \"board replaced, burn-in passed\"\n" +
			"  quartermaster node return lab/gpu-node-1 --gpu GPU-6f3f1c2a-0d9b-4c55-8a51-1f0f0a1c9a11 --reason \"reset by hand\" --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.notDemo(); err != nil {
				return err
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			cluster, node, ok := strings.Cut(args[0], "/")
			if !ok || cluster == "" || node == "" {
				return fmt.Errorf("%.200q does not name a node; want CLUSTER/NODE, for example lab/gpu-node-1", args[0])
			}
			ev := &domain.NodeReturned{Node: node, Reason: reason}
			if gpu != "" {
				var err error
				if ev.GPU, err = domain.ParseGPUID(gpu); err != nil {
					return fmt.Errorf("--gpu: %w", err)
				}
				ev.Faults = true
			}
			return a.with(cmd.Context(), func(h *home) error { return h.returnNode(cmd.Context(), cluster, ev, key) })
		},
	}
	cmd.Flags().StringVar(&gpu, "gpu", "", "UUID of the GPU whose faults are over; by default all that keeps the node down")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the log later (required)")
	must(cmd.MarkFlagRequired("reason"))
	keyFlag(cmd, &key)
	return cmd
}

func (h *home) returnNode(ctx context.Context, cluster string, ev *domain.NodeReturned, key string) error {
	s, err := h.signer(ctx, key)
	if err != nil {
		return err
	}
	ans := returnAnswer{Cluster: cluster, Node: ev.Node, GPU: ev.GPU, Reason: ev.Reason, At: now(), Operator: s.name}
	var owner string
	if err := h.view(ctx, func(v projections.View) error {
		was, workspace, err := healthOf(v, cluster, ev.Node, ans.At)
		if err != nil {
			return err
		}
		ans.Was, owner = *was, workspace
		if ev.GPU == (domain.GPUID{}) && !was.Cordoned && !was.Drained && len(was.Faults) == 0 {
			return fmt.Errorf("%s/%s: nothing that a return ends keeps it from service: it is %s", cluster, ev.Node, was.State)
		}
		if ev.GPU != (domain.GPUID{}) && !slices.ContainsFunc(was.Faults, func(f string) bool { return strings.HasPrefix(f, ev.GPU.String()+" ") }) {
			return fmt.Errorf("%s/%s: no fatal fault of %s lasts", cluster, ev.Node, ev.GPU)
		}
		return mayReturn(v, s, owner)
	}); err != nil {
		return err
	}
	envs := []domain.Envelope{{Time: ans.At, Subject: ev.Node, Cluster: cluster, Workspace: owner, Event: ev}}
	// No fold asks for the signature, because agents return nodes as well.
	if err := wire.Sign(&envs[0], s.name, s.key); err != nil {
		return err
	}
	if err := h.decide(ctx, "node-return", s, envs); err != nil {
		return err
	}
	if err := h.view(ctx, func(v projections.View) (err error) {
		ans.Health, _, err = healthOf(v, cluster, ev.Node, ans.At)
		return err
	}); err != nil {
		return err
	}
	if h.app.json {
		return h.app.answerJSON(ans)
	}
	what := cluster + "/" + ev.Node
	if ev.GPU != (domain.GPUID{}) {
		what = ev.GPU.String() + " of " + what
	}
	fmt.Fprintf(h.app.out, "%s is returned, signed by %s; the node is %s\n", what, s.name, ans.Health.State)
	return nil
}

// healthOf returns how a node stands, and the workspace that owns its cluster.
func healthOf(v projections.View, cluster, node string, at domain.Instant) (*projections.Health, string, error) {
	inv, err := projections.NewInventory(v, projections.InventoryFilter{Cluster: cluster, At: at})
	if err != nil {
		return nil, "", err
	}
	for i := range inv.Clusters {
		c := &inv.Clusters[i]
		for j := range c.Nodes {
			if c.Cluster == cluster && c.Nodes[j].Node == node {
				return &c.Nodes[j].Health, c.Workspace, nil
			}
		}
		for j := range c.UnregisteredNodes {
			if c.Cluster == cluster && c.UnregisteredNodes[j].Node == node {
				return &c.UnregisteredNodes[j].Health, c.Workspace, nil
			}
		}
	}
	return nil, "", fmt.Errorf("%s/%s: no node of that name is in service or reports; see \"quartermaster fleet --nodes\"", cluster, node)
}

// mayReturn returns an error when a signer may not say that a node of a workspace is in
// service.
func mayReturn(v projections.View, s signer, workspace string) error {
	auth, err := projections.NewAuthority(v)
	if err != nil {
		return err
	}
	for _, g := range auth.Grants() {
		if !bytes.Equal(g.PublicKey, s.key.Public().(ed25519.PublicKey)) || g.To != 0 && g.To <= now() {
			continue
		}
		if (g.Role == domain.RoleAdmin || g.Role == domain.RoleOperator) && (g.Root || g.Workspace == workspace) {
			return nil
		}
	}
	return fmt.Errorf("operator %q may not return nodes of workspace %q: that takes an admin or operator of it", s.name, workspace)
}
