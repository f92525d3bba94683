package projections

import (
	"quartermaster/domain"
)

// Months of demand are encoded and decoded without reflection, like usage hours, in the same
// deterministic CBOR:
//
//	month   [[label...], spans]
//	label   [region, workspace]
//	spans   from, length, label, running, pending, owned, known of each, in one array;
//	        known is in nanoseconds since 1970

func appendDemand(b []byte, m *DemandMonth) []byte {
	b = appendHead(b, majorArray, 2)
	b = appendHead(b, majorArray, uint64(len(m.Labels)))
	for _, l := range m.Labels {
		b = appendText(appendText(appendHead(b, majorArray, 2), l.Region), l.Workspace)
	}
	b = appendHead(b, majorArray, uint64(spanNumbers*len(m.Spans)))
	for i := range m.Spans {
		s := &m.Spans[i]
		b = appendUints(b, uint64(s.From), uint64(s.Length), uint64(s.Label), s.Running, s.Pending, s.Owned)
		b = appendInt(b, int64(s.Known))
	}
	return b
}

// spanNumbers is the number of values in an encoded span.
const spanNumbers = 7

func appendInt(b []byte, v int64) []byte {
	if v < 0 {
		return appendHead(b, majorNegative, uint64(-1-v))
	}
	return appendHead(b, majorUint, uint64(v))
}

// MarshalCBOR implements cbor.Marshaler.
func (m *DemandMonth) MarshalCBOR() ([]byte, error) { return appendDemand(nil, m), nil }

// UnmarshalCBOR implements cbor.Unmarshaler.
func (m *DemandMonth) UnmarshalCBOR(b []byte) error {
	r := cborReader{b: b}
	r.demand(m)
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes follow", len(r.b))
	}
	return r.err
}

func (r *cborReader) demand(m *DemandMonth) {
	*m = DemandMonth{}
	r.tuple(2)
	if n := r.array(); n > 0 {
		m.Labels = make([]DemandLabel, n)
	}
	for i := range m.Labels {
		r.tuple(2)
		m.Labels[i] = DemandLabel{Region: r.text(), Workspace: r.text()}
	}
	n := r.array()
	if n%spanNumbers != 0 {
		r.fail("%d numbers are no spans of demand", n)
		return
	}
	if n > 0 {
		m.Spans = make([]DemandSpan, n/spanNumbers)
	}
	for i := range m.Spans {
		s := &m.Spans[i]
		s.From, s.Length, s.Label = r.uint32(), r.uint32(), r.uint32()
		s.Running, s.Pending, s.Owned = r.uint64(), r.uint64(), r.uint64()
		s.Known = domain.Instant(r.integer())
		if int(s.Label) >= len(m.Labels) && r.err == nil {
			r.fail("span %d has label %d of %d", i, s.Label, len(m.Labels))
		}
	}
}
