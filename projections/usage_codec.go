package projections

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"quartermaster/domain"
)

// Usage hours are most of a snapshot, so they are encoded and decoded without
// reflection, which is ten times as fast. The form is the same deterministic CBOR as
// everywhere else:
//
//	hour      [[holder...], [observer...]]
//	holder    [workspace, deployment, unit]
//	observer  [source, activity field, [cut...], [device...], [other...], samples]
//	cut       [GPU id as 16 bytes, profile]
//	device    [id as 16 bytes, replica, cut, segments, readings], followed for scraped
//	          data by covered: from and to of each span, an array for each reading.
//	          If the holder is unknown for a time: [] or covered, and from and to of
//	          each such span
//	segments  from, to, holder, known, active of each segment, in one array
//	readings  sum, known, max of tensor, DRAM, memory, power, heat, clock, in one array
//	other     [device, field, count, sum, max]

// CBOR major types, RFC 8949 §3.1.
const (
	majorUint     = 0
	majorNegative = 1
	majorBytes    = 2
	majorText     = 3
	majorArray    = 4
)

func appendHead(b []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= math.MaxUint8:
		return append(b, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(b, major|27), n)
	}
}

func appendText(b []byte, s string) []byte {
	return append(appendHead(b, majorText, uint64(len(s))), s...)
}

func appendID(b []byte, id domain.GPUID) []byte {
	return append(appendHead(b, majorBytes, uint64(len(id))), id[:]...)
}

func appendUints(b []byte, vs ...uint64) []byte {
	for _, v := range vs {
		b = appendHead(b, majorUint, v)
	}
	return b
}

func appendUsage(b []byte, u *UsageHour) []byte {
	b = appendHead(b, majorArray, 2)
	b = appendHead(b, majorArray, uint64(len(u.Holders)))
	for _, h := range u.Holders {
		b = appendHead(b, majorArray, 3)
		b = appendText(appendText(appendText(b, h.Workspace), h.Deployment), h.Unit)
	}
	b = appendHead(b, majorArray, uint64(len(u.Observers)))
	for i := range u.Observers {
		o := &u.Observers[i]
		b = appendHead(b, majorArray, 6)
		b = appendText(b, o.Source)
		b = appendUints(b, uint64(o.ActivityField))
		b = appendHead(b, majorArray, uint64(len(o.Cuts)))
		for _, c := range o.Cuts {
			b = appendText(appendID(appendHead(b, majorArray, 2), c.Parent), c.Profile)
		}
		b = appendHead(b, majorArray, uint64(len(o.Devices)))
		for j := range o.Devices {
			b = appendDevice(b, &o.Devices[j])
		}
		b = appendHead(b, majorArray, uint64(len(o.Others)))
		for _, r := range o.Others {
			b = appendUints(appendHead(b, majorArray, 5), uint64(r.Device), uint64(r.Field), r.Count, r.Sum, r.Max)
		}
		b = appendUints(b, uint64(o.Samples))
	}
	return b
}

func appendDevice(b []byte, d *Device) []byte {
	fields := uint64(5)
	if d.Covered != nil {
		fields = 6
	}
	if len(d.Unasked) > 0 {
		fields = 7
	}
	b = appendID(appendHead(b, majorArray, fields), d.ID)
	b = appendUints(b, uint64(d.Replica), uint64(d.Cut))
	b = appendHead(b, majorArray, uint64(5*len(d.Segments)))
	for _, s := range d.Segments {
		b = appendUints(b, uint64(s.From), uint64(s.To), uint64(s.Holder), uint64(s.Known), s.Active)
	}
	b = appendHead(b, majorArray, 18)
	for _, r := range d.readings() {
		b = appendUints(b, r.Sum, uint64(r.Known), uint64(r.Max))
	}
	if d.Covered != nil {
		b = appendHead(b, majorArray, uint64(len(d.Covered)))
		for _, spans := range d.Covered {
			b = appendSpans(b, spans)
		}
	} else if fields == 7 {
		b = appendHead(b, majorArray, 0)
	}
	if fields == 7 {
		b = appendSpans(b, d.Unasked)
	}
	return b
}

func appendSpans(b []byte, spans []Span) []byte {
	b = appendHead(b, majorArray, uint64(2*len(spans)))
	for _, s := range spans {
		b = appendUints(b, uint64(s.From), uint64(s.To))
	}
	return b
}

func (d *Device) readings() [6]*Reading {
	return [6]*Reading{&d.Tensor, &d.DRAM, &d.Memory, &d.Power, &d.Heat, &d.Clock}
}

// MarshalCBOR implements cbor.Marshaler.
func (u *UsageHour) MarshalCBOR() ([]byte, error) { return appendUsage(nil, u), nil }

// UnmarshalCBOR implements cbor.Unmarshaler.
func (u *UsageHour) UnmarshalCBOR(b []byte) error {
	r := cborReader{b: b}
	*u = UsageHour{}
	r.usage(u)
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes follow", len(r.b))
	}
	return r.err
}

var errCBOR = errors.New("not the CBOR of this row")

// cborReader reads CBOR from the front of b. After the first failure it returns zeros, and keeps
// the failure.
type cborReader struct {
	b     []byte
	err   error
	names map[string]string // unless nil, one copy of each text
}

func (r *cborReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", errCBOR, fmt.Sprintf(format, args...))
	}
	r.b = nil
}

