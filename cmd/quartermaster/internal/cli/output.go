package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/registry"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"
)

// bar shows the progress of long work: as a bar on a terminal, else as periodic lines.
type bar struct {
	progress *mpb.Progress
	bar      *mpb.Bar
	plain    *plainBar
}

// plainBar writes lines. It is safe for concurrent use.
type plainBar struct {
	app        *Program
	name, unit string
	total      int64
	start      time.Time

	mu   sync.Mutex
	said time.Time
}

func (p *plainBar) set(done int64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.said) < app.SayEvery {
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

// worthABar is the least work that gets a bar; smaller work is done too soon.
const worthABar = 50_000

// track shows the progress of work.
func (a *Program) track(w app.Work) app.Progress {
	if a.quiet || w.Total < worthABar && !w.Slow {
		return &bar{}
	}
	name, total, unit := w.Name, w.Total, w.Unit
	if !isTerminal(a.err) {
		start := time.Now()
		return &bar{plain: &plainBar{app: a, name: name, unit: unit, total: total, start: start, said: start}}
	}
	p := mpb.New(mpb.WithOutput(a.err), mpb.WithWidth(40))
	return &bar{progress: p, bar: p.AddBar(total,
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(name+" "), decor.CountersNoUnit("%d / %d "+unit)),
		mpb.AppendDecorators(decor.Percentage(), decor.Name("  left "), decor.AverageETA(decor.ET_STYLE_GO)),
	)}
}

// Set implements [app.Progress].
func (b *bar) Set(done int64) {
	switch {
	case b.bar != nil:
		b.bar.SetCurrent(done)
	case b.plain != nil:
		b.plain.set(done, time.Now())
	}
}

// Stop implements [app.Progress].
func (b *bar) Stop() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.progress.Wait()
	}
}

// isTerminal reports whether w is a terminal with a size. A terminal without a size, such as a
// container's, cannot show a bar.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil && size.Col > 0
}

// jsonLine writes one JSON document on a line of its own.
func (a *Program) jsonLine(v any) error { return WriteLine(a.out, v) }

// WriteLine writes one JSON document on a line of its own.
func WriteLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// jsonLines prints each value as a line of JSON.
func jsonLines[T any](a *Program, all []T) error {
	for i := range all {
		if err := a.jsonLine(&all[i]); err != nil {
			return err
		}
	}
	return nil
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

func clipped(name string) string { return domain.Clip(name, widest) }

// filtersText returns the given filters, for example " with --cluster lab".
func filtersText(workspace, cluster, region string) string {
	s := ""
	for _, f := range []struct{ flag, value string }{{"--workspace", workspace}, {"--cluster", cluster}, {"--region", region}} {
		if f.value != "" {
			s += " " + f.flag + " " + f.value
		}
	}
	if s != "" {
		s = " with" + s
	}
	return s
}

// showPosition shows the position of a report.
func (a *Program) showPosition(p string) { fmt.Fprintf(a.out, "position: %s\n", a.position(p)) }

// reportEnds shows under a table which program made it and what it may lack.
func (a *Program) reportEnds(c registry.Completeness) {
	a.showProgram()
	if note := c.Note(); note != "" {
		a.Lacks = true
		fmt.Fprintf(a.out, "%s: see \"quartermaster quarantine list\" and \"quartermaster log stats\"\n", note)
	}
}

// caller returns a caller with the rights of the user of the command.
func (a *Program) caller() *app.Caller { return a.For(app.Everyone) }

// asOfFlag adds --as-of, with which a command answers as of a point in the past.
func asOfFlag(cmd *cobra.Command, asOf *string) {
	cmd.Flags().StringVar(asOf, "as-of", "", "answer as of a position, a snapshot or a time; see \"quartermaster snapshot --help\" (default now)")
}

// widest bounds the characters of a name in a table. JSON has all.
const widest = 40

func comma(n int) string { return humanize.Comma(int64(n)) }

// day shows the date of an instant, "" for zero.
func day(t domain.Instant) string {
	if t == 0 {
		return ""
	}
	return t.Time().Format("2006-01-02")
}

// position shortens a position for display, except with -o wide.
func (a *Program) position(p string) string {
	if a.output == asWide {
		return p
	}
	return a.caller().ShortPosition(p)
}
