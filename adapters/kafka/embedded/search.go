package embedded

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"

	"github.com/segmentio/kafka-go/compress"
)

// end returns the offset after the last record.
func (p *partition) end() int64 {
	if n := len(p.segments); n > 0 {
		return p.segments[n-1].next
	}
	return 0
}

// read appends complete batches of one segment to set, from the batch with the offset on: as many as
// fit into limit bytes, and at least one. The offset must be below end.
func (p *partition) read(set []byte, offset, limit int64) ([]byte, error) {
	s := p.segments[sort.Search(len(p.segments), func(i int) bool { return p.segments[i].base > offset })-1]
	f, err := os.Open(s.file)
	if err != nil {
		return set, err
	}
	defer f.Close()
	at := s.marks[sort.Search(len(s.marks), func(i int) bool { return s.marks[i].offset > offset })-1]
	var first header
	pos, next := at.at, at.offset
	for {
		if first, err = s.headerAt(f, pos, next); err != nil {
			return set, err
		}
		if next += first.records; next > offset {
			break
		}
		pos += first.length
	}
	from := len(set)
	size := max(first.length, min(limit, s.good-pos))
	set = slices.Grow(set, int(size))[:from+int(size)]
	if _, err := f.ReadAt(set[from:], pos); err != nil {
		return set, fmt.Errorf("read segment %s at byte %d: %w", s.file, pos, err)
	}
	whole := first.length
	for size-whole >= batchHeader {
		b, fault := readHeader(set[from+int(whole):], next, s.good-pos-whole)
		if fault != "" {
			return set, s.changed(pos+whole, fault)
		}
		if whole+b.length > size {
			break
		}
		whole += b.length
		next += b.records
	}
	return set[:from+int(whole)], nil
}

// headerAt reads the header of the batch at a position.
func (s *segment) headerAt(f *os.File, at, offset int64) (header, error) {
	var h [batchHeader]byte
	if _, err := f.ReadAt(h[:], at); err != nil {
		return header{}, fmt.Errorf("read segment %s at byte %d: %w", s.file, at, err)
	}
	b, fault := readHeader(h[:], offset, s.good-at)
	if fault != "" {
		return header{}, s.changed(at, fault)
	}
	return b, nil
}

func (s *segment) changed(at int64, fault string) error {
	return fmt.Errorf("segment %s at byte %d is not what it was when the log was opened: %s", s.file, at, fault)
}

// since returns the offset and the time of the first record with a time of ms milliseconds or later,
// in the first batch that has one; -1 if there is none.
func (p *partition) since(ms int64) (offset, at int64, err error) {
	for _, s := range p.segments {
		for i, m := range s.marks {
			if m.latest < ms {
				continue
			}
			end := s.good
			if i+1 < len(s.marks) {
				end = s.marks[i+1].at
			}
			if offset, at, err = s.since(m, end, ms); err != nil || offset >= 0 {
				return offset, at, err
			}
		}
	}
	return -1, -1, nil
}

// since searches between a mark and the byte at end.
func (s *segment) since(m mark, end, ms int64) (offset, at int64, err error) {
	f, err := os.Open(s.file)
	if err != nil {
		return -1, -1, err
	}
	defer f.Close()
	for pos, next := m.at, m.offset; pos < end; {
		b, err := s.headerAt(f, pos, next)
		if err != nil {
			return -1, -1, err
		}
		if b.latest >= ms {
			batch := make([]byte, b.length)
			if _, err := f.ReadAt(batch, pos); err != nil {
				return -1, -1, fmt.Errorf("read segment %s at byte %d: %w", s.file, pos, err)
			}
			if offset, at, err = recordSince(batch, b.records, ms); err != nil {
				return -1, -1, fmt.Errorf("read segment %s, batch at byte %d: %w", s.file, pos, err)
			}
			if offset >= 0 {
				return offset, at, nil
			}
		}
		pos += b.length
		next += b.records
	}
	return -1, -1, nil
}

// recordSince searches the records of a batch. It decompresses only as much as necessary.
func recordSince(batch []byte, records, ms int64) (offset, at int64, err error) {
	var unpacked io.Reader = bytes.NewReader(batch[batchHeader:])
	if c := compress.Compression(batch[22] & 0x07); c != compress.None {
		if c > compress.Zstd {
			return -1, -1, fmt.Errorf("unknown compression %d", c)
		}
		z := c.Codec().NewReader(unpacked)
		defer z.Close()
		unpacked = z
	}
	r := &counted{Reader: bufio.NewReader(unpacked)}
	base := int64(binary.BigEndian.Uint64(batch))
	first := int64(binary.BigEndian.Uint64(batch[27:]))
	for range records {
		length, err := binary.ReadVarint(r)
		if err != nil {
			return -1, -1, fmt.Errorf("read record: %w", err)
		}
		r.n = 0
		_, noAttributes := r.ReadByte()
		after, noTime := binary.ReadVarint(r)
		delta, noOffset := binary.ReadVarint(r)
		if err := errors.Join(noAttributes, noTime, noOffset); err != nil {
			return -1, -1, fmt.Errorf("read record: %w", err)
		}
		if first+after >= ms {
			return base + delta, first + after, nil
		}
		if length < r.n {
			return -1, -1, fmt.Errorf("a record gives its length as %d", length)
		}
		if _, err := io.CopyN(io.Discard, r.Reader, length-r.n); err != nil {
			return -1, -1, fmt.Errorf("read record: %w", err)
		}
	}
	return -1, -1, nil
}

// counted counts the bytes read by ReadByte.
type counted struct {
	*bufio.Reader
	n int64
}

func (c *counted) ReadByte() (byte, error) {
	c.n++
	return c.Reader.ReadByte()
}
