package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/domain"
)

// Bounds of long work. Those of a workspace hold for a workspace directly below the root with all below it, and for the
// estate: so nobody can keep others from their turn, or take what is kept for them.
const (
	mostRunning   = 2                // at once, and one of a workspace
	mostWaiting   = 16               // of a workspace for their turn
	mostWaitingIn = 64               // of all, but for a workspace of which nothing waits
	mostEnded     = 8                // of a workspace that are remembered
	mostEndedIn   = 64               // of all
	remembered    = time.Hour        // after their end
	mostAnswer    = 32 << 20         // bytes of an answer
	mostHeld      = 64 << 20         // bytes of answers of a workspace, and of documents
	mostHeldIn    = 256 << 20        // bytes of all answers, and of documents but for a workspace that has none
	mostSent      = 16               // documents of a question
	mostWork      = 15 * time.Minute // of work of a workspace, from its turn on; the estate takes as long as it needs
	tellEvery     = time.Second / 4  // progress
	stillThere    = 15 * time.Second // between two signs of life of a stream of events
)

// errBusy means that too much work waits.
var errBusy = &app.UnavailableError{Err: errors.New("too much long work of your workspace waits for its turn: ask again later, or end some of it")}

// errTooSlow means that work of a workspace took longer than mostWork.
var errTooSlow = &app.InvalidError{Err: fmt.Errorf(
	"the work took longer than %s and was stopped, so that others get their turn: ask for less, or with less effort", mostWork)}

// work is a question whose answer takes long. Its fields are guarded by works.mu.
type work struct {
	cli.Work
	who      app.Principal // whose it is
	customer string        // the workspace, or workspaces, that it counts for; "": the estate
	op       *cli.Operation
	form     cli.Form
	sent     []cli.Document // which it names as files; until it ends
	cancel   context.CancelFunc
	turn     chan struct{} // closed when it has its turn
	answer   []byte
	version  int           // counts the changes of Work
	changed  chan struct{} // closed at the next change
}

// works is the long work of the process. What has ended is remembered for a while.
type works struct {
	ctx     context.Context // ends with the process
	most    time.Duration   // of work of a workspace
	log     *slog.Logger
	door    *door
	past    chan struct{} // turns of questions about the past
	who     func(*http.Request) (app.Principal, error)
	packers packers
	// customerOf returns what the work of a principal counts for.
	customerOf func(app.Principal) string

	mu      sync.Mutex
	all     map[string]*work
	waiting []*work // for their turn, in order
	running []*work // that have it
	served  map[string]uint64
	turns   uint64 // that were given; served has the last of each workspace
}

func newWorks(
	ctx context.Context, log *slog.Logger, door *door, past chan struct{}, who func(*http.Request) (app.Principal, error),
) *works {
	return &works{
		ctx: ctx, most: mostWork, log: log, door: door, past: past, who: who, all: map[string]*work{}, served: map[string]uint64{},
		customerOf: func(who app.Principal) string { return strings.Join(who.Scope.Customers(), "\n") },
	}
}

// forget removes what ended long ago, and the oldest of what ended if there is too much of it: of one workspace, or of
// all, where the workspace of which most is kept loses first.
func (ws *works) forget(now time.Time) {
	ended := slices.DeleteFunc(slices.Collect(maps.Values(ws.all)), func(w *work) bool { return !w.Ended() })
	slices.SortFunc(ended, func(a, b *work) int { return cmp.Or(cmp.Compare(b.End, a.End), strings.Compare(a.ID, b.ID)) })
	type kept struct {
		works []*work // the newest first
		bytes int
	}
	by, all := map[string]*kept{}, kept{}
	for _, w := range ended {
		of := by[w.customer]
		if of == nil {
			of = &kept{}
			by[w.customer] = of
		}
		if len(of.works) >= mostEnded || of.bytes+len(w.answer) > mostHeld || now.Sub(w.End.Time()) > remembered {
			delete(ws.all, w.ID)
			continue
		}
		of.works, of.bytes = append(of.works, w), of.bytes+len(w.answer)
		all.works, all.bytes = append(all.works, w), all.bytes+len(w.answer)
	}
	for n := len(all.works); n > mostEndedIn || all.bytes > mostHeldIn; n-- {
		var most *kept
		for _, name := range slices.Sorted(maps.Keys(by)) {
			if of := by[name]; most == nil || cmp.Or(cmp.Compare(of.bytes, most.bytes), cmp.Compare(len(of.works), len(most.works))) > 0 {
				most = of
			}
		}
		oldest := most.works[len(most.works)-1]
		most.works = most.works[:len(most.works)-1]
		most.bytes, all.bytes = most.bytes-len(oldest.answer), all.bytes-len(oldest.answer)
		delete(ws.all, oldest.ID)
	}
}

