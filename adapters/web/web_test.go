package web

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, method, path string, header map[string]string) *http.Response {
	t.Helper()
	h, err := Handler()
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(method, path, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Every path has the document, with a policy that allows nothing inline and nothing from elsewhere.
func TestDocument(t *testing.T) {
	for _, path := range []string{"/", "/fleet", "/costs?from=2026-05", "/no/such/page"} {
		r := get(t, http.MethodGet, path, nil)
		text := string(body(t, r))
		if r.StatusCode != http.StatusOK || !strings.HasPrefix(text, "<!doctype html>") {
			t.Errorf("%s: %d %.40q", path, r.StatusCode, text)
		}
		p := r.Header.Get("Content-Security-Policy")
		if p == "" || strings.Contains(p, "unsafe") || strings.Contains(p, "http") || !strings.Contains(p, "default-src 'none'") {
			t.Errorf("%s: policy %q", path, p)
		}
		if inline := regexp.MustCompile(`<script>|<style|\son\w+=|style=|https?://`).FindString(text); inline != "" {
			t.Errorf("%s has %q inline", path, inline)
		}
	}
}

// Whoever reads gzip gets the same bytes packed, and each form has a tag of its own.
func TestPacked(t *testing.T) {
	if !Built() {
		t.Skip("the program has no pages: make web builds them")
	}
	document := string(body(t, get(t, http.MethodGet, "/", nil)))
	assets := regexp.MustCompile(`/assets/[^"]+`).FindAllString(document, -1)
	if len(assets) < 2 {
		t.Fatalf("the document names %d assets: %s", len(assets), document)
	}
	for _, path := range append(assets, "/") {
		plain, packed := get(t, http.MethodGet, path, nil), get(t, http.MethodGet, path, map[string]string{"Accept-Encoding": "br, gzip;q=0.5"})
		want := body(t, plain)
		got, err := unpack(body(t, packed))
		if err != nil || !bytes.Equal(got, want) || packed.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %v; %d bytes packed, %d plain", path, err, len(got), len(want))
		}
		tag := packed.Header.Get("ETag")
		if tag == plain.Header.Get("ETag") {
			t.Errorf("%s: two forms have the tag %s", path, tag)
		}
		again := get(t, http.MethodGet, path, map[string]string{"Accept-Encoding": "gzip", "If-None-Match": tag})
		if again.StatusCode != http.StatusNotModified || len(body(t, again)) != 0 {
			t.Errorf("%s: %d for its own tag", path, again.StatusCode)
		}
		refused := get(t, http.MethodGet, path, map[string]string{"Accept-Encoding": "gzip;q=0"})
		if refused.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s is packed for who refuses gzip", path)
		}
	}
}

func TestRefusals(t *testing.T) {
	if r := get(t, http.MethodPost, "/", nil); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", r.StatusCode)
	}
	for _, path := range []string{"/assets/none.js", "/assets/", "/assets/../pages/none.html"} {
		if r := get(t, http.MethodGet, path, nil); r.StatusCode != http.StatusNotFound || r.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d, %s", path, r.StatusCode, r.Header.Get("Cache-Control"))
		}
	}
}

// unpack returns what a compressed copy holds.
func unpack(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var plain bytes.Buffer
	_, err = plain.ReadFrom(z)
	return plain.Bytes(), err
}
