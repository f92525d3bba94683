package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"quartermaster/adapters/bill"
	"quartermaster/adapters/focus"
	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/importer"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/tabular"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// billingLines calls yield with every line that the ledger has of the month of a billing period.
func (h *Conn) billingLines(ctx context.Context, period domain.Interval, yield func(*domain.BillingLine) error) error {
	return h.View(ctx, func(v projections.View) error {
		return costs.EachLine(v, projections.MonthOf(period), func(l *costs.LedgerLine) error { return yield(&l.BillingLine) })
	})
}

// openBill opens a bill in any format.
func openBill(ctx context.Context, file io.Reader, limits tabular.Limits) (tabular.Table, error) {
	if parquet.Is(file) {
		return parquet.Open(ctx, file, limits, focus.ErrColumns)
	}
	return focus.OpenCSV(ctx, file, limits)
}

// MappedBy returns options to read bills in a supplier's own columns.
func MappedBy(m *bill.Mapping, opts focus.Options) focus.Options {
	opts.Documents = m.Documents()
	opts.Mapping = strings.Join(append([]string{m.String() + ":" + m.SHA256[:12]}, m.Given()...), ";")
	opts.Whole = func(ctx context.Context, file io.Reader, limits tabular.Limits) error {
		return m.Whole(ctx, file, limits, wholeBill)
	}
	opts.Open = func(ctx context.Context, file io.Reader, limits tabular.Limits) (tabular.Table, error) {
		return m.Open(ctx, file, limits, openBill)
	}
	return opts
}

// wholeBill reads a bill in any format to its end, and returns why it cannot be decoded.
func wholeBill(ctx context.Context, file io.Reader, limits tabular.Limits) error {
	if parquet.Is(file) {
		return parquet.Whole(ctx, file, limits, focus.ErrColumns)
	}
	return tabular.Whole(ctx, file, limits, focus.ErrColumns)
}

// wholeOf reads a bill to its end as the options say, and returns why it cannot be decoded.
func wholeOf(ctx context.Context, file io.Reader, opts focus.Options) error {
	if opts.Whole != nil {
		return opts.Whole(ctx, file, opts.Limits)
	}
	return wholeBill(ctx, file, opts.Limits)
}

// ValidateFocus checks a file of Cost and Usage against the rules of FOCUS: see [focus.Validate].
func ValidateFocus(ctx context.Context, name string, opts focus.Options, report func(focus.Violation)) (focus.Verdict, error) {
	f, err := os.Open(name)
	if err != nil {
		return focus.Verdict{}, fmt.Errorf("validate: %w", err)
	}
	defer f.Close()
	opts.Open = openBill
	v, err := focus.Validate(ctx, f, name, opts, report)
	if errors.Is(err, focus.ErrColumns) {
		err = &InvalidError{Err: err}
	}
	return v, err
}

// billsOf reads bills in the columns of FOCUS.
func billsOf(opts focus.Options) reader {
	if opts.Open == nil {
		opts.Open = openBill
	}
	return reader{
		source:  func(sum [32]byte) string { return focus.SourceName(sum, opts) },
		oneZone: true,
		keep:    true, documents: opts.Documents,
		whole: func(ctx context.Context, file io.Reader) error { return wholeOf(ctx, file, opts) },
		run: func(ctx context.Context, file, again io.Reader, name string, emit func(*domain.Envelope) error, bad func(tabular.BadRow)) (fileRead, error) {
			s, err := focus.Run(ctx, file, again, name, opts, emit, bad)
			return fileRead{
				dataset: s.Dataset, version: s.FocusVersion, rows: s.Rows, events: s.Events, bad: s.Bad, types: s.Types, warnings: s.Warnings,
				deviations: s.Deviations, rounded: s.Rounded, contracts: s.Contracts,
			}, err
		},
	}
}

