// Package keyfile stores an operator's Ed25519 private key in a file, as PKCS #8 in PEM, so
// that OpenSSL and other tools can read it.
//
// The file belongs to one person. [Create] makes it readable only by its owner and never
// overwrites an existing file. [Load] refuses a file that others may read or write, because
// its signatures would prove nothing.
package keyfile

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrExposed means that others may read or write the key file. It is unknown whether they did:
// revoke the key and register a new one, or chmod 600 the file if you are sure that no one did.
var ErrExposed = errors.New("key file is open to users other than its owner")

// maxFile is the largest accepted file in bytes. A key takes about 120.
const maxFile = 16 << 10

const pemType = "PRIVATE KEY"

// Create generates a key and writes it to a new file with mode 0600, synced to disk. If the
// file exists, Create does not touch it and returns an error that wraps [os.ErrExist].
func Create(path string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("create key file %s: %w", path, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("create key file %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create key file: %w", err)
	}
	err = pem.Encode(f, &pem.Block{Type: pemType, Bytes: der})
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return nil, fmt.Errorf("write key file %s: %w", path, errors.Join(err, os.Remove(path)))
	}
	return key, nil
}

// Load reads a file from [Create], or any other PKCS #8 PEM file with one Ed25519 key. The
// error wraps [os.ErrNotExist] when the file does not exist and [ErrExposed] when others may
// read or write it.
func Load(path string) (ed25519.PrivateKey, error) {
	return load(path, func(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 })
}

// LoadFor is [Load] for a key that belongs to a program. The argument exposed reports whether
// users that the file is not meant for may read or write it.
func LoadFor(path string, exposed func(path string, info fs.FileInfo) bool) (ed25519.PrivateKey, error) {
	return load(path, func(info fs.FileInfo) bool { return exposed(path, info) })
}

func load(path string, exposed func(fs.FileInfo) bool) (ed25519.PrivateKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load key file: %w", err)
	}
	defer f.Close()
	key, err := read(f, exposed)
	if err != nil {
		return nil, fmt.Errorf("load key file %s: %w", path, err)
	}
	return key, nil
}

func read(f *os.File, exposed func(fs.FileInfo) bool) (ed25519.PrivateKey, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if exposed(info) {
		return nil, fmt.Errorf("%w: its mode is %04o, want 0600", ErrExposed, info.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("more than %d bytes: not a key file", maxFile)
	}
	block, rest := pem.Decode(b)
	if block == nil || block.Type != pemType {
		return nil, fmt.Errorf("no PEM block of type %q in it", pemType)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, errors.New("more than one PEM block in it")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a key of type %T, want Ed25519", parsed)
	}
	return key, nil
}
