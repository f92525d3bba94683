package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
)

// may is when the small home below is alive.
var may = domain.InstantOf(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))

// longName is longer than what tables show of a name.
var longName = strings.Repeat("long-", 10) + "name"

// smallHome is a home with something under every key that fleet, models and
// usage answer with.
func smallHome(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	a := &app{out: io.Discard, err: io.Discard, quiet: true, dir: dir}
	h, err := a.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.firstOperator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gpu := func(i int) domain.GPUID { return domain.DeriveGPUID("lab", "n1", i) }
	usd := func(n int64) domain.Money { return domain.Money{Amount: decimal.NewFromInt(n), Currency: "USD"} }
	first := domain.Interval{From: may, To: may + domain.Hour}
	raw := func(id domain.GPUID) []byte { return id[:] }
	sample := &domain.NodeSampled{
		Node: "n1", Interval: first, ActivityField: 1002, Strings: []string{"research", "chat", "1g.10gb"},
		HolderWorkspace: []uint32{1}, HolderDeployment: []uint32{2}, HolderUnit: []uint32{0},
		IDs: slices.Concat(raw(gpu(0)), raw(gpu(10))), Holder: []uint32{1, 0}, ActivityMean: []uint32{500, 0}, MemoryUsedMiB: []uint32{40_961, 0},
		Parents: raw(gpu(1)), Parent: []uint32{0, 1}, Profile: []uint32{0, 3},
	}
	served := func(cluster, region string) domain.Envelope {
		m := &domain.MetricsObserved{
			Base: may, StepMs: 30_000, Strings: []string{"vllm", "chat", "llama", "chat-0", "gold"},
			Engine: []uint32{1}, Deployment: []uint32{2}, Model: []uint32{3}, Tier: []uint32{5}, Unit: []uint32{4}, Node: []uint32{0},
		}
		for _, x := range []struct {
			metric domain.SeriesMetric
			bound  uint64
		}{{domain.MetricTTFT, 100_000}, {domain.MetricTTFT, domain.Infinite}, {domain.MetricTTFTSum, 0}, {domain.MetricTTFTCount, 0}, {domain.MetricQueueWait, domain.Infinite},
			{domain.MetricWaiting, 0}, {domain.MetricRunning, 0}, {domain.MetricKVCache, 0}, {domain.MetricRequestsOK, 0}, {domain.MetricGPURequests, 0}} {
			m.Server, m.Metric, m.Bound = append(m.Server, 0), append(m.Metric, uint32(x.metric)), append(m.Bound, x.bound)
			m.Series, m.Samples = append(m.Series, 1), append(m.Samples, 2)
			m.Offset, m.Value = append(m.Offset, 0, 30_000), append(m.Value, 5, 900)
		}
		return domain.Envelope{Cluster: cluster, Time: may + domain.Hour, Subject: region, Event: m}
	}
	job := func(at domain.Instant, ev domain.Event) domain.Envelope {
		return domain.Envelope{Workspace: "research", Cluster: "lab", Time: may + at, Event: ev}
	}
	envs := []domain.Envelope{
		served("lab", "eu"), served(longName, "us"),
		job(1, &domain.JobQueued{Job: "j", Class: domain.ClassTraining}), job(2, &domain.JobStarted{Job: "j"}), job(3, &domain.JobFinished{Job: "j", Outcome: domain.JobSucceeded}),
		{Workspace: "research", Event: &domain.WorkspaceRegistered{Name: "Research"}},
		{Workspace: platform, Event: &domain.RegionDefined{Region: "eu", Country: "NL"}},
		{Workspace: platform, Event: &domain.CertificationHeld{Cluster: "lab", Certification: "ISO 27001", Valid: domain.Interval{From: may, To: may + 365*domain.Day}, Evidence: "report"}},
		{Workspace: "research", Cluster: "lab", Event: &domain.ClusterRegistered{Name: "Lab", Provider: "own", ProviderClass: domain.Owned, Region: "eu"}},
		{Workspace: platform, Cluster: longName, Event: &domain.ClusterRegistered{Provider: "own", ProviderClass: domain.Owned, Region: "us"}},
		{Cluster: "lab", Event: &domain.NodeRegistered{
			Node: "n1", Provider: "colo", BillingAccount: "1", ResourceID: "r", SKU: "s", Zone: "z", BillingModel: domain.BillingOwned, CPUMilli: 1000, MemoryMiB: 1024,
			GPUs:       []domain.GPUDeclared{{ID: gpu(0), Model: "H100", MemoryMiB: 81_920}, {ID: gpu(1), Index: 1, Model: "H100"}, {ID: gpu(2), Index: 2, Model: "G9"}},
			IDsDerived: true, FabricDomain: "f", DriverVersion: "580.95.05", CUDAVersion: "13.0", DedicatedWorkspace: "research",
		}},
		{Cluster: "lab", Event: &domain.AssetAcquired{Asset: "a", Description: "a machine", Nodes: []string{"n1"}, Capex: usd(9), Residual: usd(1), InServiceFrom: may, LifeMonths: 60, PowerWatts: 1, Site: "x", SpaceUnits: 8}},
		{Cluster: "lab", Event: &domain.AssetDisposed{Asset: "a", At: may + 1, Proceeds: usd(1)}},
		{Cluster: "lab", Event: &domain.MaintenanceScheduled{Maintenance: "m", Window: domain.Interval{From: may + domain.Hour, To: may + domain.Day}, Reason: "firmware"}},
		{Cluster: "lab", Time: first.To, Source: "reporter/n1", Event: sample},
		{Cluster: "lab", Time: first.To, Source: "reporter/n1", Event: &domain.GPUFaultObserved{Node: "n1", GPU: gpu(0), Kind: domain.FaultXID, Code: 79, Fatal: true}},
		{Cluster: "lab", Workspace: "research", Event: &domain.DeploymentChanged{Deployment: "chat", Model: "llama", Tier: "fast", Class: domain.ClassServing, Environment: "production", Replicas: 2}},
		{Cluster: "lab", Time: first.To, Event: &domain.ReplicasObserved{Deployment: "chat", Model: "llama", Tier: "fast", Ready: 1, Desired: 2}},
	}
	var records []domain.Record
	for i, env := range envs {
		if env.Time == 0 {
			env.Time = may
		}
		if env.Source == "" {
			env.Source = fmt.Sprint("test/", i)
		}
		if domain.NeedsSignature(env.Event.Type()) {
			env.Time = now()
		}
		env.Incarnation, env.Sequence = 1, 1
		if err := s.sign(&env); err != nil {
			t.Fatal(err)
		}
		rec, err := wire.Encode(&env)
		if err != nil {
			t.Fatal(err)
		}
		rec.Time = env.Time
		records = append(records, rec)
	}
	if err := errors.Join(h.log.Append(t.Context(), records), h.catchUp(t.Context()), h.close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// keysUnder collects the keys of a JSON document.
func keysUnder(v any, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			into[k] = true
			keysUnder(x, into)
		}
	case []any:
		for _, x := range v {
			keysUnder(x, into)
		}
	}
}

