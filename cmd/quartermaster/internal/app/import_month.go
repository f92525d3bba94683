package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"quartermaster/adapters/bill"
	"quartermaster/adapters/focus"
	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// BillMonth is a billing month of an account, which a supplier exports again and again.
type BillMonth struct {
	Account string
	Month   domain.Interval // a calendar month in UTC: see projections.MonthOf
}

// ParseBillMonth reads ACCOUNT/YYYY-MM. The account may contain slashes.
func ParseBillMonth(s string) (BillMonth, error) {
	i := strings.LastIndexByte(s, '/')
	if i <= 0 {
		return BillMonth{}, fmt.Errorf("%q is not an account and a month such as 123456789012/2026-05", s)
	}
	t, err := time.Parse("2006-01", s[i+1:])
	if err != nil {
		return BillMonth{}, fmt.Errorf("%q is not a month such as 2026-05", s[i+1:])
	}
	return BillMonth{Account: s[:i], Month: projections.BillingMonth(domain.InstantOf(t))}, nil
}

// String returns ACCOUNT/YYYY-MM.
func (m BillMonth) String() string { return m.Account + "/" + m.Month.From.Time().Format("2006-01") }

// Replaced is how an export of a month changed what the ledger has of it, in lines.
type Replaced struct {
	Account   string          `json:"account"`
	Month     domain.Interval `json:"month"`
	Before    int             `json:"before"` // in the ledger
	Lines     int             `json:"lines"`  // in the export
	Added     int             `json:"added"`
	Changed   int             `json:"changed"` // those with an x_LineId whose columns changed
	Removed   int             `json:"removed"`
	Unchanged int             `json:"unchanged"`
}

// heldLine is a line of the ledger.
type heldLine struct {
	digest lineContent
	in     *heldIn
	seen   bool // in the export
}

// heldIn is what many lines have in common.
type heldIn struct {
	issuer string
	period domain.Interval
}

// lineContent is a digest of a line without the columns of the export's time.
type lineContent [16]byte

// heldMonth is what the ledger has of a month of an account.
type heldMonth struct {
	lines   map[string]*heldLine // by issuer, a NUL and id
	issuers map[string]bool
	digest  string // of all of it, with how often each line was stated
}

// monthFile is a file of an export, with its SHA-256.
type monthFile struct {
	name   string
	sum    [32]byte
	before uint64 // lines of the files before it
}

