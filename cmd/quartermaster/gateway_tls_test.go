package main

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/transport"
	"quartermaster/adapters/transport/testcert"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/projections/inventory"
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

// A gateway with authorities of clients takes events of those alone who show a
// certificate of theirs, and the key as ever.
func TestGatewayClientCertificates(t *testing.T) {
	dir := t.TempDir()
	server, authority := testcert.New(t), testcert.New(t)
	var lab keyAnswer
	tell(t, dir, &lab, "cluster", "register", "lab", "--provider", "own", "--class", "owned", "--region", "eu")
	_, address := gatewayOf(t, dir, config.Gateway{Listen: "127.0.0.1:0", CertFile: server.Cert, KeyFile: server.Key, ClientCAFile: authority.Cert, Rate: 1000})
	roots, err := transport.Pool(server.Cert)
	if err != nil {
		t.Fatal(err)
	}
	client := func(own *testcert.Certificate) *http.Client {
		c := &tls.Config{RootCAs: roots}
		if own != nil {
			pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return &http.Client{Transport: &http.Transport{TLSClientConfig: c}}
	}
	for name, own := range map[string]*testcert.Certificate{"none": nil, "another authority's": testcert.New(t).Client(t)} {
		if res, err := client(own).Post("https://"+address+"/v1/events", "", nil); err == nil {
			t.Errorf("%s: it answers %s, %v", name, res.Status, res.Body.Close())
		}
	}
	right := client(authority.Client(t))
	if status, text := deliver(t, right, "https://"+address, "qmk_x", fault(t, "lab", "n1", 1, 79)); status != http.StatusUnauthorized {
		t.Errorf("without the key: %d %s", status, text)
	}
	if status, text := deliver(t, right, "https://"+address, lab.Key, fault(t, "lab", "n1", 1, 79)); status != http.StatusOK || text != "{\"accepted\":1}\n" {
		t.Errorf("%d %s", status, text)
	}
	var fleet inventory.Inventory
	tell(t, dir, &fleet, "fleet", "--cluster", "lab")
	if n := fleet.Clusters[0].UnregisteredNodes; len(n) != 1 || len(n[0].Health.Faults) != 1 {
		t.Errorf("%+v", n)
	}
}

// The end of the gateway's certificate is told ahead in /readyz and by config check, and
// what has ended is a failure of both.
func TestCertificateEnds(t *testing.T) {
	shown := testcert.Lasting(t, time.Now().AddDate(0, -2, 0), time.Now().AddDate(0, 0, 10))
	health, _ := gatewayOf(t, t.TempDir(), config.Gateway{Listen: "127.0.0.1:0", CertFile: shown.Cert, KeyFile: shown.Key, Rate: 1000})
	res, err := http.Get("http://" + health + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK || !strings.HasPrefix(string(text), "ok\nwarning: gateway: the certificate in "+shown.Cert+" ends at ") {
		t.Errorf("%s %s, %v", res.Status, text, err)
	}
	ended := testcert.Lasting(t, time.Now().AddDate(0, -2, 0), time.Now().Add(-time.Hour))
	s := &service{certificate: transport.NewCertificate(ended.Cert, ended.Key, slog.New(slog.DiscardHandler))}
	if warning, err := s.validity(); warning != "" || err == nil || !strings.Contains(err.Error(), "ended at") {
		t.Errorf("%q, %v", warning, err)
	}
	fresh := testcert.New(t)
	path := writeConfig(t, "kafka: {brokers: ['127.0.0.1:1']}\npostgres: {dsn: 'host=127.0.0.1 port=1 user=u'}\ngateway: {listen: '127.0.0.1:0', cert_file: %s, key_file: %s, client_ca_file: %s}\n", fresh.Cert, fresh.Key, fresh.Cert)
	look := func(certificate, clients string) {
		t.Helper()
		got := map[string]string{}
		for _, c := range checkConfig(t.Context(), path, true) {
			got[c.Check] = c.Result + ", " + c.Found
		}
		if !strings.HasPrefix(got["gateway certificate"], certificate) || !strings.HasPrefix(got["gateway clients"], clients) {
			t.Errorf("%q", got)
		}
	}
	look("ok, ends at ", "ok, must show a certificate of an authority in "+fresh.Cert)
	shown.Replace(t, fresh)
	look("warning, the certificate in "+fresh.Cert+" ends at ", "ok, ")
	ended.Replace(t, fresh)
	look("failed, the certificate in "+fresh.Cert+" ended at ", "ok, ")
	if err := os.WriteFile(fresh.Cert, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	look("failed, read the certificate: ", "failed, "+fresh.Cert+" holds no certificate in PEM")
}
