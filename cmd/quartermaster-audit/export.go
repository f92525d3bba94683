package main

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"quartermaster/adapters/commandline"
	"quartermaster/domain"
	"quartermaster/projections/costs"
)

// exported is an export as it is read: its header and its rows. A cell is text in each format, and "" is null. Texts are
// those that were exported, without what CSV adds so that no spreadsheet program takes them for a formula.
type exported struct {
	header []string
	rows   [][]string
	// kept is the SHA-256 of a kept month in hexadecimal; empty: an export.
	kept string
}

// keptSuffix ends the name of the kept allocations of a month, which begins with their SHA-256.
const keptSuffix = ".allocations"

// readExport reads CSV or Parquet, or the kept allocations of a month. The content says which it is.
func readExport(name string) (*exported, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	begin := make([]byte, len(keptBegin))
	n, err := io.ReadFull(f, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	switch begin := string(begin[:n]); {
	case strings.HasPrefix(begin, parquetMagic):
		return readParquet(f, name)
	case begin == keptBegin:
		return readKept(f, name)
	}
	return readCSV(f, name)
}

// readCSV reads CSV with a header. A byte order mark is ignored.
func readCSV(f io.Reader, name string) (*exported, error) {
	r := csv.NewReader(f)
	all := &exported{}
	for {
		record, err := r.Read()
		switch {
		case errors.Is(err, io.EOF) && all.header == nil:
			return nil, commandline.Usagef("%s is empty", name)
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, commandline.Usagef("%s: %v", name, err)
		case all.header == nil:
			record[0] = strings.TrimPrefix(record[0], "\ufeff")
			all.header = record
		default:
			for i, cell := range record {
				if strings.Contains(cell, "_x") || strings.HasPrefix(cell, "'") {
					record[i] = unprotected(cell)
				}
			}
			all.rows = append(all.rows, record)
		}
	}
}

var (
	// protected is a text with an apostrophe in front, because it would begin a formula.
	protected = regexp.MustCompile("^''*[=+\\-@\t\n＝＋－＠]")
	// control is a control character in hexadecimal digits, as ECMA-376 writes it.
	control = regexp.MustCompile("_x[0-9a-fA-F]{4}_")
)

// unprotected returns the text that the server's export of CSV protected. It shares no code with the server.
func unprotected(cell string) string {
	if protected.MatchString(cell) {
		cell = cell[1:]
	}
	return control.ReplaceAllStringFunc(cell, func(code string) string {
		n, _ := strconv.ParseUint(code[2:6], 16, 16) // four digits
		return string(rune(n))
	})
}

// keptBegin begins the kept allocations of a month, whatever their version.
var keptBegin = costs.CanonicalFormat[:strings.IndexByte(costs.CanonicalFormat, '/')+1]

// readKept reads the kept allocations of a month. Its rows are those of an export of the month. The name of the
// file must be its SHA-256, because nothing else in it shows that it is what was kept.
func readKept(f *os.File, name string) (*exported, error) {
	want, is := strings.CutSuffix(filepath.Base(name), keptSuffix)
	if digest, err := hex.DecodeString(want); !is || err != nil || len(digest) != sha256.Size {
		return nil, commandline.Usagef("%s has kept allocations, and is not named by their SHA-256: give it the name that it was kept by", name)
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != strings.ToLower(want) {
		return nil, &answer{commandline.ExitNo, fmt.Sprintf("%s was changed: its SHA-256 is %s", name, sum)}
	}
	all := &exported{kept: strings.ToLower(want)}
	for _, c := range costs.ExportedColumns() {
		all.header = append(all.header, c.Name)
	}
	month, err := costs.ReadCanonical(func() (io.ReadSeekCloser, error) { return os.Open(name) })
	if err == nil {
		_, err = month.Export(costs.AllocationFilter{}, nil, func(row []string) error {
			all.rows = append(all.rows, slices.Clone(row))
			return nil
		})
	}
	if errors.Is(err, costs.ErrCanonical) {
		return nil, commandline.Usagef("%s: %v", name, err)
	}
	return all, err
}

// column returns the index of a column.
func (e *exported) column(name, file string) (int, error) {
	i := slices.Index(e.header, name)
	if i < 0 {
		return 0, commandline.Usagef("%s has no column %q; it has %s", file, name, domain.Clip(strings.Join(e.header, ", "), 500))
	}
	return i, nil
}

// lineColumns have the id of a line: of a bill, and of an export.
var lineColumns = []string{"x_LineId", "x_OriginLineId"}

// lineColumn returns the column with the id of a line: the given one, or the first of those that exports have; ""
// if there is none.
func (e *exported) lineColumn(given string) string {
	if given != "" {
		return given
	}
	for _, name := range lineColumns {
		if slices.Contains(e.header, name) {
			return name
		}
	}
	return ""
}
