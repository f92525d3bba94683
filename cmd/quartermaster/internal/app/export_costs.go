package app

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/dimension"
)

// CostsExport asks for an export of costs: of every allocation, or of groups.
type CostsExport struct {
	Months    []domain.Interval `json:"months"` // billing months, in order
	Workspace string            `json:"workspace,omitempty"`
	// By groups the costs. If it is empty, every allocation is a row.
	By    []costs.Dimension     `json:"by,omitempty"`
	Where []dimension.Condition `json:"where,omitempty"`
	// Currency is the currency of the books. Groups are in it, and allocations have their amounts in it beside those
	// that were billed. It is empty for an export in the currencies that were billed.
	Currency string `json:"currency,omitempty"`
	// View passes on the cost of pools. It is by workspace, of all workspaces. Empty is the direct view.
	View costs.View `json:"view,omitempty"`
	// Compare also exports what each group cost in the month before.
	Compare bool `json:"compare,omitempty"`
}

// RowWriter writes the rows of an export. The caller closes it.
type RowWriter interface {
	// Write writes a row, which has a text for each column, "" for null. It MUST NOT keep the row.
	Write(row []string) error
}

// CostsManifestFormat is the version of the manifest of an export.
const CostsManifestFormat = "quartermaster.costs-export/1"

// CostsManifest says what an export has, so that anyone can recompute it: the question, the position of the log, the
// methods and decisions that divided each month, what its rows add up to, and the SHA-256 of the file.
type CostsManifest struct {
	Format string `json:"format"` // [CostsManifestFormat]
	// File is the name of the file beside the manifest, and FileFormat is csv, parquet or xlsx.
	File       string      `json:"file"`
	FileFormat string      `json:"file_format"`
	Bytes      int64       `json:"bytes"`
	SHA256     string      `json:"sha256"`   // in hexadecimal
	Position   string      `json:"position"` // of the log, in full
	Query      CostsExport `json:"query"`
	Program    ProgramInfo `json:"program"`
	Months     []CostsOf   `json:"months"`
	// Columns are the columns of the file, in order.
	Columns []costs.Column `json:"columns"`
	Rows    int            `json:"rows"`
	// Totals are what the rows add up to, by currency.
	Totals []costs.ControlTotal `json:"control_totals"`
	// Checkpoint is the newest signed checkpoint that the log has at the position; absent if it has none.
	Checkpoint *ExportedCheckpoint `json:"checkpoint,omitempty"`
}

// CostsOf says how a month of an export was divided.
type CostsOf struct {
	Month    domain.Interval       `json:"period"`
	Methods  costs.Methods         `json:"methods"`
	Policies []costs.AppliedPolicy `json:"policies"`
	Rules    []costs.AppliedRule   `json:"mapping_rules"`
	// Books says who closed the month; absent while it is open.
	Books *costs.ClosedBooks `json:"books,omitempty"`
	// Generated: some of the input is synthetic, and no supplier sent it.
	Generated bool `json:"generated"`
	// Reconciled: every invoice equals its lines, but for its rounding.
	Reconciled bool `json:"reconciled"`
	// Rows are all rows of the month. Posted are those of them that are posted about earlier closed months, by currency.
	Rows   int                  `json:"rows"`
	Posted []costs.ControlTotal `json:"posted"`
	// Translation says how amounts were translated to the currency of the books; absent if they were not.
	Translation *costs.Translation `json:"translation,omitempty"`
}

// ExportedCheckpoint is a signed statement of what the log has.
type ExportedCheckpoint struct {
	Position string `json:"position"`
	Note     string `json:"note"` // a C2SP signed note
}

// ExportCosts writes the rows of an export, and returns its manifest without File, FileFormat, Bytes and SHA256. begin
// is called once, with the columns, before the first row. It holds little in memory: closed and kept months are read
// row by row.
func (c *Caller) ExportCosts(ctx context.Context, at At, q CostsExport, begin func([]costs.Column) (RowWriter, error)) (m *CostsManifest, err error) {
	return c.exportCosts(ctx, at, q, divisions{c.division, c.presentDivision}, begin)
}

