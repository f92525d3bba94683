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
type ClusterKey struct{ secretKey }

// ServiceKey lets a program ask as a service account of a workspace. It is like a [ClusterKey], and its text is
// qms_ID_SECRET.
type ServiceKey struct{ secretKey }

// secretKey is an id and a secret, with a text.
type secretKey struct {
	ID     string // identifies the key in the log and in messages; not secret
	prefix string
	secret [32]byte
}

const (
	clusterPrefix = "qmk_"
	servicePrefix = "qms_"
	keyIDSize     = 6 // bytes
)

var (
	keyText     = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	keyChecksum = crc32.MakeTable(crc32.Castagnoli)
)

// ErrClusterKey and ErrServiceKey are wrapped by the errors of [ParseClusterKey] and [ParseServiceKey].
// Whoever configured the key should copy it again from where it was shown.
var (
	ErrClusterKey = errors.New("not a cluster key")
	ErrServiceKey = errors.New("not a key of a service account")
)

// NewClusterKey makes a key of 256 random bits.
func NewClusterKey(random io.Reader) (ClusterKey, error) {
	k, err := newKey(clusterPrefix, random)
	return ClusterKey{k}, err
}

// NewServiceKey makes a key of 256 random bits.
func NewServiceKey(random io.Reader) (ServiceKey, error) {
	k, err := newKey(servicePrefix, random)
	return ServiceKey{k}, err
}

func newKey(prefix string, random io.Reader) (secretKey, error) {
	k := secretKey{prefix: prefix}
	id := make([]byte, keyIDSize)
	for _, b := range [][]byte{id, k.secret[:]} {
		if _, err := io.ReadFull(random, b); err != nil {
			return secretKey{}, fmt.Errorf("make a key: %w", err)
		}
	}
	k.ID = keyText.EncodeToString(id)
	return k, nil
}

// ParseClusterKey reads the text of a key. The error never quotes it.
func ParseClusterKey(text string) (ClusterKey, error) {
	k, err := parseKey(clusterPrefix, ErrClusterKey, text)
	return ClusterKey{k}, err
}

// IsServiceKey reports whether a text begins as keys of service accounts do.
func IsServiceKey(text string) bool { return strings.HasPrefix(text, servicePrefix) }

// ParseServiceKey reads the text of a key. The error never quotes it.
func ParseServiceKey(text string) (ServiceKey, error) {
	k, err := parseKey(servicePrefix, ErrServiceKey, text)
	return ServiceKey{k}, err
}

func parseKey(prefix string, not error, text string) (secretKey, error) {
	body, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return secretKey{}, fmt.Errorf("%w: it does not begin with %s", not, prefix)
	}
	id, rest, _ := strings.Cut(body, "_")
	k := secretKey{prefix: prefix}
	if n := keyText.EncodedLen(len(k.secret) + crc32.Size); len(id) != keyText.EncodedLen(keyIDSize) || len(rest) != n {
		want := len(prefix) + keyText.EncodedLen(keyIDSize) + 1 + n
		return secretKey{}, fmt.Errorf("%w: it has %d characters, want %d; was it cut?", not, len(text), want)
	}
	if _, err := keyText.DecodeString(id); err != nil {
		return secretKey{}, fmt.Errorf("%w: it contains a character that keys never contain", not)
	}
	raw, err := keyText.DecodeString(rest)
	if err != nil {
		return secretKey{}, fmt.Errorf("%w: it contains a character that keys never contain", not)
	}
	k.ID = id
	copy(k.secret[:], raw)
	if k.String() != text {
		return secretKey{}, fmt.Errorf("%w: its checksum does not match; it was mistyped", not)
	}
	return k, nil
}

// String returns the text of the key, which is a secret.
func (k secretKey) String() string {
	sum := crc32.Checksum(append([]byte(k.ID), k.secret[:]...), keyChecksum)
	raw := binary.BigEndian.AppendUint32(k.secret[:len(k.secret):len(k.secret)], sum)
	return k.prefix + k.ID + "_" + keyText.EncodeToString(raw)
}

// mac returns HMAC-SHA-256, keyed by the secret, of what the key is for and its id.
func (k secretKey) mac(what, of string) []byte {
	m := hmac.New(sha256.New, k.secret[:])
	fmt.Fprintf(m, "quartermaster %s key 1\n%s\n%s\n", what, of, k.ID)
	return m.Sum(nil)
}

// MAC returns what the log keeps of the key: HMAC-SHA-256, keyed by the secret, of the cluster's
// name and the key's id. The secret has 256 random bits, so the MAC reveals nothing about it. It is
// valid for this cluster only.
func (k ClusterKey) MAC(cluster string) []byte { return k.mac("cluster", cluster) }

// Is reports whether mac is this key's MAC for the cluster, in constant time.
func (k ClusterKey) Is(cluster string, mac []byte) bool { return hmac.Equal(k.MAC(cluster), mac) }

// MAC returns what the log keeps of the key, like [ClusterKey.MAC]. It is valid for this account of this workspace only.
func (k ServiceKey) MAC(workspace, account string) []byte {
	return k.mac("service", workspace+"\n"+account)
}

// Is reports whether mac is this key's MAC for the account, in constant time.
func (k ServiceKey) Is(workspace, account string, mac []byte) bool {
	return hmac.Equal(k.MAC(workspace, account), mac)
}
