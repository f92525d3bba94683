package merkle

import (
	"fmt"
	"math/bits"
	"slices"

	"quartermaster/domain"
)

// Level is the level whose hashes are stored: each covers Width leaves. Level 0 are the leaves.
const (
	Level = 8
	Width = 1 << Level
)

// Builder adds leaves to a tree. It holds one hash for each set bit of the size. The zero value is an
// empty tree.
type Builder struct {
	size     int64
	frontier []Hash // of the complete subtrees from the left, the largest first
	blocks   []Hash // of level 8, that were completed since [Builder.Blocks]
	leaf     []byte
}

// Resume returns the builder of a tree with a size and a frontier ([Builder.Frontier]).
func Resume(size int64, frontier []Hash) (*Builder, error) {
	if size < 0 || len(frontier) != bits.OnesCount64(uint64(size)) {
		return nil, fmt.Errorf("a tree of %d leaves has not %d hashes", size, len(frontier))
	}
	return &Builder{size: size, frontier: slices.Clone(frontier)}, nil
}

// Add adds a leaf.
func (b *Builder) Add(h Hash) {
	level := 0
	for s := b.size; s&1 == 1; s >>= 1 {
		last := len(b.frontier) - 1
		h = NodeHash(b.frontier[last], h)
		b.frontier = b.frontier[:last]
		if level++; level == Level {
			b.blocks = append(b.blocks, h)
		}
	}
	b.frontier = append(b.frontier, h)
	b.size++
}

// AddRecord adds the leaves of a record, or of a span: one for each of its offsets. Its first offset
// MUST be the size of the tree.
func (b *Builder) AddRecord(r *domain.Record) {
	b.leaf = AppendLeaf(append(b.leaf[:0], leafPrefix), r)
	h := sum(b.leaf)
	for range r.Next() - r.Offset {
		b.Add(h)
	}
}

// Size returns the number of leaves.
func (b *Builder) Size() int64 { return b.size }

// Frontier returns the hashes of the complete subtrees from the left, the largest first: all that is
// needed to go on.
func (b *Builder) Frontier() []Hash { return slices.Clone(b.frontier) }

// Blocks returns the hashes of level 8 that were completed since the last call.
func (b *Builder) Blocks() []Hash {
	done := b.blocks
	b.blocks = nil
	return done
}

// Root returns the root.
func (b *Builder) Root() Hash { return RootOf(b.frontier) }

// RootOf returns the root of the tree with a frontier.
func RootOf(frontier []Hash) Hash {
	if len(frontier) == 0 {
		return EmptyRoot()
	}
	last := len(frontier) - 1
	h := frontier[last]
	for _, left := range slices.Backward(frontier[:last]) {
		h = NodeHash(left, h)
	}
	return h
}
