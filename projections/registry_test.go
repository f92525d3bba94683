package projections_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

const t0 domain.Instant = 1777593600 * domain.Second // 2026-05-01T00:00:00Z

func dec(s string) domain.Decimal { return decimal.RequireFromString(s) }

func usd(s string) *domain.Money { return &domain.Money{Amount: dec(s), Currency: "USD"} }

// view folds a log into a strict store and shows its rows. Nothing may be in
// quarantine: a test that wants that says so by itself.
func view(t *testing.T, l *storetest.Log, read func(projections.View)) {
	t.Helper()
	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	err = m.View(context.Background(), func(v projections.View) error {
		err := v.Scan(projections.Query{Table: projections.TableQuarantine}, func(_ projections.Key, row projections.Row) error {
			t.Errorf("quarantined: %s", row.(*projections.Quarantined).Reason)
			return nil
		})
		read(v)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	root    = storetest.NewOperator("root", 1)
	ann     = storetest.NewOperator("ann", 1)
	bob     = storetest.NewOperator("bob", 1)
	mallory = storetest.NewOperator("mallory", 1)
)

func quota(id string, at domain.Instant) domain.Envelope {
	return domain.Envelope{Workspace: "acme", Time: at, Event: &domain.QuotaSet{
		Quota: id, Resource: "nvidia.com/gpu", Limit: dec("8"), EffectiveFrom: at,
	}}
}

// rejected returns "type operator: reason" of everything void.
func rejected(t *testing.T, l *storetest.Log) string {
	t.Helper()
	var lines []string
	view(t, l, func(v projections.View) {
		r, err := projections.NewRegistry(v, t0+100*domain.Day)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Rejected {
			lines = append(lines, x.ID+" "+string(x.Type)+" "+x.Operator+": "+x.Reason)
		}
	})
	return strings.Join(lines, "\n")
}

func TestAuthority(t *testing.T) {
	const day = domain.Day
	revoke := func(by storetest.Operator, workspace string, who storetest.Operator, at domain.Instant) domain.Envelope {
		return by.Sign(domain.Envelope{Workspace: workspace, Time: at, Event: &domain.OperatorRevoked{Operator: who.Name, PublicKey: who.Public()}})
	}
	purchase := func(commitment string, units uint32, hourly string) domain.Envelope {
		return domain.Envelope{Workspace: "acme", Time: t0 + 2*day, Event: &domain.CommitmentPurchased{
			Commitment: commitment, Market: domain.Market{Provider: "p", Region: "r"}, BillingAccount: "b", Kind: domain.OfferReserved,
			SKU: "s", GPUModel: "H100", GPUsPerUnit: 8, Units: units,
			Term: domain.Interval{From: t0, To: t0 + 10*day}, Hourly: *usd(hourly),
		}}
	}
	rate := func(at domain.Instant) domain.Envelope {
		return domain.Envelope{Time: at, Event: &domain.FXRateSet{
			Base: "EUR", Quote: "USD", Rate: dec("1.1"), Kind: domain.FXSpot, Effective: domain.Interval{From: t0 - 30*day, To: t0},
		}}
	}
	digest := make([]byte, 32)
	period := domain.Interval{From: t0 - 30*day, To: t0}
	prepared := domain.Envelope{Time: t0 + day, Event: &domain.ClosePrepared{Entity: "e", Period: period, Position: "0", Method: "m", Digest: digest, Total: *usd("1")}}
	approved := domain.Envelope{Time: t0 + 2*day, Event: &domain.CloseApproved{Entity: "e", Period: period, Digest: digest}}
	first := root.Register(root, "home", domain.RoleAdmin, nil, t0)

	for _, c := range []struct {
		name string
		log  func(l *storetest.Log)
		want []string // parts of the lines, in order
	}{
		{"the first may sign himself", func(l *storetest.Log) { l.Append(first, root.Sign(quota("q", t0))) }, nil},
		{"nobody else may, not even with an earlier date", func(l *storetest.Log) {
			l.Append(first, mallory.Register(mallory, "home", domain.RoleAdmin, nil, t0-day), mallory.Sign(quota("q", t0)))
		}, []string{"mallory OperatorRegistered mallory: operator \"mallory\" has no such key", "q QuotaSet mallory: operator \"mallory\" has no such key"}},
		{"nor in a workspace of his own", func(l *storetest.Log) {
			l.Append(first, mallory.Register(mallory, "acme", domain.RoleAdmin, nil, t0+day), mallory.Sign(quota("q", t0+2*day)))
		}, []string{"OperatorRegistered mallory", "QuotaSet mallory"}},
		{"a first who is no admin is nobody", func(l *storetest.Log) {
			l.Append(ann.Register(ann, "home", domain.RoleFinance, nil, t0), first)
		}, []string{"ann OperatorRegistered ann: operator \"ann\" has no such key"}},
		{"a chain", func(l *storetest.Log) {
			l.Append(first, ann.Register(root, "acme", domain.RoleAdmin, nil, t0+1), bob.Register(ann, "acme", domain.RolePlanner, nil, t0+2), bob.Sign(quota("q", t0+3)))
		}, nil},
		{"an admin of a workspace registers nobody elsewhere", func(l *storetest.Log) {
			l.Append(first, ann.Register(root, "acme", domain.RoleAdmin, nil, t0+1), bob.Register(ann, "beta", domain.RolePlanner, nil, t0+2))
		}, []string{"bob OperatorRegistered ann: operator \"ann\" has no such key"}},
		{"a role that may not", func(l *storetest.Log) {
			l.Append(first, bob.Register(root, "acme", domain.RoleAuditor, nil, t0+1), bob.Sign(quota("q", t0+3)))
		}, []string{"q QuotaSet bob: operator \"bob\" is auditor"}},
		{"another key of the same name", func(l *storetest.Log) {
			l.Append(first, storetest.NewOperator("root", 2).Sign(quota("q", t0)))
		}, []string{"q QuotaSet root: operator \"root\" has no such key"}},
		{"decided before the right was given, and again after", func(l *storetest.Log) {
			l.Append(first, bob.Sign(quota("q", t0)), bob.Register(root, "acme", domain.RolePlanner, nil, t0+day), bob.Sign(quota("q", t0+2*day)))
		}, []string{"q QuotaSet bob: the key of operator \"bob\" was registered at 2026-05-02T00:00:00Z, after"}},
		{"revoked, and dated back", func(l *storetest.Log) {
			l.Append(first, bob.Register(root, "acme", domain.RolePlanner, nil, t0+1), bob.Sign(quota("before", t0+2)), revoke(root, "acme", bob, t0+day), bob.Sign(quota("after", t0+2*day)))
			l.AppendAt(bob.Sign(quota("back", t0+3)), t0+2*day)
		}, []string{"after QuotaSet bob: the key of operator \"bob\" ended at", "back QuotaSet bob: the key of operator \"bob\" ended at 2026-05-02T00:00:00Z, and this was appended later"}},
		{"who was registered by a stolen key falls with it", func(l *storetest.Log) {
			l.Append(first, ann.Register(root, "acme", domain.RoleAdmin, nil, t0+1), mallory.Register(ann, "acme", domain.RoleAdmin, nil, t0+2*day), mallory.Sign(quota("q", t0+3*day)))
			l.AppendAt(revoke(root, "acme", ann, t0+day), t0+4*day)
		}, []string{"mallory OperatorRegistered ann: the key of operator \"ann\" ended", "q QuotaSet mallory: operator \"mallory\" has no such key"}},
		{"a key may be given up by its owner, not by another", func(l *storetest.Log) {
			l.Append(first, ann.Register(root, "acme", domain.RolePlanner, nil, t0+1), bob.Register(root, "acme", domain.RolePlanner, nil, t0+1),
				revoke(ann, "acme", bob, t0+2), revoke(ann, "acme", ann, t0+3), bob.Sign(quota("bobs", t0+4)), ann.Sign(quota("anns", t0+4)))
		}, []string{"bob OperatorRevoked ann: operator \"ann\" is planner", "anns QuotaSet ann: the key of operator \"ann\" ended"}},
		{"money: no limit, too small, another currency, covered", func(l *storetest.Log) {
			l.Append(first, ann.Register(root, "acme", domain.RoleFinance, usd("4800"), t0+1), bob.Register(root, "acme", domain.RoleFinance, &domain.Money{Amount: dec("1e9"), Currency: "EUR"}, t0+1),
				root.Sign(purchase("c1", 1, "20")), ann.Sign(purchase("c2", 1, "20.01")), bob.Sign(purchase("c3", 1, "20")), ann.Sign(purchase("c4", 2, "10")))
		}, []string{"c1 CommitmentPurchased root: operator \"root\" may commit no money, this commits 4800 USD", "c2 CommitmentPurchased ann: operator \"ann\" may commit 4800 USD, this commits 4802.4 USD", "c3 CommitmentPurchased bob: operator \"bob\" has no limit in USD, this commits 4800 USD: their limits are 1000000000 EUR"}},
		{"approvals carry the cost of what they approve", func(l *storetest.Log) {
			made := domain.Envelope{Workspace: "acme", Time: t0 + 2, Event: &domain.RecommendationMade{Recommendation: "r", Kind: "purchase", Cost: *usd("100"), Requester: "p"}}
			approve := func(id string) domain.Envelope {
				return domain.Envelope{Workspace: "acme", Time: t0 + 3, Event: &domain.RecommendationApproved{Recommendation: id}}
			}
			l.Append(first, ann.Register(root, "acme", domain.RoleFinance, usd("99"), t0+1), bob.Register(root, "acme", domain.RoleFinance, usd("100"), t0+1),
				made, ann.Sign(approve("r")), bob.Sign(approve("r")), bob.Sign(approve("none")))
		}, []string{"none RecommendationApproved bob: it approves a recommendation that is not in the log", "r RecommendationApproved ann: operator \"ann\" may commit 99 USD"}},
		{"rates for the past are set today, by the root's workspace alone", func(l *storetest.Log) {
			l.Append(first, ann.Register(root, "acme", domain.RoleFinance, nil, t0+1), bob.Register(root, "home", domain.RoleFinance, nil, t0+1), ann.Sign(rate(t0+day)), bob.Sign(rate(t0+day)))
		}, []string{"spot FXRateSet ann: operator \"ann\" has no such key"}},
		{"two persons close the books", func(l *storetest.Log) {
			l.Append(first, bob.Register(root, "home", domain.RoleFinance, nil, t0+1), bob.Sign(prepared), bob.Sign(approved), root.Sign(approved))
		}, []string{"CloseApproved bob: operator \"bob\" prepared this close"}},
		{"a new role replaces the one before", func(l *storetest.Log) {
			l.Append(first, bob.Register(root, "acme", domain.RoleAuditor, nil, t0+1), bob.Register(root, "acme", domain.RolePlanner, nil, t0+day), bob.Sign(quota("early", t0+2)), bob.Sign(quota("late", t0+day)))
		}, []string{"early QuotaSet bob: operator \"bob\" is auditor"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			c.log(l)
			got := rejected(t, l)
			lines := strings.Split(got, "\n")
			if got == "" {
				lines = nil
			}
			if len(lines) != len(c.want) {
				t.Fatalf("rejected %d, want %d:\n%s", len(lines), len(c.want), got)
			}
			for i := range lines {
				if !strings.Contains(lines[i], c.want[i]) {
					t.Errorf("got  %s\nwant %s", lines[i], c.want[i])
				}
			}
		})
	}
}

func TestRegistryInForce(t *testing.T) {
	const day = domain.Day
	l := storetest.NewLog()
	cert := func(from, to, said domain.Instant) domain.Envelope {
		return root.Sign(domain.Envelope{Workspace: "home", Time: said, Event: &domain.CertificationHeld{
			Provider: "p", Certification: "ISO 27001", Valid: domain.Interval{From: from, To: to},
		}})
	}
	policy := func(value string, from, to, said domain.Instant) domain.Envelope {
		return domain.Envelope{Workspace: "acme", Time: said, Event: &domain.PolicySet{
			Policy: "idle", Kind: domain.PolicyIdleCost, Value: value, EffectiveFrom: from, EffectiveTo: to,
		}}
	}
	l.Append(
		root.Register(root, "home", domain.RoleAdmin, nil, t0),
		domain.Envelope{Workspace: "acme", Time: t0, Event: &domain.WorkspaceRegistered{Name: "Acme", Currency: "EUR"}},
		domain.Envelope{Workspace: "acme", Time: t0, Event: &domain.RegionDefined{Region: "eu-1", Country: "DE", RoundTrips: []domain.RoundTrip{{To: "us-1", Micros: 90_000, Measured: true}}}},
		root.Sign(policy("owner", t0-10*day, 0, t0)),
		root.Sign(policy("platform", t0+10*day, t0+20*day, t0+1)),
		mallory.Sign(policy("platform", t0+1*day, 0, t0+2)),
		root.Sign(domain.Envelope{Workspace: "acme", Time: t0, Event: &domain.BudgetSet{Budget: "may", Period: domain.Interval{From: t0, To: t0 + 31*day}, Amount: *usd("5"), Basis: domain.BudgetCash}}),
		cert(t0-100*day, t0+100*day, t0),
		cert(t0-100*day, t0+5*day, t0+1), // shortened
	)
	for _, c := range []struct {
		at            domain.Instant
		policy        string
		certs, budget int
	}{
		{t0, "owner", 1, 1},
		{t0 + 2*day, "owner", 1, 1},
		{t0 + 5*day, "owner", 0, 1},
		{t0 + 15*day, "platform", 0, 1},
		{t0 + 20*day, "", 0, 1},
		{t0 + 31*day, "", 0, 0},
	} {
		view(t, l, func(v projections.View) {
			r, err := projections.NewRegistry(v, c.at)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, p := range r.Policies {
				got += p.Value
			}
			if got != c.policy || len(r.Certifications) != c.certs || len(r.Budgets) != c.budget || len(r.Rejected) != 1 {
				t.Errorf("at %s: policies %q, %d certifications, %d budgets, %d rejected; want %+v", c.at, got, len(r.Certifications), len(r.Budgets), len(r.Rejected), c)
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{`"workspace":"acme","name":"Acme","currency":"EUR"`, `"round_trips":[{"to":"us-1","micros":90000,"measured":true}]`, `"root":"home"`} {
				if !strings.Contains(string(text), want) {
					t.Errorf("no %s in %s", want, text)
				}
			}
		})
	}
}

// The same decision, first by a key that was not registered yet: the second
// must not be taken for a repeat of the first.
func TestDecidedAgain(t *testing.T) {
	budget := func(at domain.Instant) domain.Envelope {
		return bob.Sign(domain.Envelope{Workspace: "acme", Time: at, Event: &domain.BudgetSet{
			Budget: "b", Period: domain.Interval{From: t0, To: t0 + 31*domain.Day}, Amount: *usd("5"), Basis: domain.BudgetCash,
		}})
	}
	l := storetest.NewLog()
	l.Append(root.Register(root, "home", domain.RoleAdmin, nil, t0), budget(t0), bob.Register(root, "acme", domain.RoleFinance, nil, t0+1), budget(t0+2))
	view(t, l, func(v projections.View) {
		r, err := projections.NewRegistry(v, t0+domain.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Budgets) != 1 || len(r.Rejected) != 1 {
			t.Errorf("%d budgets, %d rejected; want 1 and 1", len(r.Budgets), len(r.Rejected))
		}
	})
}
