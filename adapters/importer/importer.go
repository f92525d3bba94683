package importer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones must mean the same on every machine

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// Kind is a file format.
type Kind string

// The kinds.
const (
	Nodes  Kind = "nodes"
	Pods   Kind = "pods"
	Usage  Kind = "usage"
	Demand Kind = "demand"
	Prices Kind = "prices"
	Energy Kind = "energy"
)

// Kinds returns every kind in a fixed order.
func Kinds() []Kind { return []Kind{Nodes, Pods, Usage, Prices, Demand, Energy} }

// version returns the version of a kind's mapping. It is part of the source's name, so a changed
// mapping makes a different source without affecting the other kinds.
func version(kind Kind) string {
	if kind == Usage {
		return "v3" // v1 had no resource_id for nodes, v2 no activity
	}
	return "v1"
}

// Options supply what a file does not contain. Each field names the kinds that use it.
type Options struct {
	// Cluster receives the events of nodes, pods, usage, demand and energy. Required for these.
	Cluster string
	// Workspace owns the deployments of pods. Required for these.
	Workspace string
	// Workspaces maps virtual clusters of usage to workspaces. An unmapped virtual cluster is
	// its own workspace.
	Workspaces map[string]string
	// Epoch is the time of a node list without dates, and the origin of the seconds in pods.
	// Required for pods, and for nodes without in_service_from.
	Epoch domain.Instant
	// Zone is the IANA name, such as UTC or Europe/Berlin, of the time zone of times without
	// one. If empty, such times make bad rows. Not used by pods and prices.
	Zone string
	// Shift is added to every time of the file. For usage and demand it is a
	// whole number of hours.
	Shift time.Duration
	// NodeGPUs is the size of the nodes of usage, 1 to 64; default 8.
	NodeGPUs int
	// Interval is the length of the samples of usage: whole seconds that divide
	// the hour; default 10 minutes.
	Interval time.Duration
	// GPUModel is the model of the GPUs of usage. Required for it.
	GPUModel string
	// SKU is the instance type of the nodes of usage, and Account the billing account that pays
	// for them, as in bills. A bill is matched to the nodes by them and by the nodes' names,
	// which are also their resource ids.
	SKU, Account string
	// Declared returns what was declared of a node of usage before, as it is in force at a time; nil if
	// nothing was. It stays, except for what SKU, Account, CPUMilli, MemoryMiB and GPUModel state, and so
	// do GPUs whose ids were not derived. If the function is nil, nothing was declared.
	Declared func(node string, at domain.Instant) (*domain.NodeRegistered, error)
	// CPUMilli (thousandths of a CPU) and MemoryMiB are the size of a full node of usage, below
	// 2⁵⁰ each. A smaller node gets its share, rounded down. 0 means unknown.
	CPUMilli, MemoryMiB uint64
	// Regions and Models rename the regions and the models (or machine types) of demand, such as
	// "1" to "us-east-1". A name that is not in a nonempty map is kept, with a warning.
	Regions, Models map[string]string
	// Standing ignores the times of pods: all pods exist from the epoch on and never end. That
	// is a workload mix to pack, not a schedule.
	Standing bool
	// Historical declares that every fact was known when it became true, so that backtests may
	// use it. Otherwise a fact counts as known from when it is appended.
	Historical bool
	// Limits bound the resources that a hostile file can use.
	Limits tabular.Limits
}

// Summary is the result of importing a file.
type Summary struct {
	Kind     Kind                `json:"kind"`
	Rows     int                 `json:"rows"`   // read, including bad rows, without header and blank lines
	Events   int                 `json:"events"` // emitted
	Bad      int                 `json:"bad"`    // rows not imported
	Types    map[domain.Type]int `json:"types"`  // events by type
	Warnings []tabular.Warning   `json:"warnings,omitempty"`
}

