package costs_test

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// decided is a decision of the root workspace.
func decided(ev domain.Event) domain.Envelope {
	return storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - domain.Day, Event: ev})
}

func booksIn(currency string) []domain.Envelope {
	return []domain.Envelope{
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, &domain.Money{Amount: storetest.Dec("100000000"), Currency: "EUR"}, storetest.Start-400*domain.Day),
		decided(&domain.PolicySet{Policy: "books", Kind: domain.PolicyBooksCurrency, Value: currency, EffectiveFrom: storetest.Start - 400*domain.Day}),
	}
}

func rateSet(base, quote, rate string, kind domain.FXRateKind, in domain.Interval) domain.Envelope {
	env := decided(&domain.FXRateSet{Base: base, Quote: quote, Rate: storetest.Dec(rate), Kind: kind, Effective: in})
	env.Subject = base + "/" + quote
	return env
}

// translated returns the total of a month in the currency of the books.
func translated(v projections.View, month domain.Interval) (*costs.Cost, *costs.Translation, error) {
	rates, err := costs.ReadRates(v, month)
	if err != nil {
		return nil, nil, err
	}
	d, err := costs.Divide(v, month, 1<<30)
	if err != nil {
		return nil, nil, err
	}
	r, err := d.In(rates).Report(costs.Query{Month: month})
	if err != nil {
		return nil, nil, err
	}
	if len(r.Totals) != 1 {
		return nil, nil, fmt.Errorf("%d totals", len(r.Totals))
	}
	return &r.Totals[0], r.Translation, nil
}

// What was paid at once keeps the rate of its payment, so that the prepaid balance ends at zero in the currency of the
// books too, whatever the average rates are. A part that is paid monthly has the average rate.
func TestPrepaidEndsAtZeroInBooks(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		months := []domain.Interval{projections.BillingMonth(storetest.Start)}
		for len(months) < 3 {
			months = append(months, projections.BillingMonth(months[len(months)-1].To))
		}
		term := domain.Interval{From: months[0].From, To: months[2].To}
		l := storetest.NewLog()
		l.Append(booksIn("USD")...)
		zero := domain.Money{Amount: decimal.Zero, Currency: "EUR"}
		upfront := decimal.New(rapid.Int64Range(1, 1e9).Draw(r, "upfront"), -2)
		bought := decided(&domain.CommitmentPurchased{
			Commitment: "a", Market: domain.Market{Provider: "p"}, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "gpu-2", GPUModel: "H100 80GB",
			GPUsPerUnit: 2, Units: 1, Term: term, Upfront: domain.Money{Amount: upfront, Currency: "EUR"}, Hourly: zero,
		})
		l.Append(bought, rateSet("EUR", "USD", "1.07", domain.FXPayment, domain.Interval{From: term.From, To: term.From + domain.Day}))
		left := upfront
		for m, month := range months {
			average := decimal.New(rapid.Int64Range(5000, 20000).Draw(r, "average"), -4)
			l.Append(rateSet("EUR", "USD", average.String(), domain.FXAverage, month))
			used := decimal.New(rapid.Int64Range(0, 1e6).Draw(r, "used"), -rapid.Int32Range(0, 9).Draw(r, "digits"))
			if m == len(months)-1 {
				used = left
			}
			left = left.Sub(used)
			line := func(id, category string, billed, effective domain.Decimal) {
				l.Append(recorded(billLine(fmt.Sprint(m, id), billed.String(), func(b *domain.BillingLine) {
					b.CommitmentDiscountID, b.ChargeCategory, b.EffectiveCost = "a", category, decimal.NewNullDecimal(effective)
					b.BillingCurrency = "EUR"
					b.BillingPeriodStart, b.BillingPeriodEnd = month.From, month.To
					b.ChargePeriodStart, b.ChargePeriodEnd = month.From, month.To
				})))
			}
			if m == 0 {
				line("p", "Purchase", upfront, decimal.Zero)
			}
			line("u", "Usage", decimal.Zero, used)
		}
		storetest.FoldView(t, l, func(v projections.View) {
			var billed, effective domain.Decimal
			for _, month := range months {
				c, how, err := translated(v, month)
				if err != nil {
					r.Fatal(err)
				}
				billed, effective = billed.Add(c.Billed.Decimal()), effective.Add(c.Effective.Decimal())
				for _, rate := range how.Rates {
					if rate.Commitment == "a" && !rate.Rate.Equal(storetest.Dec("1.07")) {
						r.Fatalf("%s has the rate %s", rate.Commitment, rate.Rate)
					}
				}
			}
			want := upfront.Mul(storetest.Dec("1.07"))
			if !billed.Equal(want) || !effective.Equal(want) {
				r.Fatalf("%s EUR are %s billed and %s effective in the books, want %s", upfront, billed, effective, want)
			}
		})
	})
}

