package focus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// Values of x_InvoiceIssuerNameSource: which rows named the issuer of a row that names none. The
// suffix withProvider means that only those rows with the same provider counted. If a column
// named the issuer, the value is the name of the column.
const (
	issuerOfInvoice = "Invoice"
	issuerOfPeriod  = "AccountAndPeriod"
	withProvider    = "AndProvider"
)

// Elsewhere finds issuers that a file does not name, in the files imported with it and in the
// ledger. It reads them at the first row that names no issuer and caches the result. Consecutive
// runs should share it.
type Elsewhere struct {
	// Files are the parts of the bill. The file being imported may be among them.
	Files []File
	// Lines calls yield with every ledger line of the month of a billing period, until yield
	// returns an error. It may reuse the line after yield returns.
	Lines func(ctx context.Context, period domain.Interval, yield func(*domain.BillingLine) error) error

	found   *issuers // nil until needed
	periods map[domain.Interval]bool
}

// File is a file that can be opened from its beginning.
type File struct {
	Name string
	Open func() (io.ReadCloser, error)
}

// issuers has the issuers that rows name: by billing account and invoice, by billing account and
// billing period, and by each of them with a provider.
type issuers struct {
	names []string // without duplicates
	known map[string]int32
	files []string // "" is the file being imported
	of    map[rowKey]attested
	// lines are the ledger lines whose issuer was inferred, by account and id.
	lines map[rowKey]inferred
	// last is the key of the previous row, because most rows repeat it.
	last    []byte
	scratch []byte
}

// attested are the issuers that rows of one invoice, or of one account and period, name: the
// first one and the first one that differs from it.
type attested struct{ first, other witness }

// witness is a row that names an issuer. The zero value means none.
type witness struct {
	name, file int32 // indices in issuers.names and files; file -1 is the ledger
	line       int32
}

// inferred is the inferred issuer of a ledger line, as indices in issuers.names.
type inferred struct{ name, source int32 }

const inLedger = -1

// Limits of issuers. The length is that of an identifier.
const (
	maxIssuers     = 1 << 16
	maxIssuerBytes = 256
)

func newIssuers() *issuers {
	return &issuers{known: map[string]int32{}, of: map[rowKey]attested{}, lines: map[rowKey]inferred{}}
}

// inferIssuer sets the issuer of a row that names none; see the package comment.
func (ls *lines) inferIssuer(l *line) error {
	period := domain.Interval{From: l.BillingPeriodStart, To: l.BillingPeriodEnd}
	line := ls.line // reading a header changes it
	beside, err := ls.opts.Elsewhere.issuers(ls.run, period)
	if err == nil && ls.issuers == nil {
		ls.issuers = newIssuers()
		if ls.again == nil {
			err = errors.New("the file cannot be read again")
		} else {
			err = ls.readIssuers(ls.issuers, ls.again, "")
		}
	}
	ls.line = line
	if err != nil {
		return fmt.Errorf("find the issuer of a row that names none: %w", err)
	}
	// A row that is in the ledger keeps its issuer, whatever was imported since.
	if was, ok := beside.lines[lineIssuerKey(l.BillingAccountID, ls.rowID())]; ok {
		name := beside.names[was.name]
		ls.warn("InvoiceIssuerName is null and is taken from the line that the ledger has of the row", name)
		ls.issuedBy(l, name, beside.names[was.source])
		return nil
	}
	provider, unclear := l.ServiceProviderName, ""
	for _, by := range []struct {
		source, what string
		key          func(provider string) rowKey
		ok           bool
	}{
		{
			source: issuerOfInvoice,
			what:   "the invoice",
			key:    func(p string) rowKey { return invoiceIssuerKey(l.BillingAccountID, l.InvoiceID, p) },
			ok:     l.InvoiceID != "",
		},
		{
			source: issuerOfPeriod,
			what:   "the billing account and period",
			key:    func(p string) rowKey { return periodIssuerKey(l.BillingAccountID, period, p) },
			ok:     true,
		},
	} {
		for _, is := range []*issuers{ls.issuers, beside} {
			at, found := is.of[by.key("")]
			if !by.ok || !found {
				continue
			}
			source, what := by.source, by.what
			if at.several() {
				two := fmt.Sprintf("the other rows of %s name two issuers, %s and %s", what, is.text(at.first), is.text(at.other))
				unclear = cmp.Or(unclear, two)
				if at, found = is.of[by.key(provider)]; provider == "" || !found || at.several() {
					break
				}
				source, what = source+withProvider, what+" with the same provider"
			}
			name := is.names[at.first.name]
			ls.warn("InvoiceIssuerName is null and is taken from the other rows of "+what, name)
			ls.issuedBy(l, name, source)
			return nil
		}
	}
	for _, column := range []string{columnProvider, columnServiceProvider, columnPublisher} {
		if v := ls.value(column); v != "" {
			reason := "InvoiceIssuerName is null and is taken from " + column
			if unclear != "" {
				reason += ", because other rows of its invoice, or of its account and period, name two issuers"
			}
			ls.warn(reason, v)
			ls.issuedBy(l, v, column)
			return nil
		}
	}
	if unclear != "" {
		return ls.refuse("InvoiceIssuerName", "is null, and "+unclear+"; set it in the row")
	}
	return ls.refuse("InvoiceIssuerName", "is null, and neither another row nor another column names the issuer of the invoice")
}

