package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// ErrCurrencies is returned for plans in different currencies. The caller should make both plans in
// one currency.
var ErrCurrencies = errors.New("plans in different currencies cannot be compared")

// Status says how something differs between two plans.
type Status string

// The statuses.
const (
	Added   Status = "added"
	Removed Status = "removed"
	Changed Status = "changed"
)

// Diff is the difference between plan A and plan B. Equal items are left out, except costs, which
// are always present.
//
// Invariants: a plan does not differ from itself; and the diff of B and A is that of A and B with
// the sides exchanged, added and removed swapped, and changes negated.
type Diff struct {
	A        Compared       `json:"a"`
	B        Compared       `json:"b"`
	Currency string         `json:"currency"`
	Costs    []AmountChange `json:"costs"`
	// Assumptions are the changed assumptions, by key.
	Assumptions []AssumptionChange `json:"assumptions"`
	Regions     []RegionChange     `json:"regions"`
	Pools       []PoolChange       `json:"pools"`
	Purchases   []PurchaseChange   `json:"purchases"`
}

// Compared identifies one of the two plans.
type Compared struct {
	Plan     string          `json:"plan"`
	At       domain.Instant  `json:"at"`
	Horizon  domain.Interval `json:"horizon"`
	Position string          `json:"position"`
}

// AmountChange is an amount in both plans; 0 in a plan that does not have it.
type AmountChange struct {
	Name   string         `json:"name"`
	A      domain.Decimal `json:"a"`
	B      domain.Decimal `json:"b"`
	Change domain.Decimal `json:"change"` // B less A
}

