package domain

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"
)

const t0 Instant = 1767225600 * Second // 2026-01-01

var (
	hour  = Interval{t0, t0 + Hour}
	month = Interval{t0, t0 + 31*Day}
	key32 = bytes.Repeat([]byte{7}, 32)
	dm    = Market{"aws", "eu-central-1"}
)

func dec(s string) Decimal         { return decimal.RequireFromString(s) }
func usd(s string) Money           { return Money{dec(s), "USD"} }
func nullDec(s string) NullDecimal { return decimal.NewNullDecimal(dec(s)) }
func gpu(i int) GPUID              { return DeriveGPUID("c", "n", i) }
func digest(b string) []byte       { d := sha256.Sum256([]byte(b)); return d[:] }
func wrap(e Event) *Envelope {
	return &Envelope{Source: "test", Incarnation: 1, Sequence: 1, Time: t0, Workspace: "acme", Cluster: "fra-1", Event: e}
}

func validLine() BillingLine {
	return BillingLine{
		LineID: "line-1", InvoiceIssuerName: "AWS", BillingAccountID: "1234", BillingCurrency: "USD",
		BillingPeriodStart: month.From, BillingPeriodEnd: month.To, ChargePeriodStart: hour.From, ChargePeriodEnd: hour.To,
		ChargeCategory: "Usage", BilledCost: dec("-12.5"), EffectiveCost: nullDec("-12.5"), ListUnitPrice: nullDec("0.000000000000000001"),
		PricingCurrency: "Credits", Tags: `{"team":"ml"}`, Other: map[string]string{"x_Foo": "a\tb"},
	}
}

func validMetrics() *MetricsObserved {
	return &MetricsObserved{
		Base: t0, StepMs: 15_000, Strings: []string{"vllm", "chat", "llama", "chat-0"},
		Engine: []uint32{1}, Deployment: []uint32{2}, Model: []uint32{3}, Tier: []uint32{0}, Unit: []uint32{4}, Node: []uint32{0},
		Server: []uint32{0, 0}, Metric: []uint32{uint32(MetricTTFT), uint32(MetricWaiting)}, Bound: []uint64{Infinite, 0}, Series: []uint64{7, 8}, Samples: []uint32{1, 2},
		Offset: []uint32{0, 0, 15_000}, Value: []uint64{12, 3000, 0},
	}
}

// approval is one of a signer whom nobody registered.
func approval(of string) Approval {
	key := ed25519.NewKeyFromSeed(key32)
	return Approval{Operator: "ann", PublicKey: key.Public().(ed25519.PublicKey), Signed: []byte(of), Signature: ed25519.Sign(key, []byte(of))}
}

// validEvents returns one event of every type that Validate accepts.
func validEvents() map[Type]*Envelope {
	all := []Event{
		&WorkspaceRegistered{Name: "Acme", Currency: "EUR"},
		&OperatorRegistered{Operator: "ann", PublicKey: key32, Role: RoleFinance, AuthorityLimits: []Money{{dec("1000"), "USD"}, {dec("900"), "EUR"}}},
		&OperatorRevoked{Operator: "ann", PublicKey: key32},
		&PolicySet{Policy: "near", Kind: PolicyApart, EffectiveFrom: t0, Scope: "node", Selector: Selector{Environment: "production", Regions: []string{"fra"}, Countries: []string{"DE"}}, Others: []Selector{{Environment: "research"}}},
		&PolicySet{Policy: "newer", Kind: PolicySubstitution, EffectiveFrom: t0, Substitutes: []GPUSubstitute{{For: "A100 80GB", By: "H100", GPUs: dec("0.45"), Measured: true}}},
		&PolicySet{Policy: "standby", Kind: PolicyPosture, EffectiveFrom: t0, Value: PostureColdStandby, Share: nullDec("1"), Standby: "fra", StandbyPriceShare: nullDec("0.2")},
		&PolicySet{Policy: "idle", Kind: PolicyAdviceThreshold, EffectiveFrom: t0, Scope: "utilization", Value: "0.45", Share: nullDec("0.8"), Selector: Selector{Workspace: "acme", Class: ClassTraining, Cluster: "c1"}},
		&PolicySet{Policy: "egress", Kind: PolicyTransferPrice, EffectiveFrom: t0, Value: "0.05 USD", Selector: Selector{Regions: []string{"fra"}}},
		&PolicySet{Policy: "eu", Kind: PolicyResidency, EffectiveFrom: t0, Countries: []string{"DE", "FR"}, Selector: Selector{Class: ClassServing}},
		&QuotaSet{Quota: "q", Resource: "nvidia.com/gpu", Limit: dec("64"), EffectiveFrom: t0},
		&BudgetSet{Budget: "b", Period: month, Amount: usd("100"), Basis: BudgetCash},
		&RegionDefined{Region: "fra", Country: "DE", RoundTrips: []RoundTrip{{To: "ams", Micros: 6800, Measured: true}}, UTCOffset: "+01:00"},
		&CertificationHeld{Cluster: "fra-1", Certification: "ISO 27001", Valid: month},
		&MethodChanged{Method: "planner", Version: "2", EffectiveFrom: t0},
		&MappingRuleSet{Rule: "s", Columns: map[string]string{"SkuId": "x"}, ToShares: []WorkspaceWeight{{Workspace: "a", Weight: 3}, {Workspace: "b", Weight: 1}}, EffectiveFrom: t0},
		&MappingRuleSet{Rule: "h", Columns: map[string]string{"SkuId": "x"}, ToShareBy: ShareByGPUHours, EffectiveFrom: t0},
		&MappingRuleSet{Rule: "r", Namespace: "ml", ToWorkspace: "acme", EffectiveFrom: t0},
		&LegalHoldSet{Hold: "case-7", Reason: "a lawsuit"},
		&PersonNamed{Person: "p-17", Sealed: []byte{1}},
		&ClusterRegistered{Provider: "aws", ProviderClass: Hyperscaler, Region: "fra"},
		&ClusterKeyIssued{KeyID: "k1", MAC: key32, Scopes: []string{KeyPush, KeyReceive}},
		&ClusterKeyRotated{KeyID: "k2", MAC: key32, PreviousKeyID: "k1", PreviousValidUntil: t0 + Hour},
		&ClusterKeyRevoked{KeyID: "k1"},
		&GPURetired{Node: "n1", GPU: GPUID{1}, Reason: "sent back"},
		&NodeRegistered{Node: "n1", BillingModel: BillingSpot, GPUs: []GPUDeclared{{ID: gpu(0), Model: "H100"}, {ID: gpu(1), Model: "H100"}}},
		&NodeRetired{Node: "n1"},
		&AssetAcquired{Asset: "a", Capex: usd("300000"), Residual: usd("30000"), InServiceFrom: t0, LifeMonths: 60},
		&AssetRevised{Asset: "a", EffectiveFrom: t0, LifeMonths: 72},
		&AssetDisposed{Asset: "a", At: t0, Proceeds: usd("5")},
		&MaintenanceScheduled{Maintenance: "m", Window: hour},
		&OutageDeclared{Outage: "o", Window: hour, Reason: "power"},
		&GPUFaultObserved{Node: "n1", GPU: gpu(0), Kind: FaultXID, Code: 79, Count: 1},
		&NodeCordoned{Node: "n1", Repair: true},
		&NodeDrained{Node: "n1"},
		&NodeReturned{Node: "n1"},
		&CollectorSilent{Node: "n1", Silent: Interval{From: t0}},
		&SpoolDropped{Node: "n1", Stream: "s", From: 3, To: 3, Covered: Interval{From: t0 - Hour, To: t0}},
		validSample(8),
		&ServingSampled{Deployment: "chat", Model: "llama", Engine: "vllm", Interval: hour, TTFT: Histogram{Bounds: []uint64{1, 2}, Counts: []uint64{0, 1, 2}}},
		validMetrics(),
		&JobQueued{Job: "j", Class: ClassTraining, Need: GPUNeed{Count: 1, Milli: 500}},
		&JobStarted{Job: "j", Nodes: []string{"n1"}, GPUs: 8},
		&JobFinished{Job: "j", Outcome: JobSucceeded, RetainedPermille: 1000},
		&DemandObserved{Pool: "vc1", Unit: "gpu", Interval: hour},
		&EnergyMetered{Meter: "pdu", Interval: hour, WattHours: dec("6400.5")},
		&UsageCorrected{Correction: "x", Node: "n1", GPU: gpu(0), Interval: month, Reason: "wrong label"},
		&DeploymentChanged{Deployment: "chat", Class: ClassServing, Replicas: 2, Need: GPUNeed{MIGProfile: "1g.10gb"}},
		&DeploymentRemoved{Deployment: "chat"},
		&ReplicasObserved{Model: "llama"},
		&BillingLineRecorded{Line: validLine()},
		&BillingLineCorrected{Line: validLine(), Corrects: "line-0"},
		&BillingLineRemoved{InvoiceIssuerName: "AWS", BillingAccountID: "1234", LineID: "line-0", BillingPeriod: month},
		&InvoiceReceived{InvoiceIssuerName: "AWS", BillingAccountID: "1234", InvoiceID: "i", Total: usd("-3"), Status: "Issued", BillingPeriod: month,
			Details: []InvoiceDetail{{InvoiceDetailID: "d", ChargeCategory: "Tax"}}},
		&BillingPeriodClosed{InvoiceIssuerName: "AWS", BillingAccountID: "1234", Period: month},
		&OfferQuoted{Market: dm, Offer: "o", SKU: "p5", GPUModel: "H100", GPUCount: 8, Kind: OfferReserved, TermMonths: 36, Hourly: dec("31.4"), Currency: "USD", ValidFrom: t0},
		&OfferWithdrawn{Market: dm, Offer: "o", At: t0},
		&OnDemandQuotaSet{Market: dm, Account: "1234", LimitGPUs: 64, EffectiveFrom: t0},
		&SpotInterrupted{Market: dm, SKU: "p5"},
		&TariffSet{Market: Market{"us", "site"}, PerKWh: Money{dec("0.21"), "EUR"}, PUE: dec("1"), EffectiveFrom: t0},
		&FXRateSet{Base: "EUR", Quote: "USD", Rate: dec("1.0823"), Kind: FXAverage, Effective: month},
		&PlanComputed{Plan: "p", Position: "0", Method: "m1", Horizon: month, Document: []byte("{}"), Digest: digest("{}")},
		&ScenarioFrozen{Scenario: "s", Position: "qm.fleet/0=12", Method: "m1", Document: []byte("{}"), Digest: digest("{}")},
		&RecommendationMade{
			Recommendation: "r", Kind: "shift", Requester: "advice/1", Purchases: []Purchase{{dm, "o", 1, t0}}, Clusters: []string{"c1", "c2"}, WhyMore: "it moves load", From: "c1", To: "c2",
			Saving: Money{dec("20"), "USD"}, SavingLow: Money{dec("-1"), "USD"}, SavingHigh: Money{dec("40"), "USD"}, Coverage: nullDec("0.93"), Expires: t0 + Day, Supersedes: []string{"r0"},
			Incidents: []string{"i"}, Findings: []string{"f"}, Simulation: "d1", Position: "0", Method: "advice/1", Document: []byte("{}"),
		},
		&RecommendationWithdrawn{Recommendation: "r", Reason: "the price changed"},
		&CommandIssued{Command: "d", Recommendation: "r", Cluster: "c1", Kind: "drain", Expires: t0 + Day, Approvals: []Approval{approval("r")}, Document: []byte("{}")},
		&RecommendationApproved{Recommendation: "r", Digest: key32},
		&RecommendationRejected{Recommendation: "r"},
		&RecommendationActuated{Recommendation: "r", Cluster: "c1", Command: "d", Actor: KeyActor("k1"), Result: "failed"},
		&OutcomeRecorded{Recommendation: "r", Outcome: "partial", Cluster: "c1", Actor: OperatorActor("ann"), Window: hour, Measured: Money{dec("-3"), "USD"}, Position: "0", Method: "advice/1", Document: []byte("{}")},
		&CommitmentPurchased{Commitment: "c", Market: dm, BillingAccount: "1234", Kind: OfferReserved, SKU: "p5", GPUModel: "H100", GPUsPerUnit: 8, Units: 4,
			Term: month, Hourly: usd("20"), Owners: []Share{{"acme", dec("0.7")}, {"beta", dec("0.3")}}},
		&CommitmentRenewed{Commitment: "c", Term: month, Units: 4, Hourly: usd("19")},
		&CommitmentEnded{Commitment: "c", At: t0},
		&ClosePrepared{Entity: "e", Period: month, Position: "0", Method: "m1", Digest: key32, Postings: key32, Totals: []BooksTotal{{Currency: "EUR"}, {Currency: "USD", Billed: decimal.NewFromInt(1)}}, Checks: []CloseCheck{{Check: "gaps", Outcome: CheckAccepted, Detail: "3 events", Reason: "a lost node"}}, Translated: []BooksTotal{{Currency: "USD"}, {Entity: "de", Currency: "EUR"}}, Rates: []BooksRate{{Base: "EUR", Quote: "USD", Rate: dec("1.08"), Kind: FXAverage, Citation: "ECB"}, {Base: "EUR", Quote: "USD", Rate: dec("1.08"), Kind: FXPayment, Commitment: "c", TermFrom: t0}}},
		&CloseApproved{Entity: "e", Period: month, Digest: key32},
		&BooksClosed{Entity: "e", Period: month, Position: "0", Method: "m1", Digest: key32},
		&ExportMade{Entity: "e", Export: "x", Format: "csv", Position: "0", Method: "m1", Digest: key32},
		&CheckpointSigned{Entity: "e", Position: "0", Note: []byte("note")},
		&QuarantineResolved{Entity: "e", Topic: TopicFleet, Partition: 3, Offset: 7, Resolution: "discarded"},
		&StreamConflictObserved{Entity: "e", Topic: TopicHardware, Partition: 2, First: 3, Offset: 7, Source: "s", Incarnation: 1, Sequence: 4},
		&StreamGapResolved{Entity: "e", Topic: TopicHardware, Partition: 2, Source: "s", Incarnation: 1, From: 4, To: 9, Reason: "the disk is gone"},
		&GenerationSwitched{Entity: "e", From: "a", To: "b", Position: "0", Method: "m1", Digest: key32, Reason: "power cut", Lost: []LostRecords{{Topic: TopicFleet, Partition: 3, Since: 4, Position: 9, End: 5}}},
		&RemovalStarted{Entity: "e", Removal: "log/1", What: RetainedLog, Policy: "p", Rule: "90 days", By: "schedule", Removed: []Removed{{Topic: TopicFleet, Partition: 3, From: 4, To: 9, Records: 5}}},
		&RecordsRemoved{Entity: "e", Removal: "snapshots/1", What: RetainedSnapshots, Policy: "p", Rule: "14 days", By: "schedule", Removed: []Removed{{File: "f", Records: 1}}, Holds: []string{"case-7"}},
		&AccessDenied{Entity: "e", Principal: "p", Action: "read", Target: "costs"},
		&AccessGranted{Grant: "g", Principal: "group:corp/ml", Role: RoleViewer, Clusters: []string{"c1"}, Until: 2 * Day},
		&AccessRevoked{Grant: "g", Reason: "left"},
		&ServiceKeyIssued{Account: "ci", KeyID: "k1", MAC: key32, PreviousKeyID: "k0", PreviousValidUntil: Day},
		&ServiceKeyRevoked{KeyID: "k1"},
		&SessionEnded{Principal: "user:corp/ana", At: Day},
		&IncidentOpened{Incident: "i", Rule: "utilization", Version: 1, Subject: "cluster/c1", Severity: SeverityWarning, At: Day, Position: "qm.fleet/0=12", Method: "advice/1", Summary: "SM activity 31%", Document: []byte("{}")},
		&IncidentChanged{Incident: "i", Severity: SeverityCritical, At: 2 * Day, Position: "0", Method: "advice/1", Summary: "SM activity 3%", Reopened: true, Document: []byte("{}")},
		&IncidentResolved{Incident: "i", At: 2 * Day, Position: "0", Method: "advice/1"},
		&IncidentAcknowledged{Incident: "i", Note: "looking"},
		&IncidentSilenced{Silence: "s", Rule: "utilization", Subject: "cluster/c1", Until: 3 * Day, Reason: "migration"},
		&AccessRecorded{Principal: "account:ci", Journal: "j", Window: Interval{From: Day, To: Day + 60*Second}, Asked: []AccessRead{{Operation: "costs", Count: 1, Digest: key32}}},
	}
	m := map[Type]*Envelope{}
	for _, e := range all {
		m[e.Type()] = wrap(e)
	}
	return m
}

