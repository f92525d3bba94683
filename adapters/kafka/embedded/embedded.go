// Package embedded is the log of a single machine: a broker inside the
// process that speaks Kafka's protocol and keeps its records in a data
// directory, so that the code that talks to Apache Kafka talks to it unchanged.
//
// The broker itself is kfake, which was written for tests. What this package
// adds is what makes it fit to keep books:
//
//   - An acknowledged record is on disk. Every batch is synced before its
//     acknowledgement, the directory entries that lead to it too, and an
//     acknowledgement is withheld, and the broker stopped for good, as soon as
//     the disk reports any error.
//   - A log that is opened is whole. Before the broker starts, every byte of
//     every segment is read and checked: CRC-32C, dense offsets, and what the
//     last opening or stop recorded. Damage refuses the start and is located
//     ([DamageError]); only bytes that a crash can have left behind, at the end
//     of the last segment, are trimmed, and that is reported ([Trim]).
//   - Nothing is ever deleted: retention is infinite, compaction is refused,
//     requests that delete or reconfigure are refused.
//   - No request ends the process: a guard reads every frame before the broker
//     does, and admits known requests of bounded size in encodings whose cost
//     is bounded by their length.
//   - A directory has one owner, whoever holds its lock. Other processes are
//     served by the owner through a socket, on the same path that the owner's
//     own connections take.
//
// What is not promised: protection from whoever can write to the directory.
// Two windows remain, because kfake ignores the result of fsync. Writeback
// errors are noticed through a second descriptor (sync_file_range) before the
// acknowledgement, but not for the first batch of a segment, nor when the
// error is the journal's alone. And a last batch damaged after it was
// acknowledged, when the process crashed before the next opening or clean
// stop, cannot be told from a torn write: it is trimmed and reported.
//
// # Data directory (mode 0700)
//
//	lock       flock held by the owner; its text names the owner's pid; mode 0600
//	log.sock   the owner's unix socket, mode 0600; replaced only under the lock
//	id         the log's own, which clients see as the cluster's
//	stopped    left by a clean stop, removed when the log is opened
//	log/       kfake's files: meta.json, topics.json, groups.log, pids.log, …
//	  partitions/TOPIC-N/BASE.dat       record batches (v2) from offset BASE
//	  partitions/TOPIC-N/BASE.idx       15 bytes a batch; rebuilt when it disagrees
//	  partitions/TOPIC-N/snapshot.json  segments and their sizes at the last
//	                                    opening or clean stop
//
// # Life of a batch
//
//  1. A client dials the socket; the guard reads one frame, at most MaxFrame
//     bytes, and walks the produce request: sizes, one v2 batch a partition,
//     as many offsets as records.
//  2. With less than MinFree bytes left on the disk it answers
//     KAFKA_STORAGE_ERROR; no byte is written.
//  3. kfake checks the CRC, gives the batch its offset, appends it and syncs.
//  4. The guard holds the answer until the directory entries are synced and
//     the disk reported no error, then lets it through.
//
// # Reading without write access
//
// An auditor's read-only mount, or another user, reads the log from its files
// ([Config.ReadOnly], or because the directory cannot be written to). Nothing in
// the directory is made, changed or locked. The same client code reads through
// [Broker.Dial]; requests are answered in the process, from the segments.
//
//   - What is read is the log as it was when it was opened: of each partition
//     all whole batches up to some offset. Records appended later are seen by
//     opening again. An owner may append meanwhile; what it is writing just then
//     is left out, and so is the torn tail of a crash ([Report.Unfinished]).
//   - A batch that is whole in the file is read, also when its owner has not yet
//     acknowledged it.
//   - Every byte is checked at opening as an owner does, and damage refused.
//   - There are no consumer groups.
//   - A topic that the log lacks can be created for this reader alone: it is
//     empty. So a newer program reads an older log.
//
// It costs no copy of the log. Opening reads it once; in memory are 24 bytes for
// every 64 KiB of log, and for each connection two buffers of one answer, which
// is 8 MiB or the largest batch.
//
// The data directory's mode keeps others out, and an operator's private key may
// lie in it. To let a group read the log, give it DIR itself, and DIR/id and
// DIR/log with all below: see docs/operate/backup-and-restore.md. Files made
// later follow the mode of their directory.
//
// # What opening costs
//
// Every opening reads the log twice, warm at about 5 GB/s for the scan and
// 2 GB/s for kfake. Two cores shared with other work, ext4, page cache warm,
// 300-byte records in batches of a thousand, four partitions; peak is the
// whole process (TestMeasure, CI_LONG=1):
//
//	records  log      after        scan    kfake   open    peak memory
//	1 M      286 MB   kill -9      0.05 s  0.22 s  0.27 s  109 MB
//	1 M      286 MB   clean stop   0.05 s  0.14 s  0.19 s  133 MB
//	5 M      1430 MB  kill -9      0.26 s  0.70 s  0.96 s  133 MB
//	5 M      1430 MB  clean stop   0.27 s  0.86 s  1.13 s  163 MB
//	5 M      1430 MB  read only    0.51 s  none    0.51 s   22 MB
//
// Memory follows partitions times segment size, not the length of the log,
// but for 72 bytes a batch: append batches of a thousand.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Config says where the log lives and what bounds it. The zero value of every
// field but Dir is a sound default.
type Config struct {
	// Dir is the data directory. It is created with mode 0700, unless ReadOnly is set.
	Dir string

	// ReadOnly reads the files and touches nothing, even where this process may
	// write to the directory and where an owner serves: see "Reading without
	// write access". Without it a directory that this process may not write to is
	// read so when no owner is reached.
	ReadOnly bool

	// Log receives refusals and repairs. Nil: they are dropped; the report and
	// the errors say what matters.
	Log *slog.Logger

	// Wait bounds how long a second process waits for an owner that holds the
	// lock and has not finished opening the log. Default one minute.
	Wait time.Duration

	// MinFree is the free space in bytes below which appends are refused.
	// Default 64 MiB; negative switches the check off.
	MinFree int64

	// MaxFrame is the largest produce request accepted, in bytes; other
	// requests are held to 1 MiB. Default 16 MiB.
	MaxFrame int

	// MaxConns is how many connections are served at once. Default 256.
	MaxConns int

	// FrameTimeout bounds the time from the first byte of a request to its
	// last, from a connection's start to its first request, and for a client
	// to take an answer. Default 30 s.
	FrameTimeout time.Duration

	// SegmentBytes is the size at which a segment is sealed, for topics that
	// do not set segment.bytes. Start-up memory follows it; the broker keeps a
	// descriptor for each sealed segment that was read. Default 16 MiB.
	SegmentBytes int64
}

