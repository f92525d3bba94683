package transport

import (
	"net"
	"sync"
)

// Limit bounds the open connections of a listener. Further connections wait to be accepted.
func Limit(ln net.Listener, connections int) net.Listener {
	return &limited{Listener: ln, places: make(chan struct{}, connections), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &placed{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type placed struct {
	net.Conn
	leave func()
}

func (c *placed) Close() error {
	c.leave()
	return c.Conn.Close()
}
