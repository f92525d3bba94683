package public_test

import (
	"testing"

	"quartermaster/simulations/public"
)

// The first hour and the end match the files, and kinds add up to all.
func TestShavedice(t *testing.T) {
	each := public.Shavedice(t)
	if len(each) != 23 || each[0].Region != "1" || each[0].Kind != "A" || each[0].Units[0] != 169 || each[0].Units[1] != 151 {
		t.Fatalf("%d series, the first is %s %s: %v", len(each), each[0].Region, each[0].Kind, each[0].Units[:2])
	}
	all := public.Together(each)
	if len(all) != 2 || all[1].Region != "2" || all[1].Kind != "all" || all[1].Units[0] != 172+8 || all[1].Milli()[0] != 180_000 {
		t.Fatalf("%d regions, the second is %s %s: %v", len(all), all[1].Region, all[1].Kind, all[1].Units[:1])
	}
	if each[0].Units[0] != 169 {
		t.Error("adding up changed what was added")
	}
}

func TestOpenb(t *testing.T) {
	if n := len(public.OpenbNodes(t)); n != 1213 {
		t.Errorf("%d machines have GPUs, published are 1213", n)
	}
	if n := len(public.Published(t, "default", "06-FGD")); n != 10 {
		t.Errorf("%d runs are published, want 10", n)
	}
}

// Without the data a test is skipped, or continues without it.
func TestAbsent(t *testing.T) {
	t.Setenv("QUARTERMASTER_DATA", t.TempDir())
	if public.Has(t, public.ShavediceFile) {
		t.Error("an empty directory has data")
	}
	skipped := false
	t.Run("reads", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		public.Shavedice(t)
	})
	if !skipped {
		t.Error("a test without its data was not skipped")
	}
}
