package projections

import (
	"crypto/sha256"
	"maps"
	"slices"
)

// Difference is a row that differs between two views.
type Difference struct {
	Key      Key
	InA, InB bool
}

// Differences returns the rows that are missing in or differ between two views, by table and key,
// at most limit of them. It holds the keys of one table at a time.
func Differences(a, b View, limit int) ([]Difference, error) {
	var out []Difference
	for _, t := range Tables() {
		inA, err := rowSums(a, t)
		if err != nil {
			return nil, err
		}
		inB, err := rowSums(b, t)
		if err != nil {
			return nil, err
		}
		keys := maps.Clone(inA)
		maps.Copy(keys, inB)
		for _, k := range slices.SortedFunc(maps.Keys(keys), Key.Compare) {
			x, okA := inA[k]
			y, okB := inB[k]
			if okA == okB && x == y {
				continue
			}
			if len(out) == limit {
				return out, nil
			}
			out = append(out, Difference{k, okA, okB})
		}
	}
	return out, nil
}

// rowSums returns the SHA-256 of each row of a table.
func rowSums(v View, t Table) (map[Key][32]byte, error) {
	sums := map[Key][32]byte{}
	err := Stored(v).Scan(Query{Table: t}, func(k Key, row Row) error {
		b, err := AppendRow(nil, k, row)
		if err != nil {
			return err
		}
		sums[k] = sha256.Sum256(b)
		return nil
	})
	return sums, err
}
