package attribution_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

func money(s string) attribution.Amount {
	a, err := attribution.ParseAmount(s)
	if err != nil {
		panic(err)
	}
	return a
}

// pool is a pool of two machines with one GPU each: ada holds n1, bob n2, for two hours.
func pool() *estate {
	e := &estate{}
	for i, holder := range []string{"ada", "bob"} {
		e.nodes = append(e.nodes, attribution.Node{Cluster: "c", Node: "n" + string(rune('1'+i)), Account: "x", Region: "r", SKU: "big", Resource: "i-" + string(rune('1'+i)),
			GPUs: 1, CPUMilli: 8000, MemoryMiB: 1000, Registered: true, Service: domain.Interval{From: start, To: start + 2*domain.Hour}})
		for h := range 2 {
			e.hours = append(e.hours, attribution.NodeHour{Node: i, Hour: start + domain.Instant(h)*domain.Hour, Owner: "own",
				Parts: []attribution.Part{{Component: attribution.Allocated, Workspace: holder, Deployment: "d", Unit: "u", GPUMs: hour, UsefulMs: hour / 2}}})
		}
	}
	return e
}

func (e *estate) add(id string, class attribution.Class, resource, cost string, machineHours int64) *attribution.Line {
	e.lines = append(e.lines, attribution.Line{Issuer: "S", Account: "x", ID: id, Currency: "USD", BillingPeriod: month, Category: "Usage", Class: class,
		ChargePeriod: domain.Interval{From: start, To: start + 2*domain.Hour}, Resource: resource, Region: "r", SKU: "big", Billed: money(cost), Effective: money(cost), NodeMs: machineHours * hour})
	return &e.lines[len(e.lines)-1]
}

// shares returns each workspace's billed share of a line.
func shares(t *testing.T, e *estate, line string) map[string]string {
	t.Helper()
	allocations, _, err := e.run()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]attribution.Amount{}
	for i := range allocations {
		if l := &allocations[i]; l.line.ID == line {
			sums[l.Workspace] = sums[l.Workspace].Add(l.Billed)
		}
	}
	got := map[string]string{}
	for w, a := range sums {
		if !a.IsZero() {
			got[w] = a.String()
		}
	}
	return got
}

