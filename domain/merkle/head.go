package merkle

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"quartermaster/domain"
)

// Hashes are hashes one after the other. Their text is the base64 of all their bytes.
type Hashes []Hash

// MarshalText implements [encoding.TextMarshaler].
func (hs Hashes) MarshalText() ([]byte, error) {
	b := make([]byte, 0, len(hs)*len(Hash{}))
	for i := range hs {
		b = append(b, hs[i][:]...)
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (hs *Hashes) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.Strict().DecodeString(string(text))
	if err != nil || len(b)%len(Hash{}) != 0 {
		return fmt.Errorf("%d characters are not hashes of %d bytes in base64", len(text), len(Hash{}))
	}
	*hs = make(Hashes, 0, len(b)/len(Hash{}))
	for h := range slices.Chunk(b, len(Hash{})) {
		*hs = append(*hs, Hash(h))
	}
	return nil
}

// HeadFormat is the first line of a head.
const HeadFormat = "quartermaster.head/1"

// Head says what an archive holds of every partition at some time. Its text is
//
//	quartermaster.head/1
//	log LOG
//	archive ARCHIVE
//	number N             from 0: its index in the tree of heads
//	records N            in all partitions
//	root HASH            of the tree over the lines below
//
//	before HASHES        the frontier of the tree of the heads before it; - if it is the first
//	LINE                 one for each partition that has records, in order
//	rows …               at most one, the last: [Rows]
//
// The part before the empty line is its leaf in the tree of heads.
type Head struct {
	Log     string
	Archive string
	Number  int64
	Records int64
	Before  Hashes
	Lines   []Line
	Rows    *Rows // nil: the head says nothing about rows
}

// Line is what a head says about a partition. Its text is a leaf of the head's tree:
//
//	TOPIC/PARTITION next=N segments=N manifest=SHA256 tree=HASH
type Line struct {
	Partition domain.TopicPartition
	Next      int64    // the number of its leaves: the offset after the last record
	Segments  int64    // of the archive
	Manifest  [32]byte // SHA-256 of the manifest of the last segment
	Root      Hash     // of the tree of the partition
}

// String returns the text, without a line feed.
func (l *Line) String() string {
	return fmt.Sprintf("%s next=%d segments=%d manifest=%x tree=%s", l.Partition, l.Next, l.Segments, l.Manifest, l.Root)
}

// ParseLine parses the text of a line.
func ParseLine(text string) (l Line, err error) {
	bad := fmt.Errorf("%q is not a line about a partition", text)
	f := strings.Split(text, " ")
	if len(f) != 5 {
		return l, bad
	}
	at, err := domain.ParsePosition(f[0] + "=1")
	if err != nil {
		return l, bad
	}
	for tp := range at {
		l.Partition = tp
	}
	var manifest []byte
	l.Next, err = numberAfter("next=", f[1])
	if err == nil {
		l.Segments, err = numberAfter("segments=", f[2])
	}
	if err == nil {
		manifest, err = hex.DecodeString(strings.TrimPrefix(f[3], "manifest="))
	}
	if err == nil {
		err = l.Root.UnmarshalText([]byte(strings.TrimPrefix(f[4], "tree=")))
	}
	if copy(l.Manifest[:], manifest); err != nil || l.String() != text || l.Next < 1 || l.Segments < 1 {
		return l, bad
	}
	return l, nil
}

func numberAfter(prefix, text string) (int64, error) {
	return strconv.ParseInt(strings.TrimPrefix(text, prefix), 10, 64)
}

// Rows is what a head says about the rows that were folded from the log. Its text is a leaf of the
// head's tree:
//
//	rows method=METHOD sha256=SHA256 position=POSITION
type Rows struct {
	Method   string // version of the folds
	SHA256   [32]byte
	Position string // see [domain.Position]
}

// String returns the text, without a line feed.
func (r *Rows) String() string {
	return fmt.Sprintf("rows method=%s sha256=%x position=%s", r.Method, r.SHA256, r.Position)
}

func parseRows(text string) (*Rows, error) {
	r := &Rows{}
	var sum []byte
	f := strings.Split(text, " ")
	if len(f) == 4 {
		r.Method, r.Position = strings.TrimPrefix(f[1], "method="), strings.TrimPrefix(f[3], "position=")
		sum, _ = hex.DecodeString(strings.TrimPrefix(f[2], "sha256=")) // compared below
		copy(r.SHA256[:], sum)
	}
	if _, err := domain.ParsePosition(r.Position); err != nil || r.String() != text {
		return nil, fmt.Errorf("%q is not a line about rows", text)
	}
	return r, nil
}

// texts returns the leaves of the head's tree.
func (h *Head) texts() []string {
	out := make([]string, 0, len(h.Lines)+1)
	for i := range h.Lines {
		out = append(out, h.Lines[i].String())
	}
	if h.Rows != nil {
		out = append(out, h.Rows.String())
	}
	return out
}

// Same reports whether two heads say the same about partitions and rows.
func (h *Head) Same(g *Head) bool { return slices.Equal(h.texts(), g.texts()) }

// tree returns the head's tree: of at most 32 leaves.
func (h *Head) tree() *Stored {
	texts := h.texts()
	leaves := make([]Hash, len(texts))
	for i := range texts {
		leaves[i] = LeafHash([]byte(texts[i]))
	}
	s, _ := NewStored(int64(len(leaves)), nil, func(first, next int64) ([]Hash, error) { return leaves[first:next], nil })
	return s // less than one block: it cannot fail
}

// Root returns the root of the tree over the lines.
func (h *Head) Root() Hash {
	t := h.tree()
	root, _ := t.Root(t.Size()) // as above
	return root
}

// Path returns the index of a line in the head's tree, the size of that tree, and the path from the
// line to its root. It fails if the head has no such line.
func (h *Head) Path(text string) (index, size int64, path []Hash, err error) {
	i := slices.Index(h.texts(), text)
	if i < 0 {
		return 0, 0, nil, fmt.Errorf("head %d has no line %q", h.Number, text)
	}
	t := h.tree()
	path, err = t.Inclusion(int64(i), t.Size())
	return int64(i), t.Size(), path, err
}

// Summary returns the part of the text that is the head's leaf in the tree of heads.
func (h *Head) Summary() string {
	s := Summary{h.Log, h.Archive, h.Number, h.Records, h.Root()}
	return s.String()
}

// Encode returns the text.
func (h *Head) Encode() []byte {
	var b strings.Builder
	b.WriteString(h.Summary())
	before := "-"
	if len(h.Before) > 0 {
		text, _ := h.Before.MarshalText() // never fails
		before = string(text)
	}
	fmt.Fprintf(&b, "\nbefore %s\n", before)
	for _, text := range h.texts() {
		b.WriteString(text + "\n")
	}
	return []byte(b.String())
}

// Tree returns the tree of heads with this one as its last leaf.
func (h *Head) Tree() (*Builder, error) {
	b, err := Resume(h.Number, h.Before)
	if err != nil {
		return nil, fmt.Errorf("head %d: %w", h.Number, err)
	}
	b.Add(LeafHash([]byte(h.Summary())))
	return b, nil
}

// ParseHead parses the text of a head and checks everything that needs nothing else. It accepts
// nothing but what [Head.Encode] writes.
func ParseHead(text []byte) (*Head, error) {
	summary, rest, ok := bytes.Cut(text, []byte("\n\n"))
	if !ok {
		return nil, errors.New("head: there is no empty line")
	}
	s, err := ParseSummary(string(summary) + "\n")
	if err != nil {
		return nil, err
	}
	h := &Head{Log: s.Log, Archive: s.Archive, Number: s.Number, Records: s.Records}
	lines := strings.Split(strings.TrimSuffix(string(rest), "\n"), "\n")
	before, ok := strings.CutPrefix(lines[0], "before ")
	if !ok {
		return nil, errors.New("head: the hashes before it are missing")
	}
	if before != "-" {
		if err := h.Before.UnmarshalText([]byte(before)); err != nil {
			return nil, fmt.Errorf("head: %w", err)
		}
	}
	if len(h.Before) != bits.OnesCount64(uint64(h.Number)) {
		return nil, fmt.Errorf("head %d has %d hashes of those before it", h.Number, len(h.Before))
	}
	var records int64
	for _, text := range lines[1:] {
		if h.Rows != nil {
			return nil, fmt.Errorf("head: %q follows the rows", text)
		}
		if strings.HasPrefix(text, "rows ") {
			if h.Rows, err = parseRows(text); err != nil {
				return nil, fmt.Errorf("head: %w", err)
			}
			continue
		}
		l, err := ParseLine(text)
		if err != nil {
			return nil, fmt.Errorf("head: %w", err)
		}
		if n := len(h.Lines); n > 0 && h.Lines[n-1].Partition.Compare(l.Partition) >= 0 {
			return nil, fmt.Errorf("head: %s is not in order", l.Partition)
		}
		if l.Next > s.Records-records {
			return nil, fmt.Errorf("head: its partitions have more than its %d records", s.Records)
		}
		records += l.Next
		h.Lines = append(h.Lines, l)
	}
	switch {
	case records != s.Records:
		return nil, fmt.Errorf("head: its partitions have %d records, it says %d", records, s.Records)
	case h.Root() != s.Root:
		return nil, fmt.Errorf("head: the root of its lines is %s, it says %s", h.Root(), s.Root)
	case !bytes.Equal(h.Encode(), text):
		return nil, errors.New("head is not in its canonical form")
	}
	return h, nil
}

// Summary is the first part of a [Head]: its leaf in the tree of heads.
type Summary struct {
	Log     string
	Archive string
	Number  int64
	Records int64
	Root    Hash // of the tree over its lines
}

// String returns the text, with a line feed at the end.
func (s *Summary) String() string {
	return fmt.Sprintf("%s\nlog %s\narchive %s\nnumber %d\nrecords %d\nroot %s\n",
		HeadFormat, s.Log, s.Archive, s.Number, s.Records, s.Root)
}

// ParseSummary parses the text of a summary.
func ParseSummary(text string) (s Summary, err error) {
	f := strings.Split(text, "\n")
	if len(f) != 7 || f[0] != HeadFormat {
		return s, fmt.Errorf("head: it is not of the format %s", HeadFormat)
	}
	s.Log, s.Archive = strings.TrimPrefix(f[1], "log "), strings.TrimPrefix(f[2], "archive ")
	s.Number, err = numberAfter("number ", f[3])
	if err == nil {
		s.Records, err = numberAfter("records ", f[4])
	}
	if err == nil {
		err = s.Root.UnmarshalText([]byte(strings.TrimPrefix(f[5], "root ")))
	}
	names := len(strings.Fields(s.Log)) == 1 && len(strings.Fields(s.Archive)) == 1 && !strings.Contains(s.Log+s.Archive, " ")
	if err != nil || s.String() != text || s.Number < 0 || s.Records < 0 || !names {
		return s, errors.New("head: its first part is not in its canonical form")
	}
	return s, nil
}
