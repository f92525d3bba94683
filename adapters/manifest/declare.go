package manifest

import (
	"errors"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/attribution"

	"github.com/shopspring/decimal"
)

// The lists of a document.
const (
	listWorkspaces     = "workspaces"
	listOperators      = "operators"
	listRegions        = "regions"
	listClusters       = "clusters"
	listCertifications = "certifications"
	listPolicies       = "policies"
	listLegalHolds     = "legal_holds"
	listQuotas         = "quotas"
	listBudgets        = "budgets"
	listTariffs        = "tariffs"
	listFXRates        = "fx_rates"
	listOnDemandQuotas = "on_demand_quotas"
	listAssets         = "assets"
	listRevisions      = "asset_revisions"
	listDisposals      = "asset_disposals"
	listCommitments    = "commitments"
	listDeployments    = "deployments"
	listRemoved        = "removed_deployments"
	listMaintenance    = "maintenance"
	listOutages        = "outages"
	listCorrections    = "usage_corrections"
	listMappingRules   = "mapping_rules"
	listMethods        = "methods"
)

// Kinds returns the lists of a document in the order of their events: everything that an entry may
// refer to comes before it.
func Kinds() []string {
	return []string{
		listWorkspaces, listOperators, listRegions, listClusters, listCertifications,
		listPolicies, listLegalHolds, listQuotas, listBudgets, listTariffs, listFXRates, listOnDemandQuotas,
		listAssets, listRevisions, listDisposals, listCommitments, listDeployments, listRemoved,
		listMaintenance, listOutages, listCorrections, listMappingRules, listMethods,
	}
}

// declaration is an entry that becomes an event.
type declaration struct {
	entry
	list      string
	workspace string         // of the entry, or of its document
	from      domain.Instant // effective_from of the entry, or of its document; 0: neither has it
}

// document turns every entry of a document into its event.
func (l *loader) document(doc *node) {
	if l.events == nil {
		l.events, l.entries = map[string][]domain.Envelope{}, map[string][]Entry{}
	}
	top := entry{l, doc, ""}
	workspace, from := top.text("workspace"), top.instant("effective_from")
	l.refer("workspace", workspace, doc.child("workspace"), "workspace")
	for _, list := range Kinds() {
		entries := doc.get(list)
		if entries == nil {
			continue
		}
		for i, n := range entries.values {
			before := len(l.errs)
			d := declaration{entry{l, n, index(list, i)}, list, workspace, from}
			if d.has("workspace") {
				d.workspace = d.text("workspace")
				if list != listBudgets || !slices.Contains(attribution.Accounts(), d.workspace) {
					d.refer("workspace", "workspace")
				}
			}
			if d.has("effective_from") {
				d.from = d.instant("effective_from")
			}
			env, key := d.event()
			if len(l.errs) == before {
				d.add(env, key)
			}
		}
	}
}

// refer records that a field refers to something that the file may not declare.
func (d declaration) refer(kind, key string) {
	if n := d.n.get(key); n != nil {
		d.l.refer(kind, n.text, n, d.field(key))
		for _, v := range n.values {
			d.l.refer(kind, v.text, v, d.field(key))
		}
	}
}

func (d declaration) referSelector(e entry) {
	for _, kind := range []string{"workspace", "cluster", "environment"} {
		if n := e.n.get(kind); n != nil {
			d.l.refer(kind, n.text, n, e.field(kind))
		}
	}
	for _, x := range []struct{ kind, key string }{{"region", "regions"}, {"country", "countries"}} {
		if list := e.n.get(x.key); list != nil {
			for i, n := range list.values {
				if n.text != eu {
					d.l.refer(x.kind, n.text, n, index(e.field(x.key), i))
				}
			}
		}
	}
}

// since returns the time of an event that takes effect at t: t, or now if t is unset or in the
// future.
func (d declaration) since(t domain.Instant) domain.Instant {
	if t == 0 || t > d.l.now {
		return d.l.now
	}
	return t
}

// notLater refuses an effective time in the future for entries whose events have no field for it:
// they would take effect at once.
func (d declaration) notLater() {
	switch d.list {
	case listWorkspaces, listRegions, listClusters, listDeployments, listRemoved:
		if d.from > d.l.now {
			d.fault("effective_from", "is in the future; %s can only be declared once they exist", d.list)
		}
	}
}

