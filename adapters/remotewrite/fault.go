package remotewrite

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/faults"
)

// Ids of the DCGM fields that indicate faults. faultFields has the names that dcgm-exporter gives
// them. Source: dcgm_fields.h of DCGM 4.5. The exporter lists them in etc/default-counters.csv,
// most of them disabled.
const (
	fieldXID               = 230
	fieldECC               = 311 // since the driver was loaded
	fieldECCLifetime       = 313
	fieldRetiredSBE        = 390
	fieldRetiredDBE        = 391
	fieldRetirementPending = 392
	fieldRemapped          = 393
	fieldRemapFailed       = 395
	fieldRemapPending      = 396
)

var faultFields = map[string]uint32{
	"DCGM_FI_DEV_XID_ERRORS":                  fieldXID,
	"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL":           fieldECC,
	"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL":           fieldECCLifetime,
	"DCGM_FI_DEV_RETIRED_SBE":                 fieldRetiredSBE,
	"DCGM_FI_DEV_RETIRED_DBE":                 fieldRetiredDBE,
	"DCGM_FI_DEV_RETIRED_PENDING":             fieldRetirementPending,
	"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": fieldRemapped,
	"DCGM_FI_DEV_ROW_REMAP_FAILURE":           fieldRemapFailed,
	"DCGM_FI_DEV_ROW_REMAP_PENDING":           fieldRemapPending,
}

// faultKey identifies a fault gauge of a GPU.
type faultKey struct {
	node  string
	gpu   domain.GPUID
	field uint32
}

// faultSample is a value of a fault gauge.
type faultSample struct {
	faultKey
	count
}

// fault takes a series of dcgm-exporter that indicates faults.
func (s *scan) fault(m *metric) {
	at, ok := s.deviceOf()
	if !ok {
		return
	}
	d := &s.gpus.devices[at]
	k := faultKey{s.gpus.nodes[d.node], d.id, m.field}
	if d.parent != (domain.GPUID{}) {
		k.gpu = d.parent
	}
	for _, x := range s.samples {
		if v, ok := s.usable(x, m); ok {
			s.spend(perEvent)
			s.faults = append(s.faults, faultSample{k, count{v, x.time}})
		}
	}
}

// faultsOfGPUs appends a fault for each gauge value that reports new faults ([faultSample.news]).
// The value of a gauge before this process first saw it is read from the log. The caller MUST call
// noted once the events are in the log.
func (s *scan) faultsOfGPUs(events []domain.Envelope) (out []domain.Envelope, noted func()) {
	if len(s.faults) == 0 {
		return events, func() {}
	}
	slices.SortFunc(s.faults, func(a, b faultSample) int {
		return cmp.Or(
			cmp.Compare(a.node, b.node),
			bytes.Compare(a.gpu[:], b.gpu[:]),
			cmp.Compare(a.field, b.field),
			cmp.Compare(a.time, b.time),
		)
	})
	c := s.cluster
	c.mu.Lock()
	last := make(map[faultKey]count, len(s.faults))
	for _, f := range s.faults {
		if had, ok := c.kube.faults[f.faultKey]; ok {
			last[f.faultKey] = had
		}
	}
	c.mu.Unlock()
	// Samples of a gauge are adjacent, and the log is asked once for each gauge.
	var asked faultKey
	for _, f := range s.faults {
		had, known := last[f.faultKey]
		if known && f.time <= had.time {
			s.drop(noNews, 1)
			continue
		}
		more := f.news(had.value, known)
		// For a lifetime counter the log is asked even if the value is known here, because another
		// instance may have reported the increase already.
		if s.cfg.Faulted != nil && asked != f.faultKey && f.value != 0 && (!known || more > 0 && faults.Lifetime(f.field)) {
			asked = f.faultKey
			detail, err := s.cfg.Faulted(c.name, f.node, f.gpu, f.field)
			if told, ok := f.told(detail); err == nil && ok && (!known || told == f.value) {
				more = f.news(told, true) // the folds remove duplicates of about the same time
			}
		}
		last[f.faultKey] = f.count
		if more == 0 {
			s.drop(noNews, 1)
			continue
		}
		ev := f.fault()
		ev.Count = more
		s.account.samples[mapped]++
		events = append(events, domain.Envelope{
			Cluster: c.name, Subject: f.node, Time: domain.Instant(f.time) * 1_000_000, Event: ev,
		})
	}
	return events, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.kube.faults) >= maxFacts*8 {
			clear(c.kube.faults)
		}
		for k, v := range last {
			if v.time > c.kube.faults[k].time {
				c.kube.faults[k] = v
			}
		}
	}
}

// news returns how many faults a value reports. before is the previous value, if known:
//   - A lifetime counter ([faults.Lifetime]) reports its increase. Its first value
//     reports nothing, because it happened before anybody looked, maybe years ago.
//     If it decreased, it was cleared and reports nothing.
//   - A counter since the driver was loaded reports its increase. Its first value, or
//     one after a decrease, is reported whole: the driver was loaded again.
//   - A state, such as a pending retirement, and the last XID, which the exporter
//     holds for as long as it runs, report one fault when they change to a value
//     other than zero. This includes the first value.
func (f faultSample) news(before uint64, known bool) uint64 {
	grew := known && f.value > before
	switch {
	case f.value == 0 || known && f.value == before:
		return 0
	case faults.Lifetime(f.field) && !grew:
		return 0
	case grew && (faults.Lifetime(f.field) || f.field == fieldECC):
		return f.value - before
	case f.field == fieldECC:
		return f.value
	}
	return 1
}

// detailFormat is the end of a fault's detail: the field and its value.
const detailFormat = "DCGM field %d is %d"

// told reads the value from the detail of a fault of the same field. The detail begins with the
// meaning of the verdict.
func (k faultKey) told(detail string) (value uint64, ok bool) {
	var field uint32
	i := max(0, strings.LastIndex(detail, "DCGM field "))
	_, err := fmt.Sscanf(detail[i:], detailFormat, &field, &value)
	return value, err == nil && field == k.field
}

// fault returns the fault that a value indicates.
func (f faultSample) fault() *domain.GPUFaultObserved {
	ev := &domain.GPUFaultObserved{
		Node:   strings.Clone(f.node),
		GPU:    f.gpu,
		Field:  f.field,
		Detail: fmt.Sprintf(detailFormat, f.field, f.value),
	}
	t := faults.Standard()
	sign := func(kind domain.FaultKind, name string) faults.Verdict {
		ev.Kind = kind
		return t.JudgeSign(name, faults.RecoveryUnknown, 0)
	}
	var v faults.Verdict
	switch f.field {
	case fieldXID:
		ev.Kind, ev.Code = domain.FaultXID, uint32(f.value)
		v = t.Judge(faults.XID, ev.Code, faults.RecoveryUnknown, 0)
	case fieldECC, fieldECCLifetime:
		v = sign(domain.FaultECC, faults.ECCUncorrectable)
	case fieldRetiredSBE:
		v = sign(domain.FaultPageRetirement, faults.RetiredCorrected)
	case fieldRetiredDBE:
		v = sign(domain.FaultPageRetirement, faults.RetiredUncorrectable)
	case fieldRetirementPending:
		v = sign(domain.FaultPageRetirement, faults.RetirementPending)
	case fieldRemapped:
		v = sign(domain.FaultRowRemap, faults.RemapUncorrectable)
	case fieldRemapFailed:
		v = sign(domain.FaultRowRemap, faults.RemapFailed)
	default:
		v = sign(domain.FaultRowRemap, faults.RemapPending)
	}
	v.Apply(ev)
	return ev
}
