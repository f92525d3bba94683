package wire

import (
	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Fields of the events of qm.deployments, keyed by cluster: desired and observed deployments.

func gpuNeed(m *mover, p *eventsv1.GPUNeed, d *domain.GPUNeed) {
	m.texts("models", &p.Models, &d.Models)
	same(m, &p.Count, &d.Count)
	same(m, &p.Milli, &d.Milli)
	text(m, "mig_profile", &p.MigProfile, &d.MIGProfile)
	same(m, &p.GpuMemoryMib, &d.MemoryMiB)
	same(m, &p.CpuMilli, &d.CPUMilli)
	same(m, &p.RamMib, &d.RAMMiB)
	same(m, &p.GangNodes, &d.GangNodes)
}

func deploymentChanged(m *mover, p *eventsv1.DeploymentChanged, d *domain.DeploymentChanged) {
	text(m, "deployment", &p.Deployment, &d.Deployment)
	text(m, "model", &p.Model, &d.Model)
	text(m, "tier", &p.Tier, &d.Tier)
	text(m, "environment", &p.Environment, &d.Environment)
	text(m, "class", &p.Class, &d.Class)
	same(m, &p.Replicas, &d.Replicas)
	nested(m, "need", &p.Need, &d.Need, gpuNeed)
	m.texts("countries", &p.Countries, &d.Countries)
	m.texts("certifications", &p.Certifications, &d.Certifications)
	same(m, &p.MaxPerNode, &d.MaxPerNode)
	same(m, &p.Dedicated, &d.Dedicated)
	same(m, &p.Interruptible, &d.Interruptible)
	same(m, &p.LatencyMicros, &d.LatencyMicros)
	same(m, &p.Priority, &d.Priority)
}

func deploymentRemoved(m *mover, p *eventsv1.DeploymentRemoved, d *domain.DeploymentRemoved) {
	text(m, "deployment", &p.Deployment, &d.Deployment)
	text(m, "reason", &p.Reason, &d.Reason)
}

func replicasObserved(m *mover, p *eventsv1.ReplicasObserved, d *domain.ReplicasObserved) {
	text(m, "deployment", &p.Deployment, &d.Deployment)
	text(m, "model", &p.Model, &d.Model)
	text(m, "tier", &p.Tier, &d.Tier)
	same(m, &p.Ready, &d.Ready)
	same(m, &p.Desired, &d.Desired)
}
