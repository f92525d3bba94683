// Package api serves the operations of package cli over HTTP, as /api/v1.
//
// An operation is a command that only reads. Its path is the words of the command, its query has the flags and
// arguments, and its answer is what the command writes, byte for byte, in the same forms. So the command line and the
// API cannot disagree. The document of the API, in OpenAPI 3.1, is made from the commands and from the schemas of their
// answers. It is committed as schemas/openapi/v1.json, and a test holds the two together.
//
// What always holds: a question changes nothing that others read. An answer is of one position of the log, which it
// names. An error is a problem of RFC 9457, and its type ends in its kind. The number of questions that are answered at
// once is bounded; others wait for their turn.
package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/domain"
	"quartermaster/schemas"
)

// Config is what the API needs.
type Config struct {
	// Who returns on whose behalf a request is made.
	Who func(*http.Request) (app.Principal, error)
	// Record keeps what somebody asked, before it is answered. An error means that it cannot be kept, and that nothing is
	// answered. Nil: nothing is recorded.
	Record func(app.Principal, Asked) error
	// Providers are the identity providers that one can log in with.
	Providers []LoginProvider
	// Logout ends what the identity provider of somebody gave them before now.
	Logout func(context.Context, app.Principal) error
	// Link returns a link that gives one browser a session, to the owner of the home alone. Nil: there are none.
	Link func(*http.Request) (*cli.LoginLink, error)
	// Key seals cursors. All instances MUST have the same. Nil: cursors end with the process.
	Key func(context.Context) ([]byte, error)
	// Pages serves the pages, at every path that is not of the API. Nil: there are none.
	Pages http.Handler
	// Open returns an app for one question of a principal. An error says why nothing can be answered at the moment.
	Open func(app.Principal) (*app.App, error)
	// AtOnce bounds the questions that are answered at once.
	AtOnce int
	// Context ends with the process, and ends long work.
	Context context.Context
	Log     *slog.Logger
}

// LoginProvider is an identity provider that one can log in with.
type LoginProvider = cli.LoginProvider

// Asked is what somebody asked.
type Asked struct {
	Operation string
	Question  [sha256.Size]byte // SHA-256 of the query
	Refused   bool
	Position  domain.Position // of the answer; nil: none
}

// UnauthenticatedError is the error of a request whose sender did not say who they are. Its status is 401.
type UnauthenticatedError struct{ Err error }

// Error implements error.
func (e *UnauthenticatedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *UnauthenticatedError) Unwrap() error { return e.Err }

// Kind returns [app.KindDenied].
func (e *UnauthenticatedError) Kind() app.Kind { return app.KindDenied }

// Bounds of questions.
const (
	mostQuery = 16 << 10 // bytes of a query
	mostWidth = 10_000   // characters of a table
	mostNotes = 20       // of an answer

	mostOfPast = 2 // questions at once as of a past position, which fold rows of their own

	patience = 30 * time.Second // of a question for its turn

	judgedAgain = time.Second // after a longer wait, because a right may have ended
)

type server struct {
	Config
	turns, past chan struct{}
	bodies      chan struct{} // requests with a body at once, which is in memory
	deciding    chan struct{} // decisions are appended one after the other, so that each is appended once
	door        door
	pages       pages
	packers     packers
	changes     changes
	own         []byte // seals cursors if there is no other key
}

// cursorKey returns what seals cursors.
func (s *server) cursorKey(ctx context.Context) ([]byte, error) {
	if s.Key == nil {
		return s.own, nil
	}
	return s.Key(ctx)
}

// door counts who is inside, until it is closed.
type door struct {
	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

// enter reports whether the door is open. Who entered MUST leave.
func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.inside.Add(1)
	return true
}

func (d *door) leave() { d.inside.Done() }

// close closes the door, and waits until nobody is inside.
func (d *door) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.inside.Wait()
}

// errEnding means that the process ends.
var errEnding = &app.UnavailableError{Err: errors.New("the server is being stopped: ask again later")}

