package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/long"
	figures "quartermaster/projections/advice"
	"quartermaster/projections/storetest"
)

// noon is a tick of these tests.
var noon = apptest.May + 10*domain.Day + 12*domain.Hour

// estate declares a cluster of each name, all of one provider and region, and further lists.
func estate(t *testing.T, clusters []string, more string) (dir string) {
	t.Helper()
	a := &app.App{Dir: t.TempDir()}
	_, key := apptest.FirstOperator(t, a)
	lists := "regions:\n  - {id: us-east-1, country: US}\nclusters:\n"
	for _, c := range clusters {
		lists += "  - {id: " + c + ", provider: aws, provider_class: hyperscaler, region: us-east-1, billing_account: acct}\n"
	}
	if !strings.Contains(more, "workspaces:") {
		more += "workspaces:\n  - {id: research}\n"
	}
	apptest.Apply(t, a, key, lists+more)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return a.Dir
}

// following opens a home as serve does, until stop is called.
func following(t *testing.T, dir string) (h *app.Conn, stop func()) {
	t.Helper()
	h, _ = apptest.Open(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Runner.Follow(ctx) }()
	return h, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		apptest.Close(t, h)
	}
}

func evaluated(t *testing.T, h *app.Conn, tick domain.Instant) string {
	t.Helper()
	a, err := newAdviser(h, nil, silent)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := a.evaluate(t.Context(), tick.Time())
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

func incidentsOf(t *testing.T, h *app.Conn) []figures.IncidentEntry {
	t.Helper()
	ans, err := h.Sharing()(app.Everyone).For(app.Everyone).Alerts(t.Context(), "", app.AlertsQuery{All: true, Since: 1})
	if err != nil {
		t.Fatal(err)
	}
	return ans.Incidents
}

// replayed evaluates what is in the log again.
func replayed(t *testing.T, dir string) *app.AdviceReplay {
	t.Helper()
	a := &app.App{Dir: dir}
	ans, err := a.For(app.Everyone).ReplayAdvice(t.Context(), domain.Interval{From: apptest.May, To: apptest.May + 60*domain.Day}, nil)
	if err := errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	return ans
}

// The loss of a provider's region is one incident that names its machines, and a receiver hears of it once, whatever
// the number of faults.
func TestStormIsOneIncident(t *testing.T) {
	const clusters, nodes, gpus = 5, 250, 8 // 10,000 GPUs
	var names []string
	declared := "deployments:\n"
	for c := range clusters {
		names = append(names, fmt.Sprint("c", c))
		declared += fmt.Sprintf("  - {id: train, cluster: c%d, workspace: research, class: training, replicas: 1, need: {gpus: 2000}}\n", c)
	}
	dir := estate(t, names, declared)
	h, stop := following(t, dir)
	url, got := receiver(t, func(told) int { return http.StatusOK })
	reactions := startReactions(t, h.Log, fast, hook(t, config.Webhook{Name: "w", URL: url}).reaction(h))

	born := noon - 30*domain.Day
	var before, storm []domain.Envelope
	hour := domain.Interval{From: noon - 2*domain.Hour, To: noon - domain.Hour}
	for _, c := range names {
		for n := range nodes {
			node := fmt.Sprintf("%s-n%03d", c, n)
			before = append(before, storetest.Node(c, node, "H100 80GB", gpus, born))
			var seen []storetest.Seen
			for g := range gpus {
				id := storetest.GPU(c, node, g)
				seen = append(seen, storetest.Seen{ID: id, Activity: 900, Workspace: "research", Deployment: "train", Unit: "u"})
				at := noon - 4*60*domain.Second + domain.Instant(len(storm))*5*domain.Second/1000
				storm = append(storm, domain.Envelope{Cluster: c, Time: at, Event: &domain.GPUFaultObserved{
					Node: node, Kind: domain.FaultXID, Code: 79, Class: "hardware", Fatal: true, GPU: id,
				}})
			}
			before = append(before, domain.Envelope{Source: "node-reporter/" + c + "/" + node, Cluster: c, Time: hour.To,
				Event: storetest.Sample(node, hour, seen...)})
		}
	}
	if len(storm) != 10_000 {
		t.Fatalf("%d faults", len(storm))
	}
	appendAll(t, h.Log, before)
	evaluated(t, h, noon-app.Tick)
	for _, x := range incidentsOf(t, h) {
		t.Errorf("before the storm: %s %s: %s", x.Case.Rule, x.Case.Subject, x.Case.Summary)
	}

	appendAll(t, h.Log, storm)
	start := time.Now()
	outcome := evaluated(t, h, noon)
	took := time.Since(start)
	var open []figures.IncidentEntry
	for _, x := range incidentsOf(t, h) {
		if x.Opened == noon {
			open = append(open, x)
		}
	}
	if len(open) != 1 {
		for _, x := range open {
			t.Logf("%s %s: %s", x.Case.Rule, x.Case.Subject, x.Case.Summary)
		}
		t.Fatalf("%d incidents were opened; %s", len(open), outcome)
	}
	x := &open[0]
	if want := (advice.Subject{Provider: "aws", Region: "us-east-1"}); x.Case.Subject != want || x.Case.Family != advice.FamilyFailure || x.Case.Parts < clusters*nodes {
		t.Errorf("it is about %s, with %d parts: %s", x.Case.Subject, x.Case.Parts, x.Case.Summary)
	}
	evaluated(t, h, noon+app.Tick) // nothing new
	events := 0
	for _, x := range incidentsOf(t, h) {
		events += len(x.Events)
	}
	until(t, func() bool { return handled(reactions, "webhook.w", "handled") >= events })
	first := <-got
	if more := drain(got); len(more) > 2 || first.Type != "quartermaster.IncidentOpened.v1" {
		t.Errorf("%d deliveries, the first of %s", 1+len(more), first.Type)
	}
	t.Logf("%d faults: %s in %s, %d parts", len(storm), outcome, took, x.Case.Parts)
	reactions.stop()
	stop()
	if r := replayed(t, dir); !r.Equal || r.Events == 0 {
		t.Errorf("%+v", r)
	}
}

// drain takes what came so far.
func drain(got <-chan told) (all []told) {
	for {
		select {
		case e := <-got:
			all = append(all, e)
		default:
			return all
		}
	}
}

// appendAll appends events as their own sources would, in few batches.
func appendAll(t *testing.T, log *kafka.Log, envs []domain.Envelope) {
	t.Helper()
	next := map[string]uint64{}
	life := uint64(time.Now().UnixNano())
	var records []domain.Record
	for i := range envs {
		env := &envs[i]
		if env.Source == "" {
			env.Source = "storm/" + env.Cluster
		}
		topic := domain.TopicOf(env.Event.Type())
		stream := fmt.Sprintf("%s %s %s", env.Source, topic, env.Cluster)
		next[stream]++
		env.Incarnation, env.Sequence = life, next[stream]
		rec, err := apptest.EncodeThen(env)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, rec)
	}
	for len(records) > 0 {
		n := min(len(records), 1000)
		if err := log.Append(t.Context(), records[:n]); err != nil {
			t.Fatal(err)
		}
		records = records[n:]
	}
}

