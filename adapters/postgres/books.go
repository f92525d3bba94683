package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lib/pq"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// Closed months are shown in SQL from tables of schema quartermaster, because a close is the same in every generation of
// rows. The program itself does not read them: it answers from what was kept in files, which the tables are loaded from.

// Books are the books of a closed month. What was kept under these digests never changes, so the digests tell whether
// tables have it.
type Books struct {
	Month domain.Interval
	// Allocations is the SHA-256 of the closed allocations, and Postings that of what was posted into the month about
	// earlier ones; nil if nothing was.
	Allocations, Postings []byte
}

// BooksContent is what SQL shows of a closed month.
type BooksContent struct {
	// Rows calls yield with each allocation and posting: the month that it is about, and a cell for each of
	// [costs.ExportedColumns], "" for null. yield does not keep the row.
	Rows func(yield func(about domain.Interval, row []string) error) error
	// Units calls yield with what pods, jobs and machines cost: the month that it is about, why it was posted or "", and a
	// cell for each of [costs.UnitColumns]. yield does not keep the row.
	Units      func(yield func(about domain.Interval, posting string, row []string) error) error
	Statements []StatementRow
	Due        []StatementDue
}

// StatementRow is a line of a statement. Texts are "" for null; numbers are plain decimals.
type StatementRow struct {
	Workspace, Number                string
	About                            domain.Interval
	Corrects, PostingType, Component string
	Currency, Billed, Effective      string
	SecondsBought, SecondsAllocated  string
	SecondsMeasured, SecondsUseful   string
	Causes                           string
}

// StatementDue is what a statement asks for in a currency, in plain decimals.
type StatementDue struct{ Workspace, Number, Currency, Charged, Notes, Due string }

// booksLock orders programs that load closed months: the second finds what the first has loaded.
const booksLock = `select pg_advisory_xact_lock(hashtextextended('quartermaster books', 0))`

// BooksMissing returns those of the closed months that the tables do not have, in order. It removes what the tables
// have of other months, and of these months under other digests. all MUST be all closed months.
func (db *DB) BooksMissing(ctx context.Context, all []Books) (missing []Books, err error) {
	rows, err := db.QueryContext(ctx, `select month, allocations_sha256, postings_sha256 from quartermaster.closed_months`)
	if err != nil {
		return nil, fmt.Errorf("read which closed months are in tables: %w", err)
	}
	have, err := collect(rows, func(rows *sql.Rows, b *Books) error {
		var from sql.NullTime
		err := rows.Scan(&from, &b.Allocations, &b.Postings)
		b.Month.From = domain.InstantOf(from.Time)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read which closed months are in tables: %w", err)
	}
	same := func(a, b Books) bool {
		return a.Month.From == b.Month.From && bytes.Equal(a.Allocations, b.Allocations) && bytes.Equal(a.Postings, b.Postings)
	}
	for _, b := range have {
		if slices.ContainsFunc(all, func(o Books) bool { return same(b, o) }) {
			continue
		}
		if _, err := db.ExecContext(ctx, `delete from quartermaster.closed_months where month = $1 and allocations_sha256 = $2`,
			b.Month.From.Time(), b.Allocations); err != nil {
			return nil, fmt.Errorf("remove closed months from tables: %w", err)
		}
	}
	for _, b := range all {
		if !slices.ContainsFunc(have, func(o Books) bool { return same(b, o) }) {
			missing = append(missing, b)
		}
	}
	return missing, nil
}

// PutBooks loads a closed month into the tables, in one transaction. It changes nothing if they have it already.
func (db *DB) PutBooks(ctx context.Context, of Books, content *BooksContent) error {
	if err := db.putBooks(ctx, of, content); err != nil {
		return fmt.Errorf("load the books of %s into the database: %w", projections.MonthName(projections.HourOf(of.Month.From)), err)
	}
	return nil
}

func (db *DB) putBooks(ctx context.Context, of Books, content *BooksContent) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, booksLock); err != nil {
		return err
	}
	var books int64
	err = tx.QueryRowContext(ctx, `
		insert into quartermaster.closed_months (month, allocations_sha256, postings_sha256, rows) values ($1, $2, $3, 0)
		on conflict (month) do nothing returning books`, of.Month.From.Time(), of.Allocations, of.Postings).Scan(&books)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // another program has loaded it meanwhile
	}
	if err != nil {
		return err
	}
	rows, err := copyAllocations(ctx, conn, books, content)
	if err != nil {
		return err
	}
	if err := copyUnits(ctx, conn, books, content); err != nil {
		return err
	}
	if err := copyStatements(ctx, conn, books, content); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `update quartermaster.closed_months set rows = $2 where books = $1`, books, rows); err != nil {
		return err
	}
	return tx.Commit()
}

// The columns of exports that the table has under other names, and those that follow from other columns or say how an
// export was asked for.
const (
	exportedWorkspace = "x_WorkspaceId"
	exportedPosting   = "x_PostingType"
)

var notInSQL = map[string]bool{
	exportedWorkspace: true, exportedPosting: true, "x_BooksPeriod": true,
	"AllocatedMethodDetails": true, "AllocatedMethodId": true, "AllocatedResourceId": true, "AllocatedResourceName": true,
	"AllocatedTags": true, "x_BooksCurrency": true, "x_BooksBilledCost": true, "x_BooksEffectiveCost": true,
}

