package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"quartermaster/domain"
)

// maxNote is the largest accepted checkpoint in bytes.
const maxNote = 1 << 20

const checkpoints = "checkpoints/"

// SignerName returns the name under which checkpoints of a log are signed.
func SignerName(logID string) string { return "quartermaster.archive/" + logID }

// Checkpoint stores a signed statement of what is archived, a C2SP signed note
// (https://c2sp.org/signed-note) whose text has these lines:
//
//	quartermaster.archive/LOG    the name of the key too; LOG is the log's id
//	archive ID
//	records N                    that are archived
//	TOPIC/PARTITION next=N segments=N manifest=SHA256
//
// with a line for each partition that has segments. The last SHA-256 is that of its newest manifest,
// which stands for the whole chain. Checkpoint does nothing if there is nothing new.
func (a *Archive) Checkpoint(
	ctx context.Context,
	tps []domain.TopicPartition,
	signer note.Signer,
) (records int64, err error) {
	id, err := a.ID(ctx)
	if id == "" || err != nil {
		return 0, err
	}
	heads, err := a.heads(ctx, tps)
	if err != nil {
		return 0, err
	}
	var lines strings.Builder
	for _, tp := range slices.SortedFunc(maps.Keys(heads), domain.TopicPartition.Compare) {
		h := heads[tp]
		records += h.next
		fmt.Fprintf(&lines, "%s next=%d segments=%d manifest=%s\n", tp, h.next, h.segments, h.manifest)
	}
	text := fmt.Sprintf("%s\narchive %s\nrecords %d\n%s", SignerName(a.log.ID), id, records, lines.String())
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		return 0, fmt.Errorf("sign checkpoint of the archive: %w", err)
	}
	name := fmt.Sprintf("%s%020d-%x.note", checkpoints, records, sha256.Sum256(signed))
	if err := a.store.Put(ctx, name, signed); err != nil && !errors.Is(err, ErrExists) {
		return 0, err
	}
	return records, nil
}

// Checked is the result of [Archive.CheckCheckpoints].
type Checked struct {
	Checkpoints int
	Records     int64 // that the newest one covers
	// Faults are what is wrong, in the order of checkpoints.
	Faults []error
}

// CheckCheckpoints compares every checkpoint with the chains of manifests. With a verifier, each must
// have its signature.
func (a *Archive) CheckCheckpoints(ctx context.Context, verifier note.Verifier) (*Checked, error) {
	names, err := a.store.List(ctx, checkpoints)
	if err != nil {
		return nil, err
	}
	c := &Checked{}
	for _, name := range names {
		text, err := a.get(ctx, name, maxNote)
		if err != nil {
			return nil, err
		}
		c.Checkpoints++
		records, err := a.checkNote(ctx, text, verifier)
		var damage *DamageError
		switch {
		case err == nil:
			c.Records = max(c.Records, records)
		case errors.As(err, &damage):
			c.Faults = append(c.Faults, err)
		case errors.Is(err, errNote):
			c.Faults = append(c.Faults, &DamageError{Object: name, Reason: err.Error()})
		default:
			return nil, err
		}
	}
	return c, nil
}

var errNote = errors.New("checkpoint")

func (a *Archive) checkNote(ctx context.Context, text []byte, verifier note.Verifier) (records int64, err error) {
	invalid := func(format string, args ...any) (int64, error) {
		return 0, fmt.Errorf("%w %s", errNote, fmt.Sprintf(format, args...))
	}
	known := note.VerifierList()
	if verifier != nil {
		known = note.VerifierList(verifier)
	}
	n, err := note.Open(text, known)
	var unsigned *note.UnverifiedNoteError
	switch {
	case errors.As(err, &unsigned) && verifier == nil:
		n = unsigned.Note
	case err != nil:
		return invalid("has no valid signature: %v", err)
	}
	id, err := a.ID(ctx)
	if err != nil {
		return 0, err
	}
	lines := strings.Split(strings.TrimSuffix(n.Text, "\n"), "\n")
	if len(lines) < 3 || lines[0] != SignerName(a.log.ID) || lines[1] != "archive "+id {
		return invalid("is not of this archive")
	}
	if _, err := fmt.Sscanf(lines[2], "records %d", &records); err != nil {
		return invalid("has no number of records")
	}
	for _, line := range lines[3:] {
		var h head
		var sum string
		name, rest, _ := strings.Cut(line, " ")
		_, err := fmt.Sscanf(rest, "next=%d segments=%d manifest=%s", &h.next, &h.segments, &sum)
		if err == nil {
			err = h.manifest.UnmarshalText([]byte(sum))
		}
		tp, ok := partitionNamed(name)
		if err != nil || !ok || h.segments < 1 {
			return invalid("has the line %q", line)
		}
		if err := a.holds(ctx, tp, h); err != nil {
			return 0, err
		}
	}
	return records, nil
}

func partitionNamed(name string) (domain.TopicPartition, bool) {
	at, err := domain.ParsePosition(name + "=1")
	for tp := range at {
		return tp, err == nil
	}
	return domain.TopicPartition{}, false
}

// holds fails unless the chain of a partition goes through a head.
func (a *Archive) holds(ctx context.Context, tp domain.TopicPartition, h head) error {
	names, err := a.chain(ctx, tp, true)
	if err != nil {
		return err
	}
	if int64(len(names)) < h.segments {
		return &DamageError{
			manifestsOf(tp), tp, h.next,
			fmt.Sprintf("a checkpoint has %d segments up to offset %d, %d manifests are there", h.segments, h.next-1, len(names)),
		}
	}
	name := names[h.segments-1]
	m, err := a.manifest(ctx, tp, name, nil)
	if err != nil {
		return err
	}
	if sum := Sum(sha256.Sum256(m.encode())); sum != h.manifest || m.Last+1 != h.next {
		return &DamageError{name, tp, m.First, fmt.Sprintf("its SHA-256 is %s, a checkpoint has %s", sum, h.manifest)}
	}
	return nil
}
