package app

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// NodeDecision is a decision about a node, with the node's state before and after.
type NodeDecision struct {
	Cluster  string            `json:"cluster"`
	Node     string            `json:"node"`
	GPU      domain.GPUID      `json:"gpu,omitzero"`
	Reason   string            `json:"reason"`
	At       domain.Instant    `json:"at"`
	Operator string            `json:"operator"`
	Was      inventory.Health  `json:"was"`
	Health   *inventory.Health `json:"health"`
}

// ReturnNode drafts the return of a node, or one GPU of it, to service.
func (c *Caller) ReturnNode(ctx context.Context, cluster string, ev *domain.NodeReturned) (*NodeDecision, Draft, error) {
	ans := &NodeDecision{Cluster: cluster, Node: ev.Node, GPU: ev.GPU, Reason: ev.Reason}
	draft, err := c.decideNode(ctx, "node-return", ans, ev, func(was *inventory.Health, _ []inventory.GPUEntry) error {
		missing := ev.GPU == (domain.GPUID{}) || slices.Contains(was.Missing, ev.GPU.String())
		if missing && len(was.Missing) > 0 && len(was.Faults) == 0 && !was.Cordoned && !was.Drained {
			return &ConflictError{Err: fmt.Errorf("%s/%s: GPU %s is missing, and a return does not end that: it ends when the node reports the GPU again "+
				"or another in its slot, or with \"quartermaster node retire\"", cluster, ev.Node, was.Missing[0])}
		}
		if ev.GPU == (domain.GPUID{}) && !was.Cordoned && !was.Drained && len(was.Faults) == 0 {
			return &ConflictError{Err: fmt.Errorf("%s/%s: there is nothing to return it from: it is %s", cluster, ev.Node, was.State)}
		}
		if ev.GPU != (domain.GPUID{}) && !slices.ContainsFunc(was.Faults, func(f string) bool { return strings.HasPrefix(f, ev.GPU.String()+" ") }) {
			return &ConflictError{Err: fmt.Errorf("%s/%s: %s has no lasting fatal fault", cluster, ev.Node, ev.GPU)}
		}
		return nil
	})
	return ans, draft, err
}

// RetireGPU drafts the permanent removal of a GPU from the fleet.
func (c *Caller) RetireGPU(ctx context.Context, cluster string, ev *domain.GPURetired) (*NodeDecision, Draft, error) {
	ans := &NodeDecision{Cluster: cluster, Node: ev.Node, GPU: ev.GPU, Reason: ev.Reason}
	draft, err := c.decideNode(ctx, "gpu-retire", ans, ev, func(_ *inventory.Health, gpus []inventory.GPUEntry) error {
		if slices.ContainsFunc(gpus, func(g inventory.GPUEntry) bool { return g.ID == ev.GPU }) {
			return nil
		}
		return &NotFoundError{What: "gpu", Name: ev.GPU.String(), Err: fmt.Errorf("%s/%s: %s is not in service there; see \"quartermaster fleet\", which lists nodes and GPUs",
			cluster, ev.Node, ev.GPU)}
	})
	return ans, draft, err
}

// DrainNode drafts that a node is out of service and empty.
func (c *Caller) DrainNode(ctx context.Context, cluster string, ev *domain.NodeDrained) (*NodeDecision, Draft, error) {
	ans := &NodeDecision{Cluster: cluster, Node: ev.Node, Reason: ev.Reason}
	draft, err := c.decideNode(ctx, "node-drain", ans, ev, func(was *inventory.Health, _ []inventory.GPUEntry) error {
		if was.Drained {
			return &ConflictError{Err: fmt.Errorf("%s/%s has been drained since %s: \"quartermaster node return\" ends that",
				cluster, ev.Node, was.Since)}
		}
		return nil
	})
	return ans, draft, err
}

// RetireNode drafts the permanent removal of a registered node with all its GPUs.
func (c *Caller) RetireNode(ctx context.Context, cluster string, ev *domain.NodeRetired) (*NodeDecision, Draft, error) {
	ans := &NodeDecision{Cluster: cluster, Node: ev.Node, Reason: ev.Reason}
	draft, err := c.decideNode(ctx, "node-retire", ans, ev, func(_ *inventory.Health, gpus []inventory.GPUEntry) error {
		if gpus == nil {
			return &NotFoundError{What: "node", Name: cluster + "/" + ev.Node, Err: fmt.Errorf("%s/%s reports but is not registered, "+
				"so there is nothing to retire; see \"quartermaster fleet\"", cluster, ev.Node)}
		}
		return nil
	})
	return ans, draft, err
}

// NodeHealth returns the health of a node at a time.
func (c *Caller) NodeHealth(ctx context.Context, cluster, node string, at domain.Instant) (health *inventory.Health, err error) {
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		health, _, _, err = healthOf(v, cluster, node, at)
		return err
	})
	return health, err
}

// decideNode drafts an event about the node of ans and completes ans. check gets the node's
// health and its GPUs in service, and may refuse.
func (c *Caller) decideNode(ctx context.Context, use string, ans *NodeDecision, ev domain.Event,
	check func(was *inventory.Health, gpus []inventory.GPUEntry) error,
) (Draft, error) {
	ans.At = Now()
	draft := Draft{Use: use, OfNodes: true, Events: []domain.Envelope{{Time: ans.At, Subject: ans.Node, Cluster: ans.Cluster, Event: ev}}}
	err := c.read(ctx, "", func(_ *Conn, v projections.View) error {
		was, gpus, workspace, err := healthOf(v, ans.Cluster, ans.Node, ans.At)
		if err != nil {
			return err
		}
		ans.Was, draft.Events[0].Workspace = *was, workspace
		return check(was, gpus)
	})
	return draft, err
}

// healthOf returns a node's health, its GPUs in service (nil for a node that is not registered)
// and the workspace that owns its cluster.
func healthOf(v projections.View, cluster, node string, at domain.Instant) (*inventory.Health, []inventory.GPUEntry, string, error) {
	inv, err := inventory.New(v, inventory.Filter{Cluster: cluster, At: at})
	if err != nil {
		return nil, nil, "", err
	}
	for i := range inv.Clusters {
		c := &inv.Clusters[i]
		for j := range c.Nodes {
			if c.Cluster == cluster && c.Nodes[j].Node == node {
				return &c.Nodes[j].Health, append([]inventory.GPUEntry{}, c.Nodes[j].GPUs...), c.Workspace, nil
			}
		}
		for j := range c.UnregisteredNodes {
			if c.Cluster == cluster && c.UnregisteredNodes[j].Node == node {
				return &c.UnregisteredNodes[j].Health, nil, c.Workspace, nil
			}
		}
	}
	return nil, nil, "", &NotFoundError{What: "node", Name: cluster + "/" + node, Err: fmt.Errorf("%s/%s: no node of that name is in service or reports; "+
		"see \"quartermaster fleet\"", cluster, node)}
}

// mayOperate returns an error when the key does not belong to an admin or operator of a workspace
// that an event is about.
func mayOperate(auth *registry.Authority, operator string, key ed25519.PublicKey, env *domain.Envelope, workspace string) error {
	for _, g := range auth.Grants() {
		if !bytes.Equal(g.PublicKey, key) || g.To != 0 && g.To <= Now() {
			continue
		}
		if (g.Role == domain.RoleAdmin || g.Role == domain.RoleOperator) && (g.Root || g.Workspace == workspace) {
			return nil
		}
	}
	return &DeniedError{Err: fmt.Errorf("operator %q may not decide %s %s: that takes an admin or operator of workspace %q",
		operator, env.Event.Type(), env.Subject, workspace)}
}
