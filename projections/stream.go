package projections

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"quartermaster/domain"
)

// maxGaps bounds the open gaps remembered per stream. A stream that loses
// events in more places than this is broken; what then arrives late cannot be
// told from a repeat and is quarantined.
const maxGaps = 64

// Gap is a run of sequences that were skipped and may still arrive: First to
// Last, both included.
type Gap struct {
	_     struct{} `cbor:",toarray"`
	First uint64   `json:"first"`
	Last  uint64   `json:"last"`
}

// Stream is the row that tells news from repeats: how far a stream has come in
// this partition, and what is missing below. Its size does not grow with the
// stream. An incarnation that has ended goes into the row of incarnation 0: see [Past].
type Stream struct {
	Source      string         `json:"source"`
	Incarnation uint64         `json:"incarnation"`
	Mark        uint64         `json:"mark"`                // highest sequence seen
	Gaps        []Gap          `json:"gaps,omitempty"`      // ascending, disjoint, below Mark
	Forgotten   uint64         `json:"forgotten,omitempty"` // gaps up to here were dropped from Gaps
	Lost        uint64         `json:"lost,omitempty"`      // sequences in the gaps that were dropped
	Last        domain.Instant `json:"last"`                // latest event time
	Ahead       domain.Instant `json:"ahead,omitempty"`     // most that an event was dated after its record, in nanoseconds
	// Ended is the last sequence of the incarnation, as the next one says; 0: none did.
	Ended uint64 `json:"ended,omitempty"`
	// Past is of the row of incarnation 0 alone: the incarnations of the source that
	// have no row of their own any more.
	Past *Past `json:"past,omitempty"`
	// Uncompared counts the sequences that came again when the record that came first was
	// no longer in Recent: they were dropped as repeats, and each may have been another event.
	Uncompared uint64 `json:"not_compared,omitempty"`
	// Recent tells a repeat from another record that claims its sequence.
	Recent Recent `json:"-" cbor:"recent,omitempty"`
}

func (*Stream) row() {}

// Missing returns how many sequences have not arrived.
func (s *Stream) Missing() uint64 {
	n := s.Lost
	for _, g := range s.Gaps {
		n += g.Last - g.First + 1
	}
	return n
}

type verdict int

const (
	news verdict = iota
	repeat
	// uncertain: below a gap that had to be forgotten, so it may be late or a repeat.
	uncertain
)

// judge says what a sequence is, without changing the stream.
func (s *Stream) judge(seq uint64) verdict {
	switch {
	case seq > s.Mark:
		return news
	case s.gap(seq) >= 0:
		return news
	case seq <= s.Forgotten:
		return uncertain
	default:
		return repeat
	}
}

func (s *Stream) gap(seq uint64) int {
	for i := range s.Gaps {
		if s.Gaps[i].First <= seq && seq <= s.Gaps[i].Last {
			return i
		}
	}
	return -1
}

// take enters a sequence that judge called news.
func (s *Stream) take(seq uint64) {
	if seq > s.Mark {
		s.reach(seq - 1)
		s.Mark = seq
		return
	}
	i := s.gap(seq)
	g := s.Gaps[i]
	var rest []Gap
	if g.First < seq {
		rest = append(rest, Gap{First: g.First, Last: seq - 1})
	}
	if seq < g.Last {
		rest = append(rest, Gap{First: seq + 1, Last: g.Last})
	}
	s.Gaps = append(s.Gaps[:i:i], append(rest, s.Gaps[i+1:]...)...)
	s.trim()
}

// reach opens a gap up to and including seq: the stream is known to have got
// that far, by a later sequence or by what the next incarnation says of it.
func (s *Stream) reach(seq uint64) {
	if seq <= s.Mark {
		return
	}
	s.Gaps = append(s.Gaps, Gap{First: s.Mark + 1, Last: seq})
	s.Mark = seq
	s.trim()
}

func (s *Stream) trim() {
	for len(s.Gaps) > maxGaps {
		g := s.Gaps[0]
		s.Forgotten = g.Last
		s.Lost += g.Last - g.First + 1
		s.Gaps = s.Gaps[1:]
	}
}

// maxRecent bounds the records of a stream that a repeat can be compared with: those
// of the highest sequences. It holds the last two deliveries of a node, so that one that
// was sent again is compared also when the next came before it. One takes 24 bytes in
// memory and about 6 in the row, so a stream takes at most 3 KB more and its row 800 bytes.
const maxRecent = 2 * domain.MaxDelivered

// Seen is a record that was read: where, and the CRC-32C of its content
// ([domain.Record.AppendContent]). Two different records are taken for one with a chance of
// 2^-32. Whoever has read a record can make another with its sum, as with 32 bits of any
// hash: that one counts as the repeat, and changes nothing either.
type Seen struct {
	Sequence uint64
	Offset   int64
	Sum      uint32
}

// Recent are records of a stream, by sequence. Where several claim one sequence, the
// first of them counts, and the others are in quarantine.
type Recent []Seen

// compare returns the record that a repeat says the same as, nil when none does, and
// the first of its sequence, nil when that is no longer kept.
func (r Recent) compare(seq uint64, sum uint32) (same, first *Seen) {
	i, _ := slices.BinarySearchFunc(r, seq, func(s Seen, seq uint64) int { return cmp.Compare(s.Sequence, seq) })
	for ; i < len(r) && r[i].Sequence == seq; i++ {
		if first == nil {
			first = &r[i]
		}
		if r[i].Sum == sum {
			return &r[i], first
		}
	}
	return nil, first
}