func TestRatesOfBooks(t *testing.T) {
	may := storetest.MayBill
	half := domain.Interval{From: may.From, To: may.From + 15*domain.Day}
	for _, c := range []struct {
		name    string
		rates   []domain.Envelope
		total   string
		problem string
	}{
		{"direct", []domain.Envelope{rateSet("EUR", "USD", "1.25", domain.FXAverage, may)}, "12.5", ""},
		{"inverse", []domain.Envelope{rateSet("USD", "EUR", "0.8", domain.FXAverage, may)}, "12.5", ""},
		{"restated", []domain.Envelope{rateSet("EUR", "USD", "9", domain.FXAverage, may), rateSet("EUR", "USD", "1.25", domain.FXAverage, may)}, "12.5", ""},
		{"both ways, equal", []domain.Envelope{rateSet("USD", "EUR", "0.8", domain.FXAverage, may), rateSet("EUR", "USD", "1.25", domain.FXAverage, may)}, "12.5", ""},
		{"both ways, different", []domain.Envelope{rateSet("USD", "EUR", "0.9", domain.FXAverage, may), rateSet("EUR", "USD", "1.25", domain.FXAverage, may)}, "", "contradict"},
		{"for a part", []domain.Envelope{rateSet("EUR", "USD", "1.25", domain.FXAverage, half)}, "", "the average rate of EUR in USD for all of 2026-05 is missing"},
		{"of another kind", []domain.Envelope{rateSet("EUR", "USD", "1.25", domain.FXSpot, may)}, "", "is missing"},
		{"over a third currency", []domain.Envelope{rateSet("EUR", "GBP", "1", domain.FXAverage, may), rateSet("GBP", "USD", "1", domain.FXAverage, may)}, "", "is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(booksIn("USD")...)
			l.Append(c.rates...)
			l.Append(recorded(billLine("1", "10", func(b *domain.BillingLine) { b.BillingCurrency = "EUR" })))
			storetest.FoldView(t, l, func(v projections.View) {
				total, _, err := translated(v, may)
				var missing *costs.RatesError
				switch {
				case c.problem != "" && (!errors.As(err, &missing) || !strings.Contains(err.Error(), c.problem)):
					t.Errorf("got %v, want %q", err, c.problem)
				case c.problem == "" && err != nil:
					t.Error(err)
				case c.problem == "" && total.Billed.Decimal().String() != c.total:
					t.Errorf("10 EUR are %s", total.Billed)
				}
			})
		})
	}
}