// Imported is the result of importing one file.
type Imported struct {
	File     string              `json:"file"`
	Source   string              `json:"source"`
	Kept     bool                `json:"kept"`                    // the bytes of the file: see "import show"
	Dataset  string              `json:"dataset,omitempty"`       // of FOCUS
	Version  string              `json:"focus_version,omitempty"` // of FOCUS
	Rows     int                 `json:"rows"`
	Events   int                 `json:"events"`
	Types    map[domain.Type]int `json:"types"` // events by type
	Appended int                 `json:"appended"`
	Known    int                 `json:"known"` // events that the log already had
	// Of the appended events of a bill: how many are new to the ledger, how many change it, and
	// how many repeat it. Nil for other files.
	Stated   *Stated           `json:"stated,omitempty"`
	Snapshot *Replaced         `json:"snapshot,omitempty"` // of an export that replaces a month
	Bad      []tabular.BadRow  `json:"bad"`                // the first hundred
	BadRows  int               `json:"bad_rows"`
	Refused  bool              `json:"refused"` // the whole file, by --strict
	Warnings []tabular.Warning `json:"warnings"`
	// Deviations and Rounded are set by import focus alone: see focus.Summary.
	Deviations map[focus.Deviation]int `json:"deviations,omitempty"`
	Rounded    []focus.Rounding        `json:"rounded,omitempty"`
	Contracts  *ContractsCompared      `json:"contracts,omitempty"` // of a file of Contract Commitment
	Seconds    float64                 `json:"seconds"`
}

// Stated is how a bill differs from the ledger.
type Stated struct {
	New       int `json:"new"`
	Changed   int `json:"changed"`
	Unchanged int `json:"unchanged"`
}

// listedBad is how many bad rows are listed individually.
const listedBad = 100

// reader reads files of one format.
type reader struct {
	// source names a file as a source of events, by its SHA-256.
	source func(sum [32]byte) string
	// oneZone: the same file in another time zone would count again, and is refused.
	oneZone bool
	// keep: the bytes of the file are kept, and with them those of documents.
	keep      bool
	documents []focus.Document
	// whole reads a file to its end and returns why it cannot be decompressed.
	whole func(ctx context.Context, file io.Reader) error
	// run emits the events of a file, and reports each row that became no event. again is the
	// file from its beginning, for a reader that needs two passes.
	run func(ctx context.Context, file, again io.Reader, name string, emit func(*domain.Envelope) error, bad func(tabular.BadRow)) (fileRead, error)
}

// fileRead is the summary of a file.
type fileRead struct {
	dataset, version  string
	rows, events, bad int
	types             map[domain.Type]int
	warnings          []tabular.Warning
	deviations        map[focus.Deviation]int
	rounded           []focus.Rounding
	contracts         []focus.Contract
}

// columnsOf reads public files in their publishers' columns.
func columnsOf(kind importer.Kind, opts importer.Options) reader {
	return reader{
		source: func(sum [32]byte) string { return importer.SourceName(kind, sum, opts) },
		keep:   kind == importer.Prices || kind == importer.Energy,
		whole: func(ctx context.Context, file io.Reader) error {
			return tabular.Whole(ctx, file, opts.Limits, importer.ErrColumns)
		},
		run: func(ctx context.Context, file, _ io.Reader, name string, emit func(*domain.Envelope) error, bad func(tabular.BadRow)) (fileRead, error) {
			s, err := importer.Run(ctx, kind, file, name, opts, emit, bad)
			return fileRead{rows: s.Rows, events: s.Events, bad: s.Bad, types: s.Types, warnings: s.Warnings}, err
		},
	}
}

// checkDeclared refuses an import that names something undeclared. It is usually a typo, and
// would otherwise appear in every report.
func (h *Conn) checkDeclared(ctx context.Context, opts importer.Options) error {
	return h.View(ctx, func(v projections.View) error {
		if c := opts.Cluster; c != "" {
			auth, err := registry.NewAuthority(v)
			if err != nil {
				return err
			}
			declared, err := registry.Declared(v, auth, &domain.Envelope{Cluster: c, Event: &domain.ClusterRegistered{}})
			if err != nil {
				return err
			}
			if declared == nil {
				return &NotFoundError{What: "cluster", Name: c, Err: fmt.Errorf("cluster %q is not registered: declare it with "+
					"\"quartermaster apply\", whose help has an example", c)}
			}
		}
		names := slices.Sorted(maps.Values(opts.Workspaces))
		if opts.Workspace != "" {
			names = append(names, opts.Workspace)
		}
		for _, w := range names {
			row, err := v.Get(projections.Key{Table: projections.TableWorkspaces, Scope: w, ID: w})
			if err != nil {
				return err
			}
			if row == nil {
				return &NotFoundError{What: "workspace", Name: w, Err: fmt.Errorf("workspace %q is not registered: declare it with \"quartermaster apply -f FILE\"", w)}
			}
		}
		return nil
	})
}

// appendBatch is how many events are appended at a time.
const appendBatch = 4000

