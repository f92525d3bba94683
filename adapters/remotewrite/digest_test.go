package remotewrite_test

import (
	"crypto/sha256"
	"testing"

	"quartermaster/projections"
)

// rowsDigest is the digest of the rows of measurements without their sample counts, which are all
// that repeats may change.
func rowsDigest(t testing.TB, m *projections.Memory) (sum [32]byte) {
	h := sha256.New()
	err := m.View(t.Context(), func(v projections.View) error {
		for _, table := range []projections.Table{projections.TableUsage, projections.TableServers} {
			err := v.Scan(projections.Query{Table: table}, func(k projections.Key, row projections.Row) error {
				b, err := projections.EncodeRow(row)
				if err != nil {
					return err
				}
				copied, err := projections.DecodeRow(k.Table, b)
				if err != nil {
					return err
				}
				if u, ok := copied.(*projections.UsageHour); ok {
					for i := range u.Observers {
						u.Observers[i].Samples = 0
					}
				}
				b, err = projections.EncodeRow(copied)
				h.Write([]byte(k.String()))
				h.Write(b)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Sum(sum[:0])
	return sum
}
