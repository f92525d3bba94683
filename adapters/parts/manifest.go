package parts

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"quartermaster/domain"
	"quartermaster/projections"
)

// format is the version of the layout of files and manifests.
const format = "quartermaster.part/1"

// Digest is a SHA-256. Its text is hexadecimal in lower case.
type Digest [32]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(b []byte) error {
	raw, err := hex.DecodeString(string(b))
	if err != nil || len(raw) != len(d) || hex.EncodeToString(raw) != string(b) {
		return fmt.Errorf("digest %q: want 64 hexadecimal digits in lower case", b)
	}
	copy(d[:], raw)
	return nil
}

// Version is one version of a part.
type Version struct {
	// Method is the version of the folds that made the rows.
	Method string `json:"method"`
	// Position is the offset in the partition that the rows go to.
	Position int64 `json:"position"`
	Rows     int64 `json:"rows"`
	// Digest is the digest of the rows, and the name of the file.
	Digest Digest `json:"digest"`
	// File is the name of the file within the folder.
	File string `json:"file"`
	// Bytes and SHA256 are of the file.
	Bytes  int64  `json:"bytes"`
	SHA256 Digest `json:"sha256"`
	// Scopes are the scopes of each table that has rows, in order. JSON has them in base64, because a
	// scope may be any bytes. Only the last version has them: a manifest does not grow by them.
	Scopes map[string][][]byte `json:"scopes,omitempty"`
	// Tallies count the rows by table, in the order of the names. Rows of the log with equal tallies
	// are equal. Only the last version has them.
	Tallies []Tally `json:"tallies,omitempty"`
	// Supersedes is the digest of the version before; nil in the first.
	Supersedes *Digest `json:"supersedes,omitempty"`
}

// Tally counts the rows of a table, see [projections.Tally].
type Tally struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
	// Changed is the offset of the last record that changed any of them.
	Changed int64 `json:"changed"`
}

func talliesOf(all []projections.Tally) []Tally {
	out := make([]Tally, 0, len(all))
	for _, t := range all {
		out = append(out, Tally{t.Table.String(), t.Rows, t.Changed})
	}
	return out
}

// Manifest lists the versions of a part in order. The last one counts.
type Manifest struct {
	Format    string       `json:"format"`
	Log       string       `json:"log"`
	Month     string       `json:"month"`
	Topic     domain.Topic `json:"topic"`
	Partition int          `json:"partition"`
	Versions  []Version    `json:"versions"`

	key    projections.PartKey
	number int // of the object in a bucket; 0: none
}

// Last returns the version that counts.
func (m *Manifest) Last() *Version { return &m.Versions[len(m.Versions)-1] }

// maxManifest bounds a manifest, in bytes: about 20,000 versions.
const maxManifest = 8 << 20

// ParseManifest reads and checks a manifest. It fails with [ErrManifest].
func ParseManifest(b []byte) (*Manifest, error) {
	m, err := parseManifest(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return m, nil
}

func parseManifest(b []byte) (*Manifest, error) {
	if len(b) > maxManifest {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(b), maxManifest)
	}
	m := &Manifest{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows its end")
	}
	if m.Format != format {
		return nil, fmt.Errorf("its format is %q, this program reads %q", m.Format, format)
	}
	var err error
	if m.key, err = parseKey(m.Month, string(m.Topic), fmt.Sprint(m.Partition)); err != nil {
		return nil, err
	}
	if len(m.Versions) == 0 {
		return nil, fmt.Errorf("it lists no version")
	}
	for i := range m.Versions {
		if err := m.check(i); err != nil {
			return nil, fmt.Errorf("version %d: %w", i+1, err)
		}
	}
	return m, nil
}

// check checks a version, and that it follows the one before.
func (m *Manifest) check(i int) error {
	v := &m.Versions[i]
	switch {
	case v.Method == "":
		return fmt.Errorf("it has no method")
	case v.Position < 0 || v.Rows < 0 || v.Bytes < 0:
		return fmt.Errorf("position %d, %d rows, %d bytes: none may be negative", v.Position, v.Rows, v.Bytes)
	case i == len(m.Versions)-1 && v.Rows > 0 && len(v.Scopes) == 0:
		return fmt.Errorf("it lists no scopes of its %d rows", v.Rows)
	case len(v.Tallies) > 0 && countedBy(v.Tallies) != v.Rows:
		return fmt.Errorf("its tallies count %d rows, and it has %d", countedBy(v.Tallies), v.Rows)
	case v.File != v.Digest.String()+".parquet":
		return fmt.Errorf("file %q does not have the name of its digest %s", v.File, v.Digest)
	case i == 0 && v.Supersedes != nil:
		return fmt.Errorf("it supersedes %s, and is the first", v.Supersedes)
	case i > 0 && v.Supersedes == nil:
		return fmt.Errorf("it does not say that it supersedes %s", m.Versions[i-1].Digest)
	case i > 0 && *v.Supersedes != m.Versions[i-1].Digest:
		return fmt.Errorf("it supersedes %s, the version before is %s", v.Supersedes, m.Versions[i-1].Digest)
	case i > 0 && v.Digest == m.Versions[i-1].Digest && v.Method == m.Versions[i-1].Method:
		return fmt.Errorf("it is equal to the version before")
	}
	return nil
}

// countedBy returns how many rows tallies count, -1 if one is impossible.
func countedBy(tallies []Tally) (rows int64) {
	for _, t := range tallies {
		if t.Rows <= 0 || t.Changed < 0 || rows+t.Rows < rows {
			return -1
		}
		rows += t.Rows
	}
	return rows
}

// add adds a version. What only the last one needs is dropped from those before.
func (m *Manifest) add(v Version) {
	for i := range m.Versions {
		m.Versions[i].Scopes, m.Versions[i].Tallies = nil, nil
	}
	m.Versions = append(m.Versions, v)
}

// encode returns the bytes of a manifest. Equal manifests have equal bytes. It fails if they could not
// be read again.
func (m *Manifest) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	if b = append(b, '\n'); len(b) > maxManifest {
		return nil, fmt.Errorf("it would have %d bytes with %d versions, more than %d: remove its folder and make the part again",
			len(b), len(m.Versions), maxManifest)
	}
	return b, nil
}
