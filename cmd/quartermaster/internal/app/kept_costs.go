package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/usage"
)

// Divided months that are sealed are kept in files, so that they are divided once and not once in each
// process. A kept month is valid while what it was computed from is the same; see [projections.Reads].

// keptDivision returns the kept division of a month for the rows of a view, and what is known of it; nil if
// there is none.
func (h *Conn) keptDivision(v projections.View, month domain.Interval) (*costs.Division, *parts.AllocationsVersion) {
	if !h.app.hasParts() {
		return nil, nil
	}
	dir := h.Parts()
	versions, err := dir.AllocationsVersions(month)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			h.app.tell("kept allocations were ignored and the month is divided again: %v", err)
		}
		return nil, nil
	}
	for i := range slices.Backward(versions) {
		k := &versions[i]
		if inputs, err := k.Reads.Inputs(v); err != nil || k.Methods != costs.CurrentMethods() || k.Inputs != inputsDigest(inputs) {
			continue
		}
		d, err := openDivision(dir, month, k.Digest)
		if err == nil {
			return d, k
		}
		h.app.tell("kept allocations were ignored and the month is divided again: %v", err)
	}
	return nil, nil
}

// inputsDigest is the digest of what a division was computed from: rows and the catalogue of GPUs.
func inputsDigest(inputs string) parts.Digest {
	return sha256.Sum256(fmt.Appendf(nil, "%scatalogue: %x\n", inputs, usage.Catalogue()))
}

// openDivision opens a kept division by its digest.
func openDivision(dir parts.Directory, month domain.Interval, digest parts.Digest) (*costs.Division, error) {
	open, err := dir.OpenAllocations(month, digest)
	if err != nil {
		return nil, err
	}
	d, err := costs.ReadCanonical(open)
	if err == nil && d.Month != month {
		err = errors.New("it is of another month")
	}
	if err != nil {
		return nil, errors.Join(parts.ErrDamaged, err)
	}
	d.Identify(digest)
	return d, nil
}

// keepDivision divides a month and keeps it in a file. A close names the file if books is set.
// See unkeepable for errors after which the month can be answered from memory.
func (h *Conn) keepDivision(v projections.View, month domain.Interval, books bool) (*parts.AllocationsVersion, error) {
	if projections.CountRows(v, projections.TableBillingLines, projections.HourOf(month.From)) > manyLines {
		defer collectSooner(40)()
	}
	dir := h.Parts()
	draft, err := dir.NewDraft(month)
	if err != nil {
		return nil, err
	}
	reads, summary, err := costs.WriteCanonical(v, month, draft)
	if err != nil {
		return nil, errors.Join(err, draft.Discard())
	}
	inputs, err := reads.Inputs(v)
	if err != nil {
		return nil, errors.Join(err, draft.Discard())
	}
	h.app.cache().dividedOnce()
	k := &parts.AllocationsVersion{
		Methods: summary.Methods, Position: v.Position().String(), Reads: reads, Inputs: inputsDigest(inputs),
		Rows: summary.Allocations, Books: books,
	}
	w, err := parts.NewWriter(dir)
	if err != nil {
		return nil, errors.Join(err, draft.Discard())
	}
	digest, err := w.PutAllocations(month, *k, draft)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	k.Digest = digest
	return k, nil
}

// manyLines is from how many lines on a month is divided with less garbage waiting: a month of 100,000 GPUs with hourly lines
// has 9 million, of 200 bytes each, and as much garbage would not fit into 4 GiB.
const manyLines = 2_000_000

// unkeepable reports whether an error says that a division cannot be kept here, but can be answered from
// memory.
func unkeepable(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC) ||
		errors.Is(err, parts.ErrLocked) || errors.Is(err, costs.ErrText) || errors.Is(err, projections.ErrNoTallies)
}

// keepsMonth reports whether divisions of a month are kept: if it is sealed, of the present, in a directory.
func (h *Conn) keepsMonth(ctx context.Context, v projections.View, month domain.Interval) (bool, error) {
	if !h.app.hasParts() || h.asOf != nil || h.Generation != "" {
		return false, nil
	}
	before, err := h.sealed(ctx, v.Position(), month)
	return projections.HourOf(month.To) <= before, err
}
