package costs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// Journal has the entries of a closed month for a general ledger. The debits of each document equal its credits, and
// so do those of each entity and currency.
type Journal struct {
	Month   domain.Interval `json:"period"`
	Entries []JournalEntry  `json:"entries"` // by document and line
	Totals  []JournalTotal  `json:"totals"`  // by entity and currency
	// Translation has the rates of a journal in the currency of the books; null if it is in those that were billed.
	Translation *Translation `json:"translation"`

	accruals map[invoicePart]*openAccrual // that the journal of the next month takes back
}

// JournalEntry is a line of the journal. One of Debit and Credit is zero.
type JournalEntry struct {
	// Document groups the lines that balance: those of one entity, statement, invoice and currency.
	Document string `json:"document"`
	Line     int    `json:"line"` // within the document, from 1
	// ID is derived from the close and from what the line says. So loading a line twice can be recognized.
	ID         string            `json:"external_id"`
	Entity     string            `json:"entity"`
	Date       domain.Instant    `json:"date"` // the last day of the month; the first one if it takes back an accrual
	Account    string            `json:"account"`
	CostCenter string            `json:"cost_center"` // empty for balance sheet accounts
	Debit      attribution.Minor `json:"debit"`
	Credit     attribution.Minor `json:"credit"`
	Currency   string            `json:"currency"`
	// Billed is the debit less the credit in the currency that was billed, in a journal in that of the books. It is 0 for
	// differences of exchange rates.
	Billed         *attribution.Minor `json:"billed,omitempty"`
	BilledCurrency string             `json:"billed_currency,omitempty"`
	Text           string             `json:"description"`
	// Counterparty is the other entity of an amount that is due to or from it.
	Counterparty string `json:"counterparty,omitempty"`

	Issuer    string `json:"issuer"`
	Invoice   string `json:"invoice"`   // empty: none yet
	Statement string `json:"statement"` // of the workspace
	// Corrects is the earlier month that a posting is about.
	Corrects string `json:"corrects,omitempty"`
	// ReversalDate is the day on which an accrual is taken back: the first one of the next month. Its journal has the
	// entries that do it, and Reverses is the document that they take back.
	ReversalDate domain.Instant `json:"reversal_date,omitzero"`
	Reverses     string         `json:"reverses,omitempty"`
}

// Amount is the debit less the credit.
func (e *JournalEntry) Amount() attribution.Minor { return e.Debit.Sub(e.Credit) }

// JournalTotal is the sum of the entries of an entity in a currency.
type JournalTotal struct {
	Entity   string            `json:"entity"`
	Currency string            `json:"currency"`
	Entries  int               `json:"entries"`
	Debit    attribution.Minor `json:"debit"`
	Credit   attribution.Minor `json:"credit"`
}

// JournalInput is what a journal is made of.
type JournalInput struct {
	Division *Division // of the closed month
	Posted   []Posting // into the month, about earlier ones
	Before   *Journal  // of the closed month before, whose accruals are taken back; nil: there are none
	Chart    *Chart
	Close    string // names the close in external ids: its digest
	// Statement returns the number of a workspace's statement of a month, such as 2026-05.
	Statement func(month, workspace string) (string, error)
	// Rates are those that the month was closed with, and make a journal in the currency of the books; nil makes one in
	// the currencies that were billed. Earlier has those of an earlier month, nil for none: they translate postings
	// about it that the rates of this month do not.
	Rates   *Rates
	Earlier func(month string) (*Rates, error)
}

// MissingAccountsError lists what the chart of accounts does not say. The user declares it.
type MissingAccountsError struct{ Missing []string }

func (e *MissingAccountsError) Error() string {
	return "the chart of accounts has no\n  " + strings.Join(e.Missing, "\n  ")
}

// journalShare is a part of a statement: what was billed and used of costs that the chart treats alike.
type journalShare struct {
	values            map[string]string
	line              attribution.Line // of the first
	component         attribution.Component
	ownership         // of the workspace in the hours that it was charged for
	billed, effective attribution.Amount
	books             translatedShare
}

