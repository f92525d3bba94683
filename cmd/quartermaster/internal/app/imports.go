package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"quartermaster/adapters/bill"
	"quartermaster/adapters/focus"
	"quartermaster/adapters/parts"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// Files of bills, prices and meters are kept as they came, beside the parts and named by their SHA-256, before the
// events that cite them are appended.

// keepFiles keeps the files of a source, and what they were read with. It reports false if there is no place for them.
func (h *Conn) keepFiles(source string, files []monthFile, with []focus.Document) (bool, error) {
	if !h.app.hasParts() {
		return false, nil
	}
	dir := h.Parts()
	im := parts.Import{Received: Now()}
	if err := im.Source.UnmarshalText([]byte(sha256InName.FindStringSubmatch(source)[1])); err != nil {
		return false, err
	}
	for _, file := range files {
		f, err := os.Open(file.name)
		if err != nil {
			return false, fmt.Errorf("import: %w", err)
		}
		n, err := dir.KeepFile(f, file.sum)
		if err := errors.Join(err, f.Close()); err != nil {
			return false, fmt.Errorf("import %s: nothing was imported: %w", file.name, err)
		}
		im.Files = append(im.Files, parts.ImportedFile{Name: filepath.Base(file.name), SHA256: file.sum, Bytes: n, Before: file.before})
	}
	for _, doc := range with {
		sum := parts.Digest(sha256.Sum256(doc.Text))
		n, err := dir.KeepFile(bytes.NewReader(doc.Text), sum)
		if err != nil {
			return false, fmt.Errorf("import: nothing was imported: %w", err)
		}
		im.With = append(im.With, parts.ImportedFile{Name: filepath.Base(doc.Name), SHA256: sum, Bytes: n})
	}
	if err := dir.KeepImport(im); err != nil {
		return false, fmt.Errorf("import: nothing was imported: %w", err)
	}
	return true, nil
}

// ImportedSource is a source of events that was imported from files.
type ImportedSource struct {
	Source   string         `json:"source"` // as events name it: SHA-256, reader and options
	SHA256   string         `json:"sha256"` // of its file; of several files, of their digests
	Kind     string         `json:"kind"`   // the reader and its version
	Events   uint64         `json:"events"`
	Missing  uint64         `json:"missing"`           // events that never came
	Lines    int            `json:"lines"`             // statements about billing lines
	Invoices int            `json:"invoices"`          // statements about invoices
	Months   []string       `json:"months"`            // billing months of its lines and invoices
	From     domain.Instant `json:"appended_from"`     // first
	To       domain.Instant `json:"appended_to"`       // last
	Files    []KeptFile     `json:"files"`             // as they came; empty if they are not kept
	With     []KeptFile     `json:"with"`              // the mapping and tables that the user gave
	Received domain.Instant `json:"received,omitzero"` // when the files were kept
}

// KeptFile is a file as it was imported.
type KeptFile struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	// Before is the number of lines in the files of the source before it.
	Before uint64 `json:"lines_before,omitempty"`
	// State is set by show alone: intact, damaged or missing.
	State string `json:"state,omitempty"`
}

// The states of kept files.
const (
	FileIntact  = "intact"
	FileDamaged = "damaged"
	FileMissing = "missing"
)

func keptFiles(files []parts.ImportedFile) []KeptFile {
	kept := []KeptFile{}
	for _, f := range files {
		kept = append(kept, KeptFile{Name: f.Name, SHA256: f.SHA256.String(), Bytes: f.Bytes, Before: f.Before})
	}
	return kept
}

