package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"quartermaster/adapters/configfile"
	"quartermaster/adapters/dcgm"
	"quartermaster/adapters/podresources"
	"quartermaster/adapters/slurm"
	"quartermaster/domain"
)

// slot is a device, or a time-slice replica of one (counted from 1).
type slot struct {
	id      domain.GPUID
	replica uint32
}

// holder identifies what holds a slot.
type holder struct{ workspace, deployment, unit string }

// holdings are the holders of slots.
type holdings struct {
	held map[slot]holder
	// shares is the number of time-slice replicas of devices that are shared.
	shares map[domain.GPUID]uint32
	// unknown says that slots without a holder may be held after all, because no source is
	// configured or a source did not answer.
	unknown bool
}

// place is a device in the terms of a source.
type place struct {
	id       domain.GPUID // zero if index identifies the device
	index    uint32
	minor    bool // index is the number of /dev/nvidiaN
	instance uint32
	compute  uint32
	mig      bool
	within   bool // id is the GPU's; instance and compute identify its MIG device
	replica  uint32
}

// claim is a source's statement about the holder of a device.
type claim struct {
	place         place
	namespace     string // slurm for jobs; "" if workspace is complete
	job           bool   // of Slurm; otherwise a pod
	labels        map[string]string
	labelsUnknown bool   // it may have labels that could not be read
	holder        holder // unit; for the static file all fields
}

// staleAfter is how long the last statement of a source is used if it stops answering. A kubelet
// that restarts does not change pods.
const staleAfter = 10 * time.Minute

// attributor asks the sources for the holders of devices.
type attributor struct {
	cfg     *Config
	log     *slog.Logger
	kubelet *podresources.Client
	labels  *podresources.Labels
	static  staticFile

	// labelled are the labels of pods when they were last read. Only refresh uses them.
	labelled   map[podresources.PodName]map[string]string
	labelledAt time.Time

	mu      sync.Mutex
	claims  [3][]claim // of the static file, Slurm and Kubernetes
	shares  map[place]uint32
	fresh   [3]time.Time
	known   [3]bool   // the last statement of a source is in use
	faults  [3]string // error of a source; "" if there is none
	unknown int       // device ids that could not be parsed, at the last refresh
}

var attributionSources = [3]string{"static", "slurm", "kubernetes"}

func newAttributor(cfg *Config, log *slog.Logger) *attributor {
	a := &attributor{cfg: cfg, log: log, static: staticFile{path: cfg.Attribution.Static}}
	k := cfg.Attribution.Kubernetes
	if k.Enabled {
		a.kubelet = podresources.New(k.Socket)
		if k.Labels {
			const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
			a.labels = &podresources.Labels{
				URL:       "https://" + os.Getenv("KUBERNETES_SERVICE_HOST") + ":" + os.Getenv("KUBERNETES_SERVICE_PORT"),
				TokenFile: account + "token", CAFile: account + "ca.crt", Node: cfg.kubeNode(),
			}
		}
	}
	return a
}

// sources reports which sources are configured.
func (a *attributor) sources() [3]bool {
	s := a.cfg.Attribution.Slurm
	return [3]bool{a.cfg.Attribution.Static != "", s.JobDir != "" || s.Processes, a.kubelet != nil}
}

// refresh asks every configured source.
func (a *attributor) refresh(ctx context.Context, now time.Time) {
	ask := a.sources()
	if ask[0] {
		claims, err := a.static.read()
		a.take(0, claims, err, now)
	}
	if ask[1] {
		claims, err := jobs(a.cfg.Attribution.Slurm)
		a.take(1, claims, err, now)
	}
	if ask[2] {
		claims, shares, unknown, err := a.pods(ctx, now)
		if err == nil {
			a.mu.Lock()
			a.shares, a.unknown = shares, unknown
			a.mu.Unlock()
		}
		a.take(2, claims, err, now)
	}
}

// take stores the statement of a source. If err is not nil, claims are the part that could be read.
func (a *attributor) take(source int, claims []claim, err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
		if a.faults[source] == "" {
			a.log.Warn("the holders of GPUs are not fully known", "source", attributionSources[source], "error", err)
		}
	} else if a.faults[source] != "" {
		a.log.Info("the holders of GPUs are known again", "source", attributionSources[source])
	}
	a.faults[source] = text
	switch {
	case err == nil || claims != nil:
		a.claims[source], a.fresh[source], a.known[source] = claims, now, true
	case now.Sub(a.fresh[source]) > staleAfter:
		a.claims[source], a.known[source] = nil, false
	}
}

