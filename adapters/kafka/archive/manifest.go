package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// Format is the version of manifests and segments. The first one had no trees; it is read, and
// continued in the second.
const (
	Format      = "quartermaster.archive/2"
	firstFormat = "quartermaster.archive/1"
)

// maxManifest is the largest accepted manifest in bytes. One of the largest segment has 0.17 bytes of
// hashes for each record.
const maxManifest = 32 << 20

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
	// ObjectSHA256 is that of the object as it is stored. It is nil in the first format.
	ObjectSHA256 *Sum `json:"object_sha256,omitempty"`

	LastRecord LastRecord `json:"last_record"`
	// Aborted are the transactions that were aborted and may have records in the segment.
	Aborted []kafka.Transaction `json:"aborted"`

	// Tree is what is stored of the Merkle tree of the partition. It is nil in the first format.
	Tree *Tree `json:"tree,omitempty"`
	// Checkpoint is a C2SP signed checkpoint of that tree; "" if nobody signed it.
	Checkpoint string `json:"checkpoint,omitempty"`

	// Previous is the SHA-256 of the previous manifest of the partition; zeros in the first one.
	Previous Sum `json:"previous"`
}

// Tree is what a manifest has of the Merkle tree over the records of its partition up to the end of its
// segment. See [merkle.AppendLeaf] for a record's leaf.
type Tree struct {
	Root merkle.Hash `json:"root"`
	// Frontier has the hashes of the complete subtrees from the left: what is needed to go on.
	Frontier merkle.Hashes `json:"frontier"`
	// From is the size of the tree of the previous manifest; 0 if that has none.
	From int64 `json:"from"`
	// Blocks has the hash of every block of 256 records that was completed after the first From.
	Blocks merkle.Hashes `json:"blocks"`
}

// check checks what needs nothing else of the tree of a manifest.
func (t *Tree) check(m *Manifest) error {
	switch size := m.Last + 1; {
	case t.From != m.First && t.From != 0:
		return fmt.Errorf("manifest has a tree that begins at offset %d", t.From)
	case len(t.Frontier) != bits.OnesCount64(uint64(size)) || merkle.RootOf(t.Frontier) != t.Root:
		return fmt.Errorf("manifest has a tree of %d hashes, with the root %s", len(t.Frontier), t.Root)
	case int64(len(t.Blocks)) != size/merkle.Width-t.From/merkle.Width:
		return fmt.Errorf("manifest has a tree with %d blocks from offset %d to %d", len(t.Blocks), t.From, m.Last)
	}
	return nil
}

// checkpoint returns what a checkpoint of the tree says.
func (m *Manifest) checkpoint() merkle.Checkpoint {
	return merkle.Checkpoint{Origin: merkle.PartitionOrigin(m.Log, m.partition()), Size: m.Last + 1, Root: m.Tree.Root}
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
	case m.Format != Format && m.Format != firstFormat:
		return nil, fmt.Errorf("manifest is of format %q, this program reads %q", m.Format, Format)
	case (m.Format == Format) != (m.Tree != nil) || m.Tree == nil && m.Checkpoint != "":
		return nil, fmt.Errorf("manifest of format %q has the tree %v", m.Format, m.Tree)
	case (m.Format == Format) != (m.ObjectSHA256 != nil):
		return nil, fmt.Errorf("manifest of format %q has the SHA-256 %v of its object", m.Format, m.ObjectSHA256)
	case m.First < 0 || m.Last < m.First:
		return nil, fmt.Errorf("manifest has offsets %d to %d", m.First, m.Last)
	case m.Number < 0 || (m.Number == 0) != (m.First == 0) || (m.Number == 0) != (m.Previous == Sum{}):
		return nil, fmt.Errorf("manifest number %d begins at offset %d, and the one before it is %s", m.Number, m.First, m.Previous)
	case !m.ownsObject():
		return nil, fmt.Errorf("manifest of %s from offset %d on names the object %q, which cannot be its own", m.partition(), m.First, m.Object)
	case m.Batches < 1 || int64(m.Batches) > m.Records() || m.Bytes < int64(m.Batches) || m.ObjectBytes < 1:
		return nil, fmt.Errorf("manifest has %d batches of %d bytes, in an object of %d", m.Batches, m.Bytes, m.ObjectBytes)
	}
	if m.Tree != nil {
		if err := m.Tree.check(m); err != nil {
			return nil, err
		}
	}
	if m.Checkpoint != "" {
		c, err := merkle.OpenNote([]byte(m.Checkpoint))
		if err != nil {
			return nil, fmt.Errorf("manifest: %w", err)
		}
		if c != m.checkpoint() {
			return nil, fmt.Errorf("manifest has a checkpoint of %d records of %s with the root %s", c.Size, c.Origin, c.Root)
		}
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

func headName(number int64) string { return fmt.Sprintf("%s%020d.txt", heads, number) }

func (id *identity) encode() []byte { return canonical(id) }

// ownsObject reports whether the object has a name that [segmentName] gives to the segment. No other segment has such
// a name, and it leads to no other place.
func (m *Manifest) ownsObject() bool {
	if !slices.Contains(domain.AllPartitions(), m.partition()) {
		return false
	}
	first := segmentName(m.partition(), m.First, m.SHA256, 0)
	if m.Object == first {
		return true
	}
	digits, ok := strings.CutPrefix(strings.TrimSuffix(m.Object, segmentSuffix), strings.TrimSuffix(first, segmentSuffix)+"-")
	attempt, err := strconv.Atoi(digits)
	return ok && err == nil && attempt > 0 && m.Object == segmentName(m.partition(), m.First, m.SHA256, attempt)
}

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
	return name + segmentSuffix
}

const segmentSuffix = ".zst"
