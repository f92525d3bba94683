package embedded

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"quartermaster/adapters/durable"
)

const (
	lockFile    = "lock"
	socketFile  = "log.sock"
	stoppedFile = "stopped"
	idFile      = "id"
	logDir      = "log"

	// The path of a unix socket has at most 107 bytes and a final NUL on Linux.
	longestSocketPath = 107

	// An owner listens immediately after it gets the lock, so a lock without a listener lasts only
	// moments.
	listenGrace = 3 * time.Second
)

// directory is a data directory: its lock and its socket.
type directory struct {
	path string
	self *os.File // kept open for access to long paths
	lock *os.File // non-nil while this process holds the lock
}

func openDirectory(path string, create bool) (*directory, error) {
	if create {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("create data directory: %w", err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	return &directory{path: path, self: f}, nil
}

func (d *directory) close() { d.self.Close() }

// socket returns a path of the socket that fits into a socket address.
func (d *directory) socket() string {
	p := filepath.Join(d.path, socketFile)
	if len(p) <= longestSocketPath {
		return p
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.self.Fd(), socketFile)
}

// tryLock takes the lock if nobody has it.
func (d *directory) tryLock() (bool, error) {
	f, err := os.OpenFile(filepath.Join(d.path, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, fmt.Errorf("open lock: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return false, nil
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintf(f, "pid %d\n", os.Getpid())
	}
	if err != nil {
		f.Close()
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	d.lock = f
	return true, nil
}

// unlock releases the lock. The lock file stays, because removing it would let two processes lock
// two files with the same name.
func (d *directory) unlock() {
	d.lock.Close()
	d.lock = nil
}

// listen listens on the socket and replaces the socket of a killed owner. The caller MUST hold the
// lock.
func (d *directory) listen() (*net.UnixListener, error) {
	name := d.socket()
	if err := os.Remove(filepath.Join(d.path, socketFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove stale socket: %w", err)
	}
	// The socket file gets the mode that the descriptor has before it is bound.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); cerr != nil {
			return cerr
		}
		return err
	}}
	l, err := lc.Listen(context.Background(), "unix", name)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", filepath.Join(d.path, socketFile), err)
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false)
	return ul, nil
}

// identity returns the unique id of the log, and creates it for a new log. Kafka clients see it as
// the cluster id.
func (d *directory) identity() (string, error) {
	id, err := d.knownIdentity()
	if !errors.Is(err, os.ErrNotExist) {
		return id, err
	}
	raw := make([]byte, idBytes)
	_, _ = rand.Read(raw) // never fails
	id = hex.EncodeToString(raw)
	if err := replaceFile(filepath.Join(d.path, idFile), []byte(id+"\n")); err != nil {
		return "", err
	}
	return id, durable.SyncDirectory(d.path)
}

// knownIdentity is identity, but does not create an id.
func (d *directory) knownIdentity() (string, error) {
	path := filepath.Join(d.path, idFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if id := strings.TrimSpace(string(b)); len(id) == 2*idBytes {
		return id, nil
	}
	return "", fmt.Errorf("%s has no valid log id; restore it, or remove it to give the log a new id", path)
}

const idBytes = 12

func (d *directory) removeSocket() {
	_ = os.Remove(filepath.Join(d.path, socketFile)) // the next owner replaces it
}

func (d *directory) dial(ctx context.Context) (net.Conn, error) {
	var nd net.Dialer
	c, err := nd.DialContext(ctx, "unix", d.socket())
	if err != nil {
		return nil, fmt.Errorf("dial embedded log %s: %w", d.path, err)
	}
	return c, nil
}

// writable returns an error if this process may not create files in the directory.
func (d *directory) writable() error {
	if err := unix.Faccessat(unix.AT_FDCWD, d.path, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("write to %s: %w", d.path, err)
	}
	return nil
}

// denied reports whether err means that the directory is not writable.
func denied(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// reach connects to the owner, if there is one that answers within wait.
func (d *directory) reach(ctx context.Context, wait time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := handshake(ctx, c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// lockOrServe takes the lock and returns true. If there is an owner, it connects to it, passes the
// connection to keep and returns false.
func (d *directory) lockOrServe(ctx context.Context, wait time.Duration, keep func(net.Conn)) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, ErrHeld)
	defer cancel()
	silent := time.Now()
	for {
		if got, err := d.tryLock(); got || err != nil {
			return got, err
		}
		c, err := d.dial(ctx)
		if err == nil {
			if err = handshake(ctx, c); err == nil {
				keep(c)
				return false, nil
			}
			c.Close()
		} else if time.Since(silent) > listenGrace {
			return false, d.held()
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), ErrHeld) {
				return false, d.held()
			}
			return false, fmt.Errorf("open embedded log %s: %w", d.path, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (d *directory) held() error {
	text, _ := os.ReadFile(filepath.Join(d.path, lockFile))
	who := strings.TrimSpace(string(text))
	if who == "" {
		who = "unknown pid"
	}
	return fmt.Errorf(
		"%w: %s is locked by %s; if that process hangs, end it and try again "+
			"(the lock goes with the process, do not delete the file)",
		ErrHeld, d.path, who,
	)
}

// handshake requests the API versions, which every serving owner answers.
func handshake(ctx context.Context, c net.Conn) error {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	req := []byte{0, 0, 0, 10, 0, apiVersions, 0, 0, 0, 0, 0, 1, 0xff, 0xff}
	if _, err := c.Write(req); err != nil {
		return err
	}
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:4])
	if n < 4 || n > 1<<20 || !bytes.Equal(head[4:], req[8:12]) {
		return fmt.Errorf("answer of %d bytes is not an ApiVersions answer", n)
	}
	_, err := io.CopyN(io.Discard, c, int64(n)-4)
	return err
}