// effective returns the effective time of an entry that requires one.
func (d declaration) effective() domain.Instant {
	if d.from == 0 && !d.has("effective_from") {
		d.fault("effective_from", "is missing; add it here, or at the top of the file for all")
	}
	return d.from
}

// add adds an event if it is valid and its key is unique.
func (d declaration) add(env domain.Envelope, key []string) {
	id := identity(d.list, key...)
	if first, twice := d.l.declared[id]; twice {
		d.l.fault(d.n, d.path, "%s is declared on line %d already; keep one of them", strings.Join(key, " "), first.Line)
		return
	}
	d.l.declared[id] = d.l.at(d.n)
	placed, region := env, d.text("region")
	if d.list == listOutages && region != "" {
		placed.Cluster = region // a placeholder for its clusters
	} else {
		region = ""
	}
	if err := domain.Validate(&placed); err != nil {
		var invalid *domain.InvalidError
		if !errors.As(err, &invalid) {
			d.l.fault(d.n, d.path, "%v", err)
			return
		}
		if invalid.Field == "workspace" && env.Workspace == "" {
			d.fault("workspace", "is missing; add it here, or at the top of the file for all")
			return
		}
		d.l.fault(d.named(invalid.Field), d.field(invalid.Field), "%s", invalid.Problem)
		return
	}
	switch ev := env.Event.(type) {
	case *domain.RegionDefined:
		d.l.named["country "+ev.Country] = true
	case *domain.DeploymentChanged:
		d.l.named["environment "+ev.Environment] = true
	}
	d.l.events[d.list] = append(d.l.events[d.list], env)
	d.l.entries[d.list] = append(d.l.entries[d.list], Entry{region, d.l.name, d.path, d.n})
}

// named returns the node of a field of the event. Some fields have other names in a file.
func (d declaration) named(field string) *node {
	field, _, _ = strings.Cut(field, ".")
	field, _, _ = strings.Cut(field, "[")
	inFile := map[string]string{
		"life_months":    "life",
		"base":           "pair",
		"quote":          "pair",
		"market":         "provider",
		"to_workspace":   "to",
		"to_deployment":  "to",
		"to_shares":      "to",
		"to_share_by":    "to",
		"latency_micros": "latency",
	}
	if name, ok := inFile[field]; ok {
		field = name
	}
	return d.n.child(field)
}

