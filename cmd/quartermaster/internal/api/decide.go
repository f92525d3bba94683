package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/domain"
)

// Bounds of bodies.
const (
	mostBody   = 32 << 20 // bytes
	mostBodies = 8        // that are read and answered at once
)

// Media types of bodies. A page of another site cannot send them without asking first, and is refused then.
var (
	jsonBodies     = []string{"application/json"}
	documentBodies = []string{"application/yaml", "application/json"}
)

// statusError is an error with a status of its own.
type statusError struct {
	error
	status int
}

// Unwrap returns the error.
func (e *statusError) Unwrap() error { return e.error }

// withBody answers a request that changes something. named says which operation it is, by its body, and answer does it
// on behalf of whoever asks, with what their rights cover. It is recorded before it is answered; prefix begins the name in
// the record.
func (s *server) withBody(
	w http.ResponseWriter, r *http.Request, media []string, prefix string,
	named func(body []byte) (operation string, err error),
	answer func(ctx context.Context, on *app.App, who string, body []byte) (any, error),
) {
	ans, err := s.changed(w, r, media, prefix, named, answer)
	switch {
	case err != nil && cli.KindOf(err) == app.KindNone:
		if errors.Is(err, context.Canceled) || s.Context.Err() != nil {
			err = &app.UnavailableError{Err: errors.New("the request was given up: send it again")}
		} else {
			s.Log.Error("a request failed", "path", r.URL.Path, "error", err)
		}
		fail(w, err)
	case err != nil:
		fail(w, err)
	default:
		write(w, http.StatusOK, ans)
	}
}

func (s *server) changed(
	w http.ResponseWriter, r *http.Request, media []string, prefix string,
	named func([]byte) (string, error), answer func(context.Context, *app.App, string, []byte) (any, error),
) (any, error) {
	if err := checkSender(r, media); err != nil {
		return nil, err
	}
	came := time.Now()
	who, err := s.Who(r)
	if err != nil {
		return nil, err
	}
	body, done, err := s.body(w, r)
	if err != nil {
		return nil, err
	}
	defer done()
	operation, err := named(body)
	if err != nil {
		return nil, err
	}
	if err := wait(r.Context(), s.turns); err != nil {
		return nil, err
	}
	defer func() { <-s.turns }()
	if time.Since(came) > judgedAgain {
		if who, err = s.Who(r); err != nil {
			return nil, err
		}
	}
	asked := Asked{Operation: prefix + operation, Question: sha256.Sum256(append(body, r.URL.RawQuery...))}
	asking, err := who.Asking(operation)
	if err != nil {
		asked.Refused = true
		return nil, errors.Join(err, s.keep(who, asked))
	}
	on, err := s.Open(asking)
	if err != nil {
		return nil, err
	}
	ans, err := answer(r.Context(), on, who.Name, body)
	if p, ok := ans.(*cli.Proposed); ok && p != nil && p.Problem != nil || cli.KindOf(err) == app.KindDenied {
		asked.Refused = true
	}
	at, unread := on.Position(r.Context())
	if unread == nil {
		asked.Position = at
	}
	return ans, errors.Join(s.keep(asking, asked), err, on.Close())
}

// body reads the body of a request. It is one of s.bodies until done is called.
func (s *server) body(w http.ResponseWriter, r *http.Request) (body []byte, done func(), err error) {
	if err := wait(r.Context(), s.bodies); err != nil {
		return nil, nil, err
	}
	done = func() { <-s.bodies }
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if err == nil {
		return body, done, nil
	}
	done()
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, nil, &statusError{&app.InvalidError{Err: fmt.Errorf("the body has more than %d bytes", large.Limit)}, http.StatusRequestEntityTooLarge}
	}
	return nil, nil, &app.InvalidError{Err: fmt.Errorf("read the body: %w", err)}
}

// sent returns the documents that come with a question, nil if it has no body. It is one of s.bodies until done is called.
func (s *server) sent(w http.ResponseWriter, r *http.Request, op *cli.Operation) (documents []cli.Document, done func(), err error) {
	if len(op.Files) == 0 || r.ContentLength == 0 {
		return nil, func() {}, nil
	}
	if err := checkSender(r, jsonBodies); err != nil {
		return nil, nil, err
	}
	body, done, err := s.body(w, r)
	if err != nil {
		return nil, nil, err
	}
	if documents, err = documentsIn(body); err != nil {
		done()
		return nil, nil, err
	}
	return documents, sync.OnceFunc(done), nil
}

