package focus_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"quartermaster/adapters/focus"
	"quartermaster/domain"
)

// Suppliers leave InvoiceIssuerName null in rows of tax. The other rows name the issuer of their
// invoice, wherever they are in the file.
func TestANullIssuerIsThatOfTheInvoice(t *testing.T) {
	tax := func(more ...string) []string {
		return append([]string{"InvoiceIssuerName=", "ProviderName=AWS", "ChargeCategory=Tax"}, more...)
	}
	june := []string{"BillingPeriodStart=2026-06-01T00:00:00Z", "BillingPeriodEnd=2026-07-01T00:00:00Z", "ChargePeriodStart=2026-06-01T00:00:00Z", "ChargePeriodEnd=2026-07-01T00:00:00Z"}
	aws := func(more ...string) []string {
		return append([]string{"InvoiceIssuerName=Amazon Web Services, Inc."}, more...)
	}
	emea := func(more ...string) []string {
		return append([]string{"InvoiceIssuerName=Amazon Web Services EMEA SARL"}, more...)
	}
	for _, c := range []struct {
		name           string
		rows           [][]string // the first is the one without an issuer
		issuer, source string
		bad            string
	}{
		{"invoice, below", [][]string{tax("InvoiceId=I-1"), aws("InvoiceId=I-1")}, "Amazon Web Services, Inc.", "Invoice", ""},
		{"invoice before period", [][]string{tax("InvoiceId=I-1"), aws("InvoiceId=I-1"), emea("InvoiceId=I-2")}, "Amazon Web Services, Inc.", "Invoice", ""},
		{"invoice of another account", [][]string{tax("InvoiceId=I-1", "BillingAccountId=b"), aws("InvoiceId=I-1"), emea("BillingAccountId=b")}, "Amazon Web Services EMEA SARL", "AccountAndPeriod", ""},
		{"period, no invoice yet", [][]string{tax(), aws(), emea(june...)}, "Amazon Web Services, Inc.", "AccountAndPeriod", ""},
		{"period in another zone", [][]string{tax("BillingPeriodStart=2026-05-01T02:00:00+02:00"), aws()}, "Amazon Web Services, Inc.", "AccountAndPeriod", ""},
		{"a bad row names it too", [][]string{tax(), aws("BilledCost=x")}, "Amazon Web Services, Inc.", "AccountAndPeriod", ""},
		{"no other row", [][]string{tax(), emea(june...)}, "AWS", "ProviderName", ""},
		{"publisher", [][]string{{"InvoiceIssuerName=", "ProviderName=NULL", "PublisherName=Seller"}}, "Seller", "PublisherName", ""},
		{"two of one invoice", [][]string{tax("InvoiceId=I-1"), aws("InvoiceId=I-1"), emea("InvoiceId=I-1")}, "AWS", "ProviderName", ""},
		{"two of one invoice, and no provider", [][]string{tax("InvoiceId=I-1", "ProviderName="), aws("InvoiceId=I-1"), emea("InvoiceId=I-1")}, "", "",
			`is null, and the other rows of the invoice name two issuers, "Amazon Web Services, Inc." in line 3 and "Amazon Web Services EMEA SARL" in line 4`},
		{"two in one period", [][]string{tax(), aws("InvoiceId=I-1"), emea("InvoiceId=I-2")}, "AWS", "ProviderName", ""},
		{"two in one period, and no provider", [][]string{tax("ProviderName="), aws("InvoiceId=I-1"), emea("InvoiceId=I-2")}, "", "", "the other rows of the billing account and period name two issuers"},
		{"two in one period, one with the provider", [][]string{tax(), aws("ProviderName=AWS"), {"InvoiceIssuerName=NVIDIA", "ProviderName=NVIDIA"}}, "Amazon Web Services, Inc.", "AccountAndPeriodAndProvider", ""},
		{"two of one invoice, one with the provider", [][]string{tax("InvoiceId=I-1"), {"InvoiceIssuerName=NVIDIA", "InvoiceId=I-1", "ServiceProviderName=NVIDIA"}, aws("InvoiceId=I-1", "ServiceProviderName=AWS")}, "Amazon Web Services, Inc.", "InvoiceAndProvider", ""},
		{"two with the provider", [][]string{tax(), aws("ProviderName=AWS"), emea("ProviderName=AWS")}, "AWS", "ProviderName", ""},
		{"the successor of the provider", [][]string{tax("ProviderName=", "ServiceProviderName=AWS"), aws("InvoiceId=I-1"), emea("InvoiceId=I-2")}, "AWS", "ServiceProviderName", ""},
		{"nothing names it", [][]string{{"InvoiceIssuerName=", "x_Note=a"}, aws("BillingAccountId=b")}, "", "", "neither another row nor another column names the issuer of the invoice"},
	} {
		for name, text := range map[string]string{"plain": bill(c.rows...), "gzip": zipped(t, bill(c.rows...))} {
			r := read(t, text, focus.Options{})
			if c.bad != "" {
				if len(r.bad) != 1 || r.bad[0].Line != 2 || r.bad[0].Field != "InvoiceIssuerName" || !strings.Contains(r.bad[0].Reason, c.bad) {
					t.Errorf("%s, %s: bad %v, error %v", c.name, name, r.bad, r.err)
				}
				continue
			}
			if r.err != nil || len(r.events) == 0 || r.line(0).InvoiceIssuerName != c.issuer || r.line(0).Other["x_InvoiceIssuerNameSource"] != c.source {
				t.Errorf("%s, %s: %+v, bad %v, error %v, want %s by %s", c.name, name, r.events, r.bad, r.err, c.issuer, c.source)
				continue
			}
			if w := r.Warnings[len(r.Warnings)-1]; !strings.Contains(w.Reason, "InvoiceIssuerName is null and is taken from") || w.Rows != 1 || w.Line != 2 {
				t.Errorf("%s: warnings %+v", c.name, r.Warnings)
			}
			if len(r.events) > 1 && r.line(1).Other["x_InvoiceIssuerNameSource"] != "" {
				t.Errorf("%s: the issuer of a row that names one is called inferred", c.name)
			}
		}
	}
}

