package recommend_test

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/recommend"

	"github.com/shopspring/decimal"
)

func TestRealise(t *testing.T) {
	const start, day = domain.Instant(1_700_000_000) * domain.Second, domain.Day
	spent := func(from, days domain.Instant, cost string, useful int64) recommend.Spent {
		return recommend.Spent{Window: domain.Interval{From: start + from*day, To: start + (from+days)*day}, Cost: decimal.RequireFromString(cost), Useful: useful}
	}
	for _, c := range []struct {
		name          string
		before, after recommend.Spent
		saved         string
	}{
		{"the same demand at half the cost", spent(0, 30, "720", 100), spent(30, 30, "360", 100), "365"},
		{"twice the demand at the same cost", spent(0, 30, "720", 100), spent(30, 30, "720", 200), "730"},
		{"half the demand at half the cost saves nothing", spent(0, 30, "720", 100), spent(30, 30, "360", 50), "0"},
		{"more cost without more demand", spent(0, 30, "720", 100), spent(30, 30, "1440", 100), "-730"},
		{"demand is taken as unchanged where it was not measured", spent(0, 30, "720", 0), spent(30, 30, "360", 50), "365"},
		{"periods of different lengths", spent(0, 30, "720", 300), spent(30, 15, "180", 150), "365"},
	} {
		if got := recommend.Realise(c.before, c.after, "USD"); !got.Saved.Equal(decimal.RequireFromString(c.saved)) {
			t.Errorf("%s: saved %s, want %s: %+v", c.name, got.Saved, c.saved, got)
		}
	}
}
