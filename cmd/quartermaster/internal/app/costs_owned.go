package app

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"quartermaster/adapters/focus"
	"quartermaster/domain"
	"quartermaster/domain/owned"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// BillFiles are the files of an internal bill.
type BillFiles struct {
	Lines    string `json:"lines"`    // Cost and Usage
	Invoices string `json:"invoices"` // Invoice Detail
}

// OwnedAnswer is a bill of owned hardware, and where it was written.
type OwnedAnswer struct {
	*costs.OwnedBill
	Files *BillFiles `json:"files,omitempty"`
}

// BillOwned computes the internal invoices of owned hardware for a month. If dir is not empty, it
// also writes them there as FOCUS 1.4, ready to be imported.
func (c *Caller) BillOwned(ctx context.Context, at At, month domain.Interval, dir string) (*OwnedAnswer, error) {
	ans := &OwnedAnswer{}
	err := c.read(ctx, at, func(_ *Conn, v projections.View) (err error) {
		ans.OwnedBill, err = costs.NewOwnedBill(v, month)
		return err
	})
	if err != nil || dir == "" {
		return ans, err
	}
	ans.Files, err = writeBill(dir, "owned-"+MonthName(month), owned.Columns(), ans.Lines(), ans.Received())
	return ans, err
}

// writeBill writes an internal bill as FOCUS. columns, which FOCUS does not define, come before others that its lines have.
func writeBill(dir, name string, columns []string, lines []domain.BillingLine, invoices []domain.InvoiceReceived) (*BillFiles, error) {
	files := &BillFiles{Lines: filepath.Join(dir, name+".csv"), Invoices: filepath.Join(dir, name+"-invoices.csv")}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("write the bill: %w", err)
	}
	err := writeFile(files.Lines, func(f *os.File) error {
		w := focus.NewWriter(f, withOthers(columns, lines)...)
		for i := range lines {
			if err := w.WriteLine(&lines[i]); err != nil {
				return err
			}
		}
		return w.Flush()
	})
	if err == nil {
		err = writeFile(files.Invoices, func(f *os.File) error { return focus.WriteInvoices(f, invoices) })
	}
	if err != nil {
		return nil, fmt.Errorf("write the bill: %w", err)
	}
	return files, nil
}

// withOthers adds the columns of lines that are not among the given ones.
func withOthers(columns []string, lines []domain.BillingLine) []string {
	others := map[string]bool{}
	for i := range lines {
		for name := range lines[i].Other {
			if !slices.Contains(columns, name) {
				others[name] = true
			}
		}
	}
	return append(slices.Clone(columns), slices.Sorted(maps.Keys(others))...)
}

// TCO returns what owned hardware cost in a month, beside what its hours cost elsewhere: all assets, or those of a name,
// and sums of them if by is not empty. A closed month is answered from the allocations that were closed, with the offers
// that were appended by the position of the close.
func (c *Caller) TCO(ctx context.Context, at At, month domain.Interval, asset string, by costs.TCODimension) (t *costs.TCO, err error) {
	if by != "" && !slices.Contains(costs.TCODimensions(), by) {
		return nil, invalid("by", "%q: want one of %v", by, costs.TCODimensions())
	}
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		r, err := c.costs(ctx, v, costs.TCOQuery(month))
		if err != nil {
			return err
		}
		d, err := h.whole(ctx, v, month, c.division)
		if err != nil {
			return err
		}
		var until domain.Instant // the offers of an open month are those of now
		if books := d.Books(); books != nil {
			to, err := domain.ParsePosition(books.Position)
			if err == nil {
				until, err = h.lastAppended(ctx, to)
			}
			if err != nil {
				return err
			}
		}
		if t, err = costs.NewTCO(v, d, r, until); err != nil {
			return err
		}
		var names []string
		for i := range t.Assets {
			names = append(names, t.Assets[i].Asset)
		}
		if asset != "" && !t.Of(asset) {
			return &NotFoundError{What: "asset", Name: asset, Known: slices.Compact(names), Err: fmt.Errorf(
				"no lines of an owned asset %q in %s: %s", asset, MonthName(month), domain.Suggest(asset, slices.Compact(names)))}
		}
		if by == "" {
			return nil
		}
		return t.GroupBy(by)
	})
	return t, err
}

// Commitments returns the roll-forward of commitments in a month.
func (c *Caller) Commitments(ctx context.Context, at At, month domain.Interval) (b *costs.CommitmentBook, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		b, err = costs.NewCommitmentBook(v, month)
		return err
	})
	return b, err
}

// writeFile writes a file anew.
func writeFile(path string, write func(*os.File) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
