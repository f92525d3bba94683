package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster-audit/internal/audit"
	"quartermaster/domain"
	"quartermaster/projections"
)

// replayed is the answer of replay.
type replayed struct {
	Log      string `json:"log"`
	Position string `json:"position"`
	Records  int64  `json:"records"` // before the position
	Method   string `json:"method"`  // version of the folds
	Rows     int64  `json:"rows"`
	// Quarantined counts the records that could not be folded.
	Quarantined int64  `json:"quarantined"`
	Digest      string `json:"digest"` // of the rows
	// Equal is whether the digest is the expected one; absent if none was given.
	Equal *bool `json:"equal,omitempty"`
}

func (p *program) replayCommand() *cobra.Command {
	var until, expect string
	cmd := &cobra.Command{
		Use:   "replay DIR",
		Short: "Compute the rows from the records, and their digest",
		Long: `Replay folds the records of an archive to rows, as the server does, and shows the digest of the rows. It
is the one that "quartermaster log replay" shows at the same position, and reports name. With --expect
it exits with 1 if the digest is another.

Replay does not verify the archive. Rows are held in memory.`,
		Example: "  quartermaster-audit replay /mnt/archive\n  quartermaster-audit replay /mnt/archive --until 2026-06-01 -o json\n" +
			"  quartermaster-audit replay /mnt/archive --until \"qm.books/0=12\" --expect \"$DIGEST\"",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := open(args[0])
			if err != nil {
				return err
			}
			rows, at, err := fold(cmd.Context(), a, until)
			if err != nil {
				return err
			}
			ans := &replayed{Log: a.Log, Position: at.String(), Records: at.Records(), Method: projections.Method}
			err = rows.View(cmd.Context(), func(v projections.View) error {
				for _, t := range projections.Tables() {
					if err := v.Scan(projections.Query{Table: t}, func(projections.Key, projections.Row) error {
						ans.Rows++
						if t == projections.TableQuarantine {
							ans.Quarantined++
						}
						return nil
					}); err != nil {
						return err
					}
				}
				sum, err := projections.DigestOf(v)
				ans.Digest = fmt.Sprintf("%x", sum)
				return err
			})
			if err != nil {
				return err
			}
			if expect != "" {
				equal := strings.EqualFold(expect, ans.Digest)
				ans.Equal = &equal
			}
			if p.json() {
				err = commandline.WriteJSON(p.out, ans)
			} else {
				_, err = fmt.Fprintf(p.out, "position %s\n%d records, %d rows by %s, %d records in quarantine\ndigest %s\n",
					ans.Position, ans.Records, ans.Rows, ans.Method, ans.Quarantined, ans.Digest)
			}
			if err == nil && ans.Equal != nil && !*ans.Equal {
				err = &answer{commandline.ExitNo, "the rows have another digest than " + domain.Clip(expect, 100)}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "a position, or the records before a time (default: all)")
	cmd.Flags().StringVar(&expect, "expect", "", "the digest that the rows must have (default: any)")
	return cmd
}

// fold folds an archive up to the point that a text names.
func fold(ctx context.Context, a *audit.Archive, point string) (*projections.Memory, domain.Position, error) {
	at, err := a.Point(point)
	if errors.Is(err, audit.ErrPoint) {
		return nil, nil, &commandline.UsageError{Err: err}
	}
	if err != nil {
		return nil, nil, err
	}
	rows, err := a.Fold(ctx, at)
	return rows, at, err
}

// row is a row of as-of, or one that differs in diff.
type row struct {
	Table string `json:"table"`
	Scope string `json:"scope"`
	ID    string `json:"id,omitempty"`
	// Time is the hour, day or month of a row of a table that is split by time.
	Time domain.Instant `json:"time,omitzero"`
	// Incarnation is that of a stream.
	Incarnation uint64 `json:"incarnation,omitempty"`
	// Change is added, removed or changed; absent in as-of.
	Change string `json:"change,omitempty"`
	// Row has the keys of the row's type in package projections; absent in diff.
	Row json.RawMessage `json:"row,omitempty"`
}

func rowOf(k projections.Key) row {
	r := row{Table: k.Table.String(), Scope: k.Scope, ID: k.ID}
	if k.Table == projections.TableStreams { // split by incarnation
		r.Incarnation = uint64(k.Hour)
	} else {
		r.Time = domain.Instant(k.Hour) * domain.Hour
	}
	return r
}

// line writes one line of an answer of many.
func (p *program) line(v any, text string) error {
	if !p.json() {
		_, err := fmt.Fprintln(p.out, text)
		return err
	}
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(p.out, "%s\n", b)
	}
	return err
}

