package document

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"

	"codeberg.org/go-fonts/liberation/liberationsansbold"
	"codeberg.org/go-fonts/liberation/liberationsansregular"
	"codeberg.org/go-pdf/fpdf"
	"golang.org/x/image/font/sfnt"
)

// Sizes of a page, in millimetres, and of its letters, in points.
const (
	pageWidth = 210.0
	margin    = 15.0
	width     = pageWidth - 2*margin
	bottom    = 18.0 // with the line at the foot of a page
	gap       = 1.5  // between the columns of a table
	line      = 1.25 // height of a line, by the size of its letters
	point     = 25.4 / 72

	titleSize, headingSize, textSize, tableSize, smallSize = 16, 12, 9.5, 7.5, 7
)

const sans = "sans"

// WritePDF writes a document as PDF, on A4.
func WritePDF(w io.Writer, d *Document) error {
	if err := d.check(); err != nil {
		return err
	}
	f := fpdf.New("P", "mm", "A4", "")
	f.SetCreationDate(d.Date.UTC())
	f.SetModificationDate(d.Date.UTC())
	f.SetCatalogSort(true)
	f.SetProducer("quartermaster", true)
	f.SetTitle(d.Title, true)
	f.SetLang("en")
	f.SetMargins(margin, margin, margin)
	f.SetAutoPageBreak(true, bottom)
	f.SetCellMargin(0)
	f.AddUTF8FontFromBytes(sans, "", liberationsansregular.TTF)
	f.AddUTF8FontFromBytes(sans, "B", liberationsansbold.TTF)
	f.AliasNbPages("{pages}")
	f.SetFooterFunc(func() {
		f.SetY(-12)
		f.SetFont(sans, "", smallSize)
		f.CellFormat(width, 4, drawable(d.Subject), "", 0, "L", false, 0, "")
		f.SetX(margin)
		f.CellFormat(width, 4, fmt.Sprintf("page %d of {pages}", f.PageNo()), "", 0, "R", false, 0, "")
	})
	f.AddPage()
	p := &page{f}
	p.text("B", titleSize, d.Title)
	for _, b := range d.Blocks {
		switch b := b.(type) {
		case Heading:
			p.text("B", headingSize, string(b))
		case Paragraph:
			p.text("B", textSize, b.Lead)
			p.text("", textSize, b.Text)
		case Warning:
			f.SetLineWidth(0.5)
			f.SetFont(sans, "B", textSize)
			f.MultiCell(width, textSize*point*line+1, drawable(string(b)), "1", "L", false)
			f.Ln(2)
			f.SetLineWidth(0.2)
		case Code:
			p.text("", textSize, "    "+string(b))
		case *Table:
			p.table(b)
		}
	}
	p.text("", smallSize, d.Footer)
	return f.Output(w)
}

// page writes on the current page of a document.
type page struct{ *fpdf.Fpdf }

// text writes a paragraph, if it has any text.
func (p *page) text(style string, size float64, text string) {
	if text == "" {
		return
	}
	p.SetFont(sans, style, size)
	height := size * point * line
	for _, l := range p.split(text, width) {
		p.CellFormat(width, height, l, "", 1, "L", false, 0, "")
	}
	p.Ln(height / 2)
}

// split breaks a text into lines of a width, in the current font. A word that is longer than a line is broken too.
func (p *page) split(text string, width float64) (lines []string) {
	for _, given := range strings.Split(drawable(text), "\n") {
		l := ""
		for _, word := range strings.SplitAfter(given, " ") {
			if l != "" && p.GetStringWidth(strings.TrimRight(l+word, " ")) > width {
				lines, l = append(lines, strings.TrimRight(l, " ")), ""
			}
			for p.GetStringWidth(strings.TrimRight(word, " ")) > width {
				n, runes := 1, []rune(word)
				for n < len(runes)-1 && p.GetStringWidth(string(runes[:n+1])) <= width {
					n++
				}
				if n == len(runes) {
					break // not even one letter fits
				}
				lines, word = append(lines, string(runes[:n])), string(runes[n:])
			}
			l += word
		}
		lines = append(lines, strings.TrimRight(l, " "))
	}
	return lines
}

