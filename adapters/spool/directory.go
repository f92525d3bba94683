package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"quartermaster/adapters/durable"
)

// directory implements disk with a directory of the file system.
type directory struct {
	path string
	lock *os.File
}

const lockName = "lock"

func openDirectory(path string) (*directory, error) {
	if err := durable.MakeDirectory(path); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	switch {
	case errors.Is(err, syscall.EROFS):
		return nil, fmt.Errorf("%w: the file system is read-only; give a directory on one that can be written", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: this user may not write there; chown the directory to user %d, or give another", err, os.Getuid())
	case err != nil:
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	return &directory{path, lock}, nil
}

func (d *directory) Folder(name string) error {
	return durable.MakeDirectory(filepath.Join(d.path, name))
}

func (d *directory) List(folder string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(d.path, folder))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (d *directory) Create(name string) (file, error) {
	f, err := os.OpenFile(filepath.Join(d.path, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (d *directory) Open(name string) (file, error) {
	f, err := os.OpenFile(filepath.Join(d.path, name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (d *directory) Remove(name string) error { return os.Remove(filepath.Join(d.path, name)) }

func (d *directory) SyncDir(folder string) error {
	return durable.SyncDirectory(filepath.Join(d.path, folder))
}

// Close releases the lock.
func (d *directory) Close() { d.lock.Close() }

type diskFile struct{ *os.File }

func (f diskFile) Close() { f.File.Close() }

func (f diskFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
