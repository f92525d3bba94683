// Package audit reads an archive of the log and verifies it, with code of its own: it shares with the
// server what a record is and how it is hashed (domain, domain/merkle), and nothing else. A mistake in
// the server's archive, batch decoder or tree is not repeated here.
//
// It only reads. It needs neither the log nor a network.
//
// # What is verified
//
//  1. Every manifest of a partition continues the one before it.
//  2. Every segment has the batches that its manifest says, with valid checksums and dense offsets.
//  3. The Merkle tree over its records is the one in the manifest.
//  4. Every head says of each partition what the manifests say.
//  5. Every checkpoint has the signatures that are asked for, and the root of the heads.
//
// From 5 follow 4 to 1 for whoever trusts the signatures: who changes a record has to change the root of
// a checkpoint.
package audit
