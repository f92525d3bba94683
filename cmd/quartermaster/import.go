package main

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

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/focus"
	"quartermaster/adapters/importer"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/tabular"
	"quartermaster/adapters/wire"
	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// importAnswer is what an import answers for one file.
type importAnswer struct {
	File     string              `json:"file"`
	Source   string              `json:"source"`
	Dataset  string              `json:"dataset,omitempty"`       // of FOCUS
	Version  string              `json:"focus_version,omitempty"` // of FOCUS
	Rows     int                 `json:"rows"`
	Events   int                 `json:"events"`
	Types    map[domain.Type]int `json:"types"`
	Appended int                 `json:"appended"`
	Known    int                 `json:"known"` // events that were in the log already
	// Of the events of a bill that were appended: how many the ledger had nothing of,
	// how many it had otherwise, and how many say what it had. Nil for other files.
	Stated   *statedAnswer     `json:"stated,omitempty"`
	Bad      []tabular.BadRow  `json:"bad"` // the first hundred
	BadRows  int               `json:"bad_rows"`
	Refused  bool              `json:"refused"` // whole, by --strict
	Warnings []tabular.Warning `json:"warnings"`
	// Deviations and Rounded are of import focus alone: see focus.Summary.
	Deviations map[focus.Deviation]int `json:"deviations,omitempty"`
	Rounded    []focus.Rounding        `json:"rounded,omitempty"`
	Seconds    float64                 `json:"seconds"`
}

// statedAnswer is how a bill differs from what the ledger has.
type statedAnswer struct {
	New       int `json:"new"`
	Changed   int `json:"changed"`
	Unchanged int `json:"unchanged"`
}

// listedBad is how many bad rows are listed one by one.
const listedBad = 100

type importFlags struct {
	opts   importer.Options
	epoch  string
	strict bool
}

