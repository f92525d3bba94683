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

// maxSource bounds the source's name that a segment is read for.
const maxSource = 1 << 10

// Left returns how many bytes of segments wait to be delivered in the spool of a directory,
// by the source that wrote them. It locks nothing and may be called while the spool is open
// elsewhere; what changes meanwhile may be counted or not.
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
		at, err := placeIn(filepath.Join(dir, folder.Name(), stateName))
		if errors.Is(err, fs.ErrNotExist) {
			continue // no queue
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
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // it was delivered meanwhile
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

// placeIn reads where delivery stands, from a file of state.
func placeIn(path string) (position, error) {
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

// headOf reads the source of a segment, "" where it is damaged, and how far its frames
// reach behind the header: a segment with none has nothing that waits.
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
	if ok && info.Size() == head {
		return string(e.Data), 0, nil
	}
	return string(e.Data), info.Size(), nil
}