// validSample is a node of n GPUs, each held by one of two pods.
func validSample(n int) *NodeSampled {
	e := &NodeSampled{Node: "node-0001", Interval: hour, Strings: []string{"acme", "chat", "chat-7d9f-abcde", "chat-7d9f-fghij"},
		HolderWorkspace: []uint32{1, 1}, HolderDeployment: []uint32{2, 2}, HolderUnit: []uint32{3, 4},
		ActivityField: 1002}
	for i := range n {
		id := gpu(i)
		e.IDs = append(e.IDs, id[:]...)
		e.Holder = append(e.Holder, uint32(i%2+1))
		e.ActivityMean = append(e.ActivityMean, 801)
		e.ActivityMin = append(e.ActivityMin, 1)
		e.ActivityMax = append(e.ActivityMax, 1001)
		e.TensorActive = append(e.TensorActive, 300)
		e.DRAMActive = append(e.DRAMActive, 0)
		e.MemoryUsedMiB = append(e.MemoryUsedMiB, 70000)
		e.PowerWatts = append(e.PowerWatts, 640)
		e.TemperatureC = append(e.TemperatureC, 66)
		e.SMClockMHz = append(e.SMClockMHz, 1755)
	}
	return e
}

func TestValidateAcceptsEveryType(t *testing.T) {
	valid := validEvents()
	for _, typ := range Types() {
		env := valid[typ]
		if env == nil {
			t.Errorf("%s: no example", typ)
			continue
		}
		if err := Validate(env); err != nil {
			t.Errorf("%v", err)
		}
		env.Source, env.Incarnation, env.Sequence = "", 0, 0
		if err := Validate(env); err != nil {
			t.Errorf("before it has a place in a stream: %v", err)
		}
	}
}

// edit makes a mutation of an event of one type.
func edit[E Event](f func(E)) func(*Envelope) { return func(env *Envelope) { f(env.Event.(E)) } }

// threshold returns a violation of a policy about a threshold of advice.
func threshold(change func(*PolicySet)) func(*Envelope) {
	return edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyAdviceThreshold, EffectiveFrom: t0, Scope: "utilization", Value: "0.45"}
		change(e)
	})
}

// pools makes a mutation of a policy about shared costs.
func pools(all ...CostPool) func(*Envelope) {
	return edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicySharedCosts, EffectiveFrom: t0, Pools: all}
	})
}

// shares makes a mutation of a rule that shares lines.
func shares(f func(*MappingRuleSet)) func(*Envelope) {
	return edit(func(e *MappingRuleSet) {
		*e = MappingRuleSet{
			Rule: "r", Columns: map[string]string{"SkuId": "x"}, EffectiveFrom: t0,
			ToShares: []WorkspaceWeight{{Workspace: "a", Weight: 3}, {Workspace: "b", Weight: 1}},
		}
		f(e)
	})
}

