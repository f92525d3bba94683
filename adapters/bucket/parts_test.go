package bucket

import (
	"errors"
	"strings"
	"testing"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// TestPartsInBucket makes parts in a bucket, reads them on another machine, and says what is wrong
// with the bucket.
func TestPartsInBucket(t *testing.T) {
	store, service := open(t)
	m, err := storetest.Fleet(5, 24, storetest.Start).Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in := func() parts.Directory {
		return parts.Directory{Path: t.TempDir(), Log: "log", Bucket: store, CacheBytes: 1 << 20}
	}
	var made []projections.PartDigest
	if err := m.View(t.Context(), func(v projections.View) error {
		r := projections.NewPartReader(v)
		w, err := parts.NewWriter(in())
		if err != nil {
			return err
		}
		defer w.Close()
		for _, tp := range domain.AllPartitions() {
			d, err := r.Digest(tp)
			if err != nil {
				return err
			}
			for _, p := range d.Parts {
				for _, want := range []parts.Outcome{parts.New, parts.Unchanged} {
					o, err := w.Put(p, nil, v.Position()[tp], func(yield func(projections.Key, []byte) error) error {
						return r.Rows(p.PartKey, yield)
					})
					if err != nil || o != want {
						t.Fatal(o, err)
					}
				}
				made = append(made, p)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(made) == 0 {
		t.Fatal("the fleet has no parts")
	}
	keys, err := in().List()
	if err != nil || len(keys) != len(made) {
		t.Fatalf("%d parts are listed of %d: %v", len(keys), len(made), err)
	}
	read := func(p projections.PartDigest) error {
		s := parts.NewSource(in())
		defer s.Close()
		rows := int64(0)
		err := errors.Join(s.Has(p), s.Verify(p), s.Scan(p, projections.Query{}, func(projections.Key, []byte) error {
			rows++
			return nil
		}))
		if err == nil && rows != p.Rows {
			t.Errorf("%s has %d rows of %d", p.PartKey, rows, p.Rows)
		}
		return err
	}
	for _, p := range made {
		if err := read(p); err != nil {
			t.Fatal(err)
		}
	}
	set := func(do func()) {
		service.mu.Lock()
		defer service.mu.Unlock()
		do()
	}
	p := made[0]
	name := strings.TrimPrefix(in().File(p.PartKey, p.Digest), "s3://vault/")
	whole := service.objects[name]
	if whole == nil {
		t.Fatalf("the bucket has no object %s", name)
	}
	set(func() { service.refuse = 403 })
	if err := read(p); !errors.Is(err, parts.ErrBucket) || errors.Is(err, parts.ErrMissing) {
		t.Errorf("without a right: %v", err)
	}
	set(func() { service.refuse = 0; service.objects[name] = append([]byte("x"), whole[1:]...) })
	if err := read(p); !errors.Is(err, parts.ErrDamaged) {
		t.Errorf("other bytes: %v", err)
	}
	set(func() { delete(service.objects, name) })
	if err := read(p); !errors.Is(err, parts.ErrMissing) {
		t.Errorf("a lost object: %v", err)
	}
}