// next gives turns to work that waits. The workspace that had its last turn longest ago is first, and no workspace takes
// all turns.
func (ws *works) next() {
	runs := func(of string) (n int) {
		for _, w := range ws.running {
			if w.customer == of {
				n++
			}
		}
		return n
	}
	for len(ws.running) < mostRunning {
		first := -1
		for i, w := range ws.waiting {
			if w.customer != "" && runs(w.customer) > 0 {
				continue
			}
			if first < 0 || ws.served[w.customer] < ws.served[ws.waiting[first].customer] {
				first = i
			}
		}
		if first < 0 {
			return
		}
		w := ws.waiting[first]
		ws.waiting = slices.Delete(ws.waiting, first, first+1)
		ws.running = append(ws.running, w)
		ws.turns++
		ws.served[w.customer] = ws.turns
		close(w.turn)
	}
}

// leave ends the turn of work, or its waiting for one.
func (ws *works) leave(w *work) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	same := func(other *work) bool { return other == w }
	ws.waiting, ws.running = slices.DeleteFunc(ws.waiting, same), slices.DeleteFunc(ws.running, same)
	if !slices.ContainsFunc(slices.Concat(ws.waiting, ws.running), func(other *work) bool { return other.customer == w.customer }) {
		delete(ws.served, w.customer)
	}
	ws.next()
}

// begin begins long work, as soon as it has its turn.
func (ws *works) begin(
	op *cli.Operation, q url.Values, form cli.Form, sent []cli.Document, who app.Principal, open func(app.Principal) (*app.App, error),
) (cli.Work, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.forget(time.Now())
	of, waiting := ws.customerOf(who), 0
	for _, w := range ws.waiting {
		if w.customer == of {
			waiting++
		}
	}
	held, heldIn := 0, 0
	for _, w := range slices.Concat(ws.waiting, ws.running) {
		if heldIn += bytesOf(w.sent); w.customer == of {
			held += bytesOf(w.sent)
		}
	}
	more := bytesOf(sent)
	if waiting >= mostWaiting || waiting > 0 && len(ws.waiting) >= mostWaitingIn ||
		more > 0 && held > 0 && (held+more > mostHeld || heldIn+more > mostHeldIn) {
		return cli.Work{}, errBusy
	}
	ctx, cancel := context.WithCancel(ws.ctx)
	w := &work{
		Work: cli.Work{
			ID: strings.ToLower(rand.Text()), Operation: strings.Join(op.Words, " "), Question: q.Encode(),
			State: cli.WorkWaiting, Asked: app.Now(), Notes: []string{},
		},
		who: who, customer: of, op: op, form: form, sent: sent, cancel: cancel, turn: make(chan struct{}), changed: make(chan struct{}),
	}
	if !ws.door.enter() {
		cancel()
		return cli.Work{}, errEnding
	}
	ws.all[w.ID] = w
	ws.waiting = append(ws.waiting, w)
	ws.next()
	go func() {
		defer ws.door.leave()
		defer cancel()
		ws.run(ctx, w, q, open)
	}()
	return w.Work, nil
}

// bytesOf returns the size of documents.
func bytesOf(sent []cli.Document) (n int) {
	for _, d := range sent {
		n += len(d.Name) + len(d.Text)
	}
	return n
}

// change changes work and tells whoever follows it.
func (ws *works) change(w *work, change func()) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	change()
	w.version++
	close(w.changed)
	w.changed = make(chan struct{})
}

func (ws *works) run(ctx context.Context, w *work, q url.Values, open func(app.Principal) (*app.App, error)) {
	var answer bytes.Buffer
	did, err := ws.answer(ctx, w, q, open, &limited{&answer})
	ws.change(w, func() {
		w.End, w.Progress, w.sent = app.Now(), nil, nil
		switch {
		case ctx.Err() != nil:
			w.State = cli.WorkCancelled
		case err != nil:
			w.State = cli.WorkFailed
			p := problemOf(statuses[cli.KindOf(err)], err)
			w.Problem = &cli.Problem{Type: p.Type, Status: p.Status, Detail: p.Detail, Faults: p.Faults}
		default:
			w.State, w.ExitCode, w.answer = cli.WorkDone, did.Code, bytes.Clone(answer.Bytes())
			w.Notes = append(w.Notes, did.Notes...)
		}
		ws.forget(w.End.Time())
	})
}

