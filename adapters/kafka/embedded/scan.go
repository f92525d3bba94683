package embedded

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"quartermaster/adapters/durable"
)

// partition is the directory of one partition.
type partition struct {
	topic    string
	number   int
	dir      string
	segments []*segment
	old      *snapshot // nil if none was recorded
	start    int64     // the first offset, which begins a segment; 0 unless older ones were deleted
	dropped  []string  // files of segments before start, left by a crash
}

// snapshot is kfake's snapshot.json. If it agrees with the segments, kfake starts without loading
// the log into memory. It is written at each opening and clean stop, so it also tells which bytes
// must still exist.
type snapshot struct {
	Version          int           `json:"version"`
	HighWatermark    int64         `json:"high_watermark"`
	LastStableOffset int64         `json:"last_stable_offset"`
	LogStartOffset   int64         `json:"log_start_offset"`
	Epoch            int32         `json:"epoch"`
	LeaderNode       int32         `json:"leader_node,omitempty"`
	MaxTimestamp     int64         `json:"max_timestamp"`
	CreatedAt        time.Time     `json:"created_at"`
	Segments         []sealedBytes `json:"segments"`
}

type sealedBytes struct {
	BaseOffset int64 `json:"base_offset"`
	Size       int64 `json:"size"`
	MinEpoch   int32 `json:"min_epoch,omitempty"`
	MaxEpoch   int32 `json:"max_epoch,omitempty"`
}

const snapshotFile = "snapshot.json"

// scan checks every byte of the log in dir, repairs the traces of a crash, and writes the snapshots
// that limit the broker's memory. If it finds damage, it changes nothing.
func scan(ctx context.Context, dir string, clean bool) (Report, error) {
	r := Report{Clean: clean}
	topics, parts, err := survey(ctx, dir)
	if err != nil {
		return r, err
	}
	r.Topics = len(topics)
	logs := make(map[string]*Trim)
	for _, name := range []string{"groups.log", "pids.log"} {
		if logs[name], err = checkEntries(filepath.Join(dir, name)); err != nil {
			return r, err
		}
	}

	// From here on the log is intact except for torn tails.
	for _, name := range []string{"groups.log", "pids.log"} {
		if t := logs[name]; t != nil {
			if err := truncate(t.File, t.Position); err != nil {
				return r, err
			}
			r.Trimmed = append(r.Trimmed, *t)
		}
	}
	if !clean {
		// This file is written only at a clean stop, so it is out of date now.
		if err := os.Remove(filepath.Join(dir, "seq_windows.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return r, err
		}
	}
	for _, p := range parts {
		if err := p.settle(&r); err != nil {
			return r, fmt.Errorf("repair %s/%d: %w", p.topic, p.number, err)
		}
		r.count(p)
	}
	return r, syncTree(dir)
}

func (r *Report) count(p *partition) {
	r.Partitions++
	r.Segments += len(p.segments)
	for _, s := range p.segments {
		r.Batches += s.batches
		r.Records += s.next - s.base
		r.Bytes += s.good
	}
}

// survey reads and checks every segment of the log in dir. It changes nothing.
func survey(ctx context.Context, dir string) ([]topic, []*partition, error) {
	topics, parts, err := inventory(dir)
	if err != nil {
		return nil, nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, p := range parts {
		for _, s := range p.segments {
			g.Go(func() error { return s.check(gctx) })
		}
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	for _, p := range parts {
		if err := p.judge(); err != nil {
			return nil, nil, err
		}
	}
	return topics, parts, nil
}

// topic is an entry of topics.json.
type topic struct {
	Name       string            `json:"name"`
	Partitions int               `json:"partitions"`
	Configs    map[string]string `json:"configs"`
}

// inventory lists the topics and the partitions with data. It refuses a directory that the broker
// would not read completely. To get a consistent state while an owner writes, it reads files in
// reverse order of writing.
func inventory(dir string) ([]topic, []*partition, error) {
	root := filepath.Join(dir, "partitions")
	dirs, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("list partitions: %w", err)
	}
	var topics struct {
		Topics []topic `json:"topics"`
	}
	topicsFile := filepath.Join(dir, "topics.json")
	text, err := os.ReadFile(topicsFile)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil, fmt.Errorf("read topics: %w", err)
	}
	if err == nil {
		err = json.Unmarshal(text, &topics)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, &DamageError{File: topicsFile, Reason: err.Error()}
	}
	_, metaErr := os.Stat(filepath.Join(dir, "meta.json"))

	known := make(map[string]*partition)
	for _, t := range topics.Topics {
		for name, value := range t.Configs {
			if !allowedConfig(name, value) {
				return nil, nil, fmt.Errorf(
					"open embedded log: topic %s has %s=%s, which could delete events; this log keeps everything",
					t.Name, name, value,
				)
			}
		}
		for i := range t.Partitions {
			known[partitionDirName(t.Name, i)] = &partition{topic: t.Name, number: i}
		}
	}
	var parts []*partition
	for _, e := range dirs {
		p := known[e.Name()]
		loaded := &partition{dir: filepath.Join(root, e.Name())}
		if p != nil {
			loaded.topic, loaded.number = p.topic, p.number
		}
		if err := loaded.load(); err != nil {
			return nil, nil, err
		}
		if len(loaded.segments) == 0 && loaded.old == nil {
			continue
		}
		if p == nil || metaErr != nil {
			return nil, nil, &DamageError{
				File: topicsFile,
				Reason: "the broker would not read " + loaded.dir + ", which holds records: " +
					"topics.json or meta.json is missing or not the one that was written",
			}
		}
		parts = append(parts, loaded)
	}
	// A known partition without a directory was never written to: the first append creates the
	// directory, the first opening creates its snapshot.
	return topics.Topics, parts, nil
}

func partitionDirName(topic string, n int) string {
	return url.PathEscape(topic) + "-" + strconv.Itoa(n)
}

// load reads the start and the snapshot before it lists the segments, so that the recorded segments
// exist with at least the recorded size.
func (p *partition) load() error {
	var err error
	if p.start, err = readStart(p.dir); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(p.dir, snapshotFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("read partition: %w", err)
	default:
		p.old = new(snapshot)
		if err == nil {
			err = json.Unmarshal(text, p.old)
		}
		if err != nil {
			return &DamageError{
				File:      filepath.Join(p.dir, snapshotFile),
				Topic:     p.topic,
				Partition: p.number,
				Reason:    err.Error(),
			}
		}
	}
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return fmt.Errorf("list partition: %w", err)
	}
	for _, e := range entries {
		number, ok := strings.CutSuffix(e.Name(), ".dat")
		if !ok {
			continue
		}
		file := filepath.Join(p.dir, e.Name())
		base, err := strconv.ParseInt(number, 10, 64)
		if err != nil || base < 0 || strconv.FormatInt(base, 10) != number {
			return &DamageError{
				File:      file,
				Topic:     p.topic,
				Partition: p.number,
				Reason:    "the name of a segment must be its first offset",
			}
		}
		if base < p.start {
			p.dropped = append(p.dropped, file)
			continue
		}
		p.segments = append(p.segments, &segment{file: file, base: base})
	}
	slices.SortFunc(p.segments, func(a, b *segment) int { return cmp.Compare(a.base, b.base) })
	return nil
}

