package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// RegisteredNodes are the nodes of a cluster that a decision registers.
type RegisteredNodes struct {
	Cluster    string           `json:"cluster"`
	Nodes      []RegisteredNode `json:"nodes"`
	Registered bool             `json:"registered"` // false: a dry run, or nothing to do
	Operator   string           `json:"operator,omitempty"`
}

// RegisteredNode is a node of the registration.
type RegisteredNode struct {
	*domain.NodeRegistered
	LastTelemetry  domain.Instant `json:"last_telemetry,omitempty"`
	MissingBilling []string       `json:"missing_for_billing"` // missing fields: resource_id, billing_account, sku
}

// NodeFacts are the stated facts about nodes. Empty fields state nothing.
type NodeFacts struct {
	Cluster string
	Nodes   []string
	// Seen registers nodes that report and are not declared: the named ones, or all. Without it
	// the facts are added to nodes in service.
	Seen           bool
	Provider       string // if not the cluster's
	BillingAccount string
	SKU            string
	Zone           string
	BillingModel   string
	ResourceIDs    map[string]string // by node
	CPUMilli       uint64            // of each node
	MemoryMiB      uint64            // of each node
	GPU            domain.GPUModel   // with Seen, only of GPUs of unknown model
	From           domain.Instant    // start of service; 0: when they were first seen, or now
}

// state writes the stated facts into a node.
func (n *NodeFacts) state(r *domain.NodeRegistered) {
	for to, text := range map[*string]string{
		&r.Provider: n.Provider, &r.BillingAccount: n.BillingAccount, &r.SKU: n.SKU, &r.Zone: n.Zone,
		(*string)(&r.BillingModel): n.BillingModel, &r.ResourceID: n.ResourceIDs[r.Node],
	} {
		if text != "" {
			*to = text
		}
	}
	r.CPUMilli, r.MemoryMiB = cmp.Or(n.CPUMilli, r.CPUMilli), cmp.Or(n.MemoryMiB, r.MemoryMiB)
	for i := range r.GPUs {
		if g := &r.GPUs[i]; n.GPU.Name != "" && (g.Model == "" || !n.Seen) {
			g.Model, g.MemoryMiB = n.GPU.Name, n.GPU.MemoryMiB
		}
	}
}

// RegisterNodes drafts the registration of nodes. incomplete names GPUs of unknown model, which
// prevent the registration.
func (c *Caller) RegisterNodes(ctx context.Context, facts *NodeFacts) (ans *RegisteredNodes, draft Draft, incomplete error, err error) {
	ans = &RegisteredNodes{Cluster: facts.Cluster, Nodes: []RegisteredNode{}}
	var owner string
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		cluster, err := registry.Declared(v, auth, &domain.Envelope{
			Subject: facts.Cluster, Cluster: facts.Cluster, Event: &domain.ClusterRegistered{},
		})
		if err != nil {
			return err
		}
		if cluster == nil {
			return &NotFoundError{What: "cluster", Name: facts.Cluster, Err: fmt.Errorf("cluster %q is not registered; "+
				"\"quartermaster cluster register\" registers it", facts.Cluster)}
		}
		owner = cluster.Workspace
		if facts.Seen {
			ans.Nodes, err = seenNodes(v, facts, facts.Nodes)
		} else {
			ans.Nodes, err = nodesInService(v, facts, facts.Nodes)
		}
		for i := range ans.Nodes {
			ans.Nodes[i].complete(facts, cluster.Event.(*domain.ClusterRegistered).BillingAccount)
		}
		return err
	})
	if err != nil {
		return nil, Draft{}, nil, err
	}
	for node := range facts.ResourceIDs {
		if !slices.ContainsFunc(ans.Nodes, func(n RegisteredNode) bool { return n.Node == node }) {
			return nil, Draft{}, nil, invalid("resource-id", "node %q is not among the nodes to register", node)
		}
	}
	draft = Draft{Use: "node-register", OfNodes: true}
	for _, n := range ans.Nodes {
		draft.Events = append(draft.Events, domain.Envelope{
			Time: Now(), Subject: n.Node, Cluster: ans.Cluster, Workspace: owner, Event: n.NodeRegistered,
		})
	}
	return ans, draft, ans.unknownModels(), nil
}

// seenNodes returns the nodes that report and are not declared: all, or the named ones.
func seenNodes(v projections.View, facts *NodeFacts, names []string) ([]RegisteredNode, error) {
	seen, err := inventory.SeenNodes(v, facts.Cluster, Now())
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(seen, func(n inventory.SeenNode) bool { return n.Node == name }) {
			return nil, &NotFoundError{What: "node", Name: facts.Cluster + "/" + name, Err: fmt.Errorf("%s/%s: no unregistered node "+
				"of that name reports GPUs; see \"quartermaster fleet\"", facts.Cluster, name)}
		}
	}
	out := []RegisteredNode{}
	for _, n := range seen {
		if len(names) > 0 && !slices.Contains(names, n.Node) {
			continue
		}
		r := RegisteredNode{NodeRegistered: &domain.NodeRegistered{Node: n.Node, InServiceFrom: cmp.Or(facts.From, n.First)}, LastTelemetry: n.Last}
		for i, g := range n.GPUs {
			m, _ := domain.LookupGPU(g.Model)
			r.GPUs = append(r.GPUs, domain.GPUDeclared{ID: g.ID, Index: uint32(i), Model: cmp.Or(m.Name, g.Model), MemoryMiB: m.MemoryMiB})
		}
		out = append(out, r)
	}
	return out, nil
}

// nodesInService returns the named nodes with their present description.
func nodesInService(v projections.View, facts *NodeFacts, names []string) ([]RegisteredNode, error) {
	inv, err := inventory.New(v, inventory.Filter{Cluster: facts.Cluster, At: Now()})
	if err != nil {
		return nil, err
	}
	last := map[string]domain.Instant{}
	for _, c := range inv.Clusters {
		for _, n := range c.Nodes {
			last[n.Node] = n.LastTelemetry
		}
	}
	out := []RegisteredNode{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		r, from, err := inventory.Description(v, facts.Cluster, name, Now())
		if err != nil {
			return nil, err
		}
		if r == nil {
			return nil, &helped{&NotFoundError{
				What: "node", Name: facts.Cluster + "/" + name,
				Err: fmt.Errorf("%s/%s: no node of that name is in service", facts.Cluster, name),
			}, RemedyRegisterSeen}
		}
		if r.InServiceFrom = facts.From; facts.From != 0 && facts.From < from {
			return nil, invalid("from", "%s/%s: its present description is valid from %s, and would replace this one: want %s or later",
				facts.Cluster, name, from, from)
		}
		out = append(out, RegisteredNode{NodeRegistered: r, LastTelemetry: last[name]})
	}
	return out, nil
}

// complete adds the facts and lists what is missing to match a bill.
func (r *RegisteredNode) complete(facts *NodeFacts, account string) {
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

// unknownModels returns an error that names the GPUs of unknown model.
func (ans *RegisteredNodes) unknownModels() error {
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
	return invalid("model", "the model of %d GPUs is unknown, the first in node %s: give it, and name the nodes where they differ",
		gpus, first)
}
