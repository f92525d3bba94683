package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// longestSocketPath is the length of the longest path of a unix socket on Linux: 108 bytes with a final NUL.
const longestSocketPath = 107

// ListenSocket listens on a unix socket that only its owner may use, and replaces a socket file that is there. The
// caller MUST know that no process listens on it.
func ListenSocket(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove stale socket: %w", err)
	}
	// The socket file gets the mode that the descriptor has before it is bound.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); cerr != nil {
			return cerr
		}
		return err
	}}
	var ln net.Listener
	err := throughShortPath(path, func(short string) (err error) {
		ln, err = lc.Listen(ctx, "unix", short)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false) // the short path is not valid any more
	made, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), ln.Close())
	}
	return &socket{ln, path, made}, nil
}

// socket removes its file when it is closed, unless another process has replaced it.
type socket struct {
	net.Listener
	path string
	made os.FileInfo
}

// Close implements [net.Listener].
func (s *socket) Close() error {
	err := s.Listener.Close()
	if now, gone := os.Lstat(s.path); gone == nil && os.SameFile(now, s.made) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}

// DialSocket connects to a unix socket.
func DialSocket(ctx context.Context, path string) (conn net.Conn, err error) {
	err = throughShortPath(path, func(short string) (err error) {
		conn, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "unix", short)
		return err
	})
	return conn, err
}

// throughShortPath calls use with a path of a socket that fits into a socket address. It is valid until use returns.
func throughShortPath(path string, use func(string) error) error {
	if len(path) <= longestSocketPath {
		return use(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
