package main

import (
	"bytes"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"quartermaster/adapters/dcgm"
	"quartermaster/adapters/podresources"
	"quartermaster/domain"
)

func TestHoldings(t *testing.T) {
	cut := gpu(2)
	cut.MIG = true
	mig := func(gi uint32) dcgm.Device {
		return dcgm.Device{UUID: domain.DeriveGPUID("mig", "n", int(gi)), GPU: 2, Parent: 3, GPUInstance: gi, Profile: "1g.10gb"}
	}
	devices := []dcgm.Device{gpu(0), gpu(1), cut, mig(1), mig(2), gpu(3)}
	cfg := &Config{Attribution: AttributionConfig{Unmapped: "unmapped", Rules: []RuleConfig{
		{Namespace: "ml", Labels: map[string]string{"tier": "gold"}, Workspace: "{label:pays}", Deployment: "{label:app}-{namespace}"},
		{Namespace: "ml", Deployment: "research"},
		{Namespace: "slurm", Labels: map[string]string{"account": "*"}, Workspace: "{label:account}"},
	}}}
	a := newAttributor(cfg, slog.New(slog.DiscardHandler))
	pod := func(ns, name string, p place, labels map[string]string) claim {
		return claim{place: p, namespace: ns, labels: labels, holder: holder{unit: ns + "/" + name}}
	}
	now := time.Now()
	a.take(2, []claim{
		pod("ml", "a", place{id: devices[0].UUID}, map[string]string{"tier": "gold", "app": "chat", "pays": "acme", "account": "acme"}),
		pod("ml", "b", place{id: devices[1].UUID, replica: 2}, nil),
		pod("slurm", "c", place{index: 2, instance: 1, mig: true}, map[string]string{"account": "acme"}),
		pod("ml", "d", place{id: devices[4].UUID, mig: true}, map[string]string{"app": "{label:tier}"}),
		pod("ml", "gone", place{id: domain.DeriveGPUID("elsewhere", "n", 0)}, nil),
	}, nil, now)
	a.take(1, []claim{{place: place{index: 3}, namespace: "slurm", job: true, labels: map[string]string{"account": "physics"}, holder: holder{unit: "job/7"}}}, nil, now)
	a.shares = map[place]uint32{{id: devices[1].UUID}: 4}
	h := a.holdings("c", "n", devices)
	want := map[slot]holder{
		// A pod has no workspace, whatever its labels are: mapping rules say who pays.
		{devices[0].UUID, 0}: {"", "chat-ml", "ml/a"},
		{devices[1].UUID, 2}: {"", "research", "ml/b"},
		{devices[3].UUID, 0}: {"", "", "slurm/c"},
		{devices[4].UUID, 0}: {"", "research", "ml/d"},
		{devices[5].UUID, 0}: {"physics", "", "job/7"},
	}
	for s, w := range want {
		if h.held[s] != w {
			t.Errorf("%v is held by %+v, want %+v", s, h.held[s], w)
		}
	}
	if len(h.held) != len(want) || h.shares[devices[1].UUID] != 4 {
		t.Errorf("%d held, shares %v", len(h.held), h.shares)
	}

	// After a kubelet restart, the previous pods are used for a while.
	a.take(2, nil, errors.New("connection refused"), now.Add(time.Minute))
	if h := a.holdings("c", "n", devices); len(h.held) != len(want) || a.faults[2] == "" {
		t.Error("what the kubelet said last is forgotten at once")
	}
	a.take(2, nil, errors.New("connection refused"), now.Add(time.Hour))
	if h := a.holdings("c", "n", devices); len(h.held) != 1 {
		t.Errorf("%d are held by what the kubelet said an hour ago", len(h.held))
	}
	// The static file takes precedence.
	claims, err := parseStatic("3 owner\n")
	a.take(0, claims, err, now)
	if h := a.holdings("c", "n", devices); h.held[slot{devices[5].UUID, 0}].workspace != "owner" {
		t.Errorf("%+v", h.held)
	}
}

