// Package spool keeps events on a node's disk until the log has acknowledged them. A node writes
// every observation to the spool first, and delivers it from there. So a cut network, a gateway
// that is down, a crash or a power failure costs time but no facts.
//
// A spool is a directory with one [Queue] per topic. A queue is one stream. It gives its events
// dense sequence numbers from 1 in this incarnation, and links the first event to the last one of
// the incarnation before. Each life of the program is an incarnation. Another begins when the number
// of shards changes ([Spool.Reshard]): the events then go to other partitions, so it is not linked.
//
// Invariants:
//
//   - An event that Append or Sync accepted (returned nil for) is on disk, synced.
//     [Queue.Next] returns no other event. So a sequence number that was ever seen
//     outside never names another event, whatever crashes.
//   - Accepted events are returned again, in order, until [Queue.Done] confirms
//     that they were acknowledged. After a crash some may be returned once more.
//     Readers drop repeats by sequence number.
//   - A queue with Keep (faults) never drops events. If the disk fails or is full,
//     events are held in memory, numbered ([ErrHeld]), and written as soon as that
//     works. If memory is full as well, further events are refused ([ErrFull]).
//   - A queue without Keep (samples) drops its oldest segment when the quota is
//     reached or the disk is full, also to make room for queues with Keep. It never
//     drops newer events first.
//   - Events that are dropped, damaged or refused are recorded as a [Loss]: the
//     sequence numbers, the time covered, and the reason. A loss is recorded
//     together with the delivery position, and stays until [Queue.Said].
//   - Checksums find and locate damage, which costs only the records that it
//     touches. A torn tail was never accepted, so it is not a loss. A segment that
//     cannot be read ten times in a row counts as damaged as a whole.
//
// # Files
//
// A queue is a folder with numbered segments and a state file. A segment is a header and frames.
// Both have the form
//
//	marker u32, length of data u32, CRC-32C u32,
//	incarnation u64, sequence u64, from i64, to i64, data, end u32
//
// in little endian. The checksum covers the number of the segment, the offset, and everything but
// the marker and the checksum itself. So bytes that belong elsewhere are detected. In the header,
// the sequence is the first one that the segment may hold, from and to are the previous incarnation
// and its last sequence, and the data is the source, followed by a zero byte and the number of shards
// if there are any. A segment is written by one incarnation. Another never appends to it, and does
// not change what a crash left at its end.
//
// The state has two slots of fixed size, written in turn: the delivery position, the last sequence
// given, and the losses that are not reported yet. It is written in place, which works on a full
// disk too. If the state is lost, all events on disk are delivered again.
//
// A reserve of fixed size is freed when the disk is full, so that faults still find room if others
// filled the disk.
package spool

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"quartermaster/domain"
)

// ErrHeld means that the disk did not accept the event. The queue holds it in memory, numbered, and
// writes it at the next successful Append or Sync. The caller calls Sync again later, and MUST NOT
// append the event again.
var ErrHeld = errors.New("event is held in memory, because the disk did not take it")

// ErrFull means that the disk accepts nothing and the memory bound is reached. The event was not
// accepted and used no sequence number. The caller keeps it and tries again once Sync succeeds.
var ErrFull = errors.New("spool is full")

// ErrLocked means that another process has the directory open.
var ErrLocked = errors.New("spool is in use by another process")

// Rule describes a queue.
type Rule struct {
	// Name is the queue's folder.
	Name string
	// Keep makes the queue one that never drops events, and makes every Append wait for the disk.
	Keep bool
	// Segment is the approximate size of a segment in bytes; 0 means 256 KiB. Events are dropped by
	// whole segments.
	Segment int
	// Retain keeps delivered segments for [Queue.Stored] until [Queue.Release].
	Retain bool
}

// Config describes a spool.
type Config struct {
	Dir string
	// Source names the stream's source. If it differs from the previous life's, this life is not
	// linked to that one.
	Source string
	// Incarnation is the minimum for this life's incarnation, which is greater than any before.
	// Derive it from the clock, so that a spool that was lost does not reuse an old number.
	Incarnation uint64
	Queues      []Rule
	// Quota bounds the bytes of all segments together.
	Quota int64
	// Reserve is the size of the reserve; 0 means none.
	Reserve int64
	// Held bounds the events of a queue in memory while the disk does not accept them; 0 means
	// 4096.
	Held int
	// Logger, if not nil, gets damage and problems that a person must fix.
	Logger *slog.Logger

	disk disk // for tests; nil: the directory
}

// Place is the position of an event in its stream.
type Place struct {
	Incarnation         uint64
	Sequence            uint64
	PreviousIncarnation uint64 // on the first event of an incarnation, if there was one before
	PreviousSequence    uint64
	Shards              int // for the key of the event, the same in the whole incarnation; 0 and 1: none
}

