package spool

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"quartermaster/domain"
)

// Queue is one stream of events on disk. Only one goroutine at a time may deliver from it. Any may
// append.
type Queue struct {
	spool *Spool
	rule  Rule
	ready chan struct{}

	segments    []*segment // ascending
	active      file       // of the last segment, while it is written
	held        []Entry    // numbered, not on disk
	heldSize    int
	droppedHeld []Loss // dropped from memory; delivery finds the holes

	state file
	st    state

	newest    uint64 // the greatest incarnation before this life
	previous  stream // the last event of the previous incarnation that wrote to the queue
	linked    bool   // the present incarnation has keys of as many shards as the previous one
	given     uint64 // the last sequence of this incarnation
	last      Place  // of the last event that this life appended
	released  stream // stored events up to here need not be retained
	waiting   uint64
	delivered uint64
	lost      uint64
	doneTo    domain.Instant // end of the time covered by delivered events
	reached   domain.Instant // end of the time covered by the last event of earlier lives
	buf       []byte
}

// segment is a file of frames.
type segment struct {
	number  uint64
	size    int64 // accepted bytes
	frames  uint64
	header  Entry // zero if damaged
	first   stream
	last    stream
	covered domain.Interval
	failed  int // failed reads in a row
}

const segmentSuffix = ".seg"

func (q *Queue) name(n uint64) string {
	return fmt.Sprintf("%s/%016x%s", q.rule.Name, n, segmentSuffix)
}

