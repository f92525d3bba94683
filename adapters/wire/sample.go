package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

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

// sampleArrays lists the packed arrays of a sample by field.
func sampleArrays(s *domain.NodeSampled) [fieldCount]*[]uint32 {
	return [fieldCount]*[]uint32{
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

// appendSample appends the payload of a sample, or refuses it.
func appendSample(b []byte, env *domain.Envelope, s *domain.NodeSampled) ([]byte, error) {
	if env.Time != s.Interval.To {
		return nil, fmt.Errorf("time %s is not the end of its interval, %s", env.Time, s.Interval.To)
	}
	if err := checkSample(s); err != nil {
		return nil, err
	}
	tails, parts, err := frontCode(s.Strings)
	if err != nil {
		return nil, err
	}
	subject := env.Subject
	if subject == s.Node {
		subject = ""
	}
	texts := [...]struct {
		field protowire.Number
		s     string
	}{
		{fieldSource, env.Source}, {fieldNode, s.Node}, {fieldSubject, subject},
		{fieldWorkspace, env.Workspace}, {fieldCites, env.Cites},
	}
	for _, t := range texts {
		if err := checkText(t.s, maxAttribute); err != nil {
			return nil, fmt.Errorf("field %s: %w", sampleFields[t.field], err)
		}
	}
	arrays := sampleArrays(s)
	arrays[fieldNameParts] = &parts
	for f := protowire.Number(1); f < fieldCount; f++ {
		switch f {
		case fieldSource, fieldNode, fieldSubject, fieldWorkspace, fieldCites:
			for _, t := range texts {
				if t.field == f {
					b = appendBytes(b, f, t.s)
				}
			}
		case fieldNameTails:
			b = appendBytes(b, f, tails)
		case fieldIDs:
			b = appendBytes(b, f, s.IDs)
		case fieldParents:
			b = appendBytes(b, f, s.Parents)
		case fieldIncarnation:
			b = appendNumber(b, f, env.Incarnation)
		case fieldSequence:
			b = appendNumber(b, f, env.Sequence)
		case fieldActivityField:
			b = appendNumber(b, f, uint64(s.ActivityField))
		case fieldSkew:
			b = appendNumber(b, f, s.SkewNanos)
		case fieldPreviousIncarnation:
			b = appendNumber(b, f, env.PreviousIncarnation)
		case fieldPreviousSequence:
			b = appendNumber(b, f, env.PreviousSequence)
		case fieldFrom:
			b = appendInstant(b, f, s.Interval.From)
		case fieldTo:
			b = appendInstant(b, f, s.Interval.To)
		case fieldRecorded:
			b = appendInstant(b, f, env.Recorded)
		case fieldOtherValue:
			b = appendPacked(b, f, s.OtherValue)
		default:
			b = appendPacked(b, f, *arrays[f])
		}
	}
	if len(b) > maxSample {
		return nil, fmt.Errorf("payload of %d bytes, more than %d", len(b), maxSample)
	}
	return b, nil
}

func appendBytes[T string | []byte](b []byte, f protowire.Number, v T) []byte {
	if len(v) == 0 {
		return b
	}
	b = protowire.AppendTag(b, f, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(v)))
	return append(b, v...)
}

func appendNumber(b []byte, f protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, f, protowire.VarintType), v)
}

func appendInstant(b []byte, f protowire.Number, t domain.Instant) []byte {
	if t == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, f, protowire.Fixed64Type), uint64(t))
}