// Handler returns the API. end refuses further questions, and returns when those that are being answered, and long work,
// have ended. The caller MUST call it, once the context has ended, before it closes what Open shares.
func Handler(cfg Config) (_ http.Handler, end func()) { return newServer(cfg).handler() }

func newServer(cfg Config) *server {
	return &server{Config: cfg, turns: make(chan struct{}, max(1, cfg.AtOnce)), past: make(chan struct{}, mostOfPast),
		bodies: make(chan struct{}, mostBodies), deciding: make(chan struct{}, 1),
		packers: newPackers(), changes: changes{every: changedEvery, look: lookedEvery}, own: []byte(rand.Text() + rand.Text())[:32]}
}

func (s *server) handler() (_ http.Handler, end func()) {
	cfg := s.Config
	mux := http.NewServeMux()
	api := newAPI(mux)
	ws := newWorks(cfg.Context, cfg.Log, &s.door, s.past, cfg.Who)
	ws.packers = s.packers
	ws.register(mux)
	for _, op := range cli.Operations() {
		serve := s.answer
		if op.Long {
			serve = func(w http.ResponseWriter, r *http.Request, op *cli.Operation) { s.begin(w, r, ws, op) }
		}
		api.Adapter().Handle(&huma.Operation{Method: methodOf(&op), Path: pathOf(&op)}, func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			serve(w, r, &op)
		})
	}
	mux.HandleFunc("POST "+cli.DecisionRoot, s.propose)
	mux.HandleFunc("PUT "+cli.DecisionRoot+"/{id}", s.decide)
	mux.HandleFunc("PUT "+cli.DeploymentsRoot, s.declare)
	mux.HandleFunc("GET "+cli.ChangesRoot, s.follow)
	mux.HandleFunc("GET "+cli.APIRoot+"openapi.json", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = s.packers.send(w, r, &spool{text: schemas.OpenAPI})
	})
	mux.HandleFunc("GET "+cli.LoginRoot, func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, append([]LoginProvider{}, cfg.Providers...))
	})
	mux.HandleFunc("DELETE "+cli.LoginRoot, func(w http.ResponseWriter, r *http.Request) {
		who, err := cfg.Who(r)
		if err == nil {
			err = cfg.Logout(r.Context(), who)
		}
		if err != nil {
			fail(w, err)
			return
		}
		if on := siteOf(r); on != nil {
			on.drop(w, forSession)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	s.registerBrowser(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if cfg.Pages != nil && !strings.HasPrefix(r.URL.Path, "/api/") {
			cfg.Pages.ServeHTTP(w, r)
			return
		}
		var allowed, ofAny []string // ofAny: because the path could be that of any {id}
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
			other := r.Clone(r.Context())
			other.Method = method
			switch _, pattern := mux.Handler(other); {
			case pattern == "/":
			case strings.Contains(pattern, "{"):
				ofAny = append(ofAny, method)
			default:
				allowed = append(allowed, method)
			}
		}
		if len(allowed) == 0 {
			allowed = ofAny
		}
		if len(allowed) > 0 {
			want := strings.Join(allowed, ", ")
			w.Header().Set("Allow", want)
			err := fmt.Errorf("%s %s: want %s", domain.Clip(r.Method, 20), r.URL.Path, want)
			refuse(w, http.StatusMethodNotAllowed, &app.InvalidError{Err: err})
			return
		}
		err := fmt.Errorf("%s is not an operation: %sopenapi.json lists them", domain.Clip(r.URL.Path, 80), cli.APIRoot)
		refuse(w, http.StatusNotFound, &app.NotFoundError{Err: err})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.door.enter() {
			fail(w, errEnding)
			return
		}
		defer s.door.leave()
		protect(w.Header())
		if err := s.browsing(w, r); err != nil {
			fail(w, err)
			return
		}
		mux.ServeHTTP(w, r)
	}), s.door.close
}

// protect keeps answers from pages of other sites, and addresses from other sites.
func protect(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}

