// Package embedded is the log of a single machine: a broker inside the process that speaks Kafka's
// protocol and stores its records in a data directory. The client code for Apache Kafka works with
// it unchanged.
//
// The broker itself is kfake, which was written for tests. This package adds the guarantees that a
// ledger needs:
//
//   - An acknowledged record is on disk. Every batch and the directory entries that lead to it are
//     synced before the acknowledgement. As soon as the disk reports any error, the
//     acknowledgement is withheld and the broker stops permanently.
//   - An opened log is intact. Before the broker starts, every byte of every segment is read and
//     checked: CRC-32C, dense offsets, and the state recorded at the last opening or stop. Damage
//     prevents the start and is located ([DamageError]). Only bytes that a crash can have left at
//     the end of the last segment are trimmed, and that is reported ([Trim]).
//   - Nothing is deleted unasked: retention is infinite, and requests that compact, delete topics or
//     reconfigure are refused. DeleteRecords deletes whole segments, the oldest first, and never the
//     last two of a partition. It is for records that an archive has.
//   - No request crashes the process. A guard reads every frame before the broker does. It admits
//     only known requests of limited size, in encodings whose cost is bounded by their length.
//   - A directory has one owner, the process that holds its lock. The owner serves other processes
//     through a socket, on the same path as its own connections.
//
// There is no protection from users who can write to the directory. Two gaps remain, because kfake
// ignores the result of fsync. First, writeback errors are detected through a second descriptor
// (sync_file_range) before the acknowledgement, but not for the first batch of a segment, and not
// if only the journal failed. Second, if the last batch is damaged after it was acknowledged and
// the process crashes before the next opening or clean stop, the damage cannot be distinguished
// from a torn write: the batch is trimmed and reported.
//
// # Data directory (mode 0700)
//
//	lock       flock held by the owner; contains the owner's pid; mode 0600
//	log.sock   the owner's unix socket, mode 0600; replaced only under the lock
//	id         the id of the log, which clients see as the cluster id
//	stopped    left by a clean stop, removed when the log is opened
//	log/       kfake's files: meta.json, topics.json, groups.log, pids.log, …
//	  partitions/TOPIC-N/BASE.dat       record batches (v2) from offset BASE
//	  partitions/TOPIC-N/BASE.idx       15 bytes per batch; rebuilt when it disagrees
//	  partitions/TOPIC-N/start          the first offset, after segments were deleted
//	  partitions/TOPIC-N/snapshot.json  segments and their sizes at the last
//	                                    opening or clean stop
//
// # Life of a batch
//
//  1. A client dials the socket. The guard reads one frame, at most MaxFrame bytes, and checks the
//     produce request: sizes, one v2 batch per partition, as many offsets as records.
//  2. With less than MinFree bytes free on the disk, the guard answers KAFKA_STORAGE_ERROR and
//     writes nothing.
//  3. kfake checks the CRC, assigns the offset, appends the batch and syncs.
//  4. The guard holds the answer until the directory entries are synced and the disk has reported
//     no error. Then it forwards the answer.
//
// # Reading without write access
//
// An auditor with a read-only mount, or another user, reads the log from its files
// ([Config.ReadOnly], or because the directory is not writable). Nothing in the directory is
// created, changed or locked. The same client code reads through [Broker.Dial]; the process answers
// requests from the segments.
//
//   - The reader sees the log as of the opening: all complete batches of each partition up to some
//     offset. To see later records, open it again. An owner may append meanwhile. A batch that is
//     being written is left out, and so is the torn tail of a crash ([Report.Unfinished]).
//   - A complete batch in the file is read even if the owner has not acknowledged it yet.
//   - Every byte is checked at opening, as for an owner, and damage is refused.
//   - There are no consumer groups.
//   - A topic that the log lacks can be created for this reader only; it is empty. So a newer
//     program can read an older log.
//
// It needs no copy of the log. Opening reads it once. It takes 24 bytes of memory for every 64 KiB
// of log, and per connection two buffers of one answer, which is 8 MiB or the largest batch.
//
// The mode of the data directory excludes other users, and it may contain an operator's private
// key. To let a group read the log, give it access to DIR itself, to DIR/id and to DIR/log with all
// below: see docs/operate/backup-and-restore.md. New files get the mode of their directory.
//
// # Cost of opening
//
// Every opening reads the log twice, warm at about 5 GB/s for the scan and 2 GB/s for kfake.
// Measured on two cores shared with other work, ext4, warm page cache, 300-byte records in batches
// of a thousand, four partitions; peak is the whole process (TestMeasure, CI_LONG=1):
//
//	records  log      after        scan    kfake   open    peak memory
//	1 M      286 MB   kill -9      0.05 s  0.22 s  0.27 s  109 MB
//	1 M      286 MB   clean stop   0.05 s  0.14 s  0.19 s  133 MB
//	5 M      1430 MB  kill -9      0.26 s  0.70 s  0.96 s  133 MB
//	5 M      1430 MB  clean stop   0.27 s  0.86 s  1.13 s  163 MB
//	5 M      1430 MB  read only    0.51 s  none    0.51 s   22 MB
//
// Memory grows with partitions times segment size, not with the length of the log, except for 72
// bytes per batch: append batches of a thousand.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"
)

