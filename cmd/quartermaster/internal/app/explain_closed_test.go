package app_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// Every allocation of a closed month is explained without dividing a month, whatever its line is for, and also after its
// line was stated otherwise and its machines reported late.
func TestExplainClosedDividesNothing(t *testing.T) {
	dir := t.TempDir()
	day := domain.Interval{From: may.From, To: may.From + domain.Day}
	var envs []domain.Envelope
	for _, name := range []string{"n1", "n2", "n3"} {
		env := storetest.Node("lab", name, "H100 80GB", 1, may.From)
		r := env.Event.(*domain.NodeRegistered)
		r.Provider, r.BillingAccount, r.ResourceID, r.SKU = "p", "1", "r-"+name, "gpu.1"
		envs = append(envs, env)
	}
	seen := func(name, by string, day, from, to int) domain.Envelope {
		at := may.From + domain.Instant(day)*domain.Day
		i := domain.Interval{From: at + domain.Instant(from)*domain.Hour/4, To: at + domain.Instant(to)*domain.Hour/4}
		return domain.Envelope{Source: "reporter/" + name + "/" + by + fmt.Sprint(day, from), Cluster: "lab", Time: i.To,
			Event: storetest.Sample(name, i, storetest.Seen{ID: storetest.GPU("lab", name, 0), Workspace: by, Activity: 500})}
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		envs = append(envs, seen(name, "a", 0, 0, 4), seen(name, "b", 0, 4, 7), seen(name, "a", 20, 0, 2), seen(name, "a", 80, 0, 1))
	}
	line := func(id, cost string, change func(*domain.BillingLine)) domain.Envelope {
		l := billed(id, "", day)
		l.BillingPeriodStart, l.BillingPeriodEnd, l.InvoiceID = may.From, may.To, "i-1"
		l.BilledCost = storetest.Dec(cost)
		l.EffectiveCost.Decimal = l.BilledCost
		change(&l)
		return domain.Envelope{Source: "focus/" + id + cost, Time: may.To, Event: &domain.BillingLineRecorded{Line: l}}
	}
	named := func(resource string) func(*domain.BillingLine) {
		return func(l *domain.BillingLine) { l.ResourceID = resource }
	}
	pool := func(l *domain.BillingLine) {
		l.SKUID = "gpu.1"
		l.PricingQuantity.Decimal = storetest.Dec("60") // more than two machines have in a day
	}
	envs = append(envs, line("named", "24", named("r-n1")), line("pool", "48.01", pool),
		line("network", "3", func(l *domain.BillingLine) { l.ServiceCategory, l.ServiceName = "Networking", "Egress" }),
		line("gone", "7", named("r-9")), line("tax", "8", func(l *domain.BillingLine) { l.ChargeCategory = "Tax" }),
		domain.Envelope{Source: "invoice/p", Time: may.To, Event: &domain.InvoiceReceived{
			InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "i-1", Status: "Issued", BillingPeriod: may, Total: *storetest.USD("90.02"),
		}})
	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, envs...)
	apptest.Close(t, h)
	a := &app.App{Dir: dir}
	if err := closedMonth(t, a, may, func(prepare func() error) {
		if err := prepare(); err != nil {
			t.Fatal(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}

	var first map[string]string
	for _, then := range []struct {
		name string
		came []domain.Envelope
	}{
		{"as it was closed", nil},
		{"stated otherwise", []domain.Envelope{line("pool", "47", pool), line("network", "4", func(l *domain.BillingLine) {
			l.ServiceCategory, l.ServiceName = "Networking", "Egress"
		})}},
		{"late telemetry", []domain.Envelope{seen("n2", "b", 0, 8, 20), seen("n1", "b", 0, 8, 20)}},
		{"another fleet", []domain.Envelope{func() domain.Envelope {
			env := storetest.Node("lab", "n4", "H100 80GB", 1, may.From)
			r := env.Event.(*domain.NodeRegistered)
			r.Provider, r.BillingAccount, r.ResourceID, r.SKU = "p", "1", "r-n4", "gpu.1"
			return env
		}()}},
	} {
		if len(then.came) > 0 {
			h, _ := apptest.Open(t, dir)
			apptest.AppendEvents(t, h.Log, then.came...)
			apptest.Close(t, h)
		}
		a := &app.App{Dir: dir}
		c := a.For(app.Everyone)
		got, kinds := map[string]string{}, map[string]int{}
		if _, err := c.Allocations(t.Context(), "", may, costs.AllocationFilter{}, func(l *costs.Allocation) error {
			got[l.Allocation] = ""
			kinds[fmt.Sprint(l.MatchMethod)]++
			kinds[fmt.Sprint(l.Component)]++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"by_resource", "by_pool", "by_account", "by_nothing", "by_following", "unseen", "unobserved", "unmatched"} {
			if kinds[kind] == 0 {
				t.Fatalf("no allocation is %s: %v", kind, kinds)
			}
		}
		for name := range got {
			ref, err := attribution.ParseRef(name)
			if err != nil {
				t.Fatal(err)
			}
			x, err := c.ExplainAllocation(t.Context(), "", ref)
			if err != nil {
				t.Fatalf("%s, %s: %v", then.name, name, err)
			}
			if x.Books == nil || !strings.Contains(strings.Join(x.Why, "\n"), "match method") {
				t.Fatalf("%s, %s is explained as %+v", then.name, name, x)
			}
			x.Completeness = registry.Completeness{}
			b, err := json.Marshal(x)
			if err != nil {
				t.Fatal(err)
			}
			got[name] = string(b)
		}
		if n := app.Divisions(a); n != 0 {
			t.Errorf("%s: %d divisions", then.name, n)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		}
		for name, want := range first {
			if got[name] != want {
				t.Errorf("%s: %s is explained as\n%s\nwant\n%s", then.name, name, got[name], want)
			}
		}
	}
}
