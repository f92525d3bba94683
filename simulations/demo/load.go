package demo

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"quartermaster/domain"
)

// LoadPeriod is the time that [Load] covers: May 2026, UTC.
var LoadPeriod = domain.Interval{
	From: domain.InstantOf(time.Date(2026, time.May, 1, 0, 0, 0, 0, time.UTC)),
	To:   domain.InstantOf(time.Date(2026, time.June, 1, 0, 0, 0, 0, time.UTC)),
}

// queue is a virtual cluster: its GPUs, and the submitted work in per mille of their capacity. Work
// waits for room and for Monday, so less than that runs.
type queue struct {
	name string
	gpus int
	load int
	busy int // GPU activity relative to the other queues, percent; invented
}

// 888 GPUs. Sizes and loads are invented; their spread is that of the sixteen virtual clusters of
// Helios Earth, which had 8 to 208 GPUs and ran 1 % to 91 % of them.
var queues = []queue{
	{"vc-a01", 192, 1060, 115}, {"vc-a02", 104, 760, 100}, {"vc-a03", 80, 960, 85}, {"vc-a04", 72, 720, 120},
	{"vc-a05", 64, 520, 70}, {"vc-a06", 64, 1250, 130}, {"vc-a07", 56, 620, 95}, {"vc-a08", 48, 820, 60},
	{"vc-a09", 48, 540, 110}, {"vc-a10", 40, 1350, 90}, {"vc-a11", 32, 460, 105}, {"vc-a12", 24, 780, 75},
	{"vc-a13", 24, 500, 125}, {"vc-a14", 16, 300, 80}, {"vc-a15", 16, 20, 50}, {"vc-a16", 8, 1200, 100},
}

// Queues are simulated in ticks of six minutes, starting a few days before the period, so that it
// begins with work in progress.
const (
	tick         = domain.Hour / ticksPerHour
	ticksPerHour = 10
	ticksPerDay  = 24 * ticksPerHour
	warmDays     = 5
	patience     = ticksPerDay // a job that waited this long is cancelled
	// Nothing is submitted to a queue while jobs already wait for this part of its GPUs, in
	// percent.
	discouraging = 40
)

// Job sizes: mean 2.2 GPUs, three quarters have one. Helios Earth: mean 2.10, median 1 (Hu et al.,
// SC'21, and the summary of its trace).
var jobGPUs = []share[int]{{760, 1}, {80, 2}, {50, 4}, {95, 8}, {12, 16}, {3, 32}}

// Run times in ticks, from and to: median below 12 minutes, mean 1.6 hours. Helios Earth: median
// 234 s, mean 5,131 s.
var jobTicks = []share[[2]int]{
	{650, [2]int{1, 2}}, {190, [2]int{3, 10}}, {110, [2]int{11, 59}}, {43, [2]int{60, 240}}, {7, [2]int{241, 720}},
}

// Jobs of eight GPUs and more run this much longer, in halves. In Helios Earth the mean of GPUs ×
// run time is 2.5 times the product of the means.
const (
	largeJob        = 8
	largeJobsLonger = 5
)

// How many equal jobs of less than eight GPUs are submitted at once: pending work comes in bursts.
var jobBurst = []share[int]{{88, 1}, {10, 3}, {2, 8}}

// Submissions by hour of the day and by day of the week from Sunday, in percent of the mean:
// working hours, a dip at noon and in the evening, quiet Sundays, as Hu et al. show for submissions
// and utilisation, and as in the weekdays of Earth's load in May 2020.
var (
	submittedByHour = [24]int{85, 80, 75, 70, 70, 70, 75, 80, 90, 110, 120, 115, 100, 112, 122, 126, 122, 116, 104,
		106, 112, 112, 106, 96}
	submittedByDay = [7]int{55, 104, 112, 112, 110, 107, 100}
)

type job struct {
	gpus, ticks int
	submitted   int // tick
	number      int // in its queue, from 1
}

// virtualCluster is a running queue.
type virtualCluster struct {
	queue
	dice    dice
	free    int
	rate    int // submissions in a tick, in millionths
	ending  [][]int
	waiting []job
	pending int // GPUs that waiting jobs request
	numbers int
	// left is called for each job that starts, or that gives up, in which case started is false.
	left func(j job, at int, started bool)
}

// Load writes hourly usage in the columns of Helios' virtual clusters. For each of sixteen queues
// and each hour of [LoadPeriod] it has the GPUs owned, running and pending, mean and maximum over
// the hour, and the measurements of the running ones, which are drawn from measured. Running never
// exceeds owned. Hours are written with a trailing Z.
func Load(w io.Writer, draw, measured func() uint64) error {
	t := newTable(w, "hour", "vc", "total_gpu", "running_gpu_mean", "running_gpu_max", "pending_gpu_mean", "pending_gpu_max",
		"running_sm_active", "running_memory_mib")
	for _, q := range queues {
		vc := newVirtualCluster(q, dice{draw})
		meter := newMeter(dice{measured}, q.gpus, q.busy)
		vc.hours(func(hour domain.Instant, running, mostRunning, pending, mostPending int) {
			active, memory := meter.hour((running + ticksPerHour - 1) / ticksPerHour)
			t.row(hour.Time().Format(time.RFC3339), vc.name, strconv.Itoa(vc.gpus),
				tenths(running), strconv.Itoa(mostRunning), tenths(pending), strconv.Itoa(mostPending), active, memory)
		})
	}
	if err := t.close(); err != nil {
		return fmt.Errorf("write load: %w", err)
	}
	return nil
}

