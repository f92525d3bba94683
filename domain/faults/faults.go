// Package faults interprets GPU faults: the likely cause, the action to take, and
// whether the device can work until then.
//
// The knowledge is data, table.txt, with a version. A file of the same form replaces
// entries of it ([Table.With]). Two rules override the table:
//
//   - The recovery that the driver requests (DCGM field 1523, from R570 on) replaces the
//     table's action. But a verdict to replace the GPU stands whatever the driver
//     requests, and a milder request does not clear a failed health check or a fault
//     whose action is more than a reset.
//   - A code that is not in the table keeps its number, has no class, and asks for
//     someone to look it up. It is never dropped or guessed. A recovery that is not in
//     the table keeps the GPU down until it is mapped.
package faults

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"quartermaster/domain"
)

// Sort is the numbering scheme of a fault's code.
type Sort string

// The sorts of faults.
const (
	XID      Sort = "xid"      // the driver
	Health   Sort = "health"   // DCGM's health checks
	Recovers Sort = "recovery" // the driver's requested recovery
	Sign     Sort = "sign"     // the collector, by name
)

// Names of signs.
const (
	OffTheBus            = "off_the_bus"
	NVLinkDown           = "nvlink_down"
	RemapPending         = "remap_pending"
	RemapFailed          = "remap_failed"
	RemapCorrected       = "remap_corrected"
	RemapUncorrectable   = "remap_uncorrectable"
	ECCUncorrectable     = "ecc_uncorrectable"
	RetirementPending    = "retirement_pending"
	RetiredCorrected     = "retired_corrected"
	RetiredUncorrectable = "retired_uncorrectable"
	ThermalSlowdown      = "thermal_slowdown"
	PowerBrake           = "power_brake"
)

var signs = []string{OffTheBus, NVLinkDown, RemapPending, RemapFailed, RemapCorrected, RemapUncorrectable,
	ECCUncorrectable, RetirementPending, RetiredCorrected, RetiredUncorrectable, ThermalSlowdown, PowerBrake}

// Actions for a fault.
const (
	ActionNone                 = "none"
	ActionMonitor              = "monitor"
	ActionFollowCause          = "follow_cause" // another fault determines the action
	ActionRestartWorkload      = "restart_workload"
	ActionResetGPU             = "reset_gpu" // drain the GPU, then reset it
	ActionResetWhenIdle        = "reset_when_idle"
	ActionDrainP2P             = "drain_p2p"       // stop traffic between GPUs
	ActionDrainAndReset        = "drain_and_reset" // let work finish, then reset
	ActionResetBus             = "reset_bus"
	ActionRebootNode           = "reboot_node"
	ActionRecoverIMEX          = "recover_imex" // the memory domain that nodes share over NVLink
	ActionRestartVM            = "restart_vm"
	ActionUpdateDriver         = "update_driver"
	ActionRestartFabricManager = "restart_fabric_manager"
	ActionRereadCapacity       = "reread_capacity"
	ActionRunDiagnostics       = "run_diagnostics"
	ActionCheckPower           = "check_power"
	ActionCheckCooling         = "check_cooling"
	ActionCheckLink            = "check_link"
	ActionCheckPCIe            = "check_pcie"
	ActionReplaceGPU           = "replace_gpu"
	ActionContactSupport       = "contact_support"
	ActionLookUp               = "look_up" // the code is not classified yet
)

// Actions lists the actions that a table may use.
var Actions = []string{ActionNone, ActionMonitor, ActionFollowCause, ActionRestartWorkload, ActionResetGPU,
	ActionResetWhenIdle, ActionDrainP2P, ActionDrainAndReset, ActionResetBus, ActionRebootNode, ActionRecoverIMEX,
	ActionRestartVM, ActionUpdateDriver, ActionRestartFabricManager, ActionRereadCapacity,
	ActionRunDiagnostics, ActionCheckPower, ActionCheckCooling,
	ActionCheckLink, ActionCheckPCIe, ActionReplaceGPU, ActionContactSupport, ActionLookUp}

// Classes lists the classes of causes.
var Classes = []string{"app", "driver", "hardware"}

// Entry is one fault's entry in the table.
type Entry struct {
	Sort    Sort
	Code    string // a number, or the name of a sign
	Class   string
	Action  string
	Again   string // action when it recurs on the same device
	Fatal   bool   // the device cannot work until the action was taken
	Meaning string
}

// Recovery is the recovery that the driver requests: DCGM field 1523 plus one. Zero means that the
// driver does not report it. The numbers are those of NVML's enum nvmlDeviceGpuRecoveryAction_t.
type Recovery uint32

// Recoveries that a driver may request.
const (
	RecoveryUnknown Recovery = iota
	RecoveryNone
	RecoveryReset
	RecoveryReboot
	RecoveryDrainP2P
	RecoveryDrainAndReset
	RecoveryIMEX
	RecoveryResetBus
	RecoveryRebootSystem
)

