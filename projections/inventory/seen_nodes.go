package inventory

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// SeenNode is an undeclared node that reports GPUs.
type SeenNode struct {
	Node  string
	First domain.Instant // the hour of the first report of one of GPUs
	Last  domain.Instant // end of the last report
	GPUs  []SeenGPU      // of its last two hours of reports, by id
}

// SeenGPU is a GPU of an undeclared node.
type SeenGPU struct {
	ID    domain.GPUID
	Model string // as last declared for any node, else as last reported, else ""
}

// SeenNodes returns the undeclared nodes of a cluster that report GPUs, by name. A GPU that a node
// in service declares belongs to that node, under whatever name it is reported.
func SeenNodes(view projections.View, cluster string, at domain.Instant) ([]SeenNode, error) {
	inv, err := New(view, Filter{Cluster: cluster, At: at})
	if err != nil {
		return nil, err
	}
	last := map[string]domain.Instant{}
	taken := map[domain.GPUID]bool{}
	for _, c := range inv.Clusters {
		for _, n := range c.UnregisteredNodes {
			last[n.Node] = n.LastTelemetry
		}
		for _, n := range c.Nodes {
			for _, g := range n.GPUs {
				taken[g.ID] = true
			}
		}
	}
	reported := map[string][]projections.ReportedGPU{} // of all months
	told := map[domain.GPUID]projections.ToldModel{}
	query := projections.Query{Table: projections.TableNodeGPUs, Scope: cluster, To: projections.HourOf(at-1) + 1}
	err = view.Scan(query, func(k projections.Key, row projections.Row) error {
		if _, unknown := last[k.ID]; unknown {
			reported[k.ID] = append(reported[k.ID], row.(*projections.NodeGPUs).GPUs...)
			for _, m := range row.(*projections.NodeGPUs).Models {
				if had, ok := told[m.ID]; !ok || m.After(had) {
					told[m.ID] = m
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableNodeGPUs, err)
	}
	models, err := declaredModels(view)
	if err != nil {
		return nil, err
	}
	var out []SeenNode
	for node, gpus := range reported {
		hour := slices.MaxFunc(gpus, func(a, b projections.ReportedGPU) int { return int(a.Last - b.Last) }).Last
		now := map[domain.GPUID]bool{} // those of the last hours
		for _, g := range gpus {
			now[g.ID] = now[g.ID] || g.Last >= hour-1 && !taken[g.ID]
		}
		n := SeenNode{Node: node, First: Forever, Last: last[node]}
		for _, g := range gpus {
			if now[g.ID] {
				n.First = min(n.First, domain.Instant(g.First)*domain.Hour)
				n.GPUs = append(n.GPUs, SeenGPU{g.ID, cmp.Or(models[g.ID].model, told[g.ID].Model)})
			}
		}
		slices.SortFunc(n.GPUs, func(a, b SeenGPU) int { return slices.Compare(a.ID[:], b.ID[:]) })
		if n.GPUs = slices.CompactFunc(n.GPUs, func(a, b SeenGPU) bool { return a.ID == b.ID }); len(n.GPUs) > 0 {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b SeenNode) int { return cmp.Compare(a.Node, b.Node) })
	return out, nil
}

// declaredModel is a model in a registration.
type declaredModel struct {
	order domain.Precedence
	model string
}

// declaredModels returns the model of each GPU that was ever declared, as last stated.
func declaredModels(view projections.View) (map[domain.GPUID]declaredModel, error) {
	out := map[domain.GPUID]declaredModel{}
	err := view.Scan(projections.Query{Table: projections.TableNodes}, func(_ projections.Key, row projections.Row) error {
		for _, v := range row.(*projections.History).Versions {
			if r, ok := v.Event.(*domain.NodeRegistered); ok {
				for _, g := range r.GPUs {
					if had, known := out[g.ID]; !known || v.Order.After(had.order) {
						out[g.ID] = declaredModel{v.Order, g.Model}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableNodes, err)
	}
	return out, nil
}

// Description returns the description of a node at a time, with the GPUs that it has then, and the
// start of that description; nil if the node is not in service.
func Description(view projections.View, cluster, node string, at domain.Instant) (*domain.NodeRegistered, domain.Instant, error) {
	f, err := ReadFleet(view)
	if err != nil {
		return nil, 0, err
	}
	n := f.Index[NodeName{cluster, node}]
	if n == nil {
		return nil, 0, nil
	}
	s := n.At(at)
	if s == nil {
		return nil, 0, nil
	}
	out := *s.Node
	out.GPUs = nil
	for i, g := range s.Node.GPUs {
		if !s.GPUs[i].gone(at) {
			out.GPUs = append(out.GPUs, g)
		}
	}
	return &out, s.From, nil
}
