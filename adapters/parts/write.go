package parts

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"quartermaster/adapters/durable"
	"quartermaster/domain"
	"quartermaster/projections"
)

// Bounds of a row group, which is held in memory while it is written, and of the pages in it, of
// which one for each column is held while it is read. A query reads whole groups: those whose bounds
// may match.
const (
	groupRows  = 1 << 13
	groupBytes = 16 << 20
	scopeRows  = 1 << 10 // after which a new table or scope begins a group
	pageBytes  = 256 << 10
	boundBytes = 256 // of the least and the greatest text of a page
)

// record is a row of a Parquet file as it is read. Rows are ordered by key.
type record struct {
	Table string `parquet:"table,dict,zstd"`
	Scope string `parquet:"scope,dict,zstd"`
	ID    string `parquet:"id,dict,zstd"`
	Hour  int64  `parquet:"hour,timestamp(millisecond),zstd"`
	// Row is the row in the form of [projections.AppendRow]. The digest of the part is the SHA-256 of
	// this column. The other columns are for people.
	Row []byte `parquet:"row,zstd"`
}

// written is a row of a Parquet file as it is written.
type written struct {
	record
	// Held says who held GPUs in the hour of a row of usage_hours. It is empty in other rows.
	Held []segment `parquet:"held,list"`
}

// segment is a time in which an observer saw a GPU, MIG instance or time-slice replica with a
// holder.
type segment struct {
	Source     string   `parquet:"source,dict,zstd"`
	GPU        [16]byte `parquet:"gpu,uuid,dict,zstd"`
	Replica    uint32   `parquet:"replica,zstd"`
	Profile    string   `parquet:"profile,dict,zstd"` // of a MIG instance; empty: a whole GPU
	Workspace  string   `parquet:"workspace,dict,zstd"`
	Deployment string   `parquet:"deployment,dict,zstd"`
	Unit       string   `parquet:"unit,dict,zstd"`
	// Milliseconds: from and to within the hour, and for how long activity was measured.
	FromMs     int32 `parquet:"from_ms,zstd"`
	ToMs       int32 `parquet:"to_ms,zstd"`
	MeasuredMs int32 `parquet:"measured_ms,zstd"`
	// ActiveMs is the measured time multiplied by activity.
	ActiveMs float64 `parquet:"active_ms,zstd"`
}

// recordOf returns the row of a file. Text that is not UTF-8 is replaced in the columns for people.
func recordOf(k projections.Key, row []byte) record {
	return record{
		Table: k.Table.String(), Scope: legible(k.Scope), ID: legible(k.ID),
		Hour: k.Hour * int64(domain.Hour/1_000_000), Row: row,
	}
}

// appendHeld appends who held GPUs in a row of usage_hours.
func appendHeld(held []segment, row []byte) ([]segment, error) {
	k, raw, err := projections.SplitRow(row)
	if err != nil || k.Table != projections.TableUsage {
		return held, err
	}
	var u projections.UsageHour
	if err := u.UnmarshalCBOR(raw); err != nil {
		return held, fmt.Errorf("%s: %w", k, err)
	}
	for i := range u.Observers {
		o := &u.Observers[i]
		for j := range o.Devices {
			d := &o.Devices[j]
			profile := ""
			if d.Cut > 0 {
				profile = legible(o.Cuts[d.Cut-1].Profile)
			}
			for _, s := range d.Segments {
				if s.Holder == 0 {
					continue
				}
				h := &u.Holders[s.Holder-1]
				held = append(held, segment{
					Source: legible(o.Source), GPU: d.ID, Replica: d.Replica, Profile: profile,
					Workspace: legible(h.Workspace), Deployment: legible(h.Deployment), Unit: legible(h.Unit),
					FromMs: int32(s.From), ToMs: int32(s.To),
					MeasuredMs: int32(s.Known), ActiveMs: float64(s.Active) / 1000,
				})
			}
		}
	}
	return held, nil
}

