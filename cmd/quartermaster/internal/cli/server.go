package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/transport"
	"quartermaster/cmd/quartermaster/internal/app"
)

// What the API and its client say to each other.
const (
	// APIRoot is the path of all operations.
	APIRoot = "/api/v1/"
	// ExitHeader has the exit code of the command that was asked, if it is not 0.
	ExitHeader = "Quartermaster-Exit-Code"
	// NoteHeader has a note for a person, percent-encoded, and may repeat.
	NoteHeader = "Quartermaster-Note"
	// OutputParam is the form of an answer.
	OutputParam = "output"
	// LimitParam is how many rows of a list are answered.
	LimitParam = "limit"
	// WidthParam is the width of its tables.
	WidthParam = "width"
	// ProblemType begins the type of a problem; its kind follows.
	ProblemType = "urn:quartermaster:problem:"
)

// withoutLog are the commands that read no log, so that they do the same with --server.
var withoutLog = []string{"completion", "config example", "focus validate", "help", "login", "logout", "mapping check", "mapping show", "plan check", "schema", "version"}

// remote makes a command ask the server, instead of a log.
func (a *Program) remote(cmd *cobra.Command) error {
	if elsewhere := cmd.Flags().Changed("brokers") || cmd.Flags().Changed("config") || cmd.Flags().Changed("data-dir"); elsewhere {
		return commandline.Usagef("--server names what to ask: leave --data-dir, --brokers and --config out")
	}
	path := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	if how, ok := decisions[path]; ok {
		return a.decideRemotely(cmd, operationOf(cmd, strings.Fields(path), how))
	}
	how, ok := operations[path]
	if !ok {
		for words := strings.Fields(path); len(words) > 0; words = words[:len(words)-1] {
			if slices.Contains(withoutLog, strings.Join(words, " ")) {
				return nil
			}
		}
		return commandline.Usagef("%q cannot be asked of a server: it %s; use it without --server where the log is", path, whyNot(path))
	}
	client, base, err := a.dialer()
	if err != nil {
		return err
	}
	op := operationOf(cmd, strings.Fields(path), how)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q, err := op.query(cmd, args)
		if err != nil {
			return err
		}
		q.Set(OutputParam, a.output)
		if a.output == asTable {
			q.Set(WidthParam, strconv.Itoa(widthOf(cmd.OutOrStdout())))
		}
		a.output = "" // the server writes the answer
		question := APIRoot + strings.Join(op.Words, "/") + "?" + q.Encode()
		body, err := a.sent(&op, &how, q, cmd.InOrStdin())
		if err != nil {
			return err
		}
		if op.Long {
			return a.askLong(cmd.Context(), client, base, question, body, cmd.OutOrStdout())
		}
		method := http.MethodGet
		if op.Posted() {
			method = http.MethodPost
		}
		return a.ask(cmd.Context(), client, method, base+question, body, cmd.OutOrStdout())
	}
	return nil
}

// Sent is the body of a question that names files.
type Sent struct {
	Documents []Document `json:"documents"` // the files, each once, by the name that the question gives it
}

// sent returns the body of a question: the files that it names, and those that they name; nil if there are none.
func (a *Program) sent(op *Operation, how *served, q url.Values, stdin io.Reader) ([]byte, error) {
	var names []string
	for _, param := range op.Files {
		if name := q.Get(param); name != "" && (how.isFile == nil || how.isFile(name)) {
			names = append(names, name)
		}
	}
	var s Sent
	for i := 0; i < len(names); i++ {
		if slices.Contains(names[:i], names[i]) {
			continue
		}
		d, err := a.document(names[i], stdin)
		if err != nil {
			return nil, err
		}
		s.Documents = append(s.Documents, d)
		if i == 0 && how.also != nil {
			names = append(names, how.also(d.Name, []byte(d.Text))...)
		}
	}
	if len(s.Documents) == 0 {
		return nil, nil
	}
	return json.Marshal(&s)
}

// document reads a file to send to a server.
func (a *Program) document(path string, stdin io.Reader) (Document, error) {
	text, err := a.ReadDocument(path, stdin)
	if err == nil && !utf8.Valid(text) {
		err = &app.InvalidError{Err: fmt.Errorf("%s: it is not text in UTF-8, and a server takes nothing else", path)}
	}
	return Document{path, string(text)}, err
}

// whyNot says why the API does not serve a command.
func whyNot(path string) string {
	for words := strings.Fields(path); len(words) > 0; words = words[:len(words)-1] {
		if why := notServed[strings.Join(words, " ")]; why != "" {
			return why
		}
	}
	return "is not one of the operations of the API"
}

