package costs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
)

// The canonical form of a divided month is a sequence of bytes that says all that [Division] knows, and
// nothing about the position: equal divisions have equal bytes, so their SHA-256 names them. It is:
//
//  1. the line "quartermaster.allocations/6";
//  2. a record for each allocation, in the order of [attribution.Run];
//  3. a zero byte and the number of records;
//  4. the [Summary] in JSON, and its length in eight bytes, most significant first.
//
// A record begins with a byte of flags. The line and its [Charge] follow if it is not that of the record before; then
// what the allocation is for, by number, with its texts at the first use; the hour, as the difference
// from the record before; amounts in the form of [attribution.Amount.AppendBytes]; and GPU times. Numbers
// are varints. Texts that repeat are numbered in the order of their first use.

// CanonicalFormat is the version of the canonical form.
const CanonicalFormat = "quartermaster.allocations/6"

// ErrCanonical means that bytes are not the canonical form of a divided month: they are damaged, or of
// another version. Divide the month again.
var ErrCanonical = errors.New("not a month of allocations")

// ErrText means that a name of a month is not UTF-8. Such a month cannot be kept, and is divided each time.
var ErrText = errors.New("a name is not UTF-8")

// Open opens the canonical form of a divided month for reading. It is called for each question.
type Open func() (io.ReadSeekCloser, error)

// mostText bounds a text of the canonical form, in bytes.
const mostText = 1 << 20

// The flags of a record. A byte of 0 is the end.
const (
	isRecord  = 0x80
	newLine   = 1 << 0 // a line follows
	oneAmount = 1 << 1 // both ledgers have the same amount
	sameOf    = 1 << 2 // Of is that of the record before
)

// The flags of a line.
const (
	lineUnused    = 1 << 0
	lineRecurring = 1 << 1
	lineGenerated = 1 << 2
	lineAdded     = 1 << 3 // by attribution: it has no charge
)

// target is what allocations with the same texts have in common.
type target struct {
	workspace, cluster, deployment string
	component                      attribution.Component
	method                         attribution.MatchMethod
	hardware                       attribution.Hardware
	place                          place
}

// WriteCanonical divides a month, and writes its canonical form. Memory grows with lines and nodes, not
// with allocations. It returns what was read.
func WriteCanonical(view projections.View, month domain.Interval, w io.Writer) (*projections.Reads, *Summary, error) {
	recorded, reads := projections.Record(view)
	e := newEncoder(w)
	e.b = append(e.b, CanonicalFormat+"\n"...)
	d, err := divide(recorded, month, e.allocation)
	if err != nil {
		return nil, nil, err
	}
	return reads, &d.Summary, e.end(&d.Summary)
}

// encoder writes the canonical form.
type encoder struct {
	w       *bufio.Writer
	b       []byte // of the current record
	texts   map[string]uint64
	targets map[target]uint64
	charged map[*[chargeTexts]string]uint64
	line    attribution.Line
	of      attribution.Amount
	hour    domain.Instant
	records uint64
	bad     string // a text that is not UTF-8
}

func newEncoder(w io.Writer) *encoder {
	return &encoder{
		w: bufio.NewWriterSize(w, 1<<16), texts: map[string]uint64{}, targets: map[target]uint64{},
		charged: map[*[chargeTexts]string]uint64{},
	}
}

func (e *encoder) allocation(p *part) error {
	l := p.allocation
	if l.Hour%domain.Hour != 0 {
		return fmt.Errorf("the hour of allocation %s is not a whole hour", l.Ref())
	}
	flags := byte(isRecord)
	if e.records == 0 || *l.Line != e.line {
		flags |= newLine
	}
	if l.Billed == l.Effective {
		flags |= oneAmount
	}
	if e.records > 0 && l.Of == e.of {
		flags |= sameOf
	}
	e.b = append(e.b, flags)
	if flags&newLine != 0 {
		e.line = *l.Line
		e.putLine(&e.line)
		if l.Line.Number != 0 {
			e.charge(p.charge())
		}
	}
	e.target(&target{l.Workspace, l.Cluster, l.Deployment, l.Component, l.MatchMethod, l.Hardware, p.at()})
	e.int(int64((l.Hour - e.hour) / domain.Hour))
	e.hour = l.Hour
	e.b = l.Billed.AppendBytes(e.b)
	if flags&oneAmount == 0 {
		e.b = l.Effective.AppendBytes(e.b)
	}
	e.b = l.Weight.AppendBytes(e.b)
	if flags&sameOf == 0 {
		e.b = l.Of.AppendBytes(e.b)
		e.of = l.Of
	}
	for _, ms := range [...]int64{l.BoughtMs, l.AllocatedMs, l.UsefulMs, l.MeasuredMs} {
		e.int(ms)
	}
	e.records++
	if e.bad != "" {
		return fmt.Errorf("%w: %q of allocation %s", ErrText, e.bad, l.Ref())
	}
	return e.flush()
}

func (e *encoder) flush() error {
	_, err := e.w.Write(e.b)
	e.b = e.b[:0]
	return err
}

