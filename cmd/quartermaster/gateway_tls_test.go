package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/transport"
	"quartermaster/adapters/transport/testcert"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/projections/inventory"
)

// A gateway with authorities of clients takes events of those alone who show a
// certificate of theirs, and the key as ever.
func TestGatewayClientCertificates(t *testing.T) {
	dir := t.TempDir()
	server, authority := testcert.New(t), testcert.New(t)
	var lab issuedKey
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
	if status, text := deliver(t, right, "https://"+address, lab.Key, fault(t, "lab", "n1", 1, 79)); status != http.StatusOK || text != "{\"accepted\":1,\"shards\":1}\n" {
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
	fresh := testcert.New(t)
	path := writeConfig(t, "kafka: {brokers: ['127.0.0.1:1']}\npostgres: {dsn: 'host=127.0.0.1 port=1 user=u'}\ngateway: {listen: '127.0.0.1:0', cert_file: %s, key_file: %s, client_ca_file: %s}\n", fresh.Cert, fresh.Key, fresh.Cert)
	look := func(certificate, clients string) {
		t.Helper()
		got := map[string]string{}
		for _, c := range (&app.App{}).CheckConfig(t.Context(), path, true) {
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