// event returns the event of an entry, and the key that must be unique in its list.
func (d declaration) event() (domain.Envelope, []string) {
	id := d.text("id")
	d.notLater()
	env := domain.Envelope{Subject: id, Workspace: d.workspace, Time: d.since(d.from)}
	key := []string{id}
	switch d.list {
	case listWorkspaces:
		d.refer("workspace", "parent")
		env.Workspace = id
		env.Event = &domain.WorkspaceRegistered{
			Name: d.nameOr(id), Parent: d.text("parent"), Currency: d.text("currency"),
			Owner: d.text("owner"), CostCentre: d.text("cost_centre"), Entity: d.text("entity"),
		}
	case listOperators:
		ev := &domain.OperatorRegistered{Operator: id, PublicKey: d.key32("public_key"), Role: domain.Role(d.text("role"))}
		ev.AuthorityLimits = d.moneys("authority_limits")
		env.Event, key = ev, []string{d.workspace, id, string(ev.PublicKey)}
	case listRegions:
		env.Event = d.region(id)
	case listClusters:
		d.refer("region", "region")
		env.Cluster = id
		env.Event = &domain.ClusterRegistered{
			Name: d.text("name"), Provider: d.text("provider"), ProviderClass: domain.ProviderClass(d.text("provider_class")),
			Region: d.text("region"), BillingAccount: d.text("billing_account"),
			Certifications: d.texts("certifications"), Labels: d.labels("labels"), Shards: d.count("shards"),
		}
	case listCertifications:
		d.refer("cluster", "cluster")
		ev := &domain.CertificationHeld{Provider: d.text("provider"), Cluster: d.text("cluster"),
			Certification: d.text("certification"), Valid: d.interval("valid"), Evidence: d.text("evidence")}
		env.Subject, env.Event = ev.Provider+ev.Cluster+" "+ev.Certification, ev
		key = []string{ev.Provider, ev.Cluster, ev.Certification, ev.Valid.From.String()}
	case listPolicies:
		env.Event = d.policy(id)
		key = []string{d.workspace, id, d.from.String()}
	case listLegalHolds:
		env.Time, env.Event = d.l.now, d.legalHold(id)
	case listQuotas:
		d.refer("region", "region")
		env.Event = &domain.QuotaSet{
			Quota:         id,
			Resource:      d.text("resource"),
			GPUModel:      d.text("gpu_model"),
			Region:        d.text("region"),
			Limit:         d.decimal("limit"),
			Hard:          d.flag("hard"),
			EffectiveFrom: d.effective(),
		}
		key = []string{d.workspace, id, d.from.String()}
	case listBudgets:
		env.Event = &domain.BudgetSet{Budget: id, Period: d.period("period"), Amount: d.money("amount"),
			Basis: domain.BudgetBasis(d.text("basis")), Hard: d.flag("hard")}
		key = []string{d.workspace, id}
	case listTariffs:
		site := domain.Market{Provider: d.text("operator"), Region: d.text("site")}
		env.Subject = site.Provider + "/" + site.Region
		env.Event = &domain.TariffSet{
			Market:        site,
			PerKWh:        d.money("per_kwh"),
			PUE:           d.decimal("pue"),
			EffectiveFrom: d.effective(),
			Rates:         d.rates("rates"),
		}
		key = []string{site.Provider, site.Region, d.from.String()}
	case listFXRates:
		base, quote, _ := strings.Cut(d.text("pair"), "/")
		ev := &domain.FXRateSet{
			Base:      base,
			Quote:     quote,
			Rate:      d.decimal("rate"),
			Kind:      domain.FXRateKind(d.text("kind")),
			Effective: d.period("effective"),
			Citation:  d.text("citation"),
		}
		env.Subject, env.Time, env.Event = d.text("pair"), d.since(ev.Effective.From), ev
		key = []string{base, quote, string(ev.Kind), ev.Effective.From.String()}
	case listOnDemandQuotas:
		market := domain.Market{Provider: d.text("provider"), Region: d.text("region")}
		ev := &domain.OnDemandQuotaSet{Market: market, Account: d.text("account"), GPUModel: d.text("gpu_model"),
			LimitGPUs: uint64(d.count("limit_gpus")), EffectiveFrom: d.effective()}
		env.Subject, env.Event = market.Provider+"/"+market.Region+" "+ev.Account, ev
		key = []string{market.Provider, market.Region, ev.Account, ev.GPUModel, d.from.String()}
	case listAssets:
		d.refer("cluster", "cluster")
		ev := &domain.AssetAcquired{
			Asset:         id,
			Description:   d.text("description"),
			Nodes:         d.texts("nodes"),
			Capex:         d.money("capex"),
			Residual:      d.money("residual"),
			InServiceFrom: d.instant("in_service_from"),
			LifeMonths:    uint32(d.months("life")),
			PowerWatts:    uint64(d.whole("power_watts")),
			Site:          d.text("site"),
			SpaceUnits:    d.count("space_units"),
			GeneralLedger: d.text("general_ledger"),
		}
		env.Cluster, env.Time, env.Event = d.text("cluster"), d.since(ev.InServiceFrom), ev
		key = []string{env.Cluster, id}
	case listRevisions:
		d.refer("cluster", "cluster")
		ev := &domain.AssetRevised{
			Asset:         d.text("asset"),
			EffectiveFrom: d.effective(),
			LifeMonths:    uint32(d.months("life")),
			Residual:      d.money("residual"),
			Impairment:    d.money("impairment"),
			Reason:        d.text("reason"),
		}
		env.Subject, env.Cluster, env.Event = ev.Asset, d.text("cluster"), ev
		key = []string{env.Cluster, ev.Asset, d.from.String()}
	case listDisposals:
		d.refer("cluster", "cluster")
		ev := &domain.AssetDisposed{
			Asset:    d.text("asset"),
			At:       d.instant("at"),
			Proceeds: d.money("proceeds"),
			Reason:   d.text("reason"),
		}
		env.Subject, env.Cluster, env.Time, env.Event = ev.Asset, d.text("cluster"), d.since(ev.At), ev
		key = []string{env.Cluster, ev.Asset}
	case listCommitments:
		ev := d.commitment(id)
		env.Time, env.Event = d.since(ev.Term.From), ev
		key = []string{d.workspace, id}
	case listDeployments:
		d.refer("cluster", "cluster")
		env.Cluster, env.Event = d.text("cluster"), d.deployment(id)
		key = []string{env.Cluster, id}
	case listRemoved:
		d.refer("cluster", "cluster")
		// The file's effective_from applies only to what exists, not to removals.
		env.Cluster, env.Time = d.text("cluster"), d.since(d.instant("effective_from"))
		env.Event = &domain.DeploymentRemoved{Deployment: id, Reason: d.text("reason")}
		key = []string{env.Cluster, id}
		d.l.refer("deployment", env.Cluster+"/"+id, d.n.child("id"), d.field("id"))
		if first, both := d.l.declared[identity(listDeployments, key...)]; both {
			d.fault("id", "is declared on line %d; a deployment cannot be declared and removed", first.Line)
		}
	case listMaintenance:
		d.refer("cluster", "cluster")
		env.Cluster, env.Time = d.text("cluster"), d.l.now
		env.Event = &domain.MaintenanceScheduled{Maintenance: id, Nodes: d.texts("nodes"), Window: d.interval("window"),
			Reason: d.text("reason"), Cancelled: d.flag("cancelled")}
		key = []string{env.Cluster, id}
	case listOutages:
		d.refer("cluster", "cluster")
		d.refer("region", "region")
		ev := &domain.OutageDeclared{
			Outage:    id,
			Nodes:     d.texts("nodes"),
			Window:    d.interval("window"),
			Reason:    d.text("reason"),
			Cancelled: d.flag("cancelled"),
		}
		switch {
		case d.has("cluster") == d.has("region"):
			d.fault("cluster", "name either a cluster or a region")
		case d.has("region") && d.has("nodes"):
			d.fault("nodes", "belong to a cluster; name it instead of the region")
		case ev.Window.From > d.l.now:
			d.fault("window", "begins at %s, in the future; announce maintenance instead", ev.Window.From)
		}
		env.Cluster, env.Time, env.Event = d.text("cluster"), d.l.now, ev
	case listCorrections:
		d.refer("cluster", "cluster")
		env.Cluster, env.Time, env.Event = d.text("cluster"), d.l.now, d.correction(id)
		env.Workspace = env.Event.(*domain.UsageCorrected).Workspace
		key = []string{env.Cluster, id}
	case listMappingRules:
		d.refer("cluster", "cluster")
		to, _ := d.sub("to")
		d.referSelector(to)
		ev := &domain.MappingRuleSet{
			Rule:          id,
			Priority:      d.count("priority"),
			Cluster:       d.text("cluster"),
			Namespace:     d.text("namespace"),
			ToWorkspace:   to.text("workspace"),
			ToDeployment:  to.text("deployment"),
			Columns:       d.labels("columns"),
			Buys:          domain.LineBuys(d.text("buys")),
			EffectiveFrom: d.effective(),
		}
		ev.ToShares, ev.ToShareBy = to.shares("share")
		env.Event = ev
		key = []string{d.workspace, id, d.from.String()}
	case listMethods:
		env.Event = &domain.MethodChanged{
			Method:        id,
			Version:       d.text("version"),
			EffectiveFrom: d.effective(),
			Reason:        d.text("reason"),
		}
		key = []string{d.workspace, id, d.from.String()}
	}
	return env, key
}

