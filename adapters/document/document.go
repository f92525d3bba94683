// Package document writes a document for people as HTML and as PDF, from one description: headings, paragraphs and
// tables.
//
// Equal documents give equal bytes: nothing depends on the clock or on randomness. Both formats have all texts, and in
// a PDF they can be selected and searched. Neither refers to other files. The font of a PDF is embedded; it has Latin,
// Greek and Cyrillic letters. Any other character is written as its number, as in [U+4E2D], and never left out.
package document

import (
	"fmt"
	"io"
	"time"
)

// Document is a description of a document.
type Document struct {
	// Title is the first heading, and the title of the file.
	Title string
	// Subject names the document at the foot of each page of a PDF.
	Subject string
	// Date is when a PDF says that it was made. It MUST follow from the content, and not be zero.
	Date   time.Time
	Blocks []Block
	Footer string
}

// Block is a part of a document.
type Block interface{ block() }

// Heading is a heading below the title.
type Heading string

// Paragraph is a paragraph. Lead comes before Text and is bold.
type Paragraph struct{ Lead, Text string }

// Warning is a paragraph in a box.
type Warning string

// Code is a line to be typed.
type Code string

// Table is a table. The first cell of a row names the row.
type Table struct {
	Caption string
	Columns []Column
	Rows    [][]string // a cell for each column; it may have several lines
	// Empty is what a table without rows says.
	Empty string
}

// Column is a column of a table.
type Column struct {
	Name   string
	Number bool // aligned to the right
}

func (Heading) block()   {}
func (Paragraph) block() {}
func (Warning) block()   {}
func (Code) block()      {}
func (*Table) block()    {}

// Formats are the formats of documents, by the ending of the name of their file.
var Formats = map[string]func(io.Writer, *Document) error{"html": WriteHTML, "pdf": WritePDF}

// check refuses a document whose bytes would depend on the clock, and tables with missing cells.
func (d *Document) check() error {
	if d.Date.IsZero() {
		return fmt.Errorf("document %q has no date", d.Title)
	}
	for _, b := range d.Blocks {
		t, ok := b.(*Table)
		if !ok {
			continue
		}
		for i, row := range t.Rows {
			if len(row) != len(t.Columns) {
				return fmt.Errorf("row %d of table %q has %d cells instead of %d", i+1, t.Caption, len(row), len(t.Columns))
			}
		}
	}
	return nil
}
