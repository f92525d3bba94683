package inventory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// Signed rules decide who pays for a pod, when usage is read. Observers of a pod state no payer. A
// pod without a rule belongs to nobody, visibly.
func TestPayers(t *testing.T) {
	rule := func(by storetest.Operator, scope, name string, priority uint32, namespace, to string, from domain.Instant) domain.Envelope {
		return by.Sign(domain.Envelope{Workspace: scope, Time: storetest.Start, Event: &domain.MappingRuleSet{
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
		{"a namespace", []domain.Envelope{rule(storetest.Root, "home", "r", 5, "ml", "acme", storetest.Start)}, "acme 2, slurm-team 2, unmapped 2"},
		{"the first by priority, then by name", []domain.Envelope{
			rule(storetest.Root, "home", "b", 5, "ml", "beta", storetest.Start), rule(storetest.Root, "home", "a", 5, "ml", "acme", storetest.Start), rule(storetest.Root, "home", "all", 9, "", "beta", storetest.Start),
		}, "acme 2, beta 2, slurm-team 2"},
		{"from the next full hour on", []domain.Envelope{rule(storetest.Root, "home", "r", 5, "ml", "acme", storetest.Start+storetest.Minute)}, "acme 1, slurm-team 2, unmapped 3"},
		{"of another cluster", []domain.Envelope{storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start, Event: &domain.MappingRuleSet{
			Rule: "r", Cluster: "d", Namespace: "ml", ToWorkspace: "acme", EffectiveFrom: storetest.Start,
		}})}, "slurm-team 2, unmapped 4"},
		{"a workspace makes itself pay", []domain.Envelope{rule(storetest.Bob, "beta", "r", 5, "web", "beta", storetest.Start)}, "beta 2, slurm-team 2, unmapped 2"},
		{"and no other", []domain.Envelope{rule(storetest.Bob, "beta", "r", 5, "web", "acme", storetest.Start)}, "slurm-team 2, unmapped 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start-2), storetest.Bob.Register(storetest.Root, "beta", domain.RoleFinance, nil, storetest.Start-1))
			l.Append(storetest.Cluster("c", "home", "p", "r", storetest.Start), storetest.Node("c", "n", "H100 80GB", 3, storetest.Start))
			l.Append(c.rules...)
			i := storetest.Span(0, 120)
			l.Append(domain.Envelope{Source: "node-reporter/c/n", Cluster: "c", Time: i.To, Event: storetest.Sample("n", i,
				storetest.Seen{ID: gpu(0), Unit: "ml/chat-0", Activity: 500}, storetest.Seen{ID: gpu(1), Unit: "web/x", Activity: 500},
				storetest.Seen{ID: gpu(2), Workspace: "slurm-team", Unit: "job/7", Activity: 500})})
			storetest.FoldView(t, l, func(v projections.View) {
				held := map[string]int64{}
				if err := usage.EachDeviceHour(v, storetest.Start, i.To, func(d *usage.DeviceHour) error {
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
				inv, err := inventory.New(v, inventory.Filter{At: i.To})
				if err != nil {
					t.Fatal(err)
				}
				seen := slices.ContainsFunc(inv.Exceptions, func(e inventory.Exception) bool { return e.Kind == inventory.NamespaceUnmapped })
				if seen != strings.Contains(c.want, "unmapped") {
					t.Errorf("exceptions %+v", inv.Exceptions)
				}
			})
		})
	}
}
