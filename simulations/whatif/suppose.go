package whatif

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/market"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
)

// supposer turns changes into events of a fork, each at the median of its uncertain numbers, in
// order.
type supposer struct {
	ctx  context.Context
	fork *Fork
	at   domain.Instant
	end  domain.Instant // of the horizon
	// currency of prices that state none.
	currency string
	notes    []string
	// deployments records the effects of launches and changes of deployments.
	deployments []deployed
}

// deployed is a deployment that a change starts, changes or ends.
type deployed struct {
	change  int // index into the changes
	cluster string
	id      string
	region  string
	before  int64 // replicas declared when it changes
	milli   int64 // thousandths of a GPU of one replica, gangs included
	models  []string
}

func day(t domain.Instant) string { return t.Time().Format(time.DateOnly) }

// happens reports whether a change is assumed where nothing is drawn.
func (c *Change) happens() bool {
	return c.Probability == nil || c.Probability.P[0].GreaterThanOrEqual(decimal.New(5, -1))
}

// effect is when a change begins: never before the scenario's time.
func (s *supposer) effect(c *Change) domain.Instant { return max(c.When, s.at) }

func median(n *Number) domain.Decimal {
	if n == nil {
		return decimal.Zero
	}
	return n.Median()
}

// suppose appends the events of a change; many changes have none.
func (s *supposer) suppose(i int, c *Change) error {
	if !c.happens() && c.Kind != ModelLaunch && c.Kind != DeploymentChange && c.Kind != QuotaChange {
		return nil
	}
	var err error
	switch c.Kind {
	case ModelLaunch, DeploymentChange:
		err = s.deploy(i, c)
	case Maintenance:
		err = s.maintain(c)
	case PriceChange, LeadTime:
		err = s.requote(c)
	case NewOffer:
		err = s.quote(c)
	case PurchaseMade:
		err = s.buy(c)
	case Renewal:
		err = s.renew(c)
	case QuotaChange:
		err = s.limit(c)
	case FXChange:
		from := s.effect(c)
		err = s.append(domain.Envelope{Time: s.at, Subject: c.Base + "/" + c.Quote, Event: &domain.FXRateSet{
			Base: c.Base, Quote: c.Quote, Rate: median(c.Rate), Kind: domain.FXSpot,
			Effective: domain.Interval{From: from, To: max(s.end, from) + 3660*domain.Day}, Citation: "supposed",
		}})
	}
	if err != nil {
		return fmt.Errorf("changes[%d] %s: %w", i, c.Kind, err)
	}
	return nil
}

func (s *supposer) append(events ...domain.Envelope) error {
	return s.fork.Append(s.ctx, s.at, events...)
}

