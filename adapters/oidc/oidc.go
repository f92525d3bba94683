// Package oidc says who the bearer of an access token is, and who logs in with a browser, by OpenID Connect.
//
// A [Verifier] knows some identity providers. A token names its issuer, and MUST be signed by a key of that provider, with
// an algorithm of [Algorithms]. It MUST be for the audience of the provider, and be valid now, give or take [Skew].
//
// A browser logs in with an authorization code, PKCE (S256), state and nonce: [Verifier.Begin] and [Verifier.Finish].
//
// What always holds:
//
//   - A provider that does not answer stops nothing but tokens signed with keys that are not known yet. It may be away
//     when the process starts.
//   - Keys are fetched at most once in [FetchEvery] for each provider, whatever is asked.
//   - No error or log line contains a token.
package oidc

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"quartermaster/domain"
)

// Bounds of tokens and of what is asked of providers.
const (
	Skew       = 60 * time.Second // between our clock and that of a provider
	FetchEvery = 10 * time.Second // keys of a provider
	Longest    = 24 << 10         // bytes of a token
	MostGroups = 1000             // that a token may name

	remembered  = 10_000      // verified tokens
	rememberFor = time.Minute // after which the signature of a token is verified again
	keysFor     = time.Hour   // after which the keys of a provider are fetched again
	mostAnswer  = 1 << 20     // bytes of an answer of a provider
	patience    = 10 * time.Second
)

// Algorithms may sign tokens. None of them works with a secret that the verifier would have to share.
var Algorithms = []string{
	goidc.RS256, goidc.RS384, goidc.RS512, goidc.PS256, goidc.PS384, goidc.PS512, goidc.ES256, goidc.ES384, goidc.ES512, goidc.EdDSA,
}

// Provider is an identity provider.
type Provider struct {
	Name         string // in principals
	Issuer       string // its URL, as in tokens
	Audience     string // that its access tokens for the API have
	SubjectClaim string // the claim that identifies somebody; "": sub
	GroupsClaim  string // the claim with their groups; "": groups
	Browser      Client
	// Client asks it; nil: [http.DefaultClient].
	Client *http.Client
}

// Identity is the bearer of a token.
type Identity struct {
	Principal domain.Principal
	Groups    []domain.Principal
	Issued    domain.Instant
	Begins    domain.Instant // when the token begins to be valid: Issued, or later
	Expires   domain.Instant
}

// ErrToken is wrapped by the errors of [Verifier.Verify] for a token that will never be accepted. Whoever sent it needs
// another.
var ErrToken = errors.New("the access token is not accepted")

// ErrUnavailable is wrapped by the errors of [Verifier.Verify] for a token that cannot be verified at the moment, because
// the keys of its provider are not known. Whoever sent it should try again later.
var ErrUnavailable = errors.New("the identity provider does not answer")

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	issuers map[string]*issuer
	names   map[string]*issuer
	now     func() time.Time

	mu    sync.Mutex
	known map[[sha256.Size]byte]verified
}

type verified struct {
	Identity
	until time.Time
}

type issuer struct {
	Provider
	keys *keySet
}

// New returns a verifier. It asks no provider yet.
func New(providers []Provider, now func() time.Time, log *slog.Logger) *Verifier {
	v := &Verifier{issuers: map[string]*issuer{}, names: map[string]*issuer{}, now: now, known: map[[sha256.Size]byte]verified{}}
	for _, p := range providers {
		if p.Client == nil {
			p.Client = http.DefaultClient
		}
		if p.SubjectClaim == "" {
			p.SubjectClaim = "sub"
		}
		if p.GroupsClaim == "" {
			p.GroupsClaim = "groups"
		}
		keys := &keySet{issuer: p.Issuer, client: p.Client, now: now, log: log.With("provider", p.Name)}
		v.issuers[p.Issuer] = &issuer{p, keys}
		v.names[p.Name] = v.issuers[p.Issuer]
	}
	return v
}

