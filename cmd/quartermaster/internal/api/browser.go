package api

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/domain"
)

// How long sessions of browsers last, and how long somebody may take to log in.
const (
	SessionIdle    = domain.Instant(time.Hour)      // since it was last used
	SessionLongest = domain.Instant(12 * time.Hour) // since the login began
	LoginWithin    = domain.Instant(10 * time.Minute)

	sealedAgain = domain.Instant(time.Minute) // the time of the last use is as old as this at most
	mostCookie  = 4000                        // bytes of a session: browsers drop cookies of more than 4096
	mostBack    = 1000                        // bytes of a path to return to
)

// LoginRoot is the path of logins.
const LoginRoot = cli.LoginRoot

// LoginLink is a link that gives one browser the rights of the owner of the home.
type LoginLink = cli.LoginLink

// Site is an origin at which browsers have sessions. A session is a cookie that only we can read or make: who somebody
// is, and since when. No instance keeps anything of it.
type Site struct {
	Origin string // scheme://host, with the port if it is not that of the scheme
	// Key seals cookies. All instances of the site MUST have the same.
	Key func(context.Context) ([]byte, error)
	// Providers log people in. Nil: browsers come with a link.
	Providers Logins
	// Open takes the code of a link, which it does once. Nil: there are no links.
	Open func(code string) (*Session, error)
}

// Logins logs people in with identity providers.
type Logins interface {
	// Begin returns the URL to send a browser to, and what is kept of the login. "" is the only provider.
	Begin(ctx context.Context, provider string) (to string, begun []byte, err error)
	// Finish returns the session that comes of an answer to a login. at is when that began.
	Finish(ctx context.Context, begun []byte, at domain.Instant, answer url.Values) (*Session, error)
}

// Session is what a browser shows.
type Session struct {
	Principal domain.Principal   `json:"p"`
	Groups    []domain.Principal `json:"g,omitempty"`
	Begun     domain.Instant     `json:"b"`
	Used      domain.Instant     `json:"u"`
}

// Until returns when a session ends that is not used any more.
func (s *Session) Until() domain.Instant { return min(s.Used+SessionIdle, s.Begun+SessionLongest) }

// begunLogin is what a browser keeps between the beginning and the end of a login.
type begunLogin struct {
	Login []byte         `json:"l"`
	Back  string         `json:"b"`
	At    domain.Instant `json:"t"`
}

// Purposes of cookies. A cookie of one is none of another.
const (
	forSession = "session"
	forLogin   = "login"
)

// cookie returns the name of a cookie. Over TLS no other host, and nobody on the way, can set one of that name.
func (s *Site) cookie(purpose string) string {
	name := "quartermaster-" + purpose
	if s.secure() {
		return "__Host-" + name
	}
	if _, port, ok := strings.Cut(strings.TrimPrefix(s.Origin, "http://"), ":"); ok {
		name += "-" + port[strings.LastIndex(port, ":")+1:] // cookies are of all ports
	}
	return name
}

func (s *Site) secure() bool { return strings.HasPrefix(s.Origin, "https://") }

// host returns the value of the header Host of requests to the site.
func (s *Site) host() string {
	_, host, _ := strings.Cut(s.Origin, "://")
	return host
}

// seal returns a value as text that only [open] reads, with the same key and for the same purpose.
func seal(key []byte, purpose string, value any) (string, error) {
	c, err := cipherOf(key)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(value)
	return base64.RawURLEncoding.EncodeToString(c.Seal(nil, nil, text, []byte("quartermaster "+purpose+" v1"))), err
}

// open reads what [seal] wrote, and returns false for everything else.
func open(key []byte, purpose, sealed string, into any) bool {
	data, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil {
		return false
	}
	c, err := cipherOf(key)
	if err != nil {
		return false
	}
	text, err := c.Open(nil, nil, data, []byte("quartermaster "+purpose+" v1"))
	return err == nil && json.Unmarshal(text, into) == nil
}

