package parts

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

const twoVersions = `{
  "format": "quartermaster.part/1",
  "log": "log",
  "month": "2026-05",
  "topic": "qm.telemetry",
  "partition": 3,
  "versions": [
    {
      "method": "m1",
      "position": 10,
      "rows": 2,
      "digest": "aa",
      "file": "aa.parquet",
      "bytes": 100,
      "sha256": "cc"
    },
    {
      "method": "m1",
      "position": 12,
      "rows": 3,
      "digest": "bb",
      "file": "bb.parquet",
      "bytes": 120,
      "sha256": "cc",
      "scopes": {
        "faults": [
          "bGFi"
        ]
      },
      "tallies": [
        {
          "table": "faults",
          "rows": 3,
          "changed": 11
        }
      ],
      "supersedes": "aa"
    }
  ]
}
`

// manifestText writes the short digests above in full.
func manifestText(s string) string {
	for _, d := range []string{"aa", "bb", "cc"} {
		s = strings.ReplaceAll(s, `"`+d, `"`+strings.Repeat(d, 32))
	}
	return s
}

// A manifest is accepted with the bytes with which it is written, and with nothing changed that
// matters.
func TestParseManifest(t *testing.T) {
	m, err := ParseManifest([]byte(manifestText(twoVersions)))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := m.encode(); err != nil || string(b) != manifestText(twoVersions) {
		t.Errorf("written again: %s %v", b, err)
	}
	for old, changed := range map[string]string{
		"part/1": "part/2", "2026-05": "2026-5", "qm.telemetry": "qm.nothing", `"partition": 3`: `"partition": 3000`,
		`"rows": 2`: `"rows": -2`, `"aa.parquet"`: `"../aa.parquet"`, `"supersedes": "aa"`: `"supersedes": "bb"`,
		"\n}\n": "\n}\n{}", `"method": "m1"`: `"method": ""`, `"bytes"`: `"size"`, `"sha256": "cc"`: `"sha256": "c"`,
		`"digest": "aa"`: `"digest": "AA"`, `"changed": 11`: `"changed": -11`, `          "rows": 3`: `          "rows": 4`, `"table"`: `"of"`, `"bGFi"`: `"lab"`, `"scopes"`: `"scope"`, `"faults": [
          "bGFi"
        ]`: "",
	} {
		text := manifestText(strings.Replace(twoVersions, old, changed, 1))
		if _, err := ParseManifest([]byte(text)); !errors.Is(err, ErrManifest) {
			t.Errorf("%q for %q: %v", changed, old, err)
		}
	}
}

// The parser never panics, and what it accepts it accepts again as it writes it.
func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(manifestText(twoVersions)))
	f.Add([]byte(`{"versions":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseManifest(b)
		if err != nil {
			if !errors.Is(err, ErrManifest) {
				t.Errorf("%v", err)
			}
			return
		}
		once, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseManifest(once)
		if err != nil {
			t.Fatalf("written as %s: %v", once, err)
		}
		if twice, err := again.encode(); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("written as %s and as %s: %v", once, twice, err)
		}
	})
}

// A manifest that could not be read again is not written.
func TestManifestIsBounded(t *testing.T) {
	m, err := ParseManifest([]byte(manifestText(twoVersions)))
	if err != nil {
		t.Fatal(err)
	}
	m.Versions[1].Scopes["faults"] = [][]byte{make([]byte, maxManifest)}
	if b, err := m.encode(); err == nil {
		t.Errorf("%d bytes are written", len(b))
	}
}

// A part that is superseded again and again keeps a small manifest. Versions before the last one are read
// as before, with the scopes of their rows.
func TestManifestDoesNotGrowByScopes(t *testing.T) {
	d := Directory{Path: t.TempDir(), Log: "log"}
	w, err := NewWriter(d)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	hour := projections.HourOf(storetest.Start)
	key := projections.PartKey{
		Partition: domain.TopicPartition{Topic: domain.TopicHardware}, Month: projections.MonthStart(storetest.Start),
	}
	const clusters = 200
	scopes := func(extra int) (names []string) {
		for i := range clusters + extra {
			// A scope belongs to the partition that its name hashes to.
			names = append(names, placedIn(t, key.Partition, i))
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	var versions []projections.PartDigest
	var first int
	for n := range 20 {
		rows := func(yield func(projections.Key, []byte) error) error {
			for _, scope := range scopes(n) {
				k := projections.Key{Table: projections.TableFaults, Scope: scope, ID: "n", Hour: hour}
				b, err := projections.AppendRow(nil, k, &projections.History{})
				if err != nil {
					return err
				}
				if err := yield(k, b); err != nil {
					return err
				}
			}
			return nil
		}
		h, count := sha256.New(), int64(0)
		if err := rows(func(_ projections.Key, b []byte) error { h.Write(b); count++; return nil }); err != nil {
			t.Fatal(err)
		}
		p := projections.PartDigest{PartKey: key, Rows: count, Digest: [32]byte(h.Sum(nil))}
		tallies := []projections.Tally{{TallyKey: projections.TallyKey{Table: projections.TableFaults}, Rows: count, Changed: int64(n)}}
		if _, err := w.Put(p, tallies, int64(n+1), rows); err != nil {
			t.Fatal(err)
		}
		if got, ok, err := d.Current(key, tallies); got != p || !ok || err != nil {
			t.Fatalf("%v %t: %v", got, ok, err)
		}
		versions = append(versions, p)
		text, err := os.ReadFile(d.path(folder(key) + "/" + manifestName))
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = len(text)
		}
		if len(text) > first+n*1000 {
			t.Fatalf("%d versions have %d bytes, the first had %d", n+1, len(text), first)
		}
	}
	s := NewSource(d)
	defer s.Close()
	for n, p := range versions {
		got, err := s.Scopes(p, projections.TableFaults)
		if err != nil || !slices.Equal(got, scopes(n)) {
			t.Fatalf("version %d has %d scopes: %v", n+1, len(got), err)
		}
		if none, err := s.Scopes(p, projections.TableHealth); len(none) > 0 || err != nil {
			t.Fatal(none, err)
		}
		if err := s.Verify(p); err != nil {
			t.Error(err)
		}
	}
	if _, ok, err := d.Current(key, nil); ok || err != nil {
		t.Errorf("a part is known without tallies: %v", err)
	}
}

// placedIn returns a cluster whose events are in a partition.
func placedIn(t *testing.T, tp domain.TopicPartition, n int) string {
	t.Helper()
	for i := range 10_000 {
		name := fmt.Sprintf("cluster-%d-%d", n, i)
		if domain.PartitionOf([]byte(name), tp.Topic.Partitions()) == tp.Partition {
			return name
		}
	}
	t.Fatalf("no name is placed in %s", tp)
	return ""
}
