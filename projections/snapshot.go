package projections

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"
	"slices"
	"sync"

	"quartermaster/domain"
)

// A snapshot is a file of rows at a position, in this order:
//
//	magic     8 bytes, "QMSNAP1\n"
//	header    length and CBOR map: method version, log, position
//	sections  for each partition in order: length and bytes, a CBOR sequence
//	          (RFC 8742) of [table, scope, id, hour, row] ordered by key
//	digest    32 bytes: the digest of the rows
//	seal      32 bytes: the SHA-256 of header and digest
//
// Lengths are 8 bytes, big-endian. The digest of a partition is the SHA-256 of
// its section; the digest of the rows is the SHA-256 of every partition's name
// and digest in order, so that equal rows have equal digests wherever they
// live.

const snapshotMagic = "QMSNAP1\n"

type snapshotHeader struct {
	Method   string `cbor:"method"`
	Log      string `cbor:"log"`
	Position string `cbor:"position"`
}

// AppendRow appends a row with its key as sections and digests have it.
func AppendRow(b []byte, k Key, row Row) ([]byte, error) {
	b = appendKey(b, k)
	switch row := row.(type) {
	case *UsageHour:
		return appendUsage(b, row), nil
	case *DemandMonth:
		return appendDemand(b, row), nil
	}
	enc, err := EncodeRow(row)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k, err)
	}
	return append(b, enc...), nil
}

// appendKey appends the head of a row's array and the four parts of its key.
func appendKey(b []byte, k Key) []byte {
	b = appendHead(b, majorArray, 5)
	b = appendText(appendText(appendText(b, k.Table.String()), k.Scope), k.ID)
	if k.Hour >= 0 {
		return appendHead(b, majorUint, uint64(k.Hour))
	}
	return appendHead(b, majorNegative, uint64(-1-k.Hour))
}

// Digest is a running digest of rows: feed it each partition's rows by key,
// partitions in order.
type Digest struct {
	total hash.Hash
}

// NewDigest returns an empty digest.
func NewDigest() *Digest { return &Digest{total: sha256.New()} }

// Add enters a partition with the SHA-256 of its section.
func (d *Digest) Add(tp domain.TopicPartition, section [32]byte) {
	fmt.Fprintf(d.total, "%s %x\n", tp, section)
}

// Sum returns the digest of everything added.
func (d *Digest) Sum() [32]byte { return [32]byte(d.total.Sum(nil)) }

// section encodes the rows of a partition in order.
func (p *memoryPartition) section() ([]byte, error) {
	entries := make([]*entry, 0, p.rows.Len())
	for _, t := range Tables() {
		p.rows.each(Query{Table: t}, func(e *entry) { entries = append(entries, e) })
	}
	slices.SortFunc(entries, func(a, b *entry) int { return a.key.Compare(b.key) })
	size := 0
	for _, e := range entries {
		size += len(e.raw) + len(e.key.Scope) + len(e.key.ID) + 32
	}
	b := make([]byte, 0, size)
	for _, e := range entries {
		if e.row == nil {
			b = append(appendKey(b, e.key), e.raw...)
			continue
		}
		var err error
		if b, err = AppendRow(b, e.key, e.row); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// wellFormed takes any CBOR and keeps nothing of it.
type wellFormed struct{}

func (*wellFormed) UnmarshalCBOR([]byte) error { return nil }

type section struct {
	tp   domain.TopicPartition
	data []byte
	sum  [32]byte
}

// sections encodes every partition and hands each out in order, encoding a few
// ahead so that two cores are busy and memory stays bounded.
func (m *Memory) sections(yield func(section) error) error {
	tps := m.partitions()
	type result struct {
		section
		err error
	}
	out := make([]chan result, len(tps))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	stop := make(chan struct{})
	// Whoever called holds the rows still, and lets go when this returns: no
	// encoder may be at work then.
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	for i := range out {
		out[i] = make(chan result, 1)
	}
	wg.Go(func() {
		for i, tp := range tps {
			select {
			case slots <- struct{}{}:
			case <-stop:
				return
			}
			wg.Go(func() {
				data, err := m.parts[tp].section()
				out[i] <- result{section{tp, data, sha256.Sum256(data)}, err}
			})
		}
	})
	for i := range out {
		r := <-out[i]
		if r.err == nil {
			r.err = yield(r.section)
		}
		if r.err != nil {
			return r.err
		}
		<-slots
	}
	return nil
}

// Digest returns the digest of the rows and the position that they stand for.
func (m *Memory) Digest() (sum [32]byte, at domain.Position, err error) {
	err = m.View(context.Background(), func(v View) error {
		d := NewDigest()
		at = v.Position()
		err := m.sections(func(s section) error {
			d.Add(s.tp, s.sum)
			return nil
		})
		sum = d.Sum()
		return err
	})
	return sum, at, err
}

// WriteSnapshot writes the rows and their position. log names the log that they
// were folded from; a snapshot is of no use to another.
func (m *Memory) WriteSnapshot(w io.Writer, log string) (sum [32]byte, at domain.Position, err error) {
	err = m.View(context.Background(), func(v View) error {
		at = v.Position()
		bw := bufio.NewWriterSize(w, 1<<20)
		head, err := canonical.Marshal(snapshotHeader{Method, log, at.String()})
		if err != nil {
			return fmt.Errorf("encode snapshot header: %w", err)
		}
		bw.WriteString(snapshotMagic)
		bw.Write(binary.BigEndian.AppendUint64(nil, uint64(len(head))))
		bw.Write(head)
		d := NewDigest()
		if err := m.sections(func(s section) error {
			d.Add(s.tp, s.sum)
			bw.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s.data))))
			_, err := bw.Write(s.data)
			return err
		}); err != nil {
			return err
		}
		sum = d.Sum()
		bw.Write(sum[:])
		seal := sha256.Sum256(append(head, sum[:]...))
		bw.Write(seal[:])
		return bw.Flush()
	})
	if err != nil {
		return sum, at, fmt.Errorf("write snapshot: %w", err)
	}
	return sum, at, nil
}

