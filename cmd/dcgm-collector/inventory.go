//go:build cgo && linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	frames "quartermaster/adapters/dcgm"
	"quartermaster/domain"
)

// Fields that identify a device.
const (
	fieldDriver  = 1
	fieldName    = 50
	fieldSerial  = 53
	fieldUUID    = 54
	fieldMinor   = 55 // N of /dev/nvidiaN
	fieldPCI     = 57
	fieldMIGMode = 67
	fieldMemory  = 250
)

const liveData = 1 // DCGM_FV_FLAG_LIVE_DATA: ask the driver now

// entity is DCGM's name for a device. It can be a map key.
type entity = dcgm.GroupEntityPair

// machine maps between DCGM's entities and the devices of the inventory.
type machine struct {
	driver    string
	gpus      []entity         // GPUs that are not lost
	instances []entity         // GPU instances
	all       []entity         // these, and compute instances
	devices   map[entity]int   // the device of an entity's events
	readers   map[entity][]int // the devices that an entity's readings belong to
}

// live asks the driver for fields of entities, and returns the values by entity.
func (c *collector) live(entities []entity, fields ...dcgm.Short) (map[entity][]dcgm.FieldValue_v2, error) {
	by := map[entity][]dcgm.FieldValue_v2{}
	for _, e := range entities {
		var vs []dcgm.FieldValue_v2
		err := c.calls.do("identify "+name(e), func() (err error) {
			vs, err = dcgm.EntitiesGetLatestValues([]entity{e}, fields, liveData)
			return err
		})
		if err != nil && c.lib.code(err) == stConnection {
			return nil, err
		} else if err != nil {
			continue // a device that cannot be asked has no name
		}
		by[e] = vs
	}
	return by, nil
}

func name(e entity) string { return fmt.Sprintf("%s %d", e.EntityGroupId, e.EntityId) }

func get(vs []dcgm.FieldValue_v2, field dcgm.Short) *dcgm.FieldValue_v2 {
	for i := range vs {
		if vs[i].FieldID == field {
			return &vs[i]
		}
	}
	return &dcgm.FieldValue_v2{Status: stNoData}
}

func number(vs []dcgm.FieldValue_v2, field dcgm.Short) uint64 {
	v := get(vs, field)
	if _, n := value(v, now(), 0); n > 0 {
		return uint64(n)
	}
	return 0
}

