// Package durable makes the names of files and directories last over a crash of the machine. A file
// that was synced is lost all the same if the directory that has its name was not.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Sync waits until a file or directory is on disk. Tests replace it to record the calls.
var Sync = (*os.File).Sync

// SyncDirectory makes the names in a directory durable.
func SyncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(Sync(d), d.Close())
}

// MakeDirectory makes a directory and its parents, which only this user may read. Their names are durable
// when it returns.
func MakeDirectory(path string) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(path, 0o700) // returns what is wrong
	}
	if parent := filepath.Dir(path); parent != path {
		if err := MakeDirectory(parent); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return SyncDirectory(filepath.Dir(path))
}
