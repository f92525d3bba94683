package projections_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// Who pays for a pod is said by signed rules, when usage is read: what observes a pod
// states none, and what no rule names is nobody's, and seen.
func TestPayers(t *testing.T) {
	rule := func(by storetest.Operator, scope, name string, priority uint32, namespace, to string, from domain.Instant) domain.Envelope {
		return by.Sign(domain.Envelope{Workspace: scope, Time: t0, Event: &domain.MappingRuleSet{
			Rule: name, Priority: priority, Cluster: "c", Namespace: namespace, ToWorkspace: to, EffectiveFrom: from,
		}})
	}
	gpu := func(i int) domain.GPUID { return storetest.GPU("c", "n", i) }
	for _, c := range []struct {
		name  string
		rules []domain.Envelope
		want  string // GPU-hours by workspace
	}{
		{"no rule", nil, "slurm-team 2, unmapped 4"},
		{"a namespace", []domain.Envelope{rule(root, "home", "r", 5, "ml", "acme", t0)}, "acme 2, slurm-team 2, unmapped 2"},
		{"the first by priority, then by name", []domain.Envelope{
			rule(root, "home", "b", 5, "ml", "beta", t0), rule(root, "home", "a", 5, "ml", "acme", t0), rule(root, "home", "all", 9, "", "beta", t0),
		}, "acme 2, beta 2, slurm-team 2"},
		{"from the next full hour on", []domain.Envelope{rule(root, "home", "r", 5, "ml", "acme", t0+minute)}, "acme 1, slurm-team 2, unmapped 3"},
		{"of another cluster", []domain.Envelope{root.Sign(domain.Envelope{Workspace: "home", Time: t0, Event: &domain.MappingRuleSet{
			Rule: "r", Cluster: "d", Namespace: "ml", ToWorkspace: "acme", EffectiveFrom: t0,
		}})}, "slurm-team 2, unmapped 4"},
		{"a workspace makes itself pay", []domain.Envelope{rule(bob, "beta", "r", 5, "web", "beta", t0)}, "beta 2, slurm-team 2, unmapped 2"},
		{"and no other", []domain.Envelope{rule(bob, "beta", "r", 5, "web", "acme", t0)}, "slurm-team 2, unmapped 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(root.Register(root, "home", domain.RoleAdmin, nil, t0-2), bob.Register(root, "beta", domain.RoleFinance, nil, t0-1))
			l.Append(storetest.Cluster("c", "home", "p", "r", t0), storetest.Node("c", "n", "H100 80GB", 3, t0))
			l.Append(c.rules...)
			i := span(0, 120)
			l.Append(domain.Envelope{Source: "node-reporter/c/n", Cluster: "c", Time: i.To, Event: storetest.Sample("n", i,
				storetest.Seen{ID: gpu(0), Unit: "ml/chat-0", Activity: 500}, storetest.Seen{ID: gpu(1), Unit: "web/x", Activity: 500},
				storetest.Seen{ID: gpu(2), Workspace: "slurm-team", Unit: "job/7", Activity: 500})})
			view(t, l, func(v projections.View) {
				held := map[string]int64{}
				if err := projections.EachDeviceHour(v, t0, i.To, func(d *projections.DeviceHour) error {
					for _, s := range d.Segments {
						held[s.Holder.Workspace] += s.GPUMs
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				var got []string
				for w, ms := range held {
					got = append(got, fmt.Sprintf("%s %d", w, ms/3_600_000))
				}
				slices.Sort(got)
				if s := strings.Join(got, ", "); s != c.want {
					t.Errorf("held %s, want %s", s, c.want)
				}
				inv, err := projections.NewInventory(v, projections.InventoryFilter{At: i.To})
				if err != nil {
					t.Fatal(err)
				}
				seen := slices.ContainsFunc(inv.Exceptions, func(e projections.Exception) bool { return e.Kind == projections.NamespaceUnmapped })
				if seen != strings.Contains(c.want, "unmapped") {
					t.Errorf("exceptions %+v", inv.Exceptions)
				}
			})
		})
	}
}
