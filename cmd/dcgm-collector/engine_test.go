//go:build linux

package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quartermaster/adapters/dcgm"
)

// auto attaches only to a socket that root or this user must have made. Skipped sockets are
// reported with the reason.
func TestTrustedSocket(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   os.FileMode // of the directory
		other  bool        // the socket is another user's
		kind   string
		refuse string
	}{
		{name: "a directory of our own", mode: 0o755, other: true},
		{name: "like /tmp, our own", mode: 0o777 | os.ModeSticky},
		{name: "like /tmp, another's", mode: 0o777 | os.ModeSticky, other: true, refuse: "it belongs to user 12345, and everybody can make files in "},
		{name: "open to all", mode: 0o777, refuse: "others can replace files in its directory "},
		{name: "open to a group", mode: 0o775, refuse: "(mode 0775)"},
		{name: "a link", mode: 0o777 | os.ModeSticky, kind: "link", refuse: "it is not a socket"},
		{name: "a file", mode: 0o755, kind: "file", refuse: "it is not a socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.other && os.Getuid() != 0 {
				t.Skip("needs root, to make another user's socket")
			}
			dir := filepath.Join(t.TempDir(), "d")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "engine")
			switch c.kind {
			case "link":
				if err := os.Symlink("/run/docker.sock", path); err != nil {
					t.Fatal(err)
				}
			case "file":
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			default:
				l, err := net.Listen("unix", path)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			}
			if c.other {
				if err := os.Chown(path, 12345, 12345); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, c.mode); err != nil {
				t.Fatal(err)
			}
			result, reason := skipReason(dcgm.Engine{Kind: dcgm.EngineUnix, Address: path})
			if c.refuse == "" {
				if result != "" {
					t.Errorf("%s, %s", result, reason)
				}
				return
			}
			if result != engineUntrusted || !strings.Contains(reason, c.refuse) || !strings.HasSuffix(reason, "name it with --engine unix:"+path+" if it is yours") {
				t.Errorf("%s, %s", result, reason)
			}
		})
	}
	// A directory of another user.
	if os.Getuid() == 0 {
		dir := t.TempDir()
		path := filepath.Join(dir, "engine")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := os.Chown(dir, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if result, reason := skipReason(dcgm.Engine{Kind: dcgm.EngineUnix, Address: path}); result != engineUntrusted || !strings.Contains(reason, "belongs to user 12345") {
			t.Errorf("%s, %s", result, reason)
		}
	}
}

// auto tries Unix sockets, TCP and embedded DCGM, in that order. A named engine is the only
// candidate.
func TestCandidates(t *testing.T) {
	for text, want := range map[string]string{
		"auto":                 "unix:/run/nv-hostengine.sock unix:/tmp/nv-hostengine tcp://127.0.0.1:5555 embedded",
		"tcp://10.0.0.7:5555":  "tcp://10.0.0.7:5555",
		"unix:/opt/dcgm/s.ock": "unix:/opt/dcgm/s.ock",
		"embedded":             "embedded",
	} {
		e, err := dcgm.ParseEngine(text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range candidates(e) {
			got = append(got, c.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// The kernel's table shows who listens on a TCP port. Only listeners at this address or at all
// addresses count.
func TestListeners(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 00000000:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 2 1 0 100 0 0 10 0
   2: 0700000A:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     8        0 3 1 0 100 0 0 10 0
   3: 0100007F:15B4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     9        0 4 1 0 100 0 0 10 0
   4: 0100007F:15B3 0100007F:C001 01 00000000:00000000 00:00000000 00000000    10        0 5 1 0 100 0 0 10 0
   5: 00000000000000000000000000000000:15B3 00000000000000000000000000000000:0000 0A 0:0 0:0 0 11 0 6
   6: 0000000000000000FFFF00000100007F:15B3 00000000000000000000000000000000:0000 0A 0:0 0:0 0 12 0 7
   7: 00000000000000000000000001000000:15B3 00000000000000000000000000000000:0000 0A 0:0 0:0 0 13 0 8
`
	if got := listeners(table, net.ParseIP("127.0.0.1"), "5555"); !slices.Equal(got, []uint32{1000, 7, 11, 12}) {
		t.Errorf("users %d", got)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if why := untrustedListener(l.Addr().String()); why != "" {
		t.Errorf("our own listener: %s", why)
	}
	if why := untrustedListener("127.0.0.1:1"); why != "the listener's user is unknown" {
		t.Errorf("nobody listens: %q", why)
	}
}
