package forecast_test

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"quartermaster/domain/forecast"
)

// Quarterly beer production in Australia, 1992 to the second quarter of 2010, in
// megalitres (Australian Bureau of Statistics 8301.0.55.001).
var beer = []float64{
	443, 410, 420, 532, 433, 421, 410, 512, 449, 381, 423, 531, 426, 408, 416, 520,
	409, 398, 398, 507, 432, 398, 406, 526, 428, 397, 403, 517, 435, 383, 424, 521,
	421, 402, 414, 500, 451, 380, 416, 492, 428, 408, 406, 506, 435, 380, 421, 490,
	435, 390, 412, 454, 416, 403, 408, 482, 438, 386, 405, 491, 427, 383, 394, 473,
	420, 390, 410, 488, 415, 398, 419, 488, 414, 374,
}

// The table in Hyndman and Athanasopoulos, Forecasting: principles and practice (2nd ed. section
// 3.4, 3rd ed. section 5.8): learned from 1992 to 2007, with the rest forecast by three methods.
func TestPublishedBeer(t *testing.T) {
	const learned, season = 64, 4
	past, actual := beer[:learned], beer[learned:]
	mean := 0.0
	for _, v := range past {
		mean += v / learned
	}
	for _, c := range []struct {
		method    string
		at        func(h int) float64
		mae, mase float64
	}{
		{"mean", func(int) float64 { return mean }, 34.83, 2.44},
		{"naive", func(int) float64 { return past[learned-1] }, 57.40, 4.01},
		{"seasonal naive", func(h int) float64 { return past[learned-season+h%season] }, 13.40, 0.94},
	} {
		got := make([]float64, len(actual))
		for h := range got {
			got[h] = c.at(h)
		}
		if v := forecast.MAE(actual, got); math.Abs(v-c.mae) > 0.005 {
			t.Errorf("%s: MAE %.4f, published %.2f", c.method, v, c.mae)
		}
		if v := forecast.MASE(past, season, actual, got); math.Abs(v-c.mase) > 0.005 {
			t.Errorf("%s: MASE %.4f, published %.2f", c.method, v, c.mase)
		}
	}
}

// The example in section 5.9 of the 3rd edition: a 10% quantile of 744.54 for a price of 741.84
// scores 4.86, which counts each loss twice.
func TestPublishedQuantileScore(t *testing.T) {
	got := 2 * forecast.Pinball(0.1, []float64{741.84}, []float64{744.54})
	if math.Abs(got-4.86) > 0.005 {
		t.Errorf("quantile score %.4f, published 4.86", got)
	}
}

// The M4 competition published, for its 414 hourly series and the seasonal naive
// method with a season of a day, sMAPE 13.912 and MASE 1.193 (Makridakis et al.,
// 2020). Its data carry no licence and are not here; QM_M4 names a directory with
// Hourly-train.csv and Hourly-test.csv of Mcompetitions/M4-methods.
func TestPublishedM4(t *testing.T) {
	dir := os.Getenv("QM_M4")
	if dir == "" {
		t.Skip("the data of the M4 competition are not here (set QM_M4)")
	}
	const season = 24
	past, actual := m4(t, filepath.Join(dir, "Hourly-train.csv")), m4(t, filepath.Join(dir, "Hourly-test.csv"))
	smape, mase := 0.0, 0.0
	for i, learned := range past {
		got := make([]float64, len(actual[i]))
		for h := range got {
			got[h] = learned[len(learned)-season+h%season]
		}
		smape += forecast.SMAPE(actual[i], got) / float64(len(past))
		mase += forecast.MASE(learned, season, actual[i], got) / float64(len(past))
	}
	if len(past) != 414 || math.Abs(smape-13.912) > 0.0005 || math.Abs(mase-1.193) > 0.0005 {
		t.Errorf("%d series: sMAPE %.4f, MASE %.4f; published 414, 13.912 and 1.193", len(past), smape, mase)
	}
}

// m4 reads one series a line, each after its name, the shorter ones padded.
func m4(t *testing.T, file string) [][]float64 {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out [][]float64
	for _, line := range lines[1:] {
		var series []float64
		for _, cell := range line[1:] {
			if cell == "" {
				break
			}
			v, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				t.Fatal(err)
			}
			series = append(series, v)
		}
		out = append(out, series)
	}
	return out
}

// SMAPE without those data, computed by hand from the definition of the M4 competition:
// 200·|100−110|/210, 200·50/150 and 0.
func TestSMAPE(t *testing.T) {
	got := forecast.SMAPE([]float64{100, 50, 0}, []float64{110, 100, 0})
	if want := (200*10/210.0 + 200*50/150.0) / 3; math.Abs(got-want) > 1e-12 {
		t.Errorf("sMAPE %v, want %v", got, want)
	}
}

func TestMASEWithoutScale(t *testing.T) {
	for _, past := range [][]float64{{1, 1, 1, 1}, {1, 2}} {
		if v := forecast.MASE(past, 2, []float64{1}, []float64{2}); !math.IsNaN(v) {
			t.Errorf("MASE of a history that repeats exactly is %v", v)
		}
	}
}

func TestCoverage(t *testing.T) {
	if v := forecast.Coverage([]float64{1, 2, 3, 4}, []float64{1, 1, 3, 9}); v != 0.75 {
		t.Errorf("coverage %v", v)
	}
}
