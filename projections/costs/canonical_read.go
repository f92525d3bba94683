package costs

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// ReadCanonical returns the division of a canonical form. It reads the summary; [Division.At] says at which
// position it is asked. The caller MUST have checked the digest of the bytes.
func ReadCanonical(open Open) (*Division, error) {
	d := &Division{canonical: open}
	var err error
	d.bytes, err = open.summary(&d.Summary)
	return d, err
}

// summary reads the summary, and returns its length.
func (o Open) summary(s *Summary) (length int, err error) {
	f, err := o()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	at, err := endsOf(f)
	if err != nil {
		return 0, err
	}
	if _, err := f.Seek(at.summary, io.SeekStart); err != nil {
		return 0, err
	}
	dec := json.NewDecoder(io.LimitReader(f, at.sizes-at.summary))
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		return 0, fmt.Errorf("%w: its summary: %w", ErrCanonical, err)
	}
	if s.Format != CanonicalFormat {
		return 0, fmt.Errorf("%w: its format is %.100q, this program reads %q", ErrCanonical, s.Format, CanonicalFormat)
	}
	return int(at.sizes - at.summary), nil
}

// each calls yield with every allocation of the month. It is reused after yield returns, and so are its line and its
// charge: what keeps one of them MUST copy it.
func (o Open) each(month domain.Instant, yield func(*part) error) (err error) {
	f, err := o()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	magic := make([]byte, len(CanonicalFormat)+1)
	if _, err := io.ReadFull(f, magic); err != nil || string(magic) != CanonicalFormat+"\n" {
		return fmt.Errorf("%w: it begins with %.100q", ErrCanonical, magic)
	}
	return (&decoder{r: f}).each(month, math.MaxUint64, yield)
}

// each calls yield with records until their end, at most to a number of them.
func (r *decoder) each(month domain.Instant, to uint64, yield func(*part) error) error {
	at := part{allocation: &attribution.Allocation{}, month: month}
	var prices pricing
	for r.records < to {
		more := r.next(&at)
		if r.err != nil {
			return fmt.Errorf("%w: record %d: %w", ErrCanonical, r.records+1, r.err)
		}
		if !more {
			return nil
		}
		prices.price(&at)
		if err := yield(&at); err != nil {
			return err
		}
	}
	return nil
}

// readAhead is how much is read at once, in bytes.
const readAhead = 1 << 16

// decoder reads the canonical form. A month has millions of records, so it allocates nothing for a record, and for a line
// only what it does not have in common with the one before.
type decoder struct {
	r       io.Reader
	b       []byte // what was read and not yet decoded is b[at:]
	at      int
	ended   error // of r
	texts   []string
	targets []target
	charged []*[chargeTexts]string
	two     [2]struct { // of the current line and of the one before
		line   attribution.Line
		charge Charge
	}
	line    *attribution.Line
	charge  *Charge
	lines   uint32
	of      attribution.Amount
	hour    domain.Instant
	held    heldRead
	records uint64
	err     error
}

func (r *decoder) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// ahead reads until n bytes can be decoded, and reports whether there are so many. After a failure there are none.
func (r *decoder) ahead(n int) bool {
	switch {
	case r.err != nil:
		return false
	case len(r.b)-r.at >= n:
		return true
	case r.ended != nil:
		return false
	}
	rest := r.b[r.at:]
	if cap(r.b) < max(n, readAhead) {
		r.b = make([]byte, 0, max(n, readAhead))
	}
	r.b, r.at = append(r.b[:0], rest...), 0
	for len(r.b) < n && r.ended == nil {
		var more int
		more, r.ended = r.r.Read(r.b[len(r.b):cap(r.b)])
		r.b = r.b[:len(r.b)+more]
	}
	return len(r.b) >= n
}

