package projections_test

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// Every row is in one month or in the rest. Digests are equal whether the rows come from a store that
// knows its partitions or from a plain view, and equal to those of the rows of each part.
func TestPartsOfAnyView(t *testing.T) {
	long.Check(t, 20, 5_000, func(t *rapid.T) {
		draw := rapid.SampledFrom([]func(*rapid.T) *storetest.Log{storetest.Draw, storetest.DrawUsage, storetest.DrawDemand}).Draw(t, "log")
		l := draw(t)
		l.Append(storetest.Examples()...)
		m := storetest.Fold(t, l)
		storetest.Look(t, m, func(v projections.View) error {
			want := partsOf(t, projections.Stored(v))
			fast, slow := projections.NewPartReader(v), projections.NewPartReader(plain{projections.Stored(v)})
			if !fast.Parallel() || slow.Parallel() {
				t.Error("only a view of the memory store may be read in parallel")
			}
			for _, tp := range domain.AllPartitions() {
				a, err := fast.Digest(tp)
				if err != nil {
					return err
				}
				b, err := slow.Digest(tp)
				if err != nil {
					return err
				}
				if len(a.Parts) != len(b.Parts) || a.Rest != b.Rest {
					t.Fatalf("%s: %+v from the store, %+v from the view", tp, a, b)
				}
				for i, p := range a.Parts {
					if p != b.Parts[i] {
						t.Errorf("%s from the store, %s from the view", p, b.Parts[i])
					}
					if w := want[p.PartKey]; w == nil || p.Digest != [32]byte(w.Sum(nil)) {
						t.Errorf("%s has another digest than its rows", p.PartKey)
					}
					delete(want, p.PartKey)
					for _, r := range []*projections.PartReader{fast, slow} {
						if h, n := hashRows(t, r, p.PartKey); h != p.Digest || n != p.Rows {
							t.Errorf("%s: %d rows with digest %x, want %d with %x", p.PartKey, n, h, p.Rows, p.Digest)
						}
					}
				}
			}
			if len(want) > 0 {
				t.Errorf("no digest for %v", want)
			}
			return nil
		})
	})
}

// partsOf hashes the rows of months by what [projections.PartOf] says.
func partsOf(t *rapid.T, v projections.View) map[projections.PartKey]hash.Hash {
	sums := map[projections.PartKey]hash.Hash{}
	for _, table := range tablesByName() {
		if err := v.Scan(projections.Query{Table: table}, func(k projections.Key, row projections.Row) error {
			part, ok := projections.PartOf(k)
			if split := table.Topic() != "" && k.Hour != 0; ok != split {
				t.Errorf("%s is in a month: %t", k, ok)
			}
			b, err := projections.AppendRow(nil, k, row)
			if err != nil || !ok {
				return err
			}
			if back, raw, err := projections.SplitRow(b); err != nil || back != k || !bytes.HasSuffix(b, raw) {
				t.Errorf("%s is read as %s: %v", k, back, err)
			}
			if sums[part] == nil {
				sums[part] = sha256.New()
			}
			sums[part].Write(b)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return sums
}

func tablesByName() []projections.Table {
	return slices.SortedFunc(slices.Values(projections.Tables()), func(a, b projections.Table) int {
		return strings.Compare(a.String(), b.String())
	})
}

func hashRows(t *rapid.T, r *projections.PartReader, k projections.PartKey) (sum [32]byte, n int64) {
	h := sha256.New()
	if err := r.Rows(k, func(_ projections.Key, b []byte) error {
		h.Write(b)
		n++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return [32]byte(h.Sum(nil)), n
}

// A month is sealed when an observation of its last moment would be quarantined as too old.
func TestSealedBefore(t *testing.T) {
	june := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	bound := domain.InstantOf(june.AddDate(0, 0, 7).Add(time.Hour))
	for newest, want := range map[domain.Instant]string{
		bound - 1: "2026-05", bound: "2026-06", bound + 20*domain.Day: "2026-06",
		domain.InstantOf(june.AddDate(1, 0, 0)): "2027-05",
	} {
		if got := projections.MonthName(projections.SealedBefore(newest)); got != want {
			t.Errorf("at %s the first open month is %s, want %s", newest, got, want)
		}
	}
}

func TestFirstDifference(t *testing.T) {
	rows := func(text string) iter.Seq2[projections.Key, []byte] {
		return func(yield func(projections.Key, []byte) bool) {
			for i := 0; i < len(text); i += 2 {
				if !yield(projections.Key{Table: projections.TableFaults, ID: text[i : i+1]}, []byte(text[i+1:i+2])) {
					return
				}
			}
		}
	}
	for _, c := range []struct {
		a, b, id string
		inA, inB bool
	}{
		{"", "", "", false, false}, {"a1b1", "a1b1", "", false, false}, {"a1b1", "a1b2", "b", true, true},
		{"a1", "a1b1", "b", false, true}, {"a1b1", "a1", "b", true, false}, {"b1", "a1b1", "a", false, true}, {"a1b1", "b1", "a", true, false},
	} {
		d, found := projections.FirstDifference(rows(c.a), rows(c.b))
		if found != (c.id != "") || d.Key.ID != c.id || d.InA != c.inA || d.InB != c.inB {
			t.Errorf("%q and %q: %+v, %t", c.a, c.b, d, found)
		}
	}
}
