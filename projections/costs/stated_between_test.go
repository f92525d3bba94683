package costs_test

import (
	"fmt"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// TestLinesStated: a line that came, one that changed and one that was removed in between; those before and after
// do not count.
func TestLinesStated(t *testing.T) {
	may := storetest.MayBill
	foreign := billFor("eur", "8", may)
	foreign.Event.(*domain.BillingLineRecorded).Line.BillingCurrency = "EUR"
	l := storetest.NewLog()
	line := func(id string) *domain.BillingLine {
		e := billFor(id, "1", may)
		return &e.Event.(*domain.BillingLineRecorded).Line
	}
	for i, env := range []domain.Envelope{
		billFor("stays", "100", may), billFor("changes", "5", may), billFor("goes", "3", may),
		// After the proposal:
		billFor("comes", "50", may), billFor("changes", "7", may), foreign, billFor("april", "9", projections.BillingMonth(may.From-1)),
		{Source: "focus/c", Time: may.To, Event: &domain.BillingLineRemoved{
			InvoiceIssuerName: line("goes").InvoiceIssuerName, BillingAccountID: line("goes").BillingAccountID, LineID: "goes", BillingPeriod: may,
		}},
		// After the close:
		billFor("later", "1000", may),
	} {
		l.AppendAt(env, may.To+domain.Instant(i))
	}
	var got []costs.StatedSince
	storetest.FoldView(t, l, func(v projections.View) {
		var err error
		if got, err = costs.LinesStated(v, may, may.To+2, may.To+7); err != nil {
			t.Fatal(err)
		}
	})
	if want := "[{EUR 1 8} {USD 3 49}]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
