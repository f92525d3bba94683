package embedded

import (
	"os"

	"golang.org/x/sys/unix"
)

// writebackError returns an error of writing any page of f since f was opened. It works even if
// fsync on another descriptor got the error first, because the kernel reports an error once per open
// file. It waits for writes in progress and starts none.
func writebackError(f *os.File) error {
	return unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE)
}