func cipherOf(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// bound names what a cookie is bound to: where it is used, and what for.
func (s *Site) bound(purpose string) string { return purpose + " at " + s.Origin }

// keep gives a browser a cookie, which it keeps for a time.
func (s *Site) keep(ctx context.Context, w http.ResponseWriter, purpose string, value any, within domain.Instant) error {
	key, err := s.Key(ctx)
	if err != nil {
		return err
	}
	sealed, err := seal(key, s.bound(purpose), value)
	if err != nil {
		return err
	}
	if len(sealed) > mostCookie {
		return &app.DeniedError{Err: fmt.Errorf("browsers cannot keep a session of %d bytes, more than %d", len(sealed), mostCookie)}
	}
	s.set(w, purpose, sealed, int(within/domain.Second))
	return nil
}

// drop removes a cookie.
func (s *Site) drop(w http.ResponseWriter, purpose string) { s.set(w, purpose, "", -1) }

func (s *Site) set(w http.ResponseWriter, purpose, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: s.cookie(purpose), Value: value, Path: "/", MaxAge: seconds, Secure: s.secure(), HttpOnly: true,
		// The provider sends the browser back from another site, so Strict would lose the login.
		SameSite: http.SameSiteLaxMode,
	})
}

// shown reads a cookie. It returns false if the browser has none that was made here for the purpose.
func (s *Site) shown(r *http.Request, purpose string, into any) (bool, error) {
	all := r.CookiesNamed(s.cookie(purpose))
	if len(all) != 1 || len(all[0].Value) > mostCookie {
		return false, nil
	}
	key, err := s.Key(r.Context())
	if err != nil {
		return false, err
	}
	return open(key, s.bound(purpose), all[0].Value, into), nil
}

// site is the key of the site of a request in its context.
type site struct{}

// On returns the context of requests to a site.
func On(ctx context.Context, s *Site) context.Context { return context.WithValue(ctx, site{}, s) }

func siteOf(r *http.Request) *Site {
	s, _ := r.Context().Value(site{}).(*Site)
	return s
}

// Shown returns the session that a browser shows, nil if there is none that is valid now. It returns a
// [*app.DeniedError] if a page of another site sent the request.
func Shown(r *http.Request) (*Session, error) {
	s := siteOf(r)
	if s == nil {
		return nil, nil
	}
	at := &Session{}
	ok, err := s.shown(r, forSession, at)
	if err != nil || !ok {
		return nil, err
	}
	if now := domain.InstantOf(time.Now()); now >= at.Until() {
		return nil, nil
	}
	return at, s.sender(r)
}

// sender refuses a request with a session that a page of another site sent. Browsers say which site that is, and no
// page can make them say otherwise. A person may come to an answer from anywhere, by a link.
func (s *Site) sender(r *http.Request) error {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	from, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	switch {
	case from == "same-origin":
		return nil
	case read && from == "none": // the person typed it
		return nil
	case read && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document":
		return nil
	case from == "" && (origin == s.Origin || read && origin == ""): // an old browser
		return nil
	}
	return &app.DeniedError{Err: errors.New("a page of another site may not ask with your session")}
}

// browsing answers a request of a browser to its site. It says in time that the session was used.
func (s *server) browsing(w http.ResponseWriter, r *http.Request) error {
	on := siteOf(r)
	if on == nil {
		return nil
	}
	if on.Open != nil && r.Host != on.host() {
		// The name of another host can be made to lead here.
		return &statusError{&app.InvalidError{Err: fmt.Errorf("this is %s, not another host", on.Origin)}, http.StatusMisdirectedRequest}
	}
	if len(r.CookiesNamed(on.cookie(forSession))) == 0 {
		return nil
	}
	shown, err := Shown(r)
	now := domain.InstantOf(time.Now())
	if err != nil || shown == nil || now-shown.Used < sealedAgain {
		return nil //nolint:nilerr // whoever asks who it is says why
	}
	shown.Used = now
	return on.keep(r.Context(), w, forSession, shown, SessionIdle)
}

// describedSession is the answer on who asks.
type describedSession struct {
	Principal string         `json:"principal"`
	Begun     domain.Instant `json:"begun,omitzero"`
	Until     domain.Instant `json:"until,omitzero"` // when it ends if it is not used any more
	Ends      domain.Instant `json:"ends,omitzero"`  // when it ends in any case
}

