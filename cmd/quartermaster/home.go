package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/kafka/embedded"
	"quartermaster/adapters/postgres"
	"quartermaster/adapters/snapshotfile"
	"quartermaster/adapters/wire"
	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
)

// A snapshot is worth its time once this many records were folded since the last
// one, about a second of replaying, or a twentieth of the log.
const (
	snapshotEvery = 200_000
	snapshotShare = 20
)

// home is an open home: the log, and the rows folded from it. The rows are in
// memory, folded by this process, or with --config in a database, folded by the
// instances of "quartermaster serve" (production.go).
type home struct {
	app    *app
	broker *embedded.Broker // nil with --brokers and --config
	log    *kafka.Log
	db     *postgres.DB        // nil without --config
	store  *projections.Memory // nil with --config
	runner *projections.Runner // nil with --config
	id     string              // of the log
	saved  domain.Position     // of the newest snapshot
	from   string              // the snapshot that the rows were loaded from; "": none
	aside  []string            // snapshots that could not be used, and why
	asOf   domain.Position     // the past position that the rows are of; nil: they are the present

	generation string // the one that is read; "": the active one
	agreed     agreed // with --config: whether log and rows agree
}

// errNoHome means that a command that only reads was pointed at nothing.
var errNoHome error = &application.UnavailableError{Err: errors.New("there is no home here yet: \"quartermaster apply\" or \"quartermaster import\" make one, or name another with --home")}

// reading refuses to make a home only to answer that it is empty: the path is
// probably mistyped.
func (a *app) reading() error {
	if err := a.placed(); err != nil {
		return err
	}
	if !a.embedded() {
		return nil
	}
	if _, err := os.Stat(filepath.Join(a.dir, "log")); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", a.dir, errNoHome)
	}
	return nil
}

// open opens the home with rows of everything that the log holds so far, to append.
func (a *app) open(ctx context.Context) (*home, error) { return a.openFor(ctx, appending) }

func (a *app) openFor(ctx context.Context, why purpose) (h *home, err error) {
	defer func() { err = unavailable(err) }()
	if a.config != nil {
		h, err = a.openProduction(ctx, why)
	} else if h, err = a.openLog(ctx); err == nil {
		h.load()
	}
	if err != nil {
		return nil, err
	}
	if err := h.catchUp(ctx); err != nil {
		return nil, errors.Join(err, h.shut())
	}
	// Records appended to a log that lost some would take the offsets of those.
	if h.db != nil && why == appending {
		diverged, err := h.diverged(ctx)
		if err = errors.Join(diverged, err); err != nil {
			return nil, errors.Join(fmt.Errorf("nothing is appended: %w", err), h.shut())
		}
	}
	return h, nil
}

// unavailable is the error of a log or a database that could not be opened, if it is of
// no other kind.
func unavailable(err error) error {
	var usage *commandline.UsageError
	if err == nil || application.KindOf(err) != application.KindNone || errors.As(err, &usage) || errors.Is(err, context.Canceled) {
		return err
	}
	return &application.UnavailableError{Err: err}
}

// embedded reports whether the log is in a directory of this machine.
func (a *app) embedded() bool { return len(a.brokers) == 0 && a.config == nil }

// logConfig says how to reach the log, when it is not embedded.
func (a *app) logConfig() (kafka.Config, error) {
	if a.config != nil {
		return a.config.ForKafka()
	}
	for _, b := range a.brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			return kafka.Config{}, fmt.Errorf("--brokers %q: want host:port, separated by commas", b)
		}
	}
	return kafka.Config{Brokers: a.brokers, Patience: patience}, nil
}

// openLog opens the log alone. In production it makes no topics.
func (a *app) openLog(ctx context.Context) (*home, error) {
	h, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	if a.config != nil {
		err = h.haveTopics(ctx)
	} else {
		err = h.log.EnsureTopics(ctx, domain.TopicSpecs())
		h.reset()
	}
	if err != nil {
		return nil, errors.Join(err, h.shut())
	}
	return h, nil
}

// dial reaches the log, and leaves its topics as they are.
func (a *app) dial(ctx context.Context) (_ *home, err error) {
	defer func() { err = unavailable(err) }()
	if err := a.placed(); err != nil {
		return nil, err
	}
	h := &home{app: a}
	cfg, err := a.logConfig()
	if err != nil {
		return nil, err
	}
	cfg.Logger = a.logger
	if a.embedded() {
		b, err := embedded.Open(ctx, embedded.Config{Dir: a.dir})
		if err != nil {
			return nil, fmt.Errorf("open home %s: %w", a.dir, err)
		}
		h.broker = b
		for _, t := range b.Report.Trimmed {
			a.note("after a crash: %s", t)
		}
		cfg.Dial = b.Dial
	}
	log, err := kafka.Open(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, h.closeBroker())
	}
	h.log = log
	if h.id, err = log.ID(ctx); err != nil {
		return nil, errors.Join(err, h.shut())
	}
	return h, nil
}

