package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/kafka/archive"
	"quartermaster/adapters/kafka/embedded"
	"quartermaster/adapters/parts"
	"quartermaster/adapters/postgres"
	"quartermaster/adapters/snapshotfile"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"

	"github.com/dustin/go-humanize"
)

// A snapshot is written once this many records were folded since the last one (about a second of
// replay), or a twentieth of the log.
const (
	snapshotEvery = 200_000
	snapshotShare = 20
)

// Conn is an open log and the rows folded from it. The rows are in memory, folded by this
// process, or with --config in a database, folded by the instances of "quartermaster serve"
// (production.go).
type Conn struct {
	app    *App
	Broker *embedded.Broker // nil with --brokers and --config
	Log    *kafka.Log
	DB     *postgres.DB        // nil without --config
	store  *projections.Memory // nil with --config
	sealer *sealer             // of store
	parts  parts.Directory     // of this log
	source *parts.Source       // of parts
	Runner *projections.Runner // nil with --config
	ID     string              // of the log
	saved  domain.Position     // of the newest snapshot
	loaded domain.Position     // that the rows were loaded from
	from   string              // its file; "": none
	aside  []string            // snapshots that could not be used, and why
	asOf   domain.Position     // past position of the rows; nil: the present

	released bool // the rows were dropped from memory; see release
	borrowed bool // of a Conn that stays open when this is closed; see share

	purpose  purpose // that it was opened for
	caughtUp bool    // the rows cover everything that the log held at opening
	asked    At      // the At that asOf was resolved from

	Generation string // the generation to read; "": the active one
	agreed     agreed // with --config: whether log and rows agree

	archive *archive.Archive // of the log; nil without a place for it
}

// errNoData means that a read-only command found no data directory.
var errNoData error = &helped{
	&UnavailableError{Err: errors.New("there is no data here yet: \"quartermaster apply\" or \"quartermaster import\" creates it")},
	RemedyOtherDataDir,
}

// reading refuses to create a data directory only to answer that it is empty: the path is
// probably mistyped.
func (s *App) reading() error {
	if err := s.placed(); err != nil {
		return err
	}
	if !s.embedded() {
		return nil
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "log")); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", s.Dir, errNoData)
	}
	return nil
}

// Open opens the data directory for appending, with rows of everything that the log holds so far.
func (s *App) Open(ctx context.Context) (*Conn, error) { return s.openFor(ctx, Appending) }

func (s *App) openFor(ctx context.Context, why purpose) (h *Conn, err error) {
	defer func() { err = Unavailable(err) }()
	if s.shared != nil {
		return s.openShared(ctx)
	}
	if s.Config != nil {
		h, err = s.OpenProduction(ctx, why)
	} else if h, err = s.OpenLog(ctx); err == nil {
		h.Load()
	}
	if err != nil {
		return nil, err
	}
	if err := h.CatchUp(ctx); err != nil {
		return nil, errors.Join(err, h.Shut())
	}
	h.caughtUp, h.purpose = true, why
	if why == Appending {
		if err := h.mayAppend(ctx); err != nil {
			return nil, errors.Join(err, h.Shut())
		}
	}
	return h, nil
}

// mayAppend refuses to append to a log that lost records, because new ones would take their
// offsets, and in a directory that is not writable.
func (h *Conn) mayAppend(ctx context.Context) error {
	if h.DB == nil {
		if h.Broker != nil && h.Broker.ReadOnly() {
			return &DeniedError{Err: h.Broker.Refusal()}
		}
		return nil
	}
	diverged, err := h.diverged(ctx)
	if err = errors.Join(diverged, err); err != nil {
		return fmt.Errorf("nothing was appended: %w", err)
	}
	return nil
}

// Unavailable wraps the error of a log or a database that could not be opened in an
// [UnavailableError], unless it has a kind already.
func Unavailable(err error) error {
	if err == nil || KindOf(err) != KindNone || errors.Is(err, context.Canceled) {
		return err
	}
	return &UnavailableError{Err: err}
}

// embedded reports whether the log is in a local directory.
func (s *App) embedded() bool { return len(s.Brokers) == 0 && s.Config == nil }

// logConfig returns how to reach a log that is not embedded.
func (s *App) logConfig() (kafka.Config, error) {
	if s.Config != nil {
		return s.Config.ForKafka()
	}
	for _, b := range s.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			return kafka.Config{}, invalid("brokers", "%q: want host:port, separated by commas", b)
		}
	}
	return kafka.Config{Brokers: s.Brokers, Patience: patience}, nil
}

// OpenLog opens the log alone. With --config it creates no topics.
func (s *App) OpenLog(ctx context.Context) (*Conn, error) {
	if s.shared != nil {
		h := s.share()
		if s.Config == nil {
			h.reset()
		}
		return h, nil
	}
	h, err := s.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if s.Config != nil {
		err = h.haveTopics(ctx)
	} else {
		err = h.Log.EnsureTopics(ctx, domain.TopicSpecs())
		h.reset()
	}
	if err != nil {
		return nil, errors.Join(err, h.Shut())
	}
	return h, nil
}

