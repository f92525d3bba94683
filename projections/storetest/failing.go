package storetest

import (
	"quartermaster/domain"
	"quartermaster/projections"
)

// failing is a decoder of events that make folds panic after they changed rows.
type failing struct {
	projections.Decoder
	tp  domain.TopicPartition
	bad map[int64]bool
}

func (d failing) Decode(rec *domain.Record, env *domain.Envelope) error {
	err := d.Decoder.Decode(rec, env)
	if rec.Partition == d.tp.Partition && rec.Topic == d.tp.Topic && d.bad[rec.Offset] {
		switch env.Event.(type) {
		case *domain.NodeSampled:
			env.Event = (*domain.NodeSampled)(nil)
		case *domain.JobQueued:
			env.Event = (*domain.JobQueued)(nil)
		default:
			env.Event = (*domain.NodeRegistered)(nil)
		}
	}
	return err
}
