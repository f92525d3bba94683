package costs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/dimension"
	"quartermaster/projections/usage"
)

// Dimension is a dimension that costs are grouped and filtered by.
type Dimension = dimension.Name

// The dimensions. Workspace may be one of the platform's accounts. Region is the cluster's, else
// the line's. Day and hour are empty if a line's charge period was not spread over time.
const (
	ByWorkspace     Dimension = "workspace"
	ByComponent     Dimension = "component"
	ByClass         Dimension = "class"
	ByCluster       Dimension = "cluster"
	ByDeployment    Dimension = "deployment"
	ByWorkloadClass Dimension = "workload_class"
	ByModel         Dimension = "model"
	ByGPUModel      Dimension = "gpu_model"
	ByBillingModel  Dimension = "billing_model"
	ByProvider      Dimension = "provider"
	ByProviderClass Dimension = "provider_class"
	ByRegion        Dimension = "region"
	ByInvoice       Dimension = "invoice"
	ByLine          Dimension = "line"
	ByDay           Dimension = "day"
	ByHour          Dimension = "hour"
	ByOwner         Dimension = "owner"
	ByCostCentre    Dimension = "cost_centre"
	ByEntity        Dimension = "entity"
	ByMonth         Dimension = "month"
	ByQuarter       Dimension = "quarter"
	ByMatchMethod   Dimension = "match_method"

	ByIssuer          Dimension = "issuer"
	ByAccount         Dimension = "billing_account"
	BySubAccount      Dimension = "sub_account"
	ByService         Dimension = "service"
	ByServiceCategory Dimension = "service_category"
	ByCharge          Dimension = "charge_category"
	ByPricing         Dimension = "pricing_category"
	BySKU             Dimension = "sku"
	ByResource        Dimension = "resource"
	ByNode            Dimension = "node"
	ByUnit            Dimension = "unit"
	ByCommitment      Dimension = "commitment"
	ByMappingRule     Dimension = "mapping_rule"
	ByTag             Dimension = "tag:KEY"
)

// part is an allocation of a month's books. It has one value in each dimension.
type part struct {
	books      *books
	allocation *attribution.Allocation
	month      domain.Instant // start of the billing month
	kept       *place         // of an allocation that is read from its canonical form, which has no books
	keptCharge *Charge
	charged    Charge // of the line chargeOf, of an allocation that has books
	chargeOf   uint32
	priced     priced
	tags       map[string]string // of the charge with tagsOf
	tagsOf     string
	holder     *attribution.Holder // whose part of an allocation it is; nil: it is a whole one
	moved      []movedCost         // of a posting: the differences of all holders
}

// tag returns the value of a tag of the line, "" if the line does not have it.
func (p *part) tag(key string) string {
	text := p.charge().Column("Tags")
	if text != p.tagsOf || p.tags == nil {
		p.tagsOf, p.tags = text, tagsOf(text)
	}
	return p.tags[key]
}

// tagsOf reads tags as FOCUS writes them: a JSON object. A value that is not text is shown in JSON. Tags that are not
// an object are none.
func tagsOf(text string) map[string]string {
	tags := map[string]string{}
	var raw map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &raw) != nil {
		return tags
	}
	for key, value := range raw {
		var plain string
		if json.Unmarshal(value, &plain) != nil {
			plain = string(value)
		}
		tags[key] = plain
	}
	return tags
}

// place is what the fleet and the registry say about an allocation.
type place struct {
	region, provider, providerClass, workload, model string
	ownership
}

// at returns the place of an allocation.
func (p *part) at() place {
	if p.kept != nil {
		return *p.kept
	}
	of := place{region: p.region(), workload: p.workload(), model: p.model(), ownership: p.ownership()}
	of.provider, of.providerClass = p.provider()
	return of
}

// region returns the region of the cluster in the hour, else of the line as the supplier spells it.
func (p *part) region() string {
	if p.kept != nil {
		return p.kept.region
	}
	return p.books.region(p.allocation)
}

