package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/cmd/quartermaster/internal/daemon"
)

// apiOf holds a data directory with serve, and returns a client of its API.
func apiOf(t testing.TB, dir string) *http.Client {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	lines := make(lineWriter, 1000)
	done := make(chan error, 1)
	go func() {
		done <- daemon.New(&app.App{Dir: dir}, lines, false).Serve(ctx, "127.0.0.1:0", config.Gateway{}, config.API{})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for ready := false; !ready; {
		select {
		case line := <-lines:
			ready = strings.Contains(line, "caught up")
		case err := <-done:
			done <- err
			t.Fatalf("serve ended: %v", err)
		}
	}
	return socketOf(dir)
}

// socketOf returns a client of the API's socket in a data directory.
func socketOf(dir string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "api.sock"))
	}}}
}

// reply is what the API answers.
type reply struct {
	status int
	header http.Header
	body   string
}

// request sends a request to the API.
func request(t testing.TB, client *http.Client, method, target string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://quartermaster"+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// demoEstate makes a data directory with a small estate.
func demoEstate(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	home := filepath.Join("testdata", "first-hour")
	for _, words := range [][]string{
		{"apply", "-f", filepath.Join(home, "estate.yaml")},
		{"import", "nodes", filepath.Join(home, "nodes.csv"), "--cluster", "attic", "--epoch", "2026-05-01"},
		{"import", "usage", filepath.Join(home, "usage.csv"), "--cluster", "earth", "--zone", "UTC", "--gpu-model", "V100"},
	} {
		var errs strings.Builder
		if code := run(append(words, "--data-dir", dir), strings.NewReader(""), io.Discard, &errs); code != 0 {
			t.Fatalf("%v: %s", words, errs.String())
		}
	}
	return dir
}

// TestAPIRefuses sends questions that cannot be answered. Each gets a problem with its kind, and says what to do.
func TestAPIRefuses(t *testing.T) {
	client := apiOf(t, demoEstate(t))
	const usage = "/api/v1/usage?from=2026-05-01&to=2026-05-04"
	for _, c := range []struct {
		method, target string
		status         int
		kind, detail   string
	}{
		{"GET", "/api/v1/nothing", 404, "not_found", "openapi.json lists them"},
		{"GET", "/api/", 404, "not_found", "is not an operation"},
		{"POST", usage, 405, "invalid", "want GET"},
		{"DELETE", "/api/v1/fleet", 405, "invalid", "want GET"},
		{"GET", "/api/v1/plan", 405, "invalid", "want POST"},
		{"POST", "/api/v1/plan?dry_run=false", 400, "invalid", `"dry_run" is not a parameter`},
		{"PUT", "/api/v1/work/none", 405, "invalid", "want GET, HEAD, DELETE"},
		{"GET", "/api/v1/quarantine/list?topic=none", 400, "invalid", "is not a topic of the log"},
		{"GET", "/api/v1/quarantine/list?since=never", 400, "invalid", "since"},
		{"POST", "/api/v1/plan?months=many&months=2", 400, "invalid", "months is given 2 times"},
		{"POST", "/api/v1/plan?chart=x.svg", 400, "invalid", `"chart" is not a parameter`},
		{"GET", "/api/v1/work/none", 404, "not_found", "there is no work"},
		{"GET", "/api/v1/work/none/answer", 404, "not_found", "there is no work"},
		{"DELETE", "/api/v1/work/none", 404, "not_found", "there is no work"},
		{"GET", "/api/v1/usage", 400, "invalid", "from is missing"},
		{"GET", usage + "&form=2026", 400, "invalid", `"form" is not a parameter of usage: did you mean`},
		{"GET", usage + "&from=2026-05-02", 400, "invalid", "from is given 2 times"},
		{"GET", usage + "&by=colour", 400, "invalid", "colour"},
		{"GET", usage + "&cluster=" + strings.Repeat("x", 20_000), 400, "invalid", "at most 16384 are read"},
		{"GET", usage + "&cluster=%ff", 400, "invalid", "is not printable text in UTF-8"},
		{"GET", usage + "&cluster=%zz", 400, "invalid", "invalid URL escape"},
		{"GET", usage + "&output=yaml", 400, "invalid", "want one of json, table, wide, csv"},
		{"GET", usage + "&width=0", 400, "invalid", "want 1 to 10000 characters"},
		{"GET", usage + "&as_of=2200-01-01", 400, "invalid", "is in the future"},
		{"GET", usage + "&as_of=qm.fleet/0=999999", 400, "invalid", "is beyond the end of the log"},
		{"GET", usage + "&as_of=none", 400, "invalid", "is not a point in the log"},
		{"GET", usage + "&as_of=/etc/x.snapshot", 400, "invalid", "without a directory"},
		{"GET", "/api/v1/fleet?nodes=perhaps", 400, "invalid", "want true or false"},
		{"GET", "/api/v1/fleet?data_dir=/etc", 400, "invalid", `"data_dir" is not a parameter`},
		{"GET", "/api/v1/fleet?config=/etc/passwd", 400, "invalid", `"config" is not a parameter`},
		{"GET", "/api/v1/fleet?help=true", 400, "invalid", `"help" is not a parameter`},
		{"GET", "/api/v1/costs/owned?period=2026-05&out=/tmp", 400, "invalid", `"out" is not a parameter`},
		{"GET", "/api/v1/log/tail?follow=true", 400, "invalid", `"follow" is not a parameter`},
		{"GET", "/api/v1/get?kind=--help", 404, "not_found", `there is no kind "--help"`},
		{"GET", "/api/v1/get", 400, "invalid", "kind is missing"},
		{"GET", "/api/v1/plan/show?plan=../../estate", 404, "not_found", "../../estate"},
	} {
		resp := request(t, client, c.method, c.target)
		var p struct {
			Type, Title, Detail string
			Status              int
		}
		if err := json.Unmarshal([]byte(resp.body), &p); err != nil {
			t.Errorf("%s %.80s: %v: %.200s", c.method, c.target, err, resp.body)
			continue
		}
		if resp.status != c.status || p.Status != c.status || p.Type != cli.ProblemType+c.kind || !strings.Contains(p.Detail, c.detail) ||
			resp.header.Get("Content-Type") != "application/problem+json" || resp.header.Get("ETag") != "" {
			t.Errorf("%s %.80s: %d %v %.300s", c.method, c.target, resp.status, resp.header, resp.body)
		}
	}
}

// TestAPITags asks again with the tag of an answer. While nothing is appended there is nothing to send.
func TestAPITags(t *testing.T) {
	dir := demoEstate(t)
	client := apiOf(t, dir)
	const usage = "/api/v1/usage?from=2026-05-01&to=2026-05-04&by=workspace"
	first := request(t, client, "GET", usage)
	tag := first.header.Get("ETag")
	if tag == "" || first.header.Get("Content-Type") != "application/json" || !json.Valid([]byte(first.body)) {
		t.Fatalf("%v\n%.300s", first.header, first.body)
	}
	same := func(target string, want int) {
		t.Helper()
		resp := request(t, client, "GET", target, "If-None-Match", `"other", `+tag)
		if resp.status != want || want == http.StatusNotModified && resp.body != "" {
			t.Errorf("%s: %d %.100s", target, resp.status, resp.body)
		}
	}
	same(usage, http.StatusNotModified)
	same(usage+"&output=table", http.StatusOK)
	same(usage+"&cluster=earth", http.StatusOK)
	if resp := request(t, client, "GET", "/api/v1/fleet"); resp.header.Get("ETag") != "" {
		t.Error("an answer about the present time has a tag")
	}
	if resp := request(t, client, "GET", "/api/v1/fleet?at=2026-06-01"); resp.header.Get("ETag") == "" {
		t.Error("an answer about a given time has no tag")
	}
	if code := run([]string{"operator", "add", "ana", "--role", "planner", "--new-key", filepath.Join(dir, "ana.pem"), "--data-dir", dir},
		strings.NewReader(""), io.Discard, os.Stderr); code != 0 {
		t.Fatal(code)
	}
	same(usage, http.StatusOK) // an answer covers what was appended before the question
}

// TestAPICompression asks every kind of body with and without compression. It is the same after decompression, and a tag
// of one form says that nothing changed in the other.
func TestAPICompression(t *testing.T) {
	client := apiOf(t, demoEstate(t))
	client.Transport.(*http.Transport).DisableCompression = true
	const usage = "/api/v1/usage?from=2026-05-01&to=2026-05-04"
	for _, c := range []struct {
		target string
		packed bool
	}{
		{usage + "&by=workspace,node,hour", true}, {usage + "&by=hour,node&output=csv", true}, {usage + "&by=hour&output=table", true},
		{"/api/v1/openapi.json", true}, {"/api/v1/log/tail?lines=100", true}, {"/api/v1/work", false}, {"/api/v1/nothing", false},
	} {
		plain := request(t, client, http.MethodGet, c.target)
		packed := request(t, client, http.MethodGet, c.target, "Accept-Encoding", "br;q=1, gzip;q=0.8")
		if got := packed.header.Get("Content-Encoding") == "gzip"; got != c.packed || plain.header.Get("Content-Encoding") != "" {
			t.Errorf("%s is compressed: %v", c.target, got)
			continue
		}
		if !c.packed {
			continue
		}
		z, err := gzip.NewReader(strings.NewReader(packed.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(z)
		if err != nil || string(body) != plain.body || len(packed.body) >= len(plain.body) {
			t.Errorf("%s: %d bytes compressed to %d are others: %v", c.target, len(plain.body), len(packed.body), err)
		}
		if packed.header.Get("Content-Type") != plain.header.Get("Content-Type") || packed.header.Get("Vary") != "Accept-Encoding" || plain.header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %v and %v", c.target, plain.header, packed.header)
		}
		tag, weak := plain.header.Get("ETag"), packed.header.Get("ETag")
		if tag == "" {
			continue
		}
		if weak != "W/"+tag {
			t.Errorf("%s has the tags %s and %s", c.target, tag, weak)
		}
		for _, have := range []string{tag, weak} {
			got := request(t, client, http.MethodGet, c.target, "Accept-Encoding", "gzip", "If-None-Match", have)
			if got.status != http.StatusNotModified || got.body != "" || got.header.Get("Content-Encoding") != "" || got.header.Get("ETag") != weak || got.header.Get("Vary") == "" {
				t.Errorf("%s with %s: %+v", c.target, have, got)
			}
		}
		if got := request(t, client, http.MethodHead, c.target, "Accept-Encoding", "gzip"); got.status != http.StatusOK || got.body != "" || got.header.Get("Content-Encoding") != "gzip" || got.header.Get("ETag") != weak {
			t.Errorf("the header of %s: %+v", c.target, got)
		}
	}
}

// TestAPILongAnswers reads an answer of many lines, and asks many questions at once.
func TestAPILongAnswers(t *testing.T) {
	client := apiOf(t, demoEstate(t))
	long := request(t, client, "GET", "/api/v1/log/tail?lines=10000")
	lines := 0
	for line := range strings.Lines(long.body) {
		if !json.Valid([]byte(line)) {
			t.Fatalf("line %d: %.200s", lines, line)
		}
		lines++
	}
	if lines < 200 {
		t.Errorf("%d lines: %.300s", lines, long.body)
	}
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for _, target := range []string{"/api/v1/usage?from=2026-05-01&to=2026-05-04", "/api/v1/usage?from=2026-05-01&to=2026-05-04&as_of=0", "/api/v1/fleet"} {
				if resp := request(t, client, "GET", target); resp.status != http.StatusOK {
					t.Errorf("%s: %d %.200s", target, resp.status, resp.body)
				}
			}
		})
	}
	wg.Wait()
}

