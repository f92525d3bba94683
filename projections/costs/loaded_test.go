package costs_test

import (
	"maps"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// TestPoolsAreKept reads the pools of a month from what is kept of it, although another policy decides by now.
func TestPoolsAreKept(t *testing.T) {
	policy := func(pool string) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - domain.Day, Event: &domain.PolicySet{
			Policy: "pools", Kind: domain.PolicySharedCosts, EffectiveFrom: storetest.Start,
			Pools: []domain.CostPool{{Pool: pool, By: domain.ShareByCost}},
		}})
	}
	l := house()
	l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1000000"), storetest.Start-10*domain.Day), policy("a"))
	var kept []byte
	pools := func(d *costs.Division) string {
		if d.Shared == nil {
			return ""
		}
		return d.Shared.Policy.Policy + ": " + d.Shared.Pools[0].Pool
	}
	storetest.FoldView(t, l, func(v projections.View) { kept = canonicalForm(t, v, storetest.MayBill) })
	l.Append(policy("b"))
	storetest.FoldView(t, l, func(v projections.View) {
		now, err := costs.Divide(v, storetest.MayBill, 1<<30)
		if err != nil || pools(now) != "pools: b" {
			t.Fatalf("now: %q, %v", pools(now), err)
		}
	})
	d, err := costs.ReadCanonical(openBytes(kept))
	if err != nil || pools(d) != "pools: a" {
		t.Fatalf("kept: %q, %v", pools(d), err)
	}
	r, err := d.Report(costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace}})
	if err != nil || !r.HasPools() {
		t.Fatalf("the report has pools: %t, %v", r.HasPools(), err)
	}
}

