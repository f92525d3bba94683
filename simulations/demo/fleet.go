package demo

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// nodeShape is a kind of machine and how many of it there are.
type nodeShape struct {
	count     int
	model     string
	gpus      int
	cpuMilli  int
	memoryMiB int
}

// The GPU nodes of the openb trace by shape (Weng et al., USENIX ATC'23; the node list of the
// trace). A10G stands for the trace's G2, A100 40GB for its G3.
var nodeShapes = []nodeShape{
	{3, "P100", 1, 8000, 61440},
	{2, "P100", 2, 8000, 61440},
	{107, "P100", 2, 16000, 122880},
	{22, "P100", 2, 64000, 262144},
	{387, "T4", 2, 104000, 524288},
	{17, "T4", 4, 96000, 393216},
	{2, "A10", 1, 128000, 1048576},
	{19, "V100M16", 1, 8000, 32768},
	{28, "V100M16", 4, 32000, 131072},
	{7, "V100M16", 8, 64000, 262144},
	{1, "V100M16", 8, 82000, 344064},
	{9, "V100M32", 4, 48000, 376832},
	{21, "V100M32", 8, 96000, 786432},
	{549, "A10G", 8, 96000, 393216},
	{39, "A100 40GB", 8, 128000, 786432},
}

// The number of pods, and the days over which they were created.
const (
	podCount    = 7600
	podDays     = 30
	podWaitMost = 300 // seconds between creation and start
)

// podClass is what pods with the same number of requested GPUs have in common.
type podClass struct {
	population int // of 10,000 pods
	gpus       int
	milli      []share[int]    // of a GPU, in thousandths
	shape      []share[[2]int] // thousandths of a CPU, MiB
	qos        []share[string]
	spec       []share[string] // models allowed, "" for any
}

var whole = []share[int]{{1, 1000}}

// The pods of the openb trace: population by GPU request as stated by Weng et al. Within a class
// these are the shares, in percent or per mille, of the frequent requests in the trace's list of
// 8,152 pods, and of the constraints in its variant gpuspec10.
var podClasses = []podClass{
	{
		population: 1334, gpus: 0, milli: []share[int]{{1, 0}},
		shape: []share[[2]int]{
			{36, [2]int{12500, 57344}}, {28, [2]int{32000, 49152}}, {16, [2]int{8000, 30517}},
			{12, [2]int{15400, 51200}}, {8, [2]int{16500, 51200}},
		},
		qos:  []share[string]{{585, "LS"}, {413, "BE"}, {1, "Burstable"}, {1, "Guaranteed"}},
		spec: []share[string]{{1, ""}},
	},
	{
		population: 3776, gpus: 1,
		milli: []share[int]{
			{350, 810}, {244, 470}, {107, 320}, {82, 650}, {45, 230}, {42, 460}, {24, 590}, {24, 160},
			{23, 550}, {20, 220}, {15, 370}, {8, 110}, {6, 480}, {2, 50}, {2, 330}, {2, 350}, {4, 270},
		},
		shape: []share[[2]int]{
			{36, [2]int{3152, 5600}}, {20, [2]int{11908, 47104}}, {16, [2]int{8000, 30517}},
			{6, [2]int{4000, 22888}}, {6, [2]int{4000, 15258}}, {5, [2]int{4152, 10600}},
			{5, [2]int{4000, 30517}}, {3, [2]int{6000, 6144}}, {2, [2]int{6000, 12288}}, {1, [2]int{1000, 2048}},
		},
		qos:  []share[string]{{753, "BE"}, {247, "LS"}},
		spec: []share[string]{{912, ""}, {53, "T4"}, {32, "P100"}, {3, "A10G|P100|T4|V100M16|V100M32"}},
	},
	{
		population: 4798, gpus: 1, milli: whole,
		shape: []share[[2]int]{
			{22, [2]int{11300, 49152}}, {14, [2]int{11400, 48128}}, {12, [2]int{3152, 5600}},
			{7, [2]int{18708, 64512}}, {6, [2]int{9810, 41560}}, {5, [2]int{12000, 24576}},
			{5, [2]int{15700, 58368}}, {5, [2]int{11908, 47104}}, {4, [2]int{16000, 32768}},
			{4, [2]int{8000, 16384}}, {4, [2]int{4000, 24576}}, {4, [2]int{12000, 16384}},
			{4, [2]int{14200, 58368}}, {4, [2]int{24200, 93184}},
		},
		qos: []share[string]{{818, "LS"}, {161, "BE"}, {19, "Burstable"}, {2, "Guaranteed"}},
		spec: []share[string]{
			{885, ""}, {49, "T4"}, {29, "A10G"}, {14, "V100M16|V100M32"}, {9, "P100|V100M16|V100M32"},
			{4, "A100 40GB"}, {5, "A10G|P100|T4|V100M16|V100M32"}, {2, "P100|V100M16"}, {3, "A10|A10G|T4|V100M16|V100M32"},
		},
	},
	{
		population: 20, gpus: 2, milli: whole,
		shape: []share[[2]int]{
			{44, [2]int{16200, 66560}}, {19, [2]int{6000, 65536}}, {19, [2]int{30200, 160768}},
			{12, [2]int{17400, 43008}}, {6, [2]int{14000, 60000}},
		},
		qos:  []share[string]{{94, "LS"}, {6, "Burstable"}},
		spec: []share[string]{{94, ""}, {6, "T4|V100M16|V100M32"}},
	},
	{
		population: 18, gpus: 4, milli: whole,
		shape: []share[[2]int]{{60, [2]int{32200, 132096}}, {20, [2]int{32000, 131072}}, {20, [2]int{60200, 320512}}},
		qos:   []share[string]{{93, "LS"}, {7, "Burstable"}},
		spec:  []share[string]{{87, ""}, {13, "A10G"}},
	},
	{
		population: 54, gpus: 8, milli: whole,
		shape: []share[[2]int]{
			{41, [2]int{88000, 327680}}, {41, [2]int{64200, 263168}}, {7, [2]int{120000, 737280}},
			{7, [2]int{64000, 262144}}, {4, [2]int{120200, 640000}},
		},
		qos:  []share[string]{{52, "LS"}, {48, "Burstable"}},
		spec: []share[string]{{86, ""}, {14, "A10G"}},
	},
}