// deploy declares a launched deployment, or redeclares an existing one.
func (s *supposer) deploy(i int, c *Change) error {
	inv, err := inventory.New(s.fork.Rows(), inventory.Filter{At: s.at, Region: c.Region})
	if err != nil {
		return err
	}
	d := deployed{change: i, cluster: c.Cluster, id: c.Deployment}
	var known []string
	for _, k := range inv.Clusters {
		known = append(known, k.Cluster)
		if d.cluster == "" && c.Kind == ModelLaunch {
			d.cluster = k.Cluster
		}
	}
	row := func(cluster string) (*domain.DeploymentChanged, string, error) {
		r, err := s.fork.Rows().Get(projections.Key{Table: projections.TableDeployments, Scope: cluster, ID: c.Deployment})
		if r == nil || err != nil {
			return nil, "", err
		}
		v := r.(*projections.History).At(s.effect(c))
		if v == nil {
			return nil, "", nil
		}
		ev, _ := v.Event.(*domain.DeploymentChanged)
		return ev, v.Workspace, nil
	}
	workspace := ""
	var was *domain.DeploymentChanged
	if c.Kind == DeploymentChange {
		clusters, err := s.fork.Rows().Scopes(projections.TableDeployments)
		if err != nil {
			return err
		}
		for _, k := range clusters {
			if c.Cluster != "" && k != c.Cluster {
				continue
			}
			ev, ws, err := row(k)
			if err != nil {
				return err
			}
			if ev == nil {
				continue
			}
			if was != nil {
				return unfit("deployment %q is declared in %s and in %s: name the cluster", c.Deployment, d.cluster, k)
			}
			was, workspace, d.cluster = ev, ws, k
		}
		if was == nil {
			return unfit("no deployment %q is declared then; \"quartermaster models\" lists those there are", c.Deployment)
		}
	} else if d.cluster == "" || !slices.Contains(known, d.cluster) {
		return unfit("no cluster %q is known in region %q; known are %s", c.Cluster, c.Region, strings.Join(known, ", "))
	}
	for _, k := range inv.Clusters {
		if k.Cluster == d.cluster {
			d.region, workspace = k.Region, cmp.Or(workspace, k.Workspace)
		}
	}
	if d.region == "" {
		all, err := inventory.New(s.fork.Rows(), inventory.Filter{At: s.at, Cluster: d.cluster})
		if err != nil {
			return err
		}
		for _, k := range all.Clusters {
			d.region, workspace = k.Region, cmp.Or(workspace, k.Workspace)
		}
	}
	now := domain.DeploymentChanged{
		Deployment: c.Deployment, Class: domain.WorkloadClass(cmp.Or(c.Class, string(domain.ClassServing))),
		Need: domain.GPUNeed{Count: uint32(c.GPUs)},
	}
	if c.Model != "" {
		now.Need.Models = []string{c.Model}
	}
	if was != nil {
		now, d.before = *was, int64(was.Replicas)
	}
	switch {
	case c.Factor != nil:
		now.Replicas = uint32(median(c.Factor).Mul(decimal.NewFromInt(d.before)).Ceil().IntPart())
	case c.Replicas != nil:
		now.Replicas = uint32(median(c.Replicas).Ceil().IntPart())
	}
	if c.Removed {
		now.Replicas = 0
	}
	env := func(ev domain.Event) domain.Envelope {
		return domain.Envelope{Time: s.effect(c), Subject: c.Deployment, Workspace: workspace, Cluster: d.cluster, Event: ev}
	}
	// The need of one replica is read from rows as packing reads it, after declaring one replica.
	probe := NewFork(s.fork.Rows())
	one := now
	one.Replicas = 1
	if err := probe.Append(s.ctx, s.at, env(&one)); err != nil {
		return err
	}
	a, err := registry.NewAuthority(probe.Rows())
	if err != nil {
		return err
	}
	loads, _, err := planning.Workloads(probe.Rows(), a, s.effect(c),
		planning.WorkloadFilter{Cluster: d.cluster, Deployment: c.Deployment})
	if err != nil {
		return err
	}
	if len(loads) == 1 {
		d.milli, d.models = loads[0].GPUMilli*int64(loads[0].Replicas), loads[0].Models
	}
	s.deployments = append(s.deployments, d)
	if !c.happens() {
		return nil
	}
	if c.Removed {
		return s.append(env(&domain.DeploymentRemoved{Deployment: c.Deployment, Reason: "supposed"}))
	}
	events := []domain.Envelope{env(&now)}
	if c.Until != 0 {
		end := env(&domain.DeploymentRemoved{Deployment: c.Deployment, Reason: "supposed"})
		end.Time = c.Until
		events = append(events, end)
	}
	return s.append(events...)
}

