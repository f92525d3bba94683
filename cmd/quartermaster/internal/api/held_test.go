package api

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestHeld sends short and long answers. A short one is held back until its end, so that an error can replace it.
func TestHeld(t *testing.T) {
	for _, size := range []int{0, 1, heldBack, heldBack + 1, 5 * heldBack} {
		whole := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			out := &held{to: w, kind: "text/plain"}
			for part := whole; len(part) > 0; part = part[min(len(part), 100_000):] {
				if _, err := out.Write(part[:min(len(part), 100_000)]); err != nil {
					t.Error(err)
				}
			}
			if out.begun != (size > heldBack) {
				t.Errorf("%d bytes: begun %v", size, out.begun)
			}
			if out.begun {
				w.Header().Set(http.TrailerPrefix+"Quartermaster-Exit-Code", "5")
			}
			out.end()
		}))
		resp, err := http.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(got, whole) || resp.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("%d bytes: %d %v %v", size, len(got), err, resp.Header)
		}
		if (resp.Trailer.Get("Quartermaster-Exit-Code") == "5") != (size > heldBack) {
			t.Errorf("%d bytes: trailer %v", size, resp.Trailer)
		}
		srv.Close()
	}
}

// TestMatches reads lists of entity tags.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		headers []string
		want    bool
	}{
		{nil, false}, {[]string{""}, false}, {[]string{`"a"`}, true}, {[]string{`W/"a"`}, true}, {[]string{"*"}, true},
		{[]string{`"b", "a"`}, true}, {[]string{`"b"`, `"a"`}, true}, {[]string{`a`}, false}, {[]string{`"aa"`}, false},
	} {
		if got := matches(c.headers, `"a"`); got != c.want {
			t.Errorf("%q: %v", c.headers, got)
		}
	}
}