// ErrSnapshotMethod means that a snapshot was made by another version of the
// folds: it is sound, but its rows cannot be folded on. The log can be
// replayed instead.
var ErrSnapshotMethod = errors.New("snapshot was made by another version of the folds")

// ErrSnapshotLog means that a snapshot is of another log. The log at hand can be
// replayed instead.
var ErrSnapshotLog = errors.New("snapshot is of another log")

// ErrSnapshotDamaged means that a snapshot is not what was written. The log can
// be replayed instead.
var ErrSnapshotDamaged = errors.New("snapshot is damaged")

// ReadSnapshot fills an empty store from a snapshot of size bytes, and checks
// every byte of it against its digest, and that it is of the log named. The
// store is unusable after an error.
func (m *Memory) ReadSnapshot(r io.Reader, size int64, log string) (domain.Position, error) {
	br := bufio.NewReaderSize(r, 1<<20)
	left := size
	read := func(n uint64, what string) ([]byte, error) {
		if int64(n) < 0 || int64(n) > left {
			return nil, fmt.Errorf("%w: %s of %d bytes, %d are left", ErrSnapshotDamaged, what, n, left)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(br, b); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrSnapshotDamaged, what, err)
		}
		left -= int64(n)
		return b, nil
	}
	block := func(what string) ([]byte, error) {
		b, err := read(8, what)
		if err != nil {
			return nil, err
		}
		return read(binary.BigEndian.Uint64(b), what)
	}
	magic, err := read(uint64(len(snapshotMagic)), "magic")
	if err != nil {
		return nil, err
	}
	if string(magic) != snapshotMagic {
		return nil, fmt.Errorf("%w: it does not start with %q", ErrSnapshotDamaged, snapshotMagic)
	}
	head, err := block("header")
	if err != nil {
		return nil, err
	}
	var h snapshotHeader
	if err := lenient.Unmarshal(head, &h); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrSnapshotDamaged, err)
	}
	if h.Method != Method {
		return nil, fmt.Errorf("%w: %q, these are %q", ErrSnapshotMethod, h.Method, Method)
	}
	if h.Log != log {
		return nil, fmt.Errorf("%w: %q, this is %q", ErrSnapshotLog, h.Log, log)
	}
	at, err := domain.ParsePosition(h.Position)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshotDamaged, err)
	}
	tps := m.partitions()
	sums := make([][32]byte, len(tps))
	errs := make([]error, len(tps))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, tp := range tps {
		data, err := block("section " + tp.String())
		if err != nil {
			wg.Wait()
			return nil, err
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			sums[i] = sha256.Sum256(data)
			errs[i] = m.parts[tp].fill(data)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshotDamaged, err)
	}
	d := NewDigest()
	for i, tp := range tps {
		d.Add(tp, sums[i])
		m.parts[tp].next = at[tp]
	}
	want, err := read(32, "digest")
	if err != nil {
		return nil, err
	}
	if sum := d.Sum(); !bytes.Equal(sum[:], want) {
		return nil, fmt.Errorf("%w: digest is %x, want %x", ErrSnapshotDamaged, sum, want)
	}
	// The digest is of the rows alone; the position is part of the seal.
	seal, err := read(sha256.Size, "seal")
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(append(head, want...)); !bytes.Equal(sum[:], seal) || left != 0 {
		return nil, fmt.Errorf("%w: the header is not what was written, or %d bytes follow", ErrSnapshotDamaged, left)
	}
	return at, nil
}

// fill reads the rows of a section.
func (p *memoryPartition) fill(data []byte) error {
	r := cborReader{b: data, names: make(map[string]string)}
	for len(r.b) > 0 {
		var k Key
		r.tuple(5)
		name := r.text()
		k.Scope, k.ID, k.Hour = r.text(), r.text(), r.integer()
		if r.err != nil {
			return r.err
		}
		var ok bool
		if k.Table, ok = tableNamed(name); !ok {
			return fmt.Errorf("table %q is not known", name)
		}
		if k.Table == TableUsage {
			from := r.b
			if r.skip(maxDepth); r.err != nil {
				return fmt.Errorf("%s: %w", k, r.err)
			}
			raw := from[:len(from)-len(r.b)]
			p.rows.addSealed(k, raw[:len(raw):len(raw)])
			continue
		}
		if sealsAtOnce(k.Table) {
			rest, err := lenient.UnmarshalFirst(r.b, new(wellFormed))
			if err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
			raw := r.b[:len(r.b)-len(rest)]
			r.b = rest
			p.rows.addSealed(k, raw[:len(raw):len(raw)])
			continue
		}
		row := newRow(k.Table)
		if m, ok := row.(*DemandMonth); ok {
			if r.demand(m); r.err != nil {
				return fmt.Errorf("%s: %w", k, r.err)
			}
			p.rows.Add(k, row)
			continue
		}
		rest, err := lenient.UnmarshalFirst(r.b, row)
		if err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		r.b = rest
		p.rows.Add(k, row)
	}
	return nil
}
