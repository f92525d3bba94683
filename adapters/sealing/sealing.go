// Package sealing keeps people's names readable only until somebody destroys a key.
//
// The log is never changed, so a name in it could not be erased. A name is therefore sealed before it
// is appended, with a key of that person alone: AES-256-GCM (NIST SP 800-38D). The log holds the sealed
// bytes, a [Keys] store outside the log holds the key. Hashes, signatures and proofs cover the sealed
// bytes. So destroying the key takes the name away for ever, and leaves every proof as it was.
//
// What always holds:
//
//   - Sealed bytes open only for the person and the place (the event) that they were sealed for.
//   - Their length shows the name's only to a multiple of 128 bytes.
//   - They name the key by a digest, so another key is told from damage.
package sealing

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

var (
	// ErrOtherKey means that the bytes were sealed with another key: look for the right key store, or
	// whether the person's key was made again.
	ErrOtherKey = errors.New("sealed with another key")
	// ErrDamaged means that the key is right, but the bytes were changed, or belong to another person or
	// place. Compare them with the log.
	ErrDamaged = errors.New("sealed bytes are damaged, or belong to another person or event")
	// ErrFormat means that the bytes are not from [Key.Seal], or from a later version of it.
	ErrFormat = errors.New("not sealed bytes of a known version")
)

const (
	version   = 1
	keySize   = 32 // AES-256
	keyIDSize = 8
	headSize  = 1 + keyIDSize
	overhead  = 12 + 16 // nonce and tag of GCM
	block     = 128     // a name with its padding is a multiple of it

	// MaxName is the longest name that can be sealed, in bytes.
	MaxName = 4096
)

// Key is the data key of one person.
type Key [keySize]byte

// newKey makes a key from the system's random numbers.
func newKey() Key {
	var k Key
	_, _ = rand.Read(k[:]) // never fails: crypto/rand
	return k
}

// Seal encrypts a name for a person and a place, such as the id of the event that will hold it.
// [Key.Open] MUST be given the same two.
func (k Key) Seal(person, place, name string) ([]byte, error) {
	if person == "" || place == "" {
		return nil, errors.New("seal a name: no person or no place given")
	}
	if name == "" || len(name) > MaxName {
		return nil, fmt.Errorf("seal a name of %s: it has %d bytes, want 1 to %d", person, len(name), MaxName)
	}
	aead, err := k.aead()
	if err != nil {
		return nil, fmt.Errorf("seal a name of %s: %w", person, err)
	}
	head := k.head()
	return aead.Seal(head, nil, pad(name), bound(head, person, place)), nil
}

// Open returns the name. The error wraps [ErrOtherKey], [ErrDamaged] or [ErrFormat].
func (k Key) Open(person, place string, sealed []byte) (string, error) {
	head := k.head()
	if len(sealed) < headSize+overhead+block || sealed[0] != version {
		return "", fmt.Errorf("open a name of %s: %w", person, ErrFormat)
	}
	if !bytes.Equal(sealed[:headSize], head) {
		return "", fmt.Errorf("open a name of %s: %w", person, ErrOtherKey)
	}
	aead, err := k.aead()
	if err != nil {
		return "", fmt.Errorf("open a name of %s: %w", person, err)
	}
	padded, err := aead.Open(nil, nil, sealed[headSize:], bound(head, person, place))
	if err != nil {
		return "", fmt.Errorf("open a name of %s: %w", person, ErrDamaged)
	}
	name, ok := unpad(padded)
	if !ok {
		return "", fmt.Errorf("open a name of %s: %w", person, ErrFormat)
	}
	return name, nil
}

func (k Key) aead() (cipher.AEAD, error) {
	c, err := aes.NewCipher(k[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(c)
}

// head returns the version and the key's digest. A digest of 256 random bits does not help to find them.
func (k Key) head() []byte {
	sum := sha256.Sum256(append([]byte("quartermaster sealing key\x00"), k[:]...))
	return append([]byte{version}, sum[:keyIDSize]...)
}

// bound returns the associated data. The length keeps ("ab", "c") and ("a", "bc") apart.
func bound(head []byte, person, place string) []byte {
	b := bytes.Clone(head)
	b = binary.BigEndian.AppendUint64(b, uint64(len(person)))
	b = append(b, person...)
	return append(b, place...)
}

// pad appends 0x80 and zeros up to a multiple of block (ISO/IEC 7816-4).
func pad(name string) []byte {
	b := make([]byte, (len(name)/block+1)*block)
	copy(b, name)
	b[len(name)] = 0x80
	return b
}

func unpad(b []byte) (string, bool) {
	b = bytes.TrimRight(b, "\x00")
	if len(b) < 2 || b[len(b)-1] != 0x80 {
		return "", false
	}
	return string(b[:len(b)-1]), true
}