// judge returns an error if a segment is damaged. Only the last segment may have a torn tail.
func (p *partition) judge() error {
	recorded := make(map[int64]int64)
	if p.old != nil {
		for _, s := range p.old.Segments {
			if s.BaseOffset >= p.start {
				recorded[s.BaseOffset] = s.Size
			}
		}
	}
	if n := len(p.segments); p.start > 0 && (n == 0 || n == 1 && p.segments[0].good == 0) {
		return &DamageError{File: filepath.Join(p.dir, startFile), Topic: p.topic, Partition: p.number, Offset: p.start,
			Reason: "no records are left from this offset on, and the last segments are never deleted"}
	}
	next := p.start
	for i, s := range p.segments {
		if s.base != next {
			return &DamageError{File: s.file, Topic: p.topic, Partition: p.number, Offset: next,
				Reason: fmt.Sprintf("the segment starts at offset %d, the one before ends before %d", s.base, next)}
		}
		was := recorded[s.base]
		delete(recorded, s.base)
		if s.fault != "" {
			sealed := ""
			switch {
			case i < len(p.segments)-1:
				sealed = "in a sealed segment"
			case s.good < was:
				sealed = fmt.Sprintf("within the %d bytes recorded as whole", was)
			default:
				at, err := s.validAfterFault()
				if err != nil {
					return err
				}
				if at >= 0 {
					sealed = fmt.Sprintf("a whole batch follows at byte %d", at)
				}
			}
			if sealed != "" {
				return &DamageError{
					File:      s.file,
					Position:  s.good,
					Topic:     p.topic,
					Partition: p.number,
					Offset:    s.next,
					Reason:    s.fault + ", " + sealed,
				}
			}
		} else if s.good < was {
			return &DamageError{File: s.file, Position: s.good, Topic: p.topic, Partition: p.number, Offset: s.next,
				Reason: fmt.Sprintf("the file ends here, %d bytes were recorded as whole", was)}
		}
		next = s.next
	}
	for base, size := range recorded {
		if size > 0 {
			return &DamageError{
				File:      filepath.Join(p.dir, strconv.FormatInt(base, 10)+".dat"),
				Topic:     p.topic,
				Partition: p.number,
				Offset:    base,
				Reason:    fmt.Sprintf("the file is missing, %d bytes were recorded", size),
			}
		}
	}
	return nil
}