// Only sources that were asked and answered can show that a device has no holder.
func TestHoldersUnknown(t *testing.T) {
	a := newAttributor(&Config{}, slog.New(slog.DiscardHandler))
	unknown := func() bool { return a.holdings("c", "n", []dcgm.Device{gpu(0)}).unknown }
	if !unknown() {
		t.Error("nothing was asked, and nobody holds it")
	}
	a.cfg.Attribution.Static, a.cfg.Attribution.Slurm.Processes = "holders", true
	now, down := time.Now(), errors.New("down")
	for i, c := range []struct {
		source int
		err    error
		after  time.Duration
		want   bool
	}{
		{0, nil, 0, true}, {1, down, 0, true}, {1, nil, time.Second, false}, {1, down, staleAfter, false},
		{1, down, staleAfter + 2*time.Second, true}, {1, nil, time.Hour, false},
	} {
		a.take(c.source, nil, c.err, now.Add(c.after))
		if got := unknown(); got != c.want {
			t.Errorf("%d: source %d, %v after %v: %v", i, c.source, c.err, c.after, got)
		}
	}
	r := &reading{interval: domain.Interval{From: noon, To: noon + domain.Second}, devices: []dcgm.Device{gpu(0)}}
	for _, want := range []bool{false, true} {
		if e, _ := r.sample("c", "n", &holdings{unknown: want}, 0); e.HoldersUnknown != want {
			t.Errorf("a sample says %v, want %v", e.HoldersUnknown, want)
		}
	}
}

// The driver numbers GPUs in one order and the files of their devices in another. Each source uses
// one of the two numbers.
func TestMinorNumbers(t *testing.T) {
	devices := []dcgm.Device{gpu(0), gpu(1), gpu(2), {UUID: domain.DeriveGPUID("mig", "n", 1), GPU: 2, Parent: 3, GPUInstance: 1, Profile: "1g.10gb"}, gpu(3)}
	for i, minor := range []uint32{3, 0, 1, 1} {
		devices[i].Minor = minor + 1
	}
	// GPU 3 was lost before its minor number was known.
	for id, want := range map[string][]int{
		"nvidia0": {1}, "nvidia1": {2, 3}, "nvidia2": nil, "nvidia3": {0}, "nvidia1/gi1": {3}, "nvidia3/gi1": nil, "nvidia0/vgpu1": {1},
		"0": {0}, "1": {1}, "2": {2, 3}, "3": {4}, "gpu-0": {0},
	} {
		d, err := podresources.ParseDevice(id)
		if err != nil {
			t.Fatal(err)
		}
		var ids []domain.GPUID
		for _, i := range want {
			ids = append(ids, devices[i].UUID)
		}
		if got := find("c", "n", devices, placeOf(&d)); !slices.Equal(got, ids) {
			t.Errorf("%s is %v, want devices %v", id, got, want)
		}
	}
	// Without minor numbers, the indices are used.
	if got := find("c", "n", []dcgm.Device{gpu(0), gpu(1)}, place{index: 1, minor: true}); !slices.Equal(got, []domain.GPUID{gpu(1).UUID}) {
		t.Errorf("%v", got)
	}
}

