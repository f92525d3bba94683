package instance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Contract is an offer under negotiation: a purchase of capacity or of a price that is signed at
// most once. Amounts, units and epochs are those of an [Offer].
type Contract struct {
	Name     string `json:"name"`
	Provider string `json:"provider,omitempty"`
	// Pool is given by name, or determined by Region and Class if only one pool matches.
	Pool   string `json:"pool,omitempty"`
	Region string `json:"region,omitempty"`
	Class  string `json:"class,omitempty"`
	// Kind is reserved or capacity_block; the default is reserved.
	Kind               domain.OfferKind `json:"kind,omitempty"`
	Term               int              `json:"term_epochs"`
	Upfront            domain.Decimal   `json:"upfront"`
	Hourly             domain.Decimal   `json:"hourly"`
	Currency           string           `json:"currency,omitempty"`
	GuaranteesCapacity bool             `json:"guarantees_capacity"`
	PerUnit            int              `json:"covers_per_unit,omitempty"`
	// From and To bound the day on which the term may begin. Without To it begins with the first
	// epoch at or after From.
	From      domain.Instant `json:"from,omitempty"`
	To        domain.Instant `json:"to,omitempty"`
	LeadHours int            `json:"lead_time_hours,omitempty"`
	MinUnits  int            `json:"min_units,omitempty"`
	MaxUnits  int            `json:"max_units,omitempty"`
	Lot       int            `json:"lot,omitempty"`
	Tiers     []Tier         `json:"tiers,omitempty"`
	Ramp      []RampStep     `json:"ramp,omitempty"`
	// Renews means that the term continues for a second one at the same hourly price, unless notice
	// is given NoticeDays before the end of the first. Both options are weighed.
	Renews     bool   `json:"renews,omitempty"`
	NoticeDays int    `json:"notice_days,omitempty"`
	Citation   string `json:"citation,omitempty"`
}

// offers converts a contract to offers of an instance, those with a second term last. They exclude
// one another, because the contract is signed once.
func (c *Contract) offers(in *Instance) ([]Offer, error) {
	pool, err := c.pool(in)
	if err != nil {
		return nil, err
	}
	kind := cmp.Or(c.Kind, domain.OfferReserved)
	if kind != domain.OfferReserved && kind != domain.OfferCapacityBlock {
		return nil, fault("/kind", nil, "%q is neither %s nor %s: write owned hardware and commitments to spend "+
			"into an instance", clip(string(kind)), domain.OfferReserved, domain.OfferCapacityBlock)
	}
	if c.LeadHours < 0 || c.LeadHours > 1_000_000 {
		return nil, fault("/lead_time_hours", nil, "%d is not within 0 to 1000000", c.LeadHours)
	}
	if c.NoticeDays < 0 || c.NoticeDays > 3660 {
		return nil, fault("/notice_days", nil, "%d is not within 0 to 3660", c.NoticeDays)
	}
	spans := in.Spans()
	first := max(c.From, in.From+domain.Instant(c.LeadHours)*domain.Hour)
	s := slices.IndexFunc(spans, func(s domain.Interval) bool { return s.From >= first })
	if s < 0 || c.To != 0 && spans[s].From >= c.To {
		return nil, fault("/from", nil, "its term cannot begin with an epoch of the horizon, %s to %s",
			day(spans[0].From), day(spans[len(spans)-1].To))
	}
	o := Offer{
		ID: c.Name, Provider: c.Provider, Kind: kind, Pool: pool, Term: c.Term, Upfront: c.Upfront, Hourly: c.Hourly,
		Currency:           c.Currency,
		GuaranteesCapacity: c.GuaranteesCapacity, PerUnit: c.PerUnit, From: spans[s].From, To: c.To,
		LeadHours: c.LeadHours, MinUnits: c.MinUnits,
		MaxUnits: c.MaxUnits, Lot: c.Lot, Tiers: c.Tiers, Ramp: c.Ramp, Citation: c.Citation,
	}
	if o.To == 0 {
		o.To = o.From + domain.Hour
	}
	out := []Offer{o}
	ends := s + c.Term
	if c.Renews && ends < len(spans) && c.Term > 0 {
		if upfront := slices.ContainsFunc(c.Tiers, func(t Tier) bool {
			return !t.Upfront.IsZero()
		}); upfront || !c.Upfront.IsZero() {
			return nil, fault("/renews", nil, "it is paid upfront, and what renewing it costs upfront is not "+
				"said: leave it out, and weigh the renewal as a contract of its own")
		}
		o.ID, o.Term = c.Name+", with a second term", 2*c.Term
		out = append(out, o)
	}
	once := len(out) > 1 || len(c.Tiers) > 0 || c.To != 0
	for i := range out {
		if once {
			out[i].Exclusive = "contract " + c.Name
		}
	}
	beside := *in
	beside.Offers = slices.Concat(in.Offers, out)
	var faults *Faults
	if err := beside.Validate(); errors.As(err, &faults) {
		mine := &Faults{More: faults.More}
		for _, f := range faults.List {
			for i := range out {
				at := fmt.Sprintf("/offers/%d", len(in.Offers)+i)
				if path, ok := strings.CutPrefix(f.Path, at); ok && !slices.ContainsFunc(mine.List, func(x Fault) bool {
					return x.Path == path && x.Detail == f.Detail
				}) {
					if path == "/id" {
						path = "/name"
					}
					mine.List = append(mine.List, Fault{Path: path, Detail: f.Detail})
				}
			}
		}
		if len(mine.List) == 0 {
			return nil, err
		}
		return nil, mine
	} else if err != nil {
		return nil, err
	}
	return out, nil
}

// pool finds the pool that a contract is for.
func (c *Contract) pool(in *Instance) (string, error) {
	if c.Pool != "" {
		if c.Region+c.Class != "" {
			return "", fault("/pool", nil, "give either pool, or region and class")
		}
		if slices.ContainsFunc(in.Pools, func(p Pool) bool { return p.ID == c.Pool }) {
			return c.Pool, nil
		}
		return "", fault("/pool", nil, "there is no pool %q; %s", clip(c.Pool), poolsOf(in))
	}
	if c.Region == "" || c.Class == "" {
		return "", fault("", nil, "no pool is named: give pool, or region and class")
	}
	var found []string
	for i := range in.Pools {
		if p := &in.Pools[i]; p.Region == c.Region && p.Class == c.Class {
			found = append(found, p.ID)
		}
	}
	// Of several, the one at which demand is at home.
	home := slices.DeleteFunc(slices.Clone(found), func(id string) bool {
		return !slices.ContainsFunc(in.Demands, func(d Demand) bool { return d.Pool == id })
	})
	if len(home) == 1 {
		return home[0], nil
	}
	switch len(found) {
	case 0:
		return "", fault("/class", nil, "there is no pool of %q in %q; %s", clip(c.Class), clip(c.Region), poolsOf(in))
	case 1:
		return found[0], nil
	}
	slices.Sort(found)
	return "", fault("/class", nil, "%d pools match class %q in region %q: name one as pool: %s", len(found),
		clip(c.Class), clip(c.Region), strings.Join(found[:min(len(found), 6)], ", "))
}

func poolsOf(in *Instance) string {
	var names []string
	for i := range in.Pools {
		names = append(names, in.Pools[i].ID)
	}
	slices.Sort(names)
	if n := len(names); n > 12 {
		names = append(names[:12], fmt.Sprintf("and %d more", n-12))
	}
	return "there are " + strings.Join(names, ", ")
}
