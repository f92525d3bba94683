package podresources

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"quartermaster/domain"
)

// message encodes a message of length-delimited fields.
func message(parts ...any) []byte {
	var b []byte
	for i := 0; i < len(parts); i += 2 {
		b = protowire.AppendTag(b, protowire.Number(parts[i].(int)), protowire.BytesType)
		switch v := parts[i+1].(type) {
		case string:
			b = protowire.AppendString(b, v)
		case []byte:
			b = protowire.AppendBytes(b, v)
		}
	}
	return b
}

func devices(resource string, ids ...string) []byte {
	b := message(1, resource)
	for _, id := range ids {
		b = append(b, message(2, id)...)
	}
	return b
}

func answer() []byte {
	trainer := message(1, "trainer-0", 2, "ml", 3, append(message(
		2, devices("nvidia.com/gpu", "GPU-5a1c0d6e-0000-4000-8000-000000000001", "GPU-5a1c0d6e-0000-4000-8000-000000000002"),
		2, devices("rdma/ib", "mlx5_0"),
		1, "main"), 0x18, 0x03)) // cpu ids, not of interest
	claimed := message(1, "claimed", 2, "dra", 3, message(1, "c", 5, message(
		2, "one-gpu", 3, "dra", 4, message(2, "gpu.nvidia.com", 3, "node-1", 4, "gpu-3"),
		4, message(2, "nic.example.com", 4, "eth0"))))
	idle := message(1, "coredns", 2, "kube-system", 3, message(1, "dns"))
	return message(1, trainer, 1, claimed, 1, idle)
}

// kubelet serves the socket like a gRPC server.
func kubelet(t *testing.T, handle http.HandlerFunc) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handle)
	s.Listener.Close()
	s.Listener = l
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	c := New(socket)
	t.Cleanup(c.Close)
	return c
}

func reply(w http.ResponseWriter, body []byte, status string) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	if body != nil {
		head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
		_, _ = w.Write(append(head, body...))
	}
	w.Header().Set("Grpc-Status", status)
	w.Header().Set("Grpc-Message", "said%20so")
}

func TestList(t *testing.T) {
	c := kubelet(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" || r.Header.Get("Content-Type") != "application/grpc" {
			t.Errorf("asked with %s and %v", r.Proto, r.Header)
		}
		switch r.URL.Path {
		case "/v1.PodResourcesLister/List":
			reply(w, answer(), "0")
		case "/v1.PodResourcesLister/GetAllocatableResources":
			reply(w, message(1, devices("nvidia.com/gpu.shared", "GPU-5a1c0d6e-0000-4000-8000-000000000001::0", "GPU-5a1c0d6e-0000-4000-8000-000000000001::1"), 1, devices("rdma/ib", "x")), "0")
		}
	})
	for range 2 { // the second on the same connection
		held, err := c.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []Held{
			{"ml", "trainer-0", "main", "nvidia.com/gpu", "GPU-5a1c0d6e-0000-4000-8000-000000000001", ""},
			{"ml", "trainer-0", "main", "nvidia.com/gpu", "GPU-5a1c0d6e-0000-4000-8000-000000000002", ""},
			{"dra", "claimed", "c", "gpu.nvidia.com", "gpu-3", "dra/one-gpu"},
		}
		if !slices.Equal(held, want) {
			t.Errorf("held %+v, want %+v", held, want)
		}
	}
	ids, err := c.Allocatable(t.Context())
	if err != nil || len(ids) != 2 {
		t.Errorf("allocatable %v: %v", ids, err)
	}
}

// No invalid answer may be mistaken for an empty one.
func TestBadAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			_, _ = w.Write([]byte{0, 0, 0, 0, 9, 1})
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, "what pods hold"},
		"no trailer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			_, _ = w.Write([]byte{0, 0, 0, 0, 0})
		}, "cut off"},
		"short":    {func(w http.ResponseWriter, _ *http.Request) { reply(w, nil, "0") }, "not one message"},
		"refused":  {func(w http.ResponseWriter, _ *http.Request) { reply(w, nil, "7") }, `status 7: "said so"`},
		"unknown":  {func(w http.ResponseWriter, _ *http.Request) { reply(w, nil, "12") }, "does not offer"},
		"other":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, "not a kubelet"},
		"nonsense": {func(w http.ResponseWriter, _ *http.Request) { reply(w, []byte{0x0a, 0xff}, "0") }, "malformed answer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kubelet(t, c.handle).List(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	_, err := New(filepath.Join(t.TempDir(), "none.sock")).List(t.Context())
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "mount the kubelet's directory") {
		t.Errorf("no socket: %v", err)
	}
	hang := kubelet(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := hang.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a kubelet that hangs: %v", err)
	}
}

