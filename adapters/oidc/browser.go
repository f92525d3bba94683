package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"quartermaster/domain"
)

// Client is what browsers log in through at a provider. Without an id nobody can.
type Client struct {
	ID       string
	Secret   string // "": a public client
	Redirect string // the URL that the provider sends browsers back to
	Scopes   []string
}

// Login is a login of a browser that has begun. It MUST be kept where nobody but that browser and we can read or change
// it, and be used once.
type Login struct {
	Provider string `json:"provider"` // its name
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"` // of PKCE
}

// ErrLogin is wrapped by the errors of [Verifier.Finish] for an answer of a provider that will never be accepted. The
// person begins again.
var ErrLogin = errors.New("the login is not accepted")

// Begin begins a login of a browser at a provider. It returns the URL to send the browser to.
func (v *Verifier) Begin(ctx context.Context, provider string) (string, *Login, error) {
	of, about, end, err := v.client(ctx, provider)
	if err != nil {
		return "", nil, err
	}
	if about.Authorize == "" {
		return "", nil, fmt.Errorf("%w: provider %s has no authorization endpoint", ErrLogin, provider)
	}
	l := &Login{Provider: provider, State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	return of.config(end).AuthCodeURL(l.State, goidc.Nonce(l.Nonce), oauth2.S256ChallengeOption(l.Verifier)), l, nil
}

// Finish returns who logged in. answer is the query with which the provider sent the browser back.
func (v *Verifier) Finish(ctx context.Context, l *Login, answer url.Values) (Identity, error) {
	if subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(l.State)) != 1 || len(answer["state"]) != 1 {
		return Identity{}, fmt.Errorf("%w: it is not the answer to the login that this browser began last", ErrLogin)
	}
	of, about, end, err := v.client(ctx, l.Provider)
	if err != nil {
		return Identity{}, err
	}
	if from := answer["iss"]; len(from) > 1 || len(from) == 1 && from[0] != of.Issuer || len(from) == 0 && about.NamesSelf {
		return Identity{}, fmt.Errorf("%w: the answer is not from provider %s", ErrLogin, l.Provider)
	}
	if refused := answer.Get("error"); refused != "" {
		return Identity{}, fmt.Errorf("%w: provider %s says %q", ErrLogin, l.Provider, domain.Clip(refused, 100))
	}
	if len(answer["code"]) != 1 || len(answer.Get("code")) > Longest {
		return Identity{}, fmt.Errorf("%w: the answer has not one code", ErrLogin)
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	asking := context.WithValue(ctx, oauth2.HTTPClient, of.Client)
	token, err := of.config(end).Exchange(asking, answer.Get("code"), oauth2.VerifierOption(l.Verifier))
	if err != nil {
		return Identity{}, exchangeError(l.Provider, err)
	}
	return v.loggedIn(ctx, of, about, l, token)
}

// exchangeError words why a code was not exchanged, without what the provider answered at length.
func exchangeError(provider string, err error) error {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode/100 == 4 {
		return fmt.Errorf("%w: provider %s does not exchange the code: %s", ErrLogin, provider, domain.Clip(refused.ErrorCode, 100))
	}
	return fmt.Errorf("%w: exchange the code", ErrUnavailable)
}

// loggedIn returns the person of an ID token, whose groups are in it or at the userinfo endpoint.
func (v *Verifier) loggedIn(ctx context.Context, of *issuer, about *discovery, l *Login, token *oauth2.Token) (Identity, error) {
	refused := func(format string, args ...any) (Identity, error) {
		return Identity{}, fmt.Errorf("%w: its ID token "+format, append([]any{ErrLogin}, args...)...)
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" || len(raw) > Longest {
		return refused("has %d bytes, want 1 to %d: ask for the scope openid", len(raw), Longest)
	}
	keys := &heard{keySet: of.keys}
	t, err := goidc.NewVerifier(of.Issuer, keys, &goidc.Config{
		ClientID: of.Browser.ID, SupportedSigningAlgs: Algorithms, SkipExpiryCheck: true, // see within
	}).Verify(ctx, raw)
	if errors.Is(keys.err, ErrUnavailable) {
		return Identity{}, keys.err
	}
	if err != nil {
		return refused("is not valid: %s", domain.Clip(err.Error(), 200))
	}
	if subtle.ConstantTimeCompare([]byte(t.Nonce), []byte(l.Nonce)) != 1 {
		return refused("is of another login")
	}
	if t.AccessTokenHash != "" && t.VerifyAccessToken(token.AccessToken) != nil {
		return refused("is of another access token")
	}
	var claims map[string]json.RawMessage
	var party struct {
		Party string `json:"azp"`
	}
	if err := errors.Join(t.Claims(&claims), t.Claims(&party)); err != nil {
		return refused("has claims that are not JSON")
	}
	if party.Party != "" && party.Party != of.Browser.ID || len(t.Audience) > 1 && party.Party == "" {
		return refused("is for another client")
	}
	id := Identity{Issued: domain.InstantOf(t.IssuedAt), Begins: domain.InstantOf(t.IssuedAt), Expires: domain.InstantOf(t.Expiry)}
	if err := within(&id, v.now()); err != nil {
		return refused("is not valid now: %s", err)
	}
	if id.Principal, err = of.principalOf(claims); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrLogin, err)
	}
	if claims[of.GroupsClaim] == nil && about.UserInfo != "" && token.AccessToken != "" {
		var more map[string]json.RawMessage
		if err := of.keys.get(ctx, about.UserInfo, token.AccessToken, &more); err != nil {
			return Identity{}, fmt.Errorf("%w: who belongs to which group", ErrUnavailable)
		}
		var subject string
		if json.Unmarshal(more["sub"], &subject) != nil || subject != t.Subject {
			return Identity{}, fmt.Errorf("%w: the userinfo endpoint answers about somebody else", ErrLogin)
		}
		claims = more
	}
	if id.Groups, err = of.groupsOf(claims); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrLogin, err)
	}
	return id, nil
}

