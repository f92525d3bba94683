package costs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// The index of a canonical form says where each line is, so that an allocation is found without reading those before it.
// It is a number of blocks, and of each block the bytes, the records and the lines before the next one, as varints; then
// four bytes for each line, most significant first: the CRC-32 (IEEE) of issuer, account and id, with a byte 0 between.
// Records of one line are in one block. It follows from the records, as the sums do.

// blockRecords is how many records a block has before the next line begins another. Tests change it.
var blockRecords int64 = 1 << 16

// lineMark is what the index has of a line.
func lineMark(issuer, account, id string) uint32 {
	sum := crc32.ChecksumIEEE([]byte(issuer))
	for _, s := range [...]string{account, id} {
		sum = crc32.Update(crc32.Update(sum, crc32.IEEETable, []byte{0}), crc32.IEEETable, []byte(s))
	}
	return sum
}

// block is a part of the records of a form.
type block struct {
	bytes, records int64
	marks          []uint32 // of its lines
}

// blocks are those of a form that is written. Nil: it has none.
type blocks struct{ all []block }

// full reports whether the next line begins a block that is not the first.
func (b *blocks) full() bool { return len(b.all) > 0 && b.all[len(b.all)-1].records >= blockRecords }

// line notes a line, and the block that begins with it.
func (b *blocks) line(l *attribution.Line, first bool) {
	if first {
		b.all = append(b.all, block{})
	}
	of := &b.all[len(b.all)-1]
	of.marks = append(of.marks, lineMark(l.Issuer, l.Account, l.ID))
}

func (b *blocks) record() {
	if b != nil {
		b.all[len(b.all)-1].records++
	}
}

// wrote notes bytes of the last block.
func (b *blocks) wrote(n int) {
	if b != nil && len(b.all) > 0 {
		b.all[len(b.all)-1].bytes += int64(n)
	}
}

func (b *blocks) section() []byte {
	text := binary.AppendUvarint(nil, uint64(len(b.all)))
	for i := range b.all {
		of := &b.all[i]
		for _, n := range [...]int64{of.bytes, of.records, int64(len(of.marks))} {
			text = binary.AppendUvarint(text, uint64(n))
		}
		for _, m := range of.marks {
			text = binary.BigEndian.AppendUint32(text, m)
		}
	}
	return text
}

var errBlocks = errors.New("its index is not that of its lines")

// eachBlock calls yield with the blocks of a form, in their order, with the place of each in the form and the number of
// lines before it. The marks are its lines', four bytes each.
func eachBlock(f io.ReadSeeker, yield func(of *block, at int64, lines uint64, marks []byte) error) error {
	ends, err := endsOf(f)
	if err != nil {
		return err
	}
	if _, err := f.Seek(ends.index, io.SeekStart); err != nil {
		return err
	}
	text := make([]byte, ends.sums-ends.index)
	if _, err := io.ReadFull(f, text); err != nil {
		return err
	}
	bad := fmt.Errorf("%w: %w", ErrCanonical, errBlocks)
	number := func() int64 {
		n, size := binary.Uvarint(text)
		if size <= 0 || n > uint64(ends.sizes) {
			text = nil
			return -1
		}
		text = text[size:]
		return int64(n)
	}
	at, lines, records := int64(len(CanonicalFormat)+1), uint64(0), int64(0)
	for count := number(); count > 0; count-- {
		of := block{bytes: number(), records: number()}
		n := number()
		if of.bytes < 1 || of.records < 1 || n < 1 || n > int64(len(text)/4) || of.bytes > ends.index-at {
			return bad
		}
		if err := yield(&of, at, lines, text[:4*n]); err != nil {
			return err
		}
		at, lines, records, text = at+of.bytes, lines+uint64(n), records+of.records, text[4*n:]
	}
	if end := len(binary.AppendUvarint([]byte{0}, uint64(records))); len(text) > 0 || at+int64(end) != ends.index {
		return bad
	}
	return nil
}

// eachNear is each for the records of the blocks that have a line with a mark.
func (o Open) eachNear(month domain.Instant, mark uint32, yield func(*part) error) (err error) {
	f, err := o()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	want := binary.BigEndian.AppendUint32(nil, mark)
	return eachBlock(f, func(of *block, at int64, lines uint64, marks []byte) error {
		for ; len(marks) > 0 && string(marks[:4]) != string(want); marks = marks[4:] {
		}
		if len(marks) == 0 {
			return nil
		}
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			return err
		}
		return (&decoder{r: f, lines: uint32(lines)}).each(month, uint64(of.records), yield)
	})
}

// checkBlocks compares the index with the lines.
func (o Open) checkBlocks(month domain.Instant) (err error) {
	f, err := o()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	bad := fmt.Errorf("%w: %w", ErrCanonical, errBlocks)
	return eachBlock(f, func(of *block, at int64, lines uint64, marks []byte) error {
		again, err := o()
		if err != nil {
			return err
		}
		defer func() { _ = again.Close() }()
		if _, err := again.Seek(at, io.SeekStart); err != nil {
			return err
		}
		var has []byte
		r := &decoder{r: io.LimitReader(again, of.bytes), lines: uint32(lines)}
		last := r.lines
		if err := r.each(month, uint64(of.records), func(p *part) error {
			if l := p.allocation.Line; r.lines != last {
				last, has = r.lines, binary.BigEndian.AppendUint32(has, lineMark(l.Issuer, l.Account, l.ID))
			}
			return nil
		}); err != nil {
			return err
		}
		if !slices.Equal(has, marks) || r.at < len(r.b) || r.ahead(1) {
			return bad
		}
		return nil
	})
}