// rates reads what a site costs besides power.
func (d declaration) rates(key string) []domain.SiteRate {
	list := d.n.get(key)
	if list == nil {
		return nil
	}
	var out []domain.SiteRate
	for i, n := range list.values {
		r := entry{d.l, n, d.field(index(key, i))}
		out = append(out, domain.SiteRate{Cost: r.text("cost"), Per: domain.RatePer(r.text("per")), Price: r.money("price")})
	}
	return out
}

// shares reads among whom lines of bills are shared: workspaces with weights, or the word for what they are shared by.
func (e entry) shares(key string) (of []domain.WorkspaceWeight, by domain.ShareBy) {
	n := e.n.get(key)
	if n == nil || n.shape != list {
		return nil, domain.ShareBy(e.text(key))
	}
	for i, n := range n.values {
		s := entry{e.l, n, e.field(index(key, i))}
		s.l.refer("workspace", s.text("workspace"), n.child("workspace"), s.field("workspace"))
		of = append(of, domain.WorkspaceWeight{Workspace: s.text("workspace"), Weight: s.count("weight")})
	}
	return of, ""
}

func (d declaration) nameOr(id string) string {
	if name := d.text("name"); name != "" {
		return name
	}
	return id
}

func (d declaration) region(id string) *domain.RegionDefined {
	if d.text("country") == eu {
		d.fault("country", "EU is a union of countries; name the country of the region")
	}
	ev := &domain.RegionDefined{Region: id, Country: d.text("country"), Name: d.text("name"), UTCOffset: d.text("utc_offset")}
	trips, _ := d.sub("round_trips")
	for i, k := range trips.n.keys {
		d.l.refer("region", k.text, k, trips.field(k.text))
		r := domain.RoundTrip{To: k.text, Measured: true}
		if how, ok := trips.sub(k.text); !ok {
			r.Micros = trips.micros(k.text)
		} else if how.has("measured") {
			r.Micros = how.micros("measured")
		} else {
			r.Micros, r.Measured = how.micros("estimate"), false
		}
		if r.Micros == 0 {
			d.l.fault(trips.n.values[i], trips.field(k.text), "must be more than 0; write for example 68ms")
		}
		ev.RoundTrips = append(ev.RoundTrips, r)
	}
	return ev
}

