package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/domain"
)

// Pages that stay open follow changes: a stream of events, each of which says that the position is another. What is asked
// changes no position here, because otherwise an answer would be the reason for the next question.

// Bounds of streams of changes.
const (
	mostFollowing   = 16               // streams of a principal
	mostFollowingIn = 128              // of all: half of the connections
	changedEvery    = 10 * time.Second // events of a stream
	lookedEvery     = 2 * time.Second  // at the position, whatever the number of streams
	lookedFor       = 30 * time.Second // at most, while the rows catch up
)

// errFollowing means that somebody follows changes too often.
var errFollowing = &app.UnavailableError{Err: fmt.Errorf("you follow changes %d times already, or others take all streams: close some pages, or ask again later", mostFollowing)}

// changes is who follows changes, and the position that was seen last.
type changes struct {
	every, look time.Duration

	mu    sync.Mutex
	of    map[string]int // streams, by principal
	all   int
	looks bool   // somebody looks at the position
	id    string // of the position; "": not known yet
}

// begin counts a stream. It reports false if there are too many. first says that nobody looks at the position: the caller
// MUST.
func (c *changes) begin(who string) (ok, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[who] >= mostFollowing || c.all >= mostFollowingIn {
		return false, false
	}
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[who]++
	c.all++
	first, c.looks = !c.looks, true
	return true, first
}

func (c *changes) end(who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[who]--; c.of[who] == 0 {
		delete(c.of, who)
	}
}

// idle reports whether nobody follows any more, and notes that nobody looks then.
func (c *changes) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all > 0 {
		return false
	}
	c.looks, c.id = false, ""
	return true
}

func (c *changes) now() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

func (c *changes) set(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = id
}

// idOf returns the id of a position: 12 digits of its digest, without the topic that has who asked.
func idOf(at domain.Position) string {
	at = maps.Clone(at)
	maps.DeleteFunc(at, func(tp domain.TopicPartition, _ int64) bool { return tp.Topic == domain.TopicAccess })
	return fmt.Sprintf("@%x", sha256.Sum256([]byte(at.String())))[:13]
}

// lookAt looks at the position for all streams, while there are any.
func (s *server) lookAt() {
	tick := time.NewTicker(s.changes.look)
	defer tick.Stop()
	for !s.changes.idle() {
		if id, err := s.positionNow(); err == nil {
			s.changes.set(id)
		} else if app.KindOf(err) == app.KindNone && !errors.Is(err, context.Canceled) {
			s.Log.Warn("the position of changes cannot be read", "error", err)
		}
		select {
		case <-tick.C:
		case <-s.Context.Done():
			return
		}
	}
}

func (s *server) positionNow() (id string, err error) {
	ctx, cancel := context.WithTimeout(s.Context, lookedFor)
	defer cancel()
	on, err := s.Open(app.Everyone)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, on.Close()) }()
	at, err := on.Position(ctx)
	return idOf(at), app.Unavailable(err)
}

// standing returns what a principal is told of the position.
func (s *server) standing(ctx context.Context, who app.Principal) (now *app.Standing, id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, judgedAgain/2) // a right may end
	defer cancel()
	on, err := s.Open(who)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, on.Close()) }()
	if now, err = on.For(who).Standing(ctx); err != nil {
		return nil, "", err
	}
	at, err := domain.ParsePosition(now.Position)
	return now, idOf(at), err
}

// follow sends an event when the position has changed, at most every ten seconds. Who comes back names the last event that
// they have.
func (s *server) follow(w http.ResponseWriter, r *http.Request) {
	const operation = "overview" // whoever may ask it
	asking := func() (app.Principal, error) {
		who, err := s.Who(r)
		if err != nil {
			return app.Principal{}, err
		}
		return who.Asking(operation)
	}
	who, err := asking()
	if err == nil && r.URL.RawQuery != "" {
		err = &app.InvalidError{Err: errors.New("changes have no parameters")}
	}
	if err != nil {
		fail(w, err)
		return
	}
	ok, first := s.changes.begin(who.Name)
	if !ok {
		refuse(w, http.StatusTooManyRequests, errFollowing)
		return
	}
	defer s.changes.end(who.Name)
	if first && s.door.enter() {
		go func() {
			defer s.door.leave()
			s.lookAt()
		}()
	}
	if err := s.keep(who, Asked{operation, sha256.Sum256(nil), false, nil}); err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	last, next := r.Header.Get("Last-Event-ID"), time.Time{}
	flush := http.NewResponseController(w)
	to := &timed{w, flush}
	again, alive := time.NewTicker(min(judgedAgain, s.changes.every)), time.NewTicker(stillThere)
	defer again.Stop()
	defer alive.Stop()
	for {
		if now, err := asking(); err != nil || now.Name != who.Name || now.Scope.Key() != who.Scope.Key() {
			return // a key or a right ended
		}
		if id := s.changes.now(); id != "" && id != last && !time.Now().Before(next) {
			// An error passes, or the next question hears of it.
			if now, id, err := s.standing(r.Context(), who); err == nil && id != last {
				last, next = id, time.Now().Add(s.changes.every)
				if _, err := fmt.Fprintf(to, "id: %s\nevent: change\ndata: ", id); err != nil || cli.WriteLine(to, now) != nil {
					return
				}
				if _, err := io.WriteString(to, "\n"); err != nil {
					return
				}
			}
		}
		if err := flush.Flush(); err != nil {
			return
		}
		select {
		case <-again.C:
		case <-alive.C:
			if _, err := io.WriteString(to, ": still there\n\n"); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.Context.Done():
			return
		}
	}
}