func wantShares(t *testing.T, e *estate, line string, want ...string) {
	t.Helper()
	got := shares(t, e, line)
	for _, w := range want {
		workspace, cost, _ := strings.Cut(w, "=")
		if got[workspace] != cost {
			t.Errorf("%s bears %q of %s, want %s (all: %v)", workspace, got[workspace], line, cost, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s is borne by %v, want %v", line, got, want)
	}
}

// A line has a machine if all of it is for one: the only one that it was matched to, or that all lines that it follows
// are for. Lines without cost are not followed.
func TestNodeOfLine(t *testing.T) {
	of := func(l *attribution.Line, invoice string) *attribution.Line { l.Invoice = invoice; return l }
	tax := func(e *estate, id, resource, invoice string) {
		l := of(e.add(id, attribution.Tax, resource, "1", 0), invoice)
		l.Category, l.SKU, l.Region = "Tax", "", ""
	}
	named := func(e *estate) {
		of(e.add("first", attribution.OnDemand, "i-1", "10", 2), "a")
		of(e.add("second", attribution.OnDemand, "i-2", "10", 2), "b")
		of(e.add("gone", attribution.OnDemand, "i-9", "10", 2), "c")
	}
	for name, c := range map[string]struct {
		add  func(*estate)
		want string // the machine of each line
	}{
		"lines that name machines": {named, "first=c/n1 gone= second=c/n2"},
		"a pool of two":            {func(e *estate) { e.add("pool", attribution.Committed, "", "10", 4) }, "pool=mixed"},
		"a pool of which one is named": {func(e *estate) {
			e.add("first", attribution.OnDemand, "i-1", "10", 2)
			e.add("pool", attribution.Committed, "", "10", 2)
		}, "first=c/n1 pool=c/n2"},
		"tax on a machine, on the invoices of one, and on all": {func(e *estate) {
			named(e)
			tax(e, "tax-machine", "i-2", "")
			tax(e, "tax-a", "", "a")
			tax(e, "tax-c", "", "c")
			tax(e, "tax-all", "", "none")
		}, "first=c/n1 gone= second=c/n2 tax-a=c/n1 tax-all=mixed tax-c= tax-machine=c/n2"},
		"tax on a machine and on what is for none": {func(e *estate) {
			of(e.add("first", attribution.OnDemand, "i-1", "10", 2), "a")
			of(e.add("gone", attribution.OnDemand, "i-9", "10", 2), "a")
			tax(e, "tax", "", "a")
		}, "first=c/n1 gone= tax=mixed"},
		"tax on a machine and on what costs nothing": {func(e *estate) {
			of(e.add("first", attribution.OnDemand, "i-1", "10", 2), "a")
			of(e.add("free", attribution.OnDemand, "i-2", "0", 2), "a")
			tax(e, "tax", "", "a")
		}, "first=c/n1 free=c/n2 tax=c/n1"},
	} {
		e := pool()
		c.add(e)
		allocations, _, err := e.run()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range allocations {
			got = append(got, allocations[i].line.ID+"="+allocations[i].node)
		}
		slices.Sort(got)
		if text := strings.Join(slices.Compact(got), " "); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// wantUseful checks that useful time is counted once.
func wantUseful(t *testing.T, e *estate, want int64) {
	t.Helper()
	allocations, _, err := e.run()
	if err != nil {
		t.Fatal(err)
	}
	useful := int64(0)
	for i := range allocations {
		useful += allocations[i].UsefulMs
	}
	if useful != want {
		t.Errorf("%d ms are useful, want %d", useful, want)
	}
}

// A commitment of one machine, owned by bob, that the supplier applied to ada's machine.
func TestDiscountRules(t *testing.T) {
	e := pool()
	e.add("ri", attribution.Committed, "i-1", "2", 2).Commitment = "k"
	e.add("od", attribution.OnDemand, "i-2", "6", 2)
	e.commitments = []attribution.Commitment{{ID: "k", Owners: owner("bob")}}
	wantShares(t, e, "ri", "ada=2")
	wantShares(t, e, "od", "bob=6")

	e.policy.Discount = attribution.PoolRate
	wantShares(t, e, "ri", "ada=1", "bob=1")
	wantShares(t, e, "od", "ada=3", "bob=3")

	e.policy.Discount = attribution.OwnersFirst
	wantShares(t, e, "ri", "bob=2")
	wantShares(t, e, "od", "ada=6")

	// A commitment of one and a half machines: ada gets what bob does not need.
	e.lines[0].NodeMs, e.lines[0].Billed = 3*hour, money("3")
	e.lines[1].NodeMs, e.lines[1].Billed = hour, money("3")
	wantShares(t, e, "ri", "ada=1", "bob=2")
	wantShares(t, e, "od", "ada=3")
	wantUseful(t, e, 2*hour)

	// An excess over the pool is unseen.
	e.lines[0].NodeMs, e.lines[0].Billed = 5*hour, money("5")
	e.lines[1].NodeMs, e.lines[1].Billed = hour, money("1")
	wantShares(t, e, "ri", "ada=2", "bob=2", "platform:unobserved=1")
	wantShares(t, e, "od", "platform:unobserved=1")

	e.policy.Discount = "cheapest_first"
	if _, _, err := e.run(); err == nil || !strings.Contains(err.Error(), "cheapest_first") {
		t.Errorf("error %v", err)
	}
}

// owner returns a single owner of a whole commitment.
func owner(workspace string) []domain.Share {
	return []domain.Share{{Workspace: workspace, Share: decimal.NewFromInt(1)}}
}

func TestMatchMethods(t *testing.T) {
	// A line without a resource is for the machine that no line names.
	e := pool()
	e.add("named", attribution.OnDemand, "i-1", "4", 2)
	e.add("pooled", attribution.OnDemand, "", "6", 2)
	wantShares(t, e, "named", "ada=4")
	wantShares(t, e, "pooled", "bob=6")

	// Of the machines that no line names, those declared with the billing model that the line pays
	// for.
	e = pool()
	e.nodes[1].Billing = domain.BillingSpot
	e.add("spot", attribution.Spot, "", "6", 2)
	e.add("any", attribution.OnDemand, "", "6", 2)
	wantShares(t, e, "spot", "bob=6")
	wantShares(t, e, "any", "ada=3", "bob=3")

	// A machine without GPUs is shared by everybody in the account.
	e = pool()
	e.nodes = append(e.nodes, attribution.Node{Cluster: "c", Node: "head", Account: "x", Resource: "i-head", SKU: "cpu", Service: month})
	e.add("head", attribution.OnDemand, "i-head", "6", 2)
	wantShares(t, e, "head", "ada=3", "bob=3")

	// A machine of another account does not match.
	e = pool()
	e.add("other", attribution.OnDemand, "i-1", "6", 2).Account = "y"
	wantShares(t, e, "other", "platform=6")

	// Machine time that was bought twice is half unseen. A line that takes the surplus back leaves
	// none.
	e = pool()
	e.add("twice", attribution.OnDemand, "i-1", "8", 4)
	wantShares(t, e, "twice", "ada=4", "platform:unobserved=4")
	e.add("back", attribution.OnDemand, "i-1", "-4", -2)
	wantShares(t, e, "twice", "ada=8")
	wantShares(t, e, "back", "ada=-4")

	// A charge over a very long period has no hours.
	e = pool()
	e.add("long", attribution.OnDemand, "i-1", "6", 2).ChargePeriod.To += 11 * 366 * domain.Day
	wantShares(t, e, "long", "platform=6")

	// A charge period that begins or ends within an hour takes its part of the hour.
	e = pool()
	e.hours[0].Parts[0].Workspace = "cyd"
	e.add("cut", attribution.OnDemand, "i-1", "6", 0).ChargePeriod.From += domain.Hour / 2
	wantShares(t, e, "cut", "cyd=2", "ada=4")

	// A machine that took another's name is a different machine.
	e = pool()
	later := e.nodes[0]
	e.nodes[0].Service.To, later.Service.From, later.Resource = start+domain.Hour, start+domain.Hour, "i-new"
	e.nodes = append(e.nodes, later)
	e.hours[1].Node, e.hours[1].Parts[0].Workspace = 2, "cyd"
	e.add("old", attribution.OnDemand, "i-1", "6", 1)
	e.add("new", attribution.OnDemand, "i-new", "6", 1)
	wantShares(t, e, "old", "ada=6")
	wantShares(t, e, "new", "cyd=6")
	// A machine with a new description is the same machine.
	e.nodes[2].Resource, e.nodes[2].CPUMilli = "", 1
	wantShares(t, e, "old", "ada=3", "cyd=3")
	// So is one that moved to another account.
	e.nodes[2].Account = "y"
	wantShares(t, e, "old", "ada=6")

	// The platform pays for time with an unknown holder.
	e = pool()
	e.hours[0].Parts[0].Workspace = ""
	e.add("l", attribution.OnDemand, "i-1", "6", 2)
	wantShares(t, e, "l", "ada=3", "platform=3")
}

func TestDominantShare(t *testing.T) {
	const gpus = 4
	node := func(parts ...attribution.Part) *estate {
		e := pool()
		e.nodes, e.hours = e.nodes[:1], e.hours[:1]
		e.nodes[0].GPUs, e.nodes[0].Service.To = gpus, start+domain.Hour
		left := gpus * hour
		for i := range parts {
			parts[i].Component, parts[i].HeldMs = attribution.Allocated, hour
			left -= parts[i].GPUMs
		}
		e.hours[0].Parts = append(parts, attribution.Part{Component: attribution.Idle, GPUMs: left})
		e.add("l", attribution.OnDemand, "i-1", "40", 1).ChargePeriod.To = start + domain.Hour
		return e
	}
	// One GPU and half of the CPU is half of the node.
	wantShares(t, node(attribution.Part{Workspace: "ada", Unit: "a", GPUMs: hour, CPUMilli: 4000}), "l", "ada=20", "own=20")
	// Two parts of one unit count its requests once.
	wantShares(t, node(
		attribution.Part{Workspace: "ada", Unit: "a", GPUMs: hour, CPUMilli: 6000},
		attribution.Part{Workspace: "ada", Unit: "a", GPUMs: hour, CPUMilli: 6000}), "l", "ada=30", "own=10")
	// Two units count twice: 3 and 2 of 4, and both shrink.
	wantShares(t, node(
		attribution.Part{Workspace: "ada", Unit: "a", GPUMs: hour, CPUMilli: 6000},
		attribution.Part{Workspace: "bob", Unit: "b", GPUMs: hour, MemoryMiB: 500}), "l", "ada=24", "bob=16")
	// A unit without GPUs counts by its other requests.
	wantShares(t, node(attribution.Part{Workspace: "ada", Unit: "a", MemoryMiB: 250}), "l", "ada=10", "own=30")
	// Its weight is taken from idle and unprovisioned time alike.
	e := node(attribution.Part{Workspace: "ada", Unit: "a", GPUMs: hour, CPUMilli: 4000})
	idle := &e.hours[0].Parts[1]
	idle.GPUMs = hour
	e.hours[0].Parts = append(e.hours[0].Parts, attribution.Part{Component: attribution.Unprovisioned, GPUMs: 2 * hour})
	wantShares(t, e, "l", "ada=20", "own=20")
	allocations, _, err := e.run()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range allocations {
		got = append(got, fmt.Sprintf("%s %s", l.Component, l.Billed))
	}
	if want := []string{"allocated 20", "idle 6.666666666666666666", "unprovisioned 13.333333333333333334"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// Nothing is taken from busy GPUs without a known holder.
	e = node(attribution.Part{Workspace: "ada", Unit: "a", GPUMs: hour, CPUMilli: 8000})
	e.hours[0].Parts[1] = attribution.Part{Component: attribution.BusyUnattributed, GPUMs: 3 * hour}
	wantShares(t, e, "l", "ada=10", "own=30")
	// A unit may not request more than the node has.
	wantShares(t, node(attribution.Part{Workspace: "ada", Unit: "a", CPUMilli: 1 << 63}), "l", "ada=40")
}

func TestFollowing(t *testing.T) {
	follower := func(e *estate, id, category, resource, cost string) *attribution.Line {
		class := attribution.Tax
		if category != "Tax" {
			class = attribution.Credit
		}
		l := e.add(id, class, resource, cost, 0)
		l.Category, l.Invoice = category, "v"
		return l
	}
	e := pool()
	e.add("a", attribution.OnDemand, "i-1", "30", 2).Invoice = "v"
	e.add("b", attribution.OnDemand, "i-2", "10", 2).Invoice = "w"
	follower(e, "resource", "Tax", "i-2", "4")
	follower(e, "invoice", "Tax", "", "4")
	follower(e, "account", "Tax", "", "4").Invoice = ""
	follower(e, "nothing", "Tax", "", "4").Account = "y"
	wantShares(t, e, "resource", "bob=4")
	wantShares(t, e, "invoice", "ada=4")
	wantShares(t, e, "account", "ada=3", "bob=1")
	wantShares(t, e, "nothing", "platform=4")

	// An invoice detail has priority over the invoice.
	e.lines[1].Invoice, e.lines[1].Detail = "v", "7"
	follower(e, "detail", "Tax", "", "4").Detail = "7"
	wantShares(t, e, "detail", "bob=4")

	// Credits first pay for failed time, all of them together up to its cost.
	e = pool()
	e.hours[1].Parts[0].Component = attribution.Failed
	e.add("a", attribution.OnDemand, "i-1", "20", 2)
	follower(e, "c", "Credit", "i-1", "-4")
	wantShares(t, e, "c", "platform:reliability=-4")
	follower(e, "d", "Credit", "i-1", "-8")
	wantShares(t, e, "c", "ada=-0.666666666666666666", "platform:reliability=-3.333333333333333334")
	wantShares(t, e, "d", "ada=-1.333333333333333333", "platform:reliability=-6.666666666666666667")
	follower(e, "adjusted", "Adjustment", "i-1", "-4")
	wantShares(t, e, "adjusted", "platform:reliability=-2", "ada=-2")
}

func TestCommitments(t *testing.T) {
	e := pool()
	commit := func(id, category, cost string) *attribution.Line {
		l := e.add(id, attribution.Committed, "", cost, 0)
		l.Category, l.Commitment = category, "k"
		return l
	}
	commit("upfront", "Purchase", "100")
	commit("fee", "Purchase", "10").Recurring = true
	commit("idle", "Usage", "8").Unused = true
	wantShares(t, e, "upfront", "platform:prepaid=100")
	wantShares(t, e, "idle", "platform=8")
	wantShares(t, e, "fee", "platform=10")
	e.commitments = []attribution.Commitment{{ID: "k", Owners: []domain.Share{{Workspace: "ada", Share: decimal.RequireFromString("0.25")}, {Workspace: "bob", Share: decimal.RequireFromString("0.75")}}}}
	wantShares(t, e, "idle", "ada=2", "bob=6")
	wantShares(t, e, "fee", "ada=2.5", "bob=7.5")
	used := commit("used", "Usage", "8")
	used.Resource = "i-1"
	wantShares(t, e, "fee", "ada=6.25", "bob=3.75")
	// Another charge period belongs to another fee.
	e.lines[3].ChargePeriod = domain.Interval{From: start + 3*domain.Hour, To: start + 4*domain.Hour}
	wantShares(t, e, "fee", "ada=2.5", "bob=7.5")
	// So does a shorter one beside it.
	short := e.lines[1]
	short.ID, short.ChargePeriod.To = "short", start+domain.Hour/2
	e.lines = append(e.lines, short)
	e.lines[3].ChargePeriod = domain.Interval{From: start + domain.Hour, To: start + 2*domain.Hour}
	wantShares(t, e, "fee", "ada=6.25", "bob=3.75")
	wantShares(t, e, "short", "ada=2.5", "bob=7.5")
	e.lines[3].ChargePeriod = domain.Interval{From: start + 3*domain.Hour, To: start + 4*domain.Hour}
	// The owners pay a fee that covered nothing.
	e.lines[2].ChargePeriod = e.lines[3].ChargePeriod
	wantShares(t, e, "fee", "ada=2.5", "bob=7.5")
}

func TestInputRefused(t *testing.T) {
	boom := errors.New("boom")
	for want, spoil := range map[string]func(*estate){
		"class 0":          func(e *estate) { e.lines[0].Class = 0 },
		"has no currency":  func(e *estate) { e.lines[0].Currency = "" },
		"makes no sense":   func(e *estate) { e.hours[0].Parts[0].UsefulMs = hour + 1 },
		"time cannot be":   func(e *estate) { e.hours[0].Parts[0].Component = attribution.Prepaid },
		"not in the order": func(e *estate) { e.hours[0].Hour++ },
		"shares add up to": func(e *estate) {
			e.commitments = []attribution.Commitment{{ID: "k", Owners: []domain.Share{{Workspace: "a", Share: decimal.New(5, -1)}}}}
		},
		"is not a share": func(e *estate) {
			e.commitments = []attribution.Commitment{{ID: "k", Owners: []domain.Share{{Workspace: "a"}}}}
		},
		"is given twice": func(e *estate) {
			e.commitments = []attribution.Commitment{{ID: "k"}, {ID: "k", Owners: []domain.Share{{Workspace: "a", Share: decimal.New(1, 0)}}}}
		},
		"needs an id":         func(e *estate) { e.invoices = []attribution.Invoice{{Currency: "USD"}} },
		"add up to more than": func(e *estate) { e.lines = tooMuch(e.lines[0]) },
	} {
		e := pool()
		e.add("a", attribution.OnDemand, "i-1", "10", 2)
		spoil(e)
		if _, _, err := e.run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one of %q", err, want)
		}
	}
	e := pool()
	e.add("a", attribution.OnDemand, "i-1", "10", 2)
	if _, err := attribution.Run(e.input(), func(*attribution.Allocation) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("error %v, want that of the allocation's receiver", err)
	}
	in := e.input()
	in.Usage = func(_ []domain.Interval, _ attribution.Cuts, yield func(*attribution.NodeHour) error) error {
		return yield(&attribution.NodeHour{Node: 9, Hour: start})
	}
	if _, err := attribution.Run(in, nil); err == nil || !strings.Contains(err.Error(), "node 9") {
		t.Errorf("error %v, want one of node 9", err)
	}
}

// Implausible quantities do not stop the rest: they count as not stated.
func TestUnusableQuantities(t *testing.T) {
	for want, spoil := range map[string]func(*estate){
		"S/x/a: 4611686018427387904 ms of machines and 0 ms of GPUs are beyond 31688 years": func(e *estate) { e.lines[0].NodeMs = 1 << 62 },
		"S/x/a: 0 ms of machines and -9223372036854775808 ms of GPUs are beyond":            func(e *estate) { e.lines[0].NodeMs, e.lines[0].GPUMs = 0, -1<<63 },
		"S/x/a: quantity 1e99 Hours": func(e *estate) { e.lines[0].NodeMs, e.lines[0].UnusableQuantity = 0, "quantity 1e99 Hours" },
		"S/x/a: 900000000000000 ms of machines with the GPUs that they have": func(e *estate) {
			e.nodes[0].GPUs, e.lines[0].NodeMs = 8, 900_000_000_000_000
		},
		"c/n1: 2000 GPUs in one machine": func(e *estate) { e.nodes[0].GPUs = 2000 },
		"c/n1: -1 GPUs in one machine":   func(e *estate) { e.nodes[0].GPUs = -1 },
	} {
		e := pool()
		e.add("a", attribution.OnDemand, "i-1", "10", 2)
		e.add("b", attribution.OnDemand, "i-2", "6", 4)
		spoil(e)
		wantShares(t, e, "a", "ada=10")
		wantShares(t, e, "b", "bob=3", "platform:unobserved=3")
		allocations, res, err := e.run()
		if err != nil {
			t.Fatal(err)
		}
		for i := range allocations {
			if l := &allocations[i]; l.line.ID == "a" && l.BoughtMs != 0 {
				t.Errorf("%s: buys %d ms", want, l.BoughtMs)
			}
		}
		var said []string
		for _, x := range res.Exceptions {
			if x.Kind == attribution.QuantityUnusable {
				said = append(said, x.Subject+": "+x.Detail)
				if x.Lines == 1 && x.Billed != money("10") {
					t.Errorf("%+v", x)
				}
			}
		}
		if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("exceptions %q, want %q", said, want)
		}
	}
	// A share of the CPU of a machine with an unknown number of GPUs is not GPU time.
	e := pool()
	e.nodes[0].GPUs = 2000
	part := &e.hours[0].Parts[0]
	part.HeldMs, part.CPUMilli = hour, 4000
	e.hours[0].Parts = append(e.hours[0].Parts, attribution.Part{Component: attribution.Idle, GPUMs: hour})
	e.add("a", attribution.OnDemand, "i-1", "9", 0)
	wantShares(t, e, "a", "ada=6", "own=3")
	// The unused part of a commitment may be implausible too.
	e = pool()
	e.nodes[0].GPUs, e.nodes[1].GPUs = 8, 8
	e.add("a", attribution.Committed, "", "9", 0).Unused = true
	e.lines[0].NodeMs = 900_000_000_000_000
	if _, res, err := e.run(); err != nil || !hasUnusable(res, "S/x/a") {
		t.Errorf("%+v (%v), want an unusable quantity", res, err)
	}
	// Lines that buy too much only together: the last ones buy nothing.
	e = pool()
	for i := range 5000 {
		e.add(fmt.Sprintf("l%04d", i), attribution.OnDemand, "i-1", "10", 0).GPUMs = 1e15
	}
	allocations, res, err := e.run()
	if err != nil || len(res.Exceptions) == 0 {
		t.Fatalf("%d exceptions (%v)", len(res.Exceptions), err)
	}
	var bought int64
	for i := range allocations {
		if bought += allocations[i].BoughtMs; allocations[i].line.ID == "l4999" && allocations[i].BoughtMs != 0 {
			t.Errorf("%+v", allocations[i])
		}
	}
	if bought != 9e15 {
		t.Errorf("the lines buy %d ms", bought)
	}
}

// Time bought of unknown machines is not GPU time, whatever its unit. Time of an unused commitment
// is.
func TestBoughtWithoutUse(t *testing.T) {
	e := pool()
	e.nodes[0].GPUs, e.nodes[1].GPUs = 8, 8
	unused := func(id, sku string, nodes, gpus int64) *attribution.Line {
		l := e.add(id, attribution.Committed, "", "3", nodes)
		l.Unused, l.SKU, l.GPUMs, l.Commitment = true, sku, gpus*hour, "k"
		return l
	}
	e.add("hours", attribution.OnDemand, "i-9", "1", 2).SKU = "other"
	e.add("gpu-hours", attribution.OnDemand, "i-9", "1", 0).SKU = "other"
	e.lines[1].GPUMs = 2 * hour
	unused("stated", "", 0, 4)
	unused("pool", "big", 3, 0)
	unused("unknown", "other", 3, 0)
	e.commitments = []attribution.Commitment{{ID: "k", Owners: []domain.Share{{Workspace: "ada", Share: decimal.New(5, -1)}, {Workspace: "bob", Share: decimal.New(5, -1)}}}}
	wantBought := func(want map[string]int64) {
		t.Helper()
		allocations, _, err := e.run()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for i := range allocations {
			got[allocations[i].line.ID] += allocations[i].BoughtMs
		}
		for id, hours := range want {
			if got[id] != hours*hour {
				t.Errorf("%s buys %d ms, want %d hours", id, got[id], hours)
			}
		}
	}
	wantBought(map[string]int64{"hours": 0, "gpu-hours": 0, "stated": 4, "pool": 24, "unknown": 0})
	// The machines that the commitment covered determine it too.
	e.add("used", attribution.Committed, "i-1", "3", 2).Commitment = "k"
	wantBought(map[string]int64{"pool": 24, "unknown": 24, "used": 16})
	// But not if they differ.
	e.nodes[1].GPUs = 4
	e.add("used too", attribution.Committed, "i-2", "3", 2).Commitment = "k"
	wantBought(map[string]int64{"pool": 0, "unknown": 0, "used": 16, "used too": 8})
}

func tooMuch(l attribution.Line) (all []attribution.Line) {
	l.Billed, l.Effective = money("999999999999999"), money("-999999999999999")
	for range 90_000 {
		all = append(all, l)
	}
	return all
}
