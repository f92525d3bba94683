package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/snappy"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/proto"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/remotewrite"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

var (
	scrapeLine  = regexp.MustCompile(`^(\w+)\{(.*)\} (\S+)$`)
	scrapeLabel = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// scrape CLUSTER FILE writes what a scrape shows, one series a line as exporters print
// them, to the data directory as Prometheus would: each twenty times, 30 seconds apart, up to now.
func scrape(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: scrape cluster file")
	}
	end := time.Now()
	body, err := writeRequest(ts.ReadFile(args[1]), end)
	ts.Check(err)

	ctx := context.Background()
	a := commandLine(&app.App{Dir: ts.Getenv("QUARTERMASTER_DATA_DIR")}, io.Discard, io.Discard)
	h, err := a.Open(ctx)
	ts.Check(err)
	defer h.Close()
	ts.Check(func() error {
		stream := kafka.NewStream(h.Log, kafka.StreamConfig{Source: "prometheus/script", Incarnation: uint64(end.UnixNano()), Encode: wire.Encode})
		handler := remotewrite.Handler(remotewrite.Config{
			Authenticate: func(*http.Request) (string, error) { return args[0], nil },
			Append: func(ctx context.Context, events []domain.Envelope) error {
				all := make([]*domain.Envelope, len(events))
				for i := range events {
					all[i] = &events[i]
				}
				return stream.Append(ctx, all...)
			},
			Now: time.Now,
		})
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/v1/write", bytes.NewReader(body))
		setWriteHeaders(r)
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != http.StatusNoContent {
			ts.Fatalf("answer %d: %s", w.Code, w.Body)
		}
		return h.CatchUp(ctx)
	}())
}

// writeRequest returns the body of a remote-write request with the series of a text, each twenty
// times, 30 seconds apart, up to end.
func writeRequest(text string, end time.Time) ([]byte, error) {
	table, req := writev2.NewSymbolTable(), &writev2.Request{}
	for line := range strings.Lines(text) {
		m := scrapeLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			return nil, fmt.Errorf("no series: %q", line)
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, err
		}
		labels := []string{"__name__", m[1]}
		for _, l := range scrapeLabel.FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, l[1], l[2])
		}
		s := &writev2.TimeSeries{LabelsRefs: table.SymbolizeLabels(labels, nil)}
		for i := range 20 {
			s.Samples = append(s.Samples, &writev2.Sample{Value: value, Timestamp: end.Add(time.Duration(i-19) * 30 * time.Second).UnixMilli()})
		}
		req.Timeseries = append(req.Timeseries, s)
	}
	req.Symbols = table.Symbols()
	raw, err := proto.Marshal(req)
	return snappy.Encode(nil, raw), err
}

func setWriteHeaders(r *http.Request) {
	r.Header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
	r.Header.Set("Content-Encoding", "snappy")
}
