package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/long"
	"quartermaster/projections/storetest"
)

// posted are the posts of a webhook, by the path of its address and the subject of the event.
type posted struct {
	mu  sync.Mutex
	all map[string]map[string][]string // idempotency keys
}

func (d *posted) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var e struct{ Subject string }
	_ = json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&e)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all[r.URL.Path] == nil {
		d.all[r.URL.Path] = map[string][]string{}
	}
	d.all[r.URL.Path][e.Subject] = append(d.all[r.URL.Path][e.Subject], r.Header.Get("Idempotency-Key"))
}

func (d *posted) of(path, subject string) (keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if subject != "" {
		return d.all[path][subject]
	}
	for _, k := range d.all[path] {
		keys = append(keys, k...)
	}
	return keys
}

// TestStormSurvivesKills holds that the outage of a provider with 10,000 faults is one incident, of which a webhook hears at
// most three times and never not at all, when the process that evaluates is killed with SIGKILL at any time and started
// again. It is 6 kills, and 200 with CI_LONG=1.
func TestStormSurvivesKills(t *testing.T) {
	path, err := exec.LookPath("quartermaster")
	if err != nil {
		t.Fatal(err)
	}
	told := &posted{all: map[string]map[string][]string{}}
	srv := httptest.NewServer(told)
	defer srv.Close()
	home := stormHome(t)
	// serve evaluates once and tells the webhook, or is killed after a time.
	serve := func(dir, at string, after time.Duration) (took time.Duration, killed bool) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "receivers.yaml")
		if err := os.WriteFile(file, []byte("webhooks:\n  - {name: w, url: '"+srv.URL+at+"'}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.Command(path, "serve", "--listen", "127.0.0.1:0", "--browser", "", "--receivers", file, "--data-dir", dir)
		c.Env = append(os.Environ(), "HOME="+t.TempDir())
		said := &apptest.SyncBuffer{}
		c.Stderr = said
		start := time.Now()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		kill := time.After(cmp.Or(after, time.Minute))
		for {
			select {
			case err := <-ended:
				if after > 0 {
					return 0, err != nil
				}
				t.Fatalf("serve: %v\n%s", err, said)
			case <-kill:
				_ = c.Process.Kill()
				if after == 0 {
					t.Fatalf("serve told nobody\n%s", said)
				}
				return 0, <-ended != nil
			case <-time.After(5 * time.Millisecond):
			}
			if !strings.Contains(said.String(), "job=advice input=") {
				continue
			}
			if took == 0 {
				took = time.Since(start)
			}
			if after == 0 && len(told.of(at, "")) > 0 {
				_ = c.Process.Signal(syscall.SIGTERM)
				if err := <-ended; err != nil {
					t.Fatalf("serve: %v\n%s", err, said)
				}
				return took, false
			}
		}
	}
	// The webhook exists before the storm: it hears of a machine that never reported.
	serve(home, "/before", 0)
	appendStorm(t, home)

	copied := func() string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(home)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	took, _ := serve(copied(), "/calm", 0)
	rng := rand.New(rand.NewPCG(18, 5))
	n, kills, most := long.Count(6, 200), 0, 0
	for k := range n {
		dir, at := copied(), fmt.Sprint("/", k)
		if _, killed := serve(dir, at, time.Duration(1+rng.Int64N(int64(took)*3/2))); killed {
			kills++
		}
		serve(dir, at, 0)
		incident := stormIn(t, dir)
		keys := told.of(at, incident)
		if most = max(most, len(keys)); len(keys) == 0 || len(keys) > 3 {
			t.Errorf("kill %d: incident %s was delivered %d times", k, incident, len(keys))
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d of %d processes were killed; an evaluation ends %s after the start; a receiver heard at most %d times", kills, n, took, most)
	if kills < n/2 {
		t.Errorf("only %d of %d processes were killed", kills, n)
	}
}

const stormClusters, stormNodes, stormGPUs = 5, 250, 8 // 10,000 GPUs

// stormHome returns a home with the GPUs of a provider, all of them in use, and a machine that never reported.
func stormHome(t *testing.T) string {
	t.Helper()
	a := &app.App{Dir: t.TempDir()}
	_, key := apptest.FirstOperator(t, a)
	lists := "workspaces:\n  - {id: research}\nregions:\n  - {id: us-east-1, country: US}\n  - {id: eu-1, country: DE}\nclusters:\n" +
		"  - {id: lab, provider: own, provider_class: owned, region: eu-1}\n"
	deployed := "deployments:\n"
	for c := range stormClusters {
		lists += fmt.Sprintf("  - {id: c%d, provider: aws, provider_class: hyperscaler, region: us-east-1, billing_account: acct}\n", c)
		deployed += fmt.Sprintf("  - {id: train, cluster: c%d, workspace: research, class: training, replicas: 1, need: {gpus: 2000}}\n", c)
	}
	apptest.Apply(t, a, key, lists+deployed)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	hour := app.Now().HourStart()
	worked := domain.Interval{From: hour - 2*domain.Hour, To: hour - domain.Hour}
	before := []domain.Envelope{storetest.Node("lab", "n", "H100 80GB", 1, hour-30*domain.Day)}
	for c := range stormClusters {
		for n := range stormNodes {
			cluster, node := fmt.Sprint("c", c), fmt.Sprintf("n%03d", n)
			var seen []storetest.Seen
			for g := range stormGPUs {
				seen = append(seen, storetest.Seen{ID: storetest.GPU(cluster, node, g), Activity: 900, Workspace: "research", Deployment: "train", Unit: "u"})
			}
			before = append(before, storetest.Node(cluster, node, "H100 80GB", stormGPUs, hour-30*domain.Day), domain.Envelope{
				Source: "node-reporter/" + cluster + "/" + node, Cluster: cluster, Time: worked.To, Event: storetest.Sample(node, worked, seen...),
			})
		}
	}
	appendBatches(t, a.Dir, before)
	return a.Dir
}

// appendStorm appends a fatal fault of every GPU of the provider, within a minute.
func appendStorm(t *testing.T, dir string) {
	t.Helper()
	var storm []domain.Envelope
	at := app.TickOf(app.Now()) - 60*domain.Second
	for c := range stormClusters {
		for n := range stormNodes {
			for g := range stormGPUs {
				cluster, node := fmt.Sprint("c", c), fmt.Sprintf("n%03d", n)
				storm = append(storm, domain.Envelope{Cluster: cluster, Time: at + domain.Instant(len(storm))*domain.Second/200, Event: &domain.GPUFaultObserved{
					Node: node, Kind: domain.FaultXID, Code: 79, Class: "hardware", Fatal: true, GPU: storetest.GPU(cluster, node, g),
				}})
			}
		}
	}
	appendBatches(t, dir, storm)
}

// appendBatches appends events as their own sources would.
func appendBatches(t *testing.T, dir string, envs []domain.Envelope) {
	t.Helper()
	h, _ := apptest.Open(t, dir)
	defer apptest.Close(t, h)
	life, next := uint64(time.Now().UnixNano()), map[string]uint64{}
	var records []domain.Record
	for i := range envs {
		env := &envs[i]
		if env.Source == "" {
			env.Source = "storm/" + env.Cluster
		}
		stream := env.Source + " " + env.Cluster + " " + string(domain.TopicOf(env.Event.Type()))
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
		if err := h.Log.Append(t.Context(), records[:n]); err != nil {
			t.Fatal(err)
		}
		records = records[n:]
	}
}

// stormIn returns the incident of the storm. There must be one, opened once, that names the provider's region.
func stormIn(t *testing.T, dir string) string {
	t.Helper()
	on := &app.App{Dir: dir}
	ans, err := on.For(app.Everyone).Alerts(t.Context(), "", app.AlertsQuery{All: true})
	if err := errors.Join(err, on.Close()); err != nil {
		t.Fatal(err)
	}
	incident := ""
	for _, x := range ans.Incidents {
		if x.Case.Family != advice.FamilyFailure || x.Case.Subject != (advice.Subject{Provider: "aws", Region: "us-east-1"}) {
			continue
		}
		opened := 0
		for _, e := range x.Events {
			if e.Type == domain.TypeIncidentOpened {
				opened++
			}
		}
		if incident != "" || opened != 1 || x.Case.Parts < stormClusters*stormNodes {
			t.Errorf("incident %s has %d parts, and was opened %d times", x.ID, x.Case.Parts, opened)
		}
		incident = x.ID
	}
	if incident == "" {
		for _, x := range ans.Incidents {
			t.Logf("%s %s: %s", x.Case.Rule, x.Case.Subject, x.Case.Summary)
		}
		t.Fatal("the storm is no incident")
	}
	return incident
}
