package advice_test

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/advice"
	"quartermaster/projections/storetest"
)

// An incident belongs to the workspace of its events, whatever workspace its document names: the next event goes there.
func TestAnIncidentIsOfTheWorkspaceOfItsEvents(t *testing.T) {
	l := storetest.NewLog()
	l.Append(domain.Envelope{Workspace: "a", Time: april.From, Event: &domain.IncidentOpened{
		Incident: "i", Rule: "quota", Version: 1, Subject: "s", Severity: domain.SeverityInfo, At: april.From, Position: "0", Method: "advice/1",
		Summary: "s", Document: []byte(`{"family":"limits","rule":"quota","workspace":"b"}`),
	}})
	storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
		all, _, err := advice.Incidents(v, tick, tick)
		if err == nil && (len(all) != 1 || all[0].Workspace != "a" || all[0].Case.Workspace != "a") {
			t.Errorf("%+v, want one of workspace a", all)
		}
		return err
	})
}