// While Kubernetes does not answer, the previous labels of pods are used for a while. A pod with
// unknown labels does not match a later rule instead.
func TestLabelsUnknown(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "kubelet.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	text := func(n protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), s)
	}
	part := func(n protowire.Number, parts ...[]byte) []byte { return text(n, string(bytes.Join(parts, nil))) }
	pods := map[string]string{"web-0": gpu(0).UUID.String()}
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body []byte
		if strings.HasSuffix(r.URL.Path, "/List") {
			for pod, id := range pods {
				body = append(body, part(1, text(1, pod), text(2, "ml"), part(3, text(1, "main"), part(2, text(1, "nvidia.com/gpu"), text(2, id))))...)
			}
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...))
		w.Header().Set("Grpc-Status", "0")
	}))
	kubelet.Listener.Close()
	kubelet.Listener, kubelet.Config.Protocols = l, new(http.Protocols)
	kubelet.Config.Protocols.SetUnencryptedHTTP2(true)
	kubelet.Start()
	defer kubelet.Close()
	broken := false
	kubernetes := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken {
			http.Error(w, "etcd has no leader", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(`{"items":[{"metadata":{"name":"web-0","namespace":"ml","labels":{"team":"blue"}}}]}`))
	}))
	defer kubernetes.Close()
	for name, b := range map[string][]byte{"token": []byte("t"), "ca": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: kubernetes.Certificate().Raw})} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := newAttributor(&Config{Attribution: AttributionConfig{Unmapped: "unmapped", Rules: []RuleConfig{
		{Labels: map[string]string{"team": "*"}, Deployment: "{label:team}"}, {Namespace: "ml", Deployment: "shared"},
	}}}, slog.New(slog.DiscardHandler))
	a.kubelet = podresources.New(socket)
	defer a.kubelet.Close()
	a.labels = &podresources.Labels{URL: kubernetes.URL, TokenFile: filepath.Join(dir, "token"), CAFile: filepath.Join(dir, "ca"), Node: "n"}
	now := time.Now()
	held := func(after time.Duration, i uint32) string {
		t.Helper()
		a.refresh(t.Context(), now.Add(after))
		return a.holdings("c", "n", []dcgm.Device{gpu(0), gpu(1)}).held[slot{gpu(i).UUID, 0}].deployment
	}
	if got := held(0, 0); got != "blue" || a.faults[2] != "" {
		t.Fatalf("held by %q, %s", got, a.faults[2])
	}
	broken = true
	pods["new"] = gpu(1).UUID.String()
	if got := held(time.Minute, 0); got != "blue" || !strings.Contains(a.faults[2], "etcd has no leader") {
		t.Errorf("after a minute without labels it is held by %q, %s", got, a.faults[2])
	}
	if got := held(time.Minute, 1); got != "" {
		t.Errorf("a pod whose labels nobody knows is held by %q", got)
	}
	if got := held(time.Hour, 0); got != "" {
		t.Errorf("after an hour without labels it is held by %q", got)
	}
	broken = false
	if got := held(2*time.Hour, 0); got != "blue" || a.faults[2] != "" {
		t.Errorf("it is held by %q, %s", got, a.faults[2])
	}
	// A pod that Kubernetes no longer lists, because it has just ended, keeps its previous labels.
	a.labelled[podresources.PodName{Namespace: "ml", Pod: "new"}] = map[string]string{"team": "red"}
	if got := held(2*time.Hour, 1); got != "red" {
		t.Errorf("it is held by %q", got)
	}
}

func TestStaticFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holders")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := staticFile{path: path}
	if _, err := f.read(); err == nil {
		t.Error("no file, and no error")
	}
	write("# who holds what\n* platform\n0 research train trainer-0 # a comment\n1 research - job\n\nGPU-5a1c0d6e-0000-4000-8000-000000000001 acme\nnonsense acme\n2\n3 -\n4 a b c d\n")
	claims, err := f.read()
	for _, want := range []string{"line 7", "line 8: 1 words", "line 9: no workspace", "line 10: 5 words"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if len(claims) != 4 || claims[3].place.index != anyDevice {
		t.Fatalf("%+v: what names a device comes before what names all", claims)
	}
	if claims[0].holder != (holder{"research", "train", "trainer-0"}) || claims[1].holder != (holder{"research", "", "job"}) {
		t.Errorf("%+v", claims)
	}
	write("0 other\n")
	if claims, err := f.read(); err != nil || len(claims) != 1 || claims[0].holder.workspace != "other" {
		t.Errorf("a change is not seen: %+v, %v", claims, err)
	}
}

func FuzzStatic(f *testing.F) {
	f.Add("* platform\n0 research train trainer-0 # a comment\n")
	f.Add("GPU-5a1c0d6e-0000-4000-8000-000000000001::1 acme - unit")
	f.Fuzz(func(t *testing.T, text string) {
		claims, _ := parseStatic(text)
		if len(claims) > strings.Count(text, "\n")+1 {
			t.Errorf("%d claims", len(claims))
		}
		for _, c := range claims {
			if c.holder.workspace == "" {
				t.Errorf("a claim without a workspace: %+v", c)
			}
		}
	})
}

func FuzzRule(f *testing.F) {
	f.Add("{label:app}-{namespace}", "ml", "a", "{label:a}")
	f.Fuzz(func(_ *testing.T, text, ns, key, value string) {
		r := RuleConfig{Workspace: text, Labels: map[string]string{key: "*"}}
		c := &claim{namespace: ns, labels: map[string]string{key: value}}
		r.matches(c)
		r.fill(text, c) // terminates
	})
}
