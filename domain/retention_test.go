package domain

import "testing"

func TestParseKeep(t *testing.T) {
	for _, c := range []struct {
		what Retained
		text string
		want Keep
	}{
		{RetainedHours, "36 months", Keep{Months: 36}},
		{RetainedHours, "1 month", Keep{Months: 1}},
		{RetainedLog, "90 days", Keep{Days: 90}},
		{RetainedQuarantine, "1 day", Keep{Days: 1}},
		{RetainedSnapshots, "14 days", Keep{Days: 14}},
		{RetainedSnapshots, "36 months", Keep{Months: 36}},
		{RetainedSnapshots, "14 days and 36 months", Keep{Days: 14, Months: 36}},
	} {
		got, err := ParseKeep(c.what, c.text)
		if err != nil || got != c.want || got.String() != c.text {
			t.Errorf("%s %q: %+v, %v", c.what, c.text, got, err)
		}
	}
	for _, c := range []struct {
		what Retained
		text string
	}{
		{RetainedHours, "90 days"}, {RetainedLog, "3 months"}, {RetainedQuarantine, "3 months"},
		{RetainedLog, ""}, {RetainedLog, "0 days"}, {RetainedLog, "-1 days"}, {RetainedLog, "+1 days"},
		{RetainedLog, "01 days"}, {RetainedLog, "90"}, {RetainedLog, "90 weeks"}, {RetainedLog, "90 days and 1 days"},
		{RetainedLog, "99999999999 days"}, {RetainedSnapshots, "36 months and 14 days"},
		{RetainedSnapshots, "1 month and 2 months"}, {RetainedSnapshots, "1 day and 1 month and 1 month"},
	} {
		if k, err := ParseKeep(c.what, c.text); err == nil {
			t.Errorf("%s %q is read as %v", c.what, c.text, k)
		}
	}
	if !(Keep{Months: 1}).Longer(Keep{Days: 30}) || (Keep{Months: 1}).Longer(Keep{Days: 31}) {
		t.Error("a month is not 31 days")
	}
}
