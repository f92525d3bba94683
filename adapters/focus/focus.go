package focus

import (
	"context"
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

// version is the version of the mapping. It is part of the source's name: a
// changed mapping is another source.
const version = "v2"

// ErrColumns is wrapped by the error of a file that is no dataset of FOCUS that
// is read here. Nothing of it was imported; the text says what is missing.
var ErrColumns = errors.New("not the columns of a FOCUS dataset that can be imported")

// Options say what a file does not.
type Options struct {
	// Zone is the IANA name, such as UTC or Europe/Berlin, of the zone of times
	// that name none. Empty: such times are bad rows.
	Zone string
	// Currency, when given, is the one that the file must be billed in; rows in
	// another are bad.
	Currency string
	// FocusVersion, when given, is the version that the file was written in:
	// 1.0 to 1.4. Otherwise it is told from the columns.
	FocusVersion string
	// Historical declares that every fact was known when it became true, so
	// that backtests may use it; otherwise it is known from when it is appended.
	Historical bool
	// Strict makes a bad row of every row with a value that would be set aside or
	// rounded: see the package comment, Deviations.
	Strict bool
	// Elsewhere says who issued an invoice where the file does not; nil: only the file.
	Elsewhere *Elsewhere
	// Limits bound what a hostile file may cost.
	Limits tabular.Limits
	// InvoiceBytes is the most that Invoice Detail may hold in memory, for an
	// invoice is complete only when the file is; default 256 MiB.
	InvoiceBytes int64
}

// Summary is what became of a file.
type Summary struct {
	Dataset      string              `json:"dataset"`       // CostAndUsage or InvoiceDetails; empty when it is neither
	FocusVersion string              `json:"focus_version"` // given or detected
	Rows         int                 `json:"rows"`          // read, without header and blank lines; bad ones included
	Events       int                 `json:"events"`        // handed out
	Bad          int                 `json:"bad"`           // rows not imported
	Types        map[domain.Type]int `json:"types"`         // events by type
	// Deviations counts the values of each kind that went in though the line
	// cannot hold them as they stand.
	Deviations map[Deviation]int `json:"deviations,omitempty"`
	// Rounded is what rounding took from the costs of each invoice.
	Rounded  []Rounding        `json:"rounded,omitempty"`
	Warnings []tabular.Warning `json:"warnings,omitempty"`
}

// SourceName returns the name under which a file is a source of events: its
// SHA-256, the version of the mapping, and the options that change its events,
// sorted. Options that Run would refuse give a name too.
func SourceName(sum [32]byte, o Options) string {
	q := url.Values{}
	for key, value := range map[string]string{"zone": o.Zone, "currency": o.Currency, "focus_version": o.FocusVersion} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if o.Historical {
		q.Set("historical", "true")
	}
	name := "sha256:" + hex.EncodeToString(sum[:]) + "/focus." + version
	if len(q) > 0 {
		name += "?" + q.Encode()
	}
	return name
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
	sum      Summary
	line     int                    // of the row at hand
	warnings tabular.Warnings       // whose list is sum.Warnings
	ofFile   []int                  // indexes of the warnings that concern all rows
	rounded  map[invoiceRounded]int // to the index in sum.Rounded
}

// dataset reads the rows of one dataset. row returns a *refusal for a bad row,
// which must then have emitted nothing, and any other error to stop. end is
// called after the last row.
type dataset interface {
	row(fields []string) error
	end() error
}

// Run reads a file of Cost and Usage or Invoice Detail. name stands for the
// file in messages. again MUST be the same file from its beginning; it is read
// to its end at the first row that names no issuer, and otherwise not at all.
//
// Each event is handed to emit, each row that was not imported to bad (nil:
// they are only counted). The envelope has Time, Recorded, Subject and Event
// set and satisfies domain.Validate; whoever appends it sets Source and
// Sequence. The envelope and a billing line are used again for the next one:
// emit MUST copy what it keeps.
//
// Run returns an error wrapping [ErrColumns] when the file is no such dataset,
// [tabular.ErrTooLarge] when it asks for more than the limits, [tabular.ErrDamaged] when a gzip
// file cannot be unpacked (and [io.ErrUnexpectedEOF] when it is cut off; see
// [tabular.Whole]), and what emit, the context or the file returned;
// the events of the rows before are out by then. The invoices of Invoice Detail
// come out only when the whole file was read. The Summary tells what was done
// in every case.
func Run(ctx context.Context, file, again io.Reader, name string, opts Options, emit func(*domain.Envelope) error, bad func(tabular.BadRow)) (Summary, error) {
	opts.Limits = opts.Limits.WithDefaults()
	if opts.InvoiceBytes <= 0 {
		opts.InvoiceBytes = 256 << 20
	}
	r := &run{ctx: ctx, opts: opts, name: name, again: again, emitTo: emit, badTo: bad}
	r.sum.Types, r.sum.Deviations = map[domain.Type]int{}, map[Deviation]int{}
	r.rounded = map[invoiceRounded]int{}
	err := r.check()
	if err == nil {
		err = r.read(file)
	}
	for _, i := range r.ofFile {
		r.sum.Warnings[i].Rows = r.sum.Rows
	}
	if err != nil {
		err = fmt.Errorf("import focus %s: %w", name, err)
	}
	return r.sum, err
}

// check refuses options under which no row could be read.
func (r *run) check() error {
	o := &r.opts
	if v := o.FocusVersion; v != "" && !slices.Contains(versions, v) {
		return fmt.Errorf("FOCUS version %q is none of %s", tabular.Clip(v), strings.Join(versions, ", "))
	}
	if c := o.Currency; c != "" && (len(c) != 3 || strings.Trim(c, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "") {
		return fmt.Errorf("currency %q is not an ISO 4217 code of three capital letters, for example USD", tabular.Clip(c))
	}
	switch o.Zone {
	case "":
	case "Local":
		return errors.New("zone Local means something else on every machine: name it")
	default:
		zone, err := time.LoadLocation(o.Zone)
		if err != nil {
			return fmt.Errorf("zone %q: %w", tabular.Clip(o.Zone), err)
		}
		r.clock.zone = zone
	}
	return nil
}

// table opens a file and reads its header.
func (r *run) table(file io.Reader) (*table, []string, error) {
	text, err := tabular.Open(r.ctx, file, r.opts.Limits, ErrColumns)
	if err != nil {
		return nil, nil, err
	}
	rs := newTable(text, r.opts.Limits.LineBytes)
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
	for {
		if err := r.ctx.Err(); err != nil {
			return fmt.Errorf("stopped at line %d: %w", rs.frames.Line, err)
		}
		rec, err := rs.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", rec.line, err)
		}
		r.sum.Rows++
		r.line = rec.line
		refused := rec.broken
		if refused == nil && len(rec.fields) != len(header) {
			refused = &refusal{reason: fmt.Sprintf("has %d fields where the header has %d", len(rec.fields), len(header))}
			if rec.open {
				refused.reason += ", and the file ends without a line end, as one that was cut off does"
			}
		}
		if refused == nil {
			if err := set.row(rec.fields); err != nil && !errors.As(err, &refused) {
				return fmt.Errorf("line %d: %w", rec.line, err)
			}
		}
		if refused != nil {
			r.bad(rec.line, refused)
		} else if rec.open {
			r.warn("the file does not end in a line end: if it was cut off, this row lacks the end of its last value", "")
		}
	}
	if r.sum.Rows == 0 {
		r.warn("there are no rows below the header", "")
	}
	return set.end()
}

// header reads the names of the columns, in their own spelling.
func (r *run) header(rs *table) ([]string, error) {
	rec, err := rs.next()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: the file is empty", ErrColumns)
	}
	if err != nil {
		return nil, err
	}
	if rec.broken != nil {
		return nil, fmt.Errorf("%w: the header in line %d: %s", ErrColumns, rec.line, rec.broken.reason)
	}
	header := make([]string, len(rec.fields))
	at := make(map[string]int, len(header))
	for i, f := range rec.fields {
		header[i] = strings.TrimSpace(f)
		if j, twice := at[fold(f)]; twice && fold(f) != "" {
			return nil, fmt.Errorf("%w: column %q stands twice in the header, as number %d and %d", ErrColumns, tabular.Clip(header[i]), j+1, i+1)
		}
		at[fold(f)] = i
	}
	r.line = rec.line
	return header, nil
}

