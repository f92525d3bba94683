package market_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/market"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

func quoted(offer, sku, model, hourly string, from, to int) domain.Envelope {
	q := &domain.OfferQuoted{
		Market: storetest.Frankfurt, Offer: offer, SKU: sku, GPUModel: model, GPUCount: 8, Kind: domain.OfferOnDemand,
		Hourly: storetest.Dec(hourly), Currency: "USD", ValidFrom: storetest.Start + domain.Instant(from)*domain.Day, AsOf: "2026-05", Citation: "list",
	}
	if to != 0 {
		q.ValidTo = storetest.Start + domain.Instant(to)*domain.Day
	}
	return domain.Envelope{Time: q.ValidFrom, Event: q}
}

func TestOffers(t *testing.T) {
	withdrawn := func(offer string, day int) domain.Envelope {
		at := storetest.Start + domain.Instant(day)*domain.Day
		return domain.Envelope{Time: at, Event: &domain.OfferWithdrawn{Market: storetest.Frankfurt, Offer: offer, At: at}}
	}
	elsewhere := quoted("p5", "p5.48xlarge", "H100", "70", 0, 0)
	elsewhere.Event.(*domain.OfferQuoted).Market = domain.Market{Provider: "aws", Region: "us-east-1"}
	late := quoted("late", "p5.48xlarge", "NVIDIA H100 80GB HBM3", "40", 0, 0)
	late.Time = storetest.Start + 20*domain.Day // appended then, for prices from the first day
	history := quoted("history", "g5", "A10G", "5", 0, 0)
	history.Time, history.Recorded = storetest.Start+90*domain.Day, storetest.Start+domain.Day
	l := storetest.NewLog()
	l.Append(
		quoted("p5", "p5.48xlarge", "NVIDIA H100 80GB HBM3", "55", 0, 0),
		quoted("p5", "p5.48xlarge", "NVIDIA H100 80GB HBM3", "44", 40, 0), // another month
		quoted("p5", "p5.48xlarge", "NVIDIA H100 80GB HBM3", "30", 70, 80),
		quoted("p4", "p4d.24xlarge", "A100 40GB", "32", 5, 0), withdrawn("p4", 45), quoted("p4", "p4d.24xlarge", "A100 40GB", "20", 60, 0),
		elsewhere, late, history,
	)
	for _, c := range []struct {
		day    int
		filter market.OfferFilter
		want   string
	}{
		{-1, market.OfferFilter{}, ""},
		{0, market.OfferFilter{}, "eu-central-1 history 5, eu-central-1 late 40, eu-central-1 p5 55, us-east-1 p5 70"},
		{39, market.OfferFilter{Region: "eu-central-1", SKU: "p5.48xlarge"}, "eu-central-1 late 40, eu-central-1 p5 55"},
		{40, market.OfferFilter{Provider: "aws", Region: "eu-central-1", SKU: "p5.48xlarge"}, "eu-central-1 late 40, eu-central-1 p5 44"},
		// The last quote has expired: the one before does not become valid again.
		{80, market.OfferFilter{Region: "eu-central-1", GPUModel: "NVIDIA H100 80GB HBM3"}, "eu-central-1 late 40"},
		{44, market.OfferFilter{GPUModel: "NVIDIA A100-SXM4-40GB"}, "eu-central-1 p4 32"},
		{45, market.OfferFilter{SKU: "p4d.24xlarge"}, ""},
		{61, market.OfferFilter{SKU: "p4d.24xlarge"}, "eu-central-1 p4 20"},
		{61, market.OfferFilter{Provider: "gcp"}, ""},
		// What was known on the tenth day excludes what came on the twentieth, but includes what
		// its source recorded on the first.
		{10, market.OfferFilter{Region: "eu-central-1", KnownBy: storetest.Start + 10*domain.Day}, "eu-central-1 history 5, eu-central-1 p4 32, eu-central-1 p5 55"},
	} {
		storetest.FoldView(t, l, func(v projections.View) {
			got, err := market.Offers(v, storetest.Start+domain.Instant(c.day)*domain.Day, c.filter)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, o := range got {
				lines = append(lines, fmt.Sprint(o.Market.Region, " ", o.Offer, " ", o.Hourly))
				if o.Order.Source != "test/1" || o.Order.Sequence == 0 || o.Known == 0 || o.Citation != "list" || o.AsOf != "2026-05" {
					t.Errorf("where %s comes from: %+v", o.Offer, o)
				}
			}
			if text := strings.Join(lines, ", "); text != c.want {
				t.Errorf("day %d, %+v: %q, want %q", c.day, c.filter, text, c.want)
			}
		})
	}
}

