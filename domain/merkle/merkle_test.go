package merkle

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/transparency-dev/merkle/rfc6962"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
)

// naive is the root of a tree as RFC 6962 §2.1 defines it.
func naive(leaves []Hash) Hash {
	switch len(leaves) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return leaves[0]
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	l, r := naive(leaves[:k]), naive(leaves[k:])
	return sha256.Sum256(slices.Concat([]byte{1}, l[:], r[:]))
}

func numbered(n int) []Hash {
	leaves := make([]Hash, n)
	for i := range leaves {
		leaves[i] = LeafHash(fmt.Append(nil, i))
	}
	return leaves
}

// TestVectors are the roots of the reference implementation of certificate transparency
// (certificate-transparency/python/ct/crypto/merkle_test.py).
func TestVectors(t *testing.T) {
	inputs := []string{
		"", "\x00", "\x10", "\x20\x21", "\x30\x31", "\x40\x41\x42\x43", "\x50\x51\x52\x53\x54\x55\x56\x57",
		"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
	}
	want := []string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	}
	var b Builder
	for i, w := range want {
		if got := fmt.Sprintf("%x", [32]byte(b.Root())); got != w {
			t.Errorf("root of %d leaves is %s, want %s", i, got, w)
		}
		if i < len(inputs) {
			b.Add(LeafHash([]byte(inputs[i])))
		}
	}
	l, r := LeafHash([]byte("l")), LeafHash([]byte("r"))
	if h := NodeHash(l, r); !bytes.Equal(h[:], rfc6962.DefaultHasher.HashChildren(l[:], r[:])) {
		t.Error("another hash of a node than transparency-dev's")
	}
}

// TestTree compares trees of all kinds of sizes, built in two parts, with the definition, and every
// proof with the checker and with a wrong one.
func TestTree(t *testing.T) {
	all := numbered(1500)
	long.Check(t, 100, 20_000, func(t *rapid.T) {
		n := rapid.IntRange(1, len(all)).Draw(t, "size")
		cut := rapid.IntRange(0, n).Draw(t, "cut")
		var first Builder
		for _, h := range all[:cut] {
			first.Add(h)
		}
		blocks := first.Blocks()
		b, err := Resume(first.Size(), first.Frontier())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range all[cut:n] {
			b.Add(h)
		}
		blocks = append(blocks, b.Blocks()...)
		root := naive(all[:n])
		if b.Root() != root || b.Size() != int64(n) {
			t.Fatalf("root of %d leaves differs", n)
		}
		fetched := 0
		s, err := NewStored(int64(n), blocks, func(from, to int64) ([]Hash, error) {
			fetched++
			return all[from:to], nil
		})
		if err != nil {
			t.Fatal(err)
		}
		size := rapid.IntRange(1, n).Draw(t, "earlier size")
		early := naive(all[:size])
		if got, err := s.Root(int64(size)); err != nil || got != early {
			t.Fatalf("root of the first %d: %v", size, err)
		}
		i := rapid.IntRange(0, size-1).Draw(t, "index")
		fetched = 0
		path, err := s.Inclusion(int64(i), int64(size))
		if err != nil || fetched > 2 {
			t.Fatalf("fetched leaves %d times: %v", fetched, err)
		}
		if err := CheckInclusion(all[i], int64(i), int64(size), path, early); err != nil {
			t.Fatal(err)
		}
		other := (i + 1) % size
		if other != i && CheckInclusion(all[other], int64(i), int64(size), path, early) == nil ||
			other != i && CheckInclusion(all[i], int64(other), int64(size), path, early) == nil ||
			CheckInclusion(all[i], int64(i), int64(size), path, Hash{}) == nil {
			t.Fatal("a wrong proof of inclusion is accepted")
		}
		path, err = s.Consistency(int64(size), int64(n))
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckConsistency(int64(size), int64(n), path, early, root); err != nil {
			t.Fatal(err)
		}
		wrong := early
		wrong[0]++
		if err := CheckConsistency(int64(size), int64(n), path, wrong, root); !errors.Is(err, ErrProof) {
			t.Fatal("a wrong proof of consistency is accepted")
		}
	})
	if err := CheckConsistency(0, 3, nil, EmptyRoot(), naive(all[:3])); err != nil {
		t.Error(err)
	}
	if err := CheckConsistency(0, 3, nil, Hash{}, naive(all[:3])); err == nil {
		t.Error("an empty tree with a root of its own is accepted")
	}
	for _, bad := range []func() error{
		func() error { _, err := Resume(3, numbered(1)); return err },
		func() error { _, err := Resume(-1, nil); return err },
		func() error { _, err := NewStored(600, numbered(1), nil); return err },
	} {
		if bad() == nil {
			t.Error("a tree with a wrong number of hashes is accepted")
		}
	}
}

