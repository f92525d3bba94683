package projections

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"quartermaster/domain"
)

// ErrSnapshotMethod means that a snapshot was made by another version of the folds. It is intact,
// but folding cannot continue from its rows. Replay the log instead. One of an earlier form is not
// read, so whether it is intact is not known.
var ErrSnapshotMethod = errors.New("snapshot was made by another version of the folds")

// ErrSnapshotLog means that a snapshot is of another log. Replay this log instead.
var ErrSnapshotLog = errors.New("snapshot is of another log")

// ErrSnapshotDamaged means that a snapshot is corrupt. Replay the log instead.
var ErrSnapshotDamaged = errors.New("snapshot is damaged")

// SnapshotInfo describes a snapshot.
type SnapshotInfo struct {
	Method   string          // of the folds that made its rows
	Log      string          // that they were folded from
	Position domain.Position // in that log
	Anchors  map[domain.TopicPartition]domain.Anchor
	Parts    []PartDigest // below its rows; it is of no use without them
	Digest   [32]byte     // of the rows

	changed []bool // whether rows of the month of each part were changed
	last    bool   // the sections have the last row of each node
	tallies map[domain.TopicPartition]*tallies
}

// endSize is the size of content, digest and seal.
const endSize = 3 * sha256.Size

// ReadSnapshotInfo reads the description of a snapshot of size bytes, and checks it against its
// seal. It reads a few hundred bytes. Use [CheckSnapshot] to verify the rows.
func ReadSnapshotInfo(r io.ReaderAt, size int64) (SnapshotInfo, error) {
	s := newSnapshotReader(io.NewSectionReader(r, 0, size), size)
	info, err := s.info()
	if err != nil {
		return info, err
	}
	if s.left < endSize {
		return info, fmt.Errorf("%w: it ends after its header", ErrSnapshotDamaged)
	}
	s.Reader, s.left = bufio.NewReader(io.NewSectionReader(r, size-endSize, endSize)), endSize
	_, err = s.end(&info)
	return info, err
}

// CheckSnapshot reads a whole snapshot of size bytes, and fails with [ErrSnapshotDamaged] if any
// byte differs from what was written. It keeps no rows, does not read the parts below them, and
// also accepts snapshots of other logs and methods.
func CheckSnapshot(r io.Reader, size int64) (SnapshotInfo, error) {
	s := newSnapshotReader(r, size)
	info, err := s.info()
	if err != nil {
		return info, err
	}
	d := newDigest()
	for _, tp := range domain.AllPartitions() {
		h := sha256.New()
		for {
			n, err := s.length("section " + tp.String())
			if err != nil {
				return info, err
			}
			if n == 0 {
				break
			}
			if _, err := io.CopyN(h, s.Reader, n); err != nil {
				return info, fmt.Errorf("%w: section %s: %w", ErrSnapshotDamaged, tp, err)
			}
			s.left -= n
		}
		d.add(tp, [32]byte(h.Sum(nil)))
	}
	return info, s.matches(&info, d)
}

// ReadSnapshot fills an empty store from a snapshot of size bytes. It verifies that every byte is
// what was written, that the snapshot is of the given log, and that [Memory.Source] has the parts
// below its rows. The store is unusable after an error.
func (m *Memory) ReadSnapshot(r io.Reader, size int64, log string) (domain.Position, error) {
	s := newSnapshotReader(r, size)
	info, err := s.info()
	if err != nil {
		return nil, err
	}
	if info.Method != Method {
		return nil, fmt.Errorf("%w: %q, these are %q", ErrSnapshotMethod, info.Method, Method)
	}
	if info.Log != log {
		return nil, fmt.Errorf("%w: %q, this is %q", ErrSnapshotLog, info.Log, log)
	}
	tps := m.partitions()
	sums := make([][32]byte, len(tps))
	errs := make([]error, len(tps))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, tp := range tps {
		chunks, err := s.section(tp)
		if err != nil {
			wg.Wait()
			return nil, err
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			h := sha256.New()
			for _, chunk := range chunks {
				h.Write(chunk)
			}
			sums[i] = [32]byte(h.Sum(nil))
			errs[i] = m.parts[tp].fill(chunks, info.tallies[tp], info.monthsInParts(tp))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshotDamaged, err)
	}
	d := newDigest()
	for i, tp := range tps {
		d.add(tp, sums[i])
		m.parts[tp].next, m.parts[tp].last = info.Position[tp], info.Anchors[tp]
		m.parts[tp].days = usageDays{floor: info.Position[tp] - 1}
	}
	if err := s.matches(&info, d); err != nil {
		return nil, err
	}
	for i, p := range info.Parts {
		if m.Source == nil {
			return nil, fmt.Errorf("rows of the snapshot are in part %s, and this store has no parts", p.PartKey)
		}
		if err := m.Source.Has(p); err != nil {
			return nil, fmt.Errorf("rows of the snapshot are in part %s: %w", p.PartKey, err)
		}
		m.parts[p.Partition].attach(basePart{p, info.changed[i]})
		m.parts[p.Partition].lacksLast = !info.last
	}
	return info.Position, nil
}

