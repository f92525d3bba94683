package dcgm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"quartermaster/domain"
)

var id = domain.GPUID{1, 2, 3, 15: 9}

func inventory(generation uint32) Inventory {
	return Inventory{Generation: generation, Devices: []Device{
		{UUID: id, Minor: 6, Model: "NVIDIA H100 80GB HBM3", Serial: "1", PCI: "00000000:0F:00.0", MemoryMiB: 81559, MIG: true},
		{UUID: domain.GPUID{7}, Parent: 1, Profile: "1g.10gb", GPUInstance: 3, ComputeInstance: 1, Slices: 1, Shared: true, MemoryMiB: 9984},
		{GPU: 1, Lost: true},
	}}
}

func frames() []Frame {
	inv := inventory(2)
	inv.Reason = "GPU 1 is lost"
	return []Frame{
		{At: 1, Boot: 2, Body: &Heartbeat{Call: "start", Waiting: time.Second}},
		{At: 5, Boot: 3, Body: &Hello{Version: Version, Program: "1", Library: "4.5.0", Driver: "580", Hostname: "n", BootID: "b", Engine: "/run/x",
			Inventory: inventory(1), Groups: []Group{{Name: "core", Fields: []uint32{203}, Every: time.Second, Works: true}, {Name: "profiling", Reason: "no module", Code: -33}}}},
		{At: 6, Body: &Readings{Generation: 1, Readings: []Reading{{0, 203, StatusOK, 99}, {1, 1002, StatusOK, 0.25}, {2, 203, StatusLost, 0}}}},
		{At: 7, Body: &Events{Generation: 1, Cursor: 77, Events: []Event{{Kind: KindXID, Device: 1, UUID: id, Code: 79, Field: 230, Count: 1, At: 4, Recovery: 3},
			{Kind: KindHealth, Code: 125, Count: 1, Failed: true, System: 0x200, Detail: "d", Found: true}, {Kind: KindECC, Device: 3, Field: 311, Count: 2, Total: 5, Over: true}}}},
		{At: 8, Body: &inv},
		{At: 9, Body: &Trouble{Code: TroubleConnection, Text: "gone", Returned: -21, Fatal: true, Group: "g"}},
	}
}

func write(t testing.TB, fs ...Frame) []byte {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, f := range fs {
		if err := w.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func readAll(b []byte) (fs []Frame, err error) {
	r := NewReader(bytes.NewReader(b))
	for {
		f, err := r.Next()
		if err != nil {
			return fs, err
		}
		fs = append(fs, f)
	}
}

func TestRoundTrip(t *testing.T) {
	want := frames()
	got, err := readAll(write(t, want...))
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for i := range want {
		want[i].Sequence = uint64(i + 1)
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("frame %d:\n got %+v\nwant %+v", i, got[i].Body, want[i].Body)
		}
	}
}

// A stream cut anywhere gives the frames before the cut and an error that it is torn.
func TestTorn(t *testing.T) {
	whole := write(t, frames()...)
	ends := map[int]bool{0: true}
	for n := 0; n < len(whole); {
		size, k := binary.Uvarint(whole[n:])
		n += k + int(size)
		ends[n] = true
	}
	for n := range whole {
		_, err := readAll(whole[:n])
		if ends[n] && !errors.Is(err, io.EOF) || !ends[n] && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

func TestRefused(t *testing.T) {
	hello := Frame{Body: &Hello{Version: Version, Inventory: inventory(1)}}
	for _, c := range []struct {
		name   string
		frames []Frame
		want   string
	}{
		{"another version", []Frame{{Body: &Hello{Version: 9}}}, "frames of version 9, this program reads version 1: install both from one release"},
		{"readings first", []Frame{{Body: &Readings{Generation: 1}}}, "before the hello"},
		{"two hellos", []Frame{hello, hello}, "a second hello"},
		{"a device that is not there", []Frame{hello, {Body: &Readings{Generation: 1, Readings: []Reading{{3, 203, StatusOK, 1}}}}}, "a reading of device 3 of inventory 1, and inventory 1 has 3 devices"},
		{"an event of none", []Frame{hello, {Body: &Events{Generation: 1, Events: []Event{{Kind: KindXID, Device: 4, Count: 1}}}}}, "an event of device 3 of inventory 1, and inventory 1 has 3 devices"},
		{"another inventory", []Frame{hello, {Body: &Readings{Generation: 2, Readings: []Reading{{0, 203, StatusOK, 1}}}}}, "of inventory 2, and inventory 1 has"},
		{"an inventory left out", []Frame{hello, {Body: &Inventory{Generation: 3}}}, "inventory 3 after inventory 1"},
		{"a blank with a value", []Frame{hello, {Body: &Readings{Generation: 1, Readings: []Reading{{0, 203, StatusBlank, 4}}}}}, "reading 0: it is blank and has the value 4"},
		{"no status", []Frame{hello, {Body: &Readings{Generation: 1, Readings: []Reading{{0, 203, 0, 0}}}}}, "status 0 is unknown"},
		{"no count", []Frame{hello, {Body: &Events{Generation: 1, Events: []Event{{Kind: KindXID}}}}}, "its count is 0"},
		{"no kind", []Frame{hello, {Body: &Events{Generation: 1, Events: []Event{{Count: 1}}}}}, "kind 0 is unknown"},
		{"a MIG device before its GPU", []Frame{{Body: &Hello{Version: Version, Inventory: Inventory{Generation: 1, Devices: []Device{{Parent: 1}}}}}}, "its GPU is given as device 0"},
	} {
		if _, err := readAll(write(t, c.frames...)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	for name, b := range map[string][]byte{
		"text":         []byte("Warning: this is what some library prints\n"),
		"a huge frame": {0xff, 0xff, 0xff, 0xff, 0x7f},
		"no body":      {0},
	} {
		if _, err := readAll(b); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The reader handles any input without panicking, and what it accepts survives a round trip.
func FuzzReader(f *testing.F) {
	f.Add(write(f, frames()...))
	f.Add([]byte("Warning: text\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fs, err := readAll(b)
		if err == nil {
			t.Fatal("no end")
		}
		again, err := readAll(write(t, fs...))
		if !errors.Is(err, io.EOF) || !reflect.DeepEqual(fs, again) {
			t.Fatalf("%v\n%+v\n%+v", err, fs, again)
		}
	})
}

func BenchmarkSecond(b *testing.B) {
	var r Readings
	r.Generation = 1
	for d := range uint32(8) {
		for f := range uint32(8) {
			r.Readings = append(r.Readings, Reading{d, 1000 + f, StatusOK, 0.5})
		}
	}
	w := NewWriter(io.Discard)
	b.ReportAllocs()
	for b.Loop() {
		w.Write(Frame{Body: &r})
	}
	b.ReportMetric(float64(len(write(b, Frame{Body: &r}))), "bytes/frame")
}
