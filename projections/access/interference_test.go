package access_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/costs"
	"quartermaster/projections/dimension"
	"quartermaster/projections/inventory"
	"quartermaster/projections/market"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
	"quartermaster/projections/serving"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// world is the events of an estate. acme, with emea below it, owns cluster own, and is a guest of cluster host. rival and
// third are others. Everything that the tables of rights hide from acme is drawn from hidden, and everything else from
// seen. Both worlds of a pair have as many events in each partition, because positions are not hidden.
func world(seen, hidden *rand.Rand) (log []domain.Envelope) {
	const day = domain.Day
	start := storetest.Start
	add := func(workspace, cluster string, at domain.Instant, ev domain.Event) {
		env := domain.Envelope{Workspace: workspace, Cluster: cluster, Time: at, Event: ev}
		if domain.NeedsSignature(ev.Type()) {
			env = storetest.Root.Sign(env)
		}
		log = append(log, env)
	}
	secret := func(what string) string { return fmt.Sprintf("%s-%d", what, hidden.IntN(1000)) }
	money := func(r *rand.Rand) decimal.Decimal { return decimal.New(int64(1+r.IntN(1_000_000)), -3) }
	limit := storetest.USD("100000000")
	log = append(log, storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, limit, start-60*day))
	mallory := storetest.NewOperator(secret("op"), 7)
	log = append(log, mallory.Register(storetest.Root, "rival", domain.RolePlanner, nil, start-59*day),
		storetest.Ann.Register(storetest.Root, "acme", domain.RoleFinance, nil, start-59*day))
	workspace := func(name, parent string, r *rand.Rand) {
		add(name, "", start-58*day, &domain.WorkspaceRegistered{Name: fmt.Sprint(name, r.IntN(99)), Parent: parent, CostCentre: fmt.Sprint(r.IntN(99))})
	}
	workspace("acme", "home", seen)
	workspace("emea", "acme", seen)
	workspace("rival", "home", hidden)
	workspace("third", "home", hidden)
	add("home", "", start-58*day, &domain.RegionDefined{Region: "eu", Country: "DE"})
	cluster := func(name, owner, account string, labels string) {
		log = append(log, storetest.Root.Sign(domain.Envelope{Workspace: owner, Cluster: name, Time: start - 50*day, Event: &domain.ClusterRegistered{
			Name: name, Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: account, Labels: map[string]string{"l": labels},
		}}))
	}
	cluster("own", "acme", "1", "plain")
	cluster("host", "third", "1", secret("label"))
	cluster("dark", "rival", "2", secret("label"))
	nodes := map[string]string{"own": "n-own", "host": secret("n"), "dark": secret("n")}
	for _, c := range []string{"own", "host", "dark"} {
		env := storetest.Node(c, nodes[c], "H100 80GB", 4, start-40*day)
		n := env.Event.(*domain.NodeRegistered)
		n.ResourceID, n.SKU, n.BillingModel = "r-"+c, "gpu-4", domain.BillingOnDemand
		if c == "dark" {
			n.CPUMilli = uint64(1000 * (1 + hidden.IntN(64)))
		}
		log = append(log, env)
		of := hidden
		if c == "own" {
			of = seen
		}
		add("", c, start-30*day, &domain.ClusterKeyIssued{KeyID: fmt.Sprint("k", of.IntN(1000)), MAC: bytes.Repeat([]byte{byte(1 + of.IntN(200))}, 32)})
	}

	// Who held what. Where acme is a guest, the others may be any, and hold as much together. The last minor unit of a
	// statement depends on the parts of all who share an invoice: so either the parts are whole, or the others the same.
	whole := seen.IntN(2) == 0
	deployments := []string{"chat", "train"}
	others := []string{"rival", "third"}
	for hour := range 3 {
		for _, c := range []string{"own", "host", "dark"} {
			devices := make([]storetest.Seen, 4)
			for i := range devices {
				d := storetest.Seen{ID: storetest.GPU(c, nodes[c], i), Activity: seen.IntN(900)}
				pick, name := seen.IntN(4), deployments[seen.IntN(2)]
				other := others[seen.IntN(2)]
				if one := others[hidden.IntN(2)]; c != "own" && whole {
					other = one
				}
				switch {
				case c == "dark":
					d.Workspace, d.Deployment, d.Unit, d.Activity = "rival", secret("d"), secret("pod"), hidden.IntN(900)
				case pick < 2:
					d.Workspace, d.Deployment, d.Unit = []string{"acme", "emea"}[pick], name, fmt.Sprint(name, "-", i)
				case pick == 2:
					d.Workspace, d.Deployment, d.Unit = other, secret("d"), secret("pod")
				}
				devices[i] = d
			}
			i := storetest.Span(60*hour, 60*hour+60)
			log = append(log, domain.Envelope{
				Source: "node-reporter/" + c + "/" + nodes[c], Cluster: c, Time: i.To, Event: storetest.Sample(nodes[c], i, devices...),
			})
		}
	}

	// What is declared and observed.
	deployment := func(c, owner, name, model string) {
		add(owner, c, start-20*day, &domain.DeploymentChanged{
			Deployment: name, Model: model, Class: domain.ClassServing, Replicas: 1, Need: domain.GPUNeed{Count: 1},
		})
	}
	served := func(c, name string, r *rand.Rand) {
		add("", c, start+domain.Hour, &domain.ServingSampled{
			Deployment: name, Model: "llama", Engine: "vllm", Interval: storetest.Span(0, 60), PromptTokens: r.Uint64N(1000), GenerationTokens: r.Uint64N(1000),
		})
		add("", c, start+domain.Hour, &domain.ReplicasObserved{Deployment: name, Model: "llama", Ready: r.Uint32N(5), Desired: 5})
	}
	job := func(c, owner, name string, r *rand.Rand) {
		at := start + domain.Instant(1+r.IntN(60))*storetest.Minute
		add(owner, c, start, &domain.JobQueued{Job: name, Class: domain.ClassTraining, Need: domain.GPUNeed{Count: 1}})
		add(owner, c, at, &domain.JobStarted{Job: name, GPUs: 1})
		add(owner, c, at+domain.Hour, &domain.JobFinished{Job: name, Outcome: domain.JobSucceeded, RetainedPermille: r.Uint32N(1000)})
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
	demand := func(c, of string, r *rand.Rand) {
		add(of, c, start+domain.Hour, &domain.DemandObserved{Pool: "vc", Unit: "gpu", Interval: storetest.Span(0, 60), RunningMilli: r.Uint64N(5000)})
	}
	demand("own", "acme", seen)
	demand("host", "third", hidden)
	demand("dark", "rival", hidden)
	fault := func(c string, r *rand.Rand) {
		add("", c, start+domain.Instant(1+r.IntN(50))*storetest.Minute, &domain.GPUFaultObserved{
			Node: nodes[c], GPU: storetest.GPU(c, nodes[c], 0), Kind: domain.FaultXID, Code: uint32(13 + r.IntN(20)), Count: 1,
		})
	}
	fault("own", seen)
	fault("host", hidden)
	fault("dark", hidden)
	add("", "dark", start, &domain.MaintenanceScheduled{Maintenance: secret("m"), Window: storetest.Span(0, 60+hidden.IntN(60))})
	add("", "host", start, &domain.EnergyMetered{Meter: "pdu", Nodes: []string{nodes["host"]}, Interval: storetest.Span(0, 60), WattHours: money(hidden)})

	// What is decided, planned and bought.
	decided := func(of string, r *rand.Rand, name string) {
		add(of, "", start-10*day, &domain.PolicySet{Policy: name, Kind: domain.PolicyResidency, EffectiveFrom: start - 9*day, Countries: []string{[]string{"DE", "FR"}[r.IntN(2)]}})
		add(of, "", start-10*day, &domain.QuotaSet{Quota: name, Resource: "gpu", Limit: money(r), EffectiveFrom: start - 9*day})
		add(of, "", start-10*day, &domain.BudgetSet{Budget: name, Period: storetest.MayBill, Amount: domain.Money{Amount: money(r), Currency: "USD"}, Basis: domain.BudgetCash})
		doc := fmt.Append(nil, r.IntN(99))
		digest := sha256.Sum256(doc)
		add(of, "", start-10*day, &domain.PlanComputed{Plan: name, Position: "0", Method: "m", Horizon: storetest.MayBill, Document: doc, Digest: digest[:]})
		add(of, "", start-10*day, &domain.ScenarioFrozen{Scenario: name, Position: "0", Method: "m", Document: doc, Digest: digest[:]})
		add(of, "", start-10*day, &domain.RecommendationMade{Recommendation: name, Kind: "purchase", Cost: domain.Money{Amount: money(r), Currency: "USD"}, Requester: "x"})
	}
	for _, of := range []struct {
		workspace string
		r         *rand.Rand
	}{{"acme", seen}, {"rival", hidden}} {
		who := domain.AccountOf(fmt.Sprint("a", of.r.IntN(99)))
		add(of.workspace, "", start-10*day, &domain.AccessGranted{Grant: "g", Principal: who, Role: domain.RoleViewer})
		if of.workspace == "acme" {
			continue
		}
		add(of.workspace, "", start-10*day, &domain.ServiceKeyIssued{Account: "ci", KeyID: "k", MAC: bytes.Repeat([]byte{byte(of.r.IntN(99))}, 32)})
		add(of.workspace, "", start-10*day, &domain.SessionEnded{Principal: domain.UserOf("corp", secret("u")), At: start - 10*day})
		add(of.workspace, "", start-10*day, &domain.AccessRecorded{Principal: who, Window: storetest.Span(0, 1), Asked: []domain.AccessRead{{Operation: "costs", Count: 1 + of.r.Uint64N(9)}}})
	}
	decided("acme", seen, "a")
	decided("rival", hidden, secret("s"))
	add("rival", "", start-10*day, &domain.MappingRuleSet{Rule: secret("rule"), Namespace: secret("ns"), ToWorkspace: "rival", EffectiveFrom: start - 9*day})
	add("rival", "", start-10*day, &domain.CommitmentPurchased{
		Commitment: secret("c"), Market: domain.Market{Provider: "p"}, BillingAccount: "2", Kind: domain.OfferReserved, SKU: "gpu-4",
		GPUModel: "H100 80GB", GPUsPerUnit: 4, Units: 1, Term: storetest.MayBill, Hourly: domain.Money{Amount: money(hidden), Currency: "USD"},
		Owners: []domain.Share{{Workspace: "rival", Share: decimal.NewFromInt(1)}},
	})
	add("", "", start-10*day, &domain.OfferQuoted{
		Market: domain.Market{Provider: "p", Region: "eu"}, Offer: secret("o"), SKU: "gpu-4", GPUModel: "H100 80GB", GPUCount: 4, Kind: domain.OfferOnDemand,
		Hourly: money(hidden), Currency: "USD", ValidFrom: start - 10*day,
	})
	add("", "", start-10*day, &domain.FXRateSet{Base: "EUR", Quote: "USD", Rate: money(hidden), Kind: domain.FXAverage, Effective: storetest.MayBill})

	// Everything else that there is, about others.
	text := func() []byte { return fmt.Append(nil, secret("text")) }
	add("rival", "", start-10*day, &domain.CertificationHeld{Cluster: "dark", Certification: secret("iso"), Valid: storetest.MayBill})
	add("rival", "", start-10*day, &domain.MethodChanged{Method: "planner", Version: secret("v"), EffectiveFrom: start})
	add("home", "", start-10*day, &domain.PersonNamed{Person: secret("p"), Sealed: text()})
	add("home", "", start-10*day, &domain.LegalHoldSet{Hold: secret("hold"), Workspace: "rival", Period: storetest.MayBill, Reason: secret("why")})
	add("", "dark", start-10*day, &domain.AssetAcquired{
		Asset: secret("asset"), Nodes: []string{nodes["dark"]}, Capex: domain.Money{Amount: money(hidden), Currency: "EUR"},
		Residual: domain.Money{Amount: decimal.Zero, Currency: "EUR"}, InServiceFrom: start + 60*day, LifeMonths: 60,
	})
	add("", "dark", start, &domain.OutageDeclared{Outage: secret("o"), Nodes: []string{nodes["dark"]}, Window: storetest.Span(0, 10), Reason: secret("why")})
	add("", "dark", start+domain.Hour, &domain.NodeCordoned{Node: nodes["dark"], Reason: secret("why")})
	add("", "dark", start+domain.Hour, &domain.UsageCorrected{
		Correction: secret("x"), Node: nodes["dark"], GPU: storetest.GPU("dark", nodes["dark"], 0), Interval: storetest.Span(0, 30), Workspace: "rival", Reason: secret("why"),
	})
	place := domain.Market{Provider: "p", Region: "eu"}
	add("", "", start, &domain.OnDemandQuotaSet{Market: place, Account: "2", LimitGPUs: hidden.Uint64N(99), EffectiveFrom: start})
	add("", "", start, &domain.SpotInterrupted{Market: place, SKU: secret("sku"), Units: 1})
	add("", "", start, &domain.TariffSet{Market: place, PerKWh: domain.Money{Amount: money(hidden), Currency: "USD"}, PUE: decimal.NewFromInt(1), EffectiveFrom: start})
	add("", "", start, &domain.BillingPeriodClosed{InvoiceIssuerName: "p", BillingAccountID: "2", Period: domain.Interval{From: start - domain.Instant(hidden.IntN(9)+1)*day, To: start}})
	digest := bytes.Repeat(text(), 32)[:32]
	for _, ev := range []domain.Event{
		&domain.ExportMade{Entity: "main", Export: secret("x"), Format: "csv", Position: "0", Method: "m", Digest: digest},
		&domain.CheckpointSigned{Entity: "main", Position: "0", Note: text()},
		&domain.StreamConflictObserved{Entity: "main", Topic: domain.TopicHardware, First: 3, Offset: 7, Source: secret("s"), Incarnation: 1, Sequence: 4},
		&domain.RemovalStarted{Entity: "main", Removal: secret("r"), What: domain.RetainedLog, Policy: "log", Rule: "90 days", By: secret("by"),
			Removed: []domain.Removed{{Topic: domain.TopicFleet, From: 4, To: 9, Records: 5}}},
		&domain.AccessDenied{Entity: "main", Principal: secret("who"), Action: "read", Target: "costs"},
		&domain.ClosePrepared{Entity: "main", Period: storetest.MayBill, Position: "0", Method: "m", Digest: digest},
		&domain.QuarantineResolved{Entity: "main", Topic: domain.TopicFleet, Offset: hidden.Int64N(99), Resolution: "discarded"},
		&domain.StreamGapResolved{Entity: "main", Topic: domain.TopicHardware, Source: secret("s"), Incarnation: 1, From: 4, To: 9, Reason: "r"},
		&domain.GenerationSwitched{Entity: "main", From: "a", To: secret("b"), Position: "0", Method: "m", Digest: digest, Reason: "r"},
	} {
		add("", "", start, ev)
	}

	// The bill. What acme has a part of costs the same, under other names.
	bill := func(id, invoice, resource, account string, cost decimal.Decimal) {
		log = append(log, domain.Envelope{Source: "focus/p", Time: storetest.MayBill.To, Event: &domain.BillingLineRecorded{Line: domain.BillingLine{
			LineID: id, InvoiceIssuerName: "p", BillingAccountID: account, InvoiceID: invoice, BillingCurrency: "USD",
			BillingPeriodStart: storetest.MayBill.From, BillingPeriodEnd: storetest.MayBill.To,
			ChargePeriodStart: start, ChargePeriodEnd: start + 3*domain.Hour, ChargeCategory: "Usage", ChargeFrequency: "Usage-Based",
			PricingCategory: "Standard", BilledCost: cost, EffectiveCost: decimal.NewNullDecimal(cost), ResourceID: resource,
			PricingQuantity: decimal.NewNullDecimal(decimal.NewFromInt(3)), PricingUnit: "Hours", ServiceCategory: "Compute", RegionID: "eu", SKUID: "gpu-4",
			ListCost: decimal.NewNullDecimal(cost.Add(money(hidden))), Tags: fmt.Sprintf(`{"team":%q}`, secret("team")),
		}}})
	}
	shared := func() decimal.Decimal {
		if whole {
			return decimal.New(int64(12*(1+seen.IntN(1000))), -2) // cents for each of 12 GPU-hours
		}
		return money(seen)
	}
	invoice := secret("i")
	bill(secret("l1"), invoice, "r-own", "1", shared())
	bill(secret("l2"), invoice, "r-host", "1", shared())
	bill(secret("l3"), secret("i"), "r-dark", "2", money(hidden))
	log = append(log, domain.Envelope{Source: "focus/i", Time: storetest.MayBill.To, Event: &domain.InvoiceReceived{
		InvoiceIssuerName: "p", BillingAccountID: "2", InvoiceID: secret("i"), Total: domain.Money{Amount: money(hidden), Currency: "USD"}, Status: "Issued", BillingPeriod: storetest.MayBill,
	}})
	return log
}

