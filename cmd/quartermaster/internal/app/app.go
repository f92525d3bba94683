package app

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"quartermaster/cmd/quartermaster/internal/config"
)

// App is where a log and its rows are, and how they are reached: an embedded log in a
// data directory, a Kafka cluster with rows in memory, or a configuration that names a
// Kafka cluster and a Postgres database. It is for one goroutine at a time.
type App struct {
	Dir     string   // data directory: the embedded log, snapshots, the first operator's key
	Named   bool     // somebody chose Dir
	Brokers []string // of a Kafka cluster that holds the log instead

	ConfigPath string
	Config     *config.Config // what ConfigPath says; nil without

	// Patience is how long the rows may stand still while somebody waits for them to catch
	// up with the log; 0: 10 s.
	Patience time.Duration
	Logger   *slog.Logger // of the connections to brokers; nil: they do not log

	// Tell is told what a person should know beside an answer; nil: nobody is.
	Tell func(note string)
	// Track follows long work; nil: nobody does.
	Track func(Work) Progress

	// Lacks is set once rows were read that lack events of the log, because partitions
	// stand still.
	Lacks bool

	conn    *Conn // open; nil: none is
	answers answers
}

// Work is work that takes long.
type Work struct {
	Name  string // for example "fold"
	Total int64  // in units
	Unit  string // for example "events"
	Slow  bool   // each unit takes long, so that a few are worth a bar
}

// Progress is told how far work is, and that it has ended. Work on several goroutines
// calls Set from each.
type Progress interface {
	// Set tells how many units are done.
	Set(done int64)
	// Stop tells that the work has ended, done or not.
	Stop()
}

type untracked struct{}

func (untracked) Set(int64) {}
func (untracked) Stop()     {}

// track begins to follow work.
func (s *App) track(w Work) Progress {
	if s.Track == nil {
		return untracked{}
	}
	return s.Track(w)
}

// follow tells p ten times a second how much is done, until the returned function is
// called.
func follow(p Progress, done func() int64) (stop func()) {
	if _, nobody := p.(untracked); nobody {
		return func() {}
	}
	return every(100*time.Millisecond, func() { p.Set(done()) })
}

// tell tells a person something beside the answer.
func (s *App) tell(format string, args ...any) {
	if s.Tell != nil {
		s.Tell(fmt.Sprintf(format, args...))
	}
}

// SayEvery is how often work says how far it is where there is no terminal.
const SayEvery = 10 * time.Second

// still says every now and then that work of which nobody knows how much it is
// goes on, until the returned function is called.
func (s *App) still(what string) (stop func()) {
	start := time.Now()
	return every(SayEvery, func() { s.tell("%s for %s", what, time.Since(start).Round(time.Second)) })
}

// every calls do now and then until the returned function is called.
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

// Place names the data directory, for people.
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