// ImportMonth imports an export that replaces what the ledger has of a month of an account: lines
// that it does not have are removed, and those that it has once more are added. The files together
// are the export. Lines are compared as a multiset of rows without the columns that say when the file
// was exported. Nothing is overwritten: what was added and removed are events.
//
// Nothing is imported if a row is bad or belongs to another account or month, because a row that is
// not read would count as removed. If the export has at most half as many lines as the ledger, or lacks
// an issuer that the ledger has of the account, acceptRemoval MUST be the number of lines that it removes; the error is
// an [InvalidError] that says how many.
func (c *Caller) ImportMonth(ctx context.Context, opts focus.Options, of BillMonth, files []string, acceptRemoval int) (Imported, error) {
	start := time.Now()
	ans := Imported{
		File: strings.Join(files, ", "), Types: map[domain.Type]int{}, Bad: []tabular.BadRow{}, Warnings: []tabular.Warning{},
		Snapshot: &Replaced{Account: of.Account, Month: of.Month},
	}
	diff := ans.Snapshot
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return ans, err
	}
	if opts.Elsewhere = (&focus.Elsewhere{Lines: h.billingLines}); opts.Open == nil {
		opts.Open = openBill
	}
	for _, name := range files {
		opts.Elsewhere.Files = append(opts.Elsewhere.Files, focus.File{Name: name, Open: func() (io.ReadCloser, error) { return os.Open(name) }})
	}
	all, err := wholeFiles(ctx, files, opts)
	if err != nil {
		return ans, err
	}
	held, err := h.heldMonth(ctx, of, opts.ExportTime)
	if err != nil {
		return ans, err
	}
	diff.Before = len(held.lines)
	ans.Source = monthSource(all, opts, of, held.digest)
	lacks := maps.Clone(held.issuers) // issuers without a line in the export
	added := map[string]bool{}        // lines to be appended
	err = h.readMonth(ctx, opts, of, all, &ans, func(env *domain.Envelope, l *domain.BillingLine) error {
		key := l.InvoiceIssuerName + "\x00" + l.LineID
		delete(lacks, l.InvoiceIssuerName)
		digest, err := contentOf(env.Event, opts.ExportTime)
		if err != nil {
			return err
		}
		was := held.lines[key]
		switch {
		case was == nil:
			diff.Added++
			added[key] = true
			return nil
		case was.digest != digest:
			diff.Changed++
			added[key] = true
		default:
			diff.Unchanged++
		}
		was.seen = true
		return nil
	})
	ans.Seconds = time.Since(start).Seconds()
	if err != nil {
		return ans, err
	}
	if ans.BadRows > 0 {
		ans.Refused, diff.Added, diff.Changed, diff.Unchanged = true, 0, 0, 0
		return ans, nil
	}
	var removed []string
	for _, key := range slices.Sorted(maps.Keys(held.lines)) {
		if !held.lines[key].seen {
			removed = append(removed, key)
		}
	}
	diff.Removed, diff.Lines = len(removed), diff.Added+diff.Changed+diff.Unchanged
	if few := 2*diff.Lines <= diff.Before; (few || len(lacks) > 0) && len(removed) > 0 && acceptRemoval != len(removed) {
		why := fmt.Sprintf("it has %d lines, the ledger has %d", diff.Lines, diff.Before)
		if !few {
			why = fmt.Sprintf("it has no line of %s, and the ledger does", strings.Join(slices.Sorted(maps.Keys(lacks)), ", "))
		}
		return ans, &helped{invalid("accept-removal", "the export of %s would remove %d lines: %s; nothing was imported",
			of, len(removed), why), RemedyAcceptRemoval}
	}
	if ans.Kept, err = h.keepFiles(ans.Source, all, opts.Documents); err != nil {
		return ans, err
	}
	ap, err := h.resume(ctx, ans.Source)
	if err != nil {
		return ans, err
	}
	err = h.readMonth(ctx, opts, of, all, &ans, func(env *domain.Envelope, l *domain.BillingLine) error {
		if !added[l.InvoiceIssuerName+"\x00"+l.LineID] {
			return nil
		}
		ans.Types[env.Event.Type()]++
		return ap.add(env)
	})
	for _, key := range removed {
		if err != nil {
			break
		}
		issuer, id, _ := strings.Cut(key, "\x00")
		in := held.lines[key].in
		env := domain.Envelope{Time: in.period.To, Subject: id, Event: &domain.BillingLineRemoved{
			InvoiceIssuerName: issuer, BillingAccountID: of.Account, LineID: id, BillingPeriod: in.period,
			Reason: "a later export of the month does not have it",
		}}
		err = ap.add(&env)
	}
	if err == nil {
		err = ap.flush(ctx)
	}
	ans.Events, ans.Appended, ans.Known = ap.appended+ap.known, ap.appended, ap.known
	if len(removed) > 0 {
		ans.Types[domain.TypeBillingLineRemoved] = len(removed)
	}
	ans.Seconds = time.Since(start).Seconds()
	if err != nil {
		return ans, err
	}
	return ans, h.CatchUp(ctx)
}

// monthSource names an export as a source of events. What the ledger had before is part of the name,
// because the events are the difference from it: the same file may be imported again after another
// one, and then says something else. So is how often each line was stated, because exports may go
// back and forth between two states.
func monthSource(all []monthFile, opts focus.Options, of BillMonth, before string) string {
	sum := all[0].sum
	if len(all) > 1 {
		h := sha256.New()
		for _, f := range all {
			h.Write(f.sum[:])
		}
		sum = [32]byte(h.Sum(nil))
	}
	return focus.SnapshotName(sum, opts, of.String(), before)
}

// wholeFiles reads files to their ends, and returns an error if one of them is damaged.
func wholeFiles(ctx context.Context, files []string, opts focus.Options) ([]monthFile, error) {
	var all []monthFile
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("import: %w", err)
		}
		sum, err := sumOf(f)
		if err == nil {
			err = wholeOf(ctx, f, opts)
		}
		f.Close()
		if errors.Is(err, focus.ErrColumns) {
			err = &InvalidError{Err: err}
		}
		if err != nil {
			return nil, fmt.Errorf("import %s: nothing was imported: %w", name, err)
		}
		all = append(all, monthFile{name: name, sum: sum})
	}
	return all, nil
}