// divisions are where an export gets its rows from.
type divisions struct {
	books   dividing // a closed month as it was closed, another as it is
	present dividing // any month as it is; it never returns nil
}

func (c *Caller) presentDivision(ctx context.Context, v projections.View, month domain.Interval) (*costs.Division, error) {
	return c.app.conn.presentDivision(ctx, v, month)
}

// dividing returns a month's division, nil if it is too large for memory.
type dividing func(ctx context.Context, v projections.View, month domain.Interval) (*costs.Division, error)

// whole is what a function returns, or the kept form of a month that is too large for memory.
func (h *Conn) whole(ctx context.Context, v projections.View, month domain.Interval, divide dividing) (*costs.Division, error) {
	d, err := divide(ctx, v, month)
	if err == nil && d == nil {
		d, err = h.presentDivision(ctx, v, month)
	}
	return d, err
}

// exportCosts is ExportCosts of divisions that divide returns.
func (c *Caller) exportCosts(
	ctx context.Context, at At, q CostsExport, from divisions, begin func([]costs.Column) (RowWriter, error),
) (m *CostsManifest, err error) {
	if len(q.Months) == 0 {
		return nil, invalid("months", "name the months to export")
	}
	if q.View != "" && (q.Workspace != "" || len(q.By) > 0 || len(q.Where) > 0 || q.Compare) {
		return nil, invalid("view", "a view is by workspace, of all workspaces")
	}
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		m = &CostsManifest{
			Format: CostsManifestFormat, Position: v.Position().String(), Query: q, Program: Program(),
			Months: []CostsOf{}, Columns: costs.ExportedColumns(), Totals: []costs.ControlTotal{},
		}
		switch {
		case q.View != "":
			m.Columns = costs.LoadedColumns()
		case len(q.By) > 0:
			m.Columns = costs.GroupColumns(q.By, q.Compare)
		}
		if m.Checkpoint, err = lastCheckpoint(v); err != nil {
			return err
		}
		w, err := begin(m.Columns)
		if err != nil {
			return err
		}
		for _, month := range q.Months {
			of, totals, err := c.exportMonth(ctx, v, &q, month, from, w)
			if err != nil {
				return fmt.Errorf("export the costs of %s: %w", MonthName(month), err)
			}
			m.Months = append(m.Months, *of)
			m.Rows += of.Rows
			m.Totals = costs.AddTotals(m.Totals, totals)
		}
		if m.Rows == 0 {
			return charged(v, q.Workspace)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// exportMonth writes the rows of a month: its groups, or its allocations and then what is posted into it.
func (c *Caller) exportMonth(
	ctx context.Context, v projections.View, q *CostsExport, month domain.Interval, from divisions, w RowWriter,
) (*CostsOf, []costs.ControlTotal, error) {
	rows := 0
	yield := func(row []string) error {
		rows++
		return w.Write(row)
	}
	d, err := from.books(ctx, v, month)
	if err != nil {
		return nil, nil, err
	}
	rates, err := ratesFor(v, month, q.Currency)
	if err != nil {
		return nil, nil, err
	}
	var of *CostsOf
	var totals []costs.ControlTotal
	filter := costs.AllocationFilter{Workspace: q.Workspace, Where: q.Where}
	switch {
	case q.View != "":
		query := costs.Query{Month: month, By: []costs.Dimension{costs.ByWorkspace}, Currency: q.Currency}
		var r *costs.Report
		if d != nil {
			r, err = d.In(rates).Report(query)
			of = dividedAs(&d.Summary)
		} else if r, err = c.costs(ctx, v, query); err == nil {
			of = &CostsOf{Rules: []costs.AppliedRule{}}
		}
		if err != nil {
			return nil, nil, err
		}
		of.Month, of.Methods, of.Policies, of.Books, of.Generated = month, r.Methods, r.Policies, r.Books, r.Generated
		of.Reconciled = r.UnreconciledCount == 0
		l, err := loaded(r, q.View)
		if err != nil {
			return nil, nil, err
		}
		of.Policies = append(slices.Clone(of.Policies), l.Policy)
		if totals, err = l.Export(month, yield); err != nil {
			return nil, nil, err
		}
	case len(q.By) > 0:
		r, err := c.monthsOf(ctx, v, costs.MonthsQuery{
			Months: []domain.Interval{month}, Workspace: q.Workspace, By: q.By, Where: q.Where, Currency: q.Currency, Compare: q.Compare, Back: 1,
		}, func(ctx context.Context, v projections.View, of domain.Interval) (*costs.Division, error) {
			if of == month {
				return d, nil // it is divided already; a month that it is compared with is not
			}
			return from.books(ctx, v, of)
		})
		if err != nil {
			return nil, nil, err
		}
		as := &r.Months[0]
		of = &CostsOf{
			Month: month, Methods: as.Methods, Policies: as.Policies, Rules: []costs.AppliedRule{}, Books: as.Books,
			Generated: as.Generated, Reconciled: r.UnreconciledCount == 0, Translation: as.Translation,
		}
		if d != nil {
			of.Rules = d.Rules
		}
		totals, err = r.ExportGroups(yield)
		if err != nil {
			return nil, nil, err
		}
	case d != nil:
		of = dividedAs(&d.Summary)
		of.Books = d.Books()
		if totals, err = d.Export(filter, rates, yield); err != nil {
			return nil, nil, err
		}
	default:
		var s *costs.Summary
		if totals, s, err = costs.Export(v, month, filter, rates, yield); err != nil {
			return nil, nil, err
		}
		of = dividedAs(s)
	}
	of.Posted = []costs.ControlTotal{}
	if q.View == "" {
		closes, err := closesOf(v)
		if err != nil {
			return nil, nil, err
		}
		posted, err := c.app.conn.postingsOf(ctx, v, closes, month, from.present)
		if err != nil {
			return nil, nil, err
		}
		inBooks := costs.NewPostingRates(rates, earlierRates(closes))
		if len(q.By) > 0 {
			groups := &costs.MonthsQuery{Workspace: q.Workspace, By: q.By, Where: q.Where, Compare: q.Compare}
			of.Posted, err = costs.ExportPostedGroups(posted, groups, inBooks, yield)
		} else {
			of.Posted, err = costs.ExportPostings(posted, filter, inBooks, yield)
		}
		if err != nil {
			return nil, nil, err
		}
		totals = costs.AddTotals(totals, of.Posted)
	}
	if of.Rows = rows; of.Translation == nil {
		of.Translation = rates.Translation()
	}
	return of, totals, nil
}

// dividedAs says how a month was divided.
func dividedAs(s *costs.Summary) *CostsOf {
	return &CostsOf{
		Month: s.Month, Methods: s.Methods, Policies: s.Policies, Rules: s.Rules, Generated: s.Generated,
		Reconciled: len(s.Unreconciled()) == 0,
	}
}

// RecordExport records an export in the log, by its manifest. The SHA-256 of the file names it.
func (c *Caller) RecordExport(ctx context.Context, m *CostsManifest) error {
	digest, err := hex.DecodeString(m.SHA256)
	if err != nil {
		return err
	}
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return err
	}
	var methods []string
	for i := range m.Months {
		methods = append(methods, m.Months[i].Methods.Attribution)
	}
	slices.Sort(methods)
	env := &domain.Envelope{Time: Now(), Subject: m.SHA256, Event: &domain.ExportMade{
		Entity: BooksEntity, Export: m.SHA256, Format: m.FileFormat, Position: m.Position,
		Method: strings.Join(slices.Compact(methods), ", "), Rows: uint64(m.Rows), Digest: digest,
	}}
	if err := domain.Validate(env); err != nil {
		return err
	}
	return h.Stream("export").Append(ctx, env)
}

// lastCheckpoint returns the newest checkpoint that the log has, nil if it has none.
func lastCheckpoint(v projections.View) (last *ExportedCheckpoint, err error) {
	var newest domain.Precedence
	err = v.Scan(projections.Query{Table: projections.TableCheckpoints}, func(_ projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			ev, ok := h.Versions[i].Event.(*domain.CheckpointSigned)
			if ok && (last == nil || h.Versions[i].Order.After(newest)) {
				newest, last = h.Versions[i].Order, &ExportedCheckpoint{ev.Position, string(ev.Note)}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read checkpoints: %w", err)
	}
	return last, nil
}

// maxCostsManifest bounds a manifest that is read.
const maxCostsManifest = 16 << 20

// ReadCostsManifest reads a manifest that nobody vouches for. Its errors say what is wrong with it.
func ReadCostsManifest(r io.Reader) (*CostsManifest, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxCostsManifest+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxCostsManifest {
		return nil, fmt.Errorf("it has more than %d MiB", maxCostsManifest>>20)
	}
	m := &CostsManifest{}
	if err := decodeManifest(b, m); err != nil {
		return nil, err
	}
	if err := checkManifest(m.Format, CostsManifestFormat, m.Position); err != nil {
		return nil, err
	}
	if !isSHA256(m.SHA256) {
		return nil, errors.New("its sha256 is not 64 hexadecimal digits")
	}
	if len(m.Query.Months) == 0 || slices.ContainsFunc(m.Query.Months, func(i domain.Interval) bool { return i != projections.BillingMonth(i.From) }) {
		return nil, errors.New("its months are not billing months")
	}
	return m, nil
}

// decodeManifest reads a manifest that has no unknown keys and that nothing follows.
func decodeManifest(text []byte, m any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}

// checkManifest checks the format and the position of a manifest.
func checkManifest(format, want, position string) error {
	if format != want {
		return fmt.Errorf("its format is %.100q, this program reads %q", format, want)
	}
	if _, err := domain.ParsePosition(position); err != nil {
		return fmt.Errorf("its position: %w", err)
	}
	return nil
}

func isSHA256(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == 32
}

// CostsVerified is the result of computing an export again.
type CostsVerified struct {
	File string `json:"file"`
	Rows int    `json:"rows"` // that were compared
	// Equal: every cell of the file is what the log gives.
	Equal bool `json:"equal"`
	// Difference is the first cell that differs; absent if none does.
	Difference *CellDifference `json:"difference,omitempty"`
	// Manifest is the first key of the manifest that is not what the log gives; "" if all are.
	Manifest string `json:"manifest_differs,omitempty"`
	// Changed: the file does not have the SHA-256 of the manifest.
	Changed bool `json:"changed,omitempty"`
	// Needs names the methods that divided a month, if this program has others and the cells differ.
	Needs    *costs.Methods `json:"needs,omitempty"`
	Position string         `json:"position"`
}

// CellDifference is a cell of an export that is not what the log gives.
type CellDifference struct {
	Row      int    `json:"row"` // from 1, without the header
	Column   string `json:"column"`
	Expected string `json:"expected"` // what the log gives; "" for null
	Found    string `json:"found"`
	Reason   string `json:"reason,omitempty"` // for a row that is missing, or that is too much
}

// errDiffers ends the computation at the first difference.
var errDiffers = errors.New("the export differs")

// comparing compares the rows of an export with those of a file.
type comparing struct {
	next    func() ([]string, error)
	also    RowWriter // gets what the log gives; nil: nobody does
	columns []costs.Column
	rows    int
	found   *CellDifference
}

func (w *comparing) Write(row []string) error {
	if w.also != nil {
		if err := w.also.Write(row); err != nil {
			return err
		}
	}
	have, err := w.next()
	w.rows++
	switch {
	case errors.Is(err, io.EOF):
		w.found = &CellDifference{Row: w.rows, Column: w.columns[0].Name, Expected: row[0], Reason: "the file ends before this row"}
		return errDiffers
	case err != nil:
		return err
	case len(have) != len(row):
		w.found = &CellDifference{Row: w.rows, Column: w.columns[0].Name, Reason: fmt.Sprintf("the row has %d cells instead of %d", len(have), len(row))}
		return errDiffers
	}
	for i := range row {
		if have[i] != row[i] {
			w.found = &CellDifference{Row: w.rows, Column: w.columns[i].Name, Expected: row[i], Found: have[i]}
			return errDiffers
		}
	}
	return nil
}

// VerifyCosts computes an export again at the position of its manifest, and compares it with the manifest and with the
// rows of the file, which next returns until [io.EOF]. also returns a writer that gets the rows that the log gives, nil
// for none.
func (c *Caller) VerifyCosts(
	ctx context.Context, m *CostsManifest, next func() ([]string, error), also func([]costs.Column) (RowWriter, error),
) (*CostsVerified, error) {
	out := &CostsVerified{File: m.File, Position: m.Position}
	w := &comparing{next: next}
	again, err := c.exportCosts(ctx, At(m.Position), m.Query, divisions{c.divisionAgain, c.dividedAgain}, func(columns []costs.Column) (RowWriter, error) {
		w.columns = columns
		var err error
		w.also, err = also(columns)
		return w, err
	})
	out.Rows, out.Difference = w.rows, w.found
	if err != nil && !errors.Is(err, errDiffers) {
		return nil, err
	}
	if w.found == nil {
		switch more, err := next(); {
		case err == nil:
			out.Difference = &CellDifference{Row: w.rows + 1, Column: w.columns[0].Name, Found: more[0], Reason: "the log gives no such row"}
		case !errors.Is(err, io.EOF):
			return nil, err
		}
	}
	if out.Difference == nil {
		if out.Manifest, err = otherThan(m, again); err != nil {
			return nil, err
		}
	}
	out.Equal = out.Difference == nil && out.Manifest == ""
	if !out.Equal {
		out.Needs, err = c.otherMethods(ctx, m, again)
	}
	return out, err
}

// divisionAgain returns what a month that was closed was closed with, whose digest its close has in the log. It divides
// another month again: the export may be from the same kept division, and a wrong one would agree with itself.
func (c *Caller) divisionAgain(ctx context.Context, v projections.View, month domain.Interval) (*costs.Division, error) {
	h := c.app.conn
	if d, err := h.closedDivision(ctx, v, month); d != nil || err != nil {
		return d, err
	}
	return c.dividedAgain(ctx, v, month)
}

// dividedAgain divides a month again, whether it is closed or not.
func (c *Caller) dividedAgain(_ context.Context, v projections.View, month domain.Interval) (*costs.Division, error) {
	h := c.app.conn
	d, err := costs.Divide(v, month, mostBytes)
	h.app.cache().dividedOnce()
	if !errors.Is(err, costs.ErrTooLarge) {
		return d, err
	}
	k, err := h.keepDivision(v, month, false) // it is too large for memory
	if err != nil {
		return nil, err
	}
	if d, err = openDivision(h.Parts(), month, k.Digest); err != nil {
		return nil, err
	}
	return d.At(v)
}

// otherThan returns the first key of a manifest that is not that of the export computed again: what is about the file
// and the program that wrote it is left out.
func otherThan(m, again *CostsManifest) (string, error) {
	var keys [2]map[string]json.RawMessage
	for i, of := range []*CostsManifest{m, again} {
		b, err := json.Marshal(of)
		if err == nil {
			err = json.Unmarshal(b, &keys[i])
		}
		if err != nil {
			return "", err
		}
		for _, key := range []string{"file", "file_format", "bytes", "sha256", "program"} {
			delete(keys[i], key)
		}
	}
	for _, of := range keys {
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if !bytes.Equal(keys[0][key], keys[1][key]) {
				return key, nil
			}
		}
	}
	return "", nil
}

// otherMethods returns the methods of the first month of a manifest that is divided by others now, nil if none is.
func (c *Caller) otherMethods(ctx context.Context, m, again *CostsManifest) (needs *costs.Methods, err error) {
	for i := range m.Months {
		of := &m.Months[i]
		var now costs.Methods
		if again != nil && i < len(again.Months) {
			now = again.Months[i].Methods
		} else {
			r, err := c.Costs(ctx, At(m.Position), costs.Query{Month: of.Month})
			if err != nil {
				return nil, err
			}
			now = r.Methods
		}
		if now != of.Methods {
			return &of.Methods, nil
		}
	}
	return nil, nil
}
