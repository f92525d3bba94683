package demo

import (
	"encoding/csv"
	"io"
	"math/bits"
)

// dice turns draws into choices. It uses integer arithmetic only, so all machines round alike.
type dice struct{ draw func() uint64 }

// below returns a number from 0 to n-1. Probabilities differ by at most n/2⁶⁴ relatively.
func (d dice) below(n int) int {
	hi, _ := bits.Mul64(d.draw(), uint64(n))
	return int(hi)
}

// chance is true in n of a million cases.
func (d dice) chance(n int) bool { return d.below(1_000_000) < n }

// spread returns a number around 0 with the given standard deviation, approximately normal as the
// sum of twelve uniform numbers.
func (d dice) spread(deviation int) int {
	const one = 1 << 16 // of each uniform number, whose variance is one²/12
	sum := -6 * one
	for range 3 {
		for u := d.draw(); u != 0; u >>= 16 {
			sum += int(u % one)
		}
	}
	return sum * deviation / one
}

// share is a value with its weight.
type share[T any] struct {
	weight int
	value  T
}

// pick returns one value of a table, in proportion to the weights.
func pick[T any](d dice, table []share[T]) T {
	total := 0
	for _, s := range table {
		total += s.weight
	}
	at := d.below(total)
	for _, s := range table {
		if at -= s.weight; at < 0 {
			return s.value
		}
	}
	panic("pick: the weights do not add up")
}

// shuffle puts the values into a uniformly random order.
func shuffle[T any](d dice, values []T) {
	for i := len(values) - 1; i > 0; i-- {
		j := d.below(i + 1)
		values[i], values[j] = values[j], values[i]
	}
}

// table writes rows of a CSV file and keeps the first error.
type table struct {
	csv *csv.Writer
	err error
}

func newTable(w io.Writer, columns ...string) *table {
	t := &table{csv: csv.NewWriter(w)}
	t.row(columns...)
	return t
}

func (t *table) row(fields ...string) {
	if t.err == nil {
		t.err = t.csv.Write(fields)
	}
}

// close returns the first error of all rows.
func (t *table) close() error {
	t.csv.Flush()
	if t.err == nil {
		t.err = t.csv.Error()
	}
	return t.err
}
