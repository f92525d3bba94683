package app

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
)

// Switched is a switch between generations of rows.
type Switched struct {
	Active   string               `json:"active"`
	Before   string               `json:"before"`
	Position string               `json:"position,omitempty"`
	Digest   string               `json:"digest,omitempty"` // of the new rows
	Replayed bool                 `json:"replayed"`
	Lost     []domain.LostRecords `json:"lost"`
	Operator string               `json:"operator,omitempty"`
	Finished bool                 `json:"finished"` // completed a switch that an earlier run began
}

// SwitchQuery asks to read another generation from now on.
type SwitchQuery struct {
	To     string
	Reason string
	// Digest is the SHA-256 of a replay of the log elsewhere, in hexadecimal digits; "": replay
	// here if needed
	Digest string
}

// Switch drafts a switch to another generation. It drafts nothing if that one is active already.
// It appends an earlier switch that is not in the log yet.
func (c *Caller) Switch(ctx context.Context, q SwitchQuery) (ans *Switched, draft Draft, err error) {
	if c.app.Config == nil {
		return nil, draft, errNoProduction
	}
	if sum, err := hex.DecodeString(q.Digest); q.Digest != "" && (err != nil || len(sum) != 32) {
		return nil, draft, invalid("digest", "%q: want the 64 hexadecimal digits that \"quartermaster log replay\" prints", q.Digest)
	}
	if err := c.app.Close(); err != nil {
		return nil, draft, err
	}
	h, err := c.app.OpenProduction(ctx, Reading)
	if err != nil {
		return nil, draft, err
	}
	h.caughtUp = true // the new rows decide who may sign, however far they are folded
	c.app.conn = h
	to := q.To
	h.Generation = to
	from, err := h.DB.Active(ctx)
	if err != nil {
		return nil, draft, err
	}
	before, err := h.DB.Generation(ctx, from)
	if err != nil {
		return nil, draft, err
	}
	next, err := h.DB.Generation(ctx, to)
	switch {
	case err != nil:
		return nil, draft, err
	case next.State == postgres.Building:
		return nil, draft, &ConflictError{Err: fmt.Errorf("switch to generation %s: it is still building; "+
			"\"quartermaster generation rebuild %s\" resumes it", to, to)}
	case next.Method != projections.Method:
		return nil, draft, fmt.Errorf("generation %s was made by folds %s, and this program's are %s: switch to it with the program that made it",
			to, next.Method, projections.Method)
	}
	if found, err := h.lost(ctx, next); err != nil {
		return nil, draft, err
	} else if len(found) > 0 {
		return nil, draft, fmt.Errorf("generation %s has diverged from the log, too; rebuild another", to)
	}
	ans = &Switched{Active: to, Before: from, Lost: []domain.LostRecords{}}
	// Append the earlier switch, whatever the active rows say: the log belongs to the new rows.
	if ans.Finished, err = h.TellSwitch(ctx); err != nil || from == to {
		return ans, draft, err
	}
	if ans.Lost, err = h.lost(ctx, before); err != nil {
		return nil, draft, err
	}
	sum, at, err := h.Digest(ctx)
	if err != nil {
		return nil, draft, err
	}
	ans.Position, ans.Digest = at.String(), hex.EncodeToString(sum[:])
	switch {
	case q.Digest != "":
		if !strings.EqualFold(q.Digest, ans.Digest) {
			return nil, draft, fmt.Errorf("nothing was switched: the rows of generation %s have digest %s at position %s, and not %s; "+
				"replay the log to the same position while nothing is appended", to, ans.Digest, at, q.Digest)
		}
	case len(ans.Lost) > 0 || before.Method != next.Method:
		var replay Replay
		if _, err := h.replayTo(ctx, at, nil, &replay); err != nil {
			return nil, draft, err
		}
		if replay.ReplayDigest != ans.Digest {
			return nil, draft, fmt.Errorf("nothing was switched: at position %s the rows of generation %s have digest %s, and a replay of the log %s; "+
				"drop it and rebuild another", at, to, ans.Digest, replay.ReplayDigest)
		}
		ans.Replayed = true
	}
	draft = Draft{Use: "switch", Events: []domain.Envelope{{Time: Now(), Subject: to, Event: &domain.GenerationSwitched{
		Entity: Platform, From: from, To: to, Method: next.Method, Position: ans.Position, Digest: sum[:],
		Reason: q.Reason, Lost: ans.Lost,
	}}}}
	return ans, draft, nil
}

