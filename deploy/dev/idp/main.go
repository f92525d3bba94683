// Command idp is an OpenID provider for development and tests, made of the example server of
// github.com/zitadel/oidc: authorization code with PKCE, device authorization, refresh tokens and client
// credentials. Its keys are new at each start. Its access tokens are signed JWTs for the audience quartermaster, with the groups of the user.
//
// It is a module of its own, so that Quartermaster does not depend on it. It is for tests alone: everybody may read its
// users and their password below.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// The audience of access tokens, the client of "quartermaster login", and the one of browsers with its secret.
const (
	audience  = "quartermaster"
	clientID  = "quartermaster-cli"
	browserID = "quartermaster-web"
	secret    = "of tests & alone"
)

// groups are those of the users, by name.
var groups = map[string][]string{"ana": {"finance", "ml"}, "bob": {"ml"}, "flo": {"finance"}, "max": {"audit"}, "pia": {"planning"}}

// users are known by their names. Each has the same password.
type users struct{}

// password is that of every user.
const password = "verysecure"

// GetUserByID implements [storage.UserStore].
func (users) GetUserByID(id string) *storage.User {
	if groups[id] == nil {
		return nil
	}
	return &storage.User{ID: id, Username: id, Password: password, FirstName: id, Email: id + "@example.com", EmailVerified: true}
}

// GetUserByUsername implements [storage.UserStore].
func (u users) GetUserByUsername(name string) *storage.User { return u.GetUserByID(name) }

// ExampleClientID implements [storage.UserStore].
func (users) ExampleClientID() string { return "service" }

func main() {
	listen := flag.String("listen", "127.0.0.1:19998", "address; the issuer is http://localhost:PORT/")
	redirect := flag.String("redirect", "http://localhost:7444/api/v1/login/callback", "where browsers that logged in are sent back to")
	flag.Parse()
	if err := serve(*listen, *redirect); err != nil {
		fmt.Fprintln(os.Stderr, "idp:", err)
		os.Exit(1)
	}
}

func serve(listen, redirect string) error {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	issuer := fmt.Sprintf("http://localhost:%d/", ln.Addr().(*net.TCPAddr).Port)
	store := &provider{storage.NewStorage(users{})}
	storage.RegisterClients(storage.NativeClient(clientID), storage.WebClient(browserID, secret, redirect))
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	router := exampleop.SetupServer(issuer, store, log, false, op.WithAllowInsecure())
	fmt.Println("issuer", issuer)
	srv := &http.Server{Handler: router, ReadHeaderTimeout: 10 * time.Second}
	return srv.Serve(ln)
}

// provider is the example's storage with groups, our audience, and a public client that may use devices.
type provider struct{ *storage.Storage }

// client is a public client with signed access tokens.
type client struct{ op.Client }

func (client) AuthMethod() oidc.AuthMethod         { return oidc.AuthMethodNone }
func (client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }
func (client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeDeviceCode, oidc.GrantTypeRefreshToken}
}
func (client) IsScopeAllowed(scope string) bool { return scope == "groups" }

// GetClientByClientID implements [op.Storage].
func (p *provider) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := p.Storage.GetClientByClientID(ctx, id)
	switch {
	case err == nil && id == clientID:
		return client{c}, nil
	case err == nil && id == browserID:
		return browser{c}, nil
	}
	return c, err
}

// browser is the client of browsers, which may ask for groups.
type browser struct{ op.Client }

func (browser) IsScopeAllowed(scope string) bool { return scope == "groups" }

// SetUserinfoFromRequest implements [op.CanSetUserinfoFromRequest]: ID tokens have the groups of the user.
func (p *provider) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, token op.IDTokenRequest, scopes []string) error {
	if err := p.Storage.SetUserinfoFromRequest(ctx, info, token, scopes); err != nil {
		return err
	}
	if of := groups[token.GetSubject()]; of != nil && slices.Contains(scopes, "groups") {
		info.AppendClaims("groups", of)
	}
	return nil
}

// GetDeviceAuthorizatonState implements [op.DeviceAuthorizationStorage]: what the device gets is for our API.
func (p *provider) GetDeviceAuthorizatonState(ctx context.Context, id, code string) (*op.DeviceAuthorizationState, error) {
	state, err := p.Storage.GetDeviceAuthorizatonState(ctx, id, code)
	if err == nil {
		state.Audience = []string{audience}
	}
	return state, err
}

// GetPrivateClaimsFromScopes implements [op.Storage]: access tokens have the groups of the user.
func (p *provider) GetPrivateClaimsFromScopes(ctx context.Context, user, id string, scopes []string) (map[string]any, error) {
	claims, err := p.Storage.GetPrivateClaimsFromScopes(ctx, user, id, scopes)
	if err != nil {
		return nil, err
	}
	if claims == nil {
		claims = map[string]any{}
	}
	if of := groups[user]; of != nil && strings.Contains(strings.Join(scopes, " "), "groups") {
		claims["groups"] = of
	}
	return claims, nil
}
