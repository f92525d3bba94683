package storetest

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Source draws a number from 0 to n, without n.
type Source func(n int) int

// Estate is the events of an estate with tenants, for tests of who sees what. acme, with emea below it, owns cluster own, and is a guest of cluster host. rival and
// third are others. Everything that the tables of rights hide from acme is drawn from hidden, and everything else from
// seen. Both worlds of a pair have as many events in each partition, because positions are not hidden.
func Estate(seen, hidden Source) (log []domain.Envelope) {
	const day = domain.Day
	start := Start
	add := func(workspace, cluster string, at domain.Instant, ev domain.Event) {
		env := domain.Envelope{Workspace: workspace, Cluster: cluster, Time: at, Event: ev}
		if domain.NeedsSignature(ev) {
			env = Root.Sign(env)
		}
		log = append(log, env)
	}
	secret := func(what string) string { return fmt.Sprintf("%s-%d", what, hidden(1000)) }
	money := func(r Source) decimal.Decimal { return decimal.New(int64(1+r(1_000_000)), -3) }
	limit := USD("100000000")
	log = append(log, Root.Register(Root, "home", domain.RoleAdmin, limit, start-60*day))
	mallory := NewOperator(secret("op"), 7)
	log = append(log, mallory.Register(Root, "rival", domain.RolePlanner, nil, start-59*day),
		Ann.Register(Root, "acme", domain.RoleFinance, nil, start-59*day))
	workspace := func(name, parent string, r Source) {
		add(name, "", start-58*day, &domain.WorkspaceRegistered{Name: fmt.Sprint(name, r(99)), Parent: parent, CostCentre: fmt.Sprint(r(99))})
	}
	workspace("acme", "home", seen)
	workspace("emea", "acme", seen)
	workspace("rival", "home", hidden)
	workspace("third", "home", hidden)
	add("home", "", start-58*day, &domain.RegionDefined{Region: "eu", Country: "DE"})
	cluster := func(name, owner, account string, labels string) {
		log = append(log, Root.Sign(domain.Envelope{Workspace: owner, Cluster: name, Time: start - 50*day, Event: &domain.ClusterRegistered{
			Name: name, Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: account, Labels: map[string]string{"l": labels},
		}}))
	}
	cluster("own", "acme", "1", "plain")
	cluster("host", "third", "1", secret("label"))
	cluster("dark", "rival", "2", secret("label"))
	nodes := map[string]string{"own": "n-own", "host": secret("n"), "dark": secret("n")}
	for _, c := range []string{"own", "host", "dark"} {
		env := Node(c, nodes[c], "H100 80GB", 4, start-40*day)
		n := env.Event.(*domain.NodeRegistered)
		n.ResourceID, n.SKU, n.BillingModel = "r-"+c, "gpu-4", domain.BillingOnDemand
		if c == "dark" {
			n.CPUMilli = uint64(1000 * (1 + hidden(64)))
		}
		log = append(log, env)
		of := hidden
		if c == "own" {
			of = seen
		}
		add("", c, start-30*day, &domain.ClusterKeyIssued{KeyID: fmt.Sprint("k", of(1000)), MAC: bytes.Repeat([]byte{byte(1 + of(200))}, 32)})
	}

	// Who held what. Where acme is a guest, the others may be any, and hold as much together. The last minor unit of a
	// statement depends on the parts of all who share an invoice: so either the parts are whole, or the others the same.
	whole := seen(2) == 0
	deployments := []string{"chat", "train"}
	others := []string{"rival", "third"}
	for hour := range 3 {
		for _, c := range []string{"own", "host", "dark"} {
			devices := make([]Seen, 4)
			for i := range devices {
				d := Seen{ID: GPU(c, nodes[c], i), Activity: seen(900)}
				pick, name := seen(4), deployments[seen(2)]
				other := others[seen(2)]
				if one := others[hidden(2)]; c != "own" && whole {
					other = one
				}
				switch {
				case c == "dark":
					d.Workspace, d.Deployment, d.Unit, d.Activity = "rival", secret("d"), secret("pod"), hidden(900)
				case pick < 2:
					d.Workspace, d.Deployment, d.Unit = []string{"acme", "emea"}[pick], name, fmt.Sprint(name, "-", i)
				case pick == 2:
					d.Workspace, d.Deployment, d.Unit = other, secret("d"), secret("pod")
				}
				devices[i] = d
			}
			i := Span(60*hour, 60*hour+60)
			log = append(log, domain.Envelope{
				Source: "node-reporter/" + c + "/" + nodes[c], Cluster: c, Time: i.To, Event: Sample(nodes[c], i, devices...),
			})
		}
	}

	// What is declared and observed.
	deployment := func(c, owner, name, model string) {
		add(owner, c, start-20*day, &domain.DeploymentChanged{
			Deployment: name, Model: model, Class: domain.ClassServing, Replicas: 1, Need: domain.GPUNeed{Count: 1},
		})
	}
	served := func(c, name string, r Source) {
		add("", c, start+domain.Hour, &domain.ServingSampled{
			Deployment: name, Model: "llama", Engine: "vllm", Interval: Span(0, 60), PromptTokens: uint64(r(1000)), GenerationTokens: uint64(r(1000)),
		})
		add("", c, start+domain.Hour, &domain.ReplicasObserved{Deployment: name, Model: "llama", Ready: uint32(r(5)), Desired: 5})
	}
	job := func(c, owner, name string, r Source) {
		at := start + domain.Instant(1+r(60))*Minute
		add(owner, c, start, &domain.JobQueued{Job: name, Class: domain.ClassTraining, Need: domain.GPUNeed{Count: 1}})
		add(owner, c, at, &domain.JobStarted{Job: name, GPUs: 1})
		add(owner, c, at+domain.Hour, &domain.JobFinished{Job: name, Outcome: domain.JobSucceeded, RetainedPermille: uint32(r(1000))})
	}
	deployment("own", "acme", "chat", "llama")
	deployment("own", "rival", secret("d"), secret("model"))
	deployment("host", "emea", "chat", "llama")
	deployment("host", "third", secret("d"), secret("model"))
	deployment("dark", "rival", "chat", secret("model"))
	served("own", "chat", seen)
	served("host", "chat", seen)
	served("host", secret("d"), hidden)
	served("dark", "chat", hidden)
	job("own", "acme", "j1", seen)
	job("host", "emea", "j2", seen)
	job("own", "rival", secret("j"), hidden)
	job("dark", "rival", "j1", hidden)
	demand := func(c, of string, r Source) {
		add(of, c, start+domain.Hour, &domain.DemandObserved{Pool: "vc", Unit: "gpu", Interval: Span(0, 60), RunningMilli: uint64(r(5000))})
	}
	demand("own", "acme", seen)
	demand("host", "third", hidden)
	demand("dark", "rival", hidden)
	fault := func(c string, r Source) {
		add("", c, start+domain.Instant(1+r(50))*Minute, &domain.GPUFaultObserved{
			Node: nodes[c], GPU: GPU(c, nodes[c], 0), Kind: domain.FaultXID, Code: uint32(13 + r(20)), Count: 1,
		})
	}
	fault("own", seen)
	fault("host", hidden)
	fault("dark", hidden)
	add("", "dark", start, &domain.MaintenanceScheduled{Maintenance: secret("m"), Window: Span(0, 60+hidden(60))})
	add("", "host", start, &domain.EnergyMetered{Meter: "pdu", Nodes: []string{nodes["host"]}, Interval: Span(0, 60), WattHours: money(hidden)})

	// What is decided, planned and bought.
	proposed := map[string]*domain.RecommendationMade{}
	decided := func(of string, r Source, name string) {
		add(of, "", start-10*day, &domain.PolicySet{Policy: name, Kind: domain.PolicyResidency, EffectiveFrom: start - 9*day, Countries: []string{[]string{"DE", "FR"}[r(2)]}})
		add(of, "", start-10*day, &domain.QuotaSet{Quota: name, Resource: "gpu", Limit: money(r), EffectiveFrom: start - 9*day})
		add(of, "", start-10*day, &domain.BudgetSet{Budget: name, Period: MayBill, Amount: domain.Money{Amount: money(r), Currency: "USD"}, Basis: domain.BudgetCash})
		doc := fmt.Appendf(nil, `{"note":%d}`, r(99))
		digest := sha256.Sum256(doc)
		add(of, "", start-10*day, &domain.PlanComputed{Plan: name, Position: "0", Method: "m", Horizon: MayBill, Document: doc, Digest: digest[:]})
		add(of, "", start-10*day, &domain.ScenarioFrozen{Scenario: name, Position: "0", Method: "m", Document: doc, Digest: digest[:]})
		saved := domain.Money{Amount: money(r), Currency: "USD"}
		proposed[name] = &domain.RecommendationMade{
			Recommendation: name, Kind: "purchase", Cost: domain.Money{Amount: money(r), Currency: "USD"}, Requester: "x",
			Saving: saved, SavingLow: saved, SavingHigh: saved, Document: doc,
		}
		add(of, "", start-10*day, proposed[name])
		add(of, "", start-9*day, &domain.RecommendationWithdrawn{Recommendation: name + "-old", Reason: fmt.Sprint("r-", r(99))})
		add(of, "", start-8*day, &domain.RecommendationActuated{Recommendation: name, Actor: domain.OperatorActor(Root.Name), Reference: fmt.Sprint("change-", r(99))})
		incident := fmt.Sprint("utilization/", name)
		add(of, "", start-10*day, &domain.IncidentOpened{
			Incident: incident, Rule: "utilization", Version: 1, Subject: fmt.Sprint("workspace/", of), Severity: domain.SeverityWarning,
			At: start - 10*day, Position: "0", Method: "advice/1", Summary: fmt.Sprintf("SM activity %d%%", r(40)), Document: doc,
		})
		add(of, "", start-9*day, &domain.IncidentAcknowledged{Incident: incident})
		add(of, "", start-9*day, &domain.IncidentSilenced{Silence: name, Rule: "utilization", Until: start - domain.Instant(1+r(7))*day, Reason: "migration"})
	}
	for _, of := range []struct {
		workspace string
		r         Source
	}{{"acme", seen}, {"rival", hidden}} {
		who := domain.AccountOf(fmt.Sprint("a", of.r(99)))
		add(of.workspace, "", start-10*day, &domain.AccessGranted{Grant: "g", Principal: who, Role: domain.RoleViewer})
		if of.workspace == "acme" {
			continue
		}
		add(of.workspace, "", start-10*day, &domain.ServiceKeyIssued{Account: "ci", KeyID: "k", MAC: bytes.Repeat([]byte{byte(of.r(99))}, 32)})
		add(of.workspace, "", start-10*day, &domain.SessionEnded{Principal: domain.UserOf("corp", secret("u")), At: start - 10*day})
		add(of.workspace, "", start-10*day, &domain.AccessRecorded{Principal: who, Journal: "j", Window: Span(0, 1), Asked: []domain.AccessRead{{Operation: "costs", Count: 1 + uint64(of.r(9))}}})
	}
	decided("acme", seen, "a")
	decided("rival", hidden, secret("s"))
	// A decision that never takes effect, for a reason that is hidden.
	little := domain.Money{Amount: decimal.New(int64(1+hidden(9)), -6), Currency: "USD"}
	log = append(log, Ben.Register(Root, "home", domain.RolePlanner, &little, start-20*day),
		Ben.Sign(domain.Envelope{Workspace: "acme", Time: start - 9*day, Event: Approve(proposed["a"])}))
	add("rival", "", start-10*day, &domain.MappingRuleSet{Rule: secret("rule"), Namespace: secret("ns"), ToWorkspace: "rival", EffectiveFrom: start - 9*day})
	add("rival", "", start-10*day, &domain.CommitmentPurchased{
		Commitment: secret("c"), Market: domain.Market{Provider: "p"}, BillingAccount: "2", Kind: domain.OfferReserved, SKU: "gpu-4",
		GPUModel: "H100 80GB", GPUsPerUnit: 4, Units: 1, Term: MayBill, Hourly: domain.Money{Amount: money(hidden), Currency: "USD"},
		Owners: []domain.Share{{Workspace: "rival", Share: decimal.NewFromInt(1)}},
	})
	add("", "", start-10*day, &domain.OfferQuoted{
		Market: domain.Market{Provider: "p", Region: "eu"}, Offer: secret("o"), SKU: "gpu-4", GPUModel: "H100 80GB", GPUCount: 4, Kind: domain.OfferOnDemand,
		Hourly: money(hidden), Currency: "USD", ValidFrom: start - 10*day,
	})
	add("", "", start-10*day, &domain.FXRateSet{Base: "EUR", Quote: "USD", Rate: money(hidden), Kind: domain.FXAverage, Effective: MayBill})

	// Everything else that there is, about others.
	text := func() []byte { return fmt.Append(nil, secret("text")) }
	add("rival", "", start-10*day, &domain.CertificationHeld{Cluster: "dark", Certification: secret("iso"), Valid: MayBill})
	add("rival", "", start-10*day, &domain.MethodChanged{Method: "planner", Version: secret("v"), EffectiveFrom: start})
	add("home", "", start-10*day, &domain.PersonNamed{Person: secret("p"), Sealed: text()})
	add("home", "", start-10*day, &domain.LegalHoldSet{Hold: secret("hold"), Workspace: "rival", Period: MayBill, Reason: secret("why")})
	add("", "dark", start-10*day, &domain.AssetAcquired{
		Asset: secret("asset"), Nodes: []string{nodes["dark"]}, Capex: domain.Money{Amount: money(hidden), Currency: "EUR"},
		Residual: domain.Money{Amount: decimal.Zero, Currency: "EUR"}, InServiceFrom: start + 60*day, LifeMonths: 60,
	})
	add("", "dark", start, &domain.OutageDeclared{Outage: secret("o"), Nodes: []string{nodes["dark"]}, Window: Span(0, 10), Reason: secret("why")})
	add("", "dark", start+domain.Hour, &domain.NodeCordoned{Node: nodes["dark"], Reason: secret("why")})
	add("", "dark", start+domain.Hour, &domain.UsageCorrected{
		Correction: secret("x"), Node: nodes["dark"], GPU: GPU("dark", nodes["dark"], 0), Interval: Span(0, 30), Workspace: "rival", Reason: secret("why"),
	})
	place := domain.Market{Provider: "p", Region: "eu"}
	add("", "", start, &domain.OnDemandQuotaSet{Market: place, Account: "2", LimitGPUs: uint64(hidden(99)), EffectiveFrom: start})
	add("", "", start, &domain.SpotInterrupted{Market: place, SKU: secret("sku"), Units: 1})
	add("", "", start, &domain.TariffSet{Market: place, PerKWh: domain.Money{Amount: money(hidden), Currency: "USD"}, PUE: decimal.NewFromInt(1), EffectiveFrom: start})
	add("", "", start, &domain.BillingPeriodClosed{InvoiceIssuerName: "p", BillingAccountID: "2", Period: domain.Interval{From: start - domain.Instant(hidden(9)+1)*day, To: start}})
	digest := bytes.Repeat(text(), 32)[:32]
	for _, ev := range []domain.Event{
		&domain.ExportMade{Entity: "main", Export: secret("x"), Format: "csv", Position: "0", Method: "m", Digest: digest},
		&domain.CheckpointSigned{Entity: "main", Position: "0", Note: text()},
		&domain.StreamConflictObserved{Entity: "main", Topic: domain.TopicHardware, First: 3, Offset: 7, Source: secret("s"), Incarnation: 1, Sequence: 4},
		&domain.RemovalStarted{Entity: "main", Removal: secret("r"), What: domain.RetainedLog, Policy: "log", Rule: "90 days", By: secret("by"),
			Removed: []domain.Removed{{Topic: domain.TopicFleet, From: 4, To: 9, Records: 5}}},
		&domain.AccessDenied{Entity: "main", Principal: secret("who"), Action: "read", Target: "costs"},
		&domain.ClosePrepared{Entity: "main", Period: MayBill, Position: "0", Method: "m", Digest: digest},
		&domain.QuarantineResolved{Entity: "main", Topic: domain.TopicFleet, Offset: int64(hidden(99)), Resolution: "discarded"},
		&domain.StreamGapResolved{Entity: "main", Topic: domain.TopicHardware, Source: secret("s"), Incarnation: 1, From: 4, To: 9, Reason: "r"},
		&domain.GenerationSwitched{Entity: "main", From: "a", To: secret("b"), Position: "0", Method: "m", Digest: digest, Reason: "r"},
	} {
		add("", "", start, ev)
	}

	// The bill. What acme has a part of costs the same, under other names.
	bill := func(id, invoice, resource, account string, cost decimal.Decimal) {
		log = append(log, domain.Envelope{Source: "focus/p", Time: MayBill.To, Event: &domain.BillingLineRecorded{Line: domain.BillingLine{
			LineID: id, InvoiceIssuerName: "p", BillingAccountID: account, InvoiceID: invoice, BillingCurrency: "USD",
			BillingPeriodStart: MayBill.From, BillingPeriodEnd: MayBill.To,
			ChargePeriodStart: start, ChargePeriodEnd: start + 3*domain.Hour, ChargeCategory: "Usage", ChargeFrequency: "Usage-Based",
			PricingCategory: "Standard", BilledCost: cost, EffectiveCost: decimal.NewNullDecimal(cost), ResourceID: resource,
			PricingQuantity: decimal.NewNullDecimal(decimal.NewFromInt(3)), PricingUnit: "Hours", ServiceCategory: "Compute", RegionID: "eu", SKUID: "gpu-4",
			ListCost: decimal.NewNullDecimal(cost.Add(money(hidden))), Tags: fmt.Sprintf(`{"team":%q}`, secret("team")),
		}}})
	}
	shared := func() decimal.Decimal {
		if whole {
			return decimal.New(int64(12*(1+seen(1000))), -2) // cents for each of 12 GPU-hours
		}
		return money(seen)
	}
	invoice := secret("i")
	bill(secret("l1"), invoice, "r-own", "1", shared())
	bill(secret("l2"), invoice, "r-host", "1", shared())
	bill(secret("l3"), secret("i"), "r-dark", "2", money(hidden))
	log = append(log, domain.Envelope{Source: "focus/i", Time: MayBill.To, Event: &domain.InvoiceReceived{
		InvoiceIssuerName: "p", BillingAccountID: "2", InvoiceID: secret("i"), Total: domain.Money{Amount: money(hidden), Currency: "USD"}, Status: "Issued", BillingPeriod: MayBill,
	}})
	return log
}
