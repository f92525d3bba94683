package parts

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/parquet-go/parquet-go"

	"quartermaster/projections"
)

// Part is a version of a part that is open for reading.
type Part struct {
	Key     projections.PartKey
	Version Version
	f       *os.File
	file    *parquet.File
}

// Close closes the file.
func (p *Part) Close() error { return p.f.Close() }

// Read opens the version of a part that counts, calls read with it, and closes it. It checks the
// file's size and SHA-256 before anything is decoded. In a bucket it reads the object, not the cache.
// A version of other folds is refused, because
// its rows cannot be told from damage: [ErrMethod].
func (d Directory) Read(k projections.PartKey, read func(*Part) error) error {
	m, err := d.Manifest(k)
	if err != nil {
		return err
	}
	if v := m.Last(); v.Method != projections.Method {
		return fmt.Errorf("%s: %w: %q, these are %q", k, ErrMethod, v.Method, projections.Method)
	}
	return d.read(k, m.Last(), true, read)
}

// read opens a version for the time that read takes. If fresh, it reads the object of a bucket even if
// the cache has it.
func (d Directory) read(k projections.PartKey, v *Version, fresh bool, read func(*Part) error) error {
	open := d.open
	if d.Bucket != nil && fresh {
		open = d.openFresh
	}
	p, err := open(k, v, true)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	return read(p)
}

// openFresh opens a version as the bucket has it now.
func (d Directory) openFresh(k projections.PartKey, v *Version, _ bool) (*Part, error) {
	f, err := d.download(fileOf(k, v.Digest), v.Bytes, v.SHA256)
	if err != nil {
		return nil, err
	}
	return d.decode(k, v, f)
}

// open opens a version, and checks size and SHA-256 of its file unless that was done before.
func (d Directory) open(k projections.PartKey, v *Version, check bool) (_ *Part, err error) {
	f, err := d.openFile(fileOf(k, v.Digest), v.Bytes, v.SHA256, check)
	if err != nil {
		return nil, err
	}
	return d.decode(k, v, f)
}

// openFile opens a file. If check, its size and SHA-256 are compared. In a bucket they always are.
func (d Directory) openFile(name string, size int64, sha Digest, check bool) (*os.File, error) {
	if d.Bucket != nil {
		if f := d.fromCache(size, sha); f != nil {
			return f, nil
		}
		return d.download(name, size, sha)
	}
	f, err := os.Open(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrMissing, d.path(name))
	}
	if err != nil {
		return nil, err
	}
	if check {
		if err := matches(f, size, sha); err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: %w", d.path(name), err)
		}
	}
	return f, nil
}

// decode reads the footer of a file, and closes the file if that fails.
func (d Directory) decode(k projections.PartKey, v *Version, f *os.File) (_ *Part, err error) {
	path := d.File(k, v.Digest)
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	// Only bytes that were written here are decoded: the hash above says so, unless the manifest
	// lies. The decoder may then panic.
	var file *parquet.File
	if err := guarded(func() (err error) {
		file, err = parquet.OpenFile(f, v.Bytes, parquet.SkipBloomFilters(true))
		return err
	}); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	if !parquet.EqualNodes(file.Schema(), parquet.SchemaOf(written{})) {
		return nil, fmt.Errorf("%s: %w: it has other columns", path, ErrDamaged)
	}
	if log, _ := file.Lookup("log"); log != d.Log {
		return nil, fmt.Errorf("%s: %w: it is of log %q, this is %q", path, ErrLog, log, d.Log)
	}
	return &Part{k, *v, f, file}, nil
}

// matches compares a file with what the manifest says of it.
func matches(f *os.File, size int64, sha Digest) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() != size {
		return fmt.Errorf("%w: it has %d bytes, the manifest says %d", ErrDamaged, st.Size(), size)
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if sum := Digest(h.Sum(nil)); sum != sha {
		return fmt.Errorf("%w: its SHA-256 is %s, the manifest says %s", ErrDamaged, sum, sha)
	}
	return nil
}

// guarded turns a panic of the decoder into an error.
func guarded(decode func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return decode()
}

