package projections

import (
	"cmp"
	"slices"

	"quartermaster/domain"
)

// maxGaps bounds the open gaps remembered for a stream. A stream that loses events in more places
// is broken. Late events in forgotten gaps cannot be told from repeats and are quarantined.
const maxGaps = 64

// Gap is a range of sequences that were skipped and may still arrive: First to Last, both included.
type Gap struct {
	_     struct{} `cbor:",toarray"`
	First uint64   `json:"first"`
	Last  uint64   `json:"last"`
}

// Stream is the row that distinguishes new events from repeats: how far a stream has come in this
// partition, and what is missing below. Its size does not grow with the stream. An incarnation that
// has ended is moved to the row of incarnation 0: see [Past].
type Stream struct {
	Source      string         `json:"source"`
	Incarnation uint64         `json:"incarnation"`
	Mark        uint64         `json:"mark"`                // highest sequence seen
	Gaps        []Gap          `json:"gaps,omitempty"`      // ascending, disjoint, below Mark
	Forgotten   uint64         `json:"forgotten,omitempty"` // gaps up to here were dropped from Gaps
	Lost        uint64         `json:"lost,omitempty"`      // sequences in the gaps that were dropped
	Last        domain.Instant `json:"last"`                // latest event time
	// Ahead is the most that an event was dated after its record, in nanoseconds.
	Ahead domain.Instant `json:"ahead,omitempty"`
	// Ended is the last sequence of the incarnation, as the next one says; 0 if there is no next
	// one.
	Ended uint64 `json:"ended,omitempty"`
	// Past is set only in the row of incarnation 0: the incarnations of the source that no longer
	// have a row of their own.
	Past *Past `json:"past,omitempty"`
	// Uncompared counts the sequences that came again when the first record was no longer in
	// Recent. They were dropped as repeats, and each may have been a different event.
	Uncompared uint64 `json:"not_compared,omitempty"`
	// Recent distinguishes a repeat from another record with the same sequence.
	Recent Recent `json:"-"`
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
	// uncertain: in a forgotten gap, so it may be late or a repeat.
	uncertain
)

// judge classifies a sequence, without changing the stream.
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

// take adds a sequence that judge called news.
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

// reach opens a gap up to and including seq: the stream is known to have got that far, from a later
// sequence or from what the next incarnation says of it.
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

// maxRecent bounds the records of a stream that a repeat can be compared with: those of the highest
// sequences. It holds the last two deliveries of a node, so that a delivery that was sent again can
// be compared even if the next one arrived before it. One record takes 24 bytes in memory and about
// 6 in the row, so a stream takes at most 3 KB more and its row 800 bytes.
const maxRecent = 2 * domain.MaxDelivered

// Seen identifies a record that was read: its place and the CRC-32C of its content
// ([domain.Record.AppendContent]). Two different records are mistaken for one with a probability of
// 2^-32. Anyone who has read a record can make another with the same sum, as with 32 bits of any
// hash. Such a record counts as a repeat, and so changes nothing either.
type Seen struct {
	Sequence uint64
	Offset   int64
	Sum      uint32
}

// Recent are records of a stream, by sequence. If several claim one sequence, the first of them
// counts, and the others are in quarantine.
type Recent []Seen

// compare returns the record with the same content as a repeat, nil if there is none, and the first
// record of its sequence, nil if that is no longer kept.
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

// keep inserts a record after those with its sequence. If there are too many, it drops those with
// the lowest sequence.
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

// recordedOnce reports whether an event is appended once for an input, in a stream of its own, so
// that the first attempt counts and a later one may differ: a plan or a checkpoint that was
// computed again after a crash, and an event that repairs a quarantined record, because the writer
// looks for an earlier one.
func recordedOnce(env *domain.Envelope) bool {
	t := env.Event.Type()
	return t == domain.TypePlanComputed || t == domain.TypeCheckpointSigned || env.Cites != ""
}

// The kinds of reasons for quarantine.
const (
	KindBatch       = "batch"       // its batch cannot be unpacked, or its transaction was aborted
	KindUndecodable = "undecodable" // this program cannot read it as an event
	KindMisplaced   = "misplaced"   // its key or type belongs elsewhere
	KindUncertain   = "uncertain"   // it may be late or a repeat
	KindConflict    = "conflict"    // another record has its place in the stream
	KindInvalid     = "invalid"     // it lacks something or contradicts itself
	KindUnsigned    = "unsigned"    // its signature is missing or does not verify
	KindFailed      = "failed"      // the program fails on it: a fixed program and a rebuild fold it
	KindTooOld      = "too_old"     // an observation from long before its record
	KindInFuture    = "in_future"   // an observation from after its record
)

// QuarantineKinds returns the kinds in the order in which they are checked.
func QuarantineKinds() []string {
	return []string{
		KindBatch, KindUndecodable, KindMisplaced, KindUncertain, KindConflict,
		KindInvalid, KindUnsigned, KindTooOld, KindInFuture, KindFailed,
	}
}

// Quarantined is the row of a record that could not be folded, or of a run of records in one batch.
// The records themselves stay in the log.
type Quarantined struct {
	Topic     domain.Topic `json:"topic"`
	Partition int          `json:"partition"`
	Offset    int64        `json:"offset"`
	// Last is the last offset of a run, each of which is an event; 0: a single event.
	Last   int64  `json:"last,omitempty"`
	SHA256 []byte `json:"sha256"` // of the record's key, headers and value; for a batch see [domain.Span]
	Kind   string `json:"kind"`   // one of [QuarantineKinds]
	Reason string `json:"reason"`
	// Conflicts is the offset of the record of this partition that came first with the same source,
	// incarnation and sequence; nil for kinds other than conflict.
	Conflicts   *int64         `json:"conflicts_with,omitempty"`
	Type        domain.Type    `json:"type,omitempty"` // as far as it could be read
	Source      string         `json:"source,omitempty"`
	Incarnation uint64         `json:"incarnation,omitempty"`
	Sequence    uint64         `json:"sequence,omitempty"`
	Workspace   string         `json:"workspace,omitempty"` // empty: unknown, so every report may be affected
	Cluster     string         `json:"cluster,omitempty"`
	Appended    domain.Instant `json:"appended"` // the record's time
}

func (*Quarantined) row() {}

// Events returns the number of events that the row stands for.
func (q *Quarantined) Events() int { return int(max(q.Last-q.Offset, 0)) + 1 }

// Awaited returns how many sequences have not arrived and are not declared lost. lost lists the
// declared ones, ascending and disjoint.
func (s *Stream) Awaited(lost []Gap) uint64 {
	n, forgotten := s.Missing(), s.Lost
	for _, l := range lost {
		var given uint64
		for _, g := range s.Gaps {
			if first, last := max(g.First, l.First), min(g.Last, l.Last); first <= last {
				given += last - first + 1
			}
		}
		// Of forgotten gaps only the number of sequences is known.
		if l.First <= s.Forgotten {
			known := min(forgotten, min(l.Last, s.Forgotten)-l.First+1)
			given, forgotten = given+known, forgotten-known
		}
		n -= min(n, given)
	}
	return n
}
