package dcgm

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/faults"
)

func TestFault(t *testing.T) {
	fault := func(kind domain.FaultKind, code, field uint32, class, action string, fatal bool, detail string) domain.GPUFaultObserved {
		return domain.GPUFaultObserved{Node: "n", GPU: id, Kind: kind, Code: code, Field: field, Count: 1, Class: class, Action: action, Fatal: fatal, Detail: detail}
	}
	for _, c := range []struct {
		e    Event
		want domain.GPUFaultObserved
	}{
		{Event{Kind: KindXID, Code: 79, Field: FieldXID}, fault(domain.FaultXID, 79, 230, "hardware", "reboot_node", true, "the GPU fell off the bus")},
		{Event{Kind: KindXID, Code: 13, Field: FieldXID, Recovery: 5}, fault(domain.FaultXID, 13, 230, "app", "drain_and_reset", false, "exception in a kernel: an address or an instruction that is not valid")},
		{Event{Kind: KindXID, Code: 4711, Field: FieldXID}, fault(domain.FaultXID, 4711, 230, "", "look_up", false, "xid 4711 is in no table: look it up and add it")},
		{Event{Kind: KindRecovery, Code: 2, Field: FieldRecovery}, fault(domain.FaultHealth, 2, 1523, "driver", "reboot_node", true, "the driver wants the node rebooted")},
		{Event{Kind: KindHealth, Code: 120, Failed: true, Detail: "the GPU is not there"}, fault(domain.FaultHealth, 120, 0, "hardware", "reboot_node", true, "the GPU fell off the bus: the GPU is not there")},
		{Event{Kind: KindHealth, Code: 120}, fault(domain.FaultHealth, 120, 0, "hardware", "reboot_node", false, "the GPU fell off the bus")},
		{Event{Kind: KindHealth, Code: 120, Failed: true, Recovery: 1}, fault(domain.FaultHealth, 120, 0, "hardware", "reboot_node", true, "the GPU fell off the bus")},
		{Event{Kind: KindRowRemap, Field: FieldRemapFailed, Recovery: 1}, fault(domain.FaultRowRemap, 0, 395, "hardware", "replace_gpu", true, "a row of memory could not be remapped")},
		{Event{Kind: KindXID, Code: 79, Field: FieldXID, Recovery: 1}, fault(domain.FaultXID, 79, 230, "hardware", "reboot_node", true, "the GPU fell off the bus")},
		{Event{Kind: KindRecovery, Code: 6, Field: FieldRecovery}, fault(domain.FaultHealth, 6, 1523, "driver", "reset_bus", true, "the driver wants the GPU's PCIe bus reset")},
		{Event{Kind: KindNVLink, Code: 3}, fault(domain.FaultNVLink, 3, 0, "hardware", "check_link", false, "an NVLink is down")},
		{Event{Kind: KindRowRemap, Field: FieldRemapFailed}, fault(domain.FaultRowRemap, 0, 395, "hardware", "replace_gpu", true, "a row of memory could not be remapped")},
		{Event{Kind: KindECC, Field: FieldECCLifetime}, fault(domain.FaultECC, 0, 313, "hardware", "reset_gpu", true, "memory errors that could not be corrected")},
		{Event{Kind: KindPageRetirement, Field: FieldRetiredCorrected}, fault(domain.FaultPageRetirement, 0, 390, "hardware", "monitor", false, "pages of memory were retired after errors that were corrected")},
		{Event{Kind: KindPageRetirement, Field: FieldRetiredUncorrectable}, fault(domain.FaultPageRetirement, 0, 391, "hardware", "reset_when_idle", false, "pages of memory were retired after errors that could not be corrected")},
		{Event{Kind: KindPageRetirement, Field: FieldRetirementPending}, fault(domain.FaultPageRetirement, 0, 392, "hardware", "reset_when_idle", false, "pages of memory are to be retired at the next reset")},
		{Event{Kind: KindECC, Field: FieldECCUncorrectable}, fault(domain.FaultECC, 0, 311, "hardware", "reset_gpu", true, "memory errors that could not be corrected")},
		{Event{Kind: KindThermal, Code: ReasonPowerBrake}, fault(domain.FaultThermal, 128, 0, "hardware", "check_power", false, "the hardware lowers clocks because power is short")},
		{Event{Kind: KindLost}, fault(domain.FaultOffBus, 0, 0, "hardware", "reboot_node", true, "the driver reaches the GPU no more")},
	} {
		c.e.UUID, c.e.Count = id, 1
		f, v, ok := Fault(faults.Standard(), "n", c.e, 0)
		if !ok || *f != c.want || v.Known == (c.e.Code == 4711) {
			t.Errorf("%+v:\n got %+v, known %v\nwant %+v", c.e, f, v.Known, c.want)
		}
	}
	for _, e := range []Event{{Kind: KindRecovery}, {Kind: KindNVLink, Over: true}} {
		if f, _, ok := Fault(faults.Standard(), "n", e, 0); ok {
			t.Errorf("%+v is a fault: %+v", e, f)
		}
	}
}