// journalSlip is what becomes documents together: a workspace's part of an invoice, or of the corrections of a statement.
type journalSlip struct {
	month, workspace, currency, issuer, account, invoice string
	shares                                               map[string]*journalShare
	total                                                attribution.Minor
	stated                                               attribution.Amount // what statements say, exactly
	typ                                                  string
	fixed                                                bool // the total is known, and not a part of the note
}

type slipKey struct{ month, typ, workspace, currency, issuer, account, invoice string }

func (k slipKey) compare(o slipKey) int {
	return cmp.Or(strings.Compare(k.month, o.month), strings.Compare(k.typ, o.typ), strings.Compare(k.currency, o.currency),
		strings.Compare(k.issuer, o.issuer), strings.Compare(k.account, o.account), strings.Compare(k.invoice, o.invoice),
		strings.Compare(k.workspace, o.workspace))
}

// NewJournal makes the journal of a closed month: what it was billed and what was used, and the postings about earlier
// months. Amounts are in minor units, rounded once: those of a workspace's part of an invoice add up to its statement,
// and those of corrections to the note about the statement that they correct. It returns a [*MissingAccountsError] if
// the chart of accounts lacks something.
func NewJournal(in *JournalInput) (*Journal, error) {
	slips := map[slipKey]*journalSlip{}
	j := &journalMaker{in: in, missing: map[string]bool{}, lines: map[journalLine]*booked{}, documents: map[journalLine]string{}}
	j.problems, j.posted = map[string]bool{}, NewPostingRates(in.Rates, in.Earlier)
	add := func(k slipKey, p *part) error {
		s := slips[k]
		if s == nil {
			s = &journalSlip{
				month: k.month, workspace: k.workspace, currency: k.currency, issuer: k.issuer, account: k.account,
				invoice: k.invoice, typ: k.typ, shares: map[string]*journalShare{},
			}
			slips[k] = s
		}
		return j.translate(s, s.add(in.Chart, p), p)
	}
	month := monthText(in.Division.Month)
	err := in.Division.each(func(p *part) error {
		l := p.allocation.Line
		return add(slipKey{month, "", p.allocation.Workspace, l.Currency, l.Issuer, l.Account, l.Invoice}, p)
	})
	if err != nil {
		return nil, err
	}
	for i := range in.Division.Statements {
		st := &in.Division.Statements[i]
		s := slips[slipKey{month, "", st.Workspace, st.Currency, st.Issuer, st.Account, st.Invoice}]
		if s == nil {
			if st.Billed.IsZero() && st.Amount.Amount.IsZero() {
				continue
			}
			return nil, fmt.Errorf("the statement of %s for %s of %s has no allocations", st.Workspace, st.Invoice, st.Issuer)
		}
		// Lines without an invoice have a statement for each billing period.
		s.total = attribution.Minor{Amount: s.total.Amount.Add(st.Amount.Amount), Decimals: st.Amount.Decimals}
		s.stated = s.stated.Add(st.Billed)
	}
	for _, s := range slips {
		if billed, _ := s.sums(); billed != s.stated {
			return nil, fmt.Errorf("the statements of %s for %s of %s have %s, their allocations %s", s.workspace, s.invoice, s.issuer, s.stated, billed)
		}
	}
	if err := in.post(add); err != nil {
		return nil, err
	}
	ended := in.reversedByPostings(slips)
	totalPostings(slips)
	books := make([]slipBooks, 0, len(slips))
	for _, k := range slices.SortedFunc(maps.Keys(slips), slipKey.compare) {
		if k.typ == "" || !ended[k.part()] {
			books = append(books, j.book(slips[k]))
		}
	}
	footBalances(books)
	for i := range books {
		if err := j.enter(&books[i]); err != nil {
			return nil, err
		}
	}
	j.reverse(ended)
	if err := j.toBooks(); err != nil {
		return nil, err
	}
	if len(j.missing) > 0 {
		return nil, &MissingAccountsError{slices.Sorted(maps.Keys(j.missing))}
	}
	out, err := j.journal()
	if err != nil {
		return nil, err
	}
	j.keepAccruals(out, slips, ended)
	return out, nil
}