// Every key of an answer is in the help of the command that gives it.
func TestHelpNamesEveryKey(t *testing.T) {
	dir := smallHome(t)
	if code, out := command(t, dir, "quarantine", "list"); code != 0 || !strings.Contains(out, "nothing is quarantined") {
		t.Fatalf("the home is not as it should be: exit %d\n%s", code, out)
	}
	for name, c := range map[string]struct {
		args []string
		some []string // that must be there, or the home does not show what it should
	}{
		"fleet": {[]string{"--at", "2026-05-01T02:00:00Z"}, []string{
			"country", "valid_to", "evidence", "resource_id", "dedicated_workspace", "last_telemetry", "since", "maintenance", "faults",
			"mig", "uuid_derived", "amount", "disposed", "space_units", "detail", "gpus", "missing",
		}},
		"models": {[]string{"--at", "2026-05-01T01:10:00Z"}, []string{"tier", "environment", "declared_at", "ready_replicas", "last_seen", "shadow", "incomplete"}},
		"serving": {[]string{"--from", "2026-05-01", "--to", "2026-05-02"}, []string{
			"provider", "region", "tier", "up_to", "least_cluster", "permille", "ttft_mean_micros", "queue_wait", "gpu_requests_milli", "batch_permille",
		}},
		"jobs": {[]string{"--from", "2026-05-01", "--to", "2026-05-02"}, []string{"class", "queue_wait_p95_ms", "success_permille"}},
		"usage": {[]string{"--from", "2026-05-01", "--to", "2026-05-02", "--by", "workspace,cluster,node,gpu,model,deployment,region,hour,day"}, []string{
			"workspace", "day", "key", "allocated_while_failed_gpu_ms", "activity_permille", "missing",
		}},
	} {
		code, out := command(t, dir, append([]string{name, "--json"}, c.args...)...)
		var answer any
		if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil {
			t.Fatalf("%s: exit %d, %v\n%s", name, code, err, out)
		}
		keys := map[string]bool{}
		keysUnder(answer, keys)
		for _, k := range c.some {
			if !keys[k] {
				t.Errorf("%s does not answer with %q, so that its help is not put to the test", name, k)
			}
		}
		_, help := command(t, dir, name, "--help")
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(k) + `\b`).MatchString(help) {
				t.Errorf("the help of %s does not name %q", name, k)
			}
		}
	}
}