// Verify reads the whole part, and fails with [ErrDamaged] unless its rows have its digest, are in
// order, and belong to it, and the manifest lists their scopes if it lists any.
func (p *Part) Verify() error {
	scopes, err := p.check()
	if err == nil && p.Version.Scopes != nil && !maps.EqualFunc(p.Version.Scopes, scopes, func(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }) {
		err = fmt.Errorf("part %s: %w: the manifest lists other scopes than those of its rows", p.Key, ErrDamaged)
	}
	return err
}

// check is Verify without the scopes, which it returns.
func (p *Part) check() (map[string][][]byte, error) {
	h := sha256.New()
	var n int64
	var last *projections.Key
	scopes := map[string][][]byte{}
	if err := p.scanColumns(func(k projections.Key, row []byte) error {
		if last == nil || k.Table != last.Table || k.Scope != last.Scope {
			scopes[k.Table.String()] = append(scopes[k.Table.String()], []byte(k.Scope))
		}
		if of, ok := projections.PartOf(k); !ok || of != p.Key {
			return fmt.Errorf("%w: %s does not belong to it", ErrDamaged, k)
		}
		if last != nil && last.Compare(k) >= 0 {
			return fmt.Errorf("%w: %s comes after %s", ErrDamaged, k, last)
		}
		last = &k
		h.Write(row)
		n++
		return nil
	}); err != nil {
		return nil, err
	}
	if sum := Digest(h.Sum(nil)); sum != p.Version.Digest || n != p.Version.Rows {
		return nil, fmt.Errorf("part %s: %w: %d rows with digest %s, the manifest says %d with %s", p.Key, ErrDamaged,
			n, sum, p.Version.Rows, p.Version.Digest)
	}
	return scopes, nil
}

// Scan calls yield with each row that a query selects, by key, in the form of
// [projections.AppendRow]. The zero query selects every row of the part. The bytes are valid until
// yield returns. It reads only pages that may hold such rows.
func (p *Part) Scan(q projections.Query, yield func(projections.Key, []byte) error) error {
	if q.Last {
		return p.scanLast(q, yield)
	}
	for _, group := range p.file.RowGroups() {
		if err := p.scanGroup(group, q, yield); err != nil {
			return err
		}
	}
	return nil
}

// scanLast is Scan for the row with the greatest hour of each scope and id.
func (p *Part) scanLast(q projections.Query, yield func(projections.Key, []byte) error) error {
	q.Last = false
	var last projections.Key
	var row []byte
	flush := func() error {
		if row == nil {
			return nil
		}
		return yield(last, row)
	}
	if err := p.Scan(q, func(k projections.Key, b []byte) error {
		if k.Table != last.Table || k.Scope != last.Scope || k.ID != last.ID {
			if err := flush(); err != nil {
				return err
			}
		}
		last, row = k, bytes.Clone(b)
		return nil
	}); err != nil {
		return err
	}
	return flush()
}

func (p *Part) damaged(err error) error { return fmt.Errorf("part %s: %w: %w", p.Key, ErrDamaged, err) }

// rowColumn is the number of the column with rows.
const rowColumn = 4

// scanGroup reads the column of rows alone.
func (p *Part) scanGroup(group parquet.RowGroup, q projections.Query, yield func(projections.Key, []byte) error) (err error) {
	var from, to int64
	var pages parquet.Pages
	if err := guarded(func() (err error) {
		if from, to, err = rangeOf(group, q); err != nil || from >= to {
			return err
		}
		pages = group.ColumnChunks()[rowColumn].Pages()
		return pages.SeekToRow(from)
	}); err != nil {
		return p.damaged(err)
	}
	if pages == nil {
		return nil
	}
	defer func() { err = errors.Join(err, guarded(pages.Close)) }()
	for from < to {
		var page parquet.Page
		var rows []byte
		var ends []uint32
		if err := guarded(func() (err error) {
			if page, err = pages.ReadPage(); err == nil {
				data := page.Data()
				rows, ends = data.ByteArray()
			}
			return err
		}); err != nil {
			return p.damaged(err)
		}
		if len(ends) < 2 {
			return p.damaged(errors.New("a page has no rows"))
		}
		err := p.scanPage(rows, ends[:min(int64(len(ends)), to-from+1)], q, yield)
		from += int64(len(ends) - 1)
		parquet.Release(page)
		if err != nil {
			return err
		}
	}
	return nil
}