func (a *app) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Append the facts in files to the log",
		Long: `Import reads files in their publishers' own columns and appends what they say
as events. A file is a source named by its SHA-256: importing it again, whole
or from where a crash stopped it, changes nothing. Rows that are no good are
reported with file, line and field while the rest goes in; a gzip file that is
damaged or cut off is refused whole.

JSON keys, one object per file: file, source, dataset and focus_version (of
import focus alone), rows, events, types (events by type), appended, known, stated
(of import focus alone: new, changed, unchanged), bad (file, line, field, value,
reason), bad_rows, refused, warnings (reason, value, rows, line), deviations and
rounded (of import focus alone), seconds.`,
	}
	kinds := []struct {
		kind                  importer.Kind
		short, columns, usage string
	}{
		{importer.Nodes, "machines and their GPUs", `Columns: sn, cpu_milli, memory_mib, gpu, model (the openb trace), and where
they are: uuids (separated by ;), zone, sku, resource_id, billing_model,
provider, billing_account, fabric_domain, in_service_from.`,
			"  quartermaster import nodes openb_node_list_gpu_node.csv --cluster openb --epoch 2023-01-01"},
		{importer.Pods, "workloads, as deployments", `Columns: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos,
pod_phase, creation_time, deletion_time, scheduled_time (the openb trace).
Times are seconds from --epoch.`,
			"  quartermaster import pods openb_pod_list_default.csv --cluster openb --workspace research --epoch 2023-01-01"},
		{importer.Usage, "GPUs running and pending per hour, as demand and as samples of nodes", `Columns: hour, vc, total_gpu, running_gpu_mean, running_gpu_max,
pending_gpu_mean, pending_gpu_max (Helios, hourly). A virtual cluster's GPUs
are laid out as nodes named VC-000, VC-001 and so on, and the hourly mean of
running GPUs becomes one sample per node and interval, lowest nodes first.`,
			"  quartermaster import usage earth_vc_hourly.csv.gz --cluster earth --zone Asia/Shanghai --gpu-model V100"},
		{importer.Demand, "hourly demand by pool", `Columns: hour (or timestamp, usage_hour), pool (or region, region_num), model
(or instance_type), demand (or count, norm_usage), and where it is: unit.`,
			"  quartermaster import demand shavedice_regions_1_2.csv.gz --cluster demand --zone UTC"},
		{importer.Prices, "dated offers of suppliers", `Columns: provider, region, instance_type, gpu_model, gpu_count, gpu_memory,
vcpu, memory, offer, term_months, upfront, hourly, effective_hourly, currency,
as_of, source.`,
			"  quartermaster import prices gpu_offers.csv"},
	}
	for _, k := range kinds {
		var fl importFlags
		sub := &cobra.Command{
			Use:     string(k.kind) + " FILE...",
			Short:   "Import " + k.short,
			Long:    "Import " + k.short + ".\n\n" + k.columns,
			Example: k.usage,
			Args:    cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, files []string) error {
				opts, err := fl.options()
				if err != nil {
					return err
				}
				return a.importFiles(cmd.Context(), files, fl.strict, columnsOf(k.kind, opts), func(h *home) error {
					return h.checkDeclared(cmd.Context(), opts)
				})
			},
		}
		f := sub.Flags()
		f.BoolVar(&fl.strict, "strict", false, "refuse a file whole when any row of it is bad")
		if k.kind != importer.Prices {
			f.StringVar(&fl.opts.Cluster, "cluster", "", "cluster that the file is about (required)")
			must(sub.MarkFlagRequired("cluster"))
		}
		f.DurationVar(&fl.opts.Shift, "shift", 0, "move every time by this much; it becomes part of the source's name")
		f.BoolVar(&fl.opts.Historical, "historical", false, "declare that every fact was known when it became true, so that backtests may use it")
		switch k.kind {
		case importer.Nodes, importer.Usage, importer.Demand:
			f.StringVar(&fl.opts.Zone, "zone", "", "time zone of times that name none, for example UTC or Asia/Shanghai")
		}
		switch k.kind {
		case importer.Nodes:
			f.StringVar(&fl.epoch, "epoch", "", "time from which nodes without in_service_from are there")
		case importer.Pods:
			f.StringVar(&fl.opts.Workspace, "workspace", "", "workspace that the workloads belong to (required)")
			must(sub.MarkFlagRequired("workspace"))
			f.StringVar(&fl.epoch, "epoch", "", "time that second 0 of the file stands for (required)")
			must(sub.MarkFlagRequired("epoch"))
			f.BoolVar(&fl.opts.Standing, "standing", false, "take the file for a mix that stands from --epoch on and never ends, whatever it says of times")
		case importer.Demand:
			f.StringToStringVar(&fl.opts.Regions, "region-of", nil, "names for regions, as 1=us-east-1")
			f.StringToStringVar(&fl.opts.Models, "model-of", nil, "names for models or machine types, as A=p4d.24xlarge")
		case importer.Usage:
			f.StringVar(&fl.opts.SKU, "sku", "", "instance type of the nodes, as bills name it")
			f.StringVar(&fl.opts.Account, "account", "", "billing account that pays for the nodes")
			f.Uint64Var(&fl.opts.CPUMilli, "node-cpu-milli", 0, "thousandths of a CPU in a full node")
			f.Uint64Var(&fl.opts.MemoryMiB, "node-memory-mib", 0, "memory of a full node")
			f.StringVar(&fl.opts.GPUModel, "gpu-model", "", "GPU model of the nodes (required)")
			must(sub.MarkFlagRequired("gpu-model"))
			f.IntVar(&fl.opts.NodeGPUs, "node-gpus", 8, "GPUs in a node")
			f.DurationVar(&fl.opts.Interval, "interval", 10*time.Minute, "length of a sample; it divides the hour")
			f.StringToStringVar(&fl.opts.Workspaces, "workspace-of", nil, "workspaces of virtual clusters, as VC=WORKSPACE; others are their own")
		}
		cmd.AddCommand(sub)
	}
	cmd.AddCommand(a.importFocusCommand())
	return cmd
}

// reader is how files of one sort are read.
type reader struct {
	// source names a file as a source of events, by its SHA-256.
	source func(sum [32]byte) string
	// oneZone: in another zone the file would count again, and is refused.
	oneZone bool
	// whole reads a file to its end and says why it cannot be unpacked.
	whole func(ctx context.Context, file io.Reader) error
	// run hands out the events of a file, and each row that became none. again is
	// the file from its beginning, for a reader that must look at all of it first.
	run func(ctx context.Context, file, again io.Reader, name string, emit func(*domain.Envelope) error, bad func(tabular.BadRow)) (fileRead, error)
}

// fileRead is what became of a file.
type fileRead struct {
	dataset, version  string
	rows, events, bad int
	types             map[domain.Type]int
	warnings          []tabular.Warning
	deviations        map[focus.Deviation]int
	rounded           []focus.Rounding
}