// costKey is a group's key, with only the requested dimensions set.
type costKey struct {
	workspace, cluster, deployment, region, issuer, account, invoice, line, currency string
	provider, providerClass, gpuModel, billing, workload, model                      string
	owner, costCentre, entity                                                        string
	subAccount, service, serviceCategory, charge, pricing, sku, resource, node, unit string
	commitment, rule                                                                 string
	tags                                                                             string // see [tagged]

	component attribution.Component
	class     attribution.Class
	method    attribution.MatchMethod
	hour      domain.Instant // 0: not spread over time
	month     domain.Instant // start of the month or quarter; 0: not asked for
}

var dimensions = dimension.Set[part, costKey]{
	{
		Name: ByWorkspace, Doc: "who is charged, or an account of the platform", Blank: "(nobody)",
		Read:  func(p *part, k *costKey) { k.workspace = p.allocation.Workspace },
		Value: func(k *costKey) string { return k.workspace },
	},
	{
		Name: ByComponent, Doc: "what became of what was paid for", Values: namesOf[attribution.Component](),
		Read:    func(p *part, k *costKey) { k.component = p.allocation.Component },
		Value:   func(k *costKey) string { return k.component.String() },
		Compare: func(a, b *costKey) int { return cmp.Compare(a.component, b.component) },
	},
	{
		Name: ByClass, Doc: "what kind of charge the line is", Values: namesOf[attribution.Class](),
		Read:    func(p *part, k *costKey) { k.class = p.allocation.Line.Class },
		Value:   func(k *costKey) string { return k.class.String() },
		Compare: func(a, b *costKey) int { return cmp.Compare(a.class, b.class) },
	},
	{
		Name: ByCluster, Doc: "the cluster", Blank: "(none)",
		Read:  func(p *part, k *costKey) { k.cluster = p.allocation.Cluster },
		Value: func(k *costKey) string { return k.cluster },
	},
	{
		Name: ByDeployment, Doc: "the deployment that held what was paid for", Blank: "(none)",
		Read:  func(p *part, k *costKey) { k.deployment = p.allocation.Deployment },
		Value: func(k *costKey) string { return k.deployment },
	},
	{
		Name: ByWorkloadClass, Doc: "the class of that deployment; none for what nobody held", Values: usage.WorkloadClasses,
		Read:  func(p *part, k *costKey) { k.workload = p.workload() },
		Value: func(k *costKey) string { return k.workload },
	},
	{
		Name:  ByModel,
		Doc:   "the model that deployment is declared to serve or train; none if it declares none, and for what nobody held",
		Read:  func(p *part, k *costKey) { k.model = p.model() },
		Value: func(k *costKey) string { return k.model },
	},
	{
		Name: ByGPUModel, Doc: "the GPU model of the machines that it is for",
		Read:  func(p *part, k *costKey) { k.gpuModel = cmp.Or(p.allocation.Hardware.GPUModel, dimension.Unknown) },
		Value: func(k *costKey) string { return k.gpuModel },
	},
	{
		Name: ByBillingModel, Doc: "how those machines are declared to be paid for, else how the line is",
		Values: usage.BillingModels,
		Read: func(p *part, k *costKey) {
			k.billing = cmp.Or(string(p.allocation.Hardware.Billing), dimension.Unknown)
		},
		Value: func(k *costKey) string { return k.billing },
	},
	{
		Name: ByProvider, Doc: "the cluster's provider, else that of the billing account's clusters, else the invoice's issuer",
		Read:  func(p *part, k *costKey) { k.provider, _ = p.provider() },
		Value: func(k *costKey) string { return k.provider },
	},
	{
		Name: ByProviderClass, Doc: "the class of the cluster's provider, else of the billing account's clusters",
		Values: usage.ProviderClasses,
		Read:   func(p *part, k *costKey) { _, k.providerClass = p.provider() },
		Value:  func(k *costKey) string { return k.providerClass },
	},
	{
		Name: ByRegion, Doc: "the cluster's region, else the line's", Blank: "(none)",
		Read:  func(p *part, k *costKey) { k.region = p.region() },
		Value: func(k *costKey) string { return k.region },
	},
	{
		Name: ByInvoice, Doc: "the invoice, with issuer and billing account", Blank: "(none)",
		Read: func(p *part, k *costKey) {
			k.issuer, k.account, k.invoice = p.allocation.Line.Issuer, p.allocation.Line.Account, p.allocation.Line.Invoice
		},
		Value: func(k *costKey) string { return ledgerName(k.issuer, k.account, k.invoice) },
	},
	{
		Name: ByLine, Doc: "the billing line, with issuer and billing account", Blank: "(none)",
		Read: func(p *part, k *costKey) {
			k.issuer, k.account, k.line = p.allocation.Line.Issuer, p.allocation.Line.Account, p.allocation.Line.ID
		},
		Value: func(k *costKey) string { return ledgerName(k.issuer, k.account, k.line) },
	},
	{
		Name: ByDay, Doc: "the day, in UTC", Blank: "(whole period)",
		// If the hour is in the key too, it implies the day.
		Read: func(p *part, k *costKey) { k.hour = max(k.hour, p.allocation.Hour.DayStart()) },
		Value: func(k *costKey) string {
			if k.hour == 0 {
				return ""
			}
			return k.hour.Time().Format(time.DateOnly)
		},
		Compare: func(a, b *costKey) int { return cmp.Compare(a.hour.DayStart(), b.hour.DayStart()) },
	},
	{
		Name: ByHour, Doc: "the hour, in UTC", Blank: "(whole period)",
		Read:    func(p *part, k *costKey) { k.hour = max(k.hour, p.allocation.Hour) },
		Value:   func(k *costKey) string { return k.hour.String() },
		Compare: func(a, b *costKey) int { return cmp.Compare(a.hour, b.hour) },
	},
	ofWorkspace(ByOwner, "who answers for the costs of the workspace in that hour", func(k *costKey) *string { return &k.owner },
		func(o ownership) string { return o.owner }),
	ofWorkspace(ByCostCentre, "the cost centre of the workspace in that hour", func(k *costKey) *string { return &k.costCentre },
		func(o ownership) string { return o.costCentre }),
	ofWorkspace(ByEntity, "the company that bears the costs of the workspace in that hour", func(k *costKey) *string { return &k.entity },
		func(o ownership) string { return o.entity }),
	{
		Name: ByMonth, Doc: "the billing month, in UTC",
		// If the quarter is in the key too, the month implies it.
		Read:    func(p *part, k *costKey) { k.month = max(k.month, p.month) },
		Value:   func(k *costKey) string { return k.month.Time().Format("2006-01") },
		Compare: func(a, b *costKey) int { return cmp.Compare(a.month, b.month) },
	},
	{
		Name: ByQuarter, Doc: "the calendar quarter of the billing month, for example 2026-Q2",
		Read:    func(p *part, k *costKey) { k.month = max(k.month, quarterStart(p.month)) },
		Value:   func(k *costKey) string { return quarterText(k.month) },
		Compare: func(a, b *costKey) int { return cmp.Compare(quarterStart(a.month), quarterStart(b.month)) },
	},
	{
		Name: ByMatchMethod, Doc: "how the line found what it is for", Values: namesOf[attribution.MatchMethod](),
		Read:    func(p *part, k *costKey) { k.method = p.allocation.MatchMethod },
		Value:   func(k *costKey) string { return k.method.String() },
		Compare: func(a, b *costKey) int { return cmp.Compare(a.method, b.method) },
	},
	ofLine(ByIssuer, "who issued the invoice", func(k *costKey) *string { return &k.issuer },
		func(p *part) string { return p.allocation.Line.Issuer }),
	ofLine(ByAccount, "the billing account", func(k *costKey) *string { return &k.account },
		func(p *part) string { return p.allocation.Line.Account }),
	ofLine(BySubAccount, "SubAccountId: the supplier's account, project or subscription below the billing account",
		func(k *costKey) *string { return &k.subAccount }, func(p *part) string { return p.charge().Column("SubAccountId") }),
	ofLine(ByService, "ServiceName", func(k *costKey) *string { return &k.service },
		func(p *part) string { return p.charge().Column("ServiceName") }),
	ofLine(ByServiceCategory, "ServiceCategory", func(k *costKey) *string { return &k.serviceCategory },
		func(p *part) string { return p.charge().Column("ServiceCategory") }),
	ofLine(ByCharge, "ChargeCategory", func(k *costKey) *string { return &k.charge },
		func(p *part) string { return p.allocation.Line.Category }),
	ofLine(ByPricing, "PricingCategory", func(k *costKey) *string { return &k.pricing },
		func(p *part) string { return p.charge().Column("PricingCategory") }),
	ofLine(BySKU, "SkuId, else SkuMeter", func(k *costKey) *string { return &k.sku },
		func(p *part) string { return p.allocation.Line.Product }),
	ofLine(ByResource, "ResourceId: the machine, or what else the line is for", func(k *costKey) *string { return &k.resource },
		func(p *part) string { return p.allocation.Line.Resource }),
	ofLine(ByNode, "the machine that was paid for, as cluster/node, also within lines for several",
		func(k *costKey) *string { return &k.node }, (*part).node),
	ofLine(ByUnit, "the pod or job that held what was paid for, as its cluster names it",
		func(k *costKey) *string { return &k.unit }, (*part).unit),
	ofLine(ByCommitment, "CommitmentDiscountId, else CapacityReservationId", func(k *costKey) *string { return &k.commitment },
		func(p *part) string { return p.allocation.Line.Commitment }),
	ofLine(ByMappingRule, "the rule that says who is charged for a line of no machine", func(k *costKey) *string { return &k.rule },
		func(p *part) string {
			if p.allocation.MatchMethod != attribution.ByRule {
				return ""
			}
			return p.allocation.Line.ToRule
		}),
	{Name: ByTag, Doc: "the value of a tag of the line", With: tagged},
}

