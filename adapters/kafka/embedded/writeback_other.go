//go:build !linux

package embedded

import "os"

// writebackError syncs f: without sync_file_range, only a sync reports errors.
func writebackError(f *os.File) error { return f.Sync() }
