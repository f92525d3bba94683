package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/kafka/archive"
	"quartermaster/adapters/kafka/embedded"
	"quartermaster/adapters/witness"
	"quartermaster/adapters/witness/witnesstest"
	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/domain/merkle"
)

var (
	key     = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	billing = domain.TopicPartition{Topic: domain.TopicBilling, Partition: 2}
	fleet   = domain.TopicPartition{Topic: domain.TopicFleet}
	trusted = Trust{Keys: []ed25519.PublicKey{key.Public().(ed25519.PublicKey)}}
)

const logID = "log"

// server is a log with an archive, as the server writes them.
type server struct {
	log     *kafka.Log
	archive *archive.Archive
	dir     archive.Directory
	key     ed25519.PrivateKey // signs
}

func newServer(t testing.TB, codec kafka.Codec) *server {
	t.Helper()
	b, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := kafka.Open(t.Context(), kafka.Config{Dial: b.Dial, Codec: codec})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := l.EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
		t.Fatal(err)
	}
	dir := archive.Directory(t.TempDir())
	return &server{l, archive.New(dir, archive.Log{ID: logID}), dir, key}
}

// add appends n records to each of two partitions, in batches of ten, and archives them.
func (s *server) add(t testing.TB, from, n int, sign bool) {
	t.Helper()
	for _, tp := range []domain.TopicPartition{billing, fleet} {
		for at := from; at < from+n; at += 10 {
			var recs []domain.Record
			for i := at; i < at+10; i++ {
				recs = append(recs, domain.Record{
					Topic: tp.Topic, Partition: tp.Partition, Time: domain.Instant(1_750_000_000+i) * domain.Second,
					Key: []byte(tp.String()), Value: []byte(fmt.Sprint("value ", i)),
					Headers: []domain.Header{{Key: "ce_id", Value: fmt.Append(nil, i)}, {Key: "empty"}},
				})
			}
			if err := s.log.Append(t.Context(), recs); err != nil {
				t.Fatal(err)
			}
		}
		firsts, nexts, err := s.log.BrokerBounds(t.Context(), []domain.TopicPartition{tp})
		if err != nil {
			t.Fatal(err)
		}
		p := archive.Policy{Bytes: 30_000}
		if sign {
			p.Key = s.key
		}
		if err := s.archive.Seal(t.Context(), s.log, tp, firsts[tp], nexts[tp], p, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *server) checkpoint(t testing.TB) []byte {
	t.Helper()
	_, signed, err := s.archive.Checkpoint(t.Context(), domain.AllPartitions(), nil, s.key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// files returns the archive in memory.
func (s *server) files(t testing.TB) fstest.MapFS {
	t.Helper()
	m := fstest.MapFS{}
	err := fs.WalkDir(os.DirFS(string(s.dir)), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(string(s.dir), path))
		m[path] = &fstest.MapFile{Data: b}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func verify(t testing.TB, m fs.FS, trust Trust) *Verified {
	t.Helper()
	a, err := Open(m)
	if err != nil {
		t.Fatal(err)
	}
	v, err := a.Verify(trust, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// honest is an archive of 1400 records in each of two partitions, of several segments and two
// heads. All tests share it, and change copies.
var honest = sync.OnceValue(func() func(testing.TB) fstest.MapFS {
	var once sync.Once
	var files fstest.MapFS
	return func(t testing.TB) fstest.MapFS {
		once.Do(func() {
			s := newServer(t, kafka.Zstd)
			s.add(t, 0, 700, true)
			s.checkpoint(t)
			s.add(t, 700, 700, true)
			s.checkpoint(t)
			files = s.files(t)
		})
		if files == nil {
			t.Fatal("there is no archive")
		}
		return maps.Clone(files)
	}
})

func TestIntact(t *testing.T) {
	for _, codec := range []kafka.Codec{kafka.Zstd, kafka.LZ4, 0} {
		s := newServer(t, codec)
		s.add(t, 0, 300, false)
		s.checkpoint(t)
		s.add(t, 300, 300, true)
		kept := s.checkpoint(t)
		trust := trusted
		trust.Copies = []Copy{{"kept.note", kept}}
		v := verify(t, s.files(t), trust)
		if !v.Intact || v.Records != 1200 || v.Covered != 1200 || v.Heads != 2 || v.Checkpoints != 3 || !v.Signed {
			t.Errorf("codec %v: %+v", codec, v)
		}
	}
}

// TestNotCovered has records that are newer than every checkpoint, and none at all.
func TestNotCovered(t *testing.T) {
	s := newServer(t, kafka.Zstd)
	s.add(t, 0, 100, false)
	if v := verify(t, s.files(t), Trust{}); v.Intact || v.Of(Tampered) || len(v.Findings) != 2 || v.Findings[0].First != 0 || v.Findings[0].Last != 99 {
		t.Errorf("no checkpoint: %+v", v)
	}
	s.checkpoint(t)
	s.add(t, 100, 50, false)
	if v := verify(t, s.files(t), trusted); v.Intact || v.Of(Tampered) || len(v.Findings) != 2 ||
		v.Findings[0].Kind != Uncovered || v.Findings[0].First != 100 || v.Findings[0].Last != 149 || v.Covered != 200 {
		t.Errorf("newer than the checkpoint: %+v", v)
	}
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	stranger := Trust{Keys: []ed25519.PublicKey{other}}
	if v := verify(t, s.files(t), stranger); v.Of(Tampered) || !v.Of(UnknownKey) || v.Intact || v.Covered != 0 {
		t.Errorf("signed by another: %+v", v)
	}
}

// TestSeveralKeys has checkpoints and manifests of two keys, as after a key was replaced.
func TestSeveralKeys(t *testing.T) {
	s := newServer(t, kafka.Zstd)
	s.add(t, 0, 100, true)
	first := s.checkpoint(t)
	second := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
	s.key = second
	s.add(t, 100, 50, true)
	s.checkpoint(t)
	of := func(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }
	both := Trust{Keys: []ed25519.PublicKey{of(key), of(second)}, Copies: []Copy{{"kept.note", first}}}
	if v := verify(t, s.files(t), both); !v.Intact || v.Covered != 300 {
		t.Errorf("both keys: %+v", v)
	}
	for _, given := range []struct {
		key, other ed25519.PrivateKey
		covered    int64
	}{{key, second, 200}, {second, key, 300}} {
		v := verify(t, s.files(t), Trust{Keys: []ed25519.PublicKey{of(given.key)}})
		other, err := merkle.Verifier(merkle.Origin(logID), of(given.other))
		if err != nil {
			t.Fatal(err)
		}
		named := fmt.Sprintf("signed by a key that was not given: %s+%08x", other.Name(), other.KeyHash())
		if v.Intact || v.Of(Tampered) || v.Covered != given.covered ||
			!slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Kind == UnknownKey && f.Reason == named }) {
			t.Errorf("one key: want %q and %d covered in %+v", named, given.covered, v)
		}
	}
	// A signature that does not verify under a given key is tampering, and so is a checkpoint that nobody signed as the
	// log.
	for name, change := range map[string]func(string) string{
		"signature": func(note string) string {
			at := len(note) - 20
			return note[:at] + string('A'+(note[at]-'A'+1)%26) + note[at+1:]
		},
		"signer": func(note string) string {
			return strings.Replace(note, "— "+merkle.Origin(logID), "— another", 1)
		},
	} {
		files := s.files(t)
		for file, f := range files {
			if strings.HasPrefix(file, "checkpoints/") {
				f.Data = []byte(change(string(f.Data)))
			}
		}
		if v := verify(t, files, both); !v.Of(Tampered) || v.Of(UnknownKey) {
			t.Errorf("another %s: %+v", name, v)
		}
	}
}

// TestManifestUnreadable names the records of a manifest that cannot be read.
func TestManifestUnreadable(t *testing.T) {
	s := newServer(t, kafka.Zstd)
	s.add(t, 0, 100, true)
	s.checkpoint(t)
	s.add(t, 100, 50, true)
	s.checkpoint(t)
	for first, last := range map[int64]int64{0: 99, 100: 149} {
		files := s.files(t)
		name := fmt.Sprintf("manifests/qm.billing/2/%020d.json", first)
		if files[name] == nil {
			t.Fatalf("no %s in %v", name, slices.Sorted(maps.Keys(files)))
		}
		files[name].Data = bytes.Replace(files[name].Data, []byte("frontier"), []byte("frontiers"), 1)
		v := verify(t, files, trusted)
		if !slices.ContainsFunc(v.Findings, func(f Finding) bool {
			return f.Kind == Tampered && f.Object == name && f.First == first && f.Last == last
		}) {
			t.Errorf("%s: %+v", name, v.Findings)
		}
	}
}

func TestWitnessed(t *testing.T) {
	s := newServer(t, kafka.Zstd)
	log, err := merkle.Verifier(merkle.Origin(logID), key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	w, err := witness.Parse(witnesstest.New(t, log).Line())
	if err != nil {
		t.Fatal(err)
	}
	trust := trusted
	trust.Witnesses = append(trust.Witnesses, w.Verifier())
	s.add(t, 0, 100, true)
	signed := s.checkpoint(t)
	if v := verify(t, s.files(t), trust); v.Intact || v.Of(Tampered) || v.Covered != 0 || !v.Of(Missing) {
		t.Errorf("not cosigned: %+v", v)
	}
	if _, err := s.archive.Cosign(t.Context(), signed, []archive.Witness{w}); err != nil {
		t.Fatal(err)
	}
	if v := verify(t, s.files(t), trust); !v.Intact {
		t.Errorf("cosigned: %+v", v)
	}
	s.add(t, 100, 100, true) // signed, and not cosigned
	s.checkpoint(t)
	if v := verify(t, s.files(t), trust); v.Intact || !v.Of(Uncovered) || v.Covered != 200 {
		t.Errorf("not cosigned to the end: %+v", v)
	}
}

// TestProve proves every kind of record, and refuses every change of a proof.
func TestProve(t *testing.T) {
	m := honest()(t)
	a, err := Open(m)
	if err != nil {
		t.Fatal(err)
	}
	v, err := merkle.Verifier(merkle.Origin(logID), trusted.Keys[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, tp := range []domain.TopicPartition{billing, fleet} {
		for _, offset := range []int64{0, 1, 255, 256, 700, 1023, 1279, 1280, 1399} {
			p, err := a.Prove(tp, offset)
			if err != nil {
				t.Fatal(err)
			}
			proven, err := p.Check(v)
			if err != nil {
				t.Fatalf("%s %d: %v", tp, offset, err)
			}
			r := proven.Record
			if proven.Partition != tp || r.Offset != offset || string(r.Value) != fmt.Sprint("value ", offset) ||
				string(r.Header("ce_id")) != fmt.Sprint(offset) || r.Time != domain.Instant(1_750_000_000+offset)*domain.Second {
				t.Fatalf("%s %d: %+v", tp, offset, r)
			}
		}
	}
	if _, err := a.Prove(billing, 1400); !errors.Is(err, ErrNoCheckpoint) {
		t.Error(err)
	}
	if _, err := a.Prove(domain.TopicPartition{Topic: domain.TopicBooks}, 0); !errors.Is(err, ErrNoCheckpoint) {
		t.Error(err)
	}
	p, err := a.Prove(billing, 900)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*merkle.Proof){
		"leaf":       func(p *merkle.Proof) { p.Leaf[len(p.Leaf)-1]++ },
		"offset":     func(p *merkle.Proof) { p.Offset++ },
		"partition":  func(p *merkle.Proof) { p.Partition = fleet.String() },
		"path":       func(p *merkle.Proof) { p.Path[0][0]++ },
		"short":      func(p *merkle.Proof) { p.Path = p.Path[1:] },
		"line":       func(p *merkle.Proof) { p.Line = strings.Replace(p.Line, "next=1", "next=2", 1) },
		"index":      func(p *merkle.Proof) { p.LineIndex = 1 },
		"lines":      func(p *merkle.Proof) { p.Lines = 5 },
		"line path":  func(p *merkle.Proof) { p.LinePath = nil },
		"head":       func(p *merkle.Proof) { p.Head = strings.Replace(p.Head, "number 1", "number 0", 1) },
		"head path":  func(p *merkle.Proof) { p.HeadPath[0][0]++ },
		"checkpoint": func(p *merkle.Proof) { p.Checkpoint = strings.Replace(p.Checkpoint, "\n2\n", "\n3\n", 1) },
		"format":     func(p *merkle.Proof) { p.Format = "x" },
	} {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		q, err := merkle.ParseProof(text)
		if err != nil {
			t.Fatal(err)
		}
		change(q)
		if _, err := q.Check(v); err == nil {
			t.Errorf("%s: a changed proof holds", what)
		}
	}
}

// segment is a segment that a forger changes.
type segment struct {
	files    fstest.MapFS
	name     string // of the manifest
	manifest map[string]any
	raw      []byte
}

func open(t testing.TB, m fstest.MapFS, name string) *segment {
	t.Helper()
	s := &segment{files: m, name: name}
	dec := json.NewDecoder(bytes.NewReader(m[name].Data))
	dec.UseNumber()
	if err := dec.Decode(&s.manifest); err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if s.raw, err = z.DecodeAll(m[s.object()].Data, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *segment) object() string { return s.manifest["object"].(string) }

func (s *segment) first(t testing.TB) int64 {
	n, err := s.manifest["first"].(json.Number).Int64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// batches returns the batches, each in its own memory.
func (s *segment) batches(t testing.TB) (out [][]byte) {
	t.Helper()
	for rest := s.raw; len(rest) > 0; {
		b, err := nextBatch(rest)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, bytes.Clone(rest[:b.size]))
		rest = rest[b.size:]
	}
	return out
}

// unpacked returns a batch without compression, so that its records can be edited.
func unpacked(t testing.TB, b []byte) (head, records []byte) {
	t.Helper()
	h, err := nextBatch(b)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := unpack(h.attributes&codecMask, h.body)
	if err != nil {
		t.Fatal(err)
	}
	head = bytes.Clone(b[:headBytes])
	binary.BigEndian.PutUint16(head[21:], h.attributes&^uint16(codecMask))
	return head, bytes.Clone(plain)
}

// packed is the inverse, with a valid checksum.
func packed(head, records []byte) []byte {
	b := append(bytes.Clone(head), records...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

// put writes the batches back, as somebody would who hopes that nobody looks at the manifest.
func (s *segment) put(t testing.TB, raw []byte) {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.raw = raw
	s.files[s.object()] = &fstest.MapFile{Data: z.EncodeAll(raw, nil)}
}

// cover rewrites the manifest so that it agrees with the batches, with their tree, and every later
// manifest so that the chain is whole again. Heads and checkpoints stay, and so do signatures if strip
// is not set.
func (s *segment) cover(t testing.TB, strip bool) {
	t.Helper()
	dir := filepath.Dir(s.name)
	var names []string
	for name := range s.files {
		if filepath.Dir(name) == dir {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	tree := &merkle.Builder{}
	var previous sum
	for i, name := range names {
		seg := open(t, s.files, name)
		m := &manifest{}
		if err := json.Unmarshal(s.files[name].Data, m); err != nil {
			t.Fatal(err)
		}
		m.Bytes, m.SHA256 = int64(len(seg.raw)), sha256.Sum256(seg.raw)
		stored := sum(sha256.Sum256(s.files[m.Object].Data))
		m.ObjectSHA = &stored
		tree.Blocks()
		if _, err := m.each(seg.raw, func(r *domain.Record) bool { tree.AddRecord(r); return true }); err != nil {
			t.Fatal(err)
		}
		m.Batches = len(seg.batches(t))
		m.Tree.Root, m.Tree.Frontier, m.Tree.Blocks = tree.Root(), tree.Frontier(), tree.Blocks()
		if i > 0 {
			m.Previous = previous
		}
		if strip {
			m.Checkpoint = ""
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		s.files[name] = &fstest.MapFile{Data: text}
		previous = sha256.Sum256(text)
	}
}

// mutation is one change of an archive: it returns the offset of the first record that it changed.
type mutation func(t testing.TB, s *segment, r *rand.Rand) int64

// mutations are the ways to change records that each must be found.
var mutations = map[string]mutation{
	"change": func(t testing.TB, s *segment, r *rand.Rand) int64 {
		batches := s.batches(t)
		i := r.IntN(len(batches))
		h, err := nextBatch(batches[i])
		if err != nil {
			t.Fatal(err)
		}
		head, recs := unpacked(t, batches[i])
		at := bytes.Index(recs, []byte("value "))
		n := r.IntN(bytes.Count(recs, []byte("value ")))
		for range n {
			at += 6 + bytes.Index(recs[at+6:], []byte("value "))
		}
		recs[at+r.IntN(6)] ^= byte(1 + r.IntN(255))
		batches[i] = packed(head, recs)
		s.put(t, bytes.Join(batches, nil))
		return h.first + int64(n)
	},
	"time": func(t testing.TB, s *segment, r *rand.Rand) int64 {
		batches := s.batches(t)
		i := r.IntN(len(batches))
		h, err := nextBatch(batches[i])
		if err != nil {
			t.Fatal(err)
		}
		head, recs := unpacked(t, batches[i])
		binary.BigEndian.PutUint64(head[27:], uint64(h.earliest)^uint64(1+r.IntN(1<<20)))
		batches[i] = packed(head, recs)
		s.put(t, bytes.Join(batches, nil))
		return h.first
	},
	"flip": func(t testing.TB, s *segment, r *rand.Rand) int64 {
		b := bytes.Clone(s.files[s.object()].Data)
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		s.files[s.object()] = &fstest.MapFile{Data: b}
		return s.first(t)
	},
	"drop": func(t testing.TB, s *segment, r *rand.Rand) int64 {
		batches := s.batches(t)
		i := r.IntN(len(batches))
		h, err := nextBatch(batches[i])
		if err != nil {
			t.Fatal(err)
		}
		s.put(t, bytes.Join(slices.Delete(batches, i, i+1), nil))
		return h.first
	},
	"drop one": func(t testing.TB, s *segment, r *rand.Rand) int64 { // the last of a batch, with all counts right
		batches := s.batches(t)
		i := r.IntN(len(batches))
		h, err := nextBatch(batches[i])
		if err != nil {
			t.Fatal(err)
		}
		head, recs := unpacked(t, batches[i])
		f := fields{rest: recs}
		for range h.count - 1 {
			f.take(int(f.varint()))
		}
		binary.BigEndian.PutUint32(head[23:], uint32(h.count-2))
		binary.BigEndian.PutUint32(head[57:], uint32(h.count-1))
		batches[i] = packed(head, recs[:len(recs)-len(f.rest)])
		s.put(t, bytes.Join(batches, nil))
		return h.last
	},
	"swap": func(t testing.TB, s *segment, r *rand.Rand) int64 { // contents of two batches, at their offsets
		batches := s.batches(t)
		i := r.IntN(len(batches) - 1)
		j := i + 1 + r.IntN(len(batches)-i-1)
		h, err := nextBatch(batches[i])
		if err != nil {
			t.Fatal(err)
		}
		for k := range 8 { // the base offset is not covered by the checksum
			batches[i][k], batches[j][k] = batches[j][k], batches[i][k]
		}
		batches[i], batches[j] = batches[j], batches[i]
		s.put(t, bytes.Join(batches, nil))
		return h.first
	},
	"reorder": func(t testing.TB, s *segment, r *rand.Rand) int64 { // two records within a batch
		batches := s.batches(t)
		i := r.IntN(len(batches))
		h, err := nextBatch(batches[i])
		if err != nil {
			t.Fatal(err)
		}
		head, recs := unpacked(t, batches[i])
		n := r.IntN(h.count - 1)
		f := fields{rest: recs}
		var parts [][]byte
		for range h.count {
			before := f.rest
			f.take(int(f.varint()))
			parts = append(parts, bytes.Clone(before[:len(before)-len(f.rest)]))
		}
		// Their deltas of offset are one byte, after length, attributes and delta of time.
		delta := func(p []byte) *byte {
			f := fields{rest: p}
			f.varint()
			f.take(1)
			f.varint()
			return &p[len(p)-len(f.rest)]
		}
		*delta(parts[n]), *delta(parts[n+1]) = *delta(parts[n+1]), *delta(parts[n])
		parts[n], parts[n+1] = parts[n+1], parts[n]
		batches[i] = packed(head, bytes.Join(parts, nil))
		s.put(t, bytes.Join(batches, nil))
		return h.first + int64(n)
	},
	"truncate": func(t testing.TB, s *segment, r *rand.Rand) int64 {
		batches := s.batches(t)
		i := r.IntN(len(batches))
		h, err := nextBatch(batches[i])
		if err != nil {
			t.Fatal(err)
		}
		raw := bytes.Join(batches[:i], nil)
		s.put(t, append(raw, batches[i][:r.IntN(len(batches[i]))]...))
		return h.first
	},
	"cut object": func(t testing.TB, s *segment, r *rand.Rand) int64 {
		b := s.files[s.object()].Data
		s.files[s.object()] = &fstest.MapFile{Data: b[:r.IntN(len(b))]}
		return s.first(t)
	},
	"no object": func(t testing.TB, s *segment, _ *rand.Rand) int64 {
		delete(s.files, s.object())
		return s.first(t)
	},
	"no manifest": func(t testing.TB, s *segment, _ *rand.Rand) int64 {
		delete(s.files, s.name)
		return s.first(t)
	},
	"manifest": func(t testing.TB, s *segment, r *rand.Rand) int64 {
		b := bytes.Clone(s.files[s.name].Data)
		b[r.IntN(len(b))] ^= 1 << r.IntN(7)
		s.files[s.name] = &fstest.MapFile{Data: b}
		return s.first(t)
	},
	// Those who know the format also make the manifests agree, and take off signatures.
	"covered change": func(t testing.TB, s *segment, r *rand.Rand) int64 {
		at := change(t, s, r)
		s.cover(t, false)
		return at
	},
	"covered and unsigned change": func(t testing.TB, s *segment, r *rand.Rand) int64 {
		at := change(t, s, r)
		s.cover(t, true)
		return at
	},
}

// What is wrong with a segment does not hide what is wrong with later ones, and segments between them count.
func TestVerifyGoesOn(t *testing.T) {
	s := newServer(t, kafka.Zstd)
	for n := range 4 {
		s.add(t, n*100, 100, true)
		s.checkpoint(t)
	}
	files := s.files(t)
	for _, first := range []int64{100, 300} {
		m := open(t, files, fmt.Sprintf("manifests/qm.billing/2/%020d.json", first))
		change(t, m, rand.New(rand.NewPCG(1, 2)))
	}
	v := verify(t, files, trusted)
	var got []string
	for _, f := range v.Findings {
		got = append(got, fmt.Sprint(f.Kind, " ", f.First >= 100 && f.Last < 200, " ", f.First >= 300))
	}
	if want := []string{"tampered true false", "tampered false true"}; !slices.Equal(got, want) || v.Records != 600 || v.Covered != 500 { // 400 are of another partition
		t.Errorf("%+v", v)
	}
}

// A manifest that is wrong or missing is named, and hides nothing that is wrong behind it.
func TestVerifyGoesOnAfterAManifest(t *testing.T) {
	s := newServer(t, kafka.Zstd)
	for n := range 5 {
		s.add(t, n*300, 300, true)
		s.checkpoint(t)
	}
	name := func(first int64) string { return fmt.Sprintf("manifests/qm.billing/2/%020d.json", first) }
	replace := func(old, by string) func(fstest.MapFS) {
		return func(files fstest.MapFS) {
			text := bytes.Replace(files[name(300)].Data, []byte(old), []byte(by), 1)
			if bytes.Equal(text, files[name(300)].Data) {
				t.Fatalf("the manifest has no %s", old)
			}
			files[name(300)] = &fstest.MapFile{Data: text}
		}
	}
	for what, c := range map[string]struct {
		wrong func(fstest.MapFS)
		kind  string
		found []int64 // where findings begin
		whole int64   // records that are as they were archived, of 1500
	}{
		"unreadable":     {replace("frontier", "frontiers"), Tampered, []int64{300}, 1200},
		"another number": {replace(`"number": 1`, `"number": 7`), Tampered, []int64{300, 600}, 1500},
		"another format": {replace("archive/2", "archive/3"), Tampered, []int64{300}, 1200},
		"missing":        {func(files fstest.MapFS) { delete(files, name(300)) }, Missing, []int64{300}, 1200},
	} {
		for _, changed := range [][]int64{nil, {600}, {900}, {600, 1200}} {
			files := s.files(t)
			c.wrong(files)
			want := slices.Clone(c.found)
			for _, first := range changed {
				change(t, open(t, files, name(first)), rand.New(rand.NewPCG(1, 2)))
				want = append(want, first)
			}
			v := verify(t, files, trusted)
			if len(v.Findings) != len(want) || v.Findings[0].Kind != c.kind {
				t.Errorf("%s, %d changed: %+v", what, changed, v.Findings)
				continue
			}
			slices.Sort(want)
			for i, f := range v.Findings {
				if f.First < want[i] || f.Last >= want[i]+300 {
					t.Errorf("%s, %d changed: finding %d is %s, want it from offset %d on", what, changed, i, &f, want[i])
				}
			}
			if got := v.Records - 1500; got != c.whole-300*int64(len(changed)) { // 1500 are of another partition
				t.Errorf("%s, %d changed: %d records are whole", what, changed, got)
			}
		}
	}
}

// change is set below, because mutations refer to each other.
var change mutation

func init() { change = mutations["change"] }

// TestMutations changes an archive in one place at random, again and again. Every change must be found,
// and the range of records that is named must begin no later than the first changed one.
func TestMutations(t *testing.T) {
	base := honest()(t)
	if v := verify(t, base, trusted); !v.Intact {
		t.Fatalf("%+v", v)
	}
	var manifests []string
	for name := range base {
		if strings.HasPrefix(name, "manifests/") {
			manifests = append(manifests, name)
		}
	}
	slices.Sort(manifests)
	if len(manifests) < 4 {
		t.Fatalf("only %d segments", len(manifests))
	}
	names := slices.Sorted(maps.Keys(mutations))
	r := rand.New(rand.NewPCG(1, 2))
	found, same, wide := 0, 0, int64(0)
	for n := range long.Count(280, 10_000) {
		what := names[n%len(names)]
		m := maps.Clone(base)
		s := open(t, m, manifests[r.IntN(len(manifests))])
		tp := strings.Split(filepath.Dir(s.name), "/")
		at := mutations[what](t, s, r)
		if slices.EqualFunc(slices.Sorted(maps.Keys(m)), slices.Sorted(maps.Keys(base)), func(x, y string) bool {
			return x == y && bytes.Equal(m[x].Data, base[y].Data)
		}) {
			same++
			continue
		}
		v := verify(t, m, trusted)
		if v.Intact {
			t.Errorf("%d: %s of %s at offset %d is not found", n, what, s.name, at)
			continue
		}
		located := slices.ContainsFunc(v.Findings, func(f Finding) bool {
			// A flipped bit may be anywhere in the object.
			anywhere := what == "flip" || what == "cut object" || what == "manifest"
			wide = max(wide, f.Last-f.First+1)
			return f.Partition == tp[1]+"/"+tp[2] && (f.First <= at || anywhere) && f.Last >= at
		})
		if !located {
			t.Errorf("%d: %s of %s at offset %d is found elsewhere: %v", n, what, s.name, at, v.Findings)
			continue
		}
		found++
	}
	t.Logf("%d changes of %d ways found and located, at most %d records named; %d changed nothing", found, len(names), wide, same)
}

func FuzzBatch(f *testing.F) {
	f.Add(packed(make([]byte, headBytes), nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := nextBatch(raw)
		if err != nil {
			return
		}
		recs := h.records(billing, false)
		if len(recs) == 0 || recs[0].Offset != h.first || recs[len(recs)-1].Next() != h.last+1 {
			t.Errorf("a batch of the offsets %d to %d has %d records", h.first, h.last, len(recs))
		}
	})
}

// TestSameRecords compares the records of this package with those that the server reads, for batches
// that are odd: of every codec, aborted, control, broken.
func TestSameRecords(t *testing.T) {
	s := newServer(t, kafka.Zstd)
	s.add(t, 0, 50, false)
	var raw []byte
	if err := s.log.ReadBatches(t.Context(), billing, domain.Anchor{}, 0, 50, func(b kafka.Batches) error {
		raw = append(raw, b.Bytes...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var batches [][]byte
	for rest := raw; len(rest) > 0; {
		b, err := nextBatch(rest)
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, bytes.Clone(rest[:b.size]))
		rest = rest[b.size:]
	}
	r := rand.New(rand.NewPCG(3, 4))
	for n := range long.Count(300, 20_000) {
		var set []byte
		for _, b := range batches {
			head, recs := unpacked(t, b)
			attributes := uint16(r.IntN(2)) * transactional
			switch r.IntN(6) {
			case 0:
				attributes |= control | transactional
			case 1:
				attributes |= uint16(r.IntN(8)) // a codec that it does not have
			case 2:
				recs[r.IntN(len(recs))] ^= byte(1 + r.IntN(255))
			case 3:
				recs = recs[:r.IntN(len(recs))]
			case 4:
				recs = append(recs, 0)
			}
			binary.BigEndian.PutUint16(head[21:], attributes)
			binary.BigEndian.PutUint64(head[43:], uint64(r.IntN(2)))
			set = append(set, packed(head, recs)...)
		}
		m := &manifest{Topic: billing.Topic, Partition: billing.Partition, Last: 49}
		var aborted []kafka.Transaction
		for i := range r.IntN(3) {
			at := kafka.Transaction{Producer: int64(i), First: int64(10 * r.IntN(5))}
			aborted = append(aborted, at)
			m.Aborted = append(m.Aborted, struct {
				Producer int64 `json:"producer"`
				First    int64 `json:"first"`
			}{at.Producer, at.First})
		}
		ours, theirs := &merkle.Builder{}, &merkle.Builder{}
		var faults, theirFaults []string
		fault := func(r *domain.Record) string {
			if r.Span == nil {
				return "none"
			}
			return fmt.Sprint(r.Offset, r.Epoch, *r.Span)
		}
		if _, err := m.each(set, func(r *domain.Record) bool {
			ours.AddRecord(r)
			faults = append(faults, fault(r))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if err := kafka.EachRecord(billing, kafka.Batches{Next: 50, Bytes: set, Aborted: aborted}, func(recs []domain.Record) error {
			for i := range recs {
				theirs.AddRecord(&recs[i])
				theirFaults = append(theirFaults, fault(&recs[i]))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(faults, theirFaults) {
			t.Fatalf("%d: faults are\n%q\nthe server says\n%q", n, faults, theirFaults)
		}
		if ours.Size() != theirs.Size() || ours.Root() != theirs.Root() {
			t.Fatalf("%d: the server reads other records: %d and %d", n, theirs.Size(), ours.Size())
		}
	}
}

// TestHostile opens what is no archive.
func TestHostile(t *testing.T) {
	for what, files := range map[string]fstest.MapFS{
		"empty":    {},
		"no JSON":  {"archive.json": {Data: []byte("{")}},
		"format":   {"archive.json": {Data: []byte(`{"format":"quartermaster.archive/9","archive":"a","log":"l"}`)}},
		"unknown":  {"archive.json": {Data: []byte(`{"format":"quartermaster.archive/2","x":1}`)}},
		"too long": {"archive.json": {Data: append([]byte(`{"format":"quartermaster.archive/2"}`), bytes.Repeat([]byte(" "), maxIdentity)...)}},
	} {
		if _, err := Open(files); err == nil {
			t.Errorf("%s: it is an archive", what)
		}
	}
	a, err := Open(fstest.MapFS{"archive.json": {Data: []byte(`{"format":"quartermaster.archive/2","archive":"a","log":"l"}`)}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := a.Verify(trusted, nil)
	if err != nil || !v.Intact || v.Records != 0 {
		t.Errorf("an archive without records: %+v, %v", v, err)
	}
}
