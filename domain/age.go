package domain

import (
	"fmt"
	"time"
)

// The default limits on how old an observation may be when it is accepted, and on how far it may
// lie ahead of the clock.
const (
	MaxAge   = 7 * Day
	MaxAhead = 10 * 60 * Second
)

// MaxLacking is the longest time without measurements that a node may report. It allows for a node
// that was off for a year. An earlier start comes from a clock that was never set: those start in
// 1970 or 2000.
const MaxLacking = 400 * Day

// ObservedTime returns the time that an observation is about, from its first instant to its last:
// what nodes, monitoring systems and queues measure, and how a node describes itself. It returns
// false for decisions, declarations and corrections, which state times of their own. The time
// without measurements that a node reports may be older, see [MaxLacking].
func ObservedTime(env *Envelope) (from, to Instant, observed bool) {
	from, to = env.Time, env.Time
	cover := func(i Interval) {
		if i.From > 0 && i.To > 0 {
			from, to = min(from, i.From), max(to, i.To)
		}
	}
	switch ev := env.Event.(type) {
	case *NodeSampled:
		cover(ev.Interval)
	case *ServingSampled:
		cover(ev.Interval)
	case *EnergyMetered:
		cover(ev.Interval)
	case *MetricsObserved:
		for _, ms := range ev.Offset {
			at := ev.Base + Instant(ms)*Second/1000
			from, to = min(from, at), max(to, at)
		}
	case *NodeRegistered:
		if ev.InServiceFrom > 0 {
			from, to = min(from, ev.InServiceFrom), max(to, ev.InServiceFrom)
		}
	case *DemandObserved, *JobQueued, *JobStarted, *JobFinished,
		*GPUFaultObserved, *NodeCordoned, *NodeDrained, *NodeReturned, *CollectorSilent, *SpoolDropped,
		*ReplicasObserved:
	default:
		return 0, 0, false
	}
	return from, to, true
}

// CheckAge returns an error for an observation that is older than age or further ahead of now than
// ahead. Events that are not observations may be of any time.
func CheckAge(env *Envelope, now Instant, age, ahead time.Duration) error {
	from, to, observed := ObservedTime(env)
	switch {
	case !observed:
	case from < now-Instant(age):
		return fmt.Errorf(
			"%s is of %s, more than %s ago: what is older is imported, or appended by an operator",
			env.Event.Type(), from, age,
		)
	case to > now+Instant(ahead):
		return fmt.Errorf(
			"%s is of %s, more than %s ahead of the clock here, %s: look at the clock of the node",
			env.Event.Type(), to, ahead, now,
		)
	}
	return nil
}
