package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/domain"
)

var update = flag.Bool("update", false, "write the golden files anew")

const now domain.Instant = 1783339200 * domain.Second // 2026-07-06T12:00:00Z

// demo is the estate and the commitments of the demo, as two documents in one file.
func demo() ([]byte, error) {
	estate, err := os.ReadFile("../../deploy/demo/estate.yaml")
	if err != nil {
		return nil, err
	}
	commitments, err := os.ReadFile("../../deploy/demo/commitments.yaml")
	return slices.Concat(estate, []byte("---\n"), commitments), err
}

func load(name, text string) (*Estate, error) {
	return Load(name, strings.NewReader(text), Options{Now: now})
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		gl, wl := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
		for i := range min(len(gl), len(wl)) {
			if gl[i] != wl[i] {
				t.Fatalf("%s:%d: got\n%s\nwant\n%s\n(-update writes it anew)", path, i+1, gl[i], wl[i])
			}
		}
		t.Fatalf("%s: got %d lines, want %d", path, len(gl), len(wl))
	}
}

// show prints events, one per line.
func show(t *testing.T, e *Estate) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, env := range e.Envelopes {
		body, err := json.Marshal(env.Event)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %q workspace=%q cluster=%q time=%s %s\n", env.Event.Type(), env.Subject, env.Workspace, env.Cluster, env.Time, body)
	}
	for _, r := range e.References {
		fmt.Fprintf(&b, "refers to %s %q at %s in %s\n", r.Kind, r.ID, r.Where, r.Field)
	}
	return b.Bytes()
}

func TestDemo(t *testing.T) {
	data, err := demo()
	if err != nil {
		t.Fatal(err)
	}
	e, err := load("estate.yaml", string(data))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "demo.txt", show(t, e))

	// The example must contain every kind of entry.
	types, classes, policies := map[domain.Type]bool{}, map[domain.ProviderClass]bool{}, map[domain.PolicyKind]bool{}
	for i := range e.Envelopes {
		env := &e.Envelopes[i]
		if err := domain.Validate(env); err != nil {
			t.Error(err)
		}
		if _, err := env.Key(); err != nil {
			t.Error(err)
		}
		if env.Source != "" || env.Sequence != 0 || env.Signature != nil {
			t.Errorf("%s has a place in a stream: %+v", env.Subject, env)
		}
		types[env.Event.Type()] = true
		switch ev := env.Event.(type) {
		case *domain.ClusterRegistered:
			classes[ev.ProviderClass] = true
		case *domain.PolicySet:
			policies[ev.Kind] = true
		}
	}
	if len(types) != len(Kinds())-5 { // all except operators, legal holds and entries about the past: removals, outages and corrections
		t.Errorf("shows %d types of event: %v", len(types), types)
	}
	if len(classes) != 4 || len(policies) != 12 {
		t.Errorf("shows %d provider classes of 4 and %d kinds of policy of 12", len(classes), len(policies))
	}
	if len(e.References) != 0 {
		t.Errorf("refers to what it does not declare: %v", e.References)
	}
}

// The same declarations as JSON give the same events.
func TestJSONAgrees(t *testing.T) {
	data, err := demo()
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(data), "---\n") {
		l := &loader{name: "estate.yaml"}
		docs, err := l.read([]byte(part))
		if err != nil {
			t.Fatal(err)
		}
		want, err := load("estate.yaml", part)
		if err != nil {
			t.Fatal(err)
		}
		for _, indent := range []string{"", "\t"} {
			text := asJSON(docs[0], indent, "\n")
			for _, name := range []string{"estate.json", "stdin"} {
				got, err := load(name, text)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if !reflect.DeepEqual(got.Envelopes, want.Envelopes) {
					t.Errorf("%s with indent %q: the events differ", name, indent)
				}
			}
		}
	}
}

