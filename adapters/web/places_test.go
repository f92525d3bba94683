package web_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"quartermaster/domain"
)

// Pages write money with the places that the domain rounds it to, of every code that a currency may have.
func TestPlacesOfCurrencies(t *testing.T) {
	source, err := os.ReadFile("src/format.ts")
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]int{}
	for _, m := range regexp.MustCompile(`\{ places: (\d), of: '([A-Z ]+)' \}`).FindAllStringSubmatch(string(source), -1) {
		for currency := range strings.FieldsSeq(m[2]) {
			places[currency] = int(m[1][0] - '0')
		}
	}
	if len(places) == 0 {
		t.Fatal("src/format.ts has no places of currencies")
	}
	for n := range 26 * 26 * 26 {
		currency := string([]byte{byte('A' + n/676), byte('A' + n/26%26), byte('A' + n%26)})
		got, ok := places[currency]
		if !ok {
			got = 2
		}
		if want := domain.MinorUnits(currency); got != want {
			t.Errorf("%s has %d places on pages, %d in the domain", currency, got, want)
		}
	}
}
