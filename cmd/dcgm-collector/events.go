//go:build cgo && linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	frames "quartermaster/adapters/dcgm"
	"quartermaster/domain"
)

// device returns the device at an index of the inventory.
func (c *collector) device(at int) device {
	d := c.inventory.Devices[at]
	return device{index: uint32(at + 1), uuid: d.UUID, gpu: d.GPU}
}

// deviceOf returns the device of an entity, or the node.
func (c *collector) deviceOf(e entity) device {
	if at, ok := c.machine.devices[e]; ok {
		return c.device(at)
	}
	return device{}
}

// xidReader reads the XIDs since the last time. It asks for all devices at once. If that fails,
// because DCGM answers for none when one device fails, it asks for each GPU alone. So a lost GPU
// does not hide the faults of others.
type xidReader struct {
	cursor  int64           // XIDs before it were read; microseconds, by DCGM's clock
	floor   int64           // XIDs before it are not wanted
	cursors map[uint]int64  // of GPUs that are asked alone
	seen    map[xidKey]bool // XIDs that were reported lately
	order   []xidKey        // the same, by age
	group   *group          // nil: the events cannot be watched
	alone   map[uint]dcgm.GroupHandle
}

type xidKey struct {
	entity entity
	at     int64
	code   int64
}

// mostSeen is how many XIDs are remembered to drop repeats. Repeats occur when the clock was set
// back, or when a run begins where another ended.
const mostSeen = 4096

func newXIDReader(since int64, now time.Time) *xidReader {
	if since == 0 {
		since = now.UnixMicro()
	}
	return &xidReader{
		cursor:  since,
		floor:   since,
		cursors: map[uint]int64{},
		seen:    map[xidKey]bool{},
		alone:   map[uint]dcgm.GroupHandle{},
	}
}

// use switches to the groups of a new inventory.
func (x *xidReader) use(c *collector) {
	for _, g := range x.alone {
		_ = c.calls.do("let go of a group", func() error { return dcgm.DestroyGroup(g) })
	}
	clear(x.alone)
	x.group = nil
	for _, g := range c.groups {
		if g.name == "events" && len(g.working) > 0 {
			x.group = g
		}
	}
}

// read returns XIDs in the order of their times. The error ends the run.
func (x *xidReader) read(c *collector) ([]frames.Event, error) {
	if x.group == nil {
		return nil, nil
	}
	out, next, err := x.ask(c, x.group.on, x.cursor, "read events")
	if err == nil {
		x.cursor = next
		clear(x.cursors)
	} else if c.lib.code(err) == stConnection {
		return nil, c.trouble("events", err)
	} else if out, err = x.eachAlone(c); err != nil {
		return nil, err
	}
	if len(out) > 0 {
		if err := c.askRecovery(out); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b frames.Event) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Device, b.Device))
	})
	return out, nil
}

// ask reads the XIDs of a group since a cursor, and returns the next cursor.
func (x *xidReader) ask(
	c *collector,
	g dcgm.GroupHandle,
	since int64,
	what string,
) (out []frames.Event, next int64, err error) {
	var vs []dcgm.FieldValue_v2
	var until time.Time
	err = c.calls.do(what, func() (err error) {
		from := time.UnixMicro(max(since-overlap.Microseconds(), x.floor))
		vs, until, err = dcgm.GetValuesSince(g, x.group.watched[0], from)
		return err
	})
	if err != nil {
		return nil, since, err
	}
	for i := range vs {
		v := &vs[i]
		s, code := value(v, now(), 0)
		if v.FieldID != frames.FieldXID || s != frames.StatusOK || code <= 0 {
			continue
		}
		e := entity{EntityGroupId: v.EntityGroupId, EntityId: v.EntityID}
		if k := (xidKey{e, v.TS, int64(code)}); !x.seen[k] {
			x.seen[k] = true
			if x.order = append(x.order, k); len(x.order) > mostSeen {
				delete(x.seen, x.order[0])
				x.order = slices.Delete(x.order, 0, 1)
			}
			d := c.deviceOf(e)
			out = append(out, frames.Event{
				Kind: frames.KindXID, Device: d.index, UUID: d.uuid, Code: uint32(code), Field: frames.FieldXID,
				Count: 1, At: domain.InstantOf(time.UnixMicro(v.TS)),
			})
		}
	}
	next = until.UnixMicro()
	// The clock was set back far: new XIDs are before the cursor.
	if next < since-overlap.Microseconds() {
		x.floor = min(x.floor, next-overlap.Microseconds())
		return out, next, nil
	}
	return out, max(next, since), nil
}

