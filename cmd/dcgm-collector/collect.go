//go:build cgo && linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
	"golang.org/x/sys/unix"

	frames "quartermaster/adapters/dcgm"
	"quartermaster/domain"
)

// stopWithin is how long DCGM may take to shut down.
const stopWithin = 2 * time.Second

// collector is one run. Everything except heartbeats happens in one goroutine, because DCGM
// serializes its calls anyway. The one exception is askRecovery, which does not always wait for its
// call.
type collector struct {
	cfg    Config
	engine frames.Engine // the one in use
	tried  []Attempt
	out    *frames.Writer
	lib    *loaded
	calls  calls

	inventory       frames.Inventory
	machine         machine                    // DCGM's names of the devices of the inventory
	cut             []dcgm.MigHierarchyInfo_v2 // MIG partitioning of the GPUs
	known           string                     // fingerprint of the data that the inventory was made from
	groups          []*group
	handles         handles
	health          *watchedHealth
	links           frames.Group // state of NVLinks, as in Hello
	xids            *xidReader
	states          *states
	suspects        map[entity]bool   // GPUs whose values indicate that they are lost
	reported        map[string]string // reported troubles, by subject
	pendingRecovery chan error        // receives the answer of a late recovery query; nil if none is pending
}

func newCollector(cfg Config, out io.Writer) *collector {
	return &collector{
		cfg:      cfg,
		out:      frames.NewWriter(out),
		states:   newStates(),
		xids:     newXIDReader(cfg.Since, now()),
		health:   &watchedHealth{active: map[incidentKey]frames.Event{}},
		suspects: map[entity]bool{},
		reported: map[string]string{},
	}
}

// calls tracks the current call of DCGM. The heartbeat reads it.
type calls struct {
	mu       sync.Mutex
	name     string
	began    time.Duration // boot clock
	answered atomic.Uint64
}

// do makes a call of DCGM.
func (c *calls) do(name string, f func() error) error {
	c.mu.Lock()
	c.name, c.began = name, bootClock()
	c.mu.Unlock()
	err := f()
	c.mu.Lock()
	c.name = ""
	c.mu.Unlock()
	c.answered.Add(1)
	return err
}

func (c *calls) heartbeat() *frames.Heartbeat {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &frames.Heartbeat{Call: c.name, Answered: c.answered.Load()}
	if c.name != "" {
		h.Waiting = bootClock() - c.began
	}
	return h
}

func bootClock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func frame(b frames.Body) frames.Frame {
	return frames.Frame{At: domain.InstantOf(time.Now()), Boot: bootClock(), Body: b}
}

// send writes a frame. If the reader is gone there is nothing left to do, and the thread that calls
// DCGM may hang, so the process ends.
func (c *collector) send(b frames.Body) error {
	if err := c.out.Write(frame(b)); err != nil {
		return fmt.Errorf("%w: %v", errOutput, err)
	}
	return nil
}

// collect runs until it is told to end, or cannot continue.
func collect(ctx context.Context, cfg Config, stdout *os.File, stderr io.Writer) error {
	c := newCollector(cfg, stdout)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := c.run(ctx)
		if f := (*fatal)(nil); errors.As(err, &f) {
			if said := c.send(&f.Trouble); said != nil {
				err = said
			}
		}
		done <- err
	}()
	beat := time.NewTicker(cfg.Heartbeat)
	defer beat.Stop()
	var end <-chan time.Time
	stop := ctx.Done()
	for {
		select {
		case err := <-done:
			return err
		case <-beat.C:
			if err := c.send(c.calls.heartbeat()); err != nil {
				return err
			}
		case <-stop:
			stop, end = nil, time.After(stopWithin)
		case <-end:
			h := c.calls.heartbeat()
			fmt.Fprintf(stderr, "dcgm-collector: DCGM has not answered %q for %v: ending without it\n",
				h.Call, h.Waiting.Round(time.Millisecond))
			return nil
		}
	}
}

