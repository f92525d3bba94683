package importer

import (
	"context"
	"io"

	"quartermaster/adapters/tabular"
)

// What package tabular says of a file and of its rows.
type (
	// BadRow is a row that was not imported.
	BadRow = tabular.BadRow
	// Warning is something that was imported and deserves a look.
	Warning = tabular.Warning
	// Limits bound what a file may cost.
	Limits = tabular.Limits
)

// The errors of a file that is beyond the limits, and of a gzip file that is
// damaged.
var (
	ErrTooLarge = tabular.ErrTooLarge
	ErrDamaged  = tabular.ErrDamaged
)

// Whole is tabular.Whole for a file that [Run] is to read.
func Whole(ctx context.Context, file io.Reader, limits Limits) error {
	return tabular.Whole(ctx, file, limits, ErrColumns)
}
