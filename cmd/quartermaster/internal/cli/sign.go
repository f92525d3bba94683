package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/keyfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections/registry"
)

// signer signs decisions with a key from a file.
type signer struct {
	name   string
	public ed25519.PublicKey
	key    ed25519.PrivateKey // nil: it is elsewhere
}

func signerOf(name string, key ed25519.PrivateKey) signer {
	return signer{name, key.Public().(ed25519.PublicKey), key}
}

// proposing makes a command propose what it would have decided, for a signer who is elsewhere.
type proposing struct {
	key      ed25519.PublicKey
	proposal *app.Proposal // nil: none yet
}

// KeyPath returns the path of the first operator's key.
func (a *Program) KeyPath() string { return filepath.Join(a.Dir, "operator.pem") }

// signer returns the signer of this command's decisions. If there is no operator yet, it creates the
// first one.
func (a *Program) signer(ctx context.Context, path string) (signer, error) {
	if a.proposing != nil {
		name, err := a.caller().OperatorOf(ctx, a.proposing.key)
		return signer{name: name, public: a.proposing.key}, err
	}
	if err := a.caller().Begin(ctx, false); err != nil {
		return signer{}, err
	}
	ops, err := a.caller().Operators(ctx)
	if err != nil {
		return signer{}, err
	}
	if path == "" && a.Dir == "" {
		return signer{}, commandline.Usagef("name your private key with --key FILE: there is no data directory to look for it in")
	}
	if len(ops) == 0 && path == "" {
		return a.firstOperator(ctx)
	}
	return a.registered(ctx, ops, path)
}

// registered loads the key of one of the operators.
func (a *Program) registered(ctx context.Context, ops []registry.Grant, path string) (signer, error) {
	key, path, err := a.ownKey(path)
	var none *app.DeniedError
	if errors.As(err, &none) {
		return signer{}, &app.DeniedError{Err: fmt.Errorf("%w; operators are %s", none.Err, operatorNames(ops))}
	}
	if err != nil {
		return signer{}, err
	}
	for _, op := range ops {
		if bytes.Equal(op.PublicKey, key.Public().(ed25519.PublicKey)) {
			return signerOf(op.Operator, key), nil
		}
	}
	former, err := a.caller().FormerKey(ctx, key.Public().(ed25519.PublicKey))
	if err != nil {
		return signer{}, err
	}
	if former != "" {
		return signer{}, &app.DeniedError{Err: fmt.Errorf("%s: %s", path, former)}
	}
	return signer{}, &app.DeniedError{Err: fmt.Errorf("the key in %s belongs to no registered operator; an admin registers it with \"quartermaster operator add NAME --public-key-of %s --role ROLE\"", path, path)}
}

// ownKey loads the private key that a command signs with, from the file that is named, else from the data directory. It
// returns where it is.
func (a *Program) ownKey(path string) (ed25519.PrivateKey, string, error) {
	if path == "" {
		path = a.KeyPath()
	}
	key, err := keyfile.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = &app.DeniedError{Err: fmt.Errorf("no operator key at %s: name yours with --key FILE", path)}
	}
	return key, path, err
}

// firstOperator creates the first workspace, operator and key.
func (a *Program) firstOperator(ctx context.Context) (signer, error) {
	path := a.KeyPath()
	key, err := keyfile.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		// In production nothing else creates the directory.
		if err = os.MkdirAll(a.Dir, 0o700); err == nil {
			key, err = keyfile.Create(path)
		}
	}
	if err != nil {
		return signer{}, fmt.Errorf("create the first operator's key: %w", err)
	}
	s := signerOf(app.Me(), key)
	if err := a.decide(ctx, s, app.FirstOperator(s.name, s.public)); err != nil {
		return signer{}, err
	}
	a.note("there was no operator yet: created %q, an admin of workspace %q, with the key %s; keep it safe, it signs your decisions", s.name, app.Platform, path)
	return s, nil
}

// decide signs a draft and has it decided.
func (a *Program) decide(ctx context.Context, s signer, d app.Draft) error {
	_, err := a.decided(ctx, s, d)
	return err
}

// decided is like decide, and returns what was signed. If the signer is elsewhere, it is only proposed.
func (a *Program) decided(ctx context.Context, s signer, d app.Draft) (*app.Proposal, error) {
	d.As = s.name
	if s.key == nil {
		d.As, d.SignAll = "", true
	}
	p, err := a.caller().Propose(ctx, d, s.public)
	if err != nil {
		return nil, err
	}
	if s.key == nil {
		if a.proposing.proposal != nil {
			return nil, errors.New("the command decides twice, and can only be used where the log is")
		}
		a.proposing.proposal = p
		return p, nil
	}
	return p, a.caller().Decide(ctx, p, p.Sign(s.key), p.Key)
}

// tryOut returns the error that deciding a draft would return. If there is no operator yet, it
// assumes the rights of the first operator, without creating one.
func (a *Program) tryOut(ctx context.Context, path string, d app.Draft) error {
	if a.proposing != nil {
		s, err := a.signer(ctx, path)
		if err != nil {
			return err
		}
		d.DryRun, d.SignAll = true, true
		_, err = a.caller().Propose(ctx, d, s.public)
		return err
	}
	ops, err := a.caller().Operators(ctx)
	if err != nil {
		return err
	}
	d.DryRun = true
	var s signer
	if len(ops) == 0 && path == "" {
		a.note("there is no operator yet; the first one can decide everything except money")
		d.First = app.Me()
		if s.public, _, err = ed25519.GenerateKey(nil); err != nil {
			return err
		}
	} else if s, err = a.registered(ctx, ops, path); err != nil {
		return err
	}
	_, err = a.caller().Propose(ctx, d, s.public)
	return err
}

// signed has a draft signed and decided, and returns who signed it. A dry run only returns the error that this would return.
func (a *Program) signed(ctx context.Context, key string, dryRun bool, draft app.Draft) (operator string, err error) {
	if dryRun {
		return "", a.tryOut(ctx, key, draft)
	}
	s, err := a.signer(ctx, key)
	if err != nil {
		return "", err
	}
	return s.name, a.decide(ctx, s, draft)
}

func operatorNames(ops []registry.Grant) string {
	if len(ops) == 0 {
		return "none yet"
	}
	names := make([]string, len(ops))
	for i, op := range ops {
		names[i] = op.Operator
	}
	return strings.Join(names, ", ")
}
