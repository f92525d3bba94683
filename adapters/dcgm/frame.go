// Package dcgm defines the frames that dcgm-collector sends to node-reporter over a pipe.
//
// dcgm-collector reads the GPUs through NVIDIA's DCGM and writes what it finds as a [Frame].
// node-reporter starts it, reads the frames and makes events of them. The collector keeps no
// state: the reporter owns what was sent, and tells the next run where to continue
// ([Events.Cursor]).
//
// What always holds:
//   - The first frame other than a [Heartbeat] is a [Hello] or a fatal [Trouble]. The
//     heartbeats before it show whether the first call hangs.
//   - The sequence numbers of a run are dense from 1. A gap means that the input is not the
//     output of a collector.
//   - A reading that DCGM calls blank, stale or unsupported never has a value.
//   - An event carries the UUID of its device, so it can be understood without an inventory.
//
// Nothing here needs cgo.
package dcgm

import (
	"time"

	"quartermaster/domain"
)

// Version is the version of the frame format. A reader refuses any other.
const Version = 1

// Frame is one message of the collector.
type Frame struct {
	Sequence uint64         // dense from 1 for each run of the collector; set by the [Writer]
	At       domain.Instant // wall clock when it was made
	Boot     time.Duration  // CLOCK_BOOTTIME at that moment: never jumps, and counts suspended time
	Body     Body
}

// Body is the content of a frame: [*Hello], [*Heartbeat], [*Inventory], [*Readings],
// [*Events] or [*Trouble].
type Body interface{ body() }

func (*Hello) body()     {}
func (*Heartbeat) body() {}
func (*Inventory) body() {}
func (*Readings) body()  {}
func (*Events) body()    {}
func (*Trouble) body()   {}

// Hello describes the collector and what it can read.
type Hello struct {
	Version   uint32 // of the frame format
	Program   string // version of the collector
	Library   string // version of DCGM; "" if unknown
	Driver    string // version of the driver
	Hostname  string
	BootID    string // changes with every boot
	Engine    string // the engine in use, in the form of [Engine.String]
	Inventory Inventory
	Groups    []Group
}

// Group is a set of fields that is watched as a whole or not at all.
type Group struct {
	Name   string
	Fields []uint32      // ids of DCGM fields
	Every  time.Duration // interval between reads
	Works  bool
	Reason string // why it does not work
	Code   int32  // what DCGM returned
}

// Heartbeat reports that the collector is alive, and whether DCGM answers it. The part of the
// collector that writes it never makes a call that can hang.
type Heartbeat struct {
	Call     string        // the pending DCGM call; "" if none
	Waiting  time.Duration // how long the call has been pending
	Answered uint64        // calls answered so far
}

// Inventory lists the devices of the node.
type Inventory struct {
	Generation uint32   // from 1, incremented with each change
	Reason     string   // what changed; "" for the first inventory
	Devices    []Device // GPUs by index, each followed by its MIG devices
}

// Device is a GPU or a MIG device.
type Device struct {
	UUID      domain.GPUID // zero for a MIG device whose UUID is unknown
	GPU       uint32       // DCGM's id of the GPU, which equals the driver's index
	Minor     uint32       // N+1 for the GPU's /dev/nvidiaN; N may differ from GPU; 0: unknown
	Parent    uint32       // of a MIG device: index+1 of its GPU in the list; 0: a GPU
	Model     string
	Serial    string
	PCI       string // bus id
	MemoryMiB uint64
	MIG       bool // the GPU is in MIG mode and has no utilization of its own
	Lost      bool // the driver can no longer reach it

	Profile         string // of a MIG device, such as 1g.10gb
	GPUInstance     uint32 // of a MIG device: the driver's number
	ComputeInstance uint32
	Slices          uint32 // of a MIG device: sevenths of the GPU's compute
	Shared          bool   // it shares its GPU instance with other MIG devices; readings cover them all
}

// Status tells whether a reading has a value.
type Status uint8

// The statuses of a reading. Only a reading with StatusOK has a value.
const (
	StatusOK          Status = iota + 1
	StatusBlank              // DCGM returned a blank value
	StatusUnsupported        // not supported by this device
	StatusRefused            // no permission
	StatusAbsent             // not watched, or not measured yet
	StatusStale              // the value is from an earlier interval
	StatusLost               // the device is lost
	StatusFailed             // any other error of DCGM
)

// String returns the status as a word.
func (s Status) String() string {
	switch s {
	case StatusOK:
		return "ok"
	case StatusBlank:
		return "blank"
	case StatusUnsupported:
		return "unsupported"
	case StatusRefused:
		return "refused"
	case StatusAbsent:
		return "absent"
	case StatusStale:
		return "stale"
	case StatusLost:
		return "lost"
	case StatusFailed:
		return "failed"
	}
	return "unknown"
}

