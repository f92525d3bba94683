package demo

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
)

// JobsPeriod is the time in which the jobs of [Jobs] were submitted: the last three days of
// [LoadPeriod].
var JobsPeriod = domain.Interval{From: LoadPeriod.To - 3*domain.Day, To: LoadPeriod.To}

// Told is an event of a workspace and when it became true.
type Told struct {
	At        domain.Instant
	Cluster   string // "" for the one that the caller names
	Workspace string // "" for the cluster's owner
	Subject   string
	Event     domain.Event
}

// How jobs end, by the GPU-hours that they would take: per mille cancelled and failed; the rest
// succeed. Of the GPU jobs of Helios Earth 73.5 % completed, 13.6 % were cancelled and 12.9 %
// failed; they took 50 %, 42 % and 8 % of the GPU time. So long jobs are cancelled, and failures
// come early (Hu et al., SC'21, and the summary of its trace).
var jobEnds = []struct{ hours, cancelled, failed int }{{2, 85, 150}, {40, 220, 90}, {1 << 30, 620, 60}}

// Jobs returns the events of the jobs submitted in [JobsPeriod], in order of time: queued, started
// and finished, as far as they happened before its end. Given the draws of [Load], they are the
// jobs that its GPUs ran. Their outcome is drawn from ended.
//
// It assumes that the work of a failed job is lost and that of a cancelled one is kept, which is
// this package's choice.
func Jobs(draw, ended func() uint64) []Told {
	var out []Told
	ends := dice{ended}
	for _, q := range queues {
		vc := newVirtualCluster(q, dice{draw})
		vc.left = func(j job, at int, started bool) {
			queued := timeOf(j.submitted)
			if queued < JobsPeriod.From {
				return
			}
			name := fmt.Sprintf("%s-job-%05d", vc.name, j.number)
			tell := func(at domain.Instant, ev domain.Event) {
				if at < JobsPeriod.To {
					out = append(out, Told{At: at, Workspace: vc.name, Subject: name, Event: ev})
				}
			}
			tell(queued, &domain.JobQueued{Job: name, Class: domain.ClassTraining, Need: needOf(j.gpus)})
			if !started {
				tell(timeOf(at), &domain.JobFinished{Job: name, Outcome: domain.JobCancelled, Detail: "waited for a day"})
				return
			}
			tell(timeOf(at), &domain.JobStarted{Job: name, GPUs: uint32(j.gpus)})
			tell(timeOf(at+j.ticks), endOf(ends, name, j))
		}
		vc.hours(func(domain.Instant, int, int, int, int) {})
	}
	slices.SortStableFunc(out, func(a, b Told) int { return cmp.Compare(a.At, b.At) })
	return out
}

func endOf(d dice, name string, j job) *domain.JobFinished {
	i := slices.IndexFunc(jobEnds, func(e struct{ hours, cancelled, failed int }) bool {
		return j.gpus*j.ticks < e.hours*ticksPerHour
	})
	switch n := d.below(1000); {
	case n < jobEnds[i].cancelled:
		return &domain.JobFinished{Job: name, Outcome: domain.JobCancelled, RetainedPermille: 1000}
	case n < jobEnds[i].cancelled+jobEnds[i].failed:
		return &domain.JobFinished{Job: name, Outcome: domain.JobFailed}
	}
	return &domain.JobFinished{Job: name, Outcome: domain.JobSucceeded, RetainedPermille: 1000}
}

// needOf requests GPUs on the smallest number of eight-GPU nodes with equally many on each.
func needOf(gpus int) domain.GPUNeed {
	nodes := (gpus + nodeGPUs - 1) / nodeGPUs
	for gpus%nodes != 0 {
		nodes++
	}
	n := domain.GPUNeed{Models: []string{"V100 32GB"}, Count: uint32(gpus / nodes)}
	if nodes > 1 {
		n.GangNodes = uint32(nodes)
	}
	return n
}
