package spool

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
)

// memory is a disk that can be full, fail, and lose power. After a power failure, unsynced data is
// there, gone or torn at random.
type memory struct {
	files   map[string]*memoryFile // as a running program sees them
	lasting map[string]*memoryFile // the names that certainly survive a power failure
	room    int64                  // bound on the bytes of all files; negative: none
	failing int                    // number of syncs that will fail
	after   int                    // operations until the power fails; negative: never
	broken  map[string]error       // files that cannot be opened, and why
}

type memoryFile struct {
	disk    *memory
	data    []byte
	lasting []byte
	writes  []write // since the last sync
}

type write struct {
	at   int64
	data []byte
	cut  bool // truncates at at
}

var errPower = errors.New("the power failed")

func newMemory() *memory {
	return &memory{files: map[string]*memoryFile{}, lasting: map[string]*memoryFile{}, room: -1, after: -1}
}

func (m *memory) op() error {
	if m.after == 0 {
		return errPower
	}
	if m.after > 0 {
		m.after--
	}
	return nil
}

// off returns the disk after a power failure.
func (m *memory) off(rng *rand.Rand) *memory {
	n := newMemory()
	n.room = m.room
	names := slices.Sorted(maps.Keys(m.files))
	for name := range m.lasting {
		if m.files[name] == nil {
			names = append(names, name) // the removal was not synced
		}
	}
	slices.Sort(names)
	for _, name := range names {
		f, lasting := m.files[name], m.lasting[name]
		if f != lasting && rng.IntN(2) == 0 {
			f = lasting
		}
		if f == nil {
			continue
		}
		data := slices.Clone(f.lasting)
		for _, w := range f.writes {
			if rng.IntN(2) == 0 {
				continue
			}
			if w.cut {
				data = data[:min(w.at, int64(len(data)))]
				continue
			}
			torn := w.data
			if rng.IntN(2) == 0 {
				torn = w.data[:rng.IntN(len(w.data)+1)]
			}
			data = place(data, w.at, torn)
		}
		c := &memoryFile{disk: n, data: data, lasting: slices.Clone(data)}
		n.files[name], n.lasting[name] = c, c
	}
	return n
}

func place(data []byte, at int64, b []byte) []byte {
	if n := at + int64(len(b)); n > int64(len(data)) {
		data = append(data, make([]byte, n-int64(len(data)))...)
	}
	copy(data[at:], b)
	return data
}

func (m *memory) used() (n int64) {
	for _, f := range m.files {
		n += int64(len(f.data))
	}
	return n
}

func (m *memory) Folder(string) error { return m.op() }

func (m *memory) List(folder string) (names []string, err error) {
	for name := range m.files {
		if path.Dir(name) == folder {
			names = append(names, path.Base(name))
		}
	}
	return names, m.op()
}

func (m *memory) Create(name string) (file, error) {
	if err := m.op(); err != nil {
		return nil, err
	}
	if m.files[name] != nil {
		return nil, fs.ErrExist
	}
	f := &memoryFile{disk: m}
	m.files[name] = f
	return f, nil
}

func (m *memory) Open(name string) (file, error) {
	if err := m.op(); err != nil {
		return nil, err
	}
	if err := m.broken[name]; err != nil {
		return nil, err
	}
	if f := m.files[name]; f != nil {
		return f, nil
	}
	return nil, fs.ErrNotExist
}

func (m *memory) Remove(name string) error {
	if err := m.op(); err != nil {
		return err
	}
	delete(m.files, name)
	return nil
}

func (m *memory) SyncDir(folder string) error {
	if err := m.op(); err != nil {
		return err
	}
	maps.DeleteFunc(m.lasting, func(name string, _ *memoryFile) bool { return path.Dir(name) == folder })
	for name, f := range m.files {
		if path.Dir(name) == folder {
			m.lasting[name] = f
		}
	}
	return nil
}

func (m *memory) Close() {}

// segments returns the names of a queue's segments, in order.
func (m *memory) segments(queue string) (names []string) {
	for name := range m.files {
		if strings.HasPrefix(name, queue+"/") && strings.HasSuffix(name, segmentSuffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (f *memoryFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.disk.op(); err != nil {
		return 0, err
	}
	if at >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memoryFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.disk.op(); err != nil {
		return 0, err
	}
	grows := at + int64(len(b)) - int64(len(f.data))
	if free := f.disk.room - f.disk.used(); f.disk.room >= 0 && grows > max(free, 0) {
		// Like a file system, write the part that fits.
		b = b[:max(0, int64(len(b))-(grows-max(free, 0)))]
		f.data = place(f.data, at, b)
		f.writes = append(f.writes, write{at: at, data: slices.Clone(b)})
		return len(b), syscall.ENOSPC
	}
	f.data = place(f.data, at, b)
	f.writes = append(f.writes, write{at: at, data: slices.Clone(b)})
	return len(b), nil
}

func (f *memoryFile) Truncate(size int64) error {
	if err := f.disk.op(); err != nil {
		return err
	}
	f.data = f.data[:min(size, int64(len(f.data)))]
	f.writes = append(f.writes, write{at: size, cut: true})
	return nil
}

func (f *memoryFile) Size() (int64, error) { return int64(len(f.data)), f.disk.op() }

func (f *memoryFile) Sync() error {
	if err := f.disk.op(); err != nil {
		return err
	}
	if f.disk.failing > 0 {
		f.disk.failing--
		return syscall.EIO
	}
	f.lasting, f.writes = slices.Clone(f.data), nil
	return nil
}

func (f *memoryFile) Close() {}
