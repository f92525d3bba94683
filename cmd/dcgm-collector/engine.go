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

// Addresses of nv-hostengine: the Unix sockets of packages and --domain-socket, and the default TCP
// address.
var (
	sockets    = []string{"/run/nv-hostengine.sock", "/tmp/nv-hostengine"}
	tcpAddress = dcgm.DefaultEngine
)

// Attempt is the result of trying one engine.
type Attempt struct {
	Engine string `json:"engine"`
	Result string `json:"result"`
	Reason string `json:"reason,omitempty"`
}

// Results of trying an engine.
const (
	engineUsed      = "used"
	engineAbsent    = "absent"    // nothing is there
	engineUntrusted = "untrusted" // another user may have started it
	engineFailed    = "failed"    // it does not answer like an engine
)

func (a Attempt) text() string {
	if a.Reason == "" {
		return a.Result
	}
	return a.Result + ", " + a.Reason
}

// candidates are the engines to try, in order: the named one, or for auto the Unix sockets, TCP on
// this machine, and embedded DCGM.
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

// skipReason returns why auto must skip an engine: it is absent, or another user may have started
// it. The result is "" if the engine may be used.
func skipReason(e dcgm.Engine) (result, reason string) {
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

// trustedUser reports whether a user's engine is trusted: root and this user.
func trustedUser(user uint32) bool { return user == 0 || int(user) == os.Geteuid() }

// untrustedListener returns why the listener at a TCP address of this machine may be another user's
// trap, or "" if it cannot. Every user may listen on a port above 1023. Linux shows in /proc/net
// who made a socket.
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
			if !trustedUser(user) {
				return fmt.Sprintf("user %d listens there", user)
			}
			found = true
		}
	}
	if !found {
		return "the listener's user is unknown"
	}
	return ""
}

// listeners returns the users who listen at an address of this machine. table is the kernel's table
// of TCP sockets (proc_net_tcp of Linux). After a header it has one socket a line: number, local
// address, remote address, state, queues, timer, retransmits and user.
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
		for i := 0; i < len(ip); i += 4 { // words in the machine's byte order, here little-endian
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

// untrustedSocket returns why a socket found by auto may be another user's trap, or "" if it
// cannot. A false engine could report false GPU states. The socket must be in a directory where
// only root or this user can make files. It may also be in a directory like /tmp, where everybody
// can make files but not replace those of others, if the socket belongs to root or this user.
func untrustedSocket(path string, info fs.FileInfo) (why string) {
	if info.Mode()&fs.ModeSocket == 0 {
		return "it is not a socket"
	}
	own := func(info fs.FileInfo) (user uint32, ok bool) {
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return 0, false
		}
		return st.Uid, trustedUser(st.Uid)
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