// Config is the configuration of an embedded log. The zero value of every field except Dir is a
// good default.
type Config struct {
	// Dir is the data directory. It is created with mode 0700, unless ReadOnly is set.
	Dir string

	// ReadOnly reads the files and changes nothing, even if this process may write to the
	// directory or an owner serves it: see "Reading without write access". Without ReadOnly, a
	// directory that is not writable is read in the same way if no owner can be reached.
	ReadOnly bool

	// Log gets refusals and repairs. If nil, they are not logged; the report and the errors have
	// everything important.
	Log *slog.Logger

	// Wait limits how long a second process waits for an owner that holds the lock and is still
	// opening the log. Default one minute.
	Wait time.Duration

	// MinFree is the free space in bytes below which appends are refused. Default 64 MiB; negative
	// switches the check off.
	MinFree int64

	// MaxFrame is the size of the largest accepted produce request in bytes. The limit of other
	// requests is 1 MiB. Default 16 MiB.
	MaxFrame int

	// MaxConns is the maximum number of concurrent connections. Default 256.
	MaxConns int

	// FrameTimeout limits the time from the first byte of a request to its last, from the start of
	// a connection to its first request, and for a client to read an answer. Default 30 s.
	FrameTimeout time.Duration

	// SegmentBytes is the size at which a segment is sealed, for topics that do not set
	// segment.bytes. Memory at start grows with it. The broker keeps a descriptor for each sealed
	// segment that was read. Default 16 MiB.
	SegmentBytes int64
}

// ErrHeld means that another process holds the lock of the directory but does not answer on its
// socket. The caller stops that process, or waits.
var ErrHeld = errors.New("data directory is held by another process that does not answer")

// ErrOwnerGone is the result of [Broker.Err] in a client after its owner has gone. The caller opens
// the directory again, and may become its owner.
var ErrOwnerGone = errors.New("the process that served the log is gone")

// ErrReadOnly means that the log was opened only for reading its files. To append, open it as a
// user who may write to the directory, or as a user who may use the owner's socket.
var ErrReadOnly = errors.New("the log is open for reading only")

// ErrClosed is the result of [Broker.Err] and [Broker.Dial] after Close.
var ErrClosed = errors.New("embedded log is closed")

// Broker is an open log: its owner, a client of its owner, or a reader of its files.
type Broker struct {
	dir    *directory
	owner  *owner   // only in an owner
	reader *reader  // only in a reader
	life   net.Conn // in a client: ends when the owner does

	// Report is what opening found. It is zero in a client.
	Report Report

	once sync.Once
	done chan struct{}
	err  error // set before done is closed

	closing  sync.Once
	closeErr error
}

// Open opens the log in cfg.Dir. The process becomes the owner of the directory if it has none;
// otherwise the owner serves it. If the directory is not writable and no owner can be reached, Open
// reads the files, and appends are refused: see [Broker.ReadOnly]. It returns a [DamageError] if
// the log is damaged and [ErrHeld] if the owner does not answer. The context limits only the
// opening.
func Open(ctx context.Context, cfg Config) (*Broker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d, err := openDirectory(cfg.Dir, !cfg.ReadOnly)
	if err != nil {
		return nil, err
	}
	b := &Broker{dir: d, done: make(chan struct{})}
	if cfg.ReadOnly {
		return b.readFiles(ctx, cfg, errAsked)
	}
	owned, err := false, d.writable()
	if err == nil {
		owned, err = d.lockOrServe(ctx, cfg.Wait, func(c net.Conn) { b.life = c })
	}
	if denied(err) {
		if c, unreached := d.reach(ctx, cfg.Wait); unreached != nil {
			return b.readFiles(ctx, cfg, err)
		} else {
			b.life, err = c, nil
		}
	}
	if err != nil {
		d.close()
		return nil, err
	}
	if !owned {
		go b.watchOwner()
		return b, nil
	}
	b.owner, b.Report, err = own(ctx, cfg, d, b.end)
	if err != nil {
		d.unlock()
		d.close()
		return nil, err
	}
	return b, nil
}

// errAsked is the reason to refuse appends if [Config.ReadOnly] is set.
var errAsked = errors.New("ReadOnly is set")

// readFiles makes b a reader of the files. The cause is why it cannot append.
func (b *Broker) readFiles(ctx context.Context, cfg Config, cause error) (_ *Broker, err error) {
	if b.reader, b.Report, err = newReader(ctx, cfg, b.dir, cause); err != nil {
		b.dir.close()
		return nil, err
	}
	return b, nil
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("open embedded log: no directory given")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("open embedded log %s: %w", c.Dir, err)
	}
	c.Dir = dir
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Wait == 0 {
		c.Wait = time.Minute
	}
	if c.MinFree == 0 {
		c.MinFree = 64 << 20
	}
	if c.MaxFrame == 0 {
		c.MaxFrame = 16 << 20
	}
	if c.MaxConns == 0 {
		c.MaxConns = 256
	}
	if c.FrameTimeout == 0 {
		c.FrameTimeout = 30 * time.Second
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = 16 << 20
	}
	return c, nil
}

