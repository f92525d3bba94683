package main

import (
	"bytes"
	"context"
	"slices"

	"quartermaster/adapters/dcgm"
	"quartermaster/domain"
)

// A fault that took a device out of service ends as follows. The end is reported once no other
// fault keeps the device down:
//   - The fault was a state that has ended: a failed check passes, or a lost GPU is
//     reached again.
//   - The driver no longer requests a recovery action for the GPU (DCGM field 1523).
//     This does not end a failed check of DCGM, or a fault that asks for a replacement
//     and is fatal by itself.
//   - Another GPU is in its slot. This ends every fault.
//   - The fault asks for a reset, and the node has booted again, or a lost GPU is
//     reached again, which takes a reset. If the fault is a state that continues, it
//     is reported again.
//
// Nothing else ends a fault: a GPU with a memory error measures and computes as before. A fault
// that asks for the vendor waits for the driver or for a person ("quartermaster node return"). A
// fault that asks for a replacement waits for that or for a person.

// over handles the end of a state.
func (r *reporter) over(ctx context.Context, e *dcgm.Event, at domain.Instant) error {
	switch e.Kind {
	case dcgm.KindLost:
		return r.reached(ctx, e.UUID, at)
	case dcgm.KindRecovery:
		// The driver's verdict covers whole GPUs. It does not cover later faults, nor faults that
		// the driver may not know.
		withdrawn := func(o occurrence, k *recollection) bool {
			return o.Kind != dcgm.KindLost && o.Kind != dcgm.KindHealth && k.Down != untilReplaced && k.Last <= e.At
		}
		return r.ended(ctx, r.withParts(e.UUID), at, "the driver wants nothing done any more", r.memory.ended(e), withdrawn)
	}
	reason := "it has ended: " + e.Kind.String()
	same := func(o occurrence, _ *recollection) bool { return o == of(e) }
	return r.ended(ctx, []domain.GPUID{e.UUID}, at, reason, r.memory.ended(e), same)
}

// checkRecovery checks whether the driver has stopped requesting a recovery action that it
// requested during an earlier run of the collector. Within a run the collector reports the change.
func (r *reporter) checkRecovery(ctx context.Context, b *dcgm.Readings, at domain.Instant) error {
	for _, v := range b.Readings {
		if v.Field != dcgm.FieldRecovery || v.Status != dcgm.StatusOK {
			continue
		}
		if b.Generation != r.sampler.generation || int(v.Device) >= len(r.sampler.devices) {
			continue
		}
		id := r.sampler.devices[v.Device].UUID
		if r.recoveryKnown[id] || r.recoveryKnown == nil {
			continue
		}
		r.recoveryKnown[id] = true
		for o, k := range r.memory.known {
			if v.Value != 0 || o.UUID != id || o.Kind != dcgm.KindRecovery || !k.Active {
				continue
			}
			end := dcgm.Event{Kind: o.Kind, UUID: id, Code: o.Code, Field: o.Field, At: at, Over: true}
			if err := r.over(ctx, &end, at); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// checkReturned checks whether lost GPUs are reached again.
func (r *reporter) checkReturned(ctx context.Context, at domain.Instant) error {
	for _, d := range r.sampler.devices {
		if k := r.memory.known[occurrence{UUID: d.UUID, Kind: dcgm.KindLost}]; k == nil || !k.Active || d.Parent > 0 || d.Lost {
			continue
		}
		if err := r.reached(ctx, d.UUID, at); err != nil {
			return err
		}
	}
	return nil
}

// reached handles that the driver reaches a lost GPU again.
func (r *reporter) reached(ctx context.Context, id domain.GPUID, at domain.Instant) error {
	changed := r.memory.ended(&dcgm.Event{UUID: id, Kind: dcgm.KindLost})
	byReset := func(o occurrence, k *recollection) bool {
		return o.Kind == dcgm.KindLost || k.Down == untilReset && (o.Kind == dcgm.KindXID || o.Kind == dcgm.KindECC)
	}
	return r.ended(ctx, r.withParts(id), at, "the driver reaches it again", changed, byReset)
}

// booted handles the node's boot id under which the collector runs. A new boot does not repair a
// GPU that is lost or no longer listed.
func (r *reporter) booted(ctx context.Context, boot string, at domain.Instant) error {
	m := r.memory
	if boot == "" || boot == m.BootID {
		return nil
	}
	var ids []domain.GPUID
	for o, k := range m.known {
		if k.Down == untilReset && m.BootID != "" && !slices.Contains(ids, o.UUID) && !r.away(o.UUID) {
			ids = append(ids, o.UUID)
		}
	}
	slices.SortFunc(ids, func(a, b domain.GPUID) int { return bytes.Compare(a[:], b[:]) })
	m.BootID = boot
	byReset := func(_ occurrence, k *recollection) bool { return k.Down == untilReset }
	return r.ended(ctx, ids, at, "the node was booted anew", true, byReset)
}

// away reports whether a GPU of this node is lost or not listed.
func (r *reporter) away(id domain.GPUID) bool {
	if i := slices.IndexFunc(r.sampler.devices, func(d dcgm.Device) bool { return d.UUID == id }); i >= 0 {
		return r.sampler.devices[i].Lost
	}
	return slices.ContainsFunc(r.memory.Slots, func(s gpuSlot) bool { return s.UUID == id })
}

// replaced handles that other GPUs are in the slots of some GPUs, whose faults end.
func (r *reporter) replaced(ctx context.Context, slots []gpuSlot, at domain.Instant) error {
	var ids []domain.GPUID
	for _, s := range slots {
		r.log.Warn("a GPU was replaced in its slot", "gpu", s.UUID.String(), "pci", s.PCI)
		ids = append(ids, s.UUID)
	}
	all := func(occurrence, *recollection) bool { return true }
	return r.ended(ctx, ids, at, "another GPU stands in its slot", len(ids) > 0, all)
}

// ended handles the end of faults of devices. changed says that there are other changes to save.
func (r *reporter) ended(
	ctx context.Context,
	ids []domain.GPUID,
	at domain.Instant,
	reason string,
	changed bool,
	which func(occurrence, *recollection) bool,
) error {
	for _, id := range ids {
		changed = r.memory.over(id, at, reason, which) || changed
	}
	if !changed {
		return nil
	}
	err := r.reportReturns(ctx)
	r.remember()
	return err
}

// reportReturns reports the devices that are back in service.
func (r *reporter) reportReturns(ctx context.Context) error {
	for len(r.memory.Back) > 0 {
		b := r.memory.Back[0]
		ev := &domain.NodeReturned{Node: r.cfg.Node, GPU: b.UUID, Faults: true, Reason: b.Reason}
		if _, err := r.keep(ctx, b.At, ev, makeMendedMemo(b.UUID)); err != nil {
			return err
		}
		r.log.Info("a GPU is back in service", "gpu", b.UUID.String(), "reason", b.Reason)
		r.memory.mended(b.UUID)
	}
	return nil
}

// withParts returns a GPU and the MIG devices of it.
func (r *reporter) withParts(id domain.GPUID) []domain.GPUID {
	ids := []domain.GPUID{id}
	devices := r.sampler.devices
	i := slices.IndexFunc(devices, func(d dcgm.Device) bool { return d.Parent == 0 && d.UUID == id })
	if i < 0 || id == (domain.GPUID{}) {
		return ids
	}
	for _, d := range devices {
		if int(d.Parent) == i+1 && d.UUID != (domain.GPUID{}) {
			ids = append(ids, d.UUID)
		}
	}
	return ids
}