// The groups of a translated month add up to its total, and that is the sum of its translated lines.
func TestTranslatedPartsAddUp(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rate := decimal.New(rapid.Int64Range(1, 1e9).Draw(r, "rate"), -rapid.Int32Range(0, 9).Draw(r, "digits"))
		l := storetest.NewLog()
		l.Append(booksIn("USD")...)
		l.Append(rateSet("EUR", "USD", rate.String(), domain.FXAverage, storetest.MayBill))
		want := new(big.Rat)
		for i := range rapid.IntRange(1, 6).Draw(r, "lines") {
			amount := decimal.New(rapid.Int64Range(-1e9, 1e9).Draw(r, "amount"), -rapid.Int32Range(0, 9).Draw(r, "decimals"))
			l.Append(recorded(billLine(fmt.Sprint(i), amount.String(), func(b *domain.BillingLine) { b.BillingCurrency = "EUR" })))
			want.Add(want, new(big.Rat).Mul(amount.Rat(), rate.Rat()))
		}
		storetest.FoldView(t, l, func(v projections.View) {
			rates, err := costs.ReadRates(v, storetest.MayBill)
			if err != nil {
				r.Fatal(err)
			}
			d, err := costs.Divide(v, storetest.MayBill, 1<<30)
			if err != nil {
				r.Fatal(err)
			}
			rep, err := d.In(rates).Report(costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace, costs.ByLine, costs.ByHour}})
			if err != nil {
				r.Fatal(err)
			}
			var sum domain.Decimal
			for i := range rep.Groups {
				sum = sum.Add(rep.Groups[i].Billed.Decimal())
			}
			// A product of amounts and rates of 9 digits has 18, and needs no rounding.
			if total := rep.Totals[0].Billed.Decimal(); !sum.Equal(total) || total.Rat().Cmp(want) != 0 {
				r.Fatalf("groups come to %s, the total is %s, want %s", sum, total, want.FloatString(18))
			}
		})
	})
}

// What a commitment covers has the rates of its payments: here 600 EUR at once and 1 EUR an hour of a 25-day term, so
// half of each.
func TestPartlyPrepaidRate(t *testing.T) {
	may := storetest.MayBill
	l := storetest.NewLog()
	l.Append(booksIn("USD")...)
	eur := func(s string) domain.Money { return domain.Money{Amount: storetest.Dec(s), Currency: "EUR"} }
	l.Append(
		decided(&domain.CommitmentPurchased{
			Commitment: "a", Market: domain.Market{Provider: "p"}, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "gpu-2", GPUModel: "H100 80GB",
			GPUsPerUnit: 2, Units: 1, Term: domain.Interval{From: may.From, To: may.From + 25*domain.Day}, Upfront: eur("600"), Hourly: eur("1"),
		}),
		rateSet("EUR", "USD", "1.10", domain.FXPayment, domain.Interval{From: may.From, To: may.From + domain.Day}),
		rateSet("EUR", "USD", "1.20", domain.FXAverage, may),
		recorded(billLine("fee", "5", func(b *domain.BillingLine) {
			b.BillingCurrency, b.CommitmentDiscountID, b.ChargeCategory, b.ChargeFrequency = "EUR", "a", "Purchase", "Recurring"
			b.EffectiveCost = decimal.NewNullDecimal(decimal.Zero)
		})),
		recorded(billLine("use", "0", func(b *domain.BillingLine) {
			b.BillingCurrency, b.CommitmentDiscountID, b.EffectiveCost = "EUR", "a", decimal.NewNullDecimal(storetest.Dec("10"))
		})),
	)
	storetest.FoldView(t, l, func(v projections.View) {
		total, how, err := translated(v, may)
		if err != nil {
			t.Fatal(err)
		}
		if b, e := total.Billed.String(), total.Effective.String(); b != "6" || e != "11.5" {
			t.Errorf("billed %s, effective %s, want 5 × 1.20 and 10 × 1.15; rates %+v", b, e, how.Rates)
		}
	})
}

