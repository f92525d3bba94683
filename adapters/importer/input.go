package importer

import (
	"context"
	"io"

	"quartermaster/adapters/rows"
)

// What package rows says of a file and of its rows.
type (
	// BadRow is a row that was not imported.
	BadRow = rows.BadRow
	// Warning is something that was imported and deserves a look.
	Warning = rows.Warning
	// Limits bound what a file may cost.
	Limits = rows.Limits
)

// The errors of a file that is beyond the limits, and of a gzip file that is
// damaged.
var (
	ErrTooLarge = rows.ErrTooLarge
	ErrDamaged  = rows.ErrDamaged
)

// Whole is rows.Whole for a file that [Run] is to read.
func Whole(ctx context.Context, file io.Reader, limits Limits) error {
	return rows.Whole(ctx, file, limits, ErrColumns)
}