// ofWorkspace is a dimension of who answers for the workspace.
func ofWorkspace(name Dimension, doc string, at func(*costKey) *string, of func(ownership) string) dimension.Of[part, costKey] {
	return dimension.Of[part, costKey]{
		Name: name, Doc: doc, Blank: "(unmapped)",
		Read:  func(p *part, k *costKey) { *at(k) = of(p.ownership()) },
		Value: func(k *costKey) string { return *at(k) },
	}
}

// quarterStart returns the start of the calendar quarter of a month.
func quarterStart(month domain.Instant) domain.Instant {
	t := month.Time()
	return domain.InstantOf(time.Date(t.Year(), t.Month()-(t.Month()-1)%3, 1, 0, 0, 0, 0, time.UTC))
}

func quarterText(month domain.Instant) string {
	t := month.Time()
	return fmt.Sprintf("%d-Q%d", t.Year(), (int(t.Month())+2)/3)
}

// ofLine is a dimension of the supplier's line.
func ofLine(name Dimension, doc string, at func(*costKey) *string, of func(*part) string) dimension.Of[part, costKey] {
	return dimension.Of[part, costKey]{
		Name: name, Doc: doc, Blank: "(none)",
		Read:  func(p *part, k *costKey) { *at(k) = of(p) },
		Value: func(k *costKey) string { return *at(k) },
	}
}

