package main

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/kafka/freeport"
	"quartermaster/adapters/transport/testcert"
	"quartermaster/cmd/quartermaster/internal/config"
)

// person is somebody who clicks through the pages of an identity provider.
type person struct {
	t      *testing.T
	name   string
	client *http.Client
	at     *url.URL
}

// stopsAt is the path at which a person is back from the provider.
const stopsAt = loginRoot + "/callback"

func newPerson(t *testing.T) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &person{t: t, name: "ana", client: &http.Client{Jar: jar, Timeout: 10 * time.Second, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == stopsAt {
			return http.ErrUseLastResponse
		}
		return nil
	}}}
}

// Parts of pages with a form.
var (
	formAction = regexp.MustCompile(`<form[^>]*action="([^"]*)"`)
	formInput  = regexp.MustCompile(`<input[^>]*name="([^"]+)"[^>]*>`)
	inputValue = regexp.MustCompile(`value="([^"]*)"`)
	allowing   = regexp.MustCompile(`href='([^']*action=allowed)'`)
)

// through opens an address and fills in whatever forms come. It returns where the provider sends the browser back
// to, "" if it has nothing more to ask.
func (p *person) through(address string) (back string) {
	p.t.Helper()
	ask := func(address string, form url.Values) (string, string) {
		p.t.Helper()
		method := http.MethodGet
		if form != nil {
			method = http.MethodPost
		}
		req, err := http.NewRequestWithContext(p.t.Context(), method, address, strings.NewReader(form.Encode()))
		if err != nil {
			p.t.Fatal(err)
		}
		if form != nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		resp, err := p.client.Do(req)
		if err != nil {
			p.t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			p.t.Fatal(err)
		}
		if at, err := resp.Location(); err == nil && at.Path == stopsAt {
			return "", at.String()
		}
		if p.at = resp.Request.URL; resp.StatusCode != http.StatusOK {
			p.t.Fatalf("%s answers %s: %s", p.at, resp.Status, page)
		}
		return string(page), ""
	}
	page, back := ask(address, nil)
	for range 6 {
		if back != "" {
			return back
		}
		if link := allowing.FindStringSubmatch(page); link != nil {
			page, back = ask(p.on(link[1]), nil)
			continue
		}
		action := formAction.FindStringSubmatch(page)
		if action == nil {
			return ""
		}
		fields := url.Values{}
		for _, input := range formInput.FindAllStringSubmatch(page, -1) {
			value := ""
			if found := inputValue.FindStringSubmatch(input[0]); found != nil {
				value = html.UnescapeString(found[1])
			}
			switch input[1] {
			case "username":
				value = p.name
			case "password":
				value = "verysecure"
			}
			fields.Set(input[1], value)
		}
		if strings.Contains(page, "op.deviceConfirmForm") {
			fields.Set("confirm", "yes")
		}
		page, back = ask(p.on(action[1]), fields)
	}
	p.t.Fatalf("the provider asks for more and more: %s", page)
	return ""
}

// on returns an address that a page names.
func (p *person) on(address string) string {
	p.t.Helper()
	u, err := p.at.Parse(html.UnescapeString(address))
	if err != nil {
		p.t.Fatal(err)
	}
	return u.String()
}

// TestProductionProviders logs in with real identity providers of two makes: by device and with a browser. It renews a login,
// asks as a program, and starts the provider again with other keys.
func TestProductionProviders(t *testing.T) {
	for name, start := range map[string]func(port int, redirect string) (program string, args []string){
		"zitadel": func(port int, redirect string) (string, []string) {
			return os.Getenv("QM_IDP"), []string{"--listen", fmt.Sprintf("127.0.0.1:%d", port), "--redirect", redirect}
		},
		"oidc-provider": func(port int, redirect string) (string, []string) {
			return os.Getenv("QM_IDP_NODE"), []string{"start", fmt.Sprint(port), redirect}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ports := freeport.Row(t, 2)
			redirect := fmt.Sprintf("https://localhost:%d%s", ports+1, stopsAt)
			program, args := start(ports, redirect)
			if program == "" {
				t.Skip("QM_IDP and QM_IDP_NODE name the identity providers: see deploy/dev/README.md")
			}
			issuer, stop := provides(t, program, args...)
			testProvider(t, issuer, ports+1, func() {
				stop()
				if again, _ := provides(t, program, args...); again != issuer {
					t.Fatalf("the issuer is %s, was %s", again, issuer)
				}
			})
		})
	}
}

