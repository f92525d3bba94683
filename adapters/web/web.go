// Package web serves the pages. "make web" builds them from the sources beside this file into the folder pages, which the
// program embeds. Pages hold no data: they ask the API, and all that they show is in its answers.
//
// What always holds: a page loads nothing from elsewhere and runs nothing inline. Names from the log are text in it.
package web

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// files has pages/none.html, and the pages if "make web" has built them.
//
//go:embed pages
var files embed.FS

// policy is the Content-Security-Policy of pages. Scripts can set no markup but what the compiler made of templates.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types svelte-trusted-html"

// Built reports whether the program has the pages.
func Built() bool {
	_, err := fs.Stat(files, "pages/index.html")
	return err == nil
}

// file is a file as it is sent.
type file struct {
	plain      []byte
	packed     map[string][]byte // by coding
	media, tag string
}

// codings are those of compressed copies, the best first, with the ends of their names.
var codings = []struct{ name, end string }{{"br", ".br"}, {"gzip", ".gz"}}

// Handler serves the pages. Every path that names no asset has the same document, whose script shows the page of the path.
// Without pages it serves a document that says how to get them.
func Handler() (http.Handler, error) {
	name := "pages/index.html"
	if !Built() {
		name = "pages/none.html"
	}
	document, err := read(name)
	if err != nil {
		return nil, err
	}
	assets := map[string]*file{}
	names, err := fs.Glob(files, "pages/assets/*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if end := path.Ext(name); end == ".br" || end == ".gz" {
			continue
		}
		if assets[strings.TrimPrefix(name, "pages")], err = read(name); err != nil {
			return nil, err
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if ext := path.Ext(r.URL.Path); !strings.HasPrefix(r.URL.Path, "/assets/") || ext != ".js" && ext != ".css" { // what is a document, or can be
			h.Set("Content-Security-Policy", policy)
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Cross-Origin-Opener-Policy", "same-origin")
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "want GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/assets/") {
			h.Set("Cache-Control", "no-cache")
			document.send(w, r)
			return
		}
		asset := assets[r.URL.Path]
		if asset == nil {
			h.Set("Cache-Control", "no-store")
			http.Error(w, "no such asset: the program was replaced; load the page again", http.StatusNotFound)
			return
		}
		h.Set("Cache-Control", "public, max-age=31536000, immutable") // its name has a hash of its content
		asset.send(w, r)
	}), nil
}

// read reads a file, and those of its compressed copies that there are.
func read(name string) (*file, error) {
	plain, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(plain)
	f := &file{plain: plain, packed: map[string][]byte{}, media: mime.TypeByExtension(path.Ext(name)), tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12])}
	for _, coding := range codings {
		if packed, err := files.ReadFile(name + coding.end); err == nil {
			f.packed[coding.name] = packed
		}
	}
	return f, nil
}

// send sends a file, compressed to whoever reads that.
func (f *file) send(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.media)
	h.Set("Vary", "Accept-Encoding")
	body, tag := f.plain, f.tag+`"`
	for _, coding := range codings {
		if packed := f.packed[coding.name]; packed != nil && accepts(r.Header.Get("Accept-Encoding"), coding.name) {
			body, tag = packed, f.tag+"-"+coding.name+`"`
			h.Set("Content-Encoding", coding.name)
			break
		}
	}
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// accepts reports whether a request accepts a coding (RFC 9110, section 12.5.3).
func accepts(header, coding string) bool {
	for given := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(given, ";")
		if strings.EqualFold(strings.TrimSpace(name), coding) {
			q, ok := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
			return !ok || strings.Trim(q, "0.") != ""
		}
	}
	return false
}
