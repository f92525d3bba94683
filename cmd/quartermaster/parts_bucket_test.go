package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/adapters/kafka/archive"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
)

// illBucket is a bucket in a directory that fails as a test says.
type illBucket struct {
	archive.Directory
	ill func(op, name string) error
}

func (b *illBucket) wrong(op, name string) error {
	if b.ill == nil {
		return nil
	}
	return b.ill(op, name)
}

func (b *illBucket) Upload(ctx context.Context, name string, body io.Reader) error {
	all, err := io.ReadAll(body)
	if err := errors.Join(err, b.wrong("put", name)); err != nil {
		return err
	}
	return b.Put(ctx, name, all)
}

func (b *illBucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := b.wrong("get", name); err != nil {
		return nil, err
	}
	return b.Directory.Get(ctx, name)
}

func (b *illBucket) Size(ctx context.Context, name string) (int64, error) {
	r, err := b.Get(ctx, name)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, r)
	return n, errors.Join(err, r.Close())
}

func (b *illBucket) List(ctx context.Context, prefix string) ([]string, error) {
	if err := b.wrong("list", prefix); err != nil {
		return nil, err
	}
	return b.Directory.List(ctx, prefix)
}

// Months leave the database only for a bucket that returns every byte of their parts at that time.
// Whatever it does, the error names it, the rows stay, and answers are the same.
func TestHoursStayWithoutBucket(t *testing.T) {
	s := newSite(t)
	bucket := &illBucket{Directory: archive.Directory(t.TempDir())}
	s.bucket = bucket
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "parts:") {
			lines[i] = "parts: s3://vault/parts"
		}
	}
	s.config = writeConfig(t, "%s", strings.Join(lines, "\n"))
	s.start()
	s.fill(1)
	s.report("reporter/a", 1000)
	cfg, err := config.Load(s.config, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	a := &app.App{Config: cfg, ConfigPath: s.config, Dir: t.TempDir(), OpenBucket: s.openBucket}
	h, err := a.OpenProduction(t.Context(), app.Appending)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Shut()
	r := s.serve("a")
	r.says(1, "caught up")
	path := filepath.Join(t.TempDir(), "retention.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: quartermaster/v1\nkind: Estate\nworkspace: platform\neffective_from: 2026-01-01\n"+
		"policies: [{id: hours, kind: retention, scope: hours, value: 1 month}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := s.command("apply", "-f", path); code != 0 {
		t.Fatal(out)
	}
	hours := func() (n int) {
		t.Helper()
		if err := h.DB.QueryRow(`select count(*) from rows_a.usage_hours where hour < '2026-06-01'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	usage := func() string {
		t.Helper()
		code, out := s.command("usage", "--from", "2026-05-01", "--to", "2026-06-01", "-o", "json")
		if code != 0 || !strings.Contains(out, `"groups"`) {
			t.Fatalf("exit %d\n%s", code, out)
		}
		_, groups, _ := strings.Cut(out, `"groups"`)
		return groups
	}
	refuse := errors.New("access denied")
	telemetry := func(name string) bool {
		return strings.Contains(name, "month=2026-05/topic="+string(domain.TopicTelemetry)) && strings.HasSuffix(name, ".parquet")
	}
	before, all := usage(), hours()
	if all == 0 {
		t.Fatal("there are no hours")
	}
	stays := func(what, want string) {
		t.Helper()
		code, out := s.command("retention", "run")
		if code == 0 || !strings.Contains(out, want) || hours() != all {
			t.Errorf("%s: exit %d, %d of %d hours are left, want %q\n%s", what, code, hours(), all, want, out)
		}
	}
	bucket.ill = func(string, string) error { return refuse }
	stays("gone", "the bucket of parts does not answer")
	bucket.ill = func(op, name string) error {
		if op == "put" && telemetry(name) {
			return refuse
		}
		return nil
	}
	stays("full", "access denied")
	bucket.ill = nil
	if code, out := s.command("parts", "make"); code != 0 {
		t.Fatal(out)
	}
	var object string
	names, err := bucket.Directory.List(t.Context(), h.ID+"/")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if telemetry(name) {
			object = filepath.Join(string(bucket.Directory), filepath.FromSlash(name))
		}
	}
	whole, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(b []byte) {
		t.Helper()
		if err := errors.Join(os.Chmod(object, 0o600), os.WriteFile(object, b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	replace(append([]byte("x"), whole[1:]...))
	stays("other bytes", "part is damaged")
	replace(whole[:len(whole)-1])
	stays("fewer bytes", "part is damaged")
	replace(whole)
	bucket.ill = func(op, name string) error {
		if op == "get" && telemetry(name) {
			return refuse
		}
		return nil
	}
	stays("cannot be read back", "access denied")
	bucket.ill = nil
	// A lost object is made again while the rows are there.
	if err := os.Remove(object); err != nil {
		t.Fatal(err)
	}
	code, out := s.command("retention", "run")
	if code != 0 || hours() != 0 {
		t.Fatalf("exit %d, %d hours are left\n%s", code, hours(), out)
	}
	if b, err := os.ReadFile(object); err != nil || string(b) != string(whole) {
		t.Errorf("the lost object was not made again: %v", err)
	}
	if got := usage(); got != before {
		t.Errorf("usage was %s, is %s", before, got)
	}
	s.verified()
	// Once the rows have left, a lost object is an error that names it, not another answer.
	if err := errors.Join(os.Remove(object), os.RemoveAll(filepath.Join(s.data, "parts-cache"))); err != nil {
		t.Fatal(err)
	}
	code, out = s.command("usage", "--from", "2026-05-01", "--to", "2026-05-08", "--by", "node")
	if code == 0 || !strings.Contains(out, "file of a part is missing") || !strings.Contains(out, filepath.Base(object)) {
		t.Errorf("exit %d\n%s", code, out)
	}
	r.ends()
}
