package archive

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
)

// DamageError is a [kafka.ErrArchive]: an object is missing or is not what was archived. An operator
// restores it from a copy of the archive.
type DamageError struct {
	Object string
	// Partition and Offset are what cannot be read; Offset is the first of it. They are zero if the
	// object is not about a partition.
	Partition domain.TopicPartition
	Offset    int64
	Reason    string
}

func (e *DamageError) Error() string {
	where := e.Object
	if e.Partition.Topic != "" {
		where += fmt.Sprintf(" (%s, offset %d)", e.Partition, e.Offset)
	}
	return fmt.Sprintf("%v: %s: %s", kafka.ErrArchive, where, e.Reason)
}

func (e *DamageError) Unwrap() error { return kafka.ErrArchive }

// Advice implements projections.Lasting.
func (e *DamageError) Advice() string { return advice(kafka.ErrArchive) }

// Kind implements projections.Lasting.
func (e *DamageError) Kind() string { return "archive" }

func advice(err error) string {
	var l interface{ Advice() string }
	if errors.As(err, &l) {
		return l.Advice()
	}
	return ""
}

// OtherLogError is a [kafka.ErrArchive]: the archive is of another log. An operator corrects the
// address of the archive or of the log.
type OtherLogError struct {
	Store    string
	Archived string // what the archive is of
	Log      string // what this log is
}

func (e *OtherLogError) Error() string {
	return fmt.Sprintf("%v: %s is an archive of %s, and this is %s", kafka.ErrArchive, e.Store, e.Archived, e.Log)
}

func (e *OtherLogError) Unwrap() error { return kafka.ErrArchive }

// Advice implements projections.Lasting.
func (e *OtherLogError) Advice() string { return "correct the address of the archive, or of the log" }

// Kind implements projections.Lasting.
func (e *OtherLogError) Kind() string { return "archive" }

// ErrForked means that another process archives the same partition now, or did with another result.
// The caller stops; if nothing else archives, [Archive.Verify] names what is wrong.
var ErrForked = errors.New("another process archives this partition")

// Log identifies a log.
type Log struct {
	ID string
	// Topics returns the ids of topics, none if the broker has none; nil: none. It is called once, when
	// something is read or written.
	Topics func(context.Context) (map[domain.Topic]string, error)
}

// Archive is an archive of a log. It is safe for concurrent use. It reads nothing before its first
// use, so it costs nothing while the log has everything.
type Archive struct {
	store Store
	log   Log
	slots chan struct{} // limits the segments in memory

	mu     sync.Mutex
	id     string // "" if unknown or there is no archive yet
	topics map[domain.Topic]string
	chains map[domain.TopicPartition][]string
	ends   map[domain.TopicPartition]int64 // as far as known
}

// inMemory is how many segments are held in memory at a time.
const inMemory = 4

// maxSegment is the size of the largest segment in bytes.
const maxSegment = 1 << 30

// New returns the archive of a log in a store. It may be empty.
func New(store Store, log Log) *Archive {
	return &Archive{
		store: store, log: log,
		slots:  make(chan struct{}, inMemory),
		chains: map[domain.TopicPartition][]string{},
		ends:   map[domain.TopicPartition]int64{},
	}
}

// String names the archive for people.
func (a *Archive) String() string { return a.store.String() }

