package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/cmd/quartermaster/internal/daemon"
)

// lineWriter hands on each line written.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// What the demo read from is closed before its log is held open for other commands.
func TestHoldOpen(t *testing.T) {
	on := &app.App{Dir: t.TempDir()}
	lines := make(lineWriter, 100)
	p := commandLine(on, io.Discard, lines)
	if err := on.For(app.Everyone).Begin(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.HoldOpen(ctx, "127.0.0.1:0") }()
	for ready := false; !ready; {
		select {
		case line := <-lines:
			ready = strings.Contains(line, "caught up")
		case err := <-done:
			t.Fatalf("it ended: %v", err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestServe holds a data directory with serve, uses it from a second command through the
// socket, reads its endpoints and stops it.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	lines := make(lineWriter, 100)
	done := make(chan error, 1)
	go func() {
		d := daemon.New(&app.App{Dir: dir}, lines, false)
		d.OwnWait = time.Second
		done <- d.Serve(ctx, "127.0.0.1:0", config.Gateway{}, config.API{})
	}()
	address, ready := "", false
	for !ready {
		select {
		case line := <-lines:
			if m := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(line); m != nil {
				address = m[1]
			}
			ready = strings.Contains(line, "caught up")
		case err := <-done:
			t.Fatalf("serve ended: %v", err)
		}
	}
	var out, errs strings.Builder
	if code := run([]string{"--data-dir", dir, "operator", "add", "ana", "--role", "planner", "--new-key", dir + "/ana.pem", "-o", "json"}, strings.NewReader(""), &out, &errs); code != 0 {
		t.Fatalf("a second command failed: %s", errs.String())
	}
	if !strings.Contains(out.String(), `"operator": "ana"`) {
		t.Errorf("operator add answered %s", out.String())
	}
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(path); code != http.StatusOK {
			t.Errorf("GET %s: %d %s", path, code, body)
		}
	}
	if _, body := get("/metrics"); !strings.Contains(body, "quartermaster_records_total") {
		t.Errorf("metrics lack the folds' counters:\n%s", body)
	}
	if code, body := get("/debug/pprof/heap?debug=1"); code != http.StatusOK || !strings.Contains(body, "heap profile") {
		t.Errorf("profile of the heap: %d %.100s", code, body)
	}
	second := daemon.New(&app.App{Dir: dir}, io.Discard, false)
	second.OwnWait = 10 * time.Millisecond
	if err := second.Serve(t.Context(), "127.0.0.1:0", config.Gateway{}, config.API{}); err == nil || !strings.Contains(err.Error(), "another process holds") {
		t.Errorf("a second serve: %v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
}
