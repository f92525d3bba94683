package main

import (
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/dcgm"
	"quartermaster/domain"
)

// noon is yesterday's noon: reports about the distant past are not accepted.
var noon = domain.InstantOf(time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour))

func gpu(i uint32) dcgm.Device {
	return dcgm.Device{UUID: domain.DeriveGPUID("c", "n", int(i)), GPU: i, Model: "H100"}
}

// second is a frame of readings. Its boot clock is the given seconds after noon, and its wall clock
// is later by step.
func second(s int, step time.Duration, generation uint32, readings ...dcgm.Reading) (*dcgm.Frame, *dcgm.Readings) {
	f := &dcgm.Frame{At: noon + domain.Instant(s)*domain.Second + domain.Instant(step), Boot: time.Hour + time.Duration(s)*time.Second}
	return f, &dcgm.Readings{Generation: generation, Readings: readings}
}

func ok(device, field uint32, v float64) dcgm.Reading {
	return dcgm.Reading{Device: device, Field: field, Status: dcgm.StatusOK, Value: v}
}

var nobody = &holdings{}

// valid makes the event and checks that the log would accept it.
func valid(t *testing.T, r *reading, held *holdings) *domain.NodeSampled {
	t.Helper()
	if r == nil {
		t.Fatal("no sample")
	}
	e, _ := r.sample("c", "n", held, time.Millisecond)
	env := domain.Envelope{Source: "node-reporter/c/n", Incarnation: 1, Sequence: 1, Cluster: "c", Time: e.Interval.To, Event: e}
	if err := domain.Validate(&env); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestSample(t *testing.T) {
	s := newSampler("c", "n", 10*time.Second)
	s.inventory(&dcgm.Inventory{Generation: 1, Devices: []dcgm.Device{gpu(0), gpu(1)}}, noon)
	var done *reading
	for i := range 11 {
		f, r := second(i, 0, 1,
			ok(0, fieldSM, float64(i)/10), ok(0, fieldUtil, 99), ok(0, fieldPower, 100.4+float64(i)), ok(0, fieldMemory, 1000+float64(i)), ok(0, 202, 7),
			dcgm.Reading{Device: 1, Field: fieldSM, Status: dcgm.StatusBlank, Value: 1 << 47},
			ok(1, fieldPower, math.NaN()), ok(1, fieldTemperature, math.Inf(1)), ok(1, fieldSMClock, -1), ok(1, 310, 0), ok(1, 1009, 12))
		if done = s.readings(f, r); done != nil && i != 10 {
			t.Fatalf("an interval ended after %d seconds", i)
		}
	}
	e := valid(t, done, nobody)
	if e.Interval != (domain.Interval{From: noon, To: noon + 10*domain.Second}) || e.ActivityField != fieldSM || e.SkewNanos != 1e6 {
		t.Errorf("%+v", e)
	}
	for name, c := range map[string]struct{ got, want []uint32 }{
		"mean":        {e.ActivityMean, []uint32{451, 0}}, // 0.45, and blank
		"min":         {e.ActivityMin, []uint32{1, 0}},
		"max":         {e.ActivityMax, []uint32{901, 0}},
		"power":       {e.PowerWatts, []uint32{106, 0}}, // the mean of 100.4 to 109.4 is 104.9
		"memory":      {e.MemoryUsedMiB, []uint32{1010, 0}},
		"temperature": {e.TemperatureC, nil},
		"clock":       {e.SMClockMHz, nil},
		"tensor":      {e.TensorActive, nil},
		"entries":     {e.OtherEntry, []uint32{0, 1}},
		"fields":      {e.OtherField, []uint32{202, 1009}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s is %v, want %v", name, c.got, c.want)
		}
	}
	if e.Holder != nil || e.Replica != nil || e.Parent != nil {
		t.Errorf("columns that say nothing are there: %+v", e)
	}
}

// Without profiling, utilization in percent is used.
func TestActivityWithoutProfiling(t *testing.T) {
	s := newSampler("c", "n", time.Second)
	s.inventory(&dcgm.Inventory{Generation: 1, Devices: []dcgm.Device{gpu(0)}}, noon)
	f, r := second(0, 0, 1, ok(0, fieldUtil, 37))
	s.readings(f, r)
	f, r = second(1, 0, 1, ok(0, fieldUtil, 0))
	e := valid(t, s.readings(f, r), nobody)
	if e.ActivityField != fieldUtil || e.ActivityMean[0] != 371 {
		t.Errorf("%d: %v", e.ActivityField, e.ActivityMean)
	}
}

// For each device the best available field is used, so a device without profiling values is
// measured all the same.
func TestActivityOfEachDevice(t *testing.T) {
	s := newSampler("c", "n", time.Second)
	s.inventory(&dcgm.Inventory{Generation: 1, Devices: []dcgm.Device{gpu(0), gpu(1), gpu(2), gpu(3)}}, noon)
	all := []dcgm.Reading{ok(0, fieldSM, 0.5), ok(0, fieldUtil, 90), ok(1, fieldUtil, 37), ok(2, fieldEngine, 0.25), ok(2, fieldUtil, 99)}
	f, r := second(0, 0, 1, all...)
	s.readings(f, r)
	f, r = second(1, 0, 1, all...)
	e := valid(t, s.readings(f, r), nobody)
	if e.ActivityField != fieldSM || !slices.Equal(e.ActivityMean, []uint32{501, 371, 251, 0}) {
		t.Errorf("%d: %v", e.ActivityField, e.ActivityMean)
	}
}

// If the clock is set back or forward, the collector pauses, or the inventory changes, no sample
// claims time that was not observed.
func TestIntervalsAreHonest(t *testing.T) {
	for name, c := range map[string]struct {
		at    []int // seconds by the boot clock
		steps map[int]time.Duration
		want  []domain.Interval // seconds after noon
		set   int
	}{
		"steady":  {at: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, want: []domain.Interval{{From: 0, To: 5}, {From: 5, To: 10}}},
		"late":    {at: []int{3, 4, 5, 6}, want: []domain.Interval{{From: 3, To: 5}}},
		"paused":  {at: []int{0, 1, 2, 30, 31, 35}, want: []domain.Interval{{From: 0, To: 2}, {From: 30, To: 35}}},
		"back":    {at: []int{0, 1, 2, 3, 4, 5, 6, 7}, steps: map[int]time.Duration{3: -time.Hour}, want: []domain.Interval{{From: 0, To: 2}, {From: 3 - 3600, To: 5 - 3600}}, set: 1},
		"forward": {at: []int{0, 1, 2, 3, 4, 5, 6, 7}, steps: map[int]time.Duration{3: 100 * time.Second}, want: []domain.Interval{{From: 0, To: 2}, {From: 103, To: 105}}, set: 1},
		"slewed":  {at: []int{0, 1, 2, 3, 4, 5}, steps: map[int]time.Duration{3: 400 * time.Millisecond}, want: []domain.Interval{{From: 0, To: 5}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSampler("c", "n", 5*time.Second)
			s.inventory(&dcgm.Inventory{Generation: 1, Devices: []dcgm.Device{gpu(0)}}, noon)
			var got []domain.Interval
			step := time.Duration(0)
			for _, at := range c.at {
				step += c.steps[at]
				f, r := second(at, step, 1, ok(0, fieldSM, 0.5))
				if done := s.readings(f, r); done != nil {
					e := valid(t, done, nobody)
					got = append(got, domain.Interval{From: (e.Interval.From - noon) / domain.Second, To: (e.Interval.To - noon) / domain.Second})
				}
			}
			if !slices.Equal(got, c.want) || s.steps != c.set {
				t.Errorf("%v with %d steps, want %v with %d", got, s.steps, c.want, c.set)
			}
		})
	}
}

// If a GPU has more shares than fit into an event, the number of excluded ones is reported.
func TestExcluded(t *testing.T) {
	var logged strings.Builder
	cfg := &Config{Cluster: "c", Node: "n", Interval: time.Second}
	cfg.Spool = SpoolConfig{Dir: t.TempDir(), QuotaMiB: 1}
	r, err := openReporter(cfg, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.spool.Close()
	r.held.shares = map[place]uint32{{index: 0}: 4000, {index: 1}: 200}
	for s := range 3 {
		f, b := second(s, 0, 1, ok(0, fieldSM, 0.5))
		f.Body = b
		if s == 0 {
			if err := r.frame(t.Context(), dcgm.Frame{At: f.At, Boot: f.Boot, Body: &dcgm.Hello{Inventory: dcgm.Inventory{Generation: 1, Devices: []dcgm.Device{gpu(0), gpu(1)}}}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.frame(t.Context(), *f); err != nil {
			t.Fatal(err)
		}
	}
	if r.samples.Load() != 2 || r.failed.Load() != 0 {
		t.Errorf("%d samples, %d could not be made", r.samples.Load(), r.failed.Load())
	}
	if n := strings.Count(logged.String(), "excluded=104"); n != 1 || !slices.Contains(r.problems(), "104 devices and shares are not reported: a sample holds 4096") {
		t.Errorf("it is logged %d times, problems %q", n, r.problems())
	}
}

func TestInventoryChanges(t *testing.T) {
	s := newSampler("c", "n", 10*time.Second)
	s.inventory(&dcgm.Inventory{Generation: 1, Devices: []dcgm.Device{gpu(0), gpu(1)}}, noon)
	for i := range 3 {
		f, r := second(i, 0, 1, ok(0, fieldSM, 0.5), ok(1, fieldSM, 0.5))
		s.readings(f, r)
	}
	// GPU 0 is partitioned, GPU 1 falls off the bus.
	cut, lost := gpu(0), gpu(1)
	cut.MIG, lost.Lost = true, true
	mig := func(gi uint32, known bool) dcgm.Device {
		d := dcgm.Device{GPU: 0, Parent: 1, Profile: "1g.10gb", GPUInstance: gi}
		if known {
			d.UUID = domain.DeriveGPUID("mig", "n", int(gi))
		}
		return d
	}
	devices := []dcgm.Device{cut, mig(1, true), mig(2, false), mig(3, false), lost}
	before := valid(t, s.inventory(&dcgm.Inventory{Generation: 2, Devices: devices}, noon+3*domain.Second), nobody)
	if before.Entries() != 2 || before.Interval.To != noon+2*domain.Second {
		t.Errorf("before the change: %d entries until %s", before.Entries(), before.Interval.To)
	}
	// Readings of an earlier inventory belong to other devices, and are ignored.
	f, r := second(4, 0, 1, ok(0, fieldSM, 1), ok(1, fieldSM, 1))
	if done := s.readings(f, r); done != nil || len(s.sums) > 0 {
		t.Error("readings of another inventory were taken")
	}
	shares := &holdings{map[slot]holder{{devices[1].UUID, 2}: {"acme", "chat", "ns/pod"}}, map[domain.GPUID]uint32{devices[1].UUID: 2}, false}
	for i := 5; i <= 10; i++ {
		f, r := second(i, 0, 2, ok(1, fieldSM, 0.25), ok(2, fieldSM, 0.75))
		if done := s.readings(f, r); done != nil {
			e := valid(t, done, shares)
			if e.Entries() != 5 || len(e.Parents) != 16 || !slices.Equal(e.Parent, []uint32{1, 1, 1, 1, 0}) || !slices.Equal(e.Replica, []uint32{1, 2, 0, 0, 0}) {
				t.Errorf("%d entries, parents %v, replicas %v", e.Entries(), e.Parent, e.Replica)
			}
			if !slices.Equal(e.Holder, []uint32{0, 1, 0, 0, 0}) || e.Text(e.HolderUnit, 0) != "ns/pod" || e.Text(e.Profile, 2) != "1g.10gb" {
				t.Errorf("holders %v, %v", e.Holder, e.Strings)
			}
			if !slices.Equal(e.ActivityMean, []uint32{251, 251, 751, 0, 0}) {
				t.Errorf("activity %v: the lost GPU and the idle instance are blank", e.ActivityMean)
			}
			return
		}
	}
	t.Error("no sample after the change")
}

func TestPrintable(t *testing.T) {
	long := strings.Repeat("ä", 200)
	for text, want := range map[string]string{"": "", "pod": "pod", "a\nb\x00c": "a?b?c", "\xff": "?"} {
		if got := printable(text, 256); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	a, b := printable(long+"1", 256), printable(long+"2", 256)
	if len(a) > 256 || a == b {
		t.Errorf("%d bytes, alike: %v", len(a), a == b)
	}
}

func TestClockBound(t *testing.T) {
	at := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		kernel      time.Duration // 0: not synchronized
		sent, heard time.Duration // the node's clock minus the gateway's date
		answered    bool
		least, most time.Duration
	}{
		"nothing known":       {},
		"kernel":              {kernel: time.Millisecond, least: time.Millisecond, most: time.Millisecond},
		"gateway":             {sent: 100 * time.Millisecond, heard: 200 * time.Millisecond, answered: true, least: 900 * time.Millisecond, most: 900 * time.Millisecond},
		"both agree":          {kernel: time.Millisecond, sent: 0, heard: 200 * time.Millisecond, answered: true, least: time.Millisecond, most: time.Millisecond},
		"gateway contradicts": {kernel: time.Millisecond, sent: time.Hour, heard: time.Hour, answered: true, least: time.Hour, most: time.Hour},
		"behind":              {kernel: time.Millisecond, sent: -time.Hour, heard: -time.Hour, answered: true, least: time.Hour, most: time.Hour + time.Second},
	} {
		clk := newClock()
		clk.kernelKnows = func() (time.Duration, bool) { return c.kernel, c.kernel > 0 }
		if c.answered {
			clk.observe(at.Add(c.sent), at.Add(c.heard), at)
		}
		if got := clk.bound(); got < c.least || got > c.most {
			t.Errorf("%s: %s, want %s to %s", name, got, c.least, c.most)
		}
	}
}
