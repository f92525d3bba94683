package cli

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/shopspring/decimal"
	"golang.org/x/sys/unix"

	"quartermaster/adapters/commandline"
	"quartermaster/domain"
	"quartermaster/projections"
)

// Output formats, the values of -o.
const (
	asTable = "table" // as wide as the terminal
	asWide  = "wide"  // all columns, unclipped
	asJSON  = "json"
	asCSV   = "csv" // the first or main table of the answer
)

// usualWidth is the width of tables without a terminal.
const usualWidth = 100

// leastWidth is the minimum width of a clipped column.
const leastWidth = 12

// leastOf returns the minimum width of a clipped column. Columns that name the row keep the width
// of a name.
func (g *grid) leastOf(i int) int {
	if i == 0 || g.title(i) == "name" {
		return widest
	}
	return leastWidth
}

// column describes a column by its title, in every table that has it.
type column struct {
	key   string // in CSV; "": the title in snake case
	wide  bool   // hidden first if the table is too wide
	whole bool   // never clipped, because people copy it
}

// columns is the registry of columns. A column that is not listed is shown in every format, and
// its CSV key is the title in snake case.
var columns = map[string]column{
	"":                               {key: "name"},
	"day":                            {whole: true},
	"hour":                           {whole: true},
	"unobserved":                     {wide: true},
	"unprovisioned":                  {wide: true},
	"account":                        {wide: true},
	"allocation":                     {whole: true},
	"all-in hourly":                  {key: "hourly"},
	"CPU":                            {key: "cpu_cores", wide: true},
	"change %":                       {key: "change_percent"},
	"component, cluster, deployment": {key: "step"},
	"capacity":                       {key: "guarantees_capacity", wide: true},
	"digest":                         {wide: true},
	"event":                          {whole: true},
	"first UUID":                     {key: "first_uuid", wide: true},
	"folded by":                      {wide: true},
	"GPU":                            {key: "gpu_model"},
	"GPU model":                      {key: "gpu_model"},
	"GPUs":                           {key: "gpus"},
	"gpu memory":                     {wide: true},
	"last heard":                     {key: "heard_until", wide: true},
	"id":                             {whole: true},
	"in effect from":                 {key: "effective", wide: true},
	"in service from":                {wide: true},
	"invoice":                        {whole: true},
	"issuer":                         {wide: true},
	"lines":                          {wide: true},
	"kv cache":                       {key: "kv_cache_percent"},
	"match_method":                   {key: "match_method"},
	"memory GiB":                     {key: "memory_gib", wide: true},
	"method":                         {wide: true},
	"notice by":                      {wide: true},
	"incl. for others":               {key: "of_it_for_others"},
	"incl. held":                     {key: "of_it_held"},
	"incl. penalty":                  {key: "penalty", wide: true},
	"incl. unused":                   {key: "of_them_unused"},
	"other months":                   {wide: true},
	"p95":                            {key: "p95"},
	"plan":                           {whole: true},
	"provider":                       {wide: true},
	"resource id":                    {wide: true},
	"rounding":                       {key: "rounding_adjustment", wide: true},
	"simulation":                     {whole: true},
	"snapshot":                       {whole: true},
	"source":                         {whole: true},
	"owners":                         {wide: true},
	"stranded":                       {wide: true},
	"stranded at low demand":         {wide: true},
	"supplier class":                 {key: "provider_class"},
	"takes no effect because":        {key: "refused"},
	"wait p95":                       {wide: true},
	"upfront":                        {wide: true},
	"requirement":                    {key: "detail"},
	"description":                    {key: "doc"},
	"unusable":                       {key: "useless"},
	"valid":                          {key: "holds"},
	"nodes ruled out, over all pods": {key: "nodes_ruled_out"},
}

// keyOf is the name of a column in CSV.
func keyOf(title string) string {
	if c := columns[title]; c.key != "" {
		return c.key
	}
	key := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == '%':
			return 'p'
		}
		return '_'
	}, title)
	for strings.Contains(key, "__") {
		key = strings.ReplaceAll(key, "__", "_")
	}
	return strings.Trim(key, "_")
}

