package app

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// key returns a key pair that is the same in every run.
func key(name string) (ed25519.PublicKey, ed25519.PrivateKey) {
	seed := sha256.Sum256([]byte(name))
	k := ed25519.NewKeyFromSeed(seed[:])
	return k.Public().(ed25519.PublicKey), k
}

// begun is an app on a new data directory with a first operator, root.
func begun(t *testing.T) (*App, *Caller, ed25519.PrivateKey) {
	t.Helper()
	a := &App{Dir: t.TempDir()}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	c := a.For(Everyone)
	public, private := key("root")
	p, err := c.Propose(t.Context(), FirstOperator("root", public), public)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Decide(t.Context(), p, p.Sign(private), p.Key); err != nil {
		t.Fatal(err)
	}
	return a, c, private
}

func policy(share string) Draft {
	return Draft{Use: "test", Events: []domain.Envelope{{
		Time: Now(), Subject: "spot", Workspace: Platform,
		Event: &domain.PolicySet{Policy: "spot", Kind: domain.PolicyIdleCost, Value: share, EffectiveFrom: Now()},
	}}}
}

// A decision is appended once under one key, by the holder of a registered key alone, and
// as it was signed.
func TestDecide(t *testing.T) {
	a, c, root := begun(t)
	ctx := t.Context()
	records := func() int64 {
		t.Helper()
		end, err := a.conn.End(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return end.Records()
	}
	before := records()
	p, err := c.Propose(ctx, policy("owner"), root.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	if p.Operator != "root" || len(p.Messages) != 1 || records() != before {
		t.Fatalf("signer %q, %d messages, %d records", p.Operator, len(p.Messages), records())
	}
	var denied *DeniedError
	for name, signature := range map[string][]byte{"none": nil, "another's": func() []byte {
		_, other := key("other")
		return ed25519.Sign(other, p.Messages[0])
	}()} {
		if err := c.Decide(ctx, p, [][]byte{signature}, p.Key); !errors.As(err, &denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var wrong *InvalidError
	if err := c.Decide(ctx, p, nil, p.Key); !errors.As(err, &wrong) || wrong.Field != "signatures" {
		t.Errorf("without signatures: %v", err)
	}
	if err := c.Decide(ctx, p, p.Sign(root), "today"); !errors.As(err, &wrong) || wrong.Field != "idempotency_key" {
		t.Errorf("another key: %v", err)
	}
	if records() != before {
		t.Fatal("something was appended")
	}
	for range 2 {
		if err := c.Decide(ctx, p, p.Sign(root), p.Key); err != nil {
			t.Fatal(err)
		}
	}
	// A process that had not folded the first appends it again, and it counts once.
	other := &App{Dir: a.Dir}
	late := other.For(Everyone)
	if err := late.Begin(ctx, false); err != nil {
		t.Fatal(err)
	}
	if n := records(); n != before+1 {
		t.Fatalf("%d records more, want one", n-before)
	}
	if err := errors.Join(late.Decide(ctx, p, p.Sign(root), p.Key), other.Close()); err != nil {
		t.Fatal(err)
	}
	if n := records(); n != before+1 {
		t.Fatalf("%d records more, want one", n-before)
	}
}

// Who has no right is told before anything is signed. What was proposed while there was the
// right may be decided after it is gone, as the log judges a decision by its time.
func TestProposeNeedsTheRight(t *testing.T) {
	_, c, root := begun(t)
	ctx := t.Context()
	var denied *DeniedError
	stranger, _ := key("stranger")
	if _, err := c.Propose(ctx, policy("owner"), stranger); !errors.As(err, &denied) {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := c.Propose(ctx, Draft{Use: "test", Events: []domain.Envelope{{Time: Now(), Subject: "x", Workspace: Platform, Event: &domain.PolicySet{}}}}, root.Public().(ed25519.PublicKey)); err == nil {
		t.Error("an event that is not valid is proposed")
	}
	decide := func(d Draft, signer ed25519.PrivateKey) error {
		p, err := c.Propose(ctx, d, signer.Public().(ed25519.PublicKey))
		if err != nil {
			return err
		}
		return c.Decide(ctx, p, p.Sign(signer), p.Key)
	}
	public, ana := key("ana")
	if err := decide(RegisterOperator(Platform, &domain.OperatorRegistered{Operator: "ana", PublicKey: public, Role: domain.RoleAdmin}), root); err != nil {
		t.Fatal(err)
	}
	p, err := c.Propose(ctx, policy("owner"), public)
	if err != nil {
		t.Fatal(err)
	}
	if err := decide(RegisterOperator(Platform, &domain.OperatorRegistered{Operator: "ana", PublicKey: public, Role: domain.RoleAuditor}), root); err != nil {
		t.Fatal(err)
	}
	if err := c.Decide(ctx, p, p.Sign(ana), p.Key); err != nil {
		t.Errorf("what ana proposed as an admin: %v", err)
	}
	if _, err := c.Propose(ctx, policy("owner"), public); !errors.As(err, &denied) {
		t.Errorf("an auditor proposes a policy: %v", err)
	}
}

// An answer is computed once for a question and a position, and a month is divided once for
// all questions about it.
func TestAnswersAreKept(t *testing.T) {
	a, c, root := begun(t)
	ctx := t.Context()
	month := projections.BillingMonth(Now())
	ask := func(by ...costs.Dimension) error {
		_, err := c.Costs(ctx, "", costs.Query{Month: month, By: by})
		return err
	}
	for range 2 {
		if err := ask(costs.ByWorkspace); err != nil {
			t.Fatal(err)
		}
	}
	if a.cache().computed != 2 {
		t.Errorf("for the same question %d answers were computed, want the division and the report", a.cache().computed)
	}
	_, err := c.Allocations(ctx, "", month, costs.AllocationFilter{}, func(*costs.Allocation) error { return nil })
	if err = errors.Join(err, ask(costs.ByLine)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ExplainCosts(ctx, "", CostsExplained{Month: month, Workspace: Platform}); err != nil {
		t.Fatal(err)
	}
	if a.cache().computed != 6 {
		t.Errorf("for four questions %d answers were computed, want 4 reports and the divisions of this month and of the one before", a.cache().computed)
	}
	p, err := c.Propose(ctx, policy("owner"), root.Public().(ed25519.PublicKey))
	if err == nil {
		err = c.Decide(ctx, p, p.Sign(root), p.Key)
	}
	if err = errors.Join(err, ask(costs.ByWorkspace)); err != nil {
		t.Fatal(err)
	}
	if a.cache().computed != 8 {
		t.Errorf("at another position %d answers were computed in all, want 8", a.cache().computed)
	}
}

// A division is kept under what it read itself, even if another division of the month, of other rows,
// read something else meanwhile.
func TestDivisionIsKeptByItsReads(t *testing.T) {
	a, c, _ := begun(t)
	month := projections.BillingMonth(Now())
	var others sync.WaitGroup
	var done atomic.Bool
	if err := c.read(t.Context(), "", func(_ *Conn, v projections.View) error {
		_, narrow := projections.Record(v)
		d, err := c.division(t.Context(), v, month)
		if err != nil {
			return err
		}
		own := divisionKey(v, month, d.Reads())
		others.Go(func() {
			for !done.Load() {
				a.cache().divided(month, narrow)
			}
		})
		defer done.Store(true)
		for range 200 {
			a.cache().mu.Lock()
			a.cache().byKey = nil
			a.cache().bytes = 0
			a.cache().list.Init()
			a.cache().mu.Unlock()
			if _, err := c.division(t.Context(), v, month); err != nil {
				return err
			}
			a.cache().mu.Lock()
			_, kept := a.cache().byKey[own]
			n := len(a.cache().byKey)
			a.cache().mu.Unlock()
			if !kept || n != 1 {
				t.Errorf("of %d divisions one is kept under its own key: %t", n, kept)
				break
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	others.Wait()
}

func TestAnswersAreBounded(t *testing.T) {
	a := &answers{}
	large := strings.Repeat("x", keptBytes/4)
	for i := range 20 {
		a.put(fmt.Sprint(i), large)
	}
	if len(a.byKey) != 3 || a.list.Len() != 3 || a.bytes > keptBytes {
		t.Errorf("%d answers of %d bytes are kept", len(a.byKey), a.bytes)
	}
	if _, ok := a.get("19"); !ok {
		t.Error("the last one is not kept")
	}
	a.put("whole", strings.Repeat("x", keptBytes))
	if _, ok := a.get("whole"); ok || len(a.byKey) != 3 {
		t.Error("one that is as large as all may be is kept")
	}
}
