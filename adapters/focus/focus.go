package focus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// version is the version of the mapping. It is part of the source's name, because a changed
// mapping makes a different source.
const version = "v3"

// ErrColumns means that the file is not a FOCUS dataset that [Run] supports. Nothing was
// imported. The text of the error names the missing columns.
var ErrColumns = errors.New("not the columns of a FOCUS dataset that can be imported")

// Options supply what a file does not contain.
type Options struct {
	// Zone is the IANA name, such as UTC or Europe/Berlin, of the time zone of times without
	// one. If empty, such times make bad rows.
	Zone string
	// Currency, if not empty, is the currency that the file must be billed in. Rows in another
	// currency are bad.
	Currency string
	// FocusVersion, if not empty, is the version of the file: 1.0-preview, 1.0 to 1.4. If empty, it is
	// detected from the columns.
	FocusVersion string
	// Accounts are the billing accounts that a file of Billing Period is about, which does not name them.
	Accounts []string
	// Historical declares that every fact was known when it became true, so that backtests may
	// use it. Otherwise a fact counts as known from when it is appended.
	Historical bool
	// Strict makes every row with a deviation a bad row: see the package comment, Deviations.
	Strict bool
	// ExportTime are columns that say when the file was exported, in any case. They are kept, but
	// are not part of a row's id, so that the same row in a later export is the same line.
	ExportTime []string
	// Parts counts equal rows across the files of one export, which are read one after the other.
	// If nil, equal rows are counted within the file.
	Parts *Parts
	// Elsewhere finds the issuers that the file does not name. If nil, only the file is used.
	Elsewhere *Elsewhere
	// Mapping names what Open does to the rows of a file, if they were not written in the columns of
	// FOCUS. It is part of the source's name.
	Mapping string
	// Documents are the files by which the mapping reads, if the user gave them. Run does not look at them; callers keep
	// them with the file.
	Documents []Document
	// Open opens a file as a table. It is [OpenCSV] if nil.
	Open func(ctx context.Context, file io.Reader, limits tabular.Limits) (tabular.Table, error)
	// Whole is for callers that accept a whole file or nothing, as Open is for Run, which does not call
	// it: see [tabular.Whole]. It may be nil.
	Whole func(ctx context.Context, file io.Reader, limits tabular.Limits) error
	// Limits bound the resources that a hostile file can use.
	Limits tabular.Limits
	// InvoiceBytes limits the memory for Invoice Detail, which is held until the end of the
	// file; default 256 MiB.
	InvoiceBytes int64
}

// Document is a file that says how another is read.
type Document struct {
	Name string
	Text []byte
}

// Parts are the rows of the files of one export that were read so far. The zero value has none.
type Parts struct{ seen *rowsSeen }

// ExportTimeColumns are columns of exports that say when they were made: those of BigQuery and of
// Microsoft's FinOps toolkit.
var ExportTimeColumns = []string{"export_time", "_PARTITIONTIME", "x_ExportTime", "x_IngestionTime"}

// Summary is the result of importing a file.
type Summary struct {
	Dataset      string              `json:"dataset"`       // one of the names of datasets; empty if none
	FocusVersion string              `json:"focus_version"` // given or detected
	Rows         int                 `json:"rows"`          // read, including bad rows, without header and blank lines
	LastLine     int                 `json:"-"`             // at which the last row starts
	Events       int                 `json:"events"`        // emitted
	Bad          int                 `json:"bad"`           // rows not imported
	Types        map[domain.Type]int `json:"types"`         // events by type
	// Deviations counts the values, by kind, that a line cannot hold as written.
	Deviations map[Deviation]int `json:"deviations,omitempty"`
	// Rounded is what rounding removed from the costs of each invoice.
	Rounded  []Rounding        `json:"rounded,omitempty"`
	Warnings []tabular.Warning `json:"warnings,omitempty"`
	// Contracts are the rows of Contract Commitment, in the order of the file.
	Contracts []Contract `json:"-"`
}

// SourceName returns the name of a file as a source of events: its SHA-256, the version of the
// mapping, and the options that change its events, sorted. If the options do not fit in an
// identifier, their SHA-256 replaces all but the zone, which another import of the file is compared
// with. SourceName accepts options that Run would refuse.
func SourceName(sum [32]byte, o Options) string { return nameSource(sum, o.named()) }

