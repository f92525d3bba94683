package oidc_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"quartermaster/adapters/oidc"
	"quartermaster/adapters/oidc/oidctest"
)

func browserOf(p *oidctest.Provider, now func() time.Time) *oidc.Verifier {
	return oidc.New([]oidc.Provider{{
		Name: "corp", Issuer: p.URL, Audience: "quartermaster",
		Browser: oidc.Client{ID: "web", Secret: oidctest.Secret, Redirect: "https://q.example/callback", Scopes: []string{"openid"}},
	}}, now, slog.New(slog.DiscardHandler))
}

// sent returns the query with which the provider sends a browser back.
func sent(t *testing.T, to string) url.Values {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Get(to)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	at, err := resp.Location()
	if err != nil {
		t.Fatal(err)
	}
	return at.Query()
}

func TestBrowser(t *testing.T) {
	p := oidctest.New(t)
	p.Subject, p.Groups = "ana", []string{"ml", "finance"}
	v := browserOf(p, time.Now)
	to, login, err := v.Begin(t.Context(), "corp")
	if err != nil {
		t.Fatal(err)
	}
	answer := sent(t, to)
	id, err := v.Finish(t.Context(), login, answer)
	if err != nil || id.Principal != "user:corp/ana" || len(id.Groups) != 2 || id.Groups[0] != "group:corp/finance" {
		t.Fatalf("%+v, %v", id, err)
	}
	if _, err := v.Finish(t.Context(), login, answer); !errors.Is(err, oidc.ErrLogin) {
		t.Errorf("a code is taken twice: %v", err)
	}
	p.Rotate(t)
	if _, err = v.Finish(t.Context(), login, url.Values{}); !errors.Is(err, oidc.ErrLogin) {
		t.Errorf("no answer: %v", err)
	}
	if _, _, err := v.Begin(t.Context(), "other"); !errors.Is(err, oidc.ErrLogin) {
		t.Errorf("an unknown provider: %v", err)
	}
}

// TestBrowserAnswers refuses answers that are not those of the provider to this login.
func TestBrowserAnswers(t *testing.T) {
	p := oidctest.New(t)
	p.Subject = "ana"
	v := browserOf(p, time.Now)
	for name, change := range map[string]func(url.Values){
		"the state of another login": func(q url.Values) { q.Set("state", "x") },
		"no state":                   func(q url.Values) { q.Del("state") },
		"two states":                 func(q url.Values) { q.Add("state", q.Get("state")) },
		"another issuer":             func(q url.Values) { q.Set("iss", "https://evil.example") },
		"no code":                    func(q url.Values) { q.Del("code") },
		"two codes":                  func(q url.Values) { q.Add("code", "x") },
		"another code":               func(q url.Values) { q.Set("code", "x") },
		"a code of a megabyte":       func(q url.Values) { q.Set("code", strings.Repeat("x", 1<<20)) },
		"an error":                   func(q url.Values) { q.Set("error", "access_denied") },
	} {
		to, login, err := v.Begin(t.Context(), "corp")
		if err != nil {
			t.Fatal(err)
		}
		answer := sent(t, to)
		change(answer)
		if id, err := v.Finish(t.Context(), login, answer); !errors.Is(err, oidc.ErrLogin) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
	to, login, err := v.Begin(t.Context(), "corp")
	if err != nil {
		t.Fatal(err)
	}
	answer := sent(t, to)
	login.Verifier = strings.Repeat("x", 43)
	if _, err := v.Finish(t.Context(), login, answer); !errors.Is(err, oidc.ErrLogin) {
		t.Errorf("a code without the verifier of its login: %v", err)
	}
	p.Away.Store(true)
	if _, err := v.Finish(t.Context(), login, answer); !errors.Is(err, oidc.ErrUnavailable) {
		t.Errorf("the provider is away: %v", err)
	}
}

// TestBrowserIDTokens refuses ID tokens that the provider did not make for this login.
func TestBrowserIDTokens(t *testing.T) {
	p := oidctest.New(t)
	p.Subject = "ana"
	v := browserOf(p, time.Now)
	key, id := p.Key()
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	other, _ := oidctest.New(t).Key()
	set := func(name string, value any) func(map[string]any) {
		return func(c map[string]any) { c[name] = value }
	}
	encode := base64.RawURLEncoding.EncodeToString
	unsigned := func(header string) func(map[string]any) string {
		return func(c map[string]any) string {
			payload, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			return encode([]byte(header)) + "." + encode(payload) + "."
		}
	}
	now := time.Now().Unix()
	for name, of := range map[string]struct {
		claims func(map[string]any)
		token  func(map[string]any) string
	}{
		"another nonce":     {claims: set("nonce", "x")},
		"no nonce":          {claims: func(c map[string]any) { delete(c, "nonce") }},
		"another audience":  {claims: set("aud", "quartermaster")},
		"another party":     {claims: set("azp", "other")},
		"two audiences":     {claims: set("aud", []string{"web", "other"})},
		"another issuer":    {claims: set("iss", "https://evil.example")},
		"no subject":        {claims: set("sub", "")},
		"a subject of text": {claims: set("sub", "a\nb")},
		"expired":           {claims: set("exp", now-120)},
		"of the future":     {claims: set("iat", now+3600)},
		"another access":    {claims: set("at_hash", "AAAAAAAAAAAAAAAAAAAAAA")},
		"too many groups":   {claims: set("groups", strings.Split(strings.Repeat("g,", 10_000), ","))},
		"groups of numbers": {claims: set("groups", []int{1})},
		"none":              {token: unsigned(`{"alg":"none"}`)},
		"None":              {token: unsigned(`{"alg":"None"}`)},
		"no signature":      {token: unsigned(`{"alg":"ES256","kid":"` + id + `"}`)},
		"a public key as a secret": {token: func(c map[string]any) string {
			return oidctest.Sign(t, jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), id, c)
		}},
		"another key": {token: func(c map[string]any) string { return oidctest.Sign(t, jose.ES256, other, id, c) }},
		"no token":    {token: func(map[string]any) string { return "" }},
		"too long":    {token: func(map[string]any) string { return strings.Repeat("x", 100<<10) }},
	} {
		p.Claims, p.IDToken = of.claims, of.token
		to, login, err := v.Begin(t.Context(), "corp")
		if err != nil {
			t.Fatal(err)
		}
		who, err := v.Finish(t.Context(), login, sent(t, to))
		if !errors.Is(err, oidc.ErrLogin) || len(err.Error()) > 500 {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
}
