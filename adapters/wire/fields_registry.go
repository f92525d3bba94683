package wire

import (
	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Fields of the events of qm.workspaces, keyed by workspace: workspaces, operators, and the rules
// that they decided.

func workspaceRegistered(m *mover, p *eventsv1.WorkspaceRegistered, d *domain.WorkspaceRegistered) {
	text(m, "name", &p.Name, &d.Name)
	text(m, "parent", &p.Parent, &d.Parent)
	text(m, "currency", &p.Currency, &d.Currency)
	text(m, "owner", &p.Owner, &d.Owner)
	text(m, "cost_centre", &p.CostCentre, &d.CostCentre)
	text(m, "entity", &p.Entity, &d.Entity)
}

func operatorRegistered(m *mover, p *eventsv1.OperatorRegistered, d *domain.OperatorRegistered) {
	text(m, "operator", &p.Operator, &d.Operator)
	m.bytes("public_key", &p.PublicKey, &d.PublicKey)
	text(m, "role", &p.Role, &d.Role)
	list(m, "authority_limits", &p.AuthorityLimits, &d.AuthorityLimits, money)
}

func operatorRevoked(m *mover, p *eventsv1.OperatorRevoked, d *domain.OperatorRevoked) {
	text(m, "operator", &p.Operator, &d.Operator)
	m.bytes("public_key", &p.PublicKey, &d.PublicKey)
	text(m, "reason", &p.Reason, &d.Reason)
}

func selector(m *mover, p *eventsv1.Selector, d *domain.Selector) {
	text(m, "workspace", &p.Workspace, &d.Workspace)
	text(m, "class", &p.Class, &d.Class)
	text(m, "deployment", &p.Deployment, &d.Deployment)
	text(m, "cluster", &p.Cluster, &d.Cluster)
	text(m, "tier", &p.Tier, &d.Tier)
	text(m, "environment", &p.Environment, &d.Environment)
	m.texts("regions", &p.Regions, &d.Regions)
	m.texts("countries", &p.Countries, &d.Countries)
}

func policySet(m *mover, p *eventsv1.PolicySet, d *domain.PolicySet) {
	text(m, "policy", &p.Policy, &d.Policy)
	text(m, "kind", &p.Kind, &d.Kind)
	m.instant("effective_from", &p.EffectiveFrom, &d.EffectiveFrom)
	m.instant("effective_to", &p.EffectiveTo, &d.EffectiveTo)
	nested(m, "selector", &p.Selector, &d.Selector, selector)
	list(m, "others", &p.Others, &d.Others, selector)
	m.texts("countries", &p.Countries, &d.Countries)
	m.texts("certifications", &p.Certifications, &d.Certifications)
	m.texts("clusters", &p.Clusters, &d.Clusters)
	text(m, "scope", &p.Scope, &d.Scope)
	text(m, "value", &p.Value, &d.Value)
	m.nullDecimal("share", &p.Share, &d.Share)
	m.labels("columns", &p.Columns, &d.Columns)
	list(m, "pools", &p.Pools, &d.Pools, costPool)
	list(m, "substitutes", &p.Substitutes, &d.Substitutes, gpuSubstitute)
	text(m, "standby", &p.Standby, &d.Standby)
	m.nullDecimal("standby_price_share", &p.StandbyPriceShare, &d.StandbyPriceShare)
}

func gpuSubstitute(m *mover, p *eventsv1.GPUSubstitute, d *domain.GPUSubstitute) {
	text(m, "for", &p.For, &d.For)
	text(m, "by", &p.By, &d.By)
	m.decimal("gpus", &p.Gpus, &d.GPUs)
	same(m, &p.Measured, &d.Measured)
}

func costPool(m *mover, p *eventsv1.CostPool, d *domain.CostPool) {
	text(m, "pool", &p.Pool, &d.Pool)
	text(m, "by", &p.By, &d.By)
	list(m, "shares", &p.Shares, &d.Shares, workspaceWeight)
}

func quotaSet(m *mover, p *eventsv1.QuotaSet, d *domain.QuotaSet) {
	text(m, "quota", &p.Quota, &d.Quota)
	text(m, "resource", &p.Resource, &d.Resource)
	text(m, "gpu_model", &p.GpuModel, &d.GPUModel)
	text(m, "region", &p.Region, &d.Region)
	m.decimal("limit", &p.Limit, &d.Limit)
	same(m, &p.Hard, &d.Hard)
	m.instant("effective_from", &p.EffectiveFrom, &d.EffectiveFrom)
}

func budgetSet(m *mover, p *eventsv1.BudgetSet, d *domain.BudgetSet) {
	text(m, "budget", &p.Budget, &d.Budget)
	m.interval("period", &p.Period, &d.Period)
	m.money("amount", &p.Amount, &d.Amount)
	text(m, "basis", &p.Basis, &d.Basis)
	same(m, &p.Hard, &d.Hard)
}

func roundTrip(m *mover, p *eventsv1.RoundTrip, d *domain.RoundTrip) {
	text(m, "to", &p.To, &d.To)
	same(m, &p.Micros, &d.Micros)
	same(m, &p.Measured, &d.Measured)
}

func regionDefined(m *mover, p *eventsv1.RegionDefined, d *domain.RegionDefined) {
	text(m, "region", &p.Region, &d.Region)
	text(m, "country", &p.Country, &d.Country)
	text(m, "name", &p.Name, &d.Name)
	list(m, "round_trips", &p.RoundTrips, &d.RoundTrips, roundTrip)
	text(m, "utc_offset", &p.UtcOffset, &d.UTCOffset)
}

func certificationHeld(m *mover, p *eventsv1.CertificationHeld, d *domain.CertificationHeld) {
	text(m, "provider", &p.Provider, &d.Provider)
	text(m, "cluster", &p.Cluster, &d.Cluster)
	text(m, "certification", &p.Certification, &d.Certification)
	m.interval("valid", &p.Valid, &d.Valid)
	text(m, "evidence", &p.Evidence, &d.Evidence)
}

func methodChanged(m *mover, p *eventsv1.MethodChanged, d *domain.MethodChanged) {
	text(m, "method", &p.Method, &d.Method)
	text(m, "version", &p.Version, &d.Version)
	m.instant("effective_from", &p.EffectiveFrom, &d.EffectiveFrom)
	text(m, "reason", &p.Reason, &d.Reason)
}

func workspaceWeight(m *mover, p *eventsv1.WorkspaceWeight, d *domain.WorkspaceWeight) {
	text(m, "workspace", &p.Workspace, &d.Workspace)
	same(m, &p.Weight, &d.Weight)
}

func mappingRuleSet(m *mover, p *eventsv1.MappingRuleSet, d *domain.MappingRuleSet) {
	text(m, "rule", &p.Rule, &d.Rule)
	same(m, &p.Priority, &d.Priority)
	text(m, "cluster", &p.Cluster, &d.Cluster)
	text(m, "namespace", &p.Namespace, &d.Namespace)
	text(m, "to_workspace", &p.ToWorkspace, &d.ToWorkspace)
	text(m, "to_deployment", &p.ToDeployment, &d.ToDeployment)
	list(m, "to_shares", &p.ToShares, &d.ToShares, workspaceWeight)
	text(m, "to_share_by", &p.ToShareBy, &d.ToShareBy)
	m.labels("columns", &p.Columns, &d.Columns)
	text(m, "buys", &p.Buys, &d.Buys)
	m.instant("effective_from", &p.EffectiveFrom, &d.EffectiveFrom)
}

func personNamed(m *mover, p *eventsv1.PersonNamed, d *domain.PersonNamed) {
	text(m, "person", &p.Person, &d.Person)
	m.bytes("sealed", &p.Sealed, &d.Sealed)
}

func legalHoldSet(m *mover, p *eventsv1.LegalHoldSet, d *domain.LegalHoldSet) {
	text(m, "hold", &p.Hold, &d.Hold)
	text(m, "workspace", &p.Workspace, &d.Workspace)
	text(m, "cluster", &p.Cluster, &d.Cluster)
	m.interval("period", &p.Period, &d.Period)
	text(m, "reason", &p.Reason, &d.Reason)
	same(m, &p.Lifted, &d.Lifted)
}
