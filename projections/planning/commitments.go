package planning

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/market"
	"quartermaster/projections/registry"
)

// CommitmentEntry is a commitment that is not over: what was bought, with its current and future
// terms.
type CommitmentEntry struct {
	Workspace          string             `json:"workspace"` // whose operators decided
	Commitment         string             `json:"commitment"`
	Contract           string             `json:"contract,omitempty"`
	Market             domain.Market      `json:"market"`
	Offer              string             `json:"offer,omitempty"`
	BillingAccount     string             `json:"billing_account"`
	Kind               domain.OfferKind   `json:"kind"`
	SKU                string             `json:"sku"`
	GPUModel           string             `json:"gpu_model"`
	Model              string             `json:"model"` // GPU model as the catalogue spells it, else as stated
	GPUsPerUnit        uint32             `json:"gpus_per_unit"`
	SpendPerHour       domain.NullDecimal `json:"spend_per_hour,omitzero"`
	Spend              string             `json:"spend,omitempty"`
	GuaranteesCapacity bool               `json:"guarantees_capacity"`
	Owners             []domain.Share     `json:"owners,omitempty"`
	Terms              []CommitmentTerm   `json:"terms"` // current and future terms, ascending and disjoint; at least one
}

// CommitmentTerm is a time in which a commitment is valid, at one price.
type CommitmentTerm struct {
	Term     domain.Interval `json:"term"`
	Units    uint32          `json:"units"`
	Upfront  domain.Money    `json:"upfront"` // in total
	Hourly   domain.Money    `json:"hourly"`  // per unit
	NoticeBy domain.Instant  `json:"notice_by,omitempty"`
	Renewed  bool            `json:"renewed"` // false: the original purchase
}

// At returns the term that is valid at a time, nil if there is none.
func (e *CommitmentEntry) At(t domain.Instant) *CommitmentTerm {
	for i := range e.Terms {
		if e.Terms[i].Term.From <= t && t < e.Terms[i].Term.To {
			return &e.Terms[i]
		}
	}
	return nil
}

// End returns when the last term ends.
func (e *CommitmentEntry) End() domain.Instant { return e.Terms[len(e.Terms)-1].Term.To }

// Commitments returns all commitments that were ever bought, with those terms that they had after
// renewals and ends, by id. One that was ended before it began has no term. It judges decisions as
// [CommitmentsHeld] does.
func Commitments(view projections.View, a *registry.Authority) (map[string]CommitmentEntry, error) {
	return commitments(view, a, math.MaxInt64)
}

// CommitmentsHeld returns the commitments that are not over at a time, including future ones, by
// end and then id. It counts valid decisions that had taken effect or had been made by then: the
// last purchase, its renewals, each of which replaces what was valid from its start on, and its
// end. If several workspaces declare one commitment, the later purchase counts.
func CommitmentsHeld(view projections.View, a *registry.Authority, at domain.Instant) ([]CommitmentEntry, error) {
	held, err := commitments(view, a, at)
	if err != nil {
		return nil, err
	}
	out := []CommitmentEntry{}
	for _, id := range slices.Sorted(maps.Keys(held)) {
		e := held[id]
		e.Terms = slices.DeleteFunc(e.Terms, func(t CommitmentTerm) bool { return t.Term.To <= at })
		if len(e.Terms) > 0 {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b CommitmentEntry) int { return cmp.Compare(a.End(), b.End()) })
	return out, nil
}

