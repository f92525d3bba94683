package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"quartermaster/adapters/dcgm"
	"quartermaster/adapters/spool"
	"quartermaster/domain"
	"quartermaster/domain/faults"
)

// memory knows which faults were reported already, over all lives of collector and reporter, so
// that repeats of a collector are not counted again. It also knows whether a silence was reported
// and continues.
//
// It is rebuilt from two parts: a file that is written now and then, and the later faults and
// silences in the spool, each with a memo for the memory. So an event and its memo are on disk
// together or not at all. The end of a state that is not an event of its own has no memo, so the
// file is written for it at once.
type memory struct {
	path string
	memoryFile
	known map[occurrence]*recollection
	told  map[moment]bool
	since int                                    // faults since the file was last written
	kept  struct{ incarnation, sequence uint64 } // the last fault in the file
}

// occurrence is a kind of fault on a device.
type occurrence struct {
	UUID  domain.GPUID `json:"uuid"`
	Kind  dcgm.Kind    `json:"kind"`
	Code  uint32       `json:"code"`
	Field uint32       `json:"field"`
}

// recollection is the memory of an occurrence.
type recollection struct {
	Seen   uint64         `json:"seen"`  // how many times it was reported
	Total  uint64         `json:"total"` // value of a counter
	Active bool           `json:"active"`
	Last   domain.Instant `json:"last"`
	Down   downUntil      `json:"down,omitempty"`
}

// downUntil is what ends a fault that took its device out of service.
type downUntil uint8

const (
	notDown       downUntil = iota
	untilReset              // a reset, or a new boot of the node
	untilCleared            // its own end, the driver or a person; a reset does not repair it
	untilReplaced           // its own end, another GPU in its slot, or a person
)

// downOf returns what ends a fault.
func downOf(v faults.Verdict) downUntil {
	if !v.Fatal {
		return notDown
	}
	switch v.Action {
	case faults.ActionResetGPU, faults.ActionResetWhenIdle, faults.ActionDrainAndReset,
		faults.ActionRebootNode, faults.ActionRestartVM,
		faults.ActionRestartFabricManager, faults.ActionResetBus:
		return untilReset
	case faults.ActionReplaceGPU:
		return untilReplaced
	}
	return untilCleared
}

// gpuSlot is a GPU of this node and its last position.
type gpuSlot struct {
	UUID  domain.GPUID `json:"uuid"`
	PCI   string       `json:"pci"`
	Index uint32       `json:"index"`
}

// moment identifies one XID.
type moment struct {
	occurrence
	At domain.Instant `json:"at"`
}

// memoryFile is the content of the file, as JSON.
type memoryFile struct {
	Incarnation uint64         `json:"incarnation"` // of the last fault in the file
	Sequence    uint64         `json:"sequence"`
	Cursor      int64          `json:"cursor"`
	Registered  []byte         `json:"registered,omitempty"` // digest of the last registration
	BootID      string         `json:"boot_id,omitempty"`    // of the node, as last reported by the collector
	GPUs        []domain.GPUID `json:"gpus,omitempty"`       // by index, as last seen
	Slots       []gpuSlot      `json:"slots,omitempty"`      // the GPUs of this node
	Known       []knownEntry   `json:"known"`
	Told        []moment       `json:"told"`
	Measured    domain.Instant `json:"measured"` // end of the last measurement
	Back        []back         `json:"back,omitempty"`
	Silence     silence        `json:"silence"`
	At          domain.Instant `json:"at"`
}

type knownEntry struct {
	occurrence
	recollection
}

const (
	memoryName = "memory.json"
	// rememberFor is how long an inactive fault is remembered.
	rememberFor = 30 * domain.Day
	// maxReportedXIDs bounds the XIDs that are remembered individually. The cursor excludes older
	// ones. A minute of a broken node has a few hundred.
	maxReportedXIDs = 4096
	saveEvery       = 64 // faults
	maxMemory       = 8 << 20
)

