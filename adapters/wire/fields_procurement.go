package wire

import (
	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Fields of the events of qm.procurement, keyed by workspace: recommendations and purchases.

func planComputed(m *mover, p *eventsv1.PlanComputed, d *domain.PlanComputed) {
	text(m, "plan", &p.Plan, &d.Plan)
	text(m, "position", &p.Position, &d.Position)
	text(m, "method", &p.Method, &d.Method)
	m.interval("horizon", &p.Horizon, &d.Horizon)
	m.texts("regions", &p.Regions, &d.Regions)
	m.money("cost", &p.Cost, &d.Cost)
	m.money("lower_bound", &p.LowerBound, &d.LowerBound)
	m.bytes("digest", &p.Digest, &d.Digest)
	m.bytes("document", &p.Document, &d.Document)
}

func scenarioFrozen(m *mover, p *eventsv1.ScenarioFrozen, d *domain.ScenarioFrozen) {
	text(m, "scenario", &p.Scenario, &d.Scenario)
	text(m, "position", &p.Position, &d.Position)
	text(m, "method", &p.Method, &d.Method)
	same(m, &p.Seed, &d.Seed)
	m.bytes("digest", &p.Digest, &d.Digest)
	m.bytes("document", &p.Document, &d.Document)
}

func purchase(m *mover, p *eventsv1.Purchase, d *domain.Purchase) {
	nested(m, "market", &p.Market, &d.Market, market)
	text(m, "offer", &p.Offer, &d.Offer)
	same(m, &p.Units, &d.Units)
	m.instant("start", &p.Start, &d.Start)
}

func recommendationMade(m *mover, p *eventsv1.RecommendationMade, d *domain.RecommendationMade) {
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "kind", &p.Kind, &d.Kind)
	text(m, "plan", &p.Plan, &d.Plan)
	text(m, "scenario", &p.Scenario, &d.Scenario)
	text(m, "summary", &p.Summary, &d.Summary)
	list(m, "purchases", &p.Purchases, &d.Purchases, purchase)
	m.money("cost", &p.Cost, &d.Cost)
	text(m, "requester", &p.Requester, &d.Requester)
	m.texts("clusters", &p.Clusters, &d.Clusters)
	text(m, "why_more", &p.WhyMore, &d.WhyMore)
	text(m, "from", &p.From, &d.From)
	text(m, "to", &p.To, &d.To)
	m.optionalMoney("saving", &p.Saving, &d.Saving)
	m.optionalMoney("saving_low", &p.SavingLow, &d.SavingLow)
	m.optionalMoney("saving_high", &p.SavingHigh, &d.SavingHigh)
	m.nullDecimal("coverage", &p.Coverage, &d.Coverage)
	m.instant("expires", &p.Expires, &d.Expires)
	m.texts("supersedes", &p.Supersedes, &d.Supersedes)
	m.texts("incidents", &p.Incidents, &d.Incidents)
	m.texts("findings", &p.Findings, &d.Findings)
	text(m, "simulation", &p.Simulation, &d.Simulation)
	text(m, "position", &p.Position, &d.Position)
	text(m, "method", &p.Method, &d.Method)
	m.bytes("document", &p.Document, &d.Document)
}

func recommendationApproved(m *mover, p *eventsv1.RecommendationApproved, d *domain.RecommendationApproved) {
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "note", &p.Note, &d.Note)
	m.bytes("digest", &p.Digest, &d.Digest)
}

func recommendationRejected(m *mover, p *eventsv1.RecommendationRejected, d *domain.RecommendationRejected) {
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "note", &p.Note, &d.Note)
}

func recommendationWithdrawn(m *mover, p *eventsv1.RecommendationWithdrawn, d *domain.RecommendationWithdrawn) {
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "reason", &p.Reason, &d.Reason)
}

func commandIssued(m *mover, p *eventsv1.CommandIssued, d *domain.CommandIssued) {
	text(m, "command", &p.Command, &d.Command)
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "cluster", &p.Cluster, &d.Cluster)
	text(m, "kind", &p.Kind, &d.Kind)
	m.instant("expires", &p.Expires, &d.Expires)
	list(m, "approvals", &p.Approvals, &d.Approvals, approval)
	m.bytes("document", &p.Document, &d.Document)
}

