package focus_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
)

func zipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstdOf(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGzipAndByteOrderMark(t *testing.T) {
	text := bill(nil, []string{"BilledCost=1"})
	plain := read(t, text, focus.Options{})
	for name, other := range map[string]string{"gzip": zipped(t, text), "mark": "\xef\xbb\xbf" + text, "both": zipped(t, "\xef\xbb\xbf"+text), "zstd": zstdOf(t, text), "zstd and mark": zstdOf(t, "\xef\xbb\xbf"+text), "zstd behind a skippable frame": "\x50\x2a\x4d\x18\x01\x00\x00\x00x" + zstdOf(t, text), "CRLF": strings.ReplaceAll(text, "\n", "\r\n")} {
		r := read(t, other, focus.Options{})
		if r.err != nil || len(r.events) != 2 || r.line(0).LineID != plain.line(0).LineID || r.line(1).LineID != plain.line(1).LineID {
			t.Errorf("%s: %+v, error %v", name, r.Summary, r.err)
		}
	}
	var rows [][]string
	for i := range 5000 {
		rows = append(rows, []string{fmt.Sprintf("BilledCost=%d", i*i*7919)})
	}
	packed := zipped(t, bill(rows...))
	r := read(t, packed[:len(packed)/2], focus.Options{})
	if !errors.Is(r.err, io.ErrUnexpectedEOF) || len(r.events) == 0 || r.Bad != 0 || r.Rows != len(r.events) {
		t.Errorf("cut off: %+v, error %v, want some rows and an error", r.Summary, r.err)
	}
	damaged := []byte(packed)
	damaged[len(damaged)/2] ^= 0x40
	if r := read(t, string(damaged), focus.Options{}); !errors.Is(r.err, tabular.ErrDamaged) {
		t.Errorf("a damaged gzip file: error %v", r.err)
	}
}

func TestWholeFindsWhatRunWouldStopAt(t *testing.T) {
	packed := zipped(t, bill(nil, nil))
	flipped := []byte(packed)
	flipped[len(flipped)-6] ^= 1 // of the checksum
	packedZstd := zstdOf(t, bill(nil, nil))
	flippedZstd := []byte(packedZstd)
	flippedZstd[len(flippedZstd)-2] ^= 1 // of the checksum
	for _, c := range []struct {
		name, text string
		limits     tabular.Limits
		want       error
	}{
		{"plain", bill(nil), tabular.Limits{}, nil},
		{"empty", "", tabular.Limits{}, nil},
		{"gzip", packed, tabular.Limits{}, nil},
		{"two members", packed + packed, tabular.Limits{}, nil},
		{"cut off", packed[:len(packed)-1], tabular.Limits{}, tabular.ErrDamaged},
		{"cut off in the header", packed[:5], tabular.Limits{}, tabular.ErrDamaged},
		{"another checksum", string(flipped), tabular.Limits{}, tabular.ErrDamaged},
		{"rubbish behind", packed + "x", tabular.Limits{}, tabular.ErrDamaged},
		{"zstd", packedZstd, tabular.Limits{}, nil},
		{"two frames", packedZstd + packedZstd, tabular.Limits{}, nil},
		{"zstd cut off", packedZstd[:len(packedZstd)-1], tabular.Limits{}, tabular.ErrDamaged},
		{"zstd cut off in the header", packedZstd[:5], tabular.Limits{}, tabular.ErrDamaged},
		{"zstd with another checksum", string(flippedZstd), tabular.Limits{}, tabular.ErrDamaged},
		{"rubbish behind zstd", packedZstd + "x", tabular.Limits{}, tabular.ErrDamaged},
		{"a window of 3.75 TiB", "\x28\xb5\x2f\xfd\x00\xff\x01\x00\x00", tabular.Limits{}, tabular.ErrTooLarge},
		{"a bomb of zstd", zstdOf(t, strings.Repeat(" ", 17<<20)), tabular.Limits{}, tabular.ErrTooLarge},
		{"a bomb", zipped(t, strings.Repeat(" ", 17<<20)), tabular.Limits{}, tabular.ErrTooLarge},
		{"a large file", bill(nil), tabular.Limits{DecodedBytes: 9}, tabular.ErrTooLarge},
		{"a spreadsheet", "PK\x03\x04....", tabular.Limits{}, focus.ErrColumns},
	} {
		if err := tabular.Whole(context.Background(), strings.NewReader(c.text), c.limits, focus.ErrColumns); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
	// A read error is not reported as damage.
	gone := errors.New("the disk is gone")
	for _, begin := range []string{packed[:30], packedZstd[:30]} {
		if err := tabular.Whole(context.Background(), io.MultiReader(strings.NewReader(begin), iotest.ErrReader(gone)), tabular.Limits{}, focus.ErrColumns); !errors.Is(err, gone) || errors.Is(err, tabular.ErrDamaged) {
			t.Errorf("a file that cannot be read: error %v", err)
		}
	}
}

func TestLimits(t *testing.T) {
	bomb := zipped(t, bill(nil)+strings.Repeat(strings.Repeat(" ", 9999)+"\n", 2000))
	if r := read(t, bomb, focus.Options{}); !errors.Is(r.err, tabular.ErrTooLarge) || len(r.events) != 1 {
		t.Errorf("a bomb: %+v, error %v", r.Summary, r.err)
	}
	if r := read(t, bill(nil)+strings.Repeat("\n", 2000), focus.Options{Limits: tabular.Limits{DecodedBytes: 1000}}); !errors.Is(r.err, tabular.ErrTooLarge) {
		t.Errorf("a large file: error %v", r.err)
	}
	row := strings.Join(cells, ",") + "\n"
	for name, long := range map[string]string{
		"longer than 1048576": strings.Repeat("x", 3<<20) + "\n",
		"not closed within":   `"` + strings.Repeat(strings.Repeat("x", 9999)+"\n", 110),
		"never closed":        "\"x\n",
	} {
		r := read(t, bill(nil)+row+long, focus.Options{})
		if r.err != nil || len(r.events) != 2 || len(r.bad) == 0 || r.bad[0].Line != 4 || !strings.Contains(r.bad[0].Reason, name) {
			t.Errorf("%s: %+v, error %v, bad %.200v", name, r.Summary, r.err, r.bad)
		}
	}
}

func TestFilesWithoutALastLineEnd(t *testing.T) {
	text := bill(nil, nil)
	for name, c := range map[string]struct {
		text      string
		bad, warn int
	}{
		"whole":                  {text, 0, 0},
		"without the line end":   {text[:len(text)-1], 0, 1},
		"within the last column": {text[:len(text)-3], 0, 1},
		"within another":         {text[:len(text)-20], 1, 0},
	} {
		r := read(t, c.text, focus.Options{})
		if _, rows := r.warned("does not end in a line end"); rows != c.warn || len(r.bad) != c.bad {
			t.Errorf("%s: bad %v, %+v", name, r.bad, r.Warnings)
		}
		if c.bad == 1 && !strings.Contains(r.bad[0].Reason, "it may be cut off") {
			t.Errorf("%s: %v", name, r.bad)
		}
	}
}
