package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/httpapi"
	"quartermaster/adapters/spool"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// reportingNode is a node with a spool, which delivers like node-reporter.
type reportingNode struct {
	t      *testing.T
	name   string
	dir    string
	spool  *spool.Spool
	url    string
	key    string
	shards int // in the last answer
	clock  domain.Instant
}

func (n *reportingNode) open() {
	n.t.Helper()
	var err error
	n.spool, err = spool.Open(spool.Config{
		Dir: n.dir, Source: httpapi.SourceOf("lab") + n.name, Incarnation: uint64(n.clock / 1000), Quota: 1 << 24,
		Queues: []spool.Rule{
			{Name: string(domain.TopicHardware), Keep: true}, {Name: string(domain.TopicFleet), Keep: true},
			{Name: string(domain.TopicTelemetry), Keep: true},
		},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// reshard follows the last answer.
func (n *reportingNode) reshard() {
	n.t.Helper()
	if n.shards == 0 {
		return
	}
	if err := n.spool.Reshard(n.shards, uint64(n.clock/1000)); err != nil {
		n.t.Fatal(err)
	}
}

// put spools an event.
func (n *reportingNode) put(at domain.Instant, ev domain.Event) {
	n.t.Helper()
	n.clock = at
	env := domain.Envelope{Source: httpapi.SourceOf("lab") + n.name, Cluster: "lab", Subject: n.name, Time: at, Event: ev}
	covered := domain.Interval{From: at, To: at + 1}
	err := n.spool.Queue(string(env.Topic())).Append(covered, func(p spool.Place) ([]byte, error) {
		env.Incarnation, env.Sequence, env.Shards = p.Incarnation, p.Sequence, p.Shards
		env.PreviousIncarnation, env.PreviousSequence = p.PreviousIncarnation, p.PreviousSequence
		rec, err := wire.Encode(&env)
		if err != nil {
			return nil, err
		}
		return wire.AppendBatch(nil, &rec)
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// send delivers what waits of a topic, at most some events. If the answer is lost, they wait still.
func (n *reportingNode) send(topic domain.Topic, most int, lost bool) (sent int) {
	n.t.Helper()
	q := n.spool.Queue(string(topic))
	b, err := q.Next(most, 1<<20)
	if err != nil {
		n.t.Fatal(err)
	}
	var recs []domain.Record
	for _, e := range b.Entries {
		one, err := wire.ReadBatch(e.Data)
		if err != nil {
			n.t.Fatal(err)
		}
		recs = append(recs, one...)
	}
	if len(recs) == 0 {
		return 0
	}
	status, text := deliver(n.t, http.DefaultClient, n.url, n.key, recs...)
	var ans httpapi.Accepted
	if err := json.Unmarshal([]byte(text), &ans); err != nil || status != http.StatusOK || ans.Accepted != len(recs) {
		n.t.Fatalf("%d %s: %v", status, text, err)
	}
	if lost {
		return 0
	}
	n.shards = ans.Shards
	if err := q.Done(b); err != nil {
		n.t.Fatal(err)
	}
	return len(recs)
}

func (n *reportingNode) drain(most int) {
	n.t.Helper()
	for _, topic := range []domain.Topic{domain.TopicFleet, domain.TopicTelemetry, domain.TopicHardware} {
		for n.send(topic, most, false) > 0 {
		}
	}
}

// reportFor serves a home to which eight nodes report for an hour and a half, and returns the
// answers, and how many partitions have samples. The number of shards of their cluster changes
// between the parts of that time.
func reportFor(t *testing.T, base domain.Instant, shards ...int) (answers string, partitions int) {
	dir := t.TempDir()
	var lab issuedKey
	tell(t, dir, &lab, "cluster", "register", "lab", "--provider", "own", "--class", "owned", "--region", "eu")
	_, address := gatewayOf(t, dir, config.Gateway{Listen: "127.0.0.1:0", Rate: 100_000})
	nodes := make([]*reportingNode, 8)
	for i := range nodes {
		nodes[i] = &reportingNode{
			t: t, name: fmt.Sprintf("n%d", i), dir: t.TempDir(), url: "http://" + address, key: lab.Key, clock: base,
		}
		nodes[i].open()
		env := storetest.Node("lab", nodes[i].name, "H100 SXM 80GB", 1, base)
		env.Event.(*domain.NodeRegistered).InServiceFrom = base
		nodes[i].put(base, env.Event)
	}
	const minutes = 30
	for part, of := range shards {
		// Some of the last part waits on the nodes, and some was delivered without an answer.
		for i, n := range nodes {
			for range i {
				n.send(domain.TopicTelemetry, 3, false)
			}
			n.send(domain.TopicTelemetry, 5, true)
			n.send(domain.TopicHardware, 5, true)
		}
		if part > 0 && of != shards[part-1] {
			tell(t, dir, nil, "cluster", "register", "lab", "--shards", fmt.Sprint(of))
			await(t, "the gateway", func() (string, bool) {
				_, text := deliver(t, http.DefaultClient, "http://"+address, lab.Key)
				return text, strings.Contains(text, fmt.Sprintf(`"shards":%d}`, of))
			})
		}
		for i, n := range nodes {
			if i%3 == part {
				if err := n.spool.Close(); err != nil { // it restarts
					t.Fatal(err)
				}
				n.open()
			}
			n.drain(7)
			if i%3 == 0 {
				n.reshard()
			}
			for m := part * minutes; m < (part+1)*minutes; m++ {
				from := base + domain.Instant(m)*storetest.Minute
				held := ""
				if m%4 > 0 {
					held = "platform"
				}
				to := from + storetest.Minute
				n.put(to, storetest.Sample(n.name, domain.Interval{From: from, To: to}, storetest.Seen{
					ID: storetest.GPU("lab", n.name, 0), Model: "H100 SXM 80GB", Workspace: held, Activity: 10 * (m % 100),
				}))
				switch m {
				case 10 * i, 85:
					n.put(from, &domain.GPUFaultObserved{
						Node: n.name, GPU: storetest.GPU("lab", n.name, 0), Kind: domain.FaultXID, Code: 79, Count: 1,
						Fatal: true, Class: "hardware", Action: "reboot",
					})
				case 10*i + 7:
					n.put(from, &domain.NodeReturned{Node: n.name, Reason: "rebooted"})
				}
				if n.drain(4); i%3 > 0 {
					n.reshard() // as told in the middle of an interval
				}
			}
		}
	}
	to := (base + 2*domain.Hour).String()
	for _, args := range [][]string{
		{"usage", "--by", "node,gpu,workspace,hour", "--from", base.String(), "--to", to},
		{"usage", "--by", "cluster,day", "--from", base.String(), "--to", to},
		{"fleet", "--cluster", "lab"},
	} {
		var ans map[string]any
		tell(t, dir, &ans, args...)
		delete(ans, "position")
		delete(ans, "at")
		delete(ans, "program")
		for _, c := range asList(ans["clusters"]) {
			delete(c, "shards")
		}
		b, err := json.MarshalIndent(ans, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		answers += string(b) + "\n"
	}
	unbroken(t, dir)
	var stats registry.LogStats
	tell(t, dir, &stats, "log", "stats")
	for _, p := range stats.Partitions {
		if p.Topic == domain.TopicTelemetry && p.Next > 0 {
			partitions++
		}
	}
	return answers, partitions
}

// The number of shards changes twice while nodes report through the gateway, some with a delivery
// whose answer was lost, some with a restart, some hearing of it in the middle of an interval.
// Nothing is lost, doubled or awaited, and the answers are those of a cluster without shards.
func TestShardsChange(t *testing.T) {
	base := domain.Instant(int64(app.Now())/int64(domain.Hour)-4) * domain.Hour
	want, one := reportFor(t, base, 1, 1, 1)
	got, many := reportFor(t, base, 1, 8, 3)
	if one != 1 || many < 3 {
		t.Errorf("samples are in %d partitions without shards, and in %d with shards", one, many)
	}
	if got != want {
		a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
		i := 0
		for i < min(len(a), len(b))-1 && a[i] == b[i] {
			i++
		}
		t.Errorf("from line %d on the answers are\n%s\nwithout shards\n%s", i,
			strings.Join(a[max(0, i-10):min(len(a), i+20)], "\n"), strings.Join(b[max(0, i-10):min(len(b), i+20)], "\n"))
	}
	if !strings.Contains(want, `"failed_gpu_ms": 1860000`) || !strings.Contains(want, "xid 79") {
		t.Errorf("the answers say little: %s", want)
	}
}

// Prometheus writes of sixteen nodes while the number of shards changes. The nodes are in several
// partitions, one stream goes on, and every node is seen for the whole time.
func TestShardsPrometheus(t *testing.T) {
	dir := t.TempDir()
	var lab issuedKey
	tell(t, dir, &lab, "cluster", "register", "lab", "--provider", "own", "--class", "owned", "--region", "eu")
	_, address := gatewayOf(t, dir, config.Gateway{Listen: "127.0.0.1:0", Rate: 100_000})
	const nodes = 16
	var text strings.Builder
	for n := range nodes {
		fmt.Fprintf(&text, `DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="%s",modelName="NVIDIA H100 80GB HBM3",Hostname="n%d"} 50`+"\n",
			storetest.GPU("lab", fmt.Sprint("n", n), 0), n)
	}
	end := time.Now().Truncate(time.Minute).Add(-time.Minute)
	for part, of := range []int{1, 8, 4} {
		if of > 1 {
			tell(t, dir, nil, "cluster", "register", "lab", "--shards", fmt.Sprint(of))
			await(t, "the gateway", func() (string, bool) {
				_, text := deliver(t, http.DefaultClient, "http://"+address, lab.Key)
				return text, strings.Contains(text, fmt.Sprintf(`"shards":%d}`, of))
			})
		}
		body, err := writeRequest(text.String(), end.Add(time.Duration(part-2)*10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		url := "http://" + address + "/api/v1/write"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+lab.Key)
		setWriteHeaders(req)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode != http.StatusNoContent {
			t.Fatalf("part %d: %s", part, res.Status)
		}
	}
	var stats registry.LogStats
	tell(t, dir, &stats, "log", "stats")
	partitions := 0
	for _, p := range stats.Partitions {
		if p.Topic == domain.TopicTelemetry && p.Next > 0 {
			partitions++
		}
	}
	if partitions < 3 {
		t.Errorf("samples are in %d partitions", partitions)
	}
	unbroken(t, dir)
	var fleet inventory.Inventory
	tell(t, dir, &fleet, "fleet", "--cluster", "lab")
	last := domain.InstantOf(end)
	seen := 0
	for _, n := range fleet.Clusters[0].UnregisteredNodes {
		if n.LastTelemetry > last-storetest.Minute && len(n.GPUs) == 1 {
			seen++
		}
	}
	if seen != nodes {
		t.Errorf("%d nodes of %d were seen until %s: %+v", seen, nodes, last, fleet.Clusters[0].UnregisteredNodes)
	}
}

// unbroken checks that no stream awaits events and that nothing is in quarantine.
func unbroken(t *testing.T, dir string) {
	t.Helper()
	var streams app.StreamGaps
	tell(t, dir, &streams, "streams", "list")
	if len(streams.Streams) > 0 {
		t.Errorf("events are awaited: %+v", streams.Streams)
	}
	var held projections.QuarantineList
	tell(t, dir, &held, "quarantine", "list")
	if len(held.Entries) > 0 {
		t.Errorf("records are in quarantine: %+v", held.Entries)
	}
}

// A record under the key of another shard than its node's is quarantined when it is folded. Its
// repair has the plain key of the cluster, and counts like an event of the node's shard.
func TestShardMisplaced(t *testing.T) {
	dir := t.TempDir()
	tell(t, dir, nil, "cluster", "register", "lab", "--provider", "own", "--class", "owned", "--region", "eu",
		"--shards", "8")
	gpu := storetest.GPU("lab", "n1", 0)
	at := domain.Instant(int64(app.Now())/int64(domain.Hour)-2) * domain.Hour
	envs := []domain.Envelope{storetest.Node("lab", "n1", "H100 SXM 80GB", 1, at)}
	for _, ev := range []domain.Event{
		&domain.GPUFaultObserved{Node: "n1", GPU: gpu, Kind: domain.FaultXID, Code: 79, Fatal: true},
		storetest.Sample("n1", domain.Interval{From: at - storetest.Minute, To: at}, storetest.Seen{ID: gpu}),
	} {
		envs = append(envs, domain.Envelope{Cluster: "lab", Time: at, Event: ev})
	}
	var recs []domain.Record
	for i := range envs {
		envs[i].Source, envs[i].Incarnation, envs[i].Sequence, envs[i].Shards = httpapi.SourceOf("lab")+"n1", 1, 1, 8
		rec, err := wire.Encode(&envs[i])
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			shard := domain.ShardOf("n1", 8)
			rec.Key = []byte(domain.ShardKey("lab", (shard+1)%8, 8))
		}
		rec.Partition = domain.PartitionOf(rec.Key, rec.Topic.Partitions())
		recs = append(recs, rec)
	}
	h, _ := apptest.Open(t, dir)
	if err := errors.Join(h.Log.Append(t.Context(), recs), h.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, h)

	var held projections.QuarantineList
	tell(t, dir, &held, "quarantine", "list")
	misplaced := func(e projections.QuarantineEntry) bool { return e.Kind == projections.KindMisplaced }
	if len(held.Entries) != 2 || !misplaced(held.Entries[0]) || !misplaced(held.Entries[1]) {
		t.Fatalf("%+v", held.Entries)
	}
	id := held.Entries[0].ID // qm.hardware comes first
	code, event := command(t, dir, "quarantine", "show", id, "--event")
	file := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(file, []byte(event), 0o600); err != nil || code != 0 {
		t.Fatalf("exit %d: %s: %v", code, event, err)
	}
	const why = "a client with another hash"
	if code, out := command(t, dir, "quarantine", "repair", id, "--event", file, "--reason", why); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	_, out := command(t, dir, "log", "export", "--topic", "qm.hardware")
	if !strings.Contains(out, `"cites":"`+id) {
		t.Errorf("the repair is not in the log: %s", out)
	}
	if _, out := command(t, dir, "fleet", "--cluster", "lab", "-o", "json"); !strings.Contains(out, "xid 79") {
		t.Errorf("the repaired fault does not count: %s", out)
	}
}

func asList(v any) (list []map[string]any) {
	items, _ := v.([]any)
	for _, x := range items {
		if m, ok := x.(map[string]any); ok {
			list = append(list, m)
		}
	}
	return list
}
