package app

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// EvidenceFormat is the version of the manifest of an evidence pack.
const EvidenceFormat = "quartermaster.evidence/1"

// Evidence is what an auditor asks for about billing months, as tables. It follows from the position alone: nothing
// in it is from the clock.
type Evidence struct {
	Position   string
	Months     []EvidenceMonth
	Checkpoint *ExportedCheckpoint // nil if the log has none
	Tables     []EvidenceTable
}

// EvidenceMonth says how a month was divided, and by whom it was closed.
type EvidenceMonth struct {
	CostsOf
	State CloseState `json:"state"`
	// Separation lists people with several duties that should be of different people.
	Separation []string             `json:"separation"`
	Totals     []costs.ControlTotal `json:"control_totals"` // by currency
}

// EvidenceTable is a table of a pack.
type EvidenceTable struct {
	Name    string // of its file, without its ending
	Doc     string
	Columns []costs.Column
	Rows    [][]string // a cell for each column, "" for null
}

// EvidenceManifest is the manifest of a pack: what it is about, and the SHA-256 of each file.
type EvidenceManifest struct {
	Format     string              `json:"format"`   // [EvidenceFormat]
	Position   string              `json:"position"` // of the log, in full
	Program    ProgramInfo         `json:"program"`
	Methods    costs.Methods       `json:"methods"`              // of this program; each month has those that divided it
	Checkpoint *ExportedCheckpoint `json:"checkpoint,omitempty"` // the newest that the log has at the position
	Months     []EvidenceMonth     `json:"months"`
	Files      []EvidenceFile      `json:"files"`
}

// EvidenceFile is a file of a pack.
type EvidenceFile struct {
	File    string         `json:"file"`
	Doc     string         `json:"doc"`
	Bytes   int            `json:"bytes"`
	SHA256  string         `json:"sha256"` // in hexadecimal
	Rows    int            `json:"rows,omitempty"`
	Columns []costs.Column `json:"columns,omitempty"` // of a table
}

// ReadEvidenceManifest reads a manifest that nobody vouches for. Its errors say what is wrong with it.
func ReadEvidenceManifest(text []byte) (*EvidenceManifest, error) {
	m := &EvidenceManifest{}
	if err := decodeManifest(text, m); err != nil {
		return nil, err
	}
	if err := checkManifest(m.Format, EvidenceFormat, m.Position); err != nil {
		return nil, err
	}
	if len(m.Months) == 0 {
		return nil, errors.New("it names no month")
	}
	for i := range m.Months {
		if of := m.Months[i].Month; of != projections.BillingMonth(of.From) {
			return nil, errors.New("its months are not billing months")
		}
	}
	for i := range m.Files {
		f := &m.Files[i]
		if f.File != filepath.Base(f.File) || f.File == "." || f.File == ".." {
			return nil, fmt.Errorf("%.100q is not the name of a file beside it", f.File)
		}
		if !isSHA256(f.SHA256) {
			return nil, fmt.Errorf("the sha256 of %s is not 64 hexadecimal digits", f.File)
		}
	}
	return m, nil
}

// Evidence gathers what an auditor asks for about billing months.
func (c *Caller) Evidence(ctx context.Context, at At, months []domain.Interval) (*Evidence, error) {
	return c.evidence(ctx, at, months, c.division)
}

// EvidenceAgain gathers the evidence of a manifest again. What was kept of open months is not used: it could be what
// is wrong.
func (c *Caller) EvidenceAgain(ctx context.Context, m *EvidenceManifest) (*Evidence, error) {
	months := make([]domain.Interval, len(m.Months))
	for i := range m.Months {
		months[i] = m.Months[i].Month
	}
	return c.evidence(ctx, At(m.Position), months, c.divisionAgain)
}

func (c *Caller) evidence(ctx context.Context, at At, months []domain.Interval, divide dividing) (out *Evidence, err error) {
	if len(months) == 0 {
		return nil, invalid("months", "name the months of the evidence")
	}
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		e, err := newEvidence(ctx, h, v, months)
		if err != nil {
			return err
		}
		for _, month := range months {
			if err := e.month(ctx, month, divide); err != nil {
				return fmt.Errorf("evidence of %s: %w", MonthName(month), err)
			}
		}
		for _, gather := range []func(context.Context) error{
			e.sources, e.postings, e.decisions, e.quarantine, e.gaps, e.checkpoints, e.exports, e.denials,
		} {
			if err := gather(ctx); err != nil {
				return err
			}
		}
		out = e.done()
		return nil
	})
	return out, err
}

// evidence gathers a pack from rows.
type evidence struct {
	h      *Conn
	view   projections.View
	auth   *registry.Authority
	closes []registry.Close
	months []domain.Interval
	// last is when the newest record was appended.
	last   domain.Instant
	out    *Evidence
	tables map[string]*EvidenceTable
	losses []registry.Loss // of all months
}

func newEvidence(ctx context.Context, h *Conn, v projections.View, months []domain.Interval) (*evidence, error) {
	e := &evidence{
		h: h, view: v, months: months, tables: map[string]*EvidenceTable{},
		out: &Evidence{Position: v.Position().String(), Months: []EvidenceMonth{}},
	}
	var err error
	if e.auth, err = registry.NewAuthority(v); err == nil {
		e.closes, err = e.auth.Closes(v, BooksEntity)
	}
	if err == nil {
		e.last, err = h.lastAppended(ctx, v.Position())
	}
	if err == nil {
		e.out.Checkpoint, err = lastCheckpoint(v)
	}
	for _, t := range evidenceTables() {
		e.tables[t.Name] = &t
	}
	return e, err
}

// add adds a row to a table.
func (e *evidence) add(table string, cells ...string) {
	t := e.tables[table]
	if len(cells) != len(t.Columns) {
		panic(fmt.Sprintf("table %s has %d columns, and a row has %d cells", table, len(t.Columns), len(cells)))
	}
	t.Rows = append(t.Rows, cells)
}

func (e *evidence) done() *Evidence {
	for _, t := range evidenceTables() {
		e.out.Tables = append(e.out.Tables, *e.tables[t.Name])
	}
	return e.out
}

// concerns reports whether a month is one of those of the pack.
func (e *evidence) concerns(name string) bool {
	return slices.ContainsFunc(e.months, func(m domain.Interval) bool { return MonthName(m) == name })
}

// sha256InName finds the SHA-256 of an imported file in the name of its source.
var sha256InName = regexp.MustCompile(`sha256:([0-9a-f]{64})`)

// Cells of tables.

func timeCell(t domain.Instant) string {
	if t == 0 {
		return ""
	}
	return t.String()
}

func hexCell(b []byte) string { return hex.EncodeToString(b) }

func jsonCell(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

func wholeCell[T int | int64 | uint64](n T) string {
	if n < 0 {
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatUint(uint64(n), 10)
}
