package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/domain"
	"quartermaster/projections/access"
)

// TestWorkIsBounded begins more long work than may wait, ends it with the process, and forgets it.
func TestWorkIsBounded(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	d := &door{}
	ws := newWorks(ctx, slog.New(slog.DiscardHandler), d, make(chan struct{}, 1), owner)
	op := &cli.Operations()[0]
	gate := make(chan struct{})
	open := func(app.Principal) (*app.App, error) {
		<-gate
		return nil, &app.UnavailableError{Err: errors.New("closed")}
	}
	begin := func() (cli.Work, error) { return ws.begin(op, nil, cli.Form{Output: "json"}, nil, app.Everyone, open) }
	running := func() (n int) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		for _, w := range ws.all {
			if w.State == cli.WorkRunning {
				n++
			}
		}
		return n
	}
	for range mostRunning {
		begun, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		w, err := ws.find(begun.ID, app.Everyone)
		if err != nil {
			t.Fatal(err)
		}
		if state, _, changed := ws.now(w); state.State == cli.WorkWaiting {
			<-changed // it has its turn
		}
	}
	var last cli.Work
	for range mostWaiting {
		var err error
		if last, err = begin(); err != nil {
			t.Fatal(err)
		}
	}
	var full *app.UnavailableError
	if _, err := begin(); !errors.As(err, &full) {
		t.Errorf("one more: %v", err)
	}
	if n := running(); n != mostRunning {
		t.Errorf("%d run at once", n)
	}
	waits, err := ws.find(last.ID, app.Everyone)
	if err != nil {
		t.Fatal(err)
	}
	waits.cancel()
	for {
		state, _, changed := ws.now(waits)
		if state.Ended() {
			if state.State != cli.WorkCancelled || state.Begin != 0 {
				t.Errorf("what waited and was ended: %+v", state)
			}
			break
		}
		<-changed
	}
	stop()
	close(gate)
	d.close()
	if _, err := begin(); !errors.Is(err, errEnding) {
		t.Errorf("after the end: %v", err)
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.all {
		if !w.Ended() {
			t.Errorf("after the end of the process: %+v", w.Work)
		}
	}
	ws.forget(time.Now())
	if len(ws.all) != min(mostRunning+mostWaiting, mostEnded) {
		t.Errorf("%d are remembered", len(ws.all))
	}
	ws.forget(time.Now().Add(remembered + time.Minute))
	if len(ws.all) != 0 {
		t.Errorf("%d are remembered after %s", len(ws.all), remembered)
	}
	for i := range 2 * mostEnded {
		id := string(rune('a' + i))
		ws.all[id] = &work{Work: cli.Work{ID: id, State: cli.WorkDone, End: domain.InstantOf(time.Now()) + domain.Instant(i)}}
	}
	ws.forget(time.Now())
	if _, kept := ws.all[string(rune('a'+2*mostEnded-1))]; len(ws.all) != mostEnded || !kept {
		t.Errorf("%d are remembered, the last: %v", len(ws.all), kept)
	}
}

// TestWorkIsFair floods the turns for long work from one workspace. It is refused beyond its share, others are not, and
// get their turn while it waits.
func TestWorkIsFair(t *testing.T) {
	d := &door{}
	ws := newWorks(t.Context(), slog.New(slog.DiscardHandler), d, make(chan struct{}, 1), owner)
	op := &cli.Operations()[0]
	began, gate := make(chan string), make(chan struct{})
	open := func(who app.Principal) (*app.App, error) {
		began <- who.Name
		<-gate
		return nil, errNotThere
	}
	ws.customerOf = func(who app.Principal) string { return who.Name }
	begin := func(name string) (cli.Work, error) {
		return ws.begin(op, nil, cli.Form{Output: "json"}, nil, app.Principal{Name: name, Scope: access.Whole()}, open)
	}
	must := func(name string) {
		t.Helper()
		if _, err := begin(name); err != nil {
			t.Fatal(err)
		}
	}
	for range 1 + mostWaiting { // one has its turn
		must("flood")
	}
	for range 3 {
		if _, err := begin("flood"); !errors.Is(err, errBusy) {
			t.Fatalf("more than its share: %v", err)
		}
	}
	must("calm")
	must("calm")
	must("late")
	if first, second := <-began, <-began; first != "flood" && second != "flood" || first == second {
		t.Errorf("%s and %s run: one workspace takes all turns", first, second)
	}
	gate <- struct{}{} // one of them ends, and late has had no turn yet
	if next := <-began; next != "late" {
		t.Errorf("%s runs next", next)
	}
	close(gate)
	go func() {
		for range began {
		}
	}()
	d.close()
	close(began)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.waiting)+len(ws.running)+len(ws.served) > 0 {
		t.Errorf("after the end %d wait and %d run", len(ws.waiting), len(ws.running))
	}
	kept := map[string]int{}
	for _, w := range ws.all {
		kept[w.customer]++
	}
	if kept["flood"] != mostEnded || kept["calm"] != 2 || kept["late"] != 1 {
		t.Errorf("remembered: %v", kept)
	}
}