func (s *journalSlip) add(c *Chart, p *part) *journalShare {
	values := c.values(p)
	var key strings.Builder
	own := p.ownership()
	own.owner = "" // of no account
	fmt.Fprintf(&key, "%d %d\x00%s\x00%s", p.allocation.Component, p.allocation.Line.Class, own.costCentre, own.entity)
	for _, name := range c.columns {
		key.WriteByte(0)
		key.WriteString(values[name])
	}
	of := s.shares[key.String()]
	if of == nil {
		of = &journalShare{values: values, line: *p.allocation.Line, component: p.allocation.Component, ownership: own}
		s.shares[key.String()] = of
	}
	of.billed, of.effective = of.billed.Add(p.allocation.Billed), of.effective.Add(p.allocation.Effective)
	return of
}

func (s *journalSlip) sums() (billed, effective attribution.Amount) {
	for _, of := range s.shares {
		billed, effective = billed.Add(of.billed), effective.Add(of.effective)
	}
	return billed, effective
}

// totalPostings rounds the postings about each part of an invoice once, as notes are. What ends an accrual is as it was
// booked; other types of postings have the rest.
func totalPostings(slips map[slipKey]*journalSlip) {
	exact, groups := map[invoicePart]attribution.Amount{}, map[invoicePart][]slipKey{}
	for k, s := range slips {
		if k.typ == "" {
			continue
		}
		of := k.part()
		billed, _ := s.sums()
		exact[of], groups[of] = exact[of].Add(billed), append(groups[of], k)
	}
	for of, total := range footParts(exact) {
		var amounts []attribution.Amount
		var rest []*journalSlip
		slices.SortFunc(groups[of], slipKey.compare)
		for _, k := range groups[of] {
			s := slips[k]
			if s.fixed {
				total = total.Sub(s.total)
				continue
			}
			billed, _ := s.sums()
			amounts, rest = append(amounts, billed), append(rest, s)
		}
		for i, m := range attribution.Foot(amounts, total) {
			rest[i].total = m
		}
	}
}

// post adds the postings, with the lines as they were when they were posted.
func (in *JournalInput) post(add func(slipKey, *part) error) error {
	for i := range in.Posted {
		p := &in.Posted[i]
		at, err := p.part()
		if err != nil {
			return err
		}
		l := at.allocation.Line
		k := slipKey{p.Period, string(p.Type), at.allocation.Workspace, p.Currency, l.Issuer, l.Account, p.Invoice}
		if in.Before.open(k.part()) != nil {
			k.typ = string(PostedAccrual) // its rounding too
		}
		if err := add(k, at); err != nil {
			return err
		}
	}
	return nil
}

// journalLine is where an amount is booked.
type journalLine struct {
	entity, month, typ, workspace, currency, issuer, billing, invoice string // of the document
	stage                                                             stage
	account, center, counterparty                                     string
}

// document returns what the document of a line is of.
func (k journalLine) document() journalLine {
	k.account, k.center, k.counterparty = "", "", ""
	return k
}

type journalMaker struct {
	in         *JournalInput
	missing    map[string]bool // accounts
	lines      map[journalLine]*booked
	documents  map[journalLine]string // their names
	translator translator
	problems   map[string]bool // rates that are missing
	posted     *PostingRates
}

// booked is what a line comes to: a debit, or if below 0 a credit.
type booked struct {
	billed attribution.Minor // in the currency that was billed
	books  booksAmount
}