// settle trims the torn tail, repairs the index and writes the snapshot.
func (p *partition) settle(r *Report) error {
	if n := len(p.segments); n > 0 {
		last := p.segments[n-1]
		if last.fault != "" {
			if err := truncate(last.file, last.good); err != nil {
				return err
			}
			r.Trimmed = append(r.Trimmed, Trim{File: last.file, Topic: p.topic, Partition: p.number,
				Position: last.good, Bytes: last.size - last.good, LastOffset: last.next - 1, Reason: last.fault})
		}
		if last.good == 0 {
			for _, f := range []string{last.file, last.index()} {
				if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
					return err
				}
			}
			p.segments = p.segments[:n-1]
		}
	}
	for _, file := range p.dropped {
		for _, f := range []string{file, strings.TrimSuffix(file, ".dat") + ".idx"} {
			if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	snap := snapshot{Version: 1, CreatedAt: time.Now(), LogStartOffset: p.start, Segments: []sealedBytes{}}
	if p.old != nil {
		snap.CreatedAt, snap.MaxTimestamp = p.old.CreatedAt, p.old.MaxTimestamp
	}
	for _, s := range p.segments {
		rebuilt, err := s.settleIndex()
		if err != nil {
			return err
		}
		if rebuilt {
			r.Rebuilt = append(r.Rebuilt, s.index())
		}
		snap.Segments = append(snap.Segments, sealedBytes{BaseOffset: s.base, Size: s.good})
		snap.HighWatermark = s.next
	}
	snap.LastStableOffset = snap.HighWatermark
	if p.old != nil && slices.Equal(p.old.Segments, snap.Segments) && p.old.Version == snap.Version &&
		p.old.HighWatermark == snap.HighWatermark && p.old.LastStableOffset == snap.LastStableOffset &&
		p.old.LogStartOffset == snap.LogStartOffset && p.old.Epoch == 0 && p.old.LeaderNode == 0 {
		return nil
	}
	text, err := json.Marshal(snap)
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(p.dir, snapshotFile), text); err != nil {
		return err
	}
	return durable.SyncDirectory(p.dir)
}

// checkEntries checks a log of framed entries: a little-endian length and a CRC-32C, both of the
// bytes after the CRC. It returns the torn tail, if any. The tail must be removed, because the
// broker would stop reading at a torn entry but append after it, which would hide every later
// commit.
func checkEntries(file string) (*Trim, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pos := 0
	for n := entryAt(raw); n > 0; n = entryAt(raw[pos:]) {
		pos += n
	}
	if pos == len(raw) {
		return nil, nil
	}
	for at := pos + 1; at < len(raw); at++ {
		if entryAt(raw[at:]) > 0 {
			return nil, &DamageError{
				File:     file,
				Position: int64(pos),
				Reason:   fmt.Sprintf("an entry does not match its checksum, a whole one follows at byte %d", at),
			}
		}
	}
	return &Trim{
		File:       file,
		Position:   int64(pos),
		Bytes:      int64(len(raw) - pos),
		LastOffset: -1,
		Reason:     "incomplete entry",
	}, nil
}

// entryAt returns the length of the complete entry at the start of b, or 0.
func entryAt(b []byte) int {
	if len(b) < 10 {
		return 0
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n < 2 || n > int64(len(b)-8) {
		return 0
	}
	if crc32.Checksum(b[8:8+n], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return 0
	}
	return int(8 + n)
}

func truncate(file string, size int64) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	return f.Sync()
}

// replaceFile writes a file atomically. Users who may read its directory may read it.
func replaceFile(file string, text []byte) error {
	tmp := file + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := os.Stat(filepath.Dir(file))
	if err != nil {
		return err
	}
	if err := f.Chmod(0o600 | info.Mode().Perm()&0o444); err != nil {
		return err
	}
	if _, err := bytes.NewReader(text).WriteTo(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// syncTree makes every directory entry below the log directory durable.
func syncTree(dir string) error {
	root := filepath.Join(dir, "partitions")
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if err := durable.SyncDirectory(filepath.Join(root, e.Name())); err != nil {
			return err
		}
	}
	if err == nil {
		if err := durable.SyncDirectory(root); err != nil {
			return err
		}
	}
	return durable.SyncDirectory(dir)
}