// load reads the files of earlier lives.
func (q *Queue) load() error {
	disk := q.spool.disk
	if err := disk.Folder(q.rule.Name); err != nil {
		return err
	}
	if err := q.loadState(); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	names, err := disk.List(q.rule.Name)
	if err != nil {
		return err
	}
	var numbers []uint64
	for _, name := range names {
		hex, ok := strings.CutSuffix(name, segmentSuffix)
		if n, err := strconv.ParseUint(hex, 16, 64); ok && err == nil && len(hex) == 16 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	if !q.st.found {
		q.st.known = len(numbers) == 0
	}
	for i, n := range numbers {
		if err := q.loadSegment(n, i == len(numbers)-1); err != nil {
			return fmt.Errorf("segment %016x: %w", n, err)
		}
	}
	q.newest = max(q.newest, q.st.newest, q.st.last.incarnation)
	q.reached = q.st.reached
	// The position may be in a segment that was removed after delivery, if the saved state is
	// older.
	if len(q.segments) > 0 && q.st.at.segment < q.segments[0].number {
		q.st.at.segment, q.st.at.offset = q.segments[0].number, 0
	}
	return nil
}

func (q *Queue) loadState() error {
	disk, name := q.spool.disk, q.rule.Name+"/"+stateName
	f, err := disk.Open(name)
	if err != nil {
		if f, err = disk.Create(name); err != nil {
			return err
		}
	}
	q.state = f
	b := make([]byte, 2*slotBytes)
	n, _ := f.ReadAt(b, 0)
	var a, z state
	okA, okZ := a.decode(b[:min(n, slotBytes)]), n > slotBytes && z.decode(b[slotBytes:n])
	switch {
	case okA && (!okZ || a.counter > z.counter):
		q.st = a
	case okZ:
		q.st = z
	case n > 0:
		q.spool.log.Error("the state of the spool is damaged or of an older version: "+
			"stored events are delivered again; readers drop repeats", "queue", q.rule.Name)
	}
	if n < 2*slotBytes {
		// Allocate the slots now, so that they can be written on a full disk.
		if _, err := f.WriteAt(make([]byte, 2*slotBytes), 0); err != nil {
			return err
		}
		if n > 0 {
			return q.save(true)
		}
	}
	return nil
}

func (q *Queue) loadSegment(n uint64, newest bool) error {
	b, err := q.readFile(n, -1)
	for failed := 1; err != nil && failed < maxReadFailures; failed++ {
		b, err = q.readFile(n, -1)
	}
	if err != nil && isDiskError(err) {
		// This is like a segment that was removed by hand: its neighbours tell what is missing.
		q.spool.log.Error("a segment of the spool cannot be read and is given up; known losses are reported",
			"segment", q.name(n), "error", err)
		if err := q.spool.disk.Remove(q.name(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err != nil {
		return err
	}
	s := &segment{number: n, size: int64(len(b))}
	at, tail := q.readHeader(s, b), uint64(0)
	var broken []damage
	scan(b, n, at, func(at int64, e Entry, size int64) bool {
		s.enter(&e)
		tail, q.st.reached = 0, e.Covered.To
		if place := (position{segment: n, offset: at}); !place.before(q.st.at) {
			q.waiting++
		}
		return true
	}, func(d damage) {
		broken = append(broken, d)
		tail = d.whole
	})
	for _, d := range broken {
		if d.whole == 0 && d.offset+d.size == s.size {
			q.spool.log.Info("the spool ends in a torn record, which was never accepted",
				"queue", q.rule.Name, "segment", q.name(n), "offset", d.offset, "bytes", d.size)
			continue
		}
		q.spool.log.Error("the spool is damaged; intact events are kept, and losses are reported",
			"queue", q.rule.Name, "segment", q.name(n), "offset", d.offset, "bytes", d.size)
	}
	last := s.last
	if newest && tail > 0 {
		// The damaged frames at the end were complete once, so their sequence numbers were used.
		last.sequence += tail
	}
	q.newest = max(q.newest, s.last.incarnation)
	source, shards := origin(s.header.Data)
	own := sourceSum(source) == q.ownSum()
	if s.header.Data == nil {
		own, shards = true, unknownShards
	}
	if own && q.st.last.before(last) {
		q.st.last, q.st.shards = last, shards
	}
	if s.frames == 0 && tail == 0 {
		return q.spool.disk.Remove(q.name(n))
	}
	q.segments = append(q.segments, s)
	q.spool.bytes += s.size
	return nil
}

func sourceSum(source string) uint32 { return crc32.Checksum([]byte(source), castagnoli) }

func (q *Queue) ownSum() uint32 { return sourceSum(q.spool.cfg.Source) }

// origin returns what the data of a header says: the source that wrote the segment, and the number
// of shards of its events' keys. They are zero if the header is damaged.
func origin(data []byte) (source string, shards int) {
	source, n, _ := strings.Cut(string(data), "\x00")
	shards, _ = strconv.Atoi(n) // 0: none is written
	return source, shards
}

// readHeader reads the header and returns the offset of the first frame.
func (q *Queue) readHeader(s *segment, b []byte) (at int64) {
	e, size, ok := parseFrame(b, headerMarker, s.number, 0)
	if !ok {
		return 0
	}
	e.Data = slices.Clone(e.Data)
	if e.Data == nil {
		e.Data = []byte{}
	}
	s.header = e
	s.first = stream{e.Incarnation, e.Sequence}
	s.last = stream{e.Incarnation, e.Sequence - 1}
	return size
}

// enter counts a frame.
func (s *segment) enter(e *Entry) {
	at := stream{e.Incarnation, e.Sequence}
	if s.frames == 0 {
		s.first, s.covered = at, e.Covered
	}
	s.frames++
	s.last = at
	s.covered.From = min(s.covered.From, e.Covered.From)
	s.covered.To = max(s.covered.To, e.Covered.To)
}

// maxReadFailures is how many failed reads in a row make a segment count as damaged.
const maxReadFailures = 10

// isDiskError reports whether a read failed because of the disk, and not because of this process's
// rights or resources.
func isDiskError(err error) bool {
	own := []error{
		fs.ErrPermission, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN,
	}
	for _, own := range own {
		if errors.Is(err, own) {
			return false
		}
	}
	return true
}

// readFile returns the bytes of a segment that is not being written.
func (q *Queue) readFile(n uint64, limit int64) ([]byte, error) {
	f, err := q.spool.disk.Open(q.name(n))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return q.read(f, limit)
}

// read returns the bytes of a file, up to limit unless it is negative.
func (q *Queue) read(f file, limit int64) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if limit >= 0 {
		size = min(size, limit)
	}
	const most = 1 << 30
	if size > most {
		return nil, fmt.Errorf("has %d bytes, too many for a segment", size)
	}
	if int64(cap(q.buf)) < size {
		q.buf = make([]byte, size)
	}
	q.buf = q.buf[:size]
	n, err := f.ReadAt(q.buf, 0)
	if int64(n) == size {
		err = nil
	}
	return q.buf[:n], err
}

// begin starts this life of the queue.
func (q *Queue) begin() error {
	if q.st.found && q.st.source != q.ownSum() {
		q.st.last = stream{}
	}
	q.follow()
	q.st.source, q.st.newest = q.ownSum(), q.spool.incarnation
	q.removeDelivered()
	if err := q.save(true); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if q.waiting > 0 {
		q.signal()
	}
	return q.spool.disk.SyncDir(q.rule.Name)
}

// follow makes the present incarnation the next one after that of the last event.
func (q *Queue) follow() {
	q.previous = q.st.last
	q.linked = q.st.shards != unknownShards && max(q.st.shards, 1) == max(q.spool.shards, 1)
	q.given = 0
}

// reshard begins a new incarnation. No event is in memory.
func (q *Queue) reshard() {
	q.seal()
	q.follow()
}

func (q *Queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Ready receives when there may be something to deliver.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Append gives an event its place and accepts it. build makes its bytes, and covered is the time
// that it covers. A queue with Keep returns nil once the event is on disk. Any other queue holds
// the event in memory until Sync.
//
// An error that wraps [ErrHeld] means that the event was accepted all the same. After any other
// error it was not, and used no sequence number.
func (q *Queue) Append(covered domain.Interval, build func(Place) ([]byte, error)) error {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	if q.spool.closed {
		return errors.New("append to spool: it is closed")
	}
	const most = 8 << 20
	full := func() bool { return len(q.held) >= q.spool.cfg.Held || q.heldSize > most }
	if full() && q.flush() != nil && full() {
		if q.rule.Keep {
			return fmt.Errorf("append to spool: %w", ErrFull)
		}
		q.dropHeld()
	}
	p := Place{Incarnation: q.spool.incarnation, Sequence: q.given + 1, Shards: q.spool.shards}
	if p.Sequence == 1 && q.linked {
		p.PreviousIncarnation, p.PreviousSequence = q.previous.incarnation, q.previous.sequence
	}
	data, err := build(p)
	if err != nil {
		return err
	}
	if len(data) > maxData {
		return fmt.Errorf("append to spool: an event of %d bytes, more than %d", len(data), maxData)
	}
	q.given++
	q.last = p
	q.held = append(q.held, Entry{p.Incarnation, p.Sequence, covered, data})
	q.heldSize += len(data)
	if !q.rule.Keep {
		return nil
	}
	return q.flush()
}

// dropHeld drops the oldest event in memory.
func (q *Queue) dropHeld() {
	e := q.held[0]
	q.held = slices.Delete(q.held, 0, 1)
	q.heldSize -= len(e.Data)
	q.st.last, q.st.shards = stream{e.Incarnation, e.Sequence}, q.spool.shards
	l := Loss{e.Incarnation, e.Sequence, e.Sequence, e.Covered, DiskFull}
	if n := len(q.droppedHeld); n > 0 && q.droppedHeld[n-1].To+1 == l.From {
		q.droppedHeld[n-1].To, q.droppedHeld[n-1].Covered.To = l.To, l.Covered.To
	} else {
		q.droppedHeld = append(q.droppedHeld, l)
	}
}

// Sync writes the events in memory and waits for the disk. An error that wraps [ErrHeld] means that
// some are still in memory.
func (q *Queue) Sync() error {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	return q.flush()
}

func (q *Queue) flush() error {
	for len(q.held) > 0 {
		err := q.write()
		for attempt := 0; err != nil && attempt < 64; attempt++ {
			why := DiskFull
			switch {
			case errors.Is(err, errQuota):
				why = Quota
			case !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT):
				// Try once more in a new file, in case the fault is in this one.
				attempt = 64
			}
			if attempt < 64 && !q.spool.makeRoom(q.rule.Keep, why) {
				break
			}
			err = q.write()
		}
		if err != nil {
			if !q.spool.full {
				q.spool.full = true
				q.spool.log.Error("the spool's disk does not accept events: they are held in memory until it does",
					"dir", q.spool.cfg.Dir, "queue", q.rule.Name, "error", err)
			}
			return fmt.Errorf("write to spool: %w: %w", ErrHeld, err)
		}
	}
	if q.spool.full && !slices.ContainsFunc(q.spool.queues, func(q *Queue) bool { return len(q.held) > 0 }) {
		q.spool.full = false
		q.spool.log.Info("the spool's disk accepts events again")
	}
	return nil
}

var errQuota = errors.New("the events that the spool must keep have reached its quota")

// write writes as many held events as fit in one segment, and syncs it.
func (q *Queue) write() error {
	s := q.spool
	if n := len(q.segments); q.active != nil && q.segments[n-1].size+int64(frameRest+len(q.held[0].Data)) > int64(q.rule.Segment) {
		q.seal()
	}
	if q.active == nil {
		if err := q.create(); err != nil {
			return err
		}
	}
	seg := q.segments[len(q.segments)-1]
	var b []byte
	n := 0
	for ; n < len(q.held); n++ {
		size := int64(len(b) + frameRest + len(q.held[n].Data))
		if n > 0 && seg.size+size > int64(q.rule.Segment) {
			break
		}
		if s.bytes+size > s.cfg.Quota {
			if n == 0 {
				return errQuota
			}
			break
		}
		b = appendFrame(b, frameMarker, seg.number, seg.size+int64(len(b)), &q.held[n])
	}
	_, err := q.active.WriteAt(b, seg.size)
	if err == nil {
		err = q.active.Sync()
	}
	if err != nil {
		// The content of the disk after seg.size is unknown now, so the segment is not written any
		// more.
		_ = q.active.Truncate(seg.size)
		q.seal()
		return err
	}
	for i := range q.held[:n] {
		q.heldSize -= len(q.held[i].Data)
		seg.enter(&q.held[i])
	}
	seg.size += int64(len(b))
	s.bytes += int64(len(b))
	q.waiting += uint64(n)
	q.st.last, q.st.shards, q.st.reached = seg.last, q.spool.shards, q.held[n-1].Covered.To
	q.held = slices.Delete(q.held, 0, n)
	q.signal()
	return nil
}

// seal closes the segment that is being written. An empty one is removed.
func (q *Queue) seal() {
	if q.active == nil {
		return
	}
	q.active.Close()
	q.active = nil
	if n := len(q.segments) - 1; q.segments[n].frames == 0 {
		q.remove(n)
	}
}

// remove deletes a segment.
func (q *Queue) remove(i int) {
	s := q.segments[i]
	if err := q.spool.disk.Remove(q.name(s.number)); err != nil {
		q.spool.log.Error("a segment of the spool cannot be removed", "segment", q.name(s.number), "error", err)
	}
	q.spool.bytes -= s.size
	q.segments = slices.Delete(q.segments, i, i+1)
}

// create makes a new segment.
func (q *Queue) create() error {
	s := q.spool
	number := q.st.at.segment + 1
	if n := len(q.segments); n > 0 {
		number = max(number, q.segments[n-1].number+1)
	}
	by := s.cfg.Source
	if s.shards > 1 {
		by += "\x00" + strconv.Itoa(s.shards)
	}
	header := Entry{
		Incarnation: s.incarnation, Sequence: q.held[0].Sequence, Data: []byte(by),
		Covered: domain.Interval{From: domain.Instant(q.previous.incarnation), To: domain.Instant(q.previous.sequence)},
	}
	b := appendFrame(nil, headerMarker, number, 0, &header)
	if s.bytes+int64(len(b)) > s.cfg.Quota {
		return errQuota
	}
	f, err := s.disk.Create(q.name(number))
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		err = s.disk.SyncDir(q.rule.Name)
	}
	if err != nil {
		f.Close()
		_ = s.disk.Remove(q.name(number))
		return err
	}
	q.active = f
	first := stream{header.Incarnation, header.Sequence}
	q.segments = append(q.segments, &segment{
		number: number, size: int64(len(b)), header: header, first: first, last: stream{first.incarnation, first.sequence - 1},
	})
	s.bytes += int64(len(b))
	return nil
}

// save writes the state.
func (q *Queue) save(durable bool) error {
	q.st.counter++
	if _, err := q.state.WriteAt(q.st.encode(), int64(q.st.counter%2)*slotBytes); err != nil {
		return err
	}
	if durable {
		return q.state.Sync()
	}
	return nil
}

// sealed returns how many of the segments are closed. Those come first.
func (q *Queue) sealed() int {
	if q.active != nil {
		return len(q.segments) - 1
	}
	return len(q.segments)
}

// removeDelivered removes delivered segments, except retained ones. It reports whether it removed
// any.
func (q *Queue) removeDelivered() bool {
	n := 0
	for ; n < q.sealed(); n++ {
		s := q.segments[n]
		if end := (position{segment: s.number, offset: s.size}); q.st.at.before(end) || q.rule.Retain && q.released.before(s.last) {
			break
		}
	}
	if n == 0 {
		return false
	}
	// The position must be on disk before the segments before it are removed. Otherwise their
	// events would seem lost.
	if err := q.save(true); err != nil {
		return false
	}
	for range n {
		q.remove(0)
	}
	return true
}

// Release says that stored events up to a place need not be retained once they are delivered.
func (q *Queue) Release(incarnation, sequence uint64) {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	if to := (stream{incarnation, sequence}); q.released.before(to) {
		q.released = to
		q.removeDelivered()
	}
}

// drop drops the oldest undelivered segment, and reports whether there was one. If active is true,
// it may drop the segment that is being written.
func (q *Queue) drop(active bool, why Reason) bool {
	q.removeDelivered()
	if q.sealed() == 0 && active {
		q.seal()
	}
	if q.sealed() == 0 {
		return false
	}
	s := q.segments[0]
	cur := q.st.at.stream
	lost := q.missingBefore(&cur, s, s.first)
	l := Loss{Incarnation: s.last.incarnation, From: cur.sequence + 1, To: s.last.sequence, Covered: s.covered, Reason: why}
	if s.covered.From < q.doneTo && q.doneTo < s.covered.To {
		l.Covered.From = q.doneTo
	}
	if l.From <= l.To {
		lost = append(lost, l)
		q.lost += l.To - l.From + 1
		q.waiting -= min(q.waiting, l.To-l.From+1)
	}
	q.st.lose(lost...)
	q.st.at, q.st.known = position{s.number, s.size, s.last}, true
	if err := q.save(true); err != nil {
		// A loss must be recorded before the segment is removed, so the segment stays until the
		// state can be written.
		q.spool.log.Error("the state of the spool cannot be written", "queue", q.rule.Name, "error", err)
		return false
	}
	q.spool.log.Warn("the spool drops its oldest samples",
		"queue", q.rule.Name,
		"from", l.From, "to", l.To,
		"covered_from", l.Covered.From.String(), "covered_to", l.Covered.To.String(),
		"reason", why.String())
	q.remove(0)
	return true
}

// missingBefore returns what is missing between the last delivered event and the next event of a
// segment. It moves cur to just before that event.
func (q *Queue) missingBefore(cur *stream, s *segment, next stream) (lost []Loss) {
	lose := func(incarnation, from, to uint64) {
		l := Loss{Incarnation: incarnation, From: from, To: to, Reason: Damaged}
		for _, b := range q.droppedHeld {
			if b.Incarnation == incarnation && b.From <= to && from <= b.To {
				l.Reason, l.Covered = b.Reason, b.Covered
				break
			}
		}
		lost = append(lost, l)
	}
	before := stream{uint64(s.header.Covered.From), uint64(s.header.Covered.To)}
	switch {
	case *cur == (stream{}):
		// The delivery position is unknown, or this is the first event ever.
		switch {
		case !q.st.known:
			*cur = stream{next.incarnation, next.sequence - 1}
			return nil
		case before.incarnation < next.incarnation && before.sequence > 0:
			lose(before.incarnation, 1, before.sequence)
		}
	case cur.incarnation != next.incarnation && s.header.Incarnation == next.incarnation:
		switch {
		case before.incarnation == cur.incarnation && before.sequence > cur.sequence:
			lose(cur.incarnation, cur.sequence+1, before.sequence)
		case before.incarnation > cur.incarnation && before.sequence > 0:
			lose(before.incarnation, 1, before.sequence)
		}
	}
	if cur.incarnation != next.incarnation {
		*cur = stream{next.incarnation, 0}
	}
	if cur.sequence+1 < next.sequence {
		lose(cur.incarnation, cur.sequence+1, next.sequence-1)
	}
	*cur = stream{next.incarnation, next.sequence - 1}
	return lost
}

// Batch is a run of events that are delivered together.
type Batch struct {
	Entries []Entry
	// Source is the source of the life that wrote them, or "" if damage hides it.
	Source string
	end    position
	to     domain.Instant
	lost   []Loss
	unread uint64 // of lost: undelivered events in segments that were given up
}

// Next returns the next events to deliver, at most the given number and approximately the given
// bytes. They are all of one segment. An empty batch means that there are none. Next returns the
// same events until Done. Their memory is valid until the next call of Next.
func (q *Queue) Next(records, bytes int) (Batch, error) {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	b := Batch{end: q.st.at}
	for i, s := range q.segments {
		if end := (position{segment: s.number, offset: s.size}); !b.end.before(end) {
			continue
		}
		if s.number > b.end.segment {
			b.end.segment, b.end.offset = s.number, 0
		}
		active := i == len(q.segments)-1 && q.active != nil
		switch err := q.readBatch(&b, s, active, records, bytes); {
		case err == nil:
			s.failed = 0
		case isDiskError(err) && s.failed+1 >= maxReadFailures:
			q.giveUp(&b, s, err)
			if active {
				q.seal() // new events go to another segment
			}
		default:
			s.failed++
			return Batch{}, fmt.Errorf("read spool segment %s: %w", q.name(s.number), err)
		}
		if len(b.Entries) > 0 {
			return b, nil
		}
	}
	if q.st.at.before(b.end) {
		// There is only damage or repeats: continue after it.
		if err := q.finish(b); err != nil {
			return Batch{}, err
		}
	}
	return Batch{}, nil
}

func (q *Queue) readBatch(b *Batch, s *segment, active bool, records, size int) error {
	var data []byte
	var err error
	if active {
		data, err = q.read(q.active, s.size)
	} else {
		data, err = q.readFile(s.number, s.size)
	}
	if err != nil {
		return err
	}
	from := b.end.offset
	b.Source, _ = origin(s.header.Data)
	if from == 0 {
		if _, n, ok := parseFrame(data, headerMarker, s.number, 0); ok {
			from = n
		}
	}
	b.end.offset = int64(len(data))
	var last domain.Instant
	total := 0
	scan(data, s.number, from, func(at int64, e Entry, n int64) bool {
		next := stream{e.Incarnation, e.Sequence}
		if next.incarnation == b.end.incarnation && next.sequence <= b.end.sequence {
			return true // written twice, because the first write was uncertain
		}
		if len(b.Entries) >= records || total > 0 && total+len(e.Data) > size {
			b.end.offset = at
			return false
		}
		lost := q.missingBefore(&b.end.stream, s, next)
		for i := range lost {
			// The lost events cover at most the time between their neighbours.
			if l := &lost[i]; l.Covered == (domain.Interval{}) && last > 0 && last < e.Covered.From {
				l.Covered = domain.Interval{From: last, To: e.Covered.From}
			}
		}
		b.lost = append(b.lost, lost...)
		b.end.stream = next
		b.Entries = append(b.Entries, e)
		total += len(e.Data)
		last, b.to = e.Covered.To, e.Covered.To
		return true
	}, func(damage) {})
	if b.end.offset < s.size && len(data) < int(s.size) {
		b.end.offset = s.size // the file was truncated by someone else
	}
	return nil
}

// Refuse records the entry i of a batch as a loss, which Done stores. An entry of another source is
// not recorded, because its stream is not known under this source's name.
func (q *Queue) Refuse(b *Batch, i int) {
	if b.Source == "" || b.Source == q.spool.cfg.Source {
		e := &b.Entries[i]
		b.lost = append(b.lost, Loss{e.Incarnation, e.Sequence, e.Sequence, e.Covered, Refused})
	}
}

// giveUp moves past a segment that cannot be read, and records its events as lost.
func (q *Queue) giveUp(b *Batch, s *segment, err error) {
	b.end.offset = s.size
	next := s.first
	if b.end.incarnation == next.incarnation {
		next.sequence = max(next.sequence, b.end.sequence+1)
	}
	if s.frames == 0 || next.sequence > s.last.sequence {
		return
	}
	b.lost = append(b.lost, q.missingBefore(&b.end.stream, s, next)...)
	l := Loss{Incarnation: next.incarnation, From: next.sequence, To: s.last.sequence, Covered: s.covered, Reason: Damaged}
	if l.Covered.From < q.doneTo && q.doneTo < l.Covered.To {
		l.Covered.From = q.doneTo
	}
	b.lost = append(b.lost, l)
	b.unread += l.To - l.From + 1
	b.end.stream = s.last
	if s.failed < maxReadFailures {
		s.failed = maxReadFailures
		q.spool.log.Error("a segment of the spool cannot be read and is given up",
			"segment", q.name(s.number), "from", l.From, "to", l.To, "error", err)
	}
}

// Done confirms that a batch is in the log, or will never be and was kept elsewhere.
func (q *Queue) Done(b Batch) error {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	return q.finish(b)
}

func (q *Queue) finish(b Batch) error {
	if !q.st.at.before(b.end) {
		return nil // dropped meanwhile
	}
	q.st.at, q.st.known = b.end, true
	q.droppedHeld = slices.DeleteFunc(q.droppedHeld, func(l Loss) bool {
		return l.Incarnation == b.end.incarnation && l.To <= b.end.sequence
	})
	slices.SortStableFunc(b.lost, func(x, y Loss) int {
		return cmp.Or(cmp.Compare(x.Incarnation, y.Incarnation), cmp.Compare(x.From, y.From))
	})
	q.st.lose(b.lost...)
	for _, l := range b.lost {
		q.lost += l.To - l.From + 1
	}
	n := uint64(len(b.Entries))
	q.waiting -= min(q.waiting, n+b.unread)
	q.delivered += n
	q.doneTo = max(q.doneTo, b.to)
	err := q.save(len(b.lost) > 0)
	q.removeDelivered()
	q.spool.reserve()
	return err
}

// Losses returns the losses that are not reported yet.
func (q *Queue) Losses() []Loss {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	return slices.Clone(q.st.losses)
}

// Said confirms that a loss was reported, and that the reporting event is on disk. Losses that were
// merged into it since then stay.
func (q *Queue) Said(l Loss) error {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	i := slices.IndexFunc(q.st.losses, func(x Loss) bool { return x.Incarnation == l.Incarnation && x.From == l.From })
	if i < 0 {
		return nil
	}
	if rest := &q.st.losses[i]; rest.To > l.To {
		rest.From = l.To + 1
		if rest.Covered.From < l.Covered.To && l.Covered.To < rest.Covered.To {
			rest.Covered.From = l.Covered.To
		}
	} else {
		q.st.losses = slices.Delete(q.st.losses, i, i+1)
	}
	return q.save(true)
}

// Stored yields every event on disk, including delivered ones that are retained. Their memory
// belongs to the queue.
func (q *Queue) Stored(yield func(Entry) bool) error {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	for i, s := range q.segments {
		f := q.active
		if i < q.sealed() {
			var err error
			if f, err = q.spool.disk.Open(q.name(s.number)); err != nil {
				return err
			}
			defer f.Close()
		}
		data, err := q.read(f, s.size)
		if err != nil {
			return err
		}
		more := true
		_, n, _ := parseFrame(data, headerMarker, s.number, 0)
		scan(data, s.number, n, func(_ int64, e Entry, _ int64) bool {
			more = yield(e)
			return more
		}, func(damage) {})
		if !more {
			return nil
		}
	}
	return nil
}

// Reached returns the end of the time covered by the last event of earlier lives, delivered or not;
// 0 if there was none.
func (q *Queue) Reached() domain.Instant { return q.reached }

// Stats returns how full the queue is.
func (q *Queue) Stats() Stats {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	st := Stats{Waiting: q.waiting, Held: len(q.held), Delivered: q.delivered, Losses: q.lost, Segments: len(q.segments)}
	for _, s := range q.segments {
		st.Bytes += s.size
		if end := (position{segment: s.number, offset: s.size}); st.Oldest == 0 && q.st.at.before(end) && s.frames > 0 {
			st.Oldest = max(s.covered.From, q.doneTo)
		}
	}
	return st
}

// Last returns the place of the last event that this life appended (zero if none), and the number
// of events held in memory.
func (q *Queue) Last() (last Place, held int) {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	return q.last, len(q.held)
}
