package domain

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

// ClusterKey lets the nodes and the Prometheus of one cluster push events of
// that cluster, and nothing else. It is shown once, when it is made; the log
// keeps what [ClusterKey.MAC] returns, from which it cannot be found.
//
// Its text is qmk_ID_SECRET: ten and 59 letters and digits in lower case. The
// last seven are a checksum (CRC-32C of what stands before), so that a key that
// was mistyped or cut is told from one that is not known.
type ClusterKey struct {
	ID     string // names it in the log and in messages; no secret
	secret [32]byte
}

const (
	keyPrefix = "qmk_"
	keyIDSize = 6 // bytes
)

var (
	keyText     = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	keyChecksum = crc32.MakeTable(crc32.Castagnoli)
)

// ErrClusterKey is wrapped by what is said of a text that is no key. Whoever
// configured it should copy it again from where it was shown.
var ErrClusterKey = errors.New("not a cluster key")

// NewClusterKey makes a key of 256 random bits.
func NewClusterKey(random io.Reader) (ClusterKey, error) {
	var k ClusterKey
	id := make([]byte, keyIDSize)
	for _, b := range [][]byte{id, k.secret[:]} {
		if _, err := io.ReadFull(random, b); err != nil {
			return ClusterKey{}, fmt.Errorf("make a cluster key: %w", err)
		}
	}
	k.ID = keyText.EncodeToString(id)
	return k, nil
}

// ParseClusterKey reads the text of a key. The error never quotes it.
func ParseClusterKey(text string) (ClusterKey, error) {
	body, ok := strings.CutPrefix(text, keyPrefix)
	if !ok {
		return ClusterKey{}, fmt.Errorf("%w: it does not begin with %s", ErrClusterKey, keyPrefix)
	}
	id, rest, _ := strings.Cut(body, "_")
	var k ClusterKey
	if n := keyText.EncodedLen(len(k.secret) + crc32.Size); len(id) != keyText.EncodedLen(keyIDSize) || len(rest) != n {
		return ClusterKey{}, fmt.Errorf("%w: it has %d characters, want %d; was it cut?", ErrClusterKey, len(text), len(keyPrefix)+keyText.EncodedLen(keyIDSize)+1+n)
	}
	if _, err := keyText.DecodeString(id); err != nil {
		return ClusterKey{}, fmt.Errorf("%w: it holds a character that no key holds", ErrClusterKey)
	}
	raw, err := keyText.DecodeString(rest)
	if err != nil {
		return ClusterKey{}, fmt.Errorf("%w: it holds a character that no key holds", ErrClusterKey)
	}
	k.ID = id
	copy(k.secret[:], raw)
	if k.String() != text {
		return ClusterKey{}, fmt.Errorf("%w: its checksum does not fit, so it was mistyped", ErrClusterKey)
	}
	return k, nil
}

// String returns the text of the key, which is a secret.
func (k ClusterKey) String() string {
	raw := binary.BigEndian.AppendUint32(k.secret[:len(k.secret):len(k.secret)], crc32.Checksum(append([]byte(k.ID), k.secret[:]...), keyChecksum))
	return keyPrefix + k.ID + "_" + keyText.EncodeToString(raw)
}

// MAC returns what the log keeps of the key: HMAC-SHA-256, keyed by the secret,
// of the cluster's name and the key's id. Since the secret has 256 random bits,
// nothing is learned from it, and it holds for no other cluster.
func (k ClusterKey) MAC(cluster string) []byte {
	m := hmac.New(sha256.New, k.secret[:])
	fmt.Fprintf(m, "quartermaster cluster key 1\n%s\n%s\n", cluster, k.ID)
	return m.Sum(nil)
}

// Is reports whether mac is that of this key for the cluster, in constant time.
func (k ClusterKey) Is(cluster string, mac []byte) bool { return hmac.Equal(k.MAC(cluster), mac) }