// asJSON writes a document with its keys in order.
func asJSON(n *node, indent, nl string) string {
	if indent == "" {
		nl = ""
	} else {
		nl += indent
	}
	var parts []string
	switch n.shape {
	case mapping:
		for i, k := range n.keys {
			name, _ := json.Marshal(k.text)
			parts = append(parts, nl+string(name)+": "+asJSON(n.values[i], indent, nl))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case list:
		for _, v := range n.values {
			parts = append(parts, nl+asJSON(v, indent, nl))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	b, _ := json.Marshal(n.plain())
	return string(b)
}

const head = "apiVersion: quartermaster/v1\nkind: Estate\nworkspace: platform\n"

func TestReferences(t *testing.T) {
	e, err := load("r.yaml", head+`
regions:
  - {id: fra, country: DE, round_trips: {sto: 22ms}}
clusters:
  - {id: a, provider: p, provider_class: owned, region: iad, workspace: acme}
policies:
  - {id: p, kind: placement, clusters: [a, b], effective_from: 2026-01-01, selector: {workspace: beta}}
`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range e.References {
		got = append(got, fmt.Sprintf("%s %s %s %s", r.Kind, r.ID, r.Where, r.Field))
	}
	want := []string{
		"workspace platform r.yaml:3:12 workspace",
		"region sto r.yaml:6:42 regions[0].round_trips.sto",
		"workspace acme r.yaml:8:73 clusters[0].workspace",
		"region iad r.yaml:8:57 clusters[0].region",
		"cluster b r.yaml:10:44 policies[0].clusters",
		"workspace beta r.yaml:10:98 policies[0].selector.workspace",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A selector selects by region, country and environment; EU means its member states. References to
// entries that the file does not declare are for the caller to check.
func TestPlacesOfSelectors(t *testing.T) {
	e, err := load("p.yaml", head+`
effective_from: 2026-01-01
regions:
  - {id: fra, country: DE}
clusters:
  - {id: a, provider: p, provider_class: owned, region: fra}
policies:
  - {id: p, kind: apart, scope: node, selector: {environment: production, countries: [FR, EU], regions: [fra, iad]},
     others: [{environment: research, countries: [DE, UK]}]}
  - {id: r, kind: residency, countries: [CH, EU]}
deployments:
  - {id: d, cluster: a, class: serving, environment: production, countries: [EU], replicas: 1, need: {gpus: 1}}
`)
	if err != nil {
		t.Fatal(err)
	}
	states := strings.Fields("AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK")
	for _, env := range e.Envelopes {
		switch ev := env.Event.(type) {
		case *domain.PolicySet:
			if ev.Policy == "r" {
				if want := slices.Insert(slices.Clone(states), 3, "CH"); !slices.Equal(ev.Countries, want) {
					t.Errorf("residency in %v, want %v", ev.Countries, want)
				}
				continue
			}
			want := domain.Selector{Environment: "production", Countries: states, Regions: []string{"fra", "iad"}}
			if !reflect.DeepEqual(ev.Selector, want) || !reflect.DeepEqual(ev.Others, []domain.Selector{{Environment: "research", Countries: []string{"DE", "UK"}}}) {
				t.Errorf("selectors %+v and %+v", ev.Selector, ev.Others)
			}
		case *domain.DeploymentChanged:
			if !slices.Equal(ev.Countries, states) {
				t.Errorf("deployment in %v", ev.Countries)
			}
		}
	}
	var got []string
	for _, r := range e.References {
		got = append(got, fmt.Sprintf("%s %s %s", r.Kind, r.ID, r.Field))
	}
	want := []string{
		"workspace platform workspace", "region iad policies[0].selector.regions[1]", "country FR policies[0].selector.countries[0]",
		"environment research policies[0].others[0].environment", "country UK policies[0].others[0].countries[1]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	_, err = load("q.yaml", head+"regions:\n  - {id: fra, country: EU}\n")
	if want := "q.yaml:5:24: regions[0].country: EU is a union of countries; name the country of the region"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A removal takes effect at its own effective_from, else now; the file's effective_from does not
// apply to it. A maintenance window is announced now.
func TestRemovalsAndMaintenance(t *testing.T) {
	const top = head + "effective_from: 2026-01-01\n"
	e, err := load("m.yaml", top+`
removed_deployments:
  - {id: old, workspace: search, cluster: c, reason: replaced}
  - {id: older, workspace: search, cluster: c, effective_from: 2026-02-01}
maintenance:
  - {id: m1, cluster: c, nodes: [n2, n1], window: {from: 2026-07-01, to: 2026-07-02}, reason: new firmware}
  - {id: m2, cluster: c, window: {from: 2026-08-01, to: 2026-08-02}, cancelled: true}
`)
	if err != nil {
		t.Fatal(err)
	}
	window := func(m, d int) domain.Instant {
		return domain.InstantOf(time.Date(2026, time.Month(m), d, 0, 0, 0, 0, time.UTC))
	}
	want := []domain.Envelope{
		{Subject: "old", Workspace: "search", Cluster: "c", Time: now, Event: &domain.DeploymentRemoved{Deployment: "old", Reason: "replaced"}},
		{Subject: "older", Workspace: "search", Cluster: "c", Time: window(2, 1), Event: &domain.DeploymentRemoved{Deployment: "older"}},
		{Subject: "m1", Workspace: "platform", Cluster: "c", Time: now, Event: &domain.MaintenanceScheduled{Maintenance: "m1", Nodes: []string{"n2", "n1"}, Window: domain.Interval{From: window(7, 1), To: window(7, 2)}, Reason: "new firmware"}},
		{Subject: "m2", Workspace: "platform", Cluster: "c", Time: now, Event: &domain.MaintenanceScheduled{Maintenance: "m2", Window: domain.Interval{From: window(8, 1), To: window(8, 2)}, Cancelled: true}},
	}
	if !reflect.DeepEqual(e.Envelopes, want) {
		t.Errorf("got %+v, want %+v", e.Envelopes, want)
	}
	var got []string
	for _, r := range e.References {
		got = append(got, r.Kind+" "+r.ID)
	}
	if want := []string{"workspace platform", "workspace search", "cluster c", "deployment c/old", "deployment c/older"}; !slices.Equal(got, want) {
		t.Errorf("references %q, want %q", got, want)
	}
	for _, x := range []struct{ text, want string }{
		{"deployments: [{id: d, cluster: c, class: batch, replicas: 1, need: {gpus: 1}}]\nremoved_deployments:\n  - {id: d, cluster: c}\n",
			"x.yaml:7:10: removed_deployments[0].id: is declared on line 5; a deployment cannot be declared and removed"},
		{"removed_deployments:\n  - {id: d, cluster: c, effective_from: 2099-01-01}\n",
			"x.yaml:6:41: removed_deployments[0].effective_from: is in the future; removed_deployments can only be declared once they exist"},
		{"maintenance:\n  - {id: m, cluster: c, window: {from: 2026-07-02, to: 2026-07-01}}\n",
			"x.yaml:6:56: maintenance[0].window.to: 2026-07-01T00:00:00Z is not after from, 2026-07-02T00:00:00Z"},
	} {
		if _, err := load("x.yaml", top+x.text); err == nil || err.Error() != x.want {
			t.Errorf("got %v, want %s", err, x.want)
		}
	}
}

// An outage concerns a cluster, or a region, whose clusters the log knows.
func TestOutages(t *testing.T) {
	e, err := load("o.yaml", head+`
outages:
  - {id: a, cluster: c, nodes: [n2, n1], window: {from: 2026-05-01, to: 2026-05-02}, reason: power}
  - {id: b, region: eu-1, window: {from: 2026-05-01, to: 2026-05-02}, reason: the line was cut, cancelled: true}
`)
	if err != nil {
		t.Fatal(err)
	}
	day := domain.InstantOf(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))
	span := domain.Interval{From: day, To: day + domain.Day}
	want := []domain.Envelope{
		{Subject: "a", Workspace: "platform", Cluster: "c", Time: now, Event: &domain.OutageDeclared{Outage: "a", Nodes: []string{"n2", "n1"}, Window: span, Reason: "power"}},
		{Subject: "b", Workspace: "platform", Time: now, Event: &domain.OutageDeclared{Outage: "b", Window: span, Reason: "the line was cut", Cancelled: true}},
	}
	if !reflect.DeepEqual(e.Envelopes, want) {
		t.Errorf("got %+v, want %+v", e.Envelopes, want)
	}
	if e.Entries[0].Region != "" || e.Entries[1].Region != "eu-1" {
		t.Errorf("entries %+v", e.Entries)
	}
	var got []string
	for _, r := range e.References {
		got = append(got, r.Kind+" "+r.ID)
	}
	if want := []string{"workspace platform", "cluster c", "region eu-1"}; !slices.Equal(got, want) {
		t.Errorf("references %q, want %q", got, want)
	}
}

// A correction belongs to the workspace that gets the time, not to the workspace of the file.
func TestCorrections(t *testing.T) {
	const gpu = "GPU-c78e5d93-ffa1-819e-991d-5e38d988402e"
	e, err := load("c.yaml", head+`
usage_corrections:
  - {id: a, cluster: c, node: n, gpu: `+gpu+`, replica: 2, interval: {from: 2026-05-01, to: 2026-05-02}, holder: {workspace: search, deployment: d, unit: d-0}, reason: r}
  - {id: b, cluster: c, node: n, gpu: `+gpu+`, interval: {from: 2026-05-01, to: 2026-05-02}, reason: r, cancelled: true}
`)
	if err != nil {
		t.Fatal(err)
	}
	id, err := domain.ParseGPUID(gpu)
	if err != nil {
		t.Fatal(err)
	}
	day := domain.InstantOf(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))
	span := domain.Interval{From: day, To: day + domain.Day}
	want := []domain.Envelope{
		{Subject: "a", Workspace: "search", Cluster: "c", Time: now, Event: &domain.UsageCorrected{
			Correction: "a", Node: "n", GPU: id, Replica: 2, Interval: span, Workspace: "search", Deployment: "d", Unit: "d-0", Reason: "r"}},
		{Subject: "b", Cluster: "c", Time: now, Event: &domain.UsageCorrected{Correction: "b", Node: "n", GPU: id, Interval: span, Reason: "r", Cancelled: true}},
	}
	if !reflect.DeepEqual(e.Envelopes, want) {
		t.Errorf("got %+v, want %+v", e.Envelopes, want)
	}
	if got := e.Entries[0].Fault("holder.deployment", "is %s", "odd").Error(); got != "c.yaml:6:179: usage_corrections[0].holder.deployment: is odd" {
		t.Error(got)
	}
}

func TestValues(t *testing.T) {
	e, err := load("v.yaml", head+`
effective_from: 2026-01-01T01:00:00+01:00
budgets:
  - {id: a, period: 2026-02, amount: {amount: 12.5000000000000001, currency: USD}, basis: cash}
  - {id: b, period: "2026", amount: "-0.00 EUR", basis: cash}
commitments:
  - {id: 007, provider: p, billing_account: 0123, kind: reserved, sku: s, gpu_model: g, gpus_per_unit: 8, units: 1,
     term: {from: 2024-02-29, length: 1 year}, hourly: 1 USD}
deployments:
  - {id: d, cluster: NO, class: batch, replicas: 0, latency: 1.5 s, need: {cpu: 0.25, memory: 0.5 GiB}}
---
# a second document, with its own defaults
apiVersion: quartermaster/v1
kind: Estate
workspace: other
clusters:
quotas: [{id: q, resource: r, limit: 1.10, effective_from: 2026-01-01T00:00:00.000000001Z}]
`)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "values.txt", show(t, e))
}

func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	var b strings.Builder
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = load(filepath.Base(path), string(data))
		var es Errors
		if !errors.As(err, &es) {
			t.Errorf("%s: got %v, want Errors", path, err)
		}
		fmt.Fprintf(&b, "%v\n\n", err)
	}
	golden(t, "errors.txt", []byte(b.String()))
}

func TestHostile(t *testing.T) {
	bomb := "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
	for name, c := range map[string]struct{ file, text, want string }{
		"empty":                   {"f.yaml", "", "f.yaml:1:1: declares nothing"},
		"comment":                 {"f.yaml", "# nothing\n---\n", "f.yaml:1:1: declares nothing"},
		"empty json":              {"f.json", " ", "f.json:1:1: declares nothing"},
		"list":                    {"f.yaml", "- a\n", "f.yaml:1:1: is a list, want a mapping"},
		"word":                    {"f.yaml", "hello", `f.yaml:1:1: is "hello", want a mapping`},
		"bomb":                    {"f.yaml", bomb, "f.yaml:1:4: anchors, aliases and merges are not read"},
		"merge":                   {"f.yaml", "a:\n  <<: {b: 1}\n", "f.yaml:2:3: anchors, aliases and merges are not read"},
		"tag":                     {"f.yaml", "a: !!binary x\n", "f.yaml:1:4: tags are not read"},
		"complex key":             {"f.yaml", "? a\n: b\n", "f.yaml:1:1: complex keys are not read"},
		"list as key":             {"f.yaml", "[a]: b\n", "f.yaml:1:4: is not YAML"},
		"deep flow":               {"f.yaml", strings.Repeat("[", 10000), "f.yaml:1:33: nests deeper than 32"},
		"deep flow mapping":       {"f.yaml", strings.Repeat("{a: ", 10000), "f.yaml:1:129: nests deeper than 32"},
		"deep sequence":           {"f.yaml", strings.Repeat("- ", 10000), "f.yaml:1:65: nests deeper than 32"},
		"deep lines":              {"f.yaml", staircase(2000), "f.yaml:33:33: nests deeper than 32"},
		"deep colons":             {"f.yaml", strings.Repeat("a: ", 10000), ""},
		"deep json":               {"f.json", strings.Repeat("[", 9000), "f.json:1:33: nests deeper than 32"},
		"deep json object":        {"f.json", strings.Repeat(`{"a":`, 100000), "f.json:1:161: nests deeper than 32"},
		"cut json":                {"f.json", `{"a": [1, {"b"`, "f.json:1:15: is not JSON"},
		"json garbage":            {"f.json", "{\n  \"a\": nope}", "f.json:2:8: is not JSON"},
		"json twice":              {"f.json", "{\"kind\": \"Estate\",\n \"kind\": \"Estate\"}", "f.json:2:2: kind: stands on line 1 already"},
		"too large":               {"f.yaml", strings.Repeat("x", maxBytes+1), "f.yaml:1:1: is larger than 16 MiB"},
		"too many":                {"f.yaml", strings.Repeat("\n", maxMarks+1), "at most 1000000 are allowed"},
		"too many keys":           {"f.yaml", strings.Repeat("k: v\n", 3000), "f.yaml:2001:1: is one key too many"},
		"too many in a flow":      {"f.yaml", "{" + strings.Repeat("k: v, ", 3000) + "}", "f.yaml:1:12002: is one key too many"},
		"too many in json":        {"f.json", "{" + strings.Repeat(`"k":1,`, 3000) + `"k":1}`, "f.json:1:12002: is one key too many"},
		"too many documents":      {"f.yaml", strings.Repeat("---\na: b\n", 3000), "f.yaml:2001:1: is one document too many"},
		"too many json":           {"f.json", strings.Repeat("{}\n", 3000), "f.json:1001:1: is one document too many"},
		"NUL":                     {"f.yaml", "a: b\nc: \x00d\n", "f.yaml:2:4: byte 0x00 is not text"},
		"Latin-1":                 {"f.yaml", "name: M\xfcnchen\n", "f.yaml:1:8: byte 0xfc is not text"},
		"UTF-16":                  {"f.yaml", "\xff\xfea\x00", "f.yaml:1:1: byte 0xff is not text"},
		"bad YAML":                {"f.yaml", "a: b\n  c: [\n", "f.yaml:"},
		"huge exponent":           {"f.yaml", head + "quotas: [{id: q, resource: r, limit: 1e999999999, effective_from: 2026-01-01}]", `quotas[0].limit: "1e999999999" is not understood`},
		"huge number":             {"f.json", `{"apiVersion":"quartermaster/v1","kind":"Estate","quotas":[{"id":"q","resource":"r","limit":` + strings.Repeat("9", 100000) + `}]}`, "quotas[0].limit:"},
		"hex":                     {"f.yaml", head + "deployments: [{id: d, cluster: c, class: batch, replicas: 0x10}]", `replicas: is "0x10", want a whole number`},
		"more than 32 bits":       {"f.yaml", head + "deployments: [{id: d, cluster: c, class: batch, replicas: 4294967296}]", "replicas: is 4294967296, at most 4294967295 is allowed"},
		"year 9999":               {"f.yaml", head + "budgets: [{id: b, period: 9999, amount: 1 EUR, basis: cash}]", "budgets[0].period: is 9999, at most 2261 is allowed"},
		"term beyond the end":     {"f.yaml", head + "commitments: [{id: c, provider: p, billing_account: b, kind: reserved, sku: s, gpu_model: g, gpus_per_unit: 1, units: 1, hourly: 1 USD, term: {from: 2200-01-01, length: 9999 years}}]", "term.length: ends in 12199, after 2261"},
		"money without end":       {"f.yaml", head + "budgets: [{id: b, period: 2026, amount: 1" + strings.Repeat("0", 1000) + " EUR, basis: cash}]", "budgets[0].amount:"},
		"byte order mark":         {"f.yaml", "\ufeff" + head + "clusters: 5\n", "f.yaml:4:11: clusters: is 5, want"},
		"carriage returns":        {"f.yaml", strings.ReplaceAll(head, "\n", "\r\n") + "clusters: 5\r\n", "f.yaml:4:11: clusters: is 5, want"},
		"cluster of next century": {"f.yaml", head + "clusters: [{id: c, provider: p, provider_class: owned, region: r, effective_from: 2099-01-01}]", "clusters[0].effective_from: is in the future"},
		"first instant of all":    {"f.yaml", head + "effective_from: 1970-01-01\n", "effective_from: 1970-01-01T00:00:00Z stands for no time"},
	} {
		e, err := load(c.file, c.text)
		if err == nil {
			t.Errorf("%s: was read as %d events", name, len(e.Envelopes))
			continue
		}
		var es Errors
		if !errors.As(err, &es) || !strings.Contains(err.Error(), c.want) {
			s := err.Error()
			t.Errorf("%s: got  %.300s\nwant %s", name, s, c.want)
		}
	}
}

func staircase(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestReadFailure(t *testing.T) {
	_, err := Load("f.yaml", broken{}, Options{Now: now})
	if err == nil || err.Error() != "read f.yaml: the disk is gone" {
		t.Errorf("got %v", err)
	}
	if _, err := Load("f.yaml", strings.NewReader(head), Options{}); err == nil {
		t.Error("loads without a time")
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

// Load returns for any input, and what it accepts is valid and gives the same result again.
func FuzzLoad(f *testing.F) {
	data, err := demo()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, false)
	f.Add([]byte(head+"clusters: [{id: a, provider: p, provider_class: owned, region: r}]"), false)
	f.Add([]byte(`{"apiVersion":"quartermaster/v1","kind":"Estate","workspaces":[{"id":"a"}]}`), true)
	f.Add([]byte(head+"outages: [{id: a, region: r, window: {from: 2026-05-01, to: 2026-05-02}, reason: r}, {id: b, cluster: c, nodes: [n], window: {from: 2026-05-01, to: 2026-05-02}, reason: r, cancelled: true}]"), false)
	f.Add([]byte(head+"usage_corrections: [{id: a, cluster: c, node: n, gpu: GPU-c78e5d93-ffa1-819e-991d-5e38d988402e, replica: 1, interval: {from: 2026-05-01, to: 2026-05-02}, holder: {workspace: w, deployment: d}, reason: r}]"), false)
	bad, _ := filepath.Glob("testdata/bad/*")
	for _, path := range bad {
		if data, err := os.ReadFile(path); err == nil {
			f.Add(data, strings.HasSuffix(path, "json"))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, asJSON bool) {
		name := "f.yaml"
		if asJSON {
			name = "f.json"
		}
		e, err := load(name, string(data))
		if err != nil {
			var es Errors
			if !errors.As(err, &es) || len(es) == 0 {
				t.Fatalf("%v is no fault of the file", err)
			}
			for _, e := range es {
				if e.Where.Line < 1 || e.Where.Column < 1 || e.Problem == "" || strings.Contains(e.Problem, "does not fit the schema at") {
					t.Errorf("fault %+v", e)
				}
			}
			return
		}
		for i := range e.Envelopes {
			env := e.Envelopes[i]
			if r := e.Entries[i].Region; r != "" {
				env.Cluster = r
			}
			if err := domain.Validate(&env); err != nil {
				t.Fatal(err)
			}
		}
		again, err := load(name, string(data))
		if err != nil || !reflect.DeepEqual(e, again) {
			t.Fatalf("read twice: %v", err)
		}
	})
}
