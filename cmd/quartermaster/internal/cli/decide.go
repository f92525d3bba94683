package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/keyfile"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/registry"
)

// DecisionRoot is the path of decisions.
const DecisionRoot = APIRoot + "decisions"

// DeploymentsRoot is the path where pipelines declare deployments.
const DeploymentsRoot = APIRoot + "deployments"

// DeclareDeployments is the operation of DeploymentsRoot in the table of rights.
const DeclareDeployments = "deployments declare"

// Question asks what a command would decide.
type Question struct {
	Command    string                    `json:"command"` // its words, for example access grant
	Parameters map[string]jsontext.Value `json:"parameters,omitempty"`
	Documents  []Document                `json:"documents,omitempty"` // instead of files
	PublicKey  []byte                    `json:"public_key"`          // of whoever is to sign: 32 bytes
	Output     string                    `json:"output,omitempty"`    // form of what it says: table (default), wide or json
}

// Document is a document of declarations, in YAML or JSON.
type Document struct {
	Name string `json:"name"` // for errors
	Text string `json:"text,omitempty"`
}

// Proposed is what a command would decide.
type Proposed struct {
	Command     string         `json:"command"`
	TakesEffect bool           `json:"takes_effect"`
	Problem     *Problem       `json:"problem,omitempty"` // why it would take no effect
	Says        string         `json:"says"`              // what the command says once it is decided
	Notes       []string       `json:"notes"`             // for a person
	ExitCode    int            `json:"exit_code,omitempty"`
	Operator    string         `json:"operator,omitempty"` // who signs
	ID          string         `json:"id,omitempty"`       // none: there is nothing to sign
	Until       domain.Instant `json:"until,omitzero"`     // when it can no longer be decided
	Events      []ToSign       `json:"events"`             // each is signed, in this order
	Seal        string         `json:"seal,omitempty"`     // goes back with the signatures
}

// ToSign is an event to sign.
type ToSign struct {
	Type      domain.Type     `json:"type"`
	Subject   string          `json:"subject,omitempty"`
	Workspace string          `json:"workspace,omitempty"`
	Cluster   string          `json:"cluster,omitempty"`
	Time      domain.Instant  `json:"time"`
	Does      string          `json:"does"` // what whoever signs it has done, in the words of the audit trail
	Event     json.RawMessage `json:"event"`
	Message   []byte          `json:"message"` // the bytes to sign with Ed25519
}

// Signed is a decision that was proposed, with its signatures.
type Signed struct {
	Seal       string   `json:"seal"`
	Messages   [][]byte `json:"messages"` // as they were proposed
	Signatures [][]byte `json:"signatures"`
}

// ReadBody reads the JSON of a request. It refuses unknown and repeated names and text that is not UTF-8.
func ReadBody(text []byte, to any) error {
	if err := jsonv2.Unmarshal(text, to, jsonv2.RejectUnknownMembers(true)); err != nil {
		return &app.InvalidError{Err: fmt.Errorf("body: %w", err)}
	}
	return nil
}

// Query returns the parameters of a question as those of a query: a value is a text, a number, true or false, or a list
// of texts.
func (q *Question) Query() (url.Values, error) {
	query := url.Values{}
	for name, value := range q.Parameters {
		wrong := &app.InvalidError{Err: fmt.Errorf("parameters: %s: want a text, a number, true or false, or a list of texts", domain.Clip(name, widest))}
		switch value.Kind() {
		case '"':
			var text string
			if err := jsonv2.Unmarshal(value, &text); err != nil {
				return nil, wrong
			}
			query[name] = []string{text}
		case '[':
			texts := []string{}
			if err := jsonv2.Unmarshal(value, &texts); err != nil {
				return nil, wrong
			}
			query[name] = texts
		case 't', 'f', '0':
			query[name] = []string{string(value)}
		default:
			return nil, wrong
		}
	}
	return query, nil
}

