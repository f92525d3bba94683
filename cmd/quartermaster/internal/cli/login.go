package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/spf13/cobra"
	"golang.org/x/oauth2"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// LoginRoot is the path that says with which identity providers one can log in. It may be asked by anybody.
const LoginRoot = APIRoot + "login"

// LoginProvider is an identity provider that "quartermaster login" can use.
type LoginProvider struct {
	Name     string   `json:"name"`
	Issuer   string   `json:"issuer"`
	Audience string   `json:"audience"`
	ClientID string   `json:"client_id"` // empty: only browsers log in with it
	Scopes   []string `json:"scopes"`
	Browser  bool     `json:"browser"` // browsers log in with it
}

// LoginLink is a link that gives one browser the rights of the owner of the home.
type LoginLink struct {
	Link  string         `json:"link"`
	Until domain.Instant `json:"until"`
}

// login is what is kept after a login, readable by its owner only.
type login struct {
	Server   string        `json:"server"`
	Provider LoginProvider `json:"provider"`
	TokenURL string        `json:"token_url"`
	Token    *oauth2.Token `json:"token"`
}

// loginPath returns where the login to a server is kept.
func loginPath(base string) (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no place for logins: %w; name a file with --token-file", err)
	}
	return filepath.Join(dir, "quartermaster", "logins", url.PathEscape(base)+".json"), nil
}

// readLogin returns the login to a server, nil if there is none.
func readLogin(base string) (*login, string, error) {
	path, err := loginPath(base)
	if err != nil {
		return nil, "", err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, path, nil
	}
	var l login
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	if err != nil || l.Token == nil {
		return nil, path, fmt.Errorf("%s: %w: log in again", path, cmp.Or(err, errors.New("it is not a login")))
	}
	return &l, path, nil
}

// write keeps a login.
func (l *login) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(path), ".login-*")
	if err != nil {
		return err
	}
	_, err = part.Write(data)
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(part.Name()))
	}
	return err
}

// lockLogin waits until no other command renews a login.
func lockLogin(ctx context.Context, path string) (unlock func() error, err error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return lock.Close, nil // locked, or there are no locks here
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), lock.Close())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// shown adds to requests who asks.
type shown struct {
	next  http.RoundTripper
	token func(context.Context) (string, error)
}

// RoundTrip implements [http.RoundTripper].
func (s *shown) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := s.token(r.Context())
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return s.next.RoundTrip(r)
}