// answer writes the answer of work when it has its turn. A panic is its error, because the process holds the log for
// others.
func (ws *works) answer(ctx context.Context, w *work, q url.Values, open func(app.Principal) (*app.App, error), out io.Writer) (did *cli.Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			ws.log.Error("long work panicked", "operation", w.Operation, "question", w.Question, "panic", p, "stack", string(debug.Stack()))
			first, _, _ := strings.Cut(fmt.Sprint(p), "\n") // a stack may follow
			err = fmt.Errorf("this is a defect of the program, please report it: %s", first)
		}
	}()
	defer ws.leave(w)
	select {
	case <-w.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if q.Get(asOfParam) != "" {
		select {
		case ws.past <- struct{}{}:
			defer func() { <-ws.past }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	ws.change(w, func() { w.State, w.Begin = cli.WorkRunning, app.Now() })
	if w.customer != "" {
		bound, stop := context.WithTimeoutCause(ctx, ws.most, errTooSlow)
		defer stop()
		defer func() {
			if err != nil && errors.Is(context.Cause(bound), errTooSlow) {
				err = errTooSlow
			}
		}()
		ctx = bound
	}
	on, err := open(w.who)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, on.Close()) }()
	on.Files = cli.SentFiles(w.sent)
	on.Track = func(of app.Work) app.Progress { return &progress{ws: ws, w: w, of: of} }
	return w.op.Answer(ctx, on, q, w.form, out)
}

// limited refuses to keep more than mostAnswer.
type limited struct{ *bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > mostAnswer {
		return 0, errTooLong
	}
	return l.Buffer.Write(p)
}

// progress is that of a part of work.
type progress struct {
	ws *works
	w  *work
	of app.Work

	mu   sync.Mutex
	told time.Time
}

// Set implements [app.Progress].
func (p *progress) Set(done int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.told) >= tellEvery {
		p.told = now
		p.ws.change(p.w, func() {
			p.w.Progress = &cli.WorkProgress{Name: p.of.Name, Done: done, Total: p.of.Total, Unit: p.of.Unit}
		})
	}
}

// Stop implements [app.Progress].
func (p *progress) Stop() { p.ws.change(p.w, func() { p.w.Progress = nil }) }

// of reports whether work is that of a principal, who still sees what it was begun with: rights end while work is
// remembered.
func (w *work) of(who app.Principal) bool {
	if w.who.Name != who.Name {
		return false
	}
	now, err := who.Asking(w.Operation)
	return err == nil && now.Scope.Key() == w.who.Scope.Key()
}

// find returns work of a principal by its id. Work of another is as unknown as work that there is not, and so is that
// for which the rights ended.
func (ws *works) find(id string, who app.Principal) (*work, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.all[id]; w != nil && w.of(who) {
		return w, nil
	}
	return nil, &app.NotFoundError{What: "work", Name: id, Err: fmt.Errorf("there is no work %q: it is remembered for %s after its end", domain.Clip(id, 40), remembered)}
}

// now returns the state of work.
func (ws *works) now(w *work) (state cli.Work, version int, changed <-chan struct{}) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	state = w.Work
	state.Notes = slices.Clone(w.Notes)
	return state, w.version, w.changed
}

