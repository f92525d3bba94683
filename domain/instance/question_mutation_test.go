package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/check/certificate"
	"quartermaster/domain/procurement/check/question"
)

// each changes every member of a list, and reports whether it changed one.
func each[T any](list []T, change func(*T) bool) bool {
	some := false
	for i := range list {
		some = change(&list[i]) || some
	}
	return some
}

// set changes a value, and reports whether it did.
func setTo[T comparable](to *T, v T) bool {
	if *to == v {
		return false
	}
	*to = v
	return true
}

func scaled(to *domain.Decimal, by string) bool {
	if to.IsZero() {
		return false
	}
	*to = to.Mul(dec(by))
	return true
}

// mistakes are what a translation of a question may get wrong: a constraint is dropped, a number is
// another. Each reports whether it changed anything.
var mistakes = map[string]func(in *Instance) bool{
	"another discount": func(in *Instance) bool { in.AnnualRate = in.AnnualRate.Add(dec("0.01")); return true },
	"no discount":      func(in *Instance) bool { return scaled(&in.AnnualRate, "0") },
	"another salvage":  func(in *Instance) bool { in.Salvage = dec("1").Sub(in.Salvage); return true },
	"another rate of exchange": func(in *Instance) bool {
		for k, v := range in.FX {
			in.FX[k] = v.Add(dec("0.001"))
		}
		return len(in.FX) > 0
	},
	"a shifted month": func(in *Instance) bool {
		if in.Epoch != Days {
			return false
		}
		in.From = domain.InstantOf(in.From.Time().AddDate(0, 1, 0))
		return true
	},
	"days for months": func(in *Instance) bool {
		if in.Epoch != Months {
			return false
		}
		hours := int64(0)
		for _, s := range in.Spans() {
			hours += hoursOf(s)
		}
		in.Epoch, in.Epochs = Days, int(hours/24)
		return true
	},
	"halved demand": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool {
			return each(d.Hourly, func(n *int) bool { return setTo(n, *n/2) })
		})
	},
	"demand an hour later": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool {
			if len(d.Hourly) == 0 {
				return false
			}
			d.Hourly = slices.Concat(d.Hourly[len(d.Hourly)-1:], d.Hourly[:len(d.Hourly)-1])
			return true
		})
	},
	"one unit less at the peak": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool {
			if len(d.Hourly) == 0 || slices.Max(d.Hourly) == 0 {
				return false
			}
			d.Hourly[slices.Index(d.Hourly, slices.Max(d.Hourly))]--
			return true
		})
	},
	"a shorter peak": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool {
			return each(d.Duration, func(c *[]Step) bool {
				last := &(*c)[len(*c)-1]
				if len(*c) < 2 || last.Hours < 2 {
					return false
				}
				last.Hours--
				(*c)[0].Hours++
				return true
			})
		})
	},
	"a higher curve": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool {
			return each(d.Duration, func(c *[]Step) bool { (*c)[len(*c)-1].Units++; return true })
		})
	},
	"all interruptible": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool {
			is := d.Interruptible.Equal(one)
			d.Interruptible = one
			return !is
		})
	},
	"nothing interruptible": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return scaled(&d.Interruptible, "0") })
	},
	"dearer shortage": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return scaled(&d.Shortage, "1.01") })
	},
	"any latency": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return setTo(&d.LatencyBudgetMS, 10_000) })
	},
	"no overflow": func(in *Instance) bool { some := len(in.Overflow) > 0; in.Overflow = nil; return some },
	"overflow without a price": func(in *Instance) bool {
		return each(in.Overflow, func(o *Overflow) bool { return scaled(&o.Hourly, "0") })
	},
	"demand that moves for nothing": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return scaled(&d.OverflowHourly, "0") })
	},
	"overflow without overhead": func(in *Instance) bool {
		return each(in.Overflow, func(o *Overflow) bool { return scaled(&o.Overhead, "0") })
	},
	"any country": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { some := len(d.Countries) > 0; d.Countries = nil; return some })
	},
	"any certification": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { some := len(d.Certifications) > 0; d.Certifications = nil; return some })
	},
	"no substitutes": func(in *Instance) bool { some := len(in.Substitutes) > 0; in.Substitutes = nil; return some },
	"another ratio": func(in *Instance) bool {
		return each(in.Substitutes, func(s *Substitute) bool { return scaled(&s.Units, "1.2") })
	},
	"a fixed deferral": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { some := d.waits(); d.DeferHours, d.DeferrableShare = 0, dec("0"); return some })
	},
	"longer windows": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return d.waits() && setTo(&d.DeferHours, 24) })
	},
	"shorter windows": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return d.waits() && setTo(&d.DeferHours, (d.DeferHours+1)/2) })
	},
	"another deferrable share": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return d.waits() && scaled(&d.DeferrableShare, "0.5") })
	},
	"no spares": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { some := d.Buffer != nil; d.Buffer = nil; return some })
	},
	"a lower service level": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool {
			if d.Buffer != nil {
				d.Buffer.ServiceLevel = dec("0.6")
			}
			return d.Buffer != nil
		})
	},
	"a removed quota": func(in *Instance) bool {
		some := len(in.Quotas) > 0
		in.Quotas = nil
		each(in.Pools, func(p *Pool) bool { p.Quota, p.QuotaPerUnit = "", 0; return true })
		return some
	},
	"a larger quota": func(in *Instance) bool {
		return each(in.Quotas, func(q *Quota) bool { q.Limit++; return true })
	},
	"a quota that stays": func(in *Instance) bool {
		return each(in.Quotas, func(q *Quota) bool { some := len(q.Path) > 0; q.Path = nil; return some })
	},
	"a quota in units": func(in *Instance) bool {
		return each(in.Pools, func(p *Pool) bool { some := p.QuotaPerUnit > 1; p.QuotaPerUnit = 0; return some })
	},
	"another price on demand": func(in *Instance) bool {
		return each(in.Pools, func(p *Pool) bool { return p.OnDemand != nil && scaled(&p.OnDemand.Hourly, "0.99") })
	},
	"prices that stay": func(in *Instance) bool {
		return each(in.Pools, func(p *Pool) bool {
			some := p.OnDemand != nil && len(p.OnDemand.Path) > 0
			if some {
				p.OnDemand.Path = nil
			}
			return some
		})
	},
	"no spot": func(in *Instance) bool {
		each(in.Scenarios, func(s *Scenario) bool { s.Spot = nil; return true })
		return each(in.Pools, func(p *Pool) bool { some := p.Spot != nil; p.Spot = nil; return some })
	},
	"spot without overhead": func(in *Instance) bool {
		return each(in.Pools, func(p *Pool) bool { return p.Spot != nil && scaled(&p.Spot.Overhead, "0") })
	},
	"any spot": func(in *Instance) bool {
		each(in.Scenarios, func(s *Scenario) bool { s.Spot = nil; return true })
		return each(in.Pools, func(p *Pool) bool {
			some := p.Spot != nil && p.Spot.Available != nil
			if some {
				p.Spot.Available = nil
			}
			return some
		})
	},
	"a forgotten offer": func(in *Instance) bool {
		some := len(in.Offers) > 0
		in.Offers = in.Offers[:max(0, len(in.Offers)-1)]
		return some
	},
	"no offers": func(in *Instance) bool { some := len(in.Offers) > 0; in.Offers = []Offer{}; return some },
	"a cheaper term": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return scaled(&o.Hourly, "0.98") })
	},
	"no upfront": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return scaled(&o.Upfront, "0") })
	},
	"a longer term": func(in *Instance) bool { return each(in.Offers, func(o *Offer) bool { o.Term++; return true }) },
	"prices do not fall": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return scaled(&o.Decline, "0") })
	},
	"no lead time": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return setTo(&o.LeadHours, 0) })
	},
	"sold at any time": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { some := o.To != 0; o.From, o.To = 0, 0; return some })
	},
	"no least order": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return setTo(&o.MinUnits, 0) })
	},
	"no most order": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return setTo(&o.MaxUnits, 0) })
	},
	"a dropped lot": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool {
			some := o.Lot > 1 && len(o.Ramp) == 0
			o.Lot = max(o.Lot, 1)
			return some && setTo(&o.Lot, 0)
		})
	},
	"dropped tiers": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { some := len(o.Tiers) > 0; o.Tiers = nil; return some })
	},
	"tiers from one unit less": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return each(o.Tiers, func(t *Tier) bool { t.Units--; return true }) })
	},
	"a dropped ramp": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { some := len(o.Ramp) > 0; o.Ramp = nil; return some })
	},
	"exclusive no more": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return setTo(&o.Exclusive, "") })
	},
	"covers one unit": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return o.PerUnit > 1 && setTo(&o.PerUnit, 1) })
	},
	"guaranteed all": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool {
			return o.Kind != domain.OfferSpendCommitment && setTo(&o.GuaranteesCapacity, true)
		})
	},
	"free power": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return o.Owned != nil && scaled(&o.Owned.TariffKWh, "0") })
	},
	"free space": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return o.Owned != nil && scaled(&o.Owned.SpaceMonthly, "0") })
	},
	"hardware that nobody buys back": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return o.Owned != nil && scaled(&o.Owned.Salvage, "0") })
	},
	"a better committed price": func(in *Instance) bool {
		better := func(rates map[string]domain.Decimal) bool {
			for k, v := range rates {
				rates[k] = v.Mul(dec("0.9"))
			}
			return len(rates) > 0
		}
		some := each(in.Offers, func(o *Offer) bool { return better(o.Rates) })
		return each(in.Commitments, func(c *Commitment) bool { return better(c.Rates) }) || some
	},
	"commits what is paid by the hour": func(in *Instance) bool {
		some := each(in.Offers, func(o *Offer) bool { return scaled(&o.Commits, "0") })
		return each(in.Commitments, func(c *Commitment) bool { return scaled(&c.Commits, "0") }) || some
	},
	"commits more": func(in *Instance) bool {
		some := each(in.Offers, func(o *Offer) bool { return scaled(&o.Commits, "1.1") })
		return each(in.Commitments, func(c *Commitment) bool { return scaled(&c.Commits, "1.1") }) || some
	},
	"nothing held": func(in *Instance) bool { some := len(in.Commitments) > 0; in.Commitments = nil; return some },
	"held for nothing": func(in *Instance) bool {
		return each(in.Commitments, func(c *Commitment) bool {
			return c.Kind != domain.OfferSpendCommitment && scaled(&c.Hourly, "0")
		})
	},
	"one unit more held": func(in *Instance) bool {
		return each(in.Commitments, func(c *Commitment) bool {
			if c.Kind == domain.OfferSpendCommitment {
				return false
			}
			c.Units++
			return true
		})
	},
	"held for a day longer": func(in *Instance) bool {
		return each(in.Commitments, func(c *Commitment) bool { some := c.Term.To != 0; c.Term.To += domain.Day; return some })
	},
	"no renewals": func(in *Instance) bool {
		return each(in.Commitments, func(c *Commitment) bool { return setTo(&c.Renews, false) })
	},
	"a later day of notice": func(in *Instance) bool {
		return each(in.Commitments, func(c *Commitment) bool { return c.NoticeBy != 0 && setTo(&c.NoticeBy, c.Term.To) })
	},
	"another provider": func(in *Instance) bool {
		if in.Posture == nil || in.Posture.Kind != MultiProvider || len(in.providers()) < 2 {
			return false
		}
		other := in.Pools[0].Provider + "s"
		in.Pools[0].Provider = other
		return true
	},
	"no posture": func(in *Instance) bool { some := in.Posture != nil; in.Posture = nil; return some },
	"half a posture": func(in *Instance) bool {
		return in.Posture != nil && scaled(&in.Posture.Share, "0.5")
	},
	"a cheap cold standby": func(in *Instance) bool {
		return in.Posture != nil && in.Posture.Cold != nil && scaled(in.Posture.Cold, "0.5")
	},
	"no budgets": func(in *Instance) bool { some := len(in.Budgets) > 0; in.Budgets = nil; return some },
	"a larger budget": func(in *Instance) bool {
		return each(in.Budgets, func(b *Budget) bool { return scaled(&b.Amount, "1.5") })
	},
	"a smaller budget": func(in *Instance) bool {
		return each(in.Budgets, func(b *Budget) bool { return scaled(&b.Amount, "0.7") })
	},
	"a budget of another basis": func(in *Instance) bool {
		return each(in.Budgets, func(b *Budget) bool {
			if b.Basis == Cash {
				b.Basis = Accrual
			} else {
				b.Basis = Cash
			}
			return true
		})
	},
	"a budget that ends later": func(in *Instance) bool {
		return each(in.Budgets, func(b *Budget) bool { return setTo(&b.Interval.To, 0) })
	},
	"all may be unserved": func(in *Instance) bool {
		some := in.Limits.MaxUnservedShare != nil
		in.Limits.MaxUnservedShare = nil
		return some
	},
	"any share of spot": func(in *Instance) bool {
		some := in.Limits.MaxSpotShare != nil
		in.Limits.MaxSpotShare = nil
		return some
	},
	"one scenario": func(in *Instance) bool { some := len(in.Scenarios) > 1; in.Scenarios = nil; return some },
	"other weights": func(in *Instance) bool {
		if len(in.Scenarios) > 1 {
			in.Scenarios[0].Weight++
		}
		return len(in.Scenarios) > 1
	},
	"scenarios without factors": func(in *Instance) bool {
		return each(in.Scenarios, func(s *Scenario) bool {
			some := s.Factor != 0 || len(s.Factors) > 0
			s.Factor, s.Factors = 0, nil
			return some
		})
	},
	"cheaper spot": func(in *Instance) bool {
		return each(in.Pools, func(p *Pool) bool { return p.Spot != nil && scaled(&p.Spot.Hourly, "0.9") })
	},
	"spot prices that stay": func(in *Instance) bool {
		return each(in.Pools, func(p *Pool) bool {
			some := p.Spot != nil && len(p.Spot.Path) > 0
			if some {
				p.Spot.Path = nil
			}
			return some
		})
	},
	"prices of the next step": func(in *Instance) bool {
		return each(in.Pools, func(p *Pool) bool {
			of := func(x *Price) bool {
				return each(x.Path, func(s *PriceStep) bool { s.Hourly = s.Hourly.Mul(dec("0.97")); return true })
			}
			some := p.OnDemand != nil && of(p.OnDemand)
			return p.Spot != nil && of(&p.Spot.Price) || some
		})
	},
	"prices that change a day later": func(in *Instance) bool {
		return each(in.Pools, func(p *Pool) bool {
			of := func(x *Price) bool {
				return each(x.Path, func(s *PriceStep) bool { s.From += domain.Day; return true })
			}
			some := p.OnDemand != nil && of(p.OnDemand)
			return p.Spot != nil && of(&p.Spot.Price) || some
		})
	},
	"a quota that changes a day later": func(in *Instance) bool {
		return each(in.Quotas, func(q *Quota) bool {
			return each(q.Path, func(s *QuotaStep) bool { s.From += domain.Day; return true })
		})
	},
	"a larger quota later": func(in *Instance) bool {
		return each(in.Quotas, func(q *Quota) bool {
			return each(q.Path, func(s *QuotaStep) bool { s.Limit++; return true })
		})
	},
	"all prices in one currency": func(in *Instance) bool {
		some := each(in.Pools, func(p *Pool) bool {
			some := p.OnDemand != nil && setTo(&p.OnDemand.Currency, "")
			return p.Spot != nil && setTo(&p.Spot.Currency, "") || some
		})
		some = each(in.Offers, func(o *Offer) bool { return setTo(&o.Currency, "") }) || some
		return each(in.Commitments, func(c *Commitment) bool { return setTo(&c.Currency, "") }) || some
	},
	"one region": func(in *Instance) bool {
		return each(in.Pools, func(p *Pool) bool { return setTo(&p.Region, in.Regions[0].ID) })
	},
	"one country": func(in *Instance) bool {
		return each(in.Regions, func(r *Region) bool { return setTo(&r.Country, in.Regions[0].Country) })
	},
	"one class of machines": func(in *Instance) bool {
		return each(in.Pools, func(p *Pool) bool { return setTo(&p.Class, in.Pools[0].Class) })
	},
	"machines of another size": func(in *Instance) bool {
		return each(in.Pools[:1], func(p *Pool) bool { p.GPUs += 8; return true })
	},
	"machines of another kind": func(in *Instance) bool {
		return each(in.Pools[:1], func(p *Pool) bool { p.GPUs = 0; return setTo(&p.Unit, "gpu") })
	},
	"certified everywhere": func(in *Instance) bool {
		var all []string
		for _, d := range in.Demands {
			all = append(all, d.Certifications...)
		}
		slices.Sort(all)
		all = slices.Compact(all)
		return each(in.Pools, func(p *Pool) bool {
			some := !slices.Equal(p.Certifications, all)
			p.Certifications = all
			return some && len(all) > 0
		})
	},
	"another home": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return setTo(&d.Pool, in.Pools[0].ID) })
	},
	"all is serving": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return setTo(&d.Class, "serving") })
	},
	"fewer failures": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return d.Buffer != nil && scaled(&d.Buffer.FailuresPerGPUHour, "0.05") })
	},
	"quicker repairs": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return d.Buffer != nil && scaled(&d.Buffer.RepairHours, "0.05") })
	},
	"a rate that is known": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return d.Buffer != nil && setTo(&d.Buffer.Counted, 0) })
	},
	"nodes of one unit": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return d.Buffer != nil && setTo(&d.Buffer.UnitsPerNode, 0) })
	},
	"units of one GPU": func(in *Instance) bool {
		return each(in.Demands, func(d *Demand) bool { return d.Buffer != nil && setTo(&d.Buffer.GPUsPerUnit, 0) })
	},
	"nearer regions": func(in *Instance) bool {
		return each(in.Overflow, func(o *Overflow) bool { return setTo(&o.RoundTripMS, 1) })
	},
	"overflow from elsewhere": func(in *Instance) bool {
		return each(in.Overflow, func(o *Overflow) bool { o.From, o.To = o.To, o.From; return true })
	},
	"substitutes for all": func(in *Instance) bool {
		return each(in.Substitutes, func(s *Substitute) bool { some := len(s.Demands) > 0; s.Demands = nil; return some })
	},
	"a substitute the other way round": func(in *Instance) bool {
		return each(in.Substitutes, func(s *Substitute) bool { s.For, s.Class = s.Class, s.For; return true })
	},
	"sold for another pool": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return o.Pool != "" && setTo(&o.Pool, in.Pools[0].ID) })
	},
	"held for another pool": func(in *Instance) bool {
		return each(in.Commitments, func(c *Commitment) bool { return c.Pool != "" && setTo(&c.Pool, in.Pools[0].ID) })
	},
	"reserved what is owned": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool {
			some := o.Owned != nil
			if some {
				o.Kind, o.Owned = domain.OfferReserved, nil
			}
			return some
		})
	},
	"no committed spend held": func(in *Instance) bool {
		before := len(in.Commitments)
		in.Commitments = slices.DeleteFunc(in.Commitments, func(c Commitment) bool { return c.Kind == domain.OfferSpendCommitment })
		return len(in.Commitments) < before
	},
	"less power": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return o.Owned != nil && scaled(&o.Owned.PowerKW, "0.5") })
	},
	"no overhead of power": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return o.Owned != nil && scaled(&o.Owned.PUE, "1.1") })
	},
	"a free network": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return o.Owned != nil && scaled(&o.Owned.NetworkMonthly, "0") })
	},
	"free support": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool { return o.Owned != nil && scaled(&o.Owned.SupportMonthly, "0") })
	},
	"cheaper tiers": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool {
			return each(o.Tiers, func(t *Tier) bool { return scaled(&t.Hourly, "0.95") })
		})
	},
	"tiers without upfront": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool {
			return each(o.Tiers, func(t *Tier) bool { return scaled(&t.Upfront, "0") })
		})
	},
	"a later ramp": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool {
			if len(o.Ramp) < 2 || o.Ramp[len(o.Ramp)-1].Epoch+1 >= o.Term {
				return false
			}
			o.Ramp[len(o.Ramp)-1].Epoch++
			return true
		})
	},
	"a full ramp": func(in *Instance) bool {
		return each(in.Offers, func(o *Offer) bool {
			return each(o.Ramp, func(r *RampStep) bool { return setTo(&r.Permille, 1000) })
		})
	},
	"held without upfront": func(in *Instance) bool {
		return each(in.Commitments, func(c *Commitment) bool { return scaled(&c.Upfront, "0") })
	},
	"guaranteed what is held": func(in *Instance) bool {
		return each(in.Commitments, func(c *Commitment) bool {
			return c.Kind != domain.OfferSpendCommitment && setTo(&c.GuaranteesCapacity, true)
		})
	},
	"held from a day later": func(in *Instance) bool {
		return each(in.Commitments, func(c *Commitment) bool { c.Term.From += domain.Day; return true })
	},
	"a posture of regions": func(in *Instance) bool {
		return in.Posture != nil && in.Posture.Kind == MultiProvider && setTo(&in.Posture.Kind, ActiveActive)
	},
	"all is protected": func(in *Instance) bool {
		if in.Posture == nil || len(in.Posture.Demands) == 0 {
			return false
		}
		in.Posture.Demands = nil
		for _, d := range in.Demands {
			in.Posture.Demands = append(in.Posture.Demands, d.ID)
		}
		return len(in.Demands) > 1
	},
	"one demand is protected": func(in *Instance) bool {
		if in.Posture == nil || len(in.Posture.Demands) > 0 {
			return false
		}
		in.Posture.Demands = []string{in.Demands[0].ID}
		return len(in.Demands) > 1
	},
	"another standby": func(in *Instance) bool {
		return in.Posture != nil && in.Posture.Standby != "" && setTo(&in.Posture.Standby, in.Regions[len(in.Regions)-1].ID)
	},
	"a hot standby": func(in *Instance) bool {
		if in.Posture == nil || in.Posture.Cold == nil {
			return false
		}
		in.Posture.Cold = nil
		return true
	},
	"a budget that begins sooner": func(in *Instance) bool {
		return each(in.Budgets, func(b *Budget) bool { return setTo(&b.Interval.From, in.From) })
	},
	"a larger share unserved": func(in *Instance) bool {
		return in.Limits.MaxUnservedShare != nil && setTo(in.Limits.MaxUnservedShare, dec("0.5"))
	},
	"a larger share of spot": func(in *Instance) bool {
		return in.Limits.MaxSpotShare != nil && setTo(in.Limits.MaxSpotShare, dec("0.9"))
	},
	"scenarios with the same spot": func(in *Instance) bool {
		return each(in.Scenarios, func(s *Scenario) bool { some := len(s.Spot) > 0; s.Spot = nil; return some })
	},
	"scenarios with the same demand": func(in *Instance) bool {
		return each(in.Scenarios, func(s *Scenario) bool { some := len(s.Hourly) > 0; s.Hourly = nil; return some })
	},
}

