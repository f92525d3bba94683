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
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// returnAnswer is what node return answers.
type returnAnswer struct {
	Cluster  string            `json:"cluster"`
	Node     string            `json:"node"`
	GPU      domain.GPUID      `json:"gpu,omitzero"`
	Reason   string            `json:"reason"`
	At       domain.Instant    `json:"at"`
	Operator string            `json:"operator"`
	Was      inventory.Health  `json:"was"`
	Health   *inventory.Health `json:"health"`
}

func (a *app) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Register nodes, put them and GPUs back into service, or take a GPU out of it"}
	cmd.AddCommand(a.nodeRegisterCommand(), a.nodeReturnCommand(), a.nodeRetireCommand())
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
reason, cordoned, drained, maintenance, faults, missing: how it stood and stands now).`,
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
			cluster, node, err := nodeArgument(args[0])
			if err != nil {
				return err
			}
			ev := &domain.NodeReturned{Node: node, Reason: reason}
			if gpu != "" {
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

// nodeArgument reads CLUSTER/NODE.
func nodeArgument(text string) (cluster, node string, err error) {
	cluster, node, ok := strings.Cut(text, "/")
	if !ok || cluster == "" || node == "" {
		return "", "", fmt.Errorf("%.200q does not name a node; want CLUSTER/NODE, for example lab/gpu-node-1", text)
	}
	return cluster, node, nil
}

func (a *app) nodeRetireCommand() *cobra.Command {
	var gpu, reason, key string
	cmd := &cobra.Command{
		Use:   "retire CLUSTER/NODE --gpu UUID --reason TEXT",
		Short: "Take one GPU of a node out of the fleet for good",
		Long: `Retire takes a GPU of a node out of service from now on, and ends its faults. A GPU
that a node no longer reports is failed until it is seen again, another stands in its
slot, or it is retired here: registering the node without it is not enough.

An admin's or operator's signature is needed, of the workspace that owns the
cluster or of the one whose operators decide everywhere.