// Dial connects to the log, and leaves its topics as they are.
func (s *App) Dial(ctx context.Context) (_ *Conn, err error) {
	defer func() { err = Unavailable(err) }()
	if err := s.placed(); err != nil {
		return nil, err
	}
	h := &Conn{app: s}
	cfg, err := s.logConfig()
	if err != nil {
		return nil, err
	}
	cfg.Logger = s.Logger
	if s.embedded() {
		b, err := embedded.Open(ctx, embedded.Config{Dir: s.Dir})
		if err != nil {
			return nil, fmt.Errorf("open data directory %s: %w", s.Dir, err)
		}
		h.Broker = b
		if b.ReadOnly() {
			s.tell("%s cannot be written to: the log is read as it is now", s.Dir)
		}
		for _, t := range b.Report.Trimmed {
			s.tell("after a crash: %s", t)
		}
		cfg.Dial = b.Dial
	}
	log, err := kafka.Open(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, h.CloseBroker())
	}
	h.Log = log
	if h.ID, err = log.ID(ctx); err == nil {
		h.parts, err = s.partsOf(ctx, h.ID)
	}
	if err == nil {
		h.source = parts.NewSource(h.parts)
		h.archive, err = s.attach(ctx, log, h.ID)
	}
	if err != nil {
		return nil, errors.Join(err, h.Shut())
	}
	return h, nil
}

func (h *Conn) reset() {
	h.store, h.sealer = h.memory(true)
	h.Runner = NewRunner(sealingLog{memoryLog{h.Log, ""}, h.sealer}, h.store)
}

// NewRunner wires the log's records through the decoder into a store.
func NewRunner(log projections.Log, store projections.Store) *projections.Runner {
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

// stoppedPause is how long a stopped partition waits before it is retried.
const stoppedPause = 15 * time.Second

// patience is how long a command waits for a broker that does not answer. With --config it is the
// longer time that a broker failover takes.
const patience = 10 * time.Second

// Snapshots returns the directory of this log's snapshots.
func (h *Conn) Snapshots() string {
	dir := filepath.Join(h.app.Dir, "snapshots")
	if h.app.Config != nil && h.app.Config.Snapshots != "" {
		dir = h.app.Config.Snapshots
	}
	return filepath.Join(dir, h.ID)
}

// Load fills the store from the newest usable snapshot. Without one the log is folded from its
// beginning, with the same result.
func (h *Conn) Load() {
	paths, err := snapshotfile.List(h.Snapshots())
	if err != nil {
		h.app.tell("snapshots cannot be read, so the log is folded from its beginning: %v", err)
	}
	for _, path := range paths {
		at, err := h.loadFile(path)
		if err == nil {
			h.saved, h.loaded, h.from = at, at, path
			collectFor(h.ownRows())
			h.Runner.Log = sealingLog{memoryLog{h.Log, path}, h.sealer}
			return
		}
		h.reset()
		// A snapshot of another method version is not damaged: keep it, without a note.
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, projections.ErrSnapshotMethod) {
			h.aside = append(h.aside, fmt.Sprintf("%s: %v", path, err))
			h.app.tell("%s was ignored: %v", path, err)
		}
	}
}

func (h *Conn) loadFile(path string) (domain.Position, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return h.store.ReadSnapshot(f, info.Size(), h.ID)
}

// End returns the present end of the log.
func (h *Conn) End(ctx context.Context) (domain.Position, error) {
	_, next, err := h.Bounds(ctx)
	return next, err
}

// Bounds returns the end of the log, and the first offset of each partition whose beginning was
// deleted. What was computed from deleted records cannot be computed again.
func (h *Conn) Bounds(ctx context.Context) (trimmed, next domain.Position, err error) {
	first, next, err := h.Log.AllBounds(ctx, domain.AllPartitions())
	if err != nil {
		return nil, nil, fmt.Errorf("ask how long the log is: %w", err)
	}
	return trimmedOf(first), next, nil
}

// trimmedOf returns the partitions whose beginning was deleted, with their first offsets.
func trimmedOf(first domain.Position) domain.Position {
	trimmed := domain.Position{}
	for tp, at := range first {
		if at > 0 {
			trimmed[tp] = at
		}
	}
	return trimmed
}

// TrimmedTexts explains for each partition what the deletion of its beginning means.
func TrimmedTexts(trimmed domain.Position) (texts []string) {
	for _, tp := range slices.SortedFunc(maps.Keys(trimmed), domain.TopicPartition.Compare) {
		err := &kafka.TrimmedError{Partition: tp, Wanted: 0, Found: trimmed[tp]}
		texts = append(texts, fmt.Sprintf("%s: rows that were folded from them stay right, and cannot be folded again; %s", err, kafka.Anew))
	}
	return texts
}