// openMemory reads the file, and the memos of later faults in the spool.
func openMemory(dir string, hardware *spool.Queue, log *slog.Logger) (*memory, error) {
	m := &memory{
		path:  filepath.Join(dir, memoryName),
		known: map[occurrence]*recollection{},
		told:  map[moment]bool{},
	}
	b, err := os.ReadFile(m.path)
	if err == nil && len(b) > maxMemory {
		err = fmt.Errorf("is larger than %d MiB", maxMemory>>20)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", m.path, err)
	default:
		sum, text, ok := bytes.Cut(b, []byte("\n"))
		if !ok || string(sum) != checksum(text) || json.Unmarshal(text, &m.memoryFile) != nil {
			log.Error("the file of reported faults is damaged: XIDs are reported from now on, "+
				"and lasting states are reported again", "file", m.path)
			m.memoryFile = memoryFile{}
		}
	}
	for _, k := range m.Known {
		r := k.recollection
		m.known[k.occurrence] = &r
	}
	for _, t := range m.Told {
		m.told[t] = true
	}
	m.kept.incarnation, m.kept.sequence = m.Incarnation, m.Sequence
	err = hardware.Stored(func(e spool.Entry) bool {
		if e.Incarnation < m.Incarnation || e.Incarnation == m.Incarnation && e.Sequence <= m.Sequence {
			return true
		}
		if _, memo, err := unpack(e.Data); err == nil && len(memo) > 0 {
			if s, measured, ok := readSilenceMemo(memo); ok {
				m.Silence, m.Measured = s, measured
			} else if gpu, ok := readMendedMemo(memo); ok {
				m.mended(gpu)
			} else if ev, down, ok := readMemo(memo); ok {
				m.note(ev, down)
			}
		}
		m.Incarnation, m.Sequence = e.Incarnation, e.Sequence
		return true
	})
	return m, err
}

