package plan

import (
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
)

// A pool that cannot be planned is named, and the other is planned.
func TestOneBadPool(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(*Pool)
		reason string
	}{
		"nothing sold":  {func(p *Pool) { p.Offers = nil }, "nobody offers it on demand"},
		"currency":      {func(p *Pool) { p.Offers[0].Currency = "EUR" }, "priced in EUR, the plan is in USD"},
		"size":          {func(p *Pool) { p.NodeGPUs = 4 }, "in machines of 1 GPUs, the fleet there has machines of 4"},
		"no region":     {func(p *Pool) { p.Region, p.Offers = "", nil }, "its region is not known"},
		"never seen":    {func(p *Pool) { p.Series = nil }, "never observed"},
		"short history": {func(p *Pool) { p.Series[0].Milli = p.Series[0].Milli[:100]; p.Series[0].From = at("2026-05-20") }, "at least a week"},
		"ended":         {func(p *Pool) { p.Series[0].From = at("2026-03-01") }, "no demand data since 2026-03-29T00:00:00Z, more than 8 weeks before the plan"},
		"huge demand":   {func(p *Pool) { p.Series[0].Milli[0] = 1 << 60 }, "at most 1000000 are planned for"},
		"huge price":    {func(p *Pool) { p.Offers[0].Hourly = dec("1e12") }, "too large"},
		"huge worth":    {func(p *Pool) { p.Offers[0].Hourly = dec("1e11") }, "too large"},
		"no such name":  {func(p *Pool) { p.Kind += " " }, "breaks a rule"},
	} {
		p := even("2026-06-01", 10)
		p.Region = "bad"
		c.spoil(&p)
		q := over(1, even("2026-06-01", 10), p)
		q.Held = []Held{held("2026-01-01", "2027-01-01")}
		q.Held[0].Region = p.Region
		q.Expiry = q.Held
		got := compute(t, q)
		if len(got.Excluded) != 1 || !strings.Contains(got.Excluded[0].Reason, c.reason) || len(got.Regions) != 1 || got.Regions[0].Region != "r" {
			t.Errorf("%s: left out %v, %d regions", name, got.Excluded, len(got.Regions))
			continue
		}
		if got.Excluded[0].Next == "" || got.Empty() {
			t.Errorf("%s: left out %+v with nothing to do, empty %t", name, got.Excluded[0], got.Empty())
		}
		equal(t, name, got.Total.Cost, "72000")
		q.Pools = q.Pools[1:]
		if got := compute(t, q); len(got.Excluded) != 1 || !got.Empty() {
			t.Errorf("%s: alone it is left out as %v, empty %t", name, got.Excluded, got.Empty())
		}
		if x := got.Expiry[0]; x.CountsFor != "" || x.NotCounted == "" {
			t.Errorf("%s: held counts for %q", name, x.CountsFor)
		}
	}
}

// Names may be as long as those of events.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", 256)
	p := even("2026-06-01", 10)
	p.Region, p.Kind = long, long
	p.Offers = append(p.Offers, sold(long, domain.OfferReserved, "6", 1, func(o *domain.OfferQuoted) { o.Market.Provider, o.Zone = long, long }))
	q := over(1, p)
	q.Held = []Held{held("2026-01-01", "2027-01-01")}
	q.Held[0].Commitment, q.Held[0].Region, q.Held[0].GPUModel, q.Held[0].Units = long, long, long, 1
	got := one(t, q)
	if bought(got) != "9 "+long+" from 06-01 to 07-01" || got.Purchases[0].Zone != long {
		t.Errorf("bought %s", bought(got))
	}
}

// Nothing is bought for demand last seen nine weeks before; a series that lags by three weeks
// continues like its last week.
func TestStaleAndLagging(t *testing.T) {
	p := even("2026-05-28", 1)
	more := func(source, until string, units int64) {
		s := even(until, units).Series[0]
		s.Source = source
		p.Series = append(p.Series, s)
	}
	more("lagging", "2026-05-07", 10)
	more("ended", "2026-03-30", 100)
	got := one(t, over(1, p))
	if d := got.Demand; d.Peak != 11 || d.UnitHours != 11*720 || d.MissingHours != 3*week || d.ObservedTo != at("2026-05-28") || !slices.Equal(d.Sources, []string{"lab", "lagging"}) {
		t.Errorf("demand %+v", d)
	}
	if !notes(got, "more than 8 weeks before: ended (2026-03-30T00:00:00Z)") {
		t.Errorf("notes %q", got.Notes)
	}
	// Exactly eight weeks are within the limit.
	p.Series[2].From = at("2026-06-01") - staleAfter - 4*week*domain.Hour
	if d := one(t, over(1, p)).Demand; d.Peak != 111 {
		t.Errorf("peak %d at eight weeks", d.Peak)
	}
}

