package app

import (
	"context"
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Principal is on whose behalf something is asked or decided.
type Principal struct{ name string }

// Everyone may read everything. There is no other principal yet.
var Everyone = Principal{"everyone"}

// Caller asks and decides on behalf of a principal. Its methods are the use cases.
type Caller struct {
	app *App
	who Principal
}

// For returns what a principal may ask and decide.
func (s *App) For(p Principal) *Caller { return &Caller{s, p} }

// At is the point in the past of which an answer is wanted: a position as every answer
// names its own, the file name of a snapshot, or a time (RFC 3339, or a date or a month in
// UTC). The empty one is the present.
type At string

// Close ends the use of what answers were read from. It leaves a snapshot behind where
// that saves time later.
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

// conn returns the open log with rows of everything that it holds, opened for at least
// the purpose. It stays open until the app is closed; its rows are of when it was opened,
// and of what was appended through it since.
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

// log returns the open log, of which nothing need be folded.
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

// at returns the open log with the rows of a point in the past, or of the present. Of the
// past only the log and the snapshots are used: the nearest snapshot before it, and what
// follows in the log up to it, folded in memory.
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

// readFrom is read with the time that a question is about: the one that is given, else now
// or when the last event before the point in the past was appended.
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

// invalid is an error about a field of a question.
func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Err: fmt.Errorf(format, args...)}
}
