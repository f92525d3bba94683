// Package bucket keeps an archive of the log in an S3-compatible bucket. It is apart from package
// archive, because the client of AWS is large and most programs and tests need none.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/s3blob" // s3://
	"gocloud.dev/gcerrors"

	"quartermaster/adapters/kafka/archive"
)

// Open returns the store at an address: s3://BUCKET, optionally with a prefix as path and with the
// parameters of gocloud.dev/blob/s3blob (region, endpoint, use_path_style …), or whatever
// [archive.OpenStore] takes. Credentials are those of the environment, as for the programs of AWS.
func Open(ctx context.Context, address string) (archive.Store, error) {
	if !strings.HasPrefix(address, "s3://") {
		return archive.OpenStore(address)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	prefix := strings.Trim(u.Path, "/")
	u.Path = ""
	if q := u.Query(); !q.Has(checksums) { // an archive compares what it reads itself
		q.Set(checksums, "when_required")
		u.RawQuery = q.Encode()
	}
	b, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	if prefix != "" {
		b = blob.PrefixedBucket(b, prefix+"/")
	}
	return &store{b, u.Scheme + "://" + u.Host + "/" + prefix}, nil
}

const checksums = "response_checksum_validation"

// store is an [archive.Store] in a bucket.
type store struct {
	bucket *blob.Bucket
	name   string
}

// String returns the address without parameters.
func (s *store) String() string { return s.name }

// Put implements [archive.Store] by a conditional write (If-None-Match), which the service MUST
// support.
func (s *store) Put(ctx context.Context, name string, body []byte) error {
	err := s.bucket.WriteAll(ctx, name, body, &blob.WriterOptions{
		IfNotExist: true, ContentType: "application/octet-stream",
	})
	switch gcerrors.Code(err) {
	case gcerrors.OK:
		return nil
	case gcerrors.FailedPrecondition, gcerrors.AlreadyExists:
		return fmt.Errorf("put %s: %w", name, archive.ErrExists)
	}
	return fmt.Errorf("put %s: %w", name, err)
}

// Get implements [archive.Store].
func (s *store) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := s.bucket.NewReader(ctx, name, nil)
	switch gcerrors.Code(err) {
	case gcerrors.OK:
		return r, nil
	case gcerrors.NotFound:
		return nil, fmt.Errorf("get %s: %w", name, archive.ErrNotFound)
	}
	return nil, fmt.Errorf("get %s: %w", name, err)
}

// List implements [archive.Store].
func (s *store) List(ctx context.Context, prefix string) (names []string, err error) {
	objects := s.bucket.List(&blob.ListOptions{Prefix: prefix})
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