var violations = []struct {
	change func(*Envelope)
	typ    Type
	want   string
}{
	{func(e *Envelope) { e.Time = 0 }, TypeNodeDrained, "NodeDrained: time: is missing"},
	{func(e *Envelope) { e.Time = -1 }, TypeNodeDrained, "NodeDrained: time: -1 ns is outside the years 1970 to 2261"},
	{func(e *Envelope) { e.Recorded = math.MaxInt64 }, TypeNodeDrained, "NodeDrained: recorded: 9223372036854775807 ns is outside the years 1970 to 2261"},
	{func(e *Envelope) { e.Cluster = "" }, TypeNodeDrained, "NodeDrained: cluster: is missing"},
	{func(e *Envelope) { e.Workspace = "" }, TypeQuotaSet, "QuotaSet: workspace: is missing"},
	{func(e *Envelope) { e.Workspace = "" }, TypeClusterRegistered, "ClusterRegistered: workspace: is missing"},
	{func(e *Envelope) { e.Workspace = "" }, TypeDeploymentChanged, "DeploymentChanged: workspace: is missing"},
	{func(e *Envelope) { e.Source = "a\x00b" }, TypeNodeDrained, `NodeDrained: source: holds control characters or is not UTF-8: "a\x00b"`},
	{func(e *Envelope) { e.Subject = "a\u0085b" }, TypeNodeDrained, `NodeDrained: subject: holds control characters or is not UTF-8: "a\u0085b"`},
	{func(e *Envelope) { e.Cites = "qm.fleet/9@1" }, TypeNodeDrained, `NodeDrained: cites: "qm.fleet/9@1" is not topic/partition@offset`},
	{func(e *Envelope) { e.Cites = "qm.fleet/1@1,qm.fleet/2=3" }, TypeNodeDrained, `NodeDrained: cites: "qm.fleet/1@1,qm.fleet/2=3" is not topic/partition@offset`},
	{func(e *Envelope) { e.Signature = &Signature{Operator: "ann", Key: key32} }, TypeQuotaSet, "QuotaSet: signature.bytes: has 0 bytes, want 64"},

	{func(e *Envelope) { e.Workspace = "unmapped" }, TypeWorkspaceRegistered, `WorkspaceRegistered: workspace: "unmapped" is the name for what nobody pays; choose another`},
	{edit(func(e *WorkspaceRegistered) { e.Name = "" }), TypeWorkspaceRegistered, "WorkspaceRegistered: name: is missing"},
	{edit(func(e *WorkspaceRegistered) { e.Name = strings.Repeat("x", 257) }), TypeWorkspaceRegistered, `WorkspaceRegistered: name: has 257 bytes, at most 256 are allowed: "` + strings.Repeat("x", 64) + `"…`},
	{edit(func(e *WorkspaceRegistered) { e.CostCentre = "a\x00b" }), TypeWorkspaceRegistered, `WorkspaceRegistered: cost_centre: holds control characters or is not UTF-8: "a\x00b"`},
	{edit(func(e *WorkspaceRegistered) { e.Owner = strings.Repeat("x", 257) }), TypeWorkspaceRegistered, `WorkspaceRegistered: owner: has 257 bytes, at most 256 are allowed: "` + strings.Repeat("x", 64) + `"…`},
	{edit(func(e *WorkspaceRegistered) { e.Currency = "usd" }), TypeWorkspaceRegistered, `WorkspaceRegistered: currency: "usd" is not an ISO 4217 code of three capital letters, for example USD`},
	{edit(func(e *OperatorRegistered) { e.PublicKey = key32[:31] }), TypeOperatorRegistered, "OperatorRegistered: public_key: has 31 bytes, want 32"},
	{edit(func(e *OperatorRegistered) { e.Role = "root" }), TypeOperatorRegistered, `OperatorRegistered: role: "root" is unknown, want admin, finance, planner, auditor, operator`},
	{edit(func(e *OperatorRegistered) { e.AuthorityLimits[0].Amount = dec("-1") }), TypeOperatorRegistered, "OperatorRegistered: authority_limits[0]: -1 is negative"},
	{edit(func(e *OperatorRegistered) { e.AuthorityLimits[1].Currency = "USD" }), TypeOperatorRegistered, "OperatorRegistered: authority_limits[1]: \"USD\" has a limit already"},
	{edit(func(e *OperatorRevoked) { e.Operator = "" }), TypeOperatorRevoked, "OperatorRevoked: operator: is missing"},
	{edit(func(e *PolicySet) { e.Kind = "mood" }), TypePolicySet, `PolicySet: kind: "mood" is unknown, want residency, certification, placement, apart, dedicated, spot_share, commitment_discount, idle_cost, activity, cost_of_capital, retention, depreciation, capital_charge, books_currency, recoverable_tax, shared_costs, substitution, posture, transfer_price, ledger_account, advice_threshold, second_approval`},
	{edit(func(e *PolicySet) { e.Pools = []CostPool{{Pool: "a", By: ShareByCost}} }), TypePolicySet, "PolicySet: pools: are for shared_costs, and the kind is residency"},
	{pools(), TypePolicySet, "PolicySet: pools: is empty, want at least one"},
	{pools(CostPool{By: ShareByCost}), TypePolicySet, "PolicySet: pools[0].pool: is missing"},
	{pools(CostPool{Pool: "a"}), TypePolicySet, `PolicySet: pools[0].by: is missing, want by_gpu_hours, by_cost`},
	{pools(CostPool{Pool: "a", By: ShareByCost}, CostPool{Pool: "a", By: ShareByCost}), TypePolicySet, `PolicySet: pools[1].pool: "a" is pool 1 already`},
	{pools(CostPool{Pool: "a", By: ShareByCost, Shares: []WorkspaceWeight{{Workspace: "b", Weight: 1}}}), TypePolicySet, "PolicySet: pools[0].by: stands beside fixed weights: want one of them"},
	{pools(CostPool{Pool: "a", Shares: []WorkspaceWeight{{Workspace: "b"}}}), TypePolicySet, "PolicySet: pools[0].shares[0].weight: is 0, want at least 1"},
	{pools(CostPool{Pool: "a", Shares: []WorkspaceWeight{{Workspace: "a", Weight: 1}}}), TypePolicySet, `PolicySet: pools[0].shares[0].workspace: "a" is pool 1, which passes on its cost before: costs would go in a circle`},
	{pools(CostPool{Pool: "a", By: ShareByCost}, CostPool{Pool: "b", Shares: []WorkspaceWeight{{Workspace: "c", Weight: 1}, {Workspace: "a", Weight: 1}}}), TypePolicySet, `PolicySet: pools[1].shares[1].workspace: "a" is pool 1, which passes on its cost before: costs would go in a circle`},
	{edit(func(e *PolicySet) { e.Columns = map[string]string{"RegionId": "de"} }), TypePolicySet, "PolicySet: columns: are for recoverable_tax, ledger_account and books_currency, and the kind is residency"},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyBooksCurrency, EffectiveFrom: t0, Value: "EUR", Columns: map[string]string{"RegionId": "de"}}
	}), TypePolicySet, `PolicySet: columns: RegionId "de": books are those of one x_Entity, or of all`},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyBooksCurrency, EffectiveFrom: t0, Value: "EUR", Columns: map[string]string{"x_Entity": "acme-*"}}
	}), TypePolicySet, `PolicySet: columns: x_Entity "acme-*": books are those of one x_Entity, or of all`},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyLedgerAccount, EffectiveFrom: t0, Scope: "bank", Value: "1000"}
	}), TypePolicySet, `PolicySet: scope: "bank" is unknown, want expense, payable, accrued, prepaid, tax, owned, rounding, fx, intercompany, due_to, due_from, cost_center, entity`},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyLedgerAccount, EffectiveFrom: t0, Scope: "expense"}
	}), TypePolicySet, "PolicySet: value: is missing"},
	{edit(func(e *PolicySet) { *e = PolicySet{Policy: "p", Kind: PolicyRecoverableTax, EffectiveFrom: t0} }), TypePolicySet, "PolicySet: share: is missing, want a number from 0 to 1"},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyRecoverableTax, EffectiveFrom: t0, Share: nullDec("1.5")}
	}), TypePolicySet, "PolicySet: share: 1.5 is not between 0 and 1"},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyRecoverableTax, EffectiveFrom: t0, Share: nullDec("1"), Columns: map[string]string{"Region": "de"}}
	}), TypePolicySet, `PolicySet: columns: "Region" is no column of text that FOCUS has, nor a custom one, whose name begins with x_; did you mean RegionId?`},
	{edit(func(e *PolicySet) { e.Countries = nil }), TypePolicySet, "PolicySet: countries: is empty, want at least one"},
	{edit(func(e *PolicySet) { e.Countries[0] = "DEU" }), TypePolicySet, `PolicySet: countries: "DEU" is not an ISO 3166-1 code of two capital letters, for example DE`},
	{edit(func(e *PolicySet) { e.Countries[1] = "DE" }), TypePolicySet, `PolicySet: countries: names "DE" twice`},
	{edit(func(e *PolicySet) { e.EffectiveTo = t0 }), TypePolicySet, "PolicySet: effective_to: 2026-01-01T00:00:00Z is not after the beginning 2026-01-01T00:00:00Z"},
	{edit(func(e *PolicySet) { *e = PolicySet{Policy: "p", Kind: PolicySubstitution, EffectiveFrom: t0} }), TypePolicySet, "PolicySet: substitutes: is empty, want at least one"},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicySubstitution, EffectiveFrom: t0, Substitutes: []GPUSubstitute{{For: "A", By: "B"}}}
	}), TypePolicySet, "PolicySet: substitutes[0].gpus: 0 is not above 0 and at most 1000"},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicySubstitution, EffectiveFrom: t0, Substitutes: []GPUSubstitute{{For: "A", By: "A", GPUs: dec("1")}}}
	}), TypePolicySet, `PolicySet: substitutes[0].by: "A" is the model itself`},
	{edit(func(e *PolicySet) {
		s := GPUSubstitute{For: "A", By: "B", GPUs: dec("1")}
		*e = PolicySet{Policy: "p", Kind: PolicySubstitution, EffectiveFrom: t0, Substitutes: []GPUSubstitute{s, s}}
	}), TypePolicySet, `PolicySet: substitutes[1].by: "B" is substitute 1 for "A" already`},
	{edit(func(e *PolicySet) { e.Substitutes = []GPUSubstitute{{For: "A", By: "B", GPUs: dec("1")}} }), TypePolicySet, "PolicySet: substitutes: are for substitution, and the kind is residency"},
	{edit(func(e *PolicySet) { e.Standby = "fra" }), TypePolicySet, "PolicySet: standby: is for posture, and the kind is residency"},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyPosture, EffectiveFrom: t0, Value: "warm", Share: nullDec("1")}
	}), TypePolicySet, `PolicySet: value: "warm" is unknown, want active_active, hot_standby, cold_standby, multi_provider`},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyPosture, EffectiveFrom: t0, Value: PostureActiveActive, Share: nullDec("1"), Standby: "fra"}
	}), TypePolicySet, `PolicySet: standby: is "fra", and active_active has no standby region`},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyPosture, EffectiveFrom: t0, Value: PostureHotStandby, Share: nullDec("1")}
	}), TypePolicySet, "PolicySet: standby: is missing, want the region that takes over"},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyPosture, EffectiveFrom: t0, Value: PostureColdStandby, Share: nullDec("1"), Standby: "fra"}
	}), TypePolicySet, "PolicySet: standby_price_share: is missing, want a number from 0 to 1"},
	{edit(func(e *PolicySet) {
		*e = PolicySet{Policy: "p", Kind: PolicyPosture, EffectiveFrom: t0, Value: PostureHotStandby, Share: nullDec("1"), Standby: "fra", StandbyPriceShare: nullDec("0")}
	}), TypePolicySet, "PolicySet: standby_price_share: is for cold_standby, and the value is hot_standby"},
	{threshold(func(e *PolicySet) { e.Scope = "" }), TypePolicySet, "PolicySet: scope: is missing"},
	{threshold(func(e *PolicySet) { e.Value = "" }), TypePolicySet, "PolicySet: value: is missing, want a threshold such as 0.45, or off"},
	{threshold(func(e *PolicySet) { e.Value = "NaN" }), TypePolicySet, `PolicySet: value: "NaN" is neither off nor a decimal such as 0.45`},
	{threshold(func(e *PolicySet) { e.Value = "1000000000000000000000000" }), TypePolicySet, "PolicySet: value: is 1e24 or more"},
	{threshold(func(e *PolicySet) { e.Value = "-0.1" }), TypePolicySet, "PolicySet: value: -0.1 is negative"},
	{threshold(func(e *PolicySet) { e.Share = nullDec("45") }), TypePolicySet, "PolicySet: share: 45 is not between 0 and 1"},
	{threshold(func(e *PolicySet) { e.Selector.Regions = []string{"fra"} }), TypePolicySet, "PolicySet: selector: names more than workspace, class and cluster, and thresholds differ by nothing else"},
	{edit(func(e *PolicySet) { e.Kind, e.Value = PolicyTransferPrice, "cheap" }), TypePolicySet, `PolicySet: value: "cheap" is not an amount with its currency, such as 12.50 USD`},
	{edit(func(e *PolicySet) { e.Kind, e.Value = PolicyTransferPrice, "-1 USD" }), TypePolicySet, "PolicySet: value: -1 is negative"},
	{edit(func(e *PolicySet) { e.Kind, e.Value = PolicyTransferPrice, "1" }), TypePolicySet, `PolicySet: value: "" is not an ISO 4217 code of three capital letters, for example USD`},
	{edit(func(e *PolicySet) { e.Kind = PolicySpotShare }), TypePolicySet, "PolicySet: share: is missing, want a number from 0 to 1"},
	{edit(func(e *PolicySet) { e.Kind, e.Share = PolicyCostOfCapital, nullDec("1.01") }), TypePolicySet, "PolicySet: share: 1.01 is not between 0 and 1"},
	{edit(func(e *PolicySet) { e.Kind, e.Value = PolicyIdleCost, "me" }), TypePolicySet, `PolicySet: value: "me" is unknown, want owner, platform`},
	{edit(func(e *PolicySet) { e.Kind = PolicyActivity }), TypePolicySet, `PolicySet: value: is missing, want 1002, 1001, 203, 1004, 1005`},
	{edit(func(e *PolicySet) { e.Kind, e.Scope = PolicyApart, "node" }), TypePolicySet, "PolicySet: others: is empty, want at least one selector"},
	{edit(func(e *PolicySet) { e.Selector.Countries = []string{"Germany"} }), TypePolicySet, `PolicySet: selector.countries: "Germany" is not an ISO 3166-1 code of two capital letters, for example DE`},
	{edit(func(e *PolicySet) { e.Others = []Selector{{Regions: []string{"a", "a"}}} }), TypePolicySet, `PolicySet: others[0].regions: names "a" twice`},
	{edit(func(e *PolicySet) { e.Others = []Selector{{}, {Class: "gaming"}} }), TypePolicySet, `PolicySet: others[1].class: "gaming" is unknown, want training, fine_tuning, batch, serving`},
	{edit(func(e *QuotaSet) { e.Limit = dec("-0.1") }), TypeQuotaSet, "QuotaSet: limit: -0.1 is negative"},
	{edit(func(e *BudgetSet) { e.Period.To = e.Period.From }), TypeBudgetSet, "BudgetSet: period: is empty: from 2026-01-01T00:00:00Z to 2026-01-01T00:00:00Z"},
	{edit(func(e *BudgetSet) { e.Basis = "" }), TypeBudgetSet, "BudgetSet: basis: is missing, want cash, accrual"},
	{edit(func(e *BudgetSet) { e.Amount = Money{} }), TypeBudgetSet, `BudgetSet: amount: "" is not an ISO 4217 code of three capital letters, for example USD`},
	{edit(func(e *BudgetSet) { e.Amount.Amount = dec("1e24") }), TypeBudgetSet, "BudgetSet: amount: is 1e24 or more"},
	{edit(func(e *BudgetSet) { e.Amount.Amount = decimal.New(1, math.MaxInt32) }), TypeBudgetSet, "BudgetSet: amount: is 1e24 or more"},
	{edit(func(e *BudgetSet) { e.Amount.Amount = decimal.New(1, math.MinInt32) }), TypeBudgetSet, "BudgetSet: amount: has 2147483648 digits after the point, at most 18 are allowed"},
	{edit(func(e *RegionDefined) { e.Country = "de" }), TypeRegionDefined, `RegionDefined: country: "de" is not an ISO 3166-1 code of two capital letters, for example DE`},
	{edit(func(e *RegionDefined) { e.UTCOffset = "+14:15" }), TypeRegionDefined, `RegionDefined: utc_offset: is "+14:15", want -12:00 to +14:00, for example +01:00`},
	{edit(func(e *RegionDefined) { e.UTCOffset = "CET" }), TypeRegionDefined, `RegionDefined: utc_offset: is "CET", want -12:00 to +14:00, for example +01:00`},
	{edit(func(e *RegionDefined) { e.RoundTrips[0].To = "fra" }), TypeRegionDefined, `RegionDefined: round_trips[0].to: "fra" is the region itself`},
	{edit(func(e *RegionDefined) { e.RoundTrips[0].Micros = 0 }), TypeRegionDefined, "RegionDefined: round_trips[0].micros: is 0, want 1 to 60000000"},
	{edit(func(e *RegionDefined) { e.RoundTrips = append(e.RoundTrips, e.RoundTrips[0]) }), TypeRegionDefined, `RegionDefined: round_trips[1].to: "ams" is named twice`},
	{edit(func(e *CertificationHeld) { e.Provider = "aws" }), TypeCertificationHeld, `CertificationHeld: provider: "aws" stands beside cluster "fra-1": want one of them`},
	{edit(func(e *CertificationHeld) { e.Cluster = "" }), TypeCertificationHeld, "CertificationHeld: provider: is missing, and so is cluster: want one of them"},
	{edit(func(e *CertificationHeld) { e.Valid.To = 0 }), TypeCertificationHeld, "CertificationHeld: valid: has no end"},
	{edit(func(e *MethodChanged) { e.Method = "magic" }), TypeMethodChanged, `MethodChanged: method: "magic" is unknown, want folds, attribution, planner, solver`},
	{edit(func(e *ClusterRegistered) { e.Labels = map[string]string{"": "x"} }), TypeClusterRegistered, "ClusterRegistered: labels: holds a name that is empty, or a name or value over 256 bytes, with control characters or not UTF-8"},
	{edit(func(e *PersonNamed) { e.Person = "" }), TypePersonNamed, "PersonNamed: person: is missing"},
	{edit(func(e *PersonNamed) { e.Sealed = nil }), TypePersonNamed, "PersonNamed: sealed: has 0 bytes, want 1 to 8192"},
	{edit(func(e *LegalHoldSet) { e.Hold = "" }), TypeLegalHoldSet, "LegalHoldSet: hold: is missing"},
	{edit(func(e *LegalHoldSet) { e.Reason = "" }), TypeLegalHoldSet, "LegalHoldSet: reason: is missing"},
	{edit(func(e *LegalHoldSet) { e.Period.From = t0 }), TypeLegalHoldSet, "LegalHoldSet: period: has no end"},
	{edit(func(e *PolicySet) { e.Kind, e.Scope = PolicyRetention, "costs" }), TypePolicySet, `PolicySet: scope: "costs" is unknown, want hours, log, quarantine, snapshots, people`},
	{edit(func(e *PolicySet) {
		e.Kind, e.Scope, e.Value, e.Selector = PolicyRetention, "log", "3 months", Selector{}
	}), TypePolicySet, `PolicySet: value: "3 months": want a number of days, for example "90 days"`},
	{edit(func(e *PolicySet) {
		e.Kind, e.Scope, e.Value, e.Selector = PolicyRetention, "log", "90 days", Selector{Workspace: "w"}
	}), TypePolicySet, "PolicySet: selector: is given, and retention is for everything"},
	{edit(func(e *RemovalStarted) { e.Removed = nil }), TypeRemovalStarted, "RemovalStarted: removed: is empty"},
	{edit(func(e *RemovalStarted) { e.Removed[0].To = 4 }), TypeRemovalStarted, "RemovalStarted: removed[0].to: 4 to before 4 are no records"},
	{edit(func(e *RemovalStarted) { e.What, e.Removed[0].Month = RetainedHours, t0 }), TypeRemovalStarted, "RemovalStarted: removed[0].digest: has 0 bytes, want 32"},
	{edit(func(e *RecordsRemoved) { e.What = "costs" }), TypeRecordsRemoved, `RecordsRemoved: what: "costs" is unknown, want hours, log, quarantine, snapshots, people`},
	{edit(func(e *RecordsRemoved) { e.Removed[0].File = "" }), TypeRecordsRemoved, "RecordsRemoved: removed[0].file: is missing"},
	{edit(func(e *MappingRuleSet) { e.ToWorkspace = "" }), TypeMappingRuleSet, "MappingRuleSet: to_workspace: is missing"},
	{edit(func(e *MappingRuleSet) { e.Buys = BuysNothing }), TypeMappingRuleSet, "MappingRuleSet: columns: is missing: buys is for the lines of bills whose columns have the values given"},
	{edit(func(e *MappingRuleSet) { e.Columns = map[string]string{"SkuId": "x"} }), TypeMappingRuleSet, "MappingRuleSet: columns: stands beside a cluster, a namespace or a deployment: a rule is for pods, or for lines of bills"},
	{edit(func(e *MappingRuleSet) { e.Buys, e.Columns = BuysNothing, map[string]string{"SkuId": "x"} }), TypeMappingRuleSet, "MappingRuleSet: buys: stands beside a cluster, a namespace or a workspace: a rule is for pods, or for lines of bills"},
	{edit(func(e *MappingRuleSet) {
		*e = MappingRuleSet{Rule: "r", Columns: map[string]string{"SkuId": "x"}, Buys: "all", EffectiveFrom: t0}
	}), TypeMappingRuleSet, `MappingRuleSet: buys: "all" is unknown, want gpu_time, machine_time, nothing, outside`},
	{edit(func(e *MappingRuleSet) {
		*e = MappingRuleSet{Rule: "r", Columns: map[string]string{"x_": "", "Regionname": "eu", "ChargeClass": "Correction", "x_Any": "y"}, Buys: BuysNothing, EffectiveFrom: t0}
	}), TypeMappingRuleSet, `MappingRuleSet: columns: "Regionname" is no column of text that FOCUS has, nor a custom one, whose name begins with x_; did you mean RegionName?`},
	{edit(func(e *MappingRuleSet) {
		*e = MappingRuleSet{Rule: "r", Columns: map[string]string{"Skuid": ""}, Buys: BuysNothing, EffectiveFrom: t0}
	}), TypeMappingRuleSet, `MappingRuleSet: columns: "Skuid" is no column of text that FOCUS has, nor a custom one, whose name begins with x_; did you mean SkuId?`},
	{edit(func(e *MappingRuleSet) {
		*e = MappingRuleSet{Rule: "r", Columns: map[string]string{"PricingQuantity": "1"}, Buys: BuysNothing, EffectiveFrom: t0}
	}), TypeMappingRuleSet, `MappingRuleSet: columns: "PricingQuantity" is no column of text that FOCUS has, nor a custom one, whose name begins with x_; did you mean PricingUnit?`},
	{shares(func(e *MappingRuleSet) { e.Columns = nil }), TypeMappingRuleSet, "MappingRuleSet: columns: is missing: what is shared are lines of bills whose columns have the values given"},
	{shares(func(e *MappingRuleSet) { e.Buys = BuysOutside }), TypeMappingRuleSet, "MappingRuleSet: buys: stands beside a cluster, a namespace or a workspace: a rule is for pods, or for lines of bills"},
	{shares(func(e *MappingRuleSet) { e.ToWorkspace = "a" }), TypeMappingRuleSet, `MappingRuleSet: to_shares: stands beside workspace "a": want one of them`},
	{shares(func(e *MappingRuleSet) { e.ToShareBy = ShareByGPUHours }), TypeMappingRuleSet, "MappingRuleSet: to_share_by: stands beside fixed weights: want one of them"},
	{shares(func(e *MappingRuleSet) { e.ToShares, e.ToShareBy = nil, "by_head" }), TypeMappingRuleSet, `MappingRuleSet: to_share_by: "by_head" is unknown, want by_gpu_hours`},
	{shares(func(e *MappingRuleSet) { e.ToShares[1].Weight = 0 }), TypeMappingRuleSet, "MappingRuleSet: to_shares[1].weight: is 0, want at least 1"},
	{shares(func(e *MappingRuleSet) { e.ToShares[1].Workspace = "a" }), TypeMappingRuleSet, `MappingRuleSet: to_shares[1].workspace: "a" has a weight already`},
	{edit(func(e *ClusterRegistered) { e.ProviderClass = "cloud" }), TypeClusterRegistered, `ClusterRegistered: provider_class: "cloud" is unknown, want hyperscaler, neocloud, reseller, owned`},
	{edit(func(e *ClusterRegistered) { e.Region = "" }), TypeClusterRegistered, "ClusterRegistered: region: is missing"},
	{edit(func(e *ClusterKeyIssued) { e.MAC = nil }), TypeClusterKeyIssued, "ClusterKeyIssued: mac: has 0 bytes, want 32"},
	{edit(func(e *ClusterKeyIssued) { e.Scopes = []string{"pull"} }), TypeClusterKeyIssued, `ClusterKeyIssued: scopes: "pull" is unknown, want push, receive`},
	{edit(func(e *ClusterKeyIssued) { e.Scopes = []string{KeyPush, KeyPush} }), TypeClusterKeyIssued, `ClusterKeyIssued: scopes: names "push" twice`},
	{edit(func(e *ClusterKeyRotated) { e.Scopes = []string{""} }), TypeClusterKeyRotated, "ClusterKeyRotated: scopes: is missing"},
	{edit(func(e *ClusterKeyRotated) { e.PreviousKeyID = "k2" }), TypeClusterKeyRotated, `ClusterKeyRotated: previous_key_id: "k2" is the new key`},
	{edit(func(e *GPURetired) { e.GPU = GPUID{} }), TypeGPURetired, "GPURetired: gpu: is missing"},
	{edit(func(e *ClusterKeyRevoked) { e.KeyID = "" }), TypeClusterKeyRevoked, "ClusterKeyRevoked: key_id: is missing"},
	{edit(func(e *NodeRegistered) { e.GPUs[1].ID = e.GPUs[0].ID }), TypeNodeRegistered, "NodeRegistered: gpus[1].uuid: " + gpu(0).String() + " is that of gpus[0] too"},
	{edit(func(e *NodeRegistered) { e.GPUs[1].ID = GPUID{} }), TypeNodeRegistered, "NodeRegistered: gpus[1].uuid: is missing"},
	{edit(func(e *NodeRegistered) { e.BillingModel = "gift" }), TypeNodeRegistered, `NodeRegistered: billing_model: "gift" is unknown, want reserved, on_demand, spot, capacity_block, owned`},
	{edit(func(e *NodeRetired) { e.Node = "" }), TypeNodeRetired, "NodeRetired: node: is missing"},
	{edit(func(e *AssetAcquired) { e.LifeMonths = 0 }), TypeAssetAcquired, "AssetAcquired: life_months: is 0, want 1 to 1200"},
	{edit(func(e *AssetAcquired) { e.Residual = usd("300001") }), TypeAssetAcquired, "AssetAcquired: residual: 300001 USD is more than the capex 300000 USD"},
	{edit(func(e *AssetAcquired) { e.Residual.Currency = "EUR" }), TypeAssetAcquired, "AssetAcquired: residual: 30000 EUR is not in the currency of the capex 300000 USD"},
	{edit(func(e *AssetRevised) { e.Impairment = usd("-1") }), TypeAssetRevised, "AssetRevised: impairment: -1 is negative"},
	{edit(func(e *AssetRevised) { e.LifeMonths = 0 }), TypeAssetRevised, "AssetRevised: life_months: is missing, and so are residual and impairment: state what changes"},
	{edit(func(e *AssetRevised) { e.LifeMonths = 1201 }), TypeAssetRevised, "AssetRevised: life_months: is 1201, want 1 to 1200"},
	{edit(func(e *AssetDisposed) { e.Proceeds = usd("-1") }), TypeAssetDisposed, "AssetDisposed: proceeds: -1 is negative"},
	{edit(func(e *OutageDeclared) { e.Reason = "" }), TypeOutageDeclared, "OutageDeclared: reason: is missing"},
	{edit(func(e *MaintenanceScheduled) { e.Window.From = 0 }), TypeMaintenanceScheduled, "MaintenanceScheduled: window: has no beginning"},
	{edit(func(e *GPUFaultObserved) { e.Kind = "sad" }), TypeGPUFaultObserved, `GPUFaultObserved: kind: "sad" is unknown, want xid, ecc, row_remap, page_retirement, nvlink, off_bus, thermal, health`},
	{edit(func(e *GPUFaultObserved) { e.Detail = "a\x1bb" }), TypeGPUFaultObserved, `GPUFaultObserved: detail: holds the control character U+001B: "a\x1bb"`},
	{edit(func(e *NodeCordoned) { e.Reason = "\xff" }), TypeNodeCordoned, `NodeCordoned: reason: is not UTF-8: "\xff"`},
	{edit(func(e *NodeDrained) { e.Node = "" }), TypeNodeDrained, "NodeDrained: node: is missing"},
	{edit(func(e *NodeReturned) { e.Node = "" }), TypeNodeReturned, "NodeReturned: node: is missing"},
	{edit(func(e *NodeReturned) { e.GPU = GPUID{1} }), TypeNodeReturned, "NodeReturned: faults: is not set: of a GPU alone only faults can end"},
	{edit(func(e *CollectorSilent) { e.Silent.To = t0 - 1 }), TypeCollectorSilent, "CollectorSilent: silent: is empty: from 2026-01-01T00:00:00Z to 2025-12-31T23:59:59.999999999Z"},
	{edit(func(e *CollectorSilent) { e.Silent.From = 365 * Day }), TypeCollectorSilent, "CollectorSilent: silent: begins at 1971-01-01T00:00:00Z, more than 400 days before the event's time, 2026-01-01T00:00:00Z: look at the clock of the node"},
	{edit(func(e *SpoolDropped) { e.Covered.To = t0 + Hour }), TypeSpoolDropped, "SpoolDropped: covered: reaches 2026-01-01T01:00:00Z, more than 10 minutes after the event's time, 2026-01-01T00:00:00Z: look at the clock of the node"},
	{edit(func(e *SpoolDropped) { e.To = 2 }), TypeSpoolDropped, "SpoolDropped: to: sequences 3 to 2 are not a range that starts at 1 or above"},

	{edit(func(e *NodeSampled) { e.Interval.To += Day }), TypeNodeSampled, "NodeSampled: interval: covers more than 24 hours: from 2026-01-01T00:00:00Z to 2026-01-02T01:00:00Z"},
	{edit(func(e *NodeSampled) { e.IDs = e.IDs[1:] }), TypeNodeSampled, "NodeSampled: ids: has 127 and parents 0 bytes, want multiples of 16"},
	{edit(func(e *NodeSampled) { clear(e.IDs[16:32]) }), TypeNodeSampled, "NodeSampled: ids: entry 1 is all zero"},
	{edit(func(e *NodeSampled) { copy(e.IDs[112:], e.IDs[16:32]) }), TypeNodeSampled, "NodeSampled: ids: entries 1 and 7 are both " + gpu(1).String()},
	{edit(func(e *OfferQuoted) { e.GPUMilli = 500 }), TypeOfferQuoted, "OfferQuoted: gpu_milli: is 500 beside 8 whole GPUs, want one of them"},
	{edit(func(e *OfferQuoted) { e.GPUCount, e.GPUMilli = 0, 1000 }), TypeOfferQuoted, "OfferQuoted: gpu_milli: is 1000, at most 999 is allowed"},
	{edit(func(e *OfferQuoted) { e.GPUCount, e.GPUMilli, e.GPUModel = 0, 125, "" }), TypeOfferQuoted, "OfferQuoted: gpu_model: is missing"},
	{edit(func(e *NodeSampled) { e.ActivityField = 0 }), TypeNodeSampled, "NodeSampled: activity_field: is missing, so what was measured is unknown"},
	{edit(func(e *NodeSampled) {
		e.OtherEntry, e.OtherField, e.OtherValue = []uint32{1, 1}, []uint32{7, 7}, []uint64{1, 2}
	}), TypeNodeSampled, "NodeSampled: other_entry: reading 1 is of entry 1 and field 7, want them ascending"},
	{edit(func(e *NodeSampled) { e.IDs = make([]byte, 16*4097) }), TypeNodeSampled, "NodeSampled: ids: has 4097 entries, at most 4096 are allowed"},
	{edit(func(e *NodeSampled) { e.PowerWatts = e.PowerWatts[1:] }), TypeNodeSampled, "NodeSampled: power_watts: has 7 entries, want none or 8"},
	{edit(func(e *NodeSampled) { e.ActivityMean[7] = 1002 }), TypeNodeSampled, "NodeSampled: activity_mean: entry 7 is 1002, at most 1001 is allowed"},
	{edit(func(e *NodeSampled) { e.Holder[0] = 3 }), TypeNodeSampled, "NodeSampled: holder: entry 0 is 3, at most 2 is allowed"},
	{edit(func(e *NodeSampled) { e.HolderUnit[1] = 5 }), TypeNodeSampled, "NodeSampled: holder_unit: entry 1 is 5, at most 4 is allowed"},
	{edit(func(e *NodeSampled) { e.HolderUnit = e.HolderUnit[1:] }), TypeNodeSampled, "NodeSampled: holder_unit: has 1 entries, want none or 2"},
	{edit(func(e *NodeSampled) { e.HolderWorkspace = make([]uint32, 9) }), TypeNodeSampled, "NodeSampled: holder_workspace: has 9 holders for 8 entries"},
	{edit(func(e *NodeSampled) { e.Parent = make([]uint32, 8); e.Parent[2] = 1 }), TypeNodeSampled, "NodeSampled: parent: entry 2 is 1, at most 0 is allowed"},
	{edit(func(e *NodeSampled) { e.Parents = make([]byte, 16*9) }), TypeNodeSampled, "NodeSampled: parents: has 9 GPUs for 8 entries"},
	{edit(func(e *NodeSampled) { e.Strings = make([]string, 41) }), TypeNodeSampled, "NodeSampled: strings: has 41 strings for 8 entries"},
	{edit(func(e *NodeSampled) { e.Strings[3] = "\n" }), TypeNodeSampled, `NodeSampled: strings: holds control characters or is not UTF-8: "\n"`},
	{edit(func(e *NodeSampled) {
		e.OtherEntry = []uint32{8}
		e.OtherField = e.OtherEntry
		e.OtherValue = []uint64{1}
	}), TypeNodeSampled, "NodeSampled: other_entry: names entry 8 of 8"},
	{edit(func(e *NodeSampled) { e.OtherEntry = []uint32{0} }), TypeNodeSampled, "NodeSampled: other_entry: has 1 entries beside 0 fields and 0 values"},
	{edit(func(e *MetricsObserved) { e.Unit[0] = 0 }), TypeMetricsObserved, "MetricsObserved: engine: server 0 lacks its engine, deployment or unit"},
	{edit(func(e *MetricsObserved) { e.Metric[1] = uint32(metricEnd) }), TypeMetricsObserved, "MetricsObserved: metric: entry 1 is 19, which this program does not know"},
	{edit(func(e *MetricsObserved) { e.Bound[0] = 0 }), TypeMetricsObserved, "MetricsObserved: bound: entry 0 is 0, and a bucket has one where nothing else has"},
	{edit(func(e *MetricsObserved) { e.Samples[1] = 3 }), TypeMetricsObserved, "MetricsObserved: samples: entry 1 is 3 of the 2 that are left"},
	{edit(func(e *MetricsObserved) { e.Samples[1] = 1 }), TypeMetricsObserved, "MetricsObserved: samples: 1 samples are of no series"},
	{edit(func(e *MetricsObserved) { e.Offset[1] = 86_400_001 }), TypeMetricsObserved, "MetricsObserved: offset_ms: entry 1 is 86400001, at most 86400000 is allowed"},
	{edit(func(e *MetricsObserved) { e.Value[2] = 1 << 53 }), TypeMetricsObserved, "MetricsObserved: value: entry 2 is 9007199254740992, at most 4503599627370496 is allowed"},
	{edit(func(e *MetricsObserved) { e.Server[0] = 1 }), TypeMetricsObserved, "MetricsObserved: server: entry 0 is 1, at most 0 is allowed"},
	{edit(func(e *MetricsObserved) { e.StepMs = 0 }), TypeMetricsObserved, "MetricsObserved: step_ms: is 0, want 1 to 3600000"},
	{edit(func(e *MetricsObserved) { e.Base++ }), TypeMetricsObserved, "MetricsObserved: base: is not a whole millisecond"},
	{edit(func(e *ServingSampled) { e.TTFT.Counts = nil }), TypeServingSampled, "ServingSampled: ttft.counts: has 0 entries for 2 bounds, want one more than bounds"},
	{edit(func(e *ServingSampled) { e.TTFT.Bounds[1] = 1 }), TypeServingSampled, "ServingSampled: ttft.bounds: entry 1 is 1 after 1, want ascending bounds"},
	{edit(func(e *ServingSampled) { e.KVCachePermille = 1001 }), TypeServingSampled, "ServingSampled: kv_cache_permille: is 1001, at most 1000 is allowed"},
	{edit(func(e *JobQueued) { e.Need.Count = 2 }), TypeJobQueued, "JobQueued: need.milli: 500 thousandths of a GPU stand beside a count of 2: want a count of 1"},
	{edit(func(e *JobQueued) { e.Class = "" }), TypeJobQueued, "JobQueued: class: is missing, want training, fine_tuning, batch, serving"},
	{edit(func(e *JobStarted) { e.Nodes = []string{"n1", "n1"} }), TypeJobStarted, `JobStarted: nodes: names "n1" twice`},
	{edit(func(e *JobFinished) { e.Outcome = "gone" }), TypeJobFinished, `JobFinished: outcome: "gone" is unknown, want succeeded, failed, cancelled, preempted, interrupted`},
	{edit(func(e *JobFinished) { e.RetainedPermille = 1001 }), TypeJobFinished, "JobFinished: retained_permille: is 1001, at most 1000 is allowed"},
	{edit(func(e *DemandObserved) { e.Unit = "cats" }), TypeDemandObserved, `DemandObserved: unit: "cats" is unknown, want gpu, vm`},
	{edit(func(e *DemandObserved) { e.Interval.To = t0 + Day + 1 }), TypeDemandObserved, "DemandObserved: interval: covers more than 24 hours: from 2026-01-01T00:00:00Z to 2026-01-02T00:00:00.000000001Z"},
	{edit(func(e *EnergyMetered) { e.Interval.To = e.Interval.From + 31*Day + 1 }), TypeEnergyMetered, "EnergyMetered: interval: covers more than 31 days: from 2026-01-01T00:00:00Z to 2026-02-01T00:00:00.000000001Z"},
	{edit(func(e *EnergyMetered) { e.WattHours = dec("-1") }), TypeEnergyMetered, "EnergyMetered: watt_hours: -1 is negative"},
	{edit(func(e *UsageCorrected) { e.GPU = GPUID{} }), TypeUsageCorrected, "UsageCorrected: gpu: is missing"},
	{edit(func(e *UsageCorrected) { e.Reason = "" }), TypeUsageCorrected, "UsageCorrected: reason: is missing"},
	{edit(func(e *DeploymentChanged) { e.Need.Count = 1 }), TypeDeploymentChanged, `DeploymentChanged: need.mig_profile: "1g.10gb" stands beside a count of 1 whole GPUs: want one of them`},
	{edit(func(e *DeploymentChanged) { e.Countries = []string{"XXX"} }), TypeDeploymentChanged, `DeploymentChanged: countries: "XXX" is not an ISO 3166-1 code of two capital letters, for example DE`},
	{edit(func(e *DeploymentRemoved) { e.Deployment = "" }), TypeDeploymentRemoved, "DeploymentRemoved: deployment: is missing"},
	{edit(func(e *ReplicasObserved) { e.Model = "" }), TypeReplicasObserved, "ReplicasObserved: model: is missing"},

	{edit(func(e *BillingLineRecorded) { e.Line.ChargeCategory = "usage" }), TypeBillingLineRecorded, `BillingLineRecorded: line.ChargeCategory: "usage" is unknown, want Usage, Purchase, Tax, Credit, Adjustment`},
	{edit(func(e *BillingLineRecorded) { e.Line.ChargeClass = "Wrong" }), TypeBillingLineRecorded, `BillingLineRecorded: line.ChargeClass: "Wrong" is unknown, want Correction`},
	{edit(func(e *BillingLineRecorded) { e.Line.CommitmentDiscountStatus = "used" }), TypeBillingLineRecorded, `BillingLineRecorded: line.CommitmentDiscountStatus: "used" is unknown, want Used, Unused`},
	{edit(func(e *BillingLineRecorded) { e.Line.ListUnitPrice = nullDec("-1") }), TypeBillingLineRecorded, "BillingLineRecorded: line.ListUnitPrice: -1 is negative"},
	{edit(func(e *BillingLineRecorded) { e.Line.PricingQuantity = nullDec("1e24") }), TypeBillingLineRecorded, "BillingLineRecorded: line.PricingQuantity: is 1e24 or more"},
	{edit(func(e *BillingLineRecorded) { e.Line.BilledCost = dec("0.0000000000000000001") }), TypeBillingLineRecorded, "BillingLineRecorded: line.BilledCost: has 19 digits after the point, at most 18 are allowed"},
	{edit(func(e *BillingLineRecorded) { e.Line.ChargePeriodEnd = hour.From }), TypeBillingLineRecorded, "BillingLineRecorded: line.ChargePeriod: is empty: from 2026-01-01T00:00:00Z to 2026-01-01T00:00:00Z"},
	{edit(func(e *BillingLineRecorded) { e.Line.ResourceName = "a\x00" }), TypeBillingLineRecorded, `BillingLineRecorded: line.ResourceName: holds the control character U+0000: "a\x00"`},
	{edit(func(e *BillingLineRecorded) { e.Line.Other["x_Bar"] = "\xfe" }), TypeBillingLineRecorded, `BillingLineRecorded: line.Other: is not UTF-8: "\xfe"`},
	{edit(func(e *BillingLineCorrected) { e.Corrects = "" }), TypeBillingLineCorrected, "BillingLineCorrected: corrects: is missing"},
	{edit(func(e *InvoiceReceived) { e.Status = "Paid" }), TypeInvoiceReceived, `InvoiceReceived: InvoiceIssueStatus: "Paid" is unknown, want Open, Issued, Voided`},
	{edit(func(e *InvoiceReceived) { e.Details[0].ChargeCategory = "" }), TypeInvoiceReceived, "InvoiceReceived: details[0].ChargeCategory: is missing, want Usage, Purchase, Tax, Credit, Adjustment"},
	{edit(func(e *BillingLineRemoved) { e.LineID = "" }), TypeBillingLineRemoved, "BillingLineRemoved: x_LineId: is missing"},
	{edit(func(e *BillingLineRemoved) { e.BillingPeriod = Interval{} }), TypeBillingLineRemoved, "BillingLineRemoved: billing_period: has no beginning"},
	{edit(func(e *BillingPeriodClosed) { e.Period = Interval{} }), TypeBillingPeriodClosed, "BillingPeriodClosed: period: has no beginning"},
	{edit(func(e *OfferQuoted) { e.Hourly = dec("-1") }), TypeOfferQuoted, "OfferQuoted: hourly: -1 is negative"},
	{edit(func(e *OfferQuoted) { e.Kind = "loan" }), TypeOfferQuoted, `OfferQuoted: kind: "loan" is unknown, want reserved, on_demand, spot, capacity_block, spend_commitment, owned`},
	{edit(func(e *OfferQuoted) { e.MinUnits, e.MaxUnits = 2, 1 }), TypeOfferQuoted, "OfferQuoted: max_units: 1 is below min_units 2"},
	{edit(func(e *OfferQuoted) { e.GPUModel = "" }), TypeOfferQuoted, "OfferQuoted: gpu_model: is missing"},
	{edit(func(e *OfferWithdrawn) { e.Market.Provider = "" }), TypeOfferWithdrawn, "OfferWithdrawn: market.provider: is missing"},
	{edit(func(e *OnDemandQuotaSet) { e.Account = "" }), TypeOnDemandQuotaSet, "OnDemandQuotaSet: account: is missing"},
	{edit(func(e *SpotInterrupted) { e.SKU = "" }), TypeSpotInterrupted, "SpotInterrupted: sku: is missing"},
	{edit(func(e *TariffSet) { e.Rates = []SiteRate{{"space", "acre", usd("1")}} }), TypeTariffSet, `TariffSet: rates[0].per: "acre" is unknown, want asset, node, gpu, rack_unit`},
	{edit(func(e *TariffSet) { e.Rates = []SiteRate{{"", PerNode, usd("1")}} }), TypeTariffSet, "TariffSet: rates[0].cost: is missing"},
	{edit(func(e *TariffSet) { e.Rates = []SiteRate{{"a", PerNode, usd("1")}, {"a", PerNode, usd("2")}} }), TypeTariffSet, `TariffSet: rates[1].cost: "a" per node is that of rates[0] too`},
	{edit(func(e *TariffSet) { e.Rates = []SiteRate{{"a", PerNode, usd("-1")}} }), TypeTariffSet, "TariffSet: rates[0].price: -1 is negative"},
	{edit(func(e *TariffSet) { e.Rates = []SiteRate{{"power", PerNode, usd("1")}} }), TypeTariffSet, `TariffSet: rates[0].cost: "power" is a charge of owned hardware already; name it otherwise`},
	{edit(func(e *TariffSet) { e.PUE = dec("0.99") }), TypeTariffSet, "TariffSet: pue: 0.99 is below 1, which no building reaches"},
	{edit(func(e *FXRateSet) { e.Rate = Decimal{} }), TypeFXRateSet, "FXRateSet: rate: 0 is not above 0"},
	{edit(func(e *FXRateSet) { e.Quote = "EUR" }), TypeFXRateSet, `FXRateSet: quote: "EUR" is the base too`},
	{edit(func(e *FXRateSet) { e.Kind = "daily" }), TypeFXRateSet, `FXRateSet: kind: "daily" is unknown, want spot, average, payment, closing`},
	{edit(func(e *PlanComputed) { e.Document = []byte("[]") }), TypePlanComputed, "PlanComputed: digest: 44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a is not the SHA-256 of the document"},
	{edit(func(e *PlanComputed) { e.Position = "qm.fleet/7=1" }), TypePlanComputed, `PlanComputed: position: position "qm.fleet/7=1": no such partition`},
	{edit(func(e *ScenarioFrozen) { e.Document = nil }), TypeScenarioFrozen, "ScenarioFrozen: document: has 0 bytes, want 1 to 16777216"},
	{edit(func(e *RecommendationMade) { e.Purchases[0].Units = 0 }), TypeRecommendationMade, "RecommendationMade: purchases[0].units: is 0, want at least 1"},
	{edit(func(e *RecommendationMade) { e.Kind = "move" }), TypeRecommendationMade, `RecommendationMade: kind: "move" is unknown, want purchase, renew, lapse, rightsize, tier, rebalance, shift, drain, sleep, limits, retire, quota, own`},
	{edit(func(e *RecommendationMade) { e.Clusters = []string{"c2", "c1"} }), TypeRecommendationMade, "RecommendationMade: clusters: are not sorted"},
	{edit(func(e *RecommendationMade) { e.WhyMore = "" }), TypeRecommendationMade, "RecommendationMade: why_more: is missing: it touches 2 clusters"},
	{edit(func(e *RecommendationMade) { e.SavingLow.Currency = "EUR" }), TypeRecommendationMade, "RecommendationMade: saving: has another currency than its interval: 20 USD, from -1 EUR to 40 USD"},
	{edit(func(e *RecommendationMade) { e.SavingHigh.Amount = dec("19") }), TypeRecommendationMade, "RecommendationMade: saving: 20 USD is not between -1 USD and 19 USD"},
	{edit(func(e *RecommendationMade) { e.Coverage = nullDec("1.01") }), TypeRecommendationMade, "RecommendationMade: coverage: 1.01 is not between 0 and 1"},
	{edit(func(e *RecommendationMade) { e.Findings = []string{"f", "f"} }), TypeRecommendationMade, `RecommendationMade: findings: names "f" twice`},
	{edit(func(e *RecommendationMade) { e.Document = []byte("x") }), TypeRecommendationMade, "RecommendationMade: document: is not a JSON object"},
	{edit(func(e *RecommendationWithdrawn) { e.Recommendation = "" }), TypeRecommendationWithdrawn, "RecommendationWithdrawn: recommendation: is missing"},
	{edit(func(e *CommandIssued) { e.Cluster = "" }), TypeCommandIssued, "CommandIssued: cluster: is missing"},
	{edit(func(e *CommandIssued) { e.Expires = 0 }), TypeCommandIssued, "CommandIssued: expires: is missing"},
	{edit(func(e *CommandIssued) { e.Approvals = nil }), TypeCommandIssued, "CommandIssued: approvals: is empty, want at least one"},
	{edit(func(e *CommandIssued) { e.Approvals[0].Signed = []byte("x") }), TypeCommandIssued, "CommandIssued: approvals[0].signature: does not verify"},
	{edit(func(e *CommandIssued) { e.Approvals[0].Signed = nil }), TypeCommandIssued, "CommandIssued: approvals[0].signed: has 0 bytes, want 1 to 65536"},
	{edit(func(e *CommandIssued) { e.Document = nil }), TypeCommandIssued, "CommandIssued: document: has 0 bytes, want 1 to 1048576"},
	{edit(func(e *RecommendationActuated) { e.Actor = "" }), TypeRecommendationActuated, "RecommendationActuated: actor: is missing"},
	{edit(func(e *RecommendationActuated) { e.Actor = "operator:" }), TypeRecommendationActuated, `RecommendationActuated: actor: "operator:" is none: want operator:NAME or key:KEYID`},
	{edit(func(e *RecommendationActuated) { e.Cluster = "" }), TypeRecommendationActuated, "RecommendationActuated: cluster: is missing: a key is of one cluster"},
	{edit(func(e *RecommendationActuated) { e.Result = "ok" }), TypeRecommendationActuated, `RecommendationActuated: result: "ok" is unknown, want done, failed, refused`},
	{edit(func(e *OutcomeRecorded) { e.Actor = "ann" }), TypeOutcomeRecorded, `OutcomeRecorded: actor: "ann" is none: want operator:NAME or key:KEYID`},
	{edit(func(e *OutcomeRecorded) { e.Window.To = e.Window.From }), TypeOutcomeRecorded, "OutcomeRecorded: window: is empty: from 2026-01-01T00:00:00Z to 2026-01-01T00:00:00Z"},
	{edit(func(e *OutcomeRecorded) { e.Measured.Currency = "" }), TypeOutcomeRecorded, `OutcomeRecorded: measured: "" is not an ISO 4217 code of three capital letters, for example USD`},
	{edit(func(e *RecommendationApproved) { e.Recommendation = "" }), TypeRecommendationApproved, "RecommendationApproved: recommendation: is missing"},
	{edit(func(e *RecommendationApproved) { e.Digest = []byte("x") }), TypeRecommendationApproved, "RecommendationApproved: digest: has 1 bytes, want 32"},
	{edit(func(e *RecommendationRejected) { e.Recommendation = "" }), TypeRecommendationRejected, "RecommendationRejected: recommendation: is missing"},
	{edit(func(e *RecommendationActuated) { e.Recommendation = "" }), TypeRecommendationActuated, "RecommendationActuated: recommendation: is missing"},
	{edit(func(e *OutcomeRecorded) { e.Outcome = "meh" }), TypeOutcomeRecorded, `OutcomeRecorded: outcome: "meh" is unknown, want succeeded, failed, partial`},
	{edit(func(e *CommitmentPurchased) { e.Owners[1].Share = dec("0.300000000000000001") }), TypeCommitmentPurchased, "CommitmentPurchased: owners: shares add up to 1.000000000000000001, want exactly 1"},
	{edit(func(e *CommitmentPurchased) { e.Owners[1].Workspace = "acme" }), TypeCommitmentPurchased, `CommitmentPurchased: owners[1].workspace: "acme" is named twice`},
	{edit(func(e *CommitmentPurchased) { e.Owners[0].Share = dec("-1") }), TypeCommitmentPurchased, "CommitmentPurchased: owners[0].share: -1 is not above 0"},
	{edit(func(e *CommitmentPurchased) { e.Kind = OfferSpot }), TypeCommitmentPurchased, `CommitmentPurchased: kind: "spot" commits to nothing`},
	{edit(func(e *CommitmentPurchased) { e.Kind = OfferSpendCommitment }), TypeCommitmentPurchased, "CommitmentPurchased: spend_per_hour: is missing, which a spend commitment needs"},
	{edit(func(e *CommitmentPurchased) { e.Upfront = Money{dec("1"), "EUR"} }), TypeCommitmentPurchased, "CommitmentPurchased: hourly: 20 USD is not in the currency of upfront 1 EUR"},
	{edit(func(e *CommitmentRenewed) { e.Units = 0 }), TypeCommitmentRenewed, "CommitmentRenewed: units: is 0, want at least 1"},
	{edit(func(e *CommitmentEnded) { e.At = 0 }), TypeCommitmentEnded, "CommitmentEnded: at: is missing"},
	{edit(func(e *ClosePrepared) { e.Digest = nil }), TypeClosePrepared, "ClosePrepared: digest: has 0 bytes, want 32"},
	{edit(func(e *ClosePrepared) { e.Postings = key32[1:] }), TypeClosePrepared, "ClosePrepared: postings: has 31 bytes, want 32"},
	{edit(func(e *ClosePrepared) { e.Totals[1].Currency = "EUR" }), TypeClosePrepared, "ClosePrepared: totals[1].currency: EUR follows EUR: want each currency once, in order"},
	{edit(func(e *ClosePrepared) { e.Totals[0].Currency = "" }), TypeClosePrepared, "ClosePrepared: totals[0].currency: \"\" is not an ISO 4217 code of three capital letters, for example USD"},
	{edit(func(e *ClosePrepared) { e.Rates[0].Rate = dec("0") }), TypeClosePrepared, "ClosePrepared: rates[0].rate: 0 is not above 0"},
	{edit(func(e *ClosePrepared) { e.Rates[1].Kind = FXClosing }), TypeClosePrepared, "ClosePrepared: rates[1].commitment: has no closing rate: that is for balances of a currency"},
	{edit(func(e *ClosePrepared) { e.Rates[0].TermFrom = t0 }), TypeClosePrepared, "ClosePrepared: rates[0].term_from: is of no commitment"},
	{edit(func(e *ClosePrepared) { e.Translated = nil }), TypeClosePrepared, "ClosePrepared: rates: translate into no currency"},
	{edit(func(e *ClosePrepared) { e.Rates[0].Quote = "GBP" }), TypeClosePrepared, "ClosePrepared: rates[0].quote: GBP is the currency of no books"},
	{edit(func(e *ClosePrepared) { e.Translated[0].Entity = "us" }), TypeClosePrepared, "ClosePrepared: translated[0].entity: is \"us\", want the total of all entities first"},
	{edit(func(e *ClosePrepared) { e.Translated[1].Entity = "" }), TypeClosePrepared, "ClosePrepared: translated[1].entity: \"\" follows \"\": want each entity once, in order"},
	{edit(func(e *ClosePrepared) { e.Totals[1].Entity = "de" }), TypeClosePrepared, "ClosePrepared: totals[1].entity: is \"de\": these totals are of all entities"},
	{edit(func(e *ClosePrepared) { e.Translated[0].Currency = "usd" }), TypeClosePrepared, "ClosePrepared: translated[0].currency: \"usd\" is not an ISO 4217 code of three capital letters, for example USD"},
	{edit(func(e *ClosePrepared) { e.Checks[0].Reason = "" }), TypeClosePrepared, "ClosePrepared: checks[0].reason: is missing: a finding is accepted for a reason"},
	{edit(func(e *ClosePrepared) { e.Checks[0].Outcome = "failed" }), TypeClosePrepared, `ClosePrepared: checks[0].outcome: "failed" is unknown, want met, accepted`},
	{edit(func(e *CloseApproved) { e.Prepared = -1 }), TypeCloseApproved, "CloseApproved: prepared: is -1, want an offset"},
	{edit(func(e *CloseApproved) { e.Entity = "" }), TypeCloseApproved, "CloseApproved: entity: is missing"},
	{edit(func(e *BooksClosed) { e.Method = "" }), TypeBooksClosed, "BooksClosed: method: is missing"},
	{edit(func(e *ExportMade) { e.Format = "doc" }), TypeExportMade, `ExportMade: format: "doc" is unknown, want csv, parquet, xlsx`},
	{edit(func(e *CheckpointSigned) { e.Note = nil }), TypeCheckpointSigned, "CheckpointSigned: note: has 0 bytes, want 1 to 65536"},
	{edit(func(e *QuarantineResolved) { e.Partition = 4 }), TypeQuarantineResolved, `QuarantineResolved: partition: "qm.fleet"/4 is no partition of the log`},
	{edit(func(e *QuarantineResolved) { e.Resolution = "ignored" }), TypeQuarantineResolved, `QuarantineResolved: resolution: "ignored" is unknown, want reappended, discarded`},
	{edit(func(e *StreamConflictObserved) { e.Offset = 3 }), TypeStreamConflictObserved, "StreamConflictObserved: offset: 3 does not follow the first record's, 3"},
	{edit(func(e *StreamConflictObserved) { e.Topic = "qm.none" }), TypeStreamConflictObserved, `StreamConflictObserved: partition: "qm.none"/2 is no partition of the log`},
	{edit(func(e *StreamConflictObserved) { e.Incarnation = 0 }), TypeStreamConflictObserved, "StreamConflictObserved: incarnation: is 0, they count from 1"},
	{edit(func(e *StreamGapResolved) { e.From = 10 }), TypeStreamGapResolved, "StreamGapResolved: sequence: 10 to 9 is no run of sequences, which count from 1"},
	{edit(func(e *StreamGapResolved) { e.Source = "" }), TypeStreamGapResolved, "StreamGapResolved: source: is missing"},
	{edit(func(e *GenerationSwitched) { e.To = "a" }), TypeGenerationSwitched, `GenerationSwitched: to: "a" was read before`},
	{edit(func(e *GenerationSwitched) { e.Digest = nil }), TypeGenerationSwitched, "GenerationSwitched: digest: has 0 bytes, want 32"},
	{edit(func(e *GenerationSwitched) { e.Lost[0].Since = 9 }), TypeGenerationSwitched, "GenerationSwitched: lost[0].since: 9 to before 9 are no records"},
	{edit(func(e *GenerationSwitched) { e.Lost = append(e.Lost, e.Lost[0]) }), TypeGenerationSwitched, "GenerationSwitched: lost[1].partition: qm.fleet/3 is named twice"},
	{edit(func(e *AccessDenied) { e.Principal = "" }), TypeAccessDenied, "AccessDenied: principal: is missing"},
	{edit(func(e *AccessGranted) { e.Principal = "ana" }), TypeAccessGranted, `AccessGranted: principal: "ana" is none: want user:PROVIDER/SUBJECT, group:PROVIDER/GROUP or account:NAME`},
	{edit(func(e *AccessGranted) { e.Principal = "user:corp/" }), TypeAccessGranted, `AccessGranted: principal: "user:corp/" is none: want user:PROVIDER/SUBJECT, group:PROVIDER/GROUP or account:NAME`},
	{edit(func(e *AccessGranted) { e.Role = "owner" }), TypeAccessGranted, `AccessGranted: role: "owner" is unknown, want admin, finance, planner, auditor, operator, viewer`},
	{edit(func(e *AccessGranted) { e.Clusters = []string{""} }), TypeAccessGranted, "AccessGranted: clusters: is missing"},
	{edit(func(e *AccessRevoked) { e.Grant = "" }), TypeAccessRevoked, "AccessRevoked: grant: is missing"},
	{edit(func(e *ServiceKeyIssued) { e.Account = "a/b" }), TypeServiceKeyIssued, `ServiceKeyIssued: account: "a/b" contains a slash`},
	{edit(func(e *ServiceKeyIssued) { e.MAC = e.MAC[1:] }), TypeServiceKeyIssued, "ServiceKeyIssued: mac: has 31 bytes, want 32"},
	{edit(func(e *ServiceKeyIssued) { e.PreviousKeyID = "" }), TypeServiceKeyIssued, "ServiceKeyIssued: previous_valid_until: goes with previous_key_id: want both or none"},
	{edit(func(e *ServiceKeyRevoked) { e.KeyID = "" }), TypeServiceKeyRevoked, "ServiceKeyRevoked: key_id: is missing"},
	{edit(func(e *SessionEnded) { e.At = 0 }), TypeSessionEnded, "SessionEnded: at: is missing"},
	{edit(func(e *AccessRecorded) { e.Journal = "" }), TypeAccessRecorded, "AccessRecorded: journal: is missing"},
	{edit(func(e *IncidentOpened) { e.Incident = "" }), TypeIncidentOpened, "IncidentOpened: incident: is missing"},
	{edit(func(e *IncidentOpened) { e.Rule = "" }), TypeIncidentOpened, "IncidentOpened: rule: is missing"},
	{edit(func(e *IncidentOpened) { e.Version = 0 }), TypeIncidentOpened, "IncidentOpened: version: is 0, want at least 1"},
	{edit(func(e *IncidentOpened) { e.Subject = "" }), TypeIncidentOpened, "IncidentOpened: subject: is missing"},
	{edit(func(e *IncidentOpened) { e.Severity = "bad" }), TypeIncidentOpened, `IncidentOpened: severity: "bad" is unknown, want info, warning, critical`},
	{edit(func(e *IncidentOpened) { e.At = 0 }), TypeIncidentOpened, "IncidentOpened: at: is missing"},
	{edit(func(e *IncidentOpened) { e.Method = "" }), TypeIncidentOpened, "IncidentOpened: method: is missing"},
	{edit(func(e *IncidentOpened) { e.Summary = "" }), TypeIncidentOpened, "IncidentOpened: summary: is missing"},
	{edit(func(e *IncidentOpened) { e.Document = []byte("[]") }), TypeIncidentOpened, "IncidentOpened: document: is not a JSON object"},
	{edit(func(e *IncidentOpened) { e.Document = []byte("{") }), TypeIncidentOpened, "IncidentOpened: document: is not a JSON object"},
	{edit(func(e *IncidentOpened) { e.Document = make([]byte, 1<<20+1) }), TypeIncidentOpened, "IncidentOpened: document: has 1048577 bytes, want 1 to 1048576"},
	{edit(func(e *IncidentChanged) { e.Severity = "" }), TypeIncidentChanged, "IncidentChanged: severity: is missing, want info, warning, critical"},
	{edit(func(e *IncidentChanged) { e.Document = nil }), TypeIncidentChanged, "IncidentChanged: document: has 0 bytes, want 1 to 1048576"},
	{edit(func(e *IncidentResolved) { e.At = 0 }), TypeIncidentResolved, "IncidentResolved: at: is missing"},
	{edit(func(e *IncidentAcknowledged) { e.Incident = "" }), TypeIncidentAcknowledged, "IncidentAcknowledged: incident: is missing"},
	{edit(func(e *IncidentSilenced) { e.Silence = "" }), TypeIncidentSilenced, "IncidentSilenced: silence: is missing"},
	{edit(func(e *IncidentSilenced) { e.Incident = "i" }), TypeIncidentSilenced, "IncidentSilenced: rule: is named beside an incident: want one of them"},
	{edit(func(e *IncidentSilenced) { e.Rule = "" }), TypeIncidentSilenced, "IncidentSilenced: incident: is missing, and so is rule: want one of them"},
	{edit(func(e *IncidentSilenced) { e.Incident, e.Rule = "i", "" }), TypeIncidentSilenced, "IncidentSilenced: subject: is named without a rule"},
	{edit(func(e *IncidentSilenced) { e.Until = 0 }), TypeIncidentSilenced, "IncidentSilenced: until: is missing"},
	{edit(func(e *IncidentSilenced) { e.Reason = "" }), TypeIncidentSilenced, "IncidentSilenced: reason: is missing"},
	{edit(func(e *AccessRecorded) { e.Asked = nil }), TypeAccessRecorded, "AccessRecorded: asked: is empty"},
	{edit(func(e *AccessRecorded) { e.Asked[0].Count = 0 }), TypeAccessRecorded, "AccessRecorded: asked[0].count: is 0, of which 0 were refused"},
	{edit(func(e *AccessRecorded) { e.Asked[0].Refused = 2 }), TypeAccessRecorded, "AccessRecorded: asked[0].count: is 1, of which 2 were refused"},
	{edit(func(e *AccessRecorded) { e.Asked[0].Digest = []byte{1} }), TypeAccessRecorded, "AccessRecorded: asked[0].digest: has 1 bytes, want 32"},
}

