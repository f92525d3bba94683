package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkAPI asks a server, through its socket, questions whose answers are kept, with and without their tag; and the
// command, which folds the log first. Four are asked at once.
func BenchmarkAPI(b *testing.B) {
	dir := demoEstate(b)
	client := apiOf(b, dir)
	const usage = "/api/v1/usage?from=2026-05-01&to=2026-05-04&by=workspace"
	tag := request(b, client, "GET", usage).header.Get("ETag")
	for _, c := range []struct {
		name   string
		header []string
		want   int
	}{{"answer", nil, http.StatusOK}, {"unchanged", []string{"If-None-Match", tag}, http.StatusNotModified}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetParallelism(2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if resp := request(b, client, "GET", usage, c.header...); resp.status != c.want {
						b.Errorf("%d %.200s", resp.status, resp.body)
					}
				}
			})
		})
	}
	b.Run("command", func(b *testing.B) {
		for b.Loop() {
			if code := run(strings.Split("usage --from 2026-05-01 --to 2026-05-04 --by workspace -o json --data-dir "+dir, " "),
				strings.NewReader(""), io.Discard, io.Discard); code != 0 {
				b.Fatal(code)
			}
		}
	})
}