// The note on a general quota names the pools that share it. A discount-only commitment of another
// provider cannot use it.
func TestSharedQuota(t *testing.T) {
	a, b := even("2026-06-01", 10), even("2026-06-01", 10)
	b.Kind = "L"
	quota := []Quota{{Provider: "aws", GPUs: 100, Shared: true}}
	other := func(guaranteed bool) func(*domain.OfferQuoted) {
		return func(o *domain.OfferQuoted) { o.Market.Provider, o.GuaranteesCapacity = "gcp", guaranteed }
	}
	a.Offers = append(a.Offers, sold("price", domain.OfferReserved, "1", 1, other(false)), sold("capacity", domain.OfferReserved, "5", 1, other(true)), sold("od", domain.OfferOnDemand, "11", 0, other(false)))
	a.Quotas = quota
	got := compute(t, over(1, a, b)).Regions[0].Pools
	if notes(&got[0], "shared with") || !notes(&got[1], "no quota set") || !notes(&got[1], "no commitment is offered for it there") {
		t.Errorf("notes %q and %q", got[0].Notes, got[1].Notes)
	}
	if bought(&got[0]) != "10 capacity from 06-01 to 07-01" || !notes(&got[0], "1 other on-demand suppliers are not used") {
		t.Errorf("bought %s, notes %q", bought(&got[0]), got[0].Notes)
	}
	if !slices.ContainsFunc(got[0].ExcludedOffers, func(l ExcludedOffer) bool { return l.First == "gcp price" }) {
		t.Errorf("left out %v", got[0].ExcludedOffers)
	}
	b.Quotas = quota
	got = compute(t, over(1, a, b)).Regions[0].Pools
	if !notes(&got[0], "shared with L") || !notes(&got[1], "shared with K") {
		t.Errorf("notes %q and %q", got[0].Notes, got[1].Notes)
	}
	a.Quotas = nil
	if got := one(t, over(1, a)); bought(got) != "10 price from 06-01 to 07-01" {
		t.Errorf("without a known quota: bought %s", bought(got))
	}
}

// A series observed only by day is not assumed idle at night: hours that no week observed repeat
// the hour before.
func TestUnobservedHoursAreNotIdle(t *testing.T) {
	p := even("2026-06-01", 10)
	s := &p.Series[0]
	nights := 0
	for h := range s.Milli {
		if hour := (s.From + domain.Instant(h)*domain.Hour).Time().Hour(); hour < 8 || hour >= 18 {
			s.Milli[h] = -1
			nights++
		}
	}
	got := one(t, over(1, p))
	if d := got.Demand; d.UnitHours != 10*720 || d.MissingHours == 0 || d.MissingHours > nights {
		t.Errorf("demand %+v, %d hours of night", d, nights)
	}
}

// Of two pools of one name that count in different units the second is left out, unless the first
// cannot be planned anyway.
func TestOneNameInTwoUnits(t *testing.T) {
	gpus, vms := even("2026-06-01", 10), even("2026-06-01", 10)
	vms.Unit, vms.NodeGPUs = "vm", 0
	got := compute(t, over(1, gpus, vms))
	if len(got.Excluded) != 1 || got.Excluded[0].Unit != "vm" || !strings.Contains(got.Excluded[0].Reason, "another unit") {
		t.Errorf("excluded %+v", got.Excluded)
	}
	gpus.Series = nil
	got = compute(t, over(1, gpus, vms))
	if len(got.Excluded) != 1 || got.Excluded[0].Unit != "gpu" || got.Regions[0].Pools[0].Unit != "vm" {
		t.Errorf("excluded %+v", got.Excluded)
	}
}
