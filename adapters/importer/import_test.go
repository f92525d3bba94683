package importer_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"quartermaster/adapters/importer"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

const (
	nodeHeader   = "sn,cpu_milli,memory_mib,gpu,model,uuids\n"
	podHeader    = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,creation_time,deletion_time\n"
	usageHeader  = "hour,vc,total_gpu,running_gpu_mean,pending_gpu_mean\n"
	demandHeader = "hour,pool,demand,unit\n"
	energyHeader = "meter,from,to,kwh,nodes\n"
	priceHeader  = "provider,region,instance_type,gpu_model,gpu_count,gpu_memory,vcpu,memory,offer,term_months,upfront,hourly,effective_hourly,currency,as_of,source\n"
)

// options are valid for every kind.
var options = importer.Options{Cluster: "c1", Workspace: "w1", Epoch: epoch, GPUModel: "V100"}

// run imports a text and returns the emitted events in the form of render.
func run(t testing.TB, kind importer.Kind, text string, opts importer.Options) (sum importer.Summary, events []string, bad []tabular.BadRow, err error) {
	t.Helper()
	sum, err = importer.Run(context.Background(), kind, strings.NewReader(text), "f.csv", opts, func(e *domain.Envelope) error {
		if err := domain.Validate(e); err != nil {
			t.Errorf("emitted an event that is invalid: %v", err)
		}
		events = append(events, render(e))
		return nil
	}, func(b tabular.BadRow) { bad = append(bad, b) })
	if sum.Bad != len(bad) || sum.Events != len(events) {
		t.Errorf("summary %+v beside %d events and %d bad rows", sum, len(events), len(bad))
	}
	return sum, events, bad, err
}