// A bill comes in parts. Another part or the ledger may name the issuer of an invoice. An issuer
// once inferred stays, whatever is imported later.
func TestANullIssuerIsNamedElsewhere(t *testing.T) {
	tax := []string{"InvoiceIssuerName=", "ProviderName=AWS", "ChargeCategory=Tax", "InvoiceId=I-9"}
	usage := []string{"InvoiceIssuerName=AWS Inc", "ProviderName=AWS", "InvoiceId=I-9"}
	other := []string{"InvoiceIssuerName=Seller", "ProviderName=AWS", "InvoiceId=I-8"}
	text := bill(tax)
	opened := 0
	file := func(name, text string) focus.File {
		return focus.File{Name: name, Open: func() (io.ReadCloser, error) { opened++; return io.NopCloser(strings.NewReader(text)), nil }}
	}
	ledger := func(texts ...string) func(context.Context, domain.Interval, func(*domain.BillingLine) error) error {
		var lines []domain.BillingLine
		for _, text := range texts {
			r := read(t, text, focus.Options{})
			for i := range r.events {
				lines = append(lines, r.line(i))
			}
		}
		return func(_ context.Context, _ domain.Interval, yield func(*domain.BillingLine) error) error {
			for i := range lines {
				if err := yield(&lines[i]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	gone := focus.File{Name: "gone.csv", Open: func() (io.ReadCloser, error) { return nil, errors.New("it is gone") }}
	for name, c := range map[string]struct {
		focus.Elsewhere
		issuer, source, failed string
	}{
		"nowhere":                      {focus.Elsewhere{}, "AWS", "ProviderName", ""},
		"the file itself":              {focus.Elsewhere{Files: []focus.File{file("a.csv", text)}}, "AWS", "ProviderName", ""},
		"another part":                 {focus.Elsewhere{Files: []focus.File{file("a.csv", text), file("b.csv", bill(usage, other))}}, "AWS Inc", "Invoice", ""},
		"not a bill":                   {focus.Elsewhere{Files: []focus.File{file("a.csv", "x"), file("empty.csv", "")}}, "AWS", "ProviderName", ""},
		"a part that cannot be read":   {focus.Elsewhere{Files: []focus.File{gone}}, "", "", "read gone.csv: it is gone"},
		"the ledger":                   {focus.Elsewhere{Lines: ledger(bill(usage, other))}, "AWS Inc", "Invoice", ""},
		"the ledger, of the period":    {focus.Elsewhere{Lines: ledger(bill([]string{"InvoiceIssuerName=AWS Inc"}))}, "AWS Inc", "AccountAndPeriod", ""},
		"a line that was inferred":     {focus.Elsewhere{Lines: ledger(bill([]string{"InvoiceIssuerName=", "ProviderName=Guess"}))}, "AWS", "ProviderName", ""},
		"the line itself, and a part":  {focus.Elsewhere{Lines: ledger(text), Files: []focus.File{file("b.csv", bill(usage))}}, "AWS", "ProviderName", ""},
		"another part, by its account": {focus.Elsewhere{Files: []focus.File{file("b.csv", bill(append([]string{"BillingAccountId=b"}, usage...)))}}, "AWS", "ProviderName", ""},
	} {
		opened = 0
		for range 2 { // the second run opens no file
			r := read(t, text, focus.Options{Elsewhere: &c.Elsewhere})
			if c.failed != "" {
				if r.err == nil || !strings.Contains(r.err.Error(), c.failed) {
					t.Errorf("%s: error %v", name, r.err)
				}
				continue
			}
			if r.err != nil || len(r.events) != 1 || r.line(0).InvoiceIssuerName != c.issuer || r.line(0).Other["x_InvoiceIssuerNameSource"] != c.source {
				t.Errorf("%s: %+v, bad %v, error %v, want %s by %s", name, r.events, r.bad, r.err, c.issuer, c.source)
			}
		}
		if c.failed == "" && opened != len(c.Files) {
			t.Errorf("%s: files are opened %d times", name, opened)
		}
	}
}
