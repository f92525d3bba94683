package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/domain"
)

// deleteRecordsKey is the request DeleteRecords, which kafka-go lacks.
const deleteRecordsKey = 21

// DeleteRecords deletes the records of a partition before an offset, for ever, and returns the first
// offset that is left. The caller MUST have verified that an archive has them.
func (l *Log) DeleteRecords(ctx context.Context, tp domain.TopicPartition, before int64) (first int64, err error) {
	if before < 0 { // Kafka takes -1 for the end of the log
		return 0, fmt.Errorf("delete records of %s before offset %d", tp, before)
	}
	err = l.retry(ctx, func(ctx context.Context) error {
		at, err := l.leaders(ctx, string(tp.Topic))
		if err != nil {
			return err
		}
		address, ok := at[tp]
		if !ok {
			return fmt.Errorf("find leader: %w", kafkago.LeaderNotAvailable)
		}
		first, err = l.deleteRecords(ctx, address, tp, before)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("delete records of %s before offset %d: %w", tp, before, err)
	}
	return first, nil
}

// deleteRecords asks the leader: DeleteRecords, version 1.
func (l *Log) deleteRecords(
	ctx context.Context,
	address string,
	tp domain.TopicPartition,
	before int64,
) (first int64, err error) {
	conn, err := l.dial(ctx, address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	be := binary.BigEndian
	b := requestHead(nil, deleteRecordsKey, 1, 0, l.cfg.ClientID)
	b = be.AppendUint32(b, 1)
	b = appendString(b, string(tp.Topic))
	b = be.AppendUint32(b, 1)
	b = be.AppendUint32(b, uint32(tp.Partition))
	b = be.AppendUint64(b, uint64(before))
	b = be.AppendUint32(b, uint32(requestTimeout.Milliseconds()))
	if err := writeRequest(conn, finishRequest(b)); err != nil {
		return 0, err
	}
	c, _, err := readAnswer(conn, nil, 0, requestTimeout)
	if err != nil {
		return 0, err
	}
	return parseDeleted(&c, tp)
}

func parseDeleted(c *cursor, tp domain.TopicPartition) (first int64, err error) {
	var code kafkago.Error
	answered := 0
	c.int32() // throttle time
	for range c.count() {
		topic := c.string()
		for range c.count() {
			answered++
			partition := int(c.int32())
			first = c.int64()
			code = kafkago.Error(c.int16())
			c.bad = c.bad || topic != string(tp.Topic) || partition != tp.Partition
		}
	}
	if c.bad || answered != 1 {
		return 0, errors.New("delete records answer is cut short or for another partition")
	}
	if code != 0 {
		return 0, code
	}
	return first, nil
}
