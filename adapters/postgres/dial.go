package postgres

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// peerTimeout is how long a server may be silent before the connection is given up. The operating
// system's default is about a quarter of an hour. During that time a waiting query cannot be
// cancelled, because the driver cancels by asking the server.
const peerTimeout = 15 * time.Second

// dialer opens connections that notice a dead peer.
type dialer struct{ net.Dialer }

func newDialer() *dialer {
	return &dialer{net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: peerTimeout / 3, Interval: peerTimeout / 3, Count: 2},
		Control: func(network, _ string, c syscall.RawConn) (err error) {
			if network == "unix" {
				return nil
			}
			if cerr := c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(peerTimeout.Milliseconds()))
			}); cerr != nil {
				return cerr
			}
			return err
		},
	}}
}

// DialTimeout is the method that the driver calls when it has no context.
func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}