func approval(m *mover, p *eventsv1.Approval, d *domain.Approval) {
	text(m, "operator", &p.Operator, &d.Operator)
	m.bytes("public_key", &p.PublicKey, &d.PublicKey)
	m.bytes("signed", &p.Signed, &d.Signed)
	m.bytes("signature", &p.Signature, &d.Signature)
}

func recommendationActuated(m *mover, p *eventsv1.RecommendationActuated, d *domain.RecommendationActuated) {
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "reference", &p.Reference, &d.Reference)
	text(m, "cluster", &p.Cluster, &d.Cluster)
	text(m, "command", &p.Command, &d.Command)
	text(m, "actor", &p.Actor, &d.Actor)
	text(m, "result", &p.Result, &d.Result)
}

func outcomeRecorded(m *mover, p *eventsv1.OutcomeRecorded, d *domain.OutcomeRecorded) {
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "outcome", &p.Outcome, &d.Outcome)
	text(m, "detail", &p.Detail, &d.Detail)
	text(m, "cluster", &p.Cluster, &d.Cluster)
	text(m, "actor", &p.Actor, &d.Actor)
	optional(m, "window", &p.Window, &d.Window, d.Window == domain.Interval{}, interval)
	m.optionalMoney("measured", &p.Measured, &d.Measured)
	text(m, "position", &p.Position, &d.Position)
	text(m, "method", &p.Method, &d.Method)
	m.bytes("document", &p.Document, &d.Document)
}

func share(m *mover, p *eventsv1.Share, d *domain.Share) {
	text(m, "workspace", &p.Workspace, &d.Workspace)
	m.decimal("share", &p.Share, &d.Share)
}

func commitmentPurchased(m *mover, p *eventsv1.CommitmentPurchased, d *domain.CommitmentPurchased) {
	text(m, "commitment", &p.Commitment, &d.Commitment)
	text(m, "contract", &p.Contract, &d.Contract)
	nested(m, "market", &p.Market, &d.Market, market)
	text(m, "offer", &p.Offer, &d.Offer)
	text(m, "billing_account", &p.BillingAccount, &d.BillingAccount)
	text(m, "kind", &p.Kind, &d.Kind)
	text(m, "sku", &p.Sku, &d.SKU)
	text(m, "gpu_model", &p.GpuModel, &d.GPUModel)
	same(m, &p.GpusPerUnit, &d.GPUsPerUnit)
	same(m, &p.Units, &d.Units)
	m.interval("term", &p.Term, &d.Term)
	m.money("upfront", &p.Upfront, &d.Upfront)
	m.money("hourly", &p.Hourly, &d.Hourly)
	m.nullDecimal("spend_per_hour", &p.SpendPerHour, &d.SpendPerHour)
	same(m, &p.GuaranteesCapacity, &d.GuaranteesCapacity)
	list(m, "owners", &p.Owners, &d.Owners, share)
	m.instant("notice_by", &p.NoticeBy, &d.NoticeBy)
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "spend", &p.Spend, &d.Spend)
}

func commitmentRenewed(m *mover, p *eventsv1.CommitmentRenewed, d *domain.CommitmentRenewed) {
	text(m, "commitment", &p.Commitment, &d.Commitment)
	m.interval("term", &p.Term, &d.Term)
	same(m, &p.Units, &d.Units)
	m.money("upfront", &p.Upfront, &d.Upfront)
	m.money("hourly", &p.Hourly, &d.Hourly)
	m.instant("notice_by", &p.NoticeBy, &d.NoticeBy)
}

func commitmentEnded(m *mover, p *eventsv1.CommitmentEnded, d *domain.CommitmentEnded) {
	text(m, "commitment", &p.Commitment, &d.Commitment)
	m.instant("at", &p.At, &d.At)
	text(m, "reason", &p.Reason, &d.Reason)
}
