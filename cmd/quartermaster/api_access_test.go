package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quartermaster/adapters/oidc/oidctest"
	"quartermaster/adapters/transport/testcert"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/cmd/quartermaster/internal/daemon"
	"quartermaster/domain/long"
)

// listener is a home that is served at an address, for tests of who may ask.
type listener struct {
	t    testing.TB
	dir  string
	base string
	idp  *oidctest.Provider
	stop func()
}

// listening matches the line that says where the API listens.
var listening = regexp.MustCompile(`serving the API" address=(\S+)`)

// linked matches the line that has a link.
var linked = regexp.MustCompile(`link="?(http://127.0.0.1:[0-9]+)/api/v1/login/open`)

// serveListening serves a home with an identity provider.
func serveListening(t testing.TB, dir string, idp *oidctest.Provider, change func(*config.API)) *listener {
	t.Helper()
	api := config.API{Listen: "127.0.0.1:0"}
	if idp != nil {
		api.Providers = []config.Provider{{Name: "corp", Issuer: idp.URL, Audience: "quartermaster", ClientID: "cli"}}
	}
	if change != nil {
		change(&api)
	}
	return serveAt(t, dir, idp, api, "")
}

// serveAt serves a home at an address for those with a grant, or one for its owner's browser.
func serveAt(t testing.TB, dir string, idp *oidctest.Provider, api config.API, browser string) *listener {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	lines := make(lineWriter, 1000)
	done := make(chan error, 1)
	go func() {
		d := daemon.New(&app.App{Dir: dir}, lines, false)
		d.Browser = browser
		done <- d.Serve(ctx, "127.0.0.1:0", config.Gateway{}, api)
	}()
	s := &listener{t: t, dir: dir, idp: idp}
	ended := false
	s.stop = func() {
		if ended {
			return
		}
		ended = true
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(s.stop)
	for ready := false; !ready; {
		select {
		case line := <-lines:
			if found := listening.FindStringSubmatch(line); found != nil {
				s.base = "http://" + found[1]
				if api.CertFile != "" {
					s.base = "https://" + found[1]
				}
			}
			if found := linked.FindStringSubmatch(line); found != nil {
				s.base = found[1]
			}
			ready = strings.Contains(line, "caught up")
		case err := <-done:
			done <- err
			t.Fatalf("serve ended: %v", err)
		}
	}
	return s
}

// command runs a command on the home, which must succeed.
func (s *listener) command(words ...string) string {
	s.t.Helper()
	out, code := s.try(append(words, "--data-dir", s.dir)...)
	if code != 0 {
		s.t.Fatalf("%s: exit code %d: %s", strings.Join(words, " "), code, out)
	}
	return out
}

// try runs a command, and returns what it writes and its exit code.
func (s *listener) try(words ...string) (string, int) {
	var out bytes.Buffer
	code := run(append(words, "--quiet"), strings.NewReader(""), &out, &out)
	return out.String(), code
}

// get asks as the bearer of a token.
func (s *listener) get(token, path string) reply {
	s.t.Helper()
	return s.send(http.MethodGet, token, path)
}

func (s *listener) send(method, token, path string) reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// becomes asks until the status is as wanted, for the five seconds in which a decision takes effect.
func (s *listener) becomes(want int, token, path string) {
	s.t.Helper()
	var got reply
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if got = s.get(token, path); got.status == want {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
	s.t.Fatalf("%s: after 5 s the status is %d, want %d: %s", path, got.status, want, got.body)
}

// estateOf declares two workspaces.
func estateOf(t testing.TB, dir string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "estate.yaml")
	text := "apiVersion: quartermaster/v1\nkind: Estate\nworkspaces:\n  - {id: research, name: Research}\n  - {id: vision, name: Vision, parent: research}\n  - {id: shop, name: Shop}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := run([]string{"apply", "-f", file, "--data-dir", dir}, strings.NewReader(""), &out, &out); code != 0 {
		t.Fatalf("apply: %s", out.String())
	}
}

