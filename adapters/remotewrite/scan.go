package remotewrite

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"quartermaster/adapters/admission"
	"quartermaster/domain"
)

// scan processes the series of one request. It holds one series at a time, and the readings that
// become events.
type scan struct {
	cluster *cluster
	cfg     *Config
	step    time.Duration
	now     int64 // milliseconds since 1970
	account *account
	why     [reasonCount]int
	// examples are a few series for each reason.
	examples [reasonCount][]string
	refused  error // the first error
	made     int   // number of events
	taken    int   // number of samples
	request  *admission.Request
	room     int   // memory that was taken from request and not spent yet
	full     error // set when the memory is exhausted

	// The current series.
	values     [keyCount][]byte
	given      uint64 // bit set of the keys that it has
	labels     int
	others     []label // labels that are not read, to find duplicates
	metric     int32
	samples    []sample
	exemplars  int
	histograms int
	problem    error
	long       bool // a label that is read is longer than maxText

	gpus    gpuScan
	servers serverScan
	facts   []factSample
	faults  []faultSample
	holders map[string]holder
	text    []byte
}

const (
	oldest = 7 * 24 * 3_600_000 // milliseconds before now
	newest = 10 * 60_000        // milliseconds after now

	maxLabels = 256
	maxText   = 256
)

func (s *scan) begin() {
	for given := s.given; given != 0; given &= given - 1 {
		s.values[bitOf(given)] = nil
	}
	s.given, s.labels, s.metric, s.problem, s.long = 0, 0, 0, nil, false
	s.samples, s.others = s.samples[:0], s.others[:0]
	s.exemplars, s.histograms = 0, 0
}

func bitOf(set uint64) int {
	n := 0
	for set&1 == 0 {
		set >>= 1
		n++
	}
	return n
}

// Memory costs in bytes, including side allocations and the resulting events. They are upper
// bounds, except for memory that is freed at once.
const (
	perSample = 128
	perTarget = 512
	perEntry  = 256
	perEvent  = 1024
	perSymbol = 96

	spendAtOnce = 256 << 10
)

// spend counts n bytes of memory. If there is no more, s.full has the reason, and the request ends
// with the current series.
func (s *scan) spend(n int) {
	if s.room -= n; s.room >= 0 || s.full != nil {
		return
	}
	more := max(-s.room, spendAtOnce)
	s.full = s.request.Take(int64(more))
	s.room += more
}

// sample adds a sample to the series.
func (s *scan) sample(msg []byte) error {
	x, err := readSample(msg)
	s.samples = append(s.samples, x)
	s.spend(perSample)
	return cmp.Or(err, s.full)
}

// label is a name with its hash, which is compared first. valid says whether it is UTF-8. Both are
// computed once for a symbol that many series refer to.
type label struct {
	name  []byte
	hash  uint64
	valid bool
}

// label adds a label to the series.
func (s *scan) label(key labelKey, name label, value []byte, valid bool) {
	s.labels++
	switch {
	case s.labels > maxLabels:
		s.broken("a series has more than %d labels", maxLabels)
		return
	case len(name.name) == 0:
		s.broken("a label has no name")
		return
	case !name.valid || !valid:
		s.broken("a label is not UTF-8")
		return
	case key == keyOther:
		for _, o := range s.others {
			if o.hash == name.hash && string(o.name) == string(name.name) {
				s.broken("label %.64q occurs twice", name.name)
				return
			}
		}
		s.others = append(s.others, name)
		return
	case key == keyName && s.given>>keyName&1 != 0:
		s.broken("label __name__ occurs twice")
		return
	}
	s.long = s.long || key != keyName && len(value) > maxText
	// Of several spellings the first that is not empty counts.
	if len(s.values[key]) == 0 {
		s.values[key] = value
	}
	s.given |= 1 << key
}

