package api

import (
	"io"
	"net/http"

	"github.com/klauspost/compress/gzip"

	"quartermaster/adapters/coding"
)

// Answers are compressed for those who accept it. Those that one logs in with never are, because the length of a
// compressed answer tells of a secret that is beside what another chose.

// Bounds of compression.
const (
	leastPacked = 1 << 10 // bytes of an answer
	mostPacking = 32      // answers at once, each with about 1.3 MB; further ones are sent as they are
)

// packers are unused writers, and as many nils as may be made yet.
type packers chan *gzip.Writer

func newPackers() packers {
	p := make(packers, mostPacking)
	for range mostPacking {
		p <- nil
	}
	return p
}

// accepts reports whether a request prefers gzip.
func accepts(r *http.Request) bool { return coding.Choose(r.Header, "gzip") != "" }

// tagFor returns the entity tag that a response to a request has: a weak one where the bytes depend on the coding.
func tagFor(r *http.Request, tag string) string {
	if accepts(r) {
		return "W/" + tag
	}
	return tag
}

// varies notes that a response depends on the codings that a request accepts.
func varies(h http.Header) { h.Add("Vary", "Accept-Encoding") }

// send sends an answer, compressed if the request prefers that.
func (p packers) send(w http.ResponseWriter, r *http.Request, out *spool) error {
	varies(w.Header())
	if out.length() <= leastPacked || !accepts(r) {
		return out.send(w)
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	var z *gzip.Writer
	select {
	case z = <-p:
	default:
		return out.send(w)
	}
	w.Header().Set("Content-Encoding", "gzip")
	to := &timed{w, http.NewResponseController(w)}
	if z == nil {
		z = gzip.NewWriter(to)
	} else {
		z.Reset(to)
	}
	err := out.copy(z)
	if err == nil {
		err = z.Close()
	}
	z.Reset(io.Discard) // it holds the response otherwise
	p <- z
	return err
}
