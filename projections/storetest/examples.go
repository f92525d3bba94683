package storetest

import (
	"bytes"
	"crypto/sha256"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Start is the time of the examples: 2026-05-01.
const Start domain.Instant = 1777593600 * domain.Second

// Root is the first operator in the examples, who registered himself.
var Root = NewOperator("root", 1)

// Examples returns valid events of every type, at least one of each: a small fleet with two
// workspaces, a cluster and a node. Their decisions are valid.
func Examples() []domain.Envelope {
	dec := decimal.RequireFromString
	usd := func(s string) domain.Money { return domain.Money{Amount: dec(s), Currency: "USD"} }
	key := bytes.Repeat([]byte{7}, 32)
	digest := func(s string) []byte { d := sha256.Sum256([]byte(s)); return d[:] }
	hour := domain.Interval{From: Start, To: Start + domain.Hour}
	month := domain.Interval{From: Start, To: Start + 31*domain.Day}
	market := domain.Market{Provider: "aws", Region: "eu-central-1"}
	line := func(id string) domain.BillingLine {
		return domain.BillingLine{
			LineID: id, InvoiceIssuerName: "AWS", BillingAccountID: "1234", BillingCurrency: "USD",
			BillingPeriodStart: month.From, BillingPeriodEnd: month.To, ChargePeriodStart: hour.From, ChargePeriodEnd: hour.To,
			ChargeCategory: "Usage", BilledCost: dec("12.5"), EffectiveCost: decimal.NewNullDecimal(dec("11.25")),
			Tags: `{"team":"ml"}`, Other: map[string]string{"x_b": "2", "x_a": "1"},
		}
	}
	finance := NewOperator("fin", 1)
	limit := usd("1000000000")
	envs := []domain.Envelope{Root.Register(Root, "home", domain.RoleAdmin, &limit, Start)}
	add := func(workspace, cluster string, events ...domain.Event) {
		for i, ev := range events {
			env := domain.Envelope{Workspace: workspace, Cluster: cluster, Time: Start + domain.Instant(i+1)*domain.Second, Event: ev}
			if domain.NeedsSignature(ev) {
				who := Root
				if ev.Type() == domain.TypeCloseApproved {
					who = finance
				}
				env = who.Sign(env)
			}
			envs = append(envs, env)
		}
	}
	envs = append(envs, finance.Register(Root, "home", domain.RoleFinance, nil, Start+1))
	add("acme", "",
		&domain.WorkspaceRegistered{Name: "Acme", Currency: "EUR", Owner: "ann", CostCentre: "4711", Entity: "acme-gmbh"},
		&domain.OperatorRegistered{Operator: "ann", PublicKey: key, Role: domain.RoleFinance, AuthorityLimits: []domain.Money{limit}},
		&domain.OperatorRevoked{Operator: "ann", PublicKey: key},
		&domain.PolicySet{Policy: "eu", Kind: domain.PolicyResidency, EffectiveFrom: Start, Countries: []string{"DE", "FR"}},
		&domain.PolicySet{
			Policy: "vat", Kind: domain.PolicyRecoverableTax, EffectiveFrom: Start,
			Share: domain.NullDecimal{Decimal: dec("0.5"), Valid: true}, Columns: map[string]string{"BillingAccountId": "42"},
		},
		&domain.PolicySet{
			Policy: "pools", Kind: domain.PolicySharedCosts, EffectiveFrom: Start, Pools: []domain.CostPool{
				{Pool: "platform:reliability", By: domain.ShareByGPUHours},
				{Pool: "infra", Shares: []domain.WorkspaceWeight{{Workspace: "acme", Weight: 1}}},
			},
		},
		&domain.QuotaSet{Quota: "q", Resource: "nvidia.com/gpu", Limit: dec("64"), EffectiveFrom: Start},
		&domain.BudgetSet{Budget: "b", Period: month, Amount: usd("100"), Basis: domain.BudgetCash},
		&domain.RegionDefined{Region: "eu-central-1", Country: "DE", RoundTrips: []domain.RoundTrip{{To: "eu-west-1", Micros: 25_000, Measured: true}}},
		&domain.CertificationHeld{Cluster: "c1", Certification: "ISO 27001", Valid: month},
		&domain.MethodChanged{Method: "planner", Version: "2", EffectiveFrom: Start},
		&domain.MappingRuleSet{Rule: "licences", Columns: map[string]string{"SkuMeter": "*License"}, Buys: domain.BuysNothing, EffectiveFrom: Start},
		&domain.MappingRuleSet{
			Rule: "support", Columns: map[string]string{"ServiceName": "Support"}, EffectiveFrom: Start,
			ToShares: []domain.WorkspaceWeight{{Workspace: "acme", Weight: 3}, {Workspace: "search", Weight: 1}},
		},
		&domain.PersonNamed{Person: "ana", Sealed: []byte("sealed")},
		&domain.LegalHoldSet{Hold: "case-7", Workspace: "acme", Cluster: "c1", Period: month, Reason: "a lawsuit"},
		&domain.MappingRuleSet{Rule: "r", Namespace: "ml", ToWorkspace: "acme", EffectiveFrom: Start},
	)
	add("acme", "c1", &domain.ClusterRegistered{Provider: "aws", ProviderClass: domain.Hyperscaler, Region: "eu-central-1", Labels: map[string]string{"b": "1", "a": "2"}})
	add("", "c1",
		&domain.ClusterKeyIssued{KeyID: "k1", MAC: key},
		&domain.ClusterKeyRotated{KeyID: "k2", MAC: key, PreviousKeyID: "k1", PreviousValidUntil: Start + domain.Hour},
		&domain.ClusterKeyRevoked{KeyID: "k1"},
		Node("c1", "n1", "H100 80GB", 2, Start).Event,
		&domain.AssetAcquired{Asset: "a", Nodes: []string{"n1"}, Capex: usd("300000"), Residual: usd("30000"), InServiceFrom: Start, LifeMonths: 60},
		&domain.AssetRevised{Asset: "a", EffectiveFrom: Start + domain.Day, LifeMonths: 72},
		&domain.AssetDisposed{Asset: "a", At: Start + 30*domain.Day, Proceeds: usd("5")},
		&domain.MaintenanceScheduled{Maintenance: "m", Window: hour},
		&domain.OutageDeclared{Outage: "o", Nodes: []string{"n1"}, Window: hour, Reason: "power"},
		&domain.GPUFaultObserved{Node: "n1", GPU: GPU("c1", "n1", 0), Kind: domain.FaultXID, Code: 79, Count: 1, Fatal: true},
		&domain.NodeCordoned{Node: "n1", Repair: true},
		&domain.NodeDrained{Node: "n1"},
		&domain.NodeReturned{Node: "n1"},
		&domain.CollectorSilent{Node: "n1", Silent: domain.Interval{From: Start - domain.Hour, To: Start}},
		&domain.SpoolDropped{Node: "n1", Stream: "s", From: 3, To: 3, Covered: domain.Interval{From: Start - domain.Hour, To: Start}},
		Sample("n1", hour, Seen{ID: GPU("c1", "n1", 0), Workspace: "acme", Deployment: "chat", Unit: "chat-0", Activity: 700},
			Seen{ID: GPU("c1", "n1", 10), Parent: GPU("c1", "n1", 1), Profile: "1g.10gb", Activity: -1}),
		&domain.ServingSampled{Deployment: "chat", Model: "llama", Engine: "vllm", Interval: hour, TTFT: domain.Histogram{Bounds: []uint64{1, 2}, Counts: []uint64{0, 1, 2}, Sum: 9}},
		Scrape("chat", "chat-0", Start+domain.Hour-30*domain.Second, 15*domain.Second, Scraped{Metric: domain.MetricTTFT, Bound: domain.Infinite, Values: []uint64{5, 7, 9}}, Scraped{Metric: domain.MetricWaiting, Values: []uint64{3000}}),
		&domain.JobQueued{Job: "j", Class: domain.ClassTraining, Need: domain.GPUNeed{Count: 1, Milli: 500}},
		&domain.JobStarted{Job: "j", Nodes: []string{"n1"}, GPUs: 1},
		&domain.JobFinished{Job: "j", Outcome: domain.JobSucceeded, RetainedPermille: 1000},
		&domain.DemandObserved{Pool: "vc1", Unit: "gpu", Interval: hour, RunningMilli: 1500},
		&domain.EnergyMetered{Meter: "pdu", Nodes: []string{"n1"}, Interval: hour, WattHours: dec("6400.5")},
		&domain.UsageCorrected{Correction: "x", Node: "n1", GPU: GPU("c1", "n1", 0), Interval: hour, Workspace: "beta", Reason: "wrong label"},
		&domain.DeploymentRemoved{Deployment: "old"},
		&domain.ReplicasObserved{Deployment: "chat", Model: "llama", Ready: 1, Desired: 2},
		&domain.NodeRetired{Node: "n1"},
		&domain.GPURetired{Node: "n1", GPU: GPU("c1", "n1", 0), Reason: "sent back"},
	)
	add("acme", "c1", &domain.DeploymentChanged{Deployment: "chat", Model: "llama", Class: domain.ClassServing, Replicas: 2, Need: domain.GPUNeed{Count: 1}})
	add("", "",
		&domain.BillingLineRecorded{Line: line("line-1")},
		&domain.BillingLineCorrected{Line: line("line-2"), Corrects: "line-1"},
		&domain.BillingLineRemoved{InvoiceIssuerName: "AWS", BillingAccountID: "1234", LineID: "line-2", BillingPeriod: month, Reason: "not in the export"},
		&domain.InvoiceReceived{InvoiceIssuerName: "AWS", BillingAccountID: "1234", InvoiceID: "i", Total: usd("25"), Status: "Issued", BillingPeriod: month},
		&domain.BillingPeriodClosed{InvoiceIssuerName: "AWS", BillingAccountID: "1234", Period: month},
		&domain.OfferQuoted{Market: market, Offer: "o", SKU: "p5", GPUModel: "H100 80GB", GPUCount: 8, Kind: domain.OfferReserved, TermMonths: 36, Hourly: dec("31.4"), Currency: "USD", ValidFrom: Start},
		&domain.OfferWithdrawn{Market: market, Offer: "o", At: Start + domain.Day},
		&domain.OnDemandQuotaSet{Market: market, Account: "1234", LimitGPUs: 64, EffectiveFrom: Start},
		&domain.SpotInterrupted{Market: market, SKU: "p5", Units: 1},
		&domain.TariffSet{Market: domain.Market{Provider: "us", Region: "site"}, PerKWh: usd("0.21"), PUE: dec("1.2"), EffectiveFrom: Start},
		&domain.FXRateSet{Base: "EUR", Quote: "USD", Rate: dec("1.0823"), Kind: domain.FXAverage, Effective: month},
	)
	add("acme", "",
		&domain.PlanComputed{Plan: "p", Position: "0", Method: "m1", Horizon: month, Document: []byte("{}"), Digest: digest("{}")},
		&domain.ScenarioFrozen{Scenario: "s", Position: "qm.fleet/0=12", Method: "m1", Document: []byte("{}"), Digest: digest("{}")},
		&domain.RecommendationMade{Recommendation: "r", Kind: "purchase", Cost: usd("5"), Requester: "ann", Purchases: []domain.Purchase{{Market: market, Offer: "o", Units: 1, Start: Start}}},
		&domain.RecommendationApproved{Recommendation: "r", Digest: digest("{}")},
		&domain.CommandIssued{Command: "d", Recommendation: "r", Cluster: "c1", Kind: "purchase", Expires: Start + domain.Day, Document: []byte("{}"), Approvals: []domain.Approval{
			domain.ApprovalOf(Root.Sign(domain.Envelope{Workspace: "acme", Time: Start, Event: &domain.RecommendationApproved{Recommendation: "r"}}).Signature),
		}},
		&domain.RecommendationActuated{Recommendation: "r", Cluster: "c1", Command: "d", Actor: domain.KeyActor("k1")},
		&domain.OutcomeRecorded{Recommendation: "r", Outcome: "partial", Actor: domain.OperatorActor(Root.Name)},
		&domain.RecommendationWithdrawn{Recommendation: "r2", Reason: "the price changed"},
		&domain.RecommendationRejected{Recommendation: "r2"},
		&domain.CommitmentPurchased{Commitment: "c", Market: market, BillingAccount: "1234", Kind: domain.OfferReserved, SKU: "p5", GPUModel: "H100 80GB", GPUsPerUnit: 8, Units: 4,
			Term: month, Hourly: usd("20"), Owners: []domain.Share{{Workspace: "acme", Share: dec("0.7")}, {Workspace: "beta", Share: dec("0.3")}}},
		&domain.CommitmentRenewed{Commitment: "c", Term: domain.Interval{From: month.To, To: month.To + 31*domain.Day}, Units: 4, Hourly: usd("19")},
		&domain.CommitmentEnded{Commitment: "c", At: month.To},
	)
	add("", "",
		&domain.ClosePrepared{Entity: "e", Period: month, Position: "0", Method: "m1", Digest: key, Totals: []domain.BooksTotal{{Currency: "USD", Billed: dec("1"), Effective: dec("2")}}, Checks: []domain.CloseCheck{{Check: "invoices", Outcome: domain.CheckMet}}, Translated: []domain.BooksTotal{{Currency: "EUR", Billed: dec("1"), Effective: dec("2")}, {Entity: "us", Currency: "USD"}}, Rates: []domain.BooksRate{{Base: "USD", Quote: "EUR", Rate: dec("0.9"), Kind: domain.FXAverage, Citation: "ECB"}}},
		&domain.CloseApproved{Entity: "e", Period: month, Digest: key},
		&domain.BooksClosed{Entity: "e", Period: month, Position: "0", Method: "m1", Digest: key},
		&domain.ExportMade{Entity: "e", Export: "x", Format: "csv", Position: "0", Method: "m1", Digest: key},
		&domain.CheckpointSigned{Entity: "e", Position: "0", Note: []byte("note")},
		&domain.QuarantineResolved{Entity: "e", Topic: domain.TopicFleet, Partition: 3, Offset: 7, Resolution: "discarded"},
		&domain.StreamConflictObserved{Entity: "e", Topic: domain.TopicHardware, Partition: 2, First: 3, Offset: 7, Source: "s", Incarnation: 1, Sequence: 4},
		&domain.StreamGapResolved{Entity: "e", Topic: domain.TopicHardware, Partition: 2, Source: "s", Incarnation: 1, From: 4, To: 9, Reason: "the disk is gone"},
		&domain.GenerationSwitched{Entity: "e", From: "a", To: "b", Position: "0", Method: "m1", Digest: key, Reason: "power cut", Lost: []domain.LostRecords{{Topic: domain.TopicFleet, Partition: 3, Since: 4, Position: 9, End: 5}}},
		&domain.RemovalStarted{Entity: "e", Removal: "log/1", What: domain.RetainedLog, Policy: "log", Rule: "90 days", By: "schedule", Removed: []domain.Removed{{Topic: domain.TopicFleet, Partition: 3, From: 4, To: 9, Records: 5}}},
		&domain.RecordsRemoved{Entity: "e", Removal: "log/1", What: domain.RetainedLog, Policy: "log", Rule: "90 days", By: "schedule", Holds: []string{"case-7"}},
		&domain.AccessDenied{Entity: "e", Principal: "p", Action: "read", Target: "costs"},
	)
	add("acme", "",
		&domain.AccessGranted{Grant: "g", Principal: "group:corp/ml", Role: domain.RoleViewer, Clusters: []string{"c1"}, Until: Start + domain.Day},
		&domain.AccessRevoked{Grant: "g", Reason: "left"},
		&domain.ServiceKeyIssued{Account: "ci", KeyID: "k1", MAC: key, PreviousKeyID: "k0", PreviousValidUntil: Start + domain.Hour},
		&domain.ServiceKeyRevoked{KeyID: "k1"},
		&domain.SessionEnded{Principal: "user:corp/ana", At: Start},
		&domain.AccessRecorded{Principal: "user:corp/ana", Journal: "j", Window: domain.Interval{From: Start, To: Start + 60*domain.Second}, Asked: []domain.AccessRead{
			{Operation: "costs", Workspaces: []string{"acme"}, Count: 3, Refused: 1, Position: "qm.access/0=7", Digest: key},
		}},
		&domain.IncidentOpened{Incident: "i", Rule: "utilization", Version: 1, Subject: "cluster/c1", Severity: domain.SeverityWarning, At: Start, Position: "qm.fleet/0=12", Method: "advice/1", Summary: "SM activity 31%", Document: []byte("{}")},
		&domain.IncidentChanged{Incident: "i", Severity: domain.SeverityCritical, At: Start + domain.Hour, Position: "qm.fleet/0=13", Method: "advice/1", Summary: "SM activity 3%", Document: []byte("{}")},
		&domain.IncidentAcknowledged{Incident: "i", Note: "looking"},
		&domain.IncidentSilenced{Silence: "s", Rule: "utilization", Subject: "cluster/c1", Until: Start + domain.Day, Reason: "migration"},
		&domain.IncidentResolved{Incident: "i", At: Start + 2*domain.Hour, Position: "qm.fleet/0=14", Method: "advice/1"},
	)
	return envs
}
