// Package oidctest is an identity provider for tests: discovery, keys that rotate, and device authorization (RFC 8628).
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	// Subject logs in at the next device authorization, with Groups.
	Subject string
	Groups  []string

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	signing *ecdsa.PrivateKey
	polls   int
}

// New returns a provider with one key, until the test ends.
func New(t testing.TB) *Provider {
	p := &Provider{}
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
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
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
