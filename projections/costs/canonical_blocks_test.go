package costs_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// A form of many blocks has the same allocations, sums and explanations as one of a single block, and each allocation is
// found by its name.
func TestBlocks(t *testing.T) {
	told := func(of any) string {
		text, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, l := range map[string]*storetest.Log{"house": house(), "classified": classified(), "teams": billedTeams(2, 6, 4)} {
		storetest.FoldView(t, l, func(v projections.View) {
			var want map[attribution.Ref]string
			var report string
			var length int
			for _, size := range []int64{1 << 16, 1, 2, 3, 17} {
				restore := costs.SetBlockRecords(size)
				form := canonicalForm(t, v, storetest.MayBill)
				again := canonicalForm(t, v, storetest.MayBill)
				restore()
				if !bytes.Equal(form, again) {
					t.Errorf("%s: blocks of %d have two forms", name, size)
				}
				d, err := costs.ReadCanonical(openBytes(form))
				if err == nil {
					d, err = d.At(v)
				}
				if err == nil {
					err = d.CheckSums()
				}
				if err != nil {
					t.Fatal(err)
				}
				got := map[attribution.Ref]string{}
				if err := d.Each(costs.AllocationFilter{}, func(a *costs.Allocation) error {
					ref, err := attribution.ParseRef(a.Allocation)
					got[ref] = told(a)
					return err
				}); err != nil {
					t.Fatal(err)
				}
				for ref, text := range got {
					x, has, err := d.ExplainKept(v, ref)
					if err != nil || !has {
						t.Fatalf("%s: blocks of %d: %v is not found: %v", name, size, ref, err)
					}
					got[ref] = text + told(x)
				}
				if _, has, err := d.ExplainKept(v, attribution.Ref{Issuer: "p", Account: "1", Line: "none"}); has || err != nil {
					t.Errorf("%s: a line that there is not: %t, %v", name, has, err)
				}
				r, err := d.Report(costs.Query{Month: d.Month, By: []costs.Dimension{costs.ByWorkspace, costs.ByUnit, costs.ByNode}})
				if err != nil {
					t.Fatal(err)
				}
				if want == nil {
					want, report, length = got, told(r), len(form)
					continue
				}
				if !maps.Equal(got, want) || told(r) != report {
					t.Errorf("%s: blocks of %d say something else", name, size)
				}
				if len(form) <= length {
					t.Errorf("%s: a form with blocks of %d has %d bytes, and one with a single block %d", name, size, len(form), length)
				}
			}
			if len(want) < 10 {
				t.Errorf("%s has %d allocations", name, len(want))
			}
		})
	}
}

// An index that is not that of the lines is found.
func TestWrongIndex(t *testing.T) {
	defer costs.SetBlockRecords(5)()
	storetest.FoldView(t, house(), func(v projections.View) {
		whole := canonicalForm(t, v, storetest.MayBill)
		sizes := whole[len(whole)-24:]
		index := int(binary.BigEndian.Uint64(sizes))
		from := len(whole) - 24 - index - int(binary.BigEndian.Uint64(sizes[8:])) - int(binary.BigEndian.Uint64(sizes[16:]))
		for i := from; i < from+index; i++ {
			forged := slices.Clone(whole)
			forged[i] ^= 1
			d, err := costs.ReadCanonical(openBytes(forged))
			if err != nil {
				t.Fatal(err)
			}
			if err := d.CheckSums(); !errors.Is(err, costs.ErrCanonical) {
				t.Fatalf("a change of byte %d of the index passed: %v", i-from, err)
			}
		}
	})
}