// SourceName returns the name of a file as a source of events: its SHA-256, the kind with the
// version of its mapping, and the options that change its events, sorted. If the options would
// not fit, their SHA-256 replaces them. SourceName accepts options that Run would refuse.
func SourceName(kind Kind, sum [32]byte, o Options) string {
	o = o.withDefaults()
	q := url.Values{}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	if kind != Prices {
		set("cluster", o.Cluster)
	}
	if kind == Pods {
		set("workspace", o.Workspace)
	}
	if kind == Nodes || kind == Pods {
		set("epoch", o.Epoch.String())
	}
	if kind == Pods && o.Standing {
		set("standing", "true")
	}
	if kind != Pods && kind != Prices {
		set("zone", o.Zone)
	}
	if kind == Usage {
		set("node_gpus", strconv.Itoa(o.NodeGPUs))
		set("interval", o.Interval.String())
		set("gpu_model", o.GPUModel)
		set("sku", o.SKU)
		set("billing_account", o.Account)
		if o.CPUMilli != 0 {
			set("cpu_milli", strconv.FormatUint(o.CPUMilli, 10))
		}
		if o.MemoryMiB != 0 {
			set("memory_mib", strconv.FormatUint(o.MemoryMiB, 10))
		}
		for vc, ws := range o.Workspaces {
			set("workspace."+vc, ws)
		}
	}
	if kind == Demand {
		for from, to := range o.Regions {
			set("region."+from, to)
		}
		for from, to := range o.Models {
			set("model."+from, to)
		}
	}
	if o.Shift != 0 {
		set("shift", o.Shift.String())
	}
	if o.Historical {
		set("historical", "true")
	}
	name := "sha256:" + hex.EncodeToString(sum[:]) + "/" + string(kind) + "." + version(kind)
	if len(q) > 0 {
		options := q.Encode()
		if len(name)+1+len(options) > maxName {
			options = fmt.Sprintf("options=%x", sha256.Sum256([]byte(options)))
		}
		name += "?" + options
	}
	return name
}

func (o Options) withDefaults() Options {
	if o.NodeGPUs == 0 {
		o.NodeGPUs = 8
	}
	if o.Interval == 0 {
		o.Interval = 10 * time.Minute
	}
	o.Limits = o.Limits.WithDefaults()
	return o
}

// check refuses invalid options.
func (o Options) check(kind Kind) error {
	missing := func(what string) error { return fmt.Errorf("import %s: no %s given", kind, what) }
	switch {
	case !slices.Contains(Kinds(), kind):
		return fmt.Errorf("import %q: no such kind, want one of %v", kind, Kinds())
	case kind != Prices && o.Cluster == "":
		return missing("cluster")
	case kind == Pods && o.Workspace == "":
		return missing("workspace")
	case kind == Pods && o.Epoch == 0:
		return missing("epoch for its seconds")
	case kind == Usage && o.GPUModel == "":
		return missing("GPU model")
	case kind == Usage && (o.NodeGPUs < 1 || o.NodeGPUs > 64):
		return fmt.Errorf("import usage: nodes of %d GPUs, want 1 to 64", o.NodeGPUs)
	case kind == Usage && (o.Interval < time.Second || o.Interval%time.Second != 0 || time.Hour%o.Interval != 0):
		return fmt.Errorf("import usage: interval %v is not whole seconds that divide an hour", o.Interval)
	case kind == Usage && (o.CPUMilli > maxNodeSize || o.MemoryMiB > maxNodeSize):
		return fmt.Errorf("import usage: nodes of %d thousandths of a CPU and %d MiB are implausibly large", o.CPUMilli, o.MemoryMiB)
	case (kind == Usage || kind == Demand) && o.Shift%time.Hour != 0:
		return fmt.Errorf("import %s: shift %v is not a whole number of hours", kind, o.Shift)
	case o.Epoch != 0 && (o.Epoch < minInstant || o.Epoch > maxInstant):
		return fmt.Errorf("import %s: epoch %s is outside the years 1971 to 2259", kind, o.Epoch)
	}
	names := []struct{ what, name string }{
		{"cluster", o.Cluster},
		{"workspace", o.Workspace},
		{"GPU model", o.GPUModel},
		{"SKU", o.SKU},
		{"billing account", o.Account},
	}
	for _, m := range []struct {
		what  string
		names map[string]string
	}{{"workspace of ", o.Workspaces}, {"region of ", o.Regions}, {"model of ", o.Models}} {
		for _, from := range slices.Sorted(maps.Keys(m.names)) {
			names = append(names, struct{ what, name string }{m.what + tabular.Clip(from), m.names[from]})
		}
	}
	models := map[string]string{}
	for _, from := range slices.Sorted(maps.Keys(o.Models)) {
		to := o.Models[from]
		if first, twice := models[to]; twice {
			return fmt.Errorf(
				"import %s: models %q and %q are both renamed to %q: one series would replace the other",
				kind, tabular.Clip(first), tabular.Clip(from), tabular.Clip(to),
			)
		}
		models[to] = from
	}
	for _, n := range names {
		if reason := checkName(n.name); reason != "" {
			return fmt.Errorf("import %s: %s %q %s", kind, n.what, tabular.Clip(n.name), reason)
		}
	}
	return nil
}

