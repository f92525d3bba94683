package app

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/note"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/kafka/archive"
	"quartermaster/adapters/witness"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// archiveDefaults are the sealing policy without a configuration.
const (
	segmentMiB = 64
	sealAfter  = time.Hour
)

// errNoArchive means that no place for an archive is configured.
var errNoArchive = &InvalidError{Err: errors.New("no archive is configured: set archive.url in the configuration")}

// attach gives a log its archive, if it has a place: the configured one, else in the data directory.
// Nothing is read before the log lacks records.
func (s *App) attach(ctx context.Context, log *kafka.Log, id string) (*archive.Archive, error) {
	place := ""
	switch {
	case s.Config != nil:
		place = s.Config.Archive.URL
	case s.Dir != "":
		place = filepath.Join(s.Dir, "archive", id)
	}
	if place == "" {
		return nil, nil
	}
	store, err := s.openArchive(ctx, place)
	if err != nil {
		return nil, err
	}
	a := archive.New(store, archive.Log{ID: id, Topics: func(ctx context.Context) (map[domain.Topic]string, error) {
		return log.TopicIDs(ctx)
	}})
	log.Archive = a
	return a, nil
}

func (s *App) openArchive(ctx context.Context, place string) (archive.Store, error) {
	if b, err := s.bucket(ctx, place); b != nil || err != nil {
		return b, err
	}
	return archive.OpenStore(place)
}

// archived opens the log and its archive.
func (c *Caller) archived(ctx context.Context) (*Conn, error) {
	h, err := c.log(ctx)
	if err == nil && h.archive == nil {
		return nil, errNoArchive
	}
	return h, err
}

// archiveIn returns the archive in a place, or that of the log if none is named, and the log's id.
func (c *Caller) archiveIn(ctx context.Context, place string) (a *archive.Archive, log string, err error) {
	if place == "" {
		h, err := c.archived(ctx)
		if err != nil {
			return nil, "", err
		}
		return h.archive, h.ID, nil
	}
	store, err := c.app.openArchive(ctx, place)
	if err != nil {
		return nil, "", invalid("from", "%w", err)
	}
	a, log, err = archive.Open(ctx, store)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", &NotFoundError{What: "archive", Name: place, Err: fmt.Errorf("there is no archive in %s", place)}
	}
	return a, log, err
}

// Archived is the result of archiving what can be sealed.
type Archived struct {
	Archive  string `json:"archive"`  // its id
	Location string `json:"location"` // where it is
	Segments int    `json:"segments"` // that were sealed now
	Records  int64  `json:"records"`  // in them
	Bytes    int64  `json:"bytes"`    // of their batches
	// Waiting counts the records that are not archived yet.
	Waiting int64 `json:"waiting"`
	// Checkpoint counts the records that the checkpoint signed now covers; absent if none was signed.
	Checkpoint *int64 `json:"checkpoint,omitempty"`
	// Witnesses are the names of those that cosigned it now.
	Witnesses []string `json:"witnesses,omitempty"`

	note []byte // the checkpoint, without cosignatures
	ends domain.Position
}

// Archive archives the segments of the log that can be sealed, and with all everything. With a key it
// signs a checkpoint afterwards, and notes it in the log, so that exports and evidence have it.
func (c *Caller) Archive(ctx context.Context, all bool, key ed25519.PrivateKey) (*Archived, error) {
	if key == nil {
		h, err := c.archived(ctx)
		if err != nil {
			return nil, err
		}
		return h.Seal(ctx, all, nil)
	}
	h, err := c.conn(ctx, Appending)
	if err == nil && h.archive == nil {
		err = errNoArchive
	}
	if err != nil {
		return nil, err
	}
	ans, err := h.Seal(ctx, all, key)
	if err != nil || ans.note == nil {
		return ans, err
	}
	env, err := h.checkpointSigned(Now(), ans.ends, ans.note)
	if err != nil {
		return nil, err
	}
	if err := h.Stream("checkpoint").Append(ctx, env); err != nil {
		return nil, fmt.Errorf("note the checkpoint in the log: %w", err)
	}
	return ans, h.CatchUp(ctx)
}