// columnsOf reads public files in their own columns.
func columnsOf(kind importer.Kind, opts importer.Options) reader {
	return reader{
		source: func(sum [32]byte) string { return importer.SourceName(kind, sum, opts) },
		whole:  func(ctx context.Context, file io.Reader) error { return importer.Whole(ctx, file, opts.Limits) },
		run: func(ctx context.Context, file, _ io.Reader, name string, emit func(*domain.Envelope) error, bad func(tabular.BadRow)) (fileRead, error) {
			s, err := importer.Run(ctx, kind, file, name, opts, emit, bad)
			return fileRead{rows: s.Rows, events: s.Events, bad: s.Bad, types: s.Types, warnings: s.Warnings}, err
		},
	}
}

// must is for what only a mistake in this program can make fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (fl *importFlags) options() (importer.Options, error) {
	opts := fl.opts
	if fl.epoch != "" {
		t, err := instantFlag(fl.epoch)
		if err != nil {
			return opts, commandline.Usagef("--epoch: %w", err)
		}
		opts.Epoch = t
	}
	return opts, nil
}

// importFiles imports files one after the other, once check found nothing amiss.
func (a *app) importFiles(ctx context.Context, files []string, strict bool, rd reader, check func(*home) error) error {
	if err := a.notDemo(); err != nil {
		return err
	}
	bad := false
	err := a.with(ctx, func(h *home) error {
		if err := check(h); err != nil {
			return err
		}
		for i, file := range files {
			if i > 0 { // so that a file is compared with those before it
				if err := h.catchUp(ctx); err != nil {
					return err
				}
			}
			ans, err := h.importFile(ctx, file, strict, rd)
			bad = bad || ans.BadRows > 0
			if err == nil || ans.Appended > 0 { // whoever is interrupted learns how far it got
				err = errors.Join(err, a.showImport(ans))
			}
			if err != nil {
				return err
			}
		}
		return h.catchUp(ctx)
	})
	if err == nil && bad {
		return &failed{why: "some rows are bad"}
	}
	return err
}

func (a *app) showImport(ans importAnswer) error {
	if a.json {
		return a.jsonLine(ans)
	}
	for _, b := range ans.Bad {
		fmt.Fprintln(a.err, b)
	}
	if n := ans.BadRows - len(ans.Bad); n > 0 {
		fmt.Fprintf(a.err, "%s: %s more bad rows\n", ans.File, comma(n))
	}
	for _, w := range ans.Warnings {
		value := ""
		if w.Value != "" {
			value = fmt.Sprintf(" %q", w.Value)
		}
		fmt.Fprintf(a.err, "%s:%d: %s%s (%s rows)\n", ans.File, w.Line, w.Reason, value, comma(w.Rows))
	}
	for i, r := range ans.Rounded {
		if i == shownRows {
			fmt.Fprintf(a.err, "%s: and %s more; see --json\n", ans.File, comma(len(ans.Rounded)-shownRows))
			break
		}
		fmt.Fprintf(a.err, "%s: %s of %s, account %s: rounding to 18 decimals took %s %s of what is billed, %s of the effective cost (%s lines)\n", ans.File,
			invoiceText(r.Invoice, r.Period), clipped(r.Issuer), clipped(r.Account), r.Billed, r.Currency, r.Effective, comma(r.Lines))
	}
	if ans.Refused {
		fmt.Fprintf(a.out, "%s: refused whole, %s of %s rows are bad\n", ans.File, comma(ans.BadRows), comma(ans.Rows))
		return nil
	}
	if s := ans.Stated; s != nil {
		fmt.Fprintf(a.out, "%s: %s rows, %s events: %s new, %s changed, %s known already, %s bad rows\n", ans.File,
			comma(ans.Rows), comma(ans.Events), comma(s.New), comma(s.Changed), comma(s.Unchanged+ans.Known), comma(ans.BadRows))
		return nil
	}
	fmt.Fprintf(a.out, "%s: %s rows, %s events: %s appended, %s known already, %s bad rows\n", ans.File,
		comma(ans.Rows), comma(ans.Events), comma(ans.Appended), comma(ans.Known), comma(ans.BadRows))
	return nil
}

// checkDeclared refuses an import that names what nobody declared: it is
// usually a slip of the pen, and would sit in every report.
func (h *home) checkDeclared(ctx context.Context, opts importer.Options) error {
	return h.view(ctx, func(v projections.View) error {
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
				return &application.NotFoundError{What: "cluster", Name: c, Err: fmt.Errorf("cluster %q is not registered: declare it with \"quartermaster apply -f FILE\" (see \"quartermaster apply --help\" for an example)", c)}
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
				return &application.NotFoundError{What: "workspace", Name: w, Err: fmt.Errorf("workspace %q is not registered: declare it with \"quartermaster apply -f FILE\"", w)}
			}
		}
		return nil
	})
}

