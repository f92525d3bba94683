package dcgm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"quartermaster/domain"
	framesv1 "quartermaster/schemas/frames/v1"
)

// MaxFrame is the size of the largest frame, in bytes. Sixteen GPUs with seven MIG devices
// each and forty fields per device take a hundredth of it.
const MaxFrame = 4 << 20

// Writer writes frames. It is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex
	w    io.Writer
	next uint64
	buf  []byte
}

// NewWriter returns a Writer whose first frame has sequence 1.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, next: 1} }

// Write sets the frame's sequence number and writes the frame with one call of the underlying
// writer. After an error the caller MUST NOT write again: the frame may be torn.
func (w *Writer) Write(f Frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.Sequence = w.next
	m := encode(f)
	size := m.SizeVT()
	if size > MaxFrame {
		return fmt.Errorf("frame %d has %d bytes, more than the %d allowed", f.Sequence, size, MaxFrame)
	}
	w.buf = binary.AppendUvarint(w.buf[:0], uint64(size))
	head := len(w.buf)
	if cap(w.buf) < head+size {
		w.buf = append(make([]byte, 0, head+size+size/4), w.buf...)
	}
	w.buf = w.buf[:head+size]
	if _, err := m.MarshalToSizedBufferVT(w.buf[head:]); err != nil {
		return fmt.Errorf("encode frame %d: %v", f.Sequence, err)
	}
	w.next++
	_, err := w.w.Write(w.buf)
	return err
}

// Reader reads frames.
type Reader struct {
	r    *bufio.Reader
	want uint64
	buf  []byte
	met  bool
	// The latest inventory.
	generation uint32
	devices    int
}

// NewReader returns a Reader for one run of a collector.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10), want: 1} }

// Next returns the next frame. The caller may keep it. Every device index in it is valid in
// the latest inventory.
//
// Next returns [io.EOF] after the last frame, and wraps [io.ErrUnexpectedEOF] if the last frame
// is torn. Any other error means that the input is not from a collector of this version. The
// caller MUST NOT read on.
func (r *Reader) Next() (Frame, error) {
	size, err := binary.ReadUvarint(r.r)
	switch {
	case errors.Is(err, io.EOF):
		return Frame{}, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Frame{}, fmt.Errorf("read frame %d: its length is torn: %w", r.want, io.ErrUnexpectedEOF)
	case err != nil:
		return Frame{}, fmt.Errorf("read length of frame %d: %w", r.want, err)
	case size > MaxFrame:
		return Frame{}, fmt.Errorf(
			"read frame %d: its length of %d bytes exceeds the limit of %d: this is not the output of a collector",
			r.want, size, MaxFrame,
		)
	}
	if uint64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	b := r.buf[:size]
	if n, err := io.ReadFull(r.r, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return Frame{}, fmt.Errorf("read frame %d: torn after %d of %d bytes: %w", r.want, n, size, io.ErrUnexpectedEOF)
		}
		return Frame{}, fmt.Errorf("read frame %d: %w", r.want, err)
	}
	var m framesv1.Frame
	if err := m.UnmarshalVT(b); err != nil {
		return Frame{}, fmt.Errorf("decode frame %d: %v", r.want, err)
	}
	f, err := decode(&m)
	if err != nil {
		return Frame{}, fmt.Errorf("decode frame %d: %v", r.want, err)
	}
	if f.Sequence != r.want {
		return Frame{}, fmt.Errorf("read frame %d: got sequence number %d", r.want, f.Sequence)
	}
	switch f.Body.(type) {
	case *Inventory, *Readings, *Events:
		if !r.met {
			return Frame{}, fmt.Errorf("read frame %d: a %T before the hello", f.Sequence, f.Body)
		}
	}
	switch b := f.Body.(type) {
	case *Hello:
		if b.Version != Version {
			return Frame{}, fmt.Errorf(
				"the collector writes frames of version %d, this program reads version %d: install both from one release",
				b.Version, Version,
			)
		}
		if r.met {
			return Frame{}, fmt.Errorf("read frame %d: a second hello", f.Sequence)
		}
		r.met = true
		r.generation, r.devices = b.Inventory.Generation, len(b.Inventory.Devices)
	case *Inventory:
		if b.Generation != r.generation+1 {
			return Frame{}, fmt.Errorf("read frame %d: inventory %d after inventory %d", f.Sequence, b.Generation, r.generation)
		}
		r.generation, r.devices = b.Generation, len(b.Devices)
	case *Readings:
		for _, v := range b.Readings {
			if int64(v.Device) >= int64(r.devices) || b.Generation != r.generation {
				return Frame{}, fmt.Errorf("read frame %d: a reading of device %d of inventory %d, and inventory %d has %d devices",
					f.Sequence, v.Device, b.Generation, r.generation, r.devices)
			}
		}
	case *Events:
		for _, v := range b.Events {
			if int64(v.Device) > int64(r.devices) || b.Generation != r.generation {
				return Frame{}, fmt.Errorf("read frame %d: an event of device %d of inventory %d, and inventory %d has %d devices",
					f.Sequence, int64(v.Device)-1, b.Generation, r.generation, r.devices)
			}
		}
	}
	r.want++
	return f, nil
}

