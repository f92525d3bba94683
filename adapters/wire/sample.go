package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
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

// appendSample appends the payload of a sample, or refuses it.
func appendSample(b []byte, env *domain.Envelope, s *domain.NodeSampled) ([]byte, error) {
	if env.Time != s.Interval.To {
		return nil, fmt.Errorf("time %s is not the end of its interval, %s", env.Time, s.Interval.To)
	}
	arrays := sampleArrays(s)
	if err := checkSample(s, &arrays); err != nil {
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

	var tails []byte
	var seen uint64
	buf := rec.Value
	for i := 0; i < len(buf); {
		tag := uint64(buf[i])
		i++
		if tag >= 0x80 {
			if i < len(buf) && buf[i] < 0x80 { // every field above 15
				tag = tag&0x7f | uint64(buf[i])<<7
				i++
			} else {
				long, n := varint(buf[i-1:])
				if n == 0 {
					return errCut
				}
				tag, i = long, i-1+n
			}
		}
		f, kind := tag>>3, protowire.Type(tag&7)
		if f == 0 || f >= fieldCount {
			n, ok := skip(f, kind, buf[i:])
			if !ok {
				return errCut
			}
			i += n
			continue
		}
		if seen&(1<<f) != 0 {
			return fmt.Errorf("field %s: given twice", sampleFields[f])
		}
		seen |= 1 << f
		switch kind {
		case protowire.BytesType:
			if i == len(buf) {
				return errCut
			}
			size := uint64(buf[i])
			i++
			if size >= 0x80 {
				long, n := varint(buf[i-1:])
				if n == 0 {
					return errCut
				}
				size, i = long, i-1+n
			}
			if size > uint64(len(buf)-i) {
				return errCut
			}
			v := buf[i : i+int(size) : i+int(size)]
			i += int(size)
			if a := d.arrays[f]; a != nil {
				if !unpack(a, v) {
					return fmt.Errorf("field %s: an array is cut off, or a value has more than 32 bits", sampleFields[f])
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
					x, n := varint(v)
					if n == 0 {
						return errCut
					}
					s.OtherValue, v = append(s.OtherValue, x), v[n:]
				}
			default:
				return fmt.Errorf("field %s: %w", sampleFields[f], errKind)
			}
		case protowire.VarintType:
			v, n := varint(buf[i:])
			if n == 0 {
				return errCut
			}
			i += n
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
			if len(buf)-i < 8 {
				return errCut
			}
			t := domain.Instant(binary.LittleEndian.Uint64(buf[i:]))
			i += 8
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

	for unseen := arrayFields &^ seen; unseen != 0; unseen &= unseen - 1 {
		a := d.arrays[bits.TrailingZeros64(unseen)]
		*a = (*a)[:0]
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
	if err := checkSample(s, &d.arrays); err != nil {
		return err
	}
	if err := checkText(env.Source, maxAttribute); err != nil {
		return fmt.Errorf("field source: %w", err)
	}
	if err := checkText(s.Node, maxAttribute); err != nil {
		return fmt.Errorf("field node: %w", err)
	}
	if seen&(1<<fieldSubject|1<<fieldWorkspace|1<<fieldCites) != 0 {
		for _, t := range [...]string{env.Subject, env.Workspace, env.Cites} {
			if err := checkText(t, maxAttribute); err != nil {
				return fmt.Errorf("field subject, workspace or cites: %w", err)
			}
		}
	}
	if rec.Topic == domain.TopicTelemetry && rec.Partition == d.partition && env.Cluster == d.cluster && d.cluster != "" {
		return nil // where the last sample was found
	}
	if env.Cluster == "" {
		return errors.New("the record has no key, which names the cluster")
	}
	if err := checkText(env.Cluster, maxAttribute); err != nil {
		return fmt.Errorf("key %.80q: %w", rec.Key, err)
	}
	if err := checkPlace(rec, domain.TopicTelemetry, env.Cluster); err != nil {
		return err
	}
	d.cluster, d.partition = strings.Clone(env.Cluster), rec.Partition
	return nil
}

// skip returns the length of a field that a newer writer knows.
func skip(f uint64, kind protowire.Type, b []byte) (int, bool) {
	if f == 0 || f > uint64(protowire.MaxValidNumber) {
		return 0, false
	}
	n := protowire.ConsumeFieldValue(protowire.Number(f), kind, b)
	return n, n >= 0
}

// alias returns b as a string that lives and changes with it.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// varint reads one varint, and returns 0 bytes where there is none.
func varint(b []byte) (uint64, int) {
	v, n := protowire.ConsumeVarint(b)
	return v, max(n, 0)
}

// The continuation bits of eight varints of one byte, and of four of two bytes.
const (
	highBits  = 0x8080808080808080
	evenBits  = 0x0080008000800080
	evenSeven = 0x007f007f007f007f
	oddSeven  = 0x3f803f803f803f80
)

// unpack sets to to the varints in b, and reports whether that is what b holds.
// Most arrays hold numbers of one byte or of two throughout, which are taken
// eight bytes at a time.
func unpack(to *[]uint32, b []byte) bool {
	dst := *to
	if cap(dst) < len(b) {
		dst = make([]uint32, 2*len(b))
	}
	dst = dst[:len(b)]
	i, n := 0, 0
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		if w&highBits == evenBits {
			w = w&evenSeven | w>>1&oddSeven
			out := (*[4]uint32)(dst[n:])
			out[0], out[1], out[2], out[3] = uint32(w&0xffff), uint32(w>>16&0xffff), uint32(w>>32&0xffff), uint32(w>>48)
			i, n = i+8, n+4
			continue
		}
		if w&highBits == 0 {
			out := (*[8]uint32)(dst[n:])
			out[0], out[1], out[2], out[3] = uint32(w&0xff), uint32(w>>8&0xff), uint32(w>>16&0xff), uint32(w>>24&0xff)
			out[4], out[5], out[6], out[7] = uint32(w>>32&0xff), uint32(w>>40&0xff), uint32(w>>48&0xff), uint32(w>>56)
			i, n = i+8, n+8
			continue
		}
		v := uint32(w & 0x7f)
		switch {
		case w&0x80 == 0:
			i++
		case w&0x8000 == 0:
			v, i = v|uint32(w>>1&0x3f80), i+2
		case w&0x800000 == 0:
			v, i = v|uint32(w>>1&0x3f80)|uint32(w>>2&0x1fc000), i+3
		default:
			return unpackRest(to, dst, n, b[i:])
		}
		dst[n] = v
		n++
	}
	if i < len(b) {
		return unpackRest(to, dst, n, b[i:])
	}
	*to = dst[:n]
	return true
}

// unpackRest goes on where numbers are longer, or the last few are left.
func unpackRest(to *[]uint32, dst []uint32, n int, b []byte) bool {
	for len(b) > 0 {
		v, size := varint(b)
		if size == 0 || v > math.MaxUint32 {
			return false
		}
		dst[n] = uint32(v)
		n, b = n+1, b[size:]
	}
	*to = dst[:n]
	return true
}

// names writes out the table of names, which frontCode made. A name that shares
// nothing stays where it is; the others are put together in the arena. Each may
// share with the one before, so a few bytes can stand for very many: hence the
// bound.
func (d *Decoder) names(tails []byte) error {
	s := &d.sample
	if len(d.parts)%2 != 0 {
		return errors.New("field name_parts: not pairs")
	}
	if n := len(d.parts) / 2; cap(s.Strings) < n {
		s.Strings = make([]string, 0, 2*n)
	}
	s.Strings = s.Strings[:0]
	ascii := plain(alias(tails))
	if !ascii {
		if err := checkText(alias(tails), maxSample); err != nil {
			return fmt.Errorf("field name_tails: %w", err)
		}
	}
	var name []byte
	used, total := 0, uint(0)
	for parts := d.parts; len(parts) > 1; parts = parts[2:] {
		shared, rest := uint(parts[0]), uint(parts[1])
		if shared > uint(len(name)) || rest > uint(len(tails)) || shared+rest > maxName {
			return fmt.Errorf("field name_parts: name %d is longer than there is text, or than %d bytes", len(s.Strings), maxName)
		}
		if total += shared + rest; total > maxNameBytes {
			return fmt.Errorf("field name_parts: names of more than %d bytes", maxNameBytes)
		}
		if shared == 0 {
			name = tails[:rest]
		} else {
			size := int(shared + rest)
			if used+size > len(d.arena) {
				d.arena, used = make([]byte, 2*(used+size)+maxName), 0 // names until here stay in the old one
			}
			next := d.arena[used : used+size : used+size]
			copy(next, name[:shared])
			copy(next[shared:], tails[:rest])
			name, used = next, used+size
		}
		tails = tails[rest:]
		if !ascii {
			if err := checkText(alias(name), maxName); err != nil {
				return fmt.Errorf("field name_tails: name %d: %w", len(s.Strings), err)
			}
		}
		s.Strings = append(s.Strings, alias(name))
	}
	if len(tails) != 0 {
		return fmt.Errorf("field name_tails: %d bytes belong to no name", len(tails))
	}
	return nil
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
