package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/keyfile"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/domain/long"
)

// hostile are values that no parameter expects, and some that only few do.
var hostile = []string{
	"-583", "-1", "0", "99999999999999999999", "9223372036854775807", "1e400", "NaN", "", strings.Repeat("x", 4000),
	"\x00\n\x1b[31m", "9999-12-31", "0000-00-00", "1970-01-02", "..", "true",
}

// hostileFields are the same for the fields of documents, in JSON and in YAML.
var hostileFields = []string{
	"-583", "0", "1000000000", "99999999999999999999", "1e400", `"NaN"`, `""`, `"-1"`, `"1000000000000"`, `"1e400"`, `"\u0000"`,
	`"` + strings.Repeat("x", 4000) + `"`, `"9999-12-31"`, `"1970-01-02T00:00:00Z"`, `".."`, "null", "true", "[]", "{}", "[-583]",
}

// demoQuestions are valid questions about the demo, where the examples of an operation's parameters are not. They are
// small. Names in braces are those of [names].
var demoQuestions = map[string][]string{
	"advice":          {"at=2026-02-15"},
	"advice try":      {"from=2026-02-14T23:00:00Z&to=2026-02-15"},
	"costs":           {"period=2026-05", "from=2026-04&to=2026-06&by=month&compare=previous"},
	"costs explain":   {"period=2026-05&workspace=vc-a01", "allocation={ALLOCATION}"},
	"costs restate":   {"period=2026-04&from=2026-06-10"},
	"fragmentation":   {"at=2026-06-01&days=1&moves=1&region=us-east-1"},
	"get":             {"kind=policies", "kind=clusters"},
	"import show":     {"sha_256={FILE}"},
	"jobs":            {"from=2026-05-29&to=2026-05-30"},
	"log event":       {"record=qm.workspaces/0@3"},
	"log replay":      {"memory=1MiB"},
	"plan":            {"at=2026-06-01&months=1&demand=forecast&scenarios=1&region=us-east-1"},
	"plan backtest":   {"from=2026-05&to=2026-06&scenarios=1&months=1&region=us-east-1", "demand=d.csv&prices=p.csv&from=2025-06&to=2025-07&scenarios=1&months=1"},
	"plan evaluate":   {"contract=c.yaml&instance=a.json"},
	"plan forecast":   {"at=2026-06-01&region=us-east-1", "demand=d.csv&weeks=1"},
	"plan instance":   {"at=2026-06-01&months=1&weeks=1&region=us-east-1"},
	"plan show":       {"plan={PLAN}"},
	"plan solve":      {"instance=a.json"},
	"plan verify":     {"plan={PLAN}"},
	"quarantine show": {"id={RECORD}"},
	"serving":         {"from=2026-05-29&to=2026-05-30"},
	"simulate":        {"file=s.yaml", "file=log-s.yaml"},
	"simulate check":  {"file=s.yaml"},
	"simulate diff":   {"a={SIMULATION}&b={SIMULATION}"},
	"simulate show":   {"simulation={SIMULATION}"},
	"simulate verify": {"simulation={SIMULATION}"},
	"usage":           {"from=2026-05-29&to=2026-05-30"},
}

// demoRefuses are operations that the demo does not answer.
var demoRefuses = map[string]int{
	"costs fx":          http.StatusConflict,   // the books have no currency
	"generation status": http.StatusBadRequest, // Postgres has them
	"log replay":        http.StatusBadRequest, // it needs more memory, and takes long
}

// together are questions with more than one parameter that is wrong.
var together = map[string]string{
	"plan instance": "at=1970-02-01&months=1&service_level=0.9",
	"plan evaluate": "contract=c.yaml&at=1970-02-01&months=-583&currency=USD",
	"plan backtest": "from=1970-02&to=1970-03",
}