// TestWhoMayAsk asks as everybody whom the API can meet: strangers, accounts, users and members of groups; before and
// after a grant, and after its end.
func TestWhoMayAsk(t *testing.T) {
	dir := t.TempDir()
	estateOf(t, dir)
	idp := oidctest.New(t)
	s := serveListening(t, dir, idp, nil)
	const fleet = "/api/v1/fleet"

	for name, token := range map[string]string{
		"nobody": "", "an unknown key": "qms_aaaaaaaaaa_" + strings.Repeat("a", 59), "nonsense": "x", "two words": "a b",
		"a token of nobody known": oidctest.New(t).Token(t, "ana"),
	} {
		got := s.get(token, fleet)
		if got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") != "Bearer" || token != "" && strings.Contains(got.body, token) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	var key struct{ Key string }
	if err := json.Unmarshal([]byte(s.command("access", "key", "issue", "ci", "--workspace", "research", "-o", "json")), &key); err != nil {
		t.Fatal(err)
	}
	s.becomes(http.StatusForbidden, key.Key, fleet) // known, and without a grant
	s.command("access", "grant", "account:ci", "--role", "auditor")
	s.command("access", "grant", "account:ci", "--role", "auditor", "--workspace", "shop")
	s.command("access", "grant", "account:ci", "--role", "auditor", "--workspace", "vision")
	s.becomes(http.StatusOK, key.Key, fleet)
	for _, past := range []string{"@abcdef1", "none.snapshot", "1-none.snapshot", "x"} {
		if got := s.get(key.Key, fleet+"?as_of="+past); got.status/100 != 4 || strings.Contains(got.body, dir) {
			t.Errorf("as of %s: %d %s", past, got.status, got.body)
		}
	}
	// Whoever issues keys in a workspace has no rights of an account of the same name above or beside it.
	if got := s.get(key.Key, "/api/v1/log/stats"); got.status != http.StatusForbidden {
		t.Errorf("a key of a workspace has a right in the root: %d %s", got.status, got.body)
	}
	if got := s.get(key.Key, "/api/v1/get?kind=workspaces"); got.status != http.StatusOK || !strings.Contains(got.body, "vision") || strings.Contains(got.body, "shop") {
		t.Errorf("a key of a workspace sees another, or not its own: %d %s", got.status, got.body)
	}

	ana := idp.Token(t, "ana", "ml", "finance")
	s.becomes(http.StatusForbidden, ana, fleet)
	s.command("access", "grant", "group:corp/finance", "--role", "finance")
	s.becomes(http.StatusOK, ana, fleet)
	if got := s.get(idp.Token(t, "bob", "ml"), fleet); got.status != http.StatusForbidden {
		t.Errorf("who is not in the group: %d %s", got.status, got.body)
	}
	idp.Away.Store(true)
	s.command("access", "revoke", "finance:group:corp/finance")
	s.becomes(http.StatusForbidden, ana, fleet)
	s.command("access", "end-sessions", "user:corp/ana")
	s.becomes(http.StatusUnauthorized, ana, fleet)
	idp.Away.Store(false)
	now := time.Now().Unix()
	ahead := idp.Sign(t, map[string]any{"iss": idp.URL, "sub": "ana", "aud": "quartermaster", "iat": now + 50, "exp": now + 300})
	if got := s.get(ahead, fleet); got.status != http.StatusUnauthorized || !strings.Contains(got.body, "was ended") {
		t.Errorf("a token of before, of a provider whose clock is 50 s ahead: %d %s", got.status, got.body)
	}

	// Who logs out may log in again at once, and has one event of it for many requests.
	cy := idp.Sign(t, map[string]any{"iss": idp.URL, "sub": "cy", "aud": "quartermaster", "iat": now - 2, "exp": now + 300})
	var leaving sync.WaitGroup
	for range 20 {
		leaving.Go(func() {
			if got := s.send(http.MethodDelete, cy, loginRoot); got.status != http.StatusNoContent && got.status != http.StatusUnauthorized {
				t.Errorf("logout: %d %s", got.status, got.body)
			}
		})
	}
	leaving.Wait()
	s.becomes(http.StatusUnauthorized, cy, fleet)
	now = time.Now().Unix()
	s.becomes(http.StatusForbidden, idp.Sign(t, map[string]any{"iss": idp.URL, "sub": "cy", "aud": "quartermaster", "iat": now + 1, "exp": now + 300}), fleet)
	if n := strings.Count(s.command("log", "tail", "--topic", "qm.access", "-n", "1000", "-o", "json"), "logged out"); n < 1 || n > 2 {
		t.Errorf("%d events of a logout", n)
	}

	s.command("access", "key", "revoke", key.Key)
	s.becomes(http.StatusUnauthorized, key.Key, fleet)

	// The owner asks by the socket as before.
	if got := request(t, socketOf(dir), http.MethodGet, fleet); got.status != http.StatusOK {
		t.Errorf("the owner: %d %s", got.status, got.body)
	}
}

// TestWhoAskedIsRecorded counts what was asked against what the log has of it.
func TestWhoAskedIsRecorded(t *testing.T) {
	dir := t.TempDir()
	estateOf(t, dir)
	idp := oidctest.New(t)
	s := serveListening(t, dir, idp, nil)
	s.command("access", "grant", "user:corp/ana", "--role", "viewer", "--workspace", "research")
	ana, bob := idp.Token(t, "ana"), idp.Token(t, "bob")
	const usage = "/api/v1/usage?from=2026-05-01&to=2026-05-02"
	s.becomes(http.StatusOK, ana, usage)
	asked := map[string]int{}
	for range 7 {
		if got := s.get(ana, usage); got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
		if got := s.get(ana, "/api/v1/log/stats"); got.status != http.StatusForbidden {
			t.Fatalf("%d %s", got.status, got.body)
		}
		if got := s.get(bob, usage); got.status != http.StatusForbidden {
			t.Fatalf("%d %s", got.status, got.body)
		}
		asked["ana log stats refused"]++
		asked["bob usage refused"]++
	}
	// A process that ends between appending a journal and removing it appends it again.
	journals := filepath.Join(dir, "access", "api")
	kept, err := filepath.Glob(filepath.Join(journals, "*.jsonl"))
	if err != nil || len(kept) == 0 {
		t.Fatalf("%q, %v", kept, err)
	}
	contents := map[string][]byte{}
	for _, file := range kept {
		if contents[file], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	s.stop()
	for file, content := range contents {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serveListening(t, dir, idp, nil).stop()
	var audit app.AccessAudit
	if err := json.Unmarshal([]byte(s.command("audit", "access", "-o", "json")), &audit); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, a := range audit.Asked {
		who := strings.TrimPrefix(string(a.Principal), "user:corp/")
		got[fmt.Sprintf("%s %s refused", who, a.Operation)] += int(a.Refused)
		got[fmt.Sprintf("%s %s", who, a.Operation)] += int(a.Count - a.Refused)
		if a.Operation == "usage" && who == "ana" && strings.Join(a.Workspaces, " ") != "research vision" {
			t.Errorf("ana saw %q", a.Workspaces)
		}
	}
	for what, n := range asked {
		if got[what] != n {
			t.Errorf("%s: %d in the log, %d were made", what, got[what], n)
		}
	}
	if got["ana usage"] < 8 {
		t.Errorf("ana usage: %d in the log, at least 8 were answered", got["ana usage"])
	}
	if entries, err := os.ReadDir(journals); err != nil || len(entries) > 0 {
		t.Errorf("journals are left: %v, %v", entries, err)
	}
}

// TestLogin logs in by a code, asks with commands, and logs out.
func TestLogin(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	dir := t.TempDir()
	estateOf(t, dir)
	idp := oidctest.New(t)
	idp.Subject = "ana"
	cert := testcert.New(t)
	t.Setenv("SSL_CERT_FILE", cert.Cert)
	s := serveListening(t, dir, idp, nil)
	s.command("access", "grant", "user:corp/ana", "--role", "auditor")
	if out, code := s.try("fleet", "--server", s.base); code != 4 || !strings.Contains(out, "you are not logged in") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	out, code := s.try("login", "--server", s.base)
	if code != 0 || !strings.Contains(out, "enter the code ABCD-EFGH") || !strings.Contains(out, "you are logged in") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	s.becomes(http.StatusOK, idp.Token(t, "ana"), "/api/v1/fleet")
	want := s.command("access", "list", "-o", "json")
	if out, code := s.try("access", "list", "-o", "json", "--server", s.base); code != 0 || timeless(out) != timeless(want) {
		t.Errorf("exit code %d: %s\nwant %s", code, out, want)
	}
	if out, code := s.try("logout", "--server", s.base); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := s.try("fleet", "--server", s.base); code != 4 {
		t.Errorf("after the logout: exit code %d: %s", code, out)
	}
}

// present matches what answers about the present have of it.
var present = regexp.MustCompile(`"(at|last_used|position)": ?"[^"]*"`)

func timeless(answer string) string { return present.ReplaceAllString(answer, "") }

// providerAt starts the identity provider of another make, and returns its issuer.
func providerAt(t *testing.T) string {
	t.Helper()
	program := os.Getenv("QM_IDP")
	if program == "" {
		t.Skip("QM_IDP names no identity provider: go build -C deploy/dev/idp -o FILE .")
	}
	return provided(t, program, "--listen", "127.0.0.1:0")
}

// provided starts an identity provider until the test ends, and returns its issuer.
func provided(t *testing.T, program string, args ...string) string {
	t.Helper()
	issuer, _ := provides(t, program, args...)
	return issuer
}

// provides starts an identity provider until it is stopped, or the test ends.
func provides(t *testing.T, program string, args ...string) (issuer string, stop func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if issuer, ok := strings.CutPrefix(lines.Text(), "issuer "); ok {
			return issuer, stop
		}
	}
	t.Fatalf("%s does not say its issuer", program)
	return "", nil
}

// browser logs in as a user, as a person does who opens the address that login shows.
func browser(t *testing.T, shown, user string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: 10 * time.Second}
	u, err := url.Parse(shown)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"user_code": {u.Query().Get("user_code")}, "username": {user}, "password": {"verysecure"}}
	base := u.Scheme + "://" + u.Host
	for _, ask := range []func() (*http.Response, error){
		func() (*http.Response, error) { return client.PostForm(base+"/device/login", form) },
		func() (*http.Response, error) { return client.Get(base + "/device/confirm?action=allowed") },
	} {
		resp, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("the identity provider answers %s", resp.Status)
		}
	}
}

