package main

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// mountSmall mounts an in-memory disk of the given size in bytes.
func mountSmall(dir string, size int) error {
	return unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", size))
}

func unmount(t *testing.T, dir string) {
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// mountReadOnly mounts a read-only disk.
func mountReadOnly(dir string) error {
	return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "size=4096")
}