// tagged is the dimension of a tag. A key has the values of all tags that are asked for: after each tag a zero byte,
// its value and another one.
func tagged(tag string) dimension.Of[part, costKey] {
	begin := tag + "\x00"
	return dimension.Of[part, costKey]{
		Name: Dimension("tag:" + tag), Doc: "the value of tag " + tag, Blank: "(none)",
		Read: func(p *part, k *costKey) { k.tags += begin + strings.ReplaceAll(p.tag(tag), "\x00", "") + "\x00" },
		Value: func(k *costKey) string {
			for rest := k.tags; rest != ""; {
				of, after, _ := strings.Cut(rest, "\x00")
				value, next, _ := strings.Cut(after, "\x00")
				if of == tag {
					return value
				}
				rest = next
			}
			return ""
		},
	}
}

// namesOf returns the names of all values of an enumeration that begins at 1.
func namesOf[T interface {
	~uint8
	String() string
}]() (names []string) {
	unknown := T(0).String()
	for v := T(1); ; v++ {
		name := v.String()
		if len(name) > len("unknown(") && name[:len("unknown(")] == unknown[:len("unknown(")] {
			return names
		}
		names = append(names, name)
	}
}

// Dimensions returns every dimension.
func Dimensions() []Dimension { return dimensions.Names() }

