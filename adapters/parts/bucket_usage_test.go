package parts

import (
	"bytes"
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// A kept month in a bucket is read on another machine, and a damaged one is never an answer. Another
// version can be kept beside it.
func TestUsageInBucket(t *testing.T) {
	b := newVault()
	month := func(inputs string) *usage.Month {
		of := domain.Interval{From: storetest.Start - 30*domain.Day, To: storetest.Start}
		return &usage.Month{Inputs: usage.Inputs{Month: of, Text: inputs}, Days: []usage.Day{
			{Day: of.From, Cluster: "c", Time: usage.GPUTime{Service: 7, Idle: 4, Unobserved: 3}},
		}}
	}
	keep := func(m *usage.Month) error {
		w, err := NewWriter(inVault(t, b))
		if err != nil {
			return err
		}
		return errors.Join(w.PutUsage(m, domain.Position{}), w.Close())
	}
	first, second := month("first"), month("second")
	if _, err := inVault(t, b).Usage(first.Inputs); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, m := range []*usage.Month{first, second, first} {
		if err := keep(m); err != nil {
			t.Fatal(err)
		}
		if got, err := inVault(t, b).Usage(m.Inputs); err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("%+v: %v", got, err)
		}
	}
	name := "log/" + usageFolder(first.Inputs.Month) + "/" + usageFile(first.Inputs, "")
	b.objects[name] = append([]byte("x"), b.objects[name][1:]...)
	if _, err := inVault(t, b).Usage(first.Inputs); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), name) {
		t.Error(err)
	}
	damaged := b.objects[name]
	if err := keep(first); err != nil {
		t.Errorf("a damaged month cannot be kept again: %v", err)
	}
	if !bytes.Equal(b.objects[name], damaged) {
		t.Error("an object of a bucket was replaced")
	}
	if got, err := inVault(t, b).Usage(first.Inputs); err != nil || !reflect.DeepEqual(got, first) {
		t.Errorf("%+v: %v", got, err)
	}
	if got, err := inVault(t, b).Usage(second.Inputs); err != nil || !reflect.DeepEqual(got, second) {
		t.Errorf("%+v: %v", got, err)
	}
	// A manifest that is not one hides what it lists, and the next is put after it.
	for object := range b.objects {
		if strings.HasSuffix(object, ".json") {
			b.objects[object] = bytes.Repeat([]byte("{"), 10)
		}
	}
	if _, err := inVault(t, b).Usage(second.Inputs); !errors.Is(err, ErrManifest) {
		t.Error(err)
	}
	if err := keep(second); err != nil {
		t.Fatal(err)
	}
	if got, err := inVault(t, b).Usage(second.Inputs); err != nil || !reflect.DeepEqual(got, second) {
		t.Errorf("%+v: %v", got, err)
	}
}