func legible(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Rows calls yield with each row of a part by key, in the form of [projections.AppendRow].
type Rows func(yield func(projections.Key, []byte) error) error

// Outcome says what [Writer.Put] did.
type Outcome string

// The outcomes.
const (
	New        Outcome = "new"
	Unchanged  Outcome = "unchanged"
	Superseded Outcome = "superseded" // another version was there before
	Restored   Outcome = "restored"   // its file was missing
)

// Writer adds parts to a directory.
type Writer struct {
	Directory
	unlock func() error
}

// NewWriter opens a directory for writing, and makes it if there is none. It fails with [ErrLocked]
// while another process writes.
func NewWriter(d Directory) (*Writer, error) {
	unlock, err := d.lock()
	if err != nil {
		return nil, err
	}
	return &Writer{d, unlock}, nil
}

// Close lets other processes write.
func (w *Writer) Close() error { return w.unlock() }

// Put adds a version of a part, made by the current folds at an offset of its partition, unless the
// last version has these rows already. Then it only notes the tallies that the rows have now. It fails
// if rows do not have the digest.
func (w *Writer) Put(
	p projections.PartDigest, tallies []projections.Tally, position int64, rows Rows,
) (Outcome, error) {
	m, err := w.Manifest(p.PartKey)
	outcome := Superseded
	switch {
	case errors.Is(err, fs.ErrNotExist):
		outcome = New
		tp := p.Partition
		m = &Manifest{
			Format: format, Log: w.Log, Month: projections.MonthName(p.Month), Topic: tp.Topic, Partition: tp.Partition,
		}
	case err != nil:
		return "", err
	case m.Last().Method == projections.Method && m.Last().Digest == Digest(p.Digest):
		if _, err := w.size(fileOf(p.PartKey, m.Last().Digest)); err == nil {
			return Unchanged, w.note(p.PartKey, m, talliesOf(tallies), position)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		outcome, position = Restored, m.Last().Position
		m.Versions = m.Versions[:len(m.Versions)-1]
	}
	v := Version{
		Method: projections.Method, Position: position, Rows: p.Rows, Digest: p.Digest, Tallies: talliesOf(tallies),
	}
	v.File = v.Digest.String() + ".parquet"
	if len(m.Versions) > 0 {
		last := m.Last().Digest
		v.Supersedes = &last
	}
	if err := w.file(p, &v, rows); err != nil {
		return "", fmt.Errorf("write part %s: %w", p.PartKey, err)
	}
	m.add(v)
	if err := w.write(p.PartKey, m); err != nil {
		return "", err
	}
	return outcome, nil
}

// note notes the tallies of the rows at a later offset, which are those of the last version.
func (w *Writer) note(k projections.PartKey, m *Manifest, tallies []Tally, position int64) error {
	last := m.Last()
	if len(tallies) == 0 || position < last.Position || slices.Equal(last.Tallies, tallies) {
		return nil
	}
	last.Tallies, last.Position = tallies, position
	return w.write(k, m)
}

// write writes a manifest.
func (w *Writer) write(k projections.PartKey, m *Manifest) error {
	b, err := m.encode()
	if err == nil {
		err = w.putManifest(folder(k), m.number, b)
	}
	if err != nil {
		return fmt.Errorf("write the manifest of %s: %w", k, err)
	}
	return nil
}

// file writes the file of a version, and sets its size and hash. A file of that name, which an
// earlier version or a crash has left, stays if its rows are these.
func (w *Writer) file(p projections.PartDigest, v *Version, rows Rows) error {
	name := fileOf(p.PartKey, v.Digest)
	if err := w.makeFolder(p.PartKey); err != nil {
		return err
	}
	sum := newCounted()
	err := w.copyTo(name, sum)
	if err == nil {
		v.Bytes, v.SHA256 = sum.n, sum.sum()
		return w.read(p.PartKey, v, false, func(part *Part) (err error) {
			v.Scopes, err = part.check()
			return err
		})
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	v.Bytes, v.SHA256, err = w.put(name, func(f *os.File) error {
		b := bufio.NewWriterSize(f, 1<<18)
		scopes, err := write(b, w.Log, p, rows)
		v.Scopes = scopes
		return errors.Join(err, b.Flush())
	})
	return err
}

// makeFolder makes the folder of a part.
func (w *Writer) makeFolder(k projections.PartKey) error {
	if w.Bucket != nil {
		return nil
	}
	partition := w.path(folder(k))
	if _, err := os.Stat(partition); errors.Is(err, fs.ErrNotExist) {
		if err := durable.MakeDirectory(partition); err != nil {
			return err
		}
		topic := filepath.Dir(partition)
		for _, path := range []string{filepath.Dir(topic), topic, partition} {
			if err := readable(path, 0o700, 0o555); err != nil {
				return err
			}
		}
	}
	return sweep(partition)
}

// copyTo writes a file to a writer. Its error is [fs.ErrNotExist] if there is none.
func (d Directory) copyTo(name string, to io.Writer) error {
	if d.Bucket != nil {
		return d.get(name, math.MaxInt64, to)
	}
	f, err := os.Open(d.path(name))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}

// put stores what write writes as a file, and returns its size and SHA-256.
func (w *Writer) put(name string, write func(*os.File) error) (size int64, sha Digest, err error) {
	if w.Bucket != nil {
		return w.upload(name, write)
	}
	err = place(w.path(name), func(f *os.File) error {
		if err := write(f); err != nil {
			return err
		}
		sum := newCounted()
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		_, err := io.Copy(sum, f)
		size, sha = sum.n, sum.sum()
		return err
	})
	return size, sha, err
}

// sweep removes files that a crash left half-written. No other process writes.
func sweep(folder string) error {
	stale, err := filepath.Glob(filepath.Join(folder, "new-*"))
	if err != nil {
		return err
	}
	for _, path := range stale {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// write writes rows in Parquet, and returns their scopes. Equal rows give equal bytes.
func write(out io.Writer, log string, p projections.PartDigest, rows Rows) (scopes map[string][][]byte, err error) {
	w := parquet.NewGenericWriter[written](out,
		parquet.CreatedBy("quartermaster", format, ""),
		parquet.PageBufferSize(pageBytes),
		parquet.ColumnIndexSizeLimit(func([]string) int { return boundBytes }),
		parquet.SkipPageBounds("row"),
		parquet.SortingWriterConfig(parquet.SortingColumns(
			parquet.Ascending("table"), parquet.Ascending("scope"),
			parquet.Ascending("id"), parquet.Ascending("hour"))),
		parquet.KeyValueMetadata("format", format),
		parquet.KeyValueMetadata("log", log),
		parquet.KeyValueMetadata("month", projections.MonthName(p.Month)),
		parquet.KeyValueMetadata("topic", string(p.Partition.Topic)),
		parquet.KeyValueMetadata("partition", strconv.Itoa(p.Partition.Partition)),
		parquet.KeyValueMetadata("digest", Digest(p.Digest).String()),
	)
	h := sha256.New()
	var n int64
	held, size := 0, 0
	one := make([]written, 1)
	scopes = map[string][][]byte{}
	var last projections.Key
	if err := rows(func(k projections.Key, row []byte) error {
		h.Write(row)
		if n++; n == 1 || k.Table != last.Table || k.Scope != last.Scope {
			if held >= scopeRows { // so that a query of one scope reads no other
				held, size = 0, 0
				if err := w.Flush(); err != nil {
					return err
				}
			}
			scopes[k.Table.String()] = append(scopes[k.Table.String()], []byte(k.Scope))
		}
		last = k
		one[0].record = recordOf(k, row)
		var err error
		if one[0].Held, err = appendHeld(one[0].Held[:0], row); err != nil {
			return err
		}
		if _, err := w.Write(one); err != nil {
			return err
		}
		if held, size = held+1, size+len(row); held < groupRows && size < groupBytes {
			return nil
		}
		held, size = 0, 0
		return w.Flush()
	}); err != nil {
		return nil, err
	}
	if sum := [32]byte(h.Sum(nil)); sum != p.Digest || n != p.Rows {
		return nil, fmt.Errorf("its rows changed while it was written: %d rows with digest %x, want %d with %x",
			n, sum, p.Rows, p.Digest)
	}
	return scopes, w.Close()
}
