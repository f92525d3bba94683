// Package witnesstest is a witness in memory, for tests.
package witnesstest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	formats "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"quartermaster/domain/merkle"
)

// Witness cosigns checkpoints of one log by the rules of https://c2sp.org/tlog-witness.
type Witness struct {
	URL string
	Key string // its verifier key

	signer note.Signer
	log    note.Verifier

	mu       sync.Mutex
	size     int64
	root     merkle.Hash
	requests int
	// Answer, if set, answers instead.
	Answer http.HandlerFunc
}

// New starts a witness that knows the log with a verifier. It ends with the test.
func New(t testing.TB, log note.Verifier) *Witness {
	t.Helper()
	private, public, err := note.GenerateKey(nil, "witness.example")
	if err != nil {
		t.Fatal(err)
	}
	w := &Witness{log: log}
	if w.signer, err = formats.NewSignerForCosignatureV1(private); err != nil {
		t.Fatal(err)
	}
	if w.Key, err = formats.VKeyToCosignatureV1(public); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	w.URL = s.URL
	return w
}

// Line is the witness's line in a configuration.
func (w *Witness) Line() string { return w.Key + " " + w.URL }

// State returns the size of the last cosigned checkpoint, and the number of requests.
func (w *Witness) State() (size int64, requests int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size, w.requests
}

// ServeHTTP implements [http.Handler].
func (w *Witness) ServeHTTP(res http.ResponseWriter, req *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests++
	if w.Answer != nil {
		w.Answer(res, req)
		return
	}
	body, err := io.ReadAll(req.Body)
	head, signed, ok := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	old, bad := strconv.ParseInt(strings.TrimPrefix(lines[0], "old "), 10, 64)
	if err != nil || bad != nil || !ok || req.Method != http.MethodPost || req.URL.Path != "/add-checkpoint" {
		res.WriteHeader(http.StatusBadRequest)
		return
	}
	var proof []merkle.Hash
	for _, line := range lines[1:] {
		var h merkle.Hash
		if h.UnmarshalText([]byte(line)) != nil {
			res.WriteHeader(http.StatusBadRequest)
			return
		}
		proof = append(proof, h)
	}
	c, err := merkle.OpenNote(signed, w.log)
	switch {
	case err != nil:
		res.WriteHeader(http.StatusForbidden)
		return
	case old > c.Size:
		res.WriteHeader(http.StatusBadRequest)
		return
	case old != w.size, old > 0 && old == c.Size && c.Root != w.root:
		res.Header().Set("Content-Type", "text/x.tlog.size")
		res.WriteHeader(http.StatusConflict)
		fmt.Fprintln(res, w.size)
		return
	case old > 0 && merkle.CheckConsistency(old, c.Size, proof, w.root, c.Root) != nil:
		res.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	w.size, w.root = c.Size, c.Root
	text := c.String()
	cosigned, err := note.Sign(&note.Note{Text: text}, w.signer)
	if err != nil {
		res.WriteHeader(http.StatusInternalServerError)
		return
	}
	fmt.Fprint(res, strings.TrimPrefix(string(cosigned), text+"\n"))
}