// TestDoubtfulRates translates a month of EUR to USD, and says what it is at, or why it cannot be translated.
func TestDoubtfulRates(t *testing.T) {
	may := storetest.MayBill
	average := func(base, quote, rate string, to domain.Instant) domain.Envelope {
		return rateSet(base, quote, rate, domain.FXAverage, domain.Interval{From: may.From, To: to})
	}
	line := func(edit ...func(*domain.BillingLine)) domain.Envelope {
		return recorded(billLine("1", "100", append(edit, func(l *domain.BillingLine) { l.BillingCurrency = "EUR" })...))
	}
	bought := func(l *domain.BillingLine) {
		l.ChargeCategory, l.ChargeFrequency, l.CommitmentDiscountID = "Purchase", "One-Time", "res"
	}
	covered := func(l *domain.BillingLine) { l.CommitmentDiscountID = "res" }
	contract := decided(&domain.CommitmentPurchased{
		Commitment: "res", Market: domain.Market{Provider: "p"}, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "gpu-2", GPUModel: "H100 80GB",
		GPUsPerUnit: 2, Units: 1, Term: domain.Interval{From: may.From, To: may.To},
		Upfront: domain.Money{Amount: storetest.Dec("100"), Currency: "EUR"}, Hourly: domain.Money{Amount: decimal.Zero, Currency: "EUR"},
	})
	paid := rateSet("EUR", "USD", "2", domain.FXPayment, domain.Interval{From: may.From, To: may.From + domain.Day})
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string
	}{
		{"the average", []domain.Envelope{line(), average("EUR", "USD", "1.1", may.To)}, "110"},
		{"both directions, each rounded: the direct one", []domain.Envelope{line(), average("USD", "EUR", "0.9091", may.To), average("EUR", "USD", "1.1", may.To)}, "110"},
		{"only the other direction", []domain.Envelope{line(), average("USD", "EUR", "0.8", may.To)}, "125"},
		{"a wrong end is stated again", []domain.Envelope{line(), average("EUR", "USD", "1.2", may.To+domain.Day), average("EUR", "USD", "1.1", may.To)}, "110"},
		{"withdrawn by a rate for a second", []domain.Envelope{line(), average("EUR", "USD", "1.2", may.To), average("EUR", "USD", "1.2", may.From+domain.Second)},
			"the average rate of EUR in USD for all of 2026-05 is missing"},
		{"paid at once, and not declared", []domain.Envelope{line(bought), average("EUR", "USD", "1.1", may.To)}, "when commitment res was paid in EUR is not known"},
		{"paid at once, and declared", []domain.Envelope{line(bought), contract, paid, average("EUR", "USD", "1.1", may.To)}, "200"},
		{"covered, and not declared: its fee is monthly", []domain.Envelope{line(covered), average("EUR", "USD", "1.1", may.To)}, "110"},
		{"both directions differ by more than rounding", []domain.Envelope{line(), average("USD", "EUR", "0.93", may.To), average("EUR", "USD", "1.1234", may.To)},
			"contradict each other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(booksIn("USD")...)
			l.Append(c.log...)
			storetest.FoldView(t, l, func(v projections.View) {
				cost, _, err := translated(v, may)
				got := fmt.Sprint(err)
				if err == nil {
					got = cost.Billed.String()
				}
				if got != c.want && (len(c.want) < 10 || !strings.Contains(got, c.want)) {
					t.Errorf("%s; want %s", got, c.want)
				}
			})
		})
	}
}

