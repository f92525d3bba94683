package domain

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Topic is one of the eleven Kafka topics that hold all events. Order is guaranteed only within a
// topic for one key.
type Topic string

// The topics. A topic's events are keyed alike; see [TopicSpecs].
const (
	TopicWorkspaces  Topic = "qm.workspaces"  // key: workspace
	TopicFleet       Topic = "qm.fleet"       // key: cluster
	TopicTelemetry   Topic = "qm.telemetry"   // key: cluster, and its shard; see [ShardKey]
	TopicHardware    Topic = "qm.hardware"    // key: cluster, and its shard
	TopicDeployments Topic = "qm.deployments" // key: cluster
	TopicBilling     Topic = "qm.billing"     // key: issuer + billing account
	TopicMarket      Topic = "qm.market"      // key: provider + region, or currency pair
	TopicProcurement Topic = "qm.procurement" // key: workspace
	TopicBooks       Topic = "qm.books"       // key: ledger entity
	TopicAccess      Topic = "qm.access"      // key: workspace
	TopicIncidents   Topic = "qm.incidents"   // key: workspace
)

// MaxDelivered is the maximum number of events of a stream that a node delivers at a time. Folds
// remember at least that many, so that a redelivered event is compared with the first delivery.
const MaxDelivered = 64

// TopicSpec is a topic as it must be created. Partition counts are fixed for the life of a topic,
// because the partition of a key is part of the history: growing needs a new topic and a cut-over
// event.
type TopicSpec struct {
	Topic      Topic
	Partitions int
}

// TopicSpecs returns the topics in their fixed order. That order is also the
// order of [Position] in text.
func TopicSpecs() []TopicSpec {
	return []TopicSpec{
		{TopicAccess, 4},
		{TopicBilling, 4},
		{TopicBooks, 1},
		{TopicDeployments, 4},
		{TopicFleet, 4},
		{TopicHardware, 4},
		{TopicIncidents, 1},
		{TopicMarket, 4},
		{TopicProcurement, 1},
		{TopicTelemetry, 8},
		{TopicWorkspaces, 1},
	}
}

// Partitions returns the partition count of a topic, 0 when there is no such topic.
func (t Topic) Partitions() int {
	for _, s := range TopicSpecs() {
		if s.Topic == t {
			return s.Partitions
		}
	}
	return 0
}

// TopicPartition names one partition of a topic.
type TopicPartition struct {
	Topic     Topic
	Partition int
}

// String returns "topic/partition".
func (p TopicPartition) String() string {
	return string(p.Topic) + "/" + strconv.Itoa(p.Partition)
}

// Compare orders by topic, then partition number.
func (p TopicPartition) Compare(q TopicPartition) int {
	if c := strings.Compare(string(p.Topic), string(q.Topic)); c != 0 {
		return c
	}
	return p.Partition - q.Partition
}

// AllPartitions returns every partition of every topic, in order.
func AllPartitions() []TopicPartition {
	var ps []TopicPartition
	for _, s := range TopicSpecs() {
		for i := range s.Partitions {
			ps = append(ps, TopicPartition{s.Topic, i})
		}
	}
	return ps
}

// Header is one Kafka record header. Keys are not unique within a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is one entry of the log as Kafka holds it, before it is decoded. A reader may reuse the
// memory behind Key, Value and Headers after the call that returned the record. Callers that keep
// it MUST copy it.
type Record struct {
	Topic     Topic
	Partition int
	Offset    int64 // dense from 0 within the partition; ignored on append
	Time      Instant
	Key       []byte
	Value     []byte
	Headers   []Header
	Epoch     int32 // of the leader that appended it; negative: unknown; ignored on append
	// Span is set when this is not a record but a run of offsets without records.
	Span *Span
}