func (ls *lines) issuedBy(l *line, name, source string) {
	l.InvoiceIssuerName = name
	ls.add(columnIssuerSource, source)
}

// issuers returns the issuers that may concern a billing period.
func (e *Elsewhere) issuers(r *run, period domain.Interval) (*issuers, error) {
	if e == nil {
		return &issuers{}, nil
	}
	if e.found == nil {
		found := newIssuers()
		for _, f := range e.Files {
			if err := r.readOther(found, f); err != nil {
				return nil, fmt.Errorf("read %s: %w", f.Name, err)
			}
		}
		e.found, e.periods = found, map[domain.Interval]bool{}
	}
	if e.Lines != nil && !e.periods[period] {
		err := e.Lines(r.ctx, period, func(l *domain.BillingLine) error { return e.found.line(l) })
		if err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		e.periods[period] = true
	}
	return e.found, nil
}

// readOther adds the issuers of another file. It ignores a file that is not a dataset.
func (r *run) readOther(into *issuers, f File) error {
	file, err := f.Open()
	if err != nil {
		return err
	}
	defer file.Close()
	if err := r.readIssuers(into, file, f.Name); err != nil && !errors.Is(err, ErrColumns) {
		return err
	}
	return nil
}

// readIssuers adds the issuers of a file. A bad row counts too, provided that it has the right
// number of fields.
func (r *run) readIssuers(into *issuers, file io.Reader, name string) error {
	rs, header, err := r.table(file)
	if err != nil {
		return err
	}
	at := map[string]int{}
	for i, column := range header {
		at[fold(column)] = i
	}
	if _, ok := at[fold("InvoiceIssuerName")]; !ok {
		return nil
	}
	into.files = append(into.files, name)
	for {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		rec, err := rs.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", rec.Line, err)
		}
		if rec.Broken != nil || len(rec.Fields) != len(header) {
			continue
		}
		value := func(column string) string {
			i, ok := at[fold(column)]
			if !ok {
				return ""
			}
			return notNull(rec.Fields[i])
		}
		said := attestation{
			issuer: value("InvoiceIssuerName"), account: value("BillingAccountId"), invoice: value("InvoiceId"),
			provider: cmp.Or(value(columnServiceProvider), value(columnProvider)),
		}
		start, why := r.clock.parse(value("BillingPeriodStart"))
		end, why2 := r.clock.parse(value("BillingPeriodEnd"))
		if why == "" && why2 == "" {
			said.period = domain.Interval{From: start, To: end}
		}
		if err := into.add(&said, witness{file: int32(len(into.files) - 1), line: lineNumber(rec.Line)}); err != nil {
			return err
		}
	}
}

