package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"quartermaster/cmd/quartermaster/internal/app"
)

// loggedIn returns a program with a login to a server.
func loggedIn(t *testing.T, server string, l login) *Program {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	path, err := loginPath(server)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.write(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a login is kept with %v, %v", info.Mode(), err)
	}
	return &Program{App: &app.App{}, server: server, out: io.Discard, err: io.Discard}
}

// TestRedirectSeesNoToken: a server that sends somebody on does not send their token on.
func TestRedirectSeesNoToken(t *testing.T) {
	var shown atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			shown.Add(1)
		}
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	a := loggedIn(t, server.URL, login{Token: &oauth2.Token{AccessToken: "secret"}})
	client, base, err := a.dialer()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.ask(t.Context(), client, http.MethodGet, base+APIRoot+"fleet", nil, io.Discard); err == nil {
		t.Error("a redirect is an answer")
	}
	logout := a.logoutCommand()
	logout.SetContext(t.Context())
	if err := logout.RunE(logout, nil); err == nil {
		t.Error("a redirect ended the session")
	}
	if n := shown.Load(); n > 0 {
		t.Errorf("another server saw the token %d times", n)
	}
}

// TestRenewedOnce: commands that run at once renew a login once, because what renews it is valid once.
func TestRenewedOnce(t *testing.T) {
	var used atomic.Int64
	idp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.FormValue("refresh_token") != "r-1" || used.Add(1) > 1 {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant"})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": "fresh", "token_type": "Bearer", "expires_in": 300, "refresh_token": "r-2",
		})
	}))
	defer idp.Close()
	const server = "https://quartermaster.example"
	a := loggedIn(t, server, login{
		TokenURL: idp.URL, Token: &oauth2.Token{AccessToken: "old", RefreshToken: "r-1", Expiry: time.Now().Add(-time.Minute)},
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if token, err := a.tokenFor(server)(t.Context()); err != nil || token != "fresh" {
				t.Errorf("%q, %v", token, err)
			}
		})
	}
	all.Wait()
}

// TestServerIsPrivate: tokens go to other machines encrypted.
func TestServerIsPrivate(t *testing.T) {
	for server, ok := range map[string]bool{
		"https://quartermaster.example": true, "http://127.0.0.1:7444": true, "http://[::1]:7444": true, "http://localhost:1": true,
		"http://quartermaster.example": false, "http://10.0.0.1:7444": false, "http://127.0.0.1.example:1": false, "http://": false,
	} {
		a := &Program{App: &app.App{}, server: server}
		_, _, err := a.dialer()
		_, at := a.serverBase()
		if (err == nil) != ok || (at == nil) != ok || !ok && !strings.Contains(err.Error(), "https") {
			t.Errorf("%s: %v, %v", server, err, at)
		}
	}
}