// verification matches the address that login shows.
var verification = regexp.MustCompile(`Open (\S+) and check`)

// watched keeps what is written, and tells when it has a text.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	seen chan string
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if found := verification.FindStringSubmatch(w.text.String()); found != nil && w.seen != nil {
		w.seen <- found[1]
		w.seen = nil
	}
	return len(p), nil
}

// TestProductionAccess logs in with a real identity provider, asks two instances, revokes, and finds every
// question in the log.
func TestProductionAccess(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	issuer := providerAt(t)
	s := newSite(t)
	s.start()
	s.fill(60)
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	plain := s.config
	s.config = writeConfig(t, "%sapi:\n  listen: 127.0.0.1:0\n  providers: [{name: corp, issuer: %q, audience: quartermaster, client_id: quartermaster-cli, scopes: [openid, offline_access, groups]}]\n", text, issuer)
	bases := map[string]string{}
	instances := map[string]*running{}
	for _, name := range []string{"a", "b"} {
		r := s.serve(name)
		r.says(1, "caught up")
		r.mu.Lock()
		found := listening.FindStringSubmatch(r.lines.String())
		r.mu.Unlock()
		if found == nil {
			t.Fatalf("%s does not say where it listens", name)
		}
		bases[name], instances[name] = "http://"+found[1], r
	}
	s.config = plain
	command := func(words ...string) string {
		t.Helper()
		code, out := s.command(append(words, "--quiet")...)
		if code != 0 {
			t.Fatalf("%q: exit code %d: %s", words, code, out)
		}
		return out
	}
	command("access", "grant", "group:corp/finance", "--role", "auditor")
	for name, base := range bases {
		out := &watched{seen: make(chan string, 1)}
		seen, done := out.seen, make(chan int, 1)
		go func() { done <- run([]string{"login", "--server", base}, strings.NewReader(""), out, out) }()
		browser(t, <-seen, "ana")
		if code := <-done; code != 0 {
			t.Fatalf("login to %s: exit code %d: %s", name, code, out.text.String())
		}
	}
	ask := func(name string) int {
		return run([]string{"fleet", "-o", "json", "--quiet", "--server", bases[name]}, strings.NewReader(""), io.Discard, io.Discard)
	}
	answered := map[string]int{}
	becomes := func(want int) {
		t.Helper()
		for name := range bases {
			end, code := time.Now().Add(5*time.Second), -1
			for code != want {
				if time.Now().After(end) {
					t.Fatalf("%s: after 5 s the exit code is %d, want %d", name, code, want)
				}
				if code = ask(name); code == 0 {
					answered[name]++
				}
			}
		}
	}
	becomes(0)
	for range 20 {
		for name := range bases {
			if ask(name) == 0 {
				answered[name]++
			}
		}
	}
	command("access", "revoke", "auditor:group:corp/finance")
	becomes(4)
	for _, r := range instances {
		r.ends()
	}
	s.serve("c").says(1, "caught up") // rows are folded by instances
	var audit app.AccessAudit
	if err := json.Unmarshal([]byte(command("audit", "access", "--principal", "user:corp/ana", "-o", "json")), &audit); err != nil {
		t.Fatal(err)
	}
	total, refused := 0, 0
	for _, a := range audit.Asked {
		total, refused = total+int(a.Count-a.Refused), refused+int(a.Refused)
	}
	if want := answered["a"] + answered["b"]; total != want || refused < 2 {
		t.Errorf("%d answers and %d refusals are in the log, %d answers were given", total, refused, want)
	}
}

