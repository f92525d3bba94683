package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/domain"
	"quartermaster/projections/access"
)

// followed is an API whose changes are followed.
type followed struct {
	t     *testing.T
	url   string
	log   *app.Conn
	stop  context.CancelFunc
	end   func()
	ended atomic.Bool // the rights of ann
}

// follows serves a log. Events of a stream are at most every so often.
func follows(t *testing.T, every time.Duration) *followed {
	t.Helper()
	h, _ := apptest.Open(t, t.TempDir())
	f := &followed{t: t, log: h}
	f.append(0)
	share := h.Sharing()
	var ctx context.Context
	ctx, f.stop = context.WithCancel(t.Context())
	s := newServer(Config{
		Who: func(r *http.Request) (app.Principal, error) {
			who := app.Principal{Name: r.Header.Get("Name"), Scope: access.Whole()}
			if who.Name == "ann" && f.ended.Load() || who.Name == "nobody" {
				who.Scope = new(access.Scope)
			}
			return who, nil
		},
		Open:   func(who app.Principal) (*app.App, error) { return share(who), nil },
		AtOnce: 4, Context: ctx, Log: slog.New(slog.DiscardHandler),
	})
	s.changes.every, s.changes.look = every, 10*time.Millisecond
	var handler http.Handler
	handler, f.end = s.handler()
	srv := httptest.NewServer(handler)
	f.url = srv.URL
	t.Cleanup(func() {
		f.stop()
		f.end()
		srv.Close()
		apptest.Close(t, h)
	})
	return f
}

// append appends a cluster, which changes the position.
func (f *followed) append(n int) {
	f.t.Helper()
	apptest.AppendEvents(f.t, f.log.Log, domain.Envelope{Workspace: "home", Time: app.Now(), Event: &domain.RegionDefined{Region: fmt.Sprint("r", n), Country: "DE"}})
	if err := f.log.CatchUp(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// sentEvent is an event of a stream, or the comment of one.
type sentEvent struct{ id, data string }

// follow opens a stream. The events come until it ends.
func (f *followed) follow(who, last string) (status int, events <-chan sentEvent, end func()) {
	f.t.Helper()
	ctx, end := context.WithCancel(f.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+cli.ChangesRoot, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Name", who)
	req.Header.Set("Last-Event-ID", last)
	sent, code := make(chan sentEvent, 100), make(chan int, 1)
	go func() {
		defer close(sent)
		defer close(code)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		code <- resp.StatusCode
		var e sentEvent
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "id":
				e.id = value
			case "data":
				e.data = value
				sent <- e
			}
		}
	}()
	return <-code, sent, end
}

// next returns the next event, and fails if there is none.
func (f *followed) next(events <-chan sentEvent) sentEvent {
	f.t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			f.t.Fatal("the stream ended")
		}
		return e
	case <-time.After(10 * time.Second):
		f.t.Fatal("no event came")
	}
	return sentEvent{}
}

// none fails if an event comes within a time.
func (f *followed) none(events <-chan sentEvent, within time.Duration) {
	f.t.Helper()
	select {
	case e, ok := <-events:
		f.t.Errorf("sent %+v %v", e, ok)
	case <-time.After(within):
	}
}

// The first event is the present, the next comes when something changed, and who comes back gets nothing twice.
func TestChanges(t *testing.T) {
	f := follows(t, 20*time.Millisecond)
	status, events, end := f.follow("ann", "")
	first := f.next(events)
	var now struct {
		Position   string
		Incomplete int
		Program    app.ProgramInfo
	}
	if err := json.Unmarshal([]byte(first.data), &now); err != nil || status != http.StatusOK {
		t.Fatalf("%d %+v: %v", status, first, err)
	}
	if at, err := domain.ParsePosition(now.Position); err != nil || idOf(at) != first.id || len(first.id) != 13 || len(now.Program.Methods) == 0 {
		t.Errorf("%+v: %v", first, err)
	}
	f.none(events, 100*time.Millisecond)
	f.append(1)
	second := f.next(events)
	if second.id == first.id || second.data == first.data {
		t.Errorf("%+v after %+v", second, first)
	}
	end()
	for range events {
	}
	_, events, end = f.follow("ann", second.id)
	f.none(events, 100*time.Millisecond)
	f.append(2)
	if third := f.next(events); third.id == second.id {
		t.Errorf("%+v again", third)
	}
	end()
	_, events, end = f.follow("ann", first.id)
	defer end()
	if e := f.next(events); e.id == first.id || e.id == second.id {
		t.Errorf("who comes back after two changes gets %+v", e)
	}
}