// An evaluation that is interrupted anywhere and done again leaves the incidents of one that was not: none is lost, and
// none is there twice.
func TestInterruptedEvaluations(t *testing.T) {
	const deployments = 40
	// Each is of a workspace of its own, so that each is an incident, in several partitions.
	list, owners := "deployments:\n", ""
	for i := range deployments {
		owners += fmt.Sprintf("  - {id: w%02d}\n", i)
		list += fmt.Sprintf("  - {id: d%02d, cluster: lab, workspace: w%02d, class: serving, replicas: 1, need: {gpus: 1}}\n", i, i)
	}
	prepare := func(dir string) {
		h, stop := following(t, dir)
		hour := domain.Interval{From: noon - domain.Hour, To: noon}
		appendAll(t, h.Log, []domain.Envelope{
			storetest.Node("lab", "n", "H100 80GB", 1, noon-30*domain.Day),
			{Source: "node-reporter/lab/n", Cluster: "lab", Time: noon, Event: storetest.Sample("n", hour, storetest.Seen{
				ID: storetest.GPU("lab", "n", 0), Activity: 900, Workspace: "research", Deployment: "d00", Unit: "u",
			})},
		})
		stop()
	}
	dir := estate(t, []string{"lab"}, list+"workspaces:\n  - {id: research}\n"+owners)
	prepare(dir)
	known := func(dir string) string {
		h, stop := following(t, dir)
		defer stop()
		all := incidentsOf(t, h)
		for i := range all {
			all[i].Position = ""
			for k := range all[i].Events {
				all[i].Events[k].Position = ""
			}
		}
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	want, took := "", time.Duration(math.MaxInt64) // of the fastest of three: a disk may stall
	for range 3 {
		calm := t.TempDir()
		if err := os.CopyFS(calm, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		h, stop := following(t, calm)
		start := time.Now()
		evaluated(t, h, noon)
		took = min(took, time.Since(start))
		stop()
		want = known(calm)
	}
	if n := strings.Count(want, `"case_position"`); n < deployments/2 {
		t.Fatalf("%d incidents: %s", n, want)
	}

	random := rand.New(rand.NewPCG(18, 2))
	kills, interrupted := long.Count(20, 200), 0
	for k := range kills {
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		later := k%4 == 3 // the tick is over when the evaluation comes back
		tick := noon
		for try := range 2 {
			h, stop := following(t, copied)
			a, err := newAdviser(h, nil, silent)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if try == 0 {
				timer := time.AfterFunc(time.Duration(random.Int64N(int64(took))), cancel)
				defer timer.Stop()
			}
			if _, err := a.evaluate(ctx, tick.Time()); err != nil {
				interrupted++
				if try == 1 {
					t.Fatal(err)
				}
			}
			cancel()
			stop()
			if later {
				tick += app.Tick
			}
		}
		if later {
			got := known(copied)
			if n := strings.Count(got, `"case_position"`); n != strings.Count(want, `"case_position"`) {
				t.Fatalf("interruption %d: %d incidents: %s", k, n, got)
			}
		} else if got := known(copied); got != want {
			t.Fatalf("interruption %d: got\n%s\nwant\n%s", k, got, want)
		}
		if k%2 == 0 {
			continue
		}
		if r := replayed(t, copied); !r.Equal || r.Events == 0 {
			t.Fatalf("interruption %d: %+v", k, r)
		}
	}
	t.Logf("%d of %d evaluations were interrupted; one takes %s", interrupted, kills, took)
	if interrupted < kills/4 {
		t.Errorf("%d of %d evaluations were interrupted, so that little was put to the test", interrupted, kills)
	}
}

// An Alertmanager hears of open incidents at each tick, of their end, and of none that is silenced, of another workspace or
// too mild. What it answers, or that it does not, stops nothing.
func TestAlertmanager(t *testing.T) {
	var bodies [][]managedAlert
	var token atomic.Value
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token.Store(r.Header.Get("Authorization"))
		body, _ := io.ReadAll(r.Body)
		var alerts []managedAlert
		if err := json.Unmarshal(body, &alerts); err != nil || r.URL.Path != "/base/api/v2/alerts" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		bodies = append(bodies, alerts)
		w.WriteHeader(status)
		_, _ = w.Write([]byte("lies"))
	}))
	defer srv.Close()
	managers, err := newAlertmanagers([]config.Alertmanager{{
		Name: "main", URL: srv.URL + "/base/", Workspaces: []string{"research"}, Severity: "warning", TokenFile: secretFile(t, "t0ken"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	entry := func(id, workspace string, severity domain.Severity, edit func(*figures.IncidentEntry)) figures.IncidentEntry {
		x := figures.IncidentEntry{Workspace: workspace, Incident: advice.Incident{ID: id, State: advice.Open, Opened: noon - domain.Hour, Case: advice.Case{
			Rule: advice.Failures, Severity: severity, Summary: "it burns", Subject: advice.Subject{Cluster: "c"},
		}}}
		if edit != nil {
			edit(&x)
		}
		return x
	}
	all := []figures.IncidentEntry{
		entry("open", "research", domain.SeverityCritical, nil),
		entry("mild", "research", domain.SeverityInfo, nil),
		entry("other", "platform", domain.SeverityCritical, nil),
		entry("quiet", "research", domain.SeverityCritical, func(x *figures.IncidentEntry) { x.Silence = &figures.Silence{} }),
		entry("over", "research", domain.SeverityWarning, func(x *figures.IncidentEntry) { x.State, x.Resolved = advice.Resolved, noon-app.Tick }),
		entry("past", "research", domain.SeverityWarning, func(x *figures.IncidentEntry) { x.State, x.Resolved = advice.Resolved, noon-domain.Day }),
	}
	if err := managers[0].tell(t.Context(), all, noon); err != nil {
		t.Fatal(err)
	}
	if len(bodies) != 1 || len(bodies[0]) != 2 || token.Load() != "Bearer t0ken" {
		t.Fatalf("%+v with %v", bodies, token.Load())
	}
	open, over := bodies[0][0], bodies[0][1]
	if open.Labels["alertname"] != "failures" || open.Labels["severity"] != "critical" || open.Labels["workspace"] != "research" ||
		open.Labels["incident"] != "open" || open.Labels["cluster"] != "c" || len(open.Labels) != 5 || open.Annotations["summary"] != "it burns" ||
		open.StartsAt != noon-domain.Hour || open.EndsAt != noon+firingFor || over.EndsAt != noon-app.Tick {
		t.Errorf("%+v\n%+v", open, over)
	}
	for code, says := range map[int]string{http.StatusFound: "redirects are not followed", http.StatusBadRequest: "400", http.StatusBadGateway: "502"} {
		status = code
		if err := managers[0].tell(t.Context(), all, noon); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// Serve evaluates the rules of an embedded log as soon as it has caught up: what is in the log is an incident within a
// tick and 5 s. It tells the receivers of it that it was given, as in production.
func TestServeEvaluates(t *testing.T) {
	dir := estate(t, []string{"lab"}, "")
	h, stop := following(t, dir)
	appendAll(t, h.Log, []domain.Envelope{storetest.Node("lab", "n", "H100 80GB", 1, noon)})
	stop()
	url, got := receiver(t, func(told) int { return http.StatusOK })
	managed := make(chan []managedAlert, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var alerts []managedAlert
		if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil {
			t.Error(err)
		}
		managed <- alerts
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	logged := &apptest.SyncBuffer{}
	d := New(&app.App{Dir: dir}, logged, false)
	d.Advice, d.Receivers = true, config.Receivers{
		Webhooks: []config.Webhook{{Name: "w", URL: url}}, Alertmanagers: []config.Alertmanager{{Name: "m", URL: srv.URL}},
	}
	start := time.Now()
	go func() { done <- d.Serve(ctx, "127.0.0.1:0", config.Gateway{}, config.API{}) }()
	until(t, func() bool { return strings.Contains(logged.String(), "1 changes of incidents") || len(done) > 0 })
	took := time.Since(start)
	if e := <-got; e.Type != "quartermaster.IncidentOpened.v1" {
		t.Errorf("the webhook hears of %s", e.Type)
	}
	if alerts := <-managed; len(alerts) != 1 || alerts[0].Labels["alertname"] != "evidence" {
		t.Errorf("the Alertmanager hears of %+v", alerts)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatalf("%v\n%s", err, logged)
	}
	if took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	t.Logf("from the start of serve to the incident: %s", took)
	h, stop = following(t, dir)
	defer stop()
	all := incidentsOf(t, h)
	if len(all) != 1 || all[0].Case.Rule != advice.Evidence || all[0].State != advice.Open || all[0].Opened%app.Tick != 0 {
		t.Errorf("%+v", all)
	}
}

// What a receiver hears of one incident: by severity, and while it is not silenced.
func TestNewsOfIncidents(t *testing.T) {
	dir := estate(t, []string{"lab"}, "")
	h, stop := following(t, dir)
	defer stop()
	document := []byte(`{"family":"failure","rule":"evidence","subject":{"cluster":"lab"},"workspace":"platform","severity":"info"}`)
	events := []domain.Event{
		&domain.IncidentOpened{Incident: "i-1", Rule: "evidence", Version: 1, Subject: "cluster=lab", Severity: "info", At: noon, Document: document},
		&domain.IncidentChanged{Incident: "i-1", Severity: "warning", At: noon + 1*app.Tick, Document: document},
		&domain.IncidentChanged{Incident: "i-1", Severity: "warning", At: noon + 2*app.Tick, Document: document}, // more parts
		&domain.IncidentChanged{Incident: "i-1", Severity: "info", At: noon + 3*app.Tick, Document: document},
		&domain.IncidentResolved{Incident: "i-1", At: noon + 4*app.Tick},
		&domain.IncidentChanged{Incident: "i-1", Severity: "info", At: noon + 5*app.Tick, Reopened: true, Document: document},
		&domain.IncidentResolved{Incident: "i-1", At: noon + 6*app.Tick},
	}
	var envs []domain.Envelope
	for _, ev := range events {
		switch ev := ev.(type) {
		case *domain.IncidentOpened:
			ev.Position, ev.Method, ev.Summary = "0", advice.Method, "it burns"
		case *domain.IncidentChanged:
			ev.Position, ev.Method, ev.Summary = "0", advice.Method, "it burns"
		case *domain.IncidentResolved:
			ev.Position, ev.Method = "0", advice.Method
		}
		envs = append(envs, domain.Envelope{Workspace: app.Platform, Subject: "i-1", Time: noon, Event: ev})
	}
	appendAll(t, h.Log, envs)
	until(t, func() bool {
		all := incidentsOf(t, h)
		return len(all) == 1 && len(all[0].Events) == len(events)
	})
	rec := &domain.Record{Topic: domain.TopicIncidents, Partition: domain.PartitionOf([]byte(app.Platform), domain.TopicIncidents.Partitions())}
	for severity, want := range map[string]string{"": "1100111", "warning": "0100100", "critical": "0000000"} {
		to := newAudience(nil, severity)
		got := ""
		for i := range envs {
			told, err := news(t.Context(), h, rec, &envs[i], &to)
			if err != nil {
				t.Fatal(err)
			}
			if told {
				got += "1"
			} else {
				got += "0"
			}
		}
		if got != want {
			t.Errorf("%q hears %s, want %s", severity, got, want)
		}
	}
	rec.Offset = 1 << 40
	if told, err := news(t.Context(), h, rec, &envs[0], &audience{}); told || err == nil {
		t.Errorf("an event that the rows lack is told: %t, %v", told, err)
	}
}

// Each webhook hears of the incidents of its workspaces, from its severity on, and of none that is silenced: by itself, or
// by its rule and subject. The next incident is told again.
func TestWebhooksHearWhatTheyAskedFor(t *testing.T) {
	a := &app.App{Dir: t.TempDir()}
	who, key := apptest.FirstOperator(t, a)
	apptest.Apply(t, a, key, "workspaces:\n  - {id: research}\n")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	h, stop := following(t, a.Dir)
	defer stop()
	now := app.Now()
	for i, s := range []*domain.IncidentSilenced{
		{Silence: "one", Incident: "i-silent", Until: now + domain.Day, Reason: "known"},
		{Silence: "rule", Rule: "evidence", Subject: "cluster=quiet", Until: now + domain.Day, Reason: "known"},
		{Silence: "over", Rule: "failures", Until: now, Reason: "known"},
	} {
		env := domain.Envelope{
			Source: fmt.Sprint("desk/", i), Incarnation: 1, Sequence: 1, Time: now - 1, Workspace: "research", Subject: s.Silence, Event: s,
		}
		if err := wire.Sign(&env, who, key); err != nil {
			t.Fatal(err)
		}
		rec, err := apptest.EncodeThen(&env)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Log.Append(t.Context(), []domain.Record{rec}); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	heard := map[string][]string{}
	var hooks []reaction
	for _, c := range []config.Webhook{{Name: "all"}, {Name: "research", Workspaces: []string{"research"}}, {Name: "critical", Severity: "critical"}} {
		c.URL, _ = receiver(t, func(e told) int {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains(heard[c.Name], e.Subject) {
				heard[c.Name] = append(heard[c.Name], e.Subject)
			}
			return http.StatusOK
		})
		hooks = append(hooks, hook(t, c).reaction(h))
	}
	reactions := startReactions(t, h.Log, fast, hooks...)
	defer reactions.stop()
	var envs []domain.Envelope
	for _, x := range []struct {
		id, workspace, rule, cluster string
		severity                     domain.Severity
	}{
		{"i-mild", "research", "evidence", "lab", domain.SeverityInfo},
		{"i-bad", app.Platform, "evidence", "lab", domain.SeverityCritical},
		{"i-silent", "research", "evidence", "lab", domain.SeverityCritical},
		{"i-quiet", "research", "evidence", "quiet", domain.SeverityCritical},
		{"i-over", "research", "failures", "lab", domain.SeverityCritical},
		{"i-other", app.Platform, "evidence", "quiet", domain.SeverityWarning},
	} {
		envs = append(envs, domain.Envelope{Workspace: x.workspace, Subject: x.id, Time: now, Event: &domain.IncidentOpened{
			Incident: x.id, Rule: x.rule, Version: 1, Subject: "cluster=" + x.cluster, Severity: x.severity, At: now, Position: "0",
			Method: advice.Method, Summary: "it burns", Document: fmt.Appendf(nil,
				`{"family":"failure","rule":%q,"subject":{"cluster":%q},"workspace":%q,"severity":%q}`, x.rule, x.cluster, x.workspace, x.severity),
		}})
	}
	appendAll(t, h.Log, envs)
	for name, want := range map[string]string{
		"all": "i-bad i-mild i-other i-over", "research": "i-mild i-over", "critical": "i-bad i-over",
	} {
		until(t, func() bool { return handled(reactions, "webhook."+name, "handled") == len(envs) })
		mu.Lock()
		slices.Sort(heard[name])
		if got := strings.Join(heard[name], " "); got != want {
			t.Errorf("webhook %s hears of %s, want %s", name, got, want)
		}
		mu.Unlock()
	}
	for _, x := range incidentsOf(t, h) {
		if silent := x.Silence != nil; silent != (x.ID == "i-silent" || x.ID == "i-quiet") {
			t.Errorf("%s is silenced: %t", x.ID, silent)
		}
	}
}