// maxNodeSize bounds the size of a node, so that computing shares of it cannot overflow.
const maxNodeSize = 1 << 50

// importer is one run over one file.
type importer struct {
	ctx      context.Context
	opts     Options
	emitTo   func(*domain.Envelope) error
	env      domain.Envelope
	sum      Summary
	line     int
	warnings tabular.Warnings // its list is sum.Warnings
}

// format is the reader of one kind. start gets a function that finds columns in the header, and
// returns the function that reads a row. For a bad row, that function MUST emit nothing and
// return a *refusal. Any other error stops the import.
type format struct {
	// columns lists the required columns; alternative names are separated by '|'.
	columns []string
	start   func(im *importer, col func(names string) column) func(*cells) error
}

func formatOf(k Kind) format {
	switch k {
	case Nodes:
		return nodesKind
	case Pods:
		return podsKind
	case Usage:
		return usageKind
	case Demand:
		return demandKind
	case Energy:
		return energyKind
	default:
		return pricesKind
	}
}

// Run reads a file as a kind. Messages call the file name.
//
// Run passes each event to emit and each row that was not imported to bad, which may be nil. The
// envelope has Time, Recorded, Subject, Workspace, Cluster and Event set. The caller sets Source
// and Sequence. Run reuses the envelope and the events NodeSampled and DemandObserved, so emit
// MUST copy what it keeps.
//
// The error wraps [ErrColumns] if the file is not a table of this kind, [tabular.ErrTooLarge] if
// it decompresses to more than the limits, and [tabular.ErrDamaged] if a gzip file cannot be
// decompressed (with [io.ErrUnexpectedEOF] if it is truncated; see [tabular.Whole]). Errors of
// emit, the context and the file are returned as well. The events of earlier rows have then been
// emitted already. The Summary is valid in every case.
func Run(
	ctx context.Context,
	kind Kind,
	file io.Reader,
	name string,
	opts Options,
	emit func(*domain.Envelope) error,
	bad func(tabular.BadRow),
) (Summary, error) {
	opts = opts.withDefaults()
	im := &importer{ctx: ctx, opts: opts, emitTo: emit}
	im.sum = Summary{Kind: kind, Types: map[domain.Type]int{}}
	if err := opts.check(kind); err != nil {
		return im.sum, err
	}
	clk := &clock{shift: domain.Instant(opts.Shift)}
	if opts.Zone != "" {
		if opts.Zone == "Local" {
			return im.sum, errors.New("zone Local differs between machines: name the zone")
		}
		zone, err := time.LoadLocation(opts.Zone)
		if err != nil {
			return im.sum, fmt.Errorf("zone %q: %w", opts.Zone, err)
		}
		clk.zone = zone
	}
	err := im.read(kind, file, name, clk, bad)
	if err != nil {
		err = fmt.Errorf("import %s %s: %w", kind, name, err)
	}
	return im.sum, err
}

