package archive

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

const (
	maxHead = 1 << 20 // the largest accepted head in bytes
	maxNote = 1 << 16 // and checkpoint

	heads       = "heads/"
	checkpoints = "checkpoints/"
)

// Checkpoint states what is archived of partitions, and what rows were folded if rows is not nil, in a
// [merkle.Head], and signs a C2SP checkpoint of the tree of all heads
// (https://c2sp.org/tlog-checkpoint). If there is nothing new since the last head, it signs that one
// again, which gives the same bytes for the same key. It returns nil if nothing is archived and rows is
// nil.
func (a *Archive) Checkpoint(
	ctx context.Context,
	tps []domain.TopicPartition,
	rows *merkle.Rows,
	key ed25519.PrivateKey,
) (*merkle.Head, []byte, error) {
	if rows != nil {
		if err := a.create(ctx); err != nil {
			return nil, nil, err
		}
	}
	id, err := a.ID(ctx)
	if id == "" || err != nil {
		return nil, nil, err
	}
	head, err := a.putHead(ctx, tps, rows)
	if err != nil {
		return nil, nil, err
	}
	tree, err := head.Tree()
	if err != nil {
		return nil, nil, err
	}
	c := merkle.Checkpoint{Origin: merkle.Origin(a.log.ID), Size: tree.Size(), Root: tree.Root()}
	signed, err := c.Sign(key)
	if err != nil {
		return nil, nil, err
	}
	return head, signed, a.putNote(ctx, c.Size, signed)
}

func (a *Archive) putNote(ctx context.Context, size int64, signed []byte) error {
	name := fmt.Sprintf("%s%020d-%x.note", checkpoints, size, sha256.Sum256(signed))
	if err := a.store.Put(ctx, name, signed); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Witness cosigns checkpoints.
type Witness interface {
	// Verifier verifies its cosignatures.
	Verifier() note.Verifier
	// Cosign returns the note with a cosignature added. The tree has size leaves; prove returns the proof
	// that the tree of the first from leaves is its beginning.
	Cosign(ctx context.Context, signed []byte, size int64, prove func(from int64) ([]merkle.Hash, error)) ([]byte, error)
}

// Cosign asks witnesses to cosign a checkpoint that [Archive.Checkpoint] returned, stores it with their
// cosignatures, and returns who cosigned it. Cosignatures of the others are stored if one fails; its
// error is returned, too. Cosign asks nobody if a stored checkpoint of as many heads has all.
func (a *Archive) Cosign(ctx context.Context, signed []byte, witnesses []Witness) (by []string, err error) {
	if len(witnesses) == 0 {
		return nil, nil
	}
	c, err := merkle.OpenNote(signed)
	if err != nil {
		return nil, err
	}
	names, err := a.store.List(ctx, checkpoints)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, fmt.Sprintf("%s%020d-", checkpoints, c.Size)) {
			continue
		}
		stored, err := a.get(ctx, name, maxNote)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(witnesses, func(w Witness) bool {
			_, err := merkle.OpenNote(stored, w.Verifier())
			return err != nil
		}) {
			return nil, nil
		}
	}
	prove := func(from int64) ([]merkle.Hash, error) { return a.ProveHeads(ctx, from, c.Size) }
	var errs []error
	for _, w := range witnesses {
		more, err := w.Cosign(ctx, signed, c.Size, prove)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		signed = more
		by = append(by, w.Verifier().Name())
	}
	if len(by) > 0 {
		errs = append(errs, a.putNote(ctx, c.Size, signed))
	}
	return by, errors.Join(errs...)
}

// ProveHeads returns the proof that the tree of the first from heads is the beginning of that of the
// first to. It reads the heads of two blocks at most, and the last one of each other block.
func (a *Archive) ProveHeads(ctx context.Context, from, to int64) ([]merkle.Hash, error) {
	tree, err := a.headTree(ctx, to)
	if err != nil {
		return nil, err
	}
	return tree.Consistency(from, to)
}

// headTree returns the tree of the first heads.
func (a *Archive) headTree(ctx context.Context, to int64) (*merkle.Stored, error) {
	var blocks []merkle.Hash
	for last := int64(merkle.Width - 1); last < to; last += merkle.Width {
		h, err := a.head(ctx, last)
		if err != nil {
			return nil, err
		}
		tree, err := h.Tree()
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, tree.Blocks()...)
	}
	return merkle.NewStored(to, blocks, func(first, next int64) (leaves []merkle.Hash, err error) {
		for ; first < next; first++ {
			h, err := a.head(ctx, first)
			if err != nil {
				return nil, err
			}
			leaves = append(leaves, merkle.LeafHash([]byte(h.Summary())))
		}
		return leaves, nil
	})
}

