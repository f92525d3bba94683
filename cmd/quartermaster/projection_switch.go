package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
)

// switchAnswer is what projection switch answers.
type switchAnswer struct {
	Active   string               `json:"active"`
	Before   string               `json:"before"`
	Position string               `json:"position,omitempty"`
	Digest   string               `json:"digest,omitempty"`
	Replayed bool                 `json:"replayed"`
	Lost     []domain.LostRecords `json:"lost"`
	Operator string               `json:"operator,omitempty"`
	Finished bool                 `json:"finished"` // a switch that an earlier run began
}

// switchFlags are those of projection switch.
type switchFlags struct{ reason, key, digest string }

func (a *app) projectionSwitchCommand() *cobra.Command {
	var f switchFlags
	cmd := &cobra.Command{
		Use:   "switch NAME --reason TEXT",
		Short: "Read another generation from now on",
		Long: `Switch makes a live generation the active one: what every command reads. Whoever
is reading goes on with the one before. It can be taken back by switching to the one
before as long as that is not dropped.

It is a decision: an admin or operator signs it, and the log keeps who switched, when,
why, and the digest of the new rows at their position. The pointer and the signed event
are kept in one transaction, and the event is appended after it. When that fails, the
same command once more appends it.

When the log has diverged from the active generation, or other folds made that, the log
is replayed in memory first, and nothing is switched unless its digest is that of the
new rows. --digest names the digest of a replay that was made elsewhere, and is compared
instead.

JSON keys: active, before, position, digest (of the new rows), replayed, lost (topic,
partition, since: the first offset that is known to be lost, position: up to which the
rows before were folded, end: of the log), operator, finished (an earlier run had
switched, and its event was appended now).`,
		Example: "  quartermaster projection switch b --reason \"power cut on 11 May\" --config quartermaster.yaml\n" +
			"  quartermaster projection switch b --reason \"new folds\" --key ana.pem --config quartermaster.yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.config == nil {
				return errNoProduction
			}
			if err := checkReason(f.reason); err != nil {
				return err
			}
			if sum, err := hex.DecodeString(f.digest); f.digest != "" && (err != nil || len(sum) != 32) {
				return commandline.Usagef("--digest %q: want the 64 hexadecimal digits that \"quartermaster log replay\" prints", f.digest)
			}
			ans, err := a.switchTo(cmd.Context(), args[0], f)
			if err != nil {
				return err
			}
			a.lacking = false // what stood still is what the switch healed
			return a.showSwitch(ans)
		},
	}
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for whoever reads the books later (required)")
	must(cmd.MarkFlagRequired("reason"))
	cmd.Flags().StringVar(&f.digest, "digest", "", "SHA-256 that a replay of the log elsewhere gave")
	keyFlag(cmd, &f.key)
	return cmd
}

func (a *app) switchTo(ctx context.Context, to string, f switchFlags) (ans *switchAnswer, err error) {
	h, err := a.openProduction(ctx, reading)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.shut()) }()
	h.generation = to // who may sign is what the new rows say
	from, err := h.db.Active(ctx)
	if err != nil {
		return nil, err
	}
	before, err := h.db.Generation(ctx, from)
	if err != nil {
		return nil, err
	}
	next, err := h.db.Generation(ctx, to)
	switch {
	case err != nil:
		return nil, err
	case next.State == postgres.Building:
		return nil, fmt.Errorf("switch to generation %s: it is still building; \"quartermaster projection rebuild %s\" goes on with it", to, to)
	case next.Method != projections.Method:
		return nil, fmt.Errorf("generation %s was made by folds %s, and this program's are %s: switch to it with the program that made it", to, next.Method, projections.Method)
	}
	if found, err := h.lost(ctx, next); err != nil {
		return nil, err
	} else if len(found) > 0 {
		return nil, fmt.Errorf("generation %s is no better: the log has diverged from it, too; rebuild another", to)
	}
	ans = &switchAnswer{Active: to, Before: from, Lost: []domain.LostRecords{}}
	// Appended here, whatever the active rows say: the log is that of the rows to come.
	if ans.Finished, err = h.tellSwitch(ctx); err != nil || from == to {
		return ans, err
	}
	if ans.Lost, err = h.lost(ctx, before); err != nil {
		return nil, err
	}
	sum, at, err := h.digest(ctx)
	if err != nil {
		return nil, err
	}
	ans.Position, ans.Digest = at.String(), hex.EncodeToString(sum[:])
	switch {
	case f.digest != "":
		if !strings.EqualFold(f.digest, ans.Digest) {
			return nil, fmt.Errorf("nothing was switched: the rows of generation %s have digest %s at position %s, and not %s; replay the log to the same position while nothing is appended", to, ans.Digest, at, f.digest)
		}
	case len(ans.Lost) > 0 || before.Method != next.Method:
		var replay replayAnswer
		if _, err := h.replayTo(ctx, at, nil, &replay); err != nil {
			return nil, err
		}
		if replay.ReplayDigest != ans.Digest {
			return nil, fmt.Errorf("nothing was switched: at position %s the rows of generation %s have digest %s, and a replay of the log %s; drop it and rebuild another", at, to, ans.Digest, replay.ReplayDigest)
		}
		ans.Replayed = true
	}
	s, err := h.signer(ctx, f.key)
	if err != nil {
		return nil, err
	}
	ans.Operator = s.name
	body, err := h.switchRecord(ctx, s, domain.Envelope{Time: now(), Subject: to, Event: &domain.GenerationSwitched{
		Entity: platform, From: from, To: to, Method: next.Method, Position: ans.Position, Digest: sum[:], Reason: f.reason, Lost: ans.Lost,
	}})
	if err != nil {
		return nil, err
	}
	if err := h.db.SwitchBy(ctx, from, to, body); err != nil {
		return nil, err
	}
	if _, err := h.tellSwitch(ctx); err != nil {
		return nil, fmt.Errorf("generation %s is read now, and the log does not say so yet; run the command again: %w", to, err)
	}
	return ans, nil
}

