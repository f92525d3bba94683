package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// treeSize returns the size of the tree of a manifest; 0 if it has none.
func (m *Manifest) treeSize() int64 {
	if m == nil || m.Tree == nil {
		return 0
	}
	return m.Last + 1
}

// grow adds the records of a checked segment to the tree of those before it.
func grow(tree *merkle.Builder, m *Manifest, raw []byte) error {
	b := kafka.Batches{First: m.First, Next: m.Last + 1, Bytes: raw, Aborted: m.Aborted}
	return kafka.EachRecord(m.partition(), b, func(recs []domain.Record) error {
		for i := range recs {
			if recs[i].Offset != tree.Size() {
				return fmt.Errorf("record of offset %d is the leaf %d", recs[i].Offset, tree.Size())
			}
			tree.AddRecord(&recs[i])
		}
		return nil
	})
}

// treeOf returns the tree at the end of a manifest's segment; an empty one for nil. For a manifest of
// the first format it reads every segment up to there.
func (a *Archive) treeOf(ctx context.Context, m *Manifest) (*merkle.Builder, error) {
	switch {
	case m == nil:
		return &merkle.Builder{}, nil
	case m.Tree != nil:
		return merkle.Resume(m.Last+1, m.Tree.Frontier)
	}
	tree := &merkle.Builder{}
	err := a.manifests(ctx, m.partition(), 0, func(n *Manifest) error {
		if n.First > m.First {
			return errFound
		}
		return a.withSegment(ctx, n, func(raw []byte) error { return grow(tree, n, raw) })
	})
	if err != nil && !errors.Is(err, errFound) {
		return nil, err
	}
	return tree, nil
}

// checkTree compares the tree of a manifest with the records of its segment. It changes the tree of
// those before it.
func checkTree(tree *merkle.Builder, m *Manifest, raw []byte) error {
	if err := grow(tree, m, raw); err != nil {
		return &DamageError{m.Object, m.partition(), m.First, err.Error()}
	}
	if !slices.Equal(tree.Frontier(), m.Tree.Frontier) || !slices.Equal(tree.Blocks(), m.Tree.Blocks) {
		return &DamageError{
			manifestName(m.partition(), m.First), m.partition(), m.First,
			fmt.Sprintf("its tree has the root %s, its records and the manifest before it give %s", m.Tree.Root, tree.Root()),
		}
	}
	return nil
}
