package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	produce        = int16(kmsg.Produce)
	apiVersions    = 18 // a byte in the handshake frame too
	createTopics   = int16(kmsg.CreateTopics)
	initProducerID = int16(kmsg.InitProducerID)
	deleteRecords  = int16(kmsg.DeleteRecords)

	// otherFrame limits requests without records, in bytes. For a request full of empty arrays, the
	// broker allocates about a hundred times its size.
	otherFrame = 1 << 20

	maxPartitions = 1024 // in one CreateTopics request
)

// admittedKeys are the requests that an event log needs. None of them reconfigures or opens a
// transaction. DeleteRecords is for records that an archive has: see drop.
var admittedKeys = []kmsg.Key{
	kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata,
	kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.FindCoordinator,
	kmsg.JoinGroup, kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.SyncGroup,
	kmsg.DescribeGroups, kmsg.ListGroups, kmsg.ApiVersions,
	kmsg.CreateTopics, kmsg.InitProducerID, kmsg.OffsetForLeaderEpoch,
	kmsg.DescribeConfigs, kmsg.DeleteRecords,
}

// admitted returns the highest admitted version of each key: the last one without tagged fields,
// because the length of the frame does not bound their counts. Clients get it from ApiVersions.
func admitted() *kversion.Versions {
	vs := new(kversion.Versions)
	for _, k := range admittedKeys {
		req := k.Request()
		top := int16(-1)
		for v := int16(0); v <= req.MaxVersion(); v++ {
			req.SetVersion(v)
			if req.IsFlexible() {
				break
			}
			top = v
		}
		vs.SetMaxKeyVersion(k.Int16(), top)
	}
	return vs
}

// versions caches the result of admitted, which is constant.
var versions = admitted()

// guard is the listener of the broker. Its connections deliver only complete, admitted requests.
type guard struct {
	net.Listener
	cfg      Config
	log      *slog.Logger
	disk     *disk
	versions *kversion.Versions
	end      func(error)

	dropping sync.Mutex // held while the start of a partition moves

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
	err    error // why the broker has stopped
}

func newGuard(l net.Listener, cfg Config, d *disk, end func(error)) *guard {
	return &guard{
		Listener: l,
		cfg:      cfg,
		log:      cfg.Log,
		disk:     d,
		versions: versions,
		end:      end,
		conns:    make(map[*conn]struct{}),
	}
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// Addr returns the advertised address.
func (g *guard) Addr() net.Addr { return address(advertised) }

// Accept returns the next connection within the limit of connections.
func (g *guard) Accept() (net.Conn, error) {
	for {
		nc, err := g.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil, err
			}
			// Most likely out of file descriptors: try again later.
			g.log.Warn("accept connection", "error", err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		c := &conn{Conn: nc, g: g, gone: make(chan struct{})}
		c.answered.L = &c.mu
		if err := g.admit(c); err != nil {
			g.log.Warn("connection refused", "reason", err)
			nc.Close()
			continue
		}
		return c, nil
	}
}

func (g *guard) admit(c *conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return ErrClosed
	case g.err != nil:
		return g.err
	case len(g.conns) >= g.cfg.MaxConns:
		return fmt.Errorf("%d connections are open, no more are served", len(g.conns))
	}
	g.conns[c] = struct{}{}
	return nil
}

// fail stops the broker permanently: it sends no answer after the first failure.
func (g *guard) fail(err error) {
	g.mu.Lock()
	first := g.err == nil
	if first {
		g.err = err
	}
	g.mu.Unlock()
	if !first {
		return
	}
	g.log.Error("log stopped", "error", err)
	g.end(err)
	g.shut()
}

func (g *guard) broken() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// shut closes the listener and every connection.
func (g *guard) shut() {
	g.mu.Lock()
	g.closed = true
	var open []*conn
	for c := range g.conns {
		open = append(open, c)
	}
	g.mu.Unlock()
	g.Listener.Close()
	for _, c := range open {
		_ = c.Close() // its error does not matter here
	}
}

// request is what the guard remembers of a request until its answer is sent.
type request struct {
	key     int16
	appends []topicPartition
}

// conn delivers frames to the broker. The broker reads from one goroutine at a time and writes each
// answer with one Write, in the order of the requests.
type conn struct {
	net.Conn
	g     *guard
	frame []byte // admitted, not yet read by the broker
	later bool   // the first request has arrived

	mu       sync.Mutex
	answered sync.Cond
	waiting  []request
	shut     bool
	gone     chan struct{}
}

