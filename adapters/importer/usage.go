package importer

import (
	"fmt"

	"quartermaster/domain"
)

// maxPoolGPUs bounds what one row can expand into.
const maxPoolGPUs = 100_000

var usageKind = format{
	columns: []string{"hour", "vc", "total_gpu", "running_gpu_mean", "pending_gpu_mean"},
	start: func(im *importer, col func(string) column) func(*cells) error {
		m := im.model(im.opts.GPUModel)
		u := &usageReader{
			importer: im,
			hour:     col("hour"), vc: col("vc"), total: col("total_gpu"), running: col("running_gpu_mean"), pending: col("pending_gpu_mean"),
			gpu:   m,
			pools: map[string]*usagePool{},
		}
		return u.row
	},
}

type usageReader struct {
	*importer
	hour, vc, total, running, pending column

	gpu    domain.GPUModel
	pools  map[string]*usagePool
	demand domain.DemandObserved
	sample domain.NodeSampled
	held   []uint32 // backs sample.Holder
}

// usagePool is a virtual cluster as far as it was seen.
type usagePool struct {
	workspace string
	strings   []string // table of its samples: workspace, deployment
	nodes     []usageNode
	last      domain.Instant // its last hour
	line      int            // of that hour
}

type usageNode struct {
	name string
	ids  []byte // 16 per device registered
}

// The holder arrays of a sample in which somebody held something; its string
// table is usagePool.strings. They are shared and never written to.
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
	if c.refused == nil && len(name) > maxName-8 {
		c.refuse(u.vc, "is too long to name nodes by")
	}
	pool := u.pools[name]
	if pool != nil && hour.From <= pool.last {
		c.refuse(u.hour, fmt.Sprintf("does not come after the hour of %s in line %d", name, pool.line))
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

// register declares the nodes that total devices need and that were not seen
// before, or were smaller.
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
		ev := &domain.NodeRegistered{
			Node: node.name, ResourceID: node.name, SKU: u.opts.SKU, BillingAccount: u.opts.Account,
			CPUMilli: u.opts.CPUMilli * uint64(devices) / uint64(size), MemoryMiB: u.opts.MemoryMiB * uint64(devices) / uint64(size),
			IDsDerived: true, GPUs: make([]domain.GPUDeclared, devices),
		}
		node.ids = make([]byte, 0, 16*devices)
		for d := range devices {
			id := domain.DeriveGPUID(u.opts.Cluster, node.name, d)
			node.ids = append(node.ids, id[:]...)
			ev.GPUs[d] = domain.GPUDeclared{ID: id, Index: uint32(d), Model: u.gpu.Name, MemoryMiB: u.gpu.MemoryMiB}
		}
		if err := u.emit(at, node.name, "", ev); err != nil {
			return err
		}
	}
	return nil
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
			if held > 0 {
				s.Strings, s.HolderWorkspace, s.HolderDeployment, s.HolderUnit = pool.strings, holderWorkspace, holderDeployment, holderUnit
			} else {
				s.Strings, s.HolderWorkspace, s.HolderDeployment, s.HolderUnit = nil, nil, nil, nil
			}
			if err := u.emit(s.Interval.To, node.name, "", s); err != nil {
				return err
			}
		}
	}
	return nil
}

// roundMilli rounds thousandths to whole units, half to even.
func roundMilli(milli uint64) uint64 {
	whole, rest := milli/1000, milli%1000
	if rest > 500 || rest == 500 && whole%2 == 1 {
		whole++
	}
	return whole
}