func (r *row) String() string {
	parts := []string{r.Table, r.Scope}
	if r.ID != "" {
		parts = append(parts, r.ID)
	}
	if !r.Time.IsZero() {
		parts = append(parts, r.Time.String())
	}
	if r.Incarnation != 0 {
		parts = append(parts, fmt.Sprintf("incarnation %d", r.Incarnation))
	}
	return strings.Join(parts, "  ")
}

func (p *program) asOfCommand() *cobra.Command {
	var at, scope string
	cmd := &cobra.Command{
		Use:   "as-of DIR TABLE",
		Short: "Show the rows of a table as they were",
		Long: `As-of folds the records before a point in the log and shows the rows of one table, a line each. With -o
json each line is a JSON document. Tables are those of "quartermaster log stats", for example workspaces,
clusters, commitments, billing_lines, invoices or usage_hours.`,
		Example: "  quartermaster-audit as-of /mnt/archive workspaces --at 2026-06-01\n" +
			"  quartermaster-audit as-of /mnt/archive clusters --scope lab -o json",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			table, ok := projections.TableNamed(args[1])
			if !ok {
				return commandline.Usagef("there is no table %q", domain.Clip(args[1], 40))
			}
			a, err := open(args[0])
			if err != nil {
				return err
			}
			rows, _, err := fold(cmd.Context(), a, at)
			if err != nil {
				return err
			}
			return rows.View(cmd.Context(), func(v projections.View) error {
				return v.Scan(projections.Query{Table: table, Scope: scope}, func(k projections.Key, r projections.Row) error {
					found := rowOf(k)
					text, err := json.Marshal(r)
					if err != nil {
						return fmt.Errorf("show %s: %w", found.String(), err)
					}
					found.Row = text
					return p.line(found, found.String()+"  "+string(text))
				})
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "a position, or the records before a time (default: all)")
	cmd.Flags().StringVar(&scope, "scope", "", "only rows of this scope: a workspace, a cluster, an account … (default: all)")
	return cmd
}

func (p *program) diffCommand() *cobra.Command {
	var from, to string
	limit := 1000
	cmd := &cobra.Command{
		Use:   "diff DIR --from POINT",
		Short: "Show which rows differ between two points of the log",
		Long: `Diff folds the records before each of two points and shows the rows that were added, removed or changed
between them, a line each. "diff-exports" compares two exported files.`,
		Example: "  quartermaster-audit diff /mnt/archive --from 2026-05-01 --to 2026-06-01\n" +
			"  quartermaster-audit diff /mnt/archive --from \"qm.books/0=12\" -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return commandline.Usagef("--limit is %d, want 1 or more", limit)
			}
			a, err := open(args[0])
			if err != nil {
				return err
			}
			before, _, err := fold(cmd.Context(), a, from)
			if err != nil {
				return err
			}
			after, _, err := fold(cmd.Context(), a, to)
			if err != nil {
				return err
			}
			var found []projections.Difference
			err = before.View(cmd.Context(), func(x projections.View) error {
				return after.View(cmd.Context(), func(y projections.View) error {
					found, err = projections.Differences(x, y, limit+1)
					return err
				})
			})
			if err != nil {
				return err
			}
			for _, d := range found[:min(limit, len(found))] {
				r := rowOf(d.Key)
				switch {
				case !d.InA:
					r.Change = "added"
				case !d.InB:
					r.Change = "removed"
				default:
					r.Change = "changed"
				}
				if err := p.line(r, fmt.Sprintf("%-8s %s", r.Change, r.String())); err != nil {
					return err
				}
			}
			if len(found) > limit {
				return &answer{commandline.ExitIncomplete, fmt.Sprintf("more than %d rows differ: raise --limit", limit)}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "a position, or the records before a time")
	cmd.Flags().StringVar(&to, "to", "", "a position, or the records before a time (default: all)")
	cmd.Flags().IntVar(&limit, "limit", limit, "most rows to show")
	if err := cmd.MarkFlagRequired("from"); err != nil {
		panic(err) // the flag exists
	}
	return cmd
}
