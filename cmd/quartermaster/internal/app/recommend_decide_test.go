package app

import (
	"errors"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/recommend"
	"quartermaster/projections/registry"

	"github.com/shopspring/decimal"
)

// TestChangedSince holds that what the program proposed asks again when what it rests on changed: its price, a policy, its
// demand, its cost or what it touches. What a person wrote rests on nothing that could be computed again.
func TestChangedSince(t *testing.T) {
	usd := func(n int64) domain.Money { return domain.Money{Amount: decimal.NewFromInt(n), Currency: "USD"} }
	made := func(edit func(*recommend.Recommendation)) recommend.Recommendation {
		saving, low, high := usd(100), usd(80), usd(120)
		r := recommend.Recommendation{
			ID: "r-1", Kind: "rightsize", Workspace: "acme", Clusters: []string{"lab"}, Cost: usd(0), Saving: &saving, Low: &low, High: &high,
		}
		if edit != nil {
			edit(&r)
		}
		return r
	}
	proposed := func(r recommend.Recommendation) *registry.Proposal {
		ev, err := r.Made("0", "ann", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := &registry.Proposal{Recommendation: r.ID, Clusters: r.Clusters, Cost: r.Cost, Method: ev.Method, Made: ev}
		if r.Saving != nil {
			p.Saving, p.SavingLow, p.SavingHigh = r.Saving, r.Low, r.High
		}
		return p
	}
	saves := func(n int64) func(*recommend.Recommendation) {
		return func(r *recommend.Recommendation) { s := usd(n); r.Saving = &s }
	}
	unpriced := func(r *recommend.Recommendation) { r.Saving, r.Low, r.High = nil, nil, nil }
	for _, c := range []struct {
		name string
		then func(*recommend.Recommendation)
		now  []recommend.Recommendation
		not  []recommend.Refused
		want string // "": it still holds
	}{
		{name: "the same", now: []recommend.Recommendation{made(nil)}},
		{name: "within its interval", now: []recommend.Recommendation{made(saves(119))}},
		{name: "a price that fell", now: []recommend.Recommendation{made(saves(79))}, want: "it now saves 79 USD a month, outside 80 USD to 120 USD"},
		{name: "a price that rose", now: []recommend.Recommendation{made(saves(121))}, want: "it now saves 121 USD a month, outside"},
		{name: "no bill prices it any more", now: []recommend.Recommendation{made(unpriced)}, want: "is no longer known in USD"},
		{name: "nothing priced it then", then: unpriced, now: []recommend.Recommendation{made(nil)}, want: "nothing was known of that"},
		{name: "and nothing does now", then: unpriced, now: []recommend.Recommendation{made(unpriced)}},
		{name: "another currency", now: []recommend.Recommendation{made(func(r *recommend.Recommendation) {
			r.Saving = &domain.Money{Amount: decimal.NewFromInt(100), Currency: "EUR"}
		})}, want: "is no longer known in USD"},
		{name: "a policy", not: []recommend.Refused{{Recommendation: made(nil), Because: "platform/eu-only"}}, want: "it is refused now: platform/eu-only"},
		{name: "demand that came back", want: "it is not among the present recommendations"},
		{name: "its cost", now: []recommend.Recommendation{made(func(r *recommend.Recommendation) { r.Cost = usd(5) })}, want: "it now costs 5 USD, not 0 USD"},
		{name: "another cluster", now: []recommend.Recommendation{made(func(r *recommend.Recommendation) { r.Clusters = []string{"lab", "west"} })},
			want: "it now touches clusters [lab west], not [lab]"},
	} {
		got, err := (&Caller{}).changedSince(t.Context(), proposed(made(c.then)), func() (*recommend.Advice, error) {
			return &recommend.Advice{Made: c.now, Refused: c.not}, nil
		})
		if err != nil || (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	broken := errors.New("no rows")
	fails := func() (*recommend.Advice, error) { return nil, broken }
	if _, err := (&Caller{}).changedSince(t.Context(), proposed(made(nil)), fails); !errors.Is(err, broken) {
		t.Errorf("what cannot be computed counts as unchanged: %v", err)
	}
	written := proposed(made(nil))
	written.Method = ""
	if got, err := (&Caller{}).changedSince(t.Context(), written, fails); got != "" || err != nil {
		t.Errorf("what a person wrote: %q, %v", got, err)
	}
}

// TestApprovalAsksAgain holds that nobody approves what the program would not propose now.
func TestApprovalAsksAgain(t *testing.T) {
	c, decide := drains(t, nil)
	eighty, err := domain.ParseMoney("80 USD")
	if err != nil {
		t.Fatal(err)
	}
	made := &domain.RecommendationMade{
		Recommendation: "r-gone", Kind: "drain", Summary: "drain it", Requester: "ann", Clusters: []string{"lab"}, Saving: eighty, SavingLow: eighty,
		SavingHigh: eighty, Position: "0", Method: recommend.Method, Document: []byte("{}"),
	}
	decide("ann", Draft{Use: "recommend-propose", SignAll: true, Events: []domain.Envelope{
		{Time: Now(), Subject: made.Recommendation, Workspace: Platform, Event: made},
	}})
	_, _, err = c.DecideRecommendation(t.Context(), "r-gone", Approve, "", "", "root")
	if KindOf(err) != KindConflict || !strings.Contains(err.Error(), "must be proposed again: it is not among the present recommendations") {
		t.Errorf("it may be approved: %v", err)
	}
}
