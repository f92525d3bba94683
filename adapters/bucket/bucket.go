// Package bucket keeps objects in an S3-compatible bucket: an archive of the log, or parts. It is
// apart from their packages, because the client of AWS is large and most programs and tests need
// none. A [Bucket] implements their ports, adapters/kafka/archive.Store and adapters/parts.Bucket.
package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"slices"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/s3blob" // s3://
	"gocloud.dev/gcerrors"
)

// Is reports whether an address is that of a bucket.
func Is(address string) bool { return strings.HasPrefix(address, "s3://") }

// Open returns the bucket at an address: s3://BUCKET, optionally with a prefix as path and with the
// parameters of gocloud.dev/blob/s3blob (region, endpoint, use_path_style …). Credentials are those
// of the environment, as for the programs of AWS.
func Open(ctx context.Context, address string) (*Bucket, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	prefix := strings.Trim(u.Path, "/")
	u.Path = ""
	if q := u.Query(); !q.Has(checksums) { // whoever reads compares the bytes
		q.Set(checksums, "when_required")
		u.RawQuery = q.Encode()
	}
	b, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	name := u.Scheme + "://" + u.Host
	if prefix != "" {
		b = blob.PrefixedBucket(b, prefix+"/")
		name += "/" + prefix
	}
	return &Bucket{b, name}, nil
}

const checksums = "response_checksum_validation"

// Bucket is a bucket, or what begins with a prefix in one. It is safe for concurrent use.
type Bucket struct {
	bucket *blob.Bucket
	name   string
}

// String returns the address without parameters.
func (b *Bucket) String() string { return b.name }

// Put is [Bucket.Upload] of bytes.
func (b *Bucket) Put(ctx context.Context, name string, body []byte) error {
	return b.Upload(ctx, name, bytes.NewReader(body))
}

// Upload stores what body has as an object. It replaces none: it fails with [fs.ErrExist]. It is a
// conditional write (If-None-Match), which the service MUST support. If body fails, nothing is
// stored. After another error there may be an object.
func (b *Bucket) Upload(ctx context.Context, name string, body io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.bucket.NewWriter(ctx, name, &blob.WriterOptions{
		IfNotExist: true, ContentType: "application/octet-stream",
	})
	if err == nil {
		if _, err = io.Copy(w, body); err != nil {
			cancel() // so that closing does not store what came so far
		}
		err = errors.Join(err, w.Close())
	}
	switch gcerrors.Code(err) {
	case gcerrors.OK:
		return nil
	case gcerrors.FailedPrecondition, gcerrors.AlreadyExists:
		return fmt.Errorf("put %s: %w", name, fs.ErrExist)
	}
	return fmt.Errorf("put %s: %w", name, err)
}

// Get returns an object, or [fs.ErrNotExist].
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := b.bucket.NewReader(ctx, name, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", name, known(err))
	}
	return r, nil
}

// Size returns the number of bytes of an object, or [fs.ErrNotExist].
func (b *Bucket) Size(ctx context.Context, name string) (int64, error) {
	a, err := b.bucket.Attributes(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("look for %s: %w", name, known(err))
	}
	return a.Size, nil
}

// known returns [fs.ErrNotExist] if err says that there is no such object.
func known(err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return fs.ErrNotExist
	}
	return err
}

// List returns the names of the objects whose names begin with prefix, in their order.
func (b *Bucket) List(ctx context.Context, prefix string) (names []string, err error) {
	objects := b.bucket.List(&blob.ListOptions{Prefix: prefix})
	for {
		o, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
		names = append(names, o.Key)
	}
}
