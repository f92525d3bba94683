package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"quartermaster/adapters/durable"
)

// disk checks what the broker does not check before an acknowledgement: that the directory
// entries of new files are durable and that no write failed.
type disk struct {
	path    string
	minFree int64

	mu    sync.Mutex
	parts map[topicPartition]*watched
	root  *watched // log/ itself
}

type topicPartition struct {
	topic  string
	number int32
}

// watched is a directory with synced entries, and its newest segment.
type watched struct {
	dir     *os.File
	changed time.Time // modification time at the last sync
	segment *os.File
	base    int64
}

// tick is longer than the granularity of modification times. Within it, another change may follow
// with the same modification time.
const tick = 20 * time.Millisecond

func newDisk(path string, minFree int64) *disk {
	return &disk{path: path, minFree: minFree, parts: make(map[topicPartition]*watched)}
}

// room returns an error if an append of n bytes would leave too little free space.
func (d *disk) room(n int) error {
	if d.minFree < 0 {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.path, &st); err != nil {
		return fmt.Errorf("read free space of %s: %w", d.path, err)
	}
	//nolint:unconvert // other systems have 32 bits here
	if free := int64(st.Bavail) * int64(st.Bsize); free-int64(n) < d.minFree {
		return fmt.Errorf(
			"append refused: %s has %d bytes free, %d must stay free; free some space to resume appends",
			d.path, free, d.minFree,
		)
	}
	return nil
}

// confirmAppend returns once an append to the partition is durable.
func (d *disk) confirmAppend(tp topicPartition) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.parts[tp]
	if w == nil {
		dir, err := os.Open(filepath.Join(d.path, "partitions", partitionDirName(tp.topic, int(tp.number))))
		if errors.Is(err, os.ErrNotExist) {
			return nil // no such partition, which the answer reports
		}
		if err == nil {
			err = durable.SyncDirectory(filepath.Join(d.path, "partitions"))
		}
		if err != nil {
			return err
		}
		w = &watched{dir: dir, base: -1}
		d.parts[tp] = w
	}
	if err := w.syncNames(true); err != nil {
		return err
	}
	if w.segment == nil {
		return nil
	}
	return writebackError(w.segment)
}

// confirmNames returns once the files of the log's own directory are durable.
func (d *disk) confirmNames() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.root == nil {
		f, err := os.Open(d.path)
		if err != nil {
			return err
		}
		d.root = &watched{dir: f}
	}
	return d.root.syncNames(false)
}

func (w *watched) syncNames(segments bool) error {
	info, err := w.dir.Stat()
	if err != nil {
		return err
	}
	if at := info.ModTime(); at.Equal(w.changed) && time.Since(at) > tick {
		return nil
	}
	if err := w.dir.Sync(); err != nil {
		return err
	}
	w.changed = info.ModTime()
	if !segments {
		return nil
	}
	entries, err := os.ReadDir(w.dir.Name())
	if err != nil {
		return err
	}
	newest := w.base
	if bases := segmentBases(entries); len(bases) > 0 {
		newest = max(newest, bases[len(bases)-1])
	}
	if newest == w.base {
		return nil
	}
	f, err := os.Open(filepath.Join(w.dir.Name(), strconv.FormatInt(newest, 10)+".dat"))
	if err != nil {
		return err
	}
	if w.segment != nil {
		w.segment.Close()
	}
	w.segment, w.base = f, newest
	// The result of the broker's own fsync of this first batch is unknown.
	return f.Sync()
}

func (d *disk) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.parts {
		w.dir.Close()
		if w.segment != nil {
			w.segment.Close()
		}
	}
	if d.root != nil {
		d.root.dir.Close()
	}
	clear(d.parts)
	d.root = nil
}
