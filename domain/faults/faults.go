// Package faults says what a fault of a GPU means: whose it is, what to do, and
// whether the device can work meanwhile.
//
// The knowledge is data, table.txt, with a version; a file of the same form
// replaces entries of it ([Table.With]). Two things stand above the table. The
// recovery that the driver itself wants (DCGM field 1523, from R570 on) wins over
// the table's action, except where the driver cannot know better: a verdict to
// replace the GPU stands whatever it wants, and what is milder than the table ends
// no failed health check and no fault that asks for more than a reset. And a code
// that no table has keeps its number, belongs to no class, and asks for someone to
// look: it never is dropped or guessed. A recovery that no table has holds the GPU
// down until it is mapped.
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

// Sort says who numbers a fault.
type Sort string

// The sorts of faults.
const (
	XID      Sort = "xid"      // the driver
	Health   Sort = "health"   // DCGM's health checks
	Recovers Sort = "recovery" // the driver, by what it wants done
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

// What can be done about a fault.
const (
	ActionNone                 = "none"
	ActionMonitor              = "monitor"
	ActionFollowCause          = "follow_cause" // another fault says what to do
	ActionRestartWorkload      = "restart_workload"
	ActionResetGPU             = "reset_gpu" // drain the GPU, then reset it
	ActionResetWhenIdle        = "reset_when_idle"
	ActionDrainP2P             = "drain_p2p"       // stop traffic between GPUs
	ActionDrainAndReset        = "drain_and_reset" // let work end, then reset
	ActionResetBus             = "reset_bus"
	ActionRebootNode           = "reboot_node"
	ActionRecoverIMEX          = "recover_imex" // the domain of memory that nodes share over NVLink
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
	ActionLookUp               = "look_up" // nobody has classified the code yet
)

// Actions lists what a table may name.
var Actions = []string{ActionNone, ActionMonitor, ActionFollowCause, ActionRestartWorkload, ActionResetGPU,
	ActionResetWhenIdle, ActionDrainP2P, ActionDrainAndReset, ActionResetBus, ActionRebootNode, ActionRecoverIMEX,
	ActionRestartVM, ActionUpdateDriver, ActionRestartFabricManager, ActionRereadCapacity, ActionRunDiagnostics, ActionCheckPower, ActionCheckCooling,
	ActionCheckLink, ActionCheckPCIe, ActionReplaceGPU, ActionContactSupport, ActionLookUp}

// Classes lists where the cause of a fault may be looked for.
var Classes = []string{"app", "driver", "hardware"}

// Entry is what the table says of one fault.
type Entry struct {
	Sort    Sort
	Code    string // a number, or the name of a sign
	Class   string
	Action  string
	Again   string // when it comes back on the same device
	Fatal   bool   // the device cannot work until that was done
	Meaning string
}

// Recovery is what the driver wants done, as DCGM field 1523 gives it, plus one:
// zero is a driver that does not say. The numbers are those of NVML's enum
// nvmlDeviceGpuRecoveryAction_t.
type Recovery uint32

// What a driver may want.
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

// Verdict is what is known of a fault.
type Verdict struct {
	Class   string // "" where the code is unknown
	Action  string
	Fatal   bool
	Meaning string
	Known   bool // the table has the code; a caller warns when it does not
	Driver  bool // the action is what the driver wants, or it is fatal because of that alone
}

// Table says what faults mean. It is never changed after it was made.
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

// Standard returns the project's own table.
func Standard() *Table { return standard }

// Version is the table's own, for results to name: "1", or "1+7" where entries of a
// table with version 7 replaced some of version 1.
func (t *Table) Version() string { return t.version }

// Entries returns what the table holds, by sort and code.
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

// Judge says what a fault with a number means. Seen is how often it was seen on this
// device before, and recovery is what the driver wants of the device right now.
func (t *Table) Judge(sort Sort, code uint32, recovery Recovery, seen uint64) Verdict {
	return t.judge(sort, strconv.FormatUint(uint64(code), 10), recovery, seen)
}

// JudgeSign does the same for what the collector saw by itself.
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
	if v.Action == ActionReplaceGPU { // nothing that the driver wants is more
		v.Driver = r.Fatal && !v.Fatal
		v.Fatal = v.Fatal || r.Fatal
		return v
	}
	// The driver knows the state of the device, and the table only the code. But of what
	// a reset does not mend, and what DCGM's own check found, it may know nothing.
	if v.Fatal && !r.Fatal && (sort == Health || v.Action != ActionResetGPU) {
		return v
	}
	// That nothing need be done to the device says that it works, and says nothing of the
	// workload that was hit.
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

// Lifetime reports whether a DCGM field counts over the life of the GPU, through resets
// and reboots, because the GPU keeps the count in its InfoROM: aggregate ECC errors,
// retired pages, remapped rows. Its first value is what happened before anybody looked,
// maybe years ago, and is no fault; what it grows by is. A counter that shrank was
// cleared. Sources: dcgm_fields.h of DCGM 4.5 ("aggregate (persistent)", "monotonically
// increasing"), and NVIDIA's manuals "Dynamic Page Retirement" and "GPU Memory Error
// Management" (remapped rows).
func Lifetime(field uint32) bool {
	switch field {
	case 313, 390, 391, 393, 394:
		return true
	}
	return false
}
