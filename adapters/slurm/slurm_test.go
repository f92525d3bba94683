package slurm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/domain"
)

func TestParseCgroup(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n":                                                       "4711",
		"0::/system.slice/n1_slurmstepd.scope/job_4711/step_batch/slurm/task_0\n":                                               "4711",
		"11:memory:/slurm/uid_1000/job_12/step_0/task_0\n9:devices:/slurm/uid_1000/job_12/step_0\n1:name=systemd:/user.slice\n": "12",
		"4:devices:/slurm_node7/uid_0/job_99/step_extern\n":                                                                     "99",
		"0::/user.slice/user-1000.slice/session-3.scope\n":                                                                      "",
		"0::/kubepods.slice/job_5\n":                                                                                            "", // not Slurm's
		"0::/system.slice/slurmstepd.scope/job_/step_0\n":                                                                       "",
		"0::/system.slice/slurmstepd.scope/job_12;rm/step_0\n":                                                                  "",
		"":    "",
		"0":   "",
		"0:":  "",
		":::": "",
	} {
		if got := ParseCgroup(text); got != want {
			t.Errorf("%q is of job %q, want %q", text, got, want)
		}
	}
}

func FuzzParseCgroup(f *testing.F) {
	f.Add("0::/system.slice/slurmstepd.scope/job_4711/step_0")
	f.Add("9:devices:/slurm/uid_1000/job_12/step_0")
	f.Fuzz(func(t *testing.T, s string) {
		if id := ParseCgroup(s); id != "" && (!jobID(id) || !strings.Contains(s, "job_"+id)) {
			t.Errorf("%q is of job %q", s, id)
		}
	})
}

func FuzzParseJobs(f *testing.F) {
	f.Add("12 account=ml user=ada\n13\n", "0.1")
	f.Add("12_3+1", "GPU-5a1c0d6e-0000-4000-8000-000000000001")
	f.Fuzz(func(t *testing.T, text, name string) {
		jobs, _ := ParseJobs(text)
		for _, j := range jobs {
			if !jobID(j.ID) {
				t.Errorf("job %q", j.ID)
			}
		}
		if g, err := ParseGPU(name); err == nil && g.UUID != (domain.GPUID{}) && g.Index != 0 {
			t.Errorf("%q names its GPU twice", name)
		}
	})
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"0":   "4711 account=ml partition=h100 user=ada\n",
		"1":   "",
		"2.1": "12_3\n\n13\n",
		"GPU-5a1c0d6e-0000-4000-8000-000000000001": "14\n",
		"3":       "15\nnonsense\n",
		"README":  "what this is",
		".hidden": "1",
		"4":       "16 account\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Directory(dir)
	for _, want := range []string{`file "README"`, `file 3: line 2: "nonsense" is not a job id`, `file 4: line 1: "account" is not key=value`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	ids := map[string]GPU{}
	for _, h := range got {
		ids[h.Job.ID] = h.GPU
		if h.Job.ID == "4711" && (h.Job.Labels["account"] != "ml" || h.Job.Labels["user"] != "ada") {
			t.Errorf("labels %v", h.Job.Labels)
		}
	}
	if len(ids) != 5 || ids["12_3"] != (GPU{Index: 2, GPUInstance: 1, MIG: true}) || ids["15"].Index != 3 || ids["14"].UUID == (domain.GPUID{}) {
		t.Errorf("%+v", ids)
	}
	if _, err := Directory(filepath.Join(dir, "none")); err == nil {
		t.Error("no directory, and no error")
	}
}

func TestProcesses(t *testing.T) {
	proc := t.TempDir()
	process := func(pid, cgroup string, files ...string) {
		fd := filepath.Join(proc, pid, "fd")
		if err := os.MkdirAll(fd, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cgroup"), []byte(cgroup), 0o644); err != nil {
			t.Fatal(err)
		}
		for i, f := range files {
			if err := os.Symlink(f, filepath.Join(fd, string(rune('0'+i)))); err != nil {
				t.Fatal(err)
			}
		}
	}
	job := "0::/system.slice/slurmstepd.scope/job_7/step_0\n"
	process("100", job, "/dev/null", "/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia3")
	process("101", job, "/dev/nvidia3", "/dev/nvidia4")
	process("102", "0::/init.scope\n", "/dev/nvidia5")
	process("self", job, "/dev/nvidia6")
	got, refused, err := Processes(proc)
	if err != nil || refused != 0 || len(got) != 2 || got[0].GPU.Index != 3 || got[1].GPU.Index != 4 || !got[0].GPU.Minor || got[0].Job.ID != "7" {
		t.Errorf("%+v, %d refused: %v", got, refused, err)
	}
}