// unfit are changes of a scenario that name what the demo does not have.
var unfit = []string{
	"{kind: provider_outage, region: nowhere, per_year: 1, duration: 4}", "{kind: maintenance, cluster: nowhere, when: 2026-07-01, duration: 4, units: 1}",
	"{kind: maintenance, cluster: gen-rented, when: 2026-07-01, duration: 4, units: 1000000}", "{kind: renewal, commitment: nothing, end: true}",
	"{kind: price_change, model: nothing, offer_kind: on_demand, when: 2026-07-01, factor: 1}",
	"{kind: deployment_change, deployment: nothing, when: 2026-07-01, replicas: 1}",
	"{kind: new_offer, name: x, provider: own, region: us-east-1, model: p5.48xlarge, offer: x, offer_kind: owned, term_months: 60, upfront: 1, currency: EUR, max_units: 1}",
}

// Small documents of questions.
const (
	hostileScenario = "apiVersion: quartermaster/v1\nkind: Scenario\nname: s\nbase: {instance: a.json}\nhorizon: 1 months\nseed: 1\nruns: 2\nchanges:\n" +
		"  - {kind: demand_growth, monthly: {triangular: [0, 0.02, 0.05]}}\n  - {kind: provider_outage, region: r, per_year: 1, duration: {triangular: [1, 2, 4]}}\n" +
		"alternatives:\n  - {name: rent, buy: nothing}\n"
	hostileContract = "apiVersion: quartermaster/v1\nkind: Contract\nname: deal\npool: p\nterm_epochs: 1\nhourly: 6\nguarantees_capacity: true\n"
	hostilePrices   = "provider,region,instance_type,gpu_model,gpu_count,gpu_memory,vcpu,memory,offer,term_months,upfront,hourly,effective_hourly,currency,as_of,source\n" +
		"aws,north,m1.large,,0,,2,8,on_demand,0,0,0.40,0.40,USD,2025-05-01,price list\n"
	hostileDeployment = "apiVersion: quartermaster/v1\nkind: Estate\nworkspace: search\neffective_from: 2026-06-01\ndeployments:\n" +
		"  - {id: chat, cluster: earth, class: serving, model: m, replicas: 2, max_per_node: 2, latency: 40ms, priority: 100,\n" +
		"     need: {gpus: 1, gpu_models: [V100], gpu_memory: 16 GiB, cpu: 4, memory: 32 GiB}}\n"
)

// hostileDemand is a file of demand of three months.
func hostileDemand() string {
	var s strings.Builder
	s.WriteString("usage_hour,region,instance_type,norm_usage\n")
	for at := time.Date(2025, 5, 1, 0, 0, 0, 0, time.UTC); at.Month() < time.August; at = at.Add(time.Hour) {
		fmt.Fprintf(&s, "%s,north,m1.large,%d\n", at.Format(time.DateTime), 20+at.Hour())
	}
	return s.String()
}

// hostileAsker asks a server what it should refuse.
type hostileAsker struct {
	t      *testing.T
	client *http.Client
	asked  int
}

// send sends a request. Without an answer within half a minute the status is 599.
func (a *hostileAsker) send(method, target, media, body string) (status int, text, location string) {
	a.t.Helper()
	ctx, stop := context.WithTimeout(a.t.Context(), 30*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, method, "http://quartermaster"+target, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", media)
	}
	a.asked++
	resp, err := a.client.Do(req)
	if err != nil {
		return 599, err.Error(), ""
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 599, err.Error(), ""
	}
	return resp.StatusCode, string(answer), resp.Header.Get("Location")
}

// ask asks an operation, and waits for the answer of long work.
func (a *hostileAsker) ask(op *cli.Operation, q url.Values, sent string) (status int, text string) {
	a.t.Helper()
	method := http.MethodGet
	if op.Posted() {
		method = http.MethodPost
	}
	if len(op.Files) == 0 {
		sent = ""
	}
	status, text, at := a.send(method, cli.APIRoot+strings.Join(op.Words, "/")+"?"+q.Encode(), asJSON, sent)
	if status != http.StatusAccepted {
		return status, text
	}
	if status, text, _ = a.send(http.MethodGet, at+"/events", "", ""); status == http.StatusOK { // until it has ended
		status, text, _ = a.send(http.MethodGet, at+"/answer", "", "")
	}
	a.send(http.MethodDelete, at, "", "")
	return status, text
}