// putHead returns the newest head if it says what there is now, or stores a new one. Two processes
// cannot store a head of the same number: the later one gets an [ErrForked].
func (a *Archive) putHead(ctx context.Context, tps []domain.TopicPartition, rows *merkle.Rows) (*merkle.Head, error) {
	next := &merkle.Head{Log: a.log.ID, Archive: a.id, Rows: rows}
	for _, tp := range slices.SortedFunc(slices.Values(tps), domain.TopicPartition.Compare) {
		m, err := a.Head(ctx, tp)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		tree, err := a.treeOf(ctx, m)
		if err != nil {
			return nil, err
		}
		next.Lines = append(next.Lines, merkle.Line{
			Partition: tp, Next: m.Last + 1, Segments: m.Number + 1, Manifest: sha256.Sum256(m.encode()), Root: tree.Root(),
		})
		next.Records += m.Last + 1
	}
	names, err := a.store.List(ctx, heads)
	if err != nil {
		return nil, err
	}
	if n := len(names); n > 0 {
		last, err := a.head(ctx, int64(n-1))
		if err != nil {
			return nil, err
		}
		if rows == nil && last.Rows != nil {
			next.Rows = last.Rows // what it says of the past stays true
			if !next.Same(last) {
				next.Rows = nil
			}
		}
		if next.Same(last) {
			return last, nil
		}
		tree, err := last.Tree()
		if err != nil {
			return nil, err
		}
		next.Number, next.Before = tree.Size(), tree.Frontier()
	}
	name := headName(next.Number)
	if err := a.store.Put(ctx, name, next.Encode()); errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("archive: %w: %s", ErrForked, name)
	} else if err != nil {
		return nil, err
	}
	return a.head(ctx, next.Number) // read back
}

// head reads a head and checks that it is of this archive.
func (a *Archive) head(ctx context.Context, number int64) (*merkle.Head, error) {
	name := headName(number)
	text, err := a.get(ctx, name, maxHead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &DamageError{Object: name, Reason: "it is missing"}
	}
	if err != nil {
		return nil, err
	}
	h, err := merkle.ParseHead(text)
	switch {
	case err != nil:
		return nil, &DamageError{Object: name, Reason: err.Error()}
	case h.Log != a.log.ID || h.Archive != a.id || h.Number != number:
		reason := fmt.Sprintf("it is head %d of archive %s of log %q", h.Number, h.Archive, h.Log)
		return nil, &DamageError{Object: name, Reason: reason}
	}
	return h, nil
}

// Checked is the result of [Archive.CheckCheckpoints].
type Checked struct {
	Checkpoints int
	Heads       int64 // that the newest one covers
	Records     int64 // that the newest head has
	// Cosigned has what each witness cosigned last, in the order of witnesses.
	Cosigned []Cosigned
	// Faults are what is wrong, in the order of heads and checkpoints.
	Faults []error
}

// Cosigned is the newest checkpoint that a witness cosigned.
type Cosigned struct {
	Witness string
	Heads   int64          // that it covers; 0: there is none
	At      domain.Instant // when the witness saw it, by its clock
}

// CheckCheckpoints compares every head with the manifests, and every checkpoint with the tree of heads.
// With keys, each checkpoint must have the signature of one of them, also those in manifests. A witness that
// cosigned none is a fault.
func (a *Archive) CheckCheckpoints(ctx context.Context, keys []ed25519.PublicKey, witnesses ...note.Verifier) (*Checked, error) {
	if _, err := a.ID(ctx); err != nil {
		return nil, err
	}
	c := &checking{archive: a, keys: keys, witnesses: witnesses, chains: map[domain.TopicPartition]*chain{}}
	for _, w := range witnesses {
		c.Cosigned = append(c.Cosigned, Cosigned{Witness: w.Name()})
	}
	names, err := a.store.List(ctx, heads)
	if err != nil {
		return nil, err
	}
	roots := make([]merkle.Hash, 0, len(names)) // of the trees of 1, 2, … heads
	var tree merkle.Builder
	for number := range int64(len(names)) {
		h, err := a.head(ctx, number)
		if err != nil {
			if err := c.fault(err); err != nil {
				return nil, err
			}
			break // of those after it the tree cannot be computed
		}
		if !slices.Equal(h.Before, tree.Frontier()) {
			_ = c.fault(&DamageError{Object: headName(number), Reason: "it was written after other heads than those before it"})
		}
		tree.Add(merkle.LeafHash([]byte(h.Summary())))
		roots = append(roots, tree.Root())
		c.Records = max(c.Records, h.Records)
		for i := range h.Lines {
			if err := c.line(ctx, h, &h.Lines[i]); err != nil {
				return nil, err
			}
		}
	}
	if err := c.manifests(ctx); err != nil {
		return nil, err
	}
	if names, err = a.store.List(ctx, checkpoints); err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := a.get(ctx, name, maxNote)
		if bytes.HasPrefix(text, []byte("quartermaster.archive/")) {
			continue // of the first format, of manifests alone
		}
		if err == nil {
			c.Checkpoints++
			err = c.note(name, text, roots)
		}
		if err := c.fault(err); err != nil {
			return nil, err
		}
	}
	for _, w := range c.Cosigned {
		if w.Heads == 0 {
			_ = c.fault(&DamageError{Object: checkpoints, Reason: "no checkpoint has a valid cosignature of " + w.Witness})
		}
	}
	return &c.Checked, nil
}