// holdings returns the holders of the devices of an inventory.
func (a *attributor) holdings(cluster, node string, devices []dcgm.Device) *holdings {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := a.sources()
	h := &holdings{map[slot]holder{}, map[domain.GPUID]uint32{}, asked == [3]bool{}}
	for i := range asked {
		h.unknown = h.unknown || asked[i] && !a.known[i]
	}
	for p, n := range a.shares {
		for _, id := range find(cluster, node, devices, p) {
			h.shares[id] = max(h.shares[id], n)
		}
	}
	for _, claims := range a.claims {
		for i := range claims {
			c := &claims[i]
			for _, id := range find(cluster, node, devices, c.place) {
				s := slot{id, c.place.replica}
				if s.replica > 0 {
					h.shares[id] = max(h.shares[id], s.replica)
				}
				if _, taken := h.held[s]; !taken {
					h.held[s] = a.holder(c)
				}
			}
		}
	}
	return h
}

// anyDevice is the index of a claim to all devices of the node.
const anyDevice = ^uint32(0)

// find returns the ids of the devices that a place means. If no device has a known minor number,
// minor numbers are assumed to be the driver's indices.
func find(cluster, node string, devices []dcgm.Device, p place) (ids []domain.GPUID) {
	minors := p.minor && slices.ContainsFunc(devices, func(d dcgm.Device) bool { return d.Minor > 0 })
	for i := range devices {
		d := &devices[i]
		id := idOf(cluster, node, d)
		switch {
		case p.within: // an old driver's name
			if partOf(devices, d, p.id) && d.GPUInstance == p.instance && d.ComputeInstance == p.compute {
				ids = append(ids, id)
			}
		case p.id != (domain.GPUID{}):
			if id == p.id || partOf(devices, d, p.id) {
				ids = append(ids, id)
			}
		case p.index == anyDevice:
			ids = append(ids, id)
		case minors && d.Minor != p.index+1, !minors && d.GPU != p.index:
		case !p.mig || d.Parent > 0 && d.GPUInstance == p.instance:
			ids = append(ids, id)
		}
	}
	return ids
}

// partOf reports whether d is a MIG device of the GPU with this id.
func partOf(devices []dcgm.Device, d *dcgm.Device, gpu domain.GPUID) bool {
	return d.Parent > 0 && int(d.Parent) <= len(devices) && devices[d.Parent-1].UUID == gpu
}

// holder applies the rules to a claim. A pod gets no workspace: signed mapping rules say who pays
// for it, not the labels that its owner wrote.
func (a *attributor) holder(c *claim) holder {
	h := c.holder
	if c.namespace == "" {
		return h
	}
	for _, r := range a.cfg.Attribution.Rules {
		if c.labelsUnknown && len(r.Labels) > 0 && (r.Namespace == "" || r.Namespace == c.namespace) {
			break // unknown whether this rule matches
		}
		if r.matches(c) {
			h.deployment = r.fill(r.Deployment, c)
			if c.job {
				h.workspace = r.fill(r.Workspace, c)
			}
			break
		}
	}
	if c.job && h.workspace == "" {
		h.workspace = a.cfg.Attribution.Unmapped
	}
	return h
}

func (r *RuleConfig) matches(c *claim) bool {
	if r.Namespace != "" && r.Namespace != c.namespace {
		return false
	}
	for key, want := range r.Labels {
		if have, ok := c.labels[key]; !ok || want != "*" && want != have {
			return false
		}
	}
	return true
}

// fill replaces the placeholders in a rule's text by values of the claim.
func (r *RuleConfig) fill(text string, c *claim) string {
	text = strings.ReplaceAll(text, "{namespace}", c.namespace)
	for {
		before, rest, ok := strings.Cut(text, "{label:")
		key, after, closed := strings.Cut(rest, "}")
		if !ok || !closed {
			return text
		}
		text = before + strings.NewReplacer("{", "(", "}", ")").Replace(c.labels[key]) + after
	}
}