func appendPacked[T uint32 | uint64](b []byte, f protowire.Number, vs []T) []byte {
	if len(vs) == 0 {
		return b
	}
	size := 0
	for _, v := range vs {
		size += protowire.SizeVarint(uint64(v))
	}
	b = protowire.AppendTag(b, f, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	for _, v := range vs {
		b = protowire.AppendVarint(b, uint64(v))
	}
	return b
}

// frontCode writes each name as what it shares with the one before and the rest.
func frontCode(names []string) (tails string, parts []uint32, err error) {
	var b []byte
	last, total := "", 0
	for i, name := range names {
		if err := checkText(name, maxName); err != nil {
			return "", nil, fmt.Errorf("field names[%d]: %w", i, err)
		}
		if total += len(name); total > maxNameBytes {
			return "", nil, fmt.Errorf("field names: more than %d bytes", maxNameBytes)
		}
		n := 0
		for n < len(name) && n < len(last) && name[n] == last[n] {
			n++
		}
		for n > 0 && n < len(name) && !utf8.RuneStart(name[n]) { // tails are text themselves
			n--
		}
		parts = append(parts, uint32(n), uint32(len(name)-n))
		b = append(b, name[n:]...)
		last = name
	}
	return string(b), parts, nil
}

func isSample(rec *domain.Record) bool {
	return len(rec.Headers) == 2 &&
		rec.Headers[0].Key == headerNames[attrSpecVersion] && string(rec.Headers[0].Value) == specVersion &&
		rec.Headers[1].Key == headerNames[attrType] && string(rec.Headers[1].Value) == sampledType
}

var (
	errCut  = errors.New("payload is cut off or damaged")
	errKind = errors.New("wrong wire type, arrays must be packed")
)

// decodeSample reads what appendSample writes, into the decoder's memory.
func (d *Decoder) decodeSample(rec *domain.Record, env *domain.Envelope) error {
	if len(rec.Value) > maxSample {
		return fmt.Errorf("payload of %d bytes, more than %d", len(rec.Value), maxSample)
	}
	s := &d.sample
	if d.arrays[fieldHolder] == nil {
		d.arrays = sampleArrays(s)
		d.arrays[fieldNameParts] = &d.parts
	}
	s.IDs, s.Parents, s.OtherValue = nil, nil, s.OtherValue[:0]
	s.Node, s.Interval, s.ActivityField, s.SkewNanos = "", domain.Interval{}, 0, 0
	for _, a := range &d.arrays {
		if a != nil {
			*a = (*a)[:0]
		}
	}

	var tails []byte
	var seen uint64
	for b := rec.Value; len(b) > 0; {
		// A tag takes one byte or two; longer ones belong to fields of newer writers.
		tag, n := uint64(b[0]), 1
		if tag >= 0x80 {
			if tag, n = protowire.ConsumeVarint(b); n < 0 {
				return errCut
			}
		}
		f, kind := tag>>3, protowire.Type(tag&7)
		if f == 0 || f >= fieldCount {
			size := protowire.Number(0)
			if f > 0 && f <= uint64(protowire.MaxValidNumber) {
				size = protowire.Number(f)
			}
			m := protowire.ConsumeFieldValue(size, kind, b[n:])
			if size == 0 || m < 0 {
				return errCut
			}
			b = b[n+m:]
			continue
		}
		b = b[n:]
		if seen&(1<<f) != 0 {
			return fmt.Errorf("field %s: given twice", sampleFields[f])
		}
		seen |= 1 << f
		switch kind {
		case protowire.BytesType:
			if len(b) == 0 {
				return errCut
			}
			size, n := uint64(b[0]), 1
			if size >= 0x80 {
				if size, n = protowire.ConsumeVarint(b); n < 0 {
					return errCut
				}
			}
			if size > uint64(len(b)-n) {
				return errCut
			}
			v := b[n : n+int(size) : n+int(size)]
			b = b[n+int(size):]
			if a := d.arrays[f]; a != nil {
				var err error
				if *a, err = unpack(*a, v); err != nil {
					return fmt.Errorf("field %s: %w", sampleFields[f], err)
				}
				continue
			}
			switch f {
			case fieldSource:
				env.Source = alias(v)
			case fieldNode:
				s.Node = alias(v)
			case fieldSubject:
				env.Subject = alias(v)
			case fieldWorkspace:
				env.Workspace = alias(v)
			case fieldCites:
				env.Cites = alias(v)
			case fieldNameTails:
				tails = v
			case fieldIDs:
				s.IDs = v
			case fieldParents:
				s.Parents = v
			case fieldOtherValue:
				for len(v) > 0 {
					x, n := protowire.ConsumeVarint(v)
					if n < 0 {
						return errCut
					}
					s.OtherValue, v = append(s.OtherValue, x), v[n:]
				}
			default:
				return fmt.Errorf("field %s: %w", sampleFields[f], errKind)
			}
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return errCut
			}
			b = b[n:]
			switch f {
			case fieldIncarnation:
				env.Incarnation = v
			case fieldSequence:
				env.Sequence = v
			case fieldActivityField:
				if v > math.MaxUint32 {
					return errors.New("field activity_field: more than 32 bits")
				}
				s.ActivityField = uint32(v)
			case fieldSkew:
				s.SkewNanos = v
			case fieldPreviousIncarnation:
				env.PreviousIncarnation = v
			case fieldPreviousSequence:
				env.PreviousSequence = v
			default:
				return fmt.Errorf("field %s: %w", sampleFields[f], errKind)
			}
		case protowire.Fixed64Type:
			if len(b) < 8 {
				return errCut
			}
			t := domain.Instant(binary.LittleEndian.Uint64(b))
			b = b[8:]
			switch f {
			case fieldFrom:
				s.Interval.From = t
			case fieldTo:
				s.Interval.To = t
			case fieldRecorded:
				env.Recorded = t
			default:
				return fmt.Errorf("field %s: %w", sampleFields[f], errKind)
			}
		default:
			return fmt.Errorf("field %s: %w", sampleFields[f], errKind)
		}
	}

	if err := d.names(tails); err != nil {
		return err
	}
	env.Time = s.Interval.To
	env.Cluster = alias(rec.Key)
	if env.Subject == "" {
		env.Subject = s.Node
	}
	env.Event = s
	if err := checkContext(env); err != nil {
		return err
	}
	if err := checkSample(s); err != nil {
		return err
	}
	if env.Cluster == "" {
		return errors.New("the record has no key, which names the cluster")
	}
	for _, t := range [...]string{env.Source, s.Node, env.Subject, env.Workspace, env.Cites, env.Cluster} {
		if err := checkText(t, maxAttribute); err != nil {
			return fmt.Errorf("attribute %.80q: %w", t, err)
		}
	}
	return checkPlace(rec, domain.TopicTelemetry, env.Cluster)
}