// snapshotReader reads a snapshot from its start.
type snapshotReader struct {
	*bufio.Reader
	left int64
	head []byte // the header
}

func newSnapshotReader(r io.Reader, size int64) *snapshotReader {
	return &snapshotReader{Reader: bufio.NewReaderSize(r, 1<<16), left: size}
}

func (s *snapshotReader) take(n int64, what string) ([]byte, error) {
	if n < 0 || n > s.left {
		return nil, fmt.Errorf("%w: %s of %d bytes, %d are left", ErrSnapshotDamaged, what, n, s.left)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(s, b); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSnapshotDamaged, what, err)
	}
	s.left -= n
	return b, nil
}

// length reads the length of the next part, and checks that the part fits in the file.
func (s *snapshotReader) length(what string) (int64, error) {
	b, err := s.take(8, what)
	if err != nil {
		return 0, err
	}
	n := int64(binary.BigEndian.Uint64(b))
	if n < 0 || n > s.left {
		return 0, fmt.Errorf("%w: %s of %d bytes, %d are left", ErrSnapshotDamaged, what, uint64(n), s.left)
	}
	return n, nil
}

// info reads magic and header. The digest is not known yet.
func (s *snapshotReader) info() (info SnapshotInfo, err error) {
	magic, err := s.take(int64(len(snapshotMagic)), "magic")
	if err != nil {
		return info, err
	}
	if slices.Contains(olderMagics, string(magic)) {
		return info, fmt.Errorf("%w: it begins with %q, these write %q", ErrSnapshotMethod, magic, snapshotMagic)
	}
	if string(magic) != snapshotMagic {
		return info, fmt.Errorf("%w: it does not start with %q", ErrSnapshotDamaged, snapshotMagic)
	}
	n, err := s.length("header")
	if err != nil {
		return info, err
	}
	if s.head, err = s.take(n, "header"); err != nil {
		return info, err
	}
	var h snapshotHeader
	if err := lenient.Unmarshal(s.head, &h); err != nil {
		return info, fmt.Errorf("%w: header: %w", ErrSnapshotDamaged, err)
	}
	info.Method, info.Log, info.last = h.Method, h.Log, h.Last
	if info.Position, err = domain.ParsePosition(h.Position); err != nil {
		return info, fmt.Errorf("%w: %w", ErrSnapshotDamaged, err)
	}
	info.Anchors = map[domain.TopicPartition]domain.Anchor{}
	for _, a := range h.Anchors {
		tp := domain.TopicPartition{Topic: a.Topic, Partition: a.Partition}
		if len(a.Hash) != sha256.Size || a.Offset < 0 || a.Offset >= info.Position[tp] {
			return info, fmt.Errorf("%w: header: the last record of %s is at offset %d and has a hash of %d bytes",
				ErrSnapshotDamaged, tp, a.Offset, len(a.Hash))
		}
		info.Anchors[tp] = domain.Anchor{Offset: a.Offset, Epoch: a.Epoch, Hash: [32]byte(a.Hash)}
	}
	info.tallies = map[domain.TopicPartition]*tallies{}
	for _, t := range h.Tallies {
		tp := domain.TopicPartition{Topic: t.Topic, Partition: t.Partition}
		table, _ := TableNamed(t.Table) // of another method it may not be known
		if t.Changed < 0 || t.Changed >= info.Position[tp] {
			return info, fmt.Errorf("%w: header: %s of %s changed at offset %d", ErrSnapshotDamaged, t.Table, tp, t.Changed)
		}
		of := info.tallies[tp]
		if of == nil {
			of = &tallies{of: map[tableMonth]*rowsChanged{}}
			info.tallies[tp] = of
		}
		of.of[tableMonth{table, t.Month}] = &rowsChanged{t.Rows, t.Changed}
	}
	for _, p := range h.Parts {
		k := PartKey{domain.TopicPartition{Topic: p.Topic, Partition: p.Partition}, p.Month}
		if len(p.Digest) != sha256.Size || p.Rows < 0 || monthOfHour(p.Month) != p.Month ||
			!slices.Contains(domain.AllPartitions(), k.Partition) {
			return info, fmt.Errorf("%w: header: part %s has %d rows and a digest of %d bytes",
				ErrSnapshotDamaged, k, p.Rows, len(p.Digest))
		}
		info.Parts = append(info.Parts, PartDigest{k, p.Rows, [32]byte(p.Digest)})
		info.changed = append(info.changed, p.Changed)
	}
	return info, nil
}