// end is why there is nothing more to decode.
func (r *decoder) end() error {
	if errors.Is(r.ended, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return r.ended
}

func (r *decoder) byte() byte {
	if r.at == len(r.b) && !r.ahead(1) {
		r.fail("it ends: %w", r.end())
		return 0
	}
	b := r.b[r.at]
	r.at++
	return b
}

func (r *decoder) uint() uint64 {
	if r.at < len(r.b) && r.b[r.at] < 0x80 {
		r.at++
		return uint64(r.b[r.at-1])
	}
	return r.longUint()
}

func (r *decoder) longUint() uint64 {
	if len(r.b)-r.at < binary.MaxVarintLen64 {
		r.ahead(binary.MaxVarintLen64) // or fewer at the end
	}
	n, size := binary.Uvarint(r.b[r.at:])
	if size <= 0 {
		r.fail("a number: %w", cmp.Or(r.end(), errOverflow))
		return 0
	}
	r.at += size
	return n
}

var errOverflow = errors.New("it has more than 64 bits")

func (r *decoder) int() int64 {
	n := r.uint()
	return int64(n>>1) ^ -int64(n&1) // as binary.Varint
}

func (r *decoder) amount() attribution.Amount {
	head := r.byte()
	n, ok := attribution.BytesAfter(head)
	if !ok || r.err != nil {
		r.fail("%x begins no amount", head)
		return attribution.Amount{}
	}
	if len(r.b)-r.at < n && !r.ahead(n) {
		r.fail("an amount: %w", r.end())
		return attribution.Amount{}
	}
	a, err := attribution.AmountOfBytes(head, r.b[r.at:r.at+n])
	if err != nil {
		r.fail("%w", err)
	}
	r.at += n
	return a
}

// raw reads a text that is not numbered. It returns like if that is the text.
func (r *decoder) raw(like string) string {
	n := r.uint()
	if r.err != nil || n > mostText {
		r.fail("a text of %d bytes", n)
		return ""
	}
	if len(r.b)-r.at < int(n) && !r.ahead(int(n)) {
		r.fail("a text: %w", r.end())
		return ""
	}
	b := r.b[r.at : r.at+int(n)]
	r.at += int(n)
	if string(b) == like {
		return like
	}
	return string(b)
}

func (r *decoder) text() string {
	n := r.uint()
	switch {
	case r.err != nil:
		return ""
	case n == 0:
		r.texts = append(r.texts, r.raw(""))
		n = uint64(len(r.texts))
	case n > uint64(len(r.texts)):
		r.fail("text %d of %d", n, len(r.texts))
		return ""
	}
	return r.texts[n-1]
}

// next reads a record; it reports false at the end.
func (r *decoder) next(p *part) bool {
	flags := r.byte()
	if r.err != nil {
		return false
	}
	if flags == 0 {
		if n := r.uint(); n != r.records {
			r.fail("it has %d records and says %d", r.records, n)
		}
		return false
	}
	first := r.line == nil || flags&newBlock != 0 // of a block
	if flags&isRecord == 0 || flags&^(isRecord|newLine|oneAmount|sameOf|newBlock) != 0 || first && (flags&newLine == 0 || flags&sameOf != 0) {
		r.fail("it begins with %x", flags)
		return false
	}
	if flags&newBlock != 0 {
		r.texts, r.targets, r.charged, r.held, r.of, r.hour = nil, nil, nil, heldRead{}, attribution.Amount{}, 0
	}
	l := p.allocation
	if flags&newLine != 0 {
		last, next := &r.two[r.lines&1], &r.two[(r.lines+1)&1]
		r.lines++
		r.held.next()
		r.line, r.charge = &next.line, noCharge
		if added := r.getLine(r.line, &last.line); !added {
			r.line.Number = r.lines
			r.charge = &next.charge
			r.getCharge(r.charge, &last.charge)
		}
	}
	l.Line, p.keptCharge = r.line, r.charge
	t := r.targetAt()
	if t == nil {
		return false
	}
	t.set(p)
	hours := r.int()
	if limit := int64(math.MaxInt64 / domain.Hour / 4); hours > limit || hours < -limit || int64(r.hour/domain.Hour)+hours > limit {
		r.fail("an hour %d after %s", hours, r.hour)
		return false
	}
	r.hour += domain.Instant(hours) * domain.Hour
	l.Hour = r.hour
	l.Billed = r.amount()
	l.Effective = l.Billed
	if flags&oneAmount == 0 {
		l.Effective = r.amount()
	}
	l.Weight = r.amount()
	if flags&sameOf == 0 {
		r.of = r.amount()
	}
	l.Of = r.of
	l.BoughtMs, l.AllocatedMs, l.UsefulMs, l.MeasuredMs = r.int(), r.int(), r.int(), r.int()
	l.Holders = r.holders(l.MatchMethod)
	if r.err != nil {
		return false
	}
	r.records++
	return true
}

// getCharge reads a charge, whose numbers often are those of the one before.
func (r *decoder) getCharge(c, last *Charge) {
	n := r.uint()
	switch {
	case r.err != nil:
		return
	case n == 0:
		texts := &[chargeTexts]string{}
		for i := range texts {
			texts[i] = r.text()
		}
		r.charged = append(r.charged, texts)
		n = uint64(len(r.charged))
	case n > uint64(len(r.charged)):
		r.fail("charge %d of %d", n, len(r.charged))
		return
	}
	c.texts = r.charged[n-1]
	for i := range c.numbers {
		c.numbers[i] = r.raw(last.numbers[i])
	}
}

// targetAt reads the number of a target, or a new one; nil after a failure.
func (r *decoder) targetAt() *target {
	n := r.uint()
	switch {
	case r.err != nil:
		return nil
	case n == 0:
		r.targets = append(r.targets, r.target())
		n = uint64(len(r.targets))
	case n > uint64(len(r.targets)):
		r.fail("target %d of %d", n, len(r.targets))
		return nil
	}
	return &r.targets[n-1]
}

func (r *decoder) target() (t target) {
	for _, s := range t.texts() {
		*s = r.text()
	}
	t.component, t.method = attribution.Component(r.byte()), attribution.MatchMethod(r.byte())
	return t
}

// getLine reads all fields of a line, and reports whether attribution added it.
func (r *decoder) getLine(l, last *attribution.Line) (added bool) {
	l.ID, l.Corrects, l.Number = r.raw(last.ID), r.raw(last.Corrects), 0
	for _, s := range lineTexts(l) {
		*s = r.text()
	}
	for _, t := range lineTimes(l) {
		*t = domain.Instant(r.int())
	}
	l.Class, l.Meter, l.Alone = attribution.Class(r.byte()), attribution.Meter(r.byte()), attribution.Meter(r.byte())
	flags := r.byte()
	l.Unused, l.Recurring, l.Generated = flags&lineUnused != 0, flags&lineRecurring != 0, flags&lineGenerated != 0
	matching := [3]byte{r.byte(), r.byte(), r.byte()}
	group := r.uint()
	if group > math.MaxUint32 {
		r.fail("group %d", group)
	}
	var err error
	if l.Matching, err = attribution.MatchingOf(uint32(group), matching); err != nil {
		r.fail("%w", err)
	}
	l.Billed, l.Effective = r.amount(), r.amount()
	l.NodeMs, l.GPUMs = r.int(), r.int()
	return flags&lineAdded != 0
}
