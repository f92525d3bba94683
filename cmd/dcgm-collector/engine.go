package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"quartermaster/adapters/dcgm"
)

// Where nv-hostengine listens: on Unix sockets as packages and --domain-socket make them,
// and on TCP by default.
var (
	sockets    = []string{"/run/nv-hostengine.sock", "/tmp/nv-hostengine"}
	tcpAddress = dcgm.DefaultEngine
)

// Attempt is what came of one engine.
type Attempt struct {
	Engine string `json:"engine"`
	Result string `json:"result"`
	Reason string `json:"reason,omitempty"`
}

// What can come of an engine.
const (
	engineUsed      = "used"
	engineAbsent    = "absent"    // nothing is there
	engineUntrusted = "untrusted" // another user may have started it
	engineFailed    = "failed"    // it does not answer as an engine
)

func (a Attempt) text() string {
	if a.Reason == "" {
		return a.Result
	}
	return a.Result + ", " + a.Reason
}

// candidates are the engines to try, in their order: the one that is named, or for auto
// the Unix sockets, TCP on this machine, and DCGM embedded.
func candidates(e dcgm.Engine) []dcgm.Engine {
	if e.Kind != dcgm.EngineAuto {
		return []dcgm.Engine{e}
	}
	var all []dcgm.Engine
	for _, path := range sockets {
		all = append(all, dcgm.Engine{Kind: dcgm.EngineUnix, Address: path})
	}
	return append(all, dcgm.Engine{Kind: dcgm.EngineTCP, Address: tcpAddress}, dcgm.Engine{Kind: dcgm.EngineEmbedded})
}

// passBy says whether an engine that nobody named is to be left alone: nothing is there,
// or another user may have started it.
func passBy(e dcgm.Engine) (result, reason string) {
	switch e.Kind {
	case dcgm.EngineUnix:
		info, err := os.Lstat(e.Address)
		if errors.Is(err, fs.ErrNotExist) {
			return engineAbsent, "there is no such socket"
		} else if err != nil {
			return engineAbsent, err.Error()
		}
		reason = untrustedSocket(e.Address, info)
	case dcgm.EngineTCP:
		c, err := net.DialTimeout("tcp", e.Address, time.Second)
		if err != nil {
			return engineAbsent, "nothing listens there"
		}
		c.Close()
		reason = untrustedListener(e.Address)
	}
	if reason == "" {
		return "", ""
	}
	return engineUntrusted, reason + "; name it with --engine " + e.String() + " if it is yours"
}

// ours reports whether a user can be trusted with what the GPUs do: root and this user.
func ours(user uint32) bool { return user == 0 || int(user) == os.Geteuid() }

// untrustedListener says why what listens at a TCP address of this machine may be another
// user's trap, "" when it cannot be: every user may listen on a port above 1023. Linux
// tells in /proc/net who made a socket.
func untrustedListener(address string) (why string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err.Error()
	}
	found := false
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // a kernel without IPv6
		}
		for _, user := range listeners(string(text), net.ParseIP(host), port) {
			if !ours(user) {
				return fmt.Sprintf("user %d listens there", user)
			}
			found = true
		}
	}
	if !found {
		return "who listens there is not known"
	}
	return ""
}

// listeners returns the users who listen at an address of this machine, in the kernel's
// table of TCP sockets (proc_net_tcp of Linux): after a header one socket a line, with its
// number, local address, remote address, state, queues, timer, retransmits and user.
func listeners(table string, host net.IP, port string) (users []uint32) {
	const listening = "0A"
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 8 || f[3] != listening {
			continue
		}
		at, on, _ := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(on, 16, 16); err != nil || strconv.FormatUint(n, 10) != port {
			continue
		}
		ip, err := hex.DecodeString(at)
		if err != nil || len(ip)%4 != 0 {
			continue
		}
		for i := 0; i < len(ip); i += 4 { // words in the machine's order, little-endian here
			slices.Reverse(ip[i : i+4])
		}
		if a := net.IP(ip); !a.IsUnspecified() && !a.Equal(host) {
			continue
		}
		if user, err := strconv.ParseUint(f[7], 10, 32); err == nil {
			users = append(users, uint32(user))
		}
	}
	return users
}

// untrustedSocket says why a socket that was found, not named, may be another user's trap,
// "" when it cannot be: whoever answers there says what the GPUs do. It must lie in a
// directory where only root or this user make files; or in one like /tmp, where everybody
// makes files and nobody replaces those of others, if it belongs to root or this user.
func untrustedSocket(path string, info fs.FileInfo) (why string) {
	if info.Mode()&fs.ModeSocket == 0 {
		return "it is no socket"
	}
	own := func(info fs.FileInfo) (user uint32, ok bool) {
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return 0, false
		}
		return st.Uid, ours(st.Uid)
	}
	folder := filepath.Dir(path)
	dir, err := os.Stat(folder)
	if err != nil {
		return err.Error()
	}
	if user, ok := own(dir); !ok {
		return fmt.Sprintf("its directory %s belongs to user %d", folder, user)
	}
	if dir.Mode().Perm()&0o022 == 0 {
		return ""
	}
	if dir.Mode()&fs.ModeSticky == 0 {
		return fmt.Sprintf("others can replace files in its directory %s (mode %04o)", folder, dir.Mode().Perm())
	}
	if user, ok := own(info); !ok {
		return fmt.Sprintf("it belongs to user %d, and everybody can make files in %s", user, folder)
	}
	return ""
}
