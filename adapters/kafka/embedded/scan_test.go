package embedded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/long"
)

// killed returns the log/ directory of an owner that was killed after it
// acknowledged n batches of three records in one partition of topic t, in
// several segments. The files are copied while the owner is idle, so they are what kill -9 leaves.
func killed(t testing.TB, n int) string {
	t.Helper()
	b := open(t, Config{Dir: t.TempDir(), SegmentBytes: 2000})
	c := client(t, b)
	if err := createTopic(c, "t", 1); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := produceTo(c, "t", 0, fmt.Sprint(i), strings.Repeat("x", 100+i), ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := commitOffset(c, 0, 7); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "log")
	if err := os.CopyFS(to, os.DirFS(filepath.Join(b.dir.path, logDir))); err != nil {
		t.Fatal(err)
	}
	return to
}

// files returns the contents of a log, and restore writes them back.
type files map[string][]byte

func read(t testing.TB, dir string) files {
	t.Helper()
	fsys := files{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			fsys[p], err = os.ReadFile(p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fsys
}

func (f files) restore(t testing.TB, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for p, text := range f {
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (f files) digest() string {
	h := sha256.New()
	for _, p := range slices.Sorted(func(yield func(string) bool) {
		for p := range f {
			if !yield(p) {
				return
			}
		}
	}) {
		fmt.Fprintf(h, "%s %d\n", p, len(f[p]))
		h.Write(f[p])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// boundaries returns the positions where batches start in a segment, and its end, with the next
// offset at each. It reads the format independently.
func boundaries(b []byte) (at []int64, next []int64) {
	pos, off := int64(0), int64(binary.BigEndian.Uint64(b))
	for {
		at, next = append(at, pos), append(next, off)
		if pos == int64(len(b)) {
			return at, next
		}
		off += int64(binary.BigEndian.Uint32(b[pos+57:]))
		pos += 12 + int64(binary.BigEndian.Uint32(b[pos+8:]))
	}
}

func segments(t testing.TB, dir string) []*segment {
	t.Helper()
	_, parts, err := inventory(dir)
	if err != nil || len(parts) != 1 {
		t.Fatalf("%d partitions, %v", len(parts), err)
	}
	return parts[0].segments
}

// serveLog opens a broker on a copy of a log directory.
func serveLog(t testing.TB, log string) (*Broker, error) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, logDir), os.DirFS(log)); err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), Config{Dir: dir})
	if err == nil {
		t.Cleanup(func() { b.Close() })
	}
	return b, err
}

func TestFlippedByteIsLocated(t *testing.T) {
	dir := killed(t, 40)
	whole := read(t, dir)
	segs := segments(t, dir)
	sealed := segs[:len(segs)-1]
	if len(sealed) < 3 {
		t.Fatalf("%d sealed segments", len(sealed))
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := sealed[rapid.IntRange(0, len(sealed)-1).Draw(rt, "segment")]
		good := whole[s.file]
		pos := rapid.IntRange(0, len(good)-1).Draw(rt, "position")
		bad := bytes.Clone(good)
		bad[pos] ^= byte(rapid.IntRange(1, 255).Draw(rt, "flip"))
		if err := os.WriteFile(s.file, bad, 0o600); err != nil {
			rt.Fatal(err)
		}
		defer os.WriteFile(s.file, good, 0o600)
		_, err := scan(context.Background(), dir, false)
		var d *DamageError
		if !errors.As(err, &d) {
			rt.Fatalf("got %v", err)
		}
		at, next := boundaries(good)
		i := 0
		for at[i+1] <= int64(pos) {
			i++
		}
		if d.File != s.file || d.Position != at[i] || d.Offset != next[i] || d.Topic != "t" || d.Partition != 0 {
			rt.Fatalf("byte %d of %s is bad, batch %d at %d; located %+v", pos, s.file, next[i], at[i], d)
		}
	})
	if read(t, dir).digest() != whole.digest() {
		t.Fatal("a refused opening changed the log")
	}
	// The same through Open.
	flip(t, sealed[1].file, 100)
	_, err := serveLog(t, dir)
	var d *DamageError
	if !errors.As(err, &d) {
		t.Fatalf("open: %v", err)
	}
}

