// Package testcert makes certificates for tests.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate is a certificate and its key, in the PEM files Cert and Key.
type Certificate struct {
	Cert, Key string

	leaf *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes a self-signed authority for localhost and 127.0.0.1. It is valid from an hour ago to an
// hour from now.
func New(t testing.TB) *Certificate {
	t.Helper()
	return issue(t, nil, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// Client makes a client certificate that c signs.
func (c *Certificate) Client(t testing.TB) *Certificate {
	t.Helper()
	return issue(t, c, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// Lasting makes an authority like New, but with another period of validity.
func Lasting(t testing.TB, from, to time.Time) *Certificate {
	t.Helper()
	return issue(t, nil, from, to)
}

func issue(t testing.TB, by *Certificate, from, to time.Time) *Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"}, NotBefore: from, NotAfter: to,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: by == nil, BasicConstraintsValid: true,
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.leaf, by.key
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := &Certificate{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), leaf: leaf, key: key}
	for file, block := range map[string]*pem.Block{
		c.Cert: {Type: "CERTIFICATE", Bytes: der}, c.Key: {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// Replace writes c over the files of another, as a rotation does.
func (c *Certificate) Replace(t testing.TB, other *Certificate) {
	t.Helper()
	for from, to := range map[string]string{c.Cert: other.Cert, c.Key: other.Key} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Minute) // a file system may have a coarse clock
		if err := os.Chtimes(to, later, later); err != nil {
			t.Fatal(err)
		}
	}
}