// rowsOf is the text of every row of a view, by every way to read it.
func rowsOf(t rapid.TB, v projections.View) string {
	var b bytes.Buffer
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range projections.Tables() {
		scopes, err := v.Scopes(table)
		must(err)
		fmt.Fprintln(&b, table, scopes)
		scanned := map[string]bool{}
		must(v.Scan(projections.Query{Table: table}, func(k projections.Key, row projections.Row) error {
			text, err := projections.EncodeRow(row)
			fmt.Fprintf(&b, "%s %x\n", k, text)
			scanned[k.Scope] = true
			one, again := v.Get(k)
			must(again)
			if same, bad := projections.EncodeRow(one); bad != nil || !bytes.Equal(same, text) {
				t.Fatalf("%s: Get and Scan differ", k)
			}
			return err
		}))
		if len(scanned) != len(scopes) {
			t.Fatalf("%s: rows of %v, and scopes %q", table, scanned, scopes)
		}
	}
	return b.String()
}

// answersOf asks a view everything that operations within a scope are made of, by some dimensions.
func answersOf(t rapid.TB, v projections.View, pick *rand.Rand) map[string]string {
	out := map[string]string{"rows": rowsOf(t, v)}
	tell := func(name string, answer any, err error) {
		text, bad := json.Marshal(answer)
		if bad != nil {
			t.Fatal(bad)
		}
		out[name] = fmt.Sprintf("%s %v", text, err)
	}
	from, to := storetest.Start-domain.Day, storetest.Start+5*domain.Hour
	a, err := registry.NewAuthority(v)
	if err != nil {
		t.Fatal(err)
	}
	tell("grants", a.Grants(), nil)
	names, err := registry.NewNames(v)
	tell("names", names, err)
	reg, err := registry.New(v, to)
	tell("registry", reg, err)
	for _, table := range []projections.Table{
		projections.TableWorkspaces, projections.TablePolicies, projections.TableQuotas, projections.TableBudgets, projections.TableMappingRules,
		projections.TableRegions, projections.TableClusters, projections.TableDeployments, projections.TableMaintenance, projections.TableOutages,
	} {
		statements, err := registry.Statements(v, a, table, to)
		tell("get "+table.String(), statements, err)
	}
	commitments, err := planning.CommitmentStatements(v, a, to)
	tell("get commitments", commitments, err)
	offers, err := market.OfferStatements(v, to)
	tell("get offers", offers, err)
	fleet, err := inventory.New(v, inventory.Filter{At: to})
	tell("fleet", fleet, err)
	models, err := inventory.Models(v, to, domain.Day, inventory.ModelFilter{})
	tell("models", models, err)
	keys, err := registry.ClusterKeys(v)
	tell("keys", keys, err)
	served, err := serving.NewReport(v, from, to, serving.Filter{})
	tell("serving", served, err)
	jobs, err := serving.Jobs(v, from, to, serving.JobsFilter{})
	tell("jobs", jobs, err)
	for range 3 {
		d := usage.Dimensions()[pick.IntN(len(usage.Dimensions()))]
		for _, filter := range []usage.Filter{{}, {Workspace: "acme"}, {Workspace: "rival"}, {Cluster: "host"}, {Cluster: "dark"},
			{Where: []dimension.Condition{{Dimension: usage.ByDeployment, Values: []string{"d-1"}}}}} {
			r, err := usage.NewReport(v, from, to, filter, d, usage.ByDeployment)
			tell(fmt.Sprintf("usage by %s %+v", d, filter), r, err)
		}
	}
	budgets, err := costs.ReadBudgets(v, storetest.MayBill)
	tell("budgets", budgets, err)
	d := divided(t, v)
	tell("summary", d.Summary, nil)
	for range 5 {
		by := costs.Dimensions()[pick.IntN(len(costs.Dimensions()))]
		if by == costs.ByTag {
			by = "tag:team"
		}
		for _, workspace := range []string{"", "acme", "rival"} {
			r, err := d.Report(costs.Query{Month: storetest.MayBill, Workspace: workspace, By: []costs.Dimension{by, costs.ByDeployment}, Largest: 3})
			tell(fmt.Sprintf("costs by %s of %q", by, workspace), r, err)
		}
	}
	reports, err := d.WorkspaceReports(costs.EachWorkspace{Month: storetest.MayBill, By: [][]costs.Dimension{{costs.ByCharge}, {costs.ByCommitment}}})
	tell("statements", reports, err)
	var all []costs.Allocation
	err = d.Each(costs.AllocationFilter{}, func(a *costs.Allocation) error { all = append(all, *a); return nil })
	tell("allocations", all, err)
	m, err := costs.NewMonths(costs.MonthsQuery{Months: []domain.Interval{storetest.MayBill}, By: []costs.Dimension{costs.ByProvider, costs.ByGPUModel}})
	if err == nil {
		err = m.Add(d)
	}
	if err != nil {
		t.Fatal(err)
	}
	months, err := m.Report(v)
	tell("months", months, err)
	return out
}

