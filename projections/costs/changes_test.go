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
func causesOf(things []thing, accounts []string, with string, how *movement) []string {
	var near, all []string
	if with != "" {
		near, all = append(near, with), append(all, with)
	}
	for _, t := range things {
		all = append(all, t.text)
		switch {
		case t.rule != "" && (how.follows || slices.Contains(how.rules[:], t.rule)),
			t.rule == "" && (t.wide || how.shared || slices.Contains(how.clusters, t.scope)):
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
			text := s + rapid.StringMatching("[a-z]{3}").Draw(t, "text")
			if rapid.IntRange(0, 4).Draw(t, "rule") == 0 {
				return thing{text: text, rule: text}
			}
			return thing{scope: s, wide: rapid.IntRange(0, 9).Draw(t, "wide") == 0, text: text}
		}), 0, 60).Filter(func(all []thing) bool { // a rule is one thing
			names := map[string]bool{}
			for _, t := range all {
				if t.rule != "" && names[t.rule] {
					return false
				}
				names[t.rule] = true
			}
			return true
		}).Draw(t, "things")
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
		how := &movement{
			clusters: rapid.SliceOfNDistinct(scope, 0, 4, rapid.ID[string]).Draw(t, "clusters"),
			shared:   rapid.IntRange(0, 3).Draw(t, "shared") == 0, follows: rapid.IntRange(0, 3).Draw(t, "follows") == 0,
		}
		for i := range how.rules {
			if rules := slices.DeleteFunc(slices.Clone(things), func(t thing) bool { return t.rule == "" }); len(rules) > 0 {
				how.rules[i] = rapid.SampledFrom(rules).Draw(t, "rule of the line").rule
			}
		}
		got := c.of(line, PostedReattribution, how, Methods{}, Methods{})
		if want := causesOf(things, c.accounts[account], c.with[line], how); !slices.Equal(got, want) {
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
			c.things = append(c.things, thing{scope: fmt.Sprint("cluster-", i), text: fmt.Sprintf("NodeRegistered cluster-%d/n", i)})
			c.received[account] = append(c.received[account], fmt.Sprint("InvoiceReceived p/1/", i))
		}
		c.index()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range n {
			for _, id := range []string{fmt.Sprint("line-", i), fmt.Sprint(accrualPrefix, i)} {
				if len(c.of(lineKey{"p", "1", id}, PostedReattribution, &movement{clusters: []string{fmt.Sprint("cluster-", i)}}, Methods{}, Methods{})) == 0 {
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
