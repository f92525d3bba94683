package witness

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"quartermaster/adapters/witness/witnesstest"
	"quartermaster/domain/merkle"
)

var (
	key    = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	origin = merkle.Origin("log")
)

// history is a log of n leaves that begin with a text.
type history []merkle.Hash

func newHistory(text string, n int) (h history) {
	for i := range n {
		h = append(h, merkle.LeafHash(fmt.Append(nil, text, i)))
	}
	return h
}

func (h history) tree(t testing.TB, size int64) *merkle.Stored {
	t.Helper()
	var b merkle.Builder
	for _, leaf := range h[:size] {
		b.Add(leaf)
	}
	s, err := merkle.NewStored(size, b.Blocks(), func(from, to int64) ([]merkle.Hash, error) { return h[from:to], nil })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// signed is the checkpoint of the first size leaves.
func (h history) signed(t testing.TB, size int64, key ed25519.PrivateKey) []byte {
	t.Helper()
	root, err := h.tree(t, size).Root(size)
	if err != nil {
		t.Fatal(err)
	}
	c := merkle.Checkpoint{Origin: origin, Size: size, Root: root}
	text, err := c.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (h history) cosign(t testing.TB, w *Witness, size int64, key ed25519.PrivateKey) ([]byte, error) {
	t.Helper()
	return w.Cosign(t.Context(), h.signed(t, size, key), size, func(from int64) ([]merkle.Hash, error) {
		return h.tree(t, size).Consistency(from, size)
	})
}

func logVerifier(t testing.TB) (v note.Verifier, text string) {
	t.Helper()
	text, err := note.NewEd25519VerifierKey(origin, key.Public().(ed25519.PublicKey))
	if err == nil {
		v, err = note.NewVerifier(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v, text
}

// speak is what a witness and the client must do together.
func speak(t *testing.T, line string) {
	w, err := Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	log, _ := logVerifier(t)
	h := newHistory("leaf", 700)
	for _, size := range []int64{1, 2, 2, 255, 256, 600, 700} {
		got, err := h.cosign(t, w, size, key)
		if err != nil {
			t.Fatalf("%d leaves: %v", size, err)
		}
		c, err := merkle.OpenNote(got, log, w.Verifier())
		if err != nil || c.Size != size {
			t.Fatalf("%d leaves: %v %v", size, c, err)
		}
		if at, err := merkle.CosignedAt(got, w.Verifier()); err != nil || at.IsZero() {
			t.Fatalf("%d leaves: cosigned at %s: %v", size, at, err)
		}
	}
	if _, err := h.cosign(t, w, 500, key); !errors.Is(err, ErrAhead) {
		t.Errorf("a shorter log: %v", err)
	}
	if _, err := newHistory("other", 800).cosign(t, w, 800, key); !errors.Is(err, ErrAhead) {
		t.Errorf("another history: %v", err)
	}
	if _, err := newHistory("other", 700).cosign(t, w, 700, key); !errors.Is(err, ErrAhead) {
		t.Errorf("another tree of the same size: %v", err)
	}
	stranger := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
	if _, err := newHistory("leaf", 701).cosign(t, w, 701, stranger); err == nil {
		t.Error("cosigned what another key signed")
	}
	if _, err := newHistory("leaf", 702).cosign(t, w, 702, key); err != nil {
		t.Errorf("the log goes on: %v", err)
	}
}

func TestWitness(t *testing.T) {
	log, _ := logVerifier(t)
	speak(t, witnesstest.New(t, log).Line())
}

// TestCompliance speaks to the witness of transparency-dev, which "make compliance" builds.
func TestCompliance(t *testing.T) {
	program := os.Getenv("QM_WITNESS")
	if program == "" {
		t.Skip("QM_WITNESS does not name a witness: run make compliance")
	}
	_, text := logVerifier(t)
	cmd := exec.CommandContext(t.Context(), program, text)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var said []string
	for len(said) < 2 && lines.Scan() {
		said = append(said, lines.Text())
	}
	if len(said) == 2 {
		speak(t, said[1]+" "+said[0])
	} else {
		t.Errorf("the witness says only %q: %v", said, lines.Err())
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

// TestWrongAnswers has a witness that is broken or not to be trusted.
func TestWrongAnswers(t *testing.T) {
	log, _ := logVerifier(t)
	h := newHistory("leaf", 3)
	other := witnesstest.New(t, log)
	stranger, err := Parse(other.Line())
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := h.cosign(t, stranger, 2, key)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	for what, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"no signature":       {answer(200, ""), "no valid signature"},
		"not a signature":    {answer(200, "— witness.example AAAA\n"), "no valid signature"},
		"another's":          {answer(200, string(foreign[bytes.LastIndex(foreign, []byte("\n\n"))+2:])), "no valid signature"},
		"too long":           {answer(200, strings.Repeat("x", maxAnswer+1)), "more than"},
		"no size":            {answer(409, "many"), `it has "many" leaves`},
		"a size below zero":  {answer(409, "-1"), `"-1"`},
		"the same size":      {answer(409, "0"), `"0"`},
		"ever other sizes":   {nil, "others submit"},
		"another root":       {answer(409, "3\n"), ErrAhead.Error() + ": it has another tree of 3 heads"},
		"a size beyond ours": {answer(409, "9\n"), "it has 9 heads, the archive has 3"},
		"a redirect":         {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, "it answers 302"},
		"busy":               {answer(429, ""), "it answers 429"},
		"unknown":            {answer(404, ""), ErrRefused.Error()},
		"another key":        {answer(403, ""), ErrRefused.Error()},
		"no proof":           {answer(422, ""), ErrAhead.Error()},
	} {
		w := witnesstest.New(t, log)
		n := 0
		if w.Answer = c.answer; c.answer == nil {
			w.Answer = func(res http.ResponseWriter, r *http.Request) {
				n = n%2 + 1
				answer(409, fmt.Sprint(n))(res, r)
			}
		}
		client, err := Parse(w.Line())
		if err != nil {
			t.Fatal(err)
		}
		got, err := h.cosign(t, client, 3, key)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v, want %q", what, got, err, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	log, _ := logVerifier(t)
	good := witnesstest.New(t, log)
	for _, line := range []string{
		"", good.Key, good.URL, good.Key + " ", good.Key + " ftp://w", good.Key + " http://", good.Key + " http://u:p@w",
		good.Key + " http://w?q=1", good.Key + "x " + good.URL, "name+00000000+ " + good.URL,
	} {
		if _, err := Parse(line); err == nil {
			t.Errorf("accepted %q", line)
		}
	}
}