// ErrHeld is returned when another process holds the directory's lock but
// does not answer on its socket. The caller stops that process, or waits.
var ErrHeld = errors.New("data directory is held by another process that does not answer")

// ErrOwnerGone is what [Broker.Err] returns in a client whose owner has gone.
// The caller opens the directory again, and may become its owner.
var ErrOwnerGone = errors.New("the process that served the log is gone")

// ErrReadOnly means that the log was opened to read its files alone. The caller
// opens it as a user who may write to the directory, or runs beside the owner
// as a user who may use its socket.
var ErrReadOnly = errors.New("the log is open for reading only")

// ErrClosed is what [Broker.Err] and [Broker.Dial] return after Close.
var ErrClosed = errors.New("embedded log is closed")

// Broker is an open log: its owner, a client of its owner, or a reader of its files.
type Broker struct {
	dir    *directory
	owner  *owner   // only in an owner
	reader *reader  // only in a reader
	life   net.Conn // in a client: ends when the owner does

	// Report says what opening found. It is zero in a client.
	Report Report

	once sync.Once
	done chan struct{}
	err  error // set before done is closed

	closing  sync.Once
	closeErr error
}

// Open opens the log in cfg.Dir. The process becomes the directory's owner
// when nobody else is; otherwise it is served by the owner. Where it may not
// write to the directory and reaches no owner it reads the files, and appends
// are refused: see [Broker.ReadOnly]. It returns a [DamageError] when the log is
// damaged and [ErrHeld] when the owner does not answer. ctx bounds the opening
// alone.
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