// Seal is [Caller.Archive] for an open log, and notes no checkpoint.
func (h *Conn) Seal(ctx context.Context, all bool, key ed25519.PrivateKey) (*Archived, error) {
	policy := archive.Policy{Bytes: segmentMiB << 20, Age: sealAfter, Now: Now(), Key: key}
	if cfg := h.app.Config; cfg != nil {
		policy.Bytes, policy.Age = int64(cfg.Archive.SegmentMiB)<<20, cfg.Archive.SealAfter
	}
	if all {
		policy.Age = 0
	}
	tps := domain.AllPartitions()
	first, next, err := h.Log.BrokerBounds(ctx, tps)
	if err != nil {
		return nil, err
	}
	ends := domain.Position{}
	for _, tp := range tps {
		if ends[tp], err = h.archive.End(ctx, tp); err != nil {
			return nil, err
		}
	}
	ans := &Archived{Location: h.archive.String()}
	var done atomic.Int64
	bar := h.app.track(Work{Name: "archive", Total: next.Records() - ends.Records(), Unit: "events"})
	defer bar.Stop()
	defer follow(bar, done.Load)()
	var errs []error
	for _, tp := range tps {
		err := h.archive.Seal(ctx, h.Log, tp, first[tp], next[tp], policy, func(m *archive.Manifest) {
			done.Add(m.Records())
			ends[tp] = m.Last + 1
			ans.Segments++
			ans.Records += m.Records()
			ans.Bytes += m.Bytes
		})
		if errors.Is(err, kafka.ErrArchive) || errors.Is(err, archive.ErrForked) {
			errs = append(errs, err) // the other partitions can be archived
		} else if err != nil {
			return nil, err
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &ConflictError{err}
	}
	ans.Waiting = next.Records() - ends.Records()
	if ans.Archive, err = h.archive.ID(ctx); err != nil || key == nil || ans.Archive == "" {
		return ans, err
	}
	head, signed, by, err := h.checkpoint(ctx, nil, key)
	if err != nil {
		return nil, err
	}
	ans.Checkpoint, ans.Witnesses = &head.Records, by
	ans.note, ans.ends = signed, ends
	return ans, nil
}

// checkpointSigned returns the event that notes a checkpoint in the log.
func (h *Conn) checkpointSigned(at domain.Instant, pos domain.Position, note []byte) (*domain.Envelope, error) {
	env := &domain.Envelope{
		Time: at, Subject: h.ID,
		Event: &domain.CheckpointSigned{Entity: Platform, Position: pos.String(), Note: note},
	}
	if err := domain.Validate(env); err != nil {
		return nil, fmt.Errorf("sign checkpoint: %w", err)
	}
	return env, nil
}

// checkpoint states what is archived, and what rows there are if rows is not nil, signs a checkpoint of
// it and has it cosigned. It returns the head, the signed note without cosignatures, and who cosigned.
func (h *Conn) checkpoint(
	ctx context.Context,
	rows *merkle.Rows,
	key ed25519.PrivateKey,
) (head *merkle.Head, signed []byte, by []string, err error) {
	head, signed, err = h.archive.Checkpoint(ctx, domain.AllPartitions(), rows, key)
	if errors.Is(err, archive.ErrForked) {
		return nil, nil, nil, &ConflictError{err}
	}
	if err != nil {
		return nil, nil, nil, err
	}
	witnesses, err := h.app.witnesses()
	if err != nil {
		return nil, nil, nil, err
	}
	by, err = h.archive.Cosign(ctx, signed, witnesses)
	switch {
	case errors.Is(err, witness.ErrAhead), errors.Is(err, witness.ErrRefused):
		return nil, nil, nil, &ConflictError{err}
	case err != nil:
		return nil, nil, nil, &UnavailableError{err}
	}
	return head, signed, by, nil
}

// witnesses returns those of the configuration.
func (s *App) witnesses() (out []archive.Witness, err error) {
	if s.Config == nil {
		return nil, nil
	}
	for _, line := range s.Config.Archive.Witnesses {
		w, err := witness.Parse(line)
		if err != nil {
			return nil, err // refused when the configuration was read
		}
		out = append(out, w)
	}
	return out, nil
}

// VerifierKey is how others verify checkpoints of a log's archive.
type VerifierKey struct {
	Origin string `json:"origin"`
	Key    string `json:"verifier_key"` // origin, hash and key, joined by +
}

// ArchiveKey returns the verifier key of the log's archive for a key that signs its checkpoints.
func (c *Caller) ArchiveKey(ctx context.Context, key ed25519.PublicKey) (*VerifierKey, error) {
	h, err := c.log(ctx)
	if err != nil {
		return nil, err
	}
	origin := merkle.Origin(h.ID)
	text, err := merkle.VerifierKey(origin, key)
	return &VerifierKey{origin, text}, err
}

// Prove makes the proof of the record at an offset from the archive and its newest checkpoint. Text is
// the record, as topic/partition@offset.
func (c *Caller) Prove(ctx context.Context, text string) (*merkle.Proof, error) {
	tp, offset, err := parseRecordID(text)
	if err != nil {
		return nil, err
	}
	h, err := c.archived(ctx)
	if err != nil {
		return nil, err
	}
	p, err := h.archive.Prove(ctx, tp, offset)
	if errors.Is(err, archive.ErrNoCheckpoint) {
		return nil, &IncompleteError{err}
	}
	return p, err
}

// ArchiveStatus is what an archive has of the log.
type ArchiveStatus struct {
	Archive    string              `json:"archive"` // its id; "" if nothing was archived
	Location   string              `json:"location"`
	Log        string              `json:"log"` // the id of the log
	Segments   int64               `json:"segments"`
	Records    int64               `json:"records"` // that are archived
	Waiting    int64               `json:"waiting"` // that are not
	Partitions []ArchivedPartition `json:"partitions"`
}

// ArchivedPartition is what an archive has of a partition.
type ArchivedPartition struct {
	Partition string `json:"partition"`
	Segments  int64  `json:"segments"`
	// Archived is the offset up to which it is archived.
	Archived int64 `json:"archived"`
	// LogFirst is the first offset that the log has, LogNext the one that its next record will get.
	LogFirst int64          `json:"log_first"`
	LogNext  int64          `json:"log_next"`
	Waiting  int64          `json:"waiting"`
	Latest   domain.Instant `json:"latest,omitempty"` // the latest time in the newest segment
}

// ArchiveStatus returns what the archive has of each partition. It does not read segments.
func (c *Caller) ArchiveStatus(ctx context.Context) (*ArchiveStatus, error) {
	h, err := c.archived(ctx)
	if err != nil {
		return nil, err
	}
	tps := domain.AllPartitions()
	first, next, err := h.Log.BrokerBounds(ctx, tps)
	if err != nil {
		return nil, err
	}
	ans := &ArchiveStatus{Location: h.archive.String(), Log: h.ID, Partitions: []ArchivedPartition{}}
	if ans.Archive, err = h.archive.ID(ctx); err != nil {
		return nil, err
	}
	for _, tp := range tps {
		head, err := h.archive.Head(ctx, tp)
		if err != nil {
			return nil, err
		}
		p := ArchivedPartition{Partition: tp.String(), LogFirst: first[tp], LogNext: next[tp]}
		if head != nil {
			p.Segments, p.Archived, p.Latest = head.Number+1, head.Last+1, head.Latest
		}
		p.Waiting = max(0, p.LogNext-p.Archived)
		ans.Segments += p.Segments
		ans.Records += p.Archived
		ans.Waiting += p.Waiting
		ans.Partitions = append(ans.Partitions, p)
	}
	return ans, nil
}

// ArchiveCheck is the result of reading a whole archive.
type ArchiveCheck struct {
	Archive  string `json:"archive"`
	Location string `json:"location"`
	Segments int    `json:"segments"`
	Records  int64  `json:"records"`
	Bytes    int64  `json:"bytes"` // of their batches
	// Unreferenced counts objects that are not part of the archive: interrupted work left them.
	Unreferenced int `json:"unreferenced"`
	// Checkpoints counts the signed checkpoints. CheckpointRecords is what the newest head has.
	Checkpoints       int   `json:"checkpoints"`
	CheckpointRecords int64 `json:"checkpoint_records"`
	// Signed is whether the signatures of the checkpoints were verified.
	Signed bool `json:"signed"`
	// Cosigned has what each witness that was asked for cosigned last.
	Cosigned []CosignedBy   `json:"cosigned,omitempty"`
	Faults   []ArchiveFault `json:"faults"`
}

// CosignedBy is the newest checkpoint that a witness cosigned.
type CosignedBy struct {
	Witness string         `json:"witness"`
	Heads   int64          `json:"heads"` // that it covers; 0: there is none
	At      domain.Instant `json:"at,omitempty"`
}

// ArchiveFault is an object that is missing or wrong.
type ArchiveFault struct {
	Object    string `json:"object,omitempty"`
	Partition string `json:"partition,omitempty"`
	Offset    int64  `json:"offset"` // the first that cannot be read
	Reason    string `json:"reason"`
}

// VerifyArchive reads every object of an archive and checks it: of the one in the place from, which
// needs no log, or else of the log's. With keys, each checkpoint must have the signature of one. Of each
// witness, given by its verifier key, there must be a cosignature.
func (c *Caller) VerifyArchive(
	ctx context.Context,
	from string,
	keys []ed25519.PublicKey,
	witnesses []string,
) (*ArchiveCheck, error) {
	var verifiers []note.Verifier
	for _, text := range witnesses {
		v, err := merkle.WitnessVerifier(text)
		if err != nil {
			return nil, invalid("witness", "%w", err)
		}
		verifiers = append(verifiers, v)
	}
	a, _, err := c.archiveIn(ctx, from)
	if err != nil {
		return nil, err
	}
	tps := domain.AllPartitions()
	work := Work{Name: "verify", Unit: "segments", Slow: true}
	for _, tp := range tps {
		if head, err := a.Head(ctx, tp); err == nil && head != nil { // errors are found again below
			work.Total += head.Number + 1
		}
	}
	bar := c.app.track(work)
	defer bar.Stop()
	var read atomic.Int64
	found, err := a.Verify(ctx, tps, func(int64) { bar.Set(read.Add(1)) })
	if err != nil {
		return nil, err
	}
	notes, err := a.CheckCheckpoints(ctx, keys, verifiers...)
	if err != nil {
		return nil, err
	}
	ans := &ArchiveCheck{
		Location: a.String(), Segments: found.Segments, Records: found.Records, Bytes: found.Bytes,
		Unreferenced: found.Unreferenced, Checkpoints: notes.Checkpoints, CheckpointRecords: notes.Records,
		Signed: len(keys) > 0 && notes.Checkpoints > 0, Faults: []ArchiveFault{},
	}
	for _, w := range notes.Cosigned {
		ans.Cosigned = append(ans.Cosigned, CosignedBy(w))
	}
	ans.Archive, _ = a.ID(ctx) // its error is a fault, too
	for _, err := range append(found.Faults, notes.Faults...) {
		fault := ArchiveFault{Reason: err.Error()}
		var damage *archive.DamageError
		if errors.As(err, &damage) {
			fault = ArchiveFault{Object: damage.Object, Offset: damage.Offset, Reason: damage.Reason}
			if damage.Partition.Topic != "" {
				fault.Partition = damage.Partition.String()
			}
		}
		ans.Faults = append(ans.Faults, fault)
	}
	return ans, nil
}
