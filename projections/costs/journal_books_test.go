package costs_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// keptIn declares the currency that an entity keeps its books in; "" is for all others.
func keptIn(entity, currency string) domain.Envelope {
	p := &domain.PolicySet{Policy: "books" + entity, Kind: domain.PolicyBooksCurrency, Value: currency, EffectiveFrom: storetest.Start - 400*domain.Day}
	if entity != "" {
		p.Columns = map[string]string{"x_Entity": entity}
	}
	return decided(p)
}

// monthRates declares the average rate of May and the closing rate at its end.
func monthRates(base, quote, average, closing string) []domain.Envelope {
	may := storetest.MayBill
	return []domain.Envelope{
		rateSet(base, quote, average, domain.FXAverage, may),
		rateSet(base, quote, closing, domain.FXClosing, domain.Interval{From: may.To - domain.Day, To: may.To}),
	}
}

// frozenRates are those that May would be closed with now.
func frozenRates(v projections.View, d *costs.Division) (*costs.Rates, *costs.Checklist, error) {
	list, err := costs.NewChecklist(v, d, nil, true, nil)
	if err != nil {
		return nil, nil, err
	}
	r, err := costs.FrozenRates(&domain.ClosePrepared{Period: d.Month, Rates: list.Rates, Translated: list.Translated})
	return r, list, err
}

