package cli

import (
	"fmt"
	"io"

	"quartermaster/adapters/chart"
	"quartermaster/cmd/quartermaster/internal/app"
)

// chartFlag says what --chart takes; see [app.writeChart].
const chartFlag = "draw into this file, which ends in .svg or .png"

// checkChart refuses the name of a file that no chart can be written to, before
// any work is done for it. "" is no file.
func checkChart(path string) error {
	if path == "" {
		return nil
	}
	if _, err := chart.FormatOf(path); err != nil {
		return fmt.Errorf("--chart: %w", err)
	}
	return nil
}

// writeChart draws a figure into a file, whole or not at all.
func (a *Program) writeChart(path string, f chart.Figure) error {
	format, err := chart.FormatOf(path)
	if err != nil {
		return err
	}
	if err := app.WriteWhole(path, func(w io.Writer) error { return chart.Write(w, format, f) }); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	a.note("drawn: %s", path)
	return nil
}