// alias returns b as a string that lives and changes with it.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// unpack appends the varints in b to dst, which is empty.
func unpack(dst []uint32, b []byte) ([]uint32, error) {
	if cap(dst) < len(b) {
		dst = make([]uint32, len(b), 2*len(b))
	}
	dst = dst[:len(b)]
	n := 0
	for i := 0; i < len(b); n++ {
		v := uint32(b[i])
		i++
		if v >= 0x80 {
			if i == len(b) {
				return dst[:0], errCut
			}
			if b[i] < 0x80 {
				v = v&0x7f | uint32(b[i])<<7
				i++
			} else {
				long, size := protowire.ConsumeVarint(b[i-1:])
				if size < 0 {
					return dst[:0], errCut
				}
				if long > math.MaxUint32 {
					return dst[:0], errors.New("value of more than 32 bits")
				}
				v, i = uint32(long), i-1+size
			}
		}
		dst[n] = v
	}
	return dst[:n], nil
}

// names writes out the table of names, which frontCode made. A name may share
// with the one before, that with its own, so a few bytes can stand for very
// many: the bound is checked before anything is written.
func (d *Decoder) names(tails []byte) error {
	s := &d.sample
	s.Strings = s.Strings[:0]
	parts := d.parts
	if len(parts)%2 != 0 {
		return errors.New("field name_parts: not pairs")
	}
	total, own, last := 0, 0, uint32(0)
	for i := 0; i+1 < len(parts); i += 2 {
		shared, rest := parts[i], parts[i+1]
		if shared > last || rest > maxName || shared+rest > maxName {
			return fmt.Errorf("field name_parts: name %d shares or has too much", i/2)
		}
		last = shared + rest
		own += int(rest)
		total += int(last)
	}
	switch {
	case own != len(tails):
		return fmt.Errorf("field name_tails: %d bytes, the parts add up to %d", len(tails), own)
	case total > maxNameBytes:
		return fmt.Errorf("field names: %d bytes written out, more than %d", total, maxNameBytes)
	}
	if cap(d.arena) < total {
		d.arena = make([]byte, total, 2*total)
	}
	arena := d.arena[:total]
	at, before := 0, 0
	for i := 0; i+1 < len(parts); i += 2 {
		shared, size := int(parts[i]), int(parts[i]+parts[i+1])
		name := arena[at : at+size]
		copy(name, arena[before:before+shared])
		copy(name[shared:], tails)
		tails = tails[size-shared:]
		if size > 0 && !utf8.RuneStart(name[0]) {
			return errors.New("field names: not UTF-8")
		}
		s.Strings = append(s.Strings, alias(name))
		before, at = at, at+size
	}
	// With every name starting a character, all are text if all together are.
	if !utf8.Valid(arena) || bytes.IndexByte(arena, 0) >= 0 {
		return errors.New("field names: not UTF-8, or with a NUL byte")
	}
	return nil
}

