// Package witness asks a witness outside to cosign checkpoints of the archive: a client of
// https://c2sp.org/tlog-witness.
//
// A witness remembers the last checkpoint of a log that it cosigned, and cosigns another only if it is
// proven to continue that one. So who trusts the witness knows that there are not two histories, also
// if whoever holds the log's key is not to be trusted. The witness sees no record: only the number of
// heads and the root of their tree.
package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

const (
	timeout   = 30 * time.Second // of a request
	maxAnswer = 64 << 10         // bytes
	attempts  = 3                // of a checkpoint, if others submit checkpoints of the same log meanwhile
)

// ErrAhead means that a witness has cosigned a checkpoint that this archive does not have: the archive
// lost heads, or there are two histories of the log. An operator has to find out which. The error is
// also that of a witness that refuses the proof of consistency.
var ErrAhead = errors.New("the witness has cosigned another history of this log")

// ErrRefused means that a witness refuses checkpoints of this log: it does not know its origin and key
// (register them with its operator), or it cannot read the request.
var ErrRefused = errors.New("the witness refuses checkpoints of this log")

// Witness is a witness at an address. It is safe for concurrent use.
type Witness struct {
	url      string
	verifier note.Verifier
	client   *http.Client
}

// New returns the witness with an address, under which it has add-checkpoint, and a verifier key.
func New(address, key string) (*Witness, error) {
	if err := checkURL(address); err != nil {
		return nil, err
	}
	v, err := merkle.WitnessVerifier(key)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return &Witness{strings.TrimSuffix(address, "/"), v, client}, nil
}

// Parse returns the witness of a line of the configuration: verifier key and address, separated by a
// space.
func Parse(line string) (*Witness, error) {
	key, address, ok := strings.Cut(line, " ")
	if !ok {
		return nil, fmt.Errorf("%q is not a verifier key and an address, separated by a space", domain.Clip(line, 100))
	}
	return New(address, key)
}

func checkURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not the http or https address of a witness", domain.Clip(address, 100))
	}
	return nil
}

// Verifier verifies its cosignatures.
func (w *Witness) Verifier() note.Verifier { return w.verifier }

// Cosign returns a signed checkpoint with the cosignature of the witness added, after it was verified.
// The tree has size leaves; prove returns the proof that the tree of the first from leaves is its
// beginning. Its errors are [ErrAhead], [ErrRefused] and temporary ones.
func (w *Witness) Cosign(
	ctx context.Context,
	signed []byte,
	size int64,
	prove func(from int64) ([]merkle.Hash, error),
) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("witness %s at %s: %w", w.verifier.Name(), w.url, err)
	}
	var from int64 // what the witness has, if nobody told it anything yet
	for range attempts {
		var proof []merkle.Hash
		if from > 0 {
			var err error
			if proof, err = prove(from); err != nil {
				return nil, err
			}
		}
		status, answer, err := w.post(ctx, from, proof, signed)
		if err != nil {
			return fail(err)
		}
		switch status {
		case http.StatusOK:
			cosigned, err := merkle.Cosigned(signed, answer, w.verifier)
			if err != nil {
				return fail(err)
			}
			return cosigned, nil
		case http.StatusConflict:
			known, err := strconv.ParseInt(strings.TrimSpace(string(answer)), 10, 64)
			switch {
			case from == size && (err != nil || known == size):
				// Nothing is to be proven between trees of one size: it compares the roots. With others it answers
				// this too, with or without the size.
				return fail(fmt.Errorf("%w: it has another tree of %d heads", ErrAhead, size))
			case err != nil || known < 0 || known == from:
				return fail(fmt.Errorf("it answers that it has %q leaves", domain.Clip(string(answer), 40)))
			case known > size:
				return fail(fmt.Errorf("%w: it has %d heads, the archive has %d", ErrAhead, known, size))
			}
			from = known
		case http.StatusUnprocessableEntity:
			return fail(fmt.Errorf("%w: it does not accept the proof from %d to %d heads", ErrAhead, from, size))
		case http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest:
			return fail(fmt.Errorf("%w: it answers %d", ErrRefused, status))
		default:
			return fail(fmt.Errorf("it answers %d", status))
		}
	}
	return fail(errors.New("others submit checkpoints of the same log"))
}

// post sends one request to add a checkpoint.
func (w *Witness) post(ctx context.Context, from int64, proof []merkle.Hash, signed []byte) (int, []byte, error) {
	var body bytes.Buffer
	fmt.Fprintf(&body, "old %d\n", from)
	for _, h := range proof {
		fmt.Fprintf(&body, "%s\n", h)
	}
	body.WriteByte('\n')
	body.Write(signed)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/add-checkpoint", &body)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	res, err := w.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = fmt.Errorf("it answers more than %d bytes", maxAnswer)
	}
	return res.StatusCode, answer, err
}
