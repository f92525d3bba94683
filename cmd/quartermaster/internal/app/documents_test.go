package app

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestServerBoundsInstances asks with short documents that would take many GiB. A server refuses them, a command does not.
func TestServerBoundsInstances(t *testing.T) {
	offers := make([]string, 3001)
	for i := range offers {
		offers[i] = fmt.Sprintf(`{"id":"o%d","kind":"reserved","pool":"p","term_epochs":1,"upfront":"0","hourly":"3","guarantees_capacity":true}`, i)
	}
	scenarios := make([]string, 1000)
	for i := range scenarios {
		scenarios[i] = fmt.Sprintf(`{"id":"s%d","weight":1}`, i)
	}
	document := func(days int, offers, scenarios []string) string {
		return fmt.Sprintf(`{"format":"quartermaster.instance/1","name":"n","currency":"USD","from":"2026-01-01T00:00:00Z","epoch":"day","epochs":%d,
"annual_rate":"0","salvage":"0","regions":[{"id":"r"}],"pools":[{"id":"p","region":"r","class":"K","unit":"gpu","on_demand":{"hourly":"10"}}],
"demands":[{"id":"d","pool":"p","hourly":[%s0],"interruptible_share":"0","shortage_hourly":"100"}],"offers":[%s],"scenarios":[%s]}`,
			days, strings.Repeat("0,", 24*days-1), strings.Join(offers, ","), strings.Join(scenarios, ","))
	}
	for name, of := range map[string]struct {
		text    string
		refused bool
	}{
		"small":          {document(2, offers[:2], nil), false},
		"many purchases": {document(1000, offers, nil), true},
		"many loads":     {document(2100, offers[:1], scenarios), true},
	} {
		files := func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(of.text)), nil }
		if _, err := (&App{Files: files}).ReadQuestion("a.json", nil); err != nil {
			t.Errorf("%s: %.300s", name, err)
		}
		_, err := (&App{Files: files, shared: &Conn{}}).ReadQuestion("a.json", nil)
		var invalid *InvalidError
		if errors.As(err, &invalid) != of.refused || of.refused && !strings.Contains(err.Error(), "a server solves 3,000,000 and 50,000,000 at most") {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}
