// Package domain is the vocabulary of Quartermaster: the events that are its
// only source of truth, and the plain types that they are made of.
//
// An [Event] is a fact in the past tense that nobody changes any more. It
// stands in the log inside an [Envelope], which says who observed it, as which
// number of which stream, when it was true and whom it concerns. The set of
// events is closed: [Types] lists it, [TopicOf] gives each its topic, and
// handlers switch over the concrete types.
//
// What always holds:
//
//   - A stream (source, incarnation, topic, partition) numbers its events from
//     1 without holes, so that a repeat and a loss can both be seen.
//   - Of two facts about one thing, [Precedence] decides which wins, never the order
//     of arrival.
//   - A decision ([NeedsSignature]) is void without an Ed25519 signature.
//   - Money is [Decimal], time is [Instant] in UTC, intervals are half-open.
//   - Nothing of a user's prompts, outputs or weights has a field here.
//
// The package knows no clock, no randomness and no I/O.
package domain
