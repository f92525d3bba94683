package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"strings"

	"github.com/klauspost/compress/zstd"

	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// Limits of objects, in bytes. They bound memory.
const (
	maxIdentity = 1 << 10
	maxManifest = 32 << 20
	maxHead     = 1 << 20
	maxNote     = 1 << 16
	maxSegment  = 1 << 30
	maxWindow   = 32 << 20
)

// Archive is an archive in a directory.
type Archive struct {
	files fs.FS
	ID    string
	Log   string // the id of the log
}

// Open reads what the archive in a directory is of. It fails with [fs.ErrNotExist] if there is none.
func Open(files fs.FS) (*Archive, error) {
	text, err := fs.ReadFile(files, "archive.json")
	if err != nil {
		return nil, err
	}
	var id struct {
		Format  string `json:"format"`
		Archive string `json:"archive"`
		Log     string `json:"log"`
	}
	if err := decode(text, &id); err != nil || len(text) > maxIdentity {
		return nil, fmt.Errorf("archive.json: %w", errors.Join(err, errors.New("it does not say what the archive is of")))
	}
	if id.Format != "quartermaster.archive/1" && id.Format != "quartermaster.archive/2" {
		return nil, fmt.Errorf("archive.json: format is %q; this program reads quartermaster.archive/1 and /2", id.Format)
	}
	return &Archive{files, id.Archive, id.Log}, nil
}

func decode(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// sum is a SHA-256 in hexadecimal digits.
type sum [sha256.Size]byte

func (s sum) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

func (s *sum) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(s[:], text[:min(len(text), 2*len(s))]); err != nil || n != len(s) || len(text) != 2*len(s) {
		return fmt.Errorf("%q is not a SHA-256", text)
	}
	return nil
}

// manifest says what a segment holds.
type manifest struct {
	Format      string         `json:"format"`
	Archive     string         `json:"archive"`
	Log         string         `json:"log"`
	Topic       domain.Topic   `json:"topic"`
	TopicID     string         `json:"topic_id"`
	Partition   int            `json:"partition"`
	Number      int64          `json:"number"`
	First       int64          `json:"first"`
	Last        int64          `json:"last"`
	Batches     int            `json:"batches"`
	Bytes       int64          `json:"bytes"`
	SHA256      sum            `json:"sha256"`
	Earliest    domain.Instant `json:"earliest"`
	Latest      domain.Instant `json:"latest"`
	Object      string         `json:"object"`
	ObjectBytes int64          `json:"object_bytes"`
	ObjectSHA   *sum           `json:"object_sha256,omitempty"`
	LastRecord  struct {
		Epoch  int32 `json:"epoch"`
		SHA256 sum   `json:"sha256"`
	} `json:"last_record"`
	Aborted []struct {
		Producer int64 `json:"producer"`
		First    int64 `json:"first"`
	} `json:"aborted"`
	Tree *struct {
		Root     merkle.Hash   `json:"root"`
		Frontier merkle.Hashes `json:"frontier"`
		From     int64         `json:"from"`
		Blocks   merkle.Hashes `json:"blocks"`
	} `json:"tree,omitempty"`
	Checkpoint string `json:"checkpoint,omitempty"`
	Previous   sum    `json:"previous"`

	text [sha256.Size]byte // the SHA-256 of its text
}

func (a *Archive) read(name string, limit int64) ([]byte, error) {
	f, err := a.files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	return b, err
}

// list returns the names of the files in a directory, in order; none if there is no such directory.
func (a *Archive) list(dir string) (names []string, err error) {
	entries, err := fs.ReadDir(a.files, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".new-") { // which a crash leaves
			names = append(names, dir+"/"+e.Name())
		}
	}
	return names, err
}

func manifestsOf(tp domain.TopicPartition) string { return "manifests/" + tp.String() }

func manifestName(tp domain.TopicPartition, first int64) string {
	return fmt.Sprintf("%s/%020d.json", manifestsOf(tp), first)
}

