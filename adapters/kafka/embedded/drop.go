package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"quartermaster/adapters/durable"
)

// startFile has the first offset of a partition whose oldest segments were deleted. It is written
// before they are, so that a missing segment is damage unless it is before that offset.
const startFile = "start"

// readStart returns the first offset of the partition in dir.
func readStart(dir string) (int64, error) {
	file := filepath.Join(dir, startFile)
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read partition: %w", err)
	}
	digits := strings.TrimSuffix(string(text), "\n")
	start, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || start < 1 || strconv.FormatInt(start, 10) != digits {
		return 0, &DamageError{File: file, Reason: "it has no offset"}
	}
	return start, nil
}

// judgeDeleteRecords prepares a partition for the deletion of its oldest segments. It replaces the
// offset of the request, up to which the broker deletes, by the beginning of a segment. An answer
// then has that offset. The versions that are admitted have no tagged fields.
func (g *guard) judgeDeleteRecords(body []byte) error {
	g.dropping.Lock()
	defer g.dropping.Unlock()
	w := walker{b: body}
	type place struct {
		tp     topicPartition
		offset []byte
	}
	var places []place
	for topics := w.int32(); topics > 0 && !w.bad; topics-- {
		topic := string(w.take(int(w.int16())))
		for n := w.int32(); n > 0 && !w.bad; n-- {
			places = append(places, place{topicPartition{topic, w.int32()}, w.take(8)})
		}
	}
	w.int32() // timeout
	if w.bad || len(w.b) > 0 {
		return errors.New("request DeleteRecords is malformed")
	}
	for _, p := range places {
		offset := int64(binary.BigEndian.Uint64(p.offset))
		if offset < 0 {
			return errors.New("request DeleteRecords names no offset, but the end of the log, which is never deleted")
		}
		start, err := g.disk.drop(p.tp, offset)
		if err != nil {
			return fmt.Errorf("delete records of %s/%d: %w", p.tp.topic, p.tp.number, err)
		}
		if start >= 0 {
			binary.BigEndian.PutUint64(p.offset, uint64(start))
		}
	}
	return nil
}

// drop makes the beginning of a segment the first offset of a partition, durably: the last that is at
// most offset. It never goes back, and leaves the last two segments, because the broker takes the next
// offset from the last one, which may have no complete batch yet. It returns the first offset, or -1 if
// there is no such partition.
func (d *disk) drop(tp topicPartition, offset int64) (int64, error) {
	dir := filepath.Join(d.path, "partitions", partitionDirName(tp.topic, int(tp.number)))
	start, to, err := droppable(dir, offset)
	if err != nil {
		return 0, err
	}
	if to == start {
		return start, nil
	}
	if err := replaceFile(filepath.Join(dir, startFile), []byte(strconv.FormatInt(to, 10)+"\n")); err != nil {
		return 0, err
	}
	return to, durable.SyncDirectory(dir)
}

// droppable returns the first offset of the partition in dir, -1 if there is none, and the one that
// drop would leave.
func droppable(dir string, offset int64) (start, to int64, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return -1, -1, nil
	}
	if err != nil {
		return 0, 0, err
	}
	if start, err = readStart(dir); err != nil {
		return 0, 0, err
	}
	bases := segmentBases(entries)
	to = start
	for _, base := range bases[:max(0, len(bases)-1)] {
		if base <= offset {
			to = max(to, base)
		}
	}
	return start, to, nil
}

// Droppable returns the first offset that a partition would have after its records before an offset
// are deleted: the log deletes whole files, and keeps the last two. dir is the data directory.
func Droppable(dir, topic string, partition int, offset int64) (int64, error) {
	path := filepath.Join(dir, logDir, "partitions", partitionDirName(topic, partition))
	_, to, err := droppable(path, offset)
	if err != nil {
		return 0, fmt.Errorf("look for files of %s/%d to delete: %w", topic, partition, err)
	}
	return max(to, 0), nil
}

// segmentBases returns the first offsets in the names of segments, ascending.
func segmentBases(entries []os.DirEntry) (bases []int64) {
	for _, e := range entries {
		if number, ok := strings.CutSuffix(e.Name(), ".dat"); ok {
			if base, err := strconv.ParseInt(number, 10, 64); err == nil {
				bases = append(bases, base)
			}
		}
	}
	slices.Sort(bases)
	return bases
}
