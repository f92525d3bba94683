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

// ClusterKey lets the nodes and the Prometheus of one cluster push events of that cluster, and
// nothing else. It is shown once, when it is made. The log keeps the result of [ClusterKey.MAC],
// from which the key cannot be recovered.
//
// Its text is qmk_ID_SECRET: an id of ten and a secret of 59 lower-case letters and digits. The
// last seven are a checksum (CRC-32C of the id and the secret), so that a mistyped or truncated key
// can be told from an unknown one.
type ClusterKey struct {
	ID     string // identifies the key in the log and in messages; not secret
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

// ErrClusterKey is wrapped by the errors of [ParseClusterKey]. Whoever configured the key should
// copy it again from where it was shown.
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
		want := len(keyPrefix) + keyText.EncodedLen(keyIDSize) + 1 + n
		return ClusterKey{}, fmt.Errorf("%w: it has %d characters, want %d; was it cut?", ErrClusterKey, len(text), want)
	}
	if _, err := keyText.DecodeString(id); err != nil {
		return ClusterKey{}, fmt.Errorf("%w: it contains a character that keys never contain", ErrClusterKey)
	}
	raw, err := keyText.DecodeString(rest)
	if err != nil {
		return ClusterKey{}, fmt.Errorf("%w: it contains a character that keys never contain", ErrClusterKey)
	}
	k.ID = id
	copy(k.secret[:], raw)
	if k.String() != text {
		return ClusterKey{}, fmt.Errorf("%w: its checksum does not match; it was mistyped", ErrClusterKey)
	}
	return k, nil
}

// String returns the text of the key, which is a secret.
func (k ClusterKey) String() string {
	sum := crc32.Checksum(append([]byte(k.ID), k.secret[:]...), keyChecksum)
	raw := binary.BigEndian.AppendUint32(k.secret[:len(k.secret):len(k.secret)], sum)
	return keyPrefix + k.ID + "_" + keyText.EncodeToString(raw)
}

// MAC returns what the log keeps of the key: HMAC-SHA-256, keyed by the secret, of the cluster's
// name and the key's id. The secret has 256 random bits, so the MAC reveals nothing about it. It is
// valid for this cluster only.
func (k ClusterKey) MAC(cluster string) []byte {
	m := hmac.New(sha256.New, k.secret[:])
	fmt.Fprintf(m, "quartermaster cluster key 1\n%s\n%s\n", cluster, k.ID)
	return m.Sum(nil)
}

// Is reports whether mac is this key's MAC for the cluster, in constant time.
func (k ClusterKey) Is(cluster string, mac []byte) bool { return hmac.Equal(k.MAC(cluster), mac) }
