package dcgm

import (
	"strings"
	"testing"
)

func TestParseEngine(t *testing.T) {
	for _, c := range []struct {
		text, same, fails string
		remote            bool
	}{
		{text: "auto"},
		{text: "embedded"},
		{text: "tcp://127.0.0.1:5555"},
		{text: "tcp://[::1]:5555"},
		{text: "tcp://localhost:5555"},
		{text: "tcp://10.0.0.7:5555", remote: true},
		{text: "tcp://dcgm.example:5555", remote: true},
		{text: "unix:/run/nv-hostengine.sock"},
		{text: "unix:///run/nv-hostengine.sock", same: "unix:/run/nv-hostengine.sock"},
		{text: "", fails: "is empty"},
		{text: "/run/nv-hostengine.sock", fails: "write unix:/run/nv-hostengine.sock"},
		{text: "127.0.0.1:5555", fails: "write tcp://127.0.0.1:5555"},
		{text: "tcp://127.0.0.1", fails: "has no host and port: write tcp://127.0.0.1:5555"},
		{text: "tcp://:5555", fails: "has no host and port"},
		{text: "tcp://h:0", fails: "has no host and port"},
		{text: "unix:engine.sock", fails: "has no absolute path"},
		{text: "embed", fails: "is unknown: write auto, tcp://HOST:PORT, unix:PATH or embedded"},
	} {
		e, err := ParseEngine(c.text)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%q: %v, want %s", c.text, err, c.fails)
			}
			continue
		}
		want := c.text
		if c.same != "" {
			want = c.same
		}
		if err != nil || e.String() != want || e.Remote() != c.remote {
			t.Errorf("%q: %q, remote %t, %v", c.text, e.String(), e.Remote(), err)
		}
	}
}