// overlap is how far before the cursor is read again, so that XIDs are not missed if the clock is
// set back a little. Repeats are recognized.
const overlap = 5 * time.Second

func (x *xidReader) eachAlone(c *collector) (out []frames.Event, err error) {
	least := int64(0)
	for _, gpu := range c.machine.all {
		if gpu.EntityGroupId != dcgm.FE_GPU {
			continue
		}
		about := fmt.Sprintf("events of GPU %d", gpu.EntityId)
		g, ok := x.alone[gpu.EntityId]
		if !ok {
			at := c.machine.devices[gpu]
			var mine []entity
			for _, e := range c.machine.all {
				if d, ok := c.machine.devices[e]; ok && (d == at || int(c.inventory.Devices[d].Parent) == at+1) {
					mine = append(mine, e)
				}
			}
			if g, err = c.groupOf(mine); errors.Is(err, errGone) {
				continue
			} else if err != nil {
				if err := c.trouble(about, err); err != nil {
					return nil, err
				}
				continue
			}
			x.alone[gpu.EntityId] = g
		}
		since, ok := x.cursors[gpu.EntityId]
		if !ok {
			since = x.cursor
		}
		events, next, err := x.ask(c, g, since, "read "+about)
		// A lost GPU is reported elsewhere.
		if err != nil && c.lib.code(err) == stLost {
			err = nil
			next = since
		}
		if err := c.trouble(about, err); err != nil {
			return nil, err
		}
		x.cursors[gpu.EntityId] = next
		out = append(out, events...)
		if least == 0 || next < least {
			least = next
		}
	}
	if least > 0 {
		x.cursor = least
	}
	return out, nil
}

// patience is how long XIDs wait for the driver's recovery action.
const patience = time.Second

// askRecovery adds the driver's current recovery action to each XID. The last reading may be older
// than the XID. If the driver takes longer than patience to answer, the action is unknown; see
// awaitRecovery.
func (c *collector) askRecovery(xids []frames.Event) error {
	asked := map[entity]bool{}
	for i := range xids {
		d := c.wholeGPU(device{index: xids[i].Device})
		if d.index == 0 {
			continue
		}
		e := entity{EntityGroupId: dcgm.FE_GPU, EntityId: uint(d.gpu)}
		if !asked[e] && slices.Contains(c.machine.gpus, e) {
			asked[e] = true
			if c.pendingRecovery != nil {
				c.states.muteRecovery(d)
			} else if err := c.askRecoveryOf(e, d); err != nil {
				return err
			}
		}
		xids[i].Recovery = c.states.recovery(d)
	}
	return nil
}

func (c *collector) askRecoveryOf(e entity, d device) error {
	var by map[entity][]dcgm.FieldValue_v2
	done := make(chan error, 1)
	go func() {
		var err error
		by, err = c.live([]entity{e}, frames.FieldRecovery)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return c.trouble("recovery", err)
		}
	case <-time.After(patience):
		c.pendingRecovery = done
		c.states.muteRecovery(d)
		return nil
	}
	v := get(by[e], frames.FieldRecovery)
	if s, n := value(v, now(), 0); s == frames.StatusOK {
		c.states.observe(d, frames.FieldRecovery, n, time.UnixMicro(v.TS))
	} else {
		c.states.muteRecovery(d)
	}
	return nil
}

// awaitRecovery waits for the answer that the XIDs did not wait for, however long it takes. DCGM is
// not called meanwhile, and heartbeats say so.
func (c *collector) awaitRecovery() error {
	if c.pendingRecovery == nil {
		return nil
	}
	err := <-c.pendingRecovery
	c.pendingRecovery = nil
	if err != nil {
		return c.trouble("recovery", err)
	}
	return nil
}

// wholeGPU returns the GPU that a MIG device is part of, because the driver repairs whole GPUs.
func (c *collector) wholeGPU(d device) device {
	if d.index == 0 {
		return d
	}
	d = c.device(int(d.index - 1))
	if p := c.inventory.Devices[d.index-1].Parent; p != 0 {
		return c.device(int(p - 1))
	}
	return d
}

// watchedHealth is the state of DCGM's health checks.
type watchedHealth struct {
	said   frames.Group
	active map[incidentKey]frames.Event
	asked  bool
}

type incidentKey struct {
	entity entity
	system uint32
	code   uint32
}

func (c *collector) watchHealth() error {
	h := c.health
	h.said = frames.Group{Name: "health", Every: c.cfg.Slow}
	if !c.handles.have[onGPUs] {
		h.said.Reason = "no such devices"
		return nil
	}
	err := c.calls.do("watch health", func() error {
		return dcgm.HealthSet(c.handles.of[onGPUs], dcgm.DCGM_HEALTH_WATCH_ALL)
	})
	if err != nil {
		h.said.Reason, h.said.Code = err.Error(), c.lib.code(err)
		return c.trouble("health", err)
	}
	h.said.Works = true
	return nil
}

