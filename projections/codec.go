package projections

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"quartermaster/domain"
)

// Rows are encoded as CBOR in the core deterministic encoding of RFC 8949 §4.2.1: equal rows have
// equal bytes, and any CBOR tool can read them. Decimals, instants and GPU ids are text, as
// everywhere else, except that GPU ids in usage hours are 16 bytes.
var canonical, lenient = modes()

func modes() (cbor.UserBufferEncMode, cbor.DecMode) {
	enc := cbor.CoreDetEncOptions()
	enc.TextMarshaler = cbor.TextMarshalerTextString
	enc.BinaryMarshaler = cbor.BinaryMarshalerNone
	em, err := enc.UserBufferEncMode()
	if err != nil {
		panic(err) // the options are constants
	}
	dm, err := cbor.DecOptions{
		TextUnmarshaler:   cbor.TextUnmarshalerTextString,
		BinaryUnmarshaler: cbor.BinaryUnmarshalerNone,
		MaxArrayElements:  1 << 24,
		MaxMapPairs:       1 << 24,
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		// Everything that was written can be read, whatever bytes are in a source's name.
		UTF8: cbor.UTF8DecodeInvalid,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return em, dm
}

// EncodeRow returns the canonical bytes of a row.
func EncodeRow(row Row) ([]byte, error) {
	switch row := row.(type) {
	case *UsageHour:
		return appendUsage(nil, row), nil
	case *ServerHour:
		return appendServer(nil, row), nil
	case *DemandMonth:
		return appendDemand(nil, row), nil
	case *Stream:
		return appendStream(nil, row), nil
	}
	b, err := canonical.Marshal(row)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", row, err)
	}
	return b, nil
}

// DecodeRow decodes the output of [EncodeRow] for a row of the table.
func DecodeRow(t Table, b []byte) (Row, error) {
	row := newRow(t)
	unmarshal := func() error { return lenient.Unmarshal(b, row) }
	switch row := row.(type) {
	case *UsageHour:
		unmarshal = func() error { return row.UnmarshalCBOR(b) }
	case *ServerHour:
		unmarshal = func() error { return row.UnmarshalCBOR(b) }
	case *DemandMonth:
		unmarshal = func() error { return row.UnmarshalCBOR(b) }
	case *Stream:
		unmarshal = func() error { return row.UnmarshalCBOR(b) }
	case *History:
		if t == TableBillingLines && decodeLines(b, row) {
			return row, nil
		}
		*row = History{}
	}
	if err := unmarshal(); err != nil {
		return nil, fmt.Errorf("decode row of %s: %w", t, err)
	}
	return row, nil
}

// versionWire is the encoding of a version. The event is stored with its type's name.
type versionWire struct {
	Order     domain.Precedence  `cbor:"order"`
	Recorded  domain.Instant     `cbor:"recorded,omitempty"`
	Workspace string             `cbor:"workspace,omitempty"`
	Line      uint64             `cbor:"line,omitempty"`
	Signer    *Signer            `cbor:"signer,omitempty"`
	Record    *Located           `cbor:"record,omitempty"`
	Again     *domain.Precedence `cbor:"again,omitempty"`
	Count     uint64             `cbor:"count,omitempty"`
	Last      domain.Instant     `cbor:"last,omitempty"`
	Rest      bool               `cbor:"rest,omitempty"`
	Type      domain.Type        `cbor:"type"`
	Event     cbor.RawMessage    `cbor:"event"`
}

// MarshalCBOR implements cbor.Marshaler.
func (v Version) MarshalCBOR() ([]byte, error) {
	ev, err := canonical.Marshal(v.Event)
	if err != nil {
		return nil, err
	}
	return canonical.Marshal(versionWire{
		v.Order, v.Recorded, v.Workspace, v.Line, v.Signer, v.Record, v.Again, v.Count, v.Last, v.Rest, v.Event.Type(), ev,
	})
}

// UnmarshalCBOR implements cbor.Unmarshaler.
func (v *Version) UnmarshalCBOR(b []byte) error {
	var w versionWire
	if err := lenient.Unmarshal(b, &w); err != nil {
		return err
	}
	ev := domain.NewEvent(w.Type)
	if ev == nil {
		return fmt.Errorf("event type %q is not known", w.Type)
	}
	if err := lenient.Unmarshal(w.Event, ev); err != nil {
		return fmt.Errorf("%s: %w", w.Type, err)
	}
	*v = Version{
		Order: w.Order, Recorded: w.Recorded, Workspace: w.Workspace, Line: w.Line, Signer: w.Signer, Record: w.Record, Again: w.Again,
		Count: w.Count, Last: w.Last, Rest: w.Rest, Event: ev,
	}
	return nil
}
