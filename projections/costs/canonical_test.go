package costs_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

type closing struct{ io.ReadSeeker }

func (closing) Close() error { return nil }

func openBytes(b []byte) costs.Open {
	return func() (io.ReadSeekCloser, error) { return closing{bytes.NewReader(b)}, nil }
}

func canonicalForm(t testing.TB, v projections.View, month domain.Interval) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, _, err := costs.WriteCanonical(v, month, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Equal rows have one canonical form, and other rows another.
func TestCanonicalForm(t *testing.T) {
	var forms [][]byte
	more := house()
	more.Append(recorded(billLine("13-more", "0.000000000000000001")))
	for _, l := range []*storetest.Log{house(), house(), more} {
		storetest.FoldView(t, l, func(v projections.View) { forms = append(forms, canonicalForm(t, v, storetest.MayBill)) })
	}
	if !bytes.Equal(forms[0], forms[1]) {
		t.Error("equal rows have two canonical forms")
	}
	if bytes.Equal(forms[0], forms[2]) {
		t.Error("a line of the last unit is not in the canonical form")
	}
	if !bytes.HasPrefix(forms[0], []byte(costs.CanonicalFormat+"\n")) {
		t.Errorf("it begins with %q", forms[0][:40])
	}
}

// every reads all of a canonical form.
func every(b []byte) (n int, err error) {
	d, err := costs.ReadCanonical(openBytes(b))
	if err != nil {
		return 0, err
	}
	if err := d.Each(costs.AllocationFilter{}, func(*costs.Allocation) error { n++; return nil }); err != nil {
		return n, err
	}
	_, err = d.Report(costs.Query{Month: d.Month, By: []costs.Dimension{costs.ByWorkspace}})
	return n, err
}

// What a kept month answers from its sums is what its allocations add up to, for every query that sums can answer.
func TestSumsOfCanonicalForm(t *testing.T) {
	ofTargets := []costs.Dimension{
		costs.ByWorkspace, costs.ByComponent, costs.ByCluster, costs.ByDeployment, costs.ByWorkloadClass, costs.ByModel,
		costs.ByGPUModel, costs.ByBillingModel, costs.ByProvider, costs.ByRegion, costs.ByOwner, costs.ByEntity, costs.ByMatchMethod, costs.ByMonth,
	}
	storetest.FoldView(t, classified(), func(v projections.View) {
		kept, err := costs.ReadCanonical(openBytes(canonicalForm(t, v, storetest.MayBill)))
		if err != nil {
			t.Fatal(err)
		}
		if kept, err = kept.At(v); err != nil {
			t.Fatal(err)
		}
		if err := kept.CheckSums(); err != nil {
			t.Fatal(err)
		}
		d, err := costs.Divide(v, storetest.MayBill, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		long.Check(t, 100, 10_000, func(t *rapid.T) {
			q := costs.Query{
				Month: storetest.MayBill, By: rapid.SliceOfNDistinct(rapid.SampledFrom(ofTargets), 0, 4, rapid.ID).Draw(t, "by"),
				Workspace: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "workspace"),
			}
			if rapid.Bool().Draw(t, "where") {
				where, err := costs.ParseConditions([]string{rapid.SampledFrom([]string{"component=allocated", "model=m", "gpu_model=H100 80GB", "line=01-n1"}).Draw(t, "condition")})
				if err != nil {
					t.Fatal(err)
				}
				q.Where = where
			}
			got, err := kept.Report(q)
			if err != nil {
				t.Fatal(err)
			}
			want, err := d.Report(q)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range []*costs.Report{got, want} {
				text, err := json.Marshal([]any{r.Groups, r.Totals})
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					got.Note = string(text)
				} else if got.Note != string(text) {
					t.Fatalf("%+v: got\n%s\nwant\n%s", q, got.Note, text)
				}
			}
		})
	})
}

// Sums that are not those of the records are found.
func TestWrongSums(t *testing.T) {
	storetest.FoldView(t, house(), func(v projections.View) {
		whole := canonicalForm(t, v, storetest.MayBill)
		size := binary.BigEndian.Uint64(whole[len(whole)-16:])
		from := uint64(len(whole)) - 24 - binary.BigEndian.Uint64(whole[len(whole)-8:]) - size
		wrong, unread := 0, 0
		for i := from; i < from+size; i++ {
			forged := bytes.Clone(whole)
			forged[i] ^= 1
			d, err := costs.ReadCanonical(openBytes(forged))
			if err != nil {
				t.Fatal(err)
			}
			switch err := d.CheckSums(); {
			case errors.Is(err, costs.ErrSums):
				wrong++
			case errors.Is(err, costs.ErrCanonical):
				unread++
			default:
				t.Fatalf("a change of byte %d of the sums passed: %v", i-from, err)
			}
		}
		if wrong == 0 || unread == 0 {
			t.Errorf("%d changes were found wrong and %d unreadable", wrong, unread)
		}
	})
}

// A form that was cut is an error, never a shorter answer. Neither a changed byte nor arbitrary bytes crash
// the reader.
func FuzzReadCanonical(f *testing.F) {
	var whole []byte
	storetest.FoldView(f, house(), func(v projections.View) { whole = canonicalForm(f, v, storetest.MayBill) })
	if n, err := every(whole); err != nil || n == 0 {
		f.Fatalf("%d allocations: %v", n, err)
	}
	for i := range whole {
		if n, err := every(whole[:i]); !errors.Is(err, costs.ErrCanonical) {
			f.Fatalf("cut to %d of %d bytes: %d allocations, %v", i, len(whole), n, err)
		}
		f.Add(i, byte(1), whole[:0])
	}
	f.Add(0, byte(0), whole)
	f.Fuzz(func(t *testing.T, at int, change byte, b []byte) {
		if len(b) == 0 {
			b = bytes.Clone(whole)
			b[max(at, -at, 0)%len(b)] ^= change
		}
		if _, err := every(b); err != nil && !errors.Is(err, costs.ErrCanonical) {
			t.Errorf("error %v", err)
		}
	})
}
