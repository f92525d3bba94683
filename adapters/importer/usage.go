package importer

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
)

// maxPoolGPUs bounds the size of a row's expansion.
const maxPoolGPUs = 100_000

var usageKind = format{
	columns: []string{"hour", "vc", "total_gpu", "running_gpu_mean", "pending_gpu_mean"},
	start: func(im *importer, col func(string) column) func(*cells) error {
		m := im.model(im.opts.GPUModel)
		u := &usageReader{
			importer: im,
			hour:     col("hour"),
			vc:       col("vc"),
			total:    col("total_gpu"),
			running:  col("running_gpu_mean"),
			pending:  col("pending_gpu_mean"),
			active:   col("running_sm_active"),
			memory:   col("running_memory_mib"),
			gpu:      m,
			pools:    map[string]*usagePool{},
		}
		return u.row
	},
}

type usageReader struct {
	*importer
	hour, vc, total, running, pending, active, memory column

	gpu    domain.GPUModel
	pools  map[string]*usagePool
	demand domain.DemandObserved
	sample domain.NodeSampled
	held   []uint32 // backs sample.Holder
	// Measurements of the running GPUs of the current row, first to last, encoded as in samples:
	// value plus one, 0 for blank. Empty if the row has none.
	activity, memoryMiB []uint32
	columns             [2][]uint32 // back the sample's columns for them
}

// usagePool is the state of a virtual cluster.
type usagePool struct {
	workspace string
	strings   []string // string table of its samples: workspace, deployment
	nodes     []usageNode
	last      domain.Instant // its last hour
	line      int            // of that hour
}

type usageNode struct {
	name string
	ids  []byte // 16 per device registered
}

// The holder arrays of a sample with held devices; its string table is usagePool.strings. They
// are shared and MUST NOT be written to.
var (
	holderWorkspace  = []uint32{1}
	holderDeployment = []uint32{2}
	holderUnit       = []uint32{0}
)

func (u *usageReader) row(c *cells) error {
	hour := c.hour(u.hour)
	name := c.name(u.vc)
	total := int(c.count(u.total, maxPoolGPUs))
	if len(c.raw(u.running)) == 0 {
		c.refuse(u.running, "is empty")
	}
	running := c.milli(u.running)
	pending := c.milli(u.pending)
	if c.refused == nil && running > uint64(total)*1000 {
		c.refuse(u.running, fmt.Sprintf("is more than %s, %d", u.total.name, total))
	}
	if c.refused == nil {
		u.activity = c.listed(u.active, total, 1, 100, u.activity[:0])
		u.memoryMiB = c.listed(u.memory, total, 0, maxMemoryMiB, u.memoryMiB[:0])
	}
	if c.refused == nil && len(name) > maxName-8 {
		c.refuse(u.vc, "is too long for the names of nodes")
	}
	pool := u.pools[name]
	if pool != nil && hour.From <= pool.last {
		c.refuse(u.hour, fmt.Sprintf("is not after the hour of %s in line %d", name, pool.line))
	}
	if c.refused != nil {
		return c.refused
	}
	if pool == nil {
		pool = &usagePool{workspace: name}
		if w := u.opts.Workspaces[name]; w != "" {
			pool.workspace = w
		}
		pool.strings = []string{pool.workspace, "jobs"}
		u.pools[name] = pool
	}
	pool.last, pool.line = hour.From, c.line

	u.demand = domain.DemandObserved{
		Pool: name, Model: u.gpu.Name, Unit: "gpu", Interval: hour,
		RunningMilli: running, PendingMilli: pending, OwnedMilli: uint64(total) * 1000,
	}
	if err := u.emit(hour.To, name, pool.workspace, &u.demand); err != nil {
		return err
	}
	if err := u.register(pool, name, total, hour.From); err != nil {
		return err
	}
	return u.expand(pool, total, running, hour)
}

// register declares the nodes for total devices that are new or have grown.
func (u *usageReader) register(pool *usagePool, name string, total int, at domain.Instant) error {
	size := u.opts.NodeGPUs
	for i := 0; i*size < total; i++ {
		devices := min(size, total-i*size)
		if i == len(pool.nodes) {
			pool.nodes = append(pool.nodes, usageNode{name: fmt.Sprintf("%s-%03d", name, i)})
		}
		node := &pool.nodes[i]
		if len(node.ids) >= 16*devices {
			continue
		}
		ev, err := u.described(node.name, devices, at)
		if err != nil {
			return err
		}
		node.ids = make([]byte, 0, 16*devices)
		for d := range devices {
			node.ids = append(node.ids, ev.GPUs[d].ID[:]...)
		}
		if err := u.emit(at, node.name, "", ev); err != nil {
			return err
		}
	}
	return nil
}

// described returns the description of a node with at least so many devices. What the file and the
// options do not state stays as it was declared, because bills are matched by it. So do GPUs with ids of
// their own.
func (u *usageReader) described(node string, devices int, at domain.Instant) (*domain.NodeRegistered, error) {
	ev := &domain.NodeRegistered{Node: node, ResourceID: node, IDsDerived: true}
	if u.opts.Declared != nil {
		before, err := u.opts.Declared(node, at)
		if err != nil {
			return nil, err
		}
		if before != nil {
			kept := *before
			kept.ResourceID, kept.InServiceFrom = cmp.Or(kept.ResourceID, node), 0
			if kept.GPUs = slices.Clone(kept.GPUs); kept.IDsDerived || len(kept.GPUs) == 0 {
				kept.IDsDerived, kept.GPUs = true, nil
			}
			ev = &kept
		}
	}
	size := uint64(u.opts.NodeGPUs)
	ev.SKU, ev.BillingAccount = cmp.Or(u.opts.SKU, ev.SKU), cmp.Or(u.opts.Account, ev.BillingAccount)
	ev.CPUMilli = cmp.Or(u.opts.CPUMilli*uint64(devices)/size, ev.CPUMilli)
	ev.MemoryMiB = cmp.Or(u.opts.MemoryMiB*uint64(devices)/size, ev.MemoryMiB)
	for d := len(ev.GPUs); d < devices; d++ {
		ev.GPUs = append(ev.GPUs, domain.GPUDeclared{
			ID: domain.DeriveGPUID(u.opts.Cluster, node, d), Index: uint32(d), Model: u.gpu.Name, MemoryMiB: u.gpu.MemoryMiB,
		})
	}
	return ev, nil
}