// Owner reports whether this process owns the directory.
func (b *Broker) Owner() bool { return b.owner != nil }

// ReadOnly reports whether the log is read from its files and accepts no appends. A caller that
// wants to append MUST check it first and give up with [Broker.Refusal]. Any append is answered with
// POLICY_VIOLATION, which kafka.Log.Append returns at once. The caller MUST NOT write other files in
// the directory either, such as snapshots.
func (b *Broker) ReadOnly() bool { return b.reader != nil }

// Refusal returns nil, or an [ErrReadOnly] with the reason.
func (b *Broker) Refusal() error {
	if b.reader == nil {
		return nil
	}
	return b.reader.refusal()
}

// Address returns the advertised address of the broker. It cannot be resolved: only Dial connects
// to it.
func (b *Broker) Address() string { return advertised }

// Dial connects to the broker and ignores the network and address. It is the dial function for a
// Kafka client.
func (b *Broker) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	select {
	case <-b.done:
		return nil, fmt.Errorf("dial embedded log %s: %w", b.dir.path, b.err)
	default:
	}
	if b.reader != nil {
		return b.reader.dial(), nil
	}
	return b.dir.dial(ctx)
}

// Done returns a channel that is closed when the log can no longer be used: after Close, when a
// client's owner is gone, or when an owner stopped because of its disk. [Broker.Err] returns the
// reason.
func (b *Broker) Done() <-chan struct{} { return b.done }

// Err returns nil until Done is closed, and then the reason.
func (b *Broker) Err() error {
	select {
	case <-b.done:
		return b.err
	default:
		return nil
	}
}

// Close stops the broker cleanly if this process owns it; otherwise it only disconnects. It returns
// the errors of the disk, including earlier ones. After an error, the next opening checks the log as
// after a crash.
func (b *Broker) Close() error {
	b.closing.Do(func() {
		failed := b.Err()
		b.end(ErrClosed)
		switch {
		case b.reader != nil:
			b.reader.close()
			b.dir.close()
			return
		case b.owner == nil:
			b.life.Close()
			b.dir.close()
			return
		}
		b.closeErr = errors.Join(failed, b.owner.stop(failed == nil))
		b.dir.unlock()
		b.dir.close()
	})
	return b.closeErr
}

func (b *Broker) end(err error) {
	b.once.Do(func() {
		b.err = err
		close(b.done)
	})
}

// watchOwner waits for the end of an idle connection to the owner.
func (b *Broker) watchOwner() {
	var one [1]byte
	_, _ = b.life.Read(one[:]) // returns only when the owner is gone
	b.life.Close()
	b.end(ErrOwnerGone)
}

// Report is the result of opening a log.
type Report struct {
	Clean      bool // the last owner stopped cleanly
	Topics     int
	Partitions int
	Segments   int
	Batches    int64
	Records    int64
	Bytes      int64
	Trimmed    []Trim
	Unfinished []Trim        // in a reader: incomplete batches at the end of files, left unchanged
	Rebuilt    []string      // index files that disagreed with their segment
	Scan       time.Duration // time to check every byte
	Start      time.Duration // time of the broker's own start after that
}

// Trim is a torn tail that was removed, or in [Report.Unfinished] was not read.
type Trim struct {
	File       string
	Topic      string // empty for groups.log and pids.log
	Partition  int
	Position   int64  // bytes kept
	Bytes      int64  // bytes removed
	LastOffset int64  // last good offset, -1 if none is left
	Reason     string // what is wrong with the removed bytes
}

// String describes the trim in one line.
func (t Trim) String() string {
	s := fmt.Sprintf("%s: %d bytes trimmed at byte %d (%s)", t.File, t.Bytes, t.Position, t.Reason)
	if t.Topic != "" {
		s += fmt.Sprintf(", %s/%d ends at offset %d", t.Topic, t.Partition, t.LastOffset)
	}
	return s
}

// DamageError means that the log is not what was written. The log was not changed. An operator
// restores the file from a copy.
type DamageError struct {
	File      string
	Position  int64 // byte within the file
	Topic     string
	Partition int
	Offset    int64 // first offset that may be damaged
	Reason    string
}

func (e *DamageError) Error() string {
	s := fmt.Sprintf("log is damaged: %s at byte %d", e.File, e.Position)
	if e.Topic != "" {
		s += fmt.Sprintf(" (%s/%d, offset %d)", e.Topic, e.Partition, e.Offset)
	}
	return s + ": " + e.Reason + "; nothing was changed, restore the file from a copy"
}