// ParseDimensions reads the names of dimensions. For an unknown name its error is a
// [dimension.UnknownError].
func ParseDimensions(names []string) ([]Dimension, error) { return dimensions.Parse(names) }

// ParseConditions reads conditions of the form dimension=value.
func ParseConditions(words []string) ([]dimension.Condition, error) {
	return dimensions.ParseConditions(words)
}

// Blank returns what a table shows for an empty value of a dimension.
func Blank(d Dimension) string {
	if of := dimensions.Find(d); of != nil {
		return of.Blank
	}
	return ""
}

// workload returns the class of the deployment that held the time of an allocation, in its hour,
// else in the line's charge period.
func (p *part) workload() string {
	if p.kept != nil {
		return p.kept.workload
	}
	l := p.allocation
	if l.Component != attribution.Allocated {
		return dimension.None
	}
	return p.books.workloads.Class(l.Cluster, l.Deployment, l.Workspace, during(l))
}

// model returns the model of the deployment that held the time of an allocation, as workload returns its class.
func (p *part) model() string {
	if p.kept != nil {
		return p.kept.model
	}
	l := p.allocation
	if l.Component != attribution.Allocated {
		return dimension.None
	}
	return p.books.workloads.Model(l.Cluster, l.Deployment, l.Workspace, during(l))
}

// during returns the start of an allocation's hour, else the charge period of its line.
func during(l *attribution.Allocation) domain.Interval {
	if l.Hour != 0 {
		return domain.Interval{From: l.Hour, To: l.Hour}
	}
	return l.Line.ChargePeriod
}

// provider returns the provider of what an allocation is for, and the provider's class.
func (p *part) provider() (provider, class string) {
	if p.kept != nil {
		return p.kept.provider, p.kept.providerClass
	}
	l := p.allocation
	if c, _ := p.books.fleet.Cluster(l.Cluster, cmp.Or(l.Hour, l.Line.ChargePeriod.From)); c != nil {
		return cmp.Or(c.Provider, dimension.Unknown), cmp.Or(string(c.ProviderClass), dimension.Unknown)
	}
	of := p.books.providerOf(l.Line.Account)
	return cmp.Or(of.provider, l.Line.Issuer, dimension.Unknown), cmp.Or(of.class, dimension.Unknown)
}

type provider struct{ provider, class string }

// providerOf returns the common provider of a billing account's clusters in the month: of those
// declared with the account, and those with nodes of it.
func (b *books) providerOf(account string) provider {
	if known, ok := b.providers[account]; ok {
		return known
	}
	of := provider{}
	join := func(into *string, value string) {
		switch value = cmp.Or(value, dimension.Unknown); {
		case *into == "":
			*into = value
		case *into != value:
			*into = dimension.Mixed
		}
	}
	clusters := map[string]bool{}
	for i := range b.nodes {
		clusters[b.nodes[i].Cluster] = clusters[b.nodes[i].Cluster] || b.nodes[i].Account == account
	}
	for id := range b.fleet.Clusters {
		c, _ := b.fleet.Cluster(id, b.month.To-1)
		if account != "" && (c.BillingAccount == account || clusters[id]) {
			join(&of.provider, c.Provider)
			join(&of.class, string(c.ProviderClass))
		}
	}
	b.providers[account] = of
	return of
}
