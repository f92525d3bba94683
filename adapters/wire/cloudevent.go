package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	"quartermaster/domain"
)

// cloudEvent is an event in CloudEvents 1.0 JSON, structured mode. Numbers that may exceed 2^53 are
// strings, because CloudEvents asks for that and other languages lose precision. Empty keys are
// absent.
type cloudEvent struct {
	SpecVersion         string         `json:"specversion"`
	ID                  string         `json:"id"`
	Source              string         `json:"source"`
	Type                string         `json:"type"` // quartermaster.<Type>.v1
	Time                domain.Instant `json:"time"`
	Subject             string         `json:"subject,omitempty"`
	DataContentType     string         `json:"datacontenttype"`
	Workspace           string         `json:"workspace,omitempty"`
	Cluster             string         `json:"cluster,omitempty"`
	Incarnation         string         `json:"incarnation"`
	Sequence            string         `json:"sequence"`
	PreviousIncarnation string         `json:"previousincarnation,omitempty"`
	PreviousSequence    string         `json:"previoussequence,omitempty"`
	Line                string         `json:"line,omitempty"`
	RecordedTime        string         `json:"recordedtime,omitempty"`
	Cites               string         `json:"cites,omitempty"`
	Operator            string         `json:"operator,omitempty"`
	OperatorKey         string         `json:"operatorkey,omitempty"` // base64
	Signature           string         `json:"signature,omitempty"`   // base64
	Data                any            `json:"data"`
}