// open says which dataset a file is, and prepares to read it.
func (r *run) open(header []string) (dataset, error) {
	at := make(map[string]int, len(header))
	for i, name := range header {
		if name != "" {
			at[fold(name)] = i
		}
	}
	has := func(name string) bool { _, ok := at[fold(name)]; return ok }
	if !has("ChargePeriodStart") && has("InvoiceDetailId") && has("InvoiceIssueStatus") {
		r.sum.Dataset = InvoiceDetails
		return r.openInvoices(header, has)
	}
	v := versionOf(has)
	for i, name := range versions {
		if name == r.opts.FocusVersion {
			v = 10 + i
		}
	}
	needed, wanted := missingOf(v, has)
	if len(needed) > 0 {
		return nil, columnsError(header, has, needed)
	}
	r.sum.Dataset, r.sum.FocusVersion = CostAndUsage, versionName(v)
	if len(wanted) > 0 {
		r.warnOfFile("columns that FOCUS "+versionName(v)+" makes mandatory are missing and read as null", strings.Join(wanted, ", "))
	}
	return r.openLines(header, has), nil
}

// columnsError names what is missing, what was found, and what the file looks
// like instead.
func columnsError(header []string, has func(string) bool, missing []string) error {
	hint := ""
	switch {
	case has("ContractCommitmentId"):
		hint = "; this is the FOCUS dataset Contract Commitment, which is not imported"
	case has("BillingPeriodStatus"):
		hint = "; this is the FOCUS dataset Billing Period, which is not imported"
	case has("lineItem/UnblendedCost"), has("line_item_unblended_cost"):
		hint = "; this is a Cost and Usage Report in AWS's own columns: export it as FOCUS"
	case tabular.OtherDelimiter(header) != "":
		hint = "; " + tabular.OtherDelimiter(header)
	}
	return fmt.Errorf("%w: missing %s; found %s%s", ErrColumns, strings.Join(missing, ", "), tabular.Clip(strings.Join(header, ", ")), hint)
}

// emit hands out one event, or refuses what the ledger would quarantine.
func (r *run) emit(at domain.Instant, subject string, event domain.Event) error {
	r.env = domain.Envelope{Time: at, Subject: subject, Event: event}
	if r.opts.Historical {
		r.env.Recorded = at
	}
	if err := domain.Validate(&r.env); err != nil {
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
	r.sum.Types[event.Type()]++
	return nil
}

func (r *run) bad(line int, why *refusal) {
	r.sum.Bad++
	if r.badTo != nil {
		r.badTo(tabular.BadRow{File: r.name, Line: line, Field: tabular.Clip(why.field), Value: tabular.Clip(why.value), Reason: why.reason})
	}
}

func (r *run) warn(reason, value string) int {
	i := r.warnings.Add(reason, value, r.line)
	r.sum.Warnings = r.warnings.List
	return i
}

// warnOfFile warns of something that concerns every row.
func (r *run) warnOfFile(reason, value string) {
	r.ofFile = append(r.ofFile, r.warn(reason, value))
}
