// Package merkle defines the Merkle trees of the log: what a leaf is, how leaves are hashed, what is
// stored of a tree, and how a record, a partition and an earlier state are proven from it.
//
// There are three kinds of trees. All have the hashes of RFC 6962 §2.1.
//
//	partition   one leaf for each offset of a partition, in order: [AppendLeaf]
//	head        one leaf for each partition that has records: [Line]
//	heads       one leaf for each [Head] that was ever signed: the log of a C2SP checkpoint
//
// The tree of heads only ever grows, so a witness that sees nothing but its checkpoints can verify
// that no head was changed or withdrawn. A head fixes the size and the root of every partition, and so
// every record. A record is proven by three paths: to the root of its partition, from there to the
// head, and from there to the checkpoint.
//
// What always holds:
//
//   - Equal records give equal leaves, whatever a broker did to their batches: compression, batch
//     boundaries and the leader's epoch are not in a leaf.
//   - Of a tree, the hashes of level 8 are stored: one for every 256 leaves. Hashes above are computed
//     from these, hashes below from the leaves.
package merkle