// us keeps its books in USD and gets an invoice of 7.00 EUR. de keeps its books in EUR, and fr in USD. 1 EUR is 1.10 USD in
// the mean of the month, and 1.20 USD at its end.
func TestJournalInBooks(t *testing.T) {
	l := storetest.NewLog()
	serviceRules(l)
	l.Append(chart()...)
	l.Append(
		account("dt", domain.LedgerDueTo, "2310", nil), account("df", domain.LedgerDueFrom, "1310", nil),
		account("fx", domain.LedgerFX, "7000", nil), account("fx-fr", domain.LedgerFX, "7001", map[string]string{"x_Entity": "fr"}),
		keptIn("", "USD"), keptIn("de", "EUR"),
	)
	l.Append(monthRates("EUR", "USD", "1.1", "1.2")...)
	moved := storetest.MayBill.From + 10*domain.Day
	l.Append(ofEntity("b", "de", storetest.Start-20*domain.Day), ofEntity("b", "fr", moved))
	for id, at := range map[string]domain.Instant{"old": moved - domain.Day, "new": moved, "used": moved} {
		l.Append(recorded(billLine(id, map[string]string{"old": "3", "new": "4", "used": "0"}[id], func(l *domain.BillingLine) {
			l.BillingCurrency, l.ServiceName, l.ChargePeriodStart, l.ChargePeriodEnd = "EUR", "Sb", at, at+domain.Day
			if id == "used" {
				l.EffectiveCost = decimal.NewNullDecimal(storetest.Dec("1"))
			}
		})))
	}
	d := divided(t, l)
	var j *costs.Journal
	storetest.FoldView(t, l, func(v projections.View) {
		rates, list, err := frozenRates(v, d)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Translated) != 2 || list.Translated[1].Entity != "de" || list.Translated[1].Billed.String() != "3" || list.Translated[0].Billed.String() != "7.7" {
			t.Errorf("the month is %+v in the books", list.Translated)
		}
		c, err := costs.ReadChart(v, d.Month)
		if err != nil {
			t.Fatal(err)
		}
		if j, err = costs.NewJournal(&costs.JournalInput{Division: d, Chart: c, Close: "close", Statement: statementOf, Rates: rates}); err != nil {
			t.Fatal(err)
		}
	})
	var got []string
	for _, e := range j.Entries {
		got = append(got, fmt.Sprintf("%s %s %s %s (%s %s) %s", e.Entity, e.Account, e.Amount(), e.Currency, e.Billed, e.BilledCurrency, e.Counterparty))
	}
	want := []string{
		"de 2310 -3.00 EUR (-3.00 EUR) us", "de 6000 3.00 EUR (3.00 EUR) ",
		"fr 2310 -6.00 USD (-5.00 EUR) us", "fr 6000 5.50 USD (5.00 EUR) ", "fr 7001 0.50 USD (0.00 EUR) ",
		"us 1310 3.60 USD (3.00 EUR) de", "us 1310 6.00 USD (5.00 EUR) fr", "us 1400 -1.10 USD (-1.00 EUR) ",
		"us 2000 -8.40 USD (-7.00 EUR) ", "us 7000 -0.10 USD (0.00 EUR) ",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Whatever entities keep their books in, each document balances in that currency, and one whose currency was billed has
// the entries that it has as billed. Expense is what the translated month has, and what is owed is each invoice at
// the closing rate, to a cent of each entry.
func TestJournalInBooksTies(t *testing.T) {
	long.Check(t, 40, 5_000, func(t *rapid.T) {
		l := house()
		for _, env := range chart() {
			if p := env.Event.(*domain.PolicySet); p.Scope != domain.LedgerIntercompany && p.Scope != domain.LedgerEntity {
				l.Append(env)
			}
		}
		currencies := map[string]string{}
		for _, entity := range []string{"", "us", "de", "fr"} {
			if currencies[entity] = rapid.SampledFrom([]string{"USD", "EUR", "JPY"}).Draw(t, "currency"); entity == "" || rapid.Bool().Draw(t, "own") {
				l.Append(keptIn(entity, currencies[entity]))
			} else {
				currencies[entity] = currencies[""]
			}
		}
		rate := rapid.IntRange(1, 40_000)
		text := func() string { return decimal.New(int64(rate.Draw(t, "rate")), -4).String() }
		one := decimal.New(1, 0)
		average, closing := map[string]domain.Decimal{"USD USD": one, "EUR EUR": one}, map[string]domain.Decimal{"USD USD": one, "EUR EUR": one} // by what was billed and the books
		for _, pair := range []string{"USD EUR", "USD JPY", "EUR JPY"} {
			mean, end := text(), text()
			average[pair], closing[pair] = storetest.Dec(mean), storetest.Dec(end)
			l.Append(monthRates(pair[:3], pair[4:], mean, end)...)
		}
		average["EUR USD"], closing["EUR USD"] = one.DivRound(average["USD EUR"], 18), one.DivRound(closing["USD EUR"], 18)
		fallback := rapid.SampledFrom([]string{"us", "de"}).Draw(t, "default")
		l.Append(
			account("e", domain.LedgerEntity, fallback, nil), account("fx", domain.LedgerFX, "7000", nil),
			account("dt", domain.LedgerDueTo, "2310", nil), account("df", domain.LedgerDueFrom, "1310", nil),
			ofEntity("b", rapid.SampledFrom([]string{"us", "de", "fr"}).Draw(t, "entity"), storetest.Start),
		)
		m, err := l.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var billed, books *costs.Journal
		var d *costs.Division
		var rates *costs.Rates
		if err := m.View(t.Context(), func(v projections.View) (err error) {
			if d, err = costs.Divide(v, storetest.MayBill, 1<<30); err != nil {
				return err
			}
			if rates, _, err = frozenRates(v, d); err != nil {
				return err
			}
			c, err := costs.ReadChart(v, d.Month)
			if err != nil {
				return err
			}
			in := costs.JournalInput{Division: d, Chart: c, Close: "close", Statement: statementOf}
			if billed, err = costs.NewJournal(&in); err != nil {
				return err
			}
			in.Rates = rates
			books, err = costs.NewJournal(&in)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		balance, expense, owed, entries := decimals{}, decimals{}, decimals{}, decimals{}
		asBilled := func(j *costs.Journal) (lines []string) {
			for _, e := range j.Entries {
				if currency := cmp.Or(e.BilledCurrency, e.Currency); currencies[e.Entity] == currency {
					lines = append(lines, strings.Join([]string{e.Entity, e.Account, e.CostCenter, e.Statement, e.Invoice, e.Counterparty, e.Amount().String()}, " "))
				}
			}
			slices.Sort(lines)
			return lines
		}
		if got, want := asBilled(books), asBilled(billed); !slices.Equal(got, want) {
			t.Errorf("entities of USD have\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for i := range books.Entries {
			e := &books.Entries[i]
			of := e.Entity + " " + e.Currency
			if e.Currency != currencies[e.Entity] {
				t.Fatalf("%+v: want %s", e, currencies[e.Entity])
			}
			balance.add(e.Document, e.Amount().String())
			entries.add(of, "1")
			switch e.Account {
			case "6000", "6100":
				expense.add(of, e.Amount().String())
			case "2000", "2100":
				owed.add(e.Issuer+" "+e.Invoice+" "+e.BilledCurrency+" "+of, e.Amount().String())
			}
		}
		for of, sum := range balance {
			if !sum.IsZero() {
				t.Errorf("document %s is off by %s", of, sum)
			}
		}
		want := decimals{}
		for i := range billed.Entries {
			if e := &billed.Entries[i]; e.Account == "2000" || e.Account == "2100" {
				currency := currencies[e.Entity]
				amount := decimal.RequireFromString(e.Amount().String()).Mul(closing[e.Currency+" "+currency])
				want.add(e.Issuer+" "+e.Invoice+" "+e.Currency+" "+e.Entity+" "+currency, amount.String())
			}
		}
		for of, sum := range want {
			currency := of[len(of)-3:]
			if rounded := sum.Round(int32(domain.MinorUnits(currency))); !rounded.Equal(owed[of]) {
				t.Errorf("%s is owed %s, want %s", of, owed[of], rounded)
			}
		}
		used := decimals{}
		if _, err := d.Export(costs.AllocationFilter{}, nil, func(row []string) error {
			if c := row[columnOf("x_Component")]; c != "prepaid" && c != "rounding_adjustment" {
				entity := cmp.Or(row[columnOf("x_Entity")], fallback)
				amount := storetest.Dec(row[columnOf("EffectiveCost")]).Mul(average[row[columnOf("BillingCurrency")]+" "+currencies[entity]])
				used.add(entity+" "+currencies[entity], amount.String())
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for of, sum := range used {
			if currency := of[len(of)-3:]; currency == "USD" { // each document of what was billed in it rounds its expense by itself
				continue
			}
			unit := decimal.New(1, -int32(domain.MinorUnits(of[len(of)-3:])))
			if off := sum.Sub(expense[of]).Abs(); off.GreaterThan(unit.Mul(entries[of].Add(one))) {
				t.Errorf("%s has an expense of %s, and used %s", of, expense[of], sum)
			}
		}
	})
}

// A late line of 5 EUR is posted into June, which has lines in USD or none at all. June freezes the rates that its journal
// needs: 1.10 on average, and 1.20 at its end.
func TestJournalInBooksOfOtherCurrencies(t *testing.T) {
	june := projections.BillingMonth(storetest.MayBill.To)
	for name, lines := range map[string][]domain.Envelope{
		"lines in USD": {recorded(billLine("june", "3", func(l *domain.BillingLine) {
			l.ServiceName, l.InvoiceID, l.BillingPeriodStart, l.BillingPeriodEnd = "Sb", "i-2", june.From, june.To
			l.ChargePeriodStart, l.ChargePeriodEnd = june.From, june.From+domain.Day
		}))},
		"no lines": nil,
	} {
		t.Run(name, func(t *testing.T) {
			l := storetest.NewLog()
			serviceRules(l)
			l.Append(chart()...)
			l.Append(account("fx", domain.LedgerFX, "7000", nil), keptIn("", "USD"), keptIn("de", "EUR"))
			l.Append(rateSet("EUR", "USD", "1.1", domain.FXAverage, june),
				rateSet("EUR", "USD", "1.2", domain.FXClosing, domain.Interval{From: june.To - domain.Day, To: june.To}))
			l.Append(lines...)
			closed := divided(t, l)
			l.Append(recorded(billLine("late", "5", func(l *domain.BillingLine) { l.BillingCurrency, l.ServiceName = "EUR", "Sb" })))
			posted, err := costs.Difference(closed, nil, divided(t, l), june, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			storetest.FoldView(t, l, func(v projections.View) {
				d, err := costs.Divide(v, june, 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				rates, _, err := frozenRates(v, d)
				if err != nil {
					t.Fatal(err)
				}
				c, err := costs.ReadChart(v, june)
				if err != nil {
					t.Fatal(err)
				}
				j, err := costs.NewJournal(&costs.JournalInput{
					Division: d, Posted: posted, Chart: c, Close: "close", Statement: statementOf, Rates: rates,
					Earlier: func(string) (*costs.Rates, error) { return nil, nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range j.Entries {
					if e.Corrects != "" {
						got = append(got, fmt.Sprint(e.Account, " ", e.Amount(), " ", e.Currency))
					}
				}
			})
			if want := []string{"2000 -6.00 USD", "6000 5.50 USD", "7000 0.50 USD"}; !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// Without a closing rate there is no journal in the currency of the books.
func TestJournalWithoutClosingRate(t *testing.T) {
	l := storetest.NewLog()
	serviceRules(l)
	l.Append(chart()...)
	l.Append(keptIn("", "USD"), rateSet("EUR", "USD", "1.1", domain.FXAverage, storetest.MayBill))
	l.Append(recorded(billLine("1", "5", func(l *domain.BillingLine) { l.BillingCurrency, l.ServiceName = "EUR", "Sb" })))
	d := divided(t, l)
	storetest.FoldView(t, l, func(v projections.View) {
		rates, _, err := frozenRates(v, d)
		if err != nil {
			t.Fatal(err)
		}
		c, err := costs.ReadChart(v, d.Month)
		if err != nil {
			t.Fatal(err)
		}
		_, err = costs.NewJournal(&costs.JournalInput{Division: d, Chart: c, Close: "close", Statement: statementOf, Rates: rates})
		if missing := (*costs.RatesError)(nil); !errors.As(err, &missing) || !strings.Contains(err.Error(), "closed without the closing rate of EUR in USD") {
			t.Errorf("got %v", err)
		}
	})
}
