package bucket

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"quartermaster/adapters/kafka/archive"
	"quartermaster/adapters/parts"
)

// The ports that a bucket serves.
var (
	_ archive.Store = (*Bucket)(nil)
	_ parts.Bucket  = (*Bucket)(nil)
)

// service is as much of S3's protocol as they need: conditional writes, in one request or in
// parts, GET, and ListObjectsV2 in pages of two.
type service struct {
	mu      sync.Mutex
	objects map[string][]byte
	parts   map[string][]byte // by number, of the one upload in parts
	refuse  int               // status of every answer, if not 0
}

type listing struct {
	XMLName     xml.Name `xml:"ListBucketResult"`
	IsTruncated bool
	Next        string `xml:"NextContinuationToken,omitempty"`
	Contents    []object
}

type object struct {
	Key          string
	Size         int
	LastModified string
	ETag         string
}

func (s *service) fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>no</Message></Error>")
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/vault"), "/")
	body, known := s.objects[key]
	q := r.URL.Query()
	switch {
	case s.refuse != 0:
		s.fail(w, s.refuse, "AccessDenied")
	case r.Method == http.MethodPost && q.Has("uploads"):
		s.parts = map[string][]byte{}
		_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
	case r.Method == http.MethodPut && q.Get("uploadId") == "u":
		got, err := io.ReadAll(r.Body)
		if err != nil {
			s.fail(w, http.StatusBadRequest, "IncompleteBody")
			return
		}
		if strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") {
			got = unchunk(got)
		}
		s.parts[fmt.Sprintf("%05s", q.Get("partNumber"))] = got
		w.Header().Set("ETag", `"1"`)
	case r.Method == http.MethodPost && q.Get("uploadId") == "u":
		switch {
		case r.Header.Get("If-None-Match") != "*":
			s.fail(w, http.StatusBadRequest, "Unconditional")
		case known:
			s.fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
		default:
			for _, number := range slices.Sorted(maps.Keys(s.parts)) {
				s.objects[key] = append(s.objects[key], s.parts[number]...)
			}
			_, _ = io.WriteString(w, `<CompleteMultipartUploadResult><ETag>"1"</ETag></CompleteMultipartUploadResult>`)
		}
	case r.Method == http.MethodDelete && q.Get("uploadId") == "u":
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut && key != "":
		switch got, err := io.ReadAll(r.Body); {
		case err != nil:
			s.fail(w, http.StatusBadRequest, "IncompleteBody")
		case r.Header.Get("If-None-Match") != "*":
			s.fail(w, http.StatusBadRequest, "Unconditional")
		case known:
			s.fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
		default:
			if strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") {
				got = unchunk(got)
			}
			s.objects[key] = got
			w.Header().Set("ETag", `"1"`)
		}
	case r.Method == http.MethodGet && key != "" && known, r.Method == http.MethodHead && known:
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", fixed, bytes.NewReader(body))
	case r.Method == http.MethodHead:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet && key != "":
		s.fail(w, http.StatusNotFound, "NoSuchKey")
	case r.Method == http.MethodGet && q.Get("list-type") == "2":
		var l listing
		names := []string{}
		for name := range s.objects {
			if strings.HasPrefix(name, q.Get("prefix")) && name > q.Get("continuation-token") {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		if len(names) > 2 {
			names, l.IsTruncated, l.Next = names[:2], true, names[1]
		}
		for _, name := range names {
			l.Contents = append(l.Contents, object{name, len(s.objects[name]), "2026-01-01T00:00:00Z", `"1"`})
		}
		w.Header().Set("Content-Type", "application/xml")
		_ = xml.NewEncoder(w).Encode(l)
	default:
		s.fail(w, http.StatusNotImplemented, "NotImplemented")
	}
}

// unchunk removes the framing of aws-chunked: a size in hexadecimal digits before each chunk.
func unchunk(b []byte) (out []byte) {
	for {
		head, rest, ok := bytes.Cut(b, []byte("\r\n"))
		digits, _, _ := strings.Cut(string(head), ";")
		size := 0
		for _, d := range digits {
			size = size*16 + strings.IndexRune("0123456789abcdef", d)
		}
		if !ok || size <= 0 || size > len(rest) {
			return out
		}
		out = append(out, rest[:size]...)
		b = rest[size+2:]
	}
}

var fixed = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// open opens a prefix of a bucket of a new service.
func open(t *testing.T) (*Bucket, *service) {
	t.Helper()
	s := &service{objects: map[string][]byte{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	store, err := Open(t.Context(), "s3://vault/logs/a?region=eu-1&use_path_style=true&endpoint="+server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return store, s
}

// zeros is a reader of zeros without end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func TestBucket(t *testing.T) {
	store, s := open(t)
	if got := store.String(); got != "s3://vault/logs/a" {
		t.Error(got)
	}
	ctx := t.Context()
	if names, err := store.List(ctx, "x/"); len(names) > 0 || err != nil {
		t.Fatal(names, err)
	}
	bodies := map[string][]byte{"x/1": []byte("one"), "x/2": {}, "x/3/4": bytes.Repeat([]byte("much"), 5<<20), "y/1": []byte("y")}
	for name, body := range bodies {
		if err := store.Put(ctx, name, body); err != nil {
			t.Fatal(name, err)
		}
		if !bytes.Equal(s.objects["logs/a/"+name], body) {
			t.Fatalf("%s has other bytes", name)
		}
		if err := store.Put(ctx, name, []byte("other")); !errors.Is(err, fs.ErrExist) {
			t.Fatal(name, err)
		}
		r, err := store.Get(ctx, name)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%s returns %d other bytes: %v", name, len(got), err)
		}
		if n, err := store.Size(ctx, name); n != int64(len(body)) || err != nil {
			t.Fatalf("%s has %d bytes: %v", name, n, err)
		}
	}
	if names, err := store.List(ctx, "x/"); !slices.Equal(names, []string{"x/1", "x/2", "x/3/4"}) || err != nil {
		t.Fatal(names, err)
	}
	if _, err := store.Get(ctx, "x/9"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := store.Size(ctx, "x/9"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	// A body that fails leaves nothing, not even what came before it failed.
	for _, n := range []int64{100, 20 << 20} {
		broken := errors.New("broken")
		body := io.MultiReader(io.LimitReader(zeros{}, n), iotest.ErrReader(broken))
		if err := store.Upload(ctx, "x/broken", body); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		s.mu.Lock() // the service may still answer a request that the client gave up
		_, ok := s.objects["logs/a/x/broken"]
		s.mu.Unlock()
		if ok {
			t.Fatalf("what came of a body of %d bytes that failed is stored", n)
		}
	}
	// No right is not the same as no object.
	s.mu.Lock()
	s.refuse = http.StatusForbidden
	s.mu.Unlock()
	_, err := store.Get(ctx, "x/1")
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := store.Put(ctx, "z", nil); err == nil || errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	if _, err := store.Size(ctx, "x/1"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := store.List(ctx, "x/"); err == nil {
		t.Fatal("listed without a right")
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, address := range []string{"", "gopher://x", "s3://%", "s3://vault?nothing=1"} {
		if _, err := Open(t.Context(), address); err == nil {
			t.Errorf("opened %q", address)
		}
	}
}
