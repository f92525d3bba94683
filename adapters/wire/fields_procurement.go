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
}

func recommendationApproved(m *mover, p *eventsv1.RecommendationApproved, d *domain.RecommendationApproved) {
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "note", &p.Note, &d.Note)
}

func recommendationRejected(m *mover, p *eventsv1.RecommendationRejected, d *domain.RecommendationRejected) {
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "note", &p.Note, &d.Note)
}

func recommendationActuated(m *mover, p *eventsv1.RecommendationActuated, d *domain.RecommendationActuated) {
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "reference", &p.Reference, &d.Reference)
}

func outcomeRecorded(m *mover, p *eventsv1.OutcomeRecorded, d *domain.OutcomeRecorded) {
	text(m, "recommendation", &p.Recommendation, &d.Recommendation)
	text(m, "outcome", &p.Outcome, &d.Outcome)
	text(m, "detail", &p.Detail, &d.Detail)
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
