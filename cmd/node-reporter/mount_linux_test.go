package main

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// mountSmall mounts a disk in memory of so many bytes.
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

// mountReadOnly mounts a disk that cannot be written.
func mountReadOnly(dir string) error {
	return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "size=4096")
}
