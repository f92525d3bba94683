package api

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestPackers sends answers of every length, in memory and in a file, to those who accept gzip and those who do not.
func TestPackers(t *testing.T) {
	for _, size := range []int{0, 1, leastPacked, leastPacked + 1, mostInMemory, 3*mostInMemory + 1} {
		whole := bytes.Repeat([]byte(`{"gpu_ms":0123456789},`), size/22+1)[:size]
		p := newPackers()
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := &spool{}
			if _, err := out.Write(whole[:size/2]); err != nil {
				t.Error(err)
			}
			if _, err := out.Write(whole[size/2:]); err != nil {
				t.Error(err)
			}
			if err := p.send(w, r, out); err != nil {
				t.Error(err)
			}
			if err := out.close(); err != nil {
				t.Error(err)
			}
		}))
		ask := func(method, accept string) (header http.Header, text []byte) {
			req, err := http.NewRequestWithContext(t.Context(), method, srv.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", accept)
			resp, err := (&http.Transport{DisableCompression: true}).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if vary := resp.Header.Get("Vary"); vary != "Accept-Encoding" {
				t.Errorf("Vary is %q", vary)
			}
			return resp.Header, body
		}
		packed := size > leastPacked
		for range mostPacking + 1 { // writers are used again
			header, body := ask(http.MethodGet, "gzip")
			if got := header.Get("Content-Encoding") == "gzip"; got != packed {
				t.Fatalf("%d bytes are compressed: %v", size, got)
			}
			if packed {
				if len(body) > size/2 {
					t.Errorf("%d bytes are compressed to %d", size, len(body))
				}
				z, err := gzip.NewReader(bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if body, err = io.ReadAll(z); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(body, whole) {
				t.Fatalf("%d bytes are others after they were compressed", size)
			}
		}
		if header, body := ask(http.MethodGet, "gzip;q=0"); header.Get("Content-Encoding") != "" || !bytes.Equal(body, whole) {
			t.Errorf("%d bytes without compression: %q", size, header)
		}
		if header, body := ask(http.MethodHead, "gzip"); (header.Get("Content-Encoding") == "gzip") != packed || len(body) > 0 {
			t.Errorf("the header of %d bytes: %q", size, header)
		}
		for range mostPacking {
			<-p
		}
		if header, body := ask(http.MethodGet, "gzip"); header.Get("Content-Encoding") != "" || !bytes.Equal(body, whole) {
			t.Errorf("%d bytes while all writers are in use: %q", size, header)
		}
		srv.Close()
	}
}

// TestPackersCutOff gives the writer of an answer that was cut off to the next.
func TestPackersCutOff(t *testing.T) {
	p := newPackers()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	out := &spool{text: bytes.Repeat([]byte(fmt.Sprint(r)), 10_000)}
	for range 2 * mostPacking {
		if err := p.send(&broken{httptest.NewRecorder()}, r, out); err == nil {
			t.Fatal("no error")
		}
	}
	if len(p) != mostPacking {
		t.Errorf("%d writers are left of %d", len(p), mostPacking)
	}
}

type broken struct{ *httptest.ResponseRecorder }

func (*broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
