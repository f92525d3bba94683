package app

import (
	"context"
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
)

// Principal is on whose behalf a question is asked or a decision is made.
type Principal struct {
	Name  string
	Scope *access.Scope // what they see
}

// Everyone may read everything: whoever owns the home.
var Everyone = Principal{"everyone", access.Whole()}

// Caller asks and decides on behalf of a principal. Its methods are the use cases.
type Caller struct{ app *App }

// For returns the use cases of a principal. An app that was narrowed to what somebody sees stays so, whoever is named
// later.
func (s *App) For(p Principal) *Caller {
	if s.who.Scope == nil || s.who.Scope.IsWhole() {
		s.who = p
	}
	return &Caller{s}
}

// scope returns what is seen through the app.
func (s *App) scope() *access.Scope {
	if s.who.Scope == nil {
		return Everyone.Scope
	}
	return s.who.Scope
}

// At is the point in time of an answer: a position as in the "position" of every answer, the file
// name of a snapshot, or a time (RFC 3339, or a date or a month in UTC). The empty At is the
// present.
type At string

// Close closes the log and the rows. It leaves a snapshot behind where that saves time later.
func (s *App) Close() error {
	if s.conn == nil {
		return nil
	}
	c := s.conn
	s.conn = nil
	if c.caughtUp {
		return c.Close()
	}
	return c.Shut()
}

// conn returns the open log with rows of everything that it holds, opened for at least the
// purpose. It stays open until the app is closed. Its rows are those at opening time, plus what
// was appended through it since.
func (c *Caller) conn(ctx context.Context, why purpose) (*Conn, error) {
	s := c.app
	if h := s.conn; h != nil && h.caughtUp {
		if h.purpose >= why {
			return h, nil
		}
		h.purpose = why
		return h, h.mayAppend(ctx)
	}
	if why == Reading {
		if err := s.reading(); err != nil {
			return nil, err
		}
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	h, err := s.openFor(ctx, why)
	s.conn = h
	return h, err
}

// log returns the open log; its rows need not be folded.
func (c *Caller) log(ctx context.Context) (*Conn, error) {
	s := c.app
	if err := s.reading(); err != nil {
		return nil, err
	}
	if s.conn != nil {
		return s.conn, nil
	}
	h, err := s.OpenLog(ctx)
	s.conn = h
	return h, err
}

// at returns the open log with the rows of a point in the past, or of the present. For the past
// it uses only the log and the snapshots: it loads the nearest earlier snapshot and folds the
// rest in memory.
func (c *Caller) at(ctx context.Context, at At) (*Conn, error) {
	if at == "" {
		return c.conn(ctx, Reading)
	}
	s := c.app
	if h := s.conn; h != nil && h.asked == at {
		return h, nil
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	h, err := c.log(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.goBack(ctx, string(at)); err != nil {
		return nil, err
	}
	h.asked = at
	return h, nil
}

// read reads the rows of a point in time.
func (c *Caller) read(ctx context.Context, at At, read func(*Conn, projections.View) error) error {
	h, err := c.at(ctx, at)
	if err != nil {
		return err
	}
	return h.View(ctx, func(v projections.View) error { return read(h, v) })
}

// readFrom is read with the time that a question is about: the given time, else now, or for a
// point in the past the append time of the last event before it.
func (c *Caller) readFrom(ctx context.Context, at At, about domain.Instant, read func(projections.View, domain.Instant) error) error {
	h, err := c.at(ctx, at)
	if err != nil {
		return err
	}
	if about == 0 {
		if about, err = h.now(ctx); err != nil {
			return err
		}
	}
	return h.View(ctx, func(v projections.View) error { return read(v, about) })
}

// invalid returns an error about a field of a question.
func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Err: fmt.Errorf(format, args...)}
}
