package oidc

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"quartermaster/adapters/oidc/oidctest"
	"quartermaster/domain"
)

type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time         { return time.Unix(1_780_000_000+c.at.Load(), 0) }
func (c *clock) pass(seconds int64)     { c.at.Add(seconds) }
func (c *clock) in(seconds int64) int64 { return c.now().Unix() + seconds }

// setup returns a verifier of one provider with a key, and claims that it accepts.
func setup(t *testing.T) (*oidctest.Provider, *ecdsa.PrivateKey, *clock, *Verifier, map[string]any) {
	p, c := oidctest.New(t), &clock{}
	key, _ := p.Key()
	v := New([]Provider{{Name: "corp", Issuer: p.URL, Audience: "quartermaster"}}, c.now, slog.New(slog.DiscardHandler))
	return p, key, c, v, map[string]any{
		"iss": p.URL, "sub": "ana", "aud": "quartermaster", "iat": c.in(0), "exp": c.in(300), "groups": []string{"ml", "fin", "ml"},
	}
}

func with(claims map[string]any, changes ...any) map[string]any {
	out := maps.Clone(claims)
	for i := 0; i < len(changes); i += 2 {
		name := changes[i].(string)
		if out[name] = changes[i+1]; changes[i+1] == nil {
			delete(out, name)
		}
	}
	return out
}

