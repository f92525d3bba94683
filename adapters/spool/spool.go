// Package spool keeps events on a node's disk until the log has acknowledged
// them. What a node observes goes into the spool first, always, and from there to
// wherever it is delivered; so a cut network, a gateway that is down, a crash and
// a power failure cost time and no facts.
//
// A spool is a directory with one [Queue] per topic. A queue is one stream: it
// gives its events dense sequences from 1 in this life of the program, the
// incarnation, and links the first to the last of the life before.
//
// What always holds:
//
//   - An event that Append or Sync accepted (returned nil for) is on disk, synced.
//     [Queue.Next] hands out no other, so a sequence that anybody outside has seen
//     never names another event, whatever crashes.
//   - What was accepted is handed out again, in order, until [Queue.Done] says that
//     it was acknowledged. After a crash some of it may be handed out once more;
//     readers drop repeats by sequence.
//   - A queue that keeps (faults) loses nothing by itself. Where the disk takes no
//     more, its events are held in memory, numbered ([ErrHeld]), and written as
//     soon as that works; when memory is full as well, nothing more is taken
//     ([ErrFull]).
//   - A queue that does not keep (samples) makes room when the quota is reached or
//     the disk is full, for itself and for those that keep, by dropping its oldest
//     segment; it never drops what came later first.
//   - What is lost, dropped, damaged or refused, is a [Loss]: which sequences, what time they
//     covered, and why. A loss is recorded together with the place that delivery
//     has reached, and stays until [Queue.Said].
//   - Damage is found by checksums, located, and costs no more than the records
//     that it touches. A torn tail, which was never accepted, is no loss. A segment
//     that cannot be read, ten times in a row, counts as damaged as a whole.
//
// # Files
//
// A queue is a folder with numbered segments and a file of state. A segment is a
// header and frames; both have the form
//
//	marker u32, length of data u32, CRC-32C u32,
//	incarnation u64, sequence u64, from i64, to i64, data, end u32
//
// in little endian. The checksum covers everything but the marker and itself, and
// before that the number of the segment and the offset, so that bytes that belong
// elsewhere are not believed. In the header the sequence is the first that the
// segment may hold, from and to are the incarnation before and its last sequence,
// and the data is the source. A segment is written by one life of the program and
// never appended to by another: what a crash left at its end stays as it is.
//
// The state has two slots of fixed size, written in turn: where delivery stands,
// the last sequence given, and the losses not yet said. It is written in place,
// which works on a full disk too. Should it get lost, what is on disk is handed out
// again from the first.
//
// A reserve of fixed size is given up when the disk is full, so that faults still
// find room when others filled the disk.
package spool

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"quartermaster/domain"
)

// ErrHeld means that the disk did not take the event. The queue holds it in memory,
// numbered, and writes it at the next Append or Sync that works. The caller calls
// Sync again later, and MUST NOT append the event again.
var ErrHeld = errors.New("event is held in memory, because the disk did not take it")

// ErrFull means that the disk takes nothing and memory holds as much as it may.
// The event was not taken and used no sequence: the caller keeps it, and tries again
// once Sync worked.
var ErrFull = errors.New("spool is full")

// ErrLocked means that another process has the directory open.
var ErrLocked = errors.New("spool is in use by another process")

// Rule says what a queue is for.
type Rule struct {
	// Name is the queue's folder.
	Name string
	// Keep makes the queue one that never drops, and every Append one that waits
	// for the disk.
	Keep bool
	// Segment is about how many bytes a segment has; what is dropped, is dropped by
	// segments. 256 KiB when zero.
	Segment int
	// Retain keeps delivered segments for [Queue.Stored] until [Queue.Release].
	Retain bool
}

// Config describes a spool.
type Config struct {
	Dir string
	// Source names the stream's source. When it is another than before, the life
	// before is another's, and is not linked to.
	Source string
	// Incarnation is the least that this life is called by; it is greater than any
	// before. Derive it from the clock, so that a spool that was lost does not
	// return to an old number.
	Incarnation uint64
	Queues      []Rule
	// Quota bounds the bytes of all segments together.
	Quota int64
	// Reserve is the size of the reserve; none when zero.
	Reserve int64
	// Held bounds the events that a queue holds in memory while the disk does not
	// take them; 4096 when zero.
	Held int
	// Logger is told of damage and of what a person must mend; nothing when nil.
	Logger *slog.Logger

	disk disk // tests'; the directory when nil
}

// Place is where an event stands in its stream.
type Place struct {
	Incarnation         uint64
	Sequence            uint64
	PreviousIncarnation uint64 // on the first event of an incarnation, where there was one before
	PreviousSequence    uint64
}

// Entry is one event as it is stored.
type Entry struct {
	Incarnation uint64
	Sequence    uint64
	Covered     domain.Interval
	Data        []byte
}

// Reason is why events were lost.
type Reason uint8

// The reasons.
const (
	Quota    Reason = iota + 1 // dropped to stay within the quota
	DiskFull                   // dropped because the disk was full
	Damaged                    // the bytes on disk were damaged or removed
	Refused                    // the log will never hold them
)

// String returns the reason in words.
func (r Reason) String() string {
	switch r {
	case Quota:
		return "the spool had reached its quota"
	case DiskFull:
		return "the disk of the spool was full"
	case Damaged:
		return "the spool's bytes on disk were damaged"
	case Refused:
		return "the log refused them for ever"
	}
	return "unknown"
}