func methodOf(op *cli.Operation) string {
	if op.Posted() {
		return http.MethodPost
	}
	return http.MethodGet
}

// begin begins long work.
func (s *server) begin(w http.ResponseWriter, r *http.Request, ws *works, op *cli.Operation) {
	who, err := s.asking(r, op)
	if err != nil {
		fail(w, err)
		return
	}
	q, form, err := questionOf(r, op)
	if err != nil {
		fail(w, err)
		return
	}
	sent, done, err := s.sent(w, r, op)
	if err != nil {
		fail(w, err)
		return
	}
	defer done()
	if err := s.record(who, r, op, sent, nil, false); err != nil {
		fail(w, err)
		return
	}
	begun, err := ws.begin(op, q, form, sent, who, s.Open)
	if errors.Is(err, errBusy) {
		refuse(w, http.StatusTooManyRequests, err)
		return
	}
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Location", cli.WorkRoot+"/"+begun.ID)
	write(w, http.StatusAccepted, begun)
}

// asking returns who asks an operation, with what they may see of it.
func (s *server) asking(r *http.Request, op *cli.Operation) (app.Principal, error) {
	who, err := s.Who(r)
	if err != nil {
		return app.Principal{}, err
	}
	asking, err := who.Asking(strings.Join(op.Words, " "))
	if err != nil {
		return app.Principal{}, errors.Join(err, s.record(who, r, op, nil, nil, true))
	}
	return asking, nil
}

// record keeps what somebody asked.
func (s *server) record(who app.Principal, r *http.Request, op *cli.Operation, sent []cli.Document, at domain.Position, refused bool) error {
	question := sha256.New()
	_, _ = io.WriteString(question, r.URL.RawQuery)
	for _, d := range sent {
		_, _ = fmt.Fprintf(question, "\n%q %d ", d.Name, len(d.Text))
		_, _ = io.WriteString(question, d.Text)
	}
	return s.keep(who, Asked{strings.Join(op.Words, " "), [sha256.Size]byte(question.Sum(nil)), refused, at})
}

func (s *server) keep(who app.Principal, asked Asked) error {
	if s.Record == nil {
		return nil
	}
	return s.Record(who, asked)
}

func pathOf(op *cli.Operation) string { return cli.APIRoot + strings.Join(op.Words, "/") }

// statuses are the HTTP statuses of kinds of errors.
var statuses = map[app.Kind]int{
	app.KindInvalid: http.StatusBadRequest, app.KindNotFound: http.StatusNotFound, app.KindDenied: http.StatusForbidden,
	app.KindConflict: http.StatusConflict, app.KindIncomplete: http.StatusServiceUnavailable,
	app.KindUnavailable: http.StatusServiceUnavailable, app.KindNone: http.StatusInternalServerError,
}

// fail answers an error with the status of its kind.
func fail(w http.ResponseWriter, err error) {
	status := statuses[cli.KindOf(err)]
	var unknown *UnauthenticatedError
	if errors.As(err, &unknown) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		status = http.StatusUnauthorized
	}
	var own *statusError
	if errors.As(err, &own) {
		status = own.status
	}
	refuse(w, status, err)
}