func TestValidateRefuses(t *testing.T) {
	covered := map[Type]bool{}
	for _, v := range violations {
		covered[v.typ] = true
		env := validEvents()[v.typ]
		v.change(env)
		err := Validate(env)
		if err == nil || err.Error() != v.want {
			t.Errorf("got  %v\nwant %s", err, v.want)
		}
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%v does not wrap ErrInvalid", err)
		}
	}
	for _, typ := range Types() {
		if !covered[typ] {
			t.Errorf("%s: nothing shows that it can be refused", typ)
		}
	}
}

func TestValidateNothing(t *testing.T) {
	for _, env := range []*Envelope{nil, {}} {
		if err := Validate(env); err == nil || err.Error() != "event: event: there is none" {
			t.Errorf("got %v", err)
		}
	}
	for _, typ := range Types() {
		null := reflect.Zero(reflect.TypeOf(NewEvent(typ))).Interface().(Event)
		if err := Validate(wrap(null)); err == nil || err.Error() != string(typ)+": event: is nil" {
			t.Errorf("%s: got %v", typ, err)
		}
	}
}

// For every event, Validate returns one line that begins with the type, and the same line each
// time.
func TestValidateHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom(Types()).Draw(t, "type")
		var env *Envelope
		if rapid.Bool().Draw(t, "from valid") {
			env = validEvents()[typ]
		} else {
			env = wrap(NewEvent(typ))
		}
		hostile(t, reflect.ValueOf(env.Event).Elem())
		checkVerdict(t, env)
	})
}