// sumOf returns the SHA-256 of a regular file, and moves to its beginning.
func sumOf(f *os.File) (sum [32]byte, err error) {
	info, err := f.Stat()
	if err != nil {
		return sum, err
	}
	if !info.Mode().IsRegular() {
		return sum, errors.New("not a regular file; a file is read several times")
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return [32]byte(h.Sum(nil)), err
}

// readMonth reads the files of an export, and calls yield with every line of them.
func (h *Conn) readMonth(
	ctx context.Context, opts focus.Options, of BillMonth, files []monthFile, ans *Imported,
	yield func(*domain.Envelope, *domain.BillingLine) error,
) error {
	opts.Parts = &focus.Parts{}
	ans.Rows, ans.BadRows, ans.Bad, ans.Warnings, ans.Rounded, ans.Deviations = 0, 0, []tabular.BadRow{}, []tabular.Warning{}, nil, map[focus.Deviation]int{}
	var before uint64
	for i := range files {
		file := &files[i]
		file.before = before
		err := func() error {
			f, err := os.Open(file.name)
			if err != nil {
				return fmt.Errorf("import: %w", err)
			}
			defer f.Close()
			if sum, err := sumOf(f); err != nil {
				return fmt.Errorf("import %s: %w", file.name, err)
			} else if sum != file.sum {
				return fmt.Errorf("import %s: the file changed while it was read; import it again", file.name)
			}
			info, err := f.Stat()
			if err != nil {
				return err
			}
			var rows io.Reader = f
			if parquet.Is(f) {
				rows = io.NewSectionReader(f, 0, info.Size())
			}
			s, err := focus.Run(ctx, rows, io.NewSectionReader(f, 0, info.Size()), file.name, opts, func(env *domain.Envelope) error {
				l := lineOf(env.Event)
				if l == nil {
					return &InvalidError{Err: errors.New("an invoice is not one of a month's lines: import it on its own")}
				}
				period := domain.Interval{From: l.BillingPeriodStart, To: l.BillingPeriodEnd}
				if month := projections.MonthOf(period); l.BillingAccountID != of.Account || month != of.Month {
					return &InvalidError{Err: fmt.Errorf("a row of %s is no part of %s: split the export by account and month",
						BillMonth{l.BillingAccountID, month}, of)}
				}
				env.Line += file.before
				return yield(env, l)
			}, func(b tabular.BadRow) {
				ans.BadRows++
				if len(ans.Bad) < listedBad {
					ans.Bad = append(ans.Bad, b)
				}
			})
			ans.Rows += s.Rows
			before += uint64(s.LastLine)
			ans.Dataset, ans.Version, ans.Rounded = s.Dataset, s.FocusVersion, append(ans.Rounded, s.Rounded...)
			ans.Warnings = append(ans.Warnings, s.Warnings...)
			for k, n := range s.Deviations {
				ans.Deviations[k] += n
			}
			if errors.Is(err, focus.ErrColumns) || errors.Is(err, bill.ErrGiven) {
				err = &InvalidError{Err: err}
			}
			return err
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

func lineOf(ev domain.Event) *domain.BillingLine {
	switch ev := ev.(type) {
	case *domain.BillingLineRecorded:
		return &ev.Line
	case *domain.BillingLineCorrected:
		return &ev.Line
	}
	return nil
}

// heldMonth reads what the ledger has of a month of an account.
func (h *Conn) heldMonth(ctx context.Context, of BillMonth, exportTime []string) (*heldMonth, error) {
	held := &heldMonth{lines: map[string]*heldLine{}, issuers: map[string]bool{}}
	common := map[heldIn]*heldIn{}
	sum := sha256.New()
	err := h.View(ctx, func(v projections.View) error {
		return costs.EachHistory(v, of.Month, of.Account, func(l *costs.LedgerLine, statements int) error {
			if l == nil {
				fmt.Fprintf(sum, "removed %d\n", statements)
				return nil
			}
			if l.Other[costs.ColumnAccrual] != "" {
				return nil // the supplier never stated it, and so does not remove it
			}
			var ev domain.Event = &domain.BillingLineRecorded{Line: l.BillingLine}
			if l.Corrects != "" {
				ev = &domain.BillingLineCorrected{Line: l.BillingLine, Corrects: l.Corrects, Reason: l.Reason}
			}
			digest, err := contentOf(ev, exportTime)
			if err != nil {
				return err
			}
			in := heldIn{l.InvoiceIssuerName, domain.Interval{From: l.BillingPeriodStart, To: l.BillingPeriodEnd}}
			if common[in] == nil {
				common[in] = &in
			}
			held.issuers[in.issuer] = true
			key := l.InvoiceIssuerName + "\x00" + l.LineID
			held.lines[key] = &heldLine{digest: digest, in: common[in]}
			fmt.Fprintf(sum, "%s\x00%x %d\n", key, digest, statements)
			return nil
		})
	})
	held.digest = hex.EncodeToString(sum.Sum(nil)[:16])
	return held, err
}

// contentOf returns the digest of an event of a line without the columns of the export's time.
func contentOf(ev domain.Event, exportTime []string) (lineContent, error) {
	l := lineOf(ev)
	kept := l.Other
	for name := range kept {
		if slices.ContainsFunc(exportTime, func(s string) bool { return strings.EqualFold(s, name) }) {
			l.Other = maps.Clone(kept)
			maps.DeleteFunc(l.Other, func(name, _ string) bool {
				return slices.ContainsFunc(exportTime, func(s string) bool { return strings.EqualFold(s, name) })
			})
			if len(l.Other) == 0 {
				l.Other = nil
			}
			break
		}
	}
	digest, err := projections.EventDigest(ev)
	l.Other = kept
	return lineContent(digest[:16]), err
}
