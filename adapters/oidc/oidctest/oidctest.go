// Package oidctest is an identity provider for tests: discovery, keys that rotate, device authorization (RFC 8628), and
// authorization codes for the client "web", whose secret is [Secret].
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Provider is an identity provider.
type Provider struct {
	*httptest.Server
	// Away makes it answer nothing useful.
	Away atomic.Bool
	// Fetched counts how often its keys were asked for.
	Fetched atomic.Int64
	// Subject logs in at the next device authorization or with the next browser, with Groups.
	Subject string
	Groups  []string
	// Claims changes the claims of ID tokens; nil: it does not. IDToken makes an ID token of claims; nil: it is signed.
	Claims  func(map[string]any)
	IDToken func(map[string]any) string

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	signing *ecdsa.PrivateKey
	polls   int
	codes   map[string]*url.URL // by code, which can be exchanged once
}

// Secret is that of the client "web".
const Secret = "a secret & more"

// New returns a provider with one key, until the test ends.
func New(t testing.TB) *Provider {
	p := &Provider{codes: map[string]*url.URL{}}
	p.Rotate(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{
			"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
			"device_authorization_endpoint": p.URL + "/device", "id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.Fetched.Add(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: p.keys})
	})
	mux.HandleFunc("POST /device", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("client_id") != "cli" || r.FormValue("code_challenge_method") != "S256" {
			answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_client"})
			return
		}
		answer(w, http.StatusOK, map[string]any{
			"device_code": "d-1", "user_code": "ABCD-EFGH", "verification_uri": p.URL + "/enter", "expires_in": 60, "interval": 1,
		})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("client_id") != "web" || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("nonce") == "" {
			http.Error(w, "what is this?", http.StatusBadRequest)
			return
		}
		code := rand.Text()
		p.mu.Lock()
		p.codes[code] = r.URL
		p.mu.Unlock()
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": q["state"], "iss": {p.URL}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("grant_type") == "authorization_code" {
			p.exchange(t, w, r)
			return
		}
		p.mu.Lock()
		p.polls++
		waiting := p.polls == 1
		p.mu.Unlock()
		switch {
		case r.FormValue("grant_type") == "refresh_token" && r.FormValue("refresh_token") == "r-1":
		case r.FormValue("device_code") != "d-1" || r.FormValue("code_verifier") == "":
			answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
			return
		case waiting:
			answer(w, http.StatusBadRequest, map[string]string{"error": "authorization_pending"})
			return
		}
		answer(w, http.StatusOK, map[string]any{
			"access_token": p.Token(t, p.Subject, p.Groups...), "token_type": "Bearer", "expires_in": 300, "refresh_token": "r-1",
		})
	})
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Away.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// exchange answers a code, once.
func (p *Provider) exchange(t testing.TB, w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	began := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	p.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	if id != "web" || secret != url.QueryEscape(Secret) {
		answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if began == nil || began.Query().Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
		began.Query().Get("redirect_uri") != r.FormValue("redirect_uri") {
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	now := time.Now().Unix()
	claims := map[string]any{
		"iss": p.URL, "sub": p.Subject, "aud": "web", "iat": now, "exp": now + 300, "groups": p.Groups, "nonce": began.Query().Get("nonce"),
	}
	if p.Claims != nil {
		p.Claims(claims)
	}
	var token string
	if p.IDToken != nil {
		token = p.IDToken(claims)
	} else {
		token = p.Sign(t, claims)
	}
	answer(w, http.StatusOK, map[string]any{"access_token": "opaque", "token_type": "Bearer", "expires_in": 300, "id_token": token})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// Rotate adds a key, which signs from then on.
func (p *Provider) Rotate(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := fmt.Sprintf("k%d", len(p.keys)+1)
	p.signing = key
	p.keys = append(p.keys, jose.JSONWebKey{Key: key.Public(), KeyID: id, Algorithm: "ES256", Use: "sig"})
}

// Token returns an access token of somebody, for the audience quartermaster and five minutes.
func (p *Provider) Token(t testing.TB, subject string, groups ...string) string {
	now := time.Now().Unix()
	return p.Sign(t, map[string]any{
		"iss": p.URL, "sub": subject, "aud": "quartermaster", "iat": now, "exp": now + 300, "groups": groups,
	})
}

// Sign returns a token with claims, signed with the present key.
func (p *Provider) Sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	key, id := p.Key()
	return Sign(t, jose.ES256, key, id, claims)
}

// Key returns the key that signs now, and its id.
func (p *Provider) Key() (key *ecdsa.PrivateKey, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signing, p.keys[len(p.keys)-1].KeyID
}

// Sign returns a token with claims, signed with any key.
func Sign(t testing.TB, alg jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := s.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