// Verify returns the bearer of a token.
func (v *Verifier) Verify(ctx context.Context, token string) (Identity, error) {
	if len(token) > Longest {
		return Identity{}, fmt.Errorf("%w: it has %d bytes, more than %d", ErrToken, len(token), Longest)
	}
	now, sum := v.now(), sha256.Sum256([]byte(token))
	v.mu.Lock()
	known, ok := v.known[sum]
	v.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.Identity, within(&known.Identity, now)
	}
	of, err := v.issuerOf(token)
	if err != nil {
		return Identity{}, err
	}
	id, err := of.verify(ctx, token)
	if err == nil {
		err = within(&id, now)
	}
	if err != nil {
		return Identity{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= remembered {
		clear(v.known)
	}
	v.known[sum] = verified{id, now.Add(rememberFor)}
	return id, nil
}

// within refuses an identity that is not valid now.
func within(id *Identity, now time.Time) error {
	at := domain.InstantOf(now)
	switch skew := domain.Instant(Skew); {
	case at >= id.Expires+skew:
		return fmt.Errorf("%w: it expired at %s", ErrToken, id.Expires)
	case at < id.Begins-skew:
		return fmt.Errorf("%w: it is valid from %s, which is in the future", ErrToken, id.Begins)
	}
	return nil
}

// issuerOf returns the provider that a token names, without believing it yet.
func (v *Verifier) issuerOf(token string) (*issuer, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%w: it is not a signed JWT (three parts, separated by dots)", ErrToken)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, fmt.Errorf("%w: its payload is not base64url", ErrToken)
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return nil, fmt.Errorf("%w: its payload is not JSON", ErrToken)
	}
	of := v.issuers[claims.Issuer]
	if of == nil {
		return nil, fmt.Errorf("%w: its issuer %q is not one of the configured identity providers", ErrToken, domain.Clip(claims.Issuer, 100))
	}
	return of, nil
}

// verify returns the bearer of a token of the provider.
func (i *issuer) verify(ctx context.Context, token string) (Identity, error) {
	keys := &heard{keySet: i.keys}
	t, err := goidc.NewVerifier(i.Issuer, keys, &goidc.Config{
		ClientID: i.Audience, SupportedSigningAlgs: Algorithms, SkipExpiryCheck: true, // see within, which allows less skew
	}).Verify(ctx, token)
	if errors.Is(keys.err, ErrUnavailable) {
		return Identity{}, keys.err
	}
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %s", ErrToken, domain.Clip(err.Error(), 200))
	}
	var claims map[string]json.RawMessage
	if err := t.Claims(&claims); err != nil {
		return Identity{}, fmt.Errorf("%w: its claims are not JSON", ErrToken)
	}
	id := Identity{Issued: domain.InstantOf(t.IssuedAt), Expires: domain.InstantOf(t.Expiry)}
	for _, needed := range []string{"exp", "iat"} {
		if claims[needed] == nil {
			return Identity{}, fmt.Errorf("%w: it has no claim %s", ErrToken, needed)
		}
	}
	id.Begins = id.Issued
	var notBefore float64
	if nbf := claims["nbf"]; nbf != nil {
		if err := json.Unmarshal(nbf, &notBefore); err != nil || notBefore < 0 || notBefore > 1e10 {
			return Identity{}, fmt.Errorf("%w: its claim nbf is not a time", ErrToken)
		}
		id.Begins = max(id.Begins, domain.Instant(notBefore)*domain.Second)
	}
	if id.Principal, err = i.principalOf(claims); err != nil {
		return Identity{}, err
	}
	id.Groups, err = i.groupsOf(claims)
	return id, err
}

// principalOf returns whom claims are about.
func (i *issuer) principalOf(claims map[string]json.RawMessage) (domain.Principal, error) {
	var subject string
	if err := json.Unmarshal(claims[i.SubjectClaim], &subject); err != nil || subject == "" {
		return "", fmt.Errorf("%w: it has no claim %s with a text", ErrToken, i.SubjectClaim)
	}
	if strings.ContainsFunc(subject, unicode.IsControl) { // no event could name them
		return "", fmt.Errorf("%w: its claim %s has control characters", ErrToken, i.SubjectClaim)
	}
	who := domain.UserOf(i.Name, subject)
	if len(who) > 256 {
		return "", fmt.Errorf("%w: its claim %s has %d bytes", ErrToken, i.SubjectClaim, len(subject))
	}
	return who, nil
}

