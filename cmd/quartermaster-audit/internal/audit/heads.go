package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

func headName(number int64) string { return fmt.Sprintf("heads/%020d.txt", number) }

// head reads a head and checks what it is of.
func (a *Archive) head(number int64) (*merkle.Head, error) {
	text, err := a.read(headName(number), maxHead)
	if err != nil {
		return nil, err
	}
	h, err := merkle.ParseHead(text)
	if err != nil {
		return nil, err
	}
	if h.Log != a.Log || h.Archive != a.ID || h.Number != number {
		return nil, fmt.Errorf("it is head %d of archive %s of log %q", h.Number, h.Archive, h.Log)
	}
	return h, nil
}

// allHeads returns the heads from the first on, up to one that is missing or wrong, whose error it
// returns. count is how many there must be at least.
func (a *Archive) allHeads() (heads []*merkle.Head, count int64, wrong, err error) {
	names, err := a.list("heads")
	if err != nil {
		return nil, 0, nil, err
	}
	for _, name := range names {
		var number int64
		if _, err := fmt.Sscanf(path.Base(name), "%020d.txt", &number); err != nil || headName(number) != name {
			return heads, count, fmt.Errorf("%s is not the name of a head", name), nil
		}
		count = max(count, number+1)
	}
	tree := &merkle.Builder{}
	for number := range count {
		h, err := a.head(number)
		if err != nil {
			return heads, count, err, nil
		}
		if !slices.Equal(h.Before, tree.Frontier()) {
			return heads, count, errors.New("it was written after other heads than those before it"), nil
		}
		tree.Add(merkle.LeafHash([]byte(h.Summary())))
		heads = append(heads, h)
	}
	return heads, count, nil, nil
}

// notes returns the checkpoints of the archive and the copies.
func (v *verifier) notes() (out []Copy, err error) {
	names, err := v.list("checkpoints")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := v.read(name, maxNote)
		if err != nil {
			v.find(Finding{Kind: kindOf(err), Object: name, Reason: err.Error()})
			continue
		}
		out = append(out, Copy{name, text})
	}
	return append(out, v.trust.Copies...), nil
}

// heads verifies heads and checkpoints, and what they cover.
func (v *verifier) heads() error {
	heads, count, wrong, err := v.allHeads()
	if err != nil {
		return err
	}
	if wrong != nil {
		v.find(Finding{Kind: kindOf(wrong), Object: headName(int64(len(heads))), Reason: wrong.Error()})
	}
	v.out.Heads = int64(len(heads))
	for _, h := range heads {
		v.lines(h)
	}
	tree := &merkle.Builder{}
	roots := []merkle.Hash{tree.Root()}
	for _, h := range heads {
		tree.Add(merkle.LeafHash([]byte(h.Summary())))
		roots = append(roots, tree.Root())
	}
	notes, err := v.notes()
	if err != nil {
		return err
	}
	accepted := int64(0)
	for i, n := range notes {
		size, ok := v.checkpoint(n, roots, count, i >= len(notes)-len(v.trust.Copies))
		if ok {
			accepted = max(accepted, size)
		}
	}
	for _, w := range v.trust.Witnesses {
		if accepted == 0 {
			v.find(Finding{Kind: Missing, Object: "checkpoints", Reason: "no checkpoint has a valid cosignature of " + w.Name()})
		}
	}
	v.covered(heads, accepted)
	return nil
}

// checkpoint verifies a checkpoint. It returns the number of its heads, and whether it has all
// signatures that are asked for and the right root. A checkpoint without a cosignature is no finding,
// because it is stored before a witness is asked; a copy without one is.
func (v *verifier) checkpoint(n Copy, roots []merkle.Hash, count int64, isCopy bool) (int64, bool) {
	v.out.Checkpoints++
	origin := merkle.Origin(v.Log)
	bad := func(kind, format string, args ...any) (int64, bool) {
		v.find(Finding{Kind: kind, Object: n.Name, Reason: fmt.Sprintf(format, args...)})
		return 0, false
	}
	signers, unknown := merkle.Signers(n.Text, origin, v.trust.Keys)
	all := append(signers, v.trust.Witnesses...)
	must := signers
	if isCopy {
		must = all
	}
	c, err := merkle.OpenNote(n.Text, must...)
	switch {
	case err != nil:
		return bad(Tampered, "%v", err)
	case c.Origin != origin:
		return bad(Tampered, "it is a checkpoint of %q, the archive is of %q", c.Origin, origin)
	case unknown != nil && !errors.Is(unknown, merkle.ErrUnknownKey):
		return bad(Tampered, "%v", unknown)
	case c.Size >= int64(len(roots)) && c.Size <= count:
		return 0, false // a head before it cannot be read: found already
	case c.Size >= int64(len(roots)):
		return bad(Missing, "it stands for %d heads, and there are %d", c.Size, count)
	case c.Root != roots[c.Size]:
		return bad(Tampered, "the root of its %d heads is %s, those of the archive have %s", c.Size, c.Root, roots[c.Size])
	case unknown != nil:
		return bad(UnknownKey, "%v", unknown)
	}
	_, err = merkle.OpenNote(n.Text, all...)
	return c.Size, err == nil
}