// What is asked for and not there is refused by its name, and what is asked for
// by mistake is not answered with silence.
func TestAskedForNothing(t *testing.T) {
	dir := smallHome(t)
	span := []string{"--from", "2026-05-01", "--to", "2026-05-02"}
	usage := func(args ...string) []string { return append(append([]string{"usage"}, span...), args...) }
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"fleet", "--cluster", "nosuch"}, 2, "no cluster matches --cluster nosuch; there are: lab, " + longName[:39] + "…"},
		{[]string{"fleet", "--region", "nosuch"}, 2, "no region matches --region nosuch; there are: eu, us"},
		{[]string{"fleet", "--workspace", "nosuch"}, 2, "no workspace matches --workspace nosuch; there are: platform, research"},
		{[]string{"fleet", "--cluster", "lab", "--region", "us"}, 0, "no clusters with --cluster lab --region us"},
		{[]string{"models", "--cluster", "nosuch"}, 2, "no cluster matches --cluster nosuch"},
		{[]string{"models", "--workspace", "nosuch"}, 2, "no workspace matches --workspace nosuch"},
		{[]string{"models", "--workspace", platform}, 0, "no deployments at "},
		{[]string{"models", "--at", "2026-04-01"}, 0, "no deployments at 2026-04-01T00:00:00Z: declare"},
		{[]string{"models", "--limit", "-1"}, 2, "--limit -1: want 0 or more"},
		{[]string{"models", "--limit", "0"}, 0, "and 1 more"},
		{usage("--cluster", "nosuch"), 2, "no cluster matches --cluster nosuch"},
		{usage("--region", "nosuch"), 2, "no region matches --region nosuch"},
		{usage("--workspace", "nosuch"), 2, "no workspace matches --workspace nosuch"},
		{usage("--workspace", "research", "--region", "us"), 0, "total"},
		{usage("--by", "workspace,deployment"), 0, "(nobody)   (nobody)"},
		{[]string{"usage", "--from", "2016-05-01", "--to", "2026-05-02"}, 2, "--from 2016-05-01 to 2026-05-02 is more than ten years"},
		{[]string{"usage", "--from", "2016-05-02", "--to", "2026-05-02"}, 0, "total"},
		{[]string{"fleet", "--at", "2026-05-02"}, 0, longName[:39] + "… "},
	} {
		if code, out := command(t, dir, c.args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d, want %d and %q:\n%s", c.args, code, c.code, c.want, out)
		}
	}
	names := make([]string, 25)
	for i := range names {
		names[i] = fmt.Sprintf("c%02d", i)
	}
	if err := among("cluster", "x", names); err == nil || !strings.HasSuffix(err.Error(), "c18, c19 and 5 more") {
		t.Errorf("25 names are offered as %v", err)
	}
	if err := among("cluster", "x", nil); err == nil || among("cluster", "", nil) != nil || among("cluster", "c03", names) != nil {
		t.Errorf("no names are offered as %v", err)
	}
}

// What a report may lack stands under its table, and what nobody is known to
// have is called so only where it is about somebody.
func TestReportsPrintWhatTheyLack(t *testing.T) {
	dir := smallHome(t)
	a := &app{out: io.Discard, err: io.Discard, quiet: true, dir: dir}
	h, err := a.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := domain.DeriveGPUID("stray", "n2", 0)
	stray, err := wire.Encode(&domain.Envelope{Source: "reporter/n2", Incarnation: 1, Sequence: 3, Time: may + domain.Hour, Cluster: "stray", Event: &domain.NodeSampled{
		Node: "n2", Interval: domain.Interval{From: may, To: may + domain.Hour}, IDs: id[:], Holder: []uint32{0},
	}})
	if err != nil {
		t.Fatal(err)
	}
	stray.Time = may + domain.Hour
	poison := domain.Record{Topic: domain.TopicFleet, Value: []byte("not an event")}
	if err := errors.Join(h.log.Append(t.Context(), []domain.Record{stray, poison}), h.catchUp(t.Context()), h.close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"fleet"}, {"models"}, {"usage", "--from", "2026-05-01", "--to", "2026-05-02", "--by", "region,model"}} {
		code, out := command(t, dir, args...)
		if code != 5 || !strings.Contains(out, "\nincomplete: 1 event; 2 events have not arrived: see ") {
			t.Errorf("%v: exit %d\n%s", args, code, out)
		}
		if args[0] == "usage" && (!strings.Contains(out, "(none)") || strings.Contains(out, "(nobody)")) {
			t.Errorf("a region and a model are nobody:\n%s", out)
		}
		var answer struct{ Incomplete, Missing int }
		if _, out := command(t, dir, append(args, "--json")...); json.Unmarshal([]byte(out), &answer) != nil || answer.Incomplete != 1 || answer.Missing != 2 {
			t.Errorf("%v: %+v", args, answer)
		}
	}
}
