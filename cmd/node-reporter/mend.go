package main

import (
	"bytes"
	"context"
	"slices"

	"quartermaster/adapters/dcgm"
	"quartermaster/domain"
)

// A fault that took a device out of service ends, and the end is reported once nothing
// else keeps the device down:
//   - when the state that it was has ended: a check that failed passes, a GPU that was
//     lost is reached again;
//   - when the driver wants nothing done to the GPU any more (DCGM field 1523), unless
//     a check of DCGM failed or the fault asked for a replacement and is fatal by itself;
//   - when another GPU stands in its slot, whatever the fault;
//   - when the node has booted anew, or a GPU that was lost is reached again, which takes
//     a reset, where a reset is what the fault asked for. A state that goes on is told
//     anew.
//
// Nothing else ends one: a GPU with a memory error measures and computes as before. What
// asks for the vendor waits for the driver's word or a person's, "quartermaster node
// return"; what asks for a replacement, for that or a person's.

// over takes the end of a state.
func (r *reporter) over(ctx context.Context, e *dcgm.Event, at domain.Instant) error {
	switch e.Kind {
	case dcgm.KindLost:
		return r.reached(ctx, e.UUID, at)
	case dcgm.KindRecovery:
		// It judges whole GPUs, and no fault that came later, nor what it may not know of.
		return r.ended(ctx, r.withParts(e.UUID), at, "the driver wants nothing done any more", r.memory.ended(e), func(o occurrence, k *recollection) bool {
			return o.Kind != dcgm.KindLost && o.Kind != dcgm.KindHealth && k.Down != untilReplaced && k.Last <= e.At
		})
	}
	return r.ended(ctx, []domain.GPUID{e.UUID}, at, "it has ended: "+e.Kind.String(), r.memory.ended(e), func(o occurrence, _ *recollection) bool { return o == of(e) })
}

// wanted looks whether the driver wants nothing done any more where it did when a run of
// the collector before this one ended. Within a run the collector tells the change.
func (r *reporter) wanted(ctx context.Context, b *dcgm.Readings, at domain.Instant) error {
	for _, v := range b.Readings {
		if v.Field != dcgm.FieldRecovery || v.Status != dcgm.StatusOK || b.Generation != r.sampler.generation || int(v.Device) >= len(r.sampler.devices) {
			continue
		}
		id := r.sampler.devices[v.Device].UUID
		if r.advised[id] || r.advised == nil {
			continue
		}
		r.advised[id] = true
		for o, k := range r.memory.known {
			if v.Value != 0 || o.UUID != id || o.Kind != dcgm.KindRecovery || !k.Active {
				continue
			}
			if err := r.over(ctx, &dcgm.Event{Kind: o.Kind, UUID: id, Code: o.Code, Field: o.Field, At: at, Over: true}, at); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// found looks whether GPUs that were lost are reached again.
func (r *reporter) found(ctx context.Context, at domain.Instant) error {
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

// reached takes that the driver reaches a GPU that was lost.
func (r *reporter) reached(ctx context.Context, id domain.GPUID, at domain.Instant) error {
	changed := r.memory.ended(&dcgm.Event{UUID: id, Kind: dcgm.KindLost})
	return r.ended(ctx, r.withParts(id), at, "the driver reaches it again", changed, func(o occurrence, k *recollection) bool {
		return o.Kind == dcgm.KindLost || k.Down == untilReset && (o.Kind == dcgm.KindXID || o.Kind == dcgm.KindECC)
	})
}

// booted takes under which boot of the node the collector runs. A GPU that is lost, or
// that nobody knows of any more, is not mended by a boot.
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
	return r.ended(ctx, ids, at, "the node was booted anew", true, func(_ occurrence, k *recollection) bool { return k.Down == untilReset })
}

// away reports whether a GPU of this node is lost or not listed.
func (r *reporter) away(id domain.GPUID) bool {
	if i := slices.IndexFunc(r.sampler.devices, func(d dcgm.Device) bool { return d.UUID == id }); i >= 0 {
		return r.sampler.devices[i].Lost
	}
	return slices.ContainsFunc(r.memory.Slots, func(s gpuSlot) bool { return s.UUID == id })
}

// replaced takes that other GPUs stand in the slots of some: the faults of those end.
func (r *reporter) replaced(ctx context.Context, slots []gpuSlot, at domain.Instant) error {
	var ids []domain.GPUID
	for _, s := range slots {
		r.log.Warn("a GPU was replaced in its slot", "gpu", s.UUID.String(), "pci", s.PCI)
		ids = append(ids, s.UUID)
	}
	return r.ended(ctx, ids, at, "another GPU stands in its slot", len(ids) > 0, func(occurrence, *recollection) bool { return true })
}

// ended takes that faults of devices have ended. Changed says that more than that is to
// be remembered.
func (r *reporter) ended(ctx context.Context, ids []domain.GPUID, at domain.Instant, reason string, changed bool, which func(occurrence, *recollection) bool) error {
	for _, id := range ids {
		changed = r.memory.over(id, at, reason, which) || changed
	}
	if !changed {
		return nil
	}
	err := r.sayBack(ctx)
	r.remember()
	return err
}

// sayBack reports the devices that are back in service.
func (r *reporter) sayBack(ctx context.Context) error {
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
