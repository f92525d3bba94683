package chart

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"

	"quartermaster/domain"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Lines is a line chart with optional bands, such as a forecast with its prediction
// intervals or a break-even.
type Lines struct {
	Title, X, Y string
	Time        bool // X is a time, see Moment
	Lines       []Line
	Bands       []Band
	Marks       []Mark
	FromZero    bool // the Y axis begins at 0
}

// Line is one line of a figure.
type Line struct {
	Name   string
	X, Y   []float64
	Dashed bool
	Steps  bool // a value holds until the next one
}

// Band is the area between two lines.
type Band struct {
	Name         string
	X, Low, High []float64
}

// Mark is a labelled vertical line, such as where two lines cross.
type Mark struct {
	Name string
	At   float64
}

func (f Lines) plot() (*plot.Plot, error) {
	if len(f.Lines) == 0 {
		return nil, errEmpty
	}
	p := newPlot(f.Title, f.X, f.Y)
	if f.Time {
		p.X.Tick.Marker = dayTicks{}
	}
	for i, b := range f.Bands {
		low, err := points(b.Name, b.X, b.Low)
		if err != nil {
			return nil, err
		}
		high, err := points(b.Name, b.X, b.High)
		if err != nil {
			return nil, err
		}
		slices.Reverse(high)
		area, err := plotter.NewPolygon(append(low, high...))
		if err != nil {
			return nil, err
		}
		area.Color, area.LineStyle.Width = faint(colour(i), 110), 0
		p.Add(area)
		p.Legend.Add(domain.Clip(b.Name, Widest), area)
	}
	for i, l := range f.Lines {
		pts, err := points(l.Name, l.X, l.Y)
		if err != nil {
			return nil, err
		}
		line, err := plotter.NewLine(pts)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = colour(i), vg.Points(1.2)
		if l.Dashed {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		if l.Steps {
			line.StepStyle = plotter.PostStep
		}
		p.Add(line)
		p.Legend.Add(domain.Clip(l.Name, Widest), line)
	}
	if f.FromZero {
		p.Y.Min = min(0, p.Y.Min)
	}
	for i, m := range f.Marks {
		if err := numbers(m.Name, m.At); err != nil {
			return nil, err
		}
		line, err := plotter.NewLine(plotter.XYs{{X: m.At, Y: p.Y.Min}, {X: m.At, Y: p.Y.Max}})
		if err != nil {
			return nil, err
		}
		line.Color, line.Dashes = color.Gray{Y: 90}, []vg.Length{vg.Points(2), vg.Points(2)}
		p.Add(line)
		label, err := plotter.NewLabels(plotter.XYLabels{
			XYs:    plotter.XYs{{X: m.At, Y: p.Y.Max - float64(i)*0.055*(p.Y.Max-p.Y.Min)}},
			Labels: []string{domain.Clip(m.Name, Widest)},
		})
		if err != nil {
			return nil, err
		}
		label.TextStyle[0].Font = p.Legend.TextStyle.Font
		label.TextStyle[0].YAlign = text.YTop
		label.Offset.X = vg.Points(3)
		p.Add(label)
	}
	return p, nil
}

// Dots compares values by name, from top to bottom, each with its interval: regret by
// alternative. Consecutive dots of one name share a row, and a legend names their series.
type Dots struct {
	Title, X string // X labels the axis of values
	Dots     []Dot
}

// Dot is one value. Low = High = 0 draws no interval.
type Dot struct {
	Name             string
	Series           string // "" where there is only one
	Value, Low, High float64
}

func (f Dots) plot() (*plot.Plot, error) {
	if len(f.Dots) == 0 {
		return nil, errEmpty
	}
	p := newPlot(f.Title, f.X, "")
	var names nameTicks
	var series []string
	group := make([]int, len(f.Dots))  // row of each dot
	within := make([]int, len(f.Dots)) // index of each dot within its row
	var size []int                     // dots in each row
	for i, b := range f.Dots {
		if i == 0 || b.Name != f.Dots[i-1].Name {
			names, size = append(names, b.Name), append(size, 0)
		}
		group[i] = len(names) - 1
		within[i] = size[group[i]]
		size[group[i]]++
		if !slices.Contains(series, b.Series) {
			series = append(series, b.Series)
		}
	}
	whiskers := intervals{}
	var dots []plot.Plotter
	for i, b := range f.Dots {
		if err := numbers(b.Name, b.Value, b.Low, b.High); err != nil {
			return nil, err
		}
		// The dots of a row share its height.
		half := 0.3 / float64(size[group[i]])
		if size[group[i]] > 1 {
			half = 0.4 / float64(size[group[i]])
		}
		at := names.place(group[i]) + half*float64(size[group[i]]-1-2*within[i])
		dot, err := plotter.NewScatter(plotter.XYs{{X: b.Value, Y: at}})
		if err != nil {
			return nil, err
		}
		dot.Color, dot.Radius, dot.Shape = colour(slices.Index(series, b.Series)), vg.Points(4), draw.CircleGlyph{}
		dots = append(dots, dot)
		if b.Low != 0 || b.High != 0 {
			whiskers.XYs = append(whiskers.XYs, plotter.XY{X: b.Value, Y: at})
			whiskers.XErrors = append(whiskers.XErrors, struct{ Low, High float64 }{b.Low - b.Value, b.High - b.Value})
		}
	}
	p.Y.Tick.Marker = names
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4
	if len(whiskers.XYs) > 0 {
		bars, err := plotter.NewXErrorBars(whiskers)
		if err != nil {
			return nil, err
		}
		bars.Width = vg.Points(1.2)
		p.Add(bars)
	}
	none, err := plotter.NewLine(plotter.XYs{{X: 0, Y: p.Y.Min}, {X: 0, Y: p.Y.Max}})
	if err != nil {
		return nil, err
	}
	none.Color = color.Gray{Y: 150}
	p.Add(none)
	p.Add(dots...) // over the lines
	if len(series) > 1 {
		for i, name := range series {
			p.Legend.Add(domain.Clip(name, Widest), swatch{colour(i)})
		}
	}
	return p, nil
}

type intervals struct {
	plotter.XYs
	plotter.XErrors
}

// Cumulative shows the empirical distribution function of each sample and marks its 5th, 50th
// and 95th percentile.
type Cumulative struct {
	Title, X string
	Samples  []Sample
}

// Sample is the draws of one alternative.
type Sample struct {
	Name   string
	Values []float64
}

// marked are the percentiles that a cumulative curve marks.
var marked = []float64{5, 50, 95}

func (f Cumulative) plot() (*plot.Plot, error) {
	p := newPlot(f.Title, f.X, "trials at or below this cost, percent")
	empty := true
	for i, s := range f.Samples {
		if err := numbers(s.Name, s.Values...); err != nil {
			return nil, err
		}
		if len(s.Values) == 0 {
			continue
		}
		empty = false
		values := slices.Sorted(slices.Values(s.Values))
		curve := plotter.XYs{{X: values[0], Y: 0}}
		for j, v := range values {
			curve = append(curve, plotter.XY{X: v, Y: 100 * float64(j+1) / float64(len(values))})
		}
		line, err := plotter.NewLine(curve)
		if err != nil {
			return nil, err
		}
		line.StepStyle = plotter.PostStep
		line.Color, line.Width = colour(i), vg.Points(1.5)
		var dots plotter.XYs
		for _, percent := range marked {
			at := max(0, int(math.Ceil(percent*float64(len(values))/100))-1)
			dots = append(dots, plotter.XY{X: values[at], Y: percent})
		}
		points, err := plotter.NewScatter(dots)
		if err != nil {
			return nil, err
		}
		points.Color, points.Radius, points.Shape = colour(i), vg.Points(3.5), draw.CircleGlyph{}
		p.Add(line, points)
		p.Legend.Add(domain.Clip(s.Name, Widest), line)
	}
	if empty {
		return nil, errEmpty
	}
	if p.X.Min == p.X.Max {
		p.X.Min, p.X.Max = p.X.Min-0.5, p.X.Max+0.5
	}
	p.Y.Min, p.Y.Max = 0, 100
	p.Y.Tick.Marker = percentiles{}
	return p, nil
}

// percentiles labels a percent axis at the quartiles and the marked percentiles.
type percentiles struct{}

func (percentiles) Ticks(_, _ float64) []plot.Tick {
	return []plot.Tick{
		{Value: 0, Label: "0"},
		{Value: 5, Label: "p5"},
		{Value: 25, Label: "25"},
		{Value: 50, Label: "p50"},
		{Value: 75, Label: "75"},
		{Value: 95, Label: "p95"},
		{Value: 100},
	}
}

// Stack stacks layers over a common X axis, such as a load-duration curve by supply. Value i
// holds from At[i] to At[i+1], so there is one more place than values.
type Stack struct {
	Title, X, Y string
	Time        bool
	At          []float64
	Layers      []Layer // from the bottom up
	Over        *Line   // drawn on top, such as the demand
}

// Layer is one layer of a stack.
type Layer struct {
	Name   string
	Values []float64 // not negative
}

func (f Stack) plot() (*plot.Plot, error) {
	if len(f.Layers) == 0 || len(f.At) < 2 {
		return nil, errEmpty
	}
	if err := numbers("places", f.At...); err != nil {
		return nil, err
	}
	p := newPlot(f.Title, f.X, f.Y)
	if f.Time {
		p.X.Tick.Marker = dayTicks{}
	}
	n := len(f.At) - 1
	below := make([]float64, n)
	for i, l := range f.Layers {
		if len(l.Values) != n {
			return nil, fmt.Errorf("layer %q: %d values between %d places", l.Name, len(l.Values), n+1)
		}
		if err := numbers(l.Name, l.Values...); err != nil {
			return nil, err
		}
		top := slices.Clone(below)
		for j, v := range l.Values {
			if v < 0 {
				return nil, fmt.Errorf("layer %q: value %d is negative (%v) and cannot be stacked", l.Name, j+1, v)
			}
			top[j] += v
		}
		outline := steps(f.At, top)
		back := steps(f.At, below)
		slices.Reverse(back)
		area, err := plotter.NewPolygon(append(outline, back...))
		if err != nil {
			return nil, err
		}
		area.Color, area.LineStyle.Width = faint(colour(i), 190), 0
		p.Add(area)
		if slices.ContainsFunc(l.Values, func(v float64) bool { return v > 0 }) {
			p.Legend.Add(domain.Clip(l.Name, Widest), area)
		}
		below = top
	}
	if f.Over != nil {
		pts, err := points(f.Over.Name, f.Over.X, f.Over.Y)
		if err != nil {
			return nil, err
		}
		line, err := plotter.NewLine(pts)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = color.Black, vg.Points(1.2)
		if f.Over.Steps {
			line.StepStyle = plotter.PostStep
		}
		p.Add(line)
		p.Legend.Add(domain.Clip(f.Over.Name, Widest), line)
	}
	return p, nil
}

// steps is the outline of a step function: value i holds from at[i] to at[i+1]. A run of equal
// values makes one step.
func steps(at, values []float64) plotter.XYs {
	var out plotter.XYs
	for i, v := range values {
		if n := len(out); n > 0 && out[n-1].Y == v {
			out[n-1].X = at[i+1]
			continue
		}
		out = append(out, plotter.XY{X: at[i], Y: v}, plotter.XY{X: at[i+1], Y: v})
	}
	return out
}

// Tornado shows how a value changes with each driver at its low and at its high end. The
// drivers appear in the order given; widest first reads best ([Tornado.Sort]).
type Tornado struct {
	Title, X string
	Base     float64 // the value with every driver at its base
	Swings   []Swing
}

// Swing is the value at the low and at the high end of one driver.
type Swing struct {
	Name      string
	Low, High float64
}

// Sort puts the widest swing first and breaks ties by name.
func (f Tornado) Sort() {
	slices.SortStableFunc(f.Swings, func(a, b Swing) int {
		return cmp.Or(cmp.Compare(math.Abs(b.High-b.Low), math.Abs(a.High-a.Low)), cmp.Compare(a.Name, b.Name))
	})
}

func (f Tornado) plot() (*plot.Plot, error) {
	if len(f.Swings) == 0 {
		return nil, errEmpty
	}
	if err := numbers("base", f.Base); err != nil {
		return nil, err
	}
	p := newPlot(f.Title, f.X, "")
	names := make(nameTicks, len(f.Swings))
	for i, s := range f.Swings {
		if err := numbers(s.Name, s.Low, s.High); err != nil {
			return nil, err
		}
		names[i] = s.Name
		// Where both ends are on one side of the base, draw the nearer one last, on top.
		ends, first := []float64{s.Low, s.High}, 0
		if math.Abs(s.High-f.Base) > math.Abs(s.Low-f.Base) {
			first = 1
		}
		for _, j := range []int{first, 1 - first} {
			if err := addBlock(p, min(f.Base, ends[j]), max(f.Base, ends[j]), names.place(i), 0.3, colour(j)); err != nil {
				return nil, err
			}
		}
	}
	p.Y.Tick.Marker = names
	p.Y.Min, p.Y.Max = -0.6, float64(len(f.Swings))-0.4
	base, err := plotter.NewLine(plotter.XYs{{X: f.Base, Y: p.Y.Min}, {X: f.Base, Y: p.Y.Max}})
	if err != nil {
		return nil, err
	}
	p.Add(base)
	p.Legend.Add("low", swatch{colour(0)})
	p.Legend.Add("high", swatch{colour(1)})
	return p, nil
}

// swatch is a colour in a legend.
type swatch struct{ color.Color }

func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.Color, c.ClipPolygonY([]vg.Point{
		{X: c.Min.X, Y: c.Min.Y}, {X: c.Min.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Min.Y},
	}))
}

// addBlock adds a rectangle around a row of the Y axis.
func addBlock(p *plot.Plot, low, high, at, half float64, c color.Color) error {
	if low == high {
		return nil
	}
	b, err := plotter.NewPolygon(plotter.XYs{
		{X: low, Y: at - half},
		{X: low, Y: at + half},
		{X: high, Y: at + half},
		{X: high, Y: at - half},
	})
	if err != nil {
		return err
	}
	b.Color, b.LineStyle.Width = c, 0
	p.Add(b)
	return nil
}
