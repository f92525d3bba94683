//go:build cgo && linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	frames "quartermaster/adapters/dcgm"
)

// The entities that a group of fields is read from.
const (
	onGPUs = iota
	onInstances
	onAll
)

// spec is a group of fields that works or fails as one.
type spec struct {
	name   string
	fields []dcgm.Short
	every  func(*Config) time.Duration
	on     int
	keep   time.Duration // of history, for reading since the last time
	failed string        // what is missing for users if it fails
}

func everySecond(c *Config) time.Duration { return c.Every }
func medium(c *Config) time.Duration      { return c.Medium }
func slow(c *Config) time.Duration        { return c.Slow }

const eventsKept = 5 * time.Minute

// specs lists the watched fields by id, because the names change between releases of DCGM and the
// ids do not.
var specs = []spec{
	// GPU utilization, memory used, power.
	{name: "core", fields: []dcgm.Short{203, 252, 155}, every: everySecond},
	// Memory used.
	{name: "mig", fields: []dcgm.Short{252}, every: everySecond, on: onInstances},
	{name: "profiling", fields: profilingFields, every: everySecond, failed: "utilization is coarser"},
	{
		name: "profiling-mig", fields: profilingFields, every: everySecond, on: onInstances,
		failed: "MIG devices have no utilization",
	},
	{
		name: "recovery", fields: []dcgm.Short{frames.FieldRecovery}, every: everySecond,
		failed: "the driver's own advice is missing",
	},
	// Temperatures, clocks, why they are low, energy.
	{name: "clocks", fields: []dcgm.Short{150, 140, 100, 101, frames.FieldClockReasons, fieldEnergy}, every: medium},
	// ECC, page retirement, row remapping, PCIe replays.
	{name: "errors", fields: []dcgm.Short{310, 311, 312, 313, 390, 391, 392, 393, 394, 395, 396, 202}, every: slow},
	// Flit and data checksum errors, replays, recoveries.
	{name: "nvlink", fields: []dcgm.Short{409, 419, 429, 439}, every: slow},
	{
		name: "events", fields: []dcgm.Short{frames.FieldXID}, every: everySecond, on: onAll, keep: eventsKept,
		failed: "XIDs are not seen",
	},
}

// profilingFields are graphics engine, SM, tensor and DRAM activity.
var profilingFields = []dcgm.Short{1001, 1002, 1004, 1005}

// group is a watched spec.
type group struct {
	spec
	entities []entity
	working  []dcgm.Short
	watched  []dcgm.FieldHandle
	on       dcgm.GroupHandle // shadows spec.on: DCGM's group of the entities
	reason   string
	code     int32
}

// handles are DCGM's groups of entities for one inventory.
type handles struct {
	of   [3]dcgm.GroupHandle
	have [3]bool
}

// watch makes DCGM measure the devices of the inventory, and then releases those that it measured
// before. This order keeps the history of devices that stay.
func (c *collector) watch() error {
	old, oldHandles := c.groups, c.handles
	c.groups, c.handles = nil, handles{}
	sets := [3][]entity{c.machine.gpus, c.machine.instances, c.machine.all}
	for i, set := range sets {
		if len(set) == 0 {
			continue
		}
		g, err := c.groupOf(set)
		if err != nil && (i == onGPUs || c.lib.code(err) == stConnection) {
			return newFatal(frames.TroubleEngine, "make a group of devices: %v", err)
		} else if errors.Is(err, errGone) {
			continue
		} else if err := c.trouble("devices", err); err != nil {
			return err
		} else if g == (dcgm.GroupHandle{}) {
			continue
		}
		c.handles.of[i], c.handles.have[i] = g, true
	}
	for _, s := range specs {
		g := &group{spec: s, entities: sets[s.on], on: c.handles.of[s.on]}
		switch {
		case !c.handles.have[s.on]:
			g.reason = "no such devices"
		case !c.cfg.Profiling && s.fields[0] == profilingFields[0]:
			g.reason = "left out by --profiling=false"
		default:
			if err := c.watchGroup(g); err != nil {
				return err
			}
		}
		c.groups = append(c.groups, g)
	}
	c.xids.use(c)
	if err := c.watchHealth(); err != nil {
		return err
	}
	for _, g := range old {
		for _, f := range g.watched {
			_ = c.calls.do("let go of "+g.name, func() error {
				_ = dcgm.UnwatchFields(f, g.on)
				return dcgm.FieldGroupDestroy(f)
			})
		}
	}
	for i, have := range oldHandles.have {
		if have {
			_ = c.calls.do("let go of a group", func() error { return dcgm.DestroyGroup(oldHandles.of[i]) })
		}
	}
	return nil
}

// errGone means that none of the devices of an inventory exists any more.
var errGone = errors.New("none of the devices can be watched")

// groupOf makes a group of DCGM with a unique name, because the engine may be shared. It leaves out
// devices that went away since the inventory was taken. The next inventory will show that.
func (c *collector) groupOf(set []entity) (g dcgm.GroupHandle, err error) {
	err = c.calls.do("make a group", func() error {
		made, err := dcgm.CreateGroup(fmt.Sprintf("quartermaster-%x", rand.Uint64()))
		if err != nil {
			return err
		}
		added := 0
		for _, e := range set {
			if err = dcgm.AddEntityToGroup(made, e.EntityGroupId, e.EntityId); err == nil {
				added++
			}
		}
		if added == 0 {
			_ = dcgm.DestroyGroup(made)
			return fmt.Errorf("%w: %v", errGone, err)
		}
		g = made
		return nil
	})
	return g, err
}