func checksum(b []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func of(e *dcgm.Event) occurrence { return occurrence{e.UUID, e.Kind, e.Code, e.Field} }

// restoreUUIDs gives a GPU without a known UUID, because it fell off the bus, the UUID that had its
// index before. It reports whether the memory changed.
func (m *memory) restoreUUIDs(devices []dcgm.Device) (changed bool) {
	for i := range devices {
		d := &devices[i]
		const mostGPUs = 256
		if d.Parent > 0 || d.GPU >= mostGPUs {
			continue
		}
		for int(d.GPU) >= len(m.GPUs) {
			m.GPUs = append(m.GPUs, domain.GPUID{})
		}
		known := &m.GPUs[d.GPU]
		switch {
		case d.UUID != (domain.GPUID{}):
			changed = changed || *known != d.UUID
			*known = d.UUID
		case !slices.ContainsFunc(devices, func(o dcgm.Device) bool { return o.UUID == *known }):
			d.UUID = *known
		}
	}
	return changed
}

// updateSlots updates the positions of the node's GPUs. It returns the GPUs that were replaced in
// their slots, which no longer belong to this node, and the missing ones. Only a GPU that is new to
// the node replaces another one. The others may have moved, because PCI addresses are renumbered
// when one is missing.
func (m *memory) updateSlots(devices []dcgm.Device) (replaced, missing []gpuSlot, changed bool) {
	if slices.ContainsFunc(devices, func(d dcgm.Device) bool { return d.Parent == 0 && d.UUID == (domain.GPUID{}) }) {
		return nil, nil, false // it may be one of the missing ones
	}
	here := map[domain.GPUID]bool{}
	taken := map[string]bool{} // PCI addresses of GPUs that are new to the node
	for _, d := range devices {
		if d.Parent > 0 {
			continue
		}
		here[d.UUID] = true
		now := gpuSlot{d.UUID, d.PCI, d.GPU}
		i := slices.IndexFunc(m.Slots, func(s gpuSlot) bool { return s.UUID == d.UUID })
		if i < 0 {
			i, m.Slots = len(m.Slots), append(m.Slots, gpuSlot{})
			taken[d.PCI] = true
		}
		changed = changed || m.Slots[i] != now
		m.Slots[i] = now
	}
	m.Slots = slices.DeleteFunc(m.Slots, func(s gpuSlot) bool {
		if here[s.UUID] {
			return false
		}
		if s.PCI != "" && taken[s.PCI] {
			replaced = append(replaced, s)
			return true
		}
		missing = append(missing, s)
		return false
	})
	return replaced, missing, changed || len(replaced) > 0
}

// judge reports whether an event is new, and sets its Count to the number of new faults. seen is
// how many times the same occurrence was reported before.
func (m *memory) judge(e *dcgm.Event) (news bool, seen uint64) {
	r := m.known[of(e)]
	if r == nil {
		r = &recollection{}
	}
	switch {
	case e.Kind == dcgm.KindXID:
		return !m.told[moment{of(e), e.At}], r.Seen
	case e.Over:
		return false, r.Seen
	case e.Found && faults.Lifetime(e.Field):
		if known := m.known[of(e)]; known == nil || e.Total <= r.Total {
			return false, r.Seen
		}
		e.Count = e.Total - r.Total
		return true, r.Seen
	case e.Total > 0 && !faults.Lifetime(e.Field):
		if e.Total == r.Total {
			return false, r.Seen
		}
		if r.Total > 0 {
			e.Count = e.Total // it restarted from 0, with the driver
			if e.Total > r.Total {
				e.Count = e.Total - r.Total
			}
		}
		return true, r.Seen
	case e.Found && r.Active:
		return false, r.Seen
	}
	return true, r.Seen
}

// baseline remembers the first value of a lifetime counter, which is not reported.
func (m *memory) baseline(e *dcgm.Event) {
	if !e.Found || !faults.Lifetime(e.Field) {
		return
	}
	r := m.known[of(e)]
	if r == nil {
		r = &recollection{Active: true}
		m.known[of(e)] = r
		m.since++
	}
	r.Total, r.Last = e.Total, max(r.Last, e.At)
}

// note remembers a reported event, and what ends it if it took the device out of service.
func (m *memory) note(e dcgm.Event, down downUntil) {
	r := m.known[of(&e)]
	if r == nil {
		r = &recollection{}
		m.known[of(&e)] = r
	}
	if e.Kind == dcgm.KindRecovery {
		// The driver requests one action at a time.
		for o, other := range m.known {
			if o.UUID == e.UUID && o.Kind == e.Kind {
				other.Active = false
			}
		}
	}
	r.Seen++
	r.Total = e.Total
	r.Active = e.Kind != dcgm.KindXID
	r.Last = max(r.Last, e.At)
	if down != notDown {
		r.Down = down
		// The device's return to service was not reported in time.
		m.Back = slices.DeleteFunc(m.Back, func(b back) bool { return b.UUID == e.UUID })
	}
	if e.Kind == dcgm.KindXID {
		m.told[moment{of(&e), e.At}] = true
	}
	m.since++
}

// ended records the end of a state, so that the state is new when it comes again. It reports
// whether anything changed.
func (m *memory) ended(e *dcgm.Event) bool {
	r := m.known[of(e)]
	if r == nil || !r.Active {
		return false
	}
	r.Active = false
	return true
}

// back is a device that works again, which is not reported yet.
type back struct {
	UUID   domain.GPUID   `json:"uuid"`
	At     domain.Instant `json:"at"`
	Reason string         `json:"reason"`
}

// over records the end of some faults that took a device out of service, and reports whether there
// were any. When none is left, the device is back.
func (m *memory) over(
	id domain.GPUID,
	at domain.Instant,
	reason string,
	ended func(occurrence, *recollection) bool,
) (some bool) {
	left := false
	last := domain.Instant(0)
	for o, r := range m.known {
		if o.UUID != id || r.Down == notDown {
			continue
		}
		last = max(last, r.Last)
		if ended(o, r) {
			r.Active, r.Down, some = false, notDown, true
		} else {
			left = true
		}
	}
	if some && !left {
		if at <= last && last < at+domain.Day { // the clock was set back
			at = last + 1
		}
		m.Back = append(m.Back, back{id, at, reason})
	}
	return some
}

// mended records that a device's return to service was reported.
func (m *memory) mended(id domain.GPUID) {
	for o, r := range m.known {
		if o.UUID == id && r.Down != notDown {
			r.Active, r.Down = false, notDown
		}
	}
	m.Back = slices.DeleteFunc(m.Back, func(b back) bool { return b.UUID == id })
}

// save writes the file. It then covers all faults up to a place in the stream.
func (m *memory) save(at domain.Instant, incarnation, sequence uint64) error {
	m.At = at
	if sequence > 0 {
		m.Incarnation, m.Sequence = incarnation, sequence
	}
	m.Known, m.Told = m.Known[:0], m.Told[:0]
	for k, r := range m.known {
		if !r.Active && r.Down == notDown && r.Last < at-rememberFor {
			delete(m.known, k)
			continue
		}
		m.Known = append(m.Known, knownEntry{k, *r})
	}
	for t := range m.told {
		m.Told = append(m.Told, t)
	}
	order := func(a, b occurrence) int {
		return cmp.Or(
			bytes.Compare(a.UUID[:], b.UUID[:]),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Field, b.Field),
		)
	}
	slices.SortFunc(m.Known, func(a, b knownEntry) int { return order(a.occurrence, b.occurrence) })
	slices.SortFunc(m.Told, func(a, b moment) int {
		return cmp.Or(-cmp.Compare(a.At, b.At), order(a.occurrence, b.occurrence))
	})
	for _, t := range m.Told[min(maxReportedXIDs, len(m.Told)):] {
		delete(m.told, t)
	}
	m.Told = m.Told[:min(maxReportedXIDs, len(m.Told))]
	text, err := json.Marshal(&m.memoryFile)
	if err != nil {
		return err
	}
	err = replaceFile(m.path, append([]byte(checksum(text)+"\n"), text...))
	if err == nil {
		m.since = 0
	}
	return err
}