// lost returns which records a generation was folded from and the log has no longer.
func (h *home) lost(ctx context.Context, g *postgres.Generation) ([]domain.LostRecords, error) {
	found, err := h.log.Diverged(ctx, g.Position(), g.Anchors())
	if err != nil {
		return nil, err
	}
	end, err := h.end(ctx)
	if err != nil {
		return nil, err
	}
	out := []domain.LostRecords{}
	for _, tp := range slices.SortedFunc(maps.Keys(found), domain.TopicPartition.Compare) {
		out = append(out, lostRecords(found[tp], end[tp]))
	}
	return out, nil
}

// lostRecords are those from the first offset on of which the error tells that its
// record is lost: where the logs parted by the broker's account, or the log ends, or
// at the latest the last record that was folded.
func lostRecords(d *kafka.DivergedError, end int64) domain.LostRecords {
	l := domain.LostRecords{Topic: d.Partition.Topic, Partition: uint32(d.Partition.Partition), Since: d.Position - 1, Position: d.Position, End: end}
	for _, at := range []int64{d.Since, d.End} {
		if at >= 0 {
			l.Since = min(l.Since, at)
		}
	}
	return l
}

// switchRecord signs a switch and returns its record as [home.tellSwitch] appends it.
// It is the only one of its stream, so that it counts once however often that is done.
func (h *home) switchRecord(ctx context.Context, s signer, env domain.Envelope) ([]byte, error) {
	ptrs, err := s.signAll([]domain.Envelope{env})
	if err != nil {
		return nil, err
	}
	if err := h.view(ctx, func(v projections.View) error { return refused(v, ptrs) }); err != nil {
		return nil, err
	}
	signed := ptrs[0]
	signed.Source, signed.Incarnation, signed.Sequence = switchSource+env.Subject, uint64(signed.Time)/1000, 1
	rec, err := wire.Encode(signed)
	if err != nil {
		return nil, fmt.Errorf("encode the switch: %w", err)
	}
	return wire.AppendBatch(nil, &rec)
}

// switchSource begins the sources of switches; the generation follows.
const switchSource = "quartermaster/switch/"

// tellSwitch appends the event of a switch that is not in the log yet, and reports
// whether there was one.
func (h *home) tellSwitch(ctx context.Context) (bool, error) {
	body, err := h.db.Untold(ctx)
	if err != nil || body == nil {
		return false, err
	}
	recs, err := wire.ReadBatch(body)
	if err != nil {
		return false, fmt.Errorf("read the decision of a switch: %w", err)
	}
	for i := range recs {
		recs[i].Key = []byte(platform)
		recs[i].Partition = domain.PartitionOf(recs[i].Key, recs[i].Topic.Partitions())
	}
	if err := h.log.Append(ctx, recs); err != nil {
		return false, fmt.Errorf("append to the log: %w", err)
	}
	return true, h.db.Told(ctx, body)
}

func (a *app) showSwitch(ans *switchAnswer) error {
	if a.json {
		return a.answerJSON(ans)
	}
	if ans.Finished {
		fmt.Fprintln(a.out, "the event of the switch before was not in the log; now it is")
	}
	if ans.Active == ans.Before {
		fmt.Fprintf(a.out, "generation %s is read already\n", ans.Active)
		return nil
	}
	fmt.Fprintf(a.out, "generation %s is read now; before it was %s; signed by %s\n", ans.Active, ans.Before, ans.Operator)
	fmt.Fprintf(a.out, "position  %s\ndigest    %s\n", ans.Position, ans.Digest)
	if ans.Replayed {
		fmt.Fprintln(a.out, "a replay of the log gives the same digest")
	}
	for _, l := range ans.Lost {
		fmt.Fprintf(a.out, "lost: %s/%d from offset %d at the latest to before %d\n", l.Topic, l.Partition, l.Since, l.Position)
	}
	return nil
}