func encode(f Frame) *framesv1.Frame {
	m := &framesv1.Frame{Sequence: f.Sequence, At: int64(f.At), Boot: int64(f.Boot)}
	switch b := f.Body.(type) {
	case *Hello:
		h := &framesv1.Hello{Version: b.Version, Program: b.Program, Library: b.Library, Driver: b.Driver,
			Hostname: b.Hostname, BootId: b.BootID, Engine: b.Engine, Inventory: encodeInventory(&b.Inventory)}
		for _, g := range b.Groups {
			h.Groups = append(h.Groups, &framesv1.Group{Name: g.Name, Fields: g.Fields, Works: g.Works, Reason: g.Reason,
				Code: g.Code, EveryMillis: uint32(g.Every.Milliseconds())})
		}
		m.Body = &framesv1.Frame_Hello{Hello: h}
	case *Heartbeat:
		m.Body = &framesv1.Frame_Heartbeat{Heartbeat: &framesv1.Heartbeat{
			Call:      b.Call,
			CallNanos: int64(b.Waiting),
			Answered:  b.Answered,
		}}
	case *Inventory:
		m.Body = &framesv1.Frame_Inventory{Inventory: encodeInventory(b)}
	case *Readings:
		all := make([]framesv1.Reading, len(b.Readings))
		rs := make([]*framesv1.Reading, len(b.Readings))
		for i, r := range b.Readings {
			rs[i] = &all[i]
			rs[i].Device, rs[i].Field, rs[i].Status, rs[i].Value = r.Device, r.Field, framesv1.Status(r.Status), r.Value
		}
		m.Body = &framesv1.Frame_Readings{Readings: &framesv1.Readings{Generation: b.Generation, Readings: rs}}
	case *Events:
		e := &framesv1.Events{Generation: b.Generation, Cursor: b.Cursor}
		for _, v := range b.Events {
			e.Events = append(e.Events, &framesv1.Event{
				Kind:     framesv1.Kind(v.Kind),
				Device:   v.Device,
				Uuid:     encodeID(v.UUID),
				Code:     v.Code,
				Field:    v.Field,
				Count:    v.Count,
				Total:    v.Total,
				At:       int64(v.At),
				Found:    v.Found,
				Over:     v.Over,
				Failed:   v.Failed,
				System:   v.System,
				Detail:   v.Detail,
				Recovery: v.Recovery,
			})
		}
		m.Body = &framesv1.Frame_Events{Events: e}
	case *Trouble:
		m.Body = &framesv1.Frame_Trouble{Trouble: &framesv1.Trouble{
			Code:     b.Code,
			Text:     b.Text,
			Returned: b.Returned,
			Fatal:    b.Fatal,
			Group:    b.Group,
		}}
	}
	return m
}

func encodeID(id domain.GPUID) []byte {
	if id == (domain.GPUID{}) {
		return nil
	}
	return id[:]
}

func encodeInventory(v *Inventory) *framesv1.Inventory {
	m := &framesv1.Inventory{Generation: v.Generation, Reason: v.Reason}
	for _, d := range v.Devices {
		m.Devices = append(m.Devices, &framesv1.Device{
			Uuid:            encodeID(d.UUID),
			Gpu:             d.GPU,
			Minor:           d.Minor,
			Parent:          d.Parent,
			Model:           d.Model,
			Serial:          d.Serial,
			Pci:             d.PCI,
			MemoryMib:       d.MemoryMiB,
			Mig:             d.MIG,
			Lost:            d.Lost,
			Profile:         d.Profile,
			GpuInstance:     d.GPUInstance,
			ComputeInstance: d.ComputeInstance,
			Slices:          d.Slices,
			Shared:          d.Shared,
		})
	}
	return m
}

func decode(m *framesv1.Frame) (Frame, error) {
	f := Frame{Sequence: m.Sequence, At: domain.Instant(m.At), Boot: time.Duration(m.Boot)}
	var err error
	switch b := m.Body.(type) {
	case *framesv1.Frame_Hello:
		f.Body, err = decodeHello(b.Hello)
	case *framesv1.Frame_Heartbeat:
		f.Body = &Heartbeat{
			Call:     b.Heartbeat.GetCall(),
			Waiting:  time.Duration(b.Heartbeat.GetCallNanos()),
			Answered: b.Heartbeat.GetAnswered(),
		}
	case *framesv1.Frame_Inventory:
		var v Inventory
		v, err = decodeInventory(b.Inventory)
		f.Body = &v
	case *framesv1.Frame_Readings:
		f.Body, err = decodeReadings(b.Readings)
	case *framesv1.Frame_Events:
		f.Body, err = decodeEvents(b.Events)
	case *framesv1.Frame_Trouble:
		t := b.Trouble
		if t.GetCode() == "" {
			return f, errors.New("a trouble without a code")
		}
		f.Body = &Trouble{Code: t.Code, Text: t.Text, Returned: t.Returned, Fatal: t.Fatal, Group: t.Group}
	default:
		return f, errors.New("its body is of a kind that this version does not know")
	}
	return f, err
}