func documentsIn(body []byte) ([]cli.Document, error) {
	var sent cli.Sent
	if err := cli.ReadBody(body, &sent); err != nil {
		return nil, err
	}
	if n := len(sent.Documents); sent.Documents == nil || n > mostSent {
		return nil, &app.InvalidError{Field: "documents", Err: fmt.Errorf("%d documents: want a list of at most %d", n, mostSent)}
	}
	names := map[string]bool{}
	for i, d := range sent.Documents {
		if d.Name == "" || names[d.Name] {
			return nil, &app.InvalidError{Field: fmt.Sprintf("documents[%d].name", i), Err: errors.New("it is missing, or that of another document: questions name documents by it")}
		}
		names[d.Name] = true
	}
	return sent.Documents, nil
}

// checkSender refuses a request that a page of another site could have sent.
func checkSender(r *http.Request, media []string) error {
	got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || !slices.Contains(media, got) {
		return &statusError{&app.InvalidError{Err: fmt.Errorf("Content-Type %q: want %s", domain.Clip(r.Header.Get("Content-Type"), 40), strings.Join(media, " or "))},
			http.StatusUnsupportedMediaType}
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return &statusError{&app.InvalidError{Err: fmt.Errorf("Content-Encoding %q: send the body as it is", domain.Clip(encoding, 40))}, http.StatusUnsupportedMediaType}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return &app.DeniedError{Err: errors.New("a page of another site may not change anything")}
	}
	return nil
}

// propose answers what a command would decide, with the bytes to sign.
func (s *server) propose(w http.ResponseWriter, r *http.Request) {
	var q cli.Question
	var op *cli.Operation
	s.withBody(w, r, jsonBodies, "", func(body []byte) (string, error) {
		err := cli.ReadBody(body, &q)
		if err == nil {
			op, err = cli.DecisionOf(q.Command)
		}
		return q.Command, err
	}, func(ctx context.Context, on *app.App, who string, _ []byte) (any, error) {
		return op.Propose(ctx, on, who, &q)
	})
}

// decide appends what was proposed and signed.
func (s *server) decide(w http.ResponseWriter, r *http.Request) {
	var d cli.Signed
	s.withBody(w, r, jsonBodies, "decide ", func(body []byte) (string, error) {
		if err := cli.ReadBody(body, &d); err != nil {
			return "", err
		}
		operation, err := app.SealedOperation(d.Seal)
		if _, known := cli.DecisionOf(operation); err == nil {
			err = known
		}
		return operation, err
	}, func(ctx context.Context, on *app.App, who string, _ []byte) (any, error) {
		if err := wait(ctx, s.deciding); err != nil {
			return nil, err
		}
		defer func() { <-s.deciding }()
		return on.For(app.Everyone).DecideSealed(ctx, who, r.PathValue("id"), d.Seal, d.Messages, d.Signatures)
	})
}

// declare declares deployments.
func (s *server) declare(w http.ResponseWriter, r *http.Request) {
	dryRun := false
	s.withBody(w, r, documentBodies, "", func([]byte) (string, error) {
		q := r.URL.Query()
		for name, values := range q {
			if name != "dry_run" || len(values) != 1 {
				return "", &app.InvalidError{Err: fmt.Errorf("%q is not a parameter, or is given more than once: want dry_run", domain.Clip(name, 40))}
			}
			var err error
			if dryRun, err = strconv.ParseBool(values[0]); err != nil {
				return "", &app.InvalidError{Err: fmt.Errorf("dry_run=%s: want true or false", domain.Clip(values[0], 40))}
			}
		}
		return cli.DeclareDeployments, nil
	}, func(ctx context.Context, on *app.App, _ string, body []byte) (any, error) {
		declared, err := app.ReadDeclarations(app.Document{Name: "body", Text: bytes.NewReader(body)})
		if err != nil {
			return nil, err
		}
		if err := wait(ctx, s.deciding); err != nil {
			return nil, err
		}
		defer func() { <-s.deciding }()
		return on.For(app.Everyone).DeclareDeployments(ctx, declared, dryRun)
	})
}
