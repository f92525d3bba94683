package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/cli"
)

// sending returns the body of a question with files.
func sending(t *testing.T, files ...string) string {
	t.Helper()
	var s cli.Sent
	for i := 0; i < len(files); i += 2 {
		s.Documents = append(s.Documents, cli.Document{Name: files[i], Text: files[i+1]})
	}
	text, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// works begins long work, which must be accepted, waits for its end, and returns its answer.
func (s *listener) works(token, path, body string) reply {
	s.t.Helper()
	begun := s.post(http.MethodPost, token, path, asJSON, body)
	var w cli.Work
	if err := json.Unmarshal([]byte(begun.body), &w); err != nil || begun.status != http.StatusAccepted {
		s.t.Fatalf("%s: %d %.300s", path, begun.status, begun.body)
	}
	s.get(token, cli.WorkRoot+"/"+w.ID+"/events") // until it has ended
	return s.get(token, cli.WorkRoot+"/"+w.ID+"/answer")
}

// small is a procurement problem that is solved at once.
const small = `{"format": "quartermaster.instance/1", "name": "level", "currency": "USD", "from": "2026-01-01T00:00:00Z", "epoch": "month",
 "epochs": 1, "annual_rate": "0", "salvage": "0", "regions": [{"id": "r"}],
 "pools": [{"id": "p", "region": "r", "class": "K", "unit": "gpu", "on_demand": {"hourly": "10"}}],
 "demands": [{"id": "d", "pool": "p", "duration": [[{"units": 10, "hours": 744}]], "interruptible_share": "0", "shortage_hourly": "100"}],
 "offers": []}`

// TestAPIWorkWithFiles sends files with questions that take long: right ones, wrong ones with their faults, and those
// that name files of the server.
func TestAPIWorkWithFiles(t *testing.T) {
	dir := t.TempDir()
	estateOf(t, dir)
	s := serveListening(t, dir, nil, nil)
	planner := s.account("boss", "planner", "platform")
	tenant := s.account("tenant", "planner", "shop")
	viewer := s.account("viewer", "viewer", "shop")
	scenario := "apiVersion: quartermaster/v1\nkind: Scenario\nname: s\nbase: {instance: b.json}\nhorizon: 1 months\nseed: 1\nruns: 5\n" +
		"changes:\n  - {kind: demand_growth, monthly: {triangular: [0, 0.02, 0.05]}}\nalternatives:\n  - {name: rent, buy: nothing}\n"
	const solve, simulate, evaluate = "/api/v1/plan/solve?instance=a.json", "/api/v1/simulate?file=s.yaml", "/api/v1/plan/evaluate?contract=c.yaml&instance=a.json"

	for name, of := range map[string]struct{ token, path, body, want string }{
		"a problem":                    {planner, solve, sending(t, "a.json", small), `"cost": "74400"`},
		"a tenant's problem":           {tenant, solve, sending(t, "a.json", small), `"cost": "74400"`},
		"a scenario with its instance": {planner, simulate, sending(t, "s.yaml", scenario, "b.json", small), `"simulation": "sim-`},
		"a contract": {planner, evaluate, sending(t, "a.json", small, "c.yaml",
			"apiVersion: quartermaster/v1\nkind: Contract\nname: deal\npool: p\nterm_epochs: 1\nhourly: 6\nguarantees_capacity: true\n"), `"worth": "29760"`},
	} {
		if got := s.works(of.token, of.path, of.body); got.status != http.StatusOK || !strings.Contains(got.body, of.want) {
			t.Errorf("%s: %d %.500s", name, got.status, got.body)
		}
	}

	secret := filepath.Join(dir, "operator.pem")
	if _, err := os.Stat(secret); err != nil {
		t.Fatal(err)
	}
	type fault struct {
		File, Field  string
		Line, Column int
	}
	for name, of := range map[string]struct {
		path, body, want string
		faults           []fault
	}{
		"a wrong problem": {solve, sending(t, "a.json", strings.Replace(small, `"pool": "p", "dur`, `"pool": "q", "dur`, 1)), "there is no pool",
			[]fault{{"a.json", "/demands/0/pool", 4, 26}}},
		"not JSON":   {solve, sending(t, "a.json", "{\n "), "a.json:2:2", []fault{{"a.json", "", 2, 2}}},
		"a deep one": {solve, sending(t, "a.json", strings.Repeat("[", 100_000)), "a.json:1:", []fault{{"a.json", "", 1, 1}}},
		"a wrong file": {simulate, sending(t, "s.yaml", "apiVersion: quartermaster/v1\nkind: Scenario\nnome: s\n"), "s.yaml:3:1",
			[]fault{{"s.yaml", "", 1, 1}, {"s.yaml", "", 1, 1}, {"s.yaml", "nome", 3, 1}}},
		"a wrong base": {simulate, sending(t, "s.yaml", scenario, "b.json", "{}"), "b.json:1:3", []fault{{"b.json", "", 1, 3}}},
		"a bomb": {simulate, sending(t, "s.yaml", "a: &a [x, x]\nb: [*a, *a]\n"), "anchors, aliases and merges",
			[]fault{{"s.yaml", "", 1, 4}}},
		"bad rows": {"/api/v1/plan/forecast?demand=d.csv", sending(t, "d.csv", "usage_hour,region,instance_type,norm_usage\n2025-01-01 00:00:00,north,m1.large,NaN\n"),
			"d.csv:2", []fault{{"d.csv", "norm_usage", 2, 0}}},
		"demand of the server":    {"/api/v1/plan/backtest?demand=" + url.QueryEscape(secret), "", "no document of this name", nil},
		"no file":                 {solve, "", "no document of this name", nil},
		"another file":            {solve, sending(t, "other.json", small), "no document of this name", nil},
		"no base":                 {simulate, sending(t, "s.yaml", scenario), "read b.json: no document of this name", nil},
		"a file of the server":    {"/api/v1/plan/solve?instance=" + url.QueryEscape(secret), "", "no document of this name", nil},
		"its standard input":      {"/api/v1/plan/solve?instance=-", "", "no document of this name", nil},
		"a base of the server":    {simulate, sending(t, "s.yaml", strings.Replace(scenario, "b.json", secret, 1)), "no document of this name", nil},
		"a negative effort":       {solve + "&effort=-1", sending(t, "a.json", small), "--effort", nil},
		"a contract about no log": {"/api/v1/plan/evaluate?contract=c.yaml", sending(t, "c.yaml", ""), "c.yaml:1:1", []fault{{"c.yaml", "", 1, 1}}},
	} {
		got := s.works(planner, of.path, of.body)
		var p struct {
			Type, Detail string
			Faults       []fault
		}
		if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != http.StatusBadRequest || p.Type != cli.ProblemType+"invalid" || !strings.Contains(p.Detail, of.want) {
			t.Errorf("%s: %d %.500s", name, got.status, got.body)
		}
		for i, f := range of.faults {
			if i >= len(p.Faults) || p.Faults[i].File != f.File || p.Faults[i].Line != f.Line || f.Field != "" && p.Faults[i] != f {
				t.Errorf("%s: faults %+v, want %+v", name, p.Faults, of.faults)
			}
		}
		if strings.Contains(got.body, "PRIVATE") {
			t.Errorf("%s: %s", name, got.body)
		}
	}

	// What is refused before it begins.
	for name, of := range map[string]struct {
		token, path, media, body string
		status                   int
		want                     string
	}{
		"a form":             {planner, solve, "application/x-www-form-urlencoded", "a=b", 415, "want application/json"},
		"the file alone":     {planner, solve, "application/yaml", scenario, 415, "want application/json"},
		"100 MB":             {planner, solve, asJSON, strings.Repeat(" ", 100<<20), 413, "more than 33554432 bytes"},
		"not JSON":           {planner, solve, asJSON, "{", 400, "body"},
		"an unknown name":    {planner, solve, asJSON, `{"files":[]}`, 400, "unknown"},
		"null":               {planner, solve, asJSON, "null", 400, "want a list"},
		"no documents":       {planner, solve, asJSON, "{}", 400, "want a list"},
		"a name twice":       {planner, solve, asJSON, sending(t, "a.json", small, "a.json", small), 400, "that of another document"},
		"no name":            {planner, solve, asJSON, sending(t, "", small), 400, "missing"},
		"too many":           {planner, solve, asJSON, `{"documents":[` + strings.Repeat(`{},`, 16) + `{}]}`, 400, "at most 16"},
		"nothing named":      {planner, "/api/v1/plan/solve", asJSON, sending(t, "a.json", small), 400, "instance is missing"},
		"a place to write":   {planner, solve + "&out=x", asJSON, "", 400, "not a parameter"},
		"a recorded answer":  {planner, simulate + "&freeze=true", asJSON, "", 400, "not a parameter"},
		"a tenant's log":     {tenant, simulate, asJSON, sending(t, "s.yaml", scenario), 403, "your rights do not cover"},
		"a tenant's offer":   {tenant, evaluate, asJSON, "", 403, "your rights do not cover"},
		"a viewer's problem": {viewer, solve, asJSON, sending(t, "a.json", small), 403, "your rights do not cover"},
	} {
		if got := s.post(http.MethodPost, of.token, of.path, of.media, of.body); got.status != of.status || !strings.Contains(got.body, of.want) {
			t.Errorf("%s: %d %.300s", name, got.status, got.body)
		}
	}
	if got := s.post(http.MethodPost, planner, solve, asJSON, sending(t, "a.json", small), "Content-Encoding", "gzip"); got.status != http.StatusUnsupportedMediaType {
		t.Errorf("compressed: %d %s", got.status, got.body)
	}
}

// TestAPIWorkVerifiesTheLog folds the log again beside the rows that answers come from, which stay as they are.
func TestAPIWorkVerifiesTheLog(t *testing.T) {
	dir := t.TempDir()
	estateOf(t, dir)
	s := serveListening(t, dir, nil, nil)
	auditor := s.account("auditor", "auditor", "platform")
	tenant := s.account("tenant", "auditor", "shop")
	const fleet, replay = "/api/v1/fleet?at=2026-06-01", "/api/v1/log/replay?memory=1GiB"
	before := s.get(auditor, fleet)
	for range 2 {
		got := s.works(auditor, replay, "")
		var ans struct {
			Equal  *bool
			Events int64
		}
		if err := json.Unmarshal([]byte(got.body), &ans); err != nil || ans.Equal == nil || !*ans.Equal || ans.Events == 0 {
			t.Errorf("%d %s", got.status, got.body)
		}
		if after := s.get(auditor, fleet); after.body != before.body || after.header.Get("ETag") != before.header.Get("ETag") {
			t.Errorf("after it: %d %s", after.status, after.body)
		}
	}
	if got := s.works(auditor, "/api/v1/log/replay", ""); got.status != http.StatusBadRequest || !strings.Contains(got.body, "within a bound") {
		t.Errorf("without a bound: %d %s", got.status, got.body)
	}
	if got := s.works(auditor, "/api/v1/log/replay?memory=5GiB", ""); got.status != http.StatusBadRequest || !strings.Contains(got.body, "4.0 GiB at most") {
		t.Errorf("much memory: %d %s", got.status, got.body)
	}
	for path, status := range map[string]int{replay + "&progress=/tmp": http.StatusBadRequest, replay + "&verify=false": http.StatusBadRequest} {
		if got := s.post(http.MethodPost, auditor, path, asJSON, ""); got.status != status {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := s.post(http.MethodPost, tenant, replay, asJSON, ""); got.status != http.StatusForbidden {
		t.Errorf("a tenant: %d %s", got.status, got.body)
	}
}

// TestAPIWorkOfAFlood floods long work from one workspace. It is told to wait, and another gets its answer meanwhile.
func TestAPIWorkOfAFlood(t *testing.T) {
	dir := t.TempDir()
	estateOf(t, dir)
	s := serveListening(t, dir, nil, nil)
	flood, calm := s.account("flood", "planner", "shop"), s.account("calm", "planner", "research")
	below := s.account("below", "planner", "vision") // of research
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "demo", "instances", "single-pool.json"))
	if err != nil {
		t.Fatal(err)
	}
	const solve = "/api/v1/plan/solve?instance=a.json"
	body := sending(t, "a.json", string(text))
	statuses := map[int]int{}
	for range 100 {
		got := s.post(http.MethodPost, flood, solve+"&second_best=true&max_share=0.1", asJSON, body)
		if statuses[got.status]++; got.status == http.StatusTooManyRequests && (!strings.Contains(got.body, "of your workspace") || got.header.Get("Retry-After") == "") {
			t.Fatalf("%v %s", got.header, got.body)
		}
	}
	if statuses[http.StatusTooManyRequests] == 0 || statuses[http.StatusAccepted]+statuses[http.StatusTooManyRequests] != 100 {
		t.Errorf("%v", statuses)
	}
	for _, token := range []string{calm, below} {
		if got := s.works(token, solve, body); got.status != http.StatusOK {
			t.Errorf("%d %.300s", got.status, got.body)
		}
	}
	var left []cli.Work
	if err := json.Unmarshal([]byte(s.get(flood, cli.WorkRoot).body), &left); err != nil || !slices.ContainsFunc(left, func(w cli.Work) bool { return !w.Ended() }) {
		t.Errorf("nothing waits any more: %v, %d", err, len(left))
	}
	for _, w := range left {
		s.post(http.MethodDelete, flood, cli.WorkRoot+"/"+w.ID, asJSON, "")
	}
}
