package linear_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/linear"
)

var inf = math.Inf(1)

func small() *linear.Program {
	return &linear.Program{
		Cost: []float64{2, 3}, Lower: []float64{0, 0}, Upper: []float64{inf, 5},
		RowLower: []float64{4, -inf}, RowUpper: []float64{inf, 3},
		Start: []int{0, 2, 3}, Index: []int{0, 1, 0}, Value: []float64{1, 1, 1},
	}
}

// The error of an invalid program names the column, row or entry.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		want string
		do   func(p *linear.Program)
	}{
		{"", func(*linear.Program) {}},
		{"", func(p *linear.Program) { *p = linear.Program{Start: []int{0}} }},
		{"", func(p *linear.Program) { p.Lower[0], p.Upper[0] = -inf, inf }},
		{"", func(p *linear.Program) { p.Warm = &linear.Basis{Columns: []int8{1}} }},
		{"0 columns need 1 starts, not 0", func(p *linear.Program) { *p = linear.Program{} }},
		{"2 columns have 1 lower and 2 upper bounds", func(p *linear.Program) { p.Lower = p.Lower[:1] }},
		{"2 columns, but Whole has 1", func(p *linear.Program) { p.Whole = []bool{true} }},
		{"2 lower and 1 upper bounds", func(p *linear.Program) { p.RowUpper = p.RowUpper[:1] }},
		{"3 entries have 2 values", func(p *linear.Program) { p.Value = p.Value[:2] }},
		{"columns start at 0 and end at 2, but there are 3 entries", func(p *linear.Program) { p.Start[2] = 2 }},
		{"column 1 costs NaN", func(p *linear.Program) { p.Cost[1] = math.NaN() }},
		{"column 0 costs -Inf", func(p *linear.Program) { p.Cost[0] = -inf }},
		{"column 1: bounds 6 and 5", func(p *linear.Program) { p.Lower[1] = 6 }},
		{"column 1: bounds NaN and 5", func(p *linear.Program) { p.Lower[1] = math.NaN() }},
		{"column 0: bounds +Inf and +Inf", func(p *linear.Program) { p.Lower[0] = inf }},
		{"column 0: bounds -Inf and -Inf", func(p *linear.Program) { p.Lower[0], p.Upper[0] = -inf, -inf }},
		{"row 1: bounds 4 and 3", func(p *linear.Program) { p.RowLower[1] = 4 }},
		{"row 0: bounds 4 and NaN", func(p *linear.Program) { p.RowUpper[0] = math.NaN() }},
		{"column 0 begins at entry 0 and ends at 4 of 3", func(p *linear.Program) { p.Start[1] = 4 }},
		{"column 0 begins at entry 0 and ends at -1 of 3", func(p *linear.Program) { p.Start[1] = -1 }},
		{"entry in row 2 of 2", func(p *linear.Program) { p.Index[1] = 2 }},
		{"entry in row -1 of 2", func(p *linear.Program) { p.Index[0] = -1 }},
		{"entry in row 0 after one in row 0", func(p *linear.Program) { p.Index[1] = 0 }},
		{"column 1 has +Inf in row 0", func(p *linear.Program) { p.Value[2] = inf }},
		{"a basis of 3 columns and 0 rows", func(p *linear.Program) { p.Warm = &linear.Basis{Columns: make([]int8, 3)} }},
	} {
		p := small()
		c.do(p)
		switch err := p.Check(); {
		case c.want == "" && err != nil:
			t.Errorf("refused: %v", err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("want an error with %q, got %v", c.want, err)
		}
	}
}

// The program is the same and valid for every order of entries.
func TestBuilder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, columns := rapid.IntRange(1, 5).Draw(t, "rows"), rapid.IntRange(1, 5).Draw(t, "columns")
		var b linear.Builder
		want := make([][]float64, columns)
		has := make([][]bool, columns)
		for j := range columns {
			if rapid.Bool().Draw(t, "whole") {
				b.WholeColumn(float64(j), 0, inf)
			} else {
				b.Column(float64(j), -1, 1)
			}
			want[j], has[j] = make([]float64, rows), make([]bool, rows)
		}
		for i := range rows {
			b.Row(float64(i), inf)
		}
		for range rapid.IntRange(0, 30).Draw(t, "entries") {
			i, j := rapid.IntRange(0, rows-1).Draw(t, "row"), rapid.IntRange(0, columns-1).Draw(t, "column")
			v := float64(rapid.IntRange(-9, 9).Draw(t, "value"))
			b.Add(i, j, v)
			want[j][i] += v
			has[j][i] = true
		}
		p := b.Program()
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		for j := range columns {
			got, there := make([]float64, rows), make([]bool, rows)
			for k := p.Start[j]; k < p.Start[j+1]; k++ {
				got[p.Index[k]], there[p.Index[k]] = p.Value[k], true
			}
			if !reflect.DeepEqual(got, want[j]) || !reflect.DeepEqual(there, has[j]) {
				t.Fatalf("column %d is %v, want %v", j, got, want[j])
			}
		}
		if again := b.Program(); !reflect.DeepEqual(p, again) {
			t.Fatal("the same builder made another program")
		}
		if p.Whole != nil && len(p.Whole) != columns {
			t.Fatalf("%d columns, %d of them whole or not", columns, len(p.Whole))
		}
	})
}