// cell is a value with different texts in tables and in CSV.
type cell struct{ shown, raw string }

// String returns the text for tables.
func (c cell) String() string { return c.shown }

// grid is a table of an answer.
type grid struct {
	a       *Program
	titles  []string
	rows    []table.Row
	lines   []int // rows with a separator before them
	right   map[int]bool
	main    bool     // the table for CSV
	names   int      // leading columns that identify rows: never clipped
	spare   []string // more titles to hide first, like the registry's wide ones
	vital   []string // titles of columns that are never hidden
	titled  int      // trailing columns that the heading states: CSV only
	omitted []string // notes about rows that are not shown
}

// table starts a table. CSV has the main table of an answer, or else the first.
func (a *Program) table(titles ...any) *grid {
	g := &grid{a: a, right: map[int]bool{}}
	for _, t := range titles {
		g.titles = append(g.titles, fmt.Sprint(t))
	}
	return g
}

// AppendRow adds a row.
func (g *grid) AppendRow(row table.Row) { g.rows = append(g.rows, row) }

// AppendNote adds a line below the table, such as the number of omitted rows.
func (g *grid) AppendNote(format string, args ...any) {
	g.omitted = append(g.omitted, fmt.Sprintf(format, args...))
}

// AppendSeparator draws a line. The rows after it are totals.
func (g *grid) AppendSeparator() { g.lines = append(g.lines, len(g.rows)) }

// SetColumnConfigs aligns columns.
func (g *grid) SetColumnConfigs(configs []table.ColumnConfig) {
	for _, c := range configs {
		g.right[c.Number-1] = c.Align == text.AlignRight
	}
}

// Render writes the table.
func (g *grid) Render() {
	if g.a.output == asCSV {
		switch kept := g.a.csv; {
		case kept == nil || g.main && !kept.main:
			g.a.csv = g
		case g.main && slices.Equal(kept.titles, g.titles): // of another region
			kept.rows = append(kept.rows, g.rows...)
		}
		return
	}
	shown := make([]int, len(g.titles))
	for i := range shown {
		shown[i] = i
	}
	n := len(g.titles)
	if g.titled > 0 {
		shown = shown[:n-g.titled]
	}
	for _, row := range g.rows {
		n = max(n, len(row))
	}
	for i := len(g.titles); i < n; i++ {
		shown = append(shown, i)
	}
	most := make([]int, n) // 0: whole
	wide := []int{}
	var notes []string
	if g.a.output != asWide {
		f := g.fit(shown, cmp.Or(g.a.width, widthOf(g.a.out)))
		shown, most, wide, notes = f.shown, f.most, f.wide, f.notes()
	}
	t := table.NewWriter()
	t.SetOutputMirror(g.a.out)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Format.Header = 0
	style.Format.HeaderVAlign = text.VAlignBottom
	t.SetStyle(style)
	if len(g.titles) > 0 {
		t.AppendHeader(g.row(shown, most, func(i int) any {
			if i < len(wide) {
				return text.WrapSoft(g.title(i), wide[i])
			}
			return g.title(i)
		}))
	}
	var configs []table.ColumnConfig
	for at, i := range shown {
		if g.right[i] {
			configs = append(configs, table.ColumnConfig{
				Number: at + 1, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight,
			})
		}
	}
	t.SetColumnConfigs(configs)
	for k, row := range g.rows {
		if slices.Contains(g.lines, k) {
			t.AppendSeparator()
		}
		t.AppendRow(g.row(shown, most, func(i int) any {
			if i < len(row) {
				return row[i]
			}
			return ""
		}))
	}
	t.Render()
	for _, note := range slices.Concat(g.omitted, notes) {
		fmt.Fprintln(g.a.out, note)
	}
}

func (g *grid) title(i int) string {
	if i < len(g.titles) {
		return g.titles[i]
	}
	return ""
}