// Advised returns the text of an error with its advice, so that all commands say the same about a
// log that lacks records.
func Advised(err error) string {
	var trimmed *kafka.TrimmedError
	var l projections.Lasting
	text := err.Error()
	lost := errors.As(err, &trimmed) || errors.Is(err, kafka.ErrCorrupt) || errors.Is(err, kafka.ErrDiverged) ||
		errors.Is(err, kafka.ErrArchive)
	if lost && errors.As(err, &l) && !strings.Contains(text, l.Advice()) {
		text += "; " + l.Advice()
	}
	return text
}

// CatchUp folds everything that is in the log now, or waits until it is folded.
func (h *Conn) CatchUp(ctx context.Context) error {
	trimmed, end, err := h.Bounds(ctx)
	if err != nil {
		return err
	}
	if h.app.scope().IsWhole() {
		for _, text := range TrimmedTexts(trimmed) {
			h.app.tell("%s", text)
		}
	}
	if h.DB != nil {
		return h.await(ctx, end)
	}
	if h.borrowed {
		return h.followed(ctx, end)
	}
	for tp, at := range h.saved {
		if end[tp] < at {
			return fmt.Errorf("%w: %s ends at offset %d, but a snapshot was made of its first %d records; %s",
				kafka.ErrTrimmed, tp, end[tp], at, withoutSnapshot(h.from))
		}
	}
	if err := h.compareUnread(ctx, end); err != nil {
		return err
	}
	bar := h.app.track(Work{Name: "fold", Total: end.Records() - h.saved.Records(), Unit: "events"})
	defer bar.Stop()
	stop := follow(bar, func() int64 { return h.Runner.Progress().Records })
	defer stop()
	err = h.Runner.CatchUp(ctx, end)
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

// noteStops names the stopped partitions, because the answer lacks their later events. Whoever sees a part of the estate
// learns only that it does.
func (h *Conn) noteStops(stops projections.Stops, end domain.Position) {
	for _, tp := range stops.Partitions() {
		h.app.Lacks = true
		if !h.app.scope().IsWhole() {
			continue
		}
		h.app.tell("%s %s. What follows lacks up to %s events of it", tp, stops[tp], comma(int(end[tp]-stops[tp].Offset)))
	}
}

// View reads the rows that the principal of the app sees.
func (h *Conn) View(ctx context.Context, read func(projections.View) error) error {
	narrowed := func(v projections.View) error { return read(h.app.scope().View(v)) }
	if h.DB != nil {
		return h.DB.ViewOf(ctx, h.Generation, narrowed)
	}
	return h.store.View(ctx, narrowed)
}

// Save writes a snapshot when enough was folded since the last one. Only the owner of the log
// does, so that processes do not overwrite each other's.
func (h *Conn) Save() error {
	if h.DB != nil || h.Broker != nil && !h.Broker.Owner() {
		return nil
	}
	// Do not save rows of a deleted log again.
	for _, stop := range h.Runner.Progress().Stopped {
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
	if err := h.seal(context.Background(), at); err != nil {
		return err
	}
	if _, err := snapshotfile.Save(h.Snapshots(), at, func(w io.Writer) error {
		_, _, err := h.store.WriteSnapshot(w, h.ID)
		return err
	}); err != nil {
		return err
	}
	h.saved = at
	return nil
}

// Close closes the data directory, and leaves a snapshot behind if it saves time. Failing to
// write it does not affect an answer.
func (h *Conn) Close() error {
	if h.borrowed {
		return nil
	}
	if err := h.Save(); err != nil {
		h.app.tell("no snapshot was written: %v", err)
	}
	return h.Shut()
}

// Shut closes the log and the database.
func (h *Conn) Shut() error {
	if h.borrowed {
		return nil
	}
	err := errors.Join(h.Log.Close(), h.CloseBroker())
	if h.source != nil {
		err = errors.Join(err, h.source.Close())
	}
	if h.DB != nil {
		err = errors.Join(err, h.DB.Close())
	}
	return err
}

// CloseBroker closes the embedded log, if there is one.
func (h *Conn) CloseBroker() error {
	if h.Broker == nil {
		return nil
	}
	return h.Broker.Close()
}

// Now is the program's clock.
func Now() domain.Instant { return domain.InstantOf(time.Now()) }

// withLog opens the log without folding it.
func (s *App) withLog(ctx context.Context, work func(*Conn) error) (err error) {
	h, err := s.OpenLog(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Shut()) }()
	return work(h)
}

// placed refuses to work without a data directory when none was given and no environment variable
// names one. With --config none is needed.
func (s *App) placed() error {
	if s.Dir != "" || s.Config != nil {
		return nil
	}
	return &helped{invalid("data-dir", "no data directory: HOME is not set"), RemedyNameDataDir}
}

func comma(n int) string { return humanize.Comma(int64(n)) }

// day formats the date of an instant; "" for 0.
func day(t domain.Instant) string {
	if t == 0 {
		return ""
	}
	return t.Time().Format("2006-01-02")
}
