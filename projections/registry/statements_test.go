package registry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

func authority(t *testing.T, v projections.View) *registry.Authority {
	t.Helper()
	a, err := registry.NewAuthority(v)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The valid declaration is the last one by an authorized operator that is not over.
func TestStatements(t *testing.T) {
	const day = domain.Day
	start := storetest.Start
	l := storetest.NewLog()
	policy := func(by storetest.Operator, id, value string, said, from, to domain.Instant) domain.Envelope {
		return by.Sign(domain.Envelope{Workspace: "home", Time: said, Source: "s", Event: &domain.PolicySet{
			Policy: id, Kind: domain.PolicyIdleCost, Value: value, EffectiveFrom: from, EffectiveTo: to,
		}})
	}
	budget := storetest.Root.Sign(domain.Envelope{Workspace: "acme", Time: start, Event: &domain.BudgetSet{
		Budget: "b", Period: domain.Interval{From: start, To: start + 9*day}, Amount: *storetest.USD("1"), Basis: domain.BudgetCash,
	}})
	window := func(id string, cancelled bool) domain.Envelope {
		return domain.Envelope{Workspace: "home", Cluster: "lab", Time: start, Event: &domain.MaintenanceScheduled{
			Maintenance: id, Window: domain.Interval{From: start + 4*day, To: start + 9*day}, Cancelled: cancelled,
		}}
	}
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, start),
		storetest.Bob.Register(storetest.Root, "home", domain.RoleAuditor, storetest.USD("5"), start),
		policy(storetest.Root, "idle", "owner", start, start, 0), policy(storetest.Root, "idle", "platform", start+day, start+5*day, 0),
		policy(storetest.Bob, "idle", "owner", start+2*day, start+2*day, 0), // void
		policy(storetest.Root, "brief", "owner", start, start, start+6*day),
		budget, window("w1", false), window("w2", true),
		storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: start + 8*day, Event: &domain.OperatorRevoked{Operator: "bob", PublicKey: storetest.Bob.Public()}}),
	)
	for _, c := range []struct {
		table projections.Table
		at    domain.Instant
		want  string
	}{
		{projections.TablePolicies, start - day, ""},
		{projections.TablePolicies, start + 3*day, "home/brief 0-6 root+0 owner; home/idle 0- root+0 owner"},
		{projections.TablePolicies, start + 6*day, "home/idle 5- root+1 platform"},
		{projections.TableBudgets, start + 3*day, "acme/b 0-9 root+0 1 USD"},
		{projections.TableBudgets, start + 9*day, ""},
		{projections.TableMaintenance, start + day, "home/lab/w1 0-9  w1"},
		{projections.TableMaintenance, start + 9*day, ""},
		{projections.TableOperators, start + 3*day, "home/bob 0-8 root+0 auditor; home/root 0- root+0 admin"},
		{projections.TableOperators, start + 8*day, "home/root 0- root+0 admin"},
	} {
		storetest.FoldView(t, l, func(v projections.View) {
			a := authority(t, v)
			got := a.Operators(c.at)
			if c.table != projections.TableOperators {
				var err error
				if got, err = registry.Statements(v, a, c.table, c.at); err != nil {
					t.Fatal(err)
				}
			}
			days := func(at domain.Instant) string { return fmt.Sprint(int64((at - start) / day)) }
			lines := make([]string, len(got))
			for i, s := range got {
				lines[i] = s.Workspace + "/" + s.Name + " " + days(s.Since) + "-"
				if s.Until != 0 {
					lines[i] += days(s.Until)
				}
				lines[i] += " " + s.DecidedBy
				if s.Decided != 0 {
					lines[i] += "+" + days(s.Decided)
				}
				switch d := s.Declared.(type) {
				case *domain.PolicySet:
					lines[i] += " " + d.Value
				case *domain.BudgetSet:
					lines[i] += " " + d.Amount.String()
				case *domain.MaintenanceScheduled:
					lines[i] += " " + d.Maintenance
				case registry.Grant:
					lines[i] += " " + string(d.Role)
				}
			}
			if text := strings.Join(lines, "; "); text != c.want {
				t.Errorf("%s on day %s:\n%s\nwant\n%s", c.table, days(c.at), text, c.want)
			}
		})
	}
}

