package main

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"
)

// bar shows the progress of long work: on a terminal as a bar, elsewhere as a line
// every now and then.
type bar struct {
	progress *mpb.Progress
	bar      *mpb.Bar
	plain    *plainBar
}

// sayEvery is how often work says how far it is where there is no terminal.
const sayEvery = 10 * time.Second

// plainBar writes lines.
type plainBar struct {
	app        *app
	name, unit string
	total      int64
	start      time.Time
	said       time.Time
}

func (p *plainBar) set(done int64, now time.Time) {
	if now.Sub(p.said) < sayEvery {
		return
	}
	p.said = now
	rate := float64(done) / now.Sub(p.start).Seconds()
	left := "?"
	if rate > 0 {
		left = time.Duration(float64(max(0, p.total-done)) / rate * float64(time.Second)).Round(time.Second).String()
	}
	p.app.note("%s: %s of %s %s (%d %%), %s a second, %s left", p.name, comma(int(done)), comma(int(p.total)), p.unit,
		100*done/max(1, p.total), comma(int(rate)), left)
}

// worthABar is the least work that gets a bar; less is done before it is drawn.
const worthABar = 50_000

func (a *app) bar(name string, total int64, unit string) *bar {
	if total < worthABar {
		return &bar{}
	}
	return a.barAlways(name, total, unit)
}

// barAlways is bar for work of which each part takes long.
func (a *app) barAlways(name string, total int64, unit string) *bar {
	if a.quiet {
		return &bar{}
	}
	if !isTerminal(a.err) {
		start := time.Now()
		return &bar{plain: &plainBar{a, name, unit, total, start, start}}
	}
	p := mpb.New(mpb.WithOutput(a.err), mpb.WithWidth(40))
	return &bar{progress: p, bar: p.AddBar(total,
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(name+" "), decor.CountersNoUnit("%d / %d "+unit)),
		mpb.AppendDecorators(decor.Percentage(), decor.Name("  left "), decor.AverageETA(decor.ET_STYLE_GO)),
	)}
}

func (b *bar) set(done int64) {
	switch {
	case b.bar != nil:
		b.bar.SetCurrent(done)
	case b.plain != nil:
		b.plain.set(done, time.Now())
	}
}

// follow asks done ten times a second until the returned function is called.
func (b *bar) follow(done func() int64) (stop func()) {
	if b.bar == nil && b.plain == nil {
		return func() {}
	}
	return every(100*time.Millisecond, func() { b.set(done()) })
}

// still says every now and then that work of which nobody knows how much it is
// goes on, until the returned function is called.
func (a *app) still(what string) (stop func()) {
	start := time.Now()
	return every(sayEvery, func() { a.note("%s for %s", what, time.Since(start).Round(time.Second)) })
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

func (b *bar) stop() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.progress.Wait()
	}
}

// isTerminal reports whether there is a terminal with room for a bar; one without
// a size, such as a container's, shows none.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil && size.Col > 0
}

// table starts a table of plain lines.
func (a *app) table(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(a.out)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Format.Header = 0
	t.SetStyle(style)
	if len(header) > 0 {
		t.AppendHeader(header)
	}
	return t
}

// jsonLine writes one JSON document on a line of its own.
func (a *app) jsonLine(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// fields returns an event's JSON fields, each as text.
func fields(ev any) map[string]string {
	out := map[string]string{}
	b, err := json.Marshal(ev)
	if err != nil {
		return out
	}
	var raw map[string]json.RawMessage
	if json.Unmarshal(b, &raw) != nil {
		return out
	}
	for k, v := range raw {
		out[k] = string(v)
	}
	return out
}

// keysOf returns the keys of both maps, sorted.
func keysOf(a, b map[string]string) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
