package spool

import (
	"encoding/binary"
	"hash/crc32"

	"quartermaster/domain"
)

// state is the persistent state of a queue beside its segments.
type state struct {
	at      position
	last    stream         // last sequence given, in whichever life
	shards  int            // of the keys of last's incarnation, or unknownShards
	newest  uint64         // greatest incarnation so far
	source  uint32         // checksum of the source's name
	reached domain.Instant // end of the time covered by the last event that was ever on disk
	losses  []Loss         // not reported yet
	counter uint64         // number of the save; the slot with the greater one is valid
	// known says that at is the delivery position. It is false if the state was lost. Then nothing
	// before the first stored event counts as lost.
	known bool
	found bool // it was read from disk
}

// unknownShards says that damage hides the number of shards.
const unknownShards = -1

// position is the delivery position.
type position struct {
	segment uint64
	offset  int64
	stream  // of the last event before it
}

func (p position) before(q position) bool {
	return p.segment < q.segment || p.segment == q.segment && p.offset < q.offset
}

// stream is a sequence number in an incarnation.
type stream struct{ incarnation, sequence uint64 }

func (s stream) before(t stream) bool {
	return s.incarnation < t.incarnation || s.incarnation == t.incarnation && s.sequence < t.sequence
}

const (
	stateName  = "state"
	slotBytes  = 4096
	stateFixed = 4 + 4 + 4 + 12*8
	lossBytes  = 3*8 + 2*8 + 1
	maxLosses  = (slotBytes - stateFixed) / lossBytes
)

var stateMarker = [4]byte{'Q', 'S', 'T', '3'}

func (s *state) encode() []byte {
	known := uint64(0)
	if s.known {
		known = 1
	}
	b := make([]byte, 0, slotBytes)
	b = append(b, stateMarker[:]...)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, s.source)
	for _, v := range []uint64{
		s.counter, s.at.segment, uint64(s.at.offset), s.at.incarnation, s.at.sequence,
		s.last.incarnation, s.last.sequence, s.newest, uint64(len(s.losses)), known, uint64(s.reached), uint64(s.shards),
	} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, l := range s.losses {
		for _, v := range []uint64{l.Incarnation, l.From, l.To, uint64(l.Covered.From), uint64(l.Covered.To)} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		b = append(b, byte(l.Reason))
	}
	b = b[:slotBytes]
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

func (s *state) decode(b []byte) bool {
	if len(b) < slotBytes || [4]byte(b) != stateMarker ||
		crc32.Checksum(b[8:slotBytes], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return false
	}
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(b[12+8*i:]) }
	s.source = binary.LittleEndian.Uint32(b[8:])
	s.counter = number(0)
	s.at = position{number(1), int64(number(2)), stream{number(3), number(4)}}
	s.last = stream{number(5), number(6)}
	s.newest = number(7)
	n := number(8)
	if n > maxLosses || s.at.offset < 0 {
		return false
	}
	s.losses = nil
	for i := range n {
		rest := b[stateFixed+lossBytes*i:]
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(rest[8*i:]) }
		s.losses = append(s.losses, Loss{
			Incarnation: word(0), From: word(1), To: word(2),
			Covered: domain.Interval{From: instant(rest[24:]), To: instant(rest[32:])},
			Reason:  Reason(rest[40]),
		})
	}
	s.known, s.found = number(9) == 1, true
	s.reached = domain.Instant(number(10))
	s.shards = int(number(11))
	return true
}

func instant(b []byte) domain.Instant { return domain.Instant(binary.LittleEndian.Uint64(b)) }

// lose records losses. If the slot is full, a loss is merged with the last one. The recorded losses
// may then exceed the real ones, but never the reverse.
func (s *state) lose(losses ...Loss) {
	for _, l := range losses {
		n := len(s.losses)
		if n > 0 {
			p := &s.losses[n-1]
			near := p.Incarnation == l.Incarnation && p.Reason == l.Reason && l.From == p.To+1
			if near || n >= maxLosses {
				p.To = max(p.To, l.To)
				if p.Covered == (domain.Interval{}) {
					p.Covered = l.Covered
				} else if l.Covered != (domain.Interval{}) {
					p.Covered.From = min(p.Covered.From, l.Covered.From)
					p.Covered.To = max(p.Covered.To, l.Covered.To)
				}
				continue
			}
		}
		s.losses = append(s.losses, l)
	}
}
