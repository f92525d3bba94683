package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/kafka/archive"
	"quartermaster/domain"
)

// Restored is a new log that was filled from an archive.
type Restored struct {
	Archive  string `json:"archive"`  // the id of the archive
	Location string `json:"location"` // where it is
	Was      string `json:"was"`      // the id of the archived log
	Log      string `json:"log"`      // the id of the new log
	Records  int64  `json:"records"`  // that the new log has and that were compared
	Position string `json:"position"` // the end of the new log
}

// RestoreLog fills a new log from the archive of a lost one, with the same records at the same
// offsets. It creates the topics. It continues where an interrupted call stopped.
func (c *Caller) RestoreLog(ctx context.Context, from string) (_ *Restored, err error) {
	a, was, err := c.archiveIn(ctx, from)
	if err != nil {
		return nil, err
	}
	if err := c.app.Close(); err != nil {
		return nil, err
	}
	h, err := c.app.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Shut()) }()
	switch {
	case h.ID == was:
		return nil, &ConflictError{fmt.Errorf("this is the archived log itself, %s: restore into a new one", was)}
	case h.Broker != nil && h.Broker.ReadOnly():
		return nil, &DeniedError{Err: h.Broker.Refusal()}
	}
	if err := h.Log.EnsureTopics(ctx, domain.TopicSpecs()); err != nil {
		return nil, err
	}
	ans := &Restored{Location: a.String(), Was: was, Log: h.ID}
	if ans.Archive, err = a.ID(ctx); err != nil {
		return nil, err
	}
	tps := domain.AllPartitions()
	first, next, err := h.Log.BrokerBounds(ctx, tps)
	if err != nil {
		return nil, err
	}
	var total int64
	for _, tp := range tps {
		end, err := a.End(ctx, tp)
		if err != nil {
			return nil, err
		}
		if first[tp] > 0 {
			return nil, &ConflictError{&archive.NotEmptyError{Partition: tp, Offset: 0, Reason: "the log was trimmed"}}
		}
		total += end
	}
	var done atomic.Int64
	bar := h.app.track(Work{Name: "restore", Total: total, Unit: "events"})
	defer bar.Stop()
	defer follow(bar, done.Load)()
	for _, tp := range tps {
		err := a.Restore(ctx, h.Log, tp, next[tp], func(n int64) { done.Add(n) })
		var full *archive.NotEmptyError
		if errors.As(err, &full) || errors.Is(err, kafka.ErrMoved) {
			return nil, &ConflictError{err}
		}
		if err != nil {
			return nil, err
		}
	}
	ans.Records = done.Load()
	end, err := h.End(ctx)
	ans.Position = end.String()
	return ans, err
}
