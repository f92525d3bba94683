package merkle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"quartermaster/domain"
)

// ProofFormat is the format of a [Proof].
const ProofFormat = "quartermaster.proof/1"

// Proof shows that a record is in the log that a checkpoint stands for. It needs nothing else.
type Proof struct {
	Format    string `json:"format"`
	Partition string `json:"partition"` // topic/number
	Offset    int64  `json:"offset"`
	// Leaf is the canonical form of the record (see [AppendLeaf]), in base64.
	Leaf []byte `json:"leaf"`
	// Path leads from the record to the root of its partition.
	Path Hashes `json:"path"`
	// Line is what the head says of the partition; LinePath leads from it to the root of the head.
	Line      string `json:"line"`
	LineIndex int64  `json:"line_index"`
	Lines     int64  `json:"lines"`
	LinePath  Hashes `json:"line_path"`
	// Head is the summary of the head; HeadPath leads from it to the root of the checkpoint.
	Head     string `json:"head"`
	HeadPath Hashes `json:"head_path"`
	// Checkpoint is the signed note.
	Checkpoint string `json:"checkpoint"`
}

// Proven is what a proof shows.
type Proven struct {
	Log       string
	Partition domain.TopicPartition
	Record    *domain.Record // or span
	Head      int64          // the number of the head
	Heads     int64          // that the checkpoint stands for
}

// Check fails with [ErrProof] if a proof does not hold, and with [ErrSignature] if the checkpoint lacks
// the signature of a verifier.
func (p *Proof) Check(verifiers ...note.Verifier) (*Proven, error) {
	fail := func(format string, args ...any) (*Proven, error) {
		return nil, fmt.Errorf("%w: %s", ErrProof, fmt.Sprintf(format, args...))
	}
	if p.Format != ProofFormat {
		return fail("it is of format %q, this program reads %q", p.Format, ProofFormat)
	}
	c, err := OpenNote([]byte(p.Checkpoint), verifiers...)
	if errors.Is(err, ErrSignature) {
		return nil, err
	}
	if err != nil {
		return fail("%v", err)
	}
	head, err := ParseSummary(p.Head)
	if err != nil {
		return fail("%v", err)
	}
	if c.Origin != Origin(head.Log) {
		return fail("the checkpoint is of %q, the head of %q", c.Origin, Origin(head.Log))
	}
	if err := CheckInclusion(LeafHash([]byte(p.Head)), head.Number, c.Size, p.HeadPath, c.Root); err != nil {
		return nil, fmt.Errorf("head in the checkpoint: %w", err)
	}
	line, err := ParseLine(p.Line)
	if err != nil {
		return fail("%v", err)
	}
	if line.Partition.String() != p.Partition {
		return fail("the line is of %s, the record of %s", line.Partition, p.Partition)
	}
	if err := CheckInclusion(LeafHash([]byte(p.Line)), p.LineIndex, p.Lines, p.LinePath, head.Root); err != nil {
		return nil, fmt.Errorf("partition in the head: %w", err)
	}
	if err := CheckInclusion(LeafHash(p.Leaf), p.Offset, line.Next, p.Path, line.Root); err != nil {
		return nil, fmt.Errorf("record in the partition: %w", err)
	}
	r, err := ParseLeaf(p.Leaf, p.Offset)
	if err != nil {
		return fail("%v", err)
	}
	r.Topic, r.Partition = line.Partition.Topic, line.Partition.Partition
	return &Proven{head.Log, line.Partition, r, head.Number, c.Size}, nil
}

// ParseProof parses the text of a proof. It does not check it.
func ParseProof(text []byte) (*Proof, error) {
	p := &Proof{}
	return p, parse(text, p)
}

// GrowthFormat is the format of a [Growth].
const GrowthFormat = "quartermaster.growth/1"

// Growth shows that one checkpoint continues another: that every head which the older one stands for is
// there, unchanged, in the newer one. It needs nothing else.
type Growth struct {
	Format string `json:"format"`
	Older  string `json:"older"` // signed note
	Newer  string `json:"newer"` // signed note
	// Path is the consistency proof of RFC 6962 §2.1.2.
	Path Hashes `json:"path"`
}

// Check fails with [ErrProof] if the newer checkpoint does not continue the older one, and with
// [ErrSignature] if one of them lacks the signature of a verifier. It returns the checkpoints.
func (g *Growth) Check(verifiers ...note.Verifier) (older, newer Checkpoint, err error) {
	fail := func(format string, args ...any) (Checkpoint, Checkpoint, error) {
		return older, newer, fmt.Errorf("%w: %s", ErrProof, fmt.Sprintf(format, args...))
	}
	if g.Format != GrowthFormat {
		return fail("it is of format %q, this program reads %q", g.Format, GrowthFormat)
	}
	for _, n := range []struct {
		text string
		into *Checkpoint
	}{{g.Older, &older}, {g.Newer, &newer}} {
		*n.into, err = OpenNote([]byte(n.text), verifiers...)
		if errors.Is(err, ErrSignature) {
			return older, newer, err
		}
		if err != nil {
			return fail("%v", err)
		}
	}
	if older.Origin != newer.Origin {
		return fail("the checkpoints are of %q and %q", older.Origin, newer.Origin)
	}
	return older, newer, CheckConsistency(older.Size, newer.Size, g.Path, older.Root, newer.Root)
}

// ParseGrowth parses the text of a proof of growth. It does not check it.
func ParseGrowth(text []byte) (*Growth, error) {
	g := &Growth{}
	return g, parse(text, g)
}

// parse decodes a document of exactly one JSON value.
func parse(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("proof: %w", err)
	}
	if dec.More() {
		return errors.New("proof: something follows it")
	}
	return nil
}
