package sealing

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"quartermaster/adapters/durable"
)

var (
	// ErrNoKey means that the store has no key of a person. If the log has no erasure of that person, say
	// so: the store may be another one, or have been lost.
	ErrNoKey = errors.New("no key of this person")
	// ErrKeyExists means that a person has a key. Use it: a second key would make the names that were
	// sealed with the first unreadable.
	ErrKeyExists = errors.New("the person has a key")
	// ErrExposed means that others than the owner may read or write a key. Its names may be known to them.
	ErrExposed = errors.New("key file is open to users other than its owner")
	// ErrKeyFile means that a key file has not the size of a key. Restore it, or the names are lost.
	ErrKeyFile = errors.New("key file is damaged")
)

// Keys is a directory with one key a person, each a file of 32 bytes with mode 0600. A file is named by
// the SHA-256 of the person's id, so an id may hold any character.
//
// The directory MUST NOT be in the log's backups, which outlive an erasure.
type Keys struct{ dir string }

// NewKeys opens a directory of keys. The first [Keys.Create] makes it.
func NewKeys(dir string) Keys { return Keys{dir: dir} }

// Create makes the key of a person. It is on disk when Create returns, so it MUST be called before a name
// is appended. The error wraps [ErrKeyExists] if the person has one.
func (s Keys) Create(person string) (Key, error) {
	if person == "" {
		return Key{}, errors.New("create a key: no person given")
	}
	if err := durable.MakeDirectory(s.dir); err != nil {
		return Key{}, fmt.Errorf("create a key of %s: %w", person, err)
	}
	// Written under another name first: a crash leaves no key of half its size.
	f, err := os.CreateTemp(s.dir, "new-") // mode 0600
	if err != nil {
		return Key{}, fmt.Errorf("create a key of %s: %w", person, err)
	}
	k := newKey()
	_, err = f.Write(k[:])
	if err = errors.Join(err, durable.Sync(f), f.Close()); err == nil {
		err = os.Link(f.Name(), s.file(person)) // unlike a rename, replaces nothing
	}
	if errors.Is(err, fs.ErrExist) {
		err = ErrKeyExists
	}
	if err = errors.Join(err, os.Remove(f.Name())); err == nil {
		err = durable.SyncDirectory(s.dir)
	}
	if err != nil {
		return Key{}, fmt.Errorf("create a key of %s: %w", person, err)
	}
	return k, nil
}

// Load returns the key of a person. The error wraps [ErrNoKey], [ErrExposed] or [ErrKeyFile].
func (s Keys) Load(person string) (Key, error) {
	path := s.file(person)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Key{}, fmt.Errorf("load the key of %s from %s: %w", person, s.dir, ErrNoKey)
	case err != nil:
		return Key{}, fmt.Errorf("load the key of %s: %w", person, err)
	case info.Mode().Perm()&0o077 != 0:
		return Key{}, fmt.Errorf("load the key of %s from %s: %w", person, path, ErrExposed)
	case !info.Mode().IsRegular() || info.Size() != keySize:
		return Key{}, fmt.Errorf("load the key of %s from %s: %w", person, path, ErrKeyFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return Key{}, fmt.Errorf("load the key of %s: %w", person, err)
	}
	if len(b) != keySize {
		return Key{}, fmt.Errorf("load the key of %s from %s: %w", person, path, ErrKeyFile)
	}
	return Key(b), nil
}

// Destroy overwrites and removes the key of a person. Nobody can make it again. The error wraps [ErrNoKey]
// if there is none; [Keys.Destroyed] tells whether it was destroyed here.
//
// A disk or file system that writes elsewhere (an SSD, snapshots) may keep the overwritten bytes for a
// while, and a backup keeps its copy: both need a retention of their own.
func (s Keys) Destroy(person string) error {
	f, err := os.OpenFile(s.file(person), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("destroy the key of %s in %s: %w", person, s.dir, ErrNoKey)
	}
	if err != nil {
		return fmt.Errorf("destroy the key of %s: %w", person, err)
	}
	_, err = f.Write(make([]byte, keySize))
	err = errors.Join(err, durable.Sync(f), f.Close())
	if err == nil {
		err = errors.Join(os.Rename(s.file(person), s.file(person)+destroyedSuffix), durable.SyncDirectory(s.dir))
	}
	if err != nil {
		return fmt.Errorf("destroy the key of %s: %w", person, err)
	}
	return nil
}

// destroyedSuffix ends the name of the zeros that are left of a key. They tell a key that was destroyed from one
// that was never here.
const destroyedSuffix = ".destroyed"

// Destroyed reports whether the key of a person was destroyed in this directory.
func (s Keys) Destroyed(person string) bool {
	_, err := os.Lstat(s.file(person) + destroyedSuffix)
	return err == nil
}

func (s Keys) file(person string) string {
	sum := sha256.Sum256([]byte(person))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:])+".key")
}
