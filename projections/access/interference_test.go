package access_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/costs"
	"quartermaster/projections/dimension"
	"quartermaster/projections/inventory"
	"quartermaster/projections/market"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
	"quartermaster/projections/serving"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// rowsOf is the text of every row of a view, by every way to read it.
func rowsOf(t rapid.TB, v projections.View) string {
	var b bytes.Buffer
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range projections.Tables() {
		scopes, err := v.Scopes(table)
		must(err)
		fmt.Fprintln(&b, table, scopes)
		scanned := map[string]bool{}
		must(v.Scan(projections.Query{Table: table}, func(k projections.Key, row projections.Row) error {
			text, err := projections.EncodeRow(row)
			fmt.Fprintf(&b, "%s %x\n", k, text)
			scanned[k.Scope] = true
			one, again := v.Get(k)
			must(again)
			if same, bad := projections.EncodeRow(one); bad != nil || !bytes.Equal(same, text) {
				t.Fatalf("%s: Get and Scan differ", k)
			}
			return err
		}))
		if len(scanned) != len(scopes) {
			t.Fatalf("%s: rows of %v, and scopes %q", table, scanned, scopes)
		}
	}
	return b.String()
}

// answersOf asks a view everything that operations within a scope are made of, by some dimensions.
func answersOf(t rapid.TB, v projections.View, pick *rand.Rand) map[string]string {
	out := map[string]string{"rows": rowsOf(t, v)}
	tell := func(name string, answer any, err error) {
		text, bad := json.Marshal(answer)
		if bad != nil {
			t.Fatal(bad)
		}
		out[name] = fmt.Sprintf("%s %v", text, err)
	}
	from, to := storetest.Start-domain.Day, storetest.Start+5*domain.Hour
	a, err := registry.NewAuthority(v)
	if err != nil {
		t.Fatal(err)
	}
	tell("grants", a.Grants(), nil)
	trail, err := a.Trail(v, registry.TrailFilter{})
	tell("trail", trail, err)
	names, err := registry.NewNames(v)
	tell("names", names, err)
	reg, err := registry.New(v, to)
	tell("registry", reg, err)
	for _, table := range []projections.Table{
		projections.TableWorkspaces, projections.TablePolicies, projections.TableQuotas, projections.TableBudgets, projections.TableMappingRules,
		projections.TableRegions, projections.TableClusters, projections.TableDeployments, projections.TableMaintenance, projections.TableOutages,
	} {
		statements, err := registry.Statements(v, a, table, to)
		tell("get "+table.String(), statements, err)
	}
	commitments, err := planning.CommitmentStatements(v, a, to)
	tell("get commitments", commitments, err)
	offers, err := market.OfferStatements(v, to)
	tell("get offers", offers, err)
	fleet, err := inventory.New(v, inventory.Filter{At: to})
	tell("fleet", fleet, err)
	models, err := inventory.Models(v, to, domain.Day, inventory.ModelFilter{})
	tell("models", models, err)
	keys, err := registry.ClusterKeys(v)
	tell("keys", keys, err)
	served, err := serving.NewReport(v, from, to, serving.Filter{})
	tell("serving", served, err)
	jobs, err := serving.Jobs(v, from, to, serving.JobsFilter{})
	tell("jobs", jobs, err)
	for range 3 {
		d := usage.Dimensions()[pick.IntN(len(usage.Dimensions()))]
		for _, filter := range []usage.Filter{{}, {Workspace: "acme"}, {Workspace: "rival"}, {Cluster: "host"}, {Cluster: "dark"},
			{Where: []dimension.Condition{{Dimension: usage.ByDeployment, Values: []string{"d-1"}}}}} {
			r, err := usage.NewReport(v, from, to, filter, d, usage.ByDeployment)
			tell(fmt.Sprintf("usage by %s %+v", d, filter), r, err)
		}
	}
	budgets, err := costs.ReadBudgets(v, storetest.MayBill)
	tell("budgets", budgets, err)
	d := divided(t, v)
	tell("summary", d.Summary, nil)
	for range 5 {
		by := costs.Dimensions()[pick.IntN(len(costs.Dimensions()))]
		if by == costs.ByTag {
			by = "tag:team"
		}
		for _, workspace := range []string{"", "acme", "rival"} {
			r, err := d.Report(costs.Query{Month: storetest.MayBill, Workspace: workspace, By: []costs.Dimension{by, costs.ByDeployment}, Largest: 3})
			tell(fmt.Sprintf("costs by %s of %q", by, workspace), r, err)
		}
	}
	reports, err := d.WorkspaceReports(costs.EachWorkspace{Month: storetest.MayBill, By: [][]costs.Dimension{{costs.ByCharge}, {costs.ByCommitment}}})
	tell("statements", reports, err)
	var all []costs.Allocation
	err = d.Each(costs.AllocationFilter{}, func(a *costs.Allocation) error { all = append(all, *a); return nil })
	tell("allocations", all, err)
	m, err := costs.NewMonths(costs.MonthsQuery{Months: []domain.Interval{storetest.MayBill}, By: []costs.Dimension{costs.ByProvider, costs.ByGPUModel}})
	if err == nil {
		err = m.Add(d)
	}
	if err != nil {
		t.Fatal(err)
	}
	months, err := m.Report(v)
	tell("months", months, err)
	return out
}

