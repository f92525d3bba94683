package app

import (
	"fmt"
	"math"
	"slices"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
)

// durability says whether the loss of a machine, or of its power, may lose acknowledged events.
// Settings that lose them without any such loss are refused earlier.
type durability struct {
	Topics []domain.Topic
	Unsafe bool
	Found  string
	Next   string // what to set; empty where it is safe
}

// Durabilities groups topics with the same findings, as docs/operate/diverged.md describes them.
func Durabilities(ds []kafka.Durability) (out []durability) {
	for _, d := range ds {
		said := durable(d)
		i := slices.IndexFunc(out, func(o durability) bool { return o.Found == said.Found })
		if i < 0 {
			i = len(out)
			out = append(out, said)
		}
		out[i].Topics = append(out[i].Topics, d.Topic)
	}
	return out
}

const (
	moreReplicas = "let three brokers on separate power hold these topics (kafka-reassign-partitions.sh), and set kafka.replication: 3"
	orFlush      = ", or flush.messages=1 on them (kafka-configs.sh --alter --entity-type topics --entity-name TOPIC --add-config flush.messages=1)"
	seeDiverged  = ": docs/operate/diverged.md"
)

func durable(d kafka.Durability) durability {
	kept := fmt.Sprintf("replicas: %d, min.insync.replicas: %d, flush.messages: %s, flush.ms: %s", d.Replicas, d.InSync, flushed(d.FlushMessages), flushed(d.FlushMs))
	switch {
	case d.Replicas < 2 && !d.Flushed():
		return durability{Unsafe: true, Next: moreReplicas + orFlush + seeDiverged,
			Found: kept + "; the only broker that has an event acknowledges it before its disk has it: a power cut loses acknowledged events"}
	case d.Replicas < 2:
		return durability{Found: kept + "; an acknowledged event outlives a power cut, and not the loss of its disk"}
	case d.Replicas < 3:
		return durability{Unsafe: true, Next: moreReplicas + seeDiverged,
			Found: kept + "; nothing is appended while one of the two brokers is away, and where both lose power acknowledged events are lost"}
	}
	return durability{Found: kept + "; an acknowledged event outlives the loss of a machine"}
}

// flushed formats a setting for when a broker flushes to disk.
func flushed(n int64) string {
	switch n {
	case 0:
		return "not told"
	case math.MaxInt64:
		return "never"
	}
	return fmt.Sprint(n)
}
