package registry_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

func quota(id string, at domain.Instant) domain.Envelope {
	return domain.Envelope{Workspace: "acme", Time: at, Event: &domain.QuotaSet{
		Quota: id, Resource: "nvidia.com/gpu", Limit: storetest.Dec("8"), EffectiveFrom: at,
	}}
}

// rejected returns "type operator: reason" of every void decision.
func rejected(t *testing.T, l *storetest.Log) string {
	t.Helper()
	var lines []string
	storetest.FoldView(t, l, func(v projections.View) {
		r, err := registry.New(v, storetest.Start+100*domain.Day)
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
		return domain.Envelope{Workspace: "acme", Time: storetest.Start + 2*day, Event: &domain.CommitmentPurchased{
			Commitment: commitment, Market: domain.Market{Provider: "p", Region: "r"}, BillingAccount: "b", Kind: domain.OfferReserved,
			SKU: "s", GPUModel: "H100", GPUsPerUnit: 8, Units: units,
			Term: domain.Interval{From: storetest.Start, To: storetest.Start + 10*day}, Hourly: *storetest.USD(hourly),
		}}
	}
	rate := func(at domain.Instant) domain.Envelope {
		return domain.Envelope{Time: at, Event: &domain.FXRateSet{
			Base: "EUR", Quote: "USD", Rate: storetest.Dec("1.1"), Kind: domain.FXSpot, Effective: domain.Interval{From: storetest.Start - 30*day, To: storetest.Start},
		}}
	}
	digest := make([]byte, 32)
	period := domain.Interval{From: storetest.Start - 30*day, To: storetest.Start}
	prepared := domain.Envelope{Time: storetest.Start + day, Event: &domain.ClosePrepared{Entity: "e", Period: period, Position: "0", Method: "m", Digest: digest, Totals: []domain.BooksTotal{{Currency: "USD"}}}}
	approved := domain.Envelope{Time: storetest.Start + 2*day, Event: &domain.CloseApproved{Entity: "e", Period: period, Digest: digest}}
	first := storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start)

	for _, c := range []struct {
		name string
		log  func(l *storetest.Log)
		want []string // parts of the lines, in order
	}{
		{"the first may sign their own registration", func(l *storetest.Log) { l.Append(first, storetest.Root.Sign(quota("q", storetest.Start))) }, nil},
		{"nobody else may, not even with an earlier date", func(l *storetest.Log) {
			l.Append(first, storetest.Mallory.Register(storetest.Mallory, "home", domain.RoleAdmin, nil, storetest.Start-day), storetest.Mallory.Sign(quota("q", storetest.Start)))
		}, []string{"mallory OperatorRegistered mallory: operator \"mallory\" has no such key", "q QuotaSet mallory: operator \"mallory\" has no such key"}},
		{"nor in their own workspace", func(l *storetest.Log) {
			l.Append(first, storetest.Mallory.Register(storetest.Mallory, "acme", domain.RoleAdmin, nil, storetest.Start+day), storetest.Mallory.Sign(quota("q", storetest.Start+2*day)))
		}, []string{"OperatorRegistered mallory", "QuotaSet mallory"}},
		{"the first must be an admin", func(l *storetest.Log) {
			l.Append(storetest.Ann.Register(storetest.Ann, "home", domain.RoleFinance, nil, storetest.Start), first)
		}, []string{"ann OperatorRegistered ann: operator \"ann\" has no such key"}},
		{"a chain", func(l *storetest.Log) {
			l.Append(first, storetest.Ann.Register(storetest.Root, "acme", domain.RoleAdmin, nil, storetest.Start+1), storetest.Bob.Register(storetest.Ann, "acme", domain.RolePlanner, nil, storetest.Start+2), storetest.Bob.Sign(quota("q", storetest.Start+3)))
		}, nil},
		{"an admin of a workspace registers nobody elsewhere", func(l *storetest.Log) {
			l.Append(first, storetest.Ann.Register(storetest.Root, "acme", domain.RoleAdmin, nil, storetest.Start+1), storetest.Bob.Register(storetest.Ann, "beta", domain.RolePlanner, nil, storetest.Start+2))
		}, []string{"bob OperatorRegistered ann: operator \"ann\" has no such key"}},
		{"a role without the right", func(l *storetest.Log) {
			l.Append(first, storetest.Bob.Register(storetest.Root, "acme", domain.RoleAuditor, nil, storetest.Start+1), storetest.Bob.Sign(quota("q", storetest.Start+3)))
		}, []string{"q QuotaSet bob: operator \"bob\" is auditor"}},
		{"another key of the same name", func(l *storetest.Log) {
			l.Append(first, storetest.NewOperator("root", 2).Sign(quota("q", storetest.Start)))
		}, []string{"q QuotaSet root: operator \"root\" has no such key"}},
		{"decided before the right was given, and again after", func(l *storetest.Log) {
			l.Append(first, storetest.Bob.Sign(quota("q", storetest.Start)), storetest.Bob.Register(storetest.Root, "acme", domain.RolePlanner, nil, storetest.Start+day), storetest.Bob.Sign(quota("q", storetest.Start+2*day)))
		}, []string{"q QuotaSet bob: the key of operator \"bob\" was registered at 2026-05-02T00:00:00Z, after"}},
		{"revoked, and backdated", func(l *storetest.Log) {
			l.Append(first, storetest.Bob.Register(storetest.Root, "acme", domain.RolePlanner, nil, storetest.Start+1), storetest.Bob.Sign(quota("before", storetest.Start+2)), revoke(storetest.Root, "acme", storetest.Bob, storetest.Start+day), storetest.Bob.Sign(quota("after", storetest.Start+2*day)))
			l.AppendAt(storetest.Bob.Sign(quota("back", storetest.Start+3)), storetest.Start+2*day)
		}, []string{"after QuotaSet bob: the key of operator \"bob\" ended at", "back QuotaSet bob: the key of operator \"bob\" ended at 2026-05-02T00:00:00Z, and this was appended later"}},
		{"registrations by a stolen key are void too", func(l *storetest.Log) {
			l.Append(first, storetest.Ann.Register(storetest.Root, "acme", domain.RoleAdmin, nil, storetest.Start+1), storetest.Mallory.Register(storetest.Ann, "acme", domain.RoleAdmin, nil, storetest.Start+2*day), storetest.Mallory.Sign(quota("q", storetest.Start+3*day)))
			l.AppendAt(revoke(storetest.Root, "acme", storetest.Ann, storetest.Start+day), storetest.Start+4*day)
		}, []string{"mallory OperatorRegistered ann: the key of operator \"ann\" ended", "q QuotaSet mallory: operator \"mallory\" has no such key"}},
		{"a key may be given up by its owner, not by another", func(l *storetest.Log) {
			l.Append(first, storetest.Ann.Register(storetest.Root, "acme", domain.RolePlanner, nil, storetest.Start+1), storetest.Bob.Register(storetest.Root, "acme", domain.RolePlanner, nil, storetest.Start+1),
				revoke(storetest.Ann, "acme", storetest.Bob, storetest.Start+2), revoke(storetest.Ann, "acme", storetest.Ann, storetest.Start+3), storetest.Bob.Sign(quota("bobs", storetest.Start+4)), storetest.Ann.Sign(quota("anns", storetest.Start+4)))
		}, []string{"bob OperatorRevoked ann: operator \"ann\" is planner", "anns QuotaSet ann: the key of operator \"ann\" ended"}},
		{"a revoked admin revokes nobody later", func(l *storetest.Log) {
			l.Append(first, storetest.Ann.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start+1), storetest.Bob.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start+1),
				revoke(storetest.Root, "home", storetest.Ann, storetest.Start+2), revoke(storetest.Ann, "home", storetest.Bob, storetest.Start+3), storetest.Bob.Sign(quota("bobs", storetest.Start+4)))
		}, []string{"bob OperatorRevoked ann: the key of operator \"ann\" ended"}},
		{"the last admin stays, whoever revokes them", func(l *storetest.Log) {
			l.Append(first, storetest.Ann.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start+1), storetest.Bob.Register(storetest.Root, "acme", domain.RoleAdmin, nil, storetest.Start+1),
				revoke(storetest.Root, "home", storetest.Root, storetest.Start+2), revoke(storetest.Ann, "home", storetest.Ann, storetest.Start+3), storetest.Ann.Sign(quota("anns", storetest.Start+4)))
		}, []string{"ann OperatorRevoked ann: operator \"ann\" is the last admin of workspace \"home\": register another admin first"}},
		{"nor is the last admin given another role", func(l *storetest.Log) {
			l.Append(first, storetest.Root.Register(storetest.Root, "home", domain.RoleFinance, nil, storetest.Start+1), storetest.Root.Sign(quota("q", storetest.Start+2)))
		}, []string{"root OperatorRegistered root: operator \"root\" is the last admin"}},
		{"a revoked admin does not count as another admin", func(l *storetest.Log) {
			l.Append(first, storetest.Ann.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start+1),
				revoke(storetest.Root, "home", storetest.Ann, storetest.Start+2*day), revoke(storetest.Root, "home", storetest.Root, storetest.Start+day))
		}, []string{"root OperatorRevoked root: operator \"root\" is the last admin"}},
		{"the only admin of another workspace may go", func(l *storetest.Log) {
			l.Append(first, storetest.Bob.Register(storetest.Root, "acme", domain.RoleAdmin, nil, storetest.Start+1), revoke(storetest.Root, "acme", storetest.Bob, storetest.Start+2))
		}, nil},
		{"money: no limit, too small, another currency, covered", func(l *storetest.Log) {
			l.Append(first, storetest.Ann.Register(storetest.Root, "acme", domain.RoleFinance, storetest.USD("4800"), storetest.Start+1), storetest.Bob.Register(storetest.Root, "acme", domain.RoleFinance, &domain.Money{Amount: storetest.Dec("1e9"), Currency: "EUR"}, storetest.Start+1),
				storetest.Root.Sign(purchase("c1", 1, "20")), storetest.Ann.Sign(purchase("c2", 1, "20.01")), storetest.Bob.Sign(purchase("c3", 1, "20")), storetest.Ann.Sign(purchase("c4", 2, "10")))
		}, []string{"c1 CommitmentPurchased root: operator \"root\" may commit no money, this commits 4800 USD", "c2 CommitmentPurchased ann: operator \"ann\" may commit 4800 USD, this commits 4802.4 USD", "c3 CommitmentPurchased bob: operator \"bob\" has no limit in USD, this commits 4800 USD: their limits are 1000000000 EUR"}},
		{"approvals carry the cost of what they approve", func(l *storetest.Log) {
			made := &domain.RecommendationMade{Recommendation: "r", Kind: "purchase", Cost: *storetest.USD("100"), Requester: "p"}
			approve := func(id string) domain.Envelope {
				approved := storetest.Approve(made)
				approved.Recommendation = id
				return domain.Envelope{Workspace: "acme", Time: storetest.Start + 3, Event: approved}
			}
			l.Append(first, storetest.Ann.Register(storetest.Root, "acme", domain.RoleFinance, storetest.USD("99"), storetest.Start+1), storetest.Bob.Register(storetest.Root, "acme", domain.RoleFinance, storetest.USD("100"), storetest.Start+1),
				domain.Envelope{Workspace: "acme", Time: storetest.Start + 2, Event: made}, storetest.Ann.Sign(approve("r")), storetest.Bob.Sign(approve("r")), storetest.Bob.Sign(approve("none")))
		}, []string{"none RecommendationApproved bob: it approves a recommendation that is not in the log", "r RecommendationApproved ann: operator \"ann\" may commit 99 USD"}},
		{"rates for the past are set today, by the root's workspace alone", func(l *storetest.Log) {
			l.Append(first, storetest.Ann.Register(storetest.Root, "acme", domain.RoleFinance, nil, storetest.Start+1), storetest.Bob.Register(storetest.Root, "home", domain.RoleFinance, nil, storetest.Start+1), storetest.Ann.Sign(rate(storetest.Start+day)), storetest.Bob.Sign(rate(storetest.Start+day)))
		}, []string{"spot FXRateSet ann: operator \"ann\" has no such key"}},
		{"two persons close the books", func(l *storetest.Log) {
			l.Append(first, storetest.Bob.Register(storetest.Root, "home", domain.RoleFinance, nil, storetest.Start+1), storetest.Bob.Sign(prepared), storetest.Bob.Sign(approved), storetest.Root.Sign(approved))
		}, []string{"CloseApproved bob: operator \"bob\" prepared this close"}},
		{"books are closed once, by two persons with two keys, as they were proposed", func(l *storetest.Log) {
			clo := func(change func(*domain.BooksClosed)) domain.Envelope {
				ev := &domain.BooksClosed{Entity: "e", Period: period, Position: "0", Method: "m", Digest: digest}
				if change != nil {
					change(ev)
				}
				return domain.Envelope{Time: storetest.Start + 3*day, Event: ev}
			}
			other := *approved.Event.(*domain.CloseApproved)
			other.Digest = bytes.Repeat([]byte{1}, 32)
			same := storetest.Bob
			same.Name = "bobby"
			l.Append(first, storetest.Bob.Register(storetest.Root, "home", domain.RoleFinance, nil, storetest.Start+1),
				same.Register(storetest.Root, "home", domain.RoleFinance, nil, storetest.Start+1),
				storetest.Bob.Sign(prepared),
				same.Sign(approved),
				storetest.Root.Sign(clo(nil)),
				storetest.Root.Sign(domain.Envelope{Time: approved.Time, Event: &other}),
				storetest.Root.Sign(approved),
				storetest.Bob.Sign(clo(nil)),
				storetest.Root.Sign(clo(func(ev *domain.BooksClosed) { ev.Postings = digest })),
				storetest.Root.Sign(clo(nil)),
				storetest.Root.Sign(clo(nil)), storetest.Bob.Sign(prepared), storetest.Root.Sign(approved))
		}, []string{
			"ClosePrepared bob: the books were closed at",
			"CloseApproved bobby: the key of operator \"bob\" prepared this close",
			"CloseApproved root: it approves other allocations than those that were prepared",
			"CloseApproved root: the books were closed at",
			"BooksClosed root: it closes books that nobody approved",
			"BooksClosed bob: operator \"bob\" prepared this close",
			"BooksClosed root: it closes other books than those that were approved",
			"BooksClosed root: the books were closed at",
		}},
		{"a revocation that is dated back does not open books", func(l *storetest.Log) {
			closed := domain.Envelope{Time: storetest.Start + 3*day, Event: &domain.BooksClosed{Entity: "e", Period: period, Position: "0", Method: "m", Digest: digest}}
			l.Append(first, storetest.Bob.Register(storetest.Root, "home", domain.RoleFinance, nil, storetest.Start+1),
				storetest.Root.Sign(prepared), storetest.Bob.Sign(approved), storetest.Bob.Sign(closed))
			l.AppendAt(revoke(storetest.Bob, "home", storetest.Bob, storetest.Start+2), storetest.Start+9*day)
			l.Append(storetest.Bob.Sign(quota("q", storetest.Start+4*day)))
		}, []string{"q QuotaSet bob: the key of operator \"bob\" ended at"}},
		{"a new role replaces the one before", func(l *storetest.Log) {
			l.Append(first, storetest.Bob.Register(storetest.Root, "acme", domain.RoleAuditor, nil, storetest.Start+1), storetest.Bob.Register(storetest.Root, "acme", domain.RolePlanner, nil, storetest.Start+day), storetest.Bob.Sign(quota("early", storetest.Start+2)), storetest.Bob.Sign(quota("late", storetest.Start+day)))
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
		return storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: said, Event: &domain.CertificationHeld{
			Provider: "p", Certification: "ISO 27001", Valid: domain.Interval{From: from, To: to},
		}})
	}
	policy := func(value string, from, to, said domain.Instant) domain.Envelope {
		return domain.Envelope{Workspace: "acme", Time: said, Event: &domain.PolicySet{
			Policy: "idle", Kind: domain.PolicyIdleCost, Value: value, EffectiveFrom: from, EffectiveTo: to,
		}}
	}
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start),
		domain.Envelope{Workspace: "acme", Time: storetest.Start, Event: &domain.WorkspaceRegistered{Name: "Acme", Currency: "EUR"}},
		domain.Envelope{Workspace: "acme", Time: storetest.Start, Event: &domain.RegionDefined{Region: "eu-1", Country: "DE", RoundTrips: []domain.RoundTrip{{To: "us-1", Micros: 90_000, Measured: true}}}},
		storetest.Root.Sign(policy("owner", storetest.Start-10*day, 0, storetest.Start)),
		storetest.Root.Sign(policy("platform", storetest.Start+10*day, storetest.Start+20*day, storetest.Start+1)),
		storetest.Mallory.Sign(policy("platform", storetest.Start+1*day, 0, storetest.Start+2)),
		storetest.Root.Sign(domain.Envelope{Workspace: "acme", Time: storetest.Start, Event: &domain.BudgetSet{Budget: "may", Period: domain.Interval{From: storetest.Start, To: storetest.Start + 31*day}, Amount: *storetest.USD("5"), Basis: domain.BudgetCash}}),
		cert(storetest.Start-100*day, storetest.Start+100*day, storetest.Start),
		cert(storetest.Start-100*day, storetest.Start+5*day, storetest.Start+1), // shortened
	)
	for _, c := range []struct {
		at            domain.Instant
		policy        string
		certs, budget int
	}{
		{storetest.Start, "owner", 1, 1},
		{storetest.Start + 2*day, "owner", 1, 1},
		{storetest.Start + 5*day, "owner", 0, 1},
		{storetest.Start + 15*day, "platform", 0, 1},
		{storetest.Start + 20*day, "", 0, 1},
		{storetest.Start + 31*day, "", 0, 0},
	} {
		storetest.FoldView(t, l, func(v projections.View) {
			r, err := registry.New(v, c.at)
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

// The same decision, first by a key that was not registered yet: the second MUST NOT count as a
// repeat of the first.
func TestDecidedAgain(t *testing.T) {
	budget := func(at domain.Instant) domain.Envelope {
		return storetest.Bob.Sign(domain.Envelope{Workspace: "acme", Time: at, Event: &domain.BudgetSet{
			Budget: "b", Period: domain.Interval{From: storetest.Start, To: storetest.Start + 31*domain.Day}, Amount: *storetest.USD("5"), Basis: domain.BudgetCash,
		}})
	}
	l := storetest.NewLog()
	l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start), budget(storetest.Start), storetest.Bob.Register(storetest.Root, "acme", domain.RoleFinance, nil, storetest.Start+1), budget(storetest.Start+2))
	storetest.FoldView(t, l, func(v projections.View) {
		r, err := registry.New(v, storetest.Start+domain.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Budgets) != 1 || len(r.Rejected) != 1 {
			t.Errorf("%d budgets, %d rejected; want 1 and 1", len(r.Budgets), len(r.Rejected))
		}
	})
}
