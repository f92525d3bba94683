package costs_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// terms returns the rules that a month of a log is divided by, as text.
func terms(t *testing.T, l *storetest.Log, month domain.Interval) string {
	t.Helper()
	var got []string
	storetest.FoldView(t, l, func(v projections.View) {
		policies, commitments, invoices, exceptions, err := costs.MonthTerms(v, month)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range policies {
			got = append(got, fmt.Sprintf("%s %s %s", p.Kind, p.Value, cmp.Or(p.Policy, "default")))
		}
		for _, c := range commitments {
			line := "commitment " + c.ID
			for _, s := range c.Owners {
				line += fmt.Sprintf(" %s %s", s.Workspace, s.Share)
			}
			got = append(got, line)
		}
		for _, i := range invoices {
			got = append(got, fmt.Sprintf("invoice %s %s %s %s", i.ID, i.Total, i.Currency, i.Status))
		}
		for _, e := range exceptions {
			got = append(got, fmt.Sprintf("%s %s: %s", e.Kind, e.Subject, e.Detail))
		}
	})
	return strings.Join(got, "\n")
}

func TestMonthPolicies(t *testing.T) {
	const day = domain.Day
	limit := storetest.USD("1000000")
	policy := func(id string, kind domain.PolicyKind, value string, from domain.Instant, edit ...func(*domain.PolicySet)) domain.Envelope {
		ev := &domain.PolicySet{Policy: id, Kind: kind, Value: value, EffectiveFrom: from}
		for _, e := range edit {
			e(ev)
		}
		return domain.Envelope{Workspace: "home", Time: storetest.Start - 9*day, Event: ev}
	}
	tax := func(id, share string, from domain.Instant, columns map[string]string, edit ...func(*domain.PolicySet)) domain.Envelope {
		env := policy(id, domain.PolicyRecoverableTax, "", from, edit...)
		ev := env.Event.(*domain.PolicySet)
		ev.Columns, ev.Share = columns, domain.NullDecimal{Decimal: decimal.RequireFromString(share), Valid: true}
		return env
	}
	const discount, idle = domain.PolicyCommitmentDiscount, domain.PolicyIdleCost
	standard := "commitment_discount as_supplied default\nidle_cost owner default"
	elsewhere := func(env domain.Envelope, workspace string) domain.Envelope {
		env.Workspace = workspace
		return env
	}
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string
	}{
		{"nobody decided", nil, standard},
		{"in force at the start", []domain.Envelope{storetest.Root.Sign(policy("i", idle, "platform", storetest.Start)), storetest.Root.Sign(policy("d", discount, "pool_rate", storetest.Start-day))},
			"commitment_discount pool_rate d\nidle_cost platform i"},
		{"decided anew within the month", []domain.Envelope{storetest.Root.Sign(policy("i", idle, "platform", storetest.Start-day)), storetest.Root.Sign(policy("i", idle, "owner", storetest.Start+day))},
			"commitment_discount as_supplied default\nidle_cost platform i\npolicy_changes_in_period home/i: idle_cost \"owner\" takes effect at 2026-05-02T00:00:00Z, from the next month on"},
		{"from the next month, and ended before", []domain.Envelope{storetest.Root.Sign(policy("i", idle, "platform", storetest.MayBill.To)), storetest.Root.Sign(policy("d", discount, "pool_rate", storetest.Start-2*day, func(p *domain.PolicySet) { p.EffectiveTo = storetest.Start }))},
			standard},
		{"not by whoever may", []domain.Envelope{storetest.Mallory.Sign(policy("i", idle, "platform", storetest.Start-day))},
			standard + "\ndecision_void home/i: PolicySet: operator \"mallory\" has no such key in the registry"},
		{"of a tenant, and of a part", []domain.Envelope{storetest.Root.Sign(elsewhere(policy("i", idle, "platform", storetest.Start-day), "acme")), storetest.Root.Sign(policy("d", discount, "pool_rate", storetest.Start-day, func(p *domain.PolicySet) { p.Selector.Cluster = "c" }))},
			standard + "\npolicy_not_applied acme/i: idle_cost is decided for all workspaces, by home\npolicy_not_applied home/d: commitment_discount for a part of the workloads: a bill is divided by one rule"},
		{"tax: more columns first", []domain.Envelope{
			storetest.Root.Sign(tax("all", "0", storetest.Start-day, nil)),
			storetest.Root.Sign(tax("de", "1", storetest.Start, map[string]string{"RegionId": "de-*"})),
			storetest.Root.Sign(tax("account", "0.5", storetest.Start, map[string]string{"RegionId": "de-*", "BillingAccountId": "42"})),
		}, standard + "\nrecoverable_tax 0.5 account\nrecoverable_tax 1 de\nrecoverable_tax 0 all"},
		{"tax: later, ended, of a tenant, of a part, and not by whoever may", []domain.Envelope{
			storetest.Root.Sign(tax("later", "0.5", storetest.Start+day, nil)),
			storetest.Root.Sign(tax("next", "0.5", storetest.MayBill.To, nil)),
			storetest.Root.Sign(tax("ended", "0.5", storetest.Start-2*day, nil, func(p *domain.PolicySet) { p.EffectiveTo = storetest.Start })),
			storetest.Root.Sign(elsewhere(tax("own", "0.5", storetest.Start, nil), "acme")),
			storetest.Root.Sign(tax("part", "0.5", storetest.Start, nil, func(p *domain.PolicySet) { p.Selector.Cluster = "c" })),
			storetest.Mallory.Sign(tax("void", "0.5", storetest.Start, nil)),
		}, standard + "\npolicy_not_applied acme/own: recoverable_tax is decided for all workspaces, by home" +
			"\npolicy_changes_in_period home/later: recoverable_tax 0.5 takes effect at 2026-05-02T00:00:00Z, from the next month on" +
			"\npolicy_not_applied home/part: recoverable_tax for a part of the workloads: tax is for lines of bills" +
			"\ndecision_void home/void: PolicySet: operator \"mallory\" has no such key in the registry"},
		{"twice: the later", []domain.Envelope{storetest.Root.Sign(policy("b", idle, "platform", storetest.Start-2*day)), storetest.Root.Sign(policy("a", idle, "owner", storetest.Start-day)), storetest.Root.Sign(policy("c", idle, "owner", storetest.Start-3*day))},
			"commitment_discount as_supplied default\nidle_cost owner a\npolicy_not_applied home/b: idle_cost is replaced by a\npolicy_not_applied home/c: idle_cost is replaced by a"},
		{"of something else", []domain.Envelope{storetest.Root.Sign(policy("s", domain.PolicyActivity, "1002", storetest.Start-day))}, standard},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, limit, storetest.Start-10*day))
			l.Append(c.log...)
			got := strings.Split(terms(t, l, storetest.MayBill), "\n")
			want := strings.Split(c.want, "\n")
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func TestMonthCommitments(t *testing.T) {
	const day = domain.Day
	limit := storetest.USD("1000000")
	buy := func(workspace, id string, term domain.Interval, owners ...string) domain.Envelope {
		ev := &domain.CommitmentPurchased{
			Commitment: id, Market: domain.Market{Provider: "p"}, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "s", GPUModel: "H100 80GB",
			GPUsPerUnit: 8, Units: 1, Term: term, Hourly: *storetest.USD("1"),
		}
		for _, s := range owners {
			ev.Owners = append(ev.Owners, domain.Share{Workspace: s, Share: storetest.Dec("1").Div(storetest.Dec(fmt.Sprint(len(owners))))})
		}
		return domain.Envelope{Workspace: workspace, Time: storetest.Start - 9*day, Event: ev}
	}
	renew := func(id string, term domain.Interval) domain.Envelope {
		return domain.Envelope{Workspace: "home", Time: storetest.Start - 8*day, Event: &domain.CommitmentRenewed{Commitment: id, Term: term, Units: 1, Hourly: *storetest.USD("1")}}
	}
	end := func(id string, at domain.Instant) domain.Envelope {
		return domain.Envelope{Workspace: "home", Time: storetest.Start - 8*day, Event: &domain.CommitmentEnded{Commitment: id, At: at}}
	}
	line := func(id, commitment string) domain.Envelope {
		return recorded(billLine(id, "1", func(l *domain.BillingLine) { l.CommitmentDiscountID, l.PricingCategory = commitment, "Committed" }))
	}
	year := domain.Interval{From: storetest.Start - 100*day, To: storetest.Start + 265*day}
	half := domain.Interval{From: storetest.Start - 100*day, To: storetest.Start + 15*day}
	const standard = "commitment_discount as_supplied default\nidle_cost owner default"
	late := buy("acme", "c", year, "b")
	late.Time += day
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string
	}{
		{"on no bill", []domain.Envelope{storetest.Root.Sign(buy("home", "other", year, "a"))}, ""},
		{"by nobody", nil, ""},
		{"in its term", []domain.Envelope{storetest.Root.Sign(buy("home", "c", year, "a", "b"))}, "commitment c a 0.5 b 0.5"},
		{"without owners", []domain.Envelope{storetest.Root.Sign(buy("home", "c", year))}, "commitment c"},
		{"not by whoever may", []domain.Envelope{storetest.Mallory.Sign(buy("home", "c", year, "a"))},
			"decision_void c: CommitmentPurchased of home: operator \"mallory\" has no such key in the registry"},
		{"run out", []domain.Envelope{storetest.Root.Sign(buy("home", "c", half, "a"))},
			"commitment c a 1\ncommitment_out_of_term c: charged for 2026-05-16T00:00:00Z to 2026-06-01T00:00:00Z, in which it has no term; its owners are charged for that too"},
		{"renewed", []domain.Envelope{storetest.Root.Sign(buy("home", "c", half, "a")), storetest.Root.Sign(renew("c", domain.Interval{From: half.To, To: year.To}))}, "commitment c a 1"},
		{"ended", []domain.Envelope{storetest.Root.Sign(buy("home", "c", year, "a")), storetest.Root.Sign(end("c", storetest.Start+15*day))},
			"commitment c a 1\ncommitment_out_of_term c: charged for 2026-05-16T00:00:00Z to 2026-06-01T00:00:00Z, in which it has no term; its owners are charged for that too"},
		{"to come", []domain.Envelope{storetest.Root.Sign(buy("home", "c", domain.Interval{From: storetest.MayBill.To, To: year.To}, "a"))}, ""},
		{"declared twice", []domain.Envelope{storetest.Root.Sign(late), storetest.Root.Sign(buy("home", "c", year, "a"))},
			"commitment c b 1\ncommitment_declared_twice c: by acme and home; the decision of acme is the later"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, limit, storetest.Start-10*day), line("l1", "c"), line("l2", ""))
			l.Append(c.log...)
			if got := strings.TrimPrefix(strings.TrimPrefix(terms(t, l, storetest.MayBill), standard), "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestMonthInvoices(t *testing.T) {
	received := func(id, total, status string, period domain.Interval, at domain.Instant) domain.Envelope {
		return domain.Envelope{Time: at, Event: &domain.InvoiceReceived{
			InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: id, Total: *storetest.USD(total), Status: status, BillingPeriod: period,
		}}
	}
	april := projections.BillingMonth(storetest.MayBill.From - 1)
	l := storetest.NewLog()
	l.Append(
		recorded(billLine("l1", "1")), recorded(billLine("l2", "1", func(l *domain.BillingLine) { l.InvoiceID = "i-april" })),
		recorded(billLine("l3", "1e15")),
		recorded(billLine("l4", "1", func(l *domain.BillingLine) {
			l.PricingQuantity, l.PricingUnit = decimal.NewNullDecimal(storetest.Dec("1e14")), "Hours"
		})),
		domain.Envelope{Time: storetest.MayBill.To, Event: &domain.BillingLineCorrected{Line: billLine("l5", "-1"), Corrects: "l1"}},
		received("i-1", "10", "Open", storetest.MayBill, storetest.MayBill.To), received("i-1", "12.5", "Issued", storetest.MayBill, storetest.MayBill.To+domain.Day),
		received("i-2", "1e15", "Issued", storetest.MayBill, storetest.MayBill.To), received("i-3", "3", "Voided", storetest.MayBill, storetest.MayBill.To),
		received("i-april", "7", "Issued", april, storetest.MayBill.To), received("i-april-2", "7", "Issued", april, storetest.MayBill.To),
	)
	want := `commitment_discount as_supplied default
idle_cost owner default
invoice i-1 12.5 USD Issued
invoice i-3 3 USD Voided
invoice i-april 7 USD Issued
corrects l5: l1
invoice_of_other_period p|1|i-april: it is for 2026-04-01T00:00:00Z to 2026-05-01T00:00:00Z, and lines of 2026-05 name it
invoice_restated p|1|i-1: 12.5 USD, Issued; before 10 USD, Open
invoice_unusable p|1|i-2: 1000000000000000 USD: amount of 16 digits before the point: want less than 1e15
line_unusable p|1|l3: 1000000000000000 USD: line "l3": billed cost: amount of 16 digits before the point: want less than 1e15`
	if got := terms(t, l, storetest.MayBill); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