// hours runs a queue and yields each hour of [LoadPeriod]: the sums of running and pending GPUs
// over its ticks, and the maximum of each.
func (vc *virtualCluster) hours(yield func(hour domain.Instant, running, mostRunning, pending, mostPending int)) {
	start := LoadPeriod.From - warmDays*domain.Day
	at := 0
	for hour := start; hour < LoadPeriod.To; hour += domain.Hour {
		var running, pending, mostRunning, mostPending int
		for range ticksPerHour {
			vc.step(at, timeOf(at))
			at++
			busy := vc.gpus - vc.free
			running, mostRunning = running+busy, max(mostRunning, busy)
			pending, mostPending = pending+vc.pending, max(mostPending, vc.pending)
		}
		if hour >= LoadPeriod.From {
			yield(hour, running, mostRunning, pending, mostPending)
		}
	}
}

// timeOf is when a tick begins.
func timeOf(at int) domain.Instant {
	return LoadPeriod.From - warmDays*domain.Day + domain.Instant(at)*tick
}

// tenths formats the mean of the ticks of an hour from their sum.
func tenths(sum int) string { return fmt.Sprintf("%d.%d", sum/ticksPerHour, sum%ticksPerHour) }

func newVirtualCluster(q queue, d dice) *virtualCluster {
	// The work in one submission, in GPU-ticks: each sum over a table is weighted by its shares,
	// per mille and for bursts in percent.
	var ticks, burst, work int
	for _, s := range jobTicks {
		ticks += s.weight * (s.value[0] + s.value[1]) / 2
	}
	for _, s := range jobBurst {
		burst += s.weight * s.value
	}
	for _, s := range jobGPUs {
		if gpus := q.most(s.value); gpus >= largeJob {
			work += s.weight * gpus * ticks * largeJobsLonger / 2
		} else {
			work += s.weight * gpus * ticks * burst / 100
		}
	}
	return &virtualCluster{
		queue: q, dice: d, free: q.gpus,
		rate:   q.gpus * q.load * 1000 / (work / 1_000_000),
		ending: make([][]int, 1+720*largeJobsLonger/2),
	}
}

// most is the largest part of a queue that a job may take: half of it.
func (q queue) most(gpus int) int { return min(gpus, q.gpus/2) }

// step is one tick: finished jobs end, new ones queue, and those that fit start.
func (vc *virtualCluster) step(at int, now domain.Instant) {
	slot := &vc.ending[at%len(vc.ending)]
	for _, gpus := range *slot {
		vc.free += gpus
	}
	*slot = (*slot)[:0]

	when := now.Time()
	rate := vc.rate * submittedByHour[when.Hour()] / 100 * submittedByDay[when.Weekday()] / 100
	// Arrivals within a tick: many tries with small chances, which approximates a Poisson process.
	const tries = 20
	for range tries {
		if vc.dice.chance(rate / tries) {
			vc.submit(at)
		}
	}
	vc.start(at)
}

func (vc *virtualCluster) submit(at int) {
	if vc.pending*100 > vc.gpus*discouraging {
		return
	}
	j := job{gpus: vc.most(pick(vc.dice, jobGPUs)), submitted: at}
	span := pick(vc.dice, jobTicks)
	jobs := 1
	if j.gpus < largeJob {
		jobs = pick(vc.dice, jobBurst)
	}
	for range jobs {
		j.ticks = span[0] + vc.dice.below(span[1]-span[0]+1)
		if j.gpus >= largeJob {
			j.ticks = j.ticks * largeJobsLonger / 2
		}
		vc.numbers++
		j.number = vc.numbers
		vc.waiting = append(vc.waiting, j)
		vc.pending += j.gpus
	}
}

// start starts waiting jobs in the order of submission: each job that fits into what the jobs
// before it left free.
func (vc *virtualCluster) start(at int) {
	kept := vc.waiting[:0]
	for _, j := range vc.waiting {
		switch {
		case j.gpus <= vc.free:
			vc.free -= j.gpus
			vc.pending -= j.gpus
			slot := (at + j.ticks) % len(vc.ending)
			vc.ending[slot] = append(vc.ending[slot], j.gpus)
			vc.tell(j, at, true)
		case at-j.submitted >= patience:
			vc.pending -= j.gpus
			vc.tell(j, at, false)
		default:
			kept = append(kept, j)
		}
	}
	vc.waiting = kept
}

func (vc *virtualCluster) tell(j job, at int, started bool) {
	if vc.left != nil {
		vc.left(j, at, started)
	}
}
