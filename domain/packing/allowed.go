package packing

// RuledOut returns the constraint that keeps the workload off the node even if the node is empty,
// not counting room: GPU model, placement, residency, certification, or a node dedicated to another
// workspace. It is "" if there is none.
func (w *Workload) RuledOut(n *Node) Constraint {
	load, node := *w, *n
	load.Models, load.Countries = set(w.Models), set(w.Countries)
	load.Certifications, load.Clusters = set(w.Certifications), set(w.Clusters)
	node.Certifications = set(n.Certifications)
	return neverOn(&load, &node)
}

// Check returns an error if a quantity of the node or machine is meaningless or too large to count
// exactly.
func (n *Node) Check() error { return n.check(false) }

// Check returns an error if a quantity of the workload is meaningless or too large to count
// exactly.
func (w *Workload) Check() error { return w.check() }