// aGPU matches the GPU numbers in DCGM's messages, which are not the numbers of GPUs.
var aGPU = regexp.MustCompile(`GPU \d+`)

func (c *collector) checkHealth() error {
	h := c.health
	if !h.said.Works {
		return nil
	}
	var r dcgm.HealthResponse
	err := c.calls.do("check health", func() (err error) {
		r, err = dcgm.HealthCheck(c.handles.of[onGPUs])
		return err
	})
	if err != nil {
		return c.trouble("health", err)
	}
	if err := c.trouble("health", nil); err != nil {
		return err
	}
	at := domain.InstantOf(now())
	seen := map[incidentKey]bool{}
	for _, in := range r.Incidents {
		k := incidentKey{in.EntityInfo, uint32(in.System), uint32(in.Error.Code)}
		if seen[k] {
			continue
		}
		seen[k] = true
		if in.Health != healthWarn && in.Health != healthFail {
			continue
		}
		e := frames.Event{
			Kind:   frames.KindHealth,
			Code:   k.code,
			System: k.system,
			At:     at,
			Failed: in.Health == healthFail,
			Found:  !h.asked,
			Detail: aGPU.ReplaceAllString(plain(in.Error.Message), "the GPU"),
		}
		if was, ok := h.active[k]; !ok || e.Failed && !was.Failed {
			c.states.add(c.deviceOf(k.entity), e)
		}
		h.active[k] = e
	}
	for k, e := range h.active {
		// The incident of a device that is no longer checked is not over.
		if !seen[k] && (k.entity.EntityGroupId != dcgm.FE_GPU || slices.Contains(c.machine.gpus, k.entity)) {
			delete(h.active, k)
			e.At, e.Over, e.Found = at, true, false
			c.states.add(c.deviceOf(k.entity), e)
		}
	}
	h.asked = true
	return nil
}

const (
	healthWarn = 10 // DCGM_HEALTH_RESULT_WARN
	healthFail = 20
)

func (c *collector) checkLinks() error {
	if !c.links.Works {
		return nil
	}
	links, err := c.askLinks()
	if err != nil {
		return c.trouble("links", err)
	}
	at := domain.InstantOf(now())
	for _, l := range links {
		if l.State != dcgm.LS_UP && l.State != dcgm.LS_DOWN {
			continue
		}
		e := entity{EntityGroupId: l.ParentType, EntityId: l.ParentId}
		code, detail := uint32(l.Index), fmt.Sprintf("link %d", l.Index)
		if l.ParentType == dcgm.FE_SWITCH {
			code, detail = uint32(l.ParentId+1)<<16|code, fmt.Sprintf("link %d of NVSwitch %d", l.Index, l.ParentId)
		} else if _, ok := c.machine.devices[e]; !ok {
			continue
		}
		c.states.state(c.deviceOf(e), frames.KindNVLink, 0, code, l.State == dcgm.LS_DOWN, at, detail)
	}
	return c.trouble("links", nil)
}

func (c *collector) askLinks() (links []dcgm.NvLinkStatus, err error) {
	err = c.calls.do("NVLinks", func() (err error) { links, err = dcgm.GetNvLinkLinkStatus(); return err })
	return links, err
}

// tellLost adds events for devices that the driver can no longer reach, and for those that it
// reaches again.
func (c *collector) tellLost(before []frames.Device, found bool) {
	at := domain.InstantOf(now())
	for i, d := range c.inventory.Devices {
		if d.Parent != 0 {
			continue
		}
		was := false
		for _, o := range before {
			was = was || o.Parent == 0 && o.GPU == d.GPU && o.Lost
		}
		if d.Lost != was {
			c.states.add(c.device(i), frames.Event{
				Kind: frames.KindLost, At: at, Over: !d.Lost, Found: found, Detail: d.PCI,
			})
		}
	}
	// A GPU that DCGM does not list any more.
	for _, o := range before {
		listed := slices.ContainsFunc(c.inventory.Devices, func(d frames.Device) bool {
			return d.Parent == 0 && d.GPU == o.GPU
		})
		if o.Parent != 0 || o.Lost || listed {
			continue
		}
		c.states.add(device{uuid: o.UUID, gpu: o.GPU}, frames.Event{
			Kind: frames.KindLost, At: at, Detail: fmt.Sprintf("GPU %d at %s is not listed any more", o.GPU, o.PCI),
		})
	}
}
