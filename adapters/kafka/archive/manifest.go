package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
)

// Format is the version of manifests and segments.
const Format = "quartermaster.archive/1"

// maxManifest is the largest accepted manifest in bytes.
const maxManifest = 4 << 20

// Sum is a SHA-256, in text as hexadecimal digits.
type Sum [sha256.Size]byte

// String returns the digits.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Sum) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(s) || string(bytes.ToLower(text)) != string(text) {
		return fmt.Errorf("%q is not a SHA-256 of %d hexadecimal digits", text, 2*len(s))
	}
	copy(s[:], b)
	return nil
}

// Manifest says what a segment holds. Its text is canonical: equal manifests have equal bytes.
type Manifest struct {
	Format    string       `json:"format"`
	Archive   string       `json:"archive"` // the id of the archive
	Log       string       `json:"log"`     // the id of the log
	Topic     domain.Topic `json:"topic"`
	TopicID   string       `json:"topic_id"` // "" if the broker has none
	Partition int          `json:"partition"`
	Number    int64        `json:"number"` // of the segment in its partition, from 0

	First   int64 `json:"first"` // offsets
	Last    int64 `json:"last"`
	Batches int   `json:"batches"`
	Bytes   int64 `json:"bytes"` // of the batches
	SHA256  Sum   `json:"sha256"`
	// Earliest is the time of the first record, Latest the latest time of all.
	Earliest domain.Instant `json:"earliest"`
	Latest   domain.Instant `json:"latest"`

	Object      string `json:"object"` // the name of the segment's object
	ObjectBytes int64  `json:"object_bytes"`

	LastRecord LastRecord `json:"last_record"`
	// Aborted are the transactions that were aborted and may have records in the segment.
	Aborted []kafka.Transaction `json:"aborted"`

	// Previous is the SHA-256 of the previous manifest of the partition; zeros in the first one.
	Previous Sum `json:"previous"`
}

// LastRecord identifies the last record of a segment.
type LastRecord struct {
	Epoch  int32 `json:"epoch"` // of the leader that appended it
	SHA256 Sum   `json:"sha256"`
}

// Anchor returns the last record of the segment, as folds remember it.
func (m *Manifest) Anchor() domain.Anchor {
	return domain.Anchor{Offset: m.Last, Epoch: m.LastRecord.Epoch, Hash: m.LastRecord.SHA256}
}

// Records returns the number of offsets in the segment.
func (m *Manifest) Records() int64 { return m.Last - m.First + 1 }

// Partition names the partition of a manifest.
func (m *Manifest) partition() domain.TopicPartition {
	return domain.TopicPartition{Topic: m.Topic, Partition: m.Partition}
}

func (m *Manifest) encode() []byte { return canonical(m) }

// canonical returns the JSON of a value of this package, of which no field can fail.
func canonical(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
	return b.Bytes()
}

// parseManifest parses a manifest and checks everything that does not need another object.
func parseManifest(text []byte) (*Manifest, error) {
	m := &Manifest{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	switch {
	case m.Format != Format:
		return nil, fmt.Errorf("manifest is of format %q, this program reads %q", m.Format, Format)
	case m.First < 0 || m.Last < m.First:
		return nil, fmt.Errorf("manifest has offsets %d to %d", m.First, m.Last)
	case m.Number < 0 || (m.Number == 0) != (m.First == 0) || (m.Number == 0) != (m.Previous == Sum{}):
		return nil, fmt.Errorf("manifest number %d begins at offset %d, and the one before it is %s", m.Number, m.First, m.Previous)
	case m.Batches < 1 || int64(m.Batches) > m.Records() || m.Bytes < int64(m.Batches) || m.ObjectBytes < 1:
		return nil, fmt.Errorf("manifest has %d batches of %d bytes, in an object of %d", m.Batches, m.Bytes, m.ObjectBytes)
	}
	if !bytes.Equal(m.encode(), text) {
		return nil, errors.New("manifest is not in its canonical form")
	}
	return m, nil
}

// identity is the content of archive.json.
type identity struct {
	Format  string `json:"format"`
	Archive string `json:"archive"`
	Log     string `json:"log"`
}

func (id *identity) encode() []byte { return canonical(id) }

const identityFile = "archive.json"

func manifestsOf(tp domain.TopicPartition) string {
	return fmt.Sprintf("manifests/%s/%d/", tp.Topic, tp.Partition)
}

func manifestName(tp domain.TopicPartition, first int64) string {
	return fmt.Sprintf("%s%020d.json", manifestsOf(tp), first)
}

// segmentName returns the name of the attempt-th object for a segment.
func segmentName(tp domain.TopicPartition, first int64, sum Sum, attempt int) string {
	name := fmt.Sprintf("segments/%s/%d/%020d-%s", tp.Topic, tp.Partition, first, sum)
	if attempt > 0 {
		name += fmt.Sprintf("-%d", attempt)
	}
	return name + ".zst"
}
