package archive

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
)

// broken is a target that fails after some appends.
type broken struct {
	*kafka.Log
	left int
}

func (b *broken) AppendBatch(ctx context.Context, tp domain.TopicPartition, batch []byte) error {
	if b.left--; b.left < 0 {
		return errGone
	}
	return b.Log.AppendBatch(ctx, tp, batch)
}

// TestRestore restores a log whose beginning is only in the archive, interrupted again and again. The
// new log has the same records at the same offsets.
func TestRestore(t *testing.T) {
	_, l, dir := archived(t)
	want, wantRaw := hashes(t, l, fleet, 0), raw(t, l, fleet)
	if _, err := l.DeleteRecords(t.Context(), fleet, 255); err != nil {
		t.Fatal(err)
	}
	a, log, err := Open(t.Context(), dir)
	if err != nil || log != identify(t, l).ID {
		t.Fatal(log, err)
	}
	fresh, _ := newLog(t)
	for try := 0; ; try++ {
		_, next, err := fresh.Bounds(t.Context(), fleet)
		if err != nil {
			t.Fatal(err)
		}
		var records int64
		err = a.Restore(t.Context(), &broken{fresh, 7}, fleet, next, func(n int64) { records += n })
		if err == nil {
			if records != 500 || try < 5 {
				t.Fatalf("try %d: %d records", try, records)
			}
			break
		}
		if !errors.Is(err, errGone) {
			t.Fatal(err)
		}
	}
	if got := hashes(t, fresh, fleet, 0); !slices.Equal(got, want) {
		t.Fatal("the new log has other records")
	}
	if got := raw(t, fresh, fleet); !bytes.Equal(got, wantRaw) { // both have one leader, so one epoch
		t.Fatal("the new log has other bytes")
	}
	// Again: nothing is appended, and everything is compared.
	if err := a.Restore(t.Context(), &broken{fresh, 0}, fleet, 500, nil); err != nil {
		t.Fatal(err)
	}
	// Events go on after the restored ones.
	fill(t, fresh, fleet, 500, 520)
	var full *NotEmptyError
	if err := a.Restore(t.Context(), fresh, fleet, 520, nil); !errors.As(err, &full) || full.Offset != 500 {
		t.Fatal(err)
	}
}

func TestRestoreIntoAnotherLog(t *testing.T) {
	a, _, _ := archived(t)
	var full *NotEmptyError
	other, _ := newLog(t)
	fill(t, other, fleet, 7, 27)
	if err := a.Restore(t.Context(), other, fleet, 20, nil); !errors.As(err, &full) {
		t.Fatal(err)
	}
	other, _ = newLog(t)
	fill(t, other, fleet, 0, 3)
	if err := a.Restore(t.Context(), other, fleet, 3, nil); !errors.As(err, &full) || full.Offset != 3 {
		t.Fatal(err)
	}
	// Another program appends meanwhile.
	other, _ = newLog(t)
	fill(t, other, fleet, 0, 1)
	if err := a.Restore(t.Context(), other, fleet, 0, nil); !errors.Is(err, kafka.ErrMoved) {
		t.Fatal(err)
	}
	if _, _, err := Open(t.Context(), Directory(t.TempDir())); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}