// groupsOf returns the groups that claims name, in order.
func (i *issuer) groupsOf(claims map[string]json.RawMessage) (all []domain.Principal, err error) {
	groups, err := textsOf(claims[i.GroupsClaim])
	if err != nil {
		return nil, fmt.Errorf("%w: its claim %s is not a list of texts", ErrToken, i.GroupsClaim)
	}
	if len(groups) > MostGroups {
		return nil, fmt.Errorf("%w: it names %d groups, more than %d: let the provider send only those with a grant", ErrToken, len(groups), MostGroups)
	}
	for _, g := range groups {
		if g != "" {
			all = append(all, domain.GroupOf(i.Name, g))
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// textsOf returns a claim that is a text or a list of texts.
func textsOf(claim json.RawMessage) (all []string, err error) {
	if claim == nil {
		return nil, nil
	}
	var one string
	if json.Unmarshal(claim, &one) == nil {
		return []string{one}, nil
	}
	return all, json.Unmarshal(claim, &all)
}

// heard keeps the error of a set of keys, which [goidc.IDTokenVerifier.Verify] only words. It implements [goidc.KeySet].
type heard struct {
	*keySet
	err error
}

// VerifySignature implements [goidc.KeySet].
func (h *heard) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, h.err = h.verify(ctx, token)
	return payload, h.err
}

// keySet has the public keys of a provider.
type keySet struct {
	issuer string
	client *http.Client
	now    func() time.Time
	log    *slog.Logger

	fetching sync.Mutex // held while the provider is asked
	asked    time.Time  // when it was last asked
	failed   error      // what came of it

	describing sync.Mutex
	known      *discovery // nil: not known
	unknown    error      // why not
	knownAt    time.Time  // when it was asked for

	mu   sync.Mutex
	keys []jose.JSONWebKey
	at   time.Time // when they were fetched
}

// verify returns the payload of a token that one of the keys signed.
func (k *keySet) verify(ctx context.Context, token string) ([]byte, error) {
	algorithms := make([]jose.SignatureAlgorithm, len(Algorithms))
	for i, a := range Algorithms {
		algorithms[i] = jose.SignatureAlgorithm(a)
	}
	jws, err := jose.ParseSigned(token, algorithms)
	if err != nil || len(jws.Signatures) != 1 {
		return nil, errors.New("it is not signed once, with a known algorithm")
	}
	id := jws.Signatures[0].Header.KeyID
	keys, err := k.having(ctx, id)
	if err != nil {
		return nil, err
	}
	for i := range keys {
		if id != "" && keys[i].KeyID != id {
			continue
		}
		if payload, err := jws.Verify(&keys[i]); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("no key of the provider signed it")
}

// having returns the keys. It fetches them if they are old, or there is none of an id, at most once in FetchEvery.
func (k *keySet) having(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	keys, fresh, known := k.have(id)
	if known && fresh {
		return keys, nil
	}
	if known { // nobody waits for a provider without need
		if k.fetching.TryLock() {
			go func() {
				defer k.fetching.Unlock()
				_ = k.ask(context.WithoutCancel(ctx))
			}()
		}
		return keys, nil
	}
	k.fetching.Lock()
	defer k.fetching.Unlock()
	if keys, _, known = k.have(id); known {
		return keys, nil
	}
	if err := k.ask(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	keys, _, _ = k.have(id)
	return keys, nil
}

// have returns the keys, whether they were fetched lately, and whether there is one of an id.
func (k *keySet) have(id string) (keys []jose.JSONWebKey, fresh, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known = slices.ContainsFunc(k.keys, func(key jose.JSONWebKey) bool { return id == "" || key.KeyID == id })
	return k.keys, k.now().Sub(k.at) < keysFor, known
}

// ask fetches the keys, unless the provider was asked lately. It returns what came of the last time. The caller holds
// fetching.
func (k *keySet) ask(ctx context.Context) error {
	now := k.now()
	if !k.asked.IsZero() && now.Sub(k.asked) < FetchEvery {
		return k.failed
	}
	k.asked = now
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	keys, err := k.fetch(ctx)
	if k.failed = err; err != nil {
		k.log.Warn("the keys of an identity provider cannot be fetched", "error", err)
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys, k.at = keys, now
	return nil
}

// fetch asks the provider for its keys.
func (k *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	about, err := k.about(ctx)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := k.get(ctx, about.Keys, "", &set); err != nil {
		return nil, err
	}
	keys := []jose.JSONWebKey{}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		// Keys of unknown kinds are for others.
		if json.Unmarshal(raw, &key) == nil && key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no public key that signs", about.Keys)
	}
	return keys, nil
}

// discovery is what a provider says about itself.
type discovery struct {
	Issuer    string   `json:"issuer"`
	Keys      string   `json:"jwks_uri"`
	Authorize string   `json:"authorization_endpoint"`
	Token     string   `json:"token_endpoint"`
	UserInfo  string   `json:"userinfo_endpoint"`
	Methods   []string `json:"token_endpoint_auth_methods_supported"`
	NamesSelf bool     `json:"authorization_response_iss_parameter_supported"` // RFC 9207
}

// about asks the provider about itself.
func (k *keySet) about(ctx context.Context) (*discovery, error) {
	about := &discovery{}
	if err := k.get(ctx, strings.TrimSuffix(k.issuer, "/")+"/.well-known/openid-configuration", "", about); err != nil {
		return nil, err
	}
	if about.Issuer != k.issuer {
		return nil, fmt.Errorf("the provider at %s says that its issuer is %q: configure that", k.issuer, domain.Clip(about.Issuer, 100))
	}
	return about, nil
}

// get reads an answer of the provider in JSON, as the bearer of a token, if there is one.
func (k *keySet) get(ctx context.Context, url, token string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, mostAnswer)).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}
