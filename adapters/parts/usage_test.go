package parts_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// april has a kept month with some rows, and with the digest of nothing as its inputs.
func april(inputs string) *usage.Month {
	of := domain.Interval{From: storetest.Start - 30*domain.Day, To: storetest.Start}
	m := &usage.Month{Inputs: usage.Inputs{Month: of, Text: inputs}}
	for day := of.From; day < of.To; day += domain.Day {
		m.Days = append(m.Days,
			usage.Day{Day: day, Cluster: "c", Time: usage.GPUTime{Service: 7, Idle: 4, Unobserved: 3, Undeclared: 7}},
			usage.Day{Day: day, Cluster: "c", Model: "H100 SXM 80GB", Billing: domain.BillingSpot, Held: true, Workspace: "a", Deployment: "chat", Time: usage.GPUTime{
				Service: 1 << 60, Allocated: 1 << 60, WhileFailed: 1, Measured: 1 << 59, Active: 1 << 58,
			}})
	}
	return m
}

func keep(t *testing.T, d parts.Directory, m *usage.Month) {
	t.Helper()
	w, err := parts.NewWriter(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.PutUsage(m, domain.Position{}), w.Close()); err != nil {
		t.Fatal(err)
	}
}

// What is kept is read back by its inputs. A later version supersedes and does not remove. The same
// month gives the same bytes.
func TestUsageIsKept(t *testing.T) {
	d := parts.Directory{Path: filepath.Join(t.TempDir(), "log"), Log: "log"}
	first, second := april("first"), april("second")
	second.Days = second.Days[:7]
	if _, err := d.Usage(first.Inputs); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is kept: %v", err)
	}
	keep(t, d, first)
	file := filepath.Join(d.Path, "month=2026-04", "usage_days", parts.Digest(first.Inputs.Digest()).String()+".parquet")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, d, second)
	keep(t, d, first)
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("the same month has other bytes: %v", err)
	}
	for _, want := range []*usage.Month{first, second} {
		got, err := d.Usage(want.Inputs)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("read %+v, want %+v: %v", got, want, err)
		}
	}
	if _, err := d.Usage(april("third").Inputs); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("other inputs: %v", err)
	}
	if keys, err := d.List(); len(keys) > 0 || err != nil {
		t.Errorf("it is listed as the parts %v: %v", keys, err)
	}
	bad := april("bad")
	bad.Days[0].Workspace = "\xff"
	w, err := parts.NewWriter(d)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.PutUsage(bad, domain.Position{}); !errors.Is(err, parts.ErrText) || !strings.Contains(err.Error(), "2026-04") {
		t.Errorf("a name that is not UTF-8: %v", err)
	}
}

// Every damage is noticed, whatever the manifest says, and keeping the month again mends it.
func TestKeptUsageIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, d parts.Directory, folder, file string)
		want error
	}{
		"a changed byte": {func(t *testing.T, _ parts.Directory, _, file string) {
			b := read(t, file)
			b[len(b)/2] ^= 1
			write(t, file, b)
		}, parts.ErrDamaged},
		"a cut": {func(t *testing.T, _ parts.Directory, _, file string) {
			write(t, file, read(t, file)[:40])
		}, parts.ErrDamaged},
		"no file": {func(t *testing.T, _ parts.Directory, _, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}, parts.ErrMissing},
		"a manifest that is not one": {func(t *testing.T, _ parts.Directory, folder, _ string) {
			write(t, filepath.Join(folder, "manifest.json"), []byte("{"))
		}, parts.ErrManifest},
		"another log": {func(t *testing.T, d parts.Directory, folder, _ string) {
			text := string(read(t, filepath.Join(folder, "manifest.json")))
			write(t, filepath.Join(folder, "manifest.json"), []byte(strings.Replace(text, `"log": "log"`, `"log": "other"`, 1)))
		}, parts.ErrLog},
		"another month": {func(t *testing.T, d parts.Directory, folder, _ string) {
			text := string(read(t, filepath.Join(folder, "manifest.json")))
			write(t, filepath.Join(folder, "manifest.json"), []byte(strings.Replace(text, `"2026-04"`, `"2026-03"`, 1)))
		}, parts.ErrManifest},
		"inputs of another file": {func(t *testing.T, d parts.Directory, folder, file string) {
			// The manifest names the file of other inputs, with its size and hash.
			keep(t, d, april("other"))
			manifest := filepath.Join(folder, "manifest.json")
			text := string(read(t, manifest))
			text = strings.Replace(text, `"inputs": "inputs"`, `"inputs": "taken"`, 1)
			write(t, manifest, []byte(strings.Replace(text, `"inputs": "other"`, `"inputs": "inputs"`, 1)))
		}, parts.ErrManifest},
		"a file of other inputs": {func(t *testing.T, d parts.Directory, folder, file string) {
			// A forger renames a file, and makes the manifest agree with it.
			keep(t, d, april("other"))
			manifest := filepath.Join(folder, "manifest.json")
			text := string(read(t, manifest))
			other := parts.Digest(april("other").Inputs.Digest()).String() + ".parquet"
			text = strings.Replace(text, `"inputs": "inputs"`, `"inputs": "taken"`, 1)
			text = strings.Replace(text, filepath.Base(file), "taken", 1)
			text = strings.Replace(text, `"inputs": "other"`, `"inputs": "inputs"`, 1)
			text = strings.Replace(text, other, filepath.Base(file), 1)
			write(t, manifest, []byte(text))
			write(t, file, read(t, filepath.Join(folder, other)))
		}, parts.ErrDamaged},
		"states that do not add up": {func(t *testing.T, d parts.Directory, _, _ string) {
			m := april("inputs")
			m.Days[3].Time.Idle++
			keep(t, d, m)
		}, parts.ErrDamaged},
		"a day of another month": {func(t *testing.T, d parts.Directory, _, _ string) {
			m := april("inputs")
			m.Days[0].Day -= domain.Day
			keep(t, d, m)
		}, parts.ErrDamaged},
		"rows out of order": {func(t *testing.T, d parts.Directory, _, _ string) {
			m := april("inputs")
			m.Days[0], m.Days[2] = m.Days[2], m.Days[0]
			keep(t, d, m)
		}, parts.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			d := parts.Directory{Path: filepath.Join(t.TempDir(), "log"), Log: "log"}
			m := april("inputs")
			keep(t, d, m)
			folder := filepath.Join(d.Path, "month="+projections.MonthName(projections.HourOf(m.Inputs.Month.From)), "usage_days")
			c.do(t, d, folder, filepath.Join(folder, parts.Digest(m.Inputs.Digest()).String()+".parquet"))
			if _, err := d.Usage(m.Inputs); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			keep(t, d, m)
			if got, err := d.Usage(m.Inputs); err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("kept again: %+v, %v", got, err)
			}
		})
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