// known returns a client that a server knows the person by. It follows no redirect, which would show another server the
// token.
func (a *Program) known(base string) *http.Client {
	return &http.Client{
		Transport:     &shown{http.DefaultTransport, a.tokenFor(base)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// tokenFor returns how to get the token that a server is shown: that of a file, else that of the login.
func (a *Program) tokenFor(base string) func(context.Context) (string, error) {
	if a.tokenFile != "" {
		return func(context.Context) (string, error) {
			data, err := os.ReadFile(a.tokenFile)
			if err != nil {
				return "", commandline.Usagef("--token-file: %w", err)
			}
			token := strings.TrimSpace(string(data))
			if token == "" || len(token) > 64<<10 || strings.ContainsAny(token, " \n\t") {
				return "", commandline.Usagef("--token-file %s: want one key or token", a.tokenFile)
			}
			return token, nil
		}
	}
	return func(ctx context.Context) (string, error) {
		l, path, err := readLogin(base)
		if err == nil && l != nil && !l.Token.Valid() {
			// One command renews, and others wait for it: a provider may take a second use of what renews for theft.
			var unlock func() error
			if unlock, err = lockLogin(ctx, path); err == nil {
				defer func() { _ = unlock() }()
				l, path, err = readLogin(base)
			}
		}
		if err != nil {
			return "", &app.DeniedError{Err: err}
		}
		if l == nil {
			return "", &app.DeniedError{Err: fmt.Errorf("you are not logged in to %s: \"quartermaster login\" does, or name a key with --token-file", base)}
		}
		cfg := oauth2.Config{ClientID: l.Provider.ClientID, Endpoint: oauth2.Endpoint{TokenURL: l.TokenURL, AuthStyle: oauth2.AuthStyleInParams}}
		fresh, err := cfg.TokenSource(ctx, l.Token).Token()
		if err != nil {
			return "", &app.DeniedError{Err: fmt.Errorf("your login to %s ended: \"quartermaster login\" renews it (%s)", base, wordedOAuth(err))}
		}
		if fresh.AccessToken != l.Token.AccessToken {
			l.Token = fresh
			if err := l.write(path); err != nil {
				a.note("the renewed login could not be kept: %v", err)
			}
		}
		return fresh.AccessToken, nil
	}
}

// wordedOAuth words an error of an identity provider in one line, without what it answered at length.
func wordedOAuth(err error) string {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) && refused.ErrorCode != "" {
		return strings.TrimSuffix(domain.Clip(refused.ErrorCode+": "+refused.ErrorDescription, 200), ": ")
	}
	return domain.Clip(err.Error(), 200)
}

func (a *Program) loginCommand() *cobra.Command {
	var provider string
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Log in to a server with your company's identity provider",
		Long: `Login shows an address and a code. Open the address in any browser, log in there, and enter the
code. Commands with --server then ask as you. What you may see is decided by the grants that you
and your groups have: "quartermaster access grant".

The login is kept in your configuration directory, readable by you only, and is renewed while the
identity provider allows it. "quartermaster logout" removes it.

With the socket of a data directory that is served, login shows a link instead. It opens the API in
one browser of this machine, as the owner of the home.`,
		Example: "  quartermaster login --server https://quartermaster.example\n  quartermaster login --server unix:api.sock\n  quartermaster fleet --server https://quartermaster.example",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.HasPrefix(a.server, "unix:") {
				return a.openLink(cmd.Context())
			}
			base, err := a.serverBase()
			if err != nil {
				return err
			}
			return a.login(cmd.Context(), base, provider)
		},
	}
	cmd.Flags().StringVar(&provider, "provider", "", "name of the identity provider, if the server knows several")
	return cmd
}

// private refuses to show keys and tokens to whoever is on the way to a server.
func private(server *url.URL) error {
	host := server.Hostname()
	if ip := net.ParseIP(host); server.Scheme == "https" || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return commandline.Usagef("--server %s: everybody on the way would see who you are: use https", server)
}

// serverBase returns the address of the server that one logs in to.
func (a *Program) serverBase() (string, error) {
	u, err := url.Parse(a.server)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return "", commandline.Usagef("name the server with --server https://HOST")
	}
	if err := private(u); err != nil {
		return "", err
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}

// openLink shows a link for a browser of this machine.
func (a *Program) openLink(ctx context.Context) error {
	client, base, err := a.dialer()
	if err != nil {
		return err
	}
	resp, err := a.send(ctx, client, http.MethodPost, base+LoginRoot+"/link")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var link LoginLink
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&link); err != nil {
		return &app.UnavailableError{Err: fmt.Errorf("%s does not answer with a link: %w", a.server, err)}
	}
	if a.json {
		return a.answerJSON(loginAnswer{Server: a.server, Link: link.Link, Expires: link.Until})
	}
	fmt.Fprintf(a.out, "%s\nopen it in a browser of this machine, once, until %s\n", link.Link, link.Until)
	return nil
}