// Close may be called more than once.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.shut {
		c.mu.Unlock()
		return nil
	}
	c.shut = true
	c.answered.Broadcast()
	c.mu.Unlock()
	c.g.mu.Lock()
	delete(c.g.conns, c)
	c.g.mu.Unlock()
	return c.Conn.Close()
}

// Read gives the broker the next bytes of an admitted request.
func (c *conn) Read(b []byte) (int, error) {
	for len(c.frame) == 0 {
		if err := c.next(); err != nil {
			_ = c.Close() // err is the important error
			return 0, err
		}
	}
	n := copy(b, c.frame)
	c.frame = c.frame[n:]
	return n, nil
}

// next reads one frame and admits or answers it. Its error ends the connection.
func (c *conn) next() error {
	frame, err := c.readFrame()
	if err != nil {
		return err
	}
	req, answer, err := c.g.judge(frame)
	if err != nil {
		c.g.log.Warn("connection dropped", "reason", err)
		return err
	}
	if answer != nil {
		return c.answer(answer)
	}
	if req.key >= 0 {
		c.mu.Lock()
		c.waiting = append(c.waiting, req)
		c.mu.Unlock()
	}
	c.frame = frame
	return nil
}

// readFrame reads the length and then the frame in pieces, so that memory grows with the received
// bytes, not with the claimed length.
func (c *conn) readFrame() ([]byte, error) {
	var head [12]byte
	if c.later {
		c.Conn.SetReadDeadline(time.Time{})
	} else {
		c.Conn.SetReadDeadline(time.Now().Add(c.g.cfg.FrameTimeout))
	}
	if err := c.readHead(head[:4], true); err != nil {
		return nil, err
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:])))
	err := c.g.bound(size, int64(max(c.g.cfg.MaxFrame, otherFrame)), "")
	if err == nil {
		if err := c.readHead(head[4:], false); err != nil {
			return nil, err
		}
		if key := int16(binary.BigEndian.Uint16(head[4:])); key == produce {
			err = c.g.bound(size, int64(c.g.cfg.MaxFrame), kmsg.NameForKey(key))
		} else {
			err = c.g.bound(size, otherFrame, kmsg.NameForKey(key))
		}
	}
	if err != nil {
		c.g.log.Warn("connection dropped", "reason", err)
		return nil, err
	}
	c.later = true
	total := int(size) + 4
	frame := make([]byte, min(total, 64<<10))
	have := copy(frame, head[:])
	for have < total {
		if have == len(frame) {
			bigger := make([]byte, min(total, 2*len(frame)))
			copy(bigger, frame)
			frame = bigger
		}
		n, err := c.Conn.Read(frame[have:])
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				reason := fmt.Sprintf("request of %d bytes stopped after %d: %v", total, have, err)
				c.g.log.Warn("connection dropped", "reason", reason)
			}
			return nil, err
		}
		have += n
	}
	return frame, nil
}

// readHead fills b. The time limit of the request starts with its first byte.
func (c *conn) readHead(b []byte, first bool) error {
	for have := 0; have < len(b); {
		n, err := c.Conn.Read(b[have:])
		if err != nil {
			if (have > 0 || !first) && !errors.Is(err, net.ErrClosed) {
				c.g.log.Warn("connection dropped", "reason", fmt.Sprintf("request stopped within its header: %v", err))
			}
			return err
		}
		if first && have == 0 {
			c.Conn.SetReadDeadline(time.Now().Add(c.g.cfg.FrameTimeout))
		}
		have += n
	}
	return nil
}

// bound refuses a frame with an invalid length.
func (g *guard) bound(size, most int64, name string) error {
	if size < 10 || size > most {
		return fmt.Errorf("request %s of %d bytes, 10 to %d are read", name, size, most)
	}
	return nil
}

// answer writes an answer of the guard itself, after all earlier answers.
func (c *conn) answer(b []byte) error {
	c.mu.Lock()
	for len(c.waiting) > 0 && !c.shut {
		c.answered.Wait()
	}
	shut := c.shut
	c.mu.Unlock()
	if shut {
		return net.ErrClosed
	}
	c.Conn.SetWriteDeadline(time.Now().Add(c.g.cfg.FrameTimeout))
	_, err := c.Conn.Write(b)
	return err
}

