package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	"quartermaster/projections"
)

// Parts returns the place of this log's parts.
func (h *Conn) Parts() parts.Directory { return h.parts }

// partsOf returns the place of a log's parts: the configured one, else in the data directory. Nothing
// is read or made.
func (s *App) partsOf(ctx context.Context, log string) (parts.Directory, error) {
	d := parts.Directory{Path: filepath.Join(s.Dir, "parts", log), Log: log}
	cfg := s.Config
	if cfg == nil || cfg.Parts == "" {
		return d, nil
	}
	b, err := s.bucket(ctx, cfg.Parts)
	switch {
	case err != nil:
		return d, fmt.Errorf("parts: %w", err)
	case b == nil:
		d.Path = filepath.Join(cfg.Parts, log)
	case cfg.PartsCache.Directory == "" && s.Dir == "":
		return d, invalid("parts_cache.directory", "there is no data directory for the cache of parts")
	default:
		d.Bucket, d.CacheBytes = b, int64(cfg.PartsCache.MiB)<<20
		d.Path = filepath.Join(cmp.Or(cfg.PartsCache.Directory, filepath.Join(s.Dir, "parts-cache")), log)
	}
	return d, nil
}

// PartsMade says what making parts did.
type PartsMade struct {
	Directory string `json:"directory"`
	// Position is the position of the rows.
	Position string `json:"position"`
	// Open is the first month that is not sealed, as in 2026-05.
	Open string `json:"open"`
	// Root is the root of the Merkle tree over the digests of all parts.
	Root string `json:"root"`
	// Parts are all sealed months that have rows, by partition and month.
	Parts []PartMade `json:"parts"`
	// Usage are the sealed months whose usage is kept, as in 2026-05.
	Usage []string `json:"usage_months"`
	// Posted are the closed months that were loaded into the database, as in 2026-05.
	Posted []string `json:"posted_months"`
}

// PartMade is a part that was made or is there already.
type PartMade struct {
	Partition string `json:"partition"` // topic and number, separated by a slash
	Month     string `json:"month"`
	Rows      int64  `json:"rows"`
	Digest    string `json:"digest"` // of the rows
	// Outcome is new, unchanged, superseded (there was a version of other rows or another method) or
	// restored (its file was missing).
	Outcome string `json:"outcome"`
}

// PartVersion is a version of a part.
type PartVersion struct {
	Partition string `json:"partition"` // topic and number, separated by a slash
	Month     string `json:"month"`
	File      string `json:"file,omitempty"`
	Rows      int64  `json:"rows"`
	Bytes     int64  `json:"bytes"` // of the file
	Method    string `json:"method"`
	Offset    int64  `json:"offset"` // in the partition: the rows are of the records before it
	Digest    string `json:"digest"` // of the rows
	// State is current, superseded, other_method (current, but made by another version of the folds)
	// or invalid (the manifest cannot be read).
	State string `json:"state"`
	Error string `json:"error,omitempty"`
}

// The states of versions.
const (
	partCurrent     = "current"
	partSuperseded  = "superseded"
	partOtherMethod = "other_method"
	partInvalid     = "invalid"
)

// monthly are the digests of the rows of a view by month and partition.
type monthly struct {
	reader *projections.PartReader
	before int64                    // the first hour that is not sealed
	parts  []projections.PartDigest // by partition and month
	// tallies are those of parts, if only changed months were read.
	tallies map[projections.PartKey][]projections.Tally
}

// root returns the root over all parts.
func (m *monthly) root() parts.Digest { return projections.PartsRoot(m.parts) }

// monthly digests the rows of a view.
func (h *Conn) monthly(ctx context.Context, v projections.View) (*monthly, error) {
	newest, err := h.lastAppended(ctx, v.Position())
	if err != nil {
		return nil, err
	}
	m := &monthly{reader: projections.NewPartReader(v), before: projections.SealedBefore(newest)}
	tps := domain.AllPartitions()
	bar := h.app.track(Work{Name: "digest", Total: int64(len(tps)), Unit: "partitions", Slow: true})
	defer bar.Stop()
	digests := make([]projections.PartitionDigest, len(tps))
	if err := concurrently(ctx, m.reader.Parallel(), len(tps), bar, func(i int) (err error) {
		digests[i], err = m.reader.Digest(tps[i])
		return err
	}); err != nil {
		return nil, err
	}
	for _, d := range digests {
		m.parts = append(m.parts, d.Sealed(m.before)...)
	}
	slices.SortFunc(m.parts, func(a, b projections.PartDigest) int { return a.Compare(b.PartKey) })
	return m, nil
}

