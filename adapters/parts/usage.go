package parts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"quartermaster/adapters/durable"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/usage"
)

// Months of usage are kept beside the parts of their month:
//
//	month=2026-05/usage_days/manifest.json
//	month=2026-05/usage_days/<digest of the inputs>.parquet
//
// They follow the rules of parts, except that a damaged one is replaced: it can always be computed
// again. In a bucket, where nothing is replaced, the next one is named <digest of the inputs>-2.parquet.

// usageFormat is the version of the layout of kept usage.
const usageFormat = "quartermaster.usage-days/1"

// ErrText means that a month of usage has a name that is not UTF-8, which a Parquet file cannot hold.
// The month is not kept, and is computed each time.
var ErrText = errors.New("a name is not UTF-8")

// usageDay is a row of a Parquet file of kept usage.
type usageDay struct {
	Day              int32  `parquet:"day,date,zstd"`
	Cluster          string `parquet:"cluster,dict,zstd"`
	Model            string `parquet:"gpu_model,dict,zstd"`
	Billing          string `parquet:"billing_model,dict,zstd"`
	Held             bool   `parquet:"held"`
	Workspace        string `parquet:"workspace,dict,zstd"`
	Deployment       string `parquet:"deployment,dict,zstd"`
	Service          int64  `parquet:"in_service_gpu_ms,zstd"`
	Allocated        int64  `parquet:"allocated_gpu_ms,zstd"`
	BusyUnattributed int64  `parquet:"busy_unattributed_gpu_ms,zstd"`
	Idle             int64  `parquet:"idle_gpu_ms,zstd"`
	Failed           int64  `parquet:"failed_gpu_ms,zstd"`
	Maintenance      int64  `parquet:"maintenance_gpu_ms,zstd"`
	Unprovisioned    int64  `parquet:"unprovisioned_gpu_ms,zstd"`
	Unobserved       int64  `parquet:"unobserved_gpu_ms,zstd"`
	WhileFailed      int64  `parquet:"allocated_while_failed_gpu_ms,zstd"`
	Undeclared       int64  `parquet:"undeclared_gpu_ms,zstd"`
	Measured         int64  `parquet:"activity_measured_gpu_ms,zstd"`
	Active           int64  `parquet:"activity_permille_gpu_ms,zstd"`
}

func rowOfDay(d *usage.Day) usageDay {
	t := &d.Time
	return usageDay{
		int32(d.Day / domain.Day), d.Cluster, d.Model, string(d.Billing), d.Held, d.Workspace, d.Deployment,
		t.Service, t.Allocated, t.BusyUnattributed, t.Idle, t.Failed, t.Maintenance, t.Unprovisioned, t.Unobserved,
		t.WhileFailed, t.Undeclared, t.Measured, t.Active,
	}
}

func (r *usageDay) day() usage.Day {
	return usage.Day{
		Day: domain.Instant(r.Day) * domain.Day, Cluster: r.Cluster, Model: r.Model, Billing: domain.BillingModel(r.Billing),
		Held: r.Held, Workspace: r.Workspace, Deployment: r.Deployment,
		Time: usage.GPUTime{
			Service: r.Service, Allocated: r.Allocated, BusyUnattributed: r.BusyUnattributed, Idle: r.Idle, Failed: r.Failed,
			Maintenance: r.Maintenance, Unprovisioned: r.Unprovisioned, Unobserved: r.Unobserved,
			WhileFailed: r.WhileFailed, Undeclared: r.Undeclared, Measured: r.Measured, Active: r.Active,
		},
	}
}

// UsageVersion is one version of a month of usage.
type UsageVersion struct {
	// Inputs say what it was computed from: method, rows, declarations.
	Inputs string `json:"inputs"`
	// Position is the position of the rows.
	Position string `json:"position"`
	Rows     int    `json:"rows"`
	// File is the name of the file within the folder. It begins with the SHA-256 of Inputs.
	File string `json:"file"`
	// Bytes and SHA256 are of the file.
	Bytes  int64  `json:"bytes"`
	SHA256 Digest `json:"sha256"`
}

