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
	name string
	key  ed25519.PrivateKey
}

func (s signer) public() ed25519.PublicKey { return s.key.Public().(ed25519.PublicKey) }

// KeyPath returns the path of the first operator's key.
func (a *Program) KeyPath() string { return filepath.Join(a.Dir, "operator.pem") }

// signer returns the signer of this command's decisions. If there is no operator yet, it creates the
// first one.
func (a *Program) signer(ctx context.Context, path string) (signer, error) {
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
	if path == "" {
		path = a.KeyPath()
	}
	key, err := keyfile.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return signer{}, &app.DeniedError{Err: fmt.Errorf("no operator key at %s: name yours with --key FILE; operators are %s", path, operatorNames(ops))}
	}
	if err != nil {
		return signer{}, err
	}
	for _, op := range ops {
		if bytes.Equal(op.PublicKey, key.Public().(ed25519.PublicKey)) {
			return signer{op.Operator, key}, nil
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
	s := signer{app.Me(), key}
	if err := a.decide(ctx, s, app.FirstOperator(s.name, s.public())); err != nil {
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

// decided is like decide, and returns what was signed.
func (a *Program) decided(ctx context.Context, s signer, d app.Draft) (*app.Proposal, error) {
	d.As = s.name
	p, err := a.caller().Propose(ctx, d, s.public())
	if err != nil {
		return nil, err
	}
	return p, a.caller().Decide(ctx, p, p.Sign(s.key), p.Key)
}

// tryOut returns the error that deciding a draft would return. If there is no operator yet, it
// assumes the rights of the first operator, without creating one.
func (a *Program) tryOut(ctx context.Context, path string, d app.Draft) error {
	ops, err := a.caller().Operators(ctx)
	if err != nil {
		return err
	}
	d.DryRun = true
	var s signer
	if len(ops) == 0 && path == "" {
		a.note("there is no operator yet; the first one can decide everything except money")
		d.First = app.Me()
		if _, s.key, err = ed25519.GenerateKey(nil); err != nil {
			return err
		}
	} else if s, err = a.registered(ctx, ops, path); err != nil {
		return err
	}
	_, err = a.caller().Propose(ctx, d, s.public())
	return err
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
