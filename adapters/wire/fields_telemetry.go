package wire

import (
	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Fields of the events of qm.telemetry, keyed by cluster: serving, jobs, demand and energy.
// NodeSampled has a file of its own.

func histogram(m *mover, p *eventsv1.Histogram, d *domain.Histogram) {
	same(m, &p.Bounds, &d.Bounds)
	same(m, &p.Counts, &d.Counts)
	same(m, &p.Sum, &d.Sum)
}

func servingSampled(m *mover, p *eventsv1.ServingSampled, d *domain.ServingSampled) {
	text(m, "deployment", &p.Deployment, &d.Deployment)
	text(m, "node", &p.Node, &d.Node)
	text(m, "unit", &p.Unit, &d.Unit)
	text(m, "model", &p.Model, &d.Model)
	text(m, "tier", &p.Tier, &d.Tier)
	text(m, "engine", &p.Engine, &d.Engine)
	m.interval("interval", &p.Interval, &d.Interval)
	nested(m, "ttft", &p.Ttft, &d.TTFT, histogram)
	same(m, &p.QueueDepthMilli, &d.QueueDepthMilli)
	same(m, &p.BatchSizeMilli, &d.BatchSizeMilli)
	same(m, &p.KvCachePermille, &d.KVCachePermille)
	same(m, &p.PromptTokens, &d.PromptTokens)
	same(m, &p.GenerationTokens, &d.GenerationTokens)
	same(m, &p.RequestsOk, &d.RequestsOK)
	same(m, &p.RequestsFailed, &d.RequestsFailed)
}

func metricsObserved(m *mover, p *eventsv1.MetricsObserved, d *domain.MetricsObserved) {
	m.instant("base", &p.Base, &d.Base)
	same(m, &p.StepMs, &d.StepMs)
	m.texts("strings", &p.Strings, &d.Strings)
	same(m, &p.Engine, &d.Engine)
	same(m, &p.Deployment, &d.Deployment)
	same(m, &p.Model, &d.Model)
	same(m, &p.Tier, &d.Tier)
	same(m, &p.Unit, &d.Unit)
	same(m, &p.Node, &d.Node)
	same(m, &p.Server, &d.Server)
	same(m, &p.Metric, &d.Metric)
	same(m, &p.Bound, &d.Bound)
	same(m, &p.Series, &d.Series)
	same(m, &p.Samples, &d.Samples)
	same(m, &p.OffsetMs, &d.Offset)
	same(m, &p.Value, &d.Value)
}

func jobQueued(m *mover, p *eventsv1.JobQueued, d *domain.JobQueued) {
	text(m, "job", &p.Job, &d.Job)
	text(m, "deployment", &p.Deployment, &d.Deployment)
	text(m, "class", &p.Class, &d.Class)
	nested(m, "need", &p.Need, &d.Need, gpuNeed)
	same(m, &p.Priority, &d.Priority)
}

func jobStarted(m *mover, p *eventsv1.JobStarted, d *domain.JobStarted) {
	text(m, "job", &p.Job, &d.Job)
	m.texts("nodes", &p.Nodes, &d.Nodes)
	same(m, &p.Gpus, &d.GPUs)
}

func jobFinished(m *mover, p *eventsv1.JobFinished, d *domain.JobFinished) {
	text(m, "job", &p.Job, &d.Job)
	text(m, "outcome", &p.Outcome, &d.Outcome)
	same(m, &p.RetainedPermille, &d.RetainedPermille)
	text(m, "detail", &p.Detail, &d.Detail)
}

func demandObserved(m *mover, p *eventsv1.DemandObserved, d *domain.DemandObserved) {
	text(m, "pool", &p.Pool, &d.Pool)
	text(m, "region", &p.Region, &d.Region)
	text(m, "model", &p.Model, &d.Model)
	text(m, "unit", &p.Unit, &d.Unit)
	m.interval("interval", &p.Interval, &d.Interval)
	same(m, &p.RunningMilli, &d.RunningMilli)
	same(m, &p.PendingMilli, &d.PendingMilli)
	same(m, &p.OwnedMilli, &d.OwnedMilli)
}

func energyMetered(m *mover, p *eventsv1.EnergyMetered, d *domain.EnergyMetered) {
	text(m, "meter", &p.Meter, &d.Meter)
	m.texts("nodes", &p.Nodes, &d.Nodes)
	m.interval("interval", &p.Interval, &d.Interval)
	m.decimal("watt_hours", &p.WattHours, &d.WattHours)
}

func usageCorrected(m *mover, p *eventsv1.UsageCorrected, d *domain.UsageCorrected) {
	text(m, "correction", &p.Correction, &d.Correction)
	text(m, "node", &p.Node, &d.Node)
	m.gpu("gpu", &p.Gpu, &d.GPU)
	same(m, &p.Replica, &d.Replica)
	m.interval("interval", &p.Interval, &d.Interval)
	text(m, "workspace", &p.Workspace, &d.Workspace)
	text(m, "deployment", &p.Deployment, &d.Deployment)
	text(m, "unit", &p.Unit, &d.Unit)
	text(m, "reason", &p.Reason, &d.Reason)
	same(m, &p.Cancelled, &d.Cancelled)
}