// changed returns the digests of the sealed months of a view as monthly does, but reads only rows of
// those that have no part with their tallies. made says which have one.
func (h *Conn) changed(
	ctx context.Context, v projections.View, d parts.Directory,
) (m *monthly, made map[projections.PartKey]bool, err error) {
	newest, err := h.lastAppended(ctx, v.Position())
	if err != nil {
		return nil, nil, err
	}
	m = &monthly{
		reader: projections.NewPartReader(v), before: projections.SealedBefore(newest),
		tallies: map[projections.PartKey][]projections.Tally{},
	}
	made = map[projections.PartKey]bool{}
	var keys []projections.PartKey
	for _, tp := range domain.AllPartitions() {
		months, err := m.reader.Tallies(tp)
		if err != nil {
			return nil, nil, err
		}
		for month, tallies := range months {
			if k := (projections.PartKey{Partition: tp, Month: month}); k.Sealed(m.before) {
				keys = append(keys, k)
				m.tallies[k] = tallies
			}
		}
	}
	slices.SortFunc(keys, projections.PartKey.Compare)
	m.parts = make([]projections.PartDigest, len(keys))
	current := make([]bool, len(keys))
	if err := concurrently(ctx, true, len(keys), untracked{}, func(i int) (err error) {
		m.parts[i], current[i], err = d.Current(keys[i], m.tallies[keys[i]])
		return err
	}); err != nil {
		return nil, nil, err
	}
	rest := map[domain.TopicPartition][]int{} // to be digested
	for i, k := range keys {
		if made[k] = current[i]; !current[i] {
			rest[k.Partition] = append(rest[k.Partition], i)
		}
	}
	tps := slices.SortedFunc(maps.Keys(rest), domain.TopicPartition.Compare)
	bar := h.app.track(Work{Name: "digest", Total: int64(len(tps)), Unit: "partitions", Slow: true})
	defer bar.Stop()
	return m, made, concurrently(ctx, m.reader.Parallel(), len(tps), bar, func(i int) (err error) {
		list := rest[tps[i]]
		if len(list) >= manyMonths {
			all, err := m.reader.Digest(tps[i])
			if err != nil {
				return err
			}
			for _, p := range all.Parts {
				if at, ok := slices.BinarySearchFunc(keys, p.PartKey, projections.PartKey.Compare); ok && !current[at] {
					m.parts[at] = p
				}
			}
			return nil
		}
		for _, at := range list {
			if m.parts[at], err = m.reader.DigestMonth(keys[at]); err != nil {
				return err
			}
		}
		return nil
	})
}

// manyMonths is from how many changed months on all rows of a partition are read in one pass.
const manyMonths = 3

// concurrently calls do for 0 to n-1, several at a time if parallel.
func concurrently(ctx context.Context, parallel bool, n int, bar Progress, do func(int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(1)
	if parallel {
		g.SetLimit(runtime.GOMAXPROCS(0))
	}
	var done atomic.Int64
	for i := range n {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := do(i)
			bar.Set(done.Add(1))
			return err
		})
	}
	return g.Wait()
}

// MakeParts writes the rows of every sealed month that has no part, or whose rows have changed since.
// It also keeps the usage of these months, and shows it and closed months in SQL if the rows are in a database.
func (c *Caller) MakeParts(ctx context.Context) (made *PartsMade, err error) {
	if !c.app.hasParts() {
		return nil, &helped{
			invalid("data-dir", "there is no directory for parts, and the configuration sets none"), RemedyNameDataDir,
		}
	}
	err = c.read(ctx, "", func(h *Conn, v projections.View) (err error) {
		made, err = h.makeParts(ctx, v)
		return err
	})
	if err != nil {
		return made, err
	}
	made.Posted, err = c.LoadBooks(ctx)
	return made, err
}

// makeParts is [Caller.MakeParts] for the rows of a view.
func (h *Conn) makeParts(ctx context.Context, v projections.View) (made *PartsMade, err error) {
	w, err := parts.NewWriter(h.Parts())
	if errors.Is(err, parts.ErrLocked) {
		return nil, &UnavailableError{Err: err}
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	m, current, err := h.changed(ctx, v, w.Directory)
	if err != nil {
		return nil, err
	}
	at := v.Position()
	made = &PartsMade{
		Directory: w.String(), Position: at.String(), Open: projections.MonthName(m.before), Root: m.root().String(),
		Parts: make([]PartMade, len(m.parts)),
	}
	bar := h.app.track(Work{Name: "make", Total: int64(len(m.parts)), Unit: "parts", Slow: true})
	defer bar.Stop()
	if err := concurrently(ctx, m.reader.Parallel(), len(m.parts), bar, func(i int) error {
		p, outcome := m.parts[i], parts.Unchanged
		var err error
		if !current[p.PartKey] {
			outcome, err = w.Put(p, m.tallies[p.PartKey], at[p.Partition], func(yield func(projections.Key, []byte) error) error {
				return m.reader.Rows(p.PartKey, yield)
			})
		}
		made.Parts[i] = PartMade{
			Partition: p.Partition.String(), Month: projections.MonthName(p.Month), Rows: p.Rows,
			Digest: parts.Digest(p.Digest).String(), Outcome: string(outcome),
		}
		return err
	}); err != nil {
		return made, err
	}
	made.Usage, err = h.keepUsage(ctx, v, w, m)
	return made, err
}

// ListParts returns every version of every part of the log by partition and month, the newest first,
// and their directory.
func (c *Caller) ListParts(ctx context.Context) (list []PartVersion, dir string, err error) {
	h, err := c.log(ctx)
	if err != nil {
		return nil, "", err
	}
	d := h.Parts()
	keys, err := d.List()
	if err != nil {
		return nil, d.String(), err
	}
	list = []PartVersion{}
	for _, k := range keys {
		m, err := d.Manifest(k)
		if errors.Is(err, parts.ErrBucket) {
			return nil, d.String(), err
		}
		if err != nil {
			list = append(list, PartVersion{
				Partition: k.Partition.String(), Month: projections.MonthName(k.Month),
				State: partInvalid, Error: err.Error(),
			})
			continue
		}
		for i, v := range slices.Backward(m.Versions) {
			state := partSuperseded
			switch {
			case i < len(m.Versions)-1:
			case v.Method != projections.Method:
				state = partOtherMethod
			default:
				state = partCurrent
			}
			list = append(list, PartVersion{
				Partition: k.Partition.String(), Month: m.Month, File: d.File(k, v.Digest),
				Rows: v.Rows, Bytes: v.Bytes, Method: v.Method, Offset: v.Position,
				Digest: v.Digest.String(), State: state,
			})
		}
	}
	return list, d.String(), nil
}
