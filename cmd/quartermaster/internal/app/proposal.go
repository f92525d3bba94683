package app

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
)

// ProposedFor is how long a sealed proposal may be decided.
const ProposedFor = domain.Instant(15 * time.Minute)

// secretFile is the file in the data directory with what seals proposals.
const secretFile = "proposals.key"

// SealedProposal is a proposal that travels to whoever holds the key, and back. Nothing of it is kept: its messages and
// its seal are all that [Caller.DecideSealed] needs, on any instance, also after a restart.
type SealedProposal struct {
	ID    string         // of the decision: a digest of its messages
	Until domain.Instant // when it can no longer be decided
	Seal  string         // that it was composed here, for whom, and how it is appended
}

// seal is what a seal says.
type seal struct {
	Operation string         `json:"operation"` // the command that composed it
	Principal string         `json:"principal"`
	Until     domain.Instant `json:"until"`
	Use       string         `json:"use"`
	Source    string         `json:"source,omitempty"`
	OfNodes   bool           `json:"of_nodes,omitempty"`
	OfEstate  bool           `json:"of_estate,omitempty"`
	Alike     bool           `json:"alike,omitempty"`
	Key       string         `json:"key"`
	Messages  []byte         `json:"messages"` // their SHA-256
}

// DecidedProposal is the answer to a decision. It is the same each time that the decision is sent.
type DecidedProposal struct {
	ID       string         `json:"id"`
	Operator string         `json:"operator"`
	At       domain.Instant `json:"at"`
	Events   int            `json:"events"`
}

// Seal seals a proposal, all of whose events are signed, for a principal. operation names the command.
func (c *Caller) Seal(ctx context.Context, principal, operation string, p *Proposal) (*SealedProposal, error) {
	if slices.ContainsFunc(p.Messages, func(m []byte) bool { return m == nil }) {
		return nil, errors.New("a proposal whose events are not all signed cannot be sealed")
	}
	secret, err := c.secret(ctx)
	if err != nil {
		return nil, err
	}
	sum := digestOf(p.Messages)
	until := Now() + ProposedFor
	text, err := json.Marshal(&seal{
		Operation: operation, Principal: principal, Until: until,
		Use: p.Use, Source: p.Source, OfNodes: p.OfNodes, OfEstate: p.OfEstate, Alike: p.Alike, Key: p.Key, Messages: sum,
	})
	if err != nil {
		return nil, err
	}
	encode := base64.RawURLEncoding.EncodeToString
	return &SealedProposal{ID: idOf(sum), Until: until, Seal: encode(text) + "." + encode(authenticate(secret, text))}, nil
}

// SealedOperation returns the command that composed a proposal, as its seal says. The seal is not verified.
func SealedOperation(sealed string) (string, error) {
	_, _, s, err := readSeal(sealed)
	return s.Operation, err
}

// errSeal is for every proposal that is not exactly what was composed for the principal.
var errSeal = &InvalidError{Field: "seal", Err: errors.New("this is not, byte for byte, what was composed here for you: compose it again, and send back what you get")}

// DecideSealed decides a proposal that was sealed for a principal, with the signatures of its messages. Deciding it
// again appends nothing and gets the same answer.
func (c *Caller) DecideSealed(ctx context.Context, principal, id, sealed string, messages, signatures [][]byte) (*DecidedProposal, error) {
	text, mac, s, err := readSeal(sealed)
	if err != nil {
		return nil, err
	}
	secret, err := c.secret(ctx)
	if err != nil {
		return nil, err
	}
	sum := digestOf(messages)
	if !hmac.Equal(mac, authenticate(secret, text)) || s.Principal != principal || !hmac.Equal(sum, s.Messages) || id != idOf(sum) {
		return nil, errSeal
	}
	p := &Proposal{
		Draft: Draft{Use: s.Use, Source: s.Source, OfNodes: s.OfNodes, OfEstate: s.OfEstate, Alike: s.Alike, SignAll: true},
		Key:   s.Key, Messages: messages, until: s.Until,
	}
	for _, m := range messages {
		env, err := wire.ReadSigned(m)
		if err != nil {
			return nil, err // sealed by a version that wrote it otherwise
		}
		p.Operator = env.Signature.Operator
		p.Events = append(p.Events, *env)
	}
	if len(p.Events) == 0 {
		return nil, errSeal
	}
	if err := c.Decide(ctx, p, signatures, p.Key); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(p.Events, func(e domain.Envelope) bool { return e.Event.Type() == domain.TypeBooksClosed }) {
		if _, err := c.LoadBooks(ctx); err != nil {
			c.app.tell("SQL does not show the month yet; \"quartermaster parts make\" loads it: %v", err)
		}
	}
	return &DecidedProposal{ID: id, Operator: p.Operator, At: p.Events[0].Time, Events: len(p.Events)}, nil
}

