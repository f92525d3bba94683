package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
)

// A line is what encoding/json writes of the record.
func TestExportedLine(t *testing.T) {
	for name, s := range map[string]app.Record{
		"event":   {Topic: domain.TopicFleet, Partition: 3, Offset: 17, Appended: apptest.May, Key: `a "key" <&> é`, Event: json.RawMessage(`{"id":"1"}`)},
		"damaged": {Topic: domain.TopicBilling, Offset: 5, Last: 9, Appended: apptest.May, Key: "\xff\n", Error: "no <event>", Raw: []byte{0, 255}},
		"empty":   {Topic: domain.TopicFleet},
	} {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(s); err != nil {
			t.Fatal(err)
		}
		if have, err := s.AppendLine(nil); err != nil || string(have) != want.String() {
			t.Errorf("%s: %v\n%swant\n%s", name, err, have, want.String())
		}
	}
}

// An export is narrowed by type, workspace, cluster and time, and compressed by the name
// of its file; it is the same lines.
func TestLogExport(t *testing.T) {
	dir, files := apptest.FilledDir(t), t.TempDir()
	code, whole := command(t, dir, "log", "export")
	if code != 0 || strings.Count(whole, "\n") < 15 {
		t.Fatalf("exit %d\n%s", code, whole)
	}
	lines := func(text string) []string { return strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n") }
	matching := func(all ...string) int {
		n := 0
		for _, l := range lines(whole) {
			ok := true
			for _, part := range all {
				ok = ok && strings.Contains(l, part)
			}
			if ok {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"--type", "NodeRegistered"}, matching(`"type":"quartermaster.NodeRegistered.v1"`)},
		{[]string{"--type", "JobQueued,JobStarted"}, 2},
		{[]string{"--type", "NodeRegistered", "--topic", "qm.market"}, 0},
		{[]string{"--workspace", "research"}, matching(`"datacontenttype":"application/json","workspace":"research"`)},
		{[]string{"--cluster", "lab", "--workspace", "research"}, matching(`"workspace":"research","cluster":"lab"`)},
		{[]string{"--from", "2026-05-01T01:00:00Z", "--to", "2026-05-01T01:00:01Z"}, matching(`"time":"2026-05-01T01:00:00Z","subject"`) + matching(`"time":"2026-05-01T01:00:00Z","datacontenttype"`)},
		{[]string{"--until", "qm.fleet/3=0"}, 0},
	} {
		code, out := command(t, dir, append([]string{"log", "export"}, c.args...)...)
		if n := strings.Count(out, "\n"); code != 0 || n != c.want {
			t.Errorf("%v: exit %d, %d lines, want %d\n%s", c.args, code, n, c.want, out)
		}
		for _, l := range lines(out) {
			if l != "" && !strings.Contains(whole, l) {
				t.Errorf("%v: %q is not in the whole export", c.args, l)
			}
		}
	}
	for name, open := range map[string]func(io.Reader) (io.Reader, error){
		"all.jsonl":     func(r io.Reader) (io.Reader, error) { return r, nil },
		"all.jsonl.gz":  func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		"all.jsonl.zst": func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) },
	} {
		path := filepath.Join(files, name)
		if code, out := command(t, dir, "log", "export", "--out", path); code != 0 || out != "" {
			t.Fatalf("%s: exit %d\n%s", name, code, out)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := open(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text, err := io.ReadAll(r); err != nil || string(text) != whole {
			t.Errorf("%s: %v, %d bytes, want %d", name, err, len(text), len(whole))
		}
		// A file that is there is not written over, and stays.
		if code, _ := command(t, dir, "log", "export", "--out", path); code == 0 {
			t.Errorf("%s is written over", name)
		}
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%s is not what it was: %v", name, err)
		}
	}
}

// Errors are text, unless JSON is asked for.
func TestLogExportErrors(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{}, 3, "quartermaster: " + dir + ": there is no data here yet"},
		{[]string{"-o", "json"}, 3, `{"error":"` + dir + `: there is no data here yet`},
		{[]string{"--type", "NodeRegisterd"}, 2, "did you mean NodeRegistered?"},
		{[]string{"--from", "2026-06", "--to", "2026-05"}, 2, "--to 2026-05 is not after --from 2026-06"},
		{[]string{"--compress", "lz4"}, 2, `--compress "lz4": want none, gzip or zstd`},
	} {
		if code, out := command(t, dir, append([]string{"log", "export"}, c.args...)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d, want %d and %q\n%s", c.args, code, c.code, c.want, out)
		}
	}
}