// SnapshotName is SourceName for the export of a month that replaces the one before. What the ledger
// had of the month before is part of the name, because the events are the difference from it.
func SnapshotName(sum [32]byte, o Options, month, before string) string {
	q := o.named()
	q.Set("snapshot", month)
	q.Set("after", before)
	return nameSource(sum, q)
}

// named returns the options that change events.
func (o Options) named() url.Values {
	q := url.Values{}
	for key, value := range map[string]string{"zone": o.Zone, "currency": o.Currency, "focus_version": o.FocusVersion, "mapping": o.Mapping} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if o.Historical {
		q.Set("historical", "true")
	}
	if len(o.Accounts) > 0 {
		q["account"] = slices.Compact(slices.Sorted(slices.Values(o.Accounts)))
	}
	if len(o.ExportTime) > 0 {
		q.Set("export_time", strings.Join(o.ExportTime, ","))
	}
	return q
}

// maxName is how long an identifier of the domain may be.
const maxName = 256

func nameSource(sum [32]byte, q url.Values) string {
	name := "sha256:" + hex.EncodeToString(sum[:]) + "/focus." + version
	if len(q) == 0 {
		return name
	}
	options := q.Encode()
	if len(name)+1+len(options) > maxName {
		short := url.Values{"options": {fmt.Sprintf("%x", sha256.Sum256([]byte(options)))}}
		if zone := q.Get("zone"); len(zone) <= 64 {
			short["zone"] = q["zone"]
		}
		options = short.Encode()
	}
	return name + "?" + options
}

// run is one run over one file.
type run struct {
	ctx      context.Context
	opts     Options
	clock    clock
	name     string
	again    io.Reader
	emitTo   func(*domain.Envelope) error
	badTo    func(tabular.BadRow)
	env      domain.Envelope
	valid    domain.LineValidator
	sum      Summary
	recorded int                    // lines, not yet in sum.Types: most events are one
	line     int                    // of the current row
	preview  bool                   // the table that was opened last has the names of 1.0-preview
	warnings tabular.Warnings       // its list is sum.Warnings
	ofFile   []int                  // indices of the warnings that concern all rows
	rounded  map[invoiceRounded]int // index in sum.Rounded
}

// dataset reads the rows of one dataset. For a bad row, row MUST emit nothing and return a
// *refusal. Any other error stops the import. end is called after the last row. What
// rec.Changed lists differs from the last row that row was called with. It is nil at the first row
// and after a bad one.
type dataset interface {
	row(rec tabular.Row) error
	end() error
}

// Run reads a file of one of the datasets. Messages call the file name. The
// argument again MUST be the same file from its beginning. Run reads it only at the first row
// without an issuer, and then to its end.
//
// Run passes each event to emit and each row that was not imported to bad, which may be nil.
// The envelope has Time, Recorded, Subject, Line and Event set and satisfies domain.Validate. The
// caller sets Source and Sequence. Run reuses the envelope and its billing line, so emit MUST
// copy what it keeps.
//
// The error wraps [ErrColumns] if the file is not such a dataset, [tabular.ErrTooLarge] if it
// exceeds the limits, and [tabular.ErrDamaged] if a gzip file cannot be decompressed (with
// [io.ErrUnexpectedEOF] if it is truncated; see [tabular.Whole]). Errors of emit, the context
// and the file are returned as well. The events of earlier rows have then been emitted already.
// Invoices are emitted only after the whole file was read. The Summary is valid in every case.
func Run(
	ctx context.Context,
	file, again io.Reader,
	name string,
	opts Options,
	emit func(*domain.Envelope) error,
	bad func(tabular.BadRow),
) (Summary, error) {
	opts.Limits = opts.Limits.WithDefaults()
	if opts.InvoiceBytes <= 0 {
		opts.InvoiceBytes = 256 << 20
	}
	if opts.Open == nil {
		opts.Open = OpenCSV
	}
	r := &run{ctx: ctx, opts: opts, name: name, again: again, emitTo: emit, badTo: bad}
	r.sum.Types, r.sum.Deviations = map[domain.Type]int{}, map[Deviation]int{}
	r.rounded = map[invoiceRounded]int{}
	err := r.check()
	if err == nil {
		err = r.read(file)
	}
	if r.recorded > 0 {
		r.sum.Types[domain.TypeBillingLineRecorded] = r.recorded
	}
	for _, i := range r.ofFile {
		r.sum.Warnings[i].Rows = r.sum.Rows
	}
	if err != nil {
		err = fmt.Errorf("import focus %s: %w", name, err)
	}
	return r.sum, err
}

