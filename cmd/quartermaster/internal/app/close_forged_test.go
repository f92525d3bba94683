package app_test

import (
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// A proposal that states other postings, totals or allocations than its position gives is not approved, whatever
// program made it. The true one is.
func TestForgedProposalIsNotApproved(t *testing.T) {
	dir := billedDir(t)
	a := &app.App{Dir: dir}
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, root := apptest.FirstOperator(t, a)
	public, ann, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	apptest.Decide(t, a, root, app.RegisterOperator(app.Platform, &domain.OperatorRegistered{Operator: "ann", PublicKey: public, Role: domain.RoleFinance}))
	accept := map[string]string{}
	prepare := func(month domain.Interval) app.Draft {
		t.Helper()
		found, draft, err := a.For(app.Everyone).PrepareClose(t.Context(), month, accept, "", false)
		if conflict := (*app.ConflictError)(nil); errors.As(err, &conflict) && found != nil {
			for _, f := range found.Against {
				accept[f.Check] = "a test"
			}
			_, draft, err = a.For(app.Everyone).PrepareClose(t.Context(), month, accept, "", false)
		}
		if err != nil {
			t.Fatal(err)
		}
		return draft
	}
	approve := func(month domain.Interval) error {
		_, draft, err := a.For(app.Everyone).ApproveClose(t.Context(), month, "")
		if err == nil {
			apptest.Decide(t, a, ann, draft)
		}
		return err
	}
	draft := prepare(may)
	silent := *draft.Events[0].Event.(*domain.ClosePrepared)
	silent.Checks = slices.Clone(silent.Checks)
	for i := range silent.Checks {
		silent.Checks[i].Outcome, silent.Checks[i].Reason = domain.CheckMet, ""
	}
	forged := draft
	forged.Events = slices.Clone(draft.Events)
	forged.Events[0].Event = &silent
	apptest.Decide(t, a, root, forged)
	if err := approve(may); err == nil || !strings.Contains(err.Error(), "says that nothing stands against it in") {
		t.Errorf("a checklist without its findings: %v", err)
	}
	apptest.Decide(t, a, root, prepare(may))
	if err := approve(may); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, lineOf("l-3", "1.25"), invoiced("16.25"))
	apptest.Close(t, h)
	a = &app.App{Dir: dir}

	june := projections.BillingMonth(may.To)
	for want, forge := range map[string]func(*domain.ClosePrepared){
		"states other postings":             func(p *domain.ClosePrepared) { p.Postings = nil },
		"the postings into 2026-06 are now": func(p *domain.ClosePrepared) { p.Postings = make([]byte, 32); p.Postings[0] = 1 },
		"lacks the check":                   func(p *domain.ClosePrepared) { p.Checks = p.Checks[:1] },
		"states other totals":               func(p *domain.ClosePrepared) { p.Totals = append(p.Totals, domain.BooksTotal{Currency: "EUR"}) },
		"the month now divides to":          func(p *domain.ClosePrepared) { p.Digest = append([]byte{p.Digest[0] + 1}, p.Digest[1:]...) },
		"is beyond the end of the log": func(p *domain.ClosePrepared) {
			p.Digest = append([]byte{p.Digest[0] + 2}, p.Digest[1:]...)
			p.Position = "qm.billing/0=99999"
		},
	} {
		draft := prepare(june)
		forged := *draft.Events[0].Event.(*domain.ClosePrepared)
		if len(forged.Postings) == 0 {
			t.Fatal("nothing is posted into June")
		}
		forge(&forged)
		draft.Events[0].Event = &forged
		apptest.Decide(t, a, root, draft)
		if err := approve(june); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		listed(t, a, want)
	}
	apptest.Decide(t, a, root, prepare(june))
	if err := approve(june); err != nil {
		t.Error(err)
	}
}

