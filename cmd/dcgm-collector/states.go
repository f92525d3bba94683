package main

import (
	"time"

	"quartermaster/adapters/dcgm"
	"quartermaster/domain"
	"quartermaster/domain/faults"
)

// states detects changes in readings and turns them into events. It starts without knowledge of the
// devices, so the first values are reported as found.
type states struct {
	last   map[stateKey]float64
	at     map[stateKey]time.Time // when a field was last measured
	mute   map[stateKey]bool      // cannot be read now
	events []dcgm.Event
}

// A value that is older than the previous one is ignored: the driver was asked in between. If it is
// much older, the clock was set back, and the value counts.
const oldValue = 10 * time.Second

type stateKey struct {
	device domain.GPUID
	gpu    uint32 // if the device has no UUID
	field  uint32
	code   uint32 // bit, link
}

// device identifies the device of a value or event.
type device struct {
	index uint32 // index in the inventory + 1; 0: the node
	uuid  domain.GPUID
	gpu   uint32
}

func newStates() *states {
	return &states{last: map[stateKey]float64{}, at: map[stateKey]time.Time{}, mute: map[stateKey]bool{}}
}

// recovery returns the driver's recovery action for a device, + 1, or 0 if it is unknown. The
// action from before a GPU was lost does not apply to the loss.
func (s *states) recovery(d device) uint32 {
	k := stateKey{d.uuid, d.gpu, dcgm.FieldRecovery, 0}
	if v, ok := s.last[k]; ok && !s.mute[k] {
		return uint32(v) + 1
	}
	return 0
}

// muteRecovery records that the driver's recovery action for a device cannot be read.
func (s *states) muteRecovery(d device) {
	s.mute[stateKey{d.uuid, d.gpu, dcgm.FieldRecovery, 0}] = true
}

// take returns the events since the last call.
func (s *states) take() []dcgm.Event {
	out := s.events
	s.events = nil
	return out
}

func (s *states) add(d device, e dcgm.Event) {
	e.Device, e.UUID = d.index, d.uuid
	e.Count = max(e.Count, 1)
	if e.Kind == dcgm.KindLost && !e.Over {
		s.muteRecovery(d)
	}
	if e.Kind != dcgm.KindRecovery {
		e.Recovery = s.recovery(d)
	}
	s.events = append(s.events, e)
}

// observe processes a value of a device.
func (s *states) observe(d device, field uint32, value float64, at time.Time) {
	k := stateKey{d.uuid, d.gpu, field, 0}
	if before := at.Sub(s.at[k]); before < 0 && before > -oldValue {
		return
	}
	s.at[k] = at
	when := domain.InstantOf(at)
	switch field {
	case dcgm.FieldRecovery:
		delete(s.mute, k)
		was, now, known := s.replace(d, field, 0, value)
		if was == now {
			return
		}
		e := dcgm.Event{Kind: dcgm.KindRecovery, Field: field, Code: uint32(now), At: when, Found: !known, Recovery: uint32(now) + 1}
		if now == 0 {
			e.Code, e.Over = uint32(was), true
		}
		s.add(d, e)
	case dcgm.FieldClockReasons:
		for _, bit := range []uint32{dcgm.ReasonThermal, dcgm.ReasonPowerBrake} {
			s.state(d, dcgm.KindThermal, field, bit, uint64(value)&uint64(bit) != 0, when, "")
		}
	case dcgm.FieldRemapPending, dcgm.FieldRemapFailed:
		s.state(d, dcgm.KindRowRemap, field, 0, value > 0, when, "")
	case dcgm.FieldRemapCorrected, dcgm.FieldRemapUncorrectable:
		s.count(d, dcgm.KindRowRemap, field, value, when)
	case dcgm.FieldRetirementPending:
		s.state(d, dcgm.KindPageRetirement, field, 0, value > 0, when, "")
	case dcgm.FieldRetiredCorrected, dcgm.FieldRetiredUncorrectable:
		s.count(d, dcgm.KindPageRetirement, field, value, when)
	case dcgm.FieldECCUncorrectable, dcgm.FieldECCLifetime:
		s.count(d, dcgm.KindECC, field, value, when)
	}
}

// replace stores a value and returns the previous one, or 0 if there was none.
func (s *states) replace(d device, field, code uint32, value float64) (was, now float64, known bool) {
	k := stateKey{d.uuid, d.gpu, field, code}
	was, known = s.last[k]
	s.last[k] = value
	return was, value, known
}

// state adds an event when a lasting condition begins or ends.
func (s *states) state(d device, kind dcgm.Kind, field, code uint32, on bool, at domain.Instant, detail string) {
	value := 0.0
	if on {
		value = 1
	}
	was, now, known := s.replace(d, field, code, value)
	if was != now {
		s.add(d, dcgm.Event{Kind: kind, Field: field, Code: code, At: at, Found: !known, Over: !on, Detail: detail})
	}
}

// count adds an event when a counter has grown. If a counter decreased, the driver was restarted
// and it counts from 0 again. A lifetime counter that decreased was cleared. The first value of a
// lifetime counter is always reported.
func (s *states) count(d device, kind dcgm.Kind, field uint32, value float64, at domain.Instant) {
	was, now, known := s.replace(d, field, 0, value)
	lifetime := faults.Lifetime(field)
	if now < was && !lifetime {
		was = 0
	}
	if now > was || !known && lifetime {
		s.add(d, dcgm.Event{Kind: kind, Field: field, At: at, Found: !known, Count: uint64(now - was), Total: uint64(now)})
	}
}
