package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"quartermaster/adapters/durable"
	"quartermaster/domain"
	"quartermaster/domain/long"
)

// books records what a spool promised, over all its lives.
type books struct {
	t     testing.TB
	given map[string]string // content by place of everything that was delivered
	lost  map[string]bool
	clock domain.Instant
	last  map[string]uint64 // the greatest sequence handed out
	// shards are those of the keys of incarnations.
	shards map[uint64]int
}

func newBooks(t testing.TB) *books {
	return &books{t: t, given: map[string]string{}, lost: map[string]bool{}, last: map[string]uint64{}, shards: map[uint64]int{}, clock: domain.Hour}
}

func key(queue string, incarnation, sequence uint64) string {
	return fmt.Sprintf("%s/%d/%d", queue, incarnation, sequence)
}

func rules(segment int) []Rule {
	return []Rule{{Name: "faults", Keep: true, Segment: segment}, {Name: "samples", Segment: segment}}
}

func open(t testing.TB, d disk, quota int64, segment int, change ...func(*Config)) *Spool {
	t.Helper()
	cfg := Config{Source: "node-reporter/lab/n1", Incarnation: 1, Queues: rules(segment), Quota: quota, disk: d}
	for _, f := range change {
		f(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put appends an event whose content is its place.
func (b *books) put(q *Queue, size int) (k, content string, err error) {
	b.clock += domain.Second
	err = q.Append(domain.Interval{From: b.clock, To: b.clock + domain.Second}, func(p Place) ([]byte, error) {
		k = key(q.rule.Name, p.Incarnation, p.Sequence)
		content = fmt.Sprintf("%s at %d after %d/%d ", k, b.clock, p.PreviousIncarnation, p.PreviousSequence)
		content += string(bytes.Repeat([]byte{'x'}, size))
		if before := b.last[fmt.Sprintf("%s/%d", q.rule.Name, p.PreviousIncarnation)]; p.Sequence == 1 && before > p.PreviousSequence {
			b.t.Errorf("%s names %d/%d as the last before it, but %d was handed out", k, p.PreviousIncarnation, p.PreviousSequence, before)
		}
		if of, ok := b.shards[p.Incarnation]; ok && of != p.Shards {
			b.t.Errorf("%s has keys of %d shards, an earlier event of its incarnation of %d", k, p.Shards, of)
		}
		b.shards[p.Incarnation] = p.Shards
		if of, ok := b.shards[p.PreviousIncarnation]; ok && max(1, of) != max(1, p.Shards) {
			b.t.Errorf("%s has keys of %d shards, and is linked to an incarnation of %d", k, p.Shards, of)
		}
		return []byte(content), nil
	})
	return k, content, err
}

// take delivers one batch.
func (b *books) take(q *Queue, records int) (n int, err error) {
	batch, err := q.Next(records, 1<<20)
	if err != nil {
		return 0, err
	}
	for _, e := range batch.Entries {
		k := key(q.rule.Name, e.Incarnation, e.Sequence)
		if was, ok := b.given[k]; ok && was != string(e.Data) {
			b.t.Errorf("%s was %q and is %q", k, was, e.Data)
		}
		b.given[k] = string(e.Data)
		life := fmt.Sprintf("%s/%d", q.rule.Name, e.Incarnation)
		b.last[life] = max(b.last[life], e.Sequence)
	}
	if len(batch.Entries) == 0 {
		return 0, b.hear(q)
	}
	if err := q.Done(batch); err != nil {
		return 0, err
	}
	return len(batch.Entries), b.hear(q)
}

// hear records losses.
func (b *books) hear(q *Queue) error {
	losses := q.Losses()
	for _, l := range losses {
		for n := l.From; n <= l.To; n++ {
			b.lost[key(q.rule.Name, l.Incarnation, n)] = true
		}
	}
	for _, l := range losses {
		if err := q.Said(l); err != nil {
			return err
		}
	}
	return nil
}

func (b *books) drain(q *Queue) {
	b.t.Helper()
	for {
		n, err := b.take(q, 7)
		if err != nil {
			b.t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

func TestRoundTrip(t *testing.T) {
	d := newMemory()
	b := newBooks(t)
	want := map[string]string{}
	for life := range 3 {
		s := open(t, d, 1<<20, 500)
		if got, least := s.Incarnation(), uint64(life+1); got < least {
			t.Fatalf("life %d has incarnation %d", life, got)
		}
		for i := range 10 {
			for _, name := range []string{"faults", "samples"} {
				k, content, err := b.put(s.Queue(name), 50*i)
				if err != nil {
					t.Fatal(err)
				}
				want[k] = content
			}
		}
		if batch, err := s.Queue("samples").Next(100, 1<<20); err != nil {
			t.Fatal(err)
		} else if life == 0 && len(batch.Entries) > 0 {
			t.Error("samples are delivered before they are on disk")
		}
		if err := s.Queue("samples").Sync(); err != nil {
			t.Fatal(err)
		}
		if life == 1 {
			b.drain(s.Queue("faults"))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, d, 1<<20, 500)
	b.drain(s.Queue("faults"))
	b.drain(s.Queue("samples"))
	for k, content := range want {
		if b.given[k] != content {
			t.Errorf("%s came back as %q", k, b.given[k])
		}
	}
	if len(b.given) != len(want) || len(b.lost) > 0 {
		t.Errorf("%d came back of %d, %d are reported lost", len(b.given), len(want), len(b.lost))
	}
	for _, q := range s.queues {
		if st := q.Stats(); st.Waiting != 0 || st.Bytes != 0 {
			t.Errorf("%s: %+v after everything was delivered", q.rule.Name, st)
		}
	}
}

// The power fails at random points of a random life, again and again, on a disk that is sometimes
// full and sometimes fails. No accepted event may be missing.
func TestPowerFailures(t *testing.T) {
	trials := long.Count(300, 20_000)
	lives, faults := 0, 0
	for seed := range trials {
		rng := rand.New(rand.NewPCG(uint64(seed), 6))
		d := newMemory()
		b := newBooks(t)
		accepted := map[string]string{}
		tight := rng.IntN(3) == 0
		for range 1 + rng.IntN(5) {
			lives++
			d.after = -1
			d.room = -1
			cfg := Config{Source: "s", Incarnation: 1, Queues: rules(300), Quota: 6000, Held: 8, disk: d}
			if tight {
				cfg.Reserve = 500
			}
			if rng.IntN(8) > 0 {
				d.after = rng.IntN(400)
			}
			s, err := Open(cfg)
			for err == nil && d.after != 0 {
				q := s.Queue([]string{"faults", "samples"}[rng.IntN(2)])
				switch rng.IntN(10) {
				case 0, 1, 2, 3:
					k, content, err := b.put(q, rng.IntN(80))
					if err == nil && q.rule.Keep {
						accepted[k] = content
						faults++
					}
					if err == nil && !q.rule.Keep && rng.IntN(2) == 0 && q.Sync() == nil {
						accepted[k] = content
					}
				case 4:
					_ = q.Sync()
				case 5, 6:
					_, _ = b.take(q, 1+rng.IntN(4))
				case 7:
					d.failing = rng.IntN(3)
				case 8:
					if tight {
						d.room = d.used() + int64(rng.IntN(300))
					}
				case 9:
					d.room = -1
					_ = s.Reshard([]int{1, 4, 8}[rng.IntN(3)], uint64(rng.IntN(20)))
				}
				if d.after < 0 && rng.IntN(60) == 0 {
					break
				}
			}
			if s != nil && d.after < 0 && rng.IntN(2) == 0 {
				d.room, d.failing = -1, 0
				if err := s.Close(); err != nil && !errors.Is(err, ErrHeld) {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			d = d.off(rng)
		}
		d.room = -1
		s := open(t, d, 6000, 300)
		for _, q := range s.queues {
			b.drain(q)
		}
		// A loss at the end is found once another event follows.
		for _, q := range s.queues {
			if _, _, err := b.put(q, 1); err != nil {
				t.Fatal(err)
			}
			if err := q.Sync(); err != nil {
				t.Fatal(err)
			}
			b.drain(q)
		}
		for k, content := range accepted {
			switch {
			case b.given[k] == content:
			case b.given[k] != "":
				t.Errorf("seed %d: %s came back as %q, was %q", seed, k, b.given[k], content)
			case k[0] == 'f':
				t.Errorf("seed %d: %s was accepted but never delivered (lost: %v)", seed, k, b.lost[k])
			case !b.lost[k]:
				t.Errorf("seed %d: %s was neither delivered nor reported lost", seed, k)
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d lives, %d faults accepted", lives, faults)
}

// A segment is truncated at every byte. Events before the cut come back. The rest was never
// accepted, and is not reported lost.
func TestTornAtEveryByte(t *testing.T) {
	whole := newMemory()
	s := open(t, whole, 1<<20, 1<<20)
	b := newBooks(t)
	var ends []int64
	for i := range 6 {
		if _, _, err := b.put(s.Queue("faults"), 13*i); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, s.queues[0].segments[0].size)
	}
	name := whole.segments("faults")[0]
	size := len(whole.files[name].data)
	for cut := range size {
		d := whole.off(rand.New(rand.NewPCG(1, 1)))
		f := d.files[name]
		f.data = f.data[:cut]
		if cut%2 == 0 && cut > 0 {
			f.data = append(f.data, make([]byte, 50)...) // the size was stored before the data
		}
		s := open(t, d, 1<<20, 1<<20)
		b := newBooks(t)
		b.drain(s.Queue("faults"))
		want := 0
		for _, e := range ends {
			if int64(cut) >= e {
				want++
			}
		}
		if len(b.given) != want {
			t.Fatalf("cut at %d of %d: %d came back, want %d", cut, size, len(b.given), want)
		}
		k, _, err := b.put(s.Queue("faults"), 3)
		if err != nil {
			t.Fatal(err)
		}
		b.drain(s.Queue("faults"))
		if b.given[k] == "" {
			t.Fatalf("cut at %d: later events did not come back", cut)
		}
		if len(b.lost) > 0 {
			t.Fatalf("cut at %d: %v is reported lost, but was never accepted", cut, b.lost)
		}
	}
}

// A random bit flips. The event that it touches is reported lost, all others come back.
func TestBitFlips(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 7))
		d := newMemory()
		b := newBooks(t)
		want := map[string]string{}
		lives := 1 + rng.IntN(3)
		for range lives {
			s := open(t, d, 1<<20, 600)
			for range 1 + rng.IntN(12) {
				k, content, err := b.put(s.Queue("faults"), rng.IntN(100))
				if err != nil {
					t.Fatal(err)
				}
				want[k] = content
			}
			if rng.IntN(2) == 0 {
				if err := s.Close(); err != nil && !errors.Is(err, ErrHeld) {
					t.Fatal(err)
				}
			}
		}
		names := append(d.segments("faults"), "faults/"+stateName)
		name := names[rng.IntN(len(names))]
		data := d.files[name].data
		bit := rng.IntN(8 * len(data))
		data[bit/8] ^= 1 << (bit % 8)

		s := open(t, d, 1<<20, 600)
		b.drain(s.Queue("faults"))
		k, content, err := b.put(s.Queue("faults"), 5)
		if err != nil {
			t.Fatal(err)
		}
		want[k] = content
		b.drain(s.Queue("faults"))
		missing := 0
		for k, content := range want {
			switch {
			case b.given[k] == content && b.lost[k]:
				t.Errorf("seed %d: %s came back but is reported lost", seed, k)
			case b.given[k] == content:
			case b.given[k] != "":
				t.Errorf("seed %d: %s came back as %q", seed, k, b.given[k])
			case !b.lost[k]:
				t.Errorf("seed %d: %s is missing but not reported lost (bit %d of %s)", seed, k, bit, name)
				missing++
			default:
				missing++
			}
		}
		for k := range b.lost {
			if want[k] == "" {
				t.Errorf("seed %d: %s is reported lost but was not", seed, k)
			}
		}
		if missing > 1 {
			t.Errorf("seed %d: one bit cost %d events", seed, missing)
		}
		if t.Failed() {
			return
		}
	}
}

// A segment that was removed by hand is a loss, and so is one that was truncated later.
func TestMissingSegment(t *testing.T) {
	d := newMemory()
	b := newBooks(t)
	s := open(t, d, 1<<20, 300)
	for range 20 {
		if _, _, err := b.put(s.Queue("faults"), 60); err != nil {
			t.Fatal(err)
		}
	}
	names := d.segments("faults")
	delete(d.files, names[2])
	d.files[names[4]].data = d.files[names[4]].data[:100]
	s = open(t, d, 1<<20, 300)
	b.drain(s.Queue("faults"))
	if len(b.given)+len(b.lost) != 20 || len(b.lost) == 0 {
		t.Errorf("%d came back and %d are reported lost, of 20", len(b.given), len(b.lost))
	}
}

// A segment that can no longer be read, at the start or later, is a reported loss, and the segments
// around it are delivered. A segment that this process may not open for now waits.
func TestUnreadableSegment(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		gone bool
	}{
		"input/output error": {syscall.EIO, true}, "removed": {fs.ErrNotExist, true}, "damaged file system": {errors.New("structure needs cleaning"), true},
		"too many files": {syscall.EMFILE, false}, "not allowed": {syscall.EACCES, false},
	} {
		for _, at := range []string{"start", "first", "middle", "half delivered"} {
			d := newMemory()
			b := newBooks(t)
			s := open(t, d, 1<<20, 500)
			q := s.Queue("faults")
			put := func(n int) {
				for range n {
					if _, _, err := b.put(q, 60); err != nil {
						t.Fatal(err)
					}
				}
			}
			put(20)
			names := d.segments("faults")
			bad := names[1]
			switch at {
			case "first":
				bad = names[0]
			case "half delivered":
				bad = names[0]
				if n, err := b.take(q, 1); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			}
			d.broken = map[string]error{bad: c.err}
			if at == "start" {
				again, err := Open(Config{Source: "node-reporter/lab/n1", Incarnation: 1, Queues: rules(500), Quota: 1 << 20, disk: d})
				if (err == nil) != c.gone {
					t.Errorf("%s at %s: %v", name, at, err)
				}
				if err != nil {
					continue
				}
				q = again.Queue("faults")
			}
			failures := 0
			for done := false; !done; {
				n, err := b.take(q, 7)
				if err != nil {
					failures++
				}
				done = err == nil && n == 0 || failures > 3*maxReadFailures
			}
			if !c.gone {
				if failures <= 3*maxReadFailures || len(b.lost) > 0 {
					t.Errorf("%s at %s: %d are reported lost after %d failures", name, at, len(b.lost), failures)
				}
				d.broken = nil
				b.drain(q)
				if len(b.given) != 20 {
					t.Errorf("%s at %s: %d came back once it could be read", name, at, len(b.given))
				}
				continue
			}
			put(1)
			b.drain(q)
			if len(b.given)+len(b.lost) != 21 || len(b.lost) == 0 || len(b.lost) > 4 {
				t.Errorf("%s at %s: %d came back and %d are reported lost, of 21", name, at, len(b.given), len(b.lost))
			}
			for k := range b.lost {
				if b.given[k] != "" {
					t.Errorf("%s at %s: %s was delivered but is reported lost", name, at, k)
				}
			}
			if st := q.Stats(); st.Waiting != 0 || st.Losses != uint64(len(b.lost)) {
				t.Errorf("%s at %s: %+v", name, at, st)
			}
		}
	}
}

// If the segment that is being written cannot be read, new events go to another one.
func TestUnreadableActiveSegment(t *testing.T) {
	d := newMemory()
	b := newBooks(t)
	s := open(t, d, 1<<20, 4000)
	q := s.Queue("faults")
	for range 3 {
		if _, _, err := b.put(q, 60); err != nil {
			t.Fatal(err)
		}
	}
	q.active = &unreadable{q.active}
	for range maxReadFailures - 1 {
		if _, err := b.take(q, 7); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
	}
	if _, err := b.take(q, 7); err != nil || len(b.lost) != 3 {
		t.Errorf("%d are reported lost: %v", len(b.lost), err)
	}
	k, content, err := b.put(q, 60)
	if err != nil {
		t.Fatal(err)
	}
	b.drain(q)
	if b.given[k] != content || len(b.given) != 1 || len(b.lost) != 3 {
		t.Errorf("%v, lost %v", b.given, b.lost)
	}
}

type unreadable struct{ file }

func (*unreadable) ReadAt([]byte, int64) (int, error) { return 0, syscall.EIO }

func TestQuotaDropsOldestSamples(t *testing.T) {
	d := newMemory()
	b := newBooks(t)
	s := open(t, d, 4000, 400)
	fault, _, err := b.put(s.Queue("faults"), 20)
	if err != nil {
		t.Fatal(err)
	}
	q := s.Queue("samples")
	for range 200 {
		if _, _, err := b.put(q, 50); err != nil {
			t.Fatal(err)
		}
		if err := q.Sync(); err != nil {
			t.Fatal(err)
		}
		if s.Bytes() > 4000 {
			t.Fatalf("%d bytes, above the quota", s.Bytes())
		}
	}
	losses := q.Losses()
	if len(losses) != 1 || losses[0].From != 1 || losses[0].Reason != Quota || losses[0].Incarnation != s.Incarnation() {
		t.Fatalf("lost %+v, want one run from 1", losses)
	}
	l := losses[0]
	if want := (domain.Interval{From: domain.Hour + 2*domain.Second, To: domain.Hour + domain.Instant(l.To+2)*domain.Second}); l.Covered != want {
		t.Errorf("covered %v, want %v", l.Covered, want)
	}
	// The power fails: the losses are still to be reported.
	s = open(t, d.off(rand.New(rand.NewPCG(3, 3))), 4000, 400)
	q = s.Queue("samples")
	if again := q.Losses(); !slices.Equal(again, losses) {
		t.Errorf("lost %+v after a restart, want %+v", again, losses)
	}
	b.drain(q)
	b.drain(s.Queue("faults"))
	if b.given[fault] == "" {
		t.Error("the fault was dropped")
	}
	for n := uint64(1); n <= 200; n++ {
		k := key("samples", l.Incarnation, n)
		if (b.given[k] != "") == b.lost[k] {
			t.Errorf("sample %d: delivered %v, lost %v", n, b.given[k] != "", b.lost[k])
		}
	}
}

// A loss grows after it was reported and before Said: the unreported part stays.
func TestSaidLeavesWhatWasLostSince(t *testing.T) {
	s := open(t, newMemory(), 4000, 400)
	q := s.Queue("samples")
	q.st.lose(Loss{Incarnation: 1, From: 1, To: 10, Covered: domain.Interval{From: 1, To: 11}, Reason: Quota})
	told := q.Losses()[0]
	q.st.lose(Loss{Incarnation: 1, From: 11, To: 15, Covered: domain.Interval{From: 11, To: 16}, Reason: Quota})
	if err := q.Said(told); err != nil {
		t.Fatal(err)
	}
	want := []Loss{{Incarnation: 1, From: 11, To: 15, Covered: domain.Interval{From: 11, To: 16}, Reason: Quota}}
	if got := q.Losses(); !slices.Equal(got, want) {
		t.Errorf("the rest is %+v, want %+v", got, want)
	}
	if err := q.Said(told); err != nil || !slices.Equal(q.Losses(), want) {
		t.Errorf("Said twice: %v, the rest is %+v", err, q.Losses())
	}
	if err := q.Said(want[0]); err != nil || len(q.Losses()) > 0 {
		t.Errorf("%v, the rest is %+v", err, q.Losses())
	}
}

// Events of a life with another source are delivered under that source's name.
func TestBatchNamesItsSource(t *testing.T) {
	d := newMemory()
	b := newBooks(t)
	s := open(t, d, 1<<20, 4000)
	if _, _, err := b.put(s.Queue("faults"), 20); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, d, 1<<20, 4000, func(c *Config) { c.Source = "node-reporter/other/n1" })
	q := s.Queue("faults")
	if _, _, err := b.put(q, 20); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"node-reporter/lab/n1", "node-reporter/other/n1"} {
		batch, err := q.Next(100, 1<<20)
		if err != nil || len(batch.Entries) != 1 || batch.Source != want {
			t.Fatalf("%d events of %q: %v, want one of %q", len(batch.Entries), batch.Source, err, want)
		}
		if err := q.Done(batch); err != nil {
			t.Fatal(err)
		}
	}
}

// Faults alone reach the quota. They are held in memory, then refused, and written once there is
// room, none missing and none repeated.
func TestFaultsAreNeverDropped(t *testing.T) {
	for name, c := range map[string]struct {
		quota   int64
		room    int64
		reserve int64
	}{
		"quota":             {quota: 2000, room: -1},
		"disk full":         {quota: 1 << 20, room: 2*slotBytes*2 + 2000},
		"disk full reserve": {quota: 1 << 20, room: 2*slotBytes*2 + 2000, reserve: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			d := newMemory()
			d.room = c.room
			b := newBooks(t)
			s := open(t, d, c.quota, 400, func(cfg *Config) { cfg.Held = 5; cfg.Reserve = c.reserve })
			q := s.Queue("faults")
			want := map[string]string{}
			held, refused := 0, 0
			for range 60 {
				k, content, err := b.put(q, 40)
				switch {
				case err == nil, errors.Is(err, ErrHeld):
					want[k] = content
					if err != nil {
						held++
					}
				case errors.Is(err, ErrFull):
					refused++
				default:
					t.Fatal(err)
				}
			}
			if held == 0 || refused == 0 {
				t.Errorf("%d held and %d refused of 60", held, refused)
			}
			if st := q.Stats(); st.Held != 5 {
				t.Errorf("%d are held, want 5", st.Held)
			}
			d.room = -1
			s.cfg.Quota = 1 << 20
			if err := q.Sync(); err != nil {
				t.Fatal(err)
			}
			b.drain(q)
			for k, content := range want {
				if b.given[k] != content {
					t.Errorf("%s came back as %q", k, b.given[k])
				}
			}
			if len(b.given) != len(want) || len(b.lost) > 0 {
				t.Errorf("%d came back of %d, %d reported lost", len(b.given), len(want), len(b.lost))
			}
		})
	}
}

// A disk that is full of samples makes room for a fault, even if the only segment of samples is the
// one being written.
func TestSamplesGiveWayToFaults(t *testing.T) {
	d := newMemory()
	b := newBooks(t)
	s := open(t, d, 1<<20, 100_000)
	for range 50 {
		if _, _, err := b.put(s.Queue("samples"), 50); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Queue("samples").Sync(); err != nil {
		t.Fatal(err)
	}
	d.room = d.used()
	k, content, err := b.put(s.Queue("faults"), 50)
	if err != nil {
		t.Fatal(err)
	}
	d.room = -1
	b.drain(s.Queue("faults"))
	b.drain(s.Queue("samples"))
	if b.given[k] != content || len(b.lost) != 50 {
		t.Errorf("the fault came back as %q, %d samples are reported lost", b.given[k], len(b.lost))
	}
}

// While the disk fails, samples are held, then the oldest are dropped and reported lost.
func TestFailingDisk(t *testing.T) {
	d := newMemory()
	b := newBooks(t)
	s := open(t, d, 1<<20, 400, func(cfg *Config) { cfg.Held = 10 })
	q := s.Queue("samples")
	put := func(n int) {
		for range n {
			if _, _, err := b.put(q, 20); err != nil {
				t.Fatal(err)
			}
			_ = q.Sync()
		}
	}
	put(3)
	d.failing = 1 << 20
	put(30)
	d.failing = 0
	put(2)
	b.drain(q)
	for n := uint64(1); n <= 35; n++ {
		k := key("samples", 1, n)
		if (b.given[k] != "") == b.lost[k] {
			t.Errorf("sample %d: delivered %v, lost %v", n, b.given[k] != "", b.lost[k])
		}
	}
	if len(b.lost) == 0 || len(b.lost) > 25 {
		t.Errorf("%d are lost", len(b.lost))
	}
}

// The folders of a new spool are durable before anything in them counts as stored.
func TestFoldersLast(t *testing.T) {
	usual := durable.Sync
	defer func() { durable.Sync = usual }()
	var synced []string
	durable.Sync = func(f *os.File) error {
		synced = append(synced, filepath.Base(f.Name()))
		return usual(f)
	}
	root := t.TempDir()
	for _, want := range [][]string{{filepath.Base(root), "new", "spool", "q"}, {"q"}} {
		synced = nil
		s, err := Open(Config{Dir: filepath.Join(root, "new", "spool"), Source: "s", Incarnation: 1, Quota: 1 << 20, Queues: []Rule{{Name: "q"}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(synced, want) {
			t.Errorf("synced %q, want %q", synced, want)
		}
	}
}

func TestAnotherSource(t *testing.T) {
	d := newMemory()
	b := newBooks(t)
	s := open(t, d, 1<<20, 400)
	if _, _, err := b.put(s.Queue("faults"), 1); err != nil {
		t.Fatal(err)
	}
	s = open(t, d, 1<<20, 400, func(cfg *Config) { cfg.Source = "node-reporter/lab/n2" })
	err := s.Queue("faults").Append(domain.Interval{From: 1, To: 2}, func(p Place) ([]byte, error) {
		if p.PreviousIncarnation != 0 || p.Incarnation != 2 {
			t.Errorf("%+v: linked to another source's life, or called alike", p)
		}
		return []byte("x"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Another number of shards begins an incarnation without a link, because its events go to other
// partitions. It lasts over a restart, and when the state is lost. Nothing that waits changes.
func TestReshard(t *testing.T) {
	d := newMemory()
	b := newBooks(t)
	var got []string
	put := func(s *Spool) {
		t.Helper()
		q := s.Queue("faults")
		if err := q.Append(domain.Interval{From: 1, To: 2}, func(p Place) ([]byte, error) {
			got = append(got, fmt.Sprintf("%d/%d after %d/%d of %d", p.Incarnation, p.Sequence, p.PreviousIncarnation, p.PreviousSequence, p.Shards))
			return []byte("x"), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	reshard := func(s *Spool, n int) {
		t.Helper()
		if err := s.Reshard(n, 1); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, d, 1<<20, 400)
	put(s)
	put(s)
	reshard(s, 8)
	put(s)
	reshard(s, 8) // as before
	put(s)
	s = open(t, d, 1<<20, 400)
	put(s)
	delete(d.files, "faults/"+stateName)
	s = open(t, d, 1<<20, 400)
	put(s)
	reshard(s, 4)
	reshard(s, 8) // nothing was sent with 4
	put(s)
	reshard(s, 1)
	put(s)
	want := []string{
		"1/1 after 0/0 of 0", "1/2 after 0/0 of 0", "2/1 after 0/0 of 8", "2/2 after 0/0 of 8",
		"3/1 after 2/2 of 8", "4/1 after 3/1 of 8", "6/1 after 4/1 of 8", "7/1 after 0/0 of 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	b.drain(s.Queue("faults"))
	if len(b.given) != len(want) || len(b.lost) > 0 {
		t.Errorf("%d events of %d are delivered, %v are lost", len(b.given), len(want), b.lost)
	}

	// What is in memory alone keeps its key: the number changes once the disk accepts it.
	d.room = d.used()
	if _, _, err := b.put(s.Queue("faults"), 1); !errors.Is(err, ErrHeld) {
		t.Fatal(err)
	}
	if err := s.Reshard(16, 1); !errors.Is(err, ErrHeld) || s.Shards() != 1 {
		t.Errorf("%v, and %d shards", err, s.Shards())
	}
	d.room = -1
	reshard(s, 16)
	if s.Shards() != 16 {
		t.Errorf("%d shards", s.Shards())
	}
}

func FuzzScan(f *testing.F) {
	var b []byte
	for i := range uint64(3) {
		b = appendFrame(b, frameMarker, 5, int64(len(b)), &Entry{Incarnation: 1, Sequence: i + 1, Data: []byte("data")})
	}
	f.Add(b, 0, byte(0))
	f.Add(b, 50, byte(1))
	f.Fuzz(func(t *testing.T, b []byte, at int, flip byte) {
		if len(b) > 0 {
			b = slices.Clone(b)
			b[((at%len(b))+len(b))%len(b)] ^= flip
		}
		covered := int64(0)
		scan(b, 5, 0, func(at int64, e Entry, size int64) bool {
			again := appendFrame(nil, frameMarker, 5, at, &e)
			if at < covered || !bytes.Equal(again, b[at:at+size]) {
				t.Fatalf("frame at %d is not what it says", at)
			}
			covered = at + size
			return true
		}, func(d damage) {
			if d.size <= 0 || d.offset < covered {
				t.Fatalf("damage %+v after %d", d, covered)
			}
		})
		var st state
		st.decode(append(b, make([]byte, slotBytes)...))
	})
}
