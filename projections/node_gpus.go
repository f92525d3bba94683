package projections

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"quartermaster/domain"
)

// NodeGPUs is the row of a node and UTC month: which GPUs were reported under the node's name. It
// allows finding a GPU that was reported under two names without reading usage; see aliases.go. It
// also records what was appended after the month.
type NodeGPUs struct {
	GPUs   []ReportedGPU `json:"gpus"`             // by id
	Models []ToldModel   `json:"models,omitempty"` // by id
	Late   []LateDay     `json:"late,omitempty"`   // by day; see [maxLateDays]
}

// LateDay sums up samples of a month that were appended after its end, on one UTC day, or for the
// first entry of a row on several days.
type LateDay struct {
	_     struct{}       `cbor:",toarray"`
	First domain.Instant `json:"first"` // append
	Last  domain.Instant `json:"last"`  // append
	// GPUMs is the time of physical GPUs in the samples, in milliseconds. Time in two samples
	// counts twice.
	GPUMs int64 `json:"gpu_ms"`
}

// ReportedGPU is a physical GPU with the first and the last hour of the month in which it, an
// instance or a replica of it was reported, in hours since 1970.
type ReportedGPU struct {
	_     struct{}     `cbor:",toarray"`
	ID    domain.GPUID `json:"uuid"`
	First int64        `json:"first_hour"`
	Last  int64        `json:"last_hour"`
}

// ToldModel is the model of a physical GPU according to the first sample of it in an hour. Of
// several models the one of the latest hour counts, and within an hour the last in byte order.
type ToldModel struct {
	_     struct{}     `cbor:",toarray"`
	ID    domain.GPUID `json:"uuid"`
	Model string       `json:"model"`
	Hour  int64        `json:"hour"` // since 1970
}

// After reports whether a model takes precedence over another of the same GPU.
func (m ToldModel) After(o ToldModel) bool {
	return cmp.Or(cmp.Compare(m.Hour, o.Hour), cmp.Compare(m.Model, o.Model)) > 0
}

func (*NodeGPUs) row() {}

// maxNodeGPUsNoted bounds a row, because labels can name any number of GPUs. A node has at most
// some dozens in a month. GPUs beyond the bound are not looked up under other names.
const maxNodeGPUsNoted = 4096

// maxModelNoted bounds the model of a GPU, in bytes; a longer one is not recorded. It is
// NVML_DEVICE_NAME_V2_BUFFER_SIZE of nvml.h.
const maxModelNoted = 96

func nodeGPUsKey(scope, node string, at domain.Instant) Key {
	return Key{Table: TableNodeGPUs, Scope: scope, ID: node, Hour: MonthStart(at)}
}

// noteGPUs records that a sample's GPUs were reported in the hour that begins at h.
func noteGPUs(rows *WorkingSet, scope string, s *domain.NodeSampled, h domain.Instant) {
	key, hour := nodeGPUsKey(scope, s.Node, h), HourOf(h)
	for i := range s.Entries() {
		id := physical(s, i)
		row, _ := rows.Get(key).(*NodeGPUs)
		at, known := 0, false
		if row != nil {
			at, known = row.Find(id)
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
		if model := s.Text(s.Model, i); model != "" && len(model) <= maxModelNoted {
			noteModel(rows, key, ToldModel{ID: id, Model: model, Hour: hour})
		}
	}
}

// noteModel records the reported model of a GPU.
func noteModel(rows *WorkingSet, key Key, m ToldModel) {
	row, _ := rows.Get(key).(*NodeGPUs)
	if row == nil {
		return
	}
	byID := func(t ToldModel, id domain.GPUID) int { return bytes.Compare(t.ID[:], id[:]) }
	at, known := slices.BinarySearchFunc(row.Models, m.ID, byID)
	if known && !m.After(row.Models[at]) || !known && len(row.Models) >= maxNodeGPUsNoted {
		return
	}
	m.Model = strings.Clone(m.Model)
	row = change[*NodeGPUs](rows, key)
	if known {
		row.Models[at] = m
	} else {
		row.Models = slices.Insert(row.Models, at, m)
	}
}

// physical returns the GPU that an entry of a sample is or is a part of.
func physical(s *domain.NodeSampled, i int) domain.GPUID {
	if len(s.Parent) > 0 && s.Parent[i] > 0 {
		return domain.GPUID(s.Parents[16*(s.Parent[i]-1):])
	}
	return domain.GPUID(s.IDs[16*i:])
}

// Find returns the index of a GPU in the row, or where to insert it, and whether it is there.
func (r *NodeGPUs) Find(id domain.GPUID) (int, bool) {
	byID := func(g ReportedGPU, id domain.GPUID) int { return bytes.Compare(g.ID[:], id[:]) }
	return slices.BinarySearchFunc(r.GPUs, id, byID)
}

// maxLateDays bounds the late days of a row. A reporter's samples arrive within 8 days ([maxLate]).
// Beyond the bound the two earliest days are merged.
const maxLateDays = 32

// noteLate records a part of a sample, of ms milliseconds in the hour that begins at h, if it was
// appended after the month of that hour.
func noteLate(rows *WorkingSet, scope string, s *domain.NodeSampled, h domain.Instant, ms uint32, appended domain.Instant) {
	if appended < h+domain.Hour || appended < BillingMonth(h).To {
		return
	}
	gpus := make([]domain.GPUID, s.Entries())
	for i := range gpus {
		gpus[i] = physical(s, i)
	}
	slices.SortFunc(gpus, func(a, b domain.GPUID) int { return bytes.Compare(a[:], b[:]) })
	row := change[*NodeGPUs](rows, nodeGPUsKey(scope, s.Node, h))
	row.late(LateDay{First: appended, Last: appended, GPUMs: int64(ms) * int64(len(slices.Compact(gpus)))})
}

// late adds to the day that it overlaps.
func (r *NodeGPUs) late(more LateDay) {
	i, known := slices.BinarySearchFunc(r.Late, more, func(d, more LateDay) int {
		switch {
		case d.Last < more.First.DayStart():
			return -1
		case d.First.DayStart() > more.Last:
			return 1
		}
		return 0
	})
	if known {
		d := &r.Late[i]
		d.First, d.Last, d.GPUMs = min(d.First, more.First), max(d.Last, more.Last), d.GPUMs+more.GPUMs
		return
	}
	r.Late = slices.Insert(r.Late, i, more)
	if len(r.Late) > maxLateDays {
		r.Late[1].First = r.Late[0].First
		r.Late[1].GPUMs += r.Late[0].GPUMs
		r.Late = slices.Delete(r.Late, 0, 1)
	}
}