// usageManifest lists the versions of a month of usage. The last one counts.
type usageManifest struct {
	Format   string         `json:"format"`
	Log      string         `json:"log"`
	Month    string         `json:"month"`
	Versions []UsageVersion `json:"versions"`

	number int // of the object in a bucket; 0: none
}

func usageFolder(month domain.Interval) string {
	return "month=" + projections.MonthName(projections.HourOf(month.From)) + "/usage_days"
}

// usageManifest returns the manifest of a month, with an error that is [fs.ErrNotExist] if there is
// none.
func (d Directory) usageManifest(month domain.Interval) (*usageManifest, error) {
	b, number, err := d.readManifest(usageFolder(month))
	if err != nil {
		return nil, err
	}
	path := d.manifestName(usageFolder(month), number)
	m := &usageManifest{number: number}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrManifest, err)
	}
	name := projections.MonthName(projections.HourOf(month.From))
	switch {
	case m.Format != usageFormat:
		err = fmt.Errorf("%w: its format is %q, this program reads %q", ErrManifest, m.Format, usageFormat)
	case m.Log != d.Log:
		err = fmt.Errorf("%w: it is of log %q, this is %q", ErrLog, m.Log, d.Log)
	case m.Month != name:
		err = fmt.Errorf("%w: it is of %s", ErrManifest, m.Month)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Usage returns the month of usage that was kept with these inputs. If there is none, the error is
// [fs.ErrNotExist]. It trusts nothing: size, SHA-256, inputs and order are checked, and that the
// states of each row add up.
func (d Directory) Usage(in usage.Inputs) (*usage.Month, error) {
	m, err := d.usageManifest(in.Month)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.Versions, func(v UsageVersion) bool { return v.Inputs == in.Text })
	if i < 0 {
		return nil, fs.ErrNotExist
	}
	v := &m.Versions[i]
	file := usageFolder(in.Month) + "/" + v.File
	path := d.where(file)
	if !slices.ContainsFunc(usageTries[:], func(try string) bool { return v.File == usageFile(in, try) }) {
		return nil, fmt.Errorf("%s: %w: file %q does not have the name of its inputs", path, ErrManifest, v.File)
	}
	f, err := d.openFile(file, v.Bytes, v.SHA256, true)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, v.Bytes)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, err
	}
	month := &usage.Month{Inputs: in}
	if err := guarded(func() error { return decodeUsage(b, d.Log, month) }); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	if len(month.Days) != v.Rows {
		return nil, fmt.Errorf("%s: %w: %d rows, the manifest says %d", path, ErrDamaged, len(month.Days), v.Rows)
	}
	return month, nil
}

// usageTries are the ends of names of a month's files, in the order in which they are used.
var usageTries = [...]string{"", "-2", "-3", "-4", "-5"}

func usageFile(in usage.Inputs, try string) string {
	return Digest(in.Digest()).String() + try + ".parquet"
}

