package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// TestOutcomeIsMeasured holds that what a recommendation saved is read from bills: 100 a day were paid before it was
// proposed, and 60 a day after it was carried out, which is 40 × 730 ÷ 24 a month.
func TestOutcomeIsMeasured(t *testing.T) {
	dir := t.TempDir()
	quartermaster := func(args ...string) string {
		t.Helper()
		var out, says bytes.Buffer
		if code := run(append(args, "--data-dir", dir, "--quiet"), strings.NewReader(""), &out, &says); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, says.String())
		}
		return out.String()
	}
	acted := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	for month := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC); month.Month() < time.November; month = month.AddDate(0, 1, 0) {
		cost, days := 60, month.AddDate(0, 1, -1).Day()
		if month.Before(acted) {
			cost = 100
		}
		path := filepath.Join(t.TempDir(), month.Format("2006-01")+".csv")
		text := fmt.Sprintf("BilledCost,EffectiveCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargeCategory,"+
			"ChargePeriodStart,ChargePeriodEnd,ProviderName,InvoiceIssuerName,InvoiceId,ServiceCategory,x_LineId\n"+
			"%[1]d,%[1]d,a,USD,%[2]s,%[3]s,Usage,%[2]s,%[3]s,acme,acme,INV-%[4]s,Compute,L1\n",
			cost*days, month.Format(time.RFC3339), month.AddDate(0, 1, 0).Format(time.RFC3339), month.Format("2006-01"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		quartermaster("import", "focus", path)
	}
	usd := func(text string) domain.Money {
		return domain.Money{Amount: decimal.RequireFromString(text), Currency: "USD"}
	}
	var issued struct {
		KeyID string `json:"key_id"`
	}
	if err := json.Unmarshal([]byte(quartermaster("cluster", "register", "lab", "--provider", "own", "--class", "owned", "--region", "eu",
		"--scope", domain.KeyReceive, "--key-file", filepath.Join(t.TempDir(), "lab.key"), "-o", "json")), &issued); err != nil {
		t.Fatal(err)
	}
	at := domain.InstantOf(acted)
	made := func(id, low, saving, high string) domain.Envelope {
		return domain.Envelope{Time: at, Subject: id, Workspace: "platform", Event: &domain.RecommendationMade{
			Recommendation: id, Kind: "sleep", Summary: "sleep", Cost: usd("0"), Requester: "advice", Saving: usd(saving), SavingLow: usd(low), SavingHigh: usd(high),
			Clusters: []string{"lab"}, Document: []byte(`{"rules":["idle-window"],"subject":{"provider":"acme"}}`),
		}}
	}
	done := func(id string) domain.Envelope {
		return domain.Envelope{Time: at + domain.Hour, Subject: id, Workspace: "platform", Cluster: "lab", Event: &domain.RecommendationActuated{
			Recommendation: id, Cluster: "lab", Command: "c-" + id, Actor: domain.KeyActor(issued.KeyID), Result: "done",
		}}
	}
	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, made("r-true", "1000", "1200", "1300"), made("r-more", "2000", "2500", "3000"), done("r-true"), done("r-more"))
	apptest.Close(t, h)
	measure := func(now domain.Instant) string {
		t.Helper()
		on := &app.App{Dir: dir}
		said, err := on.For(app.Everyone).MeasureOutcomes(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		if err := on.Close(); err != nil {
			t.Fatal(err)
		}
		return said
	}
	if said := measure(at + 20*domain.Day); said != "" {
		t.Errorf("after 20 days: %s", said)
	}
	if said := measure(at + 32*domain.Day); said != "2 outcomes" {
		t.Errorf("after 32 days: %s", said)
	}
	if said := measure(at + 33*domain.Day); said != "" {
		t.Errorf("again: %s", said)
	}
	var all app.Proposed
	if err := json.Unmarshal([]byte(quartermaster("recommend", "list", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	for _, p := range all.Proposals {
		want := map[string]string{"r-true": "succeeded", "r-more": "partial"}[p.Recommendation]
		if o := p.Outcome; o == nil || o.Outcome != want || o.Measured == nil || o.Measured.String() != "1216.67 USD" {
			t.Errorf("%s: %+v, want %s with 1216.67 USD", p.Recommendation, o, want)
		}
	}
	var score app.AdviceScore
	if err := json.Unmarshal([]byte(quartermaster("advice", "score", "-o", "json")), &score); err != nil {
		t.Fatal(err)
	}
	if len(score.Scores) != 1 {
		t.Fatalf("%+v", score.Scores)
	}
	if s := score.Scores[0]; s.Rule != "idle-window" || s.Made != 2 || s.Done != 2 || s.Measured != 2 || s.CameTrue != 1 || s.Covered != 1 || s.Of != 2 ||
		s.Predicted.String() != "3700" || s.Realised.String() != "2433.34" {
		t.Errorf("%+v", s)
	}
}
