package focus

import (
	"slices"
	"strings"
)

// sheet reads the rows of a dataset other than Cost and Usage by the names of its columns.
type sheet struct {
	*run
	names []string       // of the columns, as in the file
	index map[string]int // of a column, by its folded name
	cells []string       // values of the current row, trimmed, "" for null
}

// openSheet detects missing columns, which it refuses if they are needed, and columns that the dataset
// does not define, which it warns of.
func (r *run) openSheet(header []string, has func(string) bool, dataset string, needed, wanted, known []string) (sheet, error) {
	s := sheet{run: r, index: map[string]int{}, names: header, cells: make([]string, len(header))}
	absent := func(columns []string) (missing []string) {
		for _, name := range columns {
			if !has(name) {
				missing = append(missing, name)
			}
		}
		return missing
	}
	if missing := absent(needed); len(missing) > 0 {
		return s, columnsError(header, has, missing)
	}
	r.sum.Dataset = dataset
	if missing := absent(wanted); len(missing) > 0 {
		r.warnOfFile("columns that FOCUS "+r.sum.FocusVersion+" makes mandatory are missing and read as null", strings.Join(missing, ", "))
	}
	for i, name := range header {
		s.index[fold(name)] = i
		if !slices.ContainsFunc(known, func(k string) bool { return fold(k) == fold(name) }) {
			r.warnOfFile("a column is not one of "+dataset+" and is left out", name)
		}
	}
	return s, nil
}

func (s *sheet) value(column string) string {
	if i, ok := s.index[fold(column)]; ok {
		return s.cells[i]
	}
	return ""
}

// take takes the values of a row.
func (s *sheet) take(values []string) {
	for i, v := range values {
		v = strings.TrimSpace(v)
		if isNull(v) {
			s.warn("the text "+v+" is read as null", s.names[i])
			v = ""
		}
		s.cells[i] = v
	}
}