JSON keys: cluster, node, gpu, reason, at, operator, was and health (state, since,
reason, cordoned, drained, maintenance, faults, missing: how the node stood and
stands now).`,
		Example: "  quartermaster node retire lab/gpu-node-1 --gpu GPU-6f3f1c2a-0d9b-4c55-8a51-1f0f0a1c9a11 --reason \"sent back, case 4711\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.notDemo(); err != nil {
				return err
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			cluster, node, err := nodeArgument(args[0])
			if err != nil {
				return err
			}
			ev := &domain.GPURetired{Node: node, Reason: reason}
			if ev.GPU, err = domain.ParseGPUID(gpu); err != nil {
				return fmt.Errorf("--gpu: %w", err)
			}
			return a.with(cmd.Context(), func(h *home) error { return h.retireGPU(cmd.Context(), cluster, ev, key) })
		},
	}
	cmd.Flags().StringVar(&gpu, "gpu", "", "UUID of the GPU (required)")
	must(cmd.MarkFlagRequired("gpu"))
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the log later (required)")
	must(cmd.MarkFlagRequired("reason"))
	keyFlag(cmd, &key)
	return cmd
}

func (h *home) retireGPU(ctx context.Context, cluster string, ev *domain.GPURetired, key string) error {
	ans := returnAnswer{Cluster: cluster, Node: ev.Node, GPU: ev.GPU, Reason: ev.Reason}
	if err := h.decideNode(ctx, "gpu-retire", key, &ans, ev, func(_ *inventory.Health, gpus []inventory.GPUEntry) error {
		if slices.ContainsFunc(gpus, func(g inventory.GPUEntry) bool { return g.ID == ev.GPU }) {
			return nil
		}
		return fmt.Errorf("%s/%s: %s is not in service there; see \"quartermaster fleet --nodes --json\"", cluster, ev.Node, ev.GPU)
	}); err != nil {
		return err
	}
	if h.app.json {
		return h.app.answerJSON(ans)
	}
	fmt.Fprintf(h.app.out, "%s of %s/%s is retired, signed by %s; the node is %s\n", ev.GPU, cluster, ev.Node, ans.Operator, ans.Health.State)
	return nil
}

func (h *home) returnNode(ctx context.Context, cluster string, ev *domain.NodeReturned, key string) error {
	ans := returnAnswer{Cluster: cluster, Node: ev.Node, GPU: ev.GPU, Reason: ev.Reason}
	if err := h.decideNode(ctx, "node-return", key, &ans, ev, func(was *inventory.Health, _ []inventory.GPUEntry) error {
		if (ev.GPU == (domain.GPUID{}) || slices.Contains(was.Missing, ev.GPU.String())) && len(was.Missing) > 0 && len(was.Faults) == 0 && !was.Cordoned && !was.Drained {
			return fmt.Errorf("%s/%s: GPU %s is missing, and no return ends that: it does when the node reports the GPU again or another in its slot, or with \"quartermaster node retire\"", cluster, ev.Node, was.Missing[0])
		}
		if ev.GPU == (domain.GPUID{}) && !was.Cordoned && !was.Drained && len(was.Faults) == 0 {
			return fmt.Errorf("%s/%s: nothing that a return ends keeps it from service: it is %s", cluster, ev.Node, was.State)
		}
		if ev.GPU != (domain.GPUID{}) && !slices.ContainsFunc(was.Faults, func(f string) bool { return strings.HasPrefix(f, ev.GPU.String()+" ") }) {
			return fmt.Errorf("%s/%s: no fatal fault of %s lasts", cluster, ev.Node, ev.GPU)
		}
		return nil
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
	fmt.Fprintf(h.app.out, "%s is returned, signed by %s; the node is %s\n", what, ans.Operator, ans.Health.State)
	return nil
}

// decideNode signs and appends an event about the node of ans, unless check, which gets
// how the node stands and its GPUs in service, has something against it. It completes ans.
func (h *home) decideNode(ctx context.Context, command, key string, ans *returnAnswer, ev domain.Event,
	check func(was *inventory.Health, gpus []inventory.GPUEntry) error,
) error {
	s, err := h.signer(ctx, key)
	if err != nil {
		return err
	}
	ans.At, ans.Operator = now(), s.name
	var owner string
	if err := h.view(ctx, func(v projections.View) error {
		was, gpus, workspace, err := healthOf(v, ans.Cluster, ans.Node, ans.At)
		if err != nil {
			return err
		}
		ans.Was, owner = *was, workspace
		return check(was, gpus)
	}); err != nil {
		return err
	}
	envs := []domain.Envelope{{Time: ans.At, Subject: ans.Node, Cluster: ans.Cluster, Workspace: owner, Event: ev}}
	if err := h.signNodes(ctx, command, s, envs); err != nil {
		return err
	}
	ans.At = envs[0].Time // when it takes effect, which may be later than what was looked at
	return h.view(ctx, func(v projections.View) (err error) {
		ans.Health, _, _, err = healthOf(v, ans.Cluster, ans.Node, ans.At)
		return err
	})
}

// signNodes signs and appends events about nodes of one cluster, whose workspace they
// name, if the signer may decide about those. An event that needs a signature gets the
// time of the decision.
func (h *home) signNodes(ctx context.Context, command string, s signer, envs []domain.Envelope) error {
	if err := h.view(ctx, func(v projections.View) error { return mayDecideNodes(v, s, envs[0].Workspace) }); err != nil {
		return err
	}
	for i := range envs {
		// Not every fold asks for the signature, because agents and files report nodes as well.
		if err := wire.Sign(&envs[i], s.name, s.key); err != nil {
			return err
		}
	}
	return h.decide(ctx, command, s, envs)
}

// healthOf returns how a node stands, its GPUs in service, and the workspace that owns
// its cluster.
func healthOf(v projections.View, cluster, node string, at domain.Instant) (*inventory.Health, []inventory.GPUEntry, string, error) {
	inv, err := inventory.New(v, inventory.Filter{Cluster: cluster, At: at})
	if err != nil {
		return nil, nil, "", err
	}
	for i := range inv.Clusters {
		c := &inv.Clusters[i]
		for j := range c.Nodes {
			if c.Cluster == cluster && c.Nodes[j].Node == node {
				return &c.Nodes[j].Health, c.Nodes[j].GPUs, c.Workspace, nil
			}
		}
		for j := range c.UnregisteredNodes {
			if c.Cluster == cluster && c.UnregisteredNodes[j].Node == node {
				return &c.UnregisteredNodes[j].Health, nil, c.Workspace, nil
			}
		}
	}
	return nil, nil, "", fmt.Errorf("%s/%s: no node of that name is in service or reports; see \"quartermaster fleet --nodes\"", cluster, node)
}

// mayDecideNodes returns an error when a signer may not decide about the nodes of a
// workspace.
func mayDecideNodes(v projections.View, s signer, workspace string) error {
	auth, err := registry.NewAuthority(v)
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
	return fmt.Errorf("operator %q may not register, return or retire nodes of workspace %q: that takes an admin or operator of it", s.name, workspace)
}