func testProvider(t *testing.T, issuer string, port int, again func()) {
	const fleet, session = "/api/v1/fleet", loginRoot + "/session"
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	dir := t.TempDir()
	estateOf(t, dir)
	cert := testcert.New(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of tests & alone"), 0o600); err != nil {
		t.Fatal(err)
	}
	provider := config.Provider{
		Name: "corp", Issuer: issuer, Audience: "quartermaster", ClientID: "quartermaster-cli", Scopes: []string{"openid", "offline_access", "groups"},
		BrowserClientID: "quartermaster-web", BrowserSecretFile: secret,
	}
	s := serveAt(t, dir, nil, config.API{
		Listen: fmt.Sprintf("127.0.0.1:%d", port), URL: fmt.Sprintf("https://localhost:%d", port), CertFile: cert.Cert, KeyFile: cert.Key,
		Providers: []config.Provider{provider},
	}, "")
	s.command("access", "grant", "group:corp/finance", "--role", "auditor")

	// A browser.
	b := newAgent(t, fmt.Sprintf("https://localhost:%d", port), cert)
	logIn := func() {
		t.Helper()
		begun := b.ask(http.MethodGet, loginRoot+"/begin")
		if begun.status != http.StatusSeeOther {
			t.Fatalf("begin: %d %s", begun.status, begun.body)
		}
		back := newPerson(t).through(begun.header.Get("Location"))
		if back == "" {
			t.Fatal("the provider sends nobody back")
		}
		if got := b.ask(http.MethodGet, back); got.status != http.StatusSeeOther {
			t.Fatalf("callback: %d %s", got.status, got.body)
		}
		if got := b.ask(http.MethodGet, back); got.status != http.StatusBadRequest {
			t.Errorf("the same answer again: %d %s", got.status, got.body)
		}
	}
	logIn()
	if got := b.own(http.MethodGet, session); !strings.Contains(got.body, "user:corp/ana") {
		t.Errorf("session: %s", got.body)
	}
	b.becomes(http.StatusOK, fleet)

	// The command line, whose server is one without TLS, because it trusts the system's authorities.
	other := t.TempDir()
	estateOf(t, other)
	plain := serveAt(t, other, nil, config.API{Listen: "127.0.0.1:0", Providers: []config.Provider{provider}, URL: "http://localhost"}, "")
	plain.command("access", "grant", "group:corp/finance", "--role", "auditor")
	login := func() {
		t.Helper()
		out := &watched{seen: make(chan string, 1)}
		seen, done := out.seen, make(chan int, 1)
		go func() { done <- run([]string{"login", "--server", plain.base}, strings.NewReader(""), out, out) }()
		newPerson(t).through(<-seen)
		if code := <-done; code != 0 {
			t.Fatalf("login: exit code %d: %s", code, out.text.String())
		}
	}
	asks := func() {
		t.Helper()
		if out, code := plain.try("fleet", "--server", plain.base); code != 0 {
			t.Errorf("exit code %d: %s", code, out)
		}
	}
	login()
	asks()
	if t.Name() == "TestProductionProviders/oidc-provider" {
		program := clientToken(t, issuer)
		plain.becomes(http.StatusForbidden, program, fleet) // known, and without a grant
		plain.command("access", "grant", "user:corp/quartermaster-service", "--role", "viewer")
		plain.becomes(http.StatusOK, program, fleet)
		// The token is over, and is renewed. The example that idp is made of renews none of a device.
		files, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "quartermaster", "logins", "*.json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%q, %v", files, err)
		}
		before := edited(t, files[0], func(token map[string]any) { token["expiry"] = "2026-01-01T00:00:00Z" })
		asks()
		if after := edited(t, files[0], func(map[string]any) {}); after["access_token"] == before["access_token"] {
			t.Error("the login was not renewed")
		}
	}

	// Other keys.
	again()
	b.becomes(http.StatusOK, fleet) // the provider is not needed for a session
	deadline := time.Now().Add(30 * time.Second)
	for { // keys are fetched once in ten seconds
		begun := b.ask(http.MethodGet, loginRoot+"/begin")
		back := newPerson(t).through(begun.header.Get("Location"))
		if got := b.ask(http.MethodGet, back); got.status == http.StatusSeeOther {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("after other keys: %d %s", got.status, got.body)
		}
		<-time.After(time.Second)
	}
	login()
	for {
		out, code := plain.try("fleet", "--server", plain.base)
		if code == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after other keys: exit code %d: %s", code, out)
		}
		<-time.After(time.Second)
	}
}

// clientToken returns an access token that a program gets by its own credentials.
func clientToken(t *testing.T, issuer string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {"groups"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, issuer+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth("quartermaster-service", url.QueryEscape("of tests & alone"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Token == "" {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return got.Token
}

// edited changes the token of a login, and returns it.
func edited(t *testing.T, file string, change func(token map[string]any)) map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var login map[string]any
	if err := json.Unmarshal(text, &login); err != nil {
		t.Fatal(err)
	}
	token := login["token"].(map[string]any)
	change(token)
	if text, err = json.Marshal(login); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return token
}
