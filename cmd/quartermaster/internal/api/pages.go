package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/domain"
)

// A long list is answered in pages. All pages are of one answer: that at the position of the first. It is computed
// once and kept for a while, so each page costs the same, however deep. If it is not kept any more, or was computed by
// another instance, it is computed again as of that position.

// Bounds of pages.
const (
	cursorFor = domain.Instant(24 * time.Hour) // after the first page
	keptFor   = 10 * time.Minute               // an answer, since its last page
	mostKept  = 16                             // answers
	keptBytes = int64(1 << 30)                 // of them all
	ofCursors = "cursors"
)

// Parameters of pages.
const (
	limitParam  = cli.LimitParam
	cursorParam = "cursor"
	asOfParam   = "as_of"
)

// errCursor is for every cursor that does not continue exactly the question that it comes with.
var errCursor = &app.InvalidError{Field: cursorParam, Err: errors.New("it does not continue this question of yours: ask again without it")}

// cursor is where the next page begins.
type cursor struct {
	Principal string         `json:"p"`
	Scope     []byte         `json:"s"` // digests
	Question  []byte         `json:"q"`
	At        string         `json:"a"`           // position
	Offset    int64          `json:"o"`           // in the answer
	Key       string         `json:"k,omitempty"` // of an answer that cannot be computed again
	Until     domain.Instant `json:"u"`
}

// page is a question for a part of an answer.
type page struct {
	limit    int
	from     *cursor // nil: the first
	asked    url.Values
	question []byte          // digest of operation, question and form
	at       domain.Position // of the first page; nil: this is it
	past     bool            // the answer is not kept
	next     string          // the cursor of the next; "": there is none
}

// pageOf returns the page that a question is for, nil if it is for the whole answer. It leaves what pages are asked
// by out of the question.
func (s *server) pageOf(ctx context.Context, r *http.Request, who app.Principal, op *cli.Operation, q url.Values, form cli.Form) (*page, error) {
	if !op.Paged() || form.Output != "json" {
		return nil, nil
	}
	limit, err := strconv.Atoi(first(q, limitParam, strconv.Itoa(op.Page)))
	if err != nil || limit < 0 || len(q[limitParam]) > 1 || len(q[cursorParam]) > 1 {
		return nil, &app.InvalidError{Field: limitParam, Err: fmt.Errorf("want one number of rows, and 0 for all, and one cursor")}
	}
	sealed, further := "", q.Has(cursorParam)
	if further {
		sealed = q.Get(cursorParam)
	}
	q.Del(cursorParam)
	q.Del(limitParam)
	if op.Limited() {
		q.Set(limitParam, "0") // the rest is on further pages
	}
	switch {
	case limit == 0 && !further:
		return nil, nil
	case limit == 0:
		limit = math.MaxInt
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%v\n%s\n%+v\n%+v", op.Words, q.Encode(), form, app.Version()))
	p := &page{limit: limit, asked: maps.Clone(r.URL.Query()), question: sum[:16]}
	if !further {
		return p, nil
	}
	p.from = &cursor{}
	key, err := s.cursorKey(ctx)
	if err != nil {
		return nil, err
	}
	if !open(key, ofCursors, sealed, p.from) || p.from.Principal != who.Name || !bytes.Equal(p.from.Scope, scopeSum(who)) || !bytes.Equal(p.from.Question, p.question) ||
		domain.InstantOf(time.Now()) >= p.from.Until {
		return nil, errCursor
	}
	if p.at, err = domain.ParsePosition(p.from.At); err != nil {
		return nil, errCursor
	}
	p.past = !s.pages.has(p.key(tagOf(who, op, q, form, p.at)))
	return p, nil
}

// key returns the key under which the whole answer is kept, of its tag.
func (p *page) key(tag string) string {
	if p.from != nil && p.from.Key != "" {
		return p.from.Key
	}
	return tag
}

// withoutPages returns a question without what pages are asked for by, which the command does not know.
func withoutPages(op *cli.Operation, q url.Values) url.Values {
	if !op.Paged() {
		return q
	}
	q = maps.Clone(q)
	q.Del(cursorParam)
	if !op.Limited() {
		q.Del(limitParam)
	}
	return q
}

// first returns the first value of a parameter.
func first(q url.Values, name, otherwise string) string {
	if v := q[name]; len(v) > 0 {
		return v[0]
	}
	return otherwise
}

func scopeSum(who app.Principal) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", who.Scope.Key()))
	return sum[:16]
}