// TestAPIHostile asks every operation about the demo, with one parameter at a time that is wrong, in all forms of an
// answer in turn. No answer is a failure of the server. Schemathesis found that a plan of -583 months was one.
func TestAPIHostile(t *testing.T) {
	long.Only(t, "12,000 requests about the demo, which CI makes in a step of its own, without the race detector")
	dir := filepath.Join(t.TempDir(), "demo")
	does := func(words ...string) string {
		t.Helper()
		var out, errs strings.Builder
		if code := run(append(words, "--quiet", "--data-dir", dir), strings.NewReader(""), &out, &errs); code != 0 {
			t.Fatalf("%v: exit code %d: %s", words, code, errs.String())
		}
		return out.String()
	}
	does("demo", "--once")
	does("simulate", filepath.Join("..", "..", "deploy", "demo", "scenarios", "demand-growth.yaml"), "--runs", "2", "--freeze")
	if err := apptest.Plant(dir, "unsigned"); err != nil {
		t.Fatal(err)
	}
	does("archive", "run", "--all", "--key", filepath.Join(dir, "operator.pem")) // what "log prove" proves
	var replacements []string
	for name, of := range names {
		found := of.pattern.FindStringSubmatch(does(strings.Split(of.command, " ")...))
		if found == nil && name == "{INCIDENT}" {
			found = []string{"", "i-0123456789abcdef"} // serve records them; here it is a wrong name
		}
		if found == nil {
			t.Fatalf("the demo has no %s", name)
		}
		replacements = append(replacements, name, url.QueryEscape(found[1]))
	}
	named := strings.NewReplacer(replacements...)
	sent := sending(t, "a.json", small, "c.yaml", hostileContract, "s.yaml", hostileScenario, "d.csv", hostileDemand(), "p.csv", hostilePrices,
		"log-s.yaml", strings.NewReplacer("instance: a.json", "at: 2026-06-01, region: us-east-1", "region: r", "region: us-east-1").Replace(hostileScenario))
	a := &hostileAsker{t: t, client: apiOf(t, dir)}
	for _, op := range cli.Operations() {
		name := strings.Join(op.Words, " ")
		questions := demoQuestions[name]
		if questions == nil {
			q := url.Values{}
			for _, p := range op.Params {
				if p.Required {
					q.Set(p.Name, p.Example)
				}
			}
			questions = []string{q.Encode()}
		}
		params := []string{cli.OutputParam, cli.WidthParam}
		if op.Paged() {
			params = append(params, cli.LimitParam, "cursor")
		}
		for _, p := range op.Params {
			if !slices.Contains(params, p.Name) {
				params = append(params, p.Name)
			}
		}
		want := http.StatusOK
		if refused, ok := demoRefuses[name]; ok {
			want = refused
		}
		for _, text := range questions {
			text = named.Replace(text)
			// The demo has no incident and no recommendation.
			if status, answer := a.ask(&op, queryOf(t, text), sent); status != want && !strings.Contains(answer, "none exist yet") {
				t.Errorf("%s ?%s: %d %.500s", name, text, status, answer)
				continue
			}
			for _, p := range params {
				for i, v := range hostile {
					q := queryOf(t, text)
					q.Set(cli.OutputParam, cli.OutputForms()[i%len(cli.OutputForms())])
					q.Set(p, v)
					if status, answer := a.ask(&op, q, sent); status >= http.StatusInternalServerError {
						t.Errorf("%s ?%s with %s=%.50q: %d %.500s", name, text, p, v, status, answer)
					}
				}
			}
		}
		if text := together[name]; text != "" {
			if status, answer := a.ask(&op, queryOf(t, text), sent); status >= http.StatusInternalServerError {
				t.Errorf("%s ?%s: %d %.500s", name, text, status, answer)
			}
		}
	}
	ops := cli.Operations()
	simulate := &ops[slices.IndexFunc(ops, func(op cli.Operation) bool { return op.Noun == "simulate" })]
	for _, change := range unfit {
		scenario := "apiVersion: quartermaster/v1\nkind: Scenario\nname: s\nbase: {at: 2026-06-01, region: us-east-1}\nhorizon: 1 months\nseed: 1\nruns: 2\n" +
			"alternatives:\n  - {name: rent, buy: nothing}\n  - {name: changed, buy: nothing, changes: [" + change + "]}\n"
		status, answer := a.ask(simulate, url.Values{"file": {"s.yaml"}}, sending(t, "s.yaml", scenario))
		if status != http.StatusBadRequest || strings.Contains(answer, "s.yaml:") {
			t.Errorf("%s: %d %.500s", change, status, answer)
		}
	}
	t.Logf("%d requests", a.asked)
	if a.asked < 8000 {
		t.Errorf("only %d requests", a.asked)
	}
}

