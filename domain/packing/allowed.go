package packing

// RuledOut returns the constraint that keeps the workload from the node however
// empty it is, room apart: GPU model, placement, residency, certification or a
// node that is dedicated to another. It is "" when there is none.
func (w *Workload) RuledOut(n *Node) Constraint {
	load, node := *w, *n
	load.Models, load.Countries = set(w.Models), set(w.Countries)
	load.Certifications, load.Clusters = set(w.Certifications), set(w.Clusters)
	node.Certifications = set(n.Certifications)
	return neverOn(&load, &node)
}

// Check says why the quantities of a node or a machine have no meaning or are
// beyond what is counted exactly, nil when they are in order.
func (n *Node) Check() error { return n.check(false) }

// Check says why the quantities of a workload have no meaning or are beyond what
// is counted exactly, nil when they are in order.
func (w *Workload) Check() error { return w.check() }