func TestBadRowsAreLocatedAndTheRestGoesIn(t *testing.T) {
	const good = 1 // the good row after each bad one
	berlin := options
	berlin.Zone = "Europe/Berlin"
	utc := options
	utc.Zone = "UTC"
	uuid := "GPU-5a1c0d6e-1111-4222-8333-444455556666"
	offer := func(gpus, kind, term, upfront, hourly, asOf string) string {
		return fmt.Sprintf("aws,r1,p5,T4,%s,16,8,32 GB,%s,%s,%s,%s,1,USD,%s,s", gpus, kind, term, upfront, hourly, asOf)
	}
	for _, c := range []struct {
		kind       importer.Kind
		opts       importer.Options
		header     string
		row, after string
		field      string
		reason     string
	}{
		{importer.Nodes, options, nodeHeader, "n1,-1,1,0,,", "n2,1,1,0,,", "cpu_milli", "is negative"},
		{importer.Nodes, options, nodeHeader, "n1,NaN,1,0,,", "n2,1,1,0,,", "cpu_milli", "is not a number"},
		{importer.Nodes, options, nodeHeader, "n1,inf,1,0,,", "n2,1,1,0,,", "cpu_milli", "is not a number"},
		{importer.Nodes, options, nodeHeader, "n1,1e99,1,0,,", "n2,1,1,0,,", "cpu_milli", "is too large"},
		{importer.Nodes, options, nodeHeader, "n1,1e99999999999,1,0,,", "n2,1,1,0,,", "cpu_milli", "is not a number"},
		{importer.Nodes, options, nodeHeader, "n1,18446744073709551616,1,0,,", "n2,1,1,0,,", "cpu_milli", "is too large"},
		{importer.Nodes, options, nodeHeader, "n1,0.5,1,0,,", "n2,1,1,0,,", "cpu_milli", "is not a whole number"},
		{importer.Nodes, options, nodeHeader, "n1,1,1,,T4,", "n2,1,1,0,,", "gpu", "is empty"},
		{importer.Nodes, options, nodeHeader, "n1,1,1,2000,T4,", "n2,1,1,0,,", "gpu", "is more than 1024"},
		{importer.Nodes, options, nodeHeader, "n1,1,1,1,,", "n2,1,1,0,,", "model", "is empty for a node with GPUs"},
		{importer.Nodes, options, nodeHeader, ",1,1,0,,", "n2,1,1,0,,", "sn", "is empty"},
		{importer.Nodes, options, nodeHeader, "n\x01,1,1,0,,", "n2,1,1,0,,", "sn", "holds a control character"},
		{importer.Nodes, options, nodeHeader, strings.Repeat("n", 300) + ",1,1,0,,", "n2,1,1,0,,", "sn", "is longer than 256 bytes"},
		{importer.Nodes, options, nodeHeader, "n\x00,1,1,0,,", "n2,1,1,0,,", "sn", "holds a NUL byte"},
		{importer.Nodes, options, nodeHeader, "n\xff,1,1,0,,", "n2,1,1,0,,", "sn", "is not valid UTF-8"},
		{importer.Nodes, options, nodeHeader, "n1,1,1,0", "n2,1,1,0,,", "", "has 4 fields where the header has 6"},
		{importer.Nodes, options, nodeHeader, "n1,1,1,2,T4," + uuid, "n2,1,1,0,,", "uuids", "names 1 devices where gpu says 2"},
		{importer.Nodes, options, nodeHeader, "n1,1,1,2,T4," + uuid + ";" + uuid, "n2,1,1,0,,", "uuids", "is a duplicate"},
		{importer.Nodes, options, nodeHeader, "n1,1,1,1,T4,GPU-7", "n2,1,1,0,,", "uuids", "is not a UUID"},
		{importer.Nodes, options, nodeHeader, `n1,1,1,0,"T4,`, "n2,1,1,0,,", "", "never closed"},
		{importer.Pods, options, podHeader, "p1,1,1,2,500,LS,1,2", "p2,1,1,1,500,LS,1,2", "gpu_milli", "is a fraction of several GPUs"},
		{importer.Pods, options, podHeader, "p1,1,1,1,0,LS,1,2", "p2,1,1,1,500,LS,1,2", "gpu_milli", "is 0 although"},
		{importer.Pods, options, podHeader, "p1,1,1,0,5,LS,1,2", "p2,1,1,1,500,LS,1,2", "gpu_milli", "is not 0 although num_gpu is 0"},
		{importer.Pods, options, podHeader, "p1,1,1,1,1001,LS,1,2", "p2,1,1,1,500,LS,1,2", "gpu_milli", "is more than 1000"},
		{importer.Pods, options, podHeader, "p1,1,1,1,10,LX,1,2", "p2,1,1,1,500,LS,1,2", "qos", "is not one of"},
		{importer.Pods, options, podHeader, "p1,1,1,1,10,LS,5,4", "p2,1,1,1,500,LS,1,2", "deletion_time", "is before the creation"},
		{importer.Pods, options, podHeader, "p1,1,1,1,10,LS,99999999999,", "p2,1,1,1,500,LS,1,2", "creation_time", "is too many seconds"},
		{importer.Usage, options, usageHeader, "2020-05-01 00:00,a,8,1,0", "2020-05-01T01:00:00Z,a,1,1,0", "hour", "has no time zone"},
		{importer.Usage, utc, usageHeader, "2020-05-01 00:30,a,8,1,0", "2020-05-01T01:00:00Z,a,1,1,0", "hour", "is not the start of a UTC hour"},
		{importer.Usage, berlin, usageHeader, "2026-03-29 02:00,a,8,1,0", "2026-03-29 03:00,a,1,1,0", "hour", "does not exist in Europe/Berlin"},
		{importer.Usage, berlin, usageHeader, "2026-10-25 02:00,a,8,1,0", "2026-10-25 03:00,a,1,1,0", "hour", "happened twice in Europe/Berlin"},
		{importer.Usage, utc, usageHeader, "yesterday,a,8,1,0", "2020-05-01T01:00:00Z,a,1,1,0", "hour", "is not a time"},
		{importer.Usage, utc, usageHeader, "1969-05-01 00:00,a,8,1,0", "2020-05-01T01:00:00Z,a,1,1,0", "hour", "is outside the years"},
		{importer.Usage, utc, usageHeader, "2020-05-01 00:00,a,8,8.01,0", "2020-05-01T01:00:00Z,a,1,1,0", "running_gpu_mean", "is more than total_gpu, 8"},
		{importer.Usage, utc, usageHeader, "2020-05-01 00:00,a,100001,8,0", "2020-05-01T01:00:00Z,a,1,1,0", "total_gpu", "is more than 100000"},
		{importer.Usage, utc, usageHeader, "2020-05-01 00:00,a,8,,0", "2020-05-01T01:00:00Z,a,1,1,0", "running_gpu_mean", "is empty"},
		{importer.Usage, utc, usageHeader, "2020-05-01 00:00,a,8,8,-0.1", "2020-05-01T01:00:00Z,a,1,1,0", "pending_gpu_mean", "is negative"},
		{importer.Demand, utc, demandHeader, "2020-05-01 00:00,,8,gpu", "2020-05-01T01:00:00Z,a,1,gpu", "pool", "is empty"},
		{importer.Demand, utc, demandHeader, "2020-05-01 00:00,a,8,cpu", "2020-05-01T01:00:00Z,a,1,gpu", "unit", "is neither gpu nor vm"},
		{importer.Demand, utc, demandHeader, "2020-05-01 00:00,a,1e13,gpu", "2020-05-01T01:00:00Z,a,1,gpu", "demand", "is too large"},
		{importer.Energy, utc, energyHeader, ",2020-05-01,2020-05-02,1,", "m,2020-05-01,2020-05-02,1,n1", "meter", "is empty"},
		{importer.Energy, utc, energyHeader, "m,2020-05-02,2020-05-02,1,", "m,2020-05-01,2020-05-02,1,n1", "from", "is not before the end"},
		{importer.Energy, utc, energyHeader, "m,2020-05-01,2020-06-02,1,", "m,2020-05-01,2020-05-02,1,n1", "to", "more than 31 days"},
		{importer.Energy, utc, energyHeader, "m,2020-05-01,2020-05-02,-1,", "m,2020-05-01,2020-05-02,1,n1", "kwh", "is negative"},
		{importer.Energy, utc, energyHeader, "m,2020-05-01,2020-05-02,,", "m,2020-05-01,2020-05-02,1,n1", "kwh", "is empty"},
		{importer.Energy, utc, energyHeader, "m,2020-05-01,2020-05-02,1,n1; n1", "m,2020-05-01,2020-05-02,1,n1", "nodes", "names n1 twice"},
		{importer.Energy, options, energyHeader, "m,2020-05-01,2020-05-02T00:00:00Z,1,", "m,2020-05-01T00:00:00Z,2020-05-02T00:00:00Z,1,n1", "from", "has no time zone"},
		{importer.Prices, options, priceHeader, offer("1.5", "spot", "0", "0", "1", "2026-01"), offer("1", "spot", "0", "0", "1", "2026-01"), "gpu_count", "is a fraction of several GPUs"},
		{importer.Prices, options, priceHeader, offer("0.0005", "spot", "0", "0", "1", "2026-01"), offer("1", "spot", "0", "0", "1", "2026-01"), "gpu_count", "not in whole thousandths"},
		{importer.Prices, options, priceHeader, offer("1", "spot", "12", "0", "1", "2026-01"), offer("1", "spot", "0", "0", "1", "2026-01"), "term_months", "is a term for an offer without one"},
		{importer.Prices, options, priceHeader, offer("1", "spot", "0", "0", "-1", "2026-01"), offer("1", "spot", "0", "0", "1", "2026-01"), "hourly", "is negative"},
		{importer.Prices, options, priceHeader, offer("1", "spot", "0", "0", "", "2026-01"), offer("1", "spot", "0", "0", "1", "2026-01"), "hourly", "is empty"},
		{importer.Prices, options, priceHeader, offer("1", "spot", "0", "0", "1", "2026"), offer("1", "spot", "0", "0", "1", "2026-01"), "as_of", "is not a month"},
		{importer.Prices, options, priceHeader, offer("1", "leased", "0", "0", "1", "2026-01"), offer("1", "spot", "0", "0", "1", "2026-01"), "offer", "is not one of"},
		{importer.Prices, options, priceHeader, offer("1", "reserved_standard", "12", "0", "1", "2026-01"), offer("1", "spot", "0", "0", "1", "2026-01"), "offer", "does not end in a payment"},
		{importer.Prices, options, priceHeader, offer("1", "reserved_gold_no_upfront", "12", "0", "1", "2026-01"), offer("1", "spot", "0", "0", "1", "2026-01"), "offer", "in no known class"},
		{importer.Prices, options, priceHeader, offer("1", "reserved_standard_no_upfront", "0", "0", "1", "2026-01"), offer("1", "spot", "0", "0", "1", "2026-01"), "term_months", "is missing for"},
		{importer.Prices, options, priceHeader, offer("1", "reserved_standard_no_upfront", "12", "5", "1", "2026-01"), offer("1", "spot", "0", "0", "1", "2026-01"), "upfront", "for no_upfront"},
		{importer.Prices, options, priceHeader, offer("1", "reserved_standard_all_upfront", "12", "5", "1", "2026-01"), offer("1", "spot", "0", "0", "1", "2026-01"), "hourly", "for all_upfront"},
	} {
		sum, events, bad, err := run(t, c.kind, c.header+c.row+"\n"+c.after+"\n", c.opts)
		if err != nil || sum.Rows != 2 || sum.Bad != good || len(bad) != 1 || len(events) == 0 {
			t.Errorf("%s %q: %+v, bad %v, error %v, want one bad row and the events of the other", c.kind, clipped(c.row), sum, bad, err)
			continue
		}
		if b := bad[0]; b.File != "f.csv" || b.Line != 2 || b.Field != c.field || !strings.Contains(b.Reason, c.reason) {
			t.Errorf("%s %q: bad row %+v, want line 2, field %q, reason %q", c.kind, clipped(c.row), b, c.field, c.reason)
		}
	}
}