// protected is machines of two providers in two regions, of which those of the second are dear. Each
// carries what is protected when the other is lost: the demand for serving, or those named.
func protected(demands ...string) *Instance {
	in := daily(Demand{Hourly: hoursAt(24, 4), Class: "serving", LatencyBudgetMS: 60}, Demand{Hourly: hoursAt(24, 2), Class: "batch", LatencyBudgetMS: 60})
	in.Regions = append(in.Regions, Region{ID: "s", Country: "US"})
	in.Overflow = []Overflow{{From: "r", To: "s", RoundTripMS: 20}}
	in.Pools[0].Provider = "a"
	for i, price := range []string{"1.1", "3"} {
		p := in.Pools[0]
		p.ID, p.Region, p.Provider = fmt.Sprint("q", i), "s", []string{"a", "b"}[i]
		in.Pools = append(in.Pools, p)
		in.Offers = append(in.Offers, Offer{ID: p.ID, Kind: domain.OfferReserved, Pool: p.ID, Term: 1, Hourly: dec(price), GuaranteesCapacity: true})
	}
	in.Posture = &Posture{Kind: MultiProvider, Share: one, Demands: demands}
	return in
}

// Whatever is mistaken between the question and the solver is found: an answer that costs something
// else for the question, that the question does not sell or allow, or whose bound is above what the
// question can be answered for.
func TestQuestionFindsMistakesOfTranslation(t *testing.T) {
	lp := linearOrSkip(t)
	type base struct {
		text []byte
		in   *Instance
		best domain.Decimal
	}
	var bases []base
	paths, texts := exampleFiles(t)
	for i, text := range texts {
		in, err := Parse(paths[i], text)
		if err != nil {
			t.Fatal(err)
		}
		bases = append(bases, base{text, in, solvedBy(t, in).Cost})
	}
	// Nobody would be served, if all might stay unserved.
	idle := daily(Demand{Hourly: hoursAt(24, 2), Shortage: dec("0.5")})
	idle.Pools[0].OnDemand, idle.Limits.MaxUnservedShare = nil, new(domain.Decimal)
	// Two units are wanted, and three are the least order.
	least := daily(Demand{Hourly: hoursAt(24, 2)})
	least.Offers[0].MinUnits = 3
	for _, in := range []*Instance{idle, least, protected(), protected("d0")} {
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		bases = append(bases, base{text, in, solvedBy(t, in).Cost})
	}
	answers(t, 2, long.Count(3, 100), func(in *Instance, a *Answer, asked, _ []byte) {
		bases = append(bases, base{asked, in, a.Cost})
	})
	tried, wrong, found := 0, map[string]int{}, 0
	for _, name := range slices.Sorted(maps.Keys(mistakes)) {
		wrong[name] = 0
		for _, b := range bases {
			other, err := Parse("copy", b.text)
			if err != nil {
				t.Fatal(err)
			}
			if !mistakes[name](other) || other.Validate() != nil {
				continue
			}
			a, err := Solve(t.Context(), other, lp)
			var clash *Infeasible
			var faults *Faults
			if errors.As(err, &clash) || errors.As(err, &faults) {
				continue
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			tried++
			if a.Instance, err = b.in.Digest(); err != nil {
				t.Fatal(err)
			}
			// The compiled checker is the judge of what is wrong, and so is the known optimum.
			is := !a.LowerBound.Equal(a.Committed) && b.best.LessThan(a.LowerBound)
			if again, err := evaluated(t, b.in, a); err != nil || !again.Cost.Equal(a.Cost) || len(again.Notes) > 0 && broken(again) {
				is = true
			}
			text, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			_, err = certificate.Check(t.Context(), b.text, text)
			if err != nil && !errors.Is(err, question.ErrRejected) {
				t.Fatalf("%s: %v", name, err)
			}
			if is {
				wrong[name]++
			}
			switch {
			case is && err == nil:
				t.Errorf("%s is not found: cost %s, at least %s; the question's best is %s\n%s\n%s", name, a.Cost, a.LowerBound, b.best, b.text, text)
			case is:
				found++
			case err == nil:
				// It made no difference to what is verified; words may differ.
				if err := Check(t.Context(), b.in, a); err != nil && !errors.Is(err, check.ErrRejected) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if long.Run() && wrong[name] == 0 {
			t.Errorf("%s never made an answer wrong: the test proves nothing of it", name)
		}
	}
	t.Logf("%d mistakes of %d kinds: %d answers wrong, %d found", tried, len(mistakes), sum(wrong), found)
	t.Log(wrong)
}

// An answer to a mistaken question is refused with the constraint, and with the epoch where there is
// one.
func TestQuestionNamesWhatIsWrong(t *testing.T) {
	lp := linearOrSkip(t)
	for _, c := range []struct{ file, mistake, want string }{
		{"quota", "a removed quota", "epoch 0 (2027-01-01), scenario \"as stated\": quota \"k\" of 3 units"},
		{"n-plus-one", "no posture", "posture: when region \"r\" is lost in epoch 0 (2027-01-01), pools q, v carry 0 of 4"},
		{"lots", "a dropped lot", "offer \"o\" from epoch 0 (2027-01-01): 3 units are not in lots of 2"},
		{"budget", "no budgets", "budget \"b\" (cash, from 2027-01-01T00:00:00Z): 48.000000000 is spent, of 30"},
		{"deferrable", "a fixed deferral", "(pools p)"},
		{"deferrable", "halved demand", "demand in pool \"p\" is 24 unit-hours, spares among them, and 48 are wanted"},
		{"buffer", "no spares", "demand in pool \"p\" is 48 unit-hours, spares among them, and 72 are wanted"},
		{"tiers", "dropped tiers", "it covers 3 units of pool \"p\", at tier 3"},
		{"ramp", "a dropped ramp", "cost is 192, and comes to 144"},
		{"renewal", "no renewals", "the solution has 0 choices, and the question 4"},
		{"renewal", "one unit more held", "unused_committed is 24 unit-hours, of 48 committed"},
		{"overflow", "overflow without a price", "calendar: cash of 2027-01 is 192, and comes to 216"},
		{"substitute", "another ratio", "pool \"q\" serves 86.4 unit-hours on demand, more than may want it"},
		{"owned", "free space", "offer \"own\" from epoch 0 (2027-01-01): cost is 68.4, and comes to 70.4"},
		{"price-path", "prices that stay", "calendar: cash of 2027-01 is 144, and comes to 115.2"},
		{"scenarios", "one scenario", "recourse has 1 entries for 1 epochs and 2 scenarios"},
		{"scenarios", "a forgotten offer", "the certificate proves nothing"},
	} {
		in := workedInstance(t, c.file)
		asked, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if !mistakes[c.mistake](in) {
			t.Fatalf("%s: %s changes nothing", c.file, c.mistake)
		}
		a, err := Solve(t.Context(), in, lp)
		if err != nil {
			t.Fatalf("%s, %s: %v", c.file, c.mistake, err)
		}
		_, answered := documents(t, in, a)
		if _, err := certificate.Check(t.Context(), asked, answered); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: %v, want %q", c.file, c.mistake, err, c.want)
		}
	}
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func evaluated(t *testing.T, in *Instance, a *Answer) (*Answer, error) {
	t.Helper()
	var orders []Order
	for _, p := range a.Purchases {
		orders = append(orders, p.Order)
	}
	m, err := compile(in, nil)
	if err != nil {
		return nil, err
	}
	units, err := m.place(orders)
	if err != nil {
		return nil, err
	}
	return m.answer(&solution{units: units})
}

// broken reports whether purchases do not keep what an instance demands.
func broken(a *Answer) bool {
	return slices.ContainsFunc(a.Notes, func(n string) bool { return len(n) > 28 && n[:28] == "these purchases do not keep " })
}

// exampleFiles reads the instances of testdata.
func exampleFiles(t *testing.T) (paths []string, texts [][]byte) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	return paths, texts
}