// field finds a field of a document in JSON or YAML, and its value.
var field = regexp.MustCompile(`"?([\w-]+)"?:[ \t]*("[^"]*"|\[[^\[\]{}]*\]|[^\s{}\[\]#,"&|][^{}\[\]#,\n]*)`)

// some returns every value in long tests, and else a quarter of them: another one for each n.
func some(values []string, n int) (out []string) {
	for i, v := range values {
		if long.Run() || (i+n)%4 == 0 {
			out = append(out, v)
		}
	}
	return out
}

// spoil yields a document with one field that is wrong. Of fields of one name it takes the first.
func spoil(document string, yield func(what, document string)) {
	seen := map[string]bool{}
	for _, at := range field.FindAllStringSubmatchIndex(document, -1) {
		name := document[at[2]:at[3]]
		line := document[strings.LastIndex(document[:at[0]], "\n")+1 : at[0]]
		if seen[name] || strings.Contains(line, "#") {
			continue
		}
		seen[name] = true
		for _, v := range some(hostileFields, len(seen)) {
			yield(fmt.Sprintf("%s: %.40s", name, v), document[:at[4]]+v+document[at[5]:])
		}
	}
}

// spoilCells does the same with the first two lines of a table.
func spoilCells(table string, yield func(what, document string)) {
	lines := strings.Split(table, "\n")
	for n := range 2 {
		cells := strings.Split(lines[n], ",")
		for i := range cells {
			for _, v := range some(slices.Concat(hostile, []string{"1e9", "1000000000000", "2261-12-31 00:00:00"}), i) {
				spoiled, changed := slices.Clone(lines), slices.Clone(cells)
				changed[i] = v
				spoiled[n] = strings.Join(changed, ",")
				yield(fmt.Sprintf("line %d, cell %d: %.40q", n+1, i+1, v), strings.Join(spoiled, "\n"))
			}
		}
	}
}

