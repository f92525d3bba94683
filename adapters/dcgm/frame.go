// Package dcgm is what the collector says and the reporter hears: frames on a pipe.
//
// dcgm-collector reads the GPUs through NVIDIA's DCGM and writes a [Frame] for
// what it finds; node-reporter starts it, reads the frames and makes events of
// them. The collector keeps nothing: what it said is the reporter's, and what it
// had not yet said is read again by the next run, which is told where to begin
// ([Events.Cursor]).
//
// What always holds:
//   - The first frame is a [Hello] or a fatal [Trouble]. No frame precedes it
//     but heartbeats, which also tell that a first call hangs.
//   - Sequences of a run are dense from 1. A reader that sees a gap reads
//     something else than a collector's output.
//   - A value that DCGM calls blank, stale or unsupported never is a number.
//   - Events name their device by UUID as well, so that each stands alone.
//
// Nothing here needs cgo.
package dcgm

import (
	"time"

	"quartermaster/domain"
)

// Version is that of the frames. A reader refuses another.
const Version = 1

// Frame is one statement of the collector.
type Frame struct {
	Sequence uint64         // dense from 1 for each run of the collector; the [Writer] counts
	At       domain.Instant // wall clock when it was made
	Boot     time.Duration  // CLOCK_BOOTTIME at the same moment: does not jump, and counts suspension
	Body     Body
}

// Body is what a frame says: [*Hello], [*Heartbeat], [*Inventory], [*Readings],
// [*Events] or [*Trouble].
type Body interface{ body() }

func (*Hello) body()     {}
func (*Heartbeat) body() {}
func (*Inventory) body() {}
func (*Readings) body()  {}
func (*Events) body()    {}
func (*Trouble) body()   {}

// Hello says who speaks and what it can read.
type Hello struct {
	Version   uint32 // of the frames
	Program   string // version of the collector
	Library   string // version of DCGM, "" unknown
	Driver    string // version of the driver
	Hostname  string
	BootID    string // changes with every boot
	Engine    string // that is used, as [Engine.String] writes it
	Inventory Inventory
	Groups    []Group
}

// Group is a set of fields that is watched, or is not, as one.
type Group struct {
	Name   string
	Fields []uint32      // ids of DCGM fields
	Every  time.Duration // how often it is read
	Works  bool
	Reason string // why it does not
	Code   int32  // what DCGM returned
}

// Heartbeat says that the collector lives, and whether DCGM answers it. It is
// written by a part of the collector that calls nothing that can hang.
type Heartbeat struct {
	Call     string        // what DCGM was asked and has not answered yet, "" nothing
	Waiting  time.Duration // for how long
	Answered uint64        // calls answered so far
}

// Inventory lists the devices of the node.
type Inventory struct {
	Generation uint32   // from 1, one more with each change
	Reason     string   // what changed, "" for the first
	Devices    []Device // GPUs in the order of their indices, the MIG devices of each behind it
}

// Device is a GPU or a MIG device of one.
type Device struct {
	UUID      domain.GPUID // zero where nothing tells that of a MIG device
	GPU       uint32       // DCGM's id of the GPU, which equals the driver's index
	Minor     uint32       // N+1 of the GPU's /dev/nvidiaN, which may be another; 0 where nothing tells it
	Parent    uint32       // of a MIG device: index+1 of its GPU in the list; 0: a GPU
	Model     string
	Serial    string
	PCI       string // bus id
	MemoryMiB uint64
	MIG       bool // the GPU is in MIG mode: itself it has no utilization
	Lost      bool // the driver reaches it no more

	Profile         string // of a MIG device: 1g.10gb
	GPUInstance     uint32 // of a MIG device: as the driver numbers it
	ComputeInstance uint32
	Slices          uint32 // of a MIG device: sevenths of the GPU's compute
	Shared          bool   // its GPU instance has other MIG devices, and what is read is that of all of them
}

// Status says whether a reading holds a value.
type Status uint8

