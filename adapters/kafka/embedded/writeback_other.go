//go:build !linux

package embedded

import "os"

// writebackError syncs f: without sync_file_range only that tells of errors.
func writebackError(f *os.File) error { return f.Sync() }
