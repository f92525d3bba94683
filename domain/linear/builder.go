package linear

// A Builder makes a program entry by entry. Rows and columns are numbered from 0
// as they are added, and may be added at any time: also after Program, for the
// next one. The zero value is an empty program.
type Builder struct {
	cost, lower, upper []float64
	whole              []bool
	rowLower, rowUpper []float64
	entries            []entry
}

type entry struct {
	row, column int
	value       float64
}

// Row adds a row without entries and returns its number.
func (b *Builder) Row(lower, upper float64) int {
	b.rowLower = append(b.rowLower, lower)
	b.rowUpper = append(b.rowUpper, upper)
	return len(b.rowLower) - 1
}

// Column adds a variable and returns its number.
func (b *Builder) Column(cost, lower, upper float64) int {
	b.cost = append(b.cost, cost)
	b.lower = append(b.lower, lower)
	b.upper = append(b.upper, upper)
	b.whole = append(b.whole, false)
	return len(b.cost) - 1
}

// WholeColumn adds an integer variable and returns its number.
func (b *Builder) WholeColumn(cost, lower, upper float64) int {
	j := b.Column(cost, lower, upper)
	b.whole[j] = true
	return j
}

// Add adds value to the entry of a row and a column, both of which exist.
func (b *Builder) Add(row, column int, value float64) {
	b.entries = append(b.entries, entry{row, column, value})
}

// Bounds changes the bounds of a column, for example to fix it.
func (b *Builder) Bounds(column int, lower, upper float64) {
	b.lower[column], b.upper[column] = lower, upper
}

// Program returns the current program, which shares no memory with the builder. Entries at the same
// place are added up in insertion order.
func (b *Builder) Program() *Program {
	p := &Program{
		Cost:     append([]float64(nil), b.cost...),
		Lower:    append([]float64(nil), b.lower...),
		Upper:    append([]float64(nil), b.upper...),
		RowLower: append([]float64(nil), b.rowLower...),
		RowUpper: append([]float64(nil), b.rowUpper...),
	}
	for _, w := range b.whole {
		if w {
			p.Whole = append([]bool(nil), b.whole...)
			break
		}
	}
	// By row, then by column: the counting sort is stable.
	byRow := sorted(b.entries, len(b.rowLower), func(e entry) int { return e.row })
	byColumn := sorted(byRow, len(b.cost), func(e entry) int { return e.column })
	p.Start = append(make([]int, 0, len(b.cost)+1), 0)
	next := 0
	for j := range b.cost {
		from := len(p.Index)
		for ; next < len(byColumn) && byColumn[next].column == j; next++ {
			e := byColumn[next]
			if last := len(p.Index) - 1; last >= from && p.Index[last] == e.row {
				p.Value[last] += e.value
			} else {
				p.Index = append(p.Index, e.row)
				p.Value = append(p.Value, e.value)
			}
		}
		p.Start = append(p.Start, len(p.Index))
	}
	return p
}

func sorted(entries []entry, n int, key func(entry) int) []entry {
	at := make([]int, n+1)
	for _, e := range entries {
		at[key(e)+1]++
	}
	for i := range n {
		at[i+1] += at[i]
	}
	out := make([]entry, len(entries))
	for _, e := range entries {
		k := key(e)
		out[at[k]] = e
		at[k]++
	}
	return out
}