// importedSources returns the sources that are files, in the order of their names, without what is kept of them.
func importedSources(v projections.View) ([]ImportedSource, error) {
	stats, err := registry.NewLogStats(v)
	if err != nil {
		return nil, err
	}
	all, at, months := []ImportedSource{}, map[string]int{}, map[string]map[string]bool{}
	for i := range stats.Sources {
		s := &stats.Sources[i]
		sum := sha256InName.FindStringSubmatch(s.Source)
		if sum == nil {
			continue
		}
		if _, known := at[s.Source]; !known {
			at[s.Source], months[s.Source] = len(all), map[string]bool{}
			kind, _, _ := strings.Cut(s.Source[strings.IndexByte(s.Source, '/')+1:], "?")
			all = append(all, ImportedSource{Source: s.Source, SHA256: sum[1], Kind: kind, Files: []KeptFile{}, With: []KeptFile{}})
		}
		to := &all[at[s.Source]]
		to.Events, to.Missing = to.Events+s.Events, to.Missing+s.Missing
	}
	for _, table := range statedTables {
		err := v.Scan(projections.Query{Table: table}, func(_ projections.Key, row projections.Row) error {
			h, ok := row.(*projections.History)
			if !ok {
				return nil
			}
			for i := range h.Versions {
				v := &h.Versions[i]
				if n, ok := at[v.Order.Source]; ok {
					if month := all[n].state(v); month != "" {
						months[v.Order.Source][month] = true
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", table, err)
		}
	}
	for i := range all {
		all[i].Months = slices.AppendSeq([]string{}, maps.Keys(months[all[i].Source]))
		slices.Sort(all[i].Months)
	}
	return all, nil
}

// state adds a statement. It returns the billing month that it is about, "" for none.
func (s *ImportedSource) state(v *projections.Version) string {
	if s.From == 0 || v.Order.Appended < s.From {
		s.From = v.Order.Appended
	}
	s.To = max(s.To, v.Order.Appended)
	var of domain.Interval
	switch ev := v.Event.(type) {
	case *domain.BillingLineRecorded:
		s.Lines++
		of = domain.Interval{From: ev.Line.BillingPeriodStart, To: ev.Line.BillingPeriodEnd}
	case *domain.BillingLineCorrected:
		s.Lines++
		of = domain.Interval{From: ev.Line.BillingPeriodStart, To: ev.Line.BillingPeriodEnd}
	case *domain.BillingLineRemoved:
		s.Lines++
	case *domain.InvoiceReceived:
		s.Invoices++
		of = ev.BillingPeriod
	}
	if of.Empty() {
		return ""
	}
	return MonthName(projections.MonthOf(of))
}

// Imports returns the files that were imported, by when their first statement was appended.
func (c *Caller) Imports(ctx context.Context, at At) (all []ImportedSource, err error) {
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		if all, err = importedSources(v); err != nil || !h.app.hasParts() {
			return err
		}
		kept, err := h.Parts().Imports()
		if err != nil {
			return err
		}
		for i := range all {
			var source parts.Digest
			if err := source.UnmarshalText([]byte(all[i].SHA256)); err != nil {
				return err
			}
			if !slices.Contains(kept, source) {
				continue
			}
			im, err := h.Parts().Import(source)
			if err != nil {
				return err
			}
			all[i].Files, all[i].With, all[i].Received = keptFiles(im.Files), keptFiles(im.With), im.Received
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b ImportedSource) int {
		return cmp.Or(cmp.Compare(a.From, b.From), strings.Compare(a.Source, b.Source))
	})
	return all, err
}

// Import returns the sources with a SHA-256, of which the beginning is enough, and compares the kept files with their
// digests. It may be that of one of their files. out, if not nil, gets the bytes of the file of that digest; without
// such a file the error says which files there are.
func (c *Caller) Import(ctx context.Context, sum string, out io.Writer) ([]ImportedSource, error) {
	if len(sum) < 8 || strings.Trim(sum, "0123456789abcdef") != "" {
		return nil, invalid("sha256", "%q is not the beginning of a SHA-256: at least eight digits, 0 to 9 and a to f", sum)
	}
	all, err := c.Imports(ctx, "")
	if err != nil {
		return nil, err
	}
	is := func(digest string) bool { return strings.HasPrefix(digest, sum) }
	var found []ImportedSource
	wanted := map[string]bool{} // digests of files
	for i := range all {
		s := &all[i]
		files := slices.Concat(s.Files, s.With)
		named := slices.DeleteFunc(slices.Clone(files), func(f KeptFile) bool { return !is(f.SHA256) })
		if !is(s.SHA256) && len(named) == 0 {
			continue
		}
		found = append(found, *s)
		for _, f := range named {
			wanted[f.SHA256] = true
		}
		if len(s.Files) == 1 && is(s.SHA256) {
			wanted[s.Files[0].SHA256] = true
		}
	}
	if len(found) == 0 {
		return nil, &NotFoundError{What: "import", Name: sum, Err: fmt.Errorf("no file with SHA-256 %s… was imported; see \"quartermaster import list\"", sum)}
	}
	h, err := c.conn(ctx, Reading)
	if err != nil {
		return nil, err
	}
	for i := range found {
		for _, files := range [][]KeptFile{found[i].Files, found[i].With} {
			for j := range files {
				if files[j].State, err = h.stateOf(files[j].SHA256); err != nil {
					return nil, err
				}
			}
		}
	}
	if out == nil {
		return found, nil
	}
	if len(wanted) != 1 {
		var names []string
		for i := range found {
			for _, f := range slices.Concat(found[i].Files, found[i].With) {
				names = append(names, f.SHA256[:12]+" "+f.Name)
			}
		}
		slices.Sort(names)
		if names = slices.Compact(names); len(names) == 0 {
			return found, &NotFoundError{What: "file", Name: sum, Err: errors.New("the file is not kept: its bytes are only where it came from")}
		}
		return found, invalid("sha256", "name one file by its SHA-256: %s", strings.Join(names, ", "))
	}
	digest := slices.Collect(maps.Keys(wanted))[0]
	f, err := h.openImported(digest)
	if err != nil {
		return found, err
	}
	_, err = io.Copy(out, f)
	return found, errors.Join(err, f.Close())
}

func (h *Conn) openImported(digest string) (*os.File, error) {
	var d parts.Digest
	if err := d.UnmarshalText([]byte(digest)); err != nil {
		return nil, err
	}
	return h.Parts().OpenFile(d)
}

func (h *Conn) stateOf(digest string) (string, error) {
	f, err := h.openImported(digest)
	switch {
	case errors.Is(err, parts.ErrMissing):
		return FileMissing, nil
	case errors.Is(err, parts.ErrDamaged):
		return FileDamaged, nil
	case err != nil:
		return "", err
	}
	return FileIntact, f.Close()
}

// RawRow returns the row of the imported file that an event was read from. The error is a [NotFoundError] if the event
// does not say its line or the file is not kept.
func (c *Caller) RawRow(ctx context.Context, of *costs.LedgerEvent) (*costs.RawRow, error) {
	missing := func(format string, args ...any) error {
		return &NotFoundError{What: "row", Name: of.Source, Err: fmt.Errorf(format, args...)}
	}
	sum := sha256InName.FindStringSubmatch(of.Source)
	if sum == nil || of.Line == 0 {
		return nil, missing("the event was not read from a row of a file: its source is %s", ShortSource(of.Source))
	}
	h, err := c.conn(ctx, Reading)
	if err != nil {
		return nil, err
	}
	if !h.app.hasParts() {
		return nil, missing("files are kept beside the parts, and no place for parts is configured")
	}
	var source parts.Digest
	if err := source.UnmarshalText([]byte(sum[1])); err != nil {
		return nil, err
	}
	im, err := h.Parts().Import(source)
	if errors.Is(err, parts.ErrMissing) {
		return nil, missing("the file with SHA-256 %s is not kept: look for line %d of it where it came from", sum[1], of.Line)
	}
	if err != nil {
		return nil, err
	}
	file, line := im.FileOf(of.Line)
	if file == nil {
		return nil, missing("the kept files of source %s have no line %d", ShortSource(of.Source), of.Line)
	}
	f, err := h.Parts().OpenFile(file.SHA256)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw := &costs.RawRow{File: file.Name, SHA256: file.SHA256.String(), Line: line}
	if is, err := bill.IsJSON(ctx, f); err != nil {
		return nil, fmt.Errorf("%s: %w", raw.File, err)
	} else if is {
		return nil, missing("%s is JSON, of which row %d is meant: \"quartermaster import show %s\" finds and writes it", raw.File, line-1, raw.SHA256[:12])
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	t, err := openBill(ctx, f, tabular.Limits{}.WithDefaults())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", raw.File, err)
	}
	for {
		row, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil, missing("%s has no row in line %d", raw.File, line)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", raw.File, row.Line, err)
		}
		if raw.Columns == nil {
			raw.Columns = slices.Clone(row.Fields)
			continue
		}
		if uint64(row.Line) == line {
			raw.Values = slices.Clone(row.Fields)
			return raw, nil
		}
	}
}