// DecisionOf returns the command of a question.
func DecisionOf(command string) (*Operation, error) {
	all := Decisions()
	var known []string
	for i := range all {
		words := strings.Join(all[i].Words, " ")
		if words == command {
			return &all[i], nil
		}
		known = append(known, words)
	}
	return nil, &app.InvalidError{Err: fmt.Errorf("command: %q does not decide over the API; %s", domain.Clip(command, widest), domain.Suggest(command, known))}
}

// Propose returns what a command would decide, for a principal and the owner of a key, and appends nothing. That it would take no effect
// is an answer, not an error.
func (op *Operation) Propose(ctx context.Context, on *app.App, principal string, q *Question) (*Proposed, error) {
	query, err := q.Query()
	if err != nil {
		return nil, err
	}
	form := Form{Output: asTable}
	switch {
	case q.Output != "" && !slices.Contains([]string{asTable, asWide, asJSON}, q.Output):
		return nil, &app.InvalidError{Err: fmt.Errorf("output: %q: want %s, %s or %s", domain.Clip(q.Output, widest), asTable, asWide, asJSON)}
	case q.Output != "":
		form.Output = q.Output
	}
	if len(q.PublicKey) != ed25519.PublicKeySize {
		return nil, &app.InvalidError{Err: fmt.Errorf("public_key: %d bytes, want the %d of an Ed25519 key", len(q.PublicKey), ed25519.PublicKeySize)}
	}
	words, err := op.words(query)
	if err != nil {
		return nil, err
	}
	if len(q.Documents) > 0 && !op.Documents {
		return nil, &app.InvalidError{Err: fmt.Errorf("documents: there are %d, and %q wants none", len(q.Documents), q.Command)}
	}
	names := map[string]bool{}
	for i, d := range q.Documents {
		if d.Name == "" || names[d.Name] {
			return nil, &app.InvalidError{Err: fmt.Errorf("documents[%d]: name is missing, or that of another document: errors say it", i)}
		}
		names[d.Name] = true
		// The flag takes a list with commas.
		words = slices.Insert(words, len(op.Words)+i, `--file="`+strings.ReplaceAll(d.Name, `"`, `""`)+`"`)
	}
	on.Files = SentFiles(q.Documents)
	elsewhere := &proposing{key: q.PublicKey}
	var says bytes.Buffer
	did, err := op.run(ctx, on, words, elsewhere, form, &says)
	ans := &Proposed{Command: q.Command, TakesEffect: err == nil, Says: says.String(), Notes: append([]string{}, did.Notes...), Events: []ToSign{}}
	if kind := KindOf(err); kind == app.KindDenied || kind == app.KindConflict {
		ans.Problem = &Problem{Type: ProblemType + string(kind), Status: map[app.Kind]int{app.KindDenied: 403, app.KindConflict: 409}[kind], Detail: Worded(err)}
		return ans, nil
	}
	if err != nil {
		return nil, err
	}
	ans.ExitCode = did.Code
	p := elsewhere.proposal
	if p == nil {
		return ans, nil
	}
	sealed, err := on.For(app.Everyone).Seal(ctx, principal, q.Command, p)
	if err != nil {
		return nil, err
	}
	ans.Operator, ans.ID, ans.Until, ans.Seal = p.Operator, sealed.ID, sealed.Until, sealed.Seal
	for i := range p.Events {
		e := &p.Events[i]
		event, err := json.Marshal(e.Event)
		if err != nil {
			return nil, err
		}
		ans.Events = append(ans.Events, ToSign{e.Event.Type(), e.Subject, e.Workspace, e.Cluster, e.Time, registry.Words(e.Event, e.Cluster), event, p.Messages[i]})
	}
	return ans, nil
}