func (h *home) reset() {
	h.store = projections.NewMemory(domain.TopicSpecs())
	h.runner = newRunner(memoryLog{h.log, ""}, h.store)
}

// newRunner wires the log's records through the decoder into a store.
func newRunner(log projections.Log, store projections.Store) *projections.Runner {
	return &projections.Runner{
		Log: log, Store: store, Topics: domain.TopicSpecs(),
		NewDecoder: func() projections.Decoder { return new(wire.Decoder) },
		Pause: func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(stoppedPause):
				return true
			}
		},
	}
}

// stoppedPause is how long a partition that stands still waits until it is tried again.
const stoppedPause = 15 * time.Second

// patience is how long a command waits for a broker that does not answer. In
// production it is the longer time that brokers take to replace one another.
const patience = 10 * time.Second

// snapshots is where the snapshots of this log are.
func (h *home) snapshots() string {
	dir := filepath.Join(h.app.dir, "snapshots")
	if h.app.config != nil && h.app.config.Snapshots != "" {
		dir = h.app.config.Snapshots
	}
	return filepath.Join(dir, h.id)
}

// load fills the store from the newest snapshot that is sound. Without one the
// log is folded from its beginning, which gives the same.
func (h *home) load() {
	paths, err := snapshotfile.List(h.snapshots())
	if err != nil {
		h.app.note("snapshots cannot be read, so the log is folded from its beginning: %v", err)
	}
	for _, path := range paths {
		at, err := h.loadFile(path)
		if err == nil {
			h.saved, h.from = at, path
			h.runner.Log = memoryLog{h.log, path}
			return
		}
		h.reset()
		// One of another version was right in its time, and stays if it was kept.
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, projections.ErrSnapshotMethod) {
			h.aside = append(h.aside, fmt.Sprintf("%s: %v", path, err))
			h.app.note("%s is left aside: %v", path, err)
		}
	}
}

func (h *home) loadFile(path string) (domain.Position, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return h.store.ReadSnapshot(f, info.Size(), h.id)
}

// end returns the position of everything that is in the log now.
func (h *home) end(ctx context.Context) (domain.Position, error) {
	_, next, err := h.bounds(ctx)
	return next, err
}

// bounds returns the end of the log, and the first offset of each partition that lacks
// its beginning: where records were deleted, what was computed from them cannot be
// computed again.
func (h *home) bounds(ctx context.Context) (trimmed, next domain.Position, err error) {
	first, next, err := h.log.AllBounds(ctx, domain.AllPartitions())
	if err != nil {
		return nil, nil, fmt.Errorf("ask how long the log is: %w", err)
	}
	return trimmedOf(first), next, nil
}

// trimmedOf returns the partitions that lack their beginning.
func trimmedOf(first domain.Position) domain.Position {
	trimmed := domain.Position{}
	for tp, at := range first {
		if at > 0 {
			trimmed[tp] = at
		}
	}
	return trimmed
}

// trimmedTexts says of each partition that lacks its beginning what that means.
func trimmedTexts(trimmed domain.Position) (texts []string) {
	for _, tp := range slices.SortedFunc(maps.Keys(trimmed), domain.TopicPartition.Compare) {
		err := &kafka.TrimmedError{Partition: tp, Wanted: 0, Found: trimmed[tp]}
		texts = append(texts, fmt.Sprintf("%s: rows that were folded from them stay right, and cannot be folded again; %s", err, kafka.Anew))
	}
	return texts
}

// advised is the text of an error with what a person does about it, so that all
// commands say the same of a log that lacks records.
func advised(err error) string {
	var trimmed *kafka.TrimmedError
	var l projections.Lasting
	text := err.Error()
	if (errors.As(err, &trimmed) || errors.Is(err, kafka.ErrCorrupt) || errors.Is(err, kafka.ErrDiverged)) && errors.As(err, &l) && !strings.Contains(text, l.Advice()) {
		text += "; " + l.Advice()
	}
	return text
}

