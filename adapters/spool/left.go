package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxSource bounds the length of a source's name in a segment's header.
const maxSource = 1 << 10

// Left returns the undelivered bytes of segments in the spool of a directory, by the source that
// wrote them. It takes no lock and may be called while the spool is open elsewhere. Concurrent
// changes may be counted or not.
func Left(dir string) (bytes map[string]int64, err error) {
	bytes = map[string]int64{}
	folders, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		at, err := readPosition(filepath.Join(dir, folder.Name(), stateName))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not a queue
		}
		if err != nil {
			return nil, fmt.Errorf("read spool: %w", err)
		}
		files, err := os.ReadDir(filepath.Join(dir, folder.Name()))
		if err != nil {
			return nil, fmt.Errorf("read spool: %w", err)
		}
		for _, f := range files {
			hex, ok := strings.CutSuffix(f.Name(), segmentSuffix)
			n, err := strconv.ParseUint(hex, 16, 64)
			if !ok || err != nil {
				continue
			}
			source, size, err := headOf(filepath.Join(dir, folder.Name(), f.Name()), n)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // delivered meanwhile
				return nil, fmt.Errorf("read spool: %w", err)
			}
			if size > 0 && at.before(position{segment: n, offset: size}) {
				from := int64(0)
				if at.segment == n {
					from = at.offset
				}
				bytes[source] += size - from
			}
		}
	}
	return bytes, nil
}

// readPosition reads the delivery position from a state file.
func readPosition(path string) (position, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return position{}, err
	}
	var st state
	for slot := range slices.Chunk(b[:min(len(b), 2*slotBytes)], slotBytes) {
		var s state
		if s.decode(slot) && (!st.found || s.counter > st.counter) {
			st = s
		}
	}
	return st.at, nil
}

// headOf reads the source of a segment ("" if it is damaged) and the segment's size. The size is 0
// if it contains no frames, so that nothing waits for delivery.
func headOf(path string, number uint64) (source string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	b, err := io.ReadAll(io.LimitReader(f, frameRest+maxSource))
	if err != nil {
		return "", 0, err
	}
	e, head, ok := parseFrame(b, headerMarker, number, 0)
	source, _ = origin(e.Data)
	if ok && info.Size() == head {
		return source, 0, nil
	}
	return source, info.Size(), nil
}