// drawShared draws a report by workspace, and pools.
func drawShared(t *rapid.T) (*costs.Report, []domain.CostPool) {
	r := &costs.Report{By: []costs.Dimension{costs.ByWorkspace}}
	names := []string{"ada", "bob", "cyd", "infra", "platform", "platform:reliability", "platform:unobserved"}
	amount := func(name string) attribution.Amount {
		a, err := attribution.AmountOf(decimal.New(rapid.Int64Range(-50, 100_000).Draw(t, name), rapid.SampledFrom([]int32{0, -2, -18}).Draw(t, "scale")))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, currency := range rapid.SampledFrom([][]string{{"USD"}, {"EUR", "USD"}}).Draw(t, "currencies") {
		total := costs.Cost{Currency: currency}
		for _, w := range names {
			if rapid.IntRange(0, 3).Draw(t, "no cost") == 0 {
				continue
			}
			c := costs.Cost{Currency: currency, Billed: amount("billed"), Effective: amount("effective")}
			if w[0] != 'p' {
				c.Allocated = rapid.Int64Range(0, 1_000_000_007).Draw(t, "held")
			}
			total.Billed, total.Effective = total.Billed.Add(c.Billed), total.Effective.Add(c.Effective)
			r.Groups = append(r.Groups, costs.Group{Key: map[costs.Dimension]string{costs.ByWorkspace: w}, Cost: c})
		}
		r.Totals = append(r.Totals, total)
	}
	var pools []domain.CostPool
	order := rapid.Permutation([]string{"platform:reliability", "infra", "platform", "absent"}).Draw(t, "pools")
	for i, name := range order[:rapid.IntRange(1, len(order)).Draw(t, "number of pools")] {
		p := domain.CostPool{Pool: name}
		switch rapid.IntRange(0, 2).Draw(t, "driver") {
		case 0:
			p.By = domain.ShareByGPUHours
		case 1:
			p.By = domain.ShareByCost
		default:
			p.Shares = []domain.WorkspaceWeight{{Workspace: "ada", Weight: 1}, {Workspace: "new", Weight: rapid.Uint32Range(1, 9).Draw(t, "weight")}}
			for _, later := range order[i+1:] {
				p.Shares = append(p.Shares, domain.WorkspaceWeight{Workspace: later, Weight: 2})
			}
		}
		pools = append(pools, p)
	}
	return r, pools
}

// TestLoadedViewsKeepTotals checks that views move costs and lose none: totals stay, a pool passes on all or nothing,
// nothing goes back, parts are exact shares to one unit of 10⁻¹⁸, and the order of groups has no effect.
func TestLoadedViewsKeepTotals(t *testing.T) {
	seen := map[string]int{}
	long.Check(t, 500, 100_000, func(t *rapid.T) {
		r, pools := drawShared(t)
		view := rapid.SampledFrom([]costs.View{costs.ViewLoaded, costs.ViewProportional}).Draw(t, "view")
		l, err := r.LoadBy(view, &costs.SharedCosts{Pools: pools})
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		for i, p := range pools {
			at[p.Pool] = i
		}
		type total struct{ billed, effective attribution.Amount }
		sums := map[string]total{}
		bears := map[[2]string]costs.Amounts{}
		for _, w := range l.Workspaces {
			sums[w.Currency] = total{sums[w.Currency].billed.Add(w.Billed), sums[w.Currency].effective.Add(w.Effective)}
			bears[[2]string{w.Workspace, w.Currency}] = w.Amounts
			if w.Direct.Effective.Add(w.Received.Effective).Sub(w.Passed.Effective) != w.Effective {
				t.Fatalf("%+v does not add up", w)
			}
		}
		for _, want := range r.Totals {
			if got := sums[want.Currency]; got != (total{want.Billed, want.Effective}) {
				t.Fatalf("%s adds up to %v, want %s and %s", want.Currency, got, want.Billed, want.Effective)
			}
		}
		stepped := map[[2]string]bool{}
		for _, s := range l.Steps {
			stepped[[2]string{s.Pool, s.Currency}] = true
			var sum costs.Amounts
			for _, to := range s.To {
				sum.Billed, sum.Effective = sum.Billed.Add(to.Billed), sum.Effective.Add(to.Effective)
				if i, pool := at[to.Workspace]; pool && (i <= at[s.Pool] || view == costs.ViewProportional) {
					t.Fatalf("%s passes on to %s, of %v", s.Pool, to.Workspace, pools)
				} else if pool {
					seen["a later pool receives"]++
				}
				for _, a := range [][2]attribution.Amount{{to.Billed, s.Billed}, {to.Effective, s.Effective}} {
					off := new(big.Int).Mul(whole(a[0]), whole(s.Of))
					off.Sub(off, new(big.Int).Mul(whole(a[1]), whole(to.Weight)))
					if off.CmpAbs(whole(s.Of)) >= 0 {
						t.Fatalf("%s receives %s of %s for %s of %s", to.Workspace, a[0], a[1], to.Weight, s.Of)
					}
				}
			}
			if len(s.To) == 0 {
				seen["nobody receives"]++
			} else if sum != s.Amounts {
				t.Fatalf("%+v passes on %v", s, sum)
			} else if left := bears[[2]string{s.Pool, s.Currency}]; left != (costs.Amounts{}) {
				t.Fatalf("%s keeps %v", s.Pool, left)
			}
		}
		for _, w := range l.Workspaces {
			if _, pool := at[w.Workspace]; pool && !stepped[[2]string{w.Workspace, w.Currency}] && w.Amounts != (costs.Amounts{}) {
				t.Fatalf("pool %+v passed on nothing", w)
			}
		}
		draws := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		draws.Shuffle(len(r.Groups), func(i, j int) { r.Groups[i], r.Groups[j] = r.Groups[j], r.Groups[i] })
		if again, err := r.LoadBy(view, &costs.SharedCosts{Pools: pools}); err != nil || !reflect.DeepEqual(again, l) {
			t.Fatalf("in another order %+v, before %+v (%v)", again, l, err)
		}
	})
	if want := []string{"a later pool receives", "nobody receives"}; !slices.Equal(slices.Sorted(maps.Keys(seen)), want) {
		t.Errorf("seen are %v, want %v", seen, want)
	}
}

// whole returns an amount in units of 10⁻¹⁸.
func whole(a attribution.Amount) *big.Int { return a.Decimal().Shift(18).BigInt() }

func TestViewsAreOfAllWorkspaces(t *testing.T) {
	for _, r := range []*costs.Report{
		{By: []costs.Dimension{costs.ByCluster}}, {By: []costs.Dimension{costs.ByWorkspace}, Workspace: "a"},
	} {
		if _, err := r.LoadBy(costs.ViewLoaded, &costs.SharedCosts{Pools: nil}); err == nil {
			t.Errorf("there is a view of %+v", r)
		}
	}
}