// scanPage calls yield with the rows of a page that a query selects. Row i begins at ends[i].
func (p *Part) scanPage(rows []byte, ends []uint32, q projections.Query, yield func(projections.Key, []byte) error) error {
	for i := range len(ends) - 1 {
		if ends[i] > ends[i+1] || int(ends[i+1]) > len(rows) {
			return p.damaged(errors.New("a row ends before it begins"))
		}
		row := rows[ends[i]:ends[i+1]:ends[i+1]]
		k, _, err := projections.SplitRow(row)
		if err != nil {
			return p.damaged(err)
		}
		if q.Table != 0 && k.Table != q.Table || !q.Holds(k) {
			continue
		}
		if err := yield(k, row); err != nil {
			return err
		}
	}
	return nil
}

// batch is how many rows are decoded at a time.
const batch = 64

// scanColumns calls yield with every row, and compares the columns beside it with its key.
func (p *Part) scanColumns(yield func(projections.Key, []byte) error) error {
	for _, group := range p.file.RowGroups() {
		if err := p.groupColumns(group, yield); err != nil {
			return err
		}
	}
	return nil
}

func (p *Part) groupColumns(group parquet.RowGroup, yield func(projections.Key, []byte) error) error {
	var r *parquet.GenericReader[record]
	if err := guarded(func() error {
		r = parquet.NewGenericRowGroupReader[record](group)
		return nil
	}); err != nil {
		return p.damaged(err)
	}
	defer func() { _ = r.Close() }()
	rows := make([]record, batch)
	for left := group.NumRows(); left > 0; {
		n := 0
		if err := guarded(func() (err error) {
			n, err = r.Read(rows[:min(batch, left)])
			return err
		}); n == 0 && err != nil {
			return p.damaged(err)
		}
		left -= int64(n)
		for i := range rows[:n] {
			k, _, err := projections.SplitRow(rows[i].Row)
			if err != nil {
				return p.damaged(err)
			}
			w := recordOf(k, nil)
			if r := rows[i]; r.Table != w.Table || r.Scope != w.Scope || r.ID != w.ID || r.Hour != w.Hour {
				return p.damaged(fmt.Errorf("the columns beside %s are of another row", k))
			}
			if err := yield(k, rows[i].Row); err != nil {
				return err
			}
		}
	}
	return nil
}

// rangeOf returns the range of rows of a group that may match a query, by the bounds of its pages.
func rangeOf(group parquet.RowGroup, q projections.Query) (from, to int64, err error) {
	from, to = 0, group.NumRows()
	narrow := func(column int, low, high parquet.Value) error {
		c := group.ColumnChunks()[column]
		bounds, err := c.ColumnIndex()
		if err != nil {
			return err
		}
		places, err := c.OffsetIndex()
		if err != nil {
			return err
		}
		first, end := to, from
		for i := range bounds.NumPages() {
			if !low.IsNull() && c.Type().Compare(bounds.MaxValue(i), low) < 0 ||
				!high.IsNull() && c.Type().Compare(bounds.MinValue(i), high) > 0 {
				continue
			}
			next := group.NumRows()
			if i+1 < places.NumPages() {
				next = places.FirstRowIndex(i + 1)
			}
			first, end = min(first, places.FirstRowIndex(i)), max(end, next)
		}
		from, to = max(from, first), min(to, end)
		return nil
	}
	text := func(column int, s string) error {
		if s == "" {
			return nil
		}
		v := parquet.ByteArrayValue([]byte(legible(s)))
		return narrow(column, v, v)
	}
	var low, high parquet.Value
	if q.From != 0 {
		low = parquet.Int64Value(recordOf(projections.Key{Hour: q.From}, nil).Hour)
	}
	if q.To != 0 {
		high = parquet.Int64Value(recordOf(projections.Key{Hour: q.To - 1}, nil).Hour)
	}
	table := ""
	if q.Table != 0 {
		table = q.Table.String()
	}
	if err := errors.Join(text(0, table), text(1, q.Scope), text(2, q.ID)); err != nil {
		return 0, 0, err
	}
	return from, to, narrow(3, low, high)
}