// TestWorkEndsInTime begins work that takes longer than a workspace may have a turn for. It ends with the best answer so
// far, or says why there is none. The estate's goes on.
func TestWorkEndsInTime(t *testing.T) {
	all := cli.Operations()
	solve := &all[slices.IndexFunc(all, func(op cli.Operation) bool { return slices.Equal(op.Words, []string{"plan", "solve"}) })]
	for _, of := range []struct {
		customer, instance string
		state              string
		code               int // exit status: 5 is an incomplete answer
	}{
		{"shop", "four-regions", cli.WorkDone, 5},
		{"shop", "n-plus-one", cli.WorkFailed, 0},
		{"", "n-plus-one", cli.WorkDone, 0},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "deploy", "demo", "instances", of.instance+".json"))
		if err != nil {
			t.Fatal(err)
		}
		d := &door{}
		ws := newWorks(t.Context(), slog.New(slog.DiscardHandler), d, make(chan struct{}, 1), owner)
		ws.most = time.Millisecond
		ws.customerOf = func(app.Principal) string { return of.customer }
		begun, err := ws.begin(solve, url.Values{"instance": {"a.json"}}, cli.Form{Output: "json"}, []cli.Document{{Name: "a.json", Text: string(text)}},
			app.Everyone, func(app.Principal) (*app.App, error) { return &app.App{}, nil })
		if err != nil {
			t.Fatal(err)
		}
		d.close()
		w, err := ws.find(begun.ID, app.Everyone)
		if err != nil {
			t.Fatal(err)
		}
		state, _, _ := ws.now(w)
		if state.State != of.state || state.ExitCode != of.code {
			t.Errorf("%s of %q: %+v", of.instance, of.customer, state)
		}
		if p := state.Problem; p != nil && (p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "was stopped, so that others get their turn")) {
			t.Errorf("%s of %q: %+v", of.instance, of.customer, p)
		}
	}
}

// TestAnswersAreBounded keeps long answers of two workspaces: that of which less is kept loses nothing.
func TestAnswersAreBounded(t *testing.T) {
	ws := newWorks(t.Context(), slog.New(slog.DiscardHandler), &door{}, nil, owner)
	now := time.Now()
	end := func(customer string, i, bytes int) {
		id := fmt.Sprint(customer, i)
		ws.all[id] = &work{
			Work:     cli.Work{ID: id, State: cli.WorkDone, End: domain.InstantOf(now) + domain.Instant(i)},
			customer: customer, answer: make([]byte, bytes),
		}
	}
	keeps := func(want map[string]int) {
		t.Helper()
		ws.forget(now)
		got := map[string]int{}
		for _, w := range ws.all {
			got[w.customer]++
		}
		if !maps.Equal(got, want) {
			t.Errorf("kept %v, want %v", got, want)
		}
	}
	end("small", 0, 100)
	for i := range 3 {
		end("large", 1+i, mostHeld/2)
	}
	keeps(map[string]int{"small": 1, "large": 2})
	want := map[string]int{"small": 1, "large": 2}
	for i := range mostHeldIn/mostHeld - 1 {
		end(fmt.Sprint("other", i), 10+2*i, mostHeld/2)
		end(fmt.Sprint("other", i), 11+2*i, mostHeld/2)
		want[fmt.Sprint("other", i)] = 2
	}
	want["large"] = 1 // one of several of which as much is kept
	keeps(want)
	want = map[string]int{}
	ws.all = map[string]*work{}
	for i := range mostEndedIn / mostEnded {
		for j := range mostEnded {
			end(fmt.Sprint("w", i), 10*i+j, 0)
		}
		want[fmt.Sprint("w", i)] = mostEnded
	}
	end("new", 1000, 0)
	want["new"], want["w0"] = 1, mostEnded-1
	keeps(want)
}

func owner(*http.Request) (app.Principal, error) { return app.Everyone, nil }

