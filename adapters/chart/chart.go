// Package chart draws figures as SVG or PNG.
//
// A figure is plain values with their labels. This package computes only where a point is
// drawn, so it is the only one that takes money as floating point ([Point]). Equal figures
// give equal bytes: a drawing depends neither on the clock nor on randomness. NaN and
// infinite values are refused.
package chart

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"quartermaster/domain"
)

// Format is a kind of file.
type Format string

// The formats that can be written.
const (
	SVG Format = "svg"
	PNG Format = "png"
)

// FormatOf returns the format of a file by the extension of its name.
func FormatOf(name string) (Format, error) {
	switch f := Format(strings.ToLower(strings.TrimPrefix(filepath.Ext(name), "."))); f {
	case SVG, PNG:
		return f, nil
	}
	return "", fmt.Errorf("no chart format for the file name %q; end it in .svg or .png", name)
}

// Point is the coordinate of an amount. Use it for drawing only, never for arithmetic.
func Point(d domain.Decimal) float64 {
	f, _ := strconv.ParseFloat(d.String(), 64) // out of range is ±Inf, which is refused when drawn
	return f
}

// Moment is the coordinate of a time on a time axis: seconds since 1970.
func Moment(at domain.Instant) float64 { return float64(at / domain.Second) }

// Figure is something that can be drawn.
type Figure interface {
	plot() (*plot.Plot, error)
}

// Size of every figure.
const (
	width  = 24 * vg.Centimeter
	height = 13 * vg.Centimeter
)

// Write draws a figure.
func Write(w io.Writer, format Format, f Figure) error {
	p, err := f.plot()
	if err != nil {
		return fmt.Errorf("draw chart: %w", err)
	}
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	switch format {
	case SVG:
		canvas = vgsvg.New(width, height)
	case PNG:
		canvas = vgimg.PngCanvas{Canvas: vgimg.New(width, height)}
	default:
		return fmt.Errorf("draw chart: no format %q, want svg or png", format)
	}
	const margin = vg.Centimeter / 2
	c := draw.Crop(draw.New(canvas), margin, -margin, margin, -margin)
	if s, ok := f.(Sourced); ok {
		style := p.X.Tick.Label
		style.XAlign, style.YAlign, style.Font.Size = text.XLeft, text.YBottom, vg.Points(8)
		c.FillText(style, c.Min, s.Source)
		c = draw.Crop(c, 0, 0, margin, 0)
	}
	// The legend is beside the plot, where it covers nothing. The viewer's font may be a
	// little wider than the font it is measured with, so it gets 15% more room.
	legend := p.Legend
	p.Legend = plot.NewLegend()
	wide := legend.Rectangle(c).Size().X * 1.15
	if wide > 0 {
		legend.Left = true // colours left of the names
		legend.Draw(draw.Crop(c, c.Size().X-wide, 0, 0, -margin))
		wide += margin
	}
	p.Draw(draw.Crop(c, 0, -wide, 0, 0))
	var drawn bytes.Buffer
	if _, err := canvas.WriteTo(&drawn); err != nil {
		return fmt.Errorf("draw chart: %w", err)
	}
	out := drawn.Bytes()
	if format == SVG { // a browser may not have the font that the layout was computed with
		out = bytes.ReplaceAll(
			out,
			[]byte("font-family:Liberation Sans;"),
			[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"),
		)
	}
	if _, err := w.Write(out); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	return nil
}

// Sourced is a figure with a footer that names its source.
type Sourced struct {
	Figure
	Source string
}

// palette is safe for colour-blind readers (Okabe and Ito, 2008).
var palette = []color.NRGBA{
	{0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{213, 94, 0, 255}, {86, 180, 233, 255}, {240, 228, 66, 255}, {90, 90, 90, 255},
}

func colour(i int) color.NRGBA { return palette[i%len(palette)] }

func faint(c color.NRGBA, alpha uint8) color.NRGBA { c.A = alpha; return c }

// newPlot is an empty figure with title, axes and a grid.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for _, s := range []*font.Font{
		&p.Title.TextStyle.Font,
		&p.X.Label.TextStyle.Font,
		&p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font,
		&p.Y.Tick.Label.Font,
		&p.Legend.TextStyle.Font,
	} {
		s.Variant = "Sans"
	}
	p.Title.Padding = vg.Points(8)
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(2)
	p.X.Tick.Marker, p.Y.Tick.Marker = shortTicks{}, shortTicks{}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 225}, color.Gray{Y: 225}
	p.Add(grid)
	return p
}

// shortTicks labels large numbers with a unit prefix: 1.5M for 1500000.
type shortTicks struct{}

func (shortTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = short(ticks[i].Value)
		}
	}
	return ticks
}

func short(v float64) string {
	a := math.Abs(v)
	for _, s := range []struct {
		scale float64
		mark  string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if a >= s.scale {
			return strconv.FormatFloat(v/s.scale, 'g', 6, 64) + s.mark
		}
	}
	if a < 1e-12 { // the rounding error of a sum that should be 0
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// dayTicks labels a time axis in seconds since 1970: every 6 hours, or every day or more.
type dayTicks struct{}

func (dayTicks) Ticks(low, high float64) []plot.Tick {
	const day = 86_400
	format, every := "2006-01-02", float64(day)
	if high-low < 3*day {
		format, every = "01-02 15:04", day/4
	}
	for (high-low)/every > 8 {
		every *= 2
		if every == 8*day {
			every = 7 * day
		}
	}
	var ticks []plot.Tick
	for at := math.Ceil(low/every) * every; at <= high; at += every {
		ticks = append(ticks, plot.Tick{Value: at, Label: time.Unix(int64(at), 0).UTC().Format(format)})
	}
	return ticks
}

// nameTicks labels rows with their names, from top to bottom.
type nameTicks []string

func (n nameTicks) Ticks(_, _ float64) []plot.Tick {
	ticks := make([]plot.Tick, len(n))
	for i, name := range n {
		ticks[i] = plot.Tick{Value: n.place(i), Label: domain.Clip(name, Widest)}
	}
	return ticks
}

func (n nameTicks) place(i int) float64 { return float64(len(n) - 1 - i) }

// Widest is the length at which names are cut, in characters.
const Widest = 40

// numbers refuses NaN and infinite values.
func numbers(what string, values ...float64) error {
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%s: value %d is %v", what, i+1, v)
		}
	}
	return nil
}

var errEmpty = errors.New("there is nothing to draw")

func points(name string, x, y []float64) (plotter.XYs, error) {
	switch {
	case len(x) != len(y):
		return nil, fmt.Errorf("%q: %d x values for %d y values", name, len(x), len(y))
	case len(x) == 0:
		return nil, fmt.Errorf("%q: %w", name, errEmpty)
	}
	if err := cmp.Or(numbers(name, x...), numbers(name, y...)); err != nil {
		return nil, err
	}
	pts := make(plotter.XYs, len(x))
	for i := range x {
		pts[i] = plotter.XY{X: x[i], Y: y[i]}
	}
	return pts, nil
}