func (c *collector) run(ctx context.Context) error {
	stop, err := c.open()
	if err != nil {
		return err
	}
	defer stop()
	hello, err := c.hello()
	if err != nil {
		return err
	}
	if err := c.send(hello); err != nil {
		return err
	}
	// An engine that exists but is not used contends with this one for the GPUs.
	for _, a := range c.tried {
		if a.Reason == "" || a.Result == engineAbsent {
			continue
		}
		if err := c.send(&frames.Trouble{Code: frames.TroubleEngine, Text: a.Engine + ": " + a.text()}); err != nil {
			return err
		}
	}
	// The memory used for starting is garbage now.
	debug.FreeOSMemory()
	tick := time.NewTicker(c.cfg.Every)
	defer tick.Stop()
	last := map[time.Duration]time.Time{}
	due := func(every time.Duration, now time.Time) bool {
		// Half a tick early counts as on time, so that jitter does not skip a turn.
		if t, ok := last[every]; ok && now.Sub(t) < every-c.cfg.Every/2 {
			return false
		}
		last[every] = now
		return true
	}
	for {
		now := time.Now()
		medium, slow := due(c.cfg.Medium, now), due(c.cfg.Slow, now)
		if err := c.turn(medium, slow); err != nil {
			return err
		}
		if slow {
			if err := c.lookForEngine(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// open starts DCGM or attaches to it.
func (c *collector) open() (stop func(), err error) {
	var l *loaded
	if err := c.calls.do("load", func() (err error) { l, err = load(); return }); err != nil {
		return nil, err
	}
	c.lib = l
	auto := c.cfg.Engine.Kind == frames.EngineAuto
	for _, e := range candidates(c.cfg.Engine) {
		if auto {
			if result, reason := skipReason(e); result != "" {
				c.tried = append(c.tried, Attempt{e.String(), result, reason})
				continue
			}
		}
		err := c.calls.do("start", func() (err error) {
			switch e.Kind {
			case frames.EngineUnix:
				_, err = dcgm.Init(dcgm.Standalone, e.Address, "1")
			case frames.EngineTCP:
				_, err = dcgm.Init(dcgm.Standalone, e.Address, "0")
			default:
				_, err = dcgm.Init(dcgm.Embedded)
			}
			return err
		})
		if err != nil {
			err = c.notStarted(err, e)
			c.tried = append(c.tried, Attempt{e.String(), engineFailed, err.Error()})
			if auto && e.Kind != frames.EngineEmbedded {
				continue
			}
			return nil, err
		}
		a := Attempt{Engine: e.String(), Result: engineUsed}
		if e.Remote() {
			a.Reason = "and it may be on another machine: DCGM's connections are neither encrypted nor authenticated, " +
				"and its GPUs are assumed to be this node's"
		}
		c.engine, c.tried = e, append(c.tried, a)
		break
	}
	return func() {
		_ = c.calls.do("stop", dcgm.Shutdown)
	}, nil
}

// lookForEngine ends a run in which auto embedded DCGM, once an nv-hostengine has started or
// restarted. The next run attaches to it, because two engines on one node contend for the profiling
// counters. An engine that was there and failed is ignored until it has been away, so that it does
// not end run after run.
func (c *collector) lookForEngine() error {
	if c.cfg.Engine.Kind != frames.EngineAuto || c.engine.Kind != frames.EngineEmbedded {
		return nil
	}
	for i, e := range candidates(c.cfg.Engine) { // tried has an attempt for each candidate
		if e.Kind == frames.EngineEmbedded {
			break
		}
		if result, reason := skipReason(e); result != "" {
			c.tried[i] = Attempt{e.String(), result, reason}
		} else if c.tried[i].Result != engineFailed {
			return newFatal(frames.TroubleConnection,
				"an nv-hostengine is at %s now: attaching to it instead of embedding DCGM", e)
		}
	}
	return nil
}

func (c *collector) notStarted(err error, e frames.Engine) error {
	code := c.lib.code(err)
	what := "embed DCGM"
	if e.Kind != frames.EngineEmbedded {
		what = "attach to the nv-hostengine at " + e.String()
	}
	var f *fatal
	switch code {
	case stNoPermission, stRequiresRoot:
		f = newFatal(frames.TroublePermission, "%s: no permission: give this user the right to open the socket and /dev/nvidia*", what)
	case stVersionMismatch:
		f = newFatal(frames.TroubleVersion, "%s: the engine and %s (DCGM %s) are of versions that do not fit: install one",
			what, library, c.lib.version)
	case stNoLibrary, stNVMLNotLoaded:
		f = newFatal(frames.TroubleDriver, "%s: NVIDIA's driver is not loaded: nvidia-smi says why", what)
	case stDriverTimeout:
		f = newFatal(frames.TroubleDriver, "%s: NVIDIA's driver does not answer: the node needs a reboot", what)
	default:
		if e.Kind == frames.EngineUnix {
			if _, serr := os.Stat(e.Address); serr != nil {
				f = newFatal(frames.TroubleEngine, "%s: there is no such socket: start nvidia-dcgm.service, or give --engine embedded", what)
				break
			} else if unix.Access(e.Address, unix.W_OK) != nil {
				f = newFatal(frames.TroublePermission, "%s: no permission: give this user the right to write to the socket", what)
				break
			}
		}
		if e.Kind == frames.EngineTCP && code == stConnection {
			f = newFatal(frames.TroubleEngine, "%s: no engine answers: start nvidia-dcgm.service, or give --engine embedded", what)
			break
		}
		f = newFatal(frames.TroubleEngine, "%s: %v", what, err)
	}
	f.Returned = code
	return f
}

func (c *collector) hello() (*frames.Hello, error) {
	if err := c.takeInventory(true); err != nil {
		return nil, err
	}
	if len(c.inventory.Devices) == 0 {
		return nil, newFatal(frames.TroubleNoGPUs,
			"DCGM sees no GPUs: nvidia-smi -L says whether the driver does, and which this user may open")
	}
	c.links = frames.Group{Name: "links", Every: c.cfg.Slow, Works: true}
	if _, err := c.askLinks(); err != nil {
		c.links.Works, c.links.Reason, c.links.Code = false, err.Error(), c.lib.code(err)
		if err := c.trouble("links", err); err != nil {
			return nil, err
		}
	}
	if err := c.watch(); err != nil {
		return nil, err
	}
	c.tellLost(nil, true)
	host, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return &frames.Hello{
		Version: frames.Version, Program: programVersion(), Library: c.lib.version, Driver: c.machine.driver,
		Hostname: host, BootID: strings.TrimSpace(string(boot)), Engine: c.engine.String(),
		Inventory: c.inventory, Groups: c.groupsSaid(),
	}, nil
}

func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// turn runs every second. It reads and reports XIDs first, because they are the most urgent, and a
// driver that reported one may hang in the next call.
func (c *collector) turn(medium, slow bool) error {
	xids, err := c.xids.read(c)
	if err != nil {
		return err
	}
	// Send events now and then even if there are none, so that a reader knows the cursor.
	if err := c.sendEvents(xids, medium); err != nil {
		return err
	}
	if err := c.awaitRecovery(); err != nil {
		return err
	}
	readings, suspect, err := c.read(medium, slow)
	if err != nil {
		return err
	}
	if err := c.sendEvents(nil, false); err != nil {
		return err
	}
	if len(readings.Readings) > 0 {
		if err := c.send(readings); err != nil {
			return err
		}
	}
	if slow {
		if err := c.checkHealth(); err != nil {
			return err
		}
		if err := c.checkLinks(); err != nil {
			return err
		}
		if err := c.sendEvents(nil, false); err != nil {
			return err
		}
	}
	if suspect || medium {
		return c.renew(suspect || slow)
	}
	return nil
}

// sendEvents sends XIDs and the pending events of states. If always is true, it also sends the
// cursor when there are no events.
func (c *collector) sendEvents(xids []frames.Event, always bool) error {
	e := &frames.Events{
		Generation: c.inventory.Generation,
		Events:     append(xids, c.states.take()...),
		Cursor:     c.xids.cursor,
	}
	if len(e.Events) == 0 && !always {
		return nil
	}
	return c.send(e)
}

// trouble reports a failure, once for as long as it lasts and stays the same. A nil err means that
// the subject works again. The result is an error that ends the run.
func (c *collector) trouble(about string, err error) error {
	if err == nil {
		delete(c.reported, about)
		return nil
	}
	if errors.Is(err, errOutput) {
		return err
	}
	code := c.lib.code(err)
	if code == stConnection {
		return newFatal(frames.TroubleConnection, "the nv-hostengine went away: %v", err)
	}
	if c.reported[about] == err.Error() {
		return nil
	}
	c.reported[about] = err.Error()
	return c.send(&frames.Trouble{
		Code: frames.TroubleCall, Text: fmt.Sprintf("%s: %v", about, err), Returned: code, Group: about,
	})
}

// check does the beginning of a run, and reads once.
func check(cfg Config) *Report {
	c := newCollector(cfg, io.Discard)
	r := &Report{}
	fill := func(err error) *Report {
		r.Engine, r.Tried = c.engine.String(), c.tried
		if c.lib != nil {
			r.Library, r.Path = c.lib.version, c.lib.path
		}
		if err != nil {
			r.Text, r.Exit = err.Error(), exitOf(err)
			if f := (*fatal)(nil); errors.As(err, &f) {
				r.Trouble = f.Code
			}
		}
		return r
	}
	type answer struct {
		h   *frames.Hello
		err error
	}
	done := make(chan answer, 1)
	go func() {
		stop, err := c.open()
		if err != nil {
			done <- answer{nil, err}
			return
		}
		defer stop()
		h, err := c.hello()
		done <- answer{h, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			return fill(a.err)
		}
		r.OK, r.Driver = true, a.h.Driver
		for _, d := range a.h.Inventory.Devices {
			id := d.UUID.String()
			if d.Parent != 0 {
				id = "MIG" + strings.TrimPrefix(id, "GPU")
			}
			r.Devices = append(r.Devices, ReportGPU{
				GPU: d.GPU, UUID: id, Model: d.Model, PCI: d.PCI, Profile: d.Profile, Lost: d.Lost,
			})
		}
		for _, g := range a.h.Groups {
			r.Groups = append(r.Groups, ReportGroup{Name: g.Name, Works: g.Works, Fields: g.Fields, Reason: g.Reason})
		}
		return fill(nil)
	case <-time.After(checkWithin):
		h := c.calls.heartbeat()
		r.Trouble, r.Exit = frames.TroubleDriver, exitDriver
		r.Text = fmt.Sprintf("DCGM has not answered %q for %v: the driver hangs, and the node may need a reboot",
			h.Call, checkWithin)
		return r
	}
}

// checkWithin is how long DCGM may take to answer check.
const checkWithin = 20 * time.Second