// pods asks the kubelet, and Kubernetes for labels. While Kubernetes does not answer, pods keep
// their previous labels. A pod whose labels were never read gets no deployment from a rule with
// labels, nor from a later rule.
func (a *attributor) pods(ctx context.Context, now time.Time) (claims []claim, shares map[place]uint32, unknown int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	held, err := a.kubelet.List(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	shares = map[place]uint32{}
	all, err := a.kubelet.Allocatable(ctx)
	if err != nil && !errors.Is(err, podresources.ErrUnsupported) {
		return nil, nil, 0, err
	}
	for _, id := range all {
		d, err := podresources.ParseDevice(id)
		if err != nil || d.Replica == 0 {
			continue
		}
		p := placeOf(&d)
		p.replica = 0
		shares[p] = max(shares[p], d.Replica)
	}
	err = nil
	if a.labels != nil && len(held) > 0 {
		err = a.relabel(ctx, held, now)
	}
	claims = []claim{}
	for _, h := range held {
		d, perr := podresources.ParseDevice(h.ID)
		if perr != nil {
			unknown++
			if err == nil {
				err = fmt.Errorf("pod %s/%s holds %s: %w", h.Namespace, h.Pod, h.Resource, perr)
			}
			continue
		}
		labels, read := a.labelled[podresources.PodName{Namespace: h.Namespace, Pod: h.Pod}]
		claims = append(claims, claim{
			place: placeOf(&d), namespace: h.Namespace, labels: labels, labelsUnknown: a.labels != nil && !read,
			holder: holder{unit: h.Namespace + "/" + h.Pod},
		})
	}
	slices.SortStableFunc(claims, func(x, y claim) int { return strings.Compare(x.holder.unit, y.holder.unit) })
	return claims, shares, unknown, err
}

// relabel reads the labels of pods. A pod that ended meanwhile keeps its previous labels.
func (a *attributor) relabel(ctx context.Context, held []podresources.Held, now time.Time) error {
	labels, err := a.labels.Pods(ctx)
	switch {
	case err == nil:
		for _, h := range held {
			name := podresources.PodName{Namespace: h.Namespace, Pod: h.Pod}
			if _, ok := labels[name]; !ok && a.labelled[name] != nil {
				labels[name] = a.labelled[name]
			}
		}
		a.labelled, a.labelledAt = labels, now
	case now.Sub(a.labelledAt) > staleAfter:
		a.labelled = nil
	}
	return err
}

func placeOf(d *podresources.Device) place {
	return place{
		id:       d.UUID,
		index:    d.Index,
		minor:    d.Minor,
		instance: d.GPUInstance,
		compute:  d.ComputeInstance,
		mig:      d.MIG,
		within:   d.Within,
		replica:  d.Replica,
	}
}

// jobs asks for Slurm's jobs.
func jobs(s SlurmConfig) (claims []claim, err error) {
	var found []slurm.Holding
	var errs []error
	if s.JobDir != "" {
		h, err := slurm.Directory(s.JobDir)
		found, errs = append(found, h...), append(errs, err)
	}
	if s.Processes {
		h, refused, err := slurm.Processes("/proc")
		found, errs = append(found, h...), append(errs, err)
		if refused > 0 {
			errs = append(errs, fmt.Errorf("%d processes of jobs may not be inspected; "+
				"give this program CAP_SYS_PTRACE, or use job_dir", refused))
		}
	}
	claims = []claim{}
	for _, h := range found {
		claims = append(claims, claim{
			place:     place{id: h.GPU.UUID, index: h.GPU.Index, minor: h.GPU.Minor, instance: h.GPU.GPUInstance, mig: h.GPU.MIG},
			namespace: slurmNamespace, job: true, labels: h.Job.Labels, holder: holder{unit: "job/" + h.Job.ID},
		})
	}
	return claims, errors.Join(errs...)
}

// staticFile is the static file of holders. It is read again when it changes.
type staticFile struct {
	path   string
	at     time.Time
	size   int64
	claims []claim
	err    error
}

const maxStatic = 1 << 20

func (f *staticFile) read() ([]claim, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		f.at = time.Time{}
		return nil, fmt.Errorf("read the static file: %w", err)
	}
	if f.at.Equal(info.ModTime()) && f.size == info.Size() {
		return f.claims, f.err
	}
	b, err := configfile.Small(f.path, maxStatic)
	if err != nil {
		return nil, fmt.Errorf("read the static file: %w", err)
	}
	f.claims, f.err = parseStatic(string(b))
	if f.err != nil {
		f.err = fmt.Errorf("read the static file: %s: %w", f.path, f.err)
	}
	f.at, f.size = info.ModTime(), info.Size()
	return f.claims, f.err
}

// parseStatic parses lines of a device (its UUID, its index, or * for the whole node), a workspace,
// and optionally a deployment and a unit. A - stands for none. # begins a comment. The error joins
// the errors of bad lines; the claims are those of the good lines.
func parseStatic(text string) (claims []claim, err error) {
	claims = []claim{}
	var errs []error
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, maxStatic)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		c := claim{}
		d, err := podresources.ParseDevice(words[0])
		switch {
		case words[0] == "*":
			c.place.index = anyDevice
		case err != nil:
			errs = append(errs, fmt.Errorf("line %d: %w", n, err))
			continue
		default:
			c.place = placeOf(&d)
		}
		if len(words) < 2 || len(words) > 4 {
			errs = append(errs, fmt.Errorf("line %d: %d words, want DEVICE WORKSPACE [DEPLOYMENT [UNIT]]", n, len(words)))
			continue
		}
		for i, to := range []*string{&c.holder.workspace, &c.holder.deployment, &c.holder.unit} {
			if i+1 < len(words) && words[i+1] != "-" {
				*to = words[i+1]
			}
		}
		if c.holder.workspace == "" || printable(c.holder.workspace, 256) != c.holder.workspace {
			errs = append(errs, fmt.Errorf("line %d: no workspace", n))
			continue
		}
		claims = append(claims, c)
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, err)
	}
	// Claims to a single device come before claims to all devices.
	slices.SortStableFunc(claims, func(a, b claim) int {
		return boolInt(a.place.index == anyDevice) - boolInt(b.place.index == anyDevice)
	})
	return claims, errors.Join(errs...)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