// keep enters a record behind those of its sequence. When there are too many, those of
// the lowest sequence go.
func (r *Recent) keep(s Seen) {
	i, _ := slices.BinarySearchFunc(*r, s.Sequence, func(x Seen, seq uint64) int {
		if x.Sequence <= seq {
			return -1
		}
		return 1
	})
	*r = slices.Insert(*r, i, s)
	if len(*r) <= maxRecent {
		return
	}
	n := 1
	for n < len(*r) && (*r)[n].Sequence == (*r)[0].Sequence {
		n++
	}
	if n == len(*r) {
		*r = (*r)[:maxRecent]
		return
	}
	*r = slices.Delete(*r, 0, n)
}

// MarshalCBOR implements cbor.Marshaler. It is a byte string: of each record the
// difference of its sequence and of its offset to the record before, as varints, and
// the four bytes of its sum.
func (r Recent) MarshalCBOR() ([]byte, error) {
	b := make([]byte, 0, 7*len(r))
	var seq uint64
	var offset int64
	for _, s := range r {
		b = binary.AppendUvarint(b, s.Sequence-seq)
		b = binary.AppendVarint(b, s.Offset-offset)
		b = binary.BigEndian.AppendUint32(b, s.Sum)
		seq, offset = s.Sequence, s.Offset
	}
	return canonical.Marshal(b)
}

// UnmarshalCBOR implements cbor.Unmarshaler.
func (r *Recent) UnmarshalCBOR(raw []byte) error {
	var b []byte
	if err := lenient.Unmarshal(raw, &b); err != nil {
		return err
	}
	*r = nil
	var last Seen
	for len(b) > 0 {
		seq, n := binary.Uvarint(b)
		if n <= 0 {
			return fmt.Errorf("recent records: record %d is cut off", len(*r))
		}
		offset, m := binary.Varint(b[n:])
		if m <= 0 || len(b) < n+m+4 {
			return fmt.Errorf("recent records: record %d is cut off", len(*r))
		}
		last = Seen{last.Sequence + seq, last.Offset + offset, binary.BigEndian.Uint32(b[n+m:])}
		*r = append(*r, last)
		b = b[n+m+4:]
	}
	return nil
}

// recordedOnce reports whether an event is appended once for an input, in a stream of
// its own, so that the attempt that came first counts and a later one may say something
// else: a plan or a checkpoint that was computed again after a crash, and the event that
// mends a record in quarantine, which whoever appends it looks up.
func recordedOnce(env *domain.Envelope) bool {
	t := env.Event.Type()
	return t == domain.TypePlanComputed || t == domain.TypeCheckpointSigned || env.Cites != ""
}

// The kinds of reasons for which a record is in quarantine.
const (
	KindBatch       = "batch"       // its batch cannot be unpacked, or its transaction was aborted
	KindUndecodable = "undecodable" // it is no event that this program can read
	KindMisplaced   = "misplaced"   // its key or type belongs elsewhere
	KindUncertain   = "uncertain"   // it may be late or a repeat
	KindConflict    = "conflict"    // another record has its place in the stream
	KindInvalid     = "invalid"     // it lacks something or contradicts itself
	KindUnsigned    = "unsigned"    // its signature is missing or does not verify
	KindFailed      = "failed"      // the program fails on it: a mended one and a rebuild fold it
	KindTooOld      = "too_old"     // an observation of long before its record
	KindInFuture    = "in_future"   // an observation of after its record
)

// QuarantineKinds returns the kinds in the order in which they are checked.
func QuarantineKinds() []string {
	return []string{KindBatch, KindUndecodable, KindMisplaced, KindUncertain, KindConflict, KindInvalid, KindUnsigned, KindTooOld, KindInFuture, KindFailed}
}

// Quarantined is the row of a record that could not be folded, or of a run of them
// that stand in one batch. The records themselves stay where they are in the log.
type Quarantined struct {
	Topic     domain.Topic `json:"topic"`
	Partition int          `json:"partition"`
	Offset    int64        `json:"offset"`
	Last      int64        `json:"last,omitempty"` // the last offset of a run, each of which is an event; 0: there is one
	SHA256    []byte       `json:"sha256"`         // of the record's key, headers and value; of a batch see [domain.Span]
	Kind      string       `json:"kind"`           // one of [QuarantineKinds]
	Reason    string       `json:"reason"`
	// Conflicts is the offset of the record of this partition that came first with the
	// same source, incarnation and sequence; nil but for kind conflict.
	Conflicts   *int64         `json:"conflicts_with,omitempty"`
	Type        domain.Type    `json:"type,omitempty"` // as far as it could be read
	Source      string         `json:"source,omitempty"`
	Incarnation uint64         `json:"incarnation,omitempty"`
	Sequence    uint64         `json:"sequence,omitempty"`
	Workspace   string         `json:"workspace,omitempty"` // empty: unknown, so every report may be touched
	Cluster     string         `json:"cluster,omitempty"`
	Appended    domain.Instant `json:"appended"` // the record's time
}

func (*Quarantined) row() {}

// Events returns how many events the row stands for.
func (q *Quarantined) Events() int { return int(max(q.Last-q.Offset, 0)) + 1 }

// Awaited returns how many sequences have not arrived and are not said to be lost,
// given what is, ascending and disjoint.
func (s *Stream) Awaited(lost []Gap) uint64 {
	n, forgotten := s.Missing(), s.Lost
	for _, l := range lost {
		var given uint64
		for _, g := range s.Gaps {
			if first, last := max(g.First, l.First), min(g.Last, l.Last); first <= last {
				given += last - first + 1
			}
		}
		// Of gaps that had to be forgotten only their number is known.
		if l.First <= s.Forgotten {
			known := min(forgotten, min(l.Last, s.Forgotten)-l.First+1)
			given, forgotten = given+known, forgotten-known
		}
		n -= min(n, given)
	}
	return n
}