func clipped(s string) string { return s[:min(len(s), 60)] }

// The counter of a meter counts by its differences. One that runs backwards, or stands still in time,
// is refused, and the rows around it go in.
func TestCounters(t *testing.T) {
	text := "meter,time,kwh_total,nodes\n" +
		"a,2026-05-01T00:00:00Z,100,n1;n2\nb,2026-05-01T00:00:00Z,7,\na,2026-05-02T00:00:00Z,112.5,n1;n2\n" +
		"a,2026-05-02T00:00:00Z,113,\na,2026-05-03T00:00:00Z,90,\na,2026-05-04T00:00:00Z,120,n1\nb,2026-05-02T00:00:00Z,7,\n"
	var got []string
	opts := options
	opts.Zone = "UTC"
	sum, err := importer.Run(context.Background(), importer.Energy, strings.NewReader(text), "f.csv", opts, func(e *domain.Envelope) error {
		ev := e.Event.(*domain.EnergyMetered)
		got = append(got, fmt.Sprintf("%s %s to %s %s Wh %v", ev.Meter, ev.Interval.From, ev.Interval.To, ev.WattHours, ev.Nodes))
		return nil
	}, func(b tabular.BadRow) { got = append(got, fmt.Sprintf("line %d: %s %s", b.Line, b.Field, b.Reason)) })
	if err != nil || sum.Bad != 2 {
		t.Errorf("%+v, %v, want two bad rows", sum, err)
	}
	want := []string{
		"a 2026-05-01T00:00:00Z to 2026-05-02T00:00:00Z 12500 Wh [n1 n2]",
		"line 5: time is not after that of meter a in line 4",
		"line 6: kwh_total is below 112.5 in line 4, and a meter does not run backwards; name a replaced meter anew",
		"a 2026-05-02T00:00:00Z to 2026-05-04T00:00:00Z 7500 Wh [n1]",
		"b 2026-05-01T00:00:00Z to 2026-05-02T00:00:00Z 0 Wh []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRepeatsNameTheLineOfTheFirst(t *testing.T) {
	utc := options
	utc.Zone = "UTC"
	uuid := "GPU-5a1c0d6e-1111-4222-8333-444455556666"
	offer := "aws,r1,p5,T4,1,16,8,32 GB,spot,0,0,1,1,USD,2026-01,s\n"
	for _, c := range []struct {
		kind   importer.Kind
		text   string
		reason string
	}{
		{importer.Nodes, nodeHeader + "n1,1,1,0,,\nn2,1,1,0,,\nn1,2,2,0,,\n", "is also the node of line 2"},
		{importer.Nodes, nodeHeader + "n1,1,1,1,T4," + uuid + "\nn2,1,1,0,,\nn3,1,1,1,T4," + strings.ToUpper(uuid[4:]) + "\n", "is also a GPU of line 2"},
		{importer.Pods, podHeader + "p1,1,1,0,0,,,\np2,1,1,0,0,,,\np1,1,1,0,0,,,\n", "is also the pod of line 2"},
		{importer.Usage, usageHeader + "2020-05-01 01:00,a,1,1,0\n2020-05-01 01:00,b,1,1,0\n2020-05-01T01:00:00Z,a,1,1,0\n", "is not after the hour of a in line 2"},
		{importer.Usage, usageHeader + "2020-05-01 01:00,a,1,1,0\n2020-05-01 01:00,b,1,1,0\n2020-05-01 00:00,a,1,1,0\n", "is not after the hour of a in line 2"},
		{importer.Demand, demandHeader + "2020-05-01 01:00,a,1,\n2020-05-01 02:00,a,1,vm\n2020-05-01 01:00,a,1,gpu\n", "is not after the hour of pool a in line 2"},
		{importer.Prices, priceHeader + offer + strings.Replace(offer, "p5", "p4", 1) + offer, "repeats line 2"},
	} {
		sum, _, bad, err := run(t, c.kind, c.text, utc)
		if err != nil || sum.Rows != 3 || len(bad) != 1 || bad[0].Line != 4 || !strings.Contains(bad[0].Reason, c.reason) {
			t.Errorf("%s: %+v, bad %+v, error %v, want line 4: %s", c.kind, sum, bad, err, c.reason)
		}
	}
}

func TestFilesThatAreNoTableOfTheKind(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "the file is empty"},
		{"blank", "\n\n\r\n", "the file is empty"},
		{"missing", "sn,gpu,colour\n", "missing cpu_milli, memory_mib, model; found sn, gpu, colour"},
		{"other kind", podHeader, "these are the columns of pods"},
		{"prices", priceHeader, "these are the columns of prices"},
		{"usage", usageHeader, "these are the columns of usage"},
		{"twice", "sn,gpu,SN\n", `column "sn" is in the header twice, as columns 1 and 3`},
		{"semicolons", "sn;gpu;model\n", `the delimiter looks like ";": save the file with commas`},
		{"UTF-16", "\xff\xfes\x00n\x00", "UTF-16"},
		{"spreadsheet", "PK\x03\x04....", "export it as CSV"},
		{"parquet", "PAR1....", "export it as CSV"},
		{"binary", "\x00\x01\x02\n", "holds a NUL byte"},
		{"long header", strings.Repeat("sn,", 1<<20), "longer than"},
	} {
		_, events, _, err := run(t, importer.Nodes, c.text, options)
		if !errors.Is(err, importer.ErrColumns) || !strings.Contains(err.Error(), c.want) || len(events) > 0 {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	sum, _, _, err := run(t, importer.Nodes, nodeHeader, options)
	if err != nil || len(sum.Warnings) != 1 {
		t.Errorf("a header alone: %+v, error %v, want a warning", sum, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		kind   importer.Kind
		change func(*importer.Options)
		want   string
	}{
		{"gpus", func(*importer.Options) {}, "no such kind"},
		{importer.Nodes, func(o *importer.Options) { o.Cluster = "" }, "no cluster"},
		{importer.Nodes, func(o *importer.Options) { o.Cluster = "a\nb" }, "control character"},
		{importer.Pods, func(o *importer.Options) { o.Workspace = "" }, "no workspace"},
		{importer.Pods, func(o *importer.Options) { o.Epoch = 0 }, "no epoch"},
		{importer.Usage, func(o *importer.Options) { o.GPUModel = "" }, "no GPU model"},
		{importer.Usage, func(o *importer.Options) { o.NodeGPUs = 65 }, "nodes of 65 GPUs"},
		{importer.Usage, func(o *importer.Options) { o.Interval = 7 * time.Minute }, "divide an hour"},
		{importer.Usage, func(o *importer.Options) { o.Interval = -time.Minute }, "divide an hour"},
		{importer.Usage, func(o *importer.Options) { o.Shift = time.Minute }, "whole number of hours"},
		{importer.Usage, func(o *importer.Options) { o.SKU = "a\nb" }, "SKU"},
		{importer.Usage, func(o *importer.Options) { o.MemoryMiB = 1 << 60 }, "implausibly large"},
		{importer.Demand, func(o *importer.Options) { o.Regions = map[string]string{"1": "\x00"} }, "region of 1"},
		{importer.Demand, func(o *importer.Options) { o.Zone = "Middle/Earth" }, "Middle/Earth"},
		{importer.Demand, func(o *importer.Options) { o.Zone = "Local" }, "Local"},
	} {
		o := options
		c.change(&o)
		if _, _, _, err := run(t, c.kind, "", o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.kind, err, c.want)
		}
	}
}

func zipped(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGzipGivesTheSameEvents(t *testing.T) {
	text := nodeHeader + "n1,1,1,2,T4,\nn2,1,1,0,,\n"
	_, plain, _, err := run(t, importer.Nodes, text, options)
	if err != nil {
		t.Fatal(err)
	}
	_, packed, _, err := run(t, importer.Nodes, string(zipped(t, text)), options)
	if err != nil || strings.Join(plain, "") != strings.Join(packed, "") || len(plain) != 2 {
		t.Errorf("plain %q, gzip %q, error %v", plain, packed, err)
	}
}

func TestTruncatedGzipEndsWithAnErrorAfterWhatWasRead(t *testing.T) {
	var b strings.Builder
	b.WriteString(nodeHeader)
	r := rand.New(rand.NewSource(1))
	for i := range 20000 {
		fmt.Fprintf(&b, "n%d,%d,%d,0,,\n", i, r.Intn(1e9), r.Intn(1e9))
	}
	packed := zipped(t, b.String())
	sum, events, _, err := run(t, importer.Nodes, string(packed[:len(packed)/2]), options)
	if !errors.Is(err, io.ErrUnexpectedEOF) || len(events) == 0 || sum.Bad != 0 || sum.Rows != len(events) {
		t.Errorf("%+v, error %v, want some rows and an error", sum, err)
	}
	if !strings.Contains(fmt.Sprint(err), "line ") {
		t.Errorf("error %v names no line", err)
	}
	if _, _, _, err := run(t, importer.Nodes, string(packed[:5]), options); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut in the gzip header: error %v", err)
	}
}

func TestWholeFindsWhatRunWouldStopAt(t *testing.T) {
	packed := zipped(t, nodeHeader+"n1,1000,1024,0,,\n")
	flipped := bytes.Clone(packed)
	flipped[len(flipped)-6] ^= 1 // of the checksum
	for _, c := range []struct {
		name, text string
		want       error
	}{
		{"plain", nodeHeader, nil},
		{"empty", "", nil},
		{"gzip", string(packed), nil},
		{"cut off", string(packed[:len(packed)-1]), tabular.ErrDamaged},
		{"cut off in the header", string(packed[:5]), tabular.ErrDamaged},
		{"another checksum", string(flipped), tabular.ErrDamaged},
		{"a bomb", string(zipped(t, strings.Repeat(" ", 17<<20))), tabular.ErrTooLarge},
		{"a spreadsheet", "PK\x03\x04....", importer.ErrColumns},
	} {
		if err := tabular.Whole(context.Background(), strings.NewReader(c.text), tabular.Limits{}, importer.ErrColumns); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
	// A read error is not reported as damage.
	gone := errors.New("the disk is gone")
	file := io.MultiReader(bytes.NewReader(packed[:30]), iotest.ErrReader(gone))
	if err := tabular.Whole(context.Background(), file, tabular.Limits{}, importer.ErrColumns); !errors.Is(err, gone) || errors.Is(err, tabular.ErrDamaged) {
		t.Errorf("a file that cannot be read: error %v", err)
	}
}

func TestGzipBombsAreRefused(t *testing.T) {
	rows := nodeHeader + strings.Repeat(strings.Repeat(" ", 4095)+"\n", 5<<10)
	_, _, _, err := run(t, importer.Nodes, string(zipped(t, rows)), options)
	if !errors.Is(err, tabular.ErrTooLarge) {
		t.Errorf("by ratio: error %v", err)
	}
	small := options
	small.Limits.DecodedBytes = 100
	_, _, _, err = run(t, importer.Nodes, nodeHeader+strings.Repeat("n,1,1,0,,\n", 50), small)
	if !errors.Is(err, tabular.ErrTooLarge) {
		t.Errorf("by size: error %v", err)
	}
}

func TestLongLineCostsNoMemory(t *testing.T) {
	text := nodeHeader + "n1,1,1,0,,\n" + strings.Repeat("x", 10<<20) + "\nn2,1,1,0,,\n"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sum, events, bad, err := run(t, importer.Nodes, text, options)
	runtime.ReadMemStats(&after)
	if err != nil || len(events) != 2 || len(bad) != 1 || bad[0].Line != 3 || !strings.Contains(bad[0].Reason, "longer than 1048576 bytes") {
		t.Errorf("%+v, bad %v, error %v", sum, bad, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("a line of 10 MiB made the import allocate %d bytes", n)
	}
}

func TestErrorsOfTheCallerStopTheImport(t *testing.T) {
	full := errors.New("the log is full")
	n := 0
	sum, err := importer.Run(context.Background(), importer.Nodes, strings.NewReader(nodeHeader+"n1,1,1,0,,\nn2,1,1,0,,\nn3,1,1,0,,\n"), "f.csv", options, func(*domain.Envelope) error {
		if n++; n == 2 {
			return full
		}
		return nil
	}, nil)
	if !errors.Is(err, full) || sum.Events != 1 || n != 2 || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("%+v after %d calls, error %v", sum, n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	blank := &blankLines{after: 10, then: cancel}
	if _, err := importer.Run(ctx, importer.Nodes, io.MultiReader(strings.NewReader(nodeHeader), blank), "f.csv", options, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled among endless blank lines: error %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	utc := options
	utc.Zone = "UTC"
	n = 0
	_, err = importer.Run(ctx, importer.Usage, strings.NewReader(usageHeader+"2020-05-01 00:00,a,100000,1,0\n"), "f.csv", utc, func(*domain.Envelope) error {
		if n++; n == 13000 {
			cancel()
		}
		return nil
	}, nil)
	if !errors.Is(err, context.Canceled) || n > 40000 {
		t.Errorf("cancelled after 13,000 of 87,501 events: %d calls, error %v", n, err)
	}
}

// blankLines is an endless reader that calls then once.
type blankLines struct {
	after int
	then  func()
}

func (b *blankLines) Read(p []byte) (int, error) {
	if b.after--; b.after == 0 {
		b.then()
	}
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

func TestSourceNameHoldsWhatChangesEvents(t *testing.T) {
	sum := [32]byte{1}
	base := importer.SourceName(importer.Usage, sum, options)
	if want := "sha256:01" + strings.Repeat("0", 62) + "/usage.v3?cluster=c1&gpu_model=V100&interval=10m0s&node_gpus=8"; base != want {
		t.Errorf("source %s, want %s", base, want)
	}
	same := options
	same.NodeGPUs, same.Interval, same.Workspace, same.Limits.LineBytes = 8, 10*time.Minute, "unused", 5
	if got := importer.SourceName(importer.Usage, sum, same); got != base {
		t.Errorf("source %s where the events are those of %s", got, base)
	}
	for name, change := range map[string]func(*importer.Options){
		"cluster":    func(o *importer.Options) { o.Cluster = "c2" },
		"zone":       func(o *importer.Options) { o.Zone = "UTC" },
		"shift":      func(o *importer.Options) { o.Shift = time.Hour },
		"nodes":      func(o *importer.Options) { o.NodeGPUs = 4 },
		"interval":   func(o *importer.Options) { o.Interval = time.Minute },
		"model":      func(o *importer.Options) { o.GPUModel = "A100" },
		"workspaces": func(o *importer.Options) { o.Workspaces = map[string]string{"a&b=c": "x"} },
		"historical": func(o *importer.Options) { o.Historical = true },
		"sku":        func(o *importer.Options) { o.SKU = "p3" },
		"account":    func(o *importer.Options) { o.Account = "1" },
		"cpu":        func(o *importer.Options) { o.CPUMilli = 1 },
		"memory":     func(o *importer.Options) { o.MemoryMiB = 1 },
	} {
		o := options
		change(&o)
		if got := importer.SourceName(importer.Usage, sum, o); got == base {
			t.Errorf("%s changes the events and not the source", name)
		}
	}
	demand := importer.SourceName(importer.Demand, sum, options)
	if want := "sha256:01" + strings.Repeat("0", 62) + "/demand.v1?cluster=c1"; demand != want {
		t.Errorf("source %s, want %s", demand, want)
	}
	named := options
	named.Regions, named.Models = map[string]string{"1": "us-east-1"}, map[string]string{"A": "p5.48xlarge"}
	if got, want := importer.SourceName(importer.Demand, sum, named), demand+"&model.A=p5.48xlarge&region.1=us-east-1"; got != want {
		t.Errorf("source %s, want %s", got, want)
	}
	if got := importer.SourceName(importer.Usage, sum, named); got != base {
		t.Errorf("source %s: names of demand change no usage", got)
	}
}

func TestDemandIsRenamed(t *testing.T) {
	opts := options
	opts.Regions = map[string]string{"1": "us-east-1", "3": "us-east-1", "4": ""}
	opts.Models = map[string]string{"A": "p5.48xlarge", "H": "NVIDIA H100 80GB HBM3"}
	const header = "hour,region_num,model,demand,unit\n"
	sum, events, bad, err := run(t, importer.Demand, header+
		"2026-05-01T00:00:00Z,1,A,5,vm\n"+
		"2026-05-01T00:00:00Z,2,H,6,gpu\n"+
		"2026-05-01T00:00:00Z,4,B,7,vm\n"+
		"2026-05-01T00:00:00Z,3,A,8,vm\n"+
		"2026-05-01T01:00:00Z,4,B,9,vm\n", opts)
	if err != nil || len(events) != 4 {
		t.Fatalf("%d events, error %v", len(events), err)
	}
	for i, want := range []string{
		`"pool":"us-east-1/p5.48xlarge","region":"us-east-1","model":"p5.48xlarge"`,
		`"pool":"2/NVIDIA H100 80GB HBM3","region":"2","model":"H100 SXM 80GB"`,
		`"pool":"4/B","region":"4","model":"B"`,
	} {
		if !strings.Contains(events[i], want) {
			t.Errorf("event %d is %s, want %s", i, events[i], want)
		}
	}
	// Two regions with the same new name must not overwrite each other.
	if len(bad) != 1 || bad[0].Line != 5 || !strings.Contains(bad[0].Reason, "is not after the hour of pool us-east-1/p5.48xlarge in line 2") {
		t.Errorf("bad rows %+v", bad)
	}
	values := []string{}
	for _, w := range sum.Warnings {
		values = append(values, w.Value)
	}
	if got := strings.Join(values, " "); got != "2 4 B" {
		t.Errorf("warned of %q, want of the names that are not given: 2 4 B", got)
	}
}

func TestLocalTimesFollowTheClocksOfTheirZone(t *testing.T) {
	berlin := options
	berlin.Zone = "Europe/Berlin"
	_, events, bad, err := run(t, importer.Demand, demandHeader+
		"2026-03-29 01:00,a,1,\n2026-03-29 03:00,a,1,\n2026-10-25T02:00:00+02:00,a,1,\n2026-10-25T02:00:00+01:00,a,1,\n", berlin)
	if err != nil || len(bad) > 0 || len(events) != 4 {
		t.Fatalf("bad %v, error %v", bad, err)
	}
	for i, end := range []string{"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"} {
		if !strings.HasPrefix(events[i], end) {
			t.Errorf("row %d ends at %s, want %s", i, clipped(events[i]), end)
		}
	}
}

// Standing pods are a mix to pack: all of them exist from the epoch on.
func TestStandingPods(t *testing.T) {
	text := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\na,1000,1024,1,1000,50,70\nb,1000,1024,0,0,60,90\n"
	opts := importer.Options{Cluster: "lab", Workspace: "research", Epoch: domain.Instant(1_700_000_000) * domain.Second, Standing: true}
	got := 0
	sum, err := importer.Run(context.Background(), importer.Pods, strings.NewReader(text), "pods.csv", opts, func(env *domain.Envelope) error {
		if _, ok := env.Event.(*domain.DeploymentChanged); !ok || env.Time != opts.Epoch {
			t.Errorf("%T at %s", env.Event, env.Time)
		}
		got++
		return nil
	}, nil)
	if err != nil || got != 2 || sum.Bad != 0 {
		t.Fatalf("%d events, %+v, %v", got, sum, err)
	}
	if a, b := importer.SourceName(importer.Pods, [32]byte{}, opts), importer.SourceName(importer.Pods, [32]byte{}, importer.Options{Cluster: "lab", Workspace: "research", Epoch: opts.Epoch}); a == b {
		t.Error("a standing mix and a schedule are one source")
	}
}

// Two series with one name would replace each other hour by hour.
func TestModelsKeepTheirSeries(t *testing.T) {
	opts := importer.Options{Cluster: "lab", Zone: "UTC", Models: map[string]string{"A": "big", "B": "big"}}
	if _, err := importer.Run(context.Background(), importer.Demand, strings.NewReader(""), "demand.csv", opts, nil, nil); err == nil || !strings.Contains(err.Error(), `"A" and "B" are both renamed to "big"`) {
		t.Errorf("two names for one model: %v", err)
	}
}

// A source's name fits into an event with any number of options, and different options still give
// different names.
func TestSourceNamesFit(t *testing.T) {
	opts := importer.Options{Cluster: "lab", Zone: "UTC", GPUModel: "V100 32GB", Workspaces: map[string]string{}}
	for i := range 40 {
		opts.Workspaces[strings.Repeat("v", i+1)] = "w"
	}
	long := importer.SourceName(importer.Usage, [32]byte{1}, opts)
	if len(long) > 256 {
		t.Errorf("%d bytes", len(long))
	}
	opts.Workspaces["v"] = "other"
	if other := importer.SourceName(importer.Usage, [32]byte{1}, opts); other == long {
		t.Error("other options, the same name")
	}
}

// Measurements of running GPUs are read exactly or refused.
func TestUsageActivity(t *testing.T) {
	opts := importer.Options{Cluster: "c1", Zone: "UTC", GPUModel: "V100M32"}
	for _, c := range []struct{ active, memory, field string }{
		{"100;0.0;;5", "16777216;0;;", ""},
		{"100.1", "", "running_sm_active"},
		{"4.55", "", "running_sm_active"},
		{"1;2;3;4;5", "", "running_sm_active"},
		{"-1", "", "running_sm_active"},
		{".5", "", "running_sm_active"},
		{"5.", "", "running_sm_active"},
		{"1.2.3", "", "running_sm_active"},
		{"1e2", "", "running_sm_active"},
		{"99999999999999999999999999", "", "running_sm_active"},
		{"", "1.5", "running_memory_mib"},
		{"", "16777217", "running_memory_mib"},
		{"", ";;;;;", "running_memory_mib"},
	} {
		file := "hour,vc,total_gpu,running_gpu_mean,pending_gpu_mean,running_sm_active,running_memory_mib\n2020-05-01 00:00,vcA,4,4,0," + c.active + "," + c.memory + "\n"
		var refused []string
		events := 0
		_, err := importer.Run(t.Context(), importer.Usage, strings.NewReader(file), "usage.csv", opts, func(e *domain.Envelope) error {
			events++
			return domain.Validate(e)
		}, func(b tabular.BadRow) { refused = append(refused, b.Field) })
		if err != nil {
			t.Error(err)
		}
		if c.field == "" && (len(refused) > 0 || events == 0) || c.field != "" && (!slices.Equal(refused, []string{c.field}) || events > 0) {
			t.Errorf("activity %q, memory %q: %d events, refused %q, want %q", c.active, c.memory, events, refused, c.field)
		}
	}
}
