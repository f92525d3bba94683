package importer

import (
	"fmt"
	"strings"

	"quartermaster/domain"
)

// maxNodeGPUs is well above the GPUs of any machine. A larger number means that columns are mixed
// up.
const maxNodeGPUs = 1024

var nodesKind = format{
	columns: []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"},
	start: func(im *importer, col func(string) column) func(*cells) error {
		n := &nodeReader{
			importer: im,
			sn:       col("sn"),
			cpu:      col("cpu_milli"),
			memory:   col("memory_mib"),
			gpu:      col("gpu"),
			model:    col("model"),
			uuids:    col("uuids"),
			zone:     col("zone"),
			sku:      col("sku"),
			resource: col("resource_id"),
			billing:  col("billing_model"),
			provider: col("provider"),
			account:  col("billing_account"),
			fabric:   col("fabric_domain"),
			from:     col("in_service_from"),
			names:    map[string]int{},
			ids:      map[domain.GPUID]int{},
		}
		return n.row
	},
}

type nodeReader struct {
	*importer
	sn, cpu, memory, gpu, model, uuids, zone, sku, resource, billing, provider, account, fabric, from column

	names map[string]int       // line of each name
	ids   map[domain.GPUID]int // line of each GPU
}

func (n *nodeReader) row(c *cells) error {
	ev := &domain.NodeRegistered{
		Node:           c.name(n.sn),
		Provider:       c.text(n.provider),
		BillingAccount: c.text(n.account),
		ResourceID:     c.text(n.resource),
		SKU:            c.text(n.sku),
		Zone:           c.text(n.zone),
		BillingModel:   domain.BillingModel(c.text(n.billing)),
		CPUMilli:       c.count(n.cpu, maxMilli),
		MemoryMiB:      c.count(n.memory, maxMilli),
		FabricDomain:   c.text(n.fabric),
	}
	gpus := int(c.count(n.gpu, maxNodeGPUs))
	model := c.text(n.model)
	if gpus > 0 && model == "" {
		c.refuse(n.model, "is empty for a node with GPUs")
	}
	switch ev.BillingModel {
	case "",
		domain.BillingReserved,
		domain.BillingOnDemand,
		domain.BillingSpot,
		domain.BillingCapacityBlock,
		domain.BillingOwned:
	default:
		c.refuse(n.billing, "is not one of reserved, on_demand, spot, capacity_block, owned")
	}
	at, reason := shifted(n.opts.Epoch, domain.Instant(n.opts.Shift))
	if len(c.raw(n.from)) > 0 {
		ev.InServiceFrom = c.instant(n.from)
		at = ev.InServiceFrom
	} else if n.opts.Epoch == 0 {
		c.refuse(n.from, "is empty, and no epoch is given to replace it")
	} else if reason != "" {
		c.refuse(n.from, "the epoch "+reason)
	}
	ids := n.gpuIDs(c, ev.Node, gpus)
	if c.refused == nil {
		if line, twice := n.names[ev.Node]; twice {
			c.refuse(n.sn, fmt.Sprintf("is also the node of line %d", line))
		}
	}
	for i, id := range ids {
		if line, twice := n.ids[id]; twice {
			c.refused = &refusal{Field: n.uuids.name, Value: id.String(), Reason: fmt.Sprintf("is also a GPU of line %d", line)}
			break
		}
		for _, other := range ids[:i] {
			if other == id {
				c.refused = &refusal{Field: n.uuids.name, Value: id.String(), Reason: "is a duplicate"}
			}
		}
	}
	if c.refused != nil {
		return c.refused
	}
	n.names[ev.Node] = c.line
	if gpus > 0 {
		ev.IDsDerived = len(c.raw(n.uuids)) == 0
		m := n.importer.model(model)
		ev.GPUs = make([]domain.GPUDeclared, gpus)
		for i, id := range ids {
			n.ids[id] = c.line
			ev.GPUs[i] = domain.GPUDeclared{ID: id, Index: uint32(i), Model: m.Name, MemoryMiB: m.MemoryMiB}
		}
	}
	return n.emit(at, ev.Node, "", ev)
}

// gpuIDs reads or derives one id per device.
func (n *nodeReader) gpuIDs(c *cells, node string, gpus int) []domain.GPUID {
	ids := make([]domain.GPUID, 0, gpus)
	given := c.raw(n.uuids)
	if len(given) == 0 {
		for i := range gpus {
			ids = append(ids, domain.DeriveGPUID(n.opts.Cluster, node, i))
		}
		return ids
	}
	parts := strings.Split(strings.TrimRight(string(given), "; "), ";")
	if len(parts) != gpus {
		c.refuse(n.uuids, fmt.Sprintf("names %d devices where %s says %d", len(parts), n.gpu.name, gpus))
		return nil
	}
	for _, p := range parts {
		id, err := domain.ParseGPUID(strings.TrimSpace(p))
		if err != nil {
			c.refuse(n.uuids, err.Error())
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}