// client returns a provider that browsers log in with, and what it says about itself.
func (v *Verifier) client(ctx context.Context, provider string) (*issuer, *discovery, oauth2.Endpoint, error) {
	of := v.names[provider]
	if of == nil || of.Browser.ID == "" {
		return nil, nil, oauth2.Endpoint{}, fmt.Errorf("%w: browsers cannot log in with provider %q", ErrLogin, domain.Clip(provider, 40))
	}
	about, err := of.keys.described(ctx)
	if err != nil {
		return nil, nil, oauth2.Endpoint{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	end := oauth2.Endpoint{AuthURL: about.Authorize, TokenURL: about.Token, AuthStyle: oauth2.AuthStyleInParams}
	// Without a list the method is client_secret_basic (OpenID Connect Discovery 1.0, section 3).
	if of.Browser.Secret != "" && (len(about.Methods) == 0 || slices.Contains(about.Methods, "client_secret_basic")) {
		end.AuthStyle = oauth2.AuthStyleInHeader
	}
	return of, about, end, nil
}

func (i *issuer) config(end oauth2.Endpoint) *oauth2.Config {
	return &oauth2.Config{
		ClientID: i.Browser.ID, ClientSecret: i.Browser.Secret, Endpoint: end, RedirectURL: i.Browser.Redirect, Scopes: i.Browser.Scopes,
	}
}

// described returns what the provider says about itself, as of an hour ago at most. It asks at most once in FetchEvery.
func (k *keySet) described(ctx context.Context) (*discovery, error) {
	k.describing.Lock()
	defer k.describing.Unlock()
	now := k.now()
	if k.known != nil && now.Sub(k.knownAt) < keysFor {
		return k.known, nil
	}
	if k.unknown != nil && now.Sub(k.knownAt) < FetchEvery {
		return nil, k.unknown
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer stop()
	k.known, k.unknown = nil, nil
	about, err := k.about(ctx)
	k.knownAt = now
	if err != nil {
		k.log.Warn("an identity provider does not say how to log in", "error", err)
		k.unknown = err
		return nil, err
	}
	k.known = about
	return about, nil
}
