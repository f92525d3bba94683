package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"quartermaster/adapters/kafka/archive"
	"quartermaster/adapters/parts"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
)

// App locates a log and its rows: an embedded log in a data directory, a Kafka cluster with rows
// in memory, or a configuration that names a Kafka cluster and a Postgres database. It is not
// safe for concurrent use.
type App struct {
	Dir     string   // data directory: the embedded log, snapshots, the first operator's key
	Named   bool     // Dir was given explicitly
	Brokers []string // Kafka cluster that holds the log instead of Dir

	ConfigPath string
	Config     *config.Config // contents of ConfigPath; nil without one

	// OpenBucket opens a bucket, at an address such as s3://bucket/prefix; nil: there are only
	// directories.
	OpenBucket func(ctx context.Context, address string) (Bucket, error)

	// Patience is how long to wait for rows that make no progress towards the end of the log; 0:
	// 10 s.
	Patience time.Duration
	Logger   *slog.Logger // for broker connections; nil: no logging

	// Tell receives notes for the user that are not part of an answer; nil: discarded.
	Tell func(note string)
	// Track returns a progress display for long work; nil: none.
	Track func(Work) Progress

	// Files opens a file that a question names; nil: the files of this machine. A question of somebody else MUST have its
	// own, so that it reads no file of the server.
	Files func(name string) (io.ReadCloser, error)

	// Clocked is set once an answer used the time at which it was asked.
	Clocked bool
	// Lacks is set once an answer used rows that lack events of the log, because partitions are
	// stopped.
	Lacks bool

	who    Principal // whose questions are answered; no scope: everyone's
	conn   *Conn     // nil: not open
	shared *Conn     // log and rows that somebody else holds open; nil: none
	kept   *answers
}

// clock returns the time of a question about the present.
func (s *App) clock() domain.Instant {
	s.Clocked = true
	return Now()
}

// cache returns the cache of answers.
func (s *App) cache() *answers {
	if s.kept == nil {
		s.kept = &answers{}
	}
	return s.kept
}

// Bucket has an archive or parts. It is implemented by adapters/bucket, which main joins, because the
// client of AWS is large.
type Bucket interface {
	archive.Store
	parts.Bucket
}

// bucket opens the bucket at an address. It returns nil for the address of something else.
func (s *App) bucket(ctx context.Context, address string) (Bucket, error) {
	if !strings.HasPrefix(address, "s3://") {
		return nil, nil
	}
	if s.OpenBucket == nil {
		return nil, fmt.Errorf("open %s: this program is without buckets", address)
	}
	return s.OpenBucket(ctx, address)
}

// Work describes a long-running task.
type Work struct {
	Name  string // for example "fold"
	Total int64  // in units
	Unit  string // for example "events"
	Slow  bool   // each unit takes long, so a progress bar is useful even for a few
}

// Progress receives how much work is done, and when it has ended. Set may be called from several
// goroutines.
type Progress interface {
	// Set reports how many units are done.
	Set(done int64)
	// Stop reports that the work has ended, successfully or not.
	Stop()
}

type untracked struct{}

func (untracked) Set(int64) {}
func (untracked) Stop()     {}

// track starts the progress display of work.
func (s *App) track(w Work) Progress {
	if s.Track == nil {
		return untracked{}
	}
	return s.Track(w)
}

// follow reports done() to p ten times a second, until the returned function is called.
func follow(p Progress, done func() int64) (stop func()) {
	if _, nobody := p.(untracked); nobody {
		return func() {}
	}
	return every(100*time.Millisecond, func() { p.Set(done()) })
}

// tell passes a note to the user.
func (s *App) tell(format string, args ...any) {
	if s.Tell != nil {
		s.Tell(fmt.Sprintf(format, args...))
	}
}

// SayEvery is how often progress is reported where there is no terminal.
const SayEvery = 10 * time.Second

// still reports at intervals that work of unknown length goes on, until the returned function is
// called.
func (s *App) still(what string) (stop func()) {
	start := time.Now()
	return every(SayEvery, func() { s.tell("%s for %s", what, time.Since(start).Round(time.Second)) })
}

// every calls do at intervals until the returned function is called.
func every(pause time.Duration, do func()) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(pause)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				do()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

// Place names the location of the log for people: configuration file, brokers or data directory.
func (s *App) Place() string {
	switch {
	case s.Config != nil:
		return s.ConfigPath
	case len(s.Brokers) > 0:
		return strings.Join(s.Brokers, ",")
	default:
		return s.Dir
	}
}
