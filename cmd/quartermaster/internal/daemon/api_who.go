package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"quartermaster/adapters/configfile"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/oidc"
	"quartermaster/adapters/transport"
	"quartermaster/cmd/quartermaster/internal/api"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
)

// Rights are read again after rightsFresh. If they cannot be, those of before count until rightsStale, so that whatever
// is revoked ends within five seconds.
const (
	rightsFresh = time.Second
	rightsStale = 4 * time.Second

	mostScopes = 10_000 // that are kept between two readings
)

// errUnknown is for whoever is not known yet, and hears nothing of the database.
var errUnknown = &app.UnavailableError{Err: errors.New("who may ask cannot be read at the moment: ask again later")}

// doorman says on whose behalf requests of the API are made, and keeps what they asked.
type doorman struct {
	*service
	tokens  *oidc.Verifier
	journal *journal           // nil: nobody but the owner can ask
	stream  *kafka.Stream      // of what was asked; created with the first event
	sending string             // the journal whose events the stream holds; "": none
	finish  func(string) error // what is done with it then
	told    string             // the last error of keeping it
	links   *links             // nil: there are none

	reading sync.Mutex // held while the rights are read

	mu     sync.Mutex
	rights *rights
	// loggedOut is when somebody did last, for a while.
	loggedOut map[domain.Principal]domain.Instant
	sealing   map[string][]byte // keys by purpose
}

// rights are who may read, as of a reading of the rows.
type rights struct {
	at     time.Time
	grants []access.Grant
	keys   map[string]access.ServiceKey
	ended  map[domain.Principal]access.Ended
	scopes map[string]*access.Scope // by who asks
}

func (s *service) newDoorman(cfg config.API) (*doorman, error) {
	d := &doorman{service: s}
	if cfg.Listen == "" {
		return d, nil
	}
	var providers []oidc.Provider
	for _, p := range cfg.Providers {
		of := oidc.Provider{Name: p.Name, Issuer: p.Issuer, Audience: p.Audience, SubjectClaim: p.SubjectClaim, GroupsClaim: p.GroupsClaim}
		if p.CAFile != "" {
			pool, err := transport.Pool(p.CAFile)
			if err != nil {
				return nil, fmt.Errorf("ca_file of identity provider %s: %w", p.Name, err)
			}
			of.Client = transport.Trusting(pool)
		}
		if p.BrowserClientID != "" {
			of.Browser = oidc.Client{ID: p.BrowserClientID, Redirect: cfg.URL + api.LoginRoot + "/callback", Scopes: browserScopes(&p)}
			if p.BrowserSecretFile != "" {
				var err error
				if of.Browser.Secret, err = configfile.Secret(p.BrowserSecretFile); err != nil {
					return nil, fmt.Errorf("browser_secret_file of identity provider %s: %w", p.Name, err)
				}
			}
		}
		providers = append(providers, of)
	}
	d.tokens = oidc.New(providers, time.Now, s.log)
	instance := "api"
	if s.app.Config != nil {
		instance = s.app.Config.Instance
	}
	var err error
	d.journal, err = openJournal(filepath.Join(cmp.Or(cfg.Journal, filepath.Join(s.app.Dir, "access")), instance), instance)
	if err == nil {
		err = d.journal.own()
	}
	return d, err
}