// lines compares what a head says of each partition with what was read.
func (v *verifier) lines(h *merkle.Head) {
	for i := range h.Lines {
		l := &h.Lines[i]
		states := v.states[l.Partition]
		if l.Segments <= int64(len(states)) {
			s := states[l.Segments-1]
			if s.next == l.Next && s.root == l.Root {
				if s.manifest != l.Manifest {
					first := int64(0)
					if l.Segments > 1 {
						first = states[l.Segments-2].next
					}
					v.find(Finding{
						Tampered, manifestName(l.Partition, first), l.Partition.String(), first, l.Next - 1,
						fmt.Sprintf("head %d has another manifest of this segment, or of one before it, though the records are the same", h.Number),
					})
				}
				continue
			}
			// What an earlier head has was compared with it.
			v.about(l.Partition, Tampered, headName(h.Number), v.confirmed(h, l.Partition), l.Next-1,
				"the head has %d records with the root %s, the archive gives %d and %s", l.Next, l.Root, s.next, s.root)
			continue
		}
		have := int64(0)
		if n := len(states); n > 0 {
			have = states[n-1].next
		}
		v.about(l.Partition, Missing, headName(h.Number), have, l.Next-1,
			"the head has %d records, and the archive ends at offset %d", l.Next, have)
	}
}

// confirmed returns the offset up to which the head before another has the partition.
func (v *verifier) confirmed(h *merkle.Head, tp domain.TopicPartition) int64 {
	if h.Number == 0 {
		return 0
	}
	before, err := v.head(h.Number - 1)
	if err != nil {
		return 0
	}
	for _, l := range before.Lines {
		if l.Partition == tp {
			return l.Next
		}
	}
	return 0
}

// covered notes the records that no accepted checkpoint stands for.
func (v *verifier) covered(heads []*merkle.Head, accepted int64) {
	upTo := map[domain.TopicPartition]int64{}
	if accepted > 0 {
		for _, l := range heads[accepted-1].Lines {
			upTo[l.Partition] = l.Next
		}
	}
	for _, tp := range domain.AllPartitions() {
		if len(v.trust.Witnesses) == 0 {
			upTo[tp] = max(upTo[tp], v.signed[tp])
		}
		states := v.states[tp]
		end := int64(0)
		if n := len(states); n > 0 {
			end = states[n-1].next
		}
		v.out.Covered += min(end, upTo[tp])
		if end > upTo[tp] {
			why := "no checkpoint with the signatures asked for has them"
			if unknown := v.unknown[tp]; unknown != nil {
				why += "; their manifests are " + unknown.Error()
			}
			v.about(tp, Uncovered, "", upTo[tp], end-1, "%s", why)
		}
	}
}

// ErrNoCheckpoint means that no checkpoint covers a record. It may be asked for again once one does.
var ErrNoCheckpoint = errors.New("no checkpoint covers the record")

// newest returns the checkpoint of the most heads that the heads of the archive give.
func (a *Archive) newest(heads []*merkle.Head) (text []byte, c merkle.Checkpoint, err error) {
	names, err := a.list("checkpoints")
	if err != nil {
		return nil, c, err
	}
	tree := &merkle.Builder{}
	roots := []merkle.Hash{tree.Root()}
	for _, h := range heads {
		tree.Add(merkle.LeafHash([]byte(h.Summary())))
		roots = append(roots, tree.Root())
	}
	for _, name := range names {
		b, err := a.read(name, maxNote)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, c, err
		}
		found, err := merkle.OpenNote(b)
		ours := err == nil && found.Origin == merkle.Origin(a.Log) && found.Size < int64(len(roots)) && found.Root == roots[found.Size]
		// Of two of the same size the longer one has more cosignatures.
		if ours && (found.Size > c.Size || found.Size == c.Size && len(b) > len(text)) {
			text, c = b, found
		}
	}
	if c.Size == 0 {
		return nil, c, ErrNoCheckpoint
	}
	return text, c, nil
}