// CloudEvent returns an event as one line of CloudEvents 1.0 JSON, for people and programs that
// read the log from outside. The keys are those of the specification and, in lower case, the
// extensions that the package comment lists. data is the event with the keys of its struct in
// package domain. GPU ids and references of NodeSampled are written out. It cannot be turned back
// into the same record: only the bytes in the log count, and signatures cover them.
// [ReadCloudEvent] makes a new event of it.
func CloudEvent(env *domain.Envelope) ([]byte, error) {
	if env.Event == nil {
		return nil, fmt.Errorf("show event: %w: it holds no event", domain.ErrIncomplete)
	}
	id, err := ID(env)
	if err != nil {
		return nil, fmt.Errorf("show %s: %w", env.Event.Type(), err)
	}
	e := cloudEvent{
		SpecVersion:         specVersion,
		ID:                  id,
		Source:              env.Source,
		Type:                typeName(env.Event.Type()),
		Time:                env.Time,
		Subject:             env.Subject,
		DataContentType:     "application/json",
		Workspace:           env.Workspace,
		Cluster:             env.Cluster,
		Incarnation:         strconv.FormatUint(env.Incarnation, 10),
		Sequence:            strconv.FormatUint(env.Sequence, 10),
		PreviousIncarnation: number(env.PreviousIncarnation),
		PreviousSequence:    number(env.PreviousSequence),
		Line:                number(env.Line),
		RecordedTime:        env.Recorded.String(),
		Cites:               env.Cites,
		Data:                env.Event,
	}
	if s := env.Signature; s != nil {
		e.Operator = s.Operator
		e.OperatorKey = base64.StdEncoding.EncodeToString(s.Key)
		e.Signature = base64.StdEncoding.EncodeToString(s.Bytes)
	}
	if s, ok := env.Event.(*domain.NodeSampled); ok {
		if err := domain.Validate(env); err != nil {
			return nil, fmt.Errorf("show %s: %w", env.Event.Type(), err)
		}
		e.Data = showSample(s)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("show %s: %w", env.Event.Type(), err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// sampleView is the JSON form of NodeSampled: an object per entry instead of an array per metric. A
// metric that was not read, or was blank, is absent.
type sampleView struct {
	Node          string          `json:"node"`
	Interval      domain.Interval `json:"interval"`
	ActivityField uint32          `json:"activity_field,omitempty"` // DCGM field
	SkewNanos     uint64          `json:"skew_nanos,omitempty"`
	Unknown       bool            `json:"holders_unknown,omitempty"`
	Entries       []entryView     `json:"entries"`
	Idle          []holderView    `json:"unreferenced_holders,omitempty"`
}

type entryView struct {
	UUID     domain.GPUID      `json:"uuid"`
	Parent   domain.GPUID      `json:"parent,omitzero"` // physical GPU of an instance
	Profile  string            `json:"profile,omitempty"`
	Model    string            `json:"model,omitempty"` // of the physical GPU
	Replica  uint32            `json:"replica,omitempty"`
	Holder   *holderView       `json:"holder,omitempty"`
	Activity *activityView     `json:"activity_permille,omitempty"`
	Tensor   *uint32           `json:"tensor_active_permille,omitempty"`
	DRAM     *uint32           `json:"dram_active_permille,omitempty"`
	Memory   *uint32           `json:"memory_used_mib,omitempty"`
	Power    *uint32           `json:"power_watts,omitempty"`
	Heat     *uint32           `json:"temperature_c,omitempty"`
	SMClock  *uint32           `json:"sm_clock_mhz,omitempty"`
	Other    map[uint32]uint64 `json:"other,omitempty"` // by DCGM field
}

type activityView struct {
	Mean *uint32 `json:"mean,omitempty"`
	Min  *uint32 `json:"min,omitempty"`
	Max  *uint32 `json:"max,omitempty"`
}

type holderView struct {
	Workspace  string `json:"workspace,omitempty"`
	Deployment string `json:"deployment,omitempty"`
	Unit       string `json:"unit,omitempty"` // pod or job
}

// showSample converts a sample that domain.Validate has accepted.
func showSample(s *domain.NodeSampled) sampleView {
	holder := func(i int) holderView {
		return holderView{s.Text(s.HolderWorkspace, i), s.Text(s.HolderDeployment, i), s.Text(s.HolderUnit, i)}
	}
	held := make([]bool, len(s.HolderWorkspace))
	v := sampleView{
		Node: s.Node, Interval: s.Interval, ActivityField: s.ActivityField, SkewNanos: s.SkewNanos, Unknown: s.HoldersUnknown,
		Entries: make([]entryView, s.Entries()),
	}
	for i := range v.Entries {
		e := &v.Entries[i]
		e.UUID = domain.GPUID(s.IDs[16*i : 16*i+16])
		if p := at(s.Parent, i); p > 0 {
			e.Parent = domain.GPUID(s.Parents[16*(p-1) : 16*p])
		}
		e.Profile, e.Model, e.Replica = s.Text(s.Profile, i), s.Text(s.Model, i), at(s.Replica, i)
		if h := at(s.Holder, i); h > 0 {
			held[h-1] = true
			hv := holder(int(h - 1))
			e.Holder = &hv
		}
		a := activityView{metric(s.ActivityMean, i), metric(s.ActivityMin, i), metric(s.ActivityMax, i)}
		if a != (activityView{}) {
			e.Activity = &a
		}
		e.Tensor, e.DRAM = metric(s.TensorActive, i), metric(s.DRAMActive, i)
		e.Memory, e.Power = metric(s.MemoryUsedMiB, i), metric(s.PowerWatts, i)
		e.Heat, e.SMClock = metric(s.TemperatureC, i), metric(s.SMClockMHz, i)
	}
	for i, n := range s.OtherEntry {
		e := &v.Entries[n]
		if e.Other == nil {
			e.Other = map[uint32]uint64{}
		}
		e.Other[s.OtherField[i]] = s.OtherValue[i]
	}
	for i, h := range held {
		if !h {
			v.Idle = append(v.Idle, holder(i))
		}
	}
	return v
}

func at(vs []uint32, i int) uint32 {
	if len(vs) == 0 {
		return 0
	}
	return vs[i]
}

// metric returns the measured value, or nil if there is none.
func metric(vs []uint32, i int) *uint32 {
	v := at(vs, i)
	if v == 0 {
		return nil
	}
	v--
	return &v
}
