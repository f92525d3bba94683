package postgres

import (
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A dead server is noticed: the socket's timeouts are set.
func TestDialer(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := newDialer().DialTimeout("tcp", l.Addr().String(), peerTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ level, option, want int }{
		"TCP_USER_TIMEOUT": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 15_000},
		"SO_KEEPALIVE":     {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		"TCP_KEEPIDLE":     {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
		"TCP_KEEPINTVL":    {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 5},
		"TCP_KEEPCNT":      {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 2},
	} {
		var got int
		if cerr := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), c.level, c.option) }); cerr != nil || err != nil {
			t.Fatal(cerr, err)
		}
		if got != c.want {
			t.Errorf("%s is %d, want %d", name, got, c.want)
		}
	}
}

// The server has the same timeouts, and transactions are read committed, whatever the database's
// settings are.
func TestSettings(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t, `alter database DATABASE set default_transaction_isolation = 'serializable'`, `alter database DATABASE set tcp_user_timeout = 0`)
	for name, want := range settings {
		var got string
		if err := db.QueryRow(`select setting from pg_settings where name = $1`, name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, want %q: %v", name, got, want, err)
		}
	}
}

// No error shows a password.
func TestSecretsOfDSN(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:hunter2%zz@h/d", "postgres://u:hunter2/x@h/d", "postgres://u:hunter2 x@h:1/d", "postgres://u:hunter2[@h/d", "postgres://u:hunter2@h:port/d",
		"postgres://u:hunter2\x01@h/d", "host=h password=a hunter2", "host=h password='hunter2", "host=h password=hunter2\\", "hunter2", "hunter2://h/d",
		"postgres://u:hunter2@127.0.0.1:1/d?sslmode=disable", "host=127.0.0.1 port=1 password=hunter2 sslmode=disable", "host=h password=hunter2 sslmode=maybe",
	} {
		_, err := connect(t.Context(), Config{DSN: dsn})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", dsn, err)
		}
	}
}

// View reports once that the active generation's rows are gone.
func TestViewOfNothing(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	if _, err := db.Exec(`drop schema rows_a cascade`); err != nil {
		t.Fatal(err)
	}
	if err := db.View(t.Context(), nil); err == nil || !strings.Contains(err.Error(), `the rows of generation "a" were dropped`) {
		t.Error(err)
	}
}
