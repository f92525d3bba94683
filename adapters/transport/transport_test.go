package transport

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/transport/testcert"
)

var quiet = slog.New(slog.DiscardHandler)

// Changed files are read again. While they cannot be read, the previous content is used.
func TestReadAgain(t *testing.T) {
	first, second := testcert.New(t), testcert.New(t)
	c, a := NewCertificate(first.Cert, first.Key, quiet), NewAuthorities(first.Cert, quiet)
	look := func() (serial string) {
		t.Helper()
		c.pair.looked, a.pool.looked = time.Time{}, time.Time{}
		pair, err := c.Get()
		if err != nil {
			t.Fatal(err)
		}
		pool, err := a.Get()
		if err != nil {
			t.Fatal(err)
		}
		if want, err := Pool(first.Cert); err == nil && !pool.Equal(want) {
			t.Error("the authorities are not those of the file")
		}
		return pair.Leaf.SerialNumber.String()
	}
	was := look()
	if again := look(); again != was {
		t.Errorf("%s became %s", was, again)
	}
	if err := os.WriteFile(first.Cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := look(); again != was {
		t.Errorf("%s became %s while its file is half written", was, again)
	}
	second.Replace(t, first)
	if again := look(); again == was {
		t.Error("the rotated certificate is not used")
	}
	if _, err := NewCertificate("nowhere", first.Key, quiet).Get(); err == nil || !strings.Contains(err.Error(), "read the certificate: open nowhere") {
		t.Error(err)
	}
}

// A client without a certificate, or with one of another authority, is refused. A session is not
// resumed after a change of authorities.
func TestRequire(t *testing.T) {
	server, ours, others := testcert.New(t), testcert.New(t), testcert.New(t)
	authorities := NewAuthorities(ours.Cert, quiet)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		pair, err := NewCertificate(server.Cert, server.Key, quiet).Get()
		if err != nil {
			t.Fatal(err)
		}
		shows := &tls.Config{Certificates: []tls.Certificate{*pair}, MinVersion: version, MaxVersion: version}
		authorities.Require(shows)
		sessions := tls.NewLRUClientSessionCache(4)
		right := ours.Client(t)
		dial := func(own *testcert.Certificate) (resumed bool, err error) {
			t.Helper()
			ln, err := tls.Listen("tcp", "127.0.0.1:0", shows)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				if c, err := ln.Accept(); err == nil {
					_, _ = c.Write([]byte("hello"))
					_ = c.Close()
				}
			}()
			client := &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", MinVersion: tls.VersionTLS12}
			if own != nil {
				pair, err := NewCertificate(own.Cert, own.Key, quiet).Get()
				if err != nil {
					t.Fatal(err)
				}
				client.Certificates = []tls.Certificate{*pair}
			}
			if own == right {
				client.ClientSessionCache = sessions
			}
			c, err := tls.Dial("tcp", ln.Addr().String(), client)
			if err != nil {
				return false, err
			}
			defer c.Close()
			if _, err = io.ReadAll(c); err != nil {
				return false, err
			}
			return c.ConnectionState().DidResume, nil
		}
		for name, x := range map[string]struct {
			own  *testcert.Certificate
			want bool
		}{"none": {nil, false}, "another authority's": {others.Client(t), false}, "ours": {right, true}} {
			if _, err := dial(x.own); (err == nil) != x.want {
				t.Errorf("%x, %s: %v", version, name, err)
			}
		}
		if resumed, err := dial(right); err != nil || !resumed {
			t.Errorf("%x: resumed %t, %v", version, resumed, err)
		}
		authorities.pool.value, err = Pool(others.Cert)
		if err != nil {
			t.Fatal(err)
		}
		if resumed, err := dial(right); err == nil {
			t.Errorf("%x: an authority that was removed is still trusted, resumed %t", version, resumed)
		}
		if authorities.pool.value, err = Pool(ours.Cert); err != nil {
			t.Fatal(err)
		}
	}
}

func TestValidity(t *testing.T) {
	now := time.Now()
	day := 24 * time.Hour
	for name, x := range map[string]struct {
		from, to      time.Duration
		warning, fail string
	}{
		"long":            {-day, 90 * day, "", ""},
		"15 days left":    {-75 * day, 15 * day, "", ""},
		"13 days left":    {-77 * day, 13 * day, "in 13.0 days", ""},
		"a day's, fresh":  {-time.Hour, 23 * time.Hour, "", ""},
		"a day's, ending": {-17 * time.Hour, 7 * time.Hour, "in 0.3 days", ""},
		"ended":           {-90 * day, -time.Minute, "", "ended at "},
		"early":           {time.Hour, day, "", "is not valid before "},
	} {
		c := testcert.Lasting(t, now.Add(x.from), now.Add(x.to))
		ends, warning, err := NewCertificate(c.Cert, c.Key, quiet).Validity(now)
		if ends.Sub(now.Add(x.to)).Abs() > 2*time.Second || !strings.Contains(warning, x.warning) || (warning == "") != (x.warning == "") {
			t.Errorf("%s: ends %s, warning %q", name, ends, warning)
		}
		if (err == nil) != (x.fail == "") || err != nil && !strings.Contains(err.Error(), x.fail) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Connections beyond the limit wait for one to end.
func TestLimit(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Limit(ln, 1)
	got := make(chan net.Conn)
	go func() {
		defer close(got)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			got <- c
		}
	}()
	for range 2 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-got
	select {
	case <-got:
		t.Error("two are open at once")
	case <-time.After(50 * time.Millisecond):
	}
	_ = first.Close()
	second := <-got
	_ = second.Close()
	_ = l.Close()
	if _, open := <-got; open {
		t.Error("it accepts after Close")
	}
}
