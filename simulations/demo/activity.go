package demo

import (
	"strconv"
	"strings"

	"quartermaster/domain"
)

// meter generates the measurements of the running GPUs of a virtual cluster. The GPUs are in the
// order in which the importer assigns them to nodes.
type meter struct {
	dice   dice
	scale  int     // of the levels, percent
	gpus   []gauge // by device
	memory int     // MiB per GPU
	what   *measurements
}

// gauge is the level of a GPU until another job takes it.
type gauge struct {
	blind     bool // nothing is measured on its node
	permille  int  // SM active
	memoryMiB int
}

// measurements are the levels of a fleet.
type measurements struct {
	active []share[[2]int] // SM active in per mille, from and to
	memory []share[[2]int] // in use, per mille of the GPU's memory
}

// In Acme (Hu et al., NSDI'24) the median SM activity is about 40 % and half of the GPUs of cluster
// Kalos use more than 75 % of their memory. The rest of the distribution is this package's choice.
var trainingLevels = &measurements{
	active: []share[[2]int]{{130, [2]int{0, 20}}, {200, [2]int{21, 249}}, {340, [2]int{250, 550}},
		{240, [2]int{551, 800}}, {90, [2]int{801, 970}}},
	memory: []share[[2]int]{{150, [2]int{20, 250}}, {350, [2]int{251, 750}}, {500, [2]int{751, 960}}},
}

// In PAI, Alibaba's machine learning platform, the median SM activity is 20 % and most GPUs use
// less than 25 % of their memory, both as reported by Hu et al. next to their own figures.
var sharedLevels = &measurements{
	active: []share[[2]int]{{250, [2]int{0, 20}}, {250, [2]int{21, 200}}, {330, [2]int{201, 500}}, {170, [2]int{501, 970}}},
	memory: []share[[2]int]{{620, [2]int{20, 250}}, {280, [2]int{251, 750}}, {100, [2]int{751, 960}}},
}

const (
	// Number of nodes, per million, without a profiling module: nothing is measured on them.
	blindNodes = 45_000
	// Number of GPU-hours, per million, lost to a restart of the collector.
	lostHours = 5_000
	// Chance, per million, that another job is on a GPU in the next hour.
	changes = 250_000

	nodeGPUs = 8 // of the nodes of usage
)

func newMeter(d dice, gpus, scale int) *meter {
	v100, _ := domain.LookupGPU("V100M32")
	m := &meter{dice: d, scale: scale, gpus: make([]gauge, gpus), memory: int(v100.MemoryMiB), what: trainingLevels}
	for i := range m.gpus {
		if i%nodeGPUs == 0 {
			m.gpus[i].blind = d.chance(blindNodes)
		} else {
			m.gpus[i].blind = m.gpus[i-1].blind
		}
		m.redraw(&m.gpus[i])
	}
	return m
}

func (m *meter) redraw(g *gauge) {
	level := func(of []share[[2]int]) int {
		span := pick(m.dice, of)
		return span[0] + m.dice.below(span[1]-span[0]+1)
	}
	g.permille = min(level(m.what.active)*m.scale/100, 980)
	g.memoryMiB = level(m.what.memory) * m.memory / 1000
}

// hour returns the next hour of the first GPUs, in the format of the importer's columns
// running_sm_active and running_memory_mib.
func (m *meter) hour(running int) (active, memory string) {
	var a, b strings.Builder
	for i := range m.gpus {
		g := &m.gpus[i]
		if m.dice.chance(changes) {
			m.redraw(g)
		}
		lost := m.dice.chance(lostHours)
		if i >= running {
			continue
		}
		if i > 0 {
			a.WriteByte(';')
			b.WriteByte(';')
		}
		if g.blind || lost {
			continue
		}
		a.WriteString(percent(g.permille))
		b.WriteString(strconv.Itoa(g.memoryMiB))
	}
	return a.String(), b.String()
}

// percent formats per mille as percent.
func percent(permille int) string {
	if permille%10 == 0 {
		return strconv.Itoa(permille / 10)
	}
	return strconv.Itoa(permille/10) + "." + strconv.Itoa(permille%10)
}