func (e *encoder) uint(n uint64) { e.b = binary.AppendUvarint(e.b, n) }
func (e *encoder) int(n int64)   { e.b = binary.AppendVarint(e.b, n) }

// raw writes a text that is not numbered.
func (e *encoder) raw(s string) {
	if !utf8.ValidString(s) || len(s) > mostText {
		e.bad = s
	}
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

// text writes the number of a text, from 1, or 0 and the text at its first use.
func (e *encoder) text(s string) {
	if n, ok := e.texts[s]; ok {
		e.uint(n)
		return
	}
	e.texts[s] = uint64(len(e.texts) + 1)
	e.uint(0)
	e.raw(s)
}

func (e *encoder) target(t *target) {
	if n, ok := e.targets[*t]; ok {
		e.uint(n)
		return
	}
	e.targets[*t] = uint64(len(e.targets) + 1)
	e.uint(0)
	for _, s := range t.texts() {
		e.text(*s)
	}
	e.b = append(e.b, byte(t.component), byte(t.method))
}

func (e *encoder) charge(c *Charge) {
	n, ok := e.charged[c.texts]
	e.uint(n)
	if !ok {
		e.charged[c.texts] = uint64(len(e.charged) + 1)
		for _, s := range c.texts {
			e.text(s)
		}
	}
	for _, s := range c.numbers {
		e.raw(s)
	}
}

func (t *target) texts() [12]*string {
	return [...]*string{
		&t.workspace, &t.cluster, &t.deployment, &t.hardware.GPUModel, (*string)(&t.hardware.Billing),
		&t.place.region, &t.place.provider, &t.place.providerClass, &t.place.workload,
		&t.place.owner, &t.place.costCentre, &t.place.entity,
	}
}

// lineTexts are the texts of a line that repeat, in the order of the form.
func lineTexts(l *attribution.Line) [16]*string {
	return [...]*string{
		&l.Issuer, &l.Account, &l.Invoice, &l.Detail, &l.Currency, &l.ClassReason, &l.Category, &l.Resource,
		&l.Region, &l.SKU, &l.Commitment, &l.MeterReason, &l.Product, &l.UnusableQuantity,
		&l.To, &l.ToRule,
	}
}

func lineTimes(l *attribution.Line) [4]*domain.Instant {
	return [...]*domain.Instant{
		&l.BillingPeriod.From, &l.BillingPeriod.To, &l.ChargePeriod.From, &l.ChargePeriod.To,
	}
}

func (e *encoder) putLine(l *attribution.Line) {
	e.raw(l.ID)
	e.raw(l.Corrects)
	for _, s := range lineTexts(l) {
		e.text(*s)
	}
	for _, t := range lineTimes(l) {
		e.int(int64(*t))
	}
	flags := byte(0)
	for _, f := range [...]struct {
		set  bool
		flag byte
	}{{l.Unused, lineUnused}, {l.Recurring, lineRecurring}, {l.Generated, lineGenerated}, {l.Number == 0, lineAdded}} {
		if f.set {
			flags |= f.flag
		}
	}
	e.b = append(e.b, byte(l.Class), byte(l.Meter), byte(l.Alone), flags)
	e.b = l.Effective.AppendBytes(l.Billed.AppendBytes(e.b))
	e.int(l.NodeMs)
	e.int(l.GPUMs)
}

// end writes what follows the records.
func (e *encoder) end(s *Summary) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write the summary of a month: %w", err)
	}
	if bytes.Contains(text, []byte(`\ufffd`)) { // what is written for a byte that is not UTF-8
		return fmt.Errorf("%w: of an exception or an invoice", ErrText)
	}
	e.b = append(e.b, 0)
	e.uint(e.records)
	e.b = append(e.b, text...)
	e.b = binary.BigEndian.AppendUint64(e.b, uint64(len(text)))
	if err := e.flush(); err != nil {
		return err
	}
	return e.w.Flush()
}

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
	end, err := f.Seek(-8, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("%w: it has no end", ErrCanonical)
	}
	var size [8]byte
	if _, err := io.ReadFull(f, size[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint64(size[:])
	if n > uint64(end) {
		return 0, fmt.Errorf("%w: a summary of %d bytes in %d", ErrCanonical, n, end)
	}
	if _, err := f.Seek(end-int64(n), io.SeekStart); err != nil {
		return 0, err
	}
	dec := json.NewDecoder(io.LimitReader(f, int64(n)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		return 0, fmt.Errorf("%w: its summary: %w", ErrCanonical, err)
	}
	if s.Format != CanonicalFormat {
		return 0, fmt.Errorf("%w: its format is %.100q, this program reads %q", ErrCanonical, s.Format, CanonicalFormat)
	}
	return int(n), nil
}

// each calls yield with every allocation of the month, which is reused after yield returns.
func (o Open) each(month domain.Instant, yield func(*part) error) (err error) {
	f, err := o()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := &decoder{r: bufio.NewReaderSize(f, 1<<16)}
	magic := make([]byte, len(CanonicalFormat)+1)
	if _, err := io.ReadFull(r.r, magic); err != nil || string(magic) != CanonicalFormat+"\n" {
		return fmt.Errorf("%w: it begins with %.100q", ErrCanonical, magic)
	}
	at := part{allocation: &attribution.Allocation{}, month: month}
	var prices pricing
	for {
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
}

// decoder reads the canonical form.
type decoder struct {
	r       *bufio.Reader
	texts   []string
	targets []target
	charged []*[chargeTexts]string
	line    *attribution.Line
	charge  *Charge
	lines   uint32
	of      attribution.Amount
	hour    domain.Instant
	records uint64
	err     error
}

func (r *decoder) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *decoder) byte() byte {
	b, err := r.r.ReadByte()
	if err != nil {
		r.fail("it ends: %w", err)
	}
	return b
}

func (r *decoder) uint() uint64 {
	n, err := binary.ReadUvarint(r.r)
	if err != nil {
		r.fail("a number: %w", err)
	}
	return n
}

func (r *decoder) int() int64 {
	n, err := binary.ReadVarint(r.r)
	if err != nil {
		r.fail("a number: %w", err)
	}
	return n
}

func (r *decoder) amount() attribution.Amount {
	head := r.byte()
	n, ok := attribution.BytesAfter(head)
	if !ok || r.err != nil {
		r.fail("%x begins no amount", head)
		return attribution.Amount{}
	}
	b, err := r.r.Peek(n)
	if err != nil {
		r.fail("an amount: %w", err)
		return attribution.Amount{}
	}
	a, err := attribution.AmountOfBytes(head, b)
	if err != nil {
		r.fail("%w", err)
	}
	if _, err := r.r.Discard(n); err != nil {
		r.fail("an amount: %w", err)
	}
	return a
}

func (r *decoder) raw() string {
	n := r.uint()
	if r.err != nil || n > mostText {
		r.fail("a text of %d bytes", n)
		return ""
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.r, b); err != nil {
		r.fail("a text: %w", err)
	}
	return string(b)
}

func (r *decoder) text() string {
	n := r.uint()
	switch {
	case r.err != nil:
		return ""
	case n == 0:
		r.texts = append(r.texts, r.raw())
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
	if flags&isRecord == 0 || flags&^(isRecord|newLine|oneAmount|sameOf) != 0 || r.records == 0 && (flags&newLine == 0 || flags&sameOf != 0) {
		r.fail("it begins with %x", flags)
		return false
	}
	l := p.allocation
	if flags&newLine != 0 {
		r.line = &attribution.Line{}
		r.lines++
		r.charge = noCharge
		if added := r.getLine(r.line); !added {
			r.line.Number = r.lines
			r.charge = r.getCharge()
		}
	}
	l.Line, p.keptCharge = r.line, r.charge
	n := r.uint()
	switch {
	case r.err != nil:
		return false
	case n == 0:
		r.targets = append(r.targets, r.target())
		n = uint64(len(r.targets))
	case n > uint64(len(r.targets)):
		r.fail("target %d of %d", n, len(r.targets))
		return false
	}
	t := &r.targets[n-1]
	l.Workspace, l.Cluster, l.Deployment, l.Component, l.MatchMethod, l.Hardware = t.workspace, t.cluster, t.deployment, t.component, t.method, t.hardware
	p.kept = &t.place
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
	if r.err != nil {
		return false
	}
	r.records++
	return true
}

func (r *decoder) getCharge() *Charge {
	n := r.uint()
	switch {
	case r.err != nil:
		return noCharge
	case n == 0:
		texts := &[chargeTexts]string{}
		for i := range texts {
			texts[i] = r.text()
		}
		r.charged = append(r.charged, texts)
		n = uint64(len(r.charged))
	case n > uint64(len(r.charged)):
		r.fail("charge %d of %d", n, len(r.charged))
		return noCharge
	}
	c := &Charge{texts: r.charged[n-1]}
	for i := range c.numbers {
		c.numbers[i] = r.raw()
	}
	return c
}

func (r *decoder) target() (t target) {
	for _, s := range t.texts() {
		*s = r.text()
	}
	t.component, t.method = attribution.Component(r.byte()), attribution.MatchMethod(r.byte())
	return t
}

// getLine reports whether attribution added the line.
func (r *decoder) getLine(l *attribution.Line) (added bool) {
	l.ID, l.Corrects = r.raw(), r.raw()
	for _, s := range lineTexts(l) {
		*s = r.text()
	}
	for _, t := range lineTimes(l) {
		*t = domain.Instant(r.int())
	}
	l.Class, l.Meter, l.Alone = attribution.Class(r.byte()), attribution.Meter(r.byte()), attribution.Meter(r.byte())
	flags := r.byte()
	l.Unused, l.Recurring, l.Generated = flags&lineUnused != 0, flags&lineRecurring != 0, flags&lineGenerated != 0
	l.Billed, l.Effective = r.amount(), r.amount()
	l.NodeMs, l.GPUMs = r.int(), r.int()
	return flags&lineAdded != 0
}
