package daemon

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"quartermaster/adapters/oidc"
	"quartermaster/cmd/quartermaster/internal/api"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/projections/access"
)

// mostGroupBytes bounds the names of groups in a session, which is a cookie.
const mostGroupBytes = 2000

// publicSite returns the site where people log in with identity providers, nil if browsers cannot.
func (d *doorman) publicSite(cfg config.API) *api.Site {
	if cfg.URL == "" {
		return nil
	}
	return &api.Site{Origin: cfg.URL, Key: d.sessionKey, Providers: &logins{d, cfg}}
}

// sessionKey returns what seals the sessions of people. It is the same on all instances, and after a restart.
func (d *doorman) sessionKey(ctx context.Context) ([]byte, error) {
	return d.sealingKey(ctx, "sessions of browsers")
}

// cursorKey returns what seals cursors.
func (d *doorman) cursorKey(ctx context.Context) ([]byte, error) { return d.sealingKey(ctx, "cursors") }

func (d *doorman) sealingKey(ctx context.Context, purpose string) ([]byte, error) {
	if !d.ready.Load() {
		return nil, errNotReady
	}
	d.mu.Lock()
	key := d.sealing[purpose]
	d.mu.Unlock()
	if key != nil {
		return key, nil
	}
	key, err := d.conn.SealingKey(ctx, purpose)
	if err != nil {
		d.log.Warn("what seals sessions and cursors cannot be read", "error", err)
		return nil, errUnknown
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sealing == nil {
		d.sealing = map[string][]byte{}
	}
	d.sealing[purpose] = key
	return key, nil
}

// logins implements [api.Logins].
type logins struct {
	*doorman
	cfg config.API
}

// Begin implements [api.Logins].
func (l *logins) Begin(ctx context.Context, provider string) (string, []byte, error) {
	var names []string
	for _, p := range l.cfg.Providers {
		if p.BrowserClientID != "" {
			names = append(names, p.Name)
		}
	}
	if provider == "" && len(names) == 1 {
		provider = names[0]
	}
	if !slices.Contains(names, provider) {
		return "", nil, &app.InvalidError{Field: "provider", Err: fmt.Errorf("provider=%s: %s", domain.Clip(provider, 40), domain.Suggest(provider, names))}
	}
	to, login, err := l.tokens.Begin(ctx, provider)
	if err != nil {
		return "", nil, l.worded(err)
	}
	kept, err := json.Marshal(login)
	return to, kept, err
}

// Finish implements [api.Logins].
func (l *logins) Finish(ctx context.Context, kept []byte, at domain.Instant, answer url.Values) (*api.Session, error) {
	var login oidc.Login
	if err := json.Unmarshal(kept, &login); err != nil {
		return nil, err
	}
	id, err := l.tokens.Finish(ctx, &login, answer)
	if err != nil {
		return nil, l.worded(err)
	}
	rights, err := l.current(ctx)
	if err != nil {
		l.log.Warn("who may ask cannot be read", "error", err)
		return nil, errUnknown
	}
	session := &api.Session{Principal: id.Principal, Groups: fitting(id.Groups, rights.grants), Begun: at}
	who, err := l.session(ctx, session)
	if err != nil {
		return nil, err
	}
	if err := l.record(who, api.Asked{Operation: "login", Question: sha256.Sum256([]byte(login.Provider))}); err != nil {
		return nil, err
	}
	return session, nil
}

// fitting returns the groups that a session names: all, or those with a grant if all are too many for a cookie.
func fitting(groups []domain.Principal, grants []access.Grant) []domain.Principal {
	size := 0
	for _, g := range groups {
		size += len(g)
	}
	if size <= mostGroupBytes {
		return groups
	}
	granted := map[domain.Principal]bool{}
	for i := range grants {
		granted[grants[i].Principal] = true
	}
	return slices.DeleteFunc(slices.Clone(groups), func(g domain.Principal) bool { return !granted[g] })
}

func (d *doorman) worded(err error) error {
	switch {
	case errors.Is(err, oidc.ErrUnavailable):
		d.log.Warn("a browser cannot log in", "error", err)
		return &app.UnavailableError{Err: oidc.ErrUnavailable}
	case errors.Is(err, oidc.ErrLogin):
		return &app.InvalidError{Err: fmt.Errorf("%w: begin again", err)}
	}
	return err
}

// errEnded is for sessions that were ended.
var errEnded = &api.UnauthenticatedError{Err: errors.New("this session was ended: log in again")}

// session returns on whose behalf a browser asks.
func (d *doorman) session(ctx context.Context, s *api.Session) (app.Principal, error) {
	rights, err := d.current(ctx)
	if err != nil {
		d.log.Warn("who may ask cannot be read", "error", err)
		return app.Principal{}, errUnknown
	}
	if s.Begun <= rights.ended[s.Principal].Any {
		return app.Principal{}, errEnded
	}
	return d.principal(ctx, rights, s.Principal, s.Groups, nil, domain.InstantOf(time.Now()))
}

// Bounds of links.
const (
	linkFor   = 5 * time.Minute
	mostLinks = 8
)

// errLink is for every code that opens nothing.
var errLink = &api.UnauthenticatedError{Err: errors.New("this link was used, or is older than 5 minutes: \"quartermaster login --server unix:SOCKET\" makes another")}

// links are the links that make a browser that of the owner of the home. They and the sessions that come of them end
// with the process.
type links struct {
	origin string

	mu   sync.Mutex
	key  []byte // seals the sessions
	open map[[sha256.Size]byte]time.Time
}

func newLinks(origin string) *links {
	l := &links{origin: origin, open: map[[sha256.Size]byte]time.Time{}}
	l.end()
	return l
}

// site returns the site where the links lead.
func (l *links) site() *api.Site {
	return &api.Site{Origin: l.origin, Open: l.take, Key: func(context.Context) ([]byte, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.key, nil
	}}
}

// end ends all sessions that came of links, and all links.
func (l *links) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.key = make([]byte, 32)
	_, _ = rand.Read(l.key) // never fails
	clear(l.open)
}