func (d declaration) policy(id string) *domain.PolicySet {
	d.refer("cluster", "clusters")
	ev := &domain.PolicySet{
		Policy:         id,
		Kind:           domain.PolicyKind(d.text("kind")),
		EffectiveFrom:  d.effective(),
		EffectiveTo:    d.instant("effective_to"),
		Countries:      d.countries("countries"),
		Certifications: d.texts("certifications"),
		Clusters:       d.texts("clusters"),
		Scope:          d.text("scope"),
		Value:          d.text("value"),
		Share:          d.nullDecimal("share"),
		Columns:        d.labels("columns"),

		Standby:           d.text("standby"),
		StandbyPriceShare: d.nullDecimal("standby_price_share"),
	}
	d.refer("region", "standby")
	if list := d.n.get("substitutes"); list != nil {
		for i, n := range list.values {
			s := entry{d.l, n, d.field(index("substitutes", i))}
			of := domain.GPUSubstitute{For: s.text("for"), By: s.text("by"), GPUs: s.decimal("estimate")}
			if s.has("measured") {
				of.GPUs, of.Measured = s.decimal("measured"), true
			}
			ev.Substitutes = append(ev.Substitutes, of)
		}
	}
	if pools := d.n.get("pools"); pools != nil {
		for i, n := range pools.values {
			p := entry{d.l, n, d.field(index("pools", i))}
			of := domain.CostPool{Pool: p.text("pool")}
			of.Shares, of.By = p.shares("share")
			ev.Pools = append(ev.Pools, of)
		}
	}
	s, _ := d.sub("selector")
	ev.Selector = d.selector(s)
	if others := d.n.get("others"); others != nil {
		for i, n := range others.values {
			ev.Others = append(ev.Others, d.selector(entry{d.l, n, d.field(index("others", i))}))
		}
	}
	if ev.Kind == domain.PolicyAdviceThreshold {
		d.threshold(ev)
	}
	return ev
}

// threshold checks what only the rules of advice know about a threshold.
func (d declaration) threshold(ev *domain.PolicySet) {
	o := advice.Override{Rule: advice.RuleID(ev.Scope), Off: ev.Value == "off", SetBy: "policy " + ev.Policy}
	if _, known := advice.RuleOf(o.Rule); !known {
		if ev.Scope != "" {
			d.l.fault(d.named("scope"), d.field("scope"), "there is no rule %q; \"quartermaster advice rules\" lists them", ev.Scope)
		}
		return
	}
	var err error
	if o.Value, err = decimal.NewFromString(ev.Value); err != nil && !o.Off {
		return // as its validation says
	}
	if err := advice.CheckOverride(&o); err != nil {
		d.l.fault(d.named("value"), d.field("value"), "%v", err)
	}
}

func (d declaration) legalHold(id string) *domain.LegalHoldSet {
	ev := &domain.LegalHoldSet{Hold: id, Reason: d.text("reason"), Lifted: d.flag("lifted")}
	if covers, ok := d.sub("covers"); ok {
		d.referSelector(covers)
		ev.Workspace, ev.Cluster = covers.text("workspace"), covers.text("cluster")
		if covers.has("period") {
			ev.Period = covers.period("period")
		}
	}
	return ev
}