// Readings are the values of one moment: utilization every second, and slowly changing values
// every 10 and 30 seconds.
type Readings struct {
	Generation uint32 // of the inventory that device indices refer to
	Readings   []Reading
}

// Reading is one field of one device, in DCGM's unit. An integer that a float64 cannot
// represent exactly has StatusBlank.
type Reading struct {
	Device uint32 // index in the inventory
	Field  uint32 // id of the DCGM field
	Status Status
	Value  float64 // 0 unless StatusOK
}

// Kind is the kind of an event.
type Kind uint8

// The kinds of events.
const (
	// KindXID: the driver reported an XID.
	KindXID Kind = iota + 1
	// KindRecovery: the recovery action that the driver asks for changed. Code is the action.
	KindRecovery
	// KindHealth: a health check of DCGM warned or failed. Code is one of dcgm_errors.h.
	KindHealth
	// KindNVLink: a link went down or came back. Code is the link; for an NVSwitch, the bits
	// from 16 up are its id+1.
	KindNVLink
	// KindRowRemap: Count more memory rows were remapped, or could not be remapped.
	KindRowRemap
	// KindECC: Count more memory errors occurred.
	KindECC
	// KindThermal: the hardware slows down to protect itself. Code is the bit of the reason.
	KindThermal
	// KindLost: the device fell off the bus.
	KindLost
	// KindPageRetirement: Count more memory pages were retired, or are about to be.
	KindPageRetirement
)

// String returns the kind as a word.
func (k Kind) String() string {
	switch k {
	case KindXID:
		return "xid"
	case KindRecovery:
		return "recovery"
	case KindHealth:
		return "health"
	case KindNVLink:
		return "nvlink"
	case KindRowRemap:
		return "row_remap"
	case KindECC:
		return "ecc"
	case KindThermal:
		return "thermal"
	case KindLost:
		return "lost"
	case KindPageRetirement:
		return "page_retirement"
	}
	return "unknown"
}

// Events are what happened since the previous Events frame.
type Events struct {
	Generation uint32
	Events     []Event
	// Cursor is the time up to which DCGM's history was read, in microseconds since 1970 by
	// DCGM's clock. A new run that gets it reports what happened since, if an nv-hostengine
	// kept the history. It may repeat an event that is exactly as old as the cursor.
	Cursor int64
}

// Event is one occurrence, or the begin or end of a state.
//
// A run with a cursor that is too old repeats XIDs with their original times. XIDs with equal
// UUID, Kind, Code, Field and At are the same event.
//
// All other kinds report states and counters. A run starts without knowing any, so it reports
// what it finds with Found set. A reader that already knows the state (UUID, Kind, Code, Field)
// drops the event. A reader that knows the counter counts only by how much Total grew. A
// lifetime counter of the GPU ([faults.Lifetime]) is reported when found even if it is 0. That
// is the baseline for its growth, not a fault.
type Event struct {
	Kind     Kind
	Device   uint32       // index+1 in the inventory; 0: the node
	UUID     domain.GPUID // of the device
	Code     uint32
	Field    uint32         // id of the DCGM field that it was read from; 0: none
	Count    uint64         // at least 1; of a counter, the increase
	Total    uint64         // of a counter: its value
	At       domain.Instant // by DCGM's clock
	Found    bool           // the state existed, or the counter had this value, when the run began
	Over     bool           // the reported state has ended
	Failed   bool           // a health check failed; false: it only warned
	System   uint32         // of a health check: the watched system, as DCGM's bits
	Detail   string         // our text, or DCGM's text without control characters
	Recovery uint32         // recovery action +1 that the driver wants (field 1523); 0: unknown
}

// The codes of a [Trouble].
const (
	TroubleWithoutC   = "without_c"  // this build cannot load DCGM
	TroubleNoLibrary  = "no_library" // libdcgm.so.4 does not exist or does not load
	TroubleVersion    = "version"    // this collector does not support the version of DCGM
	TroubleSymbol     = "symbol"     // the library lacks a function
	TroublePermission = "permission" // the library or the driver denies access
	TroubleEngine     = "engine"     // no nv-hostengine answers, or none could be embedded
	TroubleDriver     = "driver"     // the driver does not answer, or is not loaded
	TroubleNoGPUs     = "no_gpus"    // there is nothing to collect
	TroubleGroup      = "group"      // one group of fields does not work
	TroubleConnection = "connection" // the nv-hostengine went away, or one came while DCGM was embedded
	TroubleCall       = "call"       // DCGM refused a call that must succeed
)

// Trouble reports what the collector cannot do.
type Trouble struct {
	Code     string // one of the codes above
	Text     string // for people: what was attempted, and what to do
	Returned int32  // what DCGM returned; 0: nothing
	Fatal    bool   // the collector ends after this frame
	Group    string // the affected fields; "": all
}