func (g *grid) row(shown, most []int, value func(i int) any) table.Row {
	out := make(table.Row, len(shown))
	for at, i := range shown {
		v := value(i)
		if most[i] > 0 {
			v = domain.Clip(fmt.Sprint(v), most[i])
		}
		out[at] = v
	}
	return out
}

// fitted is the layout of a table within a width.
type fitted struct {
	shown  []int    // columns
	wide   []int    // width of each column; titles are wrapped to it
	most   []int    // maximum length of each column's texts, 0: unlimited
	same   []string // columns with the same value in every row, as "title value"
	hidden []string // titles of columns that do not fit
}

// notes describe what a fitted table does not show.
func (f *fitted) notes() (notes []string) {
	if len(f.same) > 0 {
		notes = append(notes, "in every row: "+strings.Join(f.same, ", "))
	}
	hidden := f.hidden
	if slices.ContainsFunc(f.most, func(n int) bool { return n > 0 }) {
		hidden = append(hidden, "the ends of clipped texts")
	}
	if len(hidden) > 0 {
		notes = append(notes, "not shown: "+strings.Join(hidden, ", ")+"; -o wide shows all")
	}
	return notes
}

// fit lays a table out within a width. It applies these steps until the table fits:
//  1. wrap titles;
//  2. hide columns without values;
//  3. move texts that are equal in every row below the table;
//  4. hide wide and spare columns, last first, those that are 0 in every row before others;
//  5. clip texts;
//  6. hide other columns, last first.
//
// Columns that identify rows are never hidden, and neither are vital ones.
func (g *grid) fit(shown []int, width int) *fitted {
	wide := make([]int, len(shown))
	f := &fitted{shown: slices.Clone(shown), wide: wide, most: make([]int, len(shown))}
	titles := make([]int, len(shown))
	cells := make([]int, len(shown))
	for _, i := range shown {
		titles[i] = text.StringWidthWithoutEscSequences(g.title(i))
		for _, row := range g.rows {
			if i < len(row) {
				cells[i] = max(cells[i], text.StringWidthWithoutEscSequences(fmt.Sprint(row[i])))
			}
		}
		wide[i] = max(titles[i], cells[i])
	}
	over := func() int {
		sum := 0
		for _, i := range f.shown {
			sum += wide[i] + 2 // a space on both sides
		}
		return sum - width
	}
	if over() > 0 {
		for _, i := range shown {
			wide[i] = cells[i]
			for word := range strings.FieldsSeq(g.title(i)) {
				wide[i] = max(wide[i], text.StringWidthWithoutEscSequences(word))
			}
		}
	}
	// leaveOut removes columns, last first, and calls name for each, until the rest fits.
	leaveOut := func(may func(i int) bool, name func(i int)) {
		for k := len(f.shown) - 1; k >= 0 && over() > 0; k-- {
			if i := f.shown[k]; i >= max(1, g.names) && !g.must(i) && may(i) {
				f.shown = slices.Delete(f.shown, k, k+1)
				name(i)
			}
		}
	}
	hide := func(i int) { f.hidden = append(f.hidden, g.title(i)) }
	spare := func(i int) bool {
		return columns[g.title(i)].wide || slices.Contains(g.spare, g.title(i))
	}
	leaveOut(func(i int) bool { return cells[i] == 0 }, hide)
	leaveOut(
		func(i int) bool { return !g.right[i] && g.same(i) != "" },
		func(i int) { f.same = append(f.same, g.title(i)+" "+g.same(i)) },
	)
	leaveOut(func(i int) bool { return spare(i) && g.zero(i) }, hide)
	leaveOut(spare, hide)
	for over() > 0 {
		longest := -1
		for _, i := range f.shown {
			if i >= g.names && !g.right[i] && !columns[g.title(i)].whole && wide[i] > g.leastOf(i) && (longest < 0 || wide[i] > wide[longest]) {
				longest = i
			}
		}
		if longest < 0 {
			break
		}
		wide[longest] = max(g.leastOf(longest), wide[longest]-over())
		f.most[longest] = wide[longest]
	}
	// If the columns that must stay are too wide by themselves, hiding others does not help.
	stay := 0
	for _, i := range f.shown {
		if i < max(1, g.names) || columns[g.title(i)].whole || g.must(i) {
			stay += wide[i] + 2
		}
	}
	if stay <= width {
		leaveOut(func(i int) bool { return !columns[g.title(i)].whole }, hide)
	}
	for i := range f.most {
		if !slices.Contains(f.shown, i) {
			f.most[i] = 0
		}
	}
	slices.Reverse(f.same)
	slices.Reverse(f.hidden)
	return f
}

