package wire

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
)

func batchOf(t testing.TB, recs ...domain.Record) []byte {
	t.Helper()
	var body []byte
	for i := range recs {
		var err error
		if body, err = AppendBatch(body, &recs[i]); err != nil {
			t.Fatal(err)
		}
	}
	return body
}

func TestBatchRoundTrip(t *testing.T) {
	want := []domain.Record{
		{Topic: domain.TopicHardware, Value: []byte("a"), Headers: []domain.Header{{Key: "ce_type", Value: []byte("x")}, {Key: "ce_type", Value: nil}}},
		{Topic: domain.TopicTelemetry, Key: []byte("c/3-of-8"), Value: []byte{0, 1, 2}},
	}
	got, err := ReadBatch(batchOf(t, want...))
	if err != nil {
		t.Fatal(err)
	}
	same := slices.EqualFunc(got, want, func(a, b domain.Record) bool {
		return a.Topic == b.Topic && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) && slices.EqualFunc(a.Headers, b.Headers, func(x, y domain.Header) bool {
			return x.Key == y.Key && bytes.Equal(x.Value, y.Value)
		})
	})
	if !same {
		t.Errorf("read %v, wrote %v", got, want)
	}
}

func TestBatchRefused(t *testing.T) {
	whole := batchOf(t, domain.Record{Topic: domain.TopicHardware, Value: []byte("payload")})
	many := bytes.Repeat(batchOf(t, domain.Record{Topic: domain.TopicHardware}), MaxBatch+1)
	headers := domain.Record{Topic: domain.TopicHardware, Headers: make([]domain.Header, maxHeaders+3)}
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"empty":        {nil, "holds no record"},
		"cut off":      {whole[:len(whole)-1], "not of " + BatchContentType},
		"text":         {[]byte(`{"specversion":"1.0"}`), "not of " + BatchContentType},
		"too many":     {many, "more than 10000 records"},
		"other topic":  {batchOf(t, domain.Record{Topic: "qm.secrets"}), `topic "qm.secrets" is unknown`},
		"many headers": {batchOf(t, headers), "record 0: more than 67 fields"},
		"long header":  {batchOf(t, domain.Record{Topic: domain.TopicHardware, Headers: []domain.Header{{Key: "k", Value: make([]byte, maxAttribute+1)}}}), "header 0 is longer"},
		"long key":     {batchOf(t, domain.Record{Topic: domain.TopicHardware, Key: make([]byte, maxAttribute+1)}), "record 0: key of"},
		"large value":  {batchOf(t, domain.Record{Topic: domain.TopicHardware, Value: make([]byte, maxRecord+1)}), "payload of 4194305 bytes"},
	} {
		if _, err := ReadBatch(c.body); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func FuzzReadBatch(f *testing.F) {
	f.Add(batchOf(f, domain.Record{Topic: domain.TopicHardware, Value: []byte("a"), Headers: []domain.Header{{Key: "k", Value: []byte("v")}}}))
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, body []byte) {
		recs, err := ReadBatch(body)
		if err != nil {
			return
		}
		again, err := ReadBatch(batchOf(t, recs...))
		if err != nil || len(again) != len(recs) {
			t.Fatalf("what was read does not write: %d records, then %d: %v", len(recs), len(again), err)
		}
	})
}