// refuse answers an error.
func refuse(w http.ResponseWriter, status int, err error) {
	p := problemOf(status, err)
	if kind := cli.KindOf(err); kind == app.KindUnavailable || kind == app.KindIncomplete {
		w.Header().Set("Retry-After", "5")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = cli.WriteLine(w, p)
}

func (s *server) answer(w http.ResponseWriter, r *http.Request, op *cli.Operation) {
	came := time.Now()
	who, err := s.asking(r, op)
	if err != nil {
		fail(w, err)
		return
	}
	q, form, err := questionOf(r, op)
	if err != nil {
		fail(w, err)
		return
	}
	sent, done, err := s.sent(w, r, op)
	if err != nil {
		fail(w, err)
		return
	}
	defer done()
	pg, err := s.pageOf(r.Context(), r, who, op, q, form)
	if err != nil {
		fail(w, err)
		return
	}
	turns := []chan struct{}{s.turns}
	if q.Get(asOfParam) != "" || pg != nil && pg.past {
		turns = []chan struct{}{s.past, s.turns}
	}
	for i, turn := range turns {
		if err := wait(r.Context(), turn); err != nil {
			for _, taken := range turns[:i] {
				<-taken
			}
			fail(w, err)
			return
		}
	}
	out := &spool{}
	defer func() { _ = out.close() }()
	var tag string
	var did *cli.Outcome
	if time.Since(came) > judgedAgain {
		who, err = s.asking(r, op)
	}
	if err == nil {
		tag, did, err = s.ask(r, who, op, q, form, sent, pg, out)
	}
	for i := len(turns) - 1; i >= 0; i-- { // who reads slowly keeps nobody waiting
		<-turns[i]
	}
	done()
	if err != nil {
		s.fail(w, op, err)
		return
	}
	if tag != "" {
		w.Header().Set("ETag", tagFor(r, tag))
	}
	if did == nil {
		varies(w.Header())
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", contentType(op, form))
	describeOutcome(w.Header(), did)
	if pg != nil && pg.next != "" {
		w.Header().Set("Link", pg.link(pathOf(op)))
	}
	if err := s.packers.send(w, r, out); err != nil {
		s.Log.Warn("an answer was cut off", "operation", strings.Join(op.Words, " "), "error", err)
		panic(http.ErrAbortHandler)
	}
}

// describeOutcome adds the exit code and the notes of a command to the header of its answer.
func describeOutcome(header http.Header, did *cli.Outcome) {
	if did.Code != 0 {
		header.Set(cli.ExitHeader, strconv.Itoa(did.Code))
	}
	notes := did.Notes
	if more := len(notes) - mostNotes; more > 0 {
		notes = append(slices.Clone(notes[:mostNotes]), fmt.Sprintf("and %d more notes", more))
	}
	for _, note := range notes {
		header.Add(cli.NoteHeader, url.PathEscape(domain.Clip(note, 1000)))
	}
}

// ask answers a question. tag is the entity tag of the answer, "" for none. did is nil if whoever asks has the answer.
func (s *server) ask(
	r *http.Request, who app.Principal, op *cli.Operation, q url.Values, form cli.Form, sent []cli.Document, pg *page, out *spool,
) (tag string, did *cli.Outcome, err error) {
	on, err := s.Open(who)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, on.Close()) }()
	if sent != nil {
		on.Files = cli.SentFiles(sent)
	}
	var at, now domain.Position
	if !op.Outside {
		if at, err = on.Position(r.Context()); err != nil {
			return "", nil, app.Unavailable(err)
		}
	}
	if now = at; pg != nil && pg.from != nil {
		at = pg.at
	}
	if err := s.record(who, r, op, sent, at, false); err != nil {
		return "", nil, err
	}
	if pg != nil {
		var clocked bool
		whole := tagOf(who, op, q, form, at)
		tag = pg.tag(whole)
		if matches(r.Header.Values("If-None-Match"), tag) {
			return tag, nil, nil
		}
		if did, clocked, err = s.askPage(r.Context(), on, who, op, q, form, pg, whole, now, at, out); clocked || err != nil {
			tag = ""
		}
		return tag, did, err
	}
	if !op.Outside {
		tag = tagOf(who, op, q, form, at)
		if on.Lacks {
			tag = ""
		} else if matches(r.Header.Values("If-None-Match"), tag) {
			return tag, nil, nil
		}
	}
	if tag != "" {
		if a, ok := on.Kept(tag).(*keptAnswer); ok {
			out.text = a.text
			return tag, &a.did, nil
		}
	}
	did, err = op.Answer(r.Context(), on, q, form, out)
	switch {
	case err != nil, did.Clocked, on.Lacks:
		tag = ""
	case tag != "" && out.file == nil:
		on.Keep(tag, &keptAnswer{slices.Clip(out.text), *did})
	}
	return tag, did, err
}

