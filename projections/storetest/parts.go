package storetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
)

// partsOf returns the digests of all parts of a store and of the rest, as text, and checks that the
// rows of each part are those of its digest.
func partsOf(t *testing.T, s projections.Store) (text string) {
	t.Helper()
	const never = 1 << 40 // an hour after every month
	if err := s.View(context.Background(), func(v projections.View) error {
		r := projections.NewPartReader(v)
		for _, tp := range domain.AllPartitions() {
			d, err := r.Digest(tp, never)
			if err != nil {
				return err
			}
			text += fmt.Sprintf("%s %x\n", tp, d.Rest)
			for _, p := range d.Parts {
				text += fmt.Sprintf("%s %d %x\n", p.PartKey, p.Rows, p.Digest)
				h := sha256.New()
				if err := r.Rows(p.PartKey, func(_ projections.Key, b []byte) error {
					h.Write(b)
					return nil
				}); err != nil {
					return err
				}
				if sum := [32]byte(h.Sum(nil)); sum != p.Digest {
					t.Errorf("the rows of %s have digest %x, want %x", p.PartKey, sum, p.Digest)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return text
}
