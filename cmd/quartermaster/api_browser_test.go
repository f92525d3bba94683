package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/kafka/freeport"
	"quartermaster/adapters/oidc/oidctest"
	"quartermaster/adapters/transport/testcert"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
)

const loginRoot = "/api/v1/login"

// agent is a browser: it has cookies, and says from where it asks.
type agent struct {
	t      testing.TB
	base   string
	client *http.Client
}

// newAgent returns a browser that trusts a certificate, nil for none.
func newAgent(t testing.TB, base string, cert *testcert.Certificate) *agent {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	if cert != nil {
		pem, err := os.ReadFile(cert.Cert)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &agent{t, base, &http.Client{
		Jar: jar, Transport: transport, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ask sends a request with headers, in pairs. It follows no redirect.
func (b *agent) ask(method, at string, headers ...string) reply {
	b.t.Helper()
	if strings.HasPrefix(at, "/") {
		at = b.base + at
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, at, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// own asks as a page of the site does.
func (b *agent) own(method, at string) reply {
	b.t.Helper()
	return b.ask(method, at, "Sec-Fetch-Site", "same-origin")
}

// back begins a login, and returns where the provider sends the browser back to.
func (b *agent) back(query string) string {
	b.t.Helper()
	begun := b.ask(http.MethodGet, loginRoot+"/begin"+query)
	if begun.status != http.StatusSeeOther {
		b.t.Fatalf("begin: %d %s", begun.status, begun.body)
	}
	sent := b.ask(http.MethodGet, begun.header.Get("Location"))
	if sent.status != http.StatusFound {
		b.t.Fatalf("the provider: %d %s", sent.status, sent.body)
	}
	return sent.header.Get("Location")
}

// logIn logs in, and returns the answer that begins the session.
func (b *agent) logIn(query string) reply {
	b.t.Helper()
	got := b.ask(http.MethodGet, b.back(query), "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
	if got.status != http.StatusSeeOther {
		b.t.Fatalf("callback: %d %s", got.status, got.body)
	}
	return got
}

// becomes asks until the status is as wanted, for the five seconds in which a decision takes effect.
func (b *agent) becomes(want int, path string) {
	b.t.Helper()
	var got reply
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if got = b.own(http.MethodGet, path); got.status == want {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
	b.t.Fatalf("%s: after 5 s the status is %d, want %d: %s", path, got.status, want, got.body)
}

// cookie returns the cookie that begins with a prefix, "" for none.
func (b *agent) cookie(prefix string) string {
	at, err := url.Parse(b.base)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range b.client.Jar.Cookies(at) {
		if strings.HasPrefix(c.Name, prefix) {
			return c.Value
		}
	}
	return ""
}

// serveBrowsers serves a home over TLS, with a provider that logs in browsers.
func serveBrowsers(t *testing.T, dir string, idp *oidctest.Provider, cert *testcert.Certificate, port int) *listener {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(oidctest.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return serveListening(t, dir, idp, func(api *config.API) {
		api.Listen, api.URL = fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("https://127.0.0.1:%d", port)
		api.CertFile, api.KeyFile = cert.Cert, cert.Key
		api.Providers[0].BrowserClientID, api.Providers[0].BrowserSecretFile = "web", secret
	})
}

// TestBrowserSessions logs in with a browser, asks, is refused, and logs out, as everybody and everything that browsers
// meet.
func TestBrowserSessions(t *testing.T) {
	const fleet, session = "/api/v1/fleet", loginRoot + "/session"
	dir := t.TempDir()
	estateOf(t, dir)
	idp, cert, port := oidctest.New(t), testcert.New(t), freeport.Row(t, 1)
	idp.Subject, idp.Groups = "ana", []string{"finance"}
	s := serveBrowsers(t, dir, idp, cert, port)
	s.command("access", "grant", "group:corp/finance", "--role", "auditor")
	ana := newAgent(t, s.base, cert)
	if got := ana.own(http.MethodGet, fleet); got.status != http.StatusUnauthorized {
		t.Fatalf("nobody: %d %s", got.status, got.body)
	}
	begun := ana.logIn("?return=/pages/costs%3Fmonth=2026-05")
	if at := begun.header.Get("Location"); at != "/pages/costs?month=2026-05" {
		t.Errorf("back to %q", at)
	}
	for _, cookie := range begun.header.Values("Set-Cookie") {
		if !strings.HasPrefix(cookie, "__Host-quartermaster-") || !strings.Contains(cookie, "; Path=/;") || strings.Contains(cookie, "Domain") ||
			!strings.Contains(cookie, "; HttpOnly; Secure; SameSite=Lax") || strings.Contains(cookie, "ana") {
			t.Errorf("cookie %s", cookie)
		}
	}
	if begun.header.Get("Referrer-Policy") != "no-referrer" || begun.header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", begun.header)
	}
	ana.becomes(http.StatusOK, fleet)
	if got := ana.own(http.MethodGet, session); !strings.Contains(got.body, "user:corp/ana") || !strings.Contains(got.body, "until") {
		t.Errorf("session: %s", got.body)
	}

	// What pages of other sites can make a browser send with its cookie.
	for name, sent := range map[string]struct {
		method, path string
		headers      []string
		want         int
	}{
		"a picture of another site":         {http.MethodGet, fleet, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, 403},
		"a script of another port":          {http.MethodGet, fleet, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, 403},
		"a frame":                           {http.MethodGet, fleet, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		"a link":                            {http.MethodGet, fleet, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		"typed":                             {http.MethodGet, fleet, []string{"Sec-Fetch-Site", "none"}, 200},
		"an old browser":                    {http.MethodGet, fleet, nil, 200},
		"an old browser, from elsewhere":    {http.MethodGet, fleet, []string{"Origin", "https://evil.example"}, 403},
		"a form of another site":            {http.MethodPost, "/api/v1/plan", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		"a form of nobody":                  {http.MethodPost, "/api/v1/plan", []string{"Sec-Fetch-Site", "none"}, 403},
		"a form of an old browser":          {http.MethodPost, "/api/v1/plan", []string{"Origin", "https://evil.example"}, 403},
		"a form of an old browser, unnamed": {http.MethodPost, "/api/v1/plan", []string{"Origin", "null"}, 403},
		"a form without an origin":          {http.MethodPost, "/api/v1/plan", nil, 403},
		"a logout of another site":          {http.MethodDelete, loginRoot, []string{"Sec-Fetch-Site", "same-site"}, 403},
	} {
		if got := ana.ask(sent.method, sent.path, sent.headers...); got.status != sent.want {
			t.Errorf("%s: %d, want %d: %s", name, got.status, sent.want, got.body)
		}
	}
	for _, to := range []string{"https://evil.example", "//evil.example", "/\\evil.example", "/\t/evil.example", "javascript:alert(1)", "evil", "http:/x", "/" + strings.Repeat("x", 2000), "///x", "\\\\x", "/a\r\nSet-Cookie: x=y"} {
		if got := ana.ask(http.MethodGet, loginRoot+"/begin?return="+url.QueryEscape(to)); got.status != http.StatusBadRequest {
			t.Errorf("return=%q: %d to %s", to, got.status, got.header.Get("Location"))
		}
	}

	// Mixed up, replayed, and begun by another.
	first := ana.back("")
	second := ana.back("")
	if got := ana.ask(http.MethodGet, first); got.status != http.StatusBadRequest {
		t.Errorf("the answer to another login: %d %s", got.status, got.body)
	}
	if got := ana.ask(http.MethodGet, second); got.status != http.StatusBadRequest {
		t.Errorf("an answer after a wrong one: %d %s", got.status, got.body)
	}
	idp.Subject = "eve"
	eve := newAgent(t, s.base, cert)
	if got := ana.ask(http.MethodGet, eve.back("")); got.status != http.StatusBadRequest {
		t.Errorf("a login that another browser began: %d %s", got.status, got.body)
	}
	if got := ana.own(http.MethodGet, session); !strings.Contains(got.body, "user:corp/ana") {
		t.Errorf("somebody was logged in as another: %s", got.body)
	}
	// Who had a session gets another at a login, and a cookie of one purpose is none of another.
	before := ana.cookie("__Host-quartermaster-session")
	idp.Subject = "ana"
	ana.logIn("")
	after := ana.cookie("__Host-quartermaster-session")
	if before == after || after == "" {
		t.Error("the session is that of before the login")
	}
	stranger := newAgent(t, s.base, cert)
	stranger.back("")
	pending := stranger.cookie("__Host-quartermaster-login")
	for name, cookie := range map[string]string{
		"a login that has begun": pending, "a changed one": after[:40] + "A" + after[41:], "cut": after[:len(after)-2], "empty": "", "text": "ana",
		"long": strings.Repeat("A", 20_000), "a planted one, twice": after + "; __Host-quartermaster-session=" + before,
	} {
		got := newAgent(t, s.base, cert).ask(http.MethodGet, fleet, "Cookie", "__Host-quartermaster-session="+cookie, "Sec-Fetch-Site", "same-origin")
		if got.status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}

	// A session is of no instance and no process, and the provider may be away.
	s.stop()
	idp.Away.Store(true)
	s = serveBrowsers(t, dir, idp, cert, port)
	ana.becomes(http.StatusOK, fleet)
	if got := ana.ask(http.MethodGet, loginRoot+"/begin"); got.status != http.StatusServiceUnavailable {
		t.Errorf("the provider is away: %d %s", got.status, got.body)
	}
	s.command("access", "revoke", "auditor:group:corp/finance")
	ana.becomes(http.StatusForbidden, fleet)
	s.command("access", "end-sessions", "user:corp/ana")
	ana.becomes(http.StatusUnauthorized, fleet)
	s.stop()
	idp.Away.Store(false)
	s = serveBrowsers(t, dir, idp, cert, port)
	ana.logIn("")
	ana.becomes(http.StatusForbidden, fleet)
	other := newAgent(t, s.base, cert)
	other.logIn("")
	if got := ana.own(http.MethodDelete, loginRoot); got.status != http.StatusNoContent || ana.cookie("__Host-quartermaster-session") != "" {
		t.Errorf("logout: %d %s", got.status, got.body)
	}
	other.becomes(http.StatusUnauthorized, fleet)
	s.stop()
	var audit app.AccessAudit
	if err := json.Unmarshal([]byte(s.command("audit", "access", "--principal", "user:corp/ana", "-o", "json")), &audit); err != nil {
		t.Fatal(err)
	}
	logins := 0
	for _, a := range audit.Asked {
		if a.Operation == "login" {
			logins += int(a.Count)
		}
	}
	if logins != 4 {
		t.Errorf("%d logins are in the log, want 4", logins)
	}
}

// TestOpenLink opens a home by its link: once, on this machine, and by its own name.
func TestOpenLink(t *testing.T) {
	const fleet = "/api/v1/fleet"
	dir := t.TempDir()
	estateOf(t, dir)
	s := serveAt(t, dir, nil, config.API{}, "127.0.0.1:0")
	var made struct{ Link, Expires string }
	link := func() string {
		t.Helper()
		out, code := s.try("login", "--server", "unix:"+filepath.Join(dir, "api.sock"), "-o", "json")
		if code != 0 || json.Unmarshal([]byte(out), &made) != nil || made.Link == "" {
			t.Fatalf("exit code %d: %s", code, out)
		}
		return made.Link
	}
	b := newAgent(t, s.base, nil)
	if got := b.own(http.MethodGet, fleet); got.status != http.StatusUnauthorized {
		t.Errorf("without a link: %d %s", got.status, got.body)
	}
	for name, headers := range map[string][]string{
		"another host": {"Host", "evil.example"}, "another port": {"Host", "127.0.0.1:1"}, "a name of loopback": {"Host", strings.Replace(s.base[7:], "127.0.0.1", "localhost", 1)},
	} {
		if got := b.ask(http.MethodGet, link(), headers...); got.status != http.StatusMisdirectedRequest {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	at := link()
	for name, got := range map[string]reply{
		"in advance": b.ask(http.MethodGet, at, "Sec-Purpose", "prefetch"), "HEAD": b.ask(http.MethodHead, at), "POST": b.ask(http.MethodPost, at),
	} {
		if got.status/100 != 4 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	opened := b.ask(http.MethodGet, at, "Sec-Fetch-Site", "none")
	if opened.status != http.StatusSeeOther || strings.Contains(opened.header.Get("Location"), "code") || opened.header.Get("Referrer-Policy") != "no-referrer" {
		t.Fatalf("%d %v %s", opened.status, opened.header, opened.body)
	}
	if got := b.own(http.MethodGet, fleet); got.status != http.StatusOK {
		t.Errorf("the owner: %d %s", got.status, got.body)
	}
	if got := b.ask(http.MethodGet, fleet, "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"); got.status != http.StatusForbidden {
		t.Errorf("a page of another port: %d %s", got.status, got.body)
	}
	if got := b.own(http.MethodPost, loginRoot+"/link"); got.status != http.StatusForbidden {
		t.Errorf("a link for a browser: %d %s", got.status, got.body)
	}
	other := newAgent(t, s.base, nil)
	for _, code := range []string{at, s.base + loginRoot + "/open?code=x", s.base + loginRoot + "/open"} {
		if got := other.ask(http.MethodGet, code); got.status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", code, got.status, got.body)
		}
	}
	if got := other.ask(http.MethodGet, fleet, "Authorization", "Bearer a.b.c"); got.status != http.StatusUnauthorized {
		t.Errorf("a token: %d %s", got.status, got.body)
	}
	if got := b.own(http.MethodDelete, loginRoot); got.status != http.StatusNoContent {
		t.Errorf("logout: %d %s", got.status, got.body)
	}
	if got := b.own(http.MethodGet, fleet); got.status != http.StatusUnauthorized {
		t.Errorf("after the logout: %d %s", got.status, got.body)
	}
	out, code := s.try("serve", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--browser", "0.0.0.0:0")
	if code == 0 || !strings.Contains(out, "other machines could reach it") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
