package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

func figures() map[string]Figure {
	x := []float64{0, 1, 2, 3}
	days := make([]float64, 4)
	for i := range days {
		days[i] = Moment(domain.Instant(i) * 10 * domain.Day)
	}
	return map[string]Figure{
		"lines": Lines{Title: "Forecast of <a> & b", X: "day", Y: "units", Time: true, FromZero: true,
			Lines: []Line{{Name: "median <script>", X: days, Y: []float64{4, 5, 7, 6}}, {Name: "seen", X: days, Y: []float64{4, 6, 6, 6}, Dashed: true, Steps: true}},
			Bands: []Band{{Name: "80%", X: days, Low: []float64{3, 4, 5, 4}, High: []float64{5, 6, 9, 8}}},
			Marks: []Mark{{Name: "launch", At: days[2]}}},
		"dots": Dots{Title: "Regret", X: "percent over perfect foresight", Dots: []Dot{
			{Name: "the plan", Value: 4, Low: 3, High: 6}, {Name: "peak reserved", Value: 40, Low: 35, High: 44}, {Name: "exact", Value: 0}, {Name: "saving", Value: -2, Low: -3, High: -1}}},
		"dots by series": Dots{Title: "Regret", X: "percent", Dots: []Dot{
			{Name: "the plan", Series: "half <b>", Value: 4, Low: 3, High: 6}, {Name: "the plan", Series: "none", Value: 9}, {Name: "peak", Series: "none", Value: 40}}},
		"cumulative": Cumulative{Title: "Cost", X: "USD", Samples: []Sample{{Name: "a", Values: []float64{1e6, 1.2e6, 1.3e6, 2e6}}, {Name: "b", Values: []float64{1.1e6, 1.1e6}}}},
		"stack": Stack{Title: "Load-duration", X: "hours", Y: "units", At: x,
			Layers: []Layer{{Name: "reserved", Values: []float64{3, 3, 2}}, {Name: "spot", Values: []float64{2, 1, 0}}},
			Over:   &Line{Name: "demand", X: x, Y: []float64{6, 4, 2, 2}, Steps: true}},
		"tornado": Tornado{Title: "Drivers", X: "USD", Base: 100, Swings: []Swing{{"growth", 80, 150}, {"price", 110, 95}}},
	}
}

// Equal figures give equal bytes, both formats are well formed, and untrusted names stay
// text.
func TestWrite(t *testing.T) {
	for name, f := range figures() {
		t.Run(name, func(t *testing.T) {
			var first, second, raster bytes.Buffer
			for _, w := range []io.Writer{&first, &second} {
				if err := Write(w, SVG, f); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(first.Bytes(), second.Bytes()) {
				t.Error("two drawings of one figure differ")
			}
			if err := Write(&raster, PNG, f); err != nil {
				t.Fatal(err)
			}
			if img, err := png.Decode(bytes.NewReader(raster.Bytes())); err != nil || img.Bounds().Dx() < 600 {
				t.Errorf("the image cannot be read: %v", err)
			}
			if dir := os.Getenv("QM_CHARTS"); dir != "" { // to look at them
				os.WriteFile(filepath.Join(dir, name+".svg"), first.Bytes(), 0o600)
				os.WriteFile(filepath.Join(dir, name+".png"), raster.Bytes(), 0o600)
			}
			text := texts(t, first.Bytes())
			switch v := f.(type) {
			case Lines:
				for _, want := range []string{v.Title, "median <script>", "launch", "80%", "1970-01-21"} {
					if !strings.Contains(text, want) {
						t.Errorf("%q is not in the figure: %s", want, text)
					}
				}
			case Dots:
				for _, b := range v.Dots { // a name appears once, however many dots share its row
					if strings.Count(text, b.Name+"\n") != 1 || !strings.Contains(text, b.Series) {
						t.Errorf("%q of %q is not named once: %s", b.Name, b.Series, text)
					}
				}
			case Cumulative:
				if !strings.Contains(text, "1.5M") {
					t.Errorf("the axis does not shorten large numbers: %s", text)
				}
			}
		})
	}
}

func texts(t *testing.T, svg []byte) string {
	t.Helper()
	var out strings.Builder
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			t.Fatalf("the figure is not XML: %v", err)
		}
		switch v := tok.(type) {
		case xml.StartElement:
			if v.Name.Local == "script" {
				t.Error("a name became an element")
			}
		case xml.CharData:
			out.Write(v)
			out.WriteByte('\n')
		}
	}
}