// manifest reads a manifest and checks everything that needs nothing else.
func (a *Archive) manifest(tp domain.TopicPartition, name string) (*manifest, error) {
	text, err := a.read(name, maxManifest)
	if err != nil {
		return nil, err
	}
	m := &manifest{text: sha256.Sum256(text)}
	if err := decode(text, m); err != nil {
		return nil, err
	}
	size := m.Last + 1
	switch {
	case m.Format != "quartermaster.archive/1" && m.Format != "quartermaster.archive/2":
		return nil, fmt.Errorf("its format is %q", m.Format)
	case m.Archive != a.ID || m.Log != a.Log:
		return nil, fmt.Errorf("it is of archive %s of log %q", m.Archive, m.Log)
	case m.Topic != tp.Topic || m.Partition != tp.Partition || name != manifestName(tp, m.First):
		return nil, fmt.Errorf("it is the manifest of %s/%d from offset %d on", m.Topic, m.Partition, m.First)
	case m.First < 0 || m.Last < m.First || m.Number < 0 || m.Bytes < 1 || m.Bytes > maxSegment || !fs.ValidPath(m.Object):
		return nil, fmt.Errorf("it has offsets %d to %d in %d bytes of %q", m.First, m.Last, m.Bytes, m.Object)
	case (m.Tree == nil) != (m.Format == "quartermaster.archive/1") || (m.Tree == nil) != (m.ObjectSHA == nil):
		return nil, errors.New("its tree or the SHA-256 of its object is missing")
	case m.Tree == nil:
		return m, nil
	case len(m.Tree.Frontier) != bits.OnesCount64(uint64(size)) || merkle.RootOf(m.Tree.Frontier) != m.Tree.Root ||
		m.Tree.From < 0 || m.Tree.From > m.First || int64(len(m.Tree.Blocks)) != size/merkle.Width-m.Tree.From/merkle.Width:
		return nil, fmt.Errorf("its tree of %d leaves from %d has %d and %d hashes", size, m.Tree.From, len(m.Tree.Frontier), len(m.Tree.Blocks))
	}
	return m, nil
}

// errStored means that a segment has other bytes than were stored, and unpacks to the right ones.
var errStored = errors.New("its bytes are not those that were stored, though they unpack to the same")

// segment returns the batches of a segment: as many as can be unpacked, with an error if that is not all.
func (a *Archive) segment(m *manifest) ([]byte, error) {
	f, err := a.files.Open(m.Object)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	hash := sha256.New()
	dec, err := zstd.NewReader(io.TeeReader(f, hash), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	var out bytes.Buffer
	_, err = io.Copy(&out, io.LimitReader(dec, maxSegment)) // also what is too much, to locate what changed
	switch {
	case err != nil:
		err = fmt.Errorf("it cannot be unpacked: %w", err)
	case int64(out.Len()) != m.Bytes:
		err = fmt.Errorf("it unpacks to another size than the %d bytes of its manifest", m.Bytes)
	case m.ObjectSHA != nil && [sha256.Size]byte(hash.Sum(nil)) != *m.ObjectSHA:
		err = errStored
	}
	return out.Bytes(), err
}

// each calls yield with the records and spans of the batches of a segment, in order, until the first
// batch that is wrong. next is the offset after those that were read.
func (m *manifest) each(raw []byte, yield func(*domain.Record) bool) (next int64, err error) {
	next = m.First
	tp := domain.TopicPartition{Topic: m.Topic, Partition: m.Partition}
	aborting := map[int64]bool{}
	left := m.Aborted
	for len(raw) > 0 {
		b, err := nextBatch(raw)
		if err != nil {
			return next, err
		}
		if b.first != next {
			return next, fmt.Errorf("a batch begins at offset %d", b.first)
		}
		for i := 0; i < len(left); i++ { // the list need not be in order
			if left[i].First <= b.last {
				aborting[left[i].Producer] = true
				left = append(left[:i:i], left[i+1:]...)
				i--
			}
		}
		if b.attributes&control != 0 {
			delete(aborting, b.producer)
		}
		recs := b.records(tp, b.attributes&transactional != 0 && aborting[b.producer])
		for i := range recs {
			if !yield(&recs[i]) {
				return next, nil
			}
		}
		next, raw = b.last+1, raw[b.size:]
	}
	return next, nil
}
