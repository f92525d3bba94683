package dcgm

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// DefaultEngine is the default address of nv-hostengine.
const DefaultEngine = "127.0.0.1:5555"

// Engine selects the DCGM engine that reads the GPUs. Its text form is auto, embedded,
// tcp://HOST:PORT or unix:PATH.
type Engine struct {
	Kind    EngineKind
	Address string // HOST:PORT or the path; "" for auto and embedded
}

// EngineKind is how an engine is reached.
type EngineKind string

// The kinds of engines.
const (
	EngineAuto     EngineKind = "auto"     // the first available and trusted: Unix socket, TCP, embedded
	EngineTCP      EngineKind = "tcp"      // an nv-hostengine at HOST:PORT
	EngineUnix     EngineKind = "unix"     // an nv-hostengine at a Unix socket
	EngineEmbedded EngineKind = "embedded" // DCGM runs inside the collector
)

// ParseEngine parses the text form of an engine. A path must be absolute, and a TCP address
// must have a port.
func ParseEngine(text string) (Engine, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch {
	case text == "":
		return Engine{}, errors.New("is empty: write auto, tcp://HOST:PORT, unix:PATH or embedded")
	case text == string(EngineAuto) || text == string(EngineEmbedded):
		return Engine{Kind: EngineKind(text)}, nil
	case kind == string(EngineUnix):
		rest = strings.TrimPrefix(rest, "//")
		if !filepath.IsAbs(rest) {
			return Engine{}, fmt.Errorf("%q has no absolute path: write unix:/run/nv-hostengine.sock", text)
		}
		return Engine{EngineUnix, rest}, nil
	case strings.HasPrefix(text, "tcp://"):
		host, port, err := net.SplitHostPort(rest[2:])
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || host == "" {
			return Engine{}, fmt.Errorf("%q has no host and port: write tcp://%s", text, DefaultEngine)
		}
		return Engine{EngineTCP, rest[2:]}, nil
	case filepath.IsAbs(text):
		return Engine{}, fmt.Errorf("%q has no scheme: write unix:%s", text, text)
	}
	if _, _, err := net.SplitHostPort(text); err == nil {
		return Engine{}, fmt.Errorf("%q has no scheme: write tcp://%s", text, text)
	}
	return Engine{}, fmt.Errorf("%q is unknown: write auto, tcp://HOST:PORT, unix:PATH or embedded", text)
}

// String returns the text form that ParseEngine reads.
func (e Engine) String() string {
	switch e.Kind {
	case EngineTCP:
		return "tcp://" + e.Address
	case EngineUnix:
		return "unix:" + e.Address
	}
	return string(e.Kind)
}

// Remote reports whether an engine may be on another machine. DCGM's connections are
// neither encrypted nor authenticated.
func (e Engine) Remote() bool {
	if e.Kind != EngineTCP {
		return false
	}
	host, _, _ := net.SplitHostPort(e.Address)
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}
