package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"quartermaster/domain"
)

func isSample(rec *domain.Record) bool {
	return len(rec.Headers) == 2 &&
		rec.Headers[0].Key == specHeader && string(rec.Headers[0].Value) == specVersion &&
		rec.Headers[1].Key == typeHeader && string(rec.Headers[1].Value) == sampledType
}

var (
	errCut  = errors.New("payload is cut off or damaged")
	errKind = errors.New("wrong wire type, arrays must be packed")
)

const (
	everyField uint64 = 1<<fieldCount - 2
	// rareTexts are text fields that most samples lack.
	rareTexts uint64 = 1<<fieldSubject | 1<<fieldWorkspace | 1<<fieldCites
)

// decodeSample decodes the output of appendSample into the decoder's memory. There are half a
// million samples for every other event, so the common path calls no functions.
func (d *Decoder) decodeSample(rec *domain.Record, env *domain.Envelope) error {
	buf := rec.Value
	if len(buf) > maxSample {
		return fmt.Errorf("payload of %d bytes, more than %d", len(buf), maxSample)
	}
	s := &d.sample
	if d.arrays[fieldHolder] == nil {
		d.arrays = sampleArrays(s)
		d.arrays[fieldNameParts] = &d.parts
	}
	if len(d.values) < len(buf)+8 { // no value is shorter than a byte; word access needs 8 more
		d.values = make([]uint32, 2*len(buf)+8)
	}
	values := d.values
	before := d.filled
	d.filled = everyField

	used := 0           // number of values used
	var tails, text int // start and end of name_tails
	var seen uint64
	for i := 0; i < len(buf); {
		begin := i
		tag := uint64(buf[i])
		i++
		if tag >= 0x80 {
			if i < len(buf) && buf[i] < 0x80 { // every field number above 15
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
		if seen>>f&1 != 0 {
			return fmt.Errorf("field %s: given twice", sampleFields[f])
		}
		if kind == protowire.BytesType && arrayFields>>f&1 != 0 {
			if at, to, met := d.columns(buf, begin, used, seen); at > begin {
				i, used, seen = at, to, met
				continue
			}
		}
		seen |= 1 << f
		switch kind {
		case protowire.BytesType:
			if i >= len(buf) {
				return errCut
			}
			size := uint64(buf[i])
			i++
			if size >= 0x80 {
				if i < len(buf) && buf[i] < 0x80 {
					size = size&0x7f | uint64(buf[i])<<7
					i++
				} else {
					long, n := varint(buf[i-1:])
					if n == 0 {
						return errCut
					}
					size, i = long, i-1+n
				}
			}
			if size > uint64(len(buf)-i) {
				return errCut
			}
			end := i + int(size)
			v := buf[i:end:end]
			if arrayFields>>f&1 != 0 {
				n := unpack(values[used:], buf[i:end:len(buf)])
				if n < 0 {
					return fmt.Errorf("field %s: an array is cut off, or a value has more than 32 bits", sampleFields[f])
				}
				*d.arrays[f] = values[used : used+n : used+n]
				used, i = used+n, end
				continue
			}
			switch f {
			case fieldSource:
				env.Source = alias(v)
			case fieldNode:
				s.Node = alias(v)
			case fieldNameTails:
				tails, text = i, end
			case fieldIDs:
				s.IDs = v
			case fieldParents:
				s.Parents = v
			case fieldSubject:
				env.Subject = alias(v)
			case fieldWorkspace:
				env.Workspace = alias(v)
			case fieldCites:
				env.Cites = alias(v)
			case fieldOtherValue:
				s.OtherValue = s.OtherValue[:0]
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
			i = end
		case protowire.VarintType:
			var v uint64
			if i+1 < len(buf) && buf[i]&0x80 != 0 && buf[i+1]&0x80 == 0 {
				v = uint64(buf[i])&0x7f | uint64(buf[i+1])<<7
				i += 2
			} else {
				long, n := varint(buf[i:])
				if n == 0 {
					return errCut
				}
				v, i = long, i+n
			}
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
			case fieldHoldersUnknown:
				s.HoldersUnknown = v != 0
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
	if absent := before &^ seen; absent != 0 {
		d.clear(absent)
	}
	d.filled = seen

	if err := d.names(buf[tails:], text-tails); err != nil {
		return err
	}
	env.Time = s.Interval.To
	if env.Subject == "" {
		env.Subject = s.Node
	}
	env.Event = s
	if err := checkContext(env); err != nil {
		return err
	}
	if err := checkInterval(s.Interval); err != nil {
		return err
	}
	if len(env.Source) > maxAttribute || !plain(env.Source) {
		if err := checkText(env.Source, maxAttribute); err != nil {
			return fmt.Errorf("field source: %w", err)
		}
	}
	if len(s.Node) > maxAttribute || !plain(s.Node) {
		if err := checkText(s.Node, maxAttribute); err != nil {
			return fmt.Errorf("field node: %w", err)
		}
	}
	if seen&rareTexts != 0 {
		for _, t := range [...]string{env.Subject, env.Workspace, env.Cites} {
			if err := checkText(t, maxAttribute); err != nil {
				return fmt.Errorf("field subject, workspace or cites: %w", err)
			}
		}
	}
	return d.place(rec, env)
}

// place is what a key of samples says.
type place struct {
	cluster              string
	shard, of, partition int
}

// maxKeysKnown bounds the places that a decoder remembers: the shards of several large clusters.
const maxKeysKnown = 1 << 13

// place sets the cluster of a sample, and checks that it is in the topic and partition of its key,
// in the shard of its node.
func (d *Decoder) place(rec *domain.Record, env *domain.Envelope) error {
	p, known := d.places[string(rec.Key)]
	if !known || rec.Partition != p.partition || rec.Topic != domain.TopicTelemetry {
		var err error
		if p, err = d.newPlace(rec); err != nil {
			return err
		}
	}
	env.Cluster, env.Shards = p.cluster, p.of
	if p.of > 1 && domain.ShardOf(d.sample.Node, p.of) != p.shard {
		return checkPlace(rec, domain.TopicTelemetry, domain.NodeKey(p.cluster, d.sample.Node, p.of))
	}
	return nil
}

func (d *Decoder) newPlace(rec *domain.Record) (p place, err error) {
	key := string(rec.Key)
	if key == "" {
		return p, errors.New("the record has no key, which names the cluster")
	}
	if err := checkText(key, maxAttribute); err != nil {
		return p, fmt.Errorf("key %.80q: %w", rec.Key, err)
	}
	p.partition = rec.Partition
	if p.cluster, p.shard, p.of, err = domain.ParseShardKey(key); err != nil {
		return p, err
	}
	if err := checkPlace(rec, domain.TopicTelemetry, key); err != nil {
		return p, err
	}
	if d.places == nil || len(d.places) >= maxKeysKnown {
		d.places = map[string]place{}
	}
	d.places[key] = p
	return p, nil
}

// columns decodes an array of at most 127 bytes, whose tag is at i, and the arrays that directly
// follow it, as long as they have the usual encoding. It returns the offset after them, the number
// of values used, and the fields seen. decodeSample, its caller, handles everything else. Most
// machines have eight GPUs, so arrays of 8 and 16 bytes are decoded in one step.
func (d *Decoder) columns(buf []byte, i, used int, seen uint64) (int, int, uint64) {
	p := unsafe.Pointer(unsafe.SliceData(buf))
	for i+8 <= len(buf) {
		w := word8(p, i)
		tag, at := w&0x7f, i+2
		if w&0x80 != 0 {
			if w&0x8000 != 0 {
				break
			}
			tag, w, at = tag|w>>1&0x3f80, w>>8, i+3
		}
		f, size := tag>>3, int(w>>8&0xff)
		if f >= fieldCount || tag&7 != uint64(protowire.BytesType) ||
			arrayFields&^seen>>f&1 == 0 || size >= 0x80 || size > len(buf)-at {
			break
		}
		n := 8
		out := (*[8]uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(d.values)), 4*used))
		switch size {
		case 16:
			w, x := word8(p, at), word8(p, at+8)
			if ((w^evenBits)|(x^evenBits))&highBits != 0 {
				n = unpack(d.values[used:], buf[at:at+size:len(buf)])
				break
			}
			twoBytes((*[4]uint32)(out[:4]), w)
			twoBytes((*[4]uint32)(out[4:]), x)
		case 8:
			w := word8(p, at)
			if w&highBits != 0 {
				n = unpack(d.values[used:], buf[at:at+size:len(buf)])
				break
			}
			oneByte(out, w)
		default:
			n = unpack(d.values[used:], buf[at:at+size:len(buf)])
		}
		if n < 0 {
			break
		}
		*d.arrays[f] = d.values[used : used+n : used+n]
		i, used, seen = at+size, used+n, seen|1<<f
	}
	return i, used, seen
}

func word8(p unsafe.Pointer, i int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(p, i))[:])
}

// oneByte splits eight varints of one byte each.
func oneByte(out *[8]uint32, w uint64) {
	out[0], out[1], out[2], out[3] = uint32(uint8(w)), uint32(uint8(w>>8)), uint32(uint8(w>>16)), uint32(uint8(w>>24))
	out[4], out[5], out[6], out[7] = uint32(uint8(w>>32)), uint32(uint8(w>>40)), uint32(uint8(w>>48)), uint32(w>>56)
}

// twoBytes splits four varints of two bytes each.
func twoBytes(out *[4]uint32, w uint64) {
	w = w&evenSeven | w>>1&oddSeven
	out[0], out[1], out[2], out[3] = uint32(uint16(w)), uint32(uint16(w>>16)), uint32(uint16(w>>32)), uint32(w>>48)
}

// clear resets the fields that an earlier sample set and this one lacks.
func (d *Decoder) clear(absent uint64) {
	s := &d.sample
	for rest := absent & arrayFields; rest != 0; rest &= rest - 1 {
		*d.arrays[bits.TrailingZeros64(rest)] = nil
	}
	if absent&(1<<fieldNode) != 0 {
		s.Node = ""
	}
	if absent&(1<<fieldFrom) != 0 {
		s.Interval.From = 0
	}
	if absent&(1<<fieldTo) != 0 {
		s.Interval.To = 0
	}
	if absent&(1<<fieldIDs) != 0 {
		s.IDs = nil
	}
	if absent&(1<<fieldParents) != 0 {
		s.Parents = nil
	}
	if absent&(1<<fieldOtherValue) != 0 {
		s.OtherValue = s.OtherValue[:0]
	}
	if absent&(1<<fieldActivityField) != 0 {
		s.ActivityField = 0
	}
	if absent&(1<<fieldSkew) != 0 {
		s.SkewNanos = 0
	}
	if absent&(1<<fieldHoldersUnknown) != 0 {
		s.HoldersUnknown = false
	}
}

// skip returns the length of a field that only newer writers know.
func skip(f uint64, kind protowire.Type, b []byte) (int, bool) {
	if f == 0 || f > uint64(protowire.MaxValidNumber) {
		return 0, false
	}
	n := protowire.ConsumeFieldValue(protowire.Number(f), kind, b)
	return n, n >= 0
}

// alias returns b as a string that shares its memory.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// varint reads one varint, and returns length 0 if there is none. It reads up to eight bytes at
// once, and joins the groups of seven bits pairwise.
func varint(b []byte) (uint64, int) {
	if len(b) >= 8 {
		w := binary.LittleEndian.Uint64(b)
		if ends := ^w & highBits; ends != 0 {
			w &= ends ^ (ends - 1)
			w = w&0x007f007f007f007f | w>>1&0x3f803f803f803f80
			w = w&0x00003fff00003fff | w>>2&0x0fffc0000fffc000
			w = w&0x000000000fffffff | w>>4&0x00fffffff0000000
			return w, bits.TrailingZeros64(ends)/8 + 1
		}
	}
	v, n := protowire.ConsumeVarint(b)
	return v, max(n, 0)
}

// Masks over eight bytes: the continuation bits of all bytes, of four varints of two bytes, and of
// two varints of three bytes, and the corresponding value bits.
const (
	highBits  = 0x8080808080808080
	evenBits  = 0x0080008000800080
	evenSeven = 0x007f007f007f007f
	oddSeven  = 0x3f803f803f803f80
	sixHigh   = 0x0000808080808080
	sixBits   = 0x0000008080008080
)

// unpack sets values to the varints in b and returns their number, or -1 if b is not valid. values
// MUST have room for eight more values than b has bytes. Most arrays hold numbers of one, two or
// three bytes throughout, which are decoded eight bytes at a time. unpack may read bytes after b,
// up to its capacity, and ignores them. It may also write after the last value. Every number has at
// least one byte, so all writes stay within that room.
func unpack(values []uint32, b []byte) int {
	if len(values) < len(b)+8 {
		return -1
	}
	first, p := unsafe.Pointer(unsafe.SliceData(values)), unsafe.Pointer(unsafe.SliceData(b))
	i, n := 0, 0
	for i < len(b) {
		if i+8 > cap(b) {
			return unpackRest(values, n, b[i:])
		}
		w, left := word8(p, i), len(b)-i
		out := (*[8]uint32)(unsafe.Add(first, 4*n))
		if left < 8 {
			if w<<(64-8*left)&highBits == 0 {
				oneByte(out, w)
				return n + left
			}
		} else if w&highBits == evenBits {
			twoBytes((*[4]uint32)(out[:4]), w)
			i, n = i+8, n+4
			continue
		} else if w&highBits == 0 {
			oneByte(out, w)
			i, n = i+8, n+8
			continue
		}
		if w&sixHigh == sixBits && left >= 6 {
			out[0] = uint32(w&0x7f | w>>1&0x3f80 | w>>2&0x1fc000)
			out[1] = uint32(w>>24&0x7f | w>>25&0x3f80 | w>>26&0x1fc000)
			i, n = i+6, n+2
			continue
		}
		switch {
		case w&0x80 == 0:
			out[0] = uint32(w & 0x7f)
			i++
		case w&0x8000 == 0:
			out[0] = uint32(w&0x7f | w>>1&0x3f80)
			i += 2
		case w&0x800000 == 0:
			out[0] = uint32(w&0x7f | w>>1&0x3f80 | w>>2&0x1fc000)
			i += 3
		default:
			return unpackRest(values, n, b[i:])
		}
		n++
	}
	if i > len(b) { // the last number extends beyond the array
		return -1
	}
	return n
}

// unpackRest continues unpack with longer numbers, or with the last few.
func unpackRest(values []uint32, n int, b []byte) int {
	for len(b) > 0 {
		if b[0] < 0x80 {
			values[n] = uint32(b[0])
			n, b = n+1, b[1:]
			continue
		}
		if len(b) >= 3 && b[1]&b[2]&0x80 == 0 {
			v := uint32(b[0])&0x7f | uint32(b[1])&0x7f<<7
			size := 2
			if b[1] >= 0x80 {
				v, size = v|uint32(b[2])<<14, 3
			}
			values[n] = v
			n, b = n+1, b[size:]
			continue
		}
		v, size := varint(b)
		if size == 0 || v > math.MaxUint32 {
			return -1
		}
		values[n] = uint32(v)
		n, b = n+1, b[size:]
	}
	return n
}

// block is the unit in which names are copied. Nearly all names need one block, so no loop.
const block = 32

func copyBlock(to, from unsafe.Pointer) {
	*(*[block / 2]byte)(to) = *(*[block / 2]byte)(from)
	*(*[block / 2]byte)(unsafe.Add(to, block/2)) = *(*[block / 2]byte)(unsafe.Add(from, block/2))
}

// names decodes the table of names that frontCode made, one after the other. The tails are the
// first size bytes of text. Each name may share a prefix with the one before, so a few bytes can
// stand for very many: hence the bound.
//
// A copy extends to the end of a block, over bytes that are overwritten next. It may read beyond
// the tails, within the payload.
func (d *Decoder) names(text []byte, size int) error {
	s := &d.sample
	parts := d.parts
	if len(parts)%2 != 0 {
		return errors.New("field name_parts: not pairs")
	}
	if cap(s.Strings) < len(parts)/2 {
		s.Strings = make([]string, 0, len(parts))
	}
	names := s.Strings[:len(parts)/2]
	s.Strings = names
	ascii := plain(alias(text[:size]))
	if !ascii {
		if err := checkText(alias(text[:size]), maxSample); err != nil {
			return fmt.Errorf("field name_tails: %w", err)
		}
	}
	arena := unsafe.Pointer(unsafe.SliceData(d.arena))
	room := len(d.arena) - 2*maxName // a name and a block fit after it
	// at is where this name begins in the arena, and length is how long the one before it is.
	at, length := 0, 0
	// like is where the first name begins that shares at least alike bytes with this one.
	like, alike := 0, 0
	first, last := unsafe.Pointer(unsafe.SliceData(text)), len(text)-block // the last offset of a whole block
	tail := 0
	for i := range names {
		shared, rest := int(min(parts[0], maxSample)), int(min(parts[1], maxSample))
		parts = parts[2:]
		if shared > length || rest > size-tail || shared+rest > maxName {
			return fmt.Errorf("field name_parts: name %d is longer than there is text, or than %d bytes", i, maxName)
		}
		if shared > alike {
			like = at - length
		}
		alike, length = shared, shared+rest
		if at > room {
			if at > maxNameBytes {
				return fmt.Errorf("field name_parts: names of more than %d bytes", maxNameBytes)
			}
			d.arena = make([]byte, 2*at+8*maxName)
			return d.names(text, size)
		}
		name := unsafe.Add(arena, at)
		for n := 0; n < shared; n += block {
			copyBlock(unsafe.Add(name, n), unsafe.Add(arena, like+n))
		}
		if tail+rest <= last {
			for n := 0; n < rest; n += block {
				copyBlock(unsafe.Add(name, shared+n), unsafe.Add(first, tail+n))
			}
		} else {
			copy(d.arena[at+shared:], text[tail:tail+rest])
		}
		names[i] = unsafe.String((*byte)(name), length)
		if !ascii {
			if err := checkText(names[i], maxName); err != nil {
				return fmt.Errorf("field name_tails: name %d: %w", i, err)
			}
		}
		tail += rest
		at += length
	}
	if tail != size {
		return fmt.Errorf("field name_tails: %d bytes belong to no name", size-tail)
	}
	return nil
}
