package dcgm

import (
	"fmt"

	"quartermaster/domain"
	"quartermaster/domain/faults"
)

// Ids of the DCGM fields that report faults. Releases of DCGM renamed fields, but kept their
// ids.
const (
	FieldXID                  = 230
	FieldECCUncorrectable     = 311
	FieldECCLifetime          = 313
	FieldRetiredCorrected     = 390
	FieldRetiredUncorrectable = 391
	FieldRetirementPending    = 392
	FieldRemapUncorrectable   = 393
	FieldRemapCorrected       = 394
	FieldRemapFailed          = 395
	FieldRemapPending         = 396
	FieldClockReasons         = 112
	FieldRecovery             = 1523
)

// Bits of FieldClockReasons that are set while the hardware protects itself (nvml.h,
// nvmlClocksEventReasons).
const (
	ReasonThermal    = 0x40 // hardware thermal slowdown
	ReasonPowerBrake = 0x80 // hardware power brake slowdown
)

// Fault returns the log event for e, with the verdict of the table. Seen is how often the
// device had a fault of this kind before. Ok is false if e is not a fault: a state ended, or
// the driver no longer asks for a recovery. The caller should warn about a verdict that is not
// Known.
func Fault(t *faults.Table, node string, e Event, seen uint64) (f *domain.GPUFaultObserved, v faults.Verdict, ok bool) {
	if e.Over {
		return nil, v, false
	}
	recovery := faults.Recovery(e.Recovery)
	f = &domain.GPUFaultObserved{Node: node, GPU: e.UUID, Code: e.Code, Field: e.Field, Count: e.Count, Detail: e.Detail}
	sign := func(kind domain.FaultKind, name string) {
		f.Kind, v = kind, t.JudgeSign(name, recovery, seen)
	}
	switch e.Kind {
	case KindXID:
		f.Kind, v = domain.FaultXID, t.Judge(faults.XID, e.Code, recovery, seen)
	case KindRecovery:
		if e.Code == 0 {
			return nil, v, false
		}
		f.Kind, v = domain.FaultHealth, t.Judge(faults.Recovers, e.Code, faults.RecoveryUnknown, seen)
		v.Driver = true
	case KindHealth:
		f.Kind, v = domain.FaultHealth, t.Judge(faults.Health, e.Code, recovery, seen)
		if !e.Failed {
			v.Fatal = false // DCGM itself only warns
		}
	case KindNVLink:
		sign(domain.FaultNVLink, faults.NVLinkDown)
	case KindRowRemap:
		switch e.Field {
		case FieldRemapPending:
			sign(domain.FaultRowRemap, faults.RemapPending)
		case FieldRemapFailed:
			sign(domain.FaultRowRemap, faults.RemapFailed)
		case FieldRemapCorrected:
			sign(domain.FaultRowRemap, faults.RemapCorrected)
		default:
			sign(domain.FaultRowRemap, faults.RemapUncorrectable)
		}
	case KindPageRetirement:
		switch e.Field {
		case FieldRetirementPending:
			sign(domain.FaultPageRetirement, faults.RetirementPending)
		case FieldRetiredCorrected:
			sign(domain.FaultPageRetirement, faults.RetiredCorrected)
		default:
			sign(domain.FaultPageRetirement, faults.RetiredUncorrectable)
		}
	case KindECC:
		sign(domain.FaultECC, faults.ECCUncorrectable)
	case KindThermal:
		if e.Code == ReasonPowerBrake {
			sign(domain.FaultThermal, faults.PowerBrake)
		} else {
			sign(domain.FaultThermal, faults.ThermalSlowdown)
		}
	case KindLost:
		sign(domain.FaultOffBus, faults.OffTheBus)
	default:
		f.Kind, v.Meaning, v.Action = domain.FaultHealth, fmt.Sprintf("event of kind %d", e.Kind), faults.ActionLookUp
	}
	v.Apply(f)
	return f, v, true
}