// The valid version of an offer is its last statement, over months and in every order of arrival.
func TestOffersAreWhatWasSaidLast(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		l := storetest.NewLog()
		for range rapid.IntRange(1, 25).Draw(t, "statements") {
			day := rapid.IntRange(0, 90).Draw(t, "day")
			offer := rapid.SampledFrom([]string{"a", "a|b", "b"}).Draw(t, "offer")
			env := quoted(offer, "s", "T4", rapid.SampledFrom([]string{"1", "2"}).Draw(t, "hourly"), day, 0)
			if rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
				env.Event.(*domain.OfferQuoted).ValidTo = env.Time + domain.Instant(rapid.IntRange(1, 50).Draw(t, "for"))*domain.Day
			}
			if rapid.IntRange(0, 3).Draw(t, "withdrawn") == 0 {
				env.Event = &domain.OfferWithdrawn{Market: storetest.Frankfurt, Offer: offer, At: env.Time}
			}
			env.Time += domain.Instant(rapid.IntRange(-3, 3).Draw(t, "said")) * domain.Day
			l.Append(env)
		}
		at := storetest.Start + domain.Instant(rapid.IntRange(-1, 100).Draw(t, "at"))*domain.Day
		last := map[string]domain.Precedence{}
		says := map[string]domain.Event{}
		for _, tp := range domain.AllPartitions() {
			for _, rec := range l.Records(tp) {
				env := l.Event(&rec)
				offer, from := "", domain.Instant(0)
				switch ev := env.Event.(type) {
				case *domain.OfferQuoted:
					offer, from = ev.Offer, ev.ValidFrom
				case *domain.OfferWithdrawn:
					offer, from = ev.Offer, ev.At
				}
				o := env.Precedence(from)
				o.Appended = rec.Time
				if before, ok := last[offer]; from <= at && (!ok || o.After(before)) {
					last[offer], says[offer] = o, env.Event
				}
			}
		}
		var want []string
		for offer, ev := range says {
			if q, ok := ev.(*domain.OfferQuoted); ok && (q.ValidTo == 0 || at < q.ValidTo) {
				want = append(want, offer+" "+q.Hourly.String()+" "+q.ValidTo.String())
			}
		}
		slices.Sort(want)
		storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
			got, err := market.Offers(v, at, market.OfferFilter{})
			var lines []string
			for _, o := range got {
				lines = append(lines, o.Offer+" "+o.Hourly.String()+" "+o.ValidTo.String())
			}
			slices.Sort(lines)
			if !slices.Equal(lines, want) {
				t.Errorf("at %s: %v, want %v", at, lines, want)
			}
			return err
		})
	})
}

func TestOnDemandQuotas(t *testing.T) {
	limit := func(who storetest.Operator, account, model string, gpus uint64, day int) domain.Envelope {
		at := storetest.Start + domain.Instant(day)*domain.Day
		return who.Sign(domain.Envelope{Time: at, Event: &domain.OnDemandQuotaSet{Market: storetest.Frankfurt, Account: account, GPUModel: model, LimitGPUs: gpus, EffectiveFrom: at}})
	}
	l := storetest.NewLog()
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start),
		limit(storetest.Root, "2", "H100 SXM 80GB", 64, 1), limit(storetest.Root, "2", "NVIDIA H100 80GB HBM3", 32, 3), limit(storetest.Root, "2", "H100 SXM 80GB", 16, 9),
		limit(storetest.Root, "1", "", 128, 1), limit(storetest.Mallory, "1", "", 9999, 2),
	)
	for day, want := range map[int]string{0: "", 1: "1  128, 2 H100 SXM 80GB 64", 3: "1  128, 2 H100 SXM 80GB 32", 9: "1  128, 2 H100 SXM 80GB 16"} {
		storetest.FoldView(t, l, func(v projections.View) {
			a, err := registry.NewAuthority(v)
			if err != nil {
				t.Fatal(err)
			}
			got, err := market.OnDemandQuotas(v, a, storetest.Start+domain.Instant(day)*domain.Day)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, q := range got {
				lines = append(lines, fmt.Sprint(q.Account, " ", q.Model, " ", q.LimitGPUs))
			}
			if text := strings.Join(lines, ", "); text != want {
				t.Errorf("day %d: %q, want %q", day, text, want)
			}
		})
	}
}

func TestSpotRates(t *testing.T) {
	spot := func(node string, from int) domain.Envelope {
		env := storetest.Node("c1", node, "T4", 1, storetest.Start+domain.Instant(from)*domain.Hour)
		r := env.Event.(*domain.NodeRegistered)
		r.SKU, r.BillingModel = "g4", domain.BillingSpot
		return env
	}
	taken := func(sku string, hour int, units, notice uint32) domain.Envelope {
		return domain.Envelope{Time: storetest.Start + domain.Instant(hour)*domain.Hour, Event: &domain.SpotInterrupted{Market: storetest.Frankfurt, SKU: sku, Units: units, NoticeSeconds: notice}}
	}
	l := storetest.NewLog()
	l.Append(
		storetest.Cluster("c1", "acme", "aws", "eu-central-1", storetest.Start),
		spot("n1", -10), spot("n2", 20), storetest.Node("c1", "paid", "T4", 1, storetest.Start),
		domain.Envelope{Cluster: "c1", Time: storetest.Start + 30*domain.Hour, Event: &domain.NodeRetired{Node: "n2"}},
		taken("g4", 5, 0, 120), taken("g4", 30, 3, 30), taken("g4", 31, 1, 10), taken("g4", 40, 1, 9), taken("p5", 6, 2, 120),
	)
	storetest.FoldView(t, l, func(v projections.View) {
		got, err := market.SpotRates(v, storetest.Start, storetest.Start+40*domain.Hour)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, r := range got {
			rate, known := r.PerUnitHour()
			lines = append(lines, fmt.Sprint(r.Market.Region, " ", r.SKU, ": ", r.Interrupted, " in ", r.Events, ", ", r.ServiceMs/3_600_000, " h, ", rate, " ", known, ", notice ", r.NoticeMedian))
		}
		// 40 hours of n1 and 10 of n2; the interruption at the end is outside.
		want := "eu-central-1 g4: 5 in 3, 50 h, 0.1 true, notice 30\neu-central-1 p5: 2 in 1, 0 h, 0 false, notice 120"
		if text := strings.Join(lines, "\n"); text != want {
			t.Errorf("got\n%s\nwant\n%s", text, want)
		}
		if _, err := market.SpotRates(v, storetest.Start, storetest.Start); err == nil {
			t.Error("no time at all is no error")
		}
	})
	storetest.FoldView(t, storetest.NewLog(), func(v projections.View) {
		if got, err := market.SpotRates(v, storetest.Start, storetest.Start+1); len(got) != 0 || err != nil {
			t.Errorf("of nothing: %v, %v", got, err)
		}
	})
}
