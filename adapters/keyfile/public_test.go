package keyfile_test

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"

	"quartermaster/adapters/keyfile"
)

func TestPublicHalf(t *testing.T) {
	dir := t.TempDir()
	private, public := filepath.Join(dir, "a.pem"), filepath.Join(dir, "a.pub.pem")
	key, err := keyfile.Create(private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyfile.PublicPEM(key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(public, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{private, public} {
		got, err := keyfile.LoadPublic(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if !got.Equal(key.Public()) {
			t.Errorf("%s: another key", path)
		}
	}
	if err := os.WriteFile(public, []byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := keyfile.LoadPublic(public); err == nil {
		t.Error("a broken key was read")
	}
}
