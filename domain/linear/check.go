package linear

import (
	"fmt"
	"math"
)

// Check returns why p is invalid, naming the column, row or entry.
func (p *Program) Check() error {
	columns, rows := len(p.Cost), len(p.RowLower)
	switch {
	case len(p.Lower) != columns || len(p.Upper) != columns:
		return fmt.Errorf("linear program: %d columns have %d lower and %d upper bounds", columns, len(p.Lower), len(p.Upper))
	case p.Whole != nil && len(p.Whole) != columns:
		return fmt.Errorf("linear program: %d columns, but Whole has %d", columns, len(p.Whole))
	case len(p.RowUpper) != rows:
		return fmt.Errorf("linear program: rows have %d lower and %d upper bounds", rows, len(p.RowUpper))
	case len(p.Start) != columns+1:
		return fmt.Errorf("linear program: %d columns need %d starts, not %d", columns, columns+1, len(p.Start))
	case len(p.Value) != len(p.Index):
		return fmt.Errorf("linear program: %d entries have %d values", len(p.Index), len(p.Value))
	case p.Start[0] != 0 || p.Start[columns] != len(p.Index):
		return fmt.Errorf("linear program: columns start at %d and end at %d, but there are %d entries",
			p.Start[0], p.Start[columns], len(p.Index))
	}
	for j := range columns {
		if math.IsNaN(p.Cost[j]) || math.IsInf(p.Cost[j], 0) {
			return fmt.Errorf("linear program: column %d costs %g", j, p.Cost[j])
		}
		if err := bounds(p.Lower[j], p.Upper[j]); err != nil {
			return fmt.Errorf("linear program: column %d: %w", j, err)
		}
	}
	for i := range rows {
		if err := bounds(p.RowLower[i], p.RowUpper[i]); err != nil {
			return fmt.Errorf("linear program: row %d: %w", i, err)
		}
	}
	for j := range columns {
		if p.Start[j+1] < p.Start[j] || p.Start[j+1] > len(p.Index) {
			return fmt.Errorf("linear program: column %d begins at entry %d and ends at %d of %d",
				j, p.Start[j], p.Start[j+1], len(p.Index))
		}
		last := -1
		for k := p.Start[j]; k < p.Start[j+1]; k++ {
			switch i := p.Index[k]; {
			case i < 0 || i >= rows:
				return fmt.Errorf("linear program: column %d has an entry in row %d of %d", j, i, rows)
			case i <= last:
				return fmt.Errorf("linear program: column %d has an entry in row %d after one in row %d: rows ascend", j, i, last)
			default:
				last = i
			}
			if math.IsNaN(p.Value[k]) || math.IsInf(p.Value[k], 0) {
				return fmt.Errorf("linear program: column %d has %g in row %d", j, p.Value[k], last)
			}
		}
	}
	if w := p.Warm; w != nil && (len(w.Columns) > columns || len(w.Rows) > rows) {
		return fmt.Errorf("linear program: a basis of %d columns and %d rows does not fit %d and %d",
			len(w.Columns), len(w.Rows), columns, rows)
	}
	return nil
}

func bounds(lower, upper float64) error {
	if math.IsNaN(lower) || math.IsNaN(upper) || lower > upper || math.IsInf(lower, 1) || math.IsInf(upper, -1) {
		return fmt.Errorf("bounds %g and %g", lower, upper)
	}
	return nil
}