// AssumptionChange is an assumption in both plans; "" in a plan that does not have it.
type AssumptionChange struct {
	Name string `json:"name"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// RegionChange is a region with its cost.
type RegionChange struct {
	Region string       `json:"region"`
	Status Status       `json:"status"` // added, removed or changed
	Cost   AmountChange `json:"cost"`
}

// PoolChange is a pool that only one plan has, or whose amounts, demand or use of commitments
// differ.
type PoolChange struct {
	Region string       `json:"region"`
	Kind   string       `json:"kind"`
	Unit   string       `json:"unit"`
	Status Status       `json:"status"` // added, removed or changed
	Cost   AmountChange `json:"cost"`
	// UnitHours are the demand, and Held the part served by commitments and owned machines.
	UnitHoursA int64 `json:"unit_hours_a"`
	UnitHoursB int64 `json:"unit_hours_b"`
	HeldA      int64 `json:"committed_unit_hours_a"`
	HeldB      int64 `json:"committed_unit_hours_b"`
	// Reason is why the plan without the pool leaves it out; "" if it does not say.
	Reason string `json:"reason,omitempty"`
}

// PurchaseChange is what is bought of an offer for a term; equal purchases of a plan are added up.
type PurchaseChange struct {
	Region   string           `json:"region"`
	Provider string           `json:"provider"`
	Offer    string           `json:"offer"`
	Zone     string           `json:"zone,omitempty"`
	Kind     domain.OfferKind `json:"kind"`
	SKU      string           `json:"sku"`
	GPUModel string           `json:"gpu_model"`
	Term     domain.Interval  `json:"term"`
	Status   Status           `json:"status"` // added, removed or changed
	UnitsA   int              `json:"units_a"`
	UnitsB   int              `json:"units_b"`
	Upfront  AmountChange     `json:"upfront"`
	Cost     AmountChange     `json:"cost"`
}

// Empty reports whether a diff shows no difference.
func (d *Diff) Empty() bool {
	return len(d.Assumptions)+len(d.Regions)+len(d.Pools)+len(d.Purchases) == 0 &&
		!slices.ContainsFunc(d.Costs, func(c AmountChange) bool { return !c.Change.IsZero() })
}

// NewDiff compares two plans. Amounts are net present values at the start of each plan's horizon. A
// difference in horizons is listed under assumptions.
func NewDiff(a, b *Plan) (*Diff, error) {
	if x, y := a.Assumptions.Currency, b.Assumptions.Currency; x != y {
		return nil, fmt.Errorf("%w: %s is in %s, %s is in %s", ErrCurrencies, a.ID, x, b.ID, y)
	}
	d := &Diff{A: comparedOf(a), B: comparedOf(b), Currency: a.Assumptions.Currency, Costs: costChanges(a, b)}
	var err error
	if d.Assumptions, err = assumptionChanges(a, b); err != nil {
		return nil, err
	}
	d.Regions, d.Pools, d.Purchases = regionChanges(a, b), poolChanges(a, b), purchaseChanges(a, b)
	return d, nil
}

func comparedOf(p *Plan) Compared { return Compared{p.ID, p.At, p.Horizon, p.Position} }

func change(name string, a, b domain.Decimal) AmountChange {
	return AmountChange{name, a, b, b.Sub(a)}
}

func costChanges(a, b *Plan) []AmountChange {
	x, y := &a.Total, &b.Total
	out := []AmountChange{
		change("cost", x.Cost, y.Cost), change("incl. held", x.Held, y.Held),
		change("incl. penalty", x.Penalty, y.Penalty), change("lower bound", x.LowerBound, y.LowerBound),
	}
	was, is := a.savings(), b.savings()
	for _, against := range []string{BuyNothing, UnderQuota, WithoutQuota} {
		of := func(all []Saving) (cost domain.Decimal, ok bool) {
			i := slices.IndexFunc(all, func(s Saving) bool { return s.Against == against })
			if i < 0 {
				return decimal.Zero, false
			}
			return all[i].Cost, true
		}
		m, ok := of(was)
		n, also := of(is)
		if ok || also {
			out = append(out, change(against, m, n))
		}
	}
	return append(out, change("paid within the horizon", x.Nominal, y.Nominal),
		change("stranded at low demand", x.Stranded, y.Stranded))
}

// assumptionChanges compares the questions and the methods that answered them.
func assumptionChanges(a, b *Plan) ([]AssumptionChange, error) {
	was, err := a.given()
	if err != nil {
		return nil, err
	}
	is, err := b.given()
	if err != nil {
		return nil, err
	}
	out := []AssumptionChange{}
	names := maps.Clone(was)
	maps.Copy(names, is)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was[name] != is[name] {
			out = append(out, AssumptionChange{name, was[name], is[name]})
		}
	}
	return out, nil
}

// given returns a plan's assumptions by key. Equal numbers have equal texts.
func (p *Plan) given() (map[string]string, error) {
	text, err := json.Marshal(&p.Assumptions)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	read := json.NewDecoder(bytes.NewReader(text))
	read.UseNumber()
	if err := read.Decode(&fields); err != nil {
		return nil, err
	}
	out := map[string]string{
		"at": p.At.String(), "horizon": p.Horizon.From.String() + " to " + p.Horizon.To.String(),
		"methods": strings.Join(p.Methods, " "), "regions": strings.Join(p.Asked(), " "),
	}
	for name, v := range fields {
		value := fmt.Sprint(v)
		if d, err := decimal.NewFromString(value); err == nil {
			value = d.String()
		}
		out[name] = value
	}
	return out, nil
}

func regionChanges(a, b *Plan) []RegionChange {
	was, is := map[string]*RegionPlan{}, map[string]*RegionPlan{}
	for i := range a.Regions {
		was[a.Regions[i].Region] = &a.Regions[i]
	}
	for i := range b.Regions {
		is[b.Regions[i].Region] = &b.Regions[i]
	}
	out := []RegionChange{}
	for _, name := range keysOf(was, is, strings.Compare) {
		var m, n RegionPlan
		status := statusOf(was[name], is[name], &m, &n)
		c := change("cost", m.Cost, n.Cost)
		if status != Changed || !c.Change.IsZero() {
			out = append(out, RegionChange{name, status, c})
		}
	}
	return out
}

// statusOf determines the status, and copies the values that exist.
func statusOf[T any](a, b *T, intoA, intoB *T) Status {
	if a != nil {
		*intoA = *a
	}
	if b != nil {
		*intoB = *b
	}
	switch {
	case a == nil:
		return Added
	case b == nil:
		return Removed
	}
	return Changed
}

// keysOf returns the keys of both maps in order.
func keysOf[K comparable, V any](a, b map[K]V, compare func(x, y K) int) []K {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.SortedFunc(maps.Keys(all), compare)
}

type poolKey struct{ region, kind, unit string }

func (k poolKey) compare(o poolKey) int {
	return cmp.Or(cmp.Compare(k.region, o.region), cmp.Compare(k.kind, o.kind), cmp.Compare(k.unit, o.unit))
}

func poolsOf(p *Plan) map[poolKey]*PoolPlan {
	out := map[poolKey]*PoolPlan{}
	for i := range p.Regions {
		r := &p.Regions[i]
		for j := range r.Pools {
			out[poolKey{r.Region, r.Pools[j].Kind, r.Pools[j].Unit}] = &r.Pools[j]
		}
	}
	return out
}

func poolChanges(a, b *Plan) []PoolChange {
	was, is := poolsOf(a), poolsOf(b)
	out := []PoolChange{}
	for _, k := range keysOf(was, is, poolKey.compare) {
		var m, n PoolPlan
		x := PoolChange{
			Region: k.region, Kind: k.kind, Unit: k.unit, Status: statusOf(was[k], is[k], &m, &n),
			Cost: change("cost", m.Cost, n.Cost),
		}
		x.UnitHoursA, x.UnitHoursB, x.HeldA, x.HeldB = m.Demand.UnitHours, n.Demand.UnitHours, m.Served.Held, n.Served.Held
		switch x.Status {
		case Added:
			x.Reason = a.excluded(k)
		case Removed:
			x.Reason = b.excluded(k)
		case Changed:
			if x.Cost.Change.IsZero() && x.UnitHoursA == x.UnitHoursB && m.Served == n.Served {
				continue
			}
		}
		out = append(out, x)
	}
	return out
}

// excluded returns why a plan leaves a pool out, "" if it does not say.
func (p *Plan) excluded(k poolKey) string {
	if i := slices.IndexFunc(p.Excluded, func(l ExcludedPool) bool { return poolKey{l.Region, l.Kind, l.Unit} == k }); i >= 0 {
		return p.Excluded[i].Reason
	}
	return ""
}

type purchaseKey struct {
	region, provider, offer, zone string
	kind                          domain.OfferKind
	sku, model                    string
	term                          domain.Interval
}

func (k purchaseKey) compare(o purchaseKey) int {
	return cmp.Or(cmp.Compare(k.region, o.region), cmp.Compare(k.provider, o.provider), cmp.Compare(k.offer, o.offer),
		cmp.Compare(k.zone, o.zone), cmp.Compare(k.term.From, o.term.From), cmp.Compare(k.term.To, o.term.To), cmp.Compare(k.kind, o.kind),
		cmp.Compare(k.sku, o.sku), cmp.Compare(k.model, o.model))
}

func purchasesOf(p *Plan) map[purchaseKey]*Purchase {
	out := map[purchaseKey]*Purchase{}
	for i := range p.Regions {
		r := &p.Regions[i]
		for _, b := range r.Purchases {
			k := purchaseKey{r.Region, b.Provider, b.Offer, b.Zone, b.Kind, b.SKU, b.GPUModel, b.Term}
			sum := out[k]
			if sum == nil {
				sum = &Purchase{}
				out[k] = sum
			}
			sum.Units += b.Units
			sum.Upfront, sum.Cost = sum.Upfront.Add(b.Upfront), sum.Cost.Add(b.Cost)
		}
	}
	return out
}

func purchaseChanges(a, b *Plan) []PurchaseChange {
	was, is := purchasesOf(a), purchasesOf(b)
	out := []PurchaseChange{}
	for _, k := range keysOf(was, is, purchaseKey.compare) {
		var m, n Purchase
		x := PurchaseChange{
			Region: k.region, Provider: k.provider, Offer: k.offer, Zone: k.zone, Kind: k.kind, SKU: k.sku, GPUModel: k.model,
			Term:   k.term,
			Status: statusOf(was[k], is[k], &m, &n),
		}
		x.UnitsA, x.UnitsB = m.Units, n.Units
		x.Upfront, x.Cost = change("upfront", m.Upfront, n.Upfront), change("cost", m.Cost, n.Cost)
		if x.Status != Changed || x.UnitsA != x.UnitsB || !x.Upfront.Change.IsZero() || !x.Cost.Change.IsZero() {
			out = append(out, x)
		}
	}
	return out
}
