package costs_test

import (
	"cmp"
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

// ofEntity states the entity of a workspace from a time on.
func ofEntity(workspace, entity string, from domain.Instant) domain.Envelope {
	return domain.Envelope{Workspace: workspace, Time: from, Event: &domain.WorkspaceRegistered{Name: workspace, Entity: entity}}
}

// us gets an invoice of 7.00, and holds what is prepaid. Of it 3.00 were used while workspace b was of entity de, and 4.00
// after it had moved to fr, who also used 1.00 of a commitment.
func TestJournalEntityOfTheHour(t *testing.T) {
	l := storetest.NewLog()
	serviceRules(l)
	l.Append(chart()...)
	l.Append(
		account("dt", domain.LedgerDueTo, "2310", nil), account("df", domain.LedgerDueFrom, "1310", nil),
		account("df-fr", domain.LedgerDueFrom, "1311", map[string]string{"x_Entity": "fr"}),
	)
	moved := storetest.MayBill.From + 10*domain.Day
	l.Append(ofEntity("b", "de", storetest.Start-20*domain.Day), ofEntity("b", "fr", moved))
	for id, at := range map[string]domain.Instant{"old": moved - domain.Day, "new": moved, "used": moved} {
		l.Append(recorded(billLine(id, map[string]string{"old": "3", "new": "4", "used": "0"}[id], func(l *domain.BillingLine) {
			l.ServiceName, l.ChargePeriodStart, l.ChargePeriodEnd = "Sb", at, at+domain.Day
			if id == "used" {
				l.EffectiveCost = decimal.NewNullDecimal(storetest.Dec("1"))
			}
		})))
	}
	var got []string
	for _, e := range journalOf(t, l, divided(t, l), nil).Entries {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.Entity, e.Account, e.Amount(), e.Counterparty)))
	}
	want := []string{
		"de 2310 -3.00 us", "de 6000 3.00",
		"fr 2310 -5.00 us", "fr 6000 5.00",
		"us 1310 3.00 de", "us 1311 5.00 fr", "us 1400 -1.00", "us 2000 -7.00",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// However workspaces move between entities, the expense of each entity is what it used, rounded. What one entity owes
// another is what the other has to get from it.
func TestJournalEntitiesTie(t *testing.T) {
	long.Check(t, 40, 5_000, func(t *rapid.T) {
		l := house()
		for _, env := range chart() {
			if p := env.Event.(*domain.PolicySet); p.Scope != domain.LedgerIntercompany && p.Scope != domain.LedgerEntity {
				l.Append(env)
			}
		}
		fallback := rapid.SampledFrom([]string{"us", "de"}).Draw(t, "default")
		l.Append(
			account("e", domain.LedgerEntity, fallback, nil),
			account("dt", domain.LedgerDueTo, "2310", nil), account("df", domain.LedgerDueFrom, "1310", nil),
		)
		entities := rapid.SampledFrom([]string{"us", "de", "fr"})
		for _, w := range []string{"a", "b"} {
			for n := range rapid.IntRange(0, 3).Draw(t, "moves") {
				l.Append(ofEntity(w, entities.Draw(t, "entity"), storetest.Start+domain.Instant(n)*domain.Hour-domain.Hour))
			}
		}
		m, err := l.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var c *costs.Chart
		var d *costs.Division
		if err := m.View(t.Context(), func(v projections.View) (err error) {
			if c, err = costs.ReadChart(v, storetest.MayBill); err == nil {
				d, err = costs.Divide(v, storetest.MayBill, 1<<30)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		j, err := costs.NewJournal(&costs.JournalInput{Division: d, Chart: c, Close: "close", Statement: statementOf})
		if err != nil {
			t.Fatal(err)
		}
		balance, due, expense := decimals{}, decimals{}, decimals{}
		for i := range j.Entries {
			e := &j.Entries[i]
			balance.add(e.Document+" "+e.Entity+" "+e.Currency, e.Amount().String())
			switch e.Account {
			case "1310":
				due.add(e.Entity+" from "+e.Counterparty+" "+e.Currency, e.Amount().String())
			case "2310":
				due.add(e.Counterparty+" from "+e.Entity+" "+e.Currency, e.Amount().String())
			case "6000", "6100", "6999":
				expense.add(e.Entity+" "+e.Currency, e.Amount().String())
			}
			if e.Counterparty == e.Entity || (e.Counterparty == "") != (e.Account != "1310" && e.Account != "2310") {
				t.Fatalf("%+v: wrong counterparty", e)
			}
		}
		for of, sum := range balance {
			if !sum.IsZero() {
				t.Errorf("document %s is off by %s", of, sum)
			}
		}
		for of, sum := range due {
			if !sum.IsZero() {
				t.Errorf("%s is off by %s", of, sum)
			}
		}
		used := decimals{}
		if _, err := d.Export(costs.AllocationFilter{}, nil, func(row []string) error {
			entity := cmp.Or(row[columnOf("x_Entity")], fallback)
			switch row[columnOf("x_Component")] {
			case "prepaid":
			case "rounding_adjustment":
				used.add(entity+" "+row[columnOf("BillingCurrency")], row[columnOf("BilledCost")])
			default:
				used.add(entity+" "+row[columnOf("BillingCurrency")], row[columnOf("EffectiveCost")])
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for of, sum := range used {
			// Each document rounds its expense, and has the rest of what balances round.
			if off := sum.Sub(expense[of]).Abs(); off.GreaterThan(storetest.Dec("0.02").Mul(decimal.NewFromInt(int64(len(j.Entries))))) {
				t.Errorf("%s has an expense of %s, and used %s", of, expense[of], sum)
			}
		}
	})
}