// Entry is one event as it is stored.
type Entry struct {
	Incarnation uint64
	Sequence    uint64
	Covered     domain.Interval
	Data        []byte
}

// Reason says why events were lost.
type Reason uint8

// The reasons.
const (
	Quota    Reason = iota + 1 // dropped to stay within the quota
	DiskFull                   // dropped because the disk was full
	Damaged                    // the bytes on disk were damaged or removed
	Refused                    // the log will never accept them
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

// Loss is a run of events that will not be delivered.
type Loss struct {
	Incarnation uint64
	From, To    uint64 // sequences, both included
	// Covered is the time that they covered, if known.
	Covered domain.Interval
	Reason  Reason
}

// Spool is an open spool. It is safe for concurrent use.
type Spool struct {
	cfg  Config
	disk disk
	log  *slog.Logger

	mu          sync.Mutex
	incarnation uint64
	shards      int // of the keys of its events
	queues      []*Queue
	bytes       int64 // of all segments
	reserved    bool
	closed      bool
	full        bool // the last write failed; logged once
}

// Open locks the directory, which it creates if needed, and reads its content.
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
	var last stream
	for _, q := range s.queues {
		if own := !q.st.found || q.st.source == q.ownSum(); own && last.incarnation < q.st.last.incarnation {
			last, s.shards = q.st.last, max(q.st.shards, 0)
		}
	}
	for _, q := range s.queues {
		if err := q.begin(); err != nil {
			return fmt.Errorf("queue %s: %w", q.rule.Name, err)
		}
	}
	s.reserve()
	return nil
}

// Incarnation returns the present incarnation.
func (s *Spool) Incarnation() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.incarnation
}

// Shards returns the number of shards for the keys of the present incarnation's events.
func (s *Spool) Shards() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shards
}

// Reshard begins a new incarnation whose events have keys of n shards, if n is another number than
// before. Its number is at least incarnation, as in [Config]. Events that are stored keep their
// incarnation and their key. If the disk does not accept what is in memory, nothing changes, and the
// caller tries again later.
func (s *Spool) Reshard(n int, incarnation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || max(n, 1) == max(s.shards, 1) {
		return nil
	}
	incarnation = max(incarnation, s.incarnation+1)
	for _, q := range s.queues {
		if err := q.flush(); err != nil {
			return err
		}
		q.st.newest = incarnation
		if err := q.save(true); err != nil {
			return fmt.Errorf("write the state of queue %s: %w", q.rule.Name, err)
		}
	}
	s.incarnation, s.shards = incarnation, n
	for _, q := range s.queues {
		q.reshard()
	}
	return nil
}

// Queue returns the queue with this name, or nil.
func (s *Spool) Queue(name string) *Queue {
	for _, q := range s.queues {
		if q.rule.Name == name {
			return q
		}
	}
	return nil
}

// Close writes events that are held, if possible, and releases the directory.
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

// Stats describes how full a queue is.
type Stats struct {
	Bytes     int64  // on disk, including delivered segments that are retained
	Waiting   uint64 // undelivered events on disk
	Held      int    // events in memory that the disk did not accept
	Oldest    domain.Instant
	Delivered uint64 // in this life
	Losses    uint64 // events whose loss was found in this life
	Segments  int
}

// Bytes returns the size of the segments of all queues.
func (s *Spool) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// makeRoom frees space and reports whether it could. It removes delivered segments first, then the
// oldest that may be dropped. For an event that must be kept it also drops the segment that is
// being written, and frees the reserve.
func (s *Spool) makeRoom(keep bool, why Reason) bool {
	for _, q := range s.queues {
		if q.removeDelivered() {
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
		s.log.Error("the disk is full: the spool frees its reserve for faults; free space on the disk", "dir", s.cfg.Dir)
		return s.disk.Remove(reserveName) == nil
	}
	return false
}

const reserveName = "reserve"

// reserve writes the reserve, if there is room. Its bytes are pseudo-random, because some file
// systems store constant bytes without using space.
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

// disk is a directory with folders that contain files.
type disk interface {
	// Folder makes a folder, if it does not exist.
	Folder(name string) error
	// List returns the names of the files in a folder.
	List(folder string) ([]string, error)
	// Create makes a new file, which must not exist.
	Create(name string) (file, error)
	// Open opens a file to be read and written.
	Open(name string) (file, error)
	Remove(name string) error
	// SyncDir makes creations and removals in a folder durable.
	SyncDir(folder string) error
	Close()
}

type file interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Size() (int64, error)
	Sync() error
	Close() // without a sync
}
