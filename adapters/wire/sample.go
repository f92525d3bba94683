package wire

import (
	"errors"
	"fmt"

	"quartermaster/domain"
)

// NodeSampled is encoded and decoded by hand, directly between the record's bytes and
// domain.NodeSampled. Generated code would need a second struct, and does not support front-coded
// names. The tests check that the encoding is the same as that of the generated code.

// The fields of NodeSampled in sample.proto.
const (
	fieldSource = iota + 1
	fieldIncarnation
	fieldSequence
	fieldNode
	fieldFrom
	fieldTo
	fieldNameTails
	fieldNameParts
	fieldIDs
	fieldHolder
	fieldHolderWorkspace
	fieldHolderDeployment
	fieldHolderUnit
	fieldActivityField
	fieldActivityMean
	fieldActivityMin
	fieldActivityMax
	fieldTensorActive
	fieldDRAMActive
	fieldMemoryUsed
	fieldPower
	fieldTemperature
	fieldSMClock
	fieldParent
	fieldParents
	fieldProfile
	fieldReplica
	fieldOtherEntry
	fieldOtherField
	fieldOtherValue
	fieldSkew
	fieldSubject
	fieldWorkspace
	fieldRecorded
	fieldPreviousIncarnation
	fieldPreviousSequence
	fieldCites
	fieldHoldersUnknown
	fieldModel
	fieldCount
)

var sampleFields = [fieldCount]string{
	fieldSource: "source", fieldIncarnation: "incarnation", fieldSequence: "sequence",
	fieldNode: "node", fieldFrom: "interval_from", fieldTo: "interval_to",
	fieldNameTails: "name_tails", fieldNameParts: "name_parts",
	fieldIDs: "ids", fieldHolder: "holder",
	fieldHolderWorkspace: "holder_workspace", fieldHolderDeployment: "holder_deployment", fieldHolderUnit: "holder_unit",
	fieldActivityField: "activity_field", fieldActivityMean: "activity_mean", fieldActivityMin: "activity_min",
	fieldActivityMax: "activity_max", fieldTensorActive: "tensor_active", fieldDRAMActive: "dram_active",
	fieldMemoryUsed: "memory_used_mib", fieldPower: "power_watts", fieldTemperature: "temperature_c",
	fieldSMClock: "sm_clock_mhz", fieldParent: "parent", fieldParents: "parents", fieldProfile: "profile",
	fieldReplica: "replica", fieldOtherEntry: "other_entry", fieldOtherField: "other_field",
	fieldOtherValue: "other_value", fieldSkew: "skew_nanos", fieldSubject: "subject", fieldWorkspace: "workspace",
	fieldRecorded: "recorded", fieldPreviousIncarnation: "previous_incarnation",
	fieldPreviousSequence: "previous_sequence", fieldCites: "cites",
	fieldHoldersUnknown: "holders_unknown", fieldModel: "model",
}

// Bounds of a sample, in addition to those of domain.Validate. The largest machines of today,
// divided into as many instances as possible, stay below a tenth of each.
const (
	maxSample    = 256 << 10 // bytes of a payload
	maxName      = 1 << 10   // bytes of one name
	maxNameBytes = 256 << 10 // bytes of all names, decoded
	maxInterval  = domain.Day
)

type sampleTable [fieldCount]*[]uint32

// arrayFields are the fields of sampleTable as a bit set.
const arrayFields uint64 = 1<<fieldNameParts | 1<<fieldHolder | 1<<fieldHolderWorkspace | 1<<fieldHolderDeployment |
	1<<fieldHolderUnit | 1<<fieldActivityMean | 1<<fieldActivityMin | 1<<fieldActivityMax | 1<<fieldTensorActive |
	1<<fieldDRAMActive | 1<<fieldMemoryUsed | 1<<fieldPower | 1<<fieldTemperature | 1<<fieldSMClock |
	1<<fieldParent | 1<<fieldProfile | 1<<fieldReplica | 1<<fieldOtherEntry | 1<<fieldOtherField | 1<<fieldModel

// sampleArrays lists the packed arrays of a sample by field.
func sampleArrays(s *domain.NodeSampled) sampleTable {
	return sampleTable{
		fieldHolder:           &s.Holder,
		fieldHolderWorkspace:  &s.HolderWorkspace,
		fieldHolderDeployment: &s.HolderDeployment,
		fieldHolderUnit:       &s.HolderUnit,
		fieldActivityMean:     &s.ActivityMean,
		fieldActivityMin:      &s.ActivityMin,
		fieldActivityMax:      &s.ActivityMax,
		fieldTensorActive:     &s.TensorActive,
		fieldDRAMActive:       &s.DRAMActive,
		fieldMemoryUsed:       &s.MemoryUsedMiB,
		fieldPower:            &s.PowerWatts,
		fieldTemperature:      &s.TemperatureC,
		fieldSMClock:          &s.SMClockMHz,
		fieldParent:           &s.Parent,
		fieldProfile:          &s.Profile,
		fieldModel:            &s.Model,
		fieldReplica:          &s.Replica,
		fieldOtherEntry:       &s.OtherEntry,
		fieldOtherField:       &s.OtherField,
	}
}

// checkInterval bounds the hours that a reader may have to process before it validates a sample.
func checkInterval(i domain.Interval) error {
	switch {
	case i.From < 0 || i.To >= endOfTime:
		return errors.New("field interval: outside the years 1970 to 2261")
	case i.Empty():
		return fmt.Errorf("field interval: it ends at %s, not after it begins at %s", i.To, i.From)
	case i.Length() > maxInterval:
		return fmt.Errorf("field interval: from %s to %s is longer than a day", i.From, i.To)
	}
	return nil
}
