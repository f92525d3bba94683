package importer

import (
	"fmt"

	"quartermaster/domain"
)

var demandKind = format{
	columns: []string{"hour|timestamp|usage_hour", "pool|region|region_num", "demand|count|norm_usage"},
	start: func(im *importer, col func(string) column) func(*cells) error {
		d := &demandReader{
			importer: im,
			hour:     col("hour|timestamp|usage_hour"), pool: col("pool"), region: col("region|region_num"),
			model: col("model|instance_type"), count: col("demand|count|norm_usage"),
			pending: col("pending"), owned: col("owned"), unit: col("unit"),
			pools: map[demandKey]*demandPool{},
		}
		return d.row
	},
}

type demandReader struct {
	*importer
	hour, pool, region, model, count, pending, owned, unit column

	pools  map[demandKey]*demandPool
	demand domain.DemandObserved
}

// demandKey identifies a series, which has one value per hour.
type demandKey struct{ pool, region, model, unit string }

type demandPool struct {
	name string         // pool as in the event
	last domain.Instant // its last hour
	line int            // of that hour
}

// renamed returns the new name for a name, or the name itself if there is none.
func renamed(names map[string]string, name string) string {
	if other := names[name]; other != "" {
		return other
	}
	return name
}

// unnamed warns about a name that is not renamed although others are: the given names may have a
// typo.
func (d *demandReader) unnamed(reason string, names map[string]string, name string) {
	if len(names) > 0 && name != "" && names[name] == "" {
		d.warn(reason, name)
	}
}

func (d *demandReader) row(c *cells) error {
	hour := c.hour(d.hour)
	key := demandKey{
		pool:   c.text(d.pool),
		region: renamed(d.opts.Regions, c.text(d.region)),
		model:  renamed(d.opts.Models, c.text(d.model)),
		unit:   c.text(d.unit),
	}
	switch {
	case key.pool == "" && key.region == "":
		if d.pool.at >= 0 {
			c.refuse(d.pool, "is empty")
		}
		c.refuse(d.region, "is empty")
	case key.pool == "" && len(key.region)+1+len(key.model) > maxName:
		c.refuse(d.region, "makes the name of the pool too long")
	}
	switch key.unit {
	case "gpu", "vm":
	case "":
		key.unit = "gpu"
		if d.model.name == "instance_type" {
			key.unit = "vm"
		}
	default:
		c.refuse(d.unit, "is neither gpu nor vm")
	}
	if len(c.raw(d.count)) == 0 {
		c.refuse(d.count, "is empty")
	}
	running, pending, owned := c.milli(d.count), c.milli(d.pending), c.milli(d.owned)
	series := d.pools[key]
	if series != nil && c.refused == nil && hour.From <= series.last {
		c.refuse(d.hour, fmt.Sprintf("is not after the hour of pool %s in line %d", series.name, series.line))
	}
	if c.refused != nil {
		return c.refused
	}
	if series == nil {
		series = &demandPool{name: key.pool}
		if series.name == "" {
			series.name = key.region
			if key.model != "" {
				series.name += "/" + key.model
			}
		}
		d.pools[key] = series
		d.unnamed("the region is not among the given names and is kept as written", d.opts.Regions, c.text(d.region))
		d.unnamed("the model is not among the given names and is kept as written", d.opts.Models, c.text(d.model))
	}
	series.last, series.line = hour.From, c.line

	model := key.model
	if m, known := domain.LookupGPU(model); known && key.unit == "gpu" {
		model = m.Name
	}
	d.demand = domain.DemandObserved{
		Pool: series.name, Region: key.region, Model: model, Unit: key.unit, Interval: hour,
		RunningMilli: running, PendingMilli: pending, OwnedMilli: owned,
	}
	return d.emit(hour.To, series.name, "", &d.demand)
}
