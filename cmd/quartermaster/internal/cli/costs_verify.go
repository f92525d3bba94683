package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/focus/xlsx"
	"quartermaster/adapters/tabular"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/costs"
)

// mostCell bounds a row of a CSV file that is verified, in bytes.
const mostCell = 16 << 20

// costTables open the rows of a file in each format.
var costTables = map[string]func(ctx context.Context, f *os.File, columns []costs.Column) (tabular.Table, error){
	"csv": func(_ context.Context, f *os.File, _ []costs.Column) (tabular.Table, error) {
		return tabular.NewCSV(f, mostCell), nil
	},
	"parquet": func(ctx context.Context, f *os.File, _ []costs.Column) (tabular.Table, error) {
		return parquet.Open(ctx, f, tabular.Limits{DecodedBytes: 1 << 40, Ratio: 1 << 30}, tabular.ErrDamaged)
	},
	"xlsx": func(_ context.Context, f *os.File, columns []costs.Column) (tabular.Table, error) {
		return xlsx.Open(f.Name(), typedColumns(columns))
	},
}

func (a *Program) costVerifyCommand() *cobra.Command {
	var manifest string
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Compute an export again from the log, and compare every cell",
		Long: `Verify reads the manifest beside an export, asks its question again at its position of the log, and
compares every cell of the file and everything that the manifest says. It names the first cell that
differs and exits with 1. A CSV file must be equal byte for byte.

If another version of the method divided a month, it says which version is needed.`,
		Example: "  quartermaster costs verify may.csv",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if manifest == "" {
				manifest = args[0] + manifestSuffix
			}
			v, err := a.verifyCosts(cmd, args[0], manifest)
			if err != nil {
				return err
			}
			if a.json {
				if err := a.answerJSON(v); err != nil {
					return err
				}
			}
			return a.showCostsVerified(v)
		},
	}
	cmd.Flags().StringVar(&manifest, "manifest", "", "the manifest (default FILE"+manifestSuffix+")")
	return cmd
}

func (a *Program) verifyCosts(cmd *cobra.Command, path, manifest string) (v *app.CostsVerified, err error) {
	mf, err := os.Open(manifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("verify %s: it has no manifest: name it with --manifest: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", path, err)
	}
	m, err := app.ReadCostsManifest(mf)
	if err := errors.Join(err, mf.Close()); err != nil {
		return nil, commandline.Usagef("%s is not a manifest of an export: %w", manifest, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, fmt.Errorf("verify %s: %w", path, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("verify %s: %w", path, err)
	}
	open := costTables[m.FileFormat]
	if open == nil {
		return nil, commandline.Usagef("%s: files in %q are not known", manifest, m.FileFormat)
	}
	t, err := open(cmd.Context(), f, m.Columns)
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", path, err)
	}
	if c, ok := t.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	next, err := exportedRows(path, t, m)
	if err != nil {
		return nil, err
	}
	// The bytes of a CSV file are computed again, too: a manifest's SHA-256 is only what somebody wrote.
	again := sha256.New()
	var w tabular.Writer
	v, err = a.caller().VerifyCosts(cmd.Context(), m, next, func(columns []costs.Column) (app.RowWriter, error) {
		if m.FileFormat != "csv" {
			return nil, nil
		}
		w = tabular.NewCSVWriter(again, typedColumns(columns))
		return w, nil
	})
	if w != nil {
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return nil, err
	}
	v.Changed = hex.EncodeToString(sum.Sum(nil)) != m.SHA256
	if v.Equal && w != nil && !bytes.Equal(again.Sum(nil), sum.Sum(nil)) {
		v.Equal = false // other bytes for the same cells
	}
	return v, nil
}

// exportedRows reads the header of an exported file, and returns a function that reads its rows.
func exportedRows(path string, t tabular.Table, m *app.CostsManifest) (func() ([]string, error), error) {
	read := func() ([]string, error) {
		row, err := t.Next()
		switch {
		case err != nil:
			return nil, err
		case row.Broken != nil:
			return nil, fmt.Errorf("%s:%d: %s", path, row.Line, row.Broken.Reason)
		}
		return row.Fields, nil
	}
	header, err := read()
	if err != nil {
		return nil, fmt.Errorf("%s: its header: %w", path, err)
	}
	names := make([]string, len(m.Columns))
	for i, c := range m.Columns {
		names[i] = c.Name
	}
	if !slices.Equal(header, names) {
		return nil, &app.ConflictError{Err: fmt.Errorf("%s does not have the columns of its manifest", path)}
	}
	row := make([]string, len(names))
	return func() ([]string, error) {
		cells, err := read()
		if err != nil {
			return nil, err
		}
		if len(cells) != len(names) {
			return cells, nil
		}
		for i, text := range cells {
			kind := tabularKinds[m.Columns[i].Kind]
			if row[i] = tabular.Canonical(kind, text); kind == tabular.Texts && m.FileFormat == "csv" {
				row[i] = tabular.Plain(text)
			}
		}
		return row, nil
	}, nil
}

func (a *Program) showCostsVerified(v *app.CostsVerified) error {
	if v.Equal {
		if !a.json {
			fmt.Fprintf(a.out, "equal: all %s rows of %s are what the log gives\nposition: %s\n", comma(v.Rows), v.File, a.position(v.Position))
		}
		return nil
	}
	why := "its cells are what the log gives, and its bytes are not those that were exported"
	if v.Manifest != "" {
		why = fmt.Sprintf("the log gives other %s than its manifest says", v.Manifest)
	}
	if d := v.Difference; d != nil {
		why = fmt.Sprintf("row %d, column %s: expected %s, found %s", d.Row, d.Column, cellText(d.Expected), cellText(d.Found))
		if d.Reason != "" {
			why = fmt.Sprintf("row %d: %s", d.Row, d.Reason)
		}
	}
	if v.Changed {
		why += "; the file was changed since it was exported"
	}
	if v.Needs != nil {
		why += fmt.Sprintf("; it was divided by %s on %s: verify it with a program that has these", v.Needs.Attribution, v.Needs.Folds)
	}
	return &app.ConflictError{Err: fmt.Errorf("%s differs: %s", v.File, why)}
}

func cellText(s string) string {
	if s == "" {
		return "nothing"
	}
	return fmt.Sprintf("%q", domain.Clip(s, 200))
}