// TestLeaves shows that each part of a record is in its leaf, and what a broker changes is not.
func TestLeaves(t *testing.T) {
	base := func() *domain.Record {
		return &domain.Record{
			Topic: domain.TopicFleet, Offset: 7, Time: 5, Key: []byte("k"), Value: []byte("v"),
			Headers: []domain.Header{{Key: "a", Value: []byte("b")}}, Epoch: 3,
		}
	}
	want := AppendLeaf(nil, base())
	for what, change := range map[string]func(*domain.Record){
		"time":    func(r *domain.Record) { r.Time++ },
		"key":     func(r *domain.Record) { r.Key = []byte("kv") },
		"value":   func(r *domain.Record) { r.Value = []byte("w") },
		"header":  func(r *domain.Record) { r.Headers[0].Key = "c" },
		"content": func(r *domain.Record) { r.Headers[0].Value = nil },
		"fewer":   func(r *domain.Record) { r.Headers = nil },
		"moved":   func(r *domain.Record) { r.Key, r.Value = nil, []byte("kv") },
		"span":    func(r *domain.Record) { r.Span = &domain.Span{Last: 7} },
	} {
		r := base()
		change(r)
		if bytes.Equal(AppendLeaf(nil, r), want) {
			t.Errorf("%s: the leaf is the same", what)
		}
	}
	for _, r := range []*domain.Record{base(), {Offset: 7}, {Offset: 5, Span: &domain.Span{Last: 7, SHA256: [32]byte{1}}}} {
		leaf := AppendLeaf(nil, r)
		got, err := ParseLeaf(leaf, 7)
		if err != nil || !bytes.Equal(AppendLeaf(nil, got), leaf) || got.Offset != r.Offset {
			t.Errorf("%+v: %v", got, err)
		}
		for i := range leaf {
			if got, err := ParseLeaf(leaf[:i], 7); err == nil {
				t.Errorf("the first %d bytes of a leaf are %+v", i, got)
			}
		}
	}
	r := base()
	r.Epoch, r.Offset = 9, 8
	if !bytes.Equal(AppendLeaf(nil, r), want) {
		t.Error("the epoch or the offset is in the leaf")
	}
	var b Builder
	b.AddRecord(&domain.Record{Span: &domain.Span{Last: 2}})
	b.AddRecord(&domain.Record{Offset: 3, Value: []byte("v")})
	if b.Size() != 4 {
		t.Errorf("a span of three and a record are %d leaves", b.Size())
	}
}

func head(number int64) *Head {
	var b Builder
	for _, h := range numbered(int(number)) {
		b.Add(h)
	}
	return &Head{
		Log: "log", Archive: "a", Number: number, Records: 12, Before: b.Frontier(),
		Lines: []Line{
			{Partition: domain.TopicPartition{Topic: domain.TopicBooks}, Next: 2, Segments: 1, Root: naive(numbered(2))},
			{Partition: domain.TopicPartition{Topic: domain.TopicFleet, Partition: 3}, Next: 10, Segments: 2},
		},
		Rows: &Rows{Method: "folds/1", Position: "qm.books/0=2"},
	}
}

