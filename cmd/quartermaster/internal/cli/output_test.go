package cli

import (
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/attribution"

	"github.com/shopspring/decimal"
)

// TestPlainBarOfManyGoroutines has draws on several goroutines say how far they are in one
// interval: the race detector sees the bar, and one line is written.
func TestPlainBarOfManyGoroutines(t *testing.T) {
	var out strings.Builder
	start := time.Date(2026, time.July, 1, 0, 0, 0, 0, time.UTC)
	bar := &plainBar{app: &Program{err: &out}, name: "draws", unit: "draws", total: 8, start: start, said: start}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { bar.set(4, start.Add(app.SayEvery)) })
	}
	wg.Wait()
	if want := "draws: 4 of 8 draws (50 %), 0 a second, 10s left\n"; out.String() != want {
		t.Errorf("said %q, want %q", out.String(), want)
	}
}

func TestCents(t *testing.T) {
	for _, c := range []struct{ amount, currency, want string }{
		{"0", "USD", "0.00"}, {"-0.004", "USD", "0.00"}, {"-0.005", "USD", "-0.01"}, {"999.995", "USD", "1,000.00"},
		{"-1234567.1", "EUR", "-1,234,567.10"}, {"1234.5", "JPY", "1,235"}, {"0.0005", "KWD", "0.001"}, {"123", "USD", "123.00"},
	} {
		amount, err := attribution.AmountOf(decimal.RequireFromString(c.amount))
		if err != nil {
			t.Fatal(err)
		}
		if got := cents(amount, c.currency); got != c.want {
			t.Errorf("%s %s is shown as %s, want %s", c.amount, c.currency, got, c.want)
		}
	}
}

func TestGPUHours(t *testing.T) {
	for _, c := range []struct {
		ms   int64
		want string
	}{
		{0, "0.00"}, {17_999, "0.00"}, {18_000, "0.01"}, {-17_999, "0.00"}, {-18_000, "-0.01"}, {-57_564_000, "-15.99"},
		{3_600_000, "1.00"}, {-4_446_000_000, "-1,235.00"}, {math.MinInt64, "-2,562,047,788,015.22"},
	} {
		if got := gpuHours(c.ms); got != c.want {
			t.Errorf("%d ms are shown as %s, want %s", c.ms, got, c.want)
		}
	}
}

func TestMoneyIsShownToCents(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0.00", "0.005": "0.01", "-0.004": "0.00", "-0.5": "-0.50", "1234567.891": "1,234,567.89", "-1234": "-1,234.00",
		"123456789012345678901234.5": "123,456,789,012,345,678,901,234.50",
	} {
		var d domain.Decimal
		if err := d.UnmarshalText([]byte(in)); err != nil {
			t.Fatal(err)
		}
		if got := money(d); got != want {
			t.Errorf("money(%s) = %q, want %q", in, got, want)
		}
	}
}

func TestPlainBar(t *testing.T) {
	var out strings.Builder
	a := commandLine(&app.App{}, io.Discard, &out)
	b := a.track(app.Work{Name: "fold", Total: 4 * worthABar, Unit: "events"}).(*bar)
	start := b.plain.start
	for i := range 31 {
		b.plain.set(int64(i)*worthABar/10, start.Add(time.Duration(i)*time.Second))
	}
	want := "fold: 50,000 of 200,000 events (25 %), 5,000 a second, 30s left\n" +
		"fold: 100,000 of 200,000 events (50 %), 5,000 a second, 20s left\n" +
		"fold: 150,000 of 200,000 events (75 %), 5,000 a second, 10s left\n"
	if out.String() != want {
		t.Errorf("it says\n%s", out.String())
	}
	a.quiet = true
	if b := a.track(app.Work{Name: "fold", Total: 4 * worthABar, Unit: "events"}).(*bar); b.plain != nil || b.bar != nil {
		t.Error("--quiet does not silence it")
	}
}

func TestDayMeans(t *testing.T) {
	const day = 86_400
	days, means := dayMeans([]float64{day - 3600, day, day + 3600, 3 * day}, []float64{5, 2, 4, 7})
	if !slices.Equal(days, []float64{day - 3600, day, 3 * day}) || !slices.Equal(means, []float64{5, 3, 7}) {
		t.Errorf("%v %v", days, means)
	}
}
