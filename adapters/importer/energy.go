package importer

import (
	"fmt"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// maxReading is the longest interval of a meter.
const maxReading = 31 * domain.Day

var energyKind = format{
	columns: []string{"meter", "to|time", "kwh|kwh_total"},
	start: func(im *importer, col func(string) column) func(*cells) error {
		e := &energyReader{
			importer: im,
			meter:    col("meter"), from: col("from"), to: col("to|time"), kwh: col("kwh|kwh_total"), nodes: col("nodes"),
			last: map[string]reading{},
		}
		return e.row
	},
}

// energyReader reads intervals with their energy, or the counters of meters, whose differences are
// the energy between two rows.
type energyReader struct {
	*importer
	meter, from, to, kwh, nodes column

	last map[string]reading // of each meter
}

// reading is a row of a meter.
type reading struct {
	at    domain.Instant
	total domain.Decimal
	line  int
}

func (e *energyReader) row(c *cells) error {
	meter, to := c.name(e.meter), c.instant(e.to)
	counter := e.kwh.name == "kwh_total"
	kwh, given := c.amount(e.kwh)
	if !given && c.refused == nil {
		c.refuse(e.kwh, "is empty")
	}
	last, known := e.last[meter]
	interval := domain.Interval{From: last.at, To: to}
	if !counter {
		interval.From = c.instant(e.from)
	}
	switch {
	case c.refused != nil:
	case counter && known && to <= last.at:
		c.refuse(e.to, fmt.Sprintf("is not after that of meter %s in line %d", meter, last.line))
	case counter && known && kwh.Cmp(last.total) < 0:
		c.refuse(e.kwh, fmt.Sprintf("is below %s in line %d, and a meter does not run backwards; name a replaced meter anew", last.total, last.line))
	case counter && !known:
	case interval.From >= interval.To:
		c.refuse(e.from, "is not before the end")
	case interval.Length() > maxReading:
		c.refuse(e.to, fmt.Sprintf("ends more than 31 days after %s", interval.From))
	}
	nodes := e.names(c)
	if c.refused != nil {
		return c.refused
	}
	e.last[meter] = reading{to, kwh, c.line}
	if counter {
		if !known {
			return nil // the first counter of a meter only says where it begins
		}
		kwh = kwh.Sub(last.total)
	}
	return e.emit(to, meter, "", &domain.EnergyMetered{
		Meter: meter, Nodes: nodes, Interval: interval, WattHours: kwh.Mul(decimal.New(1, 3)),
	})
}

// names reads the nodes of a meter, separated by semicolons.
func (e *energyReader) names(c *cells) []string {
	var nodes []string
	seen := map[string]bool{}
	for name := range strings.SplitSeq(c.text(e.nodes), ";") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case seen[name]:
			c.refuse(e.nodes, "names "+name+" twice")
		default:
			seen[name] = true
			nodes = append(nodes, name)
		}
	}
	return nodes
}
