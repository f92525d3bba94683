package domain

import (
	"reflect"
	"strings"
	"testing"
)

// A mapping rule may use every text column that a line keeps, and reads it.
func TestMappingRulesReadEveryColumnOfText(t *testing.T) {
	kept := map[string]bool{"ProviderName": true, "PublisherName": true, "x_Anything": true}
	line := BillingLine{Other: map[string]string{}}
	for name := range kept {
		line.Other[name] = "of " + name
	}
	v := reflect.ValueOf(&line).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if v.Field(i).Kind() == reflect.String {
			v.Field(i).SetString("of " + name)
			kept[name] = true
		}
	}
	for name := range kept {
		if got := line.Column(name); got != "of "+name {
			t.Errorf("%s reads %q", name, got)
		}
		rule := MappingRuleSet{Rule: "r", Columns: map[string]string{name: "of *"}, Buys: BuysNothing, EffectiveFrom: 1}
		if err := Validate(&Envelope{Workspace: "w", Time: 1, Event: &rule}); err != nil {
			t.Errorf("a rule that goes by %s: %v", name, err)
		}
	}
	if len(kept) < len(textColumns) {
		t.Errorf("%d columns of text, %d can be read", len(kept), len(textColumns))
	}
}
