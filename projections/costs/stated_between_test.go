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
// do not count. In a stream the sequence says what came after the position, whatever the clock said.
func TestLinesStated(t *testing.T) {
	may := storetest.MayBill
	foreign := billFor("eur", "8", may)
	foreign.Event.(*domain.BillingLineRecorded).Line.BillingCurrency = "EUR"
	l := storetest.NewLog()
	line := func(id string) *domain.BillingLine {
		e := billFor(id, "1", may)
		return &e.Event.(*domain.BillingLineRecorded).Line
	}
	last := map[int]domain.Precedence{}
	for i, a := range []struct {
		event  domain.Envelope
		at     domain.Instant
		source string
	}{
		{billFor("stays", "100", may), 9, "focus/a"}, {billFor("changes", "5", may), 9, "focus/b"}, {billFor("goes", "3", may), 10, "focus/a"},
		// After the position that was proposed:
		{billFor("comes", "50", may), 5, "focus/a"}, // its clock was set back
		{foreign, 10, "focus/a"},                    // together with the last before
		{billFor("changes", "7", may), 11, "focus/b"},
		{billFor("april", "9", projections.BillingMonth(may.From-1)), 12, "focus/a"},
		{domain.Envelope{Time: may.To, Event: &domain.BillingLineRemoved{
			InvoiceIssuerName: line("goes").InvoiceIssuerName, BillingAccountID: line("goes").BillingAccountID, LineID: "goes", BillingPeriod: may,
		}}, 13, "focus/c"},
		// After the close:
		{billFor("later", "1000", may), 21, "focus/a"},
	} {
		a.event.Source = a.source
		tp, _ := l.AppendAt(a.event, may.To+a.at)
		if i == 2 {
			last[tp.Partition] = domain.Precedence{Appended: may.To + a.at, Source: a.source, Incarnation: 1, Sequence: 2}
		}
	}
	var got []costs.StatedSince
	storetest.FoldView(t, l, func(v projections.View) {
		var err error
		if got, err = costs.LinesStated(v, may, costs.StatedIn(last), costs.StatedBy(may.To+20)); err != nil {
			t.Fatal(err)
		}
	})
	if want := "[{EUR 1 8} {USD 3 49}]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
