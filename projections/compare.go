package projections

import (
	"bytes"
	"errors"
	"iter"
)

// Difference is a row that differs between two views.
type Difference struct {
	Key      Key
	InA, InB bool
}

// Differences returns the rows that are missing in or differ between two views, by table and key,
// at most limit of them. It holds one row of each.
func Differences(a, b View, limit int) ([]Difference, error) {
	var out []Difference
	for _, t := range Tables() {
		var errA, errB error
		for d := range differences(encodedRows(a, t, &errA), encodedRows(b, t, &errB)) {
			if len(out) == limit {
				return out, errors.Join(errA, errB)
			}
			out = append(out, d)
		}
		if err := errors.Join(errA, errB); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// FirstDifference returns the first row by key that differs between two sequences of rows, each
// ordered by key and in the form of [AppendRow]. It reports false if there is none.
func FirstDifference(a, b iter.Seq2[Key, []byte]) (Difference, bool) {
	for d := range differences(a, b) {
		return d, true
	}
	return Difference{}, false
}

// differences returns all of them. It ends where one of the sequences fails.
func differences(a, b iter.Seq2[Key, []byte]) iter.Seq[Difference] {
	return func(yield func(Difference) bool) {
		next, stop := iter.Pull2(b)
		defer stop()
		inB, enc, more := next()
		for k, want := range a {
			for more && inB.Compare(k) < 0 {
				if !yield(Difference{inB.clone(), false, true}) {
					return
				}
				inB, enc, more = next()
			}
			switch {
			case !more || inB != k:
				if !yield(Difference{k.clone(), true, false}) {
					return
				}
				continue
			case !bytes.Equal(want, enc):
				if !yield(Difference{k.clone(), true, true}) {
					return
				}
			}
			inB, enc, more = next()
		}
		for more {
			if !yield(Difference{inB.clone(), false, true}) {
				return
			}
			inB, _, more = next()
		}
	}
}

// encodedRows returns the rows of a table as they are stored. The scan's error goes to err.
func encodedRows(v View, t Table, err *error) iter.Seq2[Key, []byte] {
	return func(yield func(Key, []byte) bool) {
		var b []byte
		if e := Stored(v).Scan(Query{Table: t}, func(k Key, row Row) (err error) {
			if b, err = AppendRow(b[:0], k, row); err != nil {
				return err
			}
			if !yield(k, b) {
				return errEnough
			}
			return nil
		}); !errors.Is(e, errEnough) {
			*err = e
		}
	}
}