// keptAnswer is an answer that is kept under its tag, which is a digest of everything that it depends on.
type keptAnswer struct {
	text []byte
	did  cli.Outcome
}

// Bytes returns the size of the answer.
func (a *keptAnswer) Bytes() int { return len(a.text) }

// fail answers the error of a question.
func (s *server) fail(w http.ResponseWriter, op *cli.Operation, err error) {
	if cli.KindOf(err) == app.KindNone {
		if errors.Is(err, context.Canceled) || s.Context.Err() != nil {
			err = &app.UnavailableError{Err: errors.New("the question was given up: ask again")}
		} else {
			s.Log.Error("a question failed", "operation", strings.Join(op.Words, " "), "error", err)
		}
	}
	fail(w, err)
}

// questionOf returns the question of a request to an operation, and the form of the answer.
func questionOf(r *http.Request, op *cli.Operation) (url.Values, cli.Form, error) {
	form := cli.Form{Output: "json"}
	wrong := func(format string, args ...any) (url.Values, cli.Form, error) {
		return nil, form, &app.InvalidError{Err: fmt.Errorf(format, args...)}
	}
	if len(r.URL.RawQuery) > mostQuery {
		return wrong("the query has %d bytes: at most %d are read", len(r.URL.RawQuery), mostQuery)
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return wrong("query: %w", err)
	}
	for name, values := range q {
		for _, v := range append(values, name) {
			if !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				return wrong("query: %q is not printable text in UTF-8", domain.Clip(v, 40))
			}
		}
	}
	if output, ok := q[cli.OutputParam]; ok {
		if len(output) != 1 || !slices.Contains(cli.OutputForms(), output[0]) {
			return wrong("%s=%s: want one of %s", cli.OutputParam, domain.Clip(strings.Join(output, ","), 40), strings.Join(cli.OutputForms(), ", "))
		}
		form.Output = output[0]
	}
	if width, ok := q[cli.WidthParam]; ok {
		n, err := strconv.Atoi(width[0])
		if err != nil || len(width) != 1 || n < 1 || n > mostWidth {
			return wrong("%s=%s: want 1 to %d characters", cli.WidthParam, domain.Clip(strings.Join(width, ","), 40), mostWidth)
		}
		form.Width = n
	}
	delete(q, cli.OutputParam)
	delete(q, cli.WidthParam)
	return q, form, op.Check(withoutPages(op, q))
}

// wait waits for a turn.
func wait(ctx context.Context, turn chan<- struct{}) error {
	bound, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case turn <- struct{}{}:
		return nil
	case <-bound.Done():
		return &app.UnavailableError{Err: fmt.Errorf("other questions are being answered, and for %s there was no turn for this one: ask again later", patience)}
	}
}

// tagOf returns the entity tag of an answer: a digest of everything that it depends on. Of the log that is its position,
// without the topic that has who asked: otherwise every question would make the answers before it old.
func tagOf(who app.Principal, op *cli.Operation, q url.Values, form cli.Form, at domain.Position) string {
	if !op.Access {
		at = maps.Clone(at)
		maps.DeleteFunc(at, func(tp domain.TopicPartition, _ int64) bool { return tp.Topic == domain.TopicAccess })
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%v\n%s\n%+v\n%q\n%s\n%+v", op.Words, q.Encode(), form, who.Scope.Key(), at, app.Version()))
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`
}

// matches reports whether a tag is among those of If-None-Match.
func matches(headers []string, tag string) bool {
	for tagged := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		if strings.TrimPrefix(strings.TrimSpace(tagged), "W/") == tag {
			return true
		}
	}
	return false
}

// contentType returns the media type of an answer.
func contentType(op *cli.Operation, form cli.Form) string {
	switch {
	case form.Output == "csv":
		return "text/csv; charset=utf-8; header=present"
	case form.Output != "json":
		return "text/plain; charset=utf-8"
	case op.Lines:
		return "application/x-ndjson"
	}
	return "application/json"
}