// section reads the chunks of a partition.
func (s *snapshotReader) section(tp domain.TopicPartition) (chunks [][]byte, err error) {
	what := "section " + tp.String()
	for {
		n, err := s.length(what)
		if n == 0 || err != nil {
			return chunks, err
		}
		b, err := s.take(n, what)
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, b)
	}
}

// matches reads the end, and checks that the content there is that of the sections.
func (s *snapshotReader) matches(info *SnapshotInfo, d digest) error {
	content, err := s.end(info)
	if err != nil {
		return err
	}
	if sum := d.sum(); sum != content {
		return fmt.Errorf("%w: the digest of its sections is %x, want %x", ErrSnapshotDamaged, sum, content)
	}
	return nil
}

// end reads content, digest and seal. The seal covers both and the header.
func (s *snapshotReader) end(info *SnapshotInfo) (content [32]byte, err error) {
	sums, err := s.take(2*sha256.Size, "digests")
	if err != nil {
		return content, err
	}
	content, info.Digest = [32]byte(sums[:sha256.Size]), [32]byte(sums[sha256.Size:])
	seal, err := s.take(sha256.Size, "seal")
	if err != nil {
		return content, err
	}
	if want := sha256.Sum256(append(s.head, sums...)); !bytes.Equal(seal, want[:]) || s.left != 0 {
		return content, fmt.Errorf("%w: header or digest is not what was written, or %d bytes follow", ErrSnapshotDamaged, s.left)
	}
	return content, nil
}

// wellFormed accepts any CBOR and discards it.
type wellFormed struct{}

func (*wellFormed) UnmarshalCBOR([]byte) error { return nil }

// monthsInParts returns the months of a partition whose rows may be in parts.
func (s *SnapshotInfo) monthsInParts(tp domain.TopicPartition) map[int64]bool {
	months := map[int64]bool{}
	for _, p := range s.Parts {
		if p.Partition == tp {
			months[p.Month] = true
		}
	}
	return months
}

// fill reads the rows of a section, and checks that the header counts them right. Of months with parts
// the section has some rows alone.
func (p *memoryPartition) fill(chunks [][]byte, want *tallies, parts map[int64]bool) error {
	r := cborReader{names: make(map[string]string)}
	counted := &tallies{}
	for _, r.b = range chunks {
		for len(r.b) > 0 {
			if err := p.fillRow(&r, counted); err != nil {
				return err
			}
		}
	}
	if want == nil {
		want = &tallies{}
	}
	if !counted.sameRows(want, parts) {
		return errors.New("the header counts other rows")
	}
	p.tallies = *want
	return nil
}

func (p *memoryPartition) fillRow(r *cborReader, counted *tallies) error {
	var k Key
	r.tuple(5)
	name := r.text()
	k.Scope, k.ID, k.Hour = r.text(), r.text(), r.integer()
	if r.err != nil {
		return r.err
	}
	var ok bool
	if k.Table, ok = TableNamed(name); !ok {
		return fmt.Errorf("table %q is not known", name)
	}
	counted.at(k).rows++
	if k.Table == TableUsage {
		from := r.b
		if r.skip(maxDepth); r.err != nil {
			return fmt.Errorf("%s: %w", k, r.err)
		}
		raw := from[:len(from)-len(r.b)]
		p.rows.addSealed(k, raw[:len(raw):len(raw)])
		return nil
	}
	if sealsAtOnce(k.Table) {
		rest, err := lenient.UnmarshalFirst(r.b, new(wellFormed))
		if err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		raw := r.b[:len(r.b)-len(rest)]
		r.b = rest
		p.rows.addSealed(k, raw[:len(raw):len(raw)])
		return nil
	}
	row := newRow(k.Table)
	if m, ok := row.(*DemandMonth); ok {
		if r.demand(m); r.err != nil {
			return fmt.Errorf("%s: %w", k, r.err)
		}
		p.rows.Add(k, row)
		return nil
	}
	rest, err := lenient.UnmarshalFirst(r.b, row)
	if err != nil {
		return fmt.Errorf("%s: %w", k, err)
	}
	r.b = rest
	p.rows.Add(k, row)
	return nil
}