// line adds the issuer of a ledger line.
func (is *issuers) line(l *domain.BillingLine) error {
	source := l.Other[columnIssuerSource]
	if source == "" {
		return is.add(&attestation{
			issuer: l.InvoiceIssuerName, account: l.BillingAccountID, invoice: l.InvoiceID, provider: l.ServiceProviderName,
			period: domain.Interval{From: l.BillingPeriodStart, To: l.BillingPeriodEnd},
		}, witness{file: inLedger})
	}
	name, err := is.name(l.InvoiceIssuerName)
	if err != nil {
		return err
	}
	from, err := is.name(source)
	if err != nil {
		return err
	}
	key := lineIssuerKey(l.BillingAccountID, l.LineID)
	if _, known := is.lines[key]; !known {
		is.lines[key] = inferred{name, from}
	}
	return nil
}

// attestation is the issuer that a row names, with the keys that it counts for.
type attestation struct {
	issuer, account, invoice, provider string
	period                             domain.Interval
}

func (is *issuers) add(s *attestation, w witness) error {
	if s.issuer == "" || s.account == "" || len(s.issuer) > maxIssuerBytes {
		return nil
	}
	is.scratch = fmt.Appendf(
		is.scratch[:0], "%s\x00%s\x00%s\x00%s\x00%d\x00%d",
		s.issuer, s.account, s.invoice, s.provider, s.period.From, s.period.To,
	)
	if string(is.scratch) == string(is.last) {
		return nil
	}
	is.last, is.scratch = is.scratch, is.last
	var err error
	if w.name, err = is.name(s.issuer); err != nil {
		return err
	}
	for _, provider := range []string{"", s.provider} {
		if s.invoice != "" {
			is.attest(invoiceIssuerKey(s.account, s.invoice, provider), w)
		}
		if s.period != (domain.Interval{}) {
			is.attest(periodIssuerKey(s.account, s.period, provider), w)
		}
	}
	return nil
}

func (is *issuers) attest(key rowKey, w witness) {
	at, ok := is.of[key]
	switch {
	case !ok:
		is.of[key] = attested{first: w}
	case !at.several() && at.first.name != w.name:
		at.other = w
		is.of[key] = at
	}
}

func (a *attested) several() bool { return a.other != witness{} }

func (is *issuers) name(s string) (int32, error) {
	id, ok := is.known[s]
	if !ok {
		if len(is.names) == maxIssuers {
			return 0, fmt.Errorf("%w: it names more than %d issuers", tabular.ErrTooLarge, maxIssuers)
		}
		id = int32(len(is.names))
		s = strings.Clone(s)
		is.known[s] = id
		is.names = append(is.names, s)
	}
	return id, nil
}

// text describes a witness: the issuer and the row that names it.
func (is *issuers) text(w witness) string {
	text := fmt.Sprintf("%q in ", tabular.Clip(is.names[w.name]))
	switch {
	case w.file == inLedger:
		return text + "the ledger"
	case is.files[w.file] != "":
		return text + fmt.Sprintf("line %d of %s", w.line, is.files[w.file])
	}
	return text + fmt.Sprintf("line %d", w.line)
}

func invoiceIssuerKey(account, invoice, provider string) rowKey {
	return keyOf([]byte("invoice\x00" + account + "\x00" + invoice + "\x00" + provider))
}

func periodIssuerKey(account string, period domain.Interval, provider string) rowKey {
	return keyOf(fmt.Appendf(nil, "period\x00%s\x00%d\x00%d\x00%s", account, period.From, period.To, provider))
}

func lineIssuerKey(account, id string) rowKey {
	return keyOf([]byte("line\x00" + account + "\x00" + id))
}

// notNull returns a value without surrounding blanks, or "" if it is null.
func notNull(v string) string {
	if v = strings.TrimSpace(v); isNull(v) {
		return ""
	}
	return v
}