// must reports whether a column is vital.
func (g *grid) must(i int) bool { return slices.Contains(g.vital, g.title(i)) }

// zero reports whether a column is 0 in every row.
func (g *grid) zero(i int) bool {
	return !slices.ContainsFunc(g.rows, func(row table.Row) bool {
		return i < len(row) && strings.Trim(fmt.Sprint(row[i]), "0.") != ""
	})
}

// same returns the text that a column has in every data row. It returns "" if rows differ, if
// there are fewer than two, or for numbers, which readers expect in their column.
func (g *grid) same(i int) string {
	value, n := "", 0
	for k, row := range g.rows {
		if len(g.lines) > 0 && k >= g.lines[0] {
			continue
		}
		v := ""
		if i < len(row) {
			v = fmt.Sprint(row[i])
		}
		if v == "" || n > 0 && v != value || strings.HasSuffix(v, "…") { // clipped texts may differ
			return ""
		}
		value = v
		n++
	}
	if _, err := strconv.ParseFloat(strings.ReplaceAll(value, ",", ""), 64); n < 2 || err == nil {
		return ""
	}
	return value
}

// widthOf returns the line width of the terminal at w, or usualWidth.
func widthOf(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return usualWidth
}

// writeCSV writes the table that a command kept for CSV, in RFC 4180 format: column keys, raw
// values without digit grouping, and no totals.
func (a *Program) writeCSV(out io.Writer) error {
	g := a.csv
	if g == nil {
		return commandline.Usagef("this answer has no table: use -o table or -o json")
	}
	w := csv.NewWriter(out)
	head := make([]string, len(g.titles))
	for i, t := range g.titles {
		head[i] = keyOf(t)
		if slices.Contains(head[:i], head[i]) { // a quantity that is shown twice
			head[i] += "_" + strconv.Itoa(i+1)
		}
	}
	if err := w.Write(head); err != nil {
		return err
	}
	for k, row := range g.rows {
		if len(g.lines) > 0 && k >= g.lines[0] {
			continue
		}
		line := make([]string, len(head))
		for i := range line {
			if i < len(row) {
				line[i] = rawOf(row[i])
			}
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// grouped matches a number with digit grouping.
var grouped = regexp.MustCompile(`^-?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?$`)

// rawOf returns the CSV text of a value.
func rawOf(value any) string {
	if c, ok := value.(cell); ok {
		return c.raw
	}
	text := fmt.Sprint(value)
	if grouped.MatchString(text) {
		return strings.ReplaceAll(text, ",", "")
	}
	return text
}

// limit returns how many rows of a long table to show: all in CSV, else n.
func (a *Program) limit(n int) int {
	if a.output == asCSV {
		return math.MaxInt
	}
	return n
}

// count shows a number with digit grouping.
func count(n int) cell { return cell{comma(n), strconv.Itoa(n)} }

// named shows a name that may be long.
func named(s string) cell { return cell{clipped(s), s} }

// moneyCell shows an amount to the cent.
func moneyCell(d domain.Decimal) cell { return cell{money(d), d.String()} }

// hoursCell shows GPU time in hours.
func hoursCell(ms int64) cell {
	return cell{gpuHours(ms), decimal.NewFromInt(ms).DivRound(decimal.NewFromInt(projections.MsPerHour), 6).String()}
}