// Loss is a run of events that will not be handed out.
type Loss struct {
	Incarnation uint64
	From, To    uint64 // sequences, both included
	// Covered is the time that they covered, as far as it is known.
	Covered domain.Interval
	Reason  Reason
}

// Spool is an open spool. It is safe for concurrent use.
type Spool struct {
	cfg         Config
	disk        disk
	log         *slog.Logger
	incarnation uint64

	mu       sync.Mutex
	queues   []*Queue
	bytes    int64 // of all segments
	reserved bool
	closed   bool
	full     bool // the disk refused the last write; said once
}

// Open locks the directory, which it creates, and reads what is there.
func Open(cfg Config) (*Spool, error) {
	if cfg.Held == 0 {
		cfg.Held = 4096
	}
	s := &Spool{cfg: cfg, disk: cfg.disk, log: cfg.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.disk == nil {
		d, err := openDirectory(cfg.Dir)
		if err != nil {
			return nil, fmt.Errorf("open spool %s: %w", cfg.Dir, err)
		}
		s.disk = d
	}
	if err := s.open(); err != nil {
		s.disk.Close()
		return nil, fmt.Errorf("open spool %s: %w", cfg.Dir, err)
	}
	return s, nil
}

func (s *Spool) open() error {
	s.incarnation = s.cfg.Incarnation
	for _, rule := range s.cfg.Queues {
		if rule.Segment == 0 {
			rule.Segment = 256 << 10
		}
		q := &Queue{spool: s, rule: rule, ready: make(chan struct{}, 1)}
		if err := q.load(); err != nil {
			return fmt.Errorf("queue %s: %w", rule.Name, err)
		}
		s.queues = append(s.queues, q)
		s.incarnation = max(s.incarnation, q.newest+1)
	}
	for _, q := range s.queues {
		if err := q.begin(); err != nil {
			return fmt.Errorf("queue %s: %w", q.rule.Name, err)
		}
	}
	s.reserve()
	return nil
}

// Incarnation returns the number of this life.
func (s *Spool) Incarnation() uint64 { return s.incarnation }

// Queue returns the queue of a rule's name, nil when there is none.
func (s *Spool) Queue(name string) *Queue {
	for _, q := range s.queues {
		if q.rule.Name == name {
			return q
		}
	}
	return nil
}

// Close writes what is held, if it can, and gives the directory back.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, q := range s.queues {
		errs = append(errs, q.flush(), q.save(true))
		if q.active != nil {
			q.active.Close()
		}
		q.state.Close()
	}
	s.disk.Close()
	return errors.Join(errs...)
}

// Stats says how full a queue is.
type Stats struct {
	Bytes     int64  // on disk, what was delivered and is retained included
	Waiting   uint64 // events on disk that are not delivered
	Held      int    // events in memory that the disk did not take
	Oldest    domain.Instant
	Delivered uint64 // in this life
	Losses    uint64 // events lost, as found in this life
	Segments  int
}

// Bytes returns how much the segments of all queues take.
func (s *Spool) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// makeRoom frees space and reports whether it could: first what was delivered, then
// the oldest of what may be dropped, and for an event that must be kept the segment
// that is being written to and the reserve too.
func (s *Spool) makeRoom(keep bool, why Reason) bool {
	for _, q := range s.queues {
		if q.forget() {
			return true
		}
	}
	for _, q := range s.queues {
		if !q.rule.Keep && q.drop(keep, why) {
			return true
		}
	}
	if keep && why == DiskFull && s.reserved {
		s.reserved = false
		s.log.Error("the disk is full: the spool gives up its reserve, so that faults find room; free space on it", "dir", s.cfg.Dir)
		return s.disk.Remove(reserveName) == nil
	}
	return false
}

const reserveName = "reserve"

// reserve sets the reserve aside, if there is room. Its bytes are not all alike,
// because some file systems store those of one kind in no space.
func (s *Spool) reserve() {
	if s.cfg.Reserve == 0 || s.reserved {
		return
	}
	if f, err := s.disk.Open(reserveName); err == nil {
		size, err := f.Size()
		f.Close()
		if err == nil && size == s.cfg.Reserve {
			s.reserved = true
			return
		}
		_ = s.disk.Remove(reserveName)
	}
	f, err := s.disk.Create(reserveName)
	if err != nil {
		return
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	x := uint64(88172645463325252)
	for at := int64(0); at < s.cfg.Reserve; at += int64(len(block)) {
		for i := range block {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			block[i] = byte(x)
		}
		n := min(int64(len(block)), s.cfg.Reserve-at)
		if _, err := f.WriteAt(block[:n], at); err != nil {
			_ = s.disk.Remove(reserveName)
			return
		}
	}
	if f.Sync() != nil {
		_ = s.disk.Remove(reserveName)
		return
	}
	s.reserved = true
}

// disk is a directory, with files in it and in folders of it.
type disk interface {
	// Folder makes a folder, if it is not there.
	Folder(name string) error
	// List returns the names of the files in a folder.
	List(folder string) ([]string, error)
	// Create makes a new file, which must not exist.
	Create(name string) (file, error)
	// Open opens a file to be read and written.
	Open(name string) (file, error)
	Remove(name string) error
	// SyncDir makes creations and removals in a folder last.
	SyncDir(folder string) error
	Close()
}

type file interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Size() (int64, error)
	Sync() error
	Close() // what must last was synced
}
