package transport

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
)

// Trusting returns a client that trusts these authorities, and no others.
func Trusting(pool *x509.CertPool) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	return &http.Client{Transport: t}
}
