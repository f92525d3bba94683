// Package slurm finds the Slurm jobs that hold the GPUs of a node. It has two sources, neither of
// which asks Slurm:
//
//   - A directory that the prolog writes. It has a file for each GPU, named by its index
//     or UUID, with the job's id and labels. It needs no rights and is the recommended
//     source. (dcgm-exporter reads the same directory.)
//   - Processes. A process that has the device /dev/nvidiaN open is in a cgroup that names
//     the job. This needs the right to inspect other users' processes (CAP_SYS_PTRACE), and
//     sees a job only while one of its processes uses the GPU.
package slurm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"quartermaster/domain"
)

// Job is a job that holds a GPU.
type Job struct {
	ID     string
	Labels map[string]string // account, partition, user ...: as written by the prolog
}

// GPU identifies a GPU by UUID or by number.
type GPU struct {
	UUID domain.GPUID // zero if Index identifies the GPU
	// Index is the driver's index. With Minor, it is the number of /dev/nvidiaN, which may differ.
	Index       uint32
	Minor       bool
	GPUInstance uint32 // with MIG
	MIG         bool
}

// Holding is a job with a GPU.
type Holding struct {
	GPU GPU
	Job Job
}

const maxFile = 64 << 10

// Directory reads the prolog's directory. If a file is invalid, it returns an error along with the
// jobs of the other files. If the directory does not exist, it returns only an error.
func Directory(path string) ([]Holding, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read the jobs of this node: %w", err)
	}
	var out []Holding
	var errs []error
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		gpu, err := ParseGPU(e.Name())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		b, err := readSmall(filepath.Join(path, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the epilog was faster
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		jobs, err := ParseJobs(string(b))
		if err != nil {
			errs = append(errs, fmt.Errorf("file %s: %w", e.Name(), err))
		}
		for _, j := range jobs {
			out = append(out, Holding{gpu, j})
		}
	}
	if len(errs) > 0 {
		return out, fmt.Errorf("read the jobs of this node: %w", errors.Join(errs...))
	}
	return out, nil
}

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d KiB", path, maxFile>>10)
	}
	return b, err
}

// ParseGPU parses the name of a file: the GPU's index, index.GI for a MIG instance, or a UUID as
// the driver formats it.
func ParseGPU(name string) (GPU, error) {
	if strings.HasPrefix(name, "GPU-") || strings.HasPrefix(name, "MIG-") {
		id, err := domain.ParseGPUID(name)
		if err != nil {
			return GPU{}, fmt.Errorf("file %.80q: want a GPU's index or UUID: %w", name, err)
		}
		return GPU{UUID: id, MIG: name[0] == 'M'}, nil
	}
	index, gi, mig := strings.Cut(name, ".")
	g := GPU{MIG: mig}
	var ok bool
	if g.Index, ok = parseSmall(index); !ok {
		return GPU{}, fmt.Errorf("file %.80q: want a GPU's index or UUID", name)
	}
	if mig {
		if g.GPUInstance, ok = parseSmall(gi); !ok {
			return GPU{}, fmt.Errorf("file %.80q: want INDEX.GI for a MIG instance", name)
		}
	}
	return g, nil
}

func parseSmall(s string) (uint32, bool) {
	if len(s) == 0 || len(s) > 4 || strings.ContainsAny(s, "+-") {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil
}

// ParseJobs parses a file. Each line is a job's id followed by labels as key=value.
func ParseJobs(text string) (jobs []Job, err error) {
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		j := Job{ID: words[0]}
		if !jobID(j.ID) {
			return jobs, fmt.Errorf("line %d: %.80q is not a job id", i+1, j.ID)
		}
		for _, w := range words[1:] {
			key, value, ok := strings.Cut(w, "=")
			if !ok || key == "" {
				return jobs, fmt.Errorf("line %d: %.80q is not key=value", i+1, w)
			}
			if j.Labels == nil {
				j.Labels = map[string]string{}
			}
			j.Labels[key] = value
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// jobID reports whether s is a Slurm job id: 123, 123_4 for an array task, 123+1 for a
// heterogeneous job.
func jobID(s string) bool {
	if len(s) == 0 || len(s) > 64 || s[0] < '0' || s[0] > '9' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '_' && r != '+' })
}

// ParseCgroup returns the job that a process belongs to, or "", from the text of /proc/N/cgroup. It
// reads version 2 (0::/system.slice/slurmstepd.scope/job_12/step_0/…) and version 1
// (9:devices:/slurm/uid_1000/job_12/step_0). The path must be Slurm's.
func ParseCgroup(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		_, rest, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		_, path, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		slurm := false
		for part := range strings.SplitSeq(path, "/") {
			if part == "slurm" || strings.HasPrefix(part, "slurm_") || strings.HasSuffix(part, "slurmstepd.scope") {
				slurm = true
			}
			if id, ok := strings.CutPrefix(part, "job_"); ok && slurm && jobID(id) {
				return id
			}
		}
	}
	return ""
}

// Processes returns the jobs whose processes have a GPU open, by the minor number of its device.
// refused is the number of processes that it was not allowed to inspect.
func Processes(proc string) (out []Holding, refused int, err error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, 0, fmt.Errorf("read processes: %w", err)
	}
	for _, e := range entries {
		if _, err := strconv.ParseUint(e.Name(), 10, 32); err != nil || !e.IsDir() {
			continue
		}
		dir := filepath.Join(proc, e.Name())
		text, err := readSmall(filepath.Join(dir, "cgroup"))
		if err != nil {
			continue // it ended
		}
		job := ParseCgroup(string(text))
		if job == "" {
			continue
		}
		files, err := os.ReadDir(filepath.Join(dir, "fd"))
		if errors.Is(err, fs.ErrPermission) {
			refused++
			continue
		}
		for _, f := range files {
			target, err := os.Readlink(filepath.Join(dir, "fd", f.Name()))
			if errors.Is(err, fs.ErrPermission) {
				refused++
				break
			}
			n, ok := parseSmall(strings.TrimPrefix(target, "/dev/nvidia"))
			if err != nil || !ok || !strings.HasPrefix(target, "/dev/nvidia") {
				continue
			}
			h := Holding{GPU: GPU{Index: n, Minor: true}, Job: Job{ID: job}}
			if !slices.ContainsFunc(out, func(o Holding) bool { return o.GPU == h.GPU && o.Job.ID == h.Job.ID }) {
				out = append(out, h)
			}
		}
	}
	return out, refused, nil
}
