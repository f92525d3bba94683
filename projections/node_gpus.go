package projections

import (
	"bytes"
	"slices"

	"quartermaster/domain"
)

// NodeGPUs is the row of a node and UTC month: which GPUs were reported under the
// node's name. By it a GPU that was reported under two names is found without
// reading usage; see aliases.go.
type NodeGPUs struct {
	GPUs []ReportedGPU `json:"gpus"` // by id
}

// ReportedGPU is a physical GPU with the first hour of the month and the last in
// which it, an instance or a replica of it was reported, in hours since 1970.
type ReportedGPU struct {
	_     struct{}     `cbor:",toarray"`
	ID    domain.GPUID `json:"uuid"`
	First int64        `json:"first_hour"`
	Last  int64        `json:"last_hour"`
}

func (*NodeGPUs) row() {}

// maxNodeGPUsNoted bounds a row: labels can name any number, and a node has at most
// some dozens in a month. Those beyond it are not looked for under other names.
const maxNodeGPUsNoted = 4096

func nodeGPUsKey(scope, node string, at domain.Instant) Key {
	return Key{Table: TableNodeGPUs, Scope: scope, ID: node, Hour: monthOf(at)}
}

// noteGPUs notes that a sample's GPUs were reported in the hour that begins at h.
func noteGPUs(rows *Rows, scope string, s *domain.NodeSampled, h domain.Instant) {
	key, hour := nodeGPUsKey(scope, s.Node, h), hourOf(h)
	for i := range s.Entries() {
		id := domain.GPUID(s.IDs[16*i:])
		if len(s.Parent) > 0 && s.Parent[i] > 0 {
			id = domain.GPUID(s.Parents[16*(s.Parent[i]-1):])
		}
		row, _ := rows.Get(key).(*NodeGPUs)
		at, known := 0, false
		if row != nil {
			at, known = row.find(id)
		}
		switch {
		case known && row.GPUs[at].First <= hour && hour <= row.GPUs[at].Last:
		case known:
			g := &change[*NodeGPUs](rows, key).GPUs[at]
			g.First, g.Last = min(g.First, hour), max(g.Last, hour)
		case row == nil || len(row.GPUs) < maxNodeGPUsNoted:
			row = change[*NodeGPUs](rows, key)
			row.GPUs = slices.Insert(row.GPUs, at, ReportedGPU{ID: id, First: hour, Last: hour})
		}
	}
}

func (r *NodeGPUs) find(id domain.GPUID) (int, bool) {
	return slices.BinarySearchFunc(r.GPUs, id, func(g ReportedGPU, id domain.GPUID) int { return bytes.Compare(g.ID[:], id[:]) })
}