// maintain schedules maintenance of machines of a cluster.
func (s *supposer) maintain(c *Change) error {
	if c.Cluster == "" {
		return nil
	}
	inv, err := inventory.New(s.fork.Rows(), inventory.Filter{Cluster: c.Cluster, At: s.at})
	if err != nil {
		return err
	}
	if len(inv.Clusters) == 0 {
		return unfit("no cluster %q is known", c.Cluster)
	}
	var names []string
	for _, k := range inv.Clusters {
		for _, n := range k.Nodes {
			if len(c.Nodes) == 0 || slices.Contains(c.Nodes, n.Node) {
				names = append(names, n.Node)
				if c.Model == "" && len(n.GPUs) > 0 {
					c.Model = n.GPUs[0].Model
				}
			}
		}
	}
	slices.Sort(names)
	if len(c.Nodes) > len(names) {
		return unfit("%d of its %d nodes are not in cluster %q", len(c.Nodes)-len(names), len(c.Nodes), c.Cluster)
	}
	if c.Units != nil {
		n := int(median(c.Units).Ceil().IntPart())
		if n > len(names) {
			return unfit("cluster %q has %d machines, %d cannot be serviced", c.Cluster, len(names), n)
		}
		names = names[:n]
	}
	from := s.effect(c)
	return s.append(domain.Envelope{Time: s.at, Subject: c.Cluster, Cluster: c.Cluster, Event: &domain.MaintenanceScheduled{
		Maintenance: "what-if " + cmp.Or(c.Name, day(from)), Nodes: names,
		Window: domain.Interval{From: from, To: from + hoursOf(median(c.Duration))}, Reason: "supposed",
	}})
}

// hoursOf converts hours to a duration, to the second.
func hoursOf(hours domain.Decimal) domain.Instant {
	return domain.Instant(hours.Mul(decimal.NewFromInt(3600)).Round(0).IntPart()) * domain.Second
}

// picks reports whether a change is about an offer.
func (c *Change) picks(o *domain.OfferQuoted, model string) bool {
	return (c.Provider == "" || c.Provider == o.Market.Provider) && (c.Region == "" || c.Region == o.Market.Region) &&
		(c.Model == "" || named(c.Model, model) || c.Model == o.SKU) && (c.Offer == "" || c.Offer == o.Offer) &&
		(c.OfferKind == "" || c.OfferKind == string(o.Kind))
}

// named reports whether a word names a GPU model, in any spelling of the catalogue.
func named(word, model string) bool {
	if word == model {
		return true
	}
	m, ok := domain.LookupGPU(word)
	return ok && m.Name == model
}

// requote states offers again with another price or lead time.
func (s *supposer) requote(c *Change) error {
	from := s.effect(c)
	offers, err := market.Offers(s.fork.Rows(), from, market.OfferFilter{Provider: c.Provider, Region: c.Region})
	if err != nil {
		return err
	}
	var events []domain.Envelope
	for i := range offers {
		o := offers[i].OfferQuoted
		if !c.picks(&o, offers[i].Model) {
			continue
		}
		switch {
		case c.Kind == LeadTime && o.Kind != domain.OfferReserved && o.Kind != domain.OfferCapacityBlock:
			continue
		case c.Kind == LeadTime:
			o.LeadTimeHours = uint32(median(c.Hours).Ceil().IntPart())
		case c.Factor != nil:
			o.Hourly, o.Upfront = o.Hourly.Mul(median(c.Factor)), o.Upfront.Mul(median(c.Factor))
		default:
			o.Hourly = median(c.Hourly)
		}
		o.EffectiveHourly = domain.NullDecimal{}
		o.ValidFrom, o.Citation = from, "supposed, from: "+o.Citation
		if len(o.Citation) > 200 {
			o.Citation = o.Citation[:200]
		}
		events = append(events, domain.Envelope{Time: s.at, Subject: o.Offer, Event: &o})
	}
	if len(events) == 0 {
		return unfit("no offer then is one of %s; \"quartermaster plan\" shows those that it considers", c.selector())
	}
	return s.append(events...)
}

// selector describes what a change is about.
func (c *Change) selector() string {
	var parts []string
	for _, p := range []struct{ key, value string }{
		{"provider", c.Provider}, {"region", c.Region}, {"cluster", c.Cluster}, {"model", c.Model},
		{"offer", c.Offer}, {"kind", c.OfferKind}, {"account", c.Account},
		{"commitment", c.Commitment}, {"deployment", c.Deployment}, {"rate", strings.Trim(c.Base+"/"+c.Quote, "/")},
	} {
		if p.value != "" {
			parts = append(parts, p.key+" "+p.value)
		}
	}
	return strings.Join(parts, ", ")
}

