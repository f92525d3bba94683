package audit

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"path"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// Kinds of findings.
const (
	Tampered  = "tampered"  // something is there and is not what it must be
	Missing   = "missing"   // something is not there
	Uncovered = "uncovered" // records are newer than every accepted checkpoint, so nothing shows whether they were changed
	// UnknownKey is a checkpoint by a key that was not given. Its signature cannot be verified, so it does not count.
	UnknownKey = "unknown_key"
)

// Finding is something that is not as it must be.
type Finding struct {
	Kind   string `json:"kind"` // tampered, missing, uncovered or unknown_key
	Object string `json:"object,omitempty"`
	// Partition and the offsets from First to Last are the records that cannot be relied on: those from
	// the first that is wrong, and those before it that no hash has verified (255 at most, if the manifest
	// is right). Without a partition the finding is about no record in particular.
	Partition string `json:"partition,omitempty"`
	First     int64  `json:"first"`
	Last      int64  `json:"last"`
	Reason    string `json:"reason"`
}

// String describes the finding.
func (f *Finding) String() string {
	where := f.Object
	if f.Partition != "" {
		if where != "" {
			where += ": "
		}
		where += fmt.Sprintf("%s, offsets %d to %d", f.Partition, f.First, f.Last)
	}
	return fmt.Sprintf("%s: %s: %s", f.Kind, where, f.Reason)
}

// Trust says whose signatures a checkpoint must have.
type Trust struct {
	// Keys sign checkpoints, each by one of them; none: signatures are not verified.
	Keys []ed25519.PublicKey
	// Witnesses must each have cosigned a checkpoint.
	Witnesses []note.Verifier
	// Copies are checkpoints that were kept elsewhere. Each must be of this archive.
	Copies []Copy
}

// Copy is a checkpoint that was kept outside the archive.
type Copy struct {
	Name string
	Text []byte
}

// Verified is what was found.
type Verified struct {
	Archive     string `json:"archive"`
	Log         string `json:"log"`
	Segments    int    `json:"segments"`
	Records     int64  `json:"records"` // that were read
	Bytes       int64  `json:"bytes"`   // of their batches
	Heads       int64  `json:"heads"`
	Checkpoints int    `json:"checkpoints"` // of the archive and copies
	// Signed is whether signatures were verified.
	Signed bool `json:"signed"`
	// Covered counts the records that the newest accepted checkpoint stands for.
	Covered int64 `json:"covered"`
	// Intact is whether everything is there, unchanged, and covered by an accepted checkpoint.
	Intact bool `json:"intact"`
	// Findings are what is wrong: up to 100 per partition, in the order of partitions and offsets.
	Findings []Finding `json:"findings"`
}

// Of returns whether there are findings of a kind.
func (v *Verified) Of(kind string) bool {
	return slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Kind == kind })
}

// state is a partition after one of its segments.
type state struct {
	next     int64
	manifest [sha256.Size]byte
	root     merkle.Hash
}

type verifier struct {
	*Archive
	trust  Trust
	out    *Verified
	states map[domain.TopicPartition][]state
	signed map[domain.TopicPartition]int64 // by checkpoints in manifests
	found  map[domain.TopicPartition]int   // findings
	bad    map[domain.TopicPartition]bool  // its chain was followed, and has findings
	// unknown says which key that was not given signed manifests of a partition.
	unknown map[domain.TopicPartition]error
}

// Verify verifies everything. It calls progress with the bytes of each segment. An error means that the
// archive could not be read, and says nothing about it.
func (a *Archive) Verify(trust Trust, progress func(bytes int64)) (*Verified, error) {
	v := &verifier{
		a, trust, &Verified{Archive: a.ID, Log: a.Log, Signed: len(trust.Keys) > 0, Findings: []Finding{}},
		map[domain.TopicPartition][]state{}, map[domain.TopicPartition]int64{}, map[domain.TopicPartition]int{}, map[domain.TopicPartition]bool{},
		map[domain.TopicPartition]error{},
	}
	for _, tp := range domain.AllPartitions() {
		if err := v.partition(tp, progress); err != nil {
			return nil, err
		}
	}
	if err := v.heads(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(v.out.Findings, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.First, y.First))
	})
	v.out.Intact = len(v.out.Findings) == 0
	return v.out, nil
}

func (v *verifier) find(f Finding) { v.out.Findings = append(v.out.Findings, f) }

// mostFindings are listed of a partition.
const mostFindings = 100

// about notes a finding about a partition. What heads say about one whose chain has findings is no news.
func (v *verifier) about(tp domain.TopicPartition, kind, object string, first, last int64, format string, args ...any) {
	if v.bad[tp] || v.found[tp] == mostFindings {
		return
	}
	v.found[tp]++
	v.find(Finding{kind, object, tp.String(), first, max(first, last), fmt.Sprintf(format, args...)})
}