func decodeHello(m *framesv1.Hello) (*Hello, error) {
	h := &Hello{Version: m.GetVersion(), Program: m.GetProgram(), Library: m.GetLibrary(), Driver: m.GetDriver(),
		Hostname: m.GetHostname(), BootID: m.GetBootId(), Engine: m.GetEngine()}
	if h.Version != Version {
		return h, nil // Reader.Next refuses it, so do not decode the rest
	}
	for _, g := range m.GetGroups() {
		h.Groups = append(h.Groups, Group{Name: g.GetName(), Fields: g.GetFields(), Works: g.GetWorks(), Reason: g.GetReason(),
			Code: g.GetCode(), Every: time.Duration(g.GetEveryMillis()) * time.Millisecond})
	}
	var err error
	h.Inventory, err = decodeInventory(m.GetInventory())
	return h, err
}

func decodeID(b []byte) (id domain.GPUID, err error) {
	if len(b) != 0 && len(b) != len(id) {
		return id, fmt.Errorf("a UUID has %d bytes", len(b))
	}
	copy(id[:], b)
	return id, nil
}

func decodeInventory(m *framesv1.Inventory) (Inventory, error) {
	v := Inventory{Generation: m.GetGeneration(), Reason: m.GetReason()}
	if v.Generation == 0 {
		return v, errors.New("an inventory without a generation")
	}
	for i, d := range m.GetDevices() {
		id, err := decodeID(d.GetUuid())
		if err != nil {
			return v, fmt.Errorf("device %d: %v", i, err)
		}
		// A MIG device follows its GPU, and the GPU is not a MIG device.
		if p := int(d.GetParent()); p > i || p > 0 && v.Devices[p-1].Parent != 0 {
			return v, fmt.Errorf("device %d: its GPU is given as device %d", i, p-1)
		}
		v.Devices = append(v.Devices, Device{
			UUID:            id,
			GPU:             d.GetGpu(),
			Minor:           d.GetMinor(),
			Parent:          d.GetParent(),
			Model:           d.GetModel(),
			Serial:          d.GetSerial(),
			PCI:             d.GetPci(),
			MemoryMiB:       d.GetMemoryMib(),
			MIG:             d.GetMig(),
			Lost:            d.GetLost(),
			Profile:         d.GetProfile(),
			GPUInstance:     d.GetGpuInstance(),
			ComputeInstance: d.GetComputeInstance(),
			Slices:          d.GetSlices(),
			Shared:          d.GetShared(),
		})
	}
	return v, nil
}

func decodeReadings(m *framesv1.Readings) (*Readings, error) {
	v := &Readings{Generation: m.GetGeneration(), Readings: make([]Reading, 0, len(m.GetReadings()))}
	for i, r := range m.GetReadings() {
		s := Status(r.GetStatus())
		switch {
		case r.GetStatus() < framesv1.Status_STATUS_OK || r.GetStatus() > framesv1.Status_STATUS_FAILED:
			return nil, fmt.Errorf("reading %d: status %d is unknown", i, r.GetStatus())
		case math.IsNaN(r.GetValue()) || math.IsInf(r.GetValue(), 0):
			return nil, fmt.Errorf("reading %d: its value is not a number", i)
		case s != StatusOK && r.GetValue() != 0:
			return nil, fmt.Errorf("reading %d: it is %s and has the value %v", i, s, r.GetValue())
		}
		v.Readings = append(v.Readings, Reading{Device: r.GetDevice(), Field: r.GetField(), Status: s, Value: r.GetValue()})
	}
	return v, nil
}

func decodeEvents(m *framesv1.Events) (*Events, error) {
	v := &Events{Generation: m.GetGeneration(), Cursor: m.GetCursor()}
	for i, e := range m.GetEvents() {
		id, err := decodeID(e.GetUuid())
		if err != nil {
			return nil, fmt.Errorf("event %d: %v", i, err)
		}
		if e.GetKind() < framesv1.Kind_KIND_XID || e.GetKind() > framesv1.Kind_KIND_PAGE_RETIREMENT {
			return nil, fmt.Errorf("event %d: kind %d is unknown", i, e.GetKind())
		}
		if e.GetCount() == 0 {
			return nil, fmt.Errorf("event %d: its count is 0", i)
		}
		v.Events = append(v.Events, Event{
			Kind:     Kind(e.GetKind()),
			Device:   e.GetDevice(),
			UUID:     id,
			Code:     e.GetCode(),
			Field:    e.GetField(),
			Count:    e.GetCount(),
			Total:    e.GetTotal(),
			At:       domain.Instant(e.GetAt()),
			Found:    e.GetFound(),
			Over:     e.GetOver(),
			Failed:   e.GetFailed(),
			System:   e.GetSystem(),
			Detail:   e.GetDetail(),
			Recovery: e.GetRecovery(),
		})
	}
	return v, nil
}