// Verdict is the interpretation of a fault.
type Verdict struct {
	Class   string // "" where the code is unknown
	Action  string
	Fatal   bool
	Meaning string
	Known   bool // the table has the code; callers warn if it does not
	Driver  bool // the action comes from the driver, or the fault is fatal only because of the driver
}

// Table interprets faults. It is immutable.
type Table struct {
	version string
	entries map[key]Entry
}

type key struct {
	sort Sort
	code string
}

//go:embed table.txt
var own string

var standard = func() *Table {
	t, err := Parse("domain/faults/table.txt", own)
	if err != nil {
		panic(err) // a test reads it as well
	}
	return t
}()

// Standard returns the built-in table.
func Standard() *Table { return standard }

// Version is the table's version, which results state: "1", or "1+7" if entries of a table with
// version 7 replaced entries of version 1.
func (t *Table) Version() string { return t.version }

// Entries returns the table's entries, by sort and code.
func (t *Table) Entries() []Entry {
	es := slices.Collect(maps.Values(t.entries))
	slices.SortFunc(es, func(a, b Entry) int {
		if a.Sort != b.Sort {
			return strings.Compare(string(a.Sort), string(b.Sort))
		}
		if len(a.Code) != len(b.Code) && a.Sort != Sign {
			return len(a.Code) - len(b.Code)
		}
		return strings.Compare(a.Code, b.Code)
	})
	return es
}

// With returns a table in which the entries of other replace those of t.
func (t *Table) With(other *Table) *Table {
	n := &Table{version: t.version + "+" + other.version, entries: maps.Clone(t.entries)}
	maps.Copy(n.entries, other.entries)
	return n
}

// Judge interprets a fault with a numeric code. seen is how often it occurred on this device
// before. recovery is what the driver currently requests for the device.
func (t *Table) Judge(sort Sort, code uint32, recovery Recovery, seen uint64) Verdict {
	return t.judge(sort, strconv.FormatUint(uint64(code), 10), recovery, seen)
}

// JudgeSign is Judge for faults that the collector detected itself.
func (t *Table) JudgeSign(name string, recovery Recovery, seen uint64) Verdict {
	return t.judge(Sign, name, recovery, seen)
}

func (t *Table) judge(sort Sort, code string, recovery Recovery, seen uint64) Verdict {
	e, ok := t.entries[key{sort, code}]
	v := Verdict{Class: e.Class, Action: e.Action, Fatal: e.Fatal, Meaning: e.Meaning, Known: ok}
	if !ok {
		v.Action, v.Meaning = ActionLookUp, fmt.Sprintf("%s %s is in no table: look it up and add it", sort, code)
	}
	if ok && seen > 0 && e.Again != "" {
		v.Action = e.Again
	}
	if !ok && sort == Recovers {
		v.Fatal = true
	}
	if recovery == RecoveryUnknown {
		return v
	}
	r, ok := t.entries[key{Recovers, strconv.FormatUint(uint64(recovery-1), 10)}]
	if !ok {
		r.Action, r.Fatal = ActionContactSupport, true
		v.Meaning += fmt.Sprintf("; the driver wants recovery %d, which is in no table", recovery-1)
	}
	if v.Action == ActionReplaceGPU { // the driver cannot request more
		v.Driver = r.Fatal && !v.Fatal
		v.Fatal = v.Fatal || r.Fatal
		return v
	}
	// The driver knows the state of the device; the table knows only the code. But the driver may
	// be unaware of faults that a reset does not repair, and of what DCGM's own check found.
	if v.Fatal && !r.Fatal && (sort == Health || v.Action != ActionResetGPU) {
		return v
	}
	// A driver that requests nothing for the device says that the device works. It says nothing
	// about the workload that was hit.
	if v.Fatal = r.Fatal; recovery != RecoveryNone {
		v.Action, v.Driver = r.Action, true
	}
	return v
}

// Apply writes the verdict into the event that reports the fault.
func (v Verdict) Apply(e *domain.GPUFaultObserved) {
	e.Class, e.Action, e.Fatal = v.Class, v.Action, v.Fatal
	switch {
	case e.Detail == "":
		e.Detail = v.Meaning
	case v.Meaning != "":
		e.Detail = v.Meaning + ": " + e.Detail
	}
}

// Lifetime reports whether a DCGM field counts over the life of the GPU, across resets and reboots,
// because the GPU keeps the count in its InfoROM: aggregate ECC errors, retired pages, remapped
// rows. The first value covers the time before monitoring, maybe years ago, and is not a fault; an
// increase is. A counter that shrank was cleared. Sources: dcgm_fields.h of DCGM 4.5 ("aggregate
// (persistent)", "monotonically increasing"), and NVIDIA's manuals "Dynamic Page Retirement" and
// "GPU Memory Error Management" (remapped rows).
func Lifetime(field uint32) bool {
	switch field {
	case 313, 390, 391, 393, 394:
		return true
	}
	return false
}