// post adds an amount to a line.
func (j *journalMaker) post(k journalLine, billed attribution.Minor) *booked {
	sum := j.lines[k]
	if sum == nil {
		sum = &booked{billed: attribution.Minor{Decimals: billed.Decimals}}
		j.lines[k] = sum
	}
	sum.billed = sum.billed.Add(billed)
	return sum
}

// account returns what the chart says, and notes what it does not say.
func (j *journalMaker) account(scope string, s *journalSlip, of *journalShare) string {
	var value string
	var ok bool
	switch scope {
	case domain.LedgerEntity:
		value, ok = j.in.Chart.entity(of.ownership, s.workspace)
	case domain.LedgerPayable, domain.LedgerAccrued:
		values := maps.Clone(of.values)
		delete(values, workspaceColumn)
		value, ok = j.in.Chart.find(scope, values)
	default:
		value, ok = j.in.Chart.find(scope, of.values)
	}
	if scope == domain.LedgerCostCenter && !ok {
		value, ok = of.costCentre, of.costCentre != ""
	}
	if !ok {
		what := "workspace " + s.workspace
		switch scope {
		case domain.LedgerEntity:
		case domain.LedgerPayable, domain.LedgerAccrued:
			what = fmt.Sprintf("issuer %s, account %s", s.issuer, s.account)
		default:
			what = fmt.Sprintf("component %s, %s, issuer %s, workspace %s", of.component, cmp.Or(of.line.Category, "no charge category"), s.issuer, s.workspace)
		}
		j.missing[scope+" for "+what] = true
	}
	return value
}

// between returns the account of what an entity bears for another one: due_to or due_from, or else intercompany.
func (j *journalMaker) between(scope string, s *journalSlip, entity string) string {
	values := map[string]string{
		workspaceColumn: s.workspace, entityColumn: entity, "InvoiceIssuerName": s.issuer, "BillingAccountId": s.account,
	}
	for _, of := range []string{scope, domain.LedgerIntercompany} {
		if value, ok := j.in.Chart.find(of, values); ok {
			return value
		}
	}
	j.missing[fmt.Sprintf("%s, nor intercompany, for workspace %s of entity %s", scope, s.workspace, entity)] = true
	return ""
}

// invoiceEntity returns the entity that gets an invoice.
func (j *journalMaker) invoiceEntity(s *journalSlip) string {
	value, ok := j.in.Chart.invoiceEntity(s.issuer, s.account)
	if !ok {
		j.missing["entity for invoices of "+s.issuer+" to account "+s.account] = true
	}
	return value
}

// journalPost is an exact amount and where it goes.
type journalPost struct {
	entity, account, center string
	balance                 bool // prepaid or recoverable tax
	monetary                bool // in the currency of the books at the closing rate, else it is books
	exact, books            attribution.Amount
	rounded                 attribution.Minor
}

// slipBooks are the debits of a slip, for what was used, prepaid or is recoverable, and its credits, for what is owed.
// Expense is that of the entity of the workspace in the hours that were paid for. What is owed, prepaid or recoverable is
// that of the entity that gets the invoice, which is issued.
type slipBooks struct {
	*journalSlip
	issued          string
	debits, credits []journalPost
}

