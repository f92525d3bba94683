package importer

import (
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
)

var podsKind = format{
	columns: []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"},
	start: func(im *importer, col func(string) column) func(*cells) error {
		p := &podReader{
			importer: im,
			name:     col("name"),
			cpu:      col("cpu_milli"),
			memory:   col("memory_mib"),
			gpus:     col("num_gpu"),
			share:    col("gpu_milli"),
			spec:     col("gpu_spec"),
			qos:      col("qos"),
			created:  col("creation_time"),
			deleted:  col("deletion_time"),
			names:    map[string]int{},
		}
		return p.row
	},
}

type podReader struct {
	*importer
	name, cpu, memory, gpus, share, spec, qos, created, deleted column

	names map[string]int // line of each name
}

func (p *podReader) row(c *cells) error {
	ev := &domain.DeploymentChanged{
		Deployment: c.name(p.name),
		Class:      domain.ClassBatch,
		Replicas:   1,
		Need: domain.GPUNeed{
			CPUMilli: c.count(p.cpu, maxMilli),
			RAMMiB:   c.count(p.memory, maxMilli),
		},
	}
	gpus := c.count(p.gpus, maxNodeGPUs)
	share := c.count(p.share, 1000)
	switch {
	case c.refused != nil:
	case gpus == 0 && share != 0:
		c.refuse(p.share, "is not 0 although num_gpu is 0")
	case gpus > 0 && share == 0:
		c.refuse(p.share, "is 0 although num_gpu is not 0")
	case gpus > 1 && share != 1000:
		c.refuse(p.share, "is a fraction of several GPUs: with num_gpu above 1 it must be 1000")
	}
	ev.Need.Count = uint32(gpus)
	if share < 1000 {
		ev.Need.Milli = uint32(share)
	}
	switch qos := c.text(p.qos); qos {
	case "LS":
		ev.Class = domain.ClassServing
	case "", "BE", "Burstable", "Guaranteed":
	default:
		c.refuse(p.qos, "is not one of LS, BE, Burstable, Guaranteed")
	}
	created, _ := p.moment(c, p.created, 0)
	deleted, ends := p.moment(c, p.deleted, created)
	spec := c.text(p.spec)
	var models []string
	for model := range strings.SplitSeq(spec, "|") {
		if model = strings.TrimSpace(model); model != "" {
			models = append(models, model)
		} else if spec != "" {
			c.refuse(p.spec, "names an empty model: separate models by a single |")
		}
	}
	if c.refused == nil {
		if line, twice := p.names[ev.Deployment]; twice {
			c.refuse(p.name, fmt.Sprintf("is also the pod of line %d", line))
		}
	}
	if c.refused != nil {
		return c.refused
	}
	p.names[ev.Deployment] = c.line
	if p.opts.Standing {
		created, _ = shifted(p.opts.Epoch, domain.Instant(p.opts.Shift))
		ends = false
	}
	for _, model := range models {
		if name := p.model(model).Name; !slices.Contains(ev.Need.Models, name) {
			ev.Need.Models = append(ev.Need.Models, name)
		}
	}
	if err := p.emit(created, ev.Deployment, p.opts.Workspace, ev); err != nil || !ends {
		return err
	}
	return p.emit(deleted, ev.Deployment, p.opts.Workspace, &domain.DeploymentRemoved{Deployment: ev.Deployment})
}

// moment reads seconds after the epoch. The time must not be before least. An empty field means
// the epoch, and moment reports false.
func (p *podReader) moment(c *cells, k column, least domain.Instant) (domain.Instant, bool) {
	given := len(c.raw(k)) > 0
	t, reason := p.after(c.optionalCount(k, maxMilli))
	if reason == "" && given && t < least {
		reason = "is before the creation"
	}
	if reason != "" {
		c.refuse(k, reason)
	}
	return t, given
}