// A proposal that hides what its allocations do not say is not approved: records in quarantine, events that have not
// arrived, and a month whose observations may still arrive.
func TestForgedCheckIsNotApproved(t *testing.T) {
	for check, prepare := range map[string]func(t *testing.T, dir string){
		costs.CheckQuarantine: func(t *testing.T, dir string) {
			if err := apptest.Plant(dir, "garbage", "gpu-twice"); err != nil {
				t.Fatal(err)
			}
		},
		costs.CheckGaps: func(t *testing.T, dir string) { // the third event of a stream of one
			h, _ := apptest.Open(t, dir)
			env := sampled("reporter/gap", 9, "a")
			env.Incarnation, env.Sequence = 1, 3
			rec, err := apptest.EncodeThen(&env)
			if err == nil {
				err = h.Log.Append(t.Context(), []domain.Record{rec})
			}
			if err != nil {
				t.Fatal(err)
			}
			apptest.Close(t, h)
		},
		costs.CheckEnded: func(*testing.T, string) {},
	} {
		t.Run(check, func(t *testing.T) {
			now := may.To + 60*domain.Day
			if check == costs.CheckEnded {
				now = may.To + 3*domain.Day
			}
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(now.Time())) //nolint:forbidigo // moves the clock of the bubble, and waits for nothing
				dir := billedDir(t)
				prepare(t, dir)
				forgedCheck(t, dir, check)
			})
		})
	}
}

// forgedCheck proposes to close May, without what a check finds, and then with it.
func forgedCheck(t *testing.T, dir, check string) {
	a := &app.App{Dir: dir}
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, root := apptest.FirstOperator(t, a)
	accept := map[string]string{}
	found, _, err := a.For(app.Everyone).PrepareClose(t.Context(), may, accept, "", false)
	if conflict := (*app.ConflictError)(nil); !errors.As(err, &conflict) {
		t.Fatal(err)
	}
	for _, f := range found.Against {
		accept[f.Check] = "a test"
	}
	if accept[check] == "" {
		t.Fatalf("nothing stands against the close in %s: %v", check, accept)
	}
	_, draft, err := a.For(app.Everyone).PrepareClose(t.Context(), may, accept, "", false)
	if err != nil {
		t.Fatal(err)
	}
	honest := draft
	honest.Events = slices.Clone(draft.Events)
	forged := *draft.Events[0].Event.(*domain.ClosePrepared)
	forged.Checks = slices.Clone(forged.Checks)
	for i := range forged.Checks {
		if c := &forged.Checks[i]; c.Check == check {
			c.Outcome, c.Reason, c.Detail = domain.CheckMet, "", ""
		}
	}
	draft.Events[0].Event = &forged
	apptest.Decide(t, a, root, draft)
	if _, _, err := a.For(app.Everyone).ApproveClose(t.Context(), may, ""); err == nil || !strings.Contains(err.Error(), "against it in "+check) {
		t.Errorf("a proposal that hides what %s found: %v", check, err)
	}
	apptest.Decide(t, a, root, honest)
	if _, _, err := a.For(app.Everyone).ApproveClose(t.Context(), may, ""); err != nil {
		t.Errorf("a proposal that states what %s found: %v", check, err)
	}
}

// listed checks that the closed May and the proposal of June are both listed and shown, whatever the proposal names. If
// its allocations or postings cannot be read, it is shown with the problem, and May is not.
func listed(t *testing.T, a *app.App, want string) {
	t.Helper()
	caller := a.For(app.Everyone)
	all, err := caller.Closes(t.Context(), "")
	if err != nil || len(all) != 2 {
		t.Errorf("%s: %d closes are listed: %v", want, len(all), err)
		return
	}
	if m := &all[0]; m.Problem != "" || m.State != app.CloseDone || m.Allocations == 0 || len(m.Totals) == 0 {
		t.Errorf("%s: May is listed as %+v", want, m)
	}
	june := &all[1]
	if unread := !strings.HasPrefix(want, "states other") && want != "lacks the check"; unread != strings.Contains(june.Problem, want) {
		t.Errorf("%s: June has the problem %q", want, june.Problem)
	}
	if june.State != app.CloseProposed || june.Prepared == nil || len(june.Digest) != 64 || june.Methods.Attribution == "" || len(june.Checks) == 0 {
		t.Errorf("%s: June is listed as %+v", want, june)
	}
	if shown, err := caller.Closing(t.Context(), "", june.Month); err != nil || shown.Problem != june.Problem {
		t.Errorf("%s: June is shown as %+v: %v", want, shown, err)
	}
}
