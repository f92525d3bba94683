//go:build cgo && linux

package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	frames "quartermaster/adapters/dcgm"
	"quartermaster/domain/long"
)

var at = time.Unix(1_700_000_000, 0)

func int64Value(field dcgm.Short, n int64) *dcgm.FieldValue_v2 {
	v := &dcgm.FieldValue_v2{FieldID: field, FieldType: dcgm.DCGM_FT_INT64, TS: at.UnixMicro()}
	binary.NativeEndian.PutUint64(v.Value[:], uint64(n))
	return v
}

func doubleValue(field dcgm.Short, f float64) *dcgm.FieldValue_v2 {
	v := &dcgm.FieldValue_v2{FieldID: field, FieldType: dcgm.DCGM_FT_DOUBLE, TS: at.UnixMicro()}
	binary.NativeEndian.PutUint64(v.Value[:], math.Float64bits(f))
	return v
}

// Each blank code of DCGM (dcgm_structs.h) in each type, and values next to them.
func TestValue(t *testing.T) {
	const ok, blank, absent, unsupported, refused = frames.StatusOK, frames.StatusBlank, frames.StatusAbsent, frames.StatusUnsupported, frames.StatusRefused
	for _, c := range []struct {
		v      *dcgm.FieldValue_v2
		status frames.Status
		value  float64
	}{
		{int64Value(203, 0), ok, 0},
		{int64Value(150, -5), ok, -5},
		{int64Value(252, 81559), ok, 81559},
		{int64Value(203, 0x7ffffffffffffff0), blank, 0},
		{int64Value(203, 0x7ffffffffffffff1), absent, 0},
		{int64Value(203, 0x7ffffffffffffff2), unsupported, 0},
		{int64Value(203, 0x7ffffffffffffff3), refused, 0},
		{int64Value(203, math.MaxInt64), blank, 0},
		{int64Value(250, 0x7ffffff0), blank, 0},
		{int64Value(250, 0x7ffffff1), absent, 0},
		{int64Value(250, 0x7ffffff2), unsupported, 0},
		{int64Value(250, 0x7ffffff3), refused, 0},
		{int64Value(250, 4294967280), blank, 0},
		{int64Value(250, 0x7fffffef), ok, 0x7fffffef},
		{int64Value(250, 0x7ffffff4), ok, 0x7ffffff4},
		// An energy counter may have that value.
		{int64Value(156, 0x7ffffff2), ok, 0x7ffffff2},
		{int64Value(409, 4294967281), ok, 4294967281},
		{int64Value(156, 1<<53), ok, 1 << 53},
		{int64Value(156, 1<<53+1), blank, 0},
		{doubleValue(155, 669.5), ok, 669.5},
		{doubleValue(155, 140737488355328), blank, 0},
		{doubleValue(155, 140737488355329), absent, 0},
		{doubleValue(155, 140737488355330), unsupported, 0},
		{doubleValue(155, 140737488355331), refused, 0},
		{doubleValue(155, 140737488355340), blank, 0},
		{doubleValue(155, math.NaN()), blank, 0},
		{doubleValue(155, math.Inf(1)), blank, 0},
		{doubleValue(1002, 0.25), ok, 0.25},
		{doubleValue(1002, 1.01), ok, 1},
		{doubleValue(1002, 7), blank, 0},
		{doubleValue(1002, -0.5), blank, 0},
		{&dcgm.FieldValue_v2{FieldType: 's', TS: at.UnixMicro()}, frames.StatusFailed, 0},
		{&dcgm.FieldValue_v2{}, absent, 0},
	} {
		if s, n := value(c.v, at, time.Second); s != c.status || n != c.value {
			t.Errorf("field %d, type %c, %x: %v %v, want %v %v", c.v.FieldID, rune(c.v.FieldType), c.v.Value[:8], s, n, c.status, c.value)
		}
	}
	// The status takes precedence over the value, and so does the age.
	for code, want := range map[int]frames.Status{-6: unsupported, -14: absent, -15: frames.StatusStale, -16: absent, -17: refused, -18: frames.StatusLost, -3: frames.StatusFailed, -99: frames.StatusFailed} {
		v := int64Value(203, 50)
		v.Status = code
		if s, n := value(v, at, time.Second); s != want || n != 0 {
			t.Errorf("status %d: %v %v", code, s, n)
		}
	}
	for age, want := range map[time.Duration]frames.Status{0: ok, 4 * time.Second: ok, 6 * time.Second: frames.StatusStale, -time.Hour: ok} {
		if s, _ := value(int64Value(203, 50), at.Add(age), time.Second); s != want {
			t.Errorf("%v old: %v", age, s)
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{"<<<NULL>>>": "", "<<<NOT_SUPPORTED>>>": "", "<<<NOT_PERM>>>": "", " NVIDIA  H100\n": "NVIDIA H100", "a\x1b[2Jb\xff": "a [2Jb", "": ""} {
		if got := text(&dcgm.FieldValue_v2{FieldType: dcgm.DCGM_FT_STRING, StringValue: &in}); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if profileOf("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb") != "1c.3g.40gb" || profileOf("7g.80gb") != "7g.80gb" || profileOf("NVIDIA H100") != "" {
		t.Error("profiles")
	}
}

// A state is reported when it begins and ends, and a counter when it grows, each once. Late values
// are ignored.
func TestStatesAlone(t *testing.T) {
	s, d := newStates(), device{index: 1, gpu: 0, uuid: [16]byte{1}}
	say := func() string {
		var out []string
		for _, e := range s.take() {
			out = append(out, fmt.Sprintf("%v %d x%d=%d found=%v over=%v", e.Kind, e.Code, e.Count, e.Total, e.Found, e.Over))
		}
		return strings.Join(out, "; ")
	}
	for i, c := range []struct {
		field uint32
		value float64
		after int
		want  string
	}{
		{1523, 0, 0, ""},
		{1523, 4, 1, "recovery 4 x1=0 found=false over=false"},
		{1523, 0, 0, ""}, // measured earlier
		{1523, 2, 2, "recovery 2 x1=0 found=false over=false"},
		{1523, 0, 3, "recovery 2 x1=0 found=false over=true"},
		{112, 0xc1, 0, "thermal 64 x1=0 found=true over=false; thermal 128 x1=0 found=true over=false"},
		{112, 0x81, 1, "thermal 64 x1=0 found=false over=true"},
		{311, 0, 0, ""},
		{311, 3, 1, "ecc 0 x3=3 found=false over=false"},
		{311, 3, 2, ""},
		{311, 1, 3, "ecc 0 x1=1 found=false over=false"}, // the driver restarted
		{393, 5, 0, "row_remap 0 x5=5 found=true over=false"},
		{396, 1, 0, "row_remap 0 x1=0 found=true over=false"},
		{396, 0, 1, "row_remap 0 x1=0 found=false over=true"},
		{313, 0, 0, "ecc 0 x1=0 found=true over=false"}, // the first value of a lifetime counter is always reported
		{313, 2, 1, "ecc 0 x2=2 found=false over=false"},
		{313, 0, 2, ""}, // it was cleared
		{313, 1, 3, "ecc 0 x1=1 found=false over=false"},
		{391, 12, 0, "page_retirement 0 x12=12 found=true over=false"},
		{391, 13, 1, "page_retirement 0 x1=13 found=false over=false"},
		{392, 1, 0, "page_retirement 0 x1=0 found=true over=false"},
		{392, 0, 1, "page_retirement 0 x1=0 found=false over=true"},
		{203, 9, 0, ""},
		{1523, 1, -3600, "recovery 1 x1=0 found=false over=false"}, // the clock was set back
	} {
		s.observe(d, c.field, c.value, time.Unix(at.Unix()+int64(c.after), 0))
		if got := say(); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
	if s.recovery(d) != 2 || s.recovery(device{}) != 0 {
		t.Error("recovery")
	}
}

// With eight GPUs, memory stays constant and CPU use is negligible. The test runs for a minute, or
// for as long as QM_FOOTPRINT says, for example 60m.
func TestFootprint(t *testing.T) {
	span := time.Minute
	if s := os.Getenv("QM_FOOTPRINT"); s != "" {
		var err error
		if span, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	} else {
		long.Only(t, "measures for a minute")
	}
	c := start(t, node(t, "gpus 8"), "--every=1s", "--medium=10s", "--slow=30s", "--heartbeat=2s")
	c.untilHello()
	turns := int(span / time.Second)
	var first, last, ticks uint64
	for i := range turns {
		c.until("a second", func(b frames.Body) bool { _, ok := b.(*frames.Readings); return ok })
		if i == min(40, turns/2) || i == turns-1 {
			last, ticks = footprint(t, c.cmd.Process.Pid)
			if first == 0 {
				first = last
			}
		}
	}
	t.Logf("%v: %d KiB, then %d KiB resident; %.2f %% of a core", span, first, last, float64(ticks)/float64(turns))
	if last > 60<<10 || last > first+first/4 {
		t.Errorf("%d KiB resident after %d", last, first)
	}
}

func footprint(t *testing.T, pid int) (kib, ticks uint64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fmt.Sscan(rest, &kib)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var user, system uint64
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	return kib, user + system
}
