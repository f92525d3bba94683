package cli

import (
	"fmt"
	"io"

	"quartermaster/adapters/chart"
	"quartermaster/cmd/quartermaster/internal/app"
)

// chartFlag is the usage of --chart; see [Program.writeChart].
const chartFlag = "write the chart to this file (.svg or .png)"

// checkChart rejects a file name without a chart format, before any work is done. An empty path
// is valid.
func checkChart(path string) error {
	if path == "" {
		return nil
	}
	if _, err := chart.FormatOf(path); err != nil {
		return fmt.Errorf("--chart: %w", err)
	}
	return nil
}

// writeChart writes a figure to a file atomically.
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
