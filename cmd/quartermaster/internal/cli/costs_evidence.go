package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/document"
	"quartermaster/adapters/tabular"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections/costs"
)

// The files of an evidence pack beside its tables.
const (
	evidenceManifest = "manifest.json"
	evidenceIndex    = "index.html"
)

func (a *Program) costEvidenceCommand() *cobra.Command {
	var month, from, to, out, check, asOf string
	cmd := &cobra.Command{
		Use:   "evidence --period MONTH --out DIR | --check DIR",
		Short: "Write the folder of files that an auditor asks for, or check one",
		Long: `Evidence writes a folder about billing months. index.html can be read without tools: it says how each
month was closed and by whom, has the control totals, and describes every file and column. The tables
are CSV files:

  sources        every imported file: SHA-256, receipt time, records
  totals         record counts and control totals by month, account and currency
  completeness   each account and month: invoiced, billed, accrued or missing
  invoices       each invoice against its lines
  coverage       what became of the time that was paid for, and what telemetry lacks
  gaps           events that have not arrived
  quarantine     records that could not be folded, and what became of them
  exceptions     exceptions, and what became of them
  decisions      every signed decision: policies, mapping rules, rates, contracts, operators
  signers        every registered key
  closes, checks who prepared and approved each close, duties that are not separate, the checklist
  postings       what changed closed months, by type and cause
  checkpoints    signed statements of what the log has, with the signatures of witnesses
  exports        recorded exports
  denials        refused attempts about the books

manifest.json has the position of the log, the methods, policies and mapping rules of each month, and
the SHA-256 of every file. The same position gives the same bytes, with the same version of the program.

--check reads the manifest of a folder, compares the SHA-256 of every file, gathers everything again from
the log at the position of the manifest, and compares every byte. It names the first difference, and
exits with 1.`,
		Example: "  quartermaster costs evidence --period 2026-05 --out evidence-may\n" +
			"  quartermaster costs evidence --from 2026-01 --to 2026-04 --out evidence-q1\n" +
			"  quartermaster costs evidence --check evidence-may\n" +
			"  quartermaster costs evidence --check evidence-may -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check != "" {
				if month+from+to+out+asOf != "" {
					return commandline.Usagef("--check reads months and position from the manifest: leave out other flags")
				}
				v, err := a.checkEvidence(cmd, check)
				if err != nil {
					return err
				}
				if a.json {
					if err := a.answerJSON(v); err != nil {
						return err
					}
				}
				return a.showEvidenceCheck(v)
			}
			months, err := exportedMonths("period", month, from, to)
			if err != nil {
				return err
			}
			if out == "" {
				return commandline.Usagef("--out: name the folder to write")
			}
			e, err := a.caller().Evidence(cmd.Context(), app.At(asOf), months)
			if err != nil {
				return err
			}
			m, err := writeEvidence(out, e)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(m)
			}
			a.showEvidence(m, out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&month, "period", "", "billing month in UTC, for example 2026-05")
	f.StringVar(&from, "from", "", "first billing month, instead of --period")
	f.StringVar(&to, "to", "", "billing month after the last")
	f.StringVar(&out, "out", "", "folder to write, which must not exist")
	f.StringVar(&check, "check", "", "folder to check")
	asOfFlag(cmd, &asOf)
	return cmd
}

// evidenceContent is the content of a file of a pack.
type evidenceContent struct {
	app.EvidenceFile
	text []byte
}

// evidencePack returns the files of a pack without the manifest, in their order, and the manifest.
func evidencePack(e *app.Evidence) ([]evidenceContent, *app.EvidenceManifest, error) {
	m := &app.EvidenceManifest{
		Format: app.EvidenceFormat, Position: e.Position, Program: app.Program(), Methods: costs.CurrentMethods(), Checkpoint: e.Checkpoint,
		Months: e.Months,
	}
	var files []evidenceContent
	add := func(f app.EvidenceFile, text []byte) {
		sum := sha256.Sum256(text)
		f.Bytes, f.SHA256 = len(text), hex.EncodeToString(sum[:])
		files = append(files, evidenceContent{f, text})
	}
	for i := range e.Tables {
		t := &e.Tables[i]
		var b bytes.Buffer
		w := tabular.NewCSVWriter(&b, typedColumns(t.Columns))
		for _, row := range t.Rows {
			if err := w.Write(row); err != nil {
				return nil, nil, fmt.Errorf("write %s: %w", t.Name, err)
			}
		}
		if err := w.Close(); err != nil {
			return nil, nil, fmt.Errorf("write %s: %w", t.Name, err)
		}
		add(app.EvidenceFile{File: t.Name + ".csv", Doc: t.Doc, Rows: len(t.Rows), Columns: t.Columns}, b.Bytes())
	}
	for i := range files {
		m.Files = append(m.Files, files[i].EvidenceFile)
	}
	var b bytes.Buffer
	if err := document.WriteHTML(&b, evidenceDocument(m, e)); err != nil {
		return nil, nil, err
	}
	add(app.EvidenceFile{File: evidenceIndex, Doc: "What is in this folder, to be read first."}, b.Bytes())
	m.Files = append(m.Files, files[len(files)-1].EvidenceFile)
	return files, m, nil
}

