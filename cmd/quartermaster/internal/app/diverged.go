package app

import (
	"context"
	"errors"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
	"quartermaster/projections"
)

// memoryLog is the log for rows in memory. Such rows start from a snapshot file, so where the log
// diverged from them the advice is about that file: there is no generation in a database to
// rebuild.
type memoryLog struct {
	*kafka.Log
	snapshot string // the file that the rows were loaded from; "": none
}

// ReadAfter implements [projections.Log].
func (l memoryLog) ReadAfter(ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from, to int64, yield func([]domain.Record) error) error {
	return l.advise(l.Log.ReadAfter(ctx, tp, last, from, to, yield))
}

// FollowAfter implements [projections.Log].
func (l memoryLog) FollowAfter(ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from int64, yield func([]domain.Record) error) error {
	return l.advise(l.Log.FollowAfter(ctx, tp, last, from, yield))
}

func (l memoryLog) advise(err error) error {
	if !errors.Is(err, kafka.ErrDiverged) {
		return err
	}
	return &memoryDivergedError{err, withoutSnapshot(l.snapshot)}
}

// memoryDivergedError is a [kafka.ErrDiverged] of rows in memory.
type memoryDivergedError struct {
	error
	advice string
}

func (e *memoryDivergedError) Unwrap() error { return e.error }

// Advice implements [projections.Lasting].
func (e *memoryDivergedError) Advice() string { return e.advice }

// Kind implements [projections.Lasting].
func (e *memoryDivergedError) Kind() string {
	var d *kafka.DivergedError
	if errors.As(e.error, &d) {
		return d.Kind()
	}
	return "diverged"
}

// withoutSnapshot says how to make rows in memory match the existing log.
func withoutSnapshot(path string) string {
	if path == "" {
		return "start this again: the rows are folded anew from what the log holds now; what it lost is lost"
	}
	return "the snapshot " + path + " is of a deleted log. If you have that log, restore it. Otherwise remove this file: " +
		"the rows are then folded from the snapshot before it, which is compared in the same way, or from the beginning of the log; what the log lost is lost"
}

// compareUnread reports partitions that have as many records as the loaded snapshot, but
// different ones. A longer partition is compared when its further records are read.
func (h *Conn) compareUnread(ctx context.Context, end domain.Position) error {
	if h.from == "" {
		return nil
	}
	unread := domain.Position{}
	var anchors map[domain.TopicPartition]domain.Anchor
	if err := h.store.View(ctx, func(v projections.View) error {
		anchors = v.Anchors()
		for tp, at := range v.Position() {
			if at == end[tp] {
				unread[tp] = at
			}
		}
		return nil
	}); err != nil {
		return err
	}
	found, err := h.Log.Diverged(ctx, unread, anchors)
	stops := projections.Stops{}
	for tp, wrong := range found {
		stops[tp] = projections.Stop{Offset: wrong.Position, Reason: wrong.Error(), Advice: withoutSnapshot(h.from)}
	}
	h.noteStops(stops, end)
	return err
}