// register adds the operations on work to the API.
func (ws *works) register(mux *http.ServeMux) {
	one := func(serve func(http.ResponseWriter, *http.Request, *work)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			who, err := ws.who(r)
			if err != nil {
				fail(w, err)
				return
			}
			found, err := ws.find(r.PathValue("id"), who)
			if err != nil {
				fail(w, err)
				return
			}
			serve(w, r, found)
		}
	}
	mux.HandleFunc("GET "+cli.WorkRoot, func(w http.ResponseWriter, r *http.Request) {
		who, err := ws.who(r)
		if err != nil {
			fail(w, err)
			return
		}
		ws.mu.Lock()
		ws.forget(time.Now())
		all := []cli.Work{}
		for _, w := range ws.all {
			if w.of(who) {
				all = append(all, w.Work)
			}
		}
		ws.mu.Unlock()
		slices.SortFunc(all, func(a, b cli.Work) int { return cmp.Or(cmp.Compare(a.Asked, b.Asked), strings.Compare(a.ID, b.ID)) })
		write(w, http.StatusOK, all)
	})
	mux.HandleFunc("GET "+cli.WorkRoot+"/{id}", one(func(w http.ResponseWriter, _ *http.Request, of *work) {
		state, _, _ := ws.now(of)
		write(w, http.StatusOK, state)
	}))
	mux.HandleFunc("DELETE "+cli.WorkRoot+"/{id}", one(func(w http.ResponseWriter, _ *http.Request, of *work) {
		of.cancel()
		ws.mu.Lock()
		delete(ws.all, of.ID)
		ws.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	mux.HandleFunc("GET "+cli.WorkRoot+"/{id}/answer", one(func(w http.ResponseWriter, r *http.Request, of *work) {
		state, _, _ := ws.now(of)
		switch {
		case state.Problem != nil:
			refuse(w, state.Problem.Status, &said{state.Problem})
		case state.State != cli.WorkDone:
			fail(w, &app.ConflictError{Err: fmt.Errorf("the work is %s: there is no answer", state.State)})
		default:
			w.Header().Set("Content-Type", contentType(of.op, of.form))
			describeOutcome(w.Header(), &cli.Outcome{Code: state.ExitCode})
			_ = ws.packers.send(w, r, &spool{text: of.answer})
		}
	}))
	mux.HandleFunc("GET "+cli.WorkRoot+"/{id}/events", one(ws.events))
}

// said is a problem as an error.
type said struct{ *cli.Problem }

func (s *said) Error() string { return s.Detail }

// Kind returns the kind of the problem.
func (s *said) Kind() app.Kind { return app.Kind(strings.TrimPrefix(s.Type, cli.ProblemType)) }

// events sends the state of work at every change, until it has ended. Who comes back names the last state that they
// have.
func (ws *works) events(w http.ResponseWriter, r *http.Request, of *work) {
	last := -1
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		n, err := strconv.Atoi(id)
		if err != nil {
			fail(w, &app.InvalidError{Err: fmt.Errorf("Last-Event-ID: %q is not the id of an event", domain.Clip(id, 40))})
			return
		}
		last = n
	}
	if state, version, _ := ws.now(of); state.Ended() && version == last {
		w.WriteHeader(http.StatusNoContent) // a browser asks again otherwise
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	to := &timed{w, flush}
	again, alive := time.NewTicker(judgedAgain), time.NewTicker(stillThere)
	defer again.Stop()
	defer alive.Stop()
	for {
		if who, err := ws.who(r); err != nil || !of.of(who) {
			return // a key or a right ended
		}
		state, version, changed := ws.now(of)
		if version != last {
			last = version
			if _, err := fmt.Fprintf(to, "id: %d\nevent: work\ndata: ", version); err != nil || cli.WriteLine(to, &state) != nil {
				return
			}
			_, _ = fmt.Fprint(to, "\n")
		}
		if err := flush.Flush(); err != nil || state.Ended() {
			return
		}
		select {
		case <-changed:
		case <-again.C:
		case <-alive.C:
			if _, err := fmt.Fprint(to, ": still there\n\n"); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-ws.ctx.Done(): // the work ends, and says so
			ws.ended(of)
		}
	}
}

// ended waits until work has ended.
func (ws *works) ended(w *work) {
	for {
		state, _, changed := ws.now(w)
		if state.Ended() {
			return
		}
		<-changed
	}
}

// write writes an answer.
func write(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = cli.WriteLine(w, answer)
}

// problemError is an error, in the terms of RFC 9457.
type problemError struct {
	huma.ErrorModel
	Faults []app.Fault `json:"faults,omitempty" doc:"What is wrong in the documents that were sent, and where."`
}

// mostFaults bounds the faults of a problem.
const mostFaults = 1000

// problemOf returns the problem of an error.
func problemOf(status int, err error) *problemError {
	p := &problemError{huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: cli.Worded(err)}, app.FaultsOf(err, mostFaults)}
	if known := (*said)(nil); errors.As(err, &known) {
		p.Faults = known.Faults
	}
	if kind := cli.KindOf(err); kind != app.KindNone {
		p.Type = cli.ProblemType + string(kind)
	}
	return p
}