func checkVerdict(t interface{ Fatalf(string, ...any) }, env *Envelope) {
	err := Validate(env)
	if err == nil {
		return
	}
	if s := err.Error(); !strings.HasPrefix(s, string(env.Event.Type())+": ") || strings.ContainsAny(s, "\n\r\x00") {
		t.Fatalf("error %q", s)
	}
	if !errors.Is(err, ErrInvalid) {
		t.Fatalf("%v does not wrap ErrInvalid", err)
	}
	if again := Validate(env); again == nil || again.Error() != err.Error() {
		t.Fatalf("first %v, then %v", err, again)
	}
}

var (
	hostileStrings  = []string{"", "a", "\x00", "\xff\xfe", "\u0085", "\u202e", "USD", "DE", strings.Repeat("x", 256), strings.Repeat("é", 5000), "a\nb", "0", "qm.fleet/0=1"}
	hostileDecimals = []Decimal{{}, dec("1"), dec("-1"), dec("0.5"), decimal.New(1, math.MaxInt32), decimal.New(-1, math.MinInt32), decimal.New(0, math.MaxInt32), dec("999999999999999999999999.999999999999999999")}
)

// hostile overwrites some of the fields of v with the values most likely to fail.
func hostile(t *rapid.T, v reflect.Value) {
	if !rapid.Bool().Draw(t, "touch") && v.Kind() != reflect.Struct {
		return
	}
	if _, ok := v.Interface().(Decimal); ok {
		v.Set(reflect.ValueOf(rapid.SampledFrom(hostileDecimals).Draw(t, "decimal")))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			hostile(t, v.Field(i))
		}
	case reflect.String:
		v.SetString(rapid.SampledFrom(hostileStrings).Draw(t, "string"))
	case reflect.Int32, reflect.Int64:
		v.SetInt(rapid.SampledFrom([]int64{0, 1, -1, math.MinInt32, math.MaxInt32}).Draw(t, "int"))
		if v.Kind() == reflect.Int64 {
			v.SetInt(rapid.SampledFrom([]int64{0, 1, -1, math.MinInt64, math.MaxInt64, int64(t0)}).Draw(t, "int64"))
		}
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.SampledFrom([]uint64{0, 1, 2, 1001, 1<<v.Type().Bits() - 1}).Draw(t, "uint"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Slice:
		n := rapid.SampledFrom([]int{0, 1, 2, 15, 16, 32, 33}).Draw(t, "length")
		s := reflect.MakeSlice(v.Type(), n, n)
		for i := range min(n, 3) {
			hostile(t, s.Index(i))
		}
		v.Set(s)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{
			rapid.SampledFrom(hostileStrings).Draw(t, "key"): rapid.SampledFrom(hostileStrings).Draw(t, "value"),
			"\x01": "\x01", "b": "\xff",
		}))
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		hostile(t, p.Elem())
		v.Set(p)
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(rapid.Uint64Range(0, 1).Draw(t, "byte"))
		}
	default:
		t.Fatalf("a field of kind %s: say what is hostile to it", v.Kind())
	}
}

