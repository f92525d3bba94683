// Package web serves the pages. "make web" builds them from the sources beside this file into the folder pages, which the
// program embeds. Pages hold no data: they ask the API, and all that they show is in its answers.
//
// What always holds: a page loads nothing from elsewhere and runs nothing inline. Names from the log are text in it.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"quartermaster/adapters/coding"
)

// files has pages/none.html, and the pages if "make web" has built them.
//
//go:embed pages
var files embed.FS

// policy is the Content-Security-Policy of pages. Scripts can set no markup but what the compiler made of templates.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types svelte-trusted-html"

// media are the types of files, by the ends of their names. Those of the operating system differ from machine to machine.
var media = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

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

// codings are those of compressed copies, the best first, and ends are the ends of their names.
var (
	codings = []string{"br", "gzip"}
	ends    = map[string]string{"br": ".br", "gzip": ".gz"}
)

// Handler serves the pages. Every path that names no asset has a document, whose script shows the page of the path.
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
	documents, err := all("pages/page/*") // those of paths that have a page, which name the scripts of it
	if err != nil {
		return nil, err
	}
	assets, err := all("pages/assets/*")
	if err != nil {
		return nil, err
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
			of := documents["/page"+r.URL.Path+".html"]
			if of == nil {
				of = document
			}
			of.send(w, r)
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

// all reads files, by their names within the folder pages.
func all(pattern string) (map[string]*file, error) {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return nil, err
	}
	found := map[string]*file{}
	for _, name := range names {
		if end := path.Ext(name); end == ".br" || end == ".gz" {
			continue
		}
		if found[strings.TrimPrefix(name, "pages")], err = read(name); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// read reads a file, and those of its compressed copies that there are.
func read(name string) (*file, error) {
	plain, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(plain)
	f := &file{plain: plain, packed: map[string][]byte{}, media: media[path.Ext(name)], tag: base64.RawURLEncoding.EncodeToString(sum[:12])}
	if f.media == "" {
		return nil, fmt.Errorf("%s: its media type is not known", name)
	}
	for _, coding := range codings {
		if packed, err := files.ReadFile(name + ends[coding]); err == nil {
			f.packed[coding] = packed
		}
	}
	return f, nil
}

// send sends a file, compressed to whoever reads that.
func (f *file) send(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.media)
	h.Set("Vary", "Accept-Encoding")
	body, tag := f.plain, f.tag
	if best := coding.Choose(r.Header, codings...); f.packed[best] != nil {
		body, tag = f.packed[best], f.tag+"-"+best
		h.Set("Content-Encoding", best)
		h.Set("Content-Length", strconv.Itoa(len(body))) // ServeContent sets it for what is not coded
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}
