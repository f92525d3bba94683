package document

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

func example(rows int) *Document {
	t := &Table{
		Caption: "Charged", Empty: "nothing",
		Columns: []Column{{Name: "Name"}, {Name: "Reason"}, {Name: "Effective per held hour", Number: true}, {Name: "Amount", Number: true}},
	}
	for n := range rows {
		t.Rows = append(t.Rows, []string{
			fmt.Sprintf("cluster-%03d / ein-ziemlich-langer-Name-eines-Modells / H100 80GB", n), "late\nBillingLineRecorded Zażółć gęślą jaźń", "not measured",
			fmt.Sprintf("%d.25 EUR", 1_000_000+n),
		})
	}
	return &Document{
		Title: "Statement of 2026-05 for Ωμέγα", Subject: "2026-05/Ωμέγα/0123abcd", Date: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC),
		Footer: "Position: 1", Blocks: []Block{
			Paragraph{"Preliminary.", "The books are open."}, Warning("Not reconciled: Пример <b> 中文 😀"), t, &Table{Caption: "None", Columns: t.Columns, Empty: "none of it"},
			Heading("How to dispute it"), Code("quartermaster costs explain ALLOCATION"), Paragraph{Text: strings.Repeat("long", 200)},
		},
	}
}

var (
	streams = regexp.MustCompile(`(?s)stream\n(.*?)\nendstream`)
	shown   = regexp.MustCompile(`(?s)\(((?:\\.|[^\\)])*)\) ?Tj`)
)

// textOf returns the text of a PDF, as a reader of PDF finds it: the codes of the font are UTF-16.
func textOf(t *testing.T, pdf []byte) string {
	t.Helper()
	if !bytes.Contains(pdf, []byte("/ToUnicode")) || !bytes.Contains(pdf, []byte("/FontFile2")) {
		t.Fatal("a font is not embedded, or does not say which characters it draws")
	}
	var text strings.Builder
	for _, m := range streams.FindAllSubmatch(pdf, -1) {
		r, err := zlib.NewReader(bytes.NewReader(m[1]))
		if err != nil {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			continue
		}
		for _, s := range shown.FindAllSubmatch(content, -1) {
			var raw []byte
			for i := 0; i < len(s[1]); i++ {
				c := s[1][i]
				if c == '\\' {
					i++
					if c = s[1][i]; c == 'r' {
						c = '\r'
					}
				}
				raw = append(raw, c)
			}
			var codes []uint16
			for i := 0; i+1 < len(raw); i += 2 {
				codes = append(codes, uint16(raw[i])<<8|uint16(raw[i+1]))
			}
			text.WriteString(string(utf16.Decode(codes)) + "\n")
		}
	}
	return text.String()
}

func written(t *testing.T, format string, d *Document) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Formats[format](&b, d); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Equal documents have equal bytes, in both formats. The dates in a PDF are those of the document, not of the clock.
func TestEqualDocumentsHaveEqualBytes(t *testing.T) {
	for format := range Formats {
		once := written(t, format, example(50))
		for range 5 {
			if !bytes.Equal(once, written(t, format, example(50))) {
				t.Errorf("%s: the same document has other bytes", format)
			}
		}
		if bytes.Equal(once, written(t, format, example(51))) {
			t.Errorf("%s: another document has the same bytes", format)
		}
		dates := regexp.MustCompile(`Date \(D:(\d+)`).FindAllSubmatch(once, -1)
		if want := map[string]int{"html": 0, "pdf": 2}[format]; len(dates) != want {
			t.Errorf("%s: it has %d dates", format, len(dates))
		}
		for _, d := range dates {
			if string(d[1]) != "20260601000000" {
				t.Errorf("%s: it has the date %s", format, d[1])
			}
		}
	}
}

// A PDF has every text of the document, over as many pages as it takes.
func TestPDFHasAllText(t *testing.T) {
	pdf := written(t, "pdf", example(200))
	text := textOf(t, pdf)
	for _, want := range []string{
		"Statement of 2026-05 for Ωμέγα", "Preliminary.", "The books are open.", "Not reconciled: Пример <b> [U+4E2D][U+6587] [U+1F600]",
		"Charged", "1000000.25 EUR", "1000199.25 EUR", "not measured", "none of it", "How to dispute it",
		"    quartermaster costs explain ALLOCATION", "Position: 1", "page 1 of ", "page 3 of ", "2026-05/Ωμέγα/0123abcd",
	} {
		if !strings.Contains(text, want+"\n") && !(strings.HasSuffix(want, " ") && strings.Contains(text, want)) {
			t.Errorf("it has no %q", want)
		}
	}
	if t.Failed() {
		t.Log(text[:min(len(text), 3000)])
	}
	pages := bytes.Count(pdf, []byte("/Type /Page\n"))
	if pages < 5 {
		t.Errorf("200 rows take %d pages", pages)
	}
	if n := strings.Count(text, fmt.Sprintf("of %d\n", pages)); n != pages {
		t.Errorf("%d of %d pages say how many there are", n, pages)
	}
	if n := strings.Count(strings.ReplaceAll(text, "\n", ""), "longlonglong"); n < 50 {
		t.Error("a long word was cut")
	}
	if names := strings.Count(text, "Reason\n"); names < pages-1 {
		t.Errorf("%d heads of tables on %d pages", names, pages)
	}
	joined := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{"Zażółć gęślą jaźń"} {
		if !strings.Contains(joined, want) {
			t.Errorf("it has no %q", want)
		}
	}
}

// HTML shows the text as it is, and runs none of it.
func TestHTMLEscapesText(t *testing.T) {
	html := string(written(t, "html", example(1)))
	for _, want := range []string{"Пример &lt;b&gt; 中文 😀", "<strong>Preliminary.</strong> The books are open.", `<td colspan="4">none of it</td>`,
		`<td>late<br>BillingLineRecorded Zażółć gęślą jaźń</td><td class="n">not measured</td>`, `<code>quartermaster costs explain ALLOCATION</code>`} {
		if !strings.Contains(html, want) {
			t.Errorf("it has no %q:\n%s", want, html)
		}
	}
}

func TestIncompleteDocumentsAreRefused(t *testing.T) {
	undated, short := example(1), example(1)
	undated.Date = time.Time{}
	short.Blocks[2].(*Table).Rows[0] = []string{"x"}
	for format, write := range Formats {
		for _, d := range []*Document{undated, short} {
			if err := write(io.Discard, d); err == nil {
				t.Errorf("%s: no error", format)
			}
		}
	}
}

func BenchmarkPDF(b *testing.B) {
	d := example(30)
	for b.Loop() {
		var out bytes.Buffer
		if err := WritePDF(&out, d); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(out.Len()), "bytes")
	}
}