func flip(t testing.TB, file string, pos int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if pos < 0 {
		pos += len(b)
	}
	b[pos] ^= 0x10
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTornTailAtEveryCut cuts the last segment at every batch boundary and at some bytes between;
// with CI_LONG=1, at every byte.
func TestTornTailAtEveryCut(t *testing.T) {
	dir := killed(t, 24)
	whole := read(t, dir)
	segs := segments(t, dir)
	last := segs[len(segs)-1]
	good := whole[last.file]
	at, next := boundaries(good)
	beside := func(cut int) bool { // next to a batch boundary
		return slices.ContainsFunc(at, func(b int64) bool { return b-2 <= int64(cut) && int64(cut) <= b+2 })
	}
	for cut := range len(good) + 1 {
		if !long.Run() && cut%97 != 0 && cut%31 != 0 && !beside(cut) {
			continue
		}
		whole.restore(t, dir)
		if err := os.Truncate(last.file, int64(cut)); err != nil {
			t.Fatal(err)
		}
		r, err := scan(t.Context(), dir, false)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		i := 0
		for i+1 < len(at) && at[i+1] <= int64(cut) {
			i++
		}
		if r.Records != next[i] {
			t.Fatalf("cut at %d: %d records are left of %d", cut, r.Records, next[i])
		}
		if int64(cut) == at[i] {
			if len(r.Trimmed) != 0 {
				t.Fatalf("cut at %d, between batches: %v", cut, r.Trimmed)
			}
		} else if want := (Trim{File: last.file, Topic: "t", Position: at[i], Bytes: int64(cut) - at[i], LastOffset: next[i] - 1}); len(r.Trimmed) != 1 || withoutReason(r.Trimmed[0]) != want {
			t.Fatalf("cut at %d: %v, want %v", cut, r.Trimmed, want)
		}
		// A second scan finds an intact log.
		if r, err := scan(t.Context(), dir, false); err != nil || len(r.Trimmed) != 0 || len(r.Rebuilt) != 0 || r.Records != next[i] {
			t.Fatalf("cut at %d, scanned again: %+v, %v", cut, r, err)
		}
		if cut%97 == 0 {
			b, err := serveLog(t, dir)
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			if vs := readAll(t, b, "t", 0); int64(len(vs)) != next[i] {
				t.Fatalf("cut at %d: read %d of %d", cut, len(vs), next[i])
			}
			if off, err := produceTo(client(t, b), "t", 0, "on"); err != nil || off != next[i] {
				t.Fatalf("cut at %d: appended at %d, %v", cut, off, err)
			}
			b.Close()
		}
	}
}

func withoutReason(t Trim) Trim { t.Reason = ""; return t }

// TestTornTailOfGarbage simulates a power cut: zeros or stale bytes in place of the last batch.
func TestTornTailOfGarbage(t *testing.T) {
	dir := killed(t, 10)
	whole := read(t, dir)
	segs := segments(t, dir)
	last := segs[len(segs)-1].file
	rapid.Check(t, func(rt *rapid.T) {
		tail := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(rt, "tail")
		if rapid.Bool().Draw(rt, "zeros") {
			clear(tail)
		}
		whole.restore(t, dir)
		if err := os.WriteFile(last, append(bytes.Clone(whole[last]), tail...), 0o600); err != nil {
			rt.Fatal(err)
		}
		r, err := scan(context.Background(), dir, false)
		if err != nil || len(r.Trimmed) != 1 || r.Trimmed[0].Bytes != int64(len(tail)) || r.Records != 30 {
			rt.Fatalf("%+v, %v", r, err)
		}
	})
}

// TestDamageIsNotATornTail: a fault before an acknowledged batch, or in bytes recorded as whole,
// cannot be the trace of a crash.
func TestDamageIsNotATornTail(t *testing.T) {
	dir := killed(t, 24)
	segs := segments(t, dir)
	last := segs[len(segs)-1].file
	killedLog := read(t, dir)
	if _, err := scan(t.Context(), dir, false); err != nil {
		t.Fatal(err)
	}
	recorded := read(t, dir) // the same log after an opening
	at, _ := boundaries(killedLog[last])
	if len(at) < 4 {
		t.Fatalf("%d batches in the last segment", len(at)-1)
	}
	lastBatch := int(at[len(at)-2])
	for name, c := range map[string]struct {
		from  files
		spoil func()
	}{
		"flip before the last batch":    {killedLog, func() { flip(t, last, lastBatch-1) }},
		"flip in the first batch":       {killedLog, func() { flip(t, last, 70) }},
		"flip in a length":              {killedLog, func() { flip(t, last, 8) }},
		"missing sealed segment":        {killedLog, func() { os.Remove(segs[1].file) }},
		"missing first segment":         {killedLog, func() { os.Remove(segs[0].file) }},
		"sealed segment cut at a batch": {killedLog, func() { os.Truncate(segs[0].file, firstBatch(killedLog[segs[0].file])) }},
		"recorded batch flipped":        {recorded, func() { flip(t, last, -1) }},
		"recorded tail cut":             {recorded, func() { os.Truncate(last, int64(len(recorded[last])-1)) }},
		"recorded batch cut":            {recorded, func() { os.Truncate(last, int64(lastBatch)) }},
		"recorded segment missing":      {recorded, func() { os.Remove(last) }},
		"no topics":                     {killedLog, func() { os.Remove(filepath.Join(dir, "topics.json")) }},
		"no meta":                       {killedLog, func() { os.Remove(filepath.Join(dir, "meta.json")) }},
		"broken topics":                 {killedLog, func() { os.Truncate(filepath.Join(dir, "topics.json"), 20) }},
		"broken snapshot":               {recorded, func() { os.Truncate(filepath.Join(filepath.Dir(last), snapshotFile), 9) }},
		"foreign segment":               {killedLog, func() { os.WriteFile(filepath.Join(filepath.Dir(last), "x.dat"), nil, 0o600) }},
		"commit flipped":                {killedLog, func() { flip(t, filepath.Join(dir, "groups.log"), 12) }},
	} {
		t.Run(name, func(t *testing.T) {
			c.from.restore(t, dir)
			if name == "commit flipped" { // one complete commit after the broken one
				f := filepath.Join(dir, "groups.log")
				os.WriteFile(f, append(c.from[f], c.from[f]...), 0o600)
			}
			c.spoil()
			before := read(t, dir).digest()
			_, err := scan(t.Context(), dir, true)
			var d *DamageError
			if !errors.As(err, &d) {
				t.Fatalf("got %v", err)
			}
			if read(t, dir).digest() != before {
				t.Fatal("a refused opening changed the log")
			}
		})
	}
}

func firstBatch(segment []byte) int64 {
	at, _ := boundaries(segment)
	return at[1]
}

// TestRebuiltIndex: the index is derived data, so it is rebuilt after damage.
func TestRebuiltIndex(t *testing.T) {
	dir := killed(t, 24)
	segs := segments(t, dir)
	os.Remove(segs[0].index())
	flip(t, segs[1].index(), 3)
	os.Truncate(segs[2].index(), 7)
	b, err := serveLog(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Report.Rebuilt) != 3 {
		t.Fatalf("rebuilt %v", b.Report.Rebuilt)
	}
	if vs := readAll(t, b, "t", 0); len(vs) != 72 {
		t.Fatalf("read %d", len(vs))
	}
}

// TestTornCommit: the broker stops reading its group log at a torn entry but appends after it, so a
// torn entry that is not removed would hide later commits.
func TestTornCommit(t *testing.T) {
	dir := killed(t, 5)
	f := filepath.Join(dir, "groups.log")
	whole, err := os.ReadFile(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, torn := range []int{1, 9, len(whole) / 2} {
		if err := os.WriteFile(f, append(bytes.Clone(whole), whole[:torn]...), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := scan(t.Context(), dir, false)
		if err != nil || len(r.Trimmed) != 1 || r.Trimmed[0].Bytes != int64(torn) {
			t.Fatalf("torn after %d: %+v, %v", torn, r, err)
		}
		if got, _ := os.ReadFile(f); !bytes.Equal(got, whole) {
			t.Fatal("the whole entries did not stay")
		}
	}
}

func TestForgettingTopicIsRefused(t *testing.T) {
	dir := killed(t, 1)
	f := filepath.Join(dir, "topics.json")
	text, err := os.ReadFile(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][2]string{{`"retention.ms":"-1"`, `"retention.ms":"11"`}, {`"cleanup.policy":"delete"`, `"cleanup.policy":"compact"`}} {
		changed := strings.Replace(string(text), bad[0], bad[1], 1)
		if changed == string(text) {
			t.Fatalf("%s is not in %s", bad[0], text)
		}
		if err := os.WriteFile(f, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := scan(t.Context(), dir, true); err == nil || !strings.Contains(err.Error(), "keeps everything") {
			t.Fatalf("%s: %v", bad[1], err)
		}
	}
}

// batch makes a complete record batch with arbitrary bytes as its records.
func batch(offset int64, records int32, payload []byte) []byte {
	b := make([]byte, batchHeader, batchHeader+len(payload))
	binary.BigEndian.PutUint64(b, uint64(offset))
	b[16] = 2
	binary.BigEndian.PutUint32(b[23:], uint32(records-1))
	binary.BigEndian.PutUint32(b[57:], uint32(records))
	b = append(b, payload...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[crcStart:], castagnoli))
	return b
}

// TestCheckAcrossBuffers: batches around and above the size of the read buffer.
func TestCheckAcrossBuffers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "5.dat")
	rng := rand.New(rand.NewPCG(1, 2))
	var text []byte
	next := int64(5)
	for _, n := range []int{0, 256<<10 - batchHeader, 256<<10 - 1, 1 << 20, 13, 256<<10 + 1} {
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = byte(rng.Uint32())
		}
		text = append(text, batch(next, int32(n+1), payload)...)
		next += int64(n + 1)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &segment{file: file, base: 5}
	if err := s.check(t.Context()); err != nil || s.fault != "" || s.next != next || s.batches != 6 || s.good != int64(len(text)) {
		t.Fatalf("%+v, %v", s, err)
	}
}

// FuzzSegment: any bytes are a good part and a fault, and the good part equals that of an
// independent reader.
func FuzzSegment(f *testing.F) {
	two := append(batch(0, 3, []byte("abc")), batch(3, 1, nil)...)
	f.Add(two)
	f.Add(two[:len(two)-1])
	f.Add(bytes.Repeat([]byte{2}, 200))
	f.Fuzz(func(t *testing.T, text []byte) {
		file := filepath.Join(t.TempDir(), "0.dat")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s := &segment{file: file}
		if err := s.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if (s.fault == "") != (s.good == int64(len(text))) {
			t.Fatalf("fault %q at %d of %d", s.fault, s.good, len(text))
		}
		if s.good > 0 {
			if at, next := boundaries(text[:s.good]); int64(len(at)-1) != s.batches || next[len(next)-1] != s.next {
				t.Fatalf("%d batches to offset %d, found %d to %d", len(at)-1, next[len(next)-1], s.batches, s.next)
			}
		}
		if s.fault != "" {
			if at, err := s.validAfterFault(); err != nil || at >= 0 && at <= s.good {
				t.Fatalf("valid batch at %d after a fault at %d, %v", at, s.good, err)
			}
		}
	})
}

func FuzzEntries(f *testing.F) {
	entry := []byte{4, 0, 0, 0, 0, 0, 0, 0, 1, 0, '{', '}'}
	binary.LittleEndian.PutUint32(entry[4:], crc32.Checksum(entry[8:], castagnoli))
	f.Add(entry)
	f.Add(append(bytes.Clone(entry), entry[:5]...))
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		file := filepath.Join(t.TempDir(), "groups.log")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		trim, err := checkEntries(file)
		var d *DamageError
		if err != nil && !errors.As(err, &d) {
			t.Fatal(err)
		}
		if trim != nil && (trim.Bytes < 1 || trim.Position+trim.Bytes != int64(len(text))) {
			t.Fatalf("%+v of %d bytes", trim, len(text))
		}
	})
}