// ID returns the id of the archive; "" if there is none yet.
func (a *Archive) ID(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.id != "" {
		return a.id, nil
	}
	text, err := a.get(ctx, identityFile, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var id identity
	err = json.Unmarshal(text, &id)
	switch {
	case err != nil:
		return "", &DamageError{Object: identityFile, Reason: err.Error()}
	case !bytes.Equal(text, id.encode()):
		return "", &DamageError{Object: identityFile, Reason: "it is not in its canonical form"}
	case id.Format != Format && id.Format != firstFormat || len(id.Archive) != 2*idBytes:
		reason := fmt.Sprintf("format is %q, this program reads %q", id.Format, Format)
		return "", &DamageError{Object: identityFile, Reason: reason}
	case id.Log != a.log.ID:
		return "", &OtherLogError{a.store.String(), fmt.Sprintf("log %q", id.Log), fmt.Sprintf("log %q", a.log.ID)}
	}
	if a.log.Topics != nil {
		if a.topics, err = a.log.Topics(ctx); err != nil {
			return "", err
		}
	}
	a.id = id.Archive
	return a.id, nil
}

const idBytes = 16

// create gives the archive an id, if it has none.
func (a *Archive) create(ctx context.Context) error {
	if id, err := a.ID(ctx); id != "" || err != nil {
		return err
	}
	raw := make([]byte, idBytes)
	_, _ = rand.Read(raw) // never fails
	id := identity{Format, hex.EncodeToString(raw), a.log.ID}
	if err := a.store.Put(ctx, identityFile, id.encode()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if id, err := a.ID(ctx); id != "" || err != nil {
		return err
	}
	return &DamageError{Object: identityFile, Reason: "it was written and cannot be found"}
}

// get returns an object of at most limit bytes.
func (a *Archive) get(ctx context.Context, name string, limit int64) ([]byte, error) {
	r, err := a.store.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", name, err)
	}
	if int64(len(b)) > limit {
		return nil, &DamageError{Object: name, Reason: fmt.Sprintf("it has more than %d bytes", limit)}
	}
	return b, nil
}

// chain returns the names of the manifests of a partition, in their order.
func (a *Archive) chain(ctx context.Context, tp domain.TopicPartition, fresh bool) ([]string, error) {
	a.mu.Lock()
	names, ok := a.chains[tp]
	a.mu.Unlock()
	if ok && !fresh {
		return names, nil
	}
	names, err := a.store.List(ctx, manifestsOf(tp))
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if first, ok := firstOf(tp, name); !ok || i == 0 && first != 0 {
			reason := "it is not a manifest's name"
			if ok {
				reason = "the manifests before it are missing"
			}
			return nil, &DamageError{name, tp, 0, reason}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.chains[tp]; len(names) < len(known) || !slices.Equal(names[:len(known)], known) {
		return nil, &DamageError{manifestsOf(tp), tp, 0, "the list lacks manifests that were there before"}
	}
	a.chains[tp] = names
	return names, nil
}

// firstOf returns the first offset in a manifest's name.
func firstOf(tp domain.TopicPartition, name string) (int64, bool) {
	digits := strings.TrimSuffix(strings.TrimPrefix(name, manifestsOf(tp)), ".json")
	first, err := strconv.ParseInt(digits, 10, 64)
	return first, err == nil && name == manifestName(tp, first)
}

// manifest reads a manifest. The argument before is the one before it in the chain, if it was read.
func (a *Archive) manifest(
	ctx context.Context,
	tp domain.TopicPartition,
	name string,
	before *Manifest,
) (*Manifest, error) {
	id, err := a.ID(ctx)
	if err != nil {
		return nil, err
	}
	first, _ := firstOf(tp, name)
	damage := func(format string, args ...any) error {
		return &DamageError{name, tp, first, fmt.Sprintf(format, args...)}
	}
	text, err := a.get(ctx, name, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damage("it is missing")
	}
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(text)
	topic := a.topics[tp.Topic]
	switch {
	case err != nil:
		return nil, damage("%v", err)
	case m.Log != a.log.ID:
		return nil, &OtherLogError{name, fmt.Sprintf("log %q", m.Log), fmt.Sprintf("log %q", a.log.ID)}
	case id == "":
		return nil, damage("%s is missing", identityFile)
	case m.Archive != id:
		return nil, damage("it is of the archive %s, and this is %s: there are two archives of this log; "+
			"keep each in its own place", m.Archive, id)
	case m.partition() != tp || m.First != first:
		return nil, damage("it is the manifest of %s from offset %d on", m.partition(), m.First)
	case m.TopicID != "" && topic != "" && m.TopicID != topic:
		return nil, &OtherLogError{
			name, fmt.Sprintf("topic %s with the id %s", tp.Topic, m.TopicID),
			fmt.Sprintf("the topic with the id %s: it was deleted and created again", topic),
		}
	}
	if before == nil {
		return m, nil
	}
	switch {
	case m.First > before.Last+1:
		return nil, damage("the manifest of offset %d is missing", before.Last+1)
	case m.First <= before.Last:
		return nil, damage("the manifest before it ends at offset %d", before.Last)
	case m.Number != before.Number+1:
		return nil, damage("its number is %d, the one before it has %d", m.Number, before.Number)
	case m.Previous != sha256.Sum256(before.encode()):
		return nil, damage("it was written after another manifest than %s", manifestName(tp, before.First))
	case m.Tree == nil && before.Tree != nil || m.Tree != nil && m.Tree.From != before.treeSize():
		return nil, damage("its tree does not continue that of the manifest before it")
	}
	return m, nil
}

// Head returns the last manifest of a partition; nil if there is none.
func (a *Archive) Head(ctx context.Context, tp domain.TopicPartition) (*Manifest, error) {
	names, err := a.chain(ctx, tp, true)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	m, err := a.manifest(ctx, tp, names[len(names)-1], nil)
	if err != nil {
		return nil, err
	}
	if m.Number != int64(len(names)-1) {
		return nil, &DamageError{
			names[len(names)-1], tp, m.First,
			fmt.Sprintf("its number is %d, and there are %d manifests before it", m.Number, len(names)-1),
		}
	}
	return m, nil
}

// Reaches implements [kafka.Archive].
func (a *Archive) Reaches(ctx context.Context, tp domain.TopicPartition, offset int64) (int64, error) {
	a.mu.Lock()
	end := a.ends[tp]
	a.mu.Unlock()
	if end >= offset {
		return end, nil
	}
	end, err := a.End(ctx, tp)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ends[tp] = max(a.ends[tp], end)
	}
	return end, err
}

// End returns the offset up to which a partition is archived now.
func (a *Archive) End(ctx context.Context, tp domain.TopicPartition) (int64, error) {
	m, err := a.Head(ctx, tp)
	if m == nil || err != nil {
		return 0, err
	}
	return m.Last + 1, nil
}

// manifests calls yield with the manifests of a partition from the one that has the offset from.
func (a *Archive) manifests(
	ctx context.Context,
	tp domain.TopicPartition,
	from int64,
	yield func(*Manifest) error,
) error {
	names, err := a.chain(ctx, tp, true)
	if err != nil {
		return err
	}
	i, found := slices.BinarySearchFunc(names, from, func(name string, from int64) int {
		first, _ := firstOf(tp, name)
		return cmp.Compare(first, from)
	})
	if !found {
		i--
	}
	var before *Manifest
	for ; i >= 0 && i < len(names); i++ {
		m, err := a.manifest(ctx, tp, names[i], before)
		if err != nil {
			return err
		}
		if before == nil && m.Last < from && i+1 < len(names) {
			return &DamageError{manifestName(tp, m.Last+1), tp, m.Last + 1, "it is missing"}
		}
		if m.Last >= from {
			if err := yield(m); err != nil {
				return err
			}
		}
		before = m
	}
	return nil
}

// Since implements [kafka.Archive]. It reads the manifests from the beginning.
func (a *Archive) Since(ctx context.Context, tp domain.TopicPartition, t domain.Instant) (offset int64, err error) {
	offset = math.MaxInt64
	err = a.manifests(ctx, tp, 0, func(m *Manifest) error {
		if m.Latest >= t {
			offset = m.First
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return offset, err
}

var errFound = errors.New("found")

// Batches implements [kafka.Archive]. A segment is checked whole before any of it is passed on.
func (a *Archive) Batches(
	ctx context.Context,
	tp domain.TopicPartition,
	from int64,
	yield func(kafka.Batches) error,
) error {
	return a.manifests(ctx, tp, from, func(m *Manifest) error {
		return a.withSegment(ctx, m, func(raw []byte) error {
			b := kafka.Batches{First: m.First, Next: m.Last + 1, Bytes: raw, Aborted: slices.Clone(m.Aborted)}
			for {
				h, err := kafka.NextBatch(b.Bytes)
				if err != nil {
					return err // checked before
				}
				if h.Last >= from {
					b.First = h.First
					return yield(b)
				}
				b.Aborted = ended(b.Aborted, &h)
				b.Bytes = b.Bytes[h.Size:]
			}
		})
	})
}

// ended returns the transactions that do not end with a batch. A producer has one at a time.
func ended(open []kafka.Transaction, b *kafka.Batch) []kafka.Transaction {
	if !b.Control {
		return open
	}
	return slices.DeleteFunc(open, func(t kafka.Transaction) bool {
		return t.Producer == b.Producer && t.First <= b.First
	})
}