func (h *Conn) importFile(ctx context.Context, path string, strict bool, rd reader) (Imported, error) {
	ans := Imported{File: path, Types: map[domain.Type]int{}, Bad: []tabular.BadRow{}, Warnings: []tabular.Warning{}}
	start := time.Now()
	f, err := os.Open(path)
	if err != nil {
		return ans, fmt.Errorf("import: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ans, fmt.Errorf("import: %w", err)
	}
	if !info.Mode().IsRegular() {
		return ans, fmt.Errorf("import %s: not a regular file; a file is read twice, first for its SHA-256", path)
	}
	sum := sha256.New()
	// Half a bill in the ledger is worse than none. A file that cannot be decompressed to its end
	// is refused before anything is appended.
	// Parquet is read from its end, so it is hashed on its own.
	columnar := parquet.Is(f)
	check := io.TeeReader(f, sum)
	if columnar {
		check = io.NewSectionReader(f, 0, info.Size())
	}
	if err := rd.whole(ctx, check); err != nil {
		return ans, fmt.Errorf("import %s: nothing of it was imported: %w", path, err)
	}
	if _, err := io.Copy(sum, f); err != nil {
		return ans, fmt.Errorf("import %s: %w", path, err)
	}
	ans.Source = rd.source([32]byte(sum.Sum(nil)))
	if rd.oneZone {
		if err := h.oneZone(ctx, path, ans.Source); err != nil {
			return ans, err
		}
	}
	again := sha256.New() // of the second pass
	bad := func(b tabular.BadRow) {
		ans.BadRows++
		if len(ans.Bad) < listedBad {
			ans.Bad = append(ans.Bad, b)
		}
	}
	pass := func(emit func(*domain.Envelope) error) (fileRead, error) {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fileRead{}, fmt.Errorf("import %s: %w", path, err)
		}
		var rows io.Reader = io.NewSectionReader(f, 0, info.Size())
		if !columnar {
			rows = sips{io.TeeReader(f, again)}
		}
		return rd.run(ctx, rows, io.NewSectionReader(f, 0, info.Size()), path, emit, bad)
	}
	if strict {
		read, err := pass(func(*domain.Envelope) error { return nil })
		if err != nil {
			return ans, err
		}
		if read.bad > 0 {
			ans.Dataset, ans.Version = read.dataset, read.version
			ans.Rows, ans.Warnings = read.rows, append(ans.Warnings, read.warnings...)
			ans.Refused, ans.Seconds = true, time.Since(start).Seconds()
			return ans, nil
		}
	}
	if rd.keep {
		if ans.Kept, err = h.keepFiles(ans.Source, []monthFile{{name: path, sum: [32]byte(sum.Sum(nil))}}, rd.documents); err != nil {
			return ans, err
		}
	}
	ap, err := h.resume(ctx, ans.Source)
	if err != nil {
		return ans, err
	}
	ap.rows = h.View
	b := h.app.track(Work{Name: "import", Total: info.Size(), Unit: "bytes"})
	defer b.Stop()
	stop := follow(b, func() int64 {
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return 0
		}
		return at
	})
	again.Reset()
	read, err := pass(ap.add)
	stop()
	if err == nil {
		err = ap.flush(ctx)
	}
	ans.Dataset, ans.Version = read.dataset, read.version
	ans.Rows, ans.Events, ans.Types = read.rows, read.events, read.types
	ans.Warnings = append(ans.Warnings, read.warnings...)
	ans.Deviations, ans.Rounded = read.deviations, read.rounded
	ans.Appended, ans.Known = ap.appended, ap.known
	switch ans.Dataset {
	case focus.CostAndUsage, focus.InvoiceDetails:
		ans.Stated = &ap.stated
	case focus.ContractCommitments:
		if err == nil {
			ans.Contracts, err = h.compareContracts(ctx, read.contracts)
		}
	}
	ans.Seconds = time.Since(start).Seconds()
	if err != nil {
		return ans, err
	}
	if _, err := io.Copy(again, f); err != nil {
		return ans, fmt.Errorf("import %s: %w", path, err)
	}
	if !bytes.Equal(again.Sum(nil), sum.Sum(nil)) {
		return ans, fmt.Errorf("import %s: the file changed while it was read, so the events of source %s do not match its checksum; "+
			"import the file again, and check what it contained", path, ShortSource(ans.Source))
	}
	return ans, nil
}