func (d declaration) selector(s entry) domain.Selector {
	d.referSelector(s)
	return domain.Selector{Workspace: s.text("workspace"), Class: domain.WorkloadClass(s.text("class")),
		Deployment: s.text("deployment"), Cluster: s.text("cluster"), Tier: s.text("tier"),
		Environment: s.text("environment"), Regions: s.texts("regions"), Countries: s.countries("countries")}
}

func (d declaration) commitment(id string) *domain.CommitmentPurchased {
	ev := &domain.CommitmentPurchased{
		Commitment:         id,
		Contract:           d.text("contract"),
		Market:             domain.Market{Provider: d.text("provider"), Region: d.text("region")},
		Offer:              d.text("offer"),
		BillingAccount:     d.text("billing_account"),
		Kind:               domain.OfferKind(d.text("kind")),
		SKU:                d.text("sku"),
		GPUModel:           d.text("gpu_model"),
		GPUsPerUnit:        d.count("gpus_per_unit"),
		Units:              d.count("units"),
		Term:               d.term("term"),
		Upfront:            d.money("upfront"),
		Hourly:             d.money("hourly"),
		SpendPerHour:       d.nullDecimal("spend_per_hour"),
		Spend:              d.text("spend"),
		GuaranteesCapacity: d.flag("guarantees_capacity"),
		NoticeBy:           d.instant("notice_by"),
	}
	// A contract has one currency: a missing price is 0 in the currency of the other.
	if ev.Upfront.Currency == "" {
		ev.Upfront.Currency = ev.Hourly.Currency
	}
	if ev.Hourly.Currency == "" {
		ev.Hourly.Currency = ev.Upfront.Currency
	}
	if ev.Hourly.Currency == "" {
		d.fault("hourly", "is missing and so is upfront; add what it costs")
	}
	owners, _ := d.sub("owners")
	for _, k := range owners.n.keys {
		d.l.refer("workspace", k.text, k, owners.field(k.text))
		ev.Owners = append(ev.Owners, domain.Share{Workspace: k.text, Share: owners.decimal(k.text)})
	}
	return ev
}

func (d declaration) correction(id string) *domain.UsageCorrected {
	holder, _ := d.sub("holder")
	if n := holder.n.get("workspace"); n != nil {
		d.l.refer("workspace", n.text, n, holder.field("workspace"))
	}
	ev := &domain.UsageCorrected{
		Correction: id,
		Node:       d.text("node"),
		GPU:        d.gpu("gpu"),
		Replica:    d.count("replica"),
		Interval:   d.interval("interval"),
		Workspace:  holder.text("workspace"),
		Deployment: holder.text("deployment"),
		Unit:       holder.text("unit"),
		Reason:     d.text("reason"),
		Cancelled:  d.flag("cancelled"),
	}
	if ev.Interval.To > d.l.now {
		d.fault("interval", "ends at %s, in the future; only past usage can be corrected", ev.Interval.To)
	}
	return ev
}

func (d declaration) deployment(id string) *domain.DeploymentChanged {
	need, _ := d.sub("need")
	ev := &domain.DeploymentChanged{
		Deployment: id, Model: d.text("model"), Tier: d.text("tier"), Environment: d.text("environment"),
		Class: domain.WorkloadClass(d.text("class")), Replicas: d.count("replicas"),
		Need: domain.GPUNeed{
			Models:     need.texts("gpu_models"),
			Count:      need.count("gpus"),
			Milli:      need.count("gpu_milli"),
			MIGProfile: need.text("mig_profile"),
			MemoryMiB:  need.mebibytes("gpu_memory"),
			CPUMilli:   need.milliCPU("cpu"),
			RAMMiB:     need.mebibytes("memory"),
			GangNodes:  need.count("gang_nodes"),
		},
		Countries: d.countries("countries"), Certifications: d.texts("certifications"), MaxPerNode: d.count("max_per_node"),
		Dedicated: d.flag("dedicated"), Interruptible: d.flag("interruptible"),
		LatencyMicros: d.micros("latency"), Priority: int32(d.whole("priority")),
	}
	return ev
}
