package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// WorkRoot is the path of long work: of the questions whose answers take long.
const WorkRoot = APIRoot + "work"

// ChangesRoot is the path of the stream of changes.
const ChangesRoot = APIRoot + "changes"

// The states of long work.
const (
	WorkWaiting   = "waiting" // for its turn
	WorkRunning   = "running"
	WorkDone      = "done" // it has an answer
	WorkFailed    = "failed"
	WorkCancelled = "cancelled"
)

// Work is the state of a question whose answer takes long.
type Work struct {
	ID        string         `json:"id"`
	Operation string         `json:"operation"` // the words of the command
	Question  string         `json:"question"`  // the query
	State     string         `json:"state"`     // waiting, running, done, failed or cancelled
	Asked     domain.Instant `json:"asked"`
	Begin     domain.Instant `json:"begin,omitzero"`
	End       domain.Instant `json:"end,omitzero"`
	Progress  *WorkProgress  `json:"progress,omitempty"`  // of the part that is being done
	Notes     []string       `json:"notes"`               // for a person
	ExitCode  int            `json:"exit_code,omitempty"` // of the command
	Problem   *Problem       `json:"problem,omitempty"`   // why it failed
}

// WorkProgress is how much of a part of long work is done.
type WorkProgress struct {
	Name  string `json:"name"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
	Unit  string `json:"unit"`
}

// Problem is an error, in the terms of RFC 9457.
type Problem struct {
	Type   string `json:"type,omitempty"` // [ProblemType] and the kind of the error
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Faults are what is wrong in the documents that were sent, and where.
	Faults []app.Fault `json:"faults,omitempty"`
}

// Ended reports whether the work has come to its end.
func (w *Work) Ended() bool {
	return w.State == WorkDone || w.State == WorkFailed || w.State == WorkCancelled
}

// askLong asks a question whose answer takes long, with a body or nil, shows its progress, and writes the answer. If ctx ends, the work
// does.
func (a *Program) askLong(ctx context.Context, client *http.Client, base, question string, body []byte, out io.Writer) error {
	begun, err := a.sendBody(ctx, client, http.MethodPost, base+question, body)
	if err != nil {
		return err
	}
	var w Work
	err = json.NewDecoder(begun.Body).Decode(&w)
	begun.Body.Close()
	if err != nil || w.ID == "" {
		return &app.UnavailableError{Err: fmt.Errorf("%s began no work: %w", a.server, err)}
	}
	one := base + WorkRoot + "/" + w.ID
	if err := a.follow(ctx, client, one+"/events", &w); err != nil {
		if KindOf(err) == app.KindNotFound {
			return &app.IncompleteError{Err: fmt.Errorf("%s does not know the work any more: it was started again, another instance answered, or your right ended; ask again", a.server)}
		}
		if ctx.Err() != nil {
			bound, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer stop()
			if resp, err := a.send(bound, client, http.MethodDelete, one); err == nil {
				resp.Body.Close()
			}
			return ctx.Err()
		}
		return err
	}
	for _, note := range w.Notes {
		a.note("%s", note)
	}
	if w.State == WorkCancelled {
		return &app.IncompleteError{Err: fmt.Errorf("somebody ended the work: ask again")}
	}
	return a.ask(ctx, client, http.MethodGet, one+"/answer", nil, out)
}

// follow follows work until it has ended. A connection that breaks is made again.
func (a *Program) follow(ctx context.Context, client *http.Client, events string, w *Work) error {
	var p app.Progress
	part := ""
	defer func() {
		if p != nil {
			p.Stop()
		}
	}()
	last := ""
	for broken := 0; ; broken++ {
		err := a.eventsOf(ctx, client, events, &last, func(data []byte) error {
			broken = 0
			*w = Work{}
			if err := json.Unmarshal(data, w); err != nil {
				return err
			}
			name := ""
			if w.Progress != nil {
				name = w.Progress.Name
			}
			if p != nil && name != part {
				p.Stop()
				p = nil
			}
			if part = name; w.Progress != nil {
				if p == nil {
					p = a.track(app.Work{Name: name, Total: w.Progress.Total, Unit: w.Progress.Unit, Slow: true})
				}
				p.Set(w.Progress.Done)
			}
			return nil
		})
		if w.Ended() {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if kind := KindOf(err); err != nil && kind != app.KindUnavailable || broken == 5 {
			return cmp.Or(err, error(&app.UnavailableError{Err: fmt.Errorf("%s says nothing about the work any more", a.server)}))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// eventsOf calls use with the data of each event of a stream, after the one that last names.
func (a *Program) eventsOf(ctx context.Context, client *http.Client, events string, last *string, use func([]byte) error) error {
	resp, err := a.send(ctx, client, http.MethodGet, events, "Last-Event-ID", *last)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			*last = id
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if err := use([]byte(data)); err != nil {
				return fmt.Errorf("events of %s: %w", a.server, err)
			}
		}
	}
	return nil // broken, or ended
}