// like returns an on-demand offer of the same machine, to fill in what a change leaves out.
func (s *supposer) like(c *Change) (*domain.OfferQuoted, error) {
	offers, err := market.Offers(s.fork.Rows(), s.effect(c), market.OfferFilter{Region: c.Region})
	if err != nil {
		return nil, err
	}
	var best *domain.OfferQuoted
	for i := range offers {
		o := &offers[i].OfferQuoted
		if o.Kind != domain.OfferOnDemand || !named(c.Model, offers[i].Model) && c.Model != o.SKU ||
			c.SKU != "" && c.SKU != o.SKU || c.GPUs > 0 && int(o.GPUCount) != c.GPUs {
			continue
		}
		if best == nil || o.GPUCount > best.GPUCount || o.GPUCount == best.GPUCount && o.Hourly.LessThan(best.Hourly) {
			best = o
		}
	}
	return best, nil
}

// quote states a new offer. Owned hardware is not a quote: it enters the instance.
func (s *supposer) quote(c *Change) error {
	if c.OfferKind == string(domain.OfferOwned) {
		return nil
	}
	like, err := s.like(c)
	if err != nil {
		return err
	}
	o := domain.OfferQuoted{
		Market: domain.Market{Provider: c.Provider, Region: c.Region}, Offer: c.Offer, SKU: cmp.Or(c.SKU, c.Model),
		GPUModel: c.Model, GPUCount: uint32(c.GPUs),
		Kind: domain.OfferKind(c.OfferKind), TermMonths: uint32(c.Term), Upfront: median(c.Upfront),
		Hourly: median(c.Hourly), Currency: cmp.Or(c.Currency, s.currency),
		GuaranteesCapacity: c.Guaranteed, LeadTimeHours: uint32(median(c.LeadHours).Ceil().IntPart()),
		MinUnits: uint32(c.MinUnits), MaxUnits: uint32(c.MaxUnits),
		ValidFrom: s.effect(c), ValidTo: c.Until, Citation: cmp.Or(c.Citation, "supposed"), Generated: true,
	}
	if like != nil {
		o.SKU, o.GPUModel, o.CPUMilli, o.MemoryMiB, o.GPUMemoryMiB = cmp.Or(c.SKU, like.SKU), like.GPUModel,
			like.CPUMilli, like.MemoryMiB, like.GPUMemoryMiB
		if c.GPUs == 0 {
			o.GPUCount = like.GPUCount
		}
	}
	return s.append(domain.Envelope{Time: s.at, Subject: o.Offer, Event: &o})
}

// buy records a commitment.
func (s *supposer) buy(c *Change) error {
	like, err := s.like(c)
	if err != nil {
		return err
	}
	from := s.effect(c)
	currency := cmp.Or(c.Currency, s.currency)
	ev := &domain.CommitmentPurchased{
		Commitment: c.Commitment, Market: domain.Market{Provider: c.Provider, Region: c.Region}, BillingAccount: "what-if",
		Kind: domain.OfferKind(cmp.Or(c.OfferKind, string(domain.OfferReserved))), SKU: cmp.Or(c.SKU, c.Model),
		GPUModel: c.Model, GPUsPerUnit: uint32(c.GPUs),
		Units: uint32(median(c.Units).IntPart()), Term: domain.Interval{From: from, To: monthsAfter(from, c.Term)},
		Upfront:            domain.Money{Amount: median(c.Upfront).Mul(median(c.Units)), Currency: currency},
		Hourly:             domain.Money{Amount: median(c.Hourly), Currency: currency},
		GuaranteesCapacity: c.Guaranteed,
	}
	if like != nil {
		ev.SKU, ev.GPUModel = cmp.Or(c.SKU, like.SKU), like.GPUModel
		if c.GPUs == 0 {
			ev.GPUsPerUnit = like.GPUCount
		}
	}
	workspace, err := s.house()
	if err != nil {
		return err
	}
	ev.Owners = []domain.Share{{Workspace: workspace, Share: decimal.NewFromInt(1)}}
	return s.append(domain.Envelope{Time: s.at, Subject: c.Commitment, Workspace: workspace, Event: ev})
}

