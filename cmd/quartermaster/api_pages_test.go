package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"quartermaster/adapters/oidc/oidctest"
)

// nextPage matches the header that names the next page.
var nextPage = regexp.MustCompile(`^<(/api/v1/[^>]+)>; rel="next"$`)

// TestPagesOfAnswers reads a list in pages while the log moves on, on another process too, and sends cursors that are
// not of the question or of the person.
func TestPagesOfAnswers(t *testing.T) {
	dir := t.TempDir()
	estateOf(t, dir)
	var more strings.Builder
	more.WriteString("apiVersion: quartermaster/v1\nkind: Estate\nworkspaces:\n")
	for i := range 23 {
		fmt.Fprintf(&more, "  - {id: team-%02d, name: Team, parent: research}\n", i)
	}
	file := filepath.Join(t.TempDir(), "more.yaml")
	if err := os.WriteFile(file, []byte(more.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	idp := oidctest.New(t)
	s := serveListening(t, dir, idp, nil)
	s.command("apply", "-f", file)
	s.command("access", "grant", "user:corp/ana", "--role", "auditor")
	s.command("access", "grant", "user:corp/bob", "--role", "auditor")
	s.command("access", "grant", "user:corp/eve", "--role", "auditor", "--workspace", "shop")
	ana, bob, eve := idp.Token(t, "ana"), idp.Token(t, "bob"), idp.Token(t, "eve")
	const ask = "/api/v1/get?kind=workspaces"
	s.becomes(http.StatusOK, ana, ask)
	s.becomes(http.StatusOK, bob, ask)
	s.becomes(http.StatusOK, eve, ask)
	type answer struct {
		Entries, Asked, Decisions []json.RawMessage
		Position                  string
	}
	read := func(got reply) (ans answer) {
		t.Helper()
		if got.status != http.StatusOK || json.Unmarshal([]byte(got.body), &ans) != nil {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return ans
	}
	next := func(got reply) string {
		t.Helper()
		if got.header.Get("Link") == "" {
			return ""
		}
		found := nextPage.FindStringSubmatch(got.header.Get("Link"))
		if found == nil {
			t.Fatalf("Link: %s", got.header.Get("Link"))
		}
		return found[1]
	}
	// rows reads all pages of a question. after is called with the number of each page.
	rows := func(question string, after func(page int)) (all []string) {
		t.Helper()
		position := ""
		for n := 0; question != ""; n++ {
			got := s.get(ana, question)
			ans := read(got)
			if position == "" {
				position = ans.Position
			}
			if ans.Position != position {
				t.Fatalf("page %d is of %s, the first of %s", n, ans.Position, position)
			}
			for _, e := range slices.Concat(ans.Entries, ans.Asked, ans.Decisions) {
				all = append(all, string(e))
			}
			question = next(got)
			after(n)
		}
		return all
	}
	one := func(question string) []string { return rows(question, func(int) {}) }
	applied := 0
	moves := func() {
		applied++
		file := filepath.Join(t.TempDir(), "later.yaml")
		text := fmt.Sprintf("apiVersion: quartermaster/v1\nkind: Estate\nworkspaces:\n  - {id: aa-%d, name: First, parent: research}\n", applied)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.command("apply", "-f", file)
	}
	whole := one(ask)
	if len(whole) < 26 || next(s.get(ana, ask)) != "" {
		t.Fatalf("%d entries without a limit", len(whole))
	}
	second := next(s.get(ana, ask+"&limit=5"))
	got := rows(ask+"&limit=5", func(page int) {
		if page == 1 {
			moves()
		}
	})
	if strings.Join(got, "\n") != strings.Join(whole, "\n") {
		t.Errorf("the pages have %d entries, the answer %d:\n%s", len(got), len(whole), strings.Join(got, "\n"))
	}
	if now := one(ask); len(now) != len(whole)+1 {
		t.Errorf("now there are %d entries", len(now))
	}
	for _, ask := range []string{"/api/v1/decisions/list", "/api/v1/audit/trail"} {
		if whole, got := one(ask), one(ask+"?limit=3"); len(whole) < 4 || !slices.Equal(got, whole) {
			t.Errorf("%s: the pages have %d rows, the answer %d", ask, len(got), len(whole))
		}
	}
	// A process that kept nothing computes the answer again, unless it depends on the time.
	s.stop() // what was asked is in the log
	s = serveListening(t, dir, idp, nil)
	const audit = "/api/v1/audit/access?from=2026-01-01&to=2100-01-01&limit=1"
	whole = one(audit)
	got = rows(audit, func(page int) {
		if page == 0 {
			moves()
			s.stop()
			s = serveListening(t, dir, idp, nil)
		}
	})
	if len(whole) < 2 || strings.Join(got, "\n") != strings.Join(whole, "\n") {
		t.Errorf("the pages have\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(whole, "\n"))
	}
	if got := s.get(ana, second); got.status != http.StatusBadRequest || !strings.Contains(got.body, "not kept any more") {
		t.Errorf("an answer of a time, of another process: %d %s", got.status, got.body)
	}
	kept := s.get(ana, audit)
	if got := s.get(ana, next(kept)); got.header.Get("ETag") == "" || got.header.Get("ETag") == kept.header.Get("ETag") {
		t.Errorf("tags of pages: %s, %s", kept.header.Get("ETag"), got.header.Get("ETag"))
	}
	second = next(s.get(ana, ask+"&limit=5"))

	at, err := url.Parse(second)
	if err != nil {
		t.Fatal(err)
	}
	cursor := at.Query().Get("cursor")
	with := func(token, question, cursor string) reply {
		return s.get(token, question+"&cursor="+url.QueryEscape(cursor))
	}
	for name, got := range map[string]reply{
		"of another person":    with(bob, ask+"&limit=5", cursor),
		"of another scope":     with(eve, ask+"&limit=5", cursor),
		"of another question":  with(ana, ask+"&workspace=shop&limit=5", cursor),
		"of another operation": with(ana, "/api/v1/usage?from=2026-05-01&to=2026-05-02", cursor),
		"changed":              with(ana, ask, cursor[:30]+"A"+cursor[31:]),
		"cut":                  with(ana, ask, cursor[:len(cursor)-1]),
		"empty":                with(ana, ask, ""),
		"text":                 with(ana, ask, "2"),
		"twice":                s.get(ana, ask+"&cursor="+cursor+"&cursor="+cursor),
		"of a table":           with(ana, ask+"&output=table", cursor),
		"a limit of text":      s.get(ana, ask+"&limit=x"),
		"a limit below zero":   s.get(ana, ask+"&limit=-1"),
		"an operation of one":  with(ana, "/api/v1/fleet?at=2026-05-01", cursor),
	} {
		if got.status != http.StatusBadRequest || strings.Contains(got.body, "team-") || strings.Contains(got.body, "bob") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if got := with(ana, ask+"&limit=7", cursor); len(read(got).Entries) != 7 {
		t.Errorf("a page of another size: %d %s", got.status, got.body)
	}
	// What ends a right ends its cursors.
	s.command("access", "revoke", "auditor:user:corp/ana")
	s.becomes(http.StatusForbidden, ana, second)
}
