package embedded

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadOnlyMount opens a log on a mount that not even root can write to.
func TestReadOnlyMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir, at := t.TempDir(), t.TempDir()
	want := closedLog(t, dir, 10)
	if err := unix.Mount(dir, at, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("mounting: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
	if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	before := stamp(t, dir)
	b := open(t, Config{Dir: at})
	if !b.ReadOnly() || !errors.Is(b.Refusal(), syscall.EROFS) || !errors.Is(b.Refusal(), ErrReadOnly) {
		t.Fatalf("read only %v, %v", b.ReadOnly(), b.Refusal())
	}
	if got := readAll(t, b, "t", 0); !slices.Equal(got, want) {
		t.Errorf("read %q", got)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if after := stamp(t, dir); after != before {
		t.Errorf("reading changed\n%sto\n%s", before, after)
	}
	// An owner on the writable mount serves this one as well.
	owner := open(t, Config{Dir: dir})
	if b = open(t, Config{Dir: at}); b.ReadOnly() || b.Owner() || !owner.Owner() {
		t.Errorf("beside an owner: read only %v, owner %v", b.ReadOnly(), b.Owner())
	}
}