func decodeUsage(b []byte, log string, m *usage.Month) error {
	file, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)), parquet.SkipBloomFilters(true))
	if err != nil {
		return err
	}
	if !parquet.EqualNodes(file.Schema(), parquet.SchemaOf(usageDay{})) {
		return errors.New("it has other columns")
	}
	if of, _ := file.Lookup("log"); of != log {
		return fmt.Errorf("it is of log %q", of)
	}
	if of, _ := file.Lookup("inputs"); of != m.Inputs.Text {
		return errors.New("it was computed from other inputs")
	}
	r := parquet.NewGenericReader[usageDay](file)
	defer func() { _ = r.Close() }()
	if n := file.NumRows(); n < 0 || n > int64(len(b)) {
		return fmt.Errorf("it has %d rows in %d bytes", n, len(b))
	}
	rows := make([]usageDay, file.NumRows())
	for n := 0; n < len(rows); {
		got, err := r.Read(rows[n:])
		if n += got; err != nil && (!errors.Is(err, io.EOF) || n < len(rows)) {
			return err
		}
	}
	m.Days = make([]usage.Day, len(rows))
	for i := range rows {
		d := rows[i].day()
		t := &d.Time
		switch {
		case d.Day < m.Inputs.Month.From || d.Day >= m.Inputs.Month.To:
			return fmt.Errorf("%s is of another month", d.Day)
		case i > 0 && m.Days[i-1].Compare(&d) >= 0:
			return fmt.Errorf("row %d is out of order", i+1)
		case t.Service != t.Allocated+t.BusyUnattributed+t.Idle+t.Failed+t.Maintenance+t.Unprovisioned+t.Unobserved:
			return fmt.Errorf("the states of row %d do not add up", i+1)
		}
		m.Days[i] = d
	}
	return nil
}

// PutUsage keeps a month of usage, computed at a position. A version with the same inputs is
// replaced, because nobody keeps a month again that could be read.
func (w *Writer) PutUsage(m *usage.Month, position domain.Position) error {
	if err := w.putUsage(m, position); err != nil {
		return fmt.Errorf("keep usage of %s: %w", projections.MonthName(projections.HourOf(m.Inputs.Month.From)), err)
	}
	return nil
}

func (w *Writer) putUsage(m *usage.Month, position domain.Position) error {
	rows := make([]usageDay, len(m.Days))
	for i := range m.Days {
		d := &m.Days[i]
		for _, name := range [...]string{d.Cluster, d.Model, d.Workspace, d.Deployment} {
			if !utf8.ValidString(name) {
				return fmt.Errorf("%w: %q", ErrText, name)
			}
		}
		rows[i] = rowOfDay(d)
	}
	folder := usageFolder(m.Inputs.Month)
	if w.Bucket == nil {
		if err := durable.MakeDirectory(w.path(folder)); err != nil {
			return err
		}
		if err := sweep(w.path(folder)); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	p := parquet.NewGenericWriter[usageDay](&b,
		parquet.CreatedBy("quartermaster", usageFormat, ""),
		parquet.SortingWriterConfig(parquet.SortingColumns(parquet.Ascending("day"), parquet.Ascending("cluster"))),
		parquet.KeyValueMetadata("format", usageFormat),
		parquet.KeyValueMetadata("log", w.Log),
		parquet.KeyValueMetadata("inputs", m.Inputs.Text),
	)
	if _, err := p.Write(rows); err != nil {
		return err
	}
	if err := p.Close(); err != nil {
		return err
	}
	v := UsageVersion{Inputs: m.Inputs.Text, Position: position.String(), Rows: len(rows)}
	var err error
	for _, try := range usageTries {
		v.File = usageFile(m.Inputs, try)
		v.Bytes, v.SHA256, err = w.put(folder+"/"+v.File, func(f *os.File) error {
			_, err := f.Write(b.Bytes())
			return err
		})
		if w.Bucket == nil || !errors.Is(err, ErrDamaged) {
			break
		}
	}
	if err != nil {
		return err
	}
	list, err := w.usageManifest(m.Inputs.Month)
	if err != nil {
		if errors.Is(err, ErrBucket) {
			return err
		}
		// Only the list of superseded versions is lost.
		list = &usageManifest{
			Format: usageFormat, Log: w.Log, Month: projections.MonthName(projections.HourOf(m.Inputs.Month.From)),
		}
		if !errors.Is(err, fs.ErrNotExist) {
			if _, list.number, err = w.readManifest(folder); err != nil {
				return err
			}
		}
	}
	list.Versions = slices.DeleteFunc(list.Versions, func(o UsageVersion) bool { return o.Inputs == v.Inputs })
	list.Versions = append(list.Versions, v)
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return w.putManifest(folder, list.number, append(text, '\n'))
}
