package app

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"quartermaster/domain"
)

// TestSealedProposalExpires decides a proposal after its end: it is refused, unless it was decided before.
func TestSealedProposalExpires(t *testing.T) {
	a, c, root := begun(t)
	ctx := t.Context()
	draft := policy("owner")
	draft.SignAll = true
	p, err := c.Propose(ctx, draft, root.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := c.Seal(ctx, "ann", "apply", p)
	if err != nil {
		t.Fatal(err)
	}
	// The same proposal, whose time has come, sealed as the server would have.
	text, _, _ := strings.Cut(sealed.Seal, ".")
	content, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	var s seal
	if err := json.Unmarshal(content, &s); err != nil {
		t.Fatal(err)
	}
	s.Until = Now() - domain.Second
	if content, err = json.Marshal(&s); err != nil {
		t.Fatal(err)
	}
	secret, err := c.secret(ctx)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	late := encode(content) + "." + encode(authenticate(secret, content))
	decide := func(seal string) error {
		_, err := c.DecideSealed(ctx, "ann", sealed.ID, seal, p.Messages, p.Sign(root))
		return err
	}
	before, err := a.conn.End(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var conflict *ConflictError
	if err := decide(late); !errors.As(err, &conflict) || !strings.Contains(err.Error(), "compose it again") {
		t.Errorf("after its end: %v", err)
	}
	if end, err := a.conn.End(ctx); err != nil || end.Records() != before.Records() {
		t.Errorf("%d records were appended: %v", end.Records()-before.Records(), err)
	}
	for _, seal := range []string{sealed.Seal, sealed.Seal, late} {
		if err := decide(seal); err != nil {
			t.Error(err)
		}
	}
	if end, err := a.conn.End(ctx); err != nil || end.Records() != before.Records()+1 {
		t.Errorf("%d records were appended: %v", end.Records()-before.Records(), err)
	}
}
