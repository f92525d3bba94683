// Package domain is the vocabulary of Quartermaster: the events, which are its
// only source of truth, and the plain types that they are made of.
//
// An [Event] is an immutable fact in the past tense. The log stores it inside an
// [Envelope], which says who observed it, its stream and sequence number, when it
// was true and which workspace and cluster it concerns. The set of events is
// closed: [Types] lists it, [TopicOf] gives the topic of each, and handlers switch
// over the concrete types.
//
// What always holds:
//
//   - A stream (source, incarnation, topic, partition) numbers its events from
//     1 without holes, so that a repeat and a loss can both be detected.
//   - Of two facts about one thing, [Precedence] decides which wins, never the order
//     of arrival.
//   - A decision ([NeedsSignature]) is void without an Ed25519 signature.
//   - Money is [Decimal], time is [Instant] in UTC, intervals are half-open.
//   - No event has a field for users' prompts, outputs or model weights.
//
// The package uses no clock, no randomness and no I/O.
package domain
