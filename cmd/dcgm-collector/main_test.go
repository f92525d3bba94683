//go:build cgo && linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	frames "quartermaster/adapters/dcgm"
	"quartermaster/adapters/dcgm/simdcgm"
	"quartermaster/domain/faults"
)

// The test binary is also the collector, so that the collector runs under the race detector, in its
// own process, with the library that the environment names.
func TestMain(m *testing.M) {
	if os.Getenv("QM_COLLECTOR") != "" {
		// Tests do not use engines of this machine.
		sockets, tcpAddress = nil, "127.0.0.1:1"
		if at := os.Getenv("QM_HOST_ENGINE"); at != "" {
			tcpAddress = at
		}
		main()
	}
	code := m.Run()
	if libraries.dir != "" {
		os.RemoveAll(libraries.dir)
	}
	os.Exit(code)
}

var libraries struct {
	sync.Mutex
	dir string
}

// simulated builds the simulated DCGM once, without the named functions.
func simulated(t testing.TB, without ...string) string {
	t.Helper()
	libraries.Lock()
	defer libraries.Unlock()
	if libraries.dir == "" {
		dir, err := os.MkdirTemp("", "collector")
		if err != nil {
			t.Fatal(err)
		}
		libraries.dir = dir
	}
	dir := filepath.Join(libraries.dir, strings.Join(append(without, "lib"), "-"))
	if _, err := os.Stat(filepath.Join(dir, simdcgm.Library)); err == nil {
		return dir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := simdcgm.Build(dir, without...); errors.Is(err, simdcgm.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return dir
}

func node(t testing.TB, scenario ...string) *simdcgm.Machine {
	t.Helper()
	m, err := simdcgm.NewMachine(simulated(t), t.TempDir(), scenario...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var quick = []string{"--every=100ms", "--medium=200ms", "--slow=400ms", "--heartbeat=50ms"}

func command(t testing.TB, env []string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, args...)
	c.Env = append(os.Environ(), append(env, "QM_COLLECTOR=1", "GODEBUG=cgocheck=1")...)
	return c
}

// written is what a program wrote so far.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// collecting is a running collector.
type collecting struct {
	t      testing.TB
	m      *simdcgm.Machine
	cmd    *exec.Cmd
	frames chan frames.Frame
	ended  chan struct{}
	err    error
	stderr written
	hello  *frames.Hello
	// What was received so far.
	inventory frames.Inventory
	readings  map[[2]uint32]frames.Reading // the last one by device and field
	events    []frames.Event
	troubles  []frames.Trouble
	cursor    int64
}

func start(t testing.TB, m *simdcgm.Machine, args ...string) *collecting {
	t.Helper()
	c := &collecting{t: t, m: m, cmd: command(t, m.Env(), append(slices.Clone(quick), args...)...), frames: make(chan frames.Frame),
		ended: make(chan struct{}), readings: map[[2]uint32]frames.Reading{}}
	c.cmd.Stderr = &c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := frames.NewReader(out)
	stop := make(chan struct{})
	go func() {
		defer close(c.ended)
		for {
			f, err := r.Next()
			if err != nil {
				if c.err = c.cmd.Wait(); !errors.Is(err, io.EOF) && c.err == nil {
					c.err = err
				}
				return
			}
			select {
			case c.frames <- f:
			case <-stop:
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		c.cmd.Process.Kill()
		<-c.ended
		if s := c.stderr.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "cgo argument") {
			t.Error(s)
		}
	})
	return c
}

// until reads frames until a condition holds. The timeout only stops a test that would wait for
// ever.
func (c *collecting) until(what string, seen func(frames.Body) bool) {
	c.t.Helper()
	end := time.After(30 * time.Second)
	for {
		select {
		case f := <-c.frames:
			switch b := f.Body.(type) {
			case *frames.Hello:
				c.hello, c.inventory = b, b.Inventory
			case *frames.Inventory:
				c.inventory = *b
				clear(c.readings)
			case *frames.Readings:
				for _, r := range b.Readings {
					c.readings[[2]uint32{r.Device, r.Field}] = r
				}
			case *frames.Events:
				c.cursor = b.Cursor
				for _, e := range b.Events {
					if !e.Found || e.Total > 0 || !faults.Lifetime(e.Field) { // a baseline of 0 is not news
						c.events = append(c.events, e)
					}
				}
			case *frames.Trouble:
				c.troubles = append(c.troubles, *b)
			}
			if seen(f.Body) {
				return
			}
		case <-c.ended:
			c.t.Fatalf("it ended before %s: %v\n%s\ntroubles %+v", what, c.err, c.stderr.String(), c.troubles)
		case <-end:
			c.t.Fatalf("never %s\nevents %+v\ntroubles %+v\n%s", what, c.events, c.troubles, c.stderr.String())
		}
	}
}

func (c *collecting) untilHello() {
	c.t.Helper()
	c.until("hello", func(frames.Body) bool { return c.hello != nil })
}

func (c *collecting) untilEvent(what string, match func(frames.Event) bool) frames.Event {
	c.t.Helper()
	if i := slices.IndexFunc(c.events, match); i >= 0 {
		return c.events[i]
	}
	c.until(what, func(frames.Body) bool { return slices.ContainsFunc(c.events, match) })
	return c.events[slices.IndexFunc(c.events, match)]
}

func (c *collecting) do(commands ...string) {
	c.t.Helper()
	if err := c.m.Do(commands...); err != nil {
		c.t.Fatal(err)
	}
}

// exit waits for the end and returns the exit code.
func (c *collecting) exit() int {
	c.t.Helper()
	end := time.After(30 * time.Second)
	for {
		select {
		case f := <-c.frames:
			if b, ok := f.Body.(*frames.Trouble); ok {
				c.troubles = append(c.troubles, *b)
			}
		case <-c.ended:
			return c.cmd.ProcessState.ExitCode()
		case <-end:
			c.t.Fatal("it does not end")
		}
	}
}

func xid(gpu, code uint32) func(frames.Event) bool {
	return func(e frames.Event) bool { return e.Kind == frames.KindXID && e.Device == gpu+1 && e.Code == code }
}

func TestReadings(t *testing.T) {
	c := start(t, node(t, "gpus 8", "seed 7", "load 0 40", "load 1 100", "minor 2 7", "minor 7 2"))
	minors := []uint32{0, 1, 7, 3, 4, 5, 6, 2}
	c.untilHello()
	h := c.hello
	if h.Library != "4.5.0" || h.Driver != "580.95.05" || h.BootID == "" || h.Hostname == "" || h.Engine != "embedded" || len(h.Inventory.Devices) != 8 {
		t.Errorf("hello %+v", h)
	}
	for i, d := range h.Inventory.Devices {
		if d.UUID.String() == "" || d.GPU != uint32(i) || d.Minor != minors[i]+1 || d.Model != "NVIDIA H100 80GB HBM3" || d.Serial == "" || d.PCI == "" || d.MemoryMiB != 81559 {
			t.Errorf("device %d: %+v", i, d)
		}
	}
	for _, g := range h.Groups {
		if !g.Works {
			t.Errorf("group %s: %s", g.Name, g.Reason)
		}
	}
	beats := 0
	c.until("everything once", func(b frames.Body) bool {
		if _, ok := b.(*frames.Heartbeat); ok {
			beats++
		}
		return beats > 1 && len(c.readings) == 8*(3+4+1+6+12+4)
	})
	for k, r := range c.readings {
		if r.Status != frames.StatusOK {
			t.Errorf("device %d field %d: %v", k[0], k[1], r.Status)
		}
	}
	for k, want := range map[[2]uint32]float64{{0, 203}: 40, {1, 203}: 100, {0, 1001}: 0.4, {1, 1002}: 0.9, {1, 155}: 670, {0, 150}: 47, {0, 1523}: 0} {
		if r := c.readings[k]; math.Abs(r.Value-want) > 1e-9 {
			t.Errorf("device %d field %d is %v, want %v", k[0], k[1], r.Value, want)
		}
	}
	if len(c.events) != 0 || len(c.troubles) != 0 {
		t.Errorf("events %+v, troubles %+v", c.events, c.troubles)
	}
	c.cmd.Process.Signal(syscall.SIGTERM)
	if code := c.exit(); code != 0 {
		t.Errorf("asked to end, it exits with %d", code)
	}
}

// Two XIDs at one moment, an unknown one, and one while the driver wants a reset: each is reported
// once.
func TestXIDs(t *testing.T) {
	c := start(t, node(t, "gpus 4"))
	c.untilHello()
	c.do("xid 3 79", "xid 3 13", "xid 0 9999", "xid 3 13")
	c.untilEvent("the unknown XID", xid(0, 9999))
	c.do("recovery 1 1", "xid 1 48")
	e := c.untilEvent("the XID with a recovery", xid(1, 48))
	if e.Recovery != 2 || e.UUID != c.inventory.Devices[1].UUID || e.Field != 230 || e.Found {
		t.Errorf("%+v", e)
	}
	r := c.untilEvent("the recovery", func(e frames.Event) bool { return e.Kind == frames.KindRecovery })
	if r.Code != 1 || r.Device != 2 || r.Field != 1523 || r.Over {
		t.Errorf("%+v", r)
	}
	c.do("recovery 1 0", "xid 2 31")
	c.untilEvent("the end", xid(2, 31))
	c.untilEvent("the end of the recovery", func(e frames.Event) bool { return e.Kind == frames.KindRecovery && e.Over && e.Code == 1 })
	got := map[string]int{}
	for _, e := range c.events {
		if e.Kind == frames.KindXID {
			got[fmt.Sprint(e.Device-1, " ", e.Code)]++
		}
	}
	want := map[string]int{"3 79": 1, "3 13": 2, "0 9999": 1, "1 48": 1, "2 31": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("XIDs %v, want %v", got, want)
	}
}

// A lost GPU makes DCGM refuse the events of all GPUs. The events of the others are still reported.
func TestLost(t *testing.T) {
	c := start(t, node(t, "gpus 4"))
	c.untilHello()
	uuid := c.inventory.Devices[2].UUID
	c.do("lost 2")
	e := c.untilEvent("lost", func(e frames.Event) bool { return e.Kind == frames.KindLost })
	if e.UUID != uuid || e.Over || e.Found || e.Device != 3 || e.Recovery != 0 {
		t.Errorf("%+v", e)
	}
	if d := c.inventory.Devices[2]; !d.Lost || d.UUID != uuid || d.Model == "" || c.inventory.Generation != 2 || c.inventory.Reason != "GPU 2 is lost" {
		t.Errorf("inventory %+v", c.inventory)
	}
	c.do("xid 3 31", "xid 0 13", "xid 2 79")
	c.untilEvent("the XID of another GPU", xid(3, 31))
	c.untilEvent("the XID of the first GPU", xid(0, 13))
	// The driver's recovery action from before the loss does not apply to it.
	if e := c.untilEvent("the XID of the lost GPU", xid(2, 79)); e.Recovery != 0 {
		t.Errorf("the driver is taken to want %d of a GPU that it does not reach", e.Recovery-1)
	}
	c.do("found 2")
	c.untilEvent("back", func(e frames.Event) bool { return e.Kind == frames.KindLost && e.Over })
	c.until("readings again", func(frames.Body) bool { return c.readings[[2]uint32{2, 203}].Status == frames.StatusOK })
	if n := len(c.events); n != 5 {
		t.Errorf("%d events: %+v", n, c.events)
	}
	for _, tr := range c.troubles {
		if tr.Fatal {
			t.Errorf("%+v", tr)
		}
	}
}

// A GPU that is lost before the run begins is reported as found.
func TestLostBefore(t *testing.T) {
	c := start(t, node(t, "gpus 2", "lost 1", "nvlink 0 4 down", "remap 0 pending 1", "remap 0 corrected 3", "retire 0 pending 1", "retire 0 uncorrectable 2"))
	c.untilEvent("lost", func(e frames.Event) bool { return e.Kind == frames.KindLost && e.Found && e.Device == 2 })
	c.untilEvent("link", func(e frames.Event) bool {
		return e.Kind == frames.KindNVLink && e.Found && e.Code == 4 && e.Device == 1
	})
	c.untilEvent("pending", func(e frames.Event) bool { return e.Kind == frames.KindRowRemap && e.Found && e.Field == 396 })
	c.untilEvent("to be retired", func(e frames.Event) bool { return e.Kind == frames.KindPageRetirement && e.Found && e.Field == 392 })
	c.untilEvent("retired", func(e frames.Event) bool { return e.Field == 391 && e.Found && e.Total == 2 })
	c.untilEvent("remapped", func(e frames.Event) bool { return e.Field == 394 && e.Found && e.Count == 3 && e.Total == 3 })
}

func TestMIG(t *testing.T) {
	c := start(t, node(t, "gpus 2", "mig 1 3 3 1", "minor 1 9"))
	c.untilHello()
	ds := c.inventory.Devices
	if len(ds) != 5 || !ds[1].MIG || ds[2].Parent != 2 || ds[2].Profile != "3g.40gb" || ds[4].Profile != "1g.10gb" || ds[4].Slices != 1 || ds[4].GPUInstance != 3 || ds[4].Minor != 10 {
		t.Fatalf("%+v", ds)
	}
	ids := map[string]bool{}
	for _, d := range ds {
		ids[d.UUID.String()] = true
	}
	if len(ids) != 5 {
		t.Errorf("UUIDs %v", ids)
	}
	c.until("activity of a MIG device", func(frames.Body) bool {
		return c.readings[[2]uint32{4, 1002}].Status == frames.StatusOK && c.readings[[2]uint32{4, 252}].Status == frames.StatusOK
	})
	if r := c.readings[[2]uint32{1, 203}]; r.Status != frames.StatusUnsupported || r.Value != 0 {
		t.Errorf("the utilization of a GPU in MIG mode: %+v", r)
	}
	c.do("xid 1 43 1")
	if e := c.untilEvent("the XID of a MIG device", func(e frames.Event) bool { return e.Kind == frames.KindXID && e.Code == 43 }); e.UUID != ds[3].UUID {
		t.Errorf("%+v", e)
	}
	c.do("mig 1 7")
	c.until("another cut", func(frames.Body) bool { return c.inventory.Generation == 2 })
	if n := c.inventory; len(n.Devices) != 3 || n.Devices[2].Profile != "7g.80gb" || n.Reason != "MIG of GPU 1 was configured anew" {
		t.Errorf("%+v", n)
	}
	// The same profiles after repartitioning are other devices.
	c.do("mig 1 7")
	c.until("the same cut anew", func(frames.Body) bool { return c.inventory.Generation == 3 })
	c.do("mig 1 off")
	c.until("no cut", func(frames.Body) bool { return c.inventory.Generation == 4 && len(c.inventory.Devices) == 2 })
	c.until("utilization of the GPU", func(frames.Body) bool { return c.readings[[2]uint32{1, 203}].Status == frames.StatusOK })
	if len(c.troubles) > 0 {
		t.Errorf("%+v", c.troubles)
	}
}

// Repartitioning with the same profiles is noticed without waiting for the slow turn, although the
// devices keep their numbers.
func TestCutAnewAlike(t *testing.T) {
	c := start(t, node(t, "gpus 2", "mig 1 3 4"), "--slow=1h")
	c.untilHello()
	before := slices.Clone(c.inventory.Devices)
	c.do("mig 1 3 4")
	c.until("another inventory", func(frames.Body) bool { return c.inventory.Generation == 2 })
	for i, d := range c.inventory.Devices {
		if same := d.UUID == before[i].UUID; same != (d.Parent == 0) || d.GPUInstance != before[i].GPUInstance {
			t.Errorf("device %d was %+v and is %+v", i, before[i], d)
		}
	}
	c.do("xid 1 31 1")
	e := c.untilEvent("an XID of a device of the new cut", func(e frames.Event) bool { return e.Code == 31 })
	if e.UUID != c.inventory.Devices[3].UUID {
		t.Errorf("%+v, devices %+v", e, c.inventory.Devices)
	}
}

// Two compute instances on one GPU instance are two devices that share readings. An instance
// without compute instances is not a device. A GPU in MIG mode without instances is a device
// itself, without utilization.
func TestMIGCorners(t *testing.T) {
	c := start(t, node(t, "gpus 2", "mig 1 3:2 2 1:0"))
	c.untilHello()
	ds := c.inventory.Devices
	if len(ds) != 5 || !ds[2].Shared || !ds[3].Shared || ds[4].Shared || ds[2].UUID == ds[3].UUID ||
		ds[2].GPUInstance != ds[3].GPUInstance || ds[2].ComputeInstance != 0 || ds[3].ComputeInstance != 1 || ds[4].ComputeInstance != 0 {
		t.Fatalf("%+v", ds)
	}
	c.until("activity of both", func(frames.Body) bool {
		return c.readings[[2]uint32{2, 1002}].Status == frames.StatusOK && c.readings[[2]uint32{3, 1002}].Status == frames.StatusOK
	})
	if c.readings[[2]uint32{2, 252}].Value != c.readings[[2]uint32{3, 252}].Value {
		t.Errorf("%+v", c.readings)
	}
	// Events of an instance with two devices belong to neither of them.
	c.do("xid 1 43 0", "xid 1 31 1")
	if e := c.untilEvent("the XID of the shared instance", func(e frames.Event) bool { return e.Code == 43 }); e.UUID != ds[1].UUID {
		t.Errorf("%+v", e)
	}
	if e := c.untilEvent("the XID of the other", func(e frames.Event) bool { return e.Code == 31 }); e.UUID != ds[4].UUID {
		t.Errorf("%+v", e)
	}
	c.do("mig 1 on")
	c.until("no instances", func(frames.Body) bool { return c.inventory.Generation == 2 && len(c.inventory.Devices) == 2 })
	if d := c.inventory.Devices[1]; !d.MIG || d.Lost || d.UUID != ds[1].UUID {
		t.Errorf("%+v", d)
	}
	c.until("what is left to read", func(frames.Body) bool {
		return c.readings[[2]uint32{1, 155}].Status == frames.StatusOK && c.readings[[2]uint32{1, 203}].Status != 0
	})
	if r := c.readings[[2]uint32{1, 203}]; r.Status != frames.StatusUnsupported || r.Value != 0 {
		t.Errorf("utilization %+v", r)
	}
	c.do("xid 1 79")
	c.untilEvent("an XID all the same", xid(1, 79))
	c.do("mig 1 7:7")
	c.until("seven on one", func(frames.Body) bool { return len(c.inventory.Devices) == 9 })
	if len(c.troubles) > 0 {
		t.Errorf("%+v", c.troubles)
	}
}

// DCGM has 64 groups. Repartitioning GPUs more often than that leaks none.
func TestGroupsAreFreed(t *testing.T) {
	c := start(t, node(t, "gpus 2"))
	c.untilHello()
	for i := range 40 {
		c.do(fmt.Sprintf("mig 1 %d", 1+i%7))
		c.until("another cut", func(frames.Body) bool { return c.inventory.Generation == uint32(i+2) })
	}
	c.do("xid 1 31")
	c.untilEvent("an XID after all", xid(1, 31))
	if len(c.troubles) > 0 {
		t.Errorf("%+v", c.troubles)
	}
}

// Each group fails on its own.
func TestGroupsDegrade(t *testing.T) {
	for _, s := range []struct {
		scenario string
		group    string
		code     int32
	}{
		{"profiling missing", "profiling", -33},
		{"profiling off", "profiling", -36},
		{"mismatch nvlink", "links", -12},
	} {
		t.Run(s.group+s.scenario, func(t *testing.T) {
			t.Parallel()
			c := start(t, node(t, "gpus 2", s.scenario))
			c.untilHello()
			for _, g := range c.hello.Groups {
				if g.Works == (g.Name == s.group) || !g.Works && (g.Reason == "" || g.Code != s.code) {
					t.Errorf("%+v", g)
				}
			}
			c.do("xid 1 79")
			c.untilEvent("an XID", xid(1, 79))
			c.until("a reading", func(frames.Body) bool { return c.readings[[2]uint32{1, 203}].Status == frames.StatusOK })
		})
	}
}

// No blank code of DCGM becomes a number, and other fields and devices still have values.
func TestNoNumbers(t *testing.T) {
	for code, want := range map[int]frames.Status{
		-6: frames.StatusUnsupported, -14: frames.StatusAbsent, -16: frames.StatusAbsent, -17: frames.StatusRefused, -3: frames.StatusFailed,
		-15: frames.StatusStale, 1: frames.StatusUnsupported, 2: frames.StatusStale,
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			var scenario []string
			fields := []uint32{203, 155, 1002, 150, 1523}
			for _, f := range fields {
				scenario = append(scenario, fmt.Sprintf("field %d %d 1", f, code))
			}
			c := start(t, node(t, append(scenario, "gpus 2")...))
			c.until("all readings", func(frames.Body) bool { return len(c.readings) == 2*(3+4+1+6+12+4) })
			for k, r := range c.readings {
				if bad := k[0] == 1 && slices.Contains(fields, k[1]); bad && (r.Status != want || r.Value != 0) || !bad && r.Status != frames.StatusOK {
					t.Errorf("device %d, field %d: %v %v", k[0], k[1], r.Status, r.Value)
				}
			}
		})
	}
}

func TestHealth(t *testing.T) {
	c := start(t, node(t, "gpus 2", "health 0 0x80 42 warn"))
	at := func(code uint32) func(frames.Event) bool {
		return func(e frames.Event) bool { return e.Kind == frames.KindHealth && e.Code == code }
	}
	if e := c.untilEvent("what was before", at(42)); !e.Found || e.Failed || e.System != 0x80 || e.Device != 1 {
		t.Errorf("%+v", e)
	}
	// Codes that go-dcgm does not name, and an XID's incident, whose system has all bits set.
	c.do("health 1 0x200 125 fail", "health 1 0xffffffff 101 fail")
	e := c.untilEvent("a reset", at(125))
	if e.Found || !e.Failed || e.Device != 2 || e.Detail != "the GPU had an incident with code 125" {
		t.Errorf("%+v", e)
	}
	if e := c.untilEvent("an XID", at(101)); e.System != 0xffffffff {
		t.Errorf("%+v", e)
	}
	c.do("healthy 1")
	c.untilEvent("the end", func(e frames.Event) bool { return e.Over && e.Code == 125 })
	if n := len(slices.DeleteFunc(c.events, func(e frames.Event) bool { return e.Over })); n != 3 {
		t.Errorf("%d incidents: %+v", n, c.events)
	}
}

func TestStates(t *testing.T) {
	c := start(t, node(t, "gpus 2"))
	// Links are queried after the errors are reported.
	times := 0
	c.until("links and errors once", func(b frames.Body) bool {
		if r, ok := b.(*frames.Readings); ok && slices.ContainsFunc(r.Readings, func(r frames.Reading) bool { return r.Field == 439 }) {
			times++
		}
		return times == 2
	})
	c.do("nvlink 1 5 down", "thermal 0 on", "brake 1 on", "ecc 1 uncorrectable 2", "ecc 1 corrected 9", "remap 0 failed 1", "remap 0 uncorrectable 2")
	for what, match := range map[string]func(frames.Event) bool{
		"link": func(e frames.Event) bool {
			return e.Kind == frames.KindNVLink && e.Code == 5 && e.Device == 2 && e.Field == 0 && e.Detail == "link 5"
		},
		"heat":  func(e frames.Event) bool { return e.Kind == frames.KindThermal && e.Code == 0x40 && e.Device == 1 },
		"power": func(e frames.Event) bool { return e.Kind == frames.KindThermal && e.Code == 0x80 && e.Device == 2 },
		"ecc":   func(e frames.Event) bool { return e.Kind == frames.KindECC && e.Count == 2 && e.Total == 2 },
		"remap": func(e frames.Event) bool { return e.Kind == frames.KindRowRemap && e.Field == 395 },
		"rows":  func(e frames.Event) bool { return e.Kind == frames.KindRowRemap && e.Field == 393 && e.Count == 2 },
	} {
		if e := c.untilEvent(what, match); e.Over || e.Found {
			t.Errorf("%s: %+v", what, e)
		}
	}
	c.do("nvlink 1 5 up", "thermal 0 off", "ecc 1 uncorrectable 1")
	c.untilEvent("the link again", func(e frames.Event) bool { return e.Kind == frames.KindNVLink && e.Over })
	c.untilEvent("cool again", func(e frames.Event) bool { return e.Kind == frames.KindThermal && e.Over && e.Code == 0x40 })
	c.untilEvent("one more", func(e frames.Event) bool { return e.Field == 311 && e.Count == 1 && e.Total == 3 })
	c.untilEvent("one more of its life", func(e frames.Event) bool { return e.Field == 313 && e.Count == 1 && e.Total == 3 })
	if len(c.events) != 11 {
		t.Errorf("%d events: %+v", len(c.events), c.events)
	}
}

// While DCGM hangs, heartbeats continue and say so. Afterwards nothing is missing. If asked to end
// meanwhile, the collector ends without DCGM.
func TestHang(t *testing.T) {
	c := start(t, node(t, "gpus 2"))
	c.untilHello()
	c.do("hang")
	var waiting time.Duration
	c.until("a call that waits", func(b frames.Body) bool {
		h, ok := b.(*frames.Heartbeat)
		if ok && h.Waiting > waiting {
			waiting = h.Waiting
		}
		return ok && h.Call != "" && h.Waiting > 500*time.Millisecond
	})
	c.do("xid 0 79", "resume")
	c.untilEvent("what happened meanwhile", xid(0, 79))
	c.do("hang")
	c.until("a call that waits", func(b frames.Body) bool {
		h, ok := b.(*frames.Heartbeat)
		return ok && h.Waiting > 200*time.Millisecond
	})
	c.cmd.Process.Signal(syscall.SIGTERM)
	if code := c.exit(); code != 0 || !strings.Contains(c.stderr.String(), "has not answered") {
		t.Errorf("exit %d, %s", code, c.stderr.String())
	}
}

// A driver that hangs before the first frame shows in heartbeats as well.
func TestHangAtStart(t *testing.T) {
	c := start(t, node(t, "gpus 2", "hang"))
	c.until("a call that waits", func(b frames.Body) bool {
		h, ok := b.(*frames.Heartbeat)
		return ok && h.Call != "" && h.Waiting > 200*time.Millisecond
	})
	if c.hello != nil {
		t.Error("a hello from a driver that hangs")
	}
}

// If the driver hangs in DCGM's own thread, calls are still answered, with old values.
func TestHangWithin(t *testing.T) {
	c := start(t, node(t, "gpus 2"))
	c.untilHello()
	for _, f := range []int{203, 252, 155, 1001, 1002, 1004, 1005, 1523, 150, 140, 100, 101, 112, 156, 310, 311, 312, 313, 390, 391, 392, 393, 394, 395, 396, 202, 409, 419, 429, 439} {
		c.do(fmt.Sprintf("field %d 2", f))
	}
	c.until("a word about it", func(frames.Body) bool { return len(c.troubles) > 0 })
	if tr := c.troubles[0]; tr.Code != frames.TroubleDriver || tr.Fatal {
		t.Errorf("%+v", tr)
	}
	c.do("xid 0 119")
	c.untilEvent("an XID all the same", xid(0, 119))
	if len(c.troubles) != 1 {
		t.Errorf("%+v", c.troubles)
	}
}

// When the reader is gone, the collector ends, even while DCGM hangs.
func TestNobodyReads(t *testing.T) {
	m := node(t, "gpus 2", "hang")
	cmd := command(t, m.Env(), quick...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := frames.NewReader(out).Next(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitOutput {
		t.Errorf("exit %d", code)
	}
}

func TestEnds(t *testing.T) {
	t.Run("disconnected", func(t *testing.T) {
		c := start(t, node(t, "gpus 2"))
		c.untilHello()
		c.do("disconnect")
		if code := c.exit(); code != exitConnection || len(c.troubles) != 1 || !c.troubles[0].Fatal || c.troubles[0].Code != frames.TroubleConnection {
			t.Errorf("exit %d, %+v", code, c.troubles)
		}
	})
	t.Run("crashed", func(t *testing.T) {
		c := start(t, node(t, "gpus 2"))
		c.untilHello()
		c.do("crash")
		if code := c.exit(); code == 0 {
			t.Error("a crash ends well")
		}
	})
}

// Output of a library on standard output does not mix with the frames.
func TestPrints(t *testing.T) {
	c := start(t, node(t, "gpus 2", "print at the start"))
	c.untilHello()
	c.do("print WARNING: something", "xid 0 13")
	c.untilEvent("an XID after it", xid(0, 13))
	c.cmd.Process.Signal(syscall.SIGTERM)
	c.exit()
	if !strings.Contains(c.stderr.String(), "WARNING: something") {
		t.Errorf("standard error has %q", c.stderr.String())
	}
}

// A driver that hangs in a health check hides no XID, because XIDs are reported first.
func TestHangInHealthCheck(t *testing.T) {
	c := start(t, node(t, "gpus 2"))
	c.untilHello()
	c.do("xid 0 79", "hang health")
	c.untilEvent("the XID", xid(0, 79))
	c.until("a check that waits", func(b frames.Body) bool {
		h, ok := b.(*frames.Heartbeat)
		return ok && h.Call == "check health" && h.Waiting > 100*time.Millisecond
	})
}

// A driver that hangs in the query of the recovery action hides no XID either. The action is then
// unknown.
func TestHangInRecovery(t *testing.T) {
	c := start(t, node(t, "gpus 2"))
	c.untilHello()
	c.do("hang live", "recovery 0 2", "xid 0 79")
	if e := c.untilEvent("the XID", xid(0, 79)); e.Recovery != 0 {
		t.Errorf("%+v, and the driver has not answered", e)
	}
	c.until("a call that waits", func(b frames.Body) bool {
		h, ok := b.(*frames.Heartbeat)
		return ok && h.Call != "" && h.Waiting > patience+100*time.Millisecond
	})
	c.do("resume", "xid 0 48")
	if e := c.untilEvent("another XID", xid(0, 48)); e.Recovery != 3 {
		t.Errorf("%+v, and the driver wants recovery 2", e)
	}
}

// An error in a simulation file is reported with its line.
func TestScenarioErrors(t *testing.T) {
	m := node(t, "gpus 2", "# a comment", "xid 9 79")
	c := start(t, m)
	if code := c.exit(); code != exitEngine || !strings.Contains(c.stderr.String(), m.Scenario+":3: unknown command, or no such GPU: xid 9") {
		t.Errorf("exit %d, %s", code, c.stderr.String())
	}
	m = node(t, "gpus two")
	c = start(t, m)
	if code := c.exit(); code != exitEngine || !strings.Contains(c.stderr.String(), m.Scenario+":1: two is not a number") {
		t.Errorf("exit %d, %s", code, c.stderr.String())
	}
	m = node(t, "gpus 2", "at 0 lose 1")
	c = start(t, m)
	c.untilHello()
	c.do("xid 0 13", "", "mig 1 4 4", "ecc 0 corrected many", "xid 1 31")
	c.untilEvent("the last line", xid(1, 31))
	c.cmd.Process.Signal(syscall.SIGTERM)
	c.exit()
	for _, want := range []string{
		m.Scenario + ":2: unknown command or too few words: lose\n", m.Control + ":3: the slices of a GPU add up to at most 7\n", m.Control + ":4: many is not a number\n",
	} {
		if !strings.Contains(c.stderr.String(), want) {
			t.Errorf("%q is not in %s", want, c.stderr.String())
		}
	}
}

// If the clock is set back an hour, no XID is missed or repeated.
func TestClockSetBack(t *testing.T) {
	c := start(t, node(t, "gpus 2"))
	c.untilHello()
	c.do("xid 0 13")
	c.untilEvent("an XID before", xid(0, 13))
	c.do("clock -3600", "xid 0 31")
	c.untilEvent("an XID after", xid(0, 31))
	c.do("xid 1 79")
	c.untilEvent("another", xid(1, 79))
	c.do("clock 3600", "xid 1 48")
	c.untilEvent("an XID after the clock is right again", xid(1, 48))
	if len(c.events) != 4 {
		t.Errorf("%+v", c.events)
	}
}

// An engine outlives its collectors. If a collector is killed at any moment, the next one with its
// cursor reports the XIDs in between.
func TestKilled(t *testing.T) {
	m := node(t, "gpus 4")
	socket := filepath.Join(t.TempDir(), "engine.sock")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	cursor := int64(0)
	n := uint32(0)
	for run := range 5 {
		c := start(t, m, "--engine", "unix:"+socket, fmt.Sprint("--since=", cursor))
		c.untilHello()
		if c.hello.Engine != "unix:"+socket {
			t.Fatalf("%+v", c.hello)
		}
		want := n
		if run > 0 {
			c.untilEvent("what happened while none ran", xid(want%4, want))
		}
		for range 3 {
			n++
			c.do(fmt.Sprintf("xid %d %d", n%4, n))
			c.untilEvent("an XID", xid(n%4, n))
		}
		c.until("a cursor", func(b frames.Body) bool { _, ok := b.(*frames.Events); return ok })
		cursor = c.cursor
		c.cmd.Process.Kill()
		c.exit()
		n++
		c.do(fmt.Sprintf("xid %d %d", n%4, n))
		for _, e := range c.events {
			told[fmt.Sprint(e.UUID, e.Kind, e.Code, e.Field, e.At)]++
		}
	}
	if len(told) != int(n)-1 {
		t.Errorf("%d XIDs of %d were told", len(told), n-1)
	}
}

func TestPreflight(t *testing.T) {
	none := t.TempDir()
	garbage := t.TempDir()
	if err := os.WriteFile(filepath.Join(garbage, simdcgm.Library), []byte("not a library"), 0o755); err != nil {
		t.Fatal(err)
	}
	sim := simulated(t)
	for _, c := range []struct {
		name     string
		library  string
		scenario []string
		args     []string
		exit     int
		trouble  string
		text     string
	}{
		{"no library", none, nil, nil, exitNoLibrary, "no_library", "libdcgm.so.4 is not installed: install the package datacenter-gpu-manager-4-core"},
		{"no library, but a file of its name", garbage, nil, nil, exitNoLibrary, "no_library", "does not load: "},
		{"a function missing", simulated(t, "HEALTH"), nil, nil, exitSymbol, "symbol", "lacks dcgmHealthCheck: install DCGM 4.2 or later"},
		{"the version function missing", simulated(t, "VERSION"), nil, nil, exitSymbol, "symbol", "(DCGM unknown) lacks dcgmVersionInfo"},
		{"DCGM 3", sim, []string{"version 3.3.9"}, nil, exitVersion, "version", "is of DCGM 3.3.9, and DCGM 4 is needed"},
		{"engine of another version", sim, []string{"mismatch connect"}, []string{"--engine", "unix:" + sim}, exitVersion, "version", "are of versions that do not fit"},
		{"no permission", sim, []string{"start -17"}, nil, exitPermission, "permission", "embed DCGM: no permission"},
		{"no driver", sim, []string{"start -25"}, nil, exitDriver, "driver", "NVIDIA's driver is not loaded"},
		{"driver hangs", sim, []string{"start -57"}, nil, exitDriver, "driver", "does not answer: the node needs a reboot"},
		{"no engine", sim, nil, []string{"--engine", "unix:" + filepath.Join(none, "engine.sock")}, exitEngine, "engine", "there is no such socket: start nvidia-dcgm.service"},
		{"no engine on TCP", sim, nil, []string{"--engine", "tcp://127.0.0.1:1"}, exitEngine, "engine", "attach to the nv-hostengine at tcp://127.0.0.1:1: no engine answers: start nvidia-dcgm.service"},
		{"engine fails", sim, []string{"start -3"}, nil, exitEngine, "engine", "Generic unspecified error"},
		{"no GPUs", sim, []string{"gpus 0"}, nil, exitNoGPUs, "no_gpus", "DCGM sees no GPUs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := simdcgm.NewMachine(c.library, t.TempDir(), c.scenario...)
			if err != nil {
				t.Fatal(err)
			}
			// As frames.
			r := start(t, m, c.args...)
			if code := r.exit(); code != c.exit {
				t.Errorf("exit %d, want %d\n%s", code, c.exit, r.stderr.String())
			}
			if n := len(r.troubles); n == 0 || !r.troubles[n-1].Fatal || r.troubles[n-1].Code != c.trouble || !strings.Contains(r.troubles[n-1].Text, c.text) {
				t.Errorf("troubles %+v, want %s", r.troubles, c.text)
			}
			// For people and programs.
			cmd := command(t, m.Env(), append([]string{"check", "-o", "json"}, c.args...)...)
			out, _ := cmd.Output()
			var got Report
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got.OK || got.Exit != c.exit || got.Trouble != c.trouble || !strings.Contains(got.Text, c.text) || cmd.ProcessState.ExitCode() != c.exit {
				t.Errorf("%+v, exit %d", got, cmd.ProcessState.ExitCode())
			}
		})
	}
}

// hostEngine is an address where a fake nv-hostengine listens.
func hostEngine(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// An nv-hostengine listens on TCP by default. The collector connects to that kind of address, named
// or found. If none answers, DCGM is embedded.
func TestEngines(t *testing.T) {
	tcp, unix := hostEngine(t), filepath.Join(t.TempDir(), "engine.sock")
	if err := os.WriteFile(unix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, engine string
		found        string // by auto, on TCP
		scenario     string
		used         string
		connects     []string
		tried        string // the first attempt
		trouble      string
	}{
		{name: "TCP by name", engine: "tcp://" + tcp, used: "tcp://" + tcp, connects: []string{"tcp " + tcp}, tried: "tcp://" + tcp + ": used"},
		{name: "a Unix socket by name", engine: "unix:" + unix, used: "unix:" + unix, connects: []string{"unix " + unix}, tried: "unix:" + unix + ": used"},
		{name: "TCP found", engine: "auto", found: tcp, used: "tcp://" + tcp, connects: []string{"tcp " + tcp}, tried: "tcp://" + tcp + ": used"},
		{name: "none found", engine: "auto", used: "embedded", tried: "tcp://127.0.0.1:1: absent, nothing listens there"},
		{name: "embedded by name", engine: "embedded", found: tcp, used: "embedded", tried: "embedded: used"},
		{name: "found, and of another version", engine: "auto", found: tcp, scenario: "mismatch connect", used: "embedded", connects: []string{"tcp " + tcp},
			tried: "tcp://" + tcp + ": failed, attach to the nv-hostengine at tcp://" + tcp + ": the engine and libdcgm.so.4 (DCGM 4.5.0) are of versions that do not fit", trouble: "versions that do not fit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := node(t, "gpus 1", c.scenario)
			env := append(m.Env(), "QM_HOST_ENGINE="+c.found)
			out, err := command(t, env, "check", "-o", "json", "--engine", c.engine).Output()
			var r Report
			if err := errors.Join(err, json.Unmarshal(out, &r)); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !r.OK || r.Engine != c.used || len(r.Tried) == 0 || !strings.HasPrefix(r.Tried[0].Engine+": "+r.Tried[0].text(), c.tried) {
				t.Errorf("%+v", r)
			}
			if got, err := m.Connects(); err != nil || !slices.Equal(got, c.connects) {
				t.Errorf("it connected to %q, %v", got, err)
			}
			t.Setenv("QM_HOST_ENGINE", c.found)
			run := start(t, m, "--engine", c.engine)
			run.untilHello()
			if run.hello.Engine != c.used {
				t.Errorf("hello says engine %q", run.hello.Engine)
			}
			if c.trouble != "" {
				run.until("the engine that was passed by", func(b frames.Body) bool {
					tr, ok := b.(*frames.Trouble)
					return ok && strings.Contains(tr.Text, c.trouble)
				})
			}
		})
	}
}

// An nv-hostengine that restarts, or starts after the collector, is used once it is there: a run
// with embedded DCGM ends, and the next one attaches. An engine that does not answer does not end a
// run.
func TestEngineComesBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	t.Setenv("QM_HOST_ENGINE", address)
	began := func(want string, scenario ...string) *collecting {
		t.Helper()
		run := start(t, node(t, append(scenario, "gpus 1")...), "--engine", "auto")
		run.untilHello()
		if run.hello.Engine != want {
			t.Fatalf("it uses engine %q, want %q", run.hello.Engine, want)
		}
		return run
	}
	first := began("tcp://" + address)
	l.Close()
	first.do("disconnect")
	if code := first.exit(); code != exitConnection {
		t.Errorf("the engine went away: exit %d", code)
	}
	second := began("embedded")
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer func() { l.Close() }()
	if code := second.exit(); code != exitConnection || len(second.troubles) != 1 ||
		!strings.Contains(second.troubles[0].Text, "an nv-hostengine is at tcp://"+address+" now") {
		t.Errorf("the engine came back: exit %d, troubles %+v", code, second.troubles)
	}
	began("tcp://" + address)

	refused := began("embedded", "mismatch connect")
	beats := 0
	refused.until("two seconds, in which it looks five times", func(b frames.Body) bool {
		if _, ok := b.(*frames.Heartbeat); ok {
			beats++
		}
		return beats == 40
	})
}

func TestCheck(t *testing.T) {
	m := node(t, "gpus 2", "mig 1 3", "lost 0", "profiling missing")
	out, err := command(t, m.Env(), "check").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"library   DCGM 4.5.0, ", "engine    embedded\n", "tried     tcp://127.0.0.1:1: absent, nothing listens there\n", "tried     embedded: used\n", "driver    580.95.05\n", "(lost)", "MIG 3g.40gb", "profiling not available: DCGM's profiling module is not loaded", "events    works\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestFlags(t *testing.T) {
	for arg, want := range map[string]string{
		"--every=1ms": "--every 1ms is shorter than 100ms", "--slow=2s": "must not become shorter", "--since=-1": "is before 1970",
		"--engine=": "--engine is empty", "--engine=127.0.0.1:5555": "write tcp://127.0.0.1:5555", "extra": "extra", "--heartbeat=0": "--heartbeat 0s is shorter",
	} {
		out, err := command(t, nil, arg).CombinedOutput()
		var ee *exec.ExitError
		if !errors.As(err, &ee) || ee.ExitCode() != exitUsage || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v %s", arg, err, out)
		}
	}
}