// catchUp sees to it that everything that is in the log now is folded.
func (h *home) catchUp(ctx context.Context) error {
	trimmed, end, err := h.bounds(ctx)
	if err != nil {
		return err
	}
	for _, text := range trimmedTexts(trimmed) {
		h.app.note("%s", text)
	}
	if h.db != nil {
		return h.await(ctx, end)
	}
	for tp, at := range h.saved {
		if end[tp] < at {
			return fmt.Errorf("%w: %s ends at offset %d, but a snapshot was made of its first %d records; %s", kafka.ErrTrimmed, tp, end[tp], at, withoutSnapshot(h.from))
		}
	}
	if err := h.compareUnread(ctx, end); err != nil {
		return err
	}
	bar := h.app.bar("fold", end.Records()-h.saved.Records(), "events")
	defer bar.stop()
	stop := bar.follow(func() int64 { return h.runner.Progress().Records })
	defer stop()
	err = h.runner.CatchUp(ctx, end)
	var stopped *projections.StoppedError
	if errors.As(err, &stopped) {
		h.noteStops(stopped.Stops, end)
		return nil
	}
	if err != nil {
		return fmt.Errorf("fold the log: %w", err)
	}
	return nil
}

// noteStops says which partitions stand still, so that an answer lacks what follows.
func (h *home) noteStops(stops projections.Stops, end domain.Position) {
	for _, tp := range stops.Partitions() {
		h.app.lacking = true
		h.app.note("%s %s. What follows lacks up to %s events of it", tp, stops[tp], comma(int(end[tp]-stops[tp].Offset)))
	}
}

// view reads the rows.
func (h *home) view(ctx context.Context, read func(projections.View) error) error {
	if h.db != nil {
		return h.db.ViewOf(ctx, h.generation, read)
	}
	return h.store.View(ctx, read)
}

// save writes a snapshot when enough was folded since the last one. Only the
// log's owner does: others would write over it.
func (h *home) save() error {
	if h.db != nil || h.broker != nil && !h.broker.Owner() {
		return nil
	}
	// Rows of a log that is no more are not kept once more.
	for _, stop := range h.runner.Progress().Stopped {
		if h.from != "" && stop.Advice == withoutSnapshot(h.from) {
			return nil
		}
	}
	var at domain.Position
	if err := h.store.View(context.Background(), func(v projections.View) error {
		at = v.Position()
		return nil
	}); err != nil {
		return err
	}
	total := at.Records()
	folded := total - h.saved.Records()
	if folded == 0 || folded < min(snapshotEvery, total/snapshotShare) {
		return nil
	}
	if _, err := snapshotfile.Save(h.snapshots(), at, func(w io.Writer) error {
		_, _, err := h.store.WriteSnapshot(w, h.id)
		return err
	}); err != nil {
		return err
	}
	h.saved = at
	return nil
}

// close ends the use of the home, leaving a snapshot behind if it is worth it. A
// snapshot that cannot be written costs time later, and no answer now.
func (h *home) close() error {
	if err := h.save(); err != nil {
		h.app.note("no snapshot is left behind: %v", err)
	}
	return h.shut()
}

// shut closes what is open.
func (h *home) shut() error {
	err := errors.Join(h.log.Close(), h.closeBroker())
	if h.db != nil {
		err = errors.Join(err, h.db.Close())
	}
	return err
}

func (h *home) closeBroker() error {
	if h.broker == nil {
		return nil
	}
	return h.broker.Close()
}

// with opens the home, runs work, which may append, and closes it.
func (a *app) with(ctx context.Context, work func(*home) error) error {
	return a.use(ctx, appending, work)
}

func (a *app) use(ctx context.Context, why purpose, work func(*home) error) (err error) {
	h, err := a.openFor(ctx, why)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	return work(h)
}

// read is with for commands that change nothing, or only what is there.
func (a *app) read(ctx context.Context, work func(*home) error) error {
	if err := a.reading(); err != nil {
		return err
	}
	return a.use(ctx, reading, work)
}

// now is the program's clock.
func now() domain.Instant { return domain.InstantOf(time.Now()) }

// instantFlag reads a time on the command line: RFC 3339, or a date or month
// in UTC.
func instantFlag(s string) (domain.Instant, error) {
	for _, layout := range []string{time.DateOnly, "2006-01"} {
		if t, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return domain.ParseInstant(t.Format(time.RFC3339))
		}
	}
	t, err := domain.ParseInstant(s)
	if err != nil {
		return 0, fmt.Errorf("%w; a date such as 2026-05-01 or a month such as 2026-05 is fine too", err)
	}
	return t, nil
}

// stream returns a stream for the events of this run of a command. Every run is
// an incarnation of its own, so that two at once never number events alike, and
// what was said later wins where two things take effect at once.
func (h *home) stream(command string) *kafka.Stream { return h.streamOf("quartermaster/" + command) }

func (h *home) streamOf(source string) *kafka.Stream {
	return kafka.NewStream(h.log, kafka.StreamConfig{
		Source:      source,
		Incarnation: uint64(time.Now().UnixMicro())<<10 | uint64(rand.N(1<<10)),
		Encode:      wire.Encode,
	})
}
