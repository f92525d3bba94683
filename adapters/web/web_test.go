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

func get(t *testing.T, method, path string, header map[string]string) *httptest.ResponseRecorder {
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
	return w
}

// Every path has the document, with a policy that allows nothing inline and nothing from elsewhere.
func TestDocument(t *testing.T) {
	for _, path := range []string{"/", "/fleet", "/costs?from=2026-05", "/no/such/page"} {
		r := get(t, http.MethodGet, path, nil)
		text := r.Body.String()
		if r.Code != http.StatusOK || !strings.HasPrefix(text, "<!doctype html>") {
			t.Errorf("%s: %d %.40q", path, r.Code, text)
		}
		p := r.Header().Get("Content-Security-Policy")
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
	document := get(t, http.MethodGet, "/", nil).Body.String()
	assets := regexp.MustCompile(`/assets/[^"]+`).FindAllString(document, -1)
	if len(assets) < 2 {
		t.Fatalf("the document names %d assets: %s", len(assets), document)
	}
	costs := get(t, http.MethodGet, "/costs?period=2026-05", nil).Body.String()
	if costs == document || !strings.Contains(costs, `href="/api/v1/overview"`) || !strings.Contains(costs, "/assets/Costs-") {
		t.Errorf("the document of a page does not name what the page needs: %s", costs)
	}
	for _, path := range append(assets, "/", "/costs") {
		plain, packed := get(t, http.MethodGet, path, nil), get(t, http.MethodGet, path, map[string]string{"Accept-Encoding": "br;q=0, gzip;q=0.5"})
		want := plain.Body.Bytes()
		got, err := unpack(packed.Body.Bytes())
		if err != nil || !bytes.Equal(got, want) || packed.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %v; %d bytes packed, %d plain", path, err, len(got), len(want))
		}
		tag := packed.Header().Get("ETag")
		if tag == plain.Header().Get("ETag") {
			t.Errorf("%s: two forms have the tag %s", path, tag)
		}
		again := get(t, http.MethodGet, path, map[string]string{"Accept-Encoding": "gzip", "If-None-Match": tag})
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("%s: %d for its own tag", path, again.Code)
		}
		best := get(t, http.MethodGet, path, map[string]string{"Accept-Encoding": "gzip, deflate, br"})
		if best.Header().Get("Content-Encoding") != "br" || best.Header().Get("ETag") == tag || best.Body.Len() >= packed.Body.Len() {
			t.Errorf("%s: %d bytes of Brotli as %q, %d of gzip", path, best.Body.Len(), best.Header().Get("Content-Encoding"), packed.Body.Len())
		}
		refused := get(t, http.MethodGet, path, map[string]string{"Accept-Encoding": "gzip;q=0"})
		if refused.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s is packed for who refuses gzip", path)
		}
	}
}

func TestRefusals(t *testing.T) {
	if r := get(t, http.MethodPost, "/", nil); r.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", r.Code)
	}
	for _, path := range []string{"/assets/none.js", "/assets/", "/assets/../pages/none.html"} {
		if r := get(t, http.MethodGet, path, nil); r.Code != http.StatusNotFound || r.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d, %s", path, r.Code, r.Header().Get("Cache-Control"))
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