// checking is one call of CheckCheckpoints.
type checking struct {
	Checked
	archive   *Archive
	keys      []ed25519.PublicKey
	witnesses []note.Verifier
	chains    map[domain.TopicPartition]*chain
}

// chain is what heads are compared with: the manifests of a partition, up to a fault.
type chain struct {
	lines    []merkle.Line
	treeless []*Manifest // those of the first format, which come first
	err      error
}

// fault notes an error that is a fault of the archive, and returns another.
func (c *checking) fault(err error) error {
	if err != nil && errors.Is(err, kafka.ErrArchive) {
		c.Faults = append(c.Faults, err)
		return nil
	}
	return err
}

// open opens a checkpoint of an origin, and verifies the signatures of the keys.
func (c *checking) open(text []byte, origin string) (merkle.Checkpoint, error) {
	signers, err := merkle.Signers(text, origin, c.keys)
	if err != nil {
		return merkle.Checkpoint{}, err
	}
	return merkle.OpenNote(text, signers...)
}

func (c *checking) note(name string, text []byte, roots []merkle.Hash) error {
	damage := func(format string, args ...any) error {
		return &DamageError{Object: name, Reason: fmt.Sprintf(format, args...)}
	}
	origin := merkle.Origin(c.archive.log.ID)
	p, err := c.open(text, origin)
	switch {
	case err != nil:
		return damage("%v", err)
	case p.Origin != origin:
		return damage("it is a checkpoint of %q", p.Origin)
	case p.Size > int64(len(roots)) || p.Size == 0:
		return damage("it has %d heads, %d are there and can be read", p.Size, len(roots))
	case roots[p.Size-1] != p.Root:
		return damage("the root of its %d heads is %s, they give %s", p.Size, p.Root, roots[p.Size-1])
	}
	c.Heads = max(c.Heads, p.Size)
	for i, w := range c.witnesses {
		at, err := merkle.CosignedAt(text, w)
		if known := &c.Cosigned[i]; err == nil && (p.Size > known.Heads || p.Size == known.Heads && at > known.At) {
			known.Heads, known.At = p.Size, at
		}
	}
	return nil
}

// of returns the chain of a partition.
func (c *checking) of(ctx context.Context, tp domain.TopicPartition) (*chain, error) {
	if known := c.chains[tp]; known != nil {
		return known, nil
	}
	found := &chain{}
	c.chains[tp] = found
	found.err = c.archive.manifests(ctx, tp, 0, func(m *Manifest) error {
		line := merkle.Line{Partition: tp, Next: m.Last + 1, Segments: m.Number + 1, Manifest: sha256.Sum256(m.encode())}
		if m.Tree != nil {
			line.Root = m.Tree.Root
		} else {
			found.treeless = append(found.treeless, m)
		}
		found.lines = append(found.lines, line)
		if m.Checkpoint == "" {
			return nil
		}
		_, err := c.open([]byte(m.Checkpoint), merkle.PartitionOrigin(m.Log, tp))
		if errors.Is(err, merkle.ErrSignature) || errors.Is(err, merkle.ErrUnknownKey) {
			return c.fault(&DamageError{manifestName(tp, m.First), tp, m.First, err.Error()})
		}
		return err
	})
	if found.err != nil && !errors.Is(found.err, kafka.ErrArchive) {
		return nil, found.err
	}
	return found, nil
}

// manifests reads the manifests of the partitions that no head names.
func (c *checking) manifests(ctx context.Context) error {
	for _, tp := range domain.AllPartitions() {
		if _, err := c.of(ctx, tp); err != nil {
			return err
		}
	}
	return nil
}

// line compares what a head says about a partition with its manifests.
func (c *checking) line(ctx context.Context, h *merkle.Head, l *merkle.Line) error {
	chain, err := c.of(ctx, l.Partition)
	if err != nil {
		return err
	}
	var found merkle.Line
	if l.Segments <= int64(len(chain.lines)) {
		found = chain.lines[l.Segments-1]
	}
	first := found == merkle.Line{}
	switch {
	case first && chain.err != nil:
		return c.fault(chain.err)
	case first:
		return c.fault(&DamageError{
			manifestsOf(l.Partition), l.Partition, l.Next,
			fmt.Sprintf("head %d has %d segments up to offset %d, %d manifests are there", h.Number, l.Segments, l.Next-1, len(chain.lines)),
		})
	case found.Root == merkle.Hash{}:
		tree, err := c.archive.treeOf(ctx, chain.treeless[l.Segments-1])
		if err != nil {
			return c.fault(err)
		}
		found.Root = tree.Root()
	}
	if found != *l {
		return c.fault(&DamageError{
			headName(h.Number), l.Partition, found.Next,
			fmt.Sprintf("it says %q, the manifests say %q", l, &found),
		})
	}
	return nil
}