// writeEvidence writes a pack into a new folder. The manifest is written last, so that a folder with one is whole.
func writeEvidence(dir string, e *app.Evidence) (*app.EvidenceManifest, error) {
	files, m, err := evidencePack(e)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("write evidence: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("write evidence: %w", err)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	files = append(files, evidenceContent{app.EvidenceFile{File: evidenceManifest}, append(text, '\n')})
	for _, f := range files {
		err := app.WriteWhole(filepath.Join(dir, f.File), func(w io.Writer) error {
			_, err := w.Write(f.text)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (a *Program) showEvidence(m *app.EvidenceManifest, dir string) {
	t := a.table("file", "rows", "bytes", "sha256")
	alignRight(t, 2, 3)
	for _, f := range m.Files {
		t.AppendRow(table.Row{f.File, comma(f.Rows), comma(f.Bytes), f.SHA256[:16]})
	}
	t.Render()
	for i := range m.Months {
		fmt.Fprintln(a.out, evidenceMonthText(&m.Months[i]))
	}
	fmt.Fprintf(a.out, "read %s first\nposition: %s\n", filepath.Join(dir, evidenceIndex), a.position(m.Position))
	fmt.Fprintf(a.out, "check it with: quartermaster costs evidence --check %s\n", dir)
}

func evidenceMonthText(m *app.EvidenceMonth) string {
	text := fmt.Sprintf("%s is %s", app.MonthName(m.Month), m.State)
	if m.Books != nil {
		text += fmt.Sprintf(", by %s and %s", clipped(m.Books.Prepared), clipped(m.Books.Approved))
	}
	if !m.Reconciled {
		text += "; its bills do not reconcile"
	}
	if len(m.Separation) > 0 {
		text += "; duties are not separate: " + strings.Join(m.Separation, "; ")
	}
	return text
}

// evidenceCheck is the result of gathering a pack again.
type evidenceCheck struct {
	Folder   string `json:"folder"`
	Position string `json:"position"`
	Files    int    `json:"files"` // that were compared
	// Equal: every byte of every file is what the log gives.
	Equal bool `json:"equal"`
	// Differences name the files that differ from the manifest or from the log, and how.
	Differences []string `json:"differences"`
}

// checkEvidence compares a folder with its manifest, and with what the log gives at the position of the manifest.
func (a *Program) checkEvidence(cmd *cobra.Command, dir string) (*evidenceCheck, error) {
	text, err := os.ReadFile(filepath.Join(dir, evidenceManifest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("check %s: it has no %s: %w", dir, evidenceManifest, err)
	}
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", dir, err)
	}
	m, err := app.ReadEvidenceManifest(text)
	if err != nil {
		return nil, commandline.Usagef("%s is not the manifest of an evidence pack: %w", filepath.Join(dir, evidenceManifest), err)
	}
	v := &evidenceCheck{Folder: dir, Position: m.Position, Differences: []string{}}
	differs := func(format string, args ...any) { v.Differences = append(v.Differences, fmt.Sprintf(format, args...)) }
	have := map[string][]byte{}
	for _, f := range m.Files {
		b, err := os.ReadFile(filepath.Join(dir, f.File))
		if errors.Is(err, fs.ErrNotExist) {
			differs("%s is missing", f.File)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", dir, err)
		}
		have[f.File] = b
		v.Files++
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != f.SHA256 {
			differs("%s does not have the SHA-256 of the manifest", f.File)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", dir, err)
	}
	for _, entry := range entries {
		if name := entry.Name(); name != evidenceManifest && !slices.ContainsFunc(m.Files, func(f app.EvidenceFile) bool { return f.File == name }) {
			differs("%s is not in the manifest", name)
		}
	}
	e, err := a.caller().EvidenceAgain(cmd.Context(), m)
	if err != nil {
		return nil, err
	}
	files, again, err := evidencePack(e)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, ok := have[f.File]
		if ok && !bytes.Equal(b, f.text) {
			differs("%s: %s", f.File, firstDifference(b, f.text))
		}
		if !ok && !slices.ContainsFunc(m.Files, func(of app.EvidenceFile) bool { return of.File == f.File }) {
			differs("%s is not in the manifest, and the log gives it", f.File)
		}
	}
	again.Program = m.Program
	want, err := json.MarshalIndent(again, "", "  ")
	if err != nil {
		return nil, err
	}
	if want = append(want, '\n'); !bytes.Equal(text, want) {
		differs("%s: %s", evidenceManifest, firstDifference(text, want))
	}
	for i := range m.Months {
		if of := m.Months[i].Methods; i < len(again.Months) && of != again.Months[i].Methods {
			differs("%s was divided by %s on %s: check it with a program that has these", app.MonthName(m.Months[i].Month), of.Attribution, of.Folds)
		}
	}
	v.Equal = len(v.Differences) == 0
	return v, nil
}

// firstDifference names the first line of a text that is not the wanted one.
func firstDifference(have, want []byte) string {
	h, w := bytes.Split(have, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range w {
		switch {
		case i >= len(h):
			return fmt.Sprintf("line %d is missing: %s", i+1, cellText(string(w[i])))
		case !bytes.Equal(h[i], w[i]):
			return fmt.Sprintf("line %d: expected %s, found %s", i+1, cellText(string(w[i])), cellText(string(h[i])))
		}
	}
	return fmt.Sprintf("line %d is too much: %s", len(w)+1, cellText(string(h[len(w)])))
}

func (a *Program) showEvidenceCheck(v *evidenceCheck) error {
	if !v.Equal {
		return &app.ConflictError{Err: fmt.Errorf("%s differs:\n  %s", v.Folder, strings.Join(v.Differences, "\n  "))}
	}
	if !a.json {
		fmt.Fprintf(a.out, "equal: all %s files of %s are what the log gives\nposition: %s\n", comma(v.Files), v.Folder, a.position(v.Position))
	}
	return nil
}
