package app

import (
	"context"
	"errors"
	"time"

	"quartermaster/domain"
)

// TrimQuestion says what to delete from the log: segments whose records are all before a time, or
// older than Keep. One of the two is needed.
type TrimQuestion struct {
	Before string // a time, as [ParseTime] reads it
	Keep   time.Duration
	Delete bool // else it is a dry run
}

// TrimPlan is what can be deleted from the log, or was.
type TrimPlan struct {
	Location   string             `json:"location"` // of the archive that has it
	Before     domain.Instant     `json:"before"`
	Deleted    bool               `json:"deleted"`
	Records    int64              `json:"records"`
	Partitions []TrimmedPartition `json:"partitions"` // of which something can be deleted
}

// TrimmedPartition is what can be deleted of a partition, or was.
type TrimmedPartition struct {
	Partition string `json:"partition"`
	LogFirst  int64  `json:"log_first"` // the first offset of the log, before
	TrimTo    int64  `json:"trim_to"`   // its first offset afterwards
	Records   int64  `json:"records"`
}

// Trim deletes from the log what the archive has, after it has read it again from both and compared
// it. It deletes nothing, in any partition, if the archive or the log cannot be read or they differ.
func (c *Caller) Trim(ctx context.Context, q TrimQuestion) (*TrimPlan, error) {
	before, err := q.before()
	if err != nil {
		return nil, err
	}
	h, err := c.archived(ctx)
	if err != nil {
		return nil, err
	}
	if q.Delete && h.Broker != nil && h.Broker.ReadOnly() {
		return nil, &DeniedError{Err: h.Broker.Refusal()}
	}
	ans := &TrimPlan{Location: h.archive.String(), Before: before, Partitions: []TrimmedPartition{}}
	tps := domain.AllPartitions()
	first, _, err := h.Log.BrokerBounds(ctx, tps)
	if err != nil {
		return nil, err
	}
	to := domain.Position{}
	for _, tp := range tps {
		since, err := h.archive.Since(ctx, tp, before)
		if err != nil {
			return nil, err
		}
		if to[tp], err = h.archive.Confirm(ctx, h.Log, tp, first[tp], since); err != nil {
			return nil, err
		}
		if n := to[tp] - first[tp]; n > 0 {
			ans.Records += n
			ans.Partitions = append(ans.Partitions, TrimmedPartition{tp.String(), first[tp], to[tp], n})
		}
	}
	if !q.Delete {
		if h.Broker != nil && ans.Records > 0 {
			h.app.tell("the embedded log deletes whole files of 16 MiB and keeps the last two of each partition, so fewer events may go")
		}
		return ans, nil
	}
	ans.Deleted, ans.Records, ans.Partitions = true, 0, ans.Partitions[:0]
	for _, tp := range tps {
		if to[tp] == first[tp] {
			continue
		}
		now, err := h.Log.DeleteRecords(ctx, tp, to[tp])
		if err != nil {
			return nil, err
		}
		if n := now - first[tp]; n > 0 { // the embedded log deletes whole files
			ans.Records += n
			ans.Partitions = append(ans.Partitions, TrimmedPartition{tp.String(), first[tp], now, n})
		}
	}
	return ans, nil
}

// before returns the time of a question.
func (q *TrimQuestion) before() (domain.Instant, error) {
	switch {
	case (q.Before == "") == (q.Keep == 0):
		return 0, &InvalidError{Err: errors.New("say what to trim: everything before a time, or older than a duration")}
	case q.Keep < 0:
		return 0, invalid("keep", "%s is negative", q.Keep)
	case q.Keep > 0:
		return Now() - domain.Instant(q.Keep), nil
	}
	t, err := ParseTime(q.Before)
	if err != nil {
		return 0, invalid("before", "%w", err)
	}
	if t > Now() {
		return 0, invalid("before", "%s is in the future", t)
	}
	return t, nil
}
