package api

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestSpool sends short and long answers.
func TestSpool(t *testing.T) {
	for _, size := range []int{0, 1, mostInMemory, mostInMemory + 1, 5 * mostInMemory} {
		whole := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			out := &spool{}
			for part := whole; len(part) > 0; part = part[min(len(part), 100_000):] {
				if _, err := out.Write(part[:min(len(part), 100_000)]); err != nil {
					t.Error(err)
				}
			}
			if (out.file != nil) != (size > mostInMemory) {
				t.Errorf("%d bytes in a file: %v", size, out.file != nil)
			}
			if err := out.send(w); err != nil {
				t.Error(err)
			}
			if err := out.close(); err != nil {
				t.Error(err)
			}
		}))
		resp, err := http.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(got, whole) {
			t.Errorf("%d bytes: %d %v", size, len(got), err)
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
		{nil, false}, {[]string{""}, false}, {[]string{`"a"`}, true}, {[]string{`W/"a"`}, true}, {[]string{"*"}, false},
		{[]string{`"b", "a"`}, true}, {[]string{`"b"`, `"a"`}, true}, {[]string{`a`}, false}, {[]string{`"aa"`}, false},
	} {
		if got := matches(c.headers, `"a"`); got != c.want {
			t.Errorf("%q: %v", c.headers, got)
		}
	}
}