// check refuses invalid options.
func (r *run) check() error {
	o := &r.opts
	if v := o.FocusVersion; v != "" && !slices.Contains(versions, v) {
		return fmt.Errorf("FOCUS version %q is not one of %s", tabular.Clip(v), strings.Join(versions, ", "))
	}
	if c := o.Currency; c != "" && (len(c) != 3 || strings.Trim(c, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "") {
		return fmt.Errorf("currency %q is not an ISO 4217 code of three capital letters, for example USD", tabular.Clip(c))
	}
	switch o.Zone {
	case "":
	case "Local":
		return errors.New("zone Local differs between machines: name the zone")
	default:
		zone, err := time.LoadLocation(o.Zone)
		if err != nil {
			return fmt.Errorf("zone %q: %w", tabular.Clip(o.Zone), err)
		}
		r.clock.zone = zone
	}
	return nil
}

// OpenCSV opens a file as CSV, plain or compressed.
func OpenCSV(ctx context.Context, file io.Reader, limits tabular.Limits) (tabular.Table, error) {
	text, err := tabular.Open(ctx, file, limits, ErrColumns)
	if err != nil {
		return nil, err
	}
	return tabular.NewCSV(text, limits.LineBytes), nil
}

// table opens a file and reads its header.
func (r *run) table(file io.Reader) (tabular.Table, []string, error) {
	rs, err := r.opts.Open(r.ctx, file, r.opts.Limits)
	if err != nil {
		return nil, nil, err
	}
	header, err := r.header(rs)
	return rs, header, err
}

func (r *run) read(file io.Reader) error {
	rs, header, err := r.table(file)
	if err != nil {
		return err
	}
	set, err := r.open(header)
	if err != nil {
		return err
	}
	for _, n := range rs.Notes() {
		r.warnOfFile(n.Text, n.Column)
	}
	var refused *refusal // why the row, and before it the row before, is bad
	for {
		if err := r.ctx.Err(); err != nil {
			return fmt.Errorf("stopped at line %d: %w", r.line, err)
		}
		rec, err := rs.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", rec.Line, err)
		}
		r.sum.Rows++
		r.line, r.sum.LastLine = rec.Line, rec.Line
		if refused != nil || r.sum.Rows == 1 {
			rec.Changed, refused = nil, nil
		}
		if f := rec.Broken; f != nil {
			refused = &refusal{field: f.Field, value: f.Value, reason: f.Reason}
		}
		if refused == nil && len(rec.Fields) != len(header) {
			refused = &refusal{reason: fmt.Sprintf("has %d fields where the header has %d", len(rec.Fields), len(header))}
			if rec.Open {
				refused.reason += ", and the file ends without a line end: it may be cut off"
			}
		}
		if refused == nil {
			if err := set.row(rec); err != nil && !errors.As(err, &refused) {
				return fmt.Errorf("line %d: %w", rec.Line, err)
			}
		}
		if refused != nil {
			r.bad(rec.Line, refused)
		} else if rec.Open {
			r.warn("the file does not end in a line end: if it was cut off, this row lacks the end of its last value", "")
		}
	}
	if r.sum.Rows == 0 {
		r.warn("there are no rows below the header", "")
	}
	return set.end()
}

// header reads the names of the columns as written.
func (r *run) header(rs tabular.Table) ([]string, error) {
	rec, err := rs.Next()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: the file is empty", ErrColumns)
	}
	if err != nil {
		return nil, err
	}
	if rec.Broken != nil {
		return nil, fmt.Errorf("%w: the header in line %d: %s", ErrColumns, rec.Line, rec.Broken.Reason)
	}
	header := make([]string, len(rec.Fields))
	at := make(map[string]int, len(header))
	for i, f := range rec.Fields {
		header[i] = strings.TrimSpace(f)
		if j, twice := at[fold(f)]; twice && fold(f) != "" {
			return nil, fmt.Errorf(
				"%w: column %q is in the header twice, as columns %d and %d",
				ErrColumns, tabular.Clip(header[i]), j+1, i+1,
			)
		}
		at[fold(f)] = i
	}
	r.line = rec.Line
	r.preview = renamePreview(header)
	return header, nil
}