// Every signed event is listed once, also of types that nobody needs to sign, with the right under which it was decided, or the reason why
// it is void.
func TestDecisions(t *testing.T) {
	const day = domain.Day
	start := storetest.Start
	l := storetest.NewLog()
	buy := func(by storetest.Operator, id, hourly string) domain.Envelope {
		return by.Sign(domain.Envelope{Workspace: "acme", Time: start + 3*day, Event: &domain.CommitmentPurchased{
			Commitment: id, Market: storetest.Frankfurt, BillingAccount: "b", Kind: domain.OfferReserved, SKU: "s", GPUModel: "H100", GPUsPerUnit: 8, Units: 1,
			Term: domain.Interval{From: start + 4*day, To: start + 5*day}, Hourly: *storetest.USD(hourly),
		}})
	}
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, start),
		storetest.Ann.Register(storetest.Root, "acme", domain.RoleFinance, storetest.USD("24"), start+day),
		storetest.Mallory.Sign(quota("q", start+2*day)),
		buy(storetest.Ann, "c1", "1"), buy(storetest.Ann, "c2", "2"),
		storetest.Root.Sign(domain.Envelope{Workspace: "home", Cluster: "lab", Time: start + 4*day, Event: &domain.NodeDrained{Node: "n", Reason: "board"}}),
		domain.Envelope{Workspace: "home", Cluster: "lab", Time: start + 4*day, Event: &domain.NodeDrained{Node: "m"}}, // unsigned
		storetest.Root.Sign(domain.Envelope{Workspace: "acme", Time: start + 5*day, Event: &domain.WorkspaceRegistered{Name: "A"}}),
		domain.Envelope{Workspace: "b", Time: start + 5*day, Event: &domain.WorkspaceRegistered{Name: "A"}}, // unsigned
		storetest.Root.Sign(domain.Envelope{Workspace: "acme", Time: start + 6*day, Event: &domain.SessionEnded{Principal: "user:x/y", At: start}}),
	)
	all := []string{
		"0 0 root OperatorRegistered root admin [] [] ",
		"1 1 root OperatorRegistered ann admin [] [] ",
		"2 2 mallory QuotaSet q  [] [] operator \"mallory\" has no such key in the registry",
		"3 4 ann CommitmentPurchased c1 finance [24 USD] [24 USD] ",
		"3 4 ann CommitmentPurchased c2 finance [24 USD] [48 USD] operator \"ann\" may commit 24 USD, this commits 48 USD",
		"4 4 root NodeDrained n admin [] [] ",
		"5 5 root WorkspaceRegistered acme admin [] [] ",
		"6 6 root SessionEnded user:x/y admin [] [] ",
	}
	for _, c := range []struct {
		filter registry.DecisionFilter
		want   []string
	}{
		{registry.DecisionFilter{}, all},
		{registry.DecisionFilter{Operator: "ann"}, all[3:5]},
		{registry.DecisionFilter{Operator: "nobody"}, nil},
		{registry.DecisionFilter{Workspace: "acme"}, slices.Concat(all[1:5], all[6:])},
		{registry.DecisionFilter{From: start + day, To: start + 3*day}, all[1:3]},
	} {
		storetest.FoldView(t, l, func(v projections.View) {
			a := authority(t, v)
			got, err := a.Decisions(v, c.filter)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for i := range got {
				d := &got[i]
				lines = append(lines, fmt.Sprintf("%d %d %s %s %s %s %v %v %s", (d.Time-start)/day, (d.Effective-start)/day, d.Operator, d.Type, d.ID, d.Role, d.Limits, d.Commits, d.Refused))
			}
			if !slices.Equal(lines, c.want) {
				t.Errorf("%+v:\n%s\nwant\n%s", c.filter, strings.Join(lines, "\n"), strings.Join(c.want, "\n"))
			}
			if c.filter == (registry.DecisionFilter{}) && !slices.Equal(a.Deciders(got), []string{"ann", "mallory", "root"}) {
				t.Errorf("deciders %v", a.Deciders(got))
			}
		})
	}
}