// book says on which accounts a slip is booked.
func (j *journalMaker) book(s *journalSlip) slipBooks {
	b := slipBooks{journalSlip: s, issued: j.invoiceEntity(s)}
	put := func(list []journalPost, p journalPost) []journalPost {
		for i := range list {
			same := p
			if same.exact, same.books, same.rounded = list[i].exact, list[i].books, list[i].rounded; same == list[i] {
				list[i].exact, list[i].books = list[i].exact.Add(p.exact), list[i].books.Add(p.books)
				return list
			}
		}
		return append(list, p)
	}
	for _, key := range slices.Sorted(maps.Keys(s.shares)) {
		of := s.shares[key]
		own, issued := of.books.own, of.books.issued
		entity := j.account(domain.LedgerEntity, s, of)
		if !of.effective.IsZero() {
			p := journalPost{entity: entity, exact: of.effective, books: own.effective}
			switch of.component {
			case attribution.Prepaid:
				p.entity, p.books, p.balance = b.issued, issued.effective, true
				p.account = j.account(domain.LedgerPrepaid, s, of)
			case attribution.RoundingAdjustment:
				p.account = j.account(domain.LedgerRounding, s, of)
			default:
				p.account, p.center = j.account(domain.LedgerExpense, s, of), j.account(domain.LedgerCostCenter, s, of)
			}
			b.debits = put(b.debits, p)
		}
		if rest := of.billed.Sub(of.effective); !rest.IsZero() {
			p := journalPost{entity: b.issued, exact: rest, books: issued.billed.Sub(issued.effective), balance: true}
			switch of.component {
			case attribution.TaxRecoverable:
				p.account, p.monetary = j.account(domain.LedgerTax, s, of), true
			case attribution.RoundingAdjustment:
				p.entity, p.books, p.balance = entity, own.billed.Sub(own.effective), false
				p.account = j.account(domain.LedgerRounding, s, of)
			default:
				p.account = j.account(domain.LedgerPrepaid, s, of)
			}
			b.debits = put(b.debits, p)
		}
		if of.billed.IsZero() {
			continue
		}
		p := journalPost{entity: b.issued, exact: of.billed, books: issued.billed, monetary: true}
		scope := domain.LedgerPayable
		switch {
		case of.line.Class == attribution.Owned:
			scope, p.monetary = domain.LedgerOwned, false
		case s.invoice == "" || isAccrual(s.invoice):
			scope = domain.LedgerAccrued
		}
		p.account = j.account(scope, s, of)
		b.credits = put(b.credits, p)
	}
	if s.total.Decimals == 0 {
		s.total.Decimals = domain.MinorUnits(s.currency)
	}
	return b
}

// footBalances rounds debits. What is prepaid or recoverable is rounded once for each account, entity, currency and month, so
// that what is taken out of an account over all workspaces is what was consumed, and each slip has a part of that. Its
// expense is the rest of its total. A slip without expense has its total on these accounts.
func footBalances(books []slipBooks) {
	type balance struct{ month, typ, currency, entity, account string }
	groups := map[balance][]*journalPost{}
	for i := range books {
		b := &books[i]
		if !slices.ContainsFunc(b.debits, func(p journalPost) bool { return !p.balance }) {
			continue
		}
		for n := range b.debits {
			if p := &b.debits[n]; p.balance {
				k := balance{b.month, b.typ, b.currency, p.entity, p.account}
				groups[k] = append(groups[k], p)
				p.rounded.Decimals = b.total.Decimals
			}
		}
	}
	for k, all := range groups {
		var sum attribution.Amount
		exact := make([]attribution.Amount, len(all))
		for i, p := range all {
			exact[i], sum = p.exact, sum.Add(p.exact)
		}
		for i, m := range attribution.Foot(exact, sum.Minor(k.currency)) {
			all[i].rounded = m
		}
	}
	for i := range books {
		b := &books[i]
		rest, of := b.total, []*journalPost{}
		for n := range b.debits {
			if b.debits[n].balance {
				rest = rest.Sub(b.debits[n].rounded)
			} else {
				of = append(of, &b.debits[n])
			}
		}
		if len(of) == 0 {
			rest = b.total
			for n := range b.debits {
				of = append(of, &b.debits[n])
			}
		}
		footPosts(of, rest)
		of = of[:0:0]
		for n := range b.credits {
			of = append(of, &b.credits[n])
		}
		footPosts(of, b.total)
	}
}

// footPosts rounds amounts so that they add up to a total.
func footPosts(all []*journalPost, total attribution.Minor) {
	exact := make([]attribution.Amount, len(all))
	for i, p := range all {
		exact[i] = p.exact
	}
	for i, m := range attribution.Foot(exact, total) {
		all[i].rounded = m
	}
}