// who returns on whose behalf a request is made.
func (d *doorman) who(r *http.Request) (app.Principal, error) {
	if r.Context().Value(ofOwner{}) != nil {
		return app.Everyone, nil
	}
	if !d.ready.Load() {
		return app.Principal{}, errNotReady
	}
	given := r.Header.Values("Authorization")
	if len(given) == 0 {
		switch shown, err := api.Shown(r); {
		case err != nil:
			return app.Principal{}, err
		case shown != nil && shown.Principal == domain.Principal(app.Everyone.Name):
			return app.Everyone, nil // its key is not that of the sessions of people
		case shown != nil:
			return d.session(r.Context(), shown)
		}
	}
	if d.tokens == nil { // it is not recorded what others than the owner ask
		return app.Principal{}, &api.UnauthenticatedError{Err: errors.New("open the link that serve printed")}
	}
	scheme, token, _ := strings.Cut(strings.Join(given, ","), " ")
	if token = strings.TrimSpace(token); len(given) != 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return app.Principal{}, &api.UnauthenticatedError{Err: errors.New("say who you are: log in, or send Authorization: Bearer and a key of a service account, or an access token")}
	}
	now := domain.InstantOf(time.Now())
	rights, err := d.current(r.Context())
	if err != nil {
		d.log.Warn("who may ask cannot be read", "error", err)
		return app.Principal{}, errUnknown
	}
	if domain.IsServiceKey(token) {
		key, err := domain.ParseServiceKey(token)
		if err != nil {
			return app.Principal{}, &api.UnauthenticatedError{Err: err}
		}
		known, ok := rights.keys[key.ID]
		if !ok || !key.Is(known.Workspace, known.Account, known.MAC) {
			return app.Principal{}, &api.UnauthenticatedError{Err: fmt.Errorf("key %s is not known here", key.ID)}
		}
		if !known.Live(now) {
			return app.Principal{}, &api.UnauthenticatedError{Err: fmt.Errorf("key %s ended at %s: ask for another", key.ID, known.Until)}
		}
		return d.principal(r.Context(), rights, domain.AccountOf(known.Account), nil, &known, now)
	}
	id, err := d.tokens.Verify(r.Context(), token)
	switch {
	case errors.Is(err, oidc.ErrUnavailable):
		return app.Principal{}, &app.UnavailableError{Err: oidc.ErrUnavailable} // the log has why
	case err != nil:
		return app.Principal{}, &api.UnauthenticatedError{Err: err}
	case id.Issued <= rights.ended[id.Principal].Any || id.Issued <= rights.ended[id.Principal].Decided+domain.Instant(oidc.Skew):
		// The provider's clock says when a token was issued, and may be ahead. Who is ended by others must not gain by it;
		// who logged out themselves may log in again at once.
		return app.Principal{}, errEnded
	}
	return d.principal(r.Context(), rights, id.Principal, id.Groups, nil, now)
}

// principal returns somebody with what they may see at the moment. key is that by which a service account is known.
func (d *doorman) principal(
	ctx context.Context, of *rights, who domain.Principal, groups []domain.Principal, key *access.ServiceKey, now domain.Instant,
) (app.Principal, error) {
	given := access.RightsOf(of.grants, append([]domain.Principal{who}, groups...), now)
	name := fmt.Sprintf("%q", given)
	if key != nil {
		name = fmt.Sprintf("%q of %q", given, key.Workspace)
	}
	d.mu.Lock()
	scope := of.scopes[name]
	d.mu.Unlock()
	if scope == nil {
		err := d.conn.View(ctx, func(v projections.View) (err error) {
			if key != nil {
				reach, err := access.Reach(v)
				if err != nil {
					return err
				}
				given = reach(key.Workspace, given)
			}
			scope, err = access.ScopeOf(v, given)
			return err
		})
		if err != nil {
			d.log.Warn("what somebody may see cannot be read", "principal", who, "error", err)
			return app.Principal{}, errUnknown
		}
		d.mu.Lock()
		if len(of.scopes) >= mostScopes {
			clear(of.scopes)
		}
		of.scopes[name] = scope
		d.mu.Unlock()
	}
	return app.Principal{Name: string(who), Scope: scope}, nil
}