// divided divides all rows, and narrows the result to what a view sees.
func divided(t rapid.TB, v projections.View) *costs.Division {
	d, err := costs.Divide(access.Beneath(v), storetest.MayBill, 1<<30)
	if err == nil {
		d, err = d.Within(v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func scopeOf(t rapid.TB, v projections.View, rights ...access.Right) *access.Scope {
	s, err := access.ScopeOf(v, rights)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWorldsDiffer shows that the pairs of worlds differ in every table, but for those of which all rows are seen by all.
func TestWorldsDiffer(t *testing.T) {
	differs := map[string]bool{}
	for seed := range uint64(20) {
		var tables [2]map[string]string
		for i := range tables {
			tables[i] = map[string]string{}
			v := viewOf(t, storetest.Estate(rand.New(rand.NewPCG(seed, 1)).IntN, rand.New(rand.NewPCG(seed, uint64(2+i))).IntN)...)
			if err := v.Scan(projections.Query{Table: projections.TableQuarantine}, func(_ projections.Key, row projections.Row) error {
				t.Errorf("quarantined: %s", row.(*projections.Quarantined).Reason)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			for _, table := range projections.Tables() {
				if err := v.Scan(projections.Query{Table: table}, func(k projections.Key, row projections.Row) error {
					text, err := projections.EncodeRow(row)
					tables[i][table.String()] += fmt.Sprintf("%s %x\n", k, text)
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for table, rows := range tables[0] {
			differs[table] = differs[table] || rows != tables[1][table]
		}
	}
	same := []string{
		"regions",      // everybody sees them
		"quarantine",   // there is nothing in it
		"server_hours", // as serving_hours
	}
	for _, table := range projections.Tables() {
		if name := table.String(); differs[name] == slices.Contains(same, name) {
			t.Errorf("%s differs: %v", name, differs[name])
		}
	}
}

// TestNonInterference draws pairs of estates that differ only in what is hidden from a tenant. Everything that the
// tenant can ask has the same answer, byte for byte.
func TestNonInterference(t *testing.T) {
	long.Check(t, 200, 1000, func(t *rapid.T) {
		seen := rapid.Uint64().Draw(t, "seen")
		hidden := rapid.Uint64().Draw(t, "hidden")
		role := rapid.SampledFrom(access.Roles()).Draw(t, "role")
		var clusters []string
		if rapid.Bool().Draw(t, "limited") {
			clusters = rapid.SampledFrom([][]string{{"own"}, {"host"}, {"dark"}, {"own", "host"}}).Draw(t, "clusters")
		}
		var answers [2]map[string]string
		var whole [2]string
		for i := range answers {
			v := viewOf(t, storetest.Estate(rand.New(rand.NewPCG(seen, 1)).IntN, rand.New(rand.NewPCG(hidden, uint64(i))).IntN)...)
			answers[i] = answersOf(t, scopeOf(t, v, access.Right{Workspace: "acme", Role: role, Clusters: clusters}).View(v),
				rand.New(rand.NewPCG(seen, 3)))
			whole[i] = rowsOf(t, v)
		}
		if whole[0] == whole[1] {
			t.Fatal("nothing is hidden in these worlds")
		}
		for name, answer := range answers[0] {
			if other := answers[1][name]; answer != other {
				at := 0
				for at < min(len(answer), len(other)) && answer[at] == other[at] {
					at++
				}
				from := max(0, at-200)
				t.Fatalf("%s tells what is hidden:\n%.400s\n%.400s", name, answer[from:], other[from:])
			}
		}
	})
}

// TestTenantFigures compares what a tenant sees with what finance sees for the workspaces: the same digits.
func TestTenantFigures(t *testing.T) {
	long.Check(t, 30, 300, func(t *rapid.T) {
		seen, hidden := rapid.Uint64().Draw(t, "seen"), rapid.Uint64().Draw(t, "hidden")
		v := viewOf(t, storetest.Estate(rand.New(rand.NewPCG(seen, 1)).IntN, rand.New(rand.NewPCG(hidden, 2)).IntN)...)
		narrow := scopeOf(t, v, access.Right{Workspace: "acme", Role: domain.RoleFinance}).View(v)
		whole, own := divided(t, v), divided(t, narrow)
		if memory, file := allocationsOf(t, own), allocationsOf(t, keptWithin(t, v, narrow)); memory != file {
			t.Fatalf("of a month in memory %s\nof a kept one %s", memory, file)
		}
		charged := 0
		for _, workspace := range []string{"acme", "emea"} {
			for _, by := range []costs.Dimension{
				costs.ByCluster, costs.ByDeployment, costs.ByComponent, costs.ByDay, costs.ByHour, costs.ByProvider, costs.ByRegion, costs.ByGPUModel,
				costs.ByModel, costs.ByWorkloadClass, costs.ByCostCentre, costs.ByMonth,
			} {
				q := costs.Query{Month: storetest.MayBill, Workspace: workspace, By: []costs.Dimension{by}}
				theirs, err := whole.Report(q)
				if err != nil {
					t.Fatal(err)
				}
				ours, err := own.Report(q)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := figuresOf(ours), figuresOf(theirs); !slices.Equal(got, want) {
					t.Fatalf("%s by %s: %q, finance sees %q", workspace, by, got, want)
				}
				charged += len(ours.Groups)
			}
			for _, by := range []usage.Dimension{usage.ByCluster, usage.ByDeployment, usage.ByGPUModel, usage.ByHour, usage.ByRegion, usage.ByWorkloadClass} {
				filter := usage.Filter{Workspace: workspace, Where: []dimension.Condition{{Dimension: usage.ByWorkspace, Values: []string{workspace}}}}
				theirs, err := usage.NewReport(v, storetest.Start, storetest.Start+4*domain.Hour, filter, by)
				if err != nil {
					t.Fatal(err)
				}
				ours, err := usage.NewReport(narrow, storetest.Start, storetest.Start+4*domain.Hour, filter, by)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := json.Marshal(ours.Groups)
				if want, _ := json.Marshal(theirs.Groups); !bytes.Equal(got, want) {
					t.Fatalf("usage of %s by %s: %s, all see %s", workspace, by, got, want)
				}
			}
		}
		if charged == 0 {
			t.Fatal("nothing was compared")
		}
	})
}

// keptWithin is what a narrowed view sees of a month that is read from its kept form.
func keptWithin(t rapid.TB, whole, narrow projections.View) *costs.Division {
	var b bytes.Buffer
	if _, _, err := costs.WriteCanonical(whole, storetest.MayBill, &b); err != nil {
		t.Fatal(err)
	}
	d, err := costs.ReadCanonical(func() (io.ReadSeekCloser, error) { return readCloser{bytes.NewReader(b.Bytes())}, nil })
	if err == nil {
		d, err = d.Within(narrow)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

type readCloser struct{ io.ReadSeeker }

func (readCloser) Close() error { return nil }

// allocationsOf is the text of a division's allocations and of what it says besides.
func allocationsOf(t rapid.TB, d *costs.Division) string {
	all := []costs.Allocation{}
	if err := d.Each(costs.AllocationFilter{}, func(a *costs.Allocation) error { all = append(all, *a); return nil }); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]any{all, d.Summary})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// figuresOf are the figures of a report's groups and totals, without those that come from the supplier's prices.
func figuresOf(r *costs.Report) (out []string) {
	for _, g := range r.Groups {
		out = append(out, fmt.Sprint(g.Key, g.Currency, g.Billed, g.Effective, g.BilledMinor, g.EffectiveMinor, g.Bought, g.Allocated, g.Measured, g.PerUseful))
	}
	for _, c := range r.Totals {
		out = append(out, fmt.Sprint(c.Currency, c.Billed, c.Effective, c.BilledMinor, c.Bought, c.Allocated))
	}
	return out
}