// checkSample holds what is true of every sample: each array is empty or has
// one value per entry, and every reference points at something.
func checkSample(s *domain.NodeSampled) error {
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
	for _, a := range [...]struct {
		field  int
		values []uint32
		most   int
	}{
		{fieldHolder, s.Holder, len(s.HolderWorkspace)},
		{fieldParent, s.Parent, len(s.Parents) / 16},
		{fieldProfile, s.Profile, len(s.Strings)},
		{fieldReplica, s.Replica, math.MaxUint32},
		{fieldActivityMean, s.ActivityMean, blankPermille},
		{fieldActivityMin, s.ActivityMin, blankPermille},
		{fieldActivityMax, s.ActivityMax, blankPermille},
		{fieldTensorActive, s.TensorActive, blankPermille},
		{fieldDRAMActive, s.DRAMActive, blankPermille},
		{fieldMemoryUsed, s.MemoryUsedMiB, math.MaxUint32},
		{fieldPower, s.PowerWatts, math.MaxUint32},
		{fieldTemperature, s.TemperatureC, math.MaxUint32},
		{fieldSMClock, s.SMClockMHz, math.MaxUint32},
	} {
		if len(a.values) != 0 && len(a.values) != n {
			return fmt.Errorf("field %s: %d values for %d entries", sampleFields[a.field], len(a.values), n)
		}
		if err := within32(a.field, a.values, a.most); err != nil {
			return err
		}
	}
	if err := within32(fieldHolderWorkspace, s.HolderWorkspace, len(s.Strings)); err != nil {
		return err
	}
	if err := within32(fieldHolderDeployment, s.HolderDeployment, len(s.Strings)); err != nil {
		return err
	}
	if err := within32(fieldHolderUnit, s.HolderUnit, len(s.Strings)); err != nil {
		return err
	}
	if err := within32(fieldOtherEntry, s.OtherEntry, n-1); err != nil {
		return err
	}
	return checkIDs(s, n)
}

// blankPermille is the largest share, 1000 per mille, as metrics hold it: plus one.
const blankPermille = 1001

func within32(field int, vs []uint32, most int) error {
	for _, v := range vs {
		if int(v) > most {
			return fmt.Errorf("field %s: %d is more than %d", sampleFields[field], v, most)
		}
	}
	return nil
}

// checkIDs holds that no id is zero and that no two entries are one device and replica.
func checkIDs(s *domain.NodeSampled, n int) error {
	for i := range n {
		id := s.IDs[16*i : 16*i+16]
		tail := binary.LittleEndian.Uint64(id[8:])
		if tail == 0 && binary.LittleEndian.Uint64(id) == 0 {
			return fmt.Errorf("field ids: entry %d has no id", i)
		}
		for j := range i {
			if binary.LittleEndian.Uint64(s.IDs[16*j+8:]) == tail && bytes.Equal(id, s.IDs[16*j:16*j+16]) &&
				(len(s.Replica) == 0 || s.Replica[i] == s.Replica[j]) {
				return fmt.Errorf("field ids: entries %d and %d are both %s", j, i, domain.GPUID(id))
			}
		}
	}
	return nil
}
