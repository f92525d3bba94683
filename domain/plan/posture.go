package plan

import (
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// Posture is how demand survives the loss of a region or a provider, as a policy says. It applies to the pools that
// are [Pool.Protected].
type Posture struct {
	Policy  string
	Kind    string         // [domain.PostureActiveActive] …
	Share   domain.Decimal // of the demand
	Standby string         // region that takes over; "" for active-active
	// Price is the share of the on-demand price that keeping a cold standby costs.
	Price domain.Decimal
	// Others are policies that protect demand, too. A plan has one posture, so they are only named.
	Others []string
}

// cold reports whether a posture keeps a standby that is rented when it is needed.
func (p *Posture) cold() bool { return p != nil && p.Kind == domain.PostureColdStandby }

// providers are those that guarantee a pool capacity, for sale or held, and its on-demand provider, which
// comes first.
func (k *candidate) providers() []string {
	home := k.shelf.onDemand.Market.Provider
	var out []string
	for i := range k.shelf.terms {
		if t := &k.shelf.terms[i]; t.guarantees() {
			out = append(out, t.Market.Provider)
		}
	}
	for i := range k.held {
		if h := &k.held[i]; h.guaranteed {
			out = append(out, h.of.Provider)
		}
	}
	slices.Sort(out)
	out = slices.DeleteFunc(slices.Compact(out), func(p string) bool { return p == home })
	return slices.Insert(out, 0, home)
}

// guarantees reports whether what a term covers is there.
func (t *term) guarantees() bool { return t.GuaranteesCapacity || t.Kind == domain.OfferOwned }

// byProvider reports whether the pools of a group are stated by provider, so that any one can be lost.
func (c *composer) byProvider(g *group) bool {
	in := c.protect(g)
	return in != nil && in.Kind == instance.MultiProvider
}

// poolOf is the name in an instance of the pool that has the guaranteed capacity of a provider.
func (k *candidate) poolOf(provider string) string {
	if provider == k.shelf.onDemand.Market.Provider {
		return k.name()
	}
	return k.name() + " of " + provider
}

// movable reports whether other pools of a group can take over a pool's demand when its region, or for
// active-active any region, is lost.
func (c *composer) movable(g *group, k *candidate) bool {
	if c.q.Posture.Kind == domain.PostureMultiProvider {
		all := k.providers()
		for _, l := range g.pools {
			if l != k && l.left == "" && c.route(k, l) != nil {
				all = append(all, l.providers()...)
			}
		}
		return slices.ContainsFunc(all, func(p string) bool { return p != all[0] })
	}
	return slices.ContainsFunc(g.pools, func(l *candidate) bool {
		if l == k || l.left != "" || l.Region == k.Region || c.q.Posture.Standby != "" && l.Region != c.q.Posture.Standby {
			return false
		}
		return c.route(k, l) != nil
	})
}

// protect returns the posture of a group: the demand that a policy protects, as far as another region
// may serve it. It is nil if there is none.
func (c *composer) protect(g *group) *instance.Posture {
	p := c.q.Posture
	if p == nil {
		return nil
	}
	var moving, there []string // at home in the standby region
	for _, k := range g.pools {
		switch {
		case k.left != "" || !k.Protected:
		case k.Region == p.Standby:
			there = append(there, k.name())
		case c.movable(g, k):
			moving = append(moving, k.name())
		}
	}
	if len(moving) == 0 {
		return nil
	}
	if p.Kind == domain.PostureMultiProvider {
		return &instance.Posture{Kind: instance.MultiProvider, Share: p.Share, Demands: slices.Sorted(slices.Values(moving))}
	}
	out := &instance.Posture{
		Kind: instance.ActiveActive, Share: p.Share, Standby: p.Standby, Demands: slices.Sorted(slices.Values(append(moving, there...))),
	}
	if p.Standby != "" {
		out.Kind = instance.ActivePassive
	}
	if p.cold() {
		out.Cold = &p.Price
	}
	return out
}

// protection says what a posture does for a pool, "" if nothing.
func (c *composer) protection(g *group, k *candidate) string {
	p := c.q.Posture
	if p == nil || !k.Protected {
		return ""
	}
	if p.Kind == domain.PostureMultiProvider {
		if in := c.protect(g); in == nil || !slices.Contains(in.Demands, k.name()) {
			return fmt.Sprintf("not protected: the policy %s protects it against the loss of a provider, and %s alone serves it",
				p.Policy, k.shelf.onDemand.Market.Provider)
		}
		return fmt.Sprintf("by the policy %s, guaranteed capacity of the other providers carries %s of its peak when any one is lost",
			p.Policy, p.Share)
	}
	how := "guaranteed capacity of the other regions carries"
	switch p.Kind {
	case domain.PostureHotStandby:
		how = fmt.Sprintf("guaranteed capacity in %s carries", p.Standby)
	case domain.PostureColdStandby:
		how = fmt.Sprintf("capacity rented in %s carries", p.Standby)
	}
	switch in := c.protect(g); {
	case k.Region == p.Standby:
		return fmt.Sprintf("the policy %s makes its region the standby of others: its own demand is not protected", p.Policy)
	case in == nil || !slices.Contains(in.Demands, k.name()):
		where := "no other region"
		if p.Standby != "" {
			where = p.Standby + " not"
		}
		return fmt.Sprintf("not protected: the policy %s protects it against the loss of its region, and %s may serve its demand: "+
			"every deployment declared for it needs a latency budget, no certification or cluster may bind it, and machines of the "+
			"kind must be offered there, in a region that the plan covers", p.Policy, where)
	}
	return fmt.Sprintf("by the policy %s, %s %s of its peak when its region is lost", p.Policy, how, p.Share)
}