// house is the workspace whose operators may decide everywhere.
func (s *supposer) house() (string, error) {
	a, err := registry.NewAuthority(s.fork.Rows())
	if err != nil {
		return "", err
	}
	return cmp.Or(a.Root(), "platform"), nil
}

func monthsAfter(t domain.Instant, n int) domain.Instant {
	return domain.InstantOf(t.Time().AddDate(0, n, 0))
}

// renew renews a commitment, or ends it with its term.
func (s *supposer) renew(c *Change) error {
	a, err := registry.NewAuthority(s.fork.Rows())
	if err != nil {
		return err
	}
	held, err := planning.CommitmentsHeld(s.fork.Rows(), a, s.at)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(held, func(e planning.CommitmentEntry) bool { return e.Commitment == c.Commitment })
	if i < 0 {
		return unfit("no commitment %q is held then; the expiry ladder of \"quartermaster plan\" lists those "+
			"there are", c.Commitment)
	}
	e := &held[i]
	last := e.Terms[len(e.Terms)-1]
	env := domain.Envelope{Time: s.at, Subject: c.Commitment, Workspace: e.Workspace}
	if c.End {
		env.Event = &domain.CommitmentEnded{Commitment: c.Commitment, At: last.Term.To, Reason: "supposed: not renewed"}
		return s.append(env)
	}
	hourly, upfront := last.Hourly, domain.Money{Amount: decimal.Zero, Currency: last.Hourly.Currency}
	if c.Factor != nil {
		hourly.Amount = hourly.Amount.Mul(median(c.Factor))
		upfront = domain.Money{
			Amount:   last.Upfront.Amount.Mul(median(c.Factor)),
			Currency: cmp.Or(last.Upfront.Currency, last.Hourly.Currency),
		}
	} else {
		hourly.Amount = median(c.Hourly)
	}
	units := last.Units
	if c.Units != nil {
		units = uint32(median(c.Units).IntPart())
	}
	env.Event = &domain.CommitmentRenewed{
		Commitment: c.Commitment, Term: domain.Interval{From: last.Term.To, To: monthsAfter(last.Term.To, c.Term)},
		Units: units, Upfront: upfront, Hourly: hourly,
	}
	return s.append(env)
}

// limit sets a supplier's quota. A quota that may stay unchanged is not set: trials in which it
// changes have the new limit, and the others every step of the old one.
func (s *supposer) limit(c *Change) error {
	a, err := registry.NewAuthority(s.fork.Rows())
	if err != nil {
		return err
	}
	from := s.effect(c)
	quotas, err := market.OnDemandQuotas(s.fork.Rows(), a, from)
	if err != nil {
		return err
	}
	limit := uint64(median(c.LimitGPUs).IntPart())
	set := func(account, model string) domain.Envelope {
		return domain.Envelope{Time: s.at, Subject: account, Event: &domain.OnDemandQuotaSet{
			Market: domain.Market{Provider: c.Provider, Region: c.Region}, Account: account, GPUModel: model,
			LimitGPUs: limit, EffectiveFrom: from,
		}}
	}
	var events []domain.Envelope
	for i := range quotas {
		q := &quotas[i]
		if q.Market.Provider == c.Provider && q.Market.Region == c.Region &&
			(c.Account == "" || c.Account == q.Account) && (c.Model == "" || named(c.Model, q.Model)) {
			events = append(events, set(q.Account, q.GPUModel))
		}
	}
	if len(events) > 1 {
		return unfit("%d quotas of %s are known: name account and model", len(events), c.selector())
	}
	switch {
	case len(events) == 0 && c.Probability != nil:
		limit = noQuota // the placeholder for a quota that does not exist without the change
		fallthrough
	case len(events) == 0:
		events = append(events, set(cmp.Or(c.Account, "what-if"), c.Model))
	case c.Probability != nil:
		return nil
	}
	return s.append(events...)
}