// watchGroup watches all fields of a group, and if that fails, each field alone. The error ends the
// run.
func (c *collector) watchGroup(g *group) error {
	every := g.every(&c.cfg)
	keep := max(g.keep, 5*every, 10*time.Second)
	one := func(fields []dcgm.Short) error {
		return c.calls.do("watch "+g.name, func() error {
			f, err := dcgm.FieldGroupCreate(fmt.Sprintf("quartermaster-%s-%x", g.name, rand.Uint64()), fields)
			if err != nil {
				return err
			}
			if err := dcgm.WatchFieldsWithGroupEx(f, g.on, every.Microseconds(), keep.Seconds(), 0); err != nil {
				_ = dcgm.FieldGroupDestroy(f)
				return err
			}
			g.watched = append(g.watched, f)
			g.working = append(g.working, fields...)
			return nil
		})
	}
	err := one(g.fields)
	if err != nil && c.lib.code(err) != stConnection && len(g.fields) > 1 {
		var without []dcgm.Short
		for _, f := range g.fields {
			if one([]dcgm.Short{f}) != nil {
				without = append(without, f)
			}
		}
		if len(g.working) > 0 {
			g.reason, g.code = fmt.Sprintf("without fields %v: %v", without, err), c.lib.code(err)
			return nil
		}
	}
	if err == nil {
		return nil
	}
	g.code = c.lib.code(err)
	switch g.code {
	case stConnection:
		return newFatal(frames.TroubleConnection, "the nv-hostengine went away: %v", err)
	case stModuleNotLoaded:
		g.reason = "DCGM's profiling module is not loaded: install datacenter-gpu-manager-4-proprietary"
	case stNoPermission, stRequiresRoot:
		g.reason = "no permission: run nv-hostengine as root and attach to it"
	case stUnknownField:
		g.reason = "DCGM " + c.lib.version + " does not know the field"
	default:
		g.reason = err.Error()
	}
	if g.failed != "" {
		g.reason += "; " + g.failed
	}
	if c.reported["watch "+g.name] != g.reason {
		c.reported["watch "+g.name] = g.reason
		return c.send(&frames.Trouble{
			Code: frames.TroubleGroup, Text: g.name + ": " + g.reason, Returned: g.code, Group: g.name,
		})
	}
	return nil
}

func (c *collector) groupsSaid() []frames.Group {
	var out []frames.Group
	for _, g := range c.groups {
		if g.spec.on == onInstances && len(c.machine.instances) == 0 {
			continue
		}
		s := frames.Group{Name: g.name, Every: g.every(&c.cfg), Works: len(g.working) > 0, Reason: g.reason, Code: g.code}
		for _, f := range g.fields {
			s.Fields = append(s.Fields, uint32(f))
		}
		out = append(out, s)
	}
	return append(out, c.health.said, c.links)
}

// mostValues bounds the values of one call: each takes 4 KiB, twice.
const mostValues = 64

// read reads and reports the latest values of the groups that are due, and detects faults. suspect
// says that a device seems to be gone.
func (c *collector) read(medium, slow bool) (readings *frames.Readings, suspect bool, err error) {
	readings = &frames.Readings{Generation: c.inventory.Generation}
	current, old := 0, 0
	for _, g := range c.groups {
		every := g.every(&c.cfg)
		due := every <= c.cfg.Every || medium && every == c.cfg.Medium || slow && every == c.cfg.Slow
		if len(g.working) == 0 || g.spec.on == onAll || !due {
			continue
		}
		step := max(1, mostValues/len(g.working))
		for at := 0; at < len(g.entities); at += step {
			var vs []dcgm.FieldValue_v2
			err := c.calls.do("read "+g.name, func() (err error) {
				vs, err = dcgm.EntitiesGetLatestValues(g.entities[at:min(at+step, len(g.entities))], g.working, 0)
				return err
			})
			if err := c.trouble(g.name, err); err != nil {
				return nil, false, err
			}
			t := now()
			for i := range vs {
				v := &vs[i]
				s, n := value(v, t, every)
				if every == c.cfg.Every && s == frames.StatusStale {
					old++
				} else if s == frames.StatusOK {
					current++
				}
				e := entity{EntityGroupId: v.EntityGroupId, EntityId: v.EntityID}
				for _, d := range c.machine.readers[e] {
					readings.Readings = append(readings.Readings, frames.Reading{
						Device: uint32(d), Field: uint32(v.FieldID), Status: s, Value: n,
					})
				}
				if d, ok := c.machine.devices[e]; ok && e.EntityGroupId == dcgm.FE_GPU {
					if s == frames.StatusLost {
						suspect = suspect || !c.suspects[e]
						c.suspects[e] = true
					} else if s == frames.StatusOK {
						delete(c.suspects, e)
						c.states.observe(c.device(d), uint32(v.FieldID), n, time.UnixMicro(v.TS))
					}
				}
			}
		}
	}
	// If the driver hangs in DCGM's own thread, DCGM continues to return old values.
	if old > 0 && current == 0 {
		if c.reported["driver"] == "" {
			c.reported["driver"] = "old"
			err = c.send(&frames.Trouble{
				Code: frames.TroubleDriver,
				Text: "DCGM has no new values of any GPU: the driver hangs, and the node may need a reboot",
			})
		}
	} else if current > 0 {
		delete(c.reported, "driver")
	}
	return readings, suspect, err
}

func now() time.Time { return time.Now() }
