package parts

import (
	"bytes"
	"errors"
	"strings"
	"testing"
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
      "sha256": "cc",
      "scopes": {
        "faults": [
          "bGFi"
        ]
      }
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
		`"digest": "aa"`: `"digest": "AA"`, `"bGFi"`: `"lab"`, `"scopes"`: `"scope"`, `"faults": [
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
