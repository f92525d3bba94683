package wire

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"testing"

	"quartermaster/domain"
)

// TestReadSigned reads the bytes that a signature covers back into the event, for every type.
func TestReadSigned(t *testing.T) {
	for _, typ := range domain.Types() {
		if typ == domain.TypeNodeSampled {
			continue
		}
		env := envelope(&counter{}, domain.NewEvent(typ))
		public := signer.Public().(ed25519.PublicKey)
		if err := ToSign(env, "ada", public); err != nil {
			t.Fatal(err)
		}
		got, err := ReadSigned(env.Signature.Message)
		if err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		if !bytes.Equal(got.Signature.Message, env.Signature.Message) || got.Signature.Operator != "ada" || !public.Equal(ed25519.PublicKey(got.Signature.Key)) ||
			got.Subject != env.Subject || got.Time != env.Time || got.Workspace != env.Workspace || got.Cluster != env.Cluster || got.Cites != env.Cites {
			t.Errorf("%s: %+v\nwant %+v", typ, got, env)
		}
		for i := range len(env.Signature.Message) - 1 {
			if _, err := ReadSigned(env.Signature.Message[:i]); !errors.Is(err, ErrMessage) {
				t.Fatalf("%s: the first %d bytes: %v", typ, i, err)
			}
		}
		if _, err := ReadSigned(append(env.Signature.Message, 0)); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: one byte more: %v", typ, err)
		}
	}
}

// FuzzReadSigned reads any bytes. What is accepted is exactly what would be signed of the event.
func FuzzReadSigned(f *testing.F) {
	public := signer.Public().(ed25519.PublicKey)
	for _, typ := range domain.Types() {
		if env := envelope(&counter{}, domain.NewEvent(typ)); typ != domain.TypeNodeSampled {
			if err := ToSign(env, "ada", public); err != nil {
				f.Fatal(err)
			}
			f.Add(env.Signature.Message)
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		env, err := ReadSigned(message)
		if err != nil {
			oneLine(t, err)
			return
		}
		if err := ToSign(env, env.Signature.Operator, env.Signature.Key); err != nil || !bytes.Equal(env.Signature.Message, message) {
			t.Errorf("%x is read as %+v: %v", message, env, err)
		}
	})
}
