package daemon

import (
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/transport"
	"quartermaster/adapters/transport/testcert"
)

// The gateway speaks TLS 1.3, and 1.2 with AEAD suites where it is told to.
func TestGatewayTLSVersions(t *testing.T) {
	c := testcert.New(t)
	g := &gateway{cert: transport.NewCertificate(c.Cert, c.Key, slog.New(slog.DiscardHandler))}
	if at := time.Unix(int64(g.expiry()), 0); !at.After(time.Now()) {
		t.Errorf("the certificate ends at %s", at)
	}
	for _, x := range []struct {
		least         string
		version, suit uint16
		want          bool
	}{
		{"1.3", tls.VersionTLS13, 0, true}, {"1.3", tls.VersionTLS12, 0, false}, {"", tls.VersionTLS12, 0, false}, {"1.2", tls.VersionTLS12, 0, true},
		{"1.2", tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, false}, {"1.2", tls.VersionTLS11, 0, false},
	} {
		a, b := net.Pipe()
		g.cfg.TLSMin = x.least
		server := g.tls()
		go func() { _ = tls.Server(a, server).HandshakeContext(t.Context()); _ = a.Close() }()
		client := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: x.version}
		if x.suit != 0 {
			client.CipherSuites = []uint16{x.suit}
		}
		err := tls.Client(b, client).HandshakeContext(t.Context())
		if (err == nil) != x.want {
			t.Errorf("least %q, client's %x and suite %x: %v", x.least, x.version, x.suit, err)
		}
		_ = b.Close()
	}
}

func TestCertificateValidity(t *testing.T) {
	ended := testcert.Lasting(t, time.Now().AddDate(0, -2, 0), time.Now().Add(-time.Hour))
	s := &service{}
	s.shows("gateway", transport.NewCertificate(ended.Cert, ended.Key, slog.New(slog.DiscardHandler)))
	if warnings, err := s.validity(); len(warnings) > 0 || err == nil || !strings.Contains(err.Error(), "ended at") {
		t.Errorf("%q, %v", warnings, err)
	}
}
