package app_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// A tenant sees of an open month, and of the same month once it is closed, what finance sees for the workspace, digit for
// digit, and nothing of the supplier's side.
func TestTenantOfAClosedMonth(t *testing.T) {
	dir := t.TempDir()
	day := domain.Interval{From: may.From, To: may.From + domain.Day}
	node := storetest.Node("lab", "n1", "H100 80GB", 2, may.From)
	r := node.Event.(*domain.NodeRegistered)
	r.Provider, r.BillingAccount, r.ResourceID, r.SKU = "p", "1", "r-n1", "gpu.1"
	seen := func(by string, from, to int) domain.Envelope {
		i := domain.Interval{From: may.From + domain.Instant(from)*domain.Hour/4, To: may.From + domain.Instant(to)*domain.Hour/4}
		return domain.Envelope{Source: "reporter/n1/" + by + fmt.Sprint(from), Cluster: "lab", Time: i.To, Event: storetest.Sample("n1", i,
			storetest.Seen{ID: storetest.GPU("lab", "n1", 0), Workspace: by, Deployment: "d", Unit: "secret-pod", Activity: 500})}
	}
	l := billed("secret-line", "", day)
	l.BillingPeriodStart, l.BillingPeriodEnd, l.InvoiceID, l.ResourceID = may.From, may.To, "secret-invoice", "r-n1"
	l.BilledCost = storetest.Dec("100.01")
	l.EffectiveCost.Decimal = l.BilledCost
	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, node, seen("a", 0, 5), seen("b", 5, 8), seen("a", 8, 9),
		domain.Envelope{Source: "focus/p", Time: may.To, Event: &domain.BillingLineRecorded{Line: l}},
		domain.Envelope{Source: "invoice/p", Time: may.To, Event: &domain.InvoiceReceived{
			InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "secret-invoice", Status: "Issued", BillingPeriod: may, Total: *storetest.USD("100.01"),
		}})
	apptest.Close(t, h)

	compare := func(closed bool) {
		t.Helper()
		h, _ := apptest.Open(t, dir)
		defer apptest.Close(t, h)
		share := h.Sharing()
		var tenant app.Principal
		if err := h.View(t.Context(), func(v projections.View) (err error) {
			tenant.Scope, err = access.ScopeOf(v, []access.Right{{Workspace: "a", Role: domain.RoleViewer}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		ask := func(who app.Principal) (*costs.Report, []app.CostStatement) {
			on := share(who)
			q := costs.Query{Month: may, Workspace: "a", By: []costs.Dimension{costs.ByDeployment, costs.ByHour, costs.ByComponent}}
			r, err := on.For(app.Everyone).Costs(t.Context(), "", q)
			if err != nil {
				t.Fatal(err)
			}
			s, err := on.For(app.Everyone).CostStatements(t.Context(), "", may, "a")
			if err != nil {
				t.Fatal(err)
			}
			return r, s
		}
		all, statements := ask(app.Everyone)
		own, issued := ask(tenant)
		if (own.Books != nil) != closed || len(own.Groups) == 0 || len(own.Groups) != len(all.Groups) {
			t.Fatalf("closed %v: books %v, %d groups, finance sees %d", closed, own.Books, len(own.Groups), len(all.Groups))
		}
		for i := range own.Groups {
			if got, want := own.Groups[i].Cost, all.Groups[i].Cost; got.Billed != want.Billed || got.Effective != want.Effective ||
				got.BilledMinor != want.BilledMinor || got.Allocated != want.Allocated {
				t.Errorf("closed %v: %+v, finance sees %+v", closed, own.Groups[i], all.Groups[i])
			}
		}
		if len(issued) != 1 || issued[0].Number != statements[0].Number || fmt.Sprint(issued[0].Due) != fmt.Sprint(statements[0].Due) {
			t.Errorf("closed %v: statement %+v, finance issues %+v", closed, issued, statements)
		}
		text, err := json.Marshal([]any{own, issued})
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"secret", `"b"`, "prepared_by\":\"" + app.Me()} {
			if strings.Contains(string(text), secret) {
				t.Errorf("closed %v: the tenant is told %s: %s", closed, secret, text)
			}
		}
		unit := func(who app.Principal) (of *costs.UnitGroup, r *costs.UnitReport) {
			q := costs.UnitQuery{Month: may, Per: costs.UnitUsefulGPUHour, By: []costs.Dimension{costs.ByWorkspace, costs.ByDeployment}}
			r, err := share(who).For(app.Everyone).UnitCosts(t.Context(), "", q)
			if err != nil {
				t.Fatal(err)
			}
			for i := range r.Groups {
				if r.Groups[i].Key[costs.ByWorkspace] == "a" {
					of = &r.Groups[i]
				}
			}
			return of, r
		}
		units, of := unit(tenant)
		whole, everything := unit(app.Everyone)
		if units == nil || units.Upper == nil || !reflect.DeepEqual(units, whole) || len(of.Groups) != 1 || len(everything.Groups) < 2 || len(of.Providers) > 0 || len(everything.Providers) == 0 {
			t.Errorf("closed %v: a unit costs %+v, finance sees %+v", closed, of, everything)
		}
		on := share(tenant)
		var denied *app.DeniedError
		if _, err := on.For(app.Everyone).ExplainAllocation(t.Context(), "", attribution.Ref{}); !errors.As(err, &denied) {
			t.Errorf("a tenant asks for the reasons of a line: %v", err)
		}
		// Whoever is named later, the app sees no more.
		var missing *app.NotFoundError
		if _, err := on.For(app.Everyone).Costs(t.Context(), "", costs.Query{Month: may, Workspace: "b"}); !errors.As(err, &missing) {
			t.Errorf("a tenant asks about another: %v", err)
		}
	}
	compare(false)
	a := &app.App{Dir: dir}
	if err := closedMonth(t, a, may, func(prepare func() error) {
		if err := prepare(); err != nil {
			t.Fatal(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	compare(true)
}