// table writes a table. A row that does not fit on a page goes on on the next one, below the head.
func (p *page) table(t *Table) {
	height := tableSize * point * line
	widths := p.widths(t)
	head := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		head[i] = c.Name
	}
	_, pageHeight := p.GetPageSize()
	limit := pageHeight - bottom
	if p.GetY()+6*height > limit {
		p.AddPage() // a caption stays with the first rows
	}
	p.SetFont(sans, "B", textSize)
	for _, l := range p.split(t.Caption, width) {
		p.CellFormat(width, textSize*point*line, l, "", 1, "L", false, 0, "")
	}
	row := func(style string, cells []string, again bool) {
		lines, most := make([][]string, len(cells)), 1
		for i, c := range cells {
			p.SetFont(sans, cellStyle(style, i), tableSize)
			lines[i] = p.split(c, widths[i])
			most = max(most, len(lines[i]))
		}
		if y := p.GetY(); again && y+float64(most)*height > limit && float64(most)*height < limit-margin-8*height {
			p.SetY(limit) // it fits on the next page
		}
		for n := range most {
			if p.GetY()+height > limit && again {
				p.AddPage()
				p.row(t, widths, "B", p.all(head, widths))
			}
			of := make([]string, len(cells))
			for i := range cells {
				if n < len(lines[i]) {
					of[i] = lines[i][n]
				}
			}
			p.row(t, widths, style, [][]string{of})
		}
		p.Line(margin, p.GetY(), margin+width, p.GetY())
	}
	row("B", head, false)
	for _, cells := range t.Rows {
		row("", cells, true)
	}
	if len(t.Rows) == 0 {
		p.SetFont(sans, "", tableSize)
		p.CellFormat(width, height, drawable(t.Empty), "", 1, "L", false, 0, "")
	}
	p.Ln(3)
}

// cellStyle is the style of a cell: the first cell names the row.
func cellStyle(style string, column int) string {
	if column == 0 {
		return "B"
	}
	return style
}

// all splits the cells of a head into lines.
func (p *page) all(head []string, widths []float64) (rows [][]string) {
	p.SetFont(sans, "B", tableSize)
	for i, c := range head {
		for n, l := range p.split(c, widths[i]) {
			if n == len(rows) {
				rows = append(rows, make([]string, len(head)))
			}
			rows[n][i] = l
		}
	}
	return rows
}

// row writes lines of cells.
func (p *page) row(t *Table, widths []float64, style string, lines [][]string) {
	height := tableSize * point * line
	for _, cells := range lines {
		x := margin
		for i, c := range cells {
			align := "L"
			if t.Columns[i].Number {
				align = "R"
			}
			p.SetFont(sans, cellStyle(style, i), tableSize)
			p.SetX(x)
			p.CellFormat(widths[i], height, c, "", 0, align, false, 0, "")
			x += widths[i] + gap
		}
		p.Ln(height)
	}
}

// widths returns the widths of the columns: of numbers, what they take; the rest is shared by the other columns, by
// their longest lines.
func (p *page) widths(t *Table) []float64 {
	natural := make([]float64, len(t.Columns))
	texts, numbers := 0.0, 0.0
	for i, c := range t.Columns {
		p.SetFont(sans, "B", tableSize)
		if c.Number {
			for _, word := range strings.Fields(drawable(c.Name)) {
				natural[i] = max(natural[i], p.GetStringWidth(word)+0.2)
			}
		} else {
			natural[i] = p.GetStringWidth(drawable(c.Name)) + 0.2
		}
		p.SetFont(sans, cellStyle("", i), tableSize)
		for _, row := range t.Rows {
			for _, l := range strings.Split(row[i], "\n") {
				natural[i] = max(natural[i], p.GetStringWidth(drawable(l))+0.2)
			}
		}
		if c.Number {
			numbers += natural[i]
		} else {
			texts += natural[i]
		}
	}
	room := width - gap*float64(len(t.Columns)-1)
	least := room / 4 // for texts
	if numbers > room-least {
		for i, c := range t.Columns {
			if c.Number {
				natural[i] *= (room - least) / numbers
			}
		}
		numbers = room - least
	}
	for i, c := range t.Columns {
		if !c.Number && texts > 0 {
			natural[i] *= (room - numbers) / texts
		}
	}
	return natural
}

var font = sync.OnceValues(func() (*sfnt.Font, error) { return sfnt.Parse(liberationsansregular.TTF) })

// drawable returns a text in which each character that the font does not have, or that is not written from left to
// right, stands as its number: the text in a PDF is drawn letter by letter.
func drawable(text string) string {
	known, err := font()
	if err != nil {
		panic(fmt.Sprintf("the embedded font: %v", err)) // it is part of the program
	}
	var b strings.Builder
	var buf sfnt.Buffer
	for _, r := range text {
		if r == '\n' {
			b.WriteByte('\n')
			continue
		}
		if r == '\t' {
			r = ' '
		}
		g, err := known.GlyphIndex(&buf, r)
		if err != nil || g == 0 || r > 0xffff || unicode.Is(unicode.Hebrew, r) || unicode.Is(unicode.Arabic, r) ||
			unicode.IsControl(r) || unicode.Is(unicode.M, r) || unicode.Is(unicode.Cf, r) {
			fmt.Fprintf(&b, "[U+%04X]", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
