// Package transport has the parts of connections that the programs share: certificates that are
// read again when their files change, listeners that bound the number of open connections, and the
// routes of metrics and profiles.
package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"quartermaster/adapters/configfile"
)

// lookAgain is how long a value is used before its files are checked again.
const lookAgain = 10 * time.Second

// maxCertificates bounds a file with certificates.
const maxCertificates = 1 << 20

// reloaded is a value read from files, and read again when one of them changes.
type reloaded[T any] struct {
	what  string // names it in messages
	files []string
	read  func() (T, error)
	log   *slog.Logger

	mu      sync.Mutex
	have    bool
	looked  time.Time
	changed []time.Time
	value   T
}

// get fails only if the files could never be read. A changed file may be half written, so after a
// failed read the previous value stays and the next check reads again.
func (r *reloaded[T]) get() (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.have && time.Since(r.looked) < lookAgain {
		return r.value, nil
	}
	r.looked = time.Now()
	changed := make([]time.Time, len(r.files))
	for i, file := range r.files {
		if info, err := os.Stat(file); err == nil {
			changed[i] = info.ModTime()
		}
	}
	if r.have && slices.Equal(changed, r.changed) {
		return r.value, nil
	}
	value, err := r.read()
	switch {
	case err == nil:
		r.value, r.changed, r.have = value, changed, true
	case !r.have:
		return value, fmt.Errorf("read the %s: %w", r.what, err)
	default:
		r.log.Warn("the "+r.what+" changed but cannot be read; the previous one is used", "error", err)
	}
	return r.value, nil
}

// Certificate is a certificate and its private key in two PEM files, which are read again when
// either changes. It is safe for concurrent use.
type Certificate struct{ pair reloaded[*tls.Certificate] }

// NewCertificate does not read the files yet. log gets a warning when changed files cannot be read.
func NewCertificate(certFile, keyFile string, log *slog.Logger) *Certificate {
	return &Certificate{reloaded[*tls.Certificate]{
		what: "certificate", files: []string{certFile, keyFile}, log: log,
		read: func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &pair, err
		},
	}}
}

// Get returns the certificate in the files, or the last one that could be read.
func (c *Certificate) Get() (*tls.Certificate, error) { return c.pair.get() }

// EndsSoon is how long before a certificate's end a warning is given, but at most the last third of
// its lifetime. In that third cert-manager renews by default
// (https://cert-manager.io/docs/usage/certificate/#reissuance-triggered-by-expiry-renewal).
const EndsSoon = 14 * 24 * time.Hour

// Validity returns when the certificate ends. It returns a warning if that is soon, and an error if
// the certificate is not valid now or cannot be read.
func (c *Certificate) Validity(now time.Time) (ends time.Time, warning string, err error) {
	pair, err := c.Get()
	if err != nil {
		return time.Time{}, "", err
	}
	leaf := pair.Leaf
	ends = leaf.NotAfter.UTC()
	left := ends.Sub(now)
	file := c.pair.files[0]
	switch {
	case now.Before(leaf.NotBefore):
		err = fmt.Errorf("the certificate in %s is not valid before %s", file, leaf.NotBefore.UTC().Format(time.RFC3339))
	case left < 0:
		err = fmt.Errorf("the certificate in %s ended at %s: replace it and its key; they are read again at once",
			file, ends.Format(time.RFC3339))
	case left < min(EndsSoon, leaf.NotAfter.Sub(leaf.NotBefore)/3):
		warning = fmt.Sprintf("the certificate in %s ends at %s, in %.1f days",
			file, ends.Format(time.RFC3339), left.Hours()/24)
	}
	return ends, warning, err
}

// Authorities are the CA certificates in a PEM file. The file is read again when it changes. It is
// safe for concurrent use.
type Authorities struct{ pool reloaded[*x509.CertPool] }

// NewAuthorities does not read the file yet. log gets a warning when the changed file cannot be
// read.
func NewAuthorities(file string, log *slog.Logger) *Authorities {
	return &Authorities{reloaded[*x509.CertPool]{
		what: "authorities", files: []string{file}, log: log, read: func() (*x509.CertPool, error) { return Pool(file) },
	}}
}

// Get returns the authorities in the file, or the last ones that could be read.
func (a *Authorities) Get() (*x509.CertPool, error) { return a.pool.get() }

// Pool returns the certificates of a PEM file.
func Pool(file string) (*x509.CertPool, error) {
	pem, err := configfile.Small(file, maxCertificates)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return pool, nil
}

// Require makes a server refuse each client that has no certificate signed by the authorities. It
// uses the authorities in the file at the beginning of each connection, including resumed sessions,
// for which tls.Config.ClientCAs would not be checked again.
func (a *Authorities) Require(server *tls.Config) {
	server.ClientAuth, server.VerifyConnection = tls.RequireAnyClientCert, a.verify
}

func (a *Authorities) verify(c tls.ConnectionState) error {
	pool, err := a.Get()
	if err != nil {
		return err
	}
	if len(c.PeerCertificates) == 0 {
		return errors.New("the client shows no certificate")
	}
	between := x509.NewCertPool()
	for _, cert := range c.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err = c.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}
