package app

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// A commitment is renewed and ended by who has the limit, once, and what changes is said.
func TestCommitments(t *testing.T) {
	_, c, root := begun(t)
	ctx := t.Context()
	usd := func(n int64) domain.Money { return domain.Money{Amount: decimal.NewFromInt(n), Currency: "USD"} }
	fin := registers(t, c, root, Platform, "fin", domain.RoleFinance, usd(480))
	start := Now().DayStart()
	if err := settle(t, c, fin, Draft{Use: "test", Events: []domain.Envelope{{Time: Now(), Subject: "c1", Workspace: Platform, Event: &domain.CommitmentPurchased{
		Commitment: "c1", Market: domain.Market{Provider: "p", Region: "r"}, BillingAccount: "b", Kind: domain.OfferReserved, SKU: "s", GPUModel: "H100", GPUsPerUnit: 8, Units: 2,
		Term: domain.Interval{From: start, To: start + 10*domain.Day}, Hourly: usd(1), Upfront: usd(0),
	}}}}); err != nil {
		t.Fatal(err)
	}
	end := start + 10*domain.Day
	kind := func(want Kind, err error) {
		t.Helper()
		if KindOf(err) != want {
			t.Errorf("want %s: %v", want, err)
		}
	}
	_, _, err := c.RenewCommitment(ctx, "c9", Renewal{To: end + domain.Day})
	kind(KindNotFound, err)
	_, _, err = c.RenewCommitment(ctx, "c1", Renewal{To: end})
	kind(KindConflict, err)
	_, _, err = c.RenewCommitment(ctx, "c1", Renewal{From: end + domain.Day, To: end + 2*domain.Day})
	kind(KindInvalid, err)
	_, _, err = c.RenewCommitment(ctx, "c1", Renewal{From: start, To: end + 2*domain.Day})
	kind(KindInvalid, err)
	ans, draft, err := c.RenewCommitment(ctx, "c1", Renewal{To: end + 11*domain.Day})
	if err != nil || fmt.Sprint(ans.Commits) != "[528 USD]" {
		t.Fatalf("%+v, %v", ans, err)
	}
	var denied *DeniedError
	if err := settle(t, c, fin, draft); !errors.As(err, &denied) {
		t.Errorf("more than the limit: %v", err)
	}
	ans, draft, err = c.RenewCommitment(ctx, "c1", Renewal{To: end + 10*domain.Day})
	if err != nil || fmt.Sprint(ans.Commits) != "[480 USD]" || len(ans.After) != 2 || len(ans.Released) != 0 {
		t.Fatalf("%+v, %v", ans, err)
	}
	if err := settle(t, c, root, draft); !errors.As(err, &denied) {
		t.Errorf("an admin without a limit: %v", err)
	}
	if err := settle(t, c, fin, draft); err != nil {
		t.Fatal(err)
	}
	_, _, err = c.RenewCommitment(ctx, "c1", Renewal{To: end + 10*domain.Day})
	kind(KindConflict, err)

	_, _, err = c.EndCommitment(ctx, "c1", end-domain.Day, "r")
	kind(KindConflict, err)
	ans, draft, err = c.EndCommitment(ctx, "c1", end+domain.Day, "returned")
	if err != nil || fmt.Sprint(ans.Released) != "[432 USD]" || len(ans.After) != 2 || ans.After[1].Term.To != end+domain.Day {
		t.Fatalf("%+v, %v", ans, err)
	}
	planner := registers(t, c, root, Platform, "planner", domain.RolePlanner)
	if err := settle(t, c, planner, draft); !errors.As(err, &denied) {
		t.Errorf("a planner: %v", err)
	}
	if err := settle(t, c, fin, draft); err != nil {
		t.Fatal(err)
	}
	_, _, err = c.EndCommitment(ctx, "c1", end+domain.Day, "returned")
	kind(KindConflict, err)
	got, err := c.Get(ctx, "", "commitments", "c1", "")
	if err != nil || len(got.Entries) != 1 || got.Entries[0].Until != end+domain.Day {
		t.Errorf("%+v, %v", got, err)
	}
}
