package costs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
)

// The canonical form of a divided month is a sequence of bytes that says all that [Division] knows, and
// nothing about the position: equal divisions have equal bytes, so their SHA-256 names them. It is:
//
//  1. the line [CanonicalFormat];
//  2. a record for each allocation, in the order of [attribution.Run];
//  3. a zero byte and the number of records;
//  4. the index of blocks (see canonical_blocks.go);
//  5. what the records add up to, for each target and currency;
//  6. the [Summary] in JSON;
//  7. the lengths of these three in eight bytes each, most significant first.
//
// A record begins with a byte of flags. The line and its [Charge] follow if it is not that of the record before; then
// what the allocation is for, by number, with its texts at the first use; the hour, as the difference
// from the record before; amounts in the form of [attribution.Amount.AppendBytes]; GPU times; and the holders. Numbers
// are varints. Texts that repeat are numbered in the order of their first use. See [encoder.holders]. Records are in
// blocks: nothing that was written before a block is referred to in it.

// CanonicalFormat is the version of the canonical form.
const CanonicalFormat = "quartermaster.allocations/12"

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
	newBlock  = 1 << 3 // a block begins, which is not the first
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

// target returns what an allocation is for.
func (p *part) target() target {
	l := p.allocation
	return target{l.Workspace, l.Cluster, l.Deployment, l.Component, l.MatchMethod, l.Hardware, p.at()}
}

// set says what a kept allocation is for.
func (t *target) set(p *part) {
	l := p.allocation
	l.Workspace, l.Cluster, l.Deployment, l.Component, l.MatchMethod, l.Hardware = t.workspace, t.cluster, t.deployment, t.component, t.method, t.hardware
	p.kept = &t.place
}

// WriteCanonical divides a month, and writes its canonical form. Memory grows with lines, nodes and units on nodes, not
// with allocations. It returns what was read.
func WriteCanonical(view projections.View, month domain.Interval, w io.Writer) (*projections.Reads, *Summary, error) {
	recorded, reads := projections.Record(view)
	e := newEncoder(w)
	e.sums, e.blocks = newTargetCosts(), &blocks{}
	e.b = append(e.b, CanonicalFormat+"\n"...)
	if err := e.flush(); err != nil {
		return nil, nil, err
	}
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
	held    heldNumbers
	sums    *targetCosts // nil: none are written
	blocks  *blocks      // nil: all is one block
	bad     string       // a text that is not UTF-8
}

func newEncoder(w io.Writer) *encoder {
	e := &encoder{w: bufio.NewWriterSize(w, 1<<16)}
	e.forget()
	return e
}

// forget forgets everything that a record may refer to.
func (e *encoder) forget() {
	e.texts, e.targets, e.charged = map[string]uint64{}, map[target]uint64{}, map[*[chargeTexts]string]uint64{}
	e.held, e.of, e.hour = newHeldNumbers(), attribution.Amount{}, 0
}

func (e *encoder) allocation(p *part) error {
	l := p.allocation
	if l.Hour%domain.Hour != 0 {
		return fmt.Errorf("the hour of allocation %s is not a whole hour", l.Ref())
	}
	flags := byte(isRecord)
	first := e.records == 0 // of a block
	if first || *l.Line != e.line {
		flags |= newLine
		if e.blocks != nil {
			if e.blocks.full() {
				flags |= newBlock
				first = true
				e.forget()
				e.sums.forget()
			}
			e.blocks.line(l.Line, first)
		}
	}
	if l.Billed == l.Effective {
		flags |= oneAmount
	}
	if !first && l.Of == e.of {
		flags |= sameOf
	}
	e.b = append(e.b, flags)
	if flags&newLine != 0 {
		e.line = *l.Line
		e.held.next()
		e.putLine(&e.line)
		if l.Line.Number != 0 {
			e.charge(p.charge())
		}
	}
	of := p.target()
	n := e.target(&of)
	if e.sums != nil {
		e.sums.add(n, &of, p)
	}
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
	e.holders(l)
	e.records++
	e.blocks.record()
	if e.bad != "" {
		return fmt.Errorf("%w: %q of allocation %s", ErrText, e.bad, l.Ref())
	}
	return e.flush()
}

func (e *encoder) flush() error {
	e.blocks.wrote(len(e.b))
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

// target writes the number of a target, or 0 and the target at its first use. It returns the number.
func (e *encoder) target(t *target) uint64 {
	if n, ok := e.targets[*t]; ok {
		e.uint(n)
		return n
	}
	n := uint64(len(e.targets) + 1)
	e.targets[*t] = n
	e.uint(0)
	for _, s := range t.texts() {
		e.text(*s)
	}
	e.b = append(e.b, byte(t.component), byte(t.method))
	return n
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

func (t *target) texts() [13]*string {
	return [...]*string{
		&t.workspace, &t.cluster, &t.deployment, &t.hardware.GPUModel, (*string)(&t.hardware.Billing),
		&t.place.region, &t.place.provider, &t.place.providerClass, &t.place.workload, &t.place.model,
		&t.place.owner, &t.place.costCentre, &t.place.entity,
	}
}

// lineTexts are the texts of a line that repeat, in the order of the form.
func lineTexts(l *attribution.Line) [17]*string {
	return [...]*string{
		&l.Issuer, &l.Account, &l.Invoice, &l.Detail, &l.Currency, &l.ClassReason, &l.Category, &l.Resource,
		&l.Region, &l.SKU, &l.Commitment, &l.MeterReason, &l.Product, &l.UnusableQuantity,
		&l.To, &l.ToRule, &l.Node,
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
	matching := l.Matching.Bytes()
	e.b = append(e.b, matching[:]...)
	e.uint(uint64(l.Matching.Group))
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
	sums, err := e.sums.section()
	if err != nil {
		return err
	}
	index := e.blocks.section()
	e.b = append(e.b, 0)
	e.uint(e.records)
	e.b = append(append(append(e.b, index...), sums...), text...)
	e.b = binary.BigEndian.AppendUint64(e.b, uint64(len(index)))
	e.b = binary.BigEndian.AppendUint64(e.b, uint64(len(sums)))
	e.b = binary.BigEndian.AppendUint64(e.b, uint64(len(text)))
	if err := e.flush(); err != nil {
		return err
	}
	return e.w.Flush()
}