// AppendContent appends the content of a record to b: key, number of headers, headers and value,
// each preceded by its length. It excludes attributes of the record's place, such as the time at
// which it was appended, so that a repeat has the same content.
func (r *Record) AppendContent(b []byte) []byte {
	part := func(p []byte) {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	var number [20]byte
	part(r.Key)
	part(strconv.AppendInt(number[:0], int64(len(r.Headers)), 10))
	for i := range r.Headers {
		b = binary.BigEndian.AppendUint64(b, uint64(len(r.Headers[i].Key)))
		b = append(b, r.Headers[i].Key...)
		part(r.Headers[i].Value)
	}
	part(r.Value)
	return b
}

// Hash returns the SHA-256 of a record's content, or of the batch of a span.
func (r *Record) Hash() [32]byte {
	if r.Span != nil {
		return r.Span.SHA256
	}
	return sha256.Sum256(r.AppendContent(nil))
}

// Anchor identifies the last record before a position of a partition. A computation from the log
// keeps it beside the position, to check that the log is still the one that was read: a broker that
// lost the end of a partition fills its offsets with other records. The zero value means that there
// is no record.
type Anchor struct {
	Offset int64
	Epoch  int32 // of the leader that appended it; negative: unknown
	Hash   [32]byte
}

// Anchor returns the anchor that identifies the record.
func (r *Record) Anchor() Anchor { return Anchor{r.Next() - 1, r.Epoch, r.Hash()} }

// IsZero reports whether there is no record.
func (a Anchor) IsZero() bool { return a == Anchor{} }

func (a Anchor) String() string {
	if a.IsZero() {
		return "no record"
	}
	return fmt.Sprintf("offset %d, epoch %d, sha256 %x", a.Offset, a.Epoch, a.Hash)
}

// Span is a run of offsets, starting at the offset of its [Record], without usable records. Its
// Record has neither key nor value; its time is the latest of the batch.
type Span struct {
	Last int64 // the last offset
	// Fault says why the records that were written there cannot be used, one for each offset. It is
	// empty when there were none, but a control record of Kafka, such as the end of a transaction.
	Fault string
	// SHA256 is the hash of the batch in the log, without what brokers change: of the bytes that
	// its checksum covers.
	SHA256 [32]byte
}

// Next returns the offset that follows the record or span.
func (r *Record) Next() int64 {
	if r.Span != nil {
		return r.Span.Last + 1
	}
	return r.Offset + 1
}

// IsMarker reports whether this is a control record of Kafka, which carries no data.
func (r *Record) IsMarker() bool { return r.Span != nil && r.Span.Fault == "" }

// Header returns the value of the first header named key, nil when there is none.
func (r *Record) Header(key string) []byte {
	for i := range r.Headers {
		if r.Headers[i].Key == key {
			return r.Headers[i].Value
		}
	}
	return nil
}

// PartitionOf returns the partition of a key among n: the 32-bit murmur2 hash with Kafka's seed,
// sign bit cleared, modulo n. It agrees with every Kafka client that uses the Java default
// partitioner.
//
// Source: org.apache.kafka.common.utils.Utils.murmur2 and toPositive.
func PartitionOf(key []byte, n int) int {
	return int(murmur2(key)&0x7fffffff) % n
}

func murmur2[T string | []byte](data T) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(data))
	for len(data) >= 4 {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}

// Position says how far into the log a result has read: for each partition, the offset of the next
// record to read. A partition that is absent is at 0. Positions are partially ordered; see
// [Position.Covers].
type Position map[TopicPartition]int64

// Covers reports whether p has read everything that q has.
func (p Position) Covers(q Position) bool {
	for tp, next := range q {
		if p[tp] < next {
			return false
		}
	}
	return true
}

// Records returns how many records lie before the position.
func (p Position) Records() int64 {
	var n int64
	for _, next := range p {
		n += next
	}
	return n
}

// Clone returns an independent copy.
func (p Position) Clone() Position {
	c := make(Position, len(p))
	for tp, next := range p {
		c[tp] = next
	}
	return c
}

// String returns the canonical text form of a position, for example
// "qm.fleet/0=12,qm.telemetry/3=4711": partitions in order, without those at 0. The beginning of
// the log is "0".
func (p Position) String() string {
	tps := make([]TopicPartition, 0, len(p))
	for tp, next := range p {
		if next != 0 {
			tps = append(tps, tp)
		}
	}
	if len(tps) == 0 {
		return "0"
	}
	sort.Slice(tps, func(i, j int) bool { return tps[i].Compare(tps[j]) < 0 })
	var b strings.Builder
	for i, tp := range tps {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(tp.String())
		b.WriteByte('=')
		b.WriteString(strconv.FormatInt(p[tp], 10))
	}
	return b.String()
}

// ParsePosition reads the form that [Position.String] writes. It accepts the partitions in any
// order. It refuses unknown topics, partitions that the topic does not have, repeats and negative
// offsets.
func ParsePosition(s string) (Position, error) {
	p := Position{}
	if s == "0" {
		return p, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		name, offset, ok := strings.Cut(part, "=")
		topic, num, ok2 := strings.Cut(name, "/")
		if !ok || !ok2 {
			return nil, fmt.Errorf("position %q: want topic/partition=offset", part)
		}
		i, err := strconv.Atoi(num)
		if err != nil || !slices.Contains(AllPartitions(), TopicPartition{Topic(topic), i}) {
			return nil, fmt.Errorf("position %q: no such partition", part)
		}
		next, err := strconv.ParseInt(offset, 10, 64)
		if err != nil || next < 0 {
			return nil, fmt.Errorf("position %q: offset is not a whole number from 0", part)
		}
		tp := TopicPartition{Topic(topic), i}
		if _, twice := p[tp]; twice {
			return nil, fmt.Errorf("position %q: partition named twice", part)
		}
		p[tp] = next
	}
	return p, nil
}