// end processes the series that was read.
func (s *scan) end() {
	n := len(s.samples)
	s.taken += n
	if s.problem == nil && (s.given>>keyName&1 == 0 || len(s.values[keyName]) == 0) {
		s.problem = errors.New("a series has no name (label __name__)")
	}
	if s.problem != nil {
		if s.refused == nil {
			s.refused = s.problem
		}
		s.drop(badSeries, n)
		s.account.badHistograms += s.histograms
		s.account.badExemplars += s.exemplars
		return
	}
	s.account.histograms += s.histograms
	s.account.exemplars += s.exemplars
	if n == 0 {
		return
	}
	if s.metric == notKept {
		s.account.samples[filtered] += n
		s.why[otherMetric] += n
		return
	}
	if s.long {
		s.drop(badLabel, n)
		return
	}
	if named := s.values[keyCluster]; len(named) > 0 && string(named) != s.cluster.name {
		s.drop(otherCluster, n)
		return
	}
	m := &catalogue[s.metric]
	switch m.family {
	case familyGPU:
		s.gpu(m)
	case familyReplicas, familyNodes:
		s.fact(m)
	case familyFaults:
		s.fault(m)
	default:
		s.server(m)
	}
}

// drop accounts for samples that are in no event.
func (s *scan) drop(why reason, n int) {
	if n == 0 {
		return
	}
	s.account.samples[reasons[why].fate] += n
	s.why[why] += n
	if reasons[why].fate != filtered && len(s.examples[why]) < maxExamples {
		s.examples[why] = append(s.examples[why], s.show())
	}
}

// show formats the series for people, cut at some length.
func (s *scan) show() string {
	var b strings.Builder
	b.WriteString(strings.ToValidUTF8(string(s.values[keyName]), "?"))
	b.WriteByte('{')
	for _, k := range [...]labelKey{
		keyCluster, keyUUID, keyInstanceID, keyHostname, keyNode, keyExportedPod, keyPod,
		keyNamespace, keyInstance, keyModel, keyLe,
	} {
		if s.given>>k&1 != 0 {
			value := string(s.values[k][:min(len(s.values[k]), 64)])
			b.WriteString(keyLabels[k] + "=" + strconv.Quote(strings.ToValidUTF8(value, "?")) + " ")
		}
	}
	shown := strings.TrimSuffix(b.String(), " ") + "}"
	return strings.ToValidUTF8(shown[:min(len(shown), 400)], "")
}

var keyLabels = [keyCount]string{
	keyCluster: "cluster", keyUUID: "UUID", keyInstanceID: "GPU_I_ID", keyHostname: "Hostname", keyNode: "node",
	keyExportedPod: "exported_pod", keyPod: "pod", keyNamespace: "namespace", keyInstance: "instance",
	keyModel: "model_name", keyLe: "le",
}

// reading converts a value to the whole number that events hold.
func (m *metric) reading(v float64) (uint64, bool) {
	x := math.Round(v * m.scale)
	if m.family == familyFaults && x != v {
		return 0, false // codes, counts and states have no fractions
	}
	// Exporters compute shares, which may slightly exceed one.
	if m.most == 1000 && x > m.most && x <= m.most*1.01 {
		x = m.most
	}
	if !(x >= 0 && x <= m.most) {
		return 0, false
	}
	return uint64(x), true
}

// staleNaN is the value by which Prometheus marks the end of a series.
const staleNaN = 0x7ff0000000000002

// usable reports whether a sample may be mapped, and accounts for it if not.
func (s *scan) usable(x sample, m *metric) (uint64, bool) {
	switch {
	case x.time < s.now-oldest:
		s.refuseSample(tooOld, "a sample of %s is older than seven days", x)
	case x.time > s.now+newest:
		s.refuseSample(inFuture, "a sample is dated %s, more than ten minutes ahead", x)
	case math.Float64bits(x.value) == staleNaN:
		s.drop(staleMarker, 1)
	default:
		v, ok := m.reading(x.value)
		if !ok {
			s.drop(badValue, 1)
		}
		return v, ok
	}
	return 0, false
}

func (s *scan) refuseSample(why reason, format string, x sample) {
	if s.refused == nil {
		s.problem = nil
		s.broken(format, time.UnixMilli(x.time).UTC().Format(time.RFC3339))
		s.refused = s.problem
	}
	s.drop(why, 1)
}

// first returns the first of several labels that is not empty.
func (s *scan) first(keys ...labelKey) []byte {
	for _, k := range keys {
		if len(s.values[k]) > 0 {
			return s.values[k]
		}
	}
	return nil
}

// plain reports whether a label's value is valid in an event.
func plain(b []byte) bool {
	if len(b) > maxText {
		return false
	}
	for _, c := range b {
		if c < 0x20 || c == 0x7f || c >= 0x80 {
			return plainText(string(b))
		}
	}
	return true
}