// enter makes the entries of a slip.
func (j *journalMaker) enter(s *slipBooks) error {
	at := stageMonth
	if j.accrues(slipKey{s.month, s.typ, s.workspace, s.currency, s.issuer, s.account, s.invoice}) {
		at = stageAccrue
	}
	post := func(entity, account, center, counterparty string, amount attribution.Minor) *booked {
		k := journalLine{entity, s.month, s.typ, s.workspace, s.currency, s.issuer, s.account, s.invoice, at, account, center, counterparty}
		amount.Decimals = s.total.Decimals
		return j.post(k, amount)
	}
	money := func(entity, account, counterparty string, amount attribution.Minor) { // at the rate of the end of the month
		in := j.closing(entity, s.currency, amount)
		b := post(entity, account, "", counterparty, amount)
		b.books.exact = b.books.exact.Add(in)
	}
	if len(s.debits) == 0 && len(s.credits) > 0 || len(s.credits) == 0 && len(s.debits) > 0 && !s.total.Amount.IsZero() {
		return fmt.Errorf("%s of %s for %s is booked on one side only", s.total, s.workspace, s.invoice)
	}
	zero := attribution.Minor{Decimals: s.total.Decimals}
	for i := range s.debits {
		d := &s.debits[i]
		if d.monetary {
			money(d.entity, d.account, "", d.rounded)
		} else {
			b := post(d.entity, d.account, d.center, "", d.rounded)
			b.books.exact, b.books.balance = b.books.exact.Add(d.books), b.books.balance || d.balance
		}
		if d.entity != s.issued && !d.rounded.Amount.IsZero() {
			money(d.entity, j.between(domain.LedgerDueTo, s.journalSlip, d.entity), s.issued, zero.Sub(d.rounded))
			money(s.issued, j.between(domain.LedgerDueFrom, s.journalSlip, d.entity), d.entity, d.rounded)
		}
	}
	for i := range s.credits {
		c := &s.credits[i]
		if c.monetary {
			money(s.issued, c.account, "", zero.Sub(c.rounded))
			continue
		}
		b := post(s.issued, c.account, "", "", zero.Sub(c.rounded))
		b.books.exact = b.books.exact.Sub(c.books)
	}
	return nil
}

func (k *journalLine) compare(o *journalLine) int {
	return cmp.Or(strings.Compare(k.month, o.month), strings.Compare(k.entity, o.entity), strings.Compare(k.issuer, o.issuer),
		strings.Compare(k.billing, o.billing), strings.Compare(k.invoice, o.invoice), strings.Compare(k.workspace, o.workspace),
		strings.Compare(k.currency, o.currency), strings.Compare(k.typ, o.typ), cmp.Compare(k.stage, o.stage),
		strings.Compare(k.account, o.account), strings.Compare(k.center, o.center), strings.Compare(k.counterparty, o.counterparty))
}