// expand emits the samples of one hour, interval by interval, node by node.
func (u *usageReader) expand(pool *usagePool, total int, running uint64, hour domain.Interval) error {
	size := u.opts.NodeGPUs
	step := domain.Instant(u.opts.Interval)
	if len(u.held) < size {
		u.held = make([]uint32, size)
	}
	s := &u.sample
	var before uint64
	for k := uint64(1); k <= uint64(domain.Hour/step); k++ {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		upTo := roundMilli(k * running)
		left := int(upTo - before)
		before = upTo
		s.Interval = domain.Interval{From: hour.From + domain.Instant(k-1)*step, To: hour.From + domain.Instant(k)*step}
		for i := 0; i*size < total; i++ {
			node := &pool.nodes[i]
			devices := min(size, total-i*size)
			held := min(left, devices)
			left -= held
			s.Node = node.name
			s.IDs = node.ids[:16*devices]
			s.Holder = u.held[:devices]
			for d := range s.Holder {
				s.Holder[d] = 0
				if d < held {
					s.Holder[d] = 1
				}
			}
			u.measured(i*size, devices, held)
			if held > 0 {
				s.Strings = pool.strings
				s.HolderWorkspace, s.HolderDeployment, s.HolderUnit = holderWorkspace, holderDeployment, holderUnit
			} else {
				s.Strings = nil
				s.HolderWorkspace, s.HolderDeployment, s.HolderUnit = nil, nil, nil
			}
			if err := u.emit(s.Interval.To, node.name, "", s); err != nil {
				return err
			}
		}
	}
	return nil
}

// measured sets the measurements of the held devices of a node, which are its first ones. Devices
// that are not held have no measurements.
func (u *usageReader) measured(first, devices, held int) {
	s := &u.sample
	s.ActivityField, s.ActivityMean, s.MemoryUsedMiB = 0, nil, nil
	if of := upTo(u.activity, first, held); len(of) > 0 {
		s.ActivityField, s.ActivityMean = smActive, append(u.columns[0][:0], of...)
		s.ActivityMean = append(s.ActivityMean, make([]uint32, devices-len(of))...)
		u.columns[0] = s.ActivityMean
	}
	if of := upTo(u.memoryMiB, first, held); len(of) > 0 {
		s.MemoryUsedMiB = append(append(u.columns[1][:0], of...), make([]uint32, devices-len(of))...)
		u.columns[1] = s.MemoryUsedMiB
	}
}

// upTo returns at most n values from index first on, or nil if all of them are blank.
func upTo(values []uint32, first, n int) []uint32 {
	values = values[min(first, len(values)):min(first+n, len(values))]
	for _, v := range values {
		if v > 0 {
			return values
		}
	}
	return nil
}

// smActive is DCGM_FI_PROF_SM_ACTIVE.
const smActive = 1002

// maxMemoryMiB is well above the memory of any GPU.
const maxMemoryMiB = 1 << 24

// listed reads at most most values separated by ';', each blank or a number from 0 to limit with
// at most places decimals. It appends them to into, encoded as in samples: in units of the last
// decimal plus one, 0 for blank.
func (c *cells) listed(k column, most, places int, limit uint64, into []uint32) []uint32 {
	rest := bytes.TrimSpace(c.raw(k))
	if len(rest) == 0 {
		return into
	}
	for more := true; more; {
		var field []byte
		field, rest, more = bytes.Cut(rest, []byte{';'})
		if len(into) == most {
			c.refuse(k, fmt.Sprintf("has more than %d values", most))
			return into
		}
		v, ok := stored(bytes.TrimSpace(field), places, limit)
		if !ok {
			c.refuse(k, fmt.Sprintf(
				"has %q, want nothing or a number from 0 to %d with at most %d decimal places",
				field, limit, places,
			))
			return into
		}
		into = append(into, v)
	}
	return into
}

// stored reads one value for [cells.listed].
func stored(b []byte, places int, limit uint64) (uint32, bool) {
	if len(b) == 0 {
		return 0, true
	}
	var v uint64
	scale, point := uint64(1), -1
	for i, d := range b {
		switch {
		case d == '.' && point < 0 && i > 0 && i < len(b)-1:
			point = i
			continue
		case d < '0' || d > '9' || v > limit*10 || point >= 0 && i-point > places:
			return 0, false
		}
		v = v*10 + uint64(d-'0')
	}
	have := 0
	if point >= 0 {
		have = len(b) - 1 - point
	}
	for range places - have {
		v *= 10
	}
	for range places {
		scale *= 10
	}
	return uint32(v) + 1, v <= limit*scale
}

// roundMilli rounds thousandths to whole units, half to even.
func roundMilli(milli uint64) uint64 {
	whole, rest := milli/1000, milli%1000
	if rest > 500 || rest == 500 && whole%2 == 1 {
		whole++
	}
	return whole
}