// kindOf tells an object that is missing from one that is wrong.
func kindOf(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return Missing
	}
	return Tampered
}

// partition verifies the chain of a partition. What is wrong ends it nowhere: a manifest says with which tree the next
// segment goes on. After a manifest that is missing or cannot be relied on, the next is verified without what it must
// have in common with that one.
func (v *verifier) partition(tp domain.TopicPartition, progress func(int64)) error {
	defer func() { v.bad[tp] = v.bad[tp] || v.found[tp] > 0 }()
	names, err := v.list(manifestsOf(tp))
	if err != nil {
		return err
	}
	tree := &merkle.Builder{} // nil: the records before are not known
	before := &manifest{Number: -1}
	next := int64(0)
	lost := func(from int64) { tree, before, next = nil, nil, from }
	for i, name := range names {
		if v.found[tp] == mostFindings {
			return nil
		}
		m, err := v.manifest(tp, name)
		if err != nil {
			last, errHead := v.lastOf(tp, next, names[i+1:])
			if errHead != nil {
				return errHead
			}
			v.about(tp, kindOf(err), name, next, last, "%v", err)
			lost(max(next, last+1))
			continue
		}
		if m.First > next {
			v.about(tp, Missing, manifestName(tp, next), next, m.First-1, "the next manifest begins at offset %d", m.First)
			lost(m.First)
		}
		from := int64(0)
		if before != nil && before.Tree != nil {
			from = next
		}
		switch {
		case m.First < next:
			v.about(tp, Tampered, name, m.First, m.Last, "it does not continue the manifest before it")
			continue
		case before == nil:
		case m.Number != before.Number+1 || m.Previous != before.text:
			v.about(tp, Tampered, name, m.First, m.Last, "it does not continue the manifest before it")
		case m.Tree == nil && before.Tree != nil, m.Tree != nil && m.Tree.From != from:
			v.about(tp, Tampered, name, m.First, m.Last, "its tree does not continue that of the manifest before it")
		}
		whole := tree != nil
		intact := v.segmentOf(tp, m, tree)
		if !intact || !whole {
			tree = nil
			if m.Tree != nil {
				if tree, err = merkle.Resume(m.Last+1, m.Tree.Frontier); err != nil {
					return err // its length was checked
				}
			}
		}
		if progress != nil {
			progress(m.Bytes)
		}
		before, next = m, m.Last+1
		signed := false
		if intact && tree != nil {
			intact, signed = v.note(tp, name, m, tree)
		}
		if !intact {
			continue
		}
		v.out.Segments++
		v.out.Records += m.Last - m.First + 1
		v.out.Bytes += m.Bytes
		if v.found[tp] > 0 {
			continue // what heads and checkpoints stand for ends before the first finding
		}
		if signed {
			v.signed[tp] = next
		}
		v.states[tp] = append(v.states[tp], state{next: next, manifest: m.text, root: tree.Root()})
	}
	return nil
}

// lastOf returns the last record that an unreadable manifest may be about: the one before the next manifest,
// else the last of the next head that has more records of the partition.
func (v *verifier) lastOf(tp domain.TopicPartition, first int64, later []string) (int64, error) {
	if len(later) > 0 {
		var next int64
		if _, err := fmt.Sscanf(path.Base(later[0]), "%020d.json", &next); err == nil {
			return next - 1, nil
		}
	}
	heads, _, _, err := v.allHeads()
	if err != nil {
		return 0, err
	}
	for _, h := range heads {
		for i := range h.Lines {
			if l := &h.Lines[i]; l.Partition == tp && l.Next > first {
				return l.Next - 1, nil
			}
		}
	}
	return first, nil
}

// blocksFrom returns a tree that goes on with the first block that begins at an offset or after it. What is before is
// not known: it gives right blocks, and the right end of the frontier for what follows them, but no root.
func blocksFrom(offset int64) *merkle.Builder {
	size := (offset + merkle.Width - 1) / merkle.Width * merkle.Width
	tree, err := merkle.Resume(size, make([]merkle.Hash, bits.OnesCount64(uint64(size))))
	if err != nil {
		panic(err) // the frontier is of this size
	}
	return tree
}

