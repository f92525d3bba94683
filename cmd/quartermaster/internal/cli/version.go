package cli

import (
	"bytes"
	"encoding/json"
	"fmt"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections"
)

// showProgram names the program under a report. The report itself names its methods.
func (a *Program) showProgram() {
	p := app.Program()
	on := ""
	if p.Date != "" {
		on = " of " + p.Date
	}
	fmt.Fprintf(a.out, "program: quartermaster %s, commit %.12s%s, %s\n", p.Version, p.Commit, on, projections.Method)
}

// answerReport writes a report as one JSON document that names the program.
func (a *Program) answerReport(report any) error {
	if c, ok := report.(interface{ Note() string }); ok && c.Note() != "" {
		a.Lacks = true
	}
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(report); err != nil {
		return err
	}
	by, err := json.MarshalIndent(app.Program(), "  ", "  ")
	if err != nil {
		return err
	}
	rest, ok := bytes.CutPrefix(doc.Bytes(), []byte("{\n"))
	if !ok {
		return fmt.Errorf("a report must be a JSON object with keys, not %.20q", doc.Bytes())
	}
	_, err = fmt.Fprintf(a.out, "{\n  \"program\": %s,\n%s", by, rest)
	return err
}
