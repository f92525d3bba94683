package costs

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
)

// causesOf looks at everything for each line: it shares no code with the index.
func causesOf(things []thing, accounts []string, with string, clusters []string) []string {
	var near, all []string
	if with != "" {
		near, all = append(near, with), append(all, with)
	}
	for _, t := range things {
		all = append(all, t.text)
		if t.wide || slices.Contains(clusters, t.scope) {
			near = append(near, t.text)
		}
	}
	for _, list := range [][]string{slices.Concat(near, accounts), all} {
		if len(list) > mostCauses {
			return append(slices.Clone(list[:mostCauses]), fmt.Sprintf("and %d more", len(list)-mostCauses))
		}
		if len(list) > 0 {
			return list
		}
	}
	return []string{}
}

func TestCausesAreIndexed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scope := rapid.StringMatching("[a-d]?")
		things := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) thing {
			s := scope.Draw(t, "scope")
			return thing{s, rapid.IntRange(0, 9).Draw(t, "wide") == 0, s + rapid.StringMatching("[a-z]{3}").Draw(t, "text")}
		}), 0, 60).Draw(t, "things")
		line := lineKey{"p", "1", "line"}
		account := domain.AccountKey("p", "1")
		c := &Changes{
			things: slices.Clone(things), with: map[lineKey]string{},
			accounts: map[string][]string{account: rapid.SliceOfN(rapid.StringMatching("line [a-z]"), 0, 12).Draw(t, "lines")},
		}
		if rapid.Bool().Draw(t, "at that time") {
			c.with[line] = "the line itself"
		}
		c.index()
		slices.SortFunc(things, func(a, b thing) int { return strings.Compare(a.text, b.text) })
		clusters := rapid.SliceOfNDistinct(scope, 0, 4, rapid.ID[string]).Draw(t, "clusters")
		got := c.of(line, PostedReattribution, "", clusters, Methods{}, Methods{})
		if want := causesOf(things, c.accounts[account], c.with[line], clusters); !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

// TestCausesGrowWithLines: ten times the lines and the causes take about ten times the memory, not a hundred times. It is
// what copying lists of causes takes, and no clock decides.
func TestCausesGrowWithLines(t *testing.T) {
	took := func(n int) uint64 {
		c := &Changes{received: map[string][]string{}}
		account := domain.AccountKey("p", "1")
		for i := range n {
			c.things = append(c.things, thing{fmt.Sprint("cluster-", i), false, fmt.Sprintf("NodeRegistered cluster-%d/n", i)})
			c.received[account] = append(c.received[account], fmt.Sprint("InvoiceReceived p/1/", i))
		}
		c.index()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range n {
			for _, id := range []string{fmt.Sprint("line-", i), fmt.Sprint(accrualPrefix, i)} {
				if len(c.of(lineKey{"p", "1", id}, PostedReattribution, "", []string{fmt.Sprint("cluster-", i)}, Methods{}, Methods{})) == 0 {
					t.Fatal("no cause")
				}
			}
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := took(1_000), took(10_000)
	t.Logf("1,000 lines and causes take %d bytes, 10,000 %d", few, many)
	if many > 20*few {
		t.Errorf("1,000 lines and causes take %d bytes, 10,000 take %d", few, many)
	}
}