// Fleet writes a list of nodes and a list of pods in the columns of the openb trace: 1,213 nodes
// with 6,212 GPUs, and 7,600 pods that request about nine tenths of them. Creation times are
// seconds from an epoch that the importing user names; the pods are created within 30 days of it
// and keep running. Every pod fits on some node of the empty fleet.
func Fleet(nodes, pods io.Writer, draw func() uint64) error {
	if err := writeNodes(nodes); err != nil {
		return fmt.Errorf("write nodes: %w", err)
	}
	if err := writePods(pods, dice{draw}); err != nil {
		return fmt.Errorf("write pods: %w", err)
	}
	return nil
}

func writeNodes(w io.Writer) error {
	t := newTable(w, "sn", "cpu_milli", "memory_mib", "gpu", "model")
	n := 0
	for _, s := range nodeShapes {
		for range s.count {
			n++
			t.row(nodeName(n), strconv.Itoa(s.cpuMilli), strconv.Itoa(s.memoryMiB), strconv.Itoa(s.gpus), s.model)
		}
	}
	return t.close()
}

// nodeName returns the name of the n-th node, from 1.
func nodeName(n int) string { return fmt.Sprintf("gen-node-%04d", n) }

// pod is a request for resources.
type pod struct {
	name                string
	gpus, milli         int // of each GPU, in thousandths
	cpuMilli, memoryMiB int
	spec, qos           string
	created, scheduled  int // seconds from the epoch
}

func drawPods(d dice) []pod {
	pods := make([]pod, 0, podCount)
	for i, c := range population(d) {
		shape := pick(d, c.shape)
		p := pod{name: fmt.Sprintf("gen-pod-%04d", i+1), gpus: c.gpus, cpuMilli: shape[0], memoryMiB: shape[1]}
		if p.spec = pick(d, c.spec); !fits(c.gpus, shape, p.spec) {
			p.spec = ""
		}
		step := podDays * 86400 / podCount
		p.created = i*step + d.below(step)
		p.milli, p.qos = pick(d, c.milli), pick(d, c.qos)
		p.scheduled = p.created + d.below(podWaitMost)
		pods = append(pods, p)
	}
	return pods
}

func writePods(w io.Writer, d dice) error {
	t := newTable(w, "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
		"creation_time", "deletion_time", "scheduled_time")
	for _, p := range drawPods(d) {
		t.row(
			p.name, strconv.Itoa(p.cpuMilli), strconv.Itoa(p.memoryMiB), strconv.Itoa(p.gpus), strconv.Itoa(p.milli),
			p.spec, p.qos,
			"Running", strconv.Itoa(p.created), "", strconv.Itoa(p.scheduled),
		)
	}
	return t.close()
}

// population returns the class of each pod: as many of each as its share says, to within one, in
// random order.
func population(d dice) []*podClass {
	deck := make([]*podClass, 0, podCount)
	sum := 0
	for i := range podClasses {
		sum += podClasses[i].population
		for len(deck) < (sum*podCount+5000)/10_000 {
			deck = append(deck, &podClasses[i])
		}
	}
	shuffle(d, deck)
	return deck
}

// fits reports whether some node of the fleet can hold a pod.
func fits(gpus int, shape [2]int, spec string) bool {
	models := strings.Split(spec, "|")
	return slices.ContainsFunc(nodeShapes, func(n nodeShape) bool {
		return n.gpus >= gpus && n.cpuMilli >= shape[0] && n.memoryMiB >= shape[1] &&
			(spec == "" || slices.Contains(models, n.model))
	})
}
