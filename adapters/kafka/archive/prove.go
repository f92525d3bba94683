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

// ErrNoCheckpoint means that no checkpoint covers a record yet. The caller may ask again after the next
// [Archive.Checkpoint].
var ErrNoCheckpoint = errors.New("no checkpoint covers the record")

// Prove makes the proof of the record at an offset, by the newest checkpoint. It reads the manifests of
// the partition, and the segments of at most two blocks of 256 records. The proof is checked before it is
// returned.
func (a *Archive) Prove(ctx context.Context, tp domain.TopicPartition, offset int64) (*merkle.Proof, error) {
	id, err := a.ID(ctx)
	if err != nil {
		return nil, err
	}
	none := fmt.Errorf("%w at offset %d of %s", ErrNoCheckpoint, offset, tp)
	if id == "" {
		return nil, none
	}
	note, c, err := a.newest(ctx)
	if err != nil || c.Size == 0 {
		return nil, errors.Join(err, none)
	}
	head, err := a.head(ctx, c.Size-1)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(head.Lines, func(l merkle.Line) bool { return l.Partition == tp })
	if i < 0 || offset < 0 || offset >= head.Lines[i].Next {
		return nil, none
	}
	line := &head.Lines[i]
	p := &merkle.Proof{
		Format: merkle.ProofFormat, Partition: tp.String(), Offset: offset,
		Line: line.String(), Head: head.Summary(), Checkpoint: string(note),
	}
	tree, err := a.stored(ctx, line, offset, &p.Leaf)
	if err != nil {
		return nil, err
	}
	if p.Path, err = tree.Inclusion(offset, line.Next); err != nil {
		return nil, err
	}
	var path []merkle.Hash
	if p.LineIndex, p.Lines, path, err = head.Path(p.Line); err != nil {
		return nil, err
	}
	p.LinePath = path
	heads, err := a.headTree(ctx, c.Size)
	if err != nil {
		return nil, err
	}
	if p.HeadPath, err = heads.Inclusion(head.Number, c.Size); err != nil {
		return nil, err
	}
	if _, err := p.Check(); err != nil {
		return nil, &DamageError{headName(head.Number), tp, offset, err.Error()}
	}
	return p, nil
}

// newest returns the newest checkpoint, and of several of a size the one with the most cosignatures. It
// has size 0 if there is none.
func (a *Archive) newest(ctx context.Context) (text []byte, c merkle.Checkpoint, err error) {
	names, err := a.store.List(ctx, checkpoints)
	if err != nil {
		return nil, c, err
	}
	for _, name := range slices.Backward(names) { // by size
		b, err := a.get(ctx, name, maxNote)
		if err != nil {
			return nil, c, err
		}
		found, err := merkle.OpenNote(b)
		switch {
		case err != nil || found.Origin != merkle.Origin(a.log.ID):
			continue // of the first format
		case c.Size > 0 && found.Size < c.Size:
			return text, c, nil
		case len(b) > len(text):
			text, c = b, found
		}
	}
	return text, c, nil
}

// stored returns the tree of a partition as far as a line says. The leaf at the offset is put into leaf.
func (a *Archive) stored(ctx context.Context, line *merkle.Line, offset int64, leaf *[]byte) (*merkle.Stored, error) {
	tp := line.Partition
	var chain []*Manifest
	var blocks []merkle.Hash
	treeless := false // up to the last manifest that counts
	err := a.manifests(ctx, tp, 0, func(m *Manifest) error {
		if m.Number >= line.Segments {
			return errFound
		}
		chain = append(chain, m)
		if treeless = m.Tree == nil; !treeless {
			blocks = append(blocks, m.Tree.Blocks...)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return nil, err
	}
	hashes := func(first, next int64) (out []merkle.Hash, err error) {
		var data []byte
		for _, m := range chain {
			if m.Last < first || m.First >= next {
				continue
			}
			err := a.withSegment(ctx, m, func(raw []byte) error {
				b := kafka.Batches{First: m.First, Next: m.Last + 1, Bytes: raw, Aborted: m.Aborted}
				return kafka.EachRecord(tp, b, func(recs []domain.Record) error {
					for i := range recs {
						r := &recs[i]
						if r.Next() <= first || r.Offset >= next {
							continue
						}
						data = merkle.AppendLeaf(data[:0], r)
						for at := max(first, r.Offset); at < min(next, r.Next()); at++ {
							out = append(out, merkle.LeafHash(data))
							if at == offset {
								*leaf = slices.Clone(data)
							}
						}
					}
					return nil
				})
			})
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	if treeless { // an archive of the first format: everything is read
		all, err := hashes(0, line.Next)
		if err != nil {
			return nil, err
		}
		var tree merkle.Builder
		for _, h := range all {
			tree.Add(h)
		}
		blocks = tree.Blocks()
	}
	if _, err := hashes(offset, offset+1); err != nil {
		return nil, err
	}
	return merkle.NewStored(line.Next, blocks, hashes)
}
