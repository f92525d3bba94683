package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"quartermaster/domain"
)

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
