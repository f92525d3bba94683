// Package archive keeps sealed segments of the log outside the broker, so that the log may be trimmed
// and can be rebuilt after its loss.
//
// What always holds:
//
//   - A segment is the exact record batches of a partition, as the broker held them, in the order of
//     their offsets and without holes. The segments of a partition begin at offset 0.
//   - A segment counts as archived only after its object was read back, and its SHA-256, the
//     checksum of every batch and every offset were right. Only then its manifest is written.
//   - Manifests of a partition are chained: each has the SHA-256 of the one before. A missing, changed
//     or exchanged manifest is a [DamageError]. So is one whose Merkle tree is not that of its records.
//   - Heads are a log of their own: what every chain was at some time. A checkpoint of it is signed.
//   - No object is ever replaced or removed. An object that turns out to be wrong is superseded by
//     one with another name.
//   - Any number of processes may read. Two that archive at a time cannot both write the manifest of
//     a segment: the later one gets an [ErrForked] and changes nothing.
//
// # Layout
//
//	archive.json                               the archive's id and the log's id
//	segments/TOPIC/PARTITION/FIRST-SHA256.zst  record batches (v2), compressed as one zstd stream
//	manifests/TOPIC/PARTITION/FIRST.json       what a segment holds: [Manifest]
//	heads/NUMBER.txt                           what is archived of every partition: [merkle.Head]
//	checkpoints/SIZE-SHA256.note               a C2SP signed checkpoint of so many heads
//
// FIRST, NUMBER and SIZE have 20 digits. The decompressed bytes of a segment can be read by every program
// that reads Kafka's record batches. A segment object without a manifest is left by a crash and is
// not part of the archive.
//
// # Life of a segment
//
//  1. [Archive.Seal] reads batches from the log, after it has compared the last archived record with
//     the log's.
//  2. At [Policy].Bytes, or when its first record is older than [Policy].Age, a segment is sealed: its
//     object is put under a name that has the SHA-256 of its bytes.
//  3. The object is read back and checked.
//  4. Its records are added to the Merkle tree of the partition (package merkle). The manifest has what
//     is stored of it, and a signed checkpoint of it if there is a key.
//  5. The manifest is put, and read back. From now on the segment is archived. A crash before that
//     leaves an object that the next run uses, if it seals the same bytes, or ignores.
//  6. [Archive.Checkpoint] states what is archived in the next head.
//  7. [Archive.Verify] reads it again before the log is trimmed.
package archive