// current returns the rights as of a moment ago. One request reads them again; the others go on with those of before.
func (d *doorman) current(ctx context.Context) (*rights, error) {
	have := d.known()
	age := func() time.Duration { return time.Since(have.at) }
	if have != nil && age() < rightsFresh {
		return have, nil
	}
	if !d.reading.TryLock() {
		if have != nil && age() < rightsStale {
			return have, nil
		}
		d.reading.Lock()
	}
	defer d.reading.Unlock()
	if have = d.known(); have != nil && age() < rightsFresh { // somebody else has read them
		return have, nil
	}
	began := time.Now()
	fresh := &rights{at: began, keys: map[string]access.ServiceKey{}, scopes: map[string]*access.Scope{}}
	ctx, stop := context.WithTimeout(ctx, rightsStale)
	defer stop()
	err := d.conn.View(ctx, func(v projections.View) (err error) {
		keys, err := access.ServiceKeys(v)
		if err != nil {
			return err
		}
		for _, k := range keys {
			if _, twice := fresh.keys[k.KeyID]; !twice { // ids are random
				fresh.keys[k.KeyID] = k
			}
		}
		if fresh.ended, err = access.SessionsEnded(v); err != nil {
			return err
		}
		fresh.grants, err = access.Grants(v)
		return err
	})
	if err != nil {
		if have != nil && age() < rightsStale {
			return have, nil
		}
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rights = fresh
	return fresh, nil
}

// known returns the rights that were read last, nil if none were.
func (d *doorman) known() *rights {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rights
}

// record keeps what somebody asked.
func (d *doorman) record(who app.Principal, asked api.Asked) error {
	if who.Name == app.Everyone.Name || d.journal == nil {
		return nil
	}
	if err := d.journal.add(time.Now(), entryOf(who, asked)); err != nil {
		d.log.Error("what is asked cannot be kept, so nothing is answered", "error", err)
		return &app.UnavailableError{Err: errors.New("what is asked cannot be recorded at the moment, so nothing is answered")}
	}
	return nil
}

// loginProviders returns the identity providers that one can log in with.
func loginProviders(cfg config.API) []api.LoginProvider {
	var all []api.LoginProvider
	for _, p := range cfg.Providers {
		if p.ClientID != "" || p.BrowserClientID != "" {
			scopes := p.Scopes
			if len(scopes) == 0 {
				scopes = []string{"openid", "offline_access"}
			}
			all = append(all, api.LoginProvider{Name: p.Name, Issuer: p.Issuer, Audience: p.Audience, ClientID: p.ClientID, Scopes: scopes, Browser: p.BrowserClientID != ""})
		}
	}
	return all
}

// logout ends what the identity provider of somebody gave them before now.
func (d *doorman) logout(ctx context.Context, who app.Principal) error {
	p := domain.Principal(who.Name)
	if who.Name == app.Everyone.Name && d.links != nil {
		d.links.end()
		return nil
	}
	if kind, _, ok := p.Kind(); !ok || kind != domain.PrincipalUser {
		return &app.InvalidError{Err: fmt.Errorf("%s did not log in, so there is nothing to end", who.Name)}
	}
	now := domain.InstantOf(time.Now())
	d.mu.Lock()
	again := d.loggedOut[p] > now-domain.Instant(rightsFresh)
	if d.loggedOut == nil || len(d.loggedOut) >= mostScopes {
		d.loggedOut = map[domain.Principal]domain.Instant{}
	}
	if !again {
		d.loggedOut[p] = now
	}
	d.mu.Unlock()
	if again { // requests that come before the end is seen would each append one
		return nil
	}
	workspace := app.Platform
	if spaces := who.Scope.Workspaces(); len(spaces) > 0 {
		workspace = spaces[0]
	}
	err := d.conn.Stream("logout").Append(ctx, &domain.Envelope{
		Time: now, Subject: who.Name, Workspace: workspace, Event: &domain.SessionEnded{Principal: p, At: now, Reason: "logged out"},
	})
	if err != nil {
		d.mu.Lock()
		delete(d.loggedOut, p)
		d.mu.Unlock()
	}
	return app.Unavailable(err)
}