// errAsked is why appends are refused where [Config.ReadOnly] was set.
var errAsked = errors.New("ReadOnly is set")

// readFiles makes b a reader of the files. cause is why it is no more than that.
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

// ReadOnly reports whether the log is read from its files, so that it takes no
// appends. A caller that means to append MUST ask first and give up with
// [Broker.Refusal]; what it sends nevertheless is answered with
// POLICY_VIOLATION, which kafka.Log.Append returns at once. What the caller
// keeps beside the log in the directory, such as snapshots, it can read and
// MUST NOT write.
func (b *Broker) ReadOnly() bool { return b.reader != nil }

// Refusal is nil, or an [ErrReadOnly] with the reason.
func (b *Broker) Refusal() error {
	if b.reader == nil {
		return nil
	}
	return b.reader.refusal()
}

// Address is the broker's address as metadata gives it. No resolver knows it:
// only Dial leads there.
func (b *Broker) Address() string { return advertised }

// Dial connects to the broker, whatever the network and address: it is the
// dial function to hand to a Kafka client.
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

// Done is closed when the log can no longer be used: after Close, when a
// client's owner is gone, and when an owner stopped because of its disk.
// [Broker.Err] says which.
func (b *Broker) Done() <-chan struct{} { return b.done }

// Err returns nil until Done is closed, and why it was closed from then on.
func (b *Broker) Err() error {
	select {
	case <-b.done:
		return b.err
	default:
		return nil
	}
}

// Close stops the broker cleanly when this process owns it, and leaves the
// owner's alone otherwise. It returns what went wrong on the disk, now or
// before; the log is then checked as after a crash.
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

// watchOwner waits for the end of a connection that carries nothing.
func (b *Broker) watchOwner() {
	var one [1]byte
	_, _ = b.life.Read(one[:]) // whatever it returns, it returns because the owner is gone
	b.life.Close()
	b.end(ErrOwnerGone)
}

// Report is what opening found and did.
type Report struct {
	Clean      bool // the last owner stopped cleanly
	Topics     int
	Partitions int
	Segments   int
	Batches    int64
	Records    int64
	Bytes      int64
	Trimmed    []Trim
	Unfinished []Trim        // of a reader: ends that are no whole batch and stay as they are
	Rebuilt    []string      // index files that disagreed with their segment
	Scan       time.Duration // the check of every byte
	Start      time.Duration // the broker's own start after it
}

// Trim is one torn tail that was cut off, or in [Report.Unfinished] not read.
type Trim struct {
	File       string
	Topic      string // empty for groups.log and pids.log
	Partition  int
	Position   int64  // bytes kept
	Bytes      int64  // bytes cut off
	LastOffset int64  // last good offset, -1 when none is left
	Reason     string // what the first byte cut off was the start of
}

// String describes the cut in one line.
func (t Trim) String() string {
	s := fmt.Sprintf("%s: %d bytes trimmed at byte %d (%s)", t.File, t.Bytes, t.Position, t.Reason)
	if t.Topic != "" {
		s += fmt.Sprintf(", %s/%d ends at offset %d", t.Topic, t.Partition, t.LastOffset)
	}
	return s
}

// DamageError says where the log is not what was written. The log is left as
// it was found. The caller restores the file from a copy.
type DamageError struct {
	File      string
	Position  int64 // byte within the file
	Topic     string
	Partition int
	Offset    int64 // first offset that cannot be vouched for
	Reason    string
}

func (e *DamageError) Error() string {
	s := fmt.Sprintf("log is damaged: %s at byte %d", e.File, e.Position)
	if e.Topic != "" {
		s += fmt.Sprintf(" (%s/%d, offset %d)", e.Topic, e.Partition, e.Offset)
	}
	return s + ": " + e.Reason + "; nothing was changed, restore the file from a copy"
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