// make returns a link.
func (l *links) make() *api.LoginLink {
	code, now := rand.Text(), time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for of, until := range l.open {
		if !now.Before(until) || len(l.open) >= mostLinks {
			delete(l.open, of)
		}
	}
	l.open[sha256.Sum256([]byte(code))] = now.Add(linkFor)
	return &api.LoginLink{Link: l.origin + api.LoginRoot + "/open?code=" + code, Until: domain.InstantOf(now.Add(linkFor))}
}

// take returns the session of a link, once.
func (l *links) take(code string) (*api.Session, error) {
	of := sha256.Sum256([]byte(code))
	l.mu.Lock()
	defer l.mu.Unlock()
	until, ok := l.open[of]
	delete(l.open, of)
	if !ok || !time.Now().Before(until) {
		return nil, errLink
	}
	return &api.Session{Principal: domain.Principal(app.Everyone.Name), Begun: domain.InstantOf(time.Now())}, nil
}

// link returns a link to the owner of the home, who asks by the socket.
func (d *doorman) link(r *http.Request) (*api.LoginLink, error) {
	if r.Context().Value(ofOwner{}) == nil {
		return nil, &app.DeniedError{Err: errors.New("only the owner of the home gets a link, by its socket")}
	}
	if d.links == nil {
		return nil, &app.NotFoundError{Err: errors.New("this server has no address for a browser: it is for an embedded home")}
	}
	return d.links.make(), nil
}

// browserScopes are what browsers ask a provider for.
func browserScopes(p *config.Provider) []string {
	scopes := slices.DeleteFunc(slices.Clone(p.Scopes), func(s string) bool { return s == "offline_access" || s == "openid" })
	return append([]string{"openid"}, scopes...)
}
