package merkle

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"quartermaster/domain"
)

// Hash is the hash of a leaf or node: a SHA-256. Its text is base64 (RFC 4648 §4), as in C2SP
// formats.
type Hash [sha256.Size]byte

// String returns the text.
func (h Hash) String() string { return base64.StdEncoding.EncodeToString(h[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.Strict().DecodeString(string(text))
	if err != nil || len(b) != len(h) {
		return fmt.Errorf("%q is not a hash of %d bytes in base64", text, len(h))
	}
	copy(h[:], b)
	return nil
}

// Prefixes of hashed data, so that no leaf can be taken for a node (RFC 6962 §2.1).
const (
	leafPrefix = 0
	nodePrefix = 1
)

// Kinds of leaves of a partition.
const (
	kindRecord = 1
	kindSpan   = 2
)

// AppendLeaf appends the canonical form of a record to b: the data of its leaf. Numbers are 8 bytes,
// big-endian. A record is
//
//	1, time in nanoseconds, content (see [domain.Record.AppendContent])
//
// and a [domain.Span] is the leaf of each of its offsets:
//
//	2, time, first offset, last offset, SHA-256 of the batch
//
// The offset of a record is its index in the tree. The leader's epoch is in no leaf, because a log
// that was restored has others. The fault of a span is not, because it follows from the batch.
func AppendLeaf(b []byte, r *domain.Record) []byte {
	be := binary.BigEndian
	if r.Span == nil {
		b = append(b, kindRecord)
		b = be.AppendUint64(b, uint64(r.Time))
		return r.AppendContent(b)
	}
	b = append(b, kindSpan)
	b = be.AppendUint64(b, uint64(r.Time))
	b = be.AppendUint64(b, uint64(r.Offset))
	b = be.AppendUint64(b, uint64(r.Span.Last))
	return append(b, r.Span.SHA256[:]...)
}

// ParseLeaf returns the record, or span, of the data of a leaf at an index. It shares memory with data.
func ParseLeaf(data []byte, index int64) (*domain.Record, error) {
	c := cursor{data}
	kind := c.take(1)
	at := domain.Instant(c.number())
	r := &domain.Record{Offset: index, Time: at}
	switch {
	case string(kind) == string(rune(kindRecord)):
		r.Key = c.part()
		n, err := strconv.Atoi(string(c.part()))
		if err != nil || n < 0 || n > len(c.rest) {
			return nil, errors.New("leaf has no number of headers")
		}
		for range n {
			r.Headers = append(r.Headers, domain.Header{Key: string(c.part()), Value: c.part()})
		}
		r.Value = c.part()
	case string(kind) == string(rune(kindSpan)):
		r.Offset = int64(c.number())
		r.Span = &domain.Span{Last: int64(c.number())}
		copy(r.Span.SHA256[:], c.take(sha256.Size))
		if index < r.Offset || index > r.Span.Last {
			return nil, fmt.Errorf("leaf %d is a span of the offsets %d to %d", index, r.Offset, r.Span.Last)
		}
	}
	if string(AppendLeaf(nil, r)) != string(data) {
		return nil, errors.New("leaf is not the canonical form of a record")
	}
	return r, nil
}

// cursor reads the parts of a leaf. Beyond its end everything is empty.
type cursor struct{ rest []byte }

func (c *cursor) take(n uint64) []byte {
	n = min(n, uint64(len(c.rest)))
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) number() uint64 {
	b := c.take(8)
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func (c *cursor) part() []byte { return c.take(c.number()) }

// LeafHash returns the hash of a leaf with the given data.
func LeafHash(data []byte) Hash {
	return sha256.Sum256(append([]byte{leafPrefix}, data...))
}

// NodeHash returns the hash of a node with two children.
func NodeHash(left, right Hash) Hash {
	var b [1 + 2*sha256.Size]byte
	b[0] = nodePrefix
	copy(b[1:], left[:])
	copy(b[1+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}

func sum(b []byte) Hash { return sha256.Sum256(b) }

// EmptyRoot is the root of a tree without leaves.
func EmptyRoot() Hash { return sha256.Sum256(nil) }