// TestAPISocketIsPrivate shows that only the owner may use the socket.
func TestAPISocketIsPrivate(t *testing.T) {
	dir := demoEstate(t)
	apiOf(t, dir)
	info, err := os.Stat(filepath.Join(dir, "api.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// TestServerFlag uses commands with --server where they cannot be asked.
func TestServerFlag(t *testing.T) {
	dir := demoEstate(t)
	t.Setenv("QUARTERMASTER_DATA_DIR", dir) // for the operator's key
	apiOf(t, dir)
	server := "unix:" + filepath.Join(dir, "api.sock")
	for line, want := range map[string]string{
		"plan --server " + server:                                                       "add --dry-run",
		"serve --server " + server:                                                      "it holds the log",
		"apply -f x.yaml --server " + server:                                            "x.yaml",
		"import focus x.csv --server " + server:                                         "it reads files",
		"costs export --period 2026-05 --out x.csv --server " + server:                  "it writes a file",
		"log tail --follow --server " + server:                                          "--follow is not for a server",
		"fleet --data-dir . --server " + server:                                         "leave --data-dir, --brokers and --config out",
		"fleet --server ftp://x":                                                        "want unix:SOCKET or https://HOST",
		"fleet --server unix:" + filepath.Join(dir, "none.sock"):                        "none.sock",
		"usage --from 2026-05-01 --to 2026-05-02 --by colour --server " + server:        "colour",
		"usage --from 2026-05-01 --to 2026-05-02 --as-of 2200-01-01 --server " + server: "in the future",
	} {
		var errs strings.Builder
		code := run(strings.Split(line, " "), strings.NewReader(""), io.Discard, &errs)
		if code == 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d: %s", line, code, errs.String())
		}
	}
	var out strings.Builder
	if code := run([]string{"schema", "fleet", "--server", server}, strings.NewReader(""), &out, io.Discard); code != 0 || !strings.Contains(out.String(), "$defs") {
		t.Errorf("a command that reads no log: %d", code)
	}
}

// TestAPIWork begins long work, follows it, reads its answer, and ends other work.
func TestAPIWork(t *testing.T) {
	dir := demoEstate(t)
	client := apiOf(t, dir)
	begin := func(target string) cli.Work {
		t.Helper()
		var w cli.Work
		resp := request(t, client, "POST", target)
		if err := json.Unmarshal([]byte(resp.body), &w); err != nil || resp.status != http.StatusAccepted || resp.header.Get("Location") != cli.WorkRoot+"/"+w.ID {
			t.Fatalf("%s: %d %v %.300s", target, resp.status, resp.header, resp.body)
		}
		return w
	}
	w := begin("/api/v1/parts/verify")
	one := cli.WorkRoot + "/" + w.ID
	events := request(t, client, "GET", one+"/events").body // until it has ended
	var states []string
	last := ""
	for line := range strings.Lines(events) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &w); err != nil {
				t.Fatal(err)
			}
			states = append(states, w.State)
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			last = strings.TrimSpace(id)
		}
	}
	if !w.Ended() || w.State != cli.WorkDone {
		t.Fatalf("%v\n%s", states, events)
	}
	if again := request(t, client, "GET", one+"/events", "Last-Event-ID", last); again.body != "" || again.status != http.StatusNoContent {
		t.Errorf("after the last event: %d %q", again.status, again.body)
	}
	if again := request(t, client, "GET", one+"/events", "Last-Event-ID", "0"); again.body == "" {
		t.Error("after the first event there is none")
	}
	if wrong := request(t, client, "GET", one+"/events", "Last-Event-ID", "x"); wrong.status != http.StatusBadRequest {
		t.Errorf("a wrong id: %d", wrong.status)
	}
	if answer := request(t, client, "GET", one+"/answer"); answer.status != http.StatusOK || !json.Valid([]byte(answer.body)) {
		t.Errorf("answer: %d %.200s", answer.status, answer.body)
	}

	// There is no demand to plan for: the problem is that of the command.
	failed := begin("/api/v1/plan?at=2026-06-01&output=table&region=nowhere")
	request(t, client, "GET", cli.WorkRoot+"/"+failed.ID+"/events")
	refused := request(t, client, "GET", cli.WorkRoot+"/"+failed.ID+"/answer")
	var out strings.Builder
	run([]string{"plan", "--at", "2026-06-01", "--dry-run", "--region", "nowhere", "-o", "json", "--data-dir", dir}, strings.NewReader(""), &out, io.Discard)
	var problem cli.Problem
	var local struct{ Error, Kind string }
	if err := errors.Join(json.Unmarshal([]byte(refused.body), &problem), json.Unmarshal([]byte(out.String()), &local)); err != nil ||
		problem.Detail == "" || problem.Detail != local.Error || problem.Type != cli.ProblemType+local.Kind || refused.status != problem.Status {
		t.Errorf("%d %.300s\nwant %.300s %v", refused.status, refused.body, out.String(), err)
	}

	// What waits or runs can be ended.
	ended := begin("/api/v1/parts/verify")
	if resp := request(t, client, "DELETE", cli.WorkRoot+"/"+ended.ID); resp.status != http.StatusNoContent {
		t.Errorf("end: %d", resp.status)
	}
	for _, of := range []string{"", "/events", "/answer"} {
		if resp := request(t, client, "GET", cli.WorkRoot+"/"+ended.ID+of); resp.status != http.StatusNotFound {
			t.Errorf("%s of ended work: %d %.300s", of, resp.status, resp.body)
		}
	}
	var all []cli.Work
	if err := json.Unmarshal([]byte(request(t, client, "GET", cli.WorkRoot).body), &all); err != nil || len(all) != 2 {
		t.Errorf("%d of work, %v", len(all), err)
	}
}

// TestAPISlowReader leaves an answer unread. Nobody waits for it: neither the folding nor other questions.
func TestAPISlowReader(t *testing.T) {
	dir := demoEstate(t)
	client := apiOf(t, dir)
	conn, err := net.Dial("unix", filepath.Join(dir, "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 20 { // more than the socket holds
		if _, err := io.WriteString(conn, "GET /api/v1/usage?from=2026-05-01&to=2026-05-04&by=day,workspace HTTP/1.1\r\nHost: x\r\n\r\n"+
			"GET /api/v1/log/tail?lines=10000 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	var errs strings.Builder
	if code := run([]string{"operator", "add", "ana", "--role", "planner", "--new-key", filepath.Join(dir, "ana.pem"), "--data-dir", dir},
		strings.NewReader(""), io.Discard, &errs); code != 0 {
		t.Fatal(errs.String())
	}
	if resp := request(t, client, "GET", "/api/v1/get?kind=operators"); resp.status != http.StatusOK || !strings.Contains(resp.body, `"ana"`) {
		t.Errorf("%d %.300s", resp.status, resp.body)
	}
}