// takeInventory lists the devices, and keeps the old list if it is equal. It asks devices for their
// identity if some came, went or changed their state, and always if full is true. It also asks if a
// GPU is partitioned by MIG: the numbers of MIG devices are reused when the partitioning changes,
// and only the UUIDs differ.
func (c *collector) takeInventory(full bool) error {
	var ids []uint
	err := c.calls.do("list GPUs", func() (err error) {
		ids, err = dcgm.GetEntityGroupEntities(dcgm.FE_GPU)
		return err
	})
	if err != nil {
		code := c.lib.code(err)
		switch code {
		case stNVMLNotLoaded, stNoLibrary, stDriverTimeout:
			return newFatal(frames.TroubleDriver, "list the GPUs: NVIDIA's driver does not answer: nvidia-smi says why (%v)", err)
		case stConnection:
			return newFatal(frames.TroubleConnection, "the nv-hostengine went away: %v", err)
		}
		return newFatal(frames.TroubleEngine, "list the GPUs: %v", err)
	}
	slices.Sort(ids)
	m := machine{devices: map[entity]int{}, readers: map[entity][]int{}}
	var devices []frames.Device
	status := map[uint]dcgm.EntityStatus{}
	for _, id := range ids {
		_ = c.calls.do("status of a GPU", func() error { status[id] = dcgm.GetGPUStatus(id); return nil })
	}
	cut, err := c.hierarchy()
	if err != nil {
		return err
	}
	known := fmt.Sprint(ids, status, cut)
	if known == c.known && !full && len(cut) == 0 {
		return nil
	}
	c.known = known
	instances, err := c.identify(cut)
	if err != nil {
		return err
	}
	for _, id := range ids {
		e := entity{EntityGroupId: dcgm.FE_GPU, EntityId: id}
		st := status[id]
		switch st {
		case dcgm.EntityStatusOk, dcgm.EntityStatusLost, dcgm.EntityStatusUnknown, dcgm.EntityStatusFake:
		default:
			continue // DCGM may not read it, or it was detached on purpose
		}
		d := frames.Device{GPU: uint32(id), Lost: st == dcgm.EntityStatusLost}
		if !d.Lost {
			by, err := c.live([]entity{e},
				fieldDriver, fieldName, fieldSerial, fieldUUID, fieldMinor, fieldPCI, fieldMIGMode, fieldMemory)
			if err != nil {
				return newFatal(frames.TroubleConnection, "the nv-hostengine went away: %v", err)
			}
			vs := by[e]
			d.Model, d.Serial, d.PCI = text(get(vs, fieldName)), text(get(vs, fieldSerial)), text(get(vs, fieldPCI))
			d.MemoryMiB, d.MIG = number(vs, fieldMemory), number(vs, fieldMIGMode) == 1
			d.UUID, _ = domain.ParseGPUID(text(get(vs, fieldUUID)))
			if st, n := value(get(vs, fieldMinor), now(), 0); st == frames.StatusOK && n >= 0 {
				d.Minor = uint32(n) + 1
			}
			if v := text(get(vs, fieldDriver)); v != "" {
				m.driver = v
			}
		}
		// A lost device no longer tells its name.
		for _, old := range c.inventory.Devices {
			if old.Parent == 0 && old.GPU == d.GPU && d.UUID == (domain.GPUID{}) {
				old.Lost, old.MIG = d.Lost, d.MIG
				d = old
			}
		}
		at := len(devices)
		devices = append(devices, d)
		m.devices[e] = at
		m.readers[e] = []int{at}
		m.all = append(m.all, e)
		if d.Lost {
			continue
		}
		m.gpus = append(m.gpus, e)
		for _, in := range instances[id] {
			m.instances = append(m.instances, in.entity)
			m.all = append(m.all, in.entity)
			m.devices[in.entity] = at // unless it has a compute instance
			for _, ci := range in.computes {
				m.all = append(m.all, ci.entity)
				dev := frames.Device{
					UUID:            ci.uuid,
					GPU:             uint32(id),
					Minor:           d.Minor,
					Parent:          uint32(at + 1),
					Model:           d.Model,
					Serial:          d.Serial,
					PCI:             d.PCI,
					MemoryMiB:       in.memory,
					Profile:         in.profile,
					GPUInstance:     in.id,
					ComputeInstance: ci.id,
					Slices:          in.slices,
					Shared:          len(in.computes) > 1,
				}
				m.devices[ci.entity] = len(devices)
				if len(in.computes) == 1 {
					m.devices[in.entity] = len(devices)
				}
				m.readers[in.entity] = append(m.readers[in.entity], len(devices))
				devices = append(devices, dev)
			}
		}
	}
	if m.driver == "" {
		m.driver = c.machine.driver
	}
	if c.inventory.Generation > 0 && slices.Equal(c.inventory.Devices, devices) && slices.Equal(c.machine.all, m.all) {
		return nil
	}
	reason := ""
	if c.inventory.Generation > 0 {
		reason = difference(c.inventory.Devices, devices)
	}
	c.inventory = frames.Inventory{Generation: c.inventory.Generation + 1, Reason: reason, Devices: devices}
	c.machine = m
	return nil
}

// difference describes the changes between two inventories.
func difference(old, now []frames.Device) string {
	var says []string
	gpus := func(ds []frames.Device) (out []frames.Device, mig map[uint32]string) {
		mig = map[uint32]string{}
		for _, d := range ds {
			if d.Parent == 0 {
				out = append(out, d)
			} else {
				mig[d.GPU] += " " + d.UUID.String()
			}
		}
		return out, mig
	}
	was, wasMIG := gpus(old)
	is, isMIG := gpus(now)
	for _, d := range is {
		i := slices.IndexFunc(was, func(o frames.Device) bool { return o.GPU == d.GPU })
		switch {
		case i < 0:
			says = append(says, fmt.Sprintf("GPU %d is new", d.GPU))
		case d.Lost && !was[i].Lost:
			says = append(says, fmt.Sprintf("GPU %d is lost", d.GPU))
		case !d.Lost && was[i].Lost:
			says = append(says, fmt.Sprintf("GPU %d is back", d.GPU))
		case d.UUID != was[i].UUID:
			says = append(says, fmt.Sprintf("GPU %d is another device", d.GPU))
		case d.MIG != was[i].MIG || isMIG[d.GPU] != wasMIG[d.GPU]:
			says = append(says, fmt.Sprintf("MIG of GPU %d was configured anew", d.GPU))
		case d != was[i]:
			says = append(says, fmt.Sprintf("GPU %d describes itself anew", d.GPU))
		}
	}
	for _, d := range was {
		if !slices.ContainsFunc(is, func(o frames.Device) bool { return o.GPU == d.GPU }) {
			says = append(says, fmt.Sprintf("GPU %d is gone", d.GPU))
		}
	}
	return strings.Join(says, ", ")
}