// Use of a commitment that was paid before and that nobody declared is said to have the average rate. What is billed when it
// is used is not in doubt, and neither is a declared commitment that is paid as it goes.
func TestUndeclaredCommitmentsAreNamed(t *testing.T) {
	may := storetest.MayBill
	covered := func(billed string) domain.Envelope {
		return recorded(billLine("1", billed, func(l *domain.BillingLine) {
			l.BillingCurrency, l.CommitmentDiscountID, l.EffectiveCost = "EUR", "res", decimal.NewNullDecimal(storetest.Dec("7"))
		}))
	}
	contract := decided(&domain.CommitmentPurchased{
		Commitment: "res", Market: domain.Market{Provider: "p"}, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "gpu-2", GPUModel: "H100 80GB",
		GPUsPerUnit: 2, Units: 1, Term: domain.Interval{From: may.From, To: may.To},
		Upfront: domain.Money{Amount: decimal.Zero, Currency: "EUR"}, Hourly: domain.Money{Amount: storetest.Dec("1"), Currency: "EUR"},
	})
	for name, c := range map[string]struct {
		log  []domain.Envelope
		want []string
	}{
		"not declared":         {[]domain.Envelope{covered("0")}, []string{"res"}},
		"billed as it goes":    {[]domain.Envelope{covered("7")}, []string{}},
		"declared, as it goes": {[]domain.Envelope{covered("0"), contract}, []string{}},
	} {
		l := storetest.NewLog()
		l.Append(booksIn("USD")...)
		l.Append(append(c.log, rateSet("EUR", "USD", "1.1", domain.FXAverage, may))...)
		storetest.FoldView(t, l, func(v projections.View) {
			rates, err := costs.ReadRates(v, may)
			if err != nil {
				t.Fatal(err)
			}
			d, err := costs.Divide(v, may, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			m, err := d.FX(rates, nil)
			if err != nil || !slices.Equal(m.Undeclared, c.want) {
				t.Errorf("%s: %q, %v; want %q", name, m.Undeclared, err, c.want)
			}
		})
	}
}

// A commitment that is renewed and paid at once again has the payment rate of each term: the prepaid balance of each ends
// at zero. A month that was closed with these rates is translated alike.
func TestRenewedCommitmentIsPaidAgain(t *testing.T) {
	eur := func(amount domain.Decimal) domain.Money { return domain.Money{Amount: amount, Currency: "EUR"} }
	rapid.Check(t, func(r *rapid.T) {
		months := monthsFromMay(3)
		l := storetest.NewLog()
		l.Append(booksIn("USD")...)
		prices, rates := []domain.Decimal{}, []domain.Decimal{}
		for i, month := range months {
			upfront := decimal.New(rapid.Int64Range(0, 3).Draw(r, "upfront"), 2)
			prices = append(prices, upfront)
			rates = append(rates, decimal.New(rapid.Int64Range(5000, 20000).Draw(r, "paid at"), -4))
			zero := eur(decimal.Zero)
			if i == 0 {
				l.Append(decided(&domain.CommitmentPurchased{
					Commitment: "a", Market: domain.Market{Provider: "p"}, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "gpu-2", GPUModel: "H100 80GB",
					GPUsPerUnit: 2, Units: 1, Term: month, Upfront: eur(upfront), Hourly: zero,
				}))
			} else {
				l.Append(decided(&domain.CommitmentRenewed{Commitment: "a", Term: month, Units: 1, Upfront: eur(upfront), Hourly: zero}))
			}
			l.Append(
				rateSet("EUR", "USD", rates[i].String(), domain.FXPayment, domain.Interval{From: month.From, To: month.From + domain.Day}),
				rateSet("EUR", "USD", "3", domain.FXAverage, month),
			)
			// A renewal may be paid some days before it begins, and is then billed in the month before.
			early := domain.Instant(0)
			if i > 0 {
				early = domain.Instant(rapid.IntRange(0, 9).Draw(r, "early")) * domain.Day
			}
			in := projections.BillingMonth(month.From - early)
			if upfront.Sign() > 0 {
				l.Append(recorded(billLine(fmt.Sprint("p", i), upfront.String(), func(b *domain.BillingLine) {
					b.CommitmentDiscountID, b.ChargeCategory, b.BillingCurrency, b.EffectiveCost = "a", "Purchase", "EUR", decimal.NewNullDecimal(decimal.Zero)
					b.BillingPeriodStart, b.BillingPeriodEnd = in.From, in.To
					b.ChargePeriodStart, b.ChargePeriodEnd = month.From-early, month.From-early+domain.Day
				})))
			}
			for n := range 2 {
				day := month.From + domain.Instant(n*20)*domain.Day
				l.Append(recorded(billLine(fmt.Sprint("u", i, n), "0", func(b *domain.BillingLine) {
					b.CommitmentDiscountID, b.BillingCurrency, b.EffectiveCost = "a", "EUR", decimal.NewNullDecimal(upfront.Div(decimal.NewFromInt(2)))
					b.BillingPeriodStart, b.BillingPeriodEnd = month.From, month.To
					b.ChargePeriodStart, b.ChargePeriodEnd = day, day+domain.Day
				})))
			}
		}
		want := decimal.Zero
		for i := range prices {
			want = want.Add(prices[i].Mul(rates[i]))
		}
		storetest.FoldView(t, l, func(v projections.View) {
			var billed, effective domain.Decimal
			for i, month := range months {
				c, how, err := translated(v, month)
				if err != nil {
					r.Fatal(err)
				}
				billed, effective = billed.Add(c.Billed.Decimal()), effective.Add(c.Effective.Decimal())
				if expense := prices[i].Mul(rates[i]); !c.Effective.Decimal().Equal(expense) {
					r.Fatalf("%d: %s were used, want %s at %s", i, c.Effective, prices[i], rates[i])
				}
				frozen, err := costs.FrozenRates(&domain.ClosePrepared{Period: month, Rates: how.Rates, Translated: []domain.BooksTotal{{Currency: "USD"}}})
				if err != nil {
					r.Fatal(err)
				}
				d, err := costs.Divide(v, month, 1<<30)
				if err != nil {
					r.Fatal(err)
				}
				again, err := d.In(frozen).Report(costs.Query{Month: month})
				if err != nil || again.Totals[0].Billed != c.Billed || again.Totals[0].Effective != c.Effective {
					r.Fatalf("%d: at frozen rates %+v, %v; want %+v", i, again, err, c)
				}
			}
			if !billed.Equal(want) || !effective.Equal(want) {
				r.Fatalf("%s billed and %s effective in the books, want %s", billed, effective, want)
			}
		})
	})
}

// A closing rate that is stated again after the close changes no closed month. One that was not there at the close counts
// as it is now.
func TestClosingRateOfTheClose(t *testing.T) {
	may := storetest.MayBill
	end := domain.Interval{From: may.To - domain.Day, To: may.To}
	l := storetest.NewLog()
	l.Append(booksIn("USD")...)
	l.Append(
		recorded(billLine("1", "100", func(b *domain.BillingLine) { b.BillingCurrency = "EUR" })),
		rateSet("EUR", "USD", "1.1", domain.FXAverage, may),
		rateSet("EUR", "USD", "1.2", domain.FXClosing, end),
	)
	check := func(closed []domain.BooksRate, want string) (list *costs.Checklist) {
		storetest.FoldView(t, l, func(v projections.View) {
			d, err := costs.Divide(v, may, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			now, err := costs.ReadRates(v, may)
			if err != nil {
				t.Fatal(err)
			}
			frozen, err := costs.FrozenRates(&domain.ClosePrepared{Period: may, Rates: closed, Translated: []domain.BooksTotal{{Currency: "USD"}}})
			if err != nil {
				t.Fatal(err)
			}
			m, err := d.FX(frozen, now)
			if err != nil || len(m.Balances) != 1 || m.Balances[0].Difference == nil || m.Balances[0].Difference.String() != want {
				t.Fatalf("%+v, %v; want a difference of %s", m, err, want)
			}
			if len(m.Rates) != 1 || m.Rates[0].Kind != domain.FXAverage {
				t.Errorf("rates %+v translate the month, want the average", m.Rates)
			}
			if list, err = costs.NewChecklist(v, d, nil, true, nil); err != nil {
				t.Fatal(err)
			}
		})
		return list
	}
	average := domain.BooksRate{Base: "EUR", Quote: "USD", Rate: storetest.Dec("1.1"), Kind: domain.FXAverage}
	closed := check([]domain.BooksRate{average}, "10").Rates // 100 × (1.2 - 1.1)
	if len(closed) != 2 || closed[1].Kind != domain.FXClosing || !closed[1].Rate.Equal(storetest.Dec("1.2")) || closed[1].Citation == "" {
		t.Fatalf("a close freezes %+v", closed)
	}
	l.Append(rateSet("EUR", "USD", "1.5", domain.FXClosing, end))
	check(closed, "10")
	check(closed[:1], "40")
}