// appendBatch is how many events are appended at a time.
const appendBatch = 4000

func (h *home) importFile(ctx context.Context, path string, strict bool, rd reader) (importAnswer, error) {
	ans := importAnswer{File: path, Types: map[domain.Type]int{}, Bad: []tabular.BadRow{}, Warnings: []tabular.Warning{}}
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
	// Half a bill in the books is worse than none, so a file that cannot be
	// unpacked to its end is refused before anything of it is appended.
	if err := rd.whole(ctx, io.TeeReader(f, sum)); err != nil {
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
	again := sha256.New() // of what is read the second time
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
		return rd.run(ctx, sips{io.TeeReader(f, again)}, io.NewSectionReader(f, 0, info.Size()), path, emit, bad)
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
	ap, err := h.resume(ctx, ans.Source)
	if err != nil {
		return ans, err
	}
	ap.rows = h.view
	b := h.app.bar("import", info.Size(), "bytes")
	defer b.stop()
	stop := b.follow(func() int64 {
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
	if ans.Dataset != "" {
		ans.Stated = &ap.stated
	}
	ans.Seconds = time.Since(start).Seconds()
	if err != nil {
		return ans, err
	}
	if _, err := io.Copy(again, f); err != nil {
		return ans, fmt.Errorf("import %s: %w", path, err)
	}
	if !bytes.Equal(again.Sum(nil), sum.Sum(nil)) {
		return ans, fmt.Errorf("import %s: the file changed while it was read, so what went in as %s is not what that name says; import the file again, and look at what it was", path, shortSource(ans.Source))
	}
	return ans, nil
}

// oneZone refuses a file whose times were read in another zone before: its rows
// would be other rows, and count again.
func (h *home) oneZone(ctx context.Context, path, source string) error {
	file, zone := zoneOf(source)
	if zone == "" {
		return nil
	}
	return h.view(ctx, func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableStreams}, func(k projections.Key, _ projections.Row) error {
			if name, before := zoneOf(k.ID); name == file && before != "" && before != zone {
				return fmt.Errorf("import %s: the log has this file with its times in zone %s; read in %s its rows would be others, and count again", path, before, zone)
			}
			return nil
		})
	})
}

// zoneOf takes the name of a file's source apart.
func zoneOf(source string) (file, zone string) {
	file, options, _ := strings.Cut(source, "?")
	values, err := url.ParseQuery(options)
	if err != nil {
		return file, ""
	}
	return file, values.Get("zone")
}

// sips reads a little at a time, so that the place in a file says how far its
// rows are: a compressed file of a month is no larger than a buffer.
type sips struct{ r io.Reader }

func (s sips) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), 4096)]) }

// appender appends the events of a source that were not appended before.
type appender struct {
	ctx             context.Context
	log             *kafka.Log
	source          string
	marks           map[domain.TopicPartition]uint64 // what the log has of the source
	seq             map[domain.TopicPartition]uint64
	batch           []domain.Record
	appended, known int

	// rows, if not nil, is asked what the ledger has of a bill.
	rows      func(context.Context, func(projections.View) error) error
	restating costs.Restating
	stated    statedAnswer
	said      []costs.Said // by the events of a bill in the batch
}

// importIncarnation is the one life of an imported file.
const importIncarnation = 1

// resume returns an appender that skips what the log already has of a source.
func (h *home) resume(ctx context.Context, source string) (*appender, error) {
	ap := &appender{
		ctx: ctx, log: h.log, source: source,
		marks: map[domain.TopicPartition]uint64{}, seq: map[domain.TopicPartition]uint64{},
	}
	err := h.view(ctx, func(v projections.View) error {
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
	// Before they are appended: in production others fold them at once.
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

// compare counts what the batch says of a bill beside the ledger as it was when the
// import began.
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

func comma(n int) string { return humanize.Comma(int64(n)) }

// shortSource makes a source's name fit a line.
func shortSource(s string) string {
	if rest, ok := strings.CutPrefix(s, "sha256:"); ok && len(rest) > 64 {
		return "sha256:" + rest[:12] + "…" + rest[64:]
	}
	return s
}
