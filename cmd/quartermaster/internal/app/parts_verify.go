package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	"quartermaster/projections"
)

// PartsCheck is the comparison of parts with the rows.
type PartsCheck struct {
	// Position is the position of the rows.
	Position string `json:"position"`
	// Root is the root of the Merkle tree over the digests of all sealed months, of the rows.
	Root  string      `json:"root"`
	Parts []PartCheck `json:"parts"` // by partition and month
}

// PartCheck is the comparison of a part with the rows.
type PartCheck struct {
	Partition string `json:"partition"` // topic and number, separated by a slash
	Month     string `json:"month"`
	// Result is equal, different (from rows at the same offset), changed (the rows have changed at a
	// later offset), damaged, missing (the manifest names a file that is not there), not_made,
	// beyond_log, other_log, or other_method (made by another version of the folds, so not compared).
	Result string `json:"result"`
	Why    string `json:"why,omitempty"`
	Digest string `json:"digest,omitempty"` // of the part
	// Row is the first row that differs.
	Row    string `json:"row,omitempty"`
	InPart bool   `json:"in_part,omitempty"` // the part has the row
	InRows bool   `json:"in_rows,omitempty"` // the rows have it
}

// Results of a check.
const (
	PartEqual      = "equal"
	partDifferent  = "different"
	partChanged    = "changed"
	partDamaged    = "damaged"
	partMissing    = "missing"
	partNotMade    = "not_made"
	partBeyondLog  = "beyond_log"
	partOtherLog   = "other_log"
	partOtherFolds = "other_method"
)

// Bad reports whether the result needs action.
func (c *PartCheck) Bad() bool {
	return c.Result != PartEqual && c.Result != partNotMade && c.Result != partOtherFolds
}

// VerifyParts reads all parts, and compares them with the rows at a point in time.
func (c *Caller) VerifyParts(ctx context.Context, at At) (check *PartsCheck, err error) {
	if c.app.shared != nil && at == "" { // others fold and read while this one reads rows of its own
		now, err := c.app.Position(ctx)
		if err != nil {
			return nil, err
		}
		at = At(now.String())
	}
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		m, err := h.monthly(ctx, v)
		if err != nil {
			return err
		}
		k := partChecker{dir: h.Parts(), at: v.Position(), rows: m.reader, want: map[projections.PartKey]parts.Digest{}}
		keys, err := k.dir.List()
		if err != nil {
			return err
		}
		for _, p := range m.parts {
			k.want[p.PartKey] = p.Digest
			keys = append(keys, p.PartKey)
		}
		slices.SortFunc(keys, projections.PartKey.Compare)
		keys = slices.Compact(keys)
		check = &PartsCheck{
			Position: v.Position().String(), Root: m.root().String(), Parts: make([]PartCheck, len(keys)),
		}
		bar := h.app.track(Work{Name: "verify", Total: int64(len(keys)), Unit: "parts", Slow: true})
		defer bar.Stop()
		return concurrently(ctx, true, len(keys), bar, func(i int) (err error) {
			check.Parts[i], err = k.check(keys[i])
			return err
		})
	})
	return check, err
}

// partChecker compares parts with rows.
type partChecker struct {
	dir  parts.Directory
	at   domain.Position
	want map[projections.PartKey]parts.Digest // of sealed months of the rows
	mu   sync.Mutex                           // held while rows is used
	rows *projections.PartReader
}

// check compares a part. Its error is of the rows: what is wrong with the part is in the answer.
func (c *partChecker) check(k projections.PartKey) (PartCheck, error) {
	ans := PartCheck{Partition: k.Partition.String(), Month: projections.MonthName(k.Month)}
	set := func(result, format string, args ...any) (PartCheck, error) {
		ans.Result, ans.Why = result, fmt.Sprintf(format, args...)
		return ans, nil
	}
	m, err := c.dir.Manifest(k)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return set(partNotMade, "\"quartermaster parts make\" makes it")
	case errors.Is(err, parts.ErrLog):
		return set(partOtherLog, "%v", err)
	case errors.Is(err, parts.ErrBucket):
		return ans, err
	case err != nil:
		return set(partDamaged, "%v", err)
	}
	v := m.Last()
	ans.Digest = v.Digest.String()
	next := c.at[k.Partition]
	switch {
	case v.Method != projections.Method:
		return set(partOtherFolds, "it was made by %s, this program folds with %s: verify it with that version",
			v.Method, projections.Method)
	case v.Position > next:
		return set(partBeyondLog, "it is of offset %d, and the rows end at %d", v.Position, next)
	}
	err = c.dir.Read(k, func(p *parts.Part) error {
		if err := p.Verify(); err != nil {
			return err
		}
		if v.Digest == c.want[k] {
			ans.Result = PartEqual
			return nil
		}
		ans.Result, ans.Why = partDifferent, "the rows at its offset differ: the part or the rows were altered"
		if v.Position < next {
			ans.Result = partChanged
			ans.Why = fmt.Sprintf("it is of offset %d, and the rows have changed up to %d: "+
				"\"quartermaster parts make\" supersedes it", v.Position, next)
		}
		return c.difference(p, &ans)
	})
	switch {
	case errors.Is(err, parts.ErrMissing):
		return set(partMissing, "%v", err)
	case errors.Is(err, parts.ErrLog):
		return set(partOtherLog, "%v", err)
	case errors.Is(err, parts.ErrDamaged):
		return set(partDamaged, "%v", err)
	}
	return ans, err
}

// difference finds the first row that differs. There is none if the month is not sealed at the
// position of the rows, and has the same rows.
func (c *partChecker) difference(p *parts.Part, ans *PartCheck) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errPart, errRows error
	d, found := projections.FirstDifference(
		sequence(&errPart, func(yield func(projections.Key, []byte) error) error {
			return p.Scan(projections.Query{}, yield)
		}),
		sequence(&errRows, func(yield func(projections.Key, []byte) error) error { return c.rows.Rows(p.Key, yield) }))
	if err := errors.Join(errPart, errRows); err != nil {
		return err
	}
	if !found {
		ans.Result, ans.Why = PartEqual, ""
		return nil
	}
	ans.Row, ans.InPart, ans.InRows = d.Key.String(), d.InA, d.InB
	return nil
}

// errEnough ends a scan whose rest is not needed.
var errEnough = errors.New("the rest is not needed")

// sequence makes rows iterable. The scan's error goes to err.
func sequence(err *error, scan parts.Rows) func(yield func(projections.Key, []byte) bool) {
	return func(yield func(projections.Key, []byte) bool) {
		if e := scan(func(k projections.Key, b []byte) error {
			if !yield(k, b) {
				return errEnough
			}
			return nil
		}); !errors.Is(e, errEnough) {
			*err = e
		}
	}
}