// tag returns the entity tag of the page, of that of the whole answer.
func (p *page) tag(whole string) string {
	var offset int64
	if p.from != nil {
		offset = p.from.Offset
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", whole, offset, p.limit))
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`
}

// link returns the header that names the next page.
func (p *page) link(path string) string {
	q := maps.Clone(p.asked)
	q.Set(cursorParam, p.next)
	return "<" + path + "?" + q.Encode() + `>; rel="next"`
}

// sealed returns a cursor as text.
func (s *server) sealed(ctx context.Context, c *cursor) (string, error) {
	key, err := s.cursorKey(ctx)
	if err != nil {
		return "", err
	}
	return seal(key, ofCursors, c)
}

// askPage writes a page of an answer. tag is that of the whole answer, and at its position.
func (s *server) askPage(
	ctx context.Context, on *app.App, who app.Principal, op *cli.Operation, q url.Values, form cli.Form, p *page, tag string, now, at domain.Position, out io.Writer,
) (did *cli.Outcome, clocked bool, err error) {
	key, offset := p.key(tag), int64(0)
	if p.from != nil {
		if offset = p.from.Offset; !bytes.Equal(p.from.Scope, scopeSum(who)) { // a right has ended since
			return nil, false, errCursor
		}
	}
	whole := s.pages.take(key)
	if whole == nil {
		if p.from != nil && p.from.Key != "" {
			return nil, false, &app.InvalidError{Field: cursorParam, Err: errors.New("the list depends on when it was asked for, and is not kept any more: ask again without it")}
		}
		if now.String() != at.String() && q.Get(asOfParam) == "" {
			q = maps.Clone(q)
			q.Set(asOfParam, at.String())
		}
		if whole, err = compute(ctx, on, op, q, form); err != nil {
			return nil, false, err
		}
		if whole.did.Clocked {
			key = rand.Text()
		}
	}
	defer s.pages.keep(key, whole)
	next, err := whole.write(out, offset, p.limit)
	if err != nil {
		return nil, false, err
	}
	if next > 0 {
		c := &cursor{
			Principal: who.Name, Scope: scopeSum(who), Question: p.question, At: at.String(), Offset: next,
			Until: domain.InstantOf(time.Now()) + cursorFor,
		}
		if p.from != nil {
			c.Until = p.from.Until
		}
		if whole.did.Clocked {
			c.Key = key
		}
		if p.next, err = s.sealed(ctx, c); err != nil {
			return nil, false, err
		}
	}
	return &whole.did, whole.did.Clocked, nil
}

// list is an answer with rows that are counted: lines, or the elements of one list of a document.
type list struct {
	spool
	did        cli.Outcome
	lines      bool
	begin, end int64 // of the rows in the text

	// For pages, which guards them.
	key   string
	until time.Time
	users int
}

// compute answers a question in full.
func compute(ctx context.Context, on *app.App, op *cli.Operation, q url.Values, form cli.Form) (_ *list, err error) {
	l := &list{lines: op.Lines}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	did, err := op.Answer(ctx, on, q, form, &l.spool)
	if err != nil {
		return nil, err
	}
	l.did = *did
	l.did.Clocked = did.Clocked || on.Lacks
	if l.end = l.length(); l.lines {
		return l, nil
	}
	return l, l.find(op.Rows)
}

// length returns the number of bytes of the answer.
func (s *spool) length() int64 { return int64(len(s.text)) + s.size }

// ReadAt implements [io.ReaderAt].
func (s *spool) ReadAt(p []byte, at int64) (n int, err error) {
	if at < int64(len(s.text)) {
		n = copy(p, s.text[at:])
	}
	if n == len(p) {
		return n, nil
	}
	if s.file == nil {
		return n, io.EOF
	}
	more, err := s.file.ReadAt(p[n:], at+int64(n)-int64(len(s.text)))
	return n + more, err
}

// part returns a part of the answer.
func (s *spool) part(from, to int64) *io.SectionReader { return io.NewSectionReader(s, from, to-from) }

// find finds the list of a document, by its name.
func (l *list) find(name string) error {
	d := json.NewDecoder(l.part(0, l.length()))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		field, err := d.Token()
		if err != nil {
			return err
		}
		if field != name {
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return err
			}
			continue
		}
		t, err := d.Token()
		l.begin, l.end = d.InputOffset(), d.InputOffset()
		if t != json.Delim('[') || err != nil { // null
			return err
		}
		for d.More() {
			var row json.RawMessage
			if err := d.Decode(&row); err != nil {
				return err
			}
			l.end = d.InputOffset()
		}
		return nil
	}
	return fmt.Errorf("the answer has no list %s", name)
}

// write writes the rows from an offset on, at most limit, with what is around them. It returns the offset of the next
// row, 0 if there is none.
func (l *list) write(out io.Writer, from int64, limit int) (next int64, err error) {
	from = max(from, l.begin)
	if from > l.end {
		return 0, errCursor
	}
	to, more := from, false
	if l.lines {
		lines := bufio.NewReader(l.part(from, l.end))
		for n := 0; ; {
			text, err := lines.ReadSlice('\n')
			if more = n == limit && len(text) > 0; more || errors.Is(err, io.EOF) {
				break
			}
			if to += int64(len(text)); err == nil {
				n++
			} else if !errors.Is(err, bufio.ErrBufferFull) {
				return 0, err
			}
		}
		if !more {
			to = l.end
		}
	} else if from < l.end {
		// A decoder counts from the beginning of what it reads, which is a list again.
		d := json.NewDecoder(io.MultiReader(strings.NewReader("["), l.part(from, l.end), strings.NewReader("]")))
		if _, err := d.Token(); err != nil {
			return 0, err
		}
		for n := 0; n < limit && d.More(); n++ {
			var row json.RawMessage
			if err := d.Decode(&row); err != nil {
				return 0, err
			}
			to = from + d.InputOffset() - 1
		}
		more = to < l.end
	}
	length := l.length()
	for _, part := range []*io.SectionReader{l.part(0, l.begin), l.part(from, to), l.part(l.end, length)} {
		if _, err := io.Copy(out, part); err != nil {
			return 0, err
		}
	}
	switch {
	case !more:
		return 0, nil
	case l.lines:
		return to, nil
	}
	return to + 1, nil // after the comma
}

// pages keeps answers of which pages were asked for.
type pages struct {
	mu   sync.Mutex
	all  []*list // by when they were last used
	size int64
}

// take returns an answer that is kept, nil if it is not. Whoever takes it MUST give it back with keep.
func (p *pages) take(key string) *list {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shrink(0)
	for _, l := range p.all {
		if l.key == key {
			l.users++
			return l
		}
	}
	return nil
}

// keep keeps an answer for further pages, for a while.
func (p *pages) keep(key string, l *list) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := slices.Contains(p.all, l)
	if known {
		l.users--
		p.all = slices.DeleteFunc(p.all, func(o *list) bool { return o == l })
	} else if l.length() > keptBytes || slices.ContainsFunc(p.all, func(o *list) bool { return o.key == key }) {
		_ = l.close() // too long, or computed twice at once
		return
	} else {
		p.shrink(l.length())
		p.size += l.length()
	}
	l.key, l.until = key, time.Now().Add(keptFor)
	p.all = append(p.all, l)
}

// has reports whether an answer is kept.
func (p *pages) has(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.all, func(l *list) bool { return l.key == key })
}

// shrink drops answers that were not used for a while, and as many others as need be for another of some bytes.
func (p *pages) shrink(room int64) {
	now := time.Now()
	var left []*list
	for i, l := range p.all {
		full := room > 0 && (p.size+room > keptBytes || len(left)+len(p.all)-i >= mostKept)
		if l.users > 0 || now.Before(l.until) && !full {
			left = append(left, l)
			continue
		}
		p.size -= l.length()
		_ = l.close()
	}
	p.all = left
}
