package document

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed document.html
var htmlText string

var htmlTemplate = template.Must(template.New("document").Funcs(template.FuncMap{
	"kind":  func(b Block) string { return strings.TrimPrefix(fmt.Sprintf("%T", b), "document.") },
	"lines": func(s string) []string { return strings.Split(s, "\n") },
	"text":  func(b Block) string { return fmt.Sprint(b) },
}).Parse(htmlText))

// WriteHTML writes a document as HTML.
func WriteHTML(w io.Writer, d *Document) error {
	if err := d.check(); err != nil {
		return err
	}
	return htmlTemplate.Execute(w, d)
}