// However often something changes, events are as rare as they should be, and the last change is in one.
func TestChangesAreRare(t *testing.T) {
	f := follows(t, 500*time.Millisecond)
	_, events, end := f.follow("ann", "")
	defer end()
	began := time.Now()
	f.next(events)
	for i := range 10 {
		f.append(i)
	}
	want, err := f.position()
	if err != nil {
		t.Fatal(err)
	}
	sent := 1
	for f.next(events).id != want {
		sent++
	}
	if took := time.Since(began); time.Duration(sent)*500*time.Millisecond > took {
		t.Errorf("%d events in %s", sent+1, took)
	}
	f.none(events, 600*time.Millisecond)
}

func (f *followed) position() (string, error) {
	share := f.log.Sharing()
	at, err := share(app.Everyone).Position(f.t.Context())
	return idOf(at), err
}

// What is asked changes no id.
func TestChangesIgnoreQuestions(t *testing.T) {
	fleet := domain.TopicPartition{Topic: domain.TopicFleet}
	one := idOf(domain.Position{fleet: 3, {Topic: domain.TopicAccess}: 1})
	if two := idOf(domain.Position{fleet: 3, {Topic: domain.TopicAccess}: 2}); two != one {
		t.Errorf("%s and %s", one, two)
	}
	if other := idOf(domain.Position{fleet: 4, {Topic: domain.TopicAccess}: 1}); other == one {
		t.Errorf("%s twice", one)
	}
}

// A stream ends within about a second of the right, and others go on.
func TestChangesEndWithTheRight(t *testing.T) {
	f := follows(t, time.Hour)
	_, ann, end := f.follow("ann", "")
	defer end()
	_, bob, endBob := f.follow("bob", "")
	defer endBob()
	f.next(ann)
	f.next(bob)
	f.ended.Store(true)
	began := time.Now()
	for range ann {
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
	f.none(bob, 50*time.Millisecond)
}

// Streams end with the process, and nothing of them is left when end returns.
func TestChangesEndWithTheProcess(t *testing.T) {
	f := follows(t, time.Hour)
	_, events, end := f.follow("ann", "")
	defer end()
	f.next(events)
	f.stop()
	f.end()
	for range events {
	}
	if status, _, end := f.follow("ann", ""); status != http.StatusServiceUnavailable {
		t.Errorf("%d after the end", status)
		end()
	}
}

// One principal cannot take all streams.
func TestChangesAreBounded(t *testing.T) {
	f := follows(t, time.Hour)
	for range mostFollowing {
		status, events, end := f.follow("ann", "")
		defer end()
		if f.next(events); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	if status, _, end := f.follow("ann", ""); status != http.StatusTooManyRequests {
		t.Errorf("one more: %d", status)
		end()
	}
	status, events, end := f.follow("bob", "")
	if f.next(events); status != http.StatusOK {
		t.Errorf("another: %d", status)
	}
	end()
	c := &changes{}
	for i := range mostFollowingIn {
		if ok, first := c.begin(fmt.Sprint(i)); !ok || first != (i == 0) {
			t.Fatalf("%d: %v %v", i, ok, first)
		}
	}
	if ok, _ := c.begin("one more"); ok {
		t.Error("there is no bound on all streams")
	}
	c.end("0")
	if ok, first := c.begin("one more"); !ok || first || c.idle() {
		t.Error("a place is not free again")
	}
}

// Who may not ask an overview may not follow changes, and there is nothing to choose.
func TestChangesRefuse(t *testing.T) {
	f := follows(t, time.Hour)
	ask := func(method, target, who string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, f.url+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Name", who)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		return resp
	}
	for _, c := range []struct {
		method, target, who string
		want                int
	}{
		{http.MethodGet, cli.ChangesRoot, "nobody", http.StatusForbidden}, {http.MethodGet, cli.ChangesRoot + "?as_of=0", "ann", http.StatusBadRequest},
		{http.MethodPost, cli.ChangesRoot, "ann", http.StatusMethodNotAllowed}, {http.MethodHead, cli.ChangesRoot, "ann", http.StatusOK},
	} {
		resp := ask(c.method, c.target, c.who)
		resp.Body.Close()
		if resp.StatusCode != c.want || resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s %s of %s: %d", c.method, c.target, c.who, resp.StatusCode)
		}
	}
}