// readSeal returns the text of a seal, its authentication, and what it says.
func readSeal(sealed string) (text, mac []byte, s seal, err error) {
	first, second, _ := strings.Cut(sealed, ".")
	text, err = base64.RawURLEncoding.Strict().DecodeString(first)
	if err == nil {
		mac, err = base64.RawURLEncoding.Strict().DecodeString(second)
	}
	if err != nil || json.Unmarshal(text, &s) != nil {
		return nil, nil, s, errSeal
	}
	return text, mac, s, nil
}

func authenticate(secret, text []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("quartermaster proposal v1\n"))
	h.Write(text)
	return h.Sum(nil)
}

// digestOf returns the SHA-256 of messages, each after its length.
func digestOf(messages [][]byte) []byte {
	h := sha256.New()
	for _, m := range messages {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(m))))
		h.Write(m)
	}
	return h.Sum(nil)
}

func idOf(sum []byte) string { return hex.EncodeToString(sum[:16]) }

// secret returns what proposals are sealed with.
func (c *Caller) secret(ctx context.Context) ([]byte, error) {
	h, err := c.conn(ctx, Reading)
	if err != nil {
		return nil, err
	}
	return h.secret(ctx)
}

// SealingKey returns a key of 32 bytes that all instances have. Each purpose has another.
func (h *Conn) SealingKey(ctx context.Context, purpose string) ([]byte, error) {
	secret, err := h.secret(ctx)
	if err != nil {
		return nil, err
	}
	return hkdf.Key(sha256.New, secret, nil, "quartermaster "+purpose+" v1", 32)
}

// secret returns what the instances share: of the database, or of the data directory.
func (h *Conn) secret(ctx context.Context) ([]byte, error) {
	candidate := make([]byte, 32)
	if _, err := rand.Read(candidate); err != nil {
		return nil, err
	}
	if h.DB != nil {
		secret, err := h.DB.Secret(ctx, candidate)
		return secret, Unavailable(err)
	}
	secret, err := ownSecret(filepath.Join(h.app.Dir, secretFile), candidate)
	if err != nil {
		return nil, fmt.Errorf("read what proposals are sealed with: %w", err)
	}
	return secret, nil
}

// ownSecret returns the secret in a file. If there is none, it writes the candidate, whole or not at all.
func ownSecret(path string, candidate []byte) ([]byte, error) {
	secret, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = writeSecret(path, candidate); err == nil {
			secret, err = os.ReadFile(path)
		}
	}
	if err == nil && len(secret) != len(candidate) {
		err = fmt.Errorf("%s has %d bytes, want %d: remove it, and proposals that are not decided yet are composed again", path, len(secret), len(candidate))
	}
	return secret, err
}

func writeSecret(path string, secret []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(secret)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
		return nil // another process was first
	}
	return err
}

// OperatorOf returns who may decide with a key. It returns a [DeniedError] if nobody does now.
func (c *Caller) OperatorOf(ctx context.Context, key ed25519.PublicKey) (name string, err error) {
	if err := c.Begin(ctx, true); err != nil {
		return "", err
	}
	ops, err := c.Operators(ctx)
	if err != nil {
		return "", err
	}
	if len(ops) == 0 && c.app.scope().IsWhole() {
		return "", &DeniedError{Err: errors.New("there is no operator yet; the first one registers themselves where the log is")}
	}
	for _, op := range ops {
		if key.Equal(ed25519.PublicKey(op.PublicKey)) {
			return op.Operator, nil
		}
	}
	former, err := c.FormerKey(ctx, key)
	if err != nil {
		return "", err
	}
	if former == "" {
		former = "this key belongs to no registered operator"
	}
	return "", &DeniedError{Err: errors.New(former)}
}