// query returns the question of a command line.
func (op *Operation) query(cmd *cobra.Command, args []string) (url.Values, error) {
	q := url.Values{}
	for i := range op.Params {
		p := &op.Params[i]
		if p.flag == "" {
			if p.Type == "array" {
				q[p.Name], args = args, nil
			} else if len(args) > 0 {
				q.Set(p.Name, args[0])
				args = args[1:]
			}
			continue
		}
		f := cmd.Flags().Lookup(p.flag)
		if !f.Changed {
			continue
		}
		if all, ok := f.Value.(pflag.SliceValue); ok {
			if q[p.Name] = all.GetSlice(); len(q[p.Name]) == 0 {
				q.Set(p.Name, "") // given, and empty
			}
			continue
		}
		q.Set(p.Name, f.Value.String())
	}
	if op.Always != "" && !cmd.Flags().Lookup(op.Always).Changed {
		return nil, commandline.Usagef("%s without --%[2]s is done where the log is: add --%[2]s", strings.Join(op.Words, " "), op.Always)
	}
	local := []string{op.Always}
	if op.Decides {
		local = append(local, "key", "file", "public-key-of")
	}
	var err error
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && !slices.Contains(local, f.Name) && !slices.ContainsFunc(op.Params, func(p Param) bool { return p.flag == f.Name }) {
			err = commandline.Usagef("--%s is not for a server: use it where the log is", f.Name)
		}
	})
	return q, err
}

// dialer returns how to reach the server, and to be known by it.
func (a *Program) dialer() (*http.Client, string, error) {
	u, err := url.Parse(a.server)
	if err != nil {
		return nil, "", commandline.Usagef("--server: %w", err)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	switch u.Scheme {
	case "unix":
		path := cmp.Or(u.Opaque, u.Path)
		client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return transport.DialSocket(ctx, path)
		}, DisableCompression: true} // it costs more than it saves on one machine
		return client, "http://quartermaster", nil
	case "http", "https":
		if err := private(u); err != nil {
			return nil, "", err
		}
		base := strings.TrimSuffix(u.String(), "/")
		return a.known(base), base, nil
	}
	return nil, "", commandline.Usagef("--server %s: want unix:SOCKET or https://HOST", a.server)
}

// send sends a request. A problem that the server answers is an error.
func (a *Program) send(ctx context.Context, client *http.Client, method, target string, header ...string) (*http.Response, error) {
	return a.sendBody(ctx, client, method, target, nil, header...)
}

// sendBody sends a request with a body in JSON; nil: none.
func (a *Program) sendBody(ctx context.Context, client *http.Client, method, target string, body []byte, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if body != nil {
		header = append(header, "Content-Type", "application/json")
	}
	if err != nil {
		return nil, commandline.Usagef("--server: %w", err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		err = unwrapURL(err)
		if KindOf(err) != app.KindNone { // there is nothing to show the server
			return nil, err
		}
		return nil, &app.UnavailableError{Err: fmt.Errorf("ask %s: %w", a.server, err)}
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, a.refusal(resp)
	}
	return resp, nil
}

// ask writes the answer of a server to a question, with a body or nil.
func (a *Program) ask(ctx context.Context, client *http.Client, method, question string, body []byte, out io.Writer) error {
	resp, err := a.sendBody(ctx, client, method, question, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(out, resp.Body); err != nil {
		return &app.IncompleteError{Err: fmt.Errorf("the answer of %s ended early: %w", a.server, err)}
	}
	for _, note := range resp.Header.Values(NoteHeader) {
		if text, err := url.PathUnescape(note); err == nil {
			a.note("%s", text)
		}
	}
	if code, err := strconv.Atoi(resp.Header.Get(ExitHeader)); err == nil && code != 0 {
		return &failed{why: "what the command says with this exit code", code: code}
	}
	return nil
}

// refusal returns the error that a server answered.
func (a *Program) refusal(resp *http.Response) error {
	var p Problem
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || media != "application/problem+json" || json.Unmarshal(body, &p) != nil || p.Detail == "" {
		return &app.UnavailableError{Err: fmt.Errorf("%s answered %s: is it the API of \"quartermaster serve\"?", a.server, resp.Status)}
	}
	return p.err()
}

// err returns a problem as an error of its kind.
func (p *Problem) err() error {
	said := errors.New(p.Detail)
	switch app.Kind(strings.TrimPrefix(p.Type, ProblemType)) {
	case app.KindInvalid:
		return &app.InvalidError{Err: said}
	case app.KindNotFound:
		return &app.NotFoundError{Err: said}
	case app.KindDenied:
		return &app.DeniedError{Err: said}
	case app.KindConflict:
		return &app.ConflictError{Err: said}
	case app.KindIncomplete:
		return &app.IncompleteError{Err: said}
	case app.KindUnavailable:
		return &app.UnavailableError{Err: said}
	}
	return said
}

// unwrapURL leaves the URL out of an error, because it repeats the question.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