// TestAPIHostileDocuments sends documents with one field at a time that is wrong, and asks what commands would decide
// with one parameter at a time that is wrong. No answer is a failure of the server.
func TestAPIHostileDocuments(t *testing.T) {
	dir := demoEstate(t)
	if err := apptest.Plant(dir, "unsigned"); err != nil {
		t.Fatal(err)
	}
	private, err := keyfile.Load(filepath.Join(dir, "operator.pem"))
	if err != nil {
		t.Fatal(err)
	}
	a := &hostileAsker{t: t, client: apiOf(t, dir)}
	estate, err := os.ReadFile(filepath.Join("..", "..", "deploy", "demo", "estate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	holds := func(what string, status int, answer string) {
		t.Helper()
		if status >= http.StatusInternalServerError {
			t.Errorf("%s: %d %.500s", what, status, answer)
		}
	}

	for _, of := range []struct {
		operation, query, name, document string
		spoil                            func(string, func(what, document string))
	}{
		{"plan solve", "instance=a.json", "a.json", small, spoil},
		{"plan evaluate", "contract=c.yaml&instance=a.json", "c.yaml", hostileContract, spoil},
		{"simulate", "file=s.yaml", "s.yaml", hostileScenario, spoil},
		{"simulate check", "file=s.yaml", "s.yaml", hostileScenario, spoil},
		{"plan forecast", "demand=d.csv&weeks=1", "d.csv", hostileDemand(), spoilCells},
		{"plan backtest", "demand=d.csv&from=2025-06&to=2025-07&scenarios=1&months=1", "d.csv", hostileDemand(), spoilCells},
		{"plan backtest", "demand=d.csv&prices=p.csv&from=2025-06&to=2025-07&scenarios=1&months=1", "p.csv", hostilePrices, spoilCells},
	} {
		ops := cli.Operations()
		op := &ops[slices.IndexFunc(ops, func(op cli.Operation) bool { return strings.Join(op.Words, " ") == of.operation })]
		ask := func(document string) (int, string) {
			sent := []string{of.name, document}
			for name, text := range map[string]string{"a.json": small, "d.csv": hostileDemand()} {
				if name != of.name {
					sent = append(sent, name, text)
				}
			}
			return a.ask(op, queryOf(t, of.query), sending(t, sent...))
		}
		if status, answer := ask(of.document); status != http.StatusOK {
			t.Errorf("%s ?%s: %d %.500s", of.operation, of.query, status, answer)
		}
		of.spoil(of.document, func(what, document string) {
			status, answer := ask(document)
			holds(of.operation+" ?"+of.query+" with "+what, status, answer)
		})
	}

	propose := func(command string, parameters map[string]any, documents ...cli.Document) (int, string) {
		body, err := json.Marshal(map[string]any{
			"command": command, "parameters": parameters, "documents": documents, "public_key": []byte(private.Public().(ed25519.PublicKey)),
		})
		if err != nil {
			t.Fatal(err)
		}
		status, answer, _ := a.send(http.MethodPost, cli.DecisionRoot, asJSON, string(body))
		return status, answer
	}
	for what, document := range map[string]string{"an estate": string(estate), "a deployment": hostileDeployment} {
		if status, answer := propose("apply", nil, cli.Document{Name: "f.yaml", Text: document}); status != http.StatusOK {
			t.Errorf("apply %s: %d %.500s", what, status, answer)
		}
		spoil(document, func(field, document string) {
			status, answer := propose("apply", nil, cli.Document{Name: "f.yaml", Text: document})
			holds("apply "+what+" with "+field, status, answer)
		})
	}
	const declare = cli.DeploymentsRoot + "?dry_run=true"
	if status, answer, _ := a.send(http.MethodPut, declare, "application/yaml", hostileDeployment); status != http.StatusOK {
		t.Errorf("deployments: %d %.500s", status, answer)
	}
	spoil(hostileDeployment, func(field, document string) {
		status, answer, _ := a.send(http.MethodPut, declare, "application/yaml", document)
		holds("deployments with "+field, status, answer)
	})

	_, quarantined, _ := a.send(http.MethodGet, cli.APIRoot+"quarantine/list", "", "")
	record := names["{RECORD}"].pattern.FindStringSubmatch(quarantined)
	if record == nil {
		t.Fatalf("nothing is in quarantine: %.300s", quarantined)
	}
	valid := map[string]any{
		"account": "dash", "class": "hyperscaler", "cluster": "attic", "cluster/node": "attic/attic-0001", "grant": "x", "id": []string{record[1]}, "key_id": "x",
		"lost": true, "month": "2026-05", "name": "root", "principal": "user:corp/ann", "provider": "aws", "public_key": private.Public(), "reason": "r",
		"region": "us-east", "role": "viewer", "source": "x", "topic": "qm.telemetry", "until": "2029-01-01",
	}
	for _, op := range cli.Decisions() {
		if op.Documents {
			continue
		}
		command := strings.Join(op.Words, " ")
		ask := func(p, v string) (int, string) {
			parameters := map[string]any{}
			for _, p := range op.Params {
				if p.Required || p.Name == "lost" || p.Name == "id" && p.Type == "array" {
					parameters[p.Name] = valid[p.Name]
				}
			}
			parameters[p] = v
			return propose(command, parameters)
		}
		for n, p := range op.Params {
			for _, v := range some(hostile, n) {
				status, answer := ask(p.Name, v)
				holds(fmt.Sprintf("%s with %s=%.50q", command, p.Name, v), status, answer)
			}
		}
	}
	t.Logf("%d requests", a.asked)
	if a.asked < long.Count(2000, 8000) {
		t.Errorf("only %d requests", a.asked)
	}
}