// replaceFile writes a file atomically and durably: it syncs the bytes under a temporary name,
// renames the file, and syncs the directory.
func replaceFile(path string, b []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = syncFile(f)
	}
	f.Close()
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		_ = os.Remove(path + ".new") // a full disk needs the space
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncFile waits for the disk. Tests replace it to record the calls.
var syncFile = (*os.File).Sync

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncFile(d)
}

// pack encodes an event for the spool: the record that is delivered, and a memo for this program.
func pack(record, memo []byte) []byte {
	b := binary.AppendUvarint(make([]byte, 0, len(record)+len(memo)+3), uint64(len(record)))
	return append(append(b, record...), memo...)
}

func unpack(b []byte) (record, memo []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, errors.New("the spool contains data that this program did not write")
	}
	b = b[size:]
	return b[:n:n], b[n:], nil
}

const memoBytes = 1 + 16 + 4 + 4 + 8 + 8 + 1

// makeMemo encodes what the memory needs about an event.
func makeMemo(e *dcgm.Event, down downUntil) []byte {
	b := append(make([]byte, 0, memoBytes), byte(e.Kind))
	b = append(b, e.UUID[:]...)
	b = binary.LittleEndian.AppendUint32(b, e.Code)
	b = binary.LittleEndian.AppendUint32(b, e.Field)
	b = binary.LittleEndian.AppendUint64(b, e.Total)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.At))
	return append(b, byte(down))
}

func readMemo(b []byte) (e dcgm.Event, down downUntil, ok bool) {
	if len(b) != memoBytes {
		return e, 0, false
	}
	e.Kind, e.UUID = dcgm.Kind(b[0]), domain.GPUID(b[1:])
	e.Code = binary.LittleEndian.Uint32(b[17:])
	e.Field = binary.LittleEndian.Uint32(b[21:])
	e.Total = binary.LittleEndian.Uint64(b[25:])
	e.At = domain.Instant(binary.LittleEndian.Uint64(b[33:]))
	return e, downUntil(b[41]), true
}

// mendedMemo marks the memo of a device's return to service.
const mendedMemo = 255

func makeMendedMemo(id domain.GPUID) []byte { return append([]byte{mendedMemo}, id[:]...) }

func readMendedMemo(b []byte) (id domain.GPUID, ok bool) {
	if len(b) != 1+len(id) || b[0] != mendedMemo {
		return id, false
	}
	return domain.GPUID(b[1:]), true
}