func TestRefuses(t *testing.T) {
	nan := math.NaN()
	for name, f := range map[string]Figure{
		"no lines":        Lines{},
		"NaN":             Lines{Lines: []Line{{Name: "x", X: []float64{0, 1}, Y: []float64{0, nan}}}},
		"uneven":          Lines{Lines: []Line{{Name: "x", X: []float64{0}, Y: []float64{0, 1}}}},
		"infinite bar":    Dots{Dots: []Dot{{Value: math.Inf(1)}}},
		"no bars":         Dots{},
		"no draws":        Cumulative{Samples: []Sample{{Name: "a"}}},
		"negative layer":  Stack{At: []float64{0, 1}, Layers: []Layer{{Values: []float64{-1}}}},
		"missing value":   Stack{At: []float64{0, 1, 2}, Layers: []Layer{{Values: []float64{1}}}},
		"no swings":       Tornado{},
		"a swing of NaN":  Tornado{Swings: []Swing{{"a", nan, 1}}},
		"a mark at NaN":   Lines{Lines: []Line{{X: []float64{0}, Y: []float64{0}}}, Marks: []Mark{{At: nan}}},
		"band of a point": Lines{Lines: []Line{{X: []float64{0}, Y: []float64{0}}}, Bands: []Band{{X: []float64{0}, Low: []float64{0}}}},
	} {
		if err := Write(io.Discard, SVG, f); err == nil {
			t.Errorf("%s was drawn", name)
		}
	}
	if err := Write(io.Discard, "gif", figures()["dots"]); err == nil {
		t.Error("a gif was drawn")
	}
}

// A figure with a single value, or with all values equal, can be drawn.
func TestFlat(t *testing.T) {
	for name, f := range map[string]Figure{
		"line":       Lines{Lines: []Line{{X: []float64{5}, Y: []float64{5}}}},
		"zeros":      Lines{Lines: []Line{{X: []float64{0, 1}, Y: []float64{0, 0}}}},
		"cumulative": Cumulative{Samples: []Sample{{Values: []float64{3, 3, 3}}}},
		"bars":       Dots{Dots: []Dot{{Name: "none"}}},
		"stack":      Stack{At: []float64{0, 1}, Layers: []Layer{{Values: []float64{0}}}},
		"a moment":   Lines{Time: true, Lines: []Line{{X: []float64{5}, Y: []float64{5}}}},
	} {
		if err := Write(io.Discard, SVG, f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]Format{"a.svg": SVG, "b/c.PNG": PNG, "d": "", "e.pdf": ""} {
		if got, err := FormatOf(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}

func TestPoint(t *testing.T) {
	if got := Point(decimal.RequireFromString("-12.5")); got != -12.5 {
		t.Errorf("a point is at %v", got)
	}
}

func TestTornadoSort(t *testing.T) {
	f := Tornado{Swings: []Swing{{"b", 0, 1}, {"a", 1, 0}, {"c", 5, 0}}}
	f.Sort()
	if f.Swings[0].Name != "c" || f.Swings[1].Name != "a" {
		t.Errorf("sorted to %v", f.Swings)
	}
}

// The footer names the source, the legend names exactly the series that are drawn, and every
// text has fallback fonts.
func TestSourced(t *testing.T) {
	stack := Stack{Title: "Load", At: []float64{0, 1, 2}, Layers: []Layer{{Name: "reserved", Values: []float64{3, 2}}, {Name: "never bought", Values: []float64{0, 0}}}}
	var b bytes.Buffer
	if err := Write(&b, SVG, Sourced{stack, "sim-1 of 2026-06-01; some prices are generated"}); err != nil {
		t.Fatal(err)
	}
	text := texts(t, b.Bytes())
	for _, want := range []string{"Load\n", "sim-1 of 2026-06-01; some prices are generated\n", "reserved\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the figure: %s", want, text)
		}
	}
	if strings.Contains(text, "never bought") {
		t.Errorf("the legend names a series that is never drawn: %s", text)
	}
	if n := strings.Count(b.String(), "font-family:"); n == 0 || n != strings.Count(b.String(), "font-family:Liberation Sans,Arial,Helvetica,sans-serif;") {
		t.Error("a text has no fallback font")
	}
}

// The legend is right of everything that is drawn.
func TestLegendCoversNothing(t *testing.T) {
	for name, f := range figures() {
		var b bytes.Buffer
		if err := Write(&b, SVG, f); err != nil {
			t.Fatal(err)
		}
		named := map[string]bool{"median <script>": true, "seen": true, "80%": true, "half <b>": true, "none": true, "a": true, "b": true, "reserved": true, "spot": true, "demand": true, "low": true, "high": true}
		var d = xml.NewDecoder(&b)
		right, legend, x := 0.0, math.Inf(1), 0.0
		for {
			tok, err := d.Token()
			if err != nil {
				break
			}
			switch v := tok.(type) {
			case xml.StartElement:
				for _, a := range v.Attr {
					if v.Name.Local == "text" && a.Name.Local == "x" {
						x, _ = strconv.ParseFloat(a.Value, 64)
					}
				}
			case xml.CharData:
				switch text := strings.TrimSpace(string(v)); {
				case named[text]:
					legend = min(legend, x)
				case text != "":
					right = max(right, x)
				}
			}
		}
		if legend < right && !math.IsInf(legend, 1) {
			t.Errorf("%s: the legend begins at %v, left of what is drawn at %v", name, legend, right)
		}
	}
}
