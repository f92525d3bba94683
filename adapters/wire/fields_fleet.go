package wire

import (
	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Fields of the events of qm.fleet, keyed by cluster: the hardware inventory.

func clusterRegistered(m *mover, p *eventsv1.ClusterRegistered, d *domain.ClusterRegistered) {
	text(m, "name", &p.Name, &d.Name)
	text(m, "provider", &p.Provider, &d.Provider)
	text(m, "provider_class", &p.ProviderClass, &d.ProviderClass)
	text(m, "region", &p.Region, &d.Region)
	text(m, "billing_account", &p.BillingAccount, &d.BillingAccount)
	m.texts("certifications", &p.Certifications, &d.Certifications)
	m.labels("labels", &p.Labels, &d.Labels)
	same(m, &p.Shards, &d.Shards)
}

func clusterKeyIssued(m *mover, p *eventsv1.ClusterKeyIssued, d *domain.ClusterKeyIssued) {
	text(m, "key_id", &p.KeyId, &d.KeyID)
	m.bytes("mac", &p.Mac, &d.MAC)
	m.instant("expires", &p.Expires, &d.Expires)
	m.texts("scopes", &p.Scopes, &d.Scopes)
}

func clusterKeyRotated(m *mover, p *eventsv1.ClusterKeyRotated, d *domain.ClusterKeyRotated) {
	text(m, "key_id", &p.KeyId, &d.KeyID)
	m.bytes("mac", &p.Mac, &d.MAC)
	m.instant("expires", &p.Expires, &d.Expires)
	text(m, "previous_key_id", &p.PreviousKeyId, &d.PreviousKeyID)
	m.instant("previous_valid_until", &p.PreviousValidUntil, &d.PreviousValidUntil)
	m.texts("scopes", &p.Scopes, &d.Scopes)
}

func clusterKeyRevoked(m *mover, p *eventsv1.ClusterKeyRevoked, d *domain.ClusterKeyRevoked) {
	text(m, "key_id", &p.KeyId, &d.KeyID)
	text(m, "reason", &p.Reason, &d.Reason)
}

func gpuDeclared(m *mover, p *eventsv1.GPUDeclared, d *domain.GPUDeclared) {
	m.gpu("uuid", &p.Uuid, &d.ID)
	same(m, &p.Index, &d.Index)
	text(m, "model", &p.Model, &d.Model)
	same(m, &p.MemoryMib, &d.MemoryMiB)
	text(m, "serial", &p.Serial, &d.Serial)
	text(m, "pci", &p.Pci, &d.PCI)
}

func nodeRegistered(m *mover, p *eventsv1.NodeRegistered, d *domain.NodeRegistered) {
	text(m, "node", &p.Node, &d.Node)
	text(m, "provider", &p.Provider, &d.Provider)
	text(m, "billing_account", &p.BillingAccount, &d.BillingAccount)
	text(m, "resource_id", &p.ResourceId, &d.ResourceID)
	text(m, "sku", &p.Sku, &d.SKU)
	text(m, "zone", &p.Zone, &d.Zone)
	text(m, "billing_model", &p.BillingModel, &d.BillingModel)
	same(m, &p.CpuMilli, &d.CPUMilli)
	same(m, &p.MemoryMib, &d.MemoryMiB)
	list(m, "gpus", &p.Gpus, &d.GPUs, gpuDeclared)
	same(m, &p.IdsDerived, &d.IDsDerived)
	text(m, "fabric_domain", &p.FabricDomain, &d.FabricDomain)
	text(m, "driver_version", &p.DriverVersion, &d.DriverVersion)
	text(m, "cuda_version", &p.CudaVersion, &d.CUDAVersion)
	text(m, "dedicated_workspace", &p.DedicatedWorkspace, &d.DedicatedWorkspace)
	m.instant("in_service_from", &p.InServiceFrom, &d.InServiceFrom)
}

func nodeRetired(m *mover, p *eventsv1.NodeRetired, d *domain.NodeRetired) {
	text(m, "node", &p.Node, &d.Node)
	text(m, "reason", &p.Reason, &d.Reason)
}

func gpuRetired(m *mover, p *eventsv1.GPURetired, d *domain.GPURetired) {
	text(m, "node", &p.Node, &d.Node)
	m.gpu("gpu", &p.Gpu, &d.GPU)
	text(m, "reason", &p.Reason, &d.Reason)
}

func assetAcquired(m *mover, p *eventsv1.AssetAcquired, d *domain.AssetAcquired) {
	text(m, "asset", &p.Asset, &d.Asset)
	text(m, "description", &p.Description, &d.Description)
	m.texts("nodes", &p.Nodes, &d.Nodes)
	m.money("capex", &p.Capex, &d.Capex)
	m.money("residual", &p.Residual, &d.Residual)
	m.instant("in_service_from", &p.InServiceFrom, &d.InServiceFrom)
	same(m, &p.LifeMonths, &d.LifeMonths)
	same(m, &p.PowerWatts, &d.PowerWatts)
	text(m, "site", &p.Site, &d.Site)
	same(m, &p.SpaceUnits, &d.SpaceUnits)
	text(m, "general_ledger", &p.GeneralLedger, &d.GeneralLedger)
}

func assetRevised(m *mover, p *eventsv1.AssetRevised, d *domain.AssetRevised) {
	text(m, "asset", &p.Asset, &d.Asset)
	m.instant("effective_from", &p.EffectiveFrom, &d.EffectiveFrom)
	same(m, &p.LifeMonths, &d.LifeMonths)
	m.money("residual", &p.Residual, &d.Residual)
	m.money("impairment", &p.Impairment, &d.Impairment)
	text(m, "reason", &p.Reason, &d.Reason)
}

func assetDisposed(m *mover, p *eventsv1.AssetDisposed, d *domain.AssetDisposed) {
	text(m, "asset", &p.Asset, &d.Asset)
	m.instant("at", &p.At, &d.At)
	m.money("proceeds", &p.Proceeds, &d.Proceeds)
	text(m, "reason", &p.Reason, &d.Reason)
}

func maintenanceScheduled(m *mover, p *eventsv1.MaintenanceScheduled, d *domain.MaintenanceScheduled) {
	text(m, "maintenance", &p.Maintenance, &d.Maintenance)
	m.texts("nodes", &p.Nodes, &d.Nodes)
	m.interval("window", &p.Window, &d.Window)
	text(m, "reason", &p.Reason, &d.Reason)
	same(m, &p.Cancelled, &d.Cancelled)
}

func outageDeclared(m *mover, p *eventsv1.OutageDeclared, d *domain.OutageDeclared) {
	text(m, "outage", &p.Outage, &d.Outage)
	m.texts("nodes", &p.Nodes, &d.Nodes)
	m.interval("window", &p.Window, &d.Window)
	text(m, "reason", &p.Reason, &d.Reason)
	same(m, &p.Cancelled, &d.Cancelled)
}