// commitments reads the commitments as decided by a time.
func commitments(view projections.View, a *registry.Authority, at domain.Instant) (map[string]CommitmentEntry, error) {
	type bought struct {
		entry CommitmentEntry
		order domain.Precedence
	}
	held := map[string]bought{}
	err := view.Scan(projections.Query{Table: projections.TableCommitments}, func(k projections.Key, row projections.Row) error {
		e, order := commitmentOf(a, k, row.(*projections.History), at)
		if e == nil {
			return nil
		}
		if other, twice := held[k.ID]; !twice || order.After(other.order) {
			held[k.ID] = bought{*e, order}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read commitments: %w", err)
	}
	all := map[string]CommitmentEntry{}
	for id, b := range held {
		all[id] = b.entry
	}
	return all, nil
}

// commitmentOf reads a history with every term, and the order of its purchase; nil if there is
// none.
func commitmentOf(
	a *registry.Authority, k projections.Key, h *projections.History, at domain.Instant,
) (e *CommitmentEntry, order domain.Precedence) {
	// cut ends the terms from a time on.
	cut := func(from domain.Instant) {
		e.Terms = slices.DeleteFunc(e.Terms, func(t CommitmentTerm) bool { return t.Term.From >= from })
		if n := len(e.Terms); n > 0 {
			e.Terms[n-1].Term.To = min(e.Terms[n-1].Term.To, from)
		}
	}
	for i := range h.Versions {
		v := &h.Versions[i]
		if v.Order.Effective > at && v.Order.Time > at || a.Judge(k, h, i) != "" {
			continue
		}
		switch ev := v.Event.(type) {
		case *domain.CommitmentPurchased:
			e, order = &CommitmentEntry{
				Workspace: k.Scope, Commitment: ev.Commitment, Contract: ev.Contract, Market: ev.Market, Offer: ev.Offer,
				BillingAccount: ev.BillingAccount, Kind: ev.Kind, SKU: ev.SKU, GPUModel: ev.GPUModel,
				Model:       market.ModelName(ev.GPUModel),
				GPUsPerUnit: ev.GPUsPerUnit, SpendPerHour: ev.SpendPerHour, Spend: ev.Spend,
				GuaranteesCapacity: ev.GuaranteesCapacity, Owners: ev.Owners,
				Terms: []CommitmentTerm{{ev.Term, ev.Units, ev.Upfront, ev.Hourly, ev.NoticeBy, false}},
			}, v.Order
		case *domain.CommitmentRenewed:
			if e != nil {
				cut(ev.Term.From)
				e.Terms = append(e.Terms, CommitmentTerm{ev.Term, ev.Units, ev.Upfront, ev.Hourly, ev.NoticeBy, true})
			}
		case *domain.CommitmentEnded:
			if e != nil {
				cut(ev.At)
			}
		}
	}
	return e, order
}

// Expiry is units of a commitment that expire at a time.
type Expiry struct {
	From               domain.Instant   `json:"from"` // of the expiring term
	At                 domain.Instant   `json:"at"`
	Workspace          string           `json:"workspace"`
	Commitment         string           `json:"commitment"`
	Market             domain.Market    `json:"market"`
	Kind               domain.OfferKind `json:"kind"`
	SKU                string           `json:"sku"`
	Model              string           `json:"model"`
	Units              uint32           `json:"units"`
	GPUsPerUnit        uint32           `json:"gpus_per_unit"`
	GPUs               uint64           `json:"gpus"`
	Hourly             domain.Money     `json:"hourly"` // per unit, as paid
	GuaranteesCapacity bool             `json:"guarantees_capacity"`
	NoticeBy           domain.Instant   `json:"notice_by,omitempty"` // last time to stop or request a renewal
}

// ExpiryLadder returns when units of commitments expire, by time, then commitment: at the end of a
// term, the units without a following term. A spend commitment expires with the units that it
// states, which may be none.
func ExpiryLadder(held []CommitmentEntry) []Expiry {
	out := []Expiry{}
	for i := range held {
		e := &held[i]
		for j := range e.Terms {
			t := &e.Terms[j]
			units := t.Units
			if j+1 < len(e.Terms) && e.Terms[j+1].Term.From == t.Term.To {
				next := e.Terms[j+1].Units
				if units <= next {
					continue
				}
				units -= next
			}
			out = append(out, Expiry{
				From: t.Term.From, At: t.Term.To, Workspace: e.Workspace, Commitment: e.Commitment, Market: e.Market,
				Kind: e.Kind,
				SKU:  e.SKU, Model: e.Model, Units: units, GPUsPerUnit: e.GPUsPerUnit,
				GPUs: uint64(units) * uint64(e.GPUsPerUnit), Hourly: t.Hourly,
				GuaranteesCapacity: e.GuaranteesCapacity, NoticeBy: t.NoticeBy,
			})
		}
	}
	slices.SortFunc(out, func(a, b Expiry) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Commitment, b.Commitment))
	})
	return out
}
