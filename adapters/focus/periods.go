package focus

import (
	"fmt"
	"slices"
	"strings"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// periods reads Billing Period: which billing periods of an issuer are closed. A closed one gives a
// BillingPeriodClosed for every account of the file, an open one gives no event.
type periods struct {
	sheet
	accounts []string          // for which periods are closed, sorted
	seen     map[periodKey]int // line of each period
}

type periodKey struct {
	issuer, account string
	period          domain.Interval
}

// columnPeriodAccount is the account of a period. FOCUS has no such column: a period is one of the
// issuer.
const columnPeriodAccount = "x_BillingAccountId"

// periodColumns are the columns of Billing Period, all of them mandatory.
// Source: FinOps Open Cost and Usage Specification 1.4, Billing Period.
var (
	neededOfPeriod = []string{"BillingPeriodEnd", "BillingPeriodStart", "BillingPeriodStatus", "InvoiceIssuerName"}
	wantedOfPeriod = []string{"BillingPeriodCreated", "BillingPeriodLastUpdated"}
	periodColumns  = slices.Concat(neededOfPeriod, wantedOfPeriod, []string{columnPeriodAccount, "BillingAccountId"})
)

func (r *run) openPeriods(header []string, has func(string) bool) (dataset, error) {
	if v := r.opts.FocusVersion; v != "" && v != "1.4" {
		return nil, fmt.Errorf("this is Billing Period, which FOCUS %s does not have: it came with 1.4", v)
	}
	r.sum.FocusVersion = "1.4"
	s, err := r.openSheet(header, has, BillingPeriods, neededOfPeriod, wantedOfPeriod, periodColumns)
	if err != nil {
		return nil, err
	}
	if len(r.opts.Accounts) == 0 && !has(columnPeriodAccount) && !has("BillingAccountId") {
		return nil, fmt.Errorf("%w: Billing Period does not name billing accounts: give those of which the file is with --account",
			ErrColumns)
	}
	accounts := slices.Compact(slices.Sorted(slices.Values(r.opts.Accounts)))
	return &periods{sheet: s, accounts: accounts, seen: map[periodKey]int{}}, nil
}

func (p *periods) row(rec tabular.Row) error {
	p.take(rec.Fields)
	issuer := p.value("InvoiceIssuerName")
	if issuer == "" {
		return &refusal{field: "InvoiceIssuerName", reason: "is null"}
	}
	var times [4]domain.Instant
	for i, column := range []string{"BillingPeriodStart", "BillingPeriodEnd", "BillingPeriodCreated", "BillingPeriodLastUpdated"} {
		v := p.value(column)
		if v == "" {
			if i < 2 {
				return &refusal{field: column, reason: "is null"}
			}
			continue
		}
		at, reason := p.clock.parse(v)
		if reason != "" {
			return &refusal{field: column, value: v, reason: reason}
		}
		times[i] = at
	}
	period := domain.Interval{From: times[0], To: times[1]}
	if period.Empty() {
		return &refusal{
			field: "BillingPeriodEnd", value: p.value("BillingPeriodEnd"),
			reason: "is not after BillingPeriodStart " + period.From.String(),
		}
	}
	at := max(times[2], times[3])
	if at == 0 {
		at = period.To
	}
	status := p.value("BillingPeriodStatus")
	if status != "Open" && status != "Closed" {
		return &refusal{field: "BillingPeriodStatus", value: status, reason: "is neither Open nor Closed"}
	}
	accounts := p.accounts
	if own := p.value(columnPeriodAccount) + p.value("BillingAccountId"); own != "" {
		accounts = []string{own}
	}
	if len(accounts) == 0 {
		return &refusal{field: columnPeriodAccount, reason: "is null, and no account was given"}
	}
	for _, account := range accounts {
		key := periodKey{strings.Clone(issuer), strings.Clone(account), period}
		if first, twice := p.seen[key]; twice {
			return &refusal{field: "BillingPeriodStart", value: p.value("BillingPeriodStart"), reason: fmt.Sprintf("is also the period of line %d", first)}
		}
		p.seen[key] = p.line
	}
	if status == "Open" {
		p.warn("the period is open, and gives no event", "")
		return nil
	}
	for _, account := range accounts {
		err := p.emit(at, account, &domain.BillingPeriodClosed{
			InvoiceIssuerName: strings.Clone(issuer), BillingAccountID: strings.Clone(account), Period: period,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *periods) end() error { return nil }
