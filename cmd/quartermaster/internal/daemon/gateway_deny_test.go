package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/httpapi"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// However many are refused, few events tell of it, and their counts add up.
func TestDenialsAreFolded(t *testing.T) {
	start := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	d := newDenials(start)
	known := httpapi.Denial{Principal: "key k of cluster lab", Target: "eu", Reason: "its key pushes for cluster lab alone"}
	d.add(known)
	d.add(httpapi.Denial{Principal: known.Principal, Target: "us", Reason: known.Reason})
	if first := d.fresh(); len(first) != 1 || first[0] != known {
		t.Errorf("at once: %+v", first)
	}
	const addresses, each = 500, 20
	for n := range addresses * each {
		d.add(httpapi.Denial{Principal: fmt.Sprint("address 10.0.0.", n%addresses), Reason: "its key is not known here"})
	}
	all := d.end(start.Add(denialWindow))
	counts := regexp.MustCompile(`(\d+) (?:more|refusals) since 2026-05-01T10:00:00Z`)
	sum := 0
	for _, one := range all {
		if m := counts.FindStringSubmatch(one.Reason); m == nil {
			sum++
		} else if n, err := strconv.Atoi(m[1]); err == nil {
			sum += n
		}
	}
	if want := addresses*each + 1; sum != want || len(all) > 2*mostDenials+1 {
		t.Errorf("%d events tell of %d denials, want %d: %+v", len(all), sum, want, all)
	}
	if more := all[mostDenials-1]; more != (httpapi.Denial{Principal: known.Principal, Reason: known.Reason + "; and 1 more since 2026-05-01T10:00:00Z"}) {
		t.Errorf("of one that was told: %+v", more)
	}
	if again := d.end(start.Add(2 * denialWindow)); len(again) != 0 {
		t.Errorf("an empty window tells %+v", again)
	}
	d.add(known)
	if again := d.fresh(); len(again) != 1 {
		t.Errorf("in another window: %+v", again)
	}
}

// Whatever a request says of clusters and sources, and whatever was said when its key
// was revoked, what the log is told of its refusal is valid. A denial that is not would
// be quarantined and mark every report.
func FuzzDenialsAreValid(f *testing.F) {
	f.Add("evil\x01name", "node-reporter/lab/n1", "lab", "")
	f.Add("evil\u202ename", "node-reporter/lab/n1", "lab", "lost")
	f.Add("", "node-reporter/evil\r\n/n1", "lab", "")
	f.Add("\xff\xfe", "node-reporter//", "lab", "")
	f.Add(strings.Repeat("x", 5000), "", strings.Repeat("é", 128), "")
	f.Add("", "node-reporter/"+strings.Repeat("x", 257)+"/n", "lab", strings.Repeat("é", 2048))
	base, err := wire.Encode(&domain.Envelope{Source: "node-reporter/lab/n1", Incarnation: 1, Sequence: 1, Time: domain.Hour, Cluster: "lab", Event: &domain.NodeCordoned{Node: "n1"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, cluster, source, own, why string) {
		revoked := domain.Envelope{Time: domain.Hour, Cluster: own, Event: &domain.ClusterKeyRevoked{KeyID: "k", Reason: why}}
		if domain.Validate(&revoked) != nil {
			return // nobody has such a cluster or reason
		}
		key, err := domain.NewClusterKey(bytes.NewReader(make([]byte, 64)))
		if err != nil {
			t.Fatal(err)
		}
		d := newDenials(time.Now())
		entry := registry.ClusterKeyEntry{Cluster: own, KeyID: key.ID, MAC: key.MAC(own), KeyLife: registry.KeyLife{Revoked: why != "", Why: "revoked: " + why}}
		g := &httpapi.Gateway{
			Keys: &httpapi.Keys{Now: time.Now, Load: func(context.Context) ([]registry.ClusterKeyEntry, error) {
				return []registry.ClusterKeyEntry{entry}, nil
			}},
			Read: func([]byte) ([]domain.Record, error) {
				rec := base
				rec.Headers = nil
				for _, h := range base.Headers {
					switch h.Key {
					case "ce_cluster":
						h.Value = []byte(cluster)
					case "ce_source":
						h.Value = []byte(source)
					}
					if len(h.Value) > 0 {
						rec.Headers = append(rec.Headers, h)
					}
				}
				return []domain.Record{rec, rec}, nil
			},
			ContentType: "text/x", NewDecoder: func() projections.Decoder { return new(wire.Decoder) },
			Append: func(context.Context, []domain.Record) error { return nil },
			Denied: d.add, Rate: 100, Burst: 100, Log: slog.New(slog.DiscardHandler),
		}
		for range 2 {
			r := httptest.NewRequest(http.MethodPost, "/v1/events", strings.NewReader("x"))
			r.Header.Set("Authorization", "Bearer "+key.String())
			r.Header.Set("Content-Type", "text/x")
			g.ServeHTTP(httptest.NewRecorder(), r)
		}
		for _, one := range d.end(time.Now()) {
			env := denialEvent(one, time.Now())
			if err := domain.Validate(&env); err != nil {
				t.Errorf("cluster %q, source %q, key of %q: %v", cluster, source, own, err)
			}
		}
	})
}
