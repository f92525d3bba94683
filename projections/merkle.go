package projections

import (
	"crypto/sha256"
	"fmt"
)

// Digests of parts form a Merkle tree with the hashes of RFC 6962 §2.1: a leaf is the SHA-256 of 0
// and its text, a node that of 1 and its two children. So a part can be shown to belong to a root
// by a few hashes.

// leaf returns the hash of a part in the tree. Its text is the part's name, a space, the digest in
// hexadecimal, and a line feed.
func (d *PartDigest) leaf() [32]byte {
	return sha256.Sum256(fmt.Appendf([]byte{0}, "%s %x\n", d.PartKey, d.Digest))
}

// PartsRoot returns the root of the Merkle tree over parts, which MUST be ordered by
// [PartKey.Compare].
func PartsRoot(parts []PartDigest) [32]byte {
	switch len(parts) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return parts[0].leaf()
	}
	half := 1 // the greatest power of two below the number of parts
	for 2*half < len(parts) {
		half *= 2
	}
	left, right := PartsRoot(parts[:half]), PartsRoot(parts[half:])
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}