// Write sends an answer of the broker once the acknowledged data is durable.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	if len(c.waiting) == 0 {
		c.mu.Unlock()
		_ = c.Close() // the error below is the important one
		return 0, errors.New("answer without a request")
	}
	req := c.waiting[0]
	c.mu.Unlock()
	err := c.g.confirm(req)
	n := 0
	if err == nil {
		c.Conn.SetWriteDeadline(time.Now().Add(c.g.cfg.FrameTimeout))
		n, err = c.Conn.Write(b)
	}
	c.mu.Lock()
	c.waiting = c.waiting[1:]
	c.answered.Broadcast()
	c.mu.Unlock()
	if err != nil {
		_ = c.Close() // err is the important error
	}
	return n, err
}

func (g *guard) confirm(r request) error {
	err := g.broken()
	if err != nil {
		return err
	}
	switch kmsg.Key(r.key) {
	case kmsg.Produce:
		for _, tp := range r.appends {
			if err = g.disk.confirmAppend(tp); err != nil {
				err = fmt.Errorf("sync %s/%d: %w", tp.topic, tp.number, err)
				break
			}
		}
	case kmsg.CreateTopics,
		kmsg.OffsetCommit,
		kmsg.JoinGroup,
		kmsg.SyncGroup,
		kmsg.LeaveGroup,
		kmsg.InitProducerID:
		if err = g.disk.confirmNames(); err != nil {
			err = fmt.Errorf("sync %s: %w", g.disk.path, err)
		}
	}
	if err != nil {
		err = fmt.Errorf("log stopped, nothing more is acknowledged: %w", err)
		g.fail(err)
	}
	return err
}

// judge admits a frame or returns the guard's own answer. Its error means that the frame is refused.
func (g *guard) judge(frame []byte) (request, []byte, error) {
	key := int16(binary.BigEndian.Uint16(frame[4:]))
	version := int16(binary.BigEndian.Uint16(frame[6:]))
	top, known := g.versions.LookupMaxKeyVersion(key)
	if !known {
		return request{}, nil, fmt.Errorf("request %d (%s) is not served by this log", key, kmsg.NameForKey(key))
	}
	if key == apiVersions && version > top {
		return request{}, encode(frame, unknownVersion(key, top)), nil
	}
	if version < 0 || version > top {
		return request{}, nil, fmt.Errorf("request %s version %d, up to %d are served", kmsg.NameForKey(key), version, top)
	}
	body, err := skipClientID(frame)
	if err != nil {
		return request{}, nil, err
	}
	switch key {
	case produce:
		return g.judgeProduce(frame, body, version)
	case createTopics:
		answer, err := judgeCreateTopics(frame, body, version)
		return request{key: key}, answer, err
	case deleteRecords:
		if err := g.judgeDeleteRecords(body); err != nil {
			return request{}, nil, err
		}
	case initProducerID:
		if len(body) < 2 || int16(binary.BigEndian.Uint16(body)) >= 0 {
			return request{}, nil, errors.New("request InitProducerID opens a transaction, this log has none")
		}
	}
	return request{key: key}, nil, nil
}

// unknownVersion answers an ApiVersions request with a version that is too high. The client
// learns the supported version and asks again (KIP-511).
func unknownVersion(key, top int16) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	only := kmsg.NewApiVersionsResponseApiKey()
	only.ApiKey, only.MaxVersion = key, top
	resp.ApiKeys = append(resp.ApiKeys, only)
	return resp
}

// skipClientID returns the bytes after the header: length 4, key 2, version 2, correlation id 4,
// client id 2 + n. A frame has at least the 2 bytes of the client id's length.
func skipClientID(frame []byte) ([]byte, error) {
	n := int(int16(binary.BigEndian.Uint16(frame[12:])))
	body := frame[14:]
	if n < 0 {
		return body, nil
	}
	if n > len(body) {
		return nil, fmt.Errorf("client id of %d bytes in a request that has %d left", n, len(body))
	}
	return body[n:], nil
}

// encode frames an answer to the request in frame.
func encode(frame []byte, resp kmsg.Response) []byte {
	return encodeTo(make([]byte, 0, 256), frame, resp)
}

// encodeTo is encode with the empty buffer b.
func encodeTo(b, frame []byte, resp kmsg.Response) []byte {
	b = append(append(b, 0, 0, 0, 0), frame[8:12]...)
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}