func TestHeads(t *testing.T) {
	for number := range int64(9) {
		h := head(number)
		got, err := ParseHead(h.Encode())
		if err != nil || !got.Same(h) || !bytes.Equal(got.Encode(), h.Encode()) {
			t.Fatalf("%s: %v", h.Encode(), err)
		}
		tree, err := h.Tree()
		if err != nil || tree.Root() != naive(append(numbered(int(number)), LeafHash([]byte(h.Summary())))) {
			t.Fatalf("root of the tree of heads: %v", err)
		}
		for _, text := range h.texts() {
			i, size, path, err := h.Path(text)
			if err == nil {
				err = CheckInclusion(LeafHash([]byte(text)), i, size, path, h.Root())
			}
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	good := string(head(3).Encode())
	for _, change := range [][2]string{
		{"number 3", "number 4"}, {"number 3", "number 03"}, {"records 12", "records 13"}, {"next=2", "next=3"},
		{"segments=1", "segments=0"}, {"manifest=0", "manifest=1"}, {"qm.books/0", "qm.other/0"},
		{"qm.books/0", "qm.fleet/3"}, {"tree=", "tree= "}, {"folds/1", "folds/2"}, {"rows ", "row "},
		{"before ", "before -"}, {"\n\n", "\n"}, {"head/1", "head/2"}, {"log log", "log  log"},
	} {
		if _, err := ParseHead([]byte(strings.Replace(good, change[0], change[1], 1))); err == nil {
			t.Errorf("accepted with %q for %q", change[1], change[0])
		}
	}
	if _, err := ParseHead([]byte(good + "rows \n")); err == nil {
		t.Error("accepted with a second line about rows")
	}
}

func TestCheckpoints(t *testing.T) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	c := Checkpoint{Origin("log"), 5, naive(numbered(5))}
	signed, err := c.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Verifier(c.Origin, key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := OpenNote(signed, v); err != nil || got != c {
		t.Fatal(got, err)
	}
	stranger := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
	w, err := Verifier(c.Origin, stranger.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenNote(signed, w); !errors.Is(err, ErrSignature) {
		t.Error(err)
	}
	if _, err := OpenNote(signed, v, w); !errors.Is(err, ErrSignature) {
		t.Error("one of two signatures is enough:", err)
	}
	changed := bytes.Replace(signed, []byte("\n5\n"), []byte("\n6\n"), 1)
	if _, err := OpenNote(changed, v); err == nil {
		t.Error("a changed note is accepted")
	}
	if _, err := Verifier("a b", key.Public().(ed25519.PublicKey)); err == nil {
		t.Error("a name with a space is accepted")
	}
	for _, text := range []string{"", "o\n1\n", "o\n-1\n" + c.Root.String() + "\n", "o\n01\n" + c.Root.String() + "\n", c.String() + "more\n", "o\n1\nAA==\n"} {
		if _, err := ParseCheckpoint(text); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
}

func FuzzHead(f *testing.F) {
	f.Add(head(3).Encode())
	f.Fuzz(func(t *testing.T, text []byte) {
		if h, err := ParseHead(text); err == nil && !bytes.Equal(h.Encode(), text) {
			t.Error("accepted a text that is not canonical")
		}
	})
}

func FuzzLeaf(f *testing.F) {
	f.Add(AppendLeaf(nil, sample()))
	f.Add(AppendLeaf(nil, &domain.Record{Span: &domain.Span{Last: 2}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := ParseLeaf(data, 1); err == nil && !bytes.Equal(AppendLeaf(nil, r), data) {
			t.Error("accepted a leaf that is not canonical")
		}
	})
}

func FuzzProof(f *testing.F) {
	f.Add([]byte(`{"format":"quartermaster.proof/1","path":"","leaf":"AQ=="}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := ParseProof(text); err == nil {
			if _, err := p.Check(); err == nil {
				t.Error("a proof from nothing")
			}
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	c := Checkpoint{Origin("log"), 5, EmptyRoot()}
	f.Add([]byte(c.String() + "\n— o AAAAAA==\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := OpenNote(text); err == nil && !strings.HasPrefix(string(text), c.String()) {
			t.Error("accepted a text that is not canonical")
		}
	})
}

// sample is a record of the size of a sample of a node with eight GPUs.
func sample() *domain.Record {
	r := &domain.Record{Key: []byte("cluster-a"), Value: bytes.Repeat([]byte("sample.."), 70)}
	for _, name := range []string{"ce_id", "ce_source", "ce_type", "ce_time", "ce_subject", "ce_partitionkey"} {
		r.Headers = append(r.Headers, domain.Header{Key: name, Value: []byte("value of " + name)})
	}
	return r
}

// BenchmarkTree builds the tree over records; "sha256" hashes the same bytes. Their ratio, and the
// bytes that are stored for each byte of the records, are in docs/evidence/benchmarks.md. It has ten
// million records with CI_LONG=1.
func BenchmarkTree(b *testing.B) {
	n := long.Count(200_000, 10_000_000)
	r := sample()
	size := len(AppendLeaf(nil, r))
	b.Run("sha256", func(b *testing.B) {
		data := AppendLeaf(nil, r)
		b.SetBytes(int64(n * size))
		for b.Loop() {
			h := sha256.New()
			for range n {
				h.Write(data)
			}
			h.Sum(nil)
		}
	})
	b.Run("tree", func(b *testing.B) {
		b.SetBytes(int64(n * size))
		stored := 0
		for b.Loop() {
			var t Builder
			for i := range n {
				r.Offset = int64(i)
				t.AddRecord(r)
			}
			text, _ := Hashes(t.Blocks()).MarshalText()
			stored = len(text)
		}
		b.ReportMetric(float64(stored)/float64(n*size), "stored/byte")
	})
}

// BenchmarkInclusion proves a record from a tree of ten million, with the leaves in memory.
func BenchmarkInclusion(b *testing.B) {
	const n = 10_000_000
	leaf := LeafHash(nil)
	var t Builder
	for range n {
		t.Add(leaf)
	}
	block := slices.Repeat([]Hash{leaf}, Width)
	s, err := NewStored(n, t.Blocks(), func(from, to int64) ([]Hash, error) { return block[:to-from], nil })
	if err != nil {
		b.Fatal(err)
	}
	root := t.Root()
	size := 0
	for b.Loop() {
		path, err := s.Inclusion(n/3, n)
		if err != nil || CheckInclusion(leaf, n/3, n, path, root) != nil {
			b.Fatal(err)
		}
		size = len(path) * len(leaf)
	}
	b.ReportMetric(float64(size), "B/proof")
}