// segmentOf verifies a segment and adds its records to the tree. It reports false after a finding. Without a tree,
// records before the first block are verified by the SHA-256 of the segment alone.
func (v *verifier) segmentOf(tp domain.TopicPartition, m *manifest, tree *merkle.Builder) bool {
	raw, unpacked := v.segment(m)
	if errors.Is(unpacked, fs.ErrNotExist) {
		v.about(tp, Missing, m.Object, m.First, m.Last, "the segment is missing")
		return false
	}
	whole := tree != nil
	if !whole {
		tree = blocksFrom(m.First)
	}
	block := tree.Size() / merkle.Width // the next that is complete
	wrong := false
	read := m.First
	next, err := m.each(raw, func(r *domain.Record) bool {
		if r.Next()-1 > m.Last {
			v.about(tp, Tampered, m.Object, m.Last+1, r.Next()-1, "it has more records than its manifest says")
			wrong = true
			return false
		}
		read = r.Next()
		if r.Offset < tree.Size() {
			if read > tree.Size() { // a span over the beginning of the first block
				tree = blocksFrom(read)
				block = tree.Size() / merkle.Width
			}
			return true
		}
		tree.AddRecord(r)
		for _, h := range tree.Blocks() {
			if m.Tree == nil {
				continue
			}
			if i := block - m.Tree.From/merkle.Width; i >= int64(len(m.Tree.Blocks)) || h != m.Tree.Blocks[i] {
				first := max(m.First, block*merkle.Width)
				v.about(tp, Tampered, m.Object, first, (block+1)*merkle.Width-1, "the records are not those that were archived")
				wrong = true
				return false
			}
			block++
		}
		return true
	})
	open := m.First // the first record that no block has verified
	if m.Tree != nil && whole {
		open = max(open, block*merkle.Width)
	}
	known := 0 // hashes at the end of the frontier
	switch {
	case whole:
		known = len(tree.Frontier())
	case tree.Size() == m.Last+1:
		known = bits.OnesCount64(uint64(tree.Size()) % merkle.Width)
	}
	switch {
	case wrong:
		return false
	case err != nil:
		v.about(tp, Tampered, m.Object, open, m.Last, "at offset %d: %v", next, err)
	case unpacked != nil && !errors.Is(unpacked, errStored):
		v.about(tp, Tampered, m.Object, open, m.Last, "at offset %d: %v", next, unpacked)
	case read != m.Last+1:
		v.about(tp, Tampered, m.Object, open, m.Last, "at offset %d: it ends before the last record of its manifest", read)
	case m.Tree != nil && !slices.Equal(last(known, tree.Frontier()), last(known, m.Tree.Frontier)):
		v.about(tp, Tampered, m.Object, open, m.Last, "the records are not those that were archived")
	case !whole && sha256.Sum256(raw) != m.SHA256:
		v.about(tp, Tampered, m.Object, open, m.Last, "the records are not those that were archived")
	case sha256.Sum256(raw) != m.SHA256:
		v.about(tp, Tampered, m.Object, m.First, m.Last, "its SHA-256 is another than its manifest says, though the records are the same")
	case unpacked != nil:
		v.about(tp, Tampered, m.Object, m.First, m.Last, "%v", unpacked)
	default:
		return v.described(tp, m, raw)
	}
	return false
}

// last returns the last n hashes, or all if there are fewer.
func last(n int, hashes []merkle.Hash) []merkle.Hash { return hashes[max(0, len(hashes)-n):] }

// described compares what else a manifest says about its segment.
func (v *verifier) described(tp domain.TopicPartition, m *manifest, raw []byte) bool {
	var latest domain.Instant
	batches := 0
	for rest := raw; len(rest) > 0; batches++ {
		b, err := nextBatch(rest)
		if err != nil {
			break // checked before
		}
		if batches == 0 {
			latest = instant(b.latest)
			if m.Earliest != instant(b.earliest) {
				v.about(tp, Tampered, manifestName(tp, m.First), m.First, m.Last, "its first record is of %s", instant(b.earliest))
				return false
			}
		}
		latest = max(latest, instant(b.latest))
		rest = rest[b.size:]
	}
	if batches != m.Batches || latest != m.Latest {
		v.about(tp, Tampered, manifestName(tp, m.First), m.First, m.Last,
			"the segment has %d batches up to %s, it says %d and %s", batches, latest, m.Batches, m.Latest)
		return false
	}
	return true
}

// note verifies the checkpoint in a manifest. It reports intact as false after a finding about records, and whether
// there is a checkpoint by a given key.
func (v *verifier) note(tp domain.TopicPartition, name string, m *manifest, tree *merkle.Builder) (intact, signed bool) {
	if m.Checkpoint == "" {
		return true, false
	}
	text := []byte(m.Checkpoint)
	want := merkle.Checkpoint{Origin: merkle.PartitionOrigin(v.Log, tp), Size: m.Last + 1, Root: tree.Root()}
	signers, unknown := merkle.Signers(text, want.Origin, v.trust.Keys)
	c, err := merkle.OpenNote(text, signers...)
	switch {
	case err != nil:
	case c != want:
		err = fmt.Errorf("its checkpoint is of %d records of %q with the root %s, they have %s", c.Size, c.Origin, c.Root, want.Root)
	case !errors.Is(unknown, merkle.ErrUnknownKey):
		err = unknown
	}
	if err != nil {
		v.about(tp, Tampered, name, m.First, m.Last, "%v", err)
		return false, false
	}
	if unknown == nil {
		return true, true
	}
	v.unknown[tp] = unknown // no finding: checkpoints may cover the records
	return true, false
}
