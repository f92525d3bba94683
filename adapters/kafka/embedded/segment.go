package embedded

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	// batchHeader is the size of a v2 record batch before its records:
	// base offset 8, length 4, leader epoch 4, magic 1, CRC 4, attributes 2,
	// last offset delta 4, timestamps 16, producer 14, record count 4.
	// Source: Kafka protocol guide, "Record Batch".
	batchHeader = 61
	// The CRC covers everything from the attributes on.
	crcStart = 21

	indexEntry = 15
)

// segment is one .dat file. check sets the fields after base.
type segment struct {
	file string
	base int64

	size    int64
	good    int64 // bytes before the first fault, or size
	next    int64 // offset after the last good record
	batches int64
	fault   string // empty if the whole file is good
	marks   []mark
}

// mark is the offset and the position of a batch in a segment.
type mark struct {
	offset, at int64
	latest     int64 // the latest time from here to the next mark, in milliseconds
}

// markEvery is the minimum distance between two marks in bytes. A search reads at most that and one
// batch.
const markEvery = 64 << 10

func (s *segment) index() string { return strings.TrimSuffix(s.file, ".dat") + ".idx" }

// header has the fields of a batch header that are needed here.
type header struct {
	length  int64 // of the whole batch in bytes
	records int64
	crc     uint32
	latest  int64 // the latest time of its records, in milliseconds
}

// readHeader checks the fields of a batch header. The argument room is the number of bytes left in
// the file. The CRC does not cover the leader epoch, which is always 0 in this log.
func readHeader(h []byte, offset, room int64) (header, string) {
	base := int64(binary.BigEndian.Uint64(h))
	length := int64(int32(binary.BigEndian.Uint32(h[8:])))
	delta := int64(int32(binary.BigEndian.Uint32(h[23:])))
	records := int64(int32(binary.BigEndian.Uint32(h[57:])))
	switch {
	case base != offset:
		return header{}, fmt.Sprintf("a batch gives its offset as %d, %d is next", base, offset)
	case length < batchHeader-12:
		return header{}, fmt.Sprintf("a batch gives its length as %d", length)
	case length+12 > room:
		return header{}, fmt.Sprintf("a batch of %d bytes, the file has %d left", length+12, room)
	case binary.BigEndian.Uint32(h[12:]) != 0:
		return header{}, "a batch gives a leader epoch other than 0"
	case h[16] != 2:
		return header{}, fmt.Sprintf("a batch gives its format as %d", h[16])
	case records < 1 || delta != records-1:
		return header{}, fmt.Sprintf("a batch gives %d records and last offset +%d", records, delta)
	}
	return header{length + 12, records, binary.BigEndian.Uint32(h[17:]), int64(binary.BigEndian.Uint64(h[35:]))}, ""
}

// check checks the whole file, with a bounded buffer.
func (s *segment) check(ctx context.Context) error {
	f, err := os.Open(s.file)
	if err != nil {
		return fmt.Errorf("read segment: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read segment: %w", err)
	}
	s.size, s.next = info.Size(), s.base // ignore anything appended from now on
	r := bufio.NewReaderSize(f, 256<<10)
	for s.good < s.size {
		if err := ctx.Err(); err != nil {
			return err
		}
		room := s.size - s.good
		if room < batchHeader {
			s.fault = fmt.Sprintf("a batch header of %d bytes, %d are complete", room, batchHeader)
			return nil
		}
		h, err := r.Peek(batchHeader)
		if err != nil {
			return fmt.Errorf("read segment %s at byte %d: %w", s.file, s.good, err)
		}
		b, fault := readHeader(h, s.next, room)
		if fault != "" {
			s.fault = fault
			return nil
		}
		_, _ = r.Discard(crcStart) // peeked above, so it is there
		var crc uint32
		for left := b.length - crcStart; left > 0; {
			chunk, err := r.Peek(int(min(left, int64(max(r.Buffered(), 1)))))
			if err != nil {
				return fmt.Errorf("read segment %s at byte %d: %w", s.file, s.good, err)
			}
			crc = crc32.Update(crc, castagnoli, chunk)
			_, _ = r.Discard(len(chunk)) // peeked above
			left -= int64(len(chunk))
		}
		if crc != b.crc {
			s.fault = fmt.Sprintf("a batch has CRC-32C %08x and says %08x", crc, b.crc)
			return nil
		}
		if n := len(s.marks); n == 0 || s.good-s.marks[n-1].at >= markEvery {
			s.marks = append(s.marks, mark{s.next, s.good, b.latest})
		} else {
			s.marks[n-1].latest = max(s.marks[n-1].latest, b.latest)
		}
		s.good += b.length
		s.next += b.records
		s.batches++
	}
	return nil
}

// validAfterFault returns the position of a complete batch after the fault, or -1. Batches are
// synced one by one, so a crash leaves at most one incomplete batch, at the very end. A complete
// batch after a fault therefore proves damage.
func (s *segment) validAfterFault() (int64, error) {
	f, err := os.Open(s.file)
	if err != nil {
		return 0, fmt.Errorf("read segment: %w", err)
	}
	defer f.Close()
	tail := make([]byte, s.size-s.good)
	if _, err := f.ReadAt(tail, s.good); err != nil {
		return 0, fmt.Errorf("read segment %s at byte %d: %w", s.file, s.good, err)
	}
	for at := 1; at+batchHeader <= len(tail); at++ {
		h := tail[at:]
		if h[16] != 2 {
			continue
		}
		offset := int64(binary.BigEndian.Uint64(h))
		if offset < s.next || offset-s.next > 1<<31 {
			continue
		}
		b, fault := readHeader(h[:batchHeader], offset, int64(len(h)))
		if fault == "" && crc32.Checksum(h[crcStart:b.length], castagnoli) == b.crc {
			return s.good + int64(at), nil
		}
	}
	return -1, nil
}

// settleIndex rebuilds the .idx file if it does not agree with the segment, and reports whether it
// did. An entry has a version, a checksum of the rest, an epoch, an earlier timestamp (not read) and
// flags; the last three are all 0 in this log.
func (s *segment) settleIndex() (bool, error) {
	have, err := os.ReadFile(s.index())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	ok := int64(len(have)) == s.batches*indexEntry
	for e := have; ok && len(e) > 0; e = e[indexEntry:] {
		ok = e[0] == 1 && e[1] == byte(crc32.Checksum(e[2:indexEntry], castagnoli)) &&
			binary.LittleEndian.Uint32(e[2:]) == 0 && e[14] == 0
	}
	if ok {
		return false, nil
	}
	e := make([]byte, indexEntry)
	e[0] = 1
	e[1] = byte(crc32.Checksum(e[2:], castagnoli))
	return true, replaceFile(s.index(), bytes.Repeat(e, int(s.batches)))
}