// DecideSwitch performs a signed switch. The pointer and the signed event are stored in one
// transaction, and the event is appended to the log after it.
func (c *Caller) DecideSwitch(ctx context.Context, ans *Switched, p *Proposal, signatures [][]byte) error {
	h := c.app.conn
	if err := p.accept(signatures); err != nil {
		return err
	}
	body, err := SwitchRecord(&p.Events[0])
	if err != nil {
		return err
	}
	if err := h.DB.SwitchBy(ctx, ans.Before, ans.Active, body); err != nil {
		return err
	}
	if _, err := h.TellSwitch(ctx); err != nil {
		return fmt.Errorf("generation %s is active now, but its event is not in the log yet; run the command again: %w", ans.Active, err)
	}
	ans.Operator = p.Operator
	return nil
}

// lost returns the records that a generation was folded from and that the log no longer has.
func (h *Conn) lost(ctx context.Context, g *postgres.Generation) ([]domain.LostRecords, error) {
	found, err := h.Log.Diverged(ctx, g.Position(), g.Anchors())
	if err != nil {
		return nil, err
	}
	end, err := h.End(ctx)
	if err != nil {
		return nil, err
	}
	out := []domain.LostRecords{}
	for _, tp := range slices.SortedFunc(maps.Keys(found), domain.TopicPartition.Compare) {
		out = append(out, lostRecords(found[tp], end[tp]))
	}
	return out, nil
}

// lostRecords returns the records that are known to be lost. They begin where the broker says
// that the logs parted, or at the end of the log, or at the latest with the last record that was
// folded.
func lostRecords(d *kafka.DivergedError, end int64) domain.LostRecords {
	l := domain.LostRecords{
		Topic: d.Partition.Topic, Partition: uint32(d.Partition.Partition),
		Since: d.Position - 1, Position: d.Position, End: end,
	}
	for _, at := range []int64{d.Since, d.End} {
		if at >= 0 {
			l.Since = min(l.Since, at)
		}
	}
	return l
}

// SwitchRecord returns the record of a signed switch as [Conn.TellSwitch] appends it. It is the
// only one of its stream, so it counts once however often it is appended.
func SwitchRecord(signed *domain.Envelope) ([]byte, error) {
	signed.Source, signed.Incarnation, signed.Sequence = switchSource+signed.Subject, uint64(signed.Time)/1000, 1
	rec, err := wire.Encode(signed)
	if err != nil {
		return nil, fmt.Errorf("encode the switch: %w", err)
	}
	return wire.AppendBatch(nil, &rec)
}

// switchSource begins the sources of switches; the generation follows.
const switchSource = "quartermaster/switch/"

// TellSwitch appends the event of a switch that is not in the log yet, and reports whether there
// was one.
func (h *Conn) TellSwitch(ctx context.Context) (bool, error) {
	body, err := h.DB.Untold(ctx)
	if err != nil || body == nil {
		return false, err
	}
	recs, err := wire.ReadBatch(body)
	if err != nil {
		return false, fmt.Errorf("read the decision of a switch: %w", err)
	}
	for i := range recs {
		recs[i].Key = []byte(Platform)
		recs[i].Partition = domain.PartitionOf(recs[i].Key, recs[i].Topic.Partitions())
	}
	if err := h.Log.Append(ctx, recs); err != nil {
		return false, fmt.Errorf("append to the log: %w", err)
	}
	return true, h.DB.Told(ctx, body)
}
