package costs_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

func registerAs(node, resource string, at int) domain.Envelope {
	env := storetest.Node("c", node, "H100 80GB", 2, storetest.Start+domain.Instant(at)*storetest.Minute)
	r := env.Event.(*domain.NodeRegistered)
	r.ResourceID = resource
	for i := range r.GPUs {
		r.GPUs[i].ID = storetest.DeviceOf(i)
	}
	return env
}

func reportAs(node string, from, to int) domain.Envelope {
	i := storetest.Span(from, to)
	return domain.Envelope{Source: "node-reporter/c/" + node, Cluster: "c", Time: i.To, Event: storetest.Sample(node, i,
		storetest.Seen{ID: storetest.DeviceOf(0), Workspace: "a", Activity: -1}, storetest.Seen{ID: storetest.DeviceOf(1), Workspace: "a", Activity: -1})}
}

func billAs(id, resource string, from, to int) domain.Envelope {
	return recorded(billLine(id, fmt.Sprint(20*(to-from)), func(l *domain.BillingLine) {
		l.ChargePeriodStart, l.ChargePeriodEnd, l.ResourceID = storetest.Start+domain.Instant(from)*domain.Hour, storetest.Start+domain.Instant(to)*domain.Hour, resource
		l.PricingQuantity, l.PricingUnit = decimal.NewNullDecimal(decimal.NewFromInt(int64(to-from))), "Hours"
		l.ServiceCategory, l.RegionID, l.SKUID = "Compute", "eu", "gpu-2"
	}))
}

// billedTo returns the groups of a report and its exceptions.
func billedTo(t *testing.T, log []domain.Envelope) (out []string) {
	l := storetest.NewLog()
	l.Append(domain.Envelope{Workspace: "own", Cluster: "c", Time: storetest.Start - 40*domain.Day, Event: &domain.ClusterRegistered{
		Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1",
	}})
	l.Append(log...)
	r := report(t, l, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace, costs.ByComponent}})
	for _, g := range r.Groups {
		out = append(out, fmt.Sprintf("%s %s billed %s bought %d allocated %d", g.Key[costs.ByWorkspace], g.Key[costs.ByComponent], g.Billed, g.Bought, g.Allocated))
	}
	for _, e := range r.Exceptions {
		out = append(out, fmt.Sprint(e))
	}
	return out
}

// A machine that is renamed within the month stays the machine of the bill: held time is allocated
// to its holder, whichever name the resource id belongs to.
func TestCostsOfARenamedMachine(t *testing.T) {
	want := []string{"a allocated billed 60 bought 21600000 allocated 21600000"}
	for _, ids := range []struct{ second, bill string }{{"r-1", "r-1"}, {"", "r-1"}, {"r-2", "r-1"}, {"r-2", "r-2"}} {
		for _, names := range [][2]string{{"n", "o"}, {"o", "n"}} { // either may come first
			log := []domain.Envelope{
				registerAs(names[0], "r-1", -60), registerAs(names[1], ids.second, 90),
				reportAs(names[0], 0, 60), reportAs(names[1], 60, 120), reportAs(names[1], 120, 180), billAs("1", ids.bill, 0, 3),
			}
			for _, retired := range []bool{false, true} {
				if retired {
					log = append(log, storetest.Hardware(90, &domain.NodeRetired{Node: names[0]}))
				}
				if got := billedTo(t, log); !slices.Equal(got, want) {
					t.Errorf("%v, resource %q, billed as %s, retired %v: got %q, want %q", names, ids.second, ids.bill, retired, got, want)
				}
			}
		}
	}
}

// Whenever names are declared, and whichever of them bills use, held time is allocated, bought
// once, and adds up to the bill.
func TestCostsOfAMachineUnderTwoNames(t *testing.T) {
	const month = 31 * 24 * 60
	retire := func(node string, at int) domain.Envelope {
		return storetest.Hardware(at, &domain.NodeRetired{Node: node})
	}
	const hour = 7_200_000 // of two GPUs
	all := fmt.Sprintf("a allocated billed 60 bought %d allocated %d", 3*hour, 3*hour)
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want []string
	}{
		{"renamed in a month before", []domain.Envelope{registerAs("n", "r-1", -month), registerAs("o", "", -month/2), retire("n", -month/2), reportAs("o", 0, 180), billAs("1", "r-1", 0, 3)}, []string{all}},
		{"and the old name is declared still", []domain.Envelope{registerAs("n", "r-1", -month), registerAs("o", "", -month/2), reportAs("o", 0, 180), billAs("1", "r-1", 0, 3)}, []string{all}},
		{"declared at once, billed as the one", []domain.Envelope{registerAs("n", "r-1", -60), registerAs("o", "r-2", -60), reportAs("o", 0, 180), billAs("1", "r-1", 0, 3)}, []string{all}},
		{"declared at once, billed as the other", []domain.Envelope{registerAs("n", "r-1", -60), registerAs("o", "r-2", -60), reportAs("n", 0, 180), billAs("1", "r-2", 0, 3)}, []string{all}},
		{"the bill has the new name too", []domain.Envelope{registerAs("n", "r-1", -60), registerAs("o", "r-2", 60), retire("n", 60), reportAs("o", 0, 180), billAs("1", "r-1", 0, 1), billAs("2", "r-2", 1, 3)}, []string{all}},
		{"a time that nobody declares", []domain.Envelope{registerAs("n", "r-1", -60), retire("n", 70), registerAs("o", "r-2", 100), reportAs("o", 0, 180), billAs("1", "r-1", 0, 3)}, []string{all}},
		{"the second name is not declared", []domain.Envelope{registerAs("n", "r-1", -60), reportAs("n", 0, 70), reportAs("o", 70, 180), billAs("1", "r-1", 0, 3)}, []string{all}},
		{"silence stays unobserved", []domain.Envelope{registerAs("n", "r-1", -60), registerAs("o", "", 90), reportAs("o", 0, 120), billAs("1", "r-1", 0, 3)}, []string{
			fmt.Sprintf("a allocated billed 40 bought %d allocated %d", 2*hour, 2*hour), fmt.Sprintf("platform:unobserved unobserved billed 20 bought %d allocated 0", hour)}},
		{"other GPUs, another machine", []domain.Envelope{registerAs("n", "r-1", -60), storetest.Node("c", "o", "H100 80GB", 2, storetest.Start), reportAs("n", 0, 180), billAs("1", "r-1", 0, 3)},
			[]string{all, fmt.Sprintf("{registered_neither c/o registered, and neither reported nor billed %d 0  0 0}", 3*hour)}},
	} {
		if got := billedTo(t, c.log); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