// divided divides all rows, and narrows the result to what a view sees.
func divided(t rapid.TB, v projections.View) *costs.Division {
	d, err := costs.Divide(access.Beneath(v), storetest.MayBill, 1<<30)
	if err == nil {
		d, err = d.Within(v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func scopeOf(t rapid.TB, v projections.View, rights ...access.Right) *access.Scope {
	s, err := access.ScopeOf(v, rights)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWorldsDiffer shows that the pairs of worlds differ in every table, but for those of which all rows are seen by all.
func TestWorldsDiffer(t *testing.T) {
	differs := map[string]bool{}
	for seed := range uint64(20) {
		var tables [2]map[string]string
		for i := range tables {
			tables[i] = map[string]string{}
			v := viewOf(t, world(rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, uint64(2+i))))...)
			if err := v.Scan(projections.Query{Table: projections.TableQuarantine}, func(_ projections.Key, row projections.Row) error {
				t.Errorf("quarantined: %s", row.(*projections.Quarantined).Reason)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			for _, table := range projections.Tables() {
				if err := v.Scan(projections.Query{Table: table}, func(k projections.Key, row projections.Row) error {
					text, err := projections.EncodeRow(row)
					tables[i][table.String()] += fmt.Sprintf("%s %x\n", k, text)
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for table, rows := range tables[0] {
			differs[table] = differs[table] || rows != tables[1][table]
		}
	}
	same := []string{
		"regions",      // everybody sees them
		"quarantine",   // there is nothing in it
		"server_hours", // as serving_hours
	}
	for _, table := range projections.Tables() {
		if name := table.String(); differs[name] == slices.Contains(same, name) {
			t.Errorf("%s differs: %v", name, differs[name])
		}
	}
}

// TestNonInterference draws pairs of estates that differ only in what is hidden from a tenant. Everything that the
// tenant can ask has the same answer, byte for byte.
func TestNonInterference(t *testing.T) {
	long.Check(t, 200, 1000, func(t *rapid.T) {
		seen := rapid.Uint64().Draw(t, "seen")
		hidden := rapid.Uint64().Draw(t, "hidden")
		role := rapid.SampledFrom(access.Roles()).Draw(t, "role")
		var clusters []string
		if rapid.Bool().Draw(t, "limited") {
			clusters = rapid.SampledFrom([][]string{{"own"}, {"host"}, {"dark"}, {"own", "host"}}).Draw(t, "clusters")
		}
		var answers [2]map[string]string
		var whole [2]string
		for i := range answers {
			v := viewOf(t, world(rand.New(rand.NewPCG(seen, 1)), rand.New(rand.NewPCG(hidden, uint64(i))))...)
			answers[i] = answersOf(t, scopeOf(t, v, access.Right{Workspace: "acme", Role: role, Clusters: clusters}).View(v),
				rand.New(rand.NewPCG(seen, 3)))
			whole[i] = rowsOf(t, v)
		}
		if whole[0] == whole[1] {
			t.Fatal("nothing is hidden in these worlds")
		}
		for name, answer := range answers[0] {
			if other := answers[1][name]; answer != other {
				at := 0
				for at < min(len(answer), len(other)) && answer[at] == other[at] {
					at++
				}
				from := max(0, at-200)
				t.Fatalf("%s tells what is hidden:\n%.400s\n%.400s", name, answer[from:], other[from:])
			}
		}
	})
}

// TestTenantFigures compares what a tenant sees with what finance sees for the workspaces: the same digits.
func TestTenantFigures(t *testing.T) {
	long.Check(t, 30, 300, func(t *rapid.T) {
		seen, hidden := rapid.Uint64().Draw(t, "seen"), rapid.Uint64().Draw(t, "hidden")
		v := viewOf(t, world(rand.New(rand.NewPCG(seen, 1)), rand.New(rand.NewPCG(hidden, 2)))...)
		narrow := scopeOf(t, v, access.Right{Workspace: "acme", Role: domain.RoleFinance}).View(v)
		whole, own := divided(t, v), divided(t, narrow)
		charged := 0
		for _, workspace := range []string{"acme", "emea"} {
			for _, by := range []costs.Dimension{
				costs.ByCluster, costs.ByDeployment, costs.ByComponent, costs.ByDay, costs.ByHour, costs.ByProvider, costs.ByRegion, costs.ByGPUModel,
				costs.ByModel, costs.ByWorkloadClass, costs.ByCostCentre, costs.ByMonth,
			} {
				q := costs.Query{Month: storetest.MayBill, Workspace: workspace, By: []costs.Dimension{by}}
				theirs, err := whole.Report(q)
				if err != nil {
					t.Fatal(err)
				}
				ours, err := own.Report(q)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := figuresOf(ours), figuresOf(theirs); !slices.Equal(got, want) {
					t.Fatalf("%s by %s: %q, finance sees %q", workspace, by, got, want)
				}
				charged += len(ours.Groups)
			}
			for _, by := range []usage.Dimension{usage.ByCluster, usage.ByDeployment, usage.ByGPUModel, usage.ByHour, usage.ByRegion, usage.ByWorkloadClass} {
				filter := usage.Filter{Workspace: workspace, Where: []dimension.Condition{{Dimension: usage.ByWorkspace, Values: []string{workspace}}}}
				theirs, err := usage.NewReport(v, storetest.Start, storetest.Start+4*domain.Hour, filter, by)
				if err != nil {
					t.Fatal(err)
				}
				ours, err := usage.NewReport(narrow, storetest.Start, storetest.Start+4*domain.Hour, filter, by)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := json.Marshal(ours.Groups)
				if want, _ := json.Marshal(theirs.Groups); !bytes.Equal(got, want) {
					t.Fatalf("usage of %s by %s: %s, all see %s", workspace, by, got, want)
				}
			}
		}
		if charged == 0 {
			t.Fatal("nothing was compared")
		}
	})
}

// figuresOf are the figures of a report's groups and totals, without those that come from the supplier's prices.
func figuresOf(r *costs.Report) (out []string) {
	for _, g := range r.Groups {
		out = append(out, fmt.Sprint(g.Key, g.Currency, g.Billed, g.Effective, g.BilledMinor, g.EffectiveMinor, g.Bought, g.Allocated, g.Measured, g.PerUseful))
	}
	for _, c := range r.Totals {
		out = append(out, fmt.Sprint(c.Currency, c.Billed, c.Effective, c.BilledMinor, c.Bought, c.Allocated))
	}
	return out
}
