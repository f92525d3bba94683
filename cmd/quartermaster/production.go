package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"quartermaster/adapters/postgres"
	"quartermaster/domain"
	"quartermaster/projections"
)

var errNoProduction = errors.New("this needs a production home: name its file with --config or QUARTERMASTER_CONFIG")

// database opens the rows of a production home.
func (a *app) database(ctx context.Context) (*postgres.DB, error) {
	if a.config == nil {
		return nil, errNoProduction
	}
	cfg, err := a.config.postgres()
	if err != nil {
		return nil, err
	}
	return postgres.Open(ctx, cfg)
}

// openRows opens the rows and makes sure that they are of this log.
func (h *home) openRows(ctx context.Context) (err error) {
	if h.db, err = h.app.database(ctx); err != nil {
		return err
	}
	return h.bind(ctx)
}

// bind refuses rows of another log, and a log whose topics were made anew.
func (h *home) bind(ctx context.Context) error {
	topics, err := h.log.TopicIDs(ctx)
	if err != nil {
		return err
	}
	return h.db.Bind(ctx, h.id, topics)
}

// How a command waits for rows that other processes fold: it looks every
// awaitEvery, and gives up once they have not moved for awaitPatience.
const (
	awaitEvery    = 100 * time.Millisecond
	awaitPatience = 10 * time.Second
)

// await waits until the instances have folded the log up to end. Where they do
// not, the answer is of what is folded, and a note says so: an answer names its
// position, and old rows are better than none while a database is restarted.
func (h *home) await(ctx context.Context, end domain.Position) error {
	bar := h.app.bar("wait", end.Records(), "events")
	defer bar.stop()
	var at domain.Position
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for moved := time.Now(); ; {
		var now domain.Position
		if err := h.view(ctx, func(v projections.View) error { now = v.Position(); return nil }); err != nil {
			return err
		}
		bar.set(now.Records())
		if now.Covers(end) {
			return nil
		}
		if at == nil || now.Records() > at.Records() {
			at, moved = now, time.Now()
		}
		if time.Since(moved) > awaitPatience {
			h.app.note("%s events of the log are not folded, and for %s none was: is an instance of \"quartermaster serve --config %s\" running? What follows is at position %s",
				comma(int(end.Records()-now.Records())), awaitPatience, h.app.configPath, now)
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// digest returns the digest of the rows and the position that they stand for.
func (h *home) digest(ctx context.Context) (sum [32]byte, at domain.Position, err error) {
	if h.db == nil {
		return h.store.Digest()
	}
	err = h.db.View(ctx, func(v projections.View) error {
		at = v.Position()
		sum, err = projections.DigestOf(v)
		return err
	})
	if err != nil {
		err = fmt.Errorf("digest the rows: %w", err)
	}
	return sum, at, err
}
