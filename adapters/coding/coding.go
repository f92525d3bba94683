// Package coding chooses how the content of a response is coded (RFC 9110, section 12.5.3).
package coding

import (
	"net/http"
	"strconv"
	"strings"
)

// Choose returns the coding of those offered that a request prefers, "" if it prefers none. Of those that it prefers alike,
// the first is chosen.
func Choose(request http.Header, offered ...string) string {
	given := map[string]float64{} // weights, by name
	for coding := range strings.SplitSeq(strings.Join(request.Values("Accept-Encoding"), ","), ",") {
		name, params, _ := strings.Cut(coding, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "x-gzip" {
			name = "gzip"
		}
		given[name] = max(given[name], weight(params))
	}
	best, most := "", given["identity"]
	for _, name := range offered {
		w, named := given[name]
		if !named {
			w = given["*"]
		}
		if w > most || w == most && w > 0 && best == "" {
			best, most = name, w
		}
	}
	return best
}

// weight returns the weight among the parameters of a coding: 1 without one, 0 if it is none.
func weight(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		key, value, given := strings.Cut(param, "=")
		if !given || !strings.EqualFold(strings.TrimSpace(key), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return q
	}
	return 1
}
