package app

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/config"

	kafkago "github.com/segmentio/kafka-go"
)

// What a broker does says what to do next.
func TestConfigCheckBrokerAdvice(t *testing.T) {
	k := &checker{c: &config.Config{Kafka: config.Kafka{SASL: config.SASL{PasswordFile: "/f/p"}}}}
	for want, err := range map[string]error{
		"correct kafka.sasl.user, or the password in /f/p": kafkago.SASLAuthenticationFailed,
		"does not support this kafka.sasl.mechanism":       kafkago.UnsupportedSASLMechanism,
		"this port does not ask for a login":               kafkago.IllegalSASLState,
		"does not speak TLS on this port":                  tls.RecordHeaderError{},
		"unknown host":                                     &net.DNSError{},
		"it closed the connection":                         io.EOF,
		"":                                                 syscall.ECONNREFUSED,
	} {
		if got := k.brokerAdvice(fmt.Errorf("ask: %w", err)); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	for tls, want := range map[bool]string{true: "the port has no TLS", false: "the port needs TLS"} {
		k.c.Kafka.TLS.Enabled = tls
		if got := k.brokerAdvice(io.ErrUnexpectedEOF); !strings.Contains(got, want) {
			t.Errorf("hung up with TLS %t: %q, want %q", tls, got, want)
		}
	}
}

// Clocks, hosts and times that need no server.
func TestConfigCheckNotes(t *testing.T) {
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		database time.Duration
		result   string
		found    string
	}{
		{50 * time.Millisecond, CheckOK, "0s ahead of the database's, give or take 50ms"},
		{2 * time.Second, CheckOK, "-1.95s ahead"},
		{-time.Hour, CheckWarning, "1h0m0.05s ahead"},
		{time.Hour, CheckWarning, "-59m59.95s ahead"},
	} {
		k := &checker{}
		k.clock(at.Add(c.database), at, at.Add(100*time.Millisecond))
		if got := k.list[0]; got.Result != c.result || !strings.Contains(got.Found, c.found) {
			t.Errorf("%s: %+v", c.database, got)
		}
	}
	for dsn, host := range map[string]string{
		"host=db sslmode=disable":                    "db",
		"host=10.0.0.1 sslmode=disable":              "10.0.0.1",
		"host=localhost,db sslmode=disable":          "db",
		"host=db hostaddr=127.0.0.1 sslmode=disable": "",
		"host=db":                                          "",
		"host=db sslmode=verify-full":                      "",
		"host=localhost sslmode=disable":                   "",
		"postgres://127.0.0.1/d?sslmode=disable":           "",
		"postgres://[::1]/d?sslmode=disable":               "",
		"host=/run/postgresql sslmode=disable":             "",
		"host=localhost hostaddr=10.1.1.1 sslmode=disable": "10.1.1.1",
	} {
		if got, plain := sentInPlain(dsn); got != host || plain != (host != "") {
			t.Errorf("%s: %q, %t", dsn, got, plain)
		}
	}
	// Schedules are in UTC, wherever the machine is.
	s, err := config.ParseSchedule("30 2 * * *")
	if err != nil {
		t.Fatal(err)
	}
	if next := s.Next(at.In(time.FixedZone("", 5*3600))); !next.Equal(at.Add(150 * time.Minute)) {
		t.Errorf("next at %s", next)
	}
}

// A directory of snapshots that cannot be written is found, and nothing is left in one that can.
func TestConfigCheckSnapshots(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, result := range map[string]string{dir: CheckOK, filepath.Join(dir, "nosuch"): CheckFailed, file: CheckFailed} {
		k := &checker{c: &config.Config{Snapshots: path}}
		k.snapshots()
		if k.list[0].Result != result {
			t.Errorf("%s: %+v", path, k.list[0])
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
