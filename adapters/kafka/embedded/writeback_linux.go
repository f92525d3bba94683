package embedded

import (
	"os"

	"golang.org/x/sys/unix"
)

// writebackError returns an error that writing any page of f met since f was
// opened, even if fsync on another descriptor was told first: the kernel
// tells each open file once. It waits for writes in progress and starts none.
func writebackError(f *os.File) error {
	return unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE)
}