type instance struct {
	entity   entity
	id       uint32 // the driver's number
	slices   uint32
	profile  string
	memory   uint64
	computes []compute
}

type compute struct {
	entity entity
	id     uint32
	uuid   domain.GPUID
}

// hierarchy returns the MIG partitioning of GPUs. If DCGM cannot tell it now, the previous one
// stays.
func (c *collector) hierarchy() ([]dcgm.MigHierarchyInfo_v2, error) {
	var h dcgm.MigHierarchy_v2
	err := c.calls.do("MIG hierarchy", func() (err error) { h, err = dcgm.GetGPUInstanceHierarchy(); return err })
	if err == nil {
		c.cut = slices.Clone(h.EntityList[:min(h.Count, uint(len(h.EntityList)))])
	} else if code := c.lib.code(err); code == stNotSupported || code == stNoData {
		c.cut, err = nil, nil
	}
	return c.cut, c.trouble("mig", err)
}

// identify returns the GPU instances by GPU, with their compute instances, in order.
func (c *collector) identify(cut []dcgm.MigHierarchyInfo_v2) (map[uint][]*instance, error) {
	by := map[uint][]*instance{}
	of := map[uint]*instance{}
	for _, e := range cut {
		if e.Entity.EntityGroupId == dcgm.FE_GPU_I {
			in := &instance{entity: e.Entity, id: uint32(e.Info.NvmlInstanceId), slices: uint32(e.Info.NvmlProfileSlices)}
			of[e.Entity.EntityId] = in
			by[e.Parent.EntityId] = append(by[e.Parent.EntityId], in)
		}
	}
	for _, e := range cut {
		if in := of[e.Parent.EntityId]; e.Entity.EntityGroupId == dcgm.FE_GPU_CI && in != nil {
			in.computes = append(in.computes, compute{entity: e.Entity, id: uint32(e.Info.NvmlComputeInstanceId)})
		}
	}
	for _, ins := range by {
		slices.SortFunc(ins, func(a, b *instance) int { return cmp.Compare(a.id, b.id) })
		for _, in := range ins {
			vs, err := c.live([]entity{in.entity}, fieldName, fieldMemory)
			if err != nil {
				return nil, c.trouble("mig", err)
			}
			in.profile, in.memory = profileOf(text(get(vs[in.entity], fieldName))), number(vs[in.entity], fieldMemory)
			if in.profile == "" {
				in.profile = strconv.Itoa(int(in.slices)) + "g"
			}
			slices.SortFunc(in.computes, func(a, b compute) int { return cmp.Compare(a.id, b.id) })
			for i := range in.computes {
				ci := &in.computes[i]
				vs, err := c.live([]entity{ci.entity}, fieldUUID)
				if err != nil {
					return nil, c.trouble("mig", err)
				}
				ci.uuid, _ = domain.ParseGPUID(text(get(vs[ci.entity], fieldUUID)))
			}
		}
	}
	return by, nil
}

// profileOf returns the profile in a name such as "NVIDIA H100 80GB HBM3 MIG 1g.10gb".
func profileOf(name string) string {
	if i := strings.LastIndexByte(name, ' '); i >= 0 {
		name = name[i+1:]
	}
	if !strings.Contains(name, "g.") {
		return ""
	}
	return name
}

// renew checks whether devices came, went or were repartitioned, and watches the current ones.
func (c *collector) renew(full bool) error {
	before := c.inventory
	if err := c.takeInventory(full); err != nil {
		return err
	}
	if before.Generation == c.inventory.Generation {
		return nil
	}
	if err := c.send(&c.inventory); err != nil {
		return err
	}
	c.tellLost(before.Devices, false)
	if err := c.sendEvents(nil, false); err != nil {
		return err
	}
	return c.watch()
}
