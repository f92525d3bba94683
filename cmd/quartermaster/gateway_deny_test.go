package main

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"quartermaster/adapters/httpapi"
)

// However many are refused, few events tell of it, and their counts add up.
func TestDenialsAreFolded(t *testing.T) {
	start := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	d := newDenials(start)
	known := httpapi.Denial{Principal: "key k of cluster lab", Target: "eu", Reason: "its key pushes for cluster lab alone"}
	d.add(known)
	d.add(httpapi.Denial{Principal: known.Principal, Target: "us", Reason: known.Reason})
	if first := d.fresh(); len(first) != 1 || first[0] != known {
		t.Errorf("at once: %+v", first)
	}
	const addresses, each = 500, 20
	for n := range addresses * each {
		d.add(httpapi.Denial{Principal: fmt.Sprint("address 10.0.0.", n%addresses), Reason: "its key is not known here"})
	}
	all := d.end(start.Add(denialWindow))
	counts := regexp.MustCompile(`(\d+) (?:more|refusals) since 2026-05-01T10:00:00Z`)
	sum := 0
	for _, one := range all {
		if m := counts.FindStringSubmatch(one.Reason); m == nil {
			sum++
		} else if n, err := strconv.Atoi(m[1]); err == nil {
			sum += n
		}
	}
	if want := addresses*each + 1; sum != want || len(all) > 2*mostDenials+1 {
		t.Errorf("%d events tell of %d denials, want %d: %+v", len(all), sum, want, all)
	}
	if more := all[mostDenials-1]; more != (httpapi.Denial{Principal: known.Principal, Reason: known.Reason + "; and 1 more since 2026-05-01T10:00:00Z"}) {
		t.Errorf("of one that was told: %+v", more)
	}
	if again := d.end(start.Add(2 * denialWindow)); len(again) != 0 {
		t.Errorf("an empty window tells %+v", again)
	}
	d.add(known)
	if again := d.fresh(); len(again) != 1 {
		t.Errorf("in another window: %+v", again)
	}
}