func copyAllocations(ctx context.Context, conn *sql.Conn, books int64, content *BooksContent) (rows int64, err error) {
	columns := []string{"books", "workspace", "month", "posting_type"}
	var cells []int // of the exported columns
	workspace, posting := -1, -1
	for i, c := range costs.ExportedColumns() {
		switch {
		case c.Name == exportedWorkspace:
			workspace = i
		case c.Name == exportedPosting:
			posting = i
		case !notInSQL[c.Name]:
			columns, cells = append(columns, c.Name), append(cells, i)
		}
	}
	err = copyInto(ctx, conn, "closed_allocations", columns, func(w *copyWriter) error {
		number := fmt.Sprint(books)
		return content.Rows(func(about domain.Interval, row []string) error {
			rows++
			w.cell(number)
			w.text(row[workspace])
			w.cell(about.From.String())
			w.cell(row[posting])
			for _, i := range cells {
				w.cell(row[i])
			}
			return w.end()
		})
	})
	return rows, err
}

func copyUnits(ctx context.Context, conn *sql.Conn, books int64, content *BooksContent) error {
	columns := []string{"books", "month", "posting_type"}
	for _, c := range costs.UnitColumns() {
		if c.Name == exportedWorkspace {
			c.Name = "workspace"
		}
		columns = append(columns, c.Name)
	}
	return copyInto(ctx, conn, "closed_units", columns, func(w *copyWriter) error {
		number := fmt.Sprint(books)
		return content.Units(func(about domain.Interval, posting string, row []string) error {
			w.cell(number)
			w.cell(about.From.String())
			w.cell(posting)
			for i, cell := range row {
				if columns[3+i] == "workspace" {
					w.text(cell)
					continue
				}
				w.cell(cell)
			}
			return w.end()
		})
	})
}

func copyStatements(ctx context.Context, conn *sql.Conn, books int64, content *BooksContent) error {
	number := fmt.Sprint(books)
	if err := copyInto(ctx, conn, "closed_statements", []string{
		"books", "workspace", "number", "month", "corrects", "posting_type", "component", "currency", "billed", "effective",
		"gpu_seconds_bought", "gpu_seconds_allocated", "gpu_seconds_measured", "gpu_seconds_useful", "causes",
	}, func(w *copyWriter) error {
		for i := range content.Statements {
			s := &content.Statements[i]
			w.cell(number)
			w.text(s.Workspace)
			for _, text := range [...]string{
				s.Number, s.About.From.String(), s.Corrects, s.PostingType, s.Component, s.Currency, s.Billed, s.Effective,
				s.SecondsBought, s.SecondsAllocated, s.SecondsMeasured, s.SecondsUseful, s.Causes,
			} {
				w.cell(text)
			}
			if err := w.end(); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return copyInto(ctx, conn, "closed_dues", []string{"books", "workspace", "number", "currency", "charged", "notes", "due"},
		func(w *copyWriter) error {
			for i := range content.Due {
				d := &content.Due[i]
				w.cell(number)
				w.text(d.Workspace)
				for _, text := range [...]string{d.Number, d.Currency, d.Charged, d.Notes, d.Due} {
					w.cell(text)
				}
				if err := w.end(); err != nil {
					return err
				}
			}
			return nil
		})
}

// copyWriter writes rows in the text format of COPY.
type copyWriter struct {
	ctx  context.Context
	to   copier
	b    []byte
	more bool // the row has a cell
}

// copier is what the driver's statement of a COPY can do.
type copier interface {
	// CopyData adds lines, without the last line end.
	CopyData(ctx context.Context, lines string) (driver.Result, error)
	// Exec without values ends the copy, and returns errors of all lines.
	Exec(values []driver.Value) (driver.Result, error)
}

// copyMessage is how many bytes of rows are sent at once.
const copyMessage = 32 << 10

var copyEscapes = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`)

// cell adds a cell; "" is null.
func (w *copyWriter) cell(s string) {
	if s == "" {
		s = `\N`
	} else {
		s = escaped(s)
	}
	w.put(s)
}

// text adds a cell that is never null.
func (w *copyWriter) text(s string) { w.put(escaped(s)) }

func escaped(s string) string {
	if strings.ContainsAny(s, "\\\t\n\r\x00") {
		return copyEscapes.Replace(plainText(s))
	}
	return s
}

func (w *copyWriter) put(s string) {
	if w.more {
		w.b = append(w.b, '\t')
	}
	w.b, w.more = append(w.b, s...), true
}

// end ends a row.
func (w *copyWriter) end() error {
	w.b, w.more = append(w.b, '\n'), false
	if len(w.b) < copyMessage {
		return nil
	}
	return w.flush()
}

func (w *copyWriter) flush() error {
	if len(w.b) == 0 {
		return nil
	}
	_, err := w.to.CopyData(w.ctx, string(w.b[:len(w.b)-1]))
	w.b = w.b[:0]
	return err
}

// copyInto copies rows into a table of schema quartermaster. The connection MUST be in a transaction.
func copyInto(ctx context.Context, conn *sql.Conn, table string, columns []string, write func(*copyWriter) error) error {
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = pq.QuoteIdentifier(c)
	}
	query := fmt.Sprintf("copy quartermaster.%s (%s) from stdin", table, strings.Join(quoted, ", "))
	return conn.Raw(func(c any) (err error) {
		stmt, err := c.(driver.Conn).Prepare(query)
		if err != nil {
			return err
		}
		to, ok := stmt.(copier)
		if !ok {
			return errors.Join(fmt.Errorf("the driver's %T copies no rows", stmt), stmt.Close())
		}
		w := &copyWriter{ctx: ctx, to: to}
		if err = write(w); err == nil {
			err = w.flush()
		}
		if err != nil {
			return errors.Join(err, stmt.Close()) // what was copied is rolled back
		}
		_, err = to.Exec(nil)
		return err
	})
}