// decideRemotely makes a command propose its decision to a server, sign it here, and send it back.
func (a *Program) decideRemotely(cmd *cobra.Command, op Operation) error {
	client, base, err := a.dialer()
	if err != nil {
		return err
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asked, key, err := a.questionOf(cmd, &op, args)
		if err != nil {
			return err
		}
		var p Proposed
		if err := a.exchange(cmd.Context(), client, http.MethodPost, base+DecisionRoot, asked, &p); err != nil {
			return err
		}
		for _, note := range p.Notes {
			a.note("%s", note)
		}
		if p.Problem != nil {
			if !a.json {
				fmt.Fprint(cmd.OutOrStdout(), p.Says)
			}
			return p.Problem.err()
		}
		if p.ID != "" {
			if err := p.covers(key.Public().(ed25519.PublicKey)); err != nil {
				return err
			}
			if err := a.exchange(cmd.Context(), client, http.MethodPut, base+DecisionRoot+"/"+p.ID, p.sign(key), &app.DecidedProposal{}); err != nil {
				return err
			}
		}
		fmt.Fprint(cmd.OutOrStdout(), p.Says)
		if p.ExitCode != 0 {
			return &failed{why: "what the command says with this exit code", code: p.ExitCode}
		}
		return nil
	}
	return nil
}

// questionOf returns what a command line asks a server to propose, and the key that signs it.
func (a *Program) questionOf(cmd *cobra.Command, op *Operation, args []string) (*Question, ed25519.PrivateKey, error) {
	if a.output == asCSV {
		return nil, nil, commandline.Usagef("a decision has no table to write as CSV")
	}
	f := cmd.Flags()
	var documents []Document
	if op.Documents {
		files, err := f.GetStringSlice("file")
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			d, err := a.document(file, nil)
			if err != nil {
				return nil, nil, err
			}
			documents = append(documents, d)
		}
	}
	key, _, err := a.ownKey(f.Lookup("key").Value.String())
	if err != nil {
		return nil, nil, err
	}
	q, err := op.query(cmd, args)
	if err != nil {
		return nil, nil, err
	}
	if of := f.Lookup("public-key-of"); of != nil && of.Changed {
		public, err := keyfile.LoadPublic(of.Value.String())
		if err != nil {
			return nil, nil, err
		}
		q.Set("public_key", base64.StdEncoding.EncodeToString(public))
	}
	asked := &Question{Command: strings.Join(op.Words, " "), PublicKey: key.Public().(ed25519.PublicKey), Output: a.output, Parameters: map[string]jsontext.Value{}}
	for name, values := range q {
		text, err := json.Marshal(values)
		if p := op.param(name); p != nil && p.Type != "array" {
			text, err = json.Marshal(values[0])
		}
		if err != nil {
			return nil, nil, err
		}
		asked.Parameters[name] = text
	}
	asked.Documents = documents
	return asked, key, nil
}

// param returns a parameter by its name, nil if there is none.
func (op *Operation) param(name string) *Param {
	for i := range op.Params {
		if op.Params[i].Name == name {
			return &op.Params[i]
		}
	}
	return nil
}

// exchange sends a document and reads the answer.
func (a *Program) exchange(ctx context.Context, client *http.Client, method, target string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	resp, err := a.sendBody(ctx, client, method, target, text)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return &app.IncompleteError{Err: fmt.Errorf("the answer of %s ended early: %w", a.server, err)}
	}
	return nil
}

// covers checks that what is to be signed are decisions by the owner of the key, so that a server gets no other signature.
func (p *Proposed) covers(key ed25519.PublicKey) error {
	for i := range p.Events {
		env, err := wire.ReadSigned(p.Events[i].Message)
		if err != nil {
			return fmt.Errorf("the server sent something else to sign: %w", err)
		}
		if e := &p.Events[i]; !key.Equal(ed25519.PublicKey(env.Signature.Key)) || env.Event.Type() != e.Type || env.Subject != e.Subject {
			return fmt.Errorf("the server sent something else to sign than it says: %s %s", env.Event.Type(), env.Subject)
		}
	}
	return nil
}

// sign returns what was proposed with its signatures.
func (p *Proposed) sign(key ed25519.PrivateKey) *Signed {
	s := &Signed{Seal: p.Seal}
	for i := range p.Events {
		s.Messages = append(s.Messages, p.Events[i].Message)
		s.Signatures = append(s.Signatures, ed25519.Sign(key, p.Events[i].Message))
	}
	return s
}
