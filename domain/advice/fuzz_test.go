package advice

import (
	"testing"

	"quartermaster/domain"
)

// Documents of incidents in the log are anybody's who may write to it: whatever they are, a step goes on.
func FuzzParseCase(f *testing.F) {
	document, _ := (&Case{Family: FamilyUse, Rule: UtilizationDay, Subject: Subject{Cluster: "c"}, Severity: domain.SeverityInfo, PerMonth: []domain.Money{}}).Document()
	f.Add(document)
	f.Add([]byte(`{"subject":{"cluster":"c"},"findings":[{"value":"1e999999"}],"parts":-9223372036854775808}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, document []byte) {
		c, err := ParseCase(document)
		if err != nil {
			return
		}
		fleet := fleet(1, 300)
		found := Evaluate(fleet, nil)
		known := []Incident{{ID: "i", State: Open, Opened: 1, Case: c}}
		changes, err := Step(known, Correlate(fleet, found), found, tick, "p")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Apply(known, changes); err != nil {
			t.Fatal(err)
		}
	})
}
