package wire

import (
	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Fields of the events of qm.hardware, keyed by cluster: faults and repairs.

func gpuFaultObserved(m *mover, p *eventsv1.GPUFaultObserved, d *domain.GPUFaultObserved) {
	text(m, "node", &p.Node, &d.Node)
	m.gpu("gpu", &p.Gpu, &d.GPU)
	text(m, "kind", &p.Kind, &d.Kind)
	same(m, &p.Code, &d.Code)
	same(m, &p.Field, &d.Field)
	same(m, &p.Count, &d.Count)
	text(m, "class", &p.Class, &d.Class)
	text(m, "action", &p.Action, &d.Action)
	same(m, &p.Fatal, &d.Fatal)
	text(m, "detail", &p.Detail, &d.Detail)
	m.instant("boot_time", &p.BootTime, &d.BootTime)
}

func nodeCordoned(m *mover, p *eventsv1.NodeCordoned, d *domain.NodeCordoned) {
	text(m, "node", &p.Node, &d.Node)
	text(m, "reason", &p.Reason, &d.Reason)
	same(m, &p.Repair, &d.Repair)
}

func nodeDrained(m *mover, p *eventsv1.NodeDrained, d *domain.NodeDrained) {
	text(m, "node", &p.Node, &d.Node)
	text(m, "reason", &p.Reason, &d.Reason)
}

func nodeReturned(m *mover, p *eventsv1.NodeReturned, d *domain.NodeReturned) {
	text(m, "node", &p.Node, &d.Node)
	text(m, "reason", &p.Reason, &d.Reason)
	m.gpu("gpu", &p.Gpu, &d.GPU)
	same(m, &p.Faults, &d.Faults)
}

func collectorSilent(m *mover, p *eventsv1.CollectorSilent, d *domain.CollectorSilent) {
	text(m, "node", &p.Node, &d.Node)
	m.interval("silent", &p.Silent, &d.Silent)
	text(m, "reason", &p.Reason, &d.Reason)
}

func spoolDropped(m *mover, p *eventsv1.SpoolDropped, d *domain.SpoolDropped) {
	text(m, "node", &p.Node, &d.Node)
	text(m, "stream", &p.Stream, &d.Stream)
	same(m, &p.From, &d.From)
	same(m, &p.To, &d.To)
	m.interval("covered", &p.Covered, &d.Covered)
	text(m, "reason", &p.Reason, &d.Reason)
	same(m, &p.Incarnation, &d.Incarnation)
}