// open detects the dataset of a file and prepares to read it.
func (r *run) open(header []string) (dataset, error) {
	at := make(map[string]int, len(header))
	for i, name := range header {
		if name != "" {
			at[fold(name)] = i
		}
	}
	has := func(name string) bool { _, ok := at[fold(name)]; return ok }
	set := otherDataset(has)
	if set == BillingPeriods {
		return r.openPeriods(header, has)
	}
	if len(r.opts.Accounts) > 0 {
		return nil, fmt.Errorf("%w: accounts are given for Billing Period alone; import it by itself", ErrColumns)
	}
	switch set {
	case InvoiceDetails:
		return r.openInvoices(header, has)
	case ContractCommitments:
		return r.openContracts(header, has)
	}
	v := versionOf(has)
	if r.preview {
		v = preview
	}
	for i, name := range versions {
		if name == r.opts.FocusVersion {
			v = preview + i
		}
	}
	needed, wanted := missingOf(v, has)
	if len(needed) > 0 {
		return nil, columnsError(header, has, needed)
	}
	r.sum.Dataset, r.sum.FocusVersion = CostAndUsage, versionName(v)
	if len(wanted) > 0 && r.opts.Mapping == "" { // a supplier's own columns owe FOCUS nothing
		reason := "columns that FOCUS " + versionName(v) + " makes mandatory are missing and read as null"
		r.warnOfFile(reason, strings.Join(wanted, ", "))
	}
	return r.openLines(header, has), nil
}

// otherDataset returns which dataset other than Cost and Usage a file with these columns is, "" if none.
func otherDataset(has func(string) bool) string {
	switch {
	case has("ChargePeriodStart"):
	case has("BillingPeriodStatus"):
		return BillingPeriods
	case has("InvoiceDetailId") && has("InvoiceIssueStatus"):
		return InvoiceDetails
	case has("ContractCommitmentId"):
		return ContractCommitments
	}
	return ""
}

// columnsError names the missing columns, the columns found, and what the file looks like
// instead.
func columnsError(header []string, has func(string) bool, missing []string) error {
	found := tabular.Clip(strings.Join(header, ", "))
	return fmt.Errorf("%w: missing %s; found %s%s", ErrColumns, strings.Join(missing, ", "), found, hintOf(header, has))
}

// hintOf says what a file looks like that is not Cost and Usage.
func hintOf(header []string, has func(string) bool) (hint string) {
	switch {
	case has("ContractCommitmentId"):
		hint = "; this looks like the FOCUS dataset Contract Commitment"
	case has("BillingPeriodStatus"):
		hint = "; this looks like the FOCUS dataset Billing Period"
	case has("lineItem/UnblendedCost"), has("line_item_unblended_cost"):
		hint = "; this is a Cost and Usage Report in AWS's own columns: export it as FOCUS, or as version 2.0 and import it with a mapping"
	case tabular.OtherDelimiter(header) != "":
		hint = "; " + tabular.OtherDelimiter(header)
	}
	return hint
}

// emit emits one event, or refuses an event that the ledger would quarantine.
func (r *run) emit(at domain.Instant, subject string, event domain.Event) error {
	r.env = domain.Envelope{Time: at, Subject: subject, Line: uint64(r.line), Event: event}
	if r.opts.Historical {
		r.env.Recorded = at
	}
	if err := r.valid.Validate(&r.env); err != nil {
		var invalid *domain.InvalidError
		if !errors.As(err, &invalid) {
			return err
		}
		return &refusal{field: strings.TrimPrefix(invalid.Field, "line."), reason: invalid.Problem}
	}
	if err := r.emitTo(&r.env); err != nil {
		return err
	}
	r.sum.Events++
	if t := event.Type(); t == domain.TypeBillingLineRecorded {
		r.recorded++
	} else {
		r.sum.Types[t]++
	}
	return nil
}

func (r *run) bad(line int, why *refusal) {
	r.sum.Bad++
	if r.badTo != nil {
		r.badTo(tabular.BadRow{
			File:   r.name,
			Line:   line,
			Field:  tabular.Clip(why.field),
			Value:  tabular.Clip(why.value),
			Reason: why.reason,
		})
	}
}

func (r *run) warn(reason, value string) int {
	i := r.warnings.Add(reason, value, r.line)
	r.sum.Warnings = r.warnings.List
	return i
}

// warnOfFile adds a warning that concerns every row.
func (r *run) warnOfFile(reason, value string) {
	r.ofFile = append(r.ofFile, r.warn(reason, value))
}