func TestParseDevice(t *testing.T) {
	id, err := domain.ParseGPUID("5a1c0d6e-0000-4000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]Device{
		"GPU-5a1c0d6e-0000-4000-8000-000000000001":         {UUID: id},
		"GPU-5a1c0d6e-0000-4000-8000-000000000001::3":      {UUID: id, Replica: 4},
		"MIG-5a1c0d6e-0000-4000-8000-000000000001":         {UUID: id, MIG: true},
		"MIG-5a1c0d6e-0000-4000-8000-000000000001::0":      {UUID: id, MIG: true, Replica: 1},
		"MIG-GPU-5a1c0d6e-0000-4000-8000-000000000001/7/0": {UUID: id, MIG: true, GPUInstance: 7, Within: true},
		"MIG-GPU-5a1c0d6e-0000-4000-8000-000000000001/0/1": {UUID: id, MIG: true, ComputeInstance: 1, Within: true},
		"0":                 {},
		"11::1":             {Index: 11, Replica: 2},
		"nvidia3":           {Index: 3, Minor: true},
		"nvidia3/gi2":       {Index: 3, Minor: true, MIG: true, GPUInstance: 2},
		"nvidia3/vgpu0":     {Index: 3, Minor: true, Replica: 1},
		"nvidia0/gi1/vgpu0": {Minor: true, MIG: true, GPUInstance: 1, Replica: 1},
		"gpu-7":             {Index: 7},
	} {
		if got, err := ParseDevice(text); err != nil || got != want {
			t.Errorf("%s is %+v, want %+v: %v", text, got, want, err)
		}
	}
	for _, text := range []string{
		"", "GPU-", "GPU-5a1c", "GPU-00000000-0000-0000-0000-000000000000", "GPU-5a1c0d6e-0000-4000-8000-000000000001::", "GPU-5a1c0d6e-0000-4000-8000-000000000001::-1",
		"nvidia", "nvidiax", "nvidia0/gi", "nvidia0/vgpu0/gi1", "nvidia0/gi1/vgpu0/x", "nvidia0::1", "gpu-", "gpu-0-mig-", "gpu-0-mig-19-4-4", "0:1", "99999", "01", "-1", "+1", strings.Repeat("9", 300),
	} {
		if got, err := ParseDevice(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}

func FuzzParseDevice(f *testing.F) {
	for _, s := range []string{"GPU-5a1c0d6e-0000-4000-8000-000000000001::0", "nvidia0/gi1/vgpu0", "MIG-GPU-5a1c0d6e-0000-4000-8000-000000000001/7/0", "0:1", "gpu-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDevice(s)
		if err == nil && d.UUID != (domain.GPUID{}) && d.Index != 0 {
			t.Errorf("%q names its device twice: %+v", s, d)
		}
	})
}

func FuzzParseList(f *testing.F) {
	f.Add(answer())
	f.Fuzz(func(t *testing.T, b []byte) {
		held, err := parseList(b)
		if err == nil && len(held) > len(b) {
			t.Errorf("%d devices in %d bytes", len(held), len(b))
		}
	})
}

func TestLabels(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	status := http.StatusOK
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Query().Get("fieldSelector") != "spec.nodeName=n1" {
			t.Errorf("asked %s with %v", r.URL, r.Header)
		}
		w.WriteHeader(status)
		if r.URL.Query().Get("continue") == "" {
			_, _ = w.Write([]byte(`{"metadata":{"continue":"more"},"items":[{"metadata":{"name":"a","namespace":"ml","labels":{"team":"blue"}}}]}`))
			return
		}
		_, _ = w.Write([]byte(`{"metadata":{},"items":[{"metadata":{"name":"b","namespace":"ml"}}]}`))
	}))
	defer s.Close()
	pem := "-----BEGIN CERTIFICATE-----\n" + base64Lines(s.Certificate().Raw) + "-----END CERTIFICATE-----\n"
	l := &Labels{URL: s.URL, TokenFile: write("token", "secret\n"), CAFile: write("ca", pem), Node: "n1"}
	pods, err := l.Pods(t.Context())
	if err != nil || len(pods) != 2 || pods[PodName{"ml", "a"}]["team"] != "blue" {
		t.Errorf("%v: %v", pods, err)
	}
	status = http.StatusForbidden
	if _, err := l.Pods(t.Context()); err == nil || !strings.Contains(err.Error(), "the right to list pods") {
		t.Errorf("forbidden: %v", err)
	}
}

func base64Lines(b []byte) string {
	var out strings.Builder
	for text := base64.StdEncoding.EncodeToString(b); len(text) > 0; {
		n := min(64, len(text))
		out.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	return out.String()
}
