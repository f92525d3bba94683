package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"quartermaster/domain"
)

// NodeSampled is written and read by hand, straight between the record's bytes
// and domain.NodeSampled: generated code would need a second struct, and knows
// no front-coded names. The tests hold that it is the same encoding as that of
// the generated code.

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
}

// Bounds of a sample. The largest machines of today, cut up as far as they can
// be, stay below a tenth of each.
const (
	maxSample    = 256 << 10 // bytes of a payload
	maxEntries   = 2 << 10
	maxName      = 1 << 10   // bytes of one name
	maxNameBytes = 256 << 10 // bytes of all names, written out
	maxInterval  = domain.Day
)

type sampleTable [fieldCount]*[]uint32

// arrayFields are the fields of the sampleTable of a Decoder, as bits.
const arrayFields uint64 = 1<<fieldNameParts | 1<<fieldHolder | 1<<fieldHolderWorkspace | 1<<fieldHolderDeployment |
	1<<fieldHolderUnit | 1<<fieldActivityMean | 1<<fieldActivityMin | 1<<fieldActivityMax | 1<<fieldTensorActive |
	1<<fieldDRAMActive | 1<<fieldMemoryUsed | 1<<fieldPower | 1<<fieldTemperature | 1<<fieldSMClock |
	1<<fieldParent | 1<<fieldProfile | 1<<fieldReplica | 1<<fieldOtherEntry | 1<<fieldOtherField

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
		fieldReplica:          &s.Replica,
		fieldOtherEntry:       &s.OtherEntry,
		fieldOtherField:       &s.OtherField,
	}
}

// checkSample holds what is true of every sample: each array is empty or has
// one value per entry, and every reference points at something.
func checkSample(s *domain.NodeSampled, arrays *sampleTable) error {
	n := len(s.IDs) / 16
	switch {
	case s.Node == "":
		return errors.New("field node: empty")
	case s.Interval.From < 0 || s.Interval.To >= endOfTime:
		return errors.New("field interval: outside the years 1970 to 2261")
	case s.Interval.Empty():
		return fmt.Errorf("field interval: it ends at %s, not after it begins at %s", s.Interval.To, s.Interval.From)
	case s.Interval.Length() > maxInterval:
		return fmt.Errorf("field interval: from %s to %s is longer than a day", s.Interval.From, s.Interval.To)
	case len(s.IDs)%16 != 0 || len(s.Parents)%16 != 0:
		return fmt.Errorf("fields ids, parents: %d and %d bytes, not 16 per device", len(s.IDs), len(s.Parents))
	case n > maxEntries:
		return fmt.Errorf("field ids: %d entries, more than %d", n, maxEntries)
	case len(s.HolderDeployment) != len(s.HolderWorkspace) || len(s.HolderUnit) != len(s.HolderWorkspace):
		return fmt.Errorf("fields holder_workspace, holder_deployment, holder_unit: %d, %d and %d values, want as many of each",
			len(s.HolderWorkspace), len(s.HolderDeployment), len(s.HolderUnit))
	case len(s.OtherField) != len(s.OtherEntry) || len(s.OtherValue) != len(s.OtherEntry):
		return fmt.Errorf("fields other_entry, other_field, other_value: %d, %d and %d values, want as many of each",
			len(s.OtherEntry), len(s.OtherField), len(s.OtherValue))
	case s.ActivityField == 0 && len(s.ActivityMean)+len(s.ActivityMin)+len(s.ActivityMax) > 0:
		return errors.New("field activity_field: missing, so what was measured is unknown")
	}
	for _, f := range perEntry {
		if l := len(*arrays[f]); l != 0 && l != n {
			return fmt.Errorf("field %s: %d values for %d entries", sampleFields[f], l, n)
		}
	}
	for _, f := range perMille {
		if above(*arrays[f], 1000+1) {
			return fmt.Errorf("field %s: a value is no share per mille, plus one", sampleFields[f])
		}
	}
	for _, f := range nameRefs {
		if above(*arrays[f], len(s.Strings)) {
			return fmt.Errorf("field %s: a reference is beyond the %d names", sampleFields[f], len(s.Strings))
		}
	}
	switch {
	case above(s.Holder, len(s.HolderUnit)):
		return fmt.Errorf("field holder: a reference is beyond the %d holders", len(s.HolderUnit))
	case above(s.Parent, len(s.Parents)/16):
		return fmt.Errorf("field parent: a reference is beyond the %d parents", len(s.Parents)/16)
	case above(s.OtherEntry, n-1):
		return fmt.Errorf("field other_entry: an index is beyond the %d entries", n)
	}
	return checkIDs(s, n)
}

// What checkSample holds of arrays: one value per entry, shares, references to names.
var (
	perEntry = [...]int{
		fieldHolder, fieldActivityMean, fieldActivityMin, fieldActivityMax, fieldTensorActive, fieldDRAMActive,
		fieldMemoryUsed, fieldPower, fieldTemperature, fieldSMClock, fieldParent, fieldProfile, fieldReplica,
	}
	perMille = [...]int{fieldActivityMean, fieldActivityMin, fieldActivityMax, fieldTensorActive, fieldDRAMActive}
	nameRefs = [...]int{fieldHolderWorkspace, fieldHolderDeployment, fieldHolderUnit, fieldProfile}
)

// above reports whether a value exceeds the bound: then the difference is
// negative. It takes no branch per value.
func above(vs []uint32, most int) bool {
	all := 0
	for ; len(vs) >= 4; vs = vs[4:] {
		all |= (most - int(vs[0])) | (most - int(vs[1])) | (most - int(vs[2])) | (most - int(vs[3]))
	}
	for _, v := range vs {
		all |= most - int(v)
	}
	return all < 0
}

// checkIDs holds that no id is zero and that no two entries are one device and
// replica. Ids are compared only where a byte of them was met before.
func checkIDs(s *domain.NodeSampled, n int) error {
	var met [4]uint64
	for i := range n {
		id := (*[16]byte)(s.IDs[16*i:])
		if binary.LittleEndian.Uint64(id[:8])|binary.LittleEndian.Uint64(id[8:]) == 0 {
			return fmt.Errorf("field ids: entry %d has no id", i)
		}
		mark := id[0] ^ id[15]
		word, bit := &met[mark>>6], uint64(1)<<(mark&63)
		if *word&bit != 0 {
			for j := range i {
				if *id == *(*[16]byte)(s.IDs[16*j:]) && (len(s.Replica) == 0 || s.Replica[i] == s.Replica[j]) {
					return fmt.Errorf("field ids: entries %d and %d are both %s", j, i, domain.GPUID(*id))
				}
			}
		}
		*word |= bit
	}
	return nil
}