func (r *cborReader) head(major byte) uint64 {
	if len(r.b) == 0 {
		r.fail("it ends early")
		return 0
	}
	first := r.b[0]
	if first>>5 != major {
		r.fail("major type %d, want %d", first>>5, major)
		return 0
	}
	var size int
	switch low := first & 31; {
	case low < 24:
		r.b = r.b[1:]
		return uint64(low)
	case low <= 27:
		size = 1 << (low - 24)
	default:
		r.fail("additional information %d", low)
		return 0
	}
	if len(r.b) < 1+size {
		r.fail("it ends early")
		return 0
	}
	var n uint64
	for _, c := range r.b[1 : 1+size] {
		n = n<<8 | uint64(c)
	}
	r.b = r.b[1+size:]
	return n
}

func (r *cborReader) uint64() uint64 { return r.head(majorUint) }

// integer reads a signed number.
func (r *cborReader) integer() int64 {
	if len(r.b) > 0 && r.b[0]>>5 == majorNegative {
		return -1 - int64(r.head(majorNegative))
	}
	return int64(r.head(majorUint))
}

func (r *cborReader) uint32() uint32 {
	n := r.head(majorUint)
	if n > math.MaxUint32 {
		r.fail("%d does not fit 32 bits", n)
	}
	return uint32(n)
}

// array returns the number of elements. Every element takes at least a byte.
func (r *cborReader) array() int {
	n := r.head(majorArray)
	if n > uint64(len(r.b)) {
		r.fail("an array of %d elements in %d bytes", n, len(r.b))
		return 0
	}
	return int(n)
}

// tuple reads the head of an array of exactly n elements.
func (r *cborReader) tuple(n int) {
	if got := r.array(); got != n && r.err == nil {
		r.fail("an array of %d elements, want %d", got, n)
	}
}

func (r *cborReader) bytes(major byte) []byte {
	n := r.head(major)
	if n > uint64(len(r.b)) {
		r.fail("%d bytes where %d are left", n, len(r.b))
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *cborReader) text() string {
	b := r.bytes(majorText)
	if r.names == nil {
		return string(b)
	}
	if s, ok := r.names[string(b)]; ok {
		return s
	}
	s := string(b)
	r.names[s] = s
	return s
}

// maxDepth is more than the nesting of any row.
const maxDepth = 16

// skip skips one item of the kinds that occur in rows.
func (r *cborReader) skip(depth int) {
	if len(r.b) == 0 || depth == 0 {
		r.fail("it ends early or nests too deep")
		return
	}
	switch major := r.b[0] >> 5; major {
	case majorUint, majorNegative:
		r.head(major)
	case majorBytes, majorText:
		r.bytes(major)
	case majorArray:
		for n := r.array(); n > 0 && r.err == nil; n-- {
			r.skip(depth - 1)
		}
	default:
		r.fail("major type %d", major)
	}
}

func (r *cborReader) id() (id domain.GPUID) {
	b := r.bytes(majorBytes)
	if len(b) != len(id) && r.err == nil {
		r.fail("a GPU id of %d bytes", len(b))
	}
	copy(id[:], b)
	return id
}

func (r *cborReader) usage(u *UsageHour) {
	r.tuple(2)
	if n := r.array(); n > 0 {
		u.Holders = make([]Holder, n)
	}
	for i := range u.Holders {
		r.tuple(3)
		u.Holders[i] = Holder{Workspace: r.text(), Deployment: r.text(), Unit: r.text()}
	}
	if n := r.array(); n > 0 {
		u.Observers = make([]Observer, n)
	}
	for i := range u.Observers {
		r.observer(&u.Observers[i])
	}
}

func (r *cborReader) observer(o *Observer) {
	r.tuple(6)
	o.Source = r.text()
	o.ActivityField = r.uint32()
	if n := r.array(); n > 0 {
		o.Cuts = make([]Cut, n)
	}
	for i := range o.Cuts {
		r.tuple(2)
		o.Cuts[i] = Cut{Parent: r.id(), Profile: r.text()}
	}
	if n := r.array(); n > 0 {
		o.Devices = make([]Device, n)
	}
	for i := range o.Devices {
		r.device(&o.Devices[i])
	}
	if n := r.array(); n > 0 {
		o.Others = make([]Other, n)
	}
	for i := range o.Others {
		r.tuple(5)
		o.Others[i] = Other{Device: r.uint32(), Field: r.uint32(), Count: r.uint64(), Sum: r.uint64(), Max: r.uint64()}
	}
	o.Samples = r.uint32()
}

func (r *cborReader) device(d *Device) {
	fields := r.array()
	if fields < 5 || fields > 7 {
		r.fail("a device of %d elements", fields)
	}
	d.ID, d.Replica, d.Cut = r.id(), r.uint32(), r.uint32()
	n := r.array()
	if n%5 != 0 {
		r.fail("%d numbers are no segments", n)
		return
	}
	if n > 0 {
		d.Segments = make([]Segment, n/5)
	}
	for i := range d.Segments {
		d.Segments[i] = Segment{From: r.uint32(), To: r.uint32(), Holder: r.uint32(), Known: r.uint32(), Active: r.uint64()}
	}
	r.tuple(18)
	for _, m := range d.readings() {
		*m = Reading{Sum: r.uint64(), Known: r.uint32(), Max: r.uint32()}
	}
	if fields == 5 {
		return
	}
	switch n := r.array(); {
	case n == 6:
		d.Covered = new([6][]Span)
		for i := range d.Covered {
			d.Covered[i] = r.spans()
		}
	case n != 0 || fields == 6:
		r.fail("%d readings are covered", n)
	}
	if fields == 7 {
		d.Unasked = r.spans()
	}
}

// spans returns nil for none.
func (r *cborReader) spans() []Span {
	n := r.array()
	if n%2 != 0 {
		r.fail("%d numbers are no spans", n)
	}
	if n == 0 || r.err != nil {
		return nil
	}
	spans := make([]Span, n/2)
	for i := range spans {
		spans[i] = Span{From: r.uint32(), To: r.uint32()}
	}
	return spans
}
