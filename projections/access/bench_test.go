package access_test

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// BenchmarkScopedView asks about a day of 100 nodes of eight GPUs: as whoever sees everything, and as the workspace that
// owns the cluster and sees all of it but the pods of others.
func BenchmarkScopedView(b *testing.B) {
	m, err := storetest.Fleet(100, 24, storetest.Start).Fold(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	from, to := storetest.Start, storetest.Start+domain.Day
	var view projections.View
	if err := m.View(b.Context(), func(v projections.View) error { view = v; return nil }); err != nil {
		b.Fatal(err)
	}
	scope, err := access.ScopeOf(view, []access.Right{{Workspace: "acme", Role: domain.RoleAdmin}})
	if err != nil {
		b.Fatal(err)
	}
	for _, question := range []struct {
		name string
		ask  func(projections.View) (int, error)
	}{
		{"usage", func(v projections.View) (int, error) {
			r, err := usage.NewReport(v, from, to, usage.Filter{}, usage.ByWorkspace)
			if err != nil {
				return 0, err
			}
			return len(r.Groups), nil
		}},
		{"fleet", func(v projections.View) (int, error) {
			r, err := inventory.New(v, inventory.Filter{At: to})
			if err != nil {
				return 0, err
			}
			return len(r.Clusters), nil
		}},
		{"rows", func(v projections.View) (n int, err error) {
			err = v.Scan(projections.Query{Table: projections.TableUsage}, func(projections.Key, projections.Row) error { n++; return nil })
			return n, err
		}},
	} {
		for _, of := range []struct {
			name  string
			scope *access.Scope
		}{{"whole", access.Whole()}, {"scoped", scope}} {
			b.Run(question.name+"/"+of.name, func(b *testing.B) {
				for b.Loop() {
					if n, err := question.ask(of.scope.View(view)); err != nil || n == 0 {
						b.Fatal(n, err)
					}
				}
			})
		}
	}
}
