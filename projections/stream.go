package projections

import (
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
// stream.
type Stream struct {
	Source      string         `json:"source"`
	Incarnation uint64         `json:"incarnation"`
	Mark        uint64         `json:"mark"`                // highest sequence seen
	Gaps        []Gap          `json:"gaps,omitempty"`      // ascending, disjoint, below Mark
	Forgotten   uint64         `json:"forgotten,omitempty"` // gaps up to here were dropped from Gaps
	Lost        uint64         `json:"lost,omitempty"`      // sequences in the gaps that were dropped
	Last        domain.Instant `json:"last"`                // latest event time
	Ahead       domain.Instant `json:"ahead,omitempty"`     // most that an event was dated after its record, in nanoseconds
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

// Quarantined is the row of a record that could not be folded. The record
// itself stays where it is in the log.
type Quarantined struct {
	Topic     domain.Topic   `json:"topic"`
	Partition int            `json:"partition"`
	Offset    int64          `json:"offset"`
	SHA256    []byte         `json:"sha256"` // of the record's key, headers and value
	Reason    string         `json:"reason"`
	Type      domain.Type    `json:"type,omitempty"` // as far as it could be read
	Source    string         `json:"source,omitempty"`
	Sequence  uint64         `json:"sequence,omitempty"`
	Workspace string         `json:"workspace,omitempty"` // empty: unknown, so every report may be touched
	Cluster   string         `json:"cluster,omitempty"`
	Appended  domain.Instant `json:"appended"` // the record's time
}

func (*Quarantined) row() {}
