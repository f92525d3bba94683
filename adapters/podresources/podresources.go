// Package podresources asks the kubelet of a node which pod holds which GPU.
//
// The kubelet serves PodResourcesLister (v1) on a Unix socket, by gRPC without TLS. This package
// needs only two unary calls with small messages. It makes them with the HTTP/2 of the standard
// library and parses the fields itself, because a gRPC library would take more memory than the
// rest of the program.
//
// What always holds: a truncated, oversized or invalid answer is an error, never a shorter list.
// Unknown device ids are returned unchanged; the caller counts them.
package podresources

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Socket is the default socket of a kubelet.
const Socket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// Held is a device that a pod holds.
type Held struct {
	Namespace string
	Pod       string
	Container string
	Resource  string // such as nvidia.com/gpu; with a resource claim, the driver
	ID        string // the id of the device plugin or the driver; see ParseDevice
	Claim     string // namespace/name of the resource claim; "" if none
}

// Client asks one kubelet. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	socket string
}

// maxAnswer is the size of the largest answer in bytes: 110 pods take a hundredth of it.
const maxAnswer = 16 << 20

// New returns a client. It connects at the first call.
func New(socket string) *Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		Protocols:          protocols,
		DisableCompression: true,
		IdleConnTimeout:    time.Minute,
	}}}
}

// ErrUnsupported means that the kubelet does not know the call, or that a feature gate disables it.
var ErrUnsupported = errors.New("the kubelet does not offer this call")

// List returns the devices that pods hold, in the kubelet's order.
func (c *Client) List(ctx context.Context) ([]Held, error) {
	b, err := c.call(ctx, "/v1.PodResourcesLister/List")
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet at %s what pods hold: %w", c.socket, err)
	}
	held, err := parseList(b)
	if err != nil {
		return nil, fmt.Errorf("parse the answer of the kubelet at %s on what pods hold: %w", c.socket, err)
	}
	return held, nil
}

// Allocatable returns the ids of all devices of NVIDIA's resources, held or free. A shared GPU
// has one id for each replica.
func (c *Client) Allocatable(ctx context.Context) ([]string, error) {
	b, err := c.call(ctx, "/v1.PodResourcesLister/GetAllocatableResources")
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet at %s for its devices: %w", c.socket, err)
	}
	var ids []string
	err = fields(b, func(n protowire.Number, v []byte) error {
		if n != 1 {
			return nil
		}
		return parseDevices(v, func(resource, id string) {
			if ours(resource) {
				ids = append(ids, id)
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("parse the devices of the kubelet at %s: %w", c.socket, err)
	}
	return ids, nil
}

// Close closes the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call makes a unary gRPC call with an empty request.
func (c *Client) call(ctx context.Context, method string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+method, bytes.NewReader(make([]byte, 5)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	res, err := c.http.Do(req)
	if err != nil {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = fmt.Errorf(
				"%w; mount the kubelet's directory pod-resources, or leave Kubernetes out of the configuration",
				err,
			)
		case errors.Is(err, fs.ErrPermission):
			err = fmt.Errorf("%w; the socket belongs to root: give this program's group the right to it (see deploy/node)", err)
		}
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "application/grpc") {
		return nil, fmt.Errorf("answered %s of type %q, which is not a kubelet", res.Status, res.Header.Get("Content-Type"))
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+6))
	if err != nil {
		return nil, err
	}
	if len(b) > maxAnswer+5 {
		return nil, fmt.Errorf("more than %d bytes", maxAnswer)
	}
	status := res.Trailer.Get("Grpc-Status")
	if status == "" {
		status = res.Header.Get("Grpc-Status")
	}
	message, _ := url.PathUnescape(cmp.Or(res.Trailer.Get("Grpc-Message"), res.Header.Get("Grpc-Message")))
	switch status {
	case "0":
	case "12":
		return nil, fmt.Errorf("%w: %.200q", ErrUnsupported, message)
	case "":
		return nil, errors.New("the answer is cut off")
	default:
		return nil, fmt.Errorf("status %.4s: %.200q", status, message)
	}
	if len(b) < 5 || b[0] != 0 || int64(binary.BigEndian.Uint32(b[1:])) != int64(len(b)-5) {
		return nil, errors.New("the answer is not one message")
	}
	return b[5:], nil
}

// ours reports whether a resource is one of NVIDIA's.
func ours(resource string) bool {
	return strings.HasPrefix(resource, "nvidia.com/") || strings.HasSuffix(resource, ".nvidia.com")
}

// parseList reads a ListPodResourcesResponse.
func parseList(b []byte) (held []Held, err error) {
	err = fields(b, func(n protowire.Number, pod []byte) error {
		if n != 1 {
			return nil
		}
		var h Held
		var containers [][]byte
		err := fields(pod, func(n protowire.Number, v []byte) error {
			switch n {
			case 1:
				h.Pod = string(v)
			case 2:
				h.Namespace = string(v)
			case 3:
				containers = append(containers, v)
			}
			return nil
		})
		for _, c := range containers {
			if err == nil {
				held, err = parseContainer(held, h, c)
			}
		}
		return err
	})
	return held, err
}

func parseContainer(held []Held, h Held, b []byte) ([]Held, error) {
	first := len(held)
	err := fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case 1:
			h.Container = string(v)
		case 2:
			return parseDevices(v, func(resource, id string) {
				if ours(resource) {
					d := h
					d.Resource, d.ID = resource, id
					held = append(held, d)
				}
			})
		case 5:
			return parseClaim(v, func(claim, driver, device string) {
				if ours(driver) {
					d := h
					d.Resource, d.ID, d.Claim = driver, device, claim
					held = append(held, d)
				}
			})
		}
		return nil
	})
	for i := first; i < len(held); i++ {
		held[i].Container = h.Container // the name may follow the devices
	}
	return held, err
}

// parseDevices reads a ContainerDevices.
func parseDevices(b []byte, yield func(resource, id string)) error {
	resource := ""
	var ids []string
	err := fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case 1:
			resource = string(v)
		case 2:
			ids = append(ids, string(v))
		}
		return nil
	})
	for _, id := range ids {
		yield(resource, id)
	}
	return err
}

// parseClaim reads a DynamicResource.
func parseClaim(b []byte, yield func(claim, driver, device string)) error {
	name, namespace := "", ""
	type device struct{ driver, name string }
	var devices []device
	err := fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case 2:
			name = string(v)
		case 3:
			namespace = string(v)
		case 4: // ClaimResource
			var d device
			err := fields(v, func(n protowire.Number, v []byte) error {
				switch n {
				case 2:
					d.driver = string(v)
				case 4:
					d.name = string(v)
				}
				return nil
			})
			devices = append(devices, d)
			return err
		}
		return nil
	})
	for _, d := range devices {
		yield(namespace+"/"+name, d.driver, d.name)
	}
	return err
}

// fields yields the length-delimited fields of a message.
func fields(b []byte, yield func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		n, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return fmt.Errorf("malformed answer of the kubelet: %w", protowire.ParseError(tag))
		}
		b = b[tag:]
		size := protowire.ConsumeFieldValue(n, kind, b)
		if size < 0 {
			return fmt.Errorf("malformed answer of the kubelet: %w", protowire.ParseError(size))
		}
		if kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			if err := yield(n, v); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}