func plainText(s string) bool {
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// holder is what a pod belongs to.
type holder struct{ workspace, deployment, unit string }

// holderOf returns the holder of a pod. It has no workspace, because mapping rules assign one when
// usage is read.
func (s *scan) holderOf(namespace, pod []byte) holder {
	h := s.belongs(namespace, pod, true)
	h.workspace = ""
	return h
}

// belongs returns the holder of a pod, or of another object with a name in a namespace, such as a
// deployment. The result's names include the namespace, because two namespaces of a cluster may use
// the same name.
func (s *scan) belongs(namespace, name []byte, pod bool) holder {
	s.text = append(append(append(append(s.text[:0], byte(btoi(pod))), namespace...), 0), name...)
	h, ok := s.holders[string(s.text)]
	if ok {
		return h
	}
	h = holder{deployment: string(name), unit: string(name)}
	if pod {
		h.deployment = Workload(h.unit)
	}
	if len(namespace) > 0 {
		h.deployment, h.unit = string(namespace)+"/"+h.deployment, string(namespace)+"/"+h.unit
	}
	if s.cfg.Holder != nil {
		if workspace, deployment, ok := s.cfg.Holder(s.cluster.name, string(namespace), string(name)); ok {
			h.workspace = workspace
			if deployment != "" {
				h.deployment = deployment
			}
		}
	}
	if s.holders == nil {
		s.holders = map[string]holder{}
	}
	s.holders[string(s.text)] = h
	return h
}

// suffixed are the letters of Kubernetes' random suffixes. There are no vowels, and no letters that
// are easily misread (k8s.io/apimachinery/pkg/util/rand).
const suffixed = "bcdfghjklmnpqrstvwxz2456789"

// Workload returns a pod's name without the parts that its controller added: the hash of a replica
// set and the suffix of a pod, or the ordinal of a stateful set.
func Workload(pod string) string {
	cut := func(name string, least, most int, letters string) (string, bool) {
		i := strings.LastIndexByte(name, '-')
		if i <= 0 || len(name)-i-1 < least || len(name)-i-1 > most || strings.Trim(name[i+1:], letters) != "" {
			return name, false
		}
		return name[:i], true
	}
	if name, ok := cut(pod, 5, 5, suffixed); ok {
		// The hash of a replica set has eight to ten letters.
		if whole, ok := cut(name, 8, 10, suffixed); ok {
			return whole
		}
		return name
	}
	name, _ := cut(pod, 1, 5, "0123456789")
	return name
}

// events makes the events of the request. The caller MUST call stated once they are in the log.
func (s *scan) events() (events []domain.Envelope, stated func()) {
	events = s.samplesOfNodes(nil)
	events = s.samplesOfServers(events)
	events, facts := s.statements(events)
	events, noted := s.faultsOfGPUs(events)
	events = slices.DeleteFunc(events, func(e domain.Envelope) bool {
		err := domain.Validate(&e)
		if err != nil {
			s.setAsideEvent(&e, err)
		}
		return err != nil
	})
	s.made = len(events)
	return events, func() { facts(); noted() }
}

// setAsideEvent sets the samples of an event aside that is not valid or that the log refuses.
func (s *scan) setAsideEvent(e *domain.Envelope, err error) {
	n := 1
	switch ev := e.Event.(type) {
	case *domain.NodeSampled:
		n = 0
		for _, column := range [][]uint32{
			ev.ActivityMean, ev.TensorActive, ev.DRAMActive, ev.MemoryUsedMiB,
			ev.PowerWatts, ev.TemperatureC, ev.SMClockMHz,
		} {
			for _, v := range column {
				n += min(int(v), 1)
			}
		}
	case *domain.MetricsObserved:
		n = len(ev.Value)
	}
	n = min(n, s.account.samples[mapped])
	s.account.samples[mapped] -= n
	s.account.samples[setAside] += n
	s.why[notValid] += n
	if len(s.examples[notValid]) < maxExamples {
		text := strings.ToValidUTF8(err.Error(), "?")
		s.examples[notValid] = append(s.examples[notValid], strings.ToValidUTF8(text[:min(len(text), 400)], ""))
	}
}

// hash is FNV-1a. It identifies series. A collision only affects the sender's own series, so it
// need not be secure.
type hash uint64

func (h hash) add(b []byte) hash {
	for _, c := range b {
		h = (h ^ hash(c)) * 1099511628211
	}
	return (h ^ 0xff) * 1099511628211 // a byte that no valid text contains
}

const newHash hash = 14695981039346656037