// The arrays of NodeSampled may have any lengths and values.
func FuzzValidateNodeSampled(f *testing.F) {
	f.Add([]byte{1, 0, 2}, []byte("GPU-5a1c0d6e-1111-4222-8333-4444"), uint8(3))
	f.Fuzz(func(t *testing.T, data, ids []byte, shape uint8) {
		take := func() []uint32 {
			if len(data) == 0 {
				return nil
			}
			n := min(int(data[0])%12, len(data)-1)
			col := make([]uint32, n)
			for i, b := range data[1 : n+1] {
				col[i] = uint32(b)
				if b > 250 {
					col[i] = binary.LittleEndian.Uint32([]byte{b, b, b, shape})
				}
			}
			data = data[n+1:]
			return col
		}
		e := &NodeSampled{Node: "n", Interval: hour, IDs: ids, Strings: make([]string, shape%8), Parents: ids[:min(len(ids), int(shape))]}
		for _, col := range []*[]uint32{&e.Parent, &e.Profile, &e.Model, &e.Replica, &e.Holder, &e.HolderWorkspace, &e.HolderDeployment, &e.HolderUnit,
			&e.ActivityMean, &e.ActivityMin, &e.PowerWatts, &e.OtherEntry, &e.OtherField} {
			*col = take()
		}
		e.OtherValue = make([]uint64, len(e.OtherEntry))
		for i := range e.Strings {
			e.Strings[i] = "s"
		}
		if Validate(wrap(e)) != nil {
			return
		}
		// An accepted event can be read without further checks.
		for i := range e.Entries() {
			if i < len(e.Holder) && e.Holder[i] != 0 {
				h := e.Holder[i] - 1
				if w := e.HolderWorkspace[h]; w != 0 {
					_ = e.Strings[w-1]
				}
				if int(h) < len(e.HolderUnit) && e.HolderUnit[h] != 0 {
					_ = e.Strings[e.HolderUnit[h]-1]
				}
			}
			if i < len(e.Parent) && e.Parent[i] != 0 {
				_ = GPUID(e.Parents[(e.Parent[i]-1)*16:])
			}
			if i < len(e.Profile) && e.Profile[i] != 0 {
				_ = e.Strings[e.Profile[i]-1]
			}
			if i < len(e.Model) && e.Model[i] != 0 {
				_ = e.Strings[e.Model[i]-1]
			}
		}
		for i, at := range e.OtherEntry {
			_, _ = GPUID(e.IDs[at*16:]), e.OtherField[i]
		}
	})
}

func TestPlainAgreesWithRunes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOfN(rapid.SampledFrom([]byte("aZ ~\x7e\x7f\x80\x9f\xc2\xc3\xa9\xff\x1f\x20\x21\x00")), 0, 20).Draw(t, "s"))
		if plain(s) != plainRunes(s) {
			t.Fatalf("%q: plain says %v", s, plain(s))
		}
	})
}

func TestValidateNodeSampledAllocatesNothing(t *testing.T) {
	env := wrap(validSample(8))
	if n := testing.AllocsPerRun(100, func() { _ = Validate(env) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkValidateNodeSampled(b *testing.B) {
	env := wrap(validSample(8))
	b.ReportAllocs()
	for b.Loop() {
		if err := Validate(env); err != nil {
			b.Fatal(err)
		}
	}
}
