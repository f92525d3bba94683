// Package public reads the public data sets used by tests. They are in the directory named by
// QUARTERMASTER_DATA, by default ../shared/data relative to the root of the module. A test whose
// data set is missing is skipped with a message. Only tests import this package.
package public

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"quartermaster/domain"
)

// Dir is the directory of the data sets, which need not exist.
func Dir(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("QUARTERMASTER_DATA"); dir != "" {
		return dir
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return filepath.Join(root, "..", "shared", "data")
		}
		if root == filepath.Dir(root) {
			t.Fatal("no directory above this one has a go.mod")
		}
		root = filepath.Dir(root)
	}
}

// Has reports whether a file of the data sets exists, and logs if it does not. It is for tests that
// can do without the file.
func Has(t testing.TB, name string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(Dir(t), name))
	if err != nil {
		t.Logf("the public data sets are not here (set QUARTERMASTER_DATA): %v", err)
	}
	return err == nil
}

// Open opens a file of the data sets, or skips the test if the file is missing. The file is closed
// when the test ends.
func Open(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join(Dir(t), name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the public data sets are not here (set QUARTERMASTER_DATA): %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Rows reads a CSV file, compressed if its name ends in .gz, or skips the test if it is missing.
// The first row names the columns.
func Rows(t testing.TB, name string) [][]string {
	t.Helper()
	text := io.Reader(Open(t, name))
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(text)
		if err != nil {
			t.Fatal(err)
		}
		text = z
	}
	rows, err := csv.NewReader(text).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// ShavediceFile is the demand of two regions of Snowflake by machine type (CC BY 4.0). The machines
// have CPUs only, so it is used for the shape of demand.
const ShavediceFile = "demand/shavedice_regions_1_2.csv.gz"

// ShavediceUnseenFile is the demand of the data set's other two regions, which no method was tuned on. Nor
// may one be changed after its results were seen.
const ShavediceUnseenFile = "demand/shavedice_regions_3_4.csv.gz"

// ShavediceHours is the number of hours of every series of [Shavedice].
const ShavediceHours = 26_280

// ShavediceFrom is the start of the first hour.
var ShavediceFrom = domain.InstantOf(time.Date(2021, 2, 1, 0, 0, 0, 0, time.UTC))

// Series is the number of machines of one kind in a region wanted in each hour.
type Series struct {
	Region, Kind string
	Units        []int
}

// Shavedice reads three years of hourly demand, by region and kind.
func Shavedice(t testing.TB) []Series { return demandOf(t, ShavediceFile) }

// ShavediceUnseen reads the same of the other regions.
func ShavediceUnseen(t testing.TB) []Series { return demandOf(t, ShavediceUnseenFile) }

func demandOf(t testing.TB, name string) []Series {
	t.Helper()
	var all []Series
	at := map[[2]string]int{}
	for _, row := range Rows(t, name)[1:] {
		when, err := time.Parse("2006-01-02 15:04:05.000", row[0])
		if err != nil {
			t.Fatal(err)
		}
		units, err := strconv.Atoi(row[3])
		if err != nil {
			t.Fatal(err)
		}
		k := [2]string{row[1], row[2]}
		i, ok := at[k]
		if !ok {
			i, at[k] = len(all), len(all)
			all = append(all, Series{k[0], k[1], make([]int, ShavediceHours)})
		}
		h := (domain.InstantOf(when) - ShavediceFrom) / domain.Hour
		if h < 0 || h >= ShavediceHours {
			t.Fatalf("%s: %s is not within the %d hours from %s", name, row[0], ShavediceHours, ShavediceFrom)
		}
		all[i].Units[h] += units
	}
	slices.SortFunc(all, func(a, b Series) int { return strings.Compare(a.Region+a.Kind, b.Region+b.Kind) })
	return all
}

// Together adds up the kinds of each region, as kind "all".
func Together(all []Series) []Series {
	var out []Series
	for _, s := range all {
		n := len(out)
		if n == 0 || out[n-1].Region != s.Region {
			out = append(out, Series{s.Region, "all", slices.Clone(s.Units)})
			continue
		}
		for h, u := range s.Units {
			out[n-1].Units[h] += u
		}
	}
	return out
}

// Milli is the demand in thousandths of a machine.
func (s *Series) Milli() []int64 {
	out := make([]int64, len(s.Units))
	for h, u := range s.Units {
		out[h] = 1000 * int64(u)
	}
	return out
}
