package projections

import (
	"encoding/binary"
	"slices"

	"quartermaster/domain"
)

// There is a stream for every node and topic, and each batch changes many of them, so that streams
// are encoded and decoded without reflection. The form is that of every other row: a map by the
// names of fields, without those that are empty. recent is a byte string: for each record the
// differences of its sequence and its offset to the record before, as varints, and the four bytes
// of its sum.

const (
	majorMap = 5 // a CBOR major type, as in usage hours
	cborNull = 0xf6
)

// appendStream appends the encoding of a stream. Keys are in the order of their encodings.
func appendStream(b []byte, s *Stream) []byte {
	head := len(b)
	b = append(b, 0)
	fields := byte(0)
	field := func(name string) {
		fields++
		b = appendText(b, name)
	}
	if len(s.Gaps) > 0 {
		field("gaps")
		b = appendHead(b, majorArray, uint64(len(s.Gaps)))
		for _, g := range s.Gaps {
			b = appendUints(appendHead(b, majorArray, 2), g.First, g.Last)
		}
	}
	field("last")
	b = appendText(b, s.Last.String())
	if s.Lost > 0 {
		field("lost")
		b = appendUints(b, s.Lost)
	}
	field("mark")
	b = appendUints(b, s.Mark)
	if s.Past != nil {
		field("past")
		b = appendPast(b, s.Past)
	}
	if s.Ahead != 0 {
		field("ahead")
		b = appendText(b, s.Ahead.String())
	}
	if s.Ended > 0 {
		field("ended")
		b = appendUints(b, s.Ended)
	}
	field("recent")
	b = appendRecent(b, s.Recent)
	field("source")
	b = appendText(b, s.Source)
	if s.Forgotten > 0 {
		field("forgotten")
		b = appendUints(b, s.Forgotten)
	}
	field("incarnation")
	b = appendUints(b, s.Incarnation)
	if s.Uncompared > 0 {
		field("not_compared")
		b = appendUints(b, s.Uncompared)
	}
	b[head] = majorMap<<5 | fields
	return b
}

func appendPast(b []byte, p *Past) []byte {
	fields := byte(2)
	for _, n := range []uint64{p.First, p.Last} {
		if n > 0 {
			fields++
		}
	}
	b = append(b, majorMap<<5|fields)
	if p.Last > 0 {
		b = appendUints(appendText(b, "last"), p.Last)
	}
	if p.First > 0 {
		b = appendUints(appendText(b, "first"), p.First)
	}
	b = appendText(b, "lives")
	if p.Lives == nil {
		b = append(b, cborNull)
	} else {
		b = appendHead(b, majorArray, uint64(len(p.Lives)))
		for _, l := range p.Lives {
			b = appendUints(appendHead(b, majorArray, 2), l.Incarnation, l.Mark)
		}
	}
	return appendUints(appendText(b, "incarnations"), p.Incarnations)
}

func appendRecent(b []byte, r Recent) []byte {
	var few [1024]byte
	raw := few[:0]
	var seq uint64
	var offset int64
	for _, s := range r {
		raw = binary.AppendUvarint(raw, s.Sequence-seq)
		raw = binary.AppendVarint(raw, s.Offset-offset)
		raw = binary.BigEndian.AppendUint32(raw, s.Sum)
		seq, offset = s.Sequence, s.Offset
	}
	return append(appendHead(b, majorBytes, uint64(len(raw))), raw...)
}

// UnmarshalCBOR implements cbor.Unmarshaler. It reuses the memory of the stream's Recent.
func (s *Stream) UnmarshalCBOR(b []byte) error {
	r := cborReader{b: b}
	*s = Stream{Recent: s.Recent[:0]}
	for n := r.head(majorMap); n > 0 && r.err == nil; n-- {
		switch key := r.bytes(majorText); string(key) {
		case "gaps":
			if n := r.array(); n > 0 {
				s.Gaps = make([]Gap, n)
			}
			for i := range s.Gaps {
				r.tuple(2)
				s.Gaps[i] = Gap{First: r.uint64(), Last: r.uint64()}
			}
		case "last":
			s.Last = r.instant()
		case "lost":
			s.Lost = r.uint64()
		case "mark":
			s.Mark = r.uint64()
		case "past":
			s.Past = r.past()
		case "ahead":
			s.Ahead = r.instant()
		case "ended":
			s.Ended = r.uint64()
		case "recent":
			r.recent(&s.Recent)
		case "source":
			s.Source = r.text()
		case "forgotten":
			s.Forgotten = r.uint64()
		case "incarnation":
			s.Incarnation = r.uint64()
		case "not_compared":
			s.Uncompared = r.uint64()
		default:
			r.fail("a stream has no %q", key)
		}
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes follow", len(r.b))
	}
	return r.err
}

func (r *cborReader) instant() (t domain.Instant) {
	if err := t.UnmarshalText(r.bytes(majorText)); err != nil {
		r.fail("%v", err)
	}
	return t
}

func (r *cborReader) past() *Past {
	p := &Past{}
	for n := r.head(majorMap); n > 0 && r.err == nil; n-- {
		switch key := r.bytes(majorText); string(key) {
		case "last":
			p.Last = r.uint64()
		case "first":
			p.First = r.uint64()
		case "lives":
			if len(r.b) > 0 && r.b[0] == cborNull {
				r.b = r.b[1:]
				continue
			}
			p.Lives = make([]Life, r.array())
			for i := range p.Lives {
				r.tuple(2)
				p.Lives[i] = Life{Incarnation: r.uint64(), Mark: r.uint64()}
			}
		case "incarnations":
			p.Incarnations = r.uint64()
		default:
			r.fail("the past of a stream has no %q", key)
		}
	}
	return p
}

// recent reads the records of a stream. Each takes at least six bytes.
func (r *cborReader) recent(into *Recent) {
	b := r.bytes(majorBytes)
	*into = slices.Grow(*into, len(b)/6)
	var last Seen
	for len(b) > 0 {
		seq, n := binary.Uvarint(b)
		if n <= 0 {
			r.fail("record %d of a stream is cut off", len(*into))
			return
		}
		offset, m := binary.Varint(b[n:])
		if m <= 0 || len(b) < n+m+4 {
			r.fail("record %d of a stream is cut off", len(*into))
			return
		}
		last = Seen{last.Sequence + seq, last.Offset + offset, binary.BigEndian.Uint32(b[n+m:])}
		*into = append(*into, last)
		b = b[n+m+4:]
	}
}
