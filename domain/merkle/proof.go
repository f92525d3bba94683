package merkle

import (
	"errors"
	"fmt"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// ErrProof means that a proof does not prove what it should. Nothing may be concluded from it.
var ErrProof = errors.New("proof does not hold")

// Stored is what is stored of a tree. Leaves below the stored level are fetched when a proof needs
// them.
type Stored struct {
	size   int64
	levels [][]Hash // of level 8 and above, complete subtrees only
	leaves func(first, next int64) ([]Hash, error)
}

// NewStored returns a tree of a size from its hashes of level 8, one for each complete block of 256
// leaves. It calls leaves for the hashes of the leaves with first <= index < next, which are of one
// block.
func NewStored(size int64, blocks []Hash, leaves func(first, next int64) ([]Hash, error)) (*Stored, error) {
	if int64(len(blocks)) != size/Width {
		return nil, fmt.Errorf("a tree of %d leaves has %d hashes of level %d, not %d", size, size/Width, Level, len(blocks))
	}
	s := &Stored{size, [][]Hash{blocks}, leaves}
	for below := blocks; len(below) > 1; {
		above := make([]Hash, 0, len(below)/2)
		for i := 0; i+1 < len(below); i += 2 {
			above = append(above, NodeHash(below[i], below[i+1]))
		}
		s.levels = append(s.levels, above)
		below = above
	}
	return s, nil
}

// Size returns the number of leaves.
func (s *Stored) Size() int64 { return s.size }

// node returns the hash of a complete subtree. The blocks that were fetched are kept in seen.
func (s *Stored) node(id compact.NodeID, seen map[int64][]Hash) (Hash, error) {
	if id.Level >= Level {
		return s.levels[id.Level-Level][id.Index], nil
	}
	first, next := id.Coverage()
	block := int64(first) / Width
	hashes, ok := seen[block]
	if !ok {
		from, to := block*Width, min((block+1)*Width, s.size)
		var err error
		if hashes, err = s.leaves(from, to); err != nil {
			return Hash{}, err
		}
		if int64(len(hashes)) != to-from {
			return Hash{}, fmt.Errorf("leaves %d to %d: got %d hashes", from, to-1, len(hashes))
		}
		seen[block] = hashes
	}
	at := int64(first) - block*Width
	var b Builder
	for _, h := range hashes[at : at+int64(next-first)] {
		b.Add(h)
	}
	return b.Root(), nil
}

// rehash returns the hashes of a proof.
func (s *Stored) rehash(nodes proof.Nodes) ([]Hash, error) {
	seen := map[int64][]Hash{}
	hashes := make([][]byte, 0, len(nodes.IDs))
	for _, id := range nodes.IDs {
		h, err := s.node(id, seen)
		if err != nil {
			return nil, err
		}
		hashes = append(hashes, h[:])
	}
	hashes, err := nodes.Rehash(hashes, rfc6962.DefaultHasher.HashChildren)
	if err != nil {
		return nil, err
	}
	out := make([]Hash, len(hashes))
	for i := range hashes {
		copy(out[i][:], hashes[i])
	}
	return out, nil
}

// Inclusion returns the path from a leaf to the root of the tree of the first size leaves: about
// log₂ size hashes.
func (s *Stored) Inclusion(index, size int64) ([]Hash, error) {
	if size > s.size || index < 0 || index >= size {
		return nil, fmt.Errorf("prove leaf %d of %d: the tree has %d leaves", index, size, s.size)
	}
	nodes, err := proof.Inclusion(uint64(index), uint64(size))
	if err != nil {
		return nil, err
	}
	return s.rehash(nodes)
}

// Consistency returns the proof that the tree of the first from leaves is the beginning of that of the
// first to leaves.
func (s *Stored) Consistency(from, to int64) ([]Hash, error) {
	if from < 0 || from > to || to > s.size {
		return nil, fmt.Errorf("prove consistency of %d and %d leaves: the tree has %d leaves", from, to, s.size)
	}
	nodes, err := proof.Consistency(uint64(from), uint64(to))
	if err != nil {
		return nil, err
	}
	return s.rehash(nodes)
}

// Root returns the root of the tree of the first size leaves.
func (s *Stored) Root(size int64) (Hash, error) {
	if size < 0 || size > s.size {
		return Hash{}, fmt.Errorf("root of %d leaves: the tree has %d leaves", size, s.size)
	}
	seen := map[int64][]Hash{}
	var frontier []Hash
	for _, id := range compact.RangeNodes(0, uint64(size), nil) {
		h, err := s.node(id, seen)
		if err != nil {
			return Hash{}, err
		}
		frontier = append(frontier, h)
	}
	return RootOf(frontier), nil
}

// CheckInclusion fails with [ErrProof] unless a path leads from the hash of a leaf at an index to the
// root of a tree of a size.
func CheckInclusion(leaf Hash, index, size int64, path []Hash, root Hash) error {
	if index < 0 || size < 0 {
		return fmt.Errorf("%w: leaf %d of %d", ErrProof, index, size)
	}
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(index), uint64(size), leaf[:], slicesOf(path), root[:]); err != nil {
		return fmt.Errorf("%w: leaf %d of %d: %v", ErrProof, index, size, err)
	}
	return nil
}

// CheckConsistency fails with [ErrProof] unless a path shows that the tree of a size and root is the
// beginning of another.
func CheckConsistency(from, to int64, path []Hash, fromRoot, toRoot Hash) error {
	if from < 0 || to < 0 {
		return fmt.Errorf("%w: %d and %d leaves", ErrProof, from, to)
	}
	if from == 0 { // RFC 6962 has no proof of it, and the library does not look at the root
		if fromRoot != EmptyRoot() || len(path) > 0 {
			return fmt.Errorf("%w: an empty tree has the root %s", ErrProof, EmptyRoot())
		}
		return nil
	}
	err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(from), uint64(to), slicesOf(path), fromRoot[:], toRoot[:])
	if err != nil {
		return fmt.Errorf("%w: %d and %d leaves: %v", ErrProof, from, to, err)
	}
	return nil
}

func slicesOf(hashes []Hash) [][]byte {
	out := make([][]byte, len(hashes))
	for i := range hashes {
		out[i] = hashes[i][:]
	}
	return out
}