func TestVerify(t *testing.T) {
	p, key, c, v, claims := setup(t)
	id, err := v.Verify(t.Context(), oidctest.Sign(t, jose.ES256, key, "k1", claims))
	if err != nil || id.Principal != "user:corp/ana" || fmt.Sprint(id.Groups) != "[group:corp/fin group:corp/ml]" ||
		id.Expires != domain.Instant(c.in(300))*domain.Second {
		t.Fatalf("%+v, %v", id, err)
	}
	other := oidctest.New(t)
	stranger, _ := other.Key()
	public, err := json.Marshal(jose.JSONWebKey{Key: key.Public()})
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	none := func(alg string) string {
		head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"` + alg + `"}`))
		body, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		return head + "." + base64.RawURLEncoding.EncodeToString(body) + "."
	}
	groups := make([]string, MostGroups+1)
	for i := range groups {
		groups[i] = fmt.Sprint(i)
	}
	good := oidctest.Sign(t, jose.ES256, key, "k1", claims)
	for name, x := range map[string]struct{ token, want string }{
		"not a token":          {"abc", "not a signed JWT"},
		"no base64":            {"a.%%.c", "not base64url"},
		"no JSON":              {"a." + base64.RawURLEncoding.EncodeToString([]byte("{")) + ".c", "not JSON"},
		"a megabyte":           {strings.Repeat("x", 1<<20), "more than 24576"},
		"alg none":             {none("none"), "malformed jwt"},
		"alg None":             {none("None"), "malformed jwt"},
		"HMAC of a public key": {oidctest.Sign(t, jose.HS256, public, "k1", claims), "malformed jwt"},
		"another key":          {oidctest.Sign(t, jose.ES256, stranger, "k1", claims), "no key of the provider signed it"},
		"another kind of key":  {oidctest.Sign(t, jose.RS256, rsaKey, "k1", claims), "no key of the provider signed it"},
		"changed":              {good[:len(good)-8] + "AAAAAAAA", "no key of the provider signed it"},
		"another issuer":       {oidctest.Sign(t, jose.ES256, stranger, "k1", with(claims, "iss", other.URL)), "not one of the configured"},
		"no issuer":            {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "iss", nil)), "not one of the configured"},
		"another audience":     {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "aud", "shop")), "expected audience"},
		"no audience":          {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "aud", nil)), "expected audience"},
		"expired":              {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "exp", c.in(-60))), "it expired at"},
		"never expires":        {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "exp", nil)), "no claim exp"},
		"issued later":         {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "iat", c.in(61))), "in the future"},
		"control characters":   {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "sub", "a\nb")), "control characters"},
		"valid later":          {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "nbf", c.in(61))), "in the future"},
		"issued at no time":    {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "iat", nil)), "no claim iat"},
		"no subject":           {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "sub", nil)), "no claim sub"},
		"a long subject":       {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "sub", strings.Repeat("x", 300))), "claim sub has 300 bytes"},
		"many groups":          {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "groups", groups)), "names 1001 groups"},
		"groups of no kind":    {oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "groups", 7)), "not a list of texts"},
	} {
		id, err := v.Verify(t.Context(), x.token)
		if !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %+v, %v; want an error with %q", name, id, err, x.want)
		}
	}
	// Clocks differ by less than a minute.
	for _, ok := range []map[string]any{with(claims, "exp", c.in(-59)), with(claims, "iat", c.in(59)), with(claims, "groups", "ml"), with(claims, "groups", nil)} {
		if _, err := v.Verify(t.Context(), oidctest.Sign(t, jose.ES256, key, "k1", ok)); err != nil {
			t.Errorf("%v: %v", ok, err)
		}
	}
	if n := p.Fetched.Load(); n != 1 {
		t.Errorf("the keys were asked for %d times", n)
	}
	// A verified token ends, too.
	c.pass(361)
	if _, err := v.Verify(t.Context(), good); !errors.Is(err, ErrToken) {
		t.Errorf("after its end: %v", err)
	}
}

// Keys are asked for when they are new, at most once in ten seconds, and are used while the provider is away.
func TestKeysRotate(t *testing.T) {
	p, old, c, v, claims := setup(t)
	p.Away.Store(true) // at the start
	token := func(key crypto.Signer, id, subject string) string {
		return oidctest.Sign(t, jose.ES256, key, id, with(claims, "sub", subject, "exp", c.in(7200)))
	}
	for range 3 {
		if _, err := v.Verify(t.Context(), token(old, "k1", "ana")); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("away at the start: %v", err)
		}
	}
	p.Away.Store(false)
	c.pass(10)
	if _, err := v.Verify(t.Context(), token(old, "k1", "ana")); err != nil {
		t.Fatal(err)
	}
	p.Rotate(t)
	next, _ := p.Key()
	for i := range 50 {
		if _, err := v.Verify(t.Context(), token(next, "k2", fmt.Sprint(i))); err == nil {
			t.Fatal("a key that was not fetched yet verifies")
		}
	}
	c.pass(10)
	if _, err := v.Verify(t.Context(), token(next, "k2", "bob")); err != nil {
		t.Fatal(err)
	}
	if n := p.Fetched.Load(); n != 2 {
		t.Errorf("the keys were asked for %d times", n)
	}
	p.Away.Store(true)
	c.pass(3000)
	if _, err := v.Verify(t.Context(), token(next, "k2", "carol")); err != nil {
		t.Errorf("with known keys, while the provider is away: %v", err)
	}
}

func TestProviderOfAnotherName(t *testing.T) {
	p, key, c, _, claims := setup(t)
	v := New([]Provider{{Name: "corp", Issuer: p.URL + "/", Audience: "quartermaster"}}, c.now, slog.New(slog.DiscardHandler))
	_, err := v.Verify(t.Context(), oidctest.Sign(t, jose.ES256, key, "k1", with(claims, "iss", p.URL+"/")))
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "configure that") {
		t.Error(err)
	}
}

func FuzzVerify(f *testing.F) {
	c := &clock{}
	v := New([]Provider{{Name: "corp", Issuer: "https://idp.example", Audience: "quartermaster", Client: &http.Client{Transport: refuse{}}}},
		c.now, slog.New(slog.DiscardHandler))
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlIn0.")
	f.Fuzz(func(t *testing.T, token string) {
		if id, err := v.Verify(t.Context(), token); err == nil {
			t.Errorf("%q is accepted as %+v", token, id)
		}
	})
}

// refuse answers nothing.
type refuse struct{}

func (refuse) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("away") }

// TestIssuedBeforeValid: what ends everything that was issued before also ends what becomes valid after.
func TestIssuedBeforeValid(t *testing.T) {
	_, key, c, v, claims := setup(t)
	claims["nbf"] = c.in(30)
	id, err := v.Verify(t.Context(), oidctest.Sign(t, jose.ES256, key, "k1", claims))
	if err != nil || id.Issued != domain.InstantOf(c.now()) || id.Begins != id.Issued+30*domain.Second {
		t.Errorf("%+v, %v", id, err)
	}
}