// TestWorkOfOthers asks for the work of another by its id, in every way there is: it is answered as work that there is
// not, and is in no list. So is one's own once the rights for it have ended.
func TestWorkOfOthers(t *testing.T) {
	d := &door{}
	named := func(r *http.Request) (app.Principal, error) {
		name, ended := strings.CutSuffix(r.Header.Get("Name"), " without rights")
		if ended {
			return app.Principal{Name: name, Scope: new(access.Scope)}, nil
		}
		return app.Principal{Name: name, Scope: access.Whole()}, nil
	}
	ws := newWorks(t.Context(), slog.New(slog.DiscardHandler), d, make(chan struct{}, 1), named)
	mux := http.NewServeMux()
	ws.register(mux)
	begun, err := ws.begin(&cli.Operations()[0], nil, cli.Form{Output: "json"}, nil, app.Principal{Name: "ann", Scope: access.Whole()},
		func(app.Principal) (*app.App, error) { return nil, errNotThere })
	if err != nil {
		t.Fatal(err)
	}
	d.close()
	ask := func(who, method, path string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		r.Header.Set("Name", who)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, who := range []string{"bob", "ann without rights"} {
		if _, list := ask(who, http.MethodGet, cli.WorkRoot); strings.TrimSpace(list) != "[]" {
			t.Errorf("the list of %s: %s", who, list)
		}
	}
	if _, list := ask("ann", http.MethodGet, cli.WorkRoot); !strings.Contains(list, begun.ID) {
		t.Errorf("ann's list: %s", list)
	}
	for _, of := range []struct{ method, path string }{
		{http.MethodGet, ""}, {http.MethodGet, "/answer"}, {http.MethodGet, "/events"}, {http.MethodDelete, ""},
	} {
		path := cli.WorkRoot + "/" + begun.ID + of.path
		for _, who := range []string{"bob", "ann without rights"} {
			code, text := ask(who, of.method, path)
			unknown := strings.Repeat("x", len(begun.ID))
			none, nothing := ask(who, of.method, cli.WorkRoot+"/"+unknown+of.path)
			if code != http.StatusNotFound || code != none || text != strings.ReplaceAll(nothing, unknown, begun.ID) {
				t.Errorf("%s, %s %s: %d %s, and of nobody: %d %s", who, of.method, path, code, text, none, nothing)
			}
		}
		if code, _ := ask("ann", of.method, path); code == http.StatusNotFound {
			t.Errorf("%s %s of her own: %d", of.method, path, code)
		}
	}
}

var errNotThere = &app.UnavailableError{Err: errors.New("closed")}

// TestWorkPanics shows that a defect fails one piece of work, and nothing else.
func TestWorkPanics(t *testing.T) {
	d := &door{}
	ws := newWorks(t.Context(), slog.New(slog.DiscardHandler), d, make(chan struct{}, 1), owner)
	begun, err := ws.begin(&cli.Operations()[0], nil, cli.Form{Output: "json"}, nil, app.Everyone,
		func(app.Principal) (*app.App, error) { panic("a defect\nits stack") })
	if err != nil {
		t.Fatal(err)
	}
	d.close()
	w, err := ws.find(begun.ID, app.Everyone)
	if err != nil {
		t.Fatal(err)
	}
	if state, _, _ := ws.now(w); state.State != cli.WorkFailed || state.Problem.Status != http.StatusInternalServerError || strings.Contains(state.Problem.Detail, "stack") {
		t.Errorf("%+v, %+v", state, state.Problem)
	}
}

// TestEventsEndWithTheRight follows work of which nothing changes: the stream ends when the right does.
func TestEventsEndWithTheRight(t *testing.T) {
	d := &door{}
	var ended atomic.Bool
	named := func(*http.Request) (app.Principal, error) {
		if ended.Load() {
			return app.Principal{Name: "ann", Scope: new(access.Scope)}, nil
		}
		return app.Principal{Name: "ann", Scope: access.Whole()}, nil
	}
	ws := newWorks(t.Context(), slog.New(slog.DiscardHandler), d, make(chan struct{}, 1), named)
	mux := http.NewServeMux()
	ws.register(mux)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	gate := make(chan struct{})
	begun, err := ws.begin(&cli.Operations()[0], nil, cli.Form{Output: "json"}, nil, app.Principal{Name: "ann", Scope: access.Whole()},
		func(app.Principal) (*app.App, error) {
			<-gate
			return nil, errNotThere
		})
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	defer close(gate)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+cli.WorkRoot+"/"+begun.ID+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	ended.Store(true)
	text, err := io.ReadAll(resp.Body) // without end, if nobody looks
	if err != nil || !strings.Contains(string(text), begun.ID) {
		t.Errorf("%v: %s", err, text)
	}
}
