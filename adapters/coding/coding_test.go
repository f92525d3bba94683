package coding

import (
	"net/http"
	"testing"
)

// TestChoose reads which coding requests prefer, if only gzip is offered, and if Brotli is, too.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		headers   []string
		gzip, two string
	}{
		{nil, "", ""}, {[]string{""}, "", ""}, {[]string{"gzip"}, "gzip", "gzip"}, {[]string{"GZIP"}, "gzip", "gzip"},
		{[]string{"x-gzip"}, "gzip", "gzip"}, {[]string{"br, gzip"}, "gzip", "br"}, {[]string{"gzip", "br"}, "gzip", "br"},
		{[]string{"br"}, "", "br"}, {[]string{"*"}, "gzip", "br"}, {[]string{"gzip;q=0"}, "", ""}, {[]string{"gzip; q=0.000"}, "", ""},
		{[]string{"gzip;q=0, *"}, "", "br"}, {[]string{"*;q=0"}, "", ""}, {[]string{"br;q=0, gzip;q=0.5"}, "gzip", "gzip"},
		{[]string{"br;q=0.2, gzip;q=0.5"}, "gzip", "gzip"}, {[]string{"gzip;q=0.001"}, "gzip", "gzip"}, {[]string{"gzip ; Q=0.5"}, "gzip", "gzip"},
		{[]string{"gzip;q=0.5, identity"}, "", ""}, {[]string{"gzip;q=0.5, identity;q=0.5"}, "gzip", "gzip"},
		{[]string{"identity;q=0, *;q=0.1"}, "gzip", "br"}, {[]string{"identity"}, "", ""}, {[]string{"gzip;q=2"}, "", ""},
		{[]string{"gzip;q=-1"}, "", ""}, {[]string{"gzip;q=NaN"}, "", ""}, {[]string{"gzip;q="}, "", ""}, {[]string{"gzipped"}, "", ""},
		{[]string{"gzip;level=1"}, "gzip", "gzip"}, {[]string{",,gzip,"}, "gzip", "gzip"},
	} {
		header := http.Header{"Accept-Encoding": c.headers}
		if gzip, two := Choose(header, "gzip"), Choose(header, "br", "gzip"); gzip != c.gzip || two != c.two {
			t.Errorf("%q: %q of gzip, %q of Brotli and gzip", c.headers, gzip, two)
		}
	}
}
