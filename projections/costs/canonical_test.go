package costs_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"quartermaster/domain"
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
	err = d.Each(costs.AllocationFilter{}, func(*costs.Allocation) error { n++; return nil })
	return n, err
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