// oneZone refuses a file whose times were read in another zone before: its rows would differ, and
// count again.
func (h *Conn) oneZone(ctx context.Context, path, source string) error {
	file, zone := zoneOf(source)
	if zone == "" {
		return nil
	}
	return h.View(ctx, func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableStreams}, func(k projections.Key, _ projections.Row) error {
			if name, before := zoneOf(k.ID); name == file && before != "" && before != zone {
				return fmt.Errorf("import %s: the log has this file with its times in zone %s; in %s its rows would differ, and count again",
					path, before, zone)
			}
			return nil
		})
	})
}

// zoneOf splits the source name of a file.
func zoneOf(source string) (file, zone string) {
	file, options, _ := strings.Cut(source, "?")
	values, err := url.ParseQuery(options)
	if err != nil {
		return file, ""
	}
	return file, values.Get("zone")
}

// sips reads a little at a time, so that the offset in a file shows the progress of its rows: a
// month of data may compress to less than a buffer.
type sips struct{ r io.Reader }

func (s sips) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), 4096)]) }

// appender appends the events of a source that were not appended before.
type appender struct {
	ctx             context.Context
	log             *kafka.Log
	source          string
	marks           map[domain.TopicPartition]uint64 // the log's marks of the source
	seq             map[domain.TopicPartition]uint64
	batch           []domain.Record
	appended, known int
	valid           bool // the first event, with its place in the stream

	// rows, if not nil, reads what the ledger has of a bill.
	rows      func(context.Context, func(projections.View) error) error
	restating costs.Restating
	stated    Stated
	said      []costs.Said // statements of a bill in the batch
}

// importIncarnation is the only incarnation of an imported file.
const importIncarnation = 1

// resume returns an appender that skips the events of a source that the log already has.
func (h *Conn) resume(ctx context.Context, source string) (*appender, error) {
	ap := &appender{
		ctx: ctx, log: h.Log, source: source,
		marks: map[domain.TopicPartition]uint64{}, seq: map[domain.TopicPartition]uint64{},
	}
	err := h.View(ctx, func(v projections.View) error {
		for _, tp := range domain.AllPartitions() {
			row, err := v.Get(projections.StreamKey(tp, source, importIncarnation))
			if err != nil {
				return err
			}
			if s, ok := row.(*projections.Stream); ok {
				if s.Missing() > 0 {
					return fmt.Errorf("import: the log has %d holes of %s in %s: look at \"quartermaster log stats\"", s.Missing(), source, tp)
				}
				ap.marks[tp] = s.Mark
			}
		}
		return nil
	})
	return ap, err
}

func (ap *appender) add(env *domain.Envelope) error {
	key, err := env.Key()
	if err != nil {
		return err
	}
	tp := domain.TopicPartition{Topic: env.Topic()}
	tp.Partition = domain.PartitionOf([]byte(key), tp.Topic.Partitions())
	ap.seq[tp]++
	if ap.seq[tp] <= ap.marks[tp] {
		ap.known++
		return nil
	}
	env.Source, env.Incarnation, env.Sequence = ap.source, importIncarnation, ap.seq[tp]
	// The readers have validated all but the place in the stream. The first event shows that its name fits:
	// otherwise every event would be quarantined.
	if !ap.valid {
		if err := domain.Validate(env); err != nil {
			return fmt.Errorf("import: nothing was imported: %w", err)
		}
		ap.valid = true
	}
	rec, err := wire.Encode(env)
	if err != nil {
		return err
	}
	rec.Partition = tp.Partition
	ap.batch = append(ap.batch, rec)
	if ap.rows != nil {
		said, ok, err := costs.Says(env)
		if err != nil {
			return err
		}
		if ok {
			ap.said = append(ap.said, said)
		}
	}
	if len(ap.batch) >= appendBatch {
		return ap.flush(ap.ctx)
	}
	return nil
}

func (ap *appender) flush(ctx context.Context) error {
	if len(ap.batch) == 0 {
		return nil
	}
	// Compare before appending: with --config other instances fold the events at once.
	if err := ap.compare(ctx); err != nil {
		return err
	}
	if err := ap.log.Append(ctx, ap.batch); err != nil {
		return fmt.Errorf("append to the log: %w (import the file again to go on)", err)
	}
	ap.appended += len(ap.batch)
	ap.batch = ap.batch[:0]
	return nil
}

