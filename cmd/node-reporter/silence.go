package main

import (
	"encoding/binary"
	"errors"
	"time"

	"quartermaster/adapters/dcgm"
	"quartermaster/adapters/spool"
	"quartermaster/domain"
)

// silence is a time without measurements whose beginning was reported and that has not ended.
type silence struct {
	From domain.Instant `json:"from"` // 0: none
	Why  string         `json:"why"`
}

// Invariant of silences: samples and silences together cover all time from a node's first sample to
// its last, without gaps or overlaps. A silence begins where the last sample on disk ended and ends
// where the next one begins, over all lives of reporter and collector. Exceptions are steps of the
// clock, and the time until the first reading after the devices of the node changed.
//
// A silence is reported twice: without an end when it has lasted for collector.silent or the
// collector ended, and whole when it is over. A shorter silence, such as a restart of this program,
// is reported only once, whole.

// down handles that there is no collector, for a reason.
func (r *reporter) down(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(r.sampler.cut(r.sampler.at))
	r.sampler.from = 0
	r.trouble = ""
	r.silent(reason)
}

// silent reports that measurements stopped, once until they resume.
func (r *reporter) silent(why string) {
	if r.memory.Silence.From != 0 {
		r.memory.Silence.Why = why
		return
	}
	from, at := r.memory.Measured, now()
	if from == 0 || from > at { // never measured, or the clock was set back
		from = at
	}
	r.reportSilence(silence{from, why}, domain.Interval{From: from}, why)
}

// measured records that there are measurements at a moment, and reports the time before it that has
// none.
func (r *reporter) measured(f *dcgm.Frame) {
	before, over := r.memory.Measured, r.memory.Silence
	first, paused := r.measuredAt.IsZero(), f.Boot-r.boot > longestPause
	r.memory.Measured, r.boot, r.measuredAt, r.trouble = f.At, f.Boot, time.Now(), ""
	span := domain.Interval{From: over.From, To: f.At}
	why := "over; it was silent because: " + over.Why
	if over.From == 0 {
		if before == 0 || !first && !paused {
			return
		}
		if span.From = before; first {
			why = "node-reporter did not run"
		} else {
			why = "nothing was measured: the node slept, or its disk took no events"
		}
		if span.Length() >= domain.Instant(r.cfg.Collector.Silent) {
			r.reportSilence(silence{before, why}, domain.Interval{From: before}, why)
		}
	}
	if span.Empty() { // the clock was set back meanwhile
		if span.To = span.From + 1; over.From == 0 {
			span = domain.Interval{From: f.At - 1, To: f.At}
		}
	}
	r.log.Info("the collector measures again", "after", time.Duration(span.Length()).Round(time.Millisecond).String())
	r.reportSilence(silence{}, span, why)
}

// reportSilence appends an event about a silence to the spool, with a memo.
func (r *reporter) reportSilence(now silence, span domain.Interval, why string) {
	r.memory.Silence = now
	at := domain.InstantOf(time.Now())
	if span.To > 0 && span.To <= at-domain.MaxLacking { // the clock was wrong when it ended
		span.To = at
	}
	ev := &domain.CollectorSilent{Node: r.cfg.Node, Silent: credible(span, at), Reason: printable(why, 1000)}
	if err := r.append(at, ev, makeSilenceMemo(now, r.memory.Measured)); err != nil && !errors.Is(err, spool.ErrHeld) {
		r.log.Error("an event was not taken by the spool", "type", string(ev.Type()), "error", err)
	}
}

// credible returns the part of a time without measurements that the log accepts, so that an earlier
// wrong clock does not make it refuse the event. The result is empty if the time ended too long ago
// to be right.
func credible(span domain.Interval, at domain.Instant) domain.Interval {
	if span.To > 0 && span.To <= at-domain.MaxLacking {
		return domain.Interval{}
	}
	span.From = max(span.From, at-domain.MaxLacking)
	if last := at + domain.MaxAhead; max(span.From, span.To) > last {
		span.From = min(span.From, at-1)
		span.To = min(span.To, at)
	}
	if span.To > 0 && span.To <= span.From {
		span.From = span.To - 1
	}
	return span
}

// stalled reports that measurements stopped although the collector runs: all GPUs are lost, or DCGM
// repeats old values. Unless the collector gives the reason, stalled waits twice collector.silent,
// because the supervisor knows the reason better if it kills a collector that hangs.
func (r *reporter) stalled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	patience, why := 2*r.cfg.Collector.Silent, "runs, and has no value of any GPU"
	if r.trouble != "" {
		patience, why = r.cfg.Collector.Silent, r.trouble
	}
	silent := r.memory.Silence.From != 0 || r.blocked.Load() || r.hello == nil
	if silent || time.Since(r.begun) < patience || time.Since(r.measuredAt) < patience {
		return
	}
	r.put(r.sampler.cut(r.sampler.at))
	r.sampler.from = 0
	r.silent(why)
}

// holdsValue reports whether the readings contain a value.
func holdsValue(b *dcgm.Readings) bool {
	for _, v := range b.Readings {
		if v.Status == dcgm.StatusOK {
			return true
		}
	}
	return false
}

// silenceMemo marks the memo of a silence. Memos of faults begin with the kind, which is not zero.
const silenceMemo = 0

const silenceMemoBytes = 1 + 8 + 8

// makeSilenceMemo encodes what memory needs about a silence.
func makeSilenceMemo(s silence, measured domain.Instant) []byte {
	b := append(make([]byte, 0, silenceMemoBytes+len(s.Why)), silenceMemo)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.From))
	b = binary.LittleEndian.AppendUint64(b, uint64(measured))
	return append(b, s.Why...)
}

func readSilenceMemo(b []byte) (s silence, measured domain.Instant, ok bool) {
	if len(b) < silenceMemoBytes || b[0] != silenceMemo {
		return s, 0, false
	}
	s.From = domain.Instant(binary.LittleEndian.Uint64(b[1:]))
	s.Why = string(b[silenceMemoBytes:])
	return s, domain.Instant(binary.LittleEndian.Uint64(b[9:])), true
}