// login logs in by device authorization (RFC 8628).
func (a *Program) login(ctx context.Context, base, name string) error {
	resp, err := a.send(ctx, http.DefaultClient, http.MethodGet, base+LoginRoot)
	if err != nil {
		return err
	}
	var providers []LoginProvider
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&providers)
	resp.Body.Close()
	providers = slices.DeleteFunc(providers, func(p LoginProvider) bool { return p.ClientID == "" })
	if err != nil {
		return &app.UnavailableError{Err: fmt.Errorf("%s does not say how to log in: %w", base, err)}
	}
	names := []string{}
	for _, p := range providers {
		names = append(names, p.Name)
	}
	i := slices.Index(names, name)
	switch {
	case len(providers) == 0:
		return &app.DeniedError{Err: fmt.Errorf("%s knows no identity provider to log in with: ask it with the key of a service account, --token-file", base)}
	case name == "" && len(providers) == 1:
		i = 0
	case name == "":
		return commandline.Usagef("name the identity provider with --provider: %s", strings.Join(names, ", "))
	case i < 0:
		return commandline.Usagef("--provider %s: %s", domain.Clip(name, widest), domain.Suggest(name, names))
	}
	p := providers[i]
	found, err := goidc.NewProvider(ctx, p.Issuer)
	if err != nil {
		return &app.UnavailableError{Err: fmt.Errorf("identity provider %s: %s", p.Name, domain.Clip(err.Error(), 200))}
	}
	end := found.Endpoint()
	end.AuthStyle = oauth2.AuthStyleInParams // the client is public
	if end.DeviceAuthURL == "" {
		return &app.DeniedError{Err: fmt.Errorf("identity provider %s has no device authorization: ask it for that, or use the key of a service account", p.Name)}
	}
	cfg := oauth2.Config{ClientID: p.ClientID, Endpoint: end, Scopes: p.Scopes}
	verifier := oauth2.GenerateVerifier()
	device, err := cfg.DeviceAuth(ctx, oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("audience", p.Audience))
	if err != nil {
		return &app.DeniedError{Err: fmt.Errorf("identity provider %s: %s", p.Name, wordedOAuth(err))}
	}
	if complete := device.VerificationURIComplete; complete != "" {
		fmt.Fprintf(a.err, "Open %s and check that it shows the code %s.\n", complete, device.UserCode)
	} else {
		fmt.Fprintf(a.err, "Open %s and enter the code %s.\n", device.VerificationURI, device.UserCode)
	}
	token, err := cfg.DeviceAccessToken(ctx, device, oauth2.VerifierOption(verifier))
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &app.DeniedError{Err: fmt.Errorf("nobody logged in: %s", wordedOAuth(err))}
	}
	path, err := loginPath(base)
	if err != nil {
		return err
	}
	if err := (&login{Server: base, Provider: p, TokenURL: end.TokenURL, Token: token}).write(path); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	ans := loginAnswer{Server: base, Provider: p.Name, Expires: domain.InstantOf(token.Expiry), Renewed: token.RefreshToken != ""}
	if token.Expiry.IsZero() {
		ans.Expires = 0
	}
	if a.json {
		return a.answerJSON(ans)
	}
	fmt.Fprintf(a.out, "you are logged in to %s\n", base)
	if ans.Expires != 0 && !ans.Renewed {
		fmt.Fprintf(a.out, "until %s: the identity provider does not let it be renewed\n", time.Unix(token.Expiry.Unix(), 0).UTC().Format(time.RFC3339))
	}
	return nil
}

// loginAnswer is the answer of login and logout.
type loginAnswer struct {
	Server   string         `json:"server"`
	Provider string         `json:"provider,omitempty"`
	Link     string         `json:"link,omitempty"`   // for a browser, instead of a login
	Expires  domain.Instant `json:"expires,omitzero"` // of the first access token, or of the link
	Renewed  bool           `json:"renewed"`          // it is renewed without asking
}

func (a *Program) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Forget the login to a server",
		Long: `Logout tells the server that whatever your identity provider gave you before now is not valid any
more, everywhere, and removes the login from this machine.`,
		Example: "  quartermaster logout --server https://quartermaster.example",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			base, err := a.serverBase()
			if err != nil {
				return err
			}
			l, path, err := readLogin(base)
			if err != nil {
				return err
			}
			if l == nil {
				return &app.NotFoundError{What: "login", Name: base, Err: fmt.Errorf("you are not logged in to %s", base)}
			}
			resp, ended := a.send(cmd.Context(), a.known(base), http.MethodDelete, base+LoginRoot)
			if ended == nil {
				resp.Body.Close()
			}
			if err := os.Remove(path); err != nil {
				return err
			}
			if ended != nil {
				return fmt.Errorf("the login is forgotten here, but %s was not told: %w", base, ended)
			}
			if a.json {
				return a.answerJSON(loginAnswer{Server: base, Provider: l.Provider.Name})
			}
			fmt.Fprintf(a.out, "you are logged out of %s\n", base)
			return nil
		},
	}
}