// compare compares the batch with the ledger at the start of the import.
func (ap *appender) compare(ctx context.Context) error {
	if len(ap.said) == 0 {
		return nil
	}
	err := ap.rows(ctx, func(v projections.View) error {
		for _, said := range ap.said {
			s, err := ap.restating.Beside(v, said)
			if err != nil {
				return err
			}
			switch s {
			case costs.NewLine:
				ap.stated.New++
			case costs.Changed:
				ap.stated.Changed++
			case costs.Unchanged:
				ap.stated.Unchanged++
			}
		}
		return nil
	})
	ap.said = ap.said[:0]
	return err
}

// ShortSource shortens a source name to fit a line.
func ShortSource(s string) string {
	if rest, ok := strings.CutPrefix(s, "sha256:"); ok && len(rest) > 64 {
		return "sha256:" + rest[:12] + "…" + rest[64:]
	}
	return s
}

// ImportColumns imports files in their publishers' columns, one after the other. It calls done
// with the result of each file, including the partial result of an interrupted one. With strict a
// file with any bad row is refused as a whole.
func (c *Caller) ImportColumns(ctx context.Context, kind importer.Kind, opts importer.Options, files []string, strict bool, done func(*Imported) error) error {
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return err
	}
	if err := h.checkDeclared(ctx, opts); err != nil {
		return err
	}
	if kind == importer.Usage {
		var auth *registry.Authority // of all nodes, read for the first one
		opts.Declared = func(node string, at domain.Instant) (ev *domain.NodeRegistered, err error) {
			err = h.View(ctx, func(v projections.View) error {
				if auth == nil {
					if auth, err = registry.NewAuthority(v); err != nil {
						return err
					}
				}
				ev, err = declaredNode(v, auth, opts.Cluster, node, at)
				return err
			})
			return ev, err
		}
	}
	return h.importFiles(ctx, files, strict, columnsOf(kind, opts), done)
}

// declaredNode returns the description of a node that is in force at a time, nil if there is none.
func declaredNode(v projections.View, auth *registry.Authority, cluster, node string, at domain.Instant) (*domain.NodeRegistered, error) {
	k := projections.Key{Table: projections.TableNodes, Scope: cluster, ID: node}
	row, err := v.Get(k)
	if err != nil || row == nil {
		return nil, err
	}
	in := auth.At(k, row.(*projections.History), at)
	if in == nil {
		return nil, nil
	}
	ev, _ := in.Event.(*domain.NodeRegistered) // nil if it was retired
	return ev, nil
}

// ImportBills is ImportColumns for suppliers' bills in the columns of FOCUS. Rows without an
// issuer are compared with all of the files and with the ledger.
func (c *Caller) ImportBills(ctx context.Context, opts focus.Options, files []string, strict bool, done func(*Imported) error) error {
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return err
	}
	opts.Strict, opts.Elsewhere = strict, &focus.Elsewhere{Lines: h.billingLines}
	for _, name := range files {
		opts.Elsewhere.Files = append(opts.Elsewhere.Files, focus.File{Name: name, Open: func() (io.ReadCloser, error) { return os.Open(name) }})
	}
	return h.importFiles(ctx, files, strict, billsOf(opts), done)
}

func (h *Conn) importFiles(ctx context.Context, files []string, strict bool, rd reader, done func(*Imported) error) error {
	for i, file := range files {
		if i > 0 { // so that a file is compared with those before it
			if err := h.CatchUp(ctx); err != nil {
				return err
			}
		}
		got, err := h.importFile(ctx, file, strict, rd)
		if err == nil || got.Appended > 0 { // report the progress of an interrupted import too
			err = errors.Join(err, done(&got))
		}
		if errors.Is(err, focus.ErrColumns) || errors.Is(err, importer.ErrColumns) || errors.Is(err, bill.ErrGiven) {
			err = &InvalidError{Err: err}
		}
		if err != nil {
			return err
		}
	}
	return h.CatchUp(ctx)
}

// AppendOnce appends the events of a source that are not in the log yet. They are numbered as
// those of a file are, so that the same events of the same source are appended once.
func (c *Caller) AppendOnce(ctx context.Context, source string, envs []domain.Envelope) (appended int, err error) {
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return 0, err
	}
	ap, err := h.resume(ctx, source)
	if err != nil {
		return 0, err
	}
	for i := range envs {
		if err := domain.Validate(&envs[i]); err != nil {
			return 0, &InvalidError{Err: fmt.Errorf("%s: %w", source, err)}
		}
		if err := ap.add(&envs[i]); err != nil {
			return 0, fmt.Errorf("%s: %w", source, err)
		}
	}
	if err := ap.flush(ctx); err != nil {
		return 0, err
	}
	return ap.appended, h.CatchUp(ctx)
}
