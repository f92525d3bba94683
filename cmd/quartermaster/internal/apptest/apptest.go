// Package apptest makes data directories for tests of the command line and the daemon.
package apptest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"quartermaster/adapters/importer"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/keyfile"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/shopspring/decimal"
)

// May is the time of the data in the directories below.
var May = domain.InstantOf(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))

// LongName is longer than what tables show of a name.
var LongName = strings.Repeat("long-", 10) + "name"

// FilledDir is a data directory that fills every key of the answers of fleet, models and usage.
func FilledDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	a := &app.App{Dir: dir}
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	who, key := FirstOperator(t, a)
	gpu := func(i int) domain.GPUID { return domain.DeriveGPUID("lab", "n1", i) }
	usd := func(n int64) domain.Money { return domain.Money{Amount: decimal.NewFromInt(n), Currency: "USD"} }
	first := domain.Interval{From: May, To: May + domain.Hour}
	raw := func(id domain.GPUID) []byte { return id[:] }
	sample := &domain.NodeSampled{
		Node: "n1", Interval: first, ActivityField: 1002, Strings: []string{"research", "chat", "1g.10gb"},
		HolderWorkspace: []uint32{1}, HolderDeployment: []uint32{2}, HolderUnit: []uint32{0},
		IDs: slices.Concat(raw(gpu(0)), raw(gpu(10))), Holder: []uint32{1, 0}, ActivityMean: []uint32{500, 0}, MemoryUsedMiB: []uint32{40_961, 0},
		Parents: raw(gpu(1)), Parent: []uint32{0, 1}, Profile: []uint32{0, 3},
	}
	served := func(cluster, region string) domain.Envelope {
		m := &domain.MetricsObserved{
			Base: May, StepMs: 30_000, Strings: []string{"vllm", "chat", "llama", "chat-0", "gold"},
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
		return domain.Envelope{Cluster: cluster, Time: May + domain.Hour, Subject: region, Event: m}
	}
	job := func(at domain.Instant, ev domain.Event) domain.Envelope {
		return domain.Envelope{Workspace: "research", Cluster: "lab", Time: May + at, Event: ev}
	}
	envs := []domain.Envelope{
		served("lab", "eu"), served(LongName, "us"),
		job(1, &domain.JobQueued{Job: "j", Class: domain.ClassTraining}), job(2, &domain.JobStarted{Job: "j"}), job(3, &domain.JobFinished{Job: "j", Outcome: domain.JobSucceeded}),
		{Workspace: "research", Event: &domain.WorkspaceRegistered{Name: "Research"}},
		{Workspace: app.Platform, Event: &domain.RegionDefined{Region: "eu", Country: "NL"}},
		{Workspace: app.Platform, Event: &domain.CertificationHeld{Cluster: "lab", Certification: "ISO 27001", Valid: domain.Interval{From: May, To: May + 365*domain.Day}, Evidence: "report"}},
		{Workspace: "research", Cluster: "lab", Event: &domain.ClusterRegistered{Name: "Lab", Provider: "own", ProviderClass: domain.Owned, Region: "eu"}},
		{Workspace: app.Platform, Cluster: LongName, Event: &domain.ClusterRegistered{Provider: "own", ProviderClass: domain.Owned, Region: "us"}},
		{Cluster: "lab", Event: &domain.NodeRegistered{
			Node: "n1", Provider: "colo", BillingAccount: "1", ResourceID: "r", SKU: "s", Zone: "z", BillingModel: domain.BillingOwned, CPUMilli: 1000, MemoryMiB: 1024,
			GPUs:       []domain.GPUDeclared{{ID: gpu(0), Model: "H100", MemoryMiB: 81_920}, {ID: gpu(1), Index: 1, Model: "H100"}, {ID: gpu(2), Index: 2, Model: "G9"}},
			IDsDerived: true, FabricDomain: "f", DriverVersion: "580.95.05", CUDAVersion: "13.0", DedicatedWorkspace: "research",
		}},
		{Cluster: "lab", Event: &domain.AssetAcquired{Asset: "a", Description: "a machine", Nodes: []string{"n1"}, Capex: usd(9), Residual: usd(1), InServiceFrom: May, LifeMonths: 60, PowerWatts: 1, Site: "x", SpaceUnits: 8}},
		{Cluster: "lab", Event: &domain.AssetDisposed{Asset: "a", At: May + 1, Proceeds: usd(1)}},
		{Cluster: "lab", Event: &domain.MaintenanceScheduled{Maintenance: "m", Window: domain.Interval{From: May + domain.Hour, To: May + domain.Day}, Reason: "firmware"}},
		{Cluster: "lab", Time: first.To, Source: "reporter/n1", Event: sample},
		{Cluster: "lab", Time: first.To, Source: "reporter/n1", Event: &domain.GPUFaultObserved{Node: "n1", GPU: gpu(0), Kind: domain.FaultXID, Code: 79, Fatal: true}},
		{Cluster: "lab", Workspace: "research", Event: &domain.DeploymentChanged{Deployment: "chat", Model: "llama", Tier: "fast", Class: domain.ClassServing, Environment: "production", Replicas: 2}},
		{Cluster: "lab", Time: first.To, Event: &domain.ReplicasObserved{Deployment: "chat", Model: "llama", Tier: "fast", Ready: 1, Desired: 2}},
	}
	var records []domain.Record
	for i, env := range envs {
		if env.Time == 0 {
			env.Time = May
		}
		if env.Source == "" {
			env.Source = fmt.Sprint("test/", i)
		}
		if domain.NeedsSignature(env.Event) {
			env.Time = app.Now()
		}
		env.Incarnation, env.Sequence = 1, 1
		if domain.NeedsSignature(env.Event) {
			if err := wire.Sign(&env, who, key); err != nil {
				t.Fatal(err)
			}
		}
		rec, err := wire.Encode(&env)
		if err != nil {
			t.Fatal(err)
		}
		rec.Time = env.Time
		records = append(records, rec)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	h, _ := Open(t, dir)
	if err := errors.Join(h.Log.Append(t.Context(), records), h.CatchUp(t.Context()), h.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Open opens a data directory and collects its notes.
func Open(t *testing.T, dir string) (*app.Conn, *strings.Builder) {
	t.Helper()
	notes := &strings.Builder{}
	a := &app.App{Dir: dir, Tell: func(note string) { fmt.Fprintln(notes, note) }}
	h, err := a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h, notes
}

// Close closes what [Open] opened.
func Close(t *testing.T, h *app.Conn) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

// SyncBuffer is a buffer for concurrent writes.
type SyncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *SyncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *SyncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// AppendEvents appends the events of one incarnation of a source.
func AppendEvents(t *testing.T, log *kafka.Log, envs ...domain.Envelope) {
	t.Helper()
	s := kafka.NewStream(log, kafka.StreamConfig{Source: "test", Incarnation: uint64(time.Now().UnixNano()), Encode: EncodeThen})
	for i := range envs {
		if err := s.Append(t.Context(), &envs[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// EncodeThen encodes an event as if it were appended at its time.
func EncodeThen(env *domain.Envelope) (domain.Record, error) {
	rec, err := wire.Encode(env)
	rec.Time = env.Time
	return rec, err
}

// FirstOperator registers the first operator of a data directory, and returns the name and key.
func FirstOperator(t testing.TB, a *app.App) (string, ed25519.PrivateKey) {
	t.Helper()
	key, err := keyfile.Create(filepath.Join(a.Dir, "operator.pem"))
	if err != nil {
		t.Fatal(err)
	}
	Decide(t, a, key, app.FirstOperator(app.Me(), key.Public().(ed25519.PublicKey)))
	return app.Me(), key
}

// Decide has a draft decided with a key.
func Decide(t testing.TB, a *app.App, key ed25519.PrivateKey, draft app.Draft) {
	t.Helper()
	p, err := a.For(app.Everyone).Propose(t.Context(), draft, key.Public().(ed25519.PublicKey))
	if err == nil {
		err = a.For(app.Everyone).Decide(t.Context(), p, p.Sign(key), p.Key)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Apply has declarations decided with a key. The lists follow a head with workspace platform.
func Apply(t *testing.T, a *app.App, key ed25519.PrivateKey, lists string) {
	t.Helper()
	head := "apiVersion: quartermaster/v1\nkind: Estate\nworkspace: platform\neffective_from: 2025-01-01\n"
	estate, err := app.ReadDeclarations(app.Document{Name: "estate.yaml", Text: strings.NewReader(head + lists)})
	if err != nil {
		t.Fatal(err)
	}
	_, draft, err := a.For(app.Everyone).Apply(t.Context(), estate)
	if err != nil {
		t.Fatal(err)
	}
	Decide(t, a, key, draft)
}

// PlannedDir is a data directory with demand in May 2026 and prices.
func PlannedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	usage := &strings.Builder{}
	usage.WriteString("hour,vc,total_gpu,running_gpu_mean,running_gpu_max,pending_gpu_mean,pending_gpu_max\n")
	for day := range 28 {
		for hour := range 24 {
			fmt.Fprintf(usage, "2026-05-%02d %02d:00,search,48,32,32,0,0\n", day+1, hour)
		}
	}
	a := &app.App{Dir: filepath.Join(dir, "home")}
	if err := os.Mkdir(a.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c := a.For(app.Everyone)
	_, key := FirstOperator(t, a)
	Apply(t, a, key, `workspaces:
  - {id: search}
regions:
  - {id: us-east-1, country: US}
clusters:
  - {id: earth, provider: aws, provider_class: hyperscaler, region: us-east-1, billing_account: acct}
`)
	prices := write("prices.csv", `provider,region,instance_type,gpu_model,gpu_count,gpu_memory,vcpu,memory,offer,term_months,upfront,hourly,effective_hourly,currency,as_of,source
aws,us-east-1,p3dn.24xlarge,NVIDIA V100,8,32 GB HBM2,96,768 GB,on_demand,0,0,31.212,31.212,USD,2026-01,public list price
aws,us-east-1,p3dn.24xlarge,NVIDIA V100,8,32 GB HBM2,96,768 GB,reserved_standard_no_upfront,12,0,19.215,19.215,USD,2026-01,public list price
`)
	done := func(got *app.Imported) error {
		if got.BadRows > 0 {
			t.Errorf("%s: %v", got.File, got.Bad)
		}
		return nil
	}
	if err := errors.Join(
		c.ImportColumns(t.Context(), importer.Prices, importer.Options{}, []string{prices}, false, done),
		c.ImportColumns(t.Context(), importer.Usage, importer.Options{
			Cluster: "earth", Zone: "UTC", GPUModel: "V100 32GB", SKU: "p3dn.24xlarge", Account: "acct", Historical: true, NodeGPUs: 8, Interval: 10 * time.Minute,
		}, []string{write("usage.csv", usage.String())}, false, done),
		a.Close(),
	); err != nil {
		t.Fatal(err)
	}
	return a.Dir
}

// KeysUnder collects the keys of a JSON document.
func KeysUnder(v any, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			into[k] = true
			KeysUnder(x, into)
		}
	case []any:
		for _, x := range v {
			KeysUnder(x, into)
		}
	}
}

// JSONKeys collects the keys that a value of a type may have in JSON.
func JSONKeys(t reflect.Type, into map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		JSONKeys(t.Elem(), into)
	case reflect.Struct:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case !f.IsExported() || name == "-":
				continue
			case name != "":
				into[name] = true
			}
			JSONKeys(f.Type, into)
		}
	}
}

// Poison NAME... appends bad records to the log of the data directory. It is the script command
// poison.
func Poison(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: poison name...")
	}
	ts.Check(Plant(ts.Getenv("QUARTERMASTER_DATA_DIR"), args...))
}

// Plant appends bad records to the log of a data directory, by their names.
func Plant(dir string, names ...string) error {
	bad, err := badRecords()
	if err != nil {
		return err
	}
	var recs []domain.Record
	for _, name := range names {
		rec, ok := bad[name]
		if !ok {
			return errors.New("no bad record " + name)
		}
		recs = append(recs, rec)
	}
	a := &app.App{Dir: dir}
	h, err := a.OpenLog(context.Background())
	if err != nil {
		return err
	}
	return errors.Join(h.Log.Append(context.Background(), recs), h.Shut())
}

// badRecords returns invalid records by name. Any Kafka client could have written them into a
// log.
func badRecords() (map[string]domain.Record, error) {
	at := May
	out := map[string]domain.Record{}
	var errs error
	add := func(name string, env domain.Envelope, spoil func(*domain.Record)) {
		env.Time, env.Incarnation, env.Sequence = at, 1, max(env.Sequence, 1)
		rec, err := wire.Encode(&env)
		if spoil != nil {
			spoil(&rec)
		}
		out[name], errs = rec, errors.Join(errs, err)
	}
	twice := []domain.GPUDeclared{
		{ID: domain.DeriveGPUID("lab", "n9", 0), Model: "H100 SXM 80GB"},
		{ID: domain.DeriveGPUID("lab", "n9", 0), Index: 1, Model: "H100 SXM 80GB"},
	}
	node := func(source string) domain.Envelope {
		return domain.Envelope{Source: source, Cluster: "lab", Subject: "n9", Event: &domain.NodeRegistered{Node: "n9", CPUMilli: 1000, MemoryMiB: 1024, GPUs: twice}}
	}
	add("gpu-twice", node("reporter/n9"), nil)
	misplaced := node("reporter/n9b")
	misplaced.Event.(*domain.NodeRegistered).GPUs = twice[:1]
	add("misplaced", misplaced, func(r *domain.Record) { r.Partition = (r.Partition + 1) % domain.TopicFleet.Partitions() })
	add("unsigned", domain.Envelope{Source: "somebody", Workspace: app.Platform, Subject: "idle", Event: &domain.PolicySet{
		Policy: "idle", Kind: domain.PolicyIdleCost, EffectiveFrom: at, Value: "owner",
	}}, nil)
	id := domain.DeriveGPUID("lab", "n9", 0)
	add("sample", domain.Envelope{Source: "reporter/n9", Cluster: "lab", Event: &domain.NodeSampled{
		Node: "n9", Interval: domain.Interval{From: at - domain.Hour, To: at}, IDs: id[:],
	}}, func(r *domain.Record) { r.Value = r.Value[:len(r.Value)-1] })
	late := node("reporter/n8") // too old, and three events before it are missing
	late.Sequence, late.Event.(*domain.NodeRegistered).GPUs = 4, twice[:1]
	add("late", late, nil)
	out["garbage"] = domain.Record{Topic: domain.TopicTelemetry, Value: []byte("GET / HTTP/1.1\r\n")}
	return out, errs
}
