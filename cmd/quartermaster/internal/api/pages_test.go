package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// listOf returns an answer with n rows, a part of it in a file.
func listOf(t *testing.T, n int, lines bool) *list {
	t.Helper()
	l := &list{lines: lines}
	t.Cleanup(func() { _ = l.close() })
	write := func(format string, args ...any) {
		if _, err := fmt.Fprintf(&l.spool, format, args...); err != nil {
			t.Fatal(err)
		}
	}
	if !lines {
		write("{\n  \"other\": [1, {\"rows\": [2]}],\n  \"rows\": [")
	}
	for i := range n {
		switch {
		case lines:
			write("{\"n\":%d,\"x\":%q}\n", i, strings.Repeat("x", i%7*1000))
		case i > 0:
			write(",")
			fallthrough
		default:
			write("\n    {\"n\": %d, \"x\": \"],}\\\"\"}", i)
		}
	}
	if l.end = l.length(); lines {
		return l
	}
	write("\n  ],\n  \"position\": \"p\"\n}\n")
	if err := l.find("rows"); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestPages reads lists in pages of every size: together they are the rows, and each document is whole.
func TestPages(t *testing.T) {
	for _, n := range []int{0, 1, 2, 10, 700} {
		for _, lines := range []bool{false, true} {
			for _, limit := range []int{1, 2, 3, 9, 10, 11, 1000} {
				l := listOf(t, n, lines)
				seen, pages := 0, 0
				for at := int64(0); pages == 0 || at > 0; pages++ {
					var out bytes.Buffer
					var err error
					if at, err = l.write(&out, at, limit); err != nil {
						t.Fatal(err)
					}
					var rows []struct{ N int }
					if lines {
						for d := json.NewDecoder(&out); d.More(); {
							rows = append(rows, struct{ N int }{})
							if err := d.Decode(&rows[len(rows)-1]); err != nil {
								t.Fatal(err)
							}
						}
					} else {
						var doc struct {
							Rows     []struct{ N int }
							Position string
						}
						if err := json.Unmarshal(out.Bytes(), &doc); err != nil || doc.Position != "p" {
							t.Fatalf("%d rows by %d: %v in %s", n, limit, err, out.String())
						}
						rows = doc.Rows
					}
					for _, r := range rows {
						if r.N != seen {
							t.Fatalf("%d rows by %d: row %d is %d", n, limit, seen, r.N)
						}
						seen++
					}
					if len(rows) > limit || at > 0 && len(rows) != limit {
						t.Fatalf("%d rows by %d: a page has %d", n, limit, len(rows))
					}
				}
				if want := max(1, (n+limit-1)/limit); seen != n || pages != want {
					t.Errorf("%d rows by %d, lines %t: %d rows in %d pages, want %d", n, limit, lines, seen, pages, want)
				}
			}
		}
	}
}

// TestPagesKept keeps no more answers than the bound, those used last, and none that is too old.
func TestPagesKept(t *testing.T) {
	var p pages
	key := func(i int) string { return fmt.Sprint("answer ", i) }
	for i := range 3 * mostKept {
		p.keep(key(i), listOf(t, 700, true))
		if first := p.take(key(0)); first == nil {
			t.Fatalf("what is used is dropped after %d", i)
		} else {
			p.keep(key(0), first)
		}
	}
	if len(p.all) != mostKept || !p.has(key(3*mostKept-1)) || p.has(key(1)) {
		t.Errorf("%d are kept", len(p.all))
	}
	var size int64
	for _, l := range p.all {
		size += l.length()
	}
	if size != p.size || size == 0 {
		t.Errorf("%d bytes are counted, %d are kept", p.size, size)
	}
	for _, l := range p.all {
		l.until = time.Now().Add(-time.Second)
	}
	if p.take(key(0)) != nil || len(p.all) != 0 || p.size != 0 {
		t.Errorf("%d answers and %d bytes are too old", len(p.all), p.size)
	}
}