// registerBrowser adds the operations of browsers.
func (s *server) registerBrowser(mux *http.ServeMux) {
	handle := func(path string, answer func(w http.ResponseWriter, r *http.Request, on *Site) error) {
		mux.HandleFunc("GET "+cli.LoginRoot+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
			on := siteOf(r)
			var err error
			switch {
			case on == nil:
				err = &app.NotFoundError{Err: errors.New("browsers cannot log in here: set api.url and a browser_client_id")}
			case r.Method != http.MethodGet || strings.Contains(r.Header.Get("Sec-Purpose"), "prefetch"):
				err = &app.InvalidError{Err: errors.New("want GET, and not in advance: it can be done once")}
			default:
				err = answer(w, r, on)
			}
			if err != nil {
				s.refuseLogin(w, err)
			}
		})
	}
	handle("/begin", s.beginLogin)
	handle("/callback", s.finishLogin)
	handle("/open", s.openLink)
	mux.HandleFunc("GET "+cli.LoginRoot+"/session", func(w http.ResponseWriter, r *http.Request) {
		who, err := s.Who(r)
		if err != nil {
			fail(w, err)
			return
		}
		ans := describedSession{Principal: who.Name}
		if at, err := Shown(r); err == nil && at != nil && r.Header.Get("Authorization") == "" {
			ans.Begun, ans.Until, ans.Ends = at.Begun, at.Until(), at.Begun+SessionLongest
		}
		write(w, http.StatusOK, ans)
	})
	mux.HandleFunc("POST "+cli.LoginRoot+"/link", func(w http.ResponseWriter, r *http.Request) {
		if s.Link == nil {
			fail(w, &app.NotFoundError{Err: errors.New("there are no links here")})
			return
		}
		link, err := s.Link(r)
		if err != nil {
			fail(w, err)
			return
		}
		write(w, http.StatusOK, link)
	})
}

// refuseLogin answers why a login failed. What only the operator should know is in the log.
func (s *server) refuseLogin(w http.ResponseWriter, err error) {
	if cli.KindOf(err) == app.KindNone {
		s.Log.Error("a login failed", "error", err)
		err = errors.New("the login failed: the log of the server says why")
	}
	fail(w, err)
}

// beginLogin sends a browser to a provider.
func (s *server) beginLogin(w http.ResponseWriter, r *http.Request, on *Site) error {
	if on.Providers == nil {
		return &app.NotFoundError{Err: errors.New("no identity provider logs in browsers here")}
	}
	q := r.URL.Query()
	back, err := localPath(q.Get("return"))
	if err != nil {
		return err
	}
	to, begun, err := on.Providers.Begin(r.Context(), q.Get("provider"))
	if err != nil {
		return err
	}
	kept := &begunLogin{Login: begun, Back: back, At: domain.InstantOf(time.Now())}
	if err := on.keep(r.Context(), w, forLogin, kept, LoginWithin); err != nil {
		return err
	}
	sendTo(w, to)
	return nil
}

// finishLogin begins the session of a browser that a provider sends back. The login cannot be finished again.
func (s *server) finishLogin(w http.ResponseWriter, r *http.Request, on *Site) error {
	var begun begunLogin
	ok, err := on.shown(r, forLogin, &begun)
	if err != nil {
		return err
	}
	on.drop(w, forLogin)
	if on.Providers == nil || !ok || domain.InstantOf(time.Now()) >= begun.At+LoginWithin {
		return &app.InvalidError{Err: fmt.Errorf("this browser has not begun to log in here in the last %s: begin again", time.Duration(LoginWithin))}
	}
	if len(r.URL.RawQuery) > mostQuery {
		return &app.InvalidError{Err: errors.New("the answer of the identity provider is too long")}
	}
	session, err := on.Providers.Finish(r.Context(), begun.Login, begun.At, r.URL.Query())
	if err != nil {
		return err
	}
	return on.begin(w, r, session, begun.Back)
}

// openLink begins the session of the owner of the home.
func (s *server) openLink(w http.ResponseWriter, r *http.Request, on *Site) error {
	if on.Open == nil {
		return &app.NotFoundError{Err: errors.New("there are no links here")}
	}
	session, err := on.Open(r.URL.Query().Get("code"))
	if err != nil {
		return err
	}
	return on.begin(w, r, session, "")
}

// begin begins a session, and sends the browser to where it wanted to go. What it showed before counts no more.
func (s *Site) begin(w http.ResponseWriter, r *http.Request, session *Session, back string) error {
	session.Used = domain.InstantOf(time.Now())
	if err := s.keep(r.Context(), w, forSession, session, SessionIdle); err != nil {
		return err
	}
	if back == "" {
		back = "/"
	}
	sendTo(w, back)
	return nil
}

// sendTo sends a browser on. The address that it leaves, which may have a code, is not passed on.
func sendTo(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// localPath returns a path of this site to return to.
func localPath(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	u, err := url.Parse(path)
	plain := func(r rune) bool { return r <= ' ' || r == '\\' || r >= 0x7f }
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || len(path) > mostBack ||
		!strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsFunc(path, plain) {
		return "", &app.InvalidError{Err: fmt.Errorf("return=%s: want a path of this site", domain.Clip(path, 40))}
	}
	return path, nil
}
