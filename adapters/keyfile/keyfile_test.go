package keyfile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCreateAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ada.key")
	made, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %04o, want 0600", info.Mode().Perm())
	}
	loaded, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if !loaded.Equal(made) {
		t.Error("the loaded key differs from the created key")
	}
	if _, err := Create(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("creating over an existing file: %v, want os.ErrExist", err)
	}
	if again, err := Load(path); err != nil || !again.Equal(made) {
		t.Errorf("the file changed: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if _, err := Create(good); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		mode       os.FileMode
		want       string
	}{
		{"empty", "", 0o600, "no PEM block"},
		{"group may read", string(text), 0o640, "0640"},
		{"others may write", string(text), 0o602, "0602"},
		{"two keys", string(text) + string(text), 0o600, "more than one"},
		{"huge", strings.Repeat("x", maxFile+1), 0o600, "more than 16384"},
		{"damaged", strings.Replace(string(text), "MC4", "AC4", 1), 0o600, "asn1"},
		{"elliptic curve", string(pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der})), 0o600, "want Ed25519"},
		{"public key", strings.ReplaceAll(string(text), "PRIVATE", "PUBLIC"), 0o600, "no PEM block"},
	} {
		path := filepath.Join(dir, "key")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		}
		if exposed := c.mode&0o077 != 0; errors.Is(err, ErrExposed) != exposed {
			t.Errorf("%s: %v, ErrExposed wanted: %v", c.name, err, exposed)
		}
	}
	if err := os.Chmod(good, 0o440); err != nil {
		t.Fatal(err)
	}
	for _, exposed := range []bool{false, true} {
		_, err := LoadFor(good, func(path string, info os.FileInfo) bool {
			return exposed || path != good || info.Mode().Perm() != 0o440
		})
		if errors.Is(err, ErrExposed) != exposed || err != nil && !exposed {
			t.Errorf("a program's key, exposed %t: %v", exposed, err)
		}
	}
	if _, err := Load(dir); err == nil {
		t.Error("a directory was loaded as a key")
	}
	if _, err := Load(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v, want os.ErrNotExist", err)
	}
}

func FuzzLoad(f *testing.F) {
	path := filepath.Join(f.TempDir(), "key")
	if _, err := Create(path); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if key, err := Load(path); err == nil && len(key) != 64 {
			t.Errorf("key of %d bytes", len(key))
		}
	})
}