// textsDigest is the SHA-256 of texts, in hexadecimal.
func textsDigest(texts ...string) string {
	h := sha256.New()
	for _, s := range texts {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// journal makes the entries, and checks that they balance and are what was billed and posted.
func (j *journalMaker) journal() (*Journal, error) {
	out := &Journal{Month: j.in.Division.Month, Entries: []JournalEntry{}, Translation: j.in.translation()}
	month := monthText(out.Month)
	keys := slices.SortedFunc(maps.Keys(j.lines), func(a, b journalLine) int { return a.compare(&b) })
	line, document := 0, ""
	for i := range keys {
		k, sum, currency := &keys[i], j.lines[keys[i]].billed, keys[i].currency
		var books []string // in the names of a journal in the currency of the books
		if j.in.Rates != nil {
			currency, sum = j.in.Rates.ofEntity(k.entity).Currency, j.lines[keys[i]].books.booked
			books = []string{BooksCurrencies, currency}
		}
		if sum.Amount.IsZero() {
			continue
		}
		number, err := j.in.Statement(k.month, k.workspace)
		if err != nil {
			return nil, err
		}
		typ := k.typ
		if k.stage == stageReverse {
			typ = "accrual reversal"
		}
		of := textsDigest(append([]string{j.in.Close, month, k.entity, number, typ, k.issuer, k.billing, k.invoice, k.currency}, books...)...)
		if of != document {
			line, document = 0, of
		}
		line++
		name := "QM" + strings.ReplaceAll(month, "-", "") + "-" + strings.ToUpper(of[:11])
		j.documents[k.document()] = name
		zero := attribution.Minor{Decimals: sum.Decimals}
		e := JournalEntry{
			Document: name, Line: line,
			ID: textsDigest(of, k.account, k.center, k.counterparty, sum.String())[:32], Counterparty: k.counterparty,
			Entity: k.entity, Date: out.Month.To - domain.Day, Account: k.account, CostCenter: k.center, Debit: sum, Credit: zero,
			Currency: currency, Issuer: k.issuer, Invoice: k.invoice, Statement: number,
			Text: fmt.Sprintf("%s %s: %s %s", k.month, k.workspace, k.issuer, cmp.Or(k.invoice, "without invoice")),
		}
		if j.in.Rates != nil {
			billed := j.lines[keys[i]].billed
			e.Billed, e.BilledCurrency = &billed, k.currency
		}
		if typ != "" {
			e.Corrects, e.Text = k.month, typ+" of "+e.Text
		}
		switch k.stage {
		case stageReverse:
			e.Date, e.Reverses = out.Month.From, j.in.Before.open(k.part()).documents[k.entity]
		case stageAccrue:
			e.ReversalDate = out.Month.To
		}
		if sum.Amount.Sign() < 0 {
			e.Debit, e.Credit = zero, zero.Sub(sum)
		}
		out.Entries = append(out.Entries, e)
	}
	out.Totals = JournalTotals(out.Entries)
	for i := range out.Totals {
		if t := &out.Totals[i]; t.Debit.Amount != t.Credit.Amount {
			return nil, fmt.Errorf("the journal of %s does not balance: %s debits %s and credits %s %s", month, t.Entity, t.Debit, t.Credit, t.Currency)
		}
	}
	return out, nil
}

// JournalTotals adds up entries by entity and currency.
func JournalTotals(entries []JournalEntry) []JournalTotal {
	out := []JournalTotal{}
	for i := range entries {
		e := &entries[i]
		at, known := slices.BinarySearchFunc(out, e, func(t JournalTotal, e *JournalEntry) int {
			return cmp.Or(strings.Compare(t.Entity, e.Entity), strings.Compare(t.Currency, e.Currency))
		})
		if !known {
			zero := attribution.Minor{Decimals: e.Debit.Decimals}
			out = slices.Insert(out, at, JournalTotal{Entity: e.Entity, Currency: e.Currency, Debit: zero, Credit: zero})
		}
		t := &out[at]
		t.Entries++
		t.Debit, t.Credit = t.Debit.Add(e.Debit), t.Credit.Add(e.Credit)
	}
	return out
}

// Only keeps the entries of an entity; "" keeps all. It returns an error if there are none of the entity.
func (j *Journal) Only(entity string) error {
	if entity == "" {
		return nil
	}
	var known []string
	for i := range j.Totals {
		known = append(known, j.Totals[i].Entity)
	}
	if !slices.Contains(known, entity) {
		slices.Sort(known)
		return fmt.Errorf("%q has no entries; %s", entity, domain.Suggest(entity, slices.Compact(known)))
	}
	j.Entries = slices.DeleteFunc(j.Entries, func(e JournalEntry) bool { return e.Entity != entity })
	j.Totals = slices.DeleteFunc(j.Totals, func(t JournalTotal) bool { return t.Entity != entity })
	return nil
}
