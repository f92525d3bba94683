package app

import (
	"context"

	"quartermaster/domain"
)

// TrimQuestion asks to delete from the log what the archive has and the retention policy lets go.
type TrimQuestion struct {
	Before string // only segments whose records are all before this time, as [ParseTime] reads it
	Delete bool   // else it is a dry run
}

// TrimPlan is what can be deleted from the log, or was.
type TrimPlan struct {
	Location string `json:"location"` // of the archive that has it
	RemovedBy
	Partitions []TrimmedPartition `json:"partitions"` // of which something can be deleted
}

// TrimmedPartition is what can be deleted of a partition, or was.
type TrimmedPartition struct {
	Partition string `json:"partition"`
	LogFirst  int64  `json:"log_first"` // the first offset of the log, before
	TrimTo    int64  `json:"trim_to"`   // its first offset afterwards
	Records   int64  `json:"records"`
}

// Trim deletes from the log what the archive has and the retention policy lets go, after it has read
// it again from both and compared it. It deletes nothing, in any partition, if the archive or the log
// cannot be read or they differ. A removal that was interrupted is finished, and nothing more.
func (c *Caller) Trim(ctx context.Context, q TrimQuestion) (*TrimPlan, error) {
	why := Reading
	if q.Delete {
		why = Appending
	}
	h, err := c.conn(ctx, why)
	if err != nil {
		return nil, err
	}
	done, err := h.removeBy(ctx, domain.RetainedLog, "archive trim, run by "+Me(), q.Before, Now(), !q.Delete)
	if err != nil {
		return nil, err
	}
	ans := &TrimPlan{Location: h.archive.String(), RemovedBy: *done, Partitions: []TrimmedPartition{}}
	for _, r := range done.Removed {
		tp := domain.TopicPartition{Topic: r.Topic, Partition: int(r.Partition)}
		ans.Partitions = append(ans.Partitions, TrimmedPartition{tp.String(), r.From, r.To, r.To - r.From})
	}
	return ans, nil
}