func (im *importer) read(kind Kind, file io.Reader, name string, clk *clock, bad func(tabular.BadRow)) error {
	text, err := tabular.Open(im.ctx, file, im.opts.Limits, ErrColumns)
	if err != nil {
		return err
	}
	t := newTable(text, im.opts.Limits)
	if err := t.readHeader(); err != nil {
		return err
	}
	f := formatOf(kind)
	if missing := missingColumns(f, t.header); len(missing) > 0 {
		return columnsError(kind, t.header, missing)
	}
	readRow := f.start(im, func(names string) column { return findColumn(t.header, names) })
	row := cells{clock: clk}
	for {
		if err := im.ctx.Err(); err != nil {
			return fmt.Errorf("stopped at line %d: %w", t.frames.Line, err)
		}
		rec, err := t.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("line %d, byte %d: %w", rec.line, rec.offset, err)
		}
		im.sum.Rows++
		im.line = rec.line
		refused := rec.broken
		if refused == nil {
			row.line, row.fields, row.refused = rec.line, rec.fields, nil
			if err := readRow(&row); err != nil && !errors.As(err, &refused) {
				return fmt.Errorf("line %d: %w", rec.line, err)
			}
		}
		if refused != nil {
			im.sum.Bad++
			if bad != nil {
				bad(tabular.BadRow{
					File:   name,
					Line:   rec.line,
					Field:  refused.Field,
					Value:  tabular.Clip(refused.Value),
					Reason: refused.Reason,
				})
			}
		}
	}
	if im.sum.Rows == 0 {
		im.warn("there are no rows below the header", "")
	}
	return nil
}

// emit emits one event.
func (im *importer) emit(at domain.Instant, subject, workspace string, event domain.Event) error {
	im.env = domain.Envelope{Time: at, Subject: subject, Workspace: workspace, Cluster: im.opts.Cluster, Event: event}
	if im.opts.Historical {
		im.env.Recorded = at
	}
	if err := im.emitTo(&im.env); err != nil {
		return err
	}
	im.sum.Events++
	im.sum.Types[event.Type()]++
	return nil
}

func (im *importer) warn(reason, value string) {
	im.warnings.Add(reason, value, im.line)
	im.sum.Warnings = im.warnings.List
}

// model returns the canonical spelling of a GPU model, or the source's spelling with a warning.
func (im *importer) model(name string) domain.GPUModel {
	m, ok := domain.LookupGPU(name)
	if !ok {
		m.Name = name
		im.warn("the GPU model is not in the catalogue and is kept as written", name)
	}
	return m
}

func findColumn(header []string, names string) column {
	for n := range strings.SplitSeq(names, "|") {
		if i := slices.Index(header, n); i >= 0 {
			return column{n, i}
		}
	}
	first, _, _ := strings.Cut(names, "|")
	return column{first, -1}
}

func missingColumns(f format, header []string) []string {
	var missing []string
	for _, names := range f.columns {
		if findColumn(header, names).at < 0 {
			missing = append(missing, strings.ReplaceAll(names, "|", " or "))
		}
	}
	return missing
}

func columnsError(kind Kind, header, missing []string) error {
	hint := ""
	for _, other := range Kinds() {
		if other != kind && len(missingColumns(formatOf(other), header)) == 0 {
			hint = fmt.Sprintf("; these are the columns of %[1]s: import the file as %[1]s", other)
			break
		}
	}
	if other := tabular.OtherDelimiter(header); hint == "" && other != "" {
		hint = "; " + other
	}
	found := tabular.Clip(strings.Join(header, ", "))
	return fmt.Errorf("%w: missing %s; found %s%s", ErrColumns, strings.Join(missing, ", "), found, hint)
}

// after adds seconds to the epoch.
func (im *importer) after(seconds uint64) (domain.Instant, string) {
	if seconds > math.MaxInt32*4 {
		return 0, "is too many seconds after the epoch"
	}
	return shifted(im.opts.Epoch+domain.Instant(seconds)*domain.Second, domain.Instant(im.opts.Shift))
}