// TestKillsLoseNothingThatWasAsked kills a server without warning while it answers, again and again. Whatever was
// answered is in the log in the end, and nothing that was not asked.
func TestKillsLoseNothingThatWasAsked(t *testing.T) {
	dir := t.TempDir()
	estateOf(t, dir)
	s := &listener{t: t, dir: dir}
	var key struct{ Key string }
	if err := json.Unmarshal([]byte(s.command("access", "key", "issue", "ci", "-o", "json")), &key); err != nil {
		t.Fatal(err)
	}
	s.command("access", "grant", "account:ci", "--role", "auditor")
	kills := 10
	if long.Run() {
		kills = 500
	}
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed))
	var sent, answered atomic.Int64
	for n := range kills {
		cmd := exec.Command("quartermaster", "serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0")
		errs, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		base := ""
		lines := bufio.NewScanner(errs)
		for lines.Scan() {
			if found := listening.FindStringSubmatch(lines.Text()); found != nil && !strings.Contains(found[1], "socket") {
				base = "http://" + found[1]
			}
			if strings.Contains(lines.Text(), "caught up") {
				break
			}
		}
		go func() { _, _ = io.Copy(io.Discard, errs) }()
		if base == "" {
			_ = cmd.Process.Kill()
			t.Fatalf("server %d says no address: %v", n, cmd.Wait())
		}
		after := time.Duration(1+rng.IntN(200)) * time.Millisecond
		killed := make(chan struct{})
		time.AfterFunc(after, func() {
			_ = cmd.Process.Kill()
			close(killed)
		})
		var asking sync.WaitGroup
		for range 3 {
			asking.Go(func() {
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				for {
					req, err := http.NewRequest(http.MethodGet, base+"/api/v1/fleet", nil)
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set("Authorization", "Bearer "+key.Key)
					sent.Add(1)
					resp, err := client.Do(req)
					if err != nil {
						return // it was killed
					}
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if err != nil {
						return
					}
					if resp.StatusCode == http.StatusOK {
						answered.Add(1)
					}
				}
			})
		}
		<-killed
		_ = cmd.Wait()
		asking.Wait()
	}
	serveListening(t, dir, nil, nil).stop()
	var audit app.AccessAudit
	if err := json.Unmarshal([]byte(s.command("audit", "access", "-o", "json")), &audit); err != nil {
		t.Fatal(err)
	}
	var kept int64
	for _, a := range audit.Asked {
		kept += int64(a.Count)
	}
	t.Logf("%d kills, %d questions, %d answers, %d in the log", kills, sent.Load(), answered.Load(), kept)
	if kept < answered.Load() || kept > sent.Load() || answered.Load() == 0 {
		t.Errorf("%d are in the log, of %d that were asked and %d that were answered", kept, sent.Load(), answered.Load())
	}
}