// What a reading can be. Only with StatusOK is there a value.
const (
	StatusOK          Status = iota + 1
	StatusBlank              // DCGM gave its mark for no value
	StatusUnsupported        // by this device
	StatusRefused            // no permission
	StatusAbsent             // not watched, or not measured yet
	StatusStale              // the value is from an earlier interval
	StatusLost               // the device is gone
	StatusFailed             // whatever else DCGM returned
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

// Readings are the values of one moment: every second what says how busy a device
// is, and with it every 10 and 30 seconds what changes slowly.
type Readings struct {
	Generation uint32 // of the inventory that the devices are counted in
	Readings   []Reading
}

// Reading is one field of one device, in DCGM's unit. Integers that a float64 does
// not hold exactly come as StatusBlank.
type Reading struct {
	Device uint32 // index in the inventory
	Field  uint32 // id of the DCGM field
	Status Status
	Value  float64 // 0 unless StatusOK
}

// Kind says what an event is.
type Kind uint8

// The kinds of events.
const (
	KindXID            Kind = iota + 1 // the driver reported an XID
	KindRecovery                       // the recovery that the driver wants changed; Code is the action
	KindHealth                         // a health check of DCGM warned or failed; Code is one of dcgm_errors.h
	KindNVLink                         // a link went down or came back; Code is the link, of an NVSwitch its id+1 above 16 bits
	KindRowRemap                       // rows of memory were remapped, or could not be; Count more than before
	KindECC                            // errors of memory were counted; Count more than before
	KindThermal                        // the hardware slows down to protect itself; Code is the reason's bit
	KindLost                           // the device fell off the bus
	KindPageRetirement                 // pages of memory were retired, or are to be; Count more than before
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

// Events happened since the last frame of their sort.
type Events struct {
	Generation uint32
	Events     []Event
	// Cursor is up to where DCGM's history was read, in microseconds since 1970 by
	// DCGM's clock. A run that is given it reports what happened in between, as long
	// as an nv-hostengine kept it, and may report again what is as old as the cursor.
	Cursor int64
}

// Event is one thing that happened, or a state that begins or ends.
//
// An XID comes again with its time when a run is given a cursor that is too old: equal
// events (UUID, Kind, Code, Field, At) are one. All others tell states and counters. A
// run knows none when it begins, so that it says what it finds (Found): a reader that
// knows of the state already (UUID, Kind, Code, Field), or of the counter's Total, drops
// the event or counts what Total has more than before. A counter of the GPU's life
// ([faults.Lifetime]) is told when it is found, 0 included: that is where its growth is
// counted from, and no fault.
type Event struct {
	Kind     Kind
	Device   uint32       // index+1 in the inventory, 0: the node
	UUID     domain.GPUID // of the device
	Code     uint32
	Field    uint32         // id of the DCGM field that it was read from, 0 none
	Count    uint64         // at least 1; of counters, how many more
	Total    uint64         // of counters: what they stand at
	At       domain.Instant // by DCGM's clock
	Found    bool           // it was so when this run began
	Over     bool           // what was reported before has ended
	Failed   bool           // a health check failed, and did not only warn
	System   uint32         // of a health check: what was watched, DCGM's bits
	Detail   string         // in our words, or those of DCGM without control characters
	Recovery uint32         // the recovery that the driver wants of the device (field 1523), +1; 0: it does not say
}

// What a Trouble is about.
const (
	TroubleWithoutC   = "without_c"  // this build cannot load DCGM
	TroubleNoLibrary  = "no_library" // libdcgm.so.4 is not there, or does not load
	TroubleVersion    = "version"    // of DCGM, another than this collector knows
	TroubleSymbol     = "symbol"     // the library lacks a function
	TroublePermission = "permission" // the library or the driver refuses
	TroubleEngine     = "engine"     // no nv-hostengine answers, or none could be embedded
	TroubleDriver     = "driver"     // the driver does not answer, or is not loaded
	TroubleNoGPUs     = "no_gpus"    // there is nothing to collect
	TroubleGroup      = "group"      // one group of fields does not work
	TroubleConnection = "connection" // the nv-hostengine went away, or one came while DCGM was embedded
	TroubleCall       = "call"       // DCGM refused a call that it must answer
)

// Trouble says what the collector cannot do.
type Trouble struct {
	Code     string // one of the words above
	Text     string // for people: what was attempted, and what to do
	Returned int32  // what DCGM returned, 0 nothing
	Fatal    bool   // the collector ends after this frame
	Group    string // the fields that it is about, "" all
}
