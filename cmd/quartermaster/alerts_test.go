package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// Two instances evaluate the rules once for both, and an Alertmanager hears of what they find.
func TestProductionEvaluates(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(1) // of clusters that nobody declared
	heard := make(chan []map[string]map[string]string, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var alerts []struct{ Labels, Annotations map[string]string }
		if err := json.Unmarshal(body, &alerts); err != nil || r.URL.Path != "/api/v2/alerts" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		var all []map[string]map[string]string
		for _, a := range alerts {
			all = append(all, map[string]map[string]string{"labels": a.Labels, "annotations": a.Annotations})
		}
		heard <- all
	}))
	defer srv.Close()
	text, err := os.ReadFile(s.config)
	if err == nil {
		changed := strings.Replace(string(text), "schedules: {advice: off}", "alertmanagers: [{name: main, url: '"+srv.URL+"'}]", 1)
		err = os.WriteFile(s.config, []byte(changed), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	one, other := s.serve("one"), s.serve("other")
	select {
	case all := <-heard:
		if len(all) == 0 || all[0]["labels"]["alertname"] != "evidence" || !strings.HasPrefix(all[0]["labels"]["incident"], "i-") ||
			all[0]["annotations"]["runbook"] != "quartermaster runbook evidence" {
			t.Errorf("%v", all)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("nobody is told")
	}
	one.ends()
	other.ends()
	code, out := s.command("advice", "replay", "--from", "2020-01-01", "--to", "2100-01-01")
	if code != 0 || !strings.Contains(out, ", 0 differences") || strings.HasPrefix(out, "0 events") {
		t.Errorf("exit %d\n%s", code, out)
	}
	s.verified()
}
