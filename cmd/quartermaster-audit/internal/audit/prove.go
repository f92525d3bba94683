package audit

import (
	"errors"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// Prove makes the proof of the record at an offset, by the newest checkpoint. It reads the manifests of
// the partition and the segments of at most two blocks of 256 records. It fails with [ErrNoCheckpoint] if
// no checkpoint covers the record. The proof is checked before it is returned.
func (a *Archive) Prove(tp domain.TopicPartition, offset int64) (*merkle.Proof, error) {
	heads, _, wrong, err := a.allHeads()
	if err != nil {
		return nil, err
	}
	note, c, err := a.newest(heads)
	if err != nil {
		if wrong != nil {
			return nil, fmt.Errorf("%s: %w", headName(int64(len(heads))), wrong)
		}
		return nil, err
	}
	head := heads[c.Size-1]
	i := slices.IndexFunc(head.Lines, func(l merkle.Line) bool { return l.Partition == tp })
	if i < 0 || offset < 0 || offset >= head.Lines[i].Next {
		return nil, fmt.Errorf("%w at offset %d of %s", ErrNoCheckpoint, offset, tp)
	}
	line := head.Lines[i]
	p := &merkle.Proof{
		Format: merkle.ProofFormat, Partition: tp.String(), Offset: offset,
		Line: line.String(), Head: head.Summary(), Checkpoint: string(note),
	}
	tree, err := a.stored(tp, line, offset, &p.Leaf)
	if err != nil {
		return nil, err
	}
	if p.Path, err = tree.Inclusion(offset, line.Next); err != nil {
		return nil, err
	}
	var linePath []merkle.Hash
	if p.LineIndex, p.Lines, linePath, err = head.Path(p.Line); err != nil {
		return nil, err
	}
	p.LinePath = linePath
	log, err := treeOf(heads[:c.Size])
	if err != nil {
		return nil, err
	}
	if p.HeadPath, err = log.Inclusion(head.Number, c.Size); err != nil {
		return nil, err
	}
	if _, err := p.Check(); err != nil {
		return nil, fmt.Errorf("the archive contradicts itself; verify it: %w", err)
	}
	return p, nil
}

// treeOf returns the tree of heads.
func treeOf(heads []*merkle.Head) (*merkle.Stored, error) {
	leaves := make([]merkle.Hash, len(heads))
	var all merkle.Builder
	for i, h := range heads {
		leaves[i] = merkle.LeafHash([]byte(h.Summary()))
		all.Add(leaves[i])
	}
	return merkle.NewStored(all.Size(), all.Blocks(), func(first, next int64) ([]merkle.Hash, error) {
		return leaves[first:next], nil
	})
}

// ProveGrowth makes the proof that a checkpoint continues an older one, which may have been kept
// elsewhere. Without a newer one it takes the newest of the archive. The proof is checked before it is
// returned: it fails with [merkle.ErrProof] if the archive does not continue the older checkpoint.
func (a *Archive) ProveGrowth(older, newer []byte) (*merkle.Growth, error) {
	heads, _, wrong, err := a.allHeads()
	if err != nil {
		return nil, err
	}
	if newer == nil {
		if newer, _, err = a.newest(heads); err != nil {
			return nil, errors.Join(err, wrong)
		}
	}
	from, err := merkle.OpenNote(older)
	if err != nil {
		return nil, fmt.Errorf("%w: the older one: %v", merkle.ErrProof, err)
	}
	to, err := merkle.OpenNote(newer)
	if err != nil {
		return nil, fmt.Errorf("%w: the newer one: %v", merkle.ErrProof, err)
	}
	if from.Size > to.Size || to.Size > int64(len(heads)) {
		return nil, fmt.Errorf("%w: the checkpoints stand for %d and %d heads, the archive has %d", merkle.ErrProof, from.Size, to.Size, len(heads))
	}
	tree, err := treeOf(heads)
	if err != nil {
		return nil, err
	}
	g := &merkle.Growth{Format: merkle.GrowthFormat, Older: string(older), Newer: string(newer)}
	if g.Path, err = tree.Consistency(from.Size, to.Size); err != nil {
		return nil, err
	}
	_, _, err = g.Check()
	return g, err
}

// stored returns the tree of a partition from its manifests, as far as a line says. The leaf at the
// offset is put into leaf when its block is read.
func (a *Archive) stored(tp domain.TopicPartition, line merkle.Line, offset int64, leaf *[]byte) (*merkle.Stored, error) {
	names, err := a.list(manifestsOf(tp))
	if err != nil {
		return nil, err
	}
	var chain []*manifest
	var blocks []merkle.Hash
	for _, name := range names[:min(int64(len(names)), line.Segments)] {
		m, err := a.manifest(tp, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		chain = append(chain, m)
		if m.Tree != nil {
			blocks = append(blocks, m.Tree.Blocks...)
		}
	}
	// hashes returns those of leaves, from the segments that have them.
	hashes := func(first, next int64) (out []merkle.Hash, err error) {
		var data []byte
		for _, m := range chain {
			if m.Last < first || m.First >= next {
				continue
			}
			raw, err := a.segment(m)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.Object, err)
			}
			if _, err := m.each(raw, func(r *domain.Record) bool {
				data = merkle.AppendLeaf(data[:0], r)
				for at := r.Offset; at < r.Next(); at++ {
					if at >= first && at < next {
						out = append(out, merkle.LeafHash(data))
					}
					if at == offset {
						*leaf = slices.Clone(data)
					}
				}
				return r.Next() < next
			}); err != nil {
				return nil, fmt.Errorf("%s: %w", m.Object, err)
			}
		}
		return out, nil
	}
	if n := len(chain); n > 0 && chain[n-1].Tree == nil { // an older archive: everything is read
		var tree merkle.Builder
		all, err := hashes(0, line.Next)
		if err != nil {
			return nil, err
		}
		for _, h := range all {
			tree.Add(h)
		}
		blocks = tree.Blocks()
	}
	// The leaf itself is needed although its hash is not in the path.
	if _, err := hashes(offset, offset+1); err != nil {
		return nil, err
	}
	return merkle.NewStored(line.Next, blocks, hashes)
}
