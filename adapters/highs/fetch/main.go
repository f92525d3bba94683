// Command fetch downloads HiGHS for WebAssembly and its licence to where the build embeds them.
// "make highs" runs it. package-lock.json has the version and the integrity hash of the npm
// package.
//
//	go run ./adapters/highs/fetch                      from the registry in npm_config_registry,
//	                                                   else from npm's configured registry
//	go run ./adapters/highs/fetch highs-1.15.3.tgz     from a downloaded file
//	go run ./adapters/highs/fetch -try                 on failure, report it and exit with 0;
//	                                                   do not try again for ten minutes
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	dir  = "adapters/highs"
	most = 64 << 20 // largest size of the package, packed and unpacked; it has 2 and 4 MB

	// failed is the file that a failed run with -try leaves, so that not every target of the
	// Makefile waits for an unavailable network.
	failed  = dir + "/module/.failed"
	patient = 10 * time.Minute

	dialing   = 10 * time.Second // timeout for connecting, and for the response header
	receiving = 2 * time.Minute
)

// wanted maps the files of the package to their destinations.
var wanted = map[string]string{
	"package/build/highs.wasm": "module/highs.wasm",
	"package/LICENSE":          "module/LICENSE",
	"package/build/highs.js":   "testdata/highs.js", // names the module's functions, for a test
}

func main() {
	args := os.Args[1:]
	try := len(args) > 0 && args[0] == "-try"
	if try {
		args = args[1:]
	}
	if try && lately(failed, time.Now()) {
		fmt.Fprintf(os.Stderr, "continuing without a solver: a recent download failed; make highs tries again\n")
		return
	}
	err := run(args)
	switch {
	case err == nil:
		_ = os.Remove(failed)
	case try:
		_ = os.WriteFile(failed, []byte(err.Error()+"\n"), 0o644)
		fmt.Fprintf(os.Stderr, "continuing without a solver; make highs downloads it: %v\n", err)
	default:
		fmt.Fprintf(os.Stderr, "fetch HiGHS: %v\n", err)
		os.Exit(1)
	}
}

// lately reports whether a file was written in the last ten minutes.
func lately(file string, now time.Time) bool {
	info, err := os.Stat(file)
	if err != nil {
		return false
	}
	age := now.Sub(info.ModTime())
	return age >= 0 && age < patient
}

func run(args []string) error {
	locked, err := readLock(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	var packed []byte
	if len(args) > 0 {
		packed, err = os.ReadFile(args[0])
	} else {
		var place string
		if place, err = registry(); err == nil {
			packed, err = download(place + "highs/-/highs-" + locked.Version + ".tgz")
		}
	}
	if err != nil {
		return err
	}
	sum := sha512.Sum512(packed)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != locked.Integrity {
		return fmt.Errorf("the package's hash is %s, but package-lock.json says %s", got, locked.Integrity)
	}
	found, err := unpack(packed)
	if err != nil {
		return err
	}
	for from, to := range wanted {
		if found[from] == nil {
			return fmt.Errorf("the package has no %s", from)
		}
		if err := replace(filepath.Join(dir, to), found[from]); err != nil {
			return err
		}
	}
	return nil
}

type lock struct {
	Version   string `json:"version"`
	Integrity string `json:"integrity"`
}

func readLock(file string) (lock, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return lock{}, fmt.Errorf("%w: run it at the top of the repository", err)
	}
	var all struct {
		Packages map[string]lock `json:"packages"`
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return lock{}, fmt.Errorf("read %s: %w", file, err)
	}
	l := all.Packages["node_modules/highs"]
	if l.Version == "" || !strings.HasPrefix(l.Integrity, "sha512-") {
		return lock{}, fmt.Errorf("%s has no version of highs with a sha512 hash", file)
	}
	return l, nil
}

// registry returns the registry that npm would use: from its environment variable, else from its
// configuration.
func registry() (string, error) {
	place := os.Getenv("npm_config_registry")
	if place == "" {
		said, err := exec.Command("npm", "config", "get", "registry").Output()
		if err != nil {
			return "", fmt.Errorf("ask npm for its registry (install npm, or name one in npm_config_registry): %w", err)
		}
		place = strings.TrimSpace(string(said))
	}
	return strings.TrimSuffix(place, "/") + "/", nil
}

func download(url string) ([]byte, error) {
	client := http.Client{Timeout: receiving, Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialing}).DialContext,
		TLSHandshakeTimeout:   dialing,
		ResponseHeaderTimeout: dialing,
		ForceAttemptHTTP2:     true,
	}}
	answer, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, answer.Status)
	}
	b, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	if len(b) > most {
		return nil, fmt.Errorf("get %s: more than %d MB", url, most>>20)
	}
	return b, nil
}

// unpack returns the wanted files of a package.
func unpack(packed []byte) (map[string][]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	found := make(map[string][]byte)
	for t := tar.NewReader(io.LimitReader(z, most)); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if wanted[h.Name] != "" && h.Typeflag == tar.TypeReg {
			if found[h.Name], err = io.ReadAll(t); err != nil {
				return nil, err
			}
		}
	}
}

// replace writes a file atomically.
func replace(file string, b []byte) error {
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, b) {
		now := time.Now()
		return os.Chtimes(file, now, now)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".fetch-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
