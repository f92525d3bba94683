//go:build linux

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of the sockets that are looked for, only one that root or this user must have made is
// attached to; what is passed by is named, with the reason.
func TestTrusted(t *testing.T) {
	usual := sockets
	defer func() { sockets = usual }()
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
		{name: "a link", mode: 0o777 | os.ModeSticky, kind: "link", refuse: "it is no socket"},
		{name: "a file", mode: 0o755, kind: "file", refuse: "it is no socket"},
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
			sockets = []string{filepath.Join(dir, "none"), path}
			got, refused := (&Config{Engine: "auto"}).socket()
			if c.refuse == "" {
				if got != path || len(refused) > 0 {
					t.Errorf("attaches to %q, refuses %q", got, refused)
				}
				return
			}
			if got != "" || len(refused) != 1 || !strings.Contains(refused[0], path+" is not trusted: ") || !strings.Contains(refused[0], c.refuse) {
				t.Errorf("attaches to %q, refuses %q", got, refused)
			}
			// One that is named is taken.
			if got, refused := (&Config{Engine: "unix://" + path}).socket(); got != path || refused != nil {
				t.Errorf("attaches to %q, refuses %q", got, refused)
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
		sockets = []string{path}
		if got, refused := (&Config{Engine: "auto"}).socket(); got != "" || len(refused) != 1 || !strings.Contains(refused[0], "belongs to user 12345") {
			t.Errorf("attaches to %q, refuses %q", got, refused)
		}
	}
}
